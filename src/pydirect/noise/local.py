"""A local Gaussian process on what a model of all rows leaves over: every prediction from the nearest training rows.

With leave-one-out residuals r of the global model and inputs u scaled by its length-scales,

    y* = φ(x)ᵀw + g(x) + ε,    g ~ GP(0, s² k(‖u − u'‖/ρ)),    Var ε = s²η,

where k is the Matérn-3/2 correlation. Given only the k nearest rows N, ĝ = k_Nᵀ(K_NN + ηI)⁻¹ r_N, with the variance
s² (1 − k_Nᵀ(K_NN + ηI)⁻¹ k_N) (local kriging: Vecchia 1988; Gramacy & Apley 2015). Residuals of rows that were left out
have the global posterior's error in them already, so that this variance is all of it. The scale is a compromise between
one for all rows and that of the neighbours, as under an inverse-gamma prior:

    s² = κ c + (1 − κ) r_Nᵀ(K_NN + ηI)⁻¹ r_N / k.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from pydirect import _core
from pydirect._threads import ordered_map, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.noise.fit import NoiseProblem, RowMoments
from pydirect.persistence.schema import AtLeast, AtMost, Indices, Positive, Shape

Float32Array = NDArray[np.float32]

# Up to this many dimensions of equal spread a tree is faster than all distances, at 40,000 rows.
MOST_TREE_DIMENSIONS = 5.0
DISTANCE_BYTES = 2**21  # distances held at a time: what the cache holds
N_GROUPS = 32  # the nearest rows are among those of the groups with the nearest representatives
HELD_OUT_ROWS = 1500
# Length-scales in units of the median distance of a neighbour; noise and the common scale's share of the variance.
LENGTH_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
NOISE = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
POOLING = (1.0, 0.5, 0.25, 0.1)
FIRST_POINT = (1, 2)  # where the search of the grid of length-scales and noise begins
COMMON_SCALES = 4.0 ** np.arange(-6, 3)  # in units of the c without local scales
NEGLIGIBLE_SPREAD = 1e-4  # of the variance of the scaled inputs, in columns that are dropped
FARTHEST = 1e15  # scaled inputs, so that squares stay finite in single precision
SMALLEST_SCALE = 1e-30
FEWEST_SHARED = 4  # functions from which inverses that serve all of them are cheaper
BLOCK_BYTES = 2**20  # covariances held at a time: what the cache holds
N_NEIGHBOURS = 32
LARGEST_ERROR = 1.01  # of left-out rows, squared and relative to the global model's
CLEARLY_CLOSER = 0.9
SMALLEST_GAIN = 0.02  # nats per row
ROWS_PER_FEATURE, FEWEST_ROWS = 2, 1000
# At a first look: rows that are left out, and the error from which nothing is looked at further.
FIRST_HELD_ROWS = 400
CLEARLY_FARTHER = 1.05


class Neighbours:
    """The nearest of fixed rows, the same for any number of threads.

    - `rows`, (n_rows, n_columns): centred, so that single precision resolves small distances.
    """

    def __init__(self, rows: Float32Array) -> None:
        self.rows = rows

    def __reduce__(self) -> Any:
        return Neighbours, (self.rows,)

    @cached_property
    def _tree(self) -> KDTree | None:
        return KDTree(self.rows) if effective_dimensions(self.rows) <= MOST_TREE_DIMENSIONS else None

    @cached_property
    def _table(self) -> Float32Array:
        """[−2uᵀ; ‖u‖²] of all rows, padded by infinitely distant ones to whole groups; (n_columns + 1, ...)."""
        padded = np.zeros((self.rows.shape[1] + 1, len(self.rows) + -len(self.rows) % N_GROUPS), dtype=np.float32)
        padded[:-1, : len(self.rows)] = -2 * self.rows.T
        padded[-1] = np.inf
        padded[-1, : len(self.rows)] = np.einsum("ij,ij->i", self.rows, self.rows)
        return padded

    def prepare(self) -> None:
        """Build what queries use, before several threads ask for it."""
        if self._tree is None:
            _ = self._table

    def nearest(self, queries: Float32Array, k: int) -> NDArray[np.intp]:
        """Return the indices of the k nearest rows, in any order; (n_queries, k).

        - `queries`, (n_queries, n_columns).
        - `k`: at most the number of rows.
        """
        if k == len(self.rows):
            return np.tile(np.arange(k), (len(queries), 1))
        if self._tree is not None:
            return np.asarray(self._tree.query(queries, k)[1], dtype=np.intp).reshape(len(queries), k)
        size = max(1, DISTANCE_BYTES // (4 * self._table.shape[1]))
        blocks = [self._nearest_of_all(queries[begin : begin + size], k) for begin in range(0, len(queries), size)]
        return np.concatenate(blocks) if blocks else np.empty((0, k), dtype=np.intp)

    def _nearest_of_all(self, queries: Float32Array, k: int) -> NDArray[np.intp]:
        """Return the k nearest rows by ‖u‖² − 2uᵀq, first among the minima of groups of rows."""
        distance = np.hstack([queries, np.ones((len(queries), 1), dtype=np.float32)]) @ self._table
        minima = distance.reshape(len(queries), N_GROUPS, -1).min(axis=1)
        width = minima.shape[1]
        if k >= width:
            return np.argpartition(distance, k - 1, axis=1)[:, :k]
        groups = np.argpartition(minima, k - 1, axis=1)[:, :k]
        rows = (np.arange(N_GROUPS)[:, None] * width + groups[:, None, :]).reshape(len(queries), -1)
        chosen = np.argpartition(np.take_along_axis(distance, rows, axis=1), k - 1, axis=1)[:, :k]
        return np.take_along_axis(rows, chosen, axis=1)


def effective_dimensions(rows: Float32Array) -> float:
    """Return how many columns of equal variance are as spread out: (Σ v)²/Σ v²."""
    variance = rows.var(axis=0, dtype=np.float64)
    total = variance.sum()
    return float(total**2 / (variance @ variance)) if total > 0 else 0.0


def used_columns(u: FloatArray, negligible: float) -> NDArray[np.intp]:
    """Return the columns without those of least variance that together have this fraction of the whole."""
    variance = u.var(axis=0)
    order = np.argsort(variance, kind="stable")
    dropped = np.cumsum(variance[order]) <= negligible * variance.sum()
    dropped[-1] = False  # one stays, whatever it is
    return np.sort(order[~dropped])


class LocalMoments(NamedTuple):
    """Mean and variance of g, and variance of the noise; (n_rows, n_outputs) each."""

    mean: FloatArray
    variance: FloatArray
    noise: FloatArray


@dataclass(frozen=True, repr=False)
class LocalProcess:
    """Gaussian processes on residuals, one per output, that share their neighbours.

    Attributes
    ----------
    columns : ndarray of int, shape (n_columns,)
        Inputs that are used; the others hardly change any distance.
    inverse_scales, centre : ndarray of shape (n_columns,)
        u = x · inverse_scales − centre.
    u : ndarray of float32, shape (n_rows, n_columns)
        Scaled inputs of the training rows.
    r : ndarray of float32, shape (n_rows, n_outputs)
        Their leave-one-out residuals.
    weight : ndarray of float32, shape (n_rows,)
        Their weights ω: the noise variance of row i is s²η/ω_i.
    rho, eta, c, pooling : ndarray of shape (n_outputs,)
        Length-scale in units of u, noise variance over s², common scale, and its share κ of s².
    k : int
        Number of neighbours.
    gain : ndarray of shape (n_outputs,)
        Log density that training rows gained when they were left out, in nats per row.
    squared_error : ndarray of shape (n_outputs,)
        Their mean squared error, relative to that of the global model.
    """

    columns: Annotated[NDArray[np.intp], Shape("n_columns"), Indices("n_inputs")]
    inverse_scales: Annotated[FloatArray, Shape("n_columns"), Positive]
    centre: Annotated[FloatArray, Shape("n_columns")]
    u: Annotated[Float32Array, Shape("n_rows", "n_columns")]
    r: Annotated[Float32Array, Shape("n_rows", "n_outputs")]
    weight: Annotated[Float32Array, Shape("n_rows"), Positive]
    rho: Annotated[FloatArray, Shape("n_outputs"), Positive]
    eta: Annotated[FloatArray, Shape("n_outputs"), Positive]
    c: Annotated[FloatArray, Shape("n_outputs"), Positive]
    pooling: Annotated[FloatArray, Shape("n_outputs"), Positive, AtMost(1.0)]
    k: Annotated[int, AtLeast(1)]
    gain: Annotated[FloatArray, Shape("n_outputs")]
    squared_error: Annotated[FloatArray, Shape("n_outputs")]

    def __repr__(self) -> str:
        numbers = (f"{name}={_shown(getattr(self, name))}" for name in ("rho", "eta", "c", "pooling", "gain"))
        return f"LocalProcess({len(self.u)} rows, k={self.k}, {', '.join(numbers)})"

    @cached_property
    def neighbours(self) -> Neighbours:
        """The training rows, to be searched."""
        return Neighbours(self.u)

    def predict(self, inputs: FloatArray, n_threads: int = 1) -> LocalMoments:
        """Predict what the global model leaves over.

        Parameters
        ----------
        inputs : ndarray of shape (n_rows, n_inputs)
            Of the feature map.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        LocalMoments
            Means and variances of the residuals.
        """
        queries, k = _scaled(inputs, self.columns, self.inverse_scales, self.centre), min(self.k, len(self.u))
        self.neighbours.prepare()
        moments = LocalMoments(*np.empty((3, len(queries), self.r.shape[1])))

        def solve(rows: slice) -> None:
            chosen = self.neighbours.nearest(queries[rows], k)
            distances, weight = _core.neighbour_distances(queries[rows], self.u, chosen, 1), self.weight[chosen]
            for j, pooling in enumerate(self.pooling):
                factors = _core.neighbour_factors(distances, weight, self.rho[j], self.eta[j], 1)
                mean, left, scatter = _core.krige(factors, self.r[chosen, j], 1)
                scale = pooling * self.c[j] + (1 - pooling) * scatter
                moments.mean[rows, j], moments.variance[rows, j] = mean, scale * left
                moments.noise[rows, j] = scale * self.eta[j]

        with single_blas_thread():
            for _ in ordered_map(solve, _blocks(len(queries), k, self.u.shape[1]), n_threads):
                pass
        return moments


# −mean log density of rows that were left out; ρ, η, κ and c that it is at; mean squared error.
Score = tuple[float, float, float, float, float, float]


@dataclass(frozen=True)
class NeighbourSets:
    """Where rows are that are left out, and their nearest neighbours; residuals come later, of these rows alone.

    Attributes
    ----------
    columns, inverse_scales, centre, u, weight, k
        As of `LocalProcess`.
    held : ndarray of shape (n_held,)
        Rows that are left out, one at a time.
    kept : dict, optional
        Factors of each length-scale and noise, which many residuals share; 7 MB each with 1500 rows and 32 neighbours.
    """

    columns: NDArray[np.intp]
    inverse_scales: FloatArray
    centre: FloatArray
    u: Float32Array
    weight: Float32Array
    k: int
    neighbours: Neighbours
    held: NDArray[np.intp]
    kept: dict[tuple[float, float], FloatArray] | None = None

    @classmethod
    def of(
        cls, inputs: FloatArray, length_scales: FloatArray, weight: FloatArray, k: int, held: NDArray[np.intp]
    ) -> Self:
        """Scale the inputs.

        Parameters
        ----------
        inputs : ndarray of shape (n_rows, n_inputs)
            Of distinct rows.
        length_scales : ndarray of shape (n_inputs,)
            Of the global model.
        weight : ndarray of shape (n_rows,)
            Positive.
        k : int
            Number of neighbours.
        held : ndarray of shape (n_held,)
        """
        columns = used_columns(np.clip(inputs / length_scales, -FARTHEST, FARTHEST), NEGLIGIBLE_SPREAD)
        inverse_scales = 1 / length_scales[columns]
        u = _scaled(inputs, columns, inverse_scales, np.zeros(len(columns)))
        centre = u.mean(axis=0, dtype=np.float64)
        u = _scaled(inputs, columns, inverse_scales, centre)
        omega = (weight / weight.mean()).astype(np.float32)
        return cls(columns, inverse_scales, centre, u, omega, k, Neighbours(u), held)

    def at(self, held: NDArray[np.intp]) -> NeighbourSets:
        """Return those of other rows that are left out."""
        return replace(self, held=held, kept=None if self.kept is None else {})

    @cached_property
    def distances(self) -> FloatArray:
        """Squared distances of the rows that are left out and their neighbours, as of `neighbour_distances`."""
        return _core.neighbour_distances(self.u[self.held], self.u, self.chosen, 1)

    @cached_property
    def chosen(self) -> NDArray[np.intp]:
        """Neighbours of the rows that are left out, (n_held, k)."""
        k = min(self.k, len(self.u) - 1)
        with single_blas_thread():
            found = self.neighbours.nearest(self.u[self.held], k + 1)
        itself = found == self.held[:, None]
        itself[~itself.any(axis=1), -1] = True  # so many rows at the same place that it is not among them
        return found[~itself].reshape(len(self.held), k)

    @property
    def rows(self) -> NDArray[np.intp]:
        """Rows that are left out and their neighbours, (n_distinct,)."""
        return np.unique(np.append(self.chosen, self.held))

    def fit(self, residuals: FloatArray, log_density: FloatArray) -> LocalProcess:
        """Choose length-scale, noise and pooling by the log density of rows that are left out.

        Parameters
        ----------
        residuals : ndarray of shape (n_rows, n_outputs)
            Leave-one-out residuals of the global model; those of other rows than `rows` are only kept.
        log_density : ndarray of shape (n_held, n_outputs)
            Leave-one-out log densities of the rows that are left out, by the global model.
        """
        r, held, k = residuals.astype(np.float32), self.held, self.chosen.shape[1]
        weight = self.weight[held]
        to_the_row = np.cumsum(np.arange(k, 0, -1)) - 1  # in `distances`
        with single_blas_thread():
            unit = float(np.sqrt(np.median(self.distances[:, to_the_row]))) or 1.0
            best = [self.best(own, unit) for own in r.T]
        objective, rho, eta, pooling, c, error = np.array(best).T
        gain = np.where(r[held].any(axis=0), -objective - np.average(log_density, axis=0, weights=weight), 0.0)
        before = np.average(r[held].astype(np.float64) ** 2, axis=0, weights=weight)
        relative = np.divide(error, before, out=np.ones_like(error), where=before > 0)
        parameters = (rho, eta, c, pooling, self.k, gain, relative)
        return LocalProcess(self.columns, self.inverse_scales, self.centre, self.u, r, self.weight, *parameters)

    def best(self, residuals: Float32Array, unit: float) -> Score:
        """Return the best point of the grid, length-scales in units of `unit`, by steps to better neighbours on it.

        `residuals`, (n_rows,).
        """
        known: dict[tuple[int, int], Score] = {}
        centre, best = (-1, -1), FIRST_POINT
        while best != centre:
            centre = best
            for i in range(max(centre[0] - 1, 0), min(centre[0] + 2, len(LENGTH_SCALES))):
                for j in range(max(centre[1] - 1, 0), min(centre[1] + 2, len(NOISE))):
                    if (i, j) not in known:
                        known[i, j] = self.score(residuals, unit * LENGTH_SCALES[i], NOISE[j])
            best = min(known, key=known.__getitem__)
        return known[best]

    def score(self, residuals: Float32Array, rho: float, eta: float) -> Score:
        """Return the best score over κ and c; at κ = 1 that c is the mean of (r − ĝ)²/q, q the variance over s²."""
        mean, left, scatter = self.krige(residuals[self.chosen], rho, eta)
        share = self.weight[self.held].astype(np.float64)
        share /= share.sum()
        q = left + eta  # of one new observation, however often the row was seen
        square = (residuals[self.held] - mean) ** 2
        error, mean_square = square / q, float(square @ share)
        c = max(float(error @ share), SMALLEST_SCALE)
        spread = 0.5 * float(np.log(2 * np.pi * q) @ share)
        scores: list[Score] = [(spread + 0.5 * float(np.log(c)) + 0.5, rho, eta, 1.0, c, mean_square)]
        for pooling in POOLING[1:]:
            scales = c * COMMON_SCALES
            s2 = pooling * scales[:, None] + (1 - pooling) * scatter
            objective = spread + 0.5 * (np.log(s2) + error / s2) @ share
            least = int(objective.argmin())
            scores.append((float(objective[least]), rho, eta, pooling, float(scales[least]), mean_square))
        return min(scores)

    def krige(self, residuals: Float32Array, rho: float, eta: float) -> FloatArray:
        """Mean of g, share of its variance that is left, and r_Nᵀ(K_NN + ηI)⁻¹ r_N/k, (3, n_held).

        `residuals`, (n_held, k): of the neighbours of rows that are left out.
        """
        known = {} if self.kept is None else self.kept
        if (rho, eta) not in known:
            known[rho, eta] = _core.neighbour_factors(self.distances, self.weight[self.chosen], rho, eta, 1)
        return _core.krige(known[rho, eta], residuals, 1)


def _scaled(
    inputs: FloatArray, columns: NDArray[np.intp], inverse_scales: FloatArray, centre: FloatArray
) -> Float32Array:
    """Return u, (n_rows, n_columns)."""
    u = np.clip(inputs[:, columns] * inverse_scales, -FARTHEST, FARTHEST) - centre
    return np.ascontiguousarray(u, dtype=np.float32)


def _blocks(n_rows: int, k: int, n_columns: int) -> Iterator[slice]:
    size = max(8, BLOCK_BYTES // (4 * k * max(k, n_columns)))
    return (slice(begin, min(begin + size, n_rows)) for begin in range(0, n_rows, size))


def _shown(values: FloatArray) -> str:
    numbers = ", ".join(f"{v:.3g}" for v in values)
    return numbers if len(values) == 1 else f"[{numbers}]"


def fit_local(
    problem: NoiseProblem, moments: RowMoments, n_neighbours: int | None, memo: dict[Hashable, Any] | None = None
) -> tuple[LocalProcess | None, float | None]:
    """Return a process on the residuals, or None, and the nats a row that it gains, None if none was tried.

    ``n_neighbours`` None is "auto": a process is kept where leave-one-out scores favour it. What depends on inputs
    only is shared through ``memo`` among models of the same rows.
    """
    kernel, n, automatic = problem.basis.hyperparameters, len(moments.x), n_neighbours is None
    most = min(problem.features.n_functions, n)  # more landmarks than there may be cannot see such detail either
    if kernel is None or n < (max(ROWS_PER_FEATURE * most, FEWEST_ROWS) if automatic else 2):
        return None, None
    held = problem.rng.spawn(1)[0].choice(n, min(n, HELD_OUT_ROWS), replace=False)
    k = n_neighbours or N_NEIGHBOURS
    memo, keeps = {} if memo is None else memo, memo is not None or problem.targets.shape[1] >= FEWEST_SHARED
    key = k, held.tobytes(), moments.weight.tobytes()
    if key not in memo:
        inputs = problem.basis.inputs(moments.x)
        sets = NeighbourSets.of(inputs, kernel.length_scales, moments.weight, k, held)
        sets = replace(sets, kept={} if keeps else None)
        memo[key] = sets, sets.at(held[:FIRST_HELD_ROWS])
    sets, few = memo[key]
    if automatic:
        look = _fitted(problem, moments, few, few.rows)
        if look.gain.mean() <= 0 or look.squared_error.mean() > CLEARLY_FARTHER:
            return None, float(look.gain.mean())
    process = _fitted(problem, moments, sets, np.arange(n))
    gain = float(process.gain.mean())
    closer = process.squared_error.mean() <= LARGEST_ERROR  # rows of equal targets, for one, gain density alone
    return (process if not automatic or (gain > SMALLEST_GAIN and closer) else None), gain


def noise_may_replace(process: LocalProcess | None, automatic: bool) -> bool:
    """Whether there is no process, or one that nobody asked for and that hardly moves the mean."""
    return process is None or (automatic and float(process.squared_error.mean()) > CLEARLY_CLOSER)


def _fitted(problem: NoiseProblem, moments: RowMoments, sets: NeighbourSets, rows: NDArray[np.intp]) -> LocalProcess:
    """Fit a process to leave-one-out residuals of some rows."""
    moments.exactly(sets.held)
    residuals = np.zeros_like(problem.targets)
    residuals[rows] = problem.left_out(moments, rows).residuals
    return sets.fit(residuals, problem.left_out(moments, sets.held).log_density)
