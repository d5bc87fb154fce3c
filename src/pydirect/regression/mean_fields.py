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

from pydirect import _core
from pydirect._interruptions import uninterrupted
from pydirect._threads import for_each, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, as_instance
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.noise import NoiseGrid, warn_at_edge
from pydirect.optimize.cholesky import cholesky_of_ridge, in_single_precision, solve_factored
from pydirect.optimize.outcome import Outcome
from pydirect.optimize.quadratic import (
    CG_STEPS,
    CG_TOLERANCE,
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
from pydirect.regression.mean_field import (
    MeanFieldPosterior,
    MeanFieldRegression,
    fit_regression,
    quadratic_problem,
)

# Models whose ridges lie within this factor start from one factorisation, that of the largest.
SHARED_RIDGES = 16.0
REFINEMENTS = 8
# So few models are faster one by one.
FEW = 4
# Models of unlike ridges are faster one by one where A is smaller.
ANY_RIDGES = 800
# Steps of conjugate gradients after which a preconditioner made for earlier variances is made anew.
FEW_STEPS = 5
# Vectors at most that stand for A's largest eigenvalues in preconditioners.
SKETCH = 128
Lanes = NDArray[np.intp]
Floats = NDArray[Any]  # of either precision


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
        Seed of the large-neighbourhood blocks, one for all or one a model.
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
    >>> from pydirect import GaussianPrior, GaussianStatistics, MeanFieldRegression, evenly_spaced_levels
    >>> from pydirect import fit_mean_fields
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
        raise ValueError(f"random_state must be one number or one a model, {len(models)}, got {len(seeds)}")
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
                posteriors[k] = fit_regression(models[k], "pipeline", None, limit, seeds[k], n_threads)
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


class _Batch:
    """State of models of one A side by side: arrays (n_weights, lanes) with a model to a lane.

    Lanes are padded to whole packs with copies of the last model.
    """

    # One array a name, lanes along the last axis.
    TABLES = ("levels", "log_prior", "precision", "c", "yty", "noise_levels", "log_noise_prior")
    STATE = ("residual", "tau", "q_noise")
    MOMENTS = ("eta", "kappa", "mean", "second", "gain")

    def __init__(
        self, a: NDArray[np.float32], exact: FloatArray, n_samples: float, n_threads: int, **tables: Any
    ) -> None:
        self.a, self.exact, self.n_samples, self.n_threads = a, exact, n_samples, n_threads
        self.diagonal = np.ascontiguousarray(exact.diagonal())
        for name in self.TABLES:
            setattr(self, name, tables[name])
        self.noise = NoiseGrid(self.noise_levels, self.log_noise_prior)
        self.problem = _core.LaneProblem(a, self.diagonal, self.levels, self.log_prior, self.precision, n_threads)
        self.state = _core.LaneState(self.problem)
        self.drift = np.zeros(self.c.shape, dtype=np.float32)
        self.residual, self.tau, self.q_noise = self.c.copy(), np.zeros(self.yty.shape), self.log_noise_prior.copy()

    levels: FloatArray
    log_prior: FloatArray
    precision: FloatArray
    c: FloatArray
    yty: FloatArray
    noise_levels: FloatArray
    log_noise_prior: FloatArray
    accepted: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(cls, models: Sequence[MeanFieldRegression], n_threads: int) -> _Batch:
        """Lay out the tables of models with the same statistics."""
        statistics = models[0].statistics
        b, lanes = statistics.n_weights, _padded(len(models))
        n_noise = max(m.noise.n_levels for m in models)
        tables = {
            "levels": _table([m.levels for m in models], 0.0),
            "log_prior": _table([m.log_prior for m in models], -np.inf),
            "precision": np.stack([m.prior_precision() for m in models], axis=1),
            "c": np.stack([m.statistics.c for m in models], axis=1),
            "yty": np.array([m.statistics.yty for m in models]),
            "noise_levels": np.stack([_filled(m.noise.levels, n_noise, 1.0) for m in models], axis=1),
            "log_noise_prior": np.stack([_filled(m.noise.log_prior, n_noise, -np.inf) for m in models], axis=1),
        }
        exact = statistics.A
        chosen = np.minimum(np.arange(lanes), len(models) - 1)
        tables = {name: np.ascontiguousarray(table[..., chosen]) for name, table in tables.items()}
        assert tables["c"].shape == (b, lanes)
        return cls(in_single_precision(exact), exact, statistics.n_samples, n_threads, **tables)

    def take(self, lanes: Lanes) -> _Batch:
        """Return a copy of some lanes."""
        chosen = lanes[np.minimum(np.arange(_padded(len(lanes))), len(lanes) - 1)]
        tables = {name: np.ascontiguousarray(getattr(self, name)[..., chosen]) for name in self.TABLES}
        part = _Batch(self.a, self.exact, self.n_samples, self.n_threads, **tables)
        for name in self.STATE:
            setattr(part, name, np.ascontiguousarray(getattr(self, name)[..., chosen]))
        for name in self.MOMENTS:
            getattr(part.state, name)[...] = getattr(self.state, name)[:, chosen]
        part.drift[...] = self.drift[:, chosen]
        part.accept()
        return part

    def put(self, lanes: Lanes, part: _Batch, columns: Lanes) -> None:
        """Overwrite the state of lanes by columns of a part."""
        with uninterrupted():
            for name in self.STATE:
                getattr(self, name)[..., lanes] = getattr(part, name)[..., columns]
            for name in self.MOMENTS:
                getattr(self.state, name)[:, lanes] = getattr(part.state, name)[:, columns]
            self.drift[:, lanes] = part.drift[:, columns]

    def accept(self) -> None:
        """Keep the posteriors as they are, to come back to."""
        self.accepted = self.state.eta.copy(), self.state.kappa.copy(), self.q_noise

    def take_back(self) -> None:
        """Return to the posteriors accepted last; what follows from them is for `follow`."""
        with uninterrupted():
            self.state.eta[...], self.state.kappa[...], self.q_noise = self.accepted

    def follow(self) -> None:
        """Compute what follows from the posteriors."""
        self.set_noise(self.q_noise)
        self.problem.tilt(self.state)
        self.refresh()

    # --- the formulas of the model, for every lane

    def refresh(self) -> None:
        """``r = c − A s`` in double precision."""
        self.residual = self.c - _core.multiply_lanes(self.exact, self.state.mean, self.n_threads)
        self.drift[...] = 0.0

    def product(self, x: FloatArray) -> FloatArray:
        """Return A x, by A in single precision where it is large."""
        if len(self.a) <= SMALL_PROBLEM:
            return _core.multiply_lanes(self.exact, x, self.n_threads)
        return _core.multiply_lanes(self.a, x.astype(np.float32), self.n_threads).astype(np.float64)

    def settle(self) -> None:
        """Add to the residual what moved it in single precision."""
        self.residual += self.drift
        self.drift[...] = 0.0

    def set_noise(self, q_noise: FloatArray) -> None:
        """Set q_σ and the expected precision that follows."""
        self.q_noise = q_noise
        self.tau = self.noise.precision(q_noise)

    def squared_error(self) -> FloatArray:
        """``R = yᵀy − 2 sᵀc + sᵀAs + diag(A)ᵀ(v − s²)``, eq. 8, with As = c − residual."""
        s = self.state
        fit = np.einsum("jk,jk->k", s.mean, self.c + (self.residual + self.drift))
        spread = np.einsum("j,jk->k", self.diagonal, s.second) - np.einsum("j,jk,jk->k", self.diagonal, s.mean, s.mean)
        return self.yty - fit + spread

    def update_noise(self) -> FloatArray:
        """Set the best q_σ given R; return R."""
        error = self.squared_error()
        self.set_noise(self.noise.given(error, self.n_samples)[0])
        return error

    def value(self, error: FloatArray) -> FloatArray:
        """ELBO of every lane (Theorem 1 with its constant) at expected squared errors R."""
        return np.asarray(self.noise.share(self.q_noise, error, self.n_samples) + self.state.gain.sum(axis=0))

    def rescale(self, lanes: NDArray[np.bool_]) -> None:
        """Move every q_j of these lanes to the member of its family at the present τ, and the residual along."""
        s, mean = self.state, self.state.mean.copy()
        kappa = 0.5 * self.diagonal[:, None] * self.tau[lanes]
        old = s.kappa[:, lanes]
        s.eta[:, lanes] *= np.where(old > 0, kappa / np.where(old > 0, old, 1.0), 1.0)
        s.kappa[:, lanes] = kappa
        self.problem.tilt(s)
        self.residual -= self.product(s.mean - mean)

    def newton_system(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return gradient g, variances and diagonal D of the Newton system (D + A) x = g / τ of every lane."""
        s, a, tau = self.state, self.diagonal[:, None], self.tau
        variance = np.maximum(s.second - s.mean**2, 1e-14 / (tau * a + self.precision))
        gradient = tau * (self.residual + a * s.mean) - s.eta
        # The Hessian −(diag(1/variance) − τ diag(a) + τA) is indefinite where a weight hesitates between levels.
        return gradient, variance, np.maximum(1.0 / (tau * variance) - a, 0.05 * a + self.precision / tau)

    def solve(self, deflation: _Deflation, shift: FloatArray, right: FloatArray) -> tuple[FloatArray, int]:
        """Solve (diag(shift) + A) x = right in single precision, columns scaled to one; return x and steps taken."""
        scale, narrow = np.abs(right).max(axis=0), shift.astype(np.float32)
        scale[scale == 0] = 1.0

        def product(x: Floats) -> Floats:
            y: Floats = _core.multiply_lanes(self.a, x.astype(np.float32, copy=False), self.n_threads)
            y += narrow * x
            return y

        narrow_right = (right / scale).astype(np.float32)
        x, n_steps = _conjugate_gradients(product, deflation, narrow_right, CG_STEPS, CG_TOLERANCE)
        return x * scale, n_steps

    def climb(self, step: FloatArray, value: FloatArray, moves: NDArray[np.bool_]) -> FloatArray:
        """Add the step in eta, or a fraction of it, to lanes that move so that the ELBO rises above `value`, or none.

        Return its values.
        """
        s = self.state
        eta, mean, residual = s.eta.copy(), s.mean.copy(), self.residual
        t = moves.astype(np.float64)
        while True:
            s.eta[...] = eta + t * step
            self.problem.tilt(s)
            self.residual = residual - self.product(s.mean - mean)
            reached = self.value(self.update_noise())
            worse = (t > 0) & ~(reached > value)
            if not worse.any():
                self.accept()
                return reached
            t[worse] = np.where(t[worse] > 2e-3, 0.5 * t[worse], 0.0)

    # --- starts

    def start_from_lattice(self) -> None:
        """Round the ridge solutions in expectation, from one factorisation for models of similar ridges."""
        ridge = self.precision / self.tau
        for members in _similar(ridge):
            part = self.take(members)
            solution, factor = part.ridge_solution(part.precision / part.tau)
            part.problem.start_from_lattice(part.state, np.asarray(factor, dtype=np.float32), solution, part.tau)
            self.put(members, part, np.arange(len(members)))
        self.refresh()

    def ridge_solution(self, ridge: FloatArray) -> tuple[FloatArray, NDArray[np.floating[Any]]]:
        """Solutions of (A + diag(ridge)) w = c for every lane, and the factor of the one of the largest ridge."""
        largest = ridge[:, ridge[0].argmax()]
        factor = cholesky_of_ridge(self.exact, largest, self.a)
        if np.allclose(ridge, largest[:, None], rtol=1e-9, atol=0.0):
            return np.ascontiguousarray(solve_factored(factor, self.c)), factor

        def product(x: FloatArray) -> FloatArray:
            return _core.multiply_lanes(self.a, x.astype(np.float32), self.n_threads) + ridge * x

        def solve(r: FloatArray) -> FloatArray:
            return np.ascontiguousarray(solve_factored(factor, r))

        return _conjugate_gradients(product, solve, self.c, REFINEMENTS, 1e-4)[0], factor


def _conjugate_gradients(
    product: Callable[[Floats], Floats],
    solve: Callable[[Floats], Floats],
    right: Floats,
    n_steps: int,
    tolerance: float,
) -> tuple[Floats, int]:
    """Preconditioned conjugate gradients, columns by themselves: each stops where its residual has fallen enough.

    Return also the steps of the slowest column.
    """

    def dot(x: Floats, y: Floats) -> Floats:
        return np.einsum("jk,jk->k", x, y)

    x, r = np.zeros_like(right), right.copy()
    target = tolerance**2 * dot(r, r)
    active = target > 0
    z = solve(r)
    p, rho = z, dot(r, z)
    for step in range(1, n_steps + 1):
        q = product(p)
        curvature = dot(p, q)
        active &= curvature > 0
        alpha = np.where(active, rho / np.where(active, curvature, 1.0), 0.0)
        x += alpha * p
        r -= alpha * q
        active &= dot(r, r) > target
        if not active.any() or step == n_steps:
            break
        z = solve(r)
        old, rho = rho, dot(r, z)
        p = z + np.where(active, rho / np.where(active, old, 1.0), 0.0) * p
    return x, step


def _sketch(a: NDArray[np.float32]) -> NDArray[np.float32]:
    """F, (n, few), with FFᵀ below A and close to its largest eigenvalues (Nyström; Frangella et al. 2023)."""
    n = len(a)
    basis = np.linalg.qr(a @ np.random.default_rng(0).standard_normal((n, min(SKETCH, n // 8)), dtype=np.float32))[0]
    seen: NDArray[np.float32] = a @ basis
    values, vectors = np.linalg.eigh(basis.T @ seen)
    large = values > 1e-6 * values.max(initial=0.0)
    return seen @ (vectors[:, large] / np.sqrt(values[large]))


class _Deflation:
    """Preconditioner of D + A for every lane: D and A's diagonal, with FFᵀ for A's largest eigenvalues."""

    def __init__(self, sketch: NDArray[np.float32], diagonal: FloatArray, shift: FloatArray) -> None:
        rest = np.maximum(diagonal - np.einsum("jr,jr->j", sketch, sketch), 0.0)
        self.sketch, self.inverse = sketch, (1.0 / (shift + rest[:, None])).astype(np.float32)
        scaled = (sketch * root[:, None] for root in np.sqrt(self.inverse).T)
        self.inner = np.linalg.inv(np.stack([f.T @ f for f in scaled]) + np.eye(sketch.shape[1], dtype=np.float32))

    def __call__(self, right: NDArray[np.float32]) -> NDArray[np.float32]:
        """Woodbury's formula."""
        x = self.inverse * right
        inner = np.matmul(self.inner, (x.T @ self.sketch)[:, :, None])[:, :, 0]
        return x - self.inverse * (self.sketch @ inner.T)


def _similar(ridge: FloatArray) -> list[Lanes]:
    """Group lanes whose ridges are multiples of each other by at most `SHARED_RIDGES`."""
    groups: list[list[int]] = []
    for k in np.argsort(-ridge[0], kind="stable"):
        for group in groups:
            ratio = ridge[:, k] / ridge[:, group[0]]
            if ratio[0] * SHARED_RIDGES >= 1.0 and np.allclose(ratio, ratio[0], rtol=1e-9, atol=0.0):
                group.append(int(k))
                break
        else:
            groups.append([int(k)])
    return [np.sort(np.array(group)) for group in groups]


class _Run:
    """One fit of models with the same statistics: the stages of the pipeline, each on the lanes that need it."""

    def __init__(
        self, models: Sequence[MeanFieldRegression], max_iter: int, seeds: Sequence[int], n_threads: int
    ) -> None:
        self.models, self.max_iter, self.seeds, self.n_threads = models, max_iter, seeds, n_threads
        self.all = np.arange(len(models))
        self.outcomes = [Outcome() for _ in models]
        self.batch = _Batch.of(models, n_threads)
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
        """Coordinate ascent, as in the single fit; models at rest stay where they are, and leave a pack at a time."""
        lanes = self.all
        part = self.batch.take(lanes)
        traces: list[list[float]] = [[] for _ in lanes]
        at_rest = np.zeros(len(lanes), dtype=bool)
        n_sweeps = min(n_sweeps, self.max_iter)
        columns = lanes  # of `part`, one a lane in `lanes`
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
                if _padded(len(lanes)) < len(part.tau):
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
            self.alone(lanes, lambda solver, _: solver.coordinate_ascent(left, threshold_alone, rise, REFRESH_EVERY, 0))

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
        sketch, deflation, n_steps = _sketch(self.batch.a), None, 0
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
                    deflation = _Deflation(sketch, part.diagonal, shift)
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
                if _padded(len(stays)) < len(part.tau):
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


def _padded(n: int) -> int:
    """Round up to whole packs of lanes."""
    return -(-n // _core.LANE_PACK) * _core.LANE_PACK


def _filled(values: FloatArray, size: int, fill: float) -> FloatArray:
    return np.concatenate([values, np.full(size - len(values), fill)])


def _table(tables: Sequence[FloatArray], fill: float) -> FloatArray:
    """Stack (n_weights or 1, n_levels) tables along a last axis, shorter ones filled up."""
    rows, width = (max(t.shape[axis] for t in tables) for axis in (0, 1))
    out = np.full((rows, width, len(tables)), fill)
    for k, table in enumerate(tables):
        out[:, : table.shape[1], k] = table
    return out
