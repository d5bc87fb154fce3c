"""`DirectRegressor`: linear-Gaussian regression on basis functions, with discrete weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_number
from pydirect.distributions.levels import shared_levels
from pydirect.distributions.mixture_priors import MixturePrior, MixturePriorTable
from pydirect.distributions.noise import NoiseGridWarning
from pydirect.distributions.priors import DensityPrior, GaussianPrior, as_prior
from pydirect.estimators._basis import in_prior_units
from pydirect.estimators._growing import GrowingModel
from pydirect.features.evidence import distinct_rows
from pydirect.regression.decorrelated import fit_decorrelated
from pydirect.regression.evidence import maximise_evidence, noise_by_evidence
from pydirect.regression.level_scale import fit_level_scale
from pydirect.regression.mean_field import MeanFieldPosterior, MeanFieldRegression, as_regression, fit_mean_field
from pydirect.regression.mean_fields import fit_regressions
from pydirect.regression.mixture import fit_mixture
from pydirect.regression.mixture_entropy import ENTROPIES
from pydirect.regression.mixture_posterior import MixturePosterior, as_component_count
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics
from pydirect.statistics.rotated import RotatedStatistics, decorrelate
from pydirect.statistics.standardised import Standardised

NOISE_POLICIES = ("auto", "elbo", "evidence", "held_out")
# Noise variances below this fraction of the targets' variance are not told apart.
NOISE_FLOOR = 1e-10
LARGEST_NOISE = 1e300  # in units of the targets' variance, and its inverse the smallest
LATTICE_NOISE_FITS = 4
GRID_RECENTRINGS = 12
Posterior: TypeAlias = MeanFieldPosterior | MixturePosterior


@dataclass(frozen=True)
class _RawPlan:
    """What the raw basis is fitted with, one entry an output."""

    levels: FloatArray  # in prior units
    grid: FloatArray  # of noise variances, about each output's own
    scales: FloatArray
    noises: list[float]
    options: list[dict[str, Any]]
    shares: bool  # whether first fits may be made together with others

    def models(self, statistics: GaussianStatistics, first_output: int) -> list[MeanFieldRegression]:
        """Return what is fitted first."""
        return [
            as_regression(statistics, o["levels"], o["log_prior"], noise * self.grid, output=first_output + k)
            for k, (noise, o) in enumerate(zip(self.noises, self.options, strict=True))
        ]


_Begun: TypeAlias = tuple[_RawPlan, Sequence[Posterior | None]]


@dataclass(frozen=True)
class Training:
    """What inference sees: sums over the data, and the rows for policies that need some of them."""

    statistics: GaussianStatistics
    inputs: FloatArray | None
    y: FloatArray | None  # standardised, (n_samples, n_outputs)
    weight: FloatArray | None
    rng: np.random.Generator
    n_threads: int
    starts: Sequence[MeanFieldPosterior | None] = ()  # one an output, in standardised units of y; none to start afresh
    rotated: RotatedStatistics | None = None  # where they are known already
    begun: _Begun | None = None  # where raw models of the same statistics were begun together

    @property
    def n_rows(self) -> int:
        """Rows at hand; none where only statistics are kept."""
        return 0 if self.inputs is None else len(self.inputs)


class DirectRegressor(GrowingModel):
    """Bayesian regression on basis functions, trained exactly by discrete relaxation (DIRECT).

    Every weight takes one of a few levels, so that the evidence lower bound and its gradient are exact and training
    needs only ``ΦᵀΦ``, ``Φᵀy``, ``yᵀy`` and ``n`` (Evans & Nair 2018).

    Parameters
    ----------
    features : str or transformer, default="auto"
        ``"nystroem"``: kernel functions at up to `n_features` training rows, the exact Gaussian process when the rows
        are that few. ``"fourier"``: random Fourier features of the same kernel, cheaper for very many rows, at
        prediction and on devices. ``"linear"``: the standardised columns of X in their order, constant ones left out,
        and a 1 as the last. ``"polynomial"``, ``"precomputed"`` (X is Φ), or any scikit-learn transformer, cloned and
        fitted on X. Both kernels have a linear part, which follows an input up to five standard
        deviations from its mean; farther out predictions level off and their deviations grow. ``"auto"`` is
        ``"nystroem"`` in the decorrelated basis and ``"fourier"`` in the raw one.
    n_features : int, default=2000
        Number of basis functions of ``"nystroem"`` and of sines and cosines of ``"fourier"``.
    degree : int, default=2
        Of ``"polynomial"``.
    basis : {"decorrelated", "raw"}, default="decorrelated"
        ``"decorrelated"`` rotates the weights so that they do not interact, and places levels around each one's
        posterior: it predicts best. ``"raw"`` keeps the basis functions' own weights, on levels shared by all with zero
        among them: sparse, and made for small devices.
    prior : str or Prior, default="gaussian"
        Of a weight, in units of its prior standard deviation: ``"gaussian"``, ``"laplace"``, ``"student_t"``,
        ``"spike_and_slab"`` (raw basis only), or an object with ``log_mass(levels)``. In the raw basis also a
        `pydirect.MixturePrior`, which does not factorise; its ``groups`` are one number a weight, or, for ``"linear"``,
        one a column of X: the constant then has a prior of its own and is never switched off.
    n_levels : int, default=15
        Values that a weight can take; 16 or fewer fit into 4 bits.
    levels : {"even", "power_of_two"} or array_like of shape (n_levels,) or (n_weights, n_levels), optional
        Levels of the raw basis, in units of the prior standard deviation: evenly spaced to ±3 by default;
        ``"power_of_two"``, 0 and ± powers of two, so that devices multiply by shifts.
    noise : {"auto", "elbo", "evidence", "held_out"} or float, default="auto"
        How the noise variance is found. ``"elbo"``: inferred on a grid, together with the weights. ``"evidence"``:
        fixed where the marginal likelihood of continuous weights is largest; in the raw basis also what the levels
        cannot represent. ``"held_out"``: fixed where the density of
        a held out tenth of the rows is largest. A number fixes the variance, in squared units of y. ``"auto"`` is
        ``"elbo"`` in the decorrelated basis, where both agree, and ``"evidence"`` in the raw one, where the ELBO can
        explain data as noise.
    n_noise_levels : int, default=15
        Size of the grid of ``"elbo"``.
    prior_scale : {"evidence", "elbo"}, default="evidence"
        Empirical Bayes for the prior standard deviation of the weights. ``"evidence"``: where the marginal likelihood
        of continuous weights is largest. ``"elbo"`` (raw basis only): levels and prior are then scaled, in turns with
        the posterior, to where the ELBO is largest; see `pydirect.regression.level_scale`.
    rank_inputs : bool, default=True
        Give the kernel every column twice: standardised, and as its normal scores.
    length_scale : float or array_like of shape (n_features_in,), optional
        Fixed length-scales of a smooth kernel in units of X's columns, instead of learned ones.
    n_components : int, default=1
        Of the raw basis' posterior: more than one make it a mixture, which knows of correlations between weights; see
        `pydirect.fit_mixture`. Must be 1 in the decorrelated basis, where the weights are independent given the noise
        and a mixture could use no more.
    entropy : {"pairwise", "taylor", "stochastic"}, default="pairwise"
        How the entropy of a mixture is bounded.
    optimizer : str, default="pipeline"
        Of the raw basis; see `pydirect.fit_mean_field`.
    max_iter : int, default=1000
    max_hyperparameter_rows : int, default=1000
        Largest number of rows in the marginal likelihood that finds the kernel's hyperparameters.
    block_dtype : {"float64", "float32"}, default="float64"
        Precision of products within a block of rows; sums are float64 always. Single precision takes half the time;
        its rounding, about 2e-7 of the largest diagonal entry of ΦᵀΦ, hides directions that carry less, which costs
        accuracy where rows are very many or the noise is very small.
    n_threads : int, optional
        What OpenMP says by default. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the rows for hyperparameters, landmarks and frequencies.
    verbose : int, default=0
        1 reports stages on standard error.

    Attributes
    ----------
    posterior_ : MeanFieldPosterior or MixturePosterior, or a list of them for several outputs
    features_ : feature map
    coef_ : ndarray of shape (n_weights,) or (n_outputs, n_weights)
        Posterior means of the weights of `features_`, standardised units.
    elbo_ : float
        Evidence lower bound of the targets in their own units, in nats, summed over outputs.
    elbo_trace_ : ndarray of shape (n_iter,), or a list of them
    n_iter_ : int
    converged_ : bool
    interrupted_ : bool
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Expected noise variance in squared units of y.
    calibration_scale_ : float
        1, or what `calibrate` found.
    fit_seconds_ : dict of str to float
        Seconds of each stage.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from pydirect import DirectRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DirectRegressor().fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> lower, upper = model.predict_interval(X[400:], level=0.9)
    """

    def __init__(
        self,
        features: Any = "auto",
        n_features: int = 2000,
        degree: int = 2,
        basis: str = "decorrelated",
        prior: Any = "gaussian",
        n_levels: int = 15,
        levels: ArrayLike | str | None = None,
        noise: str | float = "auto",
        n_noise_levels: int = 15,
        prior_scale: str = "evidence",
        rank_inputs: bool = True,
        length_scale: float | ArrayLike | None = None,
        n_components: int = 1,
        entropy: str = "pairwise",
        optimizer: str = "pipeline",
        max_iter: int = 1000,
        max_hyperparameter_rows: int = 1000,
        block_dtype: str = "float64",
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.n_features = n_features
        self.degree = degree
        self.basis = basis
        self.prior = prior
        self.n_levels = n_levels
        self.levels = levels
        self.noise = noise
        self.n_noise_levels = n_noise_levels
        self.prior_scale = prior_scale
        self.rank_inputs = rank_inputs
        self.length_scale = length_scale
        self.n_components = n_components
        self.entropy = entropy
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.max_hyperparameter_rows = max_hyperparameter_rows
        self.block_dtype = block_dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts. Hyperparameters depend on relative weights only.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            When the data or a parameter is not as described.

        Warns
        -----
        ConvergenceWarning
            When the optimiser did not come to rest; the best posterior found is kept, with ``converged_ = False``.
        """
        self._check_parameters()
        x, targets, standardised, weight = self._start_fit(X, y, sample_weight)
        self._forget_all()
        n_threads = resolve_n_threads(self.n_threads)
        rng = self._generator()
        progress = Progress(self.verbose)

        distinct = distinct_rows(x, targets, weight)[2]
        self.repetitions_ = float(distinct.mean())

        with single_blas_thread():
            with progress.stage("features"):
                self._fit_features(x, standardised, weight, rng, n_threads)
                self.feature_y_scale_ = self.y_scale_
            with progress.stage("statistics"), progress.rows(len(x)) as callback:
                inputs = self.input_map_.transform(x)
                statistics = collect_statistics(
                    self.features_,
                    inputs,
                    standardised,
                    weight,
                    block_dtype=self.block_dtype,
                    n_threads=n_threads,
                    progress=callback,
                )
                if self.basis == "raw":
                    statistics.A  # noqa: B018 (formed here, where its seconds belong, when rows are held)
                self.mean_missing_variance_ = self._mean_missing_variance(inputs, weight, statistics)
            with progress.stage("inference"):
                self._infer(Training(statistics, inputs, standardised, weight, inference_rng(rng), n_threads))
        self.fit_seconds_ = progress.seconds
        self.n_samples_ = statistics.n_samples
        self._set_results()
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
        as_choice(self.prior_scale, "prior_scale", ("evidence", "elbo"))
        as_component_count(self.n_components)
        as_choice(self.entropy, "entropy", ENTROPIES)
        as_choice(self.block_dtype, "block_dtype", ("float64", "float32"))
        if isinstance(self.noise, str):
            as_choice(self.noise, "noise", NOISE_POLICIES)
        else:
            as_number(self.noise, "noise", above=0.0)
        if self.basis == "decorrelated" and self.noise == "held_out":
            raise ValueError("noise must not be 'held_out' in the decorrelated basis, which infers it; use basis='raw'")
        if self.basis == "decorrelated" and self.prior_scale == "elbo":
            raise ValueError("prior_scale must not be 'elbo' in the decorrelated basis; use basis='raw'")
        if self.basis == "decorrelated" and self.n_components > 1:
            raise ValueError("n_components must be 1 in the decorrelated basis; use basis='raw'")

    # --- inference

    def _infer(self, training: Training) -> None:
        fit = self._fit_decorrelated if self.basis == "decorrelated" else self._fit_raw
        self.posteriors_, self.prior_scale_ = fit(training)
        self._posterior_basis = self.basis
        self._set_coefficients()

    def _infer_from_statistics(
        self, shared: Standardised, before: tuple[list[Posterior], FloatArray, FloatArray] | None
    ) -> None:
        starts: list[MeanFieldPosterior | None] = []
        # Coordinates in the decorrelated basis are those of other weights.
        same_weights = self.basis == getattr(self, "_posterior_basis", None) == "raw"
        if before is not None and same_weights and not isinstance(as_prior(self.prior), MixturePrior):
            n_weights = shared.gaussian.n_weights
            shape = (n_weights, shared_levels(self.levels, self.n_levels, n_weights).shape[1])
            for posterior, scale, ratio in zip(*before[:2], before[2] / self.y_scale_, strict=True):
                if isinstance(posterior, MeanFieldPosterior) and posterior.q.shape == shape:
                    starts.append(in_prior_units(posterior, 1 / (scale * ratio)))
                else:
                    starts.append(None)
        self._infer(self._training_by(shared, starts))

    def _training_by(self, shared: Standardised, starts: Sequence[MeanFieldPosterior | None] = ()) -> Training:
        """Return what inference sees where there are no rows."""
        rotated = shared.rotated if self._needs_rotation() else None
        n_threads = resolve_n_threads(self.n_threads)
        rng = inference_rng(self._generator())
        return Training(shared.gaussian, None, None, None, rng, n_threads, starts, rotated)

    def _needs_rotation(self) -> bool:
        """Whether inference begins with the decorrelated basis: to live there, or to learn the prior's scale."""
        return self.basis == "decorrelated" or self._start(0)[1] is None

    def _start(self, output: int) -> tuple[float, float | None]:
        """Noise variance to start from, and the prior variance of the weights where that is known."""
        if self.hyperparameters_ is not None and self.length_scale is None:
            # They are in units of the targets' spread where they were found.
            unit = float(self.feature_y_scale_[output] / self.y_scale_[output]) ** 2
            return self.hyperparameters_.noise_variance * unit, unit
        return 0.1, None

    def _evidence(self, rotated: RotatedStatistics, output: int) -> tuple[float, float]:
        """Noise variance and prior variance of the weights by evidence; a noise variance that is given stays."""
        start, known = self._start(output)
        scale_known = known is not None
        fixed = self._fixed_noise(output)
        # Unless it is known, the prior variance starts where that of f is one, whatever the features' units.
        unit = rotated.n_samples / (float(rotated.eigenvalues.sum()) or rotated.n_samples) if known is None else known
        # Copies of rows, or weights that count for them, say nothing about the noise that a row alone does not say.
        noise, scale = maximise_evidence(
            rotated.scaled(unit).averaged(self.repetitions_),
            fixed or start,
            output=output,
            fit_noise=fixed is None,
            prior_sd=(1.0, 0.5) if scale_known else (2.0, 10.0),
        )
        return max(noise, NOISE_FLOOR), scale * unit

    def _fixed_noise(self, output: int) -> float | None:
        if isinstance(self.noise, str):
            return None
        spread = float(self.y_scale_[output])
        ratio = float(self.noise) / spread / spread  # a square of either could leave the range of numbers
        if not 1 / LARGEST_NOISE <= ratio <= LARGEST_NOISE:
            raise ValueError(
                f"noise must be within a factor of {LARGEST_NOISE:g} of y's variance, got {self.noise:g} for targets "
                f"whose standard deviation is {spread:g}"
            )
        return ratio

    def _fit_decorrelated(self, training: Training) -> tuple[list[Posterior], FloatArray]:
        statistics = training.statistics
        prior = as_prior(self.prior)
        assert isinstance(prior, DensityPrior)
        rotated = training.rotated or decorrelate(statistics)
        posteriors: list[Posterior] = []
        scales = np.empty(statistics.n_outputs)
        for k in range(statistics.n_outputs):
            noise, variance = self._evidence(rotated, k)
            scales[k] = np.sqrt(variance)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NoiseGridWarning)  # the grid is narrow, about the evidence's maximum
                posterior = fit_decorrelated(
                    rotated.scaled(variance),
                    noise,
                    prior=prior,
                    output=k,
                    n_levels=self.n_levels,
                    n_noise_levels=self.n_noise_levels if self.noise in ("auto", "elbo") else 1,
                    max_iter=self.max_iter,
                )
            posteriors.append(posterior)
        return posteriors, scales

    def _plan_raw(self, training: Training) -> _RawPlan:
        statistics = training.statistics
        levels = shared_levels(self.levels, self.n_levels, statistics.n_weights)
        prior = as_prior(self.prior)
        b = statistics.n_weights
        log_prior = self._prior_table(prior, levels, b) if isinstance(prior, MixturePrior) else prior.log_mass(levels)
        scales = np.ones(statistics.n_outputs)
        scale_known = not self._needs_rotation()
        rotated = None if scale_known else training.rotated or decorrelate(statistics)
        noises: list[float] = []
        option_sets: list[dict[str, Any]] = []
        for k in range(statistics.n_outputs):
            noise, known = self._start(k)
            if rotated is not None:
                noise, known = self._evidence(rotated, k)
            assert known is not None
            scales[k] = np.sqrt(known)
            option_sets.append(
                {
                    "levels": levels * scales[k],
                    "log_prior": log_prior,
                    "optimizer": self.optimizer,
                    "max_iter": self.max_iter,
                    "n_threads": training.n_threads,
                    "random_state": int(training.rng.integers(2**31)),
                }
            )
            fixed = self._fixed_noise(k)
            if fixed is not None:
                noise = fixed
            elif self.noise in ("auto", "evidence") and scale_known:
                noise = max(noise_by_evidence(statistics, noise, known, output=k), NOISE_FLOOR)
            noises.append(noise)
        grid = np.logspace(-1, 1, self.n_noise_levels) if self.noise == "elbo" else np.ones(1)
        shares = self.optimizer == "pipeline" and self.noise != "held_out" and not any(training.starts)
        shares = shares and not isinstance(log_prior, MixturePriorTable)
        return _RawPlan(levels, grid, scales, noises, option_sets, shares)

    def _fit_raw(self, training: Training) -> tuple[list[Posterior], FloatArray]:
        statistics = training.statistics
        begun = training.begun or begun_together([self], [training], statistics, [0])[0].begun
        assert begun is not None
        plan, firsts = begun
        scales, grid = plan.scales, plan.grid
        posteriors: list[Posterior] = []
        interrupted = False  # by the user: what is left is kept short
        for k, (noise, options) in enumerate(zip(plan.noises, plan.options, strict=True)):
            if interrupted:
                options["max_iter"] = 1
            if self.noise == "held_out" and training.n_rows >= 20 and not interrupted:
                noise, interrupted = self._held_out_noise(training, k, noise, options)
                options["max_iter"] = 1 if interrupted else options["max_iter"]
            start = training.starts[k] if training.starts else None
            warm = options if start is None else {**options, "start": start}
            posteriors.append(_fit_on_grid(partial(_fit_raw_at, statistics, k, grid, warm), noise, firsts[k]))
            if self.noise in ("auto", "evidence"):
                posteriors[-1] = _with_lattice_noise(statistics, posteriors[-1], k, warm)
            if self.prior_scale == "elbo" and not posteriors[-1].interrupted:
                posteriors[-1], factor = _with_level_scale(statistics, posteriors[-1], k, options)
                scales[k] *= factor
                options["levels"] = plan.levels * scales[k]
            interrupted = interrupted or posteriors[-1].interrupted
            if self.n_components > 1:
                posteriors[-1] = self._split(statistics, posteriors[-1], k, interrupted, options)
            interrupted = posteriors[-1].interrupted = interrupted or posteriors[-1].interrupted
        return [in_prior_units(p, s) for p, s in zip(posteriors, scales, strict=True)], scales

    def _prior_table(self, prior: MixturePrior, levels: FloatArray, n_weights: int) -> MixturePriorTable:
        """Tabulate a prior; groups of X's columns leave out the constant, the last weight of linear features.

        It becomes a group of its own whose components are all the same: a standard Gaussian.
        """
        if prior.groups is None or self._feature_kind() != "linear":
            return prior.table(levels, n_weights)
        groups = np.asarray(prior.groups)
        if len(groups) not in (self.n_features_in_, n_weights):
            raise ValueError(
                f"groups must have one number a column of X, {self.n_features_in_}, or a weight, {n_weights}, got "
                f"{len(groups)}"
            )
        if len(groups) != self.n_features_in_:
            return prior.table(levels, n_weights)
        columns = groups[self.input_map_.kept]
        table = replace(prior, groups=(*columns, groups.max() + 1)).table(levels, n_weights)
        shape = (len(table.log_masses), n_weights, levels.shape[1])
        log_masses = np.broadcast_to(table.log_masses, shape).copy()
        log_masses[:, -1] = GaussianPrior().log_mass(levels)[-1]
        return replace(table, log_masses=log_masses)

    def _split(
        self,
        statistics: GaussianStatistics,
        posterior: Posterior,
        output: int,
        interrupted: bool,
        options: dict[str, Any],
    ) -> MixturePosterior:
        """Make a mixture of a factorised posterior, on its noise levels; of one component after an interruption."""
        if interrupted:
            options = options | {"max_iter": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseGridWarning)
            return fit_mixture(
                statistics,
                noise_levels=posterior.noise.levels,
                start=posterior,
                output=output,
                n_components=1 if interrupted else self.n_components,
                entropy=self.entropy,
                **options,
            )

    def _held_out_noise(
        self, training: Training, output: int, noise: float, options: dict[str, Any]
    ) -> tuple[float, bool]:
        """Of noise variances around the start, the one most probable on a held-out tenth; and whether interrupted."""
        assert training.inputs is not None and training.y is not None
        inputs, y, weight = training.inputs, training.y[:, output], training.weight
        n_threads = training.n_threads
        held = np.zeros(len(y), dtype=bool)
        held[training.rng.permutation(len(y))[: max(1, len(y) // 10)]] = True
        kept_weight = None if weight is None else weight[~held]
        options_of_blocks: dict[str, Any] = {"block_dtype": self.block_dtype, "n_threads": n_threads}
        train = collect_statistics(self.features_, inputs[~held], y[~held, None], kept_weight, **options_of_blocks)
        phi = np.ascontiguousarray(self.features_.transform(inputs[held], np.float64, n_threads))

        best, best_density = noise, -np.inf
        for candidate in noise * 2.0 ** np.arange(-4, 5):
            posterior = _fit_factorized(train, noise_levels=[candidate], **options)
            mean, variance = posterior.latent_moments(phi, n_threads)
            total = variance + candidate
            densities = -0.5 * ((y[held] - mean) ** 2 / total + np.log(total))
            density = np.average(densities, weights=None if weight is None else weight[held] + 1e-300)
            if density > best_density:
                best, best_density = float(candidate), density
            if posterior.interrupted:
                return best, True
        return best, False

    # --- prediction

    def _latent_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        if not any(isinstance(posterior, MixturePosterior) for posterior in self.posteriors_):
            return super()._latent_components(rows)
        n_threads = resolve_n_threads(self.n_threads)
        inputs, phi = self._features_of(rows)
        missing = self._missing_variance(inputs, phi)
        components = []
        for k, (posterior, scale) in enumerate(zip(self.posteriors_, self.prior_scale_, strict=True)):
            assert isinstance(posterior, MixturePosterior)  # as all outputs then are
            means, variances = posterior.component_moments(phi, n_threads)
            variances = scale**2 * variances + (0.0 if missing is None else missing[:, k, None])
            components.append((posterior.alpha, scale * means, variances))
        return components

    def predict_cumulants(self, X: ArrayLike) -> FloatArray:
        """Predict the first four cumulants of the target, exactly: mean, variance, and what is not Gaussian.

        Weights are independent in each component of the posterior, so their cumulants add; moments mix over the
        components. The noise is a mixture of Gaussians over its grid.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        ndarray of shape (4, n_rows) or (4, n_rows, n_outputs)
            The k-th in the target's units to the power k; `calibrate` has no part in it.
        """
        x = self._check_rows(X)
        cumulants = np.empty((4, len(x), len(self.y_mean_)))
        for rows in self._blocks(x):
            inputs, phi = self._features_of(x[rows])
            for k, (posterior, scale) in enumerate(zip(self.posteriors_, self.prior_scale_, strict=True)):
                for order in range(1, 5):
                    cumulants[order - 1, rows, k] = scale**order * posterior.latent_cumulant(phi, order)
            missing = self._missing_variance(inputs, phi)
            if missing is not None:
                cumulants[1, rows] += missing
        for k in range(cumulants.shape[2]):
            weights, noise = self._noise(k)
            cumulants[1, :, k] += weights @ noise
            cumulants[3, :, k] += 3 * (weights @ noise**2 - (weights @ noise) ** 2)
        cumulants *= self.y_scale_ ** np.arange(1, 5)[:, None, None]
        cumulants[0] += self.y_mean_
        return cumulants[:, :, 0] if self._one_dimensional else cumulants


def inference_rng(rng: np.random.Generator) -> np.random.Generator:
    """Return the generator of inference, the same whatever the feature map has drawn."""
    return rng.spawn(1)[0]


def begun_together(
    models: Sequence[DirectRegressor],
    trainings: Sequence[Training],
    statistics: GaussianStatistics,
    first_outputs: Sequence[int],
) -> list[Training]:
    """Make the first fits of raw models of the same A, which share every read of it.

    Parameters
    ----------
    models : sequence of DirectRegressor
        Those of the decorrelated basis stay as they are.
    trainings : sequence of Training
    statistics : GaussianStatistics
        Of all targets.
    first_outputs : sequence of int
        Where each model's targets begin among them.
    """
    begun = list(trainings)
    plans = {j: m._plan_raw(t) for j, (m, t) in enumerate(zip(models, trainings, strict=True)) if m.basis == "raw"}
    first_fits: dict[int, list[Posterior | None]] = {j: [None] * len(plan.noises) for j, plan in plans.items()}
    jobs: dict[int, list[tuple[int, int, MeanFieldRegression]]] = {}
    for j, plan in plans.items():
        if plan.shares:
            found = enumerate(plan.models(statistics, first_outputs[j]))
            jobs.setdefault(models[j].max_iter, []).extend((j, k, model) for k, model in found)
    for max_iter, members in jobs.items():
        if len(members) > 1:
            seeds = [plans[j].options[k]["random_state"] for j, k, _ in members]
            fitted = fit_regressions([model for *_, model in members], max_iter, seeds, trainings[0].n_threads)
            for (j, k, _), posterior in zip(members, fitted, strict=True):
                first_fits[j][k] = posterior
    for j, plan in plans.items():
        begun[j] = replace(trainings[j], begun=(plan, first_fits[j]))
    return begun


def _fit_factorized(statistics: GaussianStatistics, **options: Any) -> Posterior:
    """Fit one factor a weight, under a prior of either kind."""
    if isinstance(options["log_prior"], MixturePriorTable):
        return fit_mixture(statistics, n_components=1, **options)
    return fit_mean_field(statistics, **options)


def _fit_on_grid(fit: Callable[[float], Posterior], noise: float, first: Posterior | None = None) -> Posterior:
    """Fit with the noise on a grid about `noise`, moved while the posterior piles up at its edge.

    `first` is the posterior at `noise`, where it is known already.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseGridWarning)
        for _ in range(GRID_RECENTRINGS):
            posterior, first = fit(noise) if first is None else first, None
            edge = posterior.noise.at_edge()
            if edge is None or posterior.interrupted or (edge == "lower" and noise <= NOISE_FLOOR):
                return posterior
            noise = max(float(posterior.noise.levels[0 if edge == "lower" else -1]), NOISE_FLOOR)
    return fit(noise)


def _fit_raw_at(
    statistics: GaussianStatistics, output: int, grid: FloatArray, options: dict[str, Any], noise: float
) -> Posterior:
    return _fit_factorized(statistics, noise_levels=noise * grid, output=output, **options)


def _with_lattice_noise(
    statistics: GaussianStatistics, posterior: Posterior, output: int, options: dict[str, Any]
) -> Posterior:
    """Raise a fixed noise variance to what the levels cannot represent, which is noise to this model.

    The evidence is that of continuous weights. Where levels are far apart and the weights are not redundant, the best
    point of the lattice leaves a mean squared error ‖y − Φs‖²/n above it, and a model without it would be too sure.
    """
    for _ in range(LATTICE_NOISE_FITS):
        s = posterior.mean
        c, yty = statistics.c[:, output], float(statistics.yty[output])
        error = (yty - 2 * s @ c + s @ statistics.A @ s) / statistics.n_samples
        if error <= 1.25 * posterior.noise.variance or posterior.interrupted:
            break
        posterior = _fit_factorized(statistics, noise_levels=[error], output=output, **options)
    return posterior


def _with_level_scale(
    statistics: GaussianStatistics, posterior: Posterior, output: int, options: dict[str, Any]
) -> tuple[Posterior, float]:
    """Scale the levels, and the prior with them, to where the ELBO is largest at the noise as it is."""

    def fit(levels: FloatArray, start: Posterior | None) -> Posterior:
        if start is None:
            return posterior
        at = options | {"levels": levels, "noise_levels": posterior.noise.levels}
        return _fit_factorized(statistics, output=output, start=start, **at)

    return fit_level_scale(fit, statistics, options["levels"], output=output)
