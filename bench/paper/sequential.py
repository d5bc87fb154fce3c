"""The sequential posterior beside mean field and continuous weights on equal random Fourier features.

    python bench/paper/sequential.py reference        six problems: gaps to the evidence by order, scales and prior
    python bench/paper/sequential.py uci [--sets …]   fold 0 of 23 sets: RMSE and NLPD of draws, pairs and one vector
    python bench/paper/sequential.py rich             36,000 rows, eight inputs, little noise
    python bench/paper/sequential.py seconds          stages of a fit in units of LAPACK's dpotrf
    python bench/paper/sequential.py figure out.png   bounds below the evidence and NLPD, six problems, four methods

Data come from the data folder (PYDIRECT_DATA, else ../shared/data beside the checkout). One thread. Gap: log evidence
of continuous weights minus ELBO, in nats. RMSE and NLPD are of standardised targets.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from reference_problems import Problem, build, data_folder  # noqa: E402
from scipy.linalg import lapack  # noqa: E402

from pydirect import DirectRegressor, Sequential, SpikeAndSlabPrior, _core, fit_mean_field, quantize  # noqa: E402
from pydirect.direct import SequentialPosterior, fit_mixture, fit_sequential  # noqa: E402
from pydirect.distributions import GaussianPrior, evenly_spaced_levels  # noqa: E402

PAIR = 2


def rmse(mean: np.ndarray, y: np.ndarray) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((mean - y) ** 2)))


def nlpd(mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> float:
    """Negative log density of Gaussian predictions per row."""
    return float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * (y - mean) ** 2 / variance))


def problems() -> Iterator[tuple[Problem, Callable[..., SequentialPosterior]]]:
    """Yield the reference problems, each with a function that fits it at its noise and unit prior variance."""
    folder = data_folder()
    if folder is None:
        sys.exit("no data: set PYDIRECT_DATA to the folder of reference_problems.json")
    entries = json.loads((folder / "reference_problems.json").read_text())["problems"]
    for name, entry in entries.items():
        problem = build(name, entry, folder)

        def fit(problem: Problem = problem, **options: Any) -> SequentialPosterior:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return fit_sequential(problem.statistics, problem.noise, **{"n_threads": 1, **options})

        yield problem, fit


def reference(_: argparse.Namespace) -> None:
    """Print gaps of orders, scales, levels and priors."""
    ternary = {"n_levels": 3}
    spike = {"level_scales": "shared", "levels": None, "prior_variance": 5.0}
    variants: dict[str, dict[str, Any]] = {
        "own": {},
        "shared 4": {"level_scales": "shared"},
        "shared 3": {"level_scales": "shared", "levels": evenly_spaced_levels(15, 3.0)},
        "natural 3": {"level_scales": "shared", "levels": evenly_spaced_levels(15, 3.0), "order": "natural"},
        "ternary": ternary,
        "spike .8": spike | {"prior": SpikeAndSlabPrior(0.8, GaussianPrior()), "levels": evenly_spaced_levels(15, 3.0)},
    }
    print("problem      variant      gap  st.err.     ELBO   ESS  zeros  rho     RMSE    NLPD  (continuous RMSE, NLPD)")
    for problem, fit in problems():
        phi = problem.features.transform(problem.x_test)
        mean, variance = fit(keep_factor=True).latent_moments(phi)
        exact = rmse(mean, problem.y_test), nlpd(mean, variance + problem.noise, problem.y_test)
        for name, options in variants.items():
            posterior = fit(**options)
            mean, variance = posterior.moments_of_draws(phi)
            print(
                f"{problem.name:12s} {name:9s} {posterior.gap:7.2f} {posterior.elbo_stderr:8.3f} "
                f"{posterior.elbo - problem.constant:8.0f} {posterior.effective_sample_size:5.2f} "
                f"{posterior.sparsity:6.2f} {posterior.coarseness.max():4.1f} {rmse(mean, problem.y_test):8.4f} "
                f"{nlpd(mean, variance + problem.noise, problem.y_test):7.3f}  ({exact[0]:.4f}, {exact[1]:.3f})",
                flush=True,
            )


def uci(arguments: argparse.Namespace) -> None:
    """Print RMSE and NLPD of fold 0 of every set."""
    folder = data_folder()
    if folder is None:
        sys.exit("no data: set PYDIRECT_DATA to the folder with uci/")
    names = arguments.sets.split(",") if arguments.sets else sorted(p.stem for p in (folder / "uci").glob("*.npz"))
    print(
        "set            RMSE: draws  pair  nearest  cont.  mean-f.  quant1 |  NLPD: draws  cont.  mean-f. |   gap"
        "  rho  expon."
    )
    rows = []
    for name in names:
        data = np.load(folder / "uci" / f"{name}.npz", allow_pickle=False)
        row = _fold(data["X"], data["y"], data["test_mask"][:, 0])
        rows.append(row)
        print(f"{name:13s} " + " ".join(f"{value:8.4f}" for value in row), flush=True)
    table = np.array(rows)
    draws, pair, nearest, continuous, field, one, density, exact, fielded = table[:, :9].T
    print(f"RMSE over continuous, medians: draws {np.median(draws / continuous):.3f}", end=", ")
    print(f"pair {np.median(pair / continuous):.3f}, nearest {np.median(nearest / continuous):.3f}", end=", ")
    print(f"one quantised mean-field vector {np.median(one / continuous):.3f}, mean field", end=" ")
    print(f"{np.median(field / continuous):.3f}; pair at or below that vector {(pair <= one).sum()}", end=", ")
    print(f"nearest {(nearest <= one).sum()} of {len(table)}")
    print(f"NLPD: within .03 of continuous {(density - exact <= 0.03).sum()}, median |difference|", end=" ")
    print(f"{np.median(np.abs(density - exact)):.4f}, better than mean field {(density < fielded).sum()}", end="; ")
    print(f"gap at most .4 on {(table[:, 9] <= 0.4).sum()}")


def _fold(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DirectRegressor(posterior=Sequential(keep_factor=True)).fit(x[~test], y[~test])
        field = DirectRegressor(posterior="mean_field").fit(x[~test], y[~test])
        one = quantize(field, 1).predict(x[test])
    scale, offset = float(model.y_scale_[0]), float(model.y_mean_[0])
    target = (y[test] - offset) / scale
    posterior, unit = model.posterior_, float(model.prior_scale_[0])
    phi = model.features_.transform(np.ascontiguousarray(x[test]))
    noise = posterior.noise.variance
    mean, variance = posterior.moments_of_draws(phi)
    exact, exact_variance = posterior.latent_moments(phi)
    vectors = posterior.draws[:PAIR].mean(axis=0), posterior.values(posterior.most_probable()[None])[0]
    by_field, deviation = field.predict(x[test], return_std=True)
    field_mean, field_variance = (by_field - offset) / scale, (deviation / scale) ** 2
    return [
        rmse(unit * mean, target),
        *(rmse(unit * (phi @ w), target) for w in vectors),
        rmse(unit * exact, target),
        rmse(field_mean, target),
        rmse((one - offset) / scale, target),
        nlpd(unit * mean, unit**2 * variance + noise, target),
        nlpd(unit * exact, unit**2 * exact_variance + noise, target),
        nlpd(field_mean, field_variance, target),
        posterior.gap,
        float(posterior.coarseness.max()),
        float(np.ptp(posterior.level_exponents)),
    ]


def rich(_: argparse.Namespace) -> None:
    """Print errors where all directions are informative: a smooth function of all inputs and little noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40_000, 8))
    f = sum(np.sin(1.5 * x[:, i]) * x[:, (i + 1) % 8] + 0.5 * np.cos(x[:, i] * x[:, (i + 3) % 8]) for i in range(8))
    f = (f - f.mean()) / f.std()
    y = f + 0.05 * rng.standard_normal(len(f))
    train, test = slice(0, 36_000), slice(36_000, None)
    for name, kind in (("sequential", Sequential(keep_factor=True)), ("mean field", "mean_field")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = DirectRegressor(posterior=kind).fit(x[train], y[train])
        found = {"": model.predict(x[test], return_std=True)}
        if name == "sequential":
            posterior, phi = model.posterior_, model.features_.transform(np.ascontiguousarray(x[test]))
            mean, variance = posterior.moments_of_draws(phi)
            unit, noise = float(model.prior_scale_[0]), posterior.noise.variance
            scale = float(model.y_scale_[0])
            found = {
                " continuous": found[""],
                " 64 draws": (
                    float(model.y_mean_[0]) + scale * unit * mean,
                    scale * np.sqrt(unit**2 * variance + noise),
                ),
            }
            print(f"gap {posterior.gap:.0f} nats, largest rho {posterior.coarseness.max():.1f}", end=", ")
            print(f"noise {noise:.4f}, prior variance {unit**2:.3g}, warnings {len(caught)}")
        for what, (mean, deviation) in found.items():
            print(f"{name}{what}: RMSE {rmse(mean, y[test]):.4f} NLPD {nlpd(mean, deviation**2, y[test]):.4f}", end=" ")
            print(f"({ {stage: round(s, 2) for stage, s in model.fit_seconds_.items()} })", flush=True)


def seconds(_: argparse.Namespace) -> None:
    """Print medians of interleaved runs, in units of dpotrf."""
    problem, fit = next(problems())
    a, b = problem.statistics.A, problem.statistics.n_weights
    ridge, ones = np.full(b, 1.0), np.ones(b)
    symmetric = np.asfortranarray(a / problem.noise + np.diag(ridge))
    sampler = fit(keep_factor=True).sampler
    assert sampler is not None
    factor = _core.cholesky(a, ridge, ones, False, 1 / problem.noise, 1)[0]
    stages: dict[str, Callable[[], Any]] = {
        "dpotrf": lambda: lapack.dpotrf(symmetric, lower=1),
        "Cholesky": lambda: _core.cholesky(a, ridge, ones, False, 1 / problem.noise, 1),
        "min-pivot": lambda: _core.cholesky(a, ridge, ones, True, 1 / problem.noise, 1),
        "inverse diagonal": lambda: _core.inverse_diagonal(factor, 1),
        "32 draws": lambda: sampler.draw(32, "stratified", 0),
        "64 draws": lambda: sampler.draw(64, "stratified", 0),
        "256 draws": lambda: sampler.draw(256, "stratified", 0),
        "whole fit, 64 draws": fit,
    }
    taken: dict[str, list[float]] = {name: [] for name in stages}
    for _round in range(7):
        for name, stage in stages.items():
            begin = time.perf_counter()
            stage()
            taken[name].append(time.perf_counter() - begin)
    unit = float(np.median(taken["dpotrf"]))
    print(f"b = {b}, dpotrf {unit:.3f} s")
    for name, values in taken.items():
        print(f"{name:20s} {np.median(values) / unit:6.2f}")


def figure(arguments: argparse.Namespace) -> None:
    """Draw log evidence − ELBO and NLPD of published L-BFGS, mean field, a mixture of five, and sequential draws."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    levels = evenly_spaced_levels(15, 3.0)
    prior = GaussianPrior().log_mass(levels)
    methods = ("published, L-BFGS", "mean field", "mixture of five", "sequential")
    names, gaps, densities, exact = [], [], [], []
    for problem, fit in problems():
        phi = problem.features.transform(problem.x_test)
        sequential = fit(keep_factor=True)
        evidence = sequential.log_evidence_continuous
        mean, variance = sequential.latent_moments(phi)
        exact.append(nlpd(mean, variance + problem.noise, problem.y_test))
        grid = problem.noise_levels
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean_field = fit_mean_field(problem.statistics, levels, prior, grid, n_threads=1)
            fits = [
                fit_mean_field(problem.statistics, levels, prior, grid, optimizer="lbfgs", n_threads=1),
                mean_field,
                fit_mixture(problem.statistics, levels, prior, grid, n_components=5, n_threads=1),
            ]
        found = [(f.elbo, *f.latent_moments(phi), f.noise.variance) for f in fits]
        found.append((sequential.elbo, *sequential.moments_of_draws(phi), problem.noise))
        names.append(problem.name)
        gaps.append([evidence - elbo for elbo, *_ in found])
        densities.append([nlpd(m, v + noise, problem.y_test) for _, m, v, noise in found])
        line = "  ".join(f"{m}: {g:9.2f} {d:7.3f}" for m, g, d in zip(methods, gaps[-1], densities[-1], strict=True))
        print(f"{problem.name:11s} {line}  continuous {exact[-1]:.3f}", flush=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), constrained_layout=True)
    place, width = np.arange(len(names)), 0.2
    for k, method in enumerate(methods):
        offset = place + (k - 1.5) * width
        left.bar(offset, np.maximum([g[k] for g in gaps], 0.01), width, label=method)
        right.bar(offset, [d[k] - e for d, e in zip(densities, exact, strict=True)], width)
    left.set(yscale="log", ylabel="log evidence − ELBO (nats)", title="What the posterior loses")
    right.set(ylabel="NLPD above continuous weights (nats per row)", title="What predictions lose")
    right.axhline(0, color="black", linewidth=0.8)
    right.set_yscale("symlog", linthresh=0.1)
    for axes in (left, right):
        axes.set_xticks(place, names)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(methods), frameon=False)
    figure.savefig(arguments.path, dpi=150)


COMMANDS = {"reference": reference, "uci": uci, "rich": rich, "seconds": seconds, "figure": figure}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=COMMANDS)
    parser.add_argument("path", nargs="?", type=Path, default=Path("sequential.png"))
    parser.add_argument("--sets", help="comma-separated file names; all by default")
    arguments = parser.parse_args()
    COMMANDS[arguments.part](arguments)


if __name__ == "__main__":
    main()
