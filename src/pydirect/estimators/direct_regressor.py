"""`DirectRegressor`: linear-Gaussian regression on basis functions."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._documentation import described_by, takes_rows
from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, RandomState, as_count, as_flag, as_generator, as_instance, as_number
from pydirect._warnings import warn
from pydirect.estimators._estimator import Estimator, TableRows, of_features, of_model, settings_of
from pydirect.estimators._regressor import Regressor
from pydirect.estimators.choices import (
    NOISE_OF_ROWS,
    RegressionPlan,
    changed_features,
    regression_plan,
    require_same_features,
)
from pydirect.estimators.merging import fit_noisy_sums, norm_bound_of, require_public_map
from pydirect.estimators.regression import (
    Finished,
    GivenRows,
    begin,
    choose_scale,
    encoded_by_effects,
    finish,
    fit_features,
    fit_units,
    given_sums,
    infer,
    log_density_left_out,
    lost_digits,
    merged,
    not_behind,
    settled,
    warn_of_outliers,
)
from pydirect.estimators.summary import lines_of_regressor
from pydirect.estimators.target_transform import ScaleChoice, given_transform
from pydirect.features.basis import Basis
from pydirect.features.rows import TrainingRows
from pydirect.fitted.functions import Door, FunctionDraws, draw_functions, gradients
from pydirect.fitted.predictor import Units, check_target_size
from pydirect.fitted.regression import OF_FUNCTIONS, FittedRegressor
from pydirect.persistence.container import FileFormatError
from pydirect.predictive.transformed import TargetTransform, TargetUnits
from pydirect.quantized.fitted import FittedBasisModel, SearchSettings
from pydirect.statistics.noisy import NoisyStatistics, PrivacyBudget, as_bounds
from pydirect.statistics.rotated import Standardised
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.dask import DaskRun, is_dask
from pydirect.streams.rows import Rows, StreamError
from pydirect.streams.run import Checkpoint, StreamRun
from pydirect.streams.sources import as_source
from pydirect.tables.buffer import Codebook, RowBuffer
from pydirect.tables.columns import TableWarning, with_names
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table

# Hyperparameters of buffered rows are learned again when there are this many times as many.
GROWTH = 1.5
# More than half of this many later rows lie farther from the mean than these deviations, in some column, only if they
# come from elsewhere: no more than one in nine of the rows that gave the mean does (Chebyshev).
WATCHED_ROWS, FAR = 50, 3.0


class FeatureMapWarning(UserWarning):
    """A feature map that was fixed does not suit the rows."""


@described_by(Estimator)
@dataclass(eq=False, repr=False)
class DirectRegressor(Regressor):
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
        over a local process; and Student-t noise where there are 50 rows or more of one target, a few of which carry
        most of the squares as gross errors (`fit` with ``local="auto"`` or False, y itself or ``"auto"``).
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
    total_weight_ : float
        Sum of the weights.
    effective_rows_ : float
        Number of rows that tell of the noise: all of `total_weight_`, unless repetitions are duplicates; see `fit`.
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
        1, or what `calibrate` found; with a learned kernel and fewer than 500 rows, until then, what is not known of
        the unit of deviations: that of Student-t intervals.
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
        `total_weight_` over `effective_rows_`.
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

    model_: FittedRegressor = field(init=False)
    features_: Basis = field(init=False)
    statistics_: RunningStatistics = field(init=False)
    noisy_statistics_: NoisyStatistics = field(init=False)
    buffered_rows_: RowBuffer = field(init=False)
    _stored: ClassVar = {
        "columns_": ColumnEncoding,
        "model_": FittedRegressor,
        "buffered_rows_": RowBuffer,
        "statistics_": RunningStatistics,
        "noisy_statistics_": NoisyStatistics,
    }
    _one_dimensional: bool = field(init=False)
    _rows_of_fit: RowBuffer | None = field(init=False, default=None)
    _n_watched: int = field(init=False, default=0)  # rows since it was last seen whether they have moved
    _n_far: NDArray[np.intp] | int = field(init=False, default=0)  # of them, by column

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

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        CoarseLevelsWarning
            If the levels of a sequential posterior are too coarse for what the data say.
        TargetWarning
            If a few gross targets carry most of the targets' squares, with the noise that is taken.
        """
        with self._whole() as progress:
            plan = self._plan()
            read = self._read_targets(X, y, sample_weight)
            encoded = self._encoded(read)
            (given,) = merged([encoded])
            with progress.stage("features"):
                choice = choose_scale(plan, given)
                plan = settled(plan, choice)
            fits, starts = list[Finished](), [begin([plan], [given], [choice], progress)]
            _, (units,), (rows,), *_ = starts[0]
            warn_of_outliers(plan, units, rows.y)
            if not encoded.columns.is_plain and self._column_options().effects:
                with progress.stage("features"):
                    others = encoded_by_effects(plan, encoded, read.table)
                starts += [begin([plan], [own], [choice], progress) for own in others]
            for start in not_behind(starts):
                fits += finish(start, progress)
            model, sums, _ = fits[0] if len(fits) == 1 else max(fits, key=lambda fit: log_density_left_out(*fit[:2]))
            assert sums.basis.columns is not None
            self.columns_ = sums.basis.columns
            self._accept(model, progress.seconds)
            if len(read.table) <= self._most_buffered(plan):  # for `partial_fit` and `forget` to go on from
                self._rows_of_fit = RowBuffer.of(read.table, read.y, read.weight)
                self._rows_of_fit.n_learned = len(self._rows_of_fit)
            self._warn_if_unfinished()
        return self

    def _plan(self) -> RegressionPlan:
        return regression_plan(self)

    def _sums_plan(self) -> RegressionPlan:
        """Return the plan, of noise with one variance, or raise where it needs the rows again."""
        plan = self._plan()
        if plan.noise in NOISE_OF_ROWS:
            raise ValueError(f"noise must not be {plan.noise!r} for sums over rows: it needs the rows again")
        if plan.local not in (None, "auto"):
            raise ValueError(f"local must be 'auto' or False for sums over rows, got {plan.local}; use fit")
        return replace(plan, noise="constant") if plan.noise == "auto" else plan

    def _begin(self) -> None:
        super()._begin()
        self._rows_of_fit, self._n_watched, self._n_far = None, 0, 0

    def _encoded(self, rows: TableRows, columns: ColumnEncoding | None = None) -> GivenRows:
        given = super()._encoded(rows, columns)
        self._one_dimensional = given.one_dimensional
        return given

    def _accept(self, model: FittedRegressor, seconds: dict[str, float]) -> Self:
        """Take over a fitted model, and drop the rows and sums of earlier ones."""
        self.model_, self.fit_seconds_, self.features_, self._rows_of_fit = model, seconds, model.basis, None
        for name in ("statistics_", "buffered_rows_", "noisy_statistics_"):
            self.__dict__.pop(name, None)
        return self

    def _adopt(self, lead: DirectRegressor, model: FittedRegressor, seconds: dict[str, float]) -> Self:
        """Take over a model that was fitted to the rows, columns and feature map of `lead`."""
        self._set_input_names(lead.n_features_in_, list(getattr(lead, "feature_names_in_", [])) or None)
        self.columns_, self._one_dimensional = lead.columns_, lead._one_dimensional
        return self._accept(model, seconds)

    def _restored(self) -> None:
        super()._restored()
        self.features_, self._one_dimensional = self.model_.basis, self._units.one_dimensional
        outputs = {1} if hasattr(self, "noisy_statistics_") else set[int]()
        if hasattr(self, "statistics_"):
            self.statistics_ = self.statistics_.with_features(self.features_)
            outputs.add(self.statistics_.n_outputs)
        if hasattr(self, "buffered_rows_"):
            outputs.add(self.buffered_rows_.rows.y.shape[1])
        if outputs - {self._units.n_outputs}:
            raise ValueError(f"rows and sums must be of {self._units.n_outputs} outputs")

    # --- the feature map

    @takes_rows
    def fit_features(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the feature map to a sample, without counting its rows.

        Later calls of `partial_fit`, `fit_stream` with ``keep_features=True`` and `new_statistics` use this map, which
        then does not grow with the rows. The sample should be representative of all the data: a column that is constant
        in the sample is dropped for good, and inputs far outside its range are far outside the range of the features
        too. If no kernel is to be learned, two rows that hold the known bounds of the columns are enough.

        Parameters
        ----------
        y : array_like of shape (n_samples,) or (n_samples, n_outputs), optional
            Required if the kernel's hyperparameters are learned: for ``"nystroem"`` and ``"fourier"`` features without
            a ``length_scale`` of their own.

        Returns
        -------
        self
            Not fitted yet.
        """
        self._fit_features(X, y, sample_weight)
        return self

    def _fit_features(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None, *, all_rows: bool = False
    ) -> ScaleChoice | None:
        """Fit the feature map; where these are `all_rows` that there will be, choose the targets' scale too."""
        with self._whole():
            plan = self._sums_plan() if all_rows else self._plan()
            if y is None:
                if plan.features.learns_kernel or plan.transform not in (None, "auto"):
                    raise ValueError("y must be given where the kernel or a transform of targets is learned from it")
                y = np.zeros(len(self._validated(X)))
            given = self._encoded(self._read_targets(X, y, sample_weight))
            choice = choose_scale(plan, *merged([given])) if all_rows else None
            self._fix_features(plan, given, known=None if choice is None else choice.transform)
            self._warn_if_constant(given.x)
        return choice

    def _fix_features(
        self, plan: RegressionPlan, given: GivenRows, earlier: Basis | None = None, known: TargetTransform | None = None
    ) -> None:
        """Fit the feature map to rows, on the scale of targets that a fit has chosen, `known`."""
        units, rows = fit_units(plan, given, known)
        warn_of_outliers(plan, units, rows.y)
        self.features_ = fit_features(plan, given, units, rows, plan.generators()[0], earlier).for_one_pass()

    def _warn_if_constant(self, x: FloatArray) -> None:
        constant = np.setdiff1d(np.arange(x.shape[1]), self.features_.input_map.kept)
        if constant.size:
            first = self._name_of(constant[0])
            warn(
                f"{constant.size} of {x.shape[1]} columns are constant and dropped, the first {first}",
                FeatureMapWarning,
            )

    def _name_of(self, column: int) -> str:
        names = self._feature_names()
        return names[column] if names else f"number {column}"

    def _warn_if_moved(self, x: FloatArray) -> None:
        """Warn when most of the latest rows are far from those that the feature map was fixed by."""
        if self.features_.hyperparameters is None:
            return
        inputs = self.features_.input_map
        far = np.abs(inputs.transform(x)[:, : inputs.n_standardised]) > FAR
        self._n_watched, self._n_far = self._n_watched + len(x), self._n_far + far.sum(axis=0)
        if self._n_watched < WATCHED_ROWS:
            return
        moved = inputs.kept[2 * self._n_far > self._n_watched]
        if moved.size:
            warn(
                f"most of the latest rows are farther than {FAR:g} standard deviations from the mean of those that "
                f"fixed the feature map, in {moved.size} columns, the first of them {self._name_of(moved[0])}: it "
                "cannot follow them, and predictions level off there. Begin again with fit, or with fit_features on "
                "rows like all of these",
                FeatureMapWarning,
            )
        self._n_watched, self._n_far = 0, 0

    # --- sums over rows

    def _require_map(self, plan: RegressionPlan) -> None:
        """Raise unless there is a feature map of these parameters."""
        check_is_fitted(self, "features_")
        if self.features_.columns is not None and self.features_.columns.effects:
            raise ValueError("the feature map must be of fit_features: that of fit is beside effects of categories")
        require_same_features(self.features, plan.features, self.features_)

    def new_statistics(self, n_outputs: int = 1) -> RunningStatistics:
        """Return empty statistics, to be updated with rows of X and y on any machine and given to `fit_statistics`.

        Parameters
        ----------
        n_outputs : int, default=1
            Number of columns of y.

        Returns
        -------
        RunningStatistics
            Statistics of no rows.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If there is no feature map yet: call `fit_features` first.
        ValueError
            If a parameter that the feature map depends on has changed since it was fitted.
        """
        plan = self._plan()
        self._require_map(plan)
        return RunningStatistics.empty(self.features_, n_outputs, block_dtype=plan.block_dtype)

    def fit_statistics(self, statistics: RunningStatistics | NoisyStatistics) -> Self:
        """Fit to statistics of rows, filled from `new_statistics` of this model or one with the same feature map.

        Parameters
        ----------
        statistics : RunningStatistics or NoisyStatistics
            Collected on this or any other machine; kept as ``statistics_``, so that `partial_fit` can continue. Those
            of `private_statistics`, or a sum of them, are kept as ``noisy_statistics_``: the posterior then knows the
            noise in them, and its deviations are those that the noise leaves. With Gaussian weights only.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            If the statistics are of another feature map, or empty.
        """
        plan = self._sums_plan()
        self._require_map(plan)
        if isinstance(statistics, NoisyStatistics):
            if not plan.is_gaussian:
                raise ValueError("posterior must be 'gaussian' for sums with noise")
            if statistics.fingerprint != self.features_.fingerprint:
                raise ValueError("statistics must be of the model's feature map, got those of another")
            with self._whole() as progress, progress.stage("inference"):
                self._accept(fit_noisy_sums(plan, self.features_, statistics), progress.seconds)
            self._one_dimensional, self.noisy_statistics_ = True, statistics
        else:
            as_instance(statistics, "statistics", RunningStatistics)
            statistics = statistics.with_features(self.features_)
            if not hasattr(self, "_one_dimensional") or (statistics.n_outputs > 1 and self._one_dimensional):
                self._one_dimensional = statistics.n_outputs == 1
            with self._whole() as progress:
                self._fit_to(plan, statistics, progress)
        self._warn_if_unfinished()
        return self

    def _fit_to(
        self, plan: RegressionPlan, statistics: RunningStatistics, progress: Progress, repetitions: float | None = None
    ) -> None:
        unit = self.features_.target_scale
        if unit is not None and len(unit) != statistics.n_outputs:
            raise ValueError(f"y must have {len(unit)} outputs, as before, got {statistics.n_outputs}")
        with progress.stage("inference"):
            shared = Standardised.of(statistics, repetitions)
            units, sums = given_sums(plan, self.features_, statistics, shared, self._one_dimensional)
            self._accept(infer(plan, units, sums, plan.generators()[1]), progress.seconds)
        self.statistics_ = statistics
        if statistics.sums_of == "kernel" and lost_digits(
            self.features_, statistics.n_rows, [self.model_], plan.block_dtype
        ):
            lost = "sums over rows have lost digits that so little noise needs: use fit, or fewer basis functions"
            warn(lost, FeatureMapWarning)

    # --- growing and shrinking

    @takes_rows
    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Update the fit with more rows (online learning).

        While there are few rows they are buffered, in ``buffered_rows_``: up to `n_basis_functions` or the kernel's
        ``max_search_rows``, whichever is more. The model is then that of `fit` to all of them, also those of an
        earlier `fit`, but with the same noise everywhere, without local detail, and always with all
        `n_basis_functions` landmarks, where `fit` to 1024 rows or more begins with 512; the kernel's hyperparameters
        are learned again whenever the rows have become half as many more. The parameters may change meanwhile.

        With more rows, or after `fit_features`, the feature map is fixed, and only statistics of the rows are kept.
        They equal those of all rows at once, to rounding, whatever the blocks and their order; so does the model, but
        for stored draws, of which rounding may change some. The parameters of the feature map must not change
        until the next `fit_features` or `fit`.

        Parameters
        ----------
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row is repeated; weights count relative to each other, see `fit`, but for rows that
            are no longer buffered equal ones are not merged.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described, or neither rows nor statistics of an earlier fit are left;
            the rows are then not counted.

        Warns
        -----
        FeatureMapWarning
            If a column is constant in the rows that fix the feature map, or later rows are far from them.
        TableWarning
            If columns of 0 and 1 replace effects of categories that `fit` learned.
        """
        return self._with_rows(X, y, sample_weight, forget=False)

    @takes_rows
    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Remove rows that were given to `partial_fit` (unlearning): fit as if they had never been seen.

        Exact while rows are buffered, see `partial_fit`. Later exact up to rounding errors relative to the statistics
        before, with the same feature map, even if it was fitted to these rows.

        Parameters
        ----------
        sample_weight : array_like of shape (n_samples,), optional
            The weights that were given to `partial_fit`.

        Raises
        ------
        ValueError
            If the rows cannot have been among those seen, or none would be left; nothing is then forgotten.
        """
        return self._with_rows(X, y, sample_weight, forget=True)

    def _with_rows(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, forget: bool) -> Self:
        """Fit to the rows so far, buffered or summed, and to some more, or without some of them."""
        with self._whole() as progress:
            plan = self._sums_plan()
            sums: RunningStatistics | None = getattr(self, "statistics_", None)
            buffer: RowBuffer | None = getattr(self, "buffered_rows_", self._rows_of_fit)
            if sums is None and buffer is None and hasattr(self, "model_"):
                raise ValueError("the earlier rows must be known to go on: use partial_fit or fit_stream first")
            if forget and buffer is None:
                check_is_fitted(self, "statistics_", msg="This %(name)s has no statistics: call partial_fit first.")
            summed = buffer is None and hasattr(self, "features_")
            if summed and sums is not None and sums.block_dtype != plan.block_dtype:
                own, now = sums.block_dtype, plan.block_dtype
                raise ValueError(f"features__block_dtype must be {own!r}, as for the earlier rows, got {now!r}")
            rows = self._read_targets(X, y, sample_weight, more=summed or buffer is not None)
            if not hasattr(self, "model_"):
                self._one_dimensional = rows.one_dimensional
            elif rows.y.shape[1] != self._units.n_outputs:
                raise ValueError(f"y must have {self._units.n_outputs} outputs, as before, got {rows.y.shape[1]}")
            if summed:
                x, part = self.columns_.encode(rows.table), self.new_statistics(rows.y.shape[1])
                part.update(x, rows.y, rows.weight, n_threads=resolve_n_threads())
                if sums is not None:
                    part = sums.copy().subtract(part) if forget else sums.copy().merge(part)
                    if forget and not part.n_samples:
                        raise ValueError("X must leave some of the rows seen, got all of them")
                self._fit_to(plan, part, progress)
                if not forget:
                    self._warn_if_moved(x)
            else:
                if buffer is None:
                    buffer = RowBuffer.of(rows.table, rows.y, rows.weight)
                else:
                    buffer = buffer.copy()
                    change = buffer.subtract if forget else buffer.append
                    change(buffer.coded(rows.table, rows.y, rows.weight))
                    if self.columns_.effects:
                        now = "from now on they are columns of 0 and 1, as with columns=Columns(effects=False)"
                        warn(f"only fit learns effects of categories: {now}", TableWarning)
                self._fit_to_buffer(plan, buffer, progress, learn=forget)
        self._warn_if_unfinished()
        return self

    def _most_buffered(self, plan: RegressionPlan) -> int:
        return max(plan.features.n_functions, plan.features.max_search_rows)

    def _fit_to_buffer(self, plan: RegressionPlan, buffer: RowBuffer, progress: Progress, learn: bool) -> None:
        """Fit to buffered rows; hyperparameters are learned again as rows grow."""
        many = len(buffer) > self._most_buffered(plan)
        earlier: Basis | None = getattr(self, "features_", None)
        learn |= many or len(buffer) >= GROWTH * buffer.n_learned
        learn |= earlier is None or bool(changed_features(self.features, plan.features, earlier))
        rows = buffer.rows
        weight = None if (rows.weight == 1).all() else rows.weight
        with progress.stage("features"):
            given = self._encoded(TableRows(buffer.table, rows.y, weight, self._one_dimensional))
            known = None if earlier is None else earlier.target_transform
            self._fix_features(plan, given, None if learn else earlier, known)
        found, before = self.features_.search, None if earlier is None else earlier.search
        learn |= found is not None and (before is None or found.scores is not before.scores)
        with progress.stage("statistics"):
            statistics = self.new_statistics(rows.y.shape[1])
            statistics.update(given.x, given.y, weight, n_threads=resolve_n_threads())
            statistics.n_rows = float(rows.clock.sum())  # `forget` merges equal ones
            statistics.squared_weights = float((rows.weight**2 / rows.clock).sum())
        self._fit_to(plan, statistics, progress, TrainingRows(given.x, rows.y, rows.weight).counts.repetitions)
        if many:
            self._warn_if_constant(given.x)
        else:
            buffer.n_learned = len(buffer) if learn else buffer.n_learned
            self.buffered_rows_ = buffer

    # --- streams

    def fit_stream(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        sample_rows: int = 20_000,
        keep_features: bool = False,
        drop_missing: bool = False,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Fit to data larger than memory (out-of-core learning), in two passes.

        The first pass checks every value and draws `sample_rows` rows uniformly, to which the feature map and its
        hyperparameters are fitted; the second sums the statistics. Both hold only a few blocks in memory at a time. An
        iterator that can be consumed only once is read once: the feature map is fitted to its first blocks, up to a
        total of `sample_rows` rows, which should be representative of the rest.

        Parameters
        ----------
        X : path, array, iterable or function
            A Parquet file or a folder of them, with columns of numbers and text; an array, usually memory-mapped
            (``numpy.load(..., mmap_mode="r")``); blocks ``(X, y)`` or ``(X, y, sample_weight)`` in a list, from an
            iterator, or from a function that returns a new iterator at every call; a Dask array or data frame, of
            complete numbers. Text is encoded as in ``fit``, with the categories of the rows that the feature map is
            fitted to.
        y : str, list of str, or array, optional
            Name of the target column, or a list of names, for files and Dask data frames; the targets for arrays; None
            for blocks.
        sample_weight : str or array, optional
            Like `y`.
        sample_rows : int, default=20_000
            Number of rows that the feature map is fitted to.
        keep_features : bool, default=False
            Keep the feature map of an earlier `fit_features` or ``fit`` and skip the first pass.
        drop_missing : bool, default=False
            Skip rows with a missing value. Otherwise missing values of `X` are taken as ``Columns(missing=...)``
            says, and all others raise an error.
        checkpoint : path-like, optional
            File to which the statistics so far and the feature map are saved every minute, at the end, on Ctrl-C and on
            errors in the data. If it exists, the pass resumes after the
            rows that it counts, and the data must begin with the same rows as when it was written. The file is kept
            when the pass is complete: if files are then added to a folder, under names that sort last, the next call
            reads only these.

        Returns
        -------
        Self
            The model itself.

        Raises
        ------
        pydirect.StreamError
            If data cannot be read or used; the message says where they are.
        KeyboardInterrupt
            After Ctrl-C, once the current block is added and the checkpoint is written.
        OSError
            If the checkpoint cannot be written; the previous one is left intact.
        """
        with self._whole() as progress:
            plan = self._sums_plan()
            as_count(sample_rows, "sample_rows", 2)
            as_flag(keep_features, "keep_features")
            as_flag(drop_missing, "drop_missing")
            if keep_features:
                self._require_map(plan)
            run: StreamRun | DaskRun
            if is_dask(X):
                if checkpoint is not None or drop_missing:
                    raise ValueError("checkpoint and drop_missing must not be given for Dask, which has its own")
                run = DaskRun(X, y, sample_weight, progress)
            else:
                if checkpoint is not None and plan.features.kind == "transformer":
                    raise TypeError("features must be built in for a checkpoint, got a transformer")
                gaps = self._column_options().missing != "raise"
                source = as_source(X, y, sample_weight, codes=Codebook(gaps=gaps) if self._takes_tables() else None)
                run = StreamRun(source, progress, self.n_threads, drop_missing, checkpoint)
            statistics = self._collected(plan, run, sample_rows, keep_features)
            spread = np.sqrt(statistics.y_scatter / statistics.n_samples)
            check_target_size((np.abs(statistics.y_mean) + spread).max())
            self._fit_to(plan, statistics, progress)
            self._warn_if_unfinished()
        return self

    def _collected(
        self, plan: RegressionPlan, run: StreamRun | DaskRun, sample_rows: int, keep_features: bool
    ) -> RunningStatistics:
        saved = run.saved(Basis) if isinstance(run, StreamRun) else None
        if saved is not None:
            assert isinstance(run, StreamRun)
            self._restore_features(plan, run, saved, keep_features)
        elif keep_features:
            self._one_dimensional = run.one_dimensional
        else:
            sample = run.sample(sample_rows, int(plan.generators()[0].integers(2**63)))
            with run.uncounted("features"):
                self._fix_features_by(plan, sample, run)
        self._require_columns(run.shape[0], run.names)
        run.encode(self.columns_)
        if isinstance(run, StreamRun) and saved is not None:
            return run.collected(saved.statistics, saved.n_rows)
        return run.collected(self.new_statistics(run.shape[1]))

    def _fix_features_by(self, plan: RegressionPlan, rows: Rows, run: StreamRun | DaskRun) -> None:
        if not len(rows) or (rows.weight is not None and not rows.weight.any()):
            raise StreamError("there are no rows with positive weight")
        codes, names = run.codes, run.names
        self._set_input_names(rows.x.shape[1], names)
        table = Table.of_numbers(rows.x, names) if codes is None else codes.table(rows.x, names)
        given = self._encoded(TableRows(table, rows.y, rows.weight, run.one_dimensional))
        self._fix_features(plan, given)
        self._warn_if_constant(given.x)

    def _restore_features(self, plan: RegressionPlan, run: StreamRun, saved: Checkpoint, keep_features: bool) -> None:
        """Take over the feature map of a checkpoint."""
        basis, path = saved.statistics.features, run.path
        assert isinstance(basis, Basis) and path is not None
        changed = changed_features(self.features, plan.features, basis)
        if saved.statistics.block_dtype != plan.block_dtype:
            changed.append("features__block_dtype")
        if changed:
            raise FileFormatError(path, f"the checkpoint is of a model with other parameters: {', '.join(changed)}")
        if keep_features and basis != self.features_:
            raise FileFormatError(path, "the checkpoint is of other features than those to be kept")
        if basis.columns is None:
            raise FileFormatError(path, "the checkpoint is not one of an estimator")
        self._begin()
        self.columns_, names = basis.columns, basis.columns.names
        self._set_input_names(basis.columns.n_columns, None if names is None else list(names))
        self.features_, self._one_dimensional = basis, saved.one_dimensional

    # --- sums of several models, and private ones

    def _of_sums(self, statistics: RunningStatistics) -> Self:
        """Return a model of the same feature map, fitted to sums over rows."""
        model = copy.copy(self)
        with self._whole() as progress:
            model._fit_to(model._sums_plan(), statistics.with_features(self.features_), progress)
        return model

    @takes_rows
    def private_statistics(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        y_bounds: tuple[float, float],
        budget: PrivacyBudget,
        epsilon: float | None = None,
        norm_bound: float | None = None,
        random_state: Any = None,
    ) -> NoisyStatistics:
        """Return sums over private rows with noise, safe to send: (ε, δ)-differentially private for every single row.

        The feature map must be fixed first, by `fit_features` on rows that are not private, such as two rows with the
        bounds of the columns. Sums of several sites are added, ``sum(releases)``, and `fit_statistics` takes them.

        Parameters
        ----------
        y_bounds : tuple of float
            Smallest and largest target, known without looking at them; targets beyond are moved to their bound.
        budget : PrivacyBudget
            Of these rows; the release is counted.
        epsilon : float, optional
            ε of this release alone; by default all that is left.
        norm_bound : float, optional
            Length to which rows of Φ are clipped, by counting longer ones less than once. By default the length where
            all inputs are one standard deviation, or half the range of a map of bounds, from their middle: rows within
            bounds are hardly ever longer. Needed for ``"precomputed"`` features and transformers.
        random_state : int, RandomState, Generator or None, optional
            Seed of the noise. None takes it from the operating system; whoever knows a seed can remove the noise.

        Returns
        -------
        NoisyStatistics
            The sums with noise.

        Raises
        ------
        ValueError
            If there is no feature map, or one that was fitted to the rows of a fit; if bounds are missing, or more of
            the budget is asked for than is left.
        """
        require_public_map(
            getattr(self, "features_", None), hasattr(self, "model_") and not hasattr(self, "noisy_statistics_")
        )
        self._require_map(self._plan())
        as_instance(budget, "budget", PrivacyBudget)
        norm_bound = norm_bound_of(self.features_) if norm_bound is None else norm_bound
        bound, (low, high) = as_number(norm_bound, "norm_bound", above=0.0), as_bounds(y_bounds, "y_bounds")
        given, y = self._validated(X, y, multi_output=True, y_numeric=True, reset=False)
        # What is refused must not depend on how large a private target is, which the release moves to its bound.
        targets = np.asarray(y, dtype=np.float64).reshape(len(given), -1)
        if targets.shape[1] != 1:
            raise ValueError(f"y must be one target in a private release, got {targets.shape[1]}: release each alone")
        rng, x = as_generator(random_state), self.columns_.encode(with_names(self, given))
        mu = budget.spend(epsilon)  # last: nothing is spent on what is refused
        own: dict[str, Any] = {"y_bounds": (low, high), "norm_bound": bound, "mu": mu}
        return NoisyStatistics.release(self.features_, x, targets[:, 0], **own, rng=rng)

    # --- results

    repetitions_ = of_model("repetitions")
    effective_rows_ = of_model("effective_rows")

    search_, target_transform_ = of_features("search"), of_features("target_transform")
    noise_model_ = of_model("noise")
    local_ = of_model("local")

    @property
    def noise_choice_(self) -> dict[str, Any]:
        noise, units = self.model_.noise, self._units
        if noise is None:
            return {}
        density = noise.log_densities + units.density_units / self.total_weight_  # in units of y
        return dict(zip(noise.candidates, density[:, 0].tolist() if units.one_dimensional else density, strict=True))

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
        self.model_.require_gaussian("predict_gradient", ": sample_functions(n).gradient(X) has those of draws")
        with self._threads():
            return gradients(self.model_, x)

    def sample_functions(self, n_functions: int = 1, random_state: RandomState = 0) -> FunctionDraws:
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
        model = self.model_.without_local(OF_FUNCTIONS)
        with self._threads():
            return draw_functions(model, door, n_functions, rng)

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
        return self.model_.quantizable(self.columns_.n_encoded, self._feature_names())

    def search_settings(self) -> SearchSettings:
        """Return what a search of small models takes over, `pydirect.fit_quantized`.

        Returns
        -------
        SearchSettings
            Limits, threads and the source of random numbers.
        """
        plan = self._plan()

        def target(y: FloatArray) -> TargetUnits | None:
            """Return the way back from a scale that was named."""
            return Units.fit(y, None, False, given_transform(plan.transform, y))[0].target

        return replace(settings_of(self, plan), target=None if plan.transform in (None, "auto") else target)

    def _state(self) -> dict[str, Any]:
        state = super()._state()
        if state["buffered_rows_"] is not None:  # whose sums these are
            state["statistics_"] = None
        return state
