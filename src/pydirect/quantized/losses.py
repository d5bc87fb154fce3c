"""Warnings where integer arithmetic clips rows of X or changes their predictions."""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray
from pydirect._warnings import warn
from pydirect.quantized.errors import IntegerArithmeticWarning
from pydirect.quantized.paths import FloatPath
from pydirect.quantized.predictors import QuantizedPredictor

MOST_ROWS = 2048
# Integers may move a mean by its standard deviation plus this fraction of the spread of all means, and single precision
# an input by this fraction of its spread before it is named as the reason.
LARGEST_MOVE, LARGEST_INPUT_MOVE = 0.1, 1e-3


def warn_of_losses(model: QuantizedPredictor, rows: FloatArray) -> None:
    """Warn when a model in integers clips rows of X, or moves means by more than their standard deviation."""
    rows = np.ascontiguousarray(rows[:: -(-len(rows) // MOST_ROWS)])
    mean, std = FloatPath(model).moments(rows)
    moved = np.abs(model.path.mean(rows) - mean) > std + LARGEST_MOVE * mean.std(axis=0)
    lost = ~model.in_range(rows) | moved.any(axis=1)
    if lost.any():
        warn(
            f"integers clip or move predictions at {lost.sum()} of {len(rows)} rows of X{_reason(model, rows)}; see "
            "in_range, input_ranges and rounding_bound",
            IntegerArithmeticWarning,
            stacklevel=3,
        )


def _reason(model: QuantizedPredictor, rows: FloatArray) -> str:
    """Name the column that is worst, if columns are the reason."""
    columns = model.program.columns
    read, names = rows[:, columns], model.feature_names or range(model.n_features_in)
    ranges = model.input_ranges()[columns]
    with np.errstate(over="ignore"):
        rounding = np.abs(read.astype(np.float32) - read).max(axis=0) / np.maximum(read.std(axis=0), 1e-300)
    beyond = np.abs(read - ranges.mean(axis=1)) / np.ptp(ranges, axis=1)
    if rounding.max(initial=0.0) > LARGEST_INPUT_MOVE:
        worst = int(rounding.argmax())
        return (
            f": single precision, which inputs pass through, moves column {names[columns[worst]]!r} by up to "
            f"{rounding[worst]:.2g} of its standard deviation: subtract an origin from it before the fit, or let the "
            "device pass counts of its sensors (counts_per_unit= of to_c)"
        )
    if beyond.max(initial=0.0) >= 0.5:
        return f": column {names[columns[int(beyond.max(axis=0).argmax())]]!r} is beyond the range of integers"
    return ""
