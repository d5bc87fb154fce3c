"""Quantised models: accuracy against size, and predictions per second.

    python bench/scripts/quantized.py accuracy [--sets yacht,housing] [--budgets 1024,4096] [--folds 7]
    python bench/scripts/quantized.py levels [--sets yacht,housing] [--folds 2]
    python bench/scripts/quantized.py throughput [--rows 20000] [--inputs 8]

accuracy: RMSE and NLPD (user's units, nats) on held-out rows of UCI sets, means over folds. "default" is
`DirectRegressor()`; "fourier" the exact posterior of 2000 Fourier features of standardised columns, the weights that
small models choose from. Then, for every budget of `fit_quantized`: "exact" is the exact posterior of continuous
weights in double precision on the same basis functions, "float" 16 samples of it on 15 levels (int4) evaluated in
double precision, "integer" the model of that many bytes, integers throughout. The last line counts the sets where the
integer model of 4 KiB is within 5 % of an exact posterior mean: on its own basis functions, of 2000 features, of the
default.

levels: RMSE and NLPD on held-out rows of `DirectRegressor(posterior="sequential")` with 2000 features on 15 levels, on
three, and with a spike and slab of four fifths zeros on shared levels: of 64 draws, of two and of the nearest vector in
integers, with the bytes of their weights (frequencies take the same in all) and the share of zeros; means over folds.

throughput: predictions a second of a model of 1000 frequencies and 16 samples, features evaluated and multiplied: NumPy
in float32 (sines, cosines, ``Phi @ W``) beside the integer-only kernels, and sums by level
of given float64 features, at several fractions of zeros; one thread, medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from pydirect import DirectRegressor, Fourier, Sequential, SpikeAndSlabPrior, fit_quantized  # noqa: E402
from pydirect.features import FourierFeatures  # noqa: E402
from pydirect.features.basis import Basis  # noqa: E402
from pydirect.features.inputs import InputMap  # noqa: E402
from pydirect.quantized.compile import build_program, lay_out  # noqa: E402
from pydirect.quantized.fitted import Outputs  # noqa: E402

SETS = ("yacht", "housing", "concrete", "airfoil", "energy", "elevators")
BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
PATHS = ("exact", "float", "integer")
ZEROS = (0.0, 0.5, 0.84, 0.99)


def data_directory() -> Path:
    """Folder with uci/*.npz."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("PYDIRECT_DATA", default))
    if not (folder / "uci").exists():
        sys.exit(f"no data: {folder} must hold uci/; set PYDIRECT_DATA")
    return folder


def scores(model: Any, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """RMSE and NLPD of a Gaussian with the predicted mean and standard deviation."""
    mean, std = model.predict(x, return_std=True)
    density = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y - mean) / std) ** 2
    return float(np.sqrt(np.mean((mean - y) ** 2))), float(density.mean())


def accuracy_on(x: np.ndarray, y: np.ndarray, test: np.ndarray, budgets: list[int]) -> dict[str, tuple[float, ...]]:
    """Scores of every model on one fold."""
    train = (x[~test], y[~test])
    held = (x[test], y[test])
    results = {"default": scores(DirectRegressor().fit(*train), *held)}
    fourier = DirectRegressor(features=Fourier(rank_inputs=False))
    results["fourier"] = scores(fourier.fit(*train), *held)
    for budget in budgets:
        integer = fit_quantized(DirectRegressor(), *train, max_flash=budget)
        phi, held_phi = (integer.basis.transform(rows)[0] for rows in (train[0], held[0]))
        exact = DirectRegressor(features="precomputed").fit(phi, train[1])
        results[f"exact {budget}"] = scores(exact, held_phi, held[1])
        results[f"float {budget}"] = scores(exact.quantize(16, X=phi, levels="even"), held_phi, held[1])
        results[f"integer {budget}"] = (*scores(integer, *held), integer.n_bytes)
    return results


def accuracy(arguments: argparse.Namespace) -> None:
    """Print the table, write the plot and the figures."""
    folder, results = data_directory(), {}
    budgets = [int(b) for b in arguments.budgets.split(",")]
    for name in arguments.sets.split(","):
        data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folds = [
                accuracy_on(data["X"], data["y"], t, budgets)
                for t in data["test_mask"].T[arguments.first_fold :][: arguments.folds]
            ]
        results[name] = {k: np.mean([f[k] for f in folds], axis=0).tolist() for k in folds[0]}
        r = results[name]
        print(f"\n{name}: default {r['default'][0]:.4g} ({r['default'][1]:.3f}), ", end="")
        print(f"2000 features {r['fourier'][0]:.4g} ({r['fourier'][1]:.3f})")
        print("   bytes " + "".join(f"{p:>20s}" for p in PATHS) + "   RMSE (NLPD)")
        for budget in budgets:
            row = (f"{r[f'{p} {budget}'][0]:.4g} ({r[f'{p} {budget}'][1]:.3f})" for p in PATHS)
            used = r[f"integer {budget}"][2]
            print(f"{budget:8d} " + "".join(f"{v:>20s}" for v in row) + f"   {used:7.0f} bytes used", flush=True)
    for reference in ("exact 4096", "fourier", "default") if 4096 in budgets else ():
        within = [r["integer 4096"][0] <= 1.05 * r[reference][0] for r in results.values()]
        print(f"integer-only at 4 KiB within 5 % of the RMSE of {reference}: {sum(within)} of {len(within)} sets")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    if arguments.plot:
        plot(results, budgets, arguments.plot)


def levels(arguments: argparse.Namespace) -> None:
    """Print the table of numbers of levels and of zeros."""
    folder = data_directory()
    kinds: dict[str, dict[str, Any]] = {
        "15 levels": {},
        "3 levels": {"n_levels": 3},
        "spike 0.8": {"prior": SpikeAndSlabPrior(0.8), "level_scales": "shared"},
    }
    print("set        weights       64 draws (NLPD)          two draws  bytes  zeros            nearest  bytes")
    for name in arguments.sets.split(","):
        data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
        for label, options in kinds.items():
            rows = []
            for test in data["test_mask"].T[arguments.first_fold :][: arguments.folds]:
                held = (data["X"][test], data["y"][test])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = DirectRegressor(features=Fourier(rank_inputs=False), posterior=Sequential(**options))
                    model.fit(data["X"][~test], data["y"][~test])
                row = [*scores(model, *held)]
                for n in (2, 1):
                    integer = model.quantize(n, arithmetic="integer")
                    row += [*scores(integer, *held), integer.packed.n_stored_bytes, integer.report()["zeros"]]
                rows.append(row)
            r = np.mean(rows, axis=0)
            pairs = [f"{rmse:10.4g} ({density:5.2f})" for rmse, density in (r[:2], r[2:4], r[6:8])]
            print(
                f"{name:10s} {label:10s} {pairs[0]} {pairs[1]} {r[4]:6.0f} {r[5]:5.0%} {pairs[2]} {r[8]:6.0f}",
                flush=True,
            )


def plot(results: dict[str, dict[str, list[float]]], budgets: list[int], path: Path) -> None:
    """Draw RMSE relative to the exact posterior of 2000 features, and NLPD, against bytes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(results), figsize=(3 * len(results), 5.5), sharex=True, layout="constrained")
    for column, (name, r) in zip(np.atleast_2d(axes.T), results.items(), strict=True):
        for row, axis in enumerate(column):
            unit = r["fourier"][0] if row == 0 else 1.0
            for label, style in zip(PATHS, (":", "--", "-"), strict=True):
                axis.plot(budgets, [r[f"{label} {b}"][row] / unit for b in budgets], style, marker=".", label=label)
            for label, colour in (("fourier", "0.6"), ("default", "0.2")):
                axis.axhline(r[label][row] / unit, color=colour, lw=0.8, label=label)
            axis.set_xscale("log", base=2)
        column[0].set_title(name)
        column[1].set_xlabel("bytes")
    axes[0, 0].set_ylabel("RMSE / that of 2000 features")
    axes[1, 0].set_ylabel("NLPD")
    axes[0, -1].legend(fontsize="small")
    figure.savefig(path, dpi=70)


def median_seconds(call: Any, repeats: int) -> float:
    """Median of several runs after one that is not counted."""
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def throughput(arguments: argparse.Namespace) -> None:
    """Print predictions per second."""
    rng = np.random.default_rng(0)
    n, d, f, s = arguments.rows, arguments.inputs, 1000, 16
    x = rng.standard_normal((n, d))
    features = FourierFeatures(rng.standard_normal((d, f)), np.full(f, np.sqrt(1 / f)))
    layout = lay_out(features, np.ones(2 * f, dtype=bool))
    levels = np.linspace(-3, 3, 15)
    output = Outputs(
        scale=np.ones(1),
        offset=np.zeros(1),
        noise=np.full(1, 0.01),
        calibration=1.0,
        one_dimensional=True,
        n_features_in=d,
    )
    single, frequencies = x.astype(np.float32), features.frequencies.astype(np.float32)
    amplitude = np.float32(features.amplitudes[0])
    block = 1024  # rows that NumPy takes at a time: their features stay in the cache
    print(f"{d} inputs, {f} frequencies, {s} samples; thousands of predictions a second, and times NumPy")
    print("zeros      NumPy          integers")
    for zeros in ZEROS:
        codes = rng.integers(1, 15, (2 * f, s)).astype(np.uint8)
        codes[codes <= 7] -= 1
        codes[rng.random(codes.shape) < zeros] = 7
        w = np.ascontiguousarray(levels[codes].astype(np.float32))

        def numpy_path(w: np.ndarray = w) -> None:
            for begin in range(0, n, block):
                phase = single[begin : begin + block] @ frequencies
                phi = np.empty((len(phase), 2 * f), dtype=np.float32)
                np.cos(phase, out=phi[:, :f])
                np.sin(phase, out=phi[:, f:])
                (phi @ w) * amplitude

        base = n / median_seconds(numpy_path, arguments.repeats) / 1e3
        line = f"{100 * zeros:4.0f} % {base:10.0f}"
        program = build_program(Basis(InputMap.identity(d), features), layout, codes, levels, s, output)
        rate = n / median_seconds(lambda program=program: program.run(x), arguments.repeats) / 1e3
        print(line + f" {rate:10.0f} ({rate / base:4.1f}x)", flush=True)


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    sizes = commands.add_parser("accuracy")
    sizes.add_argument("--sets", default=",".join(SETS), help="comma-separated file names")
    sizes.add_argument("--first-fold", type=int, default=3, help="settings were chosen on those before (default: 3)")
    sizes.add_argument("--folds", type=int, default=7)
    sizes.add_argument("--budgets", default=",".join(map(str, BUDGETS)), help="comma-separated numbers of bytes")
    sizes.add_argument("--plot", type=Path)
    sizes.add_argument("--json", type=Path)
    sizes.set_defaults(run=accuracy)
    few = commands.add_parser("levels")
    few.add_argument("--sets", default=",".join(SETS), help="comma-separated file names")
    few.add_argument("--first-fold", type=int, default=3)
    few.add_argument("--folds", type=int, default=2)
    few.set_defaults(run=levels)
    speed = commands.add_parser("throughput")
    speed.add_argument("--rows", type=int, default=20_000)
    speed.add_argument("--inputs", type=int, default=8)
    speed.add_argument("--repeats", type=int, default=5)
    speed.set_defaults(run=throughput)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
