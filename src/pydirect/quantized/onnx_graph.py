"""ONNX graphs: a builder, integer programs in int64, which holds every int32 and uint32, and floating point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import LINEAR_REACH, KernelHyperparameters
from pydirect.features.maps import FourierFeatures, LinearFeatures, NystroemFeatures, PolynomialFeatures
from pydirect.quantized.c_header import LARGEST_SINGLE, largest_network_input
from pydirect.quantized.codes import pack_dense
from pydirect.quantized.fitted import LinearBasis, NetworkBasis
from pydirect.quantized.integers import QUARTER, SINE_TABLES, smallest_integers
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.program import LIMIT, SQUARE_SHIFT, IntegerProgram, NetworkProgram, Program

# The first operator set with four-bit integers, and its file version: later ones are refused by current runtimes.
OPSET = 21
IR_VERSION = 10


def import_onnx() -> Any:
    """Return the module `onnx`."""
    try:
        import onnx
    except ImportError:
        raise ImportError('to_onnx requires onnx. Install it with: pip install "pydirect[onnx]"') from None
    return onnx


class Graph:
    """Nodes and initialisers of a graph under construction; values are named by strings."""

    def __init__(self) -> None:
        self.onnx = import_onnx()
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str | ArrayLike, output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output and return its name; arrays become initialisers."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [output], **attributes))
        return output

    def constant(self, value: ArrayLike, name: str | None = None) -> str:
        """Return the name of an initialiser with these values; equal ones are shared."""
        array = np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = name or f"constant_{len(self.initialisers)}"
            self.initialisers.append(self.onnx.numpy_helper.from_array(array, self.constants[key]))
        return self.constants[key]

    def four_bits(self, values: NDArray[Any], name: str) -> str:
        """Return the name of an initialiser of type INT4, or UINT4 if no value is negative."""
        kind = self.onnx.TensorProto.INT4 if values.min(initial=0) < 0 else self.onnx.TensorProto.UINT4
        packed = pack_dense((values.astype(np.int64) & 15).astype(np.uint8), 4)
        # As raw bytes: the other encoding takes five bytes for two values.
        self.initialisers.append(self.onnx.helper.make_tensor(name, kind, values.shape, packed.tobytes(), raw=True))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """Add a conversion to a NumPy type."""
        return self.op("Cast", value, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def model(self, inputs: dict[str, Any], outputs: dict[str, Any], producer: str, doc: str) -> Any:
        """Return the checked model; inputs and outputs are given as (dtype, shape)."""
        helper = self.onnx.helper

        def infos(values: dict[str, Any]) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for name, (dtype, shape) in values.items()
            ]

        graph = helper.make_graph(self.nodes, "pydirect", infos(inputs), infos(outputs), self.initialisers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="pydirect",
            producer_version=producer,
            doc_string=doc,
        )
        self.onnx.checker.check_model(model, full_check=True)
        return model


def _int(value: int) -> NDArray[np.int64]:
    return np.int64(value)  # type: ignore[return-value]


def add_integer_program(graph: Graph, program: Program) -> str:
    """Add steps 1 to 3 of `pydirect.quantized.program`; return the totals, (n_rows, n_outputs, n_samples)."""
    program.prove()  # 64 bits here and 32 elsewhere agree
    q = _quantised(graph, program)
    if isinstance(program, NetworkProgram):
        total = _network_totals(graph, program, q)
    else:
        assert isinstance(program, IntegerProgram)
        total = _totals(graph, program, _integer_features(graph, program, q))
    return graph.op("Reshape", total, np.array([0, program.n_outputs, program.n_samples]))


def _quantised(graph: Graph, program: Program) -> str:
    op = graph.op
    limit = program.limit.astype(np.float32)
    v = op("Sub", op("Gather", "x", program.columns.astype(np.int64), axis=1), program.origin)
    v = op("Mul", v, program.multiplier)
    v = op("Where", op("Greater", v, -limit), v, -limit)
    v = op("Where", op("Greater", v, limit), limit, v)
    half = op("Where", op("Less", v, np.float32(0)), np.float32(-0.5), np.float32(0.5))
    return graph.cast(op("Add", v, half), np.int64)  # drops the fraction


def _integer_features(graph: Graph, program: IntegerProgram, q: str) -> str:
    """Return basis functions, (n_rows, n_basis_functions)."""
    op = graph.op
    parts = []
    if program.n_frequencies:
        frequencies = graph.cast(graph.constant(program.frequencies.T, "frequencies"), np.int64)
        shifted = op("Mul", q, np.int64(1) << program.phase_shift.astype(np.int64))
        phase = op("MatMul", shifted, frequencies)
        pair = [op("Add", phase, _int(QUARTER)), phase]
        waves = [op("Unsqueeze", _sine(graph, program, p), np.array([2])) for p in pair]
        interleaved = op("Concat", *waves, axis=2)
        parts.append(op("Reshape", interleaved, np.array([0, 2 * program.n_frequencies])))
    if len(program.linear):
        linear = op("Gather", q, program.linear.astype(np.int64), axis=1)
        linear = _clip(graph, linear, program.linear_limit)
        if program.feature_bits == 8:
            linear = _clip(graph, _round_shift(graph, linear, 8), 127)
        parts.append(linear)
    if any(g.kind == "constant" for g in program.groups):
        first = op("Slice", q, np.array([0]), np.array([1]), np.array([1]))
        parts.append(op("Add", op("Mul", first, _int(0)), _int(program.one)))
    return parts[0] if len(parts) == 1 else op("Concat", *parts, axis=1)


def _clip(graph: Graph, v: str, limit: int) -> str:
    return _at_most(graph, graph.op("Neg", _at_most(graph, graph.op("Neg", v), limit)), limit)


def _at_most(graph: Graph, v: str, limit: int) -> str:
    # Not Min: onnxruntime's of int64 and a constant beyond 32 bits returns the constant.
    return graph.op("Where", graph.op("Greater", v, _int(limit)), _int(limit), v)


def _round_shift(graph: Graph, v: str, shift: ArrayLike) -> str:
    op, unit = graph.op, np.int64(1) << np.asarray(shift, dtype=np.int64)
    size = op("Div", op("Add", op("Abs", v), unit >> 1), unit)  # of non-negative integers
    return op("Mul", op("Sign", v), size)


def _sine(graph: Graph, program: IntegerProgram, phase: str) -> str:
    op = graph.op
    phase = op("BitwiseAnd", phase, _int(2**32 - 1))
    p = op("BitwiseAnd", phase, _int(QUARTER - 1))
    odd = op("Equal", op("BitwiseAnd", phase, _int(QUARTER)), _int(QUARTER))
    p = op("Where", odd, op("Sub", _int(QUARTER - 1), p), p)
    table, i = SINE_TABLES[program.feature_bits].astype(np.int64), op("Div", p, _int(2**24))
    if program.feature_bits == 16:
        fraction = op("BitwiseAnd", op("Div", p, _int(2**9)), _int(0x7FFF))
        rise = op("Mul", op("Gather", np.diff(table), i), fraction)
        rise = op("Div", op("Add", rise, _int(2**14)), _int(2**15))
        value = op("Add", op("Gather", table, i), rise)
    else:
        value = op("Gather", table, i)
    return op("Where", op("Less", phase, _int(2**31)), value, op("Neg", value))


def _totals(graph: Graph, program: IntegerProgram, phi: str) -> str:
    op = graph.op
    weights = _integer_weights(graph, program)
    total = None
    for g in program.groups:
        begin, end = np.array([g.begin]), np.array([g.end])
        own = op("Slice", phi, begin, end, np.array([1]))
        accumulator = op("MatMul", own, op("Slice", weights, begin, end, np.array([0])))
        part = op("Mul", _round_shift(graph, accumulator, g.shift), _int(g.gain))
        total = part if total is None else op("Add", total, part)
    assert total is not None
    return total


def _network_totals(graph: Graph, program: NetworkProgram, q: str) -> str:
    """Run all networks side by side; return their totals, (n_rows, n_columns)."""
    op, n_columns, depth = graph.op, program.n_columns, program.shape.depth
    rotation = graph.cast(graph.constant(program.rotation.T, "rotation"), np.int64)
    sums = op("Add", op("MatMul", q, rotation), program.rotation_offset)
    state = op("Unsqueeze", _clip(graph, _round_shift(graph, sums, program.rotation_shift), LIMIT), np.array([0]))
    weights = _integer_weights(graph, program)
    if program.centre is not None and program.spread is not None:
        spread, centre = (_per_sample(graph, program, table) for table in (program.spread, program.centre))
        weights = op("Add", op("Mul", weights, spread), centre)
    for layer, (part, (fan_out, fan_in)) in enumerate(zip(program.shape.slices, program.shape.layers, strict=True)):
        own = op("Slice", weights, np.array([part.start]), np.array([part.stop]), np.array([0]))
        matrix = op("Reshape", own, np.array([fan_out, fan_in, n_columns]))
        matrix = op("Transpose", matrix, perm=[2, 1, 0])  # (n_columns, fan_in, fan_out)
        bias = None
        if program.shape.bias:
            bias = op("Slice", matrix, np.array([fan_in - 1]), np.array([fan_in]), np.array([1]))
            matrix = op("Slice", matrix, np.array([0]), np.array([fan_in - 1]), np.array([1]))
        state = op("MatMul", state, matrix)
        if bias is not None:
            state = op("Add", state, op("Mul", bias, _int(int(program.ones[layer]))))
        if layer < depth:
            scaled = op("Mul", state, _int(int(program.rescale[layer])))
            a = _clip(graph, _round_shift(graph, scaled, program.rescale_shift[layer]), LIMIT)
            state = _round_shift(graph, op("Mul", a, a), SQUARE_SHIFT)
    return op("Transpose", op("Squeeze", state, np.array([2])), perm=[1, 0])


def _per_sample(graph: Graph, program: NetworkProgram, table: NDArray[np.int32]) -> str:
    """Return a table (n_weights, n_outputs) for every sample, (n_weights, n_columns); stored once."""
    stored = graph.cast(graph.constant(smallest_integers(table)[:, :, None]), np.int64)
    repeated = graph.op("Expand", stored, np.array([1, 1, program.n_samples]))
    return graph.op("Reshape", repeated, np.array([0, program.n_columns]))


def _integer_weights(graph: Graph, program: Program) -> str:
    """Return integers for the codes, (n_basis_functions, n_columns), stored in four bits where they fit."""
    multipliers = program.multipliers.astype(np.int64)
    if -8 <= multipliers.min() and multipliers.max() <= 7:
        return graph.cast(graph.four_bits(program.weights, "weights"), np.int64)
    if len(multipliers) <= 16:
        codes = graph.four_bits(program.codes, "codes")
    else:
        codes = graph.constant(program.codes, "codes")
    return graph.op("Gather", multipliers, graph.cast(codes, np.int64))


def add_integer_moments(graph: Graph, program: Program, totals: str) -> tuple[str, str]:
    """Add step 4: the sums over the samples and ⌊√V⌋, named ``sum`` and ``root``, (n_rows, n_outputs) each."""
    op, samples = graph.op, np.array([2])
    total = op("ReduceSum", totals, samples, output="sum", keepdims=0)
    deviation = op("Sub", op("Mul", totals, _int(program.n_samples)), op("Unsqueeze", total, samples))
    deviation = _round_shift(graph, deviation, program.deviation_shift)
    squares = op("ReduceSum", op("Mul", deviation, deviation), samples, keepdims=0)
    v = op("Add", squares, program.noise.astype(np.int64))
    # A double holds 53 bits: its root is off by one at most. No square here exceeds 2^63.
    root = graph.cast(op("Floor", op("Sqrt", graph.cast(v, np.float64))), np.int64)
    root = _at_most(graph, root, 3037000499)
    root = op("Sub", root, graph.cast(op("Greater", op("Mul", root, root), v), np.int64))
    rest = op("Sub", v, op("Mul", root, root))
    more = op("Greater", rest, op("Mul", root, _int(2)))
    return total, op("Add", root, graph.cast(more, np.int64), output="root")


class FloatGraph:
    """Adds a model to a graph in double or single precision.

    - `dtype`: {float64, float32}.
    """

    def __init__(self, graph: Graph, model: QuantizedModel, dtype: Any) -> None:
        self.graph, self.model, self.dtype = graph, model, np.dtype(dtype)
        self.largest = LARGEST if self.dtype == np.float64 else LARGEST_SINGLE

    def real(self, value: Any, name: str | None = None) -> str:
        """Return a constant of the graph's precision."""
        return self.graph.constant(np.asarray(value, dtype=self.dtype), name)

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node; floating-point arrays take the graph's precision."""
        return self.graph.op(
            kind,
            *(
                v if isinstance(v, str) or np.asarray(v).dtype.kind != "f" else np.asarray(v, dtype=self.dtype)
                for v in inputs
            ),
            **attributes,
        )

    def functions(self, x: str) -> tuple[str, str, str]:
        """Return what all samples' functions share, what each adds, and the noise and missing variance.

        The second is (n_rows, n_outputs, n_samples), the others (n_rows, n_outputs) or (n_outputs,).
        """
        model = self.model
        inputs = self._inputs(model.basis.input_map, x)
        noise, middle = self.real(model.noise), self.real(model.offset)
        if isinstance(model.basis, NetworkBasis):
            sums = self._network(model.basis, inputs)
        else:
            phi, missing = self._basis(model.basis, self._cut(inputs, model.basis.features.largest_input))
            sums = self.op("MatMul", phi, self._matrix())
            if model.centre.any():
                shape = (len(model.codes), model.n_outputs)
                centre = self.op("MatMul", phi, np.broadcast_to(model.centre, shape) * model.scale)
                middle = self.op("Add", centre, middle)
            for term in missing:
                noise = self.op("Add", noise, term)
        sums = self.op("Reshape", sums, np.array([0, model.n_outputs, model.n_samples]))
        return middle, self.op("Mul", sums, model.scale[:, None]), noise

    def moments(self, middle: str, parts: str, noise: str) -> tuple[str, str]:
        """Add outputs ``mean`` and ``std``, (n_rows, n_outputs) each; deviations are those of the parts alone."""
        samples = np.array([2])
        own = self.op("ReduceMean", parts, samples, keepdims=1)
        deviation = self.op("Sub", parts, own)
        variance = self.op("ReduceMean", self.op("Mul", deviation, deviation), samples, keepdims=0)
        mean = self.op("Add", middle, self.op("Squeeze", own, samples), output="mean")
        root = self.op("Sqrt", self.op("Add", variance, noise))
        return mean, self.op("Mul", root, np.float64(self.model.calibration), output="std")

    # --- inputs

    def _cut(self, v: str, limit: float) -> str:
        limit = min(limit, self.largest)
        return self.op("Clip", v, np.float64(-limit), np.float64(limit))

    def _inputs(self, m: InputMap, x: str) -> str:
        kept = self.op("Gather", x, m.kept.astype(np.int64), axis=1)
        mean = m.mean[m.kept]
        centred = self.op("Sub", kept, mean)
        if self.dtype == np.float32:
            # The mean is stored in two parts: its rounding may be large compared with the column's spread.
            centred = self.op("Sub", centred, mean - mean.astype(np.float32))
        standardised = self._cut(self.op("Div", centred, m.scale[m.kept]), LARGEST)
        if not len(m.knots):
            return standardised
        return self.op("Concat", standardised, self._scores(m, x), axis=1)

    def _scores(self, m: InputMap, x: str) -> str:
        """Return normal scores of columns: interpolated between the knots, constant beyond them."""
        op, (n_columns, n_knots) = self.op, m.knots.shape
        scored = op("Gather", x, m.scored.astype(np.int64), axis=1)
        v = op("Max", op("Min", scored, m.knots[:, -1]), m.knots[:, 0])
        reached = op("GreaterOrEqual", op("Unsqueeze", v, np.array([2])), m.knots)
        count = op("ReduceSum", self.graph.cast(reached, np.int64), np.array([2]), keepdims=0)
        last = np.int64(max(n_knots - 2, 0))
        at = op("Sub", count, np.int64(1))
        at = op("Where", op("Greater", at, last), last, at)
        at = op("Add", at, np.arange(n_columns) * n_knots)
        width, rise = np.diff(m.knots, append=m.knots[:, -1:]), np.diff(m.scores, append=m.scores[:, -1:])
        slope = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
        knots, scores, slopes = (op("Gather", a.ravel(), at) for a in (m.knots, m.scores, slope))
        return op("Add", scores, op("Mul", op("Sub", v, knots), slopes))

    # --- basis functions

    def _basis(self, basis: LinearBasis, inputs: str) -> tuple[str, list[str]]:
        """Return basis functions in the order of the codes, and terms of the variance that they lack."""
        op, phi = self.op, self._features(basis.features.map, inputs)
        units = self.model.scale**2
        missing = []
        parameters = basis.features.hyperparameters
        if parameters is not None:
            missing.append(self._lacking(basis, parameters, inputs, phi, units * basis.missing_scale))
        if basis.vectors is None:
            return op("Gather", phi, basis.order.astype(np.int64), axis=1), missing
        rotated = op("MatMul", phi, basis.vectors)
        if basis.outside_scale.any():
            # Directions of every output.
            own = np.zeros((basis.vectors.shape[1], self.model.n_outputs))
            for k in range(self.model.n_outputs):
                own[basis.edges[k] : basis.edges[k + 1], k] = 1.0
            inside = op("MatMul", op("Mul", rotated, rotated), own)
            outside = op("Relu", op("Sub", self._norm(phi), inside))
            missing.append(op("Mul", outside, units * basis.outside_scale))
        return op("Gather", rotated, basis.order.astype(np.int64), axis=1), missing

    def _norm(self, phi: str) -> str:
        return self.op("ReduceSum", self.op("Mul", phi, phi), np.array([1]), keepdims=1)

    def _linear_part(self, inputs: str, n_linear: int) -> tuple[str, str]:
        """Return the leading inputs, and the same clipped to the reach of the linear part."""
        leading = self.op("Slice", inputs, np.array([0]), np.array([n_linear]), np.array([1]))
        return leading, self._cut(leading, LINEAR_REACH)

    def _lacking(self, basis: LinearBasis, p: KernelHyperparameters, inputs: str, phi: str, scale: FloatArray) -> str:
        op = self.op
        leading, reached = self._linear_part(inputs, p.n_linear)
        lacking = op("Mul", self._norm(op("Sub", leading, reached)), np.float64(p.amplitudes[2]))
        if isinstance(basis.features.map, NystroemFeatures):
            own = basis.features.map.hyperparameters
            _, linear = self._linear_part(inputs, own.n_linear)
            ard, exponential, slope, constant = own.amplitudes
            prior = op(
                "Add", op("Mul", self._norm(linear), np.float64(slope)), np.float64(ard + exponential + constant)
            )
            between = op("Relu", op("Sub", prior, self._norm(phi)))
            lacking = op("Add", lacking, op("Relu", op("Sub", between, np.float64(basis.mean_missing))))
        return op("Mul", lacking, scale)

    def _features(self, features: Any, inputs: str) -> str:
        if isinstance(features, FourierFeatures):
            return self._fourier(features, inputs)
        if isinstance(features, NystroemFeatures):
            return self._nystroem(features, inputs)
        if isinstance(features, PolynomialFeatures):
            return self._polynomial(features, inputs)
        if isinstance(features, LinearFeatures):
            return self._with_constant([inputs], inputs, features.intercept_scale)
        return inputs

    def _with_constant(self, parts: list[str], inputs: str, constant: float | None) -> str:
        if constant is not None:
            rows = self.op("Slice", self.op("Shape", inputs), np.array([0]), np.array([1]))
            shape = self.op("Concat", rows, np.array([1]), axis=0)
            parts = [*parts, self.op("Expand", np.array([[constant]], dtype=np.float64), shape)]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=1)

    def _fourier(self, features: FourierFeatures, inputs: str) -> str:
        parts = []
        if features.n_frequencies:
            phase = self.op("MatMul", inputs, self.real(features.frequencies, "frequencies"))
            parts = [self.op("Mul", self.op(wave, phase), features.amplitudes) for wave in ("Cos", "Sin")]
        if features.linear_scale is not None and len(features.linear_scale):
            _, linear = self._linear_part(inputs, len(features.linear_scale))
            parts.append(self.op("Mul", linear, features.linear_scale))
        return self._with_constant(parts, inputs, features.constant)

    def _nystroem(self, features: NystroemFeatures, inputs: str) -> str:
        """Kernel functions at the landmarks, whitened: Matérn, exponential, linear and constant parts."""
        op, p = self.op, features.hyperparameters
        ard, exponential, slope, constant = p.amplitudes
        landmarks = features.landmarks
        r = self._distance(inputs, landmarks, p.length_scales)
        t = op("Mul", r, np.float64(np.sqrt(2 * p.smoothness)))
        matern = op(
            "Mul", op("Mul", self._matern_polynomial(t, p.smoothness), op("Exp", op("Neg", t))), np.float64(ard)
        )
        if p.product_amplitude > 0:
            r = self._distance_along_axes(inputs, landmarks, p.product_rates)
        else:
            r = self._distance(inputs, landmarks, np.float64(p.isotropic_length_scale))
        rough = op("Exp", op("Neg", r))
        _, linear = self._linear_part(inputs, p.n_linear)
        others = np.clip(landmarks[:, : p.n_linear], -LINEAR_REACH, LINEAR_REACH)
        product = op("MatMul", linear, slope * others.T)
        k = op("Add", op("Add", matern, op("Mul", rough, np.float64(exponential))), product)
        return op("MatMul", op("Add", k, np.float64(constant)), self.real(features.whitening, "whitening"))

    def _matern_polynomial(self, t: str, smoothness: float) -> str | np.float64:
        """Return what a Matérn function has before exp(−t): 1, 1 + t, 1 + t + t²/3."""
        one = np.float64(1)
        if smoothness == 0.5:
            return one
        inner = self.op("Add", self.op("Mul", t, np.float64(1 / 3)), one) if smoothness == 2.5 else one
        return self.op("Add", self.op("Mul", t, inner), one)

    def _distance(self, inputs: str, landmarks: FloatArray, length_scale: Any) -> str:
        """Distances in units of length-scales, from products and norms, (n_rows, n_landmarks)."""
        op, b = self.op, landmarks / length_scale
        a = op("Div", inputs, length_scale)
        norms = op("Add", self._norm(a), np.einsum("ij,ij->i", b, b))
        return op("Sqrt", op("Relu", op("Sub", norms, op("Mul", op("MatMul", a, b.T), np.float64(2)))))

    def _distance_along_axes(self, inputs: str, landmarks: FloatArray, rates: FloatArray) -> str:
        """Sums of distances along the axes times their rates, (n_rows, n_landmarks): axis by axis, little is kept."""
        op, axes = self.op, np.flatnonzero(rates)
        total = op("Mul", op("Gather", inputs, axes[:1], axis=1), np.zeros((1, len(landmarks))))
        for j in axes:
            apart = op("Sub", op("Gather", inputs, np.array([j]), axis=1), landmarks[None, :, j])
            total = op("Add", total, op("Mul", op("Abs", apart), np.float64(rates[j])))
        return total

    def _polynomial(self, features: PolynomialFeatures, inputs: str) -> str:
        """All monomials: those of one degree are those of the degree below times one more input."""
        number = {m: k for k, m in enumerate(features.monomials)}
        phi = self._with_constant([], inputs, 1.0)
        for degree in range(1, features.degree + 1):
            longer = [m for m in features.monomials if len(m) == degree]
            shorter = self.op("Gather", phi, np.array([number[m[:-1]] for m in longer]), axis=1)
            factor = self.op("Gather", inputs, np.array([m[-1] for m in longer]), axis=1)
            phi = self.op("Concat", phi, self.op("Mul", shorter, factor), axis=1)
        return phi

    # --- weights

    def _levels(self) -> str:
        """Return the levels that the codes stand for, (n_basis_functions, n_columns), stored as four-bit codes."""
        codes, levels = self.model.codes, self.model.levels
        if len(levels) <= 16:
            stored = self.graph.four_bits(codes, "codes")
        else:
            stored = self.graph.constant(codes, "codes")
        # Gathered, not dequantised: runtimes fuse DequantizeLinear and MatMul into one with eight-bit activations.
        return self.op("Gather", self.real(levels, "levels"), self.graph.cast(stored, np.int64))

    def _matrix(self) -> str:
        """Return what the samples' weights add to their centres, in their own units, (n_basis_functions, n_columns)."""
        weights = self._levels()
        return weights if (self.model.spread == 1).all() else self.op("Mul", weights, self._columns(self.model.spread))

    def _columns(self, values: FloatArray) -> FloatArray:
        """Return values of the outputs' weights for every column, (n_basis_functions, n_columns)."""
        shape = (len(self.model.codes), self.model.n_outputs)
        return np.repeat(np.broadcast_to(values, shape), self.model.n_samples, axis=1)

    def _network(self, basis: NetworkBasis, inputs: str) -> str:
        """Run all networks side by side; return their outputs, (n_rows, n_columns)."""
        op, shape, n_columns = self.op, basis.shape, self.model.codes.shape[1]
        weights = op("Add", self._matrix(), self._columns(self.model.centre))
        largest = basis.largest if self.dtype == np.float64 else largest_network_input(self.model, basis)
        state = self._cut(op("MatMul", inputs, self.real(basis.matrix, "rotation")), largest)
        state = op("Unsqueeze", state, np.array([0]))
        for layer, (part, (fan_out, fan_in)) in enumerate(zip(shape.slices, shape.layers, strict=True)):
            own = op("Slice", weights, np.array([part.start]), np.array([part.stop]), np.array([0]))
            matrix = op("Reshape", op("Transpose", own, perm=[1, 0]), np.array([n_columns, fan_out, fan_in]))
            matrix = op("Transpose", matrix, perm=[0, 2, 1])  # (n_columns, fan_in, fan_out)
            bias = None
            if shape.bias:
                bias = op("Slice", matrix, np.array([fan_in - 1]), np.array([fan_in]), np.array([1]))
                matrix = op("Slice", matrix, np.array([0]), np.array([fan_in - 1]), np.array([1]))
            state = op("MatMul", state, matrix)
            if bias is not None:
                state = op("Add", state, bias)
            if layer + 1 < len(shape.layers):
                state = op("Mul", state, state)
        return op("Transpose", op("Squeeze", state, np.array([2])), perm=[1, 0])


def add_probabilities(graph: Graph, functions: str, n_outputs: int, dtype: Any) -> str:
    """Add the output ``probabilities``, (n_rows, n_classes), averaged over the samples.

    Two classes: 1 / (1 + exp(−z)). Several: exp(z_k) / Σ_i exp(z_i).
    """
    op, samples, one = graph.op, np.array([2]), np.asarray(1, dtype=dtype)
    if n_outputs > 1:
        size = op("Exp", op("Sub", functions, op("ReduceMax", functions, np.array([1]), keepdims=1)))
        p = op("Div", size, op("ReduceSum", size, np.array([1]), keepdims=1))
        return op("ReduceMean", p, samples, output="probabilities", keepdims=0)
    # Not Sigmoid, which onnxruntime rounds to some five digits.
    p = op("Div", one, op("Add", op("Exp", op("Neg", functions)), one))
    p = op("ReduceMean", p, samples, keepdims=0)
    return op("Concat", op("Sub", one, p), p, output="probabilities", axis=1)
