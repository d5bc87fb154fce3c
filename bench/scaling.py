"""How the cost of fits and predictions grows with rows, basis functions, columns, outputs and threads.

    python bench/scaling.py --quick                     a few minutes
    python bench/scaling.py --json out.json --plot out.png
    python bench/scaling.py --axes rows,columns --models design,default --limit 120

Every point is a process of its own with a time limit and a memory limit; what exceeds them is printed as such. An axis
varies one number of a base point (10,000 rows, 500 basis functions, 8 columns, 1 output, 1 thread). Models:

- `design`: ``DirectRegressor(Nystroem(length_scale=3), noise="constant", local=False)``, features, statistics and
  inference only;
- `default`: the regressor as it comes, with its search for a kernel, its choice of noise and its local process;
- `blocks`, `npy`, `parquet`: `design` by `fit_stream`, from blocks made as they are asked for, a mapped file, a table;
- `lightgbm` (200 trees), `gpr` (scikit-learn's exact process, squared exponential, fitted by its default optimiser) and
  `svgp` (GPyTorch's variational process with as many inducing points as there are basis functions, five passes over
  batches of 1024 rows), where they are installed: ``pip install lightgbm gpytorch``.

Seconds are of the processor (all threads together) and of the wall. Memory is the peak of a step beyond what the
process held before it, in-memory rows left out. Predictions, by the wall, are of 10,000 rows and of one, after a first
call (`first` in the JSON file). Needs Linux.

The second table has, for each axis and stage, the exponent between the two largest points, the one of a fit by least
squares to all points above 10 ms, and the largest that theory allows as points grow; an exponent that exceeds it by
more than 0.25 is marked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scaling_models import MAKERS, Point, make_pydirect, make_rows

PREDICTED = 10_000
LEAST_SECONDS = 0.01
TOLERANCE = 0.25
STREAMS = ("blocks", "npy", "parquet")
MODULES = {"lightgbm": "lightgbm", "gpr": "sklearn", "svgp": "gpytorch", "parquet": "pyarrow"}
MODELS = ("design", "default", *STREAMS, "lightgbm", "gpr", "svgp")


AXES: dict[str, tuple[int, ...]] = {
    "rows": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
    "basis": (125, 250, 500, 1000, 2000, 4000, 8000),
    "columns": (2, 8, 32, 125, 500),
    "outputs": (1, 3, 10, 30, 100),
    "threads": (1, 2),
}
QUICK: dict[str, tuple[int, ...]] = {
    "rows": (1_000, 4_000, 16_000, 64_000),
    "basis": (125, 250, 500, 1000),
    "columns": (2, 8, 32, 128),
    "outputs": (1, 10, 100),
    "threads": (1, 2),
}
# Where rows are few, b³ hides what grows with them, and the reverse.
BASES = {
    "rows": Point(),
    "basis": Point(rows=20_000),
    "columns": Point(),
    "outputs": Point(),
    "threads": Point(rows=20_000, basis=1000),
}
# Streams are for many rows, and of them only rows count.
FEWEST_STREAMED = 30_000
MOST_IN_MEMORY = 1_000_000
# What is measured, and the largest exponents that theory allows on the axes of rows, basis, columns and outputs.
# Sums over rows cost n b² (products), n b d (kernel) and n b p; the search sees a subset of the rows, and all rows are
# standardised and ranked; inference b³ and p b²; predictions of m rows m b (d + p), their variances m b².
THEORY: dict[str, dict[str, float]] = {
    "features": {"rows": 1, "basis": 3, "columns": 1, "outputs": 1},
    "statistics": {"rows": 1, "basis": 2, "columns": 1, "outputs": 1},
    "inference": {"rows": 0, "basis": 3, "columns": 0, "outputs": 1},
    "fit": {"rows": 1, "basis": 3, "columns": 1, "outputs": 1},
    "fit_bytes": {"rows": 1, "basis": 2, "columns": 1, "outputs": 1},
    "mean": {"rows": 0, "basis": 1, "columns": 1, "outputs": 1},
    "deviation": {"rows": 0, "basis": 2, "columns": 1, "outputs": 1},
    "one_mean": {"rows": 0, "basis": 1, "columns": 1, "outputs": 1},
    "one_deviation": {"rows": 0, "basis": 2, "columns": 1, "outputs": 1},
}
OTHERS_THEORY: dict[str, dict[str, dict[str, float]]] = {
    "default": {"inference": {"rows": 1, "basis": 3, "columns": 1, "outputs": 1}},  # noise by rows, local process
    "lightgbm": {"fit": {"rows": 1, "columns": 1, "outputs": 1}},
    "gpr": {"fit": {"rows": 3, "columns": 1, "outputs": 1}, "mean": {"rows": 1}, "deviation": {"rows": 2}},
    "svgp": {"fit": {"rows": 1, "basis": 3, "columns": 1, "outputs": 1}},
}


# --- one point, in a process of its own


def memory(name: str) -> int:
    """Return bytes of this process: VmRSS now, or VmHWM at the peak."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def measured(call: Callable[[], Any]) -> dict[str, float]:
    """Seconds of the processor and of the wall, and peak bytes beyond what was held."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    held, processor, wall = memory("VmRSS"), time.process_time(), time.perf_counter()
    call()
    seconds = {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall}
    return {**seconds, "bytes": memory("VmHWM") - held}


def steady(call: Callable[[], Any], repeats: int) -> dict[str, float]:
    """The same, medians over calls after the first, whose seconds are `first`."""
    first = measured(call)["wall"]
    runs = [measured(call) for _ in range(repeats)]
    return {"first": first, **{key: float(np.median([run[key] for run in runs])) for key in runs[0]}}


def measure(point: Point) -> dict[str, Any]:
    """Fit and predict; what has no deviations has none."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        model, fit = MAKERS.get(point.model, make_pydirect)(point, Path(folder))
        found: dict[str, Any] = {"fit": measured(fit)}
    found["stages"] = {stage: float(seconds) for stage, seconds in getattr(model, "fit_seconds_", {}).items()}
    x, _ = make_rows(point, -PREDICTED % 2**32, PREDICTED + (-PREDICTED % 2**32))
    for name, rows, repeats in (("", x, 3), ("one_", x[:1], 30)):
        found[f"{name}mean"] = steady(partial(model.predict, rows), repeats)
        if point.model != "lightgbm":
            found[f"{name}deviation"] = steady(partial(model.predict, rows, return_std=True), repeats)
    return found


# --- all points


def run(point: Point, limit: float, n_bytes: int) -> dict[str, Any]:
    """Measure a point in a process of its own; say why where there are no figures."""
    command = [sys.executable, __file__, "--point", json.dumps(asdict(point)), "--bytes", str(n_bytes)]
    own = {name: str(point.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    try:
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {limit:g} s"}
    if done.returncode:
        reason = "out of memory" if "Memory" in done.stderr else (done.stderr.strip().splitlines() or ["killed"])[-1]
        return {"failed": reason[-100:]}
    return json.loads(done.stdout.splitlines()[-1])


def points(axes: dict[str, tuple[int, ...]], names: list[str], models: list[str]) -> Iterator[tuple[str, Point]]:
    """Yield axes and points, small ones first."""
    for axis in names:
        for model in models:
            if model in STREAMS and axis != "rows":
                continue
            for size in axes[axis]:
                point = replace(BASES[axis], model=model, **{axis: size})
                streamed = model in STREAMS
                if (streamed and point.rows < FEWEST_STREAMED) or (not streamed and point.rows > MOST_IN_MEMORY):
                    continue
                if axis in {"lightgbm": ("basis",), "gpr": ("basis",), "svgp": ("outputs",)}.get(model, ()):
                    continue
                yield axis, point


def figures(record: dict[str, Any]) -> dict[str, float]:
    """Return what grows: processor seconds of stages, fits and predictions, and bytes of the fit."""
    if "failed" in record:
        return {}
    found = {name: record[name]["processor"] for name in THEORY if name in record and not name.startswith("one_")}
    found |= {name: record[name]["wall"] for name in ("one_mean", "one_deviation") if name in record}
    fit = record["fit"]
    busy = fit["processor"] / fit["wall"]  # stages are clocked by the wall, which others' load moves
    stages = {stage: busy * seconds for stage, seconds in record["stages"].items()}
    return {**stages, **found, "fit_bytes": fit["bytes"]}


def exponents(sizes: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Return the exponent between the two largest points, and that of all points by least squares."""
    x, y = np.log(sizes), np.log(values)
    return float((y[-1] - y[-2]) / (x[-1] - x[-2])), float(np.polyfit(x, y, 1)[0])


def theory_of(model: str) -> dict[str, dict[str, float]]:
    """Return the largest exponents that theory allows a model, by figure and axis."""
    ours = model in ("design", "default", *STREAMS)
    return (THEORY if ours else {}) | OTHERS_THEORY.get(model, {})


def growth(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return exponents of every axis, model and figure beside theory."""
    rows = []
    for axis, model in dict.fromkeys((r["axis"], r["point"]["model"]) for r in records):
        own = [r for r in records if r["axis"] == axis and r["point"]["model"] == model]
        for name in THEORY:
            least = 1e6 if name == "fit_bytes" else 0.0 if name.startswith("one_") else LEAST_SECONDS
            pairs = [(r["point"][axis], figures(r).get(name, 0.0)) for r in own]
            pairs = [(size, value) for size, value in pairs if value > least]
            if len(pairs) < 2 or axis == "threads":
                continue
            last, all_points = exponents(*np.array(pairs, dtype=float).T)
            allowed = theory_of(model).get(name, {}).get(axis)
            over = allowed is not None and last > allowed + TOLERANCE
            rows.append(
                {"axis": axis, "model": model, "figure": name, "last": last, "all": all_points, "theory": allowed}
                | {"over": over, "largest": pairs[-1]}
            )
    return rows


def line(record: dict[str, Any]) -> str:
    """Return a point as a line of the table."""
    p = record["point"]
    where = f"{p['model']:9}{p['rows']:>9}{p['basis']:>6}{p['columns']:>5}{p['outputs']:>5}{p['threads']:>3} "
    if "failed" in record:
        return f"{where} {record['failed']}"
    fit = record["fit"]
    cells = [f"{fit['processor']:9.2f}{fit['wall']:9.2f}{fit['bytes'] / 2**20:8.0f}"]
    for name in ("mean", "deviation"):
        r = record.get(name)
        cells.append(f"{r['wall']:9.3f}{r['bytes'] / 2**20:7.0f}" if r else 16 * " ")
    for name in ("one_mean", "one_deviation"):
        cells.append(f"{1e3 * record[name]['wall']:8.2f}" if name in record else 8 * " ")
    stages = " ".join(f"{stage} {seconds:.2f}" for stage, seconds in record["stages"].items())
    return f"{where}{''.join(cells)}  {stages}"


HEADER = (
    f"{'model':9}{'rows':>9}{'basis':>6}{'cols':>5}{'outs':>5}{'th':>3} {'fit cpu s':>9}{'wall s':>9}{'MB':>8}"
    f"{'1e4 means':>9}{'MB':>7}{'devs':>9}{'MB':>7}{'1 mean':>8}{'1 dev':>8}  stages, s; of one row ms"
)


def plot(records: list[dict[str, Any]], path: Path) -> None:
    """Draw processor seconds of fits and of 10,000 deviations, one panel per axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    axes = [a for a in dict.fromkeys(r["axis"] for r in records) if a != "threads"]
    names = ("fit", "deviation", "fit_bytes")
    figure, panels = plt.subplots(len(names), len(axes), figsize=(4 * len(axes), 3.2 * len(names)), squeeze=False)
    for row, name in zip(panels, names, strict=True):
        for panel, axis in zip(row, axes, strict=True):
            for model in dict.fromkeys(r["point"]["model"] for r in records):
                own = [r for r in records if r["axis"] == axis and r["point"]["model"] == model]
                pairs = [(r["point"][axis], figures(r)[name]) for r in own if figures(r).get(name, 0.0) > 0.0]
                if pairs:
                    panel.loglog(*zip(*pairs, strict=True), marker=".", label=model)
            panel.set(xlabel=axis, ylabel=name.replace("_", ", ") + ("" if name == "fit_bytes" else ", processor s"))
            points = sorted({r["point"][axis] for r in records if r["axis"] == axis})
            panel.set_xticks(points, [f"{p:g}" for p in points], rotation=45, fontsize="small")
            panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            panel.grid(alpha=0.3)
    panels[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, 60 s a point")
    parser.add_argument("--axes", default=",".join(AXES), help="comma-separated: %(default)s")
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated: %(default)s")
    parser.add_argument("--limit", type=float, help="seconds per point; 900, or 60 with --quick")
    parser.add_argument("--gib", type=float, default=12.0, help="memory per point")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.point:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (options.bytes, options.bytes))
        print(json.dumps(measure(Point(**json.loads(options.point)))))
        return
    models = options.models.split(",")
    for model in [m for m in models if m in MODULES and find_spec(MODULES[m]) is None]:
        print(f"{model} is left out: pip install {MODULES[model]}")
        models.remove(model)
    limit = options.limit or (60.0 if options.quick else 900.0)
    records: list[dict[str, Any]] = []
    given_up: set[tuple[str, str]] = set()
    for axis, point in points(QUICK if options.quick else AXES, options.axes.split(","), models):
        if not records or records[-1]["axis"] != axis:
            print(f"\n{axis}\n{HEADER}")
        key = axis, point.model
        if key in given_up:
            found = {"failed": "not tried, as a smaller one failed"}
        else:
            found = run(point, limit, int(options.gib * 2**30))
        if "failed" in found:
            given_up.add(key)
        records.append({"axis": axis, "point": asdict(point), **found})
        print(line(records[-1]), flush=True)
    table = growth(records)
    print("\nexponents of processor seconds (one row: wall) and bytes; * above theory")
    print(f"{'axis':9}{'model':10}{'figure':15}{'last two':>9}{'all':>7}{'theory':>8}   at the largest")
    for r in table:
        theory, mark = ("" if r["theory"] is None else f"≤ {r['theory']:g}"), "*" if r["over"] else " "
        value = r["largest"][1]
        amount = f"{value / 2**20:.0f} MB" if r["figure"] == "fit_bytes" else f"{value:.3g} s"
        print(f"{r['axis']:9}{r['model']:10}{r['figure']:15}{r['last']:9.2f}{r['all']:7.2f}{theory:>8} {mark} {amount}")
    if options.json:
        options.json.write_text(json.dumps({"points": records, "exponents": table}, indent=1))
    if options.plot:
        plot(records, options.plot)


if __name__ == "__main__":
    main()
