"""What rows of the training data did to predictions, in the units of the targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_instance, as_sample_weight, short_repr
from pydirect.distributions.priors import GaussianPrior, as_prior
from pydirect.estimators._noise_model import CONSTANT, HEAVY_TAILED
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.linear.influence import InfluencePosterior, cooks_distance
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics
from pydirect.statistics.standardised import Standardised

# Of standardised means at the training rows, from those of the model: larger ones are of other rows, as directions
# about which the rows say next to nothing, which models drop, move them by less than this.
LARGEST_DIFFERENCE = 1e-2
# Relative, of the total weight of the rows.
ROUNDING = 1e-9


@dataclass(frozen=True)
class RowEffects:
    """What rows did to predictions: with all rows, less without these.

    Attributes
    ----------
    mean, std : ndarray of shape (n_places, n_rows), (n_places,), or with one more axis of n_outputs
        Change of the predictive mean and of the predictive standard deviation, noise included, in the target's units.
        A row never adds to the variance: `std` is not positive.
    """

    mean: FloatArray
    std: FloatArray

    __repr__ = short_repr


class RowInfluence:
    """Influence of training rows on predictions: exact leave-one-out and leave-group-out without refits.

    Taking rows out of sums is exact: effects are those of a refit without the rows that keeps the basis functions, the
    units, the noise variance and the prior variance. What these owe to the rows is not counted.

    Parameters
    ----------
    model : DirectRegressor
        Fitted, with ``basis="decorrelated"``, a Gaussian prior, no `target_transform`, no local process, and noise that
        does not vary from row to row.
    X : array_like of shape (n_rows, n_features_in)
        The rows of the fit, or any of them where the model holds sums over rows (`partial_fit`, `fit_stream`).
    y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        Targets of the training rows.
    sample_weight : array_like of shape (n_rows,), optional
        As in the fit.

    Attributes
    ----------
    leverage_ : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Weight that a row has in its own prediction, from 0 to 1.
    residual_ : ndarray of the same shape
        y less the mean of all rows, in the target's units.
    cooks_distance_ : ndarray of the same shape
        How far a row moved all weights, in their posterior covariance and per effective weight: Cook's distance, if the
        prior is flat. It ranks rows; above one they are worth a look.

    Raises
    ------
    ValueError
        If rows are not those of the fit, or effects of rows have no exact form under the model's parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor
    >>> from pydirect.explain import RowInfluence
    >>> X = np.arange(20.0)[:, None]
    >>> y = 2 * X[:, 0] + np.random.default_rng(0).standard_normal(20)
    >>> y[19] -= 30
    >>> rows = RowInfluence(DirectRegressor("linear", noise="constant").fit(X, y), X, y)
    >>> int(rows.cooks_distance_.argmax())
    19
    >>> rows.leave_one_out(X).mean.shape, rows.leave_out([18, 19], X).mean.shape
    ((20, 20), (20,))
    """

    def __init__(
        self, model: DirectRegressor, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> None:
        as_instance(model, "model", DirectRegressor)
        check_is_fitted(model)
        _require_formula(model)
        self.model = model
        self._x = model._check_rows(X)
        targets = model._check_targets(y, len(self._x))
        self._weight = as_sample_weight(sample_weight, len(self._x), all_zero=True)
        standardised = (targets - model.y_mean_) / model.y_scale_
        posteriors = self._posteriors(standardised)
        errors, variances = self._errors_and_variances(posteriors, standardised)
        self._each = list(zip(posteriors, errors.T, variances.T, strict=True))
        counts = np.ones(len(self._x)) if self._weight is None else self._weight
        precisions = counts[:, None] / np.array([posterior.noise_variance for posterior in posteriors])
        leverage = precisions * variances
        if (leverage > 1 + LARGEST_DIFFERENCE).any():
            row = int(np.flatnonzero((leverage > 1 + LARGEST_DIFFERENCE).any(axis=1))[0])
            raise ValueError(
                f"X must be rows that the model was fitted to, with their weights: row {row} is none of them"
            )
        leverage = np.clip(leverage, 0.0, 1.0)
        pairs = zip(errors.T, leverage.T, precisions.T, strict=True)
        self.leverage_, self.residual_ = model._shape(leverage), model._shape(model.y_scale_ * errors)
        self.cooks_distance_ = model._shape(np.stack([cooks_distance(*pair) for pair in pairs], axis=1))

    def __repr__(self) -> str:
        return f"<RowInfluence of {len(self._x)} rows on {self.model!r}>"

    def _posteriors(self, standardised: FloatArray) -> list[InfluencePosterior]:
        """Return the posterior of every output's weights, at the noise and prior variances of the model."""
        model = self.model
        if hasattr(model, "statistics_"):
            sums = Standardised.of(model.statistics_, 1.0).gaussian
        else:
            total = float(len(self._x) if self._weight is None else self._weight.sum())
            if abs(total - model.n_samples_) > ROUNDING * model.n_samples_:
                raise ValueError(f"X must be the rows of the fit, {model.n_samples_:g} by their weights, got {total:g}")
            sums = self._sums(self._x, standardised, self._weight)
        repetitions = model.n_samples_ / model.effective_rows_
        noise = [repetitions / posterior.noise.precision for posterior in model.posteriors_]
        each = enumerate(zip(noise, model.prior_scale_**2, strict=True))
        return [InfluencePosterior.of(sums.target(k), *variances) for k, variances in each]

    def _sums(self, x: FloatArray, targets: FloatArray, weight: FloatArray | None) -> GaussianStatistics:
        options: dict[str, Any] = {"block_dtype": self.model.block_dtype, "n_threads": self.model.n_threads}
        basis = self.model.features_.for_sums(len(x), 0.0)  # of Φ: nothing magnifies their rounding
        return collect_statistics(basis.map, basis.inputs(x), targets, weight, **options)

    def _errors_and_variances(
        self, posteriors: list[InfluencePosterior], standardised: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return y − Φm and variances of f at the rows, (n_rows, n_outputs) each."""
        errors, variances, differences = np.empty((3, *standardised.shape))
        for rows, phi in self._blocks():
            for k, posterior in enumerate(posteriors):
                mean = phi @ posterior.mean
                errors[rows, k], variances[rows, k] = standardised[rows, k] - mean, posterior.variances(phi)
                differences[rows, k] = mean - phi @ self.model.coefficients_[:, k]
        if np.sqrt(np.mean(np.square(differences))) > LARGEST_DIFFERENCE:
            raise ValueError("X, y and sample_weight must be those of the fit, got others")
        return errors, variances

    def _blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        with single_blas_thread():
            for rows in self.model._blocks(self._x):
                yield rows, self.model._features_of(self._x[rows])[1]

    def leave_one_out(self, X: ArrayLike) -> RowEffects:
        """Return what every training row did to predictions at the rows of X.

        A row is taken out with its whole weight. Of a row that was given several times, one copy is: take out all of
        them with `leave_out`.

        Parameters
        ----------
        X : array_like of shape (n_places, n_features_in)
            Rows of inputs.

        Returns
        -------
        RowEffects
            Arrays of shape (n_places, n_rows) or (n_places, n_rows, n_outputs).
        """
        at, with_all = self._places(X)
        mean, variance = np.empty((2, len(at), len(self._x), len(self._each)))
        for rows, phi in self._blocks():
            weight = None if self._weight is None else self._weight[rows]
            for k, (posterior, errors, variances) in enumerate(self._each):
                effects = posterior.of_each(at, phi, errors[rows], weight, variances[rows])
                mean[:, rows, k], variance[:, rows, k] = effects
        return self._in_units(with_all[:, None], mean, variance)

    def leave_out(self, rows: ArrayLike, X: ArrayLike) -> RowEffects:
        """Return what a group of training rows did together to predictions at the rows of X.

        Parameters
        ----------
        rows : array_like of int or bool
            Indices of the group among the training rows, or a mask, (n_rows,).
        X : array_like of shape (n_places, n_features_in)
            Rows of inputs.

        Returns
        -------
        RowEffects
            Arrays of shape (n_places,) or (n_places, n_outputs).
        """
        index = _as_index(rows, len(self._x))
        at, with_all = self._places(X)
        group, weight = self._x[index], None if self._weight is None else self._weight[index]
        mean, variance = np.empty((2, len(at), len(self._each)))
        if len(index) < at.shape[1] or (weight is not None and not weight.any()):
            phi = self.model._features_of(group)[1]
            for k, (posterior, errors, _) in enumerate(self._each):
                mean[:, k], variance[:, k] = posterior.of_few(at, phi, errors[index], weight)
        else:
            sums = self._sums(group, np.stack([errors[index] for _, errors, _ in self._each], axis=1), weight)
            for k, (posterior, *_) in enumerate(self._each):
                mean[:, k], variance[:, k] = posterior.of_group(at, sums.target(k))
        return self._in_units(with_all, mean, variance)

    def _places(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return Φ at the rows of X, and the variance of y there, standardised, (n_places, n_outputs)."""
        x = self.model._check_rows(X)
        inputs, at = self.model._features_of(x)
        noise = [values @ weights for weights, values in self.model._noise_of(x)]
        latent = [posterior.variances(at) for posterior, *_ in self._each]
        missing = self.model._missing_variance(inputs, at)
        return at, np.stack(latent, axis=1) + np.stack(noise, axis=1) + (0.0 if missing is None else missing)

    def _in_units(self, with_all: FloatArray, mean: FloatArray, variance: FloatArray) -> RowEffects:
        """Return effects in units of the targets, from standardised ones; outputs are the last axis.

        `with_all`: variance of y.
        """
        model = self.model
        std = np.sqrt(with_all) - np.sqrt(with_all - np.minimum(variance, 0.0))
        effects = model.y_scale_ * mean, model.calibration_scale_ * model.y_scale_ * std
        return RowEffects(*(effect[..., 0] if model._one_dimensional else effect for effect in effects))


def _as_index(rows: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    """Return indices of different rows from indices or a mask."""
    index = np.asarray(rows)
    if index.dtype == bool:
        if index.shape != (n_rows,):
            raise ValueError(f"rows must be a mask of shape ({n_rows},), got {index.shape}")
        index = np.flatnonzero(index)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise ValueError(f"rows must be indices or a mask of at least one row, got {rows!r}")
    if index.min() < -n_rows or index.max() >= n_rows:
        raise ValueError(f"rows must be indices below {n_rows}, got {index.min()} to {index.max()}")
    index = index % n_rows
    if len(np.unique(index)) < len(index):
        raise ValueError("rows must be different, got some of them twice")
    return index.astype(np.intp)


def _require_formula(model: DirectRegressor) -> None:
    """Raise unless the posterior is that of continuous weights, given sums over rows of equal noise."""
    problem = "effects of rows have no exact form"
    if hasattr(model, "noisy_statistics_"):
        raise ValueError(f"{problem} where only sums with noise are known: fit to the rows")
    if model.basis != "decorrelated":
        raise ValueError(f"{problem} with basis={model.basis!r}: fit with basis='decorrelated'")
    if not isinstance(as_prior(model.prior), GaussianPrior):
        raise ValueError(f"{problem} with a prior that is not Gaussian: fit with prior='gaussian'")
    if model._transform() is not None:
        raise ValueError(f"{problem} with target_transform={model.target_transform!r}: fit to transformed targets")
    if model.local_ is not None:
        raise ValueError(f"{problem} with a local process: fit with local=False")
    noise = model.noise_model_
    if noise is not None and not {*noise.choices} <= {CONSTANT, HEAVY_TAILED}:
        raise ValueError(f"{problem} where the noise varies or is Student-t: fit with noise='constant'")
