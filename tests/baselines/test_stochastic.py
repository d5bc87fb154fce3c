"""Stochastic gradients of the ELBO: unbiased where they should be, biased as they must be, and climbed from seeds."""

import numpy as np
import pytest
from scipy.special import softmax

from pydirect import fit_mean_field
from pydirect.baselines import (
    Concrete,
    Exact,
    GaussianRegression,
    Reinforce,
    Reparameterization,
    StochasticELBO,
    fit_stochastic,
)
from pydirect.testing import enumerate_elbo, enumerate_factorized
from tests.helpers.oracles import finite_difference_gradient, monte_carlo_mean

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")

ESTIMATORS = {
    "reinforce": Reinforce(n_samples=5, control="none"),
    "moving average": Reinforce(n_samples=5, control="moving_average"),
    "leave one out": Reinforce(n_samples=5, control="leave_one_out"),
    "reparameterisation": Reparameterization(n_samples=5),
}


def model_for(estimator, problem):
    if isinstance(estimator, Reparameterization):
        return GaussianRegression.of(problem.statistics, 1.5, problem.noise_levels)
    return problem.model


def somewhere(bound, seed=0):
    """A point away from the prior."""
    return bound.start + 0.5 * np.random.default_rng(seed).standard_normal(bound.start.size)


def repeated(bound, theta, n=800, seed=1, progress=0.0):
    rng = np.random.default_rng(seed)
    return np.stack([bound.gradient(theta, rng, progress) for _ in range(n)])


def log_density(x, mean, variance):
    return -0.5 * (np.log(2 * np.pi * variance) + (x - mean) ** 2 / variance)


# Exact bounds


@pytest.mark.parametrize("per_weight", [False, True])
def test_the_discrete_bound_is_the_elbo_by_enumeration(make_problem, per_weight):
    problem = make_problem(per_weight=per_weight)
    bound = StochasticELBO(problem.model, Exact())
    theta = somewhere(bound)
    q, q_noise = softmax(theta[:12].reshape(4, 3), axis=1), softmax(theta[12:])
    expected = enumerate_elbo(*problem.oracle_arguments, q, q_noise, problem.log_noise_prior)
    assert bound.elbo(theta) == pytest.approx(expected, rel=1e-12)
    posterior = bound.posterior(theta)
    np.testing.assert_allclose(posterior.q, q, rtol=1e-12)
    assert posterior.elbo == bound.elbo(theta) == pytest.approx(problem.model.elbo(q, q_noise), rel=1e-12)


def test_the_continuous_bound_is_the_mean_of_its_integrand(make_problem):
    problem = make_problem(b=3)
    bound = StochasticELBO(GaussianRegression.of(problem.statistics, 1.5, problem.noise_levels), Exact())
    theta, rng = somewhere(bound), np.random.default_rng(0)
    posterior = bound.posterior(theta)
    w = posterior.mean + posterior.std * rng.standard_normal((100_000, 3))
    k = rng.choice(problem.noise_levels.size, len(w), p=posterior.noise.q)
    noise = problem.noise_levels[k]
    integrand = log_density(problem.y, w @ problem.phi.T, noise[:, None]).sum(axis=1)
    integrand += (log_density(w, 0.0, 1.5) - log_density(w, posterior.mean, posterior.std**2)).sum(axis=1)
    integrand += problem.log_noise_prior[k] - np.log(posterior.noise.q[k])
    mean, error = monte_carlo_mean(integrand)
    assert abs(mean - bound.elbo(theta)) < 4.5 * error


@pytest.mark.parametrize("estimator", [Reinforce(), Reparameterization()], ids=["discrete", "continuous"])
def test_exact_gradients_agree_with_finite_differences(make_problem, estimator):
    problem = make_problem(per_weight=True)
    bound = StochasticELBO(model_for(estimator, problem), estimator)
    theta = somewhere(bound)
    exact = bound.exact_gradient(theta)
    np.testing.assert_allclose(exact, finite_difference_gradient(bound.elbo, theta), rtol=1e-6, atol=1e-6)
    following = StochasticELBO(bound.model, Exact())
    np.testing.assert_array_equal(following.gradient(theta, np.random.default_rng(0)), exact)
    assert not following.gradient_variance(theta, np.random.default_rng(0), 3).any()


def test_the_exact_gradient_is_that_of_the_compiled_solver(make_problem):
    problem = make_problem()
    bound = StochasticELBO(problem.model, Exact())
    theta = somewhere(bound)
    value, weights, noise = problem.model.solver(1).elbo_and_gradient(3, theta[:12].reshape(4, 3), theta[12:].copy())
    assert bound.elbo(theta) == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(
        bound.exact_gradient(theta), np.concatenate([weights.ravel(), noise]), rtol=1e-9, atol=1e-9
    )


# Estimates


@pytest.mark.parametrize("data", ["statistics", "rows", "batches"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_gradients_are_unbiased(make_problem, name, data):
    problem = make_problem(per_weight=True)
    rows = None if data == "statistics" else (problem.phi, problem.y)
    estimator = ESTIMATORS[name]
    bound = StochasticELBO(model_for(estimator, problem), estimator, rows, 4 if data == "batches" else None)
    theta = somewhere(bound)
    mean, error = monte_carlo_mean(repeated(bound, theta))
    assert (np.abs(mean - bound.exact_gradient(theta)) <= 4.5 * error + 1e-9).all()
    assert (error > 0).any()


def relaxed_elbo(bound, problem, theta, temperature, gumbel):
    """ELBO whose weights are relaxed, by definition, for given Gumbel noise; (n_draws,)."""
    b, m = problem.phi.shape[1], problem.levels.shape[-1]
    logits = theta[: b * m].reshape(b, m)
    w = (softmax((logits + gumbel) / temperature, axis=2) * problem.levels).sum(axis=2)
    squared = np.square(problem.y - w @ problem.phi.T).sum(axis=1)
    q_noise = softmax(theta[b * m :])
    exact = problem.model.expected_squared_error(softmax(logits, axis=1))
    return bound.elbo(theta) + 0.5 * (q_noise @ (1 / problem.noise_levels)) * (exact - squared)


@pytest.mark.parametrize("data", ["statistics", "batches"])
def test_concrete_is_unbiased_for_its_own_relaxed_bound(make_problem, data):
    problem = make_problem(per_weight=True)
    rows = (problem.phi, problem.y)
    batched = {"rows": rows, "batch_size": 4} if data == "batches" else {}
    bound = StochasticELBO(problem.model, Concrete(n_samples=5, temperature=0.7), **batched)
    theta = somewhere(bound)
    rng = np.random.default_rng(2)
    gumbel = rng.gumbel(size=(800, 4, 3))
    # The same noise at both ends of a difference: as many unbiased values of the gradient as draws.
    h, along = 1e-4, np.eye(theta.size)
    ends = [[relaxed_elbo(bound, problem, theta + s * h * e, 0.7, gumbel) for e in along] for s in (1, -1)]
    expected, its_error = monte_carlo_mean(((np.array(ends[0]) - np.array(ends[1])) / (2 * h)).T)
    mean, error = monte_carlo_mean(repeated(bound, theta))
    assert (np.abs(mean - expected) <= 4.5 * np.hypot(error, its_error) + 1e-6).all()


def test_concrete_agrees_with_differences_for_fixed_noise(make_problem):
    problem = make_problem()
    bound = StochasticELBO(problem.model, Concrete(n_samples=3, temperature=0.7))
    theta = somewhere(bound)
    gumbel = np.random.default_rng(5).gumbel(size=(3, 4, 3))
    got = bound.gradient(theta, np.random.default_rng(5))
    expected = finite_difference_gradient(lambda x: relaxed_elbo(bound, problem, x, 0.7, gumbel).mean(), theta)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_reinforce_agrees_with_enumeration_of_its_draws(make_problem):
    problem = make_problem(b=2, n_noise=1)
    bound = StochasticELBO(problem.model, Reinforce(n_samples=1, control="none"))
    theta = somewhere(bound)
    q = softmax(theta[:6].reshape(2, 3), axis=1)
    listed = enumerate_factorized(problem.levels, q, problem.noise_levels, [1.0])
    errors = np.square(problem.y - listed.weights @ problem.phi.T).sum(axis=1)
    score = (listed.weights[:, :, None] == problem.levels) - q
    second = np.einsum("h,h,hjk->jk", listed.weight_probability, errors**2, score**2)
    first = np.einsum("h,h,hjk->jk", listed.weight_probability, errors, score)
    exact = 0.25 * (second - first**2) / problem.noise_levels[0] ** 2
    estimates = repeated(bound, theta, 1500)[:, :6]
    squares = np.square(estimates - estimates.mean(axis=0))
    mean, error = monte_carlo_mean(squares)
    assert (np.abs(mean - exact.ravel()) < 4.5 * error).all()
    np.testing.assert_allclose(bound.gradient_variance(theta, np.random.default_rng(1), 1500)[:6], mean, rtol=1e-3)


def test_control_variates_lower_the_variance_and_direct_has_none(make_problem):
    problem = make_problem(n=60, b=6)
    theta = somewhere(StochasticELBO(problem.model, Exact()))

    def variance(estimator):
        bound = StochasticELBO(problem.model, estimator)
        return bound.gradient_variance(theta, np.random.default_rng(3), 300).sum()

    plain, average, others = (
        variance(Reinforce(n_samples=10, control=c)) for c in ("none", "moving_average", "leave_one_out")
    )
    assert max(average, others) < 0.5 * plain
    assert variance(Reinforce(n_samples=100, control="none")) == pytest.approx(plain / 10, rel=0.2)
    assert variance(Concrete(n_samples=10)) < others
    assert variance(Exact()) == 0.0


# Fits


FITTED = {
    "exact": Exact(),
    "leave one out": Reinforce(n_samples=50),
    "moving average": Reinforce(n_samples=50, control="moving_average"),
    "concrete": Concrete(n_samples=20, temperature=0.5, final_temperature=0.1),
}


@pytest.mark.parametrize("name", FITTED)
def test_baselines_reach_the_bound_of_direct(make_problem, name):
    problem = make_problem(n=40, reach=1.0)
    best = fit_mean_field(*problem.fit_arguments).elbo
    fit = fit_stochastic(problem.model, FITTED[name], n_steps=400, step=1.0, n_checks=20)
    assert best - 0.5 < fit.posterior.elbo <= best + 1e-6
    assert fit.posterior.elbo == max(fit.elbo)
    assert fit.posterior.converged
    assert not fit_stochastic(problem.model, FITTED[name], n_steps=20, step=0.1).posterior.converged


@pytest.mark.parametrize("data", ["statistics", "batches"])
def test_reparameterisation_reaches_the_mean_field_of_the_gaussian_posterior(make_problem, data):
    problem = make_problem(n=40, n_noise=1)
    statistics, noise = problem.statistics, problem.noise_levels[0]
    precision = statistics.A / noise + np.eye(4) / 1.5
    mean, std = np.linalg.solve(precision, statistics.c[:, 0] / noise), 1 / np.sqrt(precision.diagonal())
    model = GaussianRegression.of(statistics, 1.5, problem.noise_levels)
    rows = {"rows": (problem.phi, problem.y), "batch_size": 30} if data == "batches" else {}
    fit = fit_stochastic(model, Reparameterization(n_samples=30), n_steps=1500, step=0.2, **rows)
    tolerance = 0.5 if data == "batches" else 0.15
    assert (np.abs(fit.posterior.mean - mean) < tolerance * std).all()
    np.testing.assert_allclose(fit.posterior.std, std, rtol=tolerance)
    best = StochasticELBO(model, Exact()).elbo(np.concatenate([mean, np.log(std), [0.0]]))
    assert best - tolerance < fit.posterior.elbo <= best
    got = fit.posterior.latent_moments(problem.phi)
    np.testing.assert_allclose(got[1], problem.phi**2 @ fit.posterior.std**2)


def test_an_interruption_leaves_the_best_so_far(make_problem, monkeypatch):
    calls = []

    def gradient(self, parameters, rng, progress):
        calls.append(progress)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return self.exact_gradient(parameters)

    monkeypatch.setattr(StochasticELBO, "gradient", gradient)
    fit = fit_stochastic(make_problem().model, Reinforce(), n_steps=20, n_checks=4)
    assert fit.posterior.interrupted
    assert not fit.posterior.converged
    assert fit.posterior.elbo == max(fit.elbo[1:])


# Refusals


def continuous(problem, noise_levels=(1.0,), **options):
    return GaussianRegression.of(problem.statistics, 1.0, noise_levels, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: Reinforce(n_samples=1), "n_samples must be at least 2"),
        (lambda p: Reinforce(control="no"), "control must be one of"),
        (lambda p: Concrete(temperature=0.0), "temperature must be above 0"),
        (lambda p: Concrete(final_temperature=-1.0), "final_temperature must be above 0"),
        (lambda p: Reparameterization(n_samples=0), "n_samples must be at least 1"),
        (lambda p: GaussianRegression.of(p.statistics, 0.0, [1.0]), "prior_variance must be above 0"),
        (lambda p: continuous(p, log_noise_prior=[0.0, 0.0]), "log_noise_prior must have shape"),
        (lambda p: continuous(p, [-1.0]), "noise_levels must be positive"),
        (lambda p: GaussianRegression.of(p.statistics.target(1), 1.0, [1.0]), "output must be from 0 to 0"),
        (lambda p: continuous(p, [1.0, 2.0], log_noise_prior=[0.0, -np.inf]), "log_noise_prior must be finite"),
        (lambda p: StochasticELBO(continuous(p), Reinforce()), "Reinforce must be given a model of discrete weights"),
        (
            lambda p: StochasticELBO(p.model, Reparameterization()),
            "Repara.* must be given a model of continuous weights",
        ),
        (lambda p: StochasticELBO(p.model, "reinforce"), "estimator must be a Exact or Reinforce"),
        (lambda p: fit_stochastic(p.model, "reinforce"), "estimator must be a Exact or Reinforce"),
        (
            lambda p: fit_stochastic(p.statistics, Reinforce()),
            "model must be a MeanFieldRegression or GaussianRegression",
        ),
        (lambda p: GaussianRegression.of(None, 1.0, [1.0]), "statistics must be a TargetStatistics or Gauss"),
        (lambda p: StochasticELBO(p.model, Reinforce(), p.phi), r"rows must be a tuple \(phi, y\)"),
        (lambda p: StochasticELBO(p.model, Reinforce(), (p.phi,)), r"rows must be a tuple \(phi, y\)"),
        (lambda p: StochasticELBO(p.model, Reinforce(), batch_size=3), "batch_size must be None without rows"),
        (lambda p: StochasticELBO(p.model, Reinforce(), (p.phi[:5], p.y[:5])), "rows must be those of the statistics"),
        (lambda p: StochasticELBO(p.model, Reinforce(), (p.phi, p.y), 13), "batch_size must be at most"),
        (lambda p: StochasticELBO(p.model, Reinforce(), (p.phi, p.y + 1)), "statistics, with yty"),
        (lambda p: StochasticELBO(p.model, Reinforce()).elbo([0.0] * 7), r"parameters must have shape \(15,\)"),
        (lambda p: StochasticELBO(p.model, Reinforce()).elbo([np.nan] * 15), "parameters must be finite"),
        (lambda p: StochasticELBO(p.model, Reinforce()).exact_gradient([0.0]), "parameters must have shape"),
        (lambda p: fit_stochastic(p.model, Reinforce(), start=[0.0]), "start must have shape"),
        (lambda p: fit_stochastic(p.model, Reinforce(), step=0.0), "step must be above 0"),
    ],
)
def test_wrong_arguments_are_refused(make_problem, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(make_problem())


def test_forbidden_levels_are_refused(make_problem):
    problem = make_problem()
    problem.log_prior = np.array([-np.inf, 0.0, 0.0])
    with pytest.raises(ValueError, match="log_prior and log_noise_prior must be finite"):
        StochasticELBO(problem.model, Reinforce())
