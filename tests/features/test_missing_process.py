"""Draws of what landmarks miss, beside the covariance of the process."""

import numpy as np
import pytest

from pydirect import DirectRegressor
from pydirect.features import missing_process
from pydirect.features.missing_process import draw_missing

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


def exact_covariance(fitted: DirectRegressor, inputs: np.ndarray) -> np.ndarray:
    basis = fitted.features_
    kernel, phi = basis.hyperparameters, basis.map.transform(inputs)
    beyond = inputs[:, : kernel.n_linear] - np.clip(inputs[:, : kernel.n_linear], -5, 5)
    covariance = kernel.amplitudes[2] * beyond @ beyond.T
    return covariance + kernel.covariance(inputs, inputs) - phi @ phi.T


@pytest.mark.parametrize("exact_rows", [2000, 15])
def test_draws_have_the_joint_law_of_the_process(fitted, inputs, exact_rows, monkeypatch):
    monkeypatch.setattr(missing_process, "EXACT_ROWS", exact_rows)
    drawn = draw_missing(fitted.features_, inputs, 0.0, N_DRAWS, np.random.default_rng(2))
    exact = exact_covariance(fitted, inputs)
    found = drawn @ drawn.T / N_DRAWS
    standard_error = np.sqrt((np.outer(exact.diagonal(), exact.diagonal()) + exact**2) / N_DRAWS)
    close = np.abs(found - exact) < 4.5 * standard_error + 1e-8
    assert close[:exact_rows].all() and close.diagonal().all()


@pytest.mark.parametrize("exact_rows", [2000, 15])
def test_what_the_noise_accounts_for_is_left_out(fitted, inputs, exact_rows, monkeypatch):
    monkeypatch.setattr(missing_process, "EXACT_ROWS", exact_rows)
    basis, mean_missing = fitted.features_, 0.05
    drawn = draw_missing(basis, inputs, mean_missing, N_DRAWS, np.random.default_rng(2))
    expected = basis.missing_variance(inputs, basis.map.transform(inputs), mean_missing)
    np.testing.assert_allclose(drawn.var(axis=1), expected, rtol=0.06, atol=1e-8)


def test_equal_rows_have_equal_values(fitted, inputs):
    rows = np.r_[inputs, inputs[3:5], inputs[:1]]
    drawn = draw_missing(fitted.features_, rows, 0.0, 3, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn[[25, 26, 27]], drawn[[3, 4, 0]])


def test_differences_of_functions_have_the_variance_of_the_exact_process():
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (40, 2))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * rng.standard_normal(40)
    model = DirectRegressor(n_levels=31).fit(x, y)  # every row is a landmark
    new = rng.uniform(-2, 2, (12, 2))
    kernel, inputs = model.features_.hyperparameters, model.features_.inputs
    noise, scale = float(model.noise_variance_) / model.y_scale_[0] ** 2, model.prior_scale_[0] ** 2
    cross = scale * kernel.covariance(inputs(new), inputs(x))
    gram = scale * kernel.covariance(inputs(x), inputs(x)) + noise * np.eye(40)
    exact = scale * kernel.covariance(inputs(new), inputs(new)) - cross @ np.linalg.solve(gram, cross.T)
    drawn = model.sample_y(new, N_DRAWS, noise=False) / model.y_scale_[0]
    found = np.cov(drawn)
    variances = exact.diagonal()
    difference = variances[:, None] + variances - 2 * exact + np.eye(12)
    drawn_difference = found.diagonal()[:, None] + found.diagonal() - 2 * found + np.eye(12)
    np.testing.assert_allclose(drawn_difference, difference, rtol=0.1)  # the noise is a posterior, here its mean
