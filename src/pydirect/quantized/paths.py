"""Predictions of quantised models: the floating-point path and the integer path, with the same methods."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.integer.arithmetic import half_width
from pydirect.quantized.integer.engine import FloatEngine, IntegerEngine
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.model import QuantizedModel

BLOCK_ROWS = 256  # basis functions of a block stay in the cache
Pair = tuple[FloatArray, FloatArray]


class FloatPath:
    """Predictions in double precision."""

    def __init__(self, model: QuantizedModel) -> None:
        self.model = model

    @cached_property
    def _engine(self) -> FloatEngine:
        return FloatEngine(self.model.codes, self.model.levels, self.model.n_outputs)

    @cached_property
    def _weights_of_functions(self) -> FloatArray | None:
        """Centres and what samples add, (n_weights, n_outputs · (1 + n_samples)), where weights are of directions."""
        model = self.model
        if not isinstance(model.basis, LinearBasis) or model.basis.vectors is None:
            return None
        values = model.levels[model.codes].reshape(len(model.codes), model.n_outputs, model.n_samples)
        centre, spread = (np.broadcast_to(a, values.shape[:2])[:, :, None] for a in (model.centre, model.spread))
        own = np.concatenate([centre, spread * values], axis=2)
        return model.basis.weights_of_functions(own.reshape(len(own), -1))

    def functions(self, x: FloatArray, n_threads: int | None = None) -> FloatArray:
        """Values of the samples' functions without noise, (n_rows, n_outputs, n_samples)."""
        middle, parts, _ = self._parts(x, n_threads)
        return middle[:, :, None] + parts

    def functions_and_missing(self, x: FloatArray) -> Pair:
        """Values of the samples' functions, and the variance that the basis functions lack, (n_rows, n_outputs)."""
        middle, parts, missing = self._parts(x, with_missing=True)
        return middle[:, :, None] + parts, missing

    def mean(self, x: FloatArray) -> FloatArray:
        """Mean of the outputs, (n_rows, n_outputs)."""
        middle, parts, _ = self._parts(x)
        return np.asarray(middle + parts.mean(axis=2))

    def moments(self, x: FloatArray) -> Pair:
        """Mean and standard deviation of the outputs, noise included, (n_rows, n_outputs) each."""
        middle, parts, missing = self._parts(x, with_missing=True)
        std = self.model.calibration * np.sqrt(parts.var(axis=2) + missing + self.model.noise)
        return middle + parts.mean(axis=2), std

    def interval(self, x: FloatArray, level: float) -> Pair:
        """Central intervals of Gaussians with these moments, (n_rows, n_outputs) each."""
        mean, std = self.moments(x)
        half = std * half_width(level)
        return mean - half, mean + half

    def function_interval(self, x: FloatArray, level: float) -> Pair:
        """Central intervals of the samples' functions, (n_rows, n_outputs) each."""
        middle, parts, _ = self._parts(x)
        low, high = np.quantile(parts, [(1 - level) / 2, (1 + level) / 2], axis=2)
        return middle + low, middle + high

    def function_quantiles(self, x: FloatArray, p: float) -> FloatArray:
        """Quantiles of the samples' functions, (n_rows, n_outputs)."""
        return np.asarray(np.quantile(self.functions(x), p, axis=2))

    def _parts(
        self, x: FloatArray, n_threads: int | None = None, with_missing: bool = False
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what all samples' functions share, what each adds, and the variance that the basis functions lack.

        The latter may be left out if it is not asked for.

        In units of the output; the second (n_rows, n_outputs, n_samples), the others (n_rows, n_outputs). Deviations
        are computed from the second alone: beside a large offset they would be lost in its rounding.
        """
        model, threads = self.model, resolve_n_threads(n_threads)
        middle, missing = np.empty((2, len(x), model.n_outputs))
        parts = np.empty((len(x), model.n_outputs, model.n_samples))
        with single_blas_thread():
            for begin in range(0, len(x), BLOCK_ROWS):
                block = slice(begin, begin + BLOCK_ROWS)
                centre, sums, lacking = self._sums(x[block], threads, with_missing)
                middle[block] = model.offset + model.scale * centre
                parts[block] = model.scale[:, None] * sums
                missing[block] = model.scale**2 * lacking
        return middle, parts, missing

    def _sums(self, x: FloatArray, n_threads: int, with_missing: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Functions in units of the weights: of their centres, (n_rows, n_outputs), and what each sample adds.

        And the variance that the basis functions lack.
        """
        model, weights = self.model, self._weights_of_functions
        if weights is not None:
            assert isinstance(model.basis, LinearBasis)
            values, missing = model.basis.combined(x, weights, with_missing, n_threads)
            values = values.reshape(len(x), model.n_outputs, -1)
            return values[:, :, 0], values[:, :, 1:], missing
        phi, missing = model.basis.transform(x, n_threads)
        none = np.zeros((len(phi), model.n_outputs))
        if isinstance(model.basis, NetworkBasis):
            shape = model.basis.shape
            return none, np.stack([shape.forward(w, phi).T for w in model.network_weights], axis=1), missing
        spreads = np.broadcast_to(model.spread, (len(model.spread), model.n_outputs)).T
        sums = [self._engine.sums(phi * spread, k, n_threads) for k, spread in enumerate(spreads)]
        return phi @ model.centre if model.centre.any() else none, np.stack(sums, axis=1), missing


class IntegerPath:
    """Predictions in integer arithmetic; compiled kernels where there are any, the same as the program itself."""

    def __init__(self, model: QuantizedModel) -> None:
        self.program = model.program

    @cached_property
    def _engine(self) -> IntegerEngine | None:
        return IntegerEngine(self.program) if isinstance(self.program, IntegerProgram) else None

    def totals(self, x: FloatArray, n_threads: int | None = None) -> NDArray[np.int64]:
        """Totals of the integer program, (n_rows, n_outputs, n_samples)."""
        if self._engine is not None:
            return self._engine.totals(x, resolve_n_threads(n_threads))
        blocks = [self.program.totals(x[begin : begin + BLOCK_ROWS]) for begin in range(0, len(x), BLOCK_ROWS)]
        return np.concatenate(blocks)

    def functions(self, x: FloatArray, n_threads: int | None = None) -> FloatArray:
        """Values of the samples' functions without noise, (n_rows, n_outputs, n_samples)."""
        return self.program.functions(self.totals(x, n_threads))

    def functions_and_missing(self, x: FloatArray) -> Pair:
        """Values of the samples' functions, and zero, (1, n_outputs): integers have no variance beyond theirs."""
        return self.functions(x), np.zeros((1, self.program.n_outputs))

    def mean(self, x: FloatArray) -> FloatArray:
        """Mean of the outputs, (n_rows, n_outputs)."""
        return self.program.mean(self.totals(x))

    def moments(self, x: FloatArray) -> Pair:
        """Mean and standard deviation of the outputs, noise included, (n_rows, n_outputs) each."""
        totals = self.totals(x)
        return self.program.mean(totals), self.program.std(totals)

    def interval(self, x: FloatArray, level: float) -> Pair:
        """Central intervals of Gaussians with these moments, (n_rows, n_outputs) each."""
        return self.program.interval(self.totals(x), level)

    def function_interval(self, x: FloatArray, level: float) -> Pair:
        """Central intervals of the samples' functions, (n_rows, n_outputs) each."""
        return self.program.function_interval(self.totals(x), level)

    def function_quantiles(self, x: FloatArray, p: float) -> FloatArray:
        """Quantiles of the samples' functions, (n_rows, n_outputs)."""
        return self.program.function_quantiles(self.totals(x), p)
