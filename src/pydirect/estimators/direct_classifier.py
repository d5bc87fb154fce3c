"""`DirectClassifier`: logistic regression on basis functions, with discrete weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit
from sklearn.utils.class_weight import compute_class_weight

from pydirect._progress import Progress
from pydirect._threads import for_each, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_generator
from pydirect._warnings import ignored
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.levels import shared_levels
from pydirect.distributions.mixture_priors import MixturePrior
from pydirect.distributions.priors import as_prior
from pydirect.estimators._label_problem import LabelProblem
from pydirect.estimators._streamed_classifier import turned
from pydirect.estimators._widening import WideningClassifier
from pydirect.features.evidence import TrainingRows
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.search_record import HyperparameterSearch
from pydirect.linear.decorrelated import DecorrelatedPosterior
from pydirect.logistic.discrete import LogisticFit
from pydirect.logistic.expectations import softmax_log_probability
from pydirect.logistic.fit import (
    BOUNDS,
    check_logistic_levels,
    finish_decorrelated,
    fit_logistic,
    fit_logistic_decorrelated,
)
from pydirect.logistic.gaussian import VariancePrior
from pydirect.logistic.kernel_evidence import LOGIT_UNIT, fit_label_hyperparameters
from pydirect.logistic.predictive import averaged_log_odds, averaged_softmax, log_sum_exp, predictive_log_odds
from pydirect.logistic.start import state_of
from pydirect.persistence.fields import Arrays, Header, Writer, require_array
from pydirect.quantized.budget.settings import ClassifierFit, ClassifierFits, SearchSettings
from pydirect.quantized.fitted import Outputs

# Standard deviation of the log prior variance about what the kernel's amplitudes say.
KERNEL_LOG_VARIANCE_SD = 0.5


class DirectClassifier(WideningClassifier):
    """Bayesian logistic regression on basis functions, with discrete weights.

    ``Pr(y | w) = σ(±z)`` with ``z = intercept + φ(x)ᵀw`` for two classes, ``softmax(z)`` with one z per class for more.

    Parameters
    ----------
    features : str or transformer, default="auto"
        As in `DirectRegressor`. The kernel's length-scales and amplitudes, shared by all classes, maximise the ELBO of
        Gaussian processes under the softmax, of at most `max_hyperparameter_rows` rows; its gradient is that of a
        regression on working responses (Khan & Lin 2017).
    n_basis_functions : int, default=1000
        Largest number of basis functions of ``"nystroem"``, which begins with 128 and goes on to 384 and to this number
        as long as the log loss of labels that are left out falls by a fortieth and the rows are not too many (384 from
        30,000 rows on, 128 from 200,000 on); number of sines and cosines of ``"fourier"``.
    degree : int, default=2
        Degree of ``"polynomial"`` features.
    basis : {"decorrelated", "raw"}, default="decorrelated"
        ``"decorrelated"`` rotates the weights so that they do not interact, on levels at the quadrature nodes of each
        one's posterior. ``"raw"`` keeps the weights of the basis functions themselves, on a few levels: 4-bit integers,
        zero included, as small devices want them, and as accurate.
    posterior : {"sequential", "mean_field"}, default="sequential"
        Posterior of the raw basis. ``"sequential"``: weights drawn one after another, each given those before it; see
        `pydirect.direct.fit_sequential`. ``"mean_field"``: independent weights, the published method.
    prior : str or Prior, default="gaussian"
        Prior of each weight, in units of its prior standard deviation, which is found by empirical Bayes: training
        maximises the bound of the continuous model under a wide log-normal prior.
    n_levels : int, default=15
        Number of values that a weight can take; 16 or fewer fit into 4 bits. Odd with own level scales. In the
        decorrelated basis any number from 2 on has the same moments and bound, and from 7 on with the exponential one.
    levels : {"even", "power_of_two"} or array_like of shape (n_levels,) or (n_weights, n_levels), optional
        Levels of the raw basis: evenly spaced by default; ``"power_of_two"``, 0 and ± powers of two, so that devices
        multiply by shifts. In units of the prior standard deviation where all weights share them, of any unit where
        scales are own.
    level_scales : {"own", "centred", "shared"}, default="own"
        Scales of the levels of a sequential posterior. ``"own"``: a power of two per weight. ``"centred"``: the same
        about each weight's posterior mean, where 15 levels are too coarse otherwise; no weight is then zero, and
        devices need floating point. ``"shared"``: the prior standard deviation for all.
    n_draws : int, default=64
        Number of draws of a sequential posterior to keep, two or more, half a byte per weight each; probabilities are
        averages over them.
    bound : {"auto", "softmax", "jaakkola", "exponential"}, default="auto"
        What is maximised; see `pydirect.logistic`. ``"softmax"``, the default: the ELBO of Gaussian weights under the
        softmax of all classes, exactly; the tightest and the most accurate. ``"jaakkola"`` and ``"exponential"``, the
        published bounds, fit each class against the rest; a mean-field posterior has only these, by default the first.
    class_weight : dict, "balanced" or None, default=None
        Factors of the classes' predictive odds; zero leaves a class out. The fit takes the rows as they are, so that
        rows rank as without. With the published bounds, factors of the rows' weights.
    rank_inputs : bool, default=False
        Give the kernel every column twice: standardised, and as its normal scores.
    length_scale : float or array_like of shape (n_features_in,), optional
        Fixed length-scales of a smooth kernel in units of X's columns, instead of learned ones.
    categories : "auto" or list of str or int, default="auto"
        As for `DirectRegressor`.
    missing : {"auto", "indicator", "raise"}, default="auto"
        How tables with text and missing numbers are encoded; see `DirectRegressor`.
    optimizer : str, default="pipeline"
        Optimiser of mean field in the raw basis; see `pydirect.fit_mean_field`.
    max_iter : int, default=1000
        Largest number of evaluations of the ELBO at all rows; of iterations for the exponential bound.
    max_hyperparameter_rows : int, default=1000
        Largest number of rows that find the kernel's hyperparameters, drawn by class: up to an equal share of each.
        More than 500 are at most a quarter of all.
    n_threads : int, optional
        By default, OpenMP's current number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the rows for hyperparameters, landmarks, frequencies and batches.
    verbose : int, default=0
        1 reports stages on standard error.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, in ascending order.
    posterior_ : DecorrelatedPosterior, SequentialPosterior or MeanFieldPosterior
        A list of them for more than two classes.
    features_ : Basis
        From rows of X to Φ, by ``features_.transform(X)``; see `DirectRegressor`.
    columns_ : Columns
        From tables to the rows of numbers that ``features_`` takes; see `DirectRegressor`.
    search_ : HyperparameterSearch or None
        What the search of the kernel's hyperparameters has tried, and whether subsets of the rows agree.
    coef_ : ndarray of shape (n_weights,) or (n_classes, n_weights)
        Posterior means of the weights of `features_`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Prior means of the logits: the log-odds of the second class in the data, or log frequencies about their mean; of
        the published bounds log-odds of each class against the rest.
    left_out_probability_ : ndarray of shape (n_kept,)
        Probabilities of the training labels, each left out, in ascending order or their quantiles; see `predict_set`.
    elbo_ : float
        Lower bound on the log-probability of the labels, in nats; of the published bounds the sum over classes. With
        the softmax and a prior that is not Gaussian, an approximation of it. It is that of the posterior before the
        precision of several classes is multiplied; see the notes.
    elbo_trace_ : ndarray of shape (n_iter,), or a list of them
        The bound after each iteration.
    n_iter_ : int
        Number of evaluations of the bound, steps taken back included.
    converged_ : bool
        Whether the optimisation came to rest.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    prior_scale_ : ndarray of shape (1,) or (n_classes,)
        Prior standard deviations of the weights.
    fit_seconds_ : dict of str to float
        Seconds of each stage.
    posteriors_ : list
        `posterior_` as a list, one per function.
    coefficients_ : ndarray of shape (n_weights, n_functions)
        `coef_`, with an axis of functions always.
    mean_missing_variance_ : float
        Prior variance of f that the basis functions miss, averaged over the training rows.
    n_samples_ : float
        Sum of the weights of the training rows.
    n_features_in_ : int
        Number of columns of X.

    Notes
    -----
    With the default bound the posterior is the Gaussian that maximises the ELBO, Kullback and Leibler's nearest to the
    exact one; probabilities are integrals over it, not those of its mean. Several classes share one covariance, which
    is too cautious where few of them are in question: in the decorrelated basis its precision is multiplied by the
    factor for which left-out labels are likeliest; see `pydirect.logistic.sharpness`. Log losses on held-out rows,
    beside those of scikit-learn's classifiers: ``bench/paper/classification.py``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pydirect import DirectClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DirectClassifier().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    >>> probabilities = model.predict_proba(X[1::2])
    >>> logit, std = model.predict_logit(X[1::2], return_std=True)
    """

    _posterior_types = (MeanFieldPosterior, DecorrelatedPosterior, SequentialPosterior)

    def __init__(
        self,
        features: Any = "auto",
        n_basis_functions: int = 1000,
        degree: int = 2,
        basis: str = "decorrelated",
        posterior: str = "sequential",
        prior: Any = "gaussian",
        n_levels: int = 15,
        levels: ArrayLike | str | None = None,
        level_scales: str = "own",
        n_draws: int = 64,
        bound: str = "auto",
        class_weight: Any = None,
        rank_inputs: bool = False,
        length_scale: float | ArrayLike | None = None,
        categories: Any = "auto",
        missing: str = "auto",
        optimizer: str = "pipeline",
        max_iter: int = 1000,
        max_hyperparameter_rows: int = 1000,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.n_basis_functions = n_basis_functions
        self.degree = degree
        self.basis = basis
        self.posterior = posterior
        self.prior = prior
        self.n_levels = n_levels
        self.levels = levels
        self.level_scales = level_scales
        self.n_draws = n_draws
        self.bound = bound
        self.class_weight = class_weight
        self.rank_inputs = rank_inputs
        self.length_scale = length_scale
        self.categories = categories
        self.missing = missing
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.max_hyperparameter_rows = max_hyperparameter_rows
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,)
            Labels: strings, numbers or booleans.
        sample_weight : array_like of shape (n_samples,), optional
            Number of times that each row counts; rows of weight zero count as absent.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described, or there is only one class.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        CoarseLevelsWarning
            If the levels of a sequential posterior are too coarse for what the data say.
        """
        x, index, weight = self._start_fit(X, y, sample_weight)
        n_threads = resolve_n_threads(self.n_threads)
        rng = self._generator()
        progress = Progress(self.verbose)

        labels = self._set_problems(index, _masses(index.astype(np.intp), weight))
        rows = TrainingRows(x, labels, weight)
        with single_blas_thread():
            with progress.stage("features"):
                self.features_ = self._fit_features(rows, rng, n_threads)
            problem = self._problem(rows, n_threads, progress)
            if self._bound() == "softmax":
                problem = self._widened(problem, rows, rng, n_threads, progress)
            with progress.stage("inference"):
                problem = problem.sharpened() if self.basis == "decorrelated" else problem
                self._infer(problem, rng)
            self._keep_left_out(problem.left_out if self.class_weight is None else np.empty(0), weight)
        self._multiply_odds()
        self.mean_missing_variance_ = problem.mean_missing_variance
        self.fit_seconds_ = progress.seconds
        self.n_samples_ = float(weight.sum())
        self._set_results()
        self._warn_if_unfinished()
        return self

    def _set_problems(self, index: FloatArray, mass: FloatArray) -> FloatArray:
        """Set the functions' intercepts from the classes' total weights, and return the labels ±1 of each function."""
        # One function for two classes, one per class for more.
        self._one_dimensional = len(self.classes_) == 2
        functions = [1] if self._one_dimensional else list(range(len(self.classes_)))
        own, total = mass[functions] + 0.5, mass.sum() + 1.0
        self.intercept_ = np.log(own / (total - own))
        if self._bound() == "softmax" and not self._one_dimensional:
            self.intercept_ = np.log(own) - np.log(own).mean()
        return np.where(index[:, None] == functions, 1.0, -1.0)

    # --- parameters

    def _check_parameters(self) -> None:
        if isinstance(self.prior, MixturePrior):
            raise ValueError("prior must factorise over the weights, got a MixturePrior")
        self._check_basis_parameters()
        as_choice(self.bound, "bound", ("auto", "softmax", *BOUNDS))
        if self.basis == "decorrelated":
            check_logistic_levels(self.n_levels, as_prior(self.prior), self._bound())
        if isinstance(self.class_weight, str):
            as_choice(self.class_weight, "class_weight", ("balanced",))
        elif self.class_weight is not None and not isinstance(self.class_weight, dict):
            raise TypeError(f"class_weight must be a dict, 'balanced' or None, got {self.class_weight!r}")
        if self._is_mean_field() and self.bound == "softmax":
            raise ValueError("bound must be 'jaakkola' or 'exponential' with posterior='mean_field', got 'softmax'")
        if self._is_sequential():
            self._check_sequential_parameters()

    def _check_sequential_parameters(self) -> None:
        if self._bound() != "softmax":
            raise ValueError(
                f"bound must be 'softmax' with posterior='sequential', got {self.bound!r}; use posterior='mean_field'"
            )
        super()._check_sequential_parameters()

    def _outputs(self) -> Outputs:
        return Outputs.of_logits(self.intercept_, self.classes_, self._n_encoded(), self._feature_names())

    def search_settings(self) -> SearchSettings:
        """Return the parameters that `pydirect.fit_quantized` uses, with functions to weight and fit labels.

        Returns
        -------
        SearchSettings
            The parameters.
        """
        return replace(super().search_settings(), classifier=ClassifierFits(self._class_weighted, self._fit_small))

    def _fit_small(
        self, x: FloatArray, labels: np.ndarray, weight: FloatArray, *, features: str, n_basis_functions: int, seed: int
    ) -> ClassifierFit:
        """Fit a classifier on other features, with the remaining parameters of this one."""
        model = type(self)(
            features,
            n_basis_functions,
            rank_inputs=False,
            max_hyperparameter_rows=self.max_hyperparameter_rows,
            n_threads=self.n_threads,
            random_state=seed,
        )
        with ignored():  # warnings of an intermediate fit
            model.fit(x, labels, weight)
        logit = np.reshape(model.predict_logit(x), (len(x), -1))
        hyperparameters = model.features_.hyperparameters
        return ClassifierFit(logit, model.intercept_, model.posteriors_, model.prior_scale_, hyperparameters)

    def _rows_that_count(
        self, x: FloatArray, y: np.ndarray, weight: FloatArray
    ) -> tuple[FloatArray, np.ndarray, FloatArray]:
        """Return rows of classes that count; factors of one softmax's odds are left for the end."""
        self._log_factors = np.empty(0)
        if self._bound() != "softmax" or self.class_weight is None:
            return self._class_weighted(x, y, weight)
        classes, index = np.unique(y, return_inverse=True)
        factors = self._class_factors(classes, _masses(index, weight))
        self._log_factors, used = np.log(factors[factors > 0]), factors[index] > 0
        return np.ascontiguousarray(x[used]), y[used], weight[used]

    def _class_weighted(
        self, x: FloatArray, y: np.ndarray, weight: FloatArray
    ) -> tuple[FloatArray, np.ndarray, FloatArray]:
        """Multiply the rows' weights by those of their classes; rows whose weight is then zero are left out."""
        if self.class_weight is None:
            return x, y, weight
        classes, index = np.unique(y, return_inverse=True)
        weight = weight * self._class_factors(classes, _masses(index, weight))[index]
        used = weight > 0
        return np.ascontiguousarray(x[used]), y[used], weight[used]

    def _class_factors(self, classes: np.ndarray, mass: FloatArray) -> FloatArray:
        """Return the weights of classes, given the total weight of each class's rows."""
        if self.class_weight is None:
            return np.ones(len(classes))
        if isinstance(self.class_weight, str):
            factors = mass.sum() / (len(mass) * mass)
        else:
            factors = compute_class_weight(self.class_weight, classes=classes, y=classes)
        if not (np.isfinite(factors) & (factors >= 0)).all() or not factors.any():
            raise ValueError(f"class_weight must be finite and non-negative, not all zero, got {factors}")
        return np.asarray(factors, dtype=np.float64)

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
        max_rows = self.max_hyperparameter_rows
        return fit_label_hyperparameters(
            inputs,
            y,
            weight,
            n_linear=n_linear,
            rng=rng,
            max_rows=max_rows,
            n_threads=n_threads,
            tied=tied,
        )

    def _variance_prior(self, mean_square: float) -> VariancePrior:
        """Prior of the weights' prior variance: narrow around what learned kernel hyperparameters imply, else wide."""
        if self.features_.hyperparameters is not None and self.length_scale is None:
            return VariancePrior(LOGIT_UNIT**2, KERNEL_LOG_VARIANCE_SD)
        return VariancePrior.wide(mean_square)

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        writer.arrays |= {"intercept": self.intercept_, "moves": self._moves}
        return super()._to_fields(writer)

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        n_outputs, two = len(self.posteriors_), len(self.classes_) == 2
        if n_outputs != (1 if two else len(self.classes_)) or self._one_dimensional != two:
            raise ValueError("posteriors do not fit the classes")
        self.intercept_ = arrays["intercept"]
        require_array(self.intercept_, "intercept", n_outputs)
        self._moves = require_array(arrays["moves"], "moves", n_outputs)

    # --- inference

    def _infer(self, problem: LabelProblem, rng: np.random.Generator) -> None:
        """Fit the posteriors in the informative directions, then in the raw basis if requested."""
        if self._bound() != "softmax":
            self._infer_one_against_rest(problem)
            return
        rotated = problem.rotated
        assert problem.ascent is not None
        if self._is_sequential():
            self._set_fit(self._draw(rotated, problem.ascent, problem.vectors, rng, rotated.n_threads, problem.stop))
        else:
            options = self._decorrelated_options(problem.variance_prior)
            fit = finish_decorrelated(
                rotated,
                problem.ascent,
                **options,
                max_iter=self.max_iter,
                stop=problem.stop,
                precision_factor=problem.precision_factor,
            )
            self._set_fit(turned(fit, problem.vectors))

    def _infer_one_against_rest(self, problem: LabelProblem) -> None:
        """Fit each class against the rest, several at a time."""
        labels, stop, n_threads = problem.raw.t, problem.stop, problem.raw.n_threads
        problems = range(labels.shape[1])
        n_workers = min(len(problems), n_threads)
        n_inner = n_threads if n_workers == 1 else 1
        raw = problem.raw.held() if self._is_mean_field() else problem.raw
        rotated, raw = replace(problem.rotated, n_threads=n_inner), replace(raw, n_threads=n_inner)
        bound, published = self._bound(), "exponential" if self._bound() == "exponential" else None

        def decorrelated(k: int) -> LogisticFit[DecorrelatedPosterior]:
            return fit_logistic_decorrelated(
                rotated.problem(labels[:, k], self.intercept_[k]),
                bound=published if self.basis == "decorrelated" else None,
                **self._decorrelated_options(problem.variance_prior),
                max_iter=self.max_iter,
                stop=stop,
            )

        def mean_field(k: int) -> LogisticFit[MeanFieldPosterior]:
            start = decorrelated(k)
            levels = shared_levels(self.levels, self.n_levels, raw.n_weights)
            rows = raw.problem(labels[:, k], self.intercept_[k])
            posterior = fit_logistic(
                rows,
                levels * np.sqrt(start.variance),
                as_prior(self.prior).log_mass(levels),
                bound=bound,
                start=state_of(rows, turned(start, problem.vectors)),
                optimizer=self.optimizer,
                max_iter=self.max_iter,
                stop=stop,
            )
            return LogisticFit([posterior.in_units_of(np.sqrt(start.variance))], start.variance)

        fits: list[LogisticFit[Any]]
        if self._is_mean_field():
            fits = list(for_each(mean_field, problems, n_workers, stop))
        else:
            fits = [turned(fit, problem.vectors) for fit in for_each(decorrelated, problems, n_workers, stop)]
        self._set_posteriors([fit.posterior for fit in fits], [fit.variance for fit in fits])

    # --- prediction

    def _log_odds(self, X: ArrayLike) -> FloatArray:
        """Log-odds of the predictive probability of each function, or of each class where they are one softmax."""
        x = self._check_rows(X)
        drawn = isinstance(self.posteriors_[0], SequentialPosterior)
        odds = self._log_odds_of_draws(x) if drawn else self._log_odds_of_moments(x)
        if self._moves.any():  # of predictive odds, so that rows rank as without
            odds += self._moves
            odds = _normalised(odds) if self._is_softmax() else odds
        return odds

    def _log_odds_of_moments(self, x: FloatArray) -> FloatArray:
        mean, variance = self._latent_moments(x, with_variance=True)
        assert variance is not None
        odds, several = np.empty_like(mean), self._is_softmax()
        for rows in self._blocks(x):  # quadrature needs much memory per row
            z = self.intercept_ - self._moves + mean[rows]
            if several:  # whose variances are equal, but for a prior that is not Gaussian
                odds[rows] = softmax_log_probability(z, variance[rows].mean(axis=1))
            else:
                odds[rows] = predictive_log_odds(z, variance[rows])
        return odds

    def _is_softmax(self) -> bool:
        """Whether the functions are the logits of one softmax."""
        return self._bound() == "softmax" and len(self.intercept_) > 1

    def _log_odds_of_draws(self, x: FloatArray) -> FloatArray:
        scaled = zip(self.posteriors_, self.prior_scale_, strict=True)
        weights = np.stack([scale * posterior.draws.T for posterior, scale in scaled], axis=1)
        odds = np.empty((len(x), weights.shape[1]))
        with single_blas_thread():  # the same bits for any number of threads
            for rows in self._blocks(x, weights[0].size):
                inputs, phi = self._features_of(x[rows])
                missing = self._missing_variance(inputs, phi)
                logit = (phi @ weights.reshape(len(weights), -1)).reshape(len(phi), *weights.shape[1:])
                logit += (self.intercept_ - self._moves)[:, None]
                if self._is_softmax():
                    odds[rows] = averaged_softmax(logit, None if missing is None else missing[:, 0])
                else:
                    odds[rows, 0] = averaged_log_odds(logit[:, 0], None if missing is None else missing[:, 0])
        return odds

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Log-odds of the predictive probability of the second class, or log-probabilities of several classes.

        With the published bounds, log-odds of each class against the rest.

        Returns an array (n_rows,) or (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
            Log-odds or log-probabilities.
        """
        return self._shape(self._log_odds(X))

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Predict log-probabilities of the classes, which are finite even if the probabilities underflow.

        Probabilities are averages over the draws of a sequential posterior, and else expectations over Gaussian z.

        Returns an array (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            In nats.
        """
        odds = self._log_odds(X)
        return log_expit(np.hstack([-odds, odds])) if odds.shape[1] == 1 else _normalised(odds)

    def predict_logit(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the logit z: its posterior mean and, on request, its standard deviation.

        Both are exact but for a sequential posterior, whose draws have them. The standard deviation is epistemic
        uncertainty; the aleatoric variance of a label at a known z is σ(z)σ(−z).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_classes)
            Logit of the second class, or of each class.
        std : ndarray of the same shape
            The posterior means.
        """
        mean, variance = self._latent_moments(self._check_rows(X), with_variance=return_std)
        mean = self._shape(self.intercept_ + mean)
        return mean if variance is None else (mean, self._shape(np.sqrt(variance)))

    def sample_proba(
        self, X: ArrayLike, n_samples: int = 1, random_state: np.random.Generator | int | None = 0
    ) -> FloatArray:
        """Draw weights from the posterior and return the probabilities that each draw gives.

        Returns an array (n_rows, n_classes, n_samples). Raises ValueError when a sequential posterior has kept fewer
        draws.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_samples : int, default=1
            Number of draws.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.

        Returns
        -------
        ndarray of shape (n_rows, n_classes, n_samples)
            Probabilities.
        """
        x = self._check_rows(X)
        n_samples = as_count(n_samples, "n_samples")
        z = self.intercept_[:, None] + self._draw_latent(x, n_samples, as_generator(random_state))
        if z.shape[1] == 1:
            return expit(np.concatenate([-z, z], axis=1))
        return np.exp(_normalised(z))


def _masses(index: NDArray[np.intp], weight: FloatArray) -> FloatArray:
    """Return the total weights of classes."""
    return np.bincount(index, weights=weight).astype(np.float64)


def _normalised(odds: FloatArray) -> FloatArray:
    """Log-probabilities from log-odds of each class against the rest, axis 1, given that exactly one is right.

    If independent events have probabilities p_k, the probability that the k-th alone happens is proportional to
    p_k/(1 − p_k).
    """
    return odds - log_sum_exp(odds)[:, None]
