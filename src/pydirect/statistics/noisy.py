"""Sums over private rows, released with Gaussian noise: what each site of a federation may send.

A row gives φ, clipped to length C, and a target, clipped to its bounds and mapped to v in [−1, 1]. Clipping φ
multiplies the whole row, as a weight ω = min(1, C²/‖φ‖²) does: no coefficient is biased by it. The row's share of the
sums,

    u = (svec(ωφφᵀ)/C², ωφv/C, ½ωv², ¼ω),

with svec the upper triangle whose entries off the diagonal are multiplied by √2, has the squared length

    ‖u‖² = (ω‖φ‖²/C²)² + ω·(ω‖φ‖²/C²) v² + ω²v⁴/4 + ω²/16 ≤ 1 + 1 + 1/4 + 1/16 = Δ²,

as ‖svec(M)‖ is the Frobenius norm of M, ‖φφᵀ‖ = ‖φ‖², ω ≤ 1, ω‖φ‖² ≤ C² and |v| ≤ 1. Adding or removing a row therefore
moves the vector of all sums by at most Δ, and independent noise of deviation σ = Δ/μ on each of its entries makes it as
private as one Gaussian of sensitivity μ. In units of the sums the deviations are σC² on the diagonal of A, σC²/√2 off
it, σC on c, 2σ on the squares of the targets and 4σ on the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_float_array, as_number, short_repr
from pydirect.persistence.container import read, write
from pydirect.persistence.errors import CorruptFileError
from pydirect.statistics.fingerprint import fingerprint
from pydirect.statistics.gaussian import FeatureMap, block_rows, gram_of, row_blocks

KIND = "pydirect.noisy_statistics"
# Weights of c, of the targets' squares and of the number of rows, beside A's 1. Squares and the number only tell of the
# noise, and are sums of many equal signs: they can have more noise.
WEIGHTS = (1.0, 0.5, 0.25)
SENSITIVITY = float(np.sqrt(1 + np.square(WEIGHTS).sum()))
_ARRAYS = ("gram", "c")


@dataclass(frozen=True)
class NoisyStatistics:
    """Sums over rows with Gaussian noise of known variances, differentially private; ``+`` adds those of sites.

    Made by `release`, which states the clipping; its module derives the sensitivity.

    Attributes
    ----------
    gram : ndarray of shape (n_weights, n_weights)
        A = Σωφφᵀ with noise, symmetric; not necessarily positive.
    c : ndarray of shape (n_weights,)
        Σωφv with noise, of targets v mapped from `y_bounds` to [−1, 1].
    yty : float
        Σωv² with noise.
    n_samples : float
        Σω with noise.
    gram_variance : float
        Variance of the noise on the diagonal of `gram`; half of it off the diagonal.
    c_variance, yty_variance, n_variance : float
    norm_bound : float
        C, to which rows of Φ were clipped.
    y_bounds : tuple of float
        To which targets were clipped.
    fingerprint : str
        Of the feature map.
    mu : float
        Sensitivity over the noise's deviation, the largest of any site; see `pydirect.statistics.gaussian_epsilon`.
    """

    gram: FloatArray
    c: FloatArray
    yty: float
    n_samples: float
    gram_variance: float
    c_variance: float
    yty_variance: float
    n_variance: float
    norm_bound: float
    y_bounds: tuple[float, float]
    fingerprint: str
    mu: float

    __repr__ = short_repr

    @property
    def n_weights(self) -> int:
        """Number of basis functions b."""
        return len(self.c)

    @classmethod
    def release(
        cls,
        features: FeatureMap,
        x: ArrayLike,
        y: ArrayLike,
        *,
        y_bounds: tuple[float, float],
        norm_bound: float,
        mu: float,
        rng: np.random.Generator,
    ) -> Self:
        """Sum over private rows and add noise.

        Parameters
        ----------
        features : FeatureMap
            Chosen without looking at the private rows.
        x : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,)
            Targets.
        y_bounds : tuple of float
            Smallest and largest target, known without looking; others are moved to them.
        norm_bound : float
            C, known without looking; rows with a longer φ count less than once.
        mu : float
            From `PrivacyBudget.spend`.
        rng : Generator
            Whoever knows its seed knows the noise.
        """
        low, high = as_bounds(y_bounds, "y_bounds")
        bound = as_number(norm_bound, "norm_bound", above=0.0)
        mu = as_number(mu, "mu", above=0.0)
        x = as_float_array(x, "x", ("n_samples", "n_features_in"))
        targets = as_float_array(y, "y", (len(x),))
        v = (2 * np.clip(targets, low, high) - (low + high)) / (high - low)
        gram, c, yty, n_samples = clipped_sums(features, x, v, bound)
        sigma = SENSITIVITY / mu
        of_gram, of_c, of_yty, of_n = (sigma * np.array([bound**2, bound, 1, 1]) / np.array([1, *WEIGHTS])).tolist()
        return cls(
            gram=gram + symmetric_noise(len(c), of_gram, rng),
            c=c + of_c * rng.standard_normal(len(c)),
            yty=yty + of_yty * float(rng.standard_normal()),
            n_samples=n_samples + of_n * float(rng.standard_normal()),
            gram_variance=of_gram**2,
            c_variance=of_c**2,
            yty_variance=of_yty**2,
            n_variance=of_n**2,
            norm_bound=bound,
            y_bounds=(low, high),
            fingerprint=fingerprint(features),
            mu=mu,
        )

    def __add__(self, other: NoisyStatistics) -> Self:
        """Return the sums over the rows of both, which are different rows; variances of the noise add."""
        if not isinstance(other, NoisyStatistics):
            return NotImplemented
        for name in ("fingerprint", "norm_bound", "y_bounds"):
            own, others = getattr(self, name), getattr(other, name)
            if own != others:
                raise ValueError(f"noisy statistics must have the same {name}, got {own} and {others}")
        added = ("gram", "c", "yty", "n_samples", "gram_variance", "c_variance", "yty_variance", "n_variance")
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in added}
        return replace(self, **sums, mu=max(self.mu, other.mu))

    def __radd__(self, other: object) -> Self:
        """Return these for 0, with which ``sum`` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    # --- files

    def save(self, path: str | Path) -> None:
        """Write one file, arrays and a versioned header, under a temporary name and renamed.

        Parameters
        ----------
        path : str or Path
            Path of the file.
        """
        header = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS}
        write(path, KIND, {**header, "y_bounds": list(self.y_bounds)}, {name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or Path
            Path of the file.

        Raises
        ------
        pydirect.FileFormatError
            With the reason, when the file is truncated, altered, of a later version or does not hold such sums.
        """
        document = read(path, KIND)
        try:
            return cls._from_document(document.header, document.arrays)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"the file is whole but its contents are no noisy statistics ({type(error).__name__}: {error})"
            raise CorruptFileError(path, reason) from error

    @classmethod
    def from_fields(cls, header: dict[str, Any], arrays: dict[str, np.ndarray], name: str) -> Self:
        """Rebuild from the fields written by `pydirect.persistence.fields.Writer.fields`, and check the result.

        Parameters
        ----------
        header : dict
            Header of the file.
        arrays : dict of str to ndarray
            Arrays of the file, by name.
        name : str
            Name under which the fields were written.
        """
        return cls._from_document(header, {own: arrays[f"{name}.{own}"] for own in _ARRAYS})

    @classmethod
    def _from_document(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        b = len(arrays["c"])
        numbers = {name: as_number(header[name], name) for name in ("yty", "n_samples")}
        positive = ("gram_variance", "c_variance", "yty_variance", "n_variance", "norm_bound", "mu")
        numbers |= {name: as_number(header[name], name, above=0.0) for name in positive}
        if not isinstance(header["fingerprint"], str):
            raise TypeError("fingerprint must be a string")
        if not np.array_equal(arrays["gram"], arrays["gram"].T):
            raise ValueError("gram must be symmetric")
        return cls(
            gram=as_float_array(arrays["gram"], "gram", (b, b)),
            c=as_float_array(arrays["c"], "c", (b,)),
            y_bounds=as_bounds(header["y_bounds"], "y_bounds"),
            fingerprint=header["fingerprint"],
            **numbers,
        )


def as_bounds(value: Any, name: str) -> tuple[float, float]:
    """Return a lower and a larger upper bound."""
    bounds = as_float_array(value, name, (2,))
    if not bounds[0] < bounds[1]:
        raise ValueError(f"{name} must be a smaller and a larger number, got {bounds[0]:g} and {bounds[1]:g}")
    return float(bounds[0]), float(bounds[1])


def clipped_sums(
    features: FeatureMap, x: FloatArray, v: FloatArray, norm_bound: float
) -> tuple[FloatArray, FloatArray, float, float]:
    """Return A, c, Σωv² and Σω over rows whose features are clipped to a length.

    `x`, (n_rows, n_features_in). `v`, (n_rows,).
    """
    b = features.n_weights
    gram, c, yty, n_samples = np.zeros((b, b)), np.zeros(b), 0.0, 0.0
    with single_blas_thread():
        for begin, end in row_blocks(len(x), block_rows(b, np.float64)):
            phi, own = np.array(features.transform(x[begin:end])), v[begin:end]
            # Rounding must not let a row of large features count for more than its share.
            length = np.sqrt(np.einsum("ij,ij->i", phi, phi))
            root = np.minimum(1.0, norm_bound / np.maximum(length, norm_bound))
            phi *= root[:, None]
            gram += gram_of(phi)
            c += phi.T @ (root * own)
            yty += float(np.square(root * own).sum())
            n_samples += float(np.square(root).sum())
    return gram, c, yty, n_samples


def symmetric_noise(b: int, deviation: float, rng: np.random.Generator) -> FloatArray:
    """Return a symmetric matrix of noise, of this deviation on the diagonal and 1/√2 of it elsewhere; (b, b)."""
    square = rng.standard_normal((b, b)) * (deviation / 2)
    return np.asarray(square + square.T)
