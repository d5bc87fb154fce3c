"""Exported C of integer programs gives the integers of Python, bit for bit."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pydirect import Fourier, Sequential
from pydirect.quantized.c_header import header, integer_body
from pydirect.quantized.codes import PackedCodes
from pydirect.quantized.device import DeviceModel
from pydirect.quantized.program import SINGLE_NOISE, IntegerProgram
from pydirect.quantized.quantize import quantize

SANITIZED = ["-fsanitize=undefined", "-fno-sanitize-recover"]
PROBLEMS = ["yacht", "housing", "airfoil"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_integer_header_gives_the_integers_of_python(tmp_path, c, fitted, name):
    model, X = fitted(name)
    quantised = quantize(model, 16, arithmetic="integer", X=X[:100])
    quantised.to_c(tmp_path / "model.h", prefix="m", X=X)
    assert "double" not in (tmp_path / "model.h").read_text()
    rows = c.far_and_near(X)
    c.check_integers(quantised.on_device(), c.compile_and_run(tmp_path, c.INTEGER_MAIN, rows), rows)
    # and they are what the model predicts
    mean, std = quantised.predict(X[:20].astype(np.float32).astype(float), return_std=True)
    totals = quantised.program.totals(X[:20].astype(np.float32))
    np.testing.assert_array_equal(mean, quantised.program.mean(totals)[:, 0])
    np.testing.assert_array_equal(std, quantised.program.std(totals)[:, 0])


def random_program(rng, *, bits=4, frequency=np.int16, uneven=False, fourier=9, linear=2, constant=1,
                   n_samples=5, n_outputs=1, total_shift=0):  # fmt: skip
    """An integer program of any numbers whose sums fit; its packed codes."""
    d = 4
    n_basis_functions = 2 * fourier + linear + constant
    n_levels = min(2**bits, 15 if uneven else 40)
    if uneven:
        multipliers = np.array([0, *(s * 2**k for k in range(n_levels) for s in (1, -1))])[:n_levels]
    else:
        multipliers = np.arange(n_levels) - n_levels // 2
    codes = rng.integers(0, n_levels, (n_basis_functions, n_samples * n_outputs)).astype(np.uint8)
    limits = np.iinfo(frequency)
    program = IntegerProgram(
        n_features_in=d + 2,
        columns=np.sort(rng.choice(d + 2, d, replace=False)).astype(np.int32),
        origin=rng.standard_normal(d).astype(np.float32),
        multiplier=(4096 * rng.uniform(0.3, 2, d)).astype(np.float32),
        limit=20480,
        frequencies=rng.integers(limits.min + 1, limits.max, (fourier, d), endpoint=True).astype(frequency),
        phase_shift=rng.integers(0, 20, d).astype(np.uint8),
        compared=np.empty((0, 0), dtype=np.int32),
        thresholds=np.empty((0, 0), dtype=np.int16),
        linear=np.sort(rng.choice(d, linear, replace=False)).astype(np.int32),
        gain=np.repeat([-900, 200, 10], [2 * fourier, linear, constant]).astype(np.int32),
        codes=codes,
        multipliers=multipliers.astype(np.int32),
        n_outputs=n_outputs,
        n_samples=n_samples,
        total_shift=total_shift,
        noise=np.full(n_outputs, SINGLE_NOISE if n_samples == 1 else 2**20, dtype=np.uint32),
        deviation_shift=14,
        scale=rng.standard_normal(n_outputs),
        offset=rng.standard_normal(n_outputs),
        std_scale=rng.random(n_outputs) + 0.1,
    )
    return program, PackedCodes.pack(codes, bits)


LAYOUTS = [
    {"bits": 4, "fourier": 60, "total_shift": 3},
    {"bits": 4, "n_outputs": 2, "frequency": np.int8, "uneven": True},
    {"bits": 4, "frequency": np.int32, "linear": 0, "constant": 0},
    {"bits": 2, "fourier": 0, "linear": 3, "n_outputs": 3},
    {"bits": 8, "n_samples": 1},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: ", ".join(f"{k} {v}" for k, v in layout.items()))
def test_every_layout_is_bit_for_bit(tmp_path, c, layout):
    rng = np.random.default_rng(3)
    program, packed = random_program(rng, **layout)
    rows = (4 * rng.standard_normal((50, program.n_features_in))).astype(np.float32)
    rows[0], rows[1] = 1e30, -1e30
    device = DeviceModel.of(program)
    body = integer_body(device, packed, rows[:4])
    (tmp_path / "model.h").write_text(header("test", body, "m"))
    output = c.compile_and_run(tmp_path, c.INTEGER_MAIN, rows, *SANITIZED)
    c.check_integers(device, output, rows)


@pytest.mark.parametrize(
    ("features", "options"),
    [
        ("fourier", {"levels": "model"}),
        ("fourier", {"levels": "even", "n_levels": 3}),
        ("linear", {"levels": "model"}),
        ("arbitrary levels", {"levels": "model"}),
    ],
)
def test_tables_take_the_bytes_that_the_report_says(tmp_path, c, fitted, small, features, options):
    if features == "fourier":
        model, X = fitted("housing")
    elif features == "linear":
        model, X = small(small.regressor("linear", posterior="sequential")), small.X
    else:
        levels = Sequential(n_levels=5, levels=[[-1.0, -0.3, 0.0, 0.17, 0.9]])
        model, X = small(small.regressor(Fourier(rank_inputs=False), posterior=levels)), small.X
    quantised = quantize(model, 8, arithmetic="integer", X=X[:200], **options)
    quantised.to_c(tmp_path / "model.h", prefix="m")
    text = (tmp_path / "model.h").read_text()
    assert ("m_phase_shift[" in text) == (features != "linear")
    assert c.stored_bytes(text) == quantised.n_bytes


@pytest.mark.parametrize("target", ["sign", "three"])
def test_integer_headers_of_classifiers_give_class_and_probabilities(tmp_path, c, small, target):
    model = small(small.classifier(Fourier(rank_inputs=False), posterior="sequential"), target)
    quantised = quantize(model, 6, arithmetic="integer")
    quantised.to_c(tmp_path / "model.h", prefix="m")
    rows, device = c.far_and_near(small.X, 15), quantised.on_device()
    c.check_integers(device, c.compile_and_run(tmp_path, c.INTEGER_MAIN, rows, *SANITIZED), rows)
    near = rows[:-2].astype(float)
    np.testing.assert_array_equal(quantised.classes[device.predict_class(rows[:-2])], quantised.predict(near))
    assert np.abs(device.predict_proba(rows[:-2]) - 2**15 * quantised.predict_proba(near)).max() <= 1


@pytest.mark.parametrize("kind", ["linear", "classes"])
def test_headers_take_counts_of_sensors_and_give_counts_without_floating_point(tmp_path, c, fitted, small, kind):
    classifier = small.classifier(Fourier(rank_inputs=False), posterior="sequential")
    model, X = fitted("yacht") if kind == "linear" else (small(classifier, "three"), small.X)
    quantised = quantize(model, 4, X=X, arithmetic="integer")
    options = {"counts_per_unit": 1000 / X.std(axis=0), "zero_count": -7}
    if kind == "linear":
        options["output_counts_per_unit"] = 2.0**10
    names = [f"column {i}" for i in range(X.shape[1])]
    quantised.to_c(tmp_path / "model.h", prefix="m", X=X, columns=names, **options)
    text, device = (tmp_path / "model.h").read_text(), quantised.on_device(**options)
    assert not re.search("float|double|math.h", text, re.IGNORECASE)
    assert c.stored_bytes(text) == quantised.report(device)["bytes"]["total"]
    rows = device.raw.counts(X[:30])
    np.testing.assert_array_equal(rows, np.rint(options["counts_per_unit"] * X[:30] - 7))
    rows = np.vstack([rows, np.full((1, X.shape[1]), 2**31 - 1), np.full((1, X.shape[1]), -(2**31))])
    c.check_integers(device, c.compile_and_run(tmp_path, c.INTEGER_MAIN, rows, *SANITIZED), rows)
