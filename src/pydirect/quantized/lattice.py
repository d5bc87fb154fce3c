"""Posterior samples rounded to a lattice: levels that all weights share, at the best scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from pydirect._validation import FloatArray

# Scales that are tried, relative to the largest weight: clipping it may pay for finer steps of all others.
REACHES = (1.0, 0.7, 0.5, 0.35)
POLISH_SWEEPS = 3
Codes = NDArray[np.uint8]


def sample_targets(posterior: Any, n_samples: int, method: str, rng: np.random.Generator) -> FloatArray:
    """Draw weights of Φ, (n_samples, n_weights); for ``"moments"`` shifted and scaled to the posterior's mean."""
    if method == "most_probable" or n_samples == 1:
        return np.asarray(posterior.coefficients)[None, :]
    drawn = posterior.sample_weights(n_samples, rng)
    if method == "draw":
        return np.asarray(drawn)
    return centred(drawn, posterior.coefficients)


def centred(drawn: FloatArray, mean: FloatArray) -> FloatArray:
    """Shift draws to a mean, and scale them so that their mean square about it is an unbiased variance."""
    n = len(drawn)
    return np.asarray(mean + np.sqrt(n / (n - 1)) * (drawn - drawn.mean(axis=0)))


def rounded_on_best_scale(targets: FloatArray, grid: FloatArray, metric: FloatArray) -> tuple[NDArray[np.uint8], float]:
    """Round to levels ``scale · grid``, at the scale with the smallest error of the mean and of the samples."""
    largest = float(np.abs(targets).max()) or 1.0
    best: tuple[float, NDArray[np.uint8], float] | None = None
    for reach in REACHES:
        scale = reach * largest
        codes = round_to_levels(targets, scale * grid, metric)
        error = scale * grid[codes] - targets
        mean = error.mean(axis=0)
        loss = float(
            mean @ metric @ mean + np.einsum("sj,jk,sk->", error, metric, error, optimize=True) / len(error) ** 2
        )
        if best is None or loss < best[0]:
            best = loss, codes, scale
    assert best is not None
    return best[1], best[2]


def round_to_levels(targets: FloatArray, levels: FloatArray, metric: FloatArray) -> Codes:
    """Round vectors to a lattice of levels so that their errors cancel in the mean.

    Samples are rounded in order: each target is shifted by the errors of those before it, so that the mean of S samples
    is off by one sample's error divided by S. Each is rounded weight by weight, later weights compensating for the
    errors of earlier ones (Babai's nearest plane, with clipping at the levels' ends), then improved by coordinate
    descent.

    `targets`, (n_samples, n_weights). `levels`, (n_levels,): ascending. `metric`, (n_weights, n_weights): H of the
    squared error ``(w − t)ᵀH(w − t)``, positive definite: ΦᵀΦ and the prior's precision. Returns uint8
    (n_samples, n_weights).
    """
    order = np.argsort(-np.diag(metric), kind="stable")  # those that matter most first; the others compensate
    h = metric[np.ix_(order, order)]
    # With H⁻¹ = UᵀU, U upper triangular, row i of U says how later weights compensate for an error of weight i.
    lower = cholesky(h, lower=True)
    inverse = solve_triangular(lower, np.eye(len(h)), lower=True)
    upper = cholesky(inverse.T @ inverse, lower=False)
    middles = (levels[1:] + levels[:-1]) / 2
    diagonal = np.diag(h).copy()
    codes = np.empty(targets.shape, dtype=np.uint8)
    carried = np.zeros(len(h))
    for s, target in enumerate(targets[:, order]):
        wanted = target + carried
        left = wanted.copy()
        chosen = np.empty(len(h), dtype=np.intp)
        for i in range(len(h)):
            chosen[i] = np.searchsorted(middles, left[i])
            error = (left[i] - levels[chosen[i]]) / upper[i, i]
            left[i + 1 :] -= error * upper[i, i + 1 :]
        slope = h @ (levels[chosen] - wanted)
        for _ in range(POLISH_SWEEPS):
            moved = False
            for i in range(len(h)):
                now = levels[chosen[i]]
                new = int(np.searchsorted(middles, now - slope[i] / diagonal[i]))
                if new != chosen[i]:
                    slope += h[i] * (levels[new] - now)
                    chosen[i], moved = new, True
            if not moved:
                break
        carried = wanted - levels[chosen]
        codes[s, order] = chosen
    return codes
