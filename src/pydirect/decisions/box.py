"""Search of a box of numbers and categories for the best values of expensive functions: what to try next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp
from sklearn.tree import DecisionTreeClassifier

from pydirect._validation import FloatArray
from pydirect.decisions.acquisition import LOG_ROOT_TWO_PI, log_expected_improvement, log_probability_of_feasibility
from pydirect.decisions.surrogate import LearnedFunction, PreparedSurrogate, Signed, StandardisedTargets

# Columns of the surrogate have variance one where rows are uniform in the box; categories are as far apart as ends.
UNIT = np.sqrt(12.0)
INDICATOR = UNIT / np.sqrt(2.0)
# Numbers with no more levels than these are searched level by level, others as if they were continuous.
FEW_LEVELS = 24


@dataclass(frozen=True)
class Column:
    """One column of the box: numbers in [0, 1], with ascending levels if they have such, or categories 0, 1, …."""

    levels: FloatArray | None = None
    is_category: bool = False

    @property
    def is_searched_by_level(self) -> bool:
        """Whether levels are compared with each other, instead of following a gradient."""
        return self.levels is not None and (self.is_category or len(self.levels) <= FEW_LEVELS)

    def snapped(self, u: FloatArray) -> FloatArray:
        """Return the nearest levels; NaN stays NaN."""
        if self.levels is None:
            return np.clip(u, 0.0, 1.0)
        middles = 0.5 * (self.levels[1:] + self.levels[:-1])
        return np.where(np.isnan(u), np.nan, self.levels[np.searchsorted(middles, u)])

    def at(self, uniform: FloatArray) -> FloatArray:
        """Return values at uniform numbers in [0, 1)."""
        if self.is_category:
            assert self.levels is not None
            return self.levels[(uniform * len(self.levels)).astype(np.intp)]
        return self.snapped(uniform)


@dataclass(frozen=True)
class Box:
    """The product of columns. Rows, (n_rows, n_columns), hold NaN where a column does not apply."""

    columns: tuple[Column, ...]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @cached_property
    def widths(self) -> NDArray[np.intp]:
        """Number of the surrogate's inputs for each column: one for numbers, one for each category; (n_columns,)."""
        return np.array([len(c.levels) if c.is_category and c.levels is not None else 1 for c in self.columns])

    @cached_property
    def inputs_of(self) -> NDArray[np.intp]:
        """First input of each column, (n_columns,)."""
        return np.cumsum(self.widths) - self.widths

    @cached_property
    def tied(self) -> NDArray[np.intp]:
        """Column of each input, (n_inputs,): its indicators share a length-scale."""
        return np.repeat(np.arange(self.n_columns), self.widths)

    @cached_property
    def continuous(self) -> NDArray[np.intp]:
        """Columns that follow a gradient."""
        return np.array([j for j, c in enumerate(self.columns) if not c.is_searched_by_level], dtype=np.intp)

    def at(self, uniform: FloatArray) -> FloatArray:
        """Return rows at uniform numbers, (n_rows, n_columns)."""
        return np.stack([c.at(uniform[:, j]) for j, c in enumerate(self.columns)], axis=1)

    def snapped(self, rows: FloatArray) -> FloatArray:
        """Return the nearest rows that exist."""
        return np.stack([c.snapped(rows[:, j]) for j, c in enumerate(self.columns)], axis=1)

    def inputs(self, rows: FloatArray) -> FloatArray:
        """Return inputs of the surrogate, (n_rows, n_inputs); what does not apply is in the middle of its range."""
        out = np.zeros((len(rows), len(self.tied)))
        for j, (column, first) in enumerate(zip(self.columns, self.inputs_of, strict=True)):
            applies = np.flatnonzero(~np.isnan(rows[:, j]))
            if column.is_category:
                out[applies, first + rows[applies, j].astype(np.intp)] = INDICATOR
            else:
                out[applies, first] = UNIT * (rows[applies, j] - 0.5)
        return out


# Candidates that are compared first: uniform ones, and neighbours of good rows at each of several distances.
N_UNIFORM = 512
N_NEIGHBOURS = 128
DISTANCES = (0.1, 0.01, 0.001)
# Candidates from which the function is ascended, and rounds of gradients and then levels.
N_STARTS = 4
N_ROUNDS = 6
MAX_ITER = 40
LEAST_GAIN = 1e-4


def maximise(
    acquisition: Criterion,
    box: Box,
    good: FloatArray,
    rng: np.random.Generator,
    applied: Callable[[FloatArray], FloatArray] = lambda rows: rows,
) -> FloatArray:
    """Return a row where an acquisition function is large, (n_columns,)."""

    def value(rows: FloatArray) -> FloatArray:
        return acquisition.value(box.inputs(applied(rows)))

    rows = candidates(box, good, rng)
    values = value(rows)
    order = np.argsort(-values, kind="stable")
    chosen = spread_out(box, rows, order, N_STARTS)
    best, best_value = rows[order[0]], values[order[0]]
    for row in rows[chosen]:
        row, row_value = ascend(acquisition, box, row, value, applied)
        if row_value > best_value:
            best, best_value = row, row_value
    return best


def candidates(box: Box, good: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return uniform rows, good rows, and neighbours of these in some of their columns."""
    parts = [box.at(rng.random((N_UNIFORM, box.n_columns))), good]
    by_level = np.array([column.is_searched_by_level for column in box.columns])
    share = np.where(by_level, 1 / box.n_columns, max(0.5, min(1.0, 2 / box.n_columns)))
    for distance in DISTANCES if len(good) else ():
        near = good[rng.integers(len(good), size=N_NEIGHBOURS)]
        step = np.clip(near + distance * rng.standard_normal(near.shape), 0.0, 1.0)
        other = np.where(by_level, box.at(rng.random(near.shape)), box.snapped(step))
        parts.append(np.where(rng.random(near.shape) < share, other, near))
    return np.concatenate(parts)


def spread_out(box: Box, rows: FloatArray, order: np.ndarray, n: int) -> list[int]:
    """Return the best row, and next ones that are not its close neighbours, in order."""
    chosen: list[int] = []
    for i in order[: 40 * n]:
        if all(np.abs(rows[i] - rows[j]).max() > 0.05 for j in chosen):
            chosen.append(int(i))
        if len(chosen) == n:
            break
    return chosen


def ascend(
    acquisition: Criterion,
    box: Box,
    row: FloatArray,
    value: Callable[[FloatArray], FloatArray],
    applied: Callable[[FloatArray], FloatArray],
) -> tuple[FloatArray, float]:
    """Return the row, and its value, where gradients and comparisons of levels lead from a row."""
    best = float(value(row[None])[0])
    for _ in range(N_ROUNDS):
        before = best
        moved = box.snapped(ascend_gradient(acquisition, box, row, applied)[None])
        rows = np.concatenate([moved, other_levels(box, row), other_levels(box, moved[0])])
        values = value(rows)
        if values.max() > best:
            row, best = rows[int(np.argmax(values))], float(values.max())
        if best - before < LEAST_GAIN:
            break
    return row, best


def other_levels(box: Box, row: FloatArray) -> FloatArray:
    """Return all rows that differ from a row in one column that is searched by level."""
    parts = [np.empty((0, box.n_columns))]
    for j, column in enumerate(box.columns):
        if column.levels is not None and column.is_searched_by_level:
            part = np.repeat(row[None], len(column.levels), axis=0)
            part[:, j] = column.levels
            parts.append(part[column.levels != row[j]])
    return np.concatenate(parts)


def ascend_gradient(
    acquisition: Criterion, box: Box, row: FloatArray, applied: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return where L-BFGS leads from a row in the continuous columns that apply."""
    active = applied(row[None])
    free = box.continuous[~np.isnan(active[0, box.continuous])]
    if not len(free):
        return row

    def negative(u: FloatArray) -> tuple[float, FloatArray]:
        active[0, free] = u
        value, gradient = acquisition.gradient(box.inputs(active))
        return -float(value[0]), -UNIT * gradient[0, box.inputs_of[free]]

    bounds, options = [(0.0, 1.0)] * len(free), {"maxiter": MAX_ITER}
    found = minimize(negative, row[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    moved = row.copy()
    moved[free] = found.x
    return moved


# --- criteria

# Nodes on [0, 1] of integrals over the improvement.
NODES, NODE_WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(24))
NODES = NODES + 0.5
Slopes = Sequence[tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Criterion:
    """The sum of terms, as a function of the surrogates' inputs."""

    terms: Sequence[Term]

    def value(self, inputs: FloatArray) -> FloatArray:
        """Return values, (n_rows,)."""
        return np.sum([term.value([s.moments(inputs) for s in term.surrogates]) for term in self.terms], axis=0)

    def gradient(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values, (n_rows,), and gradients, (n_rows, n_inputs)."""
        value, gradient = np.zeros(len(inputs)), np.zeros(inputs.shape)
        for term in self.terms:
            found = [s.gradients(inputs) for s in term.surrogates]
            moments = [(mean, std) for mean, std, _, _ in found]
            value += term.value(moments)
            for (by_mean, by_std), (_, _, mean, std) in zip(term.slopes(moments), found, strict=True):
                gradient += by_mean[:, None] * mean + by_std[:, None] * std
        return value, gradient


@dataclass(frozen=True)
class Improvement:
    """log E max(f − best, 0)."""

    surrogates: Sequence[PreparedSurrogate]
    best: float

    def value(self, moments: Slopes) -> FloatArray:
        """Return log expected improvement."""
        ((mean, std),) = moments
        return log_expected_improvement(mean, std, self.best)

    def slopes(self, moments: Slopes) -> Slopes:
        """Return its derivatives, Φ(z)/EI and φ(z)/EI with z = (mean − best)/std."""
        ((mean, std),) = moments
        z, log_ei = (mean - self.best) / std, self.value(moments)
        return [(np.exp(log_ndtr(z) - log_ei), np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ei))]


@dataclass(frozen=True)
class Feasibility:
    """log P(f ≤ threshold)."""

    surrogates: Sequence[PreparedSurrogate]
    threshold: float

    def value(self, moments: Slopes) -> FloatArray:
        """Return the log probability."""
        ((mean, std),) = moments
        return log_probability_of_feasibility(mean, std, upper=self.threshold)

    def slopes(self, moments: Slopes) -> Slopes:
        """Return its derivatives."""
        ((mean, std),) = moments
        z = (self.threshold - mean) / std
        hazard = np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ndtr(z)) / std
        return [(-hazard, -z * hazard)]


@dataclass(frozen=True)
class ChebyshevImprovement:
    """log E max(min_k u_k − best, 0), u_k = (f_k − reference_k)/direction_k, of independent objectives.

    The expectation is ∫ Π P(u_k > t) dt from the best on. Directions drawn uniformly from the sphere make the expected
    improvement of min_k u_k one of the hypervolume (Golovin & Zhang 2020, Random hypervolume scalarizations).
    """

    surrogates: Sequence[PreparedSurrogate]
    reference: FloatArray
    direction: FloatArray
    best: float

    def value(self, moments: Slopes) -> FloatArray:
        """Return the log expectation."""
        return self._integral(moments)[0]

    def slopes(self, moments: Slopes) -> Slopes:
        """Return its derivatives."""
        value, log_integrand, z, std = self._integral(moments)
        share = np.exp(log_integrand - value[:, None])
        hazard = share * np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ndtr(z))
        by_mean = hazard.sum(axis=-1) / std
        by_std = -(hazard * z).sum(axis=-1) / std
        return [(m / d, s / d) for m, s, d in zip(by_mean, by_std, self.direction, strict=True)]

    def _integral(self, moments: Slopes) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the log integral, (n_rows,), log integrand where it decays, (n_rows, n_nodes), z and deviations."""
        mean, std = np.stack(moments, axis=1)
        mean = (mean - self.reference[:, None]) / self.direction[:, None]
        std = std / self.direction[:, None]
        # The integrand is one up to here, decays at this rate from here on, and ends 7 deviations beyond any mean.
        begin = np.maximum((mean - 7 * std).min(axis=0), self.best)
        z = (mean - begin) / std
        rate = (np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ndtr(z)) / std).sum(axis=0)
        length = np.minimum((np.maximum(mean - begin, 0.0) + 7 * std).min(axis=0), 30 / np.maximum(rate, 1e-6))
        t = begin[:, None] + length[:, None] * NODES
        z = (mean[..., None] - t) / std[..., None]
        log_integrand = log_ndtr(z).sum(axis=0) + np.log(length[:, None] * NODE_WEIGHTS)
        with np.errstate(divide="ignore"):
            value = np.logaddexp(np.log(begin - self.best), logsumexp(log_integrand, axis=1))
        return value, log_integrand, z, std


# Rows among which the incumbent is looked for: the best by their own values, which noise may flatter.
N_LEADING = 200
# Rows near which candidates are.
N_GOOD = 5
# Extent of the objectives by which the reference lies below the worst of the front.
MARGIN = 0.1


Term = Improvement | Feasibility | ChebyshevImprovement


class BoxSearch:
    """Bayesian optimisation in a box: objectives are maximised where all constraints are at most zero.

    One objective: expected improvement on the best posterior mean. Several: of a random direction's scalarisation, a
    new one each time. Times the probabilities that constraints hold and that the evaluation does not fail.
    """

    def __init__(self, box: Box, n_objectives: int, n_constraints: int, rng: np.random.Generator) -> None:
        self.box, self.n_objectives = box, n_objectives
        self._rng = rng
        kinds = [StandardisedTargets] * n_objectives + [Signed] * (n_constraints + 1)
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
        """Add rows that were tried."""
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
