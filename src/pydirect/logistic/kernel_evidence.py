"""Kernel hyperparameters by empirical Bayes, from labels, counts and other targets of latents.

The latents are Gaussian processes of one kernel: one logit of two classes, and K of more, of which softmax sees K − 1
orthogonal contrasts u. For any Gaussian q(u) with one covariance for all contrasts, the log evidence of the labels is
at least

    ELBO = Σ ω E log p(label | u) − Σ KL(q(u) ‖ p(u | θ)),

and the best q (Opper & Archambeau 2009) is the posterior of a regression on working responses E u + g/h with noise
variances 1/(ω h), where g is the expected gradient of the log-likelihood and h its expected curvature per contrast.
There, the ELBO has the gradient in θ of this regression's evidence at fixed responses, so that q and θ are improved in
turn: q by natural gradients (Khan & Lin 2017, Conjugate-computation variational inference), θ by L-BFGS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert, lapack

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.race import Patience, descend, race
from pydirect.features.rows import RowCounts
from pydirect.features.screen import screen_columns
from pydirect.features.search import PROMISING, KernelRows, orders_of, race_axes, starting_points
from pydirect.features.search_record import HyperparameterSearch, best_axes, unpursued
from pydirect.logistic.latent import SOFTMAX, LatentLikelihood
from pydirect.logistic.likelihood import RowTerms, class_numbers

# Units of logits and log rates: divided by them, they have the priors of standardised targets.
LOGIT_UNIT, LOG_RATE_UNIT = 3.0, 1.0
# Standard deviation of log rates that is allowed beyond what the counts span.
SPARE_LOG_RATE = 5.0
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
class ContrastLikelihood:
    """Likelihood of targets, as a function of contrasts u of their latents, which are offset + contrasts u."""

    y: FloatArray  # (n_rows, n_columns)
    offset: FloatArray  # (n_functions,) or (n_rows, n_functions): prior means of the latents
    model: LatentLikelihood
    contrasts: FloatArray  # (n_functions, n_contrasts): orthonormal; of several, without the latents' mean
    unit: float = 1.0  # of the contrasts, for the least precision of a row

    @classmethod
    def of_labels(cls, t: FloatArray, weight: FloatArray) -> Self:
        """Return that of labels −1 or 1, (n_rows, n_functions), about what their classes' shares make of the logits.

        Where rows are drawn by class, the logits differ from those of all rows by constants.
        """
        mass, one = weight @ (t > 0) + 0.5, t.shape[1] == 1
        offset = np.log(mass) - (np.log(weight.sum() + 1.0 - mass) if one else 0.0)
        return cls(t, offset, SOFTMAX, np.ones((1, 1)) if one else np.ascontiguousarray(helmert(t.shape[1]).T))

    def first_guess(self) -> FloatArray:
        """Return the contrasts about which the likelihood is first expanded, (n_rows, n_contrasts)."""
        return self.model.first_guess(self.y, self.offset) @ self.contrasts

    def expected(self, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate over contrasts of given means, (n_rows, n_contrasts), and variances, (n_rows,)."""
        terms = self.model.terms(self.y, self.offset + mean @ self.contrasts.T, variance)
        precision = np.maximum(terms.precision, LEAST_PRECISION / self.unit**2)
        return RowTerms(terms.value, terms.residual @ self.contrasts, precision)

    def improved(self, moments: Moments, weight: FloatArray) -> Self:
        """Return the likelihood whose parameters fit best."""
        mean = self.offset + moments.mean @ self.contrasts.T
        return replace(self, model=self.model.improved(self.y, mean, moments.variance, weight))


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
        first, second = (1 - step) * self.first + step * other.first, (1 - step) * self.second + step * other.second
        return Sites(first, second)

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


class LatentMarginalLikelihood(MarginalLikelihood):
    """Negative ELBO of rows minus the log prior of the log parameters θ, and its gradient; see `MarginalLikelihood`.

    Exact where q was last brought up to date. Contrasts divided by `unit` have the priors of standardised targets.
    """

    iterations_between_updates = 5

    def __init__(
        self,
        rows: KernelRows,
        likelihood: ContrastLikelihood,
        unit: float = LOGIT_UNIT,
        largest_log_amplitude: float = np.inf,
    ) -> None:
        zero = np.zeros((len(rows.x), likelihood.contrasts.shape[1]))
        super().__init__(rows.x, zero, np.ones(len(zero)), rows.n_linear, rows.tied)
        self.row_weight, self.unit = rows.weight, unit
        self.start[0] = -2 * np.log(unit)  # noise variances 1/h in units of the contrasts
        self.noise_bounds = self.start[0], self.start[0]
        self.largest_log_amplitude = min(largest_log_amplitude, self.largest_log_amplitude)
        self._given = likelihood
        self._forget()

    @property
    def n_values(self) -> int:
        """Number of rows, whatever the contrasts."""
        return self.n_rows

    def _forget(self) -> Self:
        self.sites: Sites | None = None
        self.likelihood = self._given
        self.step, self.of_copies = 1.0, (0.0, 0.0)
        return self

    def at(self, smoothness: float) -> Self:
        return super().at(smoothness)._forget()

    def with_axes(self, axes: NDArray[np.intp], order: int = 0) -> Self:
        return super().with_axes(axes, order)._forget()

    def update(self, theta: FloatArray) -> None:
        """Bring q up to date at given hyperparameters, by steps of the natural gradient that raise the ELBO.

        One curvature for all contrasts is less than that in some directions, where whole steps go too far.
        """
        prior = self.unit**2 * self.unpack(theta).covariance(self.x, self.x, resolve_n_threads())
        if self.sites is None:
            moments, n_steps = Moments(self.likelihood.first_guess(), np.zeros(self.n_rows), 0.0, 0.0), FIRST_STEPS
            elbo, expected = -np.inf, self._elbo(moments)[1]
        else:
            moments, n_steps = self.sites.posterior(prior), STEPS
            self.likelihood = self.likelihood.improved(moments, self.row_weight)
            elbo, expected = self._elbo(moments)
        for _ in range(n_steps):
            full = Sites.at(moments, expected, self.row_weight)
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
        # The regression on the sites' responses, and what makes its value that of the ELBO.
        assert self.sites is not None
        self.y, self.weight = self.sites.responses / self.unit, self.sites.second
        self.of_copies = 0.0, float(elbo - moments.log_evidence - self.y.size * np.log(self.unit))
        self.__dict__.pop("function", None)

    def _elbo(self, moments: Moments) -> tuple[float, RowTerms]:
        expected = self.likelihood.expected(moments.mean, moments.variance)
        return float(self.row_weight @ expected.value) + moments.minus_kl, expected


@single_blas_thread()
@np.errstate(under="ignore")
def fit_label_hyperparameters(
    rows: KernelRows,
    rng: np.random.Generator,
    *,
    max_rows: int = MAX_ROWS,
    seen: NDArray[np.bool_] | None = None,
    like: HyperparameterSearch | None = None,
) -> tuple[KernelHyperparameters, HyperparameterSearch]:
    """Maximise the bound on the evidence of labels times the priors: a race of starts on few rows, then the best.

    Inputs are standardised, y labels −1 or 1, (n_rows, n_functions); `seen`, (n_rows,), is set where a row took part.
    With `like`, a search, its start and parts are taken over. Amplitudes found are in squared units of `LOGIT_UNIT`.
    """
    index = class_numbers(rows.y)
    scores = screen_columns(rows.x[:, : rows.n_linear], rows.y, rng)
    rows = replace(rows, weight=counts_without_classes(rows.x, index, rows.weight))
    chosen = rows_by_class(index, n_searched(len(rows.x), max_rows), rng)
    if seen is not None:
        seen[chosen] = True

    def objective(part: NDArray[np.intp]) -> LatentMarginalLikelihood:
        own = rows.take(part)
        return LatentMarginalLikelihood(own, ContrastLikelihood.of_labels(own.y, own.weight))

    if like is not None:
        return search_alike(objective(np.sort(chosen)), scores, rows.axes, like), like
    return search_few_then_many(objective, chosen, scores, len(rows.x), rows.axes)


@single_blas_thread()
@np.errstate(under="ignore")
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
    scores = screen_columns(rows.x[:, : rows.n_linear], spread[:, None], rng)
    chosen = rng.permutation(len(rows.x))[: n_searched(len(rows.x), max_rows)]

    def objective(part: NDArray[np.intp]) -> LatentMarginalLikelihood:
        likelihood = ContrastLikelihood(rows.y[part], offset[part, None], model, np.ones((1, 1)), unit)
        return LatentMarginalLikelihood(rows.take(part), likelihood, unit, largest_log_amplitude)

    return search_few_then_many(objective, chosen, scores, len(rows.x), rows.axes)


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

    These begin anew too: few rows often lead to a kernel of linear functions, at which more rows would stay. Parts of
    axes, `axes` by number, are tried on the first, and go on where they promise half of what they must gain.
    """
    few = objective(np.sort(chosen[:RACE_ROWS]))
    raced = race(few, starting_points(few, scores), RACE_ITERATIONS)
    many = objective(np.sort(chosen)) if len(chosen) > RACE_ROWS else few
    share, winner = min(1.0, ALL_ROWS / many.n_rows), int(np.argmin([run.value for run in raced]))
    n_iterations, first, ended = round(ITERATIONS * share), raced[winner], many
    runs = [descend(many, first, n_iterations, PATIENCE)]
    if many is not few:
        anew = starting_points(many, scores)[winner]
        runs.append(descend(many, anew, n_iterations + round(RACE_ITERATIONS * share), PATIENCE))
    best = min(runs, key=lambda run: run.value)
    parts = {order: race_axes(few, few.unpack(first.theta), axes, (order, first)) for order in orders_of(axes)}
    gains = {order: first.value - part.value for order, part in parts.items()}
    tried = best_axes({order: gain / PROMISING for order, gain in gains.items()}, few.n_rows)
    runs += raced
    if tried is not None:
        with_part = many.with_axes(axes, tried)
        part = descend(with_part, parts[tried], n_iterations, PATIENCE)
        gains = unpursued(gains | {tried: best.value - part.value}, tried, many.n_rows)
        runs += [*parts.values(), part]
        if best_axes(gains, many.n_rows) == tried:
            best, ended = part, with_part
    sizes = few.n_rows, many.n_rows, n_rows
    record = HyperparameterSearch.of(scores, raced, best.smoothness, sizes, runs, gains)
    return ended.unpack(best.theta, record.n_evaluations), record


def search_alike(
    objective: LatentMarginalLikelihood, scores: FloatArray, axes: NDArray[np.intp], like: HyperparameterSearch
) -> KernelHyperparameters:
    """Return a kernel that is found as another was: from the start that won, with the parts that were chosen."""
    starts = {run.name: run for run in starting_points(objective, scores)}
    start = starts.get(like.starts[int(np.argmax(like.start_values))], starts["long"])
    run = descend(objective, start, RACE_ITERATIONS + ITERATIONS, PATIENCE)
    if like.axes_chosen is not None:
        part = race_axes(objective, objective.unpack(run.theta), axes, (like.axes_chosen, run))
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
