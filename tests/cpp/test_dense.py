"""Dense algebra against its definition: chains of multiply-adds, each rounded once, in any tile and on any thread."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pydirect import _core

THREADS = (1, 2, 3)


def fused(a: float, b: float, c: float, dtype: type) -> float:
    """Return a b + c rounded once, by exact rational numbers; float32 chains are short enough for double's rounding."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return float(exact) if dtype is np.float64 else round_to_single(exact)


def round_to_single(x: Fraction) -> float:
    nearest = np.float32(float(x))
    around = [np.nextafter(nearest, np.float32(side)) for side in (-np.inf, np.inf)] + [nearest]
    return float(min(around, key=lambda v: (abs(Fraction(float(v)) - x), int(v.view(np.int32)) & 1)))


def chains(a, b, start, dtype, sign=1.0, weight=None):
    """Add a b to the start: of each 256 places of the inner axis a sum of its own."""
    out = np.array(start, dtype)
    for begin in range(0, a.shape[1], 256):
        for i, j in np.ndindex(out.shape):
            total = dtype(0)
            for k in range(begin, min(begin + 256, a.shape[1])):
                left = dtype(sign * a[i, k]) if weight is None else dtype(sign * (a[i, k] * weight[k]))
                total = dtype(fused(left, b[k, j], total, dtype))
            out[i, j] += total
    return out


def layouts(matrix):
    """Return the matrix as C and Fortran order, as every other row of another, and reversed twice."""
    every_other = np.zeros((2 * matrix.shape[0], matrix.shape[1]), matrix.dtype)[::2]
    every_other[:] = matrix
    reversed_ = np.ascontiguousarray(matrix[::-1, ::-1])[::-1, ::-1]
    return [np.ascontiguousarray(matrix), np.asfortranarray(matrix), every_other, reversed_]


def everywhere(at_every_level, call):
    """Return the result that all levels and numbers of threads agree upon."""
    first, *others = [at_every_level(lambda n=n: call(n)) for n in THREADS]
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 5, 3), (7, 3, 13), (5, 9, 1), (9, 4, 26), (2, 6, 40), (1, 300, 2), (5, 520, 1)]
)
def test_product_is_a_chain_of_fused_multiply_adds(at_every_level, dtype, shape):
    n, inner, m = shape
    rng = np.random.default_rng(n)
    a, b, start = (rng.standard_normal(s).astype(dtype) for s in ((n, inner), (inner, m), (n, m)))
    weight = rng.uniform(0.5, 2, inner).astype(dtype)
    for own, sign in ((None, -1.0), (weight, 1.0)):

        def product(n_threads, own=own, sign=sign):
            out = start.copy()
            _core.add_product(a, b, own, out, False, sign, n_threads)
            return out

        np.testing.assert_array_equal(everywhere(at_every_level, product), chains(a, b, start, dtype, sign, own))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(3, 600, 2), (101, 300, 77), (350, 520, 260), (2, 300, 1100), (1100, 300, 2)])
def test_product_has_the_same_bits_in_any_layout_block_and_number_of_threads(at_every_level, dtype, shape):
    n, inner, m = shape
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((n, inner)).astype(dtype), rng.standard_normal((inner, m)).astype(dtype)

    def product(left, right, n_threads=1, out=None):
        out = np.zeros((left.shape[0], right.shape[1]), dtype) if out is None else out
        _core.add_product(left, right, None, out, False, 1.0, n_threads)
        return out

    expected = everywhere(at_every_level, lambda n_threads: product(a, b, n_threads))
    np.testing.assert_allclose(expected, a.astype(np.longdouble) @ b, rtol=0, atol=inner * 10 * np.finfo(dtype).eps)
    for left, right in zip(layouts(a), layouts(b), strict=True):
        np.testing.assert_array_equal(product(left, right), expected)
    np.testing.assert_array_equal(product(a, b, out=np.zeros((m, n), dtype).T), expected)
    for rows in (slice(0, 1), slice(1, 3), slice(0, 50)):
        np.testing.assert_array_equal(product(a[rows], b), expected[rows])
    for columns in (slice(0, 1), slice(1, 2), slice(m // 2, m)):
        np.testing.assert_array_equal(product(a, b[:, columns]), expected[:, columns])
    first = product(a[:, :256], b[:256])
    np.testing.assert_array_equal(product(a[:, 256:], b[256:], out=first), expected, "sums of blocks are sums of all")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_rows", "n"), [(5, 1), (40, 7), (300, 130), (20, 301)])
def test_upper_triangle_of_a_product_equals_that_of_all(at_every_level, dtype, n_rows, n):
    rng = np.random.default_rng(n)
    rows, weight = rng.standard_normal((n_rows, n)).astype(dtype), rng.uniform(0.5, 2, n_rows).astype(dtype)

    def product(n_threads, upper):
        out = np.zeros((n, n), dtype)
        _core.add_product(rows.T, rows, weight, out, upper, 1.0, n_threads)
        return np.triu(out)

    got = everywhere(at_every_level, lambda n_threads: product(n_threads, True))
    np.testing.assert_array_equal(got, product(1, False))


def spd(rng, n, dtype):
    rows = rng.standard_normal((n + 5, n))
    return (rows.T @ rows + np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 8, 13])
def test_factor_is_that_of_the_textbook_loop(at_every_level, dtype, n):
    a = spd(np.random.default_rng(n), n, dtype)
    expected = np.triu(a)
    for k in range(n):
        expected[k, k] = np.sqrt(expected[k, k])
        expected[k, k + 1 :] /= expected[k, k]
        for i, j in np.ndindex(n, n):
            if k < i <= j:
                expected[i, j] = fused(-expected[k, i], expected[k, j], expected[i, j], dtype)

    def factor(n_threads):
        out = a.copy()
        assert _core.factorise(out, n_threads) == n
        return out

    np.testing.assert_array_equal(everywhere(at_every_level, factor), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [31, 32, 33, 65, 100, 257, 600])
def test_factor_has_the_same_bits_in_any_block(at_every_level, dtype, n):
    a = spd(np.random.default_rng(n), n, dtype)

    def factor(matrix, n_threads):
        out = matrix.copy()
        assert _core.factorise(out, n_threads) == len(out)
        return out

    r = everywhere(at_every_level, lambda n_threads: factor(a, n_threads))
    np.testing.assert_allclose(r.T.astype(np.longdouble) @ r, a, rtol=0, atol=20 * n * np.finfo(dtype).eps * n**0.5)
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    leading = n // 2 + 1  # the factor of a leading block is the leading block of the factor
    np.testing.assert_array_equal(factor(np.ascontiguousarray(a[:leading, :leading]), 1), r[:leading, :leading])


@pytest.mark.parametrize("failing", [0, 5, 40, 299])
def test_factorisation_stops_at_the_first_pivot_that_is_not_positive(isa_level, failing):
    a = spd(np.random.default_rng(0), 300, np.float64)
    for value in (-1.0, np.nan, np.inf):
        broken = a.copy()
        broken[failing, failing] = value
        assert _core.factorise(broken, 2) == failing


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 2), (9, 5), (13, 1)])
def test_triangular_solve_is_forward_substitution(at_every_level, dtype, n, m):
    rng = np.random.default_rng(n)
    lower = (np.tril(rng.standard_normal((n, n))) + 3 * np.eye(n)).astype(dtype)
    right = rng.standard_normal((n, m)).astype(dtype)
    expected = right.copy()
    for i, j in np.ndindex(n, m):
        for k in range(i):
            expected[i, j] = fused(-lower[i, k], expected[k, j], expected[i, j], dtype)
        expected[i, j] /= lower[i, i]

    def solve(n_threads):
        x = right.copy()
        _core.solve_lower(lower, x, n_threads)
        return x

    np.testing.assert_array_equal(everywhere(at_every_level, solve), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "m"), [(30, 100), (257, 7), (300, 1), (600, 2), (600, 50)])
def test_triangular_solve_has_the_same_bits_in_any_layout(at_every_level, dtype, n, m):
    rng = np.random.default_rng(n)
    lower = (np.tril(rng.standard_normal((n, n))) / n + 3 * np.eye(n)).astype(dtype)
    lower += np.triu(np.full((n, n), np.nan, dtype), 1)  # is never used
    right = rng.standard_normal((n, m)).astype(dtype)

    def solve(left, x, n_threads=1):
        _core.solve_lower(left, x, n_threads)
        return x

    expected = everywhere(at_every_level, lambda n_threads: solve(lower, right.copy(), n_threads))
    exact = np.tril(lower).astype(np.longdouble) @ expected
    np.testing.assert_allclose(exact, right, rtol=0, atol=100 * np.finfo(dtype).eps)
    for left in layouts(lower):
        np.testing.assert_array_equal(solve(left, right.copy("F")), expected)
        np.testing.assert_array_equal(solve(left, right[:, :1].copy()), expected[:, :1])
    upside_down = np.ascontiguousarray(right[::-1])
    solve(lower, upside_down[::-1])
    np.testing.assert_array_equal(upside_down[::-1], expected)
