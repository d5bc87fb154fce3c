"""Draws of functions: what they cost, how well they correlate, and what batches chosen by them find.

    python bench/scripts/draws.py times        seconds of processor for 1000 functions, by rows that they are asked at
    python bench/scripts/draws.py correlation  error of correlations between landmarks, by the number of frequencies
    python bench/scripts/draws.py batches      regret of batches of five on Branin and Hartmann-6, noisy, by their rule
    python bench/scripts/draws.py objectives   hypervolume of two objectives on Branin-Currin, by rule

Times are medians of `--turns` turns on one thread. Regrets are of the true value where the model's mean is largest,
medians and quartiles over `--seeds` seeds, after 10 rows of a Sobol sequence and batches of 5 among 500 rows of it.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from scipy.stats import qmc  # noqa: E402

from pydirect import DirectRegressor, Nystroem  # noqa: E402
from pydirect.decisions import (  # noqa: E402
    Candidates,
    batch_of_draws,
    greedy_batch,
    hypervolume,
    hypervolume_improvement,
    log_expected_improvement,
    pareto_front,
    thompson_batch,
    upper_confidence_bound,
)
from pydirect.features import residual  # noqa: E402

BATCH, ROUNDS, FIRST, CANDIDATES = 5, 8, 10, 500


def branin(x: np.ndarray) -> np.ndarray:
    """Branin's function on the unit square, with the opposite sign; its maximum is −0.397887."""
    a, b = 15 * x[:, 0] - 5, 15 * x[:, 1]
    return -((b - 5.1 * a**2 / (4 * np.pi**2) + 5 * a / np.pi - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def hartmann6(x: np.ndarray) -> np.ndarray:
    """Hartmann's function of six inputs; its maximum is 3.32237."""
    scale = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    centre = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return np.exp(-(scale * (x[:, None] - centre) ** 2).sum(axis=2)) @ np.array([1.0, 1.2, 3.0, 3.2])


def currin(x: np.ndarray) -> np.ndarray:
    """Currin's exponential function on the unit square, with the opposite sign."""
    with np.errstate(divide="ignore"):
        factor = 1 - np.exp(-1 / (2 * x[:, 1]))
    a = x[:, 0]
    return -factor * (2300 * a**3 + 1900 * a**2 + 2092 * a + 60) / (100 * a**3 + 500 * a**2 + 4 * a + 20)


PROBLEMS = {"branin": (branin, 2, -0.397887, 1.0), "hartmann6": (hartmann6, 6, 3.32237, 0.05)}


def seconds(call: Callable[[], Any], turns: int) -> float:
    """Return the median processor time of a call."""
    taken = []
    for _ in range(turns):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return float(np.median(taken))


def times(turns: int) -> None:
    """Print seconds of 1000 functions of a model of 2000 weights and 100,000 rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_000, 6))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * X[:, 2] ** 2 + np.cos(3 * X[:, 3]) + 0.3 * rng.standard_normal(len(X))
    model = DirectRegressor(noise="constant", local=False, n_threads=1).fit(X, y)
    model.predict(X[:10], return_std=True)  # forms the eigenvectors, as deviations do
    print(f"{'draw 1000 functions':40} {1e3 * seconds(lambda: model.sample_functions(1000), turns):8.1f} ms")
    for n in (10, 100, 1000):
        functions = model.sample_functions(1000)
        first = seconds(lambda f=functions, n=n: f(X[:n]), 1)
        again = seconds(lambda f=functions, n=n: f(X[:n]), turns)
        print(f"{f'evaluate them at {n} rows, first time':40} {1e3 * first:8.1f} ms")
        print(f"{f'evaluate them at {n} rows, again':40} {1e3 * again:8.1f} ms")
    few = model.sample_functions(10)
    few(X[:1000])
    print(f"{'evaluate 10 functions at 1000 rows':40} {1e3 * seconds(lambda: few(X[:1000]), turns):8.1f} ms")
    print(f"{'gradients of 10 functions at 10 rows':40} {1e3 * seconds(lambda: few.gradient(X[:10]), turns):8.1f} ms")
    joint = seconds(lambda: model.sample_y(X[:100], 1000, noise=False), turns)
    print(f"{'sample_y, 1000 draws at 100 rows':40} {1e3 * joint:8.1f} ms")


def correlation(turns: int) -> None:
    """Print errors of correlations, root mean square over pairs of rows, of a model of as many landmarks as rows."""
    rng = np.random.default_rng(7)
    X, rows = rng.uniform(size=(80, 5)), rng.uniform(size=(60, 5))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]  # Friedman
    model = DirectRegressor(noise="constant").fit(X, y + rng.standard_normal(80))
    candidates = Candidates.of(model, rows)
    exact = np.stack([candidates.covariances(j) for j in range(60)])
    exact /= np.outer(candidates.std, candidates.std)
    before = residual.N_FREQUENCIES
    print(f"{'frequencies':>12} {'error':>8}   with 20,000 draws")
    for n in (50, 125, 250, 500, 1000, 2000):
        residual.N_FREQUENCIES = n
        found = [np.corrcoef(model.sample_functions(20_000, seed)(rows)) for seed in range(turns)]
        print(f"{n:12} {np.sqrt(np.mean([(f - exact) ** 2 for f in found])):8.4f}")
    residual.N_FREQUENCIES = before
    found = [np.corrcoef(model.sample_y(rows, 20_000, seed, noise=False)) for seed in range(turns)]
    print(f"{'sample_y':>12} {np.sqrt(np.mean([(f - exact) ** 2 for f in found])):8.4f}")


def by_improvement(model: Any, grid: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    best = model.predict(seen).max()
    return greedy_batch(Candidates.of(model, grid), BATCH, lambda mean, std: log_expected_improvement(mean, std, best))


def by_bounds(model: Any, grid: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return greedy_batch(Candidates.of(model, grid), BATCH, lambda mean, std: upper_confidence_bound(mean, std, 2.0))


def by_draws(model: Any, grid: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    functions = model.sample_functions(256, rng)
    return batch_of_draws(functions(grid), functions(seen).max(axis=0), BATCH)


def by_thompson(model: Any, grid: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return thompson_batch(model.sample_functions(BATCH, rng)(grid), BATCH)


def one_bound(model: Any, grid: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the five largest bounds, whatever is learned from the first of them."""
    mean, std, _ = model.predict_parts(grid)
    return np.argsort(-upper_confidence_bound(mean, std, 2.0))[:BATCH]


def at_random(model: Any, grid: np.ndarray, seen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(len(grid), BATCH, replace=False)


RULES: dict[str, Callable[..., np.ndarray]] = {
    "random": at_random,
    "largest bounds": one_bound,
    "bounds": by_bounds,
    "improvement": by_improvement,
    "draws": by_draws,
    "Thompson": by_thompson,
}


def fitted(x: np.ndarray, y: np.ndarray) -> Any:
    return DirectRegressor(features=Nystroem(rank_inputs=False), noise="constant", local=False).fit(x, y)


def batches(seeds: int) -> None:
    """Print regrets after rounds of batches."""
    for name, (function, d, maximum, noise) in PROBLEMS.items():
        print(f"\n{name}, noise {noise:g}: regret after 2, 4 and {ROUNDS} batches, and quartiles of the last")
        for rule, choose in RULES.items():
            regrets = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                x = qmc.Sobol(d, rng=seed).random(FIRST)
                y = function(x) + noise * rng.standard_normal(FIRST)
                path = []
                for number in range(ROUNDS + 1):
                    model = fitted(x, y)
                    best = x[model.predict(x).argmax()]
                    path.append(maximum - float(function(best[None])[0]))
                    if number < ROUNDS:
                        grid = qmc.Sobol(d, rng=rng).random(CANDIDATES)
                        new = grid[choose(model, grid, x, rng)]
                        x, y = np.vstack([x, new]), np.append(y, function(new) + noise * rng.standard_normal(BATCH))
                regrets.append(path)
            table = np.array(regrets)
            middle = np.median(table, axis=0)[[2, 4, -1]]
            quartiles = np.quantile(table[:, -1], [0.25, 0.75])
            shown = " ".join(f"{value:8.3f}" for value in middle)
            print(f"  {rule:16} {shown}   [{quartiles[0]:.3f}, {quartiles[1]:.3f}]", flush=True)


def objectives(seeds: int) -> None:
    """Print hypervolumes of Branin-Currin, without noise, after batches that are chosen one row at a time."""
    reference = np.array([-18.0, -6.0])
    grid = qmc.Sobol(2, rng=99).random(1024)
    both = np.column_stack([branin(grid), currin(grid)])
    whole = hypervolume(both, reference)
    print(f"hypervolume as a share of that of all {len(grid)} candidates, {whole:.2f}, after 10, 20 and 40 rows")
    for rule in ("random", "scalarised draws", "hypervolume of draws"):
        shares = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            chosen = list(rng.choice(len(grid), 6, replace=False))
            path = []
            while len(chosen) < 40:
                model = fitted(grid[chosen], both[chosen])
                chosen.append(_next(rule, model, grid, both[chosen], chosen, reference, rng))
                path.append(hypervolume(both[chosen], reference) / whole)
            shares.append([path[3], path[13], path[-1]])
        middle = np.median(shares, axis=0)
        print(f"  {rule:22} " + " ".join(f"{value:7.3f}" for value in middle), flush=True)


def _next(
    rule: str,
    model: Any,
    grid: np.ndarray,
    seen: np.ndarray,
    chosen: list[int],
    reference: np.ndarray,
    rng: np.random.Generator,
) -> int:
    if rule == "random":
        scores = rng.random(len(grid))
    elif rule == "scalarised draws":  # Chebyshev distances in random directions (ParEGO, Knowles 2006), of one draw
        direction = rng.dirichlet([1.0, 1.0])
        scale = np.ptp(seen, axis=0)
        scores = ((model.sample_functions(1, rng)(grid)[:, :, 0] - reference) / scale / direction).min(axis=1)
    else:
        drawn = model.sample_functions(64, rng)(grid)
        scores = hypervolume_improvement(drawn, seen[pareto_front(seen)], reference)
        if not scores.any():
            scores = drawn.mean(axis=(1, 2))
    scores[chosen] = -np.inf
    return int(np.argmax(scores))


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("times", "correlation", "batches", "objectives"))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table = {"times": times, "correlation": correlation, "batches": batches, "objectives": objectives}[arguments.table]
    table(arguments.seeds if arguments.table in ("batches", "objectives") else arguments.turns)


if __name__ == "__main__":
    main()
