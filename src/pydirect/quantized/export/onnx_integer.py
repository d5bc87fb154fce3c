"""ONNX graphs for integer programs: the same integers, in int64, which holds every int32 and uint32."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect.quantized.export.onnx_graph import Graph
from pydirect.quantized.integer.arithmetic import QUARTER, SINE_TABLES, smallest_integers
from pydirect.quantized.integer.linear import IntegerProgram
from pydirect.quantized.integer.network import LIMIT, SQUARE_SHIFT, NetworkProgram
from pydirect.quantized.integer.program import Program


def _int(value: int) -> NDArray[np.int64]:
    return np.int64(value)  # type: ignore[return-value]


def add_integer_program(graph: Graph, program: Program) -> str:
    """Add steps 1 to 3 of `pydirect.quantized.integer.program`; return the totals, (n_rows, n_outputs, n_samples)."""
    program.prove()  # 64 bits here and 32 elsewhere agree
    q = _quantised(graph, program)
    if isinstance(program, NetworkProgram):
        total = _network_totals(graph, program, q)
    else:
        assert isinstance(program, IntegerProgram)
        total = _totals(graph, program, _features(graph, program, q))
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


def _features(graph: Graph, program: IntegerProgram, q: str) -> str:
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
    weights = _weights(graph, program)
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
    weights = _weights(graph, program)
    if program.centre is not None and program.spread is not None:
        spread, centre = (_columns(graph, program, table) for table in (program.spread, program.centre))
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


def _columns(graph: Graph, program: NetworkProgram, table: NDArray[np.int32]) -> str:
    """Return a table (n_weights, n_outputs) for every sample, (n_weights, n_columns); stored once."""
    stored = graph.cast(graph.constant(smallest_integers(table)[:, :, None]), np.int64)
    repeated = graph.op("Expand", stored, np.array([1, 1, program.n_samples]))
    return graph.op("Reshape", repeated, np.array([0, program.n_columns]))


def _weights(graph: Graph, program: Program) -> str:
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
