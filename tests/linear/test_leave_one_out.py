import numpy as np
import pytest

from pydirect.features.rows import TrainingRows
from pydirect.linear.leave_one_out import LeaveOneOut, expected_noise, leave_one_out
from pydirect.linear.posterior import GaussianPosterior, posterior_for_rows
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate

# rows, weights: fewer rows than weights, as many, and more
SHAPES = [(12, 30), (20, 20), (60, 15)]


class Setting:
    """Rows with integer weights, noise and prior of their own for each of two outputs."""

    def __init__(self, n, b, posterior=GaussianPosterior.of, seed=0):
        rng = np.random.default_rng(seed)
        self.phi = rng.standard_normal((n, b)) * np.linspace(0.1, 2.0, b)
        self.y = self.phi @ rng.standard_normal((b, 2)) + 0.5 * rng.standard_normal((n, 2))
        self.weight = rng.integers(1, 4, n).astype(float)
        self.noise, self.prior = np.array([0.3, 0.1]), np.array([0.7, 1.0])
        self.rotated = decorrelate(GaussianStatistics.from_arrays(self.phi, self.y, self.weight))
        self.posterior = posterior(self.rotated, 1 / self.noise, self.prior)
        self.precision = self.weight[:, None] / self.noise

    def refit(self, rows):
        """Solve for the posterior of some rows: coefficients and covariance per output."""
        phi, y, weight = self.phi[rows], self.y[rows], self.weight[rows]
        for k, (noise, prior) in enumerate(zip(self.noise, self.prior, strict=True)):
            precision = (phi.T * weight) @ phi / noise + np.eye(phi.shape[1]) / prior
            covariance = np.linalg.inv(precision)
            yield covariance @ phi.T @ (weight * y[:, k]) / noise, covariance


FORMS = {"eigenvectors": GaussianPosterior.of, "factors": posterior_for_rows}


@pytest.fixture(params=[(*shape, form) for shape in SHAPES for form in FORMS], ids=str)
def setting(request):
    n, b, form = request.param
    return Setting(n, b, FORMS[form])


def test_predictions_are_those_of_refits_without_the_row(setting):
    moments = setting.posterior.moments(setting.phi)
    found = leave_one_out(setting.y, *moments, setting.precision, setting.noise)
    for i, phi in enumerate(setting.phi):
        for k, (coefficients, covariance) in enumerate(setting.refit(np.arange(len(setting.y)) != i)):
            np.testing.assert_allclose(found.residuals[i, k], setting.y[i, k] - phi @ coefficients, rtol=1e-8)
            np.testing.assert_allclose(found.latent_variances[i, k], phi @ covariance @ phi, rtol=1e-8)
            np.testing.assert_allclose(found.variances[i, k], phi @ covariance @ phi + setting.noise[k], rtol=1e-8)
    np.testing.assert_allclose(found.means + found.residuals, setting.y)


def test_leverages_sum_to_the_effective_number_of_weights(setting):
    found = leave_one_out(setting.y, *setting.posterior.moments(setting.phi), setting.precision, setting.noise)
    A = (setting.phi.T * setting.weight) @ setting.phi
    for k in range(2):
        ridge = setting.noise[k] / setting.prior[k]
        expected = np.trace(np.linalg.solve(A + ridge * np.eye(len(A)), A))
        np.testing.assert_allclose(found.n_effective[k], expected, rtol=1e-8)
    assert (found.leverages > 0).all() and (found.leverages < 1).all()


def test_variance_without_a_row_is_that_of_the_closed_form():
    setting = Setting(60, 15)
    found = leave_one_out(setting.y, *setting.posterior.moments(setting.phi), setting.precision)
    own_noise = 1 / setting.precision
    np.testing.assert_allclose(found.variances, own_noise / (1 - found.leverages), rtol=1e-12)
    error = setting.y - setting.posterior.moments(setting.phi)[0]
    np.testing.assert_allclose(found.studentised, error / np.sqrt(own_noise * (1 - found.leverages)), rtol=1e-12)
    expected = -0.5 * (np.log(2 * np.pi * found.variances) + found.residuals**2 / found.variances)
    np.testing.assert_allclose(found.log_density, expected, rtol=1e-12)


def test_missing_variance_adds_to_that_of_the_target_alone():
    setting = Setting(60, 15)
    moments = setting.posterior.moments(setting.phi)
    without = leave_one_out(setting.y, *moments, setting.precision)
    with_it = leave_one_out(setting.y, *moments, setting.precision, missing=np.full_like(setting.y, 0.7))
    np.testing.assert_allclose(with_it.variances, without.variances + 0.7)
    np.testing.assert_array_equal(with_it.latent_variances, without.latent_variances)
    np.testing.assert_array_equal(with_it.residuals, without.residuals)


def test_row_without_weight_is_predicted_by_the_whole_model():
    setting = Setting(60, 15)
    mean, variance = setting.posterior.moments(setting.phi)
    setting.precision[7] = 0.0
    found = leave_one_out(setting.y, mean, variance, setting.precision, setting.noise)
    np.testing.assert_array_equal(found.means[7], setting.y[7] - (setting.y[7] - mean[7]))
    np.testing.assert_array_equal(found.variances[7], variance[7] + setting.noise)


def test_row_that_determines_its_own_prediction_stays_finite():
    one = np.ones((1, 1))
    found = leave_one_out(2 * one, 2 * one, one, one)
    assert np.isfinite(found.residuals).all() and np.isfinite(found.log_density).all()


def test_residuals_of_leverages_that_rounding_has_made_impossible_stay_small():
    y, mean = np.ones((3, 1)), np.array([[1.0], [1 - 1e-9], [1.0]])
    found = leave_one_out(y, mean, np.array([[0.5], [1.0], [1.001]]), np.ones(1))
    assert np.abs(found.residuals).max() <= 1e-6  # not 1e5, as of a remainder of rounding
    assert found.leverages.max() == 1.0


def test_copies_are_merged_and_spread_again():
    x = np.array([[3.0], [1.0], [3.0], [3.0], [1.0]])
    y = np.array([[1.0], [2.0], [1.0], [0.0], [2.0]])
    first, count, where = TrainingRows(x, y, np.array([1.0, 2.0, 3.0, 4.0, 0.5])).merged
    assert first.tolist() == [0, 1, 3]
    assert count.tolist() == [4.0, 2.5, 4.0]
    assert where.tolist() == [0, 1, 0, 2, 1]
    assert TrainingRows(x, y, None).merged[1].tolist() == [2.0, 2.0, 1.0]
    distinct = leave_one_out(y[first], 0 * y[first], 0.1 + 0 * y[first], np.ones(1))
    spread = distinct.rows(where)
    assert spread.residuals.shape == (5, 1)
    np.testing.assert_array_equal(spread.residuals[:, 0], distinct.residuals[where, 0])
    np.testing.assert_array_equal(spread.n_effective, distinct.n_effective)


def test_the_expected_noise_is_that_of_a_fine_grid_of_its_logarithm():
    rng = np.random.default_rng(0)
    latent, more = rng.uniform(0.01, 0.2, (2, 3000, 2))
    residuals = rng.standard_normal((3000, 2)) * np.sqrt(latent + more + [0.3, 0.1])
    left, start = LeaveOneOut(*[residuals] * 3, latent, residuals, np.zeros(2)), np.array([0.4, 0.2])
    unmarked = np.zeros(3000, dtype=bool)
    noise, share = expected_noise(left, more, start, unmarked)
    np.testing.assert_allclose(noise, [0.3, 0.1], rtol=0.1)
    np.testing.assert_allclose(share, 1.0, rtol=1e-12)
    grid = np.exp(np.linspace(np.log(0.2), np.log(2.0), 4001))[:, None] * start
    variance = grid[:, None] + (latent + more)[:5]
    density = np.exp(-0.5 * np.sum(np.log(variance) + residuals[:5] ** 2 / variance, axis=1))
    expected = (grid * density).sum(axis=0) / density.sum(axis=0)
    noise, _ = expected_noise(left.rows(np.arange(5)), more[:5], start, unmarked[:5])
    np.testing.assert_allclose(noise, expected, rtol=0.02)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_of_marked_rows_the_share_of_what_else_scatters_is_found(share):
    rng = np.random.default_rng(0)
    latent, marked = np.full((4000, 1), 0.02), rng.random(4000) < 0.4
    more = rng.uniform(0.5, 2.0, (4000, 1)) * marked[:, None]  # of others nothing is missing
    variance = 0.3 + latent + share * more
    residuals = rng.standard_normal((4000, 1)) * np.sqrt(variance)
    left = LeaveOneOut(*[residuals] * 3, latent, residuals, np.zeros(1))
    noise, found = expected_noise(left, more, np.array([0.8]), marked)
    assert noise == pytest.approx(0.3, rel=0.1)
    assert found == pytest.approx(share, abs=0.05)
