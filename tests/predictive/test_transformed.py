"""Distributions of transformed targets against quadrature, Monte Carlo and SciPy's lognormal."""

import pickle

import numpy as np
import pytest
from scipy.stats import lognorm

from pydirect.metrics import calibration_error, crps, nlpd, pit
from pydirect.predictive import PredictiveDistribution, TargetTransform, TransformedDistribution
from pydirect.predictive.transformed import rectified_square_moments

NODES, WEIGHTS = np.polynomial.legendre.leggauss(500)
NAMES = ["log", "sqrt"]


def mixture(name, n=5, k=4, seed=0):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n, k)) * 0.5 + (0.3 if name == "log" else 1.5)
    base = PredictiveDistribution(rng.dirichlet(np.ones(k), size=n), means, rng.gamma(2.0, size=(n, k)) * 0.1)
    return TransformedDistribution(base, name, 0.3)


def expectation(d, function, upper=9.0):
    """E of a function of y by Gauss-Legendre quadrature over z, with the mass of negative roots at the lowest value."""
    lower = -9.0 if d.name == "log" else 0.0
    z = lower + 0.5 * (upper - lower) * (NODES + 1.0)
    y = np.exp(z) if d.name == "log" else z**2
    inside = d.base.density(np.tile(z, (d.n_rows, 1))) * function(y - d.shift)
    atom = 0.0 if d.name == "log" else d.base.cdf(0.0) * function(np.array(-d.shift))
    return 0.5 * (upper - lower) * inside @ WEIGHTS + atom


@pytest.mark.parametrize("name", NAMES)
def test_moments_are_those_of_quadrature(name):
    d = mixture(name)
    mean = expectation(d, lambda y: y)
    np.testing.assert_allclose(d.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(d.variance, expectation(d, lambda y: y**2) - mean**2, rtol=1e-9)
    np.testing.assert_allclose(d.std, np.sqrt(d.variance))


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_the_moments_and_the_distribution(name):
    d = mixture(name)
    draws = d.sample(40_000, rng=np.random.default_rng(4))
    assert draws.shape == (40_000, 5)
    assert np.all(np.abs(draws.mean(axis=0) - d.mean) < 4.5 * d.std / 200.0)
    for p in (0.3, 0.5, 0.9):
        below = np.mean(draws <= d.quantile(p), axis=0)
        assert np.all(np.abs(below - p) < 4.5 * np.sqrt(p * (1 - p)) / 200.0)


@pytest.mark.parametrize("name", NAMES)
def test_density_is_the_slope_of_the_distribution_function(name):
    d, step = mixture(name), 1e-6
    for y in (-0.1, 0.5, 3.0, 12.0):
        slope = (d.cdf(y + step) - d.cdf(y - step)) / (2 * step)
        np.testing.assert_allclose(d.density(y), slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_quantiles_invert_the_distribution_function(name):
    d = mixture(name)
    p = np.array([0.2, 0.5, 0.9, 1 - 1e-9])
    np.testing.assert_allclose(d.cdf(d.quantile(p)), np.tile(p, (5, 1)), rtol=1e-9)
    lower, upper = d.interval(0.6)
    np.testing.assert_allclose(np.c_[lower, upper], d.quantile([0.2, 0.8]), rtol=1e-12)


@pytest.mark.parametrize("y", [-1.0, -0.3, 0.2, 2.0, 30.0])
@pytest.mark.parametrize("name", NAMES)
def test_crps_is_the_integral_of_the_squared_distance_of_distribution_functions(name, y):
    d = mixture(name)
    bottom, total = -d.shift, np.full(5, max(-d.shift - y, 0.0))
    for low, high, step in ((bottom, max(y, bottom), 0.0), (max(y, bottom), 4000.0, 1.0)):
        low, high = np.sqrt(low - bottom), np.sqrt(high - bottom)  # dense where the distribution is
        root = low + 0.5 * (high - low) * (NODES + 1.0)
        square = (d.cdf(np.tile(root**2 + bottom, (5, 1))) - step) ** 2 * 2 * root
        total += 0.5 * (high - low) * square @ WEIGHTS
    np.testing.assert_allclose(d.crps(y), total, rtol=2e-8)


def test_one_lognormal_component_is_scipys():
    m, s, y = np.array([0.2, -1.0, 3.0]), np.array([0.5, 1.3, 0.01]), np.array([1.0, 0.1, 20.3])
    d, oracle = TransformedDistribution(PredictiveDistribution.gaussian(m, s**2), "log"), lognorm(s, scale=np.exp(m))
    for ours, theirs in ((d.mean, oracle.mean()), (d.variance, oracle.var()), (d.quantile(0.9), oracle.ppf(0.9))):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(d.log_density(y), oracle.logpdf(y), rtol=1e-10)
    np.testing.assert_allclose(d.cdf(y), oracle.cdf(y), rtol=1e-10)


@pytest.mark.parametrize("m", [-50.0, -6.0, -1.0, 0.0, 2.0, 8.9, 9.1, 40.0])
def test_moments_of_a_rectified_square_are_those_of_quadrature(m):
    low, high = max(m - 12.0, 0.0), max(m + 12.0, 12.0)
    u = low + 0.5 * (high - low) * (NODES + 1.0)
    mass = 0.5 * (high - low) * WEIGHTS * np.exp(-0.5 * (u - m) ** 2) / np.sqrt(2 * np.pi)
    mean, variance = rectified_square_moments(np.array([m]), np.array([1.0]))
    np.testing.assert_allclose(mean, mass @ u**2, rtol=1e-11, atol=1e-13)
    spread = mass @ (u**2 - mean) ** 2 + (1.0 - mass.sum()) * mean**2
    np.testing.assert_allclose(variance, spread, rtol=1e-9, atol=1e-13)


def test_the_variance_of_a_narrow_square_keeps_its_digits():
    mean, variance = rectified_square_moments(np.array([1e9]), np.array([1.0]))
    assert (mean, variance) == (1e18, 4e18)


@pytest.mark.parametrize("name", NAMES)
def test_a_point_mass_has_finite_limits(name):
    d = TransformedDistribution(PredictiveDistribution.gaussian([1.2], 0.0), name)
    value = np.exp(1.2) if name == "log" else 1.44
    np.testing.assert_allclose([d.mean[0], d.quantile(0.3)[0], d.quantile(0.9)[0]], value, rtol=1e-14)
    np.testing.assert_allclose(d.crps(5.0), 5.0 - value, rtol=1e-12)
    assert d.std[0] < 1e-7


@pytest.mark.parametrize("name", NAMES)
def test_nothing_lies_below_the_smallest_possible_value(name):
    wide = PredictiveDistribution.gaussian([-1.0, 0.2], [4.0, 1.0])
    d = TransformedDistribution(wide, name, 0.5)
    assert np.all(d.quantile([1e-12, 0.01, 0.5]) >= -0.5)
    assert np.all(d.sample(1000, rng=0) >= -0.5)
    np.testing.assert_array_equal(d.cdf(-0.6), 0.0)
    np.testing.assert_array_equal(d.density([[-0.6, -0.5], [-0.5, -7.0]]), 0.0)
    np.testing.assert_allclose(d.cdf(-0.5), 0.0 if name == "log" else wide.cdf(0.0))


@pytest.mark.parametrize("name", NAMES)
def test_a_change_of_units_is_a_distribution_of_the_same_kind(name):
    d = mixture(name)
    other, y = d.affine(1000.0, 50.0), np.array([0.1, 2.0, 3.0, 4.0, 9.0])
    np.testing.assert_allclose(other.mean, 1000.0 * d.mean + 50.0, rtol=1e-12)
    np.testing.assert_allclose(other.std, 1000.0 * d.std, rtol=1e-12)
    np.testing.assert_allclose(other.crps(1000.0 * y + 50.0), 1000.0 * d.crps(y), rtol=1e-9)
    np.testing.assert_allclose(other.log_density(1000.0 * y + 50.0), d.log_density(y) - np.log(1000.0), rtol=1e-10)
    with pytest.raises(ValueError, match="scale must be above 0"):
        d.affine(-1.0)


@pytest.mark.parametrize("method", ["log_density", "density", "cdf", "crps"])
@pytest.mark.parametrize("name", NAMES)
def test_several_points_for_each_row_agree_with_one_at_a_time(name, method):
    d = mixture(name)
    y = np.random.default_rng(3).gamma(2.0, size=(5, 7)) - 0.4
    together = getattr(d, method)(y)
    assert together.shape == (5, 7)
    for j in range(7):
        np.testing.assert_allclose(together[:, j], getattr(d, method)(y[:, j]), rtol=1e-13)


def test_extreme_spreads_stay_finite_or_infinite_but_never_undefined():
    d = TransformedDistribution(PredictiveDistribution.gaussian([0.0, 900.0, -900.0], [1e4, 1.0, 1.0]), "log")
    assert not np.isnan([d.mean, d.variance, d.crps(1.0), d.log_density(1.0), d.quantile(0.99)]).any()
    assert np.isfinite(d.crps(1.0)).all()


@pytest.mark.parametrize("name", NAMES)
def test_metrics_score_it(name):
    d = mixture(name)
    y = d.sample(rng=2)[0]
    assert nlpd(y, d) == pytest.approx(-d.log_density(y).mean())
    assert crps(y, [d]) == pytest.approx(d.crps(y).mean())
    np.testing.assert_allclose(pit(y, d), d.cdf(y))
    assert calibration_error(y, d) < 0.6


def test_pickle_and_repr():
    d = mixture("log")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(d)).quantile(0.3), d.quantile(0.3))
    assert repr(d) == "TransformedDistribution(name='log', shift=0.3, n_rows=5, n_components=4)"


def test_wrong_arguments_are_refused_with_the_reason():
    base = PredictiveDistribution.gaussian([0.0], 1.0)
    with pytest.raises(ValueError, match="name must be one of 'log', 'sqrt', got 'identity'"):
        TransformedDistribution(base, "identity")
    with pytest.raises(TypeError, match="base must be a PredictiveDistribution, got float"):
        TransformedDistribution(1.0, "log")
    with pytest.raises(ValueError, match="y must not contain NaN"):
        TransformedDistribution(base, "log").cdf(np.nan)


Y = np.random.default_rng(0).gamma(2.0, size=(20, 3))
TRANSFORM = TargetTransform(["log", "identity", "sqrt"], [0.0, 0.0, 0.5])


def test_inverse_undoes_forward():
    np.testing.assert_allclose(TRANSFORM.inverse(TRANSFORM.forward(Y)), Y, rtol=1e-13)
    np.testing.assert_array_equal(TRANSFORM.forward(Y)[:, 1], Y[:, 1])
    stacked = np.stack([Y, 2 * Y], axis=2)
    np.testing.assert_allclose(TRANSFORM.inverse(stacked)[:, :, 1], TRANSFORM.inverse(2 * Y), rtol=1e-15)


def test_log_derivative_is_that_of_forward():
    step = 1e-6
    slope = (TRANSFORM.forward(Y + step) - TRANSFORM.forward(Y - step)) / (2 * step)
    np.testing.assert_allclose(TRANSFORM.log_derivative(Y), np.log(slope), atol=1e-7)


def test_it_is_written_as_a_formula():
    assert str(TRANSFORM) == "log(y), y, sqrt(y + 0.5)"
    assert not TRANSFORM.is_identity
    assert TargetTransform(["identity"], [0.0]).is_identity


def test_equality_is_by_content():
    assert TargetTransform(("log",), (0,)) == TargetTransform(["log"], [0.0])


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("log", 0.0, r"y must be greater than 0 for log\(y\), got 0"),
        ("log", -2.0, r"y must be greater than 0 for log\(y\), got -2"),
        ("sqrt", -1.5, r"y must be greater than 0 for sqrt\(y\), got -1.5"),
    ],
)
def test_targets_without_a_transform_are_refused(name, y, message):
    with pytest.raises(ValueError, match=message):
        TargetTransform([name], [0.0]).forward([[1.0], [y]])
    with pytest.raises(ValueError, match=f"{message} in output 1"):
        TargetTransform(["identity", name], [0.0, 0.0]).log_derivative([[1.0, 1.0], [1.0, y]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["exp"], [0.0]), r"names\[0\] must be one of 'identity', 'log', 'sqrt', got 'exp'"),
        ((["log"], [0.0, 1.0]), "names and shifts must be one per output, got 1 and 2"),
        (([], []), "one per output"),
        ((["identity"], [1.0]), "shifts must be zero for the identity"),
        ((["log"], [np.nan]), r"shifts\[0\] must be finite"),
    ],
)
def test_wrong_transforms_are_refused_with_the_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        TargetTransform(*arguments)


def test_targets_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"y must have shape \(n_rows, 3\), got \(4, 2\)"):
        TRANSFORM.forward(np.ones((4, 2)))
