"""`fit_within`: the best quantised model of so many bytes, or of so many weights that are not zero.

Bytes are those of every table that a device stores: inputs' scales, frequencies, packed level indices, the sine table,
outputs. They are spent on frequencies in three ways: random ones of the kernel's spectral density; those of a larger
pool that explain most for their bytes, taken up one by one; and random ones moved by marginal likelihood to where they
reproduce the kernel's own posterior mean. Rows that are held out say which, and how many samples. The exact posterior
of the weights of rounded frequencies is then cast into a few samples on a lattice of levels that all weights share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_sample_weight
from pydirect.decorrelated import decorrelate, fit_decorrelated, maximise_evidence
from pydirect.distributions import LEVEL_SHAPES
from pydirect.features import FourierFeatures, random_fourier_features
from pydirect.hyperparameters import KernelHyperparameters, distinct_rows, fit_hyperparameters
from pydirect.inputs import InputMap, weighted_location_scale
from pydirect.quantized.models import LinearBasis, QuantizedRegressor, as_numpy
from pydirect.quantized.packing import PackedCodes, bits_for
from pydirect.quantized.program import (
    INPUT_LIMIT,
    INPUT_UNIT,
    OutputScale,
    build_program,
    lay_out,
    quantise_frequencies,
)
from pydirect.quantized.quantize import centred, rounded_on_best_scale, unit_levels, without_unused
from pydirect.quantized.tables import program_bytes
from pydirect.sparse_spectrum import optimised_frequencies
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
SMALLEST_NOISE = 1e-6
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
    """

    n_samples: int
    grid: FloatArray
    feature_bits: int
    frequency_bits: int

    @property
    def zero(self) -> int:
        """Code of the level zero."""
        return int(np.flatnonzero(self.grid == 0.0)[0])

    def costs(self, input_map: InputMap) -> Costs:
        """Return costs by the tables of models of one and two frequencies, with and without an input."""
        d = input_map.n_outputs
        one, two, more = (self._bytes(input_map, f, linear) for f, linear in ((1, 0), (2, 0), (1, 1)))
        constant = self.n_samples * bits_for(len(self.grid)) / 8
        return Costs(one - (two - one) - constant, two - one, more - one) if d else Costs(one, 0.0, 0.0)

    def _bytes(self, input_map: InputMap, n_frequencies: int, n_linear: int) -> float:
        linear = np.zeros(input_map.n_outputs)
        linear[:n_linear] = 0.5
        features = FourierFeatures(np.ones((len(linear), n_frequencies)), np.ones(n_frequencies), linear, 0.3)
        used = np.ones(features.n_weights, dtype=bool)
        layout = lay_out(features, used)
        codes = np.zeros((len(layout.order), self.n_samples), dtype=np.uint8)
        one = np.ones(1)
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
    """

    n_bytes: int
    n_weights: int

    def excess(self, model: QuantizedRegressor) -> tuple[float, float]:
        """Bytes, and weights that are not zero in a sample, beyond what is allowed."""
        weights = float(model.report()["n_nonzero"]) / model.n_samples
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
) -> QuantizedRegressor:
    """Fit the best quantised model of at most so many bytes, or of at most so many weights that are not zero.

    Parameters
    ----------
    model : DirectRegressor
        Not used but for its parameters ``max_hyperparameter_rows``, ``n_threads`` and ``random_state``; fitted or not.
    X : array_like of shape (n_rows, n_features_in)
        A fifth of the rows is held out to compare models; the one that is returned is fitted to all of them.
    y : array_like of shape (n_rows,)
    max_bytes : int, optional
        Of everything that a device stores but code; see ``report()`` of the result. 4096 when neither this nor
        `max_nonzero` is given.
    max_nonzero : int, optional
        Weights that are not zero in a sample, at most, on average over the samples; 3 or more.
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
    QuantizedRegressor
        With ``arithmetic="integer"``.

    Raises
    ------
    ValueError
        When an argument is not as described, or so few bytes hold no model.
    """
    if not hasattr(model, "max_hyperparameter_rows") or hasattr(model, "bound"):
        raise TypeError(
            f"model must be a DirectRegressor, got {type(model).__name__}; a classifier with features='fourier', "
            "basis='raw' and rank_inputs=False has integers by its method quantize"
        )
    x = as_float_array(as_numpy(X), "X", ("n_rows", "n_features_in"))
    y_values = as_numpy(y)
    if np.ndim(y_values) == 2 and np.shape(y_values)[1] > 1:
        raise ValueError(f"y must be one target, got {np.shape(y_values)[1]}: fit a model to each")
    target = as_float_array(np.ravel(y_values), "y", (len(x),))
    weight = as_sample_weight(sample_weight, len(x))
    if max_bytes is None and max_nonzero is None:
        max_bytes = 4096
    limits = Limits(
        UNLIMITED if max_bytes is None else as_count(max_bytes, "max_bytes"),
        UNLIMITED if max_nonzero is None else as_count(max_nonzero, "max_nonzero", FEWEST_WEIGHTS),
    )
    if n_samples is not None and as_count(n_samples, "n_samples", 2) > MOST_SAMPLES:
        raise ValueError(f"n_samples must be at most {MOST_SAMPLES}, got {n_samples}")
    as_choice(levels, "levels", tuple(LEVEL_SHAPES))
    grid = unit_levels(levels, n_levels)
    for name, bits in (("feature_bits", feature_bits), ("frequency_bits", frequency_bits)):
        if as_count(bits, name) not in (8, 16):
            raise ValueError(f"{name} must be 8 or 16, got {bits}")
    n_threads = resolve_n_threads(model.n_threads)
    rng = np.random.default_rng(model.random_state if not hasattr(model.random_state, "randint") else 0)
    with single_blas_thread():
        task = _Task.begin(x, target, weight, model.max_hyperparameter_rows, rng, n_threads)
        counts = samples_for(limits.n_bytes) if n_samples is None else (n_samples,)
        forms = [Form(count, grid, feature_bits, frequency_bits) for count in counts]
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
        return quantised


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


@dataclass(frozen=True)
class _Task:
    """Data as features see them, with what is known of the kernel."""

    input_map: InputMap
    inputs: FloatArray  # cut off where integers end
    y: FloatArray  # standardised
    weight: FloatArray | None
    y_mean: float
    y_scale: float
    hyperparameters: KernelHyperparameters
    rng: np.random.Generator
    n_threads: int

    @classmethod
    def begin(
        cls,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray | None,
        max_rows: int,
        rng: np.random.Generator,
        n_threads: int,
    ) -> _Task:
        x, column, merged = distinct_rows(x, y[:, None], weight)
        y, weight = column[:, 0], None if (merged == 1).all() else merged
        mean, scale = weighted_location_scale(y[:, None], weight)
        y_mean, y_scale = float(mean[0]), float(scale[0]) or 1.0
        if not 1 / LARGEST_SCALE < y_scale < LARGEST_SCALE:
            raise ValueError(f"y must vary by less than {LARGEST_SCALE:g} and more than its inverse, got {y_scale:g}")
        standardised = (y - y_mean) / y_scale
        input_map = InputMap.fit(x, weight, rank=False)
        if input_map.n_outputs == 0:
            raise ValueError("X must have a column that varies")
        reach = INPUT_LIMIT * INPUT_UNIT
        inputs = np.clip(input_map.transform(x), -reach, reach)
        hyper = fit_hyperparameters(
            inputs,
            standardised[:, None],
            weight,
            input_map.n_standardised,
            rng,
            max_rows=max_rows,
            n_threads=n_threads,
        )
        return cls(input_map, inputs, standardised, weight, y_mean, y_scale, hyper, rng, n_threads)

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
        return collect_statistics(features, self.inputs, self.y[:, None], self.weight, n_threads=self.n_threads)

    # --- which frequencies, and how many samples

    def best(self, forms: list[Form], limits: Limits) -> tuple[Form, _Proposal]:
        """Compare proposals on rows that are held out; the fewest samples serve to compare frequencies."""
        order = self.rng.permutation(len(self.y))
        n_held = int(HELD_OUT * len(order))
        if n_held < FEWEST_HELD_OUT:
            return forms[-1], _Proposal("random", None)
        part, held = self.restricted(np.sort(order[n_held:])), self.rows(order[:n_held])
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
        held: tuple[FloatArray, FloatArray, FloatArray],
    ) -> float:
        """Mean square of a cast model's errors at other rows; infinite when there is no model of these frequencies."""
        try:
            model = self.cast_within(features, form, limits)
        except NoModelError:
            return np.inf
        assert isinstance(model.basis, LinearBasis)
        x, y, weight = held
        phi = model.basis.features.transform(x)[:, model.basis.order]
        mean = phi @ model.weights[0].mean(axis=0) / self.y_scale
        return float(weight @ (y - mean) ** 2 / weight.sum())

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
        statistics = collect_statistics(pool, x, y[:, None], weight, n_threads=self.n_threads)
        noise = self.hyperparameters.noise_variance  # and one is the prior variance of every weight
        chosen, singles = forward_selection(
            statistics.A,
            statistics.c[:, 0],
            noise,
            POOL,
            costs,
            limits.n_bytes,
            limits.n_weights,
            FALL_OF_A_WEIGHT * noise,
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

    def posterior(self, features: FourierFeatures) -> tuple[GaussianStatistics, Any]:
        """Exact posterior of continuous weights, noise and prior variance by evidence."""
        statistics = self.statistics(features)
        rotated = decorrelate(statistics)
        noise, variance = maximise_evidence(rotated, max(self.hyperparameters.noise_variance, SMALLEST_NOISE))
        # Columns chosen for what they explain make the evidence an optimist; the kernel knows the noise without them.
        least = max(self.hyperparameters.noise_variance, SMALLEST_NOISE)
        if noise < least:
            noise, variance = maximise_evidence(rotated, least, variance, fit_noise=False)
        return statistics, (fit_decorrelated(rotated.scaled(variance), noise, n_noise_levels=1), noise, variance)

    def without_weakest(self, features: FourierFeatures, count: int) -> FourierFeatures:
        """Drop the frequencies with the smallest weights."""
        _, (posterior, _, _) = self.posterior(features)
        f = features.n_frequencies
        size = ((features.amplitudes * posterior.coefficients[: 2 * f].reshape(2, f)) ** 2).sum(axis=0)
        kept = np.sort(np.argsort(-size, kind="stable")[: f - count])
        return replace(
            features,
            frequencies=np.ascontiguousarray(features.frequencies[:, kept]),
            amplitudes=features.amplitudes[kept],
        )

    def cast_within(self, features: FourierFeatures, form: Form, limits: Limits) -> QuantizedRegressor:
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
            f"max_bytes and max_nonzero must hold a model, got {limits.n_bytes} and {limits.n_weights}, too few for one"
        )

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedRegressor:
        """Cast the posterior into samples on a lattice."""
        statistics, (posterior, noise, variance) = self.posterior(features)
        scale = np.sqrt(variance)
        mean = scale * posterior.coefficients
        targets = centred(scale * posterior.sample_weights(form.n_samples, self.rng), mean)
        metric = statistics.A.copy()
        metric[np.diag_indices_from(metric)] += noise / variance
        codes, unit = rounded_on_best_scale(targets, form.grid, metric)
        values = unit * form.grid[codes]
        # What the lattice takes away from the spread over the samples, on average over the rows, is added to the noise.
        spread = self._mean_variance(values - values.mean(axis=0), statistics)
        wanted = self._mean_variance(targets - mean, statistics)
        error = values.mean(axis=0) - mean
        misfit = float(error @ statistics.A @ error) / statistics.n_samples
        noise += max(wanted + misfit - spread, 0.0)
        grid, zero = form.grid, form.zero
        layout = lay_out(features, (codes != zero).any(axis=0))
        none = np.zeros(1)
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
            np.zeros(2, dtype=np.intp),
        )
        one = np.ones((1, 1))
        return QuantizedRegressor(
            basis=without_unused(basis),
            packed=PackedCodes.pack(np.ascontiguousarray(codes.T[layout.order]), bits_for(len(grid)), zero),
            levels=grid,
            centre=0 * one,
            spread=one,
            scale=np.array([unit * self.y_scale]),
            offset=np.array([self.y_mean]),
            noise=np.array([noise * self.y_scale**2]),
            calibration=1.0,
            n_features_in=len(self.input_map.mean),
            one_dimensional=True,
            feature_bits=form.feature_bits,
            frequency_bits=form.frequency_bits,
            arithmetic="integer",
        )

    def _mean_variance(self, deviations: FloatArray, statistics: GaussianStatistics) -> float:
        """Mean over rows and samples of the squares of functions with these weights."""
        squares = np.einsum("sj,jk,sk->", deviations, statistics.A, deviations, optimize=True)
        return float(squares) / len(deviations) / statistics.n_samples


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
        residual = residual - row * (residual[j] / row[j])
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
        pair = g[second] * r[first] ** 2 + g[first] * r[second] ** 2 - 2 * product * r[first] * r[second]
        single = r[2 * n_pairs :] ** 2 / g[2 * n_pairs :]
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
