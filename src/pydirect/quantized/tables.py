"""Constant tables of an integer program as exported code stores them: what is written, and how large it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect.quantized.arithmetic import SINE_TABLES, IntegerProgram, smallest_integers

Tables = dict[str, NDArray[Any]]


def level_step(multipliers: NDArray[np.int32]) -> int | None:
    """Return by how much one level differs from the next, if it is the same for all."""
    steps = set(np.diff(multipliers).tolist())
    return steps.pop() if len(steps) == 1 else None


def stored_tables(program: IntegerProgram) -> dict[str, Tables]:
    """Return the tables of a program by part, all but the packed codes; constants that stand in code are left out.

    Numbers of columns take the smallest type that holds them all. Powers of two are bytes: 0x80 for zero, otherwise the
    power, with 0x40 for a negative one. Levels that are evenly spaced need no table.
    """
    index = np.uint8 if program.n_features_in <= 256 else np.uint16
    inputs: Tables = {
        "columns": program.columns.astype(index),
        "origin": program.origin,
        "multiplier": program.multiplier,
    }
    frequencies: Tables = {}
    sine_table: Tables = {}
    if program.n_frequencies:
        inputs["phase_shift"] = program.phase_shift
        frequencies["frequencies"] = program.frequencies
        sine_table["sine_table"] = SINE_TABLES[program.feature_bits]
    if len(program.linear):
        inputs["linear"] = program.linear.astype(index)
    if len(set(program.limit.tolist())) > 1:
        inputs["limit"] = program.limit.astype(np.int16)
    levels: Tables = {}
    if program.powers_of_two:
        levels["powers"] = _powers(program.multipliers)
    elif level_step(program.multipliers) is None:
        levels["multipliers"] = smallest_integers(program.multipliers)
    groups: Tables = {
        "group_end": np.array([g.end for g in program.groups], dtype=np.uint16),
        "group_gain": smallest_integers([g.gain for g in program.groups]),
        "group_shift": np.array([g.shift for g in program.groups], dtype=np.uint8),
    }
    outputs: Tables = {name: getattr(program, name) for name in ("noise", "scale", "offset", "std_scale")}
    return {
        "inputs": inputs,
        "frequencies": frequencies,
        "sine_table": sine_table,
        "levels": levels,
        "groups": groups,
        "outputs": outputs,
    }


def program_bytes(program: IntegerProgram) -> dict[str, int]:
    """Bytes of a program's tables but for the codes, by part."""
    return {part: sum(a.nbytes for a in tables.values()) for part, tables in stored_tables(program).items()}


def _powers(multipliers: NDArray[np.int32]) -> NDArray[np.uint8]:
    size = np.abs(multipliers.astype(np.int64))
    power = np.log2(np.maximum(size, 1)).astype(np.uint8)
    return np.where(size == 0, 0x80, power | np.where(multipliers < 0, 0x40, 0)).astype(np.uint8)
