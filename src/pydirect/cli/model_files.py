"""Model files of the command line: the table in their metadata, and facts about a model in words."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydirect.cli.common import CommandError

if TYPE_CHECKING:
    import numpy as np

    from pydirect.cli.table_encoder import TableEncoder


def load_for_tables(path: Path) -> tuple[Any, TableEncoder, list[str]]:
    """Return a model, the encoder of its inputs and the names of its targets."""
    import pydirect
    from pydirect.cli.table_encoder import TableEncoder

    model = pydirect.load(path)
    n_targets = _n_targets(model)
    stored = table_metadata(model)
    if stored is not None:
        if len(stored["targets"]) != n_targets:
            raise CommandError(f"{path}: the model has {n_targets} targets, got names for {len(stored['targets'])}")
        return model, TableEncoder.from_header(stored["encoder"]), stored["targets"]
    if not hasattr(model, "feature_names_in_"):
        raise CommandError(
            f"{path}: the model does not know the names of its columns: fit it to a data frame, or use pydirect.load "
            "in Python, with quantize and to_c instead of export"
        )
    return model, TableEncoder.numeric(map(str, model.feature_names_in_)), [f"output{k}" for k in range(n_targets)]


def _n_targets(model: Any) -> int:
    import numpy as np

    return 1 if hasattr(model, "classes_") else int(np.size(model.noise_variance_))


def table_metadata(model: Any) -> dict[str, Any] | None:
    """Return what a loaded model's metadata say about the table that it was fitted to, if anything."""
    stored = (getattr(model, "metadata_", None) or {}).get("table")
    sound = isinstance(stored, dict) and "encoder" in stored and isinstance(stored.get("targets"), list)
    return stored if sound else None


def new_metadata(
    args: argparse.Namespace, encoder: TableEncoder, n_rows: int, held_out: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the metadata to save with a model fitted to a table."""
    return {
        "table": {
            "encoder": encoder.to_header(),
            "targets": list(args.target),
            "weight": args.weight,
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
    return f"{kind} features" if kind != "polynomial" else f"{kind} features of degree {model.degree}"


def is_gaussian_network(model: Any) -> bool:
    """Whether the model is a network with continuous weights."""
    return hasattr(model.posteriors_[0], "network")


def count_weights(model: Any) -> int:
    """Return the number of weights."""
    if is_gaussian_network(model):
        return int(model.posteriors_[0].network.n_weights)
    return int(model.features_.n_weights if hasattr(model, "features_") else model.posteriors_[0].weights.n_weights)


def noise_deviation(model: Any) -> np.ndarray:
    """Return the standard deviation of the noise per output."""
    import numpy as np

    return np.asarray(np.sqrt(model.noise_variance_))
