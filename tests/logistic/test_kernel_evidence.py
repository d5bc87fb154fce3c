"""Hyperparameters of the kernel from labels."""

import numpy as np

from pydirect.logistic.kernel_evidence import (
    LOGIT_UNIT,
    LabelMarginalLikelihood,
    LabelReferee,
    fit_label_hyperparameters,
)
from pydirect.testing import finite_difference_gradient

RNG = np.random.default_rng(0)
X = np.hstack([x := RNG.standard_normal((40, 2)), x])
T = np.where(2 * np.sin(3 * X[:, :1]) + RNG.logistic(size=(40, 2)) > 0, 1.0, -1.0)
WEIGHT, OFFSET = RNG.integers(1, 4, 40).astype(float), np.array([0.3, -0.2])


def test_the_gradient_is_that_of_the_value():
    objective = LabelMarginalLikelihood(X, T, WEIGHT, OFFSET, n_linear=2, n_threads=1)
    theta = objective.start
    objective.update(theta)
    theta = theta + 0.1 * RNG.standard_normal(len(theta))
    gradient = objective(theta)[1]
    differences = finite_difference_gradient(lambda at: objective(at)[0], theta)
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-6)


def test_values_at_different_bounds_are_comparable():
    """Updates of ξ tighten the bound at fixed hyperparameters."""
    objective = LabelMarginalLikelihood(X, T, WEIGHT, OFFSET, n_linear=2, n_threads=1)
    values = [objective(objective.start)[0]]
    for _ in range(4):
        objective.update(objective.start)
        values.append(objective(objective.start)[0])
    assert (np.diff(values) < 1e-9).all() and values[-1] < values[0] - 0.1
    other = objective.at(1.5)
    assert other(objective.start)[0] == values[0] and objective(objective.start)[0] == values[-1]


def test_the_value_is_the_bound_on_the_evidence():
    """With all rows as landmarks, the referee's bound is the objective's without its prior."""
    differences = []
    for shift in (0.0, 0.5):
        objective = LabelMarginalLikelihood(X, T, np.ones(40), OFFSET, n_linear=2, n_threads=1)
        theta = objective.start + shift * (np.arange(len(objective.start)) > 0)
        for _ in range(5):
            objective.update(theta)
        referee = LabelReferee(X, T, np.ones(40), OFFSET, np.random.default_rng(0))
        own = objective(theta)[0] - objective.parts[0].penalty(theta)[0]
        differences.append(own + referee(objective.unpack(theta)))
    np.testing.assert_allclose(differences, -T.size * np.log(LOGIT_UNIT), atol=2e-3)  # targets' own unit


def test_updates_of_xi_converge():
    objective = LabelMarginalLikelihood(X, T, WEIGHT, OFFSET, n_linear=2, n_threads=1)
    changes = []
    for _ in range(12):
        before = objective.xi.copy()
        objective.update(objective.start)
        changes.append(np.abs(objective.xi - before).max())
    assert changes[-1] < 1e-3 * changes[0]


def test_the_column_that_matters_has_the_shortest_length_scale():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 3))
    t = np.where(3 * np.sin(3 * x[:, :1]) + rng.logistic(size=(300, 1)) > 0, 1.0, -1.0)
    found, record = fit_label_hyperparameters(x, t, np.ones(300), np.zeros(1), n_linear=3, rng=rng, max_rows=200)
    assert record.starts[-1] == "screened" and record.relevant.tolist() == [0]
    assert found.length_scales.argmin() == 0 and found.length_scales[0] < 0.5 * found.length_scales[1:].min()
