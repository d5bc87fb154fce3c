"""Feature maps whose basis functions are products of functions of single inputs: linear, polynomial, Fourier.

Averages over some inputs, and sums over coalitions of them (`pydirect.explain.coalitions`), are then products too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.kernel import linear_inputs
from pydirect.features.maps import (
    FeatureMap,
    FourierFeatures,
    LinearFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
)


@dataclass(frozen=True)
class ProductMap:
    """A feature map as Φ(x) = Re u(x)T, where each term of u is a product of functions of one input each.

    Terms are exp(i xW), then monomials of the inputs.

    Attributes
    ----------
    frequencies : ndarray of shape (n_inputs, n_frequencies)
        W, radians.
    powers : ndarray of int, shape (n_monomials, n_inputs)
    clipped : int
        Number of leading inputs that monomials take clipped.
    matrix : ndarray of shape (n_frequencies + n_monomials, n_weights), complex if there are frequencies
        T
    """

    frequencies: FloatArray
    powers: NDArray[np.intp]
    clipped: int
    matrix: NDArray[np.complex128] | FloatArray

    @classmethod
    def of(cls, features: FeatureMap) -> ProductMap | None:
        """Return the map's products, None if it has none."""
        if isinstance(features, FourierFeatures):
            return cls._of_fourier(features)
        if not isinstance(features, PrecomputedFeatures | LinearFeatures | PolynomialFeatures):
            return None
        d, b = features.n_features_in, features.n_weights
        matrix = np.eye(b)
        if isinstance(features, PolynomialFeatures):
            powers = np.zeros((b, d), dtype=np.intp)
            for m, monomial in enumerate(features.monomials):
                np.add.at(powers[m], list(monomial), 1)
        else:
            powers = np.eye(b, d, dtype=np.intp)
            matrix[d:] *= getattr(features, "intercept_scale", 1.0)
        return cls(np.empty((d, 0)), powers, 0, matrix)

    @classmethod
    def _of_fourier(cls, features: FourierFeatures) -> ProductMap:
        d, f = features.n_features_in, features.n_frequencies
        scale = np.empty(0) if features.linear_scale is None else features.linear_scale
        monomials = np.append(scale, [] if features.constant is None else features.constant)
        matrix = np.zeros((f + len(monomials), features.n_weights), dtype=np.complex128)
        waves = np.arange(f)
        matrix[waves, waves] = features.amplitudes  # a cos = Re a u
        matrix[waves, f + waves] = -1j * features.amplitudes  # a sin = Re −ia u
        rest = np.arange(len(monomials))
        matrix[f + rest, 2 * f + rest] = monomials
        powers = np.zeros((len(monomials), d), dtype=np.intp)
        powers[np.arange(len(scale)), np.arange(len(scale))] = 1
        return cls(features.frequencies, powers, len(scale), matrix)

    @property
    def n_terms(self) -> int:
        """Number of terms of u."""
        return len(self.matrix)

    def degree(self, groups: NDArray[np.intp]) -> int:
        """Return the largest number of groups of inputs that a term is a product over.

        `groups`, (n_inputs,): the group of each input.
        """
        if self.frequencies.size:
            return len(np.unique(groups))
        return max((len(np.unique(groups[own > 0])) for own in self.powers), default=0)

    def factors(self, x: FloatArray, groups: NDArray[np.intp], n_groups: int) -> NDArray[np.complex128] | FloatArray:
        """Return what each group of inputs multiplies the terms by, (n_groups, n_terms), for one row of inputs.

        Parameters
        ----------
        x : ndarray of shape (n_inputs,)
        groups : ndarray of int, shape (n_inputs,)
            Numbers from 0 of the groups of the inputs.
        n_groups : int
        """
        waves = np.zeros((n_groups, self.frequencies.shape[1]))
        np.add.at(waves, groups, x[:, None] * self.frequencies)
        clipped = np.concatenate([linear_inputs(x[None], self.clipped)[0], x[self.clipped :]])
        monomials = np.ones((n_groups, len(self.powers)))
        for value, group, power in zip(clipped, groups, self.powers.T, strict=True):
            monomials[group] *= value**power
        return np.hstack([np.exp(1j * waves), monomials]) if waves.size else monomials
