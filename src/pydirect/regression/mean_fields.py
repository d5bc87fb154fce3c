"""Mean-field inference for many models of the same A at once.

Products with A are matrix times matrix, where one model has matrix times vector. Targets, noise levels, priors and
level ranges may differ from model to model. Every stage is that of `fit_mean_field`'s pipeline, carried out for all
models together; a model that comes to rest leaves the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._interruptions import uninterrupted
from pydirect._threads import for_each, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, as_instance
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.noise import warn_at_edge
from pydirect.optimize.conjugate_gradients import Deflation, sketch_of
from pydirect.optimize.outcome import Outcome
from pydirect.optimize.quadratic import (
    COARSE_LEVELS,
    FIRST_NEIGHBOURHOODS,
    FIRST_SWEEPS,
    MOVE_THRESHOLD,
    NEWTON_RISE,
    NEWTON_STEPS,
    NEWTON_TOLERANCE,
    REFRESH_EVERY,
    RELATIVE_RISE,
    SMALL_PROBLEM,
    neighbourhoods,
)
from pydirect.regression.lanes import SHARED_RIDGES, Batch, Lanes, padded
from pydirect.regression.mean_field import MeanFieldPosterior, MeanFieldRegression, fit_regression, quadratic_problem

# Up to this many models are faster one by one.
FEW = 4
# Models of unlike ridges are faster one by one where A is smaller.
ANY_RIDGES = 800
# Steps of conjugate gradients after which a preconditioner made for earlier variances is made anew.
FEW_STEPS = 5


def fit_mean_fields(
    models: Sequence[MeanFieldRegression],
    *,
    max_iter: int = 1000,
    random_state: int | Sequence[int] = 0,
    n_threads: int | None = None,
) -> list[MeanFieldPosterior]:
    """Fit many models, sharing every read of A among those with the same statistics.

    The result is that of `fit_mean_field` for each model, to rounding, where models of the same A start at the same
    noise level under the same prior, as several targets do. Where they do not, starts share factorisations: posteriors
    are stationary points of the same ELBO, but of several nearby ones it may be another.

    Parameters
    ----------
    models : sequence of MeanFieldRegression
        Models with the same A (the same array) are fitted together; their targets, levels,
        priors and noise levels may differ.
    max_iter : int
        Largest number of iterations of any one stage.
    random_state : int or sequence of int
        Seed of the large-neighbourhood blocks, one for all or one per model.
    n_threads : int, optional
        Results have the same bits for any number.

    Returns
    -------
    list of MeanFieldPosterior
        In the order of the models. After Ctrl-C each is the best so far, flagged ``interrupted``.

    Raises
    ------
    ValueError, TypeError
        When a model is not as `fit_mean_field` describes its arguments.
    numpy.linalg.LinAlgError
        When an A is not positive semi-definite to single precision.

    Warns
    -----
    NoiseGridWarning
        When a noise posterior piles up at an edge of its grid.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianPrior, GaussianStatistics, evenly_spaced_levels
    >>> from pydirect.regression import MeanFieldRegression
    >>> from pydirect.regression import fit_mean_fields
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((200, 3))
    >>> Y = phi @ [[1.0, 0.0], [0.0, 1.0], [-2.0, 2.0]] + 0.1 * rng.standard_normal((200, 2))
    >>> statistics, levels = GaussianStatistics.from_arrays(phi, Y), evenly_spaced_levels(7, 3.0)
    >>> log_prior = GaussianPrior().log_mass(levels)
    >>> noise_levels = [0.001, 0.01, 0.1]
    >>> targets = [statistics.target(k) for k in (0, 1)]
    >>> models = [MeanFieldRegression.of(target, levels, log_prior, noise_levels) for target in targets]
    >>> [p.mean.round(3).tolist() for p in fit_mean_fields(models)]
    [[1.0, 0.0, -2.0], [0.0, 1.0, 2.0]]
    """
    if isinstance(models, MeanFieldRegression):
        raise TypeError("models must be a list of MeanFieldRegression, got one")
    for k, model in enumerate(models):
        as_instance(model, f"models[{k}]", MeanFieldRegression)
    models = [
        MeanFieldRegression.of(m.statistics, m.levels, m.log_prior, m.noise.levels, m.noise.log_prior) for m in models
    ]
    as_count(max_iter, "max_iter")
    seeds = [random_state] * len(models) if isinstance(random_state, int | np.integer) else list(random_state)
    if len(seeds) != len(models):
        raise ValueError(f"random_state must be one number or one per model, {len(models)}, got {len(seeds)}")
    posteriors = fit_regressions(models, max_iter, [int(s) for s in seeds], resolve_n_threads(n_threads))
    for posterior in posteriors:
        warn_at_edge(posterior.noise)
    return posteriors


def fit_regressions(
    models: Sequence[MeanFieldRegression], max_iter: int, seeds: Sequence[int], n_threads: int
) -> list[MeanFieldPosterior]:
    """Fit validated models; parameters as in `fit_mean_fields`."""
    posteriors: list[Any] = [None] * len(models)
    groups: dict[tuple[int, float], list[int]] = {}
    for k, model in enumerate(models):
        groups.setdefault((id(model.statistics.A), model.statistics.n_samples), []).append(k)
    interrupted = False  # what is left is kept short
    for members in groups.values():
        if not _worth_sharing([models[k] for k in members]):
            for k in members:
                limit = 1 if interrupted else max_iter
                posteriors[k] = fit_regression(models[k], max_iter=limit, random_state=seeds[k], n_threads=n_threads)
                interrupted = interrupted or posteriors[k].interrupted
            continue
        run = _Run([models[k] for k in members], 1 if interrupted else max_iter, [seeds[k] for k in members], n_threads)
        for k, posterior in zip(members, run.posteriors(), strict=True):
            posteriors[k] = posterior
            interrupted = interrupted or posterior.interrupted
    return posteriors


def _worth_sharing(models: Sequence[MeanFieldRegression]) -> bool:
    """Whether models of the same A are faster together: where A is small, only if they start at similar ridges."""
    if len(models) <= FEW or models[0].statistics.n_weights >= ANY_RIDGES:
        return len(models) > FEW
    ridges = [m.prior_precision()[0] / m.noise.precision(m.noise.middle()) for m in models]
    return bool(max(ridges) <= SHARED_RIDGES * min(ridges))


class _Run:
    """One fit of models with the same statistics: the stages of the pipeline, each on the lanes that need it."""

    def __init__(
        self, models: Sequence[MeanFieldRegression], max_iter: int, seeds: Sequence[int], n_threads: int
    ) -> None:
        self.models, self.max_iter, self.seeds, self.n_threads = models, max_iter, seeds, n_threads
        self.all = np.arange(len(models))
        self.outcomes = [Outcome() for _ in models]
        self.batch = Batch.of(models, n_threads)
        self.small = models[0].statistics.n_weights <= SMALL_PROBLEM
        self.precision = 1e-6 if self.small else 1.0

    def posteriors(self) -> list[MeanFieldPosterior]:
        """Fit and return the posterior of every model."""
        batch = self.batch
        start = np.zeros(batch.q_noise.shape)
        for k in range(len(batch.tau)):
            model = self.models[min(k, len(self.models) - 1)]
            start[: model.noise.n_levels, k] = model.noise.middle()
        batch.set_noise(start)
        problems = [
            quadratic_problem(m, batch.a, self.max_iter, seed) for m, seed in zip(self.models, self.seeds, strict=True)
        ]
        coarse = np.array([p.coarseness(tau) > COARSE_LEVELS for p, tau in zip(problems, batch.tau, strict=False)])
        interrupted = False
        with single_blas_thread():
            batch.start_from_lattice()
            try:
                self.sweep(FIRST_SWEEPS)
                if coarse.any():
                    self.alone(
                        self.all[coarse], lambda solver, k: neighbourhoods(solver, problems[k], FIRST_NEIGHBOURHOODS)
                    )
                if self.small or not coarse.all():
                    self.newton(self.all if self.small else self.all[~coarse])
                self.sweep(self.max_iter)
            except KeyboardInterrupt:
                interrupted = True
                batch.follow()  # what was there may follow from a step that was taken back
            batch.refresh()
            elbo = batch.value(batch.squared_error())
        for outcome in self.outcomes:
            outcome.interrupted, outcome.converged = interrupted, outcome.converged and not interrupted
        return [self._posterior(k, float(elbo[k])) for k in range(len(self.models))]

    def _posterior(self, k: int, elbo: float) -> MeanFieldPosterior:
        model, outcome, state = self.models[k], self.outcomes[k], self.batch.state
        w, m = model.levels, model.noise.n_levels
        logits = model.log_prior + (state.eta[:, [k]] - state.kappa[:, [k]] * w) * w
        weights = FactorizedCategorical.from_logits(w, logits)
        noise = model.noise.posterior(np.ascontiguousarray(self.batch.q_noise[:m, k]))
        return MeanFieldPosterior(weights, noise, model.log_prior, outcome.at(elbo))

    def _add(self, lanes: Lanes, traces: list[list[float]], converged: NDArray[np.bool_]) -> None:
        for k, trace, at_rest in zip(lanes, traces, converged, strict=True):
            self.outcomes[k].add((len(trace), bool(at_rest), np.array(trace)))

    def sweep(self, n_sweeps: int) -> None:
        """Coordinate ascent, as in the single fit; models at rest stay where they are, and leave by whole packs."""
        lanes = self.all
        part = self.batch.take(lanes)
        traces: list[list[float]] = [[] for _ in lanes]
        at_rest = np.zeros(len(lanes), dtype=bool)
        n_sweeps = min(n_sweeps, self.max_iter)
        columns = lanes  # of `part`, one per lane in `lanes`
        threshold = np.full(part.tau.shape, self.precision * MOVE_THRESHOLD)
        try:
            for i in range(n_sweeps):
                moved = part.problem.sweep(part.state, part.residual, part.drift, part.tau, threshold)[columns]
                if (i + 1) % REFRESH_EVERY == 0:
                    part.refresh()
                value = part.value(part.update_noise())[columns]
                done = np.zeros(len(lanes), dtype=bool)
                for j, k in enumerate(lanes):
                    trace = traces[k]
                    before = trace[-1] if trace else -np.inf
                    trace.append(float(value[j]))
                    flat = trace[-1] - before <= self.precision * RELATIVE_RISE * (abs(before) + 1.0)
                    done[j] = i > 0 and (moved[j] == 0 or flat)
                if not done.any():
                    continue
                at_rest[lanes[done]] = True
                self.batch.put(lanes[done], part, columns[done])
                threshold[columns[done]] = np.inf
                lanes, columns = lanes[~done], columns[~done]
                if len(lanes) <= FEW:
                    break
                if padded(len(lanes)) < len(part.tau):
                    part, columns = part.take(columns), np.arange(len(lanes))
                    threshold = np.full(part.tau.shape, self.precision * MOVE_THRESHOLD)
        finally:
            if len(lanes):
                self.batch.put(lanes, part, columns)
            self._add(self.all, traces, at_rest)
        self.batch.settle()
        left = n_sweeps - max(len(trace) for trace in traces)
        if len(lanes) and left:
            fine = self.precision
            threshold_alone, rise = fine * MOVE_THRESHOLD, fine * RELATIVE_RISE
            self.alone(lanes, lambda solver, _: solver.coordinate_ascent(left, threshold_alone, rise, REFRESH_EVERY))

    def alone(self, lanes: Lanes, stage: Callable[[Any, int], tuple[int, bool, FloatArray]]) -> None:
        """Carry out a stage model by model with the solver of one model, spread over threads."""
        batch, state, stop = self.batch, self.batch.state, threading.Event()

        def one(k: int) -> tuple[Any, tuple[int, bool, FloatArray]] | None:
            if stop.is_set():
                return None
            solver = self.models[k].solver(1, batch.a)
            solver.set_noise(np.ascontiguousarray(batch.q_noise[: self.models[k].noise.n_levels, k]))
            solver.start_from_naturals(np.ascontiguousarray(state.eta[:, k]), np.ascontiguousarray(state.kappa[:, k]))
            return solver, stage(solver, k)

        found = for_each(one, [int(k) for k in lanes], min(self.n_threads, len(lanes)), stop)
        with uninterrupted():
            for k, result in zip(lanes, found, strict=True):
                if result is not None:
                    solver, step = result
                    state.eta[:, k], state.kappa[:, k] = solver.eta, solver.kappa
                    batch.q_noise[: self.models[k].noise.n_levels, k] = solver.q_noise
                    self.outcomes[k].add(step)
            batch.follow()
        if stop.is_set():
            raise KeyboardInterrupt

    def newton(self, lanes: Lanes) -> None:
        """Newton's method in eta, as in the single fit, for models whose levels are fine."""
        tolerance, rise = NEWTON_TOLERANCE * self.precision, NEWTON_RISE * self.precision
        sketch, deflation, n_steps = sketch_of(self.batch.a), None, 0
        part = self.batch.take(lanes)
        traces: dict[int, list[float]] = {int(k): [] for k in lanes}
        at_rest = np.zeros(len(self.all), dtype=bool)
        going = np.arange(len(part.tau)) < len(lanes)
        part.rescale(np.ones(len(part.tau), dtype=bool))
        family_tau = part.tau.copy()
        current = part.value(part.update_noise())
        try:
            for _ in range(min(NEWTON_STEPS, self.max_iter)):
                stale = np.abs(part.tau - family_tau) > 1e-5 * part.tau
                if stale.any():
                    part.rescale(stale)
                    family_tau[stale] = part.tau[stale]
                    current = part.value(part.squared_error())
                gradient, variance, shift = part.newton_system()
                largest = (np.abs(gradient) * np.sqrt(variance)).max(axis=0)
                moves = going & (largest > tolerance)
                if deflation is None or n_steps > FEW_STEPS:
                    deflation = Deflation(sketch, part.diagonal, shift)
                x, n_steps = part.solve(deflation, shift, np.where(moves, gradient / part.tau, 0.0))
                before, current = current, part.climb(x / variance, current, moves)
                for j, k in enumerate(lanes):
                    if moves[j]:
                        traces[int(k)].append(float(current[j]))
                risen = current - before
                stuck = moves & (risen <= 0)  # rounding, or a step along which nothing rises
                flat = np.where(stuck, largest <= 1e3 * tolerance, ~moves | (risen <= rise * (np.abs(current) + 1.0)))
                at_rest[lanes] |= (going & flat)[: len(lanes)]
                going &= ~(flat | stuck)
                stays = np.flatnonzero(going)
                if len(stays) == 0:
                    break
                if padded(len(stays)) < len(part.tau):
                    self.batch.put(lanes, part, np.arange(len(lanes)))
                    part, lanes = part.take(stays), lanes[stays]
                    chosen = stays[np.minimum(np.arange(len(part.tau)), len(stays) - 1)]
                    family_tau, current, deflation = family_tau[chosen], current[chosen], None
                    going = np.arange(len(part.tau)) < len(lanes)
        except BaseException:  # in the middle of a step
            part.take_back()
            raise
        finally:
            self.batch.put(lanes, part, np.arange(len(lanes)))
            self._add(np.array(list(traces)), list(traces.values()), at_rest[list(traces)])
