"""Fits of noise that varies from row to row or has heavy tails, about a fit with constant noise.

Kinds of noise are compared by the log densities of some rows, left out one at a time. Noise first varies about the mean
of the constant fit, as these rows alone say. Only where that promises a gain are all rows weighted by their precisions,
and the log noise is learned from all of them. The mean stays that of the constant fit unless weighted rows give
one that is closer to left-out rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, ndtri
from scipy.stats import kurtosis

from pydirect._dense import product
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.fitting import FeaturePlan, fit_basis
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import LinearFeatures, NystroemFeatures
from pydirect.features.marginal_likelihood import Referee
from pydirect.features.rows import TrainingRows
from pydirect.features.screen import RELEVANT, screen_columns, standardised
from pydirect.features.search import search_kernel
from pydirect.linear.fit import InitialHyperparameters, fit_by_evidence, moved_to
from pydirect.linear.leave_one_out import LeaveOneOut, leave_one_out
from pydirect.linear.posterior import FactoredPosterior, GaussianPosterior, posterior_for_rows
from pydirect.noise.model import (
    CONSTANT,
    HEAVY_TAILED,
    LIGHT_TAILS,
    MIN_ROWS_TO_CHOOSE,
    NO_TAILS,
    NODE_WEIGHTS,
    TAILS,
    VARYING,
    VARYING_HEAVY_TAILED,
    LogNoise,
    LogVariance,
    NoiseModel,
    Tails,
)
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.statistics.gaussian import blocks_of, collect_statistics, weighted_location_scale
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, decorrelate
from pydirect.tables.encoding import ColumnEncoding

# Mean log densities that a kind of noise must gain: it has more freedom than leave-one-out sees.
MARGINS = {CONSTANT: 0.0, HEAVY_TAILED: 0.003, VARYING: 0.01, VARYING_HEAVY_TAILED: 0.013}
# Gain in nats of all rows together from which they have heavy tails.
NATS_OF_TAILS = 4.0
TINY = float(np.finfo(float).tiny)
# Least relative precision of a row that tells of the noise.
LEAST_PRECISION = 0.5
# Of its margin: what varying noise must gain before all rows are weighted.
PROMISING = 0.5
# Rows up to which nobody asks that first: much of what varies shows only about a mean that has seen it.
FEW_ROWS = 2000
MAX_COMPARED_ROWS = 4000
N_NOISE_FEATURES = 400
# Rows that find the kernel of log noise, whose targets are nearly all noise.
MAX_NOISE_ROWS = 256
# Of gains, that count as more than chance.
STANDARD_ERRORS = 2.0
VARIES = (VARYING, VARYING_HEAVY_TAILED)
# Mean and variance of the logarithm of a χ² variable of one degree of freedom.
LOG_CHI2_MEAN = float(digamma(0.5) + np.log(2.0))
LOG_CHI2_VARIANCE = 0.5 * np.pi**2
# Squared residuals below this fraction of the noise variance say no more about it.
SMALLEST_SQUARE = 1e-4
FALSE_ALARMS = 0.01
WEIGHT_BOUNDS = (1e-3, 1e3)
# Share of the targets' variance that is noise, to start the evidence from.
START_NOISE = 0.9
LINEAR_AMPLITUDE = 0.3
# Length-scales grow with the root of the number of columns that matter.
LONG, SHORT, RELEVANT_ONES, OTHERS = 1.5, 0.5, 1.0, 10.0
# Amplitude of what the relevant columns leave over.
REST = 0.1


# Leverages above are computed exactly, those below from random signs.
LARGEST_SKETCHED = 0.3
N_SIGNS = 128
# Functions up to which all are exact: what signs leave to chance would change with the order of columns.
MOST_EXACT = 512
# Posterior of one output and the prior standard deviation of its weights.
Fitted = tuple[GaussianPosterior, float]


class UnseenRows(NamedTuple):
    """Rows left out one at a time: standardised targets, (n_rows, n_outputs), weights, what predicts each output."""

    targets: FloatArray
    weight: FloatArray
    candidates: list[Candidate]


# Posteriors of all outputs, the noise that goes with them, and how it predicts rows.
NoiseFound = tuple[list[Fitted], NoiseModel, UnseenRows]


@dataclass(eq=False)
class RowMoments:
    """Mean and variance of f at distinct rows of a fit, given all of them, computed where they are first asked for.

    Variances of rows of large leverage are exact. Elsewhere they come from projections onto random signs, which take a
    fraction of the time: there an error of a tenth in h changes e/(1 − h) by a few per cent at most. Where variances
    are exact, `missing`, (n_rows,), is what the basis functions miss at unit prior variance of weights.

    - `residual_variance`: as of `Basis.missing_variance`.
    - `x`, (n_rows, n_features_in); `weight`, (n_rows,), with which each row entered the statistics.
    - `noise`, `prior_variance`, (n_outputs,): of a row of weight one, and of every weight.
    - `rng`: draws the signs.
    """

    basis: Basis
    residual_variance: float
    x: FloatArray
    weight: FloatArray
    rotated: RotatedStatistics
    noise: FloatArray
    prior_variance: FloatArray
    rng: np.random.Generator
    n_threads: int

    def __post_init__(self) -> None:
        n = len(self.x)
        (self.mean, self.variance), self.missing = np.zeros((2, n, len(self.noise))), np.zeros(n)
        self.known, self.exact = np.zeros((2, n), dtype=bool)

    @cached_property
    def posterior(self) -> GaussianPosterior | FactoredPosterior:
        """Posterior of the weights of Φ."""
        return posterior_for_rows(self.rotated, 1 / self.noise, self.prior_variance)

    @cached_property
    def _projection(self) -> FloatArray:
        """Weights of functions at inputs for means and square roots of variances along random signs."""
        sketch = self.posterior.sketch(self.rng, N_SIGNS)
        return self.basis.weights_of_functions(np.hstack([self.posterior.coefficients, *sketch]))

    def at(self, rows: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance at rows, (n_chosen, n_outputs) each."""
        new, n_outputs = rows[~self.known[rows]], len(self.noise)
        if self.basis.n_weights <= max(MOST_EXACT, N_SIGNS * n_outputs):  # exact ones cost hardly more
            return self.exactly(rows, new)
        with single_blas_thread():
            for block in blocks_of(len(new), self.basis.n_weights):
                chosen = new[block]
                functions = self.basis.functions(self.basis.inputs(self.x[chosen]), self.n_threads)
                values = product(functions, self._projection, self.n_threads)
                signs = values[:, n_outputs:].reshape(len(chosen), n_outputs, N_SIGNS)
                self.mean[chosen], self.variance[chosen] = values[:, :n_outputs], np.einsum("ijk,ijk->ij", signs, signs)
        self.known[new] = True
        leverages = self.weight[new, None] / self.noise * self.variance[new]
        return self.exactly(rows, new[(leverages > LARGEST_SKETCHED).any(axis=1)])

    def exactly(self, rows: NDArray[np.intp], new: NDArray[np.intp] | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the same without estimates at some of the rows, `new`, or at all."""
        new = rows if new is None else new
        new = new[~self.exact[new]]
        with single_blas_thread():
            for block in blocks_of(len(new), self.basis.n_weights):
                chosen = new[block]
                inputs = self.basis.inputs(self.x[chosen])
                phi = np.ascontiguousarray(self.basis.map.transform(inputs, np.float64, self.n_threads))
                self.mean[chosen], self.variance[chosen] = self.posterior.moments(phi)
                self.missing[chosen] = self.basis.missing_variance(inputs, phi, self.residual_variance)
        self.known[new] = self.exact[new] = True
        return self.mean[rows], self.variance[rows]


@dataclass(frozen=True)
class NoiseProblem:
    """Distinct rows of a fit, its posteriors with constant noise, and what another fit needs.

    ``features`` are what was asked for, ``density_scale`` (n_outputs,) the targets' units.
    """

    basis: Basis
    residual_variance: float
    rows: TrainingRows
    rotated: RotatedStatistics
    fitted: Sequence[Fitted]
    effective_rows: float
    density_scale: FloatArray
    features: FeaturePlan
    max_iter: int
    block_dtype: str
    rng: np.random.Generator
    n_threads: int

    @property
    def n_noise_functions(self) -> int:
        """Basis functions of log noise variances."""
        return min(self.features.n_functions, N_NOISE_FEATURES)

    def learned(self, rows: TrainingRows, scale: FloatArray) -> Basis:
        """Learn a feature map like that of the fit from rows, given the scale of their targets."""
        search = partial(search_kernel, max_rows=self.features.max_search_rows)
        assert self.basis.columns is not None
        given = self.features, rows, self.basis.columns, search, self.rng
        learned = fit_basis(*given, names=self.basis.names, target_scale=scale)
        return replace(learned, target_transform=self.basis.target_transform)

    def noise_basis(self, rows: TrainingRows, scale: FloatArray) -> Basis:
        """Learn a feature map for log noise variances, whose targets are nearly all noise."""
        size = self.n_noise_functions
        plan = replace(self.features, kind="nystroem", n_functions=size, length_scale=None, parameters={})
        columns = ColumnEncoding.of_numbers(rows.x.shape[1])  # rows are encoded already
        search = partial(search_kernel, max_rows=min(self.features.max_search_rows, MAX_NOISE_ROWS), thorough=False)
        return fit_basis(plan, rows, columns, search, self.rng, target_scale=scale)

    def moments(self) -> RowMoments:
        """Moments of f at the distinct rows of positive weight."""
        noise = np.array([1 / posterior.noise.precision for posterior, _ in self.fitted])
        variance = np.array([scale for _, scale in self.fitted]) ** 2
        rows, weight = self.used
        given = self.basis, self.residual_variance, self.rows.x[rows], weight * self.precision, self.rotated
        return RowMoments(*given, noise, variance, self.rng.spawn(1)[0], self.n_threads)

    @cached_property
    def used(self) -> tuple[NDArray[np.intp], FloatArray]:
        """Indices and weights of the distinct rows of positive weight, (n_rows,) each."""
        first, weight, _ = self.rows.merged
        return first[weight > 0], weight[weight > 0]

    @cached_property
    def precision(self) -> FloatArray:
        """Relative precisions of the distinct rows of positive weight, (n_rows,)."""
        return self.rows.precisions[self.used[0]]

    @cached_property
    def targets(self) -> FloatArray:
        """Targets of the distinct rows of positive weight, (n_rows, n_outputs)."""
        return self.rows.y[self.used[0]]

    def left_out(self, moments: RowMoments, rows: NDArray[np.intp]) -> LeaveOneOut:
        """Predict rows without themselves and their copies, by the fit with constant noise."""
        mean, variance = moments.at(rows)
        precision = moments.weight[rows, None] / moments.noise
        noise = np.array([posterior.noise.variance for posterior, _ in self.fitted])
        missing = moments.missing[rows, None] * moments.prior_variance + np.outer(1 / self.precision[rows] - 1, noise)
        return leave_one_out(self.targets[rows], mean, variance, precision, noise, missing)


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
    log_noise: LogNoise
    log_densities: FloatArray
    weight: FloatArray

    @property
    def log_density(self) -> float:
        return float(np.average(self.log_densities, weights=self.weight))

    def gains(self, other: Candidate, margin: float) -> bool:
        """Whether left-out rows are likelier by a margin, and by more than chance."""
        return is_gain(self.log_densities - other.log_densities, self.weight, margin)

    @property
    def distribution(self) -> PredictiveDistribution:
        """The distributions of left-out rows."""
        loo, noise = self.mean.loo, self.log_noise.variances(self.tails)
        return PredictiveDistribution(NODE_WEIGHTS, loo.means, loo.latent_variances + noise)


Candidates = dict[str, Candidate]


@dataclass(frozen=True)
class Regression:
    """A regression of log noise variances, and what it says of the compared rows without them, for every output."""

    log_variance: LogVariance
    left_out: list[LogNoise]


def squares_of(loo: LeaveOneOut) -> FloatArray:
    """ρ = e²/(1 − h) of residuals e of all rows, (n_rows,)."""
    return np.asarray((loo.residuals**2 * (1 - loo.leverages))[:, 0])


def is_gain(
    values: FloatArray, weight: FloatArray | None, margin: float = 0.0, standard_errors: float = STANDARD_ERRORS
) -> bool:
    """Whether a mean is above a margin, and above zero by more than chance."""
    mean = np.average(values, weights=weight)
    error = np.sqrt(np.average((values - mean) ** 2, weights=weight) / len(values))
    return bool(mean > max(margin, standard_errors * error))


def _best_of(candidates: Candidates, share: float = 1.0) -> str:
    return max(candidates, key=lambda name: candidates[name].log_density - share * MARGINS[name])


def _log_density(candidates: dict[int, Candidates]) -> float:
    """Return the log density under the likeliest kinds of noise, summed over outputs."""
    return sum(max(c.log_density for c in each.values()) for each in candidates.values())


def _choice(candidates: Candidates, share: float = 1.0) -> str:
    """Return the best of the kinds of noise that gain a share of their margins over noise that is the same everywhere.

    Heavy tails add two numbers to it. A few rows tell of them, so that not the gain's standard error counts, but nats.
    """
    constant, tailed = candidates[CONSTANT], candidates[HEAVY_TAILED]
    gain = tailed.log_density - constant.log_density
    has_tails = gain > max(share * MARGINS[HEAVY_TAILED], NATS_OF_TAILS / len(tailed.log_densities))
    flat = HEAVY_TAILED if has_tails else CONSTANT
    varying = {name: candidates[name] for name in VARIES if name in candidates}
    margins = {name: share * (MARGINS[name] - MARGINS[flat]) for name in varying}
    enough = {name: each for name, each in varying.items() if each.gains(candidates[flat], margins[name])}
    return _best_of({flat: candidates[flat], **enough}, share)


def looks_constant(studentised: FloatArray, inputs: FloatArray) -> bool:
    """Whether left-out rows give no reason to doubt Gaussian noise of constant variance.

    Their kurtosis, and correlations of absolute residuals with inputs and squares of inputs (Glejser 1969), each at a
    false alarm rate of 1 %, over all inputs together.

    `studentised`, (n_rows, n_outputs), are residuals of left-out rows in standard deviations of their predictions;
    `inputs`, (n_rows, n_inputs).
    """
    n = len(inputs)
    if (kurtosis(studentised, axis=0) > ndtri(1 - FALSE_ALARMS) * np.sqrt(24 / n)).any():
        return False
    size = standardised(np.abs(studentised))
    tests = [standardised(inputs), standardised(inputs**2)]
    largest = max((np.abs(test.T @ size).max(initial=0.0) for test in tests), default=0.0)
    n_tests = 2 * max(inputs.shape[1] * studentised.shape[1], 1)
    return bool(largest / np.sqrt(n) < ndtri(1 - FALSE_ALARMS / (2 * n_tests)))


def estimates_of_log_noise(squares: FloatArray, noise: FloatArray) -> FloatArray:
    """Unbiased estimates of log σ_i², of variance `LOG_CHI2_VARIANCE`, from ρ_i and the mean noise variance."""
    return np.log(np.maximum(squares, SMALLEST_SQUARE * noise)) - LOG_CHI2_MEAN


def precision_weights(log_variance: FloatArray, counts: FloatArray) -> FloatArray:
    """Precisions of rows, (n_rows,), relative to their mean over all rows and within `WEIGHT_BOUNDS`."""
    weight = np.exp(np.maximum(log_variance.min() - log_variance, -700.0))
    weight = np.clip(weight / np.average(weight, weights=counts), *WEIGHT_BOUNDS)
    return np.asarray(weight / np.average(weight, weights=counts))


def kernel_of_log_noise(
    x: FloatArray, y: FloatArray, weight: FloatArray, n_linear: int, rng: np.random.Generator
) -> KernelHyperparameters:
    """Return the kernel of largest evidence among those of long and short length-scales and of relevant columns.

    `x`, (n_rows, n_inputs), standardised, of which the leading `n_linear` enter the linear part; `y`, (n_rows,
    n_outputs), standardised estimates of log noise variances. Logarithms of squared residuals are mostly noise, of
    variance π²/2: a search on few rows finds little in them, and where noise varies it does so slowly, or with few
    columns.
    """
    d, root = x.shape[1], np.sqrt(n_linear)
    relevant = np.flatnonzero(screen_columns(x[:, :n_linear], y, rng) > RELEVANT)
    tried = [(np.full(d, scale * root), 1.0) for scale in (LONG, SHORT)]
    if relevant.size:
        tried.append((np.full(d, OTHERS * root), REST))
        tried[-1][0][relevant] = RELEVANT_ONES * np.sqrt(relevant.size)
    others = LONG * root, LINEAR_AMPLITUDE, n_linear
    kernels = [KernelHyperparameters(START_NOISE, 1.0, scales, rest, *others) for scales, rest in tried]
    return max(kernels, key=Referee(x, y, weight, rng))


def fit_varying_noise(problem: NoiseProblem, moments: RowMoments) -> NoiseFound:
    """Return the posteriors of all outputs and the varying noise that goes with them; `moments` of the constant fit."""
    return NoiseFit(problem, moments).varying()


def telling_rows(problem: NoiseProblem) -> NDArray[np.intp]:
    """Return the rows whose targets scatter mostly by the noise, (n_chosen,): of others, gaps would pass for it."""
    return np.flatnonzero(problem.precision >= LEAST_PRECISION)


def choose_noise(problem: NoiseProblem, moments: RowMoments) -> NoiseFound | None:
    """Return the same with the kind of noise that leave-one-out scores favour for each output; None if all constant.

    Nothing is compared where leave-one-out residuals look Gaussian, or rows are few.
    """
    if len(telling_rows(problem)) < MIN_ROWS_TO_CHOOSE:
        return None
    fit = NoiseFit(problem, moments)
    studentised = np.hstack([mean.loo.studentised for mean in fit.constant])
    if looks_constant(studentised, fit.basis.inputs(fit.x[fit.compared])):
        return None
    return fit.chosen()


class NoiseFit:
    """The rows of a fit, merged, what of each is left out at a time, and its mean with constant noise."""

    def __init__(self, problem: NoiseProblem, moments: RowMoments) -> None:
        self.problem, self.of_constant, self.rng = problem, moments, problem.rng
        self.basis, self.residual_variance, self.n_threads = problem.basis, problem.residual_variance, problem.n_threads
        self.x, self.y, self.counts, self.noise = moments.x, problem.targets, problem.used[1], moments.noise
        self.one, self.precision = problem.rows.counts.left_out(self.counts), problem.precision
        self.missing = np.outer(1 / self.precision - 1, self.noise)  # variance of f over what is missing
        self.compared = self.telling = telling_rows(problem)
        if len(self.telling) > MAX_COMPARED_ROWS:
            self.compared = np.sort(self.rng.choice(self.telling, MAX_COMPARED_ROWS, replace=False))
        # With constant noise, of every output.
        log_weights = 0.5 * float(self.counts @ np.log(self.precision))
        left_out = self.constant_left_out(self.compared)
        self.constant = [Mean(*own, log_weights) for own in zip(problem.fitted, left_out, strict=True)]

    def constant_left_out(self, rows: NDArray[np.intp]) -> list[LeaveOneOut]:
        """Predict rows without themselves by the fit with constant noise, for every output."""
        precision = (self.one * self.precision)[rows, None] / self.noise
        arrays = self.y[rows], *self.of_constant.at(rows), precision
        found = (leave_one_out(*[each[:, [k]] for each in arrays]) for k in range(len(self.noise)))
        return [self.with_missing(loo, rows, k) for k, loo in enumerate(found)]

    def with_missing(self, loo: LeaveOneOut, rows: NDArray[np.intp], k: int) -> LeaveOneOut:
        """Add the variance over what is missing of rows to that of f."""
        return replace(loo, latent_variances=loo.latent_variances + self.missing[rows, k, None])

    def chosen(self) -> NoiseFound:
        """Choose among constant and varying noise, with heavy tails and without."""
        flat = [self.flat(mean) for mean in self.constant]
        compared = [each | self._varying(self.first.left_out[k], [self.constant[k]]) for k, each in enumerate(flat)]
        choices, log_variance = [_choice(each) for each in flat], None
        few = len(self.x) <= FEW_ROWS
        promising = [k for k, each in enumerate(compared) if few or _choice(each, PROMISING) in VARIES]
        if promising:
            found, log_variance = self._weighted(promising)
            for k, each in found.items():
                compared[k] = flat[k] | each
                choices[k] = _choice(compared[k])
        return self.result(choices, compared, log_variance)

    def varying(self) -> NoiseFound:
        found, log_variance = self._weighted(range(len(self.constant)))
        compared = [self.flat(mean) | found[k] for k, mean in enumerate(self.constant)]
        return self.result([_best_of(found[k]) for k in found], compared, log_variance)

    def result(self, choices: list[str], compared: list[Candidates], log_variance: LogVariance | None) -> NoiseFound:
        used, names = [each[name] for each, name in zip(compared, choices, strict=True)], tuple(compared[0])
        densities = np.array([[each[name].log_density for each in compared] for name in names])
        noise = NoiseModel(
            tuple(choices),
            log_noise=np.log([c.mean.noise for c in used]),
            spread=np.array([c.tails.spread for c in used]),
            shift=np.array([c.tails.shift for c in used]),
            mean_variance=np.array([c.mean.fitted[0].noise.variance for c in used]),
            log_weights=np.array([c.mean.log_weights for c in used]),
            candidates=names,
            log_densities=densities - np.log(self.problem.density_scale),
            log_variance=log_variance if any(choice in VARIES for choice in choices) else None,
        )
        rows = UnseenRows(self.y[self.compared], self.counts[self.compared], used)
        return [c.mean.fitted for c in used], replace(noise, mean_variance=self._averaged(noise)), rows

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
        return np.stack([self.squares_of(mean.loo, self.compared) for mean in self.constant], axis=1)

    def squares_of(self, loo: LeaveOneOut, rows: NDArray[np.intp]) -> FloatArray:
        """ρ of rows as if nothing were missing, (n_chosen,)."""
        return squares_of(loo) * self.precision[rows]

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
            regressions = found, self._regression(squares, self.telling, basis)
            passes += [(self._candidates(each, means), each.log_variance) for each in regressions]
            found = regressions[-1]
        return max(passes, key=lambda each: _log_density(each[0]))

    def _weighted_means(
        self, outputs: Sequence[int], log_variance: LogVariance
    ) -> tuple[dict[int, list[Mean]], FloatArray]:
        """Return the means of some outputs, weighted and not, and squares ρ of all rows by the weighted ones."""
        log_variances = log_variance.means(self.x, self.n_threads)
        unweighted = self.constant_left_out(self.telling)
        squares, means = np.tile(self.noise, (len(self.telling), 1)), {}
        for k in outputs:
            scatter = np.logaddexp(log_variances[:, k], np.log(np.maximum(self.missing[:, k], TINY)))
            constant, precision = self.constant[k], precision_weights(scatter, self.counts)
            initial = InitialHyperparameters(float(self.noise[k]), constant.fitted[1] ** 2)
            weighted, moments = self.weighted(k, precision, initial)
            loo = self.left_out(moments, k, precision / weighted.noise, self.telling)
            squares[:, k] = self.squares_of(loo, self.telling)
            # The weighted mean is for those rows whose left-out targets it is closer to by more than chance.
            closer = is_gain((unweighted[k].residuals ** 2 - loo.residuals**2)[:, 0], self.counts[self.telling])
            means[k] = [constant, self._moved(weighted, constant), *[weighted] * closer]
        return means, squares

    def _candidates(self, regression: Regression, means: dict[int, list[Mean]]) -> dict[int, Candidates]:
        return {k: self._varying(regression.left_out[k], each) for k, each in means.items()}

    def _searched(self) -> Regression:
        """The same with a kernel of its own, where the feature map is not given."""
        if not self.problem.features.takes_tables:
            return self.first
        n = min(len(self.compared), 2 * self.problem.features.max_search_rows)  # one subset
        few = np.sort(self.rng.choice(len(self.compared), n, replace=False))
        chosen = self.compared[few]
        weight = self.counts[chosen]
        targets, _, scale = self._targets(self._first_squares[few], weight)
        basis = self.problem.noise_basis(TrainingRows(self.x[chosen], targets, weight / weight.mean()), scale)
        return self._regression(self._first_squares, self.compared, basis)

    def _varying(self, log_noise: LogNoise, means: Sequence[Mean]) -> Candidates:
        """Return varying noise without and with tails, about the mean that left-out rows like best."""
        return {
            name: max((self.best(mean, log_noise, tails) for mean in means), key=lambda c: c.log_density)
            for name, tails in ((VARYING, LIGHT_TAILS), (VARYING_HEAVY_TAILED, TAILS))
        }

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
        noise, n_outputs = LOG_CHI2_VARIANCE / scale**2, targets.shape[1]
        basis = basis or self._noise_basis(self.x[rows], targets, weight)
        inputs = basis.inputs(self.x[rows])
        statistics = collect_statistics(basis.map, inputs, targets, weight, n_threads=self.n_threads)
        rotated = decorrelate(statistics)
        # No prior variance is known: where noise is constant the evidence is to find none.
        starts = [InitialHyperparameters(float(each), fixed_noise=float(each)) for each in noise]
        variances = [start.by_evidence(rotated.target(k))[1] for k, start in enumerate(starts)]
        posterior = GaussianPosterior.of(rotated, 1 / noise, np.array(variances))
        missing = basis.mean_missing_variance(inputs, weight, statistics.mean_square)
        formed = replace(posterior, rotation=posterior.rotation.formed())
        mean, variance = self.moments(basis, posterior, n_outputs, self.compared)
        own, one = targets[np.isin(rows, self.compared)], self.one[self.compared] / unit
        loo = leave_one_out(own, mean, variance, one[:, None] / noise)
        log_means, spreads = location + scale * loo.means, scale**2 * loo.latent_variances
        left_out = [LogNoise(log_means[:, k], spreads[:, k]) for k in range(n_outputs)]
        return Regression(LogVariance(basis, formed, location, scale, missing), left_out)

    def _targets(self, squares: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return standardised estimates of log noise variances by squares ρ, their locations and their scales."""
        estimates = estimates_of_log_noise(squares, self.noise)
        location, scale = weighted_location_scale(estimates, weight)
        scale = np.where(scale > 0, scale, 1.0)
        return (estimates - location) / scale, location, scale

    def _noise_basis(self, x: FloatArray, targets: FloatArray, weight: FloatArray) -> Basis:
        """Fit a kernel of its own to log noise variances; where X has no columns of numbers, share the basis of f."""
        if not self.problem.features.takes_tables:
            return self.basis
        columns = ColumnEncoding.of_numbers(x.shape[1])  # encoded already
        input_map = InputMap.fit(x, weight, rank=False)
        if not input_map.n_outputs:
            return Basis(input_map, LinearFeatures(0), columns=columns)
        inputs = input_map.transform(x)
        kernel = kernel_of_log_noise(inputs, targets, weight, input_map.n_standardised, self.rng)
        chosen = self.rng.choice(len(inputs), min(self.problem.n_noise_functions, len(inputs)), replace=False)
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
        given = self.basis, self.residual_variance, self.x, weight, rotated, np.array([noise]), np.array([scale**2])
        moments = RowMoments(*given, self.rng, self.n_threads)
        loo = self.left_out(moments, k, precision / noise, self.compared)
        log_weights = 0.5 * float(self.counts @ np.log(precision))
        return Mean((posterior, scale), loo, log_weights, rotated.target(0)), moments

    # --- rows

    def best(self, mean: Mean, log_noise: LogNoise, tails: Sequence[Tails]) -> Candidate:
        """Return the tails under which left-out rows are likeliest."""
        weight = self.counts[self.compared]
        residual, variance = mean.loo.residuals[:, 0], mean.loo.latent_variances[:, 0]
        found = (
            Candidate(mean, each, log_noise, log_noise.log_density(residual, variance, each), weight) for each in tails
        )
        return max(found, key=lambda candidate: candidate.log_density)

    def left_out(self, moments: RowMoments, k: int, precision: FloatArray, rows: NDArray[np.intp]) -> LeaveOneOut:
        """Predict rows of a weighted fit without themselves, (n_chosen, 1), given each measurement's precision."""
        found = leave_one_out(self.y[rows][:, [k]], *moments.at(rows), (self.one * precision)[rows, None])
        return self.with_missing(found, rows, k)

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
