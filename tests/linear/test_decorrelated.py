import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pydirect.direct.mean_field import MeanFieldRegression
from pydirect.distributions.noise import NoiseGridWarning
from pydirect.distributions.priors import DensityPrior, GaussianPrior, LaplacePrior, SpikeAndSlabPrior, StudentTPrior
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures, PrecomputedFeatures
from pydirect.linear.decorrelated import (
    LARGE_ROTATION,
    fit_decorrelated,
    latent_variances,
    moved_to,
    with_precision,
)
from pydirect.linear.evidence import log_evidence, maximise_evidence
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics
from pydirect.statistics.rotated import decorrelate
from pydirect.testing import finite_difference_gradient, monte_carlo_mean

SHAPES = [(1, 1), (40, 8), (8, 8), (8, 30), (120, 50)]


class Setting:
    """Data with features of many sizes, and what is exact about them."""

    def __init__(self, n, b, seed=0, n_outputs=1):
        rng = np.random.default_rng(seed)
        self.n, self.b = n, b
        self.phi = rng.standard_normal((n, b)) * np.linspace(0.05, 2.0, b)
        self.y = 0.3 * self.phi @ rng.standard_normal((b, n_outputs)) + 0.4 * rng.standard_normal((n, n_outputs))
        self.statistics = GaussianStatistics.from_arrays(self.phi, self.y)
        self.rotation = decorrelate(self.statistics)

    def evidence(self, noise, scale, output=0):
        return log_evidence(self.rotation.target(output), noise, scale)

    def direct_evidence(self, noise, scale, output=0):
        covariance = noise * np.eye(self.n) + scale * self.phi @ self.phi.T
        return multivariate_normal(np.zeros(self.n), covariance).logpdf(self.y[:, output])

    def posterior(self, noise, scale):
        """Mean and covariance of the weights of Φ."""
        covariance = np.linalg.inv(self.phi.T @ self.phi / noise + np.eye(self.b) / scale)
        return covariance @ self.phi.T @ self.y[:, 0] / noise, covariance


@pytest.fixture(params=SHAPES, ids=str)
def setting(request):
    return Setting(*request.param)


# Rotation


def test_rotation_diagonalises_the_products_of_the_features(setting):
    vectors, eigenvalues = setting.rotation.vectors, setting.rotation.eigenvalues
    k = len(eigenvalues)
    assert k <= min(setting.n, setting.b)
    assert (eigenvalues >= 0).all()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-9)
    np.testing.assert_allclose((vectors * eigenvalues) @ vectors.T, setting.statistics.A, atol=1e-9)
    np.testing.assert_allclose(setting.rotation.c, vectors.T @ setting.phi.T @ setting.y, atol=1e-9)


def test_rows_and_products_give_the_same_directions():
    setting = Setting(10, 25)
    assert setting.statistics.rows is not None
    full = decorrelate(GaussianStatistics(setting.statistics.c, setting.statistics.yty, 10.0, setting.statistics.A))
    np.testing.assert_allclose(full.eigenvalues[-10:], setting.rotation.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(full.eigenvalues[:-10], 0.0, atol=1e-9)
    overlap = np.abs(np.einsum("ij,ij->j", full.vectors[:, -10:], setting.rotation.vectors))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-9)


def test_directions_that_columns_leave_out_are_dropped():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((30, 3))[:, [0, 1, 2, 0, 0]]
    rotation = decorrelate(GaussianStatistics.from_arrays(phi, rng.standard_normal(30)))
    assert rotation.vectors.shape == (5, 3)
    assert (rotation.eigenvalues > 1.0).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rounding_of_collinear_features_is_no_evidence(dtype):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3000, 4)), rng.standard_normal((3000, 1))
    phi = x @ rng.standard_normal((4, 60)) + 1e-9 * rng.standard_normal((3000, 60))
    statistics = collect_statistics(PrecomputedFeatures(60), phi, y, block_dtype=dtype)
    rotated = decorrelate(statistics)
    assert (rotated.c[:, 0] ** 2 <= rotated.eigenvalues * statistics.yty[0] * (1 + 1e-9)).all()
    noise, _ = maximise_evidence(rotated, 0.1)
    assert noise == pytest.approx(1.0, rel=0.1)


# Evidence


@pytest.mark.parametrize(("noise", "scale"), [(0.2, 1.0), (1e-3, 5.0), (30.0, 0.01)])
def test_log_evidence_is_the_gaussian_log_density_of_the_targets(setting, noise, scale):
    assert setting.evidence(noise, scale)[0] == pytest.approx(setting.direct_evidence(noise, scale), rel=1e-9)


@pytest.mark.parametrize(("noise", "scale"), [(0.2, 1.0), (0.01, 5.0), (30.0, 0.01)])
def test_evidence_gradient_agrees_with_finite_differences(setting, noise, scale):
    _, gradient = setting.evidence(noise, scale)
    expected = finite_difference_gradient(lambda t: setting.evidence(*np.exp(t))[0], np.log([noise, scale]))
    np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max())


def test_evidence_is_maximal_where_its_gradient_vanishes():
    setting = Setting(200, 20)
    noise, scale = maximise_evidence(setting.rotation, 1.0, 1.0, fit_scale=True)
    best, gradient = setting.evidence(noise, scale)
    assert np.abs(gradient).max() < 0.01
    assert noise == pytest.approx(0.16, rel=0.3)
    for factor in (0.9, 1.1):
        assert setting.evidence(noise * factor, scale)[0] < best
        assert setting.evidence(noise, scale * factor)[0] < best
    fixed, kept = maximise_evidence(setting.rotation, 1.0, 0.5, fit_scale=False)
    assert kept == 0.5
    assert abs(setting.evidence(fixed, 0.5)[1][0]) < 0.01


def test_a_tight_prior_keeps_the_maximum_near_its_start():
    setting = Setting(30, 5)
    free = maximise_evidence(setting.rotation, 1.0, 1.0, fit_scale=True)
    held = maximise_evidence(setting.rotation, 1.0, 1.0, fit_scale=True, prior_sd=(1e-3, 1e-3))
    np.testing.assert_allclose(held, 1.0, rtol=0.01)
    wide = maximise_evidence(setting.rotation, 1.0, 1.0, fit_scale=True, prior_sd=(1e3, 1e3))
    np.testing.assert_allclose(wide, free, rtol=0.01)


# Posterior with a Gaussian prior


@pytest.mark.parametrize("n_levels", [2, 3, 5, 15, 256])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_elbo_is_the_exact_evidence_for_any_number_of_levels(setting, scale, n_levels):
    prior = GaussianPrior(np.sqrt(scale))
    fitted = fit_decorrelated(setting.rotation, 0.2, prior=prior, n_noise_levels=1, n_levels=n_levels)
    assert fitted.elbo == pytest.approx(setting.direct_evidence(0.2, scale), abs=1e-8)
    assert fitted.q.shape == (fitted.mean.size, n_levels)


def test_a_fit_that_runs_out_of_iterations_reports_the_posterior_that_it_returns():
    setting = Setting(8, 30)
    for max_iter in (1, 2, 5):
        fitted = fit_decorrelated(setting.rotation, 0.2, max_iter=max_iter)
        assert (fitted.n_iter, fitted.converged) == (max_iter, False)
        rotated = GaussianStatistics.from_arrays(setting.phi @ fitted.vectors, setting.y)
        uniform = np.full(15, -np.log(15))
        model = MeanFieldRegression.of(rotated, fitted.levels, fitted.log_prior, fitted.noise.levels, uniform)
        assert fitted.elbo == pytest.approx(model.elbo(fitted.q, fitted.noise.q), rel=1e-9)


@pytest.mark.parametrize("n_levels", [2, 3, 15])
def test_posterior_of_the_weights_is_the_exact_gaussian_one(setting, n_levels):
    fitted = fit_decorrelated(setting.rotation, 0.2, n_noise_levels=1, n_levels=n_levels)
    mean, covariance = setting.posterior(0.2, 1.0)
    np.testing.assert_allclose(fitted.coefficients, mean, atol=1e-9 * np.sqrt(covariance.diagonal().max()))
    phi = np.random.default_rng(1).standard_normal((20, setting.b))
    latent_mean, latent_variance = fitted.latent_moments(phi)
    exact = np.einsum("ij,jk,ik->i", phi, covariance, phi)
    np.testing.assert_allclose(latent_mean, phi @ mean, atol=1e-9 * np.sqrt(exact.max()))
    np.testing.assert_allclose(latent_variance, exact, rtol=1e-9)
    np.testing.assert_allclose(fitted.latent_cumulant(phi, 1), latent_mean, atol=1e-12)
    np.testing.assert_allclose(fitted.latent_cumulant(phi, 2), latent_variance, rtol=1e-10)


@pytest.mark.parametrize("shape", [(40, 8), (4, 12)])
def test_samples_of_the_weights_have_the_moments_of_the_posterior(shape):
    setting = Setting(*shape)
    fitted = fit_decorrelated(setting.rotation, 0.2, n_noise_levels=1)
    phi = np.random.default_rng(1).standard_normal((5, setting.b))
    samples = fitted.sample_weights(20_000, np.random.default_rng(0)) @ phi.T
    mean, variance = fitted.latent_moments(phi)
    got, error = monte_carlo_mean(samples)
    assert (np.abs(got - mean) < 4.5 * error).all()
    got, error = monte_carlo_mean((samples - mean) ** 2)
    assert (np.abs(got - variance) < 4.5 * error).all()


@pytest.mark.filterwarnings("ignore:the noise posterior piles up")
def test_reported_elbo_is_the_models_in_the_rotated_basis(setting):
    fitted = fit_decorrelated(setting.rotation, 0.2)
    kept = fitted.vectors
    statistics = GaussianStatistics.from_arrays(setting.phi @ kept, setting.y)
    n_noise = fitted.noise.levels.size
    model = MeanFieldRegression.of(
        statistics, fitted.levels, fitted.log_prior, fitted.noise.levels, np.full(n_noise, -np.log(n_noise))
    )
    assert fitted.elbo == pytest.approx(model.elbo(fitted.q, fitted.noise.q), rel=1e-9)
    assert (np.diff(fitted.elbo_trace) >= -1e-9 * abs(fitted.elbo)).all()
    assert fitted.elbo_trace[-1] == fitted.elbo
    assert fitted.n_iter == fitted.elbo_trace.size


@pytest.mark.filterwarnings("ignore:the noise posterior piles up")
@pytest.mark.parametrize("n_levels", [2, 3, 15])
def test_learned_noise_stays_below_the_evidence_averaged_over_its_grid(setting, n_levels):
    fitted = fit_decorrelated(setting.rotation, 0.2, n_levels=n_levels)
    grid = np.array([setting.evidence(s, 1.0)[0] for s in fitted.noise.levels])
    average = np.log(np.exp(grid - grid.max()).mean()) + grid.max()
    assert fitted.elbo <= average + 1e-8
    if setting.n >= 5 * setting.b:
        assert fitted.elbo >= average - 0.3


@pytest.mark.filterwarnings("ignore:the noise posterior piles up")
def test_the_noise_grid_is_centred_and_as_wide_as_the_data_are_few():
    few, many = (fit_decorrelated(s.rotation, 0.2) for s in (Setting(40, 8), Setting(4000, 8)))
    for fitted in (few, many):
        assert fitted.noise.levels[7] == pytest.approx(0.2)
        assert fitted.noise.levels.size == 15
    assert many.noise.levels[-1] < few.noise.levels[-1]
    fixed = fit_decorrelated(Setting(40, 8).rotation, 0.2, n_noise_levels=1)
    np.testing.assert_array_equal(fixed.noise.levels, [0.2])
    np.testing.assert_array_equal(fixed.noise.q, [1.0])


def test_directions_without_information_are_dropped_and_stay_at_the_prior():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((50, 4)) * [1.0, 1.0, 1e-5, 0.0]
    y = phi @ np.ones(4) + 0.1 * rng.standard_normal(50)
    statistics = GaussianStatistics.from_arrays(phi, y)
    fitted = fit_decorrelated(decorrelate(statistics), 0.01, prior=GaussianPrior(0.5))
    assert fitted.mean.size == 2
    mean, variance = fitted.latent_moments(np.eye(4))
    np.testing.assert_allclose(mean[2:], 0.0, atol=1e-3)
    np.testing.assert_allclose(variance[2:], 0.25, rtol=1e-6)


def test_directions_that_are_dropped_leave_a_bound():
    rng = np.random.default_rng(0)
    phi, y = 3e-3 * np.eye(60), 0.1 * rng.standard_normal(60)  # smaller than the noise: evidence against a variance
    fitted = fit_decorrelated(decorrelate(GaussianStatistics.from_arrays(phi, y)), 1.0, n_noise_levels=1)
    assert fitted.mean.size == 0
    evidence = multivariate_normal(np.zeros(60), (1 + 9e-6) * np.eye(60)).logpdf(y)
    assert evidence - 60 * 5e-6 < fitted.elbo < evidence


@pytest.mark.parametrize("shape", [(3, 5), (8, 2)])
def test_features_that_are_all_zero_leave_the_prior(shape):
    statistics = GaussianStatistics.from_arrays(np.zeros(shape), np.ones(shape[0]))
    fitted = fit_decorrelated(decorrelate(statistics), 1.0, n_noise_levels=1)
    assert fitted.elbo == pytest.approx(multivariate_normal(np.zeros(shape[0])).logpdf(np.ones(shape[0])))
    np.testing.assert_array_equal(fitted.coefficients, 0.0)
    np.testing.assert_allclose(fitted.latent_moments(np.ones((2, shape[1])))[1], shape[1])


def test_outputs_are_fitted_as_if_each_were_alone():
    setting = Setting(40, 8, n_outputs=2)
    for k in range(2):
        alone = GaussianStatistics.from_arrays(setting.phi, setting.y[:, k])
        first = fit_decorrelated(setting.rotation.target(k), 0.2)
        second = fit_decorrelated(decorrelate(alone), 0.2)
        assert first.elbo == pytest.approx(second.elbo, rel=1e-10)
        np.testing.assert_allclose(first.coefficients, second.coefficients, atol=1e-8)


# Other priors, one weight, against quadrature


def quadrature(prior, statistics, noise):
    """Log evidence, posterior mean and standard deviation of one weight."""
    t = np.linspace(-12.0, 12.0, 100_001)
    w, step = 0.01 * np.sinh(t), 0.01 * np.cosh(t) * (t[1] - t[0])
    log_joint = prior.log_density(w) - 0.5 * statistics.n_samples * np.log(2 * np.pi * noise)
    error = statistics.yty[0] - 2 * w * statistics.c[0, 0] + w**2 * statistics.A[0, 0]
    log_joint -= 0.5 * error / noise
    p = step * np.exp(log_joint - log_joint.max())
    mean = p @ w / p.sum()
    return log_joint.max() + np.log(p.sum()), mean, np.sqrt(p @ (w - mean) ** 2 / p.sum())


@pytest.mark.parametrize("prior", [LaplacePrior(0.6), StudentTPrior(3.0, 0.7), StudentTPrior(5.0, 0.5)])
@pytest.mark.parametrize("weight", [0.0, 2.0, 6.0])
@pytest.mark.parametrize(("n", "size"), [(1, 0.05), (1, 1.0), (30, 1.0)])
def test_one_weight_with_another_prior_agrees_with_quadrature(prior, weight, n, size):
    rng = np.random.default_rng(n)
    phi = size * rng.standard_normal((n, 1))
    statistics = GaussianStatistics.from_arrays(phi, phi[:, 0] * weight + 0.5 * rng.standard_normal(n))
    evidence, mean, sd = quadrature(prior, statistics, 0.25)
    for n_levels in (2, 3, 5, 15, 64):
        fitted = fit_decorrelated(decorrelate(statistics), 0.25, prior=prior, n_noise_levels=1, n_levels=n_levels)
        assert fitted.elbo == pytest.approx(evidence, abs=1e-6)
        assert fitted.coefficients[0] == pytest.approx(mean, abs=1e-6 * sd)
        assert fitted.std[0] == pytest.approx(sd, rel=1e-5)


@pytest.mark.filterwarnings("ignore:the noise posterior piles up")
@pytest.mark.parametrize("prior", [LaplacePrior(0.6), StudentTPrior(3.0, 0.7)])
@pytest.mark.parametrize("n_levels", [2, 3, 15])
def test_learned_noise_with_another_prior_leaves_a_bound(prior, n_levels):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((5, 1))
    statistics = GaussianStatistics.from_arrays(phi, phi[:, 0] + 0.5 * rng.standard_normal(5))
    fitted = fit_decorrelated(decorrelate(statistics), 0.25, prior=prior, n_levels=n_levels)
    grid = np.array([quadrature(prior, statistics, s)[0] for s in fitted.noise.levels])
    assert fitted.elbo < np.log(np.exp(grid - grid.max()).mean()) + grid.max()
    assert (np.diff(fitted.elbo_trace) >= -1e-9 * abs(fitted.elbo)).all() and fitted.converged


@pytest.mark.parametrize(
    ("prior", "variance"),
    [(GaussianPrior(0.7), 0.49), (LaplacePrior(0.6), 0.36), (StudentTPrior(5.0, 0.7), 0.49 * 5 / 3)],
)
def test_prior_variance_of_dropped_directions_is_the_priors(prior, variance):
    statistics = GaussianStatistics.from_arrays(np.zeros((3, 2)), np.ones(3))
    fitted = fit_decorrelated(decorrelate(statistics), 1.0, prior=prior)
    assert fitted.prior_variance == pytest.approx(variance, rel=1e-3)


def test_a_prior_of_ones_own_gives_the_same_as_the_built_in_one():
    class Gaussian(DensityPrior):
        def log_density(self, w):
            return -0.5 * w**2 - 0.5 * np.log(2 * np.pi)

    setting = Setting(40, 8)
    own, built_in = (
        fit_decorrelated(setting.rotation, 0.2, prior=p, n_noise_levels=1) for p in (Gaussian(), GaussianPrior())
    )
    assert own.elbo == pytest.approx(built_in.elbo, abs=1e-7)
    np.testing.assert_allclose(own.coefficients, built_in.coefficients, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("noise", 0.0, ValueError, "noise must be above 0"),
        ("noise", np.nan, ValueError, "noise must be above 0"),
        ("n_levels", 1, ValueError, "n_levels must be at least 2"),
        ("n_levels", 300, ValueError, "n_levels must be at most 256"),
        ("n_noise_levels", 0, ValueError, "n_noise_levels must be at least 1"),
        ("max_iter", 0, ValueError, "max_iter must be at least 1"),
        ("prior", SpikeAndSlabPrior(), TypeError, "prior must have a density"),
    ],
)
def test_a_wrong_argument_is_named(name, value, error, message):
    setting = Setting(40, 8)
    with pytest.raises(error, match=message):
        fit_decorrelated(setting.rotation, **{"noise": 0.2, name: value})


def test_noise_at_the_edge_of_its_grid_warns():
    with pytest.warns(NoiseGridWarning, match="lower edge"):
        fit_decorrelated(Setting(400, 8).rotation, 20.0)


@pytest.mark.parametrize("prior", [GaussianPrior(), LaplacePrior(), StudentTPrior(5.0)], ids=str)
@pytest.mark.parametrize("n_levels", [2, 7])
def test_a_posterior_moved_to_other_means_keeps_its_spreads_and_a_bound(prior, n_levels):
    rng = np.random.default_rng(0)
    phi, y = rng.standard_normal((40, 5)) * [0.02, 0.1, 0.3, 1.0, 1.0], rng.standard_normal(40)
    target = decorrelate(GaussianStatistics.from_arrays(phi, y)).target(0)
    posterior = fit_decorrelated(target, 0.5, prior=prior, n_noise_levels=1, n_levels=n_levels)
    same = moved_to(posterior, target, prior, posterior.coefficients)
    assert same.elbo == pytest.approx(posterior.elbo, abs=1e-9)
    coefficients = posterior.coefficients + 0.2 * rng.standard_normal(5)
    moved = moved_to(posterior, target, prior, coefficients)
    np.testing.assert_allclose(moved.coefficients, coefficients, atol=1e-12)
    np.testing.assert_allclose(moved.latent_moments(phi)[1], posterior.latent_moments(phi)[1], rtol=1e-9)
    assert moved.elbo < posterior.elbo and moved.elbo_trace[-1] == moved.elbo
    # The ELBO is that of the exact posterior's density, shifted.
    rotated, w = posterior.vectors.T @ (coefficients - posterior.coefficients), np.linspace(-100, 100, 400_001)
    elbo = -20 * np.log(np.pi) - 0.5 * target.squared_error(moved.mean, moved.variance + moved.mean**2) / 0.5
    for j, step in enumerate(rotated):
        log_q = prior.log_density(w) + (target.c[j] * w - 0.5 * target.eigenvalues[j] * w**2) / 0.5
        log_q -= log_q.max()
        q = np.exp(log_q) / np.exp(log_q).sum()
        elbo -= q @ (log_q - np.log(np.exp(log_q).sum() * (w[1] - w[0])) - prior.log_density(w + step))
    assert moved.elbo == pytest.approx(elbo, abs=1e-4)


# Single precision


def nearly_noise_free(n_landmarks, noise=1e-4, n_rows=700):
    """Rows of Φ of a kernel, a posterior of a smooth function of two inputs, and its noise deviation."""
    rng = np.random.default_rng(0)
    x, new = rng.uniform(-2, 2, (n_rows, 2)), rng.uniform(-2, 2, (50, 2))
    kernel = KernelHyperparameters(noise**2, 1.0, np.full(2, 0.7), 0.01, 3.0, 0.3, 2)
    features = NystroemFeatures.at(x[:n_landmarks], kernel)
    y = np.sin(3 * x[:, 0]) * x[:, 1] + noise * rng.standard_normal(n_rows)
    rotated = decorrelate(collect_statistics(features, x, y[:, None]))
    return features.transform(np.vstack([x[:50], new])), fit_decorrelated(rotated, noise**2, n_noise_levels=1)


def test_vectors_in_single_precision_keep_deviations_of_nearly_noise_free_functions():
    phi, posterior = nearly_noise_free(600)
    assert posterior.vectors.size > LARGE_ROTATION
    [single] = with_precision([posterior], np.float32)
    assert single.vectors.dtype == np.float32
    expected = posterior.latent_moments(phi)[1]
    assert expected.min() < 1e-7
    np.testing.assert_allclose(single.latent_moments(phi)[1], expected, rtol=1e-4)


def test_small_rotations_stay_as_they_are():
    posterior = fit_decorrelated(Setting(40, 8).rotation, 0.1)
    (kept,) = with_precision([posterior], np.float32, LARGE_ROTATION)
    assert kept.rotation.matrix is posterior.rotation.matrix


def test_outputs_share_rotations():
    phi, posterior = nearly_noise_free(600)
    shared = with_precision([posterior, posterior], np.float32)
    assert shared[0].vectors is shared[1].vectors
    variances = latent_variances(shared, np.array([1.0, 2.0]), phi)
    np.testing.assert_allclose(variances[:, 0], shared[0].latent_moments(phi)[1], rtol=1e-9)
    np.testing.assert_allclose(variances[:, 1], 4 * variances[:, 0], rtol=1e-12)


@pytest.mark.parametrize("shape", [(40, 8), (6, 12)], ids=["all directions", "fewer rows than weights"])
def test_variances_of_many_outputs_are_those_of_each(shape):
    """One product for all of them, dropped directions included."""
    rotated = Setting(*shape).rotation
    posteriors = [fit_decorrelated(rotated, noise, n_noise_levels=1) for noise in (0.05, 0.1, 0.4)]
    phi, scale = np.random.default_rng(3).standard_normal((5, shape[1])), np.array([0.5, 1.0, 2.0])
    expected = [s**2 * posterior.latent_moments(phi)[1] for s, posterior in zip(scale, posteriors, strict=True)]
    np.testing.assert_allclose(latent_variances(posteriors, scale, phi), np.stack(expected, axis=1), rtol=1e-12)
