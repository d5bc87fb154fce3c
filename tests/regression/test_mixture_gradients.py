import numpy as np
import pytest
from scipy.special import logsumexp, xlogy

from pydirect import GaussianStatistics, MixturePrior, fit_mean_field, fit_mixture
from pydirect.distributions.levels import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior, SpikeAndSlabPrior
from pydirect.regression import mixture_ascent, mixture_entropy, mixture_gradients
from pydirect.regression.mixture_entropy import taylor_entropy
from pydirect.testing import (
    enumerate_hypotheses,
    enumerate_mixture,
    finite_difference_gradient,
    monte_carlo_mean,
)

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


def random_mixture(r=3, b=4, m=3, seed=0, concentration=0.7):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(r)), rng.dirichlet(np.full(m, concentration), size=(r, b))


def masses(alpha, q):
    """Probability of every weight vector, by definition; entries of q and alpha may be any numbers."""
    return sum(a * enumerate_hypotheses(component).prod(axis=1) for a, component in zip(alpha, q, strict=True))


def entropy_of(alpha, q):
    p = masses(alpha, q)
    return -xlogy(p, p).sum()


def indices_of_hypotheses(b, m):
    return enumerate_hypotheses(np.arange(m, dtype=float), b).astype(np.uint8)


def correlated_problem(make_problem, **options):
    """Two nearly equal columns: the posterior has several modes, and a factorised one sees a single one of them."""
    problem = make_problem(**{"b": 5, "n": 12, "reach": 1.0, **options})
    problem.phi[:, 1] = problem.phi[:, 0] + np.round(problem.phi[:, 1]) / 8
    return problem


def enumerated(posterior):
    levels = np.broadcast_to(posterior.levels, posterior.q.shape)
    return enumerate_mixture(levels, posterior.alpha, posterior.component_q, posterior.noise.levels, posterior.noise.q)


def elbo_by_definition(problem, distribution, log_prior):
    """``Σ q (log p(y, w, σ²) − log q)`` for log prior masses of every weight vector."""
    error = ((problem.y - distribution.weights @ problem.phi.T) ** 2).sum(axis=1)
    noise = problem.noise_levels
    log_joint = -0.5 * len(problem.y) * np.log(2 * np.pi * noise) - 0.5 * error[:, None] / noise
    log_joint = log_joint + log_prior[:, None] + problem.log_noise_prior
    q = distribution.probability
    used = q > 0
    return float((q[used] * (log_joint[used] - np.log(q[used]))).sum())


def climb_of(problem, table=None, n_threads=1):
    model = problem.model
    return mixture_ascent.Climb(model, table, model.statistics.A.astype(np.float32), 1000, 1e-9, n_threads)


@pytest.mark.parametrize("seed", [0, 2])
def test_the_taylor_bound_gains_most_of_what_the_pairwise_one_does(seed):
    """Components that differ in many weights: about a centre at the marginals its terms are exponentially many."""
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((40, 60))
    phi[:, 1::2] = phi[:, ::2] + 0.2 * phi[:, 1::2]
    levels = evenly_spaced_levels(9, 2.0)
    statistics = GaussianStatistics.from_arrays(phi, phi @ rng.choice(levels, 60) + 0.5 * rng.standard_normal(40))
    arguments = statistics, levels, GaussianPrior().log_mass(levels), [0.25]
    one = fit_mean_field(*arguments).elbo
    pairwise, taylor = (fit_mixture(*arguments, n_components=4, entropy=e).elbo for e in ("pairwise", "taylor"))
    assert pairwise - one > 0.5
    assert taylor - one > 0.99 * (pairwise - one)


def test_the_best_centre_is_stationary_and_above_the_marginals():
    alpha, q = random_mixture(r=3, b=6, concentration=0.3)
    state = mixture_ascent.MixtureState(alpha, q, np.ones(1), -np.inf)
    best, _ = mixture_gradients._best_centre(state, 1000, 1e-15)
    value, _, _, gradient = taylor_entropy(alpha, q, best)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    assert taylor_entropy(alpha, q, mixture_gradients._log_marginal(state))[0] < value <= entropy_of(alpha, q)


def test_interrupting_the_search_for_a_centre_keeps_the_pairwise_fit(make_problem, monkeypatch):
    problem = correlated_problem(make_problem)
    pairwise = fit_mixture(*problem.fit_arguments, n_components=3)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(mixture_gradients, "taylor_entropy", stop)
    posterior = fit_mixture(*problem.fit_arguments, n_components=3, entropy="taylor")
    assert posterior.interrupted and not posterior.converged
    assert posterior.elbo == pairwise.elbo
    np.testing.assert_array_equal(posterior.component_q, pairwise.component_q)


def prior_of_hypotheses(prior, levels, b):
    """Log mass of every weight vector, by definition."""
    indices = indices_of_hypotheses(b, len(levels))
    log_p = np.zeros(len(indices))
    groups = np.zeros(b, dtype=int) if prior.groups is None else np.asarray(prior.groups)
    weights = np.full(len(prior.components), 1 / len(prior.components)) if prior.weights is None else prior.weights
    for group in np.unique(groups):
        terms = [
            np.log(w) + c.log_mass(levels)[indices[:, groups == group]].sum(axis=1)
            for w, c in zip(np.asarray(weights) / np.sum(weights), prior.components, strict=True)
        ]
        log_p += logsumexp(terms, axis=0)
    return log_p


PRIORS = {
    "scales": MixturePrior.of_scales([0.3, 1.0]),
    "one component": MixturePrior(("gaussian",)),
    "switched": MixturePrior.switched(zero_probability=0.7, leak=0.05),
    "groups": MixturePrior.switched([1, 0, 0, 1, 2], leak=0.05),
    "weighted": MixturePrior((GaussianPrior(0.5), SpikeAndSlabPrior(0.5)), (3.0, 1.0), [0, 0, 1, 1, 1]),
    "jensen": MixturePrior((GaussianPrior(0.5), GaussianPrior(2.0)), bound="jensen"),
    "stochastic": MixturePrior((GaussianPrior(0.5), GaussianPrior(2.0)), bound="stochastic"),
}


def test_stochastic_prior_gradients_are_unbiased():
    prior = PRIORS["stochastic"]
    levels = np.array([-1.0, 0.0, 1.0])
    table = prior.table(levels, 3)
    alpha, q = random_mixture(b=3, concentration=2.0)
    log_prior = prior_of_hypotheses(prior, levels, 3)

    def bound(a, x):
        return sum(w * table.expectation(component) for w, component in zip(a, x, strict=True))

    exact = [
        finite_difference_gradient(lambda x: masses(x, q) @ log_prior - bound(x, q), alpha),
        finite_difference_gradient(lambda x: masses(alpha, x) @ log_prior - bound(alpha, x), q).ravel(),
    ]
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(400):
        indices = mixture_entropy.sample_indices(alpha, q, 50, rng)
        d_alpha, d_q = mixture_gradients._exact_prior_gradient(table, alpha, q, indices, 1)
        draws.append(np.concatenate([d_alpha, d_q.ravel()]))
    mean, error = monte_carlo_mean(draws)
    assert (np.abs(mean - np.concatenate(exact)) <= 5 * error + 1e-7).all()


def test_both_stochastic_terms_train_together(make_problem):
    problem = correlated_problem(make_problem)
    prior = PRIORS["stochastic"]
    posterior = fit_mixture(
        problem.statistics, problem.levels, prior, [0.1], n_components=2, entropy="stochastic", n_samples=300
    )
    truth = elbo_by_definition(
        problem_with_noise(problem, [0.1]), enumerated(posterior), prior_of_hypotheses(prior, problem.levels, 5)
    )
    assert posterior.elbo <= truth + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_stochastic_steps_never_end_below_their_start(make_problem, seed):
    problem = correlated_problem(make_problem, seed=seed)
    pairwise, stochastic = (
        fit_mixture(*problem.fit_arguments, n_components=3, entropy=entropy, n_samples=50)
        for entropy in ("pairwise", "stochastic")
    )
    assert stochastic.elbo >= pairwise.elbo
    assert stochastic.n_iter > pairwise.n_iter
    assert stochastic.elbo == pytest.approx(
        mixture_gradients.Energy(climb_of(problem))(stochastic.alpha, stochastic.component_q)[0]
        + stochastic.entropy_bracket[0],
        abs=1e-6,
    )


def problem_with_noise(problem, noise_levels):
    problem.noise_levels, problem.log_noise_prior = np.asarray(noise_levels), np.zeros(1)
    return problem


@pytest.mark.parametrize("prior", [None, *PRIORS.values()], ids=["factorised", *PRIORS])
def test_energy_gradients_agree_with_finite_differences(make_problem, prior):
    problem = correlated_problem(make_problem)
    table = None if prior is None else prior.table(problem.levels, 5)
    energy = mixture_gradients.Energy(climb_of(problem, table))
    alpha, q = random_mixture(b=5)
    _, d_alpha, d_q, _ = energy(alpha, q)
    for got, function, at in ((d_alpha, lambda x: energy(x, q)[0], alpha), (d_q, lambda x: energy(alpha, x)[0], q)):
        np.testing.assert_allclose(got, finite_difference_gradient(function, at), rtol=1e-5, atol=1e-5)
