"""What holds of every fitted `DirectRegressor`, whatever its weights, noise, targets and local process are."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from pydirect import DirectRegressor, MeanField, Nystroem, Sequential, fit_many

RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-2, 2, (150, 2)), RNG.uniform(-2, 2, (25, 2))
F = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + (0.1 + 0.2 * (X[:, 0] > 0)) * RNG.standard_normal(150)
SMALL = {"features": Nystroem(max_search_rows=100), "n_basis_functions": 40}
KINDS = {
    "gaussian": (SMALL, Y),
    "two outputs": (SMALL, np.c_[Y, 100 - 50 * Y**2]),
    "fourier": ({"features": "fourier", "n_basis_functions": 40, "noise": 0.04}, Y),
    "sequential": ({"features": "linear", "posterior": Sequential(n_levels=255, keep_factor=True)}, Y),
    "mean field": ({"features": "linear", "posterior": "mean_field"}, Y),
    "mixture": ({"features": "linear", "posterior": MeanField(n_components=2)}, Y),
    "varying": (SMALL | {"noise": "varying"}, Y),
    "student_t": (SMALL | {"noise": "student_t"}, Y),
    "local": (SMALL | {"local": 8}, Y),
    "log": (SMALL | {"target_transform": "log"}, np.exp(Y)),
    "sqrt": (SMALL | {"target_transform": "sqrt"}, np.round(np.exp(1 + F))),
}
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::pydirect.fitted.regression.LocalProcessWarning",
    "ignore::pydirect.direct.CoarseLevelsWarning",
)


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    parameters, y = KINDS[request.param]
    return DirectRegressor(**parameters).fit(X, y), y


def has_own_scale(model):
    """Whether targets are modelled as they are."""
    return model.target_transform_ is None or model.target_transform_.is_identity


def columns(values):
    """(n_rows, n_outputs, ...) whether or not there is an axis of outputs."""
    return np.asarray(values).reshape(len(NEW), -1)


@pytest.mark.parametrize("noise", [True, False])
@pytest.mark.parametrize("calibrated", [False, True])
def test_draws_have_the_moments_of_the_predictions(case, noise, calibrated):
    model, y = case
    model = (
        pickle.loads(pickle.dumps(model)) if model.local_ is None else clone(model).set_params(local=False).fit(X, y)
    )
    if not has_own_scale(model) and not noise:
        pytest.skip("functions without noise are those of the median")
    if calibrated:
        model.calibrate(X, 2 * y)
    mean, epistemic, aleatoric = map(columns, model.predict_parts(NEW))
    std = np.hypot(epistemic, aleatoric) if noise else epistemic
    draws = model.sample_y(NEW, 4000, random_state=2, noise=noise).reshape(*mean.shape, -1)
    assert (np.abs(draws.mean(axis=2) - mean) < 5 * draws.std(axis=2) / np.sqrt(4000)).all()
    squares = (draws - mean[:, :, None]) ** 2
    assert (np.abs(squares.mean(axis=2) - std**2) < 5 * squares.std(axis=2) / np.sqrt(4000)).all()


def test_calibration_scales_every_deviation(case):
    model, y = case
    if not has_own_scale(model):
        pytest.skip("scales deviations of transformed targets")
    calibrated = pickle.loads(pickle.dumps(model)).calibrate(X, 2 * y)
    scale = calibrated.calibration_scale_ / model.calibration_scale_
    assert scale > 1.1
    np.testing.assert_allclose(calibrated.predict(NEW, True)[1], scale * model.predict(NEW, True)[1], rtol=1e-10)
    np.testing.assert_array_equal(calibrated.predict(NEW), model.predict(NEW))


def test_fits_together_are_fits_alone(case):
    model, y = case
    together, other = fit_many([clone(model), clone(model).set_params(max_iter=900)], X, y)
    np.testing.assert_allclose(together.predict(NEW, True), model.predict(NEW, True), rtol=1e-6, atol=1e-9)
    assert other.total_weight_ == model.total_weight_ and not hasattr(clone(together), "model_")
