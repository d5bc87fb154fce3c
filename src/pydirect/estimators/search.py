"""Cross-validated hyperparameter search on sums over rows: one pass over the data per feature map."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from pydirect._documentation import takes_rows
from pydirect._threads import resolve_n_threads, threads
from pydirect._validation import FloatArray, as_choice, as_flag, as_instance, as_sample_weight, shown
from pydirect._warnings import warn
from pydirect.estimators.choices import require_formula
from pydirect.estimators.direct_classifier import DirectClassifier
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.fit_many import CLASSIFIERS, feature_key
from pydirect.estimators.pooled import PooledClassifier
from pydirect.estimators.regression import given_sums, infer, with_choice
from pydirect.estimators.target_transform import ScaleChoice
from pydirect.features.rows import TrainingRows
from pydirect.fitted.regression import FittedRegressor, left_out
from pydirect.metrics import nlpd_scorer
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import Standardised
from pydirect.statistics.running import RunningStatistics
from pydirect.tables.columns import with_names
from pydirect.tables.table import Table

# Sums over the rows of a training set, the same with standardised targets, and what their scale was chosen by.
Trained = tuple[RunningStatistics, Standardised, ScaleChoice | None]


def _refits(search: DirectSearchCV) -> bool:
    if not search.refit:
        raise AttributeError("predictions need a refitted model: set refit=True")
    return True


@dataclass(eq=False, repr=False)
class DirectSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Cross-validated grid search over parameters of `DirectRegressor`, on sums over rows, or of classifiers.

    Like `sklearn.model_selection.GridSearchCV`, but without repeated passes over the data: the sums of every fold are
    computed once per distinct feature map, those of each training set are merged from the other folds, and candidates
    that differ only in other parameters (noise, levels, prior, …) share both, together with the factorisation of ΦᵀΦ.
    Held-out errors follow from the sums of the fold as well, ``Σ(y − φᵀs)² = yᵀy − 2cᵀs + sᵀAs``.

    Targets are standardised with each training set. The feature map (scaling of the inputs, landmarks, the kernel's
    hyperparameters) is fitted to all rows, including those held out. Scores equal GridSearchCV's, to rounding, if
    the features do not depend on the rows (``"precomputed"``, or a transformer that learns nothing). Otherwise they are
    close: slightly optimistic if a kernel is learned from few rows, and higher or lower if random features are few, as
    all folds share one draw.

    With ``cv="loo"`` every row is held out alone, and nothing is fitted twice: all candidates of one feature map are
    fitted once, to the sums of all rows, and their predictions of each row without itself follow in one more pass.
    Repeated rows are held out together. As the features, and besides them the targets' scale, the noise variance and
    the prior scale, keep the row, this compares candidates of one feature map; it needs the rows, which scikit-learn's
    GridSearchCV gives to no scorer.

    As candidates see sums, their noise has one variance, with ``noise="auto"`` too, and there is no local process;
    ``best_estimator_`` is such a model. What needs rows is refused. ``target_transform="auto"`` chooses a scale by all
    rows for all candidates of one feature map, unless squared errors score ``cv="loo"``.

    Candidates of `DirectClassifier` and `PooledClassifier` are fitted to the rows of each training set, by `fit_many`:
    those whose kernels are searched alike share this search, and scores equal GridSearchCV's. ``cv="loo"`` takes the
    labels that every fit to all rows leaves out, ``left_out_probability_``, so that no candidate is fitted twice.

    GridSearchCV's ``n_jobs``, ``return_train_score``, multiple scorers and ``refit`` by a function are not supported;
    a candidate that fails ends the search, as with ``error_score="raise"`` there.

    Parameters
    ----------
    estimator : DirectRegressor, DirectClassifier or PooledClassifier
        Model whose parameters are searched; it is cloned.
    param_grid : dict of str to sequence, or a list of such dicts
        Values of every parameter to try.
    scoring : str or callable, optional
        ``"r2"`` (the default), ``"neg_mean_squared_error"`` and ``"neg_root_mean_squared_error"`` come from sums unless
        targets are transformed; any other scorer of scikit-learn, which may use predictive deviations, is called with
        each candidate and the held-out rows, as arrays. With ``cv="loo"`` one of these three or, the default and the
        only one of transformed targets, `pydirect.metrics.nlpd_scorer`: the mean log density. Of classifiers
        ``"neg_log_loss"`` by default, and with ``cv="loo"`` alone.
    cv : int, "loo", splitter or iterable of (train, test), default=5
        Splits that hold out every row at most once and train on all other rows; ``"loo"``: exact leave-one-out.
    refit : bool, default=True
        Whether to fit the best candidate to all rows, from their sums.

    Attributes
    ----------
    cv_results_ : dict
        As in scikit-learn's GridSearchCV; fit times are of inference alone.
    best_params_ : dict
        Parameters of the best candidate.
    best_score_ : float
        Its mean score.
    best_index_ : int
        Its place in ``cv_results_``.
    best_estimator_ : estimator
        When `refit`: the best candidate, fitted to all rows.
    scorer_ : callable
        What `score` uses.
    n_splits_ : int
        Number of folds.
    refit_time_ : float
        When `refit`: seconds of that fit.
    multimetric_ : bool
        False.
    n_features_in_ : int
        Number of columns of X.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from pydirect import DirectRegressor, DirectSearchCV, Polynomial
    >>> X, y = load_diabetes(return_X_y=True)
    >>> grid = {"noise": [2500.0, 4e4], "features__degree": [1, 2]}
    >>> search = DirectSearchCV(DirectRegressor(Polynomial()), grid)
    >>> search.fit(X, y).best_params_["noise"]
    2500.0
    """

    estimator: DirectRegressor | DirectClassifier | PooledClassifier
    param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]
    scoring: Any = None
    cv: Any = 5
    refit: bool = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.target_tags.multi_output = own.target_tags.multi_output and own.estimator_type == "regressor"
        for name in ("estimator_type", "input_tags", "classifier_tags", "regressor_tags"):
            setattr(tags, name, getattr(own, name))
        return tags

    @takes_rows
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Score every candidate and fit the best one to all rows.

        Parameters
        ----------
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts, in fits and, unless the scorer does not accept weights, in scores.
        groups : array_like of shape (n_samples,), optional
            For splitters such as GroupKFold.

        Returns
        -------
        Self
            The fitted search.

        Raises
        ------
        ValueError, TypeError
            If the data, a candidate or the splits are not as described.
        """
        as_instance(self.estimator, "estimator", DirectRegressor, *CLASSIFIERS)
        as_flag(self.refit, "refit")
        checked, self._of_labels = clone(self.estimator), isinstance(self.estimator, CLASSIFIERS)
        checks = {} if self._of_labels else {"multi_output": True, "y_numeric": True}
        x, given = checked._validated(X, y, **checks)
        self.n_features_in_, names = checked.n_features_in_, getattr(checked, "feature_names_in_", None)
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_, x = names, with_names(checked, x)  # which knows the names
        targets = given if self._of_labels else np.asarray(given, dtype=np.float64)
        weight = as_sample_weight(sample_weight, len(x))
        leaving_one_out = isinstance(self.cv, str) and as_choice(self.cv, "cv", ("loo",)) == "loo"
        scoring = self._scoring(leaving_one_out)
        of_sums = scoring in SCORES_OF_SUMS and not self._of_labels
        # Raises before the fits, not after them.
        self.scorer_, self.multimetric_ = check_scoring(self.estimator, scoring), False
        candidates = list(ParameterGrid(self.param_grid))
        if not candidates:
            raise ValueError("param_grid must have at least one candidate, got none")
        models = [clone(self.estimator).set_params(**candidate) for candidate in candidates]
        same_features: dict[Hashable, list[int]] = {}
        for k, model in enumerate(models):
            plan: Any = model._plan() if self._of_labels else model._sums_plan()
            if leaving_one_out and not self._of_labels:
                require_formula(plan, "cv must not be 'loo'")
                if of_sums and plan.transform not in (None, "auto"):
                    expected = "pydirect.metrics.nlpd_scorer with cv='loo' and a target_transform"
                    raise ValueError(f"scoring must be {expected}, got {scoring!r}")
            same_features.setdefault("" if self._of_labels else feature_key(model), []).append(k)
        folds = [] if leaving_one_out else self._folds(x, targets, weight, groups)
        self.n_splits_ = max(len(folds), 1)
        scores, fit_seconds, score_seconds = np.empty((3, len(models), self.n_splits_))
        data_of: dict[int, Any] = {}  # by candidate
        for name in ("best_estimator_", "refit_time_"):
            self.__dict__.pop(name, None)
        with threads(self.estimator.n_threads):
            for members in same_features.values():
                data: Any = _FoldedLabels(X if isinstance(x, Table) else x, targets, weight, folds)
                if not self._of_labels:
                    data = _FoldedData(models[members[0]], x, targets, weight, folds, X, bool(folds) or not of_sums)
                data_of |= dict.fromkeys(members, data)
                for f, trained in enumerate(data.training()):
                    fits = data.fitted([models[k] for k in members], trained)
                    begin = time.perf_counter()
                    scores[members, f] = self._scores(data, f, fits, trained, scoring)
                    score_seconds[members, f] = (time.perf_counter() - begin) / len(fits)
                    fit_seconds[members, f] = [sum(fitted.fit_seconds_.values()) for fitted in fits]
            self._set_search_results(candidates, scores, fit_seconds, score_seconds)
            if self.refit:
                begin = time.perf_counter()
                best = data_of[self.best_index_]
                (self.best_estimator_,) = best.fitted([models[self.best_index_]], best.total())
                self.refit_time_ = time.perf_counter() - begin
        return self

    def _folds(
        self, x: FloatArray | Table, y: np.ndarray, weight: FloatArray | None, groups: ArrayLike | None
    ) -> list[np.ndarray]:
        """Return the held-out rows of every split."""
        folds: list[np.ndarray] = []
        for split in check_cv(self.cv, y, classifier=self._of_labels).split(np.empty((len(x), 0)), y, groups):
            train, test = (np.arange(len(x))[rows] for rows in split)  # which may be masks
            if not np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(x))):
                raise ValueError("cv must train on all rows that it does not hold out, each once")
            for name, rows in (("train on", train), ("hold out", test)):
                if not len(rows) or (weight is not None and not weight[rows].any()):
                    raise ValueError(f"cv must {name} rows of positive weight, split {len(folds)} has none")
            folds.append(np.sort(test))
        if not folds:
            raise ValueError("cv must have at least one split, got none")
        held = np.concatenate(folds)
        if len(np.unique(held)) != len(held):
            raise ValueError("cv must hold out every row at most once")
        return folds

    def _scoring(self, leaving_one_out: bool) -> Any:
        """Return the scorer, or its name, or raise."""
        if self.scoring is None:
            return "neg_log_loss" if self._of_labels else nlpd_scorer if leaving_one_out else "r2"
        if not isinstance(self.scoring, str) and not callable(self.scoring):
            raise TypeError(f"scoring must be the name of one scorer or a callable, got {type(self.scoring).__name__}")
        if leaving_one_out and self._of_labels:
            return as_choice(self.scoring, "scoring", ("neg_log_loss",))
        if leaving_one_out and self.scoring is not nlpd_scorer and self.scoring not in SCORES_OF_SUMS:
            names = ", ".join(map(repr, SCORES_OF_SUMS))
            raise ValueError(f"scoring must be {names} or nlpd_scorer with cv='loo', got {shown(self.scoring)}")
        return self.scoring

    def _scores(self, data: Any, fold: int, fits: Sequence[DirectRegressor], trained: Any, scoring: Any) -> list[float]:
        """Score models by the rows of a fold, or by rows that are left out one at a time."""
        if not data.folds:
            return list(data.scores_left_out(fits, trained, scoring))
        rows, transform = data.folds[fold], None if self._of_labels else data.model.features_.target_transform
        if scoring in SCORES_OF_SUMS and not self._of_labels and (transform is None or transform.is_identity):
            sums, shared = data.sums[fold], trained[1]
            held = sums.gaussian(shared.location, shared.scale)
            return [score_of_errors(squared_error(held, own.model_), sums, len(rows), scoring) for own in fits]
        given, weight = _safe_indexing(data.given, rows), None if data.weight is None else data.weight[rows]
        return [self._by_scorer(fitted, given, data.y[rows], weight) for fitted in fits]

    def _by_scorer(self, model: DirectRegressor, X: ArrayLike, y: ArrayLike, weight: ArrayLike | None) -> float:
        """Score a fitted model, with weights if the scorer accepts them."""
        weights = {} if weight is None or not _takes_weights(self.scorer_) else {"sample_weight": weight}
        score = self.scorer_(model, X, y, **weights)
        if np.ndim(score) or not isinstance(np.asarray(score).item(), numbers.Real):
            raise TypeError(f"scoring must return one number, got {type(score).__name__}")
        return float(score)

    def _set_search_results(
        self, candidates: list[dict[str, Any]], scores: FloatArray, fit_seconds: FloatArray, score_seconds: FloatArray
    ) -> None:
        mean = scores.mean(axis=1)
        if not np.isfinite(mean).all():
            warn(f"One or more of the test scores are non-finite: {mean}", UserWarning)
        results: dict[str, Any] = {}
        for name, seconds in (("fit", fit_seconds), ("score", score_seconds)):
            results |= {f"mean_{name}_time": seconds.mean(axis=1), f"std_{name}_time": seconds.std(axis=1)}
        for name in sorted({name for candidate in candidates for name in candidate}):
            given = {k: candidate[name] for k, candidate in enumerate(candidates) if name in candidate}
            are_numbers = all(isinstance(value, numbers.Real) for value in given.values())
            dtype = np.array([*given.values()]).dtype if are_numbers else object
            results[f"param_{name}"] = np.ma.MaskedArray(np.empty(len(candidates), dtype=dtype), mask=True)
            for k, value in given.items():
                results[f"param_{name}"][k] = value
        results["params"] = candidates
        results |= {f"split{f}_test_score": scores[:, f] for f in range(scores.shape[1])}
        results |= {"mean_test_score": mean, "std_test_score": scores.std(axis=1)}
        results["rank_test_score"] = rankdata(-np.nan_to_num(mean, nan=-np.inf), method="min").astype(np.int32)
        self.cv_results_ = results
        self.best_index_ = int(results["rank_test_score"].argmin())
        self.best_score_, self.best_params_ = float(mean[self.best_index_]), candidates[self.best_index_]

    @available_if(_refits)  # type: ignore[untyped-decorator]
    @takes_rows
    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Predict with the best estimator; see its own ``predict``.

        Parameters
        ----------
        return_std : bool, default=False
            Whether a regressor returns standard deviations as well.

        Returns
        -------
        ndarray, or tuple of ndarray
            Means or labels, and standard deviations on request.
        """
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X, **({"return_std": True} if return_std else {}))

    @available_if(lambda self: _refits(self) and isinstance(self.estimator, CLASSIFIERS))  # type: ignore[untyped-decorator]
    @takes_rows
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict class probabilities with the best estimator.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities.
        """
        check_is_fitted(self, "best_estimator_")
        return np.asarray(self.best_estimator_.predict_proba(X))

    @property
    def classes_(self) -> np.ndarray:
        return np.asarray(self.best_estimator_.classes_)

    @available_if(_refits)  # type: ignore[untyped-decorator]
    @takes_rows
    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Score the best estimator by `scoring`.

        Parameters
        ----------
        sample_weight : array_like of shape (n_rows,), optional
            Ignored if the scorer does not accept weights.

        Returns
        -------
        float
            Greater is better.
        """
        check_is_fitted(self, "best_estimator_")
        return self._by_scorer(self.best_estimator_, X, y, sample_weight)


class _FoldedLabels:
    """Rows in folds, with labels; candidates with the same rows for the kernel share the search for it."""

    def __init__(self, given: Any, y: np.ndarray, weight: FloatArray | None, folds: list[np.ndarray]) -> None:
        self.given, self.y, self.weight, self.folds = given, y, weight, folds
        self.known: dict[str, Any] = {}

    def total(self) -> np.ndarray:
        """Return all rows."""
        return np.arange(len(self.y))

    def training(self) -> list[np.ndarray]:
        """Return the rows outside each fold; all rows if there are no folds."""
        return [np.setdiff1d(self.total(), rows) for rows in self.folds or [np.empty(0)]]

    def fitted(self, models: Sequence[Any], rows: np.ndarray) -> list[Any]:
        """Fit models to some of the rows."""
        x, weight = _safe_indexing(self.given, rows), None if self.weight is None else self.weight[rows]
        return [clone(own)._fit(x, self.y[rows], weight, known=self.known) for own in models]

    def scores_left_out(self, fits: Sequence[Any], rows: np.ndarray, scoring: Any) -> list[float]:
        """Mean log probability of labels that were left out of fits to all rows."""
        left = [own.left_out_probability_ for own in fits]
        if not all(map(len, left)):
            raise ValueError("cv must not be 'loo' for candidates with a class_weight or a published bound")
        return [float(np.log(np.maximum(own, np.finfo(float).tiny)).mean()) for own in left]


class _FoldedData:
    """Rows in folds and their sums for one feature map; ``given`` are rows of X before they are encoded."""

    def __init__(
        self,
        model: DirectRegressor,
        x: FloatArray | Table,
        y: FloatArray,
        weight: FloatArray | None,
        folds: list[np.ndarray],
        given: Any,
        chooses_scale: bool,
    ) -> None:
        self.y, self.weight, self.folds, self.given = y, weight, folds, given if isinstance(x, Table) else x
        self.model = clone(model)
        self.choice = self.model._fit_features(x, y, weight, all_rows=chooses_scale)
        self.x = self.model.columns_.encode(x)
        self.sums = [self._sums(rows) for rows in folds]
        self.rest = self._sums(self._others(np.concatenate([np.empty(0, dtype=np.intp), *folds])))

    def _others(self, rows: np.ndarray) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self.x)), rows)

    def _rows(self, rows: Any) -> TrainingRows:
        """Return rows with two-dimensional targets, in their units."""
        weight = None if self.weight is None else self.weight[rows]
        return TrainingRows(self.x[rows], self.y.reshape(len(self.x), -1)[rows], weight)

    def _sums(self, rows: np.ndarray) -> RunningStatistics:
        own = self._rows(rows)
        statistics = self.model.new_statistics(own.y.shape[1])
        return statistics.update(own.x, own.y, own.weight, n_threads=resolve_n_threads()) if len(rows) else statistics

    def total(self) -> Trained:
        """Return sums over all rows."""
        return self._trained(_merged(self.rest, self.sums), slice(None))

    def training(self) -> Iterator[Trained]:
        """Yield, for each fold, sums over all rows outside it; over all rows if there are no folds."""
        for rows, statistics in zip(self.folds or [np.empty(0)], _without_each(self.rest, self.sums), strict=True):
            yield self._trained(statistics, self._others(rows))

    def _trained(self, statistics: RunningStatistics, rows: Any) -> Trained:
        return statistics, Standardised.of(statistics, self._rows(rows).counts.repetitions), self.choice

    def fitted(self, models: Sequence[DirectRegressor], trained: Trained) -> list[DirectRegressor]:
        """Fit models of one feature map to the same sums."""
        found, (statistics, shared, choice) = [], trained
        for model in models:
            plan, begin = model._sums_plan(), time.perf_counter()
            units, sums = given_sums(plan, self.model.features_, statistics, shared, self.model._one_dimensional)
            fitted = infer(plan, with_choice(units, choice), sums, plan.generators()[1])
            found.append(clone(model)._adopt(self.model, fitted, {"inference": time.perf_counter() - begin}))
            found[-1].statistics_ = statistics
            found[-1]._warn_if_unfinished()
        return found

    def scores_left_out(self, fits: Sequence[DirectRegressor], trained: Trained, scoring: Any) -> list[float]:
        """Score models of sums over all rows by rows that are left out one at a time."""
        (total, shared, _), given = trained, self._rows(slice(None))
        transform = self.model.features_.target_transform
        z = ((given.y if transform is None else transform.forward(given.y)) - shared.location) / shared.scale
        rows = replace(given, y=np.where(shared.gaussian.yty == 0, 0.0, z))
        models, scores = [fitted.model_ for fitted in fits], []
        for model, left in zip(models, left_out(models, rows, shared.rotated), strict=True):
            if scoring in SCORES_OF_SUMS:
                squares = np.square(shared.scale * left.found.residuals[left.where])
                error = squares.sum(axis=0) if rows.weight is None else rows.weight @ squares
                scores.append(score_of_errors(error, total, len(rows.x), scoring))
            else:
                density = left.log_density(rows.y[left.first]) - np.log(shared.scale)
                units = (model.units.density_units / model.n_samples).mean()
                scores.append(float(np.average(density.mean(axis=1)[left.where], weights=rows.weight) + units))
        return scores


def _merged(first: RunningStatistics, parts: Sequence[RunningStatistics]) -> RunningStatistics:
    merged = first.copy()
    for part in parts:
        merged.merge(part, n_threads=resolve_n_threads())
    return merged


def _without_each(others: RunningStatistics, folds: list[RunningStatistics]) -> Iterator[RunningStatistics]:
    """Yield, for each fold, the sums of all other folds, merged by halves.

    Subtracting a fold's sums from the total would lose digits if the fold has an outlying row.
    """
    if len(folds) <= 1:
        yield others
        return
    middle = len(folds) // 2
    yield from _without_each(_merged(others, folds[middle:]), folds[:middle])
    yield from _without_each(_merged(others, folds[:middle]), folds[middle:])


def _takes_weights(scorer: Callable[..., Any]) -> bool:
    return "sample_weight" in signature(getattr(scorer, "_score_func", scorer)).parameters


# Scores that are computed from sums over the held-out rows.
SCORES_OF_SUMS = ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error")


def squared_error(held: GaussianStatistics, model: FittedRegressor) -> FloatArray:
    """``Σ(y − φᵀs)²`` in the targets' units, from sums over rows standardised like the model's; (n_outputs,)."""
    errors = [held.target(k).squared_error(mean) for k, mean in enumerate(model.latent.coefficients.T)]
    error = np.array(errors) * model.units.scale**2
    rounding = 10 * np.finfo(float).eps * np.abs(model.units.location)
    return np.where(error > held.n_samples * rounding**2, error, 0.0)


def score_of_errors(error: FloatArray, held: RunningStatistics, n_rows: int, scoring: str) -> float:
    """Return a score of `SCORES_OF_SUMS` from squared errors in the targets' units, (n_outputs,).

    R² is averaged over outputs, as in scikit-learn: for a constant target 1 if there is no error, else 0.
    """
    if scoring != "r2":
        mean = error / held.n_samples
        return -float(np.mean(np.sqrt(mean) if "root" in scoring else mean))
    if n_rows < 2:
        warn("R^2 score is not well-defined with less than two samples.", UndefinedMetricWarning)
        return float("nan")
    constant = held.target_location_scale()[1] == 0
    ratio = error / np.where(constant, 1.0, held.y_scatter)
    return float(np.mean(1 - np.where(constant, error > 0, ratio)))
