"""Parts of a pool that are no kernel models: trees of scikit-learn, each with what it says of rows left out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier

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


def folds_of(index: NDArray[np.intp], rng: np.random.Generator, n_folds: int = N_FOLDS) -> NDArray[np.intp]:
    """The fold of every row, (n_rows,), classes in equal shares; −1 of the only row of a class, which all need."""
    order, count, found = rng.permutation(len(index)), np.bincount(index), np.full(len(index), -1)
    by_class = order[np.argsort(index[order], kind="stable")]
    several = by_class[count[index[by_class]] > 1]
    found[several] = np.arange(len(several)) % n_folds
    return found


def boosted(
    x: FloatArray,
    y: NDArray[Any],
    weight: FloatArray,
    folds: NDArray[np.intp],
    rng: np.random.Generator,
    n_classes: int | None = None,
) -> tuple[Trees, FloatArray]:
    """Gradient-boosted trees, and their scores (n_rows, n_outputs) of rows out of their fold.

    Of `y`, targets or numbers of classes. Every fold's other rows have a model, all of one number of rounds, that of
    the least loss out of fold; the trees are the mean of these models.
    """
    seed = int(rng.integers(2**31))
    kind = HistGradientBoostingRegressor if n_classes is None else HistGradientBoostingClassifier
    smallest = 20 if n_classes is None else int(np.clip(len(x) / 100, 3, 20))
    boosting = kind(min_samples_leaf=smallest, learning_rate=LEARNING_RATE, **BOOSTING)
    models = [clone(boosting).set_params(random_state=seed + k) for k in range(N_FOLDS)]
    score, best = np.zeros((len(x), 1 if n_classes in (None, 2) else n_classes)), (np.inf, 0)
    found = np.zeros_like(score)

    def loss(path: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
        """Losses of scores after every round, (n_rows, n_rounds, n_outputs)."""
        if n_classes is None:
            return weight[rows] @ (path[:, :, 0] - y[rows, None]) ** 2
        return -weight[rows] @ np.take_along_axis(log_probability_of(path), y[rows, None, None], axis=2)[:, :, 0]

    for done in range(0, MOST_ROUNDS, CHUNK):
        losses, paths = np.zeros(CHUNK), []
        for k, own in enumerate(models):
            train, rows = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
            own.set_params(max_iter=done + CHUNK).fit(x[train], y[train], weight[train])
            rounds, base = _grown(own)
            new = Trees.boosted(rounds[done:], np.zeros_like(base), x.shape[1]).values(x[rows])
            path = (score[rows] if done else base)[..., None, :] + np.cumsum(new, axis=1)
            losses += loss(path, rows)
            paths.append((rows, path))
        least = int(np.argmin(losses))
        if losses[least] >= best[0]:
            break
        best = (float(losses[least]), done + least + 1)
        for rows, path in paths:
            score[rows], found[rows] = path[:, -1], path[:, least]
    grown = [_grown(own) for own in models]
    base = np.mean([base for _, base in grown], axis=0)
    every = [own for rounds, _ in grown for own in rounds[: best[1]]]
    return Trees.boosted(every, base, x.shape[1], 1 / N_FOLDS), found


def _grown(boosting: HistGradientBoostingClassifier | HistGradientBoostingRegressor) -> tuple[list[Any], FloatArray]:
    """Predictors of every round, and where their sums begin, (n_outputs,): only in private attributes of boosting."""
    own = vars(boosting)
    return own["_predictors"], np.ravel(own["_baseline_prediction"])


def forest_of_classes(
    x: FloatArray, index: NDArray[np.intp], weight: FloatArray, rng: np.random.Generator
) -> tuple[Trees, FloatArray]:
    """A random forest, and log probabilities (n_rows, n_classes) of rows out of their bags."""
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
    votes[votes.sum(axis=1) == 0] = 1 / votes.shape[1]  # of rows that are in every bag
    return Trees.forest(forest.estimators_, x.shape[1]), log_of_votes(votes)
