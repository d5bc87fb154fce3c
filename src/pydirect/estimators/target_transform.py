"""Which transform of the targets: by name, or by leave-one-out density in the targets' own units."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydirect._validation import FloatArray
from pydirect.estimators.choices import NAMED, as_transform_names
from pydirect.predictive.transformed import TargetTransform

# Rows, landmarks and rows of the marginal likelihood with which transforms are compared.
MAX_ROWS, MAX_FEATURES, MAX_HYPERPARAMETER_ROWS = 2000, 300, 500
FEWEST_ROWS = 20
# Gain in nats per row, and in its standard errors, for which a transform is worth having.
LEAST_GAIN, LEAST_STANDARD_ERRORS = 0.02, 1.0


def fitted_transform(names: Sequence[str], y: FloatArray) -> TargetTransform:
    """Return the transforms with their shifts for these targets, (n_rows, n_outputs).

    Only a square root accepts zeros: it then adds half of the smallest positive target (1/2 for counts, as Bartlett
    1936 does).
    """
    for name, column in zip(names, y.T, strict=True):
        if name == "sqrt" and column.min() < 0:
            raise ValueError(f"y must not be negative for target_transform='sqrt', got {column.min():g}")
    shifts = [_half_smallest(y[:, k]) if name == "sqrt" else 0.0 for k, name in enumerate(names)]
    transform = TargetTransform(tuple(names), tuple(shifts))
    transform.forward(y)  # raises for targets out of range
    return transform


# From encoded rows, targets (n_rows, 1) on a scale and weights to log densities of rows left out, (n_rows,).
DensityLeftOut = Callable[[FloatArray, FloatArray, FloatArray | None], FloatArray]


def choose_transform(
    value: Any,
    random_state: Any,
    x: FloatArray,
    y: FloatArray,
    weight: FloatArray | None,
    log_density: DensityLeftOut,
    known: TargetTransform | None,
) -> TargetTransform:
    """Return the transform of targets (n_rows, n_outputs), the `known` one where it was chosen and still fits."""
    if value != "auto":
        return fitted_transform(as_transform_names(value, y.shape[1]), y)
    try:
        if known is not None:
            known.forward(y)
            return known
    except ValueError:
        pass
    rows = _rows(random_state, len(x), weight)
    x, some, weight = x[rows], y[rows], None if weight is None else weight[rows]
    best = [_best_of_one(x, some[:, [k]], weight, log_density, y[:, k]) for k in range(y.shape[1])]
    return TargetTransform(tuple(name for name, _ in best), tuple(shift for _, shift in best))


def _best_of_one(
    x: FloatArray, y: FloatArray, weight: FloatArray | None, log_density: DensityLeftOut, every: FloatArray
) -> tuple[str, float]:
    """Return the name and shift of one output's transform; `every` are the targets of all rows."""
    best, shift = ("identity", 0.0), _half_smallest(every)
    if every.min() < 0.0 or y.min() == y.max() or len(y) < FEWEST_ROWS:
        return best

    def density(transform: TargetTransform) -> FloatArray:
        return log_density(x, transform.forward(y), weight) + transform.log_derivative(y)[:, 0]

    before, least = density(TargetTransform(("identity",), (0.0,))), LEAST_GAIN
    for name in NAMED:
        gain = density(TargetTransform((name,), (shift,))) - before
        mean = float(np.average(gain, weights=weight))
        error = float(np.sqrt(np.average((gain - mean) ** 2, weights=weight) / len(gain)))
        if mean > max(least, LEAST_STANDARD_ERRORS * error):
            best, least = (name, shift), mean
    return best


def _rows(random_state: Any, n_rows: int, weight: FloatArray | None) -> np.ndarray:
    """Rows of positive weight, some of them where there are many."""
    rows = np.arange(n_rows) if weight is None else np.flatnonzero(weight)
    if len(rows) <= MAX_ROWS:
        return rows
    seed = copied(random_state)  # what follows must not depend on this choice
    rng = np.random.default_rng(seed.randint(2**31) if hasattr(seed, "randint") else seed)
    return np.sort(rng.choice(rows, MAX_ROWS, replace=False))


def copied(random_state: Any) -> Any:
    """Return a state that may be drawn from without a trace; that of all NumPy cannot be copied."""
    return random_state if random_state is np.random else copy.deepcopy(random_state)


def _half_smallest(y: FloatArray) -> float:
    """Return zero for positive targets, else half of the smallest positive one."""
    positive = y[y > 0]
    return 0.0 if len(positive) == len(y) or not len(positive) else 0.5 * float(positive.min())
