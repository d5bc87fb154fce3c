"""Logistic classification with discrete weights: Pr(t | w) = σ(t z), z = offset + φᵀw, t = ±1.

The expectation of log σ has no closed form, but two lower bounds do:

- ``"jaakkola"``: log σ(tz) ≥ log σ(ξ) + (tz − ξ)/2 − λ(ξ)(z² − ξ²), λ(ξ) = tanh(ξ/2)/(4ξ), best at ξ² = E z²
  (Jaakkola & Jordan 2000). It is quadratic in z: for given ξ this is Gaussian regression with A = Φᵀdiag(2λ)Φ and
  c = Φᵀt/2, and everything that solves that solves this.
- ``"exponential"``: log σ(tz) ≥ −exp(−tz), whose expectation is a product over the weights (Evans & Nair 2018,
  Theorem 2). The tighter of the two where z is large and t known from it, as for classes far apart; where they overlap
  it is much the looser, and its best z is half the log-odds: probabilities from it are too timid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import lapack
from scipy.special import expit, log_expit, log_ndtr, logsumexp, softmax

from pydirect import _core
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_float_array,
    as_generator,
    as_number,
    as_sample_weight,
)
from pydirect.decorrelated import (
    NEGLIGIBLE_INFORMATION,
    DecorrelatedPosterior,
    decorrelate,
    fit_decorrelated,
)
from pydirect.distributions import (
    DensityPrior,
    FactorizedCategorical,
    GaussianPrior,
    as_level_count,
    as_levels,
)
from pydirect.models import MeanFieldPosterior, as_log_masses, fit_mean_field
from pydirect.optimize import Outcome, adam_on_logits, lbfgs_on_logits
from pydirect.statistics import (
    Block,
    FeatureMap,
    GaussianStatistics,
    IdentityFeatures,
    block_rows,
    collect_statistics,
    ordered_map,
    row_blocks,
)

BOUNDS = ("jaakkola", "exponential")
# An iteration that raises the bound by less than so many nats and this fraction of it is the last.
RISE = 1e-4
RELATIVE_RISE = 1e-7
# Rotated rows are held, instead of made again at every iteration, up to so many bytes.
HELD_BYTES = 2**30
# Prior of the prior variance t of the weights: log-normal about where the variance of z is this at a typical row.
TYPICAL_LOGIT_VARIANCE = 4.0
LOG_VARIANCE_SD = 1.5
# exp(−t φ (w − w_0)) stays a normal number up to this exponent.
LARGEST_EXPONENT = 600.0
# Rows of the fit from which one to many more starts.
START_ROWS = 4_000
START_ROWS_PER_WEIGHT = 8
SMALLEST_XI = 1e-10
ANDERSON_MEMORY = 5
# Passes over the rows by batches, and the exponent with which their steps get shorter.
STOCHASTIC_EPOCHS = 2
STOCHASTIC_DECAY = 0.6
# Levels of the exponential bound are placed anew that often in the decorrelated basis.
EXPONENTIAL_ROUNDS = 4
# Iterations, or epochs, before the last placement.
EXPONENTIAL_ITERATIONS = 30


# --- the data


class Latent(Protocol):
    """What knows the moments of f* = φᵀw."""

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance for rows of Φ; (n_rows,) each."""
        ...  # pragma: no cover


@dataclass(frozen=True)
class RotatedFeatures:
    """Basis functions times a matrix: a few directions of a larger basis."""

    features: FeatureMap
    vectors: FloatArray

    @property
    def n_weights(self) -> int:
        """Number of directions."""
        return self.vectors.shape[1]

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ·vectors."""
        rotated: Block = self.features.transform(x, np.float64, n_threads) @ self.vectors
        return rotated.astype(dtype, copy=False)


@dataclass(frozen=True)
class LabelledRows:
    """Rows of basis functions with labels ±1; what both bounds see of the data.

    Parameters
    ----------
    features : FeatureMap
    x : ndarray of shape (n_samples, n_features_in)
    t : ndarray of shape (n_samples,)
        −1 or 1.
    weight : ndarray of shape (n_samples,)
        How many times each row counts, positive.
    offset : float
        Added to φᵀw: the prior mean of z.
    n_threads : int
    """

    features: FeatureMap
    x: FloatArray
    t: FloatArray
    weight: FloatArray
    offset: float = 0.0
    n_threads: int = 1

    @classmethod
    def from_arrays(
        cls,
        phi: ArrayLike,
        t: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        offset: float = 0.0,
        n_threads: int | None = None,
    ) -> LabelledRows:
        """Build from a design matrix.

        Parameters
        ----------
        phi : array_like of shape (n_samples, n_weights)
        t : array_like of shape (n_samples,)
            Labels, −1 or 1.
        sample_weight : array_like of shape (n_samples,), optional
        offset : float
        n_threads : int, optional

        Examples
        --------
        >>> LabelledRows.from_arrays([[1.0], [2.0], [3.0]], [1, -1, 1], [1.0, 0.0, 2.0]).t.tolist()
        [1.0, 1.0]
        """
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        labels = as_float_array(t, "t", (len(phi),))
        if not (np.abs(labels) == 1).all():
            raise ValueError(f"t must be -1 or 1, got {labels[np.abs(labels) != 1][0]}")
        weight = as_sample_weight(sample_weight, len(phi))
        weight = np.ones(len(phi)) if weight is None else weight
        used = weight > 0  # a row of weight zero is a row that is not there
        if not used.all():
            phi, labels, weight = phi[used], labels[used], weight[used]
        offset, n_threads = as_number(offset, "offset"), resolve_n_threads(n_threads)
        return cls(IdentityFeatures(phi.shape[1]), phi, labels, weight, offset, n_threads)

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.features.n_weights

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.x)

    def map_blocks(self, function: Callable[[FloatArray, slice], Any]) -> Iterator[Any]:
        """Apply a function to blocks of Φ and the rows that they are; results in order."""

        def of_block(bounds: tuple[int, int]) -> Any:
            rows = slice(*bounds)
            return function(np.ascontiguousarray(self.features.transform(self.x[rows], np.float64, 1)), rows)

        return ordered_map(of_block, row_blocks(self.n_samples, block_rows(self.n_weights, np.float64)), self.n_threads)

    def weighted_statistics(self, xi: FloatArray) -> GaussianStatistics:
        """Return A = Φᵀdiag(2λω)Φ and c = Φᵀdiag(ω)(t/2 − 2λ offset): regression on t/(4λ) − offset, weights 2λω."""
        lam = jaakkola_lambda(xi)
        targets = self.t / (4 * lam) - self.offset
        return collect_statistics(
            self.features, self.x, targets[:, None], 2 * lam * self.weight, n_threads=self.n_threads
        )

    def moments(self, posterior: Latent, variance: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of z at every row; weights are `posterior`'s times √variance."""
        mean, spread = np.empty(self.n_samples), np.empty(self.n_samples)

        def fill(phi: FloatArray, rows: slice) -> None:
            mean[rows], spread[rows] = posterior.latent_moments(phi, 1)

        with single_blas_thread():
            for _ in self.map_blocks(fill):
                pass
        return self.offset + np.sqrt(variance) * mean, variance * spread

    def rotated(self, vectors: FloatArray) -> LabelledRows:
        """Return the rows of Φ·vectors, held when they fit into memory."""
        return replace(self, features=RotatedFeatures(self.features, vectors)).held()

    def chosen(self, rows: NDArray[np.intp]) -> LabelledRows:
        """Return some of the rows."""
        return replace(self, x=self.x[rows], t=self.t[rows], weight=self.weight[rows])

    def batches(self, batch_size: int, rng: np.random.Generator) -> Iterator[tuple[LabelledRows, float]]:
        """Yield all rows in batches, in random order, and how many times each stands for itself among all."""
        order = rng.permutation(self.n_samples)
        for begin in range(0, self.n_samples, batch_size):
            chosen = np.sort(order[begin : begin + batch_size])
            yield self.chosen(chosen), self.n_samples / len(chosen)

    def sample(self, size: int) -> LabelledRows:
        """Return a number of the rows, held, that weigh as much as all."""
        part = self.chosen(np.sort(np.random.default_rng(0).choice(self.n_samples, size, replace=False)))
        return replace(part, weight=part.weight * (self.weight.sum() / part.weight.sum())).held()

    @property
    def is_held(self) -> bool:
        """Whether `x` is Φ."""
        return isinstance(self.features, IdentityFeatures)

    def held(self) -> LabelledRows:
        """Return the same rows with Φ computed once, when it fits into memory."""
        if self.is_held or 8 * self.n_samples * self.n_weights > HELD_BYTES:
            return self
        with single_blas_thread():
            phi = np.concatenate(list(self.map_blocks(lambda phi, _: phi)))
        return replace(self, features=IdentityFeatures(self.n_weights), x=phi)


# --- Jaakkola and Jordan's bound


def jaakkola_lambda(xi: FloatArray) -> FloatArray:
    """``λ(ξ) = tanh(ξ/2) / (4ξ)``, 1/8 at zero."""
    small = np.abs(xi) < 1e-3
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi**2 / 96, np.tanh(0.5 * safe) / (4 * safe))


def jaakkola_bound(
    t: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray, xi: FloatArray | None = None
) -> float:
    """Lower bound of Σ ω E log σ(t z) from the first two moments of z.

    Parameters
    ----------
    t, mean, variance, weight : ndarray of shape (n_samples,)
    xi : ndarray of shape (n_samples,), optional
        √E z² by default, the best.
    """
    second = mean**2 + variance
    if xi is None:
        return float(weight @ (log_expit(root := np.sqrt(second)) + 0.5 * (t * mean - root)))
    return float(weight @ (log_expit(xi) + 0.5 * (t * mean - xi) - jaakkola_lambda(xi) * (second - xi**2)))


@dataclass(frozen=True)
class _State:
    """What a step found: a posterior, its bound, and the parameters for the next step."""

    posterior: Any
    variance: float
    bound: float
    following: FloatArray  # log ξ, then what else the step improves
    safe: FloatArray  # the same but for what could lower the bound
    interrupted: bool = False


Step = Callable[[FloatArray], _State]


def log_xi_of(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the logarithm of the best ξ = √E f², bounded away from zero."""
    return 0.5 * np.log(np.maximum(mean**2 + variance, SMALLEST_XI**2))


def climb(step: Step, start: FloatArray, max_iter: int, stop: threading.Event) -> tuple[_State, Outcome]:
    """Iterate a step that improves its parameters until the bound stays, or the user interrupts.

    Plain steps converge linearly, and slowly where classes are far apart. Anderson's method extrapolates from the last
    few; where it lowers the bound it is taken back and starts anew.
    """
    best, used = step(start), start
    trace, memory = [best.bound], Anderson()
    outcome = Outcome(interrupted=best.interrupted)
    try:
        while len(trace) < max_iter and not outcome.converged and not outcome.interrupted:
            _heed(stop)
            rounding = 1e-13 * (abs(best.bound) + 1)
            # At most a factor of e beyond the plain step.
            following = best.following
            used = np.clip(memory.extrapolated(used, following), following - 1.0, following + 1.0)
            state = step(used)
            if state.bound < best.bound - rounding and len(memory.steps) > 1:
                memory.steps.clear()
                used = best.following
                state = step(used)
            if state.bound < best.bound - rounding and best.safe is not best.following:
                used = best.safe
                state = step(used)
            lower = state.bound < best.bound - rounding
            outcome.converged = state.bound - best.bound <= RISE + RELATIVE_RISE * abs(best.bound)
            outcome.interrupted = state.interrupted
            best = best if lower else state
            trace.append(max(best.bound, trace[-1]))
    except KeyboardInterrupt:
        outcome.interrupted = True
    if outcome.interrupted:
        stop.set()
    outcome.n_iter, outcome.trace = len(trace), [np.array(trace)]
    outcome.converged &= not outcome.interrupted
    return best, outcome


def _heed(stop: threading.Event) -> None:
    """Interrupt this thread too when the user has interrupted another."""
    if stop.is_set():
        raise KeyboardInterrupt


class Anderson:
    """Anderson's acceleration of a fixed-point iteration (Walker & Ni 2011)."""

    def __init__(self, memory: int = ANDERSON_MEMORY) -> None:
        self.memory = memory
        self.steps: list[tuple[FloatArray, FloatArray]] = []  # where a plain step went, and how far that was

    def extrapolated(self, point: FloatArray, image: FloatArray) -> FloatArray:
        """Combine the last images so that their steps cancel best."""
        self.steps = [*self.steps[-self.memory :], (image, image - point)]
        if len(self.steps) == 1:
            return image
        images, residuals = (np.diff(np.stack(a), axis=0) for a in zip(*self.steps, strict=True))
        gram = residuals @ residuals.T
        gram[np.diag_indices_from(gram)] *= 1 + 1e-10
        share = np.linalg.lstsq(gram, residuals @ self.steps[-1][1], rcond=1e-14)[0]
        return np.asarray(image - share @ images)


def _discrete_state(rows: LabelledRows, posterior: MeanFieldPosterior, variance: float, penalty: float = 0.0) -> _State:
    """State of a discrete posterior with weights in units of √variance."""
    mean, spread = rows.moments(posterior, variance)
    bound = jaakkola_bound(rows.t, mean, spread, rows.weight) - posterior.weights.kl(posterior.log_prior) - penalty
    log_xi = log_xi_of(mean, spread)
    return _State(posterior, variance, bound, log_xi, log_xi, posterior.interrupted)


def fit_logistic(
    rows: LabelledRows,
    levels: ArrayLike,
    log_prior: ArrayLike,
    *,
    bound: str = "jaakkola",
    xi: FloatArray | None = None,
    optimizer: str = "pipeline",
    batch_size: int | None = None,
    max_iter: int = 1000,
    random_state: int = 0,
    stop: threading.Event | None = None,
) -> MeanFieldPosterior:
    """Fit the factorised posterior of logistic regression on given levels.

    Parameters
    ----------
    rows : LabelledRows
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        Values that a weight can take.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels)
        Log masses of the levels; -inf forbids one.
    bound : {"jaakkola", "exponential"}
        Of the expected log-likelihood; the second starts from the first's posterior.
    xi : ndarray of shape (n_samples,), optional
        Start of Jaakkola and Jordan's ξ; by default the better of 1 and that of continuous weights.
    optimizer : str
        Of the quadratic problem at given ξ; see `fit_mean_field`.
    batch_size : int, optional
        Rows a stochastic step. For Jaakkola and Jordan's bound, natural gradients from batches find where to start from
        without `xi`, and steps of all rows finish; for the exponential bound, Adam takes the place of L-BFGS.
    max_iter : int
        Values of ξ, then L-BFGS iterations or epochs.
    random_state : int
    stop : threading.Event, optional
        Ends the fit as an interruption does when another thread sets it, and is set by an interruption.

    Returns
    -------
    MeanFieldPosterior
        Its `elbo` is a lower bound of log Pr(t).

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianPrior, LabelledRows, evenly_spaced_levels, fit_logistic
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((500, 2))
    >>> t = np.where(phi @ [3.0, 0.0] + rng.logistic(size=500) > 0, 1, -1)
    >>> levels = evenly_spaced_levels(9, 4.0)
    >>> posterior = fit_logistic(LabelledRows.from_arrays(phi, t), levels, GaussianPrior(2.0).log_mass(levels))
    >>> posterior.weights.values(posterior.weights.most_probable()).tolist()
    [3.0, 0.0]
    """
    as_choice(bound, "bound", BOUNDS)
    as_count(max_iter, "max_iter")
    if batch_size is not None:
        as_count(batch_size, "batch_size")
    levels = as_levels(levels, rows.n_weights)
    log_prior = as_log_masses(log_prior, levels, rows.n_weights)
    if xi is not None:
        xi = as_float_array(xi, "xi", (rows.n_samples,))
        if not (xi >= 0).all():
            raise ValueError(f"xi must not be negative, got {xi.min()}")
        xi = np.maximum(xi, SMALLEST_XI)
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    last: MeanFieldPosterior | None = None

    def step(log_xi: FloatArray) -> _State:
        nonlocal last
        options: dict[str, Any] = {"optimizer": optimizer, "random_state": random_state, "n_threads": rows.n_threads}
        last = fit_mean_field(rows.weighted_statistics(np.exp(log_xi)), levels, log_prior, [1.0], start=last, **options)
        return _discrete_state(rows, last, 1.0)

    # Optima are local where levels are coarse: without a start, the better of two.
    starts = (
        [np.log(xi)]
        if xi is not None
        else [_continuous_log_xi(rows, levels, log_prior, max_iter, batch_size, random_state, stop)]
    )
    if xi is None:
        starts.append(np.zeros(rows.n_samples))
    best, outcome = climb(step, starts[0], max_iter, stop)
    for start in starts[1:]:
        last = None
        other = climb(step, start, max_iter, stop)
        if other[0].bound > best.bound:
            best, outcome = other
    posterior = _with_outcome(best.posterior, best.bound, outcome, stop)
    if bound == "jaakkola" or posterior.interrupted:
        return posterior
    return _fit_exponential(rows, posterior, batch_size, max_iter, as_generator(random_state), stop)


def _continuous_log_xi(
    rows: LabelledRows,
    levels: ArrayLike,
    log_prior: ArrayLike,
    max_iter: int,
    batch_size: int | None,
    random_state: int,
    stop: threading.Event,
) -> FloatArray:
    """Log ξ of continuous weights with the prior's variance: from elsewhere coarse levels could hold q back."""
    w, mass = np.broadcast_arrays(np.atleast_2d(np.asarray(levels)), np.exp(np.atleast_2d(np.asarray(log_prior))))
    mass = mass / mass.sum(axis=1, keepdims=True)
    variance = float(((mass * w**2).sum(axis=1) - (mass * w).sum(axis=1) ** 2).mean())
    if not variance > 0:  # a prior on one level only
        return np.zeros(rows.n_samples)
    prior = VariancePrior(variance, 0.0)
    start = _start(rows, prior, max_iter, batch_size, random_state, stop)
    return climb(gaussian_step(rows, prior), start, max_iter, stop)[0].following[:-1]


def _with_outcome(posterior: MeanFieldPosterior, elbo: float, outcome: Outcome, stop: threading.Event) -> Any:
    return replace(
        posterior,
        elbo=elbo,
        elbo_trace=np.concatenate(outcome.trace),
        n_iter=outcome.n_iter,
        converged=outcome.converged and not stop.is_set(),
        interrupted=outcome.interrupted or stop.is_set(),
    )


# --- the decorrelated basis


def informative_directions(statistics: GaussianStatistics, variance: float) -> FloatArray:
    """Directions of Φ on which the data can say anything, whatever ξ: (n_weights, n_directions), orthonormal.

    2λ(ξ) is at most 1/4, so the information of a direction is at most a quarter of that of ΦᵀΦ; `variance` is the
    largest prior variance considered.
    """
    rotated = decorrelate(statistics)
    informative = 0.25 * variance * rotated.eigenvalues > NEGLIGIBLE_INFORMATION
    informative[np.argmax(rotated.eigenvalues)] = True  # one at least
    return rotated.keep(informative).vectors


def typical_variance(mean_square: float) -> float:
    """Prior variance of the weights at which z has its typical variance, from the mean of φᵀφ."""
    return TYPICAL_LOGIT_VARIANCE / mean_square if mean_square > 0 else 1.0


@dataclass(frozen=True)
class FullGaussian:
    """Posterior of continuous weights: covariance WWᵀ."""

    root: FloatArray
    mean: FloatArray

    @classmethod
    def solve(cls, gram: FloatArray, c: FloatArray, variance: float) -> FullGaussian:
        """Posterior of regression with statistics A and c, noise 1 and a prior of this variance."""
        precision = gram.copy()
        np.einsum("jj->j", precision)[...] += 1 / variance
        with single_blas_thread():
            factor, info = lapack.dpotrf(precision, lower=1, overwrite_a=1)
            if info != 0:
                raise np.linalg.LinAlgError("ΦᵀΦ must be positive semi-definite: rescale the features")
            inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
        root = np.ascontiguousarray(np.tril(inverse).T)
        return cls(root, root @ (root.T @ c))

    def kl(self, variance: float) -> float:
        """KL divergence from the prior of this variance."""
        b, log_determinant = len(self.mean), 2 * np.log(self.root.diagonal()).sum()
        return float(0.5 * (self._second_moments / variance - b + b * np.log(variance) - log_determinant))

    def better_variance(self, variance_prior: VariancePrior, variance: float) -> float:
        """Prior variance after a step of empirical Bayes."""
        squares = float(self.mean @ self.mean)
        trace = self._second_moments - squares
        # γ, positive whatever rounding does
        determined = max(len(self.mean) - trace / variance, 1e-6)
        return variance_prior.step(variance, squares, determined)

    @property
    def _second_moments(self) -> float:
        return float(np.vdot(self.root, self.root)) + float(self.mean @ self.mean)

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of φᵀw for rows of Φ; (n_rows,) each."""
        turned = phi @ self.root
        return phi @ self.mean, np.einsum("ij,ij->i", turned, turned)


@dataclass(frozen=True)
class VariancePrior:
    """Log-normal prior of the prior variance of the weights.

    Parameters
    ----------
    centre : float
        Its median.
    sd : float
        Of the logarithm; 0 fixes the variance.
    """

    centre: float
    sd: float

    def penalty(self, variance: float) -> float:
        """Return −log density, zero at the median."""
        return 0.5 * (np.log(variance / self.centre) / self.sd) ** 2 if self.sd > 0 else 0.0

    def step(self, variance: float, squares: float, determined: float) -> float:
        """Approximate Newton step in log variance, from ‖m‖² and the number of weights that the data determine.

        The evidence's gradient is ½ (‖m‖²/t − γ), its curvature at most γ/2 (MacKay 1992).
        """
        if self.sd == 0:
            return variance
        precision = self.sd**-2
        gradient = 0.5 * (squares / variance - determined) - precision * np.log(variance / self.centre)
        return float(variance * np.exp(np.clip(gradient / (0.5 * determined + precision), -2.0, 2.0)))


def gaussian_step(rows: LabelledRows, variance_prior: VariancePrior) -> Step:
    """Step of ξ and the prior variance with continuous weights, by one factorisation: parameters log ξ, log t."""

    def step(parameters: FloatArray) -> _State:
        xi, variance = np.exp(parameters[:-1]), float(np.exp(parameters[-1]))
        statistics = rows.weighted_statistics(xi)
        posterior = FullGaussian.solve(statistics.A, statistics.c[:, 0], variance)
        mean, spread = rows.moments(posterior)
        kl = posterior.kl(variance)
        bound = jaakkola_bound(rows.t, mean, spread, rows.weight) - kl - variance_prior.penalty(variance)
        log_xi = log_xi_of(mean, spread)
        new = posterior.better_variance(variance_prior, variance)
        following = np.append(log_xi, np.log(new))
        safe = following if new == variance else np.append(log_xi, parameters[-1])
        return _State(posterior, variance, bound, following, safe)

    return step


def fit_logistic_decorrelated(
    rows: LabelledRows,
    *,
    prior: DensityPrior | None = None,
    variance_prior: VariancePrior | None = None,
    n_levels: int = 15,
    bound: str = "jaakkola",
    batch_size: int | None = None,
    max_iter: int = 1000,
    random_state: int = 0,
    stop: threading.Event | None = None,
) -> LogisticFit:
    """Fit in the basis where weights do not interact, with levels around each one's posterior.

    ξ and, by empirical Bayes, the prior variance of the weights are found with continuous weights, for which a step is
    one factorisation. The basis is then that of Φᵀdiag(2λ)Φ at this ξ; only a prior that is not Gaussian moves ξ again.

    Parameters
    ----------
    rows : LabelledRows
    prior : DensityPrior
        In units of the prior standard deviation; standard Gaussian by default.
    variance_prior : VariancePrior
        By default a wide one about the variance at which z has a variance of 4 at a typical row.
    n_levels : int
    bound, batch_size, max_iter, random_state, stop
        As in `fit_logistic`.

    Returns
    -------
    LogisticFit
    """
    as_choice(bound, "bound", BOUNDS)
    as_count(max_iter, "max_iter")
    as_level_count(n_levels)
    if batch_size is not None:
        as_count(batch_size, "batch_size")
    prior = GaussianPrior() if prior is None else prior
    stop = threading.Event() if stop is None else stop
    rows = rows.held()
    if variance_prior is None:
        variance_prior = VariancePrior(typical_variance(_mean_square(rows)), LOG_VARIANCE_SD)
    unit = prior.variance  # of the prior as it is given; found by the Gaussian evidence whatever its shape

    gaussian_prior = VariancePrior(variance_prior.centre * unit, variance_prior.sd)
    start = _start(rows, gaussian_prior, max_iter, batch_size, random_state, stop)
    found, outcome = climb(gaussian_step(rows, gaussian_prior), start, max_iter, stop)
    variance = found.variance / unit

    def step(log_xi: FloatArray) -> _State:
        rotated = decorrelate(rows.weighted_statistics(np.exp(log_xi))).scaled(variance)
        posterior = fit_decorrelated(rotated, 1.0, prior=prior, n_levels=n_levels, n_noise_levels=1)
        return _discrete_state(rows, posterior, variance, variance_prior.penalty(variance))

    log_xi = found.following[:-1]
    if isinstance(prior, GaussianPrior) or outcome.interrupted:
        best = step(log_xi)
        outcome.trace[0][-1] = best.bound
    else:
        best, outcome = climb(step, log_xi, max_iter, stop)
    posterior = _with_outcome(best.posterior, best.bound, outcome, stop)
    if bound == "exponential" and not posterior.interrupted and posterior.vectors.shape[1] > 0:
        rng = as_generator(random_state)
        posterior = _fit_exponential_decorrelated(rows, posterior, variance, prior, batch_size, max_iter, rng, stop)
        penalty = variance_prior.penalty(variance)
        posterior = replace(posterior, elbo=posterior.elbo - penalty, elbo_trace=posterior.elbo_trace - penalty)
    return LogisticFit(posterior, variance, np.exp(best.following))


def _start(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    max_iter: int,
    batch_size: int | None,
    random_state: int,
    stop: threading.Event,
) -> FloatArray:
    """Parameters of the Gaussian step to start from: by batches, or from a fit to some of the rows where are many."""
    if batch_size is not None:
        return _stochastic_start(rows, variance_prior, batch_size, as_generator(random_state), stop)
    start = np.append(np.zeros(rows.n_samples), np.log(variance_prior.centre))
    size = start_size(rows)
    if rows.n_samples < 2 * size:
        return start
    begin = np.append(np.zeros(size), start[-1])
    found, _ = climb(gaussian_step(rows.sample(size), variance_prior), begin, max_iter, stop)
    return np.append(log_xi_of(*rows.moments(found.posterior)), np.log(found.variance))


def start_size(rows: LabelledRows) -> int:
    """Return how many rows to start from."""
    return max(START_ROWS, START_ROWS_PER_WEIGHT * rows.n_weights)


def _stochastic_start(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    batch_size: int,
    rng: np.random.Generator,
    stop: threading.Event,
) -> FloatArray:
    """Natural gradients from batches of rows (Hoffman et al. 2013), a few epochs.

    The natural parameters of the Gaussian are A + I/t and c at the best ξ, sums over rows: a step mixes in the sums of
    a batch, as if all rows were like it, at the ξ of the weights as they are.
    """
    gram, c = np.zeros((rows.n_weights, rows.n_weights)), np.zeros(rows.n_weights)
    variance, posterior, n_steps = variance_prior.centre, None, 0
    batches = (pair for _ in range(STOCHASTIC_EPOCHS) for pair in rows.batches(batch_size, rng))
    try:
        for batch, repetitions in batches:
            _heed(stop)
            xi = np.ones(batch.n_samples) if posterior is None else np.exp(log_xi_of(*batch.moments(posterior)))
            statistics = batch.weighted_statistics(xi)
            n_steps += 1
            rate = n_steps**-STOCHASTIC_DECAY
            gram += rate * (repetitions * statistics.A - gram)
            c += rate * (repetitions * statistics.c[:, 0] - c)
            posterior = FullGaussian.solve(gram, c, variance)
            variance = posterior.better_variance(variance_prior, variance)
    except KeyboardInterrupt:
        stop.set()
    if posterior is None:
        return np.append(np.zeros(rows.n_samples), np.log(variance))
    return np.append(log_xi_of(*rows.moments(posterior)), np.log(variance))


@dataclass(frozen=True)
class LogisticFit:
    """A posterior with what was found beside it.

    Attributes
    ----------
    posterior : DecorrelatedPosterior
        Of weights in units of √variance. Its `elbo` is a lower bound of log Pr(t), less what the prior of the variance
        takes off.
    variance : float
        Prior variance of the weights.
    xi : ndarray of shape (n_samples,)
        Jaakkola and Jordan's ξ at the end.
    """

    posterior: DecorrelatedPosterior
    variance: float
    xi: FloatArray


def _mean_square(rows: LabelledRows) -> float:
    squares: Any = sum(rows.map_blocks(lambda phi, part: rows.weight[part] @ np.einsum("ij,ij->i", phi, phi)))
    return float(squares) / float(rows.weight.sum())


# --- the exponential bound


def exponential_bound(rows: LabelledRows, levels: FloatArray, q: FloatArray) -> tuple[float, FloatArray]:
    """``−Σ ω E exp(−t z)``, Theorem 2's bound of Σ ω E log σ(t z), and its gradient.

    A product over the weights for every row, in log space:
    ``log E exp(−t z) = −t offset + Σ_j log q_jᵀ exp(−t φ_j w̄_j)``.

    Parameters
    ----------
    rows : LabelledRows
    levels : ndarray of shape (n_weights or 1, n_levels)
    q : ndarray of shape (n_weights, n_levels)

    Returns
    -------
    value : float
        −inf where a term overflows.
    gradient : ndarray of shape (n_weights, n_levels)
        In q.
    """
    table = _ExponentialTable(levels, q)
    gradient = np.zeros((table.n_levels, table.padded))
    value = 0.0
    for terms, part in _over_blocks(rows, table, with_gradient=True):
        value -= terms
        gradient -= part
    return value, np.ascontiguousarray(gradient[:, : rows.n_weights].T)


def exponential_log_terms(rows: LabelledRows, levels: FloatArray, q: FloatArray) -> FloatArray:
    """``log E exp(−t z)`` of every row, (n_samples,); parameters as in `exponential_bound`."""
    table = _ExponentialTable(levels, q)
    terms = np.empty(rows.n_samples)

    def fill(phi: FloatArray, part: slice) -> None:
        terms[part] = table.log_terms(phi, -rows.t[part], rows.weight[part], None, rows.n_threads)

    for _ in replace(rows, n_threads=1).map_blocks(fill):
        pass
    return terms - rows.t * rows.offset


class _ExponentialTable:
    """Probabilities and levels as the kernel takes them: transposed, padded, levels sorted from the first."""

    def __init__(self, levels: FloatArray, q: FloatArray) -> None:
        b, self.n_levels = q.shape
        self.padded = b + -b % _core.LEVEL_PADDING
        levels = np.broadcast_to(levels, q.shape)
        offsets = levels - levels[:, :1]
        self.reach = np.abs(offsets).max(axis=1)
        steps = np.arange(self.n_levels) * offsets[:, 1:2] if self.n_levels > 1 else offsets
        self.evenly_spaced = bool((np.abs(offsets - steps) <= 1e-12 * np.abs(levels).max(axis=1, keepdims=True)).all())
        padding = ((0, 0), (0, self.padded - b))
        self.q = np.ascontiguousarray(np.pad(q, padding[::-1]).T)
        self.q[0, b:] = 1.0
        self.first = np.pad(levels[:, 0], padding[1])
        self.offsets = np.ascontiguousarray(np.pad(offsets, padding[::-1]).T)

    def log_terms(
        self, phi: FloatArray, factor: FloatArray, weight: FloatArray, gradient: FloatArray | None, n_threads: int
    ) -> FloatArray:
        """Log of E exp(factor φᵀw) of every row; the gradient of Σ weight E exp(factor φᵀw) goes to `gradient`."""
        reach = np.maximum(phi.max(axis=0, initial=0.0), -phi.min(axis=0, initial=0.0)) * self.reach
        largest = float(reach.max(initial=0.0))
        if largest > LARGEST_EXPONENT:
            raise ValueError(
                f"features times the range of their levels must be at most {LARGEST_EXPONENT:g} for the exponential "
                f"bound, got {largest:.4g}: rescale the features, or use bound='jaakkola'"
            )
        out = np.empty(len(phi))
        _core.exponential_terms(
            phi, factor, weight, self.q, self.first, self.offsets, self.evenly_spaced, out, gradient, n_threads
        )
        return out


def _over_blocks(
    rows: LabelledRows, table: _ExponentialTable, *, with_gradient: bool
) -> Iterator[tuple[float, FloatArray]]:
    """Yield Σ ω E exp(−t z) of blocks of rows, and its gradient in the kernel's layout."""
    gradient = np.empty((table.n_levels, table.padded)) if with_gradient else np.empty(0)

    def of_block(phi: FloatArray, part: slice) -> tuple[float, FloatArray]:
        t = rows.t[part]
        with np.errstate(over="ignore"):
            weight = rows.weight[part] * np.exp(-t * rows.offset)
            terms = table.log_terms(phi, -t, weight, gradient if with_gradient else None, rows.n_threads)
            return float(weight @ np.exp(terms)), gradient

    yield from replace(rows, n_threads=1).map_blocks(of_block)


@dataclass(frozen=True)
class _ExponentialObjective:
    """The exponential bound minus KL(q‖p) as a function of softmax logits."""

    rows: LabelledRows
    levels: FloatArray
    log_prior: FloatArray
    stop: threading.Event

    def elbo_and_gradient(
        self, n_levels: int, logits: FloatArray, noise_logits: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return value and gradients; there is no noise."""
        value, gradient = self.of_rows(self.rows, 1.0, logits)
        return value, gradient, noise_logits

    def of_rows(self, rows: LabelledRows, repetitions: float, logits: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient with the likelihood of some rows, that many times."""
        _heed(self.stop)
        log_q, q = self._probabilities(logits)
        value, gradient = exponential_bound(rows, self.levels, q)
        gain = self._gain(log_q, q)
        slope = repetitions * gradient + gain
        # ∂/∂θ_j = q_j ⊙ (g_j − q_jᵀg_j)
        slope -= np.einsum("jk,jk->j", q, slope)[:, None]
        return repetitions * value + float(np.vdot(q, gain)), q * slope

    def value(self, logits: FloatArray) -> float:
        """Return the value alone."""
        log_q, q = self._probabilities(logits)
        blocks = _over_blocks(self.rows, _ExponentialTable(self.levels, q), with_gradient=False)
        return float(np.vdot(q, self._gain(log_q, q))) - sum(v for v, _ in blocks)

    def _gain(self, log_q: FloatArray, q: FloatArray) -> FloatArray:
        return np.subtract(self.log_prior, log_q, out=np.zeros_like(q), where=q > 0)

    def _probabilities(self, logits: FloatArray) -> tuple[FloatArray, FloatArray]:
        allowed = np.where(self.log_prior > -np.inf, logits, -np.inf)
        log_q = allowed - logsumexp(allowed, axis=1, keepdims=True)
        return log_q, np.exp(log_q)

    def batches(self, batch_size: int, rng: np.random.Generator) -> Iterator[Callable[[FloatArray], FloatArray]]:
        """Yield an epoch's gradients, one a batch of rows in random order."""
        for batch, repetitions in self.rows.batches(batch_size, rng):
            yield partial(self._gradient, batch, repetitions)

    def _gradient(self, rows: LabelledRows, repetitions: float, logits: FloatArray) -> FloatArray:
        return self.of_rows(rows, repetitions, logits)[1]


def _fit_exponential(
    rows: LabelledRows,
    start: MeanFieldPosterior,
    batch_size: int | None,
    max_iter: int,
    rng: np.random.Generator,
    stop: threading.Event,
) -> MeanFieldPosterior:
    """Maximise the exponential bound from a posterior on the same levels."""
    objective = _ExponentialObjective(rows, start.levels, np.broadcast_to(start.log_prior, start.q.shape), stop)
    if batch_size is None and rows.is_held:
        q, outcome = _ascend_weight_by_weight(objective, start.q, max_iter)
        weights = FactorizedCategorical(start.weights.levels, q)
        return _with_outcome(replace(start, weights=weights), outcome.trace[0][-1], outcome, stop)
    size = start_size(rows)
    part = rows.sample(size) if rows.n_samples >= 2 * size else rows
    logits = np.log(np.maximum(_ascend_weight_by_weight(replace(objective, rows=part), start.q, max_iter)[0], 1e-30))
    if batch_size is None:
        logits, _, outcome = lbfgs_on_logits(objective, logits.shape[1], logits, np.empty(0), max_iter)
    else:
        logits, outcome = adam_on_logits(objective.value, lambda: objective.batches(batch_size, rng), logits, max_iter)
    q = objective._probabilities(logits)[1]
    weights = FactorizedCategorical(start.weights.levels, q / q.sum(axis=1, keepdims=True))
    return _with_outcome(replace(start, weights=weights), objective.value(logits), outcome, stop)


def _ascend_weight_by_weight(
    objective: _ExponentialObjective, q: FloatArray, max_iter: int
) -> tuple[FloatArray, Outcome]:
    """Coordinate ascent: the bound is linear in q_j, so that ``q_j ∝ p_j exp(∂bound/∂q_j)`` is the best of one weight.

    ``∂bound/∂q_jk = −Σ_i ω_i exp(−t_i offset) exp(−t_i φ_ij w̄_jk) Π_{l≠j} E exp(−t_i φ_il w_l)``. Gradients in logits
    vanish where q is nearly certain, as it often is at the start; this step does not.
    """
    rows, q, outcome = objective.rows, np.array(q), Outcome()
    levels = np.broadcast_to(objective.levels, q.shape)
    exponents = np.ascontiguousarray((-rows.t[:, None] * rows.x).T)
    log_weight = np.log(rows.weight)[:, None]
    trace = [objective.value(_log(q))]
    try:
        while outcome.n_iter < max_iter and not outcome.converged:
            _heed(objective.stop)
            log_terms = exponential_log_terms(rows, objective.levels, q)[:, None] + log_weight
            for j in range(len(q)):
                x = exponents[j, :, None] * levels[j]
                largest = x.max(axis=1, keepdims=True)
                np.exp(x - largest, out=x)
                rest = log_terms - np.log(x @ q[j, :, None])  # without the j-th factor, times exp(largest)
                slope = -(np.exp(np.minimum(rest, LARGEST_EXPONENT)).T @ x)[0]
                q[j] = softmax(objective.log_prior[j] + slope)
                log_terms = rest + np.log(x @ q[j, :, None])
            trace.append(objective.value(_log(q)))
            outcome.n_iter += 1
            outcome.converged = trace[-1] - trace[-2] <= RISE + RELATIVE_RISE * abs(trace[-1])
    except KeyboardInterrupt:
        objective.stop.set()
        trace.append(objective.value(_log(q)))
        outcome.interrupted = True
    outcome.trace = [np.array(trace)]
    return q, outcome


def _log(q: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(q)


def _fit_exponential_decorrelated(
    rows: LabelledRows,
    start: DecorrelatedPosterior,
    variance: float,
    prior: DensityPrior,
    batch_size: int | None,
    max_iter: int,
    rng: np.random.Generator,
    stop: threading.Event,
) -> DecorrelatedPosterior:
    """Do the same in the basis of a decorrelated posterior, where levels follow the posterior that they make.

    The first ones reach from zero to twice Jaakkola and Jordan's means: the exponential bound wants about half of them.
    """
    turned = rows.rotated(np.sqrt(variance) * start.vectors)
    centre, spread = start.mean, np.maximum(start.std, 0.25 * np.abs(start.mean))
    grid = np.linspace(-4.0, 4.0, start.q.shape[1])
    posterior: Any = start
    for left in range(EXPONENTIAL_ROUNDS - 1, -1, -1):
        levels = centre[:, None] + spread[:, None] * grid
        log_prior = prior.log_density(levels) + np.log(spread * (grid[1] - grid[0]))[:, None]
        log_prior -= np.maximum(logsumexp(log_prior, axis=1, keepdims=True), 0.0)
        logits = -0.5 * ((levels - posterior.mean[:, None]) / np.maximum(posterior.std, 1e-3 * spread)[:, None]) ** 2
        weights = FactorizedCategorical.from_logits(levels, logits)
        posterior = replace(posterior, weights=weights, log_prior=log_prior)
        iterations = min(max_iter, EXPONENTIAL_ITERATIONS) if left else max_iter
        posterior = _fit_exponential(turned, posterior, batch_size, iterations, rng, stop)
        if posterior.interrupted:
            break
        centre, spread = posterior.mean, np.maximum(posterior.std, 0.5 * spread * (grid[1] - grid[0]))
    return posterior


# --- prediction

_HERMITE = np.polynomial.hermite_e.hermegauss(32)
# Trapezoidal nodes of the logistic density, about the largest term of the sum.
_LOGISTIC = np.arange(-36.0, 36.25, 0.5)
_WIDE = 1.25


def predictive_log_odds(mean: ArrayLike, variance: ArrayLike) -> FloatArray:
    """Log-odds of E σ(z), z Gaussian with these moments, to about ten digits however large both are.

    Gauss–Hermite quadrature while σ is smooth beside the Gaussian. Where the Gaussian is the wider, σ is the
    distribution function of a logistic L: E σ(z) = E Φ((mean − L)/sd), a sum over L.

    Parameters
    ----------
    mean, variance : array_like of the same shape

    Returns
    -------
    ndarray of the same shape
    """
    mean, sd = np.asarray(mean, dtype=np.float64), np.sqrt(np.asarray(variance, dtype=np.float64))
    out = np.empty(mean.shape)
    wide = sd > _WIDE
    m, s = mean[~wide], sd[~wide]
    nodes, masses = _HERMITE
    z = m[:, None] + s[:, None] * nodes
    log_mass = np.log(masses / masses.sum())
    out[~wide] = logsumexp(log_expit(z) + log_mass, axis=1) - logsumexp(log_expit(-z) + log_mass, axis=1)
    out[wide] = _log_wide(mean[wide], sd[wide]) - _log_wide(-mean[wide], sd[wide])
    return out


def _log_wide(mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Log of E Φ((mean − L)/sd), up to the constant spacing of the nodes."""
    at = np.minimum(mean + sd**2, 0.0)[:, None] + _LOGISTIC
    return logsumexp(log_ndtr((mean[:, None] - at) / sd[:, None]) + log_expit(at) + log_expit(-at), axis=1)


def predictive_probability(mean: ArrayLike, variance: ArrayLike) -> FloatArray:
    """``Pr(t = 1) = E σ(z)`` for Gaussian z; see `predictive_log_odds`."""
    return expit(predictive_log_odds(mean, variance))
