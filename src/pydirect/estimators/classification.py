"""A fit of classes, counts or other targets of latents, stage by stage: labels, features, more landmarks, weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Protocol, cast

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight

from pydirect._progress import Progress
from pydirect._threads import for_each, resolve_n_threads
from pydirect._validation import FloatArray, as_choice
from pydirect.distributions.categorical import shared_levels
from pydirect.distributions.priors import as_prior
from pydirect.estimators._classifier import require_classes
from pydirect.estimators.choices import Gaussian, MeanField, Sequential, generator_of, lattice_of
from pydirect.features.basis import Basis
from pydirect.features.fitting import FIRST_SIZES, FeaturePlan, choose_landmarks
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures
from pydirect.features.rows import TrainingRows, distinct_rows
from pydirect.features.search import KernelRows
from pydirect.fitted.classification import FittedClassifier
from pydirect.fitted.regression import Latent
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.fit import (
    ascend_stream,
    finish_decorrelated,
    fit_logistic,
    fit_logistic_decorrelated,
    state_of,
    turned,
)
from pydirect.logistic.gaussian import TYPICAL_LOGIT_VARIANCE, VariancePrior, informative_directions
from pydirect.logistic.kernel_evidence import LOGIT_UNIT, fit_label_hyperparameters
from pydirect.logistic.problem import LatentProblem
from pydirect.logistic.rows import FACTORS, LabelledRows, RotatedFeatures, RowPasses
from pydirect.logistic.sequential import DrawnRows, draw_at_rest
from pydirect.statistics.gaussian import RowFeatures, collect_statistics
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import Rows
from pydirect.tables.encoding import ColumnEncoding

# Standard deviation of the log prior variance about what the kernel's amplitudes say.
KERNEL_LOG_VARIANCE_SD = 0.5
# Fraction by which the log loss of labels that are left out must fall for still more landmarks to be tried.
WORTH_ADDING = 0.04
# Multiply-adds of a pass over the rows beyond which there are no more landmarks.
LARGEST_PASS = 3e10


@dataclass(frozen=True)
class ClassificationPlan:
    """What a classifier's parameters ask for, checked."""

    features: FeaturePlan
    posterior: Gaussian | Sequential | MeanField
    bound: str
    class_weight: Any = None
    max_iter: int = 1000
    random_state: Any = 0
    known: dict[str, Any] = field(default_factory=dict)  # searches of kernels that were made, for fits to the same rows

    @property
    def is_softmax(self) -> bool:
        return self.bound == "softmax"

    def generator(self) -> np.random.Generator:
        return generator_of(self.random_state)


# --- labels


@dataclass(frozen=True)
class Labels:
    """Classes, and what their frequencies and weights make of the functions' intercepts: one function of two classes.

    ``log_factors`` (n_classes,) are logarithms of factors of the classes' odds, empty where weights are all one.
    """

    unit: ClassVar[float] = LOGIT_UNIT
    typical_variance: ClassVar[float] = TYPICAL_LOGIT_VARIANCE

    classes: NDArray[Any]
    intercept: FloatArray
    log_factors: FloatArray

    @classmethod
    def of(cls, classes: NDArray[Any], mass: NDArray[Any], is_softmax: bool, log_factors: FloatArray) -> Labels:
        """Return the classes of given total weights."""
        own, total = (mass[1:] if len(classes) == 2 else mass) + 0.5, mass.sum() + 1.0
        intercept = np.log(own / (total - own))
        if is_softmax and len(classes) > 2:
            intercept = np.log(own) - np.log(own).mean()
        return cls(classes, intercept, log_factors)

    @property
    def moves(self) -> FloatArray:
        """What factors of the odds add to the intercepts, (n_functions,)."""
        factors = self.log_factors
        if not len(factors):
            return np.zeros(len(self.intercept))
        return np.diff(factors) if len(self.classes) == 2 else factors - factors.mean()

    @property
    def order(self) -> NDArray[np.intp]:
        """Number of each function's class among them in ascending order, (n_functions,); zero of two classes."""
        return np.argsort(np.argsort(self.classes)) if len(self.intercept) > 1 else np.zeros(1, np.intp)

    def signs(self, index: NDArray[Any]) -> FloatArray:
        """Labels of each function, ±1, (n_rows, n_functions)."""
        functions = [1] if len(self.classes) == 2 else range(len(self.classes))
        return np.where(index[:, None] == functions, 1.0, -1.0)

    def rows_of(self, features: RowFeatures, inputs: FloatArray, rows: TrainingRows) -> LabelledRows:
        """Return rows with labels of functions of their inputs."""
        assert rows.weight is not None
        given, threads = (features, inputs, rows.y, rows.weight, self.intercept + rows.offset), resolve_n_threads()
        return LabelledRows(*given, n_threads=threads, offset_variance=rows.offset_variance)


def check_class_weight(class_weight: Any) -> None:
    """Raise unless it is a dict, "balanced" or None."""
    if isinstance(class_weight, str):
        as_choice(class_weight, "class_weight", ("balanced",))
    elif class_weight is not None and not isinstance(class_weight, dict):
        raise TypeError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}")


def class_factors(class_weight: Any, classes: NDArray[Any], mass: NDArray[Any]) -> FloatArray:
    """Factors of the rows' weights by class."""
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str):
        factors = mass.sum() / (len(mass) * mass)
    else:
        try:
            factors = compute_class_weight(class_weight, classes=classes, y=classes)
        except ValueError:
            given = f"{[*class_weight]}: a dict is for all columns of labels alike, 'balanced' for each by itself"
            raise ValueError(f"class_weight must have classes of y, {classes.tolist()}, got {given}") from None
    if not (np.isfinite(factors) & (factors >= 0)).all() or not factors.any():
        raise ValueError(f"class_weight must be finite and non-negative, not all zero, got {factors}")
    return np.asarray(factors, dtype=np.float64)


def class_weighted(
    plan: ClassificationPlan, x: FloatArray, y: NDArray[Any], weight: FloatArray
) -> tuple[FloatArray, NDArray[Any], FloatArray, FloatArray]:
    """Return the rows that count, with weights that are factors by class, and logarithms of factors of the odds.

    In the softmax bound class weights multiply predictive odds and leave the rows as they are.
    """
    if plan.class_weight is None:
        return x, y, weight, np.empty(0)
    classes, index = np.unique(y, return_inverse=True)
    factors = class_factors(plan.class_weight, classes, np.bincount(index, weight))
    used, log_factors = factors[index] > 0, np.empty(0)
    if plan.is_softmax:
        log_factors = np.log(factors[factors > 0])
    else:
        weight = weight * factors[index]
    return np.ascontiguousarray(x[used]), y[used], weight[used], log_factors


# --- stages


class LabelSearch:
    """Search of a kernel by the evidence of labels, of all rows or `among` some; `seen` of all took part."""

    def __init__(self, plan: ClassificationPlan) -> None:
        self.max_rows, self.known = plan.features.max_search_rows, plan.known
        self.rows: KernelRows | None = None
        self.record: Any = None
        self.seen: NDArray[np.bool_] = np.empty(0, dtype=bool)

    def __call__(self, rows: KernelRows, rng: np.random.Generator) -> Any:
        self.rows = rows
        kernel, self.record, self.seen = self._found(rows, rng)
        return kernel, self.record

    def among(self, part: NDArray[np.intp], rng: np.random.Generator) -> KernelHyperparameters:
        """Return the kernel of some of the rows, found as that of all."""
        assert self.rows is not None
        return cast(KernelHyperparameters, self._found(self.rows.take(part), rng, self.record)[0])

    def _found(self, rows: KernelRows, rng: np.random.Generator, like: Any = None) -> tuple[Any, Any, Any]:
        """Return kernel, record and rows seen, as they were found before if the search would be the same."""
        key = str(joblib.hash((rows, self.max_rows, like, rng.bit_generator.state)))
        if key not in self.known:
            seen = np.zeros(len(rows.x), dtype=bool)
            found = fit_label_hyperparameters(rows, rng, max_rows=self.max_rows, seen=seen, like=like)
            self.known[key] = (*found, seen), rng.bit_generator.state
        result, rng.bit_generator.state = self.known[key]
        return result


def read_labels(
    plan: ClassificationPlan, columns: ColumnEncoding, x: FloatArray, y: Any, weight: FloatArray
) -> tuple[Labels, TrainingRows]:
    """Return classes and distinct rows with labels ±1.

    Classes are in an order that does not depend on their names, so that nothing that is found does.
    """
    x, y, weight, log_factors = class_weighted(plan, x, y, weight)
    classes, index = np.unique(y, return_inverse=True)
    require_classes(classes)
    if len(classes) > 2:
        first = np.unique(index[np.lexsort(x.T[::-1])], return_index=True)[1] if x.shape[1] else np.arange(len(classes))
        order = np.lexsort([first, -np.bincount(index, weight)])
        classes, index = classes[order], np.argsort(order)[index]
        log_factors = log_factors[order] if len(log_factors) else log_factors
    # In small tables repeated rows are merged, so that a weight of two is the same as a row given twice.
    x, merged, counts = distinct_rows(x, index[:, None].astype(np.float64), weight)
    mass = np.bincount(merged[:, 0].astype(np.intp), counts)
    labels = Labels.of(classes, mass, plan.is_softmax, log_factors)
    x, offset, variance = columns.apart(x)
    offset = offset[:, labels.order] if columns.effects else offset
    signs = labels.signs(merged[:, 0])
    return labels, TrainingRows(x, signs, counts, offset=offset, offset_variance=variance)


class Targets(Protocol):
    """What stages must know of targets: their rows, the unit of their latents, the variance that these have."""

    @property
    def unit(self) -> float:
        """Divided by it, latents have the priors of standardised targets."""

    @property
    def typical_variance(self) -> float:
        """Variance of the latents where no kernel is learned."""

    def rows_of(self, features: RowFeatures, inputs: FloatArray, rows: TrainingRows) -> LabelledRows:
        """Return rows with targets of functions of their inputs."""


@dataclass(frozen=True)
class ProblemMaker:
    """From a feature map to the problem of fitting its weights, in the directions about which rows say anything."""

    rows: TrainingRows
    targets: Targets
    progress: Progress

    def of(self, basis: Basis) -> LatentProblem:
        rows, progress = self.rows, self.progress
        with progress.stage("statistics"), progress.rows(len(rows.x)) as callback:
            inputs = np.ascontiguousarray(basis.inputs(rows.x))
            raw = self.targets.rows_of(basis.map, inputs, rows).held()
            zero = np.zeros((raw.n_samples, 1))
            statistics = collect_statistics(raw.features, raw.x, zero, rows.weight, progress=callback)
            residual = basis.mean_missing_variance(inputs, rows.weight, statistics.mean_square)
            prior = variance_prior(self.targets, basis, statistics.mean_square)
            largest = raw.model.largest_precision(raw.t, raw.offset)
            vectors = informative_directions(statistics, prior.centre, largest)
            if vectors.shape[1] == raw.n_weights:  # a rotation would gain nothing
                return LatentProblem(raw, raw, np.eye(raw.n_weights), prior, residual)
            return LatentProblem(raw, raw.rotated(vectors), vectors, prior, residual)


def variance_prior(targets: Targets, basis: Basis, mean_square: float) -> VariancePrior:
    """Prior of the weights' variance: narrow about what a learned kernel says."""
    if basis.hyperparameters is not None and basis.search is not None:
        return VariancePrior(targets.unit**2, KERNEL_LOG_VARIANCE_SD)
    return VariancePrior.wide(mean_square, targets.typical_variance)


def add_landmarks(
    maker: ProblemMaker,
    basis: Basis,
    features: FeaturePlan,
    rng: np.random.Generator,
    max_iter: int,
    settle: Callable[[LatentProblem, Basis], LatentProblem] = lambda problem, basis: problem,
) -> tuple[LatentProblem, Basis]:
    """Fit, and add landmarks while the log loss of labels that are left out falls.

    `settle` makes of the problem that has all but the last landmarks the one from which these go on.
    """
    problem = maker.of(basis)
    with maker.progress.stage("inference"):
        problem = problem.at_rest(max_iter)
    kernel, rows, settled = basis.hyperparameters, maker.rows, False
    grows = features.learns_kernel and basis.map.residual_kernel is not None
    for before, size in pairwise(features.sizes):
        if not grows or problem.stop.is_set() or basis.n_weights < before or len(rows.x) * size**2 > LARGEST_PASS:
            break  # with fewer than were asked for, all rows are landmarks
        assert kernel is not None
        if size > FIRST_SIZES[-1]:
            problem, settled = settle(problem, basis), True
        try:
            with maker.progress.stage("features"):
                landmarks = choose_landmarks(basis.input_map.transform(rows.x), rows, rng, size)
                wider = replace(basis, map=NystroemFeatures.at(landmarks, kernel))
            tried = replace(maker.of(wider), stop=problem.stop, amplitude=problem.amplitude)
            with maker.progress.stage("inference"):
                tried = tried.at_rest(max_iter, problem)
        except KeyboardInterrupt:
            problem.stop.set()
            break
        if tried.log_loss >= problem.log_loss:
            break
        gain = 1 - tried.log_loss / problem.log_loss
        problem, basis = tried, wider
        if gain < WORTH_ADDING:
            break
    return problem if settled else settle(problem, basis), basis


def fitted_weights(problem: LatentProblem) -> list[tuple[GaussianPosterior, float]]:
    """Return Gaussian posteriors of the weights of each function, and their prior deviations."""
    assert problem.ascent is not None
    fit = finish_decorrelated(problem.ascent, problem.stop, problem.precision_factor)
    return turned(fit, problem.vectors).scaled


def infer(
    plan: ClassificationPlan,
    labels: Labels,
    problem: LatentProblem,
    basis: Basis,
    rng: np.random.Generator,
    *,
    left_out: FloatArray | None = None,
    sharpness: float = 1.0,
    source: DrawnRows | None = None,
) -> FittedClassifier:
    """The posterior that was asked for, of classes in ascending order.

    `left_out` are quantiles of the probabilities of left-out labels, `source` all rows where the problem has but some.
    """
    if not plan.is_softmax:
        fitted: list[tuple[Any, float]] = _one_against_rest(plan, labels, problem)
    elif isinstance(plan.posterior, Sequential):
        fitted = _drawn(plan.posterior, problem, source or problem.rotated, basis, rng)
    else:
        fitted = [*fitted_weights(problem)]
    order = np.argsort(labels.classes) if len(labels.intercept) > 1 else np.arange(1)
    return FittedClassifier(
        Latent.of(basis, [fitted[k] for k in order], problem.mean_missing_variance),
        np.sort(labels.classes),
        (labels.intercept + labels.moves)[order],
        labels.moves[order],
        plan.is_softmax and len(labels.classes) > 2,
        float(problem.raw.weight.sum()),
        np.empty(0) if left_out is None else left_out,
        sharpness,
    )


def infer_by_passes(
    plan: ClassificationPlan,
    labels: Labels,
    basis: Basis,
    blocks: Callable[[], Iterator[Rows]],
    sample: Rows,
    total: RunningStatistics,
) -> FittedClassifier:
    """Fit to rows that pass by once for every step, from a sample of them on.

    Left-out labels of the sample choose the factor of the precision of several classes; see `RowsLeftOut`.
    """
    statistics, n_threads = total.gaussian(), resolve_n_threads()
    prior = variance_prior(labels, basis, statistics.mean_square)
    vectors = informative_directions(statistics, prior.centre)
    passes = RowPasses(RotatedFeatures(basis, vectors), blocks, labels.intercept, n_threads)
    assert sample.weight is not None
    weight = sample.weight * (total.n_samples / sample.weight.sum())
    start = labels.rows_of(passes.features, sample.x, TrainingRows(sample.x, sample.y, weight)).held()
    ascent = ascend_stream(passes, start, prior, plan.max_iter, passes.stop)
    residual = total.missing_variance(statistics.mean_square)
    problem = LatentProblem(start, start, vectors, prior, residual, passes.stop, ascent)
    if isinstance(plan.posterior, Gaussian) and start.n_functions > 1 and not passes.stop.is_set():
        problem = replace(problem, precision_factor=FACTORS[problem.left_out.place()])
    return infer(plan, labels, problem, basis, plan.generator(), source=passes)


# --- parts of stages


def _drawn(
    posterior: Sequential, problem: LatentProblem, source: DrawnRows, basis: Basis, rng: np.random.Generator
) -> list[tuple[Any, float]]:
    """Draw weights on few levels, given the fit of continuous ones."""
    assert problem.ascent is not None
    fit = draw_at_rest(
        source,
        problem.ascent,
        replace(lattice_of(posterior, basis), keep_factor=False),
        directions=problem.vectors,
        random_states=[int(rng.integers(2**31)) for _ in range(problem.raw.n_functions)],
        n_threads=resolve_n_threads(),
        stop=problem.stop,
    )
    return [*fit.scaled]


def _one_against_rest(plan: ClassificationPlan, labels: Labels, problem: LatentProblem) -> list[tuple[Any, float]]:
    """Published bounds on the logistic likelihood, a problem of two classes for every function."""
    targets, stop, n_threads, posterior = problem.raw.t, problem.stop, problem.raw.n_threads, plan.posterior
    n_workers = min(targets.shape[1], n_threads)
    rotated, raw = (replace(r, n_threads=n_threads if n_workers == 1 else 1) for r in (problem.rotated, problem.raw))
    discrete = isinstance(posterior, MeanField)
    raw = raw.held() if discrete else raw

    def fitted(k: int) -> tuple[Any, float]:
        start = fit_logistic_decorrelated(
            rotated.problem(targets[:, k], labels.intercept[k]),
            variance_prior=problem.variance_prior,
            max_iter=plan.max_iter,
            stop=stop,
        )
        start, unit = turned(start, problem.vectors), float(np.sqrt(start.variance))
        if not isinstance(posterior, MeanField):
            return start.posterior, unit
        levels = shared_levels(posterior.levels, posterior.n_levels, raw.n_weights)
        rows = raw.problem(targets[:, k], labels.intercept[k])
        fit = fit_logistic(
            rows,
            levels * unit,
            as_prior(posterior.prior).log_mass(levels),
            bound=plan.bound,
            start=state_of(rows, start),
            optimizer=posterior.optimizer,
            max_iter=plan.max_iter,
            stop=stop,
        )
        return fit.in_units_of(unit), unit

    return list(for_each(fitted, range(targets.shape[1]), n_workers, stop))
