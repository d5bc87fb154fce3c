"""Training of quadratic networks: several starts in rounds, each of which drops the weaker half."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from pydirect._core import LEVEL_PADDING
from pydirect._threads import for_each, raise_if_set, resolve_n_threads
from pydirect._validation import (
    FloatArray,
    RandomState,
    as_choice,
    as_count,
    as_flag,
    as_float_array,
    as_generator,
    as_instance,
    as_number,
    as_sample_weight,
)
from pydirect.distributions.categorical import FactorizedCategorical, as_level_count, evenly_spaced_levels, padded
from pydirect.distributions.noise import NoiseGrid, warn_at_edge
from pydirect.distributions.priors import DensityPrior, Prior, as_prior, grid_log_mass
from pydirect.optimize.gradient import lbfgs
from pydirect.optimize.outcome import Outcome
from pydirect.quadratic.coreset import NetworkCoreset, n_moments
from pydirect.quadratic.network import (
    NETWORK_ENGINES,
    NetworkPosterior,
    NetworkShape,
    QuadraticNetwork,
    choose_engine,
    engines_in_memory,
    make_engine,
)

# Range of the levels: in the first round in standard deviations of the prior, later of the posterior.
FIRST_REACH, LATER_REACH = 2.0, 3.0
# Starts: posterior means and widths in standard deviations of the prior.
START_SPREAD, START_WIDTH = 0.5, 0.3
# Logits of a start that has probabilities of zero.
LOWEST_LOGIT = -40.0
# Empirical Bayes looks for prior scales around this at least.
SMALLEST_SCALE = 1e-8
# An iteration that raises the ELBO by less than this fraction of it is the last.
RELATIVE_RISE = 1e-6
OPTIMIZERS = ("lbfgs", "coordinate_ascent")
# The spacing of fewer levels is too coarse to estimate a posterior's spread.
FEWEST_LEVELS = 5
LARGEST_PRIOR_SCALE = 1e6
# Number of tables (n_weights, n_levels) held by a run and by an optimiser, and the limit on their total size.
TABLES_OF_A_RUN, TABLES_OF_AN_OPTIMISER = 5, 32
MAX_TABLE_BYTES = 4 * 2**30
# engine="auto" builds a coreset of at most this many rows from data of at least this many times as many.
LARGEST_CORESET, CORESET_GAIN = 600, 10
# Noise variances, relative to targets of variance one.
NOISE_LEVELS = np.logspace(-7, 1, 97)


@dataclass(frozen=True)
class Run:
    """One start and its current state."""

    scale: FloatArray  # prior standard deviation of each layer
    levels: FloatArray  # (n_weights, n_levels)
    log_prior: FloatArray
    logits: FloatArray
    # Its ELBO is of this round; −inf before it was trained.
    outcome: Outcome = field(default_factory=lambda: Outcome(-np.inf))

    @property
    def q(self) -> FloatArray:
        """Probabilities of the levels, (n_weights, n_levels)."""
        return FactorizedCategorical.from_logits(self.levels, self.logits).q


@dataclass(frozen=True)
class QuadraticOptions:
    """Options of `fit_quadratic_network` that are parameters of the estimator too; raises unless they go together."""

    prior: Prior | str
    prior_scale: float
    fit_prior_scale: bool
    n_levels: int
    n_restarts: int
    n_regrids: int
    optimizer: str
    engine: str
    max_iter: int

    def __post_init__(self) -> None:
        as_number(self.prior_scale, "prior_scale", above=0.0, at_most=LARGEST_PRIOR_SCALE)
        as_flag(self.fit_prior_scale, "fit_prior_scale")
        as_choice(self.optimizer, "optimizer", OPTIMIZERS)
        as_choice(self.engine, "engine", NETWORK_ENGINES)
        as_count(self.n_restarts, "n_restarts")
        as_count(self.max_iter, "max_iter")
        as_level_count(self.n_levels)
        has_density, anew = isinstance(as_prior(self.prior), DensityPrior), as_count(self.n_regrids, "n_regrids", 0) > 0
        wanted = "for levels to be placed anew"
        if anew and not has_density:
            raise ValueError(f"prior must have a density {wanted}; use n_regrids=0 for one with atoms")
        if anew and self.n_levels < FEWEST_LEVELS:
            raise ValueError(f"n_levels must be at least {FEWEST_LEVELS} {wanted}, got {self.n_levels}; or n_regrids=0")


@dataclass(frozen=True)
class Problem:
    """What all runs share."""

    shape: NetworkShape
    prior: Prior
    n_samples: float
    noise: NoiseGrid
    options: QuadraticOptions
    stop: threading.Event  # set when the user interrupts

    def model(self, engine: Any, run: Run, n_threads: int) -> QuadraticNetwork:
        """Return the model with the levels and priors of a run."""
        return QuadraticNetwork(self.shape, engine, self.n_samples, run.levels, run.log_prior, self.noise, n_threads)

    def by_layer(self, values: FloatArray) -> FloatArray:
        """Repeat the value of each layer over its weights, as a column."""
        return np.repeat(values, [part.stop - part.start for part in self.shape.slices])[:, None]


# --- starts


def start_at_random(problem: Problem, rng: np.random.Generator) -> Run:
    """Draw a start: levels shared by the weights of a layer, and for every weight a bump of q around a random mean."""
    n_levels = problem.options.n_levels
    scale = np.array([problem.options.prior_scale / np.sqrt(fan_in) for _, fan_in in problem.shape.layers])
    column = problem.by_layer(scale)
    unit = np.broadcast_to(evenly_spaced_levels(n_levels, FIRST_REACH), (problem.shape.n_weights, n_levels))
    means = START_SPREAD * rng.standard_normal((problem.shape.n_weights, 1))
    log_prior = np.ascontiguousarray(np.broadcast_to(problem.prior.log_mass(unit[0]), unit.shape))
    logits = np.where(np.isfinite(log_prior), -0.5 * ((unit - means) / START_WIDTH) ** 2, -np.inf)
    return Run(scale, unit * column, log_prior, logits)


def start_from(problem: Problem, start: NetworkPosterior) -> Run:
    """Start from an earlier posterior."""
    as_instance(start, "start", NetworkPosterior)
    n_levels = problem.options.n_levels
    if start.shape != problem.shape or start.q.shape[1] != n_levels:
        raise ValueError(f"start must have shape {problem.shape} and {n_levels} levels, got {start.shape}")
    logits = np.maximum(start.weights.logits, LOWEST_LOGIT)
    log_prior = np.ascontiguousarray(np.broadcast_to(start.log_prior, logits.shape))
    return Run(start.prior_scale, np.array(start.levels), log_prior, logits)


# --- rounds


def place_levels_anew(problem: Problem, run: Run) -> Run:
    """Place levels evenly around each weight's posterior, no closer than the old ones; masses density × spacing."""
    assert isinstance(problem.prior, DensityPrior)
    weights, scale = FactorizedCategorical(run.levels, run.q), run.scale
    spacing = np.ptp(run.levels, axis=1) / (run.levels.shape[1] - 1)
    spread = np.maximum(weights.std, 0.5 * spacing)[:, None]
    if problem.options.fit_prior_scale:
        scale = np.array([_prior_scale(problem.prior, weights, part) for part in problem.shape.slices])
    unit = np.linspace(-LATER_REACH, LATER_REACH, run.levels.shape[1])
    column = problem.by_layer(scale)
    levels = weights.mean[:, None] + spread * unit
    log_prior = grid_log_mass(problem.prior, levels / column, spread * (unit[1] - unit[0]) / column)
    logits = np.broadcast_to(-0.5 * unit**2, levels.shape)
    return Run(scale, levels, log_prior, logits, Outcome(-np.inf, run.outcome.trace))


def _prior_scale(prior: DensityPrior, weights: FactorizedCategorical, layer: slice) -> float:
    """Return the scale s of a layer's prior that maximises ``Σ_j E log p(w_j / s) − log s`` (empirical Bayes)."""
    levels, q = weights.levels[layer], weights.q[layer]
    root_mean_square = float(np.sqrt(np.mean(weights.variance[layer] + weights.mean[layer] ** 2)))

    def loss(log_scale: float) -> float:
        return float(log_scale * len(q) - np.sum(q * prior.log_density(levels * np.exp(-log_scale))))

    middle = np.log(max(root_mean_square, SMALLEST_SCALE))
    return float(np.exp(minimize_scalar(loss, bounds=(middle - 3, middle + 3), method="bounded").x))


def improve(problem: Problem, engines: queue.SimpleQueue[Any], n_threads: int, run: Run) -> Run:
    """Optimise one run for one round; after an interruption before the first step, return the run as it was."""
    if problem.stop.is_set():
        return run
    engine = engines.get()
    try:
        optimise = _by_lbfgs if problem.options.optimizer == "lbfgs" else _by_coordinates
        logits, outcome = optimise(problem, problem.model(engine, run, n_threads), run)
    finally:
        engines.put(engine)
    if outcome.interrupted:
        problem.stop.set()
    trace = outcome.trace[-max(outcome.n_iter, 1) :]
    if trace.size == 0 or not np.isfinite(trace[-1]):
        return run
    whole = np.append(run.outcome.trace, trace)
    return replace(run, logits=logits, outcome=Outcome(float(trace[-1]), whole, len(whole), outcome.converged))


def _by_lbfgs(problem: Problem, model: QuadraticNetwork, run: Run) -> tuple[FloatArray, Outcome]:
    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        raise_if_set(problem.stop)
        return model.elbo_and_gradient(theta)

    allowed = np.isfinite(run.log_prior)
    start = padded(np.where(allowed, run.logits, 0.0)).ravel()
    theta, outcome = lbfgs(objective, start, problem.options.max_iter, relative_rise=RELATIVE_RISE)
    logits = theta.reshape(problem.shape.n_weights, -1)[:, : run.levels.shape[1]]
    return np.where(allowed, logits, -np.inf), outcome


def _by_coordinates(problem: Problem, model: QuadraticNetwork, run: Run) -> tuple[FloatArray, Outcome]:
    """Exact coordinate ascent: R is linear in every q_k, and ``q_k ∝ p_k exp(−½ τ ∂R/∂q_k)`` maximises the ELBO."""
    q, outcome, trace = run.q, Outcome(), []
    try:
        _, noise = model.noise_posterior(model.expected_squared_error(q))
        for outcome.n_iter in range(1, problem.options.max_iter + 1):
            error = model.sweep(q, noise.precision)
            fit, noise = model.noise_posterior(error)
            trace.append(fit - FactorizedCategorical(run.levels, q).kl(run.log_prior))
            if len(trace) > 1 and trace[-1] - trace[-2] <= RELATIVE_RISE * abs(trace[-1]):
                outcome.converged = True
                break
            raise_if_set(problem.stop)
    except KeyboardInterrupt:
        outcome.interrupted, outcome.converged = True, False
    outcome.trace = np.array(trace)
    with np.errstate(divide="ignore"):
        return np.log(q), outcome


def fit_quadratic_network(
    x: ArrayLike,
    y: ArrayLike,
    hidden_layer_sizes: int | Sequence[int] = (16, 8),
    *,
    sample_weight: ArrayLike | None = None,
    bias: bool = True,
    prior: Prior | str = "gaussian",
    prior_scale: float = 1.5,
    fit_prior_scale: bool = True,
    n_levels: int = 15,
    noise_levels: ArrayLike = NOISE_LEVELS,
    n_restarts: int = 4,
    n_regrids: int = 3,
    optimizer: str = "lbfgs",
    engine: str = "auto",
    max_iter: int = 150,
    start: NetworkPosterior | None = None,
    random_state: RandomState = 0,
    n_threads: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> NetworkPosterior:
    """Fit a Bayesian network with quadratic activations and discrete weights by exact variational inference.

    Parameters
    ----------
    x : array_like of shape (n_samples, n_inputs)
        Of order one: standardised and halved.
    y : array_like of shape (n_samples,)
        Of order one.
    hidden_layer_sizes : int or sequence of int, default=(16, 8)
        Numbers of hidden units, layer by layer.
    sample_weight : array_like of shape (n_samples,), optional
        How many times each row counts.
    bias : bool, default=True
        Give every layer one more input, fixed to one.
    prior : str or Prior, default="gaussian"
        Of every weight, in units of its prior standard deviation. It must have a density unless ``n_regrids=0``.
    prior_scale : float, default=1.5
        Prior standard deviation of a weight times the square root of the number of inputs of its layer.
    fit_prior_scale : bool, default=True
        Choose each layer's prior standard deviation by empirical Bayes, whenever levels are placed anew.
    n_levels : int, default=15
        Number of levels of a weight.
    noise_levels : array_like of shape (n_noise_levels,), default=NOISE_LEVELS
        Grid of noise variances, ascending, by default 97 from 1e-7 to 10; its posterior has a closed form at each step.
    n_restarts : int, default=4
        Number of starts, the best of which is kept.
    n_regrids : int, default=3
        How many times the levels of every weight are placed anew around its posterior; with 0, all weights of a layer
        share their levels, which suits small devices. Every round has its own prior: ELBOs compare the runs of one
        round, and the best run of the last one is kept even if an earlier ELBO was higher.
    optimizer : {"lbfgs", "coordinate_ascent"}, default="lbfgs"
        Quasi-Newton steps in all logits, or one weight after the other in closed form.
    engine : {"auto", "datum", "tensor", "coreset", "monomial"}, default="auto"
        How the expected squared error is computed; ``"coreset"`` is ``"datum"`` on a few weighted rows with the same
        error as all. ELBO and gradient are the same for all engines up to rounding, which training may amplify.
    max_iter : int, default=150
        Maximum number of iterations or sweeps per round.
    start : NetworkPosterior, optional
        An additional start, of the same shape and number of levels.
    random_state : numpy.random.Generator, int or None, default=0
        Seed of the starts.
    n_threads : int, optional
        Number of threads; results have the same bits for any.
    progress : callable, optional
        Called with the number of finished rounds, their total and the best ELBO so far.

    Returns
    -------
    NetworkPosterior
        The posterior of the best start.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range, the network is too large for the engine, or the data are so
        large that the ELBO is not finite.

    Warns
    -----
    NoiseGridWarning
        When the noise posterior piles up at an edge of its grid.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import fit_quadratic_network
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (200, 2))
    >>> y = x[:, 0] * x[:, 1] + 0.05 * rng.standard_normal(200)
    >>> posterior = fit_quadratic_network(x, y, (4,))
    >>> posterior.latent_mean(np.array([[0.6, 0.5], [0.6, -0.5]])).round(1).tolist()
    [0.3, -0.3]
    """
    x = as_float_array(x, "x", ("n_samples", np.shape(x)[1] if np.ndim(x) == 2 else "n_inputs"))
    y = as_float_array(y, "y", (len(x),))
    weight = as_sample_weight(sample_weight, len(x))
    shape = NetworkShape(x.shape[1], hidden_layer_sizes, bias)
    noise = NoiseGrid.of(noise_levels)
    options = QuadraticOptions(
        prior, prior_scale, fit_prior_scale, n_levels, n_restarts, n_regrids, optimizer, engine, max_iter
    )
    n_threads, rng = resolve_n_threads(n_threads), as_generator(random_state)
    n_samples = float(len(x)) if weight is None else float(weight.sum())
    problem = Problem(shape, as_prior(prior), n_samples, noise, options, threading.Event())
    _check_memory(shape, n_levels, n_restarts, n_threads)
    runs = [start_at_random(problem, rng) for _ in range(n_restarts)]
    if start is not None:
        runs.insert(0, start_from(problem, start))

    engine, rows = _prepare(engine, shape, x, y, weight)
    kind = "datum" if engine == "coreset" else engine
    n_workers = min(n_threads, len(runs), engines_in_memory(kind, shape, len(rows[0])))
    engines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(n_workers):
        engines.put(make_engine(kind, shape, *rows))

    # Each round drops the weaker half of the one before.
    sizes = [-(-len(runs) // 2**k) for k in range(n_regrids + 1)]
    best = runs[0]  # of the last round in which any run was trained
    try:
        for k, size in enumerate(sizes):
            if k > 0:
                runs = sorted(runs, key=lambda run: -run.outcome.elbo)[:size]
                runs = [place_levels_anew(problem, run) for run in runs]
            inner = max(1, n_threads // min(n_workers, size))
            runs = for_each(partial(improve, problem, engines, inner), runs, n_workers, problem.stop)
            trained = [run for run in runs if run.outcome.elbo > -np.inf]
            best = max(trained, key=lambda run: run.outcome.elbo, default=best)
            if progress is not None:
                progress(sum(sizes[: k + 1]), sum(sizes), best.outcome.elbo)
            if problem.stop.is_set():
                break
    except KeyboardInterrupt:
        problem.stop.set()
    if best.outcome.elbo == -np.inf and not problem.stop.is_set():
        size_of = f"{np.abs(x).max(initial=0.0):.3g} and {np.abs(y).max():.3g}, where the ELBO is not finite"
        raise ValueError(f"x and y must be of order one, got magnitudes up to {size_of}")
    return _posterior(problem, best, engines.get(), engine)


def _check_memory(shape: NetworkShape, n_levels: int, n_runs: int, n_threads: int) -> None:
    """Raise if the tables of the weights would not fit into memory."""
    table = 8.0 * shape.n_weights * (n_levels + -n_levels % LEVEL_PADDING)
    n_bytes = table * (TABLES_OF_A_RUN * n_runs + TABLES_OF_AN_OPTIMISER * min(n_threads, n_runs))
    if n_bytes > MAX_TABLE_BYTES:
        raise ValueError(f"hidden_layer_sizes must be smaller: {n_bytes:.3g} bytes are above {MAX_TABLE_BYTES:.3g}")


def _prepare(
    engine: str, shape: NetworkShape, x: FloatArray, y: FloatArray, weight: FloatArray | None
) -> tuple[str, tuple[FloatArray, FloatArray, FloatArray | None]]:
    """Return the engine to use and its rows."""
    if weight is not None:
        used = weight > 0
        x, y, weight = np.ascontiguousarray(x[used]), y[used], weight[used]
    if engine == "coreset" and shape.depth > 2:
        raise ValueError(f"engine must serve {shape.depth} hidden layers, got 'coreset'")
    if engine in ("auto", "coreset") and shape.n_inputs > 0:
        size = n_moments(shape.n_inputs, shape.depth, shape.bias)
        # Fewer rows in every step may be worth the construction of a coreset.
        if engine == "coreset" or (size <= LARGEST_CORESET and len(x) >= CORESET_GAIN * size):
            coreset = NetworkCoreset.from_data(x, y, shape.depth, shape.bias, sample_weight=weight)
            return "coreset", (coreset.x, coreset.y, coreset.weight)
    return choose_engine(shape, len(x), "auto" if engine == "coreset" else engine), (x, y, weight)


def _posterior(problem: Problem, run: Run, engine: Any, kind: str) -> NetworkPosterior:
    model, weights = problem.model(engine, run, n_threads=1), FactorizedCategorical(run.levels, run.q)
    noise = model.noise_posterior(model.expected_squared_error(weights.q))[1]
    elbo = model.elbo(weights.q, noise.q)
    warn_at_edge(noise)
    trace = np.append(run.outcome.trace[:-1], elbo)
    outcome = replace(run.outcome, elbo=elbo, trace=trace, n_iter=len(trace))
    outcome = outcome.stopped() if problem.stop.is_set() else outcome
    return NetworkPosterior(
        weights, noise, run.log_prior, outcome, shape=problem.shape, prior_scale=run.scale, engine=kind
    )
