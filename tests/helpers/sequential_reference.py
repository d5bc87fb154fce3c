"""The kernels of the sequential posterior in plain NumPy: unblocked, column by column, as the equations read."""

import numpy as np
from scipy.special import logsumexp


def cholesky(matrix, ridge, scale, pivot, matrix_scale=1.0):
    """Upper R with M[o][:, o] = RᵀR, M = diag(s)(αA + diag(ridge))diag(s); min-pivot order if `pivot`.

    Returns factor; order; rank, the number of positive pivots before the first that is not.
    """
    m = scale[:, None] * (matrix_scale * matrix + np.diag(ridge)) * scale
    b = len(m)
    order, factor = np.arange(b), np.zeros((b, b))
    for j in range(b):
        if pivot:
            k = j + int(np.lexsort((order[j:], np.diag(m)[j:]))[0])
            for rows in (m, m.T, factor.T, order):
                rows[[j, k]] = rows[[k, j]]
        if not m[j, j] > 0.0:
            return factor, order, j
        factor[j, j:] = m[j, j:] / np.sqrt(m[j, j])
        m[j + 1 :, j + 1 :] -= np.outer(factor[j, j + 1 :], factor[j, j + 1 :])
    return factor, order, b


def sequential_draws(factor, mean, levels, tilt, uniforms=None):
    """Draw positions from the last to the first; everything in the factor's order.

    `uniforms`, (n_draws, b): of inverse cumulative distribution functions; without them one draw of most probable
    levels. Returns codes, (n_draws, b); Σ log S_j, (n_draws,); log q, (n_draws,).
    """
    b = len(mean)
    n_draws = 1 if uniforms is None else len(uniforms)
    levels, tilt = (np.broadcast_to(table, (b, table.shape[-1])) for table in (levels, tilt))
    codes, deviation = np.zeros((n_draws, b), dtype=np.uint8), np.zeros((n_draws, b))
    log_normaliser, log_q = np.zeros(n_draws), np.zeros(n_draws)
    for j in range(b - 1, -1, -1):
        centre = mean[j] - deviation[:, j + 1 :] @ factor[j, j + 1 :] / factor[j, j]
        logits = tilt[j] - 0.5 * (factor[j, j] * (levels[j] - centre[:, None])) ** 2
        total = logsumexp(logits, axis=1)
        if uniforms is None:
            chosen = logits.argmax(axis=1)
        else:
            cumulative = np.cumsum(np.exp(logits - total[:, None]), axis=1)
            chosen = (cumulative > (uniforms[:, j] * cumulative[:, -1])[:, None]).argmax(axis=1)
        codes[:, j], deviation[:, j] = chosen, levels[j, chosen] - mean[j]
        log_normaliser += total
        log_q += logits[np.arange(n_draws), chosen] - total
    return codes, log_normaliser, log_q


def log_probabilities(factor, mean, levels, tilt, codes):
    """Σ log S_j and log q of given codes, (n_draws, b), everything in the factor's order."""
    b = len(mean)
    levels, tilt = (np.broadcast_to(table, (b, table.shape[-1])) for table in (levels, tilt))
    deviation = np.take_along_axis(levels, codes.T.astype(int), axis=1).T - mean
    log_normaliser, log_q = np.zeros(len(codes)), np.zeros(len(codes))
    for j in range(b):
        centre = mean[j] - deviation[:, j + 1 :] @ factor[j, j + 1 :] / factor[j, j]
        logits = tilt[j] - 0.5 * (factor[j, j] * (levels[j] - centre[:, None])) ** 2
        total = logsumexp(logits, axis=1)
        log_normaliser += total
        log_q += logits[np.arange(len(codes)), codes[:, j]] - total
    return log_normaliser, log_q
