import numpy as np
import pytest
from mixtures import climb_of, correlated_problem, elbo_by_definition, log_prior_of_hypotheses, random_state
from scipy.special import softmax, xlogy

from pydirect import GaussianStatistics, fit_mixture
from pydirect.direct import mixture_ascent, pairwise_entropy
from pydirect.direct.mean_field import MeanFieldRegression
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.testing import enumerate_mixture

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
    assert (np.diff([before, *state.trace]) >= -1e-9).all()
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
    state = mixture_ascent.MixtureState(posterior.alpha, posterior.component_q, posterior.noise.q, posterior.elbo)
    rng = np.random.default_rng(0)
    for _ in range(50):
        logits = np.log(np.maximum(state.q, 1e-300)) + 0.05 * rng.standard_normal(state.q.shape)
        moved = mixture_ascent.MixtureState(state.alpha, softmax(logits, axis=2), state.q_noise, -np.inf)
        assert climb.solver(moved).elbo() <= posterior.elbo + 1e-9


def test_components_that_meet_within_one_sweep_are_not_at_rest():
    """Two weights whose difference is known: from (0, 0) and (1, 1), which are far apart, both would spread alike."""
    statistics = GaussianStatistics.from_arrays(np.tile([[1.0, -1.0]], (10, 1)), np.zeros(10))
    model = MeanFieldRegression.of(statistics, [0.0, 1.0], np.log([0.5, 0.5]), [2.0])
    climb = mixture_ascent.Climb(model, None, statistics.A.astype(np.float32), 1000, 1e-9, 1)
    q = np.eye(2)[[[0, 0], [1, 1]]]
    start = mixture_ascent.MixtureState(np.full(2, 0.5), q, np.ones(1), -np.inf)
    state = climb.ascend(start)
    assert state.elbo == pytest.approx(climb.solver(start).elbo())
    assert not state.converged


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
