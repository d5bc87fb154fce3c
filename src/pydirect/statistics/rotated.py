"""Sufficient statistics in the basis of eigenvectors of ΦᵀΦ, where weights do not interact."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh, qr

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_instance, as_output, short_repr
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotation import Rotation, diagonalise


@dataclass(frozen=True)
class RotatedTarget:
    """Statistics of one target in the decorrelated basis.

    - `c` (n_directions,): VᵀΦᵀy
    """

    rotation: Rotation
    eigenvalues: FloatArray
    c: FloatArray
    yty: float
    n_samples: float

    __repr__ = short_repr

    def squared_error(self, mean: FloatArray, second_moment: FloatArray) -> float:
        """Return ``R = yᵀy − 2 sᵀc + Σ_j λ_j E w_j²``: eq. 8 with a diagonal A."""
        return float(self.yty - 2 * (mean @ self.c) + self.eigenvalues @ second_moment)

    def keep(self, mask: np.ndarray) -> RotatedTarget:
        """Return the statistics restricted to some directions."""
        rotation = self.rotation.columns(mask)
        return replace(self, rotation=rotation, eigenvalues=self.eigenvalues[mask], c=self.c[mask])

    def scaled(self, variance: float) -> RotatedTarget:
        """Return the statistics of √variance Φ: weights of prior variance one instead of `variance`."""
        return replace(self, eigenvalues=self.eigenvalues * variance, c=self.c * np.sqrt(variance))


@dataclass(frozen=True)
class RotatedStatistics:
    """Statistics in the decorrelated basis: ΦᵀΦ is diagonal there.

    - `rotation`: To orthonormal columns V, (n_weights, n_directions); directions on which A vanishes may be missing.
    - `eigenvalues` (n_directions,)
    - `c` (n_directions, n_outputs): VᵀΦᵀy
    - `yty` (n_outputs,)
    - `gram` (n_weights, n_weights): A, where it was formed.
    """

    rotation: Rotation
    eigenvalues: FloatArray
    c: FloatArray
    yty: FloatArray
    n_samples: float
    gram: FloatArray | None = None

    __repr__ = short_repr

    @property
    def vectors(self) -> FloatArray:
        """Columns V, (n_weights, n_directions)."""
        return self.rotation.matrix

    @property
    def n_outputs(self) -> int:
        """Number of targets that share A."""
        return self.c.shape[1]

    def divided(self, repetitions: float) -> RotatedStatistics:
        """Return the statistics of rows whose weights are divided."""
        if repetitions == 1:
            return self
        return replace(
            self,
            gram=None if self.gram is None else self.gram / repetitions,
            eigenvalues=self.eigenvalues / repetitions,
            c=self.c / repetitions,
            yty=self.yty / repetitions,
            n_samples=self.n_samples / repetitions,
        )

    def outputs(self, chosen: slice) -> RotatedStatistics:
        """Return the statistics of consecutive targets, which share the rotation."""
        return replace(self, c=self.c[:, chosen], yty=self.yty[chosen])

    def target(self, k: int) -> RotatedTarget:
        """Return the statistics of one target, which share the rotation."""
        k = as_output(k, self.n_outputs)
        c = np.ascontiguousarray(self.c[:, k])
        return RotatedTarget(self.rotation, self.eigenvalues, c, float(self.yty[k]), self.n_samples)


def as_rotated_target(rotated: RotatedTarget | RotatedStatistics) -> RotatedTarget:
    """Validate rotated statistics of one target."""
    as_instance(rotated, "rotated", RotatedTarget, RotatedStatistics)
    if isinstance(rotated, RotatedTarget):
        return rotated
    if rotated.n_outputs != 1:
        raise ValueError(f"rotated must be of one target, got {rotated.n_outputs}: choose rotated.target(k)")
    return rotated.target(0)


def decorrelate(statistics: GaussianStatistics) -> RotatedStatistics:
    """Diagonalise A; through the rows (a thin factorisation) when there are fewer rows than weights."""
    gram = None
    with single_blas_thread():
        if statistics.rows is not None:
            eigenvalues, left = eigh(statistics.rows @ statistics.rows.T, driver="evd", check_finite=False)
            used = eigenvalues > eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
            eigenvalues = eigenvalues[used]
            rotation = Rotation(_orthonormal((statistics.rows.T @ left[:, used]) / np.sqrt(eigenvalues)))
        else:
            gram = statistics.A
            eigenvalues, rotation = diagonalise(gram)
            used = eigenvalues > eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
            eigenvalues, rotation = eigenvalues[used], rotation.columns(used)
        # By Cauchy and Schwarz no direction explains more than there is; where rounding of A (of float32 blocks, above
        # all) says otherwise, the evidence would run away.
        largest = np.sqrt(np.outer(eigenvalues, statistics.yty))
        c = np.clip(rotation.transposed_times(statistics.c), -largest, largest)
        return RotatedStatistics(rotation, eigenvalues, c, statistics.yty, statistics.n_samples, gram)


def _orthonormal(vectors: FloatArray) -> FloatArray:
    """Remove from each column what it has of later ones, which are of larger eigenvalues.

    Rounding leaves about ε √(λ_max/λ) of the leading directions in a direction of eigenvalue λ: more than the data say
    about it where targets are nearly noise-free.
    """
    q, r = qr(vectors[:, ::-1], mode="economic", overwrite_a=True, check_finite=False)
    # Contiguous: files keep C or Fortran order, and BLAS rounds products of reversed columns otherwise.
    return np.asfortranarray((q * np.sign(r.diagonal()))[:, ::-1])
