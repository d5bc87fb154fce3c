"""Predictions against closed forms computed here from the definitions, from nothing but the fitted numbers."""

import numpy as np
import pytest

from pydirect import DirectRegressor, Gaussian, MeanField, Nystroem, Sequential


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((90, 4)) * [1.0, 20.0, 0.01, 3.0] + [0.0, 500.0, -2.0, 1.0]
    y = 7.0 + 0.3 * X[:, 0] - 0.05 * X[:, 1] + 30 * X[:, 2] + rng.standard_normal(90)
    return X[:60], y[:60], X[60:], y[60:]


def location_scale(x, weight):
    mean = np.average(x, axis=0, weights=weight)
    return mean, np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))


def bayesian_linear_regression(phi, y, weight, noise, prior_variance, new):
    """Mean and variance of f at the rows of `new`: textbook formulas with explicit inverses."""
    precision = phi.T @ (weight[:, None] * phi) / noise + np.eye(phi.shape[1]) / prior_variance
    covariance = np.linalg.inv(precision)
    mean = covariance @ (phi.T @ (weight * y)) / noise
    return new @ mean, np.einsum("ij,jk,ik->i", new, covariance, new)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", ["constant", 0.8])
@pytest.mark.parametrize("features", ["linear", "precomputed"])
def test_linear_predictions_are_the_closed_form(data, features, noise, weighted):
    X, y, new, _ = data
    weight = np.random.default_rng(0).integers(0, 4, len(X)).astype(float) if weighted else np.ones(len(X))
    if features == "precomputed":
        X, new = X - X.mean(axis=0), new - X.mean(axis=0)
    model = DirectRegressor(features, noise=noise, posterior=Gaussian(n_noise_levels=1)).fit(
        X, y, weight if weighted else None
    )
    mean, std = model.predict(new, return_std=True)

    y_mean, y_scale = location_scale(y, weight)
    phi, phi_new = X, new
    if features == "linear":
        x_mean, x_scale = location_scale(X, weight)
        phi, phi_new = (np.column_stack([(x - x_mean) / x_scale, np.ones(len(x))]) for x in (X, new))
    sigma2 = model.noise_variance_ / y_scale**2
    counts = weight * model.effective_rows_ / weight.sum()
    expected, variance = bayesian_linear_regression(
        phi, (y - y_mean) / y_scale, counts, sigma2, model.prior_scale_[0] ** 2, phi_new
    )
    np.testing.assert_allclose(mean, y_mean + y_scale * expected, rtol=1e-9)
    np.testing.assert_allclose(std, y_scale * np.sqrt(variance + sigma2), rtol=1e-8)
    _, epistemic, aleatoric = model.predict_parts(new)
    np.testing.assert_allclose(epistemic, y_scale * np.sqrt(variance), rtol=1e-8)
    np.testing.assert_allclose(aleatoric, y_scale * np.sqrt(sigma2), rtol=1e-12)
    if noise == 0.8:
        np.testing.assert_allclose(model.noise_variance_, 0.8, rtol=1e-12)


def test_linear_elbo_is_the_log_evidence_of_continuous_weights(data):
    X, y, _, _ = data
    model = DirectRegressor("linear", posterior=Gaussian(n_noise_levels=1)).fit(X, y)
    phi = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    covariance = model.noise_variance_ * np.eye(len(X)) + (y.std() * model.prior_scale_[0]) ** 2 * phi @ phi.T
    residual = y - y.mean()
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    evidence = -0.5 * (log_determinant + residual @ np.linalg.solve(covariance, residual))
    assert model.elbo_ == pytest.approx(evidence, abs=1e-8)


def gaussian_process(covariance, X, y, noise, new):
    k, cross = covariance(X, X) + np.diag(noise), covariance(new, X)
    mean = cross @ np.linalg.solve(k, y)
    prior = np.array([covariance(row[None], row[None])[0, 0] for row in new])
    return mean, prior - np.einsum("ij,ji->i", cross, np.linalg.solve(k, cross.T))


def covariance_of(p):
    """The documented covariance, element by element."""

    def covariance(a, b):
        difference = a[:, None, :] - b[None, :, :]
        t = np.sqrt(2 * p.smoothness * ((difference / p.length_scales) ** 2).sum(axis=2))
        matern = p.ard_amplitude * {0.5: 1.0, 1.5: 1 + t, 2.5: 1 + t + t**2 / 3}[p.smoothness] * np.exp(-t)
        rough = p.isotropic_amplitude * np.exp(-np.sqrt((difference**2).sum(axis=2)) / p.isotropic_length_scale)
        linear = p.linear_amplitude / p.n_linear * a[:, : p.n_linear] @ b[:, : p.n_linear].T
        return 1.0 + matern + rough + linear

    return covariance


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("features", ["auto", Nystroem(length_scale=[1.0, 20.0, 0.02, 3.0])], ids=["learned", "given"])
def test_nystroem_with_every_row_a_landmark_is_the_exact_gaussian_process(data, features, weighted):
    X, y, new, _ = data
    weight = np.random.default_rng(1).integers(1, 4, len(X)).astype(float) if weighted else np.ones(len(X))
    model = DirectRegressor(features, noise="constant", posterior=Gaussian(n_noise_levels=1)).fit(
        X, y, weight if weighted else None
    )
    mean, std = model.predict(new, return_std=True)
    y_mean, y_scale = location_scale(y, weight)
    sigma2 = model.noise_variance_ / y_scale**2
    scale2 = model.prior_scale_[0] ** 2
    one = covariance_of(model.features_.hyperparameters)
    inputs, others = model.features_.inputs(X), model.features_.inputs(new)
    counts = weight * model.effective_rows_ / weight.sum()
    expected, variance = gaussian_process(
        lambda a, b: scale2 * one(a, b), inputs, (y - y_mean) / y_scale, sigma2 / counts, others
    )
    np.testing.assert_allclose(mean, y_mean + y_scale * expected, rtol=1e-6, atol=1e-6 * y_scale)
    np.testing.assert_allclose(std, model.calibration_scale_ * y_scale * np.sqrt(variance + sigma2), rtol=1e-8)


@pytest.mark.parametrize("posterior", [MeanField(), Sequential(keep_factor=True)], ids=str)
def test_raw_basis_with_many_levels_is_the_closed_form_when_columns_do_not_interact(posterior):
    rng = np.random.default_rng(5)
    phi = np.linalg.qr(rng.standard_normal((50, 6)))[0] * 7
    y = phi @ rng.standard_normal(6) + 2 * rng.standard_normal(50)
    y -= y.mean()
    levels = np.linspace(-6, 6, 255)
    model = DirectRegressor("precomputed", posterior=posterior.set_params(levels=levels), noise=4.0).fit(phi, y)
    mean, std = model.predict(phi, return_std=True)
    prior = (y.std() * model.prior_scale_[0]) ** 2
    expected, variance = bayesian_linear_regression(phi, y, np.ones(50), 4.0, prior, phi)
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-5 * y.std())
    np.testing.assert_allclose(std, np.sqrt(variance + 4.0), rtol=1e-5)


def test_several_outputs_are_the_single_fits_where_features_do_not_depend_on_targets(data):
    X, y, new, _ = data
    Y = np.column_stack([y, 1e3 * np.sin(X[:, 0]), -y + X[:, 3] ** 2])
    for features in ("linear", "polynomial"):
        together = DirectRegressor(features).fit(X, Y)
        means, stds = together.predict(new, return_std=True)
        lower, upper = together.predict_interval(new)
        assert means.shape == stds.shape == lower.shape == (30, 3)
        elbo = 0.0
        for k in range(3):
            alone = DirectRegressor(features).fit(X, Y[:, k])
            mean, std = alone.predict(new, return_std=True)
            np.testing.assert_allclose(means[:, k], mean, rtol=1e-6, atol=1e-6 * Y[:, k].std())
            np.testing.assert_allclose(stds[:, k], std, rtol=1e-6)
            np.testing.assert_allclose(upper[:, k], alone.predict_interval(new)[1], rtol=1e-6)
            assert together.noise_variance_[k] == pytest.approx(alone.noise_variance_, rel=1e-6)
            elbo += alone.elbo_
        assert together.elbo_ == pytest.approx(elbo, rel=1e-6)


@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")
@pytest.mark.parametrize("noise", [1.0, 0.1, 0.01, 0.001])
def test_raw_intervals_cover_whatever_the_levels_cannot_represent(noise):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 5))
    y = X @ [1.0, -0.5, 0.3, 0.7, 0.2] + noise * rng.standard_normal(800)
    model = DirectRegressor("linear", posterior="sequential").fit(X[:400], y[:400])
    lower, upper = model.predict_interval(X[400:], 0.9)
    assert 0.8 <= np.mean((y[400:] >= lower) & (y[400:] <= upper))
    assert (upper - lower).mean() <= 0.4 + 4 * noise


def test_deviations_grow_where_the_linear_part_is_cut_off():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (200, 1))
    y = 2 * X[:, 0] + 0.1 * rng.standard_normal(200)
    for features in ("nystroem", "fourier"):
        _, std = (
            DirectRegressor(features, n_basis_functions=100).fit(X, y).predict([[8.0], [15.0], [30.0]], return_std=True)
        )
        assert std[2] > 2 * std[1] > 4 * std[0]
