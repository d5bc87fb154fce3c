"""C99 headers of integer programs."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Sequence, Set
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import __version__
from pydirect._validation import FloatArray, as_number
from pydirect.persistence.container import atomic_open
from pydirect.quantized.codes import PackedCodes, pack_codes
from pydirect.quantized.compile import threshold_step
from pydirect.quantized.device import (
    POLYNOMIAL,
    DeviceModel,
    FixedResults,
    Tables,
    exponent_bits,
    level_step,
    require_digits,
)
from pydirect.quantized.model import QuantizedModel
from pydirect.quantized.program import ONE, SINE

WIDTH = 116
# Counters of the generated code have 16 bits.
LARGEST_COUNT = 65535
N_TESTS = 8
# Compilers would zero this many totals by a function of the library.
MANY_COLUMNS = 5
SINGLE_MAX = float(np.finfo(np.float32).max)
C_TYPES = {np.dtype(f"{sign}int{bits}"): f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
C_TYPES |= {np.dtype(np.float32): "float"}


def template(name: str, conditions: Set[str]) -> str:
    """Return the lines of a template whose conditions hold.

    ``//@if word`` … ``//@else`` … ``//@end`` keeps the first part where `word` is among the conditions, else the
    second; they nest.
    """
    text = resources.files("pydirect.quantized").joinpath("templates", name).read_text(encoding="ascii")
    kept, holds = [], [True]
    for line in text.splitlines():
        directive, _, word = line.removeprefix("//@").partition(" ") if line.startswith("//@") else ("", "", "")
        if directive == "if":
            holds.append(word in conditions)
        elif directive == "else":
            holds[-1] = not holds[-1]
        elif directive == "end":
            holds.pop()
        elif all(holds):
            kept.append(line)
    return "\n".join(kept) + "\n"


def table(name: str, values: ArrayLike, storage: str = "static const", mark: str = " PD_TABLE") -> str:
    """Return the definition of a constant array; C has no empty arrays, so one without values gets a zero."""
    array = np.asarray(values)
    flat = array.ravel() if array.size else np.zeros(1, dtype=array.dtype)
    numbers = ", ".join(_literals(flat))
    lines = textwrap.fill(numbers, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    return f"{storage} {C_TYPES[array.dtype]} {name}[{flat.size}]{mark} = {{\n{lines}\n}};\n"


def _literals(values: NDArray[Any]) -> Iterable[str]:
    """Return literals that compile to exactly these numbers."""
    kind, numbers = values.dtype, values.tolist()
    if kind.kind == "f":
        return (text + ("f" if re.search(r"[.e]", text) else ".0f") for text in (f"{v:.9g}" for v in numbers))
    if kind.itemsize < 4:
        return map(str, numbers)
    macro, least = C_TYPES[kind][:-2].upper(), -(2**31) if kind == np.int32 else None  # which has no literal
    return (f"{macro}_C({v})" if v != least else "-INT32_C(2147483647) - 1" for v in numbers)


def checked_prefix(prefix: str) -> str:
    """Validate a prefix of names, and strip trailing underscores."""
    if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise ValueError(f"prefix must be letters, digits and underscores, a letter first, got {prefix!r}")
    return prefix.rstrip("_")


def header(comment: str, body: str, prefix: str) -> str:
    """Return a complete header: a comment with a digest of the rest, the guard, and the body with prefixed names.

    The guard allows including the same header twice, and refuses another model with the same prefix.
    """
    body = re.sub(r"\bpd_", f"{prefix}_", re.sub(r"\bPD_", f"{prefix.upper()}_", body))
    guard = f"{prefix.upper()}_H"
    digest = hashlib.blake2b(body.encode("ascii"), digest_size=8).hexdigest()
    mark = f"{prefix.upper()}_DIGEST_{digest}"
    # Neither the end of the comment nor a trigraph.
    comment = comment.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("??", "? ?")
    return (
        f"/* {comment}\n\n   Digest of what follows: {digest}. */\n\n"
        f"#ifndef {guard}\n#define {guard}\n#define {mark}\n\n{body}\n"
        f"#ifdef __cplusplus\n}}\n#endif\n\n#elif !defined({mark})\n"
        '#error "another model of this prefix is included already: export one of them with another prefix="\n#endif\n'
    )


def integer_body(device: DeviceModel, packed: PackedCodes, rows: NDArray[np.generic]) -> str:
    """Return the body of a header that computes what `device` computes.

    - `device`: of a program with at least one input and one basis function.
    - `packed`: its codes.
    - `rows`, (n_tests, n_features_in): rows for the self-test, counts or in single precision.
    """
    program, n_coded = device.program, device.n_coded
    bounds = program.prove()
    for name, count in (("n_features_in", program.n_features_in), ("n_basis_functions", len(program.codes))):
        if count > LARGEST_COUNT:
            raise ValueError(f"{name} must be at most {LARGEST_COUNT} in exported code, got {count}")
    stored = {name: a for part in device.tables().values() for name, a in part.items()} | device.interval_table()
    found = {
        f"bits{packed.bits}": n_coded > 0,
        "fourier": program.n_frequencies > 0,
        "linear": len(program.linear) > 0,
        "groups": n_coded > 0,
        "single": n_coded > 0 and (packed.bits != 4 or program.n_columns % 2 == 1),  # codes are read one by one
        "forest": program.n_trees > 0,
        "several": program.n_samples > 1,
        "shift": program.total_shift > 0,
        "even": "multipliers" not in stored,
        "counts": device.raw is not None,
        "short": "origin" in stored and stored["origin"].itemsize == 2,
        "fixed": device.fixed is not None,
        "classes": device.n_classes > 0,
        "two_classes": device.n_classes == 2,
    }
    conditions = {name for name, holds in found.items() if holds} | ({"slope", "start"} & stored.keys())
    parts = [
        template("head.h", conditions),
        *(f"#define PD_{name} {value}\n" for name, value in _macros(device, stored, len(rows)).items()),
        f"\n/* Proved: no total exceeds {bounds.accumulator} before it is shifted, no sum over the samples\n"
        f"   {bounds.sum} (both of {2**30 - 1}), no sum of squares {bounds.squares} (of {2**32 - 1}). */\n\n",
        # Tables of 64 bits are small; AVR has no instruction that reads them from flash.
        *(table(f"pd_{name}", a, mark="" if a.itemsize == 8 else " PD_TABLE") for name, a in stored.items()),
        table("pd_codes", pack_codes(packed.unpack()[:n_coded], packed.bits)) if n_coded else "",
        *(table(f"pd_test_{name}", a) for name, a in _test_tables(device, rows).items()),
        "\n",
        template("program.h", conditions),
    ]
    return "".join(parts)


def _macros(device: DeviceModel, stored: Tables, n_tests: int) -> dict[str, int | str]:
    program = device.program
    n_indexed = max(program.codes.size, program.frequencies.size)
    values: dict[str, int | str] = {
        "N_FEATURES_IN": program.n_features_in,
        "N_OUTPUTS": program.n_outputs,
        "N_SAMPLES": program.n_samples,
        "LEVEL": repr(float(device.level)),
        "N_INPUTS": program.n_inputs,
        "N_COLUMNS": program.n_columns,
        "N_FREQUENCIES": program.n_frequencies,
        "DEPTH": program.depth,
        "INPUT_MASK": threshold_step(program.n_inputs) - 1,
        "N_LINEAR": len(program.linear),
        "LIMIT": f"INT32_C({program.limit})",
        "ONE": f"INT32_C({ONE})",
        "N_GROUPS": len(stored.get("group_end", ())),
        "FIRST_GAIN": f"INT32_C({program.gain[0]})",
        "TOTAL_SHIFT": program.total_shift,
        "DEVIATION_SHIFT": program.deviation_shift,
        "ZEROED": "volatile" if program.n_columns >= MANY_COLUMNS else "",
        "N_TESTS": n_tests,
        "INDEX": "uint_fast16_t" if n_indexed <= LARGEST_COUNT else "uint32_t",
        **{f"SINE_{k}": f"UINT32_C({c})" for k, c in enumerate(SINE, 1)},
    }
    if isinstance(device.results, FixedResults):
        values["LARGEST_RESULT"] = device.results.prove()
        for k, counts in enumerate(device.results.counts_per_unit.tolist()):
            values[f"COUNTS_PER_UNIT_{k}"] = int(counts) if counts.is_integer() else repr(counts)
    if device.n_classes:
        values |= {
            "N_CLASSES": device.n_classes,
            "EXPONENT_BITS": exponent_bits(device.n_classes),
            "LOGIT_BITS": device.logit_bits,
            "POLYNOMIAL": ", ".join(f"UINT32_C({c})" for c in POLYNOMIAL),
        }
    if (step := level_step(program.multipliers)) is not None:
        values |= {"FIRST_LEVEL": f"INT32_C({program.multipliers[0]})", "LEVEL_STEP": f"INT32_C({step})"}
    values["READ_NUMBER"] = "PD_READ_FLOAT" if device.raw is None else "PD_READ_32"
    for name, macro in (("columns", "COLUMN(i)"), ("linear", "LINEAR(i)")):
        values[macro] = f"{_read(stored[name])}(pd_{name} + (i))" if name in stored else "(i)"
    reads = ("frequencies", "group_gain", "group_end", "slope", "multipliers")
    return values | {f"READ_{name.upper()}": _read(stored[name]) for name in reads if name in stored}


def _read(array: NDArray[Any]) -> str:
    """Return the macro that reads entries of a table."""
    return f"PD_READ_{8 * array.itemsize}{'U' if array.dtype.kind == 'u' else ''}"


def _test_tables(device: DeviceModel, rows: NDArray[np.generic]) -> Tables:
    mean, std = device.predict(rows)
    kind = np.float32 if device.raw is None else np.int32
    totals = device.totals(rows).astype(np.int32)
    tables = {"x": rows, "totals": totals, "mean": mean.astype(kind), "std": std.astype(kind)}
    return tables | ({"probability": device.predict_proba(rows).astype(np.uint16)} if device.n_classes else {})


def to_c(
    model: QuantizedModel,
    path: str | Path,
    *,
    prefix: str = "pydirect",
    level: float = 0.9,
    counts_per_unit: ArrayLike | None = None,
    zero_count: ArrayLike = 0.0,
    output_counts_per_unit: ArrayLike | None = None,
    X: ArrayLike | None = None,
    columns: Sequence[str] | None = None,
) -> None:
    """Write a quantised model in integers as one self-contained C99 header, which needs no library.

    It allocates no memory. Its functions are ``prefix_predict(x, mean, std)``, ``prefix_predict_interval(x, lower,
    upper)``, for a classifier, whose mean is that of the logits, ``prefix_predict_proba(x, probability)``, and
    ``prefix_self_test()``, which returns 0 when the results are those of Python. The comment at the top declares them.
    Their numbers are ``float``, or with `counts_per_unit` ``int32_t``, without any floating point: rows and results are
    counts. Of a target on another scale they are on that scale, as in ONNX graphs: ends of intervals, and the median,
    which the mean is, go back to y by the scale's inverse.

    Results are those of `QuantizedModel.on_device`, bit for bit; probabilities of a classifier are ``uint16_t`` in
    units of 2^-15, and ``prefix_predict_class(x)`` is the index of the most probable class by the mean logit.

    Parameters
    ----------
    path : str or Path
        Path of the file.
    prefix : str, default="pydirect"
        Prefix of all names; in capitals for macros.
    level : float, default=0.9
        Probability of intervals.
    counts_per_unit : array_like of shape (n_features_in,) or number, optional
        The integers of the device's sensors are ``zero_count + counts_per_unit · x``.
    zero_count : array_like of shape (n_features_in,) or number, default=0.0
        See `counts_per_unit`.
    output_counts_per_unit : array_like of shape (n_outputs,) or positive number, optional
        With `counts_per_unit`: how many counts make a unit of a result, such as 1000 or 2**16. By default a power of
        ten that gives the smallest standard deviation four digits; for a classifier's logits 2**16 log2(e).
    X : array_like of shape (n_rows, n_features_in), optional
        Rows for the self-test, of which the first 8 are used; by default random rows like those of training.
    columns : sequence of str, optional
        Names of all inputs for the comment at the top; by default those of the data frame of the fit.

    Raises
    ------
    AccumulatorOverflowError
        When a sum of the integer arithmetic could overflow its type.
    ValueError
        When an argument is invalid, or the model has no integer-only form (`IntegerArithmeticError`), with a hint.
    OSError
        When the file cannot be written.
    """
    prefix = checked_prefix(prefix)
    as_number(level, "level", above=0.0, below=1.0)
    names = tuple(model.feature_names if columns is None else columns)
    if names and (len(names) != model.n_features_in or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"columns must be {model.n_features_in} names, got {columns!r}")
    model = model.with_arithmetic("integer")
    require_inputs(model)
    if output_counts_per_unit is None:
        require_digits(model.program)
    rows = _test_rows(model, X)
    counts = {"counts_per_unit": counts_per_unit, "zero_count": zero_count}
    device = model.on_device(level=level, output_counts_per_unit=output_counts_per_unit, **counts)
    tests = rows.astype(np.float32) if device.raw is None else device.raw.counts(rows)
    text = header(_comment(model, names, prefix, device), integer_body(device, model.packed, tests), prefix)
    with atomic_open(path) as file:
        file.write(text.encode("ascii"))


def require_inputs(model: QuantizedModel) -> None:
    """Raise where predictions depend on no input."""
    inputs = model.program.n_inputs if model.arithmetic == "integer" else len(model.basis.features.input_map.kept)
    if not inputs or not len(model.codes):
        raise ValueError("model must depend on an input to be exported, got one that is constant")


def _test_rows(model: QuantizedModel, X: ArrayLike | None) -> FloatArray:
    """Return rows for the self-test, rounded to single precision; rows that it cannot hold are refused."""
    if X is None:
        m = model.basis.features.input_map
        rows = m.mean + m.scale * np.random.default_rng(0).standard_normal((N_TESTS, len(m.mean)))
        rows[-1] += 20 * m.scale  # far from all training data
    else:
        rows = model.rows(X)[:N_TESTS]
    if np.abs(rows).max(initial=0.0) > SINGLE_MAX:
        raise ValueError(f"X must be at most {SINGLE_MAX:.3g} in magnitude, what single precision holds")
    return np.ascontiguousarray(rows.astype(np.float32), dtype=np.float64)


COUNTED = """No library is needed, except the compiler's helper on cores without a 64-bit product. Results are
counts, proved to fit for any x; each mean and standard deviation is within one count of exact
arithmetic."""
SINGLE = "Sums are integers, proved to fit for any x; x and results have single precision."


def _comment(model: QuantizedModel, columns: Sequence[str], prefix: str, device: DeviceModel) -> str:
    """Return the comment at the top: the model, its sizes, what x holds, its functions and their numbers."""
    report, raw, results = model.report(device), device.raw, device.results
    names = columns or ([] if raw is None else [f"column {i}" for i in range(model.n_features_in)])
    if raw is not None:
        pairs = zip(names, raw.zero_count, raw.counts_per_unit, strict=True)
        names = [f"{zero:.9g} + {per_unit:.9g} * {name}" for name, zero, per_unit in pairs]
    named = [f"x[{i}] = {name}" for i, name in enumerate(names)]
    named += [f"class {k} = {name}" for k, name in enumerate(() if model.classes is None else model.classes)]
    number = "float" if raw is None else "int32_t"
    row = f"const {number} *x"
    functions = [
        f"void {prefix}_predict({row}, {number} *mean, {number} *std);",
        f"void {prefix}_predict_interval({row}, {number} *lower, {number} *upper);",
    ]
    if device.n_classes:
        functions += [f"uint16_t {prefix}_predict_class({row});"]
        functions += [f"void {prefix}_predict_proba({row}, uint16_t *probability);"]
    numbers = [SINGLE]
    if isinstance(results, FixedResults):
        numbers = COUNTED.splitlines()
        numbers += [f"Output {k}: a count is 1/{n:.17g} of a unit." for k, n in enumerate(results.counts_per_unit)]
    lines = [
        f"{model.n_features_in} inputs, {model.n_outputs} outputs, {report['n_basis_functions']} basis functions; "
        f"{model.arithmetic} arithmetic.",
        *(f"{name}: {value}" for name, value in size_lines(report)),
        *(ascii(text)[1:-1] for text in named),
        *([] if model.target is None else [f"Results are of z = {model.target.transform}; its quantiles are y's."]),
        "",
        *functions,
        f"int {prefix}_self_test(void);",
        "",
        *numbers,
    ]
    first = f"Generated by pydirect {__version__}: a Bayesian model as {model.n_samples} posterior samples of "
    return first + f"{report['bits']}-bit integers.\n\n" + textwrap.indent("\n".join(lines), "   ")


def size_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Describe the sizes of a report."""
    parts = ", ".join(f"{name} {count}" for name, count in report["bytes"].items() if name != "total")
    sizes = f"about {report['flash']} bytes of flash with code, {report['stack']} of stack"
    return [
        ("tables", f"{report['bytes']['total']} bytes ({parts})"),
        ("non-zero weights", f"{report['n_nonzero']} of {report['n_weights']}"),
        ("on a Cortex-M", f"{sizes}, {report['instructions']} instructions per row"),
    ]
