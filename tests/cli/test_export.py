"""``pydirect export``: headers and graphs from model files, with a report of their size."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import pydirect

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.direct.CoarseLevelsWarning")


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, 60))
    colour = rng.choice(["red", "green"], 60)
    y = 1 + 2 * x - z + (colour == "red") + 0.1 * rng.standard_normal(60)
    label = np.where(y > 1, "high", "low")
    lines = [f"{a},{c},{b},{t},{k}" for a, c, b, t, k in zip(x, colour, z, y, label, strict=True)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["x,colour,z,y,label", *lines]))
    return path


@pytest.fixture
def fit(tmp_path, data, capsys, run):
    def command(*options, target="y"):
        drop = "label" if target == "y" else "y"
        path = tmp_path / "m.pydirect"
        fixed = ["--target", target, "--drop", drop, "-o", path, "--test-fraction", "0", "--quiet"]
        assert run("fit", data, *fixed, *options) == 0
        capsys.readouterr()
        return path

    return command


LINEAR = ["--set", "posterior=sequential", "features=linear"]


def test_a_header_is_written_and_reported(tmp_path, fit, data, capsys, run):
    model = fit(*LINEAR)
    assert run("export", model, "-o", tmp_path / "m.h", "--data", data, "--prefix", "plant") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for line in ("integer", "non-zero weights", "instructions per row", "difference"):
        assert line in captured.out
    text = (tmp_path / "m.h").read_text()
    assert "x[1] = colour=green" in text and "plant_predict(" in text
    assert f"{(tmp_path / 'm.h').stat().st_size} bytes" in captured.out
    if shutil.which("cc"):
        (tmp_path / "main.c").write_text('#include "m.h"\nint main(void) { return plant_self_test(); }\n')
        subprocess.run(["cc", "-std=c99", "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
        subprocess.run([tmp_path / "main"], check=True)


def test_the_name_of_the_output_selects_a_graph(tmp_path, fit, capsys, run):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = fit(*LINEAR, target="label")
    assert run("export", path, "-o", tmp_path / "m.onnx", "--samples", "5") == 0
    assert "float arithmetic" in capsys.readouterr().out
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"x": np.zeros((3, 4))})
    assert probabilities.shape == (3, 2)
    model = pydirect.load(path)
    expected = pydirect.quantized.quantize(model, 5).predict_proba(np.zeros((3, 4)))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9)


def test_levels_of_each_weight_need_shared_ones_for_integers(tmp_path, fit, data, capsys, run, assert_refused):
    model = fit("--set", "features=linear")  # decorrelated: levels are the weights' own
    output = tmp_path / "m.h"
    assert_refused("export", model, "-o", output, "--levels", "even", message="--data: limits and new levels need it")
    arguments = ["--levels", "even", "--data", data]
    assert run("export", model, "-o", output, *arguments) == 0
    assert "_multipliers[" not in output.read_text()
    capsys.readouterr()
    assert_refused("export", model, "-o", output, message="integers need levels")


def test_a_budget_is_kept(tmp_path, fit, data, capsys, run, assert_refused):
    model, output = fit(*LINEAR, "target_transform=asinh"), tmp_path / "m.h"
    limits = ["--max-flash", 1900, "--max-stack", 500, "--max-instructions", 9000]
    assert run("export", model, "-o", output, *limits, "--data", data) == 0
    out = capsys.readouterr().out
    assert "integer" in out and "the same; the model's own scale is asinh" in out
    flash, stack, instructions = map(int, re.search(r"about (\d+) .* (\d+) of stack, (\d+)", out).groups())
    assert flash <= 1900 and stack <= 500 and instructions <= 9000
    assert_refused("export", model, "-o", output, "--max-flash", 1200, message="--data: limits and new levels need it")


def test_effects_of_categories_have_no_small_models(tmp_path, run, capsys, assert_refused):
    rng = np.random.default_rng(0)
    x, shop, effects = rng.standard_normal(300), rng.integers(0, 80, 300), rng.standard_normal(80)
    y = x + 2 * effects[shop] + 0.1 * rng.standard_normal(300)
    data, model = tmp_path / "shops.csv", tmp_path / "m.pydirect"
    data.write_text("\n".join(["x,shop,y", *(f"{a},s{b},{c}" for a, b, c in zip(x, shop, y, strict=True))]))
    assert run("fit", data, "--target", "y", "-o", model, "--test-fraction", "0", "--quiet") == 0
    capsys.readouterr()
    arguments = ["-o", tmp_path / "m.h", "--max-flash", 2000, "--data", data]
    assert_refused("export", model, *arguments, message="columns=Columns(effects=False)")
    assert not (tmp_path / "m.h").exists()


@pytest.mark.slow
def test_budgets_of_classes(tmp_path, fit, data, capsys, run, assert_refused):
    output = tmp_path / "m.h"
    classifier = fit(*LINEAR, target="label")
    assert run("export", classifier, "-o", output, "--max-flash", 1450, "--data", data) == 0
    out = capsys.readouterr().out
    assert int(re.search(r"(\d+) bytes \(", out)[1]) <= 600
    assert float(re.search(r"same class as the model for ([\d.]+)%", out)[1]) > 85
    assert "class 1 = low" in output.read_text()
    (tmp_path / "gaps.csv").write_text(data.read_text().replace(",low", ",").replace(",high", ",", 1))
    assert_refused(
        "export", classifier, "-o", output, "--max-flash", 1450, "--data", tmp_path / "gaps.csv", message="label"
    )


def test_a_default_model_gets_a_hint_at_its_exports(tmp_path, fit, assert_refused):
    message = assert_refused("export", fit(), "-o", tmp_path / "m.h", message="")
    assert "OUT.onnx" in message and "--max-flash BYTES --data TABLE" in message


def test_wrong_usage_is_refused(tmp_path, fit, data, assert_refused):
    model = fit(*LINEAR)
    assert_refused("export", model, "-o", model, message="would overwrite another file")
    assert_refused("export", model, "-o", tmp_path / "none" / "m.h", message="existing directory")
    output = tmp_path / "m.h"
    assert_refused("export", model, "-o", output, "--prefix", "1x", message="prefix must be")
    assert_refused("export", model, "-o", output, "--samples", "0", message="n_samples must be")
    assert_refused("export", data, "-o", output, message="not a pydirect file")
    assert not output.exists()


def test_without_onnx_the_extra_is_named(tmp_path, fit, monkeypatch, assert_refused):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    assert_refused("export", fit(*LINEAR), "-o", tmp_path / "m.onnx", message="pydirect[onnx]")
