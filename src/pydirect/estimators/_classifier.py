"""`Classifier`: what classifiers share; labels at the door, and methods that follow from log probabilities."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pydirect._documentation import takes_rows
from pydirect._validation import FloatArray, RandomState, as_count, as_generator, as_number, as_weights, column_names
from pydirect.estimators._estimator import Estimator, of_model
from pydirect.estimators.choices import Gaussian, RegressionPlan, check_common, feature_plan
from pydirect.fitted.predictor import Units
from pydirect.tables.columns import with_names
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table


@dataclass(eq=False, repr=False)
class OfLabels(Estimator):
    """What models of classes, counts and other targets of latent functions share: basis functions, without units."""

    features: Any = "auto"
    n_basis_functions: int = 1000

    def _plan(self: Any) -> Any:
        features, _ = feature_plan(self, Gaussian(), rank_inputs=None)
        check_common(self)
        most = as_count(self.max_iter, "max_iter")
        return RegressionPlan(features.growing(), Gaussian(), max_iter=most, random_state=self.random_state)

    features_, search_ = of_model("basis"), of_model("basis.search")
    intercept_ = of_model("intercept")


_Method = TypeVar("_Method", bound=Callable[..., Any])


def each_output(method: _Method) -> _Method:
    """Let a method answer for several columns of labels by a list of its answers for each."""

    @wraps(method)
    def answer(self: Any, *given: Any, **options: Any) -> Any:
        found = [method(own, *given, **options) for own in ([self] if has_one_output(self) else self._outputs)]
        return found[0] if has_one_output(self) else found

    return cast(_Method, answer)


@dataclass(frozen=True)
class GivenLabels:
    """Rows of a table, encoded as x (n_rows, n_encoded), and one column of labels, as they were given."""

    table: Table
    x: FloatArray
    y: NDArray[Any]
    weight: FloatArray
    columns: ColumnEncoding
    with_effects: bool = False  # whether effects of categories may be learned


def has_one_output(model: Classifier) -> bool:
    """Whether a model is of one column of labels, or not fitted."""
    return not isinstance(getattr(model, "model_", None), tuple)


class Classifier(ClassifierMixin, Estimator):
    """A classifier whose `predict_log_proba` says the rest.

    A subclass's ``_learn(plan, given, progress)`` fits ``model_``, and perhaps other ``columns_``, to `GivenLabels`; it
    returns how `_warn_if_unfinished` describes the effort. Of several columns ``model_`` is a tuple of their models.
    """

    _takes_several: ClassVar[bool] = False  # columns of labels

    @property
    def _outputs(self) -> list[Self]:
        """A classifier for each column of labels, which share this one's columns of X."""
        check_is_fitted(self)
        found = [copy.copy(self) for _ in self._models]
        for own, model in zip(found, self._models, strict=True):
            own.model_ = model
        return found

    @property
    def classes_(self) -> Any:
        found = [own.classes for own in self._models]
        return found if isinstance(self.model_, tuple) else found[0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        tags.classifier_tags.multi_label = tags.target_tags.multi_output = self._takes_several
        return tags

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Table, list[NDArray[Any]], FloatArray]:
        """Validate rows of a new fit: a table, each column of labels, and weights."""
        x, given = self._validated(X, y, multi_output=self._takes_several)
        if given.ndim == 2 and given.shape[1] == 1:
            given = column_or_1d(given, warn=True)
        columns = [given] if given.ndim == 1 else label_columns(y, given)
        for labels in columns:
            check_labels(labels)
        return with_names(self, x), columns, as_weights(sample_weight, len(x))

    def _encoded(self, X: Any, y: Any, sample_weight: Any) -> list[GivenLabels]:
        """Learn the columns of a new fit; return the rows that count, encoded, for each column of their labels."""
        table, given, weight = self._read(X, y, sample_weight)
        z = np.hstack([indicators(labels, weight) for labels in given])
        self.columns_, used = self._fitted_columns(table, z, weight), weight > 0
        x, table = np.ascontiguousarray(self.columns_.encode(table)[used]), table.rows(used)
        effects = len(given) == 1 and self._takes_tables() and self._column_options().effects
        return [GivenLabels(table, x, labels[used], weight[used], self.columns_, effects) for labels in given]

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            May hold text and gaps: see `pydirect.Columns`.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
            Labels: strings, numbers or booleans. Each of several columns has a model of its own, in ``estimators_``, of
            rows that are encoded once; predictions have a column for each, probabilities are a list.
        sample_weight : array_like of shape (n_samples,), optional
            Number of times that each row counts; rows of weight zero count as absent.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described, or there is only one class.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        CoarseLevelsWarning
            If the levels of a sequential posterior are too coarse for what the data say.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, **shared: Any) -> Self:
        """Fit by a plan that shares some of its parts with others."""
        with self._whole() as progress:
            plan, models = replace(self._plan(), **shared), []
            for own in self._encoded(X, y, sample_weight):
                effort = self._learn(plan, own, progress)
                models.append(self.model_)
            self.model_ = tuple(models) if len(models) > 1 else models[0]
            self.fit_seconds_ = progress.seconds
            self._warn_if_unfinished(**effort)
        return self

    # --- prediction

    @takes_rows
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class, (n_rows,).

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Labels.
        """
        if not has_one_output(self):
            found = [own.predict(X) for own in self._outputs]
            return np.stack(found, axis=1, dtype=object if len({own.dtype.kind for own in found}) > 1 else None)
        decision = self.decision_function(X)
        return self.classes_[(decision > 0).astype(np.intp) if decision.ndim == 1 else decision.argmax(axis=1)]

    @available_if(has_one_output)  # type: ignore[untyped-decorator]
    @takes_rows
    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return log odds of the second class, or log probabilities of several.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
            Larger for likelier classes.
        """
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    @takes_rows
    @each_output
    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Predict log-probabilities of the classes, which are finite even if the probabilities underflow.

        Probabilities are averages over the draws of a sequential posterior, and else expectations over Gaussian z.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            In nats.
        """
        found: FloatArray = self._asked("log_proba", X)
        return found

    @takes_rows
    @each_output
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict class probabilities, averaged over the posterior, (n_rows, n_classes).

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities.
        """
        return np.exp(self.predict_log_proba(X))

    @takes_rows
    @each_output
    def predict_or_reject(self, X: ArrayLike, least: float = 0.8) -> np.ma.MaskedArray[Any, Any]:
        """Predict the most probable class where it is probable enough.

        Parameters
        ----------
        least : float in [0, 1], default=0.8
            Predictive probability below which there is no prediction.

        Returns
        -------
        numpy.ma.MaskedArray of shape (n_rows,)
            Masked where no class is probable enough.
        """
        least = as_number(least, "least", at_least=0.0, at_most=1.0)
        probability = self.predict_proba(X)
        return np.ma.masked_array(self.classes_[probability.argmax(axis=1)], probability.max(axis=1) < least)


@takes_rows
@each_output
def predict_logit(
    self: Classifier, X: ArrayLike, return_std: bool = False
) -> FloatArray | tuple[FloatArray, FloatArray]:
    """Predict the logit z: its posterior mean and, on request, its standard deviation.

    Both are exact but for a sequential posterior, whose draws have them. The standard deviation is epistemic
    uncertainty; the aleatoric variance of a label at a known z is σ(z)σ(−z).

    Parameters
    ----------
    return_std : bool, default=False
        Whether to return standard deviations as well.

    Returns
    -------
    mean : ndarray of shape (n_rows,) or (n_rows, n_classes)
        Posterior mean of the logit of the second class, or of each class, of networks minus their mean.
    std : ndarray of the same shape
        Posterior standard deviation of the same.
    """
    mean, std = self._asked("logit", X, return_std)
    return mean if std is None else (mean, std)


@takes_rows
@each_output
def sample_proba(self: Classifier, X: ArrayLike, n_samples: int = 1, random_state: RandomState = 0) -> FloatArray:
    """Draw weights from the posterior and return the probabilities that each draw gives.

    Raises ValueError when a sequential posterior has stored fewer draws.

    Parameters
    ----------
    n_samples : int, default=1
        Number of draws.
    random_state : Generator, int or None, default=0
        Source of the random numbers, or its seed.

    Returns
    -------
    ndarray of shape (n_rows, n_classes, n_samples)
        Probabilities.
    """
    found: FloatArray = self._asked("sample_proba", X, as_count(n_samples, "n_samples"), as_generator(random_state))
    return found


@takes_rows
@each_output
def predict_set(self: Classifier, X: ArrayLike, coverage: float = 0.9) -> NDArray[np.bool_]:
    """Predict sets of labels that contain the right one with a given frequency.

    A label is in the set when its predictive probability is at least that which the right labels of this share of
    the training rows have without their own row. Whatever the model, that is what conformal prediction takes for
    calibration (Sadinle, Lei & Wasserman 2019), with leaving out in place of rows held back. An uncertain row has
    several labels; the most probable one is always in the set, so that coverage is at least the accuracy. With
    discrete weights, and with a prior that is not Gaussian, left-out probabilities are those of Gaussian weights.

    Parameters
    ----------
    coverage : float in (0, 1), default=0.9
        Over rows that are drawn like those of the fit, classes together.

    Returns
    -------
    ndarray of bool of shape (n_rows, n_classes)
        Columns in the order of ``classes_``.

    Raises
    ------
    ValueError
        If labels were not left out: of fits to streams, with a `class_weight`, and of the published bounds.
    """
    check_is_fitted(self)
    coverage = as_number(coverage, "coverage", above=0.0, below=1.0)
    known = self.model_.left_out_probability
    if not len(known):
        raise ValueError("predict_set needs rows in memory, bound='softmax' and class_weight=None in fit")
    rank = int((1 - coverage) * (len(known) + 1))  # of the least probability that is in a set
    least = known[rank - 1] if rank else 0.0
    probability = self.predict_proba(X)
    return (probability >= least) | (np.arange(probability.shape[1]) == probability.argmax(axis=1)[:, None])


def indicators(y: NDArray[Any], weight: FloatArray) -> FloatArray:
    """Standardised indicators of the classes, (n_rows, n_classes)."""
    classes, index = np.unique(y, return_inverse=True)
    member = (index[:, None] == np.arange(len(classes))).astype(np.float64)
    return Units.fit(member, weight, False)[1]


def require_classes(classes: NDArray[Any]) -> None:
    """Raise unless there are two classes or more."""
    if len(classes) < 2:
        found = f"one class, {classes.tolist()[0]!r}" if len(classes) else "none"
        raise ValueError(f"y must have at least two classes, got {found}")


def label_columns(y: Any, given: NDArray[Any]) -> list[NDArray[Any]]:
    """Return columns of validated labels, (n_rows, n_columns), each of its own type where y is of several."""
    if names := column_names(y):
        return [column_or_1d(y[name]) for name in names]
    kept = given.dtype != object
    return [own if kept or any(isinstance(v, str) for v in own) else np.array(own.tolist()) for own in given.T]


def check_labels(y: NDArray[Any]) -> None:
    """Raise unless y holds labels."""
    try:
        check_classification_targets(y)
    except TypeError:  # the labels could not be sorted
        found = sorted({type(label).__name__ for label in y.tolist()})
        raise TypeError(f"y must hold labels that can be ordered, of one type, got {' and '.join(found)}") from None
