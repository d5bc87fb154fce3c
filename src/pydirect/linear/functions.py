"""Variances of functions of Gaussian weights, by rotation or by one product in single precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pydirect._dense import orthonormal, product, subtract_product
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.maps import FeatureMap
from pydirect.linear.posterior import GaussianPosterior
from pydirect.statistics.rotated import Rotation

# Number of entries from which the rotation of a fitted model is kept in single precision.
LARGE_ROTATION = 2**18
# Largest relative error of the folded product, of variances at some landmarks and between them; elsewhere about that.
FOLDING_ERROR = 1e-3
N_TEST_LANDMARKS = 64
# Directions of k(x, Z) that are multiplied in double precision, and landmarks by which they are found.
N_LEADING = 16
N_RANGE_LANDMARKS = 512


def with_precision(posteriors: Sequence[Any], dtype: DTypeLike, smallest: int = 0) -> list[Any]:
    """Return posteriors whose rotations, of at least so many entries, have this type; outputs share them as before.

    Single precision moves deviations of f by about 1e-9 of those under the prior. Smaller rotations are formed now.
    """
    rotations: dict[int, Rotation] = {}
    found = []
    for posterior in posteriors:
        if isinstance(posterior, GaussianPosterior):
            own = posterior.rotation
            key = id(own.matrix) if own.is_formed else id(own)  # files share matrices
            if key not in rotations:
                rotations[key] = own.astype(dtype) if np.prod(own.shape) >= smallest else own.formed()
            posterior = replace(posterior, rotation=rotations[key])
        found.append(posterior)
    return found


def latent_variances(posteriors: Sequence[Any], scale: FloatArray, phi: FloatArray) -> FloatArray:
    """Variances of functions scale · φᵀw, one per posterior, (n_rows, n_outputs).

    Gaussian posteriors with the same vectors share the rotation of Φ.
    """
    variances = np.empty((len(phi), len(posteriors)))
    sharing: dict[int, list[int]] = {}
    for k, posterior in enumerate(posteriors):
        if isinstance(posterior, GaussianPosterior):
            sharing.setdefault(id(posterior.vectors), []).append(k)
        else:
            variances[:, k] = posterior.latent_moments(phi)[1]
    for own in sharing.values():
        chosen = [posteriors[k] for k in own]
        variances[:, own] = variances_of_rotated(chosen, *chosen[0].rotated(phi))
    return scale**2 * variances


def variances_of_rotated(
    posteriors: Sequence[GaussianPosterior], rotated: FloatArray, outside: FloatArray
) -> FloatArray:
    """Variances of φᵀw, (n_rows, n_posteriors), of posteriors with the same vectors; rows as `rotated` returns them.

    One product with the variances of all weights, as 100 outputs read their rows a hundred times otherwise.
    """
    if len(posteriors) == 1:
        return posteriors[0].moments_of_rotated(rotated, outside)[1][:, None]
    inside = product(rotated**2, np.stack([posterior.variance for posterior in posteriors], axis=1))
    return inside + np.outer(outside, [posterior.prior_variance for posterior in posteriors])


def _some(rows: FloatArray, n: int) -> FloatArray:
    """Return at most n evenly spaced rows."""
    return rows[:: -(-len(rows) // n)]


class Folded(NamedTuple):
    """M = L⁻ᵀV in single precision, (n, n), for what leading directions leave of k(x, Z).

    `leading` B, (n_leading, n), orthonormal, and `images` BM, (n_leading, n), are in double precision.
    """

    matrix: NDArray[np.float32]
    leading: FloatArray
    images: FloatArray

    @classmethod
    def of(cls, features: FeatureMap, vectors: NDArray[Any]) -> Folded:
        """Fold the whitening of kernel functions into a rotation."""
        k, rng = features.functions(_some(features.landmarks, N_RANGE_LANDMARKS)), np.random.default_rng(0)
        leading = orthonormal(product(rng.standard_normal((min(N_LEADING, len(k)), len(k))), k))
        for _ in range(2):  # a range finder: Halko, Martinsson & Tropp (2011), algorithm 4.4
            leading = orthonormal(product(product(leading, k.T), k))
        matrix = features.weights_of_functions(vectors.astype(np.float64))
        return cls(matrix.astype(np.float32), leading, product(leading, matrix))

    def rotate(self, functions: FloatArray) -> FloatArray:
        """Return rows of k(x, Z) times M, (n_rows, n); takes the memory of the rows."""
        shares = product(functions, self.leading.T)
        subtract_product(shares, self.leading, functions)
        rotated = product(functions.astype(np.float32), self.matrix).astype(np.float64)
        rotated += product(shares, self.images)
        return np.asarray(rotated)


class LatentVariances:
    """Variances of functions of one basis, scale · φᵀw, and their residual variance.

    Where Φ = k(x, Z) L⁻ᵀ is rotated by a square V, k(x, Z) (L⁻ᵀV) has the same length as Φ, and all variances follow
    from it. Where landmarks are close and noise is low, L⁻ᵀV is too ill-conditioned for single precision: it is used
    if it gives the same variances at landmarks and between them.

    Parameters
    ----------
    basis : Basis
    posteriors : sequence
        Of the weights, per function.
    scale : ndarray of shape (n_outputs,)
        Prior standard deviations of the weights.
    mean_missing : float
        See `Basis.mean_missing_variance`.
    """

    def __init__(self, basis: Basis, posteriors: Sequence[Any], scale: FloatArray, mean_missing: float) -> None:
        self.basis, self.posteriors, self.scale, self.mean_missing = basis, posteriors, scale, mean_missing

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("folded", "_double")}

    def prepare(self) -> None:
        """Compute what the first rows need, before several threads do."""
        self.basis.map.prepare()
        if self.folded is None:
            self._double  # noqa: B018

    def of(self, inputs: FloatArray, functions: FloatArray) -> FloatArray:
        """Return the variances, (n_rows, n_outputs), and use the memory of `functions`, those of `inputs`."""
        return self._of(inputs, functions, self.folded)

    @cached_property
    def folded(self) -> Folded | None:
        """What replaces whitening and rotation; None where nothing does."""
        features, first = self.basis.map, self.posteriors[0]
        if features.residual_kernel is None or not isinstance(first, GaussianPosterior):
            return None
        vectors = first.vectors
        shared = all(posterior.vectors is vectors for posterior in self.posteriors)
        if not shared or vectors.dtype != np.float32 or vectors.shape[0] != vectors.shape[1]:
            return None
        chosen = _some(features.landmarks, N_TEST_LANDMARKS)
        inputs = np.vstack([chosen, 0.5 * (chosen[1:] + chosen[:-1])])
        with single_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            folded = Folded.of(features, vectors)
            found, expected = (self._of(inputs, features.functions(inputs), by) for by in (folded, None))
            same = (np.abs(found - expected) <= FOLDING_ERROR * expected).all()
        if same:
            self.__dict__.pop("_double", None)  # not needed any more
        return folded if same else None

    @cached_property
    def _double(self) -> list[Any]:
        return with_precision(self.posteriors, np.float64)

    def _of(self, inputs: FloatArray, functions: FloatArray, folded: Folded | None) -> FloatArray:
        if folded is None:
            phi = self.basis.whitened(functions)
            variances = latent_variances(self._double, self.scale, phi)
        else:
            phi = folded.rotate(functions)
            variances = self.scale**2 * variances_of_rotated(self.posteriors, phi, np.zeros(len(phi)))
        residual = self.basis.missing_variance(inputs, phi, self.mean_missing)  # rotated rows have the same length
        return variances + residual[:, None] * self.scale**2
