"""Quantised models that are linear in basis functions."""

import numpy as np
import pytest

from pydirect import DirectRegressor, SpikeAndSlabPrior, quantize
from pydirect.quantized.loading import load_quantized

RAW = {"basis": "raw", "n_basis_functions": 80, "rank_inputs": False}


def test_float_predictions_are_those_of_the_weights(data, raw):
    x, _ = data()
    model = quantize(raw, 8, "draw")
    phi, _ = model.basis.transform(x)
    np.testing.assert_allclose(model.functions(x)[:, 0], model.offset + phi @ model.weights[0].T, rtol=1e-10)


@pytest.mark.parametrize("features", ["nystroem", "linear"])
def test_samples_of_a_decorrelated_posterior_are_combined_before_rows_are_rotated(data, fit, features, monkeypatch):
    x, y = data()
    fitted = fit(DirectRegressor(features, 40, local=False, noise="constant"), x, np.c_[y, y**2])
    model = quantize(fitted, 8, "draw")
    phi, missing = model.basis.transform(x)
    expected = model.offset[:, None] + np.einsum("ij,ksj->iks", phi, model.weights)
    np.testing.assert_allclose(model.functions(x), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    variance = expected.var(axis=2) + model.scale**2 * missing + model.noise
    np.testing.assert_allclose(model.predict(x, return_std=True)[1], model.calibration * np.sqrt(variance), rtol=1e-9)
    monkeypatch.setattr(type(model.basis), "transform", None)  # nothing is rotated row by row
    monkeypatch.setattr(type(model.basis.features.map), "whitened", None, raising=False)
    np.testing.assert_allclose(model.predict(x), expected.mean(axis=2), rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_rounded_levels_serve_a_decorrelated_posterior(data, decorrelated):
    x, _ = data()
    for levels in ("even", "power_of_two"):
        model = quantize(decorrelated, 16, X=x, levels=levels, arithmetic="integer")
        mean, std = decorrelated.predict(x, return_std=True)
        got, got_std = model.predict(x, return_std=True)
        assert np.sqrt(np.mean((got - mean) ** 2)) < 0.05 * std.mean()
        np.testing.assert_allclose(got_std.mean(), std.mean(), rtol=0.05)


def test_levels_of_a_heavy_tailed_prior_become_copies_of_one_table(data, fit):
    x, y = data()
    model = fit(DirectRegressor("polynomial", prior="laplace", n_levels=7), x, np.c_[y, y**2])
    quantised = quantize(model, 32, X=x)
    assert len(quantised.levels) == 7
    mean, std = model.predict(x, return_std=True)
    got, got_std = quantised.predict(x, return_std=True)
    assert (np.abs(got - mean) < 0.3 * std).all()
    np.testing.assert_allclose(got_std, std, rtol=0.1)


def test_basis_functions_without_weights_are_dropped(data, fit):
    x, y = data()
    model = fit(DirectRegressor(**RAW, prior=SpikeAndSlabPrior(0.99)), x, y)
    quantised = quantize(model, 4, "draw")
    assert quantised.packed.shape[0] < 80
    assert quantised.program.n_frequencies == quantised.basis.features.map.n_frequencies < 40
    report = quantised.report()
    assert report["n_nonzero"] == (quantised.weights != 0).sum()
    assert report["bytes"]["total"] == quantised.n_bytes == sum(v for k, v in report["bytes"].items() if k != "total")
    exact = quantize(model, 4, "draw", layout="dense")
    np.testing.assert_array_equal(exact.functions(x), quantised.functions(x))


@pytest.mark.parametrize("target", ["linear", "constant"])
def test_models_need_no_frequency(fit, target, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 3))
    y = 2 * x[:, 0] - x[:, 1] + 0.01 * rng.standard_normal(120) if target == "linear" else np.full(120, 3.0)
    prior = {"prior": SpikeAndSlabPrior(0.999), "posterior": "mean_field"} if target == "linear" else {}
    model = quantize(fit(DirectRegressor(**RAW | {"n_basis_functions": 24} | prior), x, y), 4, "most_probable")
    integer = model.with_arithmetic("integer")
    assert integer.program.n_frequencies == 0
    np.testing.assert_array_equal(integer.totals(x), integer.program.totals(x))
    np.testing.assert_allclose(integer.predict(x), model.predict(x), atol=float(model.rounding_bound()[0]))
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.25
    integer.save(tmp_path / "m")
    np.testing.assert_array_equal(load_quantized(tmp_path / "m").predict(x), integer.predict(x))


def test_several_outputs_share_basis_functions(data, fit):
    x, y = data()
    raw = RAW | {"level_scales": "shared"}
    for options in (raw, {"features": "fourier", "n_basis_functions": 40}, {"n_basis_functions": 40}):
        model = fit(DirectRegressor(**options), x, np.stack([y, 100 * y[::-1] + 5], axis=1))
        quantised = quantize(model, 16, X=x)
        mean, std = model.predict(x, return_std=True)
        got, got_std = quantised.predict(x, return_std=True)
        assert got.shape == (160, 2)
        assert (np.abs(got - mean).mean(axis=0) < 0.2 * std.mean(axis=0)).all()
        np.testing.assert_allclose(got_std.mean(axis=0), std.mean(axis=0), rtol=0.05)
        if options is raw:
            integer = quantised.with_arithmetic("integer")
            np.testing.assert_array_equal(integer.totals(x), integer.program.totals(x))
            np.testing.assert_allclose(integer.predict(x), got, atol=1e-2 * std.max())


def test_nystroem_features_keep_the_variance_between_landmarks(data, fit):
    x, y = data()
    model = fit(DirectRegressor(n_basis_functions=40), x, y)
    far = x + 30
    np.testing.assert_allclose(
        quantize(model, 16, X=x).predict(far, return_std=True)[1], model.predict(far, return_std=True)[1], rtol=0.1
    )
