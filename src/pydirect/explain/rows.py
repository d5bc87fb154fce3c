"""What rows of the training data did: predictions without them, and their influence on those of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._dense import solve_factored
from pydirect._threads import resolve_n_threads, single_blas_thread, threads
from pydirect._validation import FloatArray, as_instance, as_number, as_sample_weight, as_target, short_repr
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.rows import TrainingRows
from pydirect.fitted.regression import FittedRegressor, left_out
from pydirect.linear.leave_one_out import (
    cooks_distance,
    influence_of_each,
    influence_of_few,
    influence_of_group,
    jackknife_plus,
)
from pydirect.linear.posterior import FactoredPosterior, GaussianPosterior
from pydirect.noise.model import CONSTANT, HEAVY_TAILED
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics, weighted_location_scale
from pydirect.statistics.rotated import Standardised, decorrelate

# Of more training rows than the first number, intervals use a random choice of the second.
MAX_ROWS, CHOSEN_ROWS = 20_000, 5_000
# Covariances of new rows and training rows in memory at a time.
COVARIANCE_BYTES = 128 * 2**20
# Relative, of the total weight of the rows, and of means of standardised targets.
ROUNDING = 1e-9
# Of standardised means at the training rows, from those of the model: larger ones are of other rows, as directions
# about which the rows say next to nothing, which models drop, move them by less than this.
LARGEST_DIFFERENCE = 1e-2
OTHERS = "X, y and sample_weight must be those of the fit, got others"


class KnownRows:
    """Rows of a fit and a model whose weights are Gaussian given sums over rows.

    - `problem`: What the model has no formula for otherwise.
    """

    def __init__(
        self, model: DirectRegressor, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, problem: str
    ) -> None:
        as_instance(model, "model", DirectRegressor)
        check_is_fitted(model)
        self.model, self._fitted = model, self._with_formula(model.model_, problem)
        self._fitted.latent.require_no_effects("rows without themselves")
        if hasattr(model, "noisy_statistics_"):
            raise ValueError(f"{problem} where only sums with noise are known: fit to the rows")
        if not all(isinstance(posterior, GaussianPosterior) for posterior in self._fitted.posteriors):
            raise ValueError(f"{problem} with posterior={model.posterior!r}: fit with posterior='gaussian'")
        self._x = model.encode_rows(X)
        self._targets, n_outputs = as_target(y, len(self._x)), self._fitted.units.n_outputs
        if self._targets.shape[1] != n_outputs:
            raise ValueError(f"y must have {n_outputs} outputs, as in fit, got {self._targets.shape[1]}")
        self._weight = as_sample_weight(sample_weight, len(self._x), all_zero=True)
        self._precision = np.ones(len(self._x))
        absent = model.columns_.encode_and_mark(X)[1]
        if absent.any() and not hasattr(model, "statistics_"):  # sums over rows take what was filled in as known
            with threads(model.n_threads):
                self._precision = self._fitted.precisions(self._x, model.columns_.draws_of_missing(self._x, absent))

    def _with_formula(self, fitted: FittedRegressor, problem: str) -> FittedRegressor:
        """Return the model, or raise unless there is a formula for its noise and units."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._x)} rows by {self.model!r}>"

    def _require_total(self) -> None:
        """Raise unless the rows have the total weight of those of the fit."""
        known = self._fitted.n_samples
        total = float(len(self._x) if self._weight is None else self._weight.sum())
        if abs(total - known) > ROUNDING * known:
            raise ValueError(f"X must be the rows of the fit, {known:g} by their weights, got {total:g}")

    def _sums(self, x: FloatArray, targets: FloatArray, weight: FloatArray | None) -> GaussianStatistics:
        basis = self._fitted.basis.for_sums(len(x), 0.0)  # of Φ: nothing magnifies their rounding
        return collect_statistics(basis.map, basis.inputs(x), targets, weight)

    def _posteriors(self, sums: GaussianStatistics) -> list[FactoredPosterior]:
        """Return the posterior of every output's weights, at the noise and prior variances of the model."""
        each = enumerate(zip(self._fitted.posteriors, self._fitted.latent.prior_scale**2, strict=True))
        repetitions = self._fitted.repetitions
        return [FactoredPosterior.of(sums.target(k), repetitions / p.noise.precision, t) for k, (p, t) in each]


class LeftOutRows(KnownRows):
    """Training rows predicted without themselves, exactly, without refits.

    Predictions are those of refits without the row, and all its copies unless they are replicates (see `fit`), but that
    the feature map, the hyperparameters and the noise variance keep the row: compare models of one feature map by them;
    on few rows with little noise they are too good for an estimate of the test error. How much rows with gaps count is
    found anew by the model, which differs a little from what the fit found on its way.

    Parameters
    ----------
    model : DirectRegressor
        Fitted, with Gaussian weights and noise of one variance (``noise="constant"`` or a number). A local process is
        left out, with a warning.
    X : array_like of shape (n_rows, n_features_in)
        The rows of the fit.
    y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        Their targets.
    sample_weight : array_like of shape (n_rows,), optional
        As in the fit.

    Attributes
    ----------
    residuals : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        (Transformed) targets minus their means predicted without the row.
    log_density : ndarray of the same shape
        Log densities of the targets, in their own units, predicted without the row.

    Raises
    ------
    ValueError
        If rows are not those of the fit, or no formula predicts rows without themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor
    >>> from pydirect.explain import LeftOutRows
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> y = X @ [1.0, 2.0, 0.0] + 0.1 * np.random.default_rng(1).standard_normal(100)
    >>> rows = LeftOutRows(DirectRegressor("linear", noise="constant").fit(X, y), X, y)
    >>> bool(0.08 < rows.residuals.std() < 0.12)
    True
    >>> lower, upper = rows.predict_interval(X, level=0.9)
    """

    def __init__(
        self, model: DirectRegressor, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> None:
        super().__init__(model, X, y, sample_weight, "rows without themselves have no exact predictions")
        self._require_total()
        fitted, units = self._fitted, self._fitted.units
        rows = TrainingRows(self._x, units.standardised(self._targets), self._weight, self._precision)
        if (np.abs(weighted_location_scale(rows.y, rows.weight)[0]) > ROUNDING).any():
            raise ValueError(OTHERS)
        with threads(model.n_threads), single_blas_thread():
            sums = self._sums(rows.x, rows.y, rows.information)
            self._each = self._posteriors(sums)
            (left,) = left_out([fitted], rows, decorrelate(sums))
        density = (left.log_density(rows.y[left.first]) - np.log(units.scale))[left.where]
        if units.active is not None:
            density = density + units.active.log_derivative(self._targets)
        self.residuals = units.shape(units.scale * left.found.residuals[left.where])
        self.log_density = units.shape(density)
        # What intervals need of the distinct rows.
        used = np.flatnonzero(left.count > 0)
        if len(used) > MAX_ROWS:
            used = np.sort(np.random.default_rng(0).choice(used, CHOSEN_ROWS, replace=False))
        self._distinct, self._counts = rows.x[left.first[used]], (left.count / rows.counts.unit)[used]
        # A row's share in the mean of f anywhere is this times the posterior covariance of f there and at the row.
        self._pulls = (left.precision * left.found.residuals)[used]
        self._scores = np.abs(left.found.studentised)[used]

    def _with_formula(self, fitted: FittedRegressor, problem: str) -> FittedRegressor:
        if fitted.noise is not None:
            kinds = ", ".join(fitted.noise.choices)
            raise ValueError(f"noise must be of one variance for all rows, got {kinds}: fit with noise='constant'")
        return fitted.without_local("predictions of rows without themselves")

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict intervals from the residuals in units of the predictive standard deviation: the jackknife+.

        They contain the target with probability `level` at least approximately where the model is wrong about its
        noise. Copies of a row are left out together, replicates one by one, and count as often as given; of more than
        20,000 rows, 5000 random ones are used. Hyperparameters are not learned again without each row, so the guarantee
        of Barber et al. (2021) is that of the fit given them.

        Parameters
        ----------
        X : array_like of shape (n_new, n_features_in)
            Rows of inputs.
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_new,) or (n_new, n_outputs)
            Ends of the intervals, in the target's units.
        """
        as_number(level, "level", above=0.0, below=1.0)
        x, units = self.model.encode_rows(X), self._fitted.units
        bounds = np.empty((2, len(x), units.n_outputs))
        with threads(self.model.n_threads), single_blas_thread():
            size = max(1, COVARIANCE_BYTES // (8 * self._pulls.size))
            for begin in range(0, len(x), size):
                rows = slice(begin, begin + size)
                bounds[:, rows] = self._bounds(x[rows], level)
        lower, upper = (units.shape(units.restored(units.location + units.scale * bound)) for bound in bounds)
        return lower, upper

    def _bounds(self, x: FloatArray, level: float) -> FloatArray:
        """Ends of intervals of standardised targets, (2, n_rows, n_outputs)."""
        latent, noise, bounds = self._fitted.latent, self._fitted.mean_noise, np.empty((2, len(x), len(self._each)))
        inputs, phi = latent.phi(x)
        beyond = latent.beyond(inputs, phi)
        project = latent.basis.projection(np.hstack([solve_factored(own.factor, phi.T) for own in self._each]))
        shares = np.empty((len(self._each), len(x), len(self._distinct)))
        for rows in self._fitted.blocks(self._distinct):
            among = project(latent.basis.inputs(self._distinct[rows]), resolve_n_threads())
            shares[:, :, rows] = among.T.reshape(len(shares), len(x), -1) * self._pulls[rows].T[:, None]
        for k, posterior in enumerate(self._each):
            mean, variance = phi @ latent.coefficients[:, k], posterior.moments(phi)[1]
            spread = np.sqrt(variance + noise[k] + beyond[:, k])
            bounds[:, :, k] = jackknife_plus(mean, spread, shares[k], self._scores[:, k], self._counts, level)
        return bounds


def compare_left_out(rows: Sequence[LeftOutRows]) -> dict[str, FloatArray]:
    """Compare models of the same training rows by the log densities of every row without itself.

    The difference of two models is a sum over rows, whose standard error follows from its spread (Vehtari, Gelman &
    Gabry 2017, eq. 24). The feature map and the hyperparameters keep the row that is left out: differences are those of
    new data for models of one feature map, and lean towards the more flexible map otherwise.

    Parameters
    ----------
    rows : sequence of LeftOutRows
        One per model, of the same rows in the same order.

    Returns
    -------
    dict of str to ndarray of shape (n_models,)
        ``"log_density"``, summed over rows and outputs; ``"difference"``, how far it is below the largest; and
        ``"standard_error"`` of the difference.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, fit_many
    >>> from pydirect.explain import LeftOutRows, compare_left_out
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> y = X @ [1.0, 2.0, 0.0] + 0.1 * np.random.default_rng(1).standard_normal(100)
    >>> models = fit_many([DirectRegressor("linear", noise=noise) for noise in (0.01, 1.0)], X, y)
    >>> compare_left_out([LeftOutRows(model, X, y) for model in models])["difference"].round(-1).tolist()
    [0.0, 190.0]
    """
    for each in rows:
        as_instance(each, "rows", LeftOutRows)
    shapes = {each.log_density.shape for each in rows}
    if len(shapes) != 1:
        raise ValueError(f"models must be of the same rows and outputs, got shapes {sorted(shapes)}")
    densities = np.stack([each.log_density.reshape(len(each.log_density), -1).sum(axis=1) for each in rows])
    total = densities.sum(axis=1)
    below = densities[total.argmax()] - densities
    error = np.sqrt(densities.shape[1]) * below.std(axis=1)
    return {"log_density": total, "difference": total.max() - total, "standard_error": error}


# --- influence


@dataclass(frozen=True)
class RowEffects:
    """What rows did to predictions: with all rows, less without these.

    - `mean`, `std` (n_places, n_rows): Change of the predictive mean and of the predictive standard deviation, noise
      included, in the target's units.
    """

    mean: FloatArray
    std: FloatArray

    __repr__ = short_repr


class RowInfluence(KnownRows):
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
        super().__init__(model, X, y, sample_weight, "effects of rows have no exact form")
        latent, units = self._fitted.latent, self._fitted.units
        targets = (self._targets - units.location) / units.scale
        counts = self._precision if self._weight is None else self._precision * self._weight
        mean, variances = np.empty((2, *targets.shape))
        with threads(model.n_threads), single_blas_thread():
            if hasattr(model, "statistics_"):
                sums = Standardised.of(model.statistics_, 1.0).gaussian
            else:
                self._require_total()
                sums = self._sums(self._x, targets, counts)
            posteriors = self._posteriors(sums)
            for rows in self._fitted.blocks(self._x):
                phi = latent.phi(self._x[rows])[1]
                for k, posterior in enumerate(posteriors):
                    mean[rows, k], variances[rows, k] = posterior.moments(phi)
            known = latent.moments(self._x, with_variance=False)[0]
        if np.sqrt(np.mean(np.square(mean - known))) > LARGEST_DIFFERENCE:
            raise ValueError(OTHERS)
        errors, precisions = targets - mean, counts[:, None] / [posterior.noise_variance for posterior in posteriors]
        leverage = precisions * variances
        none = np.flatnonzero((leverage > 1 + LARGEST_DIFFERENCE).any(axis=1))
        if len(none):
            raise ValueError(f"X must be rows of the fit, with their weights: row {none[0]} is none of them")
        leverage = np.clip(leverage, 0.0, 1.0)
        distances = [cooks_distance(*own) for own in zip(errors.T, leverage.T, precisions.T, strict=True)]
        self._counts, self._each = counts, list(zip(posteriors, errors.T, variances.T, strict=True))
        self.leverage_, self.residual_ = units.shape(leverage), units.shape(units.scale * errors)
        self.cooks_distance_ = units.shape(np.stack(distances, axis=1))

    def _with_formula(self, fitted: FittedRegressor, problem: str) -> FittedRegressor:
        if fitted.units.active is not None:
            raise ValueError(f"{problem} of {fitted.units.active}: fit with target_transform=None")
        if fitted.local is not None:
            raise ValueError(f"{problem} with a local process: fit with local=False")
        if fitted.noise is not None and not {*fitted.noise.choices} <= {CONSTANT, HEAVY_TAILED}:
            raise ValueError(f"{problem} where the noise varies or is Student-t: fit with noise='constant'")
        return fitted

    def leave_one_out(self, X: ArrayLike) -> RowEffects:
        """Return what every training row did to predictions at the rows of X.

        A row is taken out with its whole weight. Of a row with duplicates, one is: take out all of
        them with `leave_out`.
        """
        at, with_all = self._places(X)
        effects = np.empty((2, len(at), len(self._x), len(self._each)))
        with single_blas_thread():
            for rows in self._fitted.blocks(self._x):
                phi = self._fitted.latent.phi(self._x[rows])[1]
                for k, (posterior, errors, variances) in enumerate(self._each):
                    own = errors[rows], self._counts[rows], variances[rows]
                    effects[:, :, rows, k] = influence_of_each(posterior, at, phi, *own)
        return self._in_units(with_all[:, None], *effects)

    def leave_out(self, rows: ArrayLike, X: ArrayLike) -> RowEffects:
        """Return what a group of training rows did together to predictions at the rows of X."""
        index = _as_index(rows, len(self._x))
        at, with_all = self._places(X)
        group, weight = self._x[index], self._counts[index]
        effects = np.empty((2, len(at), len(self._each)))
        if len(index) < at.shape[1] or not weight.any():
            phi = self._fitted.latent.phi(group)[1]
            for k, (posterior, errors, _) in enumerate(self._each):
                effects[:, :, k] = influence_of_few(posterior, at, phi, errors[index], weight)
        else:
            sums = self._sums(group, np.stack([errors[index] for _, errors, _ in self._each], axis=1), weight)
            for k, (posterior, *_) in enumerate(self._each):
                effects[:, :, k] = influence_of_group(posterior, at, sums.target(k))
        return self._in_units(with_all, *effects)

    def _places(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return Φ at the rows of X, and the variance of y there, standardised, (n_places, n_outputs)."""
        x, latent = self.model.encode_rows(X), self._fitted.latent
        inputs, at = latent.phi(x)
        variance = np.stack([posterior.moments(at)[1] for posterior, *_ in self._each], axis=1)
        return at, variance + self._fitted.expected_noise(x) + latent.beyond(inputs, at)

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
    try:
        index = np.arange(n_rows)[np.asarray(rows)]
    except IndexError as error:
        raise ValueError(f"rows must be indices below {n_rows} or a mask of all rows, got {rows!r}") from error
    if index.ndim != 1 or not 0 < len(index) == len(np.unique(index)):
        raise ValueError(f"rows must be one or more, all different, got {rows!r}")
    return index
