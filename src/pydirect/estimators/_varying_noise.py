"""Fits of noise that varies from row to row or has heavy tails, about a fit with constant noise.

The mean is that of the constant fit, or of rows weighted by their precisions where that predicts left-out rows better.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pydirect._validation import FloatArray
from pydirect.distributions.priors import DensityPrior, as_prior
from pydirect.estimators._fitting import Training
from pydirect.estimators._noise_model import (
    CONSTANT,
    HEAVY_TAILED,
    MIN_ROWS_TO_CHOOSE,
    VARYING,
    VARYING_HEAVY_TAILED,
    LogVariance,
    NoiseModel,
)
from pydirect.features.basis import Basis
from pydirect.features.columns import Columns
from pydirect.features.evidence import TrainingRows
from pydirect.features.inputs import weighted_location_scale
from pydirect.features.search_record import HyperparameterSearchWarning
from pydirect.regression.decorrelated import DecorrelatedPosterior, moved_to
from pydirect.regression.empirical_bayes import InitialHyperparameters, fit_decorrelated_by_evidence
from pydirect.regression.leave_one_out import LeaveOneOut, RidgePosterior, leave_one_out, ridge_of_rows
from pydirect.regression.student_t import WeightedRidge
from pydirect.regression.varying_noise import (
    LOG_CHI2_VARIANCE,
    NO_TAILS,
    TAILS,
    LogNoise,
    Tails,
    estimates_of_log_noise,
    looks_constant,
    precision_weights,
)
from pydirect.statistics.gaussian import collect_statistics
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, decorrelate

# Mean log densities that a kind of noise must gain: it has more freedom than leave-one-out sees.
MARGINS = {CONSTANT: 0.0, HEAVY_TAILED: 0.003, VARYING: 0.01, VARYING_HEAVY_TAILED: 0.013}
MAX_COMPARED_ROWS = 8000
N_NOISE_FEATURES = 400
N_PASSES = 2
# Of gains, that count as more than chance.
STANDARD_ERRORS = 2.0
VARIES = (VARYING, VARYING_HEAVY_TAILED)

Fitted = tuple[DecorrelatedPosterior, float]


@dataclass(frozen=True)
class Mean:
    """A fit of one output's mean, and what it says of left-out rows."""

    fitted: Fitted
    loo: LeaveOneOut
    log_weights: float = 0.0
    target: RotatedTarget | None = None  # of a weighted fit

    @property
    def noise(self) -> float:
        return float(1 / self.fitted[0].noise.precision)

    @property
    def squares(self) -> FloatArray:
        """ρ = e²/(1 − h), (n_rows,)."""
        return np.asarray((self.loo.residuals**2 * (1 - self.loo.leverages))[:, 0])


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


@dataclass(frozen=True)
class _Pass:
    """A regression of the log noise variances, and each output's noise without and with heavy tails."""

    log_variance: LogVariance
    means: list[Mean]
    candidates: list[dict[str, Candidate]]

    @property
    def log_density(self) -> float:
        return sum(max(c.log_density for c in each.values()) for each in self.candidates)


def _is_gain(values: FloatArray, weight: FloatArray, margin: float = 0.0) -> bool:
    """Whether a mean is above a margin, and above zero by more than chance."""
    mean = np.average(values, weights=weight)
    error = np.sqrt(np.average((values - mean) ** 2, weights=weight) / len(values))
    return bool(mean > max(margin, STANDARD_ERRORS * error))


def _best_of(candidates: dict[str, Candidate]) -> str:
    return max(candidates, key=lambda name: candidates[name].log_density - MARGINS[name])


def fit_varying_noise(
    model: Any, training: Training, fitted: Sequence[Fitted], rotated: RotatedStatistics
) -> tuple[list[Fitted], NoiseModel]:
    """Return the posteriors of all outputs and the noise that goes with them.

    `fitted`: with constant noise. `rotated`: statistics in its basis.
    """
    return NoiseFit(model, training, fitted, rotated).varying()


def choose_noise(
    model: Any, training: Training, fitted: Sequence[Fitted], rotated: RotatedStatistics
) -> tuple[list[Fitted], NoiseModel | None]:
    """Return the same with the kind of noise of each output that makes left-out rows likeliest; None if all constant.

    Nothing is compared where residuals of left-out rows look Gaussian, or rows are few.
    """
    fit = NoiseFit(model, training, fitted, rotated)
    if len(fit.x) < MIN_ROWS_TO_CHOOSE or fit.looks_constant():
        return list(fitted), None
    return fit.chosen()


class NoiseFit:
    """The rows of a fit, merged, what of each is left out at a time, and its mean with constant noise."""

    def __init__(self, model: Any, training: Training, fitted: Sequence[Fitted], rotated: RotatedStatistics) -> None:
        assert training.rows is not None
        self.model, self.rng, self.n_threads = model, training.rng, training.n_threads
        first, counts, _ = training.rows.merged
        used = counts > 0
        self.x, self.y, self.counts = training.rows.x[first[used]], training.rows.y[first[used]], counts[used]
        self.one = training.rows.counts.left_out(counts)[used]
        n = len(self.x)
        self.compared = np.arange(n)
        if n > MAX_COMPARED_ROWS:
            self.compared = np.sort(self.rng.choice(n, MAX_COMPARED_ROWS, replace=False))
        self.fitted = fitted
        self.noise = np.array([1 / posterior.noise.precision for posterior, _ in fitted])
        self.ridge = ridge_of_rows(rotated, 1 / self.noise, np.array([scale**2 for _, scale in fitted]))

    @cached_property
    def constant(self) -> list[Mean]:
        """The fit with constant noise of every output."""
        mean, variance = self.moments(self.model.features_, self.ridge, len(self.fitted))
        return [
            Mean(each, self.left_out(self.y[:, k], mean[:, k], variance[:, k], self.one / self.noise[k]))
            for k, each in enumerate(self.fitted)
        ]

    def looks_constant(self) -> bool:
        """Whether left-out rows give no reason to compare kinds of noise."""
        rows, basis = self.compared, self.model.features_
        mean, variance = self.moments(basis, self.ridge, len(self.fitted), rows)
        loo = leave_one_out(self.y[rows], mean, variance, self.one[rows, None] / self.noise)
        return looks_constant(loo.studentised, basis.inputs(self.x[rows]))

    def chosen(self) -> tuple[list[Fitted], NoiseModel | None]:
        """Choose among constant and varying noise, with heavy tails and without."""
        best = self._best_pass()
        compared = [self.flat(m) | varying for m, varying in zip(self.constant, best.candidates, strict=True)]
        choices = []
        for each in compared:
            eligible = [name for name in each if name == CONSTANT or each[name].gains(each[CONSTANT], MARGINS[name])]
            choices.append(_best_of({name: each[name] for name in eligible}))
        varies = any(choice in VARIES for choice in choices)
        return self.result(choices, compared, best.log_variance if varies else None)

    def varying(self) -> tuple[list[Fitted], NoiseModel]:
        flat = [self.flat(mean) for mean in self.constant]
        best = self._best_pass()
        chosen = [_best_of(each) for each in best.candidates]
        compared = [constant | varying for constant, varying in zip(flat, best.candidates, strict=True)]
        return self.result(chosen, compared, best.log_variance)

    def result(
        self, choices: list[str], compared: list[dict[str, Candidate]], log_variance: LogVariance | None
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
            log_densities=densities - np.log(self.model.y_scale_),
            log_variance=log_variance,
        )
        return [c.mean.fitted for c in used], replace(noise, mean_variance=self._averaged(noise))

    def _averaged(self, noise: NoiseModel) -> FloatArray:
        """Average the expected noise variance of every output over the rows."""
        total = np.zeros(len(noise.choices))
        for rows in self.model._blocks(self.x, N_NOISE_FEATURES):
            for k, mixture in enumerate(noise.of(self.x[rows], self.n_threads)):
                each = noise.mean_variance[k] if mixture is None else mixture[1] @ mixture[0]
                total[k] += np.sum(self.counts[rows] * each)
        return total / self.counts.sum()

    # --- constant noise

    def flat(self, mean: Mean) -> dict[str, Candidate]:
        log_noise = LogNoise.constant(mean.noise, len(self.x))
        return {CONSTANT: self.best(mean, log_noise, [NO_TAILS]), HEAVY_TAILED: self.best(mean, log_noise, TAILS)}

    # --- noise that varies

    def _best_pass(self) -> _Pass:
        """Go back and forth between log variances and weighted means; return the pass of largest density."""
        basis, means, passes = None, self.constant, []
        for _ in range(N_PASSES):
            squares = np.stack([mean.squares for mean in means], axis=1)
            estimates = estimates_of_log_noise(squares, np.array([mean.noise for mean in means]))
            log_variance, left_out = self._regression(estimates, basis)
            basis = log_variance.basis
            inside = (
                log_variance.location + log_variance.scale * self.moments(basis, log_variance.posterior, len(means))[0]
            )
            means = [
                self.weighted(k, precision_weights(inside[:, k], self.counts), self._start(constant))
                for k, constant in enumerate(self.constant)
            ]
            candidates = [self._varying(k, weighted, left_out[k]) for k, weighted in enumerate(means)]
            passes.append(_Pass(log_variance, means, candidates))
        return max(passes, key=lambda each: each.log_density)

    def _varying(self, k: int, weighted: Mean, log_noise: LogNoise) -> dict[str, Candidate]:
        """Return an output's varying noise without and with tails.

        About the weighted mean where that is closer to left-out rows by more than chance; else about the unweighted
        mean, with its own variance or that of the weighted one.
        """
        constant = self.constant[k]
        means = [constant, self._moved(k, weighted, constant)]
        gain = np.square(constant.loo.residuals[:, 0]) - np.square(weighted.loo.residuals[:, 0])
        if _is_gain(gain, self.counts):
            means.append(weighted)
        found = {}
        for name, tails in ((VARYING, [NO_TAILS]), (VARYING_HEAVY_TAILED, TAILS)):
            found[name] = max((self.best(mean, log_noise, tails) for mean in means), key=lambda c: c.log_density)
        return found

    def _moved(self, k: int, weighted: Mean, constant: Mean) -> Mean:
        """Return the unweighted mean with the posterior variances of the weighted one."""
        assert weighted.target is not None
        (posterior, scale), (unweighted, unit) = weighted.fitted, constant.fitted
        coefficients = unweighted.coefficients * unit / scale
        moved = moved_to(posterior, weighted.target.scaled(scale**2), self._prior(), coefficients)
        loo = replace(constant.loo, latent_variances=weighted.loo.latent_variances)
        return replace(weighted, fitted=(moved, scale), loo=loo)

    def _prior(self) -> DensityPrior:
        prior = as_prior(self.model.prior)
        assert isinstance(prior, DensityPrior)
        return prior

    def _regression(self, estimates: FloatArray, basis: Basis | None) -> tuple[LogVariance, list[LogNoise]]:
        """Regress estimates of log noise variances, (n_rows, n_outputs), on X; also predict left-out rows."""
        weight = self.counts / self.counts.mean()
        location, scale = weighted_location_scale(estimates, weight)
        scale = np.where(scale > 0, scale, 1.0)
        targets, noise = (estimates - location) / scale, LOG_CHI2_VARIANCE / scale**2
        if basis is None:
            basis = self._noise_basis(TrainingRows(self.x, targets, weight), scale)
        inputs = basis.inputs(self.x)
        statistics = collect_statistics(basis.map, inputs, targets, weight, n_threads=self.n_threads)
        rotated = decorrelate(statistics)
        variances = []
        for k in range(targets.shape[1]):
            # No prior variance is known: where noise is constant the evidence is to find none.
            start = InitialHyperparameters(float(noise[k]), fixed_noise=float(noise[k]))
            variances.append(start.by_evidence(rotated.target(k))[1])
        posterior = RidgePosterior.of(rotated, 1 / noise, np.array(variances))
        missing = basis.mean_missing_variance(inputs, weight, statistics.mean_square)
        log_variance = LogVariance(basis, posterior, location, scale, missing)
        mean, variance = self.moments(basis, posterior, targets.shape[1])
        loo = leave_one_out(targets, mean, variance, (self.one / self.counts.mean())[:, None] / noise)
        left_out = [
            LogNoise(location[k] + scale[k] * loo.means[:, k], scale[k] ** 2 * loo.latent_variances[:, k])
            for k in range(targets.shape[1])
        ]
        return log_variance, left_out

    def _noise_basis(self, rows: TrainingRows, scale: FloatArray) -> Basis:
        """Fit a kernel of its own to log noise variances; where X has no columns of numbers, share the basis of f."""
        if self.model._feature_kind() in ("precomputed", "transformer"):
            return self.model.features_
        n_basis_functions = min(self.model.n_basis_functions, N_NOISE_FEATURES)
        learner = clone(self.model).set_params(
            features="nystroem", n_basis_functions=n_basis_functions, length_scale=None
        )
        learner.columns_ = Columns.of_numbers(self.x.shape[1])  # rows are encoded already
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HyperparameterSearchWarning)  # log variances are mostly noise
            return learner._fit_features(rows, self.rng, self.n_threads, scale)

    def weighted(self, k: int, precision: FloatArray, start: InitialHyperparameters) -> Mean:
        """Fit an output's mean to rows of relative precisions that average to one."""
        weight = self.counts * precision
        basis, dtype, y = self.model.features_, self.model.block_dtype, self.y[:, k]
        statistics = collect_statistics(
            basis.map, basis.inputs(self.x), y[:, None], weight, block_dtype=dtype, n_threads=self.n_threads
        )
        rotated = decorrelate(replace(statistics, n_samples=self.model.effective_rows_))
        posterior, scale = fit_decorrelated_by_evidence(
            rotated.target(0),
            start,
            prior=self._prior(),
            n_levels=self.model.n_levels,
            n_noise_levels=1,
            max_iter=self.model.max_iter,
        )
        noise = posterior.noise.variance
        ridge = ridge_of_rows(rotated, np.array([1 / noise]), np.array([scale**2]))
        mean, variance = self.moments(basis, ridge, 1)
        loo = self.left_out(y, mean[:, 0], variance[:, 0], self.one * precision / noise)
        return Mean((posterior, scale), loo, 0.5 * float(self.counts @ np.log(precision)), rotated.target(0))

    def _start(self, mean: Mean) -> InitialHyperparameters:
        return InitialHyperparameters(mean.noise, mean.fitted[1] ** 2)

    # --- rows

    def best(self, mean: Mean, log_noise: LogNoise, tails: Sequence[Tails]) -> Candidate:
        """Return the tails under which left-out rows are likeliest."""
        rows, weight = self.compared, self.counts[self.compared]
        chosen = LogNoise(log_noise.mean[rows], log_noise.variance[rows])
        residual, variance = mean.loo.residuals[rows, 0], mean.loo.latent_variances[rows, 0]
        found = (Candidate(mean, each, chosen.log_density(residual, variance, each), weight) for each in tails)
        return max(found, key=lambda candidate: candidate.log_density)

    def left_out(self, y: FloatArray, mean: FloatArray, variance: FloatArray, precision: FloatArray) -> LeaveOneOut:
        return leave_one_out(y[:, None], mean[:, None], variance[:, None], precision[:, None])

    def moments(
        self,
        basis: Basis,
        posterior: RidgePosterior | WeightedRidge,
        n_outputs: int,
        chosen: NDArray[np.intp] | slice = slice(None),
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of functions at all or chosen rows, (n_rows, n_outputs) each."""
        x = self.x[chosen]
        mean, variance = np.empty((2, len(x), n_outputs))
        for rows in self.model._blocks(x, basis.n_weights):
            phi = basis.transform(x[rows], np.float64, self.n_threads)
            mean[rows], variance[rows] = posterior.moments(np.ascontiguousarray(phi))
        return mean, variance

    def mean_missing_variance(self, basis: Basis) -> float:
        """Return the prior variance of f that a basis misses, averaged over the rows."""
        squares = np.empty(len(self.x))
        for rows in self.model._blocks(self.x, basis.n_weights):
            squares[rows] = np.square(basis.transform(self.x[rows], np.float64, self.n_threads)).sum(axis=1)
        return basis.mean_missing_variance(
            basis.inputs(self.x), self.counts, float(np.average(squares, weights=self.counts))
        )
