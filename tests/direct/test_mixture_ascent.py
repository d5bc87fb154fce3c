from functools import partial

import numpy as np
import pytest
from mixtures import (
    PRIORS,
    climb_of,
    correlated_problem,
    elbo_by_definition,
    entropy_of,
    log_prior_of_hypotheses,
    random_mixture,
    random_state,
)
from scipy.special import softmax, xlogy

from pydirect import GaussianStatistics, fit_mixture
from pydirect.direct import mixture_ascent, pairwise_entropy
from pydirect.direct.mixture_posterior import taylor_entropy
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.testing import enumerate_mixture
from tests.helpers.oracles import finite_difference_gradient

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (9, 3), (17, 4), (33, 2)], ids=str)
@pytest.mark.parametrize("per_weight", [False, True])
def test_solver_evaluates_the_pairwise_bound(isa_level, make_problem, shape, per_weight):
    n_levels, r = shape
    problem = make_problem(b=5, n_levels=n_levels, per_weight=per_weight)
    state = random_state(problem, r)
    solver = climb_of(problem).solver(state)
    components = [problem.model.elbo(q, state.q_noise) for q in state.q]
    own = sum(-xlogy(q, q).sum() * a for a, q in zip(state.alpha, state.q, strict=True))
    expected = state.alpha @ components - own + pairwise_entropy(state.alpha, state.q)[0]
    assert solver.elbo() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(solver.probabilities()[:, :, :n_levels], state.q, atol=1e-15)
    np.testing.assert_allclose(
        solver.mean,
        [q @ problem.levels if not per_weight else (q * problem.levels).sum(1) for q in state.q],
        rtol=1e-12,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("r", [2, 3, 5])
def test_ascent_never_lowers_the_bound_nor_leaves_it_above_the_truth(isa_level, make_problem, r, seed):
    problem = correlated_problem(make_problem, seed=seed)
    start = random_state(problem, r, seed, concentration=3.0)
    climb = climb_of(problem)
    before = climb.solver(start).elbo()
    state = climb.ascend(start)
    assert (np.diff([before, *state.elbo_trace]) >= -1e-9).all()
    assert state.elbo >= before - 1e-9
    truth = elbo_by_definition(
        problem,
        enumerate_mixture(problem.levels, state.alpha, state.q, problem.noise_levels, state.q_noise),
        log_prior_of_hypotheses(problem),
    )
    assert state.elbo <= truth + 1e-9


def test_ascent_stops_where_no_component_can_rise_alone(make_problem):
    """At rest every q_j is the maximiser of its tangent bound: weights far from other components are at Theorem 1's."""
    problem = correlated_problem(make_problem, seed=3)
    posterior = fit_mixture(*problem.fit_arguments, n_components=3)
    climb = climb_of(problem)
    state = mixture_ascent.MixtureState(posterior.alpha, posterior.component_q, posterior.noise.q)
    rng = np.random.default_rng(0)
    for _ in range(50):
        logits = np.log(np.maximum(state.q, 1e-300)) + 0.05 * rng.standard_normal(state.q.shape)
        moved = mixture_ascent.MixtureState(state.alpha, softmax(logits, axis=2), state.q_noise)
        assert climb.solver(moved).elbo() <= posterior.elbo + 1e-9


def test_results_have_the_same_bits_at_every_level_and_for_any_number_of_threads(at_every_level):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((300, 600))
    statistics = GaussianStatistics.from_arrays(phi, phi[:, :5].sum(axis=1) + rng.standard_normal(300))
    levels = evenly_spaced_levels(15)

    def fit(n_threads=1):
        posterior = fit_mixture(
            statistics, levels, GaussianPrior().log_mass(levels), [0.5, 1.0], n_components=4, n_threads=n_threads
        )
        return posterior.component_q, posterior.alpha, np.array(posterior.elbo)

    alone = at_every_level(fit)
    for got, expected in zip(fit(3), alone, strict=True):
        assert got.tobytes() == expected.tobytes()


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
    state = mixture_ascent.MixtureState(alpha, q, np.ones(1))
    best, _ = mixture_ascent._best_centre(state, 1000, 1e-15)
    gain = mixture.entropy_lower - of_components
    assert gain > 0.1
    assert taylor_entropy(alpha, q, best)[0] - of_components > 0.85 * gain


def test_the_best_centre_is_stationary_and_above_the_marginals():
    alpha, q = random_mixture(r=3, b=6, concentration=0.3)
    state = mixture_ascent.MixtureState(alpha, q, np.ones(1))
    best, _ = mixture_ascent._best_centre(state, 1000, 1e-15)
    value, _, _, gradient = taylor_entropy(alpha, q, best)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    assert taylor_entropy(alpha, q, mixture_ascent._log_marginal(state))[0] < value <= entropy_of(alpha, q)


@pytest.mark.parametrize("prior", [None, *PRIORS.values()], ids=["factorised", *PRIORS])
def test_energy_gradients_agree_with_finite_differences(make_problem, prior):
    problem = correlated_problem(make_problem)
    table = None if prior is None else prior.table(problem.levels, 5)
    energy = partial(mixture_ascent.energy, climb_of(problem, table))
    alpha, q = random_mixture(b=5)
    _, d_alpha, d_q, _ = energy(alpha, q)
    for got, function, at in ((d_alpha, lambda x: energy(x, q)[0], alpha), (d_q, lambda x: energy(alpha, x)[0], q)):
        np.testing.assert_allclose(got, finite_difference_gradient(function, at), rtol=1e-5, atol=1e-5)
