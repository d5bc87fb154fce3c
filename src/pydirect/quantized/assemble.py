"""Quantised models assembled from level indices, their levels and the units of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.fitted import Outputs
from pydirect.quantized.levels import zero_code
from pydirect.quantized.packing import PackedCodes, bits_for
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor, QuantizedRegressor


@dataclass(frozen=True)
class Encoding:
    """Storage and arithmetic of a quantised model; see `quantize`."""

    layout: str = "auto"
    feature_bits: int = 16
    frequency_bits: int | str = "auto"
    arithmetic: str = "float"


@dataclass(frozen=True)
class Weights:
    """Samples of weights as level indices.

    - `codes`, uint8 (n_basis_functions, n_outputs · n_samples).
    - `levels`, (n_levels,).
    - `unit`, (n_outputs,): a weight is ``unit · (centre + spread · level)``, in units of the standardised target.
    - `centre`, `spread`, (n_basis_functions, n_outputs) or (1, 1).
    """

    codes: NDArray[np.uint8]
    levels: FloatArray
    unit: FloatArray
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def on_grid(cls, codes: NDArray[np.uint8], grid: FloatArray, unit: FloatArray) -> Weights:
        """Return weights with the same levels, ``unit · grid``, for every basis function."""
        return cls(codes, grid, unit, np.zeros((1, 1)), np.ones((1, 1)))


def assemble(
    basis: LinearBasis | NetworkBasis, weights: Weights, outputs: Outputs, encoding: Encoding
) -> QuantizedPredictor:
    """Assemble a quantised regressor, or a classifier when the outputs have classes."""
    if isinstance(basis, LinearBasis):  # missing variance is relative to the outputs' scale
        factor = 1 / weights.unit**2
        missing, outside = basis.missing_scale * factor, basis.outside_scale * factor
        basis = replace(basis, missing_scale=missing, outside_scale=outside)
    levels = weights.levels
    kind = QuantizedRegressor if outputs.classes is None else QuantizedClassifier
    return kind(
        basis=basis,
        packed=PackedCodes.pack(weights.codes, bits_for(len(levels)), zero_code(levels), encoding.layout),
        levels=levels,
        centre=weights.centre,
        spread=weights.spread,
        scale=outputs.scale * weights.unit,
        offset=outputs.offset,
        noise=outputs.noise,
        calibration=outputs.calibration,
        n_features_in=outputs.n_features_in,
        one_dimensional=outputs.one_dimensional,
        feature_bits=encoding.feature_bits,
        frequency_bits=encoding.frequency_bits,
        arithmetic=encoding.arithmetic,
        feature_names=outputs.feature_names,
        classes=outputs.classes,
    )
