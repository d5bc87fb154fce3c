"""Exported C of the floating-point path agrees with Python to rounding."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from pydirect import Fourier, Sequential
from pydirect.quantized.quantize import quantize

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: cc")
PROBLEMS = ["yacht", "housing", "energy", "concrete", "airfoil"]


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
@pytest.mark.parametrize("name", PROBLEMS)
def test_float_header_agrees_to_rounding(tmp_path, c, fitted, name):
    model, X = fitted(name)
    quantised = quantize(model, 16)
    quantised.to_c(tmp_path / "model.h", prefix="m", X=X)
    rows = c.far_and_near(X)[:-2].astype(float)
    check_floats(quantised, c.compile_and_run(tmp_path, c.FLOAT_MAIN, rows), rows, 1e-6)


@needs_cc
@pytest.mark.parametrize("name", PROBLEMS[:2])
def test_deviations_near_zero_agree_however_large_the_offset(tmp_path, c, fitted, almost_agreeing, name):
    quantised, row = almost_agreeing(*fitted(name))
    quantised.to_c(tmp_path / "model.h", prefix="m")
    std = c.compile_and_run(tmp_path, c.FLOAT_MAIN, row)[:, 1].astype(float)
    expected = quantised.predict(row, return_std=True)[1]
    np.testing.assert_allclose(std, expected, rtol=1e-6)
    without = replace(quantised, offset=np.zeros(1)).predict(row, return_std=True)[1]
    np.testing.assert_array_equal(expected, without)


@needs_cc
@pytest.mark.parametrize(
    ("estimator", "target", "options"),
    [
        (lambda s: s.regressor("fourier", posterior="sequential"), "two", {}),  # normal scores of the inputs
        (lambda s: s.regressor("fourier"), "two", {}),  # rotated, a block for each output
        (lambda s: s.regressor("linear", posterior=Sequential(n_levels=7)), "y", {"layout": "sparse"}),
        (lambda s: s.regressor("precomputed", posterior=Sequential(n_levels=7)), "y", {}),
        (lambda s: s.regressor("polynomial", posterior=Sequential(prior="spike_and_slab")), "y", {"layout": "sparse"}),
        (lambda s: s.regressor("polynomial"), "y", {}),
        (lambda s: s.classifier("fourier", posterior="sequential"), "sign", {}),
        (lambda s: s.classifier("linear"), "three", {}),
        (lambda s: s.network((3, 2)), "y", {}),
    ],
    ids=["scores", "rotated", "linear", "columns", "polynomial", "rotated polynomial", "two", "three", "network"],
)
def test_float_headers_of_all_kinds(tmp_path, c, small, estimator, target, options):
    quantised = quantize(small(estimator(small), target), 5, **options)
    quantised.to_c(tmp_path / "model.h", prefix="m")
    rows = c.far_and_near(small.X, 20)[:-2].astype(float)
    output = c.compile_and_run(tmp_path, c.FLOAT_MAIN, rows, "-fsanitize=undefined", "-fno-sanitize-recover")
    check_floats(quantised, output, rows, 1e-6)


@needs_cc
def test_single_precision_header_agrees_to_its_rounding(tmp_path, c, fitted):
    model, X = fitted("yacht")
    quantised = quantize(model, 8)
    quantised.to_c(tmp_path / "model.h", prefix="m", real="float", X=X)
    # An input rounded to single precision moves a phase by its own rounding.
    rows = X[:30].astype(np.float32).astype(float)
    output = c.compile_and_run(tmp_path, c.FLOAT_MAIN, rows, "-Wdouble-promotion").astype(float)
    np.testing.assert_allclose(output[:, 0], quantised.predict(rows), atol=1e-3 * np.std(quantised.predict(rows)))
    np.testing.assert_allclose(output[:, 1], quantised.predict(rows, return_std=True)[1], rtol=1e-3)


@needs_cc
def test_single_precision_networks_stay_finite_however_far_the_row(tmp_path, c, small):
    quantised = quantize(small(small.network((3, 2))), 4)
    quantised.to_c(tmp_path / "model.h", prefix="m", real="float", X=small.X)
    spread = small.X.std(axis=0)
    rows = (small.X[:6] + spread * np.geomspace(1, 1e30, 6)[:, None]).astype(np.float32).astype(float)
    output = c.compile_and_run(tmp_path, c.FLOAT_MAIN, rows).astype(float)
    assert np.isfinite(output).all()
    np.testing.assert_allclose(output[0, 1], quantised.predict(rows[:1], return_std=True)[1][0], rtol=1e-2)
    assert re.search(r"1 outputs, \d+ weights; float arithmetic", (tmp_path / "model.h").read_text())


@needs_cc
@pytest.mark.parametrize(("offset", "real"), [(0.0, "double"), (1000.0, "float"), (1e6, "double")])
def test_the_self_test_finds_a_wrong_deviation_beside_any_mean(tmp_path, c, small, offset, real):
    model = quantize(small(small.regressor("linear", posterior="sequential")), 4)
    units = {"scale": model.scale / model.scale, "offset": np.array([offset]), "noise": np.array([0.01])}
    replace(model, **units).to_c(tmp_path / "model.h", prefix="m", real=real)
    text = (tmp_path / "model.h").read_text()
    (tmp_path / "main.c").write_text(c.SELF_TEST_MAIN)
    changed = re.sub(r"(m_noise\[1\] = \{\s*)[^}\s]+", r"\g<1>0.0", text)
    assert changed != text
    for header_text, fails in ((text, False), (changed, True)):
        (tmp_path / "model.h").write_text(header_text)
        c.run_checked(["cc", "-std=c99", "-o", tmp_path / "main", tmp_path / "main.c", "-lm"])
        assert bool(subprocess.run([tmp_path / "main"]).returncode) == fails


@pytest.mark.parametrize("real", ["float", "double"])
def test_float_headers_state_the_bytes_of_their_tables(tmp_path, c, small, real):
    fourier = Fourier(rank_inputs=False)
    for features, options in ((fourier, {"posterior": "sequential"}), ("fourier", {})):
        quantize(small(small.regressor(features, **options)), 4).to_c(tmp_path / "model.h", prefix="m", real=real)
        text = (tmp_path / "model.h").read_text().replace(" m_real ", f" {real} ")
        assert f"tables: {c.stored_bytes(text)} bytes" in text


def test_units_beyond_single_precision_are_refused(tmp_path, small):
    model = quantize(small(small.regressor(Fourier(rank_inputs=False), posterior="sequential")), 4)
    m = model.basis.input_map

    def inputs(factor):
        scaled = replace(m, mean=m.mean * factor, scale=m.scale * factor)
        return replace(model, basis=replace(model.basis, features=replace(model.basis.features, input_map=scaled)))

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
