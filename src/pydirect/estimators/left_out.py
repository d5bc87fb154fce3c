"""Labels left out of a fit and of the kernel's search: what chooses amplitude, sharpness, sets and weights of pools.

Leave-one-out at a kernel that has seen the labels is too good in small tables. Rows that the search did not see have no
such advantage; where it has seen most of them, a kernel is learned from each half of the rows, all rows are fitted with
it, and those of the other half are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.estimators.choices import Gaussian
from pydirect.estimators.classification import (
    ClassificationPlan,
    Labels,
    LabelSearch,
    ProblemMaker,
    add_landmarks,
    infer,
    label_variance_prior,
    labelled_rows,
)
from pydirect.features.basis import Basis
from pydirect.features.fitting import FeaturePlan, fit_basis
from pydirect.features.maps import NystroemFeatures
from pydirect.features.rows import TrainingRows
from pydirect.fitted.classification import FittedClassifier, quantiles_of
from pydirect.logistic.likelihood import label_log_probability, predictive_log_odds, softmax_log_probability
from pydirect.logistic.pool import log_probability_of
from pydirect.logistic.problem import LabelProblem
from pydirect.logistic.rows import FACTORS
from pydirect.tables.encoding import ColumnEncoding

# Shares of all rows, and of those of every class, that the search must not have seen to be scored alone.
UNSEEN_SHARE, UNSEEN_SHARE_OF_CLASS = 0.5, 0.2
# Rows from which kernels are learned from halves.
LEAST_ROWS = 20
# Factors of the prior variance that are tried in turn on up to so many rows, and the share of the left-out log loss
# that they must save.
AMPLITUDES = (4.0, 16.0)
MOST_ROWS = 1000
WORTH_AMPLITUDE = 0.05


@dataclass(frozen=True)
class View:
    """A fit of all rows, and the weights (n_rows,) of those that its kernel has not seen, zero of all others."""

    problem: LabelProblem
    weight: FloatArray

    @cached_property
    def scored(self) -> NDArray[np.bool_]:
        """Rows that are scored, (n_rows,)."""
        return self.weight > 0

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means of the logits of scored rows, each left out, and variances for each factor of the precision."""
        assert self.problem.ascent is not None
        rows, solution = self.problem.rotated, self.problem.ascent.best.solution
        mean, variance = rows.left_out_moments(solution.latent)
        if mean.shape[1] == 1:
            return mean[self.scored], variance[self.scored, None]
        sharp = rows.sharpened_variances(solution.state, FACTORS)[self.scored]
        relative = sharp / np.maximum(sharp[:, :1], np.finfo(float).tiny)
        return mean[self.scored], variance[self.scored, None] * relative

    @cached_property
    def labels(self) -> list[FloatArray]:
        """Log probabilities of the labels of scored rows for each factor of the precision."""
        (mean, variance), t = self.moments, self.problem.raw.t[self.scored]
        return [label_log_probability(t, mean, np.ascontiguousarray(own)) for own in variance.T]


@dataclass(frozen=True)
class LabelsLeftOut:
    """Fits of all rows, each with rows that its kernel has not seen, and which factor of the precision is taken.

    Weights of scored rows sum up to those of all rows for every class: the search of a kernel sees more of rare ones.
    """

    views: tuple[View, ...]
    place: int = 0

    @classmethod
    def of(
        cls,
        maker: ProblemMaker,
        problem: LabelProblem,
        basis: Basis,
        search: LabelSearch,
        features: FeaturePlan,
        max_iter: int,
        rng: np.random.Generator,
    ) -> LabelsLeftOut:
        """Return the rows that the search did not see, or fits by kernels of both halves."""
        weight, index = problem.raw.weight, class_numbers(maker.rows.y)
        if (
            not features.learns_kernel
            or not isinstance(basis.map, NystroemFeatures)
            or search.rows is None
            or len(index) < LEAST_ROWS
        ):
            return cls((View(problem, weight),))
        unseen, places = weight.copy(), maker.rows.distinct[0]
        unseen[places[search.seen]] = 0.0
        left, total = np.bincount(index, unseen), np.bincount(index, weight)
        if unseen.sum() >= UNSEEN_SHARE * weight.sum() and (left >= UNSEEN_SHARE_OF_CLASS * total).all():
            return cls((View(problem, unseen * (total / left)[index]),))
        landmarks, views = basis.map.landmarks, []
        for half in halves(maker.rows.y, rng):
            kernel = search.among(np.flatnonzero(half[places]), rng)
            with_own = replace(basis, map=NystroemFeatures.at(landmarks, kernel), hyperparameters=kernel)
            fitted = replace(maker.of(with_own), stop=problem.stop).at_rest(max_iter, problem)
            views.append(View(fitted, np.where(half, 0.0, weight)))
        return cls(tuple(views))

    def amplified(self, factor: float, max_iter: int) -> LabelsLeftOut:
        """Return the fits with another prior variance."""
        return LabelsLeftOut(tuple(View(own.problem.amplified(factor, max_iter), own.weight) for own in self.views))

    def sharpened(self) -> LabelsLeftOut:
        """Return the same with the precision of several classes for which left-out labels are likeliest."""
        places = range(len(self.views[0].labels))
        return replace(self, place=min(places, key=lambda place: replace(self, place=place).log_loss))

    @property
    def factor(self) -> float:
        """What the precision is multiplied by."""
        return FACTORS[self.place]

    @cached_property
    def weight(self) -> FloatArray:
        """Weights of rows that are scored, (n_rows,), zero of all others."""
        return np.asarray(np.sum([own.weight for own in self.views], axis=0))

    @cached_property
    def log_loss(self) -> float:
        """Mean −log probability of left-out labels."""
        return -sum(float(own.weight[own.scored] @ own.labels[self.place]) for own in self.views) / self.weight.sum()

    def quantiles(self) -> FloatArray:
        """Quantiles of the probabilities of left-out labels."""
        weight = np.concatenate([own.weight[own.scored] for own in self.views])
        return quantiles_of(np.concatenate([own.labels[self.place] for own in self.views]), weight)

    def classes(self) -> FloatArray:
        """Log probabilities of all classes, (n_rows, n_classes); NaN of rows that are not scored."""
        n, n_functions = self.views[0].problem.raw.t.shape
        found = np.full((n, max(n_functions, 2)), np.nan)
        for own in self.views:
            mean, variance = own.moments[0], np.ascontiguousarray(own.moments[1][:, self.place])
            if n_functions == 1:
                found[own.scored] = log_probability_of(predictive_log_odds(mean, variance[:, None]))
            else:
                found[own.scored] = softmax_log_probability(mean, variance)
        return found


def fit_labels(
    plan: ClassificationPlan,
    labels: Labels,
    rows: TrainingRows,
    columns: ColumnEncoding,
    names: tuple[str, ...] | None,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[FittedClassifier, LabelsLeftOut | None]:
    """The stages of a fit to labelled rows: kernel, landmarks, amplitude and sharpness, weights."""
    search = LabelSearch(plan.features.max_search_rows)
    with progress.stage("features"):
        basis = fit_basis(plan.features, rows, columns, search, rng, resolve_n_threads(), names=names)
    maker, left = ProblemMaker(rows, labelled_rows(labels), label_variance_prior, LabelProblem, progress), None
    if not plan.is_softmax:
        problem = maker.of(basis)
    else:
        problem, basis = add_landmarks(maker, basis, plan.features, rng, plan.max_iter)
        if not problem.stop.is_set():
            try:
                with progress.stage("left out"):
                    left = LabelsLeftOut.of(maker, problem, basis, search, plan.features, plan.max_iter, rng)
                    if isinstance(plan.posterior, Gaussian):
                        problem, left = best_amplitude(problem, left, plan.max_iter)
            except KeyboardInterrupt:
                problem.stop.set()  # the fit stands, flagged
    sets = np.empty(0)  # of no use where class weights move the odds
    if left is not None and plan.class_weight is None:
        sets = left.quantiles()
    with progress.stage("inference"):
        return infer(plan, labels, problem, basis, sets, rng), left


def best_amplitude(problem: LabelProblem, left: LabelsLeftOut, max_iter: int) -> tuple[LabelProblem, LabelsLeftOut]:
    """Return the fit, and the rows left out, with the prior variance for which left-out labels are likeliest.

    Where rows are many the kernel's own amplitude serves.
    """
    first, best, found = left.sharpened(), left.sharpened(), 1.0
    for amplitude in AMPLITUDES if len(left.weight) <= MOST_ROWS else ():
        if problem.stop.is_set():
            break
        tried = left.amplified(amplitude, max_iter).sharpened()
        if tried.log_loss >= best.log_loss:
            break
        best, found = tried, amplitude
    if best.log_loss > (1 - WORTH_AMPLITUDE) * first.log_loss:
        return replace(problem, precision_factor=first.factor), first
    whole = best.views[0].problem if len(best.views) == 1 else problem.amplified(found, max_iter)
    return replace(whole, precision_factor=best.factor), best


def halves(y: FloatArray, rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Two halves of the rows with equal shares of every class, whatever their order; `y`, (n_rows, n_functions): ±1."""
    index, order = class_numbers(y), rng.permutation(len(y))
    first = np.zeros(len(y), dtype=bool)
    for k in np.unique(index):
        first[order[index[order] == k][::2]] = True
    return first, ~first


def class_numbers(y: FloatArray) -> NDArray[np.intp]:
    """The class of every row, (n_rows,), of labels ±1 of the functions."""
    return y.argmax(axis=1) if y.shape[1] > 1 else (y[:, 0] > 0).astype(np.intp)
