"""Export of quantised models: `to_c` writes a C99 header, `to_onnx` an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect import __version__
from pydirect._validation import FloatArray, as_choice, as_number
from pydirect.persistence.container import atomic_open
from pydirect.quantized.c_header import checked_prefix, float_body, header, integer_body, require_single
from pydirect.quantized.device import FixedPointModel
from pydirect.quantized.fitted import NetworkBasis
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.onnx_graph import (
    Graph,
    Traced,
    float_functions,
    float_moments,
    probabilities,
    probabilities_of_two,
)

N_TESTS = 8
SINGLE_MAX = float(np.finfo(np.float32).max)
REALS = ("double", "float")


def to_c(
    model: QuantizedModel,
    path: str | Path,
    *,
    prefix: str = "pydirect",
    level: float = 0.9,
    real: str = "double",
    counts_per_unit: ArrayLike | None = None,
    zero_count: ArrayLike = 0.0,
    output_counts_per_unit: ArrayLike | None = None,
    X: ArrayLike | None = None,
    columns: Sequence[str] | None = None,
) -> int | None:
    """Write a quantised model as one self-contained C99 header.

    It allocates no memory. Its functions are ``prefix_predict(x, mean, std)``, ``prefix_predict_interval(x, lower,
    upper)``, ``prefix_predict_function_interval(x, lower, upper)``, for a classifier, whose mean is that of the logits,
    ``prefix_predict_proba(x, probability)``, and ``prefix_self_test()``, which returns 0 when the results are those of
    Python. The comment at the top declares them. Their numbers are

    - ``real`` in floating-point arithmetic, which needs ``cos``, ``sin``, ``exp`` and ``sqrt``;
    - ``float`` in integer arithmetic (``model.with_arithmetic("integer")``), which needs no library;
    - ``int32_t`` in integer arithmetic with `counts_per_unit`, without any floating point: rows and results are counts.

    In integer arithmetic results are the same integers as those of `QuantizedModel.fixed_point`, divided by the counts
    per unit where they are ``float``; probabilities of a classifier are ``uint16_t`` in units of 2^-15, and
    ``prefix_predict_class(x)`` is the index of the most probable class by the mean logit.

    Parameters
    ----------
    path : str or Path
        Path of the file.
    prefix : str, default="pydirect"
        Prefix of all names; in capitals for macros.
    level : float, default=0.9
        Probability of intervals.
    real : {"double", "float"}, default="double"
        Type of floating-point arithmetic; ``"double"`` agrees to rounding, ``"float"`` to about 1e-3 of the
        predictions' spread: rounding an input to single precision changes the phases, and inputs of a network are
        clipped earlier, far from the data, so that squares stay finite.
    counts_per_unit : array_like of shape (n_features_in,) or number, optional
        For integer arithmetic: the integers of the device's sensors are ``zero_count + counts_per_unit · x``.
    zero_count : array_like of shape (n_features_in,) or number, default=0.0
        See `counts_per_unit`.
    output_counts_per_unit : array_like of shape (n_outputs,) or positive number, optional
        How many counts make a unit of a result in integer arithmetic, such as 1000 or 2**16. By default a power of ten
        that gives the smallest standard deviation four digits; for a classifier's logits 2**16.
    X : array_like of shape (n_rows, n_features_in), optional
        Rows for the self-test, of which the first 8 are used; by default random rows like those of training.
    columns : sequence of str, optional
        Names of all inputs for the comment at the top; by default those of the data frame of the fit.

    Returns
    -------
    int or None
        Number of bytes of the tables in floating-point arithmetic; for integers see ``model.report()``.

    Raises
    ------
    AccumulatorOverflowError
        When a sum of the integer arithmetic could overflow its type.
    ValueError
        When an argument is invalid, the model cannot be expressed in C, or single precision cannot hold its units,
        with a hint.
    OSError
        When the file cannot be written.
    """
    prefix = checked_prefix(prefix)
    as_number(level, "level", above=0.0, below=1.0)
    as_choice(real, "real", REALS)
    names = tuple(model.feature_names if columns is None else columns)
    if names and (len(names) != model.n_features_in or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"columns must be {model.n_features_in} names, got {columns!r}")
    integer = model.arithmetic == "integer"
    if real == "float" and not integer:
        require_single(model)
    _require_inputs(model)
    rows = _test_rows(model, X, single=integer or real == "float")
    n_bytes, device = None, None
    options = {"counts_per_unit": counts_per_unit, "zero_count": zero_count}
    options["output_counts_per_unit"] = output_counts_per_unit
    if integer:
        device = model.fixed_point(level=level, **options)
        tests = rows.astype(np.float32) if device.raw is None else device.raw.counts(rows)
        body = integer_body(device, model.packed, tests)
    elif any(option is not None and np.any(option) for option in options.values()):
        raise ValueError("counts must be None in floating-point arithmetic; use model.with_arithmetic('integer')")
    else:
        body, n_bytes = float_body(model, rows, level, real)
    comment = _comment(model, names, prefix, real if device is None else device, n_bytes)
    with atomic_open(path) as file:
        file.write(header(comment, body, prefix).encode("ascii"))
    return n_bytes


def _require_inputs(model: QuantizedModel) -> None:
    inputs = model.program.n_inputs if model.arithmetic == "integer" else len(model.basis.input_map.kept)
    if not inputs or not len(model.codes):
        raise ValueError("model must depend on an input to be exported, got one that is constant")


def _test_rows(model: QuantizedModel, X: ArrayLike | None, single: bool) -> FloatArray:
    """Return rows for the self-test, rounded to single precision if asked; rows that it cannot hold are refused."""
    if X is None:
        m = model.basis.input_map
        rows = m.mean + m.scale * np.random.default_rng(0).standard_normal((N_TESTS, len(m.mean)))
        rows[-1] += 20 * m.scale  # far from all training data
    else:
        rows = model.rows(X)[:N_TESTS]
    if single:
        if np.abs(rows).max(initial=0.0) > SINGLE_MAX:
            raise ValueError(f"X must be at most {SINGLE_MAX:.3g} in magnitude, what single precision holds")
        rows = rows.astype(np.float32)
    return np.ascontiguousarray(rows, dtype=np.float64)


def _comment(
    model: QuantizedModel, columns: Sequence[str], prefix: str, form: str | FixedPointModel, n_bytes: int | None
) -> str:
    """Return the comment at the top. `form`: the type of floating-point arithmetic, or the model in fixed point."""
    device = None if isinstance(form, str) else form
    report = model.report(device)
    counted = "weights" if isinstance(model.basis, NetworkBasis) else "basis functions"
    lines = [
        f"Generated by pydirect {__version__}: a Bayesian model as {model.n_samples} posterior samples of "
        f"{report['bits']}-bit integers.",
        "",
        f"   {model.n_features_in} inputs, {model.n_outputs} outputs, {report['n_basis_functions']} {counted}; "
        f"{model.arithmetic} arithmetic.",
        *(f"   {name}: {value}" for name, value in [*size_lines(report, n_bytes), *memory_lines(report)]),
    ]
    classes = [f"class {k} = {name}" for k, name in enumerate(() if model.classes is None else model.classes)]
    named = [*_inputs(model, columns, device), *classes]
    lines += [f"   {ascii(text)[1:-1]}" for text in named]
    lines += ["", *(f"   {line}" for line in _signatures(model, prefix, form))]
    if device is not None:
        lines += [
            "",
            "   No library is needed, except the compiler's helper on cores without a 64-bit product. Results are",
            "   integers, proved to fit for any x; each mean and standard deviation is within one count of exact",
            "   arithmetic."
            + ("" if device.raw is not None else " They are multiplied by the value of a count, a float."),
            *(
                f"   Output {k}: a count is 1/{counts:.17g} of a unit."
                for k, counts in enumerate(device.counts_per_unit.tolist())
            ),
        ]
    return "\n".join(lines)


def _inputs(model: QuantizedModel, columns: Sequence[str], device: FixedPointModel | None) -> list[str]:
    """Describe what x holds."""
    if device is None or device.raw is None:
        return [f"x[{i}] = {name}" for i, name in enumerate(columns)]
    names = columns or [f"column {i}" for i in range(model.n_features_in)]
    pairs = zip(names, device.raw.zero_count, device.raw.counts_per_unit, strict=True)
    return [f"x[{i}] = {zero:.9g} + {per_unit:.9g} * {name}" for i, (name, zero, per_unit) in enumerate(pairs)]


def _signatures(model: QuantizedModel, prefix: str, form: str | FixedPointModel) -> list[str]:
    """Declare the functions of a header."""
    number = form if isinstance(form, str) else "float" if form.raw is None else "int32_t"
    ends = f"{number} *lower, {number} *upper"
    functions = [
        ("void", "predict", f"{number} *mean, {number} *std"),
        ("void", "predict_interval", ends),
        ("void", "predict_function_interval", ends),
    ]
    if model.classes is not None and isinstance(form, str):
        functions.append(("void", "predict_proba", f"{number} *probability"))
    elif model.classes is not None:
        functions += [("uint16_t", "predict_class", ""), ("void", "predict_proba", "uint16_t *probability")]
    lines = [
        f"{result} {prefix}_{name}(const {number} *x{', ' if rest else ''}{rest});" for result, name, rest in functions
    ]
    return [*lines, f"int {prefix}_self_test(void);"]


def size_lines(report: dict[str, Any], n_bytes: int | None = None) -> list[tuple[str, str]]:
    """Describe the sizes of a report; `n_bytes` are those of the tables of a header with floating point."""
    parts = ", ".join(f"{name} {count}" for name, count in report["bytes"].items() if name != "total")
    # Models with an integer-only form are measured in it.
    name = "tables" if report["arithmetic"] == "integer" or "basis" in report["bytes"] else "tables in integers"
    tables = f"{report['bytes']['total']} bytes ({parts}), codes {report['layout']}"
    if n_bytes is not None:
        name, tables = "tables", f"{n_bytes} bytes, codes {report['layout']}"
    return [
        (name, tables),
        ("non-zero weights", f"{report['n_nonzero']} of {report['n_weights']}"),
        (
            "operations per row",
            f"{report['additions']} additions, {report['multiplications']} multiplications, "
            f"{report['table_lookups']} table look-ups",
        ),
    ]


def memory_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Describe the memory that a prediction in integers takes on a device."""
    if report["arithmetic"] != "integer":
        return []
    return [("on a Cortex-M", f"about {report['flash']} bytes of flash with code, {report['stack']} of stack")]


def to_onnx(model: QuantizedModel, path: str | Path, *, dtype: Any = np.float64) -> None:
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
    dtype : {float64, float32}, default=float64
        Type of floating-point arithmetic and of its input and outputs. Single precision suits accelerators and agrees
        to about 1e-3 of the predictions' spread, except for networks far from the data, see `to_c`.

    Raises
    ------
    ImportError
        Without `onnx`, with the extra to install.
    ValueError
        When an argument is invalid, or single precision cannot hold the model's units.
    OSError
        When the file cannot be written.
    """
    dtype = _as_real(dtype)
    _require_inputs(model)
    if dtype == np.float32:
        if model.arithmetic == "integer":
            raise ValueError(
                "dtype must be float64 in integer arithmetic: only model.with_arithmetic('float') has another"
            )
        require_single(model)
    graph, shape = Graph(dtype), ["n_rows", model.n_outputs]
    if model.arithmetic == "integer":
        program, x = model.program, Traced(graph, "x", np.float32)
        program.prove()  # 64 bits here and 32 elsewhere agree
        totals = program.totals_of_features(program.features(program.quantise_inputs(x)), graph.table(program.weights))
        total, root = program.sums(totals), program.roots(totals)
        outputs = {"mean": program.value(total), "std": program.width(root), "sum": total, "root": root}
        functions = program.functions(totals)
    else:
        x = Traced(graph, "x", dtype)
        middle, parts, noise = float_functions(model, graph, x)
        outputs = dict(zip(("mean", "std"), float_moments(model, middle, parts, noise), strict=True))
        functions = parts + middle[:, :, None]
    named = {name: (value, shape) for name, value in outputs.items()}
    if model.classes is not None:
        chosen = probabilities_of_two if model.n_outputs == 1 else probabilities
        named["probabilities"] = chosen(functions), ["n_rows", len(model.classes)]
    inputs = {"x": (x.dtype, ["n_rows", model.n_features_in])}
    made = graph.model(inputs, named, __version__, f"{model.n_samples} posterior samples")
    with atomic_open(path) as file:
        file.write(made.SerializeToString())


def _as_real(dtype: Any) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if found not in (np.float64, np.float32):
        raise ValueError(f"dtype must be float64 or float32, got {dtype!r}")
    return found
