"""The model of quadratic networks against its definition: every weight vector enumerated, every network run."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from pydirect.distributions.noise import NoiseGrid
from pydirect.quadratic import NetworkShape, QuadraticNetwork
from pydirect.quadratic.engines import MAX_ENGINE_BYTES, choose_engine, make_engine
from pydirect.testing import finite_difference_gradient

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


def enumerate_squared_error(model, q, x, y, weight):
    total = 0.0
    for chosen in itertools.product(range(q.shape[1]), repeat=q.shape[0]):
        rows = np.arange(len(q)), np.array(chosen)
        f = model.shape.forward(model.levels[rows][None], x)[0]
        total += np.prod(q[rows]) * np.sum(weight * (y - f) ** 2)
    return total


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


@pytest.mark.parametrize("sizes", [(), "8", (0,), (2.5,), (-1, 2), None, [[2]], (True,)])
def test_invalid_widths_are_refused(sizes):
    with pytest.raises((ValueError, TypeError), match="hidden_layer_sizes"):
        NetworkShape(2, sizes)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_expected_squared_error_is_the_enumerated_one(shape, weighted):
    weight = np.array([1.0, 2, 0.5, 3, 1, 1, 0.1]) if weighted else None
    model, x, y = make_model(shape, weight=weight)
    q = probabilities(random_logits(model), model.log_prior)
    expected = enumerate_squared_error(model, q, x, y, 1.0 if weight is None else weight)
    assert model.expected_squared_error(q) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient_of_the_elbo_in_the_logits(shape, forbidden):
    model, _, _ = make_model(shape, n_levels=3, forbidden=forbidden)
    logits = random_logits(model)

    def value(flat):
        return model.elbo_and_gradient(model.pad(flat.reshape(logits.shape)).ravel())[0]

    _, gradient = model.elbo_and_gradient(model.pad(logits).ravel())
    numeric = finite_difference_gradient(value, logits.ravel())
    exact = gradient.reshape(len(logits), -1)[:, :3].ravel()
    np.testing.assert_allclose(exact, numeric, atol=1e-6 * max(1, np.abs(numeric).max()))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_profiled_elbo_is_the_elbo_at_the_best_noise_posterior(shape):
    model, _, _ = make_model(shape)
    logits = random_logits(model)
    q = probabilities(logits, model.log_prior)
    profiled, _ = model.elbo_and_gradient(model.pad(logits).ravel())
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
        assert model.elbo_and_gradient(model.pad(random_logits(model, seed)).ravel())[0] <= evidence + 1e-9


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


def test_networks_that_do_not_fit_into_memory_are_refused_with_their_size():
    with pytest.raises(
        ValueError, match=f"would take .* GiB .tensor., against a limit of {MAX_ENGINE_BYTES / 2**30:.3g}"
    ):
        choose_engine(NetworkShape(500, (20,), True), 1000, "tensor")
    with pytest.raises(ValueError, match=r"hidden_layer_sizes must be smaller .* terms, .* GiB"):
        make_engine("monomial", NetworkShape(8, (8, 8, 8), True), np.ones((3, 8)), np.ones(3))


def test_the_cheapest_engine_is_chosen():
    assert choose_engine(NetworkShape(8, (20,), True), 1000) == "tensor"
    assert choose_engine(NetworkShape(100, (20,), True), 1000) == "datum"
    assert choose_engine(NetworkShape(500, (20,), True), 10**9) == "datum"
    assert choose_engine(NetworkShape(8, (20, 3), True), 1000) == "datum"
    assert choose_engine(NetworkShape(1, (1, 1, 1), True), 1000) == "monomial"


def test_engines_refuse_other_depths():
    with pytest.raises(ValueError, match="engine must serve 2 hidden layers, got 'tensor'"):
        choose_engine(NetworkShape(2, (3, 3), True), 100, "tensor")
    with pytest.raises(ValueError, match="engine must serve 3 hidden layers, got 'datum'"):
        choose_engine(NetworkShape(2, (3, 3, 3), True), 100, "datum")
