"""The search among proposals: comparison at held-out rows, and casting within the limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pydirect.features.maps import FourierFeatures
from pydirect.quantized.budget.costs import Form, Limits
from pydirect.quantized.budget.posteriors import exact_posteriors
from pydirect.quantized.budget.proposals import PROPOSALS, proposed
from pydirect.quantized.budget.task import Task
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.statistics.rotated import decorrelate

# Fraction of the rows that is held out to compare proposals.
HELD_OUT = 0.2
FEWEST_HELD_OUT = 8
# Rounds of dropping frequencies while a model is too large.
MOST_ROUNDS = 20


class NoModelError(ValueError):
    """No model fits into the limits."""


@dataclass(frozen=True)
class Proposal:
    """A kind of frequencies, and those of this kind that were compared."""

    name: str
    features: FourierFeatures | None


def best_proposal(task: Task, forms: list[Form], limits: Limits) -> tuple[Form, Proposal]:
    """Compare proposals at held-out rows with the most samples, then numbers of samples for the best proposal.

    The scales of the columns and the kernel, or a classifier's logits, are those of all rows; everything else is fitted
    to the other rows.
    """
    order = task.order()
    n_held = int(HELD_OUT * len(order))
    if n_held < FEWEST_HELD_OUT:
        return forms[-1], Proposal("random", None)
    part, held = task.restricted(np.sort(order[n_held:])), task.restricted(order[:n_held])

    def error(features: FourierFeatures, form: Form) -> float:
        try:
            return held.loss(cast_within(part, features, form, limits))
        except NoModelError:
            return np.inf

    found: list[tuple[float, Form, Proposal]] = []
    for name in PROPOSALS:
        features = proposed(part, name, forms[-1], limits)
        found.append((error(features, forms[-1]), forms[-1], Proposal(name, features)))
    best = min(found, key=lambda f: f[0])
    for form in forms[:-1]:
        features = proposed(part, best[2].name, form, limits, best[2].features)
        found.append((error(features, form), form, Proposal(best[2].name, features)))
    _, form, proposal = min(found, key=lambda f: f[0])
    return form, proposal


def cast_within(task: Task, features: FourierFeatures, form: Form, limits: Limits) -> QuantizedPredictor:
    """Cast a model, dropping the frequencies with the smallest weights while it is too large."""
    costs = form.costs(task.input_map)
    for _ in range(MOST_ROUNDS):
        quantised = task.cast(features, form)
        excess, surplus = limits.excess(quantised)
        if excess <= 0 and surplus <= 0:
            return quantised
        drop = max(int(np.ceil(max(excess / costs.frequency, surplus / 2))), 1)
        if drop >= features.n_frequencies:
            break
        features = _without_weakest(task, features, drop)
    raise NoModelError(
        f"max_bytes and max_nonzero must hold a model, got {limits.n_bytes} bytes and {limits.n_weights:g} weights per "
        "output, too few for one"
    )


def _without_weakest(task: Task, features: FourierFeatures, count: int) -> FourierFeatures:
    """Drop the frequencies with the smallest weights."""
    f, size = features.n_frequencies, np.zeros(features.n_frequencies)
    for p in exact_posteriors(decorrelate(task.statistics(features)), task.hyperparameters):
        weights = p.fit.coefficients[: 2 * f].reshape(2, f)
        size += p.variance * ((features.amplitudes * weights) ** 2).sum(axis=0)
    kept = np.sort(np.argsort(-size, kind="stable")[: f - count])
    return replace(
        features, frequencies=np.ascontiguousarray(features.frequencies[:, kept]), amplitudes=features.amplitudes[kept]
    )
