"""Rounding samples to shared levels."""

import numpy as np

from pydirect.quantized.lattice import round_to_levels


def test_rounding_to_levels_nearly_keeps_functions_and_their_mean():
    rng = np.random.default_rng(4)
    phi = rng.standard_normal((300, 8)) @ rng.standard_normal((8, 40)) / 8 + 0.05 * rng.standard_normal((300, 40))
    metric = phi.T @ phi + 1e-2 * np.eye(40)
    targets, levels = rng.standard_normal((8, 40)), np.linspace(-3, 3, 15)
    values = levels[round_to_levels(targets, levels, metric)]
    nearest = levels[np.abs(targets[:, :, None] - levels).argmin(axis=2)]

    def error(w):
        return np.sqrt(np.mean((phi @ (w - targets).T) ** 2))

    assert error(values) < 0.5 * error(nearest)
    assert np.abs(phi @ (values - targets).mean(axis=0)).mean() < 0.25 * error(values)
