"""Whether results depend on the seed: RMSE of one problem over many seeds of the model.

    python bench/scripts/seeds.py [problem ...] [--seeds 20] [--first 0]

The data stay the same, `random_state` changes. For every problem: the mean RMSE over 1000 rows beside the standard
deviation of the noise, the largest relative to the smallest, and seconds of the fits, most of which is the search of
hyperparameters. All on one thread. Seconds are of the processor, which a busy machine changes less than the clock's.
Without names, all problems.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402

import numpy as np  # noqa: E402
from scipy.stats import norm  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402


@dataclass(frozen=True)
class SeedProblem:
    """A function of standard normal columns, with noise of standard deviation `noise`, relative to the function's."""

    f: Callable[[np.ndarray], np.ndarray]
    n_columns: int
    n_rows: int
    n_basis_functions: int
    noise: float = 0.2


def first_example(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0]) * x[:, 1] + abs(x[:, 2])


def products(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 3] * x[:, 7]) + x[:, 11] * x[:, 20] + (np.cos(2 * x[:, 50]) if x.shape[1] > 50 else 0.0)


def additive(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, :5]).sum(axis=1) + 0.5 * (x[:, 5:10] ** 2).sum(axis=1)


def triple(x: np.ndarray) -> np.ndarray:
    return 2 * np.tanh(2 * x[:, 3]) * np.tanh(2 * x[:, 7]) * np.tanh(2 * x[:, 11])


def smooth(x: np.ndarray) -> np.ndarray:
    return np.sin(x.sum(axis=1)) + x[:, 0] * x[:, 1]


def steps(x: np.ndarray) -> np.ndarray:
    return np.sign(x[:, 0]) + np.where(x[:, 1] > 0.5, x[:, 2], 0.0)


def sparse(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x[:, 5]) + x[:, 40] * x[:, 60]


def interactions(x: np.ndarray) -> np.ndarray:
    return np.sin(x[:, 0] * x[:, 1]) + np.cos(x[:, 2] + x[:, 3]) + 0.5 * x[:, 4] ** 2


def pair_in_many(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]


def noise(x: np.ndarray) -> np.ndarray:
    return 0.3 * x[:, 0]


def towns(x: np.ndarray) -> np.ndarray:
    """Rows of 300 towns: a function of the place that varies within a few towns, and effects of other columns."""
    fixed = np.random.default_rng(0)
    places, frequencies = fixed.uniform(0, 10, (300, 2)), 4 * fixed.standard_normal((2, 200))
    place = places[(300 * norm.cdf(x[:, 2])).astype(int)] + 0.15 * x[:, :2]
    f = 0.7 * x[:, 3] + 0.4 * np.tanh(x[:, 4]) + 0.05 * np.cos(place @ frequencies + np.arange(200)).sum(axis=1)
    x[:, :2], x[:, 2] = place, x[:, 5] ** 2  # what the model sees
    return f


def linear(x: np.ndarray) -> np.ndarray:
    return x[:, :10] @ np.linspace(-1, 1, 10) + 0.5 * np.sin(2 * x[:, 0])


PROBLEMS = {
    "first": SeedProblem(first_example, 20, 5000, 500, 0.26),
    "products": SeedProblem(products, 32, 8192, 500),
    "wide": SeedProblem(products, 100, 8192, 500),
    "sparse": SeedProblem(sparse, 100, 2000, 500, 0.3),
    "additive": SeedProblem(additive, 20, 8000, 500),
    "triple": SeedProblem(triple, 32, 3000, 500),
    "smooth": SeedProblem(smooth, 5, 500, 500, 0.1),
    "steps": SeedProblem(steps, 8, 1500, 500, 0.3),
    "long": SeedProblem(first_example, 10, 50_000, 500, 0.5),
    "linear": SeedProblem(linear, 30, 5000, 500, 0.5),
    "interactions": SeedProblem(interactions, 8, 8000, 2000, 0.1),
    "interactions_long": SeedProblem(interactions, 8, 36_000, 2000, 0.1),
    "pair_250": SeedProblem(pair_in_many, 250, 1000, 500, 0.25),
    "towns": SeedProblem(towns, 9, 4000, 2000, 0.35),
    "noise": SeedProblem(noise, 10, 4000, 500, 3.3),
}


def measure(name: str, seeds: range) -> None:
    problem = PROBLEMS[name]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((problem.n_rows + 1000, problem.n_columns))
    f = problem.f(x)
    noise = problem.noise * f.std()
    y = f + noise * rng.standard_normal(len(x))
    errors, seconds = [], []
    for seed in seeds:
        model = DirectRegressor(n_basis_functions=problem.n_basis_functions, random_state=seed, n_threads=1)
        begin = time.process_time()
        model.fit(x[:-1000], y[:-1000])
        seconds.append(time.process_time() - begin)
        errors.append(np.sqrt(np.mean((model.predict(x[-1000:]) - f[-1000:]) ** 2 + noise**2)))
    spread = max(errors) / min(errors) - 1
    print(
        f"{name:10s} n {problem.n_rows:6d} d {problem.n_columns:4d}: noise {noise:.3f}, RMSE {np.mean(errors):.4f} "
        f"({min(errors):.4f} to {max(errors):.4f}, spread {spread:.1%}), fit {np.median(seconds):.2f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", choices=[[], *PROBLEMS], help="by default all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    for name in options.problems or PROBLEMS:
        measure(name, range(options.first, options.first + options.seeds))


if __name__ == "__main__":
    main()
