"""Leave-one-out predictions of the rows of a fit, and intervals from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_flag, as_number
from pydirect.distributions.priors import GaussianPrior, as_prior
from pydirect.estimators._fitting import StatisticsModel, inference_rng
from pydirect.estimators._private import PrivateModel
from pydirect.features.evidence import TrainingRows
from pydirect.linear.jackknife import CHOSEN_ROWS, MAX_ROWS, Jackknife, jackknife_plus
from pydirect.linear.leave_one_out import LeaveOneOut, RidgePosterior, leave_one_out, ridge_of_rows
from pydirect.persistence.fields import Arrays, Header, Writer, build_one, require_array
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.statistics.rotated import RotatedStatistics

INTERVALS = ("posterior", "jackknife+")
# Covariances of new rows and training rows held at a time.
COVARIANCE_BYTES = 128 * 2**20


@dataclass(frozen=True)
class LeftOut:
    """Predictions of distinct training rows without themselves, standardised.

    - `first`, (n_distinct,): index of each among the rows given; `where`, (n_rows,): the number of each row given.
    - `count`, (n_distinct,): total weights; `precision`, (n_distinct, n_outputs): over σ², those
      of one measurement or of all copies.
    - `epistemic`, (n_distinct, n_outputs): variance of f, and of what the basis functions miss of it.
    """

    found: LeaveOneOut
    posterior: RidgePosterior
    first: NDArray[np.intp]
    where: NDArray[np.intp]
    count: FloatArray
    precision: FloatArray
    epistemic: FloatArray

    def log_density(self, model: StatisticsModel, targets: FloatArray) -> FloatArray:
        """Log density of distinct rows' targets over the posterior of the noise, (n_distinct, n_outputs)."""
        densities = np.empty_like(targets)
        for k, spread in enumerate(self.epistemic.T):
            noise = model.posteriors_[k].noise
            mixture = PredictiveDistribution(noise.q, self.found.means[:, k, None], spread[:, None] + noise.levels)
            densities[:, k] = mixture.log_density(targets[:, k])
        return densities


def left_out(models: Sequence[StatisticsModel], rows: TrainingRows, rotated: RotatedStatistics) -> list[LeftOut]:
    """Predict the rows of fits in the decorrelated basis without themselves, at each one's noise and prior variances.

    Parameters
    ----------
    models : sequence of StatisticsModel
        With one feature map, ``posteriors_`` and ``prior_scale_``; they share the pass over the rows.
    rows : TrainingRows
    rotated : RotatedStatistics
        Of these rows.
    """
    first, count, where = rows.merged
    x, y, one = rows.x[first], rows.y[first], rows.counts.left_out(count)
    tau = np.array([[p.noise.precision / model.repetitions_ for p in model.posteriors_] for model in models])
    together = replace(rotated, c=np.tile(rotated.c, len(models)), yty=np.tile(rotated.yty, len(models)))
    prior_variance = np.concatenate([model.prior_scale_ for model in models]) ** 2
    posterior = ridge_of_rows(together, tau.ravel(), prior_variance)
    mean, variance, missing = np.zeros((3, len(x), len(models), rotated.n_outputs))
    with single_blas_thread():
        for block in models[0]._blocks(x):
            inputs, phi = models[0]._features_of(x[block])
            moments = posterior.moments(phi)
            mean[block], variance[block] = (moment.reshape(mean[block].shape) for moment in moments)
            for m, model in enumerate(models):
                beyond = model._missing_variance(inputs, phi)
                missing[block, m] = 0.0 if beyond is None else beyond
    results = []
    for m, model in enumerate(models):
        precision, noise = one[:, None] * tau[m], model._mean_noise_variance()
        found = leave_one_out(y, mean[:, m], variance[:, m], precision, noise, missing[:, m])
        own = posterior.outputs(slice(m * rotated.n_outputs, (m + 1) * rotated.n_outputs))
        results.append(LeftOut(found, own, first, where, count, precision, found.latent_variances + missing[:, m]))
    return results


class LeavingOneOut(PrivateModel):
    """Base of regressors that can predict their training rows without themselves."""

    store_loo: bool
    noise: str | float
    loo_residuals_: FloatArray
    loo_log_density_: FloatArray
    _jackknife: Jackknife

    def _forget(self) -> None:
        super()._forget()
        for name in ("loo_residuals_", "loo_log_density_", "_jackknife"):
            self.__dict__.pop(name, None)

    def _check_leaving_out(self) -> None:
        """Raise unless leave-one-out predictions are exact."""
        if as_flag(self.store_loo, "store_loo"):
            self._require_formula("store_loo must be False")

    def _require_formula(self, problem: str) -> None:
        """Raise, with the problem, unless a formula predicts a row without itself."""
        if self.basis != "decorrelated":
            raise ValueError(f"{problem} with basis={self.basis!r}; use basis='decorrelated'")
        if not isinstance(as_prior(self.prior), GaussianPrior):
            raise ValueError(f"{problem} with a prior that is not Gaussian; use prior='gaussian'")
        if self.noise in ("varying", "student_t"):
            raise ValueError(f"{problem} with noise={self.noise!r}; use another noise")

    def _check_without_rows(self) -> None:
        super()._check_without_rows()
        if self.store_loo:
            raise ValueError("store_loo must be False where only sums over rows are kept; use fit")

    def store_left_out(self, rows: TrainingRows, rotated: RotatedStatistics) -> None:
        """Set what predictions of the rows without themselves say."""
        (left,) = left_out([self], rows, rotated)
        density = left.log_density(self, rows.y[left.first]) - np.log(self.y_scale_)
        self.loo_residuals_ = self._shape(self.y_scale_ * left.found.residuals[left.where])
        self.loo_log_density_ = self._shape(density[left.where])
        used = np.flatnonzero(left.count > 0)
        if len(used) > MAX_ROWS:
            used = np.sort(inference_rng(self._generator()).choice(used, CHOSEN_ROWS, replace=False))
        self._jackknife = Jackknife.of(
            rows.x[left.first], left.count / rows.counts.unit, left.precision, left.found, left.posterior
        ).chosen(used)

    # --- intervals

    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, method: str = "posterior"
    ) -> tuple[FloatArray, FloatArray]:
        """Predict intervals that contain the target with probability `level`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
        level : float in (0, 1), default=0.9
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
        """
        if as_choice(method, "method", INTERVALS) == "posterior":
            return super().predict_interval(X, level)
        as_number(level, "level", above=0.0, below=1.0)
        x = self._check_rows(X)
        if not hasattr(self, "_jackknife"):
            raise ValueError("method='jackknife+' needs residuals of the training rows: fit with store_loo=True")
        lower, upper = np.empty((2, len(x), len(self.posteriors_)))
        with single_blas_thread():
            size = max(1, COVARIANCE_BYTES // (8 * self._jackknife.pulls.size))
            for begin in range(0, len(x), size):
                rows = slice(begin, begin + size)
                lower[rows], upper[rows] = self._jackknife_plus(x[rows], level)
        return tuple(self._shape(self.y_mean_ + self.y_scale_ * bound) for bound in (lower, upper))  # type: ignore[return-value]

    def _jackknife_plus(self, x: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of standardised targets, (n_rows, n_outputs) each."""
        kept, noise = self._jackknife, self._mean_noise_variance()
        inputs, phi = self._features_of(x)
        missing = self._missing_variance(inputs, phi)
        posteriors = [
            kept.posterior(k, p.rotation, self.coefficients_[:, k], float(self.prior_scale_[k] ** 2))
            for k, p in enumerate(self.posteriors_)
        ]
        covariances = np.vstack([posterior.covariances(phi) for posterior in posteriors])
        project, n_threads = self.features_.projection(covariances.T), resolve_n_threads(self.n_threads)
        shares = np.empty((len(posteriors), len(x), len(kept.rows)))
        for rows in self._blocks(kept.rows):
            among = project(self.features_.inputs(kept.rows[rows]), n_threads)
            for k, own in enumerate(np.split(among.T, len(posteriors))):
                shares[k, :, rows] = own * kept.pulls[rows, k]
        bounds = np.empty((2, len(x), len(posteriors)))
        for k, posterior in enumerate(posteriors):
            mean, variance = (moment[:, 0] for moment in posterior.moments(phi))
            spread = np.sqrt(variance + noise[k] + (0.0 if missing is None else missing[:, k]))
            bounds[:, :, k] = jackknife_plus(mean, spread, shares[k], kept.scores[:, k], kept.weights, level)
        return bounds[0], bounds[1]

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        header = super()._to_fields(writer)
        if not hasattr(self, "_jackknife"):
            return {**header, "jackknife": None}
        writer.arrays |= {"loo_residuals": self.loo_residuals_, "loo_log_density": self.loo_log_density_}
        return {**header, "jackknife": writer.fields(self._jackknife, "jackknife")}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        if header["jackknife"] is None:
            return
        n_outputs = len(self.posteriors_)
        self._jackknife = build_one((Jackknife,), header["jackknife"], arrays, "jackknife")
        self._jackknife.check(self.features_.n_features_in, n_outputs)
        n_directions = max(p.rotation.shape[1] for p in self.posteriors_)
        if len(self._jackknife.variances) < n_directions:
            raise ValueError("jackknife does not fit the posteriors")
        self.loo_residuals_, self.loo_log_density_ = arrays["loo_residuals"], arrays["loo_log_density"]
        shape = ("n_samples",) if self._one_dimensional else ("n_samples", n_outputs)
        require_array(self.loo_residuals_, "loo_residuals", *shape)
        require_array(self.loo_log_density_, "loo_log_density", *self.loo_residuals_.shape)
