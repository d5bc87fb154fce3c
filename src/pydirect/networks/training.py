"""Training of Gaussian networks: Adam, or L-BFGS, on a deterministic bound; stochastic baselines by Adam alone.

The objective F = λ KL/N − mean expected log-likelihood (Wu et al. 2019, section 4) is per row and of order one; the
optimisers climb −F. λ is one at the end, and may be zero at first and rise after (warm-up and ramp), so that a network
finds the data before its prior prunes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import for_each, resolve_n_threads, single_blas_thread
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_float_array,
    as_generator,
    as_instance,
    as_number,
    as_sample_weight,
)
from pydirect.networks.base import CLASSIFICATIONS, VariationalNetwork
from pydirect.optimize.gradient import AdamSchedule, adam, lbfgs
from pydirect.optimize.outcome import Outcome

NETWORK_OPTIMIZERS = ("adam", "adam+lbfgs", "lbfgs")
STOCHASTIC = ("mcvi", "rmcvi")
_ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda a: np.maximum(a, 0.0),
    "heaviside": lambda a: (a > 0).astype(np.float64),
}
# Numbers held at a time while sampled networks run.
FORWARD_NUMBERS = 2**19
# Log standard deviations stay within these: line searches without bounds overflow.
LOG_SIGMA_BOUNDS = (-12.0, 3.0)
# What an optimiser is told where the objective overflows.
WORST = -1e10
# An iteration of L-BFGS that raises the bound a row by less than this is the last.
RELATIVE_RISE = 1e-7
BATCH_SIZE = 100
# Fraction of Adam's steps by whose end the KL term has its full weight.
MOST_WARMUP = 0.9
# Steps of Adam unless asked for: so many, or so many passes over the rows if that is more.
LEAST_STEPS, LEAST_PASSES = 3000, 100
N_CHECKS = 50
# Rows that count less on average leave a KL term whose square overflows.
SMALLEST_MEAN_WEIGHT = 1e-100


def check_inference(inference: str, inferences: Iterable[str], activation: str) -> None:
    """Raise for an unknown objective, and for one that the activation has no gradient of."""
    as_choice(inference, "inference", tuple(inferences))
    if activation == "heaviside" and inference != "dvi":
        raise ValueError(f"inference must be 'dvi' for activation='heaviside', got {inference!r}")


@dataclass(frozen=True)
class TrainingSchedule:
    """How a network is trained.

    Parameters
    ----------
    optimizer : {"adam", "adam+lbfgs", "lbfgs"}
        L-BFGS takes the bound to its optimum. Held-out rows seldom gain by that, and lose much where the noise depends
        on the inputs: small batches of a moderate number of steps end where the bound is flat.
    n_steps : int, optional
        Of Adam. By default `LEAST_STEPS`, or what `LEAST_PASSES` passes over the rows take if that is more.
    learning_rate : float
        First step size of Adam; it falls to zero along half a cosine.
    batch_size : int or None
        Rows of a step of Adam; None for all of them.
    kl_warmup, kl_ramp : float
        Fraction of Adam's steps without the KL term, and after these of steps in which its weight rises to one: at most
        0.9 together, for the bound is followed where the weight is one.
    max_iter : int
        Of L-BFGS. After Adam it serves the best of several starts alone.
    """

    optimizer: str = "adam"
    n_steps: int | None = None
    learning_rate: float = 0.01
    batch_size: int | None = BATCH_SIZE
    kl_warmup: float = 0.0
    kl_ramp: float = 0.0
    max_iter: int = 2000

    def __post_init__(self) -> None:
        as_choice(self.optimizer, "optimizer", NETWORK_OPTIMIZERS)
        if self.n_steps is not None:
            as_count(self.n_steps, "n_steps")
        as_number(self.learning_rate, "learning_rate", above=0.0)
        if self.batch_size is not None:
            as_count(self.batch_size, "batch_size")
        as_number(self.kl_warmup, "kl_warmup", at_least=0.0, at_most=MOST_WARMUP)
        as_number(self.kl_ramp, "kl_ramp", at_least=0.0)
        if self.kl_warmup + self.kl_ramp > MOST_WARMUP + 1e-9:
            given = f"{self.kl_ramp} and kl_warmup={self.kl_warmup}"
            raise ValueError(f"kl_ramp must be at most {MOST_WARMUP} less kl_warmup, got {given}")
        as_count(self.max_iter, "max_iter")
        if self.optimizer == "lbfgs":
            for name, unused in (("kl_warmup", 0.0), ("kl_ramp", 0.0)):
                if getattr(self, name) != unused:
                    raise ValueError(f"{name} must be {unused} for optimizer='lbfgs', got {getattr(self, name)}")

    def stages(self, inference: str) -> tuple[str, ...]:
        """Return the optimisers in turn."""
        if inference in STOCHASTIC and self.optimizer != "adam":
            raise ValueError(f"optimizer must be 'adam' for inference={inference!r}, got {self.optimizer!r}")
        return tuple(self.optimizer.split("+"))

    def steps(self, n_rows: int) -> int:
        """Return Adam's steps for so many rows."""
        if self.n_steps is not None:
            return self.n_steps
        return max(LEAST_STEPS, LEAST_PASSES * self.n_batches(n_rows))

    def n_batches(self, n_rows: int) -> int:
        """Return the batches of a pass over so many rows."""
        return max(1, n_rows // (self.batch_size or n_rows))

    def kl_weight(self, progress: float) -> float:
        """λ after a fraction of Adam's steps."""
        if progress < self.kl_warmup:
            return 0.0
        return min(1.0, (progress - self.kl_warmup) / self.kl_ramp) if self.kl_ramp > 0 else 1.0


@dataclass
class TrainedNetwork:
    """A trained network and how its training went.

    Parameters
    ----------
    network : VariationalNetwork
    theta : ndarray of shape (n_parameters,)
    elbo : float
        Of all rows together, in nats. For fixed priors a bound of the log evidence; under empirical Bayes with the log
        density of the prior variances.
    elbo_trace : ndarray of shape (n_checks,)
        After each check of Adam and each evaluation of L-BFGS.
    n_iter : int
        Steps of Adam and iterations of L-BFGS.
    converged, interrupted : bool
    """

    network: VariationalNetwork
    theta: FloatArray
    elbo: float
    elbo_trace: FloatArray
    n_iter: int
    converged: bool
    interrupted: bool

    @property
    def log_noise(self) -> FloatArray:
        """Log noise variances of the targets; homoscedastic only."""
        return self.theta[self.network.log_noise]

    @property
    def prior_variances(self) -> FloatArray:
        """Prior variance of the matrix and of the biases of each layer in turn."""
        return self.network.prior_variances(self.theta)

    def forward(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        """Run networks with given weights (n_samples, n_weights); outputs (n_rows, n_outputs, n_samples)."""
        network = self.network
        out = np.empty((len(x), network.n_outputs, len(weights)))
        size = max(1, FORWARD_NUMBERS // max(1, len(x) * max(network.hidden_layer_sizes)))
        for begin in range(0, len(weights), size):
            some = slice(begin, begin + size)
            out[:, :, some] = np.moveaxis(self._forward_some(weights[some], x), 0, -1)
        return out

    def _forward_some(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        """Return the outputs, (n_samples, n_rows, n_outputs)."""
        network, a, first = self.network, x, 0
        for layer, (n_in, n_out) in enumerate(network.layers):
            h = _ACTIVATIONS[network.activation](a) if layer > 0 else a
            matrix = weights[:, first : first + n_in * n_out].reshape(-1, n_in, n_out)
            first += n_in * n_out
            b = h @ matrix + weights[:, None, first : first + n_out]
            first += n_out
            skips = network.skip and n_in == n_out and 0 < layer < network.n_layers - 1
            a = a + b if skips else b
        return a


@dataclass(frozen=True)
class _Problem:
    """What every run shares."""

    network: VariationalNetwork
    x: FloatArray
    y: FloatArray
    weight: FloatArray
    inference: str
    n_draws: int
    schedule: TrainingSchedule
    stop: threading.Event  # set when the user interrupts

    @cached_property
    def total(self) -> float:
        return float(self.weight.sum())

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest values of theta: means are free."""
        low, high = np.full(self.network.n_parameters, -np.inf), np.full(self.network.n_parameters, np.inf)
        deviations = self.network.log_deviations
        low[deviations], high[deviations] = LOG_SIGMA_BOUNDS
        return low, high

    def heed_interruption(self) -> None:
        """End this run when the user has interrupted another one."""
        if self.stop.is_set():
            raise KeyboardInterrupt

    @property
    def objective(self) -> Callable[..., tuple[float, FloatArray]]:
        """F and its gradient, or an estimate of them."""
        evaluate: Callable[..., tuple[float, FloatArray]] = getattr(
            self.network, self.network.inferences[self.inference]
        )
        return evaluate

    def bound(
        self, theta: FloatArray, seed: int, n_threads: int, rows: Any = slice(None), kl_weight: float = 1.0
    ) -> tuple[float, FloatArray]:
        """−F and its gradient, estimated without bias from some of the rows."""
        weight = self.weight[rows]
        # The mean over a batch is weighted by its own total: brought to that of its share of the rows.
        share = float(weight.sum()) / self.total * (len(self.weight) / len(weight))
        if share == 0.0:
            return 0.0, np.zeros_like(theta)
        draws = {"n_draws": self.n_draws, "seed": seed} if self.inference in STOCHASTIC else {}
        value, gradient = self.objective(
            theta,
            self.x[rows],
            self.y[rows],
            sample_weight=weight,
            kl_weight=kl_weight,
            n_total=share * self.total,
            n_threads=n_threads,
            **draws,
        )
        if not np.isfinite(value):
            return WORST, np.zeros_like(theta)
        return -share * value, -share * gradient


def train_network(
    network: VariationalNetwork,
    x: ArrayLike,
    y: ArrayLike,
    *,
    inference: str,
    sample_weight: ArrayLike | None = None,
    n_draws: int = 10,
    schedule: TrainingSchedule | None = None,
    initial_scale: float = 0.05,
    n_restarts: int = 1,
    random_state: np.random.Generator | int | None = 0,
    n_threads: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> TrainedNetwork:
    """Train a network of any kind; parameters as for `fit_deterministic_network`, by one of its `inferences`."""
    x = as_float_array(x, "x", ("n_samples", network.n_inputs))
    single = network.n_targets == 1 or network.likelihood in CLASSIFICATIONS
    y = as_float_array(y, "y", (len(x),) if single else (len(x), network.n_targets))
    weight = as_sample_weight(sample_weight, len(x))
    weight = np.ones(len(x)) if weight is None else weight
    check_inference(inference, network.inferences, network.activation)
    schedule = TrainingSchedule() if schedule is None else schedule
    as_instance(schedule, "schedule", TrainingSchedule)
    schedule.stages(inference)
    as_number(initial_scale, "initial_scale", above=0.0)
    n_restarts = as_count(n_restarts, "n_restarts")
    n_threads = resolve_n_threads(n_threads)
    rng = as_generator(random_state)
    used = weight > 0
    mean_weight = float(weight[used].mean())
    if mean_weight < SMALLEST_MEAN_WEIGHT:
        raise ValueError(f"sample_weight must have a mean of at least {SMALLEST_MEAN_WEIGHT}, got {mean_weight}")
    # Starts are compared after Adam: L-BFGS takes the best one to rest, in the time that its share of all would take.
    best_alone = n_restarts > 1 and schedule.stages(inference) == ("adam", "lbfgs")
    problem = _Problem(
        network,
        np.ascontiguousarray(x[used]),
        np.ascontiguousarray(y[used]),
        weight[used],
        inference,
        as_count(n_draws, "n_draws"),
        replace(schedule, optimizer="adam") if best_alone else schedule,
        threading.Event(),
    )
    runs = [
        _Run(network.initial_parameters(generator, std_ratio=initial_scale), generator)
        for generator in rng.spawn(n_restarts)
    ]
    workers = min(n_threads, n_restarts)
    finished: list[float] = []

    def train(run: _Run) -> _Run:
        trained = _train(problem, run, max(1, n_threads // workers))
        finished.append(trained.bound)
        if progress is not None:
            progress(len(finished), n_restarts, max(finished) * problem.total)
        return trained

    with single_blas_thread():
        runs = for_each(train, runs, workers, problem.stop)
        best = max(runs, key=lambda run: run.bound)
        if best_alone and not problem.stop.is_set():
            rest = replace(problem, schedule=TrainingSchedule("lbfgs", max_iter=schedule.max_iter))
            (best,) = for_each(lambda run: _train(rest, run, n_threads), [best], 1, problem.stop)
    if best.bound == WORST:
        size = f"max |x| = {np.abs(x).max():g} and max |y| = {np.abs(y).max():g}"
        raise ValueError(f"x and y must be of order one for the bound to be finite, got {size}")
    theta = best.theta.copy()
    if inference == "map":
        theta[network.log_deviations] = -np.inf
    trace = problem.total * np.concatenate(best.trace)
    interrupted = problem.stop.is_set()
    return TrainedNetwork(
        network,
        theta,
        problem.total * best.bound,
        trace,
        best.n_iter,
        best.converged and not interrupted,
        interrupted,
    )


@dataclass(frozen=True)
class _Run:
    """One start and what has become of it."""

    theta: FloatArray
    rng: np.random.Generator
    bound: float = -np.inf  # −F on all rows
    trace: tuple[FloatArray, ...] = ()
    n_iter: int = 0
    converged: bool = False


def _train(problem: _Problem, run: _Run, n_threads: int) -> _Run:
    """Run the stages in turn; when the user interrupts, what there is by then."""
    seed = int(run.rng.integers(2**31))

    def value_and_gradient(theta: FloatArray) -> tuple[float, FloatArray]:
        problem.heed_interruption()
        return problem.bound(theta, seed, n_threads)

    for stage in problem.schedule.stages(problem.inference):
        if stage == "adam":
            theta, outcome = _by_adam(problem, run, seed, n_threads)
        else:
            theta, outcome = lbfgs(
                value_and_gradient, run.theta, problem.schedule.max_iter, RELATIVE_RISE, 20, problem.bounds
            )
        if outcome.interrupted:
            problem.stop.set()
        trace = outcome.trace[0]
        bound = float(trace[-1]) if trace.size else run.bound
        # Below WORST an overflow looks like a gain: it is no place to go, nor to rest.
        sound = bool(np.isfinite(theta).all()) and bound != WORST
        run = replace(
            run,
            theta=theta if sound else run.theta,
            bound=bound if sound else run.bound,
            trace=(*run.trace, trace),
            n_iter=run.n_iter + outcome.n_iter,
            converged=outcome.converged and sound,
        )
        if problem.stop.is_set():
            break
    if not np.isfinite(run.bound):  # interrupted before anything was evaluated
        bound = problem.bound(run.theta, seed, n_threads)[0]
        run = replace(run, bound=bound, trace=(np.array([bound]),))
    return run


def _by_adam(problem: _Problem, run: _Run, seed: int, n_threads: int) -> tuple[FloatArray, Outcome]:
    """Adam on batches of shuffled rows; the objective is evaluated on all rows, with the same draws, every so often."""
    schedule, n_rows = problem.schedule, len(problem.y)
    n_batches, n_steps = schedule.n_batches(n_rows), schedule.steps(n_rows)
    order = np.arange(n_rows)

    def gradient(theta: FloatArray, step: int) -> FloatArray:
        problem.heed_interruption()
        rows: Any = slice(None)
        if n_batches > 1:
            batch = step % n_batches
            if batch == 0:
                run.rng.shuffle(order)
            rows = np.sort(order[batch * n_rows // n_batches : (batch + 1) * n_rows // n_batches])
        # A new seed a step: draws of the stochastic estimates must be independent.
        return problem.bound(theta, seed + 1 + step, n_threads, rows, schedule.kl_weight(step / n_steps))[1]

    steps = AdamSchedule(n_steps, schedule.learning_rate, N_CHECKS)
    first_full_step = int(np.ceil((schedule.kl_warmup + schedule.kl_ramp) * n_steps))  # where λ is one
    return adam(
        gradient,
        lambda theta: problem.bound(theta, seed, n_threads)[0],
        run.theta,
        steps,
        problem.bounds,
        first_full_step,
    )
