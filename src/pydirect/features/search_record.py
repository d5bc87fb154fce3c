"""What a search of hyperparameters has tried, kept with the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from pydirect._validation import FloatArray, as_count
from pydirect.features.kernel import SMOOTHNESS
from pydirect.features.screen import RELEVANT
from pydirect.persistence.fields import Arrays, Header, build, require_array, require_type

# Nats a row by which searches on different subsets agree, and from which users are warned.
AGREEMENT = 0.02
DISAGREEMENT = 0.1


class HyperparameterSearchWarning(UserWarning):
    """Searches of hyperparameters on different subsets of the rows have ended far from each other."""


@dataclass(frozen=True, eq=False, repr=False)
class HyperparameterSearch:
    """Record of a search of hyperparameters; all values are logarithms, the largest is the best.

    Attributes
    ----------
    columns : ndarray of int, shape (n_columns,)
        Columns of X that were screened: those that are not constant.
    scores : ndarray of shape (n_columns,)
        Effect of each on the targets, alone or in a pair, as a normal deviate; zeros if there were too few rows.
    starts : tuple of str
        "long" and "short" length-scales, and "screened": short ones of the relevant columns only.
    start_values : ndarray of shape (n_subsets, n_starts)
        Posterior density of the hyperparameters to which each start has led on the rows of the race.
    smoothness_values : ndarray of shape (n_subsets, 3)
        The same with a kernel of smoothness 1/2, 3/2, 5/2, from the best start; (n_subsets, 0) if only one was tried.
    evidences : ndarray of shape (n_results,)
        Evidence of all rows for the result on each subset and, where they share a smoothness, their mean; empty if
        there was one subset.
    smoothness : float
        Of the kernel that was chosen.
    n_rows : tuple of int
        Rows of the race, of the search that followed, and all distinct rows.
    n_evaluations : int
        Of the marginal likelihood.
    """

    columns: np.ndarray
    scores: FloatArray
    starts: tuple[str, ...]
    start_values: FloatArray
    smoothness_values: FloatArray
    evidences: FloatArray
    smoothness: float
    n_rows: tuple[int, int, int]
    n_evaluations: int

    @property
    def relevant(self) -> np.ndarray:
        """Columns of X that the screen has found relevant."""
        found: np.ndarray = self.columns[self.scores > RELEVANT]
        return found

    @property
    def n_subsets(self) -> int:
        """Number of subsets of the rows that were searched."""
        return len(self.start_values)

    @property
    def disagreement(self) -> float:
        """Nats a row by which the evidence of all rows differs between the best subset and the next; 0 for one."""
        if self.n_subsets < 2:
            return 0.0
        first, second = np.sort(self.evidences[: self.n_subsets])[:-3:-1]
        return float(first - second) / self.n_rows[2]

    @property
    def agreed(self) -> bool:
        """Whether the best result was found on two subsets, or there was only one."""
        return self.disagreement < AGREEMENT

    def __repr__(self) -> str:
        few, many, n = self.n_rows
        best = int(self.start_values.max(axis=0).argmax())
        found = ", ".join(map(str, self.relevant[:12])) + (", …" if len(self.relevant) > 12 else "")
        begun = ", ".join(f"{s} {v:.1f}" for s, v in zip(self.starts, self.start_values.max(axis=0), strict=True))
        lines = [
            f"HyperparameterSearch: {self.n_evaluations} evaluations on {few} and {many} of {n} rows",
            f"  columns screened in: {found or 'none'}",
            f"  starts: {begun}; best: {self.starts[best]}",
        ]
        if self.smoothness_values.size:
            best_of = zip(SMOOTHNESS, self.smoothness_values.max(axis=0), strict=True)
            tried = " ".join(f"{v:g}: {e:.1f}" for v, e in best_of)
            lines.append(f"  smoothness: {tried}; chosen: {self.smoothness:g} (1.5 unless another clearly gains)")
        if self.n_subsets > 1:
            values = ", ".join(f"{v:.1f}" for v in self.evidences)
            how = "agree" if self.agreed else f"differ by {self.disagreement:.2g} nats a row"
            lines.append(f"  evidence of all rows for {self.n_subsets} subsets: {values}; the best two {how}")
        return "\n".join(lines)

    @classmethod
    def from_fields(cls, header: Header, arrays: Arrays, name: str) -> Self:
        """Rebuild from what `pydirect.persistence.fields.Writer.fields` has written, and check it.

        Parameters
        ----------
        header : dict
            Header of the file.
        arrays : dict of str to ndarray
            Arrays of the file, by name.
        name : str
            Name under which the fields were written.
        """
        for key, kind in (("starts", str), ("n_rows", int)):
            require_type(header[key], key, list, tuple)
            for item in header[key]:
                require_type(item, key, kind)
        lists = {"starts": tuple(header["starts"]), "n_rows": tuple(header["n_rows"])}
        record: Self = build(cls, header | lists, arrays, name)
        record._check()
        return record

    def _check(self) -> None:
        """Raise unless parts fit together."""
        require_array(self.scores, "scores", len(self.columns))
        n_subsets = len(require_array(self.start_values, "start_values", "n_subsets", len(self.starts)))
        n_tried = len(SMOOTHNESS) if np.size(self.smoothness_values) else 0
        require_array(self.smoothness_values, "smoothness_values", n_subsets, n_tried)
        if n_subsets > 1:
            require_array(self.evidences, "evidences", "n_results")
        if len(self.evidences) not in ((0,) if n_subsets == 1 else (n_subsets, n_subsets + 1)):
            raise ValueError(f"evidences must be of {n_subsets} subsets, got {len(self.evidences)}")
        if self.columns.dtype.kind != "i" or self.columns.ndim != 1 or not self.starts or len(self.n_rows) != 3:
            raise ValueError("search must name columns, starts and three numbers of rows")
        if self.smoothness not in SMOOTHNESS:
            raise ValueError(f"smoothness must be one of {SMOOTHNESS}, got {self.smoothness}")
        as_count(self.n_evaluations, "n_evaluations", 0)
