"""How many landmarks a model of labels or counts has: more, as long as left-out ones become likelier."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.estimators._basis import BasisFunctionModel
from pydirect.estimators._label_problem import LabelProblem
from pydirect.estimators._label_sets import LabelSets
from pydirect.estimators._streamed_classifier import StreamedClassifier
from pydirect.features.evidence import TrainingRows
from pydirect.features.maps import NystroemFeatures
from pydirect.logistic.ascent import raise_if_set
from pydirect.logistic.gaussian import VariancePrior, informative_directions
from pydirect.logistic.rows import LabelledRows
from pydirect.statistics.gaussian import FeatureMap, collect_statistics

# Numbers of landmarks that are tried before `n_basis_functions`, as long as the log loss of labels that are left out
# falls by this fraction.
SIZES = (128, 384)
WORTH_WIDENING = 0.025
# Multiply-adds of a pass over the rows beyond which there are no more landmarks.
LARGEST_PASS = 3e10


class WideningModel(BasisFunctionModel):
    """Base of models of labels or counts whose Nyström features begin with few landmarks.

    A subclass provides ``_variance_prior`` and `_rows_in`.
    """

    _problem_type: ClassVar[type[LabelProblem]] = LabelProblem

    def _rows_in(self, features: FeatureMap, inputs: FloatArray, rows: TrainingRows, n_threads: int) -> LabelledRows:
        """Return the rows as the weighted passes take them; `inputs`: of the feature map."""
        raise NotImplementedError

    def _variance_prior(self, mean_square: float) -> VariancePrior:
        """Prior of the weights' prior variance, from the mean of φᵀφ."""
        raise NotImplementedError

    def _first_size(self) -> int:
        """Return the number of landmarks to begin with."""
        return self._sizes()[0] if self._learns_kernel() else self.n_basis_functions

    def _sizes(self) -> list[int]:
        """Return the numbers of landmarks that are tried."""
        return [size for size in SIZES if size < self.n_basis_functions] + [self.n_basis_functions]

    def _widened(
        self, problem: LabelProblem, rows: TrainingRows, rng: np.random.Generator, n_threads: int, progress: Progress
    ) -> LabelProblem:
        """Return the problem with as many landmarks as make probabilities of left-out labels better."""
        with progress.stage("inference"):
            problem = problem.at_rest(self.max_iter)
        kernel = self.features_.hyperparameters
        tried = self._sizes()[0]
        for size in self._sizes()[1:] if self._widens() else []:
            earlier = self.features_
            assert kernel is not None
            if problem.stop.is_set() or earlier.n_weights < tried or len(rows.x) * size**2 > LARGEST_PASS:
                break  # with fewer than were asked for, all rows are landmarks
            tried = size
            try:
                with progress.stage("features"):
                    landmarks = self._landmarks(earlier.input_map.transform(rows.x), rows, rng, size)
                    self.features_ = replace(earlier, map=NystroemFeatures.at(landmarks, kernel))
                wider = replace(self._problem(rows, n_threads, progress), stop=problem.stop)
                with progress.stage("inference"):
                    wider = wider.at_rest(self.max_iter, problem)
            except KeyboardInterrupt:
                problem.stop.set()
                self.features_ = earlier
                break
            if wider.log_loss >= problem.log_loss:
                self.features_ = earlier
                break
            gain = 1 - wider.log_loss / problem.log_loss
            problem = wider
            if gain < WORTH_WIDENING:
                break
        return problem

    def _widens(self) -> bool:
        """Whether there may be more landmarks than to begin with."""
        return self._learns_kernel() and isinstance(self.features_.map, NystroemFeatures) and len(self._sizes()) > 1

    def _problem(self, rows: TrainingRows, n_threads: int, progress: Progress) -> LabelProblem:
        """Return the rows of the present features, in the directions about which they say anything."""
        with progress.stage("statistics"), progress.rows(len(rows.x)) as callback:
            inputs = np.ascontiguousarray(self.features_.inputs(rows.x))
            raw = self._rows_in(self.features_.map, inputs, rows, n_threads).held()
            statistics = collect_statistics(
                raw.features, raw.x, rows.y, rows.weight, n_threads=n_threads, progress=callback
            )
            missing = self.features_.mean_missing_variance(inputs, rows.weight, statistics.mean_square)
            variance_prior = self._variance_prior(statistics.mean_square)
            vectors = informative_directions(statistics, variance_prior.centre, raw.largest_precision)
            if vectors.shape[1] == raw.n_weights:  # a rotation would gain nothing
                return self._problem_type(raw, raw, np.eye(raw.n_weights), variance_prior, missing)
            return self._problem_type(raw, raw.rotated(vectors), vectors, variance_prior, missing)


class WideningClassifier(WideningModel, LabelSets, StreamedClassifier):
    """Base of classifiers whose Nyström features begin with few landmarks.

    A subclass provides ``_variance_prior`` and what `StreamedClassifier` needs.
    """

    def _first_size(self) -> int:
        return super()._first_size() if self._bound() == "softmax" else self.n_basis_functions

    def _rows_in(self, features: FeatureMap, inputs: FloatArray, rows: TrainingRows, n_threads: int) -> LabelledRows:
        assert rows.weight is not None
        return LabelledRows(features, inputs, rows.y, rows.weight, self.intercept_, "softmax", n_threads)

    def _widen(self, rows: TrainingRows) -> None:
        """Choose the number of landmarks by a sample of the rows of a stream."""
        if not self._widens():
            return
        progress, n_threads = Progress(0), resolve_n_threads(self.n_threads)
        with single_blas_thread():
            problem = self._problem(rows, n_threads, progress)
            problem = self._widened(problem, rows, self._generator(), n_threads, progress)
        raise_if_set(problem.stop)
