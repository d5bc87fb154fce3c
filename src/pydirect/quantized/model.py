"""Quantised models: packed integers that predict by themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_float_array, as_number
from pydirect.features.maps import PrecomputedFeatures
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.errors import IntegerArithmeticError
from pydirect.quantized.integer.arithmetic import half_width
from pydirect.quantized.integer.compile import BasisLayout, build_program, lay_out
from pydirect.quantized.integer.compile_network import build_network_program
from pydirect.quantized.integer.engine import FloatEngine, IntegerEngine
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.integer.network import NetworkProgram
from pydirect.quantized.integer.program import Operations, Program
from pydirect.quantized.integer.rounding import network_rounding_bound, rounding_bound
from pydirect.quantized.integer.storage import program_bytes
from pydirect.quantized.integer.units import OutputScale
from pydirect.quantized.packing import PackedCodes

ARITHMETICS = ("float", "integer")
BLOCK_ROWS = 4096


def column_names(X: Any) -> tuple[str, ...]:
    """Return the names of a data frame's columns; of anything else, or when they are not all strings, none."""
    names = tuple(getattr(X, "columns", ()))
    return names if all(isinstance(name, str) for name in names) else ()


def as_numpy(X: Any) -> Any:
    """Return a data frame's values, and anything else as it is."""
    return X.to_numpy() if hasattr(X, "to_numpy") else X


def as_rows(X: ArrayLike, n_features: int, feature_names: tuple[str, ...]) -> FloatArray:
    """Return rows of X, (n_rows, n_features); a data frame must have the columns of these names in this order."""
    if (names := column_names(X)) and feature_names and names != feature_names:
        raise ValueError(f"X must have the columns {list(feature_names)} in this order, got {list(names)}")
    return as_float_array(as_numpy(X), "X", ("n_rows", n_features))


@dataclass(frozen=True)
class QuantizedModel:
    """What quantised regressors and classifiers share; made by `quantize` and `fit_within`.

    Attributes
    ----------
    basis : LinearBasis or NetworkBasis
    packed : PackedCodes
        Level indices, (n_features, n_outputs · n_samples); of a network (n_weights, n_outputs · n_samples).
    levels : ndarray of shape (n_levels,)
        What an index stands for.
    centre, spread : ndarray of shape (n_features, n_outputs) or (1, 1)
        A weight is ``scale · (centre + spread · level)``.
    scale : ndarray of shape (n_outputs,)
        From weights to units of the output.
    offset : ndarray of shape (n_outputs,)
    noise : ndarray of shape (n_outputs,)
        Noise variance, in squared units of the output.
    calibration : float
        Factor of standard deviations.
    n_features_in : int
    one_dimensional : bool
    feature_bits : {8, 16}
    frequency_bits : {8, 16, 32, "auto"}
    arithmetic : {"float", "integer"}
        What predictions are made with; see `using`.
    feature_names : tuple of str
        Names of the columns of the data frame that the model was fitted to; empty when it was none.
    """

    basis: LinearBasis | NetworkBasis
    packed: PackedCodes
    levels: FloatArray
    centre: FloatArray
    spread: FloatArray
    scale: FloatArray
    offset: FloatArray
    noise: FloatArray
    calibration: float
    n_features_in: int
    one_dimensional: bool
    feature_bits: int = 16
    frequency_bits: int | str = "auto"
    arithmetic: str = "float"
    feature_names: tuple[str, ...] = ()

    @property
    def n_outputs(self) -> int:
        """Outputs; classes of a classifier, one for two of them."""
        return len(self.scale)

    @property
    def n_samples(self) -> int:
        """Posterior samples."""
        return self.packed.shape[1] // self.n_outputs

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """Level indices, (n_features, n_outputs · n_samples)."""
        return self.packed.unpack()

    @cached_property
    def weights(self) -> FloatArray:
        """Values of the weights, (n_outputs, n_samples, n_features)."""
        values = self.levels[self.codes].reshape(len(self.codes), self.n_outputs, self.n_samples)
        scaled = self.scale[:, None] * (self.centre[:, :, None] + self.spread[:, :, None] * values)
        return np.ascontiguousarray(np.moveaxis(scaled, 0, 2))

    # --- arithmetic

    @cached_property
    def layout(self) -> BasisLayout:
        """Order of the program's basis functions; a network has none.

        Raises
        ------
        IntegerArithmeticError
            When there is no integer-only form, with the reason.
        """
        assert isinstance(self.basis, LinearBasis)
        # Weights of a precomputed column are multiplied by what it is divided by, the unit of its group.
        by_column = isinstance(self.basis.features.map, PrecomputedFeatures) and self.spread.shape[1] == 1
        if self.basis.vectors is not None or self.centre.any() or ((self.spread != 1).any() and not by_column):
            raise IntegerArithmeticError(
                "integers need levels that all weights share: quantise with levels='even', or fit with basis='raw'"
            )
        spread = np.zeros(self.basis.features.n_weights)
        spread[self.basis.order] = self.spread[:, 0]
        return lay_out(self.basis.features.map, spread != 0, spread)

    @cached_property
    def program(self) -> Program:
        """The model in integers alone.

        Raises
        ------
        IntegerArithmeticError
            When there is no integer-only form, with the reason.
        """
        output = OutputScale(self.scale, self.offset, self.noise, self.calibration)
        if isinstance(self.basis, NetworkBasis):
            if self.feature_bits != 16:
                raise IntegerArithmeticError(
                    "feature_bits must be 16 for a network: squares of squares of eight bits are too coarse"
                )
            return build_network_program(
                self.basis, self.codes, self.levels, self.centre, self.spread, self.n_samples, output
            )
        return build_program(
            self.basis.features,
            self.layout,
            self.codes,
            self.levels,
            self.n_samples,
            output,
            feature_bits=self.feature_bits,
            frequency_bits=self.frequency_bits,
        )

    def rounding_bound(self, X: ArrayLike | None = None) -> FloatArray:
        """Bound of the difference between the integer and the float path for a sample's function, (n_outputs,).

        It holds where no input is cut off, that is within `input_ranges`, and so for means of predictions; it says
        nothing of their standard deviations, see `using`. That of a network holds where no hidden unit is cut off
        either, see `in_range`; it adds up worst cases of every layer, far from what happens anywhere: ask at rows.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in), optional
            The bound at these rows, (n_rows, n_outputs); but for networks it is the same everywhere.
        """
        program, basis = self.program, self.basis
        if isinstance(program, NetworkProgram) and isinstance(basis, NetworkBasis):
            rows = None if X is None else self._rows(X)
            weights = (self.weights / self.scale[:, None, None]).reshape(program.n_columns, -1)
            bound = network_rounding_bound(program, basis, weights, self.scale, rows)
            return bound[0] if X is None else bound
        assert isinstance(program, IntegerProgram) and isinstance(basis, LinearBasis)
        bound = rounding_bound(program, basis, self.layout, self.levels, self.scale)
        return bound if X is None else np.tile(bound, (len(self._rows(X)), 1))

    def in_range(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Tell the rows at which integers cut off no input and no hidden unit of a network, (n_rows,).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        """
        return self.program.in_range(self.program.quantise_inputs(self._rows(X)))

    def input_ranges(self) -> FloatArray:
        """Least and largest value of every column that integers tell apart, (n_features_in, 2); others are cut off.

        Eight standard deviations about the training mean, or somewhat more for a network, whose hidden units may be cut
        off within; of ``features="precomputed"`` at least twice the largest magnitude in the rows that `quantize` was
        given. Infinite where a column is not read.
        """
        program, ranges = self.program, np.tile([-np.inf, np.inf], (self.n_features_in, 1))
        origin, reach = program.origin.astype(np.float64), program.limit / program.multiplier.astype(np.float64)
        ranges[program.columns] = np.stack([origin - reach, origin + reach], axis=1)
        return ranges

    @cached_property
    def _engine(self) -> IntegerEngine | FloatEngine:
        if self.arithmetic == "integer" and isinstance(self.program, IntegerProgram):
            return IntegerEngine(self.program)
        return FloatEngine(self.codes, self.levels, self.n_outputs)

    def using(self, arithmetic: str) -> Self:
        """Return the same model with predictions in ``"float"`` or in ``"integer"`` arithmetic.

        Means differ by `rounding_bound` at most where rows are `in_range`. Standard deviations in integers are those of
        the samples and the noise alone: the variance that the basis functions lack far from the training data, beyond
        the reach of the linear part of a model with ``features="fourier"``, is in those of the float path only.

        Raises
        ------
        IntegerArithmeticError
            When there is no integer-only form, with the reason.
        """
        as_choice(arithmetic, "arithmetic", ARITHMETICS)
        model = replace(self, arithmetic=arithmetic)
        if arithmetic == "integer":
            model.program.prove()  # refuses what could overflow
        return model

    # --- prediction

    def _rows(self, X: ArrayLike) -> FloatArray:
        return as_rows(X, self.n_features_in, self.feature_names)

    def functions(self, X: ArrayLike, n_threads: int | None = None) -> FloatArray:
        """Values of every sample's function, noise left out, in units of the output (logits for classifiers).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        n_threads : int, optional

        Returns
        -------
        ndarray of shape (n_rows, n_outputs, n_samples)
        """
        x = self._rows(X)
        if self.arithmetic == "integer":
            return self.program.functions(self.totals(x, n_threads))
        middle, parts, _ = self._float_functions(x, n_threads)
        return middle[:, :, None] + parts

    def _float_functions(
        self, x: FloatArray, n_threads: int | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what all samples' functions share, what each adds, and the variance that the basis functions lack.

        In units of the output; (n_rows, n_outputs), but the second (n_rows, n_outputs, n_samples). Deviations come from
        the second alone: beside an offset that is large they would be lost in its rounding.
        """
        threads = resolve_n_threads(n_threads)
        middle, missing = np.empty((2, len(x), self.n_outputs))
        parts = np.empty((len(x), self.n_outputs, self.n_samples))
        with single_blas_thread():
            for begin in range(0, len(x), BLOCK_ROWS):
                block = slice(begin, begin + BLOCK_ROWS)
                phi, lacking = self.basis.transform(x[block], threads)
                centre, sums = self._sums(phi, threads)
                middle[block] = self.offset + self.scale * centre
                parts[block] = self.scale[:, None] * sums
                missing[block] = self.scale**2 * lacking
        return middle, parts, missing

    def _sums(self, phi: FloatArray, n_threads: int) -> tuple[FloatArray, FloatArray]:
        """Functions in units of the weights: of their centres, (n_rows, n_outputs), and what each sample adds."""
        none = np.zeros((len(phi), self.n_outputs))
        if isinstance(self.basis, NetworkBasis):
            shape = self.basis.shape
            return none, np.stack([shape.forward(w, phi).T for w in self.weights / self.scale[:, None, None]], axis=1)
        engine = self._engine
        assert isinstance(engine, FloatEngine)
        sums = [engine.sums(phi * spread, k, n_threads) for k, spread in enumerate(self.spread.T)]
        if len(sums) < self.n_outputs:  # one spread for all outputs
            sums = [engine.sums(phi * self.spread[:, 0], k, n_threads) for k in range(self.n_outputs)]
        return phi @ self.centre if self.centre.any() else none, np.stack(sums, axis=1)

    def totals(self, X: ArrayLike, n_threads: int | None = None) -> NDArray[np.int64]:
        """Integers of the integer-only path for every sample, (n_rows, n_outputs, n_samples).

        By compiled kernels, but for networks. Equal to ``program.totals(X)``, the definition.
        """
        x, program = self._rows(X), self.program
        if not isinstance(program, IntegerProgram):
            blocks = [program.totals(x[begin : begin + BLOCK_ROWS]) for begin in range(0, len(x), BLOCK_ROWS)]
            return np.concatenate(blocks)
        engine = self._engine if isinstance(self._engine, IntegerEngine) else IntegerEngine(program)
        return engine.totals(x, resolve_n_threads(n_threads))

    def _shape(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if self.one_dimensional else values

    def _mean(self, X: ArrayLike) -> FloatArray:
        """Mean of the outputs, (n_rows, n_outputs)."""
        if self.arithmetic == "integer":
            return self.program.mean(self.totals(X))
        middle, parts, _ = self._float_functions(self._rows(X))
        return middle + parts.mean(axis=2)

    def _moments(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the outputs, noise included, (n_rows, n_outputs) each."""
        if self.arithmetic == "integer":
            totals = self.totals(X)
            return self.program.mean(totals), self.program.std(totals)
        middle, parts, missing = self._float_functions(self._rows(X))
        std = self.calibration * np.sqrt(parts.var(axis=2) + missing + self.noise)
        return middle + parts.mean(axis=2), std

    def _interval(self, X: ArrayLike, level: float) -> tuple[FloatArray, FloatArray]:
        """Central intervals of Gaussians with these moments, (n_rows, n_outputs) each."""
        if self.arithmetic == "integer":
            return self.program.interval(self.totals(X), level)
        mean, std = self._moments(X)
        half = std * half_width(level)
        return mean - half, mean + half

    def _function_interval(self, X: ArrayLike, level: float) -> tuple[FloatArray, FloatArray]:
        """Central intervals of the samples' functions, (n_rows, n_outputs) each."""
        if self.arithmetic == "integer":
            return self.program.function_interval(self.totals(X), level)
        middle, parts, _ = self._float_functions(self._rows(X))
        low, high = np.quantile(parts, [(1 - level) / 2, (1 + level) / 2], axis=2)
        return middle + low, middle + high

    def predict_function_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals of the samples' functions, noise left out, by interpolation between them.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        level : float in (0, 1)
            Of integers rounded so that the probability below is a multiple of 2^-16.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Of logits for classifiers.
        """
        lower, upper = self._function_interval(X, as_number(level, "level", above=0.0, below=1.0))
        return self._shape(lower), self._shape(upper)

    def report(self) -> dict[str, Any]:
        """Sizes: bytes of what a device stores, weights that are not zero, and operations a prediction.

        Returns
        -------
        dict
            ``bytes``, by part and in total; ``n_features``, ``n_weights``, ``n_nonzero`` (of all samples), ``zeros``
            (fraction); of the functions at one row ``additions``, ``multiplications`` and ``table_lookups``, of
            integers with those of the sines, whose int16 form takes two entries and interpolates, and of the groups'
            gains, of a network with its centres, spreads and squares; ``layout``, ``bits``, ``arithmetic``.
        """
        n_features, n_columns = self.packed.shape
        parts: dict[str, int] = {"weights": self.packed.n_stored_bytes}
        taken = self.levels != 0
        shifts_only = bool((np.frexp(np.abs(self.levels[taken] / np.abs(self.levels).max()))[0] == 0.5).all())
        own = Operations()
        try:
            program = self.program
        except IntegerArithmeticError:
            parts["basis"] = _array_bytes(self.basis)
            parts["levels"] = self.levels.nbytes + sum(a.nbytes for a in (self.centre, self.spread) if a.size > 1)
            parts["outputs"] = 8 * 3 * self.n_outputs
        else:
            parts |= program_bytes(program)
            taken, shifts_only, own = program.multipliers != 0, program.powers_of_two, program.operations
        nonzero = int(taken[self.codes].sum())
        return {
            "bytes": {**parts, "total": sum(parts.values())},
            "n_features": n_features,
            "n_weights": n_features * n_columns,
            "n_nonzero": nonzero,
            "zeros": 1 - nonzero / max(n_features * n_columns, 1),
            "additions": nonzero + own.additions,
            "multiplications": (0 if shifts_only else nonzero) + own.multiplications,
            "table_lookups": own.table_lookups,
            "layout": self.packed.layout,
            "bits": self.packed.bits,
            "arithmetic": self.arithmetic,
        }

    @property
    def n_bytes(self) -> int:
        """Bytes that a device stores: of the integer program, or of the float path where there is none."""
        return int(self.report()["bytes"]["total"])

    def to_c(self, path: str | Path, **options: Any) -> None:
        """Write the model as one self-contained C99 header; see `pydirect.quantized.export.write.to_c`."""
        from pydirect.quantized.export.write import to_c

        to_c(self, path, **options)

    def to_onnx(self, path: str | Path, **options: Any) -> None:
        """Write the model as an ONNX graph; see `pydirect.quantized.export.write.to_onnx`."""
        from pydirect.quantized.export.write import to_onnx

        to_onnx(self, path, **options)

    def save(self, path: str | Path) -> None:
        """Write the model to one file, without pickle; `pydirect.quantized.load` reads it."""
        from pydirect.quantized.saving import save_model

        save_model(self, path)


def _array_bytes(value: Any) -> int:
    """Bytes of all arrays in nested dataclasses."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    fields = getattr(value, "__dataclass_fields__", {})
    return sum(_array_bytes(getattr(value, name)) for name in fields)
