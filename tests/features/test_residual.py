"""Draws, covariances and random functions of what landmarks leave, beside the covariance of the exact process."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pydirect import DirectRegressor
from pydirect.features import residual
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures, random_fourier_features
from pydirect.features.residual import ResidualFeatures, draw_residual

KERNEL = KernelHyperparameters(0.1, 1.3, np.array([0.7, 1.1]), 0.4, 1.2, 0.5, 2, 2.5)
RNG = np.random.default_rng(0)
INPUTS = np.vstack([2 * RNG.standard_normal((8, 2)), [[7.0, -6.0]]])


def basis_of(kind):
    rng = np.random.default_rng(1)
    if kind == "fourier":
        return Basis(InputMap.identity(2), random_fourier_features(KERNEL, 20, rng), KERNEL)
    return Basis(InputMap.identity(2), NystroemFeatures.at(rng.standard_normal((6, 2)), KERNEL), KERNEL)


def exact_covariance(basis, inputs):
    """What landmarks leave of the kernel, and of its linear part beyond its reach."""
    kernel, phi = basis.hyperparameters, basis.map.transform(inputs)
    beyond = inputs[:, : kernel.n_linear] - np.clip(inputs[:, : kernel.n_linear], -5, 5)
    return kernel.covariance(inputs, inputs) - phi @ phi.T + kernel.amplitudes[2] * beyond @ beyond.T


@pytest.mark.parametrize("kind", ["fourier", "nystroem"])
@pytest.mark.parametrize("mean_missing", [0.0, 0.2])
def test_the_variance_is_exact_whatever_the_frequencies(kind, mean_missing):
    basis = basis_of(kind)
    phi = basis.transform(INPUTS)
    found = ResidualFeatures(basis, mean_missing, np.random.default_rng(2)).transform(INPUTS, phi)
    assert_allclose((found**2).sum(axis=1), basis.missing_variance(INPUTS, phi, mean_missing), rtol=1e-12, atol=1e-12)


def test_covariances_between_landmarks_are_the_kernels_on_average():
    basis = basis_of("nystroem")
    phi = basis.transform(INPUTS)
    expected, found = exact_covariance(basis, INPUTS), []
    for seed in range(40):
        features = ResidualFeatures(basis, 0.0, np.random.default_rng(seed)).transform(INPUTS, phi)
        found.append(features @ features.T)
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - expected) < 4 * error + 0.01).all()


@pytest.mark.parametrize("kind", ["fourier", "nystroem"])
def test_derivatives_of_features_are_those_of_finite_differences(kind):
    basis, step = basis_of(kind), 1e-6
    features = ResidualFeatures(basis, 0.05, np.random.default_rng(2))
    direction = [(0, RNG.standard_normal(len(INPUTS))), (1, RNG.standard_normal(len(INPUTS)))]
    moved = step * np.column_stack([rate for _, rate in direction])
    rates = basis.whitened(basis.map.gradient(INPUTS)(direction))
    found = features.along(INPUTS, basis.transform(INPUTS), direction, rates)
    above, below = (features.transform(x, basis.transform(x)) for x in (INPUTS + moved, INPUTS - moved))
    assert_allclose(found, (above - below) / (2 * step), rtol=1e-5, atol=1e-6)


N_DRAWS = 20_000


@pytest.fixture(scope="module")
def fitted() -> DirectRegressor:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal(60)
    return DirectRegressor(n_basis_functions=20).fit(x, y)


@pytest.fixture(scope="module")
def inputs(fitted: DirectRegressor) -> np.ndarray:
    x = 2.0 * np.random.default_rng(1).standard_normal((25, 2))
    x[-1] = 7.0  # beyond the reach of the linear part
    return fitted.features_.inputs(x)


@pytest.mark.parametrize("exact_rows", [2000, 15])
def test_draws_have_the_joint_law_of_the_process(fitted, inputs, exact_rows, monkeypatch):
    monkeypatch.setattr(residual, "EXACT_ROWS", exact_rows)
    drawn = draw_residual(fitted.features_, inputs, 0.0, N_DRAWS, np.random.default_rng(2))
    exact = exact_covariance(fitted.features_, inputs)
    found = drawn @ drawn.T / N_DRAWS
    standard_error = np.sqrt((np.outer(exact.diagonal(), exact.diagonal()) + exact**2) / N_DRAWS)
    close = np.abs(found - exact) < 4.5 * standard_error + 1e-8
    assert close[:exact_rows].all() and close.diagonal().all()


@pytest.mark.parametrize("exact_rows", [2000, 15])
def test_what_the_noise_accounts_for_is_left_out(fitted, inputs, exact_rows, monkeypatch):
    monkeypatch.setattr(residual, "EXACT_ROWS", exact_rows)
    basis, mean_missing = fitted.features_, 0.05
    drawn = draw_residual(basis, inputs, mean_missing, N_DRAWS, np.random.default_rng(2))
    expected = basis.missing_variance(inputs, basis.map.transform(inputs), mean_missing)
    np.testing.assert_allclose(drawn.var(axis=1), expected, rtol=0.06, atol=1e-8)


def test_differences_of_functions_have_the_variance_of_the_exact_process():
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (40, 2))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * rng.standard_normal(40)
    model = DirectRegressor().fit(x, y)  # every row is a landmark
    new = rng.uniform(-2, 2, (12, 2))
    kernel, inputs = model.features_.hyperparameters, model.features_.inputs
    noise, scale = float(model.noise_variance_) / model.y_scale_[0] ** 2, model.prior_scale_[0] ** 2
    cross = scale * kernel.covariance(inputs(new), inputs(x))
    gram = scale * kernel.covariance(inputs(x), inputs(x)) + noise * np.eye(40)
    exact = scale * kernel.covariance(inputs(new), inputs(new)) - cross @ np.linalg.solve(gram, cross.T)
    drawn = model.sample_y(new, N_DRAWS, noise=False) / model.y_scale_[0]
    found, variances = np.cov(drawn), exact.diagonal()
    found *= variances.mean() / found.diagonal().mean()  # draws for few rows have Student's tails
    difference = variances[:, None] + variances - 2 * exact + np.eye(12)
    drawn_difference = found.diagonal()[:, None] + found.diagonal() - 2 * found + np.eye(12)
    np.testing.assert_allclose(drawn_difference, difference, rtol=0.1)  # the noise is a posterior, here its mean
