"""Effects of columns and their shares of the variance of f."""

import itertools

import numpy as np
import pandas as pd
import pytest

from pydirect import DirectRegressor, Gaussian
from pydirect.explain import effects

RNG = np.random.default_rng(5)
X = RNG.standard_normal((300, 3))
Y = 2 * X[:, 0] + np.sin(2 * X[:, 1]) + 1.5 * X[:, 0] * X[:, 2] + 0.1 * RNG.standard_normal(300)


def test_linear_effects_are_coefficients_with_their_deviations():
    model = DirectRegressor("linear", posterior=Gaussian(n_noise_levels=1), target_transform=None).fit(X, Y)
    found = effects(model, X)
    deviation = model.posteriors_[0].covariance.diagonal() ** 0.5 * model.prior_scale_[0] * model.y_scale_[0]
    total = sum(effect.share for effect in found.main)
    assert total == pytest.approx(1.0, abs=0.1)
    for effect in found.main:
        j = int(effect.columns[0][1:])
        moved = (effect.values[0] - X[:, j].mean()) / X[:, j].std()
        np.testing.assert_allclose(effect.mean, moved * model.coef_[j] * model.y_scale_[0], atol=1e-10)
        np.testing.assert_allclose(effect.std, np.abs(moved) * deviation[j], atol=1e-10)
    assert all(effect.share < 1e-10 for effect in found.pairs)


def test_shares_are_those_of_all_combinations_of_values():
    levels = np.array([-1.0, 0.3, 2.0])
    table = levels[RNG.integers(3, size=(200, 3))]
    y = table[:, 0] * table[:, 1] + table[:, 2] + 0.05 * RNG.standard_normal(200)
    model = DirectRegressor(n_basis_functions=27, noise="constant", target_transform=None).fit(table, y)
    mass = [np.array([(table[:, j] == level).mean() for level in levels]) for j in range(3)]
    grid = np.array(list(itertools.product(levels, repeat=3)))
    f = model.predict(grid).reshape(3, 3, 3)
    f = f - np.einsum("i,j,k,ijk", *mass, f)
    whole = np.einsum("i,j,k,ijk", *mass, f**2)
    one = [np.einsum("j,k,ijk->i", mass[1], mass[2], f), np.einsum("i,k,ijk->j", mass[0], mass[2], f)]
    one.append(np.einsum("i,j,ijk->k", mass[0], mass[1], f))
    pair = np.einsum("k,ijk->ij", mass[2], f) - one[0][:, None] - one[1]
    expected = {(f"x{j}",): mass[j] @ one[j] ** 2 / whole for j in range(3)}
    expected["x0", "x1"] = np.einsum("i,j,ij", mass[0], mass[1], pair**2) / whole
    found = effects(model, table)
    shares = {effect.columns: effect.share for effect in (*found.main, *found.pairs)}
    for columns, share in expected.items():
        assert shares[columns] == pytest.approx(share, abs=0.06)
    assert found.total["x0"][0] == pytest.approx(expected["x0",] + expected["x0", "x1"], abs=0.06)
    np.testing.assert_allclose(found.pairs[0].mean, pair, atol=0.3)


def test_deviations_shrink_with_rows_and_the_table_shows_them():
    few = effects(DirectRegressor(n_basis_functions=40).fit(X[:40], Y[:40]), X)
    many = effects(DirectRegressor(n_basis_functions=100).fit(X, Y), X)
    assert many.pairs[0].columns == ("x0", "x2")
    assert many.pairs[0].std.mean() < few.pairs[0].std.mean()
    text = str(many)
    assert "x0 × x2" in text and "±" in text
    assert all(effect.share > 0 for effect in many.main)


def test_categories_of_a_frame_are_one_column():
    frame = pd.DataFrame({"x": X[:, 0], "colour": np.array(["red", "blue", "green"])[RNG.integers(3, size=300)]})
    y = frame["x"] + (frame["colour"] == "red") * 3.0 + 0.1 * RNG.standard_normal(300)
    found = effects(DirectRegressor(n_basis_functions=60).fit(frame, y), frame)
    assert {effect.columns[0] for effect in found.main} == {"x", "colour"}
    colour = next(effect for effect in found.main if effect.columns == ("colour",))
    assert colour.mean.shape == (3,) and np.ptp(colour.mean) == pytest.approx(3.0, abs=0.2)


def test_wrong_models_are_refused():
    with pytest.raises(ValueError, match="Gaussian weights"):
        effects(DirectRegressor("linear", posterior="mean_field").fit(X, Y), X)
    with pytest.raises(TypeError, match="DirectRegressor"):
        effects("model", X)
    with pytest.raises(ValueError, match="output"):
        effects(DirectRegressor(n_basis_functions=20).fit(X, Y), X, output=1)


def test_columns_that_do_not_vary_have_no_table():
    found = effects(DirectRegressor("linear").fit(X, Y), np.ones((20, 3)))
    assert not found.main and not found.pairs and str(found) == "no column varies"
