"""Compiled inference with quantised models: the integer program, and sums by level in floating point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._validation import FloatArray
from pydirect.quantized.integer.arithmetic import SINE_TABLES
from pydirect.quantized.integer.linear import IntegerProgram


class IntegerEngine:
    """Runs an integer program in compiled kernels; the same integers as ``program.totals`` at every instruction set."""

    def __init__(self, program: IntegerProgram) -> None:
        program.prove()  # 32 bits suffice
        self._shape = (program.n_outputs, program.n_samples)
        frequencies = program.frequencies.astype(np.int64) << program.phase_shift.astype(np.int64)
        self._program = _core.IntegerProgram(
            program.n_features_in,
            program.columns,
            program.origin,
            program.multiplier,
            program.limit,
            np.ascontiguousarray((frequencies & 0xFFFFFFFF).astype(np.uint32)),
            program.linear,
            program.linear_limit,
            any(g.kind == "constant" for g in program.groups),
            program.feature_bits,
            SINE_TABLES[program.feature_bits].astype(np.int16),
            [(g.begin, g.end, g.gain, g.shift) for g in program.groups],
            np.ascontiguousarray(program.codes),
            program.multipliers,
        )

    def totals(self, x: FloatArray, n_threads: int = 1) -> NDArray[np.int64]:
        """Totals of every sample at rows of X, (n_rows, n_outputs, n_samples)."""
        totals = np.empty((len(x), self._shape[0] * self._shape[1]), dtype=np.int32)
        self._program.run(x, totals, n_threads)
        return totals.reshape(len(x), *self._shape).astype(np.int64)


class FloatEngine:
    """Sums of basis functions weighted with levels, Σ_j φ_j level(code_j), in double precision.

    - `codes`, uint8 (n_basis_functions, n_outputs · n_samples).
    - `levels`, (n_levels,).
    """

    def __init__(self, codes: NDArray[np.uint8], levels: FloatArray, n_outputs: int = 1) -> None:
        self._n_samples = codes.shape[1] // n_outputs
        levels = np.ascontiguousarray(levels, dtype=np.float64)
        blocks = np.split(codes, n_outputs, axis=1)
        self._samples = [_core.SamplesDouble(np.ascontiguousarray(block), levels) for block in blocks]

    def sums(self, phi: FloatArray, output: int = 0, n_threads: int = 1) -> FloatArray:
        """Return the sums of one output at rows of basis functions, (n_rows, n_samples)."""
        out = np.empty((len(phi), self._n_samples))
        self._samples[output].sums(np.ascontiguousarray(phi), out, n_threads)
        return out
