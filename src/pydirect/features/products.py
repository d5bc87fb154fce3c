"""Feature maps whose basis functions are products of functions of single inputs: linear, polynomial, Fourier.

Averages over some inputs, and sums over coalitions of them (`pydirect.explain.shapley`), are then products too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.kernel import linear_inputs


@dataclass(frozen=True)
class ProductMap:
    """Φ(x) = Re u(x)T, where each term of u is a product of functions of one input each.

    Terms are exp(i xW), W the `frequencies` (n_inputs, n_frequencies), then monomials of the inputs, of which the
    leading `clipped` are taken clipped. T is the `matrix` (n_frequencies + n_monomials, n_weights).
    """

    frequencies: FloatArray
    powers: NDArray[np.intp]
    clipped: int
    matrix: NDArray[np.complex128] | FloatArray

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
        """Return what each group of inputs multiplies the terms by, (n_groups, n_terms), for one row of inputs."""
        waves = np.zeros((n_groups, self.frequencies.shape[1]))
        np.add.at(waves, groups, x[:, None] * self.frequencies)
        clipped = np.concatenate([linear_inputs(x[None], self.clipped)[0], x[self.clipped :]])
        monomials = np.ones((n_groups, len(self.powers)))
        for value, group, power in zip(clipped, groups, self.powers.T, strict=True):
            monomials[group] *= value**power
        return np.hstack([np.exp(1j * waves), monomials]) if waves.size else monomials
