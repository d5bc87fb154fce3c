"""A fit of regression, stage by stage: units, features, sums, weights, noise, local process.

Whoever fits enters this list at a stage: rows at `fit_rows`, sums over rows at `fit_sums`. Several models of one
feature map go through it together, `fit_many` and searches among them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.direct.empirical_bayes import RawPolicy, SequentialPolicy, finish
from pydirect.distributions.categorical import shared_levels
from pydirect.distributions.priors import GaussianPrior, MixturePrior, MixturePriorTable, as_prior
from pydirect.estimators.choices import Gaussian, MeanField, Sequential
from pydirect.estimators.target_transform import TransformPlan, choose_transform
from pydirect.features.basis import Basis
from pydirect.features.fitting import FeaturePlan, fit_basis
from pydirect.features.rows import TrainingRows
from pydirect.features.search import search_kernel
from pydirect.fitted.predictor import Units
from pydirect.fitted.regression import FittedRegressor, Latent
from pydirect.linear.fit import InitialHyperparameters, fit_by_evidence
from pydirect.noise.fit import choose_noise, fit_varying_noise
from pydirect.noise.local import fit_local, noise_may_replace
from pydirect.noise.model import MIN_ROWS_TO_CHOOSE, NoiseModel
from pydirect.noise.problem import NoiseProblem, RowMoments
from pydirect.noise.student_t import fit_student_t, within_reach
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics, sums_are_of_kernel
from pydirect.statistics.rotated import RotatedStatistics, Standardised, decorrelate
from pydirect.statistics.running import RunningStatistics
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import equal_rows

NOISE_OF_ROWS = ("varying", "student_t")
LARGEST_NOISE = 1e300  # in units of the targets' variance; its inverse is the smallest
# Rows that find the kernel of log noise, whose targets are nearly all noise.
MAX_NOISE_ROWS = 256

Fitted = list[tuple[Any, float]]


# --- what is asked for, and what is given


@dataclass(frozen=True)
class RegressionPlan:
    """What a regressor's parameters ask for, checked. ``local`` is None, "auto" or a number of neighbours."""

    features: FeaturePlan
    posterior: Gaussian | Sequential | MeanField
    transform: TransformPlan
    noise: str | float = "auto"
    local: str | int | None = "auto"
    block_dtype: str = "float64"
    max_iter: int = 1000
    random_state: Any = 0

    @property
    def is_gaussian(self) -> bool:
        return isinstance(self.posterior, Gaussian)

    @property
    def reach(self) -> Callable[[FloatArray], FloatArray] | None:
        """What clips targets: outliers must not set their scale."""
        return within_reach if self.noise == "student_t" else None

    def generator(self) -> np.random.Generator:
        return generator_of(self.random_state)


@dataclass(frozen=True)
class GivenRows:
    """Encoded rows x (n_rows, n_encoded) and targets y (n_rows, n_outputs), as they were given."""

    x: FloatArray
    y: FloatArray
    weight: FloatArray | None
    one_dimensional: bool
    columns: ColumnEncoding
    names: tuple[str, ...] | None


@dataclass(frozen=True)
class Training:
    """Sums over rows, or rows and sums, of one model's standardised targets."""

    basis: Basis
    residual_variance: float
    units: Units
    statistics: GaussianStatistics
    n_samples: float
    repetitions: float
    rng: np.random.Generator
    rows: TrainingRows | None = None
    known_rotation: RotatedStatistics | None = None
    memo: dict[Hashable, Any] | None = None

    @cached_property
    def rotated(self) -> RotatedStatistics:
        return self.known_rotation or decorrelate(self.statistics)

    def divided(self) -> Training:
        """Repetitions of rows count once where they say nothing of the noise."""
        r = self.repetitions
        if r == 1.0:
            return self
        return replace(
            self,
            statistics=self.statistics.divided(r),
            rows=None if self.rows is None else self.rows.divided(r),
            known_rotation=None if self.known_rotation is None else self.known_rotation.divided(r),
        )


def generator_of(random_state: Any) -> np.random.Generator:
    """Return the generator that a checked seed or RandomState stands for."""
    state = random_state if hasattr(random_state, "randint") else np.random.RandomState(random_state)
    return np.random.default_rng(state.randint(2**31))


# --- stages


def fit_units(plan: RegressionPlan, given: GivenRows, earlier: Basis | None = None) -> tuple[Units, TrainingRows]:
    """Stage 1: location, scale and transform of the targets."""
    transform = choose_transform(plan.transform, given.x, given.y, given.weight, given.columns, earlier)
    units, z = Units.fit(given.y, given.weight, given.one_dimensional, transform, plan.reach)
    return units, TrainingRows(given.x, z, given.weight)


def fit_features(
    plan: RegressionPlan,
    rows: TrainingRows,
    given: GivenRows,
    units: Units,
    rng: np.random.Generator,
    earlier: Basis | None = None,
) -> Basis:
    """Stage 2: the feature map, with a search of the kernel's hyperparameters."""
    if plan.transform.value == "auto" and earlier is not None and earlier.target_transform != units.transform:
        earlier = None  # its kernel is of other targets
    basis = fit_basis(
        plan.features,
        rows,
        given.columns,
        partial(search_kernel, max_rows=plan.features.max_search_rows),
        rng,
        resolve_n_threads(),
        names=given.names,
        target_scale=units.scale,
        earlier=earlier,
    )
    return replace(basis, target_transform=units.transform)


def fit_weights(plan: RegressionPlan, training: Training) -> Fitted:
    """Stage 4: the posterior of every output's weights, and their prior standard deviation."""
    starts = initial_hyperparameters(plan, training.basis, training.units)
    targets = range(training.statistics.n_outputs)
    posterior = plan.posterior
    if isinstance(posterior, Gaussian):
        n_noise = posterior.n_noise_levels if isinstance(plan.noise, str) else 1
        rotated = training.rotated
        return [
            fit_by_evidence(rotated.target(k), starts[k], n_noise_levels=n_noise, max_iter=plan.max_iter)
            for k in targets
        ]
    statistics = [training.statistics.target(k) for k in targets]
    seeds = [int(training.rng.integers(2**31)) for _ in targets]
    if isinstance(posterior, Sequential):
        return list(_sequential_policy(posterior, training.basis).fit(statistics, starts, seeds))
    policy = _raw_policy(plan, posterior, training)
    return list(finish([policy.begin(*each) for each in zip(statistics, starts, seeds, strict=True)]))


def infer(plan: RegressionPlan, training: Training) -> FittedRegressor:
    """Stages 4 to 6: weights, then the noise and the local process that leave-one-out scores favour."""
    training = training.divided()
    basis, residual = training.basis, training.residual_variance
    fitted, noise, local, gain = fit_weights(plan, training), None, None, None
    problem = _noise_problem(plan, training, fitted)
    if problem is not None:
        moments = problem.moments()
        if plan.noise == "student_t":
            fitted, noise, basis, residual = fit_student_t(problem, moments)
        elif plan.noise == "varying":
            fitted, noise = fit_varying_noise(problem, moments)
        elif plan.local is not None and may_be_local(plan) is None:
            neighbours = None if plan.local == "auto" else int(plan.local)
            local, gain = fit_local(problem, moments, neighbours, training.memo)
        if plan.noise == "auto" and _may_vary(plan, training) and noise_may_replace(local, plan.local == "auto"):
            fitted, noise, local = _better_noise(problem, moments, fitted, local)
    return FittedRegressor(
        Latent.of(basis, fitted, residual),
        training.units,
        training.n_samples,
        training.repetitions,
        noise,
        local,
        gain,
        _why_untried(plan, training),
    )


# --- entries


def fit_rows(
    plans: Sequence[RegressionPlan],
    given: Sequence[GivenRows],
    progress: Progress,
    earlier: Basis | None = None,
) -> Iterator[tuple[FittedRegressor, dict[str, float]]]:
    """Fit models of one feature map to the same rows of X; yield each with its seconds by stage.

    The kernel of `earlier` is taken over where its inputs are the same.
    """
    lead, rng = plans[0], plans[0].generator()
    after_features = rng.spawn(1)[0]
    units, rows = _merged(plans, given)
    n_rows = len(rows[0].x)
    with progress.stage("features"):
        basis = fit_features(lead, rows[0], given[0], units[0], rng, earlier).for_sums(n_rows)
    found = []
    try:
        for each in _fit_on(basis, plans, units, rows, after_features, progress):
            found.append(each)
    except BaseException:
        yield from found  # models before one that fails are whole
        raise
    models = [model for model, _ in found]
    if not any(p.interrupted for model in models for p in model.posteriors) and lost_digits(
        basis, n_rows, models, lead.block_dtype
    ):
        found = list(_fit_on(basis.for_sums(n_rows, 0.0), plans, units, rows, after_features, progress))
    yield from found


def fit_sums(
    plans: Sequence[RegressionPlan],
    basis: Basis,
    statistics: RunningStatistics,
    shared: Standardised,
    one_dimensional: bool,
    progress: Progress,
) -> Iterator[tuple[FittedRegressor, dict[str, float]]]:
    """Fit models to sums over rows."""
    units = Units(shared.location, shared.scale, one_dimensional, basis.target_transform, statistics.log_derivative)
    residual = statistics.missing_variance(shared.gaussian.mean_square)

    def training(plan: RegressionPlan) -> Training:
        rotated = shared.rotated if plan.is_gaussian else None
        rng, repetitions = plan.generator().spawn(1)[0], counted_repetitions(plan, shared.repetitions)
        sums, n = shared.gaussian, statistics.n_samples
        return Training(basis, residual, units, sums, n, repetitions, rng, known_rotation=rotated)

    yield from _infer_each(plans, [training] * len(plans), progress)


def _fit_on(
    basis: Basis,
    plans: Sequence[RegressionPlan],
    units: Sequence[Units],
    rows: Sequence[TrainingRows],
    rng: np.random.Generator,
    progress: Progress,
) -> Iterator[tuple[FittedRegressor, dict[str, float]]]:
    """Stage 3, sums over rows for all targets at once, and inference for each model."""
    x, weight = rows[0].x, rows[0].weight
    with progress.stage("statistics"), progress.rows(len(x)) as callback:
        inputs, targets = basis.inputs(x), np.hstack([own.y for own in rows])
        options: dict[str, Any] = {"block_dtype": plans[0].block_dtype, "progress": callback}
        statistics = collect_statistics(basis.map, inputs, targets, weight, **options)
        residual = basis.mean_missing_variance(inputs, weight, statistics.mean_square)
        if not all(plan.is_gaussian for plan in plans):
            statistics.form_gram()  # once for all, where its seconds belong
    memo: dict[Hashable, Any] | None = {} if len(plans) > 1 else None
    together: list[RotatedStatistics] = []  # computed once, when the first model needs it

    def training_of(k: int) -> Callable[[RegressionPlan], Training]:
        begin = sum(own.y.shape[1] for own in rows[:k])
        outputs = slice(begin, begin + rows[k].y.shape[1])

        def training(plan: RegressionPlan) -> Training:
            if plan.is_gaussian and not together:
                together.append(decorrelate(statistics))
            return Training(
                basis,
                residual,
                units[k],
                statistics.outputs(outputs),
                statistics.n_samples,
                counted_repetitions(plan, rows[k].counts.repetitions),
                copy.deepcopy(rng),
                rows[k],
                together[0].outputs(outputs) if plan.is_gaussian else None,
                memo,
            )

        return training

    yield from _infer_each(plans, [training_of(k) for k in range(len(plans))], progress)


def _infer_each(
    plans: Sequence[RegressionPlan], trainings: Sequence[Callable[[RegressionPlan], Training]], progress: Progress
) -> Iterator[tuple[FittedRegressor, dict[str, float]]]:
    with progress.stage("inference"):
        before = {name: spent / len(plans) for name, spent in progress.seconds.items()}
        for plan, training in zip(plans, trainings, strict=True):
            begin = time.perf_counter()
            fitted = infer(plan, training(plan))
            yield fitted, {**before, "inference": time.perf_counter() - begin}


# --- parts of stages


def counted_repetitions(plan: RegressionPlan, repetitions: float) -> float:
    """A noise variance that is given counts all repetitions of rows."""
    return repetitions if isinstance(plan.noise, str) else 1.0


def lost_digits(basis: Basis, n_rows: float, models: Sequence[FittedRegressor], dtype: str) -> bool:
    """Whether sums of kernel functions have lost digits that noise as small as was found needs."""
    if not sums_are_of_kernel(basis, dtype):
        return False
    noise = min(posterior.noise.variance for model in models for posterior in model.posteriors)
    # The bound is not sharp: it must be exceeded by far.
    return not basis.for_sums(0.1 * n_rows, noise).sums_of_kernel


def initial_hyperparameters(plan: RegressionPlan, basis: Basis, units: Units) -> list[InitialHyperparameters]:
    """What is known of each target's noise and prior variance before inference, standardised."""
    kernel, unit, found = basis.hyperparameters, basis.target_scale, []
    for k, scale in enumerate(units.scale):
        noise, prior_variance = 0.1, None
        if kernel is not None and unit is not None:
            # They are in units of the standard deviation of the targets from which they were learned.
            prior_variance = float(unit[k] / scale) ** 2
            noise = kernel.noise_variance * prior_variance
        found.append(InitialHyperparameters(noise, prior_variance, fixed_noise(plan.noise, float(scale))))
    return found


def fixed_noise(noise: str | float, spread: float) -> float | None:
    """A noise variance that was given, in units of the targets' variance."""
    if isinstance(noise, str):
        return None
    ratio = float(noise) / spread / spread  # the square of either could overflow or underflow
    if not 1 / LARGEST_NOISE <= ratio <= LARGEST_NOISE:
        raise ValueError(
            f"noise must be within a factor of {LARGEST_NOISE:g} of y's variance, got {noise:g} for targets "
            f"whose standard deviation is {spread:g}"
        )
    return ratio


def may_be_local(plan: RegressionPlan) -> str | None:
    """Say what a local process cannot go with, if there is anything."""
    if not plan.is_gaussian:
        return f"posterior={type(plan.posterior).__name__}"
    if not plan.features.has_kernel:
        return "features that have no kernel"
    return None if plan.noise in ("auto", "constant") else f"noise={plan.noise!r}"


def require_formula(plan: RegressionPlan, problem: str) -> None:
    """Raise unless rows left out of a fit have closed forms."""
    if not plan.is_gaussian:
        raise ValueError(f"{problem} with posterior={type(plan.posterior).__name__}; use posterior='gaussian'")
    if plan.noise in NOISE_OF_ROWS:
        raise ValueError(f"{problem} with noise={plan.noise!r}; use another noise")


def _may_vary(plan: RegressionPlan, training: Training) -> bool:
    # Of features that are not flexible, what f misses would pass for noise.
    return plan.is_gaussian and plan.features.learns_kernel and training.units.active is None


def _why_untried(plan: RegressionPlan, training: Training) -> str | None:
    """Say why kinds of noise are not compared, if they are not."""
    if not plan.is_gaussian:
        return "for discrete weights"
    if training.rows is None:
        return "by partial_fit or from sums over rows"
    if not _may_vary(plan, training):
        return "with these features or this target_transform"
    return f"on fewer than {MIN_ROWS_TO_CHOOSE} rows" if training.n_samples < MIN_ROWS_TO_CHOOSE else None


def _noise_problem(plan: RegressionPlan, training: Training, fitted: Fitted) -> NoiseProblem | None:
    """The fit as whoever looks for other noise takes it; None where rows are not known or nothing is asked."""
    constant = not isinstance(plan.noise, str) or plan.noise == "constant"
    if training.rows is None or not plan.is_gaussian or (constant and plan.local is None):
        return None
    units, features, rng, n_threads = training.units, plan.features, training.rng, resolve_n_threads()
    columns = training.basis.columns
    assert columns is not None

    def learn_basis(rows: TrainingRows, scale: FloatArray) -> Basis:
        search = partial(search_kernel, max_rows=features.max_search_rows)
        options: dict[str, Any] = {"names": training.basis.names, "target_scale": scale}
        basis = fit_basis(features, rows, columns, search, rng, n_threads, **options)
        return replace(basis, target_transform=units.transform)

    def noise_basis(rows: TrainingRows, scale: FloatArray, size: int) -> Basis:
        own = replace(features, kind="nystroem", n_functions=size, length_scale=None, parameters={})
        encoded = ColumnEncoding.of_numbers(rows.x.shape[1])  # rows are encoded already
        max_rows = min(features.max_search_rows, MAX_NOISE_ROWS)
        search = partial(search_kernel, max_rows=max_rows, thorough=False)
        return fit_basis(own, rows, encoded, search, rng, n_threads, target_scale=scale)

    return NoiseProblem(
        training.basis,
        training.residual_variance,
        training.rows,
        training.rotated,
        fitted,
        training.n_samples / training.repetitions,
        units.scale,
        learn_basis if features.learns_kernel else None,
        noise_basis if features.takes_tables else None,
        features.n_functions,
        features.max_search_rows,
        plan.max_iter,
        plan.block_dtype,
        rng,
        n_threads,
    )


def _better_noise(
    problem: NoiseProblem, moments: RowMoments, fitted: Fitted, local: Any
) -> tuple[Fitted, NoiseModel | None, Any]:
    """Both stand for what constant noise leaves over: keep that of larger leave-one-out density."""
    other, noise = choose_noise(problem, moments)
    if local is not None and (noise is None or noise.gain() <= local.gain.mean()):
        return fitted, None, local
    return other, noise, None


def _sequential_policy(posterior: Sequential, basis: Basis) -> SequentialPolicy:
    return SequentialPolicy(
        as_prior(posterior.prior),
        posterior.n_levels,
        posterior.unit_levels,
        posterior.level_scales,
        posterior.n_draws,
        posterior.keep_factor,
        getattr(basis.map, "pairs", None),
        resolve_n_threads(),
    )


def _raw_policy(plan: RegressionPlan, posterior: MeanField, training: Training) -> RawPolicy:
    n_weights, prior = training.basis.n_weights, as_prior(posterior.prior)
    levels = shared_levels(posterior.levels, posterior.n_levels, n_weights)
    log_prior: FloatArray | MixturePriorTable
    if isinstance(prior, MixturePrior):
        log_prior = _prior_table(prior, levels, plan.features.kind, training.basis)
    else:
        log_prior = prior.log_mass(levels)
    noise = plan.noise if isinstance(plan.noise, str) else "fixed"
    return RawPolicy(
        levels,
        log_prior,
        noise="constant" if noise == "auto" else noise,
        n_noise_levels=posterior.n_noise_levels,
        n_components=posterior.n_components,
        entropy=posterior.entropy,
        optimizer=posterior.optimizer,
        max_iter=plan.max_iter,
        n_threads=resolve_n_threads(),
    )


def _prior_table(prior: MixturePrior, levels: FloatArray, kind: str, basis: Basis) -> MixturePriorTable:
    """The prior of weights, where groups may number the columns of X and the constant has a prior of its own."""
    n_weights, columns = basis.n_weights, basis.columns
    if prior.groups is None or kind != "linear":
        return prior.table(levels, n_weights)
    assert columns is not None
    groups, d = np.asarray(prior.groups), columns.n_columns
    if len(groups) not in (d, n_weights):
        raise ValueError(
            f"groups must have one number per column of X, {d}, or per weight, {n_weights}, got {len(groups)}"
        )
    if len(groups) != d:
        return prior.table(levels, n_weights)
    own = groups[columns.origins][basis.input_map.kept]
    table = replace(prior, groups=(*own, groups.max() + 1)).table(levels, n_weights)
    shape = (len(table.log_masses), n_weights, levels.shape[1])
    log_masses = np.broadcast_to(table.log_masses, shape).copy()
    log_masses[:, -1] = GaussianPrior().log_mass(levels)[-1]
    return replace(table, log_masses=log_masses)


def _merged(plans: Sequence[RegressionPlan], given: Sequence[GivenRows]) -> tuple[list[Units], list[TrainingRows]]:
    """Fit units; merge rows that are equal in X and in all targets, so that a weight of two is a row given twice."""
    x, weight = given[0].x, given[0].weight
    together = TrainingRows(x, np.hstack([own.y for own in given]), weight)
    if not together.is_plain:
        index, total = together.distinct
        given = [replace(own, x=x[index], y=own.y[index], weight=total) for own in given]
    units, rows = map(list, zip(*[fit_units(*each) for each in zip(plans, given, strict=True)], strict=True))
    if together.is_plain and len(rows) > 1 and len(equal_rows(x)[0]) == len(x):
        for own in rows[1:]:  # rows that differ in X differ, whatever their targets
            own.__dict__.update(distinct=rows[0].distinct, merged=rows[0].merged)
    return units, [replace(own, x=rows[0].x) if own.x is not rows[0].x else own for own in rows]
