"""`fit_within`: the best quantised model of so many bytes, or of so many weights that are not zero.

Bytes are those of every table that a device stores: inputs' scales, frequencies, packed level indices, the sine table,
outputs. They are spent on frequencies in three ways: random ones of the kernel's spectral density; those of a larger
pool that explain most for their bytes, taken up one by one; and random ones moved by marginal likelihood to where they
reproduce the kernel's own posterior mean. Rows that are held out, from frequencies and weights though not from the
kernel, say which, and how many samples. The exact posterior of the weights of rounded frequencies, of labels a
classifier's own, is then cast into a few samples on a lattice of levels that all weights of an output share. Outputs
and classes share the frequencies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator, as_sample_weight
from pydirect.distributions.levels import LEVEL_SHAPES
from pydirect.quantized.budget.costs import FEWEST_WEIGHTS, MOST_SAMPLES, UNLIMITED, Form, Limits, samples_for
from pydirect.quantized.budget.labels import LabelTask
from pydirect.quantized.budget.task import Task
from pydirect.quantized.levels import unit_levels
from pydirect.quantized.losses import warn_of_losses
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.rows import as_numpy, column_names


def fit_within(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    max_bytes: int | None = None,
    max_nonzero: int | None = None,
    n_samples: int | None = None,
    levels: str = "even",
    n_levels: int = 15,
    feature_bits: int = 16,
    frequency_bits: int = 8,
    sample_weight: ArrayLike | None = None,
) -> QuantizedPredictor:
    """Fit the best quantised model of at most so many bytes, or of at most so many weights that are not zero.

    Parameters
    ----------
    model : DirectRegressor or DirectClassifier
        Not used but for its parameters ``max_hyperparameter_rows``, ``n_threads``, ``random_state`` and, of a
        classifier, ``class_weight``; fitted or not.
    X : array_like of shape (n_rows, n_features_in)
        A fifth of the rows is held out to compare models; the one that is returned is fitted to all of them. Columns'
        scales and the kernel are fitted once, to all rows, and so is the classifier whose logits choose frequencies:
        the comparison is between frequencies and weights alone. Repeated rows are merged, but not those of labels:
        copies of one may be held out and kept.
    y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        Outputs share basis functions; so do classes, each of which is told from the rest when there are more than two.
    max_bytes : int, optional
        Of everything that a device stores but code; see ``report()`` of the result. 4096 when neither this nor
        `max_nonzero` is given.
    max_nonzero : int, optional
        Weights that are not zero in a sample, of all outputs, at most, on average over the samples; 3 or more for
        every output.
    n_samples : int, optional
        Posterior samples, 2 to 16; by default from 4, when bytes are few, to 16, as rows that are held out say.
    levels : {"even", "power_of_two"}, default="even"
    n_levels : int, default=15
        3 to 255, odd.
    feature_bits : {16, 8}, default=16
    frequency_bits : {8, 16}, default=8
        Of a frequency. Weights are fitted to the rounded ones.
    sample_weight : array_like of shape (n_rows,), optional

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier
        With ``arithmetic="integer"``.

    Raises
    ------
    ValueError
        When an argument is not as described, or so few bytes hold no model.
    TypeError
        When the model is not one of these estimators.

    Warns
    -----
    IntegerArithmeticWarning
        When integers lose rows of `X`; see `quantize`.
    """
    if not hasattr(model, "max_hyperparameter_rows") or not hasattr(model, "quantize"):
        raise TypeError(f"model must be a DirectRegressor or a DirectClassifier, got {type(model).__name__}")
    x = as_float_array(as_numpy(X), "X", ("n_rows", "n_features_in"))
    weight = as_sample_weight(sample_weight, len(x))
    if max_bytes is None and max_nonzero is None:
        max_bytes = 4096
    if max_bytes is not None:
        as_count(max_bytes, "max_bytes")
    if max_nonzero is not None:
        as_count(max_nonzero, "max_nonzero", FEWEST_WEIGHTS)
    if n_samples is not None and as_count(n_samples, "n_samples", 2) > MOST_SAMPLES:
        raise ValueError(f"n_samples must be at most {MOST_SAMPLES}, got {n_samples}")
    as_choice(levels, "levels", tuple(LEVEL_SHAPES))
    grid = unit_levels(levels, n_levels)
    for name, bits in (("feature_bits", feature_bits), ("frequency_bits", frequency_bits)):
        if as_count(bits, name) not in (8, 16):
            raise ValueError(f"{name} must be 8 or 16, got {bits}")
    n_threads = resolve_n_threads(model.n_threads)
    rng = as_generator(model.random_state if not hasattr(model.random_state, "randint") else 0)
    with single_blas_thread():
        task: Task
        if hasattr(model, "bound"):
            task = LabelTask.begin(x, as_numpy(y), weight, model, rng, n_threads)
        else:
            task = Task.begin(x, as_targets(y, len(x)), weight, model, rng, n_threads)
        n_outputs = task.y.shape[1]
        if max_nonzero is not None:
            as_count(max_nonzero, "max_nonzero", FEWEST_WEIGHTS * n_outputs)
        limits = Limits(
            UNLIMITED if max_bytes is None else max_bytes,
            UNLIMITED if max_nonzero is None else max_nonzero / n_outputs,
        )
        counts = samples_for(limits.n_bytes // n_outputs) if n_samples is None else (n_samples,)
        forms = [Form(count, grid, feature_bits, frequency_bits, n_outputs) for count in counts]
        least = min(_least_bytes(task, form) for form in forms)
        if limits.n_bytes < least:
            raise ValueError(
                f"max_bytes must be at least about {least:.0f} for {x.shape[1]} columns and {counts[0]} samples, got "
                f"{max_bytes}"
            )
        fitting = [form for form in forms if _least_bytes(task, form) <= limits.n_bytes]
        form, proposal = task.best(fitting, limits)
        features = task.proposed(proposal.name, form, limits, proposal.features)
        quantised = task.cast_within(features, form, limits)
        while n_samples is None and 2 * form.n_samples <= MOST_SAMPLES:
            form = replace(form, n_samples=2 * form.n_samples)  # what frequencies do not need
            if quantised.n_bytes + quantised.packed.n_bytes > limits.n_bytes:
                break
            more = task.cast(features, form)
            if max(limits.excess(more)) > 0:
                break
            quantised = more
        quantised = replace(quantised, feature_names=column_names(X))
        warn_of_losses(quantised, x)
        return quantised


def as_targets(y: ArrayLike, n_rows: int) -> FloatArray:
    """Return targets as an array, (n_rows,) or (n_rows, n_outputs)."""
    values = as_numpy(y)
    return as_float_array(values, "y", (n_rows, "n_outputs") if np.ndim(values) == 2 else (n_rows,))


def _least_bytes(task: Task, form: Form) -> float:
    """Bytes of a model of one frequency and a constant."""
    costs = form.costs(task.input_map)
    return costs.fixed + costs.frequency + costs.single
