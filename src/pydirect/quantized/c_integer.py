"""An integer program as C."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect.quantized.arithmetic import SINE_TABLES, IntegerProgram, RawInputs, gaussian_z, smallest_integers
from pydirect.quantized.c_source import definitions, table, template
from pydirect.quantized.packing import PackedCodes

# Counters of the generated code have 16 bits.
LARGEST_COUNT = 65535


def integer_body(
    program: IntegerProgram,
    packed: PackedCodes,
    rows: NDArray[np.float32],
    level: float,
    raw: RawInputs | None = None,
    n_classes: int = 0,
) -> str:
    """Return the body of a header that computes what `program` computes.

    Parameters
    ----------
    program : IntegerProgram
        With inputs and basis functions.
    packed : PackedCodes
        Its codes.
    rows : ndarray of shape (n_tests, n_features_in)
        For the self-test.
    level : float
        Probability of intervals.
    raw : RawInputs, optional
        Also take a device's own integers.
    n_classes : int
        Of a classifier, whose outputs are logits.

    Raises
    ------
    AccumulatorOverflowError
        When a sum could leave its type.
    ValueError
        When there is more of something than 16 bits can count.
    """
    bounds = program.bounds
    counts = {"n_features_in": program.n_features_in, "n_features": program.n_features, "columns": program.n_columns}
    for name, count in counts.items():
        if count > LARGEST_COUNT:
            raise ValueError(f"{name} must be at most {LARGEST_COUNT} in exported code, got {count}")
    conditions = _conditions(program, packed, raw, n_classes)
    parts = [
        template("head.h", conditions),
        definitions(_macros(program, packed, level, len(rows)) | ({"N_CLASSES": n_classes} if n_classes else {})),
        f"\n/* Proved: no accumulator exceeds {max(bounds.accumulators, default=0)}, no total {bounds.total} (of "
        f"{2**31 - 1}), no sum of squares\n   {bounds.squares} (of {2**63 - 1}). */\n\n",
        *_tables(program, packed, raw),
        *_test_tables(program, rows),
        "\n",
        template("codes.h", conditions),
        "\n",
        _class_functions(conditions),
        template("integer.h", conditions),
    ]
    return "".join(parts)


def _class_functions(conditions: set[str]) -> str:
    if "classes" not in conditions:
        return ""
    types = "typedef double pd_real;\n#define PD_EXP exp\n\n"
    return f"#ifdef PD_WITH_MATH\n{types}{template('classes.h', conditions)}#endif\n\n"


def _conditions(program: IntegerProgram, packed: PackedCodes, raw: RawInputs | None, n_classes: int) -> set[str]:
    found = {
        "fourier": program.n_frequencies > 0,
        "linear": len(program.linear) > 0,
        "wide": program.feature_bits == 16,
        "shifts": program.powers_of_two,
        "even": _step(program.multipliers) is not None,
        "raw": raw is not None,
        "classes": n_classes > 0,
        "two_classes": n_classes == 2,
        "sparse": packed.layout == "sparse",
        "bytes": packed.bits == 8,
        f"bits{packed.bits}": True,
    }
    return {name for name, holds in found.items() if holds}


def _macros(program: IntegerProgram, packed: PackedCodes, level: float, n_tests: int) -> dict[str, int | str]:
    values: dict[str, int | str] = {
        "N_FEATURES_IN": program.n_features_in,
        "N_OUTPUTS": program.n_outputs,
        "N_SAMPLES": program.n_samples,
        "LEVEL": repr(float(level)),
        "Z": f"UINT32_C({gaussian_z(level)})",
        "N_INPUTS": program.n_inputs,
        "N_FREQUENCIES": program.n_frequencies,
        "N_LINEAR": len(program.linear),
        "N_GROUPS": len(program.groups),
        "N_COLUMNS": program.n_columns,
        "CODE_BYTES": packed.n_bytes,
        "ONE": program.one,
        "LINEAR_LIMIT": program.linear_limit,
        "DEVIATION_SHIFT": program.deviation_shift,
        "N_TESTS": n_tests,
    }
    if program.n_frequencies:
        values["READ_FREQUENCY"] = f"PD_READ_{8 * program.frequencies.dtype.itemsize}"
    values["READ_COLUMN"] = f"PD_READ_{8 * _indices(program, program.columns).dtype.itemsize}U"
    values["READ_GAIN"] = f"PD_READ_{8 * _gains(program).dtype.itemsize}"
    same = len(set(program.limit.tolist())) == 1
    values["READ_LIMIT(i)"] = str(int(program.limit[0])) if same else "PD_READ_16(pd_limit + (i))"
    step = _step(program.multipliers)
    if step is not None:
        values |= {"FIRST_LEVEL": f"INT32_C({program.multipliers[0]})", "LEVEL_STEP": f"INT32_C({step})"}
    elif not program.powers_of_two:
        values["READ_MULTIPLIER"] = f"PD_READ_{8 * smallest_integers(program.multipliers).dtype.itemsize}"
    return values


def _step(multipliers: NDArray[np.int32]) -> int | None:
    """Return by how much one level differs from the next, if it is the same for all."""
    steps = set(np.diff(multipliers).tolist())
    return steps.pop() if len(steps) == 1 else None


def _indices(program: IntegerProgram, values: NDArray[np.int32]) -> NDArray[Any]:
    """Return numbers of columns in the smallest type that holds them all."""
    return values.astype(np.uint8 if program.n_features_in <= 256 else np.uint16)


def _gains(program: IntegerProgram) -> NDArray[Any]:
    return smallest_integers([g.gain for g in program.groups])


def _powers(multipliers: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return 0x80 for zero, otherwise the power of two, with 0x40 for a negative one."""
    size = np.abs(multipliers.astype(np.int64))
    power = np.log2(np.maximum(size, 1)).astype(np.uint8)
    return np.where(size == 0, 0x80, power | np.where(multipliers < 0, 0x40, 0)).astype(np.uint8)


def _tables(program: IntegerProgram, packed: PackedCodes, raw: RawInputs | None) -> list[str]:
    codes = np.pad(packed.packed, (0, packed.n_stored_bytes - packed.n_bytes))
    groups = program.groups
    out = [
        table("pd_columns", _indices(program, program.columns)),
        "#ifndef PD_NO_FLOAT\n",
        table("pd_origin", program.origin),
        table("pd_multiplier", program.multiplier),
        "#endif\n",
        table("pd_group_end", np.array([g.end for g in groups], dtype=np.uint16)),
        table("pd_group_gain", _gains(program)),
        table("pd_group_shift", np.array([g.shift for g in groups], dtype=np.uint8)),
        table("pd_codes", codes),
        # Few, and of types that flash has no instructions for.
        table("pd_noise", program.noise, mark=""),
        "#ifndef PD_NO_FLOAT\n",
        *(table(f"pd_{n}", getattr(program, n), mark="") for n in ("scale", "offset", "std_scale")),
        "#endif\n",
    ]
    if program.n_frequencies:
        out += [
            table("pd_frequencies", program.frequencies),
            table("pd_phase_shift", program.phase_shift),
            table("pd_sine_table", SINE_TABLES[program.feature_bits]),
        ]
    if len(program.linear):
        out.append(table("pd_linear", _indices(program, program.linear)))
    if len(set(program.limit.tolist())) > 1:
        out.append(table("pd_limit", program.limit.astype(np.int16)))
    if program.powers_of_two:
        out.append(table("pd_powers", _powers(program.multipliers)))
    elif _step(program.multipliers) is None:
        out.append(table("pd_multipliers", smallest_integers(program.multipliers)))
    if raw is not None:
        names = ("origin", "reach", "multiplier", "shift")
        out += [table(f"pd_count_{name}", getattr(raw, name)) for name in names]
    return out


def _test_tables(program: IntegerProgram, rows: NDArray[np.float32]) -> list[str]:
    q = program.quantise_inputs(rows)
    totals = program.totals_of_features(program.features(q))
    return [
        "#ifndef PD_NO_FLOAT\n",
        table("pd_test_x", rows),
        "#endif\n",
        table("pd_test_q", q.astype(np.int16)),
        table("pd_test_totals", totals.astype(np.int32)),
        table("pd_test_root", program.roots(totals).astype(np.uint32)),
        table("pd_test_median", program.quantiles(totals, 0.5).astype(np.int32)),
    ]
