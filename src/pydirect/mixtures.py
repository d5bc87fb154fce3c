"""Posteriors that do not factorise: mixtures ``q = Σ_i α_i ⊗_j q_j^(i)`` (Evans & Nair 2018, section 4).

The expected log-likelihood and log-prior of a mixture are those of its components, averaged; only its entropy is not,
and it is bounded or sampled. A mixture gains at most log n_components nats over its components.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, softmax, xlogy

from pydirect import _core
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_float_array,
    as_generator,
    as_instance,
    as_level_indices,
    as_number,
)
from pydirect.distributions import FactorizedCategorical
from pydirect.mixture_priors import MixturePrior, MixturePriorTable
from pydirect.models import (
    MeanFieldPosterior,
    MeanFieldRegression,
    NoisePosterior,
    WeightMarginals,
    as_regression,
    fit_regression,
    warn_at_edge,
)
from pydirect.optimize import (
    MOVE_THRESHOLD,
    OPTIMIZERS,
    SMALL_PROBLEM,
    Adam,
    Outcome,
    in_single_precision,
    lbfgs,
    through_softmax,
)
from pydirect.statistics import GaussianStatistics

ENTROPIES = ("pairwise", "taylor", "stochastic")
# A weight is split where both halves keep this much of its mass.
SMALLEST_HALF = 0.01
# What a component keeps of its weight where it has none left: it may come back.
SMALLEST_ALPHA = 1e-300
# A component of less weight than this is dropped, as is one whose overlap with another differs from one by less.
DEGENERATE = 1e-12
# Rounds between weights and responsibilities of a mixture prior.
PRIOR_ROUNDS = 20
# Steps of stochastic gradients, and how far each moves a logit.
STOCHASTIC_STEPS = 100
STEP_SIZE = 0.005
SMALLEST_MASS = 1e-12


@dataclass
class MixturePosterior(WeightMarginals):
    """A fitted mixture of factorised posteriors, and a factorised posterior of the noise.

    Attributes
    ----------
    levels : ndarray of shape (n_weights or 1, n_levels)
    component_q : ndarray of shape (n_components, n_weights, n_levels)
        Probabilities of the weights in each component.
    alpha : ndarray of shape (n_components,)
        Weights of the components; positive, summing to one.
    noise : NoisePosterior
    log_prior : ndarray of shape (n_components or 1, n_weights or 1, n_levels)
        Under a mixture prior the effective one of each component, not normalised.
    elbo : float
        Lower bound of log p(y) in nats, −(n/2) log 2π included.
    entropy_lower, entropy_upper : float
        Bracket of the entropy of the weights, see `pairwise_entropy`.
    elbo_trace : ndarray of shape (n_iter,)
        ELBO after each iteration, under the bound or estimate that its stage ascends. The last is that of `elbo`; those
        before are of A in single precision, and may lie above it by as much as that rounds.
    n_iter : int
    converged : bool
        For the stochastic entropy, whose steps are always as many, of the pairwise fit before them.
    interrupted : bool
    """

    levels: FloatArray
    component_q: FloatArray
    alpha: FloatArray
    noise: NoisePosterior
    log_prior: FloatArray
    elbo: float
    entropy_lower: float
    entropy_upper: float
    elbo_trace: FloatArray = field(default_factory=lambda: np.empty(0))
    n_iter: int = 0
    converged: bool = True
    interrupted: bool = False

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.alpha)

    @cached_property
    def components(self) -> list[FactorizedCategorical]:
        """The components' weights."""
        return [FactorizedCategorical(self.levels, q) for q in self.component_q]

    @cached_property
    def weights(self) -> FactorizedCategorical:
        """Every weight alone: the factorised posterior of the same marginal probabilities."""
        return FactorizedCategorical(self.levels, np.einsum("i,ijk->jk", self.alpha, self.component_q))

    @property
    def entropy_bracket(self) -> tuple[float, float]:
        """Lower and upper bound of the entropy of the weights, in nats."""
        return self.entropy_lower, self.entropy_upper

    def expected_sparsity(self) -> float:
        """Return the expected fraction of exact zeros in a sample."""
        return self.weights.expected_sparsity()

    def most_probable(self) -> NDArray[np.uint8]:
        """Level indices of the most probable of the components' most probable weight vectors, (n_weights,)."""
        modes = np.stack([c.most_probable() for c in self.components])
        return np.asarray(modes[self.log_mass(modes).argmax()])

    def log_mass(self, indices: NDArray[np.uint8]) -> FloatArray:
        """``log q(w)`` of weight vectors given as level indices, (n_samples, n_weights); (n_samples,).

        Raises
        ------
        ValueError, TypeError
            When `indices` has another shape or type, or an index no level.
        """
        indices = as_level_indices(indices, "indices", *self.component_q.shape[1:])
        masses = _core.component_log_masses(indices, _log_table(self.component_q), 1)
        return np.asarray(logsumexp(masses + np.log(self.alpha), axis=1))

    def component_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* in every component for rows of Φ; (n_rows, n_components) each."""
        means, variances = np.empty((2, self.n_components, len(phi)))
        for component, mean, variance in zip(self.components, means, variances, strict=True):
            _core.row_moments(phi, component.mean, component.variance, mean, variance, n_threads)
        return means.T, variances.T

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows of Φ, by the law of total variance; (n_rows,) each."""
        means, variances = self.component_moments(phi, n_threads)
        mean = means @ self.alpha
        return mean, (variances + (means - mean[:, None]) ** 2) @ self.alpha

    def latent_cumulant(self, phi: FloatArray, order: int) -> FloatArray:
        """Cumulants of f*, order 1 to 4, from the components' moments about the common mean; (n_rows,)."""
        cumulants = [np.stack([phi**k @ c.cumulant(k) for c in self.components]) for k in range(1, order + 1)]
        mean = self.alpha @ cumulants[0]
        if order == 1:
            return np.asarray(mean)
        d = cumulants[0] - mean
        second = self.alpha @ (cumulants[1] + d**2)
        if order == 2:
            return np.asarray(second)
        if order == 3:
            return np.asarray(self.alpha @ (cumulants[2] + 3 * d * cumulants[1] + d**3))
        fourth = cumulants[3] + 3 * cumulants[1] ** 2 + 4 * d * cumulants[2] + 6 * d**2 * cumulants[1] + d**4
        return np.asarray(self.alpha @ fourth - 3 * second**2)

    def sample_indices(
        self, n_samples: int, random_state: np.random.Generator | int | None = None
    ) -> NDArray[np.uint8]:
        """Draw level indices, (n_samples, n_weights), independently of each other."""
        rng = as_generator(random_state)
        return _sample_indices(self.alpha, self.component_q, as_count(n_samples, "n_samples"), rng)

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights)."""
        return self.components[0].values(self.sample_indices(n_samples, rng))


def as_component_count(n_components: int) -> int:
    """Validate a number of components: 1 to 64."""
    if as_count(n_components, "n_components") > _core.MOST_COMPONENTS:
        raise ValueError(f"n_components must be at most {_core.MOST_COMPONENTS}, got {n_components}")
    return int(n_components)


# Entropies


def pairwise_entropy(alpha: ArrayLike, q: ArrayLike) -> tuple[float, float]:
    """Lower and upper bound of the entropy of a mixture, from distances between its components.

    ``Σ_i α_i H(q_i) − Σ_i α_i log Σ_k α_k exp(−D(i, k))``, a lower bound with the Bhattacharyya distance for D and an
    upper one with the Kullback-Leibler divergence; both exact for one component and for components that share no
    weight vector (Kolchinsky & Tracey, Estimating mixture entropy with pairwise distances, Entropy 19(7), 2017).

    Parameters
    ----------
    alpha : array_like of shape (n_components,)
    q : array_like of shape (n_components, n_weights, n_levels)

    Returns
    -------
    lower, upper : float
        In nats.

    Examples
    --------
    >>> lower, upper = pairwise_entropy([0.5, 0.5], [[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> round(float(lower / np.log(2)), 12), round(float(upper / np.log(2)), 12)
    (1.0, 1.0)
    """
    q = as_float_array(q, "q", ("n_components", "n_weights", "n_levels"))
    alpha = as_float_array(alpha, "alpha", q.shape[:1])
    used = alpha > 0
    alpha, q = alpha[used], q[used]
    own = -xlogy(q, q).sum(axis=(1, 2))
    root = np.sqrt(q)
    with np.errstate(divide="ignore"):
        log_q = np.log(q)
        log_overlap = np.log(np.einsum("ijw,kjw->ikj", root, root)).sum(axis=2)
    np.fill_diagonal(log_overlap, 0.0)
    divergence = np.zeros_like(log_overlap)
    for i, row in enumerate(q):
        inside = row > 0
        divergence[i] = -own[i] - np.where(inside, row, 0.0)[inside] @ log_q[:, inside].T
    lower, upper = (
        float(alpha @ own - alpha @ logsumexp(np.log(alpha) + similarity, axis=1))
        for similarity in (log_overlap, -divergence)
    )
    return lower, upper


def taylor_entropy(
    alpha: FloatArray, q: FloatArray, log_centre: FloatArray
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Lower bound of the entropy of a mixture from ``log q ≤ log a + q/a − 1`` about ``a = ⊗_j a_j`` (Theorem 3).

    Parameters
    ----------
    alpha : ndarray of shape (n_components,)
    q : ndarray of shape (n_components, n_weights, n_levels)
    log_centre : ndarray of shape (n_weights, n_levels)
        log a; a need not be normalised.

    Returns
    -------
    value : float
    gradient_alpha, gradient_q, gradient_log_centre : ndarray
        Of all entries as if they were free.
    """
    over = q * np.exp(-log_centre)
    factors = np.maximum(np.einsum("ijw,kjw->ikj", q, over), 1e-300)
    log_factors = np.log(factors)
    # Beyond exp(300) the bound is of no use: it must only stay finite.
    pairs = np.exp(np.minimum(log_factors.sum(axis=2), 300.0))
    log_a = np.einsum("ijw,jw->i", q, log_centre)
    value = float(1.0 - alpha @ log_a - alpha @ pairs @ alpha)
    without = alpha[:, None, None] * alpha[:, None] * pairs[:, :, None] / factors  # (i, k, j)
    pull = np.einsum("ikj,kjw->ijw", without, over)
    gradient_q = -alpha[:, None, None] * log_centre - 2.0 * pull
    gradient_centre = np.einsum("ijw,ijw->jw", pull, q) - np.einsum("i,ijw->jw", alpha, q)
    return value, -log_a - 2.0 * pairs @ alpha, gradient_q, gradient_centre


def score_gradient(
    alpha: FloatArray,
    q: FloatArray,
    indices: NDArray[np.uint8],
    values: FloatArray,
    additive: FloatArray,
    n_threads: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Unbiased gradient of ``E_q f`` in the probabilities of a mixture, from values of a fixed f at samples of it.

    ``∇ E f = E[(f − h) ∇ log q] + ∇ E h`` for an additive h, whose expectation is exact: the closer h is to f, the
    smaller the variance. With f = log q + 1 this is minus eq. 11's gradient of the entropy, and that formula itself
    when h is zero.

    Parameters
    ----------
    alpha : ndarray of shape (n_components,)
    q : ndarray of shape (n_components, n_weights, n_levels)
    indices : ndarray of shape (n_samples, n_weights), uint8
        Samples.
    values : ndarray of shape (n_samples,)
        f of each.
    additive : ndarray of shape (n_weights, n_levels)
        h, of which the values of a sample's weights are summed.

    Returns
    -------
    gradient_alpha, gradient_q : ndarray
        Of all entries as if they were free.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.
    """
    r, b, m = q.shape
    indices = as_level_indices(indices, "indices", b, m)
    n = len(indices)
    alpha = as_float_array(alpha, "alpha", (r,))
    values = as_float_array(values, "values", (n,))
    additive = as_float_array(additive, "additive", (b, m))
    rest = values - _core.component_log_masses(indices, np.ascontiguousarray(additive[:, :, None]), n_threads)[:, 0]
    masses = _core.component_log_masses(indices, _log_table(q), n_threads) + np.log(alpha)
    shares = softmax(masses, axis=1) * rest[:, None] / n
    sums = np.zeros((b, m, r))
    _core.sum_by_level(indices, np.ascontiguousarray(shares), sums, n_threads)
    own = np.einsum("ijw,jw->ij", q, additive)
    total = own.sum(axis=1)
    others = (total[:, None] - own)[:, :, None]
    gradient_q = np.divide(sums.transpose(2, 0, 1), q, out=np.zeros_like(q), where=q > 0)
    return shares.sum(axis=0) / alpha + total, gradient_q + alpha[:, None, None] * (additive + others)


def stochastic_entropy(
    alpha: FloatArray, q: FloatArray, indices: NDArray[np.uint8], n_threads: int = 1
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Estimate the entropy of a mixture and its gradient from samples of it (eq. 11).

    The variance is reduced by the entropy of the marginals, which is exact.

    Parameters
    ----------
    alpha, q, indices
        As in `score_gradient`.

    Returns
    -------
    values : ndarray of shape (n_samples,)
        Their mean is the estimate.
    gradient_alpha, gradient_q : ndarray

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.
    """
    indices = as_level_indices(indices, "indices", *q.shape[1:])
    alpha = as_float_array(alpha, "alpha", q.shape[:1])
    log_q = logsumexp(_core.component_log_masses(indices, _log_table(q), n_threads) + np.log(alpha), axis=1)
    marginal = np.einsum("i,ijw->jw", alpha, q)
    log_marginal = np.log(np.maximum(marginal, SMALLEST_MASS))
    of_marginals = _core.component_log_masses(indices, np.ascontiguousarray(log_marginal[:, :, None]), n_threads)[:, 0]
    additive = log_marginal + 1.0 / len(marginal)  # h = Σ_j log q_j + 1
    gradient_alpha, gradient_q = score_gradient(alpha, q, indices, log_q + 1.0, additive, n_threads)
    return of_marginals - log_q - float((marginal * log_marginal).sum()), -gradient_alpha, -gradient_q


def _log_table(q: FloatArray) -> FloatArray:
    """Return log q as the compiled samplers want it, (n_weights, n_levels, n_components)."""
    with np.errstate(divide="ignore"):
        return np.ascontiguousarray(np.log(q).transpose(1, 2, 0))


def _sample_indices(alpha: FloatArray, q: FloatArray, n: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    counts = rng.multinomial(n, alpha / alpha.sum())
    empty = np.zeros((1, q.shape[2]))
    drawn = [FactorizedCategorical(empty, q[i]).sample_indices(int(k), rng) for i, k in enumerate(counts) if k]
    return np.ascontiguousarray(np.concatenate(drawn)[rng.permutation(n)])


# Fitting


def fit_mixture(
    statistics: GaussianStatistics,
    levels: ArrayLike,
    log_prior: ArrayLike | MixturePrior | MixturePriorTable,
    noise_levels: ArrayLike,
    log_noise_prior: ArrayLike | None = None,
    *,
    n_components: int = 5,
    entropy: str = "pairwise",
    n_samples: int = 3000,
    optimizer: str = "pipeline",
    output: int = 0,
    start: MeanFieldPosterior | MixturePosterior | None = None,
    max_iter: int = 1000,
    tolerance: float = 1e-2,
    random_state: int = 0,
    n_threads: int | None = None,
) -> MixturePosterior:
    """Fit a mixture of factorised posteriors from statistics alone.

    The factorised posterior is found first and split: at the weight that the others depend on most, half of its levels
    go to one component and half to the other, and so on in the larger component. The split mixture is the same
    distribution as before, with the same ELBO; then all components rise together, each weight at its optimum given all
    else, never lowering the ELBO.

    Parameters
    ----------
    statistics, levels, noise_levels, log_noise_prior, optimizer, output, random_state, n_threads
        As in `fit_mean_field`.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels), MixturePrior or MixturePriorTable
        Log masses of the levels, or a prior that does not factorise, in general or for these levels.
    n_components : int
        At most; fewer where so few weights are undecided. 1 fits a factorised posterior, under either kind of prior.
    entropy : {"pairwise", "taylor", "stochastic"}
        Of the mixture: the bound of `pairwise_entropy` (default), that of `taylor_entropy` (Theorem 3) with its centre
        optimised too, by L-BFGS, or unbiased gradients from samples (eq. 11), by Adam from the pairwise fit; where the
        pairwise bound of what that finds is lower, the pairwise fit stays.
    n_samples : int
        Samples of a step of ``"stochastic"``.
    start : MeanFieldPosterior or MixturePosterior, optional
        A posterior of at most `n_components` components, on as many levels and noise levels, to rise from instead of
        fitting a factorised one. One component is then split; several stay as many.
    max_iter : int
        Largest number of iterations of any one stage; of ``"stochastic"`` at most 100 steps are taken.
    tolerance : float
        Problems of more than 300 weights are at rest when an iteration raises the ELBO by less than so many nats.

    Returns
    -------
    MixturePosterior
        ``elbo`` is a lower bound of log p(y): for ``"stochastic"``, which does not know its entropy, with the pairwise
        bound of it.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.

    Warns
    -----
    NoiseGridWarning
        When the noise posterior piles up at an edge of its grid.

    Examples
    --------
    Two weights that only their sum is known of:

    >>> import numpy as np
    >>> from pydirect import GaussianStatistics, fit_mixture
    >>> phi, levels = np.ones((50, 2)), np.array([0.0, 1.0])
    >>> statistics = GaussianStatistics.from_arrays(phi, np.ones(50))
    >>> posterior = fit_mixture(statistics, levels, np.log([0.5, 0.5]), [0.1], n_components=2)
    >>> sorted(posterior.component_q[:, 0, 1].round(3).tolist()), posterior.alpha.round(3).tolist()
    ([0.0, 1.0], [0.5, 0.5])
    """
    n_components = as_component_count(n_components)
    as_choice(entropy, "entropy", ENTROPIES)
    as_choice(optimizer, "optimizer", OPTIMIZERS)
    as_count(n_samples, "n_samples", 2)
    as_count(max_iter, "max_iter")
    tolerance = as_number(tolerance, "tolerance", above=0.0)
    if isinstance(log_prior, MixturePrior):
        log_prior = log_prior.table(levels, statistics.n_weights)
    table = log_prior if isinstance(log_prior, MixturePriorTable) else None
    if isinstance(log_prior, MixturePriorTable):
        log_prior = log_prior.marginal
    model = as_regression(statistics, levels, log_prior, noise_levels, log_noise_prior, output)
    threads = resolve_n_threads(n_threads)
    climb = _Climb(model, table, in_single_precision(statistics.A), max_iter, tolerance, threads)

    if start is not None:
        state = climb.ascend(_start_state(start, climb, n_components))
    else:
        state = _factorized(climb, optimizer, random_state)
    if n_components > 1 and not state.interrupted:
        if len(state.alpha) == 1:
            state = _split(state, climb, n_components)
        if entropy == "taylor":
            state = _ascend_taylor(state, climb)
        else:
            state = climb.ascend(state)
            if entropy == "stochastic" and not state.interrupted:
                state = _ascend_stochastic(state, climb, n_samples, random_state)
    posterior = _posterior(state, climb)
    warn_at_edge(posterior.noise)
    return posterior


@dataclass
class _State:
    """Where an optimiser stands."""

    alpha: FloatArray
    q: FloatArray  # (n_components, n_weights, n_levels)
    q_noise: FloatArray
    elbo: float
    trace: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False


@dataclass(frozen=True)
class _Climb:
    """Coordinate ascent on the components of one problem, under the pairwise bound."""

    model: MeanFieldRegression
    table: MixturePriorTable | None
    a: NDArray[np.float32]
    max_iter: int
    tolerance: float
    n_threads: int

    @property
    def small(self) -> bool:
        return self.model.statistics.n_weights <= SMALL_PROBLEM

    def priors(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effective log prior of each component, (n_components or 1, ...), and what the bound adds to its ELBO."""
        if self.table is None:
            return self.model.log_prior[None], np.zeros(len(q))
        responsibilities = [self.table.responsibilities(component) for component in q]
        log_prior = np.stack([self.table.effective(rho) for rho in responsibilities])
        return log_prior, np.array([self.table.offset(rho) for rho in responsibilities])

    def solver(self, state: _State) -> _core.Mixture:
        """Return the compiled solver at a state."""
        model, statistics = self.model, self.model.statistics
        log_prior, offsets = self.priors(state.q)
        solver = _core.Mixture(
            a=self.a,
            a_exact=statistics.A,
            diagonal=np.ascontiguousarray(statistics.A.diagonal()),
            c=np.ascontiguousarray(statistics.c[:, model.output]),
            yty=float(statistics.yty[model.output]),
            n_samples=statistics.n_samples,
            levels=_padded(model.levels),
            log_prior=_padded(log_prior, -np.inf),
            prior_precision=model.prior_precision(),
            noise_levels=model.noise_levels,
            noise_log_prior=model.log_noise_prior,
            n_components=len(state.alpha),
            n_threads=self.n_threads,
        )
        solver.set_noise(state.q_noise)
        for i, q in enumerate(state.q):
            solver.set_component(i, _padded(q))
        solver.set_alpha(state.alpha)
        solver.set_offsets(offsets)
        return solver

    def ascend(self, state: _State) -> _State:
        """Sweep until nothing rises; under a mixture prior in turns with its responsibilities, never downhill."""
        m = self.model.levels.shape[1]
        fine = 1e-6 if self.small else 1.0
        rise = 1e-12 if self.small else self.tolerance / (abs(state.elbo) + 1.0)
        for _ in range(1 if self.table is None else PRIOR_ROUNDS):
            before = state.elbo
            try:
                solver = self.solver(state)
                n_iter, converged, trace = solver.ascend(
                    self.max_iter, fine * MOVE_THRESHOLD, rise, 1 if self.small else 20
                )
                q = np.ascontiguousarray(solver.probabilities()[:, :, :m])
                trace, n_iter = state.trace + trace.tolist(), state.n_iter + n_iter
                risen = _State(solver.alpha, q, solver.q_noise, solver.elbo(), trace, n_iter, converged)
                state = risen if self.table is None else self.evaluated(risen)
            except KeyboardInterrupt:
                return replace(state, converged=False, interrupted=True)
            if self.table is None or state.elbo - before <= rise * (abs(state.elbo) + 1.0):
                break
        else:
            state.converged = False
        return state

    def evaluated(self, state: _State) -> _State:
        """Return a state with its ELBO, under a mixture prior with the responsibilities of its own components."""
        return replace(state, elbo=self.solver(state).elbo())


def _start_state(start: MeanFieldPosterior | MixturePosterior, climb: _Climb, n_components: int) -> _State:
    """Validate a start and evaluate it under this model, which need not be the one that it was fitted to."""
    as_instance(start, "start", MeanFieldPosterior, MixturePosterior)
    model = climb.model
    shape = (model.statistics.n_weights, model.levels.shape[1])
    if start.q.shape != shape or start.noise.q.shape != model.noise_levels.shape:
        raise ValueError(
            f"start must have probabilities of shape {shape} and {model.noise_levels.size} noise levels, got "
            f"{start.q.shape} and {start.noise.q.size}"
        )
    alpha, q = np.ones(1), start.q[None]
    if isinstance(start, MixturePosterior):
        alpha, q = start.alpha, start.component_q
    if len(alpha) > n_components:
        raise ValueError(f"start must have at most n_components = {n_components} components, got {len(alpha)}")
    state = climb.evaluated(_State(alpha, q, start.noise.q, -np.inf))
    if not np.isfinite(state.elbo):
        raise ValueError("start must not give mass to a level that log_prior forbids")
    return state


def _padded(table: FloatArray, value: float = 0.0) -> FloatArray:
    """Pad the last axis to the kernels' width."""
    width = [(0, 0)] * (table.ndim - 1) + [(0, -table.shape[-1] % _core.LEVEL_PADDING)]
    return np.ascontiguousarray(np.pad(table, width, constant_values=value))


def _factorized(climb: _Climb, optimizer: str, random_state: int) -> _State:
    """Best factorised posterior; under a mixture prior from its marginals and from each of its global components."""
    table, model = climb.table, climb.model
    starts = [model.log_prior]
    if table is not None and table.n_groups == 1 and len(table.log_masses) > 1:
        starts += list(table.log_masses)
    best: _State | None = None
    for log_prior in starts:
        posterior = fit_regression(
            replace(model, log_prior=np.ascontiguousarray(log_prior)),
            optimizer,
            None,
            climb.max_iter,
            random_state,
            climb.n_threads,
        )
        state = _State(
            np.ones(1),
            posterior.q[None],
            posterior.noise.q,
            posterior.elbo,
            posterior.elbo_trace.tolist(),
            posterior.n_iter,
            posterior.converged,
            posterior.interrupted,
        )
        if table is not None:  # what the start maximised is not the bound of this prior
            state = climb.evaluated(replace(state, trace=[], n_iter=0))
            if not state.interrupted:
                state = climb.ascend(state)
        if best is None or state.elbo > best.elbo:
            best = state
        if state.interrupted:
            break
    assert best is not None
    return best


def _split(state: _State, climb: _Climb, n_components: int) -> _State:
    """Cut a factorised posterior into components that together are the same distribution.

    Each cut halves one weight's levels in the component that weighs most. What is gained by it is, to second order,
    what the weight's halves differ in, times how much the others answer to it: ``τ² Σ_k A_jk² v_k`` (Laplace). Where
    all weights are decided, the smaller half is one of (almost) no mass, from which another optimum may be reached: the
    weight whose partner would make up for most of that is cut first.
    """
    q, model = state.q[0], climb.model
    order = np.argsort(model.levels, axis=1)
    sorted_q = np.take_along_axis(q, np.broadcast_to(order, q.shape), axis=1)
    sorted_levels = np.broadcast_to(np.take_along_axis(model.levels, order, axis=1), q.shape)
    if q.shape[1] == 1:
        return state
    weights = FactorizedCategorical(model.levels, q)
    tau = state.q_noise @ (1.0 / model.noise_levels)
    with single_blas_thread():
        squares = np.square(climb.a)
        np.fill_diagonal(squares, 0.0)
        answer = tau**2 * (squares @ weights.variance.astype(np.float32)).astype(np.float64)
        squares /= (tau * climb.a.diagonal() + model.prior_precision()).astype(np.float32)
        partner = tau**2 * squares.max(axis=1).astype(np.float64)

    between, cut, log_small, distance = _halves(sorted_q, sorted_levels)
    undecided = between * answer
    decided = np.where(distance > 0, log_small + 0.5 * distance**2 * partner, -np.inf)
    parts: list[tuple[float, FloatArray, frozenset[int]]] = [(1.0, q, frozenset())]
    while len(parts) < n_components:
        parts.sort(key=lambda part: -part[0])
        place = _next_cut(undecided, parts, 0.0)
        if place is None:
            place = _next_cut(decided, parts, -np.inf)
        if place is None:
            break  # nothing is left to cut
        index, j = place
        alpha, whole, used = parts.pop(index)
        lower = np.zeros(q.shape[1], dtype=bool)
        lower[np.broadcast_to(order, q.shape)[j, : cut[j] + 1]] = True
        for half in (lower, ~lower):
            part = whole.copy()
            part[j] = np.where(half, whole[j], 0.0)
            mass = part[j].sum()
            # Levels that q has given up come from the prior, which is all that is known of them.
            part[j] = part[j] / mass if mass > 1e-290 else np.where(half, _prior_mass(model, j), 0.0)
            part[j] /= part[j].sum()
            parts.append((max(alpha * mass, SMALLEST_ALPHA), part, used | {j}))
    alphas = np.array([alpha for alpha, _, _ in parts])
    return replace(state, alpha=alphas / alphas.sum(), q=np.stack([q for _, q, _ in parts]))


def _next_cut(
    score: FloatArray, parts: list[tuple[float, FloatArray, frozenset[int]]], lowest: float
) -> tuple[int, int] | None:
    """Find the heaviest part with a weight not yet cut that scores above `lowest`, and the best such weight."""
    for index, (_, _, used) in enumerate(parts):
        still = score.copy()
        still[list(used)] = lowest
        j = int(still.argmax())
        if still[j] > lowest:
            return index, j
    return None


def _prior_mass(model: MeanFieldRegression, j: int) -> FloatArray:
    log_p = model.log_prior[j if len(model.log_prior) > 1 else 0]
    return np.maximum(np.exp(log_p - log_p.max()), SMALLEST_MASS)


def _halves(q: FloatArray, levels: FloatArray) -> tuple[FloatArray, NDArray[np.intp], FloatArray, FloatArray]:
    """Cut each row of ascending levels in two.

    Returns the variance between the halves where both have some mass, the last level of the lower half, and of that cut
    the log of the smaller half's mass and how far apart the halves' nearest levels are.
    """
    rows = np.arange(len(q))
    mass = np.cumsum(q, axis=1)[:, :-1]
    moment = np.cumsum(q * levels, axis=1)
    mean, moment = moment[:, -1:], moment[:, :-1]
    allowed = (mass > SMALLEST_HALF) & (mass < 1.0 - SMALLEST_HALF)
    between = np.where(allowed, (moment - mean * mass) ** 2 / np.where(allowed, mass * (1.0 - mass), 1.0), 0.0)
    upper = np.cumsum(q[:, ::-1], axis=1)[:, -2::-1]
    small = np.where(np.diff(levels, axis=1) > 0, np.minimum(mass, upper), 0.0)
    cut = np.where(allowed.any(axis=1), between.argmax(axis=1), small.argmax(axis=1))
    log_small = np.log(np.maximum(small[rows, cut], 1e-300))
    return between[rows, cut], cut, log_small, np.diff(levels, axis=1)[rows, cut]


def _posterior(state: _State, climb: _Climb) -> MixturePosterior:
    """Drop components of no weight, merge equal ones, and evaluate what is reported."""
    kept = state.alpha > DEGENERATE
    alpha = np.where(kept, state.alpha, 0.0)
    for i in range(len(alpha)):
        for k in range(i):
            if alpha[i] > 0 and alpha[k] > 0:
                overlap = np.einsum("jw,jw->j", np.sqrt(state.q[i]), np.sqrt(state.q[k]))
                if np.log(np.maximum(overlap, 1e-300)).sum() > -DEGENERATE:
                    alpha[k] += alpha[i]
                    alpha[i] = 0.0
    kept = alpha > 0
    alpha, q = alpha[kept] / alpha.sum(), np.ascontiguousarray(state.q[kept])
    lower, upper = pairwise_entropy(alpha, q)
    trace = np.array([*state.trace[: max(state.n_iter, 1) - 1], state.elbo])
    return MixturePosterior(
        levels=climb.model.levels,
        component_q=q,
        alpha=alpha,
        noise=NoisePosterior(climb.model.noise_levels, state.q_noise),
        log_prior=climb.priors(q)[0],
        elbo=state.elbo,
        entropy_lower=lower,
        entropy_upper=max(lower, upper),
        elbo_trace=trace,
        n_iter=state.n_iter,
        converged=state.converged,
        interrupted=state.interrupted,
    )


# Gradients in logits, for the entropies that no closed step ascends


@dataclass(frozen=True)
class _Energy:
    """Expected log-likelihood and log-prior of a mixture, the noise at its optimum; value and gradient."""

    climb: _Climb

    def __call__(self, alpha: FloatArray, q: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        """Value, gradients in alpha and q as if their entries were free, and the noise posterior."""
        model = self.climb.model
        statistics = model.statistics
        a, c, yty = statistics.A, statistics.c[:, model.output], statistics.yty[model.output]
        levels = model.levels
        diagonal = a.diagonal()
        s = np.einsum("ijw,jw->ij", q, np.broadcast_to(levels, q.shape[1:]))
        v = np.einsum("ijw,jw->ij", q, np.broadcast_to(levels**2, q.shape[1:]))
        product = s @ a
        errors = yty + np.einsum("ij,ij->i", s, product - 2 * c) + (v - s**2) @ diagonal
        log_prior, offsets = self.climb.priors(q)
        allowed = np.isfinite(log_prior)
        finite = np.where(allowed, log_prior, 0.0)
        prior = np.einsum("ijw,ijw->i", q, np.broadcast_to(finite, q.shape)) + offsets

        n, noise = statistics.n_samples, model.noise_levels
        logits = model.log_noise_prior - 0.5 * n * np.log(noise) - 0.5 * (alpha @ errors) / noise
        value = logsumexp(logits) - 0.5 * n * np.log(2 * np.pi) + alpha @ prior
        q_noise = softmax(logits)
        tau = q_noise @ (1.0 / noise)
        residual = c - product + diagonal * s
        tilt = tau * (residual[:, :, None] - 0.5 * diagonal[:, None] * levels) * levels + finite
        return float(value), prior - 0.5 * tau * errors, alpha[:, None, None] * tilt, q_noise


def _log_marginal(state: _State) -> FloatArray:
    return np.log(np.maximum(np.einsum("i,ijw->jw", state.alpha, state.q), SMALLEST_MASS))


def _best_centre(state: _State, max_iter: int, relative_rise: float) -> tuple[FloatArray, Outcome]:
    """Log of the centre at which `taylor_entropy` is highest; it is concave in that, and the centre not normalised.

    About ``a_j = max_i q_j^(i)`` no pair of components counts for more than one, however many weights differ. At the
    marginals, components that differ in k weights count for exponentially many.
    """
    start = np.log(np.maximum(state.q.max(axis=0), SMALLEST_MASS))

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        value, _, _, gradient = taylor_entropy(state.alpha, state.q, theta.reshape(start.shape))
        return value, gradient.ravel()

    best, outcome = lbfgs(objective, start.ravel(), max_iter, relative_rise, n_corrections=20)
    return best.reshape(start.shape), outcome


def _ascend_taylor(state: _State, climb: _Climb) -> _State:
    """L-BFGS on all logits and the logarithm of the centre.

    It starts from the split posterior, which is factorised and its own best centre, or from the pairwise fit and the
    best centre of that, whichever is higher under this bound.
    """
    energy = _Energy(climb)
    rise = 1e-12 if climb.small else climb.tolerance / (abs(state.elbo) + 1.0) / 10
    risen = climb.ascend(state)
    if risen.interrupted:
        return risen
    centre_of_risen, outcome = _best_centre(risen, climb.max_iter, rise)
    if outcome.interrupted:
        return replace(risen, converged=False, interrupted=True)

    def bound(start: tuple[_State, FloatArray]) -> float:
        state, log_centre = start
        return energy(state.alpha, state.q)[0] + taylor_entropy(state.alpha, state.q, log_centre)[0]

    state, log_centre = max((state, _log_marginal(state)), (risen, centre_of_risen), key=bound)
    shape, r = state.q.shape, len(state.alpha)
    allowed = np.isfinite(np.broadcast_to(climb.priors(state.q)[0], shape))
    logits = np.where(allowed, np.log(np.maximum(state.q, SMALLEST_MASS)), 0.0)
    start = np.concatenate([np.log(state.alpha), logits.ravel(), log_centre.ravel()])
    splits = np.cumsum([r, state.q.size])

    def unpack(theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        own, weights, log_centre = np.split(theta, splits)
        table = np.where(allowed, weights.reshape(shape), -np.inf)
        return softmax(own), softmax(table, axis=2), log_centre.reshape(shape[1:])

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        alpha, q, log_centre = unpack(theta)
        value, d_alpha, d_q, _ = energy(alpha, q)
        entropy, h_alpha, h_q, h_centre = taylor_entropy(alpha, q, log_centre)
        gradient = [
            through_softmax(alpha, d_alpha + h_alpha),
            through_softmax(q, d_q + h_q).ravel(),
            h_centre.ravel(),
        ]
        return value + entropy, np.concatenate(gradient)

    best, outcome = lbfgs(objective, start, climb.max_iter, rise, n_corrections=20)
    alpha, q, _ = unpack(best)
    trace = [] if outcome.interrupted else outcome.trace[0][: outcome.n_iter].tolist()
    return _State(
        alpha,
        q,
        energy(alpha, q)[3],
        objective(best)[0],
        state.trace + trace,
        state.n_iter + len(trace),
        outcome.converged,
        outcome.interrupted,
    )


def _ascend_stochastic(state: _State, climb: _Climb, n_samples: int, random_state: int) -> _State:
    """Adam on all logits (Kingma & Ba 2015), with fresh samples at every step and steps that shrink to nothing.

    The entropy is not known: what the steps gain is judged by the pairwise bound of it, and where that is lower, where
    they started is kept.
    """
    energy = _Energy(climb)
    rng = as_generator(random_state)
    alpha, q = state.alpha, state.q
    allowed = np.isfinite(np.broadcast_to(climb.priors(q)[0], q.shape))
    table = climb.table if climb.table is not None and climb.table.bound == "stochastic" else None
    parameters = [np.log(alpha), np.where(allowed, np.log(np.maximum(q, SMALLEST_MASS)), -np.inf)]
    ascents = [Adam(p.shape) for p in parameters]
    trace: list[float] = []
    interrupted = False
    n_steps = min(climb.max_iter, STOCHASTIC_STEPS)
    try:
        with single_blas_thread():
            for step in range(n_steps):
                value, d_alpha, d_q, _ = energy(alpha, q)
                indices = _sample_indices(alpha, q, n_samples, rng)
                entropy, h_alpha, h_q = stochastic_entropy(alpha, q, indices, climb.n_threads)
                trace.append(value + float(entropy.mean()))
                d_alpha, d_q = d_alpha + h_alpha, d_q + h_q
                if table is not None:
                    p_alpha, p_q = _exact_prior_gradient(table, alpha, q, indices, climb.n_threads)
                    d_alpha, d_q = d_alpha + p_alpha, d_q + p_q
                gradients = [through_softmax(alpha, d_alpha), through_softmax(q, d_q)]
                for p, g, adam in zip(parameters, gradients, ascents, strict=True):
                    adam.step = STEP_SIZE * (1 - step / n_steps)
                    p += adam(g)
                alpha, q = softmax(parameters[0]), softmax(parameters[1], axis=2)
    except KeyboardInterrupt:
        interrupted = True
    value, _, _, q_noise = energy(alpha, q)
    elbo = value + pairwise_entropy(alpha, q)[0]
    end = replace(state, alpha=alpha, q=q, q_noise=q_noise, elbo=elbo) if elbo > state.elbo else state
    return replace(
        end,
        trace=state.trace + trace,
        n_iter=state.n_iter + len(trace),
        converged=state.converged and not interrupted,
        interrupted=interrupted,
    )


def _exact_prior_gradient(
    table: MixturePriorTable, alpha: FloatArray, q: FloatArray, indices: NDArray[np.uint8], n_threads: int
) -> tuple[FloatArray, FloatArray]:
    """Unbiased gradient of ``E_q log p`` less that of its bound, which the energy has already."""
    responsibilities = [table.responsibilities(component) for component in q]
    bounds = np.stack([table.effective(rho) for rho in responsibilities])
    offsets = np.array([table.offset(rho) for rho in responsibilities])
    finite = np.where(np.isfinite(bounds), bounds, 0.0)
    average = np.einsum("i,ijw->jw", alpha, finite)
    gradient_alpha, gradient_q = score_gradient(
        alpha, q, indices, table.log_mass_of(indices, n_threads), average, n_threads
    )
    gradient_alpha -= np.einsum("ijw,ijw->i", q, finite) + offsets
    return gradient_alpha, gradient_q - alpha[:, None, None] * finite
