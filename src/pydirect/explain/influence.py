"""What rows of the training data did to predictions, in the units of the targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread, threads
from pydirect._validation import FloatArray, as_sample_weight, short_repr
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.explain.leave_one_out import gaussian_regressor, require_total, targets_of_fit
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.leave_one_out import cooks_distance, influence_of_each, influence_of_few, influence_of_group
from pydirect.linear.posterior import FactoredPosterior
from pydirect.noise.model import CONSTANT, HEAVY_TAILED
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics
from pydirect.statistics.rotated import Standardised

# Of standardised means at the training rows, from those of the model: larger ones are of other rows, as directions
# about which the rows say next to nothing, which models drop, move them by less than this.
LARGEST_DIFFERENCE = 1e-2


@dataclass(frozen=True)
class RowEffects:
    """What rows did to predictions: with all rows, less without these.

    - `mean`, `std` (n_places, n_rows): Change of the predictive mean and of the predictive standard deviation, noise
      included, in the target's units.
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
        Fitted, with Gaussian weights, no `target_transform`, no local process, and noise that does not vary from row
        to row.
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
        self._fitted = _with_formula(model)
        self.model, units = model, self._fitted.units
        self._x = model.encode_rows(X)
        targets = targets_of_fit(self._fitted, y, len(self._x))
        self._weight = as_sample_weight(sample_weight, len(self._x), all_zero=True)
        standardised = (targets - units.location) / units.scale
        with threads(model.n_threads):
            self._find(standardised)

    def _find(self, standardised: FloatArray) -> None:
        units = self._fitted.units
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
        self.leverage_, self.residual_ = units.shape(leverage), units.shape(units.scale * errors)
        self.cooks_distance_ = units.shape(np.stack([cooks_distance(*pair) for pair in pairs], axis=1))

    def __repr__(self) -> str:
        return f"<RowInfluence of {len(self._x)} rows on {self.model!r}>"

    def _posteriors(self, standardised: FloatArray) -> list[FactoredPosterior]:
        """Return the posterior of every output's weights, at the noise and prior variances of the model."""
        model, latent = self._fitted, self._fitted.latent
        if hasattr(self.model, "statistics_"):
            sums = Standardised.of(self.model.statistics_, 1.0).gaussian
        else:
            require_total(model, len(self._x), self._weight)
            sums = self._sums(self._x, standardised, self._weight)
        noise = [model.repetitions / posterior.noise.precision for posterior in latent.posteriors]
        each = enumerate(zip(noise, latent.prior_scale**2, strict=True))
        return [FactoredPosterior.of(sums.target(k), *variances) for k, variances in each]

    def _sums(self, x: FloatArray, targets: FloatArray, weight: FloatArray | None) -> GaussianStatistics:
        basis = self._fitted.basis.for_sums(len(x), 0.0)  # of Φ: nothing magnifies their rounding
        return collect_statistics(basis.map, basis.inputs(x), targets, weight)

    def _errors_and_variances(
        self, posteriors: list[FactoredPosterior], standardised: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return y − Φm and variances of f at the rows, (n_rows, n_outputs) each."""
        errors, variances, differences = np.empty((3, *standardised.shape))
        for rows, phi in self._blocks():
            for k, posterior in enumerate(posteriors):
                mean, variances[rows, k] = posterior.moments(phi)
                errors[rows, k] = standardised[rows, k] - mean
                differences[rows, k] = mean - phi @ self._fitted.latent.coefficients[:, k]
        if np.sqrt(np.mean(np.square(differences))) > LARGEST_DIFFERENCE:
            raise ValueError("X, y and sample_weight must be those of the fit, got others")
        return errors, variances

    def _blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        with single_blas_thread():
            for rows in self._fitted.blocks(self._x):
                yield rows, self._fitted.latent.phi(self._x[rows])[1]

    def leave_one_out(self, X: ArrayLike) -> RowEffects:
        """Return what every training row did to predictions at the rows of X.

        A row is taken out with its whole weight. Of a row with duplicates, one is: take out all of
        them with `leave_out`.
        """
        at, with_all = self._places(X)
        mean, variance = np.empty((2, len(at), len(self._x), len(self._each)))
        for rows, phi in self._blocks():
            weight = None if self._weight is None else self._weight[rows]
            for k, (posterior, errors, variances) in enumerate(self._each):
                effects = influence_of_each(posterior, at, phi, errors[rows], weight, variances[rows])
                mean[:, rows, k], variance[:, rows, k] = effects
        return self._in_units(with_all[:, None], mean, variance)

    def leave_out(self, rows: ArrayLike, X: ArrayLike) -> RowEffects:
        """Return what a group of training rows did together to predictions at the rows of X."""
        index = _as_index(rows, len(self._x))
        at, with_all = self._places(X)
        group, weight = self._x[index], None if self._weight is None else self._weight[index]
        mean, variance = np.empty((2, len(at), len(self._each)))
        if len(index) < at.shape[1] or (weight is not None and not weight.any()):
            phi = self._fitted.latent.phi(group)[1]
            for k, (posterior, errors, _) in enumerate(self._each):
                mean[:, k], variance[:, k] = influence_of_few(posterior, at, phi, errors[index], weight)
        else:
            sums = self._sums(group, np.stack([errors[index] for _, errors, _ in self._each], axis=1), weight)
            for k, (posterior, *_) in enumerate(self._each):
                mean[:, k], variance[:, k] = influence_of_group(posterior, at, sums.target(k))
        return self._in_units(with_all, mean, variance)

    def _places(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return Φ at the rows of X, and the variance of y there, standardised, (n_places, n_outputs)."""
        x = self.model.encode_rows(X)
        inputs, at = self._fitted.latent.phi(x)
        noise = [values @ weights for weights, values in self._fitted.noise_of(x)]
        latent = [posterior.moments(at)[1] for posterior, *_ in self._each]
        beyond = self._fitted.latent.beyond(inputs, at)
        return at, np.stack(latent, axis=1) + np.stack(noise, axis=1) + (0.0 if beyond is None else beyond)

    def _in_units(self, with_all: FloatArray, mean: FloatArray, variance: FloatArray) -> RowEffects:
        """Return effects in units of the targets, from standardised ones; outputs are the last axis.

        `with_all`: variance of y.
        """
        units = self._fitted.units
        std = np.sqrt(with_all) - np.sqrt(with_all - np.minimum(variance, 0.0))
        effects = units.scale * mean, units.calibration * units.scale * std
        return RowEffects(*(effect[..., 0] if units.one_dimensional else effect for effect in effects))


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


def _with_formula(model: DirectRegressor) -> FittedRegressor:
    """Return the fitted model, or raise unless it is of Gaussian weights, given sums over rows of equal noise."""
    problem = "effects of rows have no exact form"
    fitted = gaussian_regressor(model, problem)
    if fitted.units.active is not None:
        raise ValueError(f"{problem} with target_transform={model.target_transform!r}: fit to transformed targets")
    if fitted.local is not None:
        raise ValueError(f"{problem} with a local process: fit with local=False")
    if fitted.noise is not None and not {*fitted.noise.choices} <= {CONSTANT, HEAVY_TAILED}:
        raise ValueError(f"{problem} where the noise varies or is Student-t: fit with noise='constant'")
    return fitted
