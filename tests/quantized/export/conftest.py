"""Compiling exported headers, and comparing what they write with Python."""

from __future__ import annotations

import re
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion"]


# Reads rows of numbers; writes for each the totals, for every output sum, root, a quantile, moments and intervals, and
# class and probabilities.
INTEGER_MAIN = r"""
#include <stdio.h>
#include "model.h"
int main(void)
{
    double row;
    m_number x[M_N_FEATURES_IN], ends[6][M_N_OUTPUTS];
    m_input q[M_N_INPUTS];
    int32_t t[M_N_COLUMNS];
    uint16_t i, k;
    if (m_self_test() != 0) {
        return 3;
    }
    for (;;) {
        for (i = 0; i < M_N_FEATURES_IN; ++i) {
            if (scanf("%lf", &row) != 1) {
                return 0;
            }
            x[i] = (m_number)row;
        }
        m_quantise(x, q);
        m_totals(q, t);
        m_predict(x, ends[0], ends[1]);
        m_predict_interval(x, ends[2], ends[3]);
        m_predict_function_interval(x, ends[4], ends[5]);
        for (i = 0; i < M_N_COLUMNS; ++i) {
            printf("%ld ", (long)t[i]);
        }
        for (i = 0; i < M_N_OUTPUTS; ++i) {
            printf("%lld %lu %ld ", (long long)m_sum(t, i), (unsigned long)m_root(t, i), (long)m_quantile(t, i, 6554));
            for (k = 0; k < 6; ++k) {
                printf("%.17g ", (double)ends[k][i]);
            }
        }
#ifdef M_N_CLASSES
        {
            uint16_t p[M_N_CLASSES];
            m_predict_proba(x, p);
            printf("%u ", (unsigned)m_predict_class(x));
            for (i = 0; i < M_N_CLASSES; ++i) {
                printf("%u ", (unsigned)p[i]);
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


def check_integers(device, output, rows):
    """Compare what the integer program in C wrote with a FixedPointModel, bit for bit."""
    program, totals = device.program, device.totals(rows)
    n, k = program.n_columns, program.n_outputs
    np.testing.assert_array_equal(output[:, :n].astype(np.int64), totals.reshape(len(rows), -1))
    per_output = output[:, n : n + 9 * k].reshape(len(rows), k, 9)
    integers = [program.sums(totals), program.roots(totals), program.quantiles(totals, 6554 / 65536)]
    for column, expected in enumerate(integers):
        np.testing.assert_array_equal(per_output[:, :, column].astype(np.int64), expected.astype(np.int64))
    results = [*device.predict(rows), *device.predict_interval(rows), *device.predict_function_interval(rows)]
    unit = (1 / device.counts_per_unit).astype(np.float32)
    for column, expected in enumerate(results, start=3):
        numbers = expected if device.raw is not None else expected.astype(np.float32) * unit
        np.testing.assert_array_equal(per_output[:, :, column].astype(np.float64), numbers)
    if device.probabilities is not None:
        classes = output[:, n + 9 * k :].astype(np.int64)
        np.testing.assert_array_equal(classes[:, 0], device.predict_class(rows))
        np.testing.assert_array_equal(classes[:, 1:], device.predict_proba(rows))


def far_and_near(X, n=40):
    """Rows of X, rows between and beyond them, and rows at the ends of single precision."""
    rng = np.random.default_rng(1)
    spread = X.mean(axis=0) + 3 * X.std(axis=0) * rng.standard_normal((n, X.shape[1]))
    rows = np.vstack([X[:n], spread, 1e30 * np.ones((1, X.shape[1])), -1e38 * np.ones((1, X.shape[1]))])
    return rows.astype(np.float32)


def stored_bytes(text):
    """Bytes of all tables of a header but those of its self-test."""
    tables = re.findall(r"static const (\w+) m_(\w+)\[(\d+)\]", text)
    return sum(C_SIZES[kind] * int(count) for kind, name, count in tables if not name.startswith("test_"))


@pytest.fixture
def c():
    """Main programs, and functions that compile and compare."""
    return SimpleNamespace(
        STRICT=STRICT,
        INTEGER_MAIN=INTEGER_MAIN,
        FLOAT_MAIN=FLOAT_MAIN,
        SELF_TEST_MAIN=SELF_TEST_MAIN,
        run_checked=run_checked,
        compile_and_run=compile_and_run,
        check_integers=check_integers,
        far_and_near=far_and_near,
        stored_bytes=stored_bytes,
    )
