"""Encoding of tables as matrices of numbers: categories as columns of 0 and 1, gaps by conditional means."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, has_nan, short_repr
from pydirect.persistence.schema import AnyFinite, Positive, Shape
from pydirect.statistics.gaussian import weighted_location_scale
from pydirect.tables.dates import Calendar, Dates, is_date
from pydirect.tables.table import Column, Table, Text, as_text, is_absent, label, reads_as_number

ROUNDS = 10
LARGEST = 1e50  # of standardised numbers, whose squares stay finite
RIDGE = 1e-3  # of the variances
MOST_ROWS = 10_000  # that the Gaussian is fitted to
MOST_COLUMNS = 300  # of a covariance matrix; the means of more are taken as independent
BLOCK_NUMBERS = 2**21  # in the small matrices of one block of rows
# Numbers of rows, (n_chosen,), what they may be, (1 + N_DRAWS, n_chosen, n_encoded), and whether indicators tell all
# that is missing, (n_chosen,).
Gapped = tuple[NDArray[np.intp], FloatArray, NDArray[np.bool_]]
N_DRAWS = 64  # of missing numbers, of which half mirror the others about the mean


@dataclass(frozen=True)
class Gaps:
    """A Gaussian of the columns, whose conditional means stand for missing numbers.

    - `mean`, `scale`, (n_columns,): of the known numbers.
    - `centre`, (n_columns,): mean of the Gaussian in units of `scale` about `mean`.
    - `precision`, (n_columns, n_columns) or (0, 0): inverse covariance in these units; empty if columns are taken as
      independent.
    """

    mean: Annotated[FloatArray, Shape("n_known*"), AnyFinite]
    scale: Annotated[FloatArray, Shape("n_known*"), AnyFinite, Positive]
    centre: Annotated[FloatArray, Shape("n_known*")]
    precision: Annotated[FloatArray, Shape("n_known* or 0", "n_known* or 0")]

    __repr__ = short_repr

    @classmethod
    def fit(cls, x: FloatArray, weight: FloatArray | None) -> Self:
        """Fit to rows with NaN in them: ten rounds of conditional means and the moments of the rows they complete.

        With the conditional covariance of what was missing, these rounds are the EM algorithm for the Gaussian of
        largest likelihood (Little & Rubin 2019, section 11.2), but for a ridge of a thousandth of the variances.

        `x`, (n_rows, n_columns): NaN where a number is missing. `weight`, (n_rows,): how many times each row counts.
        """
        few, few_weights = x, weight
        if len(x) > MOST_ROWS:
            chosen = np.sort(np.random.default_rng(0).choice(len(x), MOST_ROWS, replace=False))
            few, few_weights = x[chosen], None if weight is None else weight[chosen]
        complete = not has_nan(x)
        mean, scale = _known_location_scale(few, few_weights) if complete else _known_location_scale(x, weight)
        d = x.shape[1]
        gaps = cls(mean, scale, np.zeros(d), np.empty((0, 0)))
        if not 0 < d <= MOST_COLUMNS:
            return gaps
        missing = np.isnan(few)
        z = gaps._units(few)
        with single_blas_thread():
            for _ in range(1 if complete else ROUNDS):
                gaps = gaps._step(z, missing, few_weights)
        return gaps

    def _units(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.clip((x - self.mean) / self.scale, -LARGEST, LARGEST)

    def _step(self, z: FloatArray, missing: NDArray[np.bool_], weight: FloatArray | None) -> Self:
        """Return the Gaussian of rows that this one completes."""
        completed, spread = self._completed(z, missing, weight)
        centre = np.average(completed, axis=0, weights=weight)
        deviation = completed - centre
        total = len(z) if weight is None else weight.sum()
        covariance = (deviation.T @ (deviation if weight is None else deviation * weight[:, None]) + spread) / total
        variance = covariance.diagonal().copy()
        covariance[np.diag_indices_from(covariance)] += np.where(variance > 0, RIDGE * variance, 1.0)
        return type(self)(self.mean, self.scale, centre, np.linalg.inv(covariance))

    def _completed(
        self, z: FloatArray, missing: NDArray[np.bool_], weight: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return rows with conditional means for what is missing, and the sum of their conditional covariances.

        With precision P and missing columns m, E[z_m | rest] = c_m − P_mm⁻¹ P_mo (z_o − c_o), covariance P_mm⁻¹.
        """
        d = z.shape[1]
        deviation = np.where(missing, 0.0, z - self.centre)
        spread = np.zeros((d, d))
        if self.precision.size:
            for rows, columns in _patterns(missing):
                pull = np.take_along_axis(deviation[rows] @ self.precision, columns, axis=1)
                own = np.linalg.inv(self.precision[columns[:, :, None], columns[:, None, :]])
                np.put_along_axis(part := deviation[rows], columns, -np.einsum("rij,rj->ri", own, pull), axis=1)
                deviation[rows] = part
                if weight is not None:
                    own = own * weight[rows, None, None]
                np.add.at(spread, (columns[:, :, None], columns[:, None, :]), own)
        return deviation + self.centre, spread

    def fill(self, x: FloatArray, missing: NDArray[np.bool_]) -> None:
        """Write conditional means into rows x where numbers are missing; `x`, `missing`, (n_rows, n_columns)."""
        touched = np.flatnonzero(missing.any(axis=1))
        lacking = missing[touched]
        with single_blas_thread():
            completed, _ = self._completed(self._units(x[touched]), lacking)
        rows, columns = np.nonzero(lacking)
        x[touched[rows], columns] = self.mean[columns] + self.scale[columns] * completed[rows, columns]

    def draws(self, x: FloatArray, missing: NDArray[np.bool_]) -> FloatArray:
        """Rows that were filled with draws of what is missing instead, the same for a row in any table.

        `x`, `missing`, (n_rows, n_columns); returns (N_DRAWS, n_rows, n_columns).
        """
        half = np.random.default_rng(0).standard_normal((N_DRAWS // 2, x.shape[1]))
        half[:, : len(half)] = np.linalg.qr(half[:, : len(half)])[0]
        half /= np.sqrt(np.mean(half**2, axis=0))
        normal, found = np.concatenate([half, -half]), np.repeat(x[None], N_DRAWS, axis=0)
        if not self.precision.size:
            return np.where(missing, found + (self.scale * normal)[:, None], found)
        with single_blas_thread():
            for rows, columns in _patterns(missing):
                root = np.linalg.cholesky(np.linalg.inv(self.precision[columns[:, :, None], columns[:, None, :]]))
                own = normal[:, : columns.shape[1]]
                found[:, rows[:, None], columns] += self.scale[columns] * np.einsum("rij,sj->sri", root, own)
        return found


def _patterns(missing: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield rows that lack equally many numbers, in blocks, and the columns that each lacks."""
    count = missing.sum(axis=1)
    for k in np.unique(count[count > 0]):
        rows = np.flatnonzero(count == k)
        size = max(1, BLOCK_NUMBERS // int(k * k))
        for begin in range(0, len(rows), size):
            chosen = rows[begin : begin + size]
            yield chosen, np.nonzero(missing[chosen])[1].reshape(len(chosen), k)


def _known_location_scale(x: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return location and scale of the known numbers of each column; zero and one of a column without any."""
    if not np.isnan(x).any():
        mean, scale = weighted_location_scale(x, weight)
    else:
        mean, scale = np.zeros((2, x.shape[1]))
        for j, known in enumerate(~np.isnan(x).T):
            if known.any():
                found = weighted_location_scale(x[known, j, None], None if weight is None else weight[known])
                mean[j], scale[j] = found[0][0], found[1][0]
    return mean, np.where(scale > 0, scale, 1.0)


MOST_NAMED = 10  # columns in a message


@dataclass(frozen=True, eq=False)
class CategoryEffects:
    """What training rows tell of effects of a column's categories on latent functions: normal distributions.

    - `column`: number of the column.
    - `categories`, (n_categories,): their texts, of which None stands for missing ones.
    - `moments`, (n_categories + 1, n_functions + 1): means of each effect and their variance, last of one that is new.
    """

    column: int
    categories: Annotated[tuple[str | None, ...], Shape("n_categories")]
    moments: Annotated[FloatArray, Shape("n_moments", "n_values")]

    @cached_property
    def _numbers(self) -> dict[str | None, int]:
        return {value: k for k, value in enumerate(self.categories)}

    @property
    def names(self) -> list[str]:
        """What the encoded columns hold."""
        n = self.moments.shape[1] - 1
        return [*(["effect"] if n == 1 else [f"effect {k}" for k in range(n)]), "its variance", "code"]

    def of(self, text: Text) -> FloatArray:
        """Return moments of the effects of rows, and what tells categories apart, (n_rows, n_functions + 2)."""
        values = (*text.values, None)
        number = [self._numbers.get(value, len(self._numbers)) for value in values]
        codes = [float(zlib.crc32(repr(value).encode())) for value in values]  # those of new ones, too
        return np.column_stack([self.moments[number], codes])[text.codes]


@dataclass(frozen=True, eq=False)
class ColumnEncoding:
    """Encoding of tables as matrices of numbers: categories as columns of 0 and 1, missing numbers by what is expected.

    - `names`: of the columns, or None.
    - `categories`: those of each column, of which None stands for missing ones; None for a column of numbers.
    - `pooled`: columns whose rarer categories share one more column.
    - `indicators`: columns of numbers followed by a column that tells where they are missing.
    - `gaps`: model of the encoded columns without indicators; without it, no number may be missing.
    - `lacking`: columns of numbers that lacked some in training.
    - `numbering`: columns of integers that may only number the rows: all different, and so dense that chance hardly
      makes them so.
    - `calendars`: how columns of dates are encoded.
    - `places`: columns of latitudes and of longitudes in degrees, encoded together as unit vectors.
    - `effects`: of categories of columns that have many; their means, variances and codes are the last encoded columns.
    """

    names: Annotated[tuple[str, ...], Shape("n_columns")] | None = field(compare=False)
    categories: Annotated[tuple[tuple[str | None, ...] | None, ...], Shape("n_columns")]
    pooled: tuple[int, ...]
    indicators: tuple[int, ...]
    gaps: Gaps | None
    lacking: tuple[int, ...] = field(default=(), compare=False)
    numbering: tuple[int, ...] = field(default=(), compare=False)
    calendars: tuple[Calendar, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    effects: tuple[CategoryEffects, ...] = ()

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
        found = np.array([1 if c is None else len(c) for c in self.categories]) + pooled
        for calendar in self.calendars:
            found[calendar.column] = calendar.width
        found[[longitude for _, longitude in self.places]] = 2  # beside the one of the latitude
        return found

    @property
    def n_encoded(self) -> int:
        """Number of encoded columns."""
        return len(self.origins)

    @cached_property
    def origins(self) -> NDArray[np.intp]:
        """Column of the table that each encoded one comes from, (n_encoded,)."""
        behind = [*self.indicators, *(effect.column for effect in self.effects for _ in effect.names)]
        return np.concatenate([np.repeat(np.arange(self.n_columns), self.widths), np.array(behind, np.intp)])

    def players(self, names: Sequence[str] | None = None) -> tuple[NDArray[np.intp], list[tuple[int, ...]], list[str]]:
        """Return what varies as one, a column or a place: that of each encoded column, the columns of each, its name.

        `names`, (n_columns,): of the columns of the table, `raw_names` by default.
        """
        longitudes = dict(self.places)
        after = set(longitudes.values())
        alone = [j for j in range(self.n_columns) if j not in after]
        columns: list[tuple[int, ...]] = [(j, longitudes[j]) if j in longitudes else (j,) for j in alone]
        number = np.empty(self.n_columns, np.intp)
        for player, own in enumerate(columns):
            number[list(own)] = player
        names = self.raw_names if names is None else names
        return number[self.origins], columns, [", ".join(names[j] for j in own) for own in columns]

    @cached_property
    def groups(self) -> NDArray[np.intp]:
        """Group of encoded columns that share a length-scale, −1 for numbers; (n_encoded,).

        The categories of a column are the group of its number; further ones are times and seasons of dates.
        """
        own = [np.full(self.widths[j], -1 if c is None else j) for j, c in enumerate(self.categories)]
        first = self.n_columns
        for calendar in self.calendars:
            own[calendar.column] = first + (np.arange(calendar.width) + 1) // 2
            first += len(calendar.seasons) + 1
        for place in self.places:  # distances are those of the sphere's chords
            for j in place:
                own[j][:] = place[0]
        return np.concatenate([*own, np.full(self.n_encoded - self.widths.sum(), -1)])

    @cached_property
    def is_plain(self) -> bool:
        """Whether complete rows are encoded as they are."""
        encoded = self.indicators or self.calendars or self.places
        return not encoded and self.categories.count(None) == self.n_columns

    @property
    def numbers(self) -> list[int]:
        """Columns of numbers."""
        others = {calendar.column for calendar in self.calendars} | {j for place in self.places for j in place}
        return [j for j, own in enumerate(self.categories) if own is None and j not in others]

    @property
    def raw_names(self) -> list[str]:
        """Names of the columns of a table, numbers where there are none."""
        return [f"x{j}" for j in range(self.n_columns)] if self.names is None else list(self.names)

    @property
    def names_out(self) -> list[str]:
        """Names of the encoded columns, such as ``colour=red``."""
        raw = self.raw_names
        found: list[list[str]] = []
        for j, (name, categories) in enumerate(zip(raw, self.categories, strict=True)):
            values = [name] if categories is None else [f"{name}={'(missing)' if c is None else c}" for c in categories]
            found.append([*values, *[f"{name}=(other)"] * (j in self.pooled)])
        for calendar in self.calendars:
            found[calendar.column] = calendar.names(raw[calendar.column])
        for j, k in self.places:
            x, *found[k] = (f"{raw[j]}, {raw[k]}: {axis}" for axis in "xyz")
            found[j] = [x]
        missing = [f"{raw[j]}=(missing)" for j in self.indicators]
        effects = [f"{raw[own.column]}=({what})" for own in self.effects for what in own.names]
        return [*(name for own in found for name in own), *missing, *effects]

    # --- fitting

    @classmethod
    def of_numbers(cls, n_columns: int, names: Sequence[str] | None = None) -> Self:
        """Return the encoding that changes nothing, and takes no missing numbers."""
        return cls(None if names is None else tuple(names), (None,) * n_columns, (), (), None)

    # --- rows

    def encode(self, X: Any) -> FloatArray:
        """Return rows of a table, frame or array as numbers, (n_rows, n_encoded).

        Raises TypeError or ValueError if columns are not those of the fit, or one of numbers holds text.
        """
        return self.encode_and_mark(X)[0]

    def encode_and_mark(self, X: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return rows as `encode` does, and where they were missing, without indicators, or with no columns if nowhere.

        What is missing is filled in.
        """
        matrix = X.matrix if isinstance(X, Table) else X if is_matrix(X) else None
        if self.is_plain and matrix is not None and matrix.shape[1] == self.n_columns and not has_nan(matrix):
            return np.ascontiguousarray(matrix), np.empty((len(matrix), 0), bool)
        table = self._table(X)
        body, absent = self.body(table.columns)
        if absent.any():
            if self.gaps is None:
                j = int(self.origins[np.flatnonzero(absent.any(axis=0))[0]])
                raise ValueError(f"{label(self.names, j)} must have no missing values, got some")
            self.gaps.fill(body, absent)
        if not self.indicators and not self.effects:
            return body, absent
        first = np.cumsum(self.widths) - self.widths
        effects = [own.of(as_text(table.columns[own.column])) for own in self.effects]
        return np.hstack([body, absent[:, first[list(self.indicators)]].astype(np.float64), *effects]), absent

    def effects_of(self, x: FloatArray) -> FloatArray:
        """Return means, variances and codes of effects at encoded rows, (n_rows, n_effects, n_functions + 2)."""
        n, width = len(self.effects), len(self.effects[0].names) if self.effects else 3
        return x[:, self.n_encoded - n * width : self.n_encoded].reshape(len(x), n, width)

    def apart(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return encoded rows whose effects are zero, for functions of the other columns, and these effects' moments.

        The latter are means, (n_rows, n_functions), and variances, (n_rows,), or (1,) where there are none.
        """
        if not self.effects:
            return x, np.zeros(1), np.zeros(1)
        others, moments = x.copy(), self.effects_of(x)[:, :, :-1].sum(axis=1)
        self.effects_of(others)[:] = 0.0
        return others, moments[:, :-1], moments[:, -1]

    def missing(self, X: Any) -> NDArray[np.bool_]:
        """Return where a number or category is missing, (n_rows, n_columns)."""
        return np.column_stack([is_absent(column) for column in self._table(X).columns])

    def lacking_anew(self, X: Any) -> list[str]:
        """Return the columns of numbers that lack some, and lacked none in training, as messages name them."""
        table = self._table(X)
        return [
            label(table.names or self.names, j)
            for j, column in enumerate(table.columns)
            if self.categories[j] is None and j not in self.lacking and is_absent(column).any()
        ]

    def slips(self, X: Any) -> list[str]:
        """Return new categories that differ from known ones in case or blanks alone, as messages name them."""
        table, found = self._table(X), list[str]()
        whole = {effect.column: effect.categories for effect in self.effects}
        for j, column in enumerate(table.columns):
            own = whole.get(j, () if j in self.pooled else self.categories[j])
            known = {_plain(value): value for value in own or () if value is not None}
            for value in as_text(column).values if known else ():
                if value not in (own or ()) and _plain(value) in known:
                    found.append(f"{label(table.names, j)} holds {value!r} where the fit had {known[_plain(value)]!r}")
        return found

    def draws_of_missing(self, x: FloatArray, absent: NDArray[np.bool_]) -> Iterator[Gapped]:
        """Yield rows that lack something, and what may stand in its place: first what is expected, then draws.

        In these nothing counts as missing: of rows whose indicators are 1 the fit has seen no other numbers than
        expected ones. `x`, (n_rows, n_encoded), and `absent`: what `encode_and_mark` has returned.
        """
        width = absent.shape[1]
        touched, size = np.flatnonzero(absent.any(axis=1)), max(1, BLOCK_NUMBERS // (N_DRAWS * max(1, x.shape[1])))
        for begin in range(0, len(touched), size):
            rows = touched[begin : begin + size]
            places = np.repeat(x[None, rows], 1 + N_DRAWS, axis=0)
            assert self.gaps is not None  # otherwise nothing may be missing
            places[1:, :, :width] = self.gaps.draws(x[rows, :width], absent[rows])
            places[..., width:] = 0.0
            yield rows, places, self.told(absent[rows])

    def told(self, absent: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows lack something, and nothing without an indicator, (n_rows,)."""
        own = np.isin(self.origins[: absent.shape[1]], self.indicators)
        return np.asarray(absent[:, own].any(axis=1) & ~absent[:, ~own].any(axis=1))

    def unseen(self, X: Any) -> NDArray[np.bool_]:
        """Return where a category did not occur in training, or is not known to have, (n_rows, n_columns)."""
        table = self._table(X)
        out = np.zeros(table.shape, dtype=bool)
        for j, (column, own) in enumerate(zip(table.columns, self.categories, strict=True)):
            if own is not None:
                text = as_text(column)
                out[:, j] = np.array([*(value not in self._numbers[j] for value in text.values), False])[text.codes]
        return out

    def _table(self, X: Any) -> Table:
        table = as_table(X)
        if table.names is not None and self.names is not None and table.names != list(self.names):
            raise ValueError(f"X must have the columns of the fit: {what_differs(self.names, table.names)}")
        if table.shape[1] != self.n_columns:
            raise ValueError(f"X must have {self.n_columns} columns, as in fit, got {table.shape[1]}")
        return table

    def body(self, columns: Sequence[Column]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the encoded columns without indicators, and where they are missing."""
        out = np.zeros((len(columns[0]), int(self.widths.sum())))
        end, calendars = 0, {calendar.column: calendar for calendar in self.calendars}
        for j, (column, own, width) in enumerate(zip(columns, self.categories, self.widths, strict=True)):
            place, end = out[:, end : end + width], end + int(width)
            if own is not None:
                _require_categories(column, own, label(self.names, j))
                codes = self._codes(as_text(column), j)
                known = codes >= 0
                place[known, codes[known]] = 1.0
                place[~known] = np.where(is_absent(column)[~known, None], np.nan, new_category(int(width)))
            elif isinstance(column, Dates) and j in calendars:
                place[:] = calendars[j].encode(column, label(self.names, j))
            elif isinstance(column, np.ndarray) and j not in calendars:
                place[:, 0] = column
            elif is_absent(column).all() or (
                j in calendars and isinstance(column, Text) and not any(map(str.strip, column.values))
            ):
                place[:] = np.nan
            else:
                expected = "dates" if j in calendars else "numbers"
                raise TypeError(
                    f"{label(self.names, j)} must hold {expected}, as in fit, got {_example(column, j in calendars)}"
                )
        starts = np.cumsum(self.widths) - self.widths
        for j, k in self.places:
            self._require_degrees(out[:, starts[[j, k]]], (j, k))
            out[:, [starts[j], starts[k], starts[k] + 1]] = unit_vectors(*out[:, starts[[j, k]]].T)
        return out, np.isnan(out)

    def _require_degrees(self, degrees: FloatArray, place: tuple[int, int]) -> None:
        """Raise unless latitudes and longitudes, (n_rows, 2), are on the globe."""
        for j, column, (low, high) in zip(place, degrees.T, ((-90, 90), (-180, 360)), strict=True):
            beyond = column[(column < low) | (column > high)]
            if beyond.size:
                name = label(self.names, j)
                raise ValueError(f"{name} must be from {low} to {high} degrees, got {beyond[0]:g}")

    @cached_property
    def _numbers(self) -> list[dict[str | None, int]]:
        """Number of each category in its column."""
        return [{c: k for k, c in enumerate(own or ())} for own in self.categories]

    def _codes(self, text: Text, column: int) -> NDArray[np.intp]:
        """Return the number of each row's category among those of a column, −1 for one that is not known."""
        number = self._numbers[column]
        rest = len(number) if column in self.pooled else -1
        codes = [*(number.get(value, rest) for value in text.values), number.get(None, -1)]
        return np.array(codes, dtype=np.intp)[text.codes]

    # --- files

    def check(self) -> None:
        """Raise unless all parts fit together."""
        d = self.n_columns
        numbers = {j for j, own in enumerate(self.categories) if own is None}
        for own in self.categories:
            if own is not None and len(set(own)) != len(own):
                raise ValueError("categories of a column must differ")
        for what, given, allowed in (
            ("pooled", self.pooled, set(range(d)) - numbers),
            ("indicators", self.indicators, numbers),
            ("lacking", self.lacking, numbers),
            ("numbering", self.numbering, numbers),
            ("calendars", [calendar.column for calendar in self.calendars], numbers),
            ("effects", [effect.column for effect in self.effects], set(range(d)) - numbers),
            ("places", [j for place in self.places for j in place], numbers - {own.column for own in self.calendars}),
        ):
            if not set(given) <= allowed or len(set(given)) != len(given):
                raise ValueError(f"{what} must be different columns of their kind")
        shapes = {own.moments.shape[1] for own in self.effects}
        if len(shapes) > 1 or any(len(own.moments) != len(own.categories) + 1 for own in self.effects):
            raise ValueError("effects must be of the categories and of a new one, on the same functions")
        if self.gaps is not None and len(self.gaps.mean) != self.widths.sum():
            raise ValueError("gaps must be of the encoded columns")


def _require_categories(column: Column, own: Sequence[str | None], name: str) -> None:
    """Raise where numbers or dates come in a column of text, none of whose categories can be one."""
    fits = is_date if isinstance(column, Dates) else reads_as_number
    known = [c for c in own if c is not None]
    if known and not isinstance(column, Text) and not any(map(fits, known)) and not is_absent(column).all():
        raise TypeError(f"{name} must hold text, as in fit, got {_example(column, False)}")


def _example(column: Column, dates: bool) -> str:
    """Return a value of a column that is not missing, in words, rather one that is no number, or no date."""
    if isinstance(column, Text):
        fits = is_date if dates else reads_as_number
        return repr(next((v for v in column.values if not fits(v) and v.strip()), column.values[0]))
    kind = "the number " if isinstance(column, np.ndarray) else "the date "
    return kind + as_text(column).values[0]


def _plain(value: str) -> str:
    return " ".join(value.casefold().split())


def new_category(n_categories: int) -> float:
    """Return c, of w categories, where (c, …, c) stands for a new one: equally far from all.

    Given w effects, a further one is Student-t of w − 1 degrees of freedom: its variance is w/(w − 3) times the
    likeliest variance of effects, for few w taken to be 4 times. Squared distances, 2 between known categories, are
    larger by as much: (1 − c)² + (w − 1)c² = 2w/(w − 3).
    """
    w = max(n_categories, 1)
    return float((1 - np.sqrt(1 + w * (2 * w / max(w - 3, w / 4) - 1))) / w)


def unit_vectors(latitude: FloatArray, longitude: FloatArray) -> FloatArray:
    """Return places on the globe, in degrees, as unit vectors, (n_rows, 3)."""
    north, east = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.column_stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])


def what_differs(expected: Sequence[str], given: Sequence[str]) -> str:
    """Say in words which columns are missing and which are too many, or that their order is another."""
    lacking = [name for name in expected if name not in given]
    superfluous = [name for name in given if name not in expected]
    twice = [name for name in dict.fromkeys(given) if given.count(name) > 1]
    wrong = (("lacks", lacking), ("also has", superfluous), ("repeats", twice))
    found = [f"{what} {listed(names)}" for what, names in wrong if names]
    return f"it {' and '.join(found)}" if found else "it has them in another order; X[model.feature_names_in_] is right"


def listed(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    shown = ", ".join(map(repr, names[:MOST_NAMED]))
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else shown


def as_table(X: Any) -> Table:
    """Return anything as a table; numbers of an array are not copied."""
    if isinstance(X, Table):
        return X
    return Table.of_numbers(X) if is_matrix(X) else Table.of(X)


def is_matrix(X: Any) -> bool:
    """Whether X is a matrix of float64."""
    return isinstance(X, np.ndarray) and X.dtype == np.float64 and X.ndim == 2
