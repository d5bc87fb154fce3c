"""Draws of weights kept where the posterior keeps them: rotated, so that a thousand of them take no product at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.linear.posterior import GaussianPosterior
from pydirect.statistics.rotated import Rotation


@dataclass(frozen=True, eq=False)
class WeightDraws:
    """Draws of weights of Φ about their posterior mean: deviations V z, and what lies outside of the columns of V.

    Parameters
    ----------
    inside : ndarray of shape (n_directions, n_draws)
        z; in directions of Φ itself if there is no rotation.
    rotation : Rotation, optional
        V.
    outside : ndarray of shape (n_weights, n_draws), optional
        Draws of which the part orthogonal to V counts: of directions that stayed at their prior.
    """

    inside: NDArray[Any]
    rotation: Rotation | None = None
    outside: NDArray[Any] | None = None

    @classmethod
    def of(cls, posterior: Any, n_draws: int, rng: np.random.Generator) -> Self:
        """Draw from a posterior of weights, as ``posterior.sample_weights`` does unless it is Gaussian."""
        if not isinstance(posterior, GaussianPosterior):
            drawn = posterior.sample_weights(n_draws, rng) - posterior.coefficients
            return cls(np.ascontiguousarray(drawn.T))
        rotation = posterior.rotation
        n_weights, n_directions = rotation.shape
        inside = rng.standard_normal((n_directions, n_draws), dtype=np.float32)
        inside *= posterior.std.astype(np.float32)[:, None]
        outside = None
        if n_directions < n_weights:
            outside = rng.standard_normal((n_weights, n_draws), dtype=np.float32)
            outside *= np.float32(np.sqrt(posterior.prior_variance))
        return cls(inside, rotation, outside)

    @property
    def n_draws(self) -> int:
        """Number of draws."""
        return self.inside.shape[1]

    def __getitem__(self, chosen: slice) -> Self:
        outside = None if self.outside is None else self.outside[:, chosen]
        return replace(self, inside=self.inside[:, chosen], outside=outside)

    @cached_property
    def matrix(self) -> FloatArray:
        """The deviations, (n_weights, n_draws)."""
        if self.rotation is None:
            return self.inside.astype(np.float64)
        with single_blas_thread():
            vectors = self.rotation.matrix.astype(np.float64)
            if self.outside is None:
                return np.asarray(vectors @ self.inside)
            return np.asarray(vectors @ (self.inside - vectors.T @ self.outside) + self.outside)

    def at(self, phi: FloatArray) -> FloatArray:
        """Return the deviations of φᵀw for rows of Φ, (n_rows, n_draws).

        Few rows are rotated themselves, which takes less than to rotate all draws.
        """
        if self.rotation is None or len(phi) > self.n_draws:
            return phi @ self.matrix
        vectors = self.rotation.matrix.astype(np.float64)
        rotated = phi @ vectors
        values = rotated @ self.inside
        if self.outside is not None:
            values += (phi - rotated @ vectors.T) @ self.outside
        return np.asarray(values)
