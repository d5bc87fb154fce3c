"""Moments of the data that the expected squared error of a quadratic network depends on, as sums of features."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, as_count

# Size of the largest block of features: it stays in the cache until it is summed.
_BLOCK_SIZE = 2**18


def n_moments(n_inputs: int, depth: int, bias: bool = True, n_outputs: int = 1) -> int:
    """Return the number of moments that R depends on, the largest number of rows of a coreset.

    `n_inputs`: inputs d of the network, without the bias. `depth`: hidden layers ℓ. The network is a polynomial of
    degree 2^ℓ, its square one of degree 2^(ℓ+1). `bias`: whether every layer has one more input fixed to one. Without,
    the polynomials are homogeneous, and the total weight is one more moment. `n_outputs`: targets, each with a network
    of its own.

    Examples
    --------
    >>> n_moments(3, 2), n_moments(8, 1), n_moments(8, 1, bias=False)
    (201, 541, 368)
    """
    variables = as_count(n_inputs, "n_inputs") + bool(bias)
    degree = 2 ** as_count(depth, "depth")
    of_network, of_square = (comb(variables + k - 1, k) for k in (degree, 2 * degree))
    return of_square + (not bias) + as_count(n_outputs, "n_outputs") * (of_network + 1)


@dataclass(frozen=True)
class MomentFeatures:
    """Features φ(x, y) of a row whose weighted sums determine R.

    With a bias, products of Legendre polynomials of the decorrelated inputs, scaled to [−1, 1]; without, homogeneous
    monomials of them. Any basis of the same space would do, with other rounding errors.
    """

    centre: FloatArray  # (n_inputs,)
    directions: FloatArray  # (n_inputs, n_variables)
    y_centre: FloatArray  # (n_outputs,)
    y_scale: FloatArray  # (n_outputs,)
    degree: int  # of the network
    bias: bool

    @classmethod
    def of_data(cls, x: FloatArray, y: FloatArray, depth: int, bias: bool) -> MomentFeatures:
        """Return a well-conditioned basis for these data."""
        # A shift of x or y leaves the space of polynomials only when lower degrees are in it.
        centre, scale = _centre_and_scale(x, bias)
        y_centre, y_scale = _centre_and_scale(y, bias)
        factor = np.empty((0, x.shape[1]))
        for begin in range(0, len(x), 2**16):
            factor = np.linalg.qr(np.vstack([factor, (x[begin : begin + 2**16] - centre) / scale])).R
        _, spread, axes = np.linalg.svd(factor)
        # Directions in which the rows do not vary carry no information; one is kept so that there is a polynomial.
        n_variables = max(1, int((spread > 8 * x.shape[1] * np.finfo(float).eps * spread[0]).sum()))
        directions = axes[:n_variables].T / scale[:, None]
        reach = np.zeros(n_variables)
        for begin in range(0, len(x), 2**16):
            values = np.abs((x[begin : begin + 2**16] - centre) @ directions)
            np.maximum(reach, values.max(axis=0), out=reach)
        directions = directions / np.where(reach > 0, reach, 1.0)
        return cls(centre, directions, y_centre, y_scale, 2**depth, bias)

    @property
    def n_variables(self) -> int:
        """Number of decorrelated inputs."""
        return self.directions.shape[1]

    @property
    def n_features(self) -> int:
        """Number of features φ."""
        depth = self.degree.bit_length() - 1
        return n_moments(self.n_variables, depth, self.bias, len(self.y_scale))

    def group_sums(
        self, x: FloatArray, y: FloatArray, rows: NDArray[np.intp], weight: FloatArray, starts: NDArray[np.intp]
    ) -> FloatArray:
        """Return Σ ω φ(x, y) over groups of consecutive entries of `rows`, (n_features, n_groups)."""
        out = np.zeros((self.n_features, len(starts)))
        length = max(64, _BLOCK_SIZE // self.n_features)
        for begin in range(0, len(rows), length):
            part = slice(begin, min(begin + length, len(rows)))
            values = self.transform(x[rows[part]], y[rows[part]])
            values *= weight[part]
            first = int(np.searchsorted(starts, begin, side="right")) - 1
            last = int(np.searchsorted(starts, part.stop, side="left"))
            inside = np.maximum(starts[first:last] - begin, 0)
            out[:, first:last] += np.add.reduceat(values, inside, axis=1)
        return out

    def transform(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return φ of every row, (n_features, n_rows)."""
        variables = (x - self.centre) @ self.directions
        table = (_legendre if self.bias else _powers)(variables.T, 2 * self.degree)
        out = np.empty((self.n_features, len(x)))
        # The total weight is a moment: among the polynomials with a bias, on its own without.
        n_square = 0 if self.bias else 1
        out[:n_square] = 1.0
        n_square = _products(table, 2 * self.degree, not self.bias, out, n_square)
        end = _products(table, self.degree, not self.bias, out, n_square)
        first = out[n_square:end]
        targets = ((y - self.y_centre) / self.y_scale).T
        for k, target in reversed(list(enumerate(targets))):
            begin = n_square + k * (len(first) + 1)
            np.multiply(first, target, out=out[begin : begin + len(first)])
            np.square(target, out=out[begin + len(first)])
        return out


def _centre_and_scale(values: FloatArray, shift: bool) -> tuple[FloatArray, FloatArray]:
    """Middle of the range of every column, or zero, and the largest distance from it."""
    low, high = values.min(axis=0), values.max(axis=0)
    centre = low / 2 + high / 2 if shift else np.zeros(len(low))
    scale = np.maximum(high - centre, centre - low)
    return centre, np.where(scale > 0, scale, 1.0)


def _legendre(z: FloatArray, degree: int) -> FloatArray:
    """Legendre polynomials of degrees 0 … degree, orthonormal for the uniform distribution, (degree + 1, *z.shape)."""
    out = np.empty((degree + 1, *z.shape))
    out[0], out[1] = 1.0, z
    for k in range(1, degree):
        out[k + 1] = ((2 * k + 1) * z * out[k] - k * out[k - 1]) / (k + 1)
    return out * np.sqrt(2 * np.arange(degree + 1) + 1.0).reshape(-1, *(1,) * z.ndim)


def _powers(z: FloatArray, degree: int) -> FloatArray:
    """z^k for k = 0 … degree, (degree + 1, *z.shape)."""
    return z ** np.arange(degree + 1.0).reshape(-1, *(1,) * z.ndim)


def _products(table: FloatArray, degree: int, homogeneous: bool, out: FloatArray, row: int) -> int:
    """Write Π_i table[α_i, i] for all |α| ≤ degree (= degree, if homogeneous) from `row` on; return the next row."""
    n_variables = table.shape[1]

    def visit(i: int, degree: int, product: FloatArray | float) -> None:
        nonlocal row
        if i < n_variables - 1:
            for k in range(degree + 1):
                visit(i + 1, degree - k, product if k == 0 else table[k, i] * product)
            return
        for k in range(degree if homogeneous else 0, degree + 1):
            np.multiply(table[k, i], product, out=out[row])
            row += 1

    visit(0, degree, 1.0)
    return row
