"""The reference engine of quadratic networks against enumeration of the hypothesis space."""

import numpy as np
import pytest

from pydirect import _core
from pydirect.distributions.levels import pad_levels
from pydirect.testing import enumerate_network, finite_difference_gradient

NETWORKS = [
    (2, [3], False),
    (2, [3], True),
    (1, [2], True),
    (2, [2, 2], False),
    (1, [2, 2], True),
    (2, [1, 1, 1], True),
    (1, [1, 2, 2], False),
    (1, [2, 1, 2], True),
]


class Case:
    """A random network on random rows, with the moment table of a random posterior."""

    def __init__(self, n_inputs, hidden, bias, *, n_levels=2, n_rows=7, seed=0, weighted=True):
        rng = np.random.default_rng(seed)
        self.network = n_inputs, hidden, bias
        fan_in, fan_out = [n_inputs, *hidden], [*hidden, 1]
        self.n_weights = sum(o * (i + bias) for i, o in zip(fan_in, fan_out, strict=True))
        self.levels = rng.uniform(-1.5, 1.5, (self.n_weights, n_levels))
        self.q = rng.dirichlet(np.ones(n_levels), size=self.n_weights)
        self.x, self.y = rng.standard_normal((n_rows, n_inputs)), rng.standard_normal(n_rows)
        self.weight = rng.uniform(0.2, 3.0, n_rows) if weighted else None

    @property
    def engine(self):
        return _core.NetworkEngine("monomial", *self.network, self.x, self.y, self.weight)

    @property
    def table(self):
        levels, log_prior = pad_levels(self.levels, np.zeros_like(self.levels))
        q = np.pad(self.q, ((0, 0), (0, levels.shape[1] - self.q.shape[1])))
        return _core.NetworkMoments(*self.network, levels, log_prior, 1).from_probabilities(q)

    @property
    def expected(self):
        return enumerate_network(self.x, self.y, self.network[1], self.network[2], self.levels, self.q, self.weight)

    def evaluate(self, engine, n_threads=1):
        gradient = np.full_like(self.table, np.nan)
        return engine.evaluate(self.table, gradient, n_threads), gradient

    def predict(self, engine, x, n_threads=1):
        mean, variance = np.full((2, len(x)), np.nan)
        engine.predict(self.table, x, mean, variance, n_threads)
        return mean, variance


@pytest.fixture(params=NETWORKS, ids=str)
def network(request):
    return request.param


@pytest.mark.parametrize("weighted", [True, False])
def test_squared_error_is_that_of_enumeration(network, weighted):
    case = Case(*network, weighted=weighted)
    value = case.engine.evaluate(case.table, None, 1)
    assert value == pytest.approx(case.expected.squared_error, rel=1e-12)
    assert case.evaluate(case.engine)[0] == value, "a gradient changes nothing"


def test_predictions_are_those_of_enumeration(network):
    case = Case(*network)
    mean, variance = case.predict(case.engine, case.x)
    expected = case.expected
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-12, atol=1e-12 * np.abs(expected.mean).max())
    second = expected.variance + expected.mean**2
    np.testing.assert_allclose(variance, expected.variance, rtol=1e-12, atol=1e-12 * second.max())
    alone = np.empty(len(case.x))
    case.engine.predict(case.table, case.x, alone, None, 1)
    np.testing.assert_array_equal(alone, mean)


@pytest.mark.parametrize("width", [1e-2, 1e-4, 1e-6, 1e-8])
def test_variances_of_nearly_certain_weights_keep_their_digits(width):
    """Against the engine by rows, which never forms E f²."""
    for network in NETWORKS[:5]:
        case = Case(*network)
        case.levels[:, 1] = case.levels[:, 0] + width
        mean, variance = case.predict(case.engine, case.x)
        other = _core.NetworkEngine("datum", *network, case.x, case.y, None)
        expected_mean, expected = case.predict(other, case.x)
        np.testing.assert_allclose(mean, expected_mean, rtol=1e-12, atol=1e-12 * np.abs(expected_mean).max())
        np.testing.assert_allclose(variance, expected, rtol=1e-9, atol=1e-11 * expected.max())


def test_certain_weights_have_no_variance(network):
    case = Case(*network)
    case.q[:] = [1.0, 0.0]
    np.testing.assert_array_equal(case.predict(case.engine, case.x)[1], 0.0)


def test_predictions_do_not_depend_on_the_data_of_the_engine(network):
    case = Case(*network)
    rows = np.random.default_rng(9).standard_normal((300, network[0]))
    engine = _core.NetworkEngine("monomial", *network, np.zeros((1, network[0])), np.zeros(1), None)
    for got, expected in zip(case.predict(engine, rows), case.predict(case.engine, rows), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_gradient_is_that_of_finite_differences(network):
    case = Case(*network)
    engine = case.engine
    _, gradient = case.evaluate(engine)
    expected = finite_difference_gradient(lambda table: engine.evaluate(table, None, 1), case.table)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())


def test_certain_weights_give_the_squared_error_of_their_network(network):
    case = Case(*network)
    case.q[:] = [1.0, 0.0]
    error, gradient = case.evaluate(case.engine)
    assert error == pytest.approx(case.expected.squared_error, rel=1e-12)
    assert np.isfinite(gradient).all()


def test_moments_that_are_zero(network):
    """Odd moments of a symmetric posterior vanish; products over the others must survive."""
    case = Case(*network)
    case.levels[:, 1] = -case.levels[:, 0]
    case.q[:] = 0.5
    engine = case.engine
    error, gradient = case.evaluate(engine)
    assert error == pytest.approx(case.expected.squared_error, rel=1e-12)
    expected = finite_difference_gradient(lambda table: engine.evaluate(table, None, 1), case.table)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())


def test_the_gradient_reaches_probabilities(network):
    """Through the moment stage: ∂R/∂q along the simplex, from the definition of R."""
    case = Case(*network)
    levels, log_prior = pad_levels(case.levels, np.zeros_like(case.levels))
    stage = _core.NetworkMoments(*network, levels, log_prior, 1)
    stage.from_probabilities(np.pad(case.q, ((0, 0), (0, levels.shape[1] - 2))))
    slopes = stage.probability_slopes(case.evaluate(case.engine)[1])
    for j in range(0, case.n_weights, 3):
        errors = []
        for k in range(2):  # R is linear in q_j
            moved = case.q.copy()
            moved[j] = np.eye(2)[k]
            args = (case.x, case.y, network[1], network[2], case.levels, moved, case.weight)
            errors.append(enumerate_network(*args).squared_error)
        scale = max(map(abs, errors))
        assert slopes[j, 1] - slopes[j, 0] == pytest.approx(errors[1] - errors[0], rel=1e-9, abs=1e-11 * scale)


def test_more_levels_and_many_rows():
    case = Case(1, [2], True, n_levels=4, n_rows=300)
    error, _ = case.evaluate(case.engine)
    assert error == pytest.approx(case.expected.squared_error, rel=1e-12)


def test_sample_weights_count_repetitions():
    case = Case(2, [2, 2], True, n_rows=4)
    case.weight = np.array([1.0, 3.0, 0.0, 2.0])
    repeated = np.repeat(np.arange(4), case.weight.astype(int))
    other = _core.NetworkEngine("monomial", *case.network, case.x[repeated], case.y[repeated], None)
    for got, expected in zip(case.evaluate(case.engine), case.evaluate(other), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())


def test_bits_are_the_same_at_every_level_and_for_any_number_of_threads(at_every_level):
    case = Case(5, [12], True, n_rows=300)
    table, engine = case.table, case.engine
    assert engine.n_terms > 16384, "several chunks"
    gradient = np.empty_like(table)

    def evaluate(n_threads):
        value = engine.evaluate(table, gradient, n_threads)
        mean, variance = np.empty((2, 300))
        engine.predict(table, case.x, mean, variance, n_threads)
        return np.array(value), gradient.copy(), mean, variance

    one = at_every_level(lambda: evaluate(1))
    for n_threads in (2, 3):
        for got, expected in zip(evaluate(n_threads), one, strict=True):
            np.testing.assert_array_equal(got, expected)


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


def test_sizes_beyond_floating_point_are_refused():
    with pytest.raises(ValueError, match=r"up to more than 1e300 terms, more than 1e300 GiB; at most") as refusal:
        _core.NetworkEngine("monomial", 4, [4] * 12, False, np.ones((1, 4)), np.ones(1), None)
    assert "inf" not in str(refusal.value)


def test_arrays_of_another_shape_are_refused():
    case = Case(2, [2], True)
    engine = case.engine
    with pytest.raises(ValueError, match=r"table must have shape \(30\)"):
        engine.evaluate(np.zeros(3), None, 1)
    with pytest.raises(ValueError, match=r"x must have shape \(7, 2\)"):
        _core.NetworkEngine("monomial", 2, [2], True, case.x[:, :1].copy(), case.y, None)
