"""The kernel of learned features and its hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pydirect import _core
from pydirect._validation import FloatArray, as_count, short_repr
from pydirect.features.inputs import LARGEST
from pydirect.persistence.fields import require_array, require_number

# Smoothness ν of the Matérn part for which there are kernels: 1/2 is continuous, 5/2 twice differentiable.
SMOOTHNESS = (0.5, 1.5, 2.5)
# Standardised inputs of the linear part are clipped to this, so as not to extrapolate to outlying rows.
LINEAR_REACH = 5.0
LOG2_E = float(np.log2(np.e))


def linear_inputs(x: FloatArray, n_linear: int) -> FloatArray:
    """Return the inputs of the linear part, (n_rows, n_linear)."""
    return np.clip(x[:, :n_linear], -LINEAR_REACH, LINEAR_REACH)


class PreparedRows:
    """Rows with which others are compared again and again, in panels of eight, and the kernel in the units of C++."""

    def __init__(self, p: KernelHyperparameters, x: FloatArray) -> None:
        self.n_rows = len(x)
        padded = np.pad(x, ((0, -len(x) % _core.LEVEL_PADDING), (0, 0)))
        columns = np.vstack([padded.T, linear_inputs(padded, p.n_linear).T])
        panels = columns.reshape(len(columns), len(padded) // _core.LEVEL_PADDING, _core.LEVEL_PADDING)
        others = np.ascontiguousarray(panels.swapaxes(0, 1))
        # Distances are weighted such that parts of the covariance decay as powers of two.
        order = round(2 * p.smoothness)
        weights = order * (LOG2_E / p.length_scales) ** 2
        isotropic_weight = (LOG2_E / p.isotropic_length_scale) ** 2
        amplitudes = p.amplitudes
        if p.ard_amplitude == 0:  # the exponential part is the Matérn function of smoothness 1/2
            order, weights, amplitudes[:2] = 1, np.full_like(weights, isotropic_weight), (p.isotropic_amplitude, 0.0)
        self.arguments = others, weights, isotropic_weight, amplitudes, LINEAR_REACH, order


@dataclass(frozen=True)
class KernelHyperparameters:
    """Hyperparameters of the covariance function, for standardised targets.

    Attributes
    ----------
    noise_variance : float
    ard_amplitude : float
    length_scales : ndarray of shape (n_inputs,)
        Length-scales of the Matérn part.
    isotropic_amplitude : float
    isotropic_length_scale : float
        Length-scale of the exponential part.
    linear_amplitude : float
        Variance of the linear part at a typical row.
    n_linear : int
        Number of leading inputs in the linear part.
    smoothness : {1.5, 0.5, 2.5}, default=1.5
        ν of the Matérn part.
    n_evaluations : int, default=0
        Number of evaluations of the marginal likelihood that were needed to find them.
    """

    noise_variance: float
    ard_amplitude: float
    length_scales: FloatArray
    isotropic_amplitude: float
    isotropic_length_scale: float
    linear_amplitude: float
    n_linear: int
    smoothness: float = 1.5
    n_evaluations: int = 0

    __repr__ = short_repr

    constant = 1.0

    @property
    def amplitudes(self) -> FloatArray:
        """Amplitudes in the order of the C++ kernels: Matérn, exponential, linear per input, constant; (4,)."""
        linear = self.linear_amplitude / max(self.n_linear, 1)
        return np.array([self.ard_amplitude, self.isotropic_amplitude, linear, self.constant])

    def diagonal(self, x: FloatArray) -> FloatArray:
        """Prior variance of f at the rows of x, (n_rows,).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_inputs)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows,)
            Variances.
        """
        linear = linear_inputs(x, self.n_linear)
        ard, isotropic, slope, constant = self.amplitudes
        return ard + isotropic + constant + slope * np.einsum("ij,ij->i", linear, linear)

    def cut_off_inputs(self, x: FloatArray) -> FloatArray:
        """Return what clipping takes off the inputs of the linear part, (n_rows, n_linear).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_inputs)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_linear)
            Differences.
        """
        return x[:, : self.n_linear] - linear_inputs(x, self.n_linear)

    def cut_off_variance(self, x: FloatArray) -> FloatArray:
        """Prior variance that the linear part loses by clipping its inputs, (n_rows,).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_inputs)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows,)
            Variances.
        """
        beyond = self.cut_off_inputs(x)
        return self.amplitudes[2] * np.einsum("ij,ij->i", beyond, beyond)

    def prepared(self, x: FloatArray) -> PreparedRows:
        """Return rows with which others are compared again and again.

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_inputs)
            Rows of inputs.

        Returns
        -------
        PreparedRows
            The rows, scaled for the kernel.
        """
        return PreparedRows(self, x)

    def covariance(self, x: FloatArray, other: FloatArray | PreparedRows, n_threads: int = 1) -> FloatArray:
        """Covariance of f between rows, (len(x), len(other)).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_inputs)
            Rows of inputs.
        other : ndarray of shape (n_other, n_inputs) or PreparedRows
            Rows to compare with.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_other)
            Covariances.
        """
        others = other if isinstance(other, PreparedRows) else self.prepared(other)
        out = np.empty((len(x), others.n_rows))
        _core.cross_covariance(np.ascontiguousarray(x), *others.arguments, out, n_threads)
        return out

    def check(self, n_inputs: int) -> None:
        """Raise unless the hyperparameters fit the number of inputs and are in range.

        Parameters
        ----------
        n_inputs : int
            Number of inputs.
        """
        if (require_array(self.length_scales, "length_scales", n_inputs) < 1 / LARGEST).any():
            raise ValueError(f"length_scales must be at least {1 / LARGEST:g}")
        require_number(self.noise_variance, "noise_variance", above=0.0)
        require_number(self.isotropic_length_scale, "isotropic_length_scale", at_least=1 / LARGEST)
        if require_number(self.smoothness, "smoothness") not in SMOOTHNESS:
            raise ValueError(f"smoothness must be one of {SMOOTHNESS}, got {self.smoothness}")
        for name in ("ard_amplitude", "isotropic_amplitude", "linear_amplitude"):
            require_number(getattr(self, name), name, at_least=0.0, at_most=LARGEST)
        if as_count(self.n_linear, "n_linear", 0) > n_inputs:
            raise ValueError(f"n_linear must be at most {n_inputs}, got {self.n_linear}")
