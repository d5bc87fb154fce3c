"""From logits to the moment table of a quadratic network and back, against the definitions in NumPy."""

import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from pydirect import _core
from pydirect.distributions.levels import evenly_spaced_levels, pad_levels

NETWORKS = [(2, [3], True), (3, [2], False), (2, [3, 2], True), (1, [2, 3, 2], True), (2, [2, 1, 1, 1], False)]


def layers_of(n_inputs, hidden, bias):
    """(number of moments, number of weights) of every layer."""
    fan_in, fan_out = [n_inputs, *hidden], [*hidden, 1]
    counts = [o * (i + bias) for i, o in zip(fan_in, fan_out, strict=True)]
    return [(2 ** (len(hidden) - k + 1), count) for k, count in enumerate(counts)]


def moment_table(layers, levels, q):
    """By definition; levels broadcast against q."""
    rows, first = [], 0
    for n_moments, count in layers:
        part = slice(first, first + count)
        w = np.broadcast_to(levels, q.shape)[part]
        mean = (q[part] * w).sum(axis=1)
        rows += [mean, *((q[part] * (w - mean[:, None]) ** r).sum(axis=1) for r in range(2, n_moments + 1))]
        first += count
    return np.concatenate(rows)


class Stage:
    """Levels, prior and logits of random weights, padded, with the stage built on them."""

    def __init__(self, network, n_levels=5, shared=True, seed=0, n_threads=1):
        rng = np.random.default_rng(seed)
        self.layers = layers_of(*network)
        self.n_levels, self.n_weights = n_levels, sum(count for _, count in self.layers)
        self.table_size = sum(r * count for r, count in self.layers)
        shape = (1 if shared else self.n_weights, n_levels)
        levels = np.sort(rng.uniform(-0.4, 0.8, shape), axis=1)
        log_prior = np.log(rng.dirichlet(np.ones(n_levels), size=shape[0]))
        self.levels, self.log_prior = pad_levels(levels, log_prior)
        self.logits = np.zeros((self.n_weights, self.levels.shape[1]))
        self.logits[:, :n_levels] = 2 * rng.standard_normal((self.n_weights, n_levels))
        self.gradient = rng.standard_normal(self.table_size)
        self.arguments = (*network, self.levels, self.log_prior, n_threads)
        self.stage = _core.NetworkMoments(*self.arguments)

    def q(self, logits):
        return softmax(np.where(np.isneginf(self.log_prior), -np.inf, logits), axis=1)

    def objective(self, logits, factor):
        """factor·R + KL for R linear in the table."""
        q = self.q(logits)
        value = factor * self.gradient @ moment_table(self.layers, self.levels, q)
        return value + rel_entr(q, np.broadcast_to(np.exp(self.log_prior), q.shape)).sum()


def central_differences(function, x, step=1e-5):
    out = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            out[index] += sign * function(moved) / (2 * step)
    return out


@pytest.fixture(params=NETWORKS, ids=str)
def network(request):
    return request.param


@pytest.mark.parametrize("n_levels", [1, 2, 8, 15, 16, 17, 31, 40])
@pytest.mark.parametrize("shared", [True, False])
def test_the_table_holds_means_and_central_moments_layer_by_layer(isa_level, network, n_levels, shared):
    case = Stage(network, n_levels, shared)
    table = case.stage.from_logits(case.logits)
    q = case.q(case.logits)
    np.testing.assert_allclose(table, moment_table(case.layers, case.levels, q), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(case.stage.q, q, rtol=1e-14, atol=0)
    np.testing.assert_array_equal(case.stage.q[:, n_levels:], 0)
    prior = np.broadcast_to(np.exp(case.log_prior), q.shape)
    np.testing.assert_allclose(case.stage.divergence, rel_entr(q, prior).sum(axis=1), rtol=1e-13, atol=1e-14)


def test_probabilities_give_the_table_of_their_logits(network):
    case = Stage(network, 15)
    table = case.stage.from_logits(case.logits)
    np.testing.assert_array_equal(case.stage.from_probabilities(case.stage.q), table)


@pytest.mark.parametrize("shared", [True, False])
def test_the_gradient_in_logits_is_that_of_finite_differences(isa_level, network, shared):
    case = Stage(network, 5, shared)
    case.stage.from_logits(case.logits)
    got = case.stage.logit_gradient(case.gradient, 0.35)
    expected = central_differences(lambda logits: case.objective(logits, 0.35), case.logits)
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("n_levels", [3, 15, 20, 31])
def test_the_gradient_in_logits_is_that_of_the_slopes(network, n_levels):
    case = Stage(network, n_levels, shared=False)
    case.stage.from_logits(case.logits)
    q = case.stage.q
    with np.errstate(divide="ignore", invalid="ignore"):
        g = 0.7 * case.stage.probability_slopes(case.gradient) + np.where(q > 0, np.log(q) - case.log_prior, 0)
    expected = q * (g - (q * g).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(case.stage.logit_gradient(case.gradient, 0.7), expected, rtol=1e-11, atol=1e-12)


def test_slopes_are_derivatives_along_the_simplex_and_zero_at_the_mean(network):
    case = Stage(network, 5, shared=False)
    q = case.q(case.logits)
    case.stage.from_probabilities(q)
    got = case.stage.probability_slopes(case.gradient)

    def towards_level(j, k, step):  # R on the way from q_j to certainty of one level
        moved = q.copy()
        moved[j] *= 1 - step
        moved[j, k] += step
        return case.gradient @ moment_table(case.layers, case.levels, moved)

    for j in range(case.n_weights):
        for k in range(case.n_levels):
            expected = (towards_level(j, k, 1e-5) - towards_level(j, k, -1e-5)) / 2e-5
            assert got[j, k] - q[j] @ got[j] == pytest.approx(expected, rel=1e-6, abs=1e-7)

    certain = np.zeros_like(q)
    certain[:, 2] = 1.0
    case.stage.from_probabilities(certain)
    np.testing.assert_array_equal(case.stage.probability_slopes(case.gradient)[:, 2], 0)


def test_fixed_points_of_the_slopes_are_stationary(network):
    """At the fixed point q ∝ p exp(−½τ ∂R/∂q) the gradient of ½τR + KL is zero."""
    case = Stage(network, 5)
    logits = np.broadcast_to(np.where(np.isneginf(case.log_prior), 0, case.log_prior), case.logits.shape).copy()
    for _ in range(200):
        case.stage.from_logits(logits)
        slopes = case.stage.probability_slopes(0.2 * case.gradient)
        logits = np.where(np.isneginf(case.log_prior), 0, case.log_prior) - 0.5 * slopes
    case.stage.from_logits(logits)
    np.testing.assert_allclose(case.stage.logit_gradient(0.2 * case.gradient, 0.5), 0, atol=1e-12)


def test_point_masses_have_their_level_as_mean_and_no_spread_at_all(isa_level, network):
    case = Stage(network, 15)
    chosen = np.random.default_rng(1).integers(15, size=case.n_weights)
    logits = np.where(np.arange(16) == chosen[:, None], 700.0, -700.0)
    table = case.stage.from_logits(logits)
    first, offset = 0, 0
    for n_moments, count in case.layers:
        part = table[offset : offset + n_moments * count].reshape(n_moments, count)
        np.testing.assert_array_equal(part[0], case.levels[0, chosen[first : first + count]])
        np.testing.assert_array_equal(part[1:], 0)
        first, offset = first + count, offset + n_moments * count
    np.testing.assert_allclose(case.stage.divergence, -case.log_prior[0, chosen], rtol=1e-13)
    np.testing.assert_array_equal(case.stage.logit_gradient(case.gradient, 1.0), 0)


def test_logits_of_minus_infinity_remove_their_levels(isa_level, network):
    case = Stage(network, 9)
    case.logits[:, 4] = -np.inf
    table = case.stage.from_logits(case.logits)
    assert np.isfinite(table).all()
    assert np.isfinite(case.stage.divergence).all()
    np.testing.assert_array_equal(case.stage.q[:, 4], 0)
    gradient = case.stage.logit_gradient(case.gradient, 0.5)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[:, 4], 0)
    low = case.logits.copy()
    low[:, 4] = -1e300
    np.testing.assert_array_equal(case.stage.from_logits(low), table)


def test_a_level_without_prior_mass_has_no_posterior_mass(network):
    case = Stage(network, 9)
    case.log_prior[0, 3] = -np.inf
    case.logits[:, 3] = 5000.0
    case.stage.from_logits(case.logits)
    np.testing.assert_array_equal(case.stage.q[:, 3], 0)
    np.testing.assert_array_equal(case.stage.logit_gradient(case.gradient, 0.5)[:, 3], 0)
    np.testing.assert_allclose(case.stage.q, case.q(case.logits), rtol=1e-13)


@pytest.mark.parametrize("shift", [-700.0, 700.0, 1e6])
def test_a_shift_of_all_logits_has_no_effect(network, shift):
    case = Stage(network, 15)
    table = case.stage.from_logits(np.round(case.logits, 3))
    divergence = case.stage.divergence
    shifted = case.stage.from_logits(np.round(case.logits, 3) + shift)
    np.testing.assert_allclose(shifted, table, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(case.stage.divergence, divergence, rtol=1e-8, atol=1e-9)


def test_a_common_offset_of_the_levels_leaves_central_moments(network):
    """Central moments come from w − mean, not from raw moments subtracted."""
    case = Stage(network, 15)
    table = case.stage.from_logits(case.logits)
    n_inputs, hidden, bias, levels, log_prior, n_threads = case.arguments
    far = _core.NetworkMoments(n_inputs, hidden, bias, levels + 1e4, log_prior, n_threads).from_logits(case.logits)
    offset = 0
    for n_moments, count in case.layers:
        spread = slice(offset + count, offset + n_moments * count)
        np.testing.assert_allclose(far[spread], table[spread], rtol=1e-8, atol=1e-8)
        offset += n_moments * count


@pytest.mark.parametrize("n_levels", [8, 15, 20, 31])
def test_bits_are_the_same_at_every_level_and_for_any_number_of_threads(at_every_level, n_levels):
    network = (5, [40, 9], True)

    def evaluate(n_threads):
        case = Stage(network, n_levels, shared=False, n_threads=n_threads)
        table = case.stage.from_logits(case.logits)
        stage = case.stage
        derivatives = stage.logit_gradient(case.gradient, 0.3), stage.probability_slopes(case.gradient)
        return table, stage.q, stage.divergence, *derivatives

    one = at_every_level(lambda: evaluate(1))
    for n_threads in (2, 3):
        for got, expected in zip(evaluate(n_threads), one, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_arrays_of_another_shape_are_refused():
    levels, log_prior = pad_levels(evenly_spaced_levels(5)[None], np.full((1, 5), -np.log(5)))
    stage = _core.NetworkMoments(2, [3], True, levels, log_prior, 1)
    with pytest.raises(ValueError, match=r"logits must have shape \(13, 8\)"):
        stage.from_logits(np.zeros((13, 5)))
    with pytest.raises(ValueError, match=r"gradient must have shape \(44\)"):
        stage.logit_gradient(np.zeros(9), 1.0)
    with pytest.raises(ValueError, match="levels must be padded"):
        _core.NetworkMoments(2, [3], True, levels[:, :5].copy(), log_prior, 1)
