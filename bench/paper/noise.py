"""Noise that varies from row to row, heavy tails and outliers: negative log predictive densities and errors.

    python bench/paper/noise.py [synthetic] [outliers] [sets] [--n-basis-functions 1000] [--folds 1]

`synthetic`: targets sin 2x with noise that grows with x, is .5 or .05 in strips, is constant, or is Student-t with
three degrees of freedom; 2000 test rows. `outliers`: four inputs, noise .2, a tenth of the rows with noise of deviation
5; RMSE to the function. `sets`: UCI sets in PYDIRECT_DATA. Each with constant noise and with that of every choice of
`noise`; which was chosen. One thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
SETS = ("energy", "autompg", "wine", "concrete", "yacht")


def sine(kind: str, n: int, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (n + 2000, 1))
    e = rng.standard_t(3, len(x)) if kind == "t3" else rng.standard_normal(len(x))
    spread = {
        "growing": 0.05 + 0.1 * (x[:, 0] + 3),
        "strips": np.where(np.floor(2 * x[:, 0]) % 2 == 0, 0.5, 0.05),
        "constant": np.full(len(x), 0.2),
        "t3": np.full(len(x), 0.2),
    }[kind]
    y = np.sin(2 * x[:, 0]) + spread * e
    return x[:n], y[:n], x[n:], y[n:]


def linear(n: int, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n + 2000, 30))
    y = x[:, :10].sum(axis=1) / np.sqrt(10) + 0.6 * rng.standard_normal(len(x))
    return x[:n], y[:n], x[n:], y[n:]


def pure_noise(n: int, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n + 2000, 20)), rng.standard_normal(n + 2000)
    return x[:n], y[:n], x[n:], y[n:]


def with_outliers(n: int, share: float, seed: int = 0) -> Data:
    """Training rows with outliers, and noise-free test rows."""
    rng = np.random.default_rng(seed)

    def function(x: np.ndarray) -> np.ndarray:
        return np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3]

    x, new = rng.standard_normal((n, 4)), rng.standard_normal((1000, 4))
    y = function(x) + 0.2 * rng.standard_normal(n)
    outliers = rng.random(n) < share
    y[outliers] += 5 * rng.standard_normal(outliers.sum())
    return x, y, new, function(new)


def fold_of(name: str, fold: int) -> Data:
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("PYDIRECT_DATA", default)) / "uci" / f"{name}.npz"
    if not path.exists():
        sys.exit(f"no data: {path}; set PYDIRECT_DATA")
    with np.load(path) as file:
        x, y, masks = file["X"], np.ravel(file["y"]), file["test_mask"].astype(bool)
    test = (masks if masks.shape[1] == len(x) else masks.T)[fold]
    return x[~test], y[~test], x[test], y[test]


def report(name: str, data: Data, choices: tuple[str, ...], n_basis_functions: int) -> None:
    x, y, new, target = data
    parts = []
    for noise in choices:
        begin = time.perf_counter()
        model = DirectRegressor(n_basis_functions=n_basis_functions, noise=noise).fit(x, y)
        seconds = time.perf_counter() - begin
        density = -float(np.mean(model.log_predictive_density(new, target)))
        error = float(np.sqrt(np.mean((model.predict(new) - target) ** 2)))
        kinds = "" if model.noise_model_ is None else f" ({', '.join(model.noise_model_.choices)})"
        parts.append(f"{noise}{kinds}: NLPD {density:.3f} RMSE {error:.4f} {seconds:.1f} s")
    print(f"{name}, n = {len(x)}: " + "; ".join(parts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["synthetic", "outliers"])
    parser.add_argument("--n-basis-functions", type=int, default=1000)
    parser.add_argument("--folds", type=int, default=1)
    options = parser.parse_args()
    kinds = ("constant", "auto", "varying")
    if "synthetic" in options.parts:
        for kind, n in (("growing", 300), ("growing", 3000), ("strips", 3000), ("constant", 200), ("constant", 3000)):
            report(kind, sine(kind, n), kinds, options.n_basis_functions)
        report("t3", sine("t3", 1000), kinds, options.n_basis_functions)
        report("linear, 30 inputs", linear(300), kinds, options.n_basis_functions)
        report("pure noise, 20 inputs", pure_noise(500), kinds, options.n_basis_functions)
    if "outliers" in options.parts:
        for n, share in ((300, 0.1), (2000, 0.1), (2000, 0.2), (300, 0.0), (2000, 0.0)):
            report(
                f"{share:.0%} outliers", with_outliers(n, share), ("constant", "student_t"), options.n_basis_functions
            )
    if "sets" in options.parts:
        for name in SETS:
            for fold in range(options.folds):
                report(f"{name}, fold {fold}", fold_of(name, fold), kinds, options.n_basis_functions)


if __name__ == "__main__":
    main()
