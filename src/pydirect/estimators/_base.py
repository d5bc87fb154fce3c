"""What estimators share when they predict; for regressors distributions, intervals, samples, scores, calibration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pydirect._threads import single_blas_thread
from pydirect._validation import (
    FloatArray,
    as_count,
    as_generator,
    as_number,
    as_sample_weight,
    as_target,
    shown,
)
from pydirect.hyperparameters import distinct_rows
from pydirect.inputs import weighted_location_scale
from pydirect.predictive import PredictiveDistribution

if TYPE_CHECKING:
    from pydirect.quantized import QuantizedModel

# Rows of Φ held at a time while predicting.
PREDICT_BYTES = 32 * 2**20
LARGEST_TARGET = 1e90


class LatentFunctions(BaseEstimator):
    """Base of estimators that predict moments of latent functions f*, block by block.

    A subclass provides ``_n_columns`` (width of a row while predicting), ``_latent(rows, with_variance)`` (mean and
    variance of f*, (n_rows, n_outputs) each), ``_sampler`` (draws of f*) and a ``fit`` that begins with `_forget`, sets
    ``posteriors_``, one a function, ``n_samples_`` and ``_one_dimensional`` (whether there is no axis of outputs), and
    ends with `_set_results` and `_warn_if_unfinished`.
    """

    max_iter: int
    random_state: Any
    posteriors_: list[Any]
    n_samples_: float
    _one_dimensional: bool

    def _generator(self) -> np.random.Generator:
        try:
            state = check_random_state(self.random_state)
        except ValueError:
            message = f"an integer from 0 to 2**32 - 1, a RandomState or None, got {shown(self.random_state)}"
            raise ValueError(f"random_state must be {message}") from None
        return np.random.default_rng(state.randint(2**31))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def _forget(self) -> None:
        """Until `_set_results` there is no model, old or new."""
        for name in ("posterior_", "metadata_"):
            self.__dict__.pop(name, None)

    def _elbo_units(self) -> FloatArray:
        """Return what the ELBOs lose in the data's own units, one a function."""
        return np.zeros(len(self.posteriors_))

    def _set_results(self) -> None:
        """Set the public attributes from the posteriors."""
        posteriors = self.posteriors_
        single = self._one_dimensional
        units = self._elbo_units()
        self.posterior_ = posteriors[0] if single else posteriors
        self.elbo_ = float(sum(p.elbo for p in posteriors) - units.sum())
        traces = [p.elbo_trace - u for p, u in zip(posteriors, units, strict=True)]
        self.elbo_trace_ = traces[0] if single else traces
        self.n_iter_ = max(p.n_iter for p in posteriors)
        self.converged_ = all(p.converged for p in posteriors)
        self.interrupted_ = any(p.interrupted for p in posteriors)
        self.sparsity_ = self._expected_sparsity()

    def _expected_sparsity(self) -> float:
        """Return the expected fraction of weights that are exactly zero."""
        return float(np.mean([p.weights.expected_sparsity() if p.q.size else 0.0 for p in self.posteriors_]))

    def _warn_if_unfinished(self) -> None:
        if not self.converged_:
            limit = self._limit()
            remedy = f" (raise {limit}={getattr(self, limit)})" if limit else ""
            reason = "interrupted" if self.interrupted_ else f"not at rest after {self._effort()}{remedy}"
            warnings.warn(f"the fit is {reason}; the best posterior found is kept", ConvergenceWarning, stacklevel=3)

    def _limit(self) -> str:
        """Name the parameter that ended the last stage of a fit, if one did."""
        return "max_iter"

    def _effort(self) -> str:
        """Say how long a fit went on."""
        return f"{self.n_iter_} iterations"

    def _shape(self, values: FloatArray) -> FloatArray:
        """Drop the axis of outputs when there is none."""
        return values[:, 0] if self._one_dimensional else values

    def _n_columns(self) -> int:
        raise NotImplementedError

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        raise NotImplementedError

    def _sampler(self, n_samples: int, rng: np.random.Generator) -> Any:
        """Return a function from rows to draws of f*, (n_rows, n_outputs, n_samples)."""
        raise NotImplementedError

    def _blocks(self, x: FloatArray, n_columns: int | None = None) -> Iterator[slice]:
        """Yield blocks of rows that take a bounded memory, for so many numbers a row: by default `_n_columns`."""
        size = max(16, PREDICT_BYTES // (8 * max(self._n_columns() if n_columns is None else n_columns, 1)))
        for begin in range(0, len(x), size):
            yield slice(begin, min(begin + size, len(x)))

    def _check_rows(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        return np.ascontiguousarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and variance of f*, (n_rows, n_outputs) each; block by block."""
        mean = np.empty((len(x), len(self.posteriors_)))
        variance = np.empty_like(mean) if with_variance else None
        with single_blas_thread():  # the same bits for any number of threads
            for rows in self._blocks(x):
                mean[rows], block_variance = self._latent(x[rows], with_variance)
                if variance is not None:
                    variance[rows] = block_variance
        return mean, variance

    def quantize(self, n_samples: int = 16, method: str = "moments", **options: Any) -> QuantizedModel:
        """Return a few posterior samples as packed integers, which predict by themselves; see `pydirect.quantize`."""
        from pydirect.quantized import quantize

        check_is_fitted(self)
        return quantize(self, n_samples, method, **options)

    def save(self, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file: arrays and a versioned header, no pickle.

        Parameters
        ----------
        path : str or Path
            Written to a temporary name and renamed.
        metadata : dict, optional
            JSON-able; comes back as ``metadata_``, which is written again by default.

        Raises
        ------
        TypeError
            When features are a transformer, or a parameter is an object that a header cannot hold.
        """
        from pydirect.estimators._files import save_model

        check_is_fitted(self)
        save_model(self, path, metadata)


class ProbabilisticClassifier(ClassifierMixin, LatentFunctions):
    """Base of estimators that predict probabilities of classes.

    A subclass provides ``_check_parameters``, ``decision_function`` and ``predict_log_proba``; its ``fit`` begins with
    `_start_fit`.
    """

    classes_: np.ndarray

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags

    def _class_weighted(
        self, x: FloatArray, y: np.ndarray, weight: FloatArray
    ) -> tuple[FloatArray, np.ndarray, FloatArray]:
        """Multiply the rows' weights by those of their classes; here all classes weigh the same."""
        return x, y, weight

    def _start_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Validate and forget; return the rows that count, the indices of their classes, and the weights."""
        x, given_y = validate_data(self, X, y, dtype=np.float64)
        _check_labels(given_y)
        given = as_sample_weight(sample_weight, len(x))
        self._check_parameters()
        self._forget()
        weight = np.ones(len(x)) if given is None else given
        used = weight > 0
        x, used_y, weight = self._class_weighted(np.ascontiguousarray(x[used]), given_y[used], weight[used])
        self.classes_, index = np.unique(used_y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least two classes, got one class, {self.classes_.tolist()[0]!r}")
        # In small tables repeated rows become one: a weight of two and a row given twice are then the same.
        x, merged, weight = distinct_rows(x, index[:, None].astype(np.float64), weight)
        return x, merged[:, 0], weight

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        decision = self.decision_function(X)
        return self.classes_[(decision > 0).astype(np.intp) if decision.ndim == 1 else decision.argmax(axis=1)]

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the classes' probabilities, expectations over the posterior.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        return np.exp(self.predict_log_proba(X))


def _check_labels(y: np.ndarray) -> None:
    try:
        check_classification_targets(y)
    except TypeError:  # they could not be sorted
        found = sorted({type(label).__name__ for label in y.tolist()})
        raise TypeError(f"y must hold labels that can be ordered, of one type, got {' and '.join(found)}") from None


class ProbabilisticRegressor(MultiOutputMixin, RegressorMixin, LatentFunctions):
    """Base of regressors whose predictions are Gaussian mixtures.

    Latent functions are of standardised targets; a subclass' ``fit`` begins with `_start_fit`.
    """

    y_mean_: FloatArray
    y_scale_: FloatArray
    calibration_scale_: float

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _start_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        """Validate the data and standardise the targets; until `_set_results` there is no model, old or new.

        Returns
        -------
        x : ndarray of shape (n_samples, n_features_in)
        targets, standardised : ndarray of shape (n_samples, n_outputs)
        weight : ndarray of shape (n_samples,) or None
        """
        x, given = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weight = as_sample_weight(sample_weight, len(x))
        self._forget()
        self._one_dimensional = given.ndim == 1
        targets = np.asarray(given, dtype=np.float64).reshape(len(x), -1)
        return x, targets, self._standardise_targets(targets, weight), weight

    def _standardise_targets(self, targets: FloatArray, weight: FloatArray | None) -> FloatArray:
        """Learn the targets' location and scale; constant ones become exact zeros."""
        self._check_target_size(np.abs(targets).max())
        self.y_mean_, scale = weighted_location_scale(targets, weight)
        self.y_scale_ = np.where(scale > 0, scale, 1.0)
        self.calibration_scale_ = 1.0
        return np.where(scale > 0, (targets - self.y_mean_) / self.y_scale_, 0.0)

    @staticmethod
    def _check_target_size(size: float) -> None:
        if not size <= LARGEST_TARGET:
            raise ValueError(f"y must be at most {LARGEST_TARGET:g} in magnitude, got {size:g}")

    def _elbo_units(self) -> FloatArray:
        return self.n_samples_ * np.log(self.y_scale_)  # a density in y's own units

    def _set_results(self) -> None:
        super()._set_results()
        noise = self._mean_noise_variance() * self.y_scale_**2
        self.noise_variance_ = float(noise[0]) if self._one_dimensional else noise

    def _mean_noise_variance(self) -> FloatArray:
        """Return the expected noise variance of each output, standardised."""
        return np.array([p.noise.variance for p in self.posteriors_])

    def _noise(self, output: int) -> tuple[FloatArray, FloatArray]:
        """Weights and values of the noise variance, standardised."""
        noise = self.posteriors_[output].noise
        return noise.q, noise.levels

    def _latent_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """Components of the posterior of f*: weights (r,), means and variances (n_rows, r), for every output."""
        mean, variance = self._latent(rows, with_variance=True)
        assert variance is not None
        return [(np.ones(1), mean[:, k, None], variance[:, k, None]) for k in range(mean.shape[1])]

    def _target_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        """Components of the distribution of y*: weights (r,), means and variances (n_rows, r), for every output."""
        components = []
        for k, (alpha, means, variances) in enumerate(self._latent_components(rows)):
            weights, noise = self._noise(k)
            used = weights > 1e-12
            mixed = np.outer(alpha, weights[used] / weights[used].sum()).ravel()
            spread = (variances[:, :, None] + noise[used]).reshape(len(rows), -1)
            components.append((mixed, np.repeat(means, used.sum(), axis=1), spread))
        return components

    def _variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of y*, variance of f* and expected noise variance, standardised, (n_rows, n_outputs) each."""
        mean, variance = self._latent_moments(x, with_variance=True)
        assert variance is not None
        noise = np.array([np.dot(*self._noise(k)) for k in range(mean.shape[1])])
        return mean, variance, np.broadcast_to(noise, mean.shape)

    def _check_targets(self, y: ArrayLike, n_rows: int) -> FloatArray:
        targets = as_target(y, "y", n_rows)
        if targets.shape[1] != len(self.y_mean_):
            raise ValueError(f"y must have {len(self.y_mean_)} outputs, as in fit, got {targets.shape[1]}")
        return targets

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        return_std : bool
            Also return the standard deviation of the target, noise included. Nothing is computed for it otherwise.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        std : ndarray of the same shape
        """
        x = self._check_rows(X)
        if not return_std:
            mean, _ = self._latent_moments(x, with_variance=False)
            return self._shape(self.y_mean_ + self.y_scale_ * mean)
        mean, variance = self._moments(x)
        return self._shape(self.y_mean_ + self.y_scale_ * mean), self._shape(self.y_scale_ * np.sqrt(variance))

    def _moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of y*, standardised and calibrated."""
        mean, variance, noise = self._variance_parts(x)
        return mean, self.calibration_scale_**2 * (variance + noise)

    def predict_parts(self, X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predict the mean with what is uncertain about f (epistemic) and about the noise (aleatoric) apart.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        mean, epistemic_std, aleatoric_std : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        """
        mean, variance, noise = self._variance_parts(self._check_rows(X))
        scale = self.calibration_scale_ * self.y_scale_
        parts = (self.y_mean_ + self.y_scale_ * mean, scale * np.sqrt(variance), scale * np.sqrt(noise))
        return tuple(self._shape(p) for p in parts)  # type: ignore[return-value]

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution | list[PredictiveDistribution]:
        """Predict the full distribution of the target: a Gaussian mixture over noise levels and posterior components.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        PredictiveDistribution, or a list of them, one an output
            In the target's units.
        """
        x = self._check_rows(X)
        with single_blas_thread():
            blocks = [self._target_components(x[rows]) for rows in self._blocks(x)]
        distributions = []
        for k in range(len(self.y_mean_)):
            weights = blocks[0][k][0]
            means, variances = (np.concatenate([block[k][part] for block in blocks]) for part in (1, 2))
            middle = (means @ weights)[:, None]
            means = middle + self.calibration_scale_ * (means - middle)
            standardised = PredictiveDistribution(weights, means, self.calibration_scale_**2 * variances)
            distributions.append(standardised.affine(float(self.y_scale_[k]), float(self.y_mean_[k])))
        return distributions[0] if self._one_dimensional else distributions

    def _each_output(self, X: ArrayLike) -> list[PredictiveDistribution]:
        distributions = self.predict_distribution(X)
        return distributions if isinstance(distributions, list) else [distributions]

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that hold the target with probability `level`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        level : float in (0, 1)

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        as_number(level, "level", above=0.0, below=1.0)
        lower, upper = zip(*(d.interval(level) for d in self._each_output(X)), strict=True)
        return self._shape(np.stack(lower, axis=1)), self._shape(np.stack(upper, axis=1))

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> FloatArray:
        """Predict quantiles of the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        quantiles : array_like of shape (n_quantiles,), in (0, 1)

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles) or (n_rows, n_outputs, n_quantiles)
        """
        values = np.stack([d.quantile(np.atleast_1d(quantiles)) for d in self._each_output(X)], axis=1)
        return self._shape(values)

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log density of observed targets, (n_rows,) or (n_rows, n_outputs), in nats."""
        distributions = self._each_output(X)
        targets = self._check_targets(y, distributions[0].n_rows)
        densities = [d.log_density(targets[:, k]) for k, d in enumerate(distributions)]
        return self._shape(np.stack(densities, axis=1))

    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Rescale all predictive standard deviations by one number learned on held-out data.

        The number is the root mean square of the standardised residuals, the maximiser of the Gaussian likelihood in
        the scale: 1 for a calibrated model, above 1 for one that is too sure. It replaces an earlier one.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows that the model was not fitted on.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        sample_weight : array_like of shape (n_rows,), optional

        Returns
        -------
        self
        """
        x = self._check_rows(X)
        targets = self._check_targets(y, len(x))
        weight = as_sample_weight(sample_weight, len(x))
        self.calibration_scale_ = 1.0
        mean, variance = self._moments(x)
        z2 = ((targets - self.y_mean_) / self.y_scale_ - mean) ** 2 / variance
        scale = float(np.sqrt(np.average(z2, axis=0, weights=weight).mean()))
        self.calibration_scale_ = scale if scale > 1e-6 else 1.0  # residuals of rounding say nothing of a scale
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

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        n_samples : int
        random_state : numpy.random.Generator, int or None
        noise : bool

        Returns
        -------
        ndarray of shape (n_rows, n_samples) or (n_rows, n_outputs, n_samples)
        """
        x = self._check_rows(X)
        n_samples = as_count(n_samples, "n_samples")
        rng = as_generator(random_state)
        values = self._draws(x, n_samples, rng, noise)
        return self._shape(self.y_mean_[:, None] + self.y_scale_[:, None] * values)

    def _draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        """Draw functions, with noise or without, standardised and calibrated, (n_rows, n_outputs, n_samples)."""
        values = np.empty((len(x), len(self.y_mean_), n_samples))
        with single_blas_thread():
            draw = self._sampler(n_samples, rng)
            for rows in self._blocks(x):
                values[rows] = draw(x[rows])
        if self.calibration_scale_ != 1.0:
            mean = self._latent_moments(x, with_variance=False)[0][:, :, None]
            values = mean + self.calibration_scale_ * (values - mean)
        for k in range(values.shape[1]):
            if noise:
                weights, variances = self._noise(k)
                sd = self.calibration_scale_ * np.sqrt(rng.choice(variances, n_samples, p=weights / weights.sum()))
                values[:, k] += sd * rng.standard_normal((len(x), n_samples))
        return values
