"""Frequencies of small models: selected by what they explain, and refined."""

import numpy as np

from pydirect._core import selected_columns
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.proposals import refined_frequencies


def test_each_column_that_is_selected_explains_most_per_byte_beside_those_before():
    rng = np.random.default_rng(0)
    n_pairs, costs, ridge, least = 5, (3.0, 1.0), 0.5, 0.2
    phi, y = rng.standard_normal((40, 2 * n_pairs + 3 + 1)), rng.standard_normal((40, 2))
    a, c = phi.T @ phi, phi.T @ y

    def explained(columns):
        own = sorted(columns)
        return np.sum(c[own] * np.linalg.solve(a[np.ix_(own, own)] + ridge * np.eye(len(own)), c[own]))

    def members(k):
        return {k, n_pairs + k} if k < n_pairs else {n_pairs + k}

    def gain(k):
        fall = explained(columns | members(k)) - explained(columns)
        return (fall - len(members(k)) * least) / costs[k >= n_pairs]

    taken = selected_columns(a, c, ridge, n_pairs, costs, least, 6)
    columns = {len(a) - 1}
    for k in taken:
        gains = {j: gain(j) for j in range(n_pairs + 3) if not members(j) <= columns}
        assert gains[k] >= max(gains.values()) - 1e-9 and gains[k] > 0
        columns |= members(k)
    assert len(taken) == 6
    nothing_pays = selected_columns(a, c, ridge, n_pairs, costs, 1e6, 6)
    assert len(nothing_pays) == 1 and nothing_pays[0] < n_pairs


def test_frequencies_move_to_those_of_the_target_within_their_range():
    x = np.linspace(-3, 3, 200)[:, None]
    y = np.cos(1.5 * x) + np.sin(2.6 * x) + 1.0

    def refined(*frequencies):
        start = FourierFeatures(np.array([frequencies]), np.ones(2), constant=1.0)
        return refined_frequencies(start, x, y, np.ones(200), 1e-4).frequencies[0]

    np.testing.assert_allclose(refined(1.3, 2.8), [1.5, 2.6], atol=0.02)
    assert np.abs(refined(1.3, 2.0)).max() < 2.01
