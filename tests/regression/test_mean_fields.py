"""Many models at once: each is what its own fit gives."""

import numpy as np
import pytest

from pydirect import GaussianPrior, GaussianStatistics, LaplacePrior, _core, evenly_spaced_levels, fit_mean_field
from pydirect.regression import MeanFieldRegression, fit_mean_fields
from pydirect.regression import mean_fields as many
from pydirect.regression.lanes import Batch

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")

LEVELS = evenly_spaced_levels(9, 3.0)
NOISE = np.geomspace(0.01, 1.0, 7)


def make_statistics(n=120, b=20, n_outputs=20, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((n, b))
    return GaussianStatistics.from_arrays(
        phi, phi @ rng.standard_normal((b, n_outputs)) + 0.3 * rng.standard_normal((n, n_outputs))
    )


def single(model, seed=0):
    return fit_mean_field(
        model.statistics,
        model.levels,
        model.log_prior,
        model.noise.levels,
        model.noise.log_prior,
        random_state=seed,
        n_threads=1,
    )


def assert_same(got, expected, tolerance=1e-6):
    assert got.elbo == pytest.approx(expected.elbo, rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(got.mean, expected.mean, atol=1e-3)
    np.testing.assert_allclose(got.noise.q, expected.noise.q, atol=1e-4)
    assert got.converged == expected.converged


def of_targets(statistics, n_models, **options):
    arguments = {"levels": LEVELS, "log_prior": GaussianPrior().log_mass(LEVELS), "noise_levels": NOISE} | options
    return [MeanFieldRegression.of(statistics.target(k), **arguments) for k in range(n_models)]


@pytest.mark.parametrize("n_models", [1, 3, 5, 16, 17])
def test_many_targets_are_what_single_fits_give(n_models):
    models = of_targets(make_statistics(), n_models)
    for posterior, model in zip(fit_mean_fields(models), models, strict=True):
        assert_same(posterior, single(model))
        assert posterior.elbo_trace[-1] == posterior.elbo
        assert len(posterior.elbo_trace) == posterior.n_iter


def test_levels_priors_noise_and_seeds_may_differ(shared_always):
    statistics = make_statistics(n=200, b=8)
    first = statistics.target(0)
    per_weight = LEVELS * np.linspace(0.8, 1.2, 8)[:, None]
    models = [
        MeanFieldRegression.of(first, LEVELS, GaussianPrior().log_mass(LEVELS), NOISE),
        MeanFieldRegression.of(statistics.target(3), LEVELS, LaplacePrior().log_mass(LEVELS), NOISE),
        MeanFieldRegression.of(statistics.target(1), per_weight, GaussianPrior().log_mass(LEVELS), NOISE),
        MeanFieldRegression.of(first, 1.3 * LEVELS, GaussianPrior().log_mass(LEVELS), [0.1]),
        MeanFieldRegression.of(
            first, evenly_spaced_levels(5), GaussianPrior().log_mass(evenly_spaced_levels(5)), [0.05, 0.2]
        ),
        MeanFieldRegression.of(first, LEVELS, GaussianPrior().log_mass(LEVELS), [0.3, 0.5], np.log([0.9, 0.1])),
    ]
    found = fit_mean_fields(models, random_state=range(6))
    for k, (posterior, model) in enumerate(zip(found, models, strict=True)):
        alone = single(model, k)
        # Shared factorisations may lead to another local optimum: a stationary point all the same.
        assert posterior.converged
        assert posterior.elbo > alone.elbo - 0.02 * abs(alone.elbo)
        assert model.elbo(posterior.q, posterior.noise.q) == pytest.approx(posterior.elbo, rel=1e-9)


def test_noise_levels_give_the_same_posterior_where_it_is_unique(shared_always):
    statistics = make_statistics(n=400, b=6).target(0)
    fine = evenly_spaced_levels(61, 4.0)
    models = [
        MeanFieldRegression.of(statistics, fine, GaussianPrior().log_mass(fine), [s]) for s in np.geomspace(4, 60, 7)
    ]
    for posterior, model in zip(fit_mean_fields(models), models, strict=True):
        assert_same(posterior, single(model))


def test_large_problems_take_the_single_precision_road_and_agree():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((500, 4))
    frequencies = rng.standard_normal((4, 160))
    phi = np.hstack([np.cos(x @ frequencies), np.sin(x @ frequencies)]) / 12
    y = np.sin(x[:, :1] * np.linspace(0.5, 2, 6)) + 0.2 * rng.standard_normal((500, 6))
    statistics = GaussianStatistics.from_arrays(phi, y)
    assert statistics.n_weights > 300
    models = of_targets(statistics, 6)
    for posterior, model in zip(fit_mean_fields(models), models, strict=True):
        alone = single(model)
        assert posterior.elbo == pytest.approx(alone.elbo, rel=1e-3)
        assert model.elbo(posterior.q, posterior.noise.q) == pytest.approx(posterior.elbo, rel=1e-9)


def test_models_of_several_matrices_in_one_call():
    both = [make_statistics(seed=1), make_statistics(b=15, seed=2)]
    models = [m for pair in zip(*(of_targets(s, 6) for s in both), strict=True) for m in pair]
    for posterior, model in zip(fit_mean_fields(models), models, strict=True):
        assert_same(posterior, single(model))


def test_bits_are_the_same_for_any_number_of_threads():
    models = of_targets(make_statistics(b=100, n=300), 20)  # more rows of A than a chunk has
    one, two = (fit_mean_fields(models, n_threads=n, max_iter=20) for n in (1, 3))
    for a, b in zip(one, two, strict=True):
        assert a.q.tobytes() == b.q.tobytes() and a.elbo == b.elbo


def test_bits_are_the_same_at_every_instruction_set(at_every_level):
    models = of_targets(make_statistics(b=30), 10)
    at_every_level(lambda: tuple(a for p in fit_mean_fields(models, n_threads=1) for a in (p.q, p.elbo)))


def test_products_of_lanes_at_every_level(at_every_level):
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((133, 133)), rng.standard_normal((133, 48))
    exact = at_every_level(lambda: _core.multiply_lanes(a, x, 2))
    np.testing.assert_allclose(exact, a @ x, atol=1e-12)
    narrow = at_every_level(lambda: _core.multiply_lanes(a.astype(np.float32), x.astype(np.float32), 2))
    np.testing.assert_allclose(narrow, a @ x, atol=1e-4)


def test_a_sweep_moves_each_weight_to_its_maximiser_given_the_others(at_every_level):
    """One pass against the formula of Theorem 1's fixed point, weight by weight."""
    statistics = make_statistics(b=70, n=200, n_outputs=16, seed=3)
    a, c = statistics.A, statistics.c
    tau = np.linspace(1.0, 10.0, 16)
    log_prior = GaussianPrior().log_mass(LEVELS)

    def swept():
        tables = [np.ascontiguousarray(np.broadcast_to(t[None, :, None], (1, 9, 16))) for t in (LEVELS, log_prior)]
        problem = _core.LaneProblem(
            a.astype(np.float32), a.diagonal().copy(), tables[0], tables[1], np.ones((70, 16)), 1
        )
        state = _core.LaneState(problem)
        state.eta[...] = state.kappa[...] = 0.0
        problem.tilt(state)
        residual = c - a @ state.mean
        moved = problem.sweep(state, residual, np.zeros((70, 16), np.float32), tau, np.full(16, 1e-9))
        return state.mean.copy(), moved

    mean, moved = at_every_level(swept)
    s = np.zeros((70, 16)) + np.exp(log_prior) @ LEVELS
    for j in range(70):
        eta = tau * (c[j] - a[j] @ s + a[j, j] * s[j])
        logits = log_prior[:, None] + eta * LEVELS[:, None] - 0.5 * tau * a[j, j] * LEVELS[:, None] ** 2
        q = np.exp(logits - logits.max(axis=0))
        s[j] = LEVELS @ q / q.sum(axis=0)
    np.testing.assert_allclose(mean, s, atol=2e-3)
    assert np.median(np.abs(mean - s)) < 1e-5
    assert (moved == 70).all()


def test_one_iteration_is_not_converged_and_flags_are_each_models_own():
    models = of_targets(make_statistics(b=60), 6)
    assert not any(p.converged for p in fit_mean_fields(models, max_iter=1))
    assert all(p.converged for p in fit_mean_fields(models))


def test_interrupted_fits_are_flagged_and_usable(monkeypatch):
    def interrupt(self, lanes):
        raise KeyboardInterrupt

    monkeypatch.setattr(many._Run, "newton", interrupt)
    models = of_targets(make_statistics(), 6) + of_targets(make_statistics(seed=5), 6)
    found = fit_mean_fields(models)
    assert all(p.interrupted and not p.converged for p in found)
    for posterior, model in zip(found, models, strict=True):
        assert model.elbo(posterior.q, posterior.noise.q) == pytest.approx(posterior.elbo, rel=1e-9)


@pytest.mark.parametrize("n_calls", [1, 2, 4])
@pytest.mark.parametrize("name", ["product", "tilt"])
def test_an_interrupted_step_of_newton_is_taken_back(monkeypatch, name, n_calls):
    """Posteriors are then the ones accepted last, and their ELBOs their own."""
    rng = np.random.default_rng(1)
    phi = rng.standard_normal((150, 40)) @ (rng.standard_normal((40, 40)) * np.geomspace(1, 0.05, 40)[:, None])
    y = phi @ rng.standard_normal((40, 6)) + 0.3 * rng.standard_normal((150, 6))
    levels = evenly_spaced_levels(41, 6.0)
    options = {
        "levels": levels,
        "log_prior": GaussianPrior().log_mass(levels),
        "noise_levels": np.geomspace(1e-4, 1, 5),
    }
    models = of_targets(GaussianStatistics.from_arrays(phi, y / y.std(axis=0)), 6, **options)
    calls, accepted = iter(range(1, 1000)), []
    climb, newton, take, product = Batch.climb, many._Run.newton, Batch.take, Batch.product

    def interrupted(original):
        def call(*arguments):
            if accepted and next(calls) == n_calls:
                raise KeyboardInterrupt
            return original(*arguments)

        return call

    class Problem:
        def __init__(self, problem):
            self.problem, self.tilt = problem, interrupted(problem.tilt)

    def begun(self, lanes):
        accepted.append(self.batch.value(self.batch.squared_error()))
        newton(self, lanes)

    def climbed(self, *arguments):
        accepted.append(climb(self, *arguments))
        return accepted[-1]

    def taken(self, lanes):
        part = take(self, lanes)
        part.problem = Problem(part.problem) if accepted else part.problem
        return part

    monkeypatch.setattr(many._Run, "newton", begun)
    monkeypatch.setattr(Batch, "climb", climbed)
    if name == "tilt":
        monkeypatch.setattr(Batch, "take", taken)
    else:
        monkeypatch.setattr(Batch, "product", interrupted(product))
    found = fit_mean_fields(models)
    for k, (posterior, model) in enumerate(zip(found, models, strict=True)):
        assert posterior.interrupted
        assert posterior.elbo >= accepted[-1][k] - 1e-6
        assert model.elbo(posterior.q, posterior.noise.q) == pytest.approx(posterior.elbo, rel=1e-9)


def test_bad_arguments_are_named():
    models = of_targets(make_statistics(), 2)
    with pytest.raises(TypeError, match=r"models\[1\]"):
        fit_mean_fields([models[0], 3])
    with pytest.raises(ValueError, match="random_state must be one number or one per model, 2, got 3"):
        fit_mean_fields(models, random_state=[1, 2, 3])
    with pytest.raises(ValueError, match="max_iter"):
        fit_mean_fields(models, max_iter=0)
    assert fit_mean_fields([]) == []
    statistics = make_statistics(n_outputs=1)
    with pytest.raises(TypeError, match="a list of MeanFieldRegression, got one"):
        fit_mean_fields(MeanFieldRegression.of(statistics, LEVELS, np.zeros(LEVELS.size), NOISE))


def test_small_models_of_unlike_ridges_are_fitted_one_by_one(runs):
    statistics = make_statistics(n=60, b=6, n_outputs=6)
    models = [
        MeanFieldRegression.of(statistics.target(0), LEVELS, GaussianPrior().log_mass(LEVELS), [s]) for s in NOISE
    ]
    fit_mean_fields(models)
    assert runs == []
    fit_mean_fields(of_targets(statistics, 6))
    assert runs == [6]
