"""Models of one latent f per row and a likelihood of targets given it: censored targets, survival, ordinal classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, check_consistent_length

from pydirect._documentation import described_by, takes_rows
from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_float_array,
    as_float_array_unbounded,
    as_instance,
    as_number,
    as_sample_weight,
    as_weights,
    shown,
)
from pydirect._warnings import warn
from pydirect.estimators._classifier import Classifier, OfLabels, require_classes
from pydirect.estimators._estimator import Estimator, of_model
from pydirect.estimators.choices import generator_of
from pydirect.estimators.classification import ProblemMaker, add_landmarks, fitted_weights
from pydirect.estimators.effects import better_fit, encoded_by_latents, small
from pydirect.estimators.summary import lines_of_model
from pydirect.features.basis import Basis
from pydirect.features.fitting import FeaturePlan, fit_basis
from pydirect.features.rows import RowCounts, TrainingRows, distinct_index
from pydirect.features.search import KernelRows
from pydirect.fitted.classification import FittedLatent
from pydirect.fitted.predictor import factor_of_few_rows
from pydirect.fitted.regression import Latent
from pydirect.logistic.kernel_evidence import fit_latent_hyperparameters
from pydirect.logistic.latent import (
    ExtremeLikelihood,
    IntervalLikelihood,
    LatentLikelihood,
    OrdinalLikelihood,
    as_limits,
    as_numbers,
    require_no_dates,
)
from pydirect.logistic.problem import LatentProblem
from pydirect.logistic.rows import LabelledRows
from pydirect.metrics import concordance_index
from pydirect.noise.student_t import warn_of_gross
from pydirect.statistics.gaussian import RowFeatures
from pydirect.tables.columns import with_names
from pydirect.tables.encoding import ColumnEncoding

NOISES: dict[str, IntervalLikelihood] = {"normal": IntervalLikelihood(), "extreme": ExtremeLikelihood()}


@dataclass(frozen=True)
class LatentTargets:
    """Targets of one latent for the stages of a fit: features, landmarks, weights.

    The latents have a prior mean and a unit, in which their prior is that of standardised targets.
    """

    learns_offset: ClassVar[bool] = True

    likelihood: LatentLikelihood
    intercept: float
    unit: float

    @property
    def typical_variance(self) -> float:
        return self.unit**2

    def parts(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the likelihood's targets and the prior means of the latents, (n_rows,), in what rows hold."""
        return y, np.full(len(y), self.intercept)

    def likelihood_of(self, y: FloatArray, offset: FloatArray, weight: FloatArray) -> LatentLikelihood:
        """Return the likelihood to begin with."""
        return self.likelihood

    def spread(self, y: FloatArray, offset: FloatArray) -> FloatArray:
        """Return standardised values that tell by which columns the latents vary, (n_rows,)."""
        return (self.likelihood.guess(y) - offset) / self.unit

    def largest_log_amplitude(self, y: FloatArray, offset: FloatArray) -> float:
        """Return a bound on the log variance of the latents."""
        return np.inf

    def rows_of(self, features: RowFeatures, inputs: FloatArray, rows: TrainingRows) -> LabelledRows:
        """Return rows with targets of functions of their inputs."""
        assert rows.weight is not None
        y, offset = self.parts(rows.y)
        model, threads = self.likelihood_of(y, offset, rows.weight), resolve_n_threads()
        offset = offset[:, None] + rows.offset
        more = self.learns_offset, rows.offset_variance
        return LabelledRows(features, inputs, y, rows.weight, offset, model, threads, *more)

    def search(self, rows: KernelRows, rng: np.random.Generator, max_rows: int) -> Any:
        """Search the kernel."""
        y, offset = self.parts(rows.y)
        weight = RowCounts.of(rows.x, rows.y, rows.weight).where_learned(rows.weight)
        return fit_latent_hyperparameters(
            replace(rows, y=y, weight=weight),
            offset,
            self.likelihood_of(y, offset, weight),
            rng,
            spread=self.spread(y, offset),
            unit=self.unit,
            max_rows=max_rows,
            largest_log_amplitude=self.largest_log_amplitude(y, offset),
        )


def fit_latent(
    self: OfLabels,
    x: Any,
    y: FloatArray,
    weight: FloatArray,
    targets: LatentTargets,
    finish: Callable[[LatentProblem, Basis, TrainingRows], FittedLatent],
) -> None:
    """Encode validated rows and fit; `finish` makes the model of the fitted problem, its features, and the rows."""
    plan, progress, table = self._plan(), Progress(self.verbose), with_names(self, x)
    used = weight > 0
    table, y, weight = table.rows(used), y[used], weight[used]
    columns = self._fitted_columns(table, targets.spread(*targets.parts(y))[:, None], weight)

    def map_of(features: FeaturePlan, rows: TrainingRows, columns: ColumnEncoding, rng: np.random.Generator) -> Basis:
        search = partial(targets.search, max_rows=features.max_search_rows)
        with progress.stage("features"):
            return fit_basis(features, rows, columns, search, rng, names=columns.names and tuple(columns.names_out))

    def fit(columns: ColumnEncoding, x: FloatArray) -> FittedLatent:
        # In small tables repeated rows are merged, so that a weight of two is the same as a row given twice.
        index, total = distinct_index(x, y, weight)
        others, offset, variance = columns.apart(x[index])
        rows = TrainingRows(others, y[index], total, offset=offset, offset_variance=variance)
        rng = generator_of(plan.random_state)
        basis, maker = map_of(plan.features, rows, columns, rng), ProblemMaker(rows, targets, progress)
        problem, basis = add_landmarks(maker, basis, plan.features, rng, plan.max_iter)
        with progress.stage("inference"):
            return finish(problem, basis, rows)

    def rows_of(x: FloatArray) -> LabelledRows:
        rows = TrainingRows(x, y, weight)
        basis = map_of(small(plan.features), rows, columns, generator_of(plan.random_state))
        return targets.rows_of(basis.map, basis.inputs(x), rows)

    x, takes_effects = np.ascontiguousarray(columns.encode(table)), self._column_options().effects

    def second() -> FittedLatent | None:
        with_effects = takes_effects and self._takes_tables() and encoded_by_latents(columns, table, x, y, rows_of)
        return fit(*with_effects) if with_effects else None

    first = fit(columns, x)
    self.model_ = better_fit(first, first.posteriors, second, lambda model: model.left_out_log_loss)
    self.columns_ = self.model_.basis.columns
    self.fit_seconds_ = progress.finish()
    self._warn_if_unfinished()


def fit_likelihood(
    self: OfLabels, x: Any, y: FloatArray, weight: FloatArray, likelihood: LatentLikelihood, loss: float, **more: Any
) -> None:
    """Fit a model with a likelihood; `loss` is Σ log of the unit of y's densities, `more` what else the model has."""

    def finish(problem: LatentProblem, basis: Basis, rows: TrainingRows) -> FittedLatent:
        found, n_samples = problem.rotated, float(weight.sum())
        known = latent_of(problem, basis), float((found.offset - rows.offset)[0, 0]), found.model
        return FittedLatent(*known, problem.log_loss + loss / n_samples, n_samples, loss, **more)

    fit_latent(self, x, y, weight, LatentTargets(*likelihood.started(y[weight > 0], weight[weight > 0])), finish)


def latent_of(problem: LatentProblem, basis: Basis) -> Latent:
    """Return the latent function that was found."""
    return Latent.of(basis, fitted_weights(problem), problem.mean_missing_variance)


@takes_rows
def predict_latent(self: OfLabels, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Predict the latent f, on the scale of the likelihood.

    Returns
    -------
    mean, std : ndarray of shape (n_rows,)
        Posterior means and standard deviations, without noise.
    """
    mean, variance = self._asked("moments", X)
    return mean, np.sqrt(variance)


@described_by(Estimator)
@dataclass(eq=False, repr=False)
class DirectCensoredRegressor(RegressorMixin, OfLabels):
    """Regression on targets that are known in part: censored, in an interval, below a detection limit, rounded.

    y = f + noise, to which `fit` adds variances that are known for each row; or any likelihood p(y | f) of one's own.

    Parameters
    ----------
    likelihood : {"normal", "extreme"} or LatentLikelihood, default="normal"
        Of the noise, learned scale included: normal, or the log of an exponential variable; or an object with
        `log_density(y, f)`, see `pydirect.logistic.LatentLikelihood` and `pydirect.testing.check_likelihood`.
    features : str, Nystroem, Fourier, Polynomial or transformer, default="auto"
        As of `DirectClassifier`.
    n_basis_functions : int, default=1000
        As of `DirectClassifier`.
    max_iter : int, default=1000
        Largest number of iterations of any one stage.

    Attributes
    ----------
    model_ : FittedLatent
        The fitted model as frozen data.
    likelihood_ : LatentLikelihood
        The likelihood with what was learned of it.
    intercept_ : float
        Prior mean of f, learned.
    posterior_ : GaussianPosterior
        Posterior of the weights.
    features_ : Basis
        From rows of X to Φ, by ``features_.transform(X)``; see `DirectRegressor`.
    columns_ : ColumnEncoding
        From tables to the rows of numbers that ``features_`` takes; see `DirectRegressor`.
    search_ : HyperparameterSearch or None
        What the search of the kernel's hyperparameters has tried.
    coef_ : ndarray of shape (n_weights,)
        Posterior means of the weights of `features_`.
    left_out_log_loss_ : float
        Mean −log density of the training targets, each left out of the posterior to second order.
    elbo_ : float
        Lower bound on the log density of the targets, in nats.
    elbo_trace_ : ndarray of shape (n_iter,)
        The bound after each iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the optimisation converged.
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
    total_weight_ : float
        Sum of the weights of the training rows.
    n_features_in_ : int
        Number of columns of X.

    Notes
    -----
    The posterior is the Gaussian that maximises the ELBO, whose expectations are in closed form for exact targets and
    by quadrature for others; see `pydirect.logistic`. A model with a likelihood of one's own is saved by pickle.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectCensoredRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
    >>> limits = np.column_stack([np.where(y > 0, y, -np.inf), np.maximum(y, 0)])  # detected above zero only
    >>> model = DirectCensoredRegressor().fit(X, limits)
    >>> bool(abs(model.predict([[-1.5]])[0] - np.sin(-1.5)) < 0.6)
    True
    """

    model_: FittedLatent = field(init=False)

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedLatent}

    likelihood: Any = "normal"
    max_iter: int = 1000

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # in nats
        return tags

    def _start(self) -> LatentLikelihood:
        """Return the likelihood to begin with."""
        if isinstance(self.likelihood, str):
            own = "likelihood, unless it is a pydirect.logistic.LatentLikelihood,"
            return NOISES[as_choice(self.likelihood, own, tuple(NOISES))]
        as_instance(self.likelihood, "likelihood", LatentLikelihood)
        found: LatentLikelihood = self.likelihood
        return found

    def _targets(self, y: Any, n_rows: int) -> tuple[FloatArray, FloatArray]:
        """Return targets as the likelihood takes them, (n_rows, n_columns), and log units of their densities."""
        return self._start().as_targets(y, n_rows), np.zeros(n_rows)

    def _in_units(self, values: FloatArray) -> FloatArray:
        """Return values of y from values on the scale of the likelihood."""
        return values

    @takes_rows
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        entry: ArrayLike | None = None,
    ) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        y : array_like of shape (n_rows,) or (n_rows, 2)
            Values; or lower and upper limits of each, infinite or NaN where there is none, and equal for a value.
            For a likelihood of one's own, its columns.
        noise_variance : array_like of shape (n_rows,), optional
            Known variance of every value's noise, such as that of its measurement, in addition to the learned one; for
            normal noise only.
        entry : array_like of shape (n_rows,), optional
            Values that targets had to exceed for their rows to be there, as of sizes from a limit on (left truncation);
            −∞ or NaN where there is none. Limits below them are raised to them. Predictions are of all targets.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        """
        return self._fitted(X, y, sample_weight, noise_variance, entry)

    def _fitted(
        self, X: Any, y: Any, sample_weight: Any, known: ArrayLike | None = None, entry: ArrayLike | None = None
    ) -> Self:
        """Fit, with a `known` variance of every row's noise and its entry if there are any."""
        with self._whole():
            start, given = self._start(), np.asarray(y)
            require_no_dates(given, "y")
            if given.ndim == 2 and given.shape[1] > 1:  # limits may be infinite
                x = self._validated(X)
                check_consistent_length(x, given)
            else:
                x, y = self._validated(X, y, y_numeric=True)
            (targets, log_unit), weight = self._targets(y, len(x)), as_weights(sample_weight, len(x))
            if known is not None:
                if not start.takes_variance:
                    got = shown(self.likelihood)
                    raise ValueError(f"noise_variance must be None unless likelihood is 'normal', got likelihood={got}")
                targets[:, 2] = as_float_array(known, "noise_variance", (len(x),))
                if (targets[:, 2] < 0).any():
                    raise ValueError(f"noise_variance must not be negative, got {targets[:, 2].min():g}")
            if entry is not None:
                targets = self._entered(targets, entry)
            fit_likelihood(self, x, targets, weight, start, float(weight @ log_unit))
            if known is None and isinstance(start, IntervalLikelihood):
                some = np.isfinite(targets[:, :2]).any(axis=1) & (weight > 0)
                warn_of_gross(start.guess(targets[some])[:, None], "fit without them")
        return self

    def _entered(self, targets: FloatArray, entry: ArrayLike) -> FloatArray:
        """Append entries to targets, whose limits are above them, or raise."""
        if not isinstance(self._start(), IntervalLikelihood):
            raise ValueError(f"entry must be None unless likelihood is one of {', '.join(map(repr, NOISES))}")
        given = as_float_array_unbounded(as_numbers(entry, "entry"), "entry", (len(targets),))
        never = given == np.inf
        limits = np.column_stack([np.where(never, -np.inf, given), np.full(len(given), np.inf)])
        least = self._targets(limits, len(given))[0][:, 0]
        if (wrong := never | (targets[:, 1] <= least)).any():
            row = int(np.argmax(wrong))
            raise ValueError(f"entry must be below y, got {given[row]:g} in row {row}")
        return np.column_stack([np.maximum(targets[:, 0], least), targets[:, 1:], least])

    def _state(self) -> dict[str, Any]:
        if not isinstance(self.likelihood, str):
            names, got = " or ".join(map(repr, NOISES)), type(self.likelihood).__name__
            raise TypeError(f"likelihood must be {names} to be saved without pickle, got {got}: pickle the whole model")
        return super()._state()

    # --- results

    likelihood_, left_out_log_loss_ = of_model("likelihood"), of_model("left_out_log_loss")

    def _words(self) -> list[str]:
        return [*lines_of_model(self), f"Likelihood: {self.likelihood_}."]

    # --- prediction

    def _predictive(self, X: ArrayLike) -> tuple[LatentLikelihood, FloatArray, FloatArray]:
        """Likelihood of new targets, mean and variance of f, both wider for what few rows leave open."""
        (mean, variance), likelihood = self._asked("moments", X), self.likelihood_
        if isinstance(likelihood, IntervalLikelihood) and self.search_ is not None:
            factor = factor_of_few_rows(self.total_weight_)
            likelihood, variance = replace(likelihood, scale=factor * likelihood.scale), factor**2 * variance
        return likelihood, mean, variance

    predict_latent = predict_latent

    @takes_rows
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the posterior mean of f.

        Returns
        -------
        ndarray of shape (n_rows,)
            Posterior means.
        """
        mean, _ = self.predict_latent(X)
        return mean

    @takes_rows
    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> FloatArray:
        """Predict quantiles of new targets; the likelihood must have a `cdf`.

        Parameters
        ----------
        quantiles : array_like of shape (n_quantiles,)
            Probabilities between 0 and 1.

        Returns
        -------
        ndarray of shape (n_rows, n_quantiles)
            In y's own units.
        """
        levels = as_float_array(np.atleast_1d(quantiles), "quantiles", ("n_quantiles",))
        if not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles must be between 0 and 1, got {levels[:3].tolist()}")
        likelihood, mean, variance = self._predictive(X)
        return self._in_units(likelihood.quantiles(mean, variance, levels))

    @takes_rows
    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals of new targets; the likelihood must have a `cdf`.

        Parameters
        ----------
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            In y's own units.
        """
        tail = 0.5 * (1 - as_number(level, "level", above=0.0, below=1.0))
        lower, upper = self.predict_quantiles(X, [tail, 1 - tail]).T
        return lower, upper

    @described_by(fit)
    def log_predictive_density(self, X: ArrayLike, y: ArrayLike, entry: ArrayLike | None = None) -> FloatArray:
        """Log density of observed targets, or log probability where they are intervals; y and entry as of `fit`.

        Returns
        -------
        ndarray of shape (n_rows,)
            In nats.
        """
        likelihood, mean, variance = self._predictive(X)
        targets, log_unit = self._targets(y, len(mean))
        if entry is not None:
            targets = self._entered(targets, entry)
        return likelihood.log_predictive(targets, mean, variance) - log_unit

    @takes_rows
    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean log predictive density of observed targets.

        Returns
        -------
        float
            In nats per row.
        """
        each = self.log_predictive_density(X, y)
        return float(np.average(each, weights=as_sample_weight(sample_weight, len(each))))


@described_by(DirectCensoredRegressor)
class DirectSurvivalRegressor(DirectCensoredRegressor):
    """Survival analysis: times to an event that are censored for some rows, log t = f(x) + σ ε.

    An accelerated failure time model whose location is any function of the columns.

    Parameters
    ----------
    likelihood : {"normal", "extreme"}, default="normal"
        Of log times: normal, so that times are log-normal, or the log of an exponential variable, for Weibull times.

    Attributes
    ----------
    likelihood_ : IntervalLikelihood or ExtremeLikelihood
        Its ``scale`` is σ.

    Notes
    -----
    The posterior is the Gaussian that maximises the ELBO, in log t; densities and bounds are those of t.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectSurvivalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (300, 1))
    >>> time, end = np.exp(X[:, 0] + 0.5 * rng.standard_normal(300)), rng.uniform(0, 4, 300)
    >>> model = DirectSurvivalRegressor().fit(X, np.minimum(time, end), event=time <= end)
    >>> bool(abs(model.predict_survival([[0.0]], [1.0])[0, 0] - 0.5) < 0.1)
    True
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _start(self) -> LatentLikelihood:
        return NOISES[as_choice(self.likelihood, "likelihood", tuple(NOISES))]

    def _targets(self, y: Any, n_rows: int) -> tuple[FloatArray, FloatArray]:
        limits = as_limits(y, n_rows, "times")
        limits[:, 0] = np.where(np.isneginf(limits[:, 0]), 0.0, limits[:, 0])
        if (limits[:, 0] < 0).any() or (limits[:, 1] <= 0).any():
            raise ValueError(f"times must be positive, got {limits[:, :2].min():g}")
        with np.errstate(divide="ignore"):
            limits[:, :2] = np.log(limits[:, :2])
        exact = limits[:, 0] == limits[:, 1]
        return limits, np.where(exact, limits[:, 0], 0.0)

    def _in_units(self, values: FloatArray) -> FloatArray:
        return np.exp(values)

    @takes_rows
    def fit(  # type: ignore[override]
        self,
        X: ArrayLike,
        y: ArrayLike,
        event: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        entry: ArrayLike | None = None,
    ) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        y : array_like of shape (n_rows,) or (n_rows, 2)
            Times; or lower and upper limits of each, infinite or NaN where there is none; or a structured array of
            an event indicator and a time, as of scikit-survival.
        event : array_like of shape (n_rows,), optional
            Whether the event was seen at the time; if not, it came later. By default it always was.
        entry : array_like of shape (n_rows,), optional
            Times from which on rows were watched, on the scale of y: had the event come before, there would be no row
            (delayed entry, left truncation). Zero or NaN where rows were watched from the start.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described.
        """
        if sample_weight is not None and np.asarray(sample_weight).dtype == bool:
            raise TypeError("sample_weight must hold numbers, got bool: give indicators of events as event")
        times = as_times(y, event)
        if times is not y and np.isinf(times[:, 1]).all():
            raise ValueError("event must be True in some rows, got none: all times are censored")
        if entry is not None and (early := np.isfinite(given := as_numbers(entry, "entry")) & (given < 0)).any():
            raise ValueError(f"entry must not be negative, got {given[early].min():g}")
        return self._fitted(X, times, sample_weight, entry=entry)

    @described_by(fit)
    def log_predictive_density(  # type: ignore[override]
        self, X: ArrayLike, y: ArrayLike, event: ArrayLike | None = None, entry: ArrayLike | None = None
    ) -> FloatArray:
        """Log density of times, or log probability where they are censored; given as to `fit`.

        Returns
        -------
        ndarray of shape (n_rows,)
            In nats.
        """
        return super().log_predictive_density(X, as_times(y, event), entry)

    @takes_rows
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the median time.

        Returns
        -------
        ndarray of shape (n_rows,)
            In units of the times.
        """
        return self.predict_quantiles(X, [0.5])[:, 0]

    @takes_rows
    def predict_survival(self, X: ArrayLike, times: ArrayLike) -> FloatArray:
        """Predict the probability that the event is later than each of some times.

        Parameters
        ----------
        times : array_like of shape (n_times,)
            Times from zero on.

        Returns
        -------
        ndarray of shape (n_rows, n_times)
            Survival curves.
        """
        at = as_float_array(np.atleast_1d(times), "times", ("n_times",))
        if (at < 0).any():
            raise ValueError(f"times must not be negative, got {at.min():g}")
        likelihood, mean, variance = self._predictive(X)
        later = 1 - likelihood.cdf(np.log(np.where(at > 0, at, 1.0))[None], mean, variance)
        return np.where(at > 0, later, 1.0)

    @described_by(fit)
    def score(  # type: ignore[override]
        self, X: ArrayLike, y: ArrayLike, event: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Concordance index of predicted medians and times that are exact or censored on the right, given as to `fit`.

        Returns
        -------
        float
            1 at best, one half for predictions that say nothing.
        """
        predicted = self.predict(X)
        lower, upper = as_limits(as_times(y, event), len(predicted), "times").T[:2]
        return concordance_index(lower, lower == upper, predicted, sample_weight=sample_weight)


def as_times(y: Any, event: ArrayLike | None) -> Any:
    """Return limits (n_rows, 2) of times with indicators of events, given or in a structured array."""
    given = np.asarray(y)
    if given.dtype.names is not None:
        if len(given.dtype.names) != 2 or given[given.dtype.names[0]].dtype != bool:
            raise ValueError(f"a structured y must have fields for an event, bool, and a time, got {given.dtype}")
        if event is not None:
            raise ValueError("event must be None where y is structured: y has the events")
        seen, given = (given[name] for name in given.dtype.names)
    elif event is None:
        return y
    else:
        seen = np.asarray(event, dtype=object)
    if seen.shape != given.shape or given.ndim != 1:
        raise ValueError(f"event must have one value for each time, got shapes {seen.shape} and {given.shape}")
    given = as_float_array(as_numbers(given, "times"), "times", ("n_rows",))
    flags = seen.astype(object).tolist()
    wrong = [row for row, flag in enumerate(flags) if not (isinstance(flag, Real | np.bool_) and flag in (0, 1))]
    if wrong:
        raise ValueError(f"event must hold True or False, got {shown(seen[wrong[0]])} in row {wrong[0]}")
    return np.column_stack([given, np.where(seen.astype(bool), given, np.inf)])


def order_of_dtype(y: Any, classes: NDArray[Any]) -> NDArray[Any]:
    """Return the classes in the order of y's categories if its type has one, else ascending; of text, warn."""
    dtype: Any = getattr(y, "dtype", None)
    if getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum":  # of pandas, of Polars
        categories = np.asarray(dtype.categories)
        return categories[np.isin(categories, classes)]
    if classes.dtype.kind in "OU":
        warn(
            f"text labels are taken in alphabetical order, {classes.tolist()}: give order, or an ordered categorical y",
            UserWarning,
        )
    return classes


@described_by(DirectCensoredRegressor)
@dataclass(eq=False, repr=False)
class DirectOrdinalClassifier(Classifier, OfLabels):
    """Classification into ordered classes: between which thresholds f + ε lies, with normal ε.

    Parameters
    ----------
    order : array_like of shape (n_classes,), optional
        The classes from the lowest to the highest; by default those of an ordered categorical y, or ascending.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted, as the columns of probabilities are.
    order_ : ndarray of shape (n_classes,)
        The classes from the lowest to the highest.
    thresholds_ : ndarray of shape (n_classes - 1,)
        Between neighbouring classes of ``order_``.

    Notes
    -----
    The posterior is the Gaussian that maximises the ELBO, and the thresholds maximise it in turn with it.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectOrdinalClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (300, 1))
    >>> y = np.digitize(X[:, 0] + 0.3 * rng.standard_normal(300), [-1, 0, 1])
    >>> DirectOrdinalClassifier().fit(X, y).predict([[-1.9], [-0.5], [0.5], [1.9]]).tolist()
    [0, 1, 2, 3]
    """

    model_: FittedLatent = field(init=False)

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedLatent}

    likelihood_, thresholds_ = of_model("likelihood"), of_model("likelihood.thresholds")
    left_out_log_loss_, order_ = of_model("left_out_log_loss"), of_model("classes")

    order: Any = None
    max_iter: int = 1000

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of classes in no order
        return tags

    @property
    def classes_(self) -> NDArray[Any]:
        return np.sort(self.order_)

    @takes_rows
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        y : array_like of shape (n_rows,)
            Labels.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described.
        """
        with self._whole():
            table, (given,), weight = self._read(X, y, sample_weight)
            classes, index = np.unique(given[weight > 0], return_inverse=True)
            require_classes(classes)
            order = order_of_dtype(y, classes) if self.order is None else np.asarray(self.order)
            if order.shape != classes.shape or not np.array_equal(np.sort(order), classes):
                raise ValueError(f"order must hold the classes of y, {classes.tolist()}, got {shown(self.order)}")
            place, start = np.zeros((len(given), 1)), OrdinalLikelihood(np.zeros(len(classes) - 1))
            place[weight > 0, 0] = np.argsort(order)[index]
            fit_likelihood(self, table, place, weight, start, 0.0, classes=order)
        return self

    predict_latent = predict_latent

    @takes_rows
    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Predict log probabilities of the classes.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            In nats, of ``classes_``.
        """
        mean, std = self.predict_latent(X)
        each = [np.full((len(mean), 1), float(k)) for k in np.argsort(self.order_)]
        return np.stack([self.likelihood_.log_predictive(k, mean, std**2) for k in each], axis=1)

    def _words(self) -> list[str]:
        ends = ", ".join(f"{end:.3g}" for end in self.thresholds_)
        return [*lines_of_model(self), f"Thresholds between the classes: {ends}."]
