"""Reading quantised models from files; what is damaged or does not fit together is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pydirect._validation import as_choice, as_count, as_number
from pydirect.persistence.container import read
from pydirect.persistence.errors import CorruptFileError
from pydirect.persistence.fields import build_one, classes_from_header, require_array, require_positive, require_type
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.model import ARITHMETICS
from pydirect.quantized.packing import BITS, LAYOUTS, PackedCodes
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor, QuantizedRegressor
from pydirect.quantized.saving import ARRAYS, ITEMS

KINDS = {f"pydirect.{c.__name__}": c for c in (QuantizedRegressor, QuantizedClassifier)}


def load_quantized(path: str | Path) -> QuantizedPredictor:
    """Read a quantised model written by its ``save``; its predictions are the same bit for bit.

    Parameters
    ----------
    path : str or Path
        Path of the file.

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier
        The model.

    Raises
    ------
    pydirect.persistence.container.FileFormatError
        With the reason, when the file is truncated, altered, of a later version or not a quantised model.
    """
    document = read(path, tuple(KINDS))
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):  # no fitted model's numbers overflow
            return _restore(KINDS[document.kind], document.header, document.arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        reason = f"the file is whole but its contents do not make a model ({type(error).__name__}: {error})"
        raise CorruptFileError(path, reason) from error


def _restore(cls: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> QuantizedPredictor:
    packed = build_one((PackedCodes,), header["packed"], arrays, "packed")
    packed = replace(packed, shape=tuple(as_count(n, "shape", 0) for n in packed.shape))
    basis = build_one((LinearBasis, NetworkBasis), header["basis"], arrays, "basis")
    fields = {name: header[name] for name in ITEMS}
    fields |= {name: arrays[name] for name in ARRAYS}
    fields["feature_names"] = tuple(header["feature_names"])
    require_type(header["feature_names"], "feature_names", list)
    if cls is QuantizedClassifier:
        fields["classes"] = classes_from_header(header["classes"])
    model: QuantizedPredictor = cls(basis=basis, packed=packed, **fields)
    _check(model)
    if model.arithmetic == "integer":
        model.program.prove()
    return model


def _check(model: QuantizedPredictor) -> None:
    """Raise unless all parts have their types and shapes and fit together."""
    d = as_count(model.n_features_in, "n_features_in")
    as_number(model.calibration, "calibration", above=0.0)
    require_type(model.one_dimensional, "one_dimensional", bool)
    as_choice(model.arithmetic, "arithmetic", ARITHMETICS)
    for name in model.feature_names:
        require_type(name, "feature_names", str)
    if len(model.feature_names) not in (0, d):
        raise ValueError("feature_names do not fit the columns")
    require_type(model.feature_bits, "feature_bits", int)
    require_type(model.frequency_bits, "frequency_bits", int, str)
    if model.feature_bits not in (8, 16) or model.frequency_bits not in ("auto", 8, 16, 32):
        raise ValueError("feature_bits must be 8 or 16, and frequency_bits 8, 16, 32 or 'auto'")
    n_outputs = len(require_array(model.scale, "scale", "n_outputs"))
    require_array(model.offset, "offset", n_outputs)
    if (require_array(model.noise, "noise", n_outputs) < 0).any():
        raise ValueError("noise must not be negative")
    if model.one_dimensional and n_outputs != 1:
        raise ValueError("outputs do not fit")
    packed, levels = model.packed, require_array(model.levels, "levels", "n_levels")
    as_choice(packed.layout, "layout", LAYOUTS)
    if packed.bits not in BITS or packed.packed.dtype != np.uint8 or packed.packed.ndim != 1:
        raise ValueError("packed must be bytes of codes")
    zero = as_count(packed.zero, "zero", -1)
    if len(packed.shape) != 2 or packed.shape[1] % n_outputs or zero >= len(levels):
        raise ValueError("packed does not fit the outputs")
    # Trailing zeros of the sparse layout are not written: this bounds the memory that a small file can claim.
    if packed.shape[0] * packed.shape[1] > 2**28:
        raise ValueError("packed must be at most 2^28 codes")
    if (zero >= 0 and levels[zero] != 0) or (packed.layout == "sparse" and zero < 0):
        raise ValueError("zero must be the code of a level of zero")
    if model.codes.max(initial=0) >= len(levels):
        raise ValueError(f"codes must be below {len(levels)}")
    for name in ("centre", "spread"):
        value = getattr(model, name)
        require_array(value, name, packed.shape[0] if len(value) != 1 else 1, n_outputs if value.shape[1] != 1 else 1)
    if model.classes is not None and n_outputs != (len(model.classes) if len(model.classes) > 2 else 1):
        raise ValueError("outputs do not fit the classes")
    basis = model.basis
    if isinstance(basis, NetworkBasis):
        n_inputs = basis.input_map.check(d)
        as_number(basis.largest, "largest", above=0.0)
        require_positive(model.scale, "scale", n_outputs)  # weights are divided by it
        require_array(basis.matrix, "matrix", n_inputs, basis.shape.n_inputs)
        if packed.shape[0] != basis.shape.n_weights:
            raise ValueError("packed does not fit the network")
        if (require_array(basis.reach, "reach", len(basis.shape.layers) if len(basis.reach) else 0) < 0).any():
            raise ValueError("reach does not fit the network")
    else:
        if basis.features.n_features_in != d:
            raise ValueError("features do not take the columns")
        _check_linear_basis(basis, n_outputs, packed.shape[0])


def _check_linear_basis(basis: LinearBasis, n_outputs: int, n_basis_functions: int) -> None:
    n_columns = basis.features.n_weights
    if basis.vectors is not None:
        n_columns = require_array(basis.vectors, "vectors", n_columns, basis.vectors.shape[1]).shape[1]
    order = basis.order
    if order.dtype.kind != "i" or order.shape != (n_basis_functions,) or not ((order >= 0) & (order < n_columns)).all():
        raise ValueError(f"order must be {n_basis_functions} columns below {n_columns}")
    if len(np.unique(order)) != n_basis_functions:
        raise ValueError("order must name every column at most once")
    if basis.edges.dtype.kind != "i" or basis.edges.shape != (n_outputs + 1,):
        raise ValueError("edges do not fit the outputs")
    for name in ("missing_scale", "outside_scale"):
        if (require_array(getattr(basis, name), name, n_outputs) < 0).any():
            raise ValueError(f"{name} must not be negative")
    as_number(basis.mean_missing, "mean_missing", at_least=0.0)
