"""`DirectRegressor.partial_fit` while rows are few: they are buffered, and the basis functions grow with them."""

import pickle
import warnings

import numpy as np
import pandas
import pytest

import pydirect
from pydirect import DirectRegressor, Nystroem, Sequential
from pydirect.estimators import regression

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = 50 + 7 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * RNG.standard_normal(60)
TWO = np.c_[Y, X[:, 1] + 0.1 * RNG.standard_normal(60)]
WEIGHT = RNG.integers(0, 3, 60).astype(float)
NEW = RNG.standard_normal((20, 3))
FEW = {"features": Nystroem(max_search_rows=40), "n_basis_functions": 40}  # up to 40 rows are buffered


def branin(n_rows, seed):
    x = np.random.default_rng(seed).uniform((-5, 0), (10, 15), (n_rows, 2))
    bowl = x[:, 1] - 5.1 / (4 * np.pi**2) * x[:, 0] ** 2 + 5 / np.pi * x[:, 0] - 6
    return x, bowl**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x[:, 0]) + 10


def table(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], n_rows)
    frame = pandas.DataFrame({"x": rng.standard_normal(n_rows), "colour": colour})
    y = frame["x"] + 3 * (colour == "blue") + 0.1 * rng.standard_normal(n_rows)
    return frame.sort_values("colour", ascending=False), y.loc[frame.sort_values("colour", ascending=False).index]


def batch(y=Y, rows=slice(None), weight=None, **parameters):
    return DirectRegressor(**{"noise": "constant", **parameters}).fit(X[rows], y[rows], weight)


def assert_same(first, second, rtol=1e-8):
    for a, b in zip(first.predict(NEW, return_std=True), second.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max())
    assert first.elbo_ == pytest.approx(second.elbo_, rel=rtol)
    assert first.total_weight_ == pytest.approx(second.total_weight_)


@pytest.mark.slow
@pytest.mark.parametrize("begin", [1, 8])
def test_single_rows_give_as_good_a_model_as_all_at_once(begin):
    (x, y), new = branin(68, 1), branin(500, 2)
    model = DirectRegressor().partial_fit(x[:begin], y[:begin])
    for i in range(begin, 68):
        model.partial_fit(x[i : i + 1], y[i : i + 1])
    assert model.score(*new) == pytest.approx(DirectRegressor().fit(x, y).score(*new), abs=2e-3)
    assert model.score(*new) > 0.995


def test_rows_after_fit_are_added_to_those_of_the_fit():
    (x, y), new = branin(68, 1), branin(500, 2)
    model = DirectRegressor().fit(x[:-1], y[:-1]).partial_fit(x[-1:], y[-1:])
    assert model.total_weight_ == 68
    assert model.score(*new) > 0.995


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"features": "fourier", "n_basis_functions": 30},
        {"features": "linear"},
        {"features": "polynomial"},
        {"features": "precomputed"},
        {"features": Nystroem(length_scale=1.5)},
        {"noise": 0.1},
        {"target_transform": "log"},
        {"n_basis_functions": 20, "posterior": Sequential(n_levels=255, keep_factor=True)},
    ],
)
def test_buffered_rows_have_the_model_of_fit(parameters):
    """Where hyperparameters have just been learned, nothing but rounding is left of the blocks."""
    model = DirectRegressor(**parameters)
    for rows in (slice(20), slice(20, 60)):
        model.partial_fit(X[rows], Y[rows])
    assert_same(model, batch(**parameters), rtol=1e-5)  # of a mean on the scale of y, a kernel's rounding grows


def test_weights_and_outputs():
    model = DirectRegressor().partial_fit(X[:20], TWO[:20], WEIGHT[:20])
    model.partial_fit(X[20:], TWO[20:], WEIGHT[20:])
    sums = model.new_statistics(2).update(X, TWO, WEIGHT)
    assert model.statistics_.n_rows == sums.n_rows
    assert model.total_weight_ == WEIGHT.sum()
    np.testing.assert_allclose(model.statistics_.cross, sums.cross, atol=1e-9)
    assert model.predict(NEW).shape == (20, 2)


def test_hyperparameters_are_learned_again_when_rows_have_grown_by_half(monkeypatch):
    learned, search = [], regression.search_kernel

    def spy(rows, *arguments, **options):
        learned.append(len(rows.x))
        return search(rows, *arguments, **options)

    monkeypatch.setattr(regression, "search_kernel", spy)
    model = DirectRegressor()
    for i in range(60):
        model.partial_fit(X[i : i + 1], Y[i : i + 1])
        assert len(model.features_.map.landmarks if i else X[:1]) == i + 1
    assert learned == [2, 3, 5, 8, 12, 18, 27, 41]


def test_many_rows_fix_the_map_and_are_held_no_longer():
    model = DirectRegressor(**FEW).partial_fit(X[:40], Y[:40])
    assert len(model.buffered_rows_) == 40
    model.partial_fit(X[40:50], Y[40:50])
    assert not hasattr(model, "buffered_rows_")
    features = model.features_
    assert_same(model, DirectRegressor(**FEW).fit_features(X[:50], Y[:50]).partial_fit(X[:50], Y[:50]))
    assert model.partial_fit(X[50:], Y[50:]).features_ is features
    assert model.total_weight_ == 60


def test_forgotten_rows_were_never_seen():
    rows = np.r_[np.arange(60), 7, 7]  # some of them twice
    model = DirectRegressor().partial_fit(X[rows], Y[rows], np.r_[WEIGHT + 1, 1.0, 2.0])
    model.forget(X[40:], Y[40:], WEIGHT[40:] + 1).forget(X[[7, 7]], Y[[7, 7]], [1.0, 2.0])
    expected = DirectRegressor().partial_fit(X[:40], Y[:40], WEIGHT[:40] + 1)
    assert_same(model, expected)
    assert model.statistics_.n_rows == 40
    for x, y, weight, message in [
        (X[40:], Y[40:], None, "X and y must be of rows seen, with at most their weights: row 0 is none of them"),
        (X[38:42], Y[38:42], None, "row 2 is none of them"),
        (X[:40], Y[:40], WEIGHT[:40] + 1, "must leave some of the rows seen, got all of them"),
    ]:
        before = model.predict(NEW)
        with pytest.raises(ValueError, match=message):
            model.forget(x, y, weight)
        np.testing.assert_array_equal(model.predict(NEW), before)


def test_categories_seen_later_and_gaps():
    frame, y = table(60)
    gaps = frame.assign(x=frame["x"].where(np.arange(60) != 45))
    model = DirectRegressor()
    for rows in (slice(20), slice(20, 40), slice(40, 60)):  # red ones first
        model.partial_fit(gaps[rows], y[rows])
    assert model.columns_.categories[1] == ("blue", "green", "red")
    expected = DirectRegressor(noise="constant").fit(gaps, y)
    np.testing.assert_allclose(model.predict(frame), expected.predict(frame), atol=0.3)
    assert model.score(frame, y) > 0.95
    before = model.predict(frame)
    with pytest.raises(TypeError, match="column 'x' must hold numbers, as in the rows before, got 'many'"):
        model.partial_fit(pandas.DataFrame({"x": ["many"], "colour": ["red"]}), [1.0])
    np.testing.assert_array_equal(model.predict(frame), before)
    model.forget(gaps[40:], y[40:])
    assert model.total_weight_ == 40
    assert "blue" not in model.columns_.categories[1]


def test_a_column_of_gaps_may_turn_out_as_text():
    with pytest.warns(pydirect.tables.TableWarning, match="column 1 of X has no values"):
        model = DirectRegressor().partial_fit([[0.0, None], [1.0, None]], [0.0, 1.0])
    model.partial_fit(np.array([[2.0, "a"], [3.0, "b"]], dtype=object), [2.0, 3.0])
    assert model.columns_.categories[1] == ("a", "b", None)


def test_a_scale_is_left_when_targets_leave_its_range(monkeypatch):
    monkeypatch.setattr("pydirect.estimators.target_transform.FEWEST_ROWS", 40)
    price = np.exp(X[:, 0] + 0.1 * Y)
    model = DirectRegressor().fit(X[:50], price[:50])
    assert model.target_transform_.names == ("log",)
    model.partial_fit(X[50:51], price[50:51])
    assert model.target_transform_.names == ("log",)
    model.partial_fit(X[51:], -price[51:])
    assert model.target_transform_ is None
    assert model.buffered_rows_.n_learned == 60


def test_parameters_may_change_while_rows_are_buffered():
    model = DirectRegressor().partial_fit(X[:50], Y[:50]).set_params(features="fourier", n_basis_functions=30)
    model.partial_fit(X[50:], Y[50:])
    assert_same(model, DirectRegressor("fourier", 30).partial_fit(X, Y))


def test_what_is_refused_leaves_the_model_as_it_was():
    model = DirectRegressor().partial_fit(X[:30], Y[:30])
    before, features = model.predict(NEW), model.features_
    for x, y in [(X[:, :2], Y), (X, TWO), (X, 1e95 * Y), (np.full_like(X, np.inf), Y), (X, np.full(60, np.nan))]:
        with pytest.raises(ValueError):
            model.partial_fit(x, y)
        assert model.features_ is features
        np.testing.assert_array_equal(model.predict(NEW), before)
    tiny = DirectRegressor("linear").fit(X[:30], 1e-150 * Y[:30])
    with pytest.raises(ValueError, match="y must vary by at least"):
        tiny.partial_fit(X[30:], 1e-150 * Y[30:])
    assert tiny.total_weight_ == 30
    assert model.partial_fit(X[30:], Y[30:]).total_weight_ == 60


def test_no_warnings_while_rows_are_buffered():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DirectRegressor().partial_fit(np.ones((1, 2)), [1.0])
        model.partial_fit([[1.0, 2.0]], [1.0]).partial_fit([[2.0, 2.0]], [2.0])
    assert model.features_.input_map.kept.tolist() == [0, 1]


@pytest.mark.parametrize("copied", ["file", "pickle"])
def test_a_copy_goes_on_with_the_rows_that_are_buffered(tmp_path, copied):
    frame, y = table(60)
    model = DirectRegressor().partial_fit(frame[:50], y[:50])
    if copied == "file":
        model.save(tmp_path / "m")
        again = pydirect.load(tmp_path / "m")
        again.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    else:
        again = pickle.loads(pickle.dumps(model))
    for m in (again, model):
        m.partial_fit(frame[50:], y[50:])
    assert again.predict(frame).tobytes() == model.predict(frame).tobytes()
    assert len(again.buffered_rows_) == 60


def test_statistics_from_elsewhere_and_streams_replace_buffered_rows():
    model = DirectRegressor("linear").partial_fit(X[:30], Y[:30])
    model.fit_statistics(model.new_statistics().update(X, Y))
    assert not hasattr(model, "buffered_rows_")
    assert model.partial_fit(X[:10], Y[:10]).total_weight_ == 70
    model = DirectRegressor("linear").partial_fit(X[:30], Y[:30]).fit_stream(X, Y, keep_features=True)
    assert model.partial_fit(X[:10], Y[:10]).total_weight_ == 70
