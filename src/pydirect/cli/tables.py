"""A table of the command line: named columns of numbers, booleans and text, and what is wrong with them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pydirect.cli.common import TableError
from pydirect.cli.table_values import as_objects, field_numbers, is_missing, is_number, texts_among_numbers
from pydirect.tables.table import key_of

# Texts are not taken for categories if most are numbers, and more different ones than this.
_FEW_NUMBERS = 10


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of equal length under their names, as estimators take them from data frames."""

    values: dict[str, np.ndarray]
    shape: tuple[int, int]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.values)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[name]

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, chosen: np.ndarray | slice) -> Frame:
        """Return some of the rows."""
        values = {name: column[chosen] for name, column in self.values.items()}
        return Frame(values, (len(next(iter(values.values()))), len(values)))


@dataclass(frozen=True, eq=False)
class InputTable:
    """Named columns of equal length, in the order of the file: float64, or text as objects with None if missing.

    `unusable` columns hold anything else, `booleans` are those of numbers that were read as true and false.
    """

    columns: dict[str, np.ndarray]
    unusable: dict[str, str]
    n_rows: int
    booleans: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, values: np.ndarray | str) -> None:
        """Add a column of numbers, booleans or texts, None where missing, or a description of an unusable one."""
        if isinstance(values, str):
            self.unusable[name] = values
            return
        if values.dtype == object and isinstance(next((value for value in values if value is not None), None), bool):
            self.booleans.add(name)
            values = values.astype(np.float64)  # None becomes NaN
        self.columns[name] = values

    @property
    def names(self) -> list[str]:
        """Names of all columns, unusable ones last."""
        return [*self.columns, *self.unusable]

    def is_text(self, name: str) -> bool:
        """Whether a column holds text."""
        return name in self.columns and self.columns[name].dtype == object

    def is_mostly_numbers(self, name: str) -> bool:
        """Whether a column of text is one of numbers with slips: most rows hold numbers, more than a few different."""
        texts = [text for text in self.columns[name].tolist() if text is not None]
        numbers = [text for text in texts if is_number(text)] if self.is_text(name) else []
        return 2 * len(numbers) > len(texts) and len(set(numbers)) > _FEW_NUMBERS

    def missing(self, name: str) -> np.ndarray:
        """Return a mask of a column's missing values."""
        return is_missing(self.columns[name])

    def numbers(self, name: str) -> np.ndarray:
        """Return a column in which `wrong_numbers` finds nothing as numbers, NaN where missing."""
        values = self.columns[name]
        if values.dtype != object:
            return values
        numbers = field_numbers(["" if text is None else text for text in values.tolist()])
        assert numbers is not None
        return numbers

    def make_text(self, name: str) -> None:
        """Turn numbers into the texts by which they are known as categories."""
        if name in self.columns and not self.is_text(name):
            values = self.columns[name].tolist()
            self.columns[name] = as_objects([None if value != value else key_of(value) for value in values])

    def frame(self, names: Iterable[str]) -> Frame:
        """Return some columns."""
        values = {name: self.columns[name] for name in names}
        return Frame(values, (self.n_rows, len(values)))

    def rows(self, chosen: np.ndarray) -> InputTable:
        """Return some of the rows."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        n_rows = int(chosen.sum()) if chosen.dtype == bool else len(chosen)
        return InputTable(columns, self.unusable, n_rows, self.booleans, self.notes)

    # --- what is wrong

    def require(self, names: Iterable[str]) -> None:
        """Raise TableError unless the columns exist; all absent ones are named."""
        present = set(self.names)
        absent = [name for name in names if name not in present]
        if absent:
            word = "column" if len(absent) == 1 else "columns"
            raise TableError(f"no {word} {listed(absent)} in the data (it has {listed(self.names)})")

    def wrong_values(self, name: str) -> list[str]:
        """Return what keeps a column from being used, if anything; missing values do not."""
        if name in self.unusable:
            return [f"column {name!r} holds {self.unusable[name]}"]
        values = self.columns[name]
        if values.dtype == object:
            return []
        return self._wrong(name, np.isinf(values), "expected finite numbers")

    def wrong_numbers(self, name: str) -> list[str]:
        """Return what keeps a column from being used as numbers, if anything; missing values do not."""
        if not self.is_text(name):
            return self.wrong_values(name)
        wrong = texts_among_numbers(self.columns[name])
        hint = (
            f"; --missing-value {shlex.quote(self.columns[name][np.argmax(wrong)] or '')} takes it for a missing value"
        )
        return [problem + hint for problem in self._wrong(name, wrong, "expected numbers")]

    def missing_values(self, name: str) -> list[str]:
        """Return where a column lacks values, if anywhere."""
        missing = self.missing(name)
        return [f"column {name!r}: missing value in {place(missing)}"] if missing.any() else []

    def _wrong(self, name: str, wrong: np.ndarray, expected: str) -> list[str]:
        if not wrong.any():
            return []
        value = self.columns[name].tolist()[int(np.argmax(wrong))]
        return [f"column {name!r}: {expected}, got {value!r} in {place(wrong)}"]


def place(mask: np.ndarray) -> str:
    """Return the first row of a mask in words, and the number of such rows if there are more."""
    row, count = int(np.argmax(mask)) + 1, int(mask.sum())
    return f"data row {row}" + (f" ({count} such rows)" if count > 1 else "")


def check_names(names: list[str], path: str) -> None:
    """Raise TableError unless the names of columns are distinct."""
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise TableError(f"{path}: column name{'s' if len(twice) > 1 else ''} {listed(twice)} occurs more than once")


def listed(names: Iterable[str], limit: int = 10) -> str:
    """Return a list of names in quotation marks, cut after `limit` names."""
    names = list(names)
    shown = ", ".join(map(repr, names[:limit]))
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
