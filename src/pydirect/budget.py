"""`fit_within`: the best quantised model of so many bytes, or of so many weights that are not zero.

Bytes are those of every table that a device stores: inputs' scales, frequencies, packed level indices, the sine table,
outputs. What they buy is chosen in this order: of frequencies drawn from the kernel's spectral density and rounded,
those are taken up one by one that explain most for their bytes; and the exact posterior of their weights is cast into a
few samples on a lattice of levels that all weights share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array, as_sample_weight
from pydirect.decorrelated import decorrelate, fit_decorrelated, maximise_evidence
from pydirect.features import FourierFeatures, random_fourier_features
from pydirect.hyperparameters import KernelHyperparameters, distinct_rows, fit_hyperparameters
from pydirect.inputs import InputMap, weighted_location_scale
from pydirect.quantized.models import LinearBasis, QuantizedRegressor, as_numpy
from pydirect.quantized.packing import PackedCodes, bits_for
from pydirect.quantized.program import INPUT_LIMIT, INPUT_UNIT, lay_out, quantise_frequencies
from pydirect.quantized.quantize import centred, rounded_on_best_scale, unit_levels, without_unused
from pydirect.statistics import GaussianStatistics, collect_statistics

POOL = 768
MOST_SELECTION_ROWS = 6000
SMALLEST_NOISE = 1e-6
# A column is taken when the squared error falls by more than so many noise variances (Akaike's criterion).
FALL_OF_A_WEIGHT = 2.0
MOST_SAMPLES = 16
# Rounds of taking away frequencies while a model is too large.
MOST_ROUNDS = 20


@dataclass(frozen=True)
class Costs:
    """Bytes of the parts of a model.

    Attributes
    ----------
    fixed : int
    frequency, single : float
        Of a frequency with its two weights, and of an input or the constant with its one, in all samples.
    """

    fixed: int
    frequency: float
    single: float


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
    y : array_like of shape (n_rows,)
    max_bytes : int, optional
        Of everything that a device stores but code; see ``report()`` of the result. 4096 when neither this nor
        `max_nonzero` is given.
    max_nonzero : int, optional
        Weights that are not zero in a sample, at most, on average over the samples.
    n_samples : int, optional
        Posterior samples; by default from 4, when bytes are few, to 16.
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
        raise TypeError(f"model must be a DirectRegressor, got {type(model).__name__}")
    x = as_float_array(as_numpy(X), "X", ("n_rows", "n_features_in"))
    target = as_float_array(as_numpy(y), "y", (len(x),))
    weight = as_sample_weight(sample_weight, len(x))
    if max_bytes is None and max_nonzero is None:
        max_bytes = 4096
    byte_limit = 2**40 if max_bytes is None else as_count(max_bytes, "max_bytes")
    weight_limit = 2**40 if max_nonzero is None else as_count(max_nonzero, "max_nonzero")
    most_samples = MOST_SAMPLES if n_samples is None else as_count(n_samples, "n_samples", 2)
    n_samples = samples_for(byte_limit) if n_samples is None else most_samples
    grid = unit_levels(levels, n_levels)
    if feature_bits not in (8, 16) or frequency_bits not in (8, 16):
        raise ValueError(f"feature_bits and frequency_bits must be 8 or 16, got {feature_bits} and {frequency_bits}")
    n_threads = resolve_n_threads(model.n_threads)
    rng = np.random.default_rng(model.random_state if not hasattr(model.random_state, "randint") else 0)
    with single_blas_thread():
        task = _Task.begin(x, target, weight, model.max_hyperparameter_rows, rng, n_threads)
        d = task.inputs.shape[1]
        bytes_of_weight = n_samples * bits_for(len(grid)) / 8
        table = 130 if feature_bits == 16 else 64
        wide = 2 if x.shape[1] > 256 else 1
        costs = Costs(
            fixed=d * (9 + wide) + table + 2 + 20 + 33,
            frequency=d * frequency_bits / 8 + 2 * bytes_of_weight,
            single=bytes_of_weight + wide,
        )
        least = costs.fixed + costs.frequency + costs.single
        too_few = ValueError(
            f"max_bytes must be at least about {least:.0f} for {x.shape[1]} columns and {n_samples} samples, and "
            f"max_nonzero 3, got {max_bytes} and {max_nonzero}"
        )
        if byte_limit < least or weight_limit < 3:
            raise too_few
        features = task.select(costs, byte_limit, weight_limit, frequency_bits)
        for _ in range(MOST_ROUNDS):
            quantised = task.cast(features, n_samples, grid, feature_bits, frequency_bits)
            excess = quantised.n_bytes - byte_limit
            surplus = _nonzero_per_sample(quantised) - weight_limit
            if excess <= 0 and surplus <= 0:
                while n_samples < most_samples and quantised.n_bytes + quantised.packed.n_bytes <= byte_limit:
                    n_samples *= 2  # what frequencies do not need
                    more = task.cast(features, n_samples, grid, feature_bits, frequency_bits)
                    if more.n_bytes > byte_limit or _nonzero_per_sample(more) > weight_limit:
                        break
                    quantised = more
                return quantised
            drop = max(int(np.ceil(max(excess / costs.frequency, surplus / 2))), 1)
            if drop >= features.n_frequencies:
                break
            features = task.without_weakest(features, drop)
    raise too_few


def samples_for(max_bytes: int) -> int:
    """Return the number of samples of a model of so many bytes: few when bytes are."""
    return 4 if max_bytes < 1024 else 8 if max_bytes <= 4096 else 16


def _nonzero_per_sample(model: QuantizedRegressor) -> float:
    """Weights that are not zero in a sample, on average over the samples."""
    return float(model.report()["n_nonzero"]) / model.n_samples


def rounded_frequencies(features: FourierFeatures, bits: int) -> FourierFeatures:
    """Return features whose frequencies are exactly what `quantise_frequencies` makes of them."""
    unit = np.full(features.n_features_in, INPUT_UNIT)
    integers, shift = quantise_frequencies(features.frequencies / (2 * np.pi), unit, bits)
    turns = integers.T * 2.0 ** shift.astype(np.float64)[:, None] / 2.0**32 / INPUT_UNIT
    return replace(features, frequencies=np.ascontiguousarray(2 * np.pi * turns))


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
        chosen = np.sort(self.rng.permutation(len(self.y))[:most])
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        return np.ascontiguousarray(self.inputs[chosen]), self.y[chosen], weight[chosen]

    def statistics(self, features: FourierFeatures) -> GaussianStatistics:
        """Return the sums over all rows."""
        return collect_statistics(features, self.inputs, self.y[:, None], self.weight, n_threads=self.n_threads)

    # --- which frequencies

    def select(self, costs: Costs, max_bytes: int, max_weights: int, frequency_bits: int) -> FourierFeatures:
        """Take up frequencies, inputs and the constant by what each explains a byte, while there are bytes."""
        pool = random_fourier_features(self.hyperparameters, POOL, self.rng)
        pool = rounded_frequencies(pool, frequency_bits)
        x, y, weight = self._subset(MOST_SELECTION_ROWS)
        statistics = collect_statistics(pool, x, y[:, None], weight, n_threads=self.n_threads)
        noise = self.hyperparameters.noise_variance  # and one is the prior variance of every weight
        chosen, singles = forward_selection(
            statistics.A, statistics.c[:, 0], noise, POOL, costs, max_bytes, max_weights, FALL_OF_A_WEIGHT * noise
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

    def cast(
        self, features: FourierFeatures, n_samples: int, grid: FloatArray, feature_bits: int, frequency_bits: int
    ) -> QuantizedRegressor:
        """Cast the posterior into samples on a lattice."""
        statistics, (posterior, noise, variance) = self.posterior(features)
        scale = np.sqrt(variance)
        mean = scale * posterior.coefficients
        targets = centred(scale * posterior.sample_weights(n_samples, self.rng), mean)
        metric = statistics.A.copy()
        metric[np.diag_indices_from(metric)] += noise / variance
        codes, unit = rounded_on_best_scale(targets, grid, metric)
        values = unit * grid[codes]
        # What the lattice takes away from the spread over the samples, on average over the rows, is added to the noise.
        spread = self._mean_variance(values - values.mean(axis=0), statistics)
        wanted = self._mean_variance(targets - mean, statistics)
        error = values.mean(axis=0) - mean
        misfit = float(error @ statistics.A @ error) / statistics.n_samples
        noise += max(wanted + misfit - spread, 0.0)
        zero = int(np.flatnonzero(grid == 0.0)[0])
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
            feature_bits=feature_bits,
            frequency_bits=frequency_bits,
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
    max_bytes: int,
    max_weights: int,
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
