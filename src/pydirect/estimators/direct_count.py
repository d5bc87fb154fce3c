"""`DirectCountRegressor`: counts with a log link, Poisson or negative binomial."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from pydirect._documentation import described_by, rows
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator, as_weights
from pydirect._warnings import warn
from pydirect.estimators._classifier import OfLabels
from pydirect.estimators._estimator import of_model
from pydirect.estimators.choices import RegressionPlan
from pydirect.estimators.direct_latent import DirectCensoredRegressor, LatentTargets, fit_latent, latent_of
from pydirect.estimators.summary import lines_of_model
from pydirect.features.basis import Basis
from pydirect.features.rows import TrainingRows
from pydirect.fitted.classification import FittedCounts
from pydirect.logistic.count_likelihood import (
    POISSON,
    CountDistribution,
    CountLikelihood,
    as_counts,
    likeliest_dispersion,
)
from pydirect.logistic.kernel_evidence import LOG_RATE_UNIT, largest_log_rate_amplitude, stabilised
from pydirect.logistic.latent import LatentLikelihood
from pydirect.logistic.problem import (
    LatentProblem,
    at_constant_rate,
    is_worse_than_constant,
    likelier_family,
    with_dispersion,
)
from pydirect.noise.student_t import warn_of_gross, within_reach
from pydirect.tables.encoding import ColumnEncoding

FAMILIES = ("auto", "poisson", "negative_binomial")
# Times the counts of the training rows that a fit may predict of them: at an optimum about once.
MOST_PREDICTED = 10.0
# How far beyond the largest log rate of the fit, of one count more than there was, log rates are believed.
BEYOND = 3.0


@dataclass(frozen=True)
class CountTargets(LatentTargets):
    """Counts and log exposures."""

    learns_offset: ClassVar[bool] = False

    family: str

    @property
    def learns_dispersion(self) -> bool:
        return self.family != "poisson"

    def parts(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return y[:, :1], self.intercept + y[:, 1]

    def likelihood_of(self, y: FloatArray, offset: FloatArray, weight: FloatArray) -> LatentLikelihood:
        return CountLikelihood(likeliest_dispersion(y[:, 0], offset, weight) if self.learns_dispersion else 0.0)

    def spread(self, y: FloatArray, offset: FloatArray) -> FloatArray:
        return stabilised(y[:, 0], offset)

    def largest_log_amplitude(self, y: FloatArray, offset: FloatArray) -> float:
        return largest_log_rate_amplitude(y[:, 0], offset)


def exposed() -> None:
    """Counts, and what their means are proportional to.

    Parameters
    ----------
    y : array_like of shape (n_rows,)
        Counts.
    exposure : float or array_like of shape (n_rows,), optional
        Exposure of every row, such as its time or its area: means are proportional to it; by default one, with a
        warning if the model was fitted with exposure.
    """


takes_exposure = described_by(rows, exposed)


@described_by(DirectCensoredRegressor)
@dataclass(eq=False, repr=False)
class DirectCountRegressor(RegressorMixin, OfLabels):
    """Bayesian regression of counts on basis functions: Poisson or negative binomial, with a log link.

    ``log E(y | w) = intercept + log exposure + φ(x)ᵀw``, with Gaussian weights. Predictive
    probabilities are integrals over their posterior.

    Parameters
    ----------
    family : {"auto", "poisson", "negative_binomial"}, default="auto"
        ``"negative_binomial"`` learns the dispersion α of Var(y | μ) = μ + αμ² by the ELBO. ``"auto"`` does so too and
        takes Poisson, α = 0, unless left-out counts are likelier with a dispersion.

    Attributes
    ----------
    model_ : FittedCounts
        The fitted model as frozen data.
    dispersion_ : float
        α; 0 for Poisson.
    intercept_ : float
        Log of the mean count per exposure in the data: the prior mean of log rates.
    left_out_log_loss_ : float
        Mean −log probability of the training counts, each left out of the posterior to second order.
    elbo_ : float
        Lower bound on the log probability of the counts, in nats.

    Notes
    -----
    The posterior is the Gaussian that maximises the ELBO. For Poisson its expectations are in closed form; a negative
    binomial is logistic regression with y successes in y + 1/α trials, and integrated as that is. See
    `pydirect.logistic`.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectCountRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = rng.poisson(np.exp(1 + np.sin(X[:, 0])))
    >>> model = DirectCountRegressor().fit(X, y)
    >>> lower, upper = model.predict_interval(X, level=0.9)
    >>> bool(np.mean((lower <= y) & (y <= upper)) > 0.85)
    True
    """

    model_: FittedCounts = field(init=False)

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedCounts}

    family: str = "auto"
    max_iter: int = 1000

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _plan(self) -> RegressionPlan:
        as_choice(self.family, "family", FAMILIES)
        return super()._plan()

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,)
            Counts: whole numbers from 0 on.
        sample_weight : array_like of shape (n_samples,), optional
            Number of times that each row counts; rows of weight zero count as absent.
        exposure : float or array_like of shape (n_samples,), optional
            What the mean count is proportional to, such as time, area or number of people; positive, by default 1.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        TargetWarning
            If a few gross counts carry most of the squares of all: they count as 20 median absolute deviations.
        UserWarning
            If counts are so heavy-tailed that the fit is worse than one rate for all rows, which is then predicted.
        """
        with self._whole():
            plan, (x, given) = self._plan(), self._validated(X, y, y_numeric=True)
            counts = as_counts(given, "y")
            log_exposure = _log_exposure(exposure, len(counts))
            weight = as_weights(sample_weight, len(counts))
            rates = (counts * np.exp(-log_exposure))[:, None]
            if warn_of_gross(rates, "fit without them: in the fit they count as no farther than that"):
                counts = np.minimum(counts, np.ceil(within_reach(rates)[:, 0] * np.exp(log_exposure)))
            total = float(weight @ counts) or 0.5 * min(1.0, float(weight.sum()))  # half a count where there is none
            intercept = float(np.log(total / (weight @ np.exp(log_exposure))))
            targets = CountTargets(POISSON, intercept, LOG_RATE_UNIT, self.family)
            finish = partial(self._settled, plan.max_iter, targets)
            fit_latent(self, x, np.stack([counts, log_exposure], axis=1), weight, targets, finish)
        return self

    def _settled(
        self, max_iter: int, targets: CountTargets, problem: LatentProblem, basis: Basis, rows: TrainingRows
    ) -> FittedCounts:
        """Choose the family, and weights that do not run away."""
        if self.family == "auto":
            problem = likelier_family(problem, max_iter)
        while True:
            fitted = _fitted_counts(problem, basis, rows, targets)
            if problem.stop.is_set() or not _runs_away(problem, fitted, rows):
                return fitted
            if self.family != "auto" or fitted.likelihood.dispersion == 0:
                break
            problem = with_dispersion(problem, 0.0).at_rest(max_iter)
        warn(
            "counts are too heavy-tailed to learn how their rate depends on X: the fit is worse than one rate for "
            "all rows, which is predicted; look for gross values in y, or cap it",
            UserWarning,
        )
        constant = at_constant_rate(problem, targets.learns_dispersion).at_rest(max_iter)
        return _fitted_counts(constant, basis, rows, targets)

    # --- results

    dispersion_, left_out_log_loss_ = of_model("likelihood.dispersion"), of_model("left_out_log_loss")

    # --- prediction

    @takes_exposure
    def predict_log_rate(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the log of the mean count per exposure: its posterior mean and, on request, standard deviation.

        Parameters
        ----------
        return_std : bool, default=False
            Whether to return standard deviations as well.

        Returns
        -------
        mean, std : ndarray of shape (n_rows,)
            Posterior mean and standard deviation of the log rate.
        """
        mean, std = self._asked("log_rate", X, return_std)
        return mean if std is None else (mean, std)

    @takes_exposure
    def predict_distribution(self, X: ArrayLike, *, exposure: ArrayLike | None = None) -> CountDistribution:
        """Predict the full distribution of the count.

        Returns
        -------
        CountDistribution
            One distribution per row.
        """
        model, x = self._at(X)
        log_exposure = self._known_log_exposure(exposure, len(x))
        with self._threads():
            return model.distribution(x, log_exposure)

    def _known_log_exposure(self, exposure: ArrayLike | None, n_rows: int) -> FloatArray:
        """Return log exposures, (n_rows,); warn where there are none though the model was fitted with some."""
        if exposure is None and self.model_.has_exposure:
            warn(
                "the model was fitted with exposure and predicts without: for an exposure of one. Give exposure=, "
                "which may be 1 (through cross_val_score and searches by scikit-learn's metadata routing and "
                "set_score_request(exposure=True))",
                UserWarning,
            )
        return _log_exposure(exposure, n_rows)

    @takes_exposure
    def predict(
        self, X: ArrayLike, return_std: bool = False, *, exposure: ArrayLike | None = None
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean count, over the posterior of the rate.

        Parameters
        ----------
        return_std : bool, default=False
            Also return the standard deviation of the count.

        Returns
        -------
        mean, std : ndarray of shape (n_rows,)
            Mean counts.
        """
        if not isinstance(return_std, bool | np.bool_):
            raise TypeError("return_std must be True or False: give exposure by name, predict(X, exposure=...)")
        found = self.predict_distribution(X, exposure=exposure)
        return (found.mean, found.std) if return_std else found.mean

    @takes_exposure
    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, *, exposure: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that contain the count, ends included, with a probability of at least `level`.

        Parameters
        ----------
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            Counts.
        """
        return self.predict_distribution(X, exposure=exposure).interval(level)

    @takes_exposure
    def log_predictive_probability(
        self, X: ArrayLike, y: ArrayLike, *, exposure: ArrayLike | None = None
    ) -> FloatArray:
        """Log probability of observed counts, (n_rows,), in nats; arguments as of `fit`.

        Returns
        -------
        ndarray of shape (n_rows,)
            In nats.
        """
        return self.predict_distribution(X, exposure=exposure).log_probability(y)

    @takes_exposure
    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: np.random.Generator | int | None = 0,
        *,
        exposure: ArrayLike | None = None,
    ) -> NDArray[Any]:
        """Draw counts from the predictive distribution, jointly at all rows, (n_rows, n_samples).

        Rows of a draw share their weights; what the basis functions miss of the rate is drawn too.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.

        Returns
        -------
        ndarray of shape (n_rows, n_samples)
            Counts.
        """
        model, x = self._at(X)
        n_samples, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        log_exposure = self._known_log_exposure(exposure, len(x))
        with self._threads():
            return model.sample(x, n_samples, rng, log_exposure)

    @takes_exposure
    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> float:
        """Share of the Poisson deviance that predictions explain, D²: 1 at best, 0 for one rate for all rows.

        Parameters
        ----------
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts; by default once.

        Returns
        -------
        float
            D².
        """
        mean = self.predict_distribution(X, exposure=exposure).mean
        counts = as_counts(as_float_array(y, "y", mean.shape), "y")
        weight = as_weights(sample_weight, len(mean))
        size = np.exp(_log_exposure(exposure, len(mean)))
        rate = (weight @ counts) / (weight @ size)
        unexplained, total = (float(weight @ poisson_deviance(counts, m)) for m in (mean, rate * size))
        return 1 - unexplained / total if total > 0 else float(unexplained == 0)

    def _words(self) -> list[str]:
        family = f"negative binomial, variance μ + {self.dispersion_:.3g} μ²" if self.dispersion_ else "Poisson"
        return [*lines_of_model(self), f"Counts: {family}."]


def _fitted_counts(problem: LatentProblem, basis: Basis, rows: TrainingRows, targets: CountTargets) -> FittedCounts:
    model = problem.rotated.model
    assert rows.weight is not None and isinstance(model, CountLikelihood)
    n_samples, has_exposure = float(rows.weight.sum()), bool(rows.y[:, 1].any())
    highest = float((np.log(rows.y[:, 0] + 1) - rows.y[:, 1]).max()) + BEYOND
    fitted = latent_of(problem, basis), targets.intercept, model, problem.log_loss, n_samples
    return FittedCounts(*fitted, has_exposure=has_exposure, highest=highest)


def _runs_away(problem: LatentProblem, fitted: FittedCounts, rows: TrainingRows) -> bool:
    """Return whether a fit is worse than one rate for all rows, or predicts far more counts than there were."""
    assert rows.weight is not None
    if is_worse_than_constant(problem):
        return True
    predicted = fitted.distribution(rows.x, rows.y[:, 1] + np.ravel(rows.offset)).mean
    return bool(rows.weight @ predicted > MOST_PREDICTED * max(float(rows.weight @ rows.y[:, 0]), 1.0))


def poisson_deviance(y: FloatArray, mean: FloatArray) -> FloatArray:
    """Twice the log likelihood that means lose against the counts themselves, (n_rows,)."""
    return np.asarray(2 * (xlogy(y, y) - xlogy(y, mean) - y + mean))


def _log_exposure(exposure: ArrayLike | None, n_rows: int) -> FloatArray:
    if exposure is None:
        return np.zeros(n_rows)
    each = np.full(n_rows, exposure) if np.ndim(exposure) == 0 else exposure
    given = as_float_array(each, "exposure", (n_rows,))
    if (given <= 0).any():
        raise ValueError(f"exposure must be positive, got {given.min():g}")
    return np.log(given)
