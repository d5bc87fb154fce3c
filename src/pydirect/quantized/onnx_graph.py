"""ONNX graphs from the NumPy code that defines a model: `Traced` values record what is done to them as nodes.

Integer programs run on such values as they do on arrays, in int64, which holds every int32 and uint32; models in
floating point are written here in NumPy's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike, NDArray

from pydirect import __version__
from pydirect._validation import FloatArray
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import LINEAR_REACH, PAIRS, SQUARED_EXPONENTIAL, KernelHyperparameters
from pydirect.features.maps import (
    ForestFeatures,
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
)
from pydirect.persistence.container import atomic_open
from pydirect.quantized.c_header import require_inputs
from pydirect.quantized.codes import pack_codes
from pydirect.quantized.fitted import LinearBasis
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.program import leaves, smallest_integers

# The first operator set with four-bit integers, and its file version: later ones are refused by current runtimes.
OPSET = 21
IR_VERSION = 10
# Operators have the names of NumPy's functions, but for these.
OPERATORS = {
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "matmul": "MatMul",
    "negative": "Neg",
    "absolute": "Abs",
    "bitwise_and": "BitwiseAnd",
    "greater_equal": "GreaterOrEqual",
}
COMPARISONS: tuple[Any, ...] = (np.greater, np.greater_equal, np.less, np.equal)
REDUCTIONS: dict[Any, str] = {np.sum: "ReduceSum", np.mean: "ReduceMean", np.max: "ReduceMax"}


class Traced(NDArrayOperatorsMixin):
    """A value of a graph, which NumPy's functions and operators take in place of an array."""

    def __init__(self, graph: Graph, name: str, dtype: DTypeLike) -> None:
        self.graph, self.name, self.dtype = graph, name, np.dtype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any) -> Traced:
        return self.graph.apply(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Traced:
        if function in REDUCTIONS:
            return self.graph.reduce(REDUCTIONS[function], *inputs, **options)
        traced: Traced = getattr(self.graph, function.__name__)(*inputs, **options)
        return traced

    def __getitem__(self, key: Any) -> Traced:
        keys, out = key if isinstance(key, tuple) else (key,), self
        for axis, part in enumerate(keys):
            if isinstance(part, slice) and part != slice(None):
                out = self.graph.op("Slice", out, np.array([part.start or 0]), np.array([part.stop]), np.array([axis]))
        for axis, part in enumerate(keys):
            out = self.graph.op("Unsqueeze", out, np.array([axis])) if part is None else out
        return out

    def entries_of(self, table: NDArray[Any]) -> Traced:
        """Look up entries of a table (n,)."""
        floats = np.asarray(table).dtype.kind == "f"
        return self.graph.op("Gather", self.graph.cast(table, np.float64) if floats else table, self)

    def astype(self, dtype: DTypeLike) -> Traced:
        """Add a conversion."""
        return self.graph.cast(self, dtype)


class Graph:
    """Nodes and initialisers of a graph under construction."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise ImportError('to_onnx requires onnx. Install it with: pip install "pydirect[onnx]"') from None
        self.onnx: Any = onnx
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], Traced] = {}

    def op(self, kind: str, *inputs: Any, dtype: Any = None, output: str | None = None, **attributes: Any) -> Traced:
        """Add a node, whose output has by default the type of the first input; arrays become initialisers."""
        values = [value if isinstance(value, Traced) else self.constant(value) for value in inputs]
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, [v.name for v in values], [output], **attributes))
        return Traced(self, output, values[0].dtype if dtype is None else dtype)

    def cast(self, value: Any, dtype: DTypeLike) -> Any:
        """Convert a value, or an array at once."""
        dtype = np.dtype(dtype)
        if not isinstance(value, Traced):
            return np.asarray(value, dtype=dtype)
        if value.dtype == dtype:
            return value
        return self.op("Cast", value, dtype=dtype, to=self.onnx.helper.np_dtype_to_tensor_dtype(dtype))

    def constant(self, value: ArrayLike) -> Traced:
        """Return the value of an initialiser; equal ones are shared, tables of integers take their smallest type."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            small = smallest_integers(array) if array.dtype == np.int64 and array.size > 16 else array
            stored = Traced(self, f"constant_{len(self.initialisers)}", small.dtype)
            self.initialisers.append(self.onnx.numpy_helper.from_array(small, stored.name))
            self.constants[key] = self.cast(stored, array.dtype)
        return self.constants[key]

    def table(self, values: NDArray[Any]) -> Any:
        """Return entries of a matrix that has few different ones, stored in four bits each if these suffice."""
        different, codes = np.unique(values, return_inverse=True)
        if len(different) > 16:
            return self.constant(values)
        packed, kind = pack_codes(codes.reshape(values.shape).astype(np.uint8), 4), self.onnx.TensorProto.UINT4
        # As raw bytes: the other encoding takes five bytes for two values.
        self.initialisers.append(self.onnx.helper.make_tensor("codes", kind, values.shape, packed.tobytes(), raw=True))
        # Gathered, not dequantised: runtimes fuse DequantizeLinear and MatMul into one with eight-bit activations.
        index = self.op("Cast", Traced(self, "codes", np.uint8), dtype=np.int64, to=self.onnx.TensorProto.INT64)
        return index.entries_of(different)

    # --- NumPy's functions

    def apply(self, ufunc: Any, *inputs: Any) -> Traced:
        """Add a function of NumPy's, with its conversions; a float keeps its precision beside any constant."""
        if ufunc in (np.left_shift, np.right_shift):  # division truncates, and what is shifted is not negative
            power = np.int64(1) << np.asarray(inputs[1], dtype=np.int64)
            return self.apply(np.multiply if ufunc is np.left_shift else np.true_divide, inputs[0], power)
        # Not Min and Max: onnxruntime's of int64 and a constant beyond 32 bits return the constant.
        if ufunc is np.minimum:
            return self.where(self.apply(np.greater, *inputs), inputs[1], inputs[0])
        if ufunc is np.maximum:
            return self.where(self.apply(np.less, *inputs), inputs[1], inputs[0])
        dtype = self._common(inputs)
        kind = OPERATORS.get(ufunc.__name__, ufunc.__name__.capitalize())
        found = np.bool_ if ufunc in COMPARISONS else dtype
        return self.op(kind, *(self.cast(value, dtype) for value in inputs), dtype=found)

    def _common(self, inputs: Sequence[Any]) -> np.dtype[Any]:
        traced = [value.dtype for value in inputs if isinstance(value, Traced)]
        dtype = np.result_type(*traced) if traced else np.result_type(*inputs)
        floats = any(np.asarray(v).dtype.kind == "f" for v in inputs if not isinstance(v, Traced))
        return np.dtype(np.float64) if floats and dtype.kind != "f" else dtype

    def reduce(self, kind: str, v: Traced, axis: int, keepdims: bool = False) -> Traced:
        """Reduce along an axis."""
        return self.op(kind, v, np.array([axis]), keepdims=int(keepdims))

    def where(self, condition: Traced, first: Any, second: Any) -> Traced:
        """See `numpy.where`."""
        dtype = self._common([first, second])
        return self.op(
            "Where", self.cast(condition, bool), self.cast(first, dtype), self.cast(second, dtype), dtype=dtype
        )

    def clip(self, v: Traced, low: Any, high: Any) -> Traced:
        """See `numpy.clip`; of floats."""
        return self.op("Clip", v, self.cast(low, v.dtype), self.cast(high, v.dtype))

    def take(self, v: Traced, index: ArrayLike, axis: int) -> Traced:
        """See `numpy.take`."""
        return self.op("Gather", v, np.asarray(index, dtype=np.int64), axis=axis)

    def concatenate(self, parts: Sequence[Traced], axis: int) -> Traced:
        """See `numpy.concatenate`."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def stack(self, parts: Sequence[Traced], axis: int) -> Traced:
        """See `numpy.stack`."""
        return self.concatenate([self.op("Unsqueeze", part, np.array([axis])) for part in parts], axis)

    def reshape(self, v: Traced, shape: Sequence[int]) -> Traced:
        """See `numpy.reshape`."""
        return self.op("Reshape", v, np.array(shape, dtype=np.int64))

    def transpose(self, v: Traced, axes: Sequence[int]) -> Traced:
        """See `numpy.transpose`."""
        return self.op("Transpose", v, perm=list(axes))

    def model(self, inputs: dict[str, tuple[Traced, int]], outputs: dict[str, tuple[Traced, int]], doc: str) -> Any:
        """Return the checked model of values by name, each with its number of columns."""
        helper = self.onnx.helper
        for name, (value, _) in outputs.items():
            self.op("Identity", value, output=name)
        before, after = (
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), ["n_rows", n])
                for name, (value, n) in ends.items()
            ]
            for ends in (inputs, outputs)
        )
        model = helper.make_model(
            helper.make_graph(self.nodes, "pydirect", before, after, self.initialisers),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="pydirect",
            producer_version=__version__,
            doc_string=doc,
        )
        self.onnx.checker.check_model(model, full_check=True)
        return model


# --- models in floating point: `x` is a traced value, and so is every result


def float_functions(model: QuantizedModel, graph: Graph, x: Any) -> tuple[Any, Any, Any]:
    """Return what all samples' functions share, what each adds, and the noise and missing variance.

    The second is (n_rows, n_outputs, n_samples), the others (n_rows or 1, n_outputs).
    """
    n_outputs, n_samples = model.n_outputs, model.n_samples
    inputs = _inputs(model.basis.features.input_map, x)
    weights, noise, middle = graph.table(model.levels[model.codes]), model.noise[None], model.offset[None]
    spread, centre = (np.broadcast_to(a, (len(model.codes), n_outputs)) for a in (model.spread, model.centre))
    if (spread != 1).any():
        weights = np.reshape(weights, (len(spread), n_outputs, n_samples)) * spread[:, :, None]
    phi, noise = _basis(model, model.basis, _cut(inputs, min(model.basis.features.largest_input, LARGEST)))
    sums = phi @ np.reshape(weights, (len(spread), -1))
    if centre.any():
        middle = phi @ (centre * model.scale) + middle
    return middle, np.reshape(sums, (-1, n_outputs, n_samples)) * model.scale[:, None], noise


def probabilities(functions: Any) -> Any:
    """Return probabilities of three or more classes, (n_rows, n_classes), from (n_rows, n_classes, n_samples)."""
    size = np.exp(functions - np.max(functions, axis=1, keepdims=True))
    return np.mean(size / np.sum(size, axis=1, keepdims=True), axis=2)


def probabilities_of_two(functions: Any) -> Any:
    """Return the probabilities of two classes, (n_rows, 2), from logits of the second."""
    # Not Sigmoid, which onnxruntime rounds to some five digits.
    p = np.mean(1.0 / (np.exp(-functions) + 1.0), axis=2)
    return np.concatenate([1.0 - p, p], axis=1)


def _cut(v: Any, limit: float) -> Any:
    return np.clip(v, -limit, limit)


def _inputs(m: InputMap, x: Any) -> Any:
    standardised = _cut((np.take(x, m.kept, axis=1) - m.mean[m.kept]) / m.scale[m.kept], LARGEST)
    return np.concatenate([standardised, _scores(m, x)], axis=1) if len(m.knots) else standardised


def _scores(m: InputMap, x: Any) -> Any:
    """Return normal scores of columns: interpolated between the knots, constant beyond them."""
    n_columns, n_knots = m.knots.shape
    v = np.maximum(np.minimum(np.take(x, m.scored, axis=1), m.knots[:, -1]), m.knots[:, 0])
    count = np.sum((v[:, :, None] >= m.knots).astype(np.int64), axis=2)
    at = np.minimum(count - 1, max(n_knots - 2, 0)) + np.arange(n_columns) * n_knots
    width, rise = np.diff(m.knots, append=m.knots[:, -1:]), np.diff(m.scores, append=m.scores[:, -1:])
    slope = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
    knots, scores, slopes = (at.entries_of(a.ravel()) for a in (m.knots, m.scores, slope))
    return scores + (v - knots) * slopes


def _basis(model: QuantizedModel, basis: LinearBasis, inputs: Any) -> tuple[Any, Any]:
    """Return basis functions in the order of the codes, and the noise with the variance that they lack."""
    phi, noise, units = _features(basis.features.map, inputs), model.noise, model.scale**2
    parameters = basis.features.hyperparameters
    if parameters is not None:
        noise = _lacking(basis, parameters, inputs, phi) * (units * basis.missing_scale) + noise
    if basis.vectors is None:
        return np.take(phi, basis.order, axis=1), noise
    rotated = phi @ basis.vectors
    if basis.outside_scale.any():
        own = np.zeros((basis.vectors.shape[1], model.n_outputs))  # directions of every output
        for k in range(model.n_outputs):
            own[basis.edges[k] : basis.edges[k + 1], k] = 1.0
        outside = np.maximum(_norm(phi) - (rotated * rotated) @ own, 0.0)
        noise = outside * (units * basis.outside_scale) + noise
    return np.take(rotated, basis.order, axis=1), noise


def _norm(phi: Any) -> Any:
    return np.sum(phi * phi, axis=1, keepdims=True)


def _lacking(basis: LinearBasis, p: KernelHyperparameters, inputs: Any, phi: Any) -> Any:
    leading = inputs[:, : p.n_linear]
    lacking = _norm(leading - _cut(leading, LINEAR_REACH)) * p.amplitudes[2]
    if isinstance(basis.features.map, NystroemFeatures):
        own = basis.features.map.hyperparameters
        assert isinstance(own, KernelHyperparameters)
        ard, exponential, slope, constant = own.amplitudes
        prior = _norm(_cut(inputs[:, : own.n_linear], LINEAR_REACH)) * slope + (ard + exponential + constant)
        between = np.maximum(prior - _norm(phi), 0.0)
        lacking = lacking + np.maximum(between - basis.mean_missing, 0.0)
    return lacking


def _features(features: Any, inputs: Any) -> Any:
    if isinstance(features, NystroemFeatures):
        return _nystroem(features, inputs)
    if isinstance(features, PolynomialFeatures):
        return _polynomial(features, inputs)
    if isinstance(features, LinearFeatures):
        return np.concatenate([inputs, _column(inputs, features.intercept_scale)], axis=1)
    if isinstance(features, PrecomputedFeatures):
        return inputs
    if not isinstance(features, ForestFeatures | FourierFeatures):
        raise TypeError(f"features must be of a kind that graphs know, got {type(features).__name__}")
    parts = []
    if isinstance(features, ForestFeatures) and features.n_trees:
        parts.append(leaves(inputs, features.columns, features.thresholds) * features.amplitude)
    elif isinstance(features, FourierFeatures) and features.n_frequencies:
        phase = inputs @ features.frequencies
        parts = [np.cos(phase) * features.amplitudes, np.sin(phase) * features.amplitudes]
    if features.linear_scale is not None and len(features.linear_scale):
        parts.append(_cut(inputs[:, : len(features.linear_scale)], LINEAR_REACH) * features.linear_scale)
    if isinstance(features, FourierFeatures) and features.constant is not None:
        parts.append(_column(inputs, features.constant))
    return np.concatenate(parts, axis=1)


def _column(inputs: Any, constant: float) -> Any:
    return np.sum(inputs, axis=1, keepdims=True) * 0.0 + constant


def _nystroem(features: NystroemFeatures, inputs: Any) -> Any:
    """Kernel functions at the landmarks, whitened: Matérn, exponential, linear and constant parts."""
    p, landmarks = features.hyperparameters, features.landmarks
    assert isinstance(p, KernelHyperparameters)
    ard, exponential, slope, constant = p.amplitudes
    r = _distance(inputs, landmarks, p.length_scales)
    t = r * r * 0.5 if p.smoothness == SQUARED_EXPONENTIAL else r * np.sqrt(2 * p.smoothness)
    polynomial: Callable[[Any], Any] = {
        SQUARED_EXPONENTIAL: lambda t: 1.0,
        0.5: lambda t: 1.0,
        1.5: lambda t: t + 1.0,
        2.5: lambda t: t * (t * (1 / 3) + 1.0) + 1.0,
    }[p.smoothness]
    if p.product_amplitude > 0:
        axes = np.flatnonzero(p.product_rates)
        apart = [abs(inputs[:, j : j + 1] - landmarks[None, :, j]) * p.axis_rates[j] for j in axes]
        second = np.exp(-sum(apart[1:], start=apart[0])) if p.product_order != PAIRS else _pairs(apart)
    else:
        second = np.exp(-_distance(inputs, landmarks, p.isotropic_length_scale))
    linear, others = (_cut(a[:, : p.n_linear], LINEAR_REACH) for a in (inputs, landmarks))
    k = np.exp(-t) * polynomial(t) * ard + second * exponential + linear @ (slope * others.T)
    return (k + constant) @ features.whitening


def _pairs(apart: list[Any]) -> Any:
    """Mean over pairs of axes of products of Matérn functions of smoothness 5/2, axis by axis: little is kept."""
    values = [np.exp(-t) * (t * (t * (1 / 3) + 1.0) + 1.0) for t in apart]
    total, squares = (sum(each[1:], start=each[0]) for each in (values, [value * value for value in values]))
    return (total * total - squares) * (1 / (len(apart) * (len(apart) - 1)))


def _distance(inputs: Any, landmarks: FloatArray, length_scale: Any) -> Any:
    """Distances in units of length-scales, from products and norms, (n_rows, n_landmarks)."""
    a, b = inputs / length_scale, landmarks / length_scale
    return np.sqrt(np.maximum(_norm(a) + np.einsum("ij,ij->i", b, b) - (a @ b.T) * 2.0, 0.0))


def _polynomial(features: PolynomialFeatures, inputs: Any) -> Any:
    """All monomials: those of one degree are those of the degree below times one more input."""
    number = {m: k for k, m in enumerate(features.monomials)}
    phi = _column(inputs, 1.0)
    for degree in range(1, features.degree + 1):
        longer = [m for m in features.monomials if len(m) == degree]
        shorter = np.take(phi, [number[m[:-1]] for m in longer], axis=1)
        phi = np.concatenate([phi, shorter * np.take(inputs, [m[-1] for m in longer], axis=1)], axis=1)
    return phi


def to_onnx(model: QuantizedModel, path: str | Path) -> None:
    """Write a quantised model as an ONNX graph.

    The input is ``x`` (n_rows, n_features_in), the outputs are ``mean`` and ``std`` (n_rows, n_outputs); for a
    classifier those of the logits, and ``probabilities`` (n_rows, n_classes). In integer arithmetic
    (``model.with_arithmetic("integer")``) ``x`` has single precision, all steps but the last compute the same integers
    as in Python, and ``sum`` and ``root`` are integer outputs. Codes are stored in four bits where 16 levels suffice,
    and looked up rather than dequantised: runtimes replace DequantizeLinear and MatMul by one operator that rounds its
    inputs to eight bits.

    Outputs agree with Python's to rounding, except for ``features="nystroem"`` at rows that are landmarks: distances of
    zero are rounded to about 1e-8 on both sides, which whitening magnifies.

    Parameters
    ----------
    path : str or Path
        Path of the file.

    Raises
    ------
    ImportError
        Without `onnx`, with the extra to install.
    ValueError
        When the model depends on no input.
    OSError
        When the file cannot be written.
    """
    require_inputs(model)
    graph = Graph()
    if model.arithmetic == "integer":
        program, x = model.program, Traced(graph, "x", np.float32)
        program.prove()  # 64 bits here and 32 elsewhere agree
        totals = program.totals_of_features(program.features(program.quantise_inputs(x)), graph.table(program.weights))
        total, root = program.sums(totals), program.roots(totals)
        outputs = {"mean": program.value(total), "std": program.width(root), "sum": total, "root": root}
        functions = program.functions(totals)
    else:
        x = Traced(graph, "x", np.float64)
        middle, parts, noise = float_functions(model, graph, x)
        mean = np.mean(parts, axis=2)
        deviation = parts - mean[:, :, None]
        outputs = {"mean": mean + middle}
        outputs["std"] = np.sqrt(np.mean(deviation * deviation, axis=2) + noise) * model.calibration
        functions = parts + middle[:, :, None]
    named = {name: (value, model.n_outputs) for name, value in outputs.items()}
    if model.classes is not None:
        chosen = probabilities_of_two if model.n_outputs == 1 else probabilities
        named["probabilities"] = chosen(functions), len(model.classes)
    made = graph.model({"x": (x, model.n_features_in)}, named, f"{model.n_samples} posterior samples")
    with atomic_open(path) as file:
        file.write(made.SerializeToString())
