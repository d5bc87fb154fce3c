"""Quantised networks."""

import numpy as np
import pytest

from pydirect import QuadraticBNNRegressor, quantize
from pydirect.quantized.errors import IntegerArithmeticError


def test_networks_run_their_samples_in_floating_point(data, fit):
    x, y = data()
    model = fit(QuadraticBNNRegressor(hidden_layer_sizes=(4,), max_iter=30, n_restarts=1), x, y)
    quantised = quantize(model, 32)
    mean, std = model.predict(x, return_std=True)
    got, got_std = quantised.predict(x, return_std=True)
    assert np.abs(got - mean).mean() < 0.5 * std.mean()
    np.testing.assert_allclose(got_std.mean(), std.mean(), rtol=0.2)
    values = model.posterior_.weights.values(quantised.codes.T)
    expected = model.posterior_.sample_functions(model._inputs(x), values)
    np.testing.assert_allclose(quantised.functions(x)[:, 0], model.y_mean_ + model.y_scale_ * expected, rtol=1e-6)
    with pytest.raises(IntegerArithmeticError, match="quantise with X="):
        quantised.with_arithmetic("integer")


def test_samples_of_networks_have_the_moments_of_predictions_at_rows(network):
    model, x = network("two layers")
    with_rows, without = quantize(model, 6, X=x), quantize(model, 6)
    mean, variance = model._latent(x, True)

    def loss(quantised):
        functions = (quantised.functions(x) - model.y_mean_[:, None]) / model.y_scale_[:, None]
        m, sd = functions.mean(axis=2), functions.std(axis=2)
        return (6 * (m - mean) ** 2 + (sd - np.sqrt(variance)) ** 2).mean(axis=0)

    assert (loss(with_rows) < 0.7 * loss(without)).all()
    # No weight's own samples change.
    np.testing.assert_array_equal(np.sort(with_rows.weights, axis=1), np.sort(without.weights, axis=1))
