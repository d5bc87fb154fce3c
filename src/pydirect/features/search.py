"""The search of kernel hyperparameters: a race of starts on few rows, then the best on more, on one subset or several.

An evaluation costs n³ flops: what needs many is done on few rows, and what is learned of the curvature taken along.

The marginal likelihood of many columns has bad optima: all length-scales long and everything noise. Starts with long
length-scales, with short ones, and with short ones of only those columns that a screen has found differ in which they
end in, and the marginal likelihood itself says which is best. It also says how smooth the kernel is. Where one subset
holds a small part of the rows, searches on several are compared by the evidence of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect._warnings import warn
from pydirect.features.kernel import SMOOTHNESS, KernelHyperparameters
from pydirect.features.race import Objective, Patience, Run, descend, race
from pydirect.features.screen import RELEVANT
from pydirect.features.search_record import AGREEMENT, DISAGREEMENT, HyperparameterSearch, HyperparameterSearchWarning

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
# Most subsets that are searched where there are more than twice `max_rows` rows.
MOST_SUBSETS = 3

# Rows of a subset from which disagreement is no accident of few rows.
FEWEST_ROWS = 256

Referee = Callable[[KernelHyperparameters], float]


class KernelObjective(Objective, Protocol):
    """A negative log posterior of the hyperparameters of a kernel."""

    d: int
    tied: NDArray[np.intp]
    mean: FloatArray
    start: FloatArray

    def unpack(self, theta: FloatArray, n_evaluations: int = 0) -> KernelHyperparameters:
        """Return the hyperparameters of θ."""
        ...  # pragma: no cover


def search(
    objective: Callable[[NDArray[np.intp]], KernelObjective],
    n: int,
    scores: FloatArray,
    rng: np.random.Generator,
    *,
    max_rows: int,
    referee: Referee | None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Search the hyperparameters that maximise an objective; return them and the record of the search.

    With a referee and more than twice `max_rows` rows, two subsets are searched, and a third where these disagree.

    Parameters
    ----------
    objective : callable
        From the indices of rows to the objective on them.
    n : int
        Number of rows.
    scores : ndarray of shape (n_columns,)
        Of the screen, for the leading inputs.
    rng : numpy.random.Generator
        Selects the rows.
    max_rows : int
    referee : callable or None
        From hyperparameters to the evidence of all rows.
    """
    order, many = rng.permutation(n), min(n, max_rows)
    found = [search_subset(objective, order[:many], scores)]
    evidences: list[float] = []
    kernels = [found[0].kernel]
    if referee is not None and n > 2 * many:
        evidences.append(referee(kernels[0]))
        for k in range(1, MOST_SUBSETS):
            rows = np.take(order, range(k * many, (k + 1) * many), mode="wrap")
            found.append(search_subset(objective, rows, scores))
            kernels.append(found[-1].kernel)
            evidences.append(referee(kernels[-1]))
            first, second = sorted(evidences)[:-3:-1]
            if first - second < AGREEMENT * n:
                break
        if len({kernel.smoothness for kernel in kernels}) == 1:
            kernels.append(geometric_mean(kernels))
            evidences.append(referee(kernels[-1]))
    best = kernels[int(np.argmax(evidences)) if evidences else 0]
    n_evaluations = sum(subset.n_evaluations for subset in found)
    record = HyperparameterSearch(
        columns=np.arange(len(scores)),
        scores=scores,
        starts=found[0].starts,
        start_values=np.stack([subset.start_values for subset in found]),
        smoothness_values=np.stack([subset.smoothness_values for subset in found]),
        evidences=np.array(evidences),
        smoothness=best.smoothness,
        n_rows=(min(many, FIRST_ROWS), many, n),
        n_evaluations=n_evaluations,
    )
    if record.disagreement > DISAGREEMENT and many >= FEWEST_ROWS:
        warn(
            f"searches of hyperparameters on {record.n_subsets} subsets of {many} rows ended far from each other: "
            f"their evidences of all {n} rows differ by {record.disagreement:.2g} nats a row. The best is used, and "
            "there may be a better one: raise max_hyperparameter_rows",
            HyperparameterSearchWarning,
            stacklevel=2,
        )
    return replace(best, n_evaluations=n_evaluations), record


@dataclass(frozen=True)
class SubsetSearch:
    """Result of a search on one subset of the rows, and what led to it; see `HyperparameterSearch`."""

    kernel: KernelHyperparameters
    starts: tuple[str, ...]
    start_values: FloatArray
    smoothness_values: FloatArray
    n_evaluations: int


def search_subset(
    objective: Callable[[NDArray[np.intp]], KernelObjective], rows: NDArray[np.intp], scores: FloatArray
) -> SubsetSearch:
    """Search on some rows: race, choose the smoothness, then go on with the best."""
    likelihood = objective(np.sort(rows[:FIRST_ROWS]))
    starts = starting_points(likelihood, scores)
    raced = race(likelihood, starts)
    best = min(raced, key=lambda run: run.value)
    shaped = race(likelihood, [replace(best, smoothness=s) for s in SMOOTHNESS], SMOOTHNESS_ITERATIONS)
    margin = SMOOTHNESS_GAIN * likelihood.n_rows
    best = min(shaped, key=lambda run: run.value - margin * (run.smoothness == 1.5))
    tried = [*raced, *shaped]
    if len(rows) > FIRST_ROWS:
        likelihood = objective(np.sort(rows))
        if best.theta[0] > np.log(ALL_NOISE):
            again = race(likelihood, [best, replace(starts[1], smoothness=best.smoothness)])
            best = min(again, key=lambda run: run.value)
            tried += again
    best = descend(likelihood, best, *(FEW_ROWS if len(rows) <= FIRST_ROWS else MANY_ROWS))
    return SubsetSearch(
        likelihood.at(best.smoothness).unpack(best.theta),
        tuple(run.name for run in raced),
        -np.array([run.value for run in raced]),
        -np.array([run.value for run in shaped]),
        sum(run.n_evaluations for run in [*tried, best]),
    )


def geometric_mean(kernels: Sequence[KernelHyperparameters]) -> KernelHyperparameters:
    """Return the kernel whose hyperparameters are the geometric means of others of the same smoothness."""

    def mean(name: str) -> FloatArray:
        return np.exp(np.mean([np.log(getattr(kernel, name)) for kernel in kernels], axis=0))

    return replace(
        kernels[0],
        noise_variance=float(mean("noise_variance")),
        ard_amplitude=float(mean("ard_amplitude")),
        length_scales=mean("length_scales"),
        isotropic_amplitude=float(mean("isotropic_amplitude")),
        isotropic_length_scale=float(mean("isotropic_length_scale")),
        linear_amplitude=float(mean("linear_amplitude")),
    )


def starting_points(likelihood: KernelObjective, scores: FloatArray) -> list[Run]:
    """Return the starts of the race: long length-scales, short ones, and those that a screen of columns suggests."""
    d, long = likelihood.d, likelihood.start
    short = long.copy()
    short[[*range(2, 2 + d), 3 + d]] += np.log(0.3)
    runs = [Run("long", long), Run("short", short)]
    relevant = np.unique(likelihood.tied[np.flatnonzero(scores > RELEVANT)])
    if relevant.size:
        screened = long.copy()
        screened[1] = 0.0
        screened[2 : 2 + d] = likelihood.mean[2 : 2 + d] + 1.0
        screened[2 + relevant] = 0.25 * np.log(relevant.size)
        screened[2 + d] = np.log(0.1)
        runs.append(Run("screened", screened))
    return runs
