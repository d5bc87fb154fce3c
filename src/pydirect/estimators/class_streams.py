"""Rows with labels that pass by: label codes, problems of one class against the rest, all rows of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pydirect._progress import Progress
from pydirect._validation import FloatArray
from pydirect.estimators._classifier import require_classes
from pydirect.estimators.classification import ClassificationPlan, Labels, class_factors
from pydirect.statistics.gaussian import block_rows
from pydirect.streams.dask import is_dask
from pydirect.streams.rows import DerivedSource, Rows, Source, StreamError, chunks
from pydirect.streams.sources import as_source
from pydirect.tables.buffer import Codebook, LabelCodes


@dataclass
class LabelMass:
    """Total weight of the rows of each label code, and their number."""

    mass: FloatArray = field(default_factory=lambda: np.zeros(0))
    n_rows: int = 0

    def look(self, rows: Rows) -> None:
        """Count checked rows."""
        mass = np.bincount(rows.y[:, 0].astype(np.intp), rows.weight, minlength=len(self.mass)).astype(np.float64)
        self.mass = mass + np.pad(self.mass, (0, len(mass) - len(self.mass)))
        self.n_rows += len(rows)


class OneAgainstRest(DerivedSource):
    """A source of label codes as one of labels ±1, one column per problem, with weights times those of the classes.

    - `sign` (n_codes, n_problems): ±1.
    - `factor` (n_codes,): Factor of the rows' weights by code; zero leaves them out.
    - `one_dimensional`: Whether there is one problem.
    """

    def __init__(self, source: Source, sign: FloatArray, factor: FloatArray, one_dimensional: bool) -> None:
        super().__init__(source)
        self.sign, self.factor, self.one_dimensional = sign, factor, one_dimensional

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on."""
        row = start
        for rows in self.source.blocks(start):
            code = rows.y[:, 0]
            unknown = np.flatnonzero(code >= len(self.factor))
            if unknown.size:
                raise StreamError(f"{self.place(row + int(unknown[0]))}: a label that the first pass has not seen")
            row += len(rows)
            yield self.rows(rows)

    def rows(self, rows: Rows) -> Rows:
        """Return rows of codes as rows of labels ±1; missing ones stay missing."""
        missing = np.isnan(rows.y[:, 0])
        code = np.where(missing, 0.0, rows.y[:, 0]).astype(np.intp)
        weight = self.factor[code] * (1.0 if rows.weight is None else rows.weight)
        return Rows(rows.x, np.where(missing[:, None], np.nan, self.sign[code]), weight)


def one_against_rest(
    plan: ClassificationPlan, source: Source, labels: list[Any], mass: FloatArray
) -> tuple[Labels, OneAgainstRest]:
    """Return the classes of positive weight, and the source with labels ±1 of each function."""
    present = [code for code in range(len(mass)) if mass[code] > 0]
    try:
        present.sort(key=lambda code: labels[code])
    except TypeError:
        kinds = " and ".join(sorted({type(labels[code]).__name__ for code in present}))
        raise TypeError(f"y must hold labels that can be ordered, of one type, got {kinds}") from None
    classes = np.array([labels[code] for code in present])
    require_classes(classes)
    factors = class_factors(plan.class_weight, classes, mass[present])
    used, classes = np.array(present)[factors > 0], classes[factors > 0]
    require_classes(classes)
    factor, index = np.zeros(len(labels)), np.full(len(labels), -1.0)
    factor[used], index[used] = 1.0, np.arange(len(used))
    known = Labels.of(classes, mass[used], True, np.log(factors[factors > 0]))  # factors of the odds, for the end
    return known, OneAgainstRest(source, known.signs(index), factor, len(used) == 2)


def label_source(X: Any, y: Any, sample_weight: Any, text: Codebook | None) -> tuple[Source, LabelCodes]:
    """Return a source of label codes that can be read repeatedly, and the labels of the codes read so far."""
    if is_dask(X):
        raise TypeError("X must not be a Dask collection, which only regressors sum: give a path or blocks")
    source = as_source(X, y, sample_weight, LabelCodes(), text)
    codes = getattr(source, "labels", None)
    if codes is None:
        raise TypeError("X must be a source of labels: give it LabelCodes")
    if not source.repeatable:
        raise ValueError("X must be readable many times: a list of blocks, or a function that returns an iterator")
    return source, codes


def all_rows(
    problems: OneAgainstRest, n_weights: int, n_rows: int, drop_missing: bool, progress: Progress
) -> Callable[[], Iterator[Rows]]:
    """Return what passes over all rows, in blocks."""

    def passes() -> Iterator[Rows]:
        n_seen, end = 0, 0
        with progress.stream(problems.n_rows) as report:
            for end, rows in chunks(problems, 0, block_rows(n_weights, np.float64), drop_missing):
                n_seen += len(rows)
                report(end)
                yield rows
        if n_seen != n_rows:
            where = problems.place(max(end - 1, 0))
            raise StreamError(f"{where}: the data end after {n_seen:,} rows, in the first pass {n_rows:,}")

    return passes
