import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from pydirect import DirectRegressor, Fourier, MeanField, Polynomial, Sequential

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (60, 2)) * [1, 100]
Y = np.sin(3 * X[:, 0]) + (X[:, 1] / 100) ** 2 + 0.1 * RNG.standard_normal(60)
NEW = RNG.uniform(-2.5, 2.5, (9, 2)) * [1, 100]
N_DRAWS = 2000

MODELS = {
    "nystroem": {},
    "few landmarks": {"n_basis_functions": 30},
    "fourier": {"features": "fourier", "n_basis_functions": 100},
    "linear": {"features": "linear"},
    "polynomial": {"features": Polynomial(degree=3)},
    "precomputed": {"features": "precomputed"},
    "mean field": {"posterior": "mean_field", "n_basis_functions": 40, "features": Fourier(length_scale=1.0)},
    "mixture": {"posterior": MeanField(n_components=2), "n_basis_functions": 40},
    "sequential": {"n_basis_functions": 40, "posterior": Sequential(n_levels=63, keep_factor=True)},
    "sqrt": {"target_transform": "sqrt"},
    "log": {"target_transform": "log", "n_basis_functions": 30},
}
_FITTED = {}


def fitted(name):
    if name not in _FITTED:
        positive = "target_transform" in MODELS[name]
        x = X / [1, 100] if name == "precomputed" else X
        options = {"noise": "constant", "max_iter": 200, **MODELS[name]}
        _FITTED[name] = DirectRegressor(**options).fit(x, Y + 3 if positive else Y)
    return _FITTED[name]


@pytest.mark.parametrize("name", [name for name in MODELS if "transform" not in "".join(MODELS[name])])
def test_moments_are_those_of_predict_parts(name):
    model = fitted(name).calibrate(X[:20], Y[:20])
    mean, deviation, _ = model.predict_parts(NEW)
    values = model.sample_functions(N_DRAWS, 1)(NEW) - mean[:, None]
    assert values.shape == (len(NEW), N_DRAWS)
    assert (np.abs(values.mean(axis=1)) < 4.5 * deviation / np.sqrt(N_DRAWS)).all()
    tails = np.sqrt((values**4).mean(axis=1) - deviation**4)
    assert (np.abs((values**2).mean(axis=1) - deviation**2) < 4.5 * tails / np.sqrt(N_DRAWS)).all()


def test_values_drawn_at_rows_are_the_same_at_every_call_of_a_seed():
    model = fitted("few landmarks")
    drawn = model.sample_y(NEW, 3, noise=False)
    assert_array_equal(drawn, model.sample_y(NEW, 3, random_state=0, noise=False))
    assert (drawn != model.sample_y(NEW, 3, random_state=1, noise=False)).all()
    assert (np.abs(drawn[1:] - model.sample_y(NEW[1:], 3, noise=False)) > 1e-9).any(), "of other rows: other functions"


def test_they_correlate_as_joint_draws_do():
    model = fitted("few landmarks")
    joint = np.corrcoef(model.sample_y(NEW, 4000, 2, noise=False))
    errors = [np.corrcoef(model.sample_functions(2000, seed)(NEW)) - joint for seed in range(3)]
    assert np.sqrt(np.mean(np.square(errors))) < 0.1  # frequencies are random


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_finite_differences(name):
    model, unit = fitted(name), np.array([1, 1 if name == "precomputed" else 100])
    rows = NEW / [100, 100] * unit if name == "precomputed" else NEW
    functions = model.sample_functions(4, 1)
    found = functions.gradient(rows)
    assert found.shape == (len(NEW), 4, 2)
    for column in range(2):
        step = np.where(np.arange(2) == column, 1e-5 * unit, 0.0)
        expected = (functions(rows + step) - functions(rows - step)) / (2 * step[column])
        assert_allclose(found[:, :, column], expected, rtol=1e-3, atol=2e-4 / unit[column])
    assert_allclose(functions[2].gradient(rows), found[:, 2], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["nystroem", "few landmarks", "fourier", "linear", "polynomial"])
def test_gradients_of_mean_and_deviation_are_those_of_finite_differences(name):
    model, unit = fitted(name), np.array([1, 100])
    found = model.predict_gradient(NEW)
    for column in range(2):
        step = np.where(np.arange(2) == column, 1e-4 * unit, 0.0)
        above, below = model.predict_parts(NEW + step)[:2], model.predict_parts(NEW - step)[:2]
        for own, a, b in zip(found, above, below, strict=True):
            assert own.shape == (9, 2)
            assert_allclose(own[:, column], (a - b) / (2 * step[column]), rtol=2e-3, atol=1e-4 / unit[column])


def test_gradients_without_closed_forms_are_refused():
    with pytest.raises(ValueError, match="predict_gradient is not available with discrete weights"):
        fitted("sequential").predict_gradient(NEW)
    with pytest.raises(ValueError, match="not available with a model of log"):
        fitted("log").predict_gradient(NEW)
    with pytest.raises(ValueError, match="not available with a local process"):
        DirectRegressor(noise="constant", n_basis_functions=10, local=5).fit(X, Y).predict_gradient(NEW)


@pytest.mark.parametrize("name", ["nystroem", "fourier", "linear", "mean field", "log"])
def test_a_function_is_the_same_whatever_it_is_asked_with(name):
    functions = fitted(name).sample_functions(6, 3)
    values = functions(NEW)
    assert_allclose(np.vstack([functions(row[None]) for row in NEW]), values, rtol=1e-8, atol=1e-8)
    assert_allclose(functions[4](NEW[::-1])[::-1], values[:, 4], rtol=1e-8, atol=1e-8)
    assert_allclose(functions[-2](NEW), values[:, 4], rtol=1e-8, atol=1e-8)
    assert_allclose(functions[1:4](NEW), values[:, 1:4], rtol=1e-8, atol=1e-8)
    assert_allclose([f(NEW) for f in functions], values.T, rtol=1e-8, atol=1e-8)
    assert_array_equal(fitted(name).sample_functions(6, 3)(NEW), values)
    assert np.abs(fitted(name).sample_functions(6, 4)(NEW) - values).max() > 1e-3


def test_the_largest_and_the_smallest_candidate_are_found_over_blocks(monkeypatch):
    model = fitted("fourier")
    candidates = np.random.default_rng(5).uniform(-2, 2, (70, 2)) * [1, 100]
    functions = model.sample_functions(5, 3)
    values = functions(candidates)
    monkeypatch.setattr("pydirect.statistics.gaussian.PREDICTION_BYTES", 1)
    assert_array_equal(functions.argmax(candidates), values.argmax(axis=0))
    assert_array_equal(functions.argmin(candidates), values.argmin(axis=0))
    assert functions[2].argmax(candidates) == values[:, 2].argmax()


def test_several_outputs_have_an_axis_of_their_own():
    model = DirectRegressor(noise="constant", n_basis_functions=30).fit(X, np.column_stack([Y, -3 * X[:, 1]]))
    functions = model.sample_functions(500, 1)
    mean, deviation, _ = model.predict_parts(NEW)
    values = functions(NEW)
    assert values.shape == (9, 2, 500)
    assert (np.abs(values.mean(axis=2) - mean) < 4.5 * deviation / np.sqrt(500)).all()
    assert np.abs(np.corrcoef(values[0])[0, 1]) < 0.2  # outputs are drawn independently
    assert functions.argmax(NEW).shape == (2, 500)
    assert functions[0](NEW).shape == (9, 2) and functions[0].argmin(NEW).shape == (2,)
    step = np.array([1e-5, 0])
    expected = (functions[:2](NEW + step) - functions[:2](NEW - step)) / 2e-5
    assert_allclose(functions[:2].gradient(NEW)[..., 0], expected, rtol=1e-3, atol=1e-3)


def test_tables_with_categories_are_taken_as_in_fit():
    rows = {"size": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue"), "age": X[:, 1]}
    table = pd.DataFrame(rows)
    table.loc[::7, "age"] = np.nan
    functions = DirectRegressor(noise="constant").fit(table, Y).sample_functions(3)
    assert functions(table).shape == (60, 3)
    complete = pd.DataFrame({"size": NEW[:, 0], "colour": ["red", "blue", "green"] * 3, "age": NEW[:, 1]})
    found = functions.gradient(complete)
    assert found.shape == (9, 3, 3)
    assert np.isnan(found[:, :, 1]).all() and np.isfinite(found[:, :, [0, 2]]).all()
    moved = complete.assign(age=complete["age"] + 1e-3)
    back = complete.assign(age=complete["age"] - 1e-3)
    assert_allclose(found[:, :, 2], (functions(moved) - functions(back)) / 2e-3, rtol=1e-3, atol=1e-6)
    with pytest.raises(ValueError, match="X must have no missing numbers for gradients, got 9"):
        functions.gradient(table)


def test_stored_draws_are_the_most_there_are():
    model = DirectRegressor(posterior=Sequential(n_levels=63, n_draws=8), n_basis_functions=20).fit(X, Y)
    assert model.sample_functions(8)(NEW).shape == (9, 8)
    with pytest.raises(ValueError, match="n_functions must be at most 8, the fit's n_draws, got 9"):
        model.sample_functions(9)


def test_of_a_transformers_features_there_are_values_but_no_gradients():
    functions = DirectRegressor(StandardScaler()).fit(X, Y).sample_functions(3)
    assert functions(NEW).shape == (9, 3)
    with pytest.raises(TypeError, match="features must be built in to have gradients"):
        functions.gradient(NEW)


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="n_functions must be at least 1, got 0"):
        fitted("linear").sample_functions(0)
    with pytest.raises(ValueError, match="X has 3 features"):
        fitted("linear").sample_functions(2)(np.zeros((2, 3)))
    with pytest.raises(IndexError):
        fitted("linear").sample_functions(2)[2]
