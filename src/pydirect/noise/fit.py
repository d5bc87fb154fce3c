"""Fits of noise that varies from row to row or has heavy tails, about a fit with constant noise.

Kinds of noise are compared by the log densities of some rows, left out one at a time. Noise first varies about the mean
of the constant fit, as these rows alone say. Only where that promises a gain are all rows weighted by their precisions,
and the log noise is learned from all of them. The mean stays that of the constant fit unless weighted rows give
one that is closer to left-out rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.evidence import TrainingRows
from pydirect.features.inputs import InputMap
from pydirect.features.maps import LinearFeatures, NystroemFeatures
from pydirect.linear.fit import InitialHyperparameters, fit_by_evidence, moved_to
from pydirect.linear.leave_one_out import LeaveOneOut, leave_one_out
from pydirect.linear.posterior import FactoredPosterior, GaussianPosterior
from pydirect.noise.log_noise_kernel import kernel_of_log_noise
from pydirect.noise.model import (
    CONSTANT,
    HEAVY_TAILED,
    MIN_ROWS_TO_CHOOSE,
    VARYING,
    VARYING_HEAVY_TAILED,
    LogVariance,
    NoiseModel,
)
from pydirect.noise.problem import Fitted, NoiseProblem
from pydirect.noise.row_moments import RowMoments
from pydirect.noise.varying_noise import (
    LOG_CHI2_VARIANCE,
    NO_TAILS,
    TAILS,
    LogNoise,
    Tails,
    estimates_of_log_noise,
    looks_constant,
    precision_weights,
)
from pydirect.statistics.gaussian import blocks_of, collect_statistics
from pydirect.statistics.location_scale import weighted_location_scale
from pydirect.statistics.rotated import RotatedTarget, decorrelate
from pydirect.tables.encoding import ColumnEncoding

# Mean log densities that a kind of noise must gain: it has more freedom than leave-one-out sees.
MARGINS = {CONSTANT: 0.0, HEAVY_TAILED: 0.003, VARYING: 0.01, VARYING_HEAVY_TAILED: 0.013}
# Of its margin: what varying noise must gain before all rows are weighted.
PROMISING = 0.5
# Rows up to which nobody asks that first: much of what varies shows only about a mean that has seen it.
FEW_ROWS = 2000
MAX_COMPARED_ROWS = 4000
N_NOISE_FEATURES = 400
# Of gains, that count as more than chance.
STANDARD_ERRORS = 2.0
VARIES = (VARYING, VARYING_HEAVY_TAILED)


@dataclass(frozen=True)
class Mean:
    """A fit of one output's mean, and what it says of the compared rows without them, (n_compared, 1) each."""

    fitted: Fitted
    loo: LeaveOneOut
    log_weights: float = 0.0
    target: RotatedTarget | None = None  # of a weighted fit

    @property
    def noise(self) -> float:
        return float(1 / self.fitted[0].noise.precision)


@dataclass(frozen=True)
class Candidate:
    """A kind of noise of one output: with which mean, which tails, and the log densities of left-out rows."""

    mean: Mean
    tails: Tails
    log_densities: FloatArray
    weight: FloatArray

    @property
    def log_density(self) -> float:
        return float(np.average(self.log_densities, weights=self.weight))

    def gains(self, other: Candidate, margin: float) -> bool:
        """Whether left-out rows are likelier by a margin, and by more than chance."""
        return _is_gain(self.log_densities - other.log_densities, self.weight, margin)


Candidates = dict[str, Candidate]


@dataclass(frozen=True)
class Regression:
    """A regression of log noise variances, and what it says of the compared rows without them, for every output."""

    log_variance: LogVariance
    left_out: list[LogNoise]


def squares_of(loo: LeaveOneOut) -> FloatArray:
    """ρ = e²/(1 − h) of residuals e of all rows, (n_rows,)."""
    return np.asarray((loo.residuals**2 * (1 - loo.leverages))[:, 0])


def _is_gain(values: FloatArray, weight: FloatArray, margin: float = 0.0) -> bool:
    """Whether a mean is above a margin, and above zero by more than chance."""
    mean = np.average(values, weights=weight)
    error = np.sqrt(np.average((values - mean) ** 2, weights=weight) / len(values))
    return bool(mean > max(margin, STANDARD_ERRORS * error))


def _best_of(candidates: Candidates, share: float = 1.0) -> str:
    return max(candidates, key=lambda name: candidates[name].log_density - share * MARGINS[name])


def _log_density(candidates: dict[int, Candidates]) -> float:
    """Return the log density under the likeliest kinds of noise, summed over outputs."""
    return sum(max(c.log_density for c in each.values()) for each in candidates.values())


def _choice(candidates: Candidates, share: float = 1.0) -> str:
    """Return the best of the kinds of noise that gain a share of their margins over constant noise."""
    constant = candidates[CONSTANT]
    enough = [name for name, each in candidates.items() if each.gains(constant, share * MARGINS[name])]
    return _best_of({name: candidates[name] for name in [CONSTANT, *enough]}, share)


def fit_varying_noise(problem: NoiseProblem, moments: RowMoments) -> tuple[list[Fitted], NoiseModel]:
    """Return the posteriors of all outputs and the varying noise that goes with them; `moments` of the constant fit."""
    return NoiseFit(problem, moments).varying()


def choose_noise(problem: NoiseProblem, moments: RowMoments) -> tuple[list[Fitted], NoiseModel | None]:
    """Return the same with the kind of noise that leave-one-out scores favour for each output; None if all constant.

    Nothing is compared where leave-one-out residuals look Gaussian, or rows are few.
    """
    fit = NoiseFit(problem, moments)
    if len(fit.x) < MIN_ROWS_TO_CHOOSE or fit.looks_constant():
        return list(problem.fitted), None
    return fit.chosen()


class NoiseFit:
    """The rows of a fit, merged, what of each is left out at a time, and its mean with constant noise."""

    def __init__(self, problem: NoiseProblem, moments: RowMoments) -> None:
        self.problem, self.rng, self.n_threads = problem, problem.rng, problem.n_threads
        self.basis, self.residual_variance = problem.basis, problem.residual_variance
        first, counts, _ = problem.rows.merged
        used = counts > 0
        self.x, self.y, self.counts = moments.x, problem.rows.y[first[used]], moments.weight
        self.one = problem.rows.counts.left_out(counts)[used]
        n = len(self.x)
        self.compared = np.arange(n)
        if n > MAX_COMPARED_ROWS:
            self.compared = np.sort(self.rng.choice(n, MAX_COMPARED_ROWS, replace=False))
        self.fitted = problem.fitted
        self.noise, self.of_constant = moments.noise, moments

    @cached_property
    def constant(self) -> list[Mean]:
        """The fit with constant noise of every output."""
        return [Mean(each, self.constant_left_out(k, self.compared)) for k, each in enumerate(self.fitted)]

    def constant_left_out(self, k: int, rows: NDArray[np.intp]) -> LeaveOneOut:
        return self.left_out(self.of_constant, k, np.full(len(self.x), 1 / self.noise[k]), rows, k)

    def looks_constant(self) -> bool:
        """Whether left-out rows give no reason to compare kinds of noise."""
        studentised = np.hstack([mean.loo.studentised for mean in self.constant])
        return looks_constant(studentised, self.basis.inputs(self.x[self.compared]))

    def chosen(self) -> tuple[list[Fitted], NoiseModel | None]:
        """Choose among constant and varying noise, with heavy tails and without."""
        flat = [self.flat(mean) for mean in self.constant]
        compared = [each | self._varying(self.first.left_out[k], [self.constant[k]]) for k, each in enumerate(flat)]
        choices = [_choice(each) for each in flat]
        few = len(self.x) <= FEW_ROWS
        promising = [k for k, each in enumerate(compared) if few or _choice(each, PROMISING) in VARIES]
        if not promising:
            return self.result(choices, compared, None)
        found, log_variance = self._weighted(promising)
        for k, each in found.items():
            compared[k] = flat[k] | each
            choices[k] = _choice(compared[k])
        varies = any(choice in VARIES for choice in choices)
        return self.result(choices, compared, log_variance if varies else None)

    def varying(self) -> tuple[list[Fitted], NoiseModel]:
        found, log_variance = self._weighted(range(len(self.fitted)))
        compared = [self.flat(mean) | found[k] for k, mean in enumerate(self.constant)]
        return self.result([_best_of(found[k]) for k in found], compared, log_variance)

    def result(
        self, choices: list[str], compared: list[Candidates], log_variance: LogVariance | None
    ) -> tuple[list[Fitted], NoiseModel]:
        used = [each[name] for each, name in zip(compared, choices, strict=True)]
        names = tuple(compared[0])
        densities = np.array([[each[name].log_density for each in compared] for name in names])
        noise = NoiseModel(
            choices=tuple(choices),
            log_noise=np.log([c.mean.noise for c in used]),
            spread=np.array([c.tails.spread for c in used]),
            shift=np.array([c.tails.shift for c in used]),
            mean_variance=np.array([c.mean.fitted[0].noise.variance for c in used]),
            log_weights=np.array([c.mean.log_weights for c in used]),
            candidates=names,
            log_densities=densities - np.log(self.problem.density_scale),
            log_variance=log_variance,
        )
        return [c.mean.fitted for c in used], replace(noise, mean_variance=self._averaged(noise))

    def _averaged(self, noise: NoiseModel) -> FloatArray:
        """Average the expected noise variance of every output over the rows."""
        total = np.zeros(len(noise.choices))
        for rows in blocks_of(len(self.x), N_NOISE_FEATURES):
            for k, mixture in enumerate(noise.of(self.x[rows], self.n_threads)):
                each = noise.mean_variance[k] if mixture is None else mixture[1] @ mixture[0]
                total[k] += np.sum(self.counts[rows] * each)
        return total / self.counts.sum()

    # --- constant noise

    def flat(self, mean: Mean) -> Candidates:
        log_noise = LogNoise.constant(mean.noise, len(self.compared))
        return {CONSTANT: self.best(mean, log_noise, [NO_TAILS]), HEAVY_TAILED: self.best(mean, log_noise, TAILS)}

    # --- noise that varies

    @cached_property
    def first(self) -> Regression:
        """The log noise about the constant fit, as the compared rows alone say."""
        return self._regression(self._first_squares, self.compared, None)

    @cached_property
    def _first_squares(self) -> FloatArray:
        return np.stack([squares_of(mean.loo) for mean in self.constant], axis=1)

    def _weighted(self, outputs: Sequence[int]) -> tuple[dict[int, Candidates], LogVariance]:
        """Weight all rows for some outputs, learn the log noise from all of them, and find what it then is.

        Weights follow from the compared rows alone. Of many rows they need not be precise; of few, whose leverages are
        large, weighted rows say more of the noise, and weights are found again.
        """
        unweighted = {k: [self.constant[k]] for k in outputs}
        found = max((self.first, self._searched()), key=lambda each: _log_density(self._candidates(each, unweighted)))
        basis, passes = found.log_variance.basis, []
        for _ in range(2 if len(self.x) <= MAX_COMPARED_ROWS else 1):
            means, squares = self._weighted_means(outputs, found.log_variance)
            regressions = found, self._regression(squares, np.arange(len(self.x)), basis)
            passes += [(self._candidates(each, means), each.log_variance) for each in regressions]
            found = regressions[-1]
        return max(passes, key=lambda each: _log_density(each[0]))

    def _weighted_means(
        self, outputs: Sequence[int], log_variance: LogVariance
    ) -> tuple[dict[int, list[Mean]], FloatArray]:
        """Return the means of some outputs, weighted and not, and squares ρ of all rows by the weighted ones."""
        everything = np.arange(len(self.x))
        log_variances = log_variance.means(self.x, self.n_threads)
        squares, means = np.tile(self.noise, (len(self.x), 1)), {}
        for k in outputs:
            precision = precision_weights(log_variances[:, k], self.counts)
            initial = InitialHyperparameters(float(self.noise[k]), self.fitted[k][1] ** 2)
            weighted, moments = self.weighted(k, precision, initial)
            loo = self.left_out(moments, k, precision / weighted.noise, everything)
            squares[:, k], means[k] = squares_of(loo), self._means(k, weighted, loo)
        return means, squares

    def _candidates(self, regression: Regression, means: dict[int, list[Mean]]) -> dict[int, Candidates]:
        return {k: self._varying(regression.left_out[k], each) for k, each in means.items()}

    def _searched(self) -> Regression:
        """The same with a kernel of its own, where the feature map is not given."""
        if self.problem.noise_basis is None:
            return self.first
        n = min(len(self.compared), 2 * self.problem.max_search_rows)  # one subset
        few = np.sort(self.rng.choice(len(self.compared), n, replace=False))
        chosen = self.compared[few]
        weight = self.counts[chosen]
        targets, _, scale = self._targets(self._first_squares[few], weight)
        size = min(self.problem.n_functions, N_NOISE_FEATURES)
        rows = TrainingRows(self.x[chosen], targets, weight / weight.mean())
        basis = self.problem.noise_basis(rows, scale, size)
        return self._regression(self._first_squares, self.compared, basis)

    def _varying(self, log_noise: LogNoise, means: Sequence[Mean]) -> Candidates:
        """Return varying noise without and with tails, about the mean that left-out rows like best."""
        return {
            name: max((self.best(mean, log_noise, tails) for mean in means), key=lambda c: c.log_density)
            for name, tails in ((VARYING, [NO_TAILS]), (VARYING_HEAVY_TAILED, TAILS))
        }

    def _means(self, k: int, weighted: Mean, loo: LeaveOneOut) -> list[Mean]:
        """Return the unweighted mean, with its own variance and that of the weighted one, and perhaps the weighted one.

        The latter where it is closer to left-out rows by more than chance; `loo`: its predictions of all rows.
        """
        constant = self.constant[k]
        unweighted = self.constant_left_out(k, np.arange(len(self.x)))
        closer = _is_gain((unweighted.residuals**2 - loo.residuals**2)[:, 0], self.counts)
        return [constant, self._moved(weighted, constant), *[weighted] * closer]

    def _moved(self, weighted: Mean, constant: Mean) -> Mean:
        """Return the unweighted mean with the posterior variances of the weighted one."""
        assert weighted.target is not None
        (posterior, scale), (unweighted, unit) = weighted.fitted, constant.fitted
        coefficients = unweighted.coefficients * unit / scale
        moved = moved_to(posterior, weighted.target.scaled(scale**2), coefficients)
        loo = replace(constant.loo, latent_variances=weighted.loo.latent_variances)
        return replace(weighted, fitted=(moved, scale), loo=loo)

    def _regression(self, squares: FloatArray, rows: NDArray[np.intp], basis: Basis | None) -> Regression:
        """Regress log noise variances on X, by squares ρ of rows that include the compared, (n_chosen, n_outputs)."""
        unit = self.counts[rows].mean()
        weight = self.counts[rows] / unit
        targets, location, scale = self._targets(squares, weight)
        noise = LOG_CHI2_VARIANCE / scale**2
        basis = basis or self._noise_basis(self.x[rows], targets, weight)
        inputs = basis.inputs(self.x[rows])
        statistics = collect_statistics(basis.map, inputs, targets, weight, n_threads=self.n_threads)
        rotated = decorrelate(statistics)
        variances = []
        for k in range(targets.shape[1]):
            # No prior variance is known: where noise is constant the evidence is to find none.
            start = InitialHyperparameters(float(noise[k]), fixed_noise=float(noise[k]))
            variances.append(start.by_evidence(rotated.target(k))[1])
        posterior = GaussianPosterior.of(rotated, 1 / noise, np.array(variances))
        missing = basis.mean_missing_variance(inputs, weight, statistics.mean_square)
        formed = replace(posterior, rotation=posterior.rotation.formed())
        log_variance = LogVariance(basis, formed, location, scale, missing)
        mean, variance = self.moments(basis, posterior, targets.shape[1], self.compared)
        own, one = targets[np.isin(rows, self.compared)], self.one[self.compared] / unit
        loo = leave_one_out(own, mean, variance, one[:, None] / noise)
        left_out = [
            LogNoise(location[k] + scale[k] * loo.means[:, k], scale[k] ** 2 * loo.latent_variances[:, k])
            for k in range(targets.shape[1])
        ]
        return Regression(log_variance, left_out)

    def _targets(self, squares: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return standardised estimates of log noise variances by squares ρ, their locations and their scales."""
        estimates = estimates_of_log_noise(squares, self.noise)
        location, scale = weighted_location_scale(estimates, weight)
        scale = np.where(scale > 0, scale, 1.0)
        return (estimates - location) / scale, location, scale

    def _noise_basis(self, x: FloatArray, targets: FloatArray, weight: FloatArray) -> Basis:
        """Fit a kernel of its own to log noise variances; where X has no columns of numbers, share the basis of f."""
        if self.problem.noise_basis is None:
            return self.basis
        columns, input_map = (
            ColumnEncoding.of_numbers(x.shape[1]),
            InputMap.fit(x, weight, rank=False),
        )  # encoded already
        if not input_map.n_outputs:
            return Basis(input_map, LinearFeatures(0), columns=columns)
        inputs = input_map.transform(x)
        kernel = kernel_of_log_noise(inputs, targets, weight, input_map.n_standardised, self.rng, self.n_threads)
        size = min(self.problem.n_functions, N_NOISE_FEATURES)
        chosen = self.rng.choice(len(inputs), min(size, len(inputs)), replace=False)
        landmarks = np.unique(inputs[chosen], axis=0)
        return Basis(input_map, NystroemFeatures.at(landmarks, kernel), kernel, columns=columns)

    def weighted(self, k: int, precision: FloatArray, start: InitialHyperparameters) -> tuple[Mean, RowMoments]:
        """Fit an output's mean to rows of relative precisions that average to one."""
        weight = self.counts * precision
        basis, dtype, y = self.basis, self.problem.block_dtype, self.y[:, [k]]
        statistics = collect_statistics(
            basis.map, basis.inputs(self.x), y, weight, block_dtype=dtype, n_threads=self.n_threads
        )
        rotated = decorrelate(replace(statistics, n_samples=self.problem.effective_rows))
        posterior, scale = fit_by_evidence(rotated.target(0), start, n_noise_levels=1, max_iter=self.problem.max_iter)
        noise = posterior.noise.variance
        hyperparameters = np.array([noise]), np.array([scale**2])
        moments = RowMoments(
            self.basis, self.residual_variance, self.x, weight, rotated, *hyperparameters, self.rng, self.n_threads
        )
        loo = self.left_out(moments, k, precision / noise, self.compared)
        log_weights = 0.5 * float(self.counts @ np.log(precision))
        return Mean((posterior, scale), loo, log_weights, rotated.target(0)), moments

    # --- rows

    def best(self, mean: Mean, log_noise: LogNoise, tails: Sequence[Tails]) -> Candidate:
        """Return the tails under which left-out rows are likeliest."""
        weight = self.counts[self.compared]
        residual, variance = mean.loo.residuals[:, 0], mean.loo.latent_variances[:, 0]
        found = (Candidate(mean, each, log_noise.log_density(residual, variance, each), weight) for each in tails)
        return max(found, key=lambda candidate: candidate.log_density)

    def left_out(
        self, moments: RowMoments, k: int, precision: FloatArray, rows: NDArray[np.intp], column: int = 0
    ) -> LeaveOneOut:
        """Predict rows without themselves, (n_chosen, 1), given the precision of one measurement of each row."""
        mean, variance = (each[:, [column]] for each in moments.at(rows))
        return leave_one_out(self.y[rows][:, [k]], mean, variance, (self.one * precision)[rows, None])

    def moments(
        self,
        basis: Basis,
        posterior: GaussianPosterior | FactoredPosterior,
        n_outputs: int,
        chosen: NDArray[np.intp] | slice = slice(None),
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of functions at all or chosen rows, (n_rows, n_outputs) each."""
        x = self.x[chosen]
        mean, variance = np.empty((2, len(x), n_outputs))
        for rows in blocks_of(len(x), basis.n_weights):
            phi = basis.transform(x[rows], np.float64, self.n_threads)
            mean[rows], variance[rows] = posterior.moments(np.ascontiguousarray(phi))
        return mean, variance

    def mean_missing_variance(self, basis: Basis) -> float:
        """Return the prior variance of f that a basis misses, averaged over the rows."""
        squares = np.empty(len(self.x))
        for rows in blocks_of(len(self.x), basis.n_weights):
            squares[rows] = np.square(basis.transform(self.x[rows], np.float64, self.n_threads)).sum(axis=1)
        return basis.mean_missing_variance(
            basis.inputs(self.x), self.counts, float(np.average(squares, weights=self.counts))
        )
