"""ONNX graphs for the floating-point path of quantised models."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import LINEAR_REACH, KernelHyperparameters
from pydirect.features.maps import FourierFeatures, LinearFeatures, NystroemFeatures, PolynomialFeatures
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.export.onnx_graph import Graph
from pydirect.quantized.export.single_precision import LARGEST_SINGLE, largest_network_input
from pydirect.quantized.model import QuantizedModel


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
            ard, isotropic, slope, constant = own.amplitudes
            prior = op("Add", op("Mul", self._norm(linear), np.float64(slope)), np.float64(ard + isotropic + constant))
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
        ard, isotropic, slope, constant = p.amplitudes
        landmarks = features.landmarks
        r = self._distance(inputs, landmarks, p.length_scales)
        t = op("Mul", r, np.float64(np.sqrt(2 * p.smoothness)))
        matern = op(
            "Mul", op("Mul", self._matern_polynomial(t, p.smoothness), op("Exp", op("Neg", t))), np.float64(ard)
        )
        rough = op("Exp", op("Neg", self._distance(inputs, landmarks, np.float64(p.isotropic_length_scale))))
        _, linear = self._linear_part(inputs, p.n_linear)
        others = np.clip(landmarks[:, : p.n_linear], -LINEAR_REACH, LINEAR_REACH)
        product = op("MatMul", linear, slope * others.T)
        k = op("Add", op("Add", matern, op("Mul", rough, np.float64(isotropic))), product)
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
