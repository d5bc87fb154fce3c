"""`fit_quantized`: the best quantised model within what a device has.

Candidates are frequencies selected one by one from a pool of random ones from the kernel's spectral density, and
forests grown one tree at a time on the kernel's posterior mean, of many sizes and numbers of samples. Neither depends
on the limits, so that more room only adds candidates. Rows left out, which the kernel has seen but basis functions and
weights have not, choose one, and say by how much standard deviations are off: one part of them chooses those that may
be best, of targets all of them, part by part, the best of these. Samples are draws of the sequential posterior of the
weights, for labels about the classifier's own mean. Outputs and classes share the basis functions and the scales of the
weights' levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import le

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array, as_sample_weight, column_names
from pydirect.noise.student_t import warn_of_gross
from pydirect.quantized.codes import unit_levels
from pydirect.quantized.fitted import Searchable, as_numpy
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.proposals import Family, families_of, proposals
from pydirect.quantized.quantize import warn_of_losses
from pydirect.quantized.task import LabelTask, Score, TargetTask, Task

SAMPLES = (1, 2, 4, 8, 16)
MOST_SAMPLES = 16
# Fraction of the rows that is held out; of targets every fifth once, but for a remainder of four rows at most.
HELD_OUT = 0.2
FEWEST_HELD_OUT = 8
PARTS = 5
# Candidates that fewer than so many others beat at the first part, and need no more, are compared at all parts.
FINALISTS = 3
# Sizes of a family in a row that may be no better than a smaller one.
PATIENCE = 4


class NoModelError(ValueError):
    """No model fits into the limits."""


def fit_quantized(
    model: Searchable,
    X: ArrayLike,
    y: ArrayLike,
    *,
    max_flash: int | None = None,
    max_stack: int | None = None,
    max_instructions: int | None = None,
    n_samples: int | None = None,
    n_levels: int = 15,
    sample_weight: ArrayLike | None = None,
) -> QuantizedPredictor:
    """Fit the best quantised model within what a device has: flash, stack, instructions.

    Parameters
    ----------
    model : DirectRegressor or DirectClassifier
        Fitted or not; only its parameters ``n_threads``, ``random_state``, ``max_search_rows`` (of `Nystroem`) and, for
        a classifier, ``class_weight`` are used, of a regressor also a ``target_transform`` that is named; ``"auto"`` is
        y itself. Other features, posteriors, kinds of noise, bounds or columns are refused; sizes follow from the
        budget.
    X : array_like of shape (n_rows, n_features_in)
        Numbers; encode tables with text first, by ``columns_.encode(X)`` of a model fitted with
        ``columns=Columns(effects=False)``. A fifth of the rows is held out to compare models; of targets then each
        other fifth, to choose between the best of them and to calibrate standard deviations. The model that is returned
        is fitted to all rows. The scales of the columns and the kernel are fitted once, to all rows, and so is the
        classifier whose logits choose basis functions. Repeated rows are merged, except for labels:
        copies of a row may be on both sides.
    y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        Outputs share basis functions; so do classes, of which each is separated from the rest when there are more than
        two.
    max_flash : int, optional
        Bytes of flash of tables and code, as ``report()["flash"]`` of the result estimates them for a Cortex-M. 4096
        when no limit is given.
    max_stack : int, optional
        Bytes of stack of a prediction, an estimate too.
    max_instructions : int, optional
        Instructions of a prediction, an estimate too.
    n_samples : int, optional
        Number of posterior samples, 1 to 16; by default 1, 2, 4, 8 or 16, as held-out rows decide. A single one is the
        vector of most probable levels.
    n_levels : int, default=15
        Number of evenly spaced levels of a weight: odd, 3 to 255.
    sample_weight : array_like of shape (n_rows,), optional
        How many times each row counts.

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier
        With ``arithmetic="integer"``.

    Raises
    ------
    ValueError
        When an argument is invalid, or no model fits.
    TypeError
        When the model is not one of these estimators.

    Warns
    -----
    TargetWarning
        When a few gross targets carry most of the targets' squares.
    IntegerArithmeticWarning
        When integers clip or move predictions at rows of `X`; see `quantize`.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, fit_quantized
    >>> x = np.linspace(-2.0, 2.0, 200)[:, None]
    >>> small = fit_quantized(DirectRegressor(), x, np.sin(2.0 * x[:, 0]), max_flash=1024)
    >>> small.report()["flash"] <= 1024
    True
    """
    if not hasattr(model, "search_settings"):
        raise TypeError(f"model must be a DirectRegressor or a DirectClassifier, got {type(model).__name__}")
    x = _as_numbers(X)
    weight = as_sample_weight(sample_weight, len(x))
    given = {"max_flash": max_flash, "max_stack": max_stack, "max_instructions": max_instructions}
    limits = {name: as_count(limit, name) for name, limit in given.items() if limit is not None} or {"max_flash": 4096}
    if n_samples is not None and as_count(n_samples, "n_samples") > MOST_SAMPLES:
        raise ValueError(f"n_samples must be at most {MOST_SAMPLES}, got {n_samples}")
    grid = unit_levels(n_levels)
    settings, names = model.search_settings(), tuple(column_names(X) or ())
    task: Task
    with single_blas_thread():
        if settings.classifier is not None:
            task = LabelTask.begin(x, as_numpy(y), weight, settings, names, grid)
        else:
            values = as_numpy(y)
            targets = as_float_array(values, "y", (len(x), "n_outputs") if np.ndim(values) == 2 else (len(x),))
            warn_of_gross(targets.reshape(len(x), -1), "fit without them")
            task = TargetTask.begin(x, targets, weight, settings, names, grid)
        quantised, _ = _search(task, SAMPLES if n_samples is None else (n_samples,), limits)
        warn_of_losses(quantised, x)
        return quantised


def _as_numbers(X: ArrayLike) -> FloatArray:
    """Validate rows of X, (n_rows, n_features_in)."""
    values = np.asarray(as_numpy(X))
    if column_names(X) is not None and values.dtype.kind == "O":
        raise TypeError("X must hold numbers: encode tables with text first, by columns_.encode(X) of a model")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError("X must have no missing numbers: fill them in first, by columns_.encode(X) of a fitted model")
    return as_float_array(values, "X", ("n_rows", "n_features_in"))


Limits = Mapping[str, int]


def _fits(model: QuantizedPredictor, limits: Limits) -> bool:
    model.program.prove()  # or say why there are no integers
    return all(map(le, _needs(model, limits), limits.values()))


def _needs(model: QuantizedPredictor, limits: Limits) -> tuple[int, ...]:
    report = model.report()
    return tuple(report[name.removeprefix("max_")] for name in limits)


@dataclass(frozen=True)
class SmallModel:
    """A kind of basis functions, their number, and that of the samples."""

    family: Family
    size: int
    n_samples: int


@dataclass(frozen=True)
class Judged:
    """What a candidate needs of each limit, and its score."""

    needs: tuple[int, ...]
    score: Score

    def beats(self, other: Judged) -> bool:
        """Return whether this one is better and needs no more of anything."""
        return self.score.loss < other.score.loss and all(map(le, self.needs, other.needs))


def _search(task: Task, counts: Sequence[int], limits: Limits) -> tuple[QuantizedPredictor, Score]:
    """Return the best model within the limits, and its score, which is never worse with more room."""
    order = task.order()
    n_held = int(HELD_OUT * len(order))
    if n_held < FEWEST_HELD_OUT:
        scores = {c: own.score for c, own in _candidates(task, None, counts, limits).items()}
    else:
        n_parts = PARTS if isinstance(task, TargetTask) else 1
        first, *others = [_split(task, order, order[k * n_held : (k + 1) * n_held]) for k in range(n_parts)]
        found = _candidates(*first, counts, limits)
        judged = list(found.values())
        found = {c: own for c, own in found.items() if sum(other.beats(own) for other in judged) < FINALISTS}
        each = [
            {c: held.score(model, c.family.handicap) for c, model in _fitted(part, list(found))}
            for part, held in others
        ]
        scores = {c: Score.mean([own.score, *(part[c] for part in each)]) for c, own in found.items()}
    for candidate in sorted(scores, key=lambda c: scores[c].loss):
        ((_, fitted),) = _fitted(task, [candidate])
        model = scores[candidate].calibrated(fitted)
        if _fits(model, limits):  # all rows may ask for more than a part of them
            return model, scores[candidate]
    raise _no_model(task, counts[0], limits)


def _split(task: Task, order: np.ndarray, held: np.ndarray) -> tuple[Task, Task]:
    rest = order[~np.isin(order, held)]
    return task.restricted(np.sort(rest)), task.restricted(held)


def _fitted(task: Task, wanted: Sequence[SmallModel]) -> Iterator[tuple[SmallModel, QuantizedPredictor]]:
    """Fit models to a task; those of one family, and of one size, stand side by side."""
    for family, same in groupby(wanted, lambda c: c.family):
        own = replace(task, with_points=family.with_points)
        make = proposals(own, family)
        for size, several in groupby(same, lambda c: c.size):
            alike = list(several)
            yield from zip(alike, own.cast(make(size), [c.n_samples for c in alike]), strict=True)


def _candidates(part: Task, held: Task | None, counts: Sequence[int], limits: Limits) -> dict[SmallModel, Judged]:
    """Return the candidates that fit, with their scores; without held-out rows, larger ones are preferred.

    What is tried does not depend on the limits, but for what exceeds them.
    """
    found: dict[SmallModel, Judged] = {}
    for family in families_of(part):
        own = replace(part, with_points=family.with_points)
        make = proposals(own, family)
        losses: list[float] = []
        for size in family.sizes:
            features = make(size)
            if not _fits(own.sketch(features, counts[0]), limits):
                break
            if held is None:
                found[SmallModel(family, size, counts[0])] = Judged((), Score(np.array([-float(size)]), np.ones(1)))
                continue
            scores = []
            for n_samples, model in zip(counts, own.cast(features, counts), strict=True):
                scores.append(held.score(model, family.handicap))
                if _fits(model, limits):
                    found[SmallModel(family, size, n_samples)] = Judged(_needs(model, limits), scores[-1])
            losses.append(min(own.loss for own in scores))
            if len(losses) > PATIENCE and min(losses[-PATIENCE:]) > min(losses[:-PATIENCE]):
                break
    return found


def _no_model(task: Task, n_samples: int, limits: Limits) -> NoModelError:
    """Return the error that says what the smallest model needs."""
    models = [model for _, model in _fitted(task, [SmallModel(f, f.sizes[0], n_samples) for f in families_of(task)])]
    smallest = min(models, key=lambda model: _needs(model, {"max_flash": 0, **limits}))
    needed = dict(zip(limits, _needs(smallest, limits), strict=True))
    return NoModelError(f"limits must hold a model, got {dict(limits)}: the smallest needs about {needed}")
