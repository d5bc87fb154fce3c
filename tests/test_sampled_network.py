"""Networks with weights M + σ ξ: laws of ξ, objectives from draws and their gradients, divergences."""

import numpy as np
import pytest
from scipy import integrate, stats

from pydirect.deterministic import DeterministicNetwork
from pydirect.sampled_network import POSTERIORS, SampledNetwork, lost_entropy

RNG = np.random.default_rng(0)
X, TARGETS = RNG.standard_normal((50, 3)), RNG.standard_normal((50, 2))
LABELS = RNG.integers(0, 3, 50)
WEIGHT = RNG.uniform(0.5, 2.0, 50)
KURTOSIS = {"normal": 3.0, "laplace": 6.0, "logistic": 4.2}


def network(likelihood="homoscedastic", **options):
    n = 3 if likelihood == "classification" else 2
    return SampledNetwork(3, (5, 4), n, likelihood=likelihood, **{"prior": 0.7} | options)


def start(net, scale=0.4, std_ratio=0.3):
    theta = net.initial_parameters(np.random.default_rng(1), std_ratio=std_ratio)
    theta[net.means] *= scale
    return theta


def targets(net):
    return LABELS if net.likelihood == "classification" else TARGETS


def by_hand(net, theta, n_draws, seed):
    """−mean log-likelihood of the networks that `standardised_draws` gives, weighted, one draw after another."""
    xi = net.standardised_draws(n_draws, seed)
    total = 0.0
    for weights in theta[net.means] + np.exp(theta[net.log_deviations]) * xi:
        a, first = X, 0
        for layer, (n_in, n_out) in enumerate(net.layers):
            h = np.maximum(a, 0.0) if layer else a
            a = h @ weights[first : first + n_in * n_out].reshape(n_in, n_out)
            first += n_in * n_out
            a = a + weights[first : first + n_out]
            first += n_out
        total += np.sum(WEIGHT[:, None] * log_likelihood(net, theta, a))
    return -total / n_draws / WEIGHT.sum()


def log_likelihood(net, theta, a):
    """log p(y | outputs a), (n_rows, n_targets or 1)."""
    if net.likelihood == "classification":
        return (a - np.logaddexp.reduce(a, axis=1, keepdims=True))[np.arange(len(a)), LABELS][:, None]
    level = theta[net.log_noise] if net.likelihood == "homoscedastic" else a[:, 2:]
    variance = np.logaddexp(0.0, level) if net.likelihood == "softplus" else np.exp(level)
    return stats.norm.logpdf(TARGETS, a[:, :2], np.sqrt(variance))


# ---------------------------------------- laws


@pytest.mark.parametrize("law", POSTERIORS)
def test_base_draws_have_mean_zero_and_variance_one(law):
    net = SampledNetwork(3, (20,), 1, prior=1.0, posterior=law)
    xi = net.standardised_draws(20_000, 3)
    per_set = np.split(xi, np.cumsum(net.set_sizes)[:-1], axis=1)
    for values in per_set:
        # Radial draws share a length: draws are independent, coordinates are not.
        squares = np.mean(values**2, axis=1)
        assert abs(squares.mean() - 1.0) < 4.5 * squares.std() / np.sqrt(len(squares))
        means = values.mean(axis=1)
        assert abs(means.mean()) < 4.5 * means.std() / np.sqrt(len(means))
        d = values.shape[1]
        fourth = np.mean(values**4, axis=1)
        expected = KURTOSIS.get(law, 9.0 * d / (d + 2.0))
        assert abs(fourth.mean() - expected) < 4.5 * fourth.std() / np.sqrt(len(fourth))


@pytest.mark.parametrize(("law", "distribution"), [("laplace", stats.laplace), ("logistic", stats.logistic)])
def test_base_draws_follow_their_law(law, distribution):
    net = SampledNetwork(4, (9,), 1, prior=1.0, posterior=law)
    xi = net.standardised_draws(400, 5).ravel()
    assert stats.kstest(xi, distribution(scale=1.0 / distribution.std()).cdf).pvalue > 1e-3


def test_radial_draws_have_uniform_directions_and_normal_lengths():
    net = SampledNetwork(2, (1,), 1, prior=1.0, likelihood="homoscedastic", posterior="radial")
    xi = net.standardised_draws(4000, 2)[:, :2] / np.sqrt(2.0)
    angle = np.arctan2(xi[:, 1], xi[:, 0])
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    assert stats.kstest(np.hypot(*xi.T), stats.halfnorm.cdf).pvalue > 1e-3


def test_draws_of_an_element_do_not_depend_on_the_number_of_draws():
    net = network(posterior="radial")
    np.testing.assert_array_equal(net.standardised_draws(3, 7), net.standardised_draws(9, 7)[:3])


@pytest.mark.parametrize(("law", "distribution"), [("laplace", stats.laplace), ("logistic", stats.logistic)])
def test_lost_entropy_is_that_of_a_gaussian_of_the_same_variance(law, distribution):
    scaled = distribution(scale=1.0 / distribution.std())
    assert lost_entropy(law, 3) == pytest.approx(3 * (stats.norm.entropy() - scaled.entropy()), rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_lost_entropy_of_radial_weights_by_quadrature_over_the_radius(size):
    surface = 2 * np.pi ** (size / 2) / float(np.prod(np.arange(size / 2 - 1, 0, -1)) * {0: 1, 1: np.sqrt(np.pi)}[size % 2])
    half_normal = stats.halfnorm(scale=np.sqrt(size))

    def surprise(r):
        return half_normal.pdf(r) * -(half_normal.logpdf(r) - np.log(surface) - (size - 1) * np.log(r))

    entropy = integrate.quad(surprise, 0.0, np.inf, epsabs=1e-11)[0]
    assert lost_entropy("radial", size) == pytest.approx(size * stats.norm.entropy() - entropy, abs=1e-7)


# ---------------------------------------- objectives


@pytest.mark.parametrize("likelihood", ["homoscedastic", "heteroscedastic", "softplus", "classification"])
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_the_estimate_is_the_average_over_its_draws(posterior, likelihood):
    net = network(likelihood, posterior=posterior, exact_last_layer=False)
    theta = start(net)
    value, _ = net.mcvi_objective(theta, X, targets(net), n_draws=6, seed=11, sample_weight=WEIGHT, kl_weight=0.0)
    assert value == pytest.approx(by_hand(net, theta, 6, 11), rel=1e-11)


@pytest.mark.parametrize("likelihood", ["homoscedastic", "heteroscedastic", "softplus", "classification"])
@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "drawn"])
def test_gradients_with_draws_that_are_kept_are_those_of_finite_differences(posterior, likelihood, exact):
    net = network(likelihood, posterior=posterior, exact_last_layer=exact, n_draws=4, seed=5)
    check_gradient(net, net.objective)


@pytest.mark.parametrize("likelihood", ["homoscedastic", "heteroscedastic"])
def test_gradients_of_drawn_pre_activations_with_an_exact_output_layer(likelihood):
    net = network(likelihood)
    check_gradient(net, lambda *a, **k: net.rmcvi_objective(*a, n_draws=4, seed=5, **k))


def check_gradient(net, objective):
    theta = start(net, std_ratio=0.1)
    options = {"sample_weight": WEIGHT, "n_total": 70.0}
    value, gradient = objective(theta, X, targets(net), **options)
    scale = max(1.0, abs(value))
    for i in np.random.default_rng(2).choice(len(theta), 15, replace=False):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        up, down = (objective(theta + s, X, targets(net), **options)[0] for s in (step, -step))
        assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6 * scale)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_an_exact_output_layer_is_the_expectation_over_its_weights(posterior):
    """Same hidden draws in both: the difference averages to zero over many draws."""
    exact, drawn = (network(posterior=posterior, exact_last_layer=e) for e in (True, False))
    theta = start(exact)
    gaps = []
    for seed in range(60):
        a, b = (
            n.mcvi_objective(theta, X, TARGETS, n_draws=20, seed=seed, kl_weight=0.0, sample_weight=WEIGHT)[0]
            for n in (exact, drawn)
        )
        gaps.append(a - b)
    assert np.std(gaps) > 0.0
    assert abs(np.mean(gaps)) < 4.5 * np.std(gaps) / np.sqrt(len(gaps))


def test_an_exact_output_layer_is_used_only_where_it_is_exact():
    assert network(posterior="laplace").last_layer_is_exact
    assert network("heteroscedastic").last_layer_is_exact
    assert not network("heteroscedastic", posterior="laplace").last_layer_is_exact
    assert not network("classification").last_layer_is_exact
    assert not network(exact_last_layer=False).last_layer_is_exact


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_results_have_the_same_bits_for_any_number_of_threads(posterior):
    net = network("heteroscedastic", posterior=posterior)
    theta = start(net, std_ratio=0.1)
    many = np.random.default_rng(4).standard_normal((300, 5))
    results = [
        net.mcvi_objective(theta, many[:, :3], many[:, 3:], n_draws=9, seed=1, n_threads=n) for n in (1, 2, 5)
    ]
    for value, gradient in results[1:]:
        assert value == results[0][0]
        np.testing.assert_array_equal(gradient, results[0][1])


def test_normal_weights_are_those_of_the_gaussian_network():
    net = network("heteroscedastic", exact_last_layer=False)
    other = DeterministicNetwork(3, (5, 4), 2, likelihood="heteroscedastic", prior=0.7)
    theta = start(net)
    for name in ("mcvi_objective", "rmcvi_objective"):
        mine, theirs = (getattr(n, name)(theta, X, TARGETS, n_draws=3, seed=2) for n in (net, other))
        assert mine[0] == pytest.approx(theirs[0], rel=1e-13)
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-12, atol=1e-13)


def test_draws_that_are_kept_are_those_of_the_seed():
    net, other = network(seed=1, n_draws=3), network(seed=2, n_draws=3)
    theta = start(net)
    assert net == other
    assert net.objective(theta, X, TARGETS)[0] == net.mcvi_objective(theta, X, TARGETS, n_draws=3, seed=1)[0]
    assert net.objective(theta, X, TARGETS)[0] != other.objective(theta, X, TARGETS)[0]


# ---------------------------------------- divergence


@pytest.mark.parametrize(("posterior", "distribution"), [("laplace", stats.laplace), ("logistic", stats.logistic)])
def test_exact_divergence_by_quadrature(posterior, distribution):
    net = SampledNetwork(1, (1,), 1, likelihood="homoscedastic", prior=0.7, posterior=posterior)
    theta = start(net)
    total = 0.0
    for m, s in zip(theta[net.means], np.exp(theta[net.log_deviations]), strict=True):
        q, p = distribution(m, s / distribution.std()), stats.norm(0.0, np.sqrt(0.7))
        density = lambda w, q=q, p=p: q.pdf(w) * (q.logpdf(w) - p.logpdf(w))
        total += sum(integrate.quad(density, m + a * s, m + b * s, epsabs=1e-12)[0] for a, b in ((-40, 0), (0, 40)))
    assert net.kl(theta)[0] == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_exact_divergence_has_its_gradient(posterior):
    net = network(posterior=posterior)
    theta = start(net)
    gradient = net.kl(theta)[1]
    for i in range(0, net.n_parameters, 7):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        assert gradient[i] == pytest.approx((net.kl(theta + step)[0] - net.kl(theta - step)[0]) / 2e-5, abs=1e-6)


# ---------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "cauchy"}, "posterior must be"),
        ({"kl_mode": "sampled"}, "kl_mode must be"),
        ({"n_kl_draws": 0}, "n_kl_draws must be"),
        ({"n_draws": 0}, "n_draws must be"),
        ({"likelihood": "tilted_classification", "n_targets": 3}, "likelihood must be"),
        ({"activation": "heaviside"}, "activation must be"),
        ({"exact_last_layer": 2}, "exact_last_layer must be"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SampledNetwork(2, (3,), **options)


def test_only_normal_weights_have_drawn_pre_activations():
    net = network(posterior="radial")
    with pytest.raises(ValueError, match="posterior must be 'normal'"):
        net.rmcvi_objective(start(net), X, TARGETS)
