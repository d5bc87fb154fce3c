"""Effects of categories, of columns that have many, beside a function of the other columns.

They are random effects, learned by exact elimination before the fit. A row is given what other rows tell of the effect
of its category, as new rows are: with its own target in it, the function would take the effect for known. Of labels,
counts and other targets of latents, the responses are those of Newton's steps: f + r/h with precisions h and residuals
r of the ELBO (penalised quasi-likelihood, Breslow and Clayton 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pydirect._validation import FloatArray
from pydirect.features.fitting import FeaturePlan
from pydirect.linear.fit import InitialHyperparameters
from pydirect.linear.posterior import GaussianPosterior
from pydirect.linear.random_effects import (
    MOST_LOG_RATIO,
    GroupSums,
    RandomEffects,
    fit_given_ratios,
    fit_random_effects,
    with_ones,
)
from pydirect.logistic.rows import LabelledRows
from pydirect.tables.columns import FEW_CATEGORIES
from pydirect.tables.encoding import CategoryEffects, ColumnEncoding, Gaps
from pydirect.tables.table import Table, Text, as_text, equal_rows

# Variance of the noise over that of effects of categories that may count; of so many rows one has a column too, of
# labels and other targets that tell less of more.
LARGEST_RATIO, FREQUENT, FREQUENT_OF_LABELS = 100.0, 10, 50
# Most features and rows of the search of f beside which effects on latents are learned, and most functions with them.
SMALL, MOST_FUNCTIONS = 150, 8
# Most rows of groups of which each is left out by steps of its own, of which the change is at most so large.
FEW_TOGETHER, LARGEST_STEP = 10, 2.0
# Nats of log evidence for each function by which there must be effects on latents: by chance there rarely are.
LEAST_GAIN = 6.0
# Most steps to the effects on latents, the change that is none, and the least precision of a row relative to others.
MOST_STEPS, SAME, LEAST_PRECISION = 8, 0.1, 1e-6

M = TypeVar("M")
Numbers = NDArray[np.intp]  # of rows, their groups or those that agree
# Effects, their means at rows by the other ones with a variance, (n_rows, n_functions + 1), and frequent categories
Learned = tuple[CategoryEffects, FloatArray, set[str | None]]


def columns_with_many(columns: ColumnEncoding, table: Table) -> dict[int, Text]:
    """Return the columns of a table whose categories are many."""
    many = [j for j, own in enumerate(columns.categories) if len(own or ()) > FEW_CATEGORIES]
    return {j: as_text(table.columns[j]) for j in many}


def with_effects(
    columns: ColumnEncoding, found: Sequence[Learned], table: Table, weight: FloatArray | None
) -> tuple[ColumnEncoding, FloatArray, NDArray[np.bool_]]:
    """Return the encoding with learned effects, and the rows of the fit, encoded and marked, with those of others."""
    categories = list(columns.categories)
    for effects, _, often in found:
        j = effects.column
        categories[j] = tuple(value for value in categories[j] or () if value in often)
    pooled = tuple(sorted({*columns.pooled, *(own.column for own, _, _ in found)}))
    columns = replace(columns, categories=tuple(categories), pooled=pooled, effects=tuple(own for own, _, _ in found))
    if columns.gaps is not None:
        columns = replace(columns, gaps=Gaps.fit(columns.body(table.columns)[0], weight))
    x, absent = columns.encode_and_mark(table)
    columns.effects_of(x)[:, :, :-1] = np.stack([others for _, others, _ in found], axis=1)
    return columns, x, absent


def same_rows(x: FloatArray, texts: Sequence[Text], y: FloatArray) -> Numbers:
    """Number rows so that those that agree in everything have the same number."""
    return equal_rows(np.column_stack([x, *(text.codes for text in texts)]), y)[1]


def learned(
    column: int, text: Text, weight: FloatArray, whole: FloatArray, others: FloatArray, frequent: float = FREQUENT
) -> Learned:
    """Return effects of a column's categories from moments of those that are present, and of a new one, and at rows."""
    present, group = np.unique(text.codes, return_inverse=True)
    own = tuple((*text.values, None)[k] for k in present)
    often = {value for value, count in zip(own, np.bincount(group, weight), strict=True) if count >= frequent}
    return CategoryEffects(column, own, whole), others, often


def intercepts(
    residual: FloatArray, weight: FloatArray, group: Numbers, same: Numbers, noise: float, ratio: float
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of intercepts given y less f: of groups and a new one, (n_groups + 1, 2), and at rows.

    A row, of (n_rows, 2), is left out of the latter, with all of the same number.
    """

    def moments(n: Any, s: Any) -> FloatArray:
        return np.stack([s, np.full_like(s, noise)], axis=1) / (n + ratio)[:, None]

    each, n_groups = (weight, weight * residual), group.max() + 1
    whole = np.array([np.bincount(group, own, minlength=n_groups + 1) for own in each])
    return moments(*whole), moments(*(whole[:, group] - [np.bincount(same, own)[same] for own in each]))


@dataclass(frozen=True)
class _Fit:
    """f, and effects of groups beside it, given the responses of a step on one function."""

    posterior: GaussianPosterior
    scale: float
    effects: RandomEffects
    evidence: float
    sums: GroupSums

    @classmethod
    def of(cls, raw: LabelledRows, response: FloatArray, weight: FloatArray, group: Numbers) -> _Fit:
        ones, n_groups = np.ones((len(group), 1)), group.max() + 1
        sums = GroupSums.collect(raw.features, raw.x, response, ones, group, n_groups, weight)
        return cls(*fit_random_effects(sums, InitialHyperparameters(1.0)), sums)

    @property
    def gain(self) -> float:
        """Nats of log evidence by which there are effects."""
        none = fit_given_ratios(self.sums, InitialHyperparameters(1.0), np.array([MOST_LOG_RATIO]))
        return self.evidence - none[3]

    @property
    def noise(self) -> float:
        assert self.posterior.noise is not None
        return float(self.posterior.noise.levels[0])

    def moments(self, raw: LabelledRows, group: Numbers) -> FloatArray:
        """Mean and variance at rows of groups, (2, n_rows); −1 is a new group."""

        def of_block(phi: FloatArray, rows: slice) -> Any:
            own = with_ones(phi), np.ones((len(phi), 1)), group[rows]
            return self.effects.moments(self.posterior, self.scale, self.noise, *own)

        return np.concatenate(list(raw.map_blocks(of_block)), axis=1)


def small(features: FeaturePlan) -> FeaturePlan:
    """Return the features of f beside which effects on latents are learned."""
    functions, rows = min(features.n_functions, SMALL), min(features.max_search_rows, SMALL)
    return replace(features, n_functions=functions, max_search_rows=rows, first_size=None)


def encoded_by_latents(
    columns: ColumnEncoding,
    table: Table,
    x: FloatArray,
    y: FloatArray,
    rows_of: Callable[[FloatArray], LabelledRows],
    order: Sequence[int] = (0,),
) -> tuple[ColumnEncoding, FloatArray] | None:
    """Return the encoding of a table with effects on latents, and its rows, if there are any; x are those without.

    `rows_of`: from encoded rows of the other columns to rows with targets and features. `order`, (n_functions,), of
    these rows' functions in the model.
    """
    texts = columns_with_many(columns, table)
    if not texts:
        return None
    raw, places = rows_of(x * ~np.isin(columns.origins, [*texts])), [*order, -1]
    found = [
        (replace(own, moments=own.moments[:, places]), others[:, places], often)
        for own, others, often in effects_on_latents(raw, texts, same_rows(x, [*texts.values()], y))
    ]
    return with_effects(columns, found, table, raw.weight)[:2] if found else None


def better_fit(first: M, posteriors: Sequence[Any], second: Callable[[], M | None], loss: Callable[[M], float]) -> M:
    """Return the fit of less loss on left-out rows; Ctrl-C in either leaves the first, which has these posteriors."""
    if any(posterior.interrupted for posterior in posteriors):
        return first
    try:
        other = second()
    except KeyboardInterrupt:
        flag_interrupted(posteriors)
        return first
    except (np.linalg.LinAlgError, FloatingPointError):  # effects without bounds, beside which rows tell nothing
        return first
    return first if other is None else min(first, other, key=loss)


def flag_interrupted(posteriors: Sequence[Any]) -> None:
    """Say of posteriors that Ctrl-C ended the fit early."""
    for posterior in posteriors:
        posterior.outcome.interrupted, posterior.outcome.converged = True, False


def effects_on_latents(raw: LabelledRows, texts: dict[int, Text], same: Numbers) -> list[Learned]:
    """Learn effects on latents of rows that have features of the other columns, one column after the other."""
    found, offset = list[Learned](), raw.offsets
    for j, text in texts.items():
        group = np.unique(text.codes, return_inverse=True)[1]
        rows = replace(raw, offset=offset)
        fits, responses, weight, precision = _steps(rows, group)
        if not fits or sum(fit.gain for fit in fits) < LEAST_GAIN * len(fits):
            continue
        f = np.stack([fit.moments(rows, np.full(len(group), -1))[0] for fit in fits], axis=1)
        each = [
            intercepts(y, weight, group, same, fit.noise, float(fit.effects.ratio[0]))
            for fit, y in zip(fits, (responses - f).T, strict=True)
        ]
        whole, others = (
            np.column_stack([*(own[:, 0] for own in part), np.mean([own[:, 1] for own in part], axis=0)])
            for part in zip(*each, strict=True)
        )
        forget_own(replace(rows, offset=rows.offsets + f), fits, weight.sum() / precision, group, same, others)
        found.append(learned(j, text, raw.weight, whole, others, FREQUENT_OF_LABELS))
        offset = offset + others[:, :-1]
    return found


def forget_own(
    raw: LabelledRows, fits: list[_Fit], unit: float, group: Numbers, same: Numbers, others: FloatArray
) -> None:
    """Go on to effects at rows of small groups, (n_rows, n_functions + 1), by steps that a row itself has no part in.

    The other rows' responses depend on it where they are those of steps with all rows. `unit`: of precisions.
    """
    n, few = len(group), np.flatnonzero(np.bincount(group)[group] <= FEW_TOGETHER)
    members = csr_array((np.ones(len(few)), (few, group[few])), (n, group.max() + 1))
    row, other = (members @ members.T).nonzero()
    row, other = row[same[row] != same[other]], other[same[row] != same[other]]
    noise, ratio = (np.array(each) for each in zip(*((fit.noise, fit.effects.ratio[0]) for fit in fits), strict=True))
    weight, t, offset = unit * raw.weight[other, None], raw.t[other], raw.offsets[other]
    for _ in range(MOST_STEPS if len(row) else 0):
        terms = raw.model.terms(t, offset + others[row, :-1], others[row, -1])
        precision = np.maximum(terms.precision, LEAST_PRECISION * terms.precision.max())
        total = np.bincount(row, weight[:, 0] * precision, n)[few, None] + ratio
        slope = np.stack([np.bincount(row, own, n) for own in (weight * terms.residual).T], axis=1)[few]
        others[few, :-1] += np.clip((slope - ratio * others[few, :-1]) / total, -LARGEST_STEP, LARGEST_STEP)
        others[few, -1] = (noise / total).mean(axis=1)


def _steps(raw: LabelledRows, group: Numbers) -> tuple[list[_Fit], FloatArray, FloatArray, float]:
    """Fits at the last of Newton's steps, its responses (n_rows, n_functions), weights and Σ of precisions.

    There are none if they run away.
    """
    mean, variance = raw.model.first_guess(raw.t, raw.offsets), np.zeros(raw.n_samples)
    for _ in range(MOST_STEPS):
        terms = raw.model.terms(raw.t, raw.offsets + mean, variance)
        precision = np.maximum(terms.precision, LEAST_PRECISION * terms.precision.max())
        weight, responses = raw.weight * precision, mean + terms.residual / precision[:, None]
        if not np.isfinite(responses).all():
            return [], responses, weight, 1.0
        total = float(weight.sum())
        weight *= raw.weight.sum() / total
        fits, before = [_Fit.of(raw, y, weight, group) for y in responses.T], mean
        moments = np.stack([fit.moments(raw, group) for fit in fits], axis=2)
        mean, variance = moments[0], moments[1].mean(axis=1)
        if np.sqrt(np.mean((mean - before) ** 2)) < SAME:
            break
    return fits, responses, weight, total
