"""Rotations kept in factors, beside the matrices that they stand for, and statistics in the decorrelated basis."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.linalg import lapack

from pydirect.linear import log_evidence
from pydirect.statistics import GaussianStatistics, Rotation, decorrelate, rotated as module
from pydirect.statistics.rotated import diagonalise

N_WEIGHTS = 200


def fast_decaying_rows(n_rows: int, rng: np.random.Generator) -> np.ndarray:
    rotation = np.linalg.qr(rng.standard_normal((N_WEIGHTS, N_WEIGHTS)))[0]
    return rng.standard_normal((n_rows, N_WEIGHTS)) * np.exp(-0.1 * np.arange(N_WEIGHTS)) @ rotation


def exact_log_evidence(phi: np.ndarray, y: np.ndarray, noise: float) -> float:
    left, singular, _ = np.linalg.svd(phi, full_matrices=False)
    explained, variance = left.T @ y, noise + singular**2
    rest = (len(y) - len(singular)) * np.log(2 * np.pi * noise) + np.sum((y - left @ explained) ** 2) / noise
    return float(-0.5 * ((np.log(2 * np.pi * variance) + explained**2 / variance).sum() + rest))


@pytest.mark.parametrize("n_rows", [80, 300])
@pytest.mark.parametrize("noise", [1e-2, 1e-8])
def test_evidence_of_nearly_noise_free_targets_is_that_of_singular_values(n_rows: int, noise: float) -> None:
    rng = np.random.default_rng(0)
    phi = fast_decaying_rows(n_rows, rng)
    leading = np.linalg.svd(phi, full_matrices=False)[2][0]
    y = phi @ (100 * leading + rng.standard_normal(N_WEIGHTS)) + np.sqrt(noise) * rng.standard_normal(n_rows)
    rotated = decorrelate(GaussianStatistics.from_arrays(phi, y))
    exact = exact_log_evidence(phi, y, noise)
    assert log_evidence(rotated, noise, 1.0)[0] == pytest.approx(exact, abs=0.02 * n_rows)


def test_directions_are_orthonormal_where_rows_are_fewer_than_weights() -> None:
    phi = fast_decaying_rows(150, np.random.default_rng(1))
    vectors = decorrelate(GaussianStatistics.from_arrays(phi, phi[:, 0])).rotation.matrix
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(vectors.shape[1]), atol=1e-12)


N = 60
in_factors = pytest.mark.skipif(not hasattr(lapack, "dstevd"), reason="from SciPy 1.16 on")


@pytest.fixture(autouse=True)
def small_rotations_in_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALLEST_FACTORED", 2)


def gram(decay: float = 0.4, n: int = N) -> np.ndarray:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((n, n)))[0]
    a = (axes * np.exp(-decay * np.arange(n))) @ axes.T
    return 0.5 * (a + a.T)


@pytest.mark.parametrize("n", [2, 3, N])
@pytest.mark.parametrize("decay", [0.0, 0.01, 0.4])
def test_vectors_are_orthonormal_and_diagonalise(n: int, decay: float) -> None:
    a = gram(decay, n)
    eigenvalues, rotation = diagonalise(a)
    v = rotation.matrix
    np.testing.assert_allclose(v.T @ v, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(a @ v, v * eigenvalues, atol=1e-14 * n)
    np.testing.assert_allclose(eigenvalues, np.linalg.eigvalsh(a), atol=1e-14)


@in_factors
@pytest.mark.parametrize("n_columns", [None, 1, 3, 20])
@pytest.mark.parametrize("chosen", ["all", "few", "most"])
def test_products_are_those_of_the_matrix_and_do_not_form_it(n_columns: int | None, chosen: str) -> None:
    whole = diagonalise(gram())[1]
    mask = np.arange(N) >= {"all": 0, "few": 50, "most": 10}[chosen]
    rotation, rng = whole.columns(mask), np.random.default_rng(1)
    shape = () if n_columns is None else (n_columns,)
    inner, outer = rng.standard_normal((mask.sum(), *shape)), rng.standard_normal((N, *shape))
    times, transposed = rotation.times(inner), rotation.transposed_times(outer)
    assert not rotation.is_formed and not whole.is_formed
    matrix = rotation.matrix
    assert rotation.shape == matrix.shape
    np.testing.assert_allclose(matrix, whole.matrix[:, mask], atol=1e-14)
    np.testing.assert_allclose(times, matrix @ inner, atol=1e-12)
    np.testing.assert_allclose(transposed, matrix.T @ outer, atol=1e-12)
    assert rotation.times(inner).tobytes() == times.tobytes()  # whether the matrix is there or not


def test_the_matrix_has_the_same_bits_whenever_and_in_whichever_thread_it_is_formed() -> None:
    first, second = diagonalise(gram())[1], diagonalise(gram())[1]
    mask = np.arange(N) >= 20
    single = second.columns(mask).astype(np.float32)
    second.matrix  # noqa: B018
    with ThreadPoolExecutor(4) as pool:
        shared = first.columns(mask).astype(np.float32)
        found = [future.result() for future in [pool.submit(lambda: shared.matrix) for _ in range(8)]]
    assert all(each is found[0] for each in found)
    assert single.matrix.tobytes() == found[0].tobytes()
    assert found[0].dtype == np.float32


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_copies_hold_the_matrix(again) -> None:
    for rotation in (diagonalise(gram())[1], diagonalise(gram())[1].astype(np.float32)):
        twin = again(rotation)
        assert type(twin) is Rotation
        assert twin.matrix.tobytes() == rotation.matrix.tobytes()


def test_small_eigenvalues_of_nearly_noise_free_targets_have_no_share_of_large_ones() -> None:
    """c of a direction is at most √(λ yᵀy): rounding may leave no more of leading directions in it."""
    rng = np.random.default_rng(2)
    phi = rng.standard_normal((200, N)) * np.exp(-0.15 * np.arange(N))
    y = phi @ rng.standard_normal(N)
    statistics = GaussianStatistics.from_arrays(phi, y)
    rotated = decorrelate(statistics)
    exact = rotated.rotation.matrix.T @ phi.T @ y
    np.testing.assert_allclose(rotated.c[:, 0], exact, atol=1e-11 * np.abs(exact).max())
    left, singular, _ = np.linalg.svd(phi, full_matrices=False)
    expected = np.abs(singular * (left.T @ y))[::-1]
    np.testing.assert_allclose(np.abs(rotated.c[:, 0]), expected, atol=1e-12 * expected.max())


def test_divided_statistics_share_the_rotation() -> None:
    statistics = GaussianStatistics.from_arrays(np.eye(N), np.arange(N, dtype=float))
    rotated = decorrelate(statistics)
    halved = rotated.divided(2.0)
    assert halved.rotation is rotated.rotation
    np.testing.assert_array_equal(halved.gram, statistics.A / 2)
