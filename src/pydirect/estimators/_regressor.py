"""`Regressor`: the methods that regressors with predictive distributions share; ``model_`` has what they return."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from pydirect._documentation import takes_rows
from pydirect._validation import FloatArray, RandomState, as_count, as_generator, as_number, as_sample_weight, as_target
from pydirect._warnings import warn
from pydirect.estimators._estimator import Estimator, TableRows, of_model
from pydirect.estimators.regression import GivenRows
from pydirect.fitted.predictor import Units
from pydirect.noise.student_t import within_reach
from pydirect.predictive.transformed import Distribution
from pydirect.tables.encoding import ColumnEncoding

FEWEST_CALIBRATED = 20  # rows: their root mean square is off by a sixth of itself, by chance


class Regressor(MultiOutputMixin, RegressorMixin, Estimator):
    """A regressor whose ``model_`` predicts distributions of y.

    A subclass's ``_learn(plan, given, progress)`` fits it to encoded rows, `GivenRows`; it returns how
    `_warn_if_unfinished` describes the effort.
    """

    # --- rows of a fit

    @takes_rows
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        TargetWarning
            If a few gross targets carry most of the targets' squares.
        """
        with self._whole() as progress:
            plan = self._plan()
            effort = self._learn(plan, self._encoded(self._read_targets(X, y, sample_weight)), progress)
            self.fit_seconds_ = progress.seconds
            self._warn_if_unfinished(**effort)
        return self

    def _encoded(self, rows: TableRows, columns: ColumnEncoding | None = None) -> GivenRows:
        """Encode the rows of a new fit, as `columns` do or as is learned from them."""
        self._begin()
        table, y, weight, one_dimensional = rows
        if columns is None:
            reach = within_reach if getattr(self, "noise", None) == "student_t" else None
            columns = self._fitted_columns(table, Units.fit(y, weight, False, reach=reach)[1], weight)
        self.columns_ = columns
        x, absent = columns.encode_and_mark(table)
        return GivenRows(x, y, weight, one_dimensional, columns, absent)

    # --- results

    @property
    def _units(self) -> Units:
        units: Units = self.model_.units
        return units

    y_mean_ = of_model("units.location")
    y_scale_ = of_model("units.scale")
    calibration_scale_ = of_model("units.calibration")

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

    @takes_rows
    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target.

        Parameters
        ----------
        return_std : bool, default=False
            Also return the standard deviation of the target, noise included; it is computed only on request.
        return_cov : bool, default=False
            Return the joint covariance of the rows' targets in its place, whose diagonal is its square. For
            `DirectRegressor` with Gaussian weights, but not with a local process or transformed targets.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        std : ndarray of the same shape
            In the target's units.
        cov : ndarray of shape (n_rows, n_rows) or (n_rows, n_rows, n_outputs)
            In the target's units squared.
        """
        if return_std and return_cov:
            raise ValueError("return_std must be False with return_cov, got True: deviations are roots of its diagonal")
        self._require_fitted()
        model, x = self._at(X, of_mean=not (return_std or return_cov) and self._units.active is None)
        with self._threads():
            mean, std = model.predict(x, return_std)
            spread = model.covariance(x) if return_cov else std
        return mean if spread is None else (mean, spread)

    @takes_rows
    def predict_parts(self, X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predict the mean and, separately, the epistemic (of f) and aleatoric (of the noise) standard deviations.

        Returns
        -------
        mean, epistemic_std, aleatoric_std : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        """
        return self._asked("parts", X)

    @takes_rows
    def predict_distribution(self, X: ArrayLike) -> Distribution | list[Distribution]:
        """Predict the full distribution of the target: a Gaussian mixture over noise levels and posterior components.

        Student-t distributions, as of few rows, are mixtures of Gaussians as well.

        Returns
        -------
        PredictiveDistribution or TransformedDistribution, or a list of them, one per output
            In the target's units. The second where the target was transformed.
        """
        found = self._asked("distributions", X)
        return found[0] if self._units.one_dimensional else found

    @takes_rows
    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that contain the target with probability `level`.

        Parameters
        ----------
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Ends of the intervals.
        """
        as_number(level, "level", above=0.0, below=1.0)
        return self._asked("interval", X, level)

    @takes_rows
    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> FloatArray:
        """Predict quantiles of the target.

        Parameters
        ----------
        quantiles : array_like of shape (n_quantiles,), in (0, 1), default=(0.05, 0.5, 0.95)
            Probabilities of values below the quantiles.

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles) or (n_rows, n_outputs, n_quantiles)
            In the target's units.
        """
        return self._asked("quantiles", X, np.atleast_1d(np.asarray(quantiles)))

    @takes_rows
    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log density of observed targets, (n_rows,) or (n_rows, n_outputs), in nats.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In nats.
        """
        model, x = self._at(X)
        targets = self._check_targets(y, len(x))
        with self._threads():
            found: FloatArray = model.log_density(x, targets)
        return found

    @takes_rows
    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Rescale all predictive standard deviations by one factor learned on held-out data.

        The factor is the root mean square of the standardised residuals: 1 for a calibrated model, above 1 for an
        overconfident one. It replaces that of an earlier call or of the fit.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows that the model was not fitted on.

        Returns
        -------
        Self
            The model itself.

        Warns
        -----
        UserWarning
            If there are fewer than 20 rows.
        """
        model, x = self._at(X)
        targets, weight = self._check_targets(y, len(x)), as_sample_weight(sample_weight, len(x))
        n = len(x) if weight is None else float(weight.sum() ** 2 / np.square(weight).sum())
        if n < FEWEST_CALIBRATED:
            few = f"calibrate should be given at least {FEWEST_CALIBRATED} rows, got {n:g}: the factor is mostly chance"
            warn(few, UserWarning)
        with self._threads():
            self.model_ = model.calibrated(model.calibration_of(x, targets, weight))
        return self

    @takes_rows
    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: RandomState = 0, *, noise: bool = True
    ) -> FloatArray:
        """Draw functions from the posterior at the rows of X, with noise added unless `noise` is False.

        Where targets are transformed, functions without noise are those of the median.

        Returns an array (n_rows, n_samples) or (n_rows, n_outputs, n_samples).

        Parameters
        ----------
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
        n_samples, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        return self._asked("sample", X, n_samples, rng, noise)
