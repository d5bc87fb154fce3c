"""Search of a box of numbers and categories for the best values of expensive functions: what to try next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp
from sklearn.tree import DecisionTreeClassifier

from pydirect._validation import FloatArray
from pydirect.decisions.acquisition import LOG_ROOT_TWO_PI, log_expected_improvement
from pydirect.decisions.surrogate import LearnedFunction, Surrogate

# Columns of the surrogate have variance one where rows are uniform in the box; categories are as far apart as ends.
UNIT = np.sqrt(12.0)
INDICATOR = UNIT / np.sqrt(2.0)
# Numbers with no more levels than these are searched level by level, others as if they were continuous.
FEW_LEVELS = 24


class Box:
    """The product of columns [0, 1]. Rows, (n_rows, n_columns), hold NaN where a column does not apply.

    - `levels`: For each column its ascending values, None where it is continuous.
    - `is_category`: For each column, whether its levels have no order.
    - `tied`, (n_inputs,): Column of each input of the surrogate: one for numbers, one for each category; they share a
      length-scale.
    """

    def __init__(self, levels: Sequence[FloatArray | None], is_category: Sequence[bool]) -> None:
        self.is_category, self.n_columns = is_category, len(levels)
        self.levels = {j: own for j, own in enumerate(levels) if own is not None}
        self.compared = {j: own for j, own in self.levels.items() if is_category[j] or len(own) <= FEW_LEVELS}
        widths = [len(self.levels[j]) if category else 1 for j, category in enumerate(is_category)]
        self.tied, self.first_input = np.repeat(np.arange(self.n_columns), widths), np.cumsum(widths) - widths

    def snapped(self, rows: FloatArray) -> FloatArray:
        """Return the nearest rows that exist."""
        found = np.clip(rows, 0.0, 1.0)
        for j, own in self.levels.items():
            nearest = own[np.searchsorted(0.5 * (own[1:] + own[:-1]), rows[:, j])]
            found[:, j] = np.where(np.isnan(rows[:, j]), np.nan, nearest)
        return found

    def inputs(self, rows: FloatArray) -> FloatArray:
        """Return inputs of the surrogate, (n_rows, n_inputs); what does not apply is in the middle of its range."""
        out = np.zeros((len(rows), len(self.tied)))
        for j, first in enumerate(self.first_input):
            if self.is_category[j]:
                out[:, first : first + len(self.levels[j])] = INDICATOR * (rows[:, j, None] == self.levels[j])
            else:
                out[:, first] = np.nan_to_num(UNIT * (rows[:, j] - 0.5))
        return out


# Candidates that are compared first: uniform ones, and neighbours of good rows at each of several distances.
N_UNIFORM = 512
N_NEIGHBOURS = 128
DISTANCES = (0.1, 0.01, 0.001)
# Candidates from which the function is ascended, apart by more than this, and rounds of gradients and then levels.
N_STARTS, APART = 4, 0.05
N_ROUNDS = 6
MAX_ITER = 40
LEAST_GAIN = 1e-4
# Columns, the other columns that tell whether they apply, and how.
Trees = list[tuple[int, NDArray[np.intp], Any]]


def maximise(acquisition: Criterion, box: Box, good: FloatArray, rng: np.random.Generator, trees: Trees) -> FloatArray:
    """Return a row where a function is large, (n_columns,): the best of several to which ascents lead.

    - `good`: Rows near which to look.
    - `trees`: Which columns apply to a row.
    """

    def value(rows: FloatArray) -> FloatArray:
        return acquisition.value(box.inputs(applied(rows, trees)))

    rows = candidates(box, good, rng)
    values = value(rows)
    starts: list[int] = []
    for i in np.argsort(-values, kind="stable")[: 40 * N_STARTS]:
        if len(starts) < N_STARTS and all(np.abs(rows[i] - rows[j]).max() > APART for j in starts):
            starts.append(int(i))
    ends = []
    for row, best in zip(rows[starts], values[starts], strict=True):
        for _ in range(N_ROUNDS):
            before, tried = best, neighbours(acquisition, box, row, trees)
            values = value(tried)
            if values.max() > best:
                row, best = tried[values.argmax()], values.max()
            if best - before < LEAST_GAIN:
                break
        ends.append((best, row))
    return max(ends, key=lambda end: end[0])[1]


def candidates(box: Box, good: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return uniform rows, good rows, and neighbours of these in some of their columns."""
    parts = [box.snapped(rng.random((N_UNIFORM, box.n_columns))), good]
    by_level = np.isin(np.arange(box.n_columns), list(box.compared))
    share = np.where(by_level, 1 / box.n_columns, max(0.5, min(1.0, 2 / box.n_columns)))
    for distance in DISTANCES if len(good) else ():
        near = good[rng.integers(len(good), size=N_NEIGHBOURS)]
        step = near + distance * rng.standard_normal(near.shape)
        other = box.snapped(np.where(by_level, rng.random(near.shape), step))
        parts.append(np.where(rng.random(near.shape) < share, other, near))
    return np.concatenate(parts)


def neighbours(acquisition: Criterion, box: Box, row: FloatArray, trees: Trees) -> FloatArray:
    """Return where L-BFGS leads from a row in the continuous columns that apply, and both with other levels."""
    active, moved = applied(row[None], trees), row[None].copy()
    free = np.array([j for j in np.flatnonzero(~np.isnan(active[0])) if j not in box.compared], dtype=np.intp)

    def negative(u: FloatArray) -> tuple[float, FloatArray]:
        active[0, free] = u
        value, gradient = acquisition.gradient(box.inputs(active))
        return -float(value[0]), -UNIT * gradient[0, box.first_input[free]]

    if len(free):
        bounds, options = [(0.0, 1.0)] * len(free), {"maxiter": MAX_ITER}
        moved[0, free] = minimize(negative, row[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    parts = [box.snapped(moved)]
    for origin in (row, parts[0][0]):
        for j, own in box.compared.items():
            part = np.repeat(origin[None], len(own), axis=0)
            part[:, j] = own
            parts.append(part)
    return np.concatenate(parts)


# --- criteria: from means and deviations, (n_functions, n_rows), to values, (n_rows,), and slopes by both

Term = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
# Nodes on [0, 1] of integrals over the improvement.
NODES, NODE_WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(24))
NODES = NODES + 0.5


class Criterion:
    """The sum of terms, each of moments of its own surrogates, as a function of their inputs."""

    def __init__(self, terms: Sequence[tuple[Term, Sequence[Surrogate]]]) -> None:
        self.terms = terms

    def value(self, inputs: FloatArray) -> FloatArray:
        """Return values, (n_rows,)."""
        return np.sum([term(*_stacked(s.moments(inputs) for s in own))[0] for term, own in self.terms], axis=0)

    def gradient(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values, (n_rows,), and gradients, (n_rows, n_inputs)."""
        values, gradients = np.zeros(len(inputs)), np.zeros(inputs.shape)
        for term, own in self.terms:
            mean, std, *slopes = _stacked(s.gradients(inputs) for s in own)
            value, *by = term(mean, std)
            values += value
            gradients += np.einsum("pkn,pknj->nj", by, slopes)
        return values, gradients


def _stacked(parts: Iterable[tuple[FloatArray, ...]]) -> list[FloatArray]:
    return [np.stack(part) for part in zip(*parts, strict=True)]


def hazard(z: FloatArray) -> FloatArray:
    """Return φ(z)/Φ(z), the derivative of log Φ."""
    return np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ndtr(z))


def feasibility(mean: FloatArray, std: FloatArray, threshold: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log P(f ≤ threshold), and its slopes."""
    z = (threshold - mean) / std
    by_mean = -hazard(z) / std
    return log_ndtr(z)[0], by_mean, z * by_mean


def improvement(mean: FloatArray, std: FloatArray, best: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log E max(f − best, 0), and its slopes: Φ(z)/EI and φ(z)/EI with z = (mean − best)/std."""
    z, value = (mean - best) / std, log_expected_improvement(mean, std, best)
    return value[0], np.exp(log_ndtr(z) - value), np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - value)


def scalarised_improvement(
    mean: FloatArray, std: FloatArray, best: float, reference: FloatArray, direction: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log E max(min_k u_k − best, 0), u_k = (f_k − reference_k)/direction_k, of independent f, and its slopes.

    The expectation is ∫ Π P(u_k > t) dt from the best on. Directions drawn uniformly from the sphere make the expected
    improvement of min_k u_k one of the hypervolume (Golovin & Zhang 2020, Random hypervolume scalarizations).
    """
    unit = direction[:, None]
    mean, std = (mean - reference[:, None]) / unit, std / unit
    # The integrand is one up to here, decays at this rate from here on, and ends 7 deviations beyond any mean.
    begin = np.maximum((mean - 7 * std).min(axis=0), best)
    rate = (hazard((mean - begin) / std) / std).sum(axis=0)
    length = np.minimum((np.maximum(mean - begin, 0.0) + 7 * std).min(axis=0), 30 / np.maximum(rate, 1e-6))
    t = begin[:, None] + length[:, None] * NODES
    z = (mean[..., None] - t) / std[..., None]
    log_integrand = log_ndtr(z).sum(axis=0) + np.log(length[:, None] * NODE_WEIGHTS)
    with np.errstate(divide="ignore"):
        value = np.logaddexp(np.log(begin - best), logsumexp(log_integrand, axis=1))
    decay = np.exp(log_integrand - value[:, None]) * hazard(z) / (std * unit)[..., None]
    return value, decay.sum(axis=-1), -(decay * z).sum(axis=-1)


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
    """

    def __init__(self, box: Box, n_objectives: int, n_constraints: int, rng: np.random.Generator) -> None:
        self.box, self.rng, self._n_objectives = box, rng, n_objectives
        # Objectives, constraints, and failures as one more constraint.
        n_functions = n_objectives + n_constraints + 1
        self._functions = [LearnedFunction(box.tied, is_constraint=k >= n_objectives) for k in range(n_functions)]
        self._rows, self._values = np.empty((0, box.n_columns)), np.empty((0, n_functions))
        self._trees: Trees = []
        self._next_patterns = 0

    @property
    def _objectives(self) -> FloatArray:
        return self._values[:, : self._n_objectives]

    @property
    def n_known(self) -> int:
        """Number of rows whose objectives are known."""
        return int((~np.isnan(self._objectives).any(axis=1)).sum())

    def tell(self, rows: FloatArray, values: FloatArray, violations: FloatArray, failed: NDArray[np.bool_]) -> None:
        """Add rows that were tried: their objectives and constraints, a column each, NaN if unknown."""
        inputs, values = self.box.inputs(rows), np.column_stack([values, violations, np.where(failed, 1.0, -1.0)])
        for function, own in zip(self._functions, values.T, strict=True):
            function.add(inputs, own)
        self._rows, self._values = np.vstack([self._rows, rows]), np.vstack([self._values, values])

    def ask(self, pending: FloatArray) -> FloatArray:
        """Return the row to try next, (n_columns,), complete, while others are `pending`, (n_pending, n_columns)."""
        if len(self._rows) >= self._next_patterns:
            self._trees = applicability(self._rows)
            self._next_patterns = len(self._rows) + 1 + len(self._rows) // 10
        unknown, inputs, m = np.full(len(pending), np.nan), self.box.inputs(pending), self._n_objectives
        used = self._functions if (self._values[:, -1] > 0).any() else self._functions[:-1]
        surrogates = [function.surrogate(self.rng).learned(inputs, unknown, self.rng) for function in used]
        terms: list[tuple[Term, Sequence[Surrogate]]] = []
        for function, own in zip(used[m:], surrogates[m:], strict=True):
            terms.append((partial(feasibility, threshold=float(function.units(np.zeros(1))[0])), [own]))
        aim, leading = self._aim(surrogates[:m])
        if aim is not None:
            terms.append((aim, surrogates[:m]))
        if not terms:
            return self.box.snapped(self.rng.random((1, self.box.n_columns)))[0]
        good = self._rows[leading]  # what does not apply is filled in by chance
        good = np.where(np.isnan(good), self.box.snapped(self.rng.random(good.shape)), good)
        return maximise(Criterion(terms), self.box, good, self.rng, self._trees)

    def _aim(self, surrogates: Sequence[Surrogate]) -> tuple[Term | None, NDArray[np.intp]]:
        """Return the term of the objectives, None while nothing is feasible, and the rows near which to look."""
        violations = self._values[:, self._n_objectives : -1]
        rows = np.flatnonzero((violations <= 0).all(axis=1) & ~np.isnan(self._objectives).any(axis=1))
        if not len(rows):
            violation = np.maximum(violations, 0.0).sum(axis=1)
            return None, np.argsort(np.nan_to_num(violation, nan=np.inf), kind="stable")[:N_GOOD]
        values = np.stack([f.units(own) for f, own in zip(self._functions, self._objectives[rows].T, strict=False)])
        reference, direction = np.zeros(1), np.ones(1)
        if len(values) > 1:
            direction = np.abs(self.rng.standard_normal(len(values)))
            direction /= np.linalg.norm(direction)
            reference = values.min(axis=1) - MARGIN * np.ptp(values, axis=1)

        def order(values: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
            scores = ((values - reference[:, None]) / direction[:, None]).min(axis=0)
            return scores, np.argsort(-scores, kind="stable")

        rows = rows[order(values)[1][:N_LEADING]]
        inputs = self.box.inputs(self._rows[rows])
        scores, best = order(np.stack([own.moments(inputs)[0] for own in surrogates]))
        incumbent, leading = float(scores.max()), rows[best[:N_GOOD]]
        if len(values) == 1:
            return partial(improvement, best=incumbent), leading
        return partial(scalarised_improvement, best=incumbent, reference=reference, direction=direction), leading


def applicability(rows: FloatArray) -> Trees:
    """Learn which columns apply to a row, as told by its other columns, from rows with NaN where one did not apply.

    A tree for each column that does not always apply. Columns that apply to fewer rows depend on those that apply to
    more, and are taken in this order.
    """
    applies = ~np.isnan(rows)
    counts = applies.sum(axis=0)
    trees = []
    for j in np.argsort(-counts, kind="stable"):
        others = np.flatnonzero(counts > counts[j])
        if 0 < counts[j] < len(rows) and len(others):
            fitted = DecisionTreeClassifier(random_state=0).fit(_marked(rows[:, others]), applies[:, j])
            trees.append((int(j), others, fitted.tree_))
    return trees


def applied(rows: FloatArray, trees: Trees) -> FloatArray:
    """Return complete rows with NaN where a column does not apply."""
    rows = rows.copy()
    for j, others, tree in trees:
        shares = tree.value[tree.apply(_marked(rows[:, others])), 0]  # without checks of a few rows
        rows[shares[:, 0] > shares[:, 1], j] = np.nan
    return rows


def _marked(rows: FloatArray) -> NDArray[np.float32]:
    """Return rows as trees take them, with −1 where a column does not apply."""
    return np.where(np.isnan(rows), -1.0, rows).astype(np.float32)
