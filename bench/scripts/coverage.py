"""Whether intervals hold where they are most in doubt: few rows, rows with gaps, new categories, strange targets.

For each problem, over seeds: how often intervals of 90 % cover, their mean width over the spread of the targets, the
mean log density of a held-out row, the lowest one, RMSE over the spread, and processor seconds of a fit. Problems are
simulated, so that anyone can repeat them; `skewed` takes random splits of 210 rows of 19 columns, most of which count
for nothing.

    python bench/scripts/coverage.py few --seeds 14
    python bench/scripts/coverage.py gaps categories many_categories targets --rows 400 --seeds 5
    python bench/scripts/coverage.py skewed --seeds 16
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from pydirect import DirectRegressor

N_HELD_OUT = 1000
Problem = tuple[str, object, np.ndarray, object, np.ndarray]  # name, rows and targets to fit, and those held out


def smooth(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]


def few(_: int, seed: int) -> Iterator[Problem]:
    """2 to 100 rows of 1, 3 and 5 columns: of a line, a wave, noise alone, a step, a product; noise from .1 to 1."""
    kinds: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "line": lambda x: 1.5 * x[:, 0],
        "wave": lambda x: 1.4 * np.sin(2 * x[:, 0]) + (x[:, 1] * x[:, 2] if x.shape[1] > 2 else 0),
        "noise": lambda x: np.zeros(len(x)),
        "step": lambda x: 2.0 * (x[:, 0] > 0),
        "product": lambda x: x[:, 0] * x[:, 1 % x.shape[1]],
    }
    for n in (2, 3, 5, 7, 10, 15, 30, 50, 100):
        rng = np.random.default_rng([seed, n])
        for kind, f in kinds.items():
            for d in (1, 3, 5):
                x, noise = rng.standard_normal((n + N_HELD_OUT, d)), np.exp(rng.uniform(np.log(0.1), 0.0))
                y = 50 + 7 * (f(x) + noise * rng.standard_normal(len(x)))
                yield f"{n} rows, {kind}", x[:n], y[:n], x[n:], y[n:]


def gaps(n: int, seed: int) -> Iterator[Problem]:
    """Rows with a gap are held out; the columns with gaps have them in training too."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n + 8 * N_HELD_OUT, 4))
    y = 2 * x[:, 0] + np.sin(2 * x[:, 1]) + 0.3 * rng.standard_normal(len(x))
    at_random = rng.random(len(x)) < 0.2
    telling = rng.random(len(x)) < 1 / (1 + np.exp(2 - 2 * x[:, 0]))
    second = rng.random(len(x)) < 0.2
    for name, columns in {
        "at random": {0: at_random},
        "large ones": {0: telling},
        "in two columns": {0: at_random, 1: second},
        "in a column that counts for nothing": {3: at_random},
    }.items():
        z = x.copy()
        for column, missing in columns.items():
            z[missing, column] = np.nan
        gap = np.isnan(z[n:]).any(axis=1)
        for which, held in (("gap", gap), ("complete", ~gap)):
            yield f"{name}: {which}", z[:n], y[:n], z[n:][held][:N_HELD_OUT], y[n:][held][:N_HELD_OUT]


def categories(n: int, seed: int) -> Iterator[Problem]:
    """Eight known categories and four new ones, with effects from one normal distribution; some known ones are rare."""
    rng = np.random.default_rng(seed)
    effects = 1.5 * rng.standard_normal(12)
    shares = np.array([0.3, 0.3, 0.15, 0.15, 0.04, 0.03, 0.02, 0.01])
    code = np.r_[rng.choice(8, n, p=shares), rng.integers(0, 12, 3 * N_HELD_OUT)]
    x = rng.standard_normal((len(code), 2))
    y = effects[code] + np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(len(code))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "place": np.array([f"place {c}" for c in code])})
    held = np.arange(n, len(code))
    for name, rows in {
        "frequent": held[code[held] < 4],
        "rare": held[(code[held] >= 4) & (code[held] < 8)],
        "new": held[code[held] >= 8],
    }.items():
        yield f"category {name}", frame[:n], y[:n], frame.iloc[rows], y[rows]


def many_categories(_: int, seed: int) -> Iterator[Problem]:
    """60 to 1000 categories with normal effects, even or by Zipf's law, in 300 to 2000 rows; 20 more are new."""
    for n_categories, n, zipf in ((60, 300, 0), (400, 600, 0), (400, 2000, 1), (1000, 2000, 0)):
        rng = np.random.default_rng([seed, n_categories])
        share = 1.0 / (1 + np.arange(n_categories)) ** zipf
        code = rng.choice(n_categories, n + 2 * N_HELD_OUT, p=share / share.sum())
        code[-N_HELD_OUT:] = rng.integers(n_categories, n_categories + 20, N_HELD_OUT)
        x, effects = rng.uniform(-2, 2, (len(code), 3)), rng.standard_normal(n_categories + 20)
        truth = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + effects[code]
        y = truth + 0.5 * rng.standard_normal(len(code))
        frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(place=np.array([f"place {c}" for c in code]))
        known = np.isin(code, code[:n])
        for name, rows in {"known": known, "new": ~known}.items():
            held = np.flatnonzero(rows)[np.flatnonzero(rows) >= n]
            yield f"{n_categories}{' Zipf' * zipf}, {n} rows: {name}", frame[:n], y[:n], frame.iloc[held], y[held]


def targets(n: int, seed: int) -> Iterator[Problem]:
    """Targets with a gross error, heavy tails, zeros, steps, few values; noise that grows."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n + N_HELD_OUT, 5))
    f, e = smooth(x), rng.standard_normal(len(x))
    gross = f + 0.3 * e
    gross[rng.integers(n)] += 1000
    for name, y in {
        "plain": f + 0.3 * e,
        "one gross error": gross,
        "Student-t, 2 degrees": f + 0.3 * rng.standard_t(2, len(x)),
        "lognormal": np.exp(f + 0.5 * e),
        "noise that grows": f + 0.3 * np.exp(x[:, 3]) * e,
        "three quarters zeros": np.maximum(np.exp(f + 0.3 * e) - 2.5, 0),
        "whole numbers from one to five": np.clip(np.round(3 + f + 0.5 * e), 1, 5),
        "steps": np.round(2 * x[:, 0]) + (x[:, 1] > 0) * (x[:, 2] > 0) + 0.1 * e,
        "one value": np.full(len(x), 3.0),
    }.items():
        yield name, x[:n], y[:n], x[n:], y[n:]


def skewed(_: int, seed: int) -> Iterator[Problem]:
    """Random splits of one table of 210 rows and 19 columns; its targets are skewed, its columns correlated."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((210, 19)) @ (np.eye(19) + 0.3 * rng.standard_normal((19, 19)))
    x[:, ::4] = np.exp(x[:, ::4])
    y = np.exp(0.6 * x[:, 1] + 0.4 * x[:, 2] * (x[:, 3] > 0) + 0.7 * rng.gumbel(size=210))
    order = np.random.default_rng(seed).permutation(210)
    yield "split", x[order[:160]], y[order[:160]], x[order[160:]], y[order[160:]]


def scores(x: object, y: np.ndarray, rows: object, held: np.ndarray) -> list[float]:
    """Coverage, width, mean and lowest log density, RMSE and processor seconds; width and RMSE in targets' spreads."""
    begin = time.process_time()
    model = DirectRegressor().fit(x, y)
    seconds = time.process_time() - begin
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        low, high = model.predict_interval(rows, 0.9)
        density = model.predict_distribution(rows).log_density(held)
        rmse = np.sqrt(np.mean((model.predict(rows) - held) ** 2))
    spread, cover = max(held.std(), 1e-12), np.mean((low <= held) & (held <= high))
    return [cover, np.mean(high - low) / spread, density.mean(), density.min(), rmse / spread, seconds]


PROBLEMS = {
    "few": few,
    "gaps": gaps,
    "categories": categories,
    "many_categories": many_categories,
    "targets": targets,
    "skewed": skewed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", choices=PROBLEMS)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for problem in args.problems:
        found = defaultdict(list)
        for seed in range(args.seeds):
            for name, *data in PROBLEMS[problem](args.rows, seed):
                found[name].append(scores(*data))
                if problem == "few":
                    found[f"{name.partition(',')[0]}, all"].append(found[name][-1])
        print(f"\n{problem:42s} coverage  lowest   width  log density  lowest row     RMSE  seconds")
        for name, results in found.items():
            cover, width, density, lowest, rmse, seconds = np.array(results).T
            print(
                f"{name:42s} {cover.mean():8.3f} {cover.min():7.3f} {width.mean():7.2f} {density.mean():12.3f}"
                f" {lowest.min():11.1f} {rmse.mean():8.3f} {np.median(seconds):8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
