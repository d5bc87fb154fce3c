"""Fixtures: a path and a small container file."""

import numpy as np
import pytest

from pydirect.persistence.container import write


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.pydirect"


@pytest.fixture
def small(path):
    """A small file with a header of every type and arrays that leave gaps, and its bytes."""
    header = {"name": "Ångström \ud800", "n": 3, "x": -0.5, "flag": True, "none": None, "list": [1, [2.5, {}]]}
    arrays = {"a": np.arange(3.0), "b": np.array([True, False]), "c": np.zeros((0, 4), dtype=np.int16)}
    write(path, "model", header, arrays)
    return path, path.read_bytes()
