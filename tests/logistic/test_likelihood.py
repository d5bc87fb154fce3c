"""Likelihoods in expectation over Gaussian logits: their values, derivatives, and which are bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_expit, log_softmax, logsumexp, softmax

from pydirect import evenly_spaced_levels
from pydirect.logistic.exponential import exponential_bound
from pydirect.logistic.likelihood import jaakkola_lambda, jaakkola_terms, label_log_probability, softmax_terms
from pydirect.testing import enumerate_factorized

LEVELS = evenly_spaced_levels(5, 2.0)


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


@pytest.mark.parametrize("n_functions", [1, 2, 4])
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


@pytest.mark.parametrize("n_functions", [1, 3])
def test_logits_without_variance_have_the_likelihood_itself(n_functions):
    t, mean, _ = draw(n_functions, 3)
    found = softmax_terms(t, mean, np.zeros(len(t)))
    np.testing.assert_allclose(found.value, log_likelihood(t, mean), atol=1e-7)
    p = softmax(np.hstack([mean, 0 * mean]) if n_functions == 1 else mean, axis=1)[:, :n_functions]
    np.testing.assert_allclose(found.residual, (t > 0) - p, atol=1e-7)
    np.testing.assert_allclose(found.precision, (p * (1 - p)).sum(axis=1) / max(n_functions - 1, 1), atol=1e-7)
    np.testing.assert_allclose(label_log_probability(t, mean, 0 * mean[:, 0]), log_likelihood(t, mean), atol=1e-7)


@pytest.mark.parametrize("n_functions", [1, 3])
def test_the_log_of_the_expected_likelihood_is_above_the_expected_log(n_functions):
    t, mean, variance = draw(n_functions, 4, n=12)
    assert (label_log_probability(t, mean, variance) >= softmax_terms(t, mean, variance).value).all()


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
    assert exponential_bound(rows, levels, q)[0] <= truth + slack


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


def test_lambda_is_smooth_through_zero():
    xi = np.array([0.0, 1e-12, 9.99e-4, 1.01e-3, 1.0, 700.0])
    extended = np.maximum(xi, 1e-9).astype(np.longdouble)
    np.testing.assert_allclose(jaakkola_lambda(xi), (np.tanh(extended / 2) / (4 * extended)).astype(float), rtol=1e-9)


@pytest.mark.parametrize("mean", [0.0, 3.0, 5.0])
def test_the_exponential_bound_is_tighter_where_the_logit_determines_the_label(mean):
    one = np.ones((1, 1))
    jaakkola, exponential = jaakkola_terms(one, mean * one, one[0]).value[0], -np.exp(0.5 - mean)
    nodes, masses = np.polynomial.hermite_e.hermegauss(60)
    assert max(jaakkola, exponential) < masses @ log_expit(mean + nodes) / masses.sum()
    assert (exponential > jaakkola) == (mean >= 3.0)
