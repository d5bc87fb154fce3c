"""Flash and stack of exported integer models on Cortex-M and AVR, beside the estimates of their reports.

    apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-avr avr-libc
    python bench/scripts/flash.py

Models of UCI sets (fold 5): `fit_quantized` for 1 and 2 KiB of flash, and two and three classes. For each form of
the header (counts in and out, or floats) and function, bytes of text, read-only and initialised data of all that the
function needs, the compiler's library included, linked with -Os and --gc-sections; the bytes of tables; and the
estimates of flash and stack in ``report()``. "stack" is the sum over the functions of the header, GCC's -fstack-usage.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from quantized import data_directory  # noqa: E402

from pydirect import DirectClassifier, DirectRegressor, fit_quantized  # noqa: E402

CORES = {
    "M0+": ["arm-none-eabi-gcc", "-mcpu=cortex-m0plus", "-mthumb"],
    "M4F": ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
    "AVR": ["avr-gcc", "-mmcu=atmega328p"],
}
COMPILE = ["-std=c99", "-Os", "-ffunction-sections", "-fdata-sections"]
LINK = ["-Wl,--gc-sections", "-nostartfiles", "-Wl,-e,device"]
RESULTS = "void device(const m_number *x, m_number *a, m_number *b) {{ m_{}(x, a, b); }}\n"
FUNCTIONS = {name: RESULTS.format(name) for name in ("predict", "predict_interval")}
CLASSES = {
    "predict_class": "uint16_t device(const m_number *x) { return m_predict_class(x); }\n",
    "predict_proba": "void device(const m_number *x, uint16_t *p) { m_predict_proba(x, p); }\n",
}


def models() -> Iterator[tuple[str, Any, np.ndarray]]:
    """Fit the models, one by one; with each its name and the spread of its columns."""
    for name in ("concrete", "yacht"):
        data = np.load(data_directory() / "uci" / f"{name}.npz", allow_pickle=False)
        train = ~data["test_mask"].T[5]
        x, y = data["X"][train], data["y"][train]
        spread = x.std(axis=0)
        for size in (1, 2):
            yield f"{name}, {size} KiB", fit_quantized(DirectRegressor(), x, y, max_flash=1024 * size), spread
        if name == "concrete":
            for n in (2, 3):
                labels = np.digitize(y, np.quantile(y, np.arange(1, n) / n))
                yield f"{name}, {n} classes", fit_quantized(DirectClassifier(), x, labels, max_flash=1500), spread


def sizes(folder: Path, function: str, core: str) -> tuple[int, int]:
    """Bytes of flash of a function, and of the stack of the functions that are left after inlining."""
    source = folder / "device.c"
    source.write_text(f'#include "m.h"\n{function}')
    common = [*CORES[core], *COMPILE]
    subprocess.run([*common, "-fstack-usage", "-c", source, "-o", folder / "device.o"], check=True, cwd=folder)
    subprocess.run([*common, *LINK, source, "-lm", "-o", folder / "device.elf"], check=True)
    size = [CORES[core][0].replace("-gcc", "-size"), folder / "device.elf"]
    done = subprocess.run(size, check=True, capture_output=True, text=True)
    text, data = done.stdout.splitlines()[1].split()[:2]
    stack = sum(int(line.split("\t")[1]) for line in (folder / "device.su").read_text().splitlines())
    return int(text) + int(data), stack


def main() -> None:
    """Print a line for each model, form and function."""
    names = " | ".join(CORES)
    print(f"| model | numbers | function | tables | {names} | estimate | stack {names} | estimate |")
    warnings.simplefilter("ignore")
    for name, model, spread in models():
        for numbers in ("counts", "floats"):
            options = {"counts_per_unit": 100 / spread} if numbers == "counts" else {}
            report = model.report(model.on_device(**options))
            with tempfile.TemporaryDirectory() as folder:
                model.to_c(Path(folder) / "m.h", prefix="m", **options)
                for function, text in (FUNCTIONS | (CLASSES if model.classes is not None else {})).items():
                    found = [sizes(Path(folder), text, core) for core in CORES]
                    cells = [report["bytes"]["total"], *(f for f, _ in found), report["flash"]]
                    cells += [*(s for _, s in found), report["stack"]]
                    print(f"| {name} | {numbers} | {function} | {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    for core in list(CORES):
        if shutil.which(CORES[core][0]) is None:
            print(f"no {CORES.pop(core)[0]}: {core} is left out", file=sys.stderr)
    main()
