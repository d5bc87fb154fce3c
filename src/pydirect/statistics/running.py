"""Statistics of data without end: sums about their means, which grow, merge, shrink and fade, and sums of windows.

Each block of rows is centred before it is multiplied, and blocks are merged by the formula of Chan, Golub & LeVeque
(1979), so that nothing cancels however large the means are; `GaussianStatistics` are sums about zero.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._dense import gram
from pydirect._progress import uninterrupted
from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_float_array,
    as_number,
    as_sample_weight,
    as_target,
    column_names,
)
from pydirect.persistence.container import read, sound_contents, write
from pydirect.persistence.schema import NOT_STORED, AnyFinite, As, AtLeast, Binds, OneOf, Positive, Shape, pack, unpack
from pydirect.statistics.gaussian import (
    GaussianStatistics,
    IdentityFeatures,
    RowFeatures,
    add_products,
    block_rows,
    counted_rows,
    factor_of_sums,
    fingerprint,
    row_blocks,
    rows_that_count,
    summed,
    sums_are_of_kernel,
    whitened_sums,
)

KIND = "pydirect.statistics"
# A sum of squares that subtraction leaves negative by more than this fraction never held what was subtracted.
NEVER_ADDED = 1e-9
_NUMBERS = ("n_samples", "n_rows", "squared_weights", "prior_variance_sum")
_MEANS = ("mean", "mean_low", "y_mean", "y_mean_low")
_ADDITIVE = ("scatter", "cross", "y_scatter", "log_derivative")
_ARRAYS = (*_MEANS, *_ADDITIVE)


_Sum = Annotated[float, AtLeast(0.0), AnyFinite]
_OfWeights = Annotated[FloatArray, Shape("n_weights"), AnyFinite]
_OfTargets = Annotated[FloatArray, Shape("n_outputs"), AnyFinite]


@dataclass(eq=False, repr=False)
class RunningStatistics:
    """All that regression keeps of the data, about the means of features and targets.

    Begin with `empty` (a feature map, and no rows yet) or `from_arrays` (a design matrix). `update`, `merge`,
    `subtract` and `decay` change the statistics in place and return them; ``+``, `sum` and `scaled` return new ones;
    `gaussian` is what inference takes.

    However rows are cut into blocks, in whatever order these come and on however many machines, results agree to
    rounding: 1e-12 of the largest entry and better; with `block_dtype` float32, whose products are rounded to single
    precision, 1e-7 to 1e-6. Rows given to one `update` in the same order have the same bits for
    any number of threads.

    Parameters
    ----------
    features : RowFeatures, optional
        From rows of inputs to Φ.

    Attributes
    ----------
    n_samples : float
        Σω, the number of data points when weights count repetitions.
    n_rows : float
        Rows of positive weight, each counted once; `decay` lets them fade with the samples.
    squared_weights : float
        Σω², which fades with the samples too.
    mean : ndarray of shape (n_weights,)
        Weighted mean φ̄ of the features.
    mean_low : ndarray of shape (n_weights,)
        What rounding of `mean` leaves: differences of means keep their digits, however large the means are.
    y_mean, y_mean_low : ndarray of shape (n_outputs,)
    scatter : ndarray of shape (n_weights, n_weights)
        Σω(φ − φ̄)(φ − φ̄)ᵀ, on and above the diagonal.
    cross : ndarray of shape (n_outputs, n_weights)
        Σω(y − ȳ)(φ − φ̄)ᵀ
    y_scatter : ndarray of shape (n_outputs,)
        Σω(y − ȳ)²
    log_derivative : ndarray of shape (n_outputs,)
        Σω log dt/dy, where the feature map transforms the targets, which all other sums are then of; else zeros.
    prior_variance_sum : float
        Σω Var f(x) under the prior, where the feature map knows it; else 0.
    fingerprint : str
        Of the feature map and its scalings. Statistics of different maps are never merged.
    block_dtype : str, default="float64"
        Precision of features and products within a block; sums over blocks are float64 always.
    sums_of : {"features", "kernel"}, default="features"
        What `mean`, `scatter` and `cross` are of: the features Φ, or kernel functions that `gaussian` whitens to them,
        as the feature map says; see `pydirect.features.NystroemFeatures`.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import RunningStatistics
    >>> from pydirect.features import LinearFeatures
    >>> statistics = RunningStatistics.empty(LinearFeatures(2))
    >>> for block in np.array_split(np.arange(12.0).reshape(6, 2), 3):
    ...     _ = statistics.update(block, block.sum(axis=1))
    >>> statistics.n_samples, statistics.mean.tolist(), statistics.y_mean.tolist()
    (6.0, [5.0, 6.0, 1.0], [11.0])
    """

    n_samples: _Sum
    n_rows: _Sum
    squared_weights: _Sum
    mean: _OfWeights
    mean_low: _OfWeights
    y_mean: _OfTargets
    y_mean_low: _OfTargets
    # In files the entries on and above the diagonal, row by row.
    scatter: Annotated[NDArray[Any], As(FloatArray), Shape("n_upper"), AnyFinite]
    cross: Annotated[FloatArray, Shape("n_outputs", "n_weights"), AnyFinite]
    y_scatter: Annotated[FloatArray, Shape("n_outputs"), AnyFinite, AtLeast(0.0)]
    log_derivative: _OfTargets
    prior_variance_sum: _Sum
    fingerprint: str
    block_dtype: Annotated[str, OneOf("float64", "float32")] = "float64"
    features: RowFeatures | None = field(default=None, metadata=NOT_STORED)
    sums_of: Annotated[str, OneOf("features", "kernel")] = "features"

    def __post_init__(self) -> None:
        if self.scatter.ndim == 1:
            b, upper = self.n_weights, self.scatter
            if len(upper) != b * (b + 1) // 2:
                raise ValueError("scatter must be of all pairs of weights")
            self.scatter = np.zeros((b, b))
            self.scatter[_upper(b)] = upper
            if (self.scatter.diagonal() < 0).any():
                raise ValueError("sums of squares must not be negative")

    def __repr__(self) -> str:
        return f"<RunningStatistics: {self.n_samples:g} samples, {self.n_weights} weights, {self.n_outputs} outputs>"

    @classmethod
    def empty(cls, features: RowFeatures, n_outputs: int = 1, *, block_dtype: str = "float64") -> Self:
        """Begin with no rows."""
        as_choice(block_dtype, "block_dtype", ("float64", "float32"))
        zeros = _zeros(features.n_weights, as_count(n_outputs, "n_outputs"))
        sums_of = "kernel" if sums_are_of_kernel(features, block_dtype) else "features"
        named = {"block_dtype": block_dtype, "sums_of": sums_of, "features": features}
        return cls(**zeros | named, fingerprint=fingerprint(features))

    @classmethod
    def from_arrays(cls, phi: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Build from a design matrix, as `GaussianStatistics.from_arrays` does."""
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        targets = as_target(y, len(phi))
        return cls.empty(IdentityFeatures(phi.shape[1]), targets.shape[1]).update(phi, targets, sample_weight)

    @property
    def n_weights(self) -> int:
        """Number of basis functions b."""
        return len(self.mean)

    @property
    def n_outputs(self) -> int:
        """Number of targets."""
        return len(self.y_mean)

    @property
    def effective_rows(self) -> float:
        """What the rows count for where weights count relative to each other; see `counted_rows`."""
        return counted_rows(self.n_rows, self.n_samples, self.squared_weights)

    # --- growing, shrinking, fading

    def update(
        self, x: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, n_threads: int | None = None
    ) -> Self:
        """Add rows."""
        width: int | str = np.shape(x)[1] if np.ndim(x) == 2 else "n_features_in"
        names, known = column_names(x), getattr(self.features, "names", None)
        if names is not None and known is not None and names != list(known):
            hint = "; encode tables first, by columns_.encode(X) of the model" if len(names) < len(known) else ""
            raise ValueError(f"x must have the columns {list(known)}, in this order, got {names}{hint}")
        width = getattr(self.features, "n_features_in", width)
        x = as_float_array(x, "x", ("n_rows", width))
        targets = as_target(y, len(x))
        if targets.shape[1] != self.n_outputs:
            raise ValueError(f"y must have {self.n_outputs} outputs, as the statistics, got {targets.shape[1]}")
        weight = as_sample_weight(sample_weight, len(x), all_zero=True)  # as blocks of a stream may have
        bounds = row_blocks(len(x), self.block_rows)
        blocks = ((x[a:z], targets[a:z], None if weight is None else weight[a:z]) for a, z in bounds)
        added = self.emptied()  # all rows are added or, when anything fails, none
        with single_blas_thread():
            for part in ordered_map(lambda block: self.part(*block), blocks, resolve_n_threads(n_threads)):
                added.merge(part)
        return self.merge(added)

    @property
    def block_rows(self) -> int:
        """Rows of the blocks that data are cut into: a function of the width alone."""
        return block_rows(self.n_weights, self.block_dtype)

    def part(self, x: FloatArray, y: FloatArray, weight: FloatArray | None, n_threads: int = 1) -> Self:
        """Return the statistics of one block of checked rows, for `merge`; its scatter is of `block_dtype`.

        `x`, (n_rows, n_features_in). `y`, (n_rows, n_outputs). `weight`, (n_rows,).
        """
        if self.features is None:
            raise ValueError("statistics from a file must be given their feature map to grow: load(path, features=...)")
        x, y, weight = rows_that_count(x, y, weight)
        if not len(x):
            return self.emptied()
        phi = summed(self.features, x, self.block_dtype, n_threads)
        unit = np.ones(len(x)) if weight is None else weight
        transform, log_derivative = getattr(self.features, "target_transform", None), np.zeros(self.n_outputs)
        if transform is not None:
            y, log_derivative = transform.forward(y), unit @ transform.log_derivative(y)
        n_samples = float(unit.sum())
        mean, mean_low = np.zeros((2, self.n_weights))
        _core.add_transposed_product(phi, unit / n_samples, mean)
        y_mean = unit @ y / n_samples
        # Sums about a mean that is wrong by ε are wrong by nε²: the mean may be rounded to the block's precision.
        rounded = mean.astype(phi.dtype)
        centred, centred_y = phi - rounded, y - y_mean
        y_mean_low = unit @ centred_y / n_samples
        root = np.sqrt(unit)
        if weight is not None:
            centred *= root[:, None].astype(phi.dtype)
            centred_y *= root[:, None]
        _core.add_transposed_product(centred, root / n_samples, mean_low)
        cross = np.zeros((self.n_outputs, self.n_weights))
        add_products(centred, centred_y, cross)
        prior_variance = getattr(self.features, "prior_variance", None)
        return replace(
            self,
            n_samples=n_samples,
            n_rows=float(len(x)),
            squared_weights=float(unit @ unit),
            mean=rounded.astype(np.float64),
            mean_low=mean_low,
            y_mean=y_mean,
            y_mean_low=y_mean_low,
            scatter=gram(centred),
            cross=cross,
            y_scatter=np.einsum("nk,nk->k", centred_y, centred_y),
            log_derivative=log_derivative,
            prior_variance_sum=0.0 if prior_variance is None else float(unit @ prior_variance(x)),
        )

    def merge(self, other: RunningStatistics, *, n_threads: int | None = None) -> Self:
        """Add the rows of other statistics, which stay as they are."""
        self._require_same(other)
        if other.n_samples:
            sums, harmonic, shift = self._combined(other, 1.0)
            threads = resolve_n_threads(n_threads)
            with uninterrupted():  # all or nothing: from here on nothing can fail
                _core.merge_upper_triangle(other.scatter, harmonic, shift, self.scatter, threads)
                self.__dict__.update(sums)
        return self

    def subtract(self, other: RunningStatistics, *, n_threads: int | None = None) -> Self:
        """Remove the rows of other statistics, as if they had never been added, to rounding of what was there."""
        self._require_same(other)
        if other.n_samples == 0.0:
            return self
        left = self.n_samples - other.n_samples
        if left < -NEVER_ADDED * self.n_samples:
            raise ValueError(f"cannot remove {other.n_samples:g} samples from {self.n_samples:g}")
        if left <= NEVER_ADDED * self.n_samples:
            with uninterrupted():
                self.__dict__.update(_zeros(self.n_weights, self.n_outputs))
            return self
        sums, harmonic, shift = self._combined(other, -1.0)
        squares = self.scatter.diagonal() - other.scatter.diagonal() + harmonic * shift**2
        for after, before in ((squares, self.scatter.diagonal()), (sums["y_scatter"], self.y_scatter)):
            if (after < -NEVER_ADDED * before).any():
                raise ValueError("cannot remove rows that were never added: sums of squares would become negative")
        if sums["n_rows"] <= NEVER_ADDED * self.n_rows:
            raise ValueError(f"cannot remove all rows and leave {left:g} samples: rows must have faded alike, by decay")
        sums |= {"squared_weights": max(sums["squared_weights"], 0.0), "y_scatter": np.maximum(sums["y_scatter"], 0.0)}
        negative, squares, threads = -other.scatter, np.maximum(squares, 0.0), resolve_n_threads(n_threads)
        with uninterrupted():  # all or nothing
            _core.merge_upper_triangle(negative, harmonic, shift, self.scatter, threads)
            np.einsum("jj->j", self.scatter)[...] = squares
            self.__dict__.update(sums)
        return self

    def decay(self, factor: float) -> Self:
        """Let every row so far count `factor` times as much: exponential forgetting."""
        factor = as_number(factor, "factor", above=0.0, at_most=1.0)
        with uninterrupted():
            self.__dict__.update({name: getattr(self, name) * factor for name in (*_ADDITIVE, *_NUMBERS)})
        return self

    def __add__(self, other: RunningStatistics) -> Self:
        """Return the statistics of both sets of rows together."""
        if not isinstance(other, RunningStatistics):
            return NotImplemented
        return self.copy().merge(other.copy() if other is self else other)

    def __radd__(self, other: object) -> Self:
        """Return a copy for 0, with which ``sum`` begins."""
        return self.copy() if isinstance(other, int) and other == 0 else NotImplemented

    def emptied(self) -> Self:
        """Return statistics of the same kind without rows."""
        return replace(self, **_zeros(self.n_weights, self.n_outputs))

    def copy(self) -> Self:
        """Return an independent copy."""
        return replace(self, **{name: getattr(self, name).copy() for name in _ARRAYS})

    def _combined(self, other: RunningStatistics, sign: float) -> tuple[dict[str, Any], float, FloatArray]:
        """Return all sums but the scatter with the rows of others, or without them; h and δ with h δδᵀ in the scatter.

        δ is how far the other mean is from this one, and h = n n'/(n + n') of n samples and ± n' others.
        """
        total = self.n_samples + sign * other.n_samples
        harmonic = sign * self.n_samples * other.n_samples / total
        shift = (other.mean - self.mean) + (other.mean_low - self.mean_low)
        y_shift = (other.y_mean - self.y_mean) + (other.y_mean_low - self.y_mean_low)
        names = (*_NUMBERS, "cross", "y_scatter", "log_derivative")
        sums: dict[str, Any] = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        sums["cross"] += harmonic * np.outer(y_shift, shift)
        sums["y_scatter"] += harmonic * y_shift**2
        step = sign * other.n_samples / total
        means = *_moved(self.mean, self.mean_low, step * shift), *_moved(self.y_mean, self.y_mean_low, step * y_shift)
        if not self.n_samples:
            means = other.mean.copy(), other.mean_low.copy(), other.y_mean.copy(), other.y_mean_low.copy()
        return sums | dict(zip(_MEANS, means, strict=True)), harmonic, shift

    def _require_same(self, other: RunningStatistics) -> None:
        if other is self:
            raise ValueError("statistics cannot be merged with or subtracted from themselves: use decay or copy")
        for what, own, others in (
            ("numbers of weights and outputs", self.cross.shape[::-1], other.cross.shape[::-1]),
            ("feature map and scaling", self.fingerprint, other.fingerprint),
            ("block_dtype, which decides what is summed", self.sums_of, other.sums_of),
        ):
            if own != others:
                raise ValueError(f"statistics must have the same {what}, got {own} and {others}")

    # --- what inference takes

    def gaussian(self, y_shift: ArrayLike = 0.0, y_scale: ArrayLike = 1.0) -> GaussianStatistics:
        """Return sums about zero: A = ΦᵀΦ and c = Φᵀy′, of y′ = (y − y_shift) / y_scale.

        `y_shift`, `y_scale`, () or (n_outputs,).
        """
        scale: FloatArray = np.broadcast_to(np.asarray(y_scale, dtype=np.float64), self.y_mean.shape)
        offset = self.y_mean - np.asarray(y_shift, dtype=np.float64)
        mean, cross, gram = self._of_features(self.n_samples)
        c = (cross.T + self.n_samples * np.outer(mean, offset)) / scale
        yty = (self.y_scatter + self.n_samples * offset**2) / scale**2
        return GaussianStatistics(np.ascontiguousarray(c), yty, self.n_samples, gram=gram)

    def centred(self) -> GaussianStatistics:
        """Return sums about the means: the model y = β₀ + Φw + ε whose intercept has a flat prior.

        No digits are lost however large the means are. The intercept is β₀ = ȳ − φ̄ᵀw.
        """
        _, cross, gram = self._of_features(0.0)
        return GaussianStatistics(np.ascontiguousarray(cross.T), self.y_scatter.copy(), self.n_samples, gram=gram)

    def _of_features(self, factor: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return φ̄, the cross products and the scatter + factor φ̄φ̄ᵀ, both triangles, of Φ."""
        if self.sums_of == "kernel" and self.features is None:
            raise ValueError("sums of kernel functions from a file need their feature map: load(path, features=...)")
        rows, scatter = np.vstack([self.cross, self.mean]), _shifted(self.scatter, 0.0, self.mean)
        whitening = factor_of_sums(self.features, self.block_dtype)
        rows, scatter = whitened_sums(rows, scatter, whitening, resolve_n_threads())
        return rows[-1], rows[:-1], _shifted(scatter, factor, rows[-1])

    def missing_variance(self, mean_square: float) -> float:
        """Return the prior variance of f that the features lack at an average row, given their mean ‖φ‖²."""
        prior_variance = self.prior_variance_sum / self.n_samples
        return max(prior_variance - mean_square, 0.0) if prior_variance else 0.0

    def target_location_scale(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the targets, (n_outputs,) each; exactly zero where constant to rounding."""
        if not self.n_samples:
            raise ValueError("there must be data: the statistics are empty")
        scale = np.sqrt(self.y_scatter / self.n_samples)
        noise = 10 * np.finfo(float).eps * np.abs(self.y_mean)
        return self.y_mean.copy(), np.where(scale > noise, scale, 0.0)

    # --- files

    def save(self, path: str | Path) -> None:
        """Write one file, arrays and a versioned header, under a temporary name and renamed."""
        header, arrays = pack(self, "statistics")
        write(path, KIND, {"library": version("pydirect"), "statistics": header}, arrays)

    @classmethod
    def load(cls, path: str | Path, features: RowFeatures | None = None) -> Self:
        """Read what `save` wrote."""
        document = read(path, KIND)
        with sound_contents(path, "statistics"):
            statistics = unpack(cls, document.header["statistics"], document.arrays, "statistics")
        return statistics if features is None else statistics.with_features(features)

    def with_features(self, features: RowFeatures) -> Self:
        """Return the same statistics, able to grow by `features`, whose fingerprint must be theirs."""
        found = fingerprint(features)
        if found != self.fingerprint:
            raise ValueError(f"features must have the fingerprint {self.fingerprint}, got {found}")
        return replace(self, features=features)

    def to_saved(self) -> Self:
        """Return what files hold."""
        saved = copy.copy(self)
        saved.scatter = self.scatter[_upper(self.n_weights)]
        return saved


def _shifted(scatter: FloatArray, factor: float, mean: FloatArray) -> FloatArray:
    """Return scatter + factor φ̄φ̄ᵀ, both triangles."""
    square = np.zeros_like(scatter)
    _core.merge_upper_triangle(scatter, factor, mean, square, 1)
    _core.mirror_upper_triangle(square, 1)
    return square


def _upper(b: int) -> NDArray[np.bool_]:
    """Return where entries are on or above the diagonal, (b, b): files hold these of symmetric matrices."""
    return np.tri(b, dtype=bool).T


def _zeros(b: int, k: int) -> dict[str, Any]:
    """Return the sums over no rows, of b weights and k outputs."""
    sizes = {"mean": b, "mean_low": b, "scatter": (b, b), "cross": (k, b)}
    return {name: np.zeros(sizes.get(name, k)) for name in _ARRAYS} | dict.fromkeys(_NUMBERS, 0.0)


def _moved(mean: FloatArray, low: FloatArray, step: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean + low + step as a rounded sum and what rounding leaves (Knuth's two-sum)."""
    step = step + low
    moved = mean + step
    taken = moved - mean
    return moved, (mean - (moved - taken)) + (step - taken)


# Rows that are multiplied together: enough for products at the machine's peak.
BLOCK_ROWS = 1024
RUNNING_ROWS = 256  # of running sums at a time: powers of their factor stay far from zero
# Below this the common factor of sums that fade is multiplied out.
LEAST_SCALE = 1e-100


@dataclass(eq=False)
class FadingSum:
    """Σ ω zzᵀ over rows z that come and go one by one, and fade together.

    Rows wait until there are `BLOCK_ROWS` of them, and fading changes one number. The sum over blocks is compensated by
    Knuth's two-sum: an entry is off by at most (`BLOCK_ROWS` + 3) ε Σ |ω| |z_i z_j|, the sum over all rows so far.
    """

    high: Annotated[FloatArray, Shape("n_columns", "n_columns")]
    low: Annotated[FloatArray, Shape("n_columns", "n_columns")]
    # That wait: `n_waiting` of them, and in memory room for those to come.
    rows: Annotated[FloatArray, Shape("n_waiting*", "n_columns")]
    weight: Annotated[FloatArray, Shape("n_waiting*")]
    scale: Annotated[float, Positive] = 1.0  # by which the sum and the weights that wait are to be multiplied
    n_waiting: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_waiting = len(self.rows)
        if self.n_waiting >= BLOCK_ROWS:
            raise ValueError(f"rows must be fewer than {BLOCK_ROWS}, got {self.n_waiting}")

    @classmethod
    def empty(cls, n_columns: int) -> Self:
        """Begin with no rows."""
        high, low = np.zeros((2, n_columns, n_columns))
        return cls(high, low, np.empty((0, n_columns)), np.empty(0))

    @property
    def n_columns(self) -> int:
        """Length of z."""
        return len(self.high)

    def add(self, rows: FloatArray, weight: FloatArray | None = None) -> None:
        """Add rows, (n_rows, n_columns), of weights (n_rows,); negative weights remove."""
        weight = (np.ones(len(rows)) if weight is None else weight) / self.scale
        while len(rows):
            room, weights, begin, _ = self.lend()
            n = min(len(rows), BLOCK_ROWS - begin)
            room[begin : begin + n], weights[begin : begin + n] = rows[:n], weight[:n]
            self.n_waiting += n
            rows, weight = rows[n:], weight[n:]
            if self.n_waiting == BLOCK_ROWS:
                self._sum_up()

    def fade(self, factor: float) -> None:
        """Let all rows so far count `factor` times as much."""
        self.scale *= factor
        if self.scale < LEAST_SCALE:
            self._sum_up()
            self.high, self.low, self.scale = self.scale * self.high, self.scale * self.low, 1.0

    def lend(self) -> tuple[FloatArray, FloatArray, int, float]:
        """Rows that wait, their weights, how many they are, and what is to be multiplied; compiled code adds more."""
        missing = BLOCK_ROWS - len(self.rows)
        if missing:
            self.rows = np.concatenate([self.rows, np.empty((missing, self.n_columns))])
            self.weight = np.concatenate([self.weight, np.empty(missing)])
        return self.rows, self.weight, self.n_waiting, self.scale

    def take_back(self, n_rows: int, scale: float) -> None:
        """Go on after `n_rows` rows more."""
        self.n_waiting, self.scale = self.n_waiting + n_rows, scale

    def total(self) -> FloatArray:
        """Return the sum, (n_columns, n_columns)."""
        self._sum_up()
        return self.scale * (self.high + self.low)

    def copy(self) -> Self:
        """Return an independent copy."""
        return copy.deepcopy(self)

    def to_saved(self) -> Self:
        """Return what files hold: no room for rows to come."""
        saved = copy.copy(self)
        saved.rows, saved.weight = self.rows[: self.n_waiting], self.weight[: self.n_waiting]
        return saved

    def _sum_up(self) -> None:
        n, self.n_waiting = self.n_waiting, 0
        for sign in (1.0, -1.0):
            own = np.flatnonzero(sign * self.weight[:n] > 0)
            if len(own):
                with single_blas_thread():
                    block = sign * gram(self.rows[own] * np.sqrt(sign * self.weight[own])[:, None])
                high = self.high + block
                taken = high - self.high
                self.low = self.low + ((self.high - (high - taken)) + (block - taken))
                self.high = high


@dataclass(eq=False)
class WindowSum:
    """Σ ω zzᵀ over the rows of a window, whose oldest leave in the order in which they came.

    New rows are added to the younger of two sums, those that leave are subtracted from the older. Once that lost all
    its rows it is dropped with its rounding, and the younger takes its place: errors are those of two windows at most.
    """

    young: Annotated[FadingSum, Binds(n_columns="n_columns")]
    old: Annotated[FadingSum, Binds(n_columns="n_columns")]
    n_young: Annotated[int, AtLeast(0)] = 0
    n_old: Annotated[int, AtLeast(0)] = 0

    @classmethod
    def empty(cls, n_columns: int) -> Self:
        """Begin with no rows."""
        return cls(FadingSum.empty(n_columns), FadingSum.empty(n_columns))

    @property
    def n_columns(self) -> int:
        """Length of z."""
        return self.young.n_columns

    @property
    def n_rows(self) -> int:
        """Number of rows in the window."""
        return self.n_young + self.n_old

    def add(self, rows: FloatArray, weight: FloatArray | None = None) -> None:
        """Add the latest rows, (n_rows, n_columns), of positive weights (n_rows,)."""
        self.young.add(rows, weight)
        self.n_young += len(rows)

    def leave(self, rows: FloatArray, weight: FloatArray | None = None) -> None:
        """Remove the oldest rows: the same that were added first, with their weights."""
        if len(rows) > self.n_rows:
            raise ValueError(f"at most {self.n_rows} rows can leave, got {len(rows)}")
        weight = np.ones(len(rows)) if weight is None else weight
        while len(rows):
            if not self.n_old:
                self.old, self.n_old = self.young, self.n_young
                self.young, self.n_young = FadingSum.empty(self.n_columns), 0
            leaving = min(len(rows), self.n_old)
            if leaving == self.n_old:
                self.old = FadingSum.empty(self.n_columns)
            else:
                self.old.add(rows[:leaving], -weight[:leaving])
            self.n_old -= leaving
            rows, weight = rows[leaving:], weight[leaving:]

    def total(self) -> FloatArray:
        """Return the sum, (n_columns, n_columns)."""
        return self.young.total() + self.old.total()


def faded_sums(values: FloatArray, factor: float, before: float) -> FloatArray:
    """Return the running sums s_i = `factor` · s_(i−1) + x_i of values x, (n,), that begin with s_0 = `before`.

    The factor must not be so small that its 256th power is zero.
    """
    sums = np.empty(len(values))
    for begin, end in row_blocks(len(values), RUNNING_ROWS):
        powers = factor ** np.arange(1.0, end - begin + 1)
        sums[begin:end] = powers * (before + np.cumsum(values[begin:end] / powers))
        before = float(sums[end - 1])
    return sums
