import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pydirect.distributions.noise import NoiseGrid
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures, PrecomputedFeatures
from pydirect.linear.evidence import log_evidence, maximise_evidence
from pydirect.linear.fit import fit_gaussian, moved_to
from pydirect.linear.functions import LARGE_ROTATION, latent_variances, with_precision
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics
from pydirect.statistics.rotated import decorrelate
from tests.helpers.oracles import finite_difference_gradient

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


@pytest.fixture(params=SHAPES, ids=str)
def setting(request):
    return Setting(*request.param)


# Rotation


def test_rotation_diagonalises_the_products_of_the_features(setting):
    vectors, eigenvalues = setting.rotation.rotation.matrix, setting.rotation.eigenvalues
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
    overlap = np.abs(np.einsum("ij,ij->j", full.rotation.matrix[:, -10:], setting.rotation.rotation.matrix))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-9)


def test_directions_that_columns_leave_out_are_dropped():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((30, 3))[:, [0, 1, 2, 0, 0]]
    rotation = decorrelate(GaussianStatistics.from_arrays(phi, rng.standard_normal(30)))
    assert rotation.rotation.matrix.shape == (5, 3)
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
    noise, scale = maximise_evidence(setting.rotation, 1.0, 1.0)
    best, gradient = setting.evidence(noise, scale)
    assert np.abs(gradient).max() < 0.01
    assert noise == pytest.approx(0.16, rel=0.3)
    for factor in (0.9, 1.1):
        assert setting.evidence(noise * factor, scale)[0] < best
        assert setting.evidence(noise, scale * factor)[0] < best
    kept, fixed = maximise_evidence(setting.rotation, 0.5, 1.0, fit_noise=False)
    assert kept == 0.5
    assert abs(setting.evidence(0.5, fixed)[1][1]) < 0.01


# Posterior


def elbo_of(fitted, setting):
    """ELBO of a posterior in the rotated basis, term by term."""
    rotated = setting.phi @ fitted.vectors
    error = np.square(setting.y[:, 0] - rotated @ fitted.mean).sum() + (np.square(rotated) @ fitted.variance).sum()
    return NoiseGrid.of(fitted.noise.levels).share(fitted.noise.q, error, setting.n) - fitted.kl


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_elbo_is_the_exact_evidence(setting, scale):
    fitted = fit_gaussian(setting.rotation, 0.2, prior_variance=scale, n_noise_levels=1)
    assert fitted.elbo == pytest.approx(setting.direct_evidence(0.2, scale), abs=1e-8)


def test_a_fit_that_runs_out_of_iterations_reports_the_posterior_that_it_returns():
    setting = Setting(8, 30)
    for max_iter in (1, 2, 5):
        fitted = fit_gaussian(setting.rotation, 0.2, max_iter=max_iter)
        assert (fitted.n_iter, fitted.converged) == (max_iter, False)
        assert fitted.elbo == pytest.approx(elbo_of(fitted, setting), rel=1e-9)


@pytest.mark.filterwarnings("ignore:the noise posterior piles up")
def test_reported_elbo_is_the_models_in_the_rotated_basis(setting):
    fitted = fit_gaussian(setting.rotation, 0.2)
    assert fitted.elbo == pytest.approx(elbo_of(fitted, setting), rel=1e-9)
    assert (np.diff(fitted.elbo_trace) >= -1e-9 * abs(fitted.elbo)).all()
    assert fitted.elbo_trace[-1] == fitted.elbo
    assert fitted.n_iter == fitted.elbo_trace.size


@pytest.mark.filterwarnings("ignore:the noise posterior piles up")
def test_learned_noise_stays_below_the_evidence_averaged_over_its_grid(setting):
    fitted = fit_gaussian(setting.rotation, 0.2)
    grid = np.array([setting.evidence(s, 1.0)[0] for s in fitted.noise.levels])
    average = np.log(np.exp(grid - grid.max()).mean()) + grid.max()
    assert fitted.elbo <= average + 1e-8
    if setting.n >= 5 * setting.b:
        assert fitted.elbo >= average - 0.3


@pytest.mark.filterwarnings("ignore:the noise posterior piles up")
def test_the_noise_grid_is_centred_and_as_wide_as_the_data_are_few():
    few, many = (fit_gaussian(s.rotation, 0.2) for s in (Setting(40, 8), Setting(4000, 8)))
    for fitted in (few, many):
        assert fitted.noise.levels[7] == pytest.approx(0.2)
        assert fitted.noise.levels.size == 15
    assert many.noise.levels[-1] < few.noise.levels[-1]
    fixed = fit_gaussian(Setting(40, 8).rotation, 0.2, n_noise_levels=1)
    np.testing.assert_array_equal(fixed.noise.levels, [0.2])
    np.testing.assert_array_equal(fixed.noise.q, [1.0])


def test_directions_without_information_are_dropped_and_stay_at_the_prior():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((50, 4)) * [1.0, 1.0, 1e-5, 0.0]
    y = phi @ np.ones(4) + 0.1 * rng.standard_normal(50)
    statistics = GaussianStatistics.from_arrays(phi, y)
    fitted = fit_gaussian(decorrelate(statistics), 0.01, prior_variance=0.25)
    assert fitted.mean.size == 2
    mean, variance = fitted.latent_moments(np.eye(4))
    np.testing.assert_allclose(mean[2:], 0.0, atol=1e-3)
    np.testing.assert_allclose(variance[2:], 0.25, rtol=1e-6)


def test_directions_that_are_dropped_leave_a_bound():
    rng = np.random.default_rng(0)
    phi, y = 3e-3 * np.eye(60), 0.1 * rng.standard_normal(60)  # smaller than the noise: evidence against a variance
    fitted = fit_gaussian(decorrelate(GaussianStatistics.from_arrays(phi, y)), 1.0, n_noise_levels=1)
    assert fitted.mean.size == 0
    evidence = multivariate_normal(np.zeros(60), (1 + 9e-6) * np.eye(60)).logpdf(y)
    assert evidence - 60 * 5e-6 < fitted.elbo < evidence


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("noise", 0.0, ValueError, "noise must be above 0"),
        ("noise", np.nan, ValueError, "noise must be above 0"),
        ("prior_variance", 0.0, ValueError, "prior_variance must be above 0"),
        ("n_noise_levels", 0, ValueError, "n_noise_levels must be at least 1"),
        ("max_iter", 0, ValueError, "max_iter must be at least 1"),
    ],
)
def test_a_wrong_argument_is_named(name, value, error, message):
    setting = Setting(40, 8)
    with pytest.raises(error, match=message):
        fit_gaussian(setting.rotation, **{"noise": 0.2, name: value})


def test_a_posterior_moved_to_other_means_keeps_its_spreads_and_a_bound():
    setting = Setting(40, 5)
    target = setting.rotation.target(0)
    posterior = fit_gaussian(target, 0.5, n_noise_levels=1)
    assert moved_to(posterior, target, posterior.coefficients).elbo == pytest.approx(posterior.elbo, abs=1e-9)
    coefficients = posterior.coefficients + 0.2 * np.random.default_rng(0).standard_normal(5)
    moved = moved_to(posterior, target, coefficients)
    np.testing.assert_allclose(moved.coefficients, coefficients, atol=1e-12)
    np.testing.assert_array_equal(moved.variance, posterior.variance)
    assert moved.elbo < posterior.elbo and moved.elbo_trace[-1] == moved.elbo
    assert moved.elbo == pytest.approx(elbo_of(moved, setting), rel=1e-9)


# Single precision


def nearly_noise_free(n_landmarks, noise=1e-4, n_rows=700):
    """Rows of Φ of a kernel, a posterior of a smooth function of two inputs, and its noise deviation."""
    rng = np.random.default_rng(0)
    x, new = rng.uniform(-2, 2, (n_rows, 2)), rng.uniform(-2, 2, (50, 2))
    kernel = KernelHyperparameters(noise**2, 1.0, np.full(2, 0.7), 0.01, 3.0, 0.3, 2)
    features = NystroemFeatures.at(x[:n_landmarks], kernel)
    y = np.sin(3 * x[:, 0]) * x[:, 1] + noise * rng.standard_normal(n_rows)
    rotated = decorrelate(collect_statistics(features, x, y[:, None]))
    return features.transform(np.vstack([x[:50], new])), fit_gaussian(rotated, noise**2, n_noise_levels=1)


def test_vectors_in_single_precision_keep_deviations_of_nearly_noise_free_functions():
    phi, posterior = nearly_noise_free(600)
    assert posterior.vectors.size > LARGE_ROTATION
    [single] = with_precision([posterior], np.float32)
    assert single.vectors.dtype == np.float32
    expected = posterior.latent_moments(phi)[1]
    assert expected.min() < 1e-7
    np.testing.assert_allclose(single.latent_moments(phi)[1], expected, rtol=1e-4)


@pytest.mark.parametrize("shape", [(40, 8), (6, 12)], ids=["all directions", "fewer rows than weights"])
def test_variances_of_many_outputs_are_those_of_each(shape):
    """One product for all of them, dropped directions included."""
    rotated = Setting(*shape).rotation
    posteriors = [fit_gaussian(rotated, noise, n_noise_levels=1) for noise in (0.05, 0.1, 0.4)]
    phi, scale = np.random.default_rng(3).standard_normal((5, shape[1])), np.array([0.5, 1.0, 2.0])
    expected = [s**2 * posterior.latent_moments(phi)[1] for s, posterior in zip(scale, posteriors, strict=True)]
    np.testing.assert_allclose(latent_variances(posteriors, scale, phi), np.stack(expected, axis=1), rtol=1e-12)
