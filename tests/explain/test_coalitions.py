"""Shapley values: sums over coalitions are means over all orders; random orders come close to them."""

from itertools import permutations

import numpy as np

from pydirect.explain.shapley import mixed_rows, shares_by_enumeration, shares_by_permutations

RNG = np.random.default_rng(0)
D, GROUPS, N = 5, np.array([0, 1, 2, 1, 3]), 4
X, BACKGROUND = RNG.standard_normal(D), RNG.standard_normal((3, D))


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


def wavy(rows):
    return np.c_[np.sin(rows.sum(axis=1)), np.prod(rows[:, :3], axis=1) + rows[:, 4]]


def test_sums_over_coalitions_are_means_over_all_orders():
    expected = np.mean([by_definition(wavy, X, z, GROUPS, N) for z in BACKGROUND], axis=0)
    np.testing.assert_allclose(shares_by_enumeration(wavy, X, BACKGROUND, GROUPS, N), expected, rtol=0, atol=1e-14)


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


def test_random_orders_are_exact_for_functions_of_degree_two():
    def quadratic(rows):
        return np.c_[rows @ np.arange(1.0, 6.0), (rows @ np.arange(5.0)) ** 2 - rows[:, 1] * rows[:, 4]]

    shares, errors = shares_by_permutations(quadratic, X, BACKGROUND, GROUPS, N, 2, RNG)
    np.testing.assert_allclose(shares, shares_by_enumeration(quadratic, X, BACKGROUND, GROUPS, N), rtol=0, atol=1e-12)
    assert errors.max() < 1e-12


def test_columns_of_no_player_stay_as_they_are_in_the_background():
    groups = np.array([0, -1, 1, -1, -1])
    shares = shares_by_enumeration(wavy, X, BACKGROUND[:1], groups, 2)
    there = np.where(groups >= 0, X, BACKGROUND[0])
    np.testing.assert_allclose(shares.sum(axis=0), (wavy(there[None]) - wavy(BACKGROUND[:1]))[0], rtol=0, atol=1e-14)
