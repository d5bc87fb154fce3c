"""The error of integer arithmetic is within its bound."""

from dataclasses import replace

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, MeanField, Sequential, quantize

RAW = {"features": Fourier(rank_inputs=False), "posterior": "sequential", "n_basis_functions": 80}


@pytest.mark.parametrize(
    "options",
    [RAW, RAW | {"posterior": Sequential(levels="power_of_two")}, {"posterior": "sequential", "features": "linear"}],
)
def test_the_error_of_integers_is_within_its_bound(data, fit, options):
    x, y = data()
    model = fit(DirectRegressor(**options), x, y).quantize(8, arithmetic="integer")
    rows = x.mean(axis=0) + np.random.default_rng(2).uniform(-4.9, 4.9, (400, 3)) * x.std(axis=0)
    error = np.abs(model.functions(rows) - model.with_arithmetic("float").functions(rows)).max(axis=(0, 2))
    assert (error <= model.rounding_bound()).all()
    # The bound adds up worst cases: it is not much beyond what a few hundred terms can do.
    assert (model.rounding_bound() < 200 * error).all()
    mean, std = model.predict(rows, return_std=True)
    exact_mean, exact_std = model.with_arithmetic("float").predict(rows, return_std=True)
    assert (np.abs(mean - exact_mean) <= model.rounding_bound()).all()
    np.testing.assert_allclose(std, exact_std, rtol=5e-3)


@pytest.mark.parametrize("features", ["fourier", "linear"])
@pytest.mark.parametrize(
    "levels", [[-1.0, 0.003, 1.0], [-1.0, -0.5, -0.003, 0.003, 0.5, 1.0], [-0.9, -0.31, 0.0, 0.0029, 0.17]]
)
def test_the_error_is_within_its_bound_for_levels_of_any_values(data, fit, features, levels):
    x, y = data()
    y = y if len(levels) > 3 else 0.003 * x[:, 0]  # small weights: the tiny level is the best one of three
    features = Fourier(rank_inputs=False) if features == "fourier" else features
    posterior = MeanField(n_levels=len(levels), levels=[levels])  # own scales need a zero among the levels
    options = {"features": features, "n_basis_functions": 40, "posterior": posterior}
    model = fit(DirectRegressor(**options), x, y)
    rows = x.mean(axis=0) + np.random.default_rng(3).uniform(-7.99, 7.99, (1000, 3)) * x.std(axis=0)
    for method in ("draw", "most_probable"):
        quantised = quantize(model, 4, method, frequency_bits=8)
        assert features == "linear" or len(quantised.program.groups) > 1
        error = np.abs(quantised.functions(rows) - quantised.with_arithmetic("integer").functions(rows)).max(
            axis=(0, 2)
        )
        assert (error <= quantised.rounding_bound()).all()


def test_inputs_of_unequal_amplitudes_are_within_the_bound(data, raw):
    x = data()[0]
    model = quantize(raw, 4, "draw", frequency_bits=8)
    features = replace(model.basis.features.map, linear_scale=np.array([1.0, 0.7, 0.01]))
    model = replace(model, basis=replace(model.basis, features=replace(model.basis.features, map=features)))
    assert sum(g.kind == "linear" for g in model.program.groups) == len(model.program.linear) > 1
    rows = x.mean(axis=0) + np.random.default_rng(4).uniform(-7.99, 7.99, (400, 3)) * x.std(axis=0)
    np.testing.assert_array_equal(model.totals(rows), model.program.totals(rows))
    error = np.abs(model.functions(rows) - model.with_arithmetic("integer").functions(rows)).max(axis=(0, 2))
    assert (error <= model.rounding_bound()).all()


@pytest.mark.parametrize("offset", [1e6, 1e12, 1e14])
def test_the_bound_holds_beside_a_large_offset(data, raw, offset):
    model = quantize(raw, 4, "draw")
    model = replace(model, offset=np.array([offset]))
    rows = data()[0]
    integer = model.with_arithmetic("integer")
    assert (np.abs(model.functions(rows) - integer.functions(rows)).max() <= model.rounding_bound()).all()
    assert (np.abs(model.predict(rows) - integer.predict(rows)).max() <= model.rounding_bound()).all()


def test_rows_beyond_the_inputs_of_integers_are_told(data, raw):
    model, x = quantize(raw, 4, arithmetic="integer"), data()[0]
    assert model.in_range(x).all()
    assert not model.in_range(x + 1e3).any()


def test_precomputed_columns_keep_to_the_bound_whatever_their_range(fit):
    rng = np.random.default_rng(3)
    phi = rng.standard_normal((120, 4)) * np.array([1e-3, 1.0, 40.0, 3000.0])
    y = phi @ (np.array([1.0, -2.0, 1.5, 0.5]) / phi.std(axis=0)) + 0.1 * rng.standard_normal(120)
    model = fit(DirectRegressor(features="precomputed", posterior="sequential"), phi, y)
    with pytest.raises(ValueError, match="X must be given for integers of precomputed columns"):
        model.quantize(8, arithmetic="integer")
    quantised = model.quantize(8, X=phi, levels="even", n_levels=255, arithmetic="integer")
    assert (quantised.input_ranges()[:, 1] >= 2 * np.abs(phi).max(axis=0)).all()
    difference = quantised.functions(phi) - quantised.with_arithmetic("float").functions(phi)
    assert np.abs(difference).max() <= quantised.rounding_bound()[0]
    assert quantised.rounding_bound()[0] < 0.02 * y.std()
    np.testing.assert_array_equal(quantised.totals(phi), quantised.program.totals(phi))
