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

from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array, as_instance, short_repr
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.basis import Basis
from pydirect.features.maps import NystroemFeatures, TransformerFeatures
from pydirect.linear.decorrelated import DecorrelatedPosterior

BLOCK_ROWS = 1024
# At candidates and targets, beside those of a model that has seen few rows.
MORE_LANDMARKS = 500
ROUNDING = 1e-13  # of the trace


@dataclass(frozen=True)
class CandidateBatch:
    """Candidates to measure, best first.

    Attributes
    ----------
    indices : ndarray of shape (n,)
        Rows of the candidates.
    reductions : ndarray of shape (n,)
        By how much each lowers the variance of f given those before it, averaged over the targets and summed over
        outputs; in squared units of y, or of the transformed y.
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

    A model that has seen few rows has few landmarks, and would have more after a refit. As long as it has fewer than
    ``n_basis_functions``, up to 500 are added here at random candidates and targets; if that is all of them, reductions
    are those of the exact Gaussian process.

    Parameters
    ----------
    model : DirectRegressor
        Fitted, with ``basis="decorrelated"``. Its weights count as Gaussian. Variance between landmarks, and of a local
        process, is lowered by nothing and left out.
    candidates : array_like of shape (n_candidates, n_features_in)
        Rows that can be measured.
    targets : array_like of shape (n_targets, n_features_in), optional
        Where predictions matter; by default at the candidates.
    n : int, default=10
        Number of candidates to choose, none of them twice.
    costs : array_like of shape (n_candidates,), optional
        Positive; candidates are then chosen by their reduction per unit of cost.

    Returns
    -------
    CandidateBatch
        The chosen candidates.

    Raises
    ------
    TypeError
        If the model is none that has a Gaussian posterior in the decorrelated basis.
    ValueError
        If there are fewer candidates than `n`, or a cost is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor
    >>> from pydirect.decisions import select_batch
    >>> x = np.linspace(0.0, 1.0, 101)[:, None]
    >>> known = x[:40:4]  # nothing is known of the right part
    >>> model = DirectRegressor(features="polynomial", noise=0.01).fit(known, np.sin(3 * known[:, 0]))
    >>> select_batch(model, x, n=2).indices.tolist()
    [100, 81]
    """
    as_instance(model, "model", DirectRegressor)
    check_is_fitted(model)
    if not all(isinstance(posterior, DecorrelatedPosterior) for posterior in model.posteriors_):
        raise TypeError(f"model must have basis='decorrelated', got basis={model.basis!r}")
    as_count(n, "n")
    x = model._check_rows(candidates)
    if len(x) < n:
        raise ValueError(f"candidates must be at least n = {n} rows, got {len(x)}")
    cost = np.ones(len(x)) if costs is None else as_float_array(costs, "costs", (len(x),))
    if (cost <= 0).any():
        raise ValueError(f"costs must be positive, got {cost.min()}")
    others = None if targets is None else model._check_rows(targets)
    with single_blas_thread():  # the same bits for any number of threads
        basis = _with_more_landmarks(model, x if others is None else np.vstack([x, others]))
        outputs = [_reductions_of_output(model, basis, k, x, others) for k in range(len(model.posteriors_))]
        return choose_greedily(outputs, cost, n)


def _reductions_of_output(
    model: DirectRegressor, basis: Basis, k: int, x: FloatArray, targets: FloatArray | None
) -> Reductions:
    posterior = model.posteriors_[k]
    n_threads = 1 if isinstance(basis.map, TransformerFeatures) else resolve_n_threads(model.n_threads)
    n_weights = model.features_.n_weights
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
    if model.noise_model_ is not None:
        weights, values = model._noise_of(x)[k]
        noise = values @ weights
    unit = (model.calibration_scale_ * model.y_scale_[k] * model.prior_scale_[k]) ** 2
    return Reductions(rows, aims, noise / model.prior_scale_[k] ** 2, unit, n_threads)


def _with_more_landmarks(model: DirectRegressor, rows: FloatArray) -> Basis:
    """Return the basis with more landmarks, among rows, where it has fewer than it may have.

    Its functions stay as they are, and others follow that tell what they miss; their weights have their prior.
    """
    basis = model.features_
    if not isinstance(basis.map, NystroemFeatures):
        return basis
    room = min(model.n_basis_functions - basis.n_weights, MORE_LANDMARKS)
    if room <= 0:
        return basis
    known = basis.map.landmarks
    distinct, first = np.unique(np.vstack([known, basis.inputs(rows)]), axis=0, return_index=True)
    new = distinct[first >= len(known)]
    if len(new) > room:
        new = new[np.sort(model._generator().choice(len(new), room, replace=False))]
    landmarks = np.vstack([known, new])
    return replace(basis, map=NystroemFeatures.at(landmarks, basis.map.hyperparameters))


class Reductions:
    """By how much a measurement at each candidate lowers the variance over the targets.

    Weights are in units in which their covariance was I before the first measurement.

    Parameters
    ----------
    rows : ndarray of shape (n_candidates, n_weights)
        Of Φ.
    targets : ndarray of shape (n_targets, n_weights)
        Of Φ.
    noise : ndarray of shape (n_candidates,)
        Variance of the noise of a measurement.
    unit : float
        What a variance of one is worth.
    n_threads : int
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
    indices, reductions = np.empty(n, dtype=np.intp), np.empty(n)
    free = np.ones(len(cost), dtype=bool)
    for i in range(n):
        gains = np.sum([own.gains() for own in outputs], axis=0)
        best = int(np.argmax(np.where(free, gains / cost, -np.inf)))
        indices[i], reductions[i], free[best] = best, gains[best], False
        for own in outputs:
            own.measure(best)
    return CandidateBatch(indices, reductions)
