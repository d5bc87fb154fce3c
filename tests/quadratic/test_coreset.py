"""Exact coresets: the same squared error as all of the data, for every network, from few of the rows."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from pydirect.quadratic.coreset import MAX_MOMENTS, NetworkCoreset, n_moments, recombining_factor


def random_network(rng, n_inputs, hidden, bias):
    fan_in, fan_out = [n_inputs, *hidden], [*hidden, 1]
    return [rng.uniform(-1, 1, (o, i + bias)) for o, i in zip(fan_out, fan_in, strict=True)]


def output(network, x, bias):
    """f(x), by definition; also for exact numbers."""
    a = x
    for k, weights in enumerate(network):
        a = np.column_stack([a, np.ones(len(a), dtype=int)]) if bias else a
        a = a @ weights.T
        a = a if k + 1 == len(network) else a**2
    return a[:, 0]


def relative_error(data, coreset, n_networks=20, seed=0):
    """Largest |R' − R| / R over random networks, R by rows."""
    x, y, weight = data
    rng = np.random.default_rng(seed)
    scale = 1 / np.maximum(np.abs(x).max(axis=0), 1e-300)
    errors = []
    for _ in range(n_networks):
        network = random_network(rng, x.shape[1], [3] * coreset.depth, coreset.bias)
        network[0][:, : x.shape[1]] *= scale
        full = weight @ (y - output(network, x, coreset.bias)) ** 2
        small = coreset.weight @ (coreset.y - output(network, coreset.x, coreset.bias)) ** 2
        errors.append(abs(small - full) / full)
    return max(errors)


def smooth_data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    return x, np.sin(2 * x[:, 0]) + x[:, -1] ** 2 + 0.1 * rng.standard_normal(n), np.ones(n)


def are_rows_of(coreset, x, y):
    rows = {tuple(row) for row in np.column_stack([x, y]).tolist()}
    return all(tuple(row) in rows for row in np.column_stack([coreset.x, coreset.y]).tolist())


# Size


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("n_inputs", [1, 2, 3])
def test_n_moments_counts_monomials(n_inputs, depth, bias):
    def count(degree):
        exponents = np.indices((degree + 1,) * n_inputs).reshape(n_inputs, -1).sum(axis=0)
        return int(((exponents <= degree) if bias else (exponents == degree)).sum())

    total_weight = 0 if bias else 1
    per_output = count(2**depth) + 1
    assert n_moments(n_inputs, depth, bias) == count(2 ** (depth + 1)) + total_weight + per_output
    assert n_moments(n_inputs, depth, bias, 3) == count(2 ** (depth + 1)) + total_weight + 3 * per_output


@pytest.mark.parametrize(
    ("d", "depth", "bias"), [(1, 1, True), (2, 1, False), (3, 2, True), (2, 2, False), (1, 3, True)]
)
def test_squared_error_is_that_of_all_rows_for_every_network(d, depth, bias):
    data = smooth_data(2_000, d)
    coreset = NetworkCoreset.from_data(*data[:2], depth, bias)
    assert len(coreset.x) <= n_moments(d, depth, bias)
    assert (coreset.weight > 0).all()
    assert coreset.n_samples == 2_000
    assert coreset.weight.sum() == pytest.approx(2_000, rel=1e-14)
    assert are_rows_of(coreset, *data[:2])
    assert relative_error(data, coreset) < 1e-12


def monomials(x, y, degree):
    """x^α for |α| ≤ 2·degree, y x^β for |β| ≤ degree, and y², by brute force."""
    exponents = np.indices((2 * degree + 1,) * x.shape[1]).reshape(x.shape[1], -1).T
    exponents = exponents[exponents.sum(axis=1) <= 2 * degree]
    powers = np.stack([(x**e).prod(axis=1) for e in exponents], axis=1)
    return np.column_stack([powers, y[:, None] * powers[:, exponents.sum(axis=1) <= degree], y**2])


@pytest.mark.parametrize("depth", [1, 2])
def test_whitened_moments_are_those_of_the_data(depth):
    """In the basis that is orthonormal on the data: no direction is less exact than another."""
    x, y, _ = smooth_data(3_000, 2)
    x, y = x / np.abs(x).max(axis=0), y / np.abs(y).max()
    coreset = NetworkCoreset.from_data(x, y, depth)
    whitened, factor = np.linalg.qr(monomials(x, y, 2**depth) / np.sqrt(len(x)))
    everything = whitened.sum(axis=0) / np.sqrt(len(x))
    kept = np.linalg.solve(factor.T, (coreset.weight / len(x)) @ monomials(coreset.x, coreset.y, 2**depth))
    np.testing.assert_allclose(kept, everything, rtol=0, atol=1e-12)


def test_squared_error_of_discrete_weights_agrees_in_expectation():
    """E R under a factorised q, every network of the hypothesis space listed."""
    x, y, weight = smooth_data(500, 1)
    coreset = NetworkCoreset.from_data(x, y, 1)
    levels = np.array([-1.0, 0.25, 0.75])
    q = np.random.default_rng(3).dirichlet(np.ones(3), size=4)
    choices = np.indices((3,) * 4).reshape(4, -1).T
    probability = q[np.arange(4), choices].prod(axis=1)

    def expectation(x, y, weight):
        networks = ([levels[c[:2]][None], levels[c[2:]][None]] for c in choices)
        return probability @ [weight @ (y - output(network, x, True)) ** 2 for network in networks]

    full, small = expectation(x, y, weight), expectation(coreset.x, coreset.y, coreset.weight)
    assert small == pytest.approx(full, rel=1e-13)


# Weights and outputs


def test_sample_weights_count_repetitions():
    x, y, _ = smooth_data(400, 2)
    times = np.random.default_rng(1).integers(0, 4, 400)
    coreset = NetworkCoreset.from_data(x, y, 1, sample_weight=times)
    assert coreset.n_samples == times.sum()
    assert are_rows_of(coreset, x[times > 0], y[times > 0])
    assert relative_error((x, y, times.astype(float)), coreset) < 1e-13
    repeated = (np.repeat(x, times, axis=0), np.repeat(y, times), np.ones(times.sum()))
    assert relative_error(repeated, coreset) < 1e-13


def test_weights_of_many_magnitudes():
    x, y, _ = smooth_data(3_000, 3)
    weight = 10.0 ** np.random.default_rng(1).uniform(-12, 3, 3_000)
    coreset = NetworkCoreset.from_data(x, y, 1, sample_weight=weight)
    assert (coreset.weight > 0).all()
    assert relative_error((x, y, weight), coreset) < 1e-12


# Degenerate data


def degenerate_inputs():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1_000, 3))
    yield "constant column", np.column_stack([x[:, :2], np.full(1_000, 0.1)]), 61
    yield "collinear columns", np.column_stack([x[:, :2], 2 * x[:, 1] + 3]), 61
    yield "nearly collinear columns", np.column_stack([x[:, :2], 2 * x[:, 1] + 3 + 1e-6 * x[:, 2]]), 201
    yield "nothing", np.zeros((1_000, 3)), 15
    yield "one row again and again", np.tile(x[:1], (1_000, 1)), 15
    yield "few distinct rows", np.repeat(x[:5], 200, axis=0), 201
    yield "signs", np.sign(x), 201
    yield "a lattice", np.round(x), 201
    yield "sorted columns", np.sort(x, axis=0), 201
    yield "far from zero", x + 1_000, 201
    yield "units apart", x * [1e-8, 1.0, 1e6], 201
    yield "heavy tails", rng.standard_cauchy((1_000, 3)), 201


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("x", "most"), [case[1:] for case in degenerate_inputs()], ids=[c[0] for c in degenerate_inputs()]
)
def test_degenerate_inputs(x, most, bias, depth):
    y = np.cos(np.arange(1_000.0))
    coreset = NetworkCoreset.from_data(x, y, depth, bias)
    limit = n_moments(3, depth, bias)
    assert len(coreset.x) <= (min(limit, most) if bias else limit)
    assert (coreset.weight > 0).all()
    assert coreset.weight.sum() == pytest.approx(1_000, rel=1e-12)
    assert relative_error((x, y, np.ones(1_000)), coreset) < 1e-11


@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.unperturbed
def test_rows_no_more_than_moments_are_kept_as_they_are(n):
    x, y, _ = smooth_data(n, 1)
    coreset = NetworkCoreset.from_data(x, y, 1)
    np.testing.assert_array_equal(coreset.x, x)
    np.testing.assert_array_equal(coreset.y, y)
    np.testing.assert_array_equal(coreset.weight, 1)


# Mergeable


def test_updates_represent_all_data_seen():
    x, y, weight = smooth_data(3_000, 2)
    coreset = NetworkCoreset.from_data(x[:1000], y[:1000], 1)
    for begin in (1000, 1003, 2000):
        end = {1000: 1003, 1003: 2000, 2000: 3000}[begin]
        coreset = coreset.update(x[begin:end], y[begin:end])
    assert coreset.n_samples == 3_000
    assert len(coreset.x) <= n_moments(2, 1)
    assert relative_error((x, y, weight), coreset) < 1e-13


# Doors


def test_too_many_moments_are_refused():
    x = np.random.default_rng(0).standard_normal((n_moments(14, 1) + 1, 14))
    assert n_moments(14, 1) > MAX_MOMENTS
    with pytest.raises(ValueError, match=rf"14 inputs must keep {n_moments(14, 1)} moments"):
        NetworkCoreset.from_data(x, x[:, 0], 1)
    constant = np.zeros_like(x)
    assert len(NetworkCoreset.from_data(constant, x[:, 0], 1).x) <= 9, "what counts is how many inputs vary"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones(5)}, "x must have shape"),
        ({"y": np.ones(4)}, "y must have shape"),
        ({"y": np.full(5, np.nan)}, "y must be finite"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"sample_weight": -np.ones(5)}, "sample_weight must not be negative"),
    ],
)
def test_input_is_validated(change, message):
    with pytest.raises(ValueError, match=message):
        NetworkCoreset.from_data(**({"x": np.ones((5, 2)), "y": np.ones(5), "depth": 1} | change))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60), st.booleans(), st.integers(1, 2))
def test_merged_coresets_are_the_coreset_of_both(seed, n_first, n_second, bias, depth):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(-3, 4, (n_first + n_second, 2)) / 3, rng.standard_normal(n_first + n_second)
    weight = rng.exponential(size=len(x))
    first, second = slice(0, n_first), slice(n_first, None)
    parts = [NetworkCoreset.from_data(x[s], y[s], depth, bias, weight[s]) for s in (first, second)]
    merged, both = parts[0].merge(parts[1]), NetworkCoreset.from_data(x, y, depth, bias, weight)
    assert len(merged.x) <= n_moments(2, depth, bias)
    assert merged.n_samples == pytest.approx(both.n_samples, rel=1e-14)
    for coreset in (merged, both):
        assert relative_error((x, y, weight), coreset, n_networks=5) < 1e-11


@st.composite
def weighted_rows(draw):
    """Integer features, hence duplicates, zeros and dependent columns, with weights down to zero."""
    n, d = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    features = draw(arrays(float, (n, d), elements=st.integers(-4, 4)))
    return features, draw(arrays(float, n, elements=st.floats(0.0, 10.0, allow_subnormal=False)))


def recombine(features, weights):
    out, used = np.zeros(len(weights)), np.flatnonzero(weights)
    if features[used].any():
        columns = features[used].T * weights[used]
        out[used] = weights[used] * recombining_factor(columns)
    return out


@given(weighted_rows())
def test_recombination_keeps_every_sum_with_few_rows(problem):
    features, weights = problem
    got = recombine(features, weights)
    assert (got >= 0).all()
    assert (got > 0).sum() <= features.shape[1]
    assert not got[weights == 0].any()
    scale = np.abs(features).T @ weights
    np.testing.assert_allclose(features.T @ got, features.T @ weights, rtol=1e-11, atol=1e-12 * (1e-300 + scale.max()))
