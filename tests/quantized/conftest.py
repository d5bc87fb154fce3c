"""Fitted models that tests of quantised models share; those for exporters have the sizes of three UCI problems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from pydirect import DirectClassifier, DirectRegressor, Fourier, Sequential
from pydirect.direct.sequential import CoarseLevelsWarning

SHAPES = {"yacht": (308, 6), "housing": (506, 13), "airfoil": (1503, 5)}


def problem(name):
    """X and y: the real ones when PYDIRECT_DATA names their folder, otherwise synthetic ones of the same shape."""
    folder = os.environ.get("PYDIRECT_DATA")
    if folder and (path := Path(folder) / "uci" / f"{name}.npz").exists():
        data = np.load(path, allow_pickle=False)
        return data["X"], data["y"]
    n, d = SHAPES[name]
    rng = np.random.default_rng(n)
    z = rng.standard_normal((n, d))
    y = np.sin(2 * z[:, 0]) + z[:, 1] * z[:, 2] + 0.5 * z[:, -1] + 0.1 * rng.standard_normal(n)
    return z * np.geomspace(0.01, 100, d) + np.linspace(-500, 500, d), 30 + 12 * y


def quietly(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", CoarseLevelsWarning)  # of 40 features of many rows
        return fit()


@pytest.fixture(scope="session")
def fitted():
    """Function from a problem's name to a regressor on Fourier features in the raw basis, and its X."""
    found = {}

    def get(name):
        if name not in found:
            X, y = problem(name)
            posterior = Sequential(level_scales="own")  # integers, whatever the data determine
            model = DirectRegressor(Fourier(rank_inputs=False, max_search_rows=60), 40, posterior=posterior)
            found[name] = quietly(lambda: model.fit(X, y)), X
        return found[name]

    return get


@pytest.fixture(scope="session")
def small():
    """Function that fits an estimator to a small problem: ``small(make, target)``; X is ``small.X``."""
    X, y = problem("yacht")
    X, y = X[:60, :3], y[:60]
    middle, high = np.quantile(y, [0.4, 0.7])
    targets = {"y": y, "two": np.c_[y, -(y**2)], "sign": y > middle, "three": np.digitize(y, [middle, high])}

    def fit(estimator, target="y"):
        return quietly(lambda: estimator.fit(X, targets[target]))

    fit.X, fit.targets = X, targets
    fit.regressor = lambda features, **options: DirectRegressor(features, 16, **options)
    fit.classifier = lambda features, **options: DirectClassifier(features, 16, **options)
    return fit


# --- small problems

RAW = {"features": Fourier(rank_inputs=False), "posterior": "sequential", "n_basis_functions": 80}


def make_data(n=160, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * np.arange(1, d + 1) + 10
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_normal(n)
    return x, y


def fit_silently(estimator, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(*arguments)


@pytest.fixture(scope="session")
def data():
    """Function that makes X and y: ``data(n, d, seed)``."""
    return make_data


@pytest.fixture(scope="session")
def fit():
    """Function that fits an estimator without warnings: ``fit(estimator, X, y)``."""
    return fit_silently


@pytest.fixture(scope="session")
def raw():
    """Regressor in the raw basis."""
    return fit_silently(DirectRegressor(**RAW), *make_data())


@pytest.fixture(scope="session")
def decorrelated():
    """Regressor in the decorrelated basis."""
    return fit_silently(DirectRegressor(features=Fourier(rank_inputs=False), n_basis_functions=80), *make_data())


# --- compiling exported headers, and comparing what they write with Python

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion"]


# Reads rows of numbers; writes for each the totals, for every output sum, root, moments and intervals, and class and
# probabilities.
INTEGER_MAIN = r"""
#include <stdio.h>
#include "model.h"
int main(void)
{
    double row;
    m_number x[M_N_FEATURES_IN], ends[4][M_N_OUTPUTS];
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
        m_run(x, t);
        m_predict(x, ends[0], ends[1]);
        m_predict_interval(x, ends[2], ends[3]);
        for (i = 0; i < M_N_COLUMNS; ++i) {
            printf("%ld ", (long)t[i]);
        }
        for (i = 0; i < M_N_OUTPUTS; ++i) {
            printf("%ld %lu ", (long)m_sum(t, i), (unsigned long)m_root(t, i));
            for (k = 0; k < 4; ++k) {
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
}


def run_checked(command, **options):
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
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
    """Compare what the integer program in C wrote with a DeviceModel, bit for bit."""
    program, totals = device.program, device.totals(rows)
    n, k = program.n_columns, program.n_outputs
    np.testing.assert_array_equal(output[:, :n].astype(np.int64), totals.reshape(len(rows), -1))
    per_output = output[:, n : n + 6 * k].reshape(len(rows), k, 6)
    results = [program.sums(totals), program.roots(totals), *device.predict(rows), *device.predict_interval(rows)]
    for column, expected in enumerate(results):
        np.testing.assert_array_equal(per_output[:, :, column].astype(np.float64), expected)
    if device.n_classes:
        classes = output[:, n + 6 * k :].astype(np.int64)
        np.testing.assert_array_equal(classes[:, 0], device.predict_class(rows))
        np.testing.assert_array_equal(classes[:, 1:], device.predict_proba(rows))


def far_and_near(X, n=40):
    """Rows of X, rows between and beyond them, and rows at the ends of single precision."""
    rng = np.random.default_rng(1)
    spread = X.mean(axis=0) + 3 * X.std(axis=0) * rng.standard_normal((n, X.shape[1]))
    rows = np.vstack([X[:n], spread, 1e30 * np.ones((1, X.shape[1])), -1e38 * np.ones((1, X.shape[1]))])
    return rows.astype(np.float32)


def stored_bytes(text):
    """Bytes of all tables of a header that predictions read."""
    tables = re.findall(r"static const (\w+) m_(\w+)\[(\d+)\]", text)
    return sum(
        C_SIZES[kind] * int(count) for kind, name, count in tables if not name.startswith(("test_", "interval_"))
    )


@pytest.fixture
def c():
    """Main programs, and functions that compile and compare."""
    return SimpleNamespace(
        STRICT=STRICT,
        INTEGER_MAIN=INTEGER_MAIN,
        SELF_TEST_MAIN=SELF_TEST_MAIN,
        run_checked=run_checked,
        compile_and_run=compile_and_run,
        check_integers=check_integers,
        far_and_near=far_and_near,
        stored_bytes=stored_bytes,
    )
