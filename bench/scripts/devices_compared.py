"""Small models at equal flash on an emulated Cortex-M4: pydirect beside tree ensembles and a network of eight bits.

    apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
    pip install emlearn m2cgen
    python bench/scripts/devices_compared.py [--sets yacht,energy] [--budgets 1024,4096] [--folds 1] [--methods ...]

Every method has the same bytes of flash, tables and code as linked. `fit_quantized` gets them as `max_flash`, and what
the linker shows to be left over once more; the others are sized to them and chosen by RMSE on held-out rows of the
training rows (one to 32 trees, the rate and leaves of boosting, depth and weight decay of the network), then fitted to
all of them:

- emlearn: random forest or extremely randomised trees, `method="loadable"`: inputs and thresholds of 16 bits,
  8 bytes per node, leaves in float32;
- m2cgen: scikit-learn's random forest, extremely randomised trees or gradient boosting as nested conditions. m2cgen
  writes doubles and does not know gradient boosting: doubles become floats here, and boosted trees are written one by
  one and added;
- network: `MLPRegressor` with one or two layers of ReLU, weights rounded to int8 after the fit with a scale per unit,
  products and sums in float32, in a loop in plain C.

Flash is text, read-only data and initialised data of everything that the prediction needs, the compiler's library
included, built with -Os for a Cortex-M4 with its single-precision unit. All take and return float32. RMSE and NLPD
(user's units, nats; means over folds) are those of the emulated device's answers. pydirect's standard deviation depends
on the row and is computed on the device; the others have none and get one constant, their RMSE on the held-out rows.
Instructions are counted by QEMU (`-icount`), means over 16 rows; most take a Cortex-M4 one cycle, loads and branches
two or more. Folds begin at 5 (from zero): pydirect's settings were chosen on those before. A line is a row of a table:
set, bytes of flash, then RMSE (NLPD; share of rows in 90 % intervals), linked bytes and thousands of instructions of
each method, or a dash where nothing fits. Sets of more rows than `--rows` are cut to them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from quantized import SETS, data_directory  # noqa: E402
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, RandomForestRegressor  # noqa: E402
from sklearn.neural_network import MLPRegressor  # noqa: E402

from pydirect import DirectRegressor, fit_quantized  # noqa: E402

METHODS = ("pydirect", "emlearn", "m2cgen", "network")
TREES = (1, 2, 4, 8, 16, 32)
COMPILE = ["arm-none-eabi-gcc", "-w", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-Os"]
COMPILE += ["-fsingle-precision-constant", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
QEMU = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
SHIFT = 6  # QEMU takes 2 ** 6 ns for an instruction, ...
TICK = 40  # ... and SysTick of this board counts once in 40 ns
TIMED_ROWS = 16
LARGE = 5000  # of more rows networks are fitted to batches
ESTIMATE = 128  # estimates of flash are off by up to this
FEW = 400  # of more rows one split chooses, not three

# The vector table: stack, and where to start; the floating-point unit is off until then.
START = """
#include <stdint.h>
extern void _start(void);
__attribute__((naked)) void reset(void)
{ __asm volatile("ldr r0, =0xE000ED88\\n ldr r1, =0xF00000\\n str r1, [r0]\\n dsb\\n isb\\n b _start\\n .ltorg"); }
__attribute__((section(".vectors"), used)) const uintptr_t vectors[2] = {0x20010000u, (uintptr_t)reset};
"""
MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <string.h>
extern void predict(const float *x, float *out);
static const float rows[ROWS][INPUTS] = {%s};
int main(void)
{
    volatile uint32_t *tick = (volatile uint32_t *)0xE000E010u;
    float out[2] = {0, 0};
    uint32_t begin, end, bits[2];
    int i;
    tick[1] = 0xFFFFFFu, tick[2] = 0, tick[0] = 5;
    begin = tick[2];
    for (i = 0; i < TIMED; ++i) predict(rows[i], out);
    end = tick[2];
    printf("%%lu\\n", (unsigned long)((begin - end) & 0xFFFFFFu));
    for (i = 0; i < ROWS; ++i) {
        predict(rows[i], out);
        memcpy(bits, out, 8);
        printf("%%08lx %%08lx\\n", (unsigned long)bits[0], (unsigned long)bits[1]);
    }
    return 0;
}
"""
NETWORK = """
static void layer(const float *x, float *out, int n, int m, const signed char *w, const float *s, const float *b, int r)
{
    for (int j = 0; j < m; ++j) {
        float sum = 0;
        for (int i = 0; i < n; ++i) sum += *w++ * x[i];
        sum = sum * s[j] + b[j];
        out[j] = r && sum < 0 ? 0 : sum;
    }
}
"""


@dataclass
class Device:
    """A model for the device: C source of ``predict``, and its means in Python."""

    source: str
    mean: Callable[[np.ndarray], np.ndarray]


Fit = Callable[[int, np.ndarray, np.ndarray], Device]  # of a size, to rows and targets


def imported(name: str) -> Any:
    """Import a package that only this comparison needs."""
    try:
        with np.errstate():  # emlearn makes NumPy raise at underflow
            return importlib.import_module(name)
    except ImportError:
        sys.exit(f"this comparison needs {name}: pip install emlearn m2cgen")


def run(command: list[Any]) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def flash(source: str) -> int:
    """Bytes of ``predict`` and of all that it needs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.c"
        path.write_text(source)
        run([*COMPILE, "-nostartfiles", "-Wl,-e,predict", path, "-lm", "-o", path.with_suffix(".elf")])
        text, data = run(["arm-none-eabi-size", path.with_suffix(".elf")]).splitlines()[1].split()[:2]
    return int(text) + int(data)


def emulate(source: str, x: np.ndarray) -> tuple[np.ndarray, float]:
    """What the device returns for each row, and instructions per prediction."""
    timed = min(TIMED_ROWS, len(x))
    defines = [f"-DROWS={len(x)}", f"-DINPUTS={x.shape[1]}", f"-DTIMED={timed}"]
    table = ",\n".join("{" + ", ".join(literals(row)) + "}" for row in x)
    with tempfile.TemporaryDirectory() as folder:
        files = {"model.c": source, "main.c": MAIN % table, "start.c": START}
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        elf, paths = Path(folder) / "all.elf", [Path(folder) / name for name in files]
        link = ["--specs=rdimon.specs", "-Wl,--section-start=.vectors=0", "-Wl,-u,vectors", "-lm"]
        run([*COMPILE, *defines, *paths, *link, "-o", elf])
        ticks, *lines = run([*QEMU, "-icount", f"shift={SHIFT}", "-kernel", elf]).split("\n")
    bits = [[int(word, 16) for word in line.split()] for line in lines if line]
    return np.array(bits, dtype=np.uint32).view(np.float32).astype(float), int(ticks) * TICK / 2**SHIFT / timed


def literals(values: np.ndarray) -> list[str]:
    """Single-precision numbers in C."""
    return [f"{float(v)!r}f" for v in np.asarray(values, dtype=np.float32)]


def float_tables(tables: dict[str, np.ndarray]) -> str:
    """Arrays of single-precision numbers in C."""
    return "".join(f"static const float {k}[] = {{{', '.join(literals(v))}}};\n" for k, v in tables.items())


def wrapper(before: str, result: str) -> str:
    """C source of ``predict``."""
    return f"\nvoid predict(const float *x, float *out)\n{{\n{before}\n    out[0] = {result};\n}}\n"


def pydirect_source(model: Any) -> str:
    """The exported header."""
    with tempfile.TemporaryDirectory() as folder:
        model.to_c(Path(folder) / "m.h", prefix="m")
        header = (Path(folder) / "m.h").read_text()
    return header + "\nvoid predict(const float *x, float *out)\n{\n    m_predict(x, out, out + 1);\n}\n"


def emlearn_forest(kind: Any, n_trees: int, leaves: int, x: np.ndarray, y: np.ndarray) -> Device:
    """Trees on inputs of 16 bits that span the training rows."""
    low, span = x.min(axis=0), np.ptp(x, axis=0)
    scale = 65_000 / np.where(span > 0, span, 1)
    shift = -32_500 - low * scale

    def quantised(rows: np.ndarray) -> np.ndarray:
        return np.trunc(np.clip(rows * scale + shift, -32_767, 32_767))

    forest = kind(n_trees, max_leaf_nodes=max(leaves, 2), random_state=0).fit(quantised(x), y)
    code = imported("emlearn").convert(forest, method="loadable", dtype="int16_t").save(name="trees")
    # The leaves are read as floats, so that their bytes must begin where a float may.
    code = code.replace(
        "static const uint8_t trees_leaves", "__attribute__((aligned(4))) static const uint8_t trees_leaves"
    )
    before = f"""    int16_t q[{x.shape[1]}];
    for (int i = 0; i < {x.shape[1]}; ++i) {{
        float v = x[i] * scale[i] + shift[i];
        q[i] = (int16_t)(v > 32767 ? 32767 : v < -32767 ? -32767 : v);
    }}"""
    code += float_tables({"scale": scale, "shift": shift})
    return Device(code + wrapper(before, f"trees_predict(q, {x.shape[1]})"), lambda r: forest.predict(quantised(r)))


def m2cgen_forest(kind: Any, n_trees: int, leaves: int, x: np.ndarray, y: np.ndarray) -> Device:
    """A forest as nested conditions."""
    forest = kind(n_trees, max_leaf_nodes=max(leaves, 2), random_state=0).fit(x, y)
    code = imported("m2cgen").export_to_c(forest).replace("double", "float")
    return Device(code + wrapper("", "score((float *)x)"), forest.predict)


def m2cgen_boosting(rate: float, leaves: int, n_trees: int, x: np.ndarray, y: np.ndarray) -> Device:
    """Gradient boosting: trees as nested conditions, and their sum."""
    model = GradientBoostingRegressor(
        n_estimators=n_trees, learning_rate=rate, max_leaf_nodes=leaves, max_depth=None, random_state=0
    ).fit(x, y)
    export, code, total = imported("m2cgen").export_to_c, "", literals(model.init_.constant_.ravel())[0]
    start, trees = float(model.init_.constant_.ravel()[0]), [tree for (tree,) in model.estimators_]
    for i, tree in enumerate(trees):
        tree.tree_.value[:] *= rate  # the rate goes into the leaves
        code += "static " + export(tree, function_name=f"tree_{i}").replace("double", "float")
        total += f" + tree_{i}((float *)x)"

    def mean(rows: np.ndarray) -> np.ndarray:
        return start + np.sum([tree.predict(rows) for tree in trees], axis=0)

    return Device(code + wrapper("", total), mean)


def network_source(inputs: list[np.ndarray], weights: list[np.ndarray], units: list[list[np.ndarray]]) -> str:
    """Offset and factor of the inputs; layers of int8 weights, each with a scale and a bias per unit."""
    n, last = len(weights[0]), len(weights) - 1
    tables, steps = {"offset": inputs[0], "factor": inputs[1]}, f"    float h[{n}];\n"
    steps += f"    for (int i = 0; i < {n}; ++i) h[i] = (x[i] - offset[i]) * factor[i];\n"
    code, source = NETWORK, "h"
    for k, (w, (s, b)) in enumerate(zip(weights, units, strict=True)):
        code += f"static const signed char w{k}[] = {{{', '.join(map(str, w.T.ravel()))}}};\n"
        tables |= {f"s{k}": s, f"b{k}": b}
        steps += f"    float h{k}[{len(s)}];\n"
        steps += f"    layer({source}, h{k}, {w.shape[0]}, {w.shape[1]}, w{k}, s{k}, b{k}, {int(k < last)});\n"
        source = f"h{k}"
    return code + float_tables(tables) + wrapper(steps, f"{source}[0]")


def network_sketch(depth: int, width: int, x: np.ndarray, y: np.ndarray) -> str:
    """Source of a network of random weights, whose flash is that of a fitted one."""
    rng, sizes = np.random.default_rng(0), [x.shape[1], *[width] * depth, 1]
    weights = [rng.integers(-127, 128, shape) for shape in pairwise(sizes)]
    return network_source([x[0], x[1]], weights, [[rng.standard_normal(w.shape[1])] * 2 for w in weights])


def network(depth: int, decay: float, width: int, x: np.ndarray, y: np.ndarray) -> Device:
    """Fit a network to standardised columns and round its weights."""
    centre, factor = x.mean(axis=0), 1 / np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    options: dict[str, Any] = {"solver": "lbfgs", "max_iter": 1000}
    if len(x) > LARGE:
        options = {"solver": "adam", "max_iter": 100, "early_stopping": True}
    fitted = MLPRegressor(hidden_layer_sizes=(width,) * depth, alpha=decay, random_state=0, **options)
    fitted.fit((x - centre) * factor, (y - y.mean()) / y.std())
    weights, units = [], []
    for w, bias in zip(fitted.coefs_, fitted.intercepts_, strict=True):
        scale = np.maximum(np.abs(w).max(axis=0), 1e-12) / 127
        weights.append(np.rint(w / scale).astype(int))
        units.append([scale, bias])
    units[-1] = [units[-1][0] * y.std(), units[-1][1] * y.std() + y.mean()]

    def mean(rows: np.ndarray) -> np.ndarray:
        h = (rows - centre) * factor
        for k, (w, (s, b)) in enumerate(zip(weights, units, strict=True)):
            h = h @ w * s + b
            h = np.maximum(h, 0) if k < depth else h
        return h[:, 0]

    return Device(network_source([centre, factor], weights, units), mean)


def candidates(method: str, n_rows: int) -> Iterator[tuple[Fit, Callable[..., str]]]:
    """Fits of a method's kinds of models, and sources of the same flash."""
    if method == "network":
        for depth in (1, 2):
            for decay in (1e-4, 1e-5) if n_rows > LARGE else (0.01, 0.1, 1.0):
                yield partial(network, depth, decay), partial(network_sketch, depth)
        return
    forest = emlearn_forest if method == "emlearn" else m2cgen_forest
    fits: list[Fit]
    fits = [partial(forest, kind, n) for kind in (RandomForestRegressor, ExtraTreesRegressor) for n in TREES]
    if method == "m2cgen":
        fits += [partial(m2cgen_boosting, rate, leaves) for rate in (0.1, 0.2, 0.4, 0.8) for leaves in (3, 6, 12)]
    for fit in fits:
        yield fit, lambda *arguments, fit=fit: fit(*arguments).source


def largest(used: Callable[[int], int], budget: int, most: int) -> int | None:
    """The size whose flash comes near the budget from below, or None where size 2 exceeds it."""
    base = used(2)
    if base > budget:
        return None
    best, size, tried = 2, 8, {2}
    for _ in range(8):
        size = min(max(size, 2), most)
        if size in tried:
            break
        tried.add(size)
        n_bytes = used(size)
        if n_bytes <= budget:
            best = max(best, size)
            if n_bytes > 0.97 * budget:
                break
        # Linear in the size for trees, quadratic for two layers: the secant through size 2, at most tripled.
        step = (budget - base) / max(n_bytes - base, 1)
        size = int(min(2 + (size - 2) * step, 3 * size)) if n_bytes <= budget else int(2 + (size - 2) * min(step, 0.97))
    return best


def select(method: str, budget: int, x: np.ndarray, y: np.ndarray) -> tuple[str, float] | None:
    """Source of the best model within the budget by held-out rows, fitted to all rows, and its held-out RMSE."""
    rng, n_held = np.random.default_rng(0), len(x) // 5
    splits = [rng.permutation(len(x)) for _ in range(1 if len(x) > FEW else 3)]
    found: list[tuple[float, Fit, int]] = []
    for fit, sketch in candidates(method, len(x)):
        size = largest(lambda k, sketch=sketch: flash(sketch(k, x, y)), budget, len(x))
        if size is not None:
            errors = [fit(size, x[o[n_held:]], y[o[n_held:]]).mean(x[o[:n_held]]) - y[o[:n_held]] for o in splits]
            found.append((float(np.sqrt(np.mean(np.square(errors)))), fit, size))
    if not found:
        return None
    error, fit, size = min(found, key=lambda f: f[0])
    return fit(size, x, y).source, error


def quantised(budget: int, x: np.ndarray, y: np.ndarray) -> str | None:
    """The header of the largest model whose linked flash is within the budget."""
    best, limit = None, budget
    for _ in range(4):
        try:
            source = pydirect_source(fit_quantized(DirectRegressor(), x, y, max_flash=limit))
        except ValueError:  # nothing is so small by the estimate
            limit += ESTIMATE
            continue
        left = budget - flash(source)
        if left < 0:
            limit += left
        else:
            best, limit = source, limit + left
            if left < 0.05 * budget:
                break
    return best


def scores(out: np.ndarray, std: np.ndarray | float, y: np.ndarray) -> list[float]:
    """RMSE, NLPD of a Gaussian, and the share of rows in its 90 % intervals."""
    error = y - out
    density = 0.5 * np.log(2 * np.pi * np.square(std)) + 0.5 * (error / std) ** 2
    inside = np.abs(error) <= 1.6449 * np.asarray(std)
    return [float(np.sqrt(np.mean(error**2))), float(np.mean(density)), float(np.mean(inside))]


def measure(method: str, x: np.ndarray, y: np.ndarray, test: np.ndarray, budget: int) -> list[float] | None:
    """RMSE, NLPD, coverage, flash and instructions of a method on a fold, if a model fits."""
    train, deviation = (x[~test], y[~test]), None
    if method == "pydirect":
        source = quantised(budget, *train)
    else:
        found = select(method, budget, *train)
        source, deviation = (None, None) if found is None else found
    if source is None:
        return None
    out, count = emulate(source, x[test])
    return [*scores(out[:, 0], out[:, 1] if deviation is None else deviation, y[test]), flash(source), count]


def main() -> None:
    """Print a line for each set and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated file names")
    parser.add_argument("--budgets", default="1024,2048,4096,16384", help="bytes of flash, comma-separated")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--first-fold", type=int, default=5)
    parser.add_argument("--folds", type=int, default=1)
    arguments = parser.parse_args()
    for package in ("emlearn", "m2cgen"):
        imported(package)
    for program in (COMPILE[0], QEMU[0]):
        if shutil.which(program) is None:
            sys.exit(f"no {program}: apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm")
    COMPILE.append(f"-I{Path(imported('emlearn').__file__).parent}")
    folder = data_directory()
    methods = arguments.methods.split(",")
    print(f"| set | bytes | {' | '.join(methods)} |")
    for name in arguments.sets.split(","):
        data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
        rows = np.sort(np.random.default_rng(0).permutation(len(data["y"]))[: arguments.rows])
        x, y, masks = data["X"][rows], data["y"][rows], data["test_mask"].T[:, rows]
        for budget in map(int, arguments.budgets.split(",")):
            line = f"| {name} | {budget}"
            for method in methods:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    chosen = masks[arguments.first_fold :][: arguments.folds]
                    found = [measure(method, x, y, test, budget) for test in chosen]
                m = np.mean([f for f in found if f is not None], axis=0) if all(found) else None
                line += " | -"
                if m is not None:
                    line = f"{line[:-1]}{m[0]:.4g} ({m[1]:.2f}; {m[2]:.2f}), {m[3]:.0f}, {m[4] / 1000:.1f}"
            print(line + " |", flush=True)


if __name__ == "__main__":
    main()
