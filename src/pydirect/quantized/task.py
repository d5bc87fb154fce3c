"""Searches for small models: their sizes, data and losses, for targets and for labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve
from scipy.special import expit, softmax

from pydirect._validation import FloatArray
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap, within_others
from pydirect.features.kernel import LINEAR_REACH, KernelHyperparameters
from pydirect.features.maps import ForestFeatures, FourierFeatures
from pydirect.features.rows import distinct_rows
from pydirect.features.search import KernelRows, search_kernel
from pydirect.linear.evidence import maximise_evidence
from pydirect.logistic.kernel_evidence import LOGIT_UNIT
from pydirect.quantized.compile import short_inputs
from pydirect.quantized.fitted import ClassifierFit, ClassifierFits, LinearBasis, Outputs, SearchSettings
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor
from pydirect.quantized.quantize import assemble
from pydirect.quantized.samples import DrawProblem, Samples, accurate_samples, draw_samples, gaussian_problem
from pydirect.statistics.gaussian import collect_statistics, weighted_location_scale
from pydirect.statistics.rotated import RotatedTarget, decorrelate

# Weight of a point between rows, where the kernel's posterior mean stands for a response.
WEIGHT_BETWEEN = 0.3


SmallMap = FourierFeatures | ForestFeatures
# Factors on the variance over the samples, of which held-out rows choose one: the posterior of the weights does not
# know that basis functions were chosen given the rows. They are at most half of the number of samples: the variance
# of a few is near zero at some rows by chance. And the least factor on all standard deviations with each of them.
SPREADS = np.array([1.0, 2.0, 4.0, 8.0])
LEAST_CALIBRATION = np.array([0.5, 1.0, 1.0, 1.0])


@dataclass(frozen=True)
class Score:
    """What held-out rows say about a model, with the variance over its samples times each of `SPREADS`.

    `density`: mean of log √(2πv), v the variances, or of the log losses of labels, which have one. `squares`: mean of
    standardised squared errors, one for labels.
    """

    density: FloatArray
    squares: FloatArray

    @classmethod
    def mean(cls, scores: Sequence[Score]) -> Score:
        """Return the score of several parts of the rows."""
        return cls(*np.mean([(own.density, own.squares) for own in scores], axis=0))

    @cached_property
    def _best(self) -> tuple[float, float, float]:
        """Least loss, and the factors on variances over samples and on all standard deviations that give it."""
        factors = np.maximum(np.sqrt(self.squares), LEAST_CALIBRATION[: len(self.squares)])
        losses = self.density + np.log(factors) + self.squares / (2 * factors**2)
        return min(zip(losses, SPREADS, factors, strict=False))

    @property
    def loss(self) -> float:
        """Mean negative log density after calibration, standardised, or log loss and one half."""
        return self._best[0]

    def calibrated(self, model: QuantizedPredictor) -> QuantizedPredictor:
        """Return the model with the variances of least loss."""
        _, spread, factor = self._best
        return replace(model, noise=model.noise / spread, calibration=float(factor * np.sqrt(spread)))


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Data of a search; subclasses hold targets or labels."""

    input_map: InputMap
    # (n_rows, n_inputs): of the feature map, clipped to the range of integers
    inputs: FloatArray
    # (n_rows, n_outputs): responses that frequencies are chosen for, in units of ``outputs.scale`` about
    # ``outputs.offset``
    y: FloatArray
    # (n_rows,)
    weight: FloatArray
    outputs: Outputs
    hyperparameters: KernelHyperparameters
    # (n_levels,): levels of the weights
    grid: FloatArray
    # of the order of rows and of samples: the same whatever was asked for before
    seed: int
    n_threads: int
    # whether points between rows, where the kernel's posterior mean stands for a response, are examples too
    with_points: bool = True

    @property
    def n_outputs(self) -> int:
        """Number of outputs, or of problems of a classifier."""
        return self.y.shape[1]

    def rows(self, chosen: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return inputs, responses and weights of some rows."""
        return np.ascontiguousarray(self.inputs[chosen]), self.y[chosen], self.weight[chosen]

    def subset(self, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return inputs, responses and weights of at most `most` random rows."""
        return self.rows(np.sort(np.random.default_rng(self.seed).permutation(len(self.y))[:most]))

    def examples(self, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return inputs, responses and weights that frequencies and weights are to explain, of at most `most` rows."""
        return self.subset(most)

    def restricted(self, chosen: NDArray[np.intp]) -> Self:
        """Return the task on some of the rows."""
        x, y, weight = self.rows(chosen)
        return replace(self, inputs=x, y=y, weight=weight)

    def kernel_mean(self, points: FloatArray, x: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
        """Posterior mean of the kernel's Gaussian process given rows, (n_points, n_outputs)."""
        covariance = self.hyperparameters.covariance(x, x, self.n_threads)
        covariance[np.diag_indices_from(covariance)] += self.hyperparameters.noise_variance * weight.mean() / weight
        alpha = solve(covariance, y, assume_a="pos")
        return np.asarray(self.hyperparameters.covariance(points, x, self.n_threads) @ alpha)

    def order(self) -> NDArray[np.intp]:
        """Return the rows in random order: the first of them are held out."""
        return np.random.default_rng(self.seed).permutation(len(self.y))

    def sample_functions(self, model: QuantizedPredictor) -> FloatArray:
        """Functions of a model's samples at all rows without its offset, (n_rows, n_outputs, n_samples)."""
        assert isinstance(model.basis, LinearBasis)
        phi = model.basis.features.map.transform(self.inputs)[:, model.basis.order]
        return np.einsum("ij,ksj->iks", phi, model.weights, optimize=True)

    @abstractmethod
    def score(self, model: QuantizedPredictor, handicap: float) -> Score:
        """Return what all rows say about a model, whose loss is raised by `handicap`."""

    @abstractmethod
    def cast(self, features: SmallMap, counts: Sequence[int]) -> list[QuantizedPredictor]:
        """Fit weights of these features and draw samples of them on levels, a model for each number of samples."""

    def sketch(self, features: SmallMap, n_samples: int) -> QuantizedPredictor:
        """Return a model of the same size whose weights are arbitrary."""
        codes = np.full((self.n_outputs * n_samples, features.n_weights), len(self.grid) - 1, dtype=np.uint8)
        one = np.ones(self.n_outputs)
        return self.assembled(features, Samples(codes, np.ones(features.n_weights), one, one), self.outputs)

    def assembled(self, features: SmallMap, samples: Samples, outputs: Outputs) -> QuantizedPredictor:
        """Assemble a model of samples in integer arithmetic."""
        basis = LinearBasis.of_columns(Basis(self.input_map, features, reach=LINEAR_REACH), np.zeros(self.n_outputs))
        spread = samples.scale[:, None]
        return assemble(basis, samples.codes.T, self.grid, samples.unit, outputs, "integer", spread=spread)


def mapped_inputs(x: FloatArray, weight: FloatArray | None) -> tuple[InputMap, FloatArray]:
    """Return the map that standardises columns, whatever a few gross numbers are, and its values, clipped."""
    input_map = short_inputs(InputMap.fit(within_others(x), weight, rank=False))
    if input_map.n_outputs == 0:
        raise ValueError("X must have a column that varies")
    return input_map, np.clip(input_map.transform(x), -LINEAR_REACH, LINEAR_REACH)


# Least noise variance.
SMALLEST_NOISE = 1e-6
# Rows of the kernel's posterior mean.
MOST_KERNEL_ROWS = 1500
# Of the target's standard deviation: its square must stay finite.
LARGEST_SCALE = 1e150


class TargetTask(Task):
    """Search for a small regressor."""

    @classmethod
    def begin(
        cls,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray | None,
        settings: SearchSettings,
        feature_names: tuple[str, ...],
        grid: FloatArray,
    ) -> TargetTask:
        """Standardise the data and learn the kernel."""
        one_dimensional = y.ndim == 1
        x, y, merged = distinct_rows(x, y.reshape(len(x), -1), weight)
        weight = None if (merged == 1).all() else merged
        target = None if settings.target is None else settings.target(y)
        y = y if target is None else target.transform.forward(y)
        mean, scale = weighted_location_scale(y, weight)
        scale = np.where(scale == 0, 1.0, scale)
        if not ((1 / LARGEST_SCALE < scale) & (scale < LARGEST_SCALE)).all():
            raise ValueError(f"y must vary by less than {LARGEST_SCALE:g} and more than its inverse, got {scale}")
        standardised = np.ascontiguousarray((y - mean) / scale)
        input_map, inputs = mapped_inputs(x, weight)
        rows = KernelRows(inputs, standardised, merged, input_map.n_standardised)
        hyperparameters, _ = search_kernel(rows, settings.rng, max_rows=settings.max_search_rows)
        return cls(
            input_map=input_map,
            inputs=inputs,
            y=standardised,
            weight=merged,
            outputs=Outputs(
                scale=scale,
                offset=mean,
                noise=np.zeros(len(scale)),
                calibration=1.0,
                one_dimensional=one_dimensional,
                n_features_in=x.shape[1],
                feature_names=feature_names,
                target=target,
            ),
            hyperparameters=hyperparameters,
            grid=grid,
            seed=_seed(settings.rng),
            n_threads=settings.n_threads,
        )

    def examples(self, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return rows and, `with_points`, points between them where the kernel's posterior mean stands for targets.

        A few hundred basis functions that were chosen for the rows are kept to the kernel's function between them.
        """
        x, y, weight = self.subset(most)
        if not self.with_points:
            return x, y, weight
        points, mean = self._between
        between = np.full(len(points), WEIGHT_BETWEEN * weight.mean())
        return np.vstack([x, points]), np.vstack([y, mean]), np.concatenate([weight, between])

    @cached_property
    def _between(self) -> tuple[FloatArray, FloatArray]:
        rng = np.random.default_rng(0)  # the same points for all proposals
        x, y, weight = self.rows(np.sort(rng.permutation(len(self.y))[:MOST_KERNEL_ROWS]))
        first, second = rng.integers(0, len(x), (2, 2 * len(x)))
        share = rng.random((len(first), 1))
        points = np.ascontiguousarray(share * x[first] + (1 - share) * x[second])  # on lines between two rows
        return points, self.kernel_mean(points, x, y, weight)

    def score(self, model: QuantizedPredictor, handicap: float) -> Score:
        """Return what all rows and outputs say, standardised."""
        functions = self.sample_functions(model) / self.outputs.scale[:, None]
        noise = model.noise / self.outputs.scale**2
        spreads = SPREADS[SPREADS <= max(model.n_samples / 2, 1)]
        variance = spreads[:, None, None] * functions.var(axis=2) + noise
        error = self.y - functions.mean(axis=2)
        density = self._mean(np.log(2 * np.pi * variance)) / 2 + handicap
        return Score(density, self._mean(error**2 / variance))

    def _mean(self, values: FloatArray) -> FloatArray:
        return np.asarray(values.mean(axis=2) @ self.weight / self.weight.sum())

    def cast(self, features: SmallMap, counts: Sequence[int]) -> list[QuantizedPredictor]:
        """Draw samples at the noise and prior variance of largest evidence."""
        statistics = collect_statistics(features, *self.examples(len(self.y)), n_threads=self.n_threads)
        rotated = decorrelate(statistics)
        problems = [
            DrawProblem(statistics.target(k), *self._evident(rotated.target(k))) for k in range(statistics.n_outputs)
        ]
        rng = np.random.default_rng(self.seed)
        drawn = accurate_samples(problems, counts, self.grid, features.pairs, rng, self.n_threads)
        units = self.outputs.scale**2
        return [self.assembled(features, own, replace(self.outputs, noise=own.noise * units)) for own in drawn]

    def _evident(self, rotated: RotatedTarget) -> tuple[float, float]:
        """Return the noise variance and the prior variance of largest evidence."""
        # The evidence is optimistic about columns chosen for what they explain; the kernel's noise is not.
        least = max(self.hyperparameters.noise_variance, SMALLEST_NOISE)
        noise, variance = maximise_evidence(rotated, least)
        if noise < least:
            noise, variance = maximise_evidence(rotated, least, variance, fit_noise=False)
        return noise, variance


# Number of features of the classifier whose logits choose frequencies, and the least p(1 − p) that divides.
REFERENCE_FEATURES = 512
LEAST_CURVATURE = 0.02


@dataclass(frozen=True, kw_only=True)
class LabelTask(Task):
    """Search for a small classifier.

    Frequencies are chosen for working responses: with z the logits and p the probabilities of a classifier of random
    frequencies, ``z + (t − p)/v`` at rows of weight v, the mean of p(1 − p) over the problems, has the gradient of the
    log-likelihood there (iteratively reweighted least squares). Weights are those of the classifier's own fit.
    """

    # int (n_rows,): class of every row
    index: NDArray[np.intp]
    # (n_rows,)
    row_weight: FloatArray
    fits: ClassifierFits

    @classmethod
    def begin(
        cls,
        x: FloatArray,
        y: ArrayLike,
        weight: FloatArray | None,
        settings: SearchSettings,
        feature_names: tuple[str, ...],
        grid: FloatArray,
    ) -> LabelTask:
        """Fit the classifier of random frequencies and derive the working responses."""
        fits = settings.classifier
        assert fits is not None
        labels = np.asarray(y)
        if len(labels) != len(x):
            raise ValueError(f"y must have {len(x)} rows, got {len(labels)}")
        given = np.ones(len(x)) if weight is None else weight
        x, labels, given = fits.weighted(x[given > 0], labels[given > 0], given[given > 0])
        form = {"features": "fourier", "n_basis_functions": REFERENCE_FEATURES, "seed": _seed(settings.rng)}
        reference: ClassifierFit = fits.fit(x, labels, given, **form)
        assert reference.hyperparameters is not None
        classes, index = np.unique(labels, return_inverse=True)
        z, p = reference.logit, _probabilities(reference.logit)
        curvature = np.maximum((p * (1 - p)).mean(axis=1), LEAST_CURVATURE)
        n_problems = z.shape[1]
        right = index[:, None] == (np.arange(n_problems) if n_problems > 1 else 1)
        response = (z + (right - p) / curvature[:, None] - reference.intercept) / LOGIT_UNIT
        mean = float(given @ curvature / given.sum())
        input_map, inputs = mapped_inputs(x, given)
        return cls(
            input_map=input_map,
            inputs=inputs,
            y=response,
            weight=given * curvature / mean,
            outputs=Outputs.of_logits(reference.intercept, classes, x.shape[1], feature_names),
            hyperparameters=replace(reference.hyperparameters, noise_variance=1 / (LOGIT_UNIT**2 * mean)),
            grid=grid,
            seed=_seed(settings.rng),
            n_threads=settings.n_threads,
            index=index,
            row_weight=given,
            fits=fits,
        )

    def restricted(self, chosen: NDArray[np.intp]) -> Self:
        """Return the task on some of the rows."""
        part = super().restricted(chosen)
        return replace(part, index=self.index[chosen], row_weight=self.row_weight[chosen])

    def order(self) -> NDArray[np.intp]:
        """Return the rows in random order, with one row of every class at the end, which is not held out."""
        order = super().order()
        first = np.unique(self.index[order], return_index=True)[1]
        return np.concatenate([np.delete(order, first), order[first]])

    def score(self, model: QuantizedPredictor, handicap: float) -> Score:
        """Return the mean log loss of the probabilities averaged over the samples."""
        assert isinstance(model, QuantizedClassifier)
        p = model.probabilities(self.sample_functions(model) + model.offset[:, None])
        right = p[np.arange(len(p)), self.index]
        losses = -np.log(np.maximum(right, np.finfo(float).tiny))
        return Score((self.row_weight @ losses / self.row_weight.sum())[None] + handicap, np.ones(1))

    def cast(self, features: SmallMap, counts: Sequence[int]) -> list[QuantizedPredictor]:
        """Fit the classifier on these features and draw samples about its mean, with Laplace's precision."""
        phi = np.ascontiguousarray(features.transform(self.inputs))
        form_of_phi = {"features": "precomputed", "n_basis_functions": phi.shape[1], "seed": self.seed}
        fit: ClassifierFit = self.fits.fit(phi, self.index, self.row_weight, **form_of_phi)
        p = _probabilities(fit.logit)
        problems = []
        for k, (posterior, scale) in enumerate(zip(fit.posteriors, fit.prior_scale, strict=True)):
            precision = phi.T @ (phi * (self.row_weight * p[:, k] * (1 - p[:, k]))[:, None])
            precision[np.diag_indices_from(precision)] += 1 / scale**2
            problems.append(gaussian_problem(precision, scale * posterior.coefficients, float(scale**2)))
        rng = np.random.default_rng(self.seed)
        drawn = draw_samples(problems, counts, self.grid, features.pairs, rng, self.n_threads)
        outputs = replace(self.outputs, offset=fit.intercept)
        return [self.assembled(features, own, outputs) for own in drawn]


def _probabilities(z: FloatArray) -> FloatArray:
    """Return σ(z) of one logit, (n_rows, 1), or softmax(z) of one per class."""
    return expit(z) if z.shape[1] == 1 else softmax(z, axis=1)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
