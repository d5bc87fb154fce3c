"""Problems of named sizes, and the machine's own limits measured beside a kernel."""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import cache  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

N_INPUTS = 11
N_LEVELS = 15
# Name: rows, weights. "paper" has the width of Evans & Nair (2018), section 5.2.
SIZES = {"small": (2_000, 500), "paper": (4_000, 2_000)}
# Standard deviation of the noise: beside the posterior, levels are fine at 0.3 and far apart at 0.01.
NOISE = {"fine": 0.3, "coarse": 0.01}


@dataclass(frozen=True)
class Yardstick:
    """Something that runs near the machine's limit: a call, and how many bytes or flops it is."""

    run: Callable[[], Any]
    amount: float


def reading(n_bytes: int) -> Yardstick:
    """BLAS product of a vector and a float32 matrix of `n_bytes`: every byte is read once, hardly any is written."""
    matrix = np.ones((max(n_bytes // 8192, 1), 2048), dtype=np.float32)
    x = np.ones(len(matrix), dtype=np.float32)
    return Yardstick(lambda: np.dot(x, matrix), matrix.nbytes)


def writing(n_bytes: int) -> Yardstick:
    """Fill `n_bytes`."""
    x = np.zeros(max(n_bytes // 8, 1))
    return Yardstick(lambda: x.fill(1.0), x.nbytes)


def adding(n_bytes: int) -> Yardstick:
    """Add one array to another inside a working set of `n_bytes`: two reads and a write of eight bytes per element."""
    total = np.zeros(max(n_bytes // 16, 1))
    block = np.ones_like(total)
    return Yardstick(lambda: np.add(total, block, out=total), 3 * total.nbytes)


def multiplying(dtype: Any, n_rows: int = 1_000, n_columns: int = 1_000) -> Yardstick:
    """Symmetric rank-k update, as NumPy's BLAS does it: n_rows n_columns (n_columns + 1) flops."""
    x = np.random.default_rng(0).standard_normal((n_rows, n_columns)).astype(dtype)
    return Yardstick(lambda: np.matmul(x.T, x), n_rows * n_columns * (n_columns + 1.0))


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def fraction_of_limit(run: Callable[[], Any], *limits: tuple[Yardstick, float], repeats: int = 9) -> float:
    """Return how near `run` comes to the slowest of its limits, 1 being as fast as the machine allows.

    Parameters
    ----------
    run : callable
    limits : pairs of a yardstick and the bytes or flops that `run` needs of its kind
    repeats : int
        The kernel and its yardsticks take turns that often, so that both see the same machine; medians count.
    """
    calls = [run, *(yardstick.run for yardstick, _ in limits)]
    for call in calls:
        call()  # pages touched, code loaded
    times = np.median([[seconds(call) for call in calls] for _ in range(repeats)], axis=0)
    needed = [t * work / yardstick.amount for t, (yardstick, work) in zip(times[1:], limits, strict=True)]
    return float(max(needed) / times[0])


def times_limit(run: Callable[[], Any], limit: Callable[[], Any], repeats: int = 3) -> float:
    """Return how many times the limit's seconds `run` takes; they take turns, and medians count."""
    times = np.median([[seconds(run), seconds(limit)] for _ in range(repeats)], axis=0)
    return float(times[0] / times[1])


@dataclass(frozen=True)
class Problem:
    """Data, the feature map and the prior of a synthetic regression."""

    x: np.ndarray
    y: np.ndarray
    features: Any
    levels: np.ndarray
    log_prior: np.ndarray
    noise_levels: np.ndarray


def make_features(n_weights: int, n_inputs: int = N_INPUTS, length: float = 3.0) -> Any:
    """Random Fourier features of a squared exponential kernel of variance one."""
    from pydirect.features import FourierFeatures

    frequencies = np.random.default_rng(1).standard_normal((n_inputs, n_weights // 2)) / length
    return FourierFeatures(frequencies, np.full(n_weights // 2, np.sqrt(2.0 / n_weights)))


def make_data(n_rows: int, noise: float = NOISE["fine"]) -> tuple[np.ndarray, np.ndarray]:
    """Smooth function of eleven standard normal inputs, standardised, with noise."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((n_rows, N_INPUTS))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + np.cos(2 * x[:, 3]) + 0.3 * x[:, 4:].sum(axis=1)
    y = (y - y.mean()) / y.std() + noise * rng.standard_normal(n_rows)
    return x, np.ascontiguousarray(y[:, None])


@cache
def make_problem(size: str, noise: str = "fine") -> Problem:
    """One of `SIZES`, with the levels, prior and noise grid of the paper.

    Coarse problems have targets that the model can express, weights drawn from its own prior: those to be found.
    """
    from pydirect import GaussianPrior, evenly_spaced_levels

    n_rows, n_weights = SIZES[size]
    x, y = make_data(n_rows, NOISE[noise])
    features, levels = make_features(n_weights), evenly_spaced_levels(N_LEVELS, 3.0)
    log_prior = GaussianPrior().log_mass(levels)
    if noise == "coarse":
        rng = np.random.default_rng(3)
        weights = rng.choice(levels, n_weights, p=np.exp(log_prior))
        y = features.transform(x) @ weights[:, None] + NOISE[noise] * rng.standard_normal((n_rows, 1))
    return Problem(x, y, features, levels, log_prior, NOISE[noise] ** 2 * np.logspace(-1, 1, 15))


@cache
def make_statistics(size: str, noise: str = "fine") -> Any:
    """Sufficient statistics of `make_problem`, with A held explicitly."""
    from pydirect import collect_statistics

    problem = make_problem(size, noise)
    return collect_statistics(problem.features, problem.x, problem.y, n_threads=1)


def fit(size: str, noise: str = "fine", method: str = "fit_mean_field", **options: Any) -> Any:
    """Posterior of `make_problem` from its statistics, on one thread, without warnings."""
    import warnings

    function = require_public(method)
    problem = make_problem(size, noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(
            make_statistics(size, noise),
            problem.levels,
            problem.log_prior,
            problem.noise_levels,
            n_threads=1,
            **options,
        )


def require_public(name: str) -> Any:
    """Return a public name of the package, or skip the benchmark where it lacks it."""
    import pydirect

    try:
        return getattr(pydirect, name)
    except AttributeError:
        raise NotImplementedError(f"this version has no {name}") from None


def require(*names: str) -> Any:
    """Return the compiled module, or skip the benchmark where it lacks one of `names`."""
    from pydirect import _core

    missing = [name for name in names if not hasattr(_core, name)]
    if missing:
        raise NotImplementedError(f"this version has no {', '.join(missing)}")
    return _core
