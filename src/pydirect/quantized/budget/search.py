"""The search among proposals: comparison at held-out rows, and casting within the limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pydirect.features.maps import FourierFeatures
from pydirect.quantized.basis import LinearBasis
from pydirect.quantized.budget.costs import Form, Limits
from pydirect.quantized.budget.proposals import PROPOSALS, proposed
from pydirect.quantized.budget.task import Task
from pydirect.quantized.predictors import QuantizedPredictor

# Fraction of the rows that is held out to compare proposals.
HELD_OUT = 0.2
FEWEST_HELD_OUT = 8
# Rounds of dropping frequencies while a model is too large.
MOST_ROUNDS = 20


class NoModelError(ValueError):
    """No model fits into the limits."""


def best_proposal(task: Task, forms: list[Form], limits: Limits) -> tuple[Form, FourierFeatures, float]:
    """Compare proposals at held-out rows in the first form, then the other forms for the best kind of proposal.

    Returns the best form and its features, which all rows then give weights, and the factor on standard deviations that
    held-out rows ask for.

    The scales of the columns and the kernel, or a classifier's logits, are those of all rows; everything else is fitted
    to the other rows.
    """
    order = task.order()
    n_held = int(HELD_OUT * len(order))
    if n_held < FEWEST_HELD_OUT:
        return forms[0], proposed(task, "filled", forms[0], limits), 1.0
    part, held = task.restricted(np.sort(order[n_held:])), task.restricted(order[:n_held])

    found: list[tuple[float, str, Form, FourierFeatures, float]] = []

    def judge(name: str, form: Form, selected: FourierFeatures | None = None) -> None:
        features = proposed(part, name, form, limits, selected)
        try:
            model = cast_within(part, features, form, limits)
        except NoModelError:
            return
        found.append((held.loss(model), name, form, features, held.calibration(model)))

    selected = proposed(part, "selected", forms[0], limits)
    for name in PROPOSALS:
        judge(name, forms[0], selected)
    for form in forms[1:]:
        judge(min(found, key=lambda f: f[0])[1] if found else "filled", form)
    if not found:
        return forms[0], selected, 1.0
    return min(found, key=lambda f: f[0])[2:]


def cast_within(task: Task, features: FourierFeatures, form: Form, limits: Limits) -> QuantizedPredictor:
    """Cast a model, dropping the frequencies with the smallest weights while it is too large."""
    costs = form.costs(task.input_map)
    for _ in range(MOST_ROUNDS):
        quantised = task.cast(features, form)
        excess, surplus = limits.excess(quantised)
        if excess <= 0 and surplus <= 0:
            return quantised
        drop = max(int(np.ceil(max(excess / costs.frequency, surplus / 2))), 1)
        assert isinstance(quantised.basis, LinearBasis)
        kept = quantised.basis.features.map
        assert isinstance(kept, FourierFeatures)
        if drop >= kept.n_frequencies:
            break
        features = _without_weakest(quantised, kept, drop)
    raise NoModelError(
        f"max_bytes and max_nonzero must hold a model, got {limits.n_bytes} bytes and {limits.n_weights:g} weights per "
        "output, too few for one"
    )


def _without_weakest(model: QuantizedPredictor, features: FourierFeatures, count: int) -> FourierFeatures:
    """Drop the frequencies with the smallest weights; `features`: those of the model."""
    assert isinstance(model.basis, LinearBasis)
    f, size = features.n_frequencies, np.zeros(features.n_weights)
    size[model.basis.order] = np.square(model.weights).sum(axis=(0, 1))
    pairs = features.amplitudes**2 * (size[:f] + size[f : 2 * f])
    kept = np.sort(np.argsort(-pairs, kind="stable")[: f - count])
    return replace(
        features, frequencies=np.ascontiguousarray(features.frequencies[:, kept]), amplitudes=features.amplitudes[kept]
    )
