"""Active learning: test error against the number of labels, and seconds per batch.

`labels`: a default model is fitted to a few random rows; then batches are labelled, and it is fitted again. Batches are
those that take away most predictive variance over the pool (`select_batch`), random ones, or the largest deviations.
Root mean squared test errors in units of the target's standard deviation, averaged over seeds.
`seconds`: one choice of ten among 10,000 candidates, with 1000 basis functions, in processor time.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from pydirect import DirectRegressor
from pydirect.decisions import select_batch

RULES = ("variance taken away", "at random", "largest deviation")


def chosen(rule: str, model: DirectRegressor, pool: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    if rule == "at random":
        return rng.choice(len(pool), n, replace=False)
    if rule == "largest deviation":
        return np.argsort(-model.predict_parts(pool)[1])[:n]
    return select_batch(model, pool, n=n).indices


def learning_curve(rule: str, path: Path, seed: int, options: argparse.Namespace) -> list[float]:
    """Root mean squared errors after every batch."""
    data, rng = np.load(path), np.random.default_rng(seed)
    order = rng.permutation(len(data["y"]))[: options.pool + 2000]
    n_test = min(2000, len(order) // 4)
    x, y = data["X"][order], data["y"][order]
    test, pool = np.arange(n_test), np.arange(n_test, len(order))
    labelled, errors = pool[: options.first], []
    pool = pool[options.first :]
    while True:
        model = DirectRegressor(n_basis_functions=500, noise="constant", local=False, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(x[labelled], y[labelled])
        errors.append(float(np.sqrt(np.mean((model.predict(x[test]) - y[test]) ** 2)) / y.std()))
        if len(errors) > options.batches:
            return errors
        own = chosen(rule, model, x[pool], options.batch, rng)
        labelled, pool = np.concatenate([labelled, pool[own]]), np.delete(pool, own)


def labels(options: argparse.Namespace) -> None:
    counts = options.first + options.batch * np.arange(options.batches + 1)
    for name in options.sets:
        print(f"{name:36}" + "".join(f"{n:>8}" for n in counts) + "   labels")
        for rule in RULES:
            curves = [learning_curve(rule, options.data / f"{name}.npz", s, options) for s in range(options.seeds)]
            print(f"  {rule:34}" + "".join(f"{error:8.3f}" for error in np.mean(curves, axis=0)), flush=True)


def seconds(options: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12_000, 8))
    y = np.sin(x @ rng.normal(size=8)) + 0.1 * rng.normal(size=12_000)
    model = DirectRegressor(n_basis_functions=1000, local=False, noise="constant", n_threads=1).fit(x[:2000], y[:2000])
    product = np.empty((2000, 1000)), np.empty((1000, 1000))
    for values in product:
        values[:] = rng.normal(size=values.shape)
    for what, targets in (("candidates", None), ("1000 rows", x[:1000]), ("10,000 other rows", x[:10_000])):
        turns = []
        for _ in range(options.seeds):
            start = time.process_time()
            select_batch(model, x[2000:], targets, n=10)
            middle = time.process_time()
            np.matmul(*product)
            turns.append((middle - start, 5 * (time.process_time() - middle)))
        own, products = np.median(turns, axis=0)
        print(f"targets: {what:18} {own:6.2f} s, {own / products:5.1f} products of (10,000, 1000) and (1000, 1000)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("labels", "seconds"))
    parser.add_argument("--data", type=Path, help="folder of files SET.npz with X and y")
    parser.add_argument("--sets", nargs="+", default=["concrete", "energy", "airfoil"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=20, help="random labels to begin with")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--pool", type=int, default=3000)
    options = parser.parse_args()
    {"labels": labels, "seconds": seconds}[options.what](options)


if __name__ == "__main__":
    main()
