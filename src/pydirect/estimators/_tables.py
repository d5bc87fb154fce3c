"""What estimators accept as X: numbers only, or tables with text and gaps, which `Columns` encode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_X_y, validate_data

from pydirect._validation import FloatArray, as_choice
from pydirect.estimators._base import LatentFunctions
from pydirect.features.columns import MISSING_POLICIES, Columns, what_differs
from pydirect.streams.tables import Table, holds_text, is_frame, label


class TableModel(LatentFunctions):
    """Base of estimators that take tables; everything behind `_validated` and `_fit_columns` sees encoded rows.

    A subclass provides ``_takes_tables``.
    """

    categories: str | Sequence[str | int]
    missing: str
    columns_: Columns

    def _takes_tables(self) -> bool:
        """Whether X may hold text and gaps."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = self._takes_tables()
        tags.input_tags.allow_nan = self._takes_tables() and self.missing != "raise"
        return tags

    def _check_table_parameters(self) -> None:
        as_choice(self.missing, "missing", MISSING_POLICIES)
        if isinstance(self.categories, str):
            as_choice(self.categories, "categories", ("auto",))
        elif not isinstance(self.categories, Sequence | np.ndarray) or not all(
            isinstance(c, str | int | np.integer) and not isinstance(c, bool) for c in self.categories
        ):
            raise TypeError(f"categories must be 'auto' or a list of columns, got {self.categories!r}")

    def _validated(self, X: Any, *y: Any, reset: bool = True, **checks: Any) -> Any:
        if not self._takes_tables() and not isinstance(X, Table):
            return super()._validated(X, *y, reset=reset, **checks)
        if not isinstance(X, Table) and not holds_text(X) and (hasattr(X, "__array__") or not is_frame(X)):
            finite: bool | str = self.missing == "raise" or "allow-nan"
            return validate_data(self, X, *y, reset=reset, dtype=np.float64, ensure_all_finite=finite, **checks)
        table = X if isinstance(X, Table) else Table.of(X)
        _require_size(table)
        targets = [check_X_y(np.zeros((len(table), 1)), v, estimator=self, **checks)[1] for v in y]
        self._require_known(table)
        if reset:
            self._set_input_names(table.shape[1], table.names)
        else:
            self._require_names(table)
        return (table, *targets) if targets else table

    def _require_known(self, table: Table) -> None:
        """Raise unless numbers are finite, or missing where that is allowed."""
        for j, column in enumerate(table.columns):
            missing = column.codes < 0 if not isinstance(column, np.ndarray) else np.isnan(column)
            if self.missing == "raise" and missing.any():
                raise ValueError(f"{label(table.names, j)} must have no missing values with missing='raise', got some")
            if isinstance(column, np.ndarray) and np.isinf(column).any():
                raise ValueError(f"{label(table.names, j)} must be finite, got infinity")

    def _require_names(self, table: Table) -> None:
        d, names = self.n_features_in_, getattr(self, "feature_names_in_", None)
        own = type(self).__name__
        if names is not None and table.names is not None and list(names) != table.names:
            raise ValueError(
                "The feature names should match those that were passed during fit: X must have the columns of the fit, "
                f"but {what_differs(names, table.names)}"
            )
        if table.shape[1] != d:
            raise ValueError(f"X has {table.shape[1]} features, but {own} is expecting {d} features as input")

    def _fit_columns(
        self, x: Any, standardised: FloatArray | None, weight: FloatArray | None, columns: Columns | None = None
    ) -> FloatArray:
        """Fit the encoder to validated rows, or take a given one, and return them encoded."""
        if columns is not None:
            self.columns_ = columns
            return columns.encode(x)
        names = getattr(self, "feature_names_in_", None)
        if not isinstance(x, Table):  # sums over rows of a Fortran-ordered array round otherwise
            x = Table.of_numbers(np.ascontiguousarray(x), None if names is None else names.tolist())
        if self._takes_tables():
            options: dict[str, Any] = {"categories": self.categories, "missing": self.missing, "stacklevel": 5}
            self.columns_ = Columns.fit(x, standardised, weight, **options)
        else:
            self.columns_ = Columns.of_numbers(x.shape[1], x.names)
        return self.columns_.encode(x)

    def _encoded(self, x: Any) -> FloatArray:
        return self.columns_.encode(x)

    def _feature_names(self) -> tuple[str, ...]:
        names = getattr(self, "feature_names_in_", None)
        return () if names is None else tuple(replace(self.columns_, names=tuple(names.tolist())).names_out)

    def _n_encoded(self) -> int:
        return self.columns_.n_encoded


def _require_size(table: Table) -> None:
    for number, what in zip(table.shape, ("sample", "feature"), strict=True):
        if number == 0:
            raise ValueError(f"Found array with 0 {what}(s) (shape={table.shape}) while a minimum of 1 is required.")
