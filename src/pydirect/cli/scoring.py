"""Scores of predictions, for people."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# ---------------------------------------------------------------------------------------------------------- predict


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions of one target, all of shape (n,); the last three are NaN in rows where its value is not known."""

    mean: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    y: np.ndarray
    log_density: np.ndarray
    pit: np.ndarray


@dataclass(frozen=True, eq=False)
class Classified:
    """Probabilities (n, n_classes) of the classes, and the right ones (n,), None where it is not known."""

    classes: np.ndarray
    probability: np.ndarray
    labels: np.ndarray

    def index(self) -> np.ndarray:
        """Return the number of the right class, -1 where it is not known or not among them."""
        import numpy as np

        number = {label: k for k, label in enumerate(self.classes.tolist())}
        return np.array([number.get(label, -1) for label in self.labels.tolist()])

    def events(self) -> tuple[np.ndarray, np.ndarray]:
        """Whether a class was right, and how probable it was: the second of two, or of more every one in turn."""
        import numpy as np

        first = 1 if len(self.classes) == 2 else 0
        happened = self.index()[:, None] == np.arange(first, len(self.classes))
        return happened.ravel(), self.probability[:, first:].ravel()


def as_classified(model: Any, X: np.ndarray, labels: np.ndarray) -> Classified:
    """Return predicted classes and probabilities beside the true labels."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return Classified(model.classes_, model.predict_proba(X), labels)


def class_scores(target: str, prediction: Classified) -> dict[str, Any]:
    """Score the rows whose class is known to the model."""
    import numpy as np

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
    """Score the rows where the target is known; there must be some."""
    import numpy as np

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
