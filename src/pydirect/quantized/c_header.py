"""C99 headers: their text, and bodies for integer programs and for floating point."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import LINEAR_REACH
from pydirect.features.maps import ForestFeatures, FourierFeatures, LinearFeatures, NystroemFeatures, PolynomialFeatures
from pydirect.quantized.codes import PackedCodes
from pydirect.quantized.device import POLYNOMIAL, FixedPointModel, level_step, stored_tables
from pydirect.quantized.fitted import LinearBasis, NetworkBasis
from pydirect.quantized.integers import gaussian_z, half_width, lower_quantile
from pydirect.quantized.model import FloatPath, QuantizedModel
from pydirect.quantized.program import IntegerProgram, NetworkProgram

WIDTH = 116
# Counters of the generated code have 16 bits.
LARGEST_COUNT = 65535
C_TYPES = {np.dtype(f"{sign}int{bits}"): f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
C_TYPES |= {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
Tables = dict[str, NDArray[Any]]


def template(name: str, conditions: Set[str]) -> str:
    """Return the lines of a template whose conditions hold.

    ``//@if word`` … ``//@else`` … ``//@end`` keeps the first part where `word` is among the conditions, else the
    second; they nest.
    """
    text = resources.files("pydirect.quantized").joinpath("templates", name).read_text(encoding="ascii")
    kept, holds = [], [True]
    for line in text.splitlines():
        directive, _, word = line.removeprefix("//@").partition(" ") if line.startswith("//@") else ("", "", "")
        if directive == "if":
            holds.append(word in conditions)
        elif directive == "else":
            holds[-1] = not holds[-1]
        elif directive == "end":
            holds.pop()
        elif all(holds):
            kept.append(line)
    return "\n".join(kept) + "\n"


def table(name: str, values: ArrayLike, storage: str = "static const", mark: str = " PD_TABLE") -> str:
    """Return the definition of a constant array; C has no empty arrays, so one without values gets a zero."""
    array = np.asarray(values)
    flat = array.ravel() if array.size else np.zeros(1, dtype=array.dtype)
    numbers = ", ".join(_literals(flat))
    lines = textwrap.fill(numbers, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    return f"{storage} {C_TYPES[array.dtype]} {name}[{flat.size}]{mark} = {{\n{lines}\n}};\n"


def _literals(values: NDArray[Any]) -> Iterable[str]:
    """Return literals that compile to exactly these numbers."""
    kind, numbers = values.dtype, values.tolist()
    if kind.kind == "f":
        return (_decimal(v, 17) if kind == np.float64 else f"{_decimal(v, 9)}f" for v in numbers)
    if kind.itemsize < 4:
        return map(str, numbers)
    macro, least = C_TYPES[kind][:-2].upper(), -(2**31) if kind == np.int32 else None  # which has no literal
    return (f"{macro}_C({v})" if v != least else "-INT32_C(2147483647) - 1" for v in numbers)


def _decimal(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return text if re.search(r"[.e]", text) else text + ".0"


def require_counts(counts: Mapping[str, int]) -> None:
    """Raise ValueError when a count exceeds 16 bits."""
    for name, count in counts.items():
        if count > LARGEST_COUNT:
            raise ValueError(f"{name} must be at most {LARGEST_COUNT} in exported code, got {count}")


def definitions(values: dict[str, int | str]) -> str:
    """Return definitions of macros."""
    return "".join(f"#define PD_{name} {value}\n" for name, value in values.items())


def checked_prefix(prefix: str) -> str:
    """Validate a prefix of names, and strip trailing underscores."""
    if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise ValueError(f"prefix must be letters, digits and underscores, a letter first, got {prefix!r}")
    return prefix.rstrip("_")


def header(comment: str, body: str, prefix: str) -> str:
    """Return a complete header: a comment with a digest of the rest, the guard, and the body with prefixed names.

    The guard allows including the same header twice, and refuses another model with the same prefix.
    """
    body = re.sub(r"\bpd_", f"{prefix}_", re.sub(r"\bPD_", f"{prefix.upper()}_", body))
    guard = f"{prefix.upper()}_H"
    digest = hashlib.blake2b(body.encode("ascii"), digest_size=8).hexdigest()
    mark = f"{prefix.upper()}_DIGEST_{digest}"
    # Neither the end of the comment nor a trigraph.
    comment = comment.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("??", "? ?")
    return (
        f"/* {comment}\n\n   Digest of what follows: {digest}. */\n\n"
        f"#ifndef {guard}\n#define {guard}\n#define {mark}\n\n{body}\n"
        f"#ifdef __cplusplus\n}}\n#endif\n\n#elif !defined({mark})\n"
        '#error "another model of this prefix is included already: export one of them with another prefix="\n#endif\n'
    )


def integer_body(device: FixedPointModel, packed: PackedCodes, rows: NDArray[np.generic]) -> str:
    """Return the body of a header that computes what `device` computes.

    - `device`: of a program with at least one input and one basis function.
    - `packed`: its codes.
    - `rows`, (n_tests, n_features_in): rows for the self-test, counts or in single precision.
    """
    program = device.program
    bounds = program.prove()
    counts = {
        "n_features_in": program.n_features_in,
        "n_basis_functions": len(program.codes),
        "columns": program.n_columns,
    }
    require_counts(counts)
    conditions = _conditions(device, packed)
    parts = [
        template("head.h", conditions),
        definitions(_macros(device, packed, len(rows))),
        f"\n/* Proved: no accumulator exceeds {max(bounds.accumulators, default=0)}, no total {bounds.total} (of "
        f"{2**31 - 1}), no sum of squares\n   {bounds.squares} (of {2**63 - 1}). */\n\n",
        *_tables(device, packed),
        *_test_tables(device, rows),
        "\n",
        template("codes.h", conditions),
        "\n",
        template("arithmetic.h", conditions),
        template("network.h" if "network" in conditions else "linear.h", conditions),
        template("moments.h", conditions),
        template("predict.h", conditions),
    ]
    return "".join(parts)


def _conditions(device: FixedPointModel, packed: PackedCodes) -> set[str]:
    program, probabilities = device.program, device.probabilities
    if isinstance(program, NetworkProgram):
        found = {"network": True, "affine": program.centre is not None, "bias": program.shape.bias}
    else:
        assert isinstance(program, IntegerProgram)
        found = {
            "fourier": program.n_frequencies > 0,
            "forest": program.forest is not None,
            "linear": len(program.linear) > 0,
            "wide": program.feature_bits == 16,
        }
    found |= {
        "shifts": program.powers_of_two,
        "even": level_step(program.multipliers) is not None,
        "counts": device.raw is not None,
        "classes": probabilities is not None,
        "two_classes": probabilities is not None and probabilities.n_classes == 2,
    }
    return _code_conditions(packed) | {name for name, holds in found.items() if holds}


def _code_conditions(packed: PackedCodes) -> set[str]:
    holds = {"stored": packed.n_bytes > 0, "bytes": packed.bits == 8}
    return {packed.layout, f"bits{packed.bits}", *(name for name, true in holds.items() if true)}


def _macros(device: FixedPointModel, packed: PackedCodes, n_tests: int) -> dict[str, int | str]:
    program, level = device.program, device.results.level
    values: dict[str, int | str] = {
        "N_FEATURES_IN": program.n_features_in,
        "N_OUTPUTS": program.n_outputs,
        "N_SAMPLES": program.n_samples,
        "LARGEST_RESULT": device.results.prove(),
        "LEVEL": repr(float(level)),
        "Z": f"UINT32_C({gaussian_z(level)})",
        "LOW": f"UINT32_C({lower_quantile(level)})",
        "N_INPUTS": program.n_inputs,
        "N_COLUMNS": program.n_columns,
        "CODE_BYTES": packed.n_bytes,
        "DEVIATION_SHIFT": program.deviation_shift,
        "N_TESTS": n_tests,
    }
    for k, counts in enumerate(device.counts_per_unit.tolist()):
        values[f"COUNTS_PER_UNIT_{k}"] = int(counts) if counts.is_integer() else repr(counts)
    if (probabilities := device.probabilities) is not None:
        values |= {
            "N_CLASSES": probabilities.n_classes,
            "EXPONENT_BITS": probabilities.exponent_bits,
            "LOGIT_FACTOR": f"UINT32_C({probabilities.factor})",
            "LOGIT_SHIFT": probabilities.shift,
            "POLYNOMIAL": ", ".join(f"UINT32_C({c})" for c in POLYNOMIAL),
        }
    stored = {name: a for part in stored_tables(device.results, device.raw).values() for name, a in part.items()}
    reads = {"columns": "READ_COLUMN"}
    if isinstance(program, NetworkProgram):
        shape = program.shape
        values |= {
            "N_NETWORK_INPUTS": shape.n_inputs,
            "N_LAYERS": len(shape.layers),
            "WIDEST": max(shape.n_inputs, *shape.hidden_layer_sizes),
        }
        reads |= {"centre": "READ_CENTRE", "spread": "READ_SPREAD"}
    elif isinstance(program, IntegerProgram):
        values |= {
            "N_FREQUENCIES": program.n_frequencies,
            "N_LINEAR": len(program.linear),
            "FIRST_LINEAR": 2 * program.n_frequencies + program.n_leaves,
            "N_GROUPS": len(program.groups),
            "ONE": program.one,
            "LINEAR_LIMIT": program.linear_limit,
        }
        if program.forest is not None:
            values |= {"N_LEAVES": program.n_leaves, "DEPTH": program.forest.splits.shape[1]}
        reads |= {"frequencies": "READ_FREQUENCY", "group_gain": "READ_GAIN"}
        reads |= {"splits": "READ_SPLIT", "split_input": "READ_SPLIT_INPUT", "threshold": "READ_THRESHOLD"}
    values["READ_NUMBER"] = "PD_READ_FLOAT" if device.raw is None else "PD_READ_32"
    values["READ_INPUT"] = "PD_READ_32" if isinstance(program, NetworkProgram) else "PD_READ_16"
    values["READ_LIMIT(i)"] = "PD_READ_16(pd_limit + (i))" if "limit" in stored else f"INT32_C({program.limit[0]})"
    step = level_step(program.multipliers)
    if step is not None:
        values |= {"FIRST_LEVEL": f"INT32_C({program.multipliers[0]})", "LEVEL_STEP": f"INT32_C({step})"}
    else:
        reads["multipliers"] = "READ_MULTIPLIER"
    return values | {macro: _read(stored[name]) for name, macro in reads.items() if name in stored}


def _read(array: NDArray[Any]) -> str:
    """Return the macro that reads entries of a table."""
    return f"PD_READ_{8 * array.itemsize}{'U' if array.dtype.kind == 'u' else ''}"


def _tables(device: FixedPointModel, packed: PackedCodes) -> list[str]:
    stored = {name: a for part in stored_tables(device.results, device.raw).values() for name, a in part.items()}
    return [
        # Tables of 64 bits are small; AVR has no instruction that reads them from flash.
        *(table(f"pd_{name}", a, mark="" if a.itemsize == 8 else " PD_TABLE") for name, a in stored.items()),
        table("pd_codes", np.pad(packed.packed, (0, packed.n_stored_bytes - packed.n_bytes))),
    ]


def _test_tables(device: FixedPointModel, rows: NDArray[np.generic]) -> list[str]:
    q, totals = device.quantise(rows), device.totals(rows)
    low, high = device.results.function_interval(totals, device.results.level)
    tables = {
        "x": rows,
        "q": q.astype(np.int32 if isinstance(device.program, NetworkProgram) else np.int16),
        "totals": totals.astype(np.int32),
        "mean": device.results.mean(totals).astype(np.int32),
        "std": device.results.std(totals).astype(np.int32),
        "low": low.astype(np.int32),
        "high": high.astype(np.int32),
    }
    if device.probabilities is not None:
        tables["probability"] = device.predict_proba(rows).astype(np.uint16)
    return [table(f"pd_test_{name}", a) for name, a in tables.items()]


# Standardised inputs are clipped here: their squares stay finite.
LARGEST_SINGLE = 1e15
# Largest sum of a network, hidden or in units of the output: the sum of 256 samples' squares stays finite.
LARGEST_SUM = 1e17
# Inputs of a network are not clipped below this, 16 standard deviations.
LEAST_CUT_OFF = 8.0
# A margin of two powers of ten at either end of the normal numbers, for products with basis functions.
RANGE = (1e-36, 1e36)


def require_single(model: QuantizedModel) -> None:
    """Raise ValueError when units of X or y, or their squares, are non-zero and beyond single precision."""
    m = model.basis.input_map
    target = "real='double' or dtype=float64, or scale y"
    inputs = "real='double' or dtype=float64, or scale X"
    values: tuple[tuple[str, FloatArray, bool, str], ...] = (
        ("squared units of the outputs", model.scale**2, True, target),
        ("noise variances", model.noise, True, target),
        ("offsets of the outputs", model.offset, False, target),
        ("scales of the columns", m.scale[m.kept], True, inputs),
        ("means of the columns", m.mean[m.kept], False, inputs),
    )
    for name, array, both, hint in values:
        size = np.abs(array[array != 0])
        if (size > RANGE[1]).any() or (both and (size < RANGE[0]).any()):
            least, largest = size.min(), size.max()
            raise ValueError(
                f"{name} must be between {RANGE[0]:g} and {RANGE[1]:g} in single precision, got {least:.3g} to "
                f"{largest:.3g}: use {hint}"
            )


def largest_network_input(model: QuantizedModel, basis: NetworkBasis) -> float:
    """Return where network inputs are clipped in single precision, so that no sum exceeds `LARGEST_SUM`."""
    weights = np.abs(model.network_weights).reshape(model.packed.shape[1], -1)
    limits = basis.largest * 2.0 ** -np.arange(60)
    *hidden, out = basis.shape.sums(weights, np.repeat(limits[:, None], basis.shape.n_inputs, axis=1))
    out = out * np.repeat(np.maximum(np.abs(model.scale), 1.0), model.n_samples)[:, None, None]
    largest = np.max([a.max(axis=(0, 2)) for a in (*hidden, out)], axis=0)  # nothing is negative
    fits = limits[largest <= LARGEST_SUM]
    return max(float(fits.max(initial=0.0)), min(LEAST_CUT_OFF, basis.largest))


# Largest tables for a header.
MAX_BYTES = 4 * 2**20
# Relative agreement that the self-test requires.
TOLERANCE = {"double": 1e-6, "float": 1e-3}


@dataclass
class Parts:
    """What the templates of a header are filled with."""

    conditions: set[str]
    macros: dict[str, int | str]
    tables: Tables


def float_body(model: QuantizedModel, rows: FloatArray, level: float, real: str) -> tuple[str, int]:
    """Return the body of a header that predicts in floating point, and the number of bytes of its tables.

    `rows`, (n_tests, n_features_in): rows for the self-test. `level`: probability of intervals. `real`: {"double",
    "float"}.
    """
    basis, input_map = model.basis, model.basis.input_map
    network = isinstance(basis, NetworkBasis)
    n_functions = basis.shape.n_inputs if isinstance(basis, NetworkBasis) else basis.features.n_weights
    counts = {"n_features_in": model.n_features_in, "columns and normal scores": input_map.n_outputs}
    require_counts(counts | {"basis functions": n_functions, "columns of codes": model.packed.shape[1]})
    # Networks read the weights sample by sample, which the sparse layout does not allow.
    packed = PackedCodes.pack(model.codes, model.packed.bits) if network else model.packed
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
    tables = {"levels": model.levels, "offset": model.offset, "scale": model.scale, "noise": model.noise}
    parts = Parts(_code_conditions(packed), macros, tables)
    _add_input_map(input_map, parts)
    if real == "float":
        # The mean is stored in two parts: its rounding may be large compared with the column's spread.
        parts.conditions.add("single")
        mean = tables["input_mean"]
        tables["input_mean_rest"] = mean - mean.astype(np.float32)
    if isinstance(basis, NetworkBasis):
        _add_network(model, basis, real, parts)
    else:
        _add_basis(model, basis, largest, parts)
    conditions, macros, tables = parts.conditions, parts.macros, parts.tables
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
    values = path.run(rows)
    moments = [path.mean(values), path.std(values), *path.function_interval(values, level)]
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


def _add_input_map(m: InputMap, parts: Parts) -> None:
    parts.macros |= {"N_KEPT": len(m.kept), "N_MAPPED": m.n_outputs}
    parts.tables |= {"columns": m.kept.astype(np.uint16), "input_mean": m.mean[m.kept], "input_scale": m.scale[m.kept]}
    if len(m.knots):
        parts.conditions.add("knots")
        parts.macros["N_SCORED"] = len(m.scored)
        parts.tables["scored"] = m.scored.astype(np.uint16)
        # The knots of every column, without those repeated at its end.
        ends = [int(np.searchsorted(knots, knots[-1])) + 1 for knots in m.knots]
        parts.tables["knots_begin"] = np.concatenate([[0], np.cumsum(ends)]).astype(np.uint32)
        for name in ("knots", "scores"):
            parts.tables[name] = np.concatenate([a[:end] for a, end in zip(getattr(m, name), ends, strict=True)])


def _add_network(model: QuantizedModel, basis: NetworkBasis, real: str, parts: Parts) -> None:
    parts.conditions.add("network")
    largest = basis.largest if real == "double" else largest_network_input(model, basis)
    widths = [basis.shape.n_inputs, *basis.shape.hidden_layer_sizes, 1]
    shape = (len(model.codes), model.n_outputs)
    parts.tables |= {
        "matrix": basis.matrix,
        "widths": np.array(widths, dtype=np.uint16),
        "centre": np.broadcast_to(model.centre, shape),
        "spread": np.broadcast_to(model.spread, shape),
    }
    parts.macros |= {
        "N_INPUTS": basis.shape.n_inputs,
        "N_LAYERS": len(widths) - 1,
        "WIDEST": max(widths),
        "BIAS": int(basis.shape.bias),
        "LARGEST_INPUT": f"((pd_real){largest!r})",
    }


def _add_basis(model: QuantizedModel, basis: LinearBasis, largest: float, parts: Parts) -> None:
    features, kernel = basis.features.map, basis.features.hyperparameters
    if isinstance(features, ForestFeatures):
        raise ValueError("features must not be a forest for C in floating point: use with_arithmetic('integer')")
    if isinstance(features, NystroemFeatures):
        raise ValueError(
            "features must not be 'nystroem' for C, which would have to store every landmark: fit with "
            "features='fourier', or let pydirect.fit_quantized choose a model of a given size"
        )
    _add_features(features, parts)
    n_basis = len(model.codes)
    parts.macros |= {
        "N_PHI": features.n_weights,
        "N_BASIS": n_basis,
        "LARGEST_INPUT": f"((pd_real){min(basis.features.largest_input, largest)!r})",
        "LINEAR_REACH": f"((pd_real){LINEAR_REACH!r})",
    }
    parts.tables["order"] = basis.order.astype(np.uint16)
    if model.centre.any() or (model.spread != 1).any():
        parts.conditions.add("affine")
        shape = (n_basis, model.n_outputs)
        parts.tables |= {"centre": np.broadcast_to(model.centre, shape), "spread": np.broadcast_to(model.spread, shape)}
    # Missing variance is standardised; C needs it in units of the output.
    if kernel is not None:
        parts.conditions.add("cut_off")
        parts.macros["N_CUT_OFF"] = kernel.n_linear
        parts.tables["missing_scale"] = model.scale**2 * basis.missing_scale * kernel.amplitudes[2]
    if basis.vectors is not None:
        parts.conditions.add("rotated")
        parts.macros["N_DIRECTIONS"] = basis.vectors.shape[1]
        parts.tables |= {"vectors": basis.vectors.T, "outside_scale": model.scale**2 * basis.outside_scale}
        parts.tables["edges"] = basis.edges.astype(np.uint16)


def _add_features(features: Any, parts: Parts) -> None:
    if isinstance(features, FourierFeatures):
        parts.conditions.add("fourier")
        parts.macros["N_FREQUENCIES"] = features.n_frequencies
        parts.tables |= {"frequencies": features.frequencies.T, "amplitudes": features.amplitudes}
        constant = features.constant
        if features.linear_scale is not None and len(features.linear_scale):
            parts.conditions.add("linear")
            parts.macros["N_LINEAR"] = len(features.linear_scale)
            parts.tables["linear_scale"] = features.linear_scale
    elif isinstance(features, PolynomialFeatures):
        parts.conditions.add("polynomial")
        number = {m: k for k, m in enumerate(features.monomials)}
        longer = features.monomials[1:]
        parts.tables["shorter"] = np.array([0, *(number[m[:-1]] for m in longer)], dtype=np.uint16)
        parts.tables["factor"] = np.array([0, *(m[-1] for m in longer)], dtype=np.uint16)
        constant = None
    else:
        parts.conditions.add("columns")
        constant = features.intercept_scale if isinstance(features, LinearFeatures) else None
    if constant is not None:
        parts.conditions.add("constant")
        parts.macros["CONSTANT"] = f"((pd_real){float(constant)!r})"
