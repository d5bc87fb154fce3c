"""Summary of `pydirect fit`: the data, the model and the file."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Any

from pydirect.cli.common import numbers_text, print_lines, shortened
from pydirect.cli.fit_model import has_converged
from pydirect.cli.model_files import count_weights, kind_of_model, noise_deviation, noise_kinds, noise_text
from pydirect.cli.scoring import scores_text

if TYPE_CHECKING:
    from pydirect.cli.fit_data import TrainingData

# What becomes of missing numbers.
REPLACED = "replaced by what the other columns suggest"


def print_summary(args: argparse.Namespace, data: TrainingData, model: Any, held_out: list[dict[str, Any]]) -> None:
    """Print the summary of a fit to a table."""
    dropped = f" ({data.n_dropped} with missing values left out)" if data.n_dropped else ""
    lines = [("rows", f"{len(data.X)}{dropped}"), *column_lines(model)]
    lines += [("missing", text) for text in _missing_texts(model, data)]
    lines.append(("model", structure(model)))
    for scores in held_out:
        lines.append((f"held out, {scores['target']}", scores_text(scores)))
    if held_out:
        lines.append(("", f"the model below was then fitted to all {len(data.X)} rows"))
    print_lines(lines + fit_lines(args, model))


def _missing_texts(model: Any, data: TrainingData) -> list[str]:
    """Return what was missing among numbers and among categories, and what became of it."""
    counts = model.columns_.missing(data.X).sum(axis=0)
    found: dict[bool, list[str]] = {True: [], False: []}
    for name, count, own in zip(data.X.columns, counts, model.columns_.categories, strict=True):
        if count and own != () and count < len(data.X):
            found[own is None].append(f"{name} {count}")
    became = {True: REPLACED, False: "a category of its own"}
    return [f"{shortened(names)}: {became[numbers]}" for numbers, names in found.items() if names]


def column_lines(model: Any) -> list[tuple[str, str]]:
    """Return the summary's lines about the columns of the table."""
    from pydirect.features.columns import MOST_CATEGORIES

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
    transformed = ", of the transformed target" if getattr(model, "target_transform_", None) is not None else ""
    return noise_text(noise_deviation(model), noise_kinds(model)) + transformed


def _ends(model: Any) -> list[tuple[str, str]]:
    """Return how each fit ended: an optimisation, or draws of weights on levels."""
    sequential = [p for p in getattr(model, "posteriors_", []) if hasattr(p, "log_weights")]
    if not sequential:
        return [("converged", f"{'yes' if has_converged(model) else 'no'}, {_iterations(model)} iterations")]
    gap = sum(p.gap for p in sequential)
    side = "below" if gap >= 0 else "above"
    return [("draws", f"{sequential[0].n_draws}, {abs(gap):.2g} nats {side} the evidence of continuous weights")]


def structure(model: Any) -> str:
    """Return kind and number of weights of a model in words."""
    return f"{kind_of_model(model)}, {count_weights(model)} weights"


def _iterations(model: Any) -> int:
    import numpy as np

    return int(np.max(model.n_iter_))
