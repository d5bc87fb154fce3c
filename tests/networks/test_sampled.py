"""Networks with weights M + σ ξ: laws of ξ, objectives from draws and their gradients, divergences."""

import pickle

import numpy as np
import pytest
from scipy import integrate, stats

from pydirect.monte_carlo.divergence import InadmissiblePairError
from pydirect.networks.base import EmpiricalBayes
from pydirect.networks.deterministic import DeterministicNetwork
from pydirect.networks.sampled import POSTERIORS, SampledNetwork, SampledPosterior, lost_entropy
from pydirect.networks.training import NetworkObjective
from pydirect.optimize.outcome import Outcome

RNG = np.random.default_rng(0)
X, TARGETS = RNG.standard_normal((50, 3)), RNG.standard_normal((50, 2))
LABELS = RNG.integers(0, 3, 50)
WEIGHT = RNG.uniform(0.5, 2.0, 50)
KURTOSIS = {"normal": 3.0, "laplace": 6.0, "logistic": 4.2}


def network(likelihood="homoscedastic", **options):
    n = 3 if likelihood == "classification" else 2
    return SampledNetwork(3, (5, 4), n, likelihood=likelihood, **{"prior": 0.7} | options)


def small(**options):
    return SampledNetwork(2, (3,), 1, likelihood="homoscedastic", **{"prior": 0.7} | options)


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


@pytest.mark.parametrize("size", [1, 2, 3])
def test_lost_entropy_of_radial_weights_by_quadrature_over_the_radius(size):
    surface = (
        2 * np.pi ** (size / 2) / float(np.prod(np.arange(size / 2 - 1, 0, -1)) * {0: 1, 1: np.sqrt(np.pi)}[size % 2])
    )
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
    objective = NetworkObjective(net, X, targets(net), inference="mcvi", n_draws=6, sample_weight=WEIGHT)
    value, _ = objective(theta, seed=11, kl_weight=0.0)
    assert value == pytest.approx(by_hand(net, theta, 6, 11), rel=1e-11)


@pytest.mark.parametrize("likelihood", ["homoscedastic", "heteroscedastic", "softplus", "classification"])
@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "drawn"])
def test_gradients_with_kept_draws_agree_with_finite_differences(posterior, likelihood, exact):
    net = network(likelihood, posterior=posterior, exact_last_layer=exact, seed=5)
    check_gradient(net, "kept")


@pytest.mark.parametrize("likelihood", ["homoscedastic", "heteroscedastic"])
def test_gradients_of_drawn_pre_activations_with_an_exact_output_layer(likelihood):
    net = network(likelihood)
    check_gradient(net, "rmcvi")


def check_gradient(net, inference):
    theta = start(net, std_ratio=0.1)
    options = {"sample_weight": WEIGHT, "n_total": 70.0, "n_draws": 4}
    objective = NetworkObjective(net, X, targets(net), inference=inference, **options)
    value, gradient = objective(theta, seed=5)
    chosen = np.random.default_rng(2).choice(len(theta), 15, replace=False)
    check_slopes(lambda theta: objective(theta, seed=5)[0], theta, gradient, chosen, 1e-6 * max(1.0, abs(value)))


def check_slopes(function, theta, gradient, chosen, tolerance=1e-6):
    for i in chosen:
        step = 1e-5 * np.eye(len(theta))[i]
        slope = (function(theta + step) - function(theta - step)) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=tolerance)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_an_exact_output_layer_is_the_expectation_over_its_weights(posterior):
    """Same hidden draws in both: the difference averages to zero over many draws."""
    exact, drawn = (network(posterior=posterior, exact_last_layer=e) for e in (True, False))
    theta = start(exact)
    options = {"inference": "mcvi", "n_draws": 20, "sample_weight": WEIGHT}
    objectives = [NetworkObjective(n, X, TARGETS, **options) for n in (exact, drawn)]
    gaps = []
    for seed in range(60):
        a, b = (objective(theta, seed=seed, kl_weight=0.0)[0] for objective in objectives)
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
    objective = NetworkObjective(net, many[:, :3], many[:, 3:], inference="mcvi", n_draws=9)
    results = [objective(theta, seed=1, n_threads=n) for n in (1, 2, 5)]
    for value, gradient in results[1:]:
        assert value == results[0][0]
        np.testing.assert_array_equal(gradient, results[0][1])


def test_normal_weights_are_those_of_the_gaussian_network():
    net = network("heteroscedastic", exact_last_layer=False)
    other = DeterministicNetwork(3, (5, 4), 2, likelihood="heteroscedastic", prior=0.7)
    theta = start(net)
    for name in ("mcvi", "rmcvi"):
        mine, theirs = (NetworkObjective(n, X, TARGETS, inference=name, n_draws=3)(theta, seed=2) for n in (net, other))
        assert mine[0] == pytest.approx(theirs[0], rel=1e-13)
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-12, atol=1e-13)


# ---------------------------------------- divergence


@pytest.mark.parametrize(("posterior", "distribution"), [("laplace", stats.laplace), ("logistic", stats.logistic)])
def test_exact_divergence_by_quadrature(posterior, distribution):
    net = SampledNetwork(1, (1,), 1, likelihood="homoscedastic", prior=0.7, posterior=posterior)
    theta = start(net)
    total = 0.0
    for m, s in zip(theta[net.means], np.exp(theta[net.log_deviations]), strict=True):
        q, p = distribution(m, s / distribution.std()), stats.norm(0.0, np.sqrt(0.7))

        def excess(w, q=q, p=p):
            return q.pdf(w) * (q.logpdf(w) - p.logpdf(w))

        total += sum(integrate.quad(excess, m + a * s, m + b * s, epsabs=1e-10)[0] for a, b in ((-30, 0), (0, 30)))
    assert net.kl(theta)[0] == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_exact_divergence_has_its_gradient(posterior):
    net = network(posterior=posterior)
    theta = start(net)
    check_slopes(lambda theta: net.kl(theta)[0], theta, net.kl(theta)[1], range(0, net.n_parameters, 7))


# Sums of their own law are those of normal draws; radial draws cannot be shared.
ESTIMATES = [
    *(("normal", kl_mode) for kl_mode in ("direct", "shared", "independent", "naive")),
    *((law, kl_mode) for law in ("laplace", "logistic") for kl_mode in ("shared", "independent", "naive")),
    *(("radial", kl_mode) for kl_mode in ("independent", "naive")),
]


@pytest.mark.parametrize(("posterior", "kl_mode"), ESTIMATES)
@pytest.mark.parametrize("prior", [0.7, EmpiricalBayes()], ids=["fixed", "empirical"])
def test_estimated_divergences_and_their_gradients_are_unbiased(posterior, kl_mode, prior):
    exact = small(posterior=posterior, prior=prior)
    net = small(posterior=posterior, prior=prior, kl_mode=kl_mode, n_kl_draws=20)
    theta = start(net)
    draws = [net.kl(theta, seed) for seed in range(80)]
    for part, expected in enumerate(exact.kl(theta)):
        values = np.array([np.atleast_1d(draw[part]) for draw in draws])
        error = values.std(axis=0, ddof=1) / np.sqrt(len(draws))
        assert (np.abs(values.mean(axis=0) - expected) <= 5.0 * error + 1e-12).all()


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("prior", [0.7, EmpiricalBayes(), EmpiricalBayes.released_code()], ids=str)
def test_kept_draws_make_the_divergence_deterministic(posterior, prior):
    net, other = (network(posterior=posterior, prior=prior, kl_mode="fixed", n_kl_draws=5, seed=s) for s in (1, 2))
    theta = start(net)
    value, gradient = net.kl(theta, 5)
    assert net.kl(theta, 6)[0] == value
    assert other.kl(theta)[0] != value
    assert pickle.loads(pickle.dumps(net)).kl(theta)[0] == value
    check_slopes(lambda theta: net.kl(theta)[0], theta, gradient, range(0, net.n_parameters - 2, 7))


@pytest.mark.parametrize(
    ("prior", "kl_mode", "density"),
    [
        (("normal", 0.3, 1.2), "exact", stats.norm(0.3, 1.2)),
        (("laplace", 0.1, 0.8), "independent", stats.laplace(0.1, 0.8)),
        (("logistic", 0.0, 0.6), "naive", stats.logistic(0.0, 0.6)),
    ],
)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_named_priors_are_those_of_the_average_over_draws(posterior, prior, kl_mode, density):
    net = network(posterior=posterior, weight_prior=prior, kl_mode=kl_mode, n_kl_draws=50)
    theta = start(net)
    estimates = np.array([net.kl(theta, seed)[0] for seed in range(100)])
    weights = theta[net.means] + np.exp(theta[net.log_deviations]) * net.standardised_draws(20_000, 9)
    cross = -density.logpdf(weights).sum(axis=1)
    entropy = theta[net.log_deviations].sum() + net.n_weights * stats.norm.entropy()
    entropy -= sum(lost_entropy(posterior, size) for size in net.set_sizes)
    error = np.hypot(estimates.std() / 10.0, cross.std() / np.sqrt(len(cross)))
    assert abs(estimates.mean() - (cross.mean() - entropy)) < 4.5 * error


# ---------------------------------------- what is refused


def test_moments_of_a_trained_network_are_those_of_its_draws():
    """Radial weights: outputs vary as one length does, and not as those of Gaussian weights."""
    net = SampledNetwork(3, (5,), 1, likelihood="homoscedastic", prior=1.0, posterior="radial")
    posterior = SampledPosterior(net, start(net, std_ratio=3.0), Outcome(0.0, np.zeros(1), 1, True))
    mean, covariance = posterior.moments(X[:4])
    outputs = posterior.forward(posterior.sample_weights(20_000, np.random.default_rng(9)), X[:4])
    error = outputs.std(axis=2) / np.sqrt(1000)
    assert (np.abs(mean - outputs.mean(axis=2)) < 4.5 * error).all()
    np.testing.assert_allclose(covariance[:, 0, 0], outputs.var(axis=2)[:, 0], rtol=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "laplace", "kl_mode": "direct"}, "kl_mode must go together: mode 'direct' must draw the law"),
        ({"posterior": "radial", "kl_mode": "shared"}, "kl_mode must go together: .* cannot be shared"),
        ({"weight_prior": ("exponential", 1.0)}, "kl_mode must go together: .* support"),
        ({"posterior": "laplace", "weight_prior": ("laplace", 0.0, 1.0)}, "kl_mode must go together: .* mode must be"),
        ({"likelihood": "tilted_classification", "n_targets": 3}, "likelihood must be"),
    ],
)
def test_arguments_are_checked(options, message):
    kind = InadmissiblePairError if "together" in message else (ValueError, TypeError)
    with pytest.raises(kind, match=message):
        SampledNetwork(2, (3,), **options)
