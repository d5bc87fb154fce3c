"""A fit of classes or counts, stage by stage: labels, features, more landmarks, sharpness, weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.class_weight import compute_class_weight

from pydirect._progress import Progress
from pydirect._threads import for_each, resolve_n_threads
from pydirect._validation import FloatArray, as_choice
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.categorical import shared_levels
from pydirect.distributions.priors import as_prior
from pydirect.estimators._classifier import require_classes
from pydirect.estimators.choices import Gaussian, MeanField, Sequential, generator_of
from pydirect.features.basis import Basis
from pydirect.features.fitting import FeaturePlan, choose_landmarks
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures
from pydirect.features.rows import TrainingRows, distinct_rows
from pydirect.features.search import KernelRows
from pydirect.fitted.classification import FittedClassifier
from pydirect.fitted.regression import Latent
from pydirect.linear.posterior import GaussianPosterior
from pydirect.logistic.ascent import Ascent
from pydirect.logistic.fit import (
    LogisticFit,
    ascend_stream,
    finish_decorrelated,
    fit_logistic,
    fit_logistic_decorrelated,
    fit_passes_decorrelated,
    state_of,
)
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, informative_directions
from pydirect.logistic.kernel_evidence import LOGIT_UNIT, fit_label_hyperparameters
from pydirect.logistic.problem import LabelProblem
from pydirect.logistic.rows import LabelledRows, RotatedFeatures, RowPasses
from pydirect.logistic.sequential import DrawnRows, Lattice, draw_at_rest
from pydirect.statistics.gaussian import RowFeatures, collect_statistics
from pydirect.statistics.rotated import Rotation
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import Rows

# Standard deviation of the log prior variance about what the kernel's amplitudes say.
KERNEL_LOG_VARIANCE_SD = 0.5
# Numbers of landmarks that are tried before `n_basis_functions`, as long as the log loss of labels that are left out
# falls by this fraction.
SIZES = (128, 384)
WORTH_ADDING = 0.04
# Multiply-adds of a pass over the rows beyond which there are no more landmarks.
LARGEST_PASS = 3e10

LEVELS_OF_BOUNDS = 15
Problem = TypeVar("Problem", bound=LabelProblem)
RowsOf = Callable[[RowFeatures, FloatArray, TrainingRows], LabelledRows]


@dataclass(frozen=True)
class ClassificationPlan:
    """What a classifier's parameters ask for, checked."""

    features: FeaturePlan
    posterior: Gaussian | Sequential | MeanField
    bound: str
    class_weight: Any = None
    max_iter: int = 1000
    random_state: Any = 0

    @property
    def is_softmax(self) -> bool:
        return self.bound == "softmax"

    def generator(self) -> np.random.Generator:
        return generator_of(self.random_state)


# --- labels


@dataclass(frozen=True)
class Labels:
    """Classes, and what their frequencies and weights make of the functions' intercepts.

    ``log_factors`` (n_classes,) are logarithms of factors of the classes' odds, empty where weights are all one.
    """

    classes: NDArray[Any]
    intercept: FloatArray
    log_factors: FloatArray

    @classmethod
    def of(cls, classes: NDArray[Any], mass: FloatArray, is_softmax: bool, log_factors: FloatArray) -> Labels:
        """One function for two classes, one per class for more."""
        functions = [1] if len(classes) == 2 else list(range(len(classes)))
        own, total = mass[functions] + 0.5, mass.sum() + 1.0
        intercept = np.log(own / (total - own))
        if is_softmax and len(classes) > 2:
            intercept = np.log(own) - np.log(own).mean()
        return cls(classes, intercept, log_factors)

    @property
    def moves(self) -> FloatArray:
        """What factors of the odds add to the intercepts, (n_functions,)."""
        if not len(self.log_factors):
            return np.zeros(len(self.intercept))
        factors = self.log_factors
        return np.diff(factors) if len(self.classes) == 2 else factors - factors.mean()

    def signs(self, index: FloatArray) -> FloatArray:
        """Labels of each function, ±1, (n_rows, n_functions)."""
        functions = [1] if len(self.classes) == 2 else list(range(len(self.classes)))
        return np.where(index[:, None] == functions, 1.0, -1.0)


def masses(index: NDArray[np.intp], weight: FloatArray) -> FloatArray:
    """Total weight of every class."""
    return np.bincount(index, weights=weight).astype(np.float64)


def check_class_weight(class_weight: Any) -> None:
    """Raise unless it is a dict, "balanced" or None."""
    if isinstance(class_weight, str):
        as_choice(class_weight, "class_weight", ("balanced",))
    elif class_weight is not None and not isinstance(class_weight, dict):
        raise TypeError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}")


def class_factors(class_weight: Any, classes: NDArray[Any], mass: FloatArray) -> FloatArray:
    """Factors of the rows' weights by class."""
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str):
        factors = mass.sum() / (len(mass) * mass)
    else:
        factors = compute_class_weight(class_weight, classes=classes, y=classes)
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
    factors = class_factors(plan.class_weight, classes, masses(index, weight))
    used = factors[index] > 0
    if plan.is_softmax:
        return np.ascontiguousarray(x[used]), y[used], weight[used], np.log(factors[factors > 0])
    weight = weight * factors[index]
    return np.ascontiguousarray(x[used]), y[used], weight[used], np.empty(0)


# --- stages


class LabelSearch:
    """Search of a kernel by the evidence of labels, of all rows or `among` some; `seen` of all took part."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows: KernelRows | None = None
        self.record: Any = None
        self.seen: NDArray[np.bool_] = np.empty(0, dtype=bool)

    def __call__(self, rows: KernelRows, rng: np.random.Generator) -> Any:
        self.rows, self.seen = rows, np.zeros(len(rows.x), dtype=bool)
        kernel, self.record = self._of(rows, rng, seen=self.seen)
        return kernel, self.record

    def among(self, part: NDArray[np.intp], rng: np.random.Generator) -> KernelHyperparameters:
        """Return the kernel of some of the rows, found as that of all."""
        assert self.rows is not None
        found: KernelHyperparameters = self._of(self.rows.take(part), rng, like=self.record)[0]
        return found

    def _of(self, rows: KernelRows, rng: np.random.Generator, **options: Any) -> Any:
        options |= {"n_threads": rows.n_threads, "tied": rows.tied, "axes": rows.axes, "max_rows": self.max_rows}
        return fit_label_hyperparameters(rows.x, rows.y, rows.weight, n_linear=rows.n_linear, rng=rng, **options)


def label_variance_prior(basis: Basis, mean_square: float) -> VariancePrior:
    """Prior of the weights' variance: narrow about what a learned kernel says."""
    if basis.hyperparameters is not None and basis.search is not None:
        return VariancePrior(LOGIT_UNIT**2, KERNEL_LOG_VARIANCE_SD)
    return VariancePrior.wide(mean_square)


def read_labels(
    plan: ClassificationPlan, x: FloatArray, y: NDArray[Any], weight: FloatArray
) -> tuple[Labels, TrainingRows, NDArray[np.intp]]:
    """Return classes, distinct rows with labels ±1, and the number of every row's class.

    Classes are in an order that does not depend on their names, so that nothing that is found does.
    """
    x, y, weight, log_factors = class_weighted(plan, x, y, weight)
    classes, index = np.unique(y, return_inverse=True)
    require_classes(classes)
    if len(classes) > 2:
        first = np.unique(index[np.lexsort(x.T[::-1])], return_index=True)[1] if x.shape[1] else np.arange(len(classes))
        order = np.lexsort([first, -masses(index, weight)])
        classes, index = classes[order], np.argsort(order)[index]
        log_factors = log_factors[order] if len(log_factors) else log_factors
    # In small tables repeated rows are merged, so that a weight of two is the same as a row given twice.
    x, merged, counts = distinct_rows(x, index[:, None].astype(np.float64), weight)
    found = merged[:, 0].astype(np.intp)
    labels = Labels.of(classes, masses(found, counts), plan.is_softmax, log_factors)
    return labels, TrainingRows(x, labels.signs(merged[:, 0]), counts), found


def labelled_rows(labels: Labels) -> RowsOf:
    """Return what makes rows with labels of functions of their inputs."""

    def rows_of(features: RowFeatures, inputs: FloatArray, rows: TrainingRows) -> LabelledRows:
        assert rows.weight is not None
        return LabelledRows(features, inputs, rows.y, rows.weight, labels.intercept, "softmax", resolve_n_threads())

    return rows_of


@dataclass(frozen=True)
class ProblemMaker:
    """From a feature map to the problem of fitting its weights, in the directions about which rows say anything."""

    rows: TrainingRows
    rows_of: RowsOf
    variance_prior: Callable[[Basis, float], VariancePrior]
    kind: type[LabelProblem]
    progress: Progress

    def of(self, basis: Basis) -> LabelProblem:
        rows, progress = self.rows, self.progress
        with progress.stage("statistics"), progress.rows(len(rows.x)) as callback:
            inputs = np.ascontiguousarray(basis.inputs(rows.x))
            raw = self.rows_of(basis.map, inputs, rows).held()
            statistics = collect_statistics(
                raw.features, raw.x, np.zeros((len(raw.x), 1)), rows.weight, progress=callback
            )
            residual = basis.mean_missing_variance(inputs, rows.weight, statistics.mean_square)
            prior = self.variance_prior(basis, statistics.mean_square)
            vectors = informative_directions(statistics, prior.centre, raw.largest_precision)
            if vectors.shape[1] == raw.n_weights:  # a rotation would gain nothing
                return self.kind(raw, raw, np.eye(raw.n_weights), prior, residual)
            return self.kind(raw, raw.rotated(vectors), vectors, prior, residual)


def landmark_sizes(features: FeaturePlan) -> list[int]:
    """Numbers of landmarks that are tried one after another."""
    return [size for size in SIZES if size < features.n_functions] + [features.n_functions]


def with_first_size(features: FeaturePlan) -> FeaturePlan:
    """Begin with few landmarks, where the kernel is learned."""
    return replace(features, first_size=landmark_sizes(features)[0]) if features.learns_kernel else features


def add_landmarks(
    maker: ProblemMaker,
    basis: Basis,
    features: FeaturePlan,
    rng: np.random.Generator,
    max_iter: int,
    settle: Callable[[Any, Basis], Any] = lambda problem, basis: problem,
) -> tuple[Any, Basis]:
    """Fit, and add landmarks while the log loss of labels that are left out falls.

    `settle` makes of the problem that has all but the last landmarks the one from which these go on.
    """
    problem: Any = maker.of(basis)
    with maker.progress.stage("inference"):
        problem = problem.at_rest(max_iter)
    sizes, kernel, rows, settled = landmark_sizes(features), basis.hyperparameters, maker.rows, False
    grows = features.learns_kernel and basis.map.residual_kernel is not None
    for before, size in pairwise(sizes):
        if not grows or problem.stop.is_set() or basis.n_weights < before or len(rows.x) * size**2 > LARGEST_PASS:
            break  # with fewer than were asked for, all rows are landmarks
        assert kernel is not None
        if size > SIZES[-1]:
            problem, settled = settle(problem, basis), True
        try:
            with maker.progress.stage("features"):
                landmarks = choose_landmarks(basis.input_map.transform(rows.x), rows, rng, size)
                wider = replace(basis, map=NystroemFeatures.at(landmarks, kernel))
            tried: Any = replace(maker.of(wider), stop=problem.stop, amplitude=problem.amplitude)
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


def infer(
    plan: ClassificationPlan,
    labels: Labels,
    problem: LabelProblem,
    basis: Basis,
    left_out: FloatArray,
    sharpness: float,
    rng: np.random.Generator,
) -> FittedClassifier:
    """The posterior that was asked for; `left_out` are quantiles of the probabilities of left-out labels."""
    posterior = plan.posterior
    if plan.is_softmax:
        assert problem.ascent is not None
        if isinstance(posterior, Sequential):
            rotated, ascent, vectors = problem.rotated, problem.ascent, problem.vectors
            fit: LogisticFit[Any] = _drawn(plan, posterior, rotated, ascent, vectors, basis, labels, rng, problem.stop)
        else:
            fit = turned(
                finish_decorrelated(problem.ascent, 1.0, problem.stop, problem.precision_factor), problem.vectors
            )
        fitted = [(own, float(np.sqrt(fit.variance))) for own in fit.posteriors]
    else:
        fitted = _one_against_rest(plan, labels, problem)
    total = float(problem.raw.weight.sum())
    residual = problem.mean_missing_variance
    return fitted_classifier(plan, labels, basis, fitted, residual, left_out, total, sharpness)


def fitted_classifier(
    plan: ClassificationPlan,
    labels: Labels,
    basis: Basis,
    fitted: Sequence[tuple[Any, float]],
    residual_variance: float,
    left_out: FloatArray,
    n_samples: float,
    sharpness: float = 1.0,
) -> FittedClassifier:
    """Return the model as data, its classes in ascending order."""
    order = np.argsort(labels.classes) if len(labels.intercept) > 1 else np.arange(1)
    return FittedClassifier(
        Latent.of(basis, [fitted[k] for k in order], residual_variance),
        np.sort(labels.classes),
        (labels.intercept + labels.moves)[order],
        labels.moves[order],
        plan.is_softmax and len(labels.classes) > 2,
        n_samples,
        left_out,
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
    """Fit to rows that pass by once for every step, from a sample of them on."""
    statistics, n_threads, posterior = total.gaussian(), resolve_n_threads(), plan.posterior
    residual = total.missing_variance(statistics.mean_square)
    prior = label_variance_prior(basis, statistics.mean_square)
    vectors = informative_directions(statistics, prior.centre)
    rotated = RowPasses(RotatedFeatures(basis, vectors), blocks, labels.intercept, n_threads)
    assert sample.weight is not None
    weight = sample.weight * (total.n_samples / sample.weight.sum())
    start = LabelledRows(rotated.features, sample.x, sample.y, weight, labels.intercept, "softmax", n_threads).held()
    if isinstance(posterior, Sequential):
        ascent = ascend_stream(rotated, start, prior, plan.max_iter, rotated.stop)
        rng = plan.generator()
        fit: LogisticFit[Any] = _drawn(plan, posterior, rotated, ascent, vectors, basis, labels, rng, rotated.stop)
    else:
        passed = fit_passes_decorrelated(
            rotated, start, prior_variance=1.0, variance_prior=prior, max_iter=plan.max_iter
        )
        fit = turned(passed, vectors)
    fitted = [(own, float(np.sqrt(fit.variance))) for own in fit.posteriors]
    return fitted_classifier(plan, labels, basis, fitted, residual, np.empty(0), total.n_samples)


# --- parts of stages


def turned(fit: LogisticFit[GaussianPosterior], vectors: FloatArray) -> LogisticFit[GaussianPosterior]:
    """Turn posteriors in rotated directions back to the weights of the features."""
    whole = Rotation(vectors @ fit.posteriors[0].vectors)  # the same for all functions
    return replace(fit, posteriors=[replace(posterior, rotation=whole) for posterior in fit.posteriors])


def _drawn(
    plan: ClassificationPlan,
    posterior: Sequential,
    source: DrawnRows,
    ascent: Ascent[FullGaussian],
    vectors: FloatArray,
    basis: Basis,
    labels: Labels,
    rng: np.random.Generator,
    stop: threading.Event,
) -> LogisticFit[SequentialPosterior]:
    """Draw weights on few levels, given the fit of continuous ones."""
    lattice = Lattice(
        as_prior(posterior.prior),
        posterior.n_levels,
        posterior.unit_levels,
        "own" if posterior.level_scales == "auto" else posterior.level_scales,
        getattr(basis.map, "pairs", None),
        posterior.n_draws,
    )
    seeds = [int(rng.integers(2**31)) for _ in labels.intercept]
    options: dict[str, Any] = {"n_threads": resolve_n_threads(), "stop": stop}
    return draw_at_rest(source, ascent, lattice, directions=vectors, random_states=seeds, **options)


def _one_against_rest(plan: ClassificationPlan, labels: Labels, problem: LabelProblem) -> list[tuple[Any, float]]:
    """Published bounds on the logistic likelihood, a problem of two classes for every function."""
    targets, stop, n_threads, posterior = problem.raw.t, problem.stop, problem.raw.n_threads, plan.posterior
    functions = range(targets.shape[1])
    n_workers = min(len(functions), n_threads)
    n_inner = n_threads if n_workers == 1 else 1
    discrete = isinstance(posterior, MeanField)
    raw = problem.raw.held() if discrete else problem.raw
    rotated, raw = replace(problem.rotated, n_threads=n_inner), replace(raw, n_threads=n_inner)
    published = "exponential" if plan.bound == "exponential" else None

    def decorrelated(k: int) -> LogisticFit[GaussianPosterior]:
        return fit_logistic_decorrelated(
            rotated.problem(targets[:, k], labels.intercept[k]),
            bound=None if discrete else published,
            variance_prior=problem.variance_prior,
            n_levels=LEVELS_OF_BOUNDS,
            max_iter=plan.max_iter,
            stop=stop,
        )

    def mean_field(k: int) -> LogisticFit[MeanFieldPosterior]:
        assert isinstance(posterior, MeanField)
        start = decorrelated(k)
        levels = shared_levels(posterior.levels, posterior.n_levels, raw.n_weights)
        rows = raw.problem(targets[:, k], labels.intercept[k])
        fit = fit_logistic(
            rows,
            levels * np.sqrt(start.variance),
            as_prior(posterior.prior).log_mass(levels),
            bound=plan.bound,
            start=state_of(rows, turned(start, problem.vectors)),
            optimizer=posterior.optimizer,
            max_iter=plan.max_iter,
            stop=stop,
        )
        return LogisticFit([fit.in_units_of(np.sqrt(start.variance))], start.variance)

    fits: list[LogisticFit[Any]]
    if discrete:
        fits = list(for_each(mean_field, functions, n_workers, stop))
    else:
        fits = [turned(fit, problem.vectors) for fit in for_each(decorrelated, functions, n_workers, stop)]
    return [(fit.posterior, float(np.sqrt(fit.variance))) for fit in fits]
