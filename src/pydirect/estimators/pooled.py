"""`PooledClassifier`, `PooledRegressor`: a kernel model with trees beside it, weighted by what rows left out say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from pydirect._documentation import described_by
from pydirect._progress import Progress
from pydirect._validation import FloatArray, as_count, as_weights, shown
from pydirect._warnings import ignored
from pydirect.estimators._classifier import Classifier, GivenLabels, predict_set
from pydirect.estimators._estimator import Estimator, of_model
from pydirect.estimators._regressor import Regressor
from pydirect.estimators.choices import Gaussian, RegressionPlan, check_common, feature_plan, regression_plan
from pydirect.estimators.classification import ClassificationPlan, check_class_weight
from pydirect.estimators.direct_classifier import DirectClassifier
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.effects import flag_interrupted
from pydirect.estimators.left_out import LabelsLeftOut, fit_given
from pydirect.estimators.regression import (
    GivenRows,
    choose_scale,
    fit_together,
    fit_units,
    merged,
    settled,
    warn_of_outliers,
)
from pydirect.estimators.summary import lines_of_model
from pydirect.features.fitting import GIVEN_MAPS
from pydirect.features.rows import TrainingRows
from pydirect.fitted.classification import quantiles_of
from pydirect.fitted.pooled import FittedClassPool, FittedMeanPool, Trees
from pydirect.fitted.regression import FittedRegressor
from pydirect.logistic.likelihood import class_numbers
from pydirect.logistic.pool import log_probability_of, pool_weights, pooled_log_probability
from pydirect.tables.encoding import ColumnEncoding

N_FOLDS = 5
# Boosting: rounds at most, and at a time until they no longer help.
MOST_ROUNDS, CHUNK = 200, 25
BOOSTING: dict[str, Any] = {"max_leaf_nodes": 15, "l2_regularization": 1.0, "early_stopping": False, "warm_start": True}
LEARNING_RATE = 0.1  # 0.06 and 300 rounds gained nothing
BINS_OF_CLASSES = 63  # 255 take twice as long and gain nothing
FEW_CLASSES = 5  # of more, each with a tree a round, rounds are half as many and learn twice as much


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
    smallest, bins, speed = 20, 255, 1
    if n_classes is not None:
        smallest, bins, speed = int(np.clip(len(x) / 100, 3, 20)), BINS_OF_CLASSES, 1 + (n_classes > FEW_CLASSES)
    boosting = kind(min_samples_leaf=smallest, learning_rate=speed * LEARNING_RATE, max_bins=bins, **BOOSTING)
    models = [clone(boosting).set_params(random_state=seed + k) for k in range(N_FOLDS)]
    score, best = np.zeros((len(x), 1 if n_classes in (None, 2) else n_classes)), (np.inf, 0)
    found = np.zeros_like(score)

    def loss(path: FloatArray, rows: NDArray[np.intp]) -> FloatArray:
        """Losses of scores after every round, (n_rows, n_rounds, n_outputs)."""
        if n_classes is None:
            return weight[rows] @ (path[:, :, 0] - y[rows, None]) ** 2
        return -weight[rows] @ np.take_along_axis(log_probability_of(path), y[rows, None, None], axis=2)[:, :, 0]

    for done in range(0, MOST_ROUNDS // speed, CHUNK):
        losses, paths = np.zeros(CHUNK), []
        for k, own in enumerate(models):
            train, rows = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
            own.set_params(max_iter=done + CHUNK)
            # Quantiles of weighted rows take longer than trees of few.
            own.fit(x[train], y[train], None if (weight == 1).all() else weight[train])
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


# Rows from which there are trees with trees="auto", and at all.
LEAST_ROWS, FEWEST_ROWS = 100, 20
# Rows up to which a kernel of regression is fitted again without each third of them.
MOST_REFITTED_ROWS = 2000
N_REFITS = 3
# Factors of the deviations of distributions that are moved to the mean of a pool.
SPREADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)


@dataclass(eq=False, repr=False)
class Pool(Estimator):
    """What pools share: the feature map is the kernel model's, and trees grow beside it where there are rows enough."""

    features: Any = "auto"
    n_basis_functions: int = 1000
    trees: Any = "auto"

    features_ = of_model("basis")

    @property
    def weights_(self) -> dict[str, Any]:
        return dict(zip(self.model_.names, self.model_.part_weights, strict=True))

    def _of_parts(self, errors: Any) -> dict[str, Any]:
        """Errors of left-out rows, of each part and of the pool; none without trees."""
        return dict(zip((*self.model_.names, "pool"), errors, strict=True)) if len(errors) else {}

    def _check_trees(self, features: str) -> None:
        if not isinstance(self.trees, bool | np.bool_) and not (isinstance(self.trees, str) and self.trees == "auto"):
            raise ValueError(f"trees must be 'auto', True or False, got {shown(self.trees)}")
        if features in GIVEN_MAPS:
            message = f"features must be built in and take columns for trees to see the same, got {features!r}"
            raise ValueError(message)

    def _grow(self, n_rows: int, pool: Callable[[], Any]) -> None:
        """Put a pool in the place of the kernel model, which Ctrl-C leaves alone, flagged."""
        if not self.trees or n_rows < (LEAST_ROWS if isinstance(self.trees, str) else FEWEST_ROWS):
            return
        try:
            self.model_ = pool()
        except KeyboardInterrupt:
            flag_interrupted(self.posteriors_)

    def _words_of_pool(self, measure: str, errors: dict[str, Any], more: str) -> list[str]:
        if not errors:
            return [*lines_of_model(self), "Pool: the kernel model alone."]
        weights, (*parts, pool) = self.weights_.values(), map(_numbers, errors.values())
        found = [
            f"Part {name}: weight {_numbers(weight)}, left-out {measure} {error}."
            for name, weight, error in zip(errors, weights, parts, strict=False)
        ]
        return [*lines_of_model(self), *found, f"Pool: left-out {measure} {pool}{more}."]


@described_by(DirectClassifier)
@dataclass(eq=False, repr=False)
class PooledClassifier(Pool, Classifier):
    """A pool of the kernel model of `DirectClassifier` and trees, whose weights left-out labels choose.

    Kernels are good where probabilities change smoothly, trees where they jump: at thresholds, by rules over
    categories, in small pockets. The pool is log-linear, ``log p = Σ w log p_part + const``, with weights from 0 to 2
    under which the labels of rows left out of every part are likeliest. Their sum is free, so that the pool calibrates
    too. Where it gains nothing over the kernel model, that is all of it.

    Parameters
    ----------
    features : str, Nystroem, Fourier or Polynomial, default="auto"
        Of the kernel model, as of `DirectClassifier`. Trees see the same rows, which must be columns.
    trees : {"auto", True, False}, default="auto"
        Whether scikit-learn's histogram gradient boosting is in the pool. ``"auto"``: from 100 rows on; True:
        from 20 rows on.
    class_weight : dict, "balanced" or None, default=None
        Factors of the classes' predictive odds; zero leaves a class out. Parts and their weights are as without.
    random_state : int, RandomState or None, default=0
        Seed of the kernel model's rows and landmarks, of folds and of trees.

    Attributes
    ----------
    model_ : FittedClassPool
        The fitted pool as frozen data; ``model_.kernel`` is what `DirectClassifier` would have found.
    weights_ : dict of str to float
        Weight of each part.
    left_out_log_loss_ : dict of str to float
        Mean −log probability of left-out labels, of each part and of the pool; empty without trees.
    left_out_probability_ : ndarray of shape (n_kept,)
        Probabilities that the pool gives left-out labels, ascending; see `predict_set`.
    fit_seconds_ : dict of str to float
        Seconds of each stage and part.

    Notes
    -----
    Labels are left out of the kernel model, its kernel included, by `pydirect.estimators.left_out`; of boosted trees by
    five folds, whose trees are averaged and have one number of rounds, that of the least loss out of fold. A class with
    a single row is in every fold's training rows and not scored.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from pydirect import PooledClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = PooledClassifier().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    model_: FittedClassPool = field(init=False)

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedClassPool | tuple[FittedClassPool, ...]}
    _takes_several, estimators_ = True, Classifier._outputs

    class_weight: Any = None
    max_iter: int = 1000

    def _plan(self) -> ClassificationPlan:
        check_class_weight(self.class_weight)
        features, _ = feature_plan(self, Gaussian(), rank_inputs=None)
        self._check_trees(features.kind)
        check_common(self)
        given = self.class_weight, as_count(self.max_iter, "max_iter"), self.random_state
        return ClassificationPlan(features.growing(), Gaussian(), "softmax", *given)

    def _learn(self, plan: Any, given: GivenLabels, progress: Progress) -> dict[str, Any]:
        found = fit_given(plan, given, progress, moves_odds=False)
        self.columns_ = found.columns
        left, rows, moves = found.left, found.rows, found.labels.log_factors  # of the pool's odds, not of its parts'
        pool = self.model_ = FittedClassPool.alone(found.model, np.argsort(found.labels.classes))
        if left is not None:
            self._grow(len(rows.x), lambda: _class_pool(pool, left, rows, found.rng, progress))
        if len(moves):
            self.model_ = replace(self.model_, moves=moves[pool.order], left_out_probability=np.empty(0))
        return {}

    predict_set = predict_set

    left_out_probability_ = of_model("left_out_probability")

    @property
    def left_out_log_loss_(self) -> dict[str, float]:
        return self._of_parts(self.model_.left_out_log_loss.tolist())

    def _words(self) -> list[str]:
        losses = self.left_out_log_loss_
        gain = losses["kernel"] - losses["pool"] if losses else 0.0
        return self._words_of_pool("log loss", losses, f", {gain:.3g} less than the kernel model's")


@described_by(DirectRegressor)
@dataclass(eq=False, repr=False)
class PooledRegressor(Pool, Regressor):
    """The kernel model of `DirectRegressor` with boosted trees beside it: their mean, weighted by left-out squares.

    Where targets jump, or are skewed, trees with squared error mend the mean. It is ``w kernel + (1 − w) trees``, with
    the weight that least squares of left-out rows choose, from 0 to 1. The distribution is moved to the new mean, and
    its deviations multiplied by one factor, where that makes left-out targets likelier; else it stays the kernel
    model's, so that intervals, and the parts of `predict_parts`, need not be about the mean.

    Parameters
    ----------
    features : str, Nystroem, Fourier or Polynomial, default="auto"
        Of the kernel model, as of `DirectRegressor`. Trees see the same rows, which must be columns.
    trees : {"auto", True, False}, default="auto"
        Whether scikit-learn's histogram gradient boosting is in the pool. ``"auto"``: from 100 rows on; True:
        from 20 rows on.
    target_transform : str, TargetScale, transformer, list of them or None, default=None
        Scale on which the kernel model has the targets, as of `DirectRegressor`. By default y itself, whose squared
        errors choose the weights; on another scale the distribution stays the kernel model's.
    random_state : int, RandomState or None, default=0
        Seed of the kernel model's rows and landmarks, of folds and of trees.

    Attributes
    ----------
    model_ : FittedMeanPool
        The fitted pool as frozen data; ``model_.kernel`` is what `DirectRegressor` finds with the same parameters, but
        without effects of categories.
    weights_ : dict of str to ndarray of shape (n_outputs,)
        Weight of each part in the mean of every output.
    left_out_rmse_ : dict of str to ndarray of shape (n_outputs,)
        Root mean squared error of left-out rows of each part and of the pool; empty without trees.
    fit_seconds_ : dict of str to float
        Seconds of each stage and part.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import PooledRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (300, 4))
    >>> y = np.where(X[:, 0] > 0.2, 3.0, 0.0) + X[:, 1] + 0.1 * rng.standard_normal(300)
    >>> model = PooledRegressor().fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    """

    model_: FittedMeanPool = field(init=False)

    posterior: ClassVar = "gaussian"  # of the kernel model

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedMeanPool}

    n_basis_functions: int = 2000
    noise: Any = "auto"
    local: Any = "auto"
    target_transform: Any = None
    max_iter: int = 1000

    def _plan(self) -> RegressionPlan:
        plan = regression_plan(self)
        self._check_trees(plan.features.kind)
        return plan

    def _learn(self, plan: RegressionPlan, given: GivenRows, progress: Progress) -> dict[str, Any]:
        given = replace(given, absent=None)  # predictions of the pool take what was filled in as known
        if given.weight is not None:  # trees count rows
            used = given.weight > 0
            weight = None if (given.weight[used] == 1).all() else given.weight[used]
            given = replace(given, x=given.x[used], y=given.y[used], weight=weight)
        (given,) = merged([given])
        choice = choose_scale(plan, given)
        plan = settled(plan, choice)  # once, for the refits too
        units, rows = fit_units(plan, given, choice=choice)
        warn_of_outliers(plan, units, rows.y)
        ((kernel, _),) = fit_together([plan], [given], progress, choices=[choice])
        self.model_ = FittedMeanPool.alone(kernel)
        self._grow(len(given.x), lambda: _mean_pool(plan, kernel, given, progress))
        return {}

    @property
    def left_out_rmse_(self) -> dict[str, FloatArray]:
        return self._of_parts(self.model_.left_out_rmse)

    def _words(self) -> list[str]:
        where = "moved to its mean" if self.model_.moves else "the kernel model's own"
        return self._words_of_pool("RMSE", self.left_out_rmse_, f"; the distribution is {where}")


def _class_pool(
    pool: FittedClassPool, left: LabelsLeftOut, rows: TrainingRows, rng: np.random.Generator, progress: Progress
) -> FittedClassPool:
    """Trees beside the kernel model, and the weights of all."""
    assert rows.weight is not None
    n_classes, index, found = len(pool.order), class_numbers(rows.y), {"kernel": left.classes()}
    folds = folds_of(index, rng)
    with progress.stage("boosted trees"):
        trees, score = boosted(rows.x, index, rows.weight, folds, rng, n_classes)
        pool, found["boosted trees"] = replace(pool, boosted=trees), log_probability_of(score)
    scored = left.scored & (folds >= 0)
    log_p, labels, mass = np.stack([own[scored] for own in found.values()]), index[scored], left.weight[scored]
    weights = pool_weights(log_p, labels, mass)
    of_labels = np.stack([*log_p, pooled_log_probability(weights, log_p)])[:, np.arange(len(labels)), labels]
    losses, sets = -(of_labels @ mass) / mass.sum(), quantiles_of(of_labels[-1], mass)
    return replace(pool, weights=weights, names=tuple(found), left_out_log_loss=losses, left_out_probability=sets)


def _mean_pool(plan: RegressionPlan, kernel: FittedRegressor, given: GivenRows, progress: Progress) -> FittedMeanPool:
    """Boosted trees, and weights of the means by rows left out of both parts."""
    x, y, rng, weight = given.x, given.y, plan.generators()[1], as_weights(given.weight, len(given.x))
    alike = np.zeros(len(x), dtype=np.intp)
    folds, thirds = folds_of(alike, rng), folds_of(alike, rng, N_REFITS)
    with progress.stage("boosted trees"):
        trees, scores = zip(*(boosted(x, own, weight, folds, rng) for own in y.T), strict=True)
    of_trees, of_kernel, refits = np.hstack(scores), np.full_like(y, np.nan), []
    with progress.stage("left out"), ignored():
        for fold in range(N_REFITS if len(x) <= MOST_REFITTED_ROWS else 1):
            out = thirds == fold
            few = replace(given, x=x[~out], y=y[~out], weight=None if given.weight is None else given.weight[~out])
            ((refitted, _),) = fit_together([plan], [few], Progress(0))
            of_kernel[out] = refitted.predict(x[out], with_std=False)[0].reshape(out.sum(), -1)
            refits.append((refitted, out))
    known = np.isfinite(of_kernel[:, 0])
    used, errors, difference = weight[known], (y - of_kernel)[known], (of_trees - of_kernel)[known]
    # ‖r_K − w (r_K − r_T)‖² is least at this w, cut to [0, 1].
    square = used @ difference**2
    share = np.clip((used @ (errors * difference)) / np.where(square > 0, square, 1.0), 0.0, 1.0)
    shifts = share * (of_trees - of_kernel)
    rmse = np.sqrt([used @ own**2 / used.sum() for own in (errors, errors - difference, errors - shifts[known])])
    pool = FittedMeanPool(kernel, trees, share, rmse)
    if kernel.units.active is not None or not share.any():
        return pool

    def gain(spread: float) -> float:
        """Nats by which left-out targets are likelier where distributions are moved and their deviations multiplied."""
        total = 0.0
        for refitted, out in refits:
            own = of_kernel[out] + (y[out] - of_kernel[out] - shifts[out]) / spread
            moved = refitted.log_density(x[out], own) - np.log(spread)
            change = np.reshape(moved - refitted.log_density(x[out], y[out]), (len(own), -1))
            total += float((weight[out] @ change).sum())
        return total

    gains = [gain(spread) for spread in SPREADS]
    if max(gains) <= 0:
        return pool
    best = SPREADS[int(np.argmax(gains))]
    return replace(pool, kernel=kernel.calibrated(best * kernel.units.calibration), moves=True)


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in np.atleast_1d(values))
