"""Engines for networks with quadratic activations: against enumeration, against each other, and bit by bit."""

import numpy as np
import pytest

from pydirect import _core
from tests.helpers.oracles import enumerate_network, finite_difference_gradient, run_networks

ENGINES = {1: ("tensor", "datum"), 2: ("datum",)}
KINDS = [(kind, depth) for depth, kinds in ENGINES.items() for kind in kinds]
MONOMIAL = [("monomial", depth) for depth in ENGINES]


def layer_shapes(n_inputs, hidden, bias):
    """(fan_out, fan_in, number of moments) of every layer."""
    widths = [n_inputs, *hidden, 1]
    return [(widths[k + 1], widths[k] + bias, 2 << (len(hidden) - k)) for k in range(len(hidden) + 1)]


def n_weights(n_inputs, hidden, bias):
    return sum(out * inputs for out, inputs, _ in layer_shapes(n_inputs, hidden, bias))


def run_network(weights, x, hidden, bias):
    """f(x) of one weight vector, by definition."""
    layers = [(out, inputs) for out, inputs, _ in layer_shapes(x.shape[1], hidden, bias)]
    return run_networks(weights[None], layers, x, bias)[0]


def moment_table(q, levels, n_inputs, hidden, bias):
    """Means and central moments of all weights in the layout of the engines."""
    mean = (q * levels).sum(axis=1)
    parts, start = [], 0
    for out, inputs, n_moments in layer_shapes(n_inputs, hidden, bias):
        here = slice(start, start + out * inputs)
        start += out * inputs
        centred = levels[here] - mean[here, None]
        parts += [mean[here], *((q[here] * centred**r).sum(axis=1) for r in range(2, n_moments + 1))]
    return np.concatenate(parts)


def random_table(n_inputs, hidden, bias, seed=0, scale=0.5, n_levels=5):
    rng = np.random.default_rng(seed)
    b = n_weights(n_inputs, hidden, bias)
    levels = scale * rng.standard_normal((b, n_levels))
    q = rng.dirichlet(np.ones(n_levels), size=b)
    return moment_table(q, levels, n_inputs, hidden, bias), q, levels


def random_data(n, n_inputs, seed=0):
    rng = np.random.default_rng(100 + seed)
    return rng.uniform(-1, 1, (n, n_inputs)), rng.standard_normal(n), rng.uniform(0.5, 2.0, n)


def evaluate(kind, table, x, y, weight, hidden, bias, n_threads=1):
    engine = _core.NetworkEngine(kind, x.shape[1], list(hidden), bias, x, y, weight)
    gradient = np.full_like(table, np.nan)
    value = engine.evaluate(table, gradient, n_threads)
    assert engine.evaluate(table, None, n_threads) == value
    return value, gradient


def predict(kind, table, x, hidden, bias, n_threads=1):
    engine = _core.NetworkEngine(kind, x.shape[1], list(hidden), bias, x[:1], np.zeros(1), None)
    mean, variance, alone = (np.full(len(x), np.nan) for _ in range(3))
    engine.predict(table, x, mean, variance, n_threads)
    engine.predict(table, x, alone, None, n_threads)
    np.testing.assert_array_equal(alone, mean)
    return mean, variance


SMALL = [(1, (1,), False), (1, (1,), True), (2, (3,), False), (2, (2,), True)]
SMALL += [(1, (1, 1), False), (1, (1, 1), True), (2, (2, 2), False), (1, (3, 2), False), (1, (2, 2), True)]
SMALL += [(2, (1, 1, 1), True), (1, (1, 2, 2), False)]


@pytest.mark.parametrize(("n_inputs", "hidden", "bias"), SMALL)
def test_engines_equal_enumeration_of_all_networks(n_inputs, hidden, bias):
    x, y, weight = random_data(4, n_inputs)
    table, q, levels = random_table(n_inputs, hidden, bias, scale=1.0, n_levels=2)
    exact = enumerate_network(x, y, hidden, bias, levels, q, weight)
    for kind in (*ENGINES.get(len(hidden), ()), "monomial"):
        assert evaluate(kind, table, x, y, weight, hidden, bias)[0] == pytest.approx(exact.squared_error, rel=1e-12)
        mean, variance = predict(kind, table, x, hidden, bias)
        np.testing.assert_allclose(mean, exact.mean, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(variance, exact.variance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("n_inputs", "hidden"), [(1, (1,)), (4, (3,)), (9, (17,)), (2, (2, 2)), (5, (9, 4)), (3, (4, 9)), (1, (1, 2, 2))]
)
def test_gradient_equals_finite_differences(n_inputs, hidden, bias):
    x, y, weight = random_data(11, n_inputs)
    table, _, _ = random_table(n_inputs, hidden, bias)
    small = ("monomial",) if n_weights(n_inputs, hidden, bias) < 20 else ()
    for kind in (*ENGINES.get(len(hidden), ()), *small):
        _, gradient = evaluate(kind, table, x, y, weight, hidden, bias)
        engine = _core.NetworkEngine(kind, n_inputs, list(hidden), bias, x, y, weight)
        # R is a polynomial in every entry, so that a wide stencil of fourth order is nearly exact.
        numeric = np.empty_like(table)
        for k in range(table.size):
            values = []
            for sign in (1, -1, 2, -2):
                moved = table.copy()
                moved[k] += sign * 0.002
                values.append(engine.evaluate(moved, None, 1))
            numeric[k] = (8 * (values[0] - values[1]) - (values[2] - values[3])) / 0.024
        np.testing.assert_allclose(gradient, numeric, rtol=2e-6, atol=2e-7 * np.abs(gradient).max())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("n", "n_inputs", "hidden"), [(1, 3, 4), (50, 1, 1), (300, 8, 20), (1111, 15, 70), (7, 20, 9)])
def test_tensor_and_datum_agree(n, n_inputs, hidden, bias):
    x, y, weight = random_data(n, n_inputs)
    table, _, _ = random_table(n_inputs, (hidden,), bias)
    (value, gradient), (other, other_gradient) = (
        evaluate(kind, table, x, y, weight, (hidden,), bias) for kind in ENGINES[1]
    )
    assert other == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(other_gradient, gradient, rtol=0, atol=1e-12 * np.abs(gradient).max())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("n_inputs", "hidden"), [(1, (1,)), (5, (3,)), (3, (9,)), (1, (1, 1)), (3, (2, 2)), (2, (3, 2))]
)
def test_all_engines_agree_in_value_and_gradient(n_inputs, hidden, bias, weighted):
    for seed in range(3):
        x, y, weight = random_data(90, n_inputs, seed)
        weight = weight if weighted else None
        table, _, _ = random_table(n_inputs, hidden, bias, seed, scale=0.8)
        value, gradient = evaluate("monomial", table, x, y, weight, hidden, bias)
        for kind in ENGINES[len(hidden)]:
            other, other_gradient = evaluate(kind, table, x, y, weight, hidden, bias)
            assert other == pytest.approx(value, rel=1e-12), kind
            np.testing.assert_allclose(
                other_gradient, gradient, rtol=0, atol=1e-12 * np.abs(gradient).max(), err_msg=kind
            )


@pytest.mark.parametrize("bias", [False, True])
def test_rounding_of_the_tensor_does_not_grow_with_the_rows(bias):
    """R is a difference of sums of the size of Σ y²; nothing but that cancellation may be lost."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, (20000, 4))
        w = rng.uniform(-1, 1, (n_weights(4, (3,), bias), 1))
        f = run_network(w[:, 0], x, (3,), bias)
        for noise in (5e-2, 5e-4):
            y = f + noise * rng.standard_normal(len(x))
            table = moment_table(np.ones_like(w), w, 4, (3,), bias)
            error = evaluate("tensor", table, x, y, None, (3,), bias)[0] - ((y - f) ** 2).sum()
            assert abs(error) < 16 * np.finfo(float).eps * (y @ y)


@pytest.mark.parametrize(("kind", "depth"), KINDS)
@pytest.mark.parametrize("bias", [False, True])
def test_inputs_and_units_without_weights_have_no_effect(kind, depth, bias):
    """A small network hidden inside a wide one, whose remaining weights are certainly zero."""
    rng = np.random.default_rng(3)
    small, wide = (3, *(2, 3)[:depth]), (21, *(17, 26)[:depth])
    x, y, weight = random_data(70, small[0])
    table, q, levels = random_table(small[0], small[1:], bias)
    places = [np.sort(rng.choice(w, s, replace=False)) for s, w in zip(small, wide, strict=True)]
    wide_x = rng.uniform(-1, 1, (70, wide[0]))
    wide_x[:, places[0]] = x
    b = n_weights(wide[0], wide[1:], bias)
    wide_levels, wide_q = np.zeros((b, 5)), np.tile(np.eye(5)[0], (b, 1))
    taken, start = [], 0
    for k, (out, inputs, _) in enumerate(layer_shapes(wide[0], wide[1:], bias)):
        rows = places[k + 1] if k < depth else np.array([0])
        columns = np.append(places[k], inputs - 1) if bias else places[k]
        taken.append((start + rows[:, None] * inputs + columns).ravel())
        start += out * inputs
    wide_levels[np.concatenate(taken)], wide_q[np.concatenate(taken)] = levels, q
    wide_table = moment_table(wide_q, wide_levels, wide[0], wide[1:], bias)
    expected, _ = evaluate(kind, table, x, y, weight, small[1:], bias)
    got, _ = evaluate(kind, wide_table, wide_x, y, weight, wide[1:], bias)
    assert got == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("kind", "depth"), [*KINDS, *MONOMIAL])
@pytest.mark.parametrize("bias", [False, True])
def test_certain_weights_give_the_squared_error_of_one_network(kind, depth, bias):
    hidden, n_inputs = ((2, 2), 2) if (kind, depth) == ("monomial", 2) else ((6, 5)[:depth], 4)
    x, y, weight = random_data(30, n_inputs)
    b = n_weights(n_inputs, hidden, bias)
    w = np.random.default_rng(1).uniform(-1, 1, b)
    table = moment_table(np.ones((b, 1)), w[:, None], n_inputs, hidden, bias)
    f = run_network(w, x, hidden, bias)
    value, _ = evaluate(kind, table, x, y, weight, hidden, bias)
    assert value == pytest.approx(weight @ (f - y) ** 2, rel=1e-12)
    mean, variance = predict(kind, table, x, hidden, bias)
    np.testing.assert_allclose(mean, f, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(variance, 0)


@pytest.mark.parametrize(("kind", "depth"), [*KINDS, *MONOMIAL])
def test_nearly_certain_weights_have_a_small_positive_variance(kind, depth):
    hidden, n_inputs = ((2, 2), 2) if (kind, depth) == ("monomial", 2) else ((6, 5)[:depth], 4)
    x, _, _ = random_data(40, n_inputs)
    b = n_weights(n_inputs, hidden, True)
    w = np.random.default_rng(1).uniform(-1, 1, (b, 1))
    q = np.full((b, 2), 0.5)
    small, smaller = (
        predict(kind, moment_table(q, w + width * np.array([-1, 1]), n_inputs, hidden, True), x, hidden, True)[1]
        for width in (1e-5, 1e-6)
    )
    assert (smaller > 0).all()
    np.testing.assert_allclose(small, 100 * smaller, rtol=1e-6)


@pytest.mark.parametrize(("kind", "depth"), [*KINDS, ("monomial", 1)])
@pytest.mark.parametrize("n", [3, 1500])
def test_value_gradient_and_prediction_have_the_same_bits_for_any_level_and_number_of_threads(
    at_every_level, kind, depth, n
):
    hidden = (12,) if kind == "monomial" else (70, 5)[:depth]  # several chunks of terms
    x, y, weight = random_data(n, 5)
    table, _, _ = random_table(5, hidden, True)

    def run(n_threads):
        value, gradient = evaluate(kind, table, x, y, weight, hidden, True, n_threads)
        return np.array(value), gradient, *predict(kind, table, x, hidden, True, n_threads)

    expected = at_every_level(lambda: run(1))
    for n_threads in (2, 3, 4):
        for got, one in zip(run(n_threads), expected, strict=True):
            assert got.tobytes() == one.tobytes()


@pytest.mark.parametrize(
    ("kind", "hidden", "message"),
    [
        ("tensor", [2, 2], "'tensor' serves one hidden layer, got 2"),
        ("datum", [2, 2, 2], "'datum' serves one or two hidden layers, got 3"),
        ("other", [2], "must be 'tensor', 'datum' or 'monomial', got 'other'"),
    ],
)
def test_networks_that_an_engine_cannot_evaluate_are_refused(kind, hidden, message):
    with pytest.raises(ValueError, match=message):
        _core.NetworkEngine(kind, 1, hidden, False, np.zeros((1, 1)), np.zeros(1), None)
    with pytest.raises(ValueError, match=message):
        _core.network_cost(kind, 1, hidden, False, 1)


def test_a_tensor_beyond_memory_is_refused_before_allocation():
    with pytest.raises(ValueError, match="2 GiB"):
        _core.NetworkEngine("tensor", 300, [2], False, np.zeros((1, 300)), np.zeros(1), None)


# Coordinate ascent


def start_sweep(n_inputs, hidden, bias, per_weight, seed=0):
    rng = np.random.default_rng(seed)
    b, n_levels = n_weights(n_inputs, (hidden,), bias), 5
    levels = np.zeros((b if per_weight else 1, _core.LEVEL_PADDING))
    log_prior = np.full_like(levels, -np.inf)
    levels[:, :n_levels] = np.sort(rng.uniform(-1, 1, (len(levels), n_levels)), axis=1)
    log_prior[:, :n_levels] = np.log(rng.dirichlet(np.ones(n_levels), size=len(levels)))
    q = np.zeros((b, _core.LEVEL_PADDING))
    q[:, :n_levels] = rng.dirichlet(np.ones(n_levels), size=b)
    return levels, log_prior, q


def bound(r, q, log_prior, tau):
    """ELBO up to a constant: −½ τ R − KL."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return -0.5 * tau * r + np.where(q > 0, q * (log_prior - np.log(q)), 0).sum()


def sweep(x, y, weight, hidden, bias, *arguments):
    return _core.NetworkEngine("datum", x.shape[1], hidden, bias, x, y, weight).sweep(*arguments)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("per_weight", [False, True])
@pytest.mark.parametrize(("n", "n_inputs", "hidden"), [(1, 1, 1), (60, 3, 4), (37, 9, 2)])
def test_sweeps_never_lower_the_bound_and_return_the_squared_error(n, n_inputs, hidden, bias, per_weight):
    x, y, weight = random_data(n, n_inputs)
    levels, log_prior, q = start_sweep(n_inputs, hidden, bias, per_weight)
    tau, b = 3.0, len(q)

    def squared_error():
        table = moment_table(q, np.broadcast_to(levels, q.shape), n_inputs, (hidden,), bias)
        return evaluate("datum", table, x, y, weight, (hidden,), bias)[0]

    trace = [bound(squared_error(), q, log_prior, tau)]
    for _ in range(8):
        r = sweep(x, y, weight, [hidden], bias, levels, log_prior, tau, q)
        assert r == pytest.approx(squared_error(), rel=1e-11)
        np.testing.assert_allclose(q.sum(axis=1), 1.0, rtol=1e-14)
        trace.append(bound(r, q, log_prior, tau))
    assert b == len(q)
    assert trace[-1] > trace[0]
    assert np.diff(trace).min() >= -1e-9 * abs(trace[-1])


def test_a_visit_to_the_last_weight_is_its_exact_conditional():
    """The last weight is visited last: its q must be p exp(−½ τ R) with the others as the sweep left them."""
    x, y, weight = random_data(20, 2)
    for bias in (False, True):
        levels, log_prior, q = start_sweep(2, 2, bias, False)
        sweep(x, y, weight, [2], bias, levels, log_prior, 2.0, q)
        logits = np.full(_core.LEVEL_PADDING, -np.inf)
        for k in range(5):
            certain = q.copy()
            certain[-1] = np.eye(_core.LEVEL_PADDING)[k]
            table = moment_table(certain, np.broadcast_to(levels, q.shape), 2, (2,), bias)
            logits[k] = log_prior[0, k] - evaluate("datum", table, x, y, weight, (2,), bias)[0]
        expected = np.exp(logits - logits.max())
        np.testing.assert_allclose(q[-1], expected / expected.sum(), rtol=1e-10, atol=1e-14)


def test_a_visit_to_a_hidden_weight_is_its_exact_conditional():
    """One input, one unit, a certain output weight: a sweep visits the hidden weight and nothing else moves."""
    x, y, weight = random_data(20, 1)
    levels, log_prior, q = start_sweep(1, 1, False, True)
    log_prior[1] = np.where(np.arange(_core.LEVEL_PADDING) == 2, 0.0, -np.inf)
    q[1] = np.eye(_core.LEVEL_PADDING)[2]
    sweep(x, y, weight, [1], False, levels, log_prior, 2.0, q)
    f = levels[1, 2] * (levels[0][:, None] * x[:, 0]) ** 2
    posterior = np.exp(log_prior[0] - ((f - y) ** 2 @ weight))
    np.testing.assert_allclose(q[0], posterior / posterior.sum(), rtol=1e-12)


def test_sweeps_need_one_hidden_layer():
    levels, log_prior, _ = start_sweep(1, 1, False, False)
    q = np.zeros((3, _core.LEVEL_PADDING))
    with pytest.raises(ValueError, match="one hidden layer, got 2"):
        sweep(np.zeros((1, 1)), np.zeros(1), None, [1, 1], False, levels, log_prior, 1.0, q)


@pytest.mark.parametrize(("n_inputs", "hidden", "bias"), SMALL)
def test_moments_that_are_zero(n_inputs, hidden, bias):
    """Odd moments of a symmetric posterior vanish; products over the others must survive."""
    x, y, weight = random_data(7, n_inputs)
    _, q, levels = random_table(n_inputs, hidden, bias, scale=1.0, n_levels=2)
    levels = np.stack([levels[:, 0], -levels[:, 0]], axis=1)
    table = moment_table(np.full_like(q, 0.5), levels, n_inputs, hidden, bias)
    error, gradient = evaluate("monomial", table, x, y, weight, hidden, bias)
    exact = enumerate_network(x, y, hidden, bias, levels, np.full_like(q, 0.5), weight).squared_error
    assert error == pytest.approx(exact, rel=1e-12)
    engine = _core.NetworkEngine("monomial", n_inputs, list(hidden), bias, x, y, weight)
    expected = finite_difference_gradient(lambda table: engine.evaluate(table, None, 1), table)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("network", "terms"),
    [
        # One unit of two inputs: v² times the five monomials of degree four of two weights.
        ((2, [1], False), 5),
        # Two units: v_k² with a monomial of degree four each, v_1 v_2 with two of degree two.
        ((2, [2], False), 2 * 5 + 3 * 3),
        # Four inputs, three units, three units: no fewer monomials than these exist.
        ((4, [3, 3], False), 249930),
    ],
)
def test_equal_terms_are_merged(network, terms):
    engine = _core.NetworkEngine("monomial", *network, np.ones((1, network[0])), np.ones(1), None)
    assert engine.n_terms == terms


@pytest.mark.parametrize(
    ("hidden", "terms"), [([20, 20], r"7\.76e\+10"), ([300, 300], r"e\+\d+"), ([4] * 5, r"2\.85e\+59")]
)
def test_networks_that_are_too_large_are_refused_with_their_size(hidden, terms):
    with pytest.raises(ValueError, match=rf"has up to .*{terms} terms, .* GiB; at most 1.34e\+08 products of terms"):
        _core.NetworkEngine("monomial", 4, hidden, False, np.ones((1, 4)), np.ones(1), None)


def test_arrays_of_another_shape_are_refused():
    x, y, _ = random_data(7, 2)
    with pytest.raises(ValueError, match=r"table must have shape \(30\)"):
        _core.NetworkEngine("monomial", 2, [2], True, x, y, None).evaluate(np.zeros(3), None, 1)
    with pytest.raises(ValueError, match=r"x must have shape \(7, 2\)"):
        _core.NetworkEngine("monomial", 2, [2], True, x[:, :1].copy(), y, None)
