"""Every kind of prediction evaluates the basis functions of a row once."""

from dataclasses import replace

import numpy as np
import pytest

from pydirect import DirectRegressor, Nystroem
from pydirect.features.maps import NystroemFeatures
from pydirect.fitted.predictor import factor_of_few_rows

CALLS = {
    "mean": lambda model, x: model.predict(x),
    "deviation": lambda model, x: model.predict(x, return_std=True),
    "parts": lambda model, x: model.predict_parts(x),
    "distribution": lambda model, x: model.predict_distribution(x),
    "interval": lambda model, x: model.predict_interval(x),
    "quantiles": lambda model, x: model.predict_quantiles(x),
    "log density": lambda model, x: model.log_predictive_density(x, np.zeros((len(x), 2))),
}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3))
    y = np.sin(2 * x[:, :2]) + 0.1 * rng.standard_normal((300, 2))
    model = DirectRegressor(
        features=Nystroem(length_scale=1.0), n_basis_functions=60, local=False, noise="constant"
    ).fit(x, y)
    model.predict(x[:1], return_std=True)  # computes what is computed once
    return model


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_rows_pass_the_features_once(model, call, monkeypatch):
    rows, original = [], NystroemFeatures.functions

    def counted(self, x, *args):
        rows.append(len(x))
        return original(self, x, *args)

    monkeypatch.setattr(NystroemFeatures, "functions", counted)
    call(model, np.zeros((700, 3)))
    assert sum(rows) == 700


def test_frames_of_numbers_are_predicted_without_validation(monkeypatch):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    x = rng.standard_normal((60, 3))
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = DirectRegressor("linear", noise="constant").fit(frame, x[:, 0])
    expected = model.predict(frame.assign(a=frame["a"].astype("float32").astype(object)))
    np.testing.assert_allclose(model.predict(frame), expected, atol=1e-6)
    with pytest.raises(ValueError, match="infinity"):
        model.predict(frame.replace(frame.loc[0, "a"], np.inf))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(x), model.predict(frame))
    with pytest.warns(UserWarning, match="unlike in the fit"):
        assert np.isfinite(model.predict(frame.assign(a=np.nan))).all()  # what is expected, given the others
    monkeypatch.setattr(DirectRegressor, "_validated", None)
    model.predict(frame)


def test_few_rows_have_intervals_and_tails_of_students_t():
    rng = np.random.default_rng(3)
    x, far = rng.standard_normal((10, 2)), np.array([[4.0, -4.0]])
    y = x[:, 0] + 0.3 * rng.standard_normal(10)
    model = DirectRegressor(local=False).fit(x, y)
    (mean, std), own = model.predict(far, return_std=True), model.predict_distribution(far)
    lower, upper = model.predict_interval(far)
    plain = replace(model.model_, units=replace(model.model_.units, calibration=1.0, degrees=None))
    np.testing.assert_allclose(upper - mean, factor_of_few_rows(10) * 1.645 * plain.predict(far, True)[1], rtol=1e-3)
    np.testing.assert_allclose([lower, upper], own.interval())
    np.testing.assert_allclose(own.std, std)
    assert own.log_density(mean + 15 * std)[0] > own.log_density(mean)[0] - 15  # Gaussian: −112
    draws = model.sample_y(np.vstack([far, far]), 4000)
    np.testing.assert_allclose(draws.std(axis=1), std[0], rtol=0.1)
    assert np.quantile(np.abs(draws - mean[0]), 0.999) > 3.8 * std[0]
    many = DirectRegressor(local=False, noise="constant").fit(rng.standard_normal((600, 2)), rng.standard_normal(600))
    assert many.calibration_scale_ == 1.0 and many.model_.units.degrees is None
