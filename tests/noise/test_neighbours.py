"""The nearest rows are those of brute force, in trees and in blocks of distances."""

import pickle

import numpy as np
import pytest

from pydirect.noise import local as module
from pydirect.noise.local import Neighbours, effective_dimensions, used_columns

RNG = np.random.default_rng(0)


def distances(rows, queries):
    return np.linalg.norm(rows.astype(float) - queries.astype(float)[:, None, :], axis=2)


@pytest.mark.parametrize("n_columns", [2, 30])
@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("n_rows", [45, 500])
def test_the_nearest_rows_are_those_of_brute_force(n_columns, k, n_rows):
    rows = RNG.standard_normal((n_rows, n_columns)).astype(np.float32)
    queries = RNG.standard_normal((70, n_columns)).astype(np.float32)
    found = Neighbours(rows).nearest(queries, k)
    all_distances = distances(rows, queries)
    assert found.shape == (70, k) and all(len(set(row)) == k for row in found)
    np.testing.assert_allclose(
        np.sort(np.take_along_axis(all_distances, found, axis=1)), np.sort(all_distances)[:, :k], atol=1e-5
    )


def test_rows_come_from_trees_only_in_few_effective_dimensions():
    few, many = (RNG.standard_normal((200, d)).astype(np.float32) for d in (3, 30))
    assert effective_dimensions(few) == pytest.approx(3, rel=0.1)
    assert Neighbours(few)._tree is not None and Neighbours(many)._tree is None
    assert effective_dimensions(np.zeros((5, 2), dtype=np.float32)) == 0


def test_results_do_not_depend_on_the_blocks(monkeypatch):
    rows, queries = (RNG.standard_normal((n, 20)).astype(np.float32) for n in (300, 64))
    whole = np.sort(Neighbours(rows).nearest(queries, 7))
    monkeypatch.setattr(module, "DISTANCE_BYTES", 1)
    np.testing.assert_array_equal(np.sort(Neighbours(rows).nearest(queries, 7)), whole)


def test_pickles_hold_the_rows_once():
    found = Neighbours(RNG.standard_normal((500, 3)).astype(np.float32))
    before = len(pickle.dumps(found))
    found.nearest(found.rows, 2)
    assert len(pickle.dumps(found)) == before


def test_columns_that_hardly_change_distances_are_dropped():
    u = RNG.standard_normal((100, 4)) * [1e-3, 1.0, 0.5, 1e-3]
    np.testing.assert_array_equal(used_columns(u, 1e-4), [1, 2])
    np.testing.assert_array_equal(used_columns(np.zeros((3, 2)), 1e-4), [1])
