"""Predictions and reports of quantised models."""

import numpy as np
import pytest

from pydirect import DirectClassifier, DirectRegressor, Fourier, fit_quantized, quantize
from pydirect.quantized.predictors import load_quantized
from pydirect.quantized.program import half_width

RAW = {"features": Fourier(rank_inputs=False), "posterior": "sequential", "n_basis_functions": 80}


def test_moments_and_intervals_in_integers_are_those_of_the_functions(data, raw):
    x = data()[0]
    model = quantize(raw, 16, X=x, arithmetic="integer")
    functions = model.functions(x)[:, 0]
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(mean, functions.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(std, np.sqrt(functions.var(axis=1) + model.noise[0]), rtol=1e-3)
    lower, upper = model.predict_interval(x, 0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6448536 * std, rtol=1e-4)
    np.testing.assert_allclose((upper + lower) / 2, mean, rtol=1e-12)
    np.testing.assert_allclose(model.predict_distribution(x).std, std, rtol=1e-3)


@pytest.mark.parametrize("target", ["one", "two", "sign", "three"])
def test_moments_in_integers_are_those_of_the_float_path(data, fit, target):
    x, y = data(100)
    targets = {"one": y, "two": np.c_[y, -5 * y**2], "sign": y > y.mean(), "three": np.digitize(y, [2.5, 4])}[target]
    classes = target in ("sign", "three")
    estimator = DirectClassifier(**RAW) if classes else DirectRegressor(**RAW)
    model = fit(estimator, x, targets).quantize(16, X=x, levels="even")
    integer = model.with_arithmetic("integer")
    spread = model.functions(x).std(axis=(0, 2))
    assert (np.abs(integer.functions(x) - model.functions(x)) <= 0.02 * spread[:, None]).all()
    for own in (model, integer):
        mean, std = (own.predict_logit if classes else own.predict)(x, return_std=True)
        functions = own.functions(x)
        np.testing.assert_allclose(mean, own._shape(functions.mean(axis=2)), rtol=1e-9, atol=1e-9)
        total = np.sqrt(functions.var(axis=2) + own.noise)
        np.testing.assert_allclose(std, own.calibration * own._shape(total), rtol=3e-3, atol=2e-5 * std.max())
        for level in (1e-9, 0.3, 0.9, np.nextafter(1.0, 0.0)) if not classes else ():
            lower, upper = own.predict_interval(x, level)
            np.testing.assert_allclose((upper + lower) / 2, mean, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose((upper - lower) / 2, half_width(level) * std, rtol=1e-3, atol=2e-5 * std.max())
    for level in (0.0, 1.0, np.nan) if not classes else ():
        with pytest.raises(ValueError, match="level must be"):
            integer.predict_interval(x, level)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_keep_their_probabilities(data, fit, n_classes):
    x, y = data(80)
    labels = np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))]
    for options in (RAW, {"n_basis_functions": 30}):
        model = fit(DirectClassifier(**options), x, labels)
        quantised = model.quantize(16, X=x)
        probabilities = quantised.predict_proba(x)
        assert np.abs(probabilities - model.predict_proba(x)).mean() < 0.05
        assert (quantised.predict(x) == model.predict(x)).mean() > 0.93
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        if options is RAW:
            integer = quantised.with_arithmetic("integer")
            assert np.abs(integer.predict_proba(x) - probabilities).max() < 1e-2
            assert (integer.predict(x) == quantised.predict(x)).mean() > 0.98
            logit, std = integer.predict_logit(x, return_std=True)
            assert logit.shape == std.shape == ((80,) if n_classes == 2 else (80, 3))


def test_data_frames_must_have_the_columns_of_the_fit_in_their_order(data, fit, tmp_path):
    pandas = pytest.importorskip("pandas")
    x, y = data(60)
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = quantize(fit(DirectRegressor(**RAW), frame, y), 4, X=frame)
    model.save(tmp_path / "m")
    for own in (model, model.with_arithmetic("integer"), load_quantized(tmp_path / "m")):
        assert own.feature_names == ("a", "b", "c")
        np.testing.assert_array_equal(own.predict(frame), own.predict(x))
        with pytest.raises(ValueError, match="X must have the columns 'a', 'b', 'c' in this order, got 'c'"):
            own.predict(frame[["c", "b", "a"]])
    assert fit_quantized(DirectRegressor(), frame, y, max_flash=900, n_samples=2).feature_names == ("a", "b", "c")
