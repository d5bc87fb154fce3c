"""Networks trained from draws beside deterministic ones: posterior laws and KL modes of Nazarovs et al. (UAI 2021).

    python bench/paper/monte_carlo_networks.py [--sets bost,yach] [--splits 5] [--variants normal,DVI] [--jobs 2]
    python bench/paper/monte_carlo_networks.py --gradient-variance figure.png

The splits of dvi.py, 50 units in one hidden layer, varying noise, empirical Bayes; every other option is the
estimators' default. Variants: normal, laplace, logistic, radial (weights drawn at every step, exact divergences), local
(normal, pre-activations drawn), independent, direct and fixed (normal, divergences from 100 draws a weight, made once
for fixed), kept (fixed with ten draws of the network, too, that are kept for L-BFGS after Adam, constant noise),
and beside them DVI and DIRECT.

Columns: test log density a row (nats, user's units) and RMSE with standard errors over splits, the bound a training row
(of fresh draws; of DIRECT's own model), median seconds per fit. One thread per fit.

The figure is the paper's figure 2, left: summed variance of the divergence's gradient against the number of draws, for
one hidden layer of 50 units at a random point, over 200 seeds, for every mode that has draws.
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
from dvi import rows_of, standard_error  # noqa: E402

from pydirect import DirectRegressor, DVIRegressor, MonteCarloBNNRegressor, TrainingSchedule  # noqa: E402
from pydirect.networks.sampled import SampledNetwork  # noqa: E402

HIDDEN = {"hidden_layer_sizes": (50,)}
KEPT = TrainingSchedule("adam+lbfgs", n_steps=3000)
VARIANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{
        law: (MonteCarloBNNRegressor, HIDDEN | {"posterior": law})
        for law in ("normal", "laplace", "logistic", "radial")
    },
    "local": (MonteCarloBNNRegressor, HIDDEN | {"sampling": "pre_activations"}),
    "independent": (MonteCarloBNNRegressor, HIDDEN | {"kl_mode": "independent"}),
    "direct": (MonteCarloBNNRegressor, HIDDEN | {"kl_mode": "direct"}),
    "fixed": (MonteCarloBNNRegressor, HIDDEN | {"kl_mode": "fixed"}),
    "kept": (MonteCarloBNNRegressor, HIDDEN | {"kl_mode": "fixed", "noise": "constant", "schedule": KEPT}),
    "DVI": (DVIRegressor, HIDDEN),
    "DIRECT": (DirectRegressor, {}),
}
MODES = {"direct": "tab:green", "shared": "tab:orange", "independent": "tab:blue", "naive": "tab:red"}


def run(task: tuple[str, int, str]) -> list[float]:
    """Log density, RMSE, bound a row and seconds of one variant on one split."""
    name, split, variant = task
    warnings.simplefilter("ignore")
    x, y, x_test, y_test = rows_of(name, split)
    estimator, options = VARIANTS[variant]
    begin = time.perf_counter()
    model = estimator(**options).fit(x, y)
    seconds = time.perf_counter() - begin
    rmse = np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2))
    return [float(model.log_predictive_density(x_test, y_test).mean()), float(rmse), model.elbo_ / len(y), seconds]


def table(sets: list[str], variants: list[str], n_splits: int, jobs: int) -> dict[str, dict[str, list[list[float]]]]:
    """Run and print."""
    results: dict[str, dict[str, list[list[float]]]] = {}
    print(f"{'set':5s} {'variant':12s} {'log density':>16s} {'rmse':>17s} {'bound':>8s} {'seconds':>8s}")
    with ProcessPoolExecutor(jobs) as pool:
        for name in sets:
            for variant in variants:
                found = list(pool.map(run, [(name, split, variant) for split in range(n_splits)]))
                results.setdefault(name, {})[variant] = found
                values = np.array(found)
                mean, error = values.mean(axis=0), standard_error(values)
                print(
                    f"{name:5s} {variant:12s} {mean[0]:8.3f} ± {error[0]:.3f} {mean[1]:9.4g} ± {error[1]:.2g}"
                    f" {mean[2]:8.3f} {np.median(values[:, 3]):8.2f}",
                    flush=True,
                )
    return results


def gradient_variances(kl_mode: str, n_draws: int, n_seeds: int = 200) -> float:
    """Summed over parameters, of the divergence from N(0, 1)."""
    network = SampledNetwork(13, (50,), 1, prior=1.0, kl_mode=kl_mode, n_kl_draws=n_draws)
    theta = network.initial_parameters(np.random.default_rng(0), std_ratio=0.5)
    return float(np.var([network.kl(theta, seed)[1] for seed in range(n_seeds)], axis=0, ddof=1).sum())


def figure(path: Path) -> None:
    """Draw the variances."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(5, 3.6), layout="constrained")
    ax = canvas.subplots()
    draws = (1, 3, 10, 30, 100, 300, 1000)
    for kl_mode, colour in MODES.items():
        values = [gradient_variances(kl_mode, m) for m in draws]
        slope = np.polyfit(np.log(draws), np.log(values), 1)[0]
        print(
            f"{kl_mode:12s} slope {slope:6.3f}  "
            + " ".join(f"{m}: {v:.3g}" for m, v in zip(draws, values, strict=True))
        )
        ax.loglog(draws, values, color=colour, marker="o", ms=3, label=f"{kl_mode}, slope {slope:.2f}")
    ax.set(xlabel="draws a weight", ylabel="summed variance of ∂ KL", title="exact: 0")
    ax.legend(fontsize=8)
    canvas.savefig(path, dpi=120)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="bost,yach")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--gradient-variance", type=Path, metavar="PNG")
    arguments = parser.parse_args()
    if arguments.gradient_variance:
        figure(arguments.gradient_variance)
        return
    results = table(arguments.sets.split(","), arguments.variants.split(","), arguments.splits, arguments.jobs)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
