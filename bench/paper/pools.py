"""Pools of kernel models and trees on eight sets: log loss, accuracy and calibration of the kernel and of the pool.

Half of the rows of scikit-learn's sets, and synthetic ones whose classes jump: boxes, rules over text, parity, rare
pockets, thirty classes; 2000 new rows of these. `python bench/paper/pools.py [sets] [--seeds n]`, on one thread.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402

import numpy as np  # noqa: E402
from sklearn.datasets import load_breast_cancer, load_digits, load_wine  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402

from pydirect import DirectClassifier, PooledClassifier  # noqa: E402
from pydirect.metrics import expected_calibration_error  # noqa: E402

LOADED = {"wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
N_TRAIN = {"jumps": 1400, "rules": 1400, "parity": 1400, "pockets": 2000, "thirty": 2000}
N_TEST = 2000
Rows = tuple[np.ndarray, np.ndarray]


def jumps(n: int, rng: np.random.Generator) -> Rows:
    """Eight boxes in pairs of six columns, and a smooth product."""
    x = rng.uniform(-1, 1, (n, 6))
    z = 3 * np.sin(2 * np.pi * x[:, 0]) * x[:, 1]
    for _ in range(8):
        pair, centre, width = rng.choice(6, 2, replace=False), rng.uniform(-0.7, 0.7, 2), rng.uniform(0.3, 0.6, 2)
        z += rng.choice([-3.0, 3.0]) * (np.abs(x[:, pair] - centre) < width).all(axis=1)
    return x, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)


def rules(n: int, rng: np.random.Generator) -> Rows:
    """Four classes by rules over six columns of text, without noise."""
    code = np.stack([rng.integers(0, size, n) for size in (4, 3, 5, 3, 4, 3)], axis=1)
    chosen = [
        (code[:, 0] == 0) & (code[:, 1] != 1),
        (code[:, 2] >= 3) & (code[:, 3] == 0),
        code[:, 4] == code[:, 5],
    ]
    return code.astype(str).astype(object), np.select(chosen, [0, 1, 2], 3)


def parity(n: int, rng: np.random.Generator) -> Rows:
    """Parity of three of eight columns of text, with five per cent of the labels flipped."""
    code = rng.integers(0, 2, (n, 8))
    flipped = rng.random(n) < 0.05
    return code.astype(str).astype(object), (code[:, :3].sum(axis=1) + flipped) % 2


def pockets(n: int, rng: np.random.Generator) -> Rows:
    """Three rare classes in boxes of three of ten columns."""
    x, y = rng.uniform(-1, 1, (n, 10)), np.zeros(n, dtype=int)
    for k in range(1, 4):
        columns, centre = rng.choice(10, 3, replace=False), rng.uniform(-0.4, 0.4, 3)
        y[(np.abs(x[:, columns] - centre) < 0.35).all(axis=1) & (rng.random(n) < 0.9)] = k
    return x, np.where(rng.random(n) < 0.01, rng.integers(0, 4, n), y)


def thirty(n: int, rng: np.random.Generator) -> Rows:
    """Thirty classes of two clusters each, in ten columns."""
    centres, cluster = 1.6 * rng.normal(size=(60, 10)), rng.integers(0, 60, n)
    return centres[cluster] + rng.normal(size=(n, 10)), cluster % 30


DRAWN = {"jumps": jumps, "rules": rules, "parity": parity, "pockets": pockets, "thirty": thirty}


def rows_of(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and labels, new rows and labels."""
    rng = np.random.default_rng(seed)
    if name in LOADED:
        x, y = LOADED[name](return_X_y=True)
        order, n = rng.permutation(len(x)), len(x) // 2
        x, y = x[order], y[order]
    else:
        n = N_TRAIN[name]
        x, y = DRAWN[name](n + N_TEST, rng)
    return x[:n], y[:n], x[n:], y[n:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"sets (default: all): {', '.join([*LOADED, *DRAWN])}")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    losses: dict[str, list[float]] = {}
    for name in arguments.names or [*LOADED, *DRAWN]:
        for seed in range(arguments.seeds):
            x, y, x_new, y_new = rows_of(name, seed)
            print(f"{name} {seed}: {len(x)} rows, {x.shape[1]} columns, {len(np.unique(y))} classes")
            for model in (DirectClassifier(), PooledClassifier()):
                begin = time.process_time()
                model.fit(x, y)
                seconds, p = time.process_time() - begin, model.predict_proba(x_new)
                right = model.classes_[p.argmax(axis=1)] == y_new
                loss = float(log_loss(y_new, p, labels=model.classes_))
                losses.setdefault(type(model).__name__, []).append(loss)
                error = expected_calibration_error(right, np.minimum(p.max(axis=1), 1.0))
                print(
                    f"  {type(model).__name__:18s} log loss {loss:.4f}  accuracy {right.mean():.4f}  "
                    f"calibration error {error:.4f}  {seconds:.1f} s",
                    flush=True,
                )
            known = model.left_out_log_loss_
            print("  left out: " + ", ".join(f"{part} {loss:.4f}" for part, loss in known.items()), flush=True)
    print("mean: " + ", ".join(f"{name} {np.mean(values):.4f}" for name, values in losses.items()))


if __name__ == "__main__":
    main()
