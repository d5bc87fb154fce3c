"""Marginal likelihoods: of a kernel, exact on a subset of rows or by landmarks on all.

The covariance is ``1 + a_L x_L·x_L'/d + a_A Matérn(x; a length-scale per column) + a_I exp(−|x − x'|/ℓ_I)``, or with a
part of axes in place of the last: a product over all, ``a_P exp(−Σ|x_j − x_j'|/ℓ_j)``, rough along axes, or the mean
over pairs of them of products of two Matérn functions, smooth and of low order. Priors on the logarithms prevent
over-fitting of length-scales to few rows: their prior median grows with √d (Hvarfner, Hellsten & Nardi 2024), and the
tails are heavy enough for a short length-scale or a part of the covariance that is not needed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._dense import cholesky, gram, product, solve_lower
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.features.kernel import PAIRS, KernelHyperparameters, linear_inputs
from pydirect.features.maps import NystroemFeatures

# Prior means and scales of log noise variance, log amplitudes, log linear amplitude, log length-scales.
LOG_NOISE = (-1.5, 1.0)
LOG_AMPLITUDE = (-1.0, 0.7)
LOG_LINEAR = (-0.5, 1.0)
LOG_LENGTH_SCALE = (np.sqrt(2.0), 0.5)
LOG_NOISE_BOUNDS = (float(np.log(1e-5)), float(np.log(4.0)))
LOG_BOUNDS = (-12.0, 12.0)
# The product over axes starts flat: the median of its length-scales is this many times the number of axes. Those of
# pairs are as long as the inputs vary.
LOG_PRODUCT = (np.log(0.3), 2.0)
LOG_AXIS = (np.log(3.0), 1.5)
LOG_PAIRS = (np.log(2.0), 1.0)
# Of the referee: landmarks, steps between noise variances that are tried, of which few rows know little where tails are
# heavy, and rows, of which more hardly say more about nats a row.
N_LANDMARKS, NOISE_STEP, MOST_STEPS, REFEREE_ROWS = 300, 1.6, 8, 2048
RANK_SHIFT = 1.0  # normal scores are less likely to matter than the columns themselves


class MarginalLikelihood:
    """−log posterior of the log parameters θ on fixed rows, with its gradient; outputs share θ.

    θ = [log noise, log a_A, log ℓ (n_scales), log a_I, log ℓ_I, log a_L]; `with_axes` has log a_P, log ℓ_P
    (n_axes) in the place of log a_I, log ℓ_I. `tied` (n_inputs,): the length-scale of each input; the indicators
    of a column of categories share one. Of the inputs x, the leading `n_linear` are columns; the linear part sees
    `linear` (n_rows, …), by default them. The noise of a row of weight ω is σ²/ω. Of weights, `copies` are how many
    rows each row counts for, by default all of it; the rest are relative precisions.
    """

    smoothness = 1.5
    noise_bounds, largest_log_amplitude = LOG_NOISE_BOUNDS, LOG_BOUNDS[1]
    axes: NDArray[np.intp] | None = None
    order = 0  # of the part of axes
    axis_columns = np.zeros((0, 0))  # (n_axes, stride)
    iterations_between_updates = 1000

    def __init__(
        self,
        x: FloatArray,
        y: FloatArray,
        sample_weight: FloatArray,
        n_linear: int,
        tied: NDArray[np.intp] | None = None,
        *,
        linear: FloatArray | None = None,
        copies: FloatArray | None = None,
    ) -> None:
        linear = linear_inputs(x, n_linear) if linear is None else linear
        self.tied = np.arange(x.shape[1]) if tied is None else tied
        self.n_rows, self.d = len(x), int(self.tied.max(initial=-1)) + 1
        self.x, self.y, self.n_linear = np.ascontiguousarray(x), np.ascontiguousarray(y), linear.shape[1]
        self.weight, self.linear = np.ascontiguousarray(sample_weight), self._padded(product(linear, linear.T))
        self.distances = self._padded(distances_within(self.x))
        self.n_threads = resolve_n_threads()
        self.of_copies = terms_of_copies(sample_weight if copies is None else copies, y.shape[1])
        self.mean, self.sd, self.start = _prior(self.d, int(self.tied[:n_linear].max(initial=-1)) + 1)

    @cached_property
    def function(self) -> _core.MarginalLikelihood:
        """Value and gradient at θ, compiled."""
        own = self.x, self.y, self.weight, self.distances, self.linear, self.tied, self.n_linear, self.mean, self.sd
        kernel = self.axis_columns, self.order == PAIRS, round(2 * self.smoothness)
        return _core.MarginalLikelihood(*own, *kernel, *self.of_copies, self.n_threads)

    def _padded(self, rows: FloatArray) -> FloatArray:
        # Rows an odd number of packs apart: columns of a power of two would share few places of the cache.
        width = _core.LEVEL_PADDING
        return np.hstack([rows, np.zeros((len(rows), (width - self.n_rows) % (2 * width)))])

    @property
    def n_values(self) -> int:
        """Number of targets."""
        return self.y.size

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of θ."""
        bounds = [self.noise_bounds, *[LOG_BOUNDS] * (len(self.mean) - 1)]
        for amplitude in (1, 2 + self.d, -1):
            bounds[amplitude] = LOG_BOUNDS[0], self.largest_log_amplitude
        return bounds

    def at(self, smoothness: float) -> Self:
        """Return the same with a kernel of this smoothness, which may be evaluated beside this."""
        other = copy.copy(self)
        other.__dict__.pop("function", None)
        other.smoothness, other.n_threads = smoothness, resolve_n_threads()
        return other

    def with_axes(self, axes: NDArray[np.intp], order: int = 0) -> Self:
        """Return the same with a part of some inputs, `axes`, in place of the isotropic one; order: `product_order`."""
        other = self.at(self.smoothness)
        other.order, other.axes, other.axis_columns = order, axes, self._padded(self.x[:, axes].T)
        centre, spread = LOG_PAIRS if order == PAIRS else (LOG_AXIS[0] + np.log(len(axes)), LOG_AXIS[1])
        parts = np.repeat([[LOG_PRODUCT[0], centre], [LOG_PRODUCT[1], spread]], (1, len(axes)), axis=1)
        of_parts = zip((self.mean, self.sd, self.start), parts[[0, 1, 0]], strict=True)
        other.mean, other.sd, other.start = (
            np.concatenate([own[: 2 + self.d], part, own[-1:]]) for own, part in of_parts
        )
        return other

    def theta_of(self, kernel: KernelHyperparameters) -> FloatArray:
        """Return θ of a kernel; with a product, its part as it starts."""
        theta, d = self.start.copy(), self.d
        theta[[0, 1, -1]] = np.log([kernel.noise_variance, kernel.ard_amplitude, kernel.linear_amplitude])
        theta[2 : 2 + d][self.tied] = np.log(kernel.length_scales)
        if self.axes is None:
            theta[2 + d : -1] = np.log([kernel.isotropic_amplitude, kernel.isotropic_length_scale])
        return theta

    def update(self, theta: FloatArray) -> None:
        """Do nothing: this is the posterior itself."""

    def unpack(self, theta: FloatArray, n_evaluations: int = 0) -> KernelHyperparameters:
        """Return the parameters of θ."""
        d, value = self.d, np.exp(theta)
        noise, ard, rough, linear = value[[0, 1, 2 + d, -1]].tolist()
        scales, others = value[2 : 2 + d][self.tied], (linear, self.n_linear, self.smoothness, n_evaluations)
        if self.axes is None:
            return KernelHyperparameters(noise, ard, scales, rough, float(value[3 + d]), *others)
        rates = np.zeros(len(self.tied))
        rates[self.axes] = 1 / value[3 + d : -1]
        return KernelHyperparameters(noise, ard, scales, 0.0, 1.0, *others, rough, rates, self.order)

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return −log N(y; 0, K) − log prior and its gradient, (n_parameters,)."""
        return self.function(theta)


def distances_within(x: FloatArray) -> FloatArray:
    """Return the distances between rows, (n_rows, n_rows)."""
    squares = product(x, x.T)
    norms = squares.diagonal().copy()
    return np.sqrt(np.maximum(norms[:, None] + norms - 2 * squares, 0.0))


def terms_of_copies(copies: FloatArray, n_outputs: int) -> tuple[float, float]:
    """Return a and b of log N(y; f, σ²)^k = log N(y; f, σ²/k) + a log σ² + b, summed over outputs and rows.

    A row that counts k times, `copies` (n_rows,), has the likelihood on the left.
    """
    slope = 0.5 * n_outputs * float((1 - copies).sum())
    return slope, slope * float(np.log(2 * np.pi)) - 0.5 * n_outputs * float(np.log(copies).sum())


def _prior(d: int, n_linear: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the prior mean, prior scale and starting point of θ, with d length-scales, the first of columns."""
    centre = LOG_LENGTH_SCALE[0] + 0.5 * np.log(d)
    shift = np.where(np.arange(d) < n_linear, 0.0, RANK_SHIFT)
    begin = np.log(1.5) + 0.5 * np.log(d)
    spread = LOG_LENGTH_SCALE[1]
    mean = np.r_[LOG_NOISE[0], LOG_AMPLITUDE[0], centre + shift, LOG_AMPLITUDE[0], centre, LOG_LINEAR[0]]
    sd = np.r_[LOG_NOISE[1], LOG_AMPLITUDE[1], np.full(d, spread), LOG_AMPLITUDE[1], spread, LOG_LINEAR[1]]
    start = np.r_[np.log(0.1), 0.0, begin + shift, 0.0, begin, np.log(0.3)]
    return mean, sd, start


# --- all rows, by landmarks


@dataclass(frozen=True)
class Referee:
    """Log evidence of a kernel on all rows, by landmarks (Snelson & Ghahramani 2006).

    What landmarks miss of a row's variance is noise of that row: without it, rough kernels would seem worse than they
    are.

    - `x`, (n_rows, n_inputs).
    - `y`, (n_rows, n_outputs): the evidence is summed over outputs.
    - `sample_weight`, `copies`, (n_rows,): see `MarginalLikelihood`.
    - `rng`: chooses the landmarks, the same for all kernels.
    """

    x: FloatArray
    y: FloatArray
    sample_weight: FloatArray
    rng: np.random.Generator
    copies: FloatArray | None = None

    @cached_property
    def _rows(self) -> tuple[FloatArray, ...]:
        order = self.rng.permutation(len(self.x))[:REFEREE_ROWS]
        rows, copies = np.sort(order), self.sample_weight if self.copies is None else self.copies
        of_rows = (own[rows] for own in (self.x, self.y, self.sample_weight, copies))
        return np.unique(self.x[order[:N_LANDMARKS]], axis=0), *of_rows

    def __call__(self, kernel: KernelHyperparameters) -> float:
        """Return the log evidence where it is largest in the noise, estimated from up to `REFEREE_ROWS` rows."""
        landmarks, x, *_ = self._rows
        phi = NystroemFeatures.at(landmarks, kernel).transform(x, n_threads=resolve_n_threads())
        missing = np.maximum(kernel.diagonal(x) - np.einsum("ij,ij->i", phi, phi), 0.0)
        best = self.log_evidence(phi, missing, kernel.noise_variance)
        for factor in (NOISE_STEP, 1 / NOISE_STEP):
            for step in range(1, MOST_STEPS):
                value = self.log_evidence(phi, missing, kernel.noise_variance * factor**step)
                if value <= best:
                    break
                best = value
            if step > 1:
                break
        return best * len(self.x) / len(x)

    def log_evidence(self, phi: FloatArray, missing: FloatArray, noise: float) -> float:
        """Return the log evidence of the rows for features (n_rows, n_weights), what they miss (n_rows,) and noise."""
        _, _, y, weight, copies = self._rows
        variance = noise / weight + missing
        root = np.sqrt(variance)[:, None]
        scaled, y = phi / root, y / root
        n_threads = resolve_n_threads()
        precision = gram(scaled, n_threads=n_threads)
        precision[np.diag_indices_from(precision)] += 1.0
        factor = cholesky(precision, n_threads)[0]
        pulled = solve_lower(factor, product(scaled.T, y, n_threads), n_threads)
        squares = np.square(y).sum() - np.square(pulled).sum()
        log_determinant = np.log(2 * np.pi * variance).sum() + 2 * np.log(factor.diagonal()).sum()
        slope, rest = terms_of_copies(copies, y.shape[1])
        return float(slope * np.log(noise) + rest - 0.5 * (y.shape[1] * log_determinant + squares))
