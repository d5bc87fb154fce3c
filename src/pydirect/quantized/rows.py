"""Rows that quantised models take: arrays or data frames, with the columns of the fit."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_float_array


def column_names(X: Any) -> tuple[str, ...]:
    """Return the column names of a data frame; empty for anything else, or when they are not all strings."""
    names = tuple(getattr(X, "columns", ()))
    return names if all(isinstance(name, str) for name in names) else ()


def as_numpy(X: Any) -> Any:
    """Return the values of a data frame, and anything else unchanged."""
    return X.to_numpy() if hasattr(X, "to_numpy") else X


def as_rows(X: ArrayLike, n_features: int, feature_names: tuple[str, ...]) -> FloatArray:
    """Validate rows of X, (n_rows, n_features); a data frame must have the named columns in this order."""
    if (names := column_names(X)) and feature_names and names != feature_names:
        hint = "; encode tables first, by columns_.encode(X) of the fitted model" if len(names) < n_features else ""
        raise ValueError(f"X must have the columns {list(feature_names)} in this order, got {list(names)}{hint}")
    return as_float_array(as_numpy(X), "X", ("n_rows", n_features))
