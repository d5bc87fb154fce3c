"""The kernel of learned features and its hyperparameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from pydirect import _core
from pydirect._dense import squared_norms
from pydirect._validation import FloatArray, short_repr
from pydirect.features.inputs import LARGEST
from pydirect.persistence.schema import AtLeast, Between, OneOf, Positive, Shape

# Smoothness ν of the Matérn part for which there are kernels: 1/2 is continuous, 5/2 twice differentiable. Their limit,
# infinitely smooth, is written as 0.
SMOOTHNESS, SQUARED_EXPONENTIAL = (0.5, 1.5, 2.5), 0.0
# Standardised inputs of the linear part are clipped to this, so as not to extrapolate to outlying rows.
LINEAR_REACH = 5.0
# Order of a part that is a mean over pairs of axes.
PAIRS = 2
LOG2_E = float(np.log2(np.e))


def linear_inputs(x: FloatArray, n_linear: int) -> FloatArray:
    """Return the inputs of the linear part, (n_rows, n_linear)."""
    return np.clip(x[:, :n_linear], -LINEAR_REACH, LINEAR_REACH)


class Kernel(ABC):
    """What feature maps, predictions and draws ask of a covariance function, for standardised targets."""

    if TYPE_CHECKING:  # fields

        @property
        def noise_variance(self) -> float: ...

    @abstractmethod
    def prepared(self, x: FloatArray) -> Any:
        """Return rows with which others are compared again and again."""

    @abstractmethod
    def covariance(self, x: FloatArray, other: Any, n_threads: int = 1) -> FloatArray:
        """Covariance of f between rows and others, which may be prepared, (n_rows, n_other)."""

    @abstractmethod
    def diagonal(self, x: FloatArray) -> FloatArray:
        """Prior variance of f at the rows of x, (n_rows,)."""

    def typical_variance(self, x: FloatArray) -> float:
        """Prior variance of f at a typical row, to which rounding of covariances is compared."""
        return float(self.diagonal(x).mean())

    def beyond(self, x: FloatArray) -> FloatArray:
        """Features of what clipped inputs take off the process, of standard Gaussian weights, (n_rows, n_features)."""
        return np.empty((len(x), 0))


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
        weights = (order * LOG2_E if order else 0.5) * LOG2_E / p.length_scales**2
        isotropic_weight = (LOG2_E / p.isotropic_length_scale) ** 2
        amplitudes = p.amplitudes
        product_weights = LOG2_E * p.axis_rates if p.product_amplitude > 0 else np.empty(0)
        if p.ard_amplitude == 0 == p.product_amplitude:  # the exponential part is the Matérn function of smoothness 1/2
            order, weights, amplitudes[:2] = 1, np.full_like(weights, isotropic_weight), (p.isotropic_amplitude, 0.0)
        self.of_pairs = p.product_order == PAIRS
        self.arguments = others, weights, isotropic_weight, product_weights, amplitudes, LINEAR_REACH, order


@dataclass(frozen=True)
class KernelHyperparameters(Kernel):
    """Hyperparameters of the covariance function, for standardised targets.

    `linear_amplitude` is the variance of the linear part, of the leading `n_linear` inputs, at a typical row. The
    second part is isotropic or of axes: a product over all, ``product_amplitude exp(−Σ product_rates |x − x'|)``, or
    with `product_order` 2 the mean over their pairs of products of two Matérn functions of smoothness 5/2. Rates are
    inverse length-scales, zero for inputs that it does not see. Of the two amplitudes at most one is not zero.
    `smoothness` 0 stands for the squared exponential, the limit of Matérn functions.
    """

    noise_variance: Annotated[float, Positive]
    ard_amplitude: Annotated[float, Between(0.0, LARGEST)]
    length_scales: Annotated[FloatArray, Shape("n_inputs"), AtLeast(1 / LARGEST)]
    isotropic_amplitude: Annotated[float, Between(0.0, LARGEST)]
    isotropic_length_scale: Annotated[float, AtLeast(1 / LARGEST)]
    linear_amplitude: Annotated[float, Between(0.0, LARGEST)]
    n_linear: Annotated[int, AtLeast(0)]
    smoothness: Annotated[float, OneOf(*SMOOTHNESS, SQUARED_EXPONENTIAL)] = 1.5
    n_evaluations: int = 0
    product_amplitude: Annotated[float, Between(0.0, LARGEST)] = 0.0
    product_rates: Annotated[FloatArray, Shape("n_inputs or 0"), Between(0.0, LARGEST)] = field(
        default_factory=partial(np.empty, 0)
    )
    product_order: Annotated[int, OneOf(0, PAIRS)] = 0

    __repr__ = short_repr

    constant = 1.0

    @property
    def amplitudes(self) -> FloatArray:
        """Amplitudes in the order of the C++ kernels: Matérn, exponential, linear per input, constant; (4,)."""
        linear = self.linear_amplitude / max(self.n_linear, 1)
        exponential = self.isotropic_amplitude + self.product_amplitude  # one of them is zero
        return np.array([self.ard_amplitude, exponential, linear, self.constant])

    @property
    def axis_rates(self) -> FloatArray:
        """What distances along axes are multiplied by in exp(−t), (n_inputs,) or (0,)."""
        return self.product_rates * (np.sqrt(5.0) if self.product_order == PAIRS else 1.0)

    def diagonal(self, x: FloatArray) -> FloatArray:
        """Prior variance of f at the rows of x, (n_rows,)."""
        linear = linear_inputs(x, self.n_linear)
        ard, exponential, slope, constant = self.amplitudes
        return ard + exponential + constant + slope * squared_norms(linear)

    def cut_off_inputs(self, x: FloatArray) -> FloatArray:
        """Return what clipping takes off the inputs of the linear part, (n_rows, n_linear)."""
        return x[:, : self.n_linear] - linear_inputs(x, self.n_linear)

    def beyond(self, x: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(self.amplitudes[2]) * self.cut_off_inputs(x))

    def typical_variance(self, x: FloatArray) -> float:
        return float(self.amplitudes[[0, 1, 3]].sum())  # the linear part has no bound

    def prepared(self, x: FloatArray) -> PreparedRows:
        """Return rows with which others are compared again and again."""
        return PreparedRows(self, x)

    def covariance(self, x: FloatArray, other: FloatArray | PreparedRows, n_threads: int = 1) -> FloatArray:
        """Covariance of f between rows, (len(x), len(other)), (n_rows, n_other)."""
        others = other if isinstance(other, PreparedRows) else self.prepared(other)
        out = np.empty((len(x), others.n_rows))
        _core.cross_covariance(np.ascontiguousarray(x), *others.arguments, out, n_threads, others.of_pairs)
        return out

    def check(self) -> None:
        """Raise unless the linear part is of no more than all inputs and there is one second part at most."""
        if self.n_linear > len(self.length_scales):
            raise ValueError(f"n_linear must be at most {len(self.length_scales)}, got {self.n_linear}")
        if self.product_amplitude > 0 and (self.isotropic_amplitude > 0 or not self.product_rates.size):
            raise ValueError("product_amplitude must be 0 beside an isotropic part or without product_rates")
        if self.product_order == PAIRS and np.count_nonzero(self.product_rates) < 2:
            raise ValueError("product_rates must be of two inputs at least where product_order is 2")
