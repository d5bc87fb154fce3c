"""C for integer programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect.quantized.export.c_source import definitions, require_counts, table, template
from pydirect.quantized.integer.arithmetic import gaussian_z, lower_quantile
from pydirect.quantized.integer.device import FixedPointModel
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.integer.network import NetworkProgram
from pydirect.quantized.integer.probabilities import POLYNOMIAL
from pydirect.quantized.integer.storage import level_step, stored_tables
from pydirect.quantized.packing import PackedCodes


def integer_body(device: FixedPointModel, packed: PackedCodes, rows: NDArray[np.generic]) -> str:
    """Return the body of a header that computes what `device` computes.

    - `device`: of a program with at least one input and one basis function.
    - `packed`: its codes.
    - `rows`, (n_tests, n_features_in): rows for the self-test, counts or in single precision.

    Raises AccumulatorOverflowError when a sum could overflow its type. Raises ValueError when counts exceed 16 bits.
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
            "linear": len(program.linear) > 0,
            "wide": program.feature_bits == 16,
        }
    found |= {
        "shifts": program.powers_of_two,
        "even": level_step(program.multipliers) is not None,
        "counts": device.raw is not None,
        "classes": probabilities is not None,
        "two_classes": probabilities is not None and probabilities.n_classes == 2,
        "sparse": packed.layout == "sparse",
        "stored": packed.n_bytes > 0,
        "bytes": packed.bits == 8,
        f"bits{packed.bits}": True,
    }
    return {name for name, holds in found.items() if holds}


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
            "N_GROUPS": len(program.groups),
            "ONE": program.one,
            "LINEAR_LIMIT": program.linear_limit,
        }
        reads |= {"frequencies": "READ_FREQUENCY", "group_gain": "READ_GAIN"}
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
    low, high = device.results.function_interval(totals)
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
