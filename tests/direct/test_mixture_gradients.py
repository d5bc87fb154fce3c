import numpy as np
import pytest
from mixtures import (
    PRIORS,
    climb_of,
    correlated_problem,
    elbo_by_definition,
    entropy_of,
    enumerated,
    masses,
    prior_of_hypotheses,
    problem_with_noise,
    random_mixture,
)
from scipy.special import xlogy

from pydirect import GaussianStatistics, fit_mixture
from pydirect.direct import mixture_ascent, mixture_entropy, mixture_gradients
from pydirect.direct.mixture_entropy import taylor_entropy
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.testing import finite_difference_gradient, monte_carlo_mean

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


@pytest.mark.parametrize("seed", [0, 2])
def test_the_taylor_bound_gains_most_of_what_the_pairwise_one_does(seed):
    """Components that differ in many weights: about a centre at the marginals its terms are exponentially many."""
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((40, 60))
    phi[:, 1::2] = phi[:, ::2] + 0.2 * phi[:, 1::2]
    levels = evenly_spaced_levels(9, 2.0)
    statistics = GaussianStatistics.from_arrays(phi, phi @ rng.choice(levels, 60) + 0.5 * rng.standard_normal(40))
    mixture = fit_mixture(statistics, levels, GaussianPrior().log_mass(levels), [0.25], n_components=4)
    alpha, q = mixture.alpha, mixture.component_q
    of_components = -float(alpha @ xlogy(q, q).sum(axis=(1, 2)))
    state = mixture_ascent.MixtureState(alpha, q, np.ones(1), -np.inf)
    best, _ = mixture_gradients._best_centre(state, 1000, 1e-15)
    gain = mixture.entropy_lower - of_components
    assert gain > 0.1
    assert taylor_entropy(alpha, q, best)[0] - of_components > 0.85 * gain


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


@pytest.mark.parametrize("prior", [None, *PRIORS.values()], ids=["factorised", *PRIORS])
def test_energy_gradients_agree_with_finite_differences(make_problem, prior):
    problem = correlated_problem(make_problem)
    table = None if prior is None else prior.table(problem.levels, 5)
    energy = mixture_gradients.Energy(climb_of(problem, table))
    alpha, q = random_mixture(b=5)
    _, d_alpha, d_q, _ = energy(alpha, q)
    for got, function, at in ((d_alpha, lambda x: energy(x, q)[0], alpha), (d_q, lambda x: energy(alpha, x)[0], q)):
        np.testing.assert_allclose(got, finite_difference_gradient(function, at), rtol=1e-5, atol=1e-5)
