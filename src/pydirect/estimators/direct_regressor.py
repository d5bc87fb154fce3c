"""`DirectRegressor`: linear-Gaussian regression on basis functions."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pydirect._documentation import described_by, takes_rows
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_count, as_generator
from pydirect.estimators._estimator import Estimator, of_model, refuse_ignored
from pydirect.estimators._incremental import IncrementalRegressor
from pydirect.estimators.regression import (
    choose_scale,
    coarse_first,
    collect,
    collect_enough,
    fit_features,
    fit_units,
    infer,
    lost_digits,
    merged,
    warn_of_outliers,
)
from pydirect.estimators.summary import lines_of_regressor
from pydirect.fitted.functions import Door, FunctionDraws, draw_functions, gradients, obstacle_to_gradients
from pydirect.predictive.transformed import TargetTransform
from pydirect.quantized.fitted import FittedBasisModel, SearchSettings


@described_by(Estimator)
@dataclass(eq=False, repr=False)
class DirectRegressor(IncrementalRegressor):
    """Bayesian regression on basis functions, with a posterior in closed form.

    Weights are Gaussian or, on request, take one of a few levels (DIRECT, Evans & Nair 2018). Either way the evidence
    lower bound and its gradient are exact, and training needs only ``ΦᵀΦ``, ``Φᵀy``, ``yᵀy`` and ``n``.

    Parameters
    ----------
    features : str, Nystroem, Fourier, Polynomial or transformer, default="auto"
        ``"nystroem"``: kernel functions at up to `n_basis_functions` training rows, at 512 of more than a thousand
        where these miss little beside the noise, the exact Gaussian process where all rows are taken. ``"fourier"``:
        random Fourier features of the same kernel, cheaper for very many rows, for prediction and on devices.
        ``"linear"``: the standardised columns of X in their order without constant ones, then a column of ones.
        ``"polynomial"``, ``"precomputed"`` (X is Φ), or any scikit-learn transformer, which is cloned and fitted to X.
        Objects have options: `pydirect.Nystroem`. Both kernels have a linear part, which follows an input up to five
        standard deviations from its mean; farther out, predictions level off and their
        standard deviations grow. ``"auto"`` is ``"nystroem"`` for Gaussian weights and ``"fourier"`` for discrete ones.
    n_basis_functions : int, default=2000
        Largest number of basis functions of ``"nystroem"``, and number of sines and cosines of ``"fourier"``.
    posterior : {"gaussian", "sequential", "mean_field"}, Gaussian, Sequential or MeanField, default="gaussian"
        ``"gaussian"``: continuous weights, the noise variance inferred together with them. ``"sequential"``: discrete
        weights of the basis functions themselves, 4-bit integers, zero included, drawn one after another, each given
        those before it, as accurate as continuous ones; see `pydirect.Sequential`. ``"mean_field"``: independent
        discrete weights, or mixtures of such posteriors, the published method; see `pydirect.MeanField`.
    noise : {"auto", "constant", "grid", "varying", "student_t"} or float, default="auto"
        The noise and how it is found. ``"constant"``: one variance for all rows, inferred together with Gaussian
        weights; with discrete ones fixed where the marginal likelihood of continuous weights is largest, and raised by
        what levels that are too coarse cannot represent. ``"grid"``: one variance, inferred on a grid together with
        the weights, as published; for ``posterior="mean_field"`` only. A number fixes the variance, in squared units of
        the (transformed) y, at no less than 1e-10 of its variance. ``"varying"`` (Gaussian weights, `fit` only): the
        noise variance of each row is a function of X, learned by a regression of its own from leave-one-out residuals;
        a second fit of the mean, to rows weighted by their precisions, is kept where it predicts rows left out better.
        Predictive distributions are mixtures over the row's own noise variance, with heavy tails where leave-one-out
        scores favour them. ``"student_t"`` (likewise): for outliers, which hardly move the mean; noise is Student-t
        with three degrees of freedom during the fit, and of the tails of best leave-one-out score in predictions;
        targets farther than 20 median absolute deviations from the median count as that far. ``"auto"`` is
        ``"constant"``, but `fit` with a learned kernel and 200 rows or more chooses ``"varying"`` noise or heavy tails
        where leave-one-out residuals do not look like Gaussian noise of constant variance, and scores favour it, also
        over a local process.
    target_transform : str, TargetScale, TargetTransform, transformer, list of them or None, default="auto"
        The scale on which y is modelled. ``"auto"``, the default, chooses in `fit` of 80 rows or more, by leave-one-out
        density in y's units, among y itself and those of roots, logarithm (positive y), log-odds (between 0 and 1) and
        inverse sinh (heavy tails on both sides): one that gains .02 nats a row and a standard error, whose means are no
        farther from rows left out, about a Gaussian posterior with noise that is not given. Sums over rows, streams,
        groups, searches and `fit_many` choose none. ``"log"`` is for what varies by percentages, the roots for counts
        and other targets that may be zero, ``TargetScale("logit", -low, high - low)`` for other bounds; a scikit-learn
        transformer with an inverse is fitted to y and must increase. None: y itself. A list, or a fitted
        ``target_transform_``, has one per output. Means, deviations, intervals, densities and scores are in y's own
        units whatever the scale, and `predict` is the mean, of values within twice the range of the training targets
        beyond them; where leave-one-out errors were smaller for something between mean and median, that.
        ``predict_quantiles(X, 0.5)`` is the median.
    local : {"auto", False} or int, default="auto"
        Number of nearest rows in the local correction, a nearest-neighbour Gaussian process on leave-one-out residuals
        of the model of all rows. Its scale follows the neighbours', so that noise may differ from place to place.
        ``"auto"``: 32 neighbours where `fit` is given at least 1000 rows, two per basis function, and leave-one-out
        scores gain more than 0.02 nats a row. Needs a learned or given kernel, Gaussian weights, noise that is not
        fixed, and rows rather than sums over them; elsewhere ``"auto"`` means False. The model then has the rows in
        single precision. Draws of functions and quantised models leave it out, with a warning.
    max_iter : int, default=1000
        Largest number of iterations of any one stage.
    columns : Columns, optional
        Which columns are categories, and what becomes of missing numbers; see `pydirect.Columns`. By default columns of
        text, categories and booleans are encoded, one column of 0 and 1 per category, which share a length-scale, and
        missing numbers are expected from the row's other columns. Features that are ``"precomputed"`` or a transformer
        take numbers only.

    Attributes
    ----------
    posterior_ : GaussianPosterior, SequentialPosterior, MeanFieldPosterior or MixturePosterior
        A list of them for several outputs.
    model_ : FittedRegressor
        The fitted model as frozen data: latent functions, units, noise and local process.
    features_ : Basis
        From rows of X to Φ, by ``features_.transform(X)``: standardisation (``features_.input_map``), feature map
        (``features_.map``, say with its ``frequencies``) and the kernel's ``features_.hyperparameters``.
    columns_ : ColumnEncoding
        From tables to the rows of numbers that ``features_`` takes, by ``columns_.encode(X)``; quantised models and
        exports take these rows, whose columns are named ``columns_.names_out``.
    search_ : HyperparameterSearch or None
        What the search of the kernel's hyperparameters has tried, and which kernel it chose.
    coef_ : ndarray of shape (n_weights,) or (n_outputs, n_weights)
        Posterior means of the weights of `features_`, standardised units.
    elbo_ : float
        Evidence lower bound of the targets in their own units, in nats, summed over outputs.
    elbo_trace_ : ndarray of shape (n_iter,), or a list of them
        The bound after each iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the optimisation converged.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    n_samples_ : float
        Sum of the weights.
    effective_rows_ : float
        Number of rows that tell of the noise: all of `n_samples_`, unless repetitions are duplicates; see `fit`.
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
        1, or what `calibrate` found; with a learned kernel and fewer than 50 rows, what is not known of the unit of
        deviations: that of Student-t intervals.
    buffered_rows_ : RowBuffer
        After `partial_fit`, while there are few rows: all of them.
    local_ : LocalProcess or None
        The local process: number of neighbours ``k``, length-scale ``rho``, noise ``eta`` and scale ``c`` of each
        output, and ``gain``, the nats per row by which it predicted left-out training rows better.
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

    features: Any = "auto"
    n_basis_functions: int = 2000
    posterior: Any = "gaussian"
    noise: str | float = "auto"
    target_transform: Any = "auto"
    local: bool | str | int = "auto"
    max_iter: int = 1000

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.target_transform in ("log", "sqrt", "cbrt", "logit")
        return tags

    @takes_rows
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row is repeated, as in scikit-learn; a row given twice is one of weight two. Repetitions
            count fully where they are replicates: where targets have few values and rows that agree in X often differ
            in y, or the noise is given as a number. Otherwise they are taken for duplicates, which prove nothing about
            the noise: all weights then count relative to each other, and together for no more than the rows that
            differ, for fewer the less equal they are. Weights are not precisions: they do not change the noise
            predicted for new rows.

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
        TargetWarning
            If a few gross targets carry most of the targets' squares.
        """
        with self._whole() as progress:
            plan = self._plan()
            read = self._read_targets(X, y, sample_weight)
            (given,) = merged([self._encoded(read, reach=plan.reach)])
            with progress.stage("features"):
                choice = choose_scale(plan, given)
                units, rows = fit_units(plan, given, choice=choice)
                warn_of_outliers(plan, units, rows.y, stacklevel=2)
                plan = coarse_first(plan, len(rows.x))
                rng, later = plan.generators()
                known = None if choice is None else choice.basis
                basis = known or fit_features(plan, given, units, rows, rng)
            with progress.stage("statistics"):
                sums = collect_enough([plan], [units], [rows], basis, rows, rng, progress)
            with progress.stage("inference"):
                model = infer(plan, units, sums, later)
                if lost_digits(sums.basis, len(rows.x), [model], plan.block_dtype):
                    sums = collect([plan], sums.basis, rows, progress, of_kernel=False)
                    model = infer(plan, units, sums, later)
            self._accept(model, progress.seconds)
            self._buffer_rows(plan, read)
            self._warn_if_unfinished()
        return self

    # --- results

    coefficients_ = of_model("latent.coefficients")

    @property
    def coef_(self) -> FloatArray:
        return self.coefficients_[:, 0] if self._units.one_dimensional else self.coefficients_.T

    prior_scale_ = of_model("latent.prior_scale")
    mean_missing_variance_ = of_model("latent.residual_variance")
    repetitions_ = of_model("repetitions")
    effective_rows_ = of_model("effective_rows")

    @property
    def sparsity_(self) -> float:
        return float(np.mean([p.sparsity for p in self.posteriors_]))

    @property
    def target_transform_(self) -> TargetTransform | None:
        return self.features_.target_transform

    noise_model_ = of_model("noise")
    local_ = of_model("local")

    @property
    def noise_choice_(self) -> dict[str, Any]:
        noise, units = self.model_.noise, self._units
        if noise is None:
            return {}
        density = noise.log_densities + units.density_units / self.n_samples_  # in units of y
        return {
            name: float(value[0]) if units.one_dimensional else value.copy()
            for name, value in zip(noise.candidates, density, strict=True)
        }

    def _words(self) -> list[str]:
        return lines_of_regressor(self)

    # --- functions

    @takes_rows
    def predict_gradient(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the gradients of the mean and of the deviation of f, as ``predict_parts`` has them (epistemic).

        With these, acquisition functions can be ascended: of an upper confidence bound, say, it is their sum in
        proportion. `FunctionDraws.gradient` has those of draws. Where the kernel has a product over columns
        (``features_.hyperparameters.product_amplitude``), f bends at every landmark's value of a column: there a
        gradient has the mean of the slopes on both sides.

        Returns
        -------
        mean, std : ndarray of shape (n_rows, n_features_in) or (n_rows, n_outputs, n_features_in)
            In y's units per unit of the column; NaN for columns of categories and of coordinates. Where a deviation is
            zero, so is its gradient.

        Raises
        ------
        TypeError
            Where features are a scikit-learn transformer.
        ValueError
            For discrete weights, transformed targets, with a local process or missing numbers.
        """
        x = self._complete_rows(X)
        obstacle = obstacle_to_gradients(self.model_)
        if obstacle:
            raise ValueError(f"predict_gradient is not available with {obstacle}")
        with self._threads():
            return gradients(self.model_, x)

    def sample_functions(
        self, n_functions: int = 1, random_state: np.random.Generator | int | None = 0
    ) -> FunctionDraws:
        """Draw functions from the posterior: callables, with gradients, for whatever rows they are asked at.

        ``sample_y(X, n, noise=False)`` draws values of such functions at the rows of X alone, jointly and exactly,
        what landmarks miss between them included, and the next call draws others. Here each draw is a function once and
        for all; its mean and its variance at any row are those of ``predict_parts`` (epistemic), as are its
        correlations between rows, but for the part that landmarks miss, whose correlations are those of a random
        Fourier approximation of the kernel. A draw costs a number per weight; products are left to the first rows.

        Draws of Gaussian weights are continuous. Where targets are transformed, functions are those of the median, in
        y's units. A local process is left out, with a warning.

        Parameters
        ----------
        n_functions : int, default=1
            At most the number of stored draws, for sequential posteriors without their factor.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.

        Returns
        -------
        FunctionDraws
            A sequence of callables: ``functions[i](X)`` has shape (n_rows,) or (n_rows, n_outputs), ``functions(X)``
            (n_rows, n_functions) or (n_rows, n_outputs, n_functions), ``functions.gradient(X)`` one more axis, of the
            columns of X. ``functions.argmax(candidates)`` are the rows where each is largest.

        Examples
        --------
        >>> import numpy as np
        >>> from pydirect import DirectRegressor
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> functions = DirectRegressor().fit(X, np.sin(6 * X[:, 0])).sample_functions(100)
        >>> functions(X).shape, functions[0].gradient(X).shape
        ((30, 100), (30, 1))
        """
        self._require_fitted()
        n_functions, rng = as_count(n_functions, "n_functions"), as_generator(random_state)
        own = copy.copy(self)  # which later fits do not change
        door = Door(own.encode_rows, own._complete_rows, type(self).__name__)
        model = self.model_.without_local("draws of functions, which it has none of,")
        with self._threads():
            return draw_functions(model, door, n_functions, rng)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: np.random.Generator | int | None = 0,
        *,
        noise: bool = True,
    ) -> FloatArray:
        model, x = self._at(X)
        n_samples, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        model = model.without_local("draws of functions, which it has none of,")
        with self._threads():
            return model.sample(x, n_samples, rng, noise)

    def _complete_rows(self, X: ArrayLike) -> FloatArray:
        """Return encoded rows, or raise where numbers are missing."""
        self._require_fitted()
        given = self._valid_matrix(X)
        if given is None:
            given = self._validated(X, reset=False)
            lacking = self.columns_.missing(given) & [own is None for own in self.columns_.categories]
            if lacking.any():
                raise ValueError(f"X must have no missing numbers for gradients, got {int(lacking.sum())}")
        return np.asarray(self.columns_.encode(given))

    # --- devices and files

    def quantizable(self) -> FittedBasisModel:
        self._require_fitted()
        if self._units.active is not None:
            raise self._not_for_devices()
        return self.model_.quantizable(self.columns_.n_encoded, self._feature_names())

    def search_settings(self) -> SearchSettings:
        """Return what a search of small models takes over, `pydirect.fit_quantized`.

        Returns
        -------
        SearchSettings
            Limits, threads and the source of random numbers.
        """
        if self.target_transform not in (None, "auto"):  # which its small models leave alone
            raise self._not_for_devices()
        plan = self._plan()
        refuse_ignored(self.get_params(deep=False))
        state = self.random_state
        rng = as_generator(0 if hasattr(state, "randint") else state)
        return SearchSettings(plan.features.max_search_rows, resolve_n_threads(self.n_threads), rng)

    def _not_for_devices(self) -> ValueError:
        scale = self._units.active if hasattr(self, "model_") else None
        return ValueError(
            f"target_transform must be None to quantise or export, got {self.target_transform!r}"
            + (f", and the model is of {scale}" if scale is not None else "")
            + ": a device computes no inverse of a scale. Fit with target_transform=None, or to transformed targets "
            "themselves and undo the transform of what the device returns: exp of its mean is then the median"
        )

    def _state(self) -> dict[str, Any]:
        state = super()._state()
        if state["buffered_rows_"] is not None:  # whose sums these are
            state["statistics_"] = None
        return state
