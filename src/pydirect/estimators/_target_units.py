"""Regressors of transformed targets: everything within sees t(y), everything public is in the units of y."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from pydirect._validation import FloatArray
from pydirect.estimators._leaving_out import LeavingOneOut
from pydirect.estimators._target_choice import as_transform_names, best_transform, fitted_transform
from pydirect.features.basis import Basis
from pydirect.features.columns import Columns
from pydirect.features.evidence import TrainingRows
from pydirect.persistence.fields import Arrays, Header, Writer, require_array
from pydirect.predictive.transformed import Distribution, TransformedDistribution, rectified_square_moments
from pydirect.predictive.transforms import TargetTransform
from pydirect.quantized.budget.settings import SearchSettings
from pydirect.quantized.fitted import FittedBasisModel
from pydirect.statistics.rotated import RotatedStatistics
from pydirect.streams.rows import Rows


class TransformedTargets(LeavingOneOut):
    """Base of regressors of t(y): the transform is fixed with the features, and kept with them."""

    target_transform: str | Sequence[str | None] | None
    noise: str | float
    noise_choice_: dict[str, Any]
    _transform_of_fit: TargetTransform | None = None  # until there are features to keep it

    @property
    def target_transform_(self) -> TargetTransform | None:
        """Transform of the targets; None if `target_transform` is."""
        return self.features_.target_transform

    def _transform(self) -> TargetTransform | None:
        """Return the transform unless it changes nothing."""
        transform = self.features_.target_transform
        return None if transform is None or transform.is_identity else transform

    # --- fitting

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.target_transform not in (None, "auto")
        return tags

    def _check_target_transform(self) -> None:
        as_transform_names(self.target_transform)
        if self.target_transform == "auto" and not isinstance(self.noise, str):
            raise ValueError(
                f"noise must not be a number with target_transform='auto', which decides on its units, got {self.noise}"
            )

    def _needs_targets(self) -> bool:
        return super()._needs_targets() or self.target_transform is not None

    def _feature_parameters(self) -> dict[str, Any]:
        return {**super()._feature_parameters(), "target_transform": self.target_transform}

    def _start_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, columns: Columns | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
        x, targets, standardised, weight = super()._start_fit(X, y, sample_weight, columns)
        transformed = self._fit_transform(x, targets, weight)
        if transformed is not targets:
            standardised = self._standardise_targets(transformed, weight)
        return x, targets, standardised, weight

    def _training_rows(self, rows: Rows, standardised: FloatArray) -> TrainingRows:
        transformed = self._fit_transform(rows.x, rows.y, rows.weight)
        return TrainingRows(rows.x, self._standardise_targets(transformed, rows.weight), rows.weight)

    def _fit_transform(self, x: FloatArray, y: FloatArray, weight: FloatArray | None) -> FloatArray:
        """Choose the transform and return transformed targets."""
        self._transform_of_fit, self._log_derivative = None, np.zeros(y.shape[1])
        if self.target_transform is None:
            return y
        if self.target_transform == "auto":
            transform = self._earlier_transform(y) or best_transform(self, x, y, weight)
        else:
            transform = fitted_transform(as_transform_names(self.target_transform, y.shape[1]), y)
        self._transform_of_fit = transform
        derivative = transform.log_derivative(y)
        self._log_derivative = derivative.sum(axis=0) if weight is None else weight @ derivative
        return transform.forward(y)

    def _earlier_transform(self, y: FloatArray) -> TargetTransform | None:
        """Return the transform of the map whose hyperparameters are taken over, unless it does not take y."""
        transform = None if self._earlier is None else self._earlier.target_transform
        try:
            if transform is not None:
                transform.forward(y)
        except ValueError:
            self._earlier = transform = None
        return transform

    def _fit_features(self, *args: Any, **kwargs: Any) -> Basis:
        return replace(super()._fit_features(*args, **kwargs), target_transform=self._transform_of_fit)

    def _set_results(self) -> None:
        super()._set_results()
        density = self._log_derivative / self.n_samples_  # in units of y
        for name, value in self.noise_choice_.items():
            self.noise_choice_[name] = value + (float(density[0]) if self._one_dimensional else density)

    def _elbo_units(self) -> FloatArray:
        return super()._elbo_units() - self._log_derivative * (self.effective_rows_ / self.n_samples_)

    def store_left_out(self, rows: TrainingRows, rotated: RotatedStatistics) -> None:
        """Set what predictions of the rows without themselves say, densities in the target's units.

        Parameters
        ----------
        rows : TrainingRows
            The training rows, with transformed targets.
        rotated : RotatedStatistics
            Sums over them.
        """
        super().store_left_out(rows, rotated)
        transform = self._transform()
        if transform is not None:
            targets = transform.inverse(self.y_mean_ + self.y_scale_ * rows.y)
            self.loo_log_density_ = self.loo_log_density_ + self._shape(transform.log_derivative(targets))

    # --- prediction

    def predict(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Also return the standard deviation of the target, noise included.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units, whatever `target_transform` is: for the logarithm the mean of a lognormal
            distribution, which needs the variance as well, and is larger than the median,
            ``predict_quantiles(X, 0.5)``.
        std : ndarray of the same shape
            In the target's units.
        """
        self._require_fitted()
        if self._transform() is None:
            return super().predict(X, return_std)
        mean, variance = self._moments_in_units(self._check_rows(X))
        return (self._shape(mean), self._shape(np.sqrt(variance))) if return_std else self._shape(mean)

    def _moments_in_units(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of y, (n_rows, n_outputs) each."""
        mean, variance = np.empty((2, len(x), len(self.posteriors_)))
        for rows in self._blocks(x):  # mixtures have many components
            distributions = self._distributions(x[rows])
            mean[rows] = np.stack([d.mean for d in distributions], axis=1)
            variance[rows] = np.stack([d.variance for d in distributions], axis=1)
        return mean, variance

    def _distributions(self, x: FloatArray) -> list[Distribution]:
        """Return the distributions of the outputs, in the target's units."""
        transform = self.features_.target_transform
        if transform is None:
            return super()._distributions(x)
        outputs = zip(self._mixtures(x), transform.names, transform.shifts, strict=True)
        return [d if name == "identity" else TransformedDistribution(d, name, shift) for d, name, shift in outputs]

    def predict_parts(self, X: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predict the mean and, separately, the epistemic (of f) and aleatoric (of the noise) standard deviations.

        With a `target_transform` these are the two parts of the law of total variance, in the target's units: the
        standard deviation of E[y | f], and the root of the mean of Var[y | f].

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        mean, epistemic_std, aleatoric_std : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            In the target's units.
        """
        check_is_fitted(self)
        transform = self._transform()
        if transform is None:
            return super().predict_parts(X)
        x = self._check_rows(X)
        mean, total = self._moments_in_units(x)
        location, variance, _ = self._variance_parts(x)
        location = self.y_mean_ + self.y_scale_ * location
        variance = (self.calibration_scale_ * self.y_scale_) ** 2 * variance
        epistemic = np.empty_like(total)
        for k, (name, shift) in enumerate(zip(transform.names, transform.shifts, strict=True)):
            epistemic[:, k] = _explained_variance(name, location[:, k], variance[:, k], mean[:, k] + shift)
        epistemic = np.minimum(epistemic, total)
        finite = np.isfinite(total)
        aleatoric = np.where(finite, total - np.where(finite, epistemic, 0.0), total)
        parts = (mean, np.sqrt(epistemic), np.sqrt(aleatoric))
        return tuple(self._shape(p) for p in parts)  # type: ignore[return-value]

    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, method: str = "posterior"
    ) -> tuple[FloatArray, FloatArray]:
        """Predict intervals that contain the target with probability `level`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        level : float in (0, 1), default=0.9
            Probability that an interval contains.
        method : {"posterior", "jackknife+"}, default="posterior"
            ``"posterior"``: the central interval of the predictive distribution. ``"jackknife+"``: from the residuals
            of the training rows without themselves, in units of the predictive standard deviation, which holds at least
            approximately where the model is wrong about its noise; needs ``store_loo=True``. Copies of a row are left
            out together, measurements one by one, and count as often as given; of more than 20,000 rows, 5000 random
            ones are used. A local process is left out, with a warning. Hyperparameters are not learned again without
            each row, so the guarantee of Barber et al. (2021) is that of the fit given them.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Ends of the intervals, in the target's units.
        """
        bounds = super().predict_interval(X, level, method)
        return bounds if method == "posterior" else tuple(self._to_units(bound) for bound in bounds)  # type: ignore[return-value]

    def _require_cumulants(self) -> None:
        """Raise unless the target has cumulants of a known form."""
        if self._transform() is not None:
            raise ValueError(
                f"cumulants are not available for target_transform={self.target_transform!r}: predict_distribution has "
                "the mean, the variance and quantiles"
            )

    def _transformed(self, targets: FloatArray) -> FloatArray:
        transform = self._transform()
        return targets if transform is None else transform.forward(targets)

    def _to_units(self, values: FloatArray) -> FloatArray:
        transform = self._transform()
        if transform is None:
            return values
        return transform.inverse(values[:, None])[:, 0] if self._one_dimensional else transform.inverse(values)

    # --- devices and files

    def quantizable(self) -> FittedBasisModel:
        """Return the fitted model in the form that `pydirect.quantize` accepts.

        Returns
        -------
        FittedBasisModel
            What `pydirect.quantize` takes.

        Raises
        ------
        ValueError
            If targets were transformed: devices predict in the units that were modelled.
        """
        if self._transform() is not None:
            raise self._not_for_devices()
        return super().quantizable()

    def search_settings(self) -> SearchSettings:
        """Return the parameters that `pydirect.fit_quantized` uses.

        Returns
        -------
        SearchSettings
            The parameters.
        """
        if self.target_transform is not None:
            raise self._not_for_devices()
        return super().search_settings()

    def _not_for_devices(self) -> ValueError:
        return ValueError(
            f"target_transform must be None to quantise or export, got {self.target_transform!r}: a device would "
            "return transformed targets. Fit to the transformed targets themselves and undo the transform of what it "
            "returns: exp of its mean is then the median"
        )

    def summary(self) -> str:
        """Describe the fitted model in words: basis, posterior, what was found in the columns, what was switched on.

        Gains are log densities in nats, by which alternatives were chosen.

        Returns
        -------
        str
            Several lines.
        """
        words = super().summary()
        transform = self._transform()
        return words if transform is None else f"{words}\nIt models {transform}, and predicts in the units of y."

    def _to_fields(self, writer: Writer) -> Header:
        writer.arrays["log_derivative"] = self._log_derivative
        return super()._to_fields(writer)

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self._log_derivative = arrays["log_derivative"]
        require_array(self._log_derivative, "log_derivative", len(self.posteriors_))
        transform = self.features_.target_transform
        if transform is not None and len(transform.names) != len(self.posteriors_):
            raise ValueError("target_transform does not fit the outputs")


def _explained_variance(name: str, location: FloatArray, variance: FloatArray, mean: FloatArray) -> FloatArray:
    """Return Var E[y | f] for Gaussian f, where y has this mean (shift included).

    E[y | f] is proportional to exp(f) for the logarithm; for the square root it is f² and a constant.
    """
    if name == "identity":
        return variance
    with np.errstate(over="ignore"):
        if name == "log":
            return mean**2 * np.expm1(variance)
    return rectified_square_moments(location, np.sqrt(np.maximum(variance, np.finfo(float).tiny)))[1]
