"""`pydirect info`: what a file holds."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from pydirect.cli.common import print_lines, shortened
from pydirect.cli.models import (
    count_weights,
    kind_of_model,
    noise_kinds,
    noise_text,
    scores_text,
    table_metadata,
)


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
