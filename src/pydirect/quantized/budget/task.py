"""The search for the best small model of some data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.evidence import distinct_rows, fit_hyperparameters
from pydirect.features.inputs import InputMap, weighted_location_scale
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import FourierFeatures, random_fourier_features
from pydirect.features.sparse_spectrum import SMALLEST_NOISE, optimised_frequencies
from pydirect.quantized.basis import LinearBasis
from pydirect.quantized.budget.costs import Costs, Form, Limits
from pydirect.quantized.budget.frequencies import (
    MOST_FREQUENCIES,
    MOST_MOVED,
    MOST_SELECTION_ROWS,
    MOVED_A_ROW,
    POOL,
    PROPOSALS,
    STEPS,
    WEIGHT_BETWEEN,
    forward_selection,
    mapped_inputs,
    rounded_frequencies,
    within_reach,
)
from pydirect.quantized.integer.compile import INPUT_LIMIT, INPUT_UNIT, lay_out
from pydirect.quantized.lattice import centred, rounded_on_best_scale
from pydirect.quantized.linear import without_unused
from pydirect.quantized.packing import PackedCodes, bits_for
from pydirect.quantized.predictors import QuantizedPredictor, QuantizedRegressor
from pydirect.regression.decorrelated import DecorrelatedPosterior, fit_decorrelated
from pydirect.regression.evidence import maximise_evidence
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, collect_statistics
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, decorrelate

# Rows at which moved frequencies reproduce the kernel's posterior mean: training rows, and points between two of them.
MOST_ROWS = 600
# Of the rows, to compare proposals.
HELD_OUT = 0.2
FEWEST_HELD_OUT = 8
# A column is taken when the squared error falls by more than so many noise variances (Akaike's criterion).
FALL_OF_A_WEIGHT = 2.0
# Prior variances tried, each a part of the one before, while the lattice loses more than the noise.
NARROWER_PRIORS = 5
NARROWING = 10.0
# Of the classifier whose logits choose frequencies, and the least p(1 − p) that divides.
REFERENCE_FEATURES = 512
# Of the target's standard deviation: its square must stay finite.
LARGEST_SCALE = 1e150
# Rounds of taking away frequencies while a model is too large.
MOST_ROUNDS = 20


class NoModelError(ValueError):
    """Nothing is left of a model that is made to fit."""


@dataclass(frozen=True)
class _Proposal:
    """A kind of frequencies, and those of it that were compared."""

    name: str
    features: FourierFeatures | None


@dataclass(frozen=True)
class _Posterior:
    """Of the weights of one output, in units of the prior standard deviation; noise and prior variance."""

    fit: DecorrelatedPosterior
    noise: float
    variance: float

    @classmethod
    def of(cls, rotated: RotatedTarget, noise: float, variance: float) -> _Posterior:
        """Return the exact posterior."""
        fit = fit_decorrelated(rotated.scaled(variance), noise, n_noise_levels=1)
        return cls(fit, noise, variance)


@dataclass(frozen=True)
class _Cast:
    """Codes of one output's samples, their unit, the noise variance, and the mean square of the mean's errors."""

    codes: NDArray[np.uint8]
    unit: float
    noise: float
    error: float


@dataclass(frozen=True)
class Task:
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
    ) -> Task:
        """Prepare the search: hold rows out, find the kernel."""
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

    def restricted(self, chosen: NDArray[np.intp]) -> Task:
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
        held: Task,
    ) -> float:
        """Loss of a cast model at rows that are held out; infinite when there is no model of these frequencies."""
        try:
            return held.loss(self.cast_within(features, form, limits))
        except NoModelError:
            return np.inf

    def sample_functions(self, model: QuantizedPredictor) -> FloatArray:
        """Functions of a model's samples at all rows without its offset, (n_rows, n_outputs, n_samples)."""
        assert isinstance(model.basis, LinearBasis)
        phi = model.basis.features.map.transform(self.inputs)[:, model.basis.order]
        return np.einsum("ij,ksj->iks", phi, model.weights, optimize=True)

    def loss(self, model: QuantizedPredictor) -> float:
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
            target = rotated.target(k)
            noise, variance = maximise_evidence(target, least)
            if noise < least:
                noise, variance = maximise_evidence(target, least, variance, fit_noise=False)
            found.append(_Posterior.of(target, noise, variance))
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

    def cast_within(self, features: FourierFeatures, form: Form, limits: Limits) -> QuantizedPredictor:
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

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedPredictor:
        """Cast the posteriors into samples on a lattice."""
        statistics = self.statistics(features)
        rotated = decorrelate(statistics)
        cast = [
            self._cast_one(statistics.target(k), rotated.target(k), p, form)
            for k, p in enumerate(self.posteriors(rotated))
        ]
        return QuantizedRegressor(
            scale=np.array([c.unit for c in cast]) * self.y_scale,
            offset=self.y_mean,
            noise=np.array([c.noise for c in cast]) * self.y_scale**2,
            **self._packed(features, np.vstack([c.codes for c in cast]), form),
        )

    def _cast_one(self, statistics: TargetStatistics, rotated: RotatedTarget, p: _Posterior, form: Form) -> _Cast:
        """Cast one output's posterior, under a narrower prior where weights that cancel are beyond the lattice."""
        a, n = statistics.A, statistics.n_samples
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
            error = float(statistics.squared_error(middle)) / n
            found.append(_Cast(chosen, unit, p.noise + max(wanted + misfit - spread, 0.0), error))
            if misfit <= p.noise:
                break
            p = _Posterior.of(rotated, p.noise, p.variance / NARROWING)
        return min(found, key=lambda f: f.error)

    def _packed(self, features: FourierFeatures, codes: NDArray[np.uint8], form: Form) -> dict[str, Any]:
        """Fields of a model of these codes, (n_outputs · n_samples, n_weights), but for its units."""
        layout = lay_out(features, (codes != form.zero).any(axis=0))
        none = np.zeros(form.n_outputs)
        basis = LinearBasis(
            Basis(self.input_map, features, reach=INPUT_LIMIT * INPUT_UNIT),
            layout.order,
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

    def _mean_variance(self, deviations: FloatArray, statistics: TargetStatistics) -> float:
        """Mean over rows and samples of the squares of functions with these weights."""
        squares = np.einsum("sj,jk,sk->", deviations, statistics.A, deviations, optimize=True)
        return float(squares) / len(deviations) / statistics.n_samples


@contextmanager
def quiet() -> Iterator[None]:
    """Keep fits that are steps of another one from warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
