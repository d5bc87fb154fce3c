"""Parts of a pool that are no kernel models: trees of scikit-learn, each with what it says of rows left out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)

from pydirect._validation import FloatArray
from pydirect.fitted.trees import Trees
from pydirect.logistic.pool import log_of_votes, log_probability_of

N_FOLDS = 5
# Boosting: rounds at most, and at a time until they no longer help.
MOST_ROUNDS, CHUNK = 200, 25
BOOSTING: dict[str, Any] = {"max_leaf_nodes": 15, "l2_regularization": 1.0, "early_stopping": False, "warm_start": True}
LEARNING_RATE = 0.1  # 0.06 and 300 rounds gained nothing
# Forest: trees, and rows that one tree sees at most.
N_TREES, MOST_TREE_ROWS = 200, 20_000


def folds_of(index: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """The fold of every row, (n_rows,), classes in equal shares; −1 of the only row of a class, which all need."""
    order, count, found = rng.permutation(len(index)), np.bincount(index), np.full(len(index), -1)
    by_class = order[np.argsort(index[order], kind="stable")]
    several = by_class[count[index[by_class]] > 1]
    found[several] = np.arange(len(several)) % N_FOLDS
    return found


def random_folds(n_rows: int, n_folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """The fold of every row, (n_rows,)."""
    found = np.empty(n_rows, dtype=np.intp)
    found[rng.permutation(n_rows)] = np.arange(n_rows) % n_folds
    return found


def boosted_classes(
    x: FloatArray, index: NDArray[np.intp], weight: FloatArray, folds: NDArray[np.intp], rng: np.random.Generator
) -> tuple[Trees, FloatArray]:
    """Gradient-boosted trees for classes, and log probabilities (n_rows, n_classes) of rows out of their fold."""
    n_classes = int(index.max()) + 1
    smallest = int(np.clip(len(x) / 100, 3, 20))
    model = HistGradientBoostingClassifier(min_samples_leaf=smallest, learning_rate=LEARNING_RATE, **BOOSTING)

    def loss(score: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
        own = np.take_along_axis(log_probability_of(score), index[rows, None, None], axis=2)
        return -(weight[rows] @ own[:, :, 0])

    trees, score = _boosted(model, x, index, weight, folds, loss, n_classes if n_classes > 2 else 1, rng)
    return trees, log_probability_of(score)


def boosted_means(
    x: FloatArray, y: FloatArray, weight: FloatArray, folds: NDArray[np.intp], rng: np.random.Generator
) -> tuple[Trees, FloatArray]:
    """Gradient-boosted trees for a target (n_rows,), and predictions (n_rows,) of rows out of their fold."""
    model = HistGradientBoostingRegressor(min_samples_leaf=20, learning_rate=LEARNING_RATE, **BOOSTING)

    def loss(score: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
        return weight[rows] @ (score[:, :, 0] - y[rows, None]) ** 2

    trees, score = _boosted(model, x, y, weight, folds, loss, 1, rng)
    return trees, score[:, 0]


def _boosted(
    boosting: HistGradientBoostingClassifier | HistGradientBoostingRegressor,
    x: FloatArray,
    y: NDArray[Any],
    weight: FloatArray,
    folds: NDArray[np.intp],
    loss: Any,
    n_outputs: int,
    rng: np.random.Generator,
) -> tuple[Trees, FloatArray]:
    """Boost every fold's other rows for one number of rounds, that of the least loss out of fold; the mean of these."""
    seed = int(rng.integers(2**31))
    models = [clone(boosting).set_params(random_state=seed + k) for k in range(N_FOLDS)]
    score, best = np.zeros((len(x), n_outputs)), (np.inf, 0)
    found = np.zeros_like(score)
    for done in range(0, MOST_ROUNDS, CHUNK):
        losses, steps = np.zeros(CHUNK), []
        for k, own in enumerate(models):
            train, rows = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
            own.set_params(max_iter=done + CHUNK).fit(x[train], y[train], weight[train])
            rounds, base = _grown(own)
            new = Trees.boosted(rounds[done:], n_outputs, x.shape[1])
            if not done:
                score[rows] = base
            path = score[rows, None] + new.steps(x[rows])
            losses += loss(path, rows)
            steps.append((rows, path))
        least = int(np.argmin(losses))
        for rows, path in steps:
            score[rows] = path[:, -1]
            if losses[least] < best[0]:
                found[rows] = path[:, least]
        if losses[least] >= best[0]:
            break
        best = (float(losses[least]), done + least + 1)
    grown = [_grown(own) for own in models]
    parts = [Trees.boosted(rounds[: best[1]], n_outputs, x.shape[1]) for rounds, _ in grown]
    base = np.mean([base for _, base in grown], axis=0)
    return Trees.joined(base, x.shape[1], parts, 1 / N_FOLDS), found


def _grown(boosting: HistGradientBoostingClassifier | HistGradientBoostingRegressor) -> tuple[list[Any], FloatArray]:
    """Predictors of every round, and where their sums begin, (n_outputs,): only in private attributes of boosting."""
    own = vars(boosting)
    return own["_predictors"], np.ravel(own["_baseline_prediction"])


def forest_of_classes(
    x: FloatArray, index: NDArray[np.intp], weight: FloatArray, rng: np.random.Generator
) -> tuple[Trees, FloatArray]:
    """A random forest, and log probabilities (n_rows, n_classes) of rows out of their bags."""
    n_classes = int(index.max()) + 1
    forest = RandomForestClassifier(
        N_TREES,
        min_samples_leaf=2,
        oob_score=True,
        max_samples=min(len(x), MOST_TREE_ROWS),
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of rows that are in every bag
        forest.fit(x, index, weight)
    votes = np.nan_to_num(forest.oob_decision_function_)
    votes[votes.sum(axis=1) == 0] = 1 / n_classes  # of rows that are in every bag
    return Trees.forest(forest.estimators_, n_classes, x.shape[1]), log_of_votes(votes)
