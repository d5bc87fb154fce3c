import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.rows import distinct_rows
from pydirect.features.search import KernelRows, search_kernel


def make(n=23, d=3, n_outputs=1, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    y = np.sin(x[:, :1]) + 0.2 * rng.standard_normal((n, n_outputs))
    return x, y, rng.uniform(0.5, 3.0, n) if weighted else np.ones(n)


def covariance_by_hand(p, a, b):
    difference = a[:, None, :] - b[None, :, :]
    t = np.sqrt(2 * p.smoothness * ((difference / p.length_scales) ** 2).sum(axis=2))
    matern = np.exp(-t) * {0.5: 1.0, 1.5: 1 + t, 2.5: 1 + t + t**2 / 3}[p.smoothness]
    linear = p.linear_amplitude / max(p.n_linear, 1) * a[:, : p.n_linear] @ b[:, : p.n_linear].T
    rough = np.exp(-np.sqrt((difference**2).sum(axis=2)) / p.isotropic_length_scale)
    return 1.0 + p.ard_amplitude * matern + p.isotropic_amplitude * rough + linear


def negative_log_prior(objective, theta):
    z = (theta - objective.mean) / objective.sd
    return (np.sqrt(1 + z**2) - 1).sum()


def random_theta(objective, seed):
    return objective.start + np.random.default_rng(seed).uniform(-1, 1, objective.start.size)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_linear", [1, 3])
def test_value_is_the_log_density_of_a_gaussian_with_the_priors(n_outputs, weighted, n_linear):
    x, y, weight = make(n_outputs=n_outputs, weighted=weighted)
    for seed, smoothness in enumerate([0.5, 1.5, 2.5]):
        objective = MarginalLikelihood(x, y, weight, n_linear, 1).at(smoothness)
        theta = random_theta(objective, seed)
        p = objective.unpack(theta)
        k = covariance_by_hand(p, x, x) + np.diag(p.noise_variance / weight)
        expected = -sum(multivariate_normal(cov=k).logpdf(column) for column in y.T)
        # N(y; f, σ²)^ω is N(y; f, σ²/ω) but for a factor.
        powers = 0.5 * (np.log(weight) - (1 - weight) * np.log(2 * np.pi * p.noise_variance))
        expected += y.shape[1] * powers.sum()
        value, _ = objective(theta)
        assert value == pytest.approx(expected + negative_log_prior(objective, theta), rel=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [8, 17])
def test_gradient_is_that_of_the_value(n_outputs, weighted, n):
    x, y, weight = make(n, n_outputs=n_outputs, weighted=weighted, seed=1)
    for seed, smoothness in enumerate([0.5, 1.5, 2.5]):
        objective = MarginalLikelihood(x, y, weight, 2, 1).at(smoothness)
        theta = random_theta(objective, seed)
        _, gradient = objective(theta)
        step = 1e-5
        numerical = [
            (objective(theta + step * e)[0] - objective(theta - step * e)[0]) / (2 * step) for e in np.eye(theta.size)
        ]
        np.testing.assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-6)


def test_tied_inputs_share_a_length_scale():
    x, y, weight = make(17, seed=1)
    objective = MarginalLikelihood(x, y, weight, 2, 1, np.array([0, 0, 1]))
    theta = random_theta(objective, 0)
    assert theta.size == 7
    scales = objective.unpack(theta).length_scales
    np.testing.assert_allclose(scales, np.exp(theta[[2, 2, 3]]))
    free = MarginalLikelihood(x, y, weight, 2, 1)
    free.penalty = objective.penalty = lambda theta: (0.0, np.zeros(theta.size))
    untied = free(np.r_[theta[:3], theta[2], theta[3:]])
    value, gradient = objective(theta)
    assert value == untied[0]
    expected = np.r_[untied[1][:2], untied[1][2] + untied[1][3], untied[1][4:]]
    np.testing.assert_allclose(gradient, expected, rtol=1e-9)


def test_value_and_gradient_have_the_same_bits_for_any_number_of_threads():
    x, y, weight = make(150, 5)
    results = []
    for n_threads in (1, 2, 3):
        objective = MarginalLikelihood(x, y, weight, 5, n_threads)
        value, gradient = objective(objective.start)
        results.append((value, gradient.tobytes()))
    assert len(set(results)) == 1


def hyperparameters(x, y, weight, n_linear, rng, **options):
    return search_kernel(KernelRows(*distinct_rows(x, y, weight), n_linear), rng, **options)[0]


def test_copies_of_rows_change_nothing_and_weights_are_relative():
    x, y, _ = make(30, 2, 1, 0)
    n = len(x)
    once = hyperparameters(x, y, None, 2, np.random.default_rng(0))
    twice = hyperparameters(np.tile(x, (2, 1)), np.tile(y, (2, 1)), None, 2, np.random.default_rng(0))
    weighted = hyperparameters(x, y, np.full(n, 7.0), 2, np.random.default_rng(0))
    for other in (twice, weighted):
        np.testing.assert_allclose(other.length_scales, once.length_scales, rtol=1e-9)
        assert other.noise_variance == pytest.approx(once.noise_variance, rel=1e-9)
    some = np.r_[np.full(n // 2, 3.0), np.ones(n - n // 2)]
    copies = hyperparameters(
        np.repeat(x, some.astype(int), axis=0),
        np.repeat(y, some.astype(int), axis=0),
        None,
        2,
        np.random.default_rng(0),
    )
    assert copies.noise_variance == pytest.approx(
        hyperparameters(x, y, some, 2, np.random.default_rng(0)).noise_variance, rel=1e-9
    )


def test_a_matrix_that_cannot_be_factorised_is_a_bad_point_and_no_error():
    x = np.zeros((4, 1))
    value, gradient = MarginalLikelihood(x, np.ones((4, 1)), np.ones(4), 1, 1)(np.r_[-80.0, np.zeros(5)])
    assert value == 1e10 and not gradient.any()


@pytest.mark.slow
@pytest.mark.parametrize("n", [120, 700])
def test_the_column_that_matters_is_found(n):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n, 5))
    y = np.sin(3 * x[:, [2]]) + 0.1 * rng.standard_normal((n, 1))
    p = hyperparameters(x, y / y.std(), None, 5, np.random.default_rng(0))
    assert p.length_scales.argmin() == 2
    assert p.length_scales[2] < 0.35 * np.delete(p.length_scales, 2).min()
    assert p.noise_variance < 0.1


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
    objective = MarginalLikelihood(x, y, weight, 3, 1).at(p.smoothness)
    theta = np.log(
        np.r_[
            p.noise_variance,
            p.ard_amplitude,
            p.length_scales,
            p.isotropic_amplitude,
            p.isotropic_length_scale,
            p.linear_amplitude,
        ]
    )
    np.testing.assert_allclose(objective.unpack(theta).amplitudes, p.amplitudes)
    value, _ = objective(theta)
    assert value < objective(objective.start)[0] - 1
    if n == 60:
        best = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=objective.bounds)
        assert value < best.fun + 0.1
    assert 1 < p.n_evaluations < 250


def test_weights_are_repetitions_and_rows_without_weight_are_not_seen():
    x, y, _ = make(40, 2)
    weight = np.random.default_rng(0).integers(0, 3, 40)
    weighted = hyperparameters(x, y, weight.astype(float), 2, np.random.default_rng(0))
    repeated = hyperparameters(
        np.repeat(x, weight, axis=0), np.repeat(y, weight, axis=0), None, 2, np.random.default_rng(0)
    )
    np.testing.assert_allclose(weighted.length_scales, repeated.length_scales, rtol=1e-5)
    assert weighted.noise_variance == pytest.approx(repeated.noise_variance, rel=1e-5)


def test_few_rows_are_enough_to_run():
    for n in (1, 2):
        x, y, _ = make(n, 2)
        p = hyperparameters(x, 0 * y, None, 2, np.random.default_rng(0))
        assert np.isfinite(p.amplitudes).all() and (p.length_scales > 0).all()
