"""Search of a box for the best values of expensive functions: what to try next, given what was tried."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from pydirect._validation import FloatArray
from pydirect.decisions.ascent import maximise
from pydirect.decisions.criteria import ChebyshevImprovement, Criterion, Feasibility, Improvement, Term
from pydirect.decisions.learned import LearnedFunction, Signed, Standardised
from pydirect.decisions.space import Box
from pydirect.decisions.surrogate import PreparedSurrogate

# Rows among which the incumbent is looked for: the best by their own values, which noise may flatter.
N_LEADING = 200
# Rows near which candidates are.
N_GOOD = 5
# Extent of the objectives by which the reference lies below the worst of the front.
MARGIN = 0.1


class BoxSearch:
    """Bayesian optimisation in a box: objectives are maximised where all constraints are at most zero.

    One objective: expected improvement on the best posterior mean. Several: of a random direction's scalarisation, a
    new one each time. Times the probabilities that constraints hold and that the evaluation does not fail.

    Parameters
    ----------
    box : Box
    n_objectives, n_constraints : int
    rng : numpy.random.Generator
    """

    def __init__(self, box: Box, n_objectives: int, n_constraints: int, rng: np.random.Generator) -> None:
        self.box, self.n_objectives = box, n_objectives
        self._rng = rng
        kinds = [Standardised] * n_objectives + [Signed] * (n_constraints + 1)
        self._functions = [LearnedFunction(box.tied, kind, rng) for kind in kinds]
        self._rows = np.empty((0, box.n_columns))
        self._outcomes = np.empty((0, n_objectives + n_constraints))
        self._applicability = Applicability([])
        self._next_patterns = 0

    @property
    def n_known(self) -> int:
        """Number of rows whose objectives are known."""
        return min(function.n_rows for function in self._functions[: self.n_objectives])

    def reseed(self, rng: np.random.Generator) -> None:
        """Draw from another generator from now on."""
        self._rng = rng
        for function in self._functions:
            function.rng = rng

    def tell(self, rows: FloatArray, outcomes: FloatArray, failed: NDArray[np.bool_]) -> None:
        """Add rows that were tried.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_columns)
            NaN where a column does not apply.
        outcomes : ndarray of shape (n_rows, n_objectives + n_constraints)
            Objectives, then constraints; NaN is unknown.
        failed : ndarray of bool, shape (n_rows,)
            Rows that could not be evaluated.
        """
        inputs = self.box.inputs(rows)
        labels = np.where(failed, 1.0, -1.0)
        for function, values in zip(self._functions, [*outcomes.T, labels], strict=True):
            function.add(inputs, values)
        self._rows, self._outcomes = np.vstack([self._rows, rows]), np.vstack([self._outcomes, outcomes])

    def ask(self, pending: FloatArray) -> FloatArray:
        """Return the row to try next, (n_columns,), complete, while others are `pending`, (n_pending, n_columns)."""
        if len(self._rows) >= self._next_patterns:
            self._applicability = Applicability.of(self._rows)
            self._next_patterns = len(self._rows) + 1 + len(self._rows) // 10
        in_use = self._functions if (self._functions[-1].values > 0).any() else self._functions[:-1]
        surrogates = [function.surrogate() for function in in_use]
        if len(pending):
            inputs = self.box.inputs(pending)
            surrogates = [surrogate.copy().believe(inputs, self._rng) for surrogate in surrogates]
        prepared = [surrogate.prepared() for surrogate in surrogates]
        terms: list[Term] = []
        for function, own in zip(in_use[self.n_objectives :], prepared[self.n_objectives :], strict=True):
            assert isinstance(function.units, Signed)
            terms.append(Feasibility([own], function.units.threshold))
        improvement, good = self._improvement(prepared[: self.n_objectives])
        if improvement is not None:
            terms.append(improvement)
        if not terms:
            return self.box.at(self._rng.random((1, self.box.n_columns)))[0]
        return maximise(Criterion(terms), self.box, good, self._rng, self._applicability.applied)

    def _feasible(self) -> NDArray[np.intp]:
        """Return the rows with known objectives for which all constraints hold."""
        known = ~np.isnan(self._outcomes[:, : self.n_objectives]).any(axis=1)
        return np.flatnonzero(known & (self._outcomes[:, self.n_objectives :] <= 0).all(axis=1))

    def _improvement(self, prepared: Sequence[PreparedSurrogate]) -> tuple[Term | None, FloatArray]:
        """Return the term of the objectives, None while nothing is feasible, and rows near which to look."""
        rows = self._feasible()
        if not len(rows):
            violation = np.maximum(self._outcomes[:, self.n_objectives :], 0.0).sum(axis=1)
            nearest = np.argsort(np.nan_to_num(violation, nan=np.inf), kind="stable")[:N_GOOD]
            return None, self._complete(nearest)
        values = np.stack(
            [f.units(self._outcomes[rows, k]) for k, f in enumerate(self._functions[: self.n_objectives])]
        )
        if self.n_objectives == 1:
            reference, direction = np.zeros(1), np.ones(1)
        else:
            direction = np.abs(self._rng.standard_normal(self.n_objectives))
            direction /= np.linalg.norm(direction)
            reference = values.min(axis=1) - MARGIN * np.ptp(values, axis=1)
        scores = ((values - reference[:, None]) / direction[:, None]).min(axis=0)
        rows = rows[np.argsort(-scores, kind="stable")[:N_LEADING]]
        inputs = self.box.inputs(self._rows[rows])
        means = np.stack([own.moments(inputs)[0] for own in prepared])
        scores = ((means - reference[:, None]) / direction[:, None]).min(axis=0)
        good = self._complete(rows[np.argsort(-scores, kind="stable")[:N_GOOD]])
        best = float(scores.max())
        if self.n_objectives == 1:
            return Improvement(prepared, best), good
        return ChebyshevImprovement(prepared, reference, direction, best), good

    def _complete(self, index: NDArray[np.intp]) -> FloatArray:
        """Return rows with what does not apply filled in by chance."""
        rows = self._rows[index]
        return np.where(np.isnan(rows), self.box.at(self._rng.random(rows.shape)), rows)


class Applicability:
    """Which columns apply to a row, as told by its other columns: a tree for each column that does not always apply.

    Columns that apply to fewer rows depend on those that apply to more, and are taken in this order.
    """

    def __init__(self, trees: Sequence[tuple[int, NDArray[np.intp], DecisionTreeClassifier]]) -> None:
        self._trees = trees

    @classmethod
    def of(cls, rows: FloatArray) -> Applicability:
        """Learn from rows, with NaN where a column did not apply."""
        applies = ~np.isnan(rows)
        counts = applies.sum(axis=0)
        trees = []
        for j in np.argsort(-counts, kind="stable"):
            others = np.flatnonzero(counts > counts[j])
            if 0 < counts[j] < len(rows) and len(others):
                tree = DecisionTreeClassifier(random_state=0).fit(_marked(rows[:, others]), applies[:, j])
                trees.append((int(j), others, tree))
        return cls(trees)

    def applied(self, rows: FloatArray) -> FloatArray:
        """Return complete rows with NaN where a column does not apply."""
        rows = rows.copy()
        for j, others, tree in self._trees:
            shares = tree.tree_.value[tree.tree_.apply(_marked(rows[:, others])), 0]  # without checks of a few rows
            rows[shares[:, 0] > shares[:, 1], j] = np.nan
        return rows


def _marked(rows: FloatArray) -> NDArray[np.float32]:
    """Return rows as trees take them, with −1 where a column does not apply."""
    return np.where(np.isnan(rows), -1.0, rows).astype(np.float32)
