"""Class labels of a stream as numeric codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydirect._validation import FloatArray


class LabelCodes:
    """Numeric codes of labels, in the order of first appearance: sources hold numbers, labels may be strings.

    Labels that first appear in the same block of rows get their codes in sorted order.

    Attributes
    ----------
    labels : list
        Label of each code.
    """

    def __init__(self) -> None:
        self.labels: list[Any] = []
        self._codes: dict[Any, int] = {}

    def codes(self, values: np.ndarray) -> FloatArray:
        """Return the codes of labels, of shape (n_rows, 1); NaN where a label is missing.

        Parameters
        ----------
        values : ndarray of shape (n_rows,)
            Labels.

        Returns
        -------
        ndarray of shape (n_rows, 1)
            Codes.

        Raises
        ------
        TypeError, ValueError
            If there are several columns, or numbers that are not integers.
        """
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise ValueError(f"labels must be one column, got shape {values.shape}")
        if values.dtype.kind == "f":
            continuous = np.isfinite(values) & (values != np.trunc(values))
            if continuous.any():
                raise ValueError(f"y must hold labels, got the number {values[continuous][0]}")
        missing = _missing_labels(values)
        out = np.full(len(values), np.nan)
        try:
            found, inverse = np.unique(values[~missing], return_inverse=True)
        except TypeError:
            kinds = " and ".join(sorted({type(label).__name__ for label in values[~missing].tolist()}))
            raise TypeError(f"y must hold labels that can be ordered, of one type, got {kinds}") from None
        for label in found.tolist():
            if label not in self._codes:
                self._codes[label] = len(self.labels)
                self.labels.append(label)
        if found.size:
            out[~missing] = np.array([self._codes[label] for label in found.tolist()], dtype=np.float64)[inverse]
        return out[:, None]


def _missing_labels(values: np.ndarray) -> np.ndarray:
    """Return a mask of labels that are None, NaN or infinite."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    if values.dtype.kind == "O":
        return np.array([v is None or v != v for v in values], dtype=bool)
    return np.zeros(len(values), dtype=bool)
