"""`Columns`: a transformer of tables as people have them, with text and gaps, into numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, check_X_y, validate_data

from pydirect._validation import FloatArray, as_choice, as_flag, as_instance, as_sample_weight, column_names, has_nan
from pydirect._warnings import warn
from pydirect.statistics.gaussian import weighted_location_scale
from pydirect.tables.dates import OTHER, Calendar, Dates, is_date
from pydirect.tables.encoding import ColumnEncoding, Gaps, as_table, what_differs
from pydirect.tables.table import (
    Column,
    Table,
    Text,
    as_text,
    is_absent,
    is_frame,
    label,
    reads_as_number,
    refuse_what_numpy_converts,
)

# Categories of a column that always have a column each, and at most; what all columns with more of them share.
FEW_CATEGORIES, MOST_CATEGORIES, MOST_CODES = 50, 300, 900
# An indicator of missing numbers is kept when the means of the targets with and without them differ by more than
# chance: standard deviations of a chi-squared variable with one degree of freedom.
TELLING = 3.0
# Rows from which integers may number them, and −log of the probability that chance makes them all different.
FEWEST_NUMBERED, NUMBERED = 50, 10.0
# Numbers with units, grouped digits or decimal commas; more different ones than a few are hardly categories.
_SIGNED_NUMBER = re.compile(r"\s*[€$£¥]?\s*[+-]?\d[\d.,' ]*\s*[%€$£¥°]?\s*")
FEW_NUMBERS = 10
MISSING_POLICIES = ("auto", "indicator", "raise")


class TableWarning(UserWarning):
    """A column of a table carries less than it seems to."""


@dataclass(eq=False, repr=False)
class Columns(TransformerMixin, BaseEstimator):
    """Transformer of tables with text and gaps into numbers: categories as columns of 0 and 1, missing numbers filled.

    Estimators of this package encode tables in this way by themselves; in a pipeline it serves any other one.

    A column of text becomes one column per category, 1 where a row has it. A category that did not occur in training
    has the same negative number in all of them, equally far from all others: the predictive variance grows by itself.
    Missing ones that occurred in training are a category of their own; others are replaced as numbers are. Of more than
    300 categories, or 50 where many columns have as many, the most common are kept; all others, new ones included,
    share a column. Beside these, fits to one target, or to labels or counts, may learn effects of categories. Numbers
    in place of text are refused if none of the categories is a number. A column without values is not encoded. Columns
    of booleans are numbers. Dates become elapsed time, and a sine and a cosine for each season that they repeat: day,
    week and year. A missing number is replaced by its conditional mean, given the row's other columns, under a Gaussian
    fitted to the training rows. Where absence itself is informative about the targets, a column of 0 and 1 tells it.

    Parameters
    ----------
    categories : "auto" or sequence of str or int, default="auto"
        Names or numbers of columns whose numbers are categories, beside columns of text.
    missing : {"auto", "indicator", "raise"}, default="auto"
        ``"indicator"``: an indicator for every column that lacks numbers. ``"raise"``: missing values are an error.
    coordinates : pair of str or int, or sequence of such pairs, optional
        Columns of latitude and longitude in degrees. A place is encoded as its unit vector, whose three numbers share
        a length-scale: distances are those through the globe, also across the poles and the date line.
    effects : bool, default=True
        Whether `fit` tries effects of categories where a column of text has more than 50. Without them
        every model can be exported, and `partial_fit` goes on with the same encoding.

    Attributes
    ----------
    encoding_ : ColumnEncoding
        What was learned: categories, means, indicators.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str of shape (n_features_in,)
        Their names, if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import Columns
    >>> X = np.array([["red", 1.0], ["blue", 2.0], ["red", None]], dtype=object)
    >>> columns = Columns().fit(X)
    >>> columns.get_feature_names_out().tolist()
    ['x0=blue', 'x0=red', 'x1']
    >>> columns.transform([["blue", 4.0]]).tolist()
    [[1.0, 0.0, 4.0]]
    """

    categories: str | Sequence[str | int] = "auto"
    missing: str = "auto"
    coordinates: Sequence[Any] | None = None
    effects: bool = True

    def fit(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn categories and the means of numbers from training rows.

        Parameters
        ----------
        X : frame or array_like of shape (n_samples, n_features_in)
            Rows of a table: a frame of pandas, polars, PyArrow or another package that narwhals knows, or an array.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs), optional
            Targets, numbers or labels; without them, only ``missing="indicator"`` adds indicators.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts.

        Returns
        -------
        self
            The fitted transformer.

        Warns
        -----
        TableWarning
            If a column is not used, or holds numbers as text.
        """
        self.check_parameters()
        table = self._table(X, reset=True)
        check_consistent_length(X, y)
        weight = as_sample_weight(sample_weight, len(table))
        self.encoding_ = self.encoding(table, None if y is None else _standardised(y, weight), weight)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return rows as numbers.

        Parameters
        ----------
        X : frame or array_like of shape (n_samples, n_features_in)
            Rows of a table.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Numbers; of columns of text 0 and 1, and one negative number in all columns of a new category.
        """
        check_is_fitted(self)
        return self.encoding_.encode(self._table(X, reset=False))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Return the names of the columns that come out, such as ``colour=red``.

        Parameters
        ----------
        input_features : array_like of str of shape (n_features_in,), optional
            Names of the columns that go in, if `fit` was given none.

        Returns
        -------
        ndarray of str of shape (n_features_out,)
            Names.
        """
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return np.array(replace(self.encoding_, names=tuple(names)).names_out, dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.missing != "raise"
        return tags

    def _table(self, X: Any, reset: bool) -> Table:
        refuse_what_numpy_converts(X, "X")
        return with_names(self, validated_table(self, X, reset=reset, missing=self.missing))

    def check_parameters(self) -> None:
        """Raise unless the parameters are of their types."""
        as_choice(self.missing, "missing", MISSING_POLICIES)
        as_flag(self.effects, "effects")
        if isinstance(self.categories, str):
            as_choice(self.categories, "categories", ("auto",))
        elif not _are_columns(self.categories):
            raise TypeError(f"categories must be 'auto' or a list of columns, got {self.categories!r}")
        for pair in _pairs(self.coordinates):
            if not _are_columns(pair) or len(pair) != 2:
                raise TypeError(f"coordinates must be columns of latitude and longitude, got {self.coordinates!r}")

    def encoding(self, X: Any, y: FloatArray | None = None, weight: FloatArray | None = None) -> ColumnEncoding:
        """Return the encoding learned from the rows of a table.

        Parameters
        ----------
        X : Table, frame or array_like of shape (n_rows, n_columns)
            Rows of a table.
        y : ndarray of shape (n_rows, n_outputs), optional
            Standardised targets.
        weight : ndarray of shape (n_rows,), optional
            How many times each row counts.

        Returns
        -------
        ColumnEncoding
            The encoding.
        """
        table = as_table(X)
        if weight is not None and not weight.all():
            used = weight > 0
            table, y, weight = table.rows(used), None if y is None else y[used], weight[used]
        chosen = set() if isinstance(self.categories, str) else {*_numbers_of(self.categories, table, "categories")}
        places = tuple((j, k) for j, k in (_numbers_of(p, table, "coordinates") for p in _pairs(self.coordinates)))
        columns = [as_text(c) if j in chosen else c for j, c in enumerate(table.columns)]
        for j in (j for place in places for j in place if not isinstance(columns[j], np.ndarray)):
            raise TypeError(f"coordinates must be columns of numbers, not {label(table.names, j)}")
        placed = {j for place in places for j in place}
        complete = None if chosen or table.matrix is None or has_nan(table.matrix) else table.matrix
        empty = [complete is None and j not in placed and is_absent(c).all() for j, c in enumerate(columns)]
        n_wide = sum(isinstance(c, Text) and len(c.values) > FEW_CATEGORIES for c in columns)
        most = min(MOST_CATEGORIES, max(FEW_CATEGORIES, MOST_CODES // max(n_wide, 1)))
        of_text = [_categories(c, weight, most) if isinstance(c, Text) else (None, False) for c in columns]
        found = [((), False) if none else own for none, own in zip(empty, of_text, strict=True)]
        for j, (column, (own, _)) in enumerate(zip(columns, found, strict=True)):
            if complete is None and (reason := _reason(column, own)):
                warn(f"{label(table.names, j)} {reason}", TableWarning)
        names = None if table.names is None else tuple(table.names)
        pooled = tuple(j for j, (_, more) in enumerate(found) if more)
        numbering = tuple(j for j, c in enumerate(columns) if isinstance(c, np.ndarray) and _may_number_rows(c))
        dates = [(j, c) for j, c in enumerate(columns) if isinstance(c, Dates) and found[j][0] is None]
        calendars = tuple(Calendar.fit(j, c) for j, c in dates)
        plain = ColumnEncoding(
            names, tuple(own for own, _ in found), pooled, (), None, (), numbering, calendars, places
        )
        plain.check()
        if plain.is_plain and complete is not None:
            return replace(plain, gaps=None if self.missing == "raise" else Gaps.fit(complete, weight))
        body, absent = plain.body(columns)
        starts = np.diff(plain.origins, prepend=-1) > 0  # of the columns of a date all are missing, or none
        lacking = np.flatnonzero(absent.any(axis=0) & ~absent.all(axis=0) & starts)
        telling = [j for j in lacking if self.missing == "indicator" or _is_telling(absent[:, j], y, weight)]
        return replace(
            plain,
            gaps=None if self.missing == "raise" else Gaps.fit(body, weight),
            lacking=tuple(plain.origins[lacking].tolist()),
            indicators=tuple(plain.origins[np.array(telling, np.intp)].tolist()),
        )


def validated_table(estimator: BaseEstimator, X: Any, *y: Any, reset: bool, missing: str, **checks: Any) -> Any:
    """Return X, and y if it is given, as scikit-learn validates them: a matrix of numbers, or a `Table`.

    `reset`: whether to set the names of the estimator's inputs, or compare with them. `missing`: as of `Columns`.
    """
    try:
        table = X if isinstance(X, Table) else Table.of_text(X)
    except (TypeError, ValueError):
        if not reset:  # a column that the fit did not have may be of any kind
            _require_names(estimator, column_names(X))
        raise
    if table is None and is_frame(X) and X.shape[1] == 0:
        raise ValueError("Found array with 0 feature(s), a frame without columns: its index is not one of them")
    if table is None:
        finite: bool | str = missing == "raise" or "allow-nan"
        return validate_data(estimator, X, *y, reset=reset, dtype=np.float64, ensure_all_finite=finite, **checks)
    for number, what in zip(table.shape, ("sample", "feature"), strict=True):
        if number == 0:
            raise ValueError(f"Found array with 0 {what}(s) (shape={table.shape}) while a minimum of 1 is required.")
    targets = [check_X_y(np.zeros((len(table), 1)), v, estimator=estimator, **checks)[1] for v in y]
    _require_known(table, missing)
    if reset:
        known = vars(estimator)
        known["n_features_in_"] = table.shape[1]
        known.pop("feature_names_in_", None)
        if table.names is not None:
            known["feature_names_in_"] = np.array(table.names, dtype=object)
    else:
        _require_names(estimator, table.names)
        if table.shape[1] != (d := vars(estimator)["n_features_in_"]):
            own = type(estimator).__name__
            raise ValueError(f"X has {table.shape[1]} features, but {own} is expecting {d} features as input")
    return (table, *targets) if targets else table


def warn_of_order(X: Any, *y: Any) -> None:
    """Warn where indices of frames name the same rows in another order, which is not followed."""
    index: Any = getattr(X, "index", None)
    for targets in y:
        other: Any = getattr(targets, "index", None)
        if hasattr(index, "equals") and hasattr(other, "equals") and len(index) == len(other):
            if not index.equals(other) and index.isin(other).all() and other.isin(index).all():
                warn("X and y have the same index in another order, and rows are taken as they stand", TableWarning)


def with_names(estimator: BaseEstimator, x: Any) -> Table:
    """Return validated rows as a table with the names of the fit."""
    if isinstance(x, Table):
        return x
    names = vars(estimator).get("feature_names_in_")
    # Sums over rows of a Fortran-ordered array round otherwise.
    return Table.of_numbers(np.ascontiguousarray(x), None if names is None else names.tolist())


def _require_known(table: Table, missing: str) -> None:
    """Raise unless numbers are finite, or missing where that is allowed."""
    for j, column in enumerate(table.columns):
        if missing == "raise" and is_absent(column).any():
            raise ValueError(f"{label(table.names, j)} must have no missing values with missing='raise', got some")
        if isinstance(column, np.ndarray) and np.isinf(column).any():
            raise ValueError(f"{label(table.names, j)} must be finite, got infinity")


def _require_names(estimator: BaseEstimator, given: list[str] | None) -> None:
    names = vars(estimator).get("feature_names_in_")
    if names is not None and given is not None and list(names) != given:
        raise ValueError(
            "The feature names should match those that were passed during fit: X must have the columns of the fit, "
            f"but {what_differs(names, given)}"
        )


def _standardised(y: ArrayLike, weight: FloatArray | None) -> FloatArray:
    """Return targets with mean zero and variance one, (n_rows, n_outputs); labels as indicators of each."""
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        classes, index = np.unique(values.astype(str), return_inverse=True)
        values = index.reshape(len(values), -1) == np.arange(len(classes))
    values = values.reshape(len(values), -1).astype(np.float64)
    location, scale = weighted_location_scale(values, weight)
    return (values - location) / np.where(scale > 0, scale, 1.0)


def _are_columns(columns: Any) -> bool:
    """Whether these are names and numbers of columns."""
    return isinstance(columns, Sequence | np.ndarray) and all(
        isinstance(c, str | int | np.integer) and not isinstance(c, bool) for c in columns
    )


def as_columns(columns: Any) -> Columns:
    """Return what an estimator was told of columns, checked."""
    chosen = Columns() if columns is None else columns
    as_instance(chosen, "columns", Columns)
    chosen.check_parameters()
    return chosen


def _pairs(coordinates: Any) -> list[Any]:
    """Return pairs of columns, of one pair or several."""
    if coordinates is None:
        return []
    several = isinstance(coordinates, Sequence) and not isinstance(coordinates, str) and not _are_columns(coordinates)
    return list(coordinates) if several else [coordinates]


def _numbers_of(columns: Sequence[str | int], table: Table, parameter: str) -> list[int]:
    """Return the numbers of columns that are named."""
    names, d, found = table.names or [], table.shape[1], []
    for name in columns:
        j = names.index(name) if name in names else name
        if not isinstance(j, int | np.integer) or not 0 <= j < d:
            raise ValueError(f"{parameter} must be names or numbers of columns of X, got {name!r}")
        found.append(int(j))
    return found


def _categories(text: Text, weight: FloatArray | None, most: int) -> tuple[tuple[str | None, ...] | None, bool]:
    """Return the categories to keep, sorted, `most` at the most, and whether there are more."""
    counts = np.bincount(text.codes + 1, weight, minlength=len(text.values) + 1)
    present = [k for k in range(len(text.values)) if counts[k + 1] > 0]
    if len(present) > FEWEST_NUMBERED and len(present) == (text.codes >= 0).sum():
        return (), False  # no category occurs twice: the column names the rows
    more = len(present) > most
    if more:
        present = sorted(present, key=lambda k: (-counts[k + 1], text.values[k]))[: most - 1]
    kept = sorted(text.values[k] for k in present)
    return (*kept, *([None] if counts[0] > 0 else [])), more


def _reason(column: Column, own: tuple[str | None, ...] | None) -> str:
    """Return why a column carries less than it seems to."""
    if own == () and is_absent(column).all():
        return "has no values: it is not used"
    if not isinstance(column, Text) or own is None:
        return ""
    fate = "taken as categories" if own else "not used"
    if dates := _dates_with_slips(column):
        return f"holds {dates[0]}: it is {fate}; {dates[1]}"
    if slips := _numbers_with_slips(column.values):
        return f"holds {slips}: it is {fate}; turn it into numbers"
    if not len(own):
        if all(map(reads_as_number, column.values)) and any(float(value) % 1 for value in column.values):
            return f"holds {len(column.values)} numbers as text, all different: it is not used; turn it into numbers"
        return "is different in every row, as names and numbers of rows are: it is not used"
    if len(own) == 1:
        return f"has one value, {own[0]!r}: it is not used"
    if not column.declared and len(column.values) > FEW_NUMBERS and all(map(reads_as_number, column.values)):
        return (
            f"holds {len(column.values)} numbers as text, which are taken as categories: turn them into numbers if "
            "their order matters"
        )
    if len({value.strip() for value in column.values}) < len(column.values):
        return "has categories that differ only in spaces around them"
    return ""


def _dates_with_slips(column: Text) -> tuple[str, str] | None:
    """Describe texts most of which are dates, and what makes them a column of dates; None if they are not such."""
    if column.declared:
        return None
    most = max(FEW_NUMBERS, len(column.values) / 2)
    if sum(map(is_date, column.values)) > most:
        other = next(v for v in column.values if v.strip() and not is_date(v))
        row = np.flatnonzero(column.codes == column.values.index(other))[0]
        return f"dates as text, but {other!r} in row {row}", "make that a date, or leave it empty"
    found = [v for v in column.values if OTHER.fullmatch(v)]
    if len(found) <= most:
        return None
    return f"dates as text, such as {found[0]!r}", "turn it into dates, say by pandas.to_datetime"


def _numbers_with_slips(values: Sequence[str]) -> str:
    """Describe texts most of which are numbers, but not all, or not without signs; empty if they are not such."""
    plain = [value for value in values if reads_as_number(value)]
    signed = [value for value in values if _SIGNED_NUMBER.fullmatch(value) and not reads_as_number(value)]
    if len(plain) + len(signed) <= max(FEW_NUMBERS, len(values) / 2) or len(plain) == len(values):
        return ""
    others = sorted({*values} - {*plain} - {*signed})
    other = f" and other text, such as {others[0]!r}" if others else ""
    return f"numbers as text, such as {min(signed or plain)!r}{other}"


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
