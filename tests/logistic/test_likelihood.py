"""Likelihoods in expectation over Gaussian logits: their values, derivatives, and which are bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_softmax, logsumexp, softmax

from pydirect import GaussianPrior, evenly_spaced_levels, fit_logistic
from pydirect.logistic import likelihood
from pydirect.logistic.exponential import exponential_log_terms
from pydirect.logistic.fit import LogisticFit
from pydirect.logistic.likelihood import (
    averaged_log_odds,
    averaged_softmax,
    expected_likelihood,
    jaakkola_lambda,
    jaakkola_terms,
    label_log_probability,
    predictive_log_odds,
    softmax_log_probability,
    softmax_terms,
)
from pydirect.testing import enumerate_factorized
from tests.helpers.oracles import enumerate_logistic_predictive


def one_hot(y, n_classes):
    return 2.0 * np.eye(n_classes)[y] - 1.0


def draw(n_functions, seed=0, n=5):
    rng = np.random.default_rng(seed)
    t = rng.choice([-1.0, 1.0], (n, 1)) if n_functions == 1 else one_hot(rng.integers(0, n_functions, n), n_functions)
    return t, 2.0 * rng.standard_normal((n, n_functions)), np.exp(rng.normal(scale=1.5, size=n))


def log_likelihood(t, z):
    """Log p(y | z) of rows, whose logits are the last axis of z."""
    return log_expit(t * z)[..., 0] if t.shape[1] == 1 else (log_softmax(z, axis=-1) * (t > 0)).sum(axis=-1)


def over_gaussian(t, mean, variance):
    """E log p(y | z) and log E p(y | z), by trapezoidal rules over every logit."""
    nodes = np.linspace(-8.0, 8.0, 2001 if t.shape[1] == 1 else 53)
    axes = np.meshgrid(*[nodes] * t.shape[1], indexing="ij")
    u = np.stack([axis.ravel() for axis in axes], axis=1)
    log_mass = -0.5 * (u**2).sum(axis=1)
    log_mass -= logsumexp(log_mass)
    log_p = log_likelihood(t, mean + np.sqrt(variance)[:, None] * u[:, None, :])
    return np.exp(log_mass) @ log_p, logsumexp(log_p + log_mass[:, None], axis=0)


@pytest.mark.parametrize("n_functions", [1, 2, 3])
def test_softmax_terms_are_integrals_over_the_logits(n_functions):
    t, mean, variance = draw(n_functions)
    value, log_probability = over_gaussian(t, mean, variance)
    np.testing.assert_allclose(softmax_terms(t, mean, variance).value, value, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(label_log_probability(t, mean, variance), log_probability, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_functions", [1, 2, 4, 20])
def test_residuals_and_precisions_are_derivatives_of_softmax_terms(n_functions):
    t, mean, variance = draw(n_functions, 1)
    found, step = softmax_terms(t, mean, variance), 1e-3
    second = np.zeros(len(t))
    for k in range(n_functions):
        move = step * np.eye(n_functions)[k]
        above, below = softmax_terms(t, mean + move, variance), softmax_terms(t, mean - move, variance)
        np.testing.assert_allclose((above.value - below.value) / (2 * step), found.residual[:, k], atol=2e-6)
        second -= (above.residual[:, k] - below.residual[:, k]) / (2 * step)
    free = max(n_functions - 1, 1)
    np.testing.assert_allclose(found.precision, second / free, atol=1e-5)
    # Price's theorem: a common variance moves the value by half the sum of the second derivatives.
    wider, narrower = (softmax_terms(t, mean, variance * (1 + s)) for s in (step, -step))
    slope = (wider.value - narrower.value) / (2 * step * variance)
    np.testing.assert_allclose(slope, -0.5 * free * found.precision, atol=1e-5)


def test_two_classes_may_have_one_logit_or_two():
    t, mean, variance = draw(2, 2)
    two = softmax_terms(t, mean, variance)
    one = softmax_terms(t[:, :1], mean[:, :1] - mean[:, 1:], 2 * variance)
    np.testing.assert_allclose(two.value, one.value, atol=1e-7)
    np.testing.assert_allclose(two.residual, one.residual * [1.0, -1.0], atol=1e-7)
    np.testing.assert_allclose(two.precision, 2 * one.precision, atol=1e-7)
    np.testing.assert_allclose(
        label_log_probability(t, mean, variance),
        label_log_probability(t[:, :1], mean[:, :1] - mean[:, 1:], 2 * variance),
        atol=1e-6,
    )


@pytest.mark.parametrize("n_functions", [1, 3, 7])
def test_logits_without_variance_have_the_likelihood_itself(n_functions):
    t, mean, _ = draw(n_functions, 3)
    found = softmax_terms(t, mean, np.zeros(len(t)))
    np.testing.assert_allclose(found.value, log_likelihood(t, mean), atol=1e-7)
    p = softmax(np.hstack([mean, 0 * mean]) if n_functions == 1 else mean, axis=1)[:, :n_functions]
    np.testing.assert_allclose(found.residual, (t > 0) - p, atol=1e-7)
    np.testing.assert_allclose(found.precision, (p * (1 - p)).sum(axis=1) / max(n_functions - 1, 1), atol=1e-7)
    np.testing.assert_allclose(label_log_probability(t, mean, 0 * mean[:, 0]), log_likelihood(t, mean), atol=1e-7)


@pytest.mark.parametrize("n_functions", [1, 3])
def test_a_label_against_certain_logits_stays_finite(n_functions):
    t = -np.ones((1, 1)) if n_functions == 1 else one_hot([2], 3)
    mean = np.zeros((1, n_functions))
    mean[0, 0] = 1e3
    for terms in (
        softmax_terms(t, mean, np.ones(1)),
        softmax_terms(-t if n_functions == 1 else t, mean, 9 * np.ones(1)),
    ):
        assert np.isfinite(terms.value).all() and np.isfinite(terms.residual).all() and terms.precision[0] >= 0
    assert -1001.0 < label_log_probability(t, mean, np.ones(1))[0] < -990.0


# --- Jaakkola and Jordan's bound, and the exponential one


def expected_log_likelihood(rows, levels, q):
    """Σ ω E log σ(t z), summed over every weight vector."""
    listed = enumerate_factorized(levels, q, [1.0], [1.0])
    z = rows.offset + listed.weights @ rows.x.T
    return float(listed.weight_probability @ (log_expit(rows.t[:, 0] * z) @ rows.weight))


def moments(rows, levels, q):
    mean = (q * levels).sum(axis=1)
    variance = (q * (levels - mean[:, None]) ** 2).sum(axis=1)
    return rows.offset + rows.x @ mean, rows.x**2 @ variance


def quadratic(t, mean, variance, xi):
    """Jaakkola and Jordan's bound at a given ξ."""
    return (
        log_expit(xi) + 0.5 * (t[:, 0] * mean[:, 0] - xi) - jaakkola_lambda(xi) * (mean[:, 0] ** 2 + variance - xi**2)
    )


@given(st.integers(0, 2**31), st.floats(0.05, 4.0), st.integers(1, 4), st.integers(1, 5))
def test_both_bounds_are_below_the_enumerated_expectation(make_rows, random_q, seed, scale, b, m):
    rows = make_rows(6, b, seed, scale, likelihood="jaakkola")
    levels, q = np.linspace(-1.5, 1.0, m)[None], random_q(b, m, seed)
    truth = expected_log_likelihood(rows, np.broadcast_to(levels, q.shape), q)
    mean, variance = moments(rows, levels, q)
    slack = 1e-9 * (1 + abs(truth))
    best = rows.weight @ jaakkola_terms(rows.t, mean[:, None], variance).value
    assert best <= truth + slack
    xi = np.random.default_rng(seed).exponential(3.0, 6)
    assert rows.weight @ quadratic(rows.t, mean[:, None], variance, xi) <= best + slack
    assert -rows.weight @ np.exp(exponential_log_terms(rows, levels, q)) <= truth + slack


def test_jaakkola_terms_have_the_value_and_derivatives_of_the_quadratic_bound():
    t, mean, variance = draw(1, 5)
    found, xi, step = jaakkola_terms(t, mean, variance), np.sqrt(mean[:, 0] ** 2 + variance), 1e-4
    np.testing.assert_allclose(found.value, quadratic(t, mean, variance, xi), rtol=1e-12)
    above, below = (quadratic(t, mean + s, variance, xi) for s in (step, -step))
    np.testing.assert_allclose((above - below) / (2 * step), found.residual[:, 0], atol=1e-8)
    wider, narrower = (quadratic(t, mean, variance + s, xi) for s in (step, -step))
    np.testing.assert_allclose((wider - narrower) / (2 * step), -0.5 * found.precision, atol=1e-8)
    assert (found.value < softmax_terms(t, mean, variance).value).all()


def test_the_jaakkola_bound_is_exact_for_a_known_logit():
    z = np.linspace(-9, 9, 19)[:, None]
    for t in (-np.ones((19, 1)), np.ones((19, 1))):
        np.testing.assert_allclose(jaakkola_terms(t, z, np.zeros(19)).value, log_expit(t * z)[:, 0], rtol=1e-12)


def test_lambda_is_smooth_towards_zero():
    xi = np.array([1e-10, 1e-6, 1e-3, 1.0, 700.0])
    extended = xi.astype(np.longdouble)
    np.testing.assert_allclose(jaakkola_lambda(xi), (np.tanh(extended / 2) / (4 * extended)).astype(float), rtol=1e-9)


def by_quadrature(mean, sd, n_nodes):
    """E log Σ exp z, E softmax(z) and E softmax(z) (1 − softmax(z)), by a product of trapezoidal rules."""
    nodes = np.linspace(-8.0, 8.0, n_nodes)
    mass = np.exp(-0.5 * nodes**2)
    mass /= mass.sum()
    axes = [(m + s * nodes, mass) if s > 0.0 else (np.array([m]), np.ones(1)) for m, s in zip(mean, sd, strict=True)]
    z = np.stack(np.meshgrid(*(z for z, _ in axes), indexing="ij"), axis=-1).reshape(-1, len(mean))
    weight = axes[0][1]
    for _, w in axes[1:]:
        weight = np.multiply.outer(weight, w)
    weight = weight.ravel()
    p = softmax(z, axis=1)
    return weight @ logsumexp(z, axis=1), weight @ p, weight @ (p * (1.0 - p))


def by_adaptive_quadrature(mean, sd):
    """E log(1 + exp z), E σ(z) and E σ(z) σ(−z)."""

    def expectation(f):
        bends = np.clip(-mean / sd, -40.0, 40.0)
        points = sorted({-6.0, 0.0, 6.0, bends, bends - 3.0 / sd, bends + 3.0 / sd})
        ends = [-40.0, *(p for p in points if -40.0 < p < 40.0), 40.0]
        density = lambda u: np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)  # noqa: E731
        return sum(
            quad(lambda u: density(u) * f(mean + sd * u), a, b, epsabs=1e-13, epsrel=1e-11, limit=200)[0]
            for a, b in itertools.pairwise(ends)
        )

    return (expectation(lambda z: -log_expit(-z)), expectation(expit), expectation(lambda z: expit(z) * expit(-z)))


@pytest.mark.parametrize(("sd", "n_nodes"), [(0.0, 1), (0.2, 41), (0.8, 61), (1.5, 61), (3.0, 81)])
@pytest.mark.parametrize("mean", [[0.0, 0.0, 0.0], [0.3, -1.0, 2.0], [-5.0, 6.0, 1.0]])
def test_three_classes_equal_quadrature_over_all_logits(mean, sd, n_nodes):
    log_partition, probability, curvature = by_quadrature(mean, [sd] * 3, n_nodes)
    got = expected_likelihood([mean], [sd**2])
    np.testing.assert_allclose(got.log_partition, [log_partition], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got.probability, [probability], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(got.curvature, [curvature.sum() / 2], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sd", [0.1, 0.3, 1.0, 1.2, 1.3, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("mean", [-30.0, -4.0, -0.3, 0.0, 1.0, 9.0])
def test_one_logit_equals_adaptive_quadrature(mean, sd):
    log_partition, probability, curvature = by_adaptive_quadrature(mean, sd)
    got = expected_likelihood([mean], [sd**2])
    np.testing.assert_allclose(got.log_partition, [log_partition], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got.probability, [probability], atol=1e-8)
    np.testing.assert_allclose(got.curvature, [curvature], atol=1e-8)


@pytest.mark.parametrize("sd", [0.0, 0.7, 6.0, 1000.0])
def test_one_class_is_certain(sd):
    got = expected_likelihood([[3.0]], [sd**2])
    np.testing.assert_allclose(got.log_partition, 3.0, atol=1e-9 * (1 + sd))
    assert got.probability == 1.0 and got.curvature == 0.0


@pytest.mark.parametrize("shift", [-1e6, -300.0, 300.0, 1e6])
def test_a_common_shift_moves_the_partition_alone(shift):
    mean, variance = np.array([[0.0, 1.0, -2.0]]), [0.5]
    a, b = expected_likelihood(mean, variance), expected_likelihood(mean + shift, variance)
    np.testing.assert_allclose(b.probability, a.probability, atol=1e-9)
    np.testing.assert_allclose(b.log_partition - shift, a.log_partition, atol=1e-9 + 1e-15 * abs(shift))


def test_very_wide_logits_choose_by_rank():
    got = expected_likelihood(np.zeros((1, 4)), [1e6])
    np.testing.assert_allclose(got.probability, 0.25, atol=1e-9)
    # The expected largest of four standard normal variables; Gumbel noise is negligible beside it.
    np.testing.assert_allclose(got.log_partition / 1e3, 1.02937537, atol=1e-5)


@pytest.mark.parametrize("gap", [10.0, 40.0, 400.0, 1e5])
@pytest.mark.parametrize("sd", [0.0, 0.5, 2.0])
def test_log_probabilities_of_hopeless_classes_stay_finite_and_true(gap, sd):
    mean, variance = np.array([[0.0, -gap, 1.0]]), [sd**2]
    log_probability = softmax_log_probability(mean, variance)
    assert np.isfinite(log_probability).all()
    np.testing.assert_allclose(logsumexp(log_probability, axis=1), 0.0, atol=1e-9)
    jensen = mean - expected_likelihood(mean, variance).log_partition[:, None]
    assert (log_probability >= jensen - 1e-12).all()
    # E e^{z_1} E e^{−z_0} bounds it from above.
    assert log_probability[0, 1] <= -gap + sd**2 + 1e-9


@pytest.mark.parametrize("sd", [0.0, 0.3, 1.0, 1.24, 1.26, 3.0, 10.0, 60.0])
def test_log_odds_are_those_of_the_integral(sd):
    u = np.linspace(-15, 15, 200_001)
    mass = np.exp(-0.5 * u**2) / np.exp(-0.5 * u**2).sum()
    mean = np.array([-30.0, -3.0, -0.1, 0.0, 0.7, 8.0, 25.0])
    exact = [np.log((expit(m + sd * u) @ mass) / (expit(-m - sd * u) @ mass)) for m in mean]
    np.testing.assert_allclose(predictive_log_odds(mean, np.full(7, sd**2)), exact, rtol=1e-8, atol=1e-10)


def test_log_odds_stay_finite_and_monotone_far_out():
    mean = np.concatenate([-np.geomspace(1e6, 1e-3, 400), np.geomspace(1e-3, 1e6, 400)])
    for sd in (0.0, 1.0, 1.3, 30.0):
        odds = predictive_log_odds(mean, np.full(mean.shape, sd**2))
        assert np.isfinite(odds).all() and (np.diff(odds) > 0).all()


def test_the_gaussian_prediction_agrees_with_enumeration_and_sampling(make_rows):
    rows = make_rows(40, 6, scale=0.6, likelihood="jaakkola")
    levels = evenly_spaced_levels(7, 2.0)
    posterior = fit_logistic(rows, levels, GaussianPrior().log_mass(levels))
    exact = enumerate_logistic_predictive(rows.x, enumerate_factorized(levels, posterior.q, [1.0], [1.0]), rows.offset)
    mean, variance = rows.moments(LogisticFit([posterior], 1.0))
    np.testing.assert_allclose(expit(predictive_log_odds(mean[:, 0], variance)), exact, atol=2e-3)
    drawn = expit(rows.offset + posterior.sample_weights(4000, np.random.default_rng(0)) @ rows.x.T)
    error = drawn.std(axis=0, ddof=1) / np.sqrt(4000)
    assert (np.abs(drawn.mean(axis=0) - exact) < 4.5 * error).all()


def test_log_odds_of_draws_are_those_of_their_mean_probability():
    draws = np.random.default_rng(0).normal(1.0, 3.0, (5, 64))
    np.testing.assert_allclose(expit(averaged_log_odds(draws)), expit(draws).mean(axis=1), rtol=1e-12)
    variance = np.array([0.0, 0.5, 1.0, 2.0, 9.0])
    blurred = expit(predictive_log_odds(draws, np.repeat(variance[:, None], 64, axis=1))).mean(axis=1)
    np.testing.assert_allclose(expit(averaged_log_odds(draws, variance)), blurred, rtol=1e-12)
    assert np.isfinite(averaged_log_odds(np.array([[1e5, 2e5], [-1e5, -2e5]]))).all()


def test_draws_without_variance_are_not_blurred(monkeypatch):
    draws = np.random.default_rng(0).normal(1.0, 3.0, (5, 3, 64))
    expected = averaged_log_odds(draws[:, 0]), averaged_softmax(draws)
    for name in ("predictive_log_odds", "softmax_log_probability"):
        monkeypatch.setattr(likelihood, name, None)  # quadrature, for every draw of every row
    np.testing.assert_array_equal(averaged_log_odds(draws[:, 0], np.zeros(5)), expected[0])
    np.testing.assert_array_equal(averaged_softmax(draws, np.zeros(5)), expected[1])
