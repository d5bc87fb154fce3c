"""Contextual bandits: regret and decisions a second beside MABWiser, on simulated and real problems.

`regret`: expected rewards lost against always pulling the best arm, over all rounds, with standard errors over seeds. A
classification becomes a bandit by pulling a class for every row, and a reward of one if it is right: only that is seen.
`rates`: rounds a second, each a decision and a reward, in processor time. MABWiser is skipped unless installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from pydirect.decisions import LinearBandit

# Contexts (n, d), rewards of all arms and their expectations (n, k).
Problem = tuple[np.ndarray, np.ndarray, np.ndarray]


def simulated(n: int, seed: int, unit: float = 1.0, offset: float = 0.0, drift: bool = False) -> Problem:
    """Eight arms, linear in ten inputs, noise as large as half of what the inputs explain; or new arms half-way."""
    rng = np.random.default_rng(1000 + seed)
    x = rng.normal(size=(n, 10))
    weights, constants = rng.normal(size=(2, 10, 8)) / np.sqrt(10), 0.3 * rng.normal(size=(2, 8))
    late = (np.arange(n) >= n / 2) & drift
    mean = np.where(late[:, None], x @ weights[1] + constants[1], x @ weights[0] + constants[0])
    rewards = mean + 0.7 * rng.normal(size=mean.shape)
    return x, unit * rewards + offset, unit * mean + offset


def classification(x: np.ndarray, labels: np.ndarray, n: int, seed: int) -> Problem:
    """One arm per class; rows in random order."""
    rows = np.random.default_rng(seed).permutation(len(x))[:n]
    rewards = (labels[rows, None] == np.unique(labels)).astype(float)
    return StandardScaler().fit_transform(x)[rows], rewards, rewards


def table(path: Path, target: str, columns: list[str]) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd

    frame = pd.read_csv(path)
    return frame[columns].to_numpy(float), frame[target].to_numpy()


def problems(n: int, tables: Path | None) -> dict[str, Callable[[int], Problem]]:
    found: dict[str, Callable[[int], Problem]] = {
        "simulated": lambda seed: simulated(n, seed),
        "in thousands": lambda seed: simulated(n, seed, 1000.0, 5000.0),
        "drifting": lambda seed: simulated(n, seed, drift=True),
        "digits": lambda seed: classification(*load_digits(return_X_y=True), n, seed),
    }
    if tables is not None:
        prices = ["pbeach", "ppier", "pboat", "pcharter", "cbeach", "cpier", "cboat", "ccharter", "income"]
        fishing = table(tables / "Ecdat" / "Fishing.csv", "mode", prices)
        columns = ["carat", "depth", "table", "price", "x", "y", "z"]
        diamonds = table(tables / "ggplot2" / "diamonds.csv", "cut", columns)
        found |= {
            "ways of fishing": lambda seed: classification(*fishing, n, seed),
            "cut of diamonds": lambda seed: classification(*diamonds, n, seed),
        }
    return found


class MABWiser:
    """MABWiser's bandits with a column of ones, and the interface of ours."""

    def __init__(self, n_arms: int, policy: str, alpha: float, seed: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        self.mab = MAB(list(range(n_arms)), getattr(LearningPolicy, policy)(alpha=alpha), seed=seed)
        self.rng, self.n_arms, self.fitted = np.random.default_rng(seed), n_arms, False

    def decide(self, x: np.ndarray) -> list[int]:
        if not self.fitted:
            return self.rng.integers(self.n_arms, size=len(x)).tolist()
        return np.atleast_1d(self.mab.predict(self._contexts(x))).tolist()

    def learn(self, x: np.ndarray, arms: list[int], rewards: np.ndarray) -> None:
        (self.mab.partial_fit if self.fitted else self.mab.fit)(np.array(arms), rewards, self._contexts(x))
        self.fitted = True

    @staticmethod
    def _contexts(x: np.ndarray) -> np.ndarray:
        return np.hstack([x, np.ones((len(x), 1))])


def bandits(n_rounds: int) -> dict[str, Callable[[int, int], Any]]:
    found: dict[str, Callable[[int, int], Any]] = {
        "LinearBandit": lambda k, seed: LinearBandit(range(k), random_state=seed),
        "LinearBandit, Thompson": lambda k, seed: LinearBandit(range(k), policy="thompson", random_state=seed),
        "LinearBandit, half-life": lambda k, seed: LinearBandit(range(k), half_life=n_rounds / 8, random_state=seed),
    }
    try:
        import mabwiser  # noqa: F401
    except ImportError:
        return found
    for policy in ("LinUCB", "LinTS"):
        for alpha in (1.0, 0.25):
            found[f"MABWiser {policy}, alpha {alpha}"] = lambda k, seed, policy=policy, alpha=alpha: MABWiser(
                k, policy, alpha, seed
            )
    return found


def lost(bandit: Any, problem: Problem, batch: int, delay: int = 0) -> float:
    """Sum of expected rewards that the best arms would have earned beyond those that were pulled."""
    x, rewards, mean = problem
    total, waiting = 0.0, []
    for begin in range(0, len(x), batch):
        rows = np.arange(begin, min(begin + batch, len(x)))
        arms = bandit.decide(x[rows])
        total += float((mean[rows].max(axis=1) - mean[rows, arms]).sum())
        waiting.append((x[rows], arms, rewards[rows, arms]))
        if len(waiting) * batch > delay:
            bandit.learn(*waiting.pop(0))
    return total


def regret(options: argparse.Namespace) -> None:
    contestants = bandits(options.rounds)
    for name, make in problems(options.rounds, options.tables).items():
        given = [make(seed) for seed in range(options.seeds)]
        chance = np.mean([(mean.max(axis=1) - mean.mean(axis=1)).sum() for _, _, mean in given])
        print(f"{name}: {given[0][0].shape[1]} inputs, {given[0][1].shape[1]} arms, {len(given[0][0])} rounds")
        print(f"  {'by chance':32} {chance:10.0f}")
        for own, bandit in contestants.items():
            start = time.process_time()
            losses = [
                lost(bandit(p[1].shape[1], seed), p, options.batch, options.delay) for seed, p in enumerate(given)
            ]
            seconds = (time.process_time() - start) / options.seeds
            error = np.std(losses, ddof=1) / np.sqrt(len(losses))
            print(f"  {own:32} {np.mean(losses):10.1f} ± {error:<8.1f} {seconds:6.1f} s", flush=True)


def rates(options: argparse.Namespace) -> None:
    for d, k in ((20, 10), (100, 10), (500, 4)):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(options.rounds, d))
        mean = x @ rng.normal(size=(d, k)) / np.sqrt(d)
        problem = x, mean + rng.normal(size=mean.shape), mean
        for own, bandit in bandits(options.rounds).items():
            if "0.25" in own:
                continue
            n = options.rounds if own.startswith("Linear") else max(20, options.rounds // 100)
            part = tuple(values[:n] for values in problem)
            for batch in (1, 100):
                one = bandit(k, 0)
                start = time.process_time()
                lost(one, part, min(batch, n))
                rate = n / (time.process_time() - start)
                print(
                    f"{d} inputs, {k} arms, {own:32} in batches of {batch:3}: {rate:10.0f} rounds a second", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("regret", "rates"))
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=10, help="decisions at a time")
    parser.add_argument("--delay", type=int, default=0, help="rounds until a reward is seen")
    parser.add_argument("--tables", type=Path, help="folder of R's tables, for two more real problems")
    options = parser.parse_args()
    {"regret": regret, "rates": rates}[options.what](options)


if __name__ == "__main__":
    main()
