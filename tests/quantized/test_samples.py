"""Samples of the weights: drawn, matched to moments, and rounded to levels."""

import numpy as np

from pydirect import quantize
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.quantized.samples import matched_samples, round_to_levels


def test_samples_that_match_moments_have_the_mean_of_the_posterior():
    rng = np.random.default_rng(3)
    weights = FactorizedCategorical(np.linspace(-3, 3, 15)[None], rng.dirichlet(np.full(15, 0.4), 200))
    codes = matched_samples(weights, 16, rng)
    values = weights.values(codes)
    step = 6 / 14
    assert np.abs(values.mean(axis=0) - weights.mean).max() <= step / 16
    assert np.sqrt(np.mean((values.std(axis=0) - weights.std) ** 2)) < 0.1
    assert (np.take_along_axis(weights.q, codes.T.astype(np.intp), axis=1) > 0).all()


def test_samples_have_the_moments_of_the_posterior(data, raw, decorrelated):
    x, _ = data()
    for model in (raw, decorrelated):
        quantised = quantize(model, 16, X=x)
        assert quantised.n_samples == 16
        mean, std = model.predict(x, return_std=True)
        got, got_std = quantised.predict(x, return_std=True)
        epistemic = np.sqrt(std**2 - model.noise_variance_)
        assert np.sqrt(np.mean((got - mean) ** 2)) < 0.25 * np.sqrt(np.mean(epistemic**2))
        np.testing.assert_allclose(got_std.mean(), std.mean(), rtol=0.03)


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
