"""A fit of regression, stage by stage: units, features, sums, weights, noise, local process.

`DirectRegressor.fit` shows the list. Sums over rows enter it at `given_sums`; several models of one feature map go
through it together, at `fit_together`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect._warnings import ignored
from pydirect.direct.empirical_bayes import RawPolicy, draw_by_evidence
from pydirect.distributions.categorical import shared_levels
from pydirect.distributions.priors import GaussianPrior, MixturePrior, MixturePriorTable, as_prior
from pydirect.estimators.choices import Gaussian, MeanField, RegressionPlan, Sequential, lattice_of, may_be_local
from pydirect.estimators.effects import (
    LARGEST_RATIO,
    Learned,
    columns_with_many,
    intercepts,
    learned,
    same_rows,
    with_effects,
)
from pydirect.estimators.target_transform import (
    AS_IT_IS,
    FEW_ROWS,
    IDENTITY,
    LEAST_GAIN,
    MAX_FEATURES,
    MAX_SEARCH_ROWS,
    OfMean,
    OnScale,
    ScaleChoice,
    candidates,
    chosen_rows,
    copied,
    favoured,
    given_transform,
    on_scales,
    promising,
    with_means,
)
from pydirect.features.basis import Basis
from pydirect.features.fitting import FeaturePlan, KernelSearch, choose_landmarks, fit_basis
from pydirect.features.maps import NystroemFeatures
from pydirect.features.rows import TrainingRows
from pydirect.features.search import search_kernel
from pydirect.fitted.mixed import EffectColumns, FittedMixed
from pydirect.fitted.predictor import Units
from pydirect.fitted.regression import FittedRegressor, Latent, LeftOut, left_out, relative_precisions
from pydirect.linear.fit import InitialHyperparameters, fit_by_evidence
from pydirect.linear.leave_one_out import expected_noise
from pydirect.linear.random_effects import GroupSums, fit_random_effects, in_columns
from pydirect.noise.fit import LEAST_PRECISION, NoiseProblem, choose_noise, fit_varying_noise, is_gain, looks_constant
from pydirect.noise.local import fit_local, noise_may_replace
from pydirect.noise.model import CONSTANT, MIN_ROWS_TO_CHOOSE
from pydirect.noise.student_t import fit_student_t, gross_targets, warn_of_gross, within_reach
from pydirect.predictive.scales import TargetScale
from pydirect.predictive.transformed import TargetTransform
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics, sums_are_of_kernel
from pydirect.statistics.rotated import RotatedStatistics, Standardised, decorrelate
from pydirect.statistics.running import RunningStatistics
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table, equal_rows

LARGEST_NOISE = 1e300  # in units of the targets' variance; its inverse is the smallest
LEAST_GAIN_OF_STUDENT_T = 0.1  # nats a row, where a few targets are gross
EXPECTED = 4.0  # deviations of residuals on another scale that make nothing gross there
# Landmarks at first. They are enough where what they miss is below the first share of the noise, and not above the
# second; in between where twice as many as half of them gain no more nats a row on left-out rows.
FIRST_LANDMARKS, COVERED, COARSE, WORTH_ADDING = 512, 0.01, 0.5, 0.01
MAX_LEFT_OUT = 2000
# Nats a row on left-out rows by which an encoding is clearly behind another: other noise gains hardly more.
BEHIND = 0.05
# Small fits that weigh rows with gaps, and the share of the noise of one that is enough for the last.
MOST_WEIGHINGS, LITTLE_LESS = 8, 0.5

Fitted = list[tuple[Any, float]]
# z, and by the names of factors labels of groups and the group of each row
Groups = tuple[EffectColumns, dict[Any, tuple[NDArray[Any], NDArray[np.intp]]]]
Beside = tuple[Basis, InitialHyperparameters]  # of f beside effects


# --- what stages hand on


@dataclass(frozen=True)
class GivenRows:
    """Encoded rows x (n_rows, n_encoded) and targets y (n_rows, n_outputs), as they were given.

    `absent`: where numbers were missing, as of `encode_and_mark`; without it, what was filled in counts as known.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray | None
    one_dimensional: bool
    columns: ColumnEncoding
    absent: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Sums:
    """Sums over rows of standardised targets for one feature map, and the rows where they are known.

    ``rotated`` are the same for Gaussian weights; ``shared`` is what models of the same rows have in common, and
    ``fitted`` what `fit_weights` makes of them, each row counting once, where it is known.
    """

    basis: Basis
    statistics: GaussianStatistics
    rotated: RotatedStatistics | None
    residual_variance: float
    repetitions: float
    rows: TrainingRows | None = None
    shared: dict[Hashable, Any] | None = None
    fitted: Fitted | None = None

    def of_outputs(self, chosen: slice, rows: TrainingRows) -> Sums:
        """Return the sums of one of several models."""
        rotated = None if self.rotated is None else self.rotated.outputs(chosen)
        fitted = None if self.fitted is None else self.fitted[chosen]
        statistics, repetitions = self.statistics.outputs(chosen), rows.counts.repetitions
        return replace(self, statistics=statistics, rotated=rotated, repetitions=repetitions, rows=rows, fitted=fitted)

    def divided(self, repetitions: float) -> Sums:
        """Return the sums where repetitions of rows count once, as they say nothing of the noise."""
        if repetitions == 1.0:
            return self
        rotated = None if self.rotated is None else self.rotated.divided(repetitions)
        rows = None if self.rows is None else self.rows.divided(repetitions)
        return replace(self, statistics=self.statistics.divided(repetitions), rotated=rotated, rows=rows)


# A model, its sums, and its seconds by stage
Finished = tuple[FittedRegressor, Sums, dict[str, float]]
# Models of one encoding of the table after stage 2: plans, units and rows of each, their sums for the first landmarks,
# and generators for more of these and for inference
Start = tuple[
    Sequence[RegressionPlan], Sequence[Units], Sequence[TrainingRows], Sums, np.random.Generator, np.random.Generator
]


# --- stages


def merged(given: Sequence[GivenRows]) -> list[GivenRows]:
    """Merge rows that are equal in X and in all models' targets: a weight of two is a row given twice."""
    lead = given[0]
    together = TrainingRows(lead.x, np.hstack([own.y for own in given]), lead.weight)
    if together.is_plain:
        return list(given)
    index, total = together.distinct
    x, absent = lead.x[index], None if lead.absent is None else lead.absent[index]
    return [replace(own, x=x, y=own.y[index], weight=total, absent=absent) for own in given]


def encoded_by_effects(plan: RegressionPlan, given: GivenRows, table: Table) -> list[GivenRows]:
    """Before stage 1: rows with the effects, on one target, of categories of columns that have many; none without any.

    A row is given what other rows tell of the effect of its category, as new rows are.
    """
    found = learned_effects(plan, given, table)
    if not found:
        return []
    columns, x, absent = with_effects(given.columns, found, table, given.weight)
    return merged([replace(given, x=x, columns=columns, absent=absent)])


def learned_effects(plan: RegressionPlan, given: GivenRows, table: Table) -> list[Learned]:
    """Learn effects of categories, one column after the other, beside a function of the columns that have few."""
    columns, texts = given.columns, columns_with_many(given.columns, table)
    if not texts or given.y.shape[1] > 1 or not (plan.is_gaussian and plan.features.takes_tables):
        return []
    units, rng = fit_units(plan, given)[1], plan.generators()[0]
    rows = replace(units.divided(units.counts.repetitions), x=given.x * ~np.isin(columns.origins, [*texts]))
    features = replace(plan.features, n_functions=min(plan.features.n_functions, MAX_FEATURES))
    constant = EffectColumns.of(rows.x, np.arange(0), rows.weights)
    groups: list[Groups] = [(constant, {0: np.unique(text.codes, return_inverse=True)}) for text in texts.values()]
    bases = bases_beside(features, rows, columns, groups, rng, thorough=False)
    same, found = same_rows(given.x, [*texts.values()], given.y), list[Learned]()
    for (j, text), own_groups in zip(texts.items(), groups, strict=True):
        fitted, group = likeliest(bases, rows, own_groups), own_groups[1][0][1]
        ratio = float(fitted.effects.ratio[0])
        if ratio > LARGEST_RATIO:
            continue
        left = rows.y[:, 0] - fitted.predict(rows.x, np.full(len(group), -1))[0]
        whole, others = intercepts(left, rows.weights, group, same, fitted.noise, ratio)
        found.append(learned(j, text, rows.weights, whole, others))
        rows = replace(rows, y=rows.y - others[:, :1])
    return found


def log_density_left_out(model: FittedRegressor, sums: Sums) -> float:
    """Return the mean log density of rows, on y's scale, that a model of one target predicts without themselves."""
    assert sums.rows is not None
    rows = sums.rows
    (left,) = left_out([model], rows, sums.rotated if model.basis is sums.basis else None)
    densities, noise = left.log_density(rows.y[left.first])[:, 0] - np.log(model.units.scale[0]), model.noise
    density = float(np.average(densities, weights=left.count))
    if noise is None:
        return density + (0.0 if model.local is None or model.local_gain is None else float(model.local_gain))
    # Of the gain of other noise half counts, as its own rows have shown it, and as it is of those that tell of noise.
    tells = rows.precisions[left.first] >= LEAST_PRECISION
    others = density - float(np.average(densities[tells], weights=left.count[tells]))
    chosen, constant = (noise.log_densities[noise.candidates.index(name), 0] for name in (noise.choices[0], CONSTANT))
    return float(0.5 * (chosen + constant)) + others


def likeliest(bases: Sequence[Beside], rows: TrainingRows, groups: Groups) -> FittedMixed:
    """Fit f and effects of groups by the basis of largest evidence."""
    return max((fit_effects(*own, rows, groups) for own in bases), key=lambda fit: fit.posteriors[0].elbo)


def bases_beside(
    features: FeaturePlan,
    rows: TrainingRows,
    columns: ColumnEncoding,
    groups: Sequence[Groups],
    rng: np.random.Generator,
    *,
    thorough: bool,
) -> list[Beside]:
    """Learn kernels of f beside effects: on what these leave of y beside a linear function, and on y itself.

    The former lacks all that varies between groups, which is searched for on few rows unless `thorough`.
    """
    search: KernelSearch = partial(search_kernel, max_rows=features.max_search_rows)
    searched, bases = [(rows.y, search if thorough else small_search(features))], list[Beside]()
    names = None if columns.names is None else tuple(columns.names_out)
    if features.learns_kernel:
        linear, rest = fit_basis(FeaturePlan("linear"), rows, columns, search, rng), rows
        for z, factors in groups:
            found = fit_effects(linear, InitialHyperparameters(0.1), rest, (z, factors)).effects_of_groups()
            for (mean, _), (_, group) in zip(found, factors.values(), strict=True):
                own = slice(mean.shape[1])  # only the first factor has slopes
                effects = z.at(rows.x)[:, own] * (mean * z.unit[own])[group]
                rest = replace(rest, y=rest.y - effects.sum(axis=1, keepdims=True))
        searched.insert(0, (rest.y, search))
    for y, by in searched:
        square = float(np.average(y[:, 0] ** 2, weights=rows.weight)) or 1.0
        basis = fit_basis(features, replace(rows, y=y / np.sqrt(square)), columns, by, rng, names=names)
        noise = 0.1 if basis.kernel is None else basis.kernel.noise_variance * square
        bases.append((basis, InitialHyperparameters(noise, None if basis.search is None else square)))
    return bases


def fit_effects(basis: Basis, initial: InitialHyperparameters, rows: TrainingRows, groups: Groups) -> FittedMixed:
    """Fit f of a basis and effects of groups to standardised targets."""
    inputs, (columns, factors) = basis.inputs(rows.x), groups
    labels, number = zip(*factors.values(), strict=True)
    sizes, z = [len(own) for own in labels], columns.at(rows.x)
    levels = in_columns(np.stack(number, axis=1)[:, 1:] + np.cumsum([0, *sizes[1:]])[:-1], sum(sizes[1:]))
    sums = GroupSums.collect(basis.map, inputs, rows.y[:, 0], z, number[0], sizes[0], rows.weight, levels)
    posterior, scale, effects, evidence = fit_random_effects(sums, initial, sizes[1:])
    assert posterior.outcome is not None and posterior.noise is not None
    known, noise = replace(posterior, outcome=posterior.outcome.at(evidence)), float(posterior.noise.levels[0])
    residual = basis.mean_missing_variance(inputs, rows.weight, sums.mean_square)
    latent = Latent.of(basis, [(known, scale)], residual)
    return FittedMixed(latent, 0.0, 1.0, tuple(factors), labels, columns, effects, noise, sums.n_samples)


def gross_rows(plan: RegressionPlan, y: FloatArray) -> NDArray[np.intp]:
    """Rows of a few gross targets (n_rows, n_outputs) for which Student-t noise may be tried; none elsewhere."""
    if plan.noise == "auto" and plan.local in (None, "auto") and y.shape[1] == 1:
        far, share = gross_targets(y)
        if share[0]:
            return np.flatnonzero(far)
    return np.empty(0, np.intp)


def choose_scale(plan: RegressionPlan, given: GivenRows) -> ScaleChoice | None:
    """Before stage 1: the targets' scales, by models small enough to try several, of which each is an output.

    Few rows learn a kernel of y itself first, which is then that of the fit unless another scale promises more. Where a
    few targets are gross, y itself with Student-t noise may be likelier than any scale.
    """
    noises = ("auto", "constant", "varying")
    if plan.transform not in ("auto", None) or not plan.is_gaussian or plan.noise not in noises:
        return None
    gross = gross_rows(plan, given.y)
    chosen = np.union1d(chosen_rows(plan.random_state, len(given.x), given.weight), gross)
    y, weight = given.y[chosen], None if given.weight is None else given.weight[chosen]
    tried = [
        [scale for scale in candidates(own) if scale.allows(all_of_it) and plan.transform == "auto"]
        for own, all_of_it in zip(y.T, given.y.T, strict=True)
    ]
    if not any(tried) and not len(gross):
        return None
    small, features = _SmallFit(plan, given, TrainingRows(given.x[chosen], y, weight)), plan.features
    few = features.kind == "nystroem" and features.learns_kernel and len(given.x) <= FEW_ROWS and len(tried) == 1
    found = [small.chosen(own, scales, few) for own, scales in zip(y.T, tried, strict=True)]
    scales, gains, of_means, bases = zip(*found, strict=True)
    if len(gross) and small.gain_of_student_t(y[:, 0], scales[0]) > LEAST_GAIN_OF_STUDENT_T:
        effect = "noise is taken as Student-t's, which they hardly move"
        warn_of_gross(given.y, "use noise='constant' if they are to count in full", effect)
        return ScaleChoice(None, noise="student_t")
    if all(scale is IDENTITY for scale in scales):
        return ScaleChoice(None, basis=bases[0]) if few else None
    spread, factor = np.array(of_means).T
    return ScaleChoice(TargetTransform(scales), np.array(gains), spread, factor, bases[0])


# A scale on which a fit of few landmarks predicts all rows without themselves, its feature map, and that of the whole
# fit where it has been learned.
_Tried = tuple[OnScale, Basis, Basis | None]


def small_search(features: FeaturePlan) -> KernelSearch:
    """Return a search of a kernel on few rows."""
    return partial(search_kernel, max_rows=min(features.max_search_rows, MAX_SEARCH_ROWS), thorough=False)


@dataclass(frozen=True)
class _SmallFit:
    """Fits of few landmarks to some of the rows that are given, with targets on several scales at once."""

    plan: RegressionPlan
    given: GivenRows
    rows: TrainingRows

    @property
    def features(self) -> FeaturePlan:
        """Features of small models."""
        own = self.plan.features
        n_functions, rows = min(own.n_functions, MAX_FEATURES), min(own.max_search_rows, MAX_SEARCH_ROWS)
        return replace(own, n_functions=n_functions, max_search_rows=rows)

    @property
    def rng(self) -> np.random.Generator:
        """The generator of every fit, always in the same state."""
        return replace(self.plan, random_state=copied(self.plan.random_state)).generators()[0]

    def kernel_of_all(self, y: FloatArray, scales: Sequence[TargetScale]) -> Basis:
        """Learn one kernel from few rows of an output's targets on several scales."""
        rows = replace(self.rows, y=Units.fit(on_scales(y, scales), self.rows.weight, False)[1])
        return fit_basis(self.features, rows, self.given.columns, small_search(self.features), self.rng)

    def kernel_of_scale(self, scale: TargetScale) -> tuple[Basis, Basis]:
        """Learn the feature map that a fit on a scale would have, and return it with one of fewer landmarks."""
        rng, plan = self.rng, replace(self.plan, transform=scale)
        basis = fit_features(plan, self.given, *fit_units(plan, self.given), rng)
        if basis.hyperparameters is None:  # no column is of use
            return basis, basis
        inputs = basis.inputs(self.rows.x)
        landmarks = choose_landmarks(inputs, self.rows, rng, self.features.n_functions)
        return basis, replace(basis, map=NystroemFeatures.at(landmarks, basis.hyperparameters))

    def alike(self, rows: TrainingRows) -> tuple[FittedRegressor, LeftOut]:
        """Fit a model of standardised targets, with a kernel of few rows, and predict all rows without themselves."""
        plan = replace(self.plan, features=self.features, local=None, block_dtype="float64")
        one = np.ones(rows.y.shape[1])
        with ignored():
            given = rows, self.given.columns, small_search(self.features), self.rng
            basis = fit_basis(plan.features, *given, target_scale=one)
            return self._fitted(plan, Units(np.zeros_like(one), one, False), basis, rows)

    def _fitted(
        self, plan: RegressionPlan, units: Units, basis: Basis, rows: TrainingRows
    ) -> tuple[FittedRegressor, LeftOut]:
        sums = collect([plan], basis, rows, Progress(0))
        fitted = infer(plan, units, sums, self.rng)
        return fitted, left_out([fitted], rows, sums.rotated if fitted.basis is sums.basis else None)[0]

    def fit(
        self, basis: Basis, y: FloatArray, scales: Sequence[TargetScale], noise: str = "constant"
    ) -> tuple[FittedRegressor, list[OnScale]]:
        """Fit a model with an output for each scale, and predict all rows without themselves."""
        plan = replace(
            self.plan, features=self.features, transform=None, local=None, block_dtype="float64", noise=noise
        )
        units, z = Units.fit(on_scales(y, scales), self.rows.weight, False, None, plan.reach)
        rows = replace(self.rows, y=z)
        with ignored():
            fitted, left = self._fitted(plan, units, replace(basis, target_scale=units.scale), rows)
        return fitted, OnScale.each(scales, left, y)

    def chosen(
        self, y: FloatArray, scales: Sequence[TargetScale], own_kernels: bool
    ) -> tuple[TargetScale, float, OfMean, Basis | None]:
        """Return the scale of an output, its gain, what its means are and, of own kernels, the feature map.

        By one kernel of all scales, or by one of y itself and one of the scale that promises most.
        """
        if not scales:
            return IDENTITY, 0.0, AS_IT_IS, None
        every = [IDENTITY, *scales]
        whole, basis = self.kernel_of_scale(IDENTITY) if own_kernels else (None, self.kernel_of_all(y, every))
        plain, *others = self.fit(basis, y, every)[1]
        tried: list[_Tried] = [(other, basis, None) for other in others]
        if own_kernels:
            tried = self.by_own_kernels(y, scales, promising(plain, others, self.rows.weight))
        return self.favoured(y, (plain, basis, whole), tried)

    def with_varying_noise(self, tried: _Tried, y: FloatArray) -> float:
        """Return the mean log density on a scale where the noise may vary."""
        on, basis, _ = tried
        return on.mean_log_density(self.fit(basis, y, [on.scale], "auto")[0], y, self.rows.weight)

    def gain_of_student_t(self, y: FloatArray, scale: TargetScale) -> float:
        """Return the nats per row by which y itself with Student-t noise is likelier than on a scale.

        Gross targets count as the farthest that are not: what an error is like should not decide. Where the other scale
        expects them, they are no errors.
        """
        basis = self.kernel_of_all(y, [scale])
        (on,) = self.fit(basis, y, [scale])[1]
        gross = gross_targets(y[on.first, None])[0][:, 0]
        if scale is not IDENTITY and np.abs(on.studentised[gross]).max(initial=0.0) < EXPECTED:
            return -np.inf
        of_scale, y = self.with_varying_noise((on, basis, None), y), within_reach(y[:, None])[:, 0]
        fitted, (on,) = self.fit(self.kernel_of_all(y, [IDENTITY]), y, [IDENTITY], "student_t")
        return on.mean_log_density(fitted, y, self.rows.weight) - of_scale

    def by_own_kernels(
        self, y: FloatArray, scales: Sequence[TargetScale], promised: TargetScale | None
    ) -> list[_Tried]:
        """Predict by a kernel of the scale that promises most, and of the next one that does by this kernel."""
        tried: dict[TargetScale, _Tried] = {}
        while promised is not None and promised not in tried:
            whole, basis = self.kernel_of_scale(promised)
            every = self.fit(basis, y, scales)[1]
            own = every[scales.index(promised)]
            tried[promised] = own, basis, whole
            promised = promising(own, every, self.rows.weight)
        return list(tried.values())

    def favoured(
        self, y: FloatArray, plain: _Tried, others: Sequence[_Tried]
    ) -> tuple[TargetScale, float, OfMean, Basis | None]:
        """Return the best of the scales; noise that varies may do as well on y's own.

        That is not asked where noise is alike everywhere on the other scale, nor what varying noise gains on that one
        where it is likelier without.
        """
        best = favoured(plain[0], [on for on, _, _ in others], y, self.rows.weight)
        if best is None:
            return IDENTITY, 0.0, AS_IT_IS, plain[2]
        k, gain, of_mean = best
        on, basis, whole = others[k]
        varies = self.plan.noise == "auto" and self.plan.features.learns_kernel and len(y) >= MIN_ROWS_TO_CHOOSE
        if varies and not looks_constant(on.studentised, basis.inputs(self.rows.x[on.first])):
            own = self.with_varying_noise(plain, y)
            gain = float(np.average(on.log_density, weights=self.rows.weight)) - own
            if gain <= LEAST_GAIN:
                gain = self.with_varying_noise(others[k], y) - own
        return (on.scale, gain, of_mean, whole) if gain > LEAST_GAIN else (IDENTITY, 0.0, AS_IT_IS, plain[2])


def settled(plan: RegressionPlan, choice: ScaleChoice | None) -> RegressionPlan:
    """Return the plan with the targets' scale, and the noise, that were chosen."""
    chosen = choice or ScaleChoice(None)
    transform = chosen.transform if plan.transform == "auto" else plan.transform
    return replace(plan, transform=transform, noise=plan.noise if chosen.noise is None else chosen.noise)


def fit_units(
    plan: RegressionPlan, given: GivenRows, known: TargetTransform | None = None, choice: ScaleChoice | None = None
) -> tuple[Units, TrainingRows]:
    """Stage 1: location, scale and transform of the targets, for "auto" that of earlier rows, less known effects."""
    if plan.transform != "auto":
        transform = None if plan.transform is None else given_transform(plan.transform, given.y)
    else:
        transform = known if known is not None and known.allows(given.y) else None
    units, z = Units.fit(given.y, given.weight, given.one_dimensional, transform, plan.reach)
    x, effects, _ = given.columns.apart(given.x)
    return with_choice(units, choice), TrainingRows(x, z - effects, given.weight)


def with_choice(units: Units, choice: ScaleChoice | None) -> Units:
    """Return the units with what is known of a scale that was chosen."""
    return units if choice is None else replace(units, spread=choice.spread, factor=choice.factor, gain=choice.gain)


def weigh_gaps(plan: RegressionPlan, given: GivenRows, own: Sequence[TrainingRows]) -> list[TrainingRows]:
    """Before stage 2: relative precisions of rows of which something is missing, the same for all models.

    Where f has the variance v over what may be missing, or an effect has it, targets scatter by v beside the noise
    variance σ²: ω = σ²/(σ² + v). Small fits tell both: the first, of rows that count alike, has all v in its noise, and
    more follow while it shrinks by much, as where σ² is far below v. A row counts for all outputs as much as for the
    one of which it tells most.

    An indicator may tell all, or nothing, of what is missing: of rows that lack nothing else, the small fits tell the
    share of v. Predictions are as narrow where there is one indicator, as the share may differ between several.
    """
    if given.absent is None or not (given.absent.any() or given.columns.effects):
        return list(own)
    effects = given.columns.effects_of(given.x)[:, :, -2].sum(axis=1, keepdims=True)
    rows, told = of_all(own), given.columns.told(given.absent)
    small = _SmallFit(replace(plan, posterior=Gaussian(), noise="constant"), given, rows)
    for _ in range(MOST_WEIGHINGS):
        fitted, left = small.alike(rows)
        missing = fitted.variances_of_missing(given.x, given.columns.draws_of_missing(given.x, given.absent)) + effects
        found = left.found, missing[left.first], fitted.mean_noise, told[left.first]
        noise, share = expected_noise(*found)
        missing = np.where(told[:, None], share, 1.0) * missing
        rows = replace(rows, precision=relative_precisions(noise, missing))
        if (noise > LITTLE_LESS * fitted.mean_noise).all():
            break
    shares = (share[outputs] if len(given.columns.indicators) == 1 else None for outputs in outputs_of(own))
    return [replace(each, precision=rows.precision, untold=own) for each, own in zip(own, shares, strict=True)]


def warn_of_outliers(plan: RegressionPlan, units: Units, y: FloatArray) -> None:
    """Warn where a few gross targets (n_rows, n_outputs) carry most of the squares, and are taken as they are."""
    if plan.noise != "student_t":
        scale = "" if units.active is None else " and the same target_transform by name"
        warn_of_gross(y, f"use noise='student_t'{scale}, which they hardly move")


def fit_features(
    plan: RegressionPlan,
    given: GivenRows,
    units: Units,
    rows: TrainingRows,
    rng: np.random.Generator,
    earlier: Basis | None = None,
) -> Basis:
    """Stage 2: the feature map, with a search of the kernel; that of `earlier` is taken over with the same inputs."""
    if earlier is not None and earlier.target_transform != units.transform:
        earlier = None  # its kernel is of other targets
    search = partial(search_kernel, max_rows=plan.features.max_search_rows)
    names = None if given.columns.names is None else tuple(given.columns.names_out)
    options: dict[str, Any] = {"names": names, "target_scale": units.scale, "earlier": earlier}
    basis = fit_basis(plan.features, rows, given.columns, search, rng, **options)
    return replace(basis, target_transform=units.transform)


def collect(
    plans: Sequence[RegressionPlan], basis: Basis, rows: TrainingRows, progress: Progress, *, of_kernel: bool = True
) -> Sums:
    """Stage 3: sums over rows for the targets of all models at once, of kernel functions where they are accurate."""
    basis = basis.for_sums(len(rows.x), None if of_kernel else 0.0)
    with progress.rows(len(rows.x)) as callback:
        inputs = basis.inputs(rows.x)
        options: dict[str, Any] = {"block_dtype": plans[0].block_dtype, "progress": callback}
        statistics = collect_statistics(basis.map, inputs, rows.y, rows.information, **options)
        residual = basis.mean_missing_variance(inputs, rows.information, statistics.mean_square)
        statistics = replace(statistics, n_samples=float(rows.weights.sum()))
        if not all(plan.is_gaussian for plan in plans):
            statistics.form_gram()  # once for all
        rotated = decorrelate(statistics) if any(plan.is_gaussian for plan in plans) else None
        shared: dict[Hashable, Any] | None = {} if len(plans) > 1 else None
        return Sums(basis, statistics, rotated, residual, rows.counts.repetitions, rows, shared)


def coarse_first(plan: RegressionPlan, n_rows: int) -> RegressionPlan:
    """Return a plan that begins with few landmarks where many may be more than needed."""
    features = plan.features
    if plan.is_gaussian and features.kind == "nystroem" and features.learns_kernel:
        if min(n_rows, features.n_functions) >= 2 * FIRST_LANDMARKS:
            return replace(plan, features=replace(features, first_size=FIRST_LANDMARKS, spreads_first=True))
    return plan


def collect_enough(
    plans: Sequence[RegressionPlan],
    units: Sequence[Units],
    own: Sequence[TrainingRows],
    sums: Sums,
    rng: np.random.Generator,
    progress: Progress,
) -> Sums:
    """Stage 3 with as many landmarks as left-out rows ask for: those of the sums, or all that were asked for.

    `own` have the targets of each model.
    """
    rows, basis, features = of_all(own), sums.basis, plans[0].features
    if features.first_size is None or basis.hyperparameters is None:
        return sums
    enough = _if_enough(plans, units, own, sums, rng)
    if enough is not None:
        return enough
    landmarks = choose_landmarks(basis.inputs(rows.x), rows, rng, features.n_functions)
    return collect(plans, replace(basis, map=NystroemFeatures.at(landmarks, basis.hyperparameters)), rows, progress)


def _if_enough(
    plans: Sequence[RegressionPlan],
    units: Sequence[Units],
    own: Sequence[TrainingRows],
    sums: Sums,
    rng: np.random.Generator,
) -> Sums | None:
    """Return the sums, with weights that are found on the way, if more landmarks promise nothing for any model."""
    assert sums.basis.kernel is not None
    missed = sums.residual_variance / sums.basis.kernel.noise_variance
    if not COVERED < missed < COARSE:
        return sums if missed <= COVERED else None
    half, found = _of_half(sums), list[tuple[Any, float]]()
    for plan, unit, rows, outputs in zip(plans, units, own, outputs_of(own), strict=True):
        of_half, of_all = (_left_out(plan, unit, each.of_outputs(outputs, rows), rng) for each in (half, sums))
        if is_gain(of_all[1] - of_half[1], None, WORTH_ADDING):
            return None
        found += of_all[0]
    return replace(sums, fitted=found)


def of_all(own: Sequence[TrainingRows]) -> TrainingRows:
    """Return the rows with the targets of all models."""
    return replace(own[0], y=np.hstack([each.y for each in own])) if len(own) > 1 else own[0]


def outputs_of(own: Sequence[TrainingRows]) -> list[slice]:
    """Return the place of each model's targets among those of all."""
    ends = np.cumsum([0, *(rows.y.shape[1] for rows in own)]).tolist()
    return [slice(*each) for each in pairwise(ends)]


def _of_half(sums: Sums) -> Sums:
    """Return the sums for the leading half of the landmarks."""
    basis, kernel = sums.basis, sums.basis.hyperparameters
    assert kernel is not None
    leading = np.ascontiguousarray(basis.map.landmarks[: basis.n_weights // 2])
    statistics = sums.statistics.leading(len(leading))
    residual = sums.residual_variance + sums.statistics.mean_square - statistics.mean_square
    basis = replace(basis, map=NystroemFeatures.at(leading, kernel))
    return replace(
        sums, basis=basis, statistics=statistics, rotated=decorrelate(statistics), residual_variance=residual
    )


def _left_out(plan: RegressionPlan, units: Units, sums: Sums, rng: np.random.Generator) -> tuple[Fitted, FloatArray]:
    """Fit weights; return them and log densities of some rows that are left out one at a time, summed over outputs."""
    sums, rng = sums.divided(sums.repetitions), copy.deepcopy(rng)
    fitted = fit_weights(plan, units, sums, rng)
    problem = _noise_problem(plan, units, sums, fitted, sums.statistics.n_samples, rng)
    moments = problem.moments()
    chosen = np.sort(rng.permutation(len(moments.x))[:MAX_LEFT_OUT])
    moments.exactly(chosen)
    return fitted, problem.left_out(moments, chosen).log_density.sum(axis=1)


def given_sums(
    plan: RegressionPlan, basis: Basis, statistics: RunningStatistics, shared: Standardised, one_dimensional: bool
) -> tuple[Units, Sums]:
    """Stages 1 and 3 where rows were summed elsewhere: `shared` are the sums of standardised targets."""
    transform, derivative = basis.target_transform, statistics.log_derivative
    units = Units.of_sums(shared.location, shared.scale, one_dimensional, transform, derivative)
    residual = statistics.missing_variance(shared.gaussian.mean_square)
    rotated = shared.rotated if plan.is_gaussian else None
    return units, Sums(basis, shared.gaussian, rotated, residual, shared.repetitions)


def infer(plan: RegressionPlan, units: Units, sums: Sums, rng: np.random.Generator) -> FittedRegressor:
    """Stages 4 to 6: weights, then the noise and the local process that leave-one-out scores favour."""
    # A noise variance that is given counts all repetitions of rows.
    n_samples, repetitions = sums.statistics.n_samples, sums.repetitions if isinstance(plan.noise, str) else 1.0
    sums, rng = sums.divided(repetitions), copy.deepcopy(rng)
    basis, residual = sums.basis, sums.residual_variance
    known = sums.fitted if plan.is_gaussian and repetitions == sums.repetitions else None
    fitted, noise, local, gain = known or fit_weights(plan, units, sums, rng), None, None, None
    may_vary = plan.is_gaussian and plan.features.learns_kernel
    varies = isinstance(plan.noise, str) and plan.noise != "constant"
    if sums.rows is not None and sums.rotated is not None and (varies or plan.local is not None):
        problem = _noise_problem(plan, units, sums, fitted, n_samples / repetitions, rng)
        moments, found = problem.moments(), None
        if plan.noise == "student_t":
            found, basis, residual = fit_student_t(problem, moments)
        elif plan.noise == "varying":
            found = fit_varying_noise(problem, moments)
        elif plan.local is not None and may_be_local(plan) is None:
            neighbours = None if plan.local == "auto" else int(plan.local)
            local, gain = fit_local(problem, moments, neighbours, sums.shared)
        # Of features that are not flexible, what f misses would pass for noise.
        if plan.noise == "auto" and may_vary and noise_may_replace(local, plan.local == "auto"):
            found = choose_noise(problem, moments)
            # Both stand for what constant noise leaves over: keep that of larger leave-one-out density.
            if found is not None and local is not None and found[1].gain() <= local.gain.mean():
                found = None
        if found is not None:
            (fitted, noise, left), local = found, None
            units = with_means(units, left)
    untried = _why_untried(plan, sums.rows is not None, may_vary, n_samples)
    if may_vary and isinstance(plan.noise, str):
        units = units.of_few_rows(
            n_samples / repetitions, heavy_tails=noise is None or set(noise.choices) == {CONSTANT}
        )
    latent, log_weights, untold = Latent.of(basis, fitted, residual), 0.0, None
    if sums.rows is not None:
        log_weights, untold = 0.5 * float(sums.rows.weights @ np.log(sums.rows.precisions)), sums.rows.untold
    return FittedRegressor(latent, units, n_samples, repetitions, noise, local, gain, untried, log_weights, untold)


def fit_weights(plan: RegressionPlan, units: Units, sums: Sums, rng: np.random.Generator) -> Fitted:
    """Stage 4: the posterior of every output's weights, and their prior standard deviation."""
    starts = initial_hyperparameters(plan, sums.basis, units)
    targets, posterior = range(sums.statistics.n_outputs), plan.posterior
    if isinstance(posterior, Gaussian):
        assert sums.rotated is not None
        n_noise = posterior.n_noise_levels if isinstance(plan.noise, str) else 1
        options: dict[str, Any] = {"n_noise_levels": n_noise, "max_iter": plan.max_iter}
        return [fit_by_evidence(sums.rotated.target(k), starts[k], **options) for k in targets]
    statistics = [sums.statistics.target(k) for k in targets]
    seeds = [int(rng.integers(2**31)) for _ in targets]
    if isinstance(posterior, Sequential):
        # Levels may move to posterior means where nobody asked for levels of another kind, or for zeros.
        may_centre = posterior.level_scales == "auto" and posterior.levels is None
        lattice, given = lattice_of(posterior, sums.basis), (statistics, starts, seeds)
        return [*draw_by_evidence(lattice, *given, may_centre=may_centre, n_threads=resolve_n_threads())]
    return list(_raw_policy(plan, posterior, sums.basis).fit(statistics, starts))


def lost_digits(basis: Basis, n_rows: float, models: Sequence[FittedRegressor], dtype: str) -> bool:
    """Whether sums of kernel functions have lost digits that noise as small as was found needs."""
    posteriors = [posterior for model in models for posterior in model.posteriors]
    if not sums_are_of_kernel(basis, dtype) or any(posterior.interrupted for posterior in posteriors):
        return False
    noise = min(posterior.noise.variance for posterior in posteriors)
    # The bound is not sharp: it must be exceeded by far.
    return not basis.for_sums(0.1 * n_rows, noise).sums_of_kernel


# --- all stages for several models


def fit_together(
    plans: Sequence[RegressionPlan],
    given: Sequence[GivenRows],
    progress: Progress,
    earlier: Basis | None = None,
    choices: Sequence[ScaleChoice | None] = (),
) -> Iterator[tuple[FittedRegressor, dict[str, float]]]:
    """Fit models of one feature map to the same rows of X; yield each with its seconds by stage.

    The kernel of `earlier` is taken over where its inputs are the same; `choices`: of scales, which the plans have.
    """
    start = begin(plans, merged(given), choices or [None] * len(plans), progress, earlier)
    yield from ((model, seconds) for model, _, seconds in finish(start, progress))


def begin(
    plans: Sequence[RegressionPlan],
    given: Sequence[GivenRows],
    choices: Sequence[ScaleChoice | None],
    progress: Progress,
    earlier: Basis | None = None,
) -> Start:
    """Stages 1 and 2 for merged rows, and sums of the first landmarks."""
    with progress.stage("features"):
        each = zip(plans, given, choices, strict=True)
        units, rows = zip(*(fit_units(plan, own, choice=choice) for plan, own, choice in each), strict=True)
        x, rows = rows[0].x, tuple(weigh_gaps(plans[0], given[0], rows))
        if len(rows) > 1 and rows[0].is_plain and len(equal_rows(x)[0]) == len(x):
            for own in rows[1:]:  # rows that differ in X differ, whatever their targets
                own.__dict__.update(distinct=rows[0].distinct, merged=rows[0].merged)
        plans = [coarse_first(plan, len(x)) for plan in plans]
        rng, later = plans[0].generators()
        known = None if choices[0] is None or rows[0].precision is not None else choices[0].basis
        basis = known or fit_features(plans[0], given[0], units[0], rows[0], rng, earlier)
    with progress.stage("statistics"):
        return plans, units, rows, collect(plans, basis, of_all(rows), progress), rng, later


def not_behind(starts: Sequence[Start]) -> list[Start]:
    """Drop encodings that are clearly behind on left-out rows, with constant noise and the first landmarks."""
    if len(starts) == 1:
        return [*starts]
    found = [_left_out(plan, units, sums, later) for (plan,), (units,), _, sums, _, later in starts]
    least, each = max(density.mean() for _, density in found) - BEHIND, zip(starts, found, strict=True)
    return [(*own[:3], replace(own[3], fitted=fitted), *own[4:]) for own, (fitted, d) in each if d.mean() > least]


def finish(start: Start, progress: Progress) -> Iterator[Finished]:
    """Stages 3 to 6: yield models, each with its sums and its seconds by stage."""
    plans, units, rows, sums, rng, later = start
    found: list[Finished] = []
    try:
        for of_kernel in (True, False):
            with progress.stage("statistics"):
                if of_kernel:
                    sums = collect_enough(plans, units, rows, sums, rng, progress)
                else:
                    sums = collect(plans, sums.basis, of_all(rows), progress, of_kernel=False)
            before, found = {name: spent / len(plans) for name, spent in progress.seconds.items()}, []
            with progress.stage("inference"):
                for plan, unit, own, outputs in zip(plans, units, rows, outputs_of(rows), strict=True):
                    started, part = time.perf_counter(), sums.of_outputs(outputs, own)
                    model = infer(plan, unit, part, later)
                    found.append((model, part, {**before, "inference": time.perf_counter() - started}))
            if not lost_digits(sums.basis, len(rows[0].x), [model for model, *_ in found], plans[0].block_dtype):
                break
    except BaseException:
        yield from found  # models before one that fails are whole
        raise
    yield from found


# --- parts of stages


def initial_hyperparameters(plan: RegressionPlan, basis: Basis, units: Units) -> list[InitialHyperparameters]:
    """What is known of each target's noise and prior variance before inference, standardised."""
    kernel, unit, found = basis.kernel, basis.target_scale, []
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
        raise ValueError(f"noise must be within a factor of {LARGEST_NOISE:g} of y's variance, got {noise:g}")
    return ratio


def _why_untried(plan: RegressionPlan, has_rows: bool, may_vary: bool, n_samples: float) -> str | None:
    """Say why kinds of noise are not compared, if they are not."""
    if not plan.is_gaussian:
        return "for discrete weights"
    if not has_rows:
        return "by partial_fit or from sums over rows"
    if not may_vary:
        return "with these features"
    return f"on fewer than {MIN_ROWS_TO_CHOOSE} rows" if n_samples < MIN_ROWS_TO_CHOOSE else None


def _noise_problem(
    plan: RegressionPlan, units: Units, sums: Sums, fitted: Fitted, n_rows: float, rng: np.random.Generator
) -> NoiseProblem:
    """The fit as whoever looks for other noise takes it."""
    assert sums.rows is not None and sums.rotated is not None
    given = sums.basis, sums.residual_variance, sums.rows, sums.rotated, fitted, n_rows, units.scale
    return NoiseProblem(*given, plan.features, plan.max_iter, plan.block_dtype, rng, resolve_n_threads())


def _raw_policy(plan: RegressionPlan, posterior: MeanField, basis: Basis) -> RawPolicy:
    n_weights, prior = basis.n_weights, as_prior(posterior.prior)
    levels = shared_levels(posterior.levels, posterior.n_levels, n_weights)
    log_prior: FloatArray | MixturePriorTable
    if isinstance(prior, MixturePrior):
        log_prior = _prior_table(prior, levels, plan.features.kind, basis)
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
        raise ValueError(f"groups must have one number per column, {d}, or weight, {n_weights}, got {len(groups)}")
    if len(groups) != d:
        return prior.table(levels, n_weights)
    own = groups[columns.origins][basis.input_map.kept]
    table = replace(prior, groups=(*own, groups.max() + 1)).table(levels, n_weights)
    shape = (len(table.log_masses), n_weights, levels.shape[1])
    log_masses = np.broadcast_to(table.log_masses, shape).copy()
    log_masses[:, -1] = GaussianPrior().log_mass(levels)[-1]
    return replace(table, log_masses=log_masses)
