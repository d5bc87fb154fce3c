"""`DirectRegressor` on growing and shrinking data: equal to the batch on the same feature map, whatever the blocks."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import PolynomialFeatures

import pydirect
from pydirect import (
    Columns,
    DirectRegressor,
    FeatureMapWarning,
    Fourier,
    Gaussian,
    Nystroem,
    Polynomial,
    RunningStatistics,
    Sequential,
)

N = 300
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 3))
Y = 50 + 7 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * RNG.standard_normal(N)
TWO = np.c_[Y, 1e-3 * X[:, 1] + 1e-4 * RNG.standard_normal(N)]
WEIGHT = RNG.integers(0, 3, N).astype(float)
NEW = RNG.standard_normal((20, 3))
SMALL = {"features": Nystroem(max_search_rows=60), "n_basis_functions": 30}
MODELS = {
    "nystroem": SMALL,
    "fourier": {"features": Fourier(max_search_rows=60), "n_basis_functions": 30},
    "fixed length-scale": {"features": Fourier(length_scale=1.5), "n_basis_functions": 30},
    "linear": {"features": "linear"},
    "polynomial": {"features": "polynomial"},
    "transformer": {"features": PolynomialFeatures(2)},
    "fixed noise": {"features": "polynomial", "noise": 0.09},
}


def fixed(y=Y, **parameters):
    return DirectRegressor(**parameters).fit_features(X[:200], y[:200])


def grown(model, parts, y=Y, weight=None):
    for i in parts:
        model.partial_fit(X[i], y[i], None if weight is None else weight[i])
    return model


def cut(n_parts, seed=1):
    return np.array_split(np.random.default_rng(seed).permutation(N), n_parts)


def assert_equal_to_rounding(first, second, rtol=2e-8):
    for a, b in zip(first.predict(NEW, return_std=True), second.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max())
    assert first.elbo_ == pytest.approx(second.elbo_, rel=rtol)
    assert first.total_weight_ == pytest.approx(second.total_weight_)
    np.testing.assert_allclose(first.noise_variance_, second.noise_variance_, rtol=1e-6)


# Growing


@pytest.mark.parametrize("n_parts", [2, 10])
@pytest.mark.parametrize("name", MODELS)
def test_blocks_in_any_order_give_the_model_of_all_rows(name, n_parts):
    whole = fixed(**MODELS[name]).partial_fit(X, Y)
    assert_equal_to_rounding(grown(fixed(**MODELS[name]), cut(n_parts)), whole)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"posterior": Gaussian(n_noise_levels=1)},
        {"noise": 0.1},
        {"posterior": Sequential(n_levels=255, keep_factor=True)},
        {"posterior": "mean_field", "noise": 0.5},
        {"posterior": "mean_field"},
    ],
)
def test_with_features_that_need_no_data_it_is_fit(parameters):
    phi = np.c_[np.ones(N), X, X**2]
    model = DirectRegressor("precomputed", **parameters)
    for i in cut(7):
        model.partial_fit(phi[i], Y[i])
    batch = DirectRegressor("precomputed", **parameters).fit(phi, Y)
    np.testing.assert_allclose(model.predict(phi), batch.predict(phi), rtol=1e-10)
    assert model.elbo_ == pytest.approx(batch.elbo_, rel=1e-11)


def test_fit_on_the_same_rows_has_the_same_map_and_model():
    """With all rows in the sample, a batch fit has the same landmarks and hyperparameters."""
    batch = DirectRegressor(**SMALL, noise="constant").fit(X, Y)  # sums do not show whether it varies
    model = DirectRegressor(**SMALL).fit_features(X, Y).partial_fit(X, Y)
    np.testing.assert_array_equal(batch.features_.map.landmarks, model.features_.map.landmarks)
    assert model.mean_missing_variance_ == pytest.approx(batch.mean_missing_variance_, rel=1e-7)
    assert_equal_to_rounding(model, batch, 1e-6)


def moved(first, then, size=1):
    """Feed blocks of rows to a model whose map is fixed by other ones; return the last message."""
    model = DirectRegressor(**SMALL).fit_features(first, Y[: len(first)])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(0, len(then), size):
            model.partial_fit(then[i : i + size], Y[: len(then)][i : i + size])
    return str(told[-1].message) if told else ""


@pytest.mark.parametrize("size", [1, 20, 100])
def test_rows_that_have_moved_away_from_the_map_are_told(size):
    shifted = X[:100] + np.array([0.0, 5.0, 0.0])
    assert "in 1 columns, the first of them number 1: it cannot follow them" in moved(X[100:], shifted, size)
    assert moved(X[100:], X[:100], size) == ""
    assert moved(X[100:], shifted[:49], size) == ""  # few may be outliers
    heavy = np.random.default_rng(1).standard_t(1, (N, 3))
    assert moved(heavy[100:], heavy[:100], size) == ""


def test_location_and_scale_of_the_targets_follow_the_data():
    model = fixed(features="linear")
    model.partial_fit(X[:100], Y[:100]).partial_fit(X[100:], 1e6 + 100 * Y[100:])
    together = np.r_[Y[:100], 1e6 + 100 * Y[100:]]
    assert model.y_mean_ == pytest.approx(together.mean())
    assert model.y_scale_ == pytest.approx(together.std())
    assert_equal_to_rounding(model, fixed(features="linear").partial_fit(X, together))


def test_several_outputs_and_weights():
    whole = fixed(TWO, **SMALL).partial_fit(X, TWO, WEIGHT)
    model = grown(fixed(TWO, **SMALL), cut(5), TWO, WEIGHT)
    assert model.predict(NEW).shape == (20, 2)
    assert_equal_to_rounding(model, whole)
    repeated = np.repeat(np.arange(N), WEIGHT.astype(int))
    twice = fixed(TWO, **SMALL).partial_fit(X[repeated], TWO[repeated])
    np.testing.assert_allclose(twice.statistics_.cross, model.statistics_.cross, atol=1e-9)


@pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"posterior": "sequential"}),
        ({"posterior": "mean_field"}, {"posterior": "sequential"}),
        ({"posterior": Sequential(levels=[-1.0, 0.0, 1.0])}, {"posterior__levels": [-2.0, -1.0, 0.0, 1.0, 2.0]}),
        ({"posterior": "sequential"}, {"posterior": Sequential(levels=[-1.0, 0.0, 1.0])}),
        ({"posterior": Sequential()}, {"posterior__n_levels": 7}),
    ],
)
def test_the_posterior_may_change_between_blocks(before, after):
    model = fixed(features="polynomial", noise=0.2, **before).partial_fit(X[:150], Y[:150])
    model.set_params(**after).partial_fit(X[150:], Y[150:]).forget(X[:20], Y[:20])
    assert model.total_weight_ == N - 20
    elbo = model.partial_fit(X[:20], Y[:20]).elbo_
    assert elbo == model.fit_statistics(model.statistics_).elbo_


# Shrinking


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_are_forgotten_were_never_seen(name):
    never = fixed(**MODELS[name]).partial_fit(X[:200], Y[:200])
    model = fixed(**MODELS[name]).partial_fit(X, Y)
    assert_equal_to_rounding(model.forget(X[200:], Y[200:]), never)


def test_what_cannot_be_forgotten_changes_nothing():
    model = fixed(features="linear").partial_fit(X, Y)
    before, statistics = model.predict(NEW), model.statistics_.copy()
    for x, y, message in [
        (1000 * X[:20], Y[:20], "never added"),
        (np.tile(X, (2, 1)), np.tile(Y, 2), "cannot remove 600 samples from 300"),
        (X, Y, "must leave some of the rows seen, got all of them"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.forget(x, y)
        np.testing.assert_array_equal(model.predict(NEW), before)
        np.testing.assert_array_equal(model.statistics_.scatter, statistics.scatter)
    with pytest.raises(NotFittedError, match="has no statistics"):
        DirectRegressor(features="linear").forget(X, Y)


# What is refused, and what then is left


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.where(X == X[4, 0], np.nan, X), Y), "NaN"),
        ((X[:, :2], Y), "3 features"),
        ((X, TWO), "y must have 1 outputs, as before, got 2"),
        ((X, Y * 1e95), "y must be at most 1e"),
        ((X, Y, -WEIGHT), "sample_weight must not be negative"),
    ],
)
def test_rows_that_are_refused_are_not_counted(arguments, message):
    model = fixed(features="linear", columns=Columns(missing="raise")).partial_fit(X[:100], Y[:100])
    before = model.predict(NEW)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*arguments)
    np.testing.assert_array_equal(model.predict(NEW), before)
    assert_equal_to_rounding(model.partial_fit(X[100:], Y[100:]), fixed(features="linear").partial_fit(X, Y))


@pytest.mark.parametrize("by_file", [False, True])
def test_nothing_is_added_to_rows_that_are_lost(tmp_path, by_file):
    model = DirectRegressor(**SMALL).fit(X, Y)
    if by_file:
        model.save(tmp_path / "m.pydirect")
        model = pydirect.load(tmp_path / "m.pydirect")
    before = model.predict(NEW)
    with pytest.raises(ValueError, match="the earlier rows must be known to go on"):
        model.partial_fit(X[:10], Y[:10])
    np.testing.assert_array_equal(model.predict(NEW), before)
    assert model.fit_features(X, Y).partial_fit(X[:10], Y[:10]).total_weight_ == 10


def test_fit_starts_afresh():
    model = fixed(features="linear").partial_fit(X[:50], 3 * Y[:50])
    assert (model.fit(X, Y).predict(NEW) == DirectRegressor(features="linear").fit(X, Y).predict(NEW)).all()
    assert not hasattr(model, "statistics_")


def test_features_of_a_kernel_need_targets_and_others_do_not():
    with pytest.raises(ValueError, match="y must be given where the kernel or a transform"):
        DirectRegressor(**SMALL).fit_features(X)
    bounds = [[-3.0, -3.0, -3.0], [3.0, 3.0, 3.0]]
    model = DirectRegressor("linear").fit_features(bounds).partial_fit(X[:5], Y[:5]).partial_fit(X[5:], Y[5:])
    np.testing.assert_array_equal(model.features_.input_map.mean, 0.0)
    np.testing.assert_array_equal(model.features_.input_map.scale, 3.0)
    assert model.predict(NEW).shape == (20,)


def test_hyperparameters_are_of_as_many_targets_as_come():
    with pytest.raises(ValueError, match="y must have 1 outputs, as before"):
        fixed(**SMALL).partial_fit(X, TWO)
    assert fixed(features="linear").partial_fit(X, TWO).predict(NEW).shape == (20, 2)


@pytest.mark.parametrize("size", [1e-146, 1e-165, 1e-300])
def test_deviations_whose_squares_vanish_are_refused(size):
    model = fixed(features="linear")
    for y in (size * Y, 1e-7 * size * np.sign(X[:, 0]), np.c_[Y, size * Y]):
        for act in (model.partial_fit, model.fit_stream):
            with pytest.raises(ValueError, match="y must vary by at least 1e-145 or not at all"):
                act(X, y)
    constant = np.full(150, size)
    two = fixed(features="linear").partial_fit(X[:150], constant)
    with pytest.raises(ValueError, match="y must vary by at least"):
        two.partial_fit(X[150:], 2 * constant)
    assert two.partial_fit(X[150:], constant).y_mean_ == pytest.approx(size, abs=0, rel=1e-12)


def test_what_squares_hold_is_fitted():
    model, small = fixed(features="linear"), 1e-143 * Y
    model.partial_fit(X[:150], small[:150]).partial_fit(X[150:], small[150:])
    np.testing.assert_allclose(model.predict(NEW), 1e-143 * fixed(features="linear").partial_fit(X, Y).predict(NEW))


def test_a_column_that_is_constant_when_the_map_is_fixed_is_told():
    few = DirectRegressor(Nystroem(max_search_rows=5), 5)
    rows = np.c_[X[:10, :2], np.ones(10)]
    for act in (few.partial_fit, few.fit_features, few.fit_stream):
        with pytest.warns(FeatureMapWarning, match="1 of 3 columns are constant and dropped.*number 2") as told:
            act(rows, Y[:10])
        assert told[0].filename == __file__


def test_there_is_no_prediction_before_there_are_rows():
    model = fixed(features="linear")
    with pytest.raises(NotFittedError):
        model.predict(NEW)
    with pytest.raises(NotFittedError):
        DirectRegressor().new_statistics()
    with pytest.raises(ValueError, match="there must be data"):
        model.fit_statistics(model.new_statistics())


# Statistics from elsewhere


def test_statistics_made_by_others_are_fitted(tmp_path):
    model = fixed(TWO, **SMALL)
    parts = [pickle.loads(pickle.dumps(model.new_statistics(2))).update(X[i], TWO[i]) for i in cut(3)]
    parts[0].save(tmp_path / "part.pydirect")
    total = RunningStatistics.load(tmp_path / "part.pydirect")
    for part in parts[1:]:
        total.merge(part)
    assert_equal_to_rounding(model.fit_statistics(total), fixed(TWO, **SMALL).partial_fit(X, TWO))
    with pytest.raises(ValueError, match="features must have the fingerprint"):
        fixed(TWO, **SMALL | {"n_basis_functions": 29}).fit_statistics(total)
    with pytest.raises(TypeError, match="statistics must be a RunningStatistics"):
        model.fit_statistics(3)


def test_a_model_and_its_statistics_in_files_go_on(tmp_path):
    model = fixed(**SMALL).partial_fit(X[:150], Y[:150])
    model.save(tmp_path / "m.pydirect")
    model.statistics_.save(tmp_path / "s.pydirect")
    loaded = pydirect.load(tmp_path / "m.pydirect").fit_statistics(RunningStatistics.load(tmp_path / "s.pydirect"))
    assert_equal_to_rounding(loaded, model)
    loaded.partial_fit(X[150:], Y[150:])
    assert_equal_to_rounding(loaded, fixed(**SMALL).partial_fit(X, Y))


def test_a_posterior_with_features_of_its_own_is_refused_for_those_before():
    model = fixed(n_basis_functions=30).partial_fit(X, Y).set_params(posterior="sequential")
    with pytest.raises(ValueError, match=r"^posterior \(on which features='auto' depends\) must be as when"):
        model.partial_fit(X, Y)


def test_sums_are_of_one_precision():
    model = fixed(features=Polynomial()).partial_fit(X, Y).set_params(features__block_dtype="float32")
    with pytest.raises(ValueError, match="block_dtype must be 'float64', as for the earlier rows, got 'float32'"):
        model.partial_fit(X, Y)
