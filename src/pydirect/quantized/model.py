"""Quantised models as data: packed level indices, units of the outputs, and the integer program made from them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_choice
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.errors import AccumulatorOverflowError, IntegerArithmeticError
from pydirect.quantized.integer.compile import BasisLayout, build_program, lay_out
from pydirect.quantized.integer.compile_network import build_network_program
from pydirect.quantized.integer.device import FixedPointModel
from pydirect.quantized.integer.fixed_point import FixedResults
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.integer.network import NetworkProgram
from pydirect.quantized.integer.program import Operations, Program
from pydirect.quantized.integer.rounding import network_rounding_bound, rounding_bound
from pydirect.quantized.integer.storage import code_bytes, program_bytes, stack_bytes
from pydirect.quantized.integer.units import OutputScale
from pydirect.quantized.packing import PackedCodes
from pydirect.quantized.rows import as_rows

ARITHMETICS = ("float", "integer")


@dataclass(frozen=True)
class QuantizedModel:
    """Posterior samples as packed level indices, with everything that predictions need.

    Attributes
    ----------
    basis : LinearBasis or NetworkBasis
        Map of the inputs to basis functions, or the layers of a network.
    packed : PackedCodes
        Level indices, (n_basis_functions, n_outputs · n_samples); for a network (n_weights, n_outputs · n_samples).
    levels : ndarray of shape (n_levels,)
        Value of every index.
    centre, spread : ndarray of shape (n_basis_functions, n_outputs) or (1, 1)
        A weight is ``scale · (centre + spread · level)``.
    scale : ndarray of shape (n_outputs,)
        From weights to units of the output.
    offset : ndarray of shape (n_outputs,)
        Added to the scaled functions of the samples, in units of the output.
    noise : ndarray of shape (n_outputs,)
        Noise variance, in squared units of the output; zero for logits.
    calibration : float
        Factor on standard deviations.
    n_features_in : int
        Number of input columns.
    one_dimensional : bool
        Whether predictions have no axis of outputs.
    feature_bits : {8, 16}, default=16
        Bits of a basis function in integer arithmetic; 16 for a network.
    frequency_bits : {8, 16, 32, "auto"}, default="auto"
        Bits of a frequency in integer arithmetic.
    arithmetic : {"float", "integer"}, default="float"
        Arithmetic of predictions; see `with_arithmetic`.
    feature_names : tuple of str, default=()
        Column names of the data frame that the model was fitted to; empty when it was fitted to an array.
    classes : ndarray of shape (n_classes,) or None, optional
        Classes of a classifier.
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
    classes: NDArray[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches: kernels have no pickle

    @property
    def n_outputs(self) -> int:
        """Number of outputs; for a classifier that of classes, but one for two classes."""
        return len(self.scale)

    @property
    def n_samples(self) -> int:
        """Number of posterior samples."""
        return self.packed.shape[1] // self.n_outputs

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """Level indices, (n_basis_functions, n_outputs · n_samples)."""
        return self.packed.unpack()

    @cached_property
    def weights(self) -> FloatArray:
        """Values of the weights, (n_outputs, n_samples, n_basis_functions)."""
        values = self.levels[self.codes].reshape(len(self.codes), self.n_outputs, self.n_samples)
        scaled = self.scale[:, None] * (self.centre[:, :, None] + self.spread[:, :, None] * values)
        return np.ascontiguousarray(np.moveaxis(scaled, 0, 2))

    @cached_property
    def network_weights(self) -> FloatArray:
        """Weights in units of the network, not of the outputs, (n_outputs, n_samples, n_weights)."""
        return self.weights / self.scale[:, None, None]

    def rows(self, X: ArrayLike) -> FloatArray:
        """Validate rows of X; a data frame must have the columns of the fit.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_features_in)
            Numbers.
        """
        return as_rows(X, self.n_features_in, self.feature_names)

    # --- integers

    @cached_property
    def layout(self) -> BasisLayout:
        """Order of the program's basis functions, for a model that is linear in them.

        Raises
        ------
        IntegerArithmeticError
            When there is no integer-only form, with the reason.
        """
        assert isinstance(self.basis, LinearBasis)
        if self.basis.vectors is not None or self.centre.any() or (np.frexp(self.spread)[0] != 0.5).any():
            raise IntegerArithmeticError(
                "integers need levels that all weights share, or multiples of powers of two: quantise with "
                "levels='even', or fit with basis='raw' and level_scales='own'"
            )
        if (self.spread != self.spread[:, :1]).any():
            raise IntegerArithmeticError(
                "integers need levels that all outputs share: fit with level_scales='shared', or the outputs one by "
                "one, or let pydirect.fit_quantized choose a model of a given size"
            )
        spread = np.zeros(self.basis.features.n_weights)
        spread[self.basis.order] = self.spread[:, 0]
        return lay_out(self.basis.features.map, spread != 0, spread)

    @cached_property
    def program(self) -> Program:
        """The model as an integer program.

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

    def with_arithmetic(self, arithmetic: str) -> Self:
        """Return the same model with predictions in ``"float"`` or in ``"integer"`` arithmetic.

        Means differ by at most `rounding_bound` where rows are `in_range`. Standard deviations in integers are those of
        the samples and the noise alone: the variance that the basis functions lack far from the training data, beyond
        the reach of the linear part of a model with ``features="fourier"``, is included in floating point only.

        Parameters
        ----------
        arithmetic : str
            ``"float"`` or ``"integer"``.

        Returns
        -------
        Self
            The model.

        Raises
        ------
        IntegerArithmeticError
            When there is no integer-only form, with the reason.
        """
        as_choice(arithmetic, "arithmetic", ARITHMETICS)
        model = replace(self, arithmetic=arithmetic)
        if arithmetic == "integer":
            model.program.prove()
        return model

    def fixed_point(
        self,
        *,
        counts_per_unit: ArrayLike | None = None,
        zero_count: ArrayLike = 0.0,
        output_counts_per_unit: ArrayLike | None = None,
        level: float = 0.9,
    ) -> FixedPointModel:
        """Return the model with the integers that a device computes: those of a header that `to_c` writes.

        Arguments are those of `pydirect.quantized.export.write.to_c`.

        Parameters
        ----------
        counts_per_unit : array_like, optional
            Counts per unit of every column, for inputs in counts.
        zero_count : float or array_like of shape (n_features_in,), default=0.0
            Count at zero of every column.
        output_counts_per_unit : array_like, optional
            Counts per unit of every output, for outputs in counts.
        level : float, default=0.9
            Probability that an interval contains.

        Returns
        -------
        FixedPointModel
            The integers.
        """
        return FixedPointModel.of(
            self.program,
            counts_per_unit=counts_per_unit,
            zero_count=zero_count,
            output_counts_per_unit=output_counts_per_unit,
            level=level,
            n_classes=0 if self.classes is None else len(self.classes),
        )

    def rounding_bound(self, X: ArrayLike | None = None) -> FloatArray:
        """Bound on the difference of a sample's function in integers and in floating point, (n_outputs,).

        It holds where no input is clipped, that is within `input_ranges`, and so for means of predictions; it says
        nothing about their standard deviations, see `with_arithmetic`. For a network it holds where no hidden unit is
        clipped either, see `in_range`; it adds up the worst cases of every layer, far above any actual error: pass
        rows.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in), optional
            Return the bound at these rows, (n_rows, n_outputs); it varies between rows for networks only.

        Returns
        -------
        ndarray of shape (n_outputs,)
            Bounds.
        """
        program, basis = self.program, self.basis
        if isinstance(program, NetworkProgram) and isinstance(basis, NetworkBasis):
            rows = None if X is None else self.rows(X)
            weights = self.network_weights.reshape(program.n_columns, -1)
            bound = network_rounding_bound(program, basis, weights, self.scale, rows)
            return bound[0] if X is None else bound
        assert isinstance(program, IntegerProgram) and isinstance(basis, LinearBasis)
        bound = rounding_bound(program, basis, self.layout, self.levels, self.scale)
        return bound if X is None else np.tile(bound, (len(self.rows(X)), 1))

    def in_range(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Whether integer arithmetic clips no input and no hidden unit of a network at rows of X, (n_rows,).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of bool of shape (n_rows,)
            Whether nothing is clipped.
        """
        return self.program.in_range(self.program.quantise_inputs(self.rows(X)))

    def input_ranges(self) -> FloatArray:
        """Smallest and largest value of every column in integer arithmetic, (n_features_in, 2); others are clipped.

        Eight standard deviations about the training mean, or somewhat more for a network, whose hidden units may be
        clipped within; for ``features="precomputed"`` at least twice the largest magnitude in the rows that `quantize`
        was given. Infinite where a column is not read.

        Returns
        -------
        ndarray of shape (n_features_in, 2)
            Smallest and largest values.
        """
        program, ranges = self.program, np.tile([-np.inf, np.inf], (self.n_features_in, 1))
        origin, reach = program.origin.astype(np.float64), program.limit / program.multiplier.astype(np.float64)
        ranges[program.columns] = np.stack([origin - reach, origin + reach], axis=1)
        return ranges

    # --- size

    def report(self, device: FixedPointModel | None = None) -> dict[str, Any]:
        """Sizes: bytes that a device stores, non-zero weights, and operations per prediction.

        Parameters
        ----------
        device : FixedPointModel, optional
            Sizes of this form of the model; by default of ``fixed_point()``, whose numbers are floats on the device.

        Returns
        -------
        dict
            ``bytes`` of tables, by part and in total; ``flash``, of tables and code, and ``stack``: estimates in bytes
            of a prediction in integers by ``prefix_predict`` on a Cortex-M, which needs no other memory (floats take
            3 KB of flash more on a core without a single-precision unit), None without an integer-only form;
            ``n_basis_functions``, ``n_weights``, ``n_nonzero`` (of all samples) and ``zeros`` (fraction); for the
            functions at one row ``additions``, ``multiplications`` and ``table_lookups``, in integers including those
            of the sines, whose int16 form reads two entries and interpolates, and of the groups' gains, for a network
            its centres, spreads and squares; ``layout``, ``bits``, ``arithmetic``.
        """
        n_basis_functions, n_columns = self.packed.shape
        parts: dict[str, int] = {"weights": self.packed.n_stored_bytes}
        flash = stack = None
        taken = self.levels != 0
        shifts_only = bool((np.frexp(np.abs(self.levels[taken] / np.abs(self.levels).max()))[0] == 0.5).all())
        own = Operations()
        try:
            program = self.program
            if device is None:
                tables = program_bytes(FixedResults.of(program, logits=self.classes is not None))
            else:
                tables = program_bytes(device.results, device.raw)
        except (IntegerArithmeticError, AccumulatorOverflowError):
            parts["basis"] = _array_bytes(self.basis)
            parts["levels"] = self.levels.nbytes + sum(a.nbytes for a in (self.centre, self.spread) if a.size > 1)
            parts["outputs"] = 8 * 3 * self.n_outputs
        else:
            parts |= tables
            flash, stack = sum(parts.values()) + code_bytes(program), stack_bytes(program)
            taken, shifts_only, own = program.multipliers != 0, program.powers_of_two, program.operations
        nonzero = int(taken[self.codes].sum())
        return {
            "bytes": {**parts, "total": sum(parts.values())},
            "flash": flash,
            "stack": stack,
            "n_basis_functions": n_basis_functions,
            "n_weights": n_basis_functions * n_columns,
            "n_nonzero": nonzero,
            "zeros": 1 - nonzero / max(n_basis_functions * n_columns, 1),
            "additions": nonzero + own.additions,
            "multiplications": (0 if shifts_only else nonzero) + own.multiplications,
            "table_lookups": own.table_lookups,
            "layout": self.packed.layout,
            "bits": self.packed.bits,
            "arithmetic": self.arithmetic,
        }

    @property
    def n_bytes(self) -> int:
        """Bytes that a device stores: for the integer program, or for floating point when there is none."""
        return int(self.report()["bytes"]["total"])


def _array_bytes(value: Any) -> int:
    """Bytes of all arrays in nested dataclasses."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    names = getattr(value, "__dataclass_fields__", {})
    return sum(_array_bytes(getattr(value, name)) for name in names)
