"""`PooledClassifier` beside its two parts, the kernel model and the boosted trees, on sets whose classes jump.

    python bench/paper/pools.py --seeds 3

prints seven tables, each under what is asked for:

1. log losses of new rows on eight sets, mean over the seeds: half of the rows of three of scikit-learn's; boxes, rules
   over text, parity, rare pockets and thirty classes, drawn anew with every seed. A limit was set on one draw; it is
   moved by the difference of the log losses of the true probabilities.
2. by how much the pool is worse than the better part, for every set and seed, and the means of all sets.
3. nats a row by which left-out labels are likelier than their frequencies where labels are permuted, and the standard
   error: not above zero but by chance.
4. log losses of left-out labels and of new rows, and the standard error of the difference.
5. processor seconds of a fit to 5000 rows of 20 columns beside those of `DirectClassifier`, and those of each part.
6. calibration errors of the predicted class, in 15 bins, and that of labels drawn with the pool's probabilities.
7. whether a saved pool holds no pickle and predicts the same; whether a fit has the same bits on any number of threads.

    python bench/paper/pools.py beyond --folds 2

prints log losses of the pool and its parts, and by how much the pool is worse than its better part, in the first
stratified folds of the sets `unseen` of `classification.py` that have 1,000 rows or more. All fits are on one thread.
Needs no data files.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402
from classification_sets import UNSEEN, curved, with_shares  # noqa: E402
from scipy.special import expit, softmax  # noqa: E402
from sklearn.datasets import load_breast_cancer, load_digits, load_wine  # noqa: E402
from sklearn.model_selection import StratifiedKFold  # noqa: E402

import pydirect  # noqa: E402
from pydirect import DirectClassifier, PooledClassifier  # noqa: E402
from pydirect.estimators import pooled  # noqa: E402
from pydirect.logistic.pool import log_probability_of, pooled_log_probability  # noqa: E402
from pydirect.metrics import expected_calibration_error  # noqa: E402

N_TEST = 2000
N_BINS = 15
MANY_ROWS = 1000
TIMED_ROWS, TIMED_COLUMNS, TIMES = 5000, 20, 6.0
WORSE = 0.01  # nats by which a pool may be worse than its better part
N_DRAWS = 100  # of labels, for the calibration error that chance makes
Drawn = tuple[np.ndarray, np.ndarray]


# --- sets: rows and the probabilities of their classes


def jumps(rng: np.random.Generator, n: int) -> Drawn:
    """Eight boxes in pairs of six columns, and a smooth product."""
    x = rng.uniform(-1, 1, (n, 6))
    z = 3 * np.sin(2 * np.pi * x[:, 0]) * x[:, 1]
    for _ in range(8):
        pair, centre, width = rng.choice(6, 2, replace=False), rng.uniform(-0.7, 0.7, 2), rng.uniform(0.3, 0.6, 2)
        z += rng.choice([-3.0, 3.0]) * (np.abs(x[:, pair] - centre) < width).all(axis=1)
    return x, expit(np.column_stack([-z, z]))


def rules(rng: np.random.Generator, n: int) -> Drawn:
    """Four classes by rules over six columns of text, without noise."""
    code = np.stack([rng.integers(0, size, n) for size in (4, 3, 5, 3, 4, 3)], axis=1)
    chosen = [(code[:, 0] == 0) & (code[:, 1] != 1), (code[:, 2] >= 3) & (code[:, 3] == 0), code[:, 4] == code[:, 5]]
    return code.astype(str).astype(object), np.eye(4)[np.select(chosen, [0, 1, 2], 3)]


def parity(rng: np.random.Generator, n: int) -> Drawn:
    """Parity of three of eight columns of text, with five per cent of the labels flipped."""
    code = rng.integers(0, 2, (n, 8))
    return code.astype(str).astype(object), 0.05 + 0.9 * np.eye(2)[code[:, :3].sum(axis=1) % 2]


def rare_boxes(rng: np.random.Generator, n: int) -> Drawn:
    """Three rare classes in boxes of three of ten columns."""
    x, p = rng.uniform(-1, 1, (n, 10)), np.tile(np.eye(4)[0], (n, 1))
    for k in range(1, 4):
        columns, centre = rng.choice(10, 3, replace=False), rng.uniform(-0.4, 0.4, 3)
        inside = (np.abs(x[:, columns] - centre) < 0.35).all(axis=1)
        p[inside] = 0.1 * p[inside] + 0.9 * np.eye(4)[k]
    return x, 0.99 * p + 0.01 / 4


def thirty(rng: np.random.Generator, n: int) -> Drawn:
    """Thirty classes of two clusters each, in ten columns."""
    centres, cluster = 1.6 * rng.normal(size=(60, 10)), rng.integers(0, 60, n)
    x = centres[cluster] + rng.normal(size=(n, 10))
    of_clusters = softmax(-0.5 * ((x[:, None] - centres) ** 2).sum(axis=2), axis=1)
    return x, of_clusters[:, :30] + of_clusters[:, 30:]


@dataclass(frozen=True)
class Problem:
    """Rows of scikit-learn or drawn ones, how many are fitted, and the log loss that is asked for.

    `truth` is the log loss of the true probabilities of the draw on which `limit` was set; without a limit it is that
    of the kernel model and .005 more.
    """

    load: Callable[..., Drawn]
    limit: float | None
    n_rows: int = 0
    truth: float = 0.0

    def rows(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Fitted rows and labels, new rows and labels, and the true probabilities of the new rows."""
        rng, n = np.random.default_rng(seed), self.n_rows
        if not n:
            x, y = self.load(return_X_y=True)
            order, n = rng.permutation(len(x)), len(x) // 2
            return x[order[:n]], y[order[:n]], x[order[n:]], y[order[n:]], None
        x, p = self.load(rng, n + N_TEST)
        y = (rng.random(len(p))[:, None] > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
        return x[:n], y[:n], x[n:], y[n:], p[n:]


PROBLEMS = {
    "wine": Problem(load_wine, None),
    "breast_cancer": Problem(load_breast_cancer, 0.08),
    "digits": Problem(load_digits, 0.072),
    "jumps": Problem(jumps, 0.44, 1400, 0.296),
    "rules": Problem(rules, 0.02, 1400),
    "parity": Problem(parity, 0.21, 1400, 0.197),
    "pockets": Problem(rare_boxes, 0.14, 2000, 0.102),
    "thirty": Problem(thirty, 0.44, 2000, 0.253),
}
ACCURACY_OF_DIGITS = 0.98


# --- fits


@dataclass(frozen=True)
class LeftOut:
    """Log probabilities of left-out labels, (n_scored,), by a pool and by the labels' shares, and weights of rows."""

    of_pool: np.ndarray
    of_shares: np.ndarray
    weight: np.ndarray

    def mean(self, values: np.ndarray) -> tuple[float, float]:
        """Weighted mean of values of the rows, and its standard error; rows that were merged count as one in it."""
        share = self.weight / self.weight.sum()
        mean = float(share @ values)
        return mean, float(np.sqrt(share**2 @ (values - mean) ** 2))


@dataclass(frozen=True)
class Pool:
    """A fitted pool and, if it has trees, what its weights were chosen by."""

    model: PooledClassifier
    left_out: LeftOut | None

    @classmethod
    def fitted(cls, x: np.ndarray, y: np.ndarray, trees: bool | str = "auto") -> Pool:
        """Fit, and keep what the model itself keeps only as quantiles."""
        model = PooledClassifier(trees=trees, n_threads=1)
        with mock.patch.object(pooled, "pool_weights", wraps=pooled.pool_weights) as chosen:
            model.fit(x, y)
        if not chosen.called:
            return cls(model, None)
        log_p, index, weight = chosen.call_args.args
        weights = np.array([*model.weights_.values()])
        of_pool = log_p[0] if weights.tolist() == [1.0, 0.0] else pooled_log_probability(weights, log_p)
        shares = np.bincount(index, weight) / weight.sum()
        return cls(model, LeftOut(of_pool[np.arange(len(index)), index], np.log(shares[index]), weight))

    def log_probabilities(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Log probabilities of new rows by each part and by the pool, (n_rows, n_classes)."""
        own, rows = self.model.model_, self.model.encode_rows(x)
        found = {"kernel": own.kernel.log_proba(rows)}
        if own.boosted is not None:
            found["trees"] = log_probability_of(own.boosted(rows))[:, own.order]
        return {**found, "pool": own.log_proba(rows)}


@dataclass(frozen=True)
class Scores:
    """Of one set and seed: log losses, accuracy and calibration errors of new rows by model, and what was left out."""

    losses: dict[str, float]
    accuracy: float
    calibration: dict[str, float]
    confidence: dict[str, tuple[float, float]]  # mean of the largest probability, and accuracy
    by_chance: dict[str, tuple[float, float]]  # mean and deviation of calibration errors
    left_out: float
    error: float  # standard, of the pool's left-out log loss less that of new rows
    error_of_excess: float

    @classmethod
    def of(cls, pool: Pool, x: np.ndarray, y: np.ndarray, truth: np.ndarray | None) -> Scores:
        """Score a fitted pool on new rows."""
        index = np.searchsorted(pool.model.classes_, y)
        log_p = pool.log_probabilities(x)
        of_labels = {name: own[np.arange(len(index)), index] for name, own in log_p.items()}
        losses = {name: -float(own.mean()) for name, own in of_labels.items()}
        best = min((name for name in losses if name != "pool"), key=losses.__getitem__)
        if truth is not None:
            losses["truth"] = abs(float(np.log(truth[np.arange(len(index)), index]).mean()))
        confidence = {name: np.minimum(np.exp(own).max(axis=1), 1.0) for name, own in log_p.items()}
        right = {name: own.argmax(axis=1) == index for name, own in log_p.items()}
        left_out, error = (np.nan, 0.0) if pool.left_out is None else pool.left_out.mean(-pool.left_out.of_pool)
        return cls(
            losses,
            float(right["pool"].mean()),
            {name: expected_calibration_error(right[name], own, n_bins=N_BINS) for name, own in confidence.items()},
            {name: (float(own.mean()), float(right[name].mean())) for name, own in confidence.items()},
            {name: chance_error(own) for name, own in confidence.items()},
            left_out,
            float(np.hypot(error, of_labels["pool"].std() / np.sqrt(len(index)))),
            float((of_labels[best] - of_labels["pool"]).std() / np.sqrt(len(index))),
        )

    @property
    def best_part(self) -> float:
        return min(self.losses["kernel"], self.losses.get("trees", np.inf))

    @property
    def excess(self) -> float:
        """Nats by which the pool is worse than its better part."""
        return self.losses["pool"] - self.best_part


def chance_error(confidence: np.ndarray) -> tuple[float, float]:
    """Mean and deviation of the calibration errors of labels drawn with the probabilities."""
    rng = np.random.default_rng(0)
    drawn = (rng.random(len(confidence)) < confidence for _ in range(N_DRAWS))
    errors = [expected_calibration_error(right, confidence, n_bins=N_BINS) for right in drawn]
    return float(np.mean(errors)), float(np.std(errors))


# --- tables


def met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def mean_of(scores: Iterable[Scores], name: str) -> float:
    return float(np.mean([own.losses.get(name, np.nan) for own in scores]))


def print_losses(found: dict[str, list[Scores]]) -> None:
    """Log losses of new rows, means over seeds, beside their limits."""
    print("\n1. log losses of new rows")
    print(f"{'':16s}{'truth':>8s}{'kernel':>8s}{'trees':>8s}{'pool':>8s}{'limit':>8s}{'here':>8s}")
    for name, scores in found.items():
        truth, kernel, trees, pool = (mean_of(scores, part) for part in ("truth", "kernel", "trees", "pool"))
        problem = PROBLEMS[name]
        limit = kernel + 0.005 if problem.limit is None else problem.limit
        here = limit + (truth - problem.truth if problem.n_rows else 0.0)
        cells = "".join(f"{value:8.4f}" for value in (truth, kernel, trees, pool, limit, here))
        print(f"{name:16s}{cells}  {met(pool <= here)}")
    if "digits" in found:
        accuracy = float(np.mean([own.accuracy for own in found["digits"]]))
        enough = met(accuracy >= ACCURACY_OF_DIGITS)
        print(f"accuracy of digits {accuracy:.4f}, at least {ACCURACY_OF_DIGITS}: {enough}")


def print_excess(found: dict[str, list[Scores]]) -> None:
    """By how much pools are worse than their better part, and means over all sets."""
    print(f"\n2. log loss of the pool less that of its better part, for each seed; at most {WORSE}")
    for name, scores in found.items():
        cells = "".join(f"{own.excess:9.4f}" for own in scores)
        print(f"{name:16s}{cells}  {met(all(own.excess <= WORSE for own in scores))}")
    pools = [own for scores in found.values() for own in scores]
    kernel, pool = (float(np.mean([own.losses[part] for own in pools])) for part in ("kernel", "pool"))
    with_trees = [own for own in pools if "trees" in own.losses]
    of_trees, beside = (float(np.mean([own.losses[part] for own in with_trees])) for part in ("trees", "pool"))
    print(f"means of all: kernel {kernel:.4f}, pool {pool:.4f}: {met(pool < kernel)}")
    print(f"means of those with trees: trees {of_trees:.4f}, pool {beside:.4f}: {met(beside < of_trees)}")


def print_permuted(n_seeds: int) -> None:
    """Gains of left-out labels over their frequencies where labels are permuted."""
    print(
        "\n3. labels permuted: nats a row by which left-out ones are likelier than their frequencies (standard error)"
    )
    for name, problem in PROBLEMS.items():
        cells, is_met = "", True
        for seed in range(n_seeds):
            x, y, *_ = problem.rows(seed)
            pool = Pool.fitted(x, np.random.default_rng(100 + seed).permutation(y), trees=True)
            assert pool.left_out is not None
            gain, error = pool.left_out.mean(pool.left_out.of_pool - pool.left_out.of_shares)
            cells += f"{gain:10.4f} ({error:.4f})"
            is_met &= gain <= 2 * error
        print(f"{name:16s}{cells}  {met(is_met)}", flush=True)


def print_left_out(found: dict[str, list[Scores]]) -> None:
    """Log losses of left-out labels beside those of new rows."""
    print("\n4. log loss of the pool, left out / new (standard error of the difference); at most .02 + 2 errors apart")
    for name in (name for name in ("jumps", "pockets", "digits") if name in found):
        scores = found[name]
        cells = "".join(f"   {own.left_out:.4f} / {own.losses['pool']:.4f} ({own.error:.4f})" for own in scores)
        near = all(abs(own.left_out - own.losses["pool"]) <= 0.02 + 2 * own.error for own in scores)
        print(f"{name:16s}{cells}  {met(near)}")


def print_seconds(n_seeds: int) -> None:
    """Processor seconds of fits to many rows."""
    print(f"\n5. processor seconds at {TIMED_ROWS} x {TIMED_COLUMNS}, two classes; at most {TIMES} times the kernel's")
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        x, logits, shares = curved(rng, TIMED_ROWS)
        x = np.hstack([x, rng.standard_normal((TIMED_ROWS, TIMED_COLUMNS - x.shape[1]))])
        y = (rng.random(TIMED_ROWS) < with_shares(logits, np.array(shares))[:, 1]).astype(int)
        seconds, models = [], (DirectClassifier(n_threads=1), PooledClassifier(n_threads=1))
        for model in models:
            begin = time.process_time()
            model.fit(x, y)
            seconds.append(time.process_time() - begin)
        alone, pool = seconds
        parts = ", ".join(f"{name} {own:.2f}" for name, own in models[1].fit_seconds_.items())
        print(f"kernel {alone:.2f}, pool {pool:.2f}, ratio {pool / alone:.2f}: {met(pool <= TIMES * alone)}; {parts}")
        rows = models[1].encode_rows(x[:500])
        same = (models[1].model_.kernel.log_proba(rows) == models[0].model_.log_proba(rows)).all()
        print(f"the pool's kernel model is DirectClassifier's, bit for bit: {met(bool(same))}", flush=True)


def print_calibration(found: dict[str, list[Scores]]) -> None:
    """Calibration errors, means over seeds, and what chance makes of them."""
    print(f"\n6. calibration errors of new rows, {N_BINS} bins; the pool's at most the kernel's")
    print("(of labels drawn with the probabilities; mean largest probability, accuracy)")
    for name in (name for name in ("digits", "jumps", "thirty") if name in found):
        cells, errors = "", {}
        for part in ("kernel", "pool"):
            errors[part] = np.mean([own.calibration[part] for own in found[name]])
            chance, deviation = np.transpose([own.by_chance[part] for own in found[name]])
            largest, right = np.mean([own.confidence[part] for own in found[name]], axis=0)
            spread = np.sqrt((deviation**2).sum()) / len(deviation)
            cells += f"   {part} {errors[part]:.4f} ({chance.mean():.4f} ± {spread:.4f}; {largest:.3f}, {right:.3f})"
        print(f"{name:16s}{cells}  {met(errors['pool'] <= errors['kernel'])}")


def print_files() -> None:
    """Whether files hold the model and no pickle, and threads change nothing."""
    print("\n7. files and threads")
    for name in ("breast_cancer", "rules"):
        x, y, x_new, *_ = PROBLEMS[name].rows(0)
        model = PooledClassifier(n_threads=1).fit(x, y)
        expected = model.predict_proba(x_new)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pool.npz"
            model.save(path)
            with np.load(path, allow_pickle=False) as file:
                plain = all(np.asarray(file[key]).dtype != object for key in file.files)
            same = bool((pydirect.load(path).predict_proba(x_new) == expected).all())
        print(f"{name:16s}no pickle: {met(plain)}; the same predictions: {met(same)}", end="; ")
        other = PooledClassifier(n_threads=2).fit(x, y).predict_proba(x_new)
        print(f"the same bits on two threads: {met(bool((other == expected).all()))}", flush=True)


def accept(names: list[str], n_seeds: int) -> None:
    """Print all tables."""
    found: dict[str, list[Scores]] = {}
    for name in names or PROBLEMS:
        for seed in range(n_seeds):
            x, y, *new = PROBLEMS[name].rows(seed)
            pool = Pool.fitted(x, y)
            own = Scores.of(pool, *new)
            found.setdefault(name, []).append(own)
            losses = ", ".join(f"{part} {loss:.4f}" for part, loss in own.losses.items())
            weights = ", ".join(f"{part} {weight:.2f}" for part, weight in pool.model.weights_.items())
            print(f"{name} {seed}: {losses}; accuracy {own.accuracy:.4f}; weights {weights}", flush=True)
    print_losses(found)
    print_excess(found)
    if not names:
        print_permuted(n_seeds)
    print_left_out(found)
    if not names:
        print_seconds(n_seeds)
    print_calibration(found)
    if not names:
        print_files()


def beyond(n_folds: int) -> None:
    """Pools of sets with many rows beside their parts."""
    print(f"{'':20s}{'rows':>6s}{'kernel':>8s}{'trees':>8s}{'pool':>8s}{'excess (standard error)':>25s}")
    for name, settings in UNSEEN.items():
        data = settings.rows(None)
        if len(data.x) < MANY_ROWS:
            continue
        folds, excess = StratifiedKFold(5, shuffle=True, random_state=0).split(data.x, data.y), []
        for fold, (train, test) in zip(range(n_folds), folds, strict=False):
            own = Scores.of(Pool.fitted(data.x[train], data.y[train]), data.x[test], data.y[test], None)
            cells = "".join(f"{own.losses[part]:8.4f}" for part in ("kernel", "trees", "pool"))
            excess.append(own.excess)
            print(
                f"{f'{name}, {fold}':20s}{len(train):6d}{cells}{own.excess:16.4f} ({own.error_of_excess:.4f})",
                flush=True,
            )
        print(
            f"{name:20s}{'mean of the folds':30s}{np.mean(excess):16.4f}  {met(np.mean(excess) <= WORSE)}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"beyond, or sets (default: {', '.join(PROBLEMS)})")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--folds", type=int, default=1, help="of sets with many rows")
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {"beyond", *PROBLEMS}:
        parser.error(f"no such sets: {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore")
    if arguments.names == ["beyond"]:
        beyond(arguments.folds)
    else:
        accept(arguments.names, arguments.seeds)


if __name__ == "__main__":
    main()
