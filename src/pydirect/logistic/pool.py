"""A log-linear pool of classifiers: log p = Σ wₘ log pₘ − log Σ exp, with weights that left-out labels choose.

The weights' sum is free: it is a temperature, so that the pool also calibrates. A linear pool cannot sharpen, and keeps
the tail of its worst part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_expit, log_softmax

from pydirect._validation import FloatArray
from pydirect.logistic.likelihood import log_sum_exp

# What a part's log probabilities are at least.
LEAST_LOG_PROBABILITY = float(np.log(1e-4))
# Largest weight of a part, and rows of a Gaussian prior of the weights about 1/M for each of M parts.
LARGEST_WEIGHT = 2.0
PRIOR_ROWS = 5.0
# Least power of a model's own probabilities, as none makes all classes alike, and rows of its prior about one.
LEAST_SHARPNESS, ROWS_OF_SHARPNESS = 0.1, 50.0


def log_probability_of(score: FloatArray) -> FloatArray:
    """Log probabilities, (..., n_classes), of log odds (..., 1) or scores of the classes."""
    if score.shape[-1] > 1:
        return np.asarray(log_softmax(score, axis=-1))
    return np.asarray(log_expit(np.concatenate([-score, score], axis=-1)))


def pooled_log_probability(weights: FloatArray, log_p: FloatArray, floor: float = LEAST_LOG_PROBABILITY) -> FloatArray:
    """Log probabilities of the pool, (n_rows, n_classes), of those of the parts, (n_parts, n_rows, n_classes)."""
    mixed = np.tensordot(weights, np.maximum(log_p, floor), 1)
    return np.asarray(mixed - log_sum_exp(mixed)[:, None])


def sharpness_of(log_p: FloatArray, index: NDArray[np.intp], weight: FloatArray) -> float:
    """Power of probabilities, (n_rows, n_classes), under which labels left out are likeliest."""
    return float(pool_weights(log_p[None], index, weight, -np.inf, LEAST_SHARPNESS, ROWS_OF_SHARPNESS)[0])


def pool_weights(
    log_p: FloatArray,
    index: NDArray[np.intp],
    weight: FloatArray,
    floor: float = LEAST_LOG_PROBABILITY,
    least: float = 0.0,
    prior_rows: float = PRIOR_ROWS,
) -> FloatArray:
    """Weights (n_parts,), at least `least`, under which labels left out of every part are likeliest.

    `log_p`, (n_parts, n_rows, n_classes), `index`, (n_rows,), the labels. The problem is convex. Where the pool gains
    nothing over the first part, that part is all of it.
    """
    floored = np.maximum(log_p, floor)
    n_parts, n_rows, _ = floored.shape
    labels, centre, rows = floored[:, np.arange(n_rows), index], 1 / n_parts, prior_rows * n_parts

    def objective(w: FloatArray) -> tuple[float, FloatArray]:
        mixed = np.tensordot(w, floored, 1)
        total = log_sum_exp(mixed)
        p = np.exp(mixed - total[:, None])
        slope = labels @ weight - np.einsum("mnc,nc->m", floored, weight[:, None] * p)
        value = float(weight @ (w @ labels - total)) - 0.5 * rows * float(((w - centre) ** 2).sum())
        return -value, rows * (w - centre) - slope

    bounds = [(least, LARGEST_WEIGHT)] * n_parts
    found = minimize(objective, np.full(n_parts, centre), jac=True, method="L-BFGS-B", bounds=bounds).x
    pooled = pooled_log_probability(found, log_p, floor)[np.arange(n_rows), index]
    gain = float(weight @ (pooled - log_p[0, np.arange(n_rows), index]))
    return found if gain > 0 else np.eye(n_parts)[0]
