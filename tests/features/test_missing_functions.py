import numpy as np
import pytest
from numpy.testing import assert_allclose

from pydirect.features import missing_functions
from pydirect.features.basis import Basis
from pydirect.features.derivatives import derivatives
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures, random_fourier_features
from pydirect.features.missing_functions import MissingFeatures

KERNEL = KernelHyperparameters(0.1, 1.3, np.array([0.7, 1.1]), 0.4, 1.2, 0.5, 2, 2.5)
RNG = np.random.default_rng(0)
INPUTS = np.vstack([2 * RNG.standard_normal((8, 2)), [[7.0, -6.0]]])


def basis_of(kind):
    rng = np.random.default_rng(1)
    if kind == "fourier":
        return Basis(InputMap.identity(2), random_fourier_features(KERNEL, 20, rng), KERNEL)
    return Basis(InputMap.identity(2), NystroemFeatures.at(rng.standard_normal((6, 2)), KERNEL), KERNEL)


@pytest.mark.parametrize("kind", ["fourier", "nystroem"])
@pytest.mark.parametrize("mean_missing", [0.0, 0.2])
def test_the_variance_is_exact_whatever_the_frequencies(kind, mean_missing):
    basis = basis_of(kind)
    phi = basis.transform(INPUTS)
    found = MissingFeatures(basis, mean_missing, np.random.default_rng(2)).transform(INPUTS, phi)
    assert_allclose((found**2).sum(axis=1), basis.missing_variance(INPUTS, phi, mean_missing), rtol=1e-12, atol=1e-12)


def test_covariances_between_landmarks_are_the_kernels_on_average():
    basis = basis_of("nystroem")
    phi = basis.transform(INPUTS)
    expected = KERNEL.covariance(INPUTS, INPUTS) - phi @ phi.T
    beyond = INPUTS - np.clip(INPUTS, -5, 5)
    expected += KERNEL.amplitudes[2] * beyond @ beyond.T
    found = []
    for seed in range(40):
        features = MissingFeatures(basis, 0.0, np.random.default_rng(seed)).transform(INPUTS, phi)
        found.append(features @ features.T)
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - expected) < 4 * error + 0.01).all()


@pytest.mark.parametrize("kind", ["fourier", "nystroem"])
def test_derivatives_are_those_of_finite_differences(kind):
    basis, step = basis_of(kind), 1e-6
    features = MissingFeatures(basis, 0.05, np.random.default_rng(2))
    direction = [(0, RNG.standard_normal(len(INPUTS))), (1, RNG.standard_normal(len(INPUTS)))]
    moved = step * np.column_stack([rate for _, rate in direction])
    rates = basis.whitened(derivatives(basis.map, INPUTS)(direction))
    found = features.along(INPUTS, basis.transform(INPUTS), direction, rates)
    above, below = (features.transform(x, basis.transform(x)) for x in (INPUTS + moved, INPUTS - moved))
    assert_allclose(found, (above - below) / (2 * step), rtol=1e-5, atol=1e-6)


def test_few_rows_are_rotated_otherwise_and_get_the_same_features(monkeypatch):
    basis = basis_of("nystroem")
    phi = basis.transform(INPUTS)
    features = MissingFeatures(basis, 0.0, np.random.default_rng(2))
    few = features.transform(INPUTS, phi)
    monkeypatch.setattr(missing_functions, "FEW", 1000)
    assert_allclose(features.transform(INPUTS, phi), few, rtol=1e-9, atol=1e-9)


def test_at_landmarks_nothing_is_missing():
    basis = basis_of("nystroem")
    features = MissingFeatures(basis, 0.0, np.random.default_rng(2))
    found = features.transform(basis.map.landmarks, basis.transform(basis.map.landmarks))
    assert np.abs(found).max() < 1e-3  # a deviation: the root of rounding and of the jitter
