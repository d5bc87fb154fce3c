"""State of many mean-field models with the same A side by side, and the formulas of the model for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._interruptions import uninterrupted
from pydirect._validation import FloatArray
from pydirect.distributions.noise import NoiseGrid
from pydirect.optimize.cholesky import cholesky_of_ridge, in_single_precision, solve_factored
from pydirect.optimize.conjugate_gradients import Deflation, Floats, conjugate_gradients
from pydirect.optimize.quadratic import CG_STEPS, CG_TOLERANCE, SMALL_PROBLEM
from pydirect.regression.mean_field import MeanFieldRegression

# Models whose ridges lie within this factor start from one factorisation, that of the largest.
SHARED_RIDGES = 16.0
REFINEMENTS = 8
Lanes = NDArray[np.intp]


class Batch:
    """State of models of one A side by side: arrays (n_weights, lanes) with one model per lane.

    Lanes are padded to whole packs with copies of the last model.
    """

    # One array per name, lanes along the last axis.
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
    def of(cls, models: Sequence[MeanFieldRegression], n_threads: int) -> Batch:
        """Lay out the tables of models with the same statistics."""
        statistics = models[0].statistics
        b, lanes = statistics.n_weights, padded(len(models))
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

    def take(self, lanes: Lanes) -> Batch:
        """Return a copy of some lanes."""
        chosen = lanes[np.minimum(np.arange(padded(len(lanes))), len(lanes) - 1)]
        tables = {name: np.ascontiguousarray(getattr(self, name)[..., chosen]) for name in self.TABLES}
        part = Batch(self.a, self.exact, self.n_samples, self.n_threads, **tables)
        for name in self.STATE:
            setattr(part, name, np.ascontiguousarray(getattr(self, name)[..., chosen]))
        for name in self.MOMENTS:
            getattr(part.state, name)[...] = getattr(self.state, name)[:, chosen]
        part.drift[...] = self.drift[:, chosen]
        part.accept()
        return part

    def put(self, lanes: Lanes, part: Batch, columns: Lanes) -> None:
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

    def solve(self, deflation: Deflation, shift: FloatArray, right: FloatArray) -> tuple[FloatArray, int]:
        """Solve (diag(shift) + A) x = right in single precision, columns scaled to one; return x and steps taken."""
        scale, narrow = np.abs(right).max(axis=0), shift.astype(np.float32)
        scale[scale == 0] = 1.0

        def product(x: Floats) -> Floats:
            y: Floats = _core.multiply_lanes(self.a, x.astype(np.float32, copy=False), self.n_threads)
            y += narrow * x
            return y

        narrow_right = (right / scale).astype(np.float32)
        x, n_steps = conjugate_gradients(product, deflation, narrow_right, CG_STEPS, CG_TOLERANCE)
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

        return conjugate_gradients(product, solve, self.c, REFINEMENTS, 1e-4)[0], factor


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


def padded(n: int) -> int:
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
