"""Exported C headers compile without a warning and give what Python gives: integers bit for bit."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import pydirect
from pydirect.quantized.errors import AccumulatorOverflowError
from pydirect.quantized.export.c_integer import integer_body
from pydirect.quantized.export.c_source import LARGEST_COUNT, header, template
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.linear import Group, IntegerProgram
from pydirect.quantized.packing import PackedCodes
from pydirect.quantized.quantize import quantize

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion"]
PROBLEMS = ["yacht", "housing", "energy", "concrete", "airfoil"]

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: cc")
needs_arm = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="no arm-none-eabi-gcc")

# Reads rows of numbers; writes for each the totals, and for every output sum, root, a quantile, moments and interval.
INTEGER_MAIN = r"""
#include <stdio.h>
#include "model.h"
int main(void)
{
    float x[M_N_FEATURES_IN];
    m_input q[M_N_INPUTS];
    int32_t t[M_N_COLUMNS];
    double mean[M_N_OUTPUTS], std[M_N_OUTPUTS], lower[M_N_OUTPUTS], upper[M_N_OUTPUTS];
    double low[M_N_OUTPUTS], high[M_N_OUTPUTS];
    uint16_t i;
    if (m_self_test() != 0) {
        return 3;
    }
    for (;;) {
        for (i = 0; i < M_N_FEATURES_IN; ++i) {
            if (scanf("%f", x + i) != 1) {
                return 0;
            }
        }
        m_quantise(x, q);
        m_totals(q, t);
        m_predict(x, mean, std);
        m_predict_interval(x, lower, upper);
        m_predict_function_interval(x, low, high);
        for (i = 0; i < M_N_COLUMNS; ++i) {
            printf("%ld ", (long)t[i]);
        }
        for (i = 0; i < M_N_OUTPUTS; ++i) {
            printf("%lld %lu %ld ", (long long)m_sum(t, i), (unsigned long)m_root(t, i, 1),
                   (long)m_quantile(t, i, 6554));
            printf("%.17g %.17g %.17g %.17g %.17g %.17g ", mean[i], std[i], lower[i], upper[i], low[i], high[i]);
        }
#if defined(M_N_CLASSES) && defined(M_WITH_MATH)
        {
            double p[M_N_CLASSES];
            m_predict_proba(x, p);
            printf("%u ", (unsigned)m_predict_class(x));
            for (i = 0; i < M_N_CLASSES; ++i) {
                printf("%.17g ", p[i]);
            }
        }
#endif
        printf("\n");
    }
}
"""
FLOAT_MAIN = r"""
#include <stdio.h>
#include "model.h"
int main(void)
{
    double row[M_N_FEATURES_IN];
    m_real x[M_N_FEATURES_IN], mean[M_N_OUTPUTS], std[M_N_OUTPUTS], lower[M_N_OUTPUTS], upper[M_N_OUTPUTS];
    m_real low[M_N_OUTPUTS], high[M_N_OUTPUTS];
    int i;
    if (m_self_test() != 0) {
        return 3;
    }
    for (;;) {
        for (i = 0; i < M_N_FEATURES_IN; ++i) {
            if (scanf("%lf", row + i) != 1) {
                return 0;
            }
            x[i] = (m_real)row[i];
        }
        m_predict(x, mean, std);
        m_predict_interval(x, lower, upper);
        m_predict_function_interval(x, low, high);
        for (i = 0; i < M_N_OUTPUTS; ++i) {
            printf("%.17g %.17g %.17g %.17g ", (double)mean[i], (double)std[i], (double)lower[i], (double)upper[i]);
            printf("%.17g %.17g ", (double)low[i], (double)high[i]);
        }
#ifdef M_N_CLASSES
        {
            m_real p[M_N_CLASSES];
            m_predict_proba(x, p);
            for (i = 0; i < M_N_CLASSES; ++i) {
                printf("%.17g ", (double)p[i]);
            }
        }
#endif
        printf("\n");
    }
}
"""
SELF_TEST_MAIN = '#include "model.h"\nint main(void) { return m_self_test(); }\n'


def run_checked(command, **options):
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, **options)
    assert run.returncode == 0, f"{run.returncode}: {run.stderr[-3000:]}"
    return run.stdout


def compile_and_run(directory, main, rows, *flags):
    """Return the numbers that the program writes for each row."""
    (directory / "main.c").write_text(main)
    run_checked(["cc", *STRICT, *flags, "-O1", "-o", directory / "main", directory / "main.c", "-lm"])
    text = "\n".join(" ".join(f"{v:.17g}" for v in row) for row in rows)
    lines = run_checked([directory / "main"], input=text).splitlines()
    assert len(lines) == len(rows)
    return np.array([line.split() for line in lines])


def check_integers(program, output, rows, level=0.9):
    """Compare what the integer program in C wrote with the definition, bit for bit."""
    totals = program.totals(rows)
    n, k = program.n_columns, program.n_outputs
    np.testing.assert_array_equal(output[:, :n].astype(np.int64), totals.reshape(len(rows), -1))
    per_output = output[:, n : n + 9 * k].reshape(len(rows), k, 9)
    integers = [program.sums(totals), program.roots(totals), program.quantiles(totals, 6554 / 65536)]
    for column, expected in enumerate(integers):
        np.testing.assert_array_equal(per_output[:, :, column].astype(np.int64), expected.astype(np.int64))
    floats = [program.mean(totals), program.std(totals), *program.interval(totals, level)]
    floats += program.function_interval(totals, level)
    for column, expected in enumerate(floats, start=3):
        np.testing.assert_array_equal(per_output[:, :, column].astype(np.float64), expected)
    return output[:, n + 9 * k :]


def far_and_near(X, n=40):
    """Rows of X, rows between and beyond them, and rows at the ends of single precision."""
    rng = np.random.default_rng(1)
    spread = X.mean(axis=0) + 3 * X.std(axis=0) * rng.standard_normal((n, X.shape[1]))
    rows = np.vstack([X[:n], spread, 1e30 * np.ones((1, X.shape[1])), -1e38 * np.ones((1, X.shape[1]))])
    return rows.astype(np.float32)


# ------------------------------------------------------------------------------------------- export, compile, run


@needs_cc
@pytest.mark.parametrize("name", PROBLEMS)
def test_integer_header_gives_the_integers_of_python(tmp_path, fitted, name):
    model, X = fitted(name)
    quantised = quantize(model, 16, arithmetic="integer", X=X[:100])
    quantised.to_c(tmp_path / "model.h", prefix="m", X=X)
    rows = far_and_near(X)
    check_integers(quantised.program, compile_and_run(tmp_path, INTEGER_MAIN, rows), rows)
    # and they are what the model predicts
    mean, std = quantised.predict(X[:20].astype(np.float32).astype(float), return_std=True)
    totals = quantised.program.totals(X[:20].astype(np.float32))
    np.testing.assert_array_equal(mean, quantised.program.mean(totals)[:, 0])
    np.testing.assert_array_equal(std, quantised.program.std(totals)[:, 0])


@needs_cc
@pytest.mark.parametrize("name", PROBLEMS)
def test_float_header_agrees_to_rounding(tmp_path, fitted, name):
    model, X = fitted(name)
    quantised = quantize(model, 16)
    quantised.to_c(tmp_path / "model.h", prefix="m", X=X)
    rows = far_and_near(X)[:-2].astype(float)
    check_floats(quantised, compile_and_run(tmp_path, FLOAT_MAIN, rows), rows, 1e-6)


@needs_cc
@pytest.mark.parametrize("name", PROBLEMS[:2])
def test_deviations_near_zero_agree_however_large_the_offset(tmp_path, fitted, almost_agreeing, name):
    quantised, row = almost_agreeing(*fitted(name))
    quantised.to_c(tmp_path / "model.h", prefix="m")
    std = compile_and_run(tmp_path, FLOAT_MAIN, row)[:, 1].astype(float)
    expected = quantised.predict(row, return_std=True)[1]
    np.testing.assert_allclose(std, expected, rtol=1e-6)
    without = replace(quantised, offset=np.zeros(1)).predict(row, return_std=True)[1]
    np.testing.assert_array_equal(expected, without)


def check_floats(quantised, output, rows, rtol):
    k = quantised.n_outputs
    numbers = output.astype(float)
    mean, std, lower, upper, low, high = np.moveaxis(numbers[:, : 6 * k].reshape(len(rows), k, 6), 2, 0)
    classifier = quantised.classes is not None
    expected = (quantised.predict_logit if classifier else quantised.predict)(rows, return_std=True)
    expected_mean, expected_std = (np.reshape(a, (len(rows), k)) for a in expected)
    size = np.abs(expected_mean).mean()
    np.testing.assert_allclose(mean, expected_mean, rtol=rtol, atol=1e-3 * rtol * size)
    np.testing.assert_allclose(std, expected_std, rtol=rtol)
    if classifier:
        np.testing.assert_allclose(numbers[:, 6 * k :], quantised.predict_proba(rows), rtol=rtol, atol=1e-14)
    intervals = quantised.predict_logit_interval if classifier else quantised.predict_interval
    wanted = [*intervals(rows), *quantised.predict_function_interval(rows)]
    for got, end in zip((lower, upper, low, high), wanted, strict=True):
        np.testing.assert_allclose(got, np.reshape(end, (len(rows), k)), rtol=rtol, atol=1e-3 * rtol * size)


@needs_cc
@pytest.mark.parametrize(
    ("estimator", "target", "options"),
    [
        (lambda s: s.regressor("fourier", basis="raw"), "two", {}),  # normal scores of the inputs
        (lambda s: s.regressor("fourier"), "two", {}),  # rotated, a block for each output
        (lambda s: s.regressor("linear", basis="raw", n_levels=7), "y", {"layout": "sparse"}),
        (lambda s: s.regressor("precomputed", basis="raw", n_levels=7), "y", {}),
        (lambda s: s.regressor("polynomial", basis="raw", prior="spike_and_slab"), "y", {"layout": "sparse"}),
        (lambda s: s.regressor("polynomial", n_levels=31), "y", {}),
        (lambda s: s.classifier("fourier", basis="raw"), "sign", {}),
        (lambda s: s.classifier("linear"), "three", {}),
        (lambda s: s.network((3, 2)), "y", {}),
    ],
    ids=["scores", "rotated", "linear", "columns", "polynomial", "rotated polynomial", "two", "three", "network"],
)
def test_float_headers_of_all_kinds(tmp_path, small, estimator, target, options):
    quantised = quantize(small(estimator(small), target), 5, **options)
    quantised.to_c(tmp_path / "model.h", prefix="m")
    rows = far_and_near(small.X, 20)[:-2].astype(float)
    output = compile_and_run(tmp_path, FLOAT_MAIN, rows, "-fsanitize=undefined", "-fno-sanitize-recover")
    check_floats(quantised, output, rows, 1e-6)


@needs_cc
def test_single_precision_header_agrees_to_its_rounding(tmp_path, fitted):
    model, X = fitted("yacht")
    quantised = quantize(model, 8)
    quantised.to_c(tmp_path / "model.h", prefix="m", real="float", X=X)
    # An input rounded to single precision moves a phase by its own rounding.
    rows = X[:30].astype(np.float32).astype(float)
    output = compile_and_run(tmp_path, FLOAT_MAIN, rows, "-Wdouble-promotion").astype(float)
    np.testing.assert_allclose(output[:, 0], quantised.predict(rows), atol=1e-3 * np.std(quantised.predict(rows)))
    np.testing.assert_allclose(output[:, 1], quantised.predict(rows, return_std=True)[1], rtol=1e-3)


@needs_cc
def test_single_precision_networks_stay_finite_however_far_the_row(tmp_path, small):
    quantised = quantize(small(small.network((3, 2))), 4)
    quantised.to_c(tmp_path / "model.h", prefix="m", real="float", X=small.X)
    spread = small.X.std(axis=0)
    rows = (small.X[:6] + spread * np.geomspace(1, 1e30, 6)[:, None]).astype(np.float32).astype(float)
    output = compile_and_run(tmp_path, FLOAT_MAIN, rows).astype(float)
    assert np.isfinite(output).all()
    np.testing.assert_allclose(output[0, 1], quantised.predict(rows[:1], return_std=True)[1][0], rtol=1e-2)
    assert re.search(r"1 outputs, \d+ weights; float arithmetic", (tmp_path / "model.h").read_text())


# --------------------------------------------------------------------------------- every layout of the arithmetic


def random_program(rng, *, bits=4, feature_bits=16, frequency=np.int16, shifts=False, fourier=9, linear=2, constant=1,
                   n_samples=5, n_outputs=1, zeros=0.0):  # fmt: skip
    """An integer program of any numbers whose sums fit; its packed codes."""
    d = 4
    n_features = 2 * fourier + linear + constant
    n_levels = min(2**bits, 15 if shifts else 40)
    if shifts:
        multipliers = np.array([0, *(s * 2**k for k in range(n_levels) for s in (1, -1))])[:n_levels]
    else:
        multipliers = np.arange(n_levels) - n_levels // 2
    zero = int(np.flatnonzero(multipliers == 0)[0])
    codes = rng.integers(0, n_levels, (n_features, n_samples * n_outputs)).astype(np.uint8)
    codes[rng.random(codes.shape) < zeros] = zero
    edges = np.cumsum([0, 2 * fourier, linear, constant])
    kinds = zip(("fourier", "linear", "constant"), edges[:-1], edges[1:], (-3, 2, 1), (4, 3, 1), strict=True)
    limits = np.iinfo(frequency)
    program = IntegerProgram(
        n_features_in=d + 2,
        columns=np.sort(rng.choice(d + 2, d, replace=False)).astype(np.int32),
        origin=rng.standard_normal(d).astype(np.float32),
        multiplier=(4096 * rng.uniform(0.3, 2, d)).astype(np.float32),
        limit=np.full(d, 32767, dtype=np.int32),
        frequencies=rng.integers(limits.min + 1, limits.max, (fourier, d), endpoint=True).astype(frequency),
        phase_shift=rng.integers(0, 20, d).astype(np.uint8),
        linear=np.sort(rng.choice(d, linear, replace=False)).astype(np.int32),
        linear_limit=20480,
        groups=tuple(Group(kind, int(a), int(b), gain, shift) for kind, a, b, gain, shift in kinds if b > a),
        feature_bits=feature_bits,
        codes=codes,
        multipliers=multipliers.astype(np.int32),
        n_outputs=n_outputs,
        n_samples=n_samples,
        scale=rng.standard_normal(n_outputs),
        offset=rng.standard_normal(n_outputs),
        noise=rng.integers(0, 2**40, n_outputs).astype(np.uint64),
        deviation_shift=int(rng.integers(0, 8)),
        std_scale=rng.random(n_outputs) + 0.1,
    )
    return program, PackedCodes.pack(codes, bits, zero, "sparse" if zeros else "dense")


LAYOUTS = [
    {"bits": 4, "zeros": 0.93, "fourier": 60},
    {"bits": 4, "n_outputs": 2, "feature_bits": 8, "frequency": np.int8, "shifts": True},
    {"bits": 3, "frequency": np.int32, "linear": 0, "constant": 0},
    {"bits": 2, "feature_bits": 8, "fourier": 0, "linear": 3, "n_outputs": 3},
    {"bits": 8, "n_samples": 1},
    {"bits": 8, "zeros": 0.995, "shifts": True, "fourier": 200, "n_outputs": 2},
    {"bits": 3, "zeros": 0.5, "feature_bits": 8, "constant": 0},
]


@needs_cc
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: ", ".join(f"{k} {v}" for k, v in layout.items()))
def test_every_layout_is_bit_for_bit(tmp_path, layout):
    rng = np.random.default_rng(3)
    program, packed = random_program(rng, **layout)
    rows = (4 * rng.standard_normal((50, program.n_features_in))).astype(np.float32)
    rows[0], rows[1] = 1e30, -1e30
    body = integer_body(program, packed, rows[:4], 0.9)
    (tmp_path / "model.h").write_text(header("test", body, "m"))
    # The two with most of the code: sparse and dense, sums and shifts.
    sanitizers = ["-fsanitize=undefined", "-fno-sanitize-recover"] if layout in LAYOUTS[:2] else []
    output = compile_and_run(tmp_path, INTEGER_MAIN, rows, *sanitizers)
    check_integers(program, output, rows)


NETWORKS = [
    ((3, 2), {}, "two", "dense", ["-fsanitize=undefined,address", "-fno-sanitize-recover"]),
    ((3,), {"n_levels": 5}, "y", "sparse", []),
    # Shared levels, −1, 0 and 1.
    ((2, 1, 1), {"n_levels": 3, "n_regrids": 0, "bias": False}, "y", "dense", []),
    ((4, 3), {"n_levels": 5, "n_regrids": 0}, "two", "sparse", []),
]


@needs_cc
@pytest.mark.parametrize(
    ("sizes", "options", "target", "layout", "flags"), NETWORKS, ids=["two layers", "sparse", "bare", "shared"]
)
def test_integer_headers_of_networks(tmp_path, small, sizes, options, target, layout, flags):
    model = small(small.network(sizes, **options), target)
    quantised = quantize(model, 3, X=small.X, arithmetic="integer", layout=layout)
    quantised.to_c(tmp_path / "model.h", prefix="m", X=small.X)
    rows = far_and_near(small.X, 20)
    check_integers(quantised.program, compile_and_run(tmp_path, INTEGER_MAIN, rows, *flags), rows)
    assert stored_bytes((tmp_path / "model.h").read_text()) == quantised.n_bytes


C_SIZES = {
    "int8_t": 1,
    "uint8_t": 1,
    "int16_t": 2,
    "uint16_t": 2,
    "int32_t": 4,
    "uint32_t": 4,
    "int64_t": 8,
    "uint64_t": 8,
    "float": 4,
    "double": 8,
}


def stored_bytes(text):
    """Bytes of all tables of a header but those of its self-test."""
    tables = re.findall(r"static const (\w+) m_(\w+)\[(\d+)\]", text)
    return sum(C_SIZES[kind] * int(count) for kind, name, count in tables if not name.startswith("test_"))


@pytest.mark.parametrize(
    ("features", "options"),
    [
        ("fourier", {"levels": "model"}),
        ("fourier", {"levels": "even", "feature_bits": 8, "frequency_bits": 8}),
        ("fourier", {"levels": "even", "n_levels": 3}),  # all of them powers of two
        ("fourier", {"levels": "even", "n_levels": 7, "layout": "dense"}),  # three bits
        ("fourier", {"levels": "power_of_two", "frequency_bits": 32}),
        ("linear", {"levels": "model"}),
        ("arbitrary levels", {"levels": "model"}),
    ],
)
def test_tables_take_the_bytes_that_the_report_says(tmp_path, fitted, small, features, options):
    if features == "fourier":
        model, X = fitted("housing")
    elif features == "linear":
        model, X = small(small.regressor("linear", basis="raw", rank_inputs=False)), small.X
    else:
        levels = {"levels": [[-1.0, -0.3, 0.0, 0.17, 0.9]], "rank_inputs": False}
        model, X = small(small.regressor("fourier", basis="raw", **levels)), small.X
    quantised = quantize(model, 8, arithmetic="integer", X=X[:200], **options)
    quantised.to_c(tmp_path / "model.h", prefix="m")
    text = (tmp_path / "model.h").read_text()
    assert ("m_phase_shift[" in text) == (features != "linear")
    assert stored_bytes(text) == quantised.n_bytes


@needs_cc
def test_classifiers_in_integers_tell_class_and_probabilities(tmp_path, small):
    for target in ("sign", "three"):
        model = small(small.classifier("fourier", basis="raw", rank_inputs=False), target)
        quantised = quantize(model, 6, arithmetic="integer")
        quantised.to_c(tmp_path / "model.h", prefix="m")
        rows = far_and_near(small.X, 15)[:-2]
        output = compile_and_run(tmp_path, INTEGER_MAIN, rows, "-DM_WITH_MATH")
        classes = check_integers(quantised.program, output, rows).astype(float)
        exact = rows.astype(float)
        np.testing.assert_array_equal(quantised.classes[classes[:, 0].astype(int)], quantised.predict(exact))
        np.testing.assert_allclose(classes[:, 1:], quantised.predict_proba(exact), rtol=1e-6, atol=1e-14)


@needs_cc
@pytest.mark.parametrize("target", ["two", "sign", "three"])
def test_headers_of_budgets_for_outputs_and_classes(tmp_path, small, target):
    estimator = pydirect.DirectRegressor() if target == "two" else pydirect.DirectClassifier()
    model = pydirect.fit_within(estimator, small.X, small.targets[target], max_bytes=700)
    model.to_c(tmp_path / "model.h", prefix="m", level=0.8)
    rows = far_and_near(small.X, 15)
    output = compile_and_run(tmp_path, INTEGER_MAIN, rows, "-DM_WITH_MATH")
    rest = check_integers(model.program, output, rows, 0.8).astype(float)
    if target != "two":
        near = rows[:-2].astype(float)
        np.testing.assert_array_equal(model.classes[rest[:-2, 0].astype(int)], model.predict(near))
        np.testing.assert_allclose(rest[:-2, 1:], model.predict_proba(near), rtol=1e-6, atol=1e-14)


@needs_cc
@pytest.mark.parametrize("kind", ["linear", "network"])
def test_integers_of_sensors_are_taken_as_they_are(tmp_path, fitted, small, kind):
    model, X = fitted("yacht") if kind == "linear" else (small(small.network((3,))), small.X)
    quantised = quantize(model, 4, X=X, arithmetic="integer")
    program = quantised.program
    per_unit = 1000 / X.std(axis=0)
    quantised.to_c(tmp_path / "model.h", prefix="m", counts_per_unit=per_unit, zero_count=-7)
    counts = np.rint(per_unit * X[:30] - 7).astype(np.int64)
    counts[0] = 2**31 - 1
    counts[1] = -(2**31)
    main = INTEGER_MAIN.replace("float x[", "int32_t x[").replace('"%f", x + i', '"%" SCNd32, x + i')
    main = main.replace("#include <stdio.h>", "#include <inttypes.h>\n#include <stdio.h>")
    main = re.sub(r"m_predict\w*\(x, \w+, \w+\);", "", main).replace("m_quantise(x", "m_quantise_counts(x")
    for name in ("mean", "std", "lower", "upper", "low", "high"):
        main = main.replace(f"{name}[i]", "0.0").replace(f", {name}[M_N_OUTPUTS]", "")
    main = main.replace("double mean[M_N_OUTPUTS];", "").replace("double low[M_N_OUTPUTS];", "")
    output = compile_and_run(tmp_path, main, counts)
    raw = RawInputs.of(program, per_unit, -7)
    q = raw.quantise(counts[:, program.columns])
    totals = program.totals_of_features(program.features(q))
    np.testing.assert_array_equal(output[:, : program.n_columns].astype(np.int64), totals[:, 0])


# ------------------------------------------------------------------------------------------------ other compilers


@needs_cc
def test_headers_without_floating_point_in_cpp_and_on_avr(tmp_path, small):
    """AVR's instructions for flash are replaced by ordinary reads: what is tested is that all reads go through them."""
    model = small(small.regressor("fourier", basis="raw", rank_inputs=False))
    quantize(model, 4, arithmetic="integer").to_c(tmp_path / "model.h", prefix="m")
    (tmp_path / "avr").mkdir()
    (tmp_path / "avr" / "pgmspace.h").write_text(
        "#define PROGMEM\n"
        "#define pgm_read_byte(a) (*(const uint8_t *)(a))\n#define pgm_read_word(a) (*(const uint16_t *)(a))\n"
        "#define pgm_read_dword(a) (*(const uint32_t *)(a))\n#define pgm_read_float(a) (*(const float *)(a))\n"
    )
    (tmp_path / "main.c").write_text(SELF_TEST_MAIN)
    for flags in (["-DM_NO_FLOAT"], ["-D__AVR__", f"-I{tmp_path}"], ["-O3", "-march=native", "-ffp-contract=off"]):
        run_checked(["cc", *STRICT, *flags, "-o", tmp_path / "main", tmp_path / "main.c"])
        run_checked([tmp_path / "main"])
    if shutil.which("c++"):
        strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
        run_checked(["c++", *strict, "-x", "c++", tmp_path / "main.c", "-o", tmp_path / "main"])
        run_checked([tmp_path / "main"])


@needs_arm
@pytest.mark.parametrize("kind", ["linear", "network"])
def test_integer_headers_need_no_library_on_a_cortex_m4(tmp_path, fitted, small, kind):
    model, X = fitted("airfoil") if kind == "linear" else (small(small.network((4, 3))), small.X)
    quantize(model, 16, X=X[:100], arithmetic="integer").to_c(tmp_path / "model.h", prefix="m", X=X)
    (tmp_path / "main.c").write_text(
        '#include "model.h"\nint32_t f(const m_input *q, int32_t *t);\nint32_t f(const m_input *q, int32_t *t)\n'
        "{\n    m_totals(q, t);\n    return (int32_t)m_root(t, 0, 1) + m_quantile(t, 0, 6554) + m_self_test();\n}\n"
    )
    flags = [*STRICT, "-mcpu=cortex-m4", "-mthumb", "-Os", "-ffreestanding", "-DM_NO_FLOAT"]
    run_checked(["arm-none-eabi-gcc", *flags, "-c", tmp_path / "main.c", "-o", tmp_path / "main.o"])
    assert run_checked(["arm-none-eabi-nm", "-u", tmp_path / "main.o"]).split() == []


@needs_arm
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="no qemu-system-arm")
@pytest.mark.parametrize("kind", ["integer", "float", "network"])
def test_headers_pass_their_self_test_on_an_emulated_cortex_m4(tmp_path, fitted, small, kind):
    model, X = (small(small.network((4, 3))), small.X) if kind == "network" else fitted("concrete")
    arithmetic = "float" if kind == "float" else "integer"
    quantize(model, 16, X=X[:100], arithmetic=arithmetic).to_c(tmp_path / "model.h", prefix="m", X=X)
    (tmp_path / "main.c").write_text(SELF_TEST_MAIN)
    # A core of this kind begins with the stack and the address to start at.
    (tmp_path / "start.c").write_text(
        "#include <stdint.h>\nextern void _start(void);\n"
        '__attribute__((section(".vectors"), used)) static const uintptr_t vectors[2] = {0x20010000u, '
        "(uintptr_t)_start};\n"
    )
    probe = subprocess.run(
        ["arm-none-eabi-gcc", "--specs=rdimon.specs", "-x", "c", "-", "-o", tmp_path / "probe"],
        input="int main(void) { return 0; }", capture_output=True, text=True,
    )  # fmt: skip
    if probe.returncode:
        pytest.skip("arm-none-eabi-gcc has no library for semihosting (rdimon)")
    target = ["-mcpu=cortex-m4", "-mthumb", "-Os", "--specs=rdimon.specs", "-Wl,--section-start=.vectors=0"]
    sources = [tmp_path / "main.c", tmp_path / "start.c"]
    run_checked(["arm-none-eabi-gcc", *STRICT, *target, *sources, "-o", tmp_path / "main.elf", "-lm"])
    machine = ["-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    run_checked(["qemu-system-arm", *machine, "-kernel", tmp_path / "main.elf"])


# ------------------------------------------------------------------------------------------------------- refusals


def test_the_self_test_finds_a_changed_table(tmp_path, small):
    model = small(small.regressor("linear", basis="raw"))
    quantize(model, 4, arithmetic="integer").to_c(tmp_path / "model.h", prefix="m")
    text = (tmp_path / "model.h").read_text()
    begin = text.index("m_codes[")
    changed = text[:begin] + re.sub(r"(\{\s*)(\d+)", lambda m: m[1] + str(int(m[2]) ^ 0x11), text[begin:], count=1)
    assert changed != text
    if shutil.which("cc"):
        (tmp_path / "model.h").write_text(changed)
        (tmp_path / "main.c").write_text(SELF_TEST_MAIN)
        run_checked(["cc", *STRICT, "-o", tmp_path / "main", tmp_path / "main.c"])
        assert subprocess.run([tmp_path / "main"]).returncode != 0


def test_sums_that_could_overflow_are_refused(tmp_path):
    program, packed = random_program(np.random.default_rng(0), bits=8, shifts=True, n_samples=2)
    object.__setattr__(program, "multipliers", np.where(program.multipliers, 2**15, 0).astype(np.int32))
    object.__setattr__(program, "codes", np.ones_like(program.codes))
    with pytest.raises(AccumulatorOverflowError, match="could reach"):
        integer_body(program, packed, np.zeros((1, program.n_features_in), dtype=np.float32), 0.9)


@needs_cc
@pytest.mark.parametrize(("offset", "real"), [(0.0, "double"), (1000.0, "float"), (1e6, "double")])
def test_the_self_test_finds_a_wrong_deviation_beside_any_mean(tmp_path, small, offset, real):
    model = quantize(small(small.regressor("linear", basis="raw", rank_inputs=False)), 4)
    units = {"scale": model.scale / model.scale, "offset": np.array([offset]), "noise": np.array([0.01])}
    replace(model, **units).to_c(tmp_path / "model.h", prefix="m", real=real)
    text = (tmp_path / "model.h").read_text()
    (tmp_path / "main.c").write_text(SELF_TEST_MAIN)
    changed = re.sub(r"(m_noise\[1\] = \{\s*)[^}\s]+", r"\g<1>0.0", text)
    assert changed != text
    for header_text, fails in ((text, False), (changed, True)):
        (tmp_path / "model.h").write_text(header_text)
        run_checked(["cc", "-std=c99", "-o", tmp_path / "main", tmp_path / "main.c", "-lm"])
        assert bool(subprocess.run([tmp_path / "main"]).returncode) == fails


@needs_cc
def test_two_models_of_one_prefix_do_not_compile_together(tmp_path, small):
    for name, n_samples in (("a", 2), ("b", 3)):
        model = quantize(small(small.regressor("linear", basis="raw", rank_inputs=False)), n_samples)
        model.to_c(tmp_path / f"{name}.h", prefix="m")
    for second, compiles in (("a", True), ("b", False)):
        (tmp_path / "main.c").write_text(f'#include "a.h"\n#include "{second}.h"\nint main(void) {{ return 0; }}\n')
        run = subprocess.run(
            ["cc", "-c", "-o", tmp_path / "main.o", tmp_path / "main.c"], capture_output=True, text=True
        )
        assert (run.returncode == 0) == compiles
        assert ("another model of this prefix" in run.stderr) != compiles


@pytest.mark.parametrize("real", ["float", "double"])
def test_float_headers_state_the_bytes_of_their_tables(tmp_path, small, real):
    for options in ({"basis": "raw", "rank_inputs": False}, {}):
        quantize(small(small.regressor("fourier", **options)), 4).to_c(tmp_path / "model.h", prefix="m", real=real)
        text = (tmp_path / "model.h").read_text().replace(" m_real ", f" {real} ")
        assert f"tables: {stored_bytes(text)} bytes" in text


def test_units_beyond_single_precision_are_refused(tmp_path, small):
    model = quantize(small(small.regressor("fourier", basis="raw", rank_inputs=False)), 4)
    m = model.basis.input_map

    def inputs(factor):
        return replace(
            model, basis=replace(model.basis, input_map=replace(m, mean=m.mean * factor, scale=m.scale * factor))
        )

    def outputs(factor):
        units = {"scale": model.scale * factor, "noise": model.noise * factor**2}
        return replace(model, **units, offset=model.offset * factor)

    for other, message in (
        (outputs(1e-22), "squared units of the outputs must be between 1e-36 and 1e\\+36 in single precision"),
        (outputs(1e25), "squared units of the outputs"),
        (replace(model, noise=np.array([1e-40])), "noise variances"),
        (replace(model, offset=np.array([1e37])), "offsets of the outputs"),
        (inputs(1e-60), "scales of the columns"),
        (inputs(1e60), "scales of the columns.*scale X"),
    ):
        with pytest.raises(ValueError, match=message):
            other.to_c(tmp_path / "model.h", real="float")
        with pytest.raises(ValueError, match=message):
            other.to_onnx(tmp_path / "model.onnx", dtype=np.float32)
        other.to_c(tmp_path / "double.h", real="double")  # which holds them
    with pytest.raises(ValueError, match=r"X must be at most 3\.4e\+38 in magnitude"):
        model.to_c(tmp_path / "model.h", real="float", X=small.X * 1e300)
    assert not (tmp_path / "model.h").exists()


def test_more_than_the_counters_of_headers_can_count_is_refused(tmp_path, small, monkeypatch):
    model = quantize(small(small.regressor("linear", basis="raw", rank_inputs=False)), 2)
    assert LARGEST_COUNT == np.iinfo(np.uint16).max
    monkeypatch.setattr("pydirect.quantized.export.c_source.LARGEST_COUNT", 2)
    for arithmetic in ("float", "integer"):
        with pytest.raises(ValueError, match="n_features_in must be at most 2 in exported code, got 3"):
            model.using(arithmetic).to_c(tmp_path / "model.h")


def test_options_of_floating_point_are_refused_for_integers(tmp_path, small):
    model = quantize(small(small.regressor("linear", basis="raw", rank_inputs=False)), 4, arithmetic="integer")
    with pytest.raises(ValueError, match="real must be 'double' in integer arithmetic"):
        model.to_c(tmp_path / "model.h", real="float")
    with pytest.raises(ValueError, match="dtype must be float64 in integer arithmetic"):
        model.to_onnx(tmp_path / "model.onnx", dtype=np.float32)
    for columns in (["a", "b"], ["a", "b", 3]):
        with pytest.raises(ValueError, match="columns must be 3 names"):
            model.to_c(tmp_path / "model.h", columns=columns)


def test_what_has_no_form_in_c_is_refused_with_a_hint(tmp_path, small):
    path = tmp_path / "model.h"
    with pytest.raises(ValueError, match="fit with features='fourier'"):
        quantize(small(small.regressor("nystroem")), 4).to_c(path)
    model = quantize(small(small.regressor("linear", basis="raw")), 4)
    for prefix in ("1m", "", "a-b", 3):
        with pytest.raises(ValueError, match="prefix must be"):
            model.to_c(path, prefix=prefix)
    with pytest.raises(ValueError, match="level must be"):
        model.to_c(path, level=1.0)
    with pytest.raises(ValueError, match="counts_per_unit must be None"):
        model.to_c(path, counts_per_unit=3.0)
    constant = pydirect.DirectRegressor("linear", basis="raw").fit(np.ones((9, 1)), np.arange(9.0))
    with pytest.raises(ValueError, match="must depend on an input"):
        quantize(constant, 4).to_c(path)
    assert not path.exists()


def test_headers_say_what_they_are_and_two_fit_into_one_program(tmp_path, small):
    model = quantize(small(small.classifier("linear", basis="raw"), "three"), 4, arithmetic="integer")
    model.to_c(tmp_path / "a.h", prefix="first_model", columns=["length", "wi*/dth", "height"])
    text = (tmp_path / "a.h").read_text()
    assert "Digest of what follows: " in text and "x[0] = length" in text and "class 2 = 2" in text
    assert f"{model.n_bytes} bytes" in text
    assert not re.search(r"\b(pd|PD)_", text) and "//@" not in text
    names = set(re.findall(r"^(?:static|#define|typedef)[^\n]*?\b((?:first_model|FIRST_MODEL)_\w+)", text, re.M))
    assert len(names) > 30
    if shutil.which("cc"):
        model.to_c(tmp_path / "b.h", prefix="second")
        main = (
            '#include "a.h"\n#include "b.h"\nint main(void) { return first_model_self_test() + second_self_test(); }\n'
        )
        (tmp_path / "main.c").write_text(main)
        run_checked(["cc", *STRICT, "-o", tmp_path / "main", tmp_path / "main.c"])
        run_checked([tmp_path / "main"])


def test_names_of_columns_stay_as_they_are_but_for_marks_of_comments(tmp_path, small):
    model = quantize(small(small.regressor("linear", basis="raw")), 4, arithmetic="integer")
    model.to_c(tmp_path / "model.h", prefix="m", columns=["a/*b pd_x", "PD_y*/", "/*/"])
    text = (tmp_path / "model.h").read_text()
    for line in ("x[0] = a/ *b pd_x", "x[1] = PD_y* /", "x[2] = / * /", "M_NO_FLOAT defined there is"):
        assert line in text
    if shutil.which("cc"):
        (tmp_path / "main.c").write_text(SELF_TEST_MAIN)
        run_checked(["cc", *STRICT, "-o", tmp_path / "main", tmp_path / "main.c"])
        run_checked([tmp_path / "main"])


def test_names_hold_no_trigraphs(tmp_path, small):
    model = quantize(small(small.regressor("fourier", basis="raw", rank_inputs=False)), 4, arithmetic="integer")
    model.to_c(tmp_path / "model.h", columns=["what??/", "a????=b", "c"])
    assert "??" not in (tmp_path / "model.h").read_text()


def test_a_prefix_stays_as_it_is(tmp_path, small):
    model = quantize(small(small.regressor("fourier", basis="raw", rank_inputs=False)), 4, arithmetic="integer")
    model.to_c(tmp_path / "model.h", prefix="boilerModel")
    text = (tmp_path / "model.h").read_text()
    assert "boilerModel_predict(" in text and "#define BOILERMODEL_N_SAMPLES" in text


@needs_cc
@pytest.mark.parametrize("kind", ["linear", "network"])
def test_headers_without_codes_compile(tmp_path, small, kind):
    if kind == "linear":
        model = quantize(small(small.regressor("linear", rank_inputs=False)), 4)
    else:
        network = small(small.network((2,), n_regrids=0, bias=False))
        model = quantize(network, 4, X=small.X, arithmetic="integer")
    packed = PackedCodes.pack(np.full_like(model.codes, 1), 2, 1)
    zero = replace(model, packed=packed, levels=np.array([-1.0, 0.0, 1.0]), centre=0 * model.centre)
    assert zero.packed.n_bytes == 0
    zero.to_c(tmp_path / "model.h", prefix="m")
    (tmp_path / "main.c").write_text(SELF_TEST_MAIN)
    for flag in ("-O0", "-O2"):
        run_checked(["cc", *STRICT, flag, "-o", tmp_path / "main", tmp_path / "main.c", "-lm"])
    run_checked([tmp_path / "main"])


@needs_cc
@pytest.mark.parametrize("flag", ["-O2", "-O3"])
def test_networks_of_one_sample_compile_without_a_warning_when_optimised(tmp_path, small, flag):
    model = quantize(small(small.network((3, 2))), 1, X=small.X, arithmetic="integer")
    model.to_c(tmp_path / "model.h", prefix="m")
    (tmp_path / "main.c").write_text(
        '#include "model.h"\nint main(void)\n{\n    float x[3] = {0, 0, 0};\n    double mean[1], std[1];\n'
        "    m_predict(x, mean, std);\n    return (int)mean[0];\n}\n"
    )
    run_checked(["cc", *STRICT, flag, "-c", "-o", tmp_path / "main.o", tmp_path / "main.c"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counts_per_unit": [1.0, 2.0]}, r"counts_per_unit must have shape \(3,\), got \(2,\)"),
        ({"counts_per_unit": np.nan}, "counts_per_unit must be finite"),
        ({"counts_per_unit": 0.0}, "counts_per_unit must not be zero"),
        ({"counts_per_unit": 1.0, "zero_count": np.inf}, "zero_count must be finite"),
        ({"zero_count": 3.0}, "zero_count must come with counts_per_unit"),
    ],
)
def test_counts_are_checked(tmp_path, small, options, message):
    model = quantize(small(small.regressor("fourier", basis="raw", rank_inputs=False)), 4, arithmetic="integer")
    with pytest.raises(ValueError, match=message):
        model.to_c(tmp_path / "model.h", **options)


def test_template_conditions_nest():
    whole = template("linear.h", {"fourier", "wide", "linear"})
    assert "//@" not in whole and "pd_phase(" in whole and "PD_READ_16(pd_sine_table" in whole
    assert "pd_phase(" not in template("linear.h", {"linear"})
