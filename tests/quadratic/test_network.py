"""The model of quadratic networks against its definition: every weight vector enumerated, every network run."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp, rel_entr, softmax

from pydirect import _core
from pydirect.distributions.categorical import pad_levels, padded
from pydirect.distributions.noise import NoiseGrid
from pydirect.quadratic import NetworkShape, QuadraticNetwork
from pydirect.quadratic.network import choose_engine, make_engine
from tests.helpers.oracles import enumerate_network, finite_difference_gradient

RNG = np.random.default_rng(3)
SHAPES = [
    NetworkShape(1, (1,), True),
    NetworkShape(2, (2,), False),
    NetworkShape(1, (2,), True),
    NetworkShape(1, (1, 1), True),
    NetworkShape(2, (1, 2), False),
]


def make_model(shape, n_levels=2, n_rows=7, seed=0, weight=None, forbidden=False):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n_rows, shape.n_inputs)), rng.normal(size=n_rows)
    levels = np.sort(rng.normal(size=(shape.n_weights, n_levels)), axis=1)
    log_prior = rng.normal(size=levels.shape)
    log_prior -= logsumexp(log_prior, axis=1, keepdims=True)
    if forbidden:
        log_prior[0] = [0.0] + [-np.inf] * (n_levels - 1)
    engine = make_engine(choose_engine(shape, n_rows), shape, x, y, weight)
    n_samples = n_rows if weight is None else weight.sum()
    noise = NoiseGrid.of([0.3, 1.0, 4.0], np.log([0.2, 0.5, 0.3]))
    return QuadraticNetwork(shape, engine, n_samples, levels, log_prior, noise), x, y


def random_logits(model, seed=1):
    return np.random.default_rng(seed).normal(size=(model.shape.n_weights, model.levels.shape[1]))


def probabilities(logits, log_prior):
    logits = np.where(np.isfinite(log_prior), logits, -np.inf)
    return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))


def test_weights_are_ordered_by_layer_then_unit_then_input():
    shape = NetworkShape(2, (3,), True)
    assert (shape.n_weights, shape.layers, shape.depth) == (13, ((3, 3), (1, 4)), 1)
    hidden, output = shape.matrices(np.arange(13.0))
    np.testing.assert_array_equal(hidden, np.arange(9.0).reshape(3, 3))
    np.testing.assert_array_equal(output, [[9, 10, 11, 12]])


def test_forward_is_the_network_by_hand():
    shape = NetworkShape(2, (2, 1), True)
    w = RNG.normal(size=shape.n_weights)
    x = RNG.normal(size=(4, 2))
    z = (np.c_[x, np.ones(4)] @ w[:6].reshape(2, 3).T) ** 2
    z = (np.c_[z, np.ones(4)] @ w[6:9].reshape(1, 3).T) ** 2
    np.testing.assert_allclose(shape.forward(w[None], x)[0], np.c_[z, np.ones(4)] @ w[9:], rtol=1e-13)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_expected_squared_error_is_the_enumerated_one(shape, weighted):
    weight = np.array([1.0, 2, 0.5, 3, 1, 1, 0.1]) if weighted else None
    model, x, y = make_model(shape, weight=weight)
    q = probabilities(random_logits(model), model.log_prior)
    sizes, bias = shape.hidden_layer_sizes, shape.bias
    expected = enumerate_network(x, y, sizes, bias, model.levels, q, weight).squared_error
    assert model.expected_squared_error(q) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient_of_the_elbo_in_the_logits(shape, forbidden):
    model, _, _ = make_model(shape, n_levels=3, forbidden=forbidden)
    logits = random_logits(model)

    def value(flat):
        return model.elbo_and_gradient(padded(flat.reshape(logits.shape)).ravel())[0]

    _, gradient = model.elbo_and_gradient(padded(logits).ravel())
    numeric = finite_difference_gradient(value, logits.ravel())
    exact = gradient.reshape(len(logits), -1)[:, :3].ravel()
    np.testing.assert_allclose(exact, numeric, atol=1e-6 * max(1, np.abs(numeric).max()))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_profiled_elbo_is_the_elbo_at_the_best_noise_posterior(shape):
    model, _, _ = make_model(shape)
    logits = random_logits(model)
    q = probabilities(logits, model.log_prior)
    profiled, _ = model.elbo_and_gradient(padded(logits).ravel())
    noise = model.noise_posterior(model.expected_squared_error(q))[1]
    assert model.elbo(q, noise.q) == pytest.approx(profiled, rel=1e-12)
    for other in np.random.default_rng(0).dirichlet(np.ones(3), 20):
        assert model.elbo(q, other) <= profiled + 1e-9


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elbo_is_below_the_log_evidence(shape):
    model, x, y = make_model(shape)
    log_joint = []
    for chosen in itertools.product(range(2), repeat=shape.n_weights):
        rows = np.arange(shape.n_weights), np.array(chosen)
        error = np.sum((y - shape.forward(model.levels[rows][None], x)[0]) ** 2)
        for noise, log_p in zip(model.noise.levels, model.noise.log_prior, strict=True):
            log_likelihood = -0.5 * len(y) * np.log(2 * np.pi * noise) - 0.5 * error / noise
            log_joint.append(model.log_prior[rows].sum() + log_p + log_likelihood)
    evidence = logsumexp(log_joint)
    for seed in range(5):
        assert model.elbo_and_gradient(padded(random_logits(model, seed)).ravel())[0] <= evidence + 1e-9


@pytest.mark.parametrize("shape", [*SHAPES, NetworkShape(3, (4, 3), True), NetworkShape(3, (5,), True)], ids=str)
def test_a_sweep_never_lowers_the_elbo_and_ends_where_no_weight_moves(shape):
    model, _, _ = make_model(shape, n_levels=3, n_rows=12)
    q = probabilities(random_logits(model), model.log_prior)
    tau = 0.7

    def objective():
        entropy_and_prior = np.sum(q * (model.log_prior - np.log(np.maximum(q, 1e-300))))
        return entropy_and_prior - 0.5 * tau * model.expected_squared_error(q)

    values = [objective()]
    for _ in range(60):
        error = model.sweep(q, tau)
        assert error == pytest.approx(model.expected_squared_error(q), rel=1e-10)
        values.append(objective())
    assert (np.diff(values) >= -1e-9 * np.abs(values[:-1])).all()
    slopes = model.squared_error_slopes(q)[1]
    best = probabilities(model.log_prior - 0.5 * tau * slopes, model.log_prior)
    np.testing.assert_allclose(q, best, atol=1e-5)


def test_the_cheapest_engine_is_chosen():
    assert choose_engine(NetworkShape(8, (20,), True), 1000) == "tensor"
    assert choose_engine(NetworkShape(100, (20,), True), 1000) == "datum"
    assert choose_engine(NetworkShape(500, (20,), True), 10**9) == "datum"
    assert choose_engine(NetworkShape(8, (20, 3), True), 1000) == "datum"
    assert choose_engine(NetworkShape(1, (1, 1, 1), True), 1000) == "monomial"


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


@pytest.mark.parametrize("shared", [True, False])
def test_the_gradient_in_logits_is_that_of_finite_differences(isa_level, network, shared):
    case = Stage(network, 5, shared)
    case.stage.from_logits(case.logits)
    got = case.stage.logit_gradient(case.gradient, 0.35)
    expected = finite_difference_gradient(lambda logits: case.objective(logits, 0.35), case.logits)
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-8)


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
