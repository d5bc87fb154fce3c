"""Many classes: seconds and log loss of `DirectClassifier` beside histogram boosting, on tables like those of letters.

Every class has centres of its own in the columns, which are whole numbers, as those measured of letters' pictures are.
Seconds are processor time on one thread.

    python bench/scripts/many_classes.py                       # 26 classes and 8,000 rows, 200 classes and 1,000 rows
    python bench/scripts/many_classes.py --sizes 26x4000 --peers
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.metrics import accuracy_score, log_loss  # noqa: E402

from pydirect import DirectClassifier  # noqa: E402
from pydirect.metrics import expected_calibration_error  # noqa: E402

N_COLUMNS, N_CENTRES, N_TEST = 16, 3, 4000


def letters(n_classes: int, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows near one of three centres of their class, rounded, (n_rows, 16), and numbers of classes, all in turn."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(7.5, 2.2, (n_classes, N_CENTRES, N_COLUMNS))
    y = rng.permutation(np.arange(n_rows) % n_classes)
    x = centre[y, rng.integers(N_CENTRES, size=n_rows)] + 1.5 * rng.standard_normal((n_rows, N_COLUMNS))
    return np.clip(np.round(x), 0, 15), y


def measured(model: Any, rows: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> str:
    """Seconds, log loss, accuracy and calibration error of a model, as a line."""
    begin = time.process_time()
    model.fit(*rows)
    seconds = time.process_time() - begin
    p = model.predict_proba(test[0])
    right, confidence = model.classes_[p.argmax(axis=1)] == test[1], p.max(axis=1)
    losses = log_loss(test[1], p, labels=model.classes_), accuracy_score(right, np.ones(len(right)))
    error = expected_calibration_error(right, np.minimum(confidence, 1.0))
    return f"{seconds:10.1f}{losses[0]:10.4f}{losses[1]:10.4f}{error:13.4f}{confidence.mean() - losses[1]:14.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["26x8000", "200x1000"], help="classes x rows")
    parser.add_argument("--peers", action="store_true", help="histogram boosting and a random forest as well")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{'':32s}{'seconds':>10s}{'log loss':>10s}{'accuracy':>10s}{'calibration':>13s}{'over-conf.':>14s}")
    for size in arguments.sizes:
        n_classes, n_rows = map(int, size.split("x"))
        x, y = letters(n_classes, n_rows + N_TEST, arguments.seed)
        models: dict[str, Any] = {"DirectClassifier": DirectClassifier(n_threads=1)}
        if arguments.peers:
            models["HistGradientBoosting"] = HistGradientBoostingClassifier(random_state=0)
            models["RandomForest"] = RandomForestClassifier(random_state=0)
        for name, model in models.items():
            line = measured(model, (x[:n_rows], y[:n_rows]), (x[n_rows:], y[n_rows:]))
            print(f"{size:10s}{name:22s}{line}", flush=True)


if __name__ == "__main__":
    main()
