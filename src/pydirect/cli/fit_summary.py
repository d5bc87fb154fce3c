"""Summary of `pydirect fit`: the data, the model and the file."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from pydirect.cli.common import numbers_text, print_lines
from pydirect.cli.fit_model import has_converged
from pydirect.cli.model_files import count_weights, kind_of_model, noise_deviation
from pydirect.cli.scoring import scores_text

if TYPE_CHECKING:
    from pydirect.cli.fit_data import TrainingData


def print_summary(args: argparse.Namespace, data: TrainingData, model: Any, held_out: list[dict[str, Any]]) -> None:
    """Print the summary of a fit to a table."""
    dropped = f" ({data.n_dropped} with missing values left out)" if data.n_dropped else ""
    n_columns, n_inputs = len(data.encoder.names), data.X.shape[1]
    encoded = f", {n_inputs} after encoding text" if data.encoder.text_columns else ""
    lines = [("rows", f"{len(data.X)}{dropped}"), ("columns", f"{n_columns}{encoded}"), ("model", structure(model))]
    for scores in held_out:
        lines.append((f"held out, {scores['target']}", scores_text(scores)))
    if held_out:
        lines.append(("", f"the model below was then fitted to all {len(data.X)} rows"))
    print_lines(lines + fit_lines(args, model))


def fit_lines(args: argparse.Namespace, model: Any) -> list[tuple[str, str]]:
    """Return the summary's lines about the fit and the file."""
    return [
        ("classes", ", ".join(map(str, model.classes_)))
        if hasattr(model, "classes_")
        else ("noise sd", numbers_text(noise_deviation(model))),
        ("ELBO", numbers_text(model.elbo_)),
        *_ends(model),
        ("written", f"{args.output} ({os.path.getsize(args.output)} bytes)"),
    ]


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
