# mypy: ignore-errors
"""NumPy stand-ins for compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp


def cholesky(matrix, ridge, scale, pivot, matrix_scale=1.0, n_threads=1) -> Any:
    """Stand-in."""
    from pydirect import _core

    if hasattr(_core, "cholesky"):
        return _core.cholesky(matrix, ridge, scale, pivot, matrix_scale, n_threads)
    m = scale[:, None] * (matrix_scale * matrix + np.diag(ridge)) * scale
    b = len(m)
    order, factor = np.arange(b), np.zeros((b, b))
    if not pivot:
        try:
            return np.ascontiguousarray(np.linalg.cholesky(m).T), order, b
        except np.linalg.LinAlgError:
            return factor, order, 0
    for j in range(b):
        k = j + int(np.lexsort((order[j:], np.diag(m)[j:]))[0])
        for rows in (m, m.T, factor.T, order):
            rows[[j, k]] = rows[[k, j]]
        if not m[j, j] > 0.0:
            return factor, order, j
        factor[j, j:] = m[j, j:] / np.sqrt(m[j, j])
        m[j + 1 :, j + 1 :] -= np.outer(factor[j, j + 1 :], factor[j, j + 1 :])
    return factor, order, b


def inverse_diagonal(factor, n_threads=1) -> Any:
    """Stand-in."""
    from pydirect import _core

    if hasattr(_core, "inverse_diagonal"):
        return _core.inverse_diagonal(factor, n_threads)
    inverse = np.linalg.inv(factor)
    return np.einsum("ij,ij->i", inverse, inverse)


def sequential_draws(factor, mean, levels, tilt, order, n_draws, seed, kind, n_threads=1) -> Any:
    """Stand-in."""
    from pydirect import _core

    if hasattr(_core, "sequential_draws"):
        return _core.sequential_draws(factor, mean, levels, tilt, order, n_draws, seed, kind, n_threads)
    b = len(mean)
    rng = np.random.default_rng(seed)
    uniforms = rng.random((n_draws, b))
    if kind == "stratified":
        pairs = (n_draws + 1) // 2
        half = (rng.permuted(np.tile(np.arange(pairs), (b, 1)), axis=1).T + rng.random((pairs, b))) / pairs / 2
        half = np.where(rng.random(half.shape) < 0.5, half, 1 - half)
        both = np.empty((2 * pairs, b))
        both[::2], both[1::2] = half, 1 - half
        uniforms = both[:n_draws]
    levels, tilt = (np.broadcast_to(table, (b, table.shape[-1])) for table in (levels, tilt))
    codes, deviation = np.zeros((n_draws, b), dtype=np.uint8), np.zeros((n_draws, b))
    log_normaliser, log_q = np.zeros(n_draws), np.zeros(n_draws)
    for j in range(b - 1, -1, -1):
        centre = mean[j] - deviation[:, j + 1 :] @ factor[j, j + 1 :] / factor[j, j]
        logits = tilt[j] - 0.5 * (factor[j, j] * (levels[j] - centre[:, None])) ** 2
        total = logsumexp(logits, axis=1)
        if kind == "nearest":
            chosen = logits.argmax(axis=1)
        else:
            cumulative = np.cumsum(np.exp(logits - total[:, None]), axis=1)
            chosen = (cumulative > (uniforms[:, j] * cumulative[:, -1])[:, None]).argmax(axis=1)
        codes[:, order[j]], deviation[:, j] = chosen, levels[j, chosen] - mean[j]
        log_normaliser += total
        log_q += logits[np.arange(n_draws), chosen] - total
    return codes, log_normaliser, log_q
