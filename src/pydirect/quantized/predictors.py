"""Quantised regressors and classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logsumexp

from pydirect._validation import FloatArray, as_number
from pydirect.predictive import PredictiveDistribution
from pydirect.quantized.model import QuantizedModel


@dataclass(frozen=True)
class QuantizedRegressor(QuantizedModel):
    """A regressor's posterior samples as packed integers; see `quantize`."""

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        return_std : bool
            Also return the standard deviation, noise included: that of the samples' functions, divided by their number.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        std : ndarray of the same shape
        """
        if return_std:
            mean, std = self._moments(X)
            return self._shape(mean), self._shape(std)
        return self._shape(self._mean(X))

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals of the Gaussian with the predicted mean and standard deviation.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        level : float in (0, 1)

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        lower, upper = self._interval(X, as_number(level, "level", above=0.0, below=1.0))
        return self._shape(lower), self._shape(upper)

    def predict_quantiles_of_functions(self, X: ArrayLike, p: float) -> FloatArray:
        """Quantile of the samples' functions, noise left out, by interpolation between them.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        p : float in [0, 1]

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        as_number(p, "p", at_least=0.0, at_most=1.0)
        if self.arithmetic == "integer":
            program = self.program
            return self._shape(
                program.offset + program.scale * program.n_samples * program.quantiles(self.totals(X), p)
            )
        return self._shape(np.quantile(self.functions(X), p, axis=2))

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution | list[PredictiveDistribution]:
        """Predictive distribution of the target: a Gaussian of the noise about every sample's function."""
        if self.arithmetic == "integer":
            functions, missing = self.functions(X), np.zeros((1, self.n_outputs))
        else:
            middle, parts, missing = self._float_functions(self._rows(X))
            functions = middle[:, :, None] + parts
        mean = functions.mean(axis=2, keepdims=True)
        functions = mean + self.calibration * (functions - mean)
        noise = self.calibration**2 * np.broadcast_to(self.noise + missing, functions.shape[:2])
        uniform = np.full(self.n_samples, 1 / self.n_samples)
        out = [PredictiveDistribution(uniform, functions[:, k], noise[:, k, None]) for k in range(self.n_outputs)]
        return out[0] if self.one_dimensional else out


@dataclass(frozen=True)
class QuantizedClassifier(QuantizedModel):
    """A classifier's posterior samples as packed integers; see `quantize`.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
    """

    classes: NDArray[Any] = None  # type: ignore[assignment]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probabilities of the classes, averaged over the samples; (n_rows, n_classes)."""
        return self.probabilities(self.functions(X))

    def probabilities(self, z: FloatArray) -> FloatArray:
        """Probabilities of the classes from the samples' logits, (n_rows, n_outputs, n_samples), averaged over them."""
        if self.n_outputs == 1:
            p = expit(z[:, 0]).mean(axis=1)
            return np.stack([1 - p, p], axis=1)
        return np.exp(z - logsumexp(z, axis=1, keepdims=True)).mean(axis=2)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class by the mean logit, for which integers suffice; (n_rows,)."""
        mean = self._mean(X)
        return self.classes[(mean[:, 0] > 0).astype(np.intp) if mean.shape[1] == 1 else mean.argmax(axis=1)]

    def predict_logit(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Logit: mean and, on request, standard deviation over the samples; (n_rows,) or (n_rows, n_classes)."""
        if return_std:
            mean, std = self._moments(X)
            return self._shape(mean), self._shape(std)
        return self._shape(self._mean(X))

    def predict_logit_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals of the Gaussian with the logit's mean and standard deviation.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        level : float in (0, 1)

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        lower, upper = self._interval(X, as_number(level, "level", above=0.0, below=1.0))
        return self._shape(lower), self._shape(upper)
