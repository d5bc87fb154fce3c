"""Tests of `pydirect.tables.dates`: what dates are read from, seasons, and predictions beyond the last."""

import datetime
import zoneinfo

import numpy as np
import pytest

import pydirect
from pydirect import Columns, DirectRegressor, DirectStreamRegressor
from pydirect.tables import TableWarning
from pydirect.tables.dates import Dates
from pydirect.tables.table import Table

pd = pytest.importorskip("pandas", reason="pandas is not installed")


def frame(when, **more):
    return pd.DataFrame({"when": when, **more})


def monthly(n, seed=0):
    rng = np.random.default_rng(seed)
    when, t = pd.date_range("2015-01-01", periods=n, freq="MS"), np.arange(n)
    return frame(when), 0.3 * t + 8 * np.sin(2 * np.pi * t / 12) + rng.standard_normal(n)


def names_of(when):
    return Columns().fit(frame(when)).get_feature_names_out().tolist()


def test_dates_of_all_packages_and_as_text_are_the_same():
    X, _ = monthly(30)
    expected = Columns().fit_transform(X)
    forms = [
        X.assign(when=X.when.dt.strftime("%Y-%m-%d")),
        X.assign(when=X.when.dt.strftime("%Y-%m-%d %H:%M")),
        X.assign(when=X.when.dt.date),
        X.assign(when=[d.to_pydatetime() for d in X.when]).astype(object),
        X.convert_dtypes(dtype_backend="pyarrow") if pytest.importorskip("pyarrow") else X,
        pytest.importorskip("polars").from_pandas(X),
    ]
    for form in forms:
        np.testing.assert_array_equal(Columns().fit_transform(form), expected)
    np.testing.assert_array_equal(Columns().fit_transform(X.to_numpy()), expected)


@pytest.mark.parametrize(
    ("begin", "n", "step", "expected"),
    [
        ("2020-01-01", 144, "MS", ["(days)", "day of year"]),
        ("2020-01-01", 20, "MS", ["(days)"]),  # less than two years
        ("2020-01-01", 12, "YS", ["(days)"]),
        ("2020-01-01", 30, "D", ["(days)", "day of week"]),
        ("2020-01-01", 800, "D", ["(days)", "day of week", "day of year"]),
        ("2020-01-01", 24 * 15, "h", ["(days)", "time of day", "day of week"]),
        ("2020-01-01", 30, "h", ["(hours)"]),
        ("2020-01-01", 30, "s", ["(seconds)"]),
        ("2020-01-01", 1, "D", ["(seconds)"]),
    ],
)
def test_seasons_are_those_that_dates_repeat_twice_in_short_steps(begin, n, step, expected):
    found = names_of(pd.date_range(begin, periods=n, freq=step))
    assert found[0] == f"when {expected[0]}"
    assert found[1:] == [f"when: {season} ({f})" for season in expected[1:] for f in ("sine", "cosine")]


def test_phases_are_of_whole_weekdays_and_of_leap_years():
    dates = ["2024-01-01", "2024-07-01", "2024-12-31 23:59", "2023-01-01", "2023-12-31", "2026-01-01"]
    when = pd.to_datetime(dates, format="ISO8601").append(pd.date_range("2024-02-01", periods=40, freq="6h"))
    columns = Columns().fit(frame(when))
    rows = dict(zip(columns.get_feature_names_out(), columns.transform(frame(when)).T, strict=True))
    angle = lambda season: np.arctan2(rows[f"when: {season} (sine)"], rows[f"when: {season} (cosine)"]) % (2 * np.pi)  # noqa: E731
    year = when.to_numpy().astype("datetime64[Y]")
    begin, end = year.astype("datetime64[us]"), (year + np.timedelta64(1, "Y")).astype("datetime64[us]")
    share = (when.to_numpy() - begin) / (end - begin)
    np.testing.assert_allclose(angle("day of year"), 2 * np.pi * share, atol=1e-7)
    np.testing.assert_allclose(angle("day of week"), 2 * np.pi * when.day_of_week / 7, atol=1e-9)
    hours = when.hour + when.minute / 60
    np.testing.assert_allclose(angle("time of day"), 2 * np.pi * hours / 24, atol=1e-9)
    np.testing.assert_allclose(rows["when (days)"], (when - when.min()) / pd.Timedelta(days=1), rtol=1e-12)


def test_seasons_follow_the_clocks_of_the_zone_and_time_does_not():
    when = pd.date_range("2024-03-01", periods=24 * 60, freq="h", tz="Europe/Berlin")  # clocks change on 31 March
    columns = Columns().fit(frame(when))
    rows = columns.transform(frame(when))
    np.testing.assert_allclose(np.diff(rows[:, 0]), 1 / 24, rtol=1e-9)
    angle = np.arctan2(rows[:, 1], rows[:, 2]) % (2 * np.pi)
    np.testing.assert_allclose(angle, 2 * np.pi * when.hour / 24, atol=1e-9)
    np.testing.assert_array_equal(columns.transform(frame(when.tz_convert("Asia/Tokyo"))), rows)  # the same moments
    as_text = frame([f"{t.isoformat()}[Europe/Berlin]" for t in when])
    np.testing.assert_array_equal(Columns().fit_transform(as_text), rows)
    offsets = Dates.of_texts(["2024-01-01T00:00+01:00", "2024-01-01T00:00Z"], np.arange(2), "x")
    assert offsets.zone == "UTC" and np.ptp(offsets.seconds) == 3600
    west = datetime.timezone(datetime.timedelta(hours=-2))
    fixed = Dates.of_objects([datetime.datetime(2024, 1, 1, tzinfo=west)], "x")
    assert fixed.zone == "UTC-02:00" and fixed.local()[0] == fixed.seconds[0] - 7200


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("2024-01-01T00:00[Mars/Olympus]", ValueError, "column 'when': time zones must be known .* got 'Mars/Olympus'"),
        ("2024-02-30", ValueError, "column 'when' must hold dates that exist"),
        (datetime.timedelta(1), TypeError, "column 'when' must hold numbers, .* got durations"),
        (datetime.time(1), TypeError, "column 'when' must hold numbers, .* got durations"),
        (np.timedelta64(1, "D"), TypeError, "column 'when' must hold numbers, .* got durations"),
    ],
)
def test_what_is_no_date_or_zone_is_refused_by_column(value, error, message):
    with pytest.raises(error, match=message):
        Columns().fit(frame([value] * 3))


def test_mixed_and_other_kinds_are_refused():
    X, y = monthly(40)
    berlin = X.assign(when=X.when.dt.tz_localize("Europe/Berlin"))
    mixed = [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))]
    with pytest.raises(TypeError, match="with a time zone or without, got both"):
        Columns().fit(frame(mixed).astype(object))
    model = DirectRegressor().fit(X, y)
    for bad, message in (
        (berlin, "must hold times without a zone, as in fit, got times in the time zone 'Europe/Berlin'"),
        (X.assign(when="soon"), "must hold dates, as in fit, got 'soon'"),
        (X.assign(when=1.0), "must hold dates, as in fit, got the number 1"),
    ):
        with pytest.raises(TypeError, match=message):
            model.predict(bad)
    with pytest.raises(TypeError, match="column 'when' must hold numbers, as in fit, got the date 2015-01-01"):
        DirectRegressor().fit(X.assign(when=np.arange(40.0)), y).predict(X)
    with pytest.raises(TypeError, match="y must hold numbers or labels, got dates or times"):
        DirectRegressor().fit(np.arange(40.0)[:, None], X.when)


def test_missing_dates_are_filled_and_may_be_categories():
    X, y = monthly(40)
    X.loc[3, "when"] = pd.NaT
    columns = DirectRegressor().fit(X, y).columns_
    assert columns.lacking == (0,) and np.isfinite(columns.encode(X)).all()
    named = Columns(categories=["when"]).fit(monthly(12)[0])
    assert named.get_feature_names_out()[0] == "when=2015-01-01"
    assert (named.transform(monthly(12)[0]) == np.eye(12)).all()


def test_streams_files_and_models_keep_dates(tmp_path):
    X, y = monthly(120)
    X["z"] = np.random.default_rng(1).standard_normal(120)
    model = DirectRegressor().fit(X, y)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(pydirect.load(tmp_path / "model").predict(X), model.predict(X))
    streamed = DirectRegressor().fit_stream(X, y)
    np.testing.assert_allclose(streamed.predict(X), model.predict(X), atol=0.3)
    X.assign(y=y).to_parquet(tmp_path / "x.parquet")
    from_file = DirectRegressor().fit_stream(tmp_path / "x.parquet", "y")
    np.testing.assert_allclose(from_file.predict(X), streamed.predict(X), rtol=1e-9)
    stream = DirectStreamRegressor()
    for begin in range(0, 120, 40):
        stream.partial_fit(X[begin : begin + 40], y[begin : begin + 40])
    stream.save(tmp_path / "stream")
    np.testing.assert_array_equal(pydirect.load(tmp_path / "stream").predict(X), stream.predict(X))
    assert stream.columns_.calendars
    for bad, message in ((X.assign(when=1.0), "dates, as in the rows before"), (X.assign(z=X.when), "numbers, as in")):
        with pytest.raises(TypeError, match=message):
            stream.partial_fit(bad, y)


def test_a_trend_goes_on_and_widens_beyond_the_last_date():
    inside, errors = [], []
    for seed in range(5):
        X, y = monthly(144, seed)
        model = DirectRegressor().fit(X[:96], y[:96])
        lower, upper = model.predict_interval(X, 0.9)
        inside.append(np.mean((lower <= y)[96:] & (y <= upper)[96:]))
        errors.append(np.sqrt(np.mean((model.predict(X[96:]) - y[96:]) ** 2)))
        width = upper - lower
        assert width[-12:].mean() > width[96:108].mean() > width[:96].mean()
    assert np.mean(inside) >= 0.85
    assert np.mean(errors) < 2.0  # of a trend that goes on by 14, with seasons of ±8


def test_dates_in_summaries_gradients_and_effects():
    X, y = monthly(60)
    model = DirectRegressor().fit(X, y)
    assert "Dates: when as time in days, day of year." in str(model.summary())
    assert Table.of(X).columns[0].texts()[0][:2] == ["2015-01-01", "2015-02-01"]
    assert np.isnan(model.predict_gradient(X)[0]).all()
    pytest.importorskip("matplotlib")
    display = pydirect.plotting.EffectDisplay.from_estimator(model, X, "when")
    assert display.effects[0][1].dtype.kind == "M"


DAYS = pd.date_range("2023-01-01", periods=149)


def test_blank_texts_among_dates_are_missing():
    when = [*DAYS.strftime("%Y-%m-%d"), ""]
    columns = Columns().fit(frame(when))
    expected = Columns().fit(frame([*DAYS, pd.NaT]))
    np.testing.assert_array_equal(columns.transform(frame(when)), expected.transform(frame([*DAYS, pd.NaT])))
    np.testing.assert_array_equal(columns.transform(frame([" "])), expected.transform(frame([pd.NaT])))


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ([*DAYS.strftime("%Y-%m-%d"), "unknown"], "dates as text, but 'unknown' in row 149: it is not used"),
        (list(DAYS.strftime("%d.%m.%Y")), "such as '01.01.2023': it is not used; .* pandas.to_datetime"),
        (list(DAYS.strftime("%m/%d/%Y")), "such as '01/01/2023': it is not used; .* pandas.to_datetime"),
        (list(DAYS.strftime("%d %b %Y"))[:20], "such as '01 Jan 2023': it is taken as categories"),
    ],
)
def test_texts_that_are_nearly_dates_are_told(when, message):
    with pytest.warns(TableWarning, match=f"column 'when' holds .*{message}"):
        Columns().fit(frame(when))
