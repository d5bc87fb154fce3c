"""Kronecker algebra: sizes beyond any expansion, edge cases, refusals."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from pydirect import _core
from pydirect.kron import KroneckerSum, kronecker_vector, row_of_weights
from tests.helpers.expansions import expanded


def exact_inner_product(f, g):
    """Of two Kronecker vectors, as a decimal number of 700 digits a dot product."""
    with localcontext(prec=60, Emin=-(10**9), Emax=10**9) as context:
        total = Decimal(1)
        for own, other in zip(f, g, strict=True):
            context.prec = 700
            dot = sum((Decimal(float(x)) * Decimal(float(y)) for x, y in zip(own, other, strict=True)), Decimal(0))
            context.prec = 60
            total *= dot
        return total


def relative_error(got, exact):
    with localcontext(prec=60, Emin=-(10**9), Emax=10**9):
        value = Decimal(float(got.mantissa[0])) * Decimal(2) ** int(got.exponent[0])
        return float(abs(value / exact - 1))


@pytest.mark.parametrize("reach", [0, 150, 300])
def test_products_of_two_thousand_factors_keep_full_precision(reach):
    rng = np.random.default_rng(reach)
    # Positive within a factor, so that no sum cancels; the signs are those of whole factors.
    f, g = (
        rng.uniform(0.5, 1.5, (2000, 3)) * 10.0 ** rng.integers(-reach, reach + 1, (2000, 3)) * sign
        for sign in rng.choice([-1.0, 1.0], (2, 2000, 1))
    )
    got = kronecker_vector(f).inner(kronecker_vector(g))
    exact = exact_inner_product(f, g)
    assert relative_error(got, exact) < 2000 * 2.0**-52
    assert got.sign[0] == (1 if exact > 0 else -1)
    assert got.log[0] == pytest.approx(float(abs(exact).ln()), rel=1e-13)


def test_expected_squared_error_of_a_regression_over_the_whole_grid():
    """Theorem 1 from the algebra alone: E |y − Φw|² of 5^40 hypotheses."""
    rng = np.random.default_rng(0)
    n, b, levels = 6, 40, np.linspace(-1.0, 1.0, 5)
    phi, y, q = rng.standard_normal((n, b)), rng.standard_normal(n), rng.dirichlet(np.ones(5), size=b)
    sizes = (5,) * b
    f = KroneckerSum.from_terms(sizes, [{j: levels} for j in range(b)], phi.T)
    error = f - KroneckerSum.from_terms(sizes, [{}], y[None])
    got = error.square().inner(kronecker_vector(q)).value
    mean, variance = q @ levels, q @ levels**2 - (q @ levels) ** 2
    np.testing.assert_allclose(got, (y - phi @ mean) ** 2 + phi**2 @ variance, rtol=1e-12)


def test_entries_of_long_products():
    f = np.random.default_rng(2).uniform(-2.0, 2.0, (2000, 4)) * 1e-3
    points = np.random.default_rng(3).integers(4, size=(3, 2000))
    got = kronecker_vector(f).evaluate(points)
    chosen = f[np.arange(2000), points]
    np.testing.assert_allclose(got.log[:, 0], np.log(np.abs(chosen)).sum(axis=1), rtol=1e-13)
    np.testing.assert_array_equal(got.sign[:, 0], np.sign(chosen).prod(axis=1))


def test_bits_are_the_same_at_every_level_and_for_any_number_of_threads(at_every_level):
    rng = np.random.default_rng(4)
    sizes, n = (3, 4, 2, 5), 1300  # several chunks of data points
    terms = [{int(p): rng.standard_normal(sizes[p])} for p in rng.integers(4, size=300)]
    a = KroneckerSum.from_terms(sizes, terms, rng.standard_normal((300, n)))
    b = KroneckerSum.from_terms(sizes, terms[:7], rng.standard_normal((7, n)))
    points = rng.integers(2, size=(3, 4))

    def evaluate(n_threads):
        inner, entries, square = a.inner(b, n_threads), a.evaluate(points, n_threads), b.square(n_threads)
        return inner.mantissa, inner.exponent, entries.mantissa, square.coefficients

    one = at_every_level(lambda: evaluate(1))
    for got, expected in zip(evaluate(3), one, strict=True):
        np.testing.assert_array_equal(got, expected)


# Beyond the range of float64


def test_exponentials_of_any_size_keep_their_product():
    logs = KroneckerSum.from_terms((2, 2), [{0: [-800.0, -801.0]}, {1: [600.0, 599.0]}])
    got = logs.exp().evaluate([[0, 0], [1, 1]]).log[:, 0]
    np.testing.assert_allclose(got, [-200.0, -202.0], rtol=1e-13)
    opposite = KroneckerSum.from_terms((2, 2), [{0: [-800.0, -801.0]}, {1: [800.0, 799.0]}])
    np.testing.assert_allclose(expanded(opposite.exp()), np.exp([[0.0, -1.0, -1.0, -2.0]]), rtol=1e-12)
    wide = kronecker_vector([[-1400.0, 0.0]]).exp().evaluate([[0], [1]]).log[:, 0]
    np.testing.assert_allclose(wide, [-1400.0, 0.0], rtol=1e-13, atol=1e-12)
    far = KroneckerSum.from_terms((2,), [{}], 1e6).exp()
    assert far.log().evaluate([[0]]).value[0, 0] == pytest.approx(1e6, rel=1e-13)


# Form


def test_terms_store_only_factors_that_are_not_ones():
    a = KroneckerSum.from_terms((2, 2, 2), [{0: [1.0, 1.0], 2: [3.0, 4.0]}, {1: [3.0, 4.0]}], 2.0)
    assert a.position.tolist() == [2, 1]
    assert a.index.tolist() == [0, 0], "equal factors are stored once"
    assert a.factor(0, 0).tolist() == [1.0, 1.0]
    assert a.factor(0, 2).tolist() == [3.0, 4.0]
    assert repr(a) == "KroneckerSum(2 terms, 3 positions, 1 data points)"


def test_numbers_multiply_from_both_sides_and_by_data_point():
    a = kronecker_vector([[1.0, 2.0]])
    assert expanded(2 * a).tolist() == expanded(a * 2).tolist() == [[2.0, 4.0]]
    assert expanded(a * [1.0, -1.0]).tolist() == [[1.0, 2.0], [-1.0, -2.0]]
    assert expanded(np.array([1.0, -1.0]) * a).tolist() == [[1.0, 2.0], [-1.0, -2.0]]
    assert expanded(-a).tolist() == [[-1.0, -2.0]]


# Refusals


def test_different_grids_and_numbers_of_data_points_are_refused():
    a = KroneckerSum.from_terms((2, 3), [{}], [[1.0, 2.0]])
    for operation in (a.__add__, a.__mul__, a.inner):
        with pytest.raises(ValueError, match="the same sizes at all positions"):
            operation(KroneckerSum.from_terms((3, 2), [{}]))
        with pytest.raises(ValueError, match="as many data points, or one, got 2 and 3"):
            operation(KroneckerSum.from_terms((2, 3), [{}], [[1.0, 2.0, 3.0]]))


TWO, GRID = kronecker_vector([[1.0, 2.0]]), kronecker_vector([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: KroneckerSum.from_terms((2, 2), [{2: [1.0, 2.0]}]), ValueError, "positions below 2, got 2"),
        (lambda: KroneckerSum.from_terms((2, 2), [{1: np.ones(3)}]), ValueError, r"position 1 must have shape \(2,\)"),
        (lambda: row_of_weights((2,), 0, [np.nan, 1.0]), ValueError, "factor at position 0 must be finite"),
        (lambda: KroneckerSum.from_terms((2,), [{}], [1.0, 2.0]), ValueError, r"must have shape \(1, n_data\)"),
        (lambda: KroneckerSum.from_terms((0,), [{}]), ValueError, "sizes must be at least 1"),
        (lambda: GRID.evaluate([[0.5, 1.0]]), TypeError, "points must hold integers"),
        (lambda: GRID.evaluate([0, 1]), ValueError, r"points must have shape \(n_points, 2\), got \(2,\)"),
        (lambda: GRID.evaluate([[0, 2]]), ValueError, "indices into the factors"),
        (lambda: GRID.evaluate([[-1, 0]]), ValueError, "indices into the factors"),
        (lambda: (GRID + GRID).log(), ValueError, "one term and one data point, got 2 and 1"),
        (lambda: kronecker_vector([[1.0, -1.0]]).log(), ValueError, "positive factors and coefficient, got -1"),
        (lambda: kronecker_vector([[1.0, 0.0]]).log(), ValueError, r"positive factors and coefficient, got 0\.0"),
        (GRID.exp, ValueError, "terms of one factor and one data point, got 2 and 1"),
        (kronecker_vector([[1.0, 1e4]]).exp, OverflowError, "factors within 1416 of themselves, got 9999"),
        ((kronecker_vector([[1.0, 1e200]]) * 1e200).exp, OverflowError, "logarithms within the range of float64"),
        (lambda: TWO.inner(3), TypeError, "other must be a KroneckerSum, got 3"),
        (lambda: TWO + 3, TypeError, "'KroneckerSum' and 'int'"),
        (lambda: TWO * "two", TypeError, "other must be a KroneckerSum or real numbers, got 'two'"),
        (lambda: TWO * None, TypeError, "other must be a KroneckerSum or real numbers, got None"),
        (lambda: TWO * [[1.0, 2.0]], ValueError, r"other must have shape \(n_data,\), got \(1, 2\)"),
        (lambda: (TWO * [1.0, 2.0]) * np.ones(3), ValueError, r"other must have shape \(2,\), got \(3,\)"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


GOOD = {
    "sizes": np.array([2, 3]),
    "start": np.array([0, 2, 3]),
    "position": np.array([0, 1, 1], dtype=np.int32),
    "index": np.array([0, 1, 1], dtype=np.int32),
    "coefficients": np.ones((2, 1)),
    "exponent": np.zeros(2, dtype=np.int64),
    "offset": np.array([0, 2, 5]),
    "values": np.arange(5.0),
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sizes", [0, 3], "sizes must be at least 1, got 0"),
        ("start", [0, 2, 4], "start must end with 3, got 4"),
        ("start", [0, 4, 3], "start must not decrease from 4, got 3"),
        ("start", [1, 2, 3], "start must begin with 0, got 1"),
        ("start", [0, 3], r"start must have shape \(3\)"),
        ("position", [0, 5, 1], "position must be below 2, got 5"),
        ("position", [0, -1, 1], "position must be below 2, got -1"),
        ("position", [1, 0, 1], "factors at position 1 must have 3 entries, got 2"),
        ("position", [0, 0, 1], "position must increase within a term, got 0"),
        ("position", [0, 1], r"position must have shape \(3\)"),
        ("index", [0, 2, 1], "index must be below 2, got 2"),
        ("index", [0, -1, 1], "index must be below 2, got -1"),
        ("coefficients", [1.0, 1.0], r"coefficients must have shape \(n_terms, n_data\)"),
        ("coefficients", [[1.0], [np.nan]], "coefficients must be finite, got nan"),
        ("exponent", [0], r"exponent must have shape \(2\)"),
        ("offset", [0, 2, 6], "offset must end with 5, got 6"),
        ("offset", [], r"offset must have shape \(n_factors \+ 1,\), got \(0,\)"),
        ("values", [np.inf, 0.0, 0.0, 0.0, 0.0], "values must be finite, got inf"),
    ],
)
def test_inconsistent_arrays_are_refused(name, value, message):
    with pytest.raises(ValueError, match=message):
        KroneckerSum(**{**GOOD, name: np.array(value, dtype=GOOD[name].dtype)})


def test_arrays_of_other_types_and_exponents_out_of_range_are_refused():
    with pytest.raises(TypeError, match="index must be an array of int32, got int64"):
        KroneckerSum(**{**GOOD, "index": np.array([0, 1, 1])})
    with pytest.raises(TypeError, match="sizes must be an array of int64, got list"):
        KroneckerSum(**{**GOOD, "sizes": [2, 3]})
    with pytest.raises(OverflowError, match="exponents must be within"):
        KroneckerSum(**{**GOOD, "exponent": np.array([0, 2**62])})


def test_compiled_functions_read_nothing_out_of_bounds():
    """Whatever reaches them past the checks in Python."""
    a = KroneckerSum(**GOOD)
    bad = (a.sizes, a.start, np.array([0, 5, 1], dtype=np.int32), *a._arrays[3:])
    for call in (lambda: _core.kron_inner(bad, a._arrays, 1), lambda: _core.kron_square(bad, 1)):
        with pytest.raises(ValueError, match="position must be below 2, got 5"):
            call()
    with pytest.raises(ValueError, match="indices into the factors, got 3"):
        _core.kron_entries(a._arrays, np.array([[0, 3]]), 1)
    with pytest.raises(ValueError, match="sums must have the same sizes"):
        _core.kron_inner(a._arrays, kronecker_vector([[1.0]])._arrays, 1)


def test_products_are_refused_before_they_take_too_much_memory():
    a = KroneckerSum.from_terms((200,), [{0: f} for f in np.eye(200) + 2.0], np.ones((200, 20_000)))
    with pytest.raises(
        ValueError, match=r"products must take at most 8\.59e\+09 bytes, got 9\..*e\+09 for 20100 terms"
    ):
        a.square()
