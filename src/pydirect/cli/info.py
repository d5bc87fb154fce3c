"""Models of the command line: what a file holds, facts and scores in words, and predictions of a table's rows."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pydirect.cli.common import CommandError, numbers_text, print_lines, shortened
from pydirect.tables.table import Table


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    facts = _json_value(_facts(args.model))
    if args.json:
        print(json.dumps(facts, indent=2, allow_nan=False))
    else:
        print_lines([(name.replace("_", " "), _fact_text(value)) for name, value in _readable(facts).items()])
    return 0


def _readable(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the known facts, nested ones in words."""
    known = {name: value for name, value in facts.items() if value not in (None, [], {})}
    arrays = facts["arrays"]
    known["arrays"] = [f"{name} {array['dtype']} {tuple(array['shape'])}" for name, array in arrays.items()]
    if "class" in known:
        # A model has many arrays, and the other facts say what matters about them.
        known["arrays"] = _arrays_text({name: array["nbytes"] for name, array in arrays.items()})
        known["parameters"] = _changed_parameters(facts["class"], facts["parameters"]) or "defaults"
        known["converged"] = "yes" if facts["converged"] else "no"
        if "noise_sd" in known:
            known["noise_sd"] = noise_text(facts["noise_sd"], known.pop("noise_kinds"))
    if "held_out" in known:
        known["held_out"] = [f"{scores['target']}: {scores_text(scores)}" for scores in known["held_out"]]
    lines: dict[str, Any] = {}
    for fact, value in known.items():
        lines |= _category_lines(value, facts["other_categories"]) if fact == "categories" else {fact: value}
    return {fact: value for fact, value in lines.items() if fact != "other_categories"}


def _arrays_text(sizes: dict[str, int]) -> str:
    """Say how large arrays are together, and which take most of it."""
    total = sum(sizes.values())
    largest = [
        f"{name} {size}" for name, size in sorted(sizes.items(), key=lambda item: -item[1]) if size > 0.05 * total
    ]
    return f"{len(sizes)}, {total} bytes together, of which {', '.join(largest[:5])}; --json lists them"


def _category_lines(categories: dict[str, list[str]], others: list[str]) -> dict[str, str]:
    """Return a line for the categories of each column."""
    shown = {name: shortened(own, 12) or "different in every row, not used" for name, own in categories.items()}
    return {f"categories, {name}": own + ", (other)" * (name in others) for name, own in shown.items()}


def _changed_parameters(estimator: str, parameters: dict[str, Any]) -> dict[str, Any]:
    import pydirect

    defaults = _json_value(getattr(pydirect, estimator)().get_params())
    return {name: value for name, value in parameters.items() if value != defaults.get(name)}


def _facts(path: Path) -> dict[str, Any]:
    """Return the contents of a file: its layout, and parameters and results if it holds a model."""
    from pydirect.persistence.container import describe

    description = describe(path)
    arrays = {
        name: {"dtype": info.dtype, "shape": list(info.shape), "nbytes": info.nbytes}
        for name, info in description.arrays.items()
    }
    facts = {
        "file": str(path),
        "file_size": description.file_size,
        "kind": description.kind,
        "format_version": description.format_version,
        "library_version": description.header.get("library"),
    }
    return {**facts, **_model_facts(path), "arrays": arrays}


def _model_facts(path: Path) -> dict[str, Any]:
    import pydirect
    from pydirect.persistence.container import KindError

    try:
        model = pydirect.load(path)
    except KindError:
        return {}
    stored = table_metadata(model)
    return {
        "class": type(model).__name__,
        "parameters": model.get_params(),
        **_column_facts(model),
        "targets": stored.get("targets"),
        "weight_column": stored.get("weight"),
        "rows": stored.get("n_rows"),
        "held_out": stored.get("held_out"),
        "structure": kind_of_model(model),
        "weights": count_weights(model),
        "levels_per_weight": None
        if not hasattr(model.posteriors_[0], "weights")
        else int(np.max([posterior.weights.n_levels for posterior in model.posteriors_])),
        "sparsity": model.sparsity_,
        "target_scale": getattr(model, "target_transform_", None) and str(model.target_transform_),
        "noise_sd": np.sqrt(model.noise_variance_) if hasattr(model, "noise_variance_") else None,
        "noise_kinds": noise_kinds(model) if hasattr(model, "noise_variance_") else None,
        "classes": getattr(model, "classes_", None),
        "elbo": model.elbo_,
        "iterations": model.n_iter_,
        "converged": model.converged_,
    }


def _column_facts(model: Any) -> dict[str, Any]:
    """Return names of columns, categories by column, and which columns lacked numbers or have rarer categories."""
    columns = model.columns_
    names = columns.raw_names
    categories = {name: own for name, own in zip(names, columns.categories, strict=True) if own is not None}
    return {
        "columns": None if columns.names is None else names,
        "categories": {n: ["(missing)" if c is None else c for c in own] for n, own in categories.items()},
        "dates": {names[c.column]: [c.unit, *c.seasons, *filter(None, [c.zone])] for c in columns.calendars},
        "other_categories": [names[j] for j in columns.pooled],
        "missing_numbers": [names[j] for j in columns.lacking],
        "missing_indicators": [names[j] for j in columns.indicators],
    }


def _json_value(value: Any) -> Any:
    """Return `value` in JSON types: arrays as lists, infinities and NaN as null, other objects as their repr."""
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _json_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else repr(value)


def _fact_text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}={_fact_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_fact_text, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# What becomes of missing numbers.
REPLACED = "replaced by what the other columns suggest"
_ROWS_PER_BATCH = 8192
# Scores of numbers, and of classes.
_SCORES = ("rmse", "nlpd", "coverage", "level")
_CLASS_SCORES = ("accuracy", "log_loss", "calibration_error")


def load_for_tables(path: Path) -> tuple[Any, list[str], list[str]]:
    """Return a model that knows the names of its columns, names of its targets, and marks of missing values."""
    import pydirect

    model = pydirect.load(path)
    if isinstance(model, pydirect.DirectCountRegressor):
        raise CommandError(
            f"{path}: models of counts predict in Python alone, by pydirect.load and predict_distribution"
        )
    if model.columns_.names is None:
        raise CommandError(
            f"{path}: the model does not know the names of its columns: fit it to a data frame, or use pydirect.load "
            "in Python, with quantize and to_c instead of export"
        )
    n_targets = _n_targets(model)
    stored = table_metadata(model)
    targets = stored.get("targets", [f"output{k}" for k in range(n_targets)])
    if len(targets) != n_targets:
        raise CommandError(f"{path}: the model has {n_targets} targets, got names for {len(targets)}")
    return model, targets, stored.get("missing_values", [])


def _n_targets(model: Any) -> int:
    return 1 if hasattr(model, "classes_") else int(np.size(model.noise_variance_))


def table_metadata(model: Any) -> dict[str, Any]:
    """Return what a loaded model's metadata say about the table that it was fitted to, empty if nothing sound."""
    stored = (getattr(model, "metadata_", None) or {}).get("table")
    if not isinstance(stored, dict):
        return {}
    texts = [stored.get(name) for name in ("targets", "missing_values")]
    held_out = stored.get("held_out")
    sound = all(isinstance(given, list) and all(isinstance(text, str) for text in given) for given in texts)
    return stored if sound and isinstance(held_out, list) and all(map(is_sound, held_out)) else {}


def new_metadata(args: argparse.Namespace, n_rows: int, held_out: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the metadata to save with a model fitted to a table."""
    return {
        "table": {
            "targets": list(args.target),
            "weight": args.weight,
            "missing_values": list(args.missing_value),
            "n_rows": n_rows,
            "held_out": held_out,
        }
    }


def kind_of_model(model: Any) -> str:
    """Return the kind of a model in words."""
    if hasattr(model, "coefs_"):
        return f"network with {', '.join(map(str, model.posteriors_[0].shape.hidden_layer_sizes))} hidden units"
    if is_gaussian_network(model):
        network = model.posteriors_[0].network
        return f"{network.activation} network with {', '.join(map(str, network.hidden_layer_sizes))} hidden units"
    kind: str = model.features_.map.kind
    return f"{kind} features" if kind != "polynomial" else f"{kind} features of degree {model.features_.map.degree}"


def is_gaussian_network(model: Any) -> bool:
    """Whether the model is a network with continuous weights."""
    return hasattr(model.posteriors_[0], "network")


def count_weights(model: Any) -> int:
    """Return the number of weights."""
    if is_gaussian_network(model):
        return int(model.posteriors_[0].network.n_weights)
    return int(model.features_.n_weights if hasattr(model, "features_") else model.posteriors_[0].weights.n_weights)


def noise_kinds(model: Any) -> list[str]:
    """Return what kind of noise the model of each output has, such as "constant" or "varying, heavy tails"."""
    if getattr(model, "noise_model_", None) is not None:
        return list(model.noise_model_.choices)
    varies = is_gaussian_network(model) and model.noise == "varying"
    scaled = getattr(model, "local_", None) is not None and bool((model.local_.pooling < 1).any())
    kind = "varying" if varies else "constant, scaled by the local process" if scaled else "constant"
    return [kind] * _n_targets(model)


def noise_text(deviations: Any, kinds: list[str]) -> str:
    """Return the deviation of the noise of each output, and of what kind the noise is."""
    averaged = " on average" if any("varying" in kind for kind in kinds) else ""
    return f"{numbers_text(deviations)}{averaged}, {'; '.join(kinds if len(set(kinds)) > 1 else kinds[:1])}"


def column_lines(model: Any) -> list[tuple[str, str]]:
    """Return the summary's lines about the columns of the table."""
    from pydirect.tables.columns import MOST_CATEGORIES

    columns = model.columns_
    encoded = "" if columns.is_plain else f", {columns.n_encoded} after encoding"
    lines = [("columns", f"{columns.n_columns}{encoded}")]
    numbering = [columns.names[j] for j in columns.numbering]
    if numbering:
        hint = f"--drop {shlex.join(numbering)} if that only numbers the rows"
        lines.append(("", f"a different integer in every row of {shortened(numbering)}: {hint}"))
    if columns.pooled:
        pooled = shortened([columns.names[j] for j in columns.pooled])
        lines.append(("", f"the {MOST_CATEGORIES - 1} commonest categories kept of {pooled}"))
    return lines


def fit_lines(args: argparse.Namespace, model: Any) -> list[tuple[str, str]]:
    """Return the summary's lines about the fit and the file."""
    return [
        ("classes", ", ".join(map(str, model.classes_)))
        if hasattr(model, "classes_")
        else ("noise sd", _noise_text(model)),
        ("ELBO", numbers_text(model.elbo_)),
        *_ends(model),
        ("written", f"{args.output} ({os.path.getsize(args.output)} bytes)"),
    ]


def _noise_text(model: Any) -> str:
    scale = getattr(model, "target_transform_", None)
    return noise_text(np.sqrt(model.noise_variance_), noise_kinds(model)) + (f", of {scale}" if scale else "")


def _ends(model: Any) -> list[tuple[str, str]]:
    """Return how each fit ended: an optimisation, or draws of weights on levels."""
    sequential = [p for p in getattr(model, "posteriors_", []) if hasattr(p, "log_weights")]
    if not sequential:
        return [("converged", f"{'yes' if has_converged(model) else 'no'}, {np.max(model.n_iter_)} iterations")]
    gap = sum(p.gap for p in sequential)
    side = "below" if gap >= 0 else "above"
    return [("draws", f"{sequential[0].n_draws}, {abs(gap):.2g} nats {side} the evidence of continuous weights")]


def structure(model: Any) -> str:
    """Return kind and number of weights of a model in words."""
    return f"{kind_of_model(model)}, {count_weights(model)} weights"


def has_converged(model: Any) -> bool:
    """Whether the fit converged for every output."""
    return bool(np.all(model.converged_))


# --- predictions and scores


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


def predictions_of(model: Any, X: Table, level: float, y: np.ndarray) -> list[Prediction]:
    """Predict the rows of X (n, p) and compare with y (n, k), NaN where unknown; one prediction per target."""
    batches = []
    for start in range(0, len(X), _ROWS_PER_BATCH):
        rows = slice(start, start + _ROWS_PER_BATCH)
        found = model.predict_distribution(X.rows(rows))
        found = found if isinstance(found, list) else [found]
        batches.append([_compared(d, level, known) for d, known in zip(found, y[rows].T, strict=True)])
    return [Prediction(*map(np.concatenate, zip(*parts, strict=True))) for parts in zip(*batches, strict=True)]


def _compared(distribution: Any, level: float, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the fields of a prediction."""
    known = np.isfinite(y)
    filled = np.where(known, y, distribution.mean)
    compared = (distribution.log_density(filled), distribution.cdf(filled)) if known.any() else (y, y)
    scores = (np.where(known, score, np.nan) for score in compared)
    return (distribution.mean, distribution.std, *distribution.interval(level), y, *scores)


def as_classified(model: Any, X: Table, labels: np.ndarray) -> Classified:
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
    names = _CLASS_SCORES if "accuracy" in scores else _SCORES
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
