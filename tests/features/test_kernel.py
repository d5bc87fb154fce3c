import itertools

import numpy as np
import pytest

from pydirect.features.inputs import LARGEST
from pydirect.features.kernel import KernelHyperparameters, linear_inputs

from .test_evidence import categories, covariance_by_hand


def kernel(d, *, ard=0.7, isotropic=0.4, linear=0.9, n_linear=0, smoothness=1.5, length_scale=1.0):
    length_scales = length_scale * np.geomspace(0.5, 20.0, d)
    return KernelHyperparameters(0.1, ard, length_scales, isotropic, 3.0 * length_scale, linear, n_linear, smoothness)


def kernel_of_axes(d, *, ard=0.7, product=0.4, n_linear=0, smoothness=1.5, order=0):
    rates = np.geomspace(0.05, 3.0, d)
    rates[::3] = 0.0  # inputs that the part does not see
    scales = np.geomspace(0.5, 20.0, d)
    return KernelHyperparameters(0.1, ard, scales, 0.0, 1.0, 0.9, n_linear, smoothness, 0, product, rates, order)


def exact_covariance(p, x, z):
    return covariance_by_hand(p, x.astype(np.longdouble), z)


@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
@pytest.mark.parametrize(("d", "n_linear"), [(1, 0), (3, 3), (8, 5), (40, 40)])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 7), (5, 8), (3, 9), (67, 259)])
def test_covariance_is_the_documented_sum(at_every_level, n, m, d, n_linear, smoothness):
    rng = np.random.default_rng(n)
    p = kernel(d, n_linear=n_linear, smoothness=smoothness)
    x, z = 3 * rng.standard_normal((n, d)), 3 * rng.standard_normal((m, d))  # the linear part clips some
    got, exact = at_every_level(lambda: p.covariance(x, z)), exact_covariance(p, x, z)
    assert float(np.abs(got - exact).max()) < 2e-15 * np.sqrt(d) * p.diagonal(np.vstack([x, z])).max()


@pytest.mark.parametrize(("smoothness", "ard"), [(0.5, 0.7), (1.5, 0.0), (1.5, 0.7), (2.5, 0.7)])
@pytest.mark.parametrize(("d", "n_linear"), [(3, 0), (7, 5), (40, 40)])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 8), (67, 259)])
@pytest.mark.parametrize("order", [0, 2])
def test_parts_of_axes_are_the_documented_ones(at_every_level, n, m, d, n_linear, smoothness, ard, order):
    rng = np.random.default_rng(n)
    p = kernel_of_axes(d, ard=ard, n_linear=n_linear, smoothness=smoothness, order=order)
    x, z = rng.uniform(-2, 2, (n, d)), rng.uniform(-2, 2, (m, d))
    found = at_every_level(lambda: p.covariance(x, z))
    np.testing.assert_allclose(found, covariance_by_hand(p, x, z), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(p.diagonal(x), np.diag(covariance_by_hand(p, x, x)), rtol=1e-12)


@pytest.mark.parametrize("order", [None, 0, 2])
@pytest.mark.parametrize(("n", "m"), [(5, 8), (16, 3), (67, 259)])
def test_inputs_that_are_alike_are_skipped(at_every_level, n, m, order):
    x = categories(n + m, 4, 70)
    d = x.shape[1]
    p = kernel(d, n_linear=d - 2) if order is None else kernel_of_axes(d, n_linear=d - 2, order=order)
    others = p.prepared(x[n:])
    found = at_every_level(lambda: p.covariance(x[:n], others))
    np.testing.assert_allclose(found, covariance_by_hand(p, x[:n], x[n:]), rtol=1e-12, atol=1e-13)
    for i in range(0, n, 3):  # of single rows nothing is skipped
        np.testing.assert_array_equal(p.covariance(x[i : i + 1], others)[0], found[i])


@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("amplitudes", list(itertools.product([0.0, 0.7], repeat=3)))
def test_parts_without_amplitude_are_left_out(at_every_level, amplitudes, smoothness):
    rng = np.random.default_rng(0)
    ard, isotropic, linear = amplitudes
    p = kernel(3, ard=ard, isotropic=isotropic, linear=linear, n_linear=2, smoothness=smoothness)
    x, z = rng.standard_normal((9, 3)), rng.standard_normal((17, 3))
    np.testing.assert_allclose(
        at_every_level(lambda: p.covariance(x, z)), exact_covariance(p, x, z).astype(float), rtol=1e-13, atol=1e-14
    )


@pytest.mark.parametrize("p", [kernel(5, n_linear=5), *(kernel_of_axes(5, n_linear=5, order=k) for k in (0, 2))])
def test_a_row_has_the_same_bits_alone_in_a_block_and_on_any_number_of_threads(isa_level, p):
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((701, 5)), rng.standard_normal((203, 5))
    prepared = p.prepared(z)
    whole = p.covariance(x, prepared)
    for n_threads in (2, 3):
        np.testing.assert_array_equal(p.covariance(x, z, n_threads), whole)
    for i in (0, 1, 64, 700):
        np.testing.assert_array_equal(p.covariance(x[i : i + 1], prepared)[0], whole[i])
    np.testing.assert_array_equal(p.covariance(x, z[50:57]), whole[:, 50:57])
    np.testing.assert_array_equal(p.covariance(np.asfortranarray(x), prepared), whole)


@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
def test_covariance_of_rows_with_themselves_is_symmetric_and_has_the_prior_variances(isa_level, smoothness):
    x = 5 + 1e3 * np.random.default_rng(0).standard_normal((41, 6))
    p = kernel(6, n_linear=6, smoothness=smoothness, length_scale=1e-9)
    k = p.covariance(x, x)
    np.testing.assert_array_equal(k, k.T)
    np.testing.assert_allclose(np.diag(k), p.diagonal(x), rtol=1e-14)


def test_near_rows_keep_their_distances(isa_level):
    """‖x‖² + ‖z‖² − 2 x·z would lose all digits of a distance of 1e-8."""
    rng = np.random.default_rng(0)
    x = 4 + rng.standard_normal((20, 8))
    z = x + 1e-8 * rng.standard_normal(x.shape)
    p = kernel(8, smoothness=0.5)
    assert float(np.abs(p.covariance(x, z) - exact_covariance(p, x, z)).max()) < 1e-14


@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
def test_far_rows_are_independent_but_for_what_is_linear(isa_level, smoothness):
    p = kernel(4, n_linear=4, smoothness=smoothness)
    shortest = KernelHyperparameters(0.1, 1e50, np.full(4, 1 / LARGEST), 1e50, 1 / LARGEST, 0.0, 0, smoothness)
    far = LARGEST * np.array([[1.0, 1.0, -1.0, 1.0], [-1.0, 1.0, 1.0, -1.0], [0.0, 0.0, 0.0, 0.0]])
    rows = np.vstack([far, np.ones((1, 4))])
    linear = linear_inputs(rows, 4)
    expected = 1 + p.amplitudes[2] * linear @ linear.T
    off = ~np.eye(4, dtype=bool)
    near = (rows[:, None] == rows[None]).all(axis=2)
    np.testing.assert_allclose(p.covariance(far, far)[off[:3, :3]], expected[:3, :3][off[:3, :3]], rtol=1e-14)
    np.testing.assert_allclose(shortest.covariance(rows, rows)[~near], 1.0, rtol=1e-14)
