"""Statistics in the decorrelated basis, beside singular values of the rows."""

import numpy as np
import pytest

from pydirect.linear import log_evidence
from pydirect.statistics import GaussianStatistics, decorrelate

N_WEIGHTS = 200


def fast_decaying_rows(n_rows: int, rng: np.random.Generator) -> np.ndarray:
    rotation = np.linalg.qr(rng.standard_normal((N_WEIGHTS, N_WEIGHTS)))[0]
    return rng.standard_normal((n_rows, N_WEIGHTS)) * np.exp(-0.1 * np.arange(N_WEIGHTS)) @ rotation


def exact_log_evidence(phi: np.ndarray, y: np.ndarray, noise: float) -> float:
    left, singular, _ = np.linalg.svd(phi)
    variance = np.full(len(y), noise)
    variance[: len(singular)] += singular**2
    return float(-0.5 * (np.log(2 * np.pi * variance) + (left.T @ y) ** 2 / variance).sum())


@pytest.mark.parametrize("n_rows", [80, 600])
@pytest.mark.parametrize("noise", [1e-2, 1e-8])
def test_evidence_of_nearly_noise_free_targets_is_that_of_singular_values(n_rows: int, noise: float) -> None:
    rng = np.random.default_rng(0)
    phi = fast_decaying_rows(n_rows, rng)
    leading = np.linalg.svd(phi)[2][0]
    y = phi @ (100 * leading + rng.standard_normal(N_WEIGHTS)) + np.sqrt(noise) * rng.standard_normal(n_rows)
    rotated = decorrelate(GaussianStatistics.from_arrays(phi, y))
    exact = exact_log_evidence(phi, y, noise)
    assert log_evidence(rotated, noise, 1.0)[0] == pytest.approx(exact, abs=0.02 * n_rows)


def test_directions_are_orthonormal_where_rows_are_fewer_than_weights() -> None:
    phi = fast_decaying_rows(150, np.random.default_rng(1))
    vectors = decorrelate(GaussianStatistics.from_arrays(phi, phi[:, 0])).rotation.matrix
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(vectors.shape[1]), atol=1e-12)
