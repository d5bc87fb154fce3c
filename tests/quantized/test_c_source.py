"""Text of headers, options of exports, and sizes on a device."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

import pydirect
from pydirect import Fourier
from pydirect.quantized.quantize import quantize

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: cc")


needs_arm = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="no arm-none-eabi-gcc")


@pytest.mark.parametrize("counts", [{}, {"counts_per_unit": 100}], ids=["floats", "counts"])
def test_headers_in_cpp_and_on_avr(tmp_path, c, small, counts):
    """AVR's instructions for flash are replaced by ordinary reads: what is tested is that all reads go through them."""
    model = small(small.regressor(Fourier(rank_inputs=False), posterior="sequential"))
    quantize(model, 4, arithmetic="integer").to_c(tmp_path / "model.h", prefix="m", **counts)
    (tmp_path / "avr").mkdir()
    (tmp_path / "avr" / "pgmspace.h").write_text(
        "#define PROGMEM\n"
        "#define pgm_read_byte(a) (*(const uint8_t *)(a))\n#define pgm_read_word(a) (*(const uint16_t *)(a))\n"
        "#define pgm_read_dword(a) (*(const uint32_t *)(a))\n#define pgm_read_float(a) (*(const float *)(a))\n"
    )
    (tmp_path / "main.c").write_text(c.SELF_TEST_MAIN)
    for flags in (["-D__AVR__", f"-I{tmp_path}"], ["-O3", "-march=native", "-ffp-contract=off"]):
        c.run_checked(["cc", *c.STRICT, *flags, "-o", tmp_path / "main", tmp_path / "main.c"])
        c.run_checked([tmp_path / "main"])
    if shutil.which("c++"):
        strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
        c.run_checked(["c++", *strict, "-x", "c++", tmp_path / "main.c", "-o", tmp_path / "main"])
        c.run_checked([tmp_path / "main"])


@needs_arm
def test_integer_headers_need_no_library_on_a_cortex_m4(tmp_path, c, fitted):
    model, X = fitted("airfoil")
    quantised = quantize(model, 16, X=X[:100], arithmetic="integer")
    quantised.to_c(tmp_path / "model.h", prefix="m", X=X, counts_per_unit=100 / X.std(axis=0))
    (tmp_path / "main.c").write_text(
        '#include "model.h"\nint f(const int32_t *x, int32_t *mean, int32_t *std);\n'
        "int f(const int32_t *x, int32_t *mean, int32_t *std)\n"
        "{\n    m_predict(x, mean, std);\n    return m_self_test();\n}\n"
    )
    flags = [*c.STRICT, "-mcpu=cortex-m4", "-mthumb", "-Os", "-ffreestanding"]
    c.run_checked(["arm-none-eabi-gcc", *flags, "-c", tmp_path / "main.c", "-o", tmp_path / "main.o"])
    assert c.run_checked(["arm-none-eabi-nm", "-u", tmp_path / "main.o"]).split() == []


@needs_arm
@pytest.mark.parametrize("kind", ["linear", "outputs"])
def test_reports_estimate_flash_and_stack_of_counts_on_a_cortex_m0(tmp_path, c, fitted, small, kind):
    if kind == "outputs":
        model = pydirect.fit_quantized(pydirect.DirectRegressor(), small.X, small.targets["two"], max_flash=1300)
        X = small.X
    else:
        estimator, X = fitted("airfoil")
        model = quantize(estimator, 4, X=X[:100], arithmetic="integer")
    counts = {"counts_per_unit": 100 / X.std(axis=0)}
    model.to_c(tmp_path / "model.h", prefix="m", X=X, **counts)
    (tmp_path / "main.c").write_text(
        '#include "model.h"\nvoid f(const int32_t *x, int32_t *mean, int32_t *std);\n'
        "void f(const int32_t *x, int32_t *mean, int32_t *std) { m_predict(x, mean, std); }\n"
    )
    compiler = ["arm-none-eabi-gcc", *c.STRICT, "-mcpu=cortex-m0plus", "-mthumb", "-Os", "-ffunction-sections"]
    c.run_checked([*compiler, "-fstack-usage", "-c", tmp_path / "main.c", "-o", tmp_path / "main.o"])
    link = ["-nostartfiles", "-Wl,--gc-sections", "-Wl,-e,f", "-fdata-sections"]
    c.run_checked([*compiler, *link, tmp_path / "main.c", "-o", tmp_path / "main.elf"])
    report = model.report(model.on_device(**counts))
    text, data = c.run_checked(["arm-none-eabi-size", tmp_path / "main.elf"]).splitlines()[1].split()[:2]
    assert abs(int(text) + int(data) - report["flash"]) <= 300
    frames = [int(line.split("\t")[1]) for line in (tmp_path / "main.su").read_text().splitlines()]
    assert max(frames) <= report["stack"] <= sum(frames) + 200


@needs_arm
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="no qemu-system-arm")
def test_headers_pass_their_self_test_on_an_emulated_cortex_m4(tmp_path, c, fitted):
    model, X = fitted("airfoil")
    quantize(model, 16, X=X[:100]).to_c(tmp_path / "model.h", prefix="m", X=X)
    (tmp_path / "main.c").write_text(c.SELF_TEST_MAIN)
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
    c.run_checked(["arm-none-eabi-gcc", *c.STRICT, *target, *sources, "-o", tmp_path / "main.elf", "-lm"])
    machine = ["-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    c.run_checked(["qemu-system-arm", *machine, "-kernel", tmp_path / "main.elf"])


def test_the_self_test_finds_a_changed_table(tmp_path, c, small):
    model = small(small.regressor("linear", posterior="sequential"))
    quantize(model, 4, arithmetic="integer").to_c(tmp_path / "model.h", prefix="m")
    text = (tmp_path / "model.h").read_text()
    begin = text.index("m_slope[")
    changed = text[:begin] + re.sub(r"(\{\s*)(-?\d+)", lambda m: m[1] + str(int(m[2]) ^ 0x11), text[begin:], count=1)
    assert changed != text
    if shutil.which("cc"):
        (tmp_path / "model.h").write_text(changed)
        (tmp_path / "main.c").write_text(c.SELF_TEST_MAIN)
        c.run_checked(["cc", *c.STRICT, "-o", tmp_path / "main", tmp_path / "main.c"])
        assert subprocess.run([tmp_path / "main"]).returncode != 0


@needs_cc
def test_two_models_of_one_prefix_do_not_compile_together(tmp_path, small):
    for name, n_samples in (("a", 2), ("b", 3)):
        model = quantize(small(small.regressor("linear", posterior="sequential")), n_samples)
        model.to_c(tmp_path / f"{name}.h", prefix="m")
    for second, compiles in (("a", True), ("b", False)):
        (tmp_path / "main.c").write_text(f'#include "a.h"\n#include "{second}.h"\nint main(void) {{ return 0; }}\n')
        run = subprocess.run(
            ["cc", "-c", "-o", tmp_path / "main.o", tmp_path / "main.c"], capture_output=True, text=True
        )
        assert (run.returncode == 0) == compiles
        assert ("another model of this prefix" in run.stderr) != compiles


def test_headers_say_what_they_are_and_two_fit_into_one_program(tmp_path, c, small):
    model = quantize(small(small.classifier("linear", posterior="sequential"), "three"), 4, arithmetic="integer")
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
        c.run_checked(["cc", *c.STRICT, "-o", tmp_path / "main", tmp_path / "main.c"])
        c.run_checked([tmp_path / "main"])


def test_names_of_columns_are_kept_except_for_comment_marks(tmp_path, c, small):
    model = quantize(small(small.regressor("linear", posterior="sequential")), 4, arithmetic="integer")
    model.to_c(tmp_path / "model.h", prefix="m", columns=["a/*b pd_x", "PD_y*/", "/*/"])
    text = (tmp_path / "model.h").read_text()
    for line in (
        "x[0] = a/ *b pd_x",
        "x[1] = PD_y* /",
        "x[2] = / * /",
        "void m_predict(const float *x, float *mean, float *std);",
    ):
        assert line in text
    if shutil.which("cc"):
        (tmp_path / "main.c").write_text(c.SELF_TEST_MAIN)
        c.run_checked(["cc", *c.STRICT, "-o", tmp_path / "main", tmp_path / "main.c"])
        c.run_checked([tmp_path / "main"])


def test_names_hold_no_trigraphs(tmp_path, small):
    model = quantize(
        small(small.regressor(Fourier(rank_inputs=False), posterior="sequential")), 4, arithmetic="integer"
    )
    model.to_c(tmp_path / "model.h", columns=["what??/", "a????=b", "c"])
    assert "??" not in (tmp_path / "model.h").read_text()


def test_names_must_be_those_of_all_columns(tmp_path, small):
    model = quantize(small(small.regressor("linear", posterior="sequential")), 4, arithmetic="integer")
    for columns in (["a", "b"], ["a", "b", 3]):
        with pytest.raises(ValueError, match="columns must be 3 names"):
            model.to_c(tmp_path / "model.h", columns=columns)


def test_models_that_c_cannot_express_are_refused_with_a_hint(tmp_path, small):
    path = tmp_path / "model.h"
    with pytest.raises(ValueError, match="features='fourier'"):
        quantize(small(small.regressor("nystroem")), 4, X=small.X).to_c(path)
    model = quantize(small(small.regressor("linear", posterior="sequential")), 4)
    for prefix in ("1m", "", "a-b", 3):
        with pytest.raises(ValueError, match="prefix must be"):
            model.to_c(path, prefix=prefix)
    with pytest.raises(ValueError, match="level must be"):
        model.to_c(path, level=1.0)
    with pytest.raises(ValueError, match=r"X must be at most 3\.4e\+38 in magnitude"):
        model.to_c(path, X=small.X * 1e300)
    constant = pydirect.DirectRegressor("linear", posterior="sequential").fit(np.ones((9, 1)), np.arange(9.0))
    with pytest.raises(ValueError, match="must depend on an input"):
        quantize(constant, 4).to_c(path)
    assert not path.exists()
