"""Factors of A + ridge from every precision: finite, and of a matrix no farther off than sums over rows are rounded."""

import numpy as np
import pytest

from pydirect.optimize.cholesky import cholesky_of_ridge, in_single_precision, solve_factored

ROWS = np.random.default_rng(0).standard_normal((20, 50))  # more columns than rows: A has no inverse
EPS, SINGLE_EPS = np.finfo(np.float64).eps, np.finfo(np.float32).eps


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e38, 1e-40, 1e-200])
@pytest.mark.parametrize(
    ("sums", "ridge", "off"),
    [(np.float64, 1e-2, SINGLE_EPS), (np.float64, 1e-10, EPS), (np.float64, 1e-30, EPS), (np.float32, 0.0, SINGLE_EPS)],
)
def test_the_factor_is_of_the_matrix_as_nearly_as_its_sums_are_known(scale, sums, ridge, off):
    a = (ROWS.T.astype(sums) @ ROWS.astype(sums)).astype(np.float64) * scale
    largest = a.diagonal().max()
    factor = cholesky_of_ridge(a, np.full(50, ridge * largest))
    upper = np.triu(factor).astype(np.float64) / np.sqrt(largest)
    assert np.isfinite(upper).all()
    assert factor.dtype == np.float32 if (scale, ridge) == (1.0, 1e-2) else True
    error = upper.T @ upper - a / largest - ridge * np.eye(50)
    assert np.abs(error).max() < 2 * 50 * off


def test_a_ridge_beyond_single_precision_gives_the_solution_all_the_same():
    a = ROWS.T @ ROWS
    factor = cholesky_of_ridge(a, np.full(50, 1e40))
    np.testing.assert_allclose(solve_factored(factor, ROWS[0]), ROWS[0] / 1e40, rtol=1e-12)


def test_a_matrix_that_is_no_sum_of_squares_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="A \\+ ridge must be positive definite"):
        cholesky_of_ridge(np.array([[1.0, 2.0], [2.0, 1.0]]), np.zeros(2))


@pytest.mark.parametrize("scale", [1e39, 1e-45])
def test_what_single_precision_cannot_hold_is_refused(scale):
    with pytest.raises(ValueError, match="X must be nearer to 1 in size for a mean-field posterior"):
        in_single_precision(scale * np.eye(2))
    assert in_single_precision(np.zeros((2, 2))).dtype == np.float32
