"""Training of quadratic networks: several starts in rounds, each of which drops the weaker half."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect._core import LEVEL_PADDING
from pydirect._threads import for_each, resolve_n_threads
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_flag,
    as_float_array,
    as_generator,
    as_number,
    as_sample_weight,
)
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.levels import as_level_count
from pydirect.distributions.noise import NoiseGrid, warn_at_edge
from pydirect.distributions.priors import DensityPrior, Prior, as_prior
from pydirect.optimize.outcome import Outcome
from pydirect.quadratic.coreset import NetworkCoreset
from pydirect.quadratic.engines import NETWORK_ENGINES, NetworkShape, choose_engine, engines_in_memory, make_engine
from pydirect.quadratic.moments import n_moments
from pydirect.quadratic.network import NetworkPosterior
from pydirect.quadratic.rounds import Problem, Run, improve, place_levels_anew, start_at_random, start_from

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
    random_state: np.random.Generator | int | None = 0,
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
    prior = as_prior(prior)
    as_number(prior_scale, "prior_scale", above=0.0, at_most=LARGEST_PRIOR_SCALE)
    check_regrids(n_regrids, n_levels, prior)
    fit_prior_scale = as_flag(fit_prior_scale, "fit_prior_scale")
    as_choice(optimizer, "optimizer", OPTIMIZERS)
    n_threads = resolve_n_threads(n_threads)
    rng = as_generator(random_state)

    n_samples = float(len(x)) if weight is None else float(weight.sum())
    problem = Problem(shape, prior, n_samples, noise, optimizer, as_count(max_iter, "max_iter"), threading.Event())
    _check_memory(shape, n_levels, as_count(n_restarts, "n_restarts"), n_threads)
    scale = np.array([prior_scale / np.sqrt(fan_in) for _, fan_in in shape.layers])
    runs = [start_at_random(problem, scale, n_levels, rng) for _ in range(n_restarts)]
    if start is not None:
        runs.insert(0, start_from(problem, start, n_levels))

    engine, rows = _prepare(engine, shape, x, y, weight)
    kind = "datum" if engine == "coreset" else engine
    n_workers = min(n_threads, len(runs), engines_in_memory(kind, shape, len(rows[0])))
    engines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(n_workers):
        engines.put(make_engine(kind, shape, *rows))

    best, finished = runs[0], 0  # of the last round in which any run was trained
    total = sum(_survivors(len(runs), k) for k in range(n_regrids + 1))
    try:
        for k in range(n_regrids + 1):
            if k > 0:
                runs = sorted(runs, key=lambda run: -run.elbo)[: _survivors(len(runs), 1)]
                runs = [place_levels_anew(problem, run, fit_prior_scale) for run in runs]
            inner = max(1, n_threads // min(n_workers, len(runs)))
            runs = for_each(partial(improve, problem, engines, inner), runs, n_workers, problem.stop)
            best = max((run for run in runs if run.elbo > -np.inf), key=lambda run: run.elbo, default=best)
            finished += len(runs)
            if progress is not None:
                progress(finished, total, best.elbo)
            if problem.stop.is_set():
                break
    except KeyboardInterrupt:
        problem.stop.set()
    if best.elbo == -np.inf and not problem.stop.is_set():
        raise ValueError(
            "x and y must be of order one, got magnitudes up to "
            f"{np.abs(x).max(initial=0.0):.3g} and {np.abs(y).max():.3g}, where the ELBO is not finite"
        )
    return _posterior(problem, best, engines.get(), engine)


def check_regrids(n_regrids: int, n_levels: int, prior: Prior) -> None:
    """Raise if levels cannot be placed anew."""
    as_level_count(n_levels)
    if as_count(n_regrids, "n_regrids", 0) == 0:
        return
    if not isinstance(prior, DensityPrior):
        raise ValueError("prior must have a density for levels to be placed anew; use n_regrids=0 for one with atoms")
    if n_levels < FEWEST_LEVELS:
        raise ValueError(
            f"n_levels must be at least {FEWEST_LEVELS} for levels to be placed anew, got {n_levels}; use n_regrids=0"
        )


def _check_memory(shape: NetworkShape, n_levels: int, n_runs: int, n_threads: int) -> None:
    """Raise if the tables of the weights would not fit into memory."""
    table = 8.0 * shape.n_weights * (n_levels + -n_levels % LEVEL_PADDING)
    n_bytes = table * (TABLES_OF_A_RUN * n_runs + TABLES_OF_AN_OPTIMISER * min(n_threads, n_runs))
    if n_bytes > MAX_TABLE_BYTES:
        raise ValueError(
            f"hidden_layer_sizes must be smaller: {shape.n_weights} weights of {n_levels} levels, {n_runs} starts on "
            f"{n_threads} threads, would take {n_bytes / 2**30:.3g} GiB, against a limit of "
            f"{MAX_TABLE_BYTES / 2**30:.3g} GiB"
        )


def _prepare(
    engine: str, shape: NetworkShape, x: FloatArray, y: FloatArray, weight: FloatArray | None
) -> tuple[str, tuple[FloatArray, FloatArray, FloatArray | None]]:
    """Return the engine to use and its rows."""
    as_choice(engine, "engine", NETWORK_ENGINES)
    if weight is not None:
        used = weight > 0
        x, y, weight = np.ascontiguousarray(x[used]), y[used], weight[used]
    if engine == "coreset" and shape.depth > 2:
        raise ValueError(f"engine must serve {shape.depth} hidden layers, got 'coreset'")
    if shape.n_inputs > 0 and (engine == "coreset" or (engine == "auto" and _coreset_pays(shape, len(x)))):
        coreset = NetworkCoreset.from_data(x, y, shape.depth, shape.bias, sample_weight=weight)
        return "coreset", (coreset.x, coreset.y, coreset.weight)
    return choose_engine(shape, len(x), "auto" if engine == "coreset" else engine), (x, y, weight)


def _coreset_pays(shape: NetworkShape, n_rows: int) -> bool:
    """Whether fewer rows in every step are worth the construction of a coreset."""
    size = n_moments(shape.n_inputs, shape.depth, shape.bias)
    return size <= LARGEST_CORESET and n_rows >= CORESET_GAIN * size


def _posterior(problem: Problem, run: Run, engine: Any, kind: str) -> NetworkPosterior:
    model, interrupted = problem.model(engine, run, n_threads=1), problem.stop.is_set()
    weights = FactorizedCategorical(run.levels, run.q)
    noise = model.noise_posterior(model.expected_squared_error(weights.q))[1]
    elbo = model.elbo(weights.q, noise.q)
    warn_at_edge(noise)
    trace = np.concatenate(run.trace or (np.array([elbo]),))
    trace[-1] = elbo
    return NetworkPosterior(
        weights,
        noise,
        run.log_prior,
        Outcome(elbo, trace, len(trace), converged=run.converged and not interrupted, interrupted=interrupted),
        shape=problem.shape,
        prior_scale=run.scale,
        engine=kind,
    )


def _survivors(n_runs: int, n_rounds: int) -> int:
    """Return the number of runs left after rounds that drop the weaker half each."""
    for _ in range(n_rounds):
        n_runs = (n_runs + 1) // 2
    return n_runs
