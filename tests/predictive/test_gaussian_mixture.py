"""Predictive distributions: Gaussian mixtures against their definitions, and their limits."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm, t

from pydirect.predictive import PredictiveDistribution, gaussian_mixture


def mixture(n=5, k=4, seed=0):
    rng = np.random.default_rng(seed)
    return PredictiveDistribution(
        rng.dirichlet(np.ones(k), size=n), rng.normal(size=(n, k)), rng.gamma(2.0, size=(n, k)) * 0.3
    )


def integral(function, n, lower, upper):
    """Gauss-Legendre quadrature of a function of points (n, m), row by row."""
    nodes, weights = np.polynomial.legendre.leggauss(600)
    half = 0.5 * (upper - lower)
    return function(np.broadcast_to(lower + half * (nodes + 1.0), (n, 600))) @ weights * half


@st.composite
def mixtures(draw):
    """One row of up to five components whose scales span six orders of magnitude."""
    k = draw(st.integers(1, 5))
    unit = st.floats(0.0, 1.0)
    weights = np.array(draw(st.lists(unit, min_size=k, max_size=k))) + 1e-6
    means = np.array(draw(st.lists(st.floats(-5.0, 5.0), min_size=k, max_size=k)))
    scales = 10.0 ** np.array(draw(st.lists(st.floats(-3.0, 3.0), min_size=k, max_size=k)))
    return PredictiveDistribution(weights / weights.sum(), means[None, :], scales[None, :] ** 2)


# Moments


def test_moments_are_those_of_the_density():
    d = mixture()
    mean = integral(lambda y: y * d.density(y), 5, -30.0, 30.0)
    second = integral(lambda y: y**2 * d.density(y), 5, -30.0, 30.0)
    np.testing.assert_allclose(mean, d.mean, atol=1e-12)
    np.testing.assert_allclose(second - mean**2, d.variance, rtol=1e-11)


def test_means_shared_by_the_components_broadcast():
    rng = np.random.default_rng(1)
    weights, mean, variances = rng.dirichlet(np.ones(3)), rng.normal(size=(6, 1)), rng.gamma(1.0, size=(6, 3))
    narrow, wide = (PredictiveDistribution(weights, m, variances) for m in (mean, np.repeat(mean, 3, axis=1)))
    y = rng.normal(size=6)
    for method in ("log_density", "cdf", "crps"):
        np.testing.assert_array_equal(getattr(narrow, method)(y), getattr(wide, method)(y))
    np.testing.assert_allclose(narrow.quantile(0.5), mean[:, 0], rtol=1e-14)


# Density and distribution function


def test_density_integrates_to_one_and_to_the_cdf():
    d = mixture()
    np.testing.assert_allclose(integral(d.density, 5, -30.0, 30.0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(integral(d.density, 5, -30.0, 0.3), d.cdf(0.3), rtol=1e-12)


def test_one_component_is_scipys_gaussian():
    rng = np.random.default_rng(2)
    mean, std, y = rng.normal(size=(3, 50)) * [[1.0], [0.3], [10.0]]
    d, oracle = PredictiveDistribution.gaussian(mean, std**2), norm(mean, np.abs(std))
    np.testing.assert_allclose(d.log_density(y), oracle.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(d.density(y), oracle.pdf(y), rtol=1e-10)
    np.testing.assert_allclose(d.cdf(y), oracle.cdf(y), rtol=1e-12)
    for p in (1e-300, 1e-10, 0.3, 0.5, 1 - 1e-10):
        np.testing.assert_allclose(d.quantile(p), oracle.ppf(p), rtol=1e-13)


def test_log_density_survives_where_the_density_underflows():
    d = PredictiveDistribution([0.5, 0.5], [[0.0, 1.0]], [[1.0, 1.0]])
    expected = norm.logpdf(1000.0, 1.0) + np.log(0.5)
    np.testing.assert_allclose(d.log_density(1000.0), expected, rtol=1e-12)
    assert d.density(1000.0) == 0.0


def test_infinite_points_are_the_limits():
    d = mixture()
    np.testing.assert_array_equal(d.cdf(np.inf), 1.0)
    np.testing.assert_array_equal(d.cdf(-np.inf), 0.0)
    np.testing.assert_array_equal(d.density(np.inf), 0.0)


# Quantiles


def assert_inverts(d, q, p):
    """The probability at q is p, as nearly as the rounding of q allows."""
    attainable = 4.0 * np.spacing(np.abs(q)) * d.density(q)
    assert np.all(np.abs(d.cdf(q) - p) <= 1e-12 * min(p, 1.0 - p) + attainable + 4e-16)


@given(mixtures(), st.floats(1e-10, 1.0 - 1e-10))
@settings(max_examples=40, deadline=None)
def test_quantile_inverts_the_cdf_for_any_mixture_and_its_mirror_image(d, p):
    assert_inverts(d, d.quantile(p), p)
    assert_inverts(d, -d.affine(-1.0).quantile(1.0 - p), p)


@pytest.mark.parametrize("p", [1e-10, 1e-5, 0.2, 0.5])
def test_both_tails_are_accurate_to_the_tail_probability(p):
    d = mixture(n=200)
    np.testing.assert_allclose(d.cdf(d.quantile(p)), p, rtol=1e-12)
    lower, upper = d.interval(1.0 - 2.0 * p) if p < 0.5 else (d.quantile(p), d.quantile(1 - p))
    np.testing.assert_allclose(d.cdf(lower), p, rtol=1e-5)
    above = d.affine(-1.0).cdf(-upper)
    np.testing.assert_allclose(above, p, rtol=1e-5)


def test_quantile_in_the_gap_between_distant_components_has_the_right_probability():
    d = PredictiveDistribution([0.3, 0.7], [[0.0, 1e6]], [[1.0, 1e-20]])
    np.testing.assert_allclose(d.cdf(d.quantile([0.1, 0.3, 0.29999])), [[0.1, 0.3, 0.29999]], rtol=1e-12)
    assert d.quantile(0.8)[0] == pytest.approx(1e6, rel=1e-15)


def test_a_component_of_weight_zero_has_no_influence():
    weights = np.array([[0.5, 0.0, 0.5], [0.2, 0.8, 0.0]])
    means, variances = np.array([[0.0, 1e9, 1.0], [0.0, 1.0, -1e9]]), np.array([[1.0, 1e-9, 2.0], [1.0, 2.0, 1e9]])
    d = PredictiveDistribution(weights, means, variances)
    kept = PredictiveDistribution(
        np.array([[0.5, 0.5], [0.2, 0.8]]), [[0.0, 1.0], [0.0, 1.0]], [[1.0, 2.0], [1.0, 2.0]]
    )
    for p in (1e-9, 0.4, 0.999):
        np.testing.assert_allclose(d.quantile(p), kept.quantile(p), rtol=1e-12)
    for method in ("log_density", "cdf", "crps"):
        np.testing.assert_allclose(getattr(d, method)(0.7), getattr(kept, method)(0.7), rtol=1e-12)
    assert np.abs(d.sample(200, rng=0)).max() < 100.0
    assert PredictiveDistribution([0.0, 1.0], means[:, :2], variances[:, :2]).n_components == 1


# Scores


@pytest.mark.parametrize("y", [-3.0, 0.2, 2.5])
def test_crps_is_the_integral_of_the_squared_distance_of_distribution_functions(y):
    d = mixture()
    below = integral(lambda x: d.cdf(x) ** 2, 5, -30.0, y)
    above = integral(lambda x: (1.0 - d.cdf(x)) ** 2, 5, y, 30.0)
    np.testing.assert_allclose(d.crps(y), below + above, rtol=1e-11)


# Degenerate variances


def test_a_point_mass_has_finite_limits():
    d = PredictiveDistribution.gaussian([3.0, 0.0, -1e200], 0.0)
    y = np.array([4.0, 0.0, -1e200])
    np.testing.assert_allclose(d.crps(y) / [1.0, 1.0, 1e200], [1.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_array_equal(d.cdf([4.0, 1.0, 0.0]), 1.0)
    np.testing.assert_array_equal(d.cdf([2.0, -1.0, -2e200]), 0.0)
    for p in (1e-10, 0.5, 1.0 - 1e-10):
        np.testing.assert_allclose(d.quantile(p), [3.0, 0.0, -1e200], rtol=1e-14, atol=1e-150)
    assert np.isfinite(d.log_density(y)).all()
    assert d.log_density(y)[1] > 300.0
    np.testing.assert_array_equal(d.std, 0.0)
    np.testing.assert_allclose(d.sample(3, rng=0), np.tile(d.mean, (3, 1)), rtol=1e-14, atol=1e-150)


def test_a_point_mass_within_a_mixture_holds_its_share_of_the_quantiles():
    d = PredictiveDistribution([0.5, 0.5], [[1.0, 1.0]], [[0.0, 1.0]])
    np.testing.assert_allclose(d.quantile([0.3, 0.5, 0.7]), 1.0, atol=1e-14)
    np.testing.assert_allclose(d.quantile([0.1, 0.9]), 1.0 + norm.ppf([[0.2, 0.8]]), rtol=1e-12)
    point = PredictiveDistribution.gaussian([1.0], 1e-16)
    near = PredictiveDistribution([0.5, 0.5], [[1.0, 1.0]], [[1e-16, 1.0]])
    np.testing.assert_allclose(d.crps(1.5), near.crps(1.5), rtol=1e-7)
    assert point.crps(1.5) == pytest.approx(0.5)


# Units, container


@given(mixtures(), st.floats(-50, 50).filter(lambda a: abs(a) > 1e-2), st.floats(-10, 10))
@settings(max_examples=40, deadline=None)
def test_affine_is_the_change_of_variables(d, scale, shift):
    moved, y = d.affine(scale, shift), 0.37
    np.testing.assert_allclose(moved.mean, scale * d.mean + shift, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(moved.std, abs(scale) * d.std, rtol=1e-9)
    np.testing.assert_allclose(
        moved.log_density(scale * y + shift), d.log_density(y) - np.log(abs(scale)), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(moved.crps(scale * y + shift), abs(scale) * d.crps(y), rtol=1e-6, atol=1e-8 * abs(scale))


def test_given_arrays_are_not_changed_and_cannot_be_through_the_distribution():
    weights, means, variances = np.array([0.4, 0.6]), np.zeros((3, 2)), np.ones((3, 2))
    d = PredictiveDistribution(weights, means, variances)
    with pytest.raises(ValueError, match="read-only"):
        d.means[0, 0] = 1.0
    with pytest.raises(AttributeError):
        d.means = means
    np.testing.assert_array_equal(weights, [0.4, 0.6])


# Validation


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.6], [[0.0, 1.0]], [[1.0, 1.0]]), "weights must sum to one in each row, got a sum of 1.1"),
        (([1.5, -0.5], [[0.0, 1.0]], [[1.0, 1.0]]), "weights must be non-negative, got -0.5"),
        (([0.5, 0.5], [[0.0, 1.0]], [[1.0, -1e-9]]), "variances must be non-negative, got -1e-09"),
        (([0.5, 0.5], [[0.0, np.nan]], [[1.0, 1.0]]), "means must be finite"),
        (([0.5, 0.5], [[0.0, 1.0]], [[1.0, np.inf]]), "variances must be finite"),
        (([1.0], [[0.0, 1.0]], [[1.0, 1.0]]), "must broadcast to"),
        (([0.5, 0.5], [[0.0, 1.0]], [[1.0, 1.0, 1.0]]), "must broadcast to"),
        (([0.5, 0.5], [0.0, 1.0], [[1.0, 1.0]]), r"means must have two dimensions, got shape \(2,\)"),
    ],
)
def test_wrong_arrays_are_refused_with_the_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        PredictiveDistribution(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.quantile(0.0), "p must be .* strictly between 0 and 1, got 0.0"),
        (lambda d: d.quantile([0.5, 1.0]), "p must be"),
        (lambda d: d.quantile(np.nan), "p must be"),
        (lambda d: d.quantile([]), "p must be"),
        (lambda d: d.interval(1.0), "level must be above 0.0 and below 1.0, got 1.0"),
        (lambda d: d.cdf([0.0, 1.0]), r"y must be a number or have shape \(5,\) or \(5, m\), got \(2,\)"),
        (lambda d: d.cdf(np.nan), "y must not contain NaN"),
        (lambda d: d.affine(0.0), "scale must not be zero"),
        (lambda d: d.affine(1.0, np.inf), "shift must be finite, got inf"),
        (lambda d: d.sample(-1), "n_samples must be at least 0, got -1"),
        (lambda d: d.gaussian([[0.0]], 1.0), "mean must be a vector"),
        (lambda d: d.gaussian([0.0], [1.0, 2.0]), "mean must be a vector"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call(mixture())


@pytest.mark.parametrize("degrees", [3.0, 6.0, 25.0, 60.0])
def test_a_mixture_stands_for_students_t(degrees):
    weights, factors = gaussian_mixture.student_factors(degrees)
    mixed = PredictiveDistribution(weights, np.zeros((1, len(weights))), factors[None])
    assert mixed.variance[0] == pytest.approx(degrees / (degrees - 2), rel=2e-3)
    for z in (0.0, 1.0, 5.0, 10.0):
        assert mixed.log_density(z)[0] == pytest.approx(t.logpdf(z, degrees), abs=0.01)
    np.testing.assert_allclose(mixed.quantile([0.95, 0.999])[0], t.ppf([0.95, 0.999], degrees), rtol=2e-3)
    weights, factors = gaussian_mixture.student_factors(1.0)  # its variance would be infinite
    assert weights @ factors < 2000.0
