"""The same search for labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from pydirect._validation import FloatArray
from pydirect.features.maps import FourierFeatures
from pydirect.logistic.kernel_evidence import LOGIT_UNIT
from pydirect.quantized.budget.costs import Form
from pydirect.quantized.budget.frequencies import LEAST_CURVATURE, mapped_inputs
from pydirect.quantized.budget.task import REFERENCE_FEATURES, Task, quiet
from pydirect.quantized.lattice import rounded_on_best_scale, sample_targets
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor


@dataclass(frozen=True)
class LabelTask(Task):
    """Labels instead of targets.

    Frequencies are chosen for working responses: with z the logits and p the probabilities of a classifier of random
    frequencies, ``z + (t − p)/v`` at rows of weight v, the mean of p(1 − p) over the problems, has the gradient of the
    log-likelihood there (iteratively reweighted least squares). Weights are those of the classifier's own fit.
    """

    index: NDArray[np.intp]  # of each row's class
    classes: NDArray[Any]
    row_weight: FloatArray
    make: Callable[[str, int], Any]  # an unfitted classifier of features of this kind and number

    @classmethod
    def begin(
        cls,
        x: FloatArray,
        y: ArrayLike,
        weight: FloatArray | None,
        model: Any,
        rng: np.random.Generator,
        n_threads: int,
    ) -> LabelTask:
        """Prepare the search; see `Task.begin`."""

        def make(features: str, n_features: int) -> Any:
            return type(model)(
                features,
                n_features,
                rank_inputs=False,
                max_hyperparameter_rows=model.max_hyperparameter_rows,
                n_threads=n_threads,
                random_state=int(rng.integers(2**31)),
            )

        labels = np.asarray(y)
        if len(labels) != len(x):
            raise ValueError(f"y must have {len(x)} rows, got {len(labels)}")
        given = np.ones(len(x)) if weight is None else weight
        x, labels, given = model._class_weighted(x[given > 0], labels[given > 0], given[given > 0])
        reference = make("fourier", REFERENCE_FEATURES)
        with quiet():
            reference.fit(x, labels, given)
        classes, index = np.unique(labels, return_inverse=True)
        z = np.reshape(reference.predict_logit(x), (len(x), -1))
        p = expit(z)
        curvature = np.maximum((p * (1 - p)).mean(axis=1), LEAST_CURVATURE)
        n_problems = z.shape[1]
        right = index[:, None] == (np.arange(n_problems) if n_problems > 1 else 1)
        response = (z + (right - p) / curvature[:, None] - reference.intercept_) / LOGIT_UNIT
        mean = float(given @ curvature / given.sum())
        input_map, inputs = mapped_inputs(x, given)
        hyper = replace(reference.features_.hyperparameters, noise_variance=1 / (LOGIT_UNIT**2 * mean))
        unit = np.full(n_problems, LOGIT_UNIT)
        fields = (given * curvature / mean, reference.intercept_, unit, n_problems == 1, hyper, rng, n_threads)
        return cls(input_map, inputs, response, *fields, index, classes, given, make)

    def restricted(self, chosen: NDArray[np.intp]) -> LabelTask:
        """Return the task on some of the rows."""
        part = super().restricted(chosen)
        assert isinstance(part, LabelTask)
        return replace(part, index=self.index[chosen], row_weight=self.row_weight[chosen])

    def order(self) -> NDArray[np.intp]:
        """Rows at random, one of every class at the end: it is not held out."""
        order = super().order()
        first = np.unique(self.index[order], return_index=True)[1]
        return np.concatenate([np.delete(order, first), order[first]])

    def loss(self, model: QuantizedPredictor) -> float:
        """Mean log loss of the probabilities over the samples."""
        assert isinstance(model, QuantizedClassifier)
        p = model.probabilities(self.sample_functions(model) + model.offset[:, None])
        right = p[np.arange(len(p)), self.index]
        return float(self.row_weight @ -np.log(np.maximum(right, np.finfo(float).tiny)) / self.row_weight.sum())

    def cast(self, features: FourierFeatures, form: Form) -> QuantizedPredictor:
        """Cast the classifier's own posteriors into samples on a lattice."""
        phi = np.ascontiguousarray(features.transform(self.inputs))
        estimator = self.make("precomputed", phi.shape[1])
        with quiet():
            estimator.fit(phi, self.index, self.row_weight)
        p = expit(np.reshape(estimator.predict_logit(phi), (len(phi), -1)))
        codes, units = [], []
        for k, posterior in enumerate(estimator.posteriors_):
            scale = estimator.prior_scale_[k]
            targets = scale * sample_targets(posterior, form.n_samples, "moments", self.rng)
            # Laplace's approximation of the posterior precision.
            metric = phi.T @ (phi * (self.row_weight * p[:, k] * (1 - p[:, k]))[:, None])
            metric[np.diag_indices_from(metric)] += 1 / scale**2
            chosen, unit = rounded_on_best_scale(targets, form.grid, metric)
            codes.append(chosen)
            units.append(unit)
        return QuantizedClassifier(
            scale=np.array(units),
            offset=estimator.intercept_,
            noise=np.zeros(form.n_outputs),
            classes=self.classes,
            **self._packed(features, np.vstack(codes), form),
        )
