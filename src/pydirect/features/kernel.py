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


def linear_inputs(x: FloatArray, n_linear: int) -> FloatArray:
    """Return the inputs of the linear part, (n_rows, n_linear)."""
    return np.clip(x[:, :n_linear], -LINEAR_REACH, LINEAR_REACH)


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
    smoothness : {1.5, 0.5, 2.5}
        ν of the Matérn part.
    n_evaluations : int
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

    def scaled(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the scaled inputs of the three parts of the covariance, (n_rows, ...) each."""
        return x / self.length_scales, x / self.isotropic_length_scale, linear_inputs(x, self.n_linear)

    def diagonal(self, x: FloatArray) -> FloatArray:
        """Prior variance of f at the rows of x, (n_rows,)."""
        linear = linear_inputs(x, self.n_linear)
        ard, isotropic, slope, constant = self.amplitudes
        return ard + isotropic + constant + slope * np.einsum("ij,ij->i", linear, linear)

    def cut_off_variance(self, x: FloatArray) -> FloatArray:
        """Prior variance that the linear part loses by clipping its inputs, (n_rows,)."""
        beyond = x[:, : self.n_linear] - linear_inputs(x, self.n_linear)
        return self.amplitudes[2] * np.einsum("ij,ij->i", beyond, beyond)

    def covariance(self, x: FloatArray, other: FloatArray, n_threads: int = 1) -> FloatArray:
        """Covariance of f between rows, (len(x), len(other))."""
        extra = -len(other) % _core.LEVEL_PADDING
        padded = np.pad(other, ((0, extra), (0, 0)))
        own, others = self.scaled(x), self.scaled(padded)
        ard, isotropic, linear = (np.ascontiguousarray(a @ b.T) for a, b in zip(own, others, strict=True))
        norms = [np.einsum("ij,ij->i", a, a) for a in (*others[:2], *own[:2])]
        out, order = np.empty_like(ard), round(2 * self.smoothness)
        _core.cross_covariance(
            ard, isotropic, linear, norms[0], norms[1], norms[2], norms[3], self.amplitudes, out, n_threads, order
        )
        return out[:, : len(other)]

    def check(self, n_inputs: int) -> None:
        """Raise unless the hyperparameters fit the number of inputs and are in range."""
        if (require_array(self.length_scales, "length_scales", n_inputs) < 1 / LARGEST).any():
            raise ValueError(f"length_scales must be at least {1 / LARGEST:g}")
        require_number(self.noise_variance, "noise_variance", above=0.0)
        require_number(self.isotropic_length_scale, "isotropic_length_scale", above=0.0)
        if require_number(self.smoothness, "smoothness") not in SMOOTHNESS:
            raise ValueError(f"smoothness must be one of {SMOOTHNESS}, got {self.smoothness}")
        for name in ("ard_amplitude", "isotropic_amplitude", "linear_amplitude"):
            require_number(getattr(self, name), name, at_least=0.0, at_most=LARGEST)
        if as_count(self.n_linear, "n_linear", 0) > n_inputs:
            raise ValueError(f"n_linear must be at most {n_inputs}, got {self.n_linear}")
