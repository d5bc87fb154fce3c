"""Active learning: which candidates to measure, so that predictions become as certain as possible.

A measurement at φ, of noise variance σ², changes the covariance S of the weights by a rank of one, whatever comes out:

    S' = S − u uᵀ,   u = Sφ / √(σ² + φᵀSφ),

and the variances at targets Φ_t together by uᵀGu, G = Φ_tᵀΦ_t (MacKay 1992, *Information-based objective functions for
active data selection*; Cohn 1996, *Neural network exploration using optimal experiment design*). So the best one is
known beforehand: among all candidates for a product of matrices, and after each choice for a few with vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import blas, cholesky
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread, threads
from pydirect._validation import FloatArray, as_count, as_float_array, as_instance, short_repr
from pydirect.decisions.acquisition import best_one_by_one
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.regression import generator_of
from pydirect.features.basis import Basis
from pydirect.features.maps import NystroemFeatures
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.posterior import GaussianPosterior

BLOCK_ROWS = 1024
# At candidates and targets, beside those of a model that has seen few rows.
MORE_LANDMARKS = 500
ROUNDING = 1e-13  # of the trace


@dataclass(frozen=True)
class CandidateBatch:
    """Rows of the candidates to measure, best first, and by how much each lowers the variance, given those before it.

    Reductions (n,) are averaged over the targets and summed over outputs, in squared units of the (transformed) y.
    """

    indices: NDArray[np.intp]
    reductions: FloatArray

    __repr__ = short_repr


def select_batch(
    model: DirectRegressor,
    candidates: ArrayLike,
    targets: ArrayLike | None = None,
    n: int = 10,
    *,
    costs: ArrayLike | None = None,
) -> CandidateBatch:
    """Choose the candidates whose measurement lowers the predictive variance over the targets most.

    One after another, each the best given those before it; the best n together might be others. Reductions are those of
    the model refitted with the new rows, whatever their outcomes, at the kernel, noise and prior scale that it has.

    - `costs` (n_candidates,): Positive; candidates are then chosen by their reduction per unit of cost.
    """
    as_instance(model, "model", DirectRegressor)
    check_is_fitted(model)
    if not all(isinstance(posterior, GaussianPosterior) for posterior in model.posteriors_):
        raise TypeError(f"model must have posterior='gaussian', got {model.posterior!r}")
    as_count(n, "n")
    x = model.encode_rows(candidates)
    if len(x) < n:
        raise ValueError(f"candidates must be at least n = {n} rows, got {len(x)}")
    cost = np.ones(len(x)) if costs is None else as_float_array(costs, "costs", (len(x),))
    if (cost <= 0).any():
        raise ValueError(f"costs must be positive, got {cost.min()}")
    others = None if targets is None else model.encode_rows(targets)
    fitted, rng = model.model_, generator_of(model.random_state)
    with threads(model.n_threads), single_blas_thread():  # the same bits for any number of threads
        room = min(model.n_basis_functions - fitted.basis.n_weights, MORE_LANDMARKS)
        basis = _with_more_landmarks(fitted.basis, x if others is None else np.vstack([x, others]), room, rng)
        outputs = [_reductions_of_output(fitted, basis, k, x, others) for k in range(len(fitted.posteriors))]
        return choose_greedily(outputs, cost, n)


def _reductions_of_output(
    model: FittedRegressor, basis: Basis, k: int, x: FloatArray, targets: FloatArray | None
) -> Reductions:
    posterior, scale = model.posteriors[k], float(model.latent.prior_scale[k])
    n_threads = resolve_n_threads() if basis.map.parallel else 1
    n_weights = model.basis.n_weights
    root = np.sqrt(posterior.prior_variance) * np.eye(basis.n_weights)
    root[:n_weights, :n_weights] = posterior.covariance_root()
    rows_of = basis.projection(root)

    def whitened(rows: FloatArray) -> FloatArray:
        blocks = (rows[begin : begin + BLOCK_ROWS] for begin in range(0, len(rows), BLOCK_ROWS))
        inputs = (basis.inputs(block) for block in blocks)
        return np.concatenate(list(ordered_map(lambda block: rows_of(block, 1), inputs, n_threads)))

    rows = whitened(x)
    aims = rows if targets is None else whitened(targets)
    # In units of the prior variance of the weights.
    noise = np.full(len(x), 1 / posterior.noise.precision)
    if model.noise is not None:
        weights, values = model.noise_of(x)[k]
        noise = values @ weights
    unit = (model.units.calibration * model.units.scale[k] * scale) ** 2
    return Reductions(rows, aims, noise / scale**2, unit, n_threads)


def _with_more_landmarks(basis: Basis, rows: FloatArray, room: int, rng: np.random.Generator) -> Basis:
    """Return the basis with up to `room` more landmarks among rows.

    Its functions stay as they are, and others follow for the residual; their weights have their prior.
    """
    if basis.map.residual_kernel is None or room <= 0:
        return basis
    known = basis.map.landmarks
    distinct, first = np.unique(np.vstack([known, basis.inputs(rows)]), axis=0, return_index=True)
    new = distinct[first >= len(known)]
    if len(new) > room:
        new = new[np.sort(rng.choice(len(new), room, replace=False))]
    landmarks = np.vstack([known, new])
    return replace(basis, map=NystroemFeatures.at(landmarks, basis.map.residual_kernel))


class Reductions:
    """By how much a measurement at each candidate, with `noise`, lowers the variance over the targets.

    `rows` and `targets` are of Φ, in units in which the covariance of the weights was I before the first measurement.
    """

    def __init__(
        self, rows: FloatArray, targets: FloatArray, noise: FloatArray, unit: float = 1.0, n_threads: int = 1
    ) -> None:
        self.rows, self.factor, self.noise, self.unit = rows, _compressed(targets), noise, unit
        self.variance = np.einsum("ij,ij->i", rows, rows)
        blocks = (rows[begin : begin + BLOCK_ROWS] for begin in range(0, len(rows), BLOCK_ROWS))
        self.squares = np.concatenate(list(ordered_map(self._squares_of, blocks, n_threads)))  # φᵀSGSφ
        self.steps = np.empty((0, rows.shape[1]))  # u of the measurements so far: S = I − Σuuᵀ

    def _squares_of(self, block: FloatArray) -> FloatArray:
        if len(self.factor) < self.factor.shape[1]:
            images = self.factor @ block.T
        else:
            images = blas.dtrmm(1.0, self.factor, block.T)
        return np.einsum("ji,ji->i", images, images)

    def gains(self) -> FloatArray:
        """Return the reduction of every candidate given the measurements so far, (n_candidates,)."""
        return self.unit * self.squares / (self.noise + self.variance)

    def measure(self, i: int) -> None:
        """Measure a candidate."""
        u = self._spread(self.rows[i]) / np.sqrt(self.noise[i] + self.variance[i])
        effect = self.factor @ u
        along, pull = self.rows @ u, self.rows @ self._spread(self.factor.T @ effect)
        self.squares += along * (along * (effect @ effect) - 2 * pull)
        self.variance -= along**2
        np.maximum(self.squares, 0.0, out=self.squares)  # rounding
        np.maximum(self.variance, 0.0, out=self.variance)
        self.steps = np.vstack([self.steps, u])

    def _spread(self, vector: FloatArray) -> FloatArray:
        """Return S times a vector."""
        return vector - self.steps.T @ (self.steps @ vector)


def _compressed(targets: FloatArray) -> FloatArray:
    """Return F with FᵀF the mean of φφᵀ over targets: as many rows as targets, or upper triangular if they are many."""
    if len(targets) < targets.shape[1]:
        return targets / np.sqrt(len(targets))
    gram = targets.T @ targets / len(targets)
    gram.flat[:: len(gram) + 1] += ROUNDING * gram.trace()  # rows may be fewer than they look
    return np.asarray(cholesky(gram, overwrite_a=True))


def choose_greedily(outputs: list[Reductions], cost: FloatArray, n: int) -> CandidateBatch:
    """Choose the candidates of largest reduction per cost, summed over outputs, one after another."""
    every: list[FloatArray] = []

    def gains(chosen: list[int]) -> FloatArray:
        for own in outputs:
            for best in chosen[-1:]:
                own.measure(best)
        every.append(np.sum([own.gains() for own in outputs], axis=0))
        return np.asarray(every[-1] / cost)

    indices = best_one_by_one(n, len(cost), gains)
    return CandidateBatch(indices, np.array([found[i] for found, i in zip(every, indices, strict=True)]))
