"""Predictive distributions from a network's outputs: noise, logits and class probabilities of Gaussian outputs."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, ndtri
from scipy.stats import qmc

from pydirect._validation import FloatArray

# Nodes of the mixture over the log noise variance.
N_NODES = 20
_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(N_NODES)


def log_noise_nodes(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite nodes (n_rows, N_NODES) and weights (N_NODES,) for the second output.

    Nodes are not clipped: conditional means are linear in them, and average to the mean only over all of them.
    """
    return mean[:, 1:] + np.sqrt(covariance[:, 1, 1])[:, None] * _NODES, _MASSES / _MASSES.sum()


def log_odds_moments(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the logit of the second of two classes, (n_rows,) each."""
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    return mean[:, 1] - mean[:, 0], np.maximum(variance, 0.0)


def centred_moments(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each class's logit less the mean of all, which changes no probability; (n, n_classes)."""
    between = covariance.mean(axis=2)
    diagonal = np.einsum("nii->ni", covariance)
    variance = diagonal - 2.0 * between + between.mean(axis=1, keepdims=True)
    return mean - mean.mean(axis=1, keepdims=True), np.maximum(variance, 0.0)


def log_mean_softmax(logits: FloatArray, classes: int, draws: int) -> FloatArray:
    """Log of the softmax along one axis, averaged along another; the logits are overwritten."""
    logits -= logits.max(axis=classes, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=classes, keepdims=True))
    largest = logits.max(axis=draws, keepdims=True)
    logits -= largest
    return np.log(np.exp(logits, out=logits).mean(axis=draws)) + largest.squeeze(draws)


def draw_outputs(mean: FloatArray, covariance: FloatArray, z: FloatArray) -> FloatArray:
    """Return outputs (n_outputs, n_rows, n_draws) from standard normal draws z (n_draws, n_outputs)."""
    values, axes = np.linalg.eigh(covariance)  # covariances may be singular
    root = axes * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    drawn = np.swapaxes(root, 0, 1) @ z.T
    drawn += mean.T[:, :, None]
    return drawn


def normal_points(n_points: int, n_dimensions: int) -> FloatArray:
    """Quasi-random standard normal points, (n_points, n_dimensions): the same at every call."""
    points = qmc.Sobol(n_dimensions, scramble=False).random(n_points)
    return ndtri(points + 0.5 / n_points)  # in every dimension the midpoints of n_points equal intervals


def delta_log_probabilities(mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """Expand E softmax to second order in the covariance (eq. 23), E p_i ≈ p_i (1 + ½ (v_i − Σ_j p_j v_j)).

    v_i is the variance of logit i minus the logits' average under p. The second order is scaled down where it would
    make probabilities negative.
    """
    p = np.exp(log_softmax(mean, axis=1))
    sp = np.einsum("nij,nj->ni", covariance, p)
    average = np.einsum("ni,ni->n", p, sp)[:, None]
    v = np.maximum(np.einsum("nii->ni", covariance) - 2.0 * sp + average, 0.0)
    average_v = np.einsum("ni,ni->n", p, v)[:, None]
    expected = p * (1.0 + 0.5 * (v - average_v) / np.maximum(1.0, 0.5 * average_v))
    expected = np.maximum(expected, np.finfo(np.float64).tiny)
    return np.log(expected / expected.sum(axis=1, keepdims=True))
