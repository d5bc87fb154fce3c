"""Tables 2 and 5 and figures 3 and 5 of Wu et al. (ICLR 2019), re-run: networks of one hidden layer on UCI sets.

    python bench/paper/dvi.py [--sets bost,yach] [--splits 20] [--variants DVI,hoDVI] [--jobs 2] [--json out.json]
    python bench/paper/dvi.py --figure3 figure3.png
    python bench/paper/dvi.py --figure5 figure5.png [--sets bost,ener] [--splits 5]

Random splits, a tenth of the rows for the test; 50 units, 100 for prot, which has five splits. Every variant runs with
the estimator's defaults but for what its name says: DVI (varying noise, empirical Bayes), dDVI (diagonal
covariance), hoDVI (constant noise), MCVI (ten draws of the weights per step), and DVI-fixed and MCVI-fixed (one prior
variance for all weights, chosen from a grid by the log density of a held-out ninth of the training rows; the paper
does not say on what rows it was tuned). Nothing is chosen by the test rows.

Columns: test log density per row (nats, user's units) and RMSE with standard errors over splits, the bound per
training row (in user's units, of a different prior in each variant), median seconds per fit, the paper's log density,
and whether ours is not more than two combined standard errors below it, the paper's figures as they are printed
there. Below each set the gains of DVI over hoDVI and over DVI-fixed on the same splits, judged by two of their own
standard errors. One thread per fit.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from table1 import data_directory  # noqa: E402

from pydirect import DVIRegressor, TrainingSchedule  # noqa: E402

SETS = ("bost", "conc", "ener", "kin8", "powe", "prot", "wine", "yach")
VARIANTS: dict[str, dict[str, Any]] = {
    "DVI": {},
    "dDVI": {"covariance": "diagonal"},
    "hoDVI": {"noise": "constant"},
    "MCVI": {"inference": "mcvi"},
    "DVI-fixed": {},
    "MCVI-fixed": {"inference": "mcvi"},
}
PRIOR_VARIANCES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
COLUMNS = ("log density", "rmse", "bound", "seconds")
HIDDEN, SPLITS = {"prot": (100,)}, {"prot": 5}

Split = tuple[str, int]


def rows_of(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training inputs and targets, test inputs and targets."""
    data = np.load(data_directory() / "dvi_uci" / f"{name}.npz", allow_pickle=False)
    test = data["test_mask"][:, split]
    return data["X"][~test], data["y"][~test], data["X"][test], data["y"][test]


def scores(name: str, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, **options: Any) -> list:
    """Log density, RMSE, bound a row and seconds of one fit."""
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    model = DVIRegressor(HIDDEN.get(name, (50,)), **options).fit(x, y)
    seconds = time.perf_counter() - begin
    rmse = np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2))
    return [float(model.log_predictive_density(x_test, y_test).mean()), float(rmse), model.elbo_ / len(y), seconds]


def run(task: tuple[str, int, str]) -> list[float]:
    """Scores of one variant on one split."""
    name, split, variant = task
    x, y, x_test, y_test = rows_of(name, split)
    options = VARIANTS[variant]
    if not variant.endswith("-fixed"):
        return scores(name, x, y, x_test, y_test, **options)
    x_fit, x_held, y_fit, y_held = train_test_split(x, y, test_size=1 / 9, random_state=split)
    held_out = [scores(name, x_fit, y_fit, x_held, y_held, prior=v, **options)[0] for v in PRIOR_VARIANCES]
    return scores(name, x, y, x_test, y_test, prior=PRIOR_VARIANCES[int(np.argmax(held_out))], **options)


def run_prior(task: tuple[str, int, Any]) -> float:
    """Test log density of one prior on one split."""
    name, split, prior = task
    return scores(name, *rows_of(name, split), prior=prior)[0]


def standard_error(values: np.ndarray) -> np.ndarray:
    """Of the mean over splits."""
    return (
        np.std(values, axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.full(values.shape[1:], np.nan)
    )


def verdict(values: np.ndarray, paper: dict[str, float]) -> str:
    """Whether a mean over splits is within two combined standard errors of the paper's, or better."""
    gap = values.mean() - paper["mean"]
    return judgement(gap, float(np.hypot(standard_error(values), paper["err"])))


def judgement(gap: float, error: float) -> str:
    """Put a difference beside two of its standard errors, which one split does not have."""
    if np.isnan(error):
        return "undecided"
    return "better" if gap > 2 * error else "as good" if gap >= -2 * error else "WORSE"


def paper_results() -> dict[str, dict[str, dict[str, float]]]:
    """Log densities by set and variant."""
    paper = json.loads((data_directory() / "paper_results.json").read_text())["dvi_iclr2019"]
    return {name: {**paper["table5"][name], **paper["table2"][name]} for name in paper["table2"]}


def table(sets: list[str], variants: list[str], n_splits: int, jobs: int) -> dict[str, dict[str, list[list[float]]]]:
    """Run and print the tables."""
    paper, results = paper_results(), {}
    print(f"{'set':5s} {'variant':10s} {'log density':>16s} {'rmse':>17s} {'bound':>8s} {'seconds':>8s}   paper")
    with ProcessPoolExecutor(jobs) as pool:
        for name in sets:
            splits = range(min(n_splits, SPLITS.get(name, n_splits)))
            for variant in variants:
                found = list(pool.map(run, [(name, split, variant) for split in splits]))
                results.setdefault(name, {})[variant] = found
                values = np.array(found)
                mean, error = values.mean(axis=0), standard_error(values)
                published = paper[name].get(variant)
                text = f"{published['mean']:6.2f} ± {published['err']:.2f} {verdict(values[:, 0], published)}"
                print(
                    f"{name:5s} {variant:10s} {mean[0]:8.3f} ± {error[0]:.3f} {mean[1]:9.4g} ± {error[1]:.2g}"
                    f" {mean[2]:8.3f} {np.median(values[:, 3]):8.2f}   {text}",
                    flush=True,
                )
            compare(name, results[name])
    return results


def compare(name: str, results: dict[str, list[list[float]]]) -> None:
    """Print what the paper claims of variants of the same splits, with the paired standard error."""
    if "DVI" not in results:
        return
    best = np.array(results["DVI"])[:, 0]
    for other in ("hoDVI", "DVI-fixed"):
        if other in results:
            gain = best - np.array(results[other])[:, 0]
            mean, error = gain.mean(), float(standard_error(gain))
            print(f"{name:5s} DVI − {other}: {mean:.3f} ± {error:.3f} {judgement(mean, error)}", flush=True)


# --- figures


def toy_data() -> tuple[np.ndarray, np.ndarray]:
    """500 points of figure 3."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.5, 0.5, 500)
    y = -(x + 0.5) * np.sin(3 * np.pi * x) + 0.45 * (x + 0.5) ** 2 * rng.standard_normal(500)
    return x[:, None], y


def figure3(path: Path) -> None:
    """Draw the fit, and the output's marginals at x = 0.25 beside 20 000 networks drawn from the posterior."""
    from matplotlib.figure import Figure

    x, y = toy_data()
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    axes = figure.subplot_mosaic([["fit", "m0", "l0"], ["fit", "m1", "l1"]], width_ratios=[1.6, 1, 1])
    at = np.array([[0.25]])
    for when, label, stage in (
        (0, "before training", {"schedule": TrainingSchedule(n_steps=1, learning_rate=1e-9)}),
        (1, "after training", {}),
    ):
        model = DVIRegressor((128, 128), **stage).fit(x, y)
        posterior, inputs = model.posterior_, model.input_map_.transform(at)
        mean, covariance = posterior.moments(inputs)
        rng = np.random.default_rng(0)
        draws = np.concatenate([posterior.forward(posterior.sample_weights(250, rng), inputs)[0].T for _ in range(80)])
        for k, output in enumerate("ml"):
            ax, sd = axes[f"{output}{when}"], float(np.sqrt(covariance[0, k, k]))
            grid = mean[0, k] + sd * np.linspace(-4.5, 4.5, 400)
            ax.hist(draws[:, k], bins=80, density=True, color="0.75", label="20 000 draws")
            density = np.exp(-0.5 * ((grid - mean[0, k]) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
            ax.plot(grid, density, color="#1f77b4", label="propagated moments")
            ax.set(title=f"{'mean' if output == 'm' else 'log noise variance'}, {label}", yticks=[])
    axes["m0"].set_ylim(top=1.4 * axes["m0"].get_ylim()[1])  # room for the legend
    axes["m0"].legend(fontsize=8, loc="upper right")
    grid = np.linspace(-0.7, 0.7, 400)[:, None]
    mean, std = model.predict(grid, return_std=True)
    _, epistemic, _ = model.predict_parts(grid)
    ax = axes["fit"]
    ax.scatter(x[:, 0], y, s=6, color="0.5", label="data")
    ax.plot(grid[:, 0], mean, color="#1f77b4", label="mean")
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.2, color="#1f77b4", label="± 2 sd")
    ax.fill_between(grid[:, 0], mean - 2 * epistemic, mean + 2 * epistemic, alpha=0.3, color="#1f77b4")
    ax.axvline(0.25, color="0.3", lw=0.8, ls=":")
    ax.set(title=f"2 × 128 units, bound {model.elbo_ / len(y):.2f} nats per row", xlabel="x", ylim=(-1.6, 1.6))
    ax.legend(fontsize=8, loc="lower left")
    figure.savefig(path, dpi=120)


def figure5(path: Path, sets: list[str], n_splits: int, jobs: int) -> None:
    """Draw test log densities over fixed prior variances beside empirical Bayes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3 * min(4, len(sets)), 2.7 * -(-len(sets) // 4)), layout="constrained")
    axes = figure.subplots(-(-len(sets) // 4), min(4, len(sets)), squeeze=False).ravel()
    with ProcessPoolExecutor(jobs) as pool:
        for ax, name in zip(axes, sets, strict=False):
            splits = range(min(n_splits, SPLITS.get(name, n_splits)))
            priors = [*PRIOR_VARIANCES, "empirical_bayes"]
            found = list(pool.map(run_prior, [(name, split, prior) for prior in priors for split in splits]))
            values = np.array(found).reshape(len(priors), -1)
            mean, error = values.mean(axis=1), np.nan_to_num(standard_error(values.T))
            ax.errorbar(PRIOR_VARIANCES, mean[:-1], error[:-1], color="tab:orange", marker="o", ms=3, label="fixed")
            ax.axhline(mean[-1], color="tab:blue", label="empirical Bayes")
            ax.axhspan(mean[-1] - error[-1], mean[-1] + error[-1], color="tab:blue", alpha=0.2)
            ax.set(xscale="log", title=name)
            print(name, " ".join(f"{p}: {m:.3f}" for p, m in zip(priors, mean, strict=True)), flush=True)
    axes[0].legend(fontsize=8)
    axes[0].set(xlabel="prior variance", ylabel="test log density")
    for ax in axes[len(sets) :]:
        ax.remove()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--variants", default="DVI,dDVI,hoDVI,MCVI,DVI-fixed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure3", type=Path, metavar="PNG")
    parser.add_argument("--figure5", type=Path, metavar="PNG")
    arguments = parser.parse_args()
    sets = arguments.sets.split(",")
    warnings.simplefilter("ignore")
    if arguments.figure3:
        figure3(arguments.figure3)
    if arguments.figure5:
        figure5(arguments.figure5, sets, arguments.splits, arguments.jobs)
    if not (arguments.figure3 or arguments.figure5):
        results = table(sets, arguments.variants.split(","), arguments.splits, arguments.jobs)
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
