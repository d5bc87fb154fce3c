"""What classifiers do when one label is too little or too much: sets of labels, and no label at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._validation import FloatArray, as_number
from pydirect.estimators._classifier import ProbabilisticClassifier
from pydirect.persistence.fields import Arrays, Header, Writer, require_array

# Quantiles of the left-out labels' probabilities that are kept of more rows than that.
MOST_QUANTILES = 1000


class LabelSets(ProbabilisticClassifier):
    """Base of classifiers that know the probability of every training label without its own row.

    A subclass sets ``left_out_probability_`` by `_keep_left_out`, or leaves it empty.
    """

    left_out_probability_: FloatArray

    def _keep_left_out(self, log_probability: FloatArray, weight: FloatArray) -> None:
        """Keep the probabilities of left-out labels in ascending order, or quantiles of them.

        `log_probability`, `weight`, (n_samples,).
        """
        if not len(log_probability):
            self.left_out_probability_ = np.empty(0)
            return
        order = np.argsort(log_probability, kind="stable")
        sorted_probability, mass = np.exp(log_probability[order]), np.cumsum(weight[order])
        n_kept = round(min(MOST_QUANTILES, max(mass[-1], 1.0)))
        at = np.searchsorted(mass, (np.arange(n_kept) + 1) / n_kept * mass[-1] * (1 - 1e-12))
        self.left_out_probability_ = sorted_probability[np.minimum(at, len(order) - 1)]

    def predict_set(self, X: ArrayLike, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Predict sets of labels that contain the right one with a given frequency.

        A label is in the set when its predictive probability is at least that which the right labels of this share of
        the training rows have without their own row. Whatever the model, that is what conformal prediction takes for
        calibration (Sadinle, Lei & Wasserman 2019), with leaving out in place of rows held back. An uncertain row has
        several labels; the most probable one is always in the set, so that coverage is at least the accuracy. In the
        raw basis, and with a prior that is not Gaussian, left-out probabilities are those of Gaussian weights.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
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
        known = self.left_out_probability_
        if not len(known):
            raise ValueError(
                "predict_set needs labels that were left out: fit rows in memory with bound='softmax' and "
                "class_weight=None"
            )
        rank = int((1 - coverage) * (len(known) + 1))  # of the least probability that is in a set
        least = known[rank - 1] if rank else 0.0
        probability = self.predict_proba(X)
        return (probability >= least) | (np.arange(probability.shape[1]) == probability.argmax(axis=1)[:, None])

    def predict_or_reject(self, X: ArrayLike, least: float = 0.8) -> np.ma.MaskedArray[Any, Any]:
        """Predict the most probable class where it is probable enough.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
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

    def _to_fields(self, writer: Writer) -> Header:
        if len(self.left_out_probability_):
            writer.arrays["left_out_probability"] = self.left_out_probability_
        return super()._to_fields(writer)

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.left_out_probability_ = np.empty(0)
        if "left_out_probability" in arrays:
            self.left_out_probability_ = require_array(arrays["left_out_probability"], "left_out_probability", "n")
