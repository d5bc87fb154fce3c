"""Hyperparameters of the kernel from labels."""

import numpy as np
import pytest

from pydirect.features.search import KernelRows
from pydirect.logistic.kernel_evidence import (
    LOGIT_UNIT,
    ContrastLikelihood,
    LatentMarginalLikelihood,
    counts_without_classes,
    fit_label_hyperparameters,
    rows_by_class,
)
from pydirect.logistic.likelihood import softmax_terms
from tests.helpers.oracles import finite_difference_gradient

RNG = np.random.default_rng(0)
X = np.hstack([x := RNG.standard_normal((12, 2)), x])
WEIGHT = RNG.integers(1, 4, 12).astype(float)
TWO = np.where(2 * np.sin(3 * X[:, :1]) + RNG.logistic(size=(12, 1)) > 0, 1.0, -1.0)
THREE = np.where(RNG.integers(0, 3, 12)[:, None] == np.arange(3), 1.0, -1.0)


def problem(t, rows=slice(None), weight=WEIGHT):
    own = KernelRows(X[rows], t[rows], weight[rows], n_linear=2)
    return LatentMarginalLikelihood(own, ContrastLikelihood.of_labels(own.y, own.weight))


def found_by(x, t, rng=None, **options):
    rng = np.random.default_rng(0) if rng is None else rng
    return fit_label_hyperparameters(KernelRows(x, t, np.ones(len(x)), x.shape[1], **options), rng)


def brought_up_to_date(objective, theta, n=15):
    for _ in range(n):
        objective.update(theta)
    return objective


@pytest.mark.parametrize("t", [TWO, THREE], ids=["two classes", "three"])
def test_the_gradient_is_that_of_the_value_at_fixed_sites(t):
    objective = problem(t)
    objective.update(objective.start)
    theta = objective.start + 0.1 * RNG.standard_normal(len(objective.start))
    differences = finite_difference_gradient(lambda at: objective(at)[0], theta)
    np.testing.assert_allclose(objective(theta)[1], differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("t", [TWO, THREE], ids=["two classes", "three"])
def test_up_to_date_it_is_the_gradient_of_the_elbo(t, monkeypatch):
    """Of the ELBO whose q follows θ, one hyperparameter after the other."""
    monkeypatch.setattr("pydirect.logistic.kernel_evidence.STEP_GAIN", 0.0)
    theta = problem(t).start
    exact = brought_up_to_date(problem(t), theta)(theta)[1]
    for j in (1, len(theta) - 1):
        step = 1e-2 * (np.arange(len(theta)) == j)
        up, down = (brought_up_to_date(problem(t), theta + s)(theta + s)[0] for s in (step, -step))
        np.testing.assert_allclose((up - down) / 2e-2, exact[j], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("t", [TWO, THREE], ids=["two classes", "three"])
def test_the_value_is_the_elbo_of_the_best_gaussian(t, monkeypatch):
    """Against its definition, the expected log-likelihood less KL divergences of dense covariances."""
    monkeypatch.setattr("pydirect.logistic.kernel_evidence.STEP_GAIN", 0.0)
    objective = problem(t)
    theta = objective.start
    brought_up_to_date(objective, theta)
    prior = LOGIT_UNIT**2 * objective.unpack(theta).covariance(X, X)
    contrasts, offset = objective.likelihood.contrasts, objective.likelihood.offset
    covariance = np.linalg.inv(np.linalg.inv(prior) + np.diag(objective.sites.second))
    mean = covariance @ objective.sites.first
    terms = softmax_terms(t, offset + mean @ contrasts.T, covariance.diagonal().copy())
    inverse = np.linalg.inv(prior)
    log_determinants = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(covariance)[1]
    kl = 0.5 * (np.trace(inverse @ covariance) - len(X) + log_determinants) * contrasts.shape[1]
    kl += 0.5 * np.einsum("ik,ij,jk->", mean, inverse, mean)
    elbo = WEIGHT @ terms.value - kl
    np.testing.assert_allclose(objective(theta)[0] - objective.function.penalty(theta)[0], -elbo, rtol=1e-6)
    # The best one: its moments are a stationary point, of the mean ...
    residual = (WEIGHT[:, None] * terms.residual) @ contrasts
    np.testing.assert_allclose(prior @ residual, mean, atol=1e-3 * np.abs(mean).max())
    # ... and of the shared covariance.
    np.testing.assert_allclose(WEIGHT * terms.precision, objective.sites.second, rtol=1e-2)


def test_updates_raise_the_elbo_and_starts_are_forgotten_at_another_smoothness():
    objective = problem(THREE)
    values = []
    for _ in range(5):
        objective.update(objective.start)
        values.append(objective(objective.start)[0])
    assert (np.diff(values) < 1e-9).all()
    other = objective.at(1.5)
    other.update(other.start)
    assert other(other.start)[0] == values[0] and objective(objective.start)[0] == values[-1]


@pytest.mark.parametrize("t", [TWO, THREE], ids=["two classes", "three"])
def test_a_weight_is_a_number_of_repetitions(t):
    """At equal likelihoods: a row of weight two has the same posterior as a row given twice."""
    weighted, repeated = problem(t), problem(t, np.repeat(np.arange(12), WEIGHT.astype(int)), np.ones(12))
    theta = weighted.start
    for objective in (weighted, repeated):
        brought_up_to_date(objective, theta)
    first = np.cumsum(np.r_[0, WEIGHT[:-1]]).astype(int)
    ratio = weighted.sites.second / repeated.sites.second[first]
    np.testing.assert_allclose(ratio, WEIGHT, rtol=1e-2)
    np.testing.assert_allclose(weighted(theta)[0], repeated(theta)[0], rtol=1e-3)


def test_contrasts_of_logits_are_orthonormal_and_blind_to_their_mean():
    likelihood = ContrastLikelihood.of_labels(THREE, np.ones(12))
    np.testing.assert_allclose(likelihood.contrasts.T @ likelihood.contrasts, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(likelihood.contrasts.sum(axis=0), 0.0, atol=1e-12)
    assert ContrastLikelihood.of_labels(TWO, np.ones(12)).contrasts.shape == (1, 1)


def test_rows_are_drawn_by_class():
    index = np.r_[np.zeros(900, dtype=int), np.ones(40, dtype=int), np.full(60, 2)]
    rows = rows_by_class(index, 300, np.random.default_rng(0))
    assert len(np.unique(rows)) == 300
    np.testing.assert_array_equal(np.bincount(index[rows]), [200, 40, 60])
    assert np.bincount(index[rows[:150]])[1] in (19, 20, 21)
    assert sorted(rows_by_class(index, 5000, np.random.default_rng(0))) == list(range(1000))


def test_class_weights_do_not_count():
    index = (TWO[:, 0] > 0).astype(int)
    factors = np.array([0.3, 7.1])[index]
    np.testing.assert_array_equal(counts_without_classes(X, index, factors), np.ones(12))


def test_the_column_that_matters_has_the_shortest_length_scale():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((150, 3))
    t = np.where(6 * np.sin(3 * x[:, :1]) + rng.logistic(size=(150, 1)) > 0, 1.0, -1.0)
    found, record = found_by(x, t, rng)
    assert record.starts[-1] == "screened" and record.relevant.tolist() == [0]
    assert "smoothness" not in repr(record)  # nothing was compared
    assert found.length_scales.argmin() == 0 and found.length_scales[0] < 0.5 * found.length_scales[1:].min()


def test_effects_of_single_columns_get_a_product_over_axes():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (400, 2))
    logits = 4 * np.stack([np.sin(3 * x[:, 0]), np.cos(3 * x[:, 1]), 0.15 * x.sum(axis=1)], axis=1)
    index = (logits + rng.gumbel(size=(400, 3))).argmax(axis=1)
    t = np.where(index[:, None] == np.arange(3), 1.0, -1.0)
    found, record = found_by(x, t, axes=np.arange(2))
    assert found.product_amplitude > 0 == found.isotropic_amplitude and record.axes_chosen == found.product_order
    assert "in place of the isotropic part: +" in repr(record)
    assert found_by(x, t)[1].axes_chosen is None
