"""`DirectRegressor`: linear-Gaussian regression on basis functions, with discrete weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_count, as_flag, as_number
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.direct.mixture_entropy import ENTROPIES
from pydirect.direct.mixture_posterior import MixturePosterior, as_component_count
from pydirect.direct.sequential import LEVEL_SCALES
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.levels import shared_levels
from pydirect.distributions.mixture_priors import MixturePrior, MixturePriorTable
from pydirect.distributions.priors import DensityPrior, GaussianPrior, as_prior
from pydirect.estimators._fitting import Training, fit_to_rows
from pydirect.estimators._functions import DrawsFunctions
from pydirect.estimators._local import LocalDetail
from pydirect.estimators._row_moments import RowMoments
from pydirect.estimators._row_noise import NOISE_OF_ROWS, RowNoiseModel
from pydirect.estimators._student_t import fit_student_t
from pydirect.estimators._target_units import TransformedTargets
from pydirect.estimators._varying_noise import choose_noise, fit_varying_noise
from pydirect.linear.decorrelated import DecorrelatedPosterior
from pydirect.linear.empirical_bayes import (
    InitialHyperparameters,
    Posterior,
    RawFit,
    RawPolicy,
    SequentialPolicy,
    finish,
    fit_decorrelated_by_evidence,
)
from pydirect.statistics.rotated import decorrelate

NOISE_POLICIES = ("auto", "constant", "grid", *NOISE_OF_ROWS)
NOISE_FITS = {"auto": choose_noise, "varying": fit_varying_noise, "student_t": fit_student_t}
LARGEST_NOISE = 1e300  # in units of the targets' variance; its inverse is the smallest


class DirectRegressor(TransformedTargets, LocalDetail, RowNoiseModel, DrawsFunctions):
    """Bayesian regression on basis functions, trained exactly by discrete relaxation (DIRECT).

    Every weight takes one of a few levels, so that the evidence lower bound and its gradient are exact and training
    needs only ``ΦᵀΦ``, ``Φᵀy``, ``yᵀy`` and ``n`` (Evans & Nair 2018).

    Parameters
    ----------
    features : str or transformer, default="auto"
        ``"nystroem"``: kernel functions at up to `n_basis_functions` training rows, the exact Gaussian process if there
        are no more rows. ``"fourier"``: random Fourier features of the same kernel, cheaper for very many rows, for
        prediction and on devices. ``"linear"``: the standardised columns of X in their order without constant ones,
        then a column of ones. ``"polynomial"``, ``"precomputed"`` (X is Φ), or any scikit-learn transformer, which is
        cloned and fitted to X. Both kernels have a linear part, which follows an input up to five standard deviations
        from its mean; farther out, predictions level off and their standard deviations grow. ``"auto"`` is
        ``"nystroem"`` in the decorrelated basis and ``"fourier"`` in the raw one.
    n_basis_functions : int, default=2000
        Number of basis functions of ``"nystroem"`` and of sines and cosines of ``"fourier"``.
    degree : int, default=2
        Degree of ``"polynomial"`` features.
    basis : {"decorrelated", "raw"}, default="decorrelated"
        ``"decorrelated"`` rotates the weights so that they do not interact, on levels at the quadrature nodes of each
        one's posterior. ``"raw"`` keeps the weights of the basis functions themselves, on a few levels: 4-bit integers,
        zero included, as small devices want them, and as accurate.
    posterior : {"sequential", "mean_field"}, default="sequential"
        Posterior of the raw basis. ``"sequential"``: weights drawn one after another, each given those before it, at
        the noise and prior variance of largest evidence; see `pydirect.direct.fit_sequential`. ``"mean_field"``:
        independent weights, or mixtures of such posteriors, the published method.
    prior : str or Prior, default="gaussian"
        Prior of each weight, in units of its prior standard deviation: ``"gaussian"``, ``"laplace"``, ``"student_t"``,
        ``"spike_and_slab"`` (raw basis only), or an object with ``log_mass(levels)``. With ``posterior="mean_field"``
        also a `pydirect.MixturePrior`, which does not factorise; its ``groups`` are one number per weight or, for
        ``"linear"``, one per column of X: the constant then has a prior of its own and is never switched off.
    n_levels : int, default=15
        Number of values that a weight can take; 16 or fewer fit into 4 bits. Odd with own level scales. In the
        decorrelated basis any number from 2 on has the same means, variances and ELBO.
    levels : {"even", "power_of_two"} or array_like of shape (n_levels,) or (n_weights, n_levels), optional
        Levels of the raw basis: evenly spaced by default; ``"power_of_two"``, 0 and ± powers of two, so that devices
        multiply by shifts. In units of the prior standard deviation where all weights share them, of any unit where
        scales are own.
    level_scales : {"auto", "own", "centred", "shared"}, default="auto"
        Scales of the levels of a sequential posterior. ``"own"``: a power of two per weight. ``"centred"``: the same
        about each weight's posterior mean: no weight is then zero, and devices need floating point. ``"shared"``: the
        prior standard deviation for all. ``"auto"`` is ``"own"``, or ``"centred"`` where that would lose more than five
        nats per weight, because the data determine weights to a small fraction of their size.
    n_draws : int, default=64
        Number of draws of a sequential posterior to keep, two or more, half a byte per weight each; predictions are
        their moments.
    keep_factor : bool, default=False
        Whether a sequential posterior keeps its factor, 8 bytes per pair of weights in memory and in files: draws are
        then as many as are asked for, and predictions under the Gaussian prior the exact moments of continuous weights.
    noise : {"auto", "constant", "grid", "varying", "student_t"} or float, default="auto"
        The noise and how it is found. ``"constant"``: one variance for all rows, inferred together with the weights in
        the decorrelated basis; in the raw one fixed where the marginal likelihood of continuous weights is largest, and
        raised by what levels that are too coarse cannot represent. ``"grid"``: one variance, inferred on a grid
        together with the weights, as published; for ``posterior="mean_field"`` only. A number fixes the variance, in
        squared units of the (transformed) y, at no less than 1e-10 of its variance. ``"varying"`` (decorrelated basis,
        `fit` only): the noise variance of each row is a function of X, learned by a regression of its own from
        residuals of left-out rows; a second fit of the mean, to rows weighted by their precisions, is kept where it
        predicts left-out rows better. Predictive distributions are mixtures over the row's own noise variance, with
        heavy tails where left-out rows are likelier under them. ``"student_t"`` (likewise): for outliers, which hardly
        move the mean; noise is Student-t with three degrees of freedom during the fit, and of the tails that make
        left-out rows likeliest in predictions; targets farther than 20 median absolute deviations from the median count
        as that far. ``"auto"`` is ``"constant"``, but `fit` with a learned kernel and 200
        rows or more chooses ``"varying"`` noise or heavy tails where left-out rows do not look like Gaussian noise of
        constant variance, and are likelier under them, and than with a local process; not with a transformed target or
        `store_loo`.
    n_noise_levels : int, default=15
        Number of values that an inferred noise variance can take; 1 fixes it where the evidence is largest.
    target_transform : {"log", "sqrt", "auto"} or list of them, optional
        What of a positive target is modelled: ``"log"`` for prices, durations and whatever varies by percentages;
        ``"sqrt"`` for counts and other targets that may be zero. ``"auto"`` takes the one under which left-out rows are
        likeliest, in y's units, if it gains .02 nats a row and a standard error (of 2000 rows and 300 landmarks), and
        none for targets below zero. A list has one name or None per output. Means, deviations, intervals, densities
        and scores are in y's own units whatever the transform; its inverse is exact.
    rank_inputs : bool, default=True
        Give the kernel every column twice: standardised, and as its normal scores.
    length_scale : float or array_like of shape (n_features_in,), optional
        Fixed length-scales of a smooth kernel in units of X's columns, instead of learned ones.
    local : {"auto", False} or int, default="auto"
        Detail between the landmarks of large tables: a Gaussian process on the leave-one-out residuals of the model of
        all rows, conditioned on this number of nearest training rows. Its scale follows the neighbours', so that noise
        may differ from place to place. ``"auto"``: 32 neighbours where `fit` is given at least 1000 rows, two per basis
        function, and rows that are left out gain more than 0.02 nats each. Needs a learned or given kernel, the
        decorrelated basis, a Gaussian prior, noise that is not fixed, and rows rather than sums over them; elsewhere
        ``"auto"`` means False. The model then holds the rows in single precision. Draws of functions and
        quantised models leave it out, with a warning.
    categories : "auto" or list of str or int, default="auto"
        Columns of text, categories and booleans of pandas or polars frames, or of arrays of objects, are encoded, one
        column of 0 and 1 per category, which share a length-scale; see `pydirect.features.Columns`. A list names
        columns, or gives their numbers, whose numbers are categories as well. Features that are ``"precomputed"`` or a
        transformer take numbers only.
    missing : {"auto", "indicator", "raise"}, default="auto"
        What becomes of missing numbers: NaN, None or NA. ``"auto"``: they are expected from the row's other columns,
        and where the mean of the target differs with their absence, a column of 0 and 1 tells it. ``"indicator"``: such
        a column for every one that lacks numbers. ``"raise"``: they are an error. The uncertainty of a number that is
        missing widens no prediction.
    n_components : int, default=1
        Number of components of a mean-field posterior: more than one make it a mixture, which represents correlations
        between weights; see `pydirect.fit_mixture`. Must be 1 otherwise: in the decorrelated basis the weights are
        independent given the noise, and a sequential posterior has their correlations.
    entropy : {"pairwise", "taylor", "stochastic"}, default="pairwise"
        How the entropy of a mixture is bounded.
    optimizer : str, default="pipeline"
        Optimiser of mean field in the raw basis; see `pydirect.fit_mean_field`.
    max_iter : int, default=1000
        Largest number of iterations of any one stage.
    max_hyperparameter_rows : int, default=1000
        Largest number of rows in the marginal likelihood that finds the kernel's hyperparameters.
    store_loo : bool, default=False
        Whether `fit` predicts every training row without itself: ``loo_residuals_``, ``loo_log_density_`` and intervals
        of ``method="jackknife+"``, all of the model without its local process and with constant noise, which
        ``noise="auto"`` then is. Decorrelated basis and Gaussian prior only; models hold the training rows then.
    block_dtype : {"float64", "float32"}, default="float64"
        Precision of products within a block of rows; sums are float64 always. Single precision halves the time of sums
        over rows of Fourier features; with landmarks it may take longer, as every row is then whitened by itself, in
        double precision. Its rounding, about 2e-7 of the largest diagonal entry of ΦᵀΦ, hides directions that carry
        less, which costs accuracy where rows are very many or the noise is very small.
    n_threads : int, optional
        By default, OpenMP's current number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the rows for hyperparameters, landmarks and frequencies.
    verbose : int, default=0
        1 reports stages on standard error.

    Attributes
    ----------
    posterior_ : DecorrelatedPosterior, SequentialPosterior, MeanFieldPosterior or MixturePosterior
        A list of them for several outputs.
    features_ : Basis
        From rows of X to Φ, by ``features_.transform(X)``: standardisation (``features_.input_map``), feature map
        (``features_.map``, say with its ``frequencies``) and the kernel's ``features_.hyperparameters``.
    columns_ : Columns
        From tables to the rows of numbers that ``features_`` takes, by ``columns_.encode(X)``; quantised models and
        exports take these rows, whose columns are named ``columns_.names_out``.
    search_ : HyperparameterSearch or None
        What the search of the kernel's hyperparameters has tried, and whether subsets of the rows agree.
    coef_ : ndarray of shape (n_weights,) or (n_outputs, n_weights)
        Posterior means of the weights of `features_`, standardised units.
    elbo_ : float
        Evidence lower bound of the targets in their own units, in nats, summed over outputs.
    elbo_trace_ : ndarray of shape (n_iter,), or a list of them
        The bound after each iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the optimisation came to rest.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    n_samples_ : float
        Sum of the weights.
    effective_rows_ : float
        Number of rows that tell of the noise: all of `n_samples_`, unless repetitions are copies; see `fit`.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Expected noise variance in squared units of y, or of the transformed y, averaged over the training rows where it
        varies.
    target_transform_ : TargetTransform or None
        The transforms that were used, one per output; ``str`` of it is a formula.
    noise_model_ : NoiseModel or None
        Noise that is not one Gaussian for all rows: what was chosen, and the regression of the log noise variance.
    noise_choice_ : dict of str to float or ndarray of shape (n_outputs,)
        What kinds of noise were compared, and their mean log densities of left-out rows, in y's units.
    calibration_scale_ : float
        1, or what `calibrate` found.
    held_rows_ : HeldRows
        After `partial_fit`, while there are few rows: all of them.
    local_ : LocalProcess or None
        The local process: number of neighbours ``k``, length-scale ``rho``, noise ``eta`` and scale ``c`` of each
        output, and ``gain``, the nats per row by which it predicted left-out training rows better.
    loo_residuals_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        When `store_loo`: (transformed) training targets minus their means predicted without the row, and all its copies
        unless they are measurements (see `fit`). Exact refits, but that the feature map, the hyperparameters and the
        noise variance keep the row: compare models of one feature map by them; on few rows with little noise they are
        too good for an estimate of the test error.
    loo_log_density_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        When `store_loo`: log densities of training targets, predicted like ``loo_residuals_``.
    fit_seconds_ : dict of str to float
        Seconds of each stage.
    posteriors_ : list
        `posterior_` as a list, one per output.
    coefficients_ : ndarray of shape (n_weights, n_outputs)
        `coef_`, with an axis of outputs always.
    prior_scale_ : ndarray of shape (n_outputs,)
        Prior standard deviations of the weights, standardised units.
    mean_missing_variance_ : float
        Prior variance of f that the basis functions miss, averaged over the training rows.
    repetitions_ : float
        `n_samples_` over `effective_rows_`.
    y_mean_ : ndarray of shape (n_outputs,)
        Mean of the training targets, as they were modelled; of private sums the middle of their bounds.
    y_scale_ : ndarray of shape (n_outputs,)
        Their standard deviation, one where it is zero, or half the bounds' distance: units of the posterior.
    n_features_in_ : int
        Number of columns of X.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from pydirect import DirectRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DirectRegressor().fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> lower, upper = model.predict_interval(X[400:], level=0.9)
    """

    _level_scales = ("auto", *LEVEL_SCALES)
    _posterior_types = (MeanFieldPosterior, DecorrelatedPosterior, MixturePosterior, SequentialPosterior)

    def __init__(
        self,
        features: Any = "auto",
        n_basis_functions: int = 2000,
        degree: int = 2,
        basis: str = "decorrelated",
        posterior: str = "sequential",
        prior: Any = "gaussian",
        n_levels: int = 15,
        levels: ArrayLike | str | None = None,
        level_scales: str = "auto",
        n_draws: int = 64,
        keep_factor: bool = False,
        noise: str | float = "auto",
        n_noise_levels: int = 15,
        target_transform: str | Sequence[str | None] | None = None,
        rank_inputs: bool = True,
        length_scale: float | ArrayLike | None = None,
        local: bool | str | int = "auto",
        categories: Any = "auto",
        missing: str = "auto",
        n_components: int = 1,
        entropy: str = "pairwise",
        optimizer: str = "pipeline",
        max_iter: int = 1000,
        max_hyperparameter_rows: int = 1000,
        store_loo: bool = False,
        block_dtype: str = "float64",
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
        self.keep_factor = keep_factor
        self.noise = noise
        self.n_noise_levels = n_noise_levels
        self.target_transform = target_transform
        self.rank_inputs = rank_inputs
        self.length_scale = length_scale
        self.local = local
        self.categories = categories
        self.missing = missing
        self.n_components = n_components
        self.entropy = entropy
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.max_hyperparameter_rows = max_hyperparameter_rows
        self.store_loo = store_loo
        self.block_dtype = block_dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row is repeated, as in scikit-learn; a row given twice is one of weight two. Repetitions
            count fully where they are measurements: where targets have few values and rows that agree in X often differ
            in y, or the noise is given as a number. Otherwise they are taken for copies, which prove nothing about the
            noise: all weights then count relative to each other, and together for no more than the rows that differ.
            They are no precisions: the noise of a new row is the same whatever weights rows like it had.

        Returns
        -------
        Self
            The fitted model.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        CoarseLevelsWarning
            If the levels of a sequential posterior are too coarse for what the data say.
        """
        self._check_parameters()
        fit_to_rows([self], X, [y], sample_weight, Progress(self.verbose))
        self._hold(X, y, sample_weight)
        self._warn_if_unfinished()
        return self

    # --- parameters

    def _check_parameters(self) -> None:
        if self.basis == "decorrelated" and isinstance(self.prior, MixturePrior):
            raise ValueError(
                "prior must factorise over the weights in the decorrelated basis, got a MixturePrior; use basis='raw'"
            )
        self._check_basis_parameters()
        as_count(self.n_noise_levels, "n_noise_levels")
        as_component_count(self.n_components)
        as_choice(self.entropy, "entropy", ENTROPIES)
        as_choice(self.block_dtype, "block_dtype", ("float64", "float32"))
        if isinstance(self.noise, str):
            as_choice(self.noise, "noise", NOISE_POLICIES)
        else:
            as_number(self.noise, "noise", above=0.0)
        if self.noise == "grid" and (self.basis == "decorrelated" or self._is_sequential()):
            raise ValueError("noise='grid' is for basis='raw' with posterior='mean_field', use 'constant'")
        if self.basis == "decorrelated" and self.n_components > 1:
            raise ValueError("n_components must be 1 in the decorrelated basis; use basis='raw'")
        as_flag(self.keep_factor, "keep_factor")
        self._check_leaving_out()
        self._check_target_transform()
        self._check_noise_of_rows()
        self._check_local()
        if self._is_sequential():
            self._check_sequential_parameters()

    def _check_sequential_parameters(self) -> None:
        hint = "with posterior='sequential'; use posterior='mean_field'"
        if isinstance(self.prior, MixturePrior):
            raise ValueError(f"prior must factorise over the weights, not be a MixturePrior, {hint}")
        if self.n_components > 1:
            raise ValueError(f"n_components must be 1 {hint}")
        super()._check_sequential_parameters()

    # --- inference

    def _infer(self, training: Training) -> None:
        fitted: Sequence[tuple[Posterior | SequentialPosterior, float]]
        self.local_, self.noise_model_ = None, None
        if self.basis == "decorrelated":
            fitted = self._fit_decorrelated(training)
        elif self._is_sequential():
            fitted = self._fit_sequential(training)
        else:
            fitted = finish(self._raw_fits(training))
        self._set_posteriors(fitted)
        moments = self._row_moments(training)
        if self.noise in NOISE_OF_ROWS:
            self._fit_noise(training, moments)
        if self.store_loo and training.given is not None:
            assert training.undivided is not None  # in the decorrelated basis
            self.store_left_out(training.given, training.undivided)
        self._fit_local(training, moments)
        if self.noise == "auto" and self._noise_may_replace_local():
            self._fit_noise(training, moments)

    def _set_alone(self, fitted: Sequence[tuple[Posterior, float]]) -> None:
        self.local_, self._local_gain, self.noise_model_ = None, None, None
        self._set_posteriors(fitted)

    def _set_posteriors(self, fitted: Sequence[tuple[Posterior | SequentialPosterior, float]]) -> None:
        self.posteriors_ = [posterior for posterior, _ in fitted]
        self.prior_scale_ = np.array([scale for _, scale in fitted])
        self._set_coefficients()

    def _row_moments(self, training: Training) -> RowMoments | None:
        """Return moments of functions at the rows of a fit in the decorrelated basis, none of them computed yet."""
        constant = not isinstance(self.noise, str) or self.noise == "constant"
        if training.rows is None or training.rotated is None or (constant and self.local is False):
            return None
        first, weight, _ = training.rows.merged
        used = weight > 0
        noise = np.array([1 / posterior.noise.precision for posterior in self.posteriors_])
        parameters = (training.rotated, noise, self.prior_scale_**2, training.rng.spawn(1)[0], training.n_threads)
        return RowMoments(self, training.rows.x[first[used]], weight[used], *parameters)

    def _fit_noise(self, training: Training, moments: RowMoments | None) -> None:
        """Set the noise of rows that was asked for, or that makes left-out rows likelier than constant noise."""
        if moments is None or not self._may_fit_noise():
            return
        assert isinstance(self.noise, str)
        fitted = list(zip(self.posteriors_, self.prior_scale_.tolist(), strict=True))
        fitted, found = NOISE_FITS[self.noise](self, training, fitted, moments)
        if self.local_ is not None and (found is None or found.gain() <= self.local_.gain.mean()):
            return  # both stand for what constant noise leaves over: the one of which left-out rows have more
        self.local_, self.noise_model_ = None, found
        self._set_posteriors(fitted)

    def _needs_rotation(self) -> bool:
        return self.basis == "decorrelated"

    def _initial_hyperparameters(self, output: int) -> InitialHyperparameters:
        """Return what is known of a target's hyperparameters, in standardised units."""
        noise, prior_variance = 0.1, None
        kernel, unit = self.features_.hyperparameters, self.features_.target_scale
        if kernel is not None and unit is not None:
            # They are in units of the standard deviation of the targets from which they were learned.
            prior_variance = float(unit[output] / self.y_scale_[output]) ** 2
            noise = kernel.noise_variance * prior_variance
        return InitialHyperparameters(noise, prior_variance, self._fixed_noise(output))

    def _fixed_noise(self, output: int) -> float | None:
        if isinstance(self.noise, str):
            return None
        spread = float(self.y_scale_[output])
        ratio = float(self.noise) / spread / spread  # the square of either could overflow or underflow
        if not 1 / LARGEST_NOISE <= ratio <= LARGEST_NOISE:
            raise ValueError(
                f"noise must be within a factor of {LARGEST_NOISE:g} of y's variance, got {self.noise:g} for targets "
                f"whose standard deviation is {spread:g}"
            )
        return ratio

    def _fit_decorrelated(self, training: Training) -> list[tuple[DecorrelatedPosterior, float]]:
        prior = as_prior(self.prior)
        assert isinstance(prior, DensityPrior)
        rotated = training.rotated or decorrelate(training.statistics)
        return [
            fit_decorrelated_by_evidence(
                rotated.target(k),
                self._initial_hyperparameters(k),
                prior=prior,
                n_levels=self.n_levels,
                n_noise_levels=self.n_noise_levels if isinstance(self.noise, str) else 1,
                max_iter=self.max_iter,
            )
            for k in range(training.statistics.n_outputs)
        ]

    def _fit_sequential(self, training: Training) -> list[tuple[SequentialPosterior, float]]:
        prior = as_prior(self.prior)
        policy = SequentialPolicy(
            prior,
            self.n_levels,
            self._unit_levels(),
            self.level_scales,
            self.n_draws,
            self.keep_factor,
            getattr(self.features_.map, "pairs", None),
            training.n_threads,
        )
        outputs = range(training.statistics.n_outputs)
        return policy.fit(
            [training.statistics.target(k) for k in outputs],
            [self._initial_hyperparameters(k) for k in outputs],
            [int(training.rng.integers(2**31)) for _ in outputs],
        )

    def _raw_fits(self, training: Training) -> list[RawFit]:
        """Begin the fit of every output in the raw basis."""
        statistics = training.statistics
        policy = self._raw_policy(statistics.n_weights, training.n_threads)
        return [
            policy.begin(statistics.target(k), self._initial_hyperparameters(k), int(training.rng.integers(2**31)))
            for k in range(statistics.n_outputs)
        ]

    def _raw_policy(self, n_weights: int, n_threads: int) -> RawPolicy:
        levels, prior = shared_levels(self.levels, self.n_levels, n_weights), as_prior(self.prior)
        log_prior: FloatArray | MixturePriorTable
        if isinstance(prior, MixturePrior):
            log_prior = self._prior_table(prior, levels, n_weights)
        else:
            log_prior = prior.log_mass(levels)
        noise = self.noise if isinstance(self.noise, str) else "fixed"
        return RawPolicy(
            levels,
            log_prior,
            noise="constant" if noise == "auto" else noise,
            n_noise_levels=self.n_noise_levels,
            n_components=self.n_components,
            entropy=self.entropy,
            optimizer=self.optimizer,
            max_iter=self.max_iter,
            n_threads=n_threads,
        )

    def _prior_table(self, prior: MixturePrior, levels: FloatArray, n_weights: int) -> MixturePriorTable:
        """Tabulate a mixture prior; groups per column of X do not cover the constant, the last linear feature.

        The constant becomes a group of its own, whose components are all the same standard Gaussian.
        """
        if prior.groups is None or self._feature_kind() != "linear":
            return prior.table(levels, n_weights)
        groups = np.asarray(prior.groups)
        if len(groups) not in (self.n_features_in_, n_weights):
            raise ValueError(
                f"groups must have one number per column of X, {self.n_features_in_}, or per weight, {n_weights}, got "
                f"{len(groups)}"
            )
        if len(groups) != self.n_features_in_:
            return prior.table(levels, n_weights)
        columns = groups[self.columns_.origins][self.features_.input_map.kept]
        table = replace(prior, groups=(*columns, groups.max() + 1)).table(levels, n_weights)
        shape = (len(table.log_masses), n_weights, levels.shape[1])
        log_masses = np.broadcast_to(table.log_masses, shape).copy()
        log_masses[:, -1] = GaussianPrior().log_mass(levels)[-1]
        return replace(table, log_masses=log_masses)

    # --- prediction

    def _latent_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        if not any(isinstance(posterior, MixturePosterior) for posterior in self.posteriors_):
            return super()._latent_components(rows)
        n_threads = resolve_n_threads(self.n_threads)
        inputs, phi = self._features_of(rows)
        missing = self._missing_variance(inputs, phi)
        components = []
        for k, (posterior, scale) in enumerate(zip(self.posteriors_, self.prior_scale_, strict=True)):
            assert isinstance(posterior, MixturePosterior)  # all outputs have posteriors of one type
            means, variances = posterior.component_moments(phi, n_threads)
            variances = scale**2 * variances + (0.0 if missing is None else missing[:, k, None])
            components.append((posterior.alpha, scale * means, variances))
        return components

    def predict_cumulants(self, X: ArrayLike) -> FloatArray:
        """Predict the first four cumulants of the target: mean, variance and the two beyond a Gaussian.

        Exact where weights are independent in each component of the posterior: their cumulants add, and moments mix
        over the components. Those of a sequential posterior are of its kept draws, or of continuous weights with
        ``keep_factor=True``. The noise is a mixture of Gaussians over its grid. With a local process predictions are
        Gaussian.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (4, n_rows) or (4, n_rows, n_outputs)
            The k-th is in the target's units to the power k; `calibrate` does not affect it.

        Raises
        ------
        ValueError
            With a `target_transform`.
        """
        x = self._check_rows(X)
        self._require_cumulants()
        cumulants = np.zeros((4, len(x), len(self.y_mean_)))
        if self.local_ is not None:
            cumulants[0], variance, noise = self._local_parts(x)
            cumulants[1] = variance + noise
            return self._in_units(cumulants)
        for rows in self._blocks(x):
            inputs, phi = self._features_of(x[rows])
            noises = self._noise_of(x[rows])
            for k, (posterior, scale) in enumerate(zip(self.posteriors_, self.prior_scale_, strict=True)):
                for order in range(1, 5):
                    cumulants[order - 1, rows, k] = scale**order * posterior.latent_cumulant(phi, order)
            missing = self._missing_variance(inputs, phi)
            if missing is not None:
                cumulants[1, rows] += missing
            for k, (weights, noise) in enumerate(noises):
                cumulants[1, rows, k] += noise @ weights
                cumulants[3, rows, k] += 3 * (noise**2 @ weights - (noise @ weights) ** 2)
        return self._in_units(cumulants)

    def _in_units(self, cumulants: FloatArray) -> FloatArray:
        """Return standardised cumulants, (4, n_rows, n_outputs), in units of the targets."""
        cumulants *= self.y_scale_ ** np.arange(1, 5)[:, None, None]
        cumulants[0] += self.y_mean_
        return cumulants[:, :, 0] if self._one_dimensional else cumulants
