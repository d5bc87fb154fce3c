"""Shapley values of classifiers: contributions to the probabilities of classes."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from pydirect import DirectClassifier, DVIClassifier, PooledClassifier
from pydirect.explain import shapley_values
from pydirect.networks.training import TrainingSchedule

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 3))
LABELS = np.where(X[:, 0] > 0.5, "high", np.where(X[:, 1] > 0, "mid", "low"))


@pytest.mark.parametrize("labels", [LABELS, LABELS == "high"], ids=["three", "two"])
@pytest.mark.parametrize("estimator", [DirectClassifier("linear"), PooledClassifier()], ids=["kernel", "pool"])
def test_they_add_up_to_the_probabilities(labels, estimator):
    model = estimator.fit(X, labels)
    found = shapley_values(model, X[:4], X[10:14])
    p = model.predict_proba(X)[:, 1 if found.values.ndim == 2 else slice(None)]
    assert found.of == "probability" and found.values.shape == (4, 3, *p.shape[1:])
    np.testing.assert_allclose(found.prediction, p[:4])
    np.testing.assert_allclose(found.base, p[10:14].mean(axis=0))
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), p[:4], atol=1e-12)
    of_columns = np.abs(found.values).reshape(4, 3, -1).max(axis=(0, 2))
    assert of_columns[2] < 0.5 * of_columns[0]


def test_several_columns_of_labels_are_refused():
    model = DirectClassifier("linear").fit(X, np.column_stack([LABELS, LABELS == "high"]))
    for background in (None, X[:2]):
        with pytest.raises(ValueError, match=r"model must be of one column .* got one of several: .* estimators_"):
            shapley_values(model, X[:2], background)
    shapley_values(model.estimators_[1], X[:2])


def test_mean_rows_and_networks():
    by_mean = shapley_values(DirectClassifier().fit(X, LABELS), X[:2])
    np.testing.assert_allclose(by_mean.base.sum(), 1.0)
    with pytest.warns(ConvergenceWarning):
        network = DVIClassifier((4,), schedule=TrainingSchedule(n_steps=20)).fit(X, LABELS)
    found = shapley_values(network, X[:1], X[10:12])
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), network.predict_proba(X[:1]), atol=1e-12)
