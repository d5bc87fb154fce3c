"""Base of the classifiers: labels and class probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets

from pydirect._validation import FloatArray, as_sample_weight
from pydirect.estimators._base import LatentFunctions
from pydirect.features.repeated import distinct_rows
from pydirect.persistence.fields import Arrays, Header, Writer, classes_from_header, classes_to_header


class ProbabilisticClassifier(ClassifierMixin, LatentFunctions):
    """Base of estimators that predict class probabilities.

    A subclass provides ``_check_parameters``, ``decision_function`` and ``predict_log_proba``; its ``fit`` begins with
    `_start_fit`.
    """

    classes_: np.ndarray

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags

    def _to_fields(self, writer: Writer) -> Header:
        return {**super()._to_fields(writer), "classes": classes_to_header(self.classes_)}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.classes_ = classes_from_header(header["classes"])

    def _rows_that_count(
        self, x: FloatArray, y: np.ndarray, weight: FloatArray
    ) -> tuple[FloatArray, np.ndarray, FloatArray]:
        """Return the rows that the fit sees, and their weights; here all classes count the same."""
        return x, y, weight

    def _start_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Validate the data and discard the earlier fit; return rows of positive weight, class indices and weights."""
        x, given_y = self._validated(X, y)
        _check_labels(given_y)
        given = as_sample_weight(sample_weight, len(x))
        self._check_parameters()
        self._forget()
        weight = np.ones(len(x)) if given is None else given
        used = weight > 0
        x = self._fit_columns(x, _indicators(given_y, weight), weight)
        x, used_y, weight = self._rows_that_count(np.ascontiguousarray(x[used]), given_y[used], weight[used])
        self.classes_, index = np.unique(used_y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least two classes, got one class, {self.classes_.tolist()[0]!r}")
        # In small tables repeated rows are merged, so that a weight of two is the same as a row given twice.
        x, merged, weight = distinct_rows(x, index[:, None].astype(np.float64), weight)
        return x, merged[:, 0], weight

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable class, (n_rows,).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows,)
            Labels.
        """
        decision = self.decision_function(X)
        return self.classes_[(decision > 0).astype(np.intp) if decision.ndim == 1 else decision.argmax(axis=1)]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict class probabilities, averaged over the posterior, (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities.
        """
        return np.exp(self.predict_log_proba(X))


def _indicators(y: np.ndarray, weight: FloatArray) -> FloatArray:
    """Return the standardised indicator of each class, (n_rows, n_classes); zero where all rows are of one class."""
    classes, index = np.unique(y, return_inverse=True)
    member = (index[:, None] == np.arange(len(classes))).astype(np.float64)
    mean = (weight @ member) / max(weight.sum(), np.finfo(float).tiny)
    variance = mean * (1 - mean)
    return (member - mean) / np.sqrt(np.where(variance > 0, variance, 1.0))


def _check_labels(y: np.ndarray) -> None:
    try:
        check_classification_targets(y)
    except TypeError:  # the labels could not be sorted
        found = sorted({type(label).__name__ for label in y.tolist()})
        raise TypeError(f"y must hold labels that can be ordered, of one type, got {' and '.join(found)}") from None
