import numpy as np
import pytest
from mixtures import (
    PRIORS,
    climb_of,
    correlated_problem,
    elbo_by_definition,
    enumerated,
    log_prior_of_hypotheses,
    prior_of_hypotheses,
    problem_with_noise,
    random_state,
)

from pydirect import GaussianStatistics, MixturePrior, fit_mean_field, fit_mixture
from pydirect.direct import mixture, mixture_ascent
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.testing import enumerate_log_evidence

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")

ENTROPIES = ("pairwise", "taylor")


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("seed", range(4))
def test_fits_lie_between_mean_field_and_evidence(make_problem, entropy, seed):
    problem = correlated_problem(make_problem, seed=seed)
    posterior = fit_mixture(*problem.fit_arguments, n_components=4, entropy=entropy)
    evidence = enumerate_log_evidence(*problem.oracle_arguments, problem.log_noise_prior)
    assert posterior.elbo <= evidence + 1e-9
    assert posterior.elbo >= fit_mean_field(*problem.fit_arguments).elbo - 2e-3
    truth = elbo_by_definition(problem, enumerated(posterior), log_prior_of_hypotheses(problem))
    assert posterior.elbo <= truth + 1e-9
    assert posterior.elbo_trace[-1] == posterior.elbo
    assert posterior.elbo_trace.size == max(posterior.n_iter, 1)


def test_both_modes_of_an_ambiguous_problem_are_found():
    """Only the sum of two weights is known: the posterior is half (1, 0), half (0, 1)."""
    statistics = GaussianStatistics.from_arrays(np.ones((50, 2)), np.ones(50))
    arguments = statistics, [0.0, 1.0], np.log([0.5, 0.5]), [0.1]
    evidence = enumerate_log_evidence((np.ones((50, 2)), np.ones(50)), *arguments[1:])
    posterior = fit_mixture(*arguments, n_components=2)
    assert posterior.elbo == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(posterior.alpha, 0.5, atol=1e-9)
    np.testing.assert_allclose(posterior.mean, 0.5, atol=1e-9)
    assert fit_mean_field(*arguments).elbo == pytest.approx(evidence - np.log(2), abs=1e-9)


def test_one_component_is_mean_field(make_problem):
    problem = make_problem()
    posterior, factorised = fit_mixture(*problem.fit_arguments, n_components=1), fit_mean_field(*problem.fit_arguments)
    assert posterior.elbo == pytest.approx(factorised.elbo, rel=1e-9)
    np.testing.assert_allclose(posterior.q, factorised.q, atol=1e-6)
    assert posterior.n_components == 1 and posterior.alpha.tolist() == [1.0]


def test_a_mixture_rises_from_a_mixture(make_problem):
    problem = correlated_problem(make_problem)
    short = fit_mixture(*problem.fit_arguments, n_components=3, max_iter=2)
    posterior = fit_mixture(*problem.fit_arguments, n_components=5, start=short)
    assert posterior.n_components == short.n_components > 1
    assert posterior.elbo >= short.elbo - 1e-9
    assert posterior.converged and not short.converged
    with pytest.raises(ValueError, match="start must have at most n_components = 1 components, got"):
        fit_mixture(*problem.fit_arguments, n_components=1, start=short)


@pytest.mark.parametrize(("start_components", "n_components"), [(1, 1), (1, 3), (3, 3)])
def test_a_start_is_evaluated_under_the_model_it_comes_to(make_problem, start_components, n_components):
    problem = correlated_problem(make_problem)
    near = 0.1 * np.asarray(problem.levels)
    start = fit_mixture(problem.statistics, near, problem.log_prior, [1.0], n_components=start_components)
    arguments = problem.statistics, problem.levels, problem.log_prior, [0.01]
    posterior = fit_mixture(*arguments, n_components=n_components, start=start)
    truth = elbo_by_definition(
        problem_with_noise(problem, [0.01]), enumerated(posterior), log_prior_of_hypotheses(problem)
    )
    assert posterior.elbo <= truth + 1e-9
    if n_components == 1:
        assert posterior.elbo == pytest.approx(truth, rel=1e-9)


DEGENERATE = {
    "one weight": (np.ones((9, 1)), 3),
    "a column of zeros": (np.c_[np.ones(9), np.zeros(9)], 3),
    "equal columns": (np.ones((9, 3)), 3),
    "one level": (np.ones((9, 2)), 1),
    "no columns that matter": (np.zeros((9, 2)), 3),
}


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_problems_give_finite_posteriors(name, entropy):
    phi, n_levels = DEGENERATE[name]
    levels = np.linspace(-1, 1, n_levels) if n_levels > 1 else np.array([0.5])
    log_prior = np.full(n_levels, -np.log(n_levels))
    statistics = GaussianStatistics.from_arrays(phi, np.linspace(-1, 1, 9))
    posterior = fit_mixture(statistics, levels, log_prior, [0.1, 1.0], n_components=8, entropy=entropy)
    assert np.isfinite(posterior.elbo) and np.isfinite(posterior.component_q).all()
    assert (posterior.alpha > 0).all() and posterior.alpha.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(posterior.component_q.sum(axis=2), 1.0, rtol=1e-12)
    assert np.isfinite(posterior.entropy_bracket).all()


def test_coincident_components_are_merged_and_weightless_ones_dropped(make_problem):
    problem = make_problem()
    climb = climb_of(problem)
    state = random_state(problem, 4)
    state.q[1] = state.q[0]
    state.alpha = np.array([0.25, 0.25, 0.5, 1e-300])
    posterior = mixture._posterior(state, climb)
    np.testing.assert_allclose(posterior.alpha, [0.5, 0.5])
    np.testing.assert_array_equal(posterior.component_q, state.q[[0, 2]])


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_interrupting_keeps_the_factorised_posterior(make_problem, monkeypatch, entropy):
    problem = correlated_problem(make_problem)
    factorised = fit_mean_field(*problem.fit_arguments)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(mixture_ascent.Climb, "solver", stop)
    posterior = fit_mixture(*problem.fit_arguments, n_components=3, entropy=entropy)
    assert posterior.interrupted and not posterior.converged
    np.testing.assert_allclose(posterior.q, factorised.q, atol=1e-12)


def test_arguments_are_checked(make_problem):
    arguments = make_problem().fit_arguments
    for options, message in (
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"n_components": 65}, "n_components must be at most 64"),
        ({"entropy": "exact"}, "entropy must be one of"),
        ({"optimizer": "sgd"}, "optimizer must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_mixture(*arguments, **options)


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_fits_under_mixture_priors_are_bounds_and_never_fall(make_problem, prior, n_components):
    problem = correlated_problem(make_problem, seed=2)
    arguments = problem.statistics, problem.levels, prior, problem.noise_levels, problem.log_noise_prior
    posterior = fit_mixture(*arguments, n_components=n_components)
    log_prior = prior_of_hypotheses(prior, problem.levels, 5)
    truth = elbo_by_definition(problem, enumerated(posterior), log_prior)
    assert posterior.elbo <= truth + 1e-9
    assert (np.diff(posterior.elbo_trace) >= -1e-9).all()
    assert posterior.log_prior.shape == (posterior.n_components, 5, 3)
    if n_components > 1:
        assert posterior.elbo >= fit_mixture(*arguments, n_components=1).elbo - 1e-9


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_fits_under_mixture_priors_end_at_rest_with_the_bound_they_report(make_problem, prior, n_components):
    problem = correlated_problem(make_problem, seed=4)
    table = prior.table(problem.levels, 5)
    posterior = fit_mixture(
        problem.statistics, problem.levels, table, problem.noise_levels, problem.log_noise_prior,
        n_components=n_components,
    )  # fmt: skip
    assert posterior.converged
    climb = climb_of(problem, table)
    state = mixture_ascent.MixtureState(posterior.alpha, posterior.component_q, posterior.noise.q)
    np.testing.assert_allclose(posterior.log_prior, climb.priors(posterior.component_q)[0])
    assert posterior.elbo == pytest.approx(climb.solver(state).elbo(), abs=1e-10)
    for _ in range(5):
        state = climb.ascend(state)
    assert state.elbo == pytest.approx(posterior.elbo, abs=1e-7)


def test_the_scale_that_the_data_have_is_found():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((400, 40))
    levels = evenly_spaced_levels(31, 3.0)
    prior = MixturePrior.of_scales([0.1, 0.3, 1.0, 3.0])
    for k, scale in enumerate([0.1, 0.3, 1.0]):
        y = phi @ (scale * rng.standard_normal(40)) + 0.05 * rng.standard_normal(400)
        posterior = fit_mixture(
            GaussianStatistics.from_arrays(phi, y), levels, prior, np.geomspace(1e-3, 1, 9), n_components=1
        )
        rho = prior.table(levels, 40).responsibilities(posterior.q)
        assert rho.argmax() == k


def test_groups_that_do_nothing_are_switched_off():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((200, 24))
    w = np.r_[rng.choice([-1.0, -0.5, 0.5, 1.0], 8), np.zeros(16)]
    groups = np.repeat(np.arange(6), 4)
    statistics = GaussianStatistics.from_arrays(phi, phi @ w + 0.3 * rng.standard_normal(200))
    levels = evenly_spaced_levels(5, 1.0)
    posterior = fit_mixture(statistics, levels, MixturePrior.switched(groups), [0.03, 0.1, 0.3], n_components=2)
    zero = posterior.q[:, 2].reshape(6, 4)
    assert (zero[:2] < 0.01).all() and (zero[2:] > 0.99).all()
