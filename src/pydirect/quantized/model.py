"""Quantised models as data, the integer programs made from them, and predictions in either arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_choice
from pydirect.persistence.schema import As, Shape
from pydirect.quantized.codes import PackedCodes
from pydirect.quantized.compile import build_program, lay_out
from pydirect.quantized.device import DeviceModel
from pydirect.quantized.fitted import LinearBasis, Outputs
from pydirect.quantized.program import BLOCK_ROWS, AccumulatorOverflowError, IntegerArithmeticError, IntegerProgram

ARITHMETICS = ("float", "integer")


@dataclass(frozen=True, repr=False, kw_only=True)
class QuantizedModel(Outputs):
    """Posterior samples as packed level indices, with everything that predictions need.

    Attributes
    ----------
    basis : LinearBasis
        Map of the inputs to basis functions.
    packed : PackedCodes
        Level indices, (n_basis_functions, n_outputs · n_samples).
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
    arithmetic : {"float", "integer"}, default="float"
        Arithmetic of predictions; see `with_arithmetic`.
    feature_names : tuple of str, default=()
        Column names of the data frame that the model was fitted to; empty when it was fitted to an array.
    classes : ndarray of shape (n_classes,) or None, optional
        Classes of a classifier.
    """

    basis: LinearBasis
    packed: PackedCodes
    levels: Annotated[FloatArray, Shape("n_levels")]
    centre: Annotated[FloatArray, Shape("n_functions* or 1", "n_outputs or 1")]
    spread: Annotated[FloatArray, Shape("n_functions* or 1", "n_outputs or 1")]
    arithmetic: Annotated[str, As(Literal["float", "integer"])] = "float"

    def check(self) -> None:
        """Raise unless codes, levels, basis and outputs fit together, and integers stay within their range."""
        packed, n_outputs = self.packed, self.n_outputs
        if len(self.feature_names) not in (0, self.n_features_in):
            raise ValueError("feature_names do not fit the columns")
        if self.one_dimensional and n_outputs != 1:
            raise ValueError("outputs do not fit")
        if packed.shape[1] % n_outputs:
            raise ValueError("packed does not fit the outputs")
        if self.codes.max(initial=0) >= len(self.levels):
            raise ValueError(f"codes must be below {len(self.levels)}")
        for name in ("centre", "spread"):
            if len(getattr(self, name)) not in (1, packed.shape[0]):
                raise ValueError(f"{name} does not fit packed")
        if self.classes is not None:
            n_classes = len(set(self.classes.tolist()))
            if n_classes < max(2, len(self.classes)) or n_outputs != (n_classes if n_classes > 2 else 1):
                raise ValueError("outputs do not fit the classes")
        if packed.shape[0] != len(self.basis.order):
            raise ValueError("packed does not fit the basis")
        if self.target is not None and self.target.n_outputs != n_outputs:
            raise ValueError("target does not fit the outputs")
        if self.arithmetic == "integer":
            self.program.prove()

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches: kernels have no pickle

    def __repr__(self) -> str:
        counts = {"sample": self.n_samples, "column": self.n_features_in, "output": self.n_outputs}
        samples, columns, outputs = (f"{n} {name}{'s' if n != 1 else ''}" for name, n in counts.items())
        described = f"{samples}, {self.arithmetic} arithmetic, {columns}, {outputs} of {self.modelled}"
        return f"<{type(self).__name__}: {described}>"

    @property
    def modelled(self) -> str:
        """What the outputs are of: logits, ``"y itself"``, or another scale of the targets, such as ``"log(y)"``."""
        return "logits" if self.classes is not None else str(self.target.transform) if self.target else "y itself"

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

    # --- integers

    @cached_property
    def program(self) -> IntegerProgram:
        """The model as an integer program.

        Raises
        ------
        IntegerArithmeticError
            When there is no integer-only form, with the reason.
        """
        if self.basis.vectors is not None or self.centre.any() or (np.frexp(self.spread)[0] != 0.5).any():
            raise IntegerArithmeticError(
                "integers need levels='even', or features='fourier' and posterior=Sequential(level_scales='own')"
            )
        if (self.spread != self.spread[:, :1]).any():
            raise IntegerArithmeticError(
                "integers need levels that all outputs share: fit with Sequential(level_scales='shared')"
            )
        spread = np.zeros(self.basis.features.n_weights)
        spread[self.basis.order] = self.spread[:, 0]
        layout = lay_out(self.basis.features.map, spread != 0, spread)
        return build_program(self.basis.features, layout, self.codes, self.levels, self.n_samples, self)

    def with_arithmetic(self, arithmetic: str) -> Self:
        """Return the same model with predictions in ``"float"`` or in ``"integer"`` arithmetic.

        Means differ little where rows are `in_range`. Standard deviations in integers are those of the samples and the
        noise alone: the variance that the basis functions lack far from the training data, beyond
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

    def on_device(self, **options: Any) -> DeviceModel:
        """Return the model with the numbers that a device computes: those of a header that `to_c` writes.

        Parameters
        ----------
        **options : dict
            ``counts_per_unit``, ``zero_count``, ``output_counts_per_unit`` and ``level`` of
            `pydirect.quantized.c_header.to_c`.

        Returns
        -------
        DeviceModel
            The same predictions, bit for bit.
        """
        n_classes = 0 if self.classes is None else len(self.classes)
        return DeviceModel.of(self.program, n_classes=n_classes, **options)

    def in_range(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Whether integer arithmetic clips no input at rows of X, (n_rows,).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of bool of shape (n_rows,)
            Whether nothing is clipped.
        """
        program = self.program
        return np.asarray((np.abs(program.quantise_inputs(self.rows(X))) < program.limit).all(axis=1))

    def input_ranges(self) -> FloatArray:
        """Smallest and largest value of every column in integer arithmetic, (n_features_in, 2); others are clipped.

        Five standard deviations about the training mean with Fourier features or trees, eight with ``"linear"``.
        Infinite where a column is not read.

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

    def report(self, device: DeviceModel | None = None) -> dict[str, Any]:
        """Sizes: bytes that a device stores, non-zero weights, and operations per prediction.

        Parameters
        ----------
        device : DeviceModel, optional
            Sizes of this form of the model; by default of ``on_device()``, whose numbers are floats.

        Returns
        -------
        dict
            ``bytes`` of tables, by part and in total; ``flash``, of tables and code, and ``stack``, in bytes, and
            ``instructions``: estimates of a prediction in integers by ``prefix_predict`` on a Cortex-M, which needs no
            other memory (floats take 3 KB of flash more on a core without a single-precision unit), None without an
            integer-only form;
            ``n_basis_functions``, ``n_weights``, ``n_nonzero`` (of all samples) and ``zeros`` (fraction); ``bits``,
            ``arithmetic``, and what is ``modelled``: y itself, or which scale of the targets.
        """
        n_basis_functions, n_columns = self.packed.shape
        parts, taken = {"weights": self.packed.packed.nbytes}, self.levels != 0
        sizes: dict[str, Any] = dict.fromkeys(("flash", "stack", "instructions"))
        try:
            device = self.on_device() if device is None else device
        except (IntegerArithmeticError, AccumulatorOverflowError):
            parts["basis"] = _array_bytes(self.basis)
            parts["levels"] = self.levels.nbytes + sum(a.nbytes for a in (self.centre, self.spread) if a.size > 1)
            parts["outputs"] = 8 * 3 * self.n_outputs
        else:
            parts["weights"] = -(-device.n_coded * n_columns * self.packed.bits // 8)
            parts |= {part: sum(a.nbytes for a in own.values()) for part, own in device.tables().items()}
            sizes, taken = dict(device.cost()), device.program.multipliers != 0
            sizes = {"flash": sum(parts.values()) + sizes.pop("code")} | sizes
        nonzero = int(taken[self.codes].sum())
        return {
            "bytes": {**parts, "total": sum(parts.values())},
            **sizes,
            "n_basis_functions": n_basis_functions,
            "n_weights": n_basis_functions * n_columns,
            "n_nonzero": nonzero,
            "zeros": 1 - nonzero / max(n_basis_functions * n_columns, 1),
            "bits": self.packed.bits,
            "arithmetic": self.arithmetic,
            "modelled": self.modelled,
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


class FloatValues(NamedTuple):
    """What all samples' functions share, what each adds, and the variance that the basis functions lack.

    In units of the output; the second (n_rows, n_outputs, n_samples), the others (n_rows, n_outputs). Deviations are
    computed from the second alone: beside a large offset they would be lost in its rounding.
    """

    middle: FloatArray
    parts: FloatArray
    missing: FloatArray


class FloatPath:
    """Predictions in double precision: `run`, then the same functions of its values as `Results` has of totals."""

    def __init__(self, model: QuantizedModel) -> None:
        self.model = model

    @cached_property
    def _weights(self) -> FloatArray:
        """Centres and what samples add, (n_weights, n_outputs · (1 + n_samples)), for `LinearBasis.combined`."""
        model = self.model
        values = model.levels[model.codes].reshape(len(model.codes), model.n_outputs, model.n_samples)
        centre, spread = (np.broadcast_to(a, values.shape[:2])[:, :, None] for a in (model.centre, model.spread))
        own = np.concatenate([centre, spread * values], axis=2)
        return model.basis.weights_of_functions(own.reshape(len(own), model.n_outputs * (1 + model.n_samples)))

    def functions(self, values: FloatValues) -> FloatArray:
        """Values of the samples' functions without noise, (n_rows, n_outputs, n_samples)."""
        return values.middle[:, :, None] + values.parts

    def missing(self, values: FloatValues) -> FloatArray:
        """Variance that the basis functions lack, (n_rows, n_outputs)."""
        return values.missing

    def mean(self, values: FloatValues) -> FloatArray:
        """Mean of the outputs, (n_rows, n_outputs)."""
        return np.asarray(values.middle + values.parts.mean(axis=2))

    def std(self, values: FloatValues) -> FloatArray:
        """Return standard deviations of the outputs, noise included, (n_rows, n_outputs)."""
        return self.model.calibration * np.sqrt(values.parts.var(axis=2) + values.missing + self.model.noise)

    def run(self, x: FloatArray, n_threads: int = 1, with_missing: bool = True) -> FloatValues:
        """Evaluate all samples' functions at rows of X; `with_missing`: deviations and intervals are wanted too."""
        model, blocks = self.model, []
        for begin in range(0, max(len(x), 1), BLOCK_ROWS):
            sums, lacking = model.basis.combined(x[begin : begin + BLOCK_ROWS], self._weights, with_missing, n_threads)
            values = sums.reshape(len(sums), model.n_outputs, 1 + model.n_samples) * model.scale[:, None]
            blocks.append((model.offset + values[:, :, 0], values[:, :, 1:], model.scale**2 * lacking))
        return FloatValues(*map(np.concatenate, zip(*blocks, strict=True)))
