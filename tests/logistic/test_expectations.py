"""Expectations of softmax and logistic likelihoods against quadrature by brute force."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, log_expit, logsumexp, softmax

from pydirect.logistic.expectations import expected_sigmoid, expected_softmax, softmax_log_probability


def by_quadrature(mean, sd, n_nodes):
    """E log Σ exp z, E softmax(z) and E softmax(z) (1 − softmax(z)), by a product of trapezoidal rules."""
    nodes = np.linspace(-8.0, 8.0, n_nodes)
    mass = np.exp(-0.5 * nodes**2)
    mass /= mass.sum()
    axes = [(m + s * nodes, mass) if s > 0.0 else (np.array([m]), np.ones(1)) for m, s in zip(mean, sd, strict=True)]
    z = np.stack(np.meshgrid(*(z for z, _ in axes), indexing="ij"), axis=-1).reshape(-1, len(mean))
    weight = axes[0][1]
    for _, w in axes[1:]:
        weight = np.multiply.outer(weight, w)
    weight = weight.ravel()
    p = softmax(z, axis=1)
    return weight @ logsumexp(z, axis=1), weight @ p, weight @ (p * (1.0 - p))


def by_adaptive_quadrature(mean, sd):
    """E log(1 + exp z), E σ(z) and E σ(z) σ(−z)."""

    def expectation(f):
        bends = np.clip(-mean / sd, -40.0, 40.0)
        points = sorted({-6.0, 0.0, 6.0, bends, bends - 3.0 / sd, bends + 3.0 / sd})
        ends = [-40.0, *(p for p in points if -40.0 < p < 40.0), 40.0]
        density = lambda u: np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)  # noqa: E731
        return sum(
            quad(lambda u: density(u) * f(mean + sd * u), a, b, epsabs=1e-13, epsrel=1e-11, limit=200)[0]
            for a, b in itertools.pairwise(ends)
        )

    return (
        expectation(lambda z: -log_expit(-z)),
        expectation(expit),
        expectation(lambda z: expit(z) * expit(-z)),
    )


@pytest.mark.parametrize(("sd", "n_nodes"), [(0.0, 1), (0.2, 41), (0.8, 61), (1.5, 61), (3.0, 81)])
@pytest.mark.parametrize("mean", [[0.0, 0.0, 0.0], [0.3, -1.0, 2.0], [-5.0, 6.0, 1.0]])
def test_three_classes_equal_quadrature_over_all_logits(mean, sd, n_nodes):
    log_partition, probability, curvature = by_quadrature(mean, [sd] * 3, n_nodes)
    got = expected_softmax([mean], [sd**2])
    np.testing.assert_allclose(got.log_partition, [log_partition], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got.probability, [probability], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(got.curvature, [curvature.sum() / 2], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sd", [0.1, 0.3, 1.0, 1.2, 1.3, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("mean", [-30.0, -4.0, -0.3, 0.0, 1.0, 9.0])
def test_one_logit_equals_adaptive_quadrature(mean, sd):
    log_partition, probability, curvature = by_adaptive_quadrature(mean, sd)
    got = expected_sigmoid([mean], [sd**2])
    np.testing.assert_allclose(got.log_partition, [log_partition], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got.probability, [probability], atol=1e-8)
    np.testing.assert_allclose(got.curvature, [curvature], atol=1e-8)


@pytest.mark.parametrize("sd", [0.0, 0.3, 0.9, 1.0, 4.0, 40.0, 1000.0])
def test_two_classes_equal_one_logit_of_their_difference(sd):
    mean, variance = np.random.default_rng(0).normal(scale=3.0, size=(20, 2)), np.full(20, sd**2)
    two, one = expected_softmax(mean, variance), expected_sigmoid(mean[:, 0] - mean[:, 1], 2 * variance)
    np.testing.assert_allclose(two.probability[:, 0], one.probability, atol=1e-8)
    np.testing.assert_allclose(two.curvature, 2 * one.curvature, atol=1e-8)
    np.testing.assert_allclose(two.log_partition, one.log_partition + mean[:, 1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("sd", [0.0, 0.7, 6.0, 1000.0])
def test_one_class_is_certain(sd):
    got = expected_softmax([[3.0]], [sd**2])
    np.testing.assert_allclose(got.log_partition, 3.0, atol=1e-9 * (1 + sd))
    assert got.probability == 1.0 and got.curvature == 0.0


def test_without_variance_they_are_those_of_the_means():
    mean = np.random.default_rng(1).normal(scale=4.0, size=(30, 7))
    got, p = expected_softmax(mean, np.zeros(30)), softmax(mean, axis=1)
    np.testing.assert_allclose(got.log_partition, logsumexp(mean, axis=1), atol=1e-8)
    np.testing.assert_allclose(got.probability, p, atol=1e-8, rtol=1e-6)
    np.testing.assert_allclose(got.curvature, (p * (1 - p)).sum(axis=1) / 6, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 40])
def test_they_are_those_of_draws_whatever_the_number_of_classes(n_classes):
    rng = np.random.default_rng(2)
    mean, variance = 2 * rng.normal(size=(4, n_classes)), np.array([0.1, 1.0, 9.0, 100.0])
    got = expected_softmax(mean, variance)
    z = mean[:, None] + np.sqrt(variance)[:, None, None] * rng.normal(size=(4, 20_000, n_classes))
    p = softmax(z, axis=2)
    for exact, drawn in [
        (got.log_partition, logsumexp(z, axis=2)),
        (got.probability, p),
        (got.curvature, (p * (1 - p)).sum(axis=2) / (n_classes - 1)),
    ]:
        error = drawn.std(axis=1) / np.sqrt(20_000) + 1e-9
        assert (np.abs(exact - drawn.mean(axis=1)) < 5 * error).all()


@pytest.mark.parametrize("n_classes", [2, 5, 20])
def test_they_are_derivatives_of_one_another(n_classes):
    rng = np.random.default_rng(3)
    mean, variance = 2 * rng.normal(size=(8, n_classes)), np.exp(rng.normal(scale=2.0, size=8))
    got, curvature = expected_softmax(mean, variance), np.zeros(8)
    for k in range(n_classes):
        move = 1e-3 * np.eye(n_classes)[k]
        above, below = expected_softmax(mean + move, variance), expected_softmax(mean - move, variance)
        slope = (above.log_partition - below.log_partition) / 2e-3
        np.testing.assert_allclose(slope, got.probability[:, k], atol=2e-6)
        curvature += (above.probability[:, k] - below.probability[:, k]) / 2e-3
    np.testing.assert_allclose(curvature / (n_classes - 1), got.curvature, atol=2e-6)
    wider, narrower = expected_softmax(mean, 1.001 * variance), expected_softmax(mean, 0.999 * variance)
    slope = (wider.log_partition - narrower.log_partition) / (2e-3 * variance)
    np.testing.assert_allclose(slope, 0.5 * (n_classes - 1) * got.curvature, rtol=1e-4, atol=1e-5)


def test_classes_that_change_places_change_their_results():
    rng = np.random.default_rng(4)
    mean, variance, order = rng.normal(size=(9, 6)), np.exp(rng.normal(scale=2.0, size=9)), rng.permutation(6)
    a, b = expected_softmax(mean, variance), expected_softmax(mean[:, order], variance)
    np.testing.assert_allclose(b.probability, a.probability[:, order], atol=1e-12)
    np.testing.assert_allclose(b.curvature, a.curvature, atol=1e-12)
    np.testing.assert_allclose(b.log_partition, a.log_partition, atol=1e-11)


@pytest.mark.parametrize("shift", [-1e6, -300.0, 300.0, 1e6])
def test_a_common_shift_moves_the_partition_alone(shift):
    mean, variance = np.array([[0.0, 1.0, -2.0]]), [0.5]
    a, b = expected_softmax(mean, variance), expected_softmax(mean + shift, variance)
    np.testing.assert_allclose(b.probability, a.probability, atol=1e-9)
    np.testing.assert_allclose(b.log_partition - shift, a.log_partition, atol=1e-9 + 1e-15 * abs(shift))


def test_very_wide_logits_choose_by_rank():
    got = expected_softmax(np.zeros((1, 4)), [1e6])
    np.testing.assert_allclose(got.probability, 0.25, atol=1e-9)
    # The expected largest of four standard normal variables; Gumbel noise is negligible beside it.
    np.testing.assert_allclose(got.log_partition / 1e3, 1.02937537, atol=1e-5)


@pytest.mark.parametrize("gap", [10.0, 40.0, 400.0, 1e5])
@pytest.mark.parametrize("sd", [0.0, 0.5, 2.0])
def test_log_probabilities_of_hopeless_classes_stay_finite_and_true(gap, sd):
    mean, variance = np.array([[0.0, -gap, 1.0]]), [sd**2]
    log_probability = softmax_log_probability(mean, variance)
    assert np.isfinite(log_probability).all()
    np.testing.assert_allclose(logsumexp(log_probability, axis=1), 0.0, atol=1e-9)
    jensen = mean - expected_softmax(mean, variance).log_partition[:, None]
    assert (log_probability >= jensen - 1e-12).all()
    # E e^{z_1} E e^{−z_0} bounds it from above.
    assert log_probability[0, 1] <= -gap + sd**2 + 1e-9


def test_no_rows_give_no_results():
    assert expected_softmax(np.empty((0, 3)), np.empty(0)).probability.shape == (0, 3)
    assert expected_sigmoid(np.empty(0), np.empty(0)).probability.shape == (0,)


def test_a_zero_may_have_a_sign():
    for found, expected in (
        [expected_sigmoid([-1.13, 0.5], [v, v]) for v in (-0.0, 0.0)],
        [expected_softmax([[1.0, 0.0, 2.0]], [v]) for v in (-0.0, 0.0)],
    ):
        np.testing.assert_array_equal(found.probability, expected.probability)
