import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pydirect.decisions import hypervolume, hypervolume_improvement, pareto_front


def dominated(points, i):
    return any((p >= points[i]).all() and (p > points[i]).any() for p in points)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_front_is_what_nothing_dominates(m):
    points = np.random.default_rng(m).integers(0, 6, (25, m)).astype(float)
    mask = pareto_front(points)
    first = [i for i in range(25) if not dominated(points, i) and not (points[:i] == points[i]).all(axis=1).any()]
    assert_array_equal(np.flatnonzero(mask), first)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_hypervolume_is_that_of_counted_cells(m):
    rng = np.random.default_rng(m)
    points = rng.integers(-2, 5, (6, m)).astype(float)
    cells = np.stack(np.meshgrid(*[np.arange(5)] * m, indexing="ij"), axis=-1).reshape(-1, m)
    expected = (cells[:, None] + 1 <= points[None]).all(axis=2).any(axis=1).sum()
    assert hypervolume(points, np.zeros(m)) == pytest.approx(expected)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_improvement_is_the_difference_of_hypervolumes(m):
    rng = np.random.default_rng(m)
    front, reference = rng.standard_normal((7, m)), np.full(m, -0.5)
    values = rng.standard_normal((5, m, 3))
    volume = hypervolume(front, reference)
    expected = [
        np.mean([hypervolume(np.vstack([front, values[i, :, s]]), reference) - volume for s in range(3)])
        for i in range(5)
    ]
    assert_allclose(hypervolume_improvement(values, front, reference), expected, rtol=1e-10, atol=1e-12)
    alone = [hypervolume(values[i, :, :1].T, reference) for i in range(5)]
    assert_allclose(hypervolume_improvement(values[:, :, 0], np.empty((0, m)), reference), alone, rtol=1e-10)


def test_blocks_of_rows_are_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    values, front = rng.standard_normal((9, 2, 4)), rng.standard_normal((5, 2))
    together = hypervolume_improvement(values, front, [0.0, 0.0])
    monkeypatch.setattr("pydirect.decisions.pareto.BLOCK_NUMBERS", 1)
    assert_array_equal(hypervolume_improvement(values, front, [0.0, 0.0]), together)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"values must be finite of shape \(n_rows, 2\), got shape \(3, 3\)"):
        hypervolume(np.zeros((3, 3)), [0.0, 0.0])
    with pytest.raises(ValueError, match="values must be of 2 objectives, as reference, got 3"):
        hypervolume_improvement(np.zeros((4, 3, 5)), np.zeros((1, 2)), [0.0, 0.0])
