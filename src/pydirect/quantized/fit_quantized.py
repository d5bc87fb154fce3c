"""`fit_quantized`: the best quantised model within a number of bytes, or of non-zero weights.

Bytes are those of every table that a device stores: scales of the inputs, frequencies, packed level indices, the sine
table, outputs. They are spent on frequencies in three ways: those of a pool of random ones from the kernel's spectral
density that explain most for their bytes, selected one by one; these, moved by marginal likelihood to where they
reproduce the kernel's own posterior mean; and these with random ones beside them, moved. Held-out rows, which the
kernel has seen but frequencies and weights have not, decide between them, on the numbers of samples and of levels, and
by how much standard deviations are too small, as chosen frequencies explain most of the rows that chose them. Samples
are draws of the sequential posterior of the weights of rounded frequencies, for labels about the classifier's own mean.
Outputs and classes share the frequencies and the scales of the weights' levels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_sample_weight, column_names
from pydirect.distributions.categorical import LEVEL_SHAPES
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.codes import unit_levels
from pydirect.quantized.fitted import LinearBasis, Searchable, as_numpy
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.proposals import PROPOSALS, proposed
from pydirect.quantized.quantize import warn_of_losses, with_frequencies
from pydirect.quantized.task import (
    FEWEST_WEIGHTS,
    FORMS,
    MOST_SAMPLES,
    UNLIMITED,
    Form,
    LabelTask,
    SizeLimits,
    TargetTask,
    Task,
)


def fit_quantized(
    model: Searchable,
    X: ArrayLike,
    y: ArrayLike,
    *,
    max_bytes: int | None = None,
    max_nonzero: int | None = None,
    n_samples: int | None = None,
    levels: str = "even",
    n_levels: int | None = None,
    feature_bits: int = 16,
    frequency_bits: int = 8,
    sample_weight: ArrayLike | None = None,
) -> QuantizedPredictor:
    """Fit the best quantised model within a number of bytes, or of non-zero weights.

    Parameters
    ----------
    model : DirectRegressor or DirectClassifier
        Fitted or not; only its parameters ``n_threads``, ``random_state``, ``max_search_rows`` (of `Nystroem`) and, for
        a classifier, ``class_weight`` are used. Other features, posteriors, kinds of noise, bounds or columns are
        refused; sizes follow from the budget.
    X : array_like of shape (n_rows, n_features_in)
        A fifth of the rows is held out to compare models; the model that is returned is fitted to all of them. The
        scales of the columns and the kernel are fitted once, to all rows, and so is the classifier whose logits choose
        frequencies: only frequencies and weights are compared. Repeated rows are merged, except for labels: copies of
        a row may be on both sides.
    y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        Outputs share basis functions; so do classes, of which each is separated from the rest when there are more than
        two.
    max_bytes : int, optional
        Bytes of everything that a device stores except code; see ``report()`` of the result. 4096 when neither this
        nor `max_nonzero` is given.
    max_nonzero : int, optional
        Largest number of non-zero weights of all outputs in a sample, on average over the samples; at least 3 per
        output.
    n_samples : int, optional
        Number of posterior samples, 1 to 16; by default 1, 2 or 4, as held-out rows decide, and more where bytes are
        left. A single one is the vector of most probable levels.
    levels : {"even", "power_of_two"}, default="even"
        As of `DirectRegressor`.
    n_levels : int, optional
        3 to 255, odd; by default 15 or 7, as held-out rows decide.
    feature_bits : {16, 8}, default=16
        Bits of a basis function in integer arithmetic.
    frequency_bits : {8, 16}, default=8
        Bits of a frequency. Weights are fitted for the rounded frequencies.
    sample_weight : array_like of shape (n_rows,), optional
        How many times each row counts.

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier
        With ``arithmetic="integer"``.

    Raises
    ------
    ValueError
        When an argument is invalid, or no model fits into the bytes.
    TypeError
        When the model is not one of these estimators.

    Warns
    -----
    IntegerArithmeticWarning
        When integers clip or move predictions at rows of `X`; see `quantize`.
    """
    if not hasattr(model, "search_settings"):
        raise TypeError(f"model must be a DirectRegressor or a DirectClassifier, got {type(model).__name__}")
    x = as_float_array(as_numpy(X), "X", ("n_rows", "n_features_in"))
    weight = as_sample_weight(sample_weight, len(x))
    if max_bytes is None and max_nonzero is None:
        max_bytes = 4096
    if max_bytes is not None:
        as_count(max_bytes, "max_bytes")
    if max_nonzero is not None:
        as_count(max_nonzero, "max_nonzero", FEWEST_WEIGHTS)
    if n_samples is not None and as_count(n_samples, "n_samples") > MOST_SAMPLES:
        raise ValueError(f"n_samples must be at most {MOST_SAMPLES}, got {n_samples}")
    as_choice(levels, "levels", tuple(LEVEL_SHAPES))
    grids = {n: unit_levels(levels, n) for n in ((15, 7) if n_levels is None else (n_levels,))}
    for name, bits in (("feature_bits", feature_bits), ("frequency_bits", frequency_bits)):
        if as_count(bits, name) not in (8, 16):
            raise ValueError(f"{name} must be 8 or 16, got {bits}")
    settings, names = model.search_settings(), tuple(column_names(X) or ())
    task: Task
    with single_blas_thread():
        if settings.classifier is not None:
            task = LabelTask.begin(x, as_numpy(y), weight, settings, names)
        else:
            task = TargetTask.begin(x, _as_targets(y, len(x)), weight, settings, names)
        if max_nonzero is not None:
            as_count(max_nonzero, "max_nonzero", FEWEST_WEIGHTS * task.n_outputs)
        limits = SizeLimits(
            UNLIMITED if max_bytes is None else max_bytes,
            UNLIMITED if max_nonzero is None else max_nonzero / task.n_outputs,
        )
        # Those of the forms that are left when a number is given, without repetitions.
        asked = dict.fromkeys((n_samples or count, n_levels or n) for count, n in FORMS)
        forms = [Form(s, grids[n], feature_bits, frequency_bits, task.n_outputs) for s, n in asked]
        quantised = _search(task, forms, limits, more_samples=n_samples is None)
        warn_of_losses(quantised, x)
        return quantised


def _search(task: Task, forms: list[Form], limits: SizeLimits, *, more_samples: bool) -> QuantizedPredictor:
    """Return the best model within the limits, with more samples if there is room for them."""
    least = [form.costs(task.input_map).least for form in forms]
    if limits.n_bytes < min(least):
        raise ValueError(
            f"max_bytes must be at least about {min(least):.0f} for {task.outputs.n_features_in} columns and "
            f"{forms[0].n_samples} samples, got {limits.n_bytes}"
        )
    fitting = [form for form, n_bytes in zip(forms, least, strict=True) if n_bytes <= limits.n_bytes]
    form, features, calibration = best_proposal(task, fitting, limits)
    quantised = cast_within(task, features, form, limits)
    while more_samples and 2 * form.n_samples <= MOST_SAMPLES:
        form = replace(form, n_samples=2 * form.n_samples)  # bytes that frequencies do not need
        if quantised.n_bytes + quantised.packed.n_bytes > limits.n_bytes:
            break
        more = task.cast(features, form)
        if max(limits.excess(more)) > 0:
            break
        quantised = more
    return replace(quantised, calibration=calibration)


def _as_targets(y: ArrayLike, n_rows: int) -> FloatArray:
    """Validate targets, (n_rows,) or (n_rows, n_outputs)."""
    values = as_numpy(y)
    return as_float_array(values, "y", (n_rows, "n_outputs") if np.ndim(values) == 2 else (n_rows,))


# Fraction of the rows that is held out to compare proposals.
HELD_OUT = 0.2
FEWEST_HELD_OUT = 8
# Rounds of dropping frequencies while a model is too large.
MOST_ROUNDS = 20


class NoModelError(ValueError):
    """No model fits into the limits."""


def best_proposal(task: Task, forms: list[Form], limits: SizeLimits) -> tuple[Form, FourierFeatures, float]:
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


def cast_within(task: Task, features: FourierFeatures, form: Form, limits: SizeLimits) -> QuantizedPredictor:
    """Cast a model, dropping the frequencies with the smallest weights while it is too large."""
    costs = form.costs(task.input_map)
    for _ in range(MOST_ROUNDS):
        quantised = task.cast(features, form)
        excess, surplus = limits.excess(quantised)
        if excess <= 0 and surplus <= 0:
            return quantised
        drop = max(int(np.ceil(max(excess / costs.frequency, surplus / 2))), 1)
        basis = quantised.basis
        assert isinstance(basis, LinearBasis)
        fourier = basis.features.map
        assert isinstance(fourier, FourierFeatures)
        f, size = fourier.n_frequencies, np.zeros(fourier.n_weights)
        if drop >= f:
            break
        size[basis.order] = np.square(quantised.weights).sum(axis=(0, 1))
        pairs = fourier.amplitudes**2 * (size[:f] + size[f : 2 * f])
        features = with_frequencies(fourier, np.sort(np.argsort(-pairs, kind="stable")[: f - drop]))
    raise NoModelError(
        f"max_bytes and max_nonzero must hold a model, got {limits.n_bytes} bytes and {limits.n_weights:g} weights per "
        "output, too few for one"
    )
