"""Labels left out of a fit and of the kernel's search: what chooses amplitude, precision, sharpness, sets and pools.

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
from pydirect._validation import FloatArray
from pydirect.estimators._classifier import GivenLabels
from pydirect.estimators.choices import Gaussian
from pydirect.estimators.classification import (
    ClassificationPlan,
    Labels,
    LabelSearch,
    ProblemMaker,
    add_landmarks,
    infer,
    read_labels,
)
from pydirect.estimators.effects import MOST_FUNCTIONS, better_fit, encoded_by_latents, small
from pydirect.features.basis import Basis
from pydirect.features.fitting import fit_basis
from pydirect.features.maps import NystroemFeatures
from pydirect.features.rows import TrainingRows
from pydirect.fitted.classification import FittedClassifier, normalised, quantiles_of
from pydirect.logistic.likelihood import class_numbers, predictive_log_odds, softmax_log_probability
from pydirect.logistic.pool import log_probability_of, sharpness_of
from pydirect.logistic.problem import LatentProblem
from pydirect.logistic.rows import FACTORS, LabelledRows
from pydirect.tables.encoding import ColumnEncoding

# Shares of all rows, and of those of every class, that the search must not have seen to be scored alone.
UNSEEN_SHARE, UNSEEN_SHARE_OF_CLASS = 0.5, 0.2
# Rows from which kernels are learned from halves, and nats of all labels for each input from which they need not be.
LEAST_ROWS, SURE = 20, 50.0
# Factors of the kernel's amplitude that are tried in turn on up to so many rows, and labels of functions, and what each
# must gain, in standard errors of the mean log probability of left-out labels.
AMPLITUDES = (4.0, 16.0)
MOST_ROWS, MOST_LABELS = 2000, 50_000
STANDARD_ERRORS = 2.5
# The same of the power of probabilities of two classes.
STANDARD_ERRORS_OF_SHARPNESS = 2.0


@dataclass(frozen=True)
class LabelsLeftOut:
    """Fits of all rows, each with weights (n_rows,) of those that its kernel has not seen, zero of all others.

    These sum up to the weights of all rows for every class: the search of a kernel sees more of rare ones.
    Probabilities of classes are taken to the power of `sharpness`.
    """

    views: tuple[tuple[LatentProblem, FloatArray], ...]
    sharpness: float = 1.0

    @classmethod
    def of(
        cls,
        maker: ProblemMaker,
        problem: LatentProblem,
        basis: Basis,
        search: LabelSearch,
        max_iter: int,
        rng: np.random.Generator,
    ) -> LabelsLeftOut:
        """Return the rows that the search did not see, or fits by kernels of both halves."""
        weight, index = problem.raw.weight, class_numbers(maker.rows.y)
        if search.rows is None or basis.map.residual_kernel is None or len(index) < LEAST_ROWS:
            return cls(((problem, weight),))
        unseen, places = weight.copy(), maker.rows.distinct[0]
        unseen[places[search.seen]] = 0.0
        left, total = np.bincount(index, unseen), np.bincount(index, weight)
        if unseen.sum() >= UNSEEN_SHARE * weight.sum() and (left >= UNSEEN_SHARE_OF_CLASS * total).all():
            return cls(((problem, unseen * (total / left)[index]),))
        share = total / total.sum()
        if -weight.sum() * float(share @ np.log(share)) > SURE * search.rows.x.shape[1]:
            return cls(((problem, weight),))
        landmarks, views = basis.map.landmarks, []
        for half in halves(index, rng):
            kernel = search.among(np.flatnonzero(half[places]), rng)
            with_own = replace(basis, map=NystroemFeatures.at(landmarks, kernel), hyperparameters=kernel)
            fitted = replace(maker.of(with_own), stop=problem.stop).at_rest(max_iter, problem)
            views.append((fitted, np.where(half, 0.0, weight)))
        return cls(tuple(views))

    def amplified(self, amplitude: float, max_iter: int) -> LabelsLeftOut:
        """Return the fits with another amplitude."""
        return LabelsLeftOut(tuple((own.amplified(amplitude, max_iter), weight) for own, weight in self.views))

    @cached_property
    def weight(self) -> FloatArray:
        """Weights of rows that are scored, (n_rows,), zero of all others."""
        return np.asarray(np.sum([weight for _, weight in self.views], axis=0))

    @cached_property
    def scored(self) -> NDArray[np.bool_]:
        """Rows that are scored, (n_rows,)."""
        return self.weight > 0

    @cached_property
    def place(self) -> int:
        """Which factor of the precision of several classes makes left-out labels likeliest."""
        gains = [own.left_out.log_probability @ weight for own, weight in self.views]
        return int(np.argmax(np.sum(gains, axis=0)))

    def is_better(self, other: LabelsLeftOut) -> bool:
        """Whether labels are likelier than to other fits of the same rows, by several standard errors."""
        gains = [
            (own.left_out.log_probability[self.place] - known.left_out.log_probability[other.place])[weight > 0]
            for (own, weight), (known, _) in zip(self.views, other.views, strict=True)
        ]
        weights = np.concatenate([weight[weight > 0] for _, weight in self.views])
        return is_sure(np.concatenate(gains), weights, STANDARD_ERRORS)

    def classes(self) -> FloatArray:
        """Log probabilities of all classes, (n_rows, n_classes); NaN of rows that are not scored."""
        n, n_functions = self.views[0][0].raw.t.shape
        found = np.full((n, max(n_functions, 2)), np.nan)
        for own, weight in self.views:
            rows, left = weight > 0, own.left_out
            mean, variance = left.mean[rows], np.ascontiguousarray(left.variance[rows, self.place])
            if n_functions == 1:
                log_p = log_probability_of(predictive_log_odds(mean, variance[:, None]))
            else:
                log_p = softmax_log_probability(mean, variance)
            found[rows] = log_p if self.sharpness == 1 else normalised(self.sharpness * log_p)
        return found

    def sharpened(self, index: NDArray[np.intp]) -> LabelsLeftOut:
        """Return the same with the power that makes labels, `index` by number, likelier; of two classes surely."""
        log_p, labels, weight = self.classes()[self.scored], index[self.scored], self.weight[self.scored]
        power = sharpness_of(log_p, labels, weight)
        gain = (normalised(power * log_p) - log_p)[np.arange(len(labels)), labels]
        is_chosen = log_p.shape[1] > 2 or is_sure(gain, weight, STANDARD_ERRORS_OF_SHARPNESS)
        return replace(self, sharpness=power) if is_chosen else self


def is_sure(gain: FloatArray, weight: FloatArray, n_errors: float) -> bool:
    """Whether the mean of gains (n,) is above zero by several of its standard errors."""
    mean = float(weight @ gain / weight.sum())
    variance = float(weight @ (gain - mean) ** 2 / weight.sum())
    return mean > n_errors * np.sqrt(variance / len(gain))


@dataclass(frozen=True)
class LabelsFit:
    """A fit of all rows: encoding, what was read of them, the model, and labels left out, where they were scored."""

    columns: ColumnEncoding
    labels: Labels
    rows: TrainingRows
    rng: np.random.Generator  # for what is fitted beside it
    model: FittedClassifier
    left: LabelsLeftOut | None

    @cached_property
    def log_loss(self) -> float:
        """Mean −log probability of labels that are left out."""
        assert self.left is not None
        scored, index = self.left.scored, class_numbers(self.rows.y)
        log_p = self.left.classes()[np.arange(len(index)), index]
        return -float(np.average(log_p[scored], weights=self.left.weight[scored]))


def fit_given(
    plan: ClassificationPlan, given: GivenLabels, progress: Progress, *, moves_odds: bool = True
) -> LabelsFit:
    """Fit with categories as columns of 0 and 1 and, where many have effects, with these; left-out labels choose.

    Without `moves_odds` class weights are in the labels' `log_factors` alone.
    """

    def fit(columns: ColumnEncoding, x: FloatArray) -> LabelsFit:
        rng, (labels, rows) = plan.generator(), read_labels(plan, columns, x, given.y, given.weight)
        taken = plan if moves_odds else replace(plan, class_weight=None)
        own = labels if moves_odds else replace(labels, log_factors=np.empty(0))
        return LabelsFit(columns, labels, rows, rng, *fit_labels(taken, own, rows, columns, rng, progress))

    def rows_of(x: FloatArray) -> LabelledRows:
        rows = TrainingRows(x, labels.signs(np.asarray(order)[index] if len(order) > 1 else index), given.weight)
        features, rng = small(plan.features), plan.generator()
        with progress.stage("features"):
            search = LabelSearch(replace(plan, features=features))
            basis = fit_basis(features, rows, given.columns, search, rng)
        return labels.rows_of(basis.map, basis.inputs(x), rows)

    first = fit(given.columns, given.x)
    labels, (classes, index) = first.labels, np.unique(given.y, return_inverse=True)
    order = np.argsort(labels.classes).tolist() if len(classes) > 2 else [0]
    known = len(classes) == len(labels.classes)  # class weights of zero leave none out
    if not (given.with_effects and known) or first.left is None or len(order) > MOST_FUNCTIONS:
        return first
    own = given.columns, given.table, given.x, index[:, None].astype(np.float64)

    def second() -> LabelsFit | None:
        with_effects = encoded_by_latents(*own, rows_of, order)
        return fit(*with_effects) if with_effects else None

    return better_fit(first, first.model.posteriors, second, lambda found: found.log_loss)


def fit_labels(
    plan: ClassificationPlan,
    labels: Labels,
    rows: TrainingRows,
    columns: ColumnEncoding,
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[FittedClassifier, LabelsLeftOut | None]:
    """The stages of a fit to labelled rows: kernel, landmarks, amplitude, more landmarks, sharpness, weights."""
    search, names = LabelSearch(plan), columns.names and tuple(columns.names_out)
    with progress.stage("features"):
        basis = fit_basis(plan.features, rows, columns, search, rng, names=names)
    maker, is_gaussian = ProblemMaker(rows, labels, progress), isinstance(plan.posterior, Gaussian)
    left: LabelsLeftOut | None = None

    def settle(problem: LatentProblem, basis: Basis) -> LatentProblem:
        nonlocal left
        if problem.stop.is_set():
            return problem
        try:
            with progress.stage("left out"):
                left = LabelsLeftOut.of(maker, problem, basis, search, plan.max_iter, rng)
                if is_gaussian and len(rows.x) <= MOST_ROWS and rows.y.size <= MOST_LABELS:
                    problem, left = best_amplitude(problem, left, plan.max_iter)
        except KeyboardInterrupt:
            problem.stop.set()  # the fit stands, flagged
        return problem

    if not plan.is_softmax:
        problem = maker.of(basis)
    else:
        problem, basis = add_landmarks(maker, basis, plan.features, rng, plan.max_iter, settle)
    sets, sharpness = None, 1.0
    if left is not None:
        index = class_numbers(rows.y)
        if len(left.views) == 1:  # which may have more landmarks by now
            left = LabelsLeftOut(((problem, left.weight),))
        if is_gaussian:
            problem, left = replace(problem, precision_factor=FACTORS[left.place]), left.sharpened(index)
        sharpness = left.sharpness
        if plan.class_weight is None:  # sets are of no use where class weights move the odds
            of_labels = left.classes()[np.arange(len(index)), index]
            sets = quantiles_of(of_labels[left.scored], left.weight[left.scored])
    with progress.stage("inference"):
        return infer(plan, labels, problem, basis, rng, left_out=sets, sharpness=sharpness), left


def best_amplitude(problem: LatentProblem, left: LabelsLeftOut, max_iter: int) -> tuple[LatentProblem, LabelsLeftOut]:
    """Return the fit, and the rows left out, with the largest amplitude that makes left-out labels surely likelier."""
    best = left
    for amplitude in AMPLITUDES:
        if problem.stop.is_set() or not (tried := best.amplified(amplitude, max_iter)).is_better(best):
            break
        best = tried
    if best is left:
        return problem, left
    found, *others = (own for own, _ in best.views)
    return problem.amplified(found.amplitude, max_iter) if others else found, best


def halves(index: NDArray[np.intp], rng: np.random.Generator) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Two halves of the rows with equal shares of every class, `index` by number, whatever their order."""
    order = rng.permutation(len(index))
    first = np.zeros(len(index), dtype=bool)
    for k in np.unique(index):
        first[order[index[order] == k][::2]] = True
    first[order[np.bincount(index)[index[order]] == 1][1::2]] = False  # classes of one row take turns
    return first, ~first
