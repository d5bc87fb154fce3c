"""Search for small classifiers: samples of the weights of a classifier on a few basis functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from pydirect._validation import FloatArray
from pydirect.features.maps import FourierFeatures
from pydirect.logistic.kernel_evidence import LOGIT_UNIT
from pydirect.quantized.budget.costs import Form
from pydirect.quantized.budget.draws import draw_samples, gaussian_problem
from pydirect.quantized.budget.settings import ClassifierFit, ClassifierFits, SearchSettings
from pydirect.quantized.budget.task import Task, mapped_inputs
from pydirect.quantized.fitted import Outputs
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor

# Number of features of the classifier whose logits choose frequencies, and the least p(1 − p) that divides.
REFERENCE_FEATURES = 512
LEAST_CURVATURE = 0.02


@dataclass(frozen=True, kw_only=True)
class LabelTask(Task):
    """Search for a small classifier.

    Frequencies are chosen for working responses: with z the logits and p the probabilities of a classifier of random
    frequencies, ``z + (t − p)/v`` at rows of weight v, the mean of p(1 − p) over the problems, has the gradient of the
    log-likelihood there (iteratively reweighted least squares). Weights are those of the classifier's own fit.

    - `index`, int (n_rows,): class of every row.
    - `row_weight`, (n_rows,).
    """

    index: NDArray[np.intp]
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
    ) -> LabelTask:
        """Fit the classifier of random frequencies and derive the working responses."""
        fits = settings.classifier
        assert fits is not None
        labels = np.asarray(y)
        if len(labels) != len(x):
            raise ValueError(f"y must have {len(x)} rows, got {len(labels)}")
        given = np.ones(len(x)) if weight is None else weight
        x, labels, given = fits.weighted(x[given > 0], labels[given > 0], given[given > 0])
        reference = _fitted(fits, settings.rng, x, labels, given, "fourier", REFERENCE_FEATURES)
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
            rng=settings.rng,
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

    def loss(self, model: QuantizedPredictor) -> float:
        """Mean log loss of the probabilities averaged over the samples."""
        assert isinstance(model, QuantizedClassifier)
        p = model.probabilities(self.sample_functions(model) + model.offset[:, None])
        right = p[np.arange(len(p)), self.index]
        return float(self.row_weight @ -np.log(np.maximum(right, np.finfo(float).tiny)) / self.row_weight.sum())

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedPredictor:
        """Fit the classifier on these features and draw samples about its mean, with Laplace's precision."""
        phi = np.ascontiguousarray(features.transform(self.inputs))
        fit = _fitted(self.fits, self.rng, phi, self.index, self.row_weight, "precomputed", phi.shape[1])
        p = _probabilities(fit.logit)
        problems = []
        for k, (posterior, scale) in enumerate(zip(fit.posteriors, fit.prior_scale, strict=True)):
            precision = phi.T @ (phi * (self.row_weight * p[:, k] * (1 - p[:, k]))[:, None])
            precision[np.diag_indices_from(precision)] += 1 / scale**2
            problems.append(gaussian_problem(precision, scale * posterior.coefficients, float(scale**2)))
        samples = draw_samples(problems, form.n_samples, form.grid, features.pairs, self.rng, self.n_threads)
        return self.assembled(features, samples, replace(self.outputs, offset=fit.intercept), form)


def _probabilities(z: FloatArray) -> FloatArray:
    """Return σ(z) of one logit, (n_rows, 1), or softmax(z) of one per class."""
    return expit(z) if z.shape[1] == 1 else softmax(z, axis=1)


def _fitted(
    fits: ClassifierFits,
    rng: np.random.Generator,
    x: FloatArray,
    labels: NDArray[Any],
    weight: FloatArray,
    features: str,
    n_basis_functions: int,
) -> ClassifierFit:
    seed = int(rng.integers(2**31))
    return fits.fit(x, labels, weight, features=features, n_basis_functions=n_basis_functions, seed=seed)
