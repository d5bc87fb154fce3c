"""Writing quantised models to files, without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydirect import __version__
from pydirect.persistence.container import write
from pydirect.persistence.fields import Writer, classes_to_header
from pydirect.quantized.model import QuantizedModel

# Fields that are numbers, strings or booleans, and those that are float64 arrays.
ITEMS = ("calibration", "n_features_in", "one_dimensional", "feature_bits", "frequency_bits", "arithmetic")
ARRAYS = ("levels", "centre", "spread", "scale", "offset", "noise")


def save_model(model: QuantizedModel, path: str | Path) -> None:
    """Write a quantised model to one file; `pydirect.quantized.load_quantized` reads it."""
    writer = Writer()
    header: dict[str, Any] = {
        "library": __version__,
        "basis": writer.fields(model.basis, "basis"),
        "packed": writer.fields(model.packed, "packed"),
        **{name: getattr(model, name) for name in ITEMS},
        "feature_names": list(model.feature_names),
    }
    if model.classes is not None:
        header["classes"] = classes_to_header(model.classes)
    arrays = {name: getattr(model, name) for name in ARRAYS}
    write(path, f"pydirect.{type(model).__name__}", header, {**writer.arrays, **arrays})
