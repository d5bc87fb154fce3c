"""Small models at equal flash on an emulated Cortex-M4: pydirect beside tree ensembles and a network of eight bits.

    apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
    pip install emlearn m2cgen
    python bench/scripts/devices_compared.py [--sets yacht,wine] [--budgets 1024,4096] [--folds 1] [--methods ...]
    python bench/scripts/devices_compared.py [--grid]
    python bench/scripts/devices_compared.py seconds [--sets concrete]

Every method has the same bytes of flash, tables and code as linked. `fit_quantized` gets them as `max_flash`, corrected
once by how much its estimate is off; the others are sized to them and chosen by their loss on held-out rows of the
training rows (one to 16 trees, the rate and leaves of boosting, depth and weight decay of the network), then fitted to
all of them:

- emlearn: random forest or extremely randomised trees, `method="loadable"`: inputs and thresholds of 16 bits,
  8 bytes per node, leaves in float32;
- m2cgen: scikit-learn's random forest, extremely randomised trees or, of numbers, gradient boosting as nested
  conditions. m2cgen writes doubles and does not know gradient boosting: doubles become floats here, and boosted trees
  are written one by one and added;
- network: `MLPRegressor` or `MLPClassifier` with one or two layers of ReLU, weights rounded to int8 after the fit with
  a scale per unit, products and sums in float32, in a loop in plain C.

Flash is text, read-only data and initialised data of everything that the prediction needs, the compiler's library
included, built with -Os for a Cortex-M4 with its single-precision unit. All take and return float32. RMSE and NLPD
(user's units, nats; means over folds) are those of the emulated device's answers. pydirect's standard deviation depends
on the row and is computed on the device; the others have none and get one constant, their RMSE on the held-out rows.
Of classes, the wrong share of rows stands for the RMSE, the log loss for the NLPD, and no probability is below half a
percent. Instructions are counted by QEMU (`-icount`), means over 16 rows; most take a Cortex-M4 one cycle, loads and
branches two or more. Folds begin at 5 (from zero): pydirect's settings were chosen on none of these sets. A line is a
row of a table: set, bytes of flash, then RMSE (NLPD; share of rows in 90 % intervals), linked bytes and thousands of
instructions of each method, or a dash where nothing fits. Sets of more rows than `--rows` are cut to them. Searches of
a set share what no limit changes.

--grid: also, for 20 limits from 300 bytes to 16 KiB, what `fit_quantized` chooses: its estimates of flash and
instructions, RMSE and NLPD on the fold.

seconds: processor seconds of one search for each of the budgets, which shares nothing.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from quantized import SETS, data_directory  # noqa: E402
from scipy.special import expit, softmax  # noqa: E402
from sklearn import datasets, ensemble  # noqa: E402
from sklearn.neural_network import MLPClassifier, MLPRegressor  # noqa: E402

from pydirect import DirectClassifier, DirectRegressor, fit_quantized  # noqa: E402
from pydirect.quantized.fit_quantized import NoModelError  # noqa: E402
from pydirect.quantized.proposals import proposals  # noqa: E402
from pydirect.quantized.task import LabelTask, TargetTask  # noqa: E402

fit_quantized_module: Any = importlib.import_module("pydirect.quantized.fit_quantized")
METHODS = ("pydirect", "emlearn", "m2cgen", "network")
CLASS_SETS = ("wine", "breast_cancer")
TREES = (1, 4, 16)
COMPILE = ["arm-none-eabi-gcc", "-w", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-Os"]
COMPILE += ["-fsingle-precision-constant", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
QEMU = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
SHIFT = 6  # QEMU takes 2 ** 6 ns for an instruction, ...
TICK = 40  # ... and SysTick of this board counts once in 40 ns
TIMED_ROWS = 16
LARGE = 5000  # of more rows networks are fitted to batches
ESTIMATE = 64  # estimates of flash are off by up to this
LEAST_SHARE = 0.005  # of a class, for every method
GRID = np.unique(np.geomspace(300, 16384, 20).astype(int)).tolist()
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
    float out[OUTPUTS] = {0};
    uint32_t begin, end, bits[OUTPUTS];
    int i, k;
    tick[1] = 0xFFFFFFu, tick[2] = 0, tick[0] = 5;
    begin = tick[2];
    for (i = 0; i < TIMED; ++i) predict(rows[i], out);
    end = tick[2];
    printf("%%lu\\n", (unsigned long)((begin - end) & 0xFFFFFFu));
    for (i = 0; i < ROWS; ++i) {
        predict(rows[i], out);
        memcpy(bits, out, sizeof out);
        for (k = 0; k < OUTPUTS; ++k) printf("%%08lx ", (unsigned long)bits[k]);
        printf("\\n");
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
    """A model for the device: C source of ``predict``, and in Python its means, or probabilities of classes."""

    source: str
    values: Callable[[np.ndarray], np.ndarray]


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


def emulate(source: str, x: np.ndarray, n_outputs: int) -> tuple[np.ndarray, float]:
    """What the device returns for each row, and instructions per prediction."""
    timed = min(TIMED_ROWS, len(x))
    defines = [f"-DROWS={len(x)}", f"-DINPUTS={x.shape[1]}", f"-DTIMED={timed}", f"-DOUTPUTS={n_outputs}"]
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


def wrapper(before: str, results: str) -> str:
    """C source of ``predict``."""
    return f"\nvoid predict(const float *x, float *out)\n{{\n{before}\n    {results};\n}}\n"


def pydirect_source(model: Any) -> str:
    """The exported header."""
    with tempfile.TemporaryDirectory() as folder:
        model.to_c(Path(folder) / "m.h", prefix="m")
        header = (Path(folder) / "m.h").read_text()
    if model.classes is None:
        return header + wrapper("", "m_predict(x, out, out + 1)")
    n = len(model.classes)
    before = f"    uint16_t p[{n}];\n    m_predict_proba(x, p);"
    return header + wrapper(before, f"for (int k = 0; k < {n}; ++k) out[k] = p[k] / 32768.0f")


def forest(kind: str, n_trees: int, leaves: int, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """A fitted forest, and its means or probabilities."""
    labels = y.dtype.kind == "i"
    fitted = getattr(ensemble, f"{kind}{'Classifier' if labels else 'Regressor'}")(
        n_trees, max_leaf_nodes=max(leaves, 2), random_state=0
    ).fit(x, y)
    return fitted, fitted.predict_proba if labels else fitted.predict


def emlearn_forest(kind: str, n_trees: int, leaves: int, x: np.ndarray, y: np.ndarray) -> Device:
    """Trees on inputs of 16 bits that span the training rows; of classes, trees vote."""
    low, span = x.min(axis=0), np.ptp(x, axis=0)
    scale = 65_000 / np.where(span > 0, span, 1)
    shift = -32_500 - low * scale

    def quantised(rows: np.ndarray) -> np.ndarray:
        return np.trunc(np.clip(rows * scale + shift, -32_767, 32_767))

    fitted, values = forest(kind, n_trees, leaves, quantised(x), y)
    code = imported("emlearn").convert(fitted, method="loadable", dtype="int16_t").save(name="trees")
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
    results = f"out[0] = trees_predict(q, {x.shape[1]})"
    if y.dtype.kind == "i":
        results = f"trees_predict_proba(q, {x.shape[1]}, out, {y.max() + 1})"
    return Device(code + wrapper(before, results), lambda r: values(quantised(r)))


def m2cgen_forest(kind: str, n_trees: int, leaves: int, x: np.ndarray, y: np.ndarray) -> Device:
    """A forest as nested conditions."""
    fitted, values = forest(kind, n_trees, leaves, x, y)
    code = imported("m2cgen").export_to_c(fitted).replace("double", "float")
    return Device(code + wrapper("", score_of(y)), values)


def score_of(y: np.ndarray) -> str:
    """How m2cgen's code is called."""
    return "score((float *)x, out)" if y.dtype.kind == "i" else "out[0] = score((float *)x)"


def m2cgen_boosting(rate: float, leaves: int, n_trees: int, x: np.ndarray, y: np.ndarray) -> Device:
    """Gradient boosting: trees as nested conditions, and their sum."""
    model = ensemble.GradientBoostingRegressor(
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

    return Device(code + wrapper("", f"out[0] = {total}"), mean)


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
    n_out = len(units[-1][0])
    return code + float_tables(tables) + wrapper(steps, f"for (int k = 0; k < {n_out}; ++k) out[k] = {source}[k]")


def n_problems(y: np.ndarray) -> int:
    """Number of outputs of a network: one for numbers and for two classes."""
    return int(y.max()) + 1 if y.dtype.kind == "i" and y.max() > 1 else 1


def network_sketch(depth: int, width: int, x: np.ndarray, y: np.ndarray) -> str:
    """Source of a network of random weights, whose flash is that of a fitted one."""
    rng, sizes = np.random.default_rng(0), [x.shape[1], *[width] * depth, n_problems(y)]
    weights = [rng.integers(-127, 128, shape) for shape in pairwise(sizes)]
    return network_source([x[0], x[1]], weights, [[rng.standard_normal(w.shape[1])] * 2 for w in weights])


def network(depth: int, decay: float, width: int, x: np.ndarray, y: np.ndarray) -> Device:
    """Fit a network to standardised columns and round its weights."""
    centre, factor = x.mean(axis=0), 1 / np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    options: dict[str, Any] = {"solver": "lbfgs", "max_iter": 500}
    if len(x) > LARGE:
        options = {"solver": "adam", "max_iter": 100, "early_stopping": True}
    labels = y.dtype.kind == "i"
    shift, spread = (0.0, 1.0) if labels else (y.mean(), y.std())
    kind = MLPClassifier if labels else MLPRegressor
    fitted = kind(hidden_layer_sizes=(width,) * depth, alpha=decay, random_state=0, **options)
    fitted.fit((x - centre) * factor, y if labels else (y - shift) / spread)
    weights, units = [], []
    for w, bias in zip(fitted.coefs_, fitted.intercepts_, strict=True):
        scale = np.maximum(np.abs(w).max(axis=0), 1e-12) / 127
        weights.append(np.rint(w / scale).astype(int))
        units.append([scale, bias])
    units[-1] = [units[-1][0] * spread, units[-1][1] * spread + shift]

    def values(rows: np.ndarray) -> np.ndarray:
        h = (rows - centre) * factor
        for k, (w, (s, b)) in enumerate(zip(weights, units, strict=True)):
            h = h @ w * s + b
            h = np.maximum(h, 0) if k < depth else h
        return probabilities(h) if labels else h[:, 0]

    return Device(network_source([centre, factor], weights, units), values)


def probabilities(out: np.ndarray) -> np.ndarray:
    """Probabilities from logits; one logit is that of the second of two classes."""
    if out.shape[1] > 1:
        return softmax(out, axis=1)
    return np.hstack([expit(-out), expit(out)])


def candidates(method: str, x: np.ndarray, y: np.ndarray) -> list[tuple[Fit, Callable[[int], int]]]:
    """Fits of a method's kinds of models, and the flash of a size."""
    found: list[tuple[Fit, Callable[[int], int]]] = []
    if method == "network":
        for depth in (1, 2):
            used = cache(lambda size, depth=depth: flash(network_sketch(depth, size, x, y)))
            found += [
                (partial(network, depth, d), used) for d in ((1e-4, 1e-5) if len(x) > LARGE else (0.01, 0.1, 1.0))
            ]
        return found
    trees = emlearn_forest if method == "emlearn" else m2cgen_forest
    fits: list[Fit] = [partial(trees, kind, n) for kind in ("RandomForest", "ExtraTrees") for n in TREES]
    if method == "m2cgen" and y.dtype.kind != "i":
        fits += [partial(m2cgen_boosting, rate, leaves) for rate in (0.1, 0.2, 0.4, 0.8) for leaves in (3, 6, 12)]
    return [(fit, cache(lambda size, fit=fit: flash(fit(size, x, y).source))) for fit in fits]


def largest(used: Callable[[int], int], budget: int, most: int) -> int | None:
    """The size whose flash comes near the budget from below, or None where size 2 exceeds it."""
    base = used(2)
    if base > budget:
        return None
    best, size = 2, min(8, most)
    for _ in range(6):
        n_bytes = used(size)
        if n_bytes <= budget:
            best = max(best, size)
            if n_bytes > 0.97 * budget:
                break
        # Linear in the size for trees, quadratic for two layers: the secant through size 2, at most tripled.
        step = (budget - base) / max(n_bytes - base, 1)
        new = int(min(2 + (size - 2) * step, 3 * size)) if n_bytes <= budget else int(2 + (size - 2) * min(step, 0.97))
        new = min(max(new, 2), most)
        if new in (size, best):
            break
        size = new
    return best


def loss(values: np.ndarray, y: np.ndarray) -> float:
    """Squared error, or log loss, on average."""
    if y.dtype.kind == "i":
        return float(-np.log(np.maximum(values[np.arange(len(y)), y], LEAST_SHARE)).mean())
    return float(np.mean((values - y) ** 2))


def select(kinds: list[Any], budget: int, x: np.ndarray, y: np.ndarray) -> tuple[str, float] | None:
    """Source of the best model within the budget by held-out rows, fitted to all rows, and its held-out loss."""
    rng, n_held = np.random.default_rng(0), len(x) // 5
    splits = [rng.permutation(len(x)) for _ in range(1 if len(x) > FEW else 3)]
    found: list[tuple[float, Fit, int]] = []
    for fit, used in kinds:
        size = largest(used, budget, len(x))
        if size is not None:
            each = [loss(fit(size, x[o[n_held:]], y[o[n_held:]]).values(x[o[:n_held]]), y[o[:n_held]]) for o in splits]
            found.append((float(np.mean(each)), fit, size))
    if not found:
        return None
    best, fit, size = min(found, key=lambda f: f[0])
    return fit(size, x, y).source, best


def remembering(function: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
    """Results of a function by what its arguments have in common."""
    known: dict[Any, Any] = {}

    def call(*arguments: Any) -> Any:
        name = key(*arguments)
        if name not in known:
            known[name] = function(*arguments)
        return known[name]

    return call


def share_searches() -> None:
    """Let searches with several limits share kernels, basis functions and samples."""

    def rows(task: Any) -> Any:
        return task.with_points, hash(task.y.tobytes()), hash(task.inputs.tobytes())

    fit_quantized_module.proposals = remembering(proposals, lambda task, family: (*rows(task), family))
    for kind in (TargetTask, LabelTask):
        kind.cast = remembering(kind.cast, lambda task, *rest: (*rows(task), pickle.dumps(rest)))
        kind.begin = staticmethod(remembering(kind.begin, lambda x, y, *rest: (hash(x.tobytes()), hash(y.tobytes()))))


def quantised(budget: int, x: np.ndarray, y: np.ndarray) -> tuple[str, float] | None:
    """The header of the best model whose linked flash is within the budget."""
    best, limit = None, budget
    model = DirectClassifier() if y.dtype.kind == "i" else DirectRegressor()
    for _ in range(3):
        try:
            small = fit_quantized(model, x, y, max_flash=limit)
        except NoModelError:  # by the estimate
            limit += ESTIMATE
            continue
        source = pydirect_source(small)
        linked, estimate = flash(source), small.report()["flash"]
        if linked <= budget:
            best = source, np.nan
            if linked > 0.95 * budget or estimate < 0.8 * limit:
                break
        limit = budget + estimate - linked
    return best


def scores(out: np.ndarray, std: np.ndarray | float, y: np.ndarray) -> list[float]:
    """RMSE, NLPD of a Gaussian, and the share of rows in its 90 % intervals."""
    error = y - out
    density = 0.5 * np.log(2 * np.pi * np.square(std)) + 0.5 * (error / std) ** 2
    inside = np.abs(error) <= 1.6449 * np.asarray(std)
    return [float(np.sqrt(np.mean(error**2))), float(np.mean(density)), float(np.mean(inside))]


def measure(
    method: str,
    kinds: list[Any],
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    budget: int,
) -> list[float] | None:
    """RMSE, NLPD, coverage, flash and instructions of a method on a fold, if a model fits."""
    found = quantised(budget, *train) if method == "pydirect" else select(kinds, budget, *train)
    if found is None:
        return None
    (source, other), (x, y) = found, test
    labels = y.dtype.kind == "i"
    n_outputs = n_problems(train[1]) if method == "network" else int(train[1].max()) + 1 if labels else 2
    out, count = emulate(source, x, n_outputs)
    rest = [flash(source), count]
    if labels:
        p = probabilities(out) if method == "network" else out / out.sum(axis=1, keepdims=True)
        return [float(np.mean(p.argmax(axis=1) != y)), loss(p, y), np.nan, *rest]
    return [*scores(out[:, 0], out[:, 1] if method == "pydirect" else np.sqrt(other), y), *rest]


def rows_of(name: str, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets or labels, and masks of the folds' test rows."""
    if name in CLASS_SETS:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        masks = np.random.default_rng(0).integers(0, 10, len(y)) == np.arange(10)[:, None]
        return x, y.astype(int), masks
    data = np.load(data_directory() / "uci" / f"{name}.npz", allow_pickle=False)
    rows = np.sort(np.random.default_rng(0).permutation(len(data["y"]))[:most])
    return data["X"][rows], data["y"][rows], data["test_mask"].T[:, rows]


def grid(name: str, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> None:
    """Print what each of 20 limits gives."""
    for limit in GRID:
        try:
            small = fit_quantized(DirectRegressor(), *train, max_flash=limit)
        except NoModelError:
            print(f"| {name} | limit {limit} | - |", flush=True)
            continue
        report = small.report()
        rmse, density, _ = scores(*small.predict(test[0], return_std=True), test[1])
        line = f"| {name} | limit {limit} | {report['flash']} | {report['instructions']} "
        print(f"{line}| {rmse:.4g} ({density:.2f}) |", flush=True)


def seconds(names: list[str], budgets: list[int], most: int, fold: int) -> None:
    """Print processor seconds of one search for each budget."""
    for name in names:
        x, y, masks = rows_of(name, most)
        model = DirectClassifier() if y.dtype.kind == "i" else DirectRegressor()
        for budget in budgets:
            begin = time.process_time()
            fit_quantized(model, x[~masks[fold]], y[~masks[fold]], max_flash=budget)
            print(f"| {name} | {budget} | {time.process_time() - begin:.1f} s |", flush=True)


def main() -> None:
    """Print a line for each set and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("table", "seconds"), default="table")
    parser.add_argument("--sets", default=",".join((*SETS, *CLASS_SETS)), help="comma-separated names")
    parser.add_argument("--budgets", default="512,1024,2048,4096,16384", help="bytes of flash, comma-separated")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--first-fold", type=int, default=5)
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--grid", action="store_true", help="also what pydirect gives for 20 limits")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    names, methods = arguments.sets.split(","), arguments.methods.split(",")
    budgets = list(map(int, arguments.budgets.split(",")))
    if arguments.what == "seconds":
        seconds(names, budgets, arguments.rows, arguments.first_fold)
        return
    for package in {"emlearn", "m2cgen"} & set(methods):
        imported(package)
    for program in (COMPILE[0], QEMU[0]):
        if shutil.which(program) is None:
            sys.exit(f"no {program}: apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm")
    if "emlearn" in methods:
        COMPILE.append(f"-I{Path(imported('emlearn').__file__).parent}")
    share_searches()
    print(f"| set | bytes | {' | '.join(methods)} |")
    for name in names:
        x, y, masks = rows_of(name, arguments.rows)
        chosen = masks[arguments.first_fold :][: arguments.folds]
        folds = [((x[~test], y[~test]), (x[test], y[test])) for test in chosen]
        kinds = {m: [candidates(m, *train) if m != "pydirect" else [] for train, _ in folds] for m in methods}
        for budget in budgets:
            line = f"| {name} | {budget}"
            for method in methods:
                pairs = zip(kinds[method], folds, strict=True)
                found = [measure(method, own, *both, budget) for own, both in pairs]
                m = np.mean([f for f in found if f is not None], axis=0) if all(found) else None
                line += " | -"
                if m is not None:
                    line = f"{line[:-1]}{m[0]:.4g} ({m[1]:.2f}; {m[2]:.2f}), {m[3]:.0f}, {m[4] / 1000:.1f}"
            print(line + " |", flush=True)
        if arguments.grid and y.dtype.kind != "i":
            grid(name, *folds[0])


if __name__ == "__main__":
    main()
