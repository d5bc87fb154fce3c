"""What rows of the training data did: predictions without them, and their influence on those of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

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


class LeftOutRows:
    """Training rows predicted without themselves, exactly, without refits.

    Predictions are those of refits without the row, and all its copies unless they are replicates (see `fit`), but that
    the feature map, the hyperparameters and the noise variance keep the row: compare models of one feature map by them;
    on few rows with little noise they are too good for an estimate of the test error.

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
        fitted = gaussian_regressor(model, "rows without themselves have no exact predictions")
        if fitted.noise is not None:
            kinds = ", ".join(fitted.noise.choices)
            raise ValueError(f"noise must be of one variance for all rows, got {kinds}: fit with noise='constant'")
        self.model = model
        self._fitted = fitted.without_local("predictions of rows without themselves")
        x = model.encode_rows(X)
        targets = targets_of_fit(fitted, y, len(x))
        weight = as_sample_weight(sample_weight, len(x))
        require_total(fitted, len(x), weight)
        rows = TrainingRows(x, fitted.units.standardised(targets), weight)
        if (np.abs(weighted_location_scale(rows.y, weight)[0]) > ROUNDING).any():
            raise ValueError("X, y and sample_weight must be those of the fit, got others")
        with threads(model.n_threads):
            self._predict_rows(rows, targets)

    def _predict_rows(self, rows: TrainingRows, targets: FloatArray) -> None:
        fitted, units = self._fitted, self._fitted.units
        latent, basis = fitted.latent, fitted.basis
        rotated = decorrelate(collect_statistics(basis.map, basis.inputs(rows.x), rows.y, rows.weight))
        with single_blas_thread():
            (left,) = left_out([fitted], rows, rotated)
        density = (left.log_density(rows.y[left.first]) - np.log(units.scale))[left.where]
        if units.active is not None:
            density = density + units.active.log_derivative(targets)
        self.residuals = units.shape(units.scale * left.found.residuals[left.where])
        self.log_density = units.shape(density)
        # What intervals need of the distinct rows.
        used = np.flatnonzero(left.count > 0)
        if len(used) > MAX_ROWS:
            used = np.sort(np.random.default_rng(0).choice(used, CHOSEN_ROWS, replace=False))
        self._x = rows.x[left.first[used]]
        self._counts = (left.count / rows.counts.unit)[used]
        # A row's share in the mean of f anywhere is this times the posterior covariance of f there and at the row.
        self._pulls = (left.precision * left.found.residuals)[used]
        self._scores = np.abs(left.found.studentised)[used]
        tau = np.array([p.noise.precision / fitted.repetitions for p in latent.posteriors])
        variances = 1 / (np.outer(rotated.eigenvalues, tau) + 1 / latent.prior_scale**2)
        self._posteriors = []
        for k, (p, scale) in enumerate(zip(latent.posteriors, latent.prior_scale, strict=True)):
            # Posteriors drop the directions that the data say least about, which come first.
            own = np.ascontiguousarray(variances[len(variances) - len(p.mean) :, k])
            self._posteriors.append(GaussianPosterior(p.rotation, scale * p.mean, own, float(scale**2)))

    def __repr__(self) -> str:
        return f"<LeftOutRows of {len(self.residuals)} rows by {self.model!r}>"

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
        latent, noise = self._fitted.latent, self._fitted.mean_noise
        inputs, phi = latent.phi(x)
        beyond = latent.beyond(inputs, phi)
        covariances = np.vstack([posterior.covariances(phi) for posterior in self._posteriors])
        project, n_threads = latent.basis.projection(covariances.T), resolve_n_threads()
        shares = np.empty((len(self._posteriors), len(x), len(self._x)))
        for rows in self._fitted.blocks(self._x):
            among = project(latent.basis.inputs(self._x[rows]), n_threads)
            for k, own in enumerate(np.split(among.T, len(self._posteriors))):
                shares[k, :, rows] = own * self._pulls[rows, k]
        bounds = np.empty((2, len(x), len(self._posteriors)))
        for k, posterior in enumerate(self._posteriors):
            mean, variance = phi @ latent.coefficients[:, k], posterior.moments(phi)[1]
            spread = np.sqrt(variance + noise[k] + (0.0 if beyond is None else beyond[:, k]))
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


# --- models and rows that formulas are for


def gaussian_regressor(model: Any, problem: str) -> FittedRegressor:
    """Return the fitted model, or raise, with the problem, unless its weights are Gaussian given rows."""
    as_instance(model, "model", DirectRegressor)
    check_is_fitted(model)
    fitted: FittedRegressor = model.model_
    if hasattr(model, "noisy_statistics_"):
        raise ValueError(f"{problem} where only sums with noise are known: fit to the rows")
    if not all(isinstance(posterior, GaussianPosterior) for posterior in fitted.posteriors):
        raise ValueError(f"{problem} with posterior={model.posterior!r}: fit with posterior='gaussian'")
    return fitted


def targets_of_fit(fitted: FittedRegressor, y: ArrayLike, n_rows: int) -> FloatArray:
    """Return targets (n_rows, n_outputs) of the outputs of a model."""
    targets = as_target(y, n_rows)
    if targets.shape[1] != fitted.units.n_outputs:
        raise ValueError(f"y must have {fitted.units.n_outputs} outputs, as in fit, got {targets.shape[1]}")
    return targets


def require_total(fitted: FittedRegressor, n_rows: int, weight: FloatArray | None) -> None:
    """Raise unless rows have the total weight of those of the fit."""
    total = float(n_rows if weight is None else weight.sum())
    if abs(total - fitted.n_samples) > ROUNDING * fitted.n_samples:
        raise ValueError(f"X must be the rows of the fit, {fitted.n_samples:g} by their weights, got {total:g}")


# --- influence

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
        raise ValueError(f"{problem} of {fitted.units.active}: fit with target_transform=None")
    if fitted.local is not None:
        raise ValueError(f"{problem} with a local process: fit with local=False")
    if fitted.noise is not None and not {*fitted.noise.choices} <= {CONSTANT, HEAVY_TAILED}:
        raise ValueError(f"{problem} where the noise varies or is Student-t: fit with noise='constant'")
    return fitted
