"""C for the floating-point path of quantised models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import LINEAR_REACH
from pydirect.features.maps import FourierFeatures, LinearFeatures, NystroemFeatures, PolynomialFeatures
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.export.c_source import definitions, require_counts, table, template
from pydirect.quantized.export.single_precision import LARGEST_SINGLE, largest_network_input
from pydirect.quantized.integer.arithmetic import half_width
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.packing import PackedCodes
from pydirect.quantized.paths import FloatPath

# Largest tables for a header.
MAX_BYTES = 4 * 2**20
# Relative agreement that the self-test requires.
TOLERANCE = {"double": 1e-6, "float": 1e-3}
Tables = dict[str, NDArray[Any]]


def float_body(model: QuantizedModel, rows: FloatArray, level: float, real: str) -> tuple[str, int]:
    """Return the body of a header that predicts in floating point, and the number of bytes of its tables.

    `rows`, (n_tests, n_features_in): rows for the self-test. `level`: probability of intervals. `real`: {"double",
    "float"}. Raises ValueError when the features have no form in C, or the tables are too large.
    """
    basis, input_map = model.basis, model.basis.input_map
    network = isinstance(basis, NetworkBasis)
    n_functions = basis.shape.n_inputs if isinstance(basis, NetworkBasis) else basis.features.n_weights
    counts = {"n_features_in": model.n_features_in, "columns and normal scores": input_map.n_outputs}
    require_counts(counts | {"basis functions": n_functions, "columns of codes": model.packed.shape[1]})
    # Networks read the weights sample by sample, which the sparse layout does not allow.
    packed = PackedCodes.pack(model.codes, model.packed.bits) if network else model.packed
    conditions = {packed.layout, f"bits{packed.bits}", *(["bytes"] if packed.bits == 8 else [])}
    conditions |= {"stored"} if packed.n_bytes else set()
    largest = LARGEST if real == "double" else LARGEST_SINGLE
    macros: dict[str, int | str] = {
        "N_FEATURES_IN": model.n_features_in,
        "N_OUTPUTS": model.n_outputs,
        "N_SAMPLES": model.n_samples,
        "LEVEL": repr(float(level)),
        "Z": f"((pd_real){half_width(level)!r})",
        "LOW": f"((pd_real){(1 - level) / 2!r})",
        "N_COLUMNS": packed.shape[1],
        "CODE_BYTES": packed.n_bytes,
        "CALIBRATION": f"((pd_real){model.calibration!r})",
        "LARGEST": f"((pd_real){largest!r})",
        "TOLERANCE": f"((pd_real){TOLERANCE[real]!r})",
        "N_TESTS": len(rows),
    }
    tables: Tables = {"levels": model.levels, "offset": model.offset, "scale": model.scale, "noise": model.noise}
    _add_input_map(input_map, conditions, macros, tables)
    if real == "float":
        # The mean is stored in two parts: its rounding may be large compared with the column's spread.
        conditions.add("single")
        mean = tables["input_mean"]
        tables["input_mean_rest"] = mean - mean.astype(np.float32)
    if isinstance(basis, NetworkBasis):
        _add_network(model, basis, real, conditions, macros, tables)
    else:
        _add_basis(model, basis, largest, conditions, macros, tables)
    if model.classes is not None:
        conditions |= {"classes", *(["two_classes"] if len(model.classes) == 2 else [])}
        macros["N_CLASSES"] = len(model.classes)
    codes = np.pad(packed.packed, (0, packed.n_stored_bytes - packed.n_bytes))
    dtype = np.dtype(np.float64 if real == "double" else np.float32)
    tables = {name: a.astype(dtype) if a.dtype.kind == "f" else a for name, a in tables.items()}
    n_bytes = codes.nbytes + sum(a.nbytes for a in tables.values())
    if n_bytes > MAX_BYTES:
        raise ValueError(
            f"tables of a header must be at most {MAX_BYTES} bytes, got {n_bytes}: quantise with levels='even', which "
            "needs no rotation, or fit fewer features"
        )
    path = FloatPath(model)
    moments = [*path.moments(rows), *path.function_interval(rows, level)]
    tests = {"test_x": rows.astype(dtype), "test_moments": np.stack(moments, axis=2).astype(dtype)}
    suffix = "" if real == "double" else "f"
    functions = {name.upper(): f"{name}{suffix}" for name in ("cos", "sin", "exp", "sqrt")}
    body = "".join(
        [
            "#include <math.h>\n",
            template("head.h", conditions),
            f"typedef {real} pd_real;\n\n",
            definitions({**macros, **functions}),
            "\n",
            *(table(f"pd_{name}", a, mark="") for name, a in (tables | tests).items()),
            table("pd_codes", codes),
            "\n",
            template("codes.h", conditions),
            "\n",
            template("classes.h", conditions) if "classes" in conditions else "",
            template("float.h", conditions),
        ]
    )
    return body, n_bytes


def _add_input_map(m: InputMap, conditions: set[str], macros: dict[str, int | str], tables: Tables) -> None:
    macros |= {"N_KEPT": len(m.kept), "N_MAPPED": m.n_outputs}
    tables |= {"columns": m.kept.astype(np.uint16), "input_mean": m.mean[m.kept], "input_scale": m.scale[m.kept]}
    if len(m.knots):
        conditions.add("knots")
        macros["N_SCORED"] = len(m.scored)
        tables["scored"] = m.scored.astype(np.uint16)
        # The knots of every column, without those repeated at its end.
        ends = [int(np.searchsorted(knots, knots[-1])) + 1 for knots in m.knots]
        tables["knots_begin"] = np.concatenate([[0], np.cumsum(ends)]).astype(np.uint32)
        for name in ("knots", "scores"):
            tables[name] = np.concatenate([a[:end] for a, end in zip(getattr(m, name), ends, strict=True)])


def _add_network(
    model: QuantizedModel,
    basis: NetworkBasis,
    real: str,
    conditions: set[str],
    macros: dict[str, int | str],
    tables: Tables,
) -> None:
    conditions.add("network")
    largest = basis.largest if real == "double" else largest_network_input(model, basis)
    widths = [basis.shape.n_inputs, *basis.shape.hidden_layer_sizes, 1]
    shape = (len(model.codes), model.n_outputs)
    tables |= {
        "matrix": basis.matrix,
        "widths": np.array(widths, dtype=np.uint16),
        "centre": np.broadcast_to(model.centre, shape),
        "spread": np.broadcast_to(model.spread, shape),
    }
    macros |= {
        "N_INPUTS": basis.shape.n_inputs,
        "N_LAYERS": len(widths) - 1,
        "WIDEST": max(widths),
        "BIAS": int(basis.shape.bias),
        "LARGEST_INPUT": f"((pd_real){largest!r})",
    }


def _add_basis(
    model: QuantizedModel,
    basis: LinearBasis,
    largest: float,
    conditions: set[str],
    macros: dict[str, int | str],
    tables: Tables,
) -> None:
    features, kernel = basis.features.map, basis.features.hyperparameters
    if isinstance(features, NystroemFeatures):
        raise ValueError(
            "features must not be 'nystroem' for C, which would have to store every landmark: fit with "
            "features='fourier', or let pydirect.fit_quantized choose a model of a given size"
        )
    _add_features(features, conditions, macros, tables)
    n_basis = len(model.codes)
    macros |= {
        "N_PHI": features.n_weights,
        "N_BASIS": n_basis,
        "LARGEST_INPUT": f"((pd_real){min(basis.features.largest_input, largest)!r})",
        "LINEAR_REACH": f"((pd_real){LINEAR_REACH!r})",
    }
    tables["order"] = basis.order.astype(np.uint16)
    if model.centre.any() or (model.spread != 1).any():
        conditions.add("affine")
        shape = (n_basis, model.n_outputs)
        tables |= {"centre": np.broadcast_to(model.centre, shape), "spread": np.broadcast_to(model.spread, shape)}
    # Missing variance is standardised; C needs it in units of the output.
    if kernel is not None:
        conditions.add("cut_off")
        macros["N_CUT_OFF"] = kernel.n_linear
        tables["missing_scale"] = model.scale**2 * basis.missing_scale * kernel.amplitudes[2]
    if basis.vectors is not None:
        conditions.add("rotated")
        macros["N_DIRECTIONS"] = basis.vectors.shape[1]
        tables |= {"vectors": basis.vectors.T, "outside_scale": model.scale**2 * basis.outside_scale}
        tables["edges"] = basis.edges.astype(np.uint16)


def _add_features(features: Any, conditions: set[str], macros: dict[str, int | str], tables: Tables) -> None:
    if isinstance(features, FourierFeatures):
        conditions.add("fourier")
        macros["N_FREQUENCIES"] = features.n_frequencies
        tables |= {"frequencies": features.frequencies.T, "amplitudes": features.amplitudes}
        constant = features.constant
        if features.linear_scale is not None and len(features.linear_scale):
            conditions.add("linear")
            macros["N_LINEAR"] = len(features.linear_scale)
            tables["linear_scale"] = features.linear_scale
    elif isinstance(features, PolynomialFeatures):
        conditions.add("polynomial")
        number = {m: k for k, m in enumerate(features.monomials)}
        longer = features.monomials[1:]
        tables["shorter"] = np.array([0, *(number[m[:-1]] for m in longer)], dtype=np.uint16)
        tables["factor"] = np.array([0, *(m[-1] for m in longer)], dtype=np.uint16)
        constant = None
    else:
        conditions.add("columns")
        constant = features.intercept_scale if isinstance(features, LinearFeatures) else None
    if constant is not None:
        conditions.add("constant")
        macros["CONSTANT"] = f"((pd_real){float(constant)!r})"
