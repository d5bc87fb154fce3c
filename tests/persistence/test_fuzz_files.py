"""Files with thousands of random changes: each is refused, or loads as what it says, in a process that stays small."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("fuzz_files.py")
N_MUTATIONS = 5_500


@pytest.fixture
def directory():
    """A directory, in memory where there is such a place: tens of thousands of small files."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=place))
    yield path
    shutil.rmtree(path)


@pytest.mark.slow
def test_random_changes_never_crash_hang_or_go_unnoticed(directory):
    command = [sys.executable, str(WORKER), str(directory), "--mutations", str(N_MUTATIONS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    counts = json.loads(run.stdout.splitlines()[-1])
    assert counts["failures"] == {}
    assert counts["damaged"] + counts["forged"] >= 5_000
    # Changes under right checksums reach the model's own checks, and some of them make another sound model.
    assert 0.5 * counts["forged"] < counts["forged and refused"] < 0.95 * counts["forged"]
