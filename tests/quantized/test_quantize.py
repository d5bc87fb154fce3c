"""`quantize`: of models that are linear in basis functions; its refusals and warnings."""

from dataclasses import replace

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, Sequential, SpikeAndSlabPrior, quantize
from pydirect.quantized.program import IntegerArithmeticError, IntegerArithmeticWarning

RAW = {"features": Fourier(rank_inputs=False), "posterior": "sequential", "n_basis_functions": 80}


def test_models_without_an_integer_form_say_what_to_do(data, fit):
    x, y = data()
    for options, arguments, message in (
        ({"n_basis_functions": 20}, {}, "or features='fourier' and posterior=Sequential"),
        (RAW | {"features": "fourier"}, {}, "fit with features=Fourier"),
        ({"posterior": "sequential", "features": "polynomial"}, {}, "integers need features='fourier' or 'linear'"),
        ({"n_basis_functions": 20}, {"levels": "even", "X": x}, "let pydirect.fit_quantized choose"),
    ):
        model = fit(DirectRegressor(**options), x, y)
        with pytest.raises(IntegerArithmeticError, match=message):
            quantize(model, 4, arithmetic="integer", **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"n_samples": 257}, "n_samples must be at most 256"),
        ({"random_state": -1}, "random_state must be a Generator, an integer of at least 0 or None, got -1"),
        ({"levels": "even", "n_levels": 4}, "n_levels must be odd"),
        ({"X": np.zeros((0, 3))}, r"X must have shape .* with n_rows at least 1, got \(0, 3\)"),
        ({"levels": "odd"}, "levels must be one of"),
        ({"levels": "even"}, "X must be given"),
        ({"n_levels": 7}, "n_levels must come with levels="),
        ({"arithmetic": "int"}, "arithmetic must be one of"),
        ({"X": np.zeros((3, 2))}, "X must have shape"),
    ],
)
def test_arguments_are_checked(raw, options, message):
    with pytest.raises(ValueError, match=message):
        quantize(raw, **options)


@pytest.mark.parametrize("features", ["nystroem", "linear"])
def test_samples_of_a_decorrelated_posterior_are_combined_before_rows_are_rotated(data, fit, features, monkeypatch):
    x, y = data()
    fitted = fit(DirectRegressor(features, 40, local=False, noise="constant", target_transform=None), x, np.c_[y, y**2])
    model = quantize(fitted, 8)
    basis = model.basis
    phi = (basis.features.transform(x) @ basis.vectors)[:, basis.order]
    missing = basis.combined(x, np.zeros((basis.features.n_weights, 1)), True)[1]
    expected = model.offset[:, None] + np.einsum("ij,ksj->iks", phi, model.weights)
    np.testing.assert_allclose(model.functions(x), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    variance = expected.var(axis=2) + model.scale**2 * missing + model.noise
    np.testing.assert_allclose(model.predict(x, return_std=True)[1], model.calibration * np.sqrt(variance), rtol=1e-9)
    monkeypatch.setattr(type(basis.features), "whitened", None)  # nothing is whitened row by row
    np.testing.assert_allclose(model.predict(x), expected.mean(axis=2), rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_basis_functions_without_weights_are_dropped(data, fit):
    x, y = data()
    model = fit(DirectRegressor(**RAW | {"posterior": Sequential(prior=SpikeAndSlabPrior(0.99))}), x, y)
    quantised = quantize(model, 4)
    assert quantised.packed.shape[0] < 80
    assert quantised.program.n_frequencies == quantised.basis.features.map.n_frequencies < 40
    report = quantised.report()
    assert report["n_nonzero"] == (quantised.weights != 0).sum()
    assert report["bytes"]["total"] == quantised.n_bytes == sum(v for k, v in report["bytes"].items() if k != "total")


def test_several_outputs_share_basis_functions(data, fit):
    x, y = data()
    raw = RAW | {"posterior": Sequential(level_scales="shared")}
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


def test_columns_beyond_single_precision_are_named(data, fit):
    x, y = data(60)
    x[:, 0] += 3e8
    model = fit(DirectRegressor(Fourier(rank_inputs=False), 30, posterior="sequential"), x, y)
    with pytest.warns(IntegerArithmeticWarning, match=r"column 0 by up to .*subtract an origin") as caught:
        quantize(model, 4, X=x, arithmetic="integer")
    assert caught[0].filename == __file__
    quantize(model, 4, X=x)  # floating point is told nothing


def test_clipped_rows_are_counted_and_their_column_is_named(data, raw):
    x = data()[0][:9]
    x[4, 1] += 100
    with pytest.warns(IntegerArithmeticWarning, match="at 1 of 9 rows of X: column 1 is beyond the range of integers"):
        quantize(raw, 4, X=x, arithmetic="integer")


@pytest.mark.parametrize(
    "options",
    [
        RAW,
        RAW | {"posterior": Sequential(levels=[-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0])},
        {"posterior": "sequential", "features": "linear"},
    ],
)
def test_integers_are_nearly_floats(data, fit, options):
    x, y = data()
    model = fit(DirectRegressor(**options), x, y).quantize(8, arithmetic="integer")
    rows = x.mean(axis=0) + np.random.default_rng(2).uniform(-4.9, 4.9, (400, 3)) * x.std(axis=0)
    mean, std = model.predict(rows, return_std=True)
    exact_mean, exact_std = model.with_arithmetic("float").predict(rows, return_std=True)
    assert np.abs(mean - exact_mean).max() < 0.005 * exact_mean.std()
    np.testing.assert_allclose(std, exact_std, rtol=1e-2)


@pytest.mark.parametrize("offset", [1e6, 1e12, 1e14])
def test_integers_are_nearly_floats_beside_a_large_offset(data, raw, offset):
    rows, model = data()[0], replace(quantize(raw, 4), offset=np.array([offset]))
    off = model.functions(rows) - model.with_arithmetic("integer").functions(rows)
    assert np.abs(off).max() < 0.005 * model.functions(rows).std() + 4 * np.spacing(offset)
