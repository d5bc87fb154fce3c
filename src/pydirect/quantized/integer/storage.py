"""Constant tables of an integer program as exported code stores them, and their sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect.quantized.integer.arithmetic import SINE_TABLES, smallest_integers
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.fixed_point import FixedResults
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.integer.network import NetworkProgram
from pydirect.quantized.integer.program import Program

Tables = dict[str, NDArray[Any]]


def level_step(multipliers: NDArray[np.int32]) -> int | None:
    """Return the difference between neighbouring levels if it is constant, else None."""
    steps = set(np.diff(multipliers).tolist())
    return steps.pop() if len(steps) == 1 else None


def stored_tables(results: FixedResults, raw: RawInputs | None = None) -> dict[str, Tables]:
    """Return the tables of a program by part, except the packed codes and constants that are written into the code.

    With `raw` the device's numbers are integers, both inputs and results; otherwise they have single precision.

    Column numbers take the smallest type that holds them all. Powers of two are bytes: 0x80 for zero, otherwise the
    exponent, with 0x40 for a negative one. Evenly spaced levels need no table.
    """
    program = results.program
    outputs = {name: getattr(results, name) for name in ("gain", "offset", "shift", "width_gain", "width_shift")}
    outputs["noise"] = program.noise
    if raw is None:
        read: Tables = {"origin": program.origin, "multiplier": program.multiplier}
        with np.errstate(over="ignore"):  # only the size counts then: `FixedResults.require_digits`
            outputs["unit"] = (1 / results.counts_per_unit).astype(np.float32)
    else:
        read = {f"input_{name}": getattr(raw, name) for name in ("origin", "multiplier", "offset", "shift")}
    inputs: Tables = {"columns": program.columns.astype(_index(program)), **read}
    if len(set(program.limit.tolist())) > 1:
        inputs["limit"] = program.limit.astype(np.int16)
    levels: Tables = {}
    if program.powers_of_two:
        levels["powers"] = _powers(program.multipliers)
    elif level_step(program.multipliers) is None:
        levels["multipliers"] = smallest_integers(program.multipliers)
    parts = {"inputs": inputs, "levels": levels}
    if isinstance(program, NetworkProgram):
        parts |= _network_tables(program)
    elif isinstance(program, IntegerProgram):
        inputs |= _more_inputs(program)
        parts |= _linear_tables(program)
    return parts | {"outputs": outputs}


def _index(program: Program) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if program.n_features_in <= 256 else np.uint16


def _more_inputs(program: IntegerProgram) -> Tables:
    tables: Tables = {"phase_shift": program.phase_shift} if program.n_frequencies else {}
    if len(program.linear):
        tables["linear"] = program.linear.astype(_index(program))
    return tables


def _linear_tables(program: IntegerProgram) -> dict[str, Tables]:
    frequencies: Tables = {"frequencies": program.frequencies} if program.n_frequencies else {}
    sines: Tables = {"sine_table": SINE_TABLES[program.feature_bits]} if program.n_frequencies else {}
    groups: Tables = {
        "group_end": np.array([g.end for g in program.groups], dtype=np.uint16),
        "group_gain": smallest_integers([g.gain for g in program.groups]),
        "group_shift": np.array([g.shift for g in program.groups], dtype=np.uint8),
    }
    return {"frequencies": frequencies, "sine_table": sines, "groups": groups}


def _network_tables(program: NetworkProgram) -> dict[str, Tables]:
    rotation: Tables = {name: getattr(program, name) for name in ("rotation", "rotation_offset", "rotation_shift")}
    layers: Tables = {
        "widths": np.array([program.shape.n_inputs, *program.shape.hidden_layer_sizes, 1], dtype=np.uint16),
        "ones": program.ones.astype(np.int16),
        "rescale": program.rescale.astype(np.int32),
        "rescale_shift": program.rescale_shift,
    }
    affine: Tables = {}
    if program.centre is not None and program.spread is not None:
        affine = {"centre": smallest_integers(program.centre), "spread": smallest_integers(program.spread)}
    return {"rotation": rotation, "layers": layers, "affine": affine}


def program_bytes(results: FixedResults, raw: RawInputs | None = None) -> dict[str, int]:
    """Count the bytes of a program's tables by part, without the codes."""
    return {part: sum(a.nbytes for a in tables.values()) for part, tables in stored_tables(results, raw).items()}


def _powers(multipliers: NDArray[np.int32]) -> NDArray[np.uint8]:
    size = np.abs(multipliers.astype(np.int64))
    power = np.log2(np.maximum(size, 1)).astype(np.uint8)
    return np.where(size == 0, 0x80, power | np.where(multipliers < 0, 0x40, 0)).astype(np.uint8)


def code_bytes(program: Program) -> int:
    """Estimate the bytes of code of a prediction on a Cortex-M, compiled with -Os.

    Fitted to 64 programs with counts in and out, compiled by GCC 12 for a Cortex-M0+: within 250 bytes. A Cortex-M4
    takes about 100 bytes less. `bench/scripts/flash.py` compares.
    """
    parts = {"network": 690, "fourier": 285, "linear": 175, "several outputs": 380, "one sample": -310}
    holds = {
        "network": isinstance(program, NetworkProgram),
        "fourier": isinstance(program, IntegerProgram) and program.n_frequencies > 0,
        "linear": isinstance(program, IntegerProgram) and len(program.linear) > 0,
        "several outputs": program.n_outputs > 1,
        "one sample": program.n_samples == 1,
    }
    return 790 + sum(size for part, size in parts.items() if holds[part])


def stack_bytes(program: Program) -> int:
    """Estimate the bytes of stack of a prediction: quantised inputs, sums, units of a network, and registers."""
    n_bytes = 2 * program.n_inputs + 8 * program.n_columns
    if isinstance(program, NetworkProgram):
        widest = max(program.shape.n_inputs, *program.shape.hidden_layer_sizes)
        n_bytes += 2 * program.n_inputs + 2 * 2 * (widest + 1) * program.n_columns
    return n_bytes + 224
