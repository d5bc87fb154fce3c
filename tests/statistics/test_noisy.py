"""Sums with noise: how private it is, what a row can move, how large the noise is, and what may be added."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from pydirect.features import FourierFeatures, LinearFeatures, PolynomialFeatures
from pydirect.statistics import (
    IdentityFeatures,
    NoisyStatistics,
    PrivacyBudget,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
)
from pydirect.statistics.noisy import SENSITIVITY, clipped_sums

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
    with pytest.raises(ValueError, match=r"what is left of the budget, 1, got 1\.1"):
        budget.spend(1.1)
    assert budget.spent == 0 and budget.remaining == pytest.approx(1.0)
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


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [(0.0, 1e-6, "epsilon must be above 0"), (1.0, 0.0, "delta must be above 0"), (1.0, 1.0, "delta must be")],
)
def test_budgets_without_privacy_are_refused(epsilon, delta, message):
    with pytest.raises(ValueError, match=message):
        PrivacyBudget(epsilon, delta)


RNG = np.random.default_rng(0)
MAPS = {
    "identity": IdentityFeatures(3),
    "linear": LinearFeatures(3),
    "polynomial": PolynomialFeatures(3, 2),
    "fourier": FourierFeatures(RNG.standard_normal((3, 4)), np.full(4, 0.5), np.array([0.4, 0.4, 0.4]), 0.5),
}
BOUNDS, C, MU = (-2.0, 3.0), 1.3, 0.7


def release(features, x, y, seed=0, mu=MU, norm_bound=C):
    rng = np.random.default_rng(seed)
    return NoisyStatistics.release(features, x, y, y_bounds=BOUNDS, norm_bound=norm_bound, mu=mu, rng=rng)


def distance(one, other):
    """Length of the difference of two releases with the same noise, in deviations of the noise."""
    half = one.gram_variance / 2
    gram = (one.gram - other.gram)[np.triu_indices(one.n_weights, 1)]
    diagonal = (one.gram - other.gram).diagonal()
    square = (gram**2).sum() / half + (diagonal**2).sum() / one.gram_variance
    square += ((one.c - other.c) ** 2).sum() / one.c_variance + (one.yty - other.yty) ** 2 / one.yty_variance
    return np.sqrt(square + (one.n_samples - other.n_samples) ** 2 / one.n_variance)


@pytest.mark.parametrize("name", MAPS)
def test_no_row_that_a_search_finds_moves_the_sums_by_more_than_the_noise_allows(name):
    features, rng = MAPS[name], np.random.default_rng(1)
    x, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    before = release(features, x, y)

    def moved(row):
        return distance(release(features, np.vstack([x, row[:3]]), np.append(y, row[3])), before)

    worst = 0.0
    for size in (0.1, 1.0, 10.0, 1e4):
        start = max((size * rng.standard_normal(4) for _ in range(20)), key=moved)
        found = minimize(lambda row: -moved(row), start, method="Nelder-Mead", options={"maxiter": 100})
        worst = max(worst, -found.fun)
    assert worst <= MU * (1 + 1e-9)
    assert worst > 0.98 * MU  # the bound is reached: no smaller noise would do


def test_a_removed_row_is_as_private_as_an_added_one_whatever_the_others_are():
    rng = np.random.default_rng(2)
    x, y = 100 * rng.standard_cauchy((50, 3)), 5 * rng.standard_normal(50)
    everything = release(MAPS["identity"], x, y)
    for row in range(50):
        left = np.arange(50) != row
        assert distance(everything, release(MAPS["identity"], x[left], y[left])) <= MU * (1 + 1e-9)


def test_sums_are_of_clipped_rows():
    rng = np.random.default_rng(3)
    phi, v = rng.standard_normal((40, 3)), rng.uniform(-1, 1, 40)
    gram, c, yty, n_samples = clipped_sums(IdentityFeatures(3), phi, v, C)
    weight = np.minimum(1, C**2 / (phi**2).sum(axis=1))
    assert 0 < (weight < 1).sum() < 40
    np.testing.assert_allclose(gram, (phi.T * weight) @ phi, rtol=1e-12)
    np.testing.assert_allclose(c, phi.T @ (weight * v), rtol=1e-12)
    np.testing.assert_allclose([yty, n_samples], [weight @ v**2, weight.sum()], rtol=1e-12)


def test_noise_has_the_variances_that_are_stated():
    x, n_draws = np.eye(3), 2000
    draws = [release(IdentityFeatures(3), x, [0.0, 0.5, 3.0], seed) for seed in range(n_draws)]
    gram, c, yty, n_samples = clipped_sums(IdentityFeatures(3), x, np.array([-0.2, 0.0, 1.0]), C)
    one = draws[0]
    errors = [
        (np.array([d.gram - gram for d in draws]).diagonal(axis1=1, axis2=2).ravel(), one.gram_variance),
        (np.array([(d.gram - gram)[np.triu_indices(3, 1)] for d in draws]).ravel(), one.gram_variance / 2),
        (np.array([d.c - c for d in draws]).ravel(), one.c_variance),
        (np.array([d.yty - yty for d in draws]), one.yty_variance),
        (np.array([d.n_samples - n_samples for d in draws]), one.n_variance),
    ]
    for error, variance in errors:
        assert np.mean(error**2) == pytest.approx(variance, rel=5 * np.sqrt(2 / len(error)))
        assert abs(error.mean()) < 5 * np.sqrt(variance / len(error))
    sigma = SENSITIVITY / MU
    assert one.gram_variance == pytest.approx((sigma * C**2) ** 2)
    assert all(np.array_equal(d.gram, d.gram.T) for d in draws)


def test_releases_of_sites_add():
    parts = [
        release(IdentityFeatures(3), RNG.standard_normal((5, 3)), np.zeros(5), k, mu) for k, mu in ((1, 0.5), (2, 1))
    ]
    total = sum(parts)
    np.testing.assert_array_equal(total.gram, parts[0].gram + parts[1].gram)
    for name in ("gram_variance", "c_variance", "yty_variance", "n_variance", "yty", "n_samples"):
        assert getattr(total, name) == getattr(parts[0], name) + getattr(parts[1], name)
    assert total.mu == 1
    with pytest.raises(ValueError, match=r"the same norm_bound, got 1\.3 and 2"):
        parts[0] + release(IdentityFeatures(3), np.eye(3), np.zeros(3), norm_bound=2.0)
    with pytest.raises(ValueError, match="the same fingerprint"):
        parts[0] + release(LinearFeatures(3), np.eye(3), np.zeros(3))
    with pytest.raises(TypeError):
        parts[0] + 1


def test_releases_survive_files(tmp_path):
    before = release(MAPS["linear"], np.eye(3), np.arange(3.0))
    before.save(tmp_path / "release")
    after = NoisyStatistics.load(tmp_path / "release")
    for name, value in vars(before).items():
        np.testing.assert_array_equal(getattr(after, name), value)
        assert type(getattr(after, name)) is type(value)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (1.0,)])
def test_bounds_that_bound_nothing_are_refused(bounds):
    with pytest.raises(ValueError, match="y_bounds must"):
        NoisyStatistics.release(
            IdentityFeatures(1), [[1.0]], [1.0], y_bounds=bounds, norm_bound=1.0, mu=1.0, rng=np.random.default_rng(0)
        )
