"""C for integer programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect.quantized.export.c_source import definitions, require_counts, table, template
from pydirect.quantized.integer.arithmetic import gaussian_z, lower_quantile
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.integer.network import NetworkProgram
from pydirect.quantized.integer.program import Program
from pydirect.quantized.integer.storage import level_step, stored_tables
from pydirect.quantized.packing import PackedCodes


def integer_body(
    program: Program,
    packed: PackedCodes,
    rows: NDArray[np.float32],
    level: float,
    raw: RawInputs | None = None,
    n_classes: int = 0,
) -> str:
    """Return the body of a header that computes what `program` computes.

    - `program`: with at least one input and one basis function.
    - `packed`: its codes.
    - `rows`, (n_tests, n_features_in): rows for the self-test.
    - `level`: probability of intervals.
    - `raw`: constants for a device's own integers, which the header then takes, too.
    - `n_classes`: number of classes of a classifier, whose outputs are logits.

    Raises AccumulatorOverflowError when a sum could overflow its type. Raises ValueError when counts exceed 16 bits.
    """
    bounds = program.prove()
    counts = {
        "n_features_in": program.n_features_in,
        "n_basis_functions": len(program.codes),
        "columns": program.n_columns,
    }
    require_counts(counts)
    conditions = _conditions(program, packed, raw, n_classes)
    parts = [
        template("head.h", conditions),
        definitions(_macros(program, packed, level, len(rows)) | ({"N_CLASSES": n_classes} if n_classes else {})),
        f"\n/* Proved: no accumulator exceeds {max(bounds.accumulators, default=0)}, no total {bounds.total} (of "
        f"{2**31 - 1}), no sum of squares\n   {bounds.squares} (of {2**63 - 1}). */\n\n",
        *_tables(program, packed, raw),
        *_test_tables(program, rows, level),
        "\n",
        template("codes.h", conditions),
        "\n",
        _class_functions(conditions),
        template("arithmetic.h", conditions),
        template("network.h" if "network" in conditions else "linear.h", conditions),
        template("moments.h", conditions),
    ]
    return "".join(parts)


def _class_functions(conditions: set[str]) -> str:
    if "classes" not in conditions:
        return ""
    types = "typedef double pd_real;\n#define PD_EXP exp\n\n"
    return f"#ifdef PD_WITH_MATH\n{types}{template('classes.h', conditions)}#endif\n\n"


def _conditions(program: Program, packed: PackedCodes, raw: RawInputs | None, n_classes: int) -> set[str]:
    if isinstance(program, NetworkProgram):
        found = {"network": True, "affine": program.centre is not None, "bias": program.shape.bias}
    else:
        assert isinstance(program, IntegerProgram)
        found = {
            "fourier": program.n_frequencies > 0,
            "linear": len(program.linear) > 0,
            "wide": program.feature_bits == 16,
        }
    found |= {
        "shifts": program.powers_of_two,
        "even": level_step(program.multipliers) is not None,
        "raw": raw is not None,
        "classes": n_classes > 0,
        "two_classes": n_classes == 2,
        "sparse": packed.layout == "sparse",
        "stored": packed.n_bytes > 0,
        "bytes": packed.bits == 8,
        f"bits{packed.bits}": True,
    }
    return {name for name, holds in found.items() if holds}


def _macros(program: Program, packed: PackedCodes, level: float, n_tests: int) -> dict[str, int | str]:
    values: dict[str, int | str] = {
        "N_FEATURES_IN": program.n_features_in,
        "N_OUTPUTS": program.n_outputs,
        "N_SAMPLES": program.n_samples,
        "LEVEL": repr(float(level)),
        "Z": f"UINT32_C({gaussian_z(level)})",
        "LOW": f"UINT32_C({lower_quantile(level)})",
        "N_INPUTS": program.n_inputs,
        "N_COLUMNS": program.n_columns,
        "CODE_BYTES": packed.n_bytes,
        "DEVIATION_SHIFT": program.deviation_shift,
        "N_TESTS": n_tests,
    }
    stored = {name: a for part in stored_tables(program).values() for name, a in part.items()}
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
            "N_GROUPS": len(program.groups),
            "ONE": program.one,
            "LINEAR_LIMIT": program.linear_limit,
        }
        reads |= {"frequencies": "READ_FREQUENCY", "group_gain": "READ_GAIN"}
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


def _tables(program: Program, packed: PackedCodes, raw: RawInputs | None) -> list[str]:
    parts = stored_tables(program)
    outputs = parts.pop("outputs")
    stored = {name: a for part in parts.values() for name, a in part.items()}
    single = {name: stored.pop(name) for name in ("origin", "multiplier")}
    rare = {name: stored.pop(name) for name in ("rotation_offset",) if name in stored}
    rare["noise"] = outputs.pop("noise")
    out = [
        *(table(f"pd_{name}", a) for name, a in stored.items()),
        table("pd_codes", np.pad(packed.packed, (0, packed.n_stored_bytes - packed.n_bytes))),
        # Small, and of types that cannot be read from flash.
        *(table(f"pd_{name}", a, mark="") for name, a in rare.items()),
        "#ifndef PD_NO_FLOAT\n",
        *(table(f"pd_{name}", a) for name, a in single.items()),
        *(table(f"pd_{name}", a, mark="") for name, a in outputs.items()),
        "#endif\n",
    ]
    if raw is not None:
        names = ("origin", "reach", "multiplier", "offset", "shift")
        out += [table(f"pd_count_{name}", getattr(raw, name)) for name in names]
    return out


def _test_tables(program: Program, rows: NDArray[np.float32], level: float) -> list[str]:
    q = program.quantise_inputs(rows)
    totals = program.totals_of_features(program.features(q))
    low, high = program.quantile_interval(totals, level)
    return [
        "#ifndef PD_NO_FLOAT\n",
        table("pd_test_x", rows),
        "#endif\n",
        table("pd_test_q", q.astype(np.int32 if isinstance(program, NetworkProgram) else np.int16)),
        table("pd_test_totals", totals.astype(np.int32)),
        table("pd_test_root", program.roots(totals).astype(np.uint32)),
        table("pd_test_median", program.quantiles(totals, 0.5).astype(np.int32)),
        table("pd_test_low", low.astype(np.int32)),
        table("pd_test_high", high.astype(np.int32)),
    ]
