"""Cholesky factors in both orders, and the diagonal of the inverse, of the compiled module."""

import numpy as np
import pytest
import sequential_reference

from pydirect import _core

# Around the widths of panels and groups of columns.
SIZES = [1, 2, 7, 8, 9, 63, 64, 65, 136, 300]
THREADS = [1, 2, 7]


@pytest.fixture(scope="module", params=SIZES)
def problem(request):
    """Matrix whose pivots are far apart, ridge, scale and matrix_scale; and M made of them."""
    b = request.param
    rng = np.random.default_rng(b)
    x = rng.standard_normal((b, 2 * b + 2)) * np.exp(rng.standard_normal((b, 1)))
    arguments = dict(matrix=x @ x.T, ridge=rng.uniform(0.1, 1.0, b), scale=2.0 ** rng.integers(-3, 3, b))
    return arguments, 0.7, assembled(matrix_scale=0.7, **arguments)


def assembled(matrix, ridge, scale, matrix_scale):
    return scale[:, None] * (matrix_scale * matrix + np.diag(ridge)) * scale


def cholesky(matrix, pivot, n_threads=1):
    b = len(matrix)
    return _core.cholesky(matrix, np.zeros(b), np.ones(b), pivot, 1.0, n_threads)


@pytest.mark.parametrize("pivot", [False, True])
def test_factor_multiplies_back_to_the_matrix(isa_level, problem, pivot):
    arguments, matrix_scale, m = problem
    factor, order, rank = _core.cholesky(**arguments, pivot=pivot, matrix_scale=matrix_scale, n_threads=1)
    assert rank == len(m)
    assert sorted(order) == list(range(len(m)))
    np.testing.assert_array_equal(factor, np.triu(factor))
    assert np.linalg.norm(factor.T @ factor - m[np.ix_(order, order)]) <= 1e-12 * np.linalg.norm(m)


@pytest.mark.parametrize("pivot", [False, True])
def test_order_is_that_of_the_smallest_pivots(isa_level, problem, pivot):
    arguments, matrix_scale, _ = problem
    _, order, _ = _core.cholesky(**arguments, pivot=pivot, matrix_scale=matrix_scale, n_threads=1)
    _, expected, _ = sequential_reference.cholesky(**arguments, pivot=pivot, matrix_scale=matrix_scale)
    np.testing.assert_array_equal(order, expected)


def test_lowest_index_comes_first_among_equal_pivots(isa_level):
    diagonal = np.tile([3.0, 1.0, 2.0, 1.0, 4.0, 2.0], 25)
    factor, order, _ = cholesky(np.diag(diagonal), pivot=True)
    np.testing.assert_array_equal(order, np.argsort(diagonal, kind="stable"))
    np.testing.assert_array_equal(factor, np.diag(np.sqrt(diagonal[order])))


@pytest.mark.parametrize("pivot", [False, True])
def test_only_the_upper_triangle_is_read(problem, pivot):
    _, _, m = problem
    whole, upper = cholesky(m, pivot), cholesky(np.triu(m) + np.tril(np.full_like(m, np.nan), -1), pivot)
    np.testing.assert_array_equal(upper[0], whole[0])
    np.testing.assert_array_equal(upper[1], whole[1])


def test_inverse_diagonal_is_that_of_the_inverse(isa_level, problem):
    _, _, m = problem
    factor, order, _ = cholesky(m, pivot=True)
    np.testing.assert_allclose(_core.inverse_diagonal(factor, 1), np.diag(np.linalg.inv(m))[order], rtol=1e-10)


def test_threads_and_instruction_sets_change_no_bit(at_every_level, problem):
    _, _, m = problem
    every = [(pivot, n_threads) for pivot in (False, True) for n_threads in THREADS]
    found = [at_every_level(lambda pivot=pivot, n=n: cholesky(m, pivot, n)) for pivot, n in every]
    factors = found[: len(THREADS)], found[len(THREADS) :]
    for one, *others in factors:
        for other in others:
            for got, expected in zip(other, one, strict=True):
                np.testing.assert_array_equal(got, expected)
        diagonal = _core.inverse_diagonal(one[0], 1)
        for n_threads in THREADS:
            got = at_every_level(lambda factor=one[0], n=n_threads: _core.inverse_diagonal(factor, n))
            np.testing.assert_array_equal(got, diagonal)


def with_entry(m, i, j, value):
    m = m.copy()
    m[i, j] = m[j, i] = value
    return m


@pytest.mark.parametrize("pivot", [False, True])
@pytest.mark.parametrize("b", [3, 70, 150])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, -np.inf])
def test_rank_counts_the_pivots_before_a_bad_one(isa_level, b, value, pivot):
    x = np.random.default_rng(b).standard_normal((b, 2 * b))
    position = 2 * b // 3
    rank = cholesky(with_entry(x @ x.T, position, position, value), pivot)[2]
    if pivot:
        assert rank == (0 if value <= 0.0 else b - 1), "the smallest comes first, those that are not finite last"
    else:
        assert rank == position


@pytest.mark.parametrize("pivot", [False, True])
@pytest.mark.parametrize("value", [1e6, np.nan, np.inf])
def test_rank_is_not_full_with_an_impossible_entry_off_the_diagonal(isa_level, value, pivot):
    x = np.random.default_rng(0).standard_normal((100, 200))
    assert cholesky(with_entry(x @ x.T, 20, 90, value), pivot)[2] < 100
