"""Shapley values: closed forms and sums over coalitions are means over all orders; random orders come close to them."""

from itertools import permutations

import numpy as np
import pytest

from pydirect.explain.shapley import (
    mixed_rows,
    shares_by_enumeration,
    shares_by_permutations,
    shares_of_functions,
    shares_of_products,
    shares_of_variance,
)
from pydirect.features.maps import FourierFeatures, LinearFeatures, PolynomialFeatures, PrecomputedFeatures

RNG = np.random.default_rng(0)
D, GROUPS, N = 5, np.array([0, 1, 2, 1, 3]), 4
X, BACKGROUND = RNG.standard_normal(D), RNG.standard_normal((3, D))
MAPS = {
    "fourier": FourierFeatures(RNG.standard_normal((D, 6)), RNG.random(6), np.array([0.3, 0.4, 0.2]), 0.7),
    "linear": LinearFeatures(D),
    "polynomial": PolynomialFeatures(D, 2),
    "precomputed": PrecomputedFeatures(D),
}


def by_definition(evaluate, x, z, groups, n):
    """Mean over all orders of what each player adds as it joins."""
    total = 0.0
    for order in permutations(range(n)):
        joined, shares = np.zeros((1, n), dtype=bool), {}
        before = evaluate(mixed_rows(x, z, joined, groups))
        for player in order:
            joined[0, player] = True
            after = evaluate(mixed_rows(x, z, joined, groups))
            shares[player], before = after - before, after
        total = total + np.vstack([shares[player] for player in range(n)])
    return total / len(list(permutations(range(n))))


def variance(features, covariance):
    def evaluate(rows):
        phi = features.transform(np.ascontiguousarray(rows))
        return np.einsum("ij,jk,ik->i", phi, covariance, phi)[:, None]

    return evaluate


def wavy(rows):
    return np.c_[np.sin(rows.sum(axis=1)), np.prod(rows[:, :3], axis=1) + rows[:, 4]]


def test_sums_over_coalitions_are_means_over_all_orders():
    expected = np.mean([by_definition(wavy, X, z, GROUPS, N) for z in BACKGROUND], axis=0)
    np.testing.assert_allclose(shares_by_enumeration(wavy, X, BACKGROUND, GROUPS, N), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", MAPS)
def test_closed_forms_are_means_over_all_orders(name):
    features, z = MAPS[name], BACKGROUND[0]
    products, covariance = features.products(), np.cov(RNG.standard_normal((features.n_weights, 40)))
    found = shares_of_functions(products, X, z, GROUPS, N)
    np.testing.assert_allclose(found, by_definition(features.transform, X, z, GROUPS, N), rtol=0, atol=1e-12)
    found = shares_of_variance(products, covariance, X, z, GROUPS, N)
    expected = by_definition(variance(features, covariance), X, z, GROUPS, N)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def test_pairs_of_terms_are_the_same_in_blocks_of_any_size(monkeypatch):
    products, covariance = MAPS["fourier"].products(), np.cov(RNG.standard_normal((16, 40)))
    whole = shares_of_variance(products, covariance, X, BACKGROUND[0], GROUPS, N)
    monkeypatch.setattr("pydirect.explain.shapley.BLOCK_NUMBERS", 3 * N * products.n_terms)
    blocks = shares_of_variance(products, covariance, X, BACKGROUND[0], GROUPS, N)
    np.testing.assert_allclose(blocks, whole, rtol=0, atol=1e-13)


def test_a_factor_of_zero_is_no_obstacle():
    a, b = np.array([[0.0], [2.0], [3.0]]), np.array([[0.0], [0.0], [1.0]])
    np.testing.assert_allclose(shares_of_products(a, b, 3)[:, 0], 0.0)
    a[0] = 1.0  # 1·2·3 from 0·0·1: the third player needs both others, who need each other
    expected = by_definition(lambda rows: rows.prod(axis=1, keepdims=True), a[:, 0], b[:, 0], np.arange(3), 3)
    np.testing.assert_allclose(shares_of_products(a, b, 3), expected, rtol=1e-14)


def test_random_orders_add_up_and_their_errors_say_how_far_they_are_off():
    exact = shares_by_enumeration(wavy, X, BACKGROUND, GROUPS, N)
    found = [
        shares_by_permutations(wavy, X, BACKGROUND, GROUPS, N, 4, np.random.default_rng(seed)) for seed in range(300)
    ]
    whole = wavy(X[None])[0] - wavy(BACKGROUND).mean(axis=0)
    for shares, _ in found[:5]:
        np.testing.assert_allclose(shares.sum(axis=0), whole, rtol=0, atol=1e-13)
    shares, errors = (np.stack(part) for part in zip(*found, strict=True))
    spread = shares.std(axis=0)
    assert (np.abs(shares.mean(axis=0) - exact) <= 5 * spread / np.sqrt(300) + 1e-13).all()
    np.testing.assert_allclose(np.sqrt(np.mean(errors**2, axis=0)), spread, rtol=0.2, atol=1e-13)


def test_columns_of_no_player_stay_as_they_are_in_the_background():
    groups = np.array([0, -1, 1, -1, -1])
    shares = shares_by_enumeration(wavy, X, BACKGROUND[:1], groups, 2)
    there = np.where(groups >= 0, X, BACKGROUND[0])
    np.testing.assert_allclose(shares.sum(axis=0), (wavy(there[None]) - wavy(BACKGROUND[:1]))[0], rtol=0, atol=1e-14)
