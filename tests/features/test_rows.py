"""Which rows are equal, and what repetitions of them count for."""

import numpy as np
import pytest
from scipy.special import erfc

from pydirect.features import rows as rows_module
from pydirect.features.rows import RowCounts, are_replicates, distinct_index
from pydirect.tables.table import equal_rows, row_hashes

RNG = np.random.default_rng(0)


def table(n=300, n_values=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, n_values, (n, 3)) - 1.5, rng.integers(0, 2, (n, 1)) / 3


@pytest.mark.parametrize("collide", [False, True])
def test_equal_rows_are_those_of_a_sort(collide, monkeypatch):
    x, y = table()
    if collide:
        monkeypatch.setattr(rows_module, "row_hashes", lambda *tables: np.zeros(len(x), dtype=np.uint64))
    first, where = equal_rows(x, y)
    rows = np.hstack([x, y])
    np.testing.assert_array_equal(rows[first][where], rows)
    assert (np.diff(first) > 0).all() and len(first) == len(np.unique(rows, axis=0))


def test_hashes_tell_rows_and_columns_apart_but_not_signs_of_zero():
    x = np.r_[np.eye(64), 2.0 ** np.arange(-30, 34) * np.eye(64)[::-1], RNG.standard_normal((2000, 64))]
    assert len(np.unique(row_hashes(x))) == len(np.unique(x, axis=0))
    assert (row_hashes(np.zeros((1, 3))) == row_hashes(-np.zeros((1, 3)))).all()


@pytest.mark.parametrize("most_sorted", [4000, 10])
def test_distinct_rows_have_the_same_order_for_weights_and_shuffled_repeats(most_sorted, monkeypatch):
    monkeypatch.setattr(rows_module, "MOST_SORTED_ROWS", most_sorted)
    x, y = RNG.standard_normal((50, 2)), RNG.standard_normal((50, 1))
    weight = RNG.integers(0, 4, 50)
    given = RNG.permutation(np.repeat(np.arange(50), weight))
    (index, total), (other, counted) = (
        distinct_index(x, y, weight.astype(float)),
        distinct_index(x[given], y[given], None),
    )
    np.testing.assert_array_equal(index, given[other])
    np.testing.assert_array_equal(total, weight[index])
    np.testing.assert_array_equal(counted, total)
    if most_sorted < 50:
        np.testing.assert_array_equal(distinct_index(x, y, None)[0], np.arange(50))


def counts_of(x, y, weight=None):
    index, total = distinct_index(x, y, weight)
    counts = RowCounts.of(x[index], y[index], total)
    return counts


def test_repeated_inputs_whose_few_targets_differ_are_replicates():
    x, y = table(600, 2)
    assert counts_of(x, y) == RowCounts(1.0, np.inf, 1.0)
    index, total = distinct_index(x, y, None)
    assert counts_of(x[index], y[index], total) == counts_of(x, y)
    shares = counts_of(x[index], y[index], total / 600)  # weights that add up to one are no numbers of measurements
    assert shares.repetitions == shares.unit == pytest.approx(1 / len(index))


@pytest.mark.parametrize("digits", [0, 12])
def test_copies_count_once(digits):
    x, y = RNG.standard_normal((80, 2)), np.round(RNG.standard_normal((80, 1)), digits)
    assert counts_of(np.tile(x, (3, 1)), np.tile(y, (3, 1))) == RowCounts(3.0, 1.0, 3.0)
    weight = np.r_[np.full(40, 20.0), np.ones(40)]
    counts = counts_of(x, y, weight)
    assert (counts.unit, counts.most) == (10.5, 1.0)
    assert counts.repetitions == pytest.approx(840 / (80 * erfc(np.sqrt(np.log(80 * 16_040 / 840**2) / 8))))


def test_repeated_inputs_with_targets_of_their_own_are_distinct_rows():
    x, y = np.repeat(RNG.standard_normal((10, 2)), 8, axis=0), RNG.standard_normal((80, 1))
    assert counts_of(x, y) == RowCounts(1.0, np.inf, 1.0)
    assert not are_replicates(x, y, np.full(80, 3.0))


@pytest.mark.parametrize("decimals", [0, 1])
def test_rounded_targets_of_few_inputs_are_replicates(decimals):
    rng = np.random.default_rng(1)
    x = np.repeat([[0.0], [1.0], [2.0], [3.0]], 500, axis=0)
    y = np.round(x**2 + 0.5 * rng.standard_normal(x.shape), decimals)  # hardly a value at two inputs
    index, total = distinct_index(x, y, None)
    assert are_replicates(x[index], y[index], total)
    y = x**2 + 0.5 * rng.standard_normal(x.shape)
    index, total = distinct_index(x, y, rng.multinomial(len(x), np.full(len(x), 1 / len(x))))  # a bootstrap sample
    assert not are_replicates(x[index], y[index], total)
