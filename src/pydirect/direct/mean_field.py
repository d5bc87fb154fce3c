"""Mean-field inference in linear-Gaussian models: the ELBO as likelihood + prior + entropy terms (Theorem 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, xlogy

from pydirect import _core
from pydirect._dense import product
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_count, short_repr
from pydirect.distributions.categorical import FactorizedCategorical, WeightMarginals, as_levels, padded
from pydirect.distributions.noise import NoiseGrid, NoisePosterior, warn_at_edge
from pydirect.distributions.priors import as_log_prior
from pydirect.optimize.cholesky import in_single_precision
from pydirect.optimize.gradient import lbfgs_on_logits
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.optimize.quadratic import OPTIMIZERS, RELATIVE_RISE, Naturals, QuadraticProblem, run
from pydirect.persistence.schema import Binds, LogMasses, Shape
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, as_target_statistics

# Levels w around an offset much larger than their range lose their differences in second moments.
FARTHEST_LEVELS = 1e4
# Expected squared error per row, in units of the noise variance, from which the levels found may be bad ones.
LARGE_MISFIT = 10.0


@dataclass
class MeanFieldPosterior(WeightMarginals, WithOutcome):
    """A fitted factorised posterior of weights and noise.

    The last ELBO of its trace is exact; those before are of A in single precision, and may lie above it by as much as
    that rounds.
    """

    weights: Annotated[FactorizedCategorical, Binds(n_weights="n_weights", n_levels="n_levels")]
    noise: NoisePosterior
    log_prior: Annotated[FloatArray, Shape("n_weights or 1", "n_levels"), LogMasses]
    outcome: Outcome

    __repr__ = short_repr

    @property
    def levels(self) -> FloatArray:
        """Levels of every weight, (n_weights, n_levels)."""
        return np.broadcast_to(self.weights.levels, self.weights.q.shape)

    def in_units_of(self, unit: float) -> Self:
        """Return the same posterior with its levels divided by `unit`."""
        return replace(self, weights=FactorizedCategorical(self.weights.levels / unit, self.weights.q))

    def latent_moments(self, phi: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean ``φᵀs`` and variance ``Σ_j φ_j² Var w_j`` of f* for rows of Φ, in one pass; (n_rows,) each."""
        mean, variance = np.empty(len(phi)), np.empty(len(phi))
        _core.row_moments(phi, self.mean, self.variance, mean, variance, n_threads)
        return mean, variance

    def latent_cumulant(self, phi: FloatArray, order: int) -> FloatArray:
        """``κ_k(f*) = Σ_j φ_j^k κ_k(w_j)``, order 1 to 4; (n_rows,)."""
        return np.asarray(product(phi**order, self.weights.cumulant(order)))

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights of Φ, (n_samples, n_weights)."""
        return self.weights.sample(n_samples, rng)


def _divergences(q: FloatArray, logits: FloatArray) -> FloatArray:
    """KL(q ‖ softmax(logits)) over the last axis; logits are -inf only where q is zero."""
    used = np.where(q > 0.0, logits, 0.0)
    return np.asarray((xlogy(q, q) - q * used).sum(axis=-1) + logsumexp(logits, axis=-1))


@dataclass(frozen=True)
class MeanFieldRegression:
    """The model whose ELBO is Theorem 1: y = Φw + ε with discrete weights and a discrete noise variance."""

    statistics: TargetStatistics  # sums over the rows
    levels: FloatArray  # (n_weights or 1, n_levels): values that a weight can take
    log_prior: FloatArray  # (n_weights or 1, n_levels): log masses of the prior on the levels
    noise: NoiseGrid  # noise levels and their prior

    @classmethod
    def of(
        cls,
        statistics: TargetStatistics | GaussianStatistics,
        levels: ArrayLike,
        log_prior: ArrayLike,
        noise_levels: ArrayLike,
        log_noise_prior: ArrayLike | None = None,
    ) -> MeanFieldRegression:
        """Validate the arguments that `fit_mean_field` describes and return them as a model."""
        target = as_target_statistics(statistics)
        levels = as_levels(levels, target.n_weights)
        if (np.abs(levels).max(axis=1) > FARTHEST_LEVELS * np.ptp(levels, axis=1)).any() and levels.shape[1] > 1:
            raise ValueError(f"levels must lie within {FARTHEST_LEVELS:g} times their range of 0: subtract a constant")
        log_prior = as_log_prior(log_prior, levels, target.n_weights)
        return cls(target, levels, log_prior, NoiseGrid.of(noise_levels, log_noise_prior))

    def expected_squared_error(self, q: FloatArray) -> float:
        """``R = E_q ‖y − Φw‖²``, eq. 8."""
        weights = FactorizedCategorical(self.levels, q)
        return float(self.statistics.squared_error(weights.mean, weights.variance))

    def elbo(self, q: FloatArray, q_noise: FloatArray) -> float:
        """ELBO of a posterior q (n_weights, n_levels), q_noise (n_noise_levels,), term by term (Theorem 1)."""
        likelihood = self.noise.share(q_noise, self.expected_squared_error(q), self.statistics.n_samples)
        return float(likelihood - FactorizedCategorical(self.levels, q).kl(self.log_prior))

    def rise_of_one_update(self, q: FloatArray, q_noise: FloatArray) -> float:
        """Largest rise of the ELBO from one factor's exact update: its divergence from the optimum given the others."""
        weights, a = FactorizedCategorical(self.levels, q), self.statistics.A
        diagonal, tau = a.diagonal(), self.noise.precision(q_noise)
        pull = tau * (self.statistics.c - a @ weights.mean + diagonal * weights.mean)
        logits = self.log_prior + pull[:, None] * self.levels - 0.5 * tau * diagonal[:, None] * self.levels**2
        error = self.statistics.squared_error(weights.mean, weights.variance)
        noise_logits = self.noise.log_joint(float(error), self.statistics.n_samples)
        return float(max(_divergences(q, logits).max(), _divergences(q_noise, noise_logits)))

    def solver_arguments(self, a: NDArray[np.float32], log_prior: FloatArray, n_threads: int) -> dict[str, Any]:
        """Return what compiled solvers take, for A in single precision and log masses (..., n_levels)."""
        statistics, noise = self.statistics, self.noise
        return {
            "a": a,
            "a_exact": statistics.A,
            "diagonal": np.ascontiguousarray(statistics.A.diagonal()),
            "c": statistics.c,
            "yty": statistics.yty,
            "n_samples": statistics.n_samples,
            "levels": padded(self.levels),
            "log_prior": padded(log_prior, -np.inf),
            "prior_precision": self.prior_precision(),
            "noise_levels": noise.levels,
            "noise_log_prior": noise.log_prior,
            "n_threads": n_threads,
        }

    def solver(self, n_threads: int) -> _core.MeanField:
        """Return the compiled solver of this problem, at no particular state."""
        a = in_single_precision(self.statistics.A)
        return _core.MeanField(**self.solver_arguments(a, self.log_prior, n_threads))

    def prior_precision(self) -> FloatArray:
        """``1 / Var_p(w_j)``, (n_weights,)."""
        shape = np.broadcast_shapes(self.levels.shape, self.log_prior.shape)
        mass = np.exp(np.broadcast_to(self.log_prior, shape))
        variance = FactorizedCategorical(self.levels, mass / mass.sum(axis=1, keepdims=True)).variance
        smallest = 1e-12 * np.ptp(self.levels) ** 2 or 1.0  # a prior on one level only
        return np.ascontiguousarray(np.broadcast_to(1.0 / np.maximum(variance, smallest), self.statistics.n_weights))


def fit_mean_field(
    statistics: TargetStatistics | GaussianStatistics,
    levels: ArrayLike,
    log_prior: ArrayLike,
    noise_levels: ArrayLike,
    log_noise_prior: ArrayLike | None = None,
    *,
    optimizer: str = "pipeline",
    start: MeanFieldPosterior | None = None,
    max_iter: int = 1000,
    n_threads: int | None = None,
) -> MeanFieldPosterior:
    """Fit the factorised posterior from statistics alone.

    Parameters
    ----------
    statistics : GaussianStatistics or TargetStatistics
        Of one target; of several, ``statistics.target(k)``.
    levels : array_like of shape (n_levels,) or (n_weights, n_levels)
        Values that a weight can take.
    log_prior : array_like of shape (n_levels,) or (n_weights, n_levels)
        Log masses of the levels; -inf forbids one.
    noise_levels : array_like of shape (n_noise_levels,)
        Noise variances, positive and ascending; one level fixes the noise.
    log_noise_prior : array_like of shape (n_noise_levels,), optional
        Log masses; uniform by default.
    optimizer : str, default="pipeline"
        ``"pipeline"`` (default): lattice start, coordinate ascent, and Newton steps unless levels are much coarser than
        the posterior; few weights on coarse levels that leave much of the targets unexplained rise from the optimum of
        L-BFGS, too. ``"lbfgs"``: the published method, a baseline.
    start : MeanFieldPosterior, optional
        Warm start on the same levels.
    max_iter : int, default=1000
        Largest number of iterations of any one stage.
    n_threads : int, optional
        Number of threads; results have the same bits for any.

    Returns
    -------
    MeanFieldPosterior
        The posterior.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.
    numpy.linalg.LinAlgError
        When A is not positive semi-definite to single precision.

    Warns
    -----
    NoiseGridWarning
        When the noise posterior piles up at an edge of its grid.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianPrior, GaussianStatistics, evenly_spaced_levels, fit_mean_field
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((200, 3))
    >>> y = phi @ [1.0, 0.0, -2.0] + 0.1 * rng.standard_normal(200)
    >>> levels = evenly_spaced_levels(7, 3.0)
    >>> posterior = fit_mean_field(
    ...     GaussianStatistics.from_arrays(phi, y), levels, GaussianPrior().log_mass(levels), [0.001, 0.01, 0.1])
    >>> posterior.mean.round(3).tolist(), posterior.converged
    ([1.0, 0.0, -2.0], True)
    """
    model = MeanFieldRegression.of(statistics, levels, log_prior, noise_levels, log_noise_prior)
    as_choice(optimizer, "optimizer", OPTIMIZERS)
    as_count(max_iter, "max_iter")
    threads = resolve_n_threads(n_threads)
    posterior = fit_regression(model, optimizer=optimizer, start=start, max_iter=max_iter, n_threads=threads)
    warn_at_edge(posterior.noise)
    return posterior


def fit_regression(
    model: MeanFieldRegression,
    *,
    optimizer: str = "pipeline",
    start: MeanFieldPosterior | None = None,
    max_iter: int = 1000,
    n_threads: int = 1,
) -> MeanFieldPosterior:
    """Fit a validated model; parameters as in `fit_mean_field`."""
    levels = model.levels
    solver = model.solver(n_threads)
    if optimizer == "lbfgs":
        weights, q_noise, outcome = _fit_logits(model, solver, max_iter)
        elbo = model.elbo(weights.q, q_noise)
        left = model.rise_of_one_update(weights.q, q_noise)  # far from it, gradients through a softmax vanish too
        outcome = replace(outcome, converged=outcome.converged and left <= RELATIVE_RISE * (abs(elbo) + 1.0))
    else:
        if start is None:
            solver.set_noise(model.noise.middle())
        else:
            _warm_start(model, solver, start)
        sums, precision = model.statistics, model.prior_precision()
        problem = QuadraticProblem(solver.a, sums.A, sums.c, precision, levels, max_iter, n_threads)
        relaxed = partial(_naturals_of_logits, model, solver, max_iter)
        outcome = run(solver, problem, warm=start is not None, relaxed=relaxed)
        weights = FactorizedCategorical(levels, np.ascontiguousarray(solver.probabilities()[:, : levels.shape[1]]))
        elbo, q_noise = solver.elbo(), solver.q_noise
    return MeanFieldPosterior(weights, model.noise.posterior(q_noise), model.log_prior, outcome.at(elbo))


def _warm_start(model: MeanFieldRegression, solver: _core.MeanField, start: MeanFieldPosterior) -> None:
    """Put the solver where each weight's mean is the old one's, at the old noise level."""
    shape = (model.statistics.n_weights, model.levels.shape[1])
    if start.q.shape != shape:
        raise ValueError(f"start must have probabilities of shape {shape}, got {start.q.shape}")
    nearest = np.abs(np.log(model.noise.levels * start.noise.precision)).argmin()
    solver.set_noise(np.eye(model.noise.n_levels)[nearest])
    precision = solver.tau * model.statistics.A.diagonal() + model.prior_precision()
    solver.start_from_naturals(start.mean * precision, 0.5 * solver.tau * model.statistics.A.diagonal())


def _naturals_of_logits(model: MeanFieldRegression, solver: _core.MeanField, max_iter: int) -> Naturals | None:
    """Natural parameters at the optimum of L-BFGS on the logits, if it is higher than where the solver stands.

    It is looked for where the noise leaves much of the targets unexplained; elsewhere lattices find good optima.
    """
    error = model.statistics.squared_error(solver.mean, solver.second_moment - solver.mean**2)
    explained = solver.tau * error <= LARGE_MISFIT * model.statistics.n_samples
    if explained or not (np.isfinite(model.log_prior).all() and np.isfinite(model.noise.log_prior).all()):
        return None
    weights, q_noise, outcome = _fit_logits(model, solver, max_iter)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if model.elbo(weights.q, q_noise) <= solver.elbo():
        return None
    tau, a = model.noise.precision(q_noise), model.statistics.A
    pull = model.statistics.c - a @ weights.mean + a.diagonal() * weights.mean
    return Naturals(tau * pull, 0.5 * tau * a.diagonal(), q_noise)


def _fit_logits(
    model: MeanFieldRegression, solver: _core.MeanField, max_iter: int
) -> tuple[FactorizedCategorical, FloatArray, Outcome]:
    shape = (model.statistics.n_weights, model.levels.shape[1])
    for name, start in (("log_prior", model.log_prior), ("log_noise_prior", model.noise.log_prior)):
        if not np.isfinite(start).all():
            raise ValueError(f"{name} must be finite for optimizer='lbfgs', which starts from it")
    logits = np.ascontiguousarray(np.broadcast_to(model.log_prior, shape))
    logits, noise_logits, outcome = lbfgs_on_logits(solver, shape[1], logits, model.noise.log_prior, max_iter)
    q_noise = np.exp(noise_logits - logsumexp(noise_logits))
    return FactorizedCategorical.from_logits(model.levels, logits), q_noise, outcome
