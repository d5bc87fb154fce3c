"""Differential privacy of Gaussian noise, against integrals of the densities themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from pydirect.statistics import PrivacyBudget, gaussian_delta, gaussian_epsilon, gaussian_mu

CASES = [(0.1, 0.05), (0.2, 1.0), (1.0, 1.0), (1.0, 3.0), (4.0, 2.0)]


@pytest.mark.parametrize(("mu", "epsilon"), CASES)
def test_delta_is_the_integral_of_what_the_ratio_exceeds(mu, epsilon):
    edge = epsilon / mu + mu / 2  # where the densities differ by the factor e^epsilon
    exceeding, _ = quad(lambda z: norm.pdf(z - mu) - np.exp(epsilon) * norm.pdf(z), edge, edge + 12 + mu, epsabs=1e-15)
    assert gaussian_delta(mu, epsilon) == pytest.approx(exceeding, rel=1e-6)


@pytest.mark.parametrize(("mu", "epsilon"), CASES)
def test_mu_and_epsilon_invert_delta(mu, epsilon):
    delta = gaussian_delta(mu, epsilon)
    assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) <= delta


def test_less_noise_than_the_classical_bound():
    for epsilon, delta in ((0.1, 1e-5), (0.9, 1e-6)):
        assert 1 / gaussian_mu(epsilon, delta) < 0.9 * np.sqrt(2 * np.log(1.25 / delta)) / epsilon


def test_two_releases_are_as_private_as_their_common_mu():
    # The ratio of densities of two independent releases, by brute force over a grid of both.
    first, second, epsilon = 0.6, 0.8, 0.7
    z = np.linspace(-9, 10, 1901)
    with_row = np.outer(norm.pdf(z - first), norm.pdf(z - second))
    without = np.outer(norm.pdf(z), norm.pdf(z))
    exceeding = np.maximum(with_row - np.exp(epsilon) * without, 0).sum() * (z[1] - z[0]) ** 2
    assert gaussian_delta(np.hypot(first, second), epsilon) == pytest.approx(exceeding, rel=1e-3)


def test_a_budget_is_spent_exactly():
    budget = PrivacyBudget(1.0, 1e-6)
    assert budget.remaining == pytest.approx(1.0)
    spent = [budget.spend(0.3), budget.spend(0.5)]
    assert spent[0] == pytest.approx(gaussian_mu(0.3, 1e-6))
    rest = budget.remaining
    assert 1 - 0.8 < rest < 1.0  # less is lost than by adding epsilons
    spent.append(budget.spend())
    assert spent[2] == pytest.approx(gaussian_mu(rest, 1e-6), rel=1e-5)
    assert np.linalg.norm(spent) == pytest.approx(gaussian_mu(1.0, 1e-6))
    assert budget.remaining == 0
    before = budget.spent
    with pytest.raises(ValueError, match="what is left of the budget, 0"):
        budget.spend()
    assert budget.spent == before


def test_more_than_the_budget_is_refused():
    budget = PrivacyBudget(1.0, 1e-6)
    with pytest.raises(ValueError, match=r"what is left of the budget, 1, got 1\.1"):
        budget.spend(1.1)
    assert budget.spent == 0


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(0.0, 1e-6, "epsilon must be above 0"), (1.0, 0.0, "delta must be above 0"), (1.0, 1.0, "delta must be")],
)
def test_budgets_without_privacy_are_refused(epsilon, delta, message):
    with pytest.raises(ValueError, match=message):
        PrivacyBudget(epsilon, delta)
