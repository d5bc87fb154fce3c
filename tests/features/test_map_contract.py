"""What every feature map answers, beside dense references: the contract of `FeatureMap`."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pydirect.features.basis import Basis
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import (
    FeatureMap,
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
    random_fourier_features,
)

from .test_kernel import kernel_of_axes

D, N = 3, 21
STEP = 1e-6


class Cubes:
    """Stands for a fitted transformer."""

    def transform(self, x):
        return np.hstack([x, x**3])


def kernel_of(smoothness=1.5, ard=1.3):
    return KernelHyperparameters(0.1, ard, np.linspace(0.7, 1.6, D), 0.4, 1.2, 0.5, D - 1, smoothness)


def maps():
    rng = np.random.default_rng(1)
    landmarks = rng.standard_normal((7, D))
    waves, sizes = rng.standard_normal((D, 9)), rng.random(9)
    return {
        "precomputed": PrecomputedFeatures(D),
        "linear": LinearFeatures(D, 2.0),
        "polynomial": PolynomialFeatures(D, 3),
        "waves": FourierFeatures(waves, sizes),
        "fourier": FourierFeatures(waves, sizes, np.array([1.0, 0.5, 2.0]), 3.0),
        "random fourier": random_fourier_features(kernel_of(), 9, rng),
        "transformer": TransformerFeatures(Cubes(), D, 2 * D),
        **{f"nystroem {nu}": NystroemFeatures.at(landmarks, kernel_of(nu)) for nu in (0, 0.5, 1.5, 2.5)},
        "nystroem isotropic": NystroemFeatures.at(landmarks, kernel_of(ard=0.0)),
        "nystroem of axes": NystroemFeatures.at(landmarks, kernel_of_axes(D, n_linear=D)),
        "nystroem of pairs": NystroemFeatures.at(landmarks, kernel_of_axes(D, n_linear=D, order=2)),
        "nystroem sums of Φ": NystroemFeatures.at(landmarks, kernel_of()).for_sums(1e6, 0.0),
    }


MAPS = maps()


@pytest.fixture
def x():
    rows = 2 * np.random.default_rng(0).standard_normal((N, D))
    rows[0, 0] = 6.0  # clipped in the linear part
    return rows


@pytest.fixture(params=MAPS)
def features(request) -> FeatureMap:
    return MAPS[request.param]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_block_has_the_declared_width_and_precision(features, x, dtype):
    before, phi = x.copy(), features.transform(x, dtype)
    assert phi.shape == (N, features.n_weights) and phi.dtype == dtype and phi.flags.c_contiguous
    assert features.n_features_in == D and isinstance(features, FeatureMap)
    assert_allclose(phi, features.transform(x), rtol=1e-4, atol=2e-4)
    assert_array_equal(x, before)


def test_rows_are_mapped_independently(features, x):
    phi = features.transform(x)
    assert_array_equal(features.transform(np.asfortranarray(x)), phi)
    assert_allclose(features.transform(x[3:8]), phi[3:8], rtol=1e-12, atol=1e-12)
    assert_allclose(features.transform(x[4:5])[0], phi[4], rtol=1e-9, atol=1e-9)  # one row may have a path of its own


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_threads_do_not_change_a_bit(features, dtype):
    x = np.random.default_rng(0).standard_normal((301, D))
    alone = features.transform(x, dtype).tobytes()
    assert all(features.transform(x, dtype, n_threads).tobytes() == alone for n_threads in (2, 3))


def test_functions_whitened_are_the_features(features, x):
    assert_array_equal(features.whiten(features.functions(x)), features.transform(x))
    assert_array_equal(features.summands(x), features.functions(x))


@pytest.mark.parametrize("n_rows", [1, N])
def test_sums_of_functions_need_no_whitening(features, x, n_rows):
    basis, matrix = (
        Basis(InputMap.identity(D), features),
        np.random.default_rng(0).standard_normal((features.n_weights, 2)),
    )
    x, expected = x[:n_rows], features.transform(x[:n_rows]) @ matrix
    assert_allclose(features.functions(x) @ features.weights_of_functions(matrix), expected, rtol=1e-9, atol=1e-9)
    assert_allclose(basis.projection(matrix)(x, 2), expected, rtol=1e-9, atol=1e-9)


def test_the_residual_is_what_features_leave_of_the_kernel(features, x):
    phi, kernel = features.transform(x), features.residual_kernel
    found = features.residual_variance(x, phi)
    assert found.shape == (N,) and (found >= 0).all()
    if kernel is None:
        assert not found.any()
        return
    assert_allclose(found, (kernel.covariance(x, x) - phi @ phi.T).diagonal(), atol=1e-12)
    z = features.landmarks
    dense = kernel.covariance(x, z) @ np.linalg.solve(kernel.covariance(z, z), kernel.covariance(z, x))
    assert_allclose(phi @ phi.T, dense, rtol=1e-6, atol=1e-8)
    assert features.residual_variance(z, features.transform(z)).max() < 1e-6
    assert_allclose(features.functions(x) @ features.whitening, phi, atol=1e-12)


def test_gradients_are_those_of_finite_differences(features, x):
    rng = np.random.default_rng(2)
    direction = [(0, rng.standard_normal(N)), (2, rng.standard_normal(N))]
    if features.kind == "transformer":
        with pytest.raises(TypeError, match="features must be built in to have gradients, got a transformer"):
            features.gradient(x)
        return
    moved = np.zeros_like(x)
    for k, rate in direction:
        moved[:, k] = rate
    above, below = (features.functions(x + sign * STEP * moved) for sign in (1, -1))
    found = features.gradient(x)(direction)
    assert found.shape == (N, features.n_weights)
    assert_allclose(found, (above - below) / (2 * STEP), rtol=1e-6, atol=1e-7)


def test_largest_inputs_do_not_overflow(features):
    largest = features.largest_input
    assert largest <= LARGEST
    if features.kind != "transformer":
        assert np.isfinite(features.transform(np.full((1, D), largest))).all()


def test_a_map_for_sums_has_the_same_features(features, x):
    for n_rows, noise in ((1.0, 1.0), (1e6, 0.0), (100.0, None)):
        assert features.for_sums(n_rows, noise).transform(x).tobytes() == features.transform(x).tobytes()


def test_pickled_maps_are_the_same(features, x):
    features.prepare()
    again = pickle.loads(pickle.dumps(features))
    assert again.transform(x).tobytes() == features.transform(x).tobytes()
