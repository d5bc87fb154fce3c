from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logsumexp

from pydirect import _core
from pydirect.direct.mean_field import MeanFieldRegression, fit_mean_field, fit_regression
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.noise import NoiseGridWarning, NoisePosterior
from pydirect.distributions.priors import GaussianPrior, TablePrior
from pydirect.optimize.gradient import lbfgs_on_logits
from pydirect.optimize.quadratic import OPTIMIZERS
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.testing import enumerate_elbo, enumerate_log_evidence
from tests.helpers.oracles import finite_difference_gradient

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


def fixed_point(model, posterior):
    """What Theorem 1's stationarity asks of q_j and q_σ, given the others."""
    a, c = model.statistics.A, model.statistics.c
    s, diagonal = posterior.mean, model.statistics.A.diagonal()
    w = np.broadcast_to(model.levels, posterior.q.shape)
    residual = c - a @ s + diagonal * s
    tau = posterior.noise.precision
    logits = model.log_prior + tau * (residual[:, None] * w - 0.5 * diagonal[:, None] * w**2)
    error = model.expected_squared_error(posterior.q)
    noise = model.noise.log_prior - 0.5 * model.statistics.n_samples * np.log(model.noise.levels)
    noise = noise - 0.5 * error / model.noise.levels
    return np.exp(logits - logsumexp(logits, axis=1, keepdims=True)), np.exp(noise - logsumexp(noise))


def random_state(solver, model, seed=0):
    """Put a solver at a random member of its family."""
    rng = np.random.default_rng(seed)
    b = model.statistics.n_weights
    solver.set_noise(rng.dirichlet(np.ones(model.noise.n_levels)))
    solver.start_from_naturals(3 * rng.standard_normal(b), rng.random(b))
    return solver


STAGES = ("coordinate_ascent", "newton")


class Watched:
    """A solver that reports every stage to a function, which runs it."""

    def __init__(self, solver, around):
        self.solver, self.around = solver, around

    def __getattr__(self, name):
        method = getattr(self.solver, name)
        if name in STAGES:
            return lambda *arguments, **options: self.around(self.solver, lambda: method(*arguments, **options))
        return method


@pytest.fixture
def watch_stages(monkeypatch):
    """Give all models watched solvers."""

    def watch(around):
        make = MeanFieldRegression.solver
        monkeypatch.setattr(MeanFieldRegression, "solver", lambda *a, **k: Watched(make(*a, **k), around))

    return watch


# The compiled solver against the model


@pytest.mark.parametrize("n_levels", [2, 8, 9, 17, 33])
@pytest.mark.parametrize("per_weight", [False, True])
def test_solver_state_is_the_tilted_family_with_its_moments(isa_level, make_problem, n_levels, per_weight):
    model = make_problem(b=5, n_levels=n_levels, per_weight=per_weight).model
    solver = random_state(model.solver(1), model)
    w = np.broadcast_to(model.levels, (5, n_levels))
    logits = model.log_prior + solver.eta[:, None] * w - solver.kappa[:, None] * w**2
    q = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    got = solver.probabilities()
    np.testing.assert_allclose(got[:, :n_levels], q, rtol=1e-12)
    np.testing.assert_array_equal(got[:, n_levels:], 0.0)
    np.testing.assert_allclose(solver.mean, (q * w).sum(axis=1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(solver.second_moment, (q * w**2).sum(axis=1), rtol=1e-12)
    assert solver.tau == pytest.approx(solver.q_noise @ (1 / model.noise.levels))


@pytest.mark.parametrize(
    "shape", [{}, {"n_levels": 17}, {"per_weight": True}, {"n": 3, "b": 6}, {"n_noise": 1}], ids=str
)
def test_solver_elbo_is_the_models_and_the_enumerated_one(isa_level, make_problem, shape):
    problem = make_problem(**shape)
    model = problem.model
    solver = random_state(model.solver(1), model)
    q = np.ascontiguousarray(solver.probabilities()[:, : model.levels.shape[1]])
    assert solver.elbo() == pytest.approx(model.elbo(q, solver.q_noise), rel=1e-11)
    if q.size < 60:
        assert solver.elbo() == pytest.approx(enumerate_elbo(*problem.oracle_arguments, q, solver.q_noise), rel=1e-10)


@pytest.mark.parametrize("shape", [{}, {"n_levels": 9, "per_weight": True}, {"b": 1}, {"n": 3, "b": 6}], ids=str)
def test_elbo_gradient_in_the_logits_agrees_with_finite_differences(isa_level, make_problem, shape):
    model = make_problem(**shape).model
    rng = np.random.default_rng(1)
    b, m = model.statistics.n_weights, model.levels.shape[1]
    logits, noise_logits = rng.standard_normal((b, m)), rng.standard_normal(3)

    def elbo(theta, noise_theta):
        q = np.exp(theta - logsumexp(theta, axis=1, keepdims=True))
        return model.elbo(q, np.exp(noise_theta - logsumexp(noise_theta)))

    value, gradient, noise_gradient = model.solver(1).elbo_and_gradient(m, logits, noise_logits)
    assert value == pytest.approx(elbo(logits, noise_logits), rel=1e-12)
    scale = np.abs(gradient).max()
    expected = finite_difference_gradient(lambda t: elbo(t, noise_logits), logits)
    np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-8 * scale)
    expected = finite_difference_gradient(lambda t: elbo(logits, t), noise_logits)
    np.testing.assert_allclose(noise_gradient, expected, rtol=1e-7, atol=1e-8 * np.abs(noise_gradient).max())


def test_a_probability_that_underflows_does_not_spoil_the_gradient(make_problem):
    problem = make_problem()
    logits = np.tile([0.0, -2000.0, 3.0], (4, 1))
    noise_logits = np.array([0.0, -3000.0, 1.0])
    value, gradient, noise_gradient = problem.model.solver(1).elbo_and_gradient(3, logits, noise_logits)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert np.isfinite(noise_gradient).all()
    np.testing.assert_array_equal(gradient[:, 1], 0.0)


# Ascent


@pytest.mark.parametrize("shape", [{}, {"n_levels": 17, "reach": 3.0}, {"n": 3, "b": 8}, {"n_noise": 1}], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_a_coordinate_sweep_never_lowers_the_elbo(make_problem, shape, seed):
    model = make_problem(**shape, seed=seed).model
    solver = random_state(model.solver(1), model, seed)
    previous = solver.elbo()
    for _ in range(12):
        solver.coordinate_ascent(1, 0.0, 0.0, True)
        current = solver.elbo()
        assert current >= previous - 1e-5 * (1 + abs(previous))  # sweeps run in single precision
        previous = current


def test_a_weight_whose_mean_stays_widens_or_narrows():
    phi = np.tile([[1.0, 1.0], [1.0, -1.0]], (20, 1))
    y = np.full(40, 0.7)  # orthogonal to the second feature: its weight's mean is zero before and after
    levels = evenly_spaced_levels(7)
    model = MeanFieldRegression.of(
        GaussianStatistics.from_arrays(phi, y),
        levels[None],
        GaussianPrior().log_mass(levels)[None],
        np.array([0.1]),
        np.zeros(1),
    )
    fitted = fit_mean_field(model.statistics, levels, model.log_prior, [0.1])
    np.testing.assert_allclose(fitted.q, fixed_point(model, fitted)[0], atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("seed", range(4))
def test_every_optimizer_ends_between_its_start_and_the_evidence(make_problem, optimizer, seed):
    problem = make_problem(n=15, b=5, n_levels=5, seed=seed)
    fitted = fit_mean_field(*problem.fit_arguments, optimizer=optimizer)
    assert fitted.elbo <= enumerate_log_evidence(*problem.oracle_arguments) + 1e-9
    assert fitted.elbo_trace[-1] == fitted.elbo
    assert fitted.elbo >= fitted.elbo_trace[0] - 1e-4 * (1 + abs(fitted.elbo))
    prior = problem.model.elbo(np.tile(np.exp(problem.log_prior), (5, 1)), np.full(3, 1 / 3))
    assert fitted.elbo >= prior - 1e-6


@pytest.mark.parametrize("reach", [3.0, 100.0])
def test_no_stage_ends_below_its_start(make_problem, reach, watch_stages):
    """Reach 100 makes the levels coarse against the posterior."""
    elbos = []

    def around(solver, stage):
        before = solver.elbo()
        result = stage()
        elbos.append((before, solver.elbo()))
        return result

    watch_stages(around)
    for seed in range(6):
        problem = make_problem(n=40, b=12, n_levels=15, n_noise=9, reach=reach, seed=seed)
        fit_mean_field(*problem.fit_arguments)
    assert len(elbos) >= 6
    for before, after in elbos:
        assert after >= before - 1e-4 * (1 + abs(before))


def redundant_problem(seed, n_levels=15, noise=1e-4):
    """A smooth function of one input in 60 Fourier features, whose rank is about 20: far fewer than weights."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (100, 1))
    angles = x @ rng.standard_normal((1, 30))
    phi = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.sqrt(2 / 60)
    y = np.sin(3 * x[:, 0]) + x[:, 0] ** 2 / 2
    levels = evenly_spaced_levels(n_levels)
    return MeanFieldRegression.of(
        GaussianStatistics.from_arrays(phi, y - y.mean()),
        levels,
        GaussianPrior().log_mass(levels),
        np.atleast_1d(noise),
    )


def ascent_from(model, eta):
    """ELBO that coordinate ascent reaches from one state."""
    solver = model.solver(1)
    solver.set_noise(model.noise.middle())
    solver.start_from_naturals(eta, 0.5 * solver.tau * model.statistics.A.diagonal())
    solver.coordinate_ascent(1000, 1e-9, 1e-12, True)
    return solver.elbo()


@pytest.mark.parametrize("n_levels", [7, 15, 31])
def test_coarse_levels_of_redundant_features_are_rounded_to_well(n_levels):
    for seed in range(3):
        model = redundant_problem(seed, n_levels)
        fitted = fit_regression(model)
        a = model.statistics.A.diagonal() / model.noise.levels[0]
        rng = np.random.default_rng(seed)
        starts = [np.zeros(60), *(rng.standard_normal((5, 60)) * a)]
        assert fitted.converged
        assert fitted.elbo > max(ascent_from(model, start) for start in starts)


@pytest.mark.parametrize(("n_levels", "seed"), [(3, 2), (3, 4), (5, 0), (5, 4), (5, 11)])
def test_few_coarse_levels_of_redundant_features_are_never_worse_than_the_baseline(n_levels, seed):
    """Thirty features of rank three: an integer problem of many local optima, which rounding alone does not search."""
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((100, 3)) @ rng.standard_normal((3, 30))
    levels = evenly_spaced_levels(n_levels)
    statistics = GaussianStatistics.from_arrays(phi, np.sin(2 * phi[:, 0]) + phi[:, 1])
    problem = statistics, levels, GaussianPrior().log_mass(levels), [1e-4]
    baseline, fitted = fit_mean_field(*problem, optimizer="lbfgs"), fit_mean_field(*problem)
    assert fitted.converged
    assert fitted.elbo >= baseline.elbo - 1e-9 * abs(baseline.elbo)


@pytest.mark.parametrize("shape", [{}, {"n": 3, "b": 8}, {"n_levels": 15, "reach": 3.0}, {"n_noise": 1}], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_converged_means_that_no_single_update_helps(make_problem, shape, optimizer):
    for seed in range(4):
        model = make_problem(**shape, seed=seed).model
        fitted = fit_regression(model, optimizer=optimizer)
        left = model.rise_of_one_update(fitted.q, fitted.noise.q)
        assert fitted.converged or optimizer == "lbfgs"
        assert left <= 1e-6 * (1 + abs(fitted.elbo)) or not fitted.converged


def test_the_baseline_does_not_call_a_saturated_softmax_converged():
    model = redundant_problem(0)
    fitted = fit_regression(model, optimizer="lbfgs")
    assert model.rise_of_one_update(fitted.q, fitted.noise.q) > 1.0
    assert not fitted.converged


def test_the_rise_of_one_update_is_what_the_update_gains(make_problem):
    problem = make_problem(n=20, b=4, n_levels=5)
    model, (q, q_noise) = problem.model, problem.random_posterior()
    before = model.elbo(q, q_noise)
    best, best_noise = fixed_point(
        model, SimpleNamespace(q=q, mean=q @ problem.levels, noise=model.noise.posterior(q_noise))
    )
    gains = [model.elbo(np.where(np.arange(4)[:, None] == j, best, q), q_noise) - before for j in range(4)]
    gains.append(model.elbo(q, best_noise) - before)
    assert model.rise_of_one_update(q, q_noise) == pytest.approx(max(gains), rel=1e-9)


# Optimisers on a problem of ordinary size


# Problems out of the ordinary

ODD_SHAPES = [
    {"b": 1, "n_levels": 2, "n": 1},
    {"b": 2, "n_levels": 17},
    {"b": 9, "n": 2, "n_levels": 3},
    {"b": 1, "n_levels": 1},
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("change", ["none", "duplicated columns", "zero columns", "all zero", "zero targets"])
def test_degenerate_designs_leave_a_posterior_below_the_evidence(make_problem, optimizer, change):
    problem = make_problem(b=4, n=6)
    if change == "duplicated columns":
        problem.phi[:, 1] = problem.phi[:, 3]
    elif change == "zero columns":
        problem.phi[:, [0, 2]] = 0.0
    elif change == "all zero":
        problem.phi[:] = 0.0
    elif change == "zero targets":
        problem.y[:] = 0.0
    fitted = fit_mean_field(*problem.fit_arguments, optimizer=optimizer)
    np.testing.assert_allclose(fitted.q.sum(axis=1), 1.0)
    assert fitted.elbo <= enumerate_log_evidence(*problem.oracle_arguments) + 1e-9
    if change in ("zero columns", "all zero"):
        np.testing.assert_allclose(fitted.q[0], np.exp(problem.log_prior), atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
def test_the_smallest_problems_fit(make_problem, optimizer, shape):
    if shape["n_levels"] == 1:
        problem = make_problem(b=1)
        problem.levels, problem.log_prior = np.array([0.5]), np.zeros(1)
    else:
        problem = make_problem(**shape)
    fitted = fit_mean_field(*problem.fit_arguments, optimizer=optimizer)
    np.testing.assert_allclose(fitted.q.sum(axis=1), 1.0)
    expected = enumerate_elbo(*problem.oracle_arguments, fitted.q, fitted.noise.q)
    assert fitted.elbo == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_a_forbidden_level_keeps_probability_zero(make_problem):
    problem = make_problem(n_levels=5, n=20)
    mass = np.ones((4, 5))
    mass[0, 2] = mass[1, [0, 1]] = mass[3, [0, 1, 2, 3]] = 0.0
    problem.log_prior = TablePrior(mass).log_mass(np.tile(problem.levels, (4, 1)))
    fitted = fit_mean_field(*problem.fit_arguments)
    np.testing.assert_array_equal(fitted.q[mass == 0], 0.0)
    assert fitted.q[3, 4] == 1.0
    expected = enumerate_elbo(*problem.oracle_arguments, fitted.q, fitted.noise.q)
    assert fitted.elbo == pytest.approx(expected, rel=1e-10)


def test_a_forbidden_noise_level_keeps_probability_zero(make_problem):
    problem = make_problem(n_noise=5)
    problem.log_noise_prior[2] = -np.inf  # the middle, where the noise would start
    fitted = fit_mean_field(*problem.fit_arguments)
    assert fitted.noise.q[2] == 0.0
    assert np.isfinite(fitted.elbo)
    expected = enumerate_elbo(*problem.oracle_arguments, fitted.q, fitted.noise.q, problem.log_noise_prior)
    assert fitted.elbo == pytest.approx(expected, rel=1e-10)


# Warm start, interruption, limits


def test_a_warm_start_takes_up_where_the_old_fit_ended(make_problem):
    problem = make_problem(n=40, b=10, n_levels=9, n_noise=7)
    cold = fit_mean_field(*problem.fit_arguments)
    warm = fit_mean_field(*problem.fit_arguments, start=cold)
    assert warm.elbo >= cold.elbo - 1e-3
    one = fit_mean_field(*problem.fit_arguments, start=cold, max_iter=1)
    assert one.elbo >= cold.elbo - 0.1, "one iteration per stage from the old posterior is already there"


@pytest.mark.parametrize("n_completed", [0, 1, 2, 3])
def test_an_interrupted_fit_is_flagged_and_usable(make_problem, watch_stages, n_completed):
    problem, model = make_problem(n=30, b=6, n_levels=5), make_problem(n=30, b=6, n_levels=5).model
    begun = []

    def around(solver, stage):
        begun.append(solver)
        if len(begun) > n_completed:
            raise KeyboardInterrupt
        return stage()

    watch_stages(around)
    fitted = fit_mean_field(*problem.fit_arguments)
    assert fitted.interrupted == (len(begun) > n_completed)
    assert fitted.interrupted or n_completed > 0
    assert not (fitted.interrupted and fitted.converged)
    np.testing.assert_allclose(fitted.q.sum(axis=1), 1.0)
    assert fitted.elbo == pytest.approx(model.elbo(fitted.q, fitted.noise.q), rel=1e-11)
    assert fitted.elbo_trace[-1] == fitted.elbo


def test_an_interrupted_baseline_returns_its_best_point(make_problem):
    problem = make_problem(n=30, b=6, n_levels=5)
    model, evaluations = problem.model, []

    class Interrupted:
        def __init__(self):
            self.solver = model.solver(1)

        def elbo_and_gradient(self, *arguments):
            if len(evaluations) == 7:
                raise KeyboardInterrupt
            evaluations.append(self.solver.elbo_and_gradient(*arguments)[0])
            return self.solver.elbo_and_gradient(*arguments)

    start = np.tile(problem.log_prior, (6, 1))
    logits, noise_logits, outcome = lbfgs_on_logits(Interrupted(), 5, start, problem.log_noise_prior, 100)
    assert outcome.interrupted
    assert not outcome.converged
    assert outcome.n_iter == 7
    assert model.solver(1).elbo_and_gradient(5, logits, noise_logits)[0] == max(evaluations)


def test_max_iter_bounds_every_stage_and_is_reported(make_problem):
    problem = make_problem(n=40, b=10, n_levels=9, n_noise=7)
    cut = fit_mean_field(*problem.fit_arguments, max_iter=1)
    assert (cut.n_iter, cut.converged) == (3, False)  # one per stage
    full = fit_mean_field(*problem.fit_arguments)
    assert full.converged
    assert full.n_iter > 1
    assert full.elbo_trace.size == full.n_iter
    assert full.elbo_trace[-1] == full.elbo
    assert full.elbo >= cut.elbo - 1e-6


# Noise grid


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("grid", "edge"), [([1e-6, 1e-5, 1e-4], "upper"), ([10.0, 20.0, 50.0], "lower")])
def test_noise_at_the_edge_of_its_grid_warns_which_edge(make_problem, grid, edge):
    problem = make_problem(n=60, b=2)
    with pytest.warns(NoiseGridWarning, match=f"at the {edge} edge of its grid .*: widen noise_levels"):
        fit_mean_field(problem.statistics, problem.levels, problem.log_prior, grid)


def test_noise_posterior_knows_its_moments_and_edges():
    noise = NoisePosterior(np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.2, 0.6]))
    assert noise.variance == pytest.approx(3.0)
    assert noise.precision == pytest.approx(0.2 + 0.1 + 0.15)
    assert noise.at_edge() == "upper"
    assert NoisePosterior(noise.levels, noise.q[::-1]).at_edge() == "lower"
    assert NoisePosterior(noise.levels, np.array([0.3, 0.4, 0.3])).at_edge() is None
    assert NoisePosterior(np.array([2.0]), np.ones(1)).at_edge() is None


# Validation


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("levels", [[0.0, 1.0]] * 3, ValueError, r"levels must have shape \(4, n_levels\), got \(3, 2\)"),
        ("log_prior", [0.0, 0.0], ValueError, r"log_prior must have shape \(1, 3\), got \(1, 2\)"),
        ("log_prior", np.zeros((3, 3)), ValueError, r"log_prior must have shape \(4, 3\), got \(3, 3\)"),
        ("log_prior", [-np.inf] * 3, ValueError, "log_prior must .* at least one finite entry per weight"),
        ("noise_levels", [2.0, 1.0], ValueError, "noise_levels must be positive and ascending"),
        ("noise_levels", [], ValueError, "noise_levels must have shape"),
        ("log_noise_prior", [-np.inf] * 3, ValueError, "log_noise_prior must .* at least one finite entry"),
        ("optimizer", "adam", ValueError, "optimizer must be one of 'pipeline'.*got 'adam'"),
        ("max_iter", 0, ValueError, "max_iter must be at least 1"),
        ("n_threads", 0, ValueError, "n_threads must be at least 1"),
    ],
)
def test_a_wrong_argument_is_named(make_problem, name, value, error, message):
    names = ("statistics", "levels", "log_prior", "noise_levels", "log_noise_prior")
    arguments = dict(zip(names, make_problem().fit_arguments, strict=True))
    with pytest.raises(error, match=message):
        fit_mean_field(**{**arguments, name: value})


@pytest.mark.parametrize("name", ["log_prior", "log_noise_prior"])
def test_the_baseline_refuses_to_start_from_a_forbidden_level(make_problem, name):
    names = ("statistics", "levels", "log_prior", "noise_levels", "log_noise_prior")
    arguments = dict(zip(names, make_problem().fit_arguments, strict=True))
    arguments[name] = np.array([0.0, -np.inf, 0.0])
    with pytest.raises(ValueError, match=f"{name} must be finite for optimizer='lbfgs'"):
        fit_mean_field(**arguments, optimizer="lbfgs")


def test_a_matrix_that_is_not_positive_definite_is_said_to_be_so():
    broken = GaussianStatistics(np.ones((2, 1)), np.ones(1), 3.0, gram=np.array([[1.0, 5.0], [5.0, 1.0]]))
    with pytest.raises(np.linalg.LinAlgError, match="must be positive definite"):
        fit_mean_field(broken, [-1.0, 0.0, 1.0], np.zeros(3), [0.1])


def test_the_solver_keeps_its_arrays_alive(make_problem):
    model = make_problem(b=40, n=60).model
    solver = model.solver(1)
    solver.start_from_naturals(np.zeros(40), np.zeros(40))
    before = solver.elbo()
    del model
    np.random.default_rng(0).standard_normal((200, 200))  # would overwrite what was freed
    assert solver.elbo() == before
    assert solver.a.dtype == np.float32


def test_the_solver_refuses_levels_that_are_not_padded(make_problem):
    model = make_problem().model
    arguments = model.solver_arguments(np.eye(4, dtype=np.float32), model.log_prior, 1)
    with pytest.raises(ValueError, match="levels must be padded"):
        _core.MeanField(**{**arguments, "levels": model.levels, "log_prior": model.log_prior})
