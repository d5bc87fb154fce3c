"""Oracles that only tests need: networks and logistic models by enumeration, differences, means of draws."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from pydirect.testing import enumerate_hypotheses


class NetworkExpectations(NamedTuple):
    """Σ ω E (y − f)², and mean and variance of f per row."""

    squared_error: float
    mean: np.ndarray
    variance: np.ndarray


def enumerate_network(x, y, hidden_layer_sizes, bias, levels, q, sample_weight=None):
    """Output moments of a quadratic network under a factorised posterior, by running it for each weight vector.

    Hidden units square a weighted sum of the layer below, ``f(x) = Σ_j v_j a_j²``. Weights are listed layer by layer,
    then by output unit, then by input; the bias, if any, is the last input of each layer, fixed to one.
    """
    x, y, q = np.asarray(x, float), np.asarray(y, float), np.asarray(q, float)
    layers = [(fan_out, fan_in + bias) for fan_in, fan_out in pairwise([x.shape[1], *hidden_layer_sizes, 1])]
    probability, weights = enumerate_hypotheses(q).prod(axis=1), enumerate_hypotheses(levels, len(q))
    parts = [run_networks(weights[k : k + 16_384], layers, x, bias) for k in range(0, len(weights), 16_384)]
    f = np.concatenate(parts)
    mean = probability @ f
    error = probability @ ((y - f) ** 2 @ (np.ones(len(y)) if sample_weight is None else sample_weight))
    return NetworkExpectations(float(error), mean, probability @ (f - mean) ** 2)


def run_networks(weights, layers, x, bias):
    """Outputs for each weight vector and row, (n_hypotheses, n_rows)."""
    state, first = np.broadcast_to(x, (len(weights), *x.shape)), 0
    for k, (fan_out, fan_in) in enumerate(layers):
        if bias:
            state = np.concatenate([state, np.ones((*state.shape[:2], 1))], axis=2)
        matrix = weights[:, first : first + fan_out * fan_in].reshape(-1, fan_out, fan_in)
        sums = state @ matrix.transpose(0, 2, 1)
        state = sums if k == len(layers) - 1 else sums**2
        first += fan_out * fan_in
    return state[:, :, 0]


def enumerate_logistic_evidence(phi, t, levels, log_prior, *, weight=None, offset=0.0):
    """Exact log Pr(t) of logistic regression, ``Pr(t | w) = σ(t (offset + φᵀw))``, labels −1 or 1."""
    n_weights = phi.shape[1]
    masses = np.broadcast_to(np.exp(log_prior), (n_weights, np.shape(log_prior)[-1]))
    z = offset + enumerate_hypotheses(levels, n_weights) @ phi.T
    log_likelihood = -np.logaddexp(0.0, -t * z) @ (np.ones(len(phi)) if weight is None else weight)
    return logsumexp(log_likelihood, b=enumerate_hypotheses(masses).prod(axis=1))


def enumerate_logistic_predictive(phi_star, distribution, offset=0.0):
    """Exact ``Pr(t = 1) = E σ(offset + φᵀw)`` under an `Enumeration`, (n_rows,)."""
    return expit(offset + np.asarray(phi_star) @ distribution.weights.T) @ distribution.weight_probability


def finite_difference_gradient(function, x, step=1e-3):
    """Gradient by central differences of fourth order, with steps relative to max(1, |x|) of each entry."""
    point = np.array(x, dtype=np.float64)
    gradient = np.empty_like(point)

    def along(index, distance):
        moved = point.copy()
        moved[index] += distance
        return function(moved)

    for index in np.ndindex(point.shape):
        h = step * max(1.0, abs(float(point[index])))
        near = along(index, h) - along(index, -h)
        far = along(index, 2 * h) - along(index, -2 * h)
        gradient[index] = (8 * near - far) / (12 * h)
    return gradient


def monte_carlo_mean(samples):
    """Mean of independent samples, (n_samples, ...), and its standard error."""
    values = np.asarray(samples, dtype=np.float64)
    assert len(values) > 1
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
