import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from pydirect._threads import threads
from pydirect.features.kernel import linear_inputs
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.nearest_evidence import NearestEvidence
from pydirect.features.rows import distinct_rows
from pydirect.features.search import KernelRows, search_kernel


def make(n=23, d=3, n_outputs=1, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    y = np.sin(x[:, :1]) + 0.2 * rng.standard_normal((n, n_outputs))
    return x, y, rng.uniform(0.5, 3.0, n) if weighted else np.ones(n)


def categories(n, n_numbers, n_categories, seed=0):
    """Standardised numbers, then columns of 0 and 1 of two columns of categories, none of which some rows have."""
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((n, n_numbers))]
    for k in (n_categories, 5):
        of_rows = np.eye(k)[rng.integers(k, size=n)]
        of_rows[rng.random(n) < 0.05] = -0.2
        parts.append((of_rows - 1 / k) / 0.9)
    return np.hstack(parts)


def part_of_axes(p, difference):
    t = [rate * np.abs(difference[..., j]) for j, rate in enumerate(p.product_rates) if rate > 0]
    if p.product_order == 2:
        values = [(1 + s + s * s / 3) * np.exp(-s) for s in np.sqrt(5) * np.array(t)]
        return p.product_amplitude * np.mean([a * b for a, b in itertools.combinations(values, 2)], axis=0)
    return p.product_amplitude * np.exp(-sum(t))


def covariance_by_hand(p, a, b):
    """The documented sum, in the precision of a."""
    difference = a[:, None, :] - b[None, :, :]
    squares = ((difference / p.length_scales) ** 2).sum(axis=2)
    t = np.sqrt(round(2 * p.smoothness) * squares) if p.smoothness else 0.5 * squares
    radial = np.exp(-t) * {0: 1.0, 0.5: 1.0, 1.5: 1 + t, 2.5: 1 + t + t * t / 3}[p.smoothness]
    linear = p.amplitudes[2] * linear_inputs(a, p.n_linear) @ linear_inputs(b, p.n_linear).T
    rough = p.isotropic_amplitude * np.exp(-np.sqrt((difference**2).sum(axis=2)) / p.isotropic_length_scale)
    return 1.0 + p.ard_amplitude * radial + linear + (part_of_axes(p, difference) if p.product_amplitude else rough)


def negative_log_prior(objective, theta):
    z = (theta - objective.mean) / objective.sd
    return (np.sqrt(1 + z**2) - 1).sum()


def random_theta(objective, seed):
    return objective.start + np.random.default_rng(seed).uniform(-1, 1, objective.start.size)


# The second part of the kernel: isotropic, a product over axes, or pairs of them.
PARTS = pytest.mark.parametrize("order", [None, 0, 2])


def test_weights_beyond_copies_are_precisions():
    x, y, weight = make(23, 3, weighted=True)
    copies = np.random.default_rng(1).uniform(0.5, 2.0, 23)
    objective = MarginalLikelihood(x, y, weight, 2, copies=copies)
    theta = random_theta(objective, 0)
    p = objective.unpack(theta)
    # N(y; f, σ²/ω)^k for a row of k copies with precision ω, but for what does not depend on θ
    covariance = covariance_by_hand(p, x, x) + np.diag(p.noise_variance / weight)
    expected = -multivariate_normal(cov=covariance).logpdf(y[:, 0]) + 0.5 * np.log(copies).sum()
    expected -= 0.5 * (1 - copies).sum() * np.log(2 * np.pi * p.noise_variance)
    assert objective(theta)[0] == pytest.approx(expected + negative_log_prior(objective, theta), rel=1e-9)
    near = NearestEvidence(x, y, weight, np.arange(23), 22, objective, copies=copies)
    near.update(theta)
    near.trend[:] = 0.0
    without = near(theta)[0] - negative_log_prior(objective, theta)
    ones = NearestEvidence(x, y, weight, np.arange(23), 22, objective, copies=np.ones(23))
    ones.update(theta)
    ones.trend[:] = 0.0
    spare = (1 - copies).sum() * np.log(2 * np.pi * p.noise_variance) - np.log(copies).sum()
    assert without == pytest.approx(ones(theta)[0] - negative_log_prior(objective, theta) - 0.5 * spare, rel=1e-9)


def objective_of(n, n_linear=2, order=None, **rows):
    objective = MarginalLikelihood(*make(n, 4, **rows), n_linear)
    return objective if order is None else objective.with_axes(np.array([0, 2, 3]), order)


def value_by_hand(objective, theta):
    p, x, y, weight = objective.unpack(theta), objective.x, objective.y, objective.weight
    k = covariance_by_hand(p, x, x) + np.diag(p.noise_variance / weight)
    expected = -sum(multivariate_normal(cov=k).logpdf(column) for column in y.T)
    # N(y; f, σ²)^ω is N(y; f, σ²/ω) but for a factor.
    powers = 0.5 * (np.log(weight) - (1 - weight) * np.log(2 * np.pi * p.noise_variance))
    return expected + y.shape[1] * powers.sum() + negative_log_prior(objective, theta)


@PARTS
@pytest.mark.parametrize(("n_outputs", "weighted", "n_linear"), [(1, False, 1), (1, True, 3), (3, True, 1)])
@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
def test_value_is_the_log_density_of_a_gaussian_with_the_priors(n_outputs, weighted, n_linear, order, smoothness):
    objective = objective_of(23, n_linear, order=order, n_outputs=n_outputs, weighted=weighted).at(smoothness)
    theta = random_theta(objective, round(2 * smoothness))
    p = objective.unpack(theta)
    assert objective(theta)[0] == pytest.approx(value_by_hand(objective, theta), rel=1e-9)
    assert len(objective.bounds) == len(objective.mean) == len(objective.sd) == len(objective.start) == len(theta)
    assert order is None or (p.isotropic_amplitude == 0.0 == p.product_rates[1] and p.product_amplitude > 0)


@PARTS
@pytest.mark.parametrize("n", [1, 2, 7, 9, 33, 101, 230])
def test_value_of_any_number_of_rows(at_every_level, n, order):
    objective = objective_of(n, order=order, n_outputs=2, weighted=True)
    theta = random_theta(objective, n)
    assert at_every_level(lambda: objective(theta)[0]) == pytest.approx(value_by_hand(objective, theta), rel=1e-9)


@PARTS
@pytest.mark.parametrize(("n_outputs", "weighted"), [(1, False), (2, True)])
@pytest.mark.parametrize("n", [1, 8, 17, 101])
def test_gradient_is_that_of_the_value(isa_level, n_outputs, weighted, n, order):
    for seed, smoothness in enumerate([0, 0.5, 1.5, 2.5]):
        objective = objective_of(n, order=order, n_outputs=n_outputs, weighted=weighted, seed=1).at(smoothness)
        theta = random_theta(objective, seed)
        _, gradient = objective(theta)
        steps = 1e-5 * np.eye(theta.size)
        numerical = [(objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5 for step in steps]
        np.testing.assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-6)


@PARTS
def test_bounds_of_amplitudes_are_theirs(order):
    objective = objective_of(9, order=order)
    objective.largest_log_amplitude = 3.0
    assert [k for k, (_, high) in enumerate(objective.bounds) if high == 3.0] == [1, 6, len(objective.start) - 1]


def test_tied_inputs_share_a_length_scale():
    x, y, weight = make(17, seed=1)
    objective = MarginalLikelihood(x, y, weight, 2, np.array([0, 0, 1]))
    theta = random_theta(objective, 0)
    assert theta.size == 7
    scales = objective.unpack(theta).length_scales
    np.testing.assert_allclose(scales, np.exp(theta[[2, 2, 3]]))
    free = MarginalLikelihood(x, y, weight, 2)
    free.sd, objective.sd = np.full(8, np.inf), np.full(7, np.inf)  # no prior
    untied = free(np.r_[theta[:3], theta[2], theta[3:]])
    value, gradient = objective(theta)
    assert value == untied[0]
    expected = np.r_[untied[1][:2], untied[1][2] + untied[1][3], untied[1][4:]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)


@PARTS
def test_value_and_gradient_have_the_same_bits_for_any_number_of_threads_and_level(at_every_level, order):
    def run(n_threads):
        with threads(n_threads):
            objective = objective_of(400, order=order)
        value, gradient = objective(objective.start)
        return np.append(gradient, value)

    assert len({run(n).tobytes() for n in (1, 2, 3)}) == 1
    at_every_level(lambda: run(1))


def hyperparameters(x, y, weight, n_linear, rng, **options):
    return search_kernel(KernelRows(*distinct_rows(x, y, weight), n_linear), rng, **options)[0]


@pytest.mark.parametrize("counts", [np.full(30, 2), np.repeat([3, 1], 15), np.arange(30) % 3])
def test_weights_are_repetitions_and_copies_alone_change_nothing(counts):
    x, y, _ = make(30, 2)
    weighted = hyperparameters(x, y, counts.astype(float), 2, np.random.default_rng(0))
    given = np.repeat(np.arange(30), counts)
    others = [hyperparameters(x[given], y[given], None, 2, np.random.default_rng(0))]
    if (counts == 2).all():
        others += [hyperparameters(x, y, weight, 2, np.random.default_rng(0)) for weight in (None, np.full(30, 7.0))]
    for other in others:
        np.testing.assert_allclose(other.length_scales, weighted.length_scales, rtol=1e-9)
        assert other.noise_variance == pytest.approx(weighted.noise_variance, rel=1e-9)


def test_a_matrix_that_cannot_be_factorised_is_a_bad_point_and_no_error():
    x = np.zeros((4, 1))
    value, gradient = MarginalLikelihood(x, np.ones((4, 1)), np.ones(4), 1)(np.r_[-80.0, np.zeros(5)])
    assert value == 1e10 and not gradient.any()


def test_a_column_that_matters_in_a_straight_line_is_left_to_the_linear_part():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((150, 3))
    y = x @ [[1.0], [-1.0], [0.5]] + 0.2 * rng.standard_normal((150, 1))
    p = hyperparameters(x, y / y.std(), None, 3, np.random.default_rng(0))
    assert p.linear_amplitude > 3 * p.isotropic_amplitude
    assert p.length_scales.min() > 2
    assert p.noise_variance == pytest.approx(0.04 / y.var(), rel=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 600])
def test_the_search_improves_on_its_start_and_is_deterministic(n):
    x, y, weight = make(n, 3, 2)
    p = hyperparameters(x, y, None, 3, np.random.default_rng(7), max_rows=300)
    again = hyperparameters(x, y, weight, 3, np.random.default_rng(7), max_rows=300)
    assert repr(p) == repr(again)
    objective = MarginalLikelihood(x, y, weight, 3).at(p.smoothness)
    theta = objective.theta_of(p)
    np.testing.assert_allclose(objective.unpack(theta).amplitudes, p.amplitudes)
    value, _ = objective(theta)
    assert value < objective(objective.start)[0] - 1
    if n == 60:
        best = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=objective.bounds)
        assert value < best.fun + 0.1
    assert 1 < p.n_evaluations < 250
