"""`DirectCountRegressor`: Poisson and negative binomial regression on basis functions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator, as_sample_weight
from pydirect.distributions.priors import GaussianPrior
from pydirect.estimators._count_problem import CountProblem
from pydirect.estimators._streamed_classifier import turned
from pydirect.estimators._widening import WideningModel
from pydirect.features.evidence import TrainingRows
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.repeated import RowCounts, distinct_rows
from pydirect.features.search_record import HyperparameterSearch
from pydirect.linear.decorrelated import DecorrelatedPosterior
from pydirect.logistic.count_kernel_evidence import LOG_RATE_UNIT, fit_count_hyperparameters, stabilised
from pydirect.logistic.count_likelihood import CountLikelihood, moment_dispersion
from pydirect.logistic.count_predictive import CountDistribution, as_counts, draw_counts
from pydirect.logistic.count_rows import CountRows
from pydirect.logistic.fit import finish_decorrelated
from pydirect.logistic.gaussian import VariancePrior
from pydirect.persistence.fields import Arrays, Header, Writer, require_number
from pydirect.quantized.fitted import FittedBasisModel
from pydirect.statistics.gaussian import FeatureMap

FAMILIES = ("auto", "poisson", "negative_binomial")
# Standard deviation of the log prior variance about what the kernel's amplitudes say.
KERNEL_LOG_VARIANCE_SD = 0.5
# Where no kernel has been learned: variance of the log rate of a typical row, the median of a wide prior.
TYPICAL_LOG_RATE_VARIANCE = 1.0
LOG_VARIANCE_SD = 1.5


class DirectCountRegressor(RegressorMixin, WideningModel):
    """Bayesian regression of counts on basis functions: Poisson or negative binomial, with a log link.

    ``log E(y | w) = intercept + log exposure + φ(x)ᵀw``, with Gaussian weights in the decorrelated basis. Predictive
    probabilities are integrals over their posterior.

    Parameters
    ----------
    features : str or transformer, default="auto"
        As in `DirectRegressor`. The kernel's length-scales and amplitudes maximise the ELBO of a Gaussian process of
        log rates, of at most `max_hyperparameter_rows` rows.
    n_basis_functions : int, default=1000
        Largest number of basis functions of ``"nystroem"``, which begins with 128 and goes on to 384 and to this number
        as long as left-out counts become likelier by a fortieth of their log loss and rows are not too many; number of
        sines and cosines of ``"fourier"``.
    degree : int, default=2
        Degree of ``"polynomial"`` features.
    family : {"auto", "poisson", "negative_binomial"}, default="auto"
        ``"negative_binomial"`` learns the dispersion α of Var(y | μ) = μ + αμ² by the ELBO. ``"auto"`` does so too and
        takes Poisson, α = 0, unless left-out counts are likelier with a dispersion.
    rank_inputs : bool, default=False
        Give the kernel every column twice: standardised, and as its normal scores.
    length_scale : float or array_like of shape (n_features_in,), optional
        Fixed length-scales of a smooth kernel in units of X's columns, instead of learned ones.
    categories : "auto" or list of str or int, default="auto"
        As for `DirectRegressor`.
    missing : {"auto", "indicator", "raise"}, default="auto"
        How tables with text and missing numbers are encoded; see `DirectRegressor`.
    max_iter : int, default=1000
        Largest number of evaluations of the ELBO at all rows, for each dispersion.
    max_hyperparameter_rows : int, default=1000
        Largest number of rows that find the kernel's hyperparameters. More than 500 are at most a quarter of all.
    n_threads : int, optional
        By default, OpenMP's current number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the rows for hyperparameters, landmarks and frequencies.
    verbose : int, default=0
        1 reports stages on standard error.

    Attributes
    ----------
    dispersion_ : float
        α; 0 for Poisson.
    intercept_ : float
        Log of the mean count per exposure in the data: the prior mean of log rates.
    posterior_ : DecorrelatedPosterior
        Posterior of the weights.
    features_ : Basis
        From rows of X to Φ, by ``features_.transform(X)``; see `DirectRegressor`.
    columns_ : Columns
        From tables to the rows of numbers that ``features_`` takes; see `DirectRegressor`.
    search_ : HyperparameterSearch or None
        What the search of the kernel's hyperparameters has tried.
    coef_ : ndarray of shape (n_weights,)
        Posterior means of the weights of `features_`.
    left_out_log_loss_ : float
        Mean −log probability of the training counts, each left out of the posterior to second order.
    elbo_ : float
        Lower bound on the log probability of the counts, in nats.
    elbo_trace_ : ndarray of shape (n_iter,)
        The bound after each iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the optimisation came to rest.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    prior_scale_ : ndarray of shape (1,)
        Prior standard deviation of the weights.
    fit_seconds_ : dict of str to float
        Seconds of each stage.
    posteriors_ : list
        `posterior_` as a list of one.
    coefficients_ : ndarray of shape (n_weights, 1)
        `coef_` as a column.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    mean_missing_variance_ : float
        Prior variance of f that the basis functions miss, averaged over the training rows.
    n_samples_ : float
        Sum of the weights of the training rows.
    n_features_in_ : int
        Number of columns of X.

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

    _posterior_types = (DecorrelatedPosterior,)
    _problem_type = CountProblem
    # What other basis-function models choose.
    basis = "decorrelated"
    posterior = "sequential"
    prior = "gaussian"
    n_levels = 15
    levels = None
    level_scales = "own"
    n_draws = 64
    optimizer = "pipeline"

    def __init__(
        self,
        features: Any = "auto",
        n_basis_functions: int = 1000,
        degree: int = 2,
        family: str = "auto",
        rank_inputs: bool = False,
        length_scale: float | ArrayLike | None = None,
        categories: Any = "auto",
        missing: str = "auto",
        max_iter: int = 1000,
        max_hyperparameter_rows: int = 1000,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.n_basis_functions = n_basis_functions
        self.degree = degree
        self.family = family
        self.rank_inputs = rank_inputs
        self.length_scale = length_scale
        self.categories = categories
        self.missing = missing
        self.max_iter = max_iter
        self.max_hyperparameter_rows = max_hyperparameter_rows
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
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
        exposure : array_like of shape (n_samples,), optional
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
        """
        x, counts, weight = self._start_fit(X, y, sample_weight, exposure)
        n_threads = resolve_n_threads(self.n_threads)
        rng = self._generator()
        progress = Progress(self.verbose)
        rows = TrainingRows(x, counts, weight)
        with single_blas_thread():
            with progress.stage("features"):
                self.features_ = self._fit_features(rows, rng, n_threads)
            problem = self._widened(self._problem(rows, n_threads, progress), rows, rng, n_threads, progress)
            assert isinstance(problem, CountProblem)
            with progress.stage("inference"):
                if self.family == "auto":
                    problem = problem.likelier_family(self.max_iter)
                self._infer(problem)
        self.mean_missing_variance_ = problem.mean_missing_variance
        self.fit_seconds_ = progress.seconds
        self.n_samples_ = float(weight.sum())
        self._set_results()
        self._warn_if_unfinished()
        return self

    def _start_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, exposure: ArrayLike | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Validate the data and discard the earlier fit.

        Returns rows of positive weight, their counts and log exposures, (n_rows, 2), and weights.
        """
        x, given = self._validated(X, y, y_numeric=True)
        counts = as_counts(given, "y")
        log_exposure = _log_exposure(exposure, len(counts))
        weight = as_sample_weight(sample_weight, len(counts))
        self._check_parameters()
        self._forget()
        weight = np.ones(len(counts)) if weight is None else weight
        total = float(weight @ counts) or 0.5 * min(1.0, float(weight.sum()))  # half a count where there is none
        self.intercept_ = float(np.log(total / (weight @ np.exp(log_exposure))))
        x = self._fit_columns(x, stabilised(counts, log_exposure + self.intercept_)[:, None], weight)
        used, self._one_dimensional = weight > 0, True
        targets = np.stack([counts, log_exposure], axis=1)
        # In small tables repeated rows are merged, so that a weight of two is the same as a row given twice.
        return distinct_rows(np.ascontiguousarray(x[used]), targets[used], weight[used])

    # --- parameters

    def _check_parameters(self) -> None:
        self._check_basis_parameters()
        as_choice(self.family, "family", FAMILIES)

    def _learned_kernel(
        self,
        inputs: FloatArray,
        y: FloatArray,
        weight: FloatArray,
        n_linear: int,
        tied: NDArray[np.intp],
        rng: np.random.Generator,
        n_threads: int,
    ) -> tuple[KernelHyperparameters, HyperparameterSearch]:
        return fit_count_hyperparameters(
            inputs,
            y[:, 0],
            self.intercept_ + y[:, 1],
            RowCounts.of(inputs, y, weight).where_learned(weight),
            learns_dispersion=self.family != "poisson",
            n_linear=n_linear,
            rng=rng,
            max_rows=self.max_hyperparameter_rows,
            n_threads=n_threads,
            tied=tied,
        )

    def _variance_prior(self, mean_square: float) -> VariancePrior:
        """Prior of the weights' prior variance: narrow around what learned kernel hyperparameters imply, else wide."""
        if self.features_.hyperparameters is not None and self.length_scale is None:
            return VariancePrior(LOG_RATE_UNIT**2, KERNEL_LOG_VARIANCE_SD)
        return VariancePrior(TYPICAL_LOG_RATE_VARIANCE / mean_square if mean_square > 0 else 1.0, LOG_VARIANCE_SD)

    def _rows_in(self, features: FeatureMap, inputs: FloatArray, rows: TrainingRows, n_threads: int) -> CountRows:
        assert rows.weight is not None
        y, offset = rows.y[:, :1], self.intercept_ + rows.y[:, 1:]
        learns = self.family != "poisson"
        counts = CountLikelihood(moment_dispersion(y[:, 0], offset[:, 0], rows.weight) if learns else 0.0)
        return CountRows(features, inputs, y, rows.weight, offset, n_threads=n_threads, counts=counts)

    # --- inference

    def _infer(self, problem: CountProblem) -> None:
        """Put the weights on levels that have their moments."""
        assert problem.ascent is not None
        fit = finish_decorrelated(
            problem.rotated,
            problem.ascent,
            GaussianPrior(),
            problem.variance_prior,
            self.n_levels,
            self.max_iter,
            problem.stop,
        )
        self.posteriors_ = turned(fit, problem.vectors).posteriors
        self.prior_scale_ = np.array([np.sqrt(fit.variance)])
        self.dispersion_, self.left_out_log_loss_ = problem.dispersion, problem.log_loss
        self._set_coefficients()

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        return {
            **super()._to_fields(writer),
            "intercept": self.intercept_,
            "dispersion": self.dispersion_,
            "left_out_log_loss": self.left_out_log_loss_,
        }

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        if len(self.posteriors_) != 1 or not self._one_dimensional:
            raise ValueError("counts have one posterior")
        self.intercept_ = require_number(header["intercept"], "intercept")
        self.dispersion_ = require_number(header["dispersion"], "dispersion", at_least=0.0)
        self.left_out_log_loss_ = require_number(header["left_out_log_loss"], "left_out_log_loss")

    def quantizable(self) -> FittedBasisModel:
        """Raise: integer models of counts are not supported."""
        raise TypeError("model must predict numbers or classes to be quantized, got DirectCountRegressor")

    # --- prediction

    def predict_log_rate(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the log of the mean count per exposure: its posterior mean and, on request, standard deviation.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.

        Returns
        -------
        mean, std : ndarray of shape (n_rows,)
            Log rates.
        """
        mean, variance = self._latent_moments(self._check_rows(X), with_variance=return_std)
        log_rate = self.intercept_ + mean[:, 0]
        return log_rate if variance is None else (log_rate, np.sqrt(variance[:, 0]))

    def predict_distribution(self, X: ArrayLike, exposure: ArrayLike | None = None) -> CountDistribution:
        """Predict the full distribution of the count.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        exposure : array_like of shape (n_rows,), optional
            Exposure of every row, such as its time or its area: means are proportional to it; by default one.

        Returns
        -------
        CountDistribution
            One distribution per row.
        """
        mean, variance = self._latent_moments(self._check_rows(X), with_variance=True)
        assert variance is not None
        log_mean = self.intercept_ + _log_exposure(exposure, len(mean)) + mean[:, 0]
        return CountDistribution(log_mean, variance[:, 0], self.dispersion_)

    def predict(
        self, X: ArrayLike, exposure: ArrayLike | None = None, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean count, over the posterior of the rate.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        exposure : array_like of shape (n_rows,), optional
            Exposure of every row, such as its time or its area: means are proportional to it; by default one.
        return_std : bool, default=False
            Also return the standard deviation of the count.

        Returns
        -------
        mean, std : ndarray of shape (n_rows,)
            Mean counts.
        """
        found = self.predict_distribution(X, exposure)
        return (found.mean, found.std) if return_std else found.mean

    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, exposure: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that contain the count, ends included, with a probability of at least `level`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        level : float in (0, 1), default=0.9
            Probability that an interval contains.
        exposure : array_like of shape (n_rows,), optional
            Exposure of every row, such as its time or its area: means are proportional to it; by default one.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            Counts.
        """
        return self.predict_distribution(X, exposure).interval(level)

    def log_predictive_probability(self, X: ArrayLike, y: ArrayLike, exposure: ArrayLike | None = None) -> FloatArray:
        """Log probability of observed counts, (n_rows,), in nats; arguments as of `fit`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,)
            Counts.
        exposure : array_like of shape (n_rows,), optional
            Exposure of every row, such as its time or its area: means are proportional to it; by default one.

        Returns
        -------
        ndarray of shape (n_rows,)
            In nats.
        """
        return self.predict_distribution(X, exposure).log_probability(y)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: np.random.Generator | int | None = 0,
        exposure: ArrayLike | None = None,
    ) -> FloatArray:
        """Draw counts from the predictive distribution, jointly at all rows, (n_rows, n_samples).

        Rows of a draw share their weights; what the basis functions miss of the rate is drawn too.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_samples : int, default=1
            Number of draws.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.
        exposure : array_like of shape (n_rows,), optional
            Exposure of every row, such as its time or its area: means are proportional to it; by default one.

        Returns
        -------
        ndarray of shape (n_rows, n_samples)
            Counts.
        """
        x = self._check_rows(X)
        n_samples, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        z = self._draw_latent(x, n_samples, rng)[:, 0]
        z += self.intercept_ + _log_exposure(exposure, len(x))[:, None]
        return draw_counts(z, self.dispersion_, rng)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Share of the Poisson deviance that predictions explain, D²: 1 at best, 0 for one rate for all rows.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,)
            Counts.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts; by default once.
        exposure : array_like of shape (n_rows,), optional
            Exposure of every row, such as its time or its area: means are proportional to it; by default one.

        Returns
        -------
        float
            D².
        """
        mean = self.predict_distribution(X, exposure).mean
        counts = as_counts(as_float_array(y, "y", mean.shape), "y")
        weight = as_sample_weight(sample_weight, len(mean))
        weight = np.ones(len(mean)) if weight is None else weight
        size = np.exp(_log_exposure(exposure, len(mean)))
        rate = (weight @ counts) / (weight @ size)
        unexplained, total = (float(weight @ poisson_deviance(counts, m)) for m in (mean, rate * size))
        return 1 - unexplained / total if total > 0 else float(unexplained == 0)

    def summary(self) -> str:
        """Describe the fitted model in words, its family and dispersion among them.

        Returns
        -------
        str
            Several lines.
        """
        words = super().summary()
        if self.dispersion_ == 0:
            return f"{words}\nCounts: Poisson."
        return f"{words}\nCounts: negative binomial, variance μ + {self.dispersion_:.3g} μ²."


def poisson_deviance(y: FloatArray, mean: FloatArray) -> FloatArray:
    """2 (y log(y/μ) − y + μ), (n_rows,)."""
    return np.asarray(2 * (xlogy(y, y) - xlogy(y, mean) - y + mean))


def _log_exposure(exposure: ArrayLike | None, n_rows: int) -> FloatArray:
    """Return logs of positive exposures, (n_rows,)."""
    if exposure is None:
        return np.zeros(n_rows)
    given = as_float_array(exposure, "exposure", (n_rows,))
    if (given <= 0).any():
        raise ValueError(f"exposure must be positive, got {given.min():g}")
    return np.log(given)
