"""Training of networks: Adam, or L-BFGS, on a deterministic bound; Adam alone on stochastic estimates of it.

The objective F = λ KL/N − mean expected log-likelihood (Wu et al. 2019, section 4) is per row and of order one; the
optimisers climb −F. λ is one, or zero at first (warm-up), so that a network fits the data before its prior
prunes it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import for_each, raise_if_set, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, RandomState, as_choice, as_count, as_generator, as_instance, as_number
from pydirect._warnings import warn
from pydirect.monte_carlo.posteriors import as_seed
from pydirect.networks.base import Evaluation, Inference, NetworkRows, TrainedNetwork, VariationalNetwork
from pydirect.networks.deterministic import DeterministicPosterior
from pydirect.networks.sampled import SampledNetwork, SampledPosterior
from pydirect.optimize.gradient import adam, lbfgs
from pydirect.optimize.outcome import Outcome

NETWORK_OPTIMIZERS = ("adam", "adam+lbfgs", "lbfgs")
BATCH_SIZE = 100
# Fraction of Adam's steps by whose end the KL term has its full weight.
MOST_WARMUP = 0.9
# Adam's steps unless asked for: the first number, or as many as the second number of passes takes if that is more.
LEAST_STEPS, LEAST_PASSES = 3000, 100


@dataclass(frozen=True)
class TrainingSchedule:
    """How a network is trained.

    Parameters
    ----------
    optimizer : {"adam", "adam+lbfgs", "lbfgs"}, default="adam"
        L-BFGS takes the bound to its optimum. Held-out rows seldom gain by that, and lose much where the noise depends
        on the inputs: small batches of a moderate number of steps end where the bound is flat. ``"lbfgs"`` alone uses
        neither batches nor the warm-up of the KL term.
    n_steps : int, optional
        Steps of Adam: by default 3000, or as many as 100 passes over the rows take if that is more.
    learning_rate : float, default=0.01
        Initial step size of Adam; it falls to zero along half a cosine.
    batch_size : int or None, default=100
        Rows per step of Adam; None for all of them.
    kl_warmup : float, default=0.0
        Fraction of Adam's steps without the KL term, at most 0.9: the bound is followed once it has come.
    max_iter : int, default=2000
        Maximum number of iterations of L-BFGS, which after Adam improves the best of several starts alone.

    Examples
    --------
    >>> from pydirect import DVIRegressor, TrainingSchedule
    >>> schedule = TrainingSchedule(n_steps=10_000, kl_warmup=0.1)
    >>> DVIRegressor(schedule=schedule).get_params()["schedule"].n_steps
    10000
    """

    optimizer: str = "adam"
    n_steps: int | None = None
    learning_rate: float = 0.01
    batch_size: int | None = BATCH_SIZE
    kl_warmup: float = 0.0
    max_iter: int = 2000

    def __post_init__(self) -> None:
        as_choice(self.optimizer, "optimizer", NETWORK_OPTIMIZERS)
        if self.n_steps is not None:
            as_count(self.n_steps, "n_steps")
        as_number(self.learning_rate, "learning_rate", above=0.0)
        if self.batch_size is not None:
            as_count(self.batch_size, "batch_size")
        as_number(self.kl_warmup, "kl_warmup", at_least=0.0, at_most=MOST_WARMUP)
        as_count(self.max_iter, "max_iter")
        if self.optimizer == "lbfgs" and self.kl_warmup != 0.0:
            raise ValueError(f"kl_warmup must be 0.0 for optimizer='lbfgs', got {self.kl_warmup}")

    def stages(self, inference: Inference) -> tuple[str, ...]:
        """Return the optimisers in turn."""
        if inference.fresh and self.optimizer != "adam":
            raise ValueError(f"optimizer must be 'adam' for inference={inference.name!r}, got {self.optimizer!r}")
        return tuple(self.optimizer.split("+"))

    def steps(self, n_rows: int) -> int:
        """Return the number of Adam's steps."""
        if self.n_steps is not None:
            return self.n_steps
        return max(LEAST_STEPS, LEAST_PASSES * self.n_batches(n_rows))

    def n_batches(self, n_rows: int) -> int:
        """Return the number of batches in a pass over the rows."""
        return max(1, n_rows // (self.batch_size or n_rows))

    def kl_weight(self, progress: float) -> float:
        """Weight λ of the divergence after a fraction of Adam's steps."""
        return float(progress >= self.kl_warmup)


class NetworkObjective:
    """Negative evidence lower bound per row, F(θ) = (kl_weight / N) KL(q ‖ p) − mean over rows of E_q log p(y | x, w).

    The data are validated once, here; calling the object gives F and its gradient, or unbiased estimates of them.
    """

    def __init__(
        self,
        network: VariationalNetwork,
        x: ArrayLike,
        y: ArrayLike,
        *,
        inference: str | None = None,
        sample_weight: ArrayLike | None = None,
        n_total: float | None = None,
        n_draws: int = 10,
    ) -> None:
        as_instance(network, "network", VariationalNetwork)
        self.network = network
        self.inference = network.inference(network.inferences[0] if inference is None else inference)
        self.rows = network.rows(x, y, sample_weight)
        self.n_total = self.rows.total if n_total is None else as_number(n_total, "n_total", above=0.0)
        self.n_draws = as_count(n_draws, "n_draws")

    def __call__(
        self, theta: ArrayLike, *, kl_weight: float = 1.0, seed: int = 0, n_threads: int | None = None
    ) -> tuple[float, FloatArray]:
        """Evaluate F and its gradient, (n_parameters,); infinity and zeros where something has overflown.

        The same `seed` gives the same draws, and the same bits for any number of threads.
        """
        kl_factor = as_number(kl_weight, "kl_weight", at_least=0.0) / self.n_total
        theta, seed = self.network.as_theta(theta), as_seed(seed)
        return self.evaluate(theta, self.rows, kl_factor, seed, resolve_n_threads(n_threads))

    def evaluate(
        self, theta: FloatArray, rows: NetworkRows, kl_factor: float, seed: int, n_threads: int
    ) -> tuple[float, FloatArray]:
        """Evaluate F and its gradient for some rows, with arguments that an optimiser has validated."""
        how = Evaluation(rows, self.inference, kl_factor, self.n_draws, seed, n_threads)
        return self.network.negative_bound(theta, how)

    def bound(
        self,
        theta: FloatArray,
        seed: int,
        n_threads: int,
        batch: NDArray[np.intp] | None = None,
        kl_weight: float = 1.0,
    ) -> tuple[float, FloatArray]:
        """−F and its gradient, `WORST` and zeros where they overflow; estimated without bias from a batch of rows."""
        rows, share = self.rows, 1.0
        if batch is not None:
            # The mean over a batch is weighted by its own total: scale it to the batch's share of all weights.
            rows = self.rows.take(batch)
            share = rows.total / self.rows.total * (len(self.rows.x) / len(batch))
            if share == 0.0:
                return 0.0, np.zeros_like(theta)
        value, gradient = self.evaluate(theta, rows, kl_weight / (share * self.n_total), seed, n_threads)
        return (-share * value, -share * gradient) if np.isfinite(value) else (WORST, np.zeros_like(theta))

    def of_rows_that_count(self) -> NetworkObjective:
        """Return the same without rows of weight zero."""
        rows = self.rows
        used = np.arange(len(rows.x)) if rows.weight is None else np.flatnonzero(rows.weight)
        mean_weight = 1.0 if rows.weight is None else float(rows.weight[used].mean())
        if mean_weight < SMALLEST_MEAN_WEIGHT:
            raise ValueError(f"sample_weight must have a mean of at least {SMALLEST_MEAN_WEIGHT}, got {mean_weight}")
        found = copy.copy(self)
        found.rows = rows.take(used)
        found.n_total = found.rows.total
        return found


# Log standard deviations stay within these: line searches without bounds overflow.
LOG_SIGMA_BOUNDS = (-12.0, 3.0)
# Value that the optimisers get where the objective overflows.
WORST = -1e10
# L-BFGS stops after an iteration that raises the bound per row by less than this, relatively.
RELATIVE_RISE = 1e-7
# Steps that L-BFGS's approximation of the Hessian remembers.
N_CORRECTIONS = 20
N_CHECKS = 50
# Below this mean weight per row the KL term's square overflows.
SMALLEST_MEAN_WEIGHT = 1e-100
# Draws of a sampled network's final bound, from a seed that training's, below 2³², do not reach.
BOUND_DRAWS = 100
BOUND_SEED = 2**40
# Nats per row by which the bound of stored draws may exceed that of fresh ones.
LARGEST_LOSS = 1.0


class OverfittedDrawsWarning(UserWarning):
    """A network has adapted to the stored draws of its training."""


def fit_network(
    network: VariationalNetwork,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    inference: str | None = None,
    n_draws: int = 10,
    schedule: TrainingSchedule | None = None,
    n_restarts: int = 1,
    random_state: RandomState = 0,
    n_threads: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> TrainedNetwork:
    """Train a Bayesian network by variational inference.

    Parameters
    ----------
    network : DeterministicNetwork or SampledNetwork
        Its architecture, likelihood and prior.
    x : array_like of shape (n_samples, n_inputs)
        Of order one.
    y : array_like of shape (n_samples,) or (n_samples, n_targets)
        Targets of order one, or the numbers 0, 1, … of the classes.
    sample_weight : array_like of shape (n_samples,), optional
        How many times each row counts.
    inference : {"dvi", "mcvi", "rmcvi", "map", "kept"}, optional
        How the bound is found; the network says which it has:

        - ``"dvi"``, default of a `DeterministicNetwork`: the deterministic bound, by moment propagation.
        - ``"mcvi"``, default of a `SampledNetwork`: its estimate from weights drawn anew at every step.
        - ``"rmcvi"``: its estimate from pre-activations drawn anew at every step; normal weights only.
        - ``"map"``, of a `DeterministicNetwork`: the posterior mode, without posterior variances.
        - ``"kept"``, of a `SampledNetwork`: its estimate from weights drawn once, by the network's seed.
    n_draws : int, default=10
        Draws per step, where there are any.
    schedule : TrainingSchedule, optional
        Optimisers, steps and batches.
    n_restarts : int, default=1
        Number of random starts; the one with the highest final bound is kept.
    random_state : numpy.random.Generator, int or None, default=0
        Seed of the start, the batches and the draws.
    n_threads : int, optional
        Results have the same bits for any number.
    progress : callable, optional
        Called with the number of finished starts, their total and the best bound so far.

    Returns
    -------
    DeterministicPosterior or SampledPosterior
        The bound of a sampled network is that of fresh draws, unseen in training. Interrupting (KeyboardInterrupt)
        returns the best iterate so far, flagged.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range, or the bound is finite nowhere.

    Warns
    -----
    OverfittedDrawsWarning
        When the bound of stored draws is much higher than that of fresh ones.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import TrainingSchedule, fit_network
    >>> from pydirect.networks import DeterministicNetwork
    >>> x = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> network = DeterministicNetwork(1, (10,))
    >>> posterior = fit_network(network, x, x[:, 0] ** 2, schedule=TrainingSchedule(n_steps=20))
    """
    given = NetworkObjective(network, x, y, inference=inference, sample_weight=sample_weight, n_draws=n_draws)
    schedule = TrainingSchedule() if schedule is None else schedule
    as_instance(schedule, "schedule", TrainingSchedule)
    stages = schedule.stages(given.inference)
    n_threads, rng = resolve_n_threads(n_threads), as_generator(random_state)
    training, total = Training(given.of_rows_that_count(), schedule, threading.Event()), given.rows.total
    starts = [Start(network.initial_parameters(own), own) for own in rng.spawn(as_count(n_restarts, "n_restarts"))]
    # After Adam, L-BFGS takes the best of several starts alone to its optimum.
    shared = stages[: 1 if len(starts) > 1 else len(stages)]
    workers = min(n_threads, len(starts))
    finished: list[float] = []

    def train(start: Start) -> Start:
        trained = training.climb(start, shared, max(1, n_threads // workers))
        finished.append(trained.outcome.elbo)
        if progress is not None:
            progress(len(finished), len(starts), max(finished) * total)
        return trained

    best = max(for_each(train, starts, workers, training.stop), key=lambda run: run.outcome.elbo)
    if len(shared) < len(stages) and not training.stop.is_set():
        with single_blas_thread():
            best = training.climb(best, stages[1:], n_threads)
    outcome, theta = best.outcome, best.theta.copy()
    if outcome.elbo == WORST:
        size = f"max |x| = {np.abs(given.rows.x).max():g} and max |y| = {np.abs(given.rows.y).max():g}"
        raise ValueError(f"x and y must be of order one for the bound to be finite, got {size}")
    if given.inference.name == "map":
        theta[network.log_deviations] = -np.inf
    outcome = replace(outcome, elbo=total * outcome.elbo, trace=total * outcome.trace)
    outcome = outcome.stopped() if training.stop.is_set() else outcome
    if not isinstance(network, SampledNetwork):
        return DeterministicPosterior(network, theta, outcome)
    fresh = _bound_of_fresh_draws(given, network, theta, n_threads)
    kept = network.kl_mode == "fixed" or given.inference.name == "kept"
    if kept and not outcome.elbo - fresh <= LARGEST_LOSS * total:
        lost = f"with fresh draws the bound is {outcome.elbo - fresh:.6g} nats lower"
        warn(f"the weights have adapted to their draws: {lost}", OverfittedDrawsWarning, stacklevel=2)
    return SampledPosterior(network, theta, replace(outcome, elbo=fresh))


def _bound_of_fresh_draws(
    objective: NetworkObjective, network: SampledNetwork, theta: FloatArray, n_threads: int
) -> float:
    """Estimate the bound from draws that training has not seen; the divergence is exact where it can be."""
    mode = network.kl_mode if network.weight_prior else "exact"
    judge = replace(network, kl_mode="independent" if mode == "fixed" else mode)
    x, y, weight, total = objective.rows
    fresh = NetworkObjective(judge, x, y, inference="mcvi", sample_weight=weight, n_draws=BOUND_DRAWS)
    return -total * fresh(theta, seed=BOUND_SEED, n_threads=n_threads)[0]


@dataclass(frozen=True)
class Start:
    """A start, or where training has led from it."""

    theta: FloatArray
    rng: np.random.Generator
    outcome: Outcome = field(default_factory=lambda: Outcome(elbo=-np.inf))  # of −F on all rows


@dataclass(frozen=True)
class Training:
    """What all starts share."""

    objective: NetworkObjective
    schedule: TrainingSchedule
    stop: threading.Event  # set when the user interrupts

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest values of θ: means are free."""
        network = self.objective.network
        low, high = np.full(network.n_parameters, -np.inf), np.full(network.n_parameters, np.inf)
        low[network.log_deviations], high[network.log_deviations] = LOG_SIGMA_BOUNDS
        return low, high

    def climb(self, start: Start, stages: tuple[str, ...], n_threads: int) -> Start:
        """Run the stages in turn; after an interruption, return the best so far."""
        theta, outcome, seed = start.theta, replace(start.outcome), int(start.rng.integers(2**31))
        for stage in stages:
            climb = self._adam if stage == "adam" else self._lbfgs
            found, own = climb(theta, start.rng, seed, n_threads)
            bound = own.elbo if own.trace.size else outcome.elbo
            # An overflow is an improvement on bounds below WORST: neither accept it nor stop there.
            sound = bool(np.isfinite(found).all()) and bound != WORST
            outcome.add((own.n_iter, own.converged and sound, own.trace))
            if sound:
                theta, outcome.elbo = found, bound
            if own.interrupted:
                self.stop.set()
            if self.stop.is_set():
                break
        if not np.isfinite(outcome.elbo):  # interrupted before anything was evaluated
            outcome.elbo = self.objective.bound(theta, seed, n_threads)[0]
            outcome.trace = np.array([outcome.elbo])
        return Start(theta, start.rng, outcome)

    def _lbfgs(
        self, theta: FloatArray, rng: np.random.Generator, seed: int, n_threads: int
    ) -> tuple[FloatArray, Outcome]:
        def value_and_gradient(theta: FloatArray) -> tuple[float, FloatArray]:
            raise_if_set(self.stop)
            return self.objective.bound(theta, seed, n_threads)

        return lbfgs(
            value_and_gradient,
            theta,
            self.schedule.max_iter,
            relative_rise=RELATIVE_RISE,
            n_corrections=N_CORRECTIONS,
            bounds=self.bounds,
        )

    def _adam(
        self, theta: FloatArray, rng: np.random.Generator, seed: int, n_threads: int
    ) -> tuple[FloatArray, Outcome]:
        """Adam on batches of shuffled rows; all rows are evaluated, with the same draws, every so often."""
        objective, schedule, n_rows = self.objective, self.schedule, len(self.objective.rows.x)
        n_batches, n_steps = schedule.n_batches(n_rows), schedule.steps(n_rows)
        order = np.arange(n_rows)

        def gradient(theta: FloatArray, step: int) -> FloatArray:
            raise_if_set(self.stop)
            rows = None
            if n_batches > 1:
                batch = step % n_batches
                if batch == 0:
                    rng.shuffle(order)
                rows = np.sort(order[batch * n_rows // n_batches : (batch + 1) * n_rows // n_batches])
            # A new seed for every step: draws of the stochastic estimates must be independent.
            return objective.bound(theta, seed + 1 + step, n_threads, rows, schedule.kl_weight(step / n_steps))[1]

        return adam(
            gradient,
            lambda theta: objective.bound(theta, seed, n_threads)[0],
            theta,
            n_steps,
            schedule.learning_rate,
            N_CHECKS,
            bounds=self.bounds,
            first_check=int(np.ceil(schedule.kl_warmup * n_steps)),  # where λ is one
        )
