"""The search of kernel hyperparameters: a race of starts on few rows, then the best on more.

An evaluation costs n³ flops: what needs many is done on few rows. The marginal likelihood of many columns has bad
optima, all length-scales long and everything noise. Starts with long length-scales, with short ones, and with short
ones of only the columns that a screen has found lead to different optima, and the marginal likelihood itself chooses
among them and among smoothnesses. What varies only between close rows is searched by nearest-preceding evidence, and
the evidence of all rows chooses between the two results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.kernel import SMOOTHNESS, KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.nearest_search import MAX_ROWS as REFERENCE_ROWS
from pydirect.features.nearest_search import NearestRows, search_nearest
from pydirect.features.race import Patience, SubsetSearch, descend, race, starting_points
from pydirect.features.search_record import HyperparameterSearch

MAX_ROWS = 1000
# Rows of the race: on half as many, real tables had optima of their own, all noise.
FIRST_ROWS = 512
# Iterations with every smoothness, from the winner of the race.
SMOOTHNESS_ITERATIONS = 8
# Nats a row that another smoothness than 3/2 must gain: with less, predictions were hardly better, some over-confident.
SMOOTHNESS_GAIN = 0.07
# The best's further iterations, on the same rows if there are no more, or on up to `max_rows`.
FEW_ROWS = (48, Patience(6, 0.0005))
MANY_ROWS = (60, Patience(4, 0.002))
# Share of the targets' variance from which noise is taken for a sign of a bad optimum.
ALL_NOISE = 0.8
# Rows from which nearest-preceding evidence is asked as well, and those of the exact race beside it: optima of only so
# few, all noise, are then not the only ones.
NEAREST_ROWS, FEWER_ROWS = 600, 256
# Share of noise from which the first rows say enough.
MUCH_NOISE = 0.5
# Nats a row of all rows that nearest-preceding evidence must gain: with less, predictions were no better.
NEAREST_GAIN = 0.002

Referee = Callable[[KernelHyperparameters], float]


def search(
    objective: Callable[[NDArray[np.intp]], MarginalLikelihood],
    n: int,
    scores: FloatArray,
    rng: np.random.Generator,
    *,
    max_rows: int,
    referee: Referee | None,
    nearest: Callable[[NDArray[np.intp], MarginalLikelihood], NearestRows],
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Search the hyperparameters that maximise the evidence; return them and the record of the search.

    `objective`: exact, of some rows. With a referee and enough rows, it chooses between what exact evidence of up to
    `max_rows` has found and what `nearest`, given rows in random order, has.
    """
    order, many = rng.permutation(n), min(n, max_rows)

    def first(size: int) -> MarginalLikelihood:
        return objective(np.sort(order[: min(many, size)]))

    few, evidences = first(FIRST_ROWS), np.empty(0)
    if referee is None or n < NEAREST_ROWS:
        found = [search_exact(few, few, scores, lambda _: first(many) if many > FIRST_ROWS else few, races_again=True)]
    else:
        raced = first(FEWER_ROWS)
        found = [search_exact(raced, few, scores, lambda noise: few if noise > MUCH_NOISE else first(many))]
        found.append(search_nearest(nearest(order[:REFERENCE_ROWS], few), scores, rng))
        evidences, few = np.array([referee(each.kernel) for each in found]), raced
    best = found[int(evidences.size > 0 and evidences[1] - evidences[0] > NEAREST_GAIN * n)].kernel
    n_evaluations = sum(each.n_evaluations for each in found)
    record = HyperparameterSearch(
        columns=np.arange(len(scores)),
        scores=scores,
        starts=found[0].starts,
        start_values=found[0].start_values,
        smoothness_values=found[0].smoothness_values,
        nearest_starts=found[-1].starts if evidences.size else (),
        nearest_values=found[-1].start_values if evidences.size else np.empty(0),
        evidences=evidences,
        smoothness=best.smoothness,
        n_rows=(few.n_rows, many, n),
        n_evaluations=n_evaluations,
    )
    return replace(best, n_evaluations=n_evaluations), record


def search_exact(
    few: MarginalLikelihood,
    likelihood: MarginalLikelihood,
    scores: FloatArray,
    then: Callable[[float], MarginalLikelihood],
    *,
    races_again: bool = False,
) -> SubsetSearch:
    """Search by exact evidence: race on few rows, choose the smoothness, then go on on the rows for the best's noise.

    `races_again`: on more rows, if everything seems noise.
    """
    starts = starting_points(few, scores)
    raced = race(few, starts)
    best = min(raced, key=lambda run: run.value)
    shaped = race(likelihood, [replace(best, smoothness=s) for s in SMOOTHNESS], SMOOTHNESS_ITERATIONS)
    margin = SMOOTHNESS_GAIN * likelihood.n_rows
    best = min(shaped, key=lambda run: run.value - margin * (run.smoothness == 1.5))
    tried = [*raced, *shaped]
    more = then(float(np.exp(best.theta[0])))
    if more is not likelihood and races_again and best.theta[0] > np.log(ALL_NOISE):
        again = race(more, [best, replace(starts[1], smoothness=best.smoothness)])
        best = min(again, key=lambda run: run.value)
        tried += again
    best = descend(more, best, *(FEW_ROWS if more.n_rows <= FIRST_ROWS else MANY_ROWS))
    return SubsetSearch(
        more.at(best.smoothness).unpack(best.theta),
        tuple(run.name for run in raced),
        -np.array([run.value for run in raced]),
        -np.array([run.value for run in shaped]),
        sum(run.n_evaluations for run in [*tried, best]),
    )
