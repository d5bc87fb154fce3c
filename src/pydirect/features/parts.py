"""A product over axes as a part of the kernel, in place of the isotropic one, where the evidence clearly favours it.

Functions that jump or bend along single columns, as trees find them, are rough along axes and smooth otherwise. On
tables without such jumps the product gains a few nats at most, and predictions may be worse: hence a margin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.race import Patience, RaceRun, descend, race
from pydirect.features.search import FIRST_ROWS
from pydirect.features.search_record import PRODUCT_MARGIN_PER_ROW, HyperparameterSearch, product_margin

# Share of the targets' variance from which noise leaves nothing for another part to explain.
MOSTLY_NOISE = 0.5
# Length-scales of the second start, as a fraction of the first one's: from both, descents end in the same optimum.
SHORT = 0.1
# Iterations of both starts, of the better one on the same rows, and on more; a product that is needed gains early.
START_ITERATIONS, FEW_ITERATIONS = 6, 12
MANY_ITERATIONS, PATIENCE = 60, Patience(4, 0.002)
PROMISING = 0.5  # of what it must gain


def try_product(
    objective: Callable[[NDArray[np.intp]], MarginalLikelihood],
    kernel: KernelHyperparameters,
    record: HyperparameterSearch,
    axes: NDArray[np.intp],
    n: int,
    rng: np.random.Generator,
    max_rows: int,
    referee: Callable[[KernelHyperparameters], float] | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Return the kernel with a product over axes, inputs by number, if that gains enough, and the completed record.

    Where there are more rows than `max_rows` the referee must prefer the product too, and a kernel that more of them
    have found by nearest-preceding evidence stays as it is.
    """
    if not len(axes) or kernel.noise_variance > MOSTLY_NOISE or (n > max_rows and record.nearest_gain > 0):
        return kernel, record
    rows = rng.spawn(1)[0].permutation(n)[:max_rows]
    likelihood = objective(np.sort(rows[:FIRST_ROWS]))
    found = RaceRun("found", likelihood.theta_of(kernel), smoothness=kernel.smoothness)
    product = likelihood.with_product(axes)
    runs = race(product, _starts(product, kernel), START_ITERATIONS)
    runs.append(descend(product, min(runs, key=lambda run: run.value), FEW_ITERATIONS))
    best, n_evaluations = runs[-1], 1
    gain = likelihood.at(found.smoothness)(found.theta)[0] - best.value
    margin = product_margin(len(rows))
    if n > len(rows) and gain > PROMISING * margin:  # it was found on other rows
        found = descend(likelihood, found, FEW_ITERATIONS)
        gain, runs = found.value - best.value, [*runs, found]
    if gain > PROMISING * margin:
        if len(rows) > FIRST_ROWS:
            likelihood, n_evaluations = objective(np.sort(rows)), 2
            product = likelihood.with_product(axes)
        if n > len(rows):
            found = descend(likelihood, found, FEW_ITERATIONS)
        best = descend(product, best, MANY_ITERATIONS, PATIENCE)
        gain = likelihood.at(found.smoothness)(found.theta)[0] - best.value
        runs += [found, best]
    if gain > margin:
        stepped = product.at(best.smoothness).unpack(best.theta)
        if n <= len(rows) or referee is None or referee(stepped) - referee(kernel) > PRODUCT_MARGIN_PER_ROW * n:
            kernel = stepped
        else:
            gain = 0.0
    n_evaluations += record.n_evaluations + sum(run.n_evaluations for run in runs)
    record = replace(record, n_evaluations=n_evaluations, product_gain=float(gain))
    return replace(kernel, n_evaluations=n_evaluations), record


def _starts(product: MarginalLikelihood, kernel: KernelHyperparameters) -> list[RaceRun]:
    """Return starts from a kernel that was found: the product as flat as its prior, and short along all axes."""
    flat = product.theta_of(kernel)
    short = flat.copy()
    short[3 + product.d : -1] += np.log(SHORT)
    return [RaceRun(name, start, smoothness=kernel.smoothness) for name, start in (("flat", flat), ("short", short))]
