"""The one sequence of a fit of regressors on statistics: features, sums over rows, inference, results.

One regressor goes through it alone, several that share features and rows (`fit_many`, `DirectSearchCV`) together.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect._warnings import warn
from pydirect.estimators._regressor import ProbabilisticRegressor
from pydirect.estimators._streamed import FeatureMapWarning, StreamedModel
from pydirect.features.basis import Basis
from pydirect.features.evidence import TrainingRows
from pydirect.features.repeated import equal_rows
from pydirect.persistence.fields import Arrays, Header, Writer, require_number
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics, sums_are_of_kernel
from pydirect.statistics.rotated import RotatedStatistics, decorrelate
from pydirect.statistics.running import RunningStatistics
from pydirect.statistics.standardised import Standardised
from pydirect.streams.rows import Rows

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Training:
    """What inference sees: sums over the data, and the rows where they are in memory."""

    statistics: GaussianStatistics
    rng: np.random.Generator
    n_threads: int
    rotated: RotatedStatistics | None = None  # where they are known already
    rows: TrainingRows | None = None  # of this model's targets, distinct
    given: TrainingRows | None = None  # as they were given to fit
    undivided: RotatedStatistics | None = None  # those of the weights as they were given
    memo: dict[Hashable, Any] | None = None  # of all models that are fitted to the same rows

    def once(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """Make what depends on the rows and the key alone, once for all models."""
        if self.memo is None:
            return make()
        if key not in self.memo:
            self.memo[key] = make()
        made: _Made = self.memo[key]
        return made

    def divided(self, repetitions: float) -> Training:
        """Return the same with weights divided by a number; see `RowCounts`."""
        whole = replace(self, undivided=self.rotated)
        if repetitions == 1.0:
            return whole
        rotated, rows = self.rotated, self.rows
        return replace(
            whole,
            statistics=self.statistics.divided(repetitions),
            rotated=None if rotated is None else rotated.divided(repetitions),
            rows=None if rows is None else rows.divided(repetitions),
        )


class StatisticsModel(StreamedModel, ProbabilisticRegressor):
    """Base of regressors whose inference needs only statistics of standardised targets.

    A subclass provides `_infer`, which sets ``posteriors_`` and ``prior_scale_``, and `_needs_rotation`.
    """

    noise: str | float
    statistics_: RunningStatistics
    repetitions_: float
    effective_rows_: float
    _log_derivative: FloatArray

    def _infer(self, training: Training) -> None:
        raise NotImplementedError

    def _needs_rotation(self) -> bool:
        """Whether inference begins with the decorrelated basis: to live there, or to learn the prior's scale."""
        raise NotImplementedError

    def _set_counts(self, n_samples: float, repetitions: float) -> None:
        """Set what weights count for: see `RowCounts`; all of it where the noise is known, as nothing is inferred."""
        self.repetitions_ = repetitions if isinstance(self.noise, str) else 1.0
        self.n_samples_, self.effective_rows_ = n_samples, n_samples / self.repetitions_

    def _elbo_units(self) -> FloatArray:
        return self.effective_rows_ * np.log(self.y_scale_)  # a density in y's own units

    def summary(self) -> str:
        words = super().summary()
        if sums_are_of_kernel(self.features_, self.block_dtype) and self.n_samples_ >= self.features_.n_weights:
            words += "\nSums over rows were of kernel functions, whitened once: rounding is small beside the noise."
        return words

    def _to_fields(self, writer: Writer) -> Header:
        return {**super()._to_fields(writer), "effective_rows": self.effective_rows_}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.effective_rows_ = require_number(header["effective_rows"], "effective_rows", above=0.0)


def fit_to_rows(
    models: Sequence[StatisticsModel],
    X: ArrayLike,
    targets: Sequence[Any],
    sample_weight: ArrayLike | None,
    progress: Progress,
) -> None:
    """Fit models that share their feature map to rows in memory; the first of them fits the map.

    `X`, (n_samples, n_features_in). `targets`: one per model, (n_samples,) or (n_samples, n_outputs) each.
    `sample_weight`, (n_samples,).
    """
    lead = models[0]
    n_threads, rng = resolve_n_threads(lead.n_threads), lead._generator()
    after_features = inference_rng(rng)
    given: list[TrainingRows] = []
    originals: list[FloatArray] = []
    for model, target in zip(models, targets, strict=True):
        x, original, standardised, weight = model._start_fit(X, target, sample_weight, lead.columns_ if given else None)
        model._forget_all()
        # X may be converted for every model: only the first copy stays.
        given.append(TrainingRows(given[0].x if given else x, standardised, weight))
        originals.append(original)
    rows = _merged(models, given, originals)
    del originals
    fit = partial(_fit_on, models=models, rows=rows, given=given, rng=after_features, progress=progress)
    n_rows = len(rows[0].x)
    with single_blas_thread():
        with progress.stage("features"):
            basis = lead._fit_features(rows[0], rng, n_threads, lead.y_scale_).for_sums(n_rows)
        fit(basis)
        interrupted = any(posterior.interrupted for model in models for posterior in model.posteriors_)
        if not interrupted and lost_digits(basis, n_rows, models):
            fit(basis.for_sums(n_rows, 0.0))


def _fit_on(
    basis: Basis,
    models: Sequence[StatisticsModel],
    rows: Sequence[TrainingRows],
    given: Sequence[TrainingRows],
    rng: np.random.Generator,
    progress: Progress,
) -> None:
    """Fit models to rows on basis functions; `rng`: of inference, a copy for every model."""
    lead, x, weight = models[0], rows[0].x, rows[0].weight
    n_threads = resolve_n_threads(lead.n_threads)
    with progress.stage("statistics"), progress.rows(len(x)) as callback:
        inputs, targets = basis.inputs(x), np.hstack([own.y for own in rows])
        options: dict[str, Any] = {"block_dtype": lead.block_dtype, "n_threads": n_threads, "progress": callback}
        statistics = collect_statistics(basis.map, inputs, targets, weight, **options)
        missing = basis.mean_missing_variance(inputs, weight, statistics.mean_square)
        if any(model.basis == "raw" for model in models):
            statistics.form_gram()  # once for all, where its seconds belong
    for model, own in zip(models, rows, strict=True):
        model.features_, model.mean_missing_variance_ = basis, missing
        model._set_counts(statistics.n_samples, own.counts.repetitions)

    def trainings() -> list[Training]:
        rotated = decorrelate(statistics) if any(model._needs_rotation() for model in models) else None
        memo: dict[Hashable, Any] | None = {} if len(models) > 1 else None
        found, end = [], 0
        for model, own, as_given in zip(models, rows, given, strict=True):
            outputs = slice(end, end := end + own.y.shape[1])
            sums = statistics.outputs(outputs)
            training = Training(sums, copy.deepcopy(rng), n_threads, rows=own, given=as_given, memo=memo)
            if rotated is not None:
                training = replace(training, rotated=rotated.outputs(outputs))
            found.append(training.divided(model.repetitions_))
        return found

    _infer_together(models, trainings, progress)


def lost_digits(basis: Basis, n_rows: float, models: Sequence[StatisticsModel]) -> bool:
    """Whether sums of kernel functions are too inaccurate for the noise that was found."""
    if not sums_are_of_kernel(basis, models[0].block_dtype):
        return False
    noise = min(posterior.noise.variance for model in models for posterior in model.posteriors_)
    # The bound is not sharp: it must be exceeded by far.
    return not basis.for_sums(0.1 * n_rows, noise).sums_of_kernel


def _merged(
    models: Sequence[StatisticsModel], given: Sequence[TrainingRows], originals: Sequence[FloatArray]
) -> list[TrainingRows]:
    """Return each model's distinct rows with their total weights, in an order that repeats and weights share.

    Everything that follows is then the same, bit for bit, for a weight of two and for a row given twice.

    `originals`, (n_rows, n_outputs) each: targets of the rows in their own units.
    """
    x, weight = given[0].x, given[0].weight
    together = TrainingRows(x, np.hstack(originals), weight)
    if together.is_plain:
        if len(given) > 1 and len(equal_rows(x)[0]) == len(x):  # rows that differ in X differ, whatever their targets
            for own in given[1:]:
                own.__dict__.update(distinct=given[0].distinct, merged=given[0].merged)
        return list(given)
    index, total = together.distinct
    merged = []
    for model, original in zip(models, originals, strict=True):
        chosen = Rows(x[index], original[index], total)
        merged.append(model._training_rows(chosen, model._standardise_targets(chosen.y, total)))
    return [replace(own, x=merged[0].x) for own in merged]


def fit_to_statistics(
    models: Sequence[StatisticsModel],
    statistics: RunningStatistics,
    shared: Standardised,
    progress: Progress,
) -> None:
    """Fit models whose feature map is that of the statistics.

    `shared`: the same, of standardised targets.
    """
    mean_square = shared.gaussian.mean_square
    for model in models:
        model._forget()
        model.y_mean_, model.y_scale_, model.calibration_scale_ = shared.location, shared.scale, 1.0
        model._log_derivative = statistics.log_derivative
        model._set_counts(statistics.n_samples, shared.repetitions)
        model.mean_missing_variance_ = statistics.missing_variance(mean_square)

    def trainings() -> list[Training]:
        found = []
        for model in models:
            rotated = shared.rotated if model._needs_rotation() else None
            n_threads, rng = resolve_n_threads(model.n_threads), inference_rng(model._generator())
            training = Training(shared.gaussian, rng, n_threads, rotated=rotated)
            found.append(training.divided(model.repetitions_))
        return found

    with single_blas_thread():
        _infer_together(models, trainings, progress)
    for model in models:
        model.statistics_ = statistics
        if statistics.sums_of == "kernel" and lost_digits(model.features_, statistics.n_rows, [model]):
            warn(
                "sums over rows have lost digits that noise as small as was found needs: predictions are less accurate "
                "than they could be. Use fit where the rows fit into memory, or fewer basis functions",
                FeatureMapWarning,
                stacklevel=4,
            )


def _infer_together(models: Sequence[StatisticsModel], trainings: Any, progress: Progress) -> None:
    """Infer, and set the results; shared seconds are divided among the models."""
    with progress.stage("inference"):
        begin = time.perf_counter()
        found = trainings()
        shared = {**progress.seconds, "inference": time.perf_counter() - begin}
        for model, training in zip(models, found, strict=True):
            begin = time.perf_counter()
            model._infer(training)
            model.fit_seconds_ = {name: spent / len(models) for name, spent in shared.items()}
            model.fit_seconds_["inference"] += time.perf_counter() - begin
            model._set_results()  # whatever becomes of the models after it


def inference_rng(rng: np.random.Generator) -> np.random.Generator:
    """Return the generator of inference, the same whatever the feature map has drawn."""
    return rng.spawn(1)[0]
