"""Sums of rows that come, fade and leave, against sums over the rows that are left."""

import numpy as np
import pytest

from pydirect.statistics.running import BLOCK_ROWS, FadingSum, WindowSum, faded_sums


def direct(rows, weight):
    return (rows.T * weight) @ rows


def assert_close(found, rows, weight, tolerance=1e-10):
    expected = direct(rows, weight)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_sums_after_a_million_additions_and_removals_are_those_of_what_is_left():
    rng = np.random.default_rng(0)
    pool, size = rng.standard_normal((5000, 4)), 500
    weight, sums = np.zeros(len(pool)), FadingSum.empty(4)
    for _ in range(1_000_000 // (2 * size)):
        coming = rng.permutation(np.flatnonzero(weight == 0))[:size]
        sums.add(pool[coming])
        weight[coming] = 1
        if weight.sum() > 1000:
            leaving = rng.permutation(np.flatnonzero(weight))[:size]
            sums.add(pool[leaving], -np.ones(size))
            weight[leaving] = 0
    assert_close(sums.total(), pool, weight)


def test_rows_one_by_one_in_blocks_and_of_both_signs():
    rng = np.random.default_rng(1)
    rows, weight = rng.standard_normal((3 * BLOCK_ROWS + 7, 3)), rng.uniform(-1, 2, 3 * BLOCK_ROWS + 7)
    sums = FadingSum.empty(3)
    sums.add(rows[:5], weight[:5])
    for i in range(5, 20):
        sums.add(rows[i : i + 1], weight[i : i + 1])
    sums.add(rows[20:], weight[20:])
    assert_close(sums.copy().total(), rows, weight, 1e-12)
    assert_close(sums.total(), rows, weight, 1e-12)


@pytest.mark.parametrize("factor", [0.999, 1e-30])
def test_rows_fade_together(factor):
    rng = np.random.default_rng(2)
    rows, sums = rng.standard_normal((400, 3)), FadingSum.empty(3)
    for row in rows:
        sums.fade(factor)
        sums.add(row[None])
    assert_close(sums.total(), rows, factor ** np.arange(400.0)[::-1], 1e-12)


def test_a_window_knows_nothing_of_rows_that_left_long_ago():
    rng = np.random.default_rng(3)
    window, n = 1000, 100_000
    rows = rng.standard_normal((n, 3)) * np.where(np.arange(n) < 95_000, 1e6, 1.0)[:, None]
    sums = WindowSum.empty(3)
    for begin in range(0, n, 250):
        sums.add(rows[begin : begin + 250])
        if begin >= window:
            sums.leave(rows[begin - window : begin - window + 250])
    assert sums.n_rows == window
    # A running sum would keep the rounding of the large rows, 1e-4 of the entries that are left.
    assert_close(sums.total(), rows[-window:], np.ones(window), 1e-13)


def test_no_more_rows_leave_than_there_are():
    sums = WindowSum.empty(2)
    sums.add(np.ones((3, 2)))
    with pytest.raises(ValueError, match="at most 3 rows can leave, got 4"):
        sums.leave(np.ones((4, 2)))


@pytest.mark.parametrize("n", [0, 1, 256, 700])
def test_running_sums_fade_by_their_recursion(n):
    values, total, expected = np.random.default_rng(0).exponential(size=n), 3.0, []
    for value in values:
        total = 0.9 * total + value
        expected.append(total)
    np.testing.assert_allclose(faded_sums(values, 0.9, 3.0), expected, rtol=1e-12)
