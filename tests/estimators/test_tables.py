"""Tables as people have them: text, booleans and gaps, in every way to fit and predict."""

import contextlib
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

import pydirect
from pydirect import Columns, DirectClassifier, DirectRegressor, DirectSearchCV, Fourier, Gaussian, Nystroem, fit_many
from pydirect.explain import LeftOutRows, effects
from pydirect.tables import TableWarning

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
SMALL = {"features": Nystroem(max_search_rows=60), "n_basis_functions": 40}


def birds(n, seed=0):
    """Birds of three kinds on two islands, some of them not measured in full, and their masses."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["auk", "gull", "tern"], n, p=[0.5, 0.3, 0.2])
    island = rng.choice(["East", "West"], n)
    wing = rng.normal(180, 8, n) + 20 * (kind == "gull")
    bill = 0.2 * wing + rng.normal(0, 2, n)
    male = rng.random(n) < 0.5
    mass = 20 * wing + 300 * male - 400 * (kind == "tern") + rng.normal(0, 60, n)
    frame = pandas.DataFrame({"kind": kind, "island": island, "wing": wing, "bill": bill, "male": male})
    frame.loc[rng.random(n) < 0.2, "wing"] = np.nan
    frame.loc[rng.random(n) < 0.1, "island"] = None
    return frame, mass


X, Y = birds(160)
NEW, Y_NEW = birds(80, 1)
MODELS = [
    DirectRegressor(**SMALL),
    DirectRegressor(Fourier(max_search_rows=60), 40),
    DirectRegressor("linear"),
    DirectRegressor("polynomial"),
    DirectRegressor("linear", posterior="sequential"),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")
def test_a_frame_is_fitted_by_its_encoded_rows(model):
    model = clone(model).fit(X, Y)
    assert model.n_features_in_ == 5 and list(model.feature_names_in_) == list(X.columns)
    columns = model.columns_
    assert columns.names_out[:6] == [
        "kind=auk",
        "kind=gull",
        "kind=tern",
        "island=East",
        "island=West",
        "island=(missing)",
    ]
    latent = model.features_.transform(columns.encode(NEW)) @ model.coef_
    np.testing.assert_allclose(model.predict(NEW), model.y_mean_ + model.y_scale_ * latent)
    if model.features == "linear":  # elsewhere the categories of a column share a scale
        rows, new = (frame.fillna({"wing": 180.0}) for frame in (X, NEW))  # those with gaps weigh less
        known = clone(model).fit(rows, Y)
        encode = known.columns_.encode
        plain = clone(model).fit(encode(rows), Y)
        np.testing.assert_array_equal(known.predict(new), plain.predict(encode(new)))
    assert model.score(NEW, Y_NEW) > 0.85


def gappy(n, seed=0, share=0.25):
    """Rows y = 2a + b + noise, of which a share lacks a, y without noise, and which rows lack it."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, n))
    b, gap = 0.6 * a + 0.8 * b, rng.random(n) < share
    frame = pandas.DataFrame({"a": np.where(gap, np.nan, a), "b": b, "c": c})
    return frame, 2 * a + b, gap


@pytest.mark.parametrize("way", ["fit", "fit_stream", "partial_fit"])
def test_intervals_hold_where_numbers_are_missing_as_in_training(way, tmp_path):
    (x, f, _), (new, f_new, gap) = gappy(250), gappy(600, 1)
    noise = 0.3 * np.random.default_rng(2).normal(size=(2, 600))
    model, y, y_new = DirectRegressor(), f + noise[0, :250], f_new + noise[1]
    getattr(model, way)(*([lambda: [(x, y)]] if way == "fit_stream" else [x, y]))
    lower, upper = model.predict_interval(new)
    covered = (lower <= y_new) & (y_new <= upper)
    assert 0.82 < covered[gap].mean() < 0.97 and covered[~gap].mean() > 0.88
    mean, epistemic, aleatoric = model.predict_parts(new)
    assert epistemic[gap].min() > 3 * epistemic[~gap].max() and np.ptp(aleatoric) < 1e-9
    np.testing.assert_allclose(model.predict(new), mean)
    np.testing.assert_allclose(np.std(model.sample_y(new, 4000, noise=False), axis=1), epistemic, rtol=0.1)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(pydirect.load(tmp_path / "model").predict_interval(new), [lower, upper])


@pytest.mark.parametrize("options", [{}, {"features": "linear", "posterior": "sequential"}], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")
def test_classes_are_as_probable_as_they_are_frequent_where_numbers_are_missing(options, n_classes):
    (x, f, _), (new, f_new, gap) = gappy(400), gappy(1500, 1)
    cuts = np.quantile(f, np.arange(1, n_classes) / n_classes)
    proba = DirectClassifier(**options).fit(x, np.searchsorted(cuts, f)).predict_proba(new)
    right = proba.argmax(axis=1) == np.searchsorted(cuts, f_new)
    assert right[gap].mean() > 0.6 and proba.max(axis=1)[gap].mean() < right[gap].mean() + 0.04


def test_means_of_transformed_targets_are_the_same_with_deviations_where_numbers_are_missing():
    x, f, _ = gappy(100)
    model = DirectRegressor(**SMALL, target_transform="log").fit(x, np.exp(f))
    np.testing.assert_array_equal(model.predict(x), model.predict(x, return_std=True)[0])


def test_intervals_hold_for_new_categories_and_missing_ones():
    rng, covered = np.random.default_rng(0), []
    for left in range(8):
        effect, kind, z = 2 * rng.normal(size=8), rng.integers(8, size=400), rng.normal(size=400)
        y = effect[kind] + z + 0.3 * rng.normal(size=400)
        frame = pandas.DataFrame({"kind": np.char.add("k", kind.astype(str)), "z": z})
        train = (kind != left) & (np.arange(400) < 200)
        model = DirectRegressor().fit(frame[train], y[train])
        for new in (frame[kind == left], frame[200:].assign(kind=None)):
            lower, upper = model.predict_interval(new)
            own = y[new.index]
            covered.append(np.mean((lower <= own) & (own <= upper)))
    assert np.mean(covered[::2]) > 0.8 and np.mean(covered[1::2]) > 0.85


def test_models_of_tables_survive_files_and_pickle(tmp_path):
    for model in (
        DirectRegressor(**SMALL, columns=Columns(categories=["male"])),
        DirectClassifier(**SMALL, columns=Columns(missing="indicator")),
    ):
        model.fit(X, np.where(Y > np.median(Y), "heavy", "light") if isinstance(model, DirectClassifier) else Y)
        model.save(tmp_path / "model")
        for again in (pydirect.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
            assert again.columns_.names_out == model.columns_.names_out
            method = "predict_proba" if isinstance(model, DirectClassifier) else "predict"
            np.testing.assert_array_equal(getattr(again, method)(NEW), getattr(model, method)(NEW))


def test_columns_are_checked_as_those_of_numbers():
    model = DirectRegressor("linear").fit(X, Y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match=r"it has them in another order; X\[model.feature_names_in_\] is right"):
        model.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match="it lacks 'male'"):
        model.predict(X[X.columns[:4]])
    with pytest.raises(ValueError, match="it lacks 'bill', 'male' and also has 'size'"):
        model.predict(X[X.columns[:3]].assign(size=1.0))
    with pytest.raises(ValueError, match="X has 4 features, but DirectRegressor is expecting 5"):
        model.predict(X.to_numpy(dtype=object)[:, :4])
    with pytest.raises(ValueError, match="column 'wing' must be finite, got infinity"):
        model.predict(X.assign(wing=np.inf))
    with pytest.raises(TypeError, match="column 'wing' must hold numbers, as in fit, got 'wide'"):
        model.predict(X.assign(wing="wide"))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, Y[:10])
    with pytest.raises(ValueError, match="column 'island' must have no missing values with missing='raise'"):
        DirectRegressor(columns=Columns(missing="raise")).fit(X, Y)
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(X[:0])


@pytest.mark.parametrize("model", [DirectRegressor("precomputed"), DirectRegressor(StandardScaler())], ids=str)
def test_what_takes_numbers_only_names_the_column_that_holds_none(model):
    with pytest.raises(TypeError, match="column 'kind' must hold numbers, got text: encode it"):
        model.fit(X, Y)
    with pytest.raises(ValueError, match="column 'wing' must have no missing values, got NaN: fill them"):
        model.fit(X[["male", "wing"]], Y)
    assert not get_tags(model).input_tags.allow_nan


def test_tags_say_what_is_accepted():
    tags = get_tags(DirectRegressor()).input_tags
    assert tags.allow_nan and tags.string and tags.categorical
    assert not get_tags(DirectRegressor(columns=Columns(missing="raise"))).input_tags.allow_nan
    assert get_tags(DirectSearchCV(DirectRegressor(), {})).input_tags.allow_nan


# --- arrays


def test_arrays_of_objects_and_lists_are_tables_too():
    model = DirectRegressor("linear").fit(X, Y)
    rows = DirectRegressor("linear").fit(X.to_numpy(dtype=object), Y).predict(NEW.to_numpy(dtype=object))
    np.testing.assert_allclose(rows, model.predict(NEW), rtol=1e-9)
    listed = (
        DirectRegressor("linear").fit(X.to_numpy(dtype=object).tolist(), Y).predict(NEW.to_numpy(dtype=object).tolist())
    )
    np.testing.assert_array_equal(listed, rows)


def test_complete_numbers_are_fitted_as_if_nothing_could_be_missing():
    x = np.random.default_rng(0).standard_normal((120, 3))
    y = x[:, 0] + x[:, 1] ** 2
    a, b = DirectRegressor(**SMALL).fit(x, y), DirectRegressor(**SMALL, columns=Columns(missing="raise")).fit(x, y)
    np.testing.assert_array_equal(a.predict(x), b.predict(x))
    assert a.columns_.is_plain and a.features_.n_features_in == 3
    gappy = x.copy()
    gappy[:5, 0] = np.nan
    with pytest.warns(TableWarning, match="unlike in the fit"):
        assert np.isfinite(a.predict(gappy)).all()


def test_many_rare_categories_do_not_drown_the_numbers():
    """93 rows of 32 makers and 20 kinds: as columns of variance one each, these were most of every distance."""
    rng = np.random.default_rng(0)
    cars = pandas.DataFrame(rng.standard_normal((186, 3)), columns=["length", "width", "height"])
    maker = rng.integers(0, 32, 186)
    cars["maker"], cars["kind"] = [f"maker {k}" for k in maker], [f"kind {k}" for k in rng.integers(0, 20, 186)]
    price = np.sin(2 * cars["length"]) + cars["width"] * cars["height"] + 0.5 * rng.standard_normal(32)[maker]
    price += 0.05 * rng.standard_normal(186)
    model = DirectRegressor(noise="constant").fit(cars[:93], price[:93])
    assert model.score(cars[93:], price[93:]) > 0.8


def test_a_length_scale_of_a_column_is_that_of_its_categories():
    x = X[["kind", "bill"]]
    model = DirectRegressor(Nystroem(length_scale=[2.0, 7.0]), 40).fit(x, Y)
    basis = model.features_
    np.testing.assert_allclose(basis.hyperparameters.length_scales * basis.input_map.scale, [2.0, 2.0, 2.0, 7.0])


# --- streams


def test_features_fix_the_encoding_of_later_rows():
    model = DirectRegressor("linear").fit_features(X, Y)
    columns = model.columns_
    model.partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:])
    assert model.columns_ is columns
    whole = DirectRegressor("linear").fit_features(X, Y).partial_fit(X, Y)
    np.testing.assert_allclose(model.predict(NEW), whole.predict(NEW), rtol=1e-7)
    again = model.partial_fit(NEW, Y_NEW).forget(NEW, Y_NEW)
    np.testing.assert_allclose(again.predict(NEW), whole.predict(NEW), rtol=1e-6)
    sums = whole.new_statistics().update(columns.encode(X), Y)
    np.testing.assert_allclose(whole.fit_statistics(sums).predict(NEW), model.predict(NEW), rtol=1e-6)


def blocks():
    return [(X[k : k + 50], Y[k : k + 50]) for k in range(0, 160, 50)]


def parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / "birds.parquet"
    X.assign(island=X["island"].astype("category"), mass=Y, heavy=np.where(np.median(Y) < Y, "yes", "no")).to_parquet(
        path
    )
    return path


@pytest.mark.parametrize("source", ["frame", "blocks", "function", "iterator"])
def test_streams_of_tables_give_the_model_of_their_rows(source):
    data = {"frame": (X, Y), "blocks": (blocks(),), "function": (blocks,), "iterator": (iter(blocks()),)}[source]
    model = DirectRegressor("linear").fit_stream(*data)
    expected = DirectRegressor("linear").fit_features(X, Y).partial_fit(X, Y)
    assert model.columns_.names_out == expected.columns_.names_out
    np.testing.assert_allclose(model.predict(NEW), expected.predict(NEW), rtol=1e-7)


def test_parquet_files_hold_text_and_gaps_and_checkpoints_know_the_encoding(tmp_path):
    path = parquet(tmp_path)
    columns = [*X.columns, "mass"]
    pandas.read_parquet(path)[columns].to_parquet(tmp_path / "a.parquet", row_group_size=40)
    model = DirectRegressor("linear").fit_stream(tmp_path / "a.parquet", "mass", checkpoint=tmp_path / "c")
    expected = DirectRegressor("linear").fit_features(X, Y).partial_fit(X, Y)
    np.testing.assert_allclose(model.predict(NEW), expected.predict(NEW), rtol=1e-7)
    resumed = DirectRegressor("linear").fit_stream(tmp_path / "a.parquet", "mass", checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(resumed.predict(NEW), model.predict(NEW))
    kept = DirectRegressor("linear").fit_features(X, Y)
    kept.fit_stream(tmp_path / "a.parquet", "mass", keep_features=True)
    np.testing.assert_allclose(kept.predict(NEW), expected.predict(NEW), rtol=1e-7)
    dropped = DirectRegressor("linear").fit_stream(tmp_path / "a.parquet", "mass", drop_missing=True)
    assert dropped.total_weight_ == len(X.dropna())
    with pytest.raises(pydirect.StreamError, match=r"column '(island|wing)' must be finite"):
        DirectRegressor("linear", columns=Columns(missing="raise")).fit_stream(tmp_path / "a.parquet", "mass")


def test_classifiers_stream_tables(tmp_path):
    path = parquet(tmp_path)
    pandas.read_parquet(path).drop(columns="mass").to_parquet(tmp_path / "a.parquet")
    model = DirectClassifier("linear").fit_stream(tmp_path / "a.parquet", "heavy")
    expected = DirectClassifier("linear").fit(X, np.where(np.median(Y) < Y, "yes", "no"))
    assert model.columns_.names_out == expected.columns_.names_out
    np.testing.assert_allclose(model.predict_proba(NEW), expected.predict_proba(NEW), atol=0.02)
    kept = model.fit_stream(tmp_path / "a.parquet", "heavy", keep_features=True)
    np.testing.assert_allclose(kept.predict_proba(NEW), expected.predict_proba(NEW), atol=0.02)


def test_a_column_that_changes_from_numbers_to_text_is_refused_by_block():
    changed = [(X[:50], Y[:50]), (X[50:].assign(bill="long"), Y[50:])]
    with pytest.raises(pydirect.StreamError, match="block 1: column 'bill' must hold numbers, as in the rows before"):
        DirectRegressor("linear").fit_stream(changed)


# --- many models, searches, pipelines


def test_many_models_share_a_table():
    targets = [Y, np.where(X["wing"].isna(), 1.0, 0.0)]
    models = fit_many([DirectRegressor("linear"), DirectRegressor("linear")], X, targets)
    for model, y in zip(models, targets, strict=True):
        np.testing.assert_allclose(model.predict(NEW), DirectRegressor("linear").fit(X, y).predict(NEW), rtol=1e-9)
    assert models[1].columns_.indicators == (2,) and models[0].columns_.indicators == ()


@pytest.mark.parametrize("scoring", ["r2", "neg_max_error"])
def test_searches_take_tables(scoring):
    search = DirectSearchCV(
        DirectRegressor("linear"), {"posterior": ["gaussian", Gaussian(n_noise_levels=1)]}, scoring=scoring, cv=3
    )
    search.fit(X, Y)
    assert list(search.feature_names_in_) == list(X.columns)
    assert search.predict(NEW).shape == (80,) and search.best_estimator_.columns_.n_columns == 5
    same = GridSearchCV(
        DirectRegressor("linear"), {"posterior": ["gaussian", Gaussian(n_noise_levels=1)]}, scoring=scoring, cv=3
    ).fit(X, Y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], same.cv_results_["mean_test_score"], rtol=0.1)


def test_the_best_score_by_leave_one_out_is_that_of_the_refitted_model():
    model = DirectRegressor(**SMALL)
    search = DirectSearchCV(model, {"noise": ["auto", 3000.0]}, cv="loo").fit(X, Y)
    rows = LeftOutRows(search.best_estimator_, X, Y)
    lower, upper = rows.predict_interval(NEW)
    assert 0.75 < np.mean((lower <= Y_NEW) & (Y_NEW <= upper)) <= 1.0
    np.testing.assert_allclose(rows.log_density.mean(), search.best_score_, rtol=1e-6)


# --- devices


def test_quantised_models_take_encoded_rows():
    model = DirectRegressor(
        Fourier(rank_inputs=False, length_scale=5.0), n_basis_functions=40, posterior="sequential"
    ).fit(X, Y)
    small = model.quantize()
    np.testing.assert_allclose(small.predict(model.columns_.encode(NEW)), model.predict(NEW), rtol=0.05)
    with pytest.raises(ValueError, match=r"encode tables first, by columns_\.encode\(X\)"):
        small.predict(NEW)
    assert small.feature_names == tuple(model.columns_.names_out)


def test_categories_written_otherwise_are_told():
    places = pandas.DataFrame({"city": ["Rome", "Oslo", "New York"] * 10})
    model = DirectRegressor("linear").fit(places, np.arange(30.0))
    with pytest.warns(TableWarning, match="column 'city' holds 'oslo' where the fit had 'Oslo', and 1 more likewise"):
        model.predict(pandas.DataFrame({"city": ["Rome", "oslo", "Paris", "New  York "]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(pandas.DataFrame({"city": ["Rome", "Paris"]}))
        both = pandas.DataFrame({"city": ["Oslo", "oslo", "Rome"] * 10})
        DirectRegressor("linear").fit(both, np.arange(30.0)).predict(both)


def test_indices_in_another_order_are_told():
    X, y = pandas.DataFrame({"a": np.arange(30.0)}), pandas.Series(np.arange(30.0))
    with pytest.warns(TableWarning, match="the same index in another order") as told:
        DirectRegressor("linear").fit(X, y[::-1])
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DirectRegressor("linear").fit(X, y.set_axis(np.arange(30) + 7))
        DirectRegressor("linear").fit(X.set_axis([1, "a"] * 15), y.set_axis([1, "a"] * 15))


def test_a_frame_without_columns_is_refused():
    with pytest.raises(ValueError, match=r"0 feature.*its index is not one of them"):
        DirectRegressor("linear").fit(pandas.DataFrame(index=np.arange(30)), np.arange(30.0))


def test_names_of_rows_alone_say_nothing():
    names = pandas.DataFrame({"name": [f"bird {k}" for k in range(160)]})
    with pytest.warns(TableWarning, match="column 'name' is different in every row"):
        model = DirectRegressor(**SMALL).fit(names, Y)
    np.testing.assert_allclose(model.predict(names), Y.mean())


# --- effects of categories


@pytest.fixture(scope="module")
def shops():
    """Rows of 110 shops with effects, 50 of them new after the first 300, and a model of these."""
    rng = np.random.default_rng(0)
    effect, x = rng.standard_normal(110), rng.uniform(-2, 2, 800)
    shop = np.r_[np.arange(60), rng.integers(0, 60, 240), rng.integers(0, 110, 500)]
    truth = np.sin(2 * x) + effect[shop]
    frame = pandas.DataFrame({"shop": np.char.add("s", shop.astype(str)), "x": x})
    frame.loc[shop == 7, "shop"] = None
    y = 10 + 3 * (truth + 0.3 * rng.standard_normal(800))
    return frame, y, 10 + 3 * truth, shop >= 60, DirectRegressor(**SMALL, noise="constant").fit(frame[:300], y[:300])


def test_effects_of_many_categories_are_told_of_known_and_new_ones(shops, tmp_path):
    frame, y, truth, new, model = shops
    plain = DirectRegressor(**SMALL).partial_fit(frame[:300], y[:300])
    (own,) = model.columns_.effects
    assert len(own.categories) == 60 and own.categories[0] is None and not plain.columns_.effects
    errors = [np.std((m.predict(frame[300:]) - truth[300:])[~new[300:]]) for m in (model, plain)]
    assert errors[0] < 0.6 * errors[1]
    lower, upper = model.predict_interval(frame[300:])
    for which in (~new[300:], new[300:]):
        assert 0.8 < np.mean((lower < y[300:])[which] & (y[300:] < upper)[which]) < 0.97
    assert "Effects of categories: shop (60)" in model.summary()
    model.save(tmp_path / "model")
    known = pydirect.load(tmp_path / "model").predict(frame, return_std=True)
    np.testing.assert_array_equal(known, model.predict(frame, return_std=True))


def test_effects_add_to_what_the_other_columns_tell(shops):
    frame, _, _, _, model = shops
    x, latent = model.encode_rows(frame[:50]), model.model_.latent
    none = x * (np.arange(x.shape[1]) < x.shape[1] - 3)
    mean, epistemic, _ = model.predict_parts(frame[:50])
    found, alone = latent.moments(x, True), latent.moments(none, True)
    np.testing.assert_allclose(np.hstack(found), np.hstack(alone) + x[:, -3:-1], rtol=1e-10)
    np.testing.assert_allclose(mean, model.y_mean_ + model.y_scale_ * found[0][:, 0], rtol=1e-10)
    draws = model.sample_y(frame[:50], 4000, noise=False)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * epistemic.max() / np.sqrt(4000))
    np.testing.assert_allclose(model.sample_functions(2000)(frame[:5]).mean(axis=1), mean[:5], atol=0.2)


def test_an_effect_is_one_for_all_rows_of_a_category(shops):
    """Also of a new one, in draws of rows and of functions, whose deviations are those of predictions."""
    model, rows = shops[-1], pandas.DataFrame({"shop": ["new", "new", "newer", "s1"], "x": [-1.0, 1.0, -1.0, 1.0]})
    _, covariance = model.predict(rows, return_cov=True)
    _, epistemic, _ = model.predict_parts(rows)
    functions = model.sample_functions(4000, random_state=0)
    for drawn in (model.sample_y(rows, 4000, noise=False, random_state=0), functions(rows)):
        np.testing.assert_allclose(drawn.std(axis=1), epistemic, rtol=0.06)
        correlation = np.corrcoef(drawn)
        assert correlation[0, 1] > 0.9 and np.abs(correlation[[0, 1, 1, 0], [2, 2, 3, 3]]).max() < 0.15
        np.testing.assert_allclose(covariance[0, 1], np.cov(drawn)[0, 1], rtol=0.1)
    np.testing.assert_array_equal(functions(rows[1:2]), functions(rows)[1:2])


def test_what_knows_no_effects_refuses_them(shops):
    frame, y, _, _, model = shops
    for ask in (
        lambda: LeftOutRows(model, frame[:300], y[:300]),
        lambda: effects(model, frame[:300]),
        model.quantizable,
    ):
        with pytest.raises(ValueError, match="not available with effects of categories"):
            ask()
    with pytest.raises(ValueError, match="feature map must be of fit_features"):
        model.new_statistics()


def test_effects_are_not_tried_on_request(shops):
    frame, y, *_ = shops
    plain = DirectRegressor(**SMALL, noise="constant", columns=Columns(effects=False)).fit(frame[:300], y[:300])
    assert not plain.columns_.effects and plain.quantizable()


@pytest.mark.parametrize("change", ["partial_fit", "forget"])
def test_rows_that_follow_end_effects_with_a_warning(shops, change):
    frame, y, *_ = shops
    options = {"features": SMALL["features"], "n_basis_functions": 300, "noise": "constant"}
    for columns, told in ((None, r"only fit learns.*Columns\(effects=False\)"), (Columns(effects=False), None)):
        model = DirectRegressor(**options, columns=columns).fit(frame[:300], y[:300])
        assert bool(model.columns_.effects) == (told is not None)
        with pytest.warns(TableWarning, match=told) if told else contextlib.nullcontext():
            getattr(model, change)(frame[:10], y[:10])
        assert not model.columns_.effects
