"""Distributions of transformed targets against quadrature, Monte Carlo and SciPy's lognormal."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import lognorm
from sklearn.preprocessing import FunctionTransformer, PowerTransformer

from pydirect.predictive import PredictiveDistribution, TargetScale, TargetTransform, TransformedDistribution

NODES, WEIGHTS = np.polynomial.legendre.leggauss(500)
NAMES = ["log", "sqrt", "cbrt", "logit", "asinh", "table"]
ALL = ["mixture", *NAMES]
KNOTS = np.linspace(-4.0, 60.0, 300)
SCALES = {
    "log": TargetScale("log", 0.3),
    "sqrt": TargetScale("sqrt", 0.3),
    "cbrt": TargetScale("cbrt", 0.3),
    "logit": TargetScale("logit", 0.3, 40.0),
    "asinh": TargetScale("asinh", 0.3, 2.0),
    "table": TargetScale("table", knots=(tuple(KNOTS), tuple(np.arcsinh(KNOTS)))),
}
ROOTS = ("sqrt", "cbrt")
LOG = TargetScale("log")


def mixture(name, n=5, k=4, seed=0):
    """Mixtures of z, as they are or mapped back."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n, k)) * 0.5 + (1.5 if name in ROOTS else 0.3)
    base = PredictiveDistribution(rng.dirichlet(np.ones(k), size=n), means, rng.gamma(2.0, size=(n, k)) * 0.1)
    return base if name == "mixture" else TransformedDistribution(base, SCALES[name])


def expectation(d, function, upper=9.0):
    """E of a function of y by Gauss-Legendre quadrature over z, with the mass of negative roots at the lowest value."""
    lower = 0.0 if d.scale.name in ROOTS else -9.0
    z = lower + 0.5 * (upper - lower) * (NODES + 1.0)
    inside = d.base.density(np.tile(z, (d.n_rows, 1))) * function(d.scale.inverse(z))
    atom = d.base.cdf(0.0) * function(d.scale.inverse(0.0)) if d.scale.name in ROOTS else 0.0
    return 0.5 * (upper - lower) * inside @ WEIGHTS + atom


@pytest.mark.parametrize("name", NAMES)
def test_moments_are_those_of_quadrature(name):
    d = mixture(name)
    mean = expectation(d, lambda y: y)
    exact = 1e-3 if name == "table" else 1e-8  # which has kinks
    np.testing.assert_allclose(d.mean, mean, rtol=exact)
    np.testing.assert_allclose(d.variance, expectation(d, lambda y: y**2) - mean**2, rtol=10 * exact)
    np.testing.assert_allclose(d.std, np.sqrt(d.variance))


@pytest.mark.parametrize("name", ALL)
def test_samples_have_the_moments_and_the_distribution(name):
    d = mixture(name)
    draws = d.sample(40_000, rng=np.random.default_rng(4))
    assert draws.shape == (40_000, 5)
    assert np.all(np.abs(draws.mean(axis=0) - d.mean) < 4.5 * d.std / 200.0)
    squares = (draws - d.mean) ** 2
    assert np.all(np.abs(squares.mean(axis=0) - d.variance) < 4.5 * squares.std(axis=0) / 200.0)
    np.testing.assert_array_equal(d.sample(3, rng=7), d.sample(3, rng=np.random.default_rng(7)))
    for p in (0.3, 0.5, 0.9):
        below = np.mean(draws <= d.quantile(p), axis=0)
        assert np.all(np.abs(below - p) < 4.5 * np.sqrt(p * (1 - p)) / 200.0)


@pytest.mark.parametrize("name", ALL)
def test_density_is_the_slope_of_the_distribution_function(name):
    d, step = mixture(name), 1e-6
    for y in (-0.1, 0.5, 3.0, 12.0):
        slope = (d.cdf(y + step) - d.cdf(y - step)) / (2 * step)
        np.testing.assert_allclose(d.density(y), slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_quantiles_invert_the_distribution_function(name):
    d = mixture(name)
    p = np.array([0.2, 0.5, 0.9, 1 - 1e-9])
    np.testing.assert_allclose(d.cdf(d.quantile(p)), np.tile(p, (5, 1)), rtol=1e-9)
    lower, upper = d.interval(0.6)
    np.testing.assert_allclose(np.c_[lower, upper], d.quantile([0.2, 0.8]), rtol=1e-12)


@pytest.mark.parametrize("y", [-1.0, -0.3, 0.2, 2.0, 30.0])
@pytest.mark.parametrize("name", NAMES)
def test_crps_is_that_of_draws_by_quantiles(name, y):
    d = mixture(name)
    # 2 ∫ (1{y ≤ q} − p)(q − y) dp, in parts on either side of P(y)
    total = np.zeros(5)
    for k, below in enumerate(d.cdf(y)):
        for low, high in ((0.0, below), (below, 1.0)):
            level = low + (high - low) * np.sin(0.25 * np.pi * (NODES + 1.0)) ** 2
            weight = (high - low) * 0.25 * np.pi * np.sin(0.5 * np.pi * (NODES + 1.0)) * WEIGHTS
            inside = (level > 1e-13) & (level < 1 - 1e-13)
            if not inside.any():
                continue
            own = replace(d, base=row_of(d.base, k)).quantile(level[inside])[0]
            total[k] += 2 * np.sum(weight[inside] * ((y <= own) - level[inside]) * (own - y))
    np.testing.assert_allclose(d.crps(y), total, rtol=3e-4)


def row_of(base, k):
    return PredictiveDistribution(base.weights[[k]], base.means[[k]], base.variances[[k]])


def test_one_lognormal_component_is_scipys():
    m, s, y = np.array([0.2, -1.0, 3.0]), np.array([0.5, 1.3, 0.01]), np.array([1.0, 0.1, 20.3])
    d, oracle = TransformedDistribution(PredictiveDistribution.gaussian(m, s**2), LOG), lognorm(s, scale=np.exp(m))
    for ours, theirs in ((d.mean, oracle.mean()), (d.variance, oracle.var()), (d.quantile(0.9), oracle.ppf(0.9))):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_allclose(d.log_density(y), oracle.logpdf(y), rtol=1e-10)
    np.testing.assert_allclose(d.cdf(y), oracle.cdf(y), rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_a_mean_is_that_of_values_between_the_ends_that_are_believed(name):
    d = replace(mixture(name), low=0.5, high=2.5)
    draws = np.clip(mixture(name).sample(200_000, rng=0), 0.5, 2.5)
    np.testing.assert_allclose(d.mean, draws.mean(axis=0), atol=5 * draws.std(axis=0).max() / np.sqrt(200_000))
    np.testing.assert_allclose(d.std, draws.std(axis=0), atol=0.005)
    assert d.quantile([0.001, 0.999]).min() >= 0.5
    assert d.quantile([0.001, 0.999]).max() <= 2.5
    np.testing.assert_array_equal(d.log_density(3.0), mixture(name).log_density(3.0))  # unlikely, but possible


def test_the_mean_of_a_hopelessly_wide_logarithm_is_finite_and_believed():
    wide = PredictiveDistribution(np.array([0.9, 0.1]), np.zeros((1, 2)), np.array([[1.0, 1e4]]))
    d = TransformedDistribution(wide, LOG, 0.0, 50.0)
    assert 0 < d.mean[0] < 10 and d.std[0] < 50
    narrow = replace(d, spread=0.0)
    np.testing.assert_allclose(narrow.mean, 1.0, rtol=1e-12)
    assert narrow.std == d.std
    assert replace(d, spread=40.0).mean == d.mean and narrow.mean < replace(d, spread=1.0).mean < d.mean
    np.testing.assert_allclose(replace(d, low=-np.inf, high=np.inf, spread=1e-3).mean, np.exp(5e-7), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_factor_moves_the_mean_away_from_the_lower_end(name):
    d = replace(mixture(name), low=-0.2, high=30.0)
    more = replace(d, factor=1.2)
    np.testing.assert_allclose(more.mean + 0.2, 1.2 * (d.mean + 0.2), rtol=1e-12)
    np.testing.assert_array_equal(replace(d, factor=1e3).mean, 30.0)
    np.testing.assert_array_equal(replace(d, factor=0.0).mean, -0.2)
    np.testing.assert_array_equal([more.std, more.quantile(0.9)], [d.std, d.quantile(0.9)])
    narrow = replace(d, spread=0.1)
    np.testing.assert_allclose(replace(narrow, factor=0.5).mean + 0.2, 0.5 * (narrow.mean + 0.2), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_point_mass_has_finite_limits(name):
    d = TransformedDistribution(PredictiveDistribution.gaussian([1.2], 0.0), SCALES[name])
    value = SCALES[name].inverse(1.2)
    np.testing.assert_allclose([d.mean[0], d.quantile(0.3)[0], d.quantile(0.9)[0]], value, rtol=1e-14)
    np.testing.assert_allclose(d.crps(50.0), 50.0 - value, rtol=1e-8)
    assert d.std[0] < 1e-7


@pytest.mark.parametrize("name", ["log", "sqrt", "cbrt"])
def test_nothing_lies_below_the_smallest_possible_value(name):
    wide = PredictiveDistribution.gaussian([-1.0, 0.2], [4.0, 1.0])
    d = TransformedDistribution(wide, TargetScale(name, 0.5))
    assert np.all(d.quantile([1e-12, 0.01, 0.5]) >= -0.5)
    assert np.all(d.sample(1000, rng=0) >= -0.5)
    np.testing.assert_array_equal(d.cdf(-0.6), 0.0)
    np.testing.assert_array_equal(d.density([[-0.6, -0.5], [-0.5, -7.0]]), 0.0)
    np.testing.assert_allclose(d.cdf(-0.5), 0.0 if name == "log" else wide.cdf(0.0))


def test_extreme_spreads_stay_finite_or_infinite_but_never_undefined():
    d = TransformedDistribution(PredictiveDistribution.gaussian([0.0, 900.0, -900.0], [1e4, 1.0, 1.0]), LOG)
    assert not np.isnan([d.mean, d.variance, d.crps(1.0), d.log_density(1.0), d.quantile(0.99)]).any()
    assert np.isfinite(d.crps(1.0)).all()


def test_wrong_arguments_are_refused_with_the_reason():
    base = PredictiveDistribution.gaussian([0.0], 1.0)
    with pytest.raises(TypeError, match="scale must be a TargetScale, got str"):
        TransformedDistribution(base, "log")
    with pytest.raises(TypeError, match="base must be a PredictiveDistribution, got float"):
        TransformedDistribution(1.0, LOG)
    with pytest.raises(ValueError, match="y must not contain NaN"):
        TransformedDistribution(base, LOG).cdf(np.nan)
    with pytest.raises(ValueError, match="low must be below high"):
        TransformedDistribution(base, LOG, 1.0, 0.0)
    with pytest.raises(TypeError, match="spread must be a number, got 'a'"):
        TransformedDistribution(base, LOG, spread="a")
    with pytest.raises(ValueError, match="spread must be at least 0"):
        TransformedDistribution(base, LOG, spread=-1.0)


Y = np.random.default_rng(0).gamma(2.0, size=(20, 3))
TRANSFORM = TargetTransform((LOG, TargetScale("identity"), TargetScale("sqrt", 0.5)))


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
    assert TargetTransform([TargetScale("identity")]).is_identity
    assert TargetTransform((TargetScale("log", 0),)) == TargetTransform([LOG])


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
        TargetTransform([TargetScale(name)]).forward([[1.0], [y]])
    with pytest.raises(ValueError, match=f"{message} in output 1"):
        TargetTransform([TargetScale("identity"), TargetScale(name)]).log_derivative([[1.0, 1.0], [1.0, y]])
    with pytest.raises(ValueError, match=r"y must have shape \(n_rows, 3\), got \(4, 2\)"):
        TRANSFORM.forward(np.ones((4, 2)))


@pytest.mark.parametrize("ends", [{"factor": 2.0}, {"factor": np.inf, "low": 0.0}])
def test_a_factor_needs_a_finite_bound(ends):
    with pytest.raises(ValueError, match="factor must be finite"):
        TransformedDistribution(PredictiveDistribution.gaussian(np.zeros(2), np.ones(2)), TargetScale("log"), **ends)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("exp",), r"name must be one of 'identity', 'log', 'sqrt', 'cbrt', 'logit', 'asinh', 'table', got 'exp'"),
        (("identity", 1.0), "shift and width must be 0 and 1 for the identity"),
        (("log", np.nan), "shift must be finite"),
        (("log", 0.0, 0.0), "width must be above 0"),
        (("table",), "knots must be given for a table"),
        (("table", 0.0, 1.0, ((0.0, 1.0), (1.0, 0.0))), "knots must be two increasing sequences"),
    ],
)
def test_wrong_scales_are_refused_with_the_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        TargetScale(*arguments)


@pytest.mark.parametrize("name", NAMES)
def test_scales_invert_and_know_their_derivatives(name):
    scale, y = SCALES[name], np.linspace(0.01, 9.0, 50)
    np.testing.assert_allclose(scale.inverse(scale.forward(y)), y, rtol=1e-9)
    step = 1e-6
    slope = (scale.forward(y + step) - scale.forward(y - step)) / (2 * step)
    np.testing.assert_allclose(scale.log_derivative(y), np.log(slope), atol=1e-5)
    np.testing.assert_allclose(scale.slope(y), np.exp(-scale.log_derivative(y)), rtol=1e-12)
    assert scale.allows(y)


def test_a_transformer_is_read_off_where_targets_are_and_goes_on_straight():
    y = np.random.default_rng(0).gamma(2.0, size=300)
    transformer = PowerTransformer("yeo-johnson").fit(y[:, None])
    scale = TargetScale.of_transformer(transformer, y)
    np.testing.assert_allclose(scale.forward(y), transformer.transform(y[:, None])[:, 0], atol=1e-3)
    far = np.array([-1e3, 1e3])
    np.testing.assert_allclose(scale.inverse(scale.forward(far)), far, rtol=1e-9)
    falling = FunctionTransformer(lambda y: -y, lambda z: -z).fit(y[:, None])
    with pytest.raises(ValueError, match="target_transform must be finite and increase with y"):
        TargetScale.of_transformer(falling, y)
