"""Classification: accuracy, log loss, calibration and time, beside scikit-learn's classifiers as their users take them.

Five stratified folds of the sets in `classification_sets.py`, on one thread. Log loss, calibration error of the
predicted class, Brier score and, for two classes, average precision are those of the held-out rows of all folds
together; seconds are processor time per fold. `truth` are the probabilities that a synthetic set's labels were drawn
with. Rivals: logistic regression and a support vector machine with Platt scaling, both on standardised columns,
histogram boosting and a random forest, each as it comes; a Gaussian process with one length-scale where rows are few;
LightGBM and CatBoost if they are installed, outside the summary. The summary compares our models with the best rival on
equal folds; ranks are those of all models that were fitted to every set. Prediction sets are to contain the label with
a probability of .9: those of our models, and MAPIE's of histogram boosting if it is installed, which holds out a fifth
of the rows.

    python bench/paper/classification.py unseen --models default pooled

measures what nothing was chosen on: scikit-learn's sets, those of river and statsmodels, and synthetic ones.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from classification_sets import FRESH, SETS, UNSEEN, DataSet, Labelled  # noqa: E402
from scipy.stats import rankdata  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.gaussian_process import GaussianProcessClassifier  # noqa: E402
from sklearn.gaussian_process.kernels import RBF  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import average_precision_score, log_loss  # noqa: E402
from sklearn.model_selection import StratifiedKFold, train_test_split  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

from pydirect import DirectClassifier, PooledClassifier  # noqa: E402
from pydirect.metrics import expected_calibration_error  # noqa: E402

MODELS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"features": "linear"},
    "balanced": {"class_weight": "balanced"},
    "linear-exponential": {"features": "linear", "posterior": "mean_field", "bound": "exponential"},
    "fourier": {"features": "fourier"},
    "fourier-sequential": {"features": "fourier", "posterior": "sequential"},
    "fourier-mean-field": {"features": "fourier", "posterior": "mean_field"},
    "pooled": {},
}
RIVALS = ("LogisticRegression", "SVC, Platt", "HistGradientBoosting", "RandomForest", "GaussianProcess")
MAX_SVC_ROWS, MAX_PROCESS_ROWS = 20_000, 700
RARE = 0.05  # two classes, one of them below this share, get the model of balanced classes too
COVERAGE = 0.9  # of prediction sets
STANDARD_ERRORS = 1.5  # by which coverage may miss it
N_DRAWS = 100  # of labels, for the calibration error that chance makes
MAPIE = "MAPIE, boosting"
COLUMNS = ("accuracy", "log_loss", "calibration", "brier", "precision", "fit_seconds", "predict_seconds")


@dataclass
class Outcome:
    """Labels, probabilities and prediction sets of each fold's held-out rows, seconds, what a fit found."""

    y: list[np.ndarray] = field(default_factory=list)
    p: list[np.ndarray] = field(default_factory=list)
    sets: list[np.ndarray] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    def scores(self, n_folds: int | None = None) -> dict[str, float]:
        """Scores over the first folds, under the names of `COLUMNS`."""
        y, p = np.concatenate(self.y[:n_folds]), np.vstack(self.p[:n_folds])
        right = p.argmax(axis=1) == y
        values = (
            right.mean(),
            log_loss(y, p, labels=np.arange(p.shape[1])),
            expected_calibration_error(right, np.minimum(p.max(axis=1), 1.0)),
            ((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1).mean() / 2,
            average_precision_score(y, p[:, 1]) if p.shape[1] == 2 else np.nan,
            *(np.mean(self.seconds[:n_folds], axis=0) if self.seconds else (np.nan, np.nan)),
        )
        return dict(zip(COLUMNS, map(float, values), strict=True))

    def is_miscalibrated(self) -> bool:
        """Whether the calibration error is above that of labels drawn with the probabilities, by two deviations."""
        y, p = np.concatenate(self.y), np.vstack(self.p)
        confidence, rng = np.minimum(p.max(axis=1), 1.0), np.random.default_rng(0)
        drawn = [expected_calibration_error(rng.random(len(y)) < confidence, confidence) for _ in range(N_DRAWS)]
        return self.scores()["calibration"] > np.mean(drawn) + 2 * np.std(drawn)

    def add(self, model: Any, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> Any:
        """Fit and predict; return the fitted model."""
        begin = time.process_time()
        model.fit(x, y)
        middle = time.process_time()
        p = model.predict_proba(x_test)
        self.y.append(y_test)
        self.p.append(p / p.sum(axis=1, keepdims=True))
        self.seconds.append((middle - begin, time.process_time() - middle))
        if hasattr(model, "predict_set") and model.class_weight is None and getattr(model, "bound", "auto") == "auto":
            self.sets.append(model.predict_set(x_test, COVERAGE))
        return model

    def of_sets(self) -> tuple[float, float, float]:
        """How often sets have the label, the largest share that they need to have it, and their mean size."""
        y, found = np.concatenate(self.y), np.vstack(self.sets)
        accuracy = self.scores()["accuracy"] if self.p else 0.0  # likeliest labels are always in ours
        return found[np.arange(len(y)), y].mean(), max(COVERAGE, accuracy), found.sum(axis=1).mean()

    def record(self) -> dict[str, Any]:
        """All that goes into the file of figures."""
        losses = [log_loss(y, p, labels=np.arange(p.shape[1])) for y, p in zip(self.y, self.p, strict=bool(self.p))]
        sets = dict(zip(("coverage", "needed", "set_size"), self.of_sets(), strict=True)) if self.sets else {}
        found = {**self.scores(), **sets} if self.p else sets
        return {**found, "fold_log_losses": losses, "fold_seconds": self.seconds, "details": self.details}


def rivals(n: int, d: int) -> dict[str, Any]:
    """Rivals for n rows of d columns; those left out are None."""
    process = GaussianProcessClassifier(1.0 * RBF(np.sqrt(d)), random_state=0)
    found = {
        "LogisticRegression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "SVC, Platt": CalibratedClassifierCV(make_pipeline(StandardScaler(), SVC()), ensemble=False),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
        "RandomForest": RandomForestClassifier(random_state=0),
        "GaussianProcess": make_pipeline(StandardScaler(), process),
    }
    if n > MAX_SVC_ROWS:
        found["SVC, Platt"] = None
    if n > MAX_PROCESS_ROWS:
        found["GaussianProcess"] = None
    if find_spec("lightgbm"):
        from lightgbm import LGBMClassifier

        found["LightGBM"] = LGBMClassifier(n_jobs=1, verbose=-1)
    if find_spec("catboost"):
        from catboost import CatBoostClassifier

        found["CatBoost"] = CatBoostClassifier(thread_count=1, verbose=0, allow_writing_files=False, random_seed=0)
    return found


def sets_of_boosting(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """MAPIE's prediction sets, split conformal by probabilities, (n_rows, n_classes)."""
    from mapie.classification import SplitConformalClassifier

    fitted, held_out, y_fitted, y_held_out = train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)
    boosting = HistGradientBoostingClassifier(random_state=0)
    model = SplitConformalClassifier(boosting, confidence_level=COVERAGE, conformity_score="lac", prefit=False)
    model.fit(fitted, y_fitted).conformalize(held_out, y_held_out)
    return model.predict_set(x_test)[1][:, :, 0].astype(bool)


def found_by(model: DirectClassifier) -> dict[str, Any]:
    """What explains a fit: stages, size, the ELBO per row, the weights' prior scales and the kernel."""
    kernel = model.features_.hyperparameters
    return {
        "stages": model.fit_seconds_,
        "n_weights": int(np.shape(model.coef_)[-1]),
        "elbo_per_row": float(model.elbo_ / model.total_weight_),
        "sparsity": float(model.sparsity_),
        "prior_scale": np.ravel(model.prior_scale_).tolist(),
        "kernel": None if kernel is None else str(kernel),
    }


def basis_functions(model: DirectClassifier, x: np.ndarray) -> np.ndarray:
    """Φ of rows of X, block by block."""
    return np.vstack([model.features_.transform(rows) for rows in np.array_split(x, max(len(x) // 5_000, 1))])


def measure(data: Labelled, settings: DataSet, arguments: argparse.Namespace) -> dict[str, Outcome]:
    """Outcomes of the truth, our models and the rivals on one set."""
    outcomes: dict[str, Outcome] = {}

    def outcome(label: str) -> Outcome:
        return outcomes.setdefault(label, Outcome())

    shares = np.bincount(data.y) / len(data.y)
    own = [m for m in arguments.models if m != "balanced" or (len(shares) == 2 and shares.min() < RARE)]
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(data.x, data.y))
    for fold, (train, test) in enumerate(folds[: min(arguments.folds, settings.max_folds)]):
        rows = data.x[train], data.y[train], data.x[test], data.y[test]
        if data.truth is not None:
            outcome("truth").y.append(data.y[test])
            outcome("truth").p.append(data.truth[test])
        for label in own if fold < arguments.own_folds else ():
            options = {**settings.options, **MODELS[label], "n_threads": 1}
            if arguments.n_basis_functions is not None:
                options["n_basis_functions"] = arguments.n_basis_functions
            if label == "pooled":
                outcome("pydirect pooled").add(PooledClassifier(**options), *rows)
                continue
            model = outcome(f"pydirect {label}").add(DirectClassifier(**options), *rows)
            outcome(f"pydirect {label}").details.append(found_by(model))
            if arguments.same_features and model.posterior == "gaussian":
                phi, phi_test = basis_functions(model, rows[0]), basis_functions(model, rows[2])
                reference = LogisticRegression(max_iter=1000, class_weight=options.get("class_weight"))
                outcome(f"LogisticRegression, {label}").add(reference, phi, rows[1], phi_test, rows[3])
        if not arguments.no_rivals:
            for label, rival in rivals(*rows[0].shape).items():
                if rival is not None:
                    outcome(label).add(rival, *rows)
                elif fold == 0:
                    print(f"{label} left out: {len(train)} rows are too many for it")
            if find_spec("mapie"):
                outcome(MAPIE).y.append(data.y[test])
                outcome(MAPIE).sets.append(sets_of_boosting(*rows[:3]))
    return outcomes


def print_table(name: str, data: Labelled, outcomes: dict[str, Outcome]) -> None:
    """One line per model."""
    shares = ", ".join(f"{share:.3g}" for share in np.bincount(data.y) / len(data.y))
    print(f"\n{name}: {len(data.x)} rows, {data.x.shape[1]} columns, classes {shares}")
    print(f"{'':32s}{'folds':>6s}" + "".join(f"{column:>17s}" for column in COLUMNS))
    for label, outcome in outcomes.items():
        if not outcome.p:
            continue
        values = outcome.scores().values()
        print(f"{label:32s}{len(outcome.y):6d}" + "".join(f"{v:17.4f}" for v in values), flush=True)


def print_summary(label: str, results: dict[str, dict[str, Outcome]]) -> None:
    """A model beside the best rival of each set, on equal folds."""
    columns = ("log loss", "best rival", "", "ratio", "calibration", "best rival", "x fastest", "x best")
    print(f"\n{label}\n{'':16s}" + "".join(f"{column:>{22 if not column else 12}s}" for column in columns))
    sets = {name: outcomes for name, outcomes in results.items() if label in outcomes and RIVALS[0] in outcomes}
    met = []
    for name, outcomes in sets.items():
        own = outcomes[label].scores()
        others = {rival: outcomes[rival].scores(len(outcomes[label].y)) for rival in RIVALS if rival in outcomes}
        best = min(others, key=lambda rival: others[rival]["log_loss"])
        calibration = min(scores["calibration"] for scores in others.values())
        ratio = own["log_loss"] / others[best]["log_loss"]
        multiple = own["fit_seconds"] / min(scores["fit_seconds"] for scores in others.values())
        met.append((ratio <= 1.02, own["calibration"] <= calibration, multiple <= 10))
        print(
            f"{name:16s}{own['log_loss']:12.4f}{others[best]['log_loss']:12.4f}{best:>22s}{ratio:12.3f}"
            f"{own['calibration']:12.4f}{calibration:12.4f}{multiple:12.1f}"
            f"{own['fit_seconds'] / others[best]['fit_seconds']:12.1f}"
        )
    near, calibrated, quick = np.sum(met, axis=0, dtype=int) if met else (0, 0, 0)
    print(f"log loss at most 2 % above the best rival's: {near} of {len(sets)} sets")
    print(f"calibration error at most the best rival's: {calibrated} of {len(sets)} sets")
    print(f"fitted in at most ten times the fastest rival's seconds: {quick} of {len(sets)} sets", flush=True)


def print_ranks(results: dict[str, dict[str, Outcome]]) -> None:
    """Mean ranks of the models that were fitted to every set, and on how many sets each is near the best."""
    models = [label for label in next(iter(results.values())) if all(label in found for found in results.values())]
    models = [label for label in models if label not in ("truth", MAPIE)]
    names = ("log_loss", "brier", "accuracy", "calibration", "fit_seconds")
    scores = [[found[label].scores() for label in models] for found in results.values()]
    table = np.array([[[own[name] for name in names] for own in of_set] for of_set in scores])
    table[:, :, names.index("accuracy")] *= -1
    ranks = rankdata(table, axis=1).mean(axis=0)
    near = (table[:, :, 0] <= 1.05 * table[:, :, 0].min(axis=1, keepdims=True)).sum(axis=0)
    peers = table[:, [not label.startswith("pydirect") for label in models], names.index("calibration")]
    least = peers.min(axis=1, keepdims=True) if peers.size else np.inf
    calibrated = (table[:, :, names.index("calibration")] <= least).sum(axis=0)
    off = np.sum([[found[label].is_miscalibrated() for label in models] for found in results.values()], axis=0)
    means = np.abs(table.mean(axis=0))
    print(f"\n{len(results)} sets: means, mean ranks, sets with a log loss within 5 % of the best (near)")
    print(
        "and with a calibration error at most that of each other library's models (calm), or clearly more than labels"
    )
    print("drawn with the predicted probabilities would give (off)")
    print(f"{'':28s}" + "".join(f"{name:>20s}" for name in names) + f"{'near':>6s}{'calm':>6s}{'off':>6s}")
    for label, mean, rank, *counts in zip(models, means, ranks, near, calibrated, off, strict=True):
        cells = "".join(f"{m:13.4f} ({r:4.2f})" for m, r in zip(mean, rank, strict=True))
        print(f"{label:28s}{cells}" + "".join(f"{count:6d}" for count in counts), flush=True)


def print_sets(results: dict[str, dict[str, Outcome]]) -> None:
    """Coverage of prediction sets and their mean size; labels of how many sets keep the coverage."""
    print(f"\nprediction sets of coverage {COVERAGE}: coverage (standard errors beyond what is needed), mean size")
    labels = sorted({label for found in results.values() for label, outcome in found.items() if outcome.sets})
    print(f"{'':22s}" + "".join(f"{label:>30s}" for label in labels))
    kept = dict.fromkeys(labels, 0)
    for name, found in results.items():
        cells = ""
        for label in labels:
            if label not in found or not found[label].sets:
                cells += f"{'':30s}"
                continue
            coverage, needed, size = found[label].of_sets()
            error = np.sqrt(COVERAGE * (1 - COVERAGE) / sum(map(len, found[label].y)))
            excess = (coverage - np.clip(coverage, COVERAGE, needed)) / error
            kept[label] += abs(excess) <= STANDARD_ERRORS
            cells += f"{coverage:15.3f} ({excess:5.1f}){size:7.2f}"
        print(f"{name:22s}{cells}", flush=True)
    print(f"{f'within {STANDARD_ERRORS} errors':22s}" + "".join(f"{kept[label]:30d}" for label in labels), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        help=f"data sets, unseen for those on which nothing was chosen, fresh for others (default: {', '.join(SETS)})",
    )
    parser.add_argument("--models", nargs="+", default=["default", "linear", "balanced"], choices=MODELS)
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--same-features", action="store_true", help="LogisticRegression on our basis functions too")
    parser.add_argument("--n-basis-functions", type=int, help="default: the estimator's, 300 for the set large")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--own-folds", type=int, default=5, help="of our models, where these are slow")
    parser.add_argument("--rows", type=int, help="of synthetic sets")
    parser.add_argument("--json", type=Path, help="written after every set")
    arguments = parser.parse_args()
    groups = {"fresh": FRESH, "unseen": UNSEEN}
    arguments.names = [name for given in arguments.names for name in groups.get(given, [given])]
    every = SETS | FRESH | UNSEEN
    if unknown := set(arguments.names) - set(every):
        parser.error(f"no such sets: {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")
    results: dict[str, dict[str, Outcome]] = {}
    for name in arguments.names or SETS:
        data = every[name].rows(arguments.rows)
        results[name] = measure(data, every[name], arguments)
        print_table(name, data, results[name])
        if arguments.json is not None:
            figures = {s: {label: o.record() for label, o in found.items()} for s, found in results.items()}
            arguments.json.write_text(json.dumps(figures, indent=1))
    for label in arguments.models:
        if label != "balanced" and not arguments.no_rivals:
            print_summary(f"pydirect {label}", results)
    print_ranks(results)
    print_sets(results)


if __name__ == "__main__":
    main()
