"""Likelihoods of one latent, against quadrature, digits from arbitrary precision, and grids over the weights."""

import threading

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import logsumexp

from pydirect.logistic import (
    CountLikelihood,
    ExtremeLikelihood,
    IntervalLikelihood,
    LabelledRows,
    LatentLikelihood,
    OrdinalLikelihood,
    ascend_latent,
)
from pydirect.logistic.gaussian import VariancePrior
from pydirect.logistic.latent import log_normal_interval
from pydirect.statistics.gaussian import IdentityFeatures
from pydirect.testing import check_likelihood

INF = np.inf
RNG = np.random.default_rng(0)
LIMITS = np.array([[0.2, 0.2, 0.0], [-0.3, 0.4, 0.0], [-INF, 0.1, 0.0], [0.3, INF, 0.2], [1.0, 1.001, 0.0]])


def limits_about(f, rng):
    """Targets of f, (n, 3): a third known from above or below alone, some between limits, the rest as they are."""
    y = f + 0.6 * rng.standard_normal(len(f))
    limits = np.column_stack([y, y, np.zeros(len(y))])
    sixth = len(y) // 6
    limits[: 2 * sixth, 0], limits[2 * sixth : 3 * sixth, 1] = -INF, INF
    limits[3 * sixth : 4 * sixth] += [-0.3, 0.2, 0.0]
    return limits


def entered_about(f, rng):
    """The same, of which two thirds of the rows had to exceed an entry."""
    y = limits_about(f, rng)
    entry = np.minimum(y[:, 1], np.where(np.isneginf(y[:, 0]), y[:, 1], y[:, 0])) - rng.exponential(0.4, len(f))
    entry[::3] = -INF
    return np.column_stack([np.maximum(y[:, 0], entry), y[:, 1:], entry])


ENTERED = np.column_stack([LIMITS, [-0.1, -0.5, -1.0, 0.3, -INF]])
ENTERED[2, 0] = -1.0


def grades_about(f, rng):
    """Ordered classes of f, (n, 1)."""
    return np.digitize(f + rng.standard_normal(len(f)), [-1.0, 0.1, 1.5]).astype(float)[:, None]


def counts_about(f, rng):
    """Counts of the mean exp f, (n, 1)."""
    return rng.poisson(np.exp(f)).astype(float)[:, None]


COUNTS = np.array([0.0, 1.0, 6.0, 20.0])[:, None]
# Each likelihood with targets that it must stand, and what draws targets of a latent function.
LIKELIHOODS = {
    "normal": (IntervalLikelihood(0.6), LIMITS, limits_about),
    "extreme": (ExtremeLikelihood(0.9), LIMITS, limits_about),
    "entered normal": (IntervalLikelihood(0.6), ENTERED, entered_about),
    "entered extreme": (ExtremeLikelihood(0.9), ENTERED, entered_about),
    "ordinal": (OrdinalLikelihood(np.array([-1.0, 0.1, 1.5])), np.arange(4.0)[:, None], grades_about),
    "poisson": (CountLikelihood(), COUNTS, counts_about),
    "negative binomial": (CountLikelihood(0.6), COUNTS, counts_about),
}
LEARNING = ("normal", "extreme", "entered normal", "entered extreme", "ordinal")


# log(Φ(b) − Φ(a)) and its derivative in a shift of both ends, from 60 digits of mpmath
@pytest.mark.parametrize(
    ("a", "b", "value", "slope"),
    [
        (-1.0, 1.0, -0.3817151463021262, 0.0),
        (0.3, 0.30001, -12.476865498190191, -0.300005),
        (5.0, 6.0, -15.068446096529454, -5.183147090477174),
        (-40.0, -39.0, -765.0831565643776, 39.025607419930104),
        (-40.0, -39.999, -807.8066273147468, 39.99949666679732),
        (30.0, INF, -454.32124395634327, -30.033259667433672),
        (-3.0, -2.9999999, -21.53703403579957, 2.99999995),
        (0.0, 1e-9, -21.642204370151084, -5e-10),
        (-9.0, -1.0, -1.8410216450092634, 1.5251352761609813),
    ],
)
def test_masses_of_normal_intervals_have_all_digits(a, b, value, slope):
    ends = np.array([a]), np.array([b]), np.array([b - a])
    assert [float(part[0]) for part in log_normal_interval(*ends)[:2]] == pytest.approx([value, slope], rel=1e-8)
    assert float(log_normal_interval(*ends)[0][0]) == pytest.approx(value, rel=2e-9 if b - a < 1e-4 else 1e-14)


def test_tails_as_far_as_numbers_reach():
    ends = np.array([1e8, 1e8]), np.array([INF, 1e8 + 1]), np.array([INF, 1.0])
    value, slope, _ = log_normal_interval(*ends)
    np.testing.assert_allclose(value, -5e15, rtol=1e-7)
    np.testing.assert_allclose(slope, -1e8, rtol=1e-7)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_expectations_are_those_of_quadrature(name):
    likelihood, y, _ = LIKELIHOODS[name]
    widest = (
        (2.0, 8.0) if name in ("normal", "entered normal", "ordinal") else ()
    )  # hazards and rates are cut off far out
    check_likelihood(likelihood, y, means=(-2.0, 0.3), deviations=(0.05, 0.4, *widest))


@pytest.mark.parametrize(
    ("name", "accuracy", "deviation"),
    [(name, 1e-9, sd) for name in ("normal", "entered normal", "ordinal") for sd in (0.1, 0.55, 1.4, 4.5, 30.0)]
    + [(name, 2e-5, sd) for name in ("extreme", "entered extreme") for sd in (0.1, 0.55)],
)
def test_expected_log_densities_have_nine_digits(name, accuracy, deviation):
    likelihood, y, _ = LIKELIHOODS[name]
    z = np.linspace(-9, 9, 20_001)
    masses = np.exp(-0.5 * z**2)
    expected = likelihood.log_density(y, 0.3 + deviation * z) @ masses / masses.sum()
    found = likelihood.terms(y, np.full((len(y), 1), 0.3), np.full(len(y), deviation**2)).value
    np.testing.assert_allclose(found, expected, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("name", ["normal", "extreme"])
def test_densities_above_an_entry_are_those_of_the_conditional_distribution(name):
    likelihood = LIKELIHOODS[name][0]
    noise = stats.norm(scale=0.6) if name == "normal" else stats.gumbel_l(scale=0.9)
    f, entry, known = 0.3, -0.2, 0.0
    y = np.linspace(entry, 12, 20_001)
    rows = np.column_stack([y, y, np.full_like(y, known), np.full_like(y, entry)])
    found = likelihood.log_density(rows, np.full((len(y), 1), f))[:, 0]
    near = y < 3
    expected = noise.logpdf(y - f) - noise.logsf(entry - f)
    np.testing.assert_allclose(found[near], expected[near], rtol=1e-10, atol=1e-10)
    predicted = np.exp(likelihood.log_predictive(rows, np.full(len(y), f), np.full(len(y), 0.5)))
    assert np.trapezoid(predicted, y) == pytest.approx(1, abs=1e-4)
    limits = np.array([[0.1, 0.8, known, entry], [0.5, INF, known, entry], [entry, INF, known, entry]])
    masses = [noise.cdf(u - f) - noise.cdf(low - f) for low, u in limits[:, :2]]
    found = likelihood.log_density(limits, np.full((3, 1), f))[:, 0]
    np.testing.assert_allclose(found, np.log(masses) - noise.logsf(entry - f), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["entered normal", "entered extreme"])
def test_log_densities_above_an_entry_are_concave(name):
    likelihood, y, draw = LIKELIHOODS[name]
    y, f = np.vstack([y, draw(np.linspace(-2, 2, 60), RNG)]), np.linspace(-6, 6, 601)
    slope = likelihood.slope(y, np.broadcast_to(f, (len(y), len(f))))
    assert (np.diff(slope, axis=1) <= 1e-9 * np.abs(slope).max(axis=1, keepdims=True)).all()
    terms = likelihood.terms(y, np.full((len(y), 1), 0.2), np.full(len(y), 0.3))
    assert (terms.precision >= 0).all() and (terms.precision[np.isposinf(y[:, 1])] > -1e-12).all()


def test_a_wrong_derivative_is_found():
    class Wrong(IntervalLikelihood):
        def slope(self, y, f):
            return 1.01 * super().slope(y, f)

    with pytest.raises(AssertionError, match="slope"):
        check_likelihood(Wrong(0.6), LIMITS)


@pytest.mark.parametrize("name", LEARNING)
def test_quantiles_invert_the_distribution(name):
    likelihood = LIKELIHOODS[name][0]
    if name == "ordinal":
        mean, variance = np.array([0.0, 2.0]), np.array([0.2, 1.0])
        each = [likelihood.log_predictive(np.full((2, 1), float(k)), mean, variance) for k in range(4)]
        np.testing.assert_allclose(
            np.cumsum(np.exp(each), axis=0).T, likelihood.cdf(np.arange(4)[None], mean, variance)
        )
        return
    mean, variance, levels = np.array([-3.0, 0.1, 1e3]), np.array([1e-8, 0.5, 9.0]), np.array([0.01, 0.5, 0.999])
    found = likelihood.quantiles(mean, variance, levels)
    np.testing.assert_allclose(likelihood.cdf(found, mean, variance), np.tile(levels, (3, 1)), rtol=1e-9)


@pytest.mark.parametrize("name", LEARNING)
def test_learned_parameters_are_the_best(name):
    likelihood, _, draw = LIKELIHOODS[name]
    n = 60
    mean, variance, weight = RNG.normal(size=(n, 1)), RNG.uniform(0.01, 2, n), RNG.uniform(0.5, 2, n)
    y = draw(mean[:, 0], RNG)
    found = likelihood
    for _ in range(6):
        found = found.improved(y, mean, variance, weight)

    def loss(theta):
        other = OrdinalLikelihood(np.sort(theta)) if name == "ordinal" else likelihood.with_parameters(theta)
        return -float(weight @ other.terms(y, mean, variance).value)

    best = minimize(loss, likelihood.parameters, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    np.testing.assert_allclose(found.parameters, best.x, atol=2e-4)


N = 30
PHI = RNG.standard_normal((N, 2))
WEIGHT = RNG.integers(1, 3, N).astype(float)


class Fixed:
    """A likelihood that learns nothing."""

    parameters = np.empty(0)

    def improved(self, y, mean, variance, weight):
        return self


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_bound_is_below_the_evidence_and_close(name):
    likelihood, _, draw = LIKELIHOODS[name]
    known = type("Known", (Fixed, type(likelihood)), {})(*vars(likelihood).values())
    y, offset = draw(PHI @ [0.8, -0.5], RNG), np.full((N, 1), 0.1)
    rows = LabelledRows(IdentityFeatures(2), PHI, y, WEIGHT, offset, model=known)
    _, ascent = ascend_latent(rows, VariancePrior(0.7, 0.0), max_iter=100, stop=threading.Event())
    axis = np.linspace(-3, 3, 301)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    log_joint = WEIGHT @ likelihood.log_density(y, 0.1 + PHI @ grid.T)
    log_joint += -0.5 * (grid**2).sum(axis=1) / 0.7 - np.log(2 * np.pi * 0.7)
    evidence = logsumexp(log_joint) + 2 * np.log(axis[1] - axis[0])
    assert evidence - 0.02 < ascent.bound < evidence + 1e-6
    p = np.exp(log_joint - logsumexp(log_joint))
    np.testing.assert_allclose(ascent.best.posterior.mean[:, 0], p @ grid, atol=0.02)


def test_exact_targets_are_those_of_gaussian_regression():
    y = PHI @ [0.8, -0.5] + 0.6 * RNG.standard_normal(N)
    known = RNG.uniform(0.1, 0.5, N)
    fixed = type("Known", (Fixed, IntervalLikelihood), {})(0.6)
    rows = LabelledRows(
        IdentityFeatures(2), PHI, np.column_stack([y, y, known]), np.ones(N), np.zeros((N, 1)), model=fixed
    )
    _, ascent = ascend_latent(rows, VariancePrior(0.7, 0.0), max_iter=100, stop=threading.Event())
    covariance = 0.7 * PHI @ PHI.T + np.diag(0.36 + known)
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    evidence = -0.5 * (y @ np.linalg.solve(covariance, y) + log_determinant)
    assert ascent.bound == pytest.approx(evidence, rel=1e-10)
    left = rows.left_out(ascent.best.latent)
    mean, variance = left.mean, left.variance[:, 0]
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(mean[:, 0], y - precision @ y / np.diag(precision), rtol=1e-7)
    np.testing.assert_allclose(variance, 1 / np.diag(precision) - 0.36 - known, rtol=1e-6)


def test_a_likelihood_needs_a_density_alone():
    class Logistic(LatentLikelihood):
        def log_density(self, y, f):
            z = np.abs(y - f)
            return -z - 2 * np.log1p(np.exp(-z))

    y = RNG.standard_normal((5, 1))
    check_likelihood(Logistic(), y)
    with pytest.raises(TypeError, match="Logistic must have the method cdf"):
        Logistic().quantiles(np.zeros(2), np.ones(2), np.array([0.5]))
