"""The exponential bound: its kernel, its gradients, and fits that maximise it."""

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from scipy.special import expit, softmax

from pydirect import GaussianPrior, SpikeAndSlabPrior, evenly_spaced_levels, fit_logistic
from pydirect.logistic import LabelledRows
from pydirect.logistic import exponential as exponential_module
from pydirect.logistic import rows as rows_module
from pydirect.logistic.exponential import exponential_bound, exponential_log_terms
from pydirect.logistic.rows import RotatedFeatures
from tests.helpers.oracles import finite_difference_gradient

LEVELS = evenly_spaced_levels(5, 2.0)


def exact_log_terms(rows, levels, q):
    phi, q, levels = (np.asarray(a, dtype=np.longdouble) for a in (rows.x, q, levels))
    out = np.empty(len(phi), dtype=np.longdouble)
    for i, t in enumerate(rows.t[:, 0]):
        out[i] = -t * rows.offset[0] + np.log((q * np.exp(-t * phi[i][:, None] * levels)).sum(axis=1)).sum()
    return out


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("n", "b", "m"), [(1, 1, 1), (3, 7, 2), (4, 8, 15), (5, 9, 4), (17, 33, 16)])
def test_log_terms_are_products_over_the_weights(make_rows, random_q, at_every_level, n, b, m, even):
    rows, q = make_rows(n, b, m), random_q(b, m)
    levels = evenly_spaced_levels(m, 3.0)[None] if m > 1 else np.array([[0.7]])
    levels = levels + np.linspace(0, 1, b)[:, None]
    if not even:
        levels = levels + 0.2 * np.random.default_rng(0).standard_normal((b, m))
    got = at_every_level(lambda: exponential_log_terms(rows, levels, q))
    np.testing.assert_allclose(got, exact_log_terms(rows, levels, q).astype(float), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("even", [True, False])
def test_log_terms_are_exact_for_thousands_of_large_factors(even):
    rng = np.random.default_rng(0)
    b, levels = 2000, evenly_spaced_levels(15, 5.0)
    rows = LabelledRows.from_arrays(rng.uniform(-10, 10, (6, b)), np.sign(rng.standard_normal(6)), n_threads=1)
    q = rng.dirichlet(np.full(15, 0.3), size=b)
    q[:50] = np.eye(15)[rng.integers(0, 15, 50)]
    if not even:
        levels = np.sort(rng.uniform(-5, 5, 15))
    exact = exact_log_terms(rows, levels, q)
    assert np.abs(exact).max() > 1e4
    np.testing.assert_allclose(exponential_log_terms(rows, levels[None], q), exact.astype(float), rtol=2e-14)
    value, gradient = exponential_bound(rows, levels[None], q)
    assert value == -np.inf and np.isfinite(gradient).all()


@pytest.mark.parametrize("even", [True, False])
def test_the_gradient_is_that_of_the_value(make_rows, random_q, even):
    rows, q = make_rows(9, 5), random_q(5, 5)
    levels = LEVELS if even else LEVELS + np.array([0.0, 0.1, -0.2, 0.1, 0.3])
    value, gradient = exponential_bound(rows, levels[None], q)
    assert value == pytest.approx(-(rows.weight @ np.exp(exact_log_terms(rows, levels, q)).astype(float)), rel=1e-12)
    differences = finite_difference_gradient(lambda p: exponential_bound(rows, levels[None], p)[0], q)
    np.testing.assert_allclose(gradient, differences, rtol=1e-7)


def test_the_objective_in_logits_has_its_gradient(make_rows, random_q):
    rows, q = make_rows(9, 5), random_q(5, 5)
    log_prior = np.broadcast_to(SpikeAndSlabPrior(0.5).log_mass(LEVELS), q.shape)
    objective = exponential_module._ExponentialObjective(rows, np.broadcast_to(LEVELS, q.shape), log_prior, Event())
    value, gradient = objective.value_and_gradient(np.log(q).ravel())
    assert value == pytest.approx(objective.value(np.log(q)), rel=1e-12)
    differences = finite_difference_gradient(objective.value, np.log(q))
    np.testing.assert_allclose(gradient, differences.ravel(), rtol=1e-6, atol=1e-8)


def test_the_kernel_has_the_same_bits_for_any_threads_and_instruction_set(make_rows, random_q, at_every_level):
    rows, q = make_rows(1100, 21), random_q(21, 15)
    levels = evenly_spaced_levels(15)[None]
    results = []
    for n_threads in (1, 2, 3):
        threaded = replace(rows, n_threads=n_threads)
        value, gradient = at_every_level(lambda r=threaded: exponential_bound(r, levels, q))
        results.append(np.asarray(value).tobytes() + gradient.tobytes())
    assert results[0] == results[1] == results[2]


def test_features_too_large_for_the_exponential_bound_are_refused():
    rows = LabelledRows.from_arrays([[1.0], [400.0]], [1, -1])
    with pytest.raises(ValueError, match="at most 600 for the exponential bound, got 800"):
        exponential_bound(rows, np.array([[-1.0, 1.0]]), np.array([[0.5, 0.5]]))


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
    gradient = exponential_bound(rows, levels[None], posterior.q)[1]
    best = softmax(log_prior + gradient, axis=1)
    np.testing.assert_allclose(posterior.q, best, atol=0.02)


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
    assert posterior.q.shape == (8, 5) and posterior.elbo == pytest.approx(expected.elbo, abs=0.6)
