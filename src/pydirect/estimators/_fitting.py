"""The one sequence of a fit of regressors on statistics: features, sums over rows, inference, results.

One regressor goes through it alone, several that share features and rows (`fit_many`, `DirectSearchCV`) together.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.estimators._regressor import ProbabilisticRegressor
from pydirect.estimators._streamed import StreamedModel
from pydirect.features.evidence import TrainingRows
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics
from pydirect.statistics.rotated import RotatedStatistics, decorrelate
from pydirect.statistics.running import RunningStatistics
from pydirect.statistics.standardised import Standardised


@dataclass(frozen=True)
class Training:
    """What inference sees: sums over the data, and the rows where they are in memory."""

    statistics: GaussianStatistics
    rng: np.random.Generator
    n_threads: int
    rotated: RotatedStatistics | None = None  # where they are known already
    rows: TrainingRows | None = None  # of this model's targets


class StatisticsModel(StreamedModel, ProbabilisticRegressor):
    """Base of regressors whose inference needs only statistics of standardised targets.

    A subclass provides `_infer`, which sets ``posteriors_`` and ``prior_scale_``, and `_needs_rotation`.
    """

    statistics_: RunningStatistics
    repetitions_: float
    _log_derivative: FloatArray

    def _infer(self, training: Training) -> None:
        raise NotImplementedError

    def _needs_rotation(self) -> bool:
        """Whether inference begins with the decorrelated basis: to live there, or to learn the prior's scale."""
        raise NotImplementedError


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
    columns: list[FloatArray] = []
    first: TrainingRows | None = None  # X may be converted for every model: only the first copy stays
    for model, target in zip(models, targets, strict=True):
        x, _, standardised, weight = model._start_fit(
            X, target, sample_weight, None if first is None else lead.columns_
        )
        model._forget_all()
        rows = TrainingRows(x, standardised, weight)
        model.repetitions_ = float(rows.distinct[1].mean())
        first = rows if first is None else first
        columns.append(standardised)
    assert first is not None
    x, weight = first.x, first.weight
    del rows
    with single_blas_thread():
        with progress.stage("features"):
            basis = lead._fit_features(first, rng, n_threads, lead.y_scale_)
        with progress.stage("statistics"), progress.rows(len(x)) as callback:
            inputs = basis.inputs(x)
            options: dict[str, Any] = {"block_dtype": lead.block_dtype, "n_threads": n_threads, "progress": callback}
            statistics = collect_statistics(basis.map, inputs, np.hstack(columns), weight, **options)
            missing = basis.mean_missing_variance(inputs, weight, statistics.mean_square)
            if any(model.basis == "raw" for model in models):
                statistics.form_gram()  # once for all, where its seconds belong
        for model in models:
            model.features_, model.mean_missing_variance_ = basis, missing
            model.n_samples_ = statistics.n_samples

        def trainings() -> list[Training]:
            rotated = decorrelate(statistics) if any(model._needs_rotation() for model in models) else None
            found, end = [], 0
            for y in columns:
                own = slice(end, end := end + y.shape[1])
                turned = None if rotated is None else rotated.outputs(own)
                rest = copy.deepcopy(after_features)  # every model's own
                rows = TrainingRows(x, y, weight)
                found.append(Training(statistics.outputs(own), rest, n_threads, rotated=turned, rows=rows))
            return found

        _infer_together(models, trainings, progress)


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
        model.repetitions_, model.n_samples_ = shared.repetitions, statistics.n_samples
        model.mean_missing_variance_ = statistics.missing_variance(mean_square)

    def trainings() -> list[Training]:
        found = []
        for model in models:
            rotated = shared.rotated if model._needs_rotation() else None
            n_threads, rng = resolve_n_threads(model.n_threads), inference_rng(model._generator())
            found.append(Training(shared.gaussian, rng, n_threads, rotated=rotated))
        return found

    with single_blas_thread():
        _infer_together(models, trainings, progress)
    for model in models:
        model.statistics_ = statistics


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
