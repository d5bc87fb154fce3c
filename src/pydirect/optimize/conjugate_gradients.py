"""Conjugate gradients for many right-hand sides at once, and a preconditioner for a matrix plus diagonals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray

# Largest number of vectors that stand for A's largest eigenvalues in preconditioners.
SKETCH = 128
Floats = NDArray[Any]  # of either precision


def conjugate_gradients(
    product: Callable[[Floats], Floats],
    solve: Callable[[Floats], Floats],
    right: Floats,
    n_steps: int,
    tolerance: float,
) -> tuple[Floats, int]:
    """Solve by preconditioned conjugate gradients; each column stops where its residual has fallen enough.

    Return also the number of steps of the slowest column.
    """

    def dot(x: Floats, y: Floats) -> Floats:
        return np.einsum("jk,jk->k", x, y)

    x, r = np.zeros_like(right), right.copy()
    target = tolerance**2 * dot(r, r)
    active = target > 0
    z = solve(r)
    p, rho = z, dot(r, z)
    for step in range(1, n_steps + 1):
        q = product(p)
        curvature = dot(p, q)
        active &= curvature > 0
        alpha = np.where(active, rho / np.where(active, curvature, 1.0), 0.0)
        x += alpha * p
        r -= alpha * q
        active &= dot(r, r) > target
        if not active.any() or step == n_steps:
            break
        z = solve(r)
        old, rho = rho, dot(r, z)
        p = z + np.where(active, rho / np.where(active, old, 1.0), 0.0) * p
    return x, step


def sketch_of(a: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return F, (n, `SKETCH` or fewer), with FFᵀ below A, close to its largest eigenvalues (Frangella et al. 2023)."""
    n = len(a)
    basis = np.linalg.qr(a @ np.random.default_rng(0).standard_normal((n, min(SKETCH, n // 8)), dtype=np.float32))[0]
    seen: NDArray[np.float32] = a @ basis
    values, vectors = np.linalg.eigh(basis.T @ seen)
    large = values > 1e-6 * values.max(initial=0.0)
    return seen @ (vectors[:, large] / np.sqrt(values[large]))


class Deflation:
    """Preconditioner of D + A for every lane: D and A's diagonal, with FFᵀ for A's largest eigenvalues."""

    def __init__(self, sketch: NDArray[np.float32], diagonal: FloatArray, shift: FloatArray) -> None:
        rest = np.maximum(diagonal - np.einsum("jr,jr->j", sketch, sketch), 0.0)
        self.sketch, self.inverse = sketch, (1.0 / (shift + rest[:, None])).astype(np.float32)
        scaled = (sketch * root[:, None] for root in np.sqrt(self.inverse).T)
        self.inner = np.linalg.inv(np.stack([f.T @ f for f in scaled]) + np.eye(sketch.shape[1], dtype=np.float32))

    def __call__(self, right: NDArray[np.float32]) -> NDArray[np.float32]:
        """Woodbury's formula."""
        x = self.inverse * right
        inner = np.matmul(self.inner, (x.T @ self.sketch)[:, :, None])[:, :, 0]
        return x - self.inverse * (self.sketch @ inner.T)
