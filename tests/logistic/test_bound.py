"""Bounds on the logistic likelihood: below the truth, and exact where they touch it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_expit

from pydirect import evenly_spaced_levels
from pydirect.logistic.bound import jaakkola_bound, jaakkola_lambda
from pydirect.logistic.exponential import exponential_bound
from pydirect.testing import enumerate_factorized

LEVELS = evenly_spaced_levels(5, 2.0)


def expected_log_likelihood(rows, levels, q):
    """Σ ω E log σ(t z), summed over every weight vector."""
    listed = enumerate_factorized(levels, q, [1.0], [1.0])
    z = rows.offset + listed.weights @ rows.x.T
    return float(listed.weight_probability @ (log_expit(rows.t * z) @ rows.weight))


def moments(rows, levels, q):
    mean = (q * levels).sum(axis=1)
    variance = (q * (levels - mean[:, None]) ** 2).sum(axis=1)
    return rows.offset + rows.x @ mean, rows.x**2 @ variance


@given(st.integers(0, 2**31), st.floats(0.05, 4.0), st.integers(1, 4), st.integers(1, 5))
def test_both_bounds_are_below_the_enumerated_expectation(make_rows, random_q, seed, scale, b, m):
    rows = make_rows(6, b, seed, scale)
    levels, q = np.linspace(-1.5, 1.0, m)[None], random_q(b, m, seed)
    truth = expected_log_likelihood(rows, np.broadcast_to(levels, q.shape), q)
    mean, variance = moments(rows, levels, q)
    slack = 1e-9 * (1 + abs(truth))
    best = jaakkola_bound(rows.t, mean, variance, rows.weight)
    assert best <= truth + slack
    xi = np.random.default_rng(seed).exponential(3.0, 6)
    at_xi = log_expit(xi) + 0.5 * (rows.t * mean - xi) - jaakkola_lambda(xi) * (mean**2 + variance - xi**2)
    assert rows.weight @ at_xi <= best + slack
    assert exponential_bound(rows, levels, q)[0] <= truth + slack


def test_the_jaakkola_bound_is_exact_for_a_known_logit():
    z, one = np.linspace(-9, 9, 19), np.ones(19)
    for t in (-one, one):
        np.testing.assert_allclose(
            [jaakkola_bound(t[:1], z[i : i + 1], 0 * one[:1], one[:1]) for i in range(19)], log_expit(t * z), rtol=1e-12
        )


def test_lambda_is_smooth_through_zero():
    xi = np.array([0.0, 1e-12, 9.99e-4, 1.01e-3, 1.0, 700.0])
    extended = np.maximum(xi, 1e-9).astype(np.longdouble)
    np.testing.assert_allclose(jaakkola_lambda(xi), (np.tanh(extended / 2) / (4 * extended)).astype(float), rtol=1e-9)


@pytest.mark.parametrize("mean", [0.0, 3.0, 5.0])
def test_the_exponential_bound_is_tighter_where_the_logit_determines_the_label(mean):
    one = np.ones(1)
    jaakkola, exponential = jaakkola_bound(one, mean * one, one, one), -np.exp(0.5 - mean)
    nodes, masses = np.polynomial.hermite_e.hermegauss(60)
    assert max(jaakkola, exponential) < masses @ log_expit(mean + nodes) / masses.sum()
    assert (exponential > jaakkola) == (mean >= 3.0)
