"""Predictions of a table's rows with their known targets, and their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pydirect.cli.tables import Frame

_ROWS_PER_BATCH = 8192


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions of one target, all of shape (n,); the last three are NaN where its value is unknown."""

    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    y: np.ndarray
    log_density: np.ndarray
    pit: np.ndarray


@dataclass(frozen=True, eq=False)
class Classified:
    """Probabilities (n, n_classes) of the classes, and true labels (n,), None where unknown."""

    classes: np.ndarray
    probability: np.ndarray
    labels: np.ndarray

    def index(self) -> np.ndarray:
        """Return the index of the true class, -1 where it is unknown or not among the classes."""
        number = {label: k for k, label in enumerate(self.classes.tolist())}
        return np.array([number.get(label, -1) for label in self.labels.tolist()])

    def events(self) -> tuple[np.ndarray, np.ndarray]:
        """Return whether a class was the true one and its probability: the second of two classes, or each of more."""
        first = 1 if len(self.classes) == 2 else 0
        happened = self.index()[:, None] == np.arange(first, len(self.classes))
        return happened.ravel(), self.probability[:, first:].ravel()


def predictions_of(model: Any, X: Frame, level: float, y: np.ndarray) -> list[Prediction]:
    """Predict the rows of X (n, p) and compare with y (n, k), NaN where unknown; one prediction per target."""
    batches = []
    for start in range(0, len(X), _ROWS_PER_BATCH):
        rows = slice(start, start + _ROWS_PER_BATCH)
        batches.append(_predict_batch(model, X.rows(rows), level, y[rows]))
    return [
        Prediction(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
        for pieces in zip(*batches, strict=True)
    ]


def _predict_batch(model: Any, X: Frame, level: float, y: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    distributions = model.predict_distribution(X)
    if not isinstance(distributions, list):
        distributions = [distributions]
    return [
        (d.mean, d.std, *d.interval(level), known, *_compared(d, known))
        for d, known in zip(distributions, y.T, strict=True)
    ]


def _compared(distribution: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log density and PIT of y (n,), NaN where y is NaN."""
    known = np.isfinite(y)
    if not known.any():
        return np.full(len(y), np.nan), np.full(len(y), np.nan)
    filled = np.where(known, y, distribution.mean)
    return np.where(known, distribution.log_density(filled), np.nan), np.where(known, distribution.cdf(filled), np.nan)


def as_classified(model: Any, X: Frame, labels: np.ndarray) -> Classified:
    """Return predicted classes and probabilities beside the true labels."""
    return Classified(model.classes_, model.predict_proba(X), labels)


def class_scores(target: str, prediction: Classified) -> dict[str, Any]:
    """Score the rows whose class the model knows."""
    from pydirect.metrics import expected_calibration_error

    index = prediction.index()
    known = index >= 0
    p, index = prediction.probability[known], index[known]
    right = p.argmax(axis=1) == index
    return {
        "target": target,
        "n_rows": len(p),
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(np.maximum(p[np.arange(len(p)), index], 1e-300)).mean()),
        "calibration_error": expected_calibration_error(right, np.minimum(p.max(axis=1), 1.0)),
    }


def scores_of(target: str, prediction: Prediction | Classified, level: float) -> dict[str, Any]:
    """Score the rows whose target is known, of which there must be at least one."""
    from pydirect.metrics import coverage

    if isinstance(prediction, Classified):
        return class_scores(target, prediction)
    known = np.isfinite(prediction.y)
    y = prediction.y[known]
    return {
        "target": target,
        "n_rows": len(y),
        "rmse": float(np.sqrt(np.mean((y - prediction.mean[known]) ** 2))),
        "nlpd": -float(np.mean(prediction.log_density[known])),
        "level": level,
        "coverage": float(coverage(y, prediction.lower[known], prediction.upper[known])),
    }


def is_sound(scores: Any) -> bool:
    """Whether `scores_text` can show what a file holds in place of scores."""
    if not isinstance(scores, dict) or not isinstance(scores.get("target"), str):
        return False
    names = (
        ("accuracy", "log_loss", "calibration_error") if "accuracy" in scores else ("rmse", "nlpd", "coverage", "level")
    )
    return all(isinstance(scores.get(name), float) for name in names) and isinstance(scores.get("n_rows"), int)


def scores_text(scores: dict[str, Any]) -> str:
    """Return scores as one line of text."""
    if "accuracy" in scores:
        return (
            f"accuracy {scores['accuracy']:.1%} of {scores['n_rows']} rows, log loss {scores['log_loss']:.6g}, "
            f"calibration error {scores['calibration_error']:.6g}"
        )
    return (
        f"RMSE {scores['rmse']:.6g}, NLPD {scores['nlpd']:.6g}, {scores['coverage']:.1%} of {scores['n_rows']} rows "
        f"inside the {100 * scores['level']:g}% interval"
    )
