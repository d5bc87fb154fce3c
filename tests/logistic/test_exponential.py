"""The exponential bound: its terms, and fits that maximise it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, softmax

from pydirect import GaussianPrior, evenly_spaced_levels, fit_logistic
from pydirect.logistic import LabelledRows, rows as rows_module
from pydirect.logistic.exponential import exponential_log_terms
from pydirect.logistic.rows import RotatedFeatures

LEVELS = evenly_spaced_levels(5, 2.0)


def exact_log_terms(rows, levels, q):
    phi, q, levels = (np.asarray(a, dtype=np.longdouble) for a in (rows.x, q, levels))
    out = np.empty(len(phi), dtype=np.longdouble)
    for i, t in enumerate(rows.t[:, 0]):
        out[i] = -t * rows.offset[0] + np.log((q * np.exp(-t * phi[i][:, None] * levels)).sum(axis=1)).sum()
    return out


@pytest.mark.parametrize(("n", "b", "m"), [(1, 1, 1), (3, 7, 2), (17, 33, 16)])
def test_log_terms_are_products_over_the_weights(make_rows, random_q, n, b, m):
    rows, q = make_rows(n, b, m), random_q(b, m)
    levels = np.sort(np.random.default_rng(0).uniform(-3, 3, (b, m)), axis=1)
    found, exact = exponential_log_terms(rows, levels, q), exact_log_terms(rows, levels, q)
    np.testing.assert_allclose(found, exact.astype(float), rtol=1e-12, atol=1e-13)


def test_log_terms_are_exact_for_thousands_of_large_factors():
    rng = np.random.default_rng(0)
    b, levels = 2000, np.sort(rng.uniform(-5, 5, 15))
    rows = LabelledRows.from_arrays(rng.uniform(-10, 10, (6, b)), np.sign(rng.standard_normal(6)), n_threads=1)
    q = rng.dirichlet(np.full(15, 0.3), size=b)
    q[:50] = np.eye(15)[rng.integers(0, 15, 50)]
    exact = exact_log_terms(rows, levels, q)
    assert np.abs(exact).max() > 1e4
    np.testing.assert_allclose(exponential_log_terms(rows, levels[None], q), exact.astype(float), rtol=2e-14)


def test_features_too_large_for_the_exponential_bound_are_refused():
    rows = LabelledRows.from_arrays([[1.0], [400.0]], [1, -1])
    with pytest.raises(ValueError, match="at most 600 for the exponential bound, got 800"):
        exponential_log_terms(rows, np.array([[-1.0, 1.0]]), np.array([[0.5, 0.5]]))


@pytest.mark.parametrize("weighted", [False, True])
def test_no_weight_alone_can_raise_the_fitted_exponential_bound(weighted):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3))
    t = np.where(rng.random(300) < expit(1.5 * x[:, 0] - 3.0), 1.0, -1.0)
    weight = np.where(t > 0, 6.0, 0.5) if weighted else None
    rows = LabelledRows.from_arrays(np.c_[np.ones(300), x], t, weight, likelihood="jaakkola")
    levels = evenly_spaced_levels(15, 6.0)
    log_prior = GaussianPrior(2.0).log_mass(levels)
    posterior = fit_logistic(rows, levels, log_prior, bound="exponential")
    assert posterior.converged and (np.diff(posterior.elbo_trace) >= -1e-9).all()
    for j in range(4):  # the bound is linear in every q_j
        certain = [np.where(np.arange(4)[:, None] == j, one, posterior.q) for one in np.eye(15)]
        slope = [-rows.weight @ np.exp(exponential_log_terms(rows, levels[None], q)) for q in certain]
        np.testing.assert_allclose(posterior.q[j], softmax(log_prior + slope), atol=0.02)


def test_a_forbidden_level_keeps_no_mass_under_the_exponential_bound(make_rows):
    log_prior = GaussianPrior().log_mass(LEVELS)
    log_prior[1] = -np.inf
    posterior = fit_logistic(make_rows(likelihood="jaakkola"), LEVELS, log_prior, bound="exponential")
    assert (posterior.q[:, 1] == 0).all() and np.isfinite(posterior.elbo)


def test_rows_too_large_to_be_held_are_fitted_too(make_rows, monkeypatch):
    rows = make_rows(30, 4)
    held = LabelledRows.from_arrays(np.hstack([rows.x, rows.x**2]), rows.t, likelihood="jaakkola")
    wide = replace(held, features=RotatedFeatures(held.features, np.eye(8)[:, ::-1]))
    log_prior = GaussianPrior().log_mass(LEVELS)
    expected = fit_logistic(held, LEVELS, log_prior, bound="exponential")
    monkeypatch.setattr(rows_module, "HELD_BYTES", 0)
    posterior = fit_logistic(wide, LEVELS, log_prior, bound="exponential")
    assert posterior.q.shape == (8, 5) and posterior.elbo == pytest.approx(expected.elbo, abs=0.01)
