from dataclasses import replace

import numpy as np
import pytest

from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import (
    LARGEST_ROUNDING,
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    TransformerFeatures,
    random_fourier_features,
)
from pydirect.statistics.gaussian import collect_statistics, fingerprint


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((21, 3))


def fourier(n_frequencies=9, seed=1, **options):
    rng = np.random.default_rng(seed)
    return FourierFeatures(rng.standard_normal((3, n_frequencies)), rng.random(n_frequencies), **options)


def test_linear_features_are_the_inputs_and_a_constant(x):
    np.testing.assert_array_equal(LinearFeatures(3, 2.0).transform(x), np.hstack([x, np.full((21, 1), 2.0)]))


def test_polynomial_features_are_all_monomials_with_the_shorter_first(x):
    phi = PolynomialFeatures(3, 2).transform(x)
    a, b, c = x.T
    np.testing.assert_allclose(phi, np.stack([1 + 0 * a, a, b, c, a * a, a * b, a * c, b * b, b * c, c * c], axis=1))


@pytest.mark.parametrize(("n_inputs", "degree", "count"), [(1, 1, 2), (1, 5, 6), (4, 3, 35), (30, 2, 496)])
def test_polynomial_features_count_their_monomials(n_inputs, degree, count):
    features = PolynomialFeatures(n_inputs, degree)
    assert features.n_weights == count == len(features.monomials)


def test_fourier_features_are_scaled_cosines_sines_inputs_and_a_constant(x):
    features = fourier(linear_scale=np.array([1.0, 0.5, 2.0]), constant=3.0)
    phase = x @ features.frequencies
    expected = np.hstack(
        [
            features.amplitudes * np.cos(phase),
            features.amplitudes * np.sin(phase),
            x * features.linear_scale,
            np.full((21, 1), 3.0),
        ]
    )
    np.testing.assert_allclose(features.transform(x), expected, atol=1e-14)


class Halves:
    """Stands for a fitted transformer."""

    def __init__(self, output):
        self.output = output

    def transform(self, x):
        return self.output(x)


def test_transformer_features_are_the_transformers_output_made_dense(x):
    from scipy.sparse import csr_array

    for output in (lambda x: x[:, :2] / 2, lambda x: csr_array(x[:, :2] / 2)):
        np.testing.assert_array_equal(TransformerFeatures(Halves(output), 3, 2).transform(x), x[:, :2] / 2)


def test_transformer_output_of_another_width_or_not_finite_is_refused(x):
    with pytest.raises(ValueError, match=r"transformed X must have shape \(21, 5\), got \(21, 3\)"):
        TransformerFeatures(Halves(lambda x: x), 3, 5).transform(x)
    with pytest.raises(ValueError, match="transformed X must be finite"):
        TransformerFeatures(Halves(lambda x: x * np.nan), 3, 3).transform(x)


def nystroem(x):
    kernel = KernelHyperparameters(0.1, 1.0, np.array([0.5, 1.0, 2.0]), 0.3, 2.0, 0.2, 3)
    return NystroemFeatures.at(np.ascontiguousarray(x), kernel)


def test_whitening_follows_from_the_landmarks(x):
    features = nystroem(x)
    again = NystroemFeatures(features.landmarks.copy(), features.hyperparameters)
    assert again.whitening.tobytes() == features.whitening.tobytes()
    assert again.transform(x).tobytes() == features.transform(x).tobytes()


def crossing(length_scale, n_landmarks, rng):
    """Features of 2000 rows on the plane, better conditioned for shorter length-scales."""
    kernel = KernelHyperparameters(0.1, 1.0, np.full(2, length_scale), 0.1, 2.0, 0.2, 2)
    return NystroemFeatures.at(rng.uniform(-2, 2, (n_landmarks, 2)), kernel), rng.uniform(-2, 2, (2000, 2))


@pytest.mark.parametrize("length_scale", [0.1, 1.0, 30.0])
def test_the_bound_of_rounding_covers_what_whitening_sums_adds(length_scale):
    features, rows = crossing(length_scale, 150, np.random.default_rng(0))
    sums = [
        collect_statistics(replace(features, sums_of_kernel=kernel), rows, np.ones(2000)).A for kernel in (True, False)
    ]
    error = np.abs(np.linalg.eigvalsh(sums[0] - sums[1])).max()
    assert 0 < error <= features.rounding(2000)


def test_sums_are_of_the_kernel_where_rounding_is_small_beside_the_noise():
    features, _ = crossing(1.0, 150, np.random.default_rng(0))
    limit = LARGEST_ROUNDING * 0.01 / features.rounding(1.0)  # rows
    assert features.for_sums(0.99 * limit, 0.01).sums_of_kernel
    assert not features.for_sums(1.01 * limit, 0.01).sums_of_kernel
    assert not features.for_sums(0.99 * limit, 0.009).sums_of_kernel


def test_what_sums_are_of_belongs_to_the_fingerprint():
    features, _ = crossing(1.0, 20, np.random.default_rng(0))
    assert fingerprint(features.for_sums(1.0, 1.0)) != fingerprint(features.for_sums(1.0, 0.0))


def test_the_order_and_the_signs_of_inputs_do_not_change_random_frequencies():
    scales, signs = np.array([2.0, 0.5, 1.0]), np.array([1.0, -1.0, -1.0])
    order = np.array([1, 2, 0])

    def drawn(length_scales, signs):
        kernel = KernelHyperparameters(0.1, 1.0, length_scales, 0.5, 2.0, 0.1, 3)
        return random_fourier_features(kernel, 20, np.random.default_rng(0), signs=signs).frequencies

    np.testing.assert_array_equal(
        drawn(scales[order], signs[order]), (drawn(scales, np.ones(3)) * signs[:, None])[order]
    )
