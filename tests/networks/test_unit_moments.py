"""Moments of ReLU and Heaviside units against 17 digits, conditional quadrature and finite differences."""

from functools import partial

import numpy as np
import pytest
from scipy.special import ndtr

from tests.helpers import unit_moments as activations

ACTIVATIONS = ["relu", "heaviside"]
KERNELS = ["exact", "paper", "fast"]

# μ and Φ, SR = φ + μ Φ, Φ + μ SR, Φ + μ SR − SR², evaluated with mpmath 1.3 at 400 digits.
UNIT_REFERENCES = np.array(
    [
        (-40.0, 0.0, 0.0, 0.0, 0.0),  # below 1e-307
        (-37.0, 5.725571222524577e-300, 1.5451991905122024e-301, 8.334217629427724e-303, 8.334217629427724e-303),
        (-30.0, 4.906713927148187e-198, 1.631956734091401e-199, 1.0843724873983492e-200, 1.0843724873983492e-200),
        (-20.0, 2.7536241186062337e-89, 1.3700124947295798e-90, 1.359912914707381e-91, 1.359912914707381e-91),
        (-10.0, 7.619853024160525e-24, 7.474560254589328e-25, 1.4529276957119804e-25, 1.4529276957119804e-25),
        (-8.0, 6.220960574271784e-16, 7.550262411946499e-17, 1.80750644714585e-17, 1.8075064471458495e-17),
        (-5.0, 2.866515718791939e-07, 5.346165533832815e-08, 1.9343295187553163e-08, 1.9343292329404572e-08),
        (-3.0, 0.0013498980316300946, 0.0003821543170477236, 0.00020343508048692373, 0.00020328903856488552),
        (-2.0, 0.02275013194817921, 0.008490702616829637, 0.005768726714519932, 0.005696634683592494),
        (-1.0, 0.15865525393145705, 0.0833154705876863, 0.07533978334377076, 0.06839831570452314),
        (-0.5, 0.3085375387259869, 0.19779655740130603, 0.20963926002533387, 0.17051578190552574),
        (0.0, 0.5, 0.3989422804014327, 0.5, 0.3408450569081047),
        (0.5, 0.6914624612740131, 0.6977965574013061, 1.0403607399746662, 0.553440704453552),
        (1.0, 0.8413447460685429, 1.0833154705876864, 1.9246602166562292, 0.751087807841609),
        (2.0, 0.9772498680518208, 2.0084907026168297, 4.99423127328548, 0.9601963707872341),
        (3.0, 0.9986501019683699, 3.0003821543170477, 9.999796564919514, 0.9975034929753047),
        (5.0, 0.9999997133484281, 5.0000000534616555, 25.999999980656703, 0.9999994460401486),
        (8.0, 0.9999999999999993, 8.0, 65.0, 0.9999999999999988),
        (10.0, 1.0, 10.0, 101.0, 1.0),
        (20.0, 1.0, 20.0, 401.0, 1.0),
        (40.0, 1.0, 40.0, 1601.0, 1.0),
        (1e4, 1.0, 1e4, 100000001.0, 1.0),
        (-1e4, 0.0, 0.0, 0.0, 0.0),
    ]
)  # fmt: skip

# Wu et al.'s kernel, largest error over means in [−6, 6]² by |r|, both activations.
PAPER_ERRORS = {
    0.1: (1.3e-7, 4.0e-6),
    0.3: (1.3e-5, 1.4e-4),
    0.5: (1.3e-4, 8.9e-4),
    0.6: (3.2e-4, 1.9e-3),
    0.8: (1.6e-3, 8.1e-3),
    0.9: (3.7e-3, 1.9e-2),
    0.95: (5.9e-3, 3.3e-2),
    0.99: (1.0e-2, 7.2e-2),
    0.999: (1.3e-2, 1.3e-1),
}


def call(activation, function):
    return partial(getattr(activations, function), activation)


def normal_density(x):
    return np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)


def soft_relu(x):
    return normal_density(x) + x * ndtr(x)


def conditional_covariance(activation, mu_j, mu_l, r):
    """Cov(h_j, h_l) of unit variances by Gauss-Legendre over a_j, given which h_l has a mean in closed form."""
    root = np.sqrt((1 - r) * (1 + r))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    breaks = np.linspace(-14, 14, 29)
    if r != 0:  # where the conditional mean bends
        breaks = np.append(breaks, (-mu_l + root * np.arange(-9, 10, 1.5)) / r)
    breaks = np.append(np.sort(breaks[(breaks > -mu_j) & (breaks < 14)]), 14.0)
    low, high = np.append(-mu_j, breaks[:-1])[:, None], breaks[:, None]
    x, w = low + (high - low) * (1 + nodes) / 2, weights * (high - low) / 2
    given = (mu_l + r * x) / root
    if activation == "relu":
        product = (w * normal_density(x) * (x + mu_j) * root * soft_relu(given)).sum()
        return product - soft_relu(mu_j) * soft_relu(mu_l)
    return (w * normal_density(x) * ndtr(given)).sum() - ndtr(mu_j) * ndtr(mu_l)


def random_problem(n, d, seed=0, rank=None):
    """Means and covariances of rank `rank`, d + 2 draws when not given."""
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((n, d, rank or d + 2)) * rng.uniform(0.3, 1.5, (n, d, 1))
    return rng.standard_normal((n, d)), factor @ factor.swapaxes(1, 2)


def pairs(mu_j, mu_l, r):
    """Data of two units of variance one."""
    mean = np.stack([mu_j, mu_l], axis=-1)
    covariance = np.ones((len(mean), 2, 2))
    covariance[:, 0, 1] = covariance[:, 1, 0] = r
    return mean, covariance


def off_diagonal(activation, mu_j, mu_l, r, kernel="exact"):
    return call(activation, "covariance")(*pairs(mu_j, mu_l, r), kernel=kernel)[:, 0, 1]


def finite_differences(function, mean, covariance, step=1e-5):
    """Derivatives in mean and symmetric covariance of one datum, by two central differences."""

    def slope(change_mean, change_covariance):
        def central(h):
            up = function(mean + h * change_mean, covariance + h * change_covariance)
            return (up - function(mean - h * change_mean, covariance - h * change_covariance)) / (2 * h)

        return (4 * central(step) - central(2 * step)) / 3

    d = mean.size
    eye, nothing = np.eye(d), np.zeros((d, d))
    in_mean = np.array([slope(eye[j], nothing) for j in range(d)])
    in_covariance = np.empty((d, d))
    for j in range(d):
        for l in range(j + 1):  # noqa: E741
            change = np.outer(eye[j], eye[l]) + np.outer(eye[l], eye[j])
            in_covariance[j, l] = in_covariance[l, j] = slope(np.zeros(d), change) / 2
    return in_mean, in_covariance


# Units


def test_relu_moments_are_accurate_in_both_tails(isa_level):
    mu, _, mean, second, variance = UNIT_REFERENCES.T
    got = activations.moments("relu", mu[None], np.ones((1, mu.size)))
    np.testing.assert_allclose(got.mean[0], mean, rtol=4e-15)
    np.testing.assert_allclose(got.second[0], second, rtol=4e-15)
    np.testing.assert_allclose(got.variance[0], variance, rtol=4e-15)


def test_heaviside_moments_are_accurate_in_both_tails(isa_level):
    mu, cdf = UNIT_REFERENCES.T[:2]
    got = activations.moments("heaviside", mu[None], np.ones((1, mu.size)))
    np.testing.assert_allclose(got.mean[0], cdf, rtol=4e-15)
    np.testing.assert_array_equal(got.second, got.mean)
    np.testing.assert_allclose(got.variance[0], cdf * ndtr(-mu), rtol=1e-12)


def test_units_of_variance_zero_are_deterministic():
    mean = np.array([[-2.0, 0.0, 3.0]])
    got = activations.moments("relu", mean, np.zeros_like(mean))
    np.testing.assert_array_equal(got.mean, [[0, 0, 3]])
    np.testing.assert_array_equal(got.second, [[0, 0, 9]])
    np.testing.assert_array_equal(got.variance, [[0, 0, 0]])
    got = activations.moments("heaviside", mean, np.zeros_like(mean))
    np.testing.assert_allclose(got.mean, [[0, 0.5, 1]], rtol=4e-16)
    for activation in ACTIVATIONS:
        for slopes in call(activation, "moments_vjp")(mean, np.zeros_like(mean), mean, mean, mean):
            assert np.isfinite(slopes).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_adjoints_of_the_moments(isa_level, activation):
    rng = np.random.default_rng(1)
    mean, variance = 2 * rng.standard_normal((5, 9)), rng.uniform(0.2, 3, (5, 9))
    bars = rng.standard_normal((3, 5, 9))
    moments = call(activation, "moments")

    def loss(m, v):
        return sum(bar * out for bar, out in zip(bars, moments(m, v), strict=True))

    h = 1e-5
    in_mean, in_variance = call(activation, "moments_vjp")(mean, variance, *bars)
    expected = (loss(mean + h, variance) - loss(mean - h, variance)) / (2 * h)
    np.testing.assert_allclose(in_mean, expected, rtol=1e-7, atol=1e-8)
    expected = (loss(mean, variance + h) - loss(mean, variance - h)) / (2 * h)
    np.testing.assert_allclose(in_variance, expected, rtol=1e-7, atol=1e-8)


def test_derivatives_in_the_variance_are_accurate_in_the_tails():
    mu = np.array([[-30.0, -8.0, 8.0, 30.0, 1e5]])
    zero, one = np.zeros_like(mu), np.ones_like(mu)
    in_mean, in_variance = activations.moments_vjp("relu", mu, one, zero, zero, one)
    tail = activations.moments("heaviside", -mu, one).mean
    np.testing.assert_allclose(in_mean, 2 * activations.moments("relu", mu, one).mean * tail, rtol=1e-14)
    assert ((in_variance >= 0) & (in_variance <= 1)).all()
    np.testing.assert_array_equal(in_variance[0, 3:], 1)


# Pairs


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_exact_kernel_agrees_with_conditional_quadrature(isa_level, activation):
    rng = np.random.default_rng(2)
    n = 600
    mu_j, mu_l = rng.uniform(-5, 5, (2, n))
    near = rng.random(n) < 0.5
    mu_l[near] = mu_j[near] * rng.choice([-1, 1], near.sum()) + 0.1 * rng.standard_normal(near.sum())
    r = np.concatenate(
        [rng.uniform(-1, 1, n // 2), rng.choice([-1, 1], n // 2) * (1 - np.geomspace(1e-8, 0.3, n // 2))]
    )
    got = off_diagonal(activation, mu_j, mu_l, r)
    expected = [conditional_covariance(activation, *point) for point in zip(mu_j, mu_l, r, strict=True)]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("r", [0.3, 0.5, 0.51, 0.7, 0.9, 0.99, 0.997, 0.9999])
def test_exact_kernel_keeps_its_accuracy_at_the_borders_of_its_methods(activation, r):
    rng = np.random.default_rng(3)
    mu_j = np.tile(rng.uniform(-4, 4, 25), 5)
    mu_l = mu_j + np.repeat(np.sqrt(1 - r) * np.array([0.1, 0.4, 1.0, 2.0, 4.0]), 25)
    for sign in (1, -1):
        got = off_diagonal(activation, mu_j, sign * mu_l, sign * r)
        points = zip(mu_j, sign * mu_l, strict=True)
        expected = [conditional_covariance(activation, *means, sign * r) for means in points]
        np.testing.assert_allclose(got, expected, rtol=0, atol=5e-13)


@pytest.mark.parametrize("r", PAPER_ERRORS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_paper_and_fast_kernels_have_their_known_errors(isa_level, activation, r):
    grid = np.repeat(np.linspace(-6, 6, 121)[None], 121, axis=0)
    for sign in (1, -1):
        paper, exact, fast = (
            off_diagonal(activation, grid.ravel(), grid.T.ravel(), sign * r, k) for k in ("paper", "exact", "fast")
        )
        assert np.abs(fast - exact).max() < 2.1e-7
        assert np.abs(paper - exact).max() == pytest.approx(PAPER_ERRORS[r][activation == "heaviside"], rel=0.05)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_diagonal_is_exact_and_output_symmetric(activation, kernel):
    mean, covariance = random_problem(3, 21)
    got = call(activation, "covariance")(mean, covariance, kernel=kernel)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    np.testing.assert_array_equal(
        np.diagonal(got, axis1=1, axis2=2), call(activation, "moments")(mean, variance).variance
    )
    np.testing.assert_array_equal(got, got.swapaxes(1, 2))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_exact_covariance_is_positive_semidefinite(isa_level, activation):
    worst = 0.0
    for d, rank in [(2, 1), (5, 1), (7, 3), (12, 2), (12, None), (20, 5), (20, 19), (20, None)]:
        mean, covariance = random_problem(125, d, seed=d + (rank or 0), rank=rank)
        spectrum = np.linalg.eigvalsh(call(activation, "covariance")(mean, covariance))
        worst = min(worst, (spectrum[:, 0] / np.maximum(spectrum[:, -1], 1e-200)).min())
    assert worst >= -1e-12


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernel", ["exact", "paper"])
def test_adjoints_of_the_covariance(isa_level, activation, kernel):
    rng = np.random.default_rng(5)
    covariance_of = call(activation, "covariance")
    for d, rank in [(2, None), (11, None), (4, 20)]:
        mean, covariance = random_problem(1, d, seed=d, rank=rank)
        covariance[:, 0, 1] = covariance[:, 1, 0] = 0.0
        bar = rng.standard_normal((d, d))

        def loss(m, S, bar=bar):
            return float((bar * covariance_of(m[None], S[None], kernel=kernel)[0]).sum())

        in_mean, in_covariance = call(activation, "covariance_vjp")(mean, covariance, bar[None], kernel=kernel)
        expected = finite_differences(loss, mean[0], covariance[0], step=2e-4)
        scale = max(1.0, np.abs(expected[0]).max(), np.abs(expected[1]).max())
        np.testing.assert_allclose(in_mean[0], expected[0], rtol=1e-7, atol=2e-9 * scale)
        np.testing.assert_allclose(in_covariance[0], expected[1], rtol=1e-7, atol=2e-9 * scale)


def test_relu_slopes_of_nearly_equal_units_are_bounded_probabilities():
    mu = np.linspace(-4, 4, 33)
    for r in (1 - 1e-6, 1 - 1e-12, np.nextafter(1, 0), 1.0, -1.0, -1 + 1e-9):
        mean, covariance = pairs(mu, mu, r)
        bar = np.zeros_like(covariance)
        bar[:, 0, 1] = bar[:, 1, 0] = 1.0
        in_mean, in_covariance = activations.covariance_vjp("relu", mean, covariance, bar)
        assert np.isfinite(in_mean).all() and np.abs(in_mean).max() < 20
        assert in_covariance[:, 0, 1].min() >= -1e-12
        assert in_covariance[:, 0, 1].max() <= 1 + 1e-12
        if r == 1.0:
            np.testing.assert_allclose(in_covariance[:, 0, 1], ndtr(mu), rtol=0, atol=1e-8)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_results_of_deterministic_and_far_units_are_finite(activation, kernel):
    mean = np.array([[0.0, 2.0, -3.0, 1e5, -1e150, 0.5]])
    covariance = np.diag([0.0, 0.0, 0.0, 1.0, 1.0, 2.0])[None]
    got = call(activation, "covariance")(mean, covariance, kernel=kernel)
    assert np.isfinite(got).all()
    assert not got[0, :3, 3:].any()
    for slopes in call(activation, "covariance_vjp")(mean, covariance, np.ones_like(covariance), kernel=kernel):
        assert np.isfinite(slopes).all()


# The same bits


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 30])
def test_same_bits_at_every_level(at_every_level, activation, d):
    mean, covariance = random_problem(3, d, seed=d, rank=2)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    bar = np.random.default_rng(0).standard_normal(covariance.shape)
    at_every_level(lambda: tuple(call(activation, "moments")(mean, variance)))
    at_every_level(lambda: call(activation, "moments_vjp")(mean, variance, mean, mean, mean))
    for kernel in KERNELS:
        at_every_level(lambda k=kernel: call(activation, "covariance")(mean, covariance, kernel=k))
        at_every_level(lambda k=kernel: call(activation, "covariance_vjp")(mean, covariance, bar, kernel=k))


def test_a_row_has_the_same_bits_alone_and_among_others():
    mean, covariance = random_problem(40, 13)
    together = activations.covariance("relu", mean, covariance)
    np.testing.assert_array_equal(activations.covariance("relu", mean[17:18], covariance[17:18])[0], together[17])


# Arguments
