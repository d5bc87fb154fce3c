"""The search of a kernel by nearest-preceding evidence: it sees what varies only between close rows.

Few rows, all that exact evidence can have, are far from each other, and short length-scales explain nothing. Hence its
own starts: those of the columns that a screen has found with far shorter length-scales, and the best of every column
and pair of columns with short ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.nearest_evidence import NearestEvidence
from pydirect.features.race import Patience, RaceRun, SubsetSearch, descend, near_start, race, starting_points

# Rows among which neighbours are found: with more, nothing that matters was found on real tables.
MAX_ROWS = 4000
# Targets and neighbours of the race, and of the search that follows.
FEW_TARGETS, FEW_NEIGHBOURS = 1000, 15
MANY_TARGETS, MANY_NEIGHBOURS = 1500, 23
# Iterations of the two best starts, of another smoothness, and at the end.
LONGER, SMOOTHNESS_ITERATIONS, LAST = 18, 6, 30
PATIENCE = Patience(6, 0.001)
# Nats a row that another smoothness than 3/2 must gain.
SMOOTHNESS_GAIN = 0.02
# Of columns of short length-scales: how many are tried, on how many rows, by the distance along how many inputs.
PAIR_COLUMNS, PAIR_TARGETS, PAIR_METRIC = 9, 400, 4
# Values that such a column has at least: between few, nothing is near.
DISTINCT_VALUES = 12
PAIR_LENGTH_SCALE, PAIR_AMPLITUDE, PAIR_ISOTROPIC = 0.15, 0.3, 0.1


@dataclass(frozen=True)
class NearestRows:
    """Rows in random order, x (n_rows, n_inputs), y (n_rows, n_outputs), weights (n_rows,), the first also exact."""

    x: FloatArray
    y: FloatArray
    weight: FloatArray
    exact: MarginalLikelihood

    def evidence(self, targets: NDArray[np.intp], n_neighbours: int, **options: Any) -> NearestEvidence:
        """Return the evidence of some rows given their neighbours."""
        return NearestEvidence(self.x, self.y, self.weight, np.sort(targets), n_neighbours, self.exact, **options)


def search_nearest(rows: NearestRows, scores: FloatArray, rng: np.random.Generator) -> SubsetSearch:
    """Race the starts given few neighbours, go on with the best two, and end with exact evidence of the first rows."""
    n, first = len(rows.x), rows.exact.n_rows
    order = rng.permutation(n)
    few = rows.evidence(order[:FEW_TARGETS], FEW_NEIGHBOURS)
    pairs = rows.evidence(order[:PAIR_TARGETS], FEW_NEIGHBOURS, metric_inputs=PAIR_METRIC)
    begin, _, *screened = starting_points(few, scores)
    (long,) = race(few, [begin])
    raced = [long, *race(few, [*screened, near_start(few, scores), pair_start(pairs, long, scores)])]
    best = [descend(few, run, LONGER, PATIENCE) for run in sorted(raced, key=lambda run: run.value)[:2]]
    shaped = min(best, key=lambda run: run.value)
    others = race(few, [replace(shaped, smoothness=s) for s in (0.5, 2.5)], SMOOTHNESS_ITERATIONS)
    margin = SMOOTHNESS_GAIN * few.n_rows
    chosen = min([shaped, *others], key=lambda run: run.value - margin * (run.smoothness == 1.5))
    many = rows.evidence(first + rng.permutation(n - first)[:MANY_TARGETS], MANY_NEIGHBOURS, adds_exact=True)
    last = descend(many, chosen, LAST, PATIENCE)
    return SubsetSearch(
        many.at(last.smoothness).unpack(last.theta),
        tuple(run.name for run in raced),
        -np.array([run.value for run in raced]),
        -np.array([others[0].value, shaped.value, others[1].value]),
        sum(run.n_evaluations for run in [*raced, *best, *others, last]),
    )


def pair_start(few: NearestEvidence, long: RaceRun, scores: FloatArray) -> RaceRun:
    """Return the best of short length-scales of one or two columns, from where long ones have led."""
    d, best = few.d, RaceRun("pair", long.theta)
    ranked = np.argsort(-scores, kind="stable")
    continuous = (j for j in ranked if len(np.unique(few.x[:, j])) >= DISTINCT_VALUES)
    scales = dict.fromkeys(few.tied[list(islice(continuous, PAIR_COLUMNS))])
    for short in [*combinations(scales, 1), *combinations(scales, 2)]:
        theta = long.theta.copy()
        theta[0] = max(theta[0] - np.log(2), few.bounds[0][0])
        theta[[1, 2 + d]] = np.log([PAIR_AMPLITUDE, PAIR_ISOTROPIC])
        theta[[2 + scale for scale in short]] = np.log(PAIR_LENGTH_SCALE)
        few.update(theta)
        value = few(theta)[0]
        if value < best.value:
            best = RaceRun("pair", theta, value)
    return replace(best, n_evaluations=len(scales))
