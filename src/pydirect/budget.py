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

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve
from scipy.special import expit

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator, as_sample_weight
from pydirect.decorrelated import (
    DecorrelatedPosterior,
    RotatedStatistics,
    decorrelate,
    fit_decorrelated,
    maximise_evidence,
)
from pydirect.distributions import LEVEL_SHAPES
from pydirect.features import FourierFeatures, random_fourier_features
from pydirect.hyperparameters import KernelHyperparameters, distinct_rows, fit_hyperparameters
from pydirect.inputs import InputMap, weighted_location_scale
from pydirect.logistic_hyperparameters import LOGIT_UNIT
from pydirect.quantized.models import (
    LinearBasis,
    QuantizedClassifier,
    QuantizedModel,
    QuantizedRegressor,
    as_numpy,
    column_names,
)
from pydirect.quantized.packing import PackedCodes, bits_for
from pydirect.quantized.program import (
    INPUT_LIMIT,
    INPUT_UNIT,
    OutputScale,
    build_program,
    lay_out,
    quantise_frequencies,
)
from pydirect.quantized.quantize import (
    centred,
    rounded_on_best_scale,
    sample_targets,
    unit_levels,
    warn_of_losses,
    without_unused,
)
from pydirect.quantized.tables import program_bytes
from pydirect.sparse_spectrum import SMALLEST_NOISE, optimised_frequencies
from pydirect.statistics import GaussianStatistics, collect_statistics

POOL = 768
MOST_SELECTION_ROWS = 6000
# Frequencies that are moved, at most, and so many for a row; steps, from random ones and from those already moved.
MOST_MOVED = 256
MOVED_A_ROW = 0.5
STEPS = (30, 10)
# Rows at which moved frequencies reproduce the kernel's posterior mean: training rows, and points between two of them.
MOST_ROWS = 600
WEIGHT_BETWEEN = 0.3
# Eight bits for a frequency go up to so many times the median magnitude of an input's frequencies.
LARGEST_FREQUENCY = 8.0
# Of the rows, to compare proposals.
HELD_OUT = 0.2
FEWEST_HELD_OUT = 8
# A column is taken when the squared error falls by more than so many noise variances (Akaike's criterion).
FALL_OF_A_WEIGHT = 2.0
MOST_SAMPLES = 16
MOST_FREQUENCIES = 512
# Prior variances tried, each a part of the one before, while the lattice loses more than the noise.
NARROWER_PRIORS = 5
NARROWING = 10.0
# Of the classifier whose logits choose frequencies, and the least p(1 − p) that divides.
REFERENCE_FEATURES = 512
LEAST_CURVATURE = 0.02
PROPOSALS = ("random", "selected", "optimised")
# Three weights that are not zero are a frequency and a constant.
FEWEST_WEIGHTS = 3
UNLIMITED = 2**40
# Of the target's standard deviation: its square must stay finite.
LARGEST_SCALE = 1e150
# Rounds of taking away frequencies while a model is too large.
MOST_ROUNDS = 20


class NoModelError(ValueError):
    """Nothing is left of a model that is made to fit."""


@dataclass(frozen=True)
class Costs:
    """Bytes of the parts of a model.

    Attributes
    ----------
    fixed : float
    frequency, single : float
        Of a frequency with its two weights, and of an input or the constant with its one, in all samples.
    """

    fixed: float
    frequency: float
    single: float


@dataclass(frozen=True)
class Form:
    """What a model is made of, whatever its size.

    Attributes
    ----------
    n_samples : int
    grid : ndarray of shape (n_levels,)
    feature_bits, frequency_bits : int
    n_outputs : int
    """

    n_samples: int
    grid: FloatArray
    feature_bits: int
    frequency_bits: int
    n_outputs: int = 1

    @property
    def n_columns(self) -> int:
        """Samples of all outputs."""
        return self.n_outputs * self.n_samples

    @property
    def zero(self) -> int:
        """Code of the level zero."""
        return int(np.flatnonzero(self.grid == 0.0)[0])

    def costs(self, input_map: InputMap) -> Costs:
        """Return costs by the tables of models of one and two frequencies, with and without an input."""
        d = input_map.n_outputs
        one, two, more = (self._bytes(input_map, f, linear) for f, linear in ((1, 0), (2, 0), (1, 1)))
        constant = self.n_columns * bits_for(len(self.grid)) / 8
        return Costs(one - (two - one) - constant, two - one, more - one) if d else Costs(one, 0.0, 0.0)

    def _bytes(self, input_map: InputMap, n_frequencies: int, n_linear: int) -> float:
        linear = np.zeros(input_map.n_outputs)
        linear[:n_linear] = 0.5
        features = FourierFeatures(np.ones((len(linear), n_frequencies)), np.ones(n_frequencies), linear, 0.3)
        used = np.ones(features.n_weights, dtype=bool)
        layout = lay_out(features, used)
        codes = np.zeros((len(layout.order), self.n_columns), dtype=np.uint8)
        one = np.ones(self.n_outputs)
        program = build_program(
            input_map,
            features,
            layout,
            codes,
            self.grid,
            self.n_samples,
            OutputScale(one, one, one),
            feature_bits=self.feature_bits,
            frequency_bits=self.frequency_bits,
        )
        return sum(program_bytes(program).values()) + codes.size * bits_for(len(self.grid)) / 8


@dataclass(frozen=True)
class Limits:
    """What a model may take.

    Attributes
    ----------
    n_bytes, n_weights : int
        Weights of an output.
    """

    n_bytes: int
    n_weights: float

    def excess(self, model: QuantizedModel) -> tuple[float, float]:
        """Bytes, and an output's weights that are not zero in a sample, beyond what is allowed."""
        weights = float(model.report()["n_nonzero"]) / model.packed.shape[1]
        return model.n_bytes - self.n_bytes, weights - self.n_weights


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
) -> QuantizedModel:
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
        task: _Task
        if hasattr(model, "bound"):
            task = _LabelTask.begin(x, as_numpy(y), weight, model, rng, n_threads)
        else:
            task = _Task.begin(x, as_targets(y, len(x)), weight, model, rng, n_threads)
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


def samples_for(max_bytes: int) -> tuple[int, ...]:
    """Return numbers of samples to try in so many bytes: few when bytes are."""
    return (4,) if max_bytes < 1024 else (4, 8) if max_bytes <= 4096 else (8, 16)


def _least_bytes(task: _Task, form: Form) -> float:
    """Bytes of a model of one frequency and a constant."""
    costs = form.costs(task.input_map)
    return costs.fixed + costs.frequency + costs.single


@dataclass(frozen=True)
class _Proposal:
    """A kind of frequencies, and those of it that were compared."""

    name: str
    features: FourierFeatures | None


def rounded_frequencies(features: FourierFeatures, bits: int) -> FourierFeatures:
    """Return features whose frequencies are exactly what `quantise_frequencies` makes of them."""
    unit = np.full(features.n_features_in, INPUT_UNIT)
    integers, shift = quantise_frequencies(features.frequencies / (2 * np.pi), unit, bits)
    turns = integers.T * 2.0 ** shift.astype(np.float64)[:, None] / 2.0**32 / INPUT_UNIT
    return replace(features, frequencies=np.ascontiguousarray(2 * np.pi * turns))


def within_reach(features: FourierFeatures) -> FourierFeatures:
    """Cut off frequencies far beyond the others: few bits for each are to tell most of them apart."""
    size = np.abs(features.frequencies)
    typical = np.median(size, axis=1)
    largest = LARGEST_FREQUENCY * np.where(typical > 0, typical, size.max(axis=1))[:, None]
    return replace(features, frequencies=np.clip(features.frequencies, -largest, largest))


def mapped_inputs(x: FloatArray, weight: FloatArray | None) -> tuple[InputMap, FloatArray]:
    """Return the map that standardises columns, and its values, cut off where integers end."""
    input_map = InputMap.fit(x, weight, rank=False)
    if input_map.n_outputs == 0:
        raise ValueError("X must have a column that varies")
    reach = INPUT_LIMIT * INPUT_UNIT
    return input_map, np.clip(input_map.transform(x), -reach, reach)


@dataclass(frozen=True)
class _Posterior:
    """Of the weights of one output, in units of the prior standard deviation; noise and prior variance."""

    fit: DecorrelatedPosterior
    noise: float
    variance: float

    @classmethod
    def of(cls, rotated: RotatedStatistics, noise: float, variance: float, output: int) -> _Posterior:
        """Return the exact posterior."""
        fit = fit_decorrelated(rotated.scaled(variance), noise, output=output, n_noise_levels=1)
        return cls(fit, noise, variance)


@dataclass(frozen=True)
class _Cast:
    """Codes of one output's samples, their unit, the noise variance, and the mean square of the mean's errors."""

    codes: NDArray[np.uint8]
    unit: float
    noise: float
    error: float


@dataclass(frozen=True)
class _Task:
    """Data as features see them, with what is known of the kernel."""

    input_map: InputMap
    inputs: FloatArray  # cut off where integers end
    y: FloatArray  # standardised, (n_rows, n_outputs)
    weight: FloatArray | None
    y_mean: FloatArray
    y_scale: FloatArray
    one_dimensional: bool
    hyperparameters: KernelHyperparameters
    rng: np.random.Generator
    n_threads: int

    @classmethod
    def begin(
        cls,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray | None,
        model: Any,
        rng: np.random.Generator,
        n_threads: int,
    ) -> _Task:
        one_dimensional = y.ndim == 1
        x, y, merged = distinct_rows(x, y.reshape(len(x), -1), weight)
        weight = None if (merged == 1).all() else merged
        mean, scale = weighted_location_scale(y, weight)
        scale = np.where(scale == 0, 1.0, scale)
        if not ((1 / LARGEST_SCALE < scale) & (scale < LARGEST_SCALE)).all():
            raise ValueError(f"y must vary by less than {LARGEST_SCALE:g} and more than its inverse, got {scale}")
        standardised = np.ascontiguousarray((y - mean) / scale)
        input_map, inputs = mapped_inputs(x, weight)
        hyper = fit_hyperparameters(
            inputs,
            standardised,
            weight,
            input_map.n_standardised,
            rng,
            max_rows=model.max_hyperparameter_rows,
            n_threads=n_threads,
        )
        return cls(input_map, inputs, standardised, weight, mean, scale, one_dimensional, hyper, rng, n_threads)

    def _subset(self, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.rows(np.sort(self.rng.permutation(len(self.y))[:most]))

    def rows(self, chosen: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return inputs, target and weight of some rows."""
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        return np.ascontiguousarray(self.inputs[chosen]), self.y[chosen], weight[chosen]

    def restricted(self, chosen: NDArray[np.intp]) -> _Task:
        """Return the task on some of the rows."""
        x, y, weight = self.rows(chosen)
        return replace(self, inputs=x, y=y, weight=weight)

    def statistics(self, features: FourierFeatures) -> GaussianStatistics:
        """Return the sums over all rows."""
        return collect_statistics(features, self.inputs, self.y, self.weight, n_threads=self.n_threads)

    def order(self) -> NDArray[np.intp]:
        """Rows at random: the first of them are held out."""
        return self.rng.permutation(len(self.y))

    # --- which frequencies, and how many samples

    def best(self, forms: list[Form], limits: Limits) -> tuple[Form, _Proposal]:
        """Compare proposals on rows that are held out, with the most samples; then numbers of samples with the best.

        Columns' scales and the kernel, or a classifier's logits, are those of all rows; all else is of the others.
        """
        order = self.order()
        n_held = int(HELD_OUT * len(order))
        if n_held < FEWEST_HELD_OUT:
            return forms[-1], _Proposal("random", None)
        part, held = self.restricted(np.sort(order[n_held:])), self.restricted(order[:n_held])
        found: list[tuple[float, Form, _Proposal]] = []
        for name in PROPOSALS:
            features = part.proposed(name, forms[-1], limits)
            found.append((part.error(features, forms[-1], limits, held), forms[-1], _Proposal(name, features)))
        best = min(found, key=lambda f: f[0])
        for form in forms[:-1]:
            features = part.proposed(best[2].name, form, limits, best[2].features)
            found.append((part.error(features, form, limits, held), form, _Proposal(best[2].name, features)))
        _, form, proposal = min(found, key=lambda f: f[0])
        return form, proposal

    def error(
        self,
        features: FourierFeatures,
        form: Form,
        limits: Limits,
        held: _Task,
    ) -> float:
        """Loss of a cast model at rows that are held out; infinite when there is no model of these frequencies."""
        try:
            return held.loss(self.cast_within(features, form, limits))
        except NoModelError:
            return np.inf

    def sample_functions(self, model: QuantizedModel) -> FloatArray:
        """Functions of a model's samples at all rows without its offset, (n_rows, n_outputs, n_samples)."""
        assert isinstance(model.basis, LinearBasis)
        phi = model.basis.features.transform(self.inputs)[:, model.basis.order]
        return np.einsum("ij,ksj->iks", phi, model.weights, optimize=True)

    def loss(self, model: QuantizedModel) -> float:
        """Mean square of the errors, standardised, over all rows and outputs."""
        errors = self.y - self.sample_functions(model).mean(axis=2) / self.y_scale
        weight = self.rows(np.arange(len(self.y)))[2]
        return float(weight @ (errors**2).mean(axis=1) / weight.sum())

    def proposed(self, name: str, form: Form, limits: Limits, start: FourierFeatures | None = None) -> FourierFeatures:
        """Return features of one kind, of about so many bytes, with rounded frequencies."""
        costs = form.costs(self.input_map)
        if name == "selected":
            features = self.select(costs, limits, form.frequency_bits)
        else:
            features = self.drawn(costs, limits, start)
            if name == "optimised":
                features = self.moved(features, 0 if start is None else start.n_frequencies)
        return rounded_frequencies(features, form.frequency_bits)

    def drawn(self, costs: Costs, limits: Limits, start: FourierFeatures | None) -> FourierFeatures:
        """Draw random frequencies that fill the limits, beside those of a start, with all inputs and the constant."""
        d = self.inputs.shape[1]
        linear = costs.fixed + (d + 1) * costs.single + costs.frequency <= limits.n_bytes and d + 3 <= limits.n_weights
        singles = d * linear + 1
        room = (limits.n_bytes - costs.fixed - singles * costs.single) / costs.frequency
        n = max(int(min(room, (limits.n_weights - singles) / 2, self.most_frequencies)), 1)
        drawn = random_fourier_features(self.hyperparameters, n, self.rng)
        assert drawn.linear_scale is not None
        drawn = within_reach(replace(drawn, linear_scale=linear * drawn.linear_scale))
        if start is None:
            return drawn
        kept = min(start.n_frequencies, n)
        frequencies = np.hstack([start.frequencies[:, :kept], drawn.frequencies[:, kept:]])
        return replace(drawn, frequencies=np.ascontiguousarray(frequencies))

    @property
    def most_frequencies(self) -> int:
        """Frequencies beyond which no model of these rows gains."""
        return min(max(len(self.y), 16), MOST_FREQUENCIES)

    def moved(self, features: FourierFeatures, n_moved_before: int) -> FourierFeatures:
        """Move frequencies, some of them when there are many, so that they give the kernel's posterior mean."""
        f = features.n_frequencies
        n = min(f, MOST_MOVED, max(int(MOVED_A_ROW * len(self.y)), 1))
        chosen = np.linspace(0, f - 1, n).astype(np.intp)  # evenly over the parts of the spectrum, the same ones again
        own = replace(
            features,
            frequencies=np.ascontiguousarray(features.frequencies[:, chosen]),
            amplitudes=np.sqrt(f / n) * features.amplitudes[chosen],
        )
        noise, largest = self.hyperparameters.noise_variance, np.abs(features.frequencies).max(axis=1)
        own = optimised_frequencies(own, noise, *self.reproduced(), largest, STEPS[n_moved_before >= n])
        frequencies = features.frequencies.copy()
        frequencies[:, chosen] = own.frequencies
        return replace(features, frequencies=frequencies)

    def reproduced(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows, between them as well as at them, with the kernel's posterior mean."""
        x, y, weight = self._subset(MOST_ROWS)
        first, second = self.rng.integers(0, len(x), (2, len(x)))
        share = self.rng.random((len(x), 1))
        rows = np.ascontiguousarray(np.vstack([x, share * x[first] + (1 - share) * x[second]]))
        covariance = self.hyperparameters.covariance(x, x, self.n_threads)
        covariance[np.diag_indices_from(covariance)] += self.hyperparameters.noise_variance * weight.mean() / weight
        alpha = solve(covariance, y, assume_a="pos")
        mean = self.hyperparameters.covariance(rows, x, self.n_threads) @ alpha
        return rows, mean, np.concatenate([weight / weight.mean(), np.full(len(x), WEIGHT_BETWEEN)])

    def select(self, costs: Costs, limits: Limits, frequency_bits: int) -> FourierFeatures:
        """Take up frequencies, inputs and the constant by what each explains a byte, while there are bytes."""
        pool = within_reach(random_fourier_features(self.hyperparameters, POOL, self.rng))
        pool = rounded_frequencies(pool, frequency_bits)
        x, y, weight = self._subset(MOST_SELECTION_ROWS)
        statistics = collect_statistics(pool, x, y, weight, n_threads=self.n_threads)
        noise = self.hyperparameters.noise_variance  # and one is the prior variance of every weight
        chosen, singles = forward_selection(
            statistics.A,
            statistics.c,
            noise,
            POOL,
            costs,
            limits.n_bytes,
            limits.n_weights,
            FALL_OF_A_WEIGHT * noise * self.y.shape[1],
        )
        assert pool.linear_scale is not None
        linear = np.isin(np.arange(self.inputs.shape[1]), singles)
        return FourierFeatures(
            np.ascontiguousarray(pool.frequencies[:, chosen]),
            pool.amplitudes[chosen],
            np.where(linear, pool.linear_scale, 0.0),
            pool.constant,
        )

    # --- weights

    def posteriors(self, rotated: RotatedStatistics) -> list[_Posterior]:
        """Exact posteriors of continuous weights, noise and prior variance by evidence, for every output."""
        # Columns chosen for what they explain make the evidence an optimist; the kernel knows the noise without them.
        least = max(self.hyperparameters.noise_variance, SMALLEST_NOISE)
        found = []
        for k in range(self.y.shape[1]):
            noise, variance = maximise_evidence(rotated, least, output=k)
            if noise < least:
                noise, variance = maximise_evidence(rotated, least, variance, output=k, fit_noise=False)
            found.append(_Posterior.of(rotated, noise, variance, k))
        return found

    def without_weakest(self, features: FourierFeatures, count: int) -> FourierFeatures:
        """Drop the frequencies with the smallest weights."""
        f, size = features.n_frequencies, np.zeros(features.n_frequencies)
        for p in self.posteriors(decorrelate(self.statistics(features))):
            weights = p.fit.coefficients[: 2 * f].reshape(2, f)
            size += p.variance * ((features.amplitudes * weights) ** 2).sum(axis=0)
        kept = np.sort(np.argsort(-size, kind="stable")[: f - count])
        return replace(
            features,
            frequencies=np.ascontiguousarray(features.frequencies[:, kept]),
            amplitudes=features.amplitudes[kept],
        )

    def cast_within(self, features: FourierFeatures, form: Form, limits: Limits) -> QuantizedModel:
        """Cast, without the weakest frequencies while the model is too large."""
        costs = form.costs(self.input_map)
        for _ in range(MOST_ROUNDS):
            quantised = self.cast(features, form)
            excess, surplus = limits.excess(quantised)
            if excess <= 0 and surplus <= 0:
                return quantised
            drop = max(int(np.ceil(max(excess / costs.frequency, surplus / 2))), 1)
            if drop >= features.n_frequencies:
                break
            features = self.without_weakest(features, drop)
        raise NoModelError(
            f"max_bytes and max_nonzero must hold a model, got {limits.n_bytes} bytes and {limits.n_weights:g} weights "
            "for an output, too few for one"
        )

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedModel:
        """Cast the posteriors into samples on a lattice."""
        statistics = self.statistics(features)
        rotated = decorrelate(statistics)
        cast = [self._cast_one(statistics, rotated, p, k, form) for k, p in enumerate(self.posteriors(rotated))]
        return QuantizedRegressor(
            scale=np.array([c.unit for c in cast]) * self.y_scale,
            offset=self.y_mean,
            noise=np.array([c.noise for c in cast]) * self.y_scale**2,
            **self._packed(features, np.vstack([c.codes for c in cast]), form),
        )

    def _cast_one(
        self, statistics: GaussianStatistics, rotated: RotatedStatistics, p: _Posterior, output: int, form: Form
    ) -> _Cast:
        """Cast one output's posterior, under a narrower prior where weights that cancel are beyond the lattice."""
        a, c, n = statistics.A, statistics.c[:, output], statistics.n_samples
        found: list[_Cast] = []
        for _ in range(NARROWER_PRIORS):
            scale = np.sqrt(p.variance)
            mean = scale * p.fit.coefficients
            targets = centred(scale * p.fit.sample_weights(form.n_samples, self.rng), mean)
            metric = statistics.A.copy()
            metric[np.diag_indices_from(metric)] += p.noise / p.variance
            chosen, unit = rounded_on_best_scale(targets, form.grid, metric)
            values = unit * form.grid[chosen]
            middle = values.mean(axis=0)
            # What the lattice takes away from the spread over the samples, on average over the rows, is added to the
            # noise.
            spread = self._mean_variance(values - middle, statistics)
            wanted = self._mean_variance(targets - mean, statistics)
            misfit = float((middle - mean) @ a @ (middle - mean)) / n
            error = float(statistics.yty[output] - 2 * c @ middle + middle @ a @ middle) / n
            found.append(_Cast(chosen, unit, p.noise + max(wanted + misfit - spread, 0.0), error))
            if misfit <= p.noise:
                break
            p = _Posterior.of(rotated, p.noise, p.variance / NARROWING, output)
        return min(found, key=lambda f: f.error)

    def _packed(self, features: FourierFeatures, codes: NDArray[np.uint8], form: Form) -> dict[str, Any]:
        """Fields of a model of these codes, (n_outputs · n_samples, n_weights), but for its units."""
        layout = lay_out(features, (codes != form.zero).any(axis=0))
        none = np.zeros(form.n_outputs)
        basis = LinearBasis(
            self.input_map,
            features,
            layout.order,
            None,
            INPUT_LIMIT * INPUT_UNIT,
            None,
            0.0,
            none,
            none,
            np.zeros(form.n_outputs + 1, dtype=np.intp),
        )
        one = np.ones((1, 1))
        packed = np.ascontiguousarray(codes.T[layout.order])
        return {
            "basis": without_unused(basis),
            "packed": PackedCodes.pack(packed, bits_for(len(form.grid)), form.zero),
            "levels": form.grid,
            "centre": 0 * one,
            "spread": one,
            "calibration": 1.0,
            "n_features_in": len(self.input_map.mean),
            "one_dimensional": self.one_dimensional,
            "feature_bits": form.feature_bits,
            "frequency_bits": form.frequency_bits,
            "arithmetic": "integer",
        }

    def _mean_variance(self, deviations: FloatArray, statistics: GaussianStatistics) -> float:
        """Mean over rows and samples of the squares of functions with these weights."""
        squares = np.einsum("sj,jk,sk->", deviations, statistics.A, deviations, optimize=True)
        return float(squares) / len(deviations) / statistics.n_samples


@dataclass(frozen=True)
class _LabelTask(_Task):
    """Labels instead of targets.

    Frequencies are chosen for working responses: with z the logits and p the probabilities of a classifier of random
    frequencies, ``z + (t − p)/v`` at rows of weight v, the mean of p(1 − p) over the problems, has the gradient of the
    log-likelihood there (iteratively reweighted least squares). Weights are those of the classifier's own fit.
    """

    index: NDArray[np.intp]  # of each row's class
    classes: NDArray[Any]
    row_weight: FloatArray
    make: Callable[[str, int], Any]  # an unfitted classifier of features of this kind and number

    @classmethod
    def begin(
        cls,
        x: FloatArray,
        y: ArrayLike,
        weight: FloatArray | None,
        model: Any,
        rng: np.random.Generator,
        n_threads: int,
    ) -> _LabelTask:
        def make(features: str, n_features: int) -> Any:
            return type(model)(
                features,
                n_features,
                rank_inputs=False,
                max_hyperparameter_rows=model.max_hyperparameter_rows,
                n_threads=n_threads,
                random_state=int(rng.integers(2**31)),
            )

        labels = np.asarray(y)
        if len(labels) != len(x):
            raise ValueError(f"y must have {len(x)} rows, got {len(labels)}")
        given = np.ones(len(x)) if weight is None else weight
        x, labels, given = model._class_weighted(x[given > 0], labels[given > 0], given[given > 0])
        reference = make("fourier", REFERENCE_FEATURES)
        with quiet():
            reference.fit(x, labels, given)
        classes, index = np.unique(labels, return_inverse=True)
        z = np.reshape(reference.predict_logit(x), (len(x), -1))
        p = expit(z)
        curvature = np.maximum((p * (1 - p)).mean(axis=1), LEAST_CURVATURE)
        n_problems = z.shape[1]
        right = index[:, None] == (np.arange(n_problems) if n_problems > 1 else 1)
        response = (z + (right - p) / curvature[:, None] - reference.intercept_) / LOGIT_UNIT
        mean = float(given @ curvature / given.sum())
        input_map, inputs = mapped_inputs(x, given)
        hyper = replace(reference.hyperparameters_, noise_variance=1 / (LOGIT_UNIT**2 * mean))
        unit = np.full(n_problems, LOGIT_UNIT)
        fields = (given * curvature / mean, reference.intercept_, unit, n_problems == 1, hyper, rng, n_threads)
        return cls(input_map, inputs, response, *fields, index, classes, given, make)

    def restricted(self, chosen: NDArray[np.intp]) -> _LabelTask:
        """Return the task on some of the rows."""
        part = super().restricted(chosen)
        assert isinstance(part, _LabelTask)
        return replace(part, index=self.index[chosen], row_weight=self.row_weight[chosen])

    def order(self) -> NDArray[np.intp]:
        """Rows at random, one of every class at the end: it is not held out."""
        order = super().order()
        first = np.unique(self.index[order], return_index=True)[1]
        return np.concatenate([np.delete(order, first), order[first]])

    def loss(self, model: QuantizedModel) -> float:
        """Mean log loss of the probabilities over the samples."""
        assert isinstance(model, QuantizedClassifier)
        p = model.probabilities(self.sample_functions(model) + model.offset[:, None])
        right = p[np.arange(len(p)), self.index]
        return float(self.row_weight @ -np.log(np.maximum(right, np.finfo(float).tiny)) / self.row_weight.sum())

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedModel:
        """Cast the classifier's own posteriors into samples on a lattice."""
        phi = np.ascontiguousarray(features.transform(self.inputs))
        estimator = self.make("precomputed", phi.shape[1])
        with quiet():
            estimator.fit(phi, self.index, self.row_weight)
        p = expit(np.reshape(estimator.predict_logit(phi), (len(phi), -1)))
        codes, units = [], []
        for k, posterior in enumerate(estimator.posteriors_):
            scale = estimator.prior_scale_[k]
            targets = scale * sample_targets(posterior, form.n_samples, "moments", self.rng)
            # Laplace's approximation of the posterior precision.
            metric = phi.T @ (phi * (self.row_weight * p[:, k] * (1 - p[:, k]))[:, None])
            metric[np.diag_indices_from(metric)] += 1 / scale**2
            chosen, unit = rounded_on_best_scale(targets, form.grid, metric)
            codes.append(chosen)
            units.append(unit)
        return QuantizedClassifier(
            scale=np.array(units),
            offset=estimator.intercept_,
            noise=np.zeros(form.n_outputs),
            classes=self.classes,
            **self._packed(features, np.vstack(codes), form),
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep fits that are steps of another one from warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def forward_selection(
    a: FloatArray,
    c: FloatArray,
    ridge: float,
    n_pairs: int,
    costs: Costs,
    max_bytes: float,
    max_weights: float,
    least: float,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Choose columns of Φ one by one by the fall of the penalised squared error a byte, beyond `least` a column.

    Errors of all outputs, the columns of `c`, are summed.

    The regression is a ridge regression. Columns k and n_pairs + k are taken together, the others alone. The last one,
    the constant, is always taken, and one pair at least. A Cholesky factorisation of A + ridge grows row by row; what
    is left of A's diagonal, of the pairs' products and of c after projection on the chosen columns gives every fall in
    closed form.

    Returns
    -------
    ndarray of int
        Pairs that were taken.
    ndarray of int
        Of the columns that stand alone, those that were taken, counted from 2 n_pairs.
    """
    b = len(a)
    diagonal = a.diagonal() + ridge
    left = diagonal.copy()
    product = a[np.arange(n_pairs), n_pairs + np.arange(n_pairs)].copy()
    residual = c.copy()
    rows = np.empty((0, b))
    taken = np.zeros(b, dtype=bool)

    def take(j: int) -> None:
        nonlocal rows, left, product, residual
        row = a[j] - rows[:, j] @ rows
        row[j] += ridge
        row /= np.sqrt(max(row[j], 1e-12 * diagonal[j]))
        residual = residual - np.outer(row, residual[j] / row[j])
        left = np.maximum(left - row**2, 1e-12 * diagonal)
        product = product - row[:n_pairs] * row[n_pairs : 2 * n_pairs]
        rows = np.vstack([rows, row])
        taken[j] = True

    take(b - 1)
    n_bytes, n_weights = costs.fixed + costs.single, 1
    while True:
        r, g = residual, left
        first, second = slice(0, n_pairs), slice(n_pairs, 2 * n_pairs)
        determinant = np.maximum(g[first] * g[second] - product**2, 1e-9 * g[first] * g[second])
        squares, both = (r**2).sum(axis=1), (r[first] * r[second]).sum(axis=1)
        pair = g[second] * squares[first] + g[first] * squares[second] - 2 * product * both
        single = (r[2 * n_pairs :] ** 2).sum(axis=1) / g[2 * n_pairs :]
        gain = np.concatenate([(pair / determinant - 2 * least) / costs.frequency, (single - least) / costs.single])
        gain[np.concatenate([taken[first], taken[2 * n_pairs :]])] = -1.0
        pairs_fit = n_bytes + costs.frequency <= max_bytes and n_weights + 2 <= max_weights
        singles_fit = n_bytes + costs.single <= max_bytes and n_weights + 1 <= max_weights
        gain[:n_pairs] = gain[:n_pairs] if pairs_fit else -1.0
        gain[n_pairs:] = gain[n_pairs:] if singles_fit else -1.0
        best = int(gain.argmax())
        if gain[best] <= 0:
            if taken[:n_pairs].any():
                break
            best = int(pair.argmax())
        if best < n_pairs:
            take(best)
            take(n_pairs + best)
            n_bytes, n_weights = n_bytes + costs.frequency, n_weights + 2
        else:
            take(n_pairs + best)
            n_bytes, n_weights = n_bytes + costs.single, n_weights + 1
    return np.flatnonzero(taken[:n_pairs]), np.flatnonzero(taken[2 * n_pairs : -1])
