"""Columns of latitudes and longitudes."""

import numpy as np
import pandas as pd
import pytest

import pydirect
from pydirect import Columns, DirectRegressor
from pydirect.explain import effects, shapley_values
from pydirect.plotting import MapDisplay, ShapleyDisplay
from pydirect.tables.encoding import unit_vectors

RNG = np.random.default_rng(0)
WHERE = RNG.standard_normal((400, 3))
WHERE /= np.linalg.norm(WHERE, axis=1, keepdims=True)
LATITUDE, LONGITUDE = np.rad2deg(np.arcsin(WHERE[:, 2])), np.rad2deg(np.arctan2(WHERE[:, 1], WHERE[:, 0]))
F = np.sin(4 * WHERE[:, 0]) + np.cos(3 * WHERE[:, 2] + WHERE[:, 1])
Y = F + 0.05 * RNG.standard_normal(400)
X = pd.DataFrame({"lat": LATITUDE, "lon": LONGITUDE, "z": RNG.standard_normal(400)})
PLACES = Columns(coordinates=("lat", "lon"))


def test_places_are_unit_vectors_of_one_length_scale():
    np.testing.assert_allclose(unit_vectors(LATITUDE, LONGITUDE), WHERE, atol=1e-12)
    columns = Columns(coordinates=("lat", "lon")).fit(X)
    assert columns.get_feature_names_out().tolist() == ["lat, lon: x", "lat, lon: y", "lat, lon: z", "z"]
    np.testing.assert_allclose(columns.transform(X)[:, :3], WHERE, atol=1e-12)
    model = DirectRegressor(n_basis_functions=100, columns=PLACES).fit(X, Y)
    assert model.columns_.groups.tolist() == [0, 0, 0, -1]
    hyperparameters, inputs = model.features_.hyperparameters, model.features_.input_map
    np.testing.assert_array_equal(hyperparameters.length_scales[:3], hyperparameters.length_scales[0])
    assert np.ptp(inputs.scale[:3]) < 1e-12 and inputs.scored.tolist() == [3]


def test_kernel_depends_on_distances_through_the_globe():
    model = DirectRegressor(n_basis_functions=100, columns=PLACES).fit(X, Y)
    kernel, inputs = model.features_.hyperparameters, model.features_.input_map
    turn = np.linalg.qr(RNG.standard_normal((3, 3)))[0]
    turn *= np.linalg.det(turn)
    for smooth in (True, False):
        own = pydirect.features.KernelHyperparameters(
            0.1, float(smooth), kernel.length_scales, float(not smooth), 0.7, 0.0, 0
        )
        rows = [np.column_stack([w, np.zeros((400, len(inputs.mean) - 3))]) for w in (WHERE, WHERE @ turn)]
        found, expected = (own.covariance(x, x) for x in (inputs.transform(r) - inputs.transform(0 * r) for r in rows))
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_date_line_and_poles_are_no_edges():
    model = DirectRegressor(n_basis_functions=200, columns=PLACES).fit(X, Y)
    west, east = (X.assign(lon=lon) for lon in (-170.0, 190.0))
    np.testing.assert_allclose(model.predict(west), model.predict(east), atol=1e-8)
    pole = X.assign(lat=90.0, z=0.0)
    np.testing.assert_allclose(model.predict(pole), model.predict(pole)[0], atol=1e-8)
    flat = DirectRegressor(n_basis_functions=200).fit(X[:200], Y[:200])
    round_ = DirectRegressor(n_basis_functions=200, columns=PLACES).fit(X[:200], Y[:200])
    error, flat_error = (np.sqrt(np.mean((m.predict(X[200:]) - F[200:]) ** 2)) for m in (round_, flat))
    assert error < 0.5 * flat_error


def test_missing_places_files_and_several_pairs(tmp_path):
    lacking = X.assign(lat=np.where(np.arange(400) % 10 == 0, np.nan, X["lat"]))
    model = DirectRegressor(n_basis_functions=80, columns=PLACES).fit(lacking, Y)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(pydirect.load(tmp_path / "model.npz").predict(lacking), model.predict(lacking))
    both = Columns(coordinates=[("lat", "lon"), ("to_lat", "to_lon")]).fit(X.assign(to_lat=LATITUDE[::-1], to_lon=1.0))
    assert both.encoding_.groups.tolist() == [0, 0, 0, -1, 3, 3, 3]
    gradient, _ = (
        DirectRegressor(n_basis_functions=40, columns=PLACES, noise="constant", local=False, target_transform=None)
        .fit(X, Y)
        .predict_gradient(X[:5])
    )
    assert np.isnan(gradient[:, :2]).all() and np.isfinite(gradient[:, 2]).all()
    numbers = DirectRegressor(n_basis_functions=40, columns=Columns(coordinates=(0, 1))).fit(X.to_numpy(), Y)
    assert numbers.predict(X.to_numpy()).shape == (400,)


def test_places_are_one_column_of_effects_and_contributions():
    model = DirectRegressor(n_basis_functions=80, columns=PLACES, local=False, target_transform=None).fit(X, Y)
    found = effects(model, X)
    assert [effect.columns for effect in found.main] == [("lat, lon",), ("z",)]
    assert found.main[0].share > 0.95 and found.total["lat, lon"][0] > 0.95
    rows, background = X[["z", "lon", "lat"]][:3], X[["z", "lon", "lat"]][3:6]  # the longitude first
    model = DirectRegressor(n_basis_functions=80, columns=PLACES, local=False, target_transform=None).fit(
        X[["z", "lon", "lat"]], Y
    )
    shares = shapley_values(model, rows, background)
    assert shares.names == ("z", "lat, lon") and shares.values.shape == (3, 2)
    assert shares.data[0].tolist() == [rows["z"][0], f"{rows['lat'][0]}, {rows['lon'][0]}"]
    np.testing.assert_allclose(shares.base + shares.values.sum(axis=1), model.predict(rows), rtol=1e-9)

    def worth(row, z):  # of the place, by the two orders of two players
        joined = [row.assign(z=z["z"]), z.assign(z=row["z"])]
        own, other = (model.predict(each)[0] for each in joined)
        return 0.5 * (own - model.predict(z)[0] + model.predict(row)[0] - other)

    each = [worth(rows[:1], background[k : k + 1].set_axis([0])) for k in range(3)]
    assert shares.values[0, 1] == pytest.approx(np.mean(each), abs=1e-9)
    ShapleyDisplay(shares).plot()


@pytest.mark.parametrize(
    ("coordinates", "frame", "error", "message"),
    [
        (("lat", "lon"), X.assign(lat=91.0), ValueError, "'lat'.* from -90 to 90 degrees, got 91"),
        (("lat", "lon"), X.assign(lon=-181.0), ValueError, "'lon'.* from -180 to 360"),
        (("lon", "lat"), X, ValueError, "from -90 to 90"),
        (("lat", "elsewhere"), X, ValueError, "coordinates must be names or numbers"),
        (("lat", "lat"), X, ValueError, "different columns"),
        (("lat",), X, TypeError, "latitude and longitude"),
        ("lat", X, TypeError, "latitude and longitude"),
        (("lat", "z"), X.assign(z="here"), TypeError, "columns of numbers"),
    ],
)
def test_wrong_coordinates_are_refused(coordinates, frame, error, message):
    with pytest.raises(error, match=message):
        DirectRegressor(n_basis_functions=20, columns=Columns(coordinates=coordinates)).fit(frame, Y)


def test_new_rows_must_be_on_the_globe():
    model = DirectRegressor(n_basis_functions=20, columns=PLACES).fit(X, Y)
    with pytest.raises(ValueError, match="degrees"):
        model.predict(X.assign(lat=100.0))


def test_map():
    pytest.importorskip("matplotlib").use("Agg")
    model = DirectRegressor(n_basis_functions=60, columns=PLACES).fit(X, Y)
    drawn = MapDisplay.from_estimator(model, X, resolution=10)
    assert drawn.mean.shape == (10, 10) and (drawn.std > 0).all() and len(drawn.ax_) == 2
    assert MapDisplay.from_estimator(model, X, ("lat", "lon"), resolution=5, target_name="rain").longitude.size == 5
    with pytest.raises(ValueError, match="coordinates"):
        MapDisplay.from_estimator(DirectRegressor("linear").fit(X, Y), X)
    with pytest.raises(ValueError, match="shape"):
        MapDisplay([0.0, 1.0], [0.0], [[1.0]], [[1.0]])
