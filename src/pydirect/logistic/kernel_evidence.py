"""Kernel hyperparameters by empirical Bayes, from labels instead of targets.

The logits are Gaussian processes of one kernel: one for two classes, and K for more, of which softmax sees K − 1
orthogonal contrasts u. For any Gaussian q(u) with one covariance for all contrasts, the log evidence of the labels is
at least

    ELBO = Σ ω E log p(label | u) − Σ KL(q(u) ‖ p(u | θ)),

and the best q (Opper & Archambeau 2009) is the posterior of a regression on working responses E u + g/h with noise
variances 1/(ω h), where g is the expected gradient of the log-likelihood and h its expected curvature per contrast.
There, the ELBO has the gradient in θ of this regression's evidence at fixed responses, so that q and θ are improved in
turn: q by natural gradients (Khan & Lin 2017, Conjugate-computation variational inference), θ by L-BFGS.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert, lapack

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import PAIRS, KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.race import Patience, descend, race
from pydirect.features.rows import RowCounts
from pydirect.features.screen import screen_columns
from pydirect.features.search import PROMISING, KernelRows, orders_of, race_axes, starting_points
from pydirect.features.search_record import HyperparameterSearch, best_axes, unpursued
from pydirect.logistic.latent import LatentLikelihood
from pydirect.logistic.likelihood import RowTerms, softmax_terms

# Unit of logits: divided by it, they have the priors of standardised targets.
LOGIT_UNIT = 3.0
# Rows and iterations of the race.
RACE_ROWS = 256
RACE_ITERATIONS = 10
# Rows of the best run: all up to the first number, then a share of them up to the second: twice as many cost eight
# times as much an iteration, more than all of inference where there are few rows.
ALL_ROWS = 500
SHARE_OF_ROWS = 0.25
MAX_ROWS = 1000
# Its iterations at the first number of rows, fewer at more, and when it stops.
ITERATIONS = 20
PATIENCE = Patience(4, 0.001)
# Steps of q between searches for θ, at first and later, and nats per row from which another is worth it.
FIRST_STEPS, STEPS = 6, 3
STEP_GAIN = 0.001
# With less, a row says nothing.
LEAST_PRECISION = 1e-5


@dataclass(frozen=True)
class LabelLikelihood:
    """Likelihood of labels, as a function of contrasts of the logits."""

    t: FloatArray  # (n_rows, n_problems): −1 or 1; one column for two classes, one per class for more
    weight: FloatArray  # (n_rows,)

    @cached_property
    def contrasts(self) -> FloatArray:
        """From contrasts to logits, (n_problems, n_contrasts): orthonormal, without the logits' mean."""
        n_problems = self.t.shape[1]
        return np.ones((1, 1)) if n_problems == 1 else np.ascontiguousarray(helmert(n_problems).T)

    @cached_property
    def offset(self) -> FloatArray:
        """Prior means of the logits, (n_problems,): of the rows at hand, in whatever shares classes were drawn.

        Where rows are drawn by class, the logits differ from those of all rows by constants.
        """
        mass = self.weight @ (self.t > 0) + 0.5
        return np.log(mass) - (np.log(self.weight.sum() + 1.0 - mass) if len(mass) == 1 else 0.0)

    @property
    def n_contrasts(self) -> int:
        """Number of contrasts."""
        return self.contrasts.shape[1]

    def first_guess(self) -> FloatArray:
        """Zeros."""
        return np.zeros((len(self.t), self.n_contrasts))

    def improved(self, moments: Moments, weight: FloatArray) -> LabelLikelihood:
        """Return the same: there are no parameters."""
        return self

    def expected(self, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate over contrasts of given means, (n_rows, n_contrasts), and variances, (n_rows,)."""
        terms = softmax_terms(self.t, self.offset + mean @ self.contrasts.T, variance)
        return RowTerms(terms.value, terms.residual @ self.contrasts, np.maximum(terms.precision, LEAST_PRECISION))


@dataclass(frozen=True)
class Sites:
    """A Gaussian likelihood per row, exp(first·u − ½ second |u|²) up to a factor."""

    first: FloatArray  # (n_rows, n_contrasts)
    second: FloatArray  # (n_rows,)

    @classmethod
    def at(cls, moments: Moments, terms: RowTerms, weight: FloatArray) -> Sites:
        """Return those of which the best q is the posterior, if it has these moments."""
        first = weight[:, None] * (terms.residual + terms.precision[:, None] * moments.mean)
        return cls(first, weight * terms.precision)

    @property
    def responses(self) -> FloatArray:
        """What regression is on, (n_rows, n_contrasts)."""
        return self.first / self.second[:, None]

    def towards(self, other: Sites, step: float) -> Sites:
        """Return the sites a step of the natural gradient ahead."""
        return Sites(*((1 - step) * a + step * b for a, b in zip(self._pair, other._pair, strict=True)))

    @property
    def _pair(self) -> tuple[FloatArray, FloatArray]:
        return self.first, self.second

    def posterior(self, prior: FloatArray) -> Moments:
        """Return the posterior under a prior covariance, (n_rows, n_rows)."""
        n, n_contrasts = self.first.shape
        root = np.sqrt(self.second)
        scaled = root[:, None] * prior * root
        scaled[np.diag_indices(n)] += 1.0
        factor = lapack.dpotrf(scaled.T, lower=0, overwrite_a=1, clean=0)[0]
        whitened = self.first / root[:, None]
        solved = lapack.dpotrs(factor, whitened, lower=0)[0]
        evidence = -0.5 * np.vdot(whitened, solved) - n_contrasts * np.log(factor.diagonal()).sum()
        evidence += 0.5 * n_contrasts * np.log(self.second / (2 * np.pi)).sum()
        mean = prior @ (root[:, None] * solved)
        inverse = lapack.dpotri(factor, lower=0, overwrite_c=1)[0]
        variance = np.maximum(1.0 - inverse.diagonal(), 0.0) / self.second
        return Moments(mean, variance, float(evidence), float(evidence) - self._expected_log(mean, variance))

    def _expected_log(self, mean: FloatArray, variance: FloatArray) -> float:
        distance = ((self.responses - mean) ** 2).sum(axis=1) + self.first.shape[1] * variance
        normalisers = self.first.shape[1] * np.log(self.second / (2 * np.pi))
        return float(0.5 * (normalisers - self.second * distance).sum())


@dataclass(frozen=True)
class Moments:
    """A Gaussian q of the contrasts at the rows."""

    mean: FloatArray  # (n_rows, n_contrasts)
    variance: FloatArray  # (n_rows,)
    log_evidence: float  # of the sites' responses
    minus_kl: float  # −KL from its prior


class LatentMarginalLikelihood:
    """Negative ELBO of rows minus the log prior of the log parameters θ, and its gradient; see `MarginalLikelihood`.

    Exact where q was last brought up to date. Contrasts divided by `unit` have the priors of standardised targets.
    """

    iterations_between_updates = 5

    def __init__(
        self,
        x: FloatArray,
        likelihood: LabelLikelihood | LatentContrast,
        weight: FloatArray,
        *,
        n_linear: int,
        n_threads: int,
        tied: NDArray[np.intp] | None = None,
        unit: float = LOGIT_UNIT,
    ) -> None:
        self.x, self.n_threads, self.n_rows, self.n_values = x, n_threads, len(x), len(x)
        self.likelihood = self._given = likelihood
        self.weight, self.unit = weight, unit
        self.shape = (len(x), likelihood.n_contrasts)
        self.regression = MarginalLikelihood(x, np.zeros(self.shape), np.ones(len(x)), n_linear, n_threads, tied)
        self.regression.counts = False
        self.d, self.tied, self.mean = self.regression.d, self.regression.tied, self.regression.mean
        self.start = self.regression.start.copy()
        self.start[0] = -2 * np.log(unit)  # noise variances 1/h in units of the contrasts
        self.regression.noise_bounds = (self.start[0], self.start[0])
        self._forget()

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of θ."""
        return self.regression.bounds

    def _forget(self) -> None:
        self.sites: Sites | None = None
        self.likelihood = self._given
        self.step, self.constant = 1.0, 0.0

    def at(self, smoothness: float) -> LatentMarginalLikelihood:
        """Return the same with a kernel of this smoothness; both share their memory but for q."""
        other = copy.copy(self)
        other.regression = self.regression.at(smoothness)
        other._forget()
        return other

    def with_axes(self, axes: NDArray[np.intp], order: int) -> LatentMarginalLikelihood:
        """Return the same with a part of axes in place of the isotropic one."""
        other = copy.copy(self)
        other.regression = self.regression.with_axes(axes, order)
        other._forget()
        return other

    def theta_of(self, kernel: KernelHyperparameters) -> FloatArray:
        """Return θ of a kernel; a part of axes as it starts."""
        return self.regression.theta_of(kernel)

    def unpack(self, theta: FloatArray, n_evaluations: int = 0) -> KernelHyperparameters:
        """Return the hyperparameters of θ."""
        return self.regression.unpack(theta, n_evaluations)

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient."""
        value, gradient = self.regression(theta)
        return value + self.constant, gradient

    def update(self, theta: FloatArray) -> None:
        """Bring q up to date at given hyperparameters, by steps of the natural gradient that raise the ELBO.

        One curvature for all contrasts is less than that in some directions, where whole steps go too far.
        """
        prior = self.unit**2 * self.unpack(theta).covariance(self.x, self.x, self.n_threads)
        if self.sites is None:
            guess = self.likelihood.first_guess()
            moments, n_steps = Moments(guess, np.zeros(self.n_rows), 0.0, 0.0), FIRST_STEPS
            elbo, expected = -np.inf, self._elbo(moments)[1]
        else:
            moments, n_steps = self.sites.posterior(prior), STEPS
            self.likelihood = self.likelihood.improved(moments, self.weight)
            elbo, expected = self._elbo(moments)
        for _ in range(n_steps):
            full = Sites.at(moments, expected, self.weight)
            sites = full if self.sites is None else self.sites.towards(full, self.step)
            tried = sites.posterior(prior)
            value, of_tried = self._elbo(tried)
            if value < elbo:
                self.step *= 0.5
                continue
            gain, self.step = value - elbo, min(1.0, 1.5 * self.step)
            self.sites, moments, elbo, expected = sites, tried, value, of_tried
            if gain < STEP_GAIN * self.n_rows:
                break
        self._set_regression(moments.log_evidence - elbo)

    def _elbo(self, moments: Moments) -> tuple[float, RowTerms]:
        expected = self.likelihood.expected(moments.mean, moments.variance)
        return float(self.weight @ expected.value) + moments.minus_kl, expected

    def _set_regression(self, constant: float) -> None:
        """Set the regression on the sites' responses, and what makes its value that of the ELBO."""
        assert self.sites is not None
        self.regression.y, self.regression.weight = self.sites.responses / self.unit, self.sites.second
        self.constant = constant + self.regression.y.size * np.log(self.unit)


def fit_label_hyperparameters(
    x: FloatArray,
    t: FloatArray,
    sample_weight: FloatArray,
    *,
    n_linear: int,
    rng: np.random.Generator,
    max_rows: int = MAX_ROWS,
    n_threads: int = 1,
    tied: NDArray[np.intp] | None = None,
    axes: NDArray[np.intp] | None = None,
    seen: NDArray[np.bool_] | None = None,
    like: HyperparameterSearch | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Maximise the bound on the evidence of labels times the priors: a race of starts on few rows, then the best.

    `x` holds standardised inputs, of which the linear part sees the first `n_linear`, then their normal scores; `t`,
    (n_samples, n_problems), labels −1 or 1; `seen`, (n_samples,), is set where a row took part. With `like`, a search,
    its start and parts are taken over. Amplitudes found are in squared units of `LOGIT_UNIT`.
    """
    index = t.argmax(axis=1) if t.shape[1] > 1 else (t[:, 0] > 0).astype(np.intp)
    weight = counts_without_classes(x, index, sample_weight)

    def objective(rows: NDArray[np.intp]) -> LatentMarginalLikelihood:
        likelihood = LabelLikelihood(t[rows], weight[rows])
        return LatentMarginalLikelihood(
            x[rows], likelihood, weight[rows], n_linear=n_linear, n_threads=n_threads, tied=tied
        )

    with single_blas_thread(), np.errstate(under="ignore"):
        scores = screen_columns(x[:, :n_linear], t, rng, n_threads)
    chosen = rows_by_class(index, n_searched(len(x), max_rows), rng)
    if seen is not None:
        seen[chosen] = True
    if like is not None:
        return search_alike(objective(np.sort(chosen)), scores, axes, like), like
    return search_few_then_many(objective, chosen, scores, len(x), np.arange(0) if axes is None else axes)


def n_searched(n_rows: int, max_rows: int) -> int:
    """Return the number of rows that find the kernel."""
    return min(n_rows, max_rows, max(ALL_ROWS, round(SHARE_OF_ROWS * n_rows)))


def search_few_then_many(
    objective: Callable[[NDArray[np.intp]], LatentMarginalLikelihood],
    chosen: NDArray[np.intp],
    scores: FloatArray,
    n_rows: int,
    axes: NDArray[np.intp],
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Race starts on the first of the chosen rows, and go on with the best on all of them.

    Parts of axes, `axes` by number, are tried on the first, and go on where they promise half of what they must gain.
    """
    with single_blas_thread(), np.errstate(under="ignore"):
        few = objective(np.sort(chosen[:RACE_ROWS]))
        raced = race(few, starting_points(few, scores), RACE_ITERATIONS)
        many = objective(np.sort(chosen)) if len(chosen) > RACE_ROWS else few
        n_iterations = round(ITERATIONS * min(1.0, ALL_ROWS / many.n_rows))
        first = min(raced, key=lambda run: run.value)
        best, objective_of_best = descend(many, first, n_iterations, PATIENCE), many
        found, runs = few.unpack(first.theta), [*raced, best]
        parts = {order: race_axes(few, first, found, axes, order) for order in orders_of(axes)}
        gains = {order: first.value - part.value for order, part in parts.items()}
        tried = best_axes({order: gain / PROMISING for order, gain in gains.items()}, few.n_rows)
        if tried is not None:
            objective_of_part = many.with_axes(axes, tried)
            part = descend(objective_of_part, parts[tried], n_iterations, PATIENCE)
            gains = unpursued(gains | {tried: best.value - part.value}, tried, many.n_rows)
            runs += [*parts.values(), part]
            if best_axes(gains, many.n_rows) == tried:
                best, objective_of_best = part, objective_of_part
    n_evaluations = sum(run.n_evaluations for run in runs)
    record = HyperparameterSearch(
        columns=np.arange(len(scores)),
        scores=scores,
        starts=tuple(run.name for run in raced),
        start_values=-np.array([run.value for run in raced]),
        smoothness_values=np.empty(0),
        nearest_starts=(),
        nearest_values=np.empty(0),
        smoothness=best.smoothness,
        n_rows=(few.n_rows, many.n_rows, n_rows),
        n_evaluations=n_evaluations,
        product_gain=gains.get(0),
        pairs_gain=gains.get(PAIRS),
    )
    return objective_of_best.unpack(best.theta, n_evaluations), record


def search_alike(
    objective: LatentMarginalLikelihood,
    scores: FloatArray,
    axes: NDArray[np.intp] | None,
    like: HyperparameterSearch,
) -> KernelHyperparameters:
    """Return a kernel that is found as another was: from the start that won, with the parts that were chosen."""
    wanted = like.starts[int(np.argmax(like.start_values))]
    with single_blas_thread(), np.errstate(under="ignore"):
        starts = {run.name: run for run in starting_points(objective, scores)}
        run = descend(objective, starts.get(wanted, starts["long"]), RACE_ITERATIONS + ITERATIONS, PATIENCE)
        if axes is not None and like.axes_chosen is not None:
            part = race_axes(objective, run, objective.unpack(run.theta), axes, like.axes_chosen)
            if part.value < run.value:
                run, objective = part, objective.with_axes(axes, like.axes_chosen)
    return objective.unpack(run.theta)


def rows_by_class(index: NDArray[np.intp], size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw rows, up to an equal share of each class, then others; any first part of them has the same mix."""
    n_of = np.bincount(index)
    size = min(size, len(index))
    share = size // np.count_nonzero(n_of)
    equal = np.minimum(n_of, share)
    quota = equal + (n_of - equal) * ((size - equal.sum()) / max(len(index) - equal.sum(), 1))
    place = np.empty(len(index))
    for k in index[np.sort(np.unique(index, return_index=True)[1])]:  # whatever the classes are called
        place[rng.permutation(np.flatnonzero(index == k))] = (np.arange(n_of[k]) + 0.5) / quota[k]
    return np.argsort(place, kind="stable")[:size]


def counts_without_classes(x: FloatArray, index: NDArray[np.intp], weight: FloatArray) -> FloatArray:
    """Return how many rows each counts for where the kernel is learned, whatever the classes' own weights, (n_rows,).

    Weights of classes shift the logits, as drawing by class does, but a class does not know more for them.
    """
    _, first, where = np.unique(index, return_index=True, return_inverse=True)
    relative = weight / weight[first][where]  # exactly one if the classes differ alone
    relative /= (np.bincount(where, relative) / np.bincount(where))[where]
    if (relative == 1).all():
        return relative
    counts = relative * weight.mean()
    return RowCounts.of(x, index[:, None].astype(np.float64), counts).where_learned(counts)


# Unit of log rates: divided by it, they have the priors of standardised targets.
LOG_RATE_UNIT = 1.0
# Standard deviation of log rates that is allowed beyond what the counts span.
SPARE_LOG_RATE = 5.0


@dataclass(frozen=True)
class LatentContrast:
    """Likelihood of targets as a function of the latent relative to its prior mean, for the search of a kernel."""

    y: FloatArray  # (n_rows, n_columns)
    offset: FloatArray  # (n_rows, 1): prior means of the latents
    model: LatentLikelihood
    unit: float  # of the latents
    n_contrasts: int = 1

    def first_guess(self) -> FloatArray:
        """Return the latents about which the likelihood is first expanded, (n_rows, 1)."""
        return self.model.first_guess(self.y, self.offset)

    def expected(self, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate over Gaussian latents of given means, (n_rows, 1), and variances, (n_rows,)."""
        terms = self.model.terms(self.y, self.offset + mean, variance)
        return replace(terms, precision=np.maximum(terms.precision, LEAST_PRECISION / self.unit**2))

    def improved(self, moments: Moments, weight: FloatArray) -> LatentContrast:
        """Return the likelihood that fits best."""
        found = self.model.improved(self.y, self.offset + moments.mean, moments.variance, weight)
        return replace(self, model=found)


def fit_latent_hyperparameters(
    rows: KernelRows,
    offset: FloatArray,
    model: LatentLikelihood,
    rng: np.random.Generator,
    *,
    spread: FloatArray,
    unit: float,
    max_rows: int,
    largest_log_amplitude: float = np.inf,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Maximise the bound on the evidence of targets of one latent times the priors; see `fit_label_hyperparameters`.

    `offset`, (n_rows,), are prior means of the latents, `unit` is theirs, and `spread`, (n_rows,), what tells by which
    columns they vary. Weights are those of `RowCounts.where_learned`, amplitudes in squared units.
    """

    def objective(part: NDArray[np.intp]) -> LatentMarginalLikelihood:
        likelihood = LatentContrast(rows.y[part], offset[part, None], model, unit)
        bound = LatentMarginalLikelihood(
            rows.x[part],
            likelihood,
            rows.weight[part],
            n_linear=rows.n_linear,
            n_threads=rows.n_threads,
            tied=rows.tied,
            unit=unit,
        )
        bound.regression.largest_log_amplitude = min(largest_log_amplitude, bound.regression.largest_log_amplitude)
        return bound

    with single_blas_thread(), np.errstate(under="ignore"):
        scores = screen_columns(rows.x[:, : rows.n_linear], spread[:, None], rng, rows.n_threads)
    chosen = rng.permutation(len(rows.x))[: n_searched(len(rows.x), max_rows)]
    return search_few_then_many(objective, chosen, scores, len(rows.x), rows.axes)


def largest_log_rate_amplitude(y: FloatArray, offset: FloatArray) -> float:
    """Return the log of the square of what no log rate is farther from its prior mean.

    Logs of counts are not, but for counts that are hardly ever seen.
    """
    span = float(np.abs(np.log(y + 0.5) - offset).max())
    return float(np.log(span**2 + SPARE_LOG_RATE**2))


def stabilised(y: FloatArray, offset: FloatArray) -> FloatArray:
    """Return standardised residuals of about equal variance by Anscombe's (1948) root, (n_samples,)."""
    root = np.sqrt(y + 0.375) - np.sqrt(np.exp(offset) + 0.375)
    scale = root.std()
    return np.asarray((root - root.mean()) / scale if scale > 0 else np.zeros(len(y)))
