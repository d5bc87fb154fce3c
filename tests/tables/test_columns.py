"""Encoding of tables: categories as columns of 0 and 1, missing numbers by what is expected."""

import json
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import pydirect
from pydirect.persistence.schema import pack, unpack
from pydirect.tables import Columns, TableWarning
from pydirect.tables.encoding import ColumnEncoding, Gaps, new_category

RNG = np.random.default_rng(0)


def table(*columns):
    return np.array(list(zip(*columns, strict=True)), dtype=object)


def fitted(*columns, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        return Columns(**options).encoding(table(*columns))


# --- categories


def test_a_category_is_a_column_and_numbers_stay_numbers():
    X = table([1.5, 2, True], ["b", "a", "b"])
    columns = Columns().encoding(X)
    assert columns.names_out == ["x0", "x1=a", "x1=b"]
    assert columns.categories == (None, ("a", "b"))
    np.testing.assert_array_equal(columns.encode(X), [[1.5, 0, 1], [2, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(columns.origins, [0, 1, 1])


def test_missing_categories_are_expected_unless_they_occurred_in_training():
    complete = Columns().encoding(table(["a", "b", "a"]))
    with_gaps = Columns().encoding(table(["a", None, "b", float("nan")]))
    new = table(["c", None, "a"])
    np.testing.assert_allclose(complete.encode(new)[1:], [[2 / 3, 1 / 3], [1, 0]])
    np.testing.assert_array_equal(with_gaps.encode(new)[1:], [[0, 0, 1], [1, 0, 0]])
    assert with_gaps.names_out == ["x0=a", "x0=b", "x0=(missing)"]
    np.testing.assert_array_equal(complete.unseen(new)[:, 0], [True, False, False])
    np.testing.assert_array_equal(complete.missing(new)[:, 0], [False, True, False])


@pytest.mark.parametrize(("n_categories", "ratio"), [(2, 4), (3, 4), (7, 7 / 4), (40, 40 / 37)])
def test_a_new_category_is_equally_far_from_all_others_as_few_of_them_say_less(n_categories, ratio):
    names = [f"c{k}" for k in range(n_categories)]
    new, *known = Columns().encoding(table(names * 2)).encode(table(["new", *names]))
    np.testing.assert_allclose(((known - new) ** 2).sum(axis=1), 2 * ratio)


def test_of_many_categories_the_commonest_are_kept_and_all_others_share_a_column():
    names = [f"c{k:03}" for k in range(310)]
    values = [name for k, name in enumerate(names) for _ in range(2 + (k >= 11))]
    columns = Columns().encoding(table(values))
    assert columns.n_encoded == 300 and columns.categories[0] == tuple(names[11:]) and columns.pooled == (0,)
    rows = columns.encode(table(["c000", "c309", "new"]))
    assert columns.names_out[-1] == "x0=(other)"
    np.testing.assert_allclose(rows[:, -1], [1, 0, 1])
    np.testing.assert_allclose(rows.sum(axis=1), 1)


def test_many_columns_of_many_categories_share_what_there_is():
    columns = Columns().encoding(table(*[[f"c{k % 100:02}" for k in range(300)]] * 12))
    assert columns.widths.tolist() == [75] * 12


@given(
    st.lists(st.one_of(st.none(), st.sampled_from([1, 1.0, "1", " 1", "a", "ä", b"b", 2.5, True, ""])), min_size=1),
    st.lists(st.one_of(st.none(), st.sampled_from([1, "1", "a", "unseen", 7])), min_size=1),
)
def test_every_row_is_of_one_category_at_most_and_knows_which(train, new):
    train = ["text", *train]  # or it might be a column of numbers
    columns = fitted(train)
    own = columns.categories[0]
    for values, known in ((train, True), (["other", *new], False)):
        rows = columns.encode(table(values))
        assert rows.shape == (len(values), columns.n_encoded)
        for row, value, unseen in zip(rows, values, columns.unseen(table(values))[:, 0], strict=True):
            key = None if value is None else value.decode() if isinstance(value, bytes) else str(value)
            key = key.removesuffix(".0") if key else key
            assert ((row == 1.0) == [key == each for each in own]).all() or (key is None and len(own) == 1)
            assert unseen == (key is not None and key not in own)
            assert not (known and unseen)


def test_one_and_its_text_are_one_category():
    assert Columns().encoding(table([1, "1", 1.0, "b"])).categories == (("1", "b"),)
    with pytest.warns(TableWarning, match="column 0 of X has categories that differ only in spaces"):
        assert Columns().encoding(table(["a", " a"])).categories == ((" a", "a"),)


def test_numbers_named_as_categories_are():
    X = np.array([[1.0, 10.0], [2.0, 20.0], [1.0, np.nan]])
    columns = Columns(categories=[1]).encoding(X)
    assert columns.names_out == ["x0", "x1=10", "x1=20", "x1=(missing)"]
    np.testing.assert_array_equal(columns.encode(X)[:, 1:], np.eye(3))
    with pytest.raises(ValueError, match="categories must be names or numbers of columns of X, got 'b'"):
        Columns(categories=["b"]).encoding(X)


def test_numbers_in_a_column_of_text_are_refused_unless_a_category_may_be_one():
    text, mixed = fitted(["a", "b", "a"]), fitted(["a", "7", "a"])
    np.testing.assert_allclose(mixed.encode(table([7.0, 8.0])), [[1, 0], [new_category(2)] * 2])
    np.testing.assert_allclose(text.encode(table([np.nan])), [[2 / 3, 1 / 3]])
    with pytest.raises(TypeError, match="column 0 of X must hold text, as in fit, got the number 3"):
        text.encode(table([3.0, 4.0]))


def test_a_column_that_was_empty_may_hold_anything():
    with pytest.warns(TableWarning, match="column 1 of X has no values: it is not used"):
        columns = Columns().encoding(table([1.0, 2.0], [None, None]))
    for values in (["x", "y"], [5.0, 6.0], [None, None]):
        X = table([3.0, 4.0], values)
        np.testing.assert_array_equal(columns.encode(X), [[3.0], [4.0]])
        assert columns.lacking_anew(X) == []


def test_a_lazy_frame_is_to_be_collected():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.LazyFrame({"a": [1.0, 2.0]})
    model = pydirect.DirectRegressor("linear").fit(frame.collect(), [1.0, 2.0])
    for call in (
        Columns().fit,
        model.predict,
        lambda X: model.fit(X, [1.0, 2.0]),
        pydirect.DirectRegressor().fit_stream,
    ):
        with pytest.raises(TypeError, match=r"X must hold rows, got a LazyFrame: X.collect\(\) reads them"):
            call(frame)


@pytest.mark.parametrize(
    ("values", "message", "width"),
    [
        ([f"name {k}" for k in range(60)], "is different in every row, .* it is not used", 0),
        ([np.nan] * 60, "has no values: it is not used", 0),
        (["a"] * 60, "has one value, 'a': it is not used", 1),
        ([str(k // 2) for k in range(120)], "holds 60 numbers as text", 60),
    ],
)
def test_columns_that_carry_little_are_named(values, message, width):
    with pytest.warns(TableWarning, match=f"column 0 of X {message}"):
        columns = Columns().encoding(table(values))
    assert columns.n_encoded == width
    assert np.isfinite(columns.encode(table(values))).all()


@pytest.mark.parametrize("value", [np.datetime64("2020-01-01"), {"a": 1}, 1j], ids=str)
def test_values_of_no_known_kind_are_refused_by_column(value):
    with pytest.raises(TypeError, match="column 1 of X must hold numbers, booleans, text or dates, got"):
        Columns().encoding(table([1.0, 2.0], ["a", value]))


def test_text_in_a_column_of_numbers_is_refused_by_column():
    columns = Columns().encoding(np.ones((3, 2)))
    with pytest.raises(TypeError, match="column 1 of X must hold numbers, as in fit, got 'x'"):
        columns.encode(table([1.0, 1.0], [2.0, "x"]))
    with pytest.raises(ValueError, match="X must have 2 columns, as in fit, got 1"):
        columns.encode(np.ones((3, 1)))


# --- missing numbers


def gaussian(n, d, seed=0):
    rng = np.random.default_rng(seed)
    covariance = np.cov(rng.standard_normal((d, 2 * d)))
    return rng.multivariate_normal(rng.standard_normal(d), covariance, n), covariance


def test_a_missing_number_is_the_conditional_mean_of_the_gaussian_of_the_rows():
    x, _ = gaussian(300, 5)
    columns = Columns().encoding(x)
    mean, covariance = x.mean(axis=0), np.cov(x.T, bias=True)
    covariance[np.diag_indices(5)] *= 1.001
    new = gaussian(20, 5, 1)[0]
    missing = np.random.default_rng(2).random((20, 5)) < 0.4
    missing[0] = True
    rows = columns.encode(np.where(missing, np.nan, new))
    np.testing.assert_array_equal(rows[~missing], new[~missing])
    for row, value, m in zip(rows, new, missing, strict=True):
        expected = mean[m]
        if not m.all():
            pull = np.linalg.solve(covariance[np.ix_(~m, ~m)], value[~m] - mean[~m])
            expected = expected + covariance[np.ix_(m, ~m)] @ pull
        np.testing.assert_allclose(row[m], expected, rtol=1e-9, atol=1e-9)


def test_the_gaussian_is_found_from_rows_with_gaps():
    x, covariance = gaussian(4000, 4)
    gaps = Gaps.fit(np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x), None)
    found = np.linalg.inv(gaps.precision) * np.outer(gaps.scale, gaps.scale)
    np.testing.assert_allclose(found, covariance, atol=0.08 * np.abs(covariance).max())


def test_weights_are_repetitions():
    x = np.where(RNG.random((60, 3)) < 0.2, np.nan, RNG.standard_normal((60, 3)) @ RNG.standard_normal((3, 3)))
    X, y, weight = table(*x.T, RNG.choice(["a", "b", "c"], 60)), RNG.standard_normal((60, 1)), RNG.integers(0, 4, 60)
    weighted = Columns().encoding(X, y, weight.astype(float))
    repeated = Columns().encoding(np.repeat(X, weight, axis=0), np.repeat(y, weight, axis=0))
    assert weighted.names_out == repeated.names_out
    np.testing.assert_allclose(weighted.encode(X), repeated.encode(X), rtol=1e-7, atol=1e-9)


def test_indicators_tell_absence_where_it_says_something_of_the_targets():
    x = RNG.standard_normal((400, 3))
    y = x[:, :1] + RNG.standard_normal((400, 1))
    x[x[:, 0] > 0.8, 0] = np.nan
    x[RNG.random(400) < 0.2, 1] = np.nan
    y = (y - y.mean()) / y.std()
    assert Columns().encoding(x, y).indicators == (0,)
    assert Columns().encoding(x).indicators == ()
    both = Columns(missing="indicator").encoding(x, y)
    assert both.names_out == ["x0", "x1", "x2", "x0=(missing)", "x1=(missing)"] and both.lacking == (0, 1)
    np.testing.assert_array_equal(both.encode(x)[:, 3:], np.isnan(x[:, :2]))


def test_missing_numbers_are_refused_by_column_on_request():
    x = RNG.standard_normal((50, 3))
    columns = Columns(missing="raise").encoding(x)
    x[3, 1] = np.nan
    with pytest.raises(ValueError, match="column 1 of X must have no missing values"):
        columns.encode(x)


# --- frames


def people(n=60):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rng = np.random.default_rng(3)
    frame = pandas.DataFrame(
        {
            "height": rng.normal(170, 10, n),
            "children": pandas.array(rng.integers(0, 4, n), dtype="Int64"),
            "smokes": pandas.array(rng.random(n) < 0.3, dtype="boolean"),
            "town": rng.choice(["Aachen", "Bonn", "Köln"], n),
            "size": pandas.Categorical(rng.choice(["S", "M"], n), categories=["S", "M", "L"], ordered=True),
            "member": rng.random(n) < 0.5,
        }
    )
    frame.loc[[2, 7], "height"] = np.nan
    frame.loc[3, ["children", "smokes"]] = pandas.NA
    frame.loc[4, "town"] = None
    return frame


NAMES = ["height", "children", "smokes", "town=Aachen", "town=Bonn", "town=Köln", "town=(missing)", "size=M", "size=S"]


def test_pandas_columns_of_every_kind_are_encoded():
    frame = people()
    columns = Columns().encoding(frame)
    assert columns.names_out == [*NAMES, "member"]
    rows = columns.encode(frame)
    np.testing.assert_array_equal(rows[4, 3:7], [0, 0, 0, 1])
    np.testing.assert_array_equal(rows[:, 7], frame["size"] == "M")
    assert 0 < rows[3, 2] < 1
    assert columns.lacking == (0, 1, 2)
    for kind in ({"town": object}, {"town": "category"}, {"member": object}, {"children": "float64"}):
        np.testing.assert_array_equal(columns.encode(frame.astype(kind)), rows)
    polars = pytest.importorskip("polars", reason="polars is not installed")
    other = polars.from_pandas(frame)
    as_enum = other.with_columns(polars.col("town").cast(polars.Enum(["Köln", "Bonn", "Aachen"])))
    for same in (other, as_enum, frame.convert_dtypes(dtype_backend="pyarrow")):
        np.testing.assert_array_equal(columns.encode(same), rows)


def test_encoded_columns_know_their_column_of_categories():
    table = np.array([["a", 1.0, "x"], ["b", None, "y"], ["a", 3.0, "z"]], dtype=object)
    columns = Columns(missing="indicator").encoding(table)
    assert columns.names_out == ["x0=a", "x0=b", "x1", "x2=x", "x2=y", "x2=z", "x1=(missing)"]
    np.testing.assert_array_equal(columns.groups, [0, 0, -1, 2, 2, 2, -1])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([*(f"{k}%" for k in range(20))], "numbers as text, such as '0%': it is taken as categories"),
        ([*(f"{k}.5" for k in range(60)), "Total"], "such as '0.5' and other text, such as 'Total': it is not used"),
        ([*(f"{k},5" for k in range(20)), "n.a."], "such as '0,5' and other text, such as 'n.a.': it is taken"),
    ],
)
def test_numbers_with_slips_are_told(texts, message):
    with pytest.warns(TableWarning, match=f"column 0 of X holds .*{re.escape(message)}"):
        Columns().encoding(np.array(texts, dtype=object)[:, None])


@pytest.mark.parametrize("texts", [["C10", "B7"] * 20, [f"{k}+" for k in range(5)], [str(k % 8) for k in range(30)]])
def test_codes_are_categories_without_a_word(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Columns().encoding(np.array(texts, dtype=object)[:, None])


def test_integers_that_may_number_the_rows_are_found():
    rng = np.random.default_rng(0)
    n = 200
    table = {
        "row": np.arange(n),
        "identity": 70_000 + rng.permutation(3 * n)[:n],
        "population": rng.permutation(10**6)[:n],
        "floor": rng.integers(0, 9, n),
        "size": rng.standard_normal(n),
        "scored": np.where(rng.random(n) < 0.1, np.nan, np.arange(n)),
    }
    columns = Columns().encoding(np.column_stack(list(table.values())))
    assert columns.numbering == (0, 1)
    assert Columns().encoding(np.arange(20.0)[:, None]).numbering == ()  # too few to say


def test_a_frame_of_ones_own_needs_columns_and_items():
    class Frame(dict):
        columns = property(list)

        def __len__(self):
            return 3

    frame = Frame(a=np.array([1.0, 2.0, np.nan]), b=np.array(["x", None, "y"], dtype=object), c=np.array([True] * 3))
    assert Columns().encoding(frame).names_out == ["a", "b=x", "b=y", "b=(missing)", "c"]


# --- files


def test_columns_survive_a_header_of_json():
    frame = people()
    columns = Columns(missing="indicator").encoding(frame)
    header, arrays = pack(columns, "columns")
    again = unpack(ColumnEncoding, json.loads(json.dumps(header)), arrays, "columns")
    assert again.names_out == columns.names_out
    np.testing.assert_array_equal(again.encode(frame), columns.encode(frame))


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a"]},
        {"names": [1] * 6},
        {"categories": [None] * 5},
        {"categories": [["a", "a"], *[None] * 5]},
        {"categories": [[1.0], *[None] * 5]},
        {"pooled": [0]},
        {"pooled": [99]},
        {"indicators": [3]},
        {"indicators": [0, 0]},
        {"lacking": ["height"]},
    ],
    ids=str,
)
def test_fields_that_do_not_fit_together_are_refused(change):
    header, arrays = pack(Columns().encoding(people()), "columns")
    header = json.loads(json.dumps(header))
    with pytest.raises((ValueError, TypeError)):
        unpack(ColumnEncoding, header | change, arrays, "columns")


# --- the transformer


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_a_pipeline_takes_tables_of_any_package(package):
    frame = people()
    y = np.arange(len(frame)) % 7.0
    if package == "polars":
        X = pytest.importorskip("polars").from_pandas(frame)
    else:
        X = pytest.importorskip("pyarrow").Table.from_pandas(frame) if package == "pyarrow" else frame
    model = make_pipeline(Columns(), Ridge()).fit(X, y)
    encoding = Columns().encoding(frame, (y - y.mean())[:, None] / y.std())
    assert model[0].get_feature_names_out().tolist() == encoding.names_out == [*NAMES, "member"]
    np.testing.assert_allclose(model[0].transform(X), encoding.encode(frame), rtol=1e-12)
    np.testing.assert_allclose(model.predict(X), Ridge().fit(encoding.encode(frame), y).predict(encoding.encode(frame)))
    out = Columns().set_output(transform="pandas").fit_transform(X)
    assert type(out) is type(frame) and list(out) == [*NAMES, "member"]


def test_absence_that_tells_labels_is_told_whatever_the_labels_are():
    x = RNG.standard_normal((200, 2))
    absent = RNG.random(200) < 0.4
    x[absent, 0] = np.nan
    for y in (
        absent,
        absent.astype(float),
        np.where(absent, "yes", "no"),
        np.where(absent, "yes", "no").astype(object),
    ):
        assert Columns().fit(x, y).encoding_.indicators == (0,)
    assert Columns().fit(x).encoding_.indicators == ()
    assert Columns().fit(x, y, sample_weight=~absent).encoding_.lacking == ()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Columns().fit(x, y[:9])


def test_numbers_as_text_are_told_whatever_becomes_of_them():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(200)

    def told(column, **options):
        frame = pd.DataFrame({"a": column, "b": x})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Columns(**options).encoding(frame, x[:, None])
        return " ".join(str(warning.message) for warning in caught)

    whole = [str(k) for k in rng.integers(0, 15, 200)]
    assert "15 numbers as text, which are taken as categories" in told(whole)
    assert "200 numbers as text, all different: it is not used; turn it into numbers" in told([f"{v:.6f}" for v in x])
    assert "as names and numbers of rows are" in told([str(k) for k in range(200)])
    assert not told(whole, categories=["a"])
    assert not told(pd.Categorical(whole))


def test_columns_of_the_same_name_and_columns_the_fit_did_not_have_are_named():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    X = pandas.DataFrame({"a": [1.0, 2.0, 4.0], "b": [3.0, 1.0, 2.0]})
    twice = pandas.concat([X, X[["a"]]], axis=1)
    for fit in (Columns().fit, lambda X: pydirect.DirectRegressor().fit_stream(X, [1.0, 2.0, 3.0])):
        with pytest.raises(ValueError, match="X must have columns of different names, got 'a' more than once"):
            fit(twice)
    columns = Columns().fit(X)
    for more, message in (
        (X.assign(d=pandas.to_timedelta([1, 2, 3], unit="h")), "it also has 'd'"),
        (X.assign(d=pandas.date_range("2020", periods=3)), "it also has 'd'"),
        (twice, "it repeats 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            columns.transform(more)
    with pytest.raises(ValueError, match="X must have the columns of the fit: it has them in another order"):
        columns.encoding_.encode(X[["b", "a"]])


def test_draws_of_missing_numbers_have_the_moments_of_the_gaussian_exactly():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 5)) @ rng.standard_normal((5, 5)) + 3
    x[rng.random(x.shape) < 0.3] = np.nan
    columns = Columns(missing="indicator").encoding(x)
    z, absent = columns.encode_and_mark(x)
    assert z.shape == (300, 10)
    for rows, places, _ in columns.draws_of_missing(z, absent):
        assert (places[:, :, 5:] == 0).all()  # nothing of them is missing
        np.testing.assert_array_equal(places[0, :, :5], z[rows, :5])
        for row, drawn in zip(rows, places[1:, :, :5].swapaxes(0, 1), strict=True):
            lacking = absent[row]
            own = np.linalg.inv(columns.gaps.precision[np.ix_(lacking, lacking)])
            np.testing.assert_array_equal(
                drawn[:, ~lacking], np.broadcast_to(z[row, :5][~lacking], (64, (~lacking).sum()))
            )
            np.testing.assert_allclose(drawn.mean(axis=0), z[row, :5], rtol=1e-9)
            covariance = own * np.outer(columns.gaps.scale[lacking], columns.gaps.scale[lacking])
            np.testing.assert_allclose(
                np.cov(drawn[:, lacking].T, bias=True).reshape(covariance.shape), covariance, rtol=1e-6, atol=1e-9
            )
