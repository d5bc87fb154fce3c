"""Shapley values of a model's predictions: exact against all orders of columns, in the units of the targets."""

from functools import cache
from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest

from pydirect import DirectRegressor, Fourier, Nystroem, Polynomial
from pydirect.explain import shapley, shapley_values

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4))
X[:, 3] = np.exp(X[:, 3])
Y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * X[:, 2] + 0.1 * RNG.standard_normal(120)
TWO = np.c_[Y, 50 + 10 * X[:, 3] + RNG.standard_normal(120)]
ROWS, BACKGROUND = 2.0 * X[:3], X[10:15]  # some beyond where linear inputs are clipped
OPTIONS = {
    "features": Nystroem(max_search_rows=100),
    "n_basis_functions": 40,
    "noise": "constant",
    "target_transform": None,
}


def predicted(model, of, rows):
    mean, std = model.predict(rows, return_std=True)
    return mean if of == "mean" else std**2


def by_coalitions(model, of, row, background):
    """Shapley values from public predictions at all mixtures of the row's columns and the background's."""
    d = len(row)

    def worth(joined):
        mixed = np.array(background)
        mixed[:, list(joined)] = row[list(joined)]
        return predicted(model, of, mixed).mean(axis=0)

    shares = []
    for j in range(d):
        rest, total = [k for k in range(d) if k != j], 0.0
        for size in range(d):
            weight = factorial(size) * factorial(d - 1 - size) / factorial(d)
            total = total + weight * sum(worth((*own, j)) - worth(own) for own in combinations(rest, size))
        shares.append(total)
    return np.array(shares)


CASES = {
    "landmarks": ({}, TWO),
    "fourier": ({"features": Fourier(max_search_rows=100)}, TWO),
    "linear": ({"features": "linear"}, TWO),
    "polynomial": ({"features": Polynomial(3)}, Y),
    "precomputed": ({"features": "precomputed"}, Y),
    "sequential": ({"features": Fourier(max_search_rows=100), "posterior": "sequential"}, Y),
    "log": ({"target_transform": "log"}, np.exp(Y)),
    "local": ({"local": 8}, Y),
    "varying": ({"noise": "varying"}, Y),
}


@cache
def model_of(case):
    parameters, targets = CASES[case]
    return DirectRegressor(**{**OPTIONS, **parameters}).fit(X, targets).calibrate(X, targets)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("of", ["mean", "variance"])
def test_values_are_those_of_all_coalitions(case, of):
    model, targets = model_of(case), CASES[case][1]
    found = shapley_values(model, ROWS, BACKGROUND, of=of)
    scale = np.abs(found.values).max(axis=(0, 1))
    assert found.standard_error is None and found.values.shape == (3, 4, *targets.shape[1:])
    np.testing.assert_allclose(found.prediction, predicted(model, of, ROWS), rtol=1e-10)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base, found.prediction, rtol=1e-9)
    expected = by_coalitions(model, of, ROWS[0], BACKGROUND)
    np.testing.assert_allclose(found.values[0] / scale, expected / scale, rtol=0, atol=1e-9)


@pytest.mark.parametrize("features", ["landmarks", "fourier"])
def test_deviations_are_those_of_contributions_of_drawn_functions(features):
    model = model_of(features)
    found = shapley_values(model, ROWS[:1], X[[20]])
    game = shapley._Game(model.model_, "mean", X[[20]], np.arange(4), 4)
    weights = model.prior_scale_[0] * model.posteriors_[0].sample_weights(20_000, np.random.default_rng(0))
    drawn = shapley.shares_by_enumeration(
        lambda rows: model.features_.transform(rows) @ weights.T, ROWS[0], X[[20]], np.arange(4), 4
    )
    assert game.weights_alone
    scale = model.calibration_scale_ * model.y_scale_[0]
    np.testing.assert_allclose(scale * drawn.std(axis=1), found.std[0, :, 0], rtol=0.03)


@pytest.mark.parametrize("of", ["mean", "variance"])
def test_columns_are_estimated_with_errors_where_coalitions_are_too_many(of, monkeypatch):
    x = np.c_[X, RNG.standard_normal((120, 2))]
    model = DirectRegressor(**OPTIONS).fit(x, Y)
    exact = shapley_values(model, x[:3], x[10:12], of=of)
    monkeypatch.setattr(shapley, "MOST_NUMBERS", 0)
    found, again = (shapley_values(model, x[:3], x[10:12], of=of, n_permutations=8) for _ in range(2))
    assert exact.standard_error is None and found.standard_error.shape == found.values.shape == (3, 6)
    assert (found.std is None) == (of == "variance")
    np.testing.assert_array_equal(found.values, again.values)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base, found.prediction, rtol=1e-9)
    assert np.abs(found.values - exact.values).max() < 6 * found.standard_error.max()


def test_by_default_rows_are_compared_with_the_mean_row():
    model = DirectRegressor("linear").fit(X, Y)
    found = shapley_values(model, ROWS)
    slopes = (model.predict(np.eye(4)) - model.predict(np.zeros((1, 4))))[None]
    np.testing.assert_allclose(found.values, (ROWS - X.mean(axis=0)) * slopes, rtol=1e-9)
    assert found.base == pytest.approx(model.predict(X.mean(axis=0)[None])[0])
    assert found.names == ("column 0", "column 1", "column 2", "column 3")


def test_a_column_of_categories_is_one_and_missing_numbers_are_held():
    frame = pd.DataFrame({"size": X[:, 0], "place": np.where(X[:, 1] > 0, "hill", "harbour"), "same": 1.0})
    frame.loc[3, "size"] = np.nan
    model = DirectRegressor(**{**OPTIONS, "features": Fourier(max_search_rows=100)}).fit(frame, Y)
    found = shapley_values(model, frame[:5], frame[5:9])
    assert found.names == ("size", "place", "same") and found.values.shape == (5, 3)
    assert not found.values[:, 2].any() and found.data[0, 1] == frame["place"][0]
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base, model.predict(frame[:5]), rtol=1e-9)


def test_what_cannot_be_explained_is_refused():
    model = DirectRegressor("precomputed").fit(X, Y)
    with pytest.raises(ValueError, match="background must be rows to compare with, got None"):
        shapley_values(model, ROWS)
    with pytest.raises(ValueError, match="of must be one of 'mean', 'variance', got 'std'"):
        shapley_values(model, ROWS, BACKGROUND, of="std")
    with pytest.raises(ValueError, match="n_permutations must be at least 4"):
        shapley_values(model, ROWS, BACKGROUND, n_permutations=2)
    with pytest.raises(TypeError, match=r"model must have predictive distributions, got int"):
        shapley_values(3, ROWS)
    with pytest.raises(ValueError, match="features"):
        shapley_values(model, ROWS, BACKGROUND[:, :2])
