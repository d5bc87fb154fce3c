"""Figure 1 of Evans & Nair (2018), re-run: the ELBO against steps and seconds, DIRECT beside stochastic gradients.

    python bench/paper/figure1.py [--figure figure1.png] [--json figure1.json]
    python bench/paper/figure1.py --settings 1000x20 --budgets 30,100,300    # a quick look

Data: a random weighting, drawn from the prior, of b random Fourier features of a squared exponential kernel, with
Gaussian noise of variance one; the model has these features, m̄ = 3 levels per weight and 3 noise levels, uniform
priors, and every method but our default starts from them (the paper's section 5.1, which leaves n, inputs and noise
open). Twenty inputs keep the features apart: with few inputs, or noise so small that the first noise level is soon
given up for good, gradient methods end in local optima, exact ones too, and the figure would be about those.

DIRECT is the published L-BFGS on all logits, and this package's default. Each baseline climbs by Adam with every step
size of --step-sizes and every number of steps of --budgets, in ascending order until one comes within --tolerance nats
per datum of DIRECT's ELBO; the fastest such run counts, re-run with other seeds: medians of those of --repeats that
come as near. The exact ELBO that decides is evaluated outside the clock.

All baselines read the sufficient statistics, as DIRECT does: their steps cost the same for any n. The column `rows/n`
is what the same number of steps takes where every step reads all n rows, as published: seconds per step measured over a
few steps, times the steps; beside it, as multiples of L-BFGS's seconds and of these with those of collecting the
statistics, which such a method does without. Rows marked "batch" read some rows per step instead. "no c. v." has no
control variate; REINFORCE otherwise subtracts the mean of the step's other samples, with t = 1 a moving average.

`noise` is the root of the summed variance of the gradient's entries over the exact gradient's length, at the start; it
is zero for DIRECT. Seconds are processor time of one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from pydirect import GaussianStatistics, collect_statistics, evenly_spaced_levels  # noqa: E402
from pydirect.baselines import Concrete, Reinforce, StochasticELBO, fit_stochastic  # noqa: E402
from pydirect.baselines.stochastic import Estimator, Exact, StochasticFit  # noqa: E402
from pydirect.direct.mean_field import MeanFieldRegression, fit_regression  # noqa: E402
from pydirect.features import FourierFeatures  # noqa: E402
from pydirect.optimize.gradient import lbfgs_on_logits  # noqa: E402

N_INPUTS = 20
NOISE = 1.0
NOISE_LEVELS = [0.1, 1.0, 10.0]
SAMPLES = (1, 10, 100, 1000)
BATCH = 1000
PUBLISHED, DEFAULT = "DIRECT, L-BFGS", "DIRECT, default"


@dataclass
class Result:
    """How one method did in one setting."""

    method: str
    reached: bool = True
    steps: float = 0.0
    seconds: float = 0.0
    gap: float = 0.0  # smallest distance below DIRECT's ELBO, nats per datum
    noise: float = 0.0  # of the gradient at the start, relative
    rows_seconds: float | None = None  # of as many steps that read all rows
    step_size: float | None = None
    budget: int | None = None
    seeds_reached: str = ""
    trace: dict[str, list[float]] = field(default_factory=dict)


def estimators() -> dict[str, Estimator]:
    """All baselines by their labels; batched ones end in "batch"."""
    found: dict[str, Estimator] = {"Adam, exact gradient": Exact()}
    for t in SAMPLES:
        control = "moving_average" if t == 1 else "leave_one_out"
        found[f"REINFORCE, t = {t}"] = Reinforce(n_samples=t, control=control)
    for t in SAMPLES:
        found[f"REINFORCE, no c. v., t = {t}"] = Reinforce(n_samples=t, control="none")
    for t in SAMPLES[:3]:
        found[f"CONCRETE, t = {t}"] = Concrete(n_samples=t, temperature=1.0, final_temperature=0.1)
    found[f"REINFORCE, t = 100, batch {BATCH}"] = Reinforce(n_samples=100)
    found[f"CONCRETE, t = 10, batch {BATCH}"] = Concrete(n_samples=10, temperature=1.0, final_temperature=0.1)
    return found


def make_problem(n: int, b: int) -> tuple[MeanFieldRegression, np.ndarray, np.ndarray, float]:
    """Model, Φ, y, and the seconds that the statistics took."""
    rng = np.random.default_rng(0)
    features = FourierFeatures(rng.standard_normal((N_INPUTS, b // 2)), np.full(b // 2, np.sqrt(2.0 / b)))
    levels = evenly_spaced_levels(3, 1.0)
    weights = rng.choice(levels, b)
    x = rng.standard_normal((n, N_INPUTS))
    phi = features.transform(x)
    y = phi @ weights + NOISE * rng.standard_normal(n)
    begin = time.process_time()
    statistics: GaussianStatistics = collect_statistics(features, x, y[:, None], n_threads=1)
    seconds = time.process_time() - begin
    statistics.A  # noqa: B018 (formed on first use)
    return MeanFieldRegression.of(statistics, levels, np.full(3, -np.log(3.0)), NOISE_LEVELS), phi, y, seconds


class TimedSolver:
    """Notes time and value of every evaluation of a compiled solver."""

    def __init__(self, model: MeanFieldRegression) -> None:
        self._begin = time.process_time()
        self._solver = model.solver(1)
        self.found: list[tuple[float, float]] = []

    def elbo_and_gradient(self, *arguments: Any) -> Any:
        """As the solver's."""
        result = self._solver.elbo_and_gradient(*arguments)
        self.found.append((time.process_time() - self._begin, result[0]))
        return result


def run_published(model: MeanFieldRegression) -> np.ndarray:
    """Rows of (evaluation, seconds, ELBO) of L-BFGS on all logits from the prior."""
    solver = TimedSolver(model)
    logits = np.ascontiguousarray(np.broadcast_to(model.log_prior, (model.statistics.n_weights, 3)))
    lbfgs_on_logits(solver, 3, logits, model.noise.log_prior, 1000)
    return np.array([(i, *pair) for i, pair in enumerate(solver.found)])


def run_default(model: MeanFieldRegression) -> tuple[float, float, int]:
    """Seconds, ELBO and iterations of the package's default."""
    begin = time.process_time()
    posterior = fit_regression(model)
    return time.process_time() - begin, posterior.elbo, posterior.n_iter


def first_within(trace: np.ndarray, target: float) -> np.ndarray | None:
    """First row of (step, seconds, ELBO) at or above the target."""
    above = trace[:, 2] >= target
    return trace[above.argmax()] if above.any() else None


def trace_of(fit: StochasticFit) -> np.ndarray:
    """Rows of (step, seconds, ELBO)."""
    return np.column_stack([fit.steps, fit.seconds, fit.elbo])


def run_direct(model: MeanFieldRegression, n: int, tolerance: float, repeats: int) -> tuple[float, list[Result]]:
    """DIRECT's ELBO, the better of both, and their results."""
    for _ in range(2):  # pages touched, code loaded
        run_published(model), run_default(model)
    published = [run_published(model) for _ in range(repeats)]
    default = [run_default(model) for _ in range(repeats)]
    best = max(default[0][1], published[0][:, 2].max())
    found = [Result(PUBLISHED), Result(DEFAULT)]
    trace = np.median(published, axis=0)
    found[0].trace, found[0].gap = as_lists(trace), float(best - trace[:, 2].max()) / n
    within = first_within(trace, best - tolerance * n)
    found[0].reached = within is not None
    found[0].steps, found[0].seconds = (trace[-1] if within is None else within)[:2]
    found[0].steps += 1
    found[1].seconds, elbo, found[1].steps = np.median(default, axis=0)
    found[1].gap = float(best - elbo) / n
    found[1].reached = found[1].gap <= tolerance
    return best, found


def as_lists(trace: np.ndarray) -> dict[str, list[float]]:
    """Columns of a trace for JSON, thinned."""
    chosen = np.unique(np.geomspace(1, len(trace), min(len(trace), 300)).round().astype(int)) - 1
    return dict(zip(("steps", "seconds", "elbo"), trace[chosen].T.tolist(), strict=True))


def run_baseline(
    label: str,
    estimator: Estimator,
    model: MeanFieldRegression,
    rows: tuple[np.ndarray, np.ndarray],
    best: float,
    arguments: argparse.Namespace,
) -> Result:
    """Search budgets and step sizes, then repeat what was best."""
    n = len(rows[1])
    target = best - arguments.tolerance * n
    batch: dict[str, Any] = {"rows": rows, "batch_size": BATCH} if "batch" in label else {}

    def run(budget: int, size: float, seed: int) -> np.ndarray:
        checks = min(budget, 300)
        options = {"n_steps": budget, "step": size, "n_checks": checks, "random_state": seed}
        return trace_of(fit_stochastic(model, estimator, **options, **batch))

    spent = time.process_time()
    for budget in arguments.budgets:
        runs = {size: run(budget, size, 0) for size in arguments.step_sizes}
        within = {size: first_within(trace, target) for size, trace in runs.items()}
        reached = {size: row for size, row in within.items() if row is not None}
        if reached or time.process_time() - spent > arguments.limit:
            break
    result = Result(label, bool(reached), budget=budget)
    if reached:
        result.step_size = min(reached, key=lambda size: reached[size][1])
        traces = [runs[result.step_size]]
        traces += [run(budget, result.step_size, seed) for seed in range(1, arguments.repeats)]
        rows_within = [row for row in (first_within(trace, target) for trace in traces) if row is not None]
        result.steps, result.seconds = np.median(rows_within, axis=0)[:2]
        result.seeds_reached = f"{len(rows_within)}/{len(traces)}"
    else:
        result.step_size = max(runs, key=lambda size: runs[size][:, 2].max())
        traces = [runs[result.step_size]]
        result.steps, result.seconds = traces[0][-1, :2]
        result.seeds_reached = f"0/{len(runs)}"
    result.gap = float(best - max(trace[:, 2].max() for trace in traces)) / n
    result.trace = as_lists(traces[0])

    rng = np.random.default_rng(0)
    bound = StochasticELBO(model, estimator, **batch)
    variance = bound.gradient_variance(bound.start, rng, 50)
    result.noise = float(np.sqrt(variance.sum()) / np.linalg.norm(bound.exact_gradient(bound.start)))
    if not batch and isinstance(estimator, Reinforce | Concrete):
        result.rows_seconds = result.steps * seconds_reading_all(model, estimator, rows)
    return result


def seconds_reading_all(
    model: MeanFieldRegression, estimator: Reinforce | Concrete, rows: tuple[np.ndarray, np.ndarray]
) -> float:
    """Seconds of a step that reads all rows; where n x t is large, those of fewer samples, times what is missing."""
    n, t = len(rows[1]), estimator.n_samples
    few = min(t, max(2, int(1e7) // n))
    bound = StochasticELBO(model, replace(estimator, n_samples=few), rows)
    rng = np.random.default_rng(0)
    bound.gradient(bound.start, rng)
    begin, repeats = time.process_time(), 0
    while repeats < 2 or time.process_time() - begin < 0.05:
        bound.gradient(bound.start, rng)
        repeats += 1
    return (time.process_time() - begin) / repeats * t / few


def report(setting: str, found: list[Result], best: float, statistics_seconds: float) -> None:
    """Print one setting's table."""
    n, b = map(int, setting.split("x"))
    print(f"\nn = {n:,}, b = {b}: DIRECT's ELBO {best:.6g} ({best / n:.4f} a datum)", end="; ")
    print(f"statistics {statistics_seconds:.4f} s")
    print(
        f"{'':32s}   steps   seconds  x L-BFGS  x default     rows/n  x L-BFGS  x with statistics",
        " gap a datum    noise  step seeds",
    )
    published, default = found[0].seconds, found[1].seconds
    for r in found:
        mark = " " if r.reached else ">"
        print(f"{r.method:32s} {mark}{r.steps:7.0f} {r.seconds:9.5f} {r.seconds / published:9.1f}", end=" ")
        print(f"{r.seconds / default:10.1f}", end=" ")
        rows = ""
        if r.rows_seconds is not None:
            with_statistics = r.rows_seconds / (published + statistics_seconds)
            rows = f"{r.rows_seconds:10.4g} {r.rows_seconds / published:9.0f} {with_statistics:18.3g}"
        size = "" if r.step_size is None else f"{r.step_size:5.2g} {r.seeds_reached}"
        print(f"{rows:39s} {r.gap:12.2e} {r.noise:8.3g} {size}", flush=True)


# The picture

_INK, _BLUES = "#222222", ("#9ECAE1", "#56B4E9", "#0072B2", "#08306B")
_ORANGES = ("#F6C58F", "#E69F00", "#D55E00", "#7F2704")
_GREENS = ("#7FCDB0", "#009E73", "#005A41")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def style_of(label: str) -> dict[str, Any]:
    """Colour by method and samples, dashes and width by kind: legible without colour too."""
    if label == PUBLISHED:
        return {"color": _INK, "lw": 2.6}
    if label == DEFAULT:
        return {"color": _INK, "lw": 0, "marker": "*", "ms": 13}
    if label.startswith("Adam"):
        return {"color": "#7A7A7A", "lw": 2.0, "ls": (0, (5, 1.5))}
    t = SAMPLES.index(int(label.split("t = ")[1].split(",")[0]))
    if label.startswith("CONCRETE"):
        return {"color": _GREENS[t], "lw": 1.5, "ls": (0, (1, 1))}
    if "no c. v." in label:
        return {"color": _ORANGES[t], "lw": 1.3, "ls": (0, (4, 2))}
    return {"color": _BLUES[t], "lw": 1.5}


def curve(r: Result, across: str, best: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps plus one, or seconds from the first step on, and distances below DIRECT's ELBO a datum."""
    if r.method == DEFAULT:
        return np.array([getattr(r, across)]), np.array([r.gap])
    x, gap = np.array(r.trace[across]), (best - np.array(r.trace["elbo"])) / n
    if across == "steps":
        return x + 1, gap
    begun = slice(0 if r.method == PUBLISHED else 1, None)
    return x[begun], gap[begun]


def draw(path: Path, results: dict[str, dict[str, Any]], tolerance: float) -> None:
    """Convergence in the first setting above, steps and seconds to the tolerance in all settings below.

    Distances below a thirtieth of the tolerance are drawn there.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 12.0), layout="constrained")
    panels = figure.subplots(2, 2, height_ratios=(1.0, 1.6))
    setting, first = next(iter(results.items()))
    n, b = map(int, setting.split("x"))
    lowest = tolerance / 30
    for column, across in enumerate(("steps", "seconds")):
        ax = panels[0, column]
        for r in first["methods"]:
            if "batch" not in r.method:
                x, gap = curve(r, across, first["best"], n)
                label = r.method if column == 0 else None
                ax.plot(x, np.maximum(gap, lowest), label=label, **style_of(r.method))
        ax.axhline(tolerance, color=_INK, lw=0.8, ls=":")
        ax.set(xscale="log", yscale="log", ylim=(0.7 * lowest, None))
        ax.set_xlabel("steps (evaluations for L-BFGS), plus one" if column == 0 else "seconds")
        if across == "seconds":
            ax.set_xlim(1e-4, None)
        ax.set_ylabel("distance below DIRECT's ELBO, nats per datum" if column == 0 else "")
        ax.set_title(f"n = {n:,}, b = {b}: by {across}", fontsize="medium", loc="left")
        ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize="small")

    methods = [r.method for r in first["methods"]]
    names = list(dict.fromkeys([*methods, *(r.method for v in results.values() for r in v["methods"])]))
    narrow = {"columnspacing": 0.8, "handletextpad": 0.1}
    offsets = np.linspace(-0.28, 0.28, len(results)) if len(results) > 1 else [0.0]
    for column, across in enumerate(("steps", "seconds")):
        ax = panels[1, column]
        for k, (setting, values) in enumerate(results.items()):
            n, b = map(int, setting.split("x"))
            colour = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")[k % 6]
            style = {"marker": _MARKERS[k % 6], "ls": "", "ms": 4.5, "color": colour}
            for reached in (True, False):
                chosen = [r for r in values["methods"] if r.reached == reached]
                at = [names.index(r.method) + offsets[k] for r in chosen]
                x = [getattr(r, across) for r in chosen]
                label = f"n = {n:,}, b = {b}" if reached and column == 0 else None
                ax.plot(x, at, mfc=colour if reached else "none", label=label, **style)
            if across == "seconds":
                read = [r for r in values["methods"] if r.rows_seconds is not None]
                at = [names.index(r.method) + offsets[k] for r in read]
                ax.plot([r.rows_seconds for r in read], at, **{**style, "marker": "|", "ms": 7, "mew": 1.8})
        ax.set(xscale="log", yticks=range(len(names)), ylim=(len(names) - 0.5, -0.5))
        ax.set_yticklabels(names if column == 0 else [], fontsize="small")
        ax.set_xlabel(f"{across} to within {tolerance:g} nats per datum\n(open: not reached within the limit)")
        ax.grid(axis="y", color="0.92", lw=12)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        if across == "seconds":
            ax.plot([], [], "|", color=_INK, ms=9, mew=1.8, label="as many steps that read all rows, as published")
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False, fontsize="small", **narrow)
    figure.savefig(path, dpi=200)


def main() -> None:
    """Run, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="1000x20,1000x100,1000000x20", help="n x b, comma-separated")
    parser.add_argument("--budgets", default="30,100,300,1000", help="numbers of steps that are tried in turn")
    parser.add_argument("--step-sizes", default="0.1,0.3,1.0", help="of Adam")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="nats per datum")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of search after which no budget is begun")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--figure", type=Path, metavar="PNG or SVG")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.budgets = [int(v) for v in arguments.budgets.split(",")]
    arguments.step_sizes = [float(v) for v in arguments.step_sizes.split(",")]
    warnings.simplefilter("ignore")
    results: dict[str, dict[str, Any]] = {}
    for setting in arguments.settings.split(","):
        n, b = map(int, setting.split("x"))
        model, phi, y, seconds = make_problem(n, b)
        best, found = run_direct(model, n, arguments.tolerance, max(arguments.repeats, 3))
        for label, estimator in estimators().items():
            if "batch" not in label or n > BATCH:
                found.append(run_baseline(label, estimator, model, (phi, y), best, arguments))
        report(setting, found, best, seconds)
        results[setting] = {"best": best, "statistics_seconds": seconds, "methods": found}
        if arguments.figure:
            draw(arguments.figure, results, arguments.tolerance)
        if arguments.json:
            plain = {k: {**v, "methods": [asdict(r) for r in v["methods"]]} for k, v in results.items()}
            arguments.json.write_text(json.dumps({"tolerance": arguments.tolerance, "settings": plain}, default=float))


if __name__ == "__main__":
    main()
