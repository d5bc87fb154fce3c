"""Several outputs with correlated functions and noise: Y = ΦW + E, rows of W from N(0, B), rows of E from N(0, Σ).

Covariances of y are ΦΦᵀ ⊗ B + I ⊗ Σ. B and Σ are found by the EM algorithm:

1. Where every row has all outputs, the eigenvectors of ΦᵀΦ = VsVᵀ separate the weights: rows of VᵀW are independent,
   with posterior covariances (B⁻¹ + sⱼΣ⁻¹)⁻¹ of the size of the outputs.
2. Where entries are missing, rows with the same outputs share sums; the posterior of all weights is one Gaussian, and
   missing noise is expected given the noise of the row's other outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray

# Nats by which an iteration must raise the evidence.
LEAST_GAIN = 1e-2
# What covariances must keep of their diagonals, so that they have inverses.
RIDGE = 1e-9


@dataclass(frozen=True)
class OutputSums:
    """Sums over rows that have the same outputs: ΦᵀΦ, ΦᵀY, YᵀY of these `observed` outputs, and their number."""

    observed: NDArray[np.intp]
    gram: FloatArray
    cross: FloatArray
    yty: FloatArray
    n_rows: float


@dataclass(frozen=True)
class CorrelatedFit:
    """Posterior of W (n_weights, n_outputs) and the covariances that it was found with.

    `root`: where y is complete, Rⱼ with RⱼRⱼᵀ the covariances of the rows of VᵀW, (n_weights, n_outputs, n_outputs), V
    the `vectors`; else R with RRᵀ the covariance of W, (n_weights, n_outputs, n_weights · n_outputs), without vectors.
    """

    mean: FloatArray
    root: FloatArray
    vectors: FloatArray | None
    signal: FloatArray
    noise: FloatArray
    log_evidence: float
    n_iter: int
    converged: bool
    interrupted: bool


def sums_by_pattern(phi: FloatArray, y: FloatArray, weight: FloatArray) -> list[OutputSums]:
    """Sum rows of Φ and of y (n_rows, n_outputs), NaN where it is missing, by which outputs they have."""
    patterns, where = np.unique(~np.isnan(y), axis=0, return_inverse=True)
    found = []
    for k, pattern in enumerate(patterns):
        rows, observed = np.flatnonzero(where.ravel() == k), np.flatnonzero(pattern)
        if observed.size:
            own, targets = phi[rows], y[np.ix_(rows, observed)]
            weighted = weight[rows, None] * own
            yty = targets.T @ (weight[rows, None] * targets)
            found.append(OutputSums(observed, own.T @ weighted, weighted.T @ targets, yty, float(weight[rows].sum())))
    return found


def fit_correlated(
    patterns: Sequence[OutputSums],
    signal: FloatArray,
    noise: FloatArray,
    max_iter: int = 200,
    report: Callable[[int, int], None] | None = None,
) -> CorrelatedFit:
    """Maximise the evidence over B and Σ, (n_outputs, n_outputs) each, from given ones; Ctrl-C keeps the last ones.

    `report` is called with the number of finished iterations and the largest.
    """
    complete = len(patterns) == 1 and len(patterns[0].observed) == len(signal)
    with single_blas_thread():
        step = _Complete(patterns[0]) if complete else _Incomplete(patterns, len(signal))
        last, n_iter, converged, interrupted = -np.inf, 0, False, False
        try:
            while n_iter < max_iter and not converged:
                log_evidence, new_signal, new_noise = step(signal, noise)
                n_iter += 1
                converged = log_evidence - last < LEAST_GAIN
                if not converged:
                    last, signal, noise = log_evidence, _regular(new_signal), _regular(new_noise)
                if report is not None:
                    report(n_iter, max_iter)
        except KeyboardInterrupt:
            interrupted, converged = True, False
        log_evidence, _, _ = step(signal, noise)
        parts = step.mean, step.root(), step.vectors
        return CorrelatedFit(*parts, signal, noise, log_evidence, n_iter, converged, interrupted)


class _Complete:
    """Steps of EM in the eigenvectors of ΦᵀΦ, where all rows have all outputs."""

    def __init__(self, sums: OutputSums) -> None:
        self.sums = sums
        s, self.vectors = np.linalg.eigh(sums.gram)
        self.s, self.c = np.maximum(s, 0.0)[:, None, None], self.vectors.T @ sums.cross

    def __call__(self, signal: FloatArray, noise: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the evidence, and B and Σ of the next step."""
        sums, inverse = self.sums, np.linalg.inv(noise)
        precision = np.linalg.inv(signal) + self.s * inverse
        self.covariance = np.linalg.inv(precision)
        pulled = self.c @ inverse
        rotated = np.einsum("jab,jb->ja", self.covariance, pulled)
        self.mean = self.vectors @ rotated
        second = rotated[:, :, None] * rotated[:, None, :] + self.covariance
        crossed = self.c.T @ rotated
        scatter = sums.yty - crossed - crossed.T + (self.s * second).sum(axis=0)
        log_evidence = -0.5 * (
            sums.n_rows * _log_determinant(2 * np.pi * noise)
            + (inverse * sums.yty).sum()
            + _log_determinant(precision).sum()
            + len(self.c) * _log_determinant(signal)
            - (pulled * rotated).sum()
        )
        return float(log_evidence), second.mean(axis=0), scatter / sums.n_rows

    def root(self) -> FloatArray:
        return np.linalg.cholesky(self.covariance)


class _Incomplete:
    """Steps of EM with all weights in one Gaussian, where outputs of some rows are missing."""

    vectors = None

    def __init__(self, patterns: Sequence[OutputSums], n_outputs: int) -> None:
        self.patterns, self.p, self.b = patterns, n_outputs, len(patterns[0].gram)
        self.n_rows = sum(own.n_rows for own in patterns)

    def __call__(self, signal: FloatArray, noise: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return the evidence, and B and Σ of the next step."""
        b, p = self.b, self.p
        precision, pulled, value = np.kron(np.eye(b), np.linalg.inv(signal)), np.zeros((b, p)), 0.0
        for own in self.patterns:
            at = np.ix_(own.observed, own.observed)
            inverse, padded = np.linalg.inv(noise[at]), np.zeros((p, p))
            padded[at] = inverse
            precision += np.kron(own.gram, padded)
            pulled[:, own.observed] += own.cross @ inverse
            value += own.n_rows * _log_determinant(2 * np.pi * noise[at]) + (inverse * own.yty).sum()
        self.factor = np.linalg.cholesky(precision)
        upper = lapack.dpotri(self.factor.T)[0]
        covariance = upper + np.triu(upper, 1).T
        self.mean = (covariance @ pulled.ravel()).reshape(b, p)
        covariance = covariance.reshape(b, p, b, p)
        value += 2 * np.log(self.factor.diagonal()).sum() + b * _log_determinant(signal) - (pulled * self.mean).sum()
        scatter = np.zeros((p, p))
        for own in self.patterns:
            scatter += self._scatter(own, covariance, noise)
        new_signal = (self.mean.T @ self.mean + np.einsum("jajc->ac", covariance)) / b
        return -0.5 * float(value), new_signal, scatter / self.n_rows

    def _scatter(self, own: OutputSums, covariance: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the expected Σ εεᵀ of rows, of which the noise of some outputs is expected given the others'."""
        o, weights = own.observed, self.mean[:, own.observed]
        crossed = own.cross.T @ weights
        seen = own.yty - crossed - crossed.T + weights.T @ own.gram @ weights
        seen = seen + np.einsum("jk,jakc->ac", own.gram, covariance[:, o][:, :, :, o], optimize=True)
        pull = noise[:, o] @ np.linalg.inv(noise[np.ix_(o, o)])  # the identity for outputs that are there
        return np.asarray(pull @ seen @ pull.T + own.n_rows * (noise - pull @ noise[o]))

    def root(self) -> FloatArray:
        """Return R of the posterior, the inverse of the precision's factor, transposed."""
        return np.ascontiguousarray(np.linalg.inv(self.factor).T).reshape(self.b, self.p, -1)


def _log_determinant(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.slogdet(matrix)[1])


def _regular(covariance: FloatArray) -> FloatArray:
    """Return a symmetric covariance with an inverse."""
    return np.asarray((covariance + covariance.T) / 2 + RIDGE * np.diag(covariance.diagonal()))
