"""Quantised regressors and classifiers: predictions, export and saving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from pydirect import __version__
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_number
from pydirect.logistic.likelihood import log_sum_exp
from pydirect.persistence.container import read, sound_contents, write
from pydirect.persistence.schema import pack, require_all_used, unpack
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.predictive.transformed import Distribution
from pydirect.quantized.c_header import to_c
from pydirect.quantized.model import FloatPath, QuantizedModel
from pydirect.quantized.onnx_graph import to_onnx
from pydirect.quantized.program import half_width

Interval = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, repr=False)
class QuantizedPredictor(QuantizedModel):
    """Base of quantised regressors and classifiers; made by `quantize` and `fit_quantized`."""

    @cached_property
    def path(self) -> Any:
        """What predicts, in the arithmetic of the model: values by ``run``, and functions of them."""
        return self.program if self.arithmetic == "integer" else FloatPath(self)

    def _values(self, X: ArrayLike, n_threads: int | None = None, with_missing: bool = False) -> Any:
        return self.path.run(self.rows(X), resolve_n_threads(n_threads), with_missing)

    # --- prediction

    def functions(self, X: ArrayLike, n_threads: int | None = None) -> FloatArray:
        """Values of the samples' functions, without noise, in units of the output (logits for classifiers).

        Of a target on another scale on that scale.

        Returns an array (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_threads : int, optional
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs, n_samples)
            Values.
        """
        return np.asarray(self.path.functions(self._values(X, n_threads)))

    def totals(self, X: ArrayLike, n_threads: int | None = None) -> NDArray[np.int64]:
        """Integers that the integer program computes for every sample, (n_rows, n_outputs, n_samples).

        In compiled kernels. Equal to ``program.totals(X)``, the definition.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_threads : int, optional
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        """
        return self.program.run(self.rows(X), resolve_n_threads(n_threads))

    def _shape(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if self.one_dimensional else values

    def _predict(self, X: ArrayLike, return_std: bool) -> FloatArray | Interval:
        values = self._values(X, with_missing=return_std)
        mean = self._shape(self.path.mean(values))
        return (mean, self._shape(self.path.std(values))) if return_std else mean

    # --- files

    to_c = to_c
    to_onnx = to_onnx

    def save(self, path: str | Path) -> None:
        """Write the model to one file, without pickle; `pydirect.quantized.load_quantized` reads it.

        Parameters
        ----------
        path : str or Path
            Path of the file.
        """
        header, arrays = pack(self)
        write(path, f"pydirect.{type(self).__name__}", {"library": __version__, "model": header}, arrays)


@dataclass(frozen=True, repr=False)
class QuantizedRegressor(QuantizedPredictor):
    """Posterior samples of a regressor as packed integers; see `quantize`, and `QuantizedModel` for the attributes."""

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | Interval:
        """Predict the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Also return the standard deviation, noise included; that of the samples' functions divides by their number.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        std : ndarray of the same shape
            In the target's units.
        """
        if self.target is None:
            return self._predict(X, return_std)
        mean, std = self._of_each(X, lambda own: (own.mean, own.std))
        return (mean, std) if return_std else mean

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> Interval:
        """Central intervals of the Gaussian with the predicted mean and standard deviation.

        On another scale of the target those of `predict_distribution`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Ends of the intervals.
        """
        half = half_width(as_number(level, "level", above=0.0, below=1.0))
        if self.target is not None:
            return self._of_each(X, lambda own: own.interval(level))
        mean, std = self._predict(X, return_std=True)
        return mean - half * std, mean + half * std

    def predict_distribution(self, X: ArrayLike) -> Distribution | list[Distribution]:
        """Predictive distribution of the target: Gaussian noise about every sample's function.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        PredictiveDistribution, TransformedDistribution or list of them
            One per output.
        """
        out = self._distributions(X)
        return out[0] if self.one_dimensional else out

    def _of_each(self, X: ArrayLike, pair: Callable[[Distribution], Interval]) -> Interval:
        """Return two numbers of every row and output."""
        first, second = (np.stack(each, axis=1) for each in zip(*map(pair, self._distributions(X)), strict=True))
        return self._shape(first), self._shape(second)

    def _distributions(self, X: ArrayLike) -> list[Distribution]:
        values = self._values(X, with_missing=True)
        functions, missing = self.path.functions(values), self.path.missing(values)
        mean = functions.mean(axis=2, keepdims=True)
        functions = mean + self.calibration * (functions - mean)
        noise = self.calibration**2 * np.broadcast_to(self.noise + missing, functions.shape[:2])
        uniform = np.full(self.n_samples, 1 / self.n_samples)
        out = [PredictiveDistribution(uniform, functions[:, k], noise[:, k, None]) for k in range(self.n_outputs)]
        return [*out] if self.target is None else [self.target.distribution(k, own) for k, own in enumerate(out)]


@dataclass(frozen=True, repr=False)
class QuantizedClassifier(QuantizedPredictor):
    """Posterior samples of a classifier as packed integers; see `quantize`, and `QuantizedModel` for the attributes."""

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Class probabilities averaged over the samples, (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities.
        """
        return self.probabilities(self.functions(X))

    def probabilities(self, z: FloatArray) -> FloatArray:
        """Class probabilities from the samples' logits, (n_rows, n_outputs, n_samples), averaged over the samples.

        Parameters
        ----------
        z : ndarray of shape (n_rows, n_outputs, n_samples)
            Logits of the samples.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities.
        """
        if self.n_outputs == 1:
            p = expit(z[:, 0]).mean(axis=1)
            return np.stack([1 - p, p], axis=1)
        return np.exp(z - log_sum_exp(z)[:, None]).mean(axis=2)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the most probable class by the mean logit, for which integers suffice, (n_rows,).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows,)
            Labels.
        """
        assert self.classes is not None
        mean = self.path.mean(self._values(X))
        return self.classes[(mean[:, 0] > 0).astype(np.intp) if mean.shape[1] == 1 else mean.argmax(axis=1)]

    def predict_logit(self, X: ArrayLike, return_std: bool = False) -> FloatArray | Interval:
        """Logit: mean and optionally standard deviation over the samples, (n_rows,) or (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.

        Returns
        -------
        ndarray, or tuple of ndarray
            Means, and standard deviations on request.
        """
        return self._predict(X, return_std)


CLASSES = (QuantizedRegressor, QuantizedClassifier)


def load_quantized(path: str | Path) -> QuantizedPredictor:
    """Read a quantised model written by its ``save``; its predictions are the same bit for bit.

    Parameters
    ----------
    path : str or Path
        Path of the file.

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier
        The model.

    Raises
    ------
    pydirect.persistence.container.FileFormatError
        With the reason, when the file is truncated, altered, of a later version or not a quantised model.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, quantize
    >>> from pydirect.quantized import load_quantized
    >>> x = np.linspace(-1.0, 1.0, 50)[:, None]
    >>> small = quantize(DirectRegressor(random_state=0).fit(x, x[:, 0] ** 2), 4)
    >>> small.save("small.pydirect")
    >>> bool((load_quantized("small.pydirect").predict(x) == small.predict(x)).all())
    True
    """
    document = read(path, tuple(f"pydirect.{cls.__name__}" for cls in CLASSES))
    with sound_contents(path, "a model"), np.errstate(divide="raise"):
        require_all_used(document.header, document.arrays)
        model: QuantizedPredictor = unpack(CLASSES, document.header["model"], document.arrays)
        return model
