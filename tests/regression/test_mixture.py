import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp, softmax, xlogy

from pydirect import GaussianStatistics, MixturePrior, _core, fit_mean_field, fit_mixture, pairwise_entropy
from pydirect.distributions.levels import evenly_spaced_levels
from pydirect.distributions.noise import NoiseGridWarning, NoisePosterior
from pydirect.distributions.priors import GaussianPrior, SpikeAndSlabPrior, TablePrior
from pydirect.optimize.outcome import Outcome
from pydirect.regression import mixture, mixture_ascent, mixture_entropy, mixture_gradients, mixture_posterior
from pydirect.regression.mean_field import MeanFieldRegression
from pydirect.regression.mixture_entropy import score_gradient, stochastic_entropy, taylor_entropy
from pydirect.testing import (
    enumerate_elbo,
    enumerate_hypotheses,
    enumerate_log_evidence,
    enumerate_mixture,
    enumerate_predictive_moments,
    finite_difference_gradient,
    monte_carlo_mean,
)

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")
ENTROPIES = ("pairwise", "taylor", "stochastic")


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


def log_prior_of_hypotheses(problem):
    b, m = problem.phi.shape[1], np.shape(problem.levels)[-1]
    table = np.broadcast_to(problem.log_prior, (b, m))
    return table[np.arange(b), indices_of_hypotheses(b, m)].sum(axis=1)


# Entropies


def test_pairwise_bracket_is_tight_for_one_component_and_for_disjoint_ones():
    alpha, q = random_mixture(r=1)
    np.testing.assert_allclose(pairwise_entropy(alpha, q), entropy_of(alpha, q), rtol=1e-12)
    alpha, q = random_mixture(r=2, m=4)
    q[0, 1, :2], q[1, 1, 2:] = 0.0, 0.0
    q /= q.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(pairwise_entropy(alpha, q), entropy_of(alpha, q), rtol=1e-12)


def test_pairwise_and_taylor_bounds_are_each_closer_where_they_should_be():
    alpha, apart = random_mixture(r=3, concentration=0.1, seed=1)
    near = random_mixture(r=1, concentration=5.0)[1] + 0.02 * random_mixture(r=3, seed=2)[1]
    near /= near.sum(axis=2, keepdims=True)

    def taylor(q):
        return taylor_entropy(alpha, q, np.log(np.einsum("i,ijw->jw", alpha, q)))[0]

    for q in (apart, near):
        assert taylor(q) <= entropy_of(alpha, q)
        assert pairwise_entropy(alpha, q)[0] <= entropy_of(alpha, q)
    assert pairwise_entropy(alpha, apart)[0] > taylor(apart)
    assert pairwise_entropy(alpha, near)[0] < taylor(near)


def test_taylor_bound_is_exact_about_a_factorised_distribution():
    alpha, q = random_mixture(r=1)
    value, _, _, gradient = taylor_entropy(alpha, q, np.log(q[0]))
    assert value == pytest.approx(entropy_of(alpha, q), rel=1e-12)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


def test_taylor_gradients_agree_with_finite_differences():
    alpha, q = random_mixture()
    centre = np.log(random_mixture(r=1, seed=5)[1][0] + 0.1)
    _, d_alpha, d_q, d_centre = taylor_entropy(alpha, q, centre)
    for got, function, at in (
        (d_alpha, lambda x: taylor_entropy(x, q, centre)[0], alpha),
        (d_q, lambda x: taylor_entropy(alpha, x, centre)[0], q),
        (d_centre, lambda x: taylor_entropy(alpha, q, x)[0], centre),
    ):
        np.testing.assert_allclose(got, finite_difference_gradient(function, at), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("control", [False, True], ids=["eq. 11", "control variate"])
def test_stochastic_entropy_gradient_is_unbiased(control):
    alpha, q = random_mixture(b=3, concentration=2.0)
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(400):
        indices = mixture_entropy.sample_indices(alpha, q, 50, rng)
        if control:
            values, d_alpha, d_q = stochastic_entropy(alpha, q, indices)
        else:
            at = np.arange(3)
            log_q = logsumexp(np.log(alpha) + np.log(q[:, at, indices]).sum(axis=2).T, axis=1)
            d_alpha, d_q = (-g for g in score_gradient(alpha, q, indices, log_q + 1, np.zeros(q.shape[1:])))
            values = -log_q
        batches.append(np.concatenate([[values.mean()], d_alpha, d_q.ravel()]))
    mean, error = monte_carlo_mean(batches)
    exact = np.concatenate(
        [
            [entropy_of(alpha, q)],
            finite_difference_gradient(lambda x: entropy_of(x, q), alpha),
            finite_difference_gradient(lambda x: entropy_of(alpha, x), q).ravel(),
        ]
    )
    assert (np.abs(mean - exact) <= 5 * error + 1e-7).all()


def test_the_control_variate_lowers_the_variance():
    alpha, q = random_mixture(b=8, concentration=2.0)
    indices = mixture_entropy.sample_indices(alpha, q, 4000, np.random.default_rng(0))
    masses_of = _core.component_log_masses(indices, mixture_entropy.log_table(q), 1) + np.log(alpha)
    assert stochastic_entropy(alpha, q, indices)[0].var() < 0.2 * logsumexp(masses_of, axis=1).var()


def test_samplers_of_the_core_are_sums_over_levels():
    q = random_mixture(r=3, b=70, m=5)[1]
    rng = np.random.default_rng(0)
    indices = rng.integers(0, 5, (130, 70)).astype(np.uint8)
    expected = np.log(q)[:, np.arange(70), indices].sum(axis=2).T
    np.testing.assert_allclose(
        _core.component_log_masses(indices, mixture_entropy.log_table(q), 2), expected, rtol=1e-12
    )
    coefficients = rng.standard_normal((130, 3))
    out = np.zeros((70, 5, 3))
    _core.sum_by_level(indices, coefficients, out, 2)
    expected = np.stack([(coefficients.T @ (indices == k)).T for k in range(5)], axis=1)
    np.testing.assert_allclose(out, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        (np.full((2, 4), 200, np.uint8), ValueError, "indices must be from 0 to 2, got 200 to 200"),
        (np.full((2, 4), -1), ValueError, "indices must be from 0 to 2, got -1 to -1"),
        (np.zeros(4, np.uint8), ValueError, "indices must have shape .n_samples, 4., got .4,."),
        (np.zeros((2, 5), np.uint8), ValueError, "indices must have shape .n_samples, 4., got .2, 5."),
        (np.zeros((2, 4)), TypeError, "indices must hold integers, got dtype float64"),
    ],
)
def test_level_indices_are_checked(fitted, indices, error, message):
    alpha, q = fitted.alpha, fitted.component_q
    table = MixturePrior(("gaussian",)).table([-1.0, 0.0, 1.5], 4)
    for call in (
        lambda: fitted.log_mass(indices),
        lambda: score_gradient(alpha, q, indices, np.zeros(2), np.zeros((4, 3))),
        lambda: stochastic_entropy(alpha, q, indices),
        lambda: table.log_mass_of(indices),
    ):
        with pytest.raises(error, match=message):
            call()


def test_level_indices_may_be_of_any_integers(fitted):
    indices = indices_of_hypotheses(4, 3)
    np.testing.assert_array_equal(fitted.log_mass(indices.astype(int)), fitted.log_mass(indices))


def test_score_gradients_check_their_tables(fitted):
    indices = np.zeros((2, 4), np.uint8)
    for values, additive, message in (
        (np.zeros(3), np.zeros((4, 3)), "values must have shape"),
        (np.zeros(2), np.zeros((4, 2)), "additive must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            score_gradient(fitted.alpha, fitted.component_q, indices, values, additive)


# The compiled solver


def climb_of(problem, table=None, n_threads=1):
    model = problem.model
    return mixture_ascent.Climb(model, table, model.statistics.A.astype(np.float32), 1000, 1e-9, n_threads)


def random_state(problem, r, seed=0, concentration=1.0):
    b, m = problem.phi.shape[1], np.shape(problem.levels)[-1]
    alpha, q = random_mixture(r, b, m, seed, concentration)
    return mixture_ascent.MixtureState(
        alpha, q, np.random.default_rng(seed).dirichlet(np.ones(problem.noise_levels.size)), -np.inf
    )


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


# Fits


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("seed", range(4))
def test_fits_lie_between_mean_field_and_evidence(make_problem, entropy, seed):
    problem = correlated_problem(make_problem, seed=seed)
    posterior = fit_mixture(*problem.fit_arguments, n_components=4, entropy=entropy, n_samples=200)
    evidence = enumerate_log_evidence(*problem.oracle_arguments, problem.log_noise_prior)
    assert posterior.elbo <= evidence + 1e-9
    assert posterior.elbo >= fit_mean_field(*problem.fit_arguments).elbo - 2e-3
    truth = elbo_by_definition(problem, enumerated(posterior), log_prior_of_hypotheses(problem))
    assert posterior.elbo <= truth + 1e-9
    assert posterior.elbo_trace[-1] == posterior.elbo
    assert posterior.elbo_trace.size == max(posterior.n_iter, 1)


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("seed", range(4))
def test_a_mixture_gains_at_most_log_n_components(make_problem, entropy, seed):
    problem = correlated_problem(make_problem, seed=seed)
    posterior = fit_mixture(*problem.fit_arguments, n_components=3, entropy=entropy, n_samples=200)
    own = [
        enumerate_elbo(*problem.oracle_arguments, q, posterior.noise.q, problem.log_noise_prior)
        for q in posterior.component_q
    ]
    assert posterior.elbo <= posterior.alpha @ own + np.log(posterior.n_components) + 1e-9


def test_brackets_contain_the_entropy(make_problem):
    for seed in range(8):
        problem = correlated_problem(make_problem, seed=seed, noise=1.0)
        posterior = fit_mixture(*problem.fit_arguments, n_components=3)
        truth = entropy_of(posterior.alpha, posterior.component_q)
        assert posterior.entropy_bracket[0] - 1e-9 <= truth <= posterior.entropy_bracket[1] + 1e-9


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


def test_weights_that_do_not_interact_gain_nothing(make_problem):
    rng = np.random.default_rng(0)
    phi = np.linalg.qr(rng.standard_normal((20, 5)))[0]
    statistics = GaussianStatistics.from_arrays(phi, phi @ rng.standard_normal(5))
    levels = evenly_spaced_levels(9)
    arguments = statistics, levels, GaussianPrior().log_mass(levels), [0.3]
    assert fit_mixture(*arguments, n_components=3).elbo == pytest.approx(fit_mean_field(*arguments).elbo, abs=1e-6)


def test_one_component_is_mean_field(make_problem):
    problem = make_problem()
    posterior, factorised = fit_mixture(*problem.fit_arguments, n_components=1), fit_mean_field(*problem.fit_arguments)
    assert posterior.elbo == pytest.approx(factorised.elbo, rel=1e-9)
    np.testing.assert_allclose(posterior.q, factorised.q, atol=1e-6)
    assert posterior.n_components == 1 and posterior.alpha.tolist() == [1.0]


def test_a_posterior_can_be_split_later(make_problem):
    problem = correlated_problem(make_problem)
    start = fit_mean_field(*problem.fit_arguments)
    later = fit_mixture(*problem.fit_arguments, n_components=3, start=start)
    assert later.elbo == pytest.approx(fit_mixture(*problem.fit_arguments, n_components=3).elbo, abs=1e-6)
    with pytest.raises(ValueError, match="start must have probabilities of shape"):
        fit_mixture(make_problem(b=3).statistics, *problem.fit_arguments[1:], start=start)


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


def test_a_start_must_be_possible(make_problem):
    problem = make_problem()
    start = fit_mean_field(*problem.fit_arguments)
    log_prior = np.where(np.arange(np.shape(problem.levels)[-1]) == 0, -np.inf, problem.log_prior)
    with pytest.raises(ValueError, match="start must not give mass to a level that log_prior forbids"):
        fit_mixture(problem.statistics, problem.levels, log_prior, problem.noise_levels, n_components=1, start=start)


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


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_weights_that_the_data_decide_leave_no_component_without_any_weight(entropy):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((400, 6))
    statistics = GaussianStatistics.from_arrays(phi, phi @ [1.0, -1.0, 1.0, 0.0, 0.0, 0.0])
    arguments = statistics, [-1.0, 0.0, 1.0], np.log([0.25, 0.5, 0.25]), [1e-6]
    posterior = fit_mixture(*arguments, n_components=4, entropy=entropy, n_samples=50)
    assert posterior.elbo == pytest.approx(fit_mean_field(*arguments).elbo, rel=1e-7)


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
    posterior = fit_mixture(statistics, levels, log_prior, [0.1, 1.0], n_components=8, entropy=entropy, n_samples=50)
    assert np.isfinite(posterior.elbo) and np.isfinite(posterior.component_q).all()
    assert (posterior.alpha > 0).all() and posterior.alpha.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(posterior.component_q.sum(axis=2), 1.0, rtol=1e-12)
    assert np.isfinite(posterior.entropy_bracket).all()


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_forbidden_levels_stay_forbidden(make_problem, entropy):
    problem = correlated_problem(make_problem, n_levels=5)
    log_prior = TablePrior([0.2, 0.0, 0.4, 0.0, 0.4]).log_mass(problem.levels)
    posterior = fit_mixture(
        problem.statistics, problem.levels, log_prior, [0.1, 1.0], n_components=3, entropy=entropy, n_samples=50
    )
    assert (posterior.component_q[:, :, [1, 3]] == 0.0).all()
    assert np.isfinite(posterior.elbo)


def test_coincident_components_are_merged_and_weightless_ones_dropped(make_problem):
    problem = make_problem()
    climb = climb_of(problem)
    state = random_state(problem, 4)
    state.q[1] = state.q[0]
    state.alpha = np.array([0.25, 0.25, 0.5, 1e-300])
    posterior = mixture._posterior(state, climb)
    np.testing.assert_allclose(posterior.alpha, [0.5, 0.5])
    np.testing.assert_array_equal(posterior.component_q, state.q[[0, 2]])


@pytest.mark.parametrize("entropy", ["pairwise", "taylor"])
def test_two_thousand_weights_stay_finite(entropy):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((60, 2000)) / np.sqrt(2000)
    statistics = GaussianStatistics.from_arrays(phi, phi[:, ::9].sum(axis=1))
    levels = evenly_spaced_levels(15)
    posterior = fit_mixture(
        statistics, levels, GaussianPrior().log_mass(levels), [0.01], n_components=4, entropy=entropy, max_iter=10
    )
    assert np.isfinite(posterior.elbo) and np.isfinite(posterior.component_q).all()
    lower, upper = posterior.entropy_bracket
    assert np.isfinite([lower, upper]).all() and 0 <= upper - lower <= np.log(4) + 1e-9


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


def test_arguments_are_checked(make_problem):
    arguments = make_problem().fit_arguments
    for options, message in (
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"n_components": 65}, "n_components must be at most 64"),
        ({"entropy": "exact"}, "entropy must be one of"),
        ({"n_samples": 1}, "n_samples must be at least 2"),
        ({"tolerance": 0.0}, "tolerance must be above 0"),
        ({"optimizer": "sgd"}, "optimizer must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_mixture(*arguments, **options)


def test_a_noise_grid_too_narrow_is_warned_of(make_problem):
    problem = make_problem(noise=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoiseGridWarning)
        with pytest.raises(NoiseGridWarning, match="upper edge"):
            fit_mixture(problem.statistics, problem.levels, problem.log_prior, [1e-4, 2e-4, 4e-4], n_components=2)


# Posteriors


@pytest.fixture(scope="module")
def fitted():
    alpha, q = random_mixture(r=3, b=4, m=3, seed=4)
    levels = np.array([-1.0, 0.0, 1.5])[None]
    noise = NoisePosterior(np.array([0.5, 1.0]), np.array([0.3, 0.7]))
    return mixture_posterior.MixturePosterior(
        levels, q, alpha, noise, np.zeros((1, 1, 3)), *pairwise_entropy(alpha, q), Outcome()
    )


def test_predictive_moments_are_the_enumerated_ones(fitted):
    phi = np.random.default_rng(1).standard_normal((7, 4))
    expected = enumerate_predictive_moments(phi, enumerated(fitted))
    mean, variance = fitted.latent_moments(phi)
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(variance, expected.variance, rtol=1e-10)
    for order, cumulant in enumerate(expected, start=1):
        np.testing.assert_allclose(fitted.latent_cumulant(phi, order), cumulant, rtol=1e-10, atol=1e-10)
    means, variances = fitted.component_moments(phi)
    assert means.shape == variances.shape == (7, 3)


def test_weights_have_the_moments_of_the_mixture(fitted):
    listed = enumerated(fitted)
    np.testing.assert_allclose(fitted.mean, listed.mean, rtol=1e-12)
    np.testing.assert_allclose(fitted.variance, listed.covariance.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(fitted.std**2, fitted.variance, rtol=1e-12)
    np.testing.assert_array_equal(fitted.coefficients, fitted.mean)
    zeros = (listed.weights == 0).mean(axis=1)
    assert fitted.expected_sparsity() == pytest.approx(listed.weight_probability @ zeros)


def test_masses_and_the_most_probable_weights_are_the_enumerated_ones(fitted):
    indices = indices_of_hypotheses(4, 3)
    probability = enumerated(fitted).weight_probability
    np.testing.assert_allclose(np.exp(fitted.log_mass(indices)), probability, rtol=1e-12)
    modes = np.stack([c.most_probable() for c in fitted.components])
    assert fitted.log_mass(fitted.most_probable()[None])[0] == fitted.log_mass(modes).max()


def test_samples_have_the_mixtures_probabilities(fitted):
    indices = fitted.sample_indices(20_000, 0)
    assert indices.dtype == np.uint8 and indices.shape == (20_000, 4)
    code = indices.astype(int) @ 3 ** np.arange(3, -1, -1)
    mean, error = monte_carlo_mean(code[:, None] == np.arange(81))
    probability = enumerated(fitted).weight_probability
    assert (np.abs(mean - probability) <= 5 * error + 1e-3 * (probability < 1e-3)).all()
    weights = fitted.sample_weights(50, np.random.default_rng(0))
    assert set(np.unique(weights)) <= {-1.0, 0.0, 1.5}


# Priors


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


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_tables_give_the_prior_by_definition(prior):
    levels = np.array([-1.0, 0.0, 1.0])
    table = prior.table(levels, 5)
    expected = prior_of_hypotheses(prior, levels, 5)
    np.testing.assert_allclose(table.log_mass_of(indices_of_hypotheses(5, 3)), expected, rtol=1e-12)
    assert logsumexp(expected) == pytest.approx(0.0, abs=1e-12)
    # One weight alone.
    p, indices = np.exp(expected), indices_of_hypotheses(5, 3)
    marginal = np.array([p[indices[:, 0] == k].sum() for k in range(3)])
    np.testing.assert_allclose(np.exp(np.broadcast_to(table.marginal, (5, 3))[0]), marginal, rtol=1e-12)
    np.testing.assert_allclose(np.exp(prior.log_mass(levels)), marginal, rtol=1e-12)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_responsibilities_attain_the_bound(prior):
    levels = np.array([-1.0, 0.0, 1.0])
    table = prior.table(levels, 5)
    q = random_mixture(r=1, b=5)[1][0]
    rho = table.responsibilities(q)
    value = (q * table.effective(rho)).sum() + table.offset(rho)
    assert value == pytest.approx(table.expectation(q), rel=1e-12)
    expected = masses([1.0], q[None]) @ prior_of_hypotheses(prior, levels, 5)
    assert value <= expected + 1e-12


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
    problem = correlated_problem(make_problem, seed=2)
    table = prior.table(problem.levels, 5)
    posterior = fit_mixture(
        problem.statistics, problem.levels, table, problem.noise_levels, problem.log_noise_prior,
        n_components=n_components,
    )  # fmt: skip
    climb = climb_of(problem, table)
    state = mixture_ascent.MixtureState(posterior.alpha, posterior.component_q, posterior.noise.q, posterior.elbo)
    np.testing.assert_allclose(posterior.log_prior, climb.priors(posterior.component_q)[0])
    assert posterior.elbo == pytest.approx(climb.solver(state).elbo(), abs=1e-10)
    for _ in range(5):
        state = climb.ascend(state)
    assert state.elbo == pytest.approx(posterior.elbo, abs=1e-7)


def test_log_sum_exp_fits_no_worse_than_jensen(make_problem):
    problem = correlated_problem(make_problem, seed=1)
    components = (GaussianPrior(0.3), GaussianPrior(3.0))
    elbo = {
        bound: fit_mixture(
            problem.statistics, problem.levels, MixturePrior(components, bound=bound), [0.1], n_components=1
        ).elbo
        for bound in ("log_sum_exp", "jensen")
    }
    assert elbo["log_sum_exp"] >= elbo["jensen"]


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


def test_masses_under_a_prior_take_little_memory():
    table = MixturePrior.of_scales([0.3, 0.5, 1.0, 2.0]).table(evenly_spaced_levels(15), 400)
    indices = np.random.default_rng(0).integers(0, 15, (500, 400)).astype(np.uint8)
    tracemalloc.start()
    table.log_mass_of(indices)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * indices.size


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


def test_mixture_priors_are_checked():
    levels = np.array([-1.0, 0.0, 1.0])
    for build, message in (
        (lambda: MixturePrior(()), "components must be at least one"),
        (lambda: MixturePrior.of_scales([0.0, 1.0]), "scales must be positive, got 0.0"),
        (lambda: MixturePrior(("gaussian",), bound="exact"), "bound must be one of"),
        (lambda: MixturePrior(("gaussian",), (0.0,)), "weights must be positive"),
        (lambda: MixturePrior(("gaussian",), (1.0, 2.0)), "weights must have shape"),
        (lambda: MixturePrior(("gaussian",), groups=[0.5, 1.0]), "groups must be a vector of integers"),
        (lambda: MixturePrior(("gaussian",), groups=[0, 1]).table(levels, 3), "groups must have one number a weight"),
        (lambda: MixturePrior((TablePrior([0, 1, 0]), "gaussian")).table(levels, 3), "must allow the same levels"),
        (lambda: MixturePrior.switched(leak=0.0), "leak must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            build()


@pytest.mark.parametrize("components", [None, "gaussian", 3, GaussianPrior()], ids=repr)
def test_components_are_a_sequence(components):
    with pytest.raises(TypeError, match="components must be a sequence of priors, got"):
        MixturePrior(components)
