"""`Regressor`: the methods that regressors with predictive distributions share; ``model_`` has what they return."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags

from pydirect._validation import FloatArray, as_count, as_generator, as_number, as_sample_weight, as_target
from pydirect.estimators._estimator import Estimator
from pydirect.fitted.predictor import Units, check_target_size
from pydirect.predictive.transformed import Distribution
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table


class TableRows(NamedTuple):
    """Validated rows: a table, targets (n_rows, n_outputs), weights (n_rows,) or None, whether y is a vector."""

    table: Table
    y: FloatArray
    weight: FloatArray | None
    one_dimensional: bool


class Regressor(MultiOutputMixin, RegressorMixin, Estimator):
    """A regressor whose ``model_`` predicts distributions of y."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # --- rows of a fit

    def _read(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, more: bool = False) -> TableRows:
        """Validate rows of a new fit, or `more` rows, whose weights may all be zero."""
        x, given = self._validated(X, y, multi_output=True, y_numeric=True, reset=not more)
        weight = as_sample_weight(sample_weight, len(x), all_zero=more)
        targets = np.asarray(given, dtype=np.float64)
        check_target_size(np.abs(targets).max())
        return TableRows(self._as_table(x), targets.reshape(len(x), -1), weight, targets.ndim == 1)

    def _columns_for(self, table: Table, y: FloatArray, weight: FloatArray | None) -> ColumnEncoding:
        return self._fitted_columns(table, Units.fit(y, weight, False)[1], weight)

    # --- results

    @property
    def _units(self) -> Units:
        units: Units = self.model_.units
        return units

    @property
    def y_mean_(self) -> FloatArray:
        return self._units.location

    @property
    def y_scale_(self) -> FloatArray:
        return self._units.scale

    @property
    def calibration_scale_(self) -> float:
        return self._units.calibration

    @property
    def noise_variance_(self) -> float | FloatArray:
        noise = self.model_.mean_noise * self.y_scale_**2
        return float(noise[0]) if self._units.one_dimensional else noise

    # --- prediction

    def _check_targets(self, y: ArrayLike, n_rows: int) -> FloatArray:
        targets = as_target(y, n_rows)
        if targets.shape[1] != self._units.n_outputs:
            raise ValueError(f"y must have {self._units.n_outputs} outputs, as in fit, got {targets.shape[1]}")
        return targets

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Also return the standard deviation of the target, noise included; it is computed only on request.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        std : ndarray of the same shape
            In the target's units.
        """
        x = self.encode_rows(X)
        with self._threads():
            mean, std = self.model_.predict(x, return_std)
        return mean if std is None else (mean, std)

    def predict_parts(self, X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predict the mean and, separately, the epistemic (of f) and aleatoric (of the noise) standard deviations.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        mean, epistemic_std, aleatoric_std : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        """
        x = self.encode_rows(X)
        with self._threads():
            parts: tuple[FloatArray, FloatArray, FloatArray] = self.model_.parts(x)
        return parts

    def predict_distribution(self, X: ArrayLike) -> Distribution | list[Distribution]:
        """Predict the full distribution of the target: a Gaussian mixture over noise levels and posterior components.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        PredictiveDistribution or TransformedDistribution, or a list of them, one per output
            In the target's units. The second where the target was transformed.
        """
        x = self.encode_rows(X)
        with self._threads():
            found: list[Distribution] = self.model_.distributions(x)
        return found[0] if self._units.one_dimensional else found

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that contain the target with probability `level`.

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
        as_number(level, "level", above=0.0, below=1.0)
        x = self.encode_rows(X)
        with self._threads():
            bounds: tuple[FloatArray, FloatArray] = self.model_.interval(x, level)
        return bounds

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> FloatArray:
        """Predict quantiles of the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        quantiles : array_like of shape (n_quantiles,), in (0, 1), default=(0.05, 0.5, 0.95)
            Probabilities of values below the quantiles.

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles) or (n_rows, n_outputs, n_quantiles)
            In the target's units.
        """
        x = self.encode_rows(X)
        with self._threads():
            found: FloatArray = self.model_.quantiles(x, np.atleast_1d(np.asarray(quantiles)))
        return found

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log density of observed targets, (n_rows,) or (n_rows, n_outputs), in nats.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In nats.
        """
        x = self.encode_rows(X)
        targets = self._check_targets(y, len(x))
        with self._threads():
            found: FloatArray = self.model_.log_density(x, targets)
        return found

    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Rescale all predictive standard deviations by one factor learned on held-out data.

        The factor is the root mean square of the standardised residuals, which maximises the Gaussian likelihood over
        the scale: 1 for a calibrated model, above 1 for an overconfident one. It replaces that of an earlier call.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows that the model was not fitted on.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts; by default once.

        Returns
        -------
        Self
            The model itself.
        """
        x = self.encode_rows(X)
        targets, weight = self._check_targets(y, len(x)), as_sample_weight(sample_weight, len(x))
        with self._threads():
            factor = self.model_.calibration_of(x, targets, weight)
        self.model_ = self.model_.calibrated(factor)
        return self

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: np.random.Generator | int | None = 0,
        *,
        noise: bool = True,
    ) -> FloatArray:
        """Draw functions from the posterior at the rows of X, with noise added unless `noise` is False.

        Where targets are transformed, functions without noise are those of the median.

        Returns an array (n_rows, n_samples) or (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_samples : int, default=1
            Number of draws.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.
        noise : bool, default=True
            Whether noise is added.

        Returns
        -------
        ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
            Draws.
        """
        x = self.encode_rows(X)
        n_samples, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        with self._threads():
            found: FloatArray = self.model_.sample(x, n_samples, rng, noise)
        return found
