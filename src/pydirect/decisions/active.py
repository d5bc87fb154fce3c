"""Which candidates to measure: for predictions that are as certain as possible, or one after another by any score.

A measurement at φ, of noise variance σ², changes the covariance S of the weights by a rank of one, whatever comes out:

    S' = S − u uᵀ,   u = Sφ / √(σ² + φᵀSφ),

and the variances at targets Φ_t together by uᵀGu, G = Φ_tᵀΦ_t (MacKay 1992, *Information-based objective functions for
active data selection*; Cohn 1996, *Neural network exploration using optimal experiment design*). So the best one is
known beforehand: among all candidates for a product of matrices, and after each choice for a few with vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread, threads
from pydirect._validation import FloatArray, as_count, as_float_array, as_instance, as_number, short_repr
from pydirect.decisions.acquisition import best_one_by_one
from pydirect.estimators.choices import generator_of
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.basis import Basis
from pydirect.features.maps import NystroemFeatures
from pydirect.features.residual import residual_covariances
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.posterior import GaussianPosterior

BLOCK_ROWS = 1024
# At candidates and targets, beside those of a model that has seen few rows.
MORE_LANDMARKS = 500


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

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor
    >>> from pydirect.decisions import select_batch
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> model = DirectRegressor(local=False).fit(X, np.sin(6 * X[:, 0]))
    >>> batch = select_batch(model, np.linspace(1, 3, 50)[:, None], n=3)
    >>> len(batch.indices)
    3
    """
    fitted = _gaussian(model)
    as_count(n, "n")
    x = model.encode_rows(candidates)
    if len(x) < n:
        raise ValueError(f"candidates must be at least n = {n} rows, got {len(x)}")
    cost = np.ones(len(x)) if costs is None else as_float_array(costs, "costs", (len(x),))
    if (cost <= 0).any():
        raise ValueError(f"costs must be positive, got {cost.min()}")
    others = None if targets is None else model.encode_rows(targets)
    rng, every = generator_of(model.random_state), []
    with threads(model.n_threads), single_blas_thread():  # the same bits for any number of threads
        room = min(model.n_basis_functions - fitted.basis.n_weights, MORE_LANDMARKS)
        basis = _with_more_landmarks(fitted.basis, x if others is None else np.vstack([x, others]), room, rng)
        outputs = [reductions(fitted, basis, k, x, others) for k in range(len(fitted.posteriors))]

        def gains(chosen: list[int]) -> FloatArray:
            every.append(np.sum([own(chosen) for own in outputs], axis=0))
            return np.asarray(every[-1] / cost)

        indices = best_one_by_one(n, len(cost), gains)
    return CandidateBatch(indices, np.array([found[i] for found, i in zip(every, indices, strict=True)]))


def _gaussian(model: DirectRegressor) -> FittedRegressor:
    as_instance(model, "model", DirectRegressor)
    check_is_fitted(model)
    if not all(isinstance(posterior, GaussianPosterior) for posterior in model.posteriors_):
        raise TypeError(f"model must have posterior='gaussian', got {model.posterior!r}")
    return model.model_


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


def reductions(
    model: FittedRegressor, basis: Basis, k: int, x: FloatArray, targets: FloatArray | None
) -> Callable[[list[int]], FloatArray]:
    """Return by how much a measurement at each candidate lowers the variance of an output over the targets.

    A function of the rows chosen so far, which is called after each of them; (n_candidates,). Φ is in units in which
    the covariance of the weights is I, and f in those in which its prior scale is one.
    """
    posterior, scale = model.posteriors[k], float(model.latent.prior_scale[k])
    root = np.sqrt(posterior.prior_variance) * np.eye(basis.n_weights)
    known = slice(model.basis.n_weights)
    root[known, known] = posterior.covariance_root()
    project, n_threads = basis.projection(root), resolve_n_threads()

    def blockwise(function: Callable[[FloatArray], FloatArray], rows: FloatArray, n_threads: int) -> FloatArray:
        blocks = (rows[begin : begin + BLOCK_ROWS] for begin in range(0, len(rows), BLOCK_ROWS))
        return np.concatenate(list(ordered_map(function, blocks, n_threads)))

    def whitened(rows: FloatArray) -> FloatArray:
        return blockwise(lambda block: project(basis.inputs(block), 1), rows, n_threads if basis.map.parallel else 1)

    rows = whitened(x)
    aims = rows if targets is None else whitened(targets)
    # FᵀF is the mean of φφᵀ over targets: F has as many rows as they, or is triangular.
    factor = (aims if len(aims) < aims.shape[1] else np.linalg.qr(aims, "r")) / np.sqrt(len(aims))
    cross = blockwise(lambda block: block @ factor.T, rows, n_threads)  # covariances of candidates and rows of F
    noise = np.full(len(x), 1 / posterior.noise.precision) if model.noise is None else model.expected_noise(x)[:, k]
    n, noise = len(x), np.append(noise / scale**2, np.zeros(len(factor)))
    variance = np.append(np.square(rows).sum(axis=1), np.square(factor).sum(axis=1))
    joint = Candidates(np.zeros(len(noise)), variance, lambda j: np.append(rows @ rows[j], factor @ rows[j]), noise)
    unit = (model.units.calibration * model.units.scale[k] * scale) ** 2

    def gains(chosen: list[int]) -> FloatArray:
        for row in chosen[-1:]:
            step = joint.measure(row).steps[-1]
            np.subtract(cross, np.outer(step[:n], step[n:]), out=cross)
        return np.asarray(unit * np.einsum("ij,ij->i", cross, cross) / (noise + joint.variance)[:n])

    return gains


# --- the joint distribution of f at candidates


class Candidates:
    """Gaussian values f at rows, with exact rank-one changes when one of them is measured.

    A measurement y_j = f_j + noise changes means and covariances to

        μ' = μ + c (y_j − μ_j) / (c_j + σ²),   C' = C − c cᵀ / (c_j + σ²),   c = C e_j,

    of which only the diagonal and the columns that are asked for, by `column`, are ever formed.
    """

    def __init__(
        self,
        mean: FloatArray,
        variance: FloatArray,
        column: Callable[[int], FloatArray],
        noise_variance: float | FloatArray,
    ) -> None:
        self.mean, self.variance = mean.copy(), variance.copy()
        self.noise_variance = np.broadcast_to(np.asarray(noise_variance, dtype=np.float64), mean.shape)
        self._column = column
        self.steps: list[FloatArray] = []

    @classmethod
    def of(cls, model: DirectRegressor, X: ArrayLike) -> Self:
        """Take the posterior of f at rows of X, in units of y, with the model's noise."""
        fitted = _gaussian(model)
        latent, units, posterior = fitted.latent, fitted.units, fitted.posteriors[0]
        if len(fitted.posteriors) > 1:
            raise ValueError(f"model must be of one target, got {len(fitted.posteriors)}")
        if units.active is not None:
            raise ValueError(f"model must have no transformed target, got {units.active}: use target_transform=None")
        x, unit = latent.split(model.encode_rows(X))[0], float(units.scale[0] * units.calibration)
        scale = (unit * float(latent.prior_scale[0])) ** 2
        with threads(model.n_threads), single_blas_thread():
            mean, variance = latent.moments(x, with_variance=True)
            assert variance is not None
            inputs, phi = latent.phi(x)
            rows = phi @ posterior.covariance_root()

        def column(j: int) -> FloatArray:
            with single_blas_thread():
                own = residual_covariances(latent.basis, inputs, phi, latent.residual_variance, slice(j, j + 1))[:, 0]
                return scale * (rows @ rows[j] + own)

        means = units.location[0] + units.scale[0] * mean[:, 0]
        return cls(means, unit**2 * variance[:, 0], column, unit**2 * fitted.expected_noise(x)[:, 0])

    @property
    def std(self) -> FloatArray:
        """Deviations of f, (n_rows,)."""
        return np.sqrt(self.variance)

    def covariances(self, row: int) -> FloatArray:
        """Return covariances of f between all rows and one, given the measurements so far, (n_rows,)."""
        found = self._column(row)
        for step in self.steps:
            found = found - step * step[row]
        found[row] = self.variance[row]
        return found

    def measure(self, row: int, y: float | None = None) -> Self:
        """Condition on a measurement at a row, in place."""
        if as_count(row, "row", 0) >= len(self.mean):
            raise ValueError(f"row must be below the number of rows, {len(self.mean)}, got {row}")
        total = self.variance[row] + self.noise_variance[row]
        if total <= 0:
            return self  # known already
        column = self.covariances(row)
        if y is not None:
            self.mean += column * ((as_number(y, "y") - self.mean[row]) / total)
        step = column / np.sqrt(total)
        self.steps.append(step)
        self.variance = np.maximum(self.variance - step**2, 0.0)
        return self


def greedy_batch(
    candidates: Candidates, n: int, score: Callable[[FloatArray, FloatArray], FloatArray]
) -> NDArray[np.intp]:
    """Choose a batch of `n` rows: each of the best score, given measurements of those before it as they are expected.

    - `score`: From means and deviations of f, (n_rows,) each, to what is to be largest, such as ``lambda mean, std:
      log_expected_improvement(mean, std, best)``.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor
    >>> from pydirect.decisions import Candidates, greedy_batch, upper_confidence_bound
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> model = DirectRegressor(local=False).fit(X, np.sin(6 * X[:, 0]))
    >>> candidates = Candidates.of(model, np.linspace(0, 2, 40)[:, None])
    >>> len(greedy_batch(candidates, 3, upper_confidence_bound))
    3
    """

    def scores(chosen: list[int]) -> FloatArray:
        for row in chosen[-1:]:
            candidates.measure(row)
        return np.asarray(score(candidates.mean, candidates.std), dtype=np.float64)

    found = best_one_by_one(n, len(candidates.mean), scores)
    candidates.measure(int(found[-1]))
    return found
