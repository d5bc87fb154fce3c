"""Rows with labels, counts or other targets, held in memory, with their features computed block by block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import eigh, solve_triangular
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import log_expit, logsumexp

from pydirect import _core
from pydirect._dense import gram
from pydirect._threads import ordered_map, raise_if_set, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_float_array, as_sample_weight
from pydirect.logistic.ascent import MANY_FUNCTIONS, BoundEvaluation, LatentGaussian, LikelihoodMoments, State
from pydirect.logistic.gaussian import FullGaussian
from pydirect.logistic.latent import JAAKKOLA, SOFTMAX, LatentLikelihood
from pydirect.logistic.likelihood import RowTerms, log_sum_exp
from pydirect.statistics.gaussian import Block, IdentityFeatures, RowFeatures, block_rows, row_blocks
from pydirect.streams.rows import Rows

# Features of rows are buffered, instead of computed again at every iteration, up to this many bytes.
HELD_BYTES = 2**30
# Least share of a row's posterior variance that is left when its own site is taken out.
LEAST_LEFT = 1e-6
TINY = float(np.finfo(float).tiny)
# Relative residual of the solution that tells by how much means follow a row: its square is the error.
PROBE_TOLERANCE = 0.03
# Size of the sample whose fit is the start, and how many times as many rows have none.
START_ROWS = 4_000
START_ROWS_PER_WEIGHT = 8
ROWS_WITHOUT_START = 4
# Of L-BFGS for means at a given covariance; the next covariance moves them again.
MEAN_OPTIONS = {"maxiter": 20, "ftol": 1e-5, "gtol": 1e-3}
ITERATIONS_OF_MANY = 8  # of many functions, whose covariance costs no more than these
# Magnitudes of inputs whose products with residuals and weights are numbers of single precision.
SINGLE_RANGE = 1e-25, 1e25
# Factors of the precision of several classes among which left-out labels choose.
FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)

# From means of some of the rows to E log p(y | z) of each, or a stand-in, and its derivatives in the means.
BlockLikelihood = Callable[[FloatArray, slice], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class RotatedFeatures:
    """Basis functions times a matrix: a few directions of a larger basis."""

    features: RowFeatures
    vectors: FloatArray

    @property
    def n_weights(self) -> int:
        """Number of directions."""
        return self.vectors.shape[1]

    def transform(self, x: FloatArray, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ·vectors."""
        rotated: Block = self.features.transform(x, np.float64, n_threads) @ self.vectors
        return rotated.astype(dtype, copy=False)


@dataclass(frozen=True)
class RowsLeftOut:
    """Rows, each left out: means of their logits, and variances for each factor of the precision that is tried."""

    rows: LabelledRows
    mean: FloatArray  # (n_samples, n_functions)
    variance: FloatArray  # (n_samples, n_factors), one factor of one function

    @cached_property
    def log_probability(self) -> FloatArray:
        """Log probabilities of the labels, (n_factors, n_samples)."""
        return np.stack([self.rows.log_probability(self.mean, np.ascontiguousarray(v)) for v in self.variance.T])

    def place(self) -> int:
        """Return which factor makes the labels likeliest."""
        return int(np.argmax(self.log_probability @ self.rows.weight))

    @property
    def log_loss(self) -> float:
        """Mean −log probability of the labels with the best factor."""
        weight = self.rows.weight
        return -float(weight @ self.log_probability[self.place()] / weight.sum())


@dataclass(frozen=True)
class LabelledRows:
    """Rows of basis functions with labels ±1, or other targets: all that inference needs of the data."""

    features: RowFeatures  # from rows of x to Φ
    x: FloatArray  # (n_samples, n_features_in): rows of inputs
    # (n_samples, n_functions): −1 or 1. One function for two classes; else one per class, with a single 1 in every row.
    # Of other likelihoods, (n_samples, n_columns): what they take.
    t: FloatArray
    weight: FloatArray  # (n_samples,): how many times each row counts, positive
    offset: FloatArray  # (n_functions,) or (n_samples, n_functions): added to φᵀw: prior means of the latents
    model: LatentLikelihood = SOFTMAX  # likelihood of the targets
    n_threads: int = 1  # number of threads; results have the same bits for any
    learns_offset: bool = False  # whether one offset of all rows moves with the likelihood's parameters
    offset_variance: FloatArray | float = 0.0  # (n_samples,): of what offsets are the means of, where rows are left out

    @classmethod
    def from_arrays(
        cls,
        phi: ArrayLike,
        t: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        offset: ArrayLike = 0.0,
        likelihood: str = "softmax",
        n_threads: int | None = None,
    ) -> Self:
        """Build from a design matrix."""
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        labels = np.asarray(t, dtype=np.float64)
        labels = labels[:, None] if labels.ndim == 1 else labels
        labels = as_float_array(labels, "t", (len(phi), "n_functions"))
        if not (np.abs(labels) == 1).all():
            raise ValueError(f"t must be -1 or 1, got {labels[np.abs(labels) != 1][0]}")
        n_functions = labels.shape[1]
        if n_functions > 1 and not ((labels > 0).sum(axis=1) == 1).all():
            raise ValueError("t must have a single 1 in every row")
        model = {"softmax": SOFTMAX, "jaakkola": JAAKKOLA}[as_choice(likelihood, "likelihood", ("softmax", "jaakkola"))]
        if likelihood != "softmax" and n_functions > 1:
            raise ValueError(f"t must have one function for likelihood={likelihood!r}, got {n_functions}")
        weight = as_sample_weight(sample_weight, len(phi))
        weight = np.ones(len(phi)) if weight is None else weight
        used = weight > 0  # rows of weight zero count as absent
        if not used.all():
            phi, labels, weight = phi[used], labels[used], weight[used]
        offsets = as_float_array(np.broadcast_to(np.asarray(offset, float), n_functions), "offset", (n_functions,))
        threads = resolve_n_threads(n_threads)
        return cls(IdentityFeatures(phi.shape[1]), phi, labels, weight, offsets, model, threads)

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.features.n_weights

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.x)

    @property
    def n_functions(self) -> int:
        """Number of latents of a row."""
        return self.offset.shape[-1]

    @cached_property
    def offsets(self) -> FloatArray:
        """Offsets of every row, (n_samples, n_functions)."""
        return np.broadcast_to(self.offset, (self.n_samples, self.n_functions))

    def log_probability(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Log E p(y | z) of every row's target for Gaussian z of these moments, (n_samples,)."""
        return self.model.log_predictive(self.t, mean[:, 0] if self.n_functions == 1 else mean, variance)

    def problem(self, t: FloatArray, offset: float) -> Self:
        """Return the same rows with one function of other labels and another prior mean, for Jaakkola's bound."""
        return replace(self, t=np.ascontiguousarray(t[:, None]), offset=np.array([float(offset)]), model=JAAKKOLA)

    def map_blocks(self, function: Callable[[Any, slice], Any], dtype: DTypeLike = np.float64) -> Iterator[Any]:
        """Apply a function to blocks of Φ and the slice of rows that each holds; results in order."""

        def of_block(bounds: tuple[int, int]) -> Any:
            rows = slice(*bounds)
            return function(np.ascontiguousarray(self.features.transform(self.x[rows], dtype, 1)), rows)

        return ordered_map(of_block, row_blocks(self.n_samples, block_rows(self.n_weights, np.float64)), self.n_threads)

    @cached_property
    def single(self) -> Self:
        """The same rows with Φ in single precision, if it is in memory and in range and the functions are many."""
        many = self.is_held and self.n_functions >= MANY_FUNCTIONS
        if not many or not SINGLE_RANGE[0] < np.abs(self.x).max(initial=0.0) < SINGLE_RANGE[1]:
            return self
        return replace(self, x=self.x.astype(np.float32))

    @single_blas_thread()
    def moments(self, latent: LatentGaussian | LikelihoodMoments) -> tuple[FloatArray, FloatArray]:
        """Means (n_samples, n_functions) and variance (n_samples,) of the logits at every row."""
        if isinstance(latent, LikelihoodMoments):
            return self.offset + latent.row_mean, latent.row_variance
        mean, variance = np.empty((self.n_samples, self.n_functions)), np.empty(self.n_samples)

        def fill(phi: FloatArray, rows: slice) -> None:
            mean[rows], variance[rows] = latent.latent_moments(phi)

        for _ in self.map_blocks(fill, self.x.dtype):
            pass
        return self.offset + mean, variance

    def evaluate(self, latent: LatentGaussian | LikelihoodMoments, target_step: float | None = None) -> BoundEvaluation:
        """Evaluate a posterior at all rows, as a `RowSource`.

        With `target_step`, its gradient is that of regression at weights of zero on the means and as many Newton steps.
        """

        def of_block(phi: FloatArray, rows: slice) -> BoundEvaluation:
            if isinstance(latent, LikelihoodMoments):
                mean, variance = latent.row_mean[rows], latent.row_variance[rows]
            else:
                mean, variance = latent.latent_moments(phi)
            terms = self.model.terms(self.t[rows], mean + self.offsets[rows], variance)
            if target_step is not None:
                terms = replace(terms, residual=target_step * terms.residual + terms.precision[:, None] * mean)
            return evaluated(phi, terms, self.weight[rows])

        return total(self.single.map_blocks(of_block, self.single.x.dtype), self.n_weights, self.n_functions)

    def times(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return Φ times weights (n_weights, n_functions), in their precision."""
        return np.concatenate(list(self.map_blocks(lambda phi, _: phi @ weights, weights.dtype)))

    def improved(self, posterior: FullGaussian, variance: float) -> LikelihoodMoments:
        """Return a posterior of the same covariance with the best means, by L-BFGS on coordinates of unit variance.

        Of many functions, integrals over the softmax would be dearer than more steps, and products with Φ are of single
        precision: the means need not be better than to some digits.
        """
        shape, rows_of, dtype = posterior.mean.shape, self.single, self.single.x.dtype
        root = posterior.root.astype(dtype, copy=False)
        at, row_variance = rows_of.moments(FullGaussian(root, posterior.mean.astype(dtype)))
        many = self.n_functions >= MANY_FUNCTIONS
        likelihood = self._tilted(at, row_variance) if many else self._exact(row_variance)

        def objective(flat: FloatArray) -> tuple[float, FloatArray]:
            mean = root @ flat.reshape(shape).astype(dtype)
            row_mean = self.offset + rows_of.times(mean)

            def of_block(phi: NDArray[Any], rows: slice) -> tuple[float, FloatArray]:
                value, residual = likelihood(row_mean[rows], rows)
                return float(self.weight[rows] @ value), phi.T @ (self.weight[rows, None] * residual).astype(dtype)

            value, slope = 0.5 * float(np.vdot(mean, mean)) / variance, -mean / variance
            for part, gradient in rows_of.map_blocks(of_block, dtype):
                value, slope = value - part, slope + gradient
            return value, -(root.T @ slope).ravel().astype(np.float64)

        start = solve_triangular(posterior.root, posterior.mean)
        options = MEAN_OPTIONS | ({"maxiter": ITERATIONS_OF_MANY} if many else {})
        found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options=options)
        mean = posterior.root @ found.x.reshape(shape)
        return LikelihoodMoments(mean, self.times(mean), row_variance)

    def _exact(self, variance: FloatArray) -> BlockLikelihood:
        """Return E log p(y | z) and its derivatives in the means, at some of the rows."""

        def at(mean: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray]:
            terms = self.model.terms(self.t[rows], mean, variance[rows])
            return terms.value, terms.residual

        return at

    def _tilted(self, mean: FloatArray, variance: FloatArray) -> BlockLikelihood:
        """Return what `_exact` does, without integrals: for a softmax with offsets by which it agrees at a mean.

        Where the means are best, so that they stay, is the same.
        """
        right = self.t > 0
        probability = right - self.model.terms(self.t, mean, variance).residual
        tilt = np.log(np.maximum(probability, TINY)) - mean

        def at(mean: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray]:
            logit = mean + tilt[rows]
            log_probability = logit - log_sum_exp(logit)[:, None]
            return log_probability[right[rows]], right[rows] - np.exp(log_probability)

        return at

    def with_improved(self, latent: LatentGaussian | LikelihoodMoments) -> tuple[Self, float]:
        """Return the same rows with the likelihood that fits best, given a posterior, and how far parameters moved."""
        mean, variance = self.moments(latent)
        model, offset, moved = self.model.improved(self.t, mean, variance, self.weight), self.offset, 0.0
        if model.parameters.size:
            moved = float(np.abs(model.parameters - self.model.parameters).max())
        if self.learns_offset:
            terms = model.terms(self.t, mean, variance)
            information = max(float(self.weight @ terms.precision), 1e-300)
            step = float(self.weight @ terms.residual[:, 0]) / information
            offset, moved = offset + step, max(moved, abs(step) * np.sqrt(information / self.weight.sum()))
        return replace(self, model=model, offset=offset), moved

    def left_out(self, latent: LatentGaussian | LikelihoodMoments, state: State | None = None) -> RowsLeftOut:
        """Return what is predicted of every row without it, to second order; of a state for all `FACTORS`.

        Without its site, of precision h and residual r, a row's logits have the variance c = v/(1 − hv) and means lower
        by that times r. Several classes have one covariance, but their means obey the curvature of every row's own
        classes, which is larger where few are in question: c of the means is that at the factor of `follows`.
        """
        mean, variance = self.moments(latent)
        terms, one = self.model.terms(self.t, mean, variance), np.minimum(self.weight, 1.0)

        def without(spread: FloatArray, factors: FloatArray, copies: FloatArray) -> FloatArray:
            return spread / np.maximum(1 - (copies * terms.precision)[:, None] * factors * spread, LEAST_LEFT)

        factors, spread = np.ones(1), variance[:, None]
        moved = found = without(spread, factors, one)
        if state is not None and self.n_functions > 1:
            factors = np.array(FACTORS)
            unit, share = self.in_unit_directions(state)
            spread = unit.sharpened_variances(share, factors)
            found = without(spread, factors, one)
            if unit.is_held:  # of more rows than fit into memory, none moves the means by much
                factor = np.array([unit.follows(terms, share, without(spread, factors, self.weight))])
                moved = without(unit.sharpened_variances(share, factor), factor, one)
        found = found + np.reshape(self.offset_variance, (-1, 1))
        return RowsLeftOut(self, mean - moved * one[:, None] * terms.residual, found)

    def in_unit_directions(self, state: State) -> tuple[Self, FloatArray]:
        """Return the rows in directions of unit variance under (A + I/τ)⁻¹, and A's share of the precision of each."""
        eigenvalues, vectors = eigh(state.gram, check_finite=False, driver="evd")
        information = np.maximum(eigenvalues, 0.0)
        precision = information + np.exp(-state.log_variance)
        turn, rows = vectors / np.sqrt(precision), self.single
        unit = replace(rows, x=rows.times(turn.astype(rows.x.dtype))) if self.is_held else self.rotated(turn)
        return unit, information / precision

    def sharpened_variances(self, share: FloatArray, factors: FloatArray) -> FloatArray:
        """Variances of φᵀw under (sA + I/τ)⁻¹ for several s, (n_samples, n_factors), of rows in unit directions."""
        variances = 1 / (1 + share[:, None] * (factors - 1))
        return np.concatenate(list(self.map_blocks(lambda phi, _: phi**2 @ variances)))

    def follows(self, terms: RowTerms, share: FloatArray, without: FloatArray) -> float:
        """Return at which factor of A the rows' residuals have the variance Σ rᵀCr of the whole curvature.

        That curvature is the sum over rows of H = E[diag(π) − ππᵀ], about proportional to that of expected
        probabilities, and C are covariances of a row's logits under it; a random sign for every row makes the sum a
        single solution (Hutchinson 1989). Under a factor, C is (I/c + H)⁻¹ with variances c `without` the row,
        (n_samples, n_factors).
        """
        residual, p = self.weight[:, None] * terms.residual, (self.t > 0) - terms.residual
        scale = self.weight * (self.n_functions - 1) * terms.precision / np.maximum((p * (1 - p)).sum(axis=1), TINY)
        phi, signs = self.single.x, np.random.default_rng(0).choice([-1.0, 1.0], (self.n_samples, 1))
        probe = phi.T @ (signs * residual).astype(phi.dtype)

        def curved(flat: FloatArray) -> FloatArray:
            direction = flat.reshape(probe.shape)
            moved = p * (phi @ direction.astype(phi.dtype))
            moved = scale[:, None] * (moved - p * moved.sum(axis=1, keepdims=True))
            return (phi.T @ moved.astype(phi.dtype) + (1 - share)[:, None] * direction).ravel()

        solved, _ = cg(LinearOperator((probe.size, probe.size), matvec=curved), probe.ravel(), rtol=PROBE_TOLERANCE)
        exact, shared, root = float(probe.ravel() @ solved), [], np.sqrt(scale)[:, None] * p
        for spread in without.T:  # Sherman and Morrison
            diagonal = 1 / np.maximum(spread, TINY)[:, None] + scale[:, None] * p
            own, turned = residual**2 / diagonal, root / diagonal
            found = own.sum(axis=1) + (turned * residual).sum(axis=1) ** 2 / (1 - (turned * root).sum(axis=1))
            shared.append(float(found.sum()))
        return float(np.exp(np.interp(-np.log(max(exact, TINY)), -np.log(np.maximum(shared, TINY)), np.log(FACTORS))))

    def log_likelihoods(self, weights: FloatArray) -> FloatArray:
        """Σ ω log p(y | w) of draws of the weights, (n_draws,); `weights`, (n_weights, n_functions, n_draws)."""

        def of_block(phi: FloatArray, rows: slice) -> FloatArray:
            z = (phi @ weights.reshape(len(weights), -1)).reshape(len(phi), *weights.shape[1:])
            z, t, weight = z + self.offsets[rows, :, None], self.t[rows], self.weight[rows]
            if self.n_functions == 1:
                return weight @ log_expit(t * z[:, 0])
            return weight @ (z[t > 0] - logsumexp(z, axis=1))

        return np.sum(list(self.map_blocks(of_block)), axis=0)

    def rotated(self, vectors: FloatArray) -> Self:
        """Return the rows of Φ·vectors, held when they fit into memory."""
        return replace(self, features=RotatedFeatures(self.features, vectors)).held()

    def chosen(self, rows: NDArray[np.intp]) -> Self:
        """Return some of the rows."""
        return replace(self, x=self.x[rows], t=self.t[rows], weight=self.weight[rows], offset=self.offsets[rows])

    def sample(self, size: int) -> Self:
        """Return a random subset of the rows, held, reweighted to the total weight of all rows."""
        part = self.chosen(np.sort(np.random.default_rng(0).choice(self.n_samples, size, replace=False)))
        return replace(part, weight=part.weight * (self.weight.sum() / part.weight.sum())).held()

    @property
    def start_size(self) -> int:
        """Number of rows of the sample whose fit is the start."""
        return max(START_ROWS, START_ROWS_PER_WEIGHT * self.n_weights)

    @property
    def is_held(self) -> bool:
        """Whether `x` is Φ."""
        return isinstance(self.features, IdentityFeatures)

    @single_blas_thread()
    def held(self, *, however_large: bool = False) -> Self:
        """Return the same rows with Φ computed once, when it takes little memory or is needed."""
        if self.is_held or (8 * self.n_samples * self.n_weights > HELD_BYTES and not however_large):
            return self
        phi = np.concatenate(list(self.map_blocks(lambda phi, _: phi)))
        return replace(self, features=IdentityFeatures(self.n_weights), x=phi)

    def mean_square(self) -> float:
        """Mean of φᵀφ over the rows."""
        squares: Any = sum(self.map_blocks(lambda phi, part: self.weight[part] @ np.einsum("ij,ij->i", phi, phi)))
        return float(squares) / float(self.weight.sum())


def evaluated(phi: FloatArray, terms: RowTerms, weight: FloatArray) -> BoundEvaluation:
    """Return the sums over rows of Φ with given terms."""
    root = np.sqrt(weight * terms.precision).astype(phi.dtype)
    gradient = phi.T @ (weight[:, None] * terms.residual).astype(phi.dtype)
    return BoundEvaluation(float(weight @ terms.value), gram(phi * root[:, None]).astype(np.float64), gradient)


def total(parts: Iterable[BoundEvaluation], n_weights: int, n_functions: int, n_threads: int = 1) -> BoundEvaluation:
    """Return the sum of evaluations of blocks of rows."""
    value, gram, gradient = 0.0, np.zeros((n_weights, n_weights)), np.zeros((n_weights, n_functions))
    for part in parts:
        value += part.log_likelihood
        _core.add_upper_triangle(part.gram, gram, n_threads)
        gradient += part.gradient
    _core.mirror_upper_triangle(gram, n_threads)
    return BoundEvaluation(value, gram, gradient)


@dataclass(frozen=True)
class RowPasses:
    """Rows with labels ±1, read again for every evaluation."""

    features: RowFeatures  # of the rows' x
    open: Callable[[], Iterator[Rows]]  # returns an iterator over all rows, in blocks; y, (n_rows, n_functions): labels
    offset: FloatArray  # (n_functions,): prior means of the logits
    n_threads: int
    stop: threading.Event = field(default_factory=threading.Event)  # when it is set, there are no further passes

    def evaluate(self, latent: LatentGaussian) -> BoundEvaluation:
        """Evaluate a posterior in one pass, as a `RowSource`; the same bits for any number of threads."""
        raise_if_set(self.stop)
        parts = self._map(lambda rows: rows.evaluate(latent))
        return total(parts, self.features.n_weights, len(self.offset), self.n_threads)

    def log_likelihoods(self, weights: FloatArray) -> FloatArray:
        """Σ ω log p(y | w) of draws of the weights, in one pass; see `LabelledRows.log_likelihoods`."""
        return np.sum(list(self._map(lambda rows: rows.log_likelihoods(weights))), axis=0)

    def _map(self, function: Callable[[LabelledRows], Any]) -> Iterator[Any]:
        """Apply a function to blocks of rows; results in order."""

        def of_block(rows: Rows) -> Any:
            weight = np.ones(len(rows)) if rows.weight is None else rows.weight
            return function(LabelledRows(self.features, rows.x, rows.y, weight, self.offset))

        return ordered_map(of_block, self.open(), self.n_threads)
