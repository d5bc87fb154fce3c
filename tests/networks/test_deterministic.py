"""Objectives of Gaussian networks against draws, finite differences and a plain NumPy propagation."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, logsumexp

from pydirect.networks.base import LIKELIHOODS
from pydirect.networks.deterministic import DeterministicNetwork
from pydirect.networks.training import NetworkObjective
from tests.helpers.oracles import finite_difference_gradient
from tests.helpers.unit_moments import covariance as unit_covariance, moments as unit_moments

from .test_base import PRIORS, split_sets

STANDARD_ERRORS = 4.5

CLASSIFICATION = ("classification", "tilted_classification")


def make_case(*args, seed=0, n_rows=5, std_ratio=0.3, **options):
    """A network, parameters with all entries at random, rows and targets."""
    network = DeterministicNetwork(*args, **options)
    rng = np.random.default_rng(seed)
    theta = network.initial_parameters(rng, std_ratio=std_ratio)
    theta += 0.1 * rng.standard_normal(theta.size)
    x = rng.standard_normal((n_rows, network.n_inputs))
    if network.likelihood in CLASSIFICATION:
        y = rng.integers(0, network.n_targets, n_rows)
    else:
        y = rng.standard_normal((n_rows, network.n_targets))
    return network, theta, x, y


def assert_gradient(network, function, theta, *, rtol=1e-7, step=1e-3):
    """Central differences of every parameter, relative to the largest derivative of each block of parameters."""
    _, gradient = function(theta)
    expected = finite_difference_gradient(lambda t: function(t)[0], theta, step)
    positions = np.arange(network.n_parameters)
    blocks = [block.ravel() for layer in network.unpack(positions) for block in layer]
    rounding = 1e-12 / step * max(1.0, np.abs(function(theta)[0]))
    for block in (*blocks, positions[network.log_noise]):
        atol = rtol * np.abs(expected[block]).max(initial=0.0) + rounding
        np.testing.assert_allclose(gradient[block], expected[block], rtol=0, atol=atol)


def assert_gradient_along(network, directions, theta, x, y, step=3e-3):
    """Central differences of the objective along directions of length one."""
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    _, gradient = NetworkObjective(network, x, y)(theta)
    expected = finite_difference_gradient(
        lambda t: NetworkObjective(network, x, y)(theta + t @ directions)[0], np.zeros(len(directions)), step
    )
    np.testing.assert_allclose(directions @ gradient, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


def draw_pre_activations(network, theta, row, n_draws, rng, layer=None):
    """Draws of one row's pre-activations: given the units below, those of one row are independent Gaussians."""
    h, below = np.broadcast_to(row, (n_draws, row.size)), None
    layers = network.unpack(theta)
    for index, p in enumerate(layers[: None if layer is None else layer + 1]):
        variance = h**2 @ np.exp(2 * p.weight_log_std) + np.exp(2 * p.bias_log_std)
        a = h @ p.weight_mean + p.bias_mean + np.sqrt(variance) * rng.standard_normal(variance.shape)
        if network.skip and 0 < index < len(layers) - 1 and below.shape == a.shape:
            a = a + below
        below = a
        h = np.maximum(a, 0) if network.activation == "relu" else (a > 0).astype(float)
    return a


def assert_moments_of_draws(draws, mean, covariance):
    """Mean and covariance within standard errors of those of draws."""
    n = len(draws)
    deviations = draws - draws.mean(axis=0)
    assert (np.abs(draws.mean(axis=0) - mean) <= STANDARD_ERRORS * draws.std(axis=0) / np.sqrt(n)).all()
    products = deviations[:, :, None] * deviations[:, None, :]
    error = STANDARD_ERRORS * products.std(axis=0) / np.sqrt(n)
    assert (np.abs(products.mean(axis=0) - covariance) <= error).all()


def propagate(network, theta, x):
    """Mean and covariance of every layer in plain NumPy, every covariance as a full matrix."""
    diagonal = network.covariance == "diagonal"
    layers = network.unpack(theta)
    states = []
    for index, p in enumerate(layers):
        v_w, v_b = np.exp(2 * p.weight_log_std), np.exp(2 * p.bias_log_std)
        if index == 0:
            mean, c, second = x, np.zeros((len(x), x.shape[1], x.shape[1])), x**2
        else:
            m, s = states[-1]
            mean, second, variance = unit_moments(network.activation, m, np.einsum("nii->ni", s).copy())
            c = (
                np.einsum("ni,ij->nij", variance, np.eye(m.shape[1]))
                if diagonal
                else unit_covariance(network.activation, m, s, kernel=network.kernel)
            )
        new_mean = mean @ p.weight_mean + p.bias_mean
        new = p.weight_mean.T @ c @ p.weight_mean
        new = new + np.einsum("ni,ij->nij", second @ v_w + v_b, np.eye(new_mean.shape[1]))
        if network.skip and 0 < index < len(layers) - 1 and m.shape == new_mean.shape:
            mu = m / np.sqrt(np.einsum("nii->ni", s))
            slope = stats.norm.cdf(mu) if network.activation == "relu" else stats.norm.pdf(mu) * mu / m
            x_cov = s * slope[:, None, :] @ p.weight_mean
            new_mean, new = new_mean + m, new + s + x_cov + x_cov.transpose(0, 2, 1)
        if diagonal:
            new = np.einsum("nii->ni", new)[:, :, None] * np.eye(new_mean.shape[1])
        states.append((new_mean, new))
    return states


# ------------------------------------------------------------------------------------------------------------- moments


@pytest.mark.parametrize("activation", ["relu", "heaviside"])
def test_output_of_one_hidden_layer_has_the_moments_of_draws(activation):
    network, theta, x, _ = make_case(3, (6,), n_targets=2, activation=activation, n_rows=1, std_ratio=1.0)
    mean, covariance = network.moments(theta, x)
    for row, m, c in zip(x, mean, covariance, strict=True):
        assert_moments_of_draws(draw_pre_activations(network, theta, row, 300_000, np.random.default_rng(1)), m, c)


@pytest.mark.parametrize("activation", ["relu", "heaviside"])
def test_skip_connection_has_the_moments_of_draws(activation):
    network, theta, x, _ = make_case(2, (4, 4), activation=activation, skip=True, n_rows=1, std_ratio=1.0)
    mean, covariance = network.moments(theta, x, layer=1)
    draws = draw_pre_activations(network, theta, x[0], 300_000, np.random.default_rng(2), layer=1)
    assert_moments_of_draws(draws, mean[0], covariance[0])


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("activation", ["relu", "heaviside"])
def test_every_path_equals_plain_propagation(activation, covariance, skip):
    # (5, 5): pairs of columns; (12, 12, 12): scaled columns, then correlated units; last: widths that differ.
    for hidden in [(5, 5), (12, 12, 12), (9, 9, 30, 3)] if skip else [(4,), (5, 5), (12, 12, 12), (9, 30, 3)]:
        network, theta, x, _ = make_case(3, hidden, activation=activation, covariance=covariance, skip=skip, n_rows=7)
        for layer, (mean, cov) in enumerate(propagate(network, theta, x)):
            got_mean, got_cov = network.moments(theta, x, layer)
            np.testing.assert_allclose(got_mean, mean, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(got_cov, cov, rtol=0, atol=1e-12 * np.abs(cov).max())


# ---------------------------------------------------------------------------------------------------------- likelihood


def log_likelihood(network, theta, outputs, y):
    """log p(y | outputs) for draws (n, n_outputs) of one row's outputs."""
    n = network.n_targets
    if network.likelihood in CLASSIFICATION:
        return log_softmax(outputs, axis=1)[:, int(y)]
    if network.likelihood == "homoscedastic":
        variance = np.exp(theta[network.log_noise])
    elif network.likelihood == "softplus":
        variance = np.logaddexp(0, outputs[:, n:])
    else:
        variance = np.exp(outputs[:, n:])
    return stats.norm.logpdf(y, outputs[:, :n], np.sqrt(variance)).sum(axis=1)


def gaussian_expectation(function, mean, covariance):
    """Product Gauss-Hermite rule with 24 nodes a dimension."""
    z, weight = np.polynomial.hermite_e.hermegauss(24)
    points = np.stack(np.meshgrid(*[z] * len(mean), indexing="ij"), axis=-1).reshape(-1, len(mean))
    weights = np.prod(np.meshgrid(*[weight / weight.sum()] * len(mean), indexing="ij"), axis=0).ravel()
    return weights @ function(mean + points @ np.linalg.cholesky(covariance).T)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_expected_log_likelihood_of_the_gaussian_output(likelihood, covariance):
    n, std = (3, 0.1) if likelihood in CLASSIFICATION else (2, 0.5)
    network, theta, x, y = make_case(
        3, (7,), n_targets=n, likelihood=likelihood, covariance=covariance, std_ratio=std, n_rows=3
    )
    mean, cov = network.moments(theta, x)
    for i in range(len(x)):
        value, _ = NetworkObjective(network, x[i : i + 1], y[i : i + 1])(theta, kl_weight=0.0)
        expected = gaussian_expectation(lambda o, t=y[i]: log_likelihood(network, theta, o, t), mean[i], cov[i])
        if likelihood == "classification":  # eq. 21 is a second-order expansion
            assert np.diag(cov[i]).max() < 0.2
            assert -value == pytest.approx(expected, abs=1e-3)
        elif likelihood == "tilted_classification":  # a lower bound, near where variances are small
            assert expected - 0.02 <= -value <= expected
        else:
            assert -value == pytest.approx(expected, rel=1e-7)


def test_overflow_is_capped_and_never_nan():
    network, theta, x, y = make_case(2, (4,))
    last = network.unpack(theta)[-1]
    last.bias_mean[1] = -1e4  # noise variance exp(−10⁴)
    value, gradient = NetworkObjective(network, x, y)(theta)
    assert np.isfinite(value) and value > 1e20 and np.isfinite(gradient).all()
    assert gradient[network.means][-1] < 0  # and the way back is known
    for bad in (np.nan, np.inf, 400.0):
        theta[network.log_deviations] = bad
        for inference in ("dvi", "mcvi", "rmcvi"):
            value, gradient = NetworkObjective(network, x, y, inference=inference)(theta)
            assert value == np.inf and not gradient.any()


# ----------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize(("hidden", "n_targets"), [((5,), 3), ((3, 2), 2)])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_gradient_of_every_likelihood(likelihood, covariance, hidden, n_targets):
    network, theta, x, y = make_case(
        2, hidden, n_targets=n_targets, likelihood=likelihood, covariance=covariance, n_rows=3
    )
    assert_gradient(network, lambda t: NetworkObjective(network, x, y)(t), theta)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("kernel", ["exact", "paper"])
@pytest.mark.parametrize("activation", ["relu", "heaviside"])
def test_gradient_of_every_kernel(activation, kernel, skip):
    network, theta, x, y = make_case(2, (3, 3, 3), activation=activation, kernel=kernel, skip=skip, n_rows=2)
    assert_gradient(network, lambda t: NetworkObjective(network, x, y)(t), theta)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())
def test_gradient_of_every_prior(prior):
    network, theta, x, y = make_case(2, (4,), prior=prior)
    assert_gradient(network, lambda t: NetworkObjective(network, x, y)(t), theta)
    assert_gradient(network, network.kl, theta)
    assert_gradient(network, lambda t: NetworkObjective(network, x, y, inference="map")(t), theta, step=1e-5)


def test_gradient_where_units_are_uncorrelated_and_where_they_are_copies():
    network, theta, x, y = make_case(2, (3, 3), n_rows=2)
    second = network.unpack(theta)[1]
    second.weight_mean[:] = 0.0  # r = 0 exactly
    assert_gradient(network, lambda t: NetworkObjective(network, x, y)(t), theta)
    second.weight_mean[:] = np.array([[0.7], [-0.4], [0.5]])
    second.bias_mean[:] = 0.2
    second.weight_log_std[:] = second.bias_log_std[:] = -3.0  # r = 0.99
    assert_gradient(network, lambda t: NetworkObjective(network, x, y)(t), theta)
    second.weight_log_std[:] = second.bias_log_std[:] = -18.0  # r = 1 up to rounding
    # Copies stay copies along directions that move all of them alike.
    directions = np.random.default_rng(0).standard_normal((10, theta.size))
    for direction in directions:
        for block in network.unpack(direction)[1]:
            block[:] = block[..., :1]
    assert_gradient_along(network, directions, theta, x, y)


# ------------------------------------------------------------------------------------------------------------- weights


def test_sample_weights_and_the_weight_of_the_divergence():
    network, theta, x, y = make_case(2, (5, 4), n_rows=4)
    counts = np.array([1, 3, 0, 2])
    many = np.repeat(x, counts, axis=0), np.repeat(y, counts, axis=0)
    for inference in ("dvi", "map"):
        weighted = NetworkObjective(network, x, y, inference=inference, sample_weight=counts)(theta)
        repeated = NetworkObjective(network, *many, inference=inference)(theta)
        assert weighted[0] == pytest.approx(repeated[0], rel=1e-12)
        np.testing.assert_allclose(weighted[1], repeated[1], rtol=1e-9, atol=1e-12)
    kl, kl_gradient = network.kl(theta)
    f0, g0 = NetworkObjective(network, x, y)(theta, kl_weight=0.0)
    f, g = NetworkObjective(network, x, y, n_total=50)(theta, kl_weight=0.3)
    assert f == pytest.approx(f0 + 0.3 * kl / 50, rel=1e-13)
    np.testing.assert_allclose(g, g0 + 0.3 * kl_gradient / 50, rtol=1e-10, atol=1e-14)
    assert NetworkObjective(network, x, y)(theta)[0] == pytest.approx(f0 + kl / 4, rel=1e-13)


# --------------------------------------------------------------------------------------------------------- Monte Carlo


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("inference", ["mcvi", "rmcvi", "map"])
def test_pathwise_gradient_at_a_fixed_seed(inference, likelihood, skip):
    network, theta, x, y = make_case(2, (3, 3), n_targets=2, likelihood=likelihood, skip=skip, n_rows=3)
    objective = NetworkObjective(network, x, y, inference=inference, n_draws=2)
    assert_gradient(network, lambda t: objective(t, seed=7), theta, step=1e-5, rtol=1e-6)


@pytest.mark.parametrize("inference", ["mcvi", "rmcvi"])
def test_draws_are_unbiased(inference):
    # After one hidden layer the first two moments are exact, and the homoscedastic likelihood needs no others.
    network, theta, x, y = make_case(2, (4,), likelihood="homoscedastic", n_rows=40)
    f, g = NetworkObjective(network, x, y)(theta)
    estimate = NetworkObjective(network, x, y, inference=inference, n_draws=300)
    draws = [estimate(theta, seed=seed) for seed in range(60)]
    values, gradients = np.array([d[0] for d in draws]), np.array([d[1] for d in draws])
    assert abs(values.mean() - f) <= STANDARD_ERRORS * values.std(ddof=1) / np.sqrt(60)
    assert (np.abs(gradients.mean(axis=0) - g) <= 5 * gradients.std(axis=0, ddof=1) / np.sqrt(60) + 1e-14).all()


def test_modes_maximise_the_likelihood_and_the_priors_density():
    network, theta, x, y = make_case(2, (5, 4))
    theta[network.log_deviations] = -np.inf
    point = NetworkObjective(network, x, y, inference="map")(theta, kl_weight=0.0)
    assert not point[1][network.log_deviations].any()
    scales = network.prior_variances(theta)
    log_prior = sum(
        stats.norm.logpdf(m, 0, np.sqrt(s)).sum() for (m, _), s in zip(split_sets(network, theta), scales, strict=True)
    )
    log_prior += stats.invgamma.logpdf(scales, 1.0, scale=10.0).sum()
    value, _ = NetworkObjective(network, x, y, inference="map")(theta)
    assert value == pytest.approx(point[0] - log_prior / len(x), rel=1e-12)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_deviations_that_underflow_leave_the_point_estimate(covariance, skip):
    network, theta, x, y = make_case(2, (5, 5), covariance=covariance, skip=skip)
    theta[network.log_deviations] = -400.0  # whose squares' exponentials are zero
    point = NetworkObjective(network, x, y, inference="map")(theta, kl_weight=0.0)
    for inference in ("dvi", "mcvi", "rmcvi"):
        value, gradient = NetworkObjective(network, x, y, inference=inference)(theta, kl_weight=0.0)
        assert value == pytest.approx(point[0], rel=1e-12)
        np.testing.assert_allclose(gradient[network.means], point[1][network.means], rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------- bits


def all_objectives(network, theta, x, y, n_threads):
    """Values and gradients, one after another."""
    inferences = [("dvi", 1)]
    if network.activation == "relu":
        inferences += [("map", 1), ("mcvi", 3), ("mcvi", 40), ("rmcvi", 3)]
    objectives = [NetworkObjective(network, x, y, inference=name, n_draws=n) for name, n in inferences]
    return tuple(np.append(g, f) for f, g in (objective(theta, n_threads=n_threads) for objective in objectives))


CASES = [
    {"hidden_layer_sizes": (50,)},
    {"hidden_layer_sizes": (13, 13), "skip": True},
    {"hidden_layer_sizes": (7, 12, 4), "activation": "heaviside", "kernel": "paper"},
    {"hidden_layer_sizes": (9, 9), "covariance": "diagonal", "likelihood": "softplus"},
    {"hidden_layer_sizes": (6, 6), "n_targets": 3, "likelihood": "tilted_classification"},
]


@pytest.mark.parametrize("options", CASES)
def test_same_bits_at_every_level_and_for_any_number_of_threads(options, at_every_level):
    network, theta, x, y = make_case(3, n_rows=150, **options)
    alone = at_every_level(lambda: np.concatenate(all_objectives(network, theta, x, y, n_threads=1)))
    for n_threads in (2, 5):
        assert np.concatenate(all_objectives(network, theta, x, y, n_threads=n_threads)).tobytes() == alone.tobytes()
    several, one = (network.moments(theta, x, n_threads=n) for n in (3, 1))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(several, one, strict=True))


# -------------------------------------------------------------------------------------------------------- validation


def test_wrong_arguments_are_refused():
    network, theta, x, y = make_case(2, (3,))
    with pytest.raises(ValueError, match=r"theta must have shape \(34,\)"):
        NetworkObjective(network, x, y)(theta[1:])
    with pytest.raises(ValueError, match="x must have shape"):
        NetworkObjective(network, x[:, :1], y)(theta)
    with pytest.raises(ValueError, match="y must have shape"):
        NetworkObjective(network, x, y[:-1])(theta)
    with pytest.raises(ValueError, match="layer must be at most 1, got 2"):
        network.moments(theta, x, 2)
    with pytest.raises(ValueError, match="kl_weight must be"):
        NetworkObjective(network, x, y)(theta, kl_weight=-1)
    heaviside, *_ = make_case(2, (3,), activation="heaviside")
    with pytest.raises(ValueError, match="inference must be 'dvi' for activation='heaviside', got 'mcvi'"):
        NetworkObjective(heaviside, x, y, inference="mcvi")
    classes, theta, x, _ = make_case(2, (3,), n_targets=3, likelihood="classification")
    with pytest.raises(ValueError, match="y must hold integers from 0 to 2, got 3"):
        NetworkObjective(classes, x, np.full(len(x), 3))(theta)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 3))


def network_and_theta(n_classes=4, spread=0.7, **options):
    network = DeterministicNetwork(3, (5,), n_classes, likelihood="tilted_classification", **options)
    theta = network.initial_parameters(np.random.default_rng(1), std_ratio=spread)
    return network, theta, RNG.integers(0, n_classes, len(X)).astype(float)


def expected_log_likelihood(network, theta, y):
    """What the objective takes for the mean of E log p(y | x)."""
    return -NetworkObjective(network, X, y)(theta, kl_weight=0.0)[0]


@pytest.mark.parametrize("spread", [0.05, 0.7, 3.0])
def test_it_bounds_the_expectation_and_is_tight_where_variances_are_small(spread):
    network, theta, y = network_and_theta(spread=spread)
    mean, covariance = network.moments(theta, X)
    z = np.random.default_rng(0).standard_normal((100_000, 4))
    logits = mean[:, None] + z @ np.swapaxes(np.linalg.cholesky(covariance), 1, 2)
    drawn = np.take(mean, y.astype(int) + 4 * np.arange(len(X))) - logsumexp(logits, axis=2).mean(axis=1)
    error = np.sqrt(np.mean(logsumexp(logits, axis=2).var(axis=1)) / 100_000)
    bound = expected_log_likelihood(network, theta, y)
    assert bound <= drawn.mean() + 4.5 * error
    if spread == 0.05:
        assert bound == pytest.approx(drawn.mean(), abs=2e-3 + 4.5 * error)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_an_infinite_variance_ends_the_search_for_a_tilt(covariance):
    network, theta, y = network_and_theta(covariance=covariance)
    theta[network.log_deviations] = 400.0
    value, gradient = NetworkObjective(network, X, y)(theta, kl_weight=0.0)
    assert value == np.inf
    assert not gradient.any()


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("variance", [1.0, 1e2, 1e4, 1e6])
def test_the_tilt_is_the_best_one_for_any_variance(variance, covariance):
    """At the optimum t is the softmax u, and the adjoints of one row's biases tell both."""
    rng = np.random.default_rng(2)
    for n_classes in (2, 3, 7, 40):
        network, theta, _ = network_and_theta(n_classes, covariance=covariance)
        for _ in range(5):
            layer = network.unpack(theta)[-1]
            spread = np.sqrt(variance) * rng.lognormal(size=n_classes)
            layer.weight_log_std[:] = layer.bias_log_std[:] = np.log(spread)
            layer.weight_mean[:] = variance**0.25 * rng.standard_normal(layer.weight_mean.shape)
            gradient = NetworkObjective(network, rng.standard_normal((1, 3)), np.zeros(1))(theta, kl_weight=0.0)[1]
            adjoint = network.unpack(gradient)[-1]
            u = adjoint.bias_mean + np.eye(n_classes)[0]
            # −2 dELL/d variance = u − 2ut + t², which is u − u² for t = u.
            np.testing.assert_allclose(adjoint.bias_log_std / spread**2, u - u**2, atol=1e-12)
