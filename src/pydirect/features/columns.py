"""`Columns`: from tables as people have them, with text and gaps, to a matrix of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, has_nan, short_repr
from pydirect._warnings import warn
from pydirect.features.gaps import Gaps
from pydirect.persistence.fields import Arrays, Header, build, require_type
from pydirect.streams.tables import Column, Table, Text, as_text, label

MOST_CATEGORIES = 50
# An indicator of missing numbers is kept when the means of the targets with and without them differ by more than
# chance: standard deviations of a chi-squared variable with one degree of freedom.
TELLING = 3.0
# Rows from which integers may number them, and −log of the probability that chance makes them all different.
FEWEST_NUMBERED, NUMBERED = 50, 10.0
# Numbers with units, grouped digits or decimal commas; more different ones than a few are hardly categories.
_SIGNED_NUMBER = re.compile(r"\s*[€$£¥]?\s*[+-]?\d[\d.,' ]*\s*[%€$£¥°]?\s*")
FEW_NUMBERS = 10
MOST_NAMED = 10  # columns in a message
MISSING_POLICIES = ("auto", "indicator", "raise")


class TableWarning(UserWarning):
    """A column of a table carries less than it seems to."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Encoding of tables as matrices of numbers: categories as columns of 0 and 1, missing numbers by what is expected.

    A column of text becomes one column per category, 1 where a row has it. A category that did not occur in training
    has 0 in all of them, far from all others: where a kernel is learned, the predictive variance grows by itself. So
    has a missing one, unless missing ones occurred in training and are a category of their own. Of more than
    50 categories the 49 commonest are kept; all others, new ones included, share a column. Columns of booleans are
    numbers. A missing number is the conditional mean, given the row's other columns, of a Gaussian (see `Gaps`); its
    uncertainty widens no prediction. Where absence itself says something of the targets, a column of 0 and 1 tells it.

    Parameters
    ----------
    names : tuple of str or None
        Names of the columns.
    categories : tuple
        Categories of each column, of which None stands for missing ones; None for a column of numbers.
    pooled : tuple of int
        Columns whose rarer categories share one more column.
    indicators : tuple of int
        Columns of numbers followed by a column that tells where they are missing.
    gaps : Gaps or None
        Model of the encoded columns without indicators; without it, no number may be missing.
    lacking : tuple of int, default=()
        Columns of numbers that lacked some in training.
    numbering : tuple of int, default=()
        Columns of integers that may only number the rows: all different, and so dense that chance hardly makes them so.
    """

    names: tuple[str, ...] | None = field(compare=False)
    categories: tuple[tuple[str | None, ...] | None, ...]
    pooled: tuple[int, ...]
    indicators: tuple[int, ...]
    gaps: Gaps | None
    lacking: tuple[int, ...] = field(default=(), compare=False)
    numbering: tuple[int, ...] = field(default=(), compare=False)

    __repr__ = short_repr

    # --- what comes out

    @property
    def n_columns(self) -> int:
        """Number of columns of a table."""
        return len(self.categories)

    @cached_property
    def widths(self) -> NDArray[np.intp]:
        """Number of encoded columns of each column, without indicators, (n_columns,)."""
        pooled = np.isin(np.arange(self.n_columns), self.pooled)
        return np.array([1 if c is None else len(c) for c in self.categories]) + pooled

    @property
    def n_encoded(self) -> int:
        """Number of encoded columns."""
        return int(self.widths.sum()) + len(self.indicators)

    @cached_property
    def origins(self) -> NDArray[np.intp]:
        """Column of the table that each encoded one comes from, (n_encoded,)."""
        return np.concatenate([np.repeat(np.arange(self.n_columns), self.widths), np.array(self.indicators, np.intp)])

    @cached_property
    def groups(self) -> NDArray[np.intp]:
        """Column of the table for the categories of each encoded column, −1 for numbers; (n_encoded,)."""
        own = np.array([-1 if c is None else j for j, c in enumerate(self.categories)], np.intp)
        return np.concatenate([np.repeat(own, self.widths), np.full(len(self.indicators), -1)])

    @cached_property
    def is_plain(self) -> bool:
        """Whether complete rows are encoded as they are."""
        return not self.indicators and all(c is None for c in self.categories)

    @property
    def names_out(self) -> list[str]:
        """Names of the encoded columns, such as ``colour=red``."""
        raw = [f"x{j}" for j in range(self.n_columns)] if self.names is None else self.names
        found: list[str] = []
        for j, (name, categories) in enumerate(zip(raw, self.categories, strict=True)):
            if categories is None:
                found.append(name)
            else:
                found += [f"{name}=(missing)" if c is None else f"{name}={c}" for c in categories]
                found += [f"{name}=(other)"] * (j in self.pooled)
        return found + [f"{raw[j]}=(missing)" for j in self.indicators]

    # --- fitting

    @classmethod
    def of_numbers(cls, n_columns: int, names: Sequence[str] | None = None) -> Self:
        """Return the encoding that changes nothing, and takes no missing numbers.

        Parameters
        ----------
        n_columns : int
            Number of columns.
        names : sequence of str, optional
            Their names.
        """
        return cls(None if names is None else tuple(names), (None,) * n_columns, (), (), None)

    @classmethod
    def fit(
        cls,
        X: Any,
        y: FloatArray | None = None,
        weight: FloatArray | None = None,
        *,
        categories: str | Sequence[str | int] = "auto",
        missing: str = "auto",
        stacklevel: int = 2,
    ) -> Self:
        """Fit to training rows.

        Parameters
        ----------
        X : Table, frame or array_like of shape (n_rows, n_columns)
            Rows of a table.
        y : ndarray of shape (n_rows, n_outputs), optional
            Standardised targets; without them, only ``missing="indicator"`` adds indicators.
        weight : ndarray of shape (n_rows,), optional
            How many times each row counts.
        categories : "auto" or sequence of str or int, default="auto"
            Names or numbers of columns whose numbers are categories, beside columns of text.
        missing : {"auto", "indicator", "raise"}, default="auto"
            ``"indicator"``: an indicator for every column that lacks numbers. ``"raise"``: missing numbers are an
            error.
        stacklevel : int, default=2
            Stack level that warnings are attributed to.

        Warns
        -----
        TableWarning
            If a column is not used, or holds numbers as text.
        """
        table = X if isinstance(X, Table) else _as_table(X)
        if weight is not None and not weight.all():
            used = weight > 0
            table, y, weight = table.rows(used), None if y is None else y[used], weight[used]
        chosen = _chosen(categories, table)
        columns = [as_text(c) if j in chosen else c for j, c in enumerate(table.columns)]
        found = [_categories(c, weight) if isinstance(c, Text) else (None, False) for c in columns]
        _warn_of_columns(columns, found, table.names, stacklevel + 1)
        names = None if table.names is None else tuple(table.names)
        pooled = tuple(j for j, (_, more) in enumerate(found) if more)
        numbering = tuple(j for j, c in enumerate(columns) if not isinstance(c, Text) and _may_number_rows(c))
        columns_of = cls(names, tuple(own for own, _ in found), pooled, (), None, numbering=numbering)
        if columns_of.is_plain and table.matrix is not None and not has_nan(table.matrix):
            return replace(columns_of, gaps=None if missing == "raise" else Gaps.fit(table.matrix, weight))
        body, absent = columns_of._body(columns)
        lacking = np.flatnonzero(absent.any(axis=0) & ~absent.all(axis=0))
        telling = [j for j in lacking if missing == "indicator" or _is_telling(absent[:, j], y, weight)]
        return replace(
            columns_of,
            gaps=None if missing == "raise" else Gaps.fit(body, weight),
            lacking=tuple(columns_of.origins[lacking].tolist()),
            indicators=tuple(columns_of.origins[np.array(telling, np.intp)].tolist()),
        )

    # --- rows

    def encode(self, X: Any) -> FloatArray:
        """Return rows as numbers, (n_rows, n_encoded).

        Parameters
        ----------
        X : Table, frame or array_like of shape (n_rows, n_columns)
            Rows of a table.

        Returns
        -------
        ndarray of shape (n_rows, n_encoded)
            Numbers.

        Raises
        ------
        TypeError, ValueError
            If columns are not those of the fit, or one of numbers holds text.
        """
        matrix = X.matrix if isinstance(X, Table) else X if _is_matrix(X) else None
        if self.is_plain and matrix is not None and matrix.shape[1] == self.n_columns and not has_nan(matrix):
            return np.ascontiguousarray(matrix)
        table = self._table(X)
        body, absent = self._body(table.columns)
        if absent.any():
            if self.gaps is None:
                j = int(self.origins[np.flatnonzero(absent.any(axis=0))[0]])
                raise ValueError(f"{label(self.names, j)} must have no missing values, got some")
            self.gaps.fill(body, absent)
        if not self.indicators:
            return body
        first = np.cumsum(self.widths) - self.widths
        return np.hstack([body, absent[:, first[list(self.indicators)]].astype(np.float64)])

    def missing(self, X: Any) -> NDArray[np.bool_]:
        """Return where a number or category is missing, (n_rows, n_columns).

        Parameters
        ----------
        X : frame or array_like of shape (n_rows, n_columns)
            Rows of a table.

        Returns
        -------
        ndarray of bool of shape (n_rows, n_columns)
            Where they are missing.
        """
        return np.column_stack([c.codes < 0 if isinstance(c, Text) else np.isnan(c) for c in self._table(X).columns])

    def unseen(self, X: Any) -> NDArray[np.bool_]:
        """Return where a category did not occur in training, or is not known to have, (n_rows, n_columns).

        Parameters
        ----------
        X : frame or array_like of shape (n_rows, n_columns)
            Rows of a table.

        Returns
        -------
        ndarray of bool of shape (n_rows, n_columns)
            Where they are new.
        """
        table = self._table(X)
        out = np.zeros(table.shape, dtype=bool)
        for j, (column, own) in enumerate(zip(table.columns, self.categories, strict=True)):
            if own is not None:
                text = as_text(column)
                out[:, j] = np.array([*(value not in own for value in text.values), False])[text.codes]
        return out

    def _table(self, X: Any) -> Table:
        table = X if isinstance(X, Table) else _as_table(X)
        if table.names is not None and self.names is not None and table.names != list(self.names):
            raise ValueError(f"X must have the columns of the fit: {what_differs(self.names, table.names)}")
        if table.shape[1] != self.n_columns:
            raise ValueError(f"X must have {self.n_columns} columns, as in fit, got {table.shape[1]}")
        return table

    def _body(self, columns: Sequence[Column]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the encoded columns without indicators, and where numbers are missing in them."""
        out = np.zeros((len(columns[0]), int(self.widths.sum())))
        end = 0
        for j, (column, own, width) in enumerate(zip(columns, self.categories, self.widths, strict=True)):
            place, end = out[:, end : end + width], end + int(width)
            if own is not None:
                codes = self._codes(as_text(column), j)
                known = np.flatnonzero(codes >= 0)
                place[known, codes[known]] = 1.0
            elif isinstance(column, Text):
                if len(column.values):
                    first = next((v for v in column.values if not _reads_as_number(v)), column.values[0])
                    raise TypeError(f"{label(self.names, j)} must hold numbers, as in fit, got {first!r}")
                place[:] = np.nan
            else:
                place[:, 0] = column
        return out, np.isnan(out)

    def _codes(self, text: Text, column: int) -> NDArray[np.intp]:
        """Return the number of each row's category among those of a column, −1 for one that is not known."""
        own = self.categories[column]
        assert own is not None
        number = {c: k for k, c in enumerate(own)}
        rest = len(own) if column in self.pooled else -1
        codes = [*(number.get(value, rest) for value in text.values), number.get(None, -1)]
        return np.array(codes, dtype=np.intp)[text.codes]

    # --- files

    @classmethod
    def from_fields(cls, header: Header, arrays: Arrays, name: str) -> Self:
        """Rebuild from the fields written by `pydirect.persistence.fields.Writer.fields`, and check the result.

        Parameters
        ----------
        header : dict
            Header of the file.
        arrays : dict of str to ndarray
            Arrays of the file, by name.
        name : str
            Name under which the fields were written.
        """
        require_type(header["categories"], "categories", list)
        own = {key: _tuple_of(header[key], key, int) for key in ("pooled", "indicators", "lacking", "numbering")}
        if header["names"] is not None:
            own["names"] = _tuple_of(header["names"], "names", str)
        own["categories"] = tuple(
            None if c is None else _tuple_of(c, "categories", str, type(None)) for c in header["categories"]
        )
        columns: Self = build(cls, header | own, arrays, name)
        columns._check()
        return columns

    def _check(self) -> None:
        d = self.n_columns
        if self.names is not None and len(self.names) != d:
            raise ValueError(f"names must be {d} strings")
        numbers = {j for j, own in enumerate(self.categories) if own is None}
        for own in self.categories:
            if own is not None and len(set(own)) != len(own):
                raise ValueError("categories of a column must differ")
        for what, given, allowed in (
            ("pooled", self.pooled, set(range(d)) - numbers),
            ("indicators", self.indicators, numbers),
            ("lacking", self.lacking, numbers),
            ("numbering", self.numbering, numbers),
        ):
            if not set(given) <= allowed or len(set(given)) != len(given):
                raise ValueError(f"{what} must be different columns of their kind")
        if self.gaps is not None:
            self.gaps.check(int(self.widths.sum()))


def what_differs(expected: Sequence[str], given: Sequence[str]) -> str:
    """Say in words which columns are missing and which are too many, or that their order is another."""
    lacking = [name for name in expected if name not in given]
    superfluous = [name for name in given if name not in expected]
    found = [f"{what} {_listed(names)}" for what, names in (("lacks", lacking), ("also has", superfluous)) if names]
    return f"it {' and '.join(found)}" if found else "it has them in another order; X[model.feature_names_in_] is right"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:MOST_NAMED]))
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else shown


def _tuple_of(value: Any, name: str, *types: type) -> tuple[Any, ...]:
    require_type(value, name, list)
    for item in value:
        require_type(item, name, *types)
    return tuple(value)


def _as_table(X: Any) -> Table:
    """Return anything as a table; numbers of an array are not copied."""
    return Table.of_numbers(X) if _is_matrix(X) else Table.of(X)


def _is_matrix(X: Any) -> bool:
    return isinstance(X, np.ndarray) and X.dtype == np.float64 and X.ndim == 2


def _chosen(categories: str | Sequence[str | int], table: Table) -> set[int]:
    """Return the numbers of the columns that are named as categories."""
    if isinstance(categories, str):
        return set()
    names, d = table.names or [], table.shape[1]
    numbers = {name: names.index(name) if name in names else name for name in categories}
    for name, j in numbers.items():
        if not isinstance(j, int) or not 0 <= j < d:
            raise ValueError(f"categories must be names or numbers of columns of X, got {name!r}")
    return {int(j) for j in numbers.values()}


def _categories(text: Text, weight: FloatArray | None) -> tuple[tuple[str | None, ...], bool]:
    """Return the categories to keep, sorted, and whether there are more."""
    counts = np.bincount(text.codes + 1, weight, minlength=len(text.values) + 1)
    present = [k for k in range(len(text.values)) if counts[k + 1] > 0]
    if len(present) > MOST_CATEGORIES and len(present) == (text.codes >= 0).sum():
        return (), False  # no category occurs twice: the column names the rows
    more = len(present) > MOST_CATEGORIES
    if more:
        present = sorted(present, key=lambda k: (-counts[k + 1], text.values[k]))[: MOST_CATEGORIES - 1]
    kept = sorted(text.values[k] for k in present)
    return (*kept, *([None] if counts[0] > 0 else [])), more


def _warn_of_columns(
    columns: Sequence[Column],
    found: Sequence[tuple[tuple[str | None, ...] | None, bool]],
    names: Sequence[str] | None,
    stacklevel: int,
) -> None:
    for j, (column, (own, _)) in enumerate(zip(columns, found, strict=True)):
        reason = _reason(column, own)
        if reason:
            warn(f"{label(names, j)} {reason}", TableWarning, stacklevel=stacklevel + 1)


def _reason(column: Column, own: tuple[str | None, ...] | None) -> str:
    """Return why a column carries less than it seems to."""
    if not isinstance(column, Text) or own is None:
        empty = isinstance(column, np.ndarray) and np.isnan(column[0]) and np.isnan(column).all()
        return "has no values: it is not used" if empty else ""
    if slips := _numbers_with_slips(column.values):
        return f"holds {slips}: it is {'taken as categories' if own else 'not used'}; turn it into numbers"
    if not len(own):
        return "is different in every row, as names and numbers of rows are: it is not used"
    if len(own) == 1:
        return f"has one value, {own[0]!r}: it is not used"
    if len(column.values) > MOST_CATEGORIES and all(map(_reads_as_number, column.values)):
        return (
            f"holds {len(column.values)} numbers as text, which are taken as categories: turn them into numbers if "
            "their order matters"
        )
    if len({value.strip() for value in column.values}) < len(column.values):
        return "has categories that differ only in spaces around them"
    return ""


def _numbers_with_slips(values: Sequence[str]) -> str:
    """Describe texts most of which are numbers, but not all, or not without signs; empty if they are not such."""
    plain = [value for value in values if _reads_as_number(value)]
    signed = [value for value in values if _SIGNED_NUMBER.fullmatch(value) and not _reads_as_number(value)]
    if len(plain) + len(signed) <= max(FEW_NUMBERS, len(values) / 2) or len(plain) == len(values):
        return ""
    others = sorted({*values} - {*plain} - {*signed})
    examples = [
        f"numbers as text, such as {min(signed or plain)!r}",
        *(f"other text, such as {t!r}" for t in others[:1]),
    ]
    return " and ".join(examples)


def _reads_as_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _may_number_rows(column: FloatArray) -> bool:
    """Whether numbers are different integers of which chance would have made some equal.

    Among n of m integers no two are equal with probability exp(−n²/2m).
    """
    n = len(column)
    if n < FEWEST_NUMBERED or not (column == np.round(column)).all():
        return False
    return bool(n**2 / (2.0 * (np.ptp(column) + 1.0)) > NUMBERED and len(np.unique(column)) == n)


def _is_telling(absent: NDArray[np.bool_], y: FloatArray | None, weight: FloatArray | None) -> bool:
    """Whether the mean of a target differs between the rows with and without a number.

    Σ over both kinds of rows of (Σ y)²/count is a chi-squared variable with one degree of freedom if it does not.
    """
    if y is None:
        return False
    count = np.bincount(absent, weight, minlength=2)
    effect = [sum(np.bincount(absent, t if weight is None else t * weight, minlength=2) ** 2 / count) for t in y.T]
    return bool((max(effect) - 1.0) / np.sqrt(2.0) > TELLING)
