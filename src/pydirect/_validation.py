"""Validation of arguments, done once and trusted below.

Messages name the argument, what was expected and what was given.
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
RandomState = np.random.Generator | int | None
MOST_ENTRIES_SHOWN = 8


def as_float_array(value: ArrayLike, name: str, shape: tuple[int | str, ...]) -> FloatArray:
    """Return `value` as a finite, C-ordered float64 array of the given shape.

    `name`: name in messages. `shape`: required sizes; a string names a dimension of any positive size. Raises TypeError
    if the values are not real numbers. Raises ValueError if the shape differs, or a value is NaN or infinite.
    """
    array = as_float_array_unbounded(value, name, shape)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{name} must be finite, got {array[tuple(bad)]} at index {tuple(bad.tolist())}")
    return array


def as_float_array_unbounded(value: ArrayLike, name: str, shape: tuple[int | str, ...]) -> FloatArray:
    """Return `value` like `as_float_array`, but allow infinities and NaN."""
    raw = np.asarray(value)
    if raw.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {raw.dtype}")
    array = np.ascontiguousarray(raw, dtype=np.float64).reshape(raw.shape)
    sizes: tuple[int, ...] = array.shape
    matches = len(sizes) == len(shape) and all(
        size > 0 if isinstance(expected, str) else size == expected for size, expected in zip(sizes, shape, strict=True)
    )
    if not matches:
        empty = [n for n, size in zip(shape, sizes, strict=False) if isinstance(n, str) and not size]
        least = f" with {' and '.join(empty)} at least 1" if len(sizes) == len(shape) and empty else ""
        expected_shape = "(" + ", ".join(str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
        raise ValueError(f"{name} must have shape {expected_shape}{least}, got {array.shape}")
    return array


def shown(value: Any) -> str:
    """Return the text of a value for messages, NumPy scalars like Python's."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def short_repr(parts: Any) -> str:
    """Return the fields of a dataclass as text, of arrays and long tuples only what they are: a ``__repr__``."""
    own = ", ".join(f"{f.name}={_in_short(getattr(parts, f.name))}" for f in fields(parts) if f.repr)
    return f"{type(parts).__name__}({own})"


def _in_short(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > MOST_ENTRIES_SHOWN:
        return f"<{value.dtype} array of shape {value.shape}>"
    if isinstance(value, list | tuple) and len(value) > MOST_ENTRIES_SHOWN:
        return f"<{type(value).__name__} of {len(value)}>"
    return repr(value)


def as_count(value: Any, name: str, minimum: int = 1) -> int:
    """Return an integer of at least `minimum`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {shown(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def as_output(value: Any, n_outputs: int, name: str = "output") -> int:
    """Return the index of one of `n_outputs` targets or classes."""
    if as_count(value, name, 0) >= n_outputs:
        raise ValueError(f"{name} must be from 0 to {n_outputs - 1}, got {value}")
    return int(value)


def as_number(
    value: Any,
    name: str,
    *,
    above: float = -np.inf,
    at_least: float = -np.inf,
    below: float = np.inf,
    at_most: float = np.inf,
) -> float:
    """Return a finite float within the given bounds."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    number = float(value)
    if not (above < number < below and at_least <= number <= at_most):
        bounds = {"above": above, "at least": at_least, "below": below, "at most": at_most}
        limits = [f"{relation} {bound}" for relation, bound in bounds.items() if np.isfinite(bound)]
        if not np.isfinite(number) and len(limits) < 2:
            limits.append("finite")
        raise ValueError(f"{name} must be {' and '.join(limits)}, got {number}")
    return number


def as_widths(value: Any, name: str) -> tuple[int, ...]:
    """Return widths of layers from a sequence or a single integer."""
    sizes = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(sizes, numbers.Integral):
        return (as_count(sizes, name),)
    if not isinstance(sizes, Sequence) or isinstance(sizes, str | bytes):
        raise TypeError(f"{name} must be an integer or a sequence of integers, got {shown(value)}")
    if len(sizes) == 0:
        raise ValueError(f"{name} must hold at least one width, got {shown(value)}")
    return tuple(as_count(width, f"{name}[{i}]") for i, width in enumerate(sizes))


def as_flag(value: Any, name: str) -> bool:
    """Return `value` as a bool, or raise."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def as_verbosity(value: Any) -> int:
    """Return `verbose` as an integer."""
    return int(value) if isinstance(value, bool | np.bool_) else as_count(value, "verbose", 0)


def as_instance(value: Any, name: str, *types: type) -> None:
    """Raise unless `value` is of one of `types`."""
    if not isinstance(value, types):
        raise TypeError(f"{name} must be a {' or '.join(t.__name__ for t in types)}, got {type(value).__name__}")


def require_single(fit: Any, name: str) -> None:
    """Raise if the ``model_`` of an estimator is of several columns of labels."""
    if isinstance(fit, tuple):
        raise ValueError(f"{name} must be of one column of labels, got one of several: take one of its estimators_")


def as_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`, or raise."""
    if not isinstance(value, str) or value not in choices:
        near = difflib.get_close_matches(value, choices, 1) if isinstance(value, str) else []
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}{hint}")
    return value


def as_level_indices(value: ArrayLike, name: str, n_weights: int, n_levels: int) -> NDArray[np.uint8]:
    """Return level indices of weight vectors, (n_samples, n_weights), C-ordered."""
    raw = np.asarray(value)
    if raw.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {raw.dtype}")
    if raw.ndim != 2 or raw.shape[1] != n_weights:
        raise ValueError(f"{name} must have shape (n_samples, {n_weights}), got {raw.shape}")
    if raw.size and not 0 <= raw.min() <= raw.max() < n_levels:
        raise ValueError(f"{name} must be from 0 to {n_levels - 1}, got {raw.min()} to {raw.max()}")
    return np.ascontiguousarray(raw, dtype=np.uint8)


MISSING = ("NoneType", "NAType", "NaTType")  # types of None, pandas.NA and pandas.NaT


def is_missing(value: Any) -> bool:
    """Whether an object stands for a value that is missing: None, NaN, or pandas' NA and NaT."""
    return type(value).__name__ in MISSING or (isinstance(value, numbers.Real) and value != value)


def require_no_missing(given: Any, name: str = "y") -> None:
    """Raise if a target or label is missing: of None, conversion makes NaN or a label."""
    values = given.to_numpy() if hasattr(given, "to_numpy") else given
    if isinstance(values, np.ndarray) and values.dtype != object:
        if values.dtype.kind != "f" or values.ndim == 0 or not np.isnan(values).any():
            return
    for i, value in enumerate(values if isinstance(values, list | tuple | np.ndarray) else ()):
        for own in value if isinstance(value, list | tuple | np.ndarray) else (value,):
            if is_missing(own):
                some = " or use CorrelatedRegressor" if own is not value else ""
                raise ValueError(f"{name} must have no missing values, got {own} in row {i}: leave such rows out{some}")


def as_log_masses(value: ArrayLike, name: str, shape: tuple[int | str, ...]) -> FloatArray:
    """Validate logarithms of masses along the last axis, one of which is not zero."""
    array = as_float_array_unbounded(value, name, shape)
    highest = array.max(axis=-1)
    if not ((highest > -np.inf) & (highest < np.inf)).all():  # NaN is neither
        each = " per weight" if array.ndim == 2 else ""
        raise ValueError(f"{name} must be finite or -inf with at least one finite entry{each}")
    return array


def as_target(y: ArrayLike, n_rows: int) -> FloatArray:
    """Return targets as (n_rows, n_outputs)."""
    raw = np.asarray(y)
    return as_float_array(raw[:, None] if raw.ndim == 1 else raw, "y", (n_rows, "n_outputs"))


def as_generator(random_state: Any) -> np.random.Generator:
    """Return a random number generator, from a seed if necessary."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        message = f"random_state must be a Generator, an integer of at least 0 or None, got {shown(random_state)}"
        raise type(error)(message) from None


# Sums of squares of weights stay numbers.
LARGEST_WEIGHT = 1e100


def as_sample_weight(value: ArrayLike | None, n_rows: int, *, all_zero: bool = False) -> FloatArray | None:
    """Return non-negative weights of shape (n_rows,), not all zero unless allowed, or None for unit weights."""
    if value is None:
        return None
    value = np.asarray(value)
    if value.ndim == 0:
        value = np.full(n_rows, value)
    weights = as_float_array(value, "sample_weight", (n_rows,))
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative, got {weights.min()}")
    if not weights.any() and not all_zero:
        raise ValueError("sample_weight must have at least one positive entry, got all zeros")
    if weights.max(initial=0.0) > LARGEST_WEIGHT:
        raise ValueError(f"sample_weight must be at most {LARGEST_WEIGHT:g}, got {weights.max():g}")
    if weights.any() and weights.mean() < 1 / LARGEST_WEIGHT:
        raise ValueError(f"sample_weight must have a mean of at least {1 / LARGEST_WEIGHT:g}, got {weights.mean():g}")
    return weights


def as_weights(value: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return weights as `as_sample_weight` checks them, ones for None."""
    weights = as_sample_weight(value, n_rows)
    return np.ones(n_rows) if weights is None else weights


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a frame, None for other arrays or names that are not all strings."""
    own = getattr(X, "column_names", None)  # of pyarrow
    columns = own if isinstance(own, list) else getattr(X, "columns", None)
    return list(columns) if columns is not None and all(isinstance(name, str) for name in columns) else None


def has_nan(x: FloatArray) -> bool:
    """Whether a number is NaN; quick where none is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(x.sum()) and np.isnan(x).any())
