"""Many models at once: each is what its own fit gives."""

import re
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneOut, ShuffleSplit

from pydirect import (
    DirectRegressor,
    DirectSearchCV,
    GaussianPrior,
    GaussianStatistics,
    LaplacePrior,
    RunningStatistics,
    _core,
    evenly_spaced_levels,
    fit_many,
    fit_mean_field,
)
from pydirect.estimators import _fitting
from pydirect.metrics import crps_scorer
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


@pytest.fixture
def shared_always(monkeypatch):
    """Small models of unlike ridges share a run too, as large ones do."""
    monkeypatch.setattr(many, "ANY_RIDGES", 0)


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


# ------------------------------------------------------------------------------------------------------- estimators


FIXED_FEATURES = RBFSampler(gamma=0.3, n_components=40, random_state=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((240, 3))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.2 * rng.standard_normal(240)


def test_fit_many_is_every_models_own_fit(data):
    x, y = data
    pair = np.c_[y, x[:, 1] ** 2]

    def models():
        return [
            DirectRegressor("linear"),
            DirectRegressor("linear", noise=0.3),
            DirectRegressor("linear", basis="raw", n_levels=7),
            DirectRegressor("polynomial", prior="laplace"),
            DirectRegressor(n_features=30),
            DirectRegressor(n_features=30, n_levels=9),
        ]

    weight = np.linspace(0.5, 2, len(x))
    targets = [y, pair[:, 1], pair, y, y, y]
    for got, expected, target in zip(fit_many(models(), x, targets, weight), models(), targets, strict=True):
        expected.fit(x, target, weight)
        np.testing.assert_allclose(got.predict(x), expected.predict(x), atol=1e-8)
        assert got.elbo_ == pytest.approx(expected.elbo_, rel=1e-9)
        assert got.converged_ == expected.converged_


def test_fit_many_takes_one_pass_for_shared_features(data, monkeypatch):

    calls = []
    original = _fitting.collect_statistics
    monkeypatch.setattr(_fitting, "collect_statistics", lambda *a, **k: calls.append(1) or original(*a, **k))
    fit_many([DirectRegressor("linear", n_levels=n) for n in (5, 7, 9)] + [DirectRegressor("polynomial")], *data)
    assert len(calls) == 2


@pytest.fixture
def runs(monkeypatch):
    """Numbers of models of the shared runs there were."""
    sizes, original = [], many._Run.__init__

    def init(self, models, *rest):
        sizes.append(len(models))
        original(self, models, *rest)

    monkeypatch.setattr(many._Run, "__init__", init)
    return sizes


def test_raw_estimators_share_their_sweeps(data, runs, shared_always):
    x, y = data
    targets = [np.sin(k * y) + x[:, 0] for k in np.linspace(0.2, 1, 6)]
    targets[2] = np.c_[targets[2], targets[3]]
    raw = {"features": "linear", "basis": "raw", "n_levels": 101}  # so fine that there is one optimum
    models = fit_many([DirectRegressor(**raw) for _ in targets], x, targets)
    assert runs == [7]
    for model, target in zip(models, targets, strict=True):
        expected = DirectRegressor(**raw).fit(x, target)
        assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-4)
        np.testing.assert_allclose(model.predict(x), expected.predict(x), atol=1e-2)
    noises = [{"noise": float(noise)} for noise in np.geomspace(0.1, 2, 8)]
    for model, noise in zip(fit_many([DirectRegressor(**raw, **n) for n in noises], x, y), noises, strict=True):
        expected = DirectRegressor(**raw, **noise).fit(x, y)
        assert model.elbo_ == pytest.approx(expected.elbo_, rel=1e-6)
    assert runs == [7, 8]


def test_raw_candidates_of_a_search_share_their_sweeps(data, runs, shared_always):
    x, y = data
    grid = {"noise": np.geomspace(0.5, 4, 6).tolist()}
    model = DirectRegressor(FIXED_FEATURES, basis="raw", n_levels=61)
    ours = DirectSearchCV(model, grid, cv=2).fit(x, y)
    assert runs == [6, 6]
    expected = GridSearchCV(model, grid, cv=2).fit(x, y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], expected, atol=5e-3)


def test_small_models_of_unlike_ridges_are_fitted_one_by_one(runs):
    statistics = make_statistics(n=60, b=6, n_outputs=6)
    models = [
        MeanFieldRegression.of(statistics.target(0), LEVELS, GaussianPrior().log_mass(LEVELS), [s]) for s in NOISE
    ]
    fit_mean_fields(models)
    assert runs == []
    fit_mean_fields(of_targets(statistics, 6))
    assert runs == [6]


def test_several_outputs_of_the_raw_basis_are_those_of_single_fits(data):
    x, y = data
    several = np.c_[tuple(np.sin(k * y) + x[:, 0] for k in np.linspace(0.2, 1, 7))]
    model = DirectRegressor("linear", basis="raw").fit(x, several)
    for k in range(7):
        alone = DirectRegressor("linear", basis="raw").fit(x, several[:, k])
        np.testing.assert_allclose(model.predict(x)[:, k], alone.predict(x), atol=1e-2)


def test_fit_many_tells_the_seconds_of_all_once(data):
    x, y = data
    models = [DirectRegressor("linear", basis=basis) for basis in ("decorrelated", "raw", "raw")]
    begin = time.perf_counter()
    fit_many(models, x, y)
    taken = time.perf_counter() - begin
    for stage in ("features", "statistics"):  # shared by equal parts
        assert len({model.fit_seconds_[stage] for model in models}) == 1
    assert all(set(model.fit_seconds_) == {"features", "statistics", "inference"} for model in models)
    assert 0 < sum(sum(model.fit_seconds_.values()) for model in models) <= taken


def test_fit_many_refuses_what_does_not_fit_together(data):
    x, y = data
    model = DirectRegressor("linear")
    with pytest.raises(ValueError, match="different objects"):
        fit_many([model, model], x, y)
    with pytest.raises(ValueError, match="one an estimator, 2, got 3"):
        fit_many([model, DirectRegressor("linear")], x, [y, y, y])
    with pytest.raises(ValueError, match=r"y\[1\] must have 240 rows, as y\[0\], got 239"):
        fit_many([model, DirectRegressor("linear")], x, [y, y[1:]])
    with pytest.raises(TypeError, match="a list of DirectRegressor, got one"):
        fit_many(model, x, y)
    statistics = make_statistics(n_outputs=1)
    with pytest.raises(TypeError, match="a list of MeanFieldRegression, got one"):
        fit_mean_fields(MeanFieldRegression.of(statistics, LEVELS, np.zeros(LEVELS.size), NOISE))
    with pytest.raises(TypeError, match=r"estimators\[0\]"):
        fit_many(["linear"], x, y)


def test_fit_many_refuses_data_before_a_model_is_touched(data):
    x, y = data
    fitted, other = DirectRegressor("linear").fit(x, y), DirectRegressor("polynomial")
    before = fitted.predict(x)
    for bad in (np.where(y > 1, np.nan, y), 1e100 * y):
        with pytest.raises(ValueError):
            fit_many([fitted, other], x, [2 * y, bad])
    with pytest.raises(ValueError, match="sample_weight"):
        fit_many([fitted, other], x, y, -np.ones(240))
    np.testing.assert_array_equal(fitted.predict(x), before)


def same_as_grid_search(ours, theirs):
    """Compare everything that scikit-learn documents, but seconds."""
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for name, values in theirs.cv_results_.items():
        if name.endswith("_score"):
            np.testing.assert_allclose(ours.cv_results_[name], values, atol=1e-9)
        elif name.endswith("_time"):
            assert (ours.cv_results_[name] >= 0).all() and ours.cv_results_[name].shape == values.shape
        else:
            assert list(ours.cv_results_[name]) == list(values)
            assert name == "params" or ours.cv_results_[name].dtype == values.dtype
    for name in ("best_index_", "best_params_", "n_splits_", "multimetric_", "n_features_in_"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.best_score_ == pytest.approx(theirs.best_score_, abs=1e-9)
    assert ours.best_estimator_.repetitions_ == pytest.approx(theirs.best_estimator_.repetitions_)


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error", "neg_root_mean_squared_error", crps_scorer])
def test_search_equals_grid_search_where_features_do_not_depend_on_rows(data, scoring):
    x, y = data
    grid = {"prior": ["gaussian", "laplace"], "noise": ["auto", 0.5], "n_levels": [7]}
    cv = KFold(3, shuffle=True, random_state=1)
    model = DirectRegressor(FIXED_FEATURES)
    ours = DirectSearchCV(model, grid, scoring, cv).fit(x, y)
    theirs = GridSearchCV(model, grid, scoring=scoring, cv=cv).fit(x, y)
    same_as_grid_search(ours, theirs)
    assert ours.score(x[::2], y[::2]) == pytest.approx(theirs.score(x[::2], y[::2]), abs=1e-9)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-8)


@pytest.mark.parametrize("scoring", ["r2", "neg_root_mean_squared_error", crps_scorer, "neg_max_error"])
def test_search_counts_rows_by_their_weights_and_keeps_groups_together(data, scoring):
    x, y = data
    several = np.c_[y, 100 + 50 * x[:, 2] + y] if scoring != "neg_max_error" else y
    weight, groups = np.arange(240) % 4 + 0.5 * (np.arange(240) % 3), np.arange(240) // 7 % 9
    model = DirectRegressor(FIXED_FEATURES, n_levels=7)
    search = DirectSearchCV(model, {"noise": ["auto", 0.5]}, scoring, GroupKFold(3))
    search.fit(x, several, weight, groups)
    score, takes = get_scorer(scoring), scoring != "neg_max_error"

    def scored(fitted, rows):
        weights = {"sample_weight": weight[rows]} if takes else {}
        return pytest.approx(score(fitted, x[rows], several[rows], **weights), abs=1e-8)

    for f, (train, test) in enumerate(GroupKFold(3).split(x, groups=groups)):
        fitted = clone(model).set_params(noise=0.5).fit(x[train], several[train], weight[train])
        assert search.cv_results_[f"split{f}_test_score"][1] == scored(fitted, test)
    best, rows = clone(search.best_estimator_).fit(x, several, weight), np.arange(100)
    assert search.score(x[rows], several[rows], weight[rows] if takes else None) == scored(best, rows)
    assert search.best_estimator_.n_samples_ == weight.sum()


def test_search_weighs_the_rows_that_fix_the_features(data):
    x, y = data
    weight = np.linspace(0.1, 3, 240)
    search = DirectSearchCV(DirectRegressor("polynomial"), {"n_levels": [7]}, cv=2).fit(x, y, weight)
    expected = clone(search.best_estimator_).fit(x, y, weight)
    np.testing.assert_allclose(search.predict(x), expected.predict(x), atol=1e-9)


def test_search_tells_of_scores_that_are_no_numbers(data):
    search = DirectSearchCV(DirectRegressor("linear"), {"n_levels": [7, 9]}, lambda *_: np.array(np.nan), cv=2)
    with pytest.warns(UserWarning, match="One or more of the test scores are non-finite"):
        search.fit(*data)


def test_search_scores_without_weights_where_the_scorer_takes_none(data):
    x, y = data
    search = DirectSearchCV(DirectRegressor("linear"), {"n_levels": [7]}, lambda m, x, y: np.array(m.score(x, y)), cv=2)
    weight = np.arange(240.0)
    search.fit(x, y, weight)
    assert search.score(x, y, weight) == search.score(x, y)


def test_search_over_features_and_several_outputs(data):
    x, y = data
    several = np.c_[y, 100 + 50 * x[:, 2] + y]
    grid = [{"features": ["linear", "polynomial"]}, {"features": ["precomputed"], "basis": ["raw"]}]
    ours = DirectSearchCV(DirectRegressor(), grid, cv=4).fit(x, several)
    theirs = GridSearchCV(DirectRegressor(), grid, cv=4).fit(x, several)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=5e-3)
    assert ours.best_params_ == theirs.best_params_
    assert ours.predict(x).shape == (240, 2)


def agree(model, x, y, cv=3, scoring="r2", **tolerance):
    grid = {"noise": ["auto", 0.5]}
    ours, theirs = (search(model, grid, scoring=scoring, cv=cv).fit(x, y) for search in (DirectSearchCV, GridSearchCV))
    for name in ("mean_test_score", "std_test_score", "rank_test_score"):
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], **tolerance)
    assert ours.best_estimator_.repetitions_ == theirs.best_estimator_.repetitions_
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=1e-6)
    return ours


def test_search_scores_a_constant_fold_as_grid_search_does(data):
    x, y = data
    y = np.r_[np.zeros(80), y[80:]]
    assert (agree(DirectRegressor("linear"), x, y, atol=1e-3).cv_results_["split0_test_score"] == 0).all()


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error"])
def test_search_scores_a_constant_target_as_grid_search_does(data, scoring):
    ours, theirs = (
        search(DirectRegressor("linear"), {"n_levels": [7]}, scoring=scoring).fit(data[0], np.full(240, 0.1))
        for search in (DirectSearchCV, GridSearchCV)
    )
    assert ours.best_score_ == theirs.best_score_ == (scoring == "r2")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning", "ignore:One or more of the test")
def test_search_of_one_row_folds_has_no_r2_and_ranks_the_same(data):
    x, y = data[0][:9], data[1][:9]
    assert np.isnan(agree(DirectRegressor("linear"), x, y, cv=LeaveOneOut()).best_score_)


def test_search_with_rows_that_are_never_held_out(data):
    agree(DirectRegressor(FIXED_FEATURES), *data, cv=ShuffleSplit(1, test_size=0.3, random_state=0), atol=1e-9)


def test_search_loses_no_digits_to_a_far_row_of_the_fold_held_out(data):
    x, y = data[0].copy(), data[1]
    x[3, 1] = 1e8
    agree(DirectRegressor("precomputed"), x, y, cv=5, scoring="neg_root_mean_squared_error", rtol=1e-6)


def test_search_refits_with_the_repetitions_of_the_rows(data):
    ours = agree(DirectRegressor("linear"), np.tile(data[0][:40], (4, 1)), np.tile(data[1][:40], 4), atol=1e-3)
    assert ours.best_estimator_.repetitions_ == 4.0


def test_search_knows_the_columns_of_a_frame(data):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    x, y = data
    frame = pandas.DataFrame(x, columns=[f"c{j}" for j in range(x.shape[1])])
    search = DirectSearchCV(DirectRegressor("linear"), {"n_levels": [7]}, cv=2).fit(frame, y)
    np.testing.assert_array_equal(search.predict(frame), search.best_estimator_.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        search.predict(frame[frame.columns[::-1]])


def test_subtracted_folds_equal_rows_never_seen(data):
    x, y = data
    phi = FIXED_FEATURES.fit_transform(x)
    features = DirectRegressor("precomputed").fit_features(phi, y)
    whole, fold, rest = (
        features.new_statistics().update(phi[rows], y[rows, None]) for rows in (slice(None), slice(80), slice(80, None))
    )
    left = whole.copy().subtract(fold)
    assert isinstance(left, RunningStatistics)
    for got, expected in zip(left.target_location_scale(), rest.target_location_scale(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    np.testing.assert_allclose(left.gaussian().A, rest.gaussian().A, atol=1e-11)


def test_search_refuses_what_sums_cannot_do(data):
    x, y = data
    model = DirectRegressor("linear", basis="raw")
    with pytest.raises(ValueError, match="at most once"):
        DirectSearchCV(model, {"n_levels": [7]}, cv=ShuffleSplit(5, test_size=0.5, random_state=0)).fit(x, y)
    with pytest.raises(ValueError, match="train on all rows"):
        DirectSearchCV(model, {"n_levels": [7]}, cv=ShuffleSplit(1, test_size=0.2, train_size=0.2)).fit(x, y)
    with pytest.raises(ValueError, match="held_out"):
        DirectSearchCV(model, {"noise": ["held_out"]}).fit(x, y)
    with pytest.raises(TypeError, match="scoring must be the name of one scorer"):
        DirectSearchCV(model, {"n_levels": [7]}, ["r2"]).fit(x, y)
    with pytest.raises(ValueError, match="scoring"):
        DirectSearchCV(model, {"n_levels": [7]}, "accurate").fit(x, y)
    with pytest.raises(TypeError, match="scoring must return one number, got dict"):
        DirectSearchCV(model, {"n_levels": [7]}, lambda *_: {"r2": 1.0}).fit(x, y)
    with pytest.raises(ValueError, match="Invalid parameter 'levles'"):
        DirectSearchCV(model, {"levles": [7]}).fit(x, y)
    with pytest.raises(ValueError, match="param_grid must have at least one candidate"):
        DirectSearchCV(model, []).fit(x, y)
    with pytest.raises(ValueError, match="cv must have at least one split"):
        DirectSearchCV(model, {"n_levels": [7]}, cv=[]).fit(x, y)
    with pytest.raises(ValueError, match="cv must hold out rows that count, split 0 has none"):
        DirectSearchCV(model, {"n_levels": [7]}, cv=4).fit(x, y, np.arange(240) >= 60)
    half = np.arange(len(x)) % 2 == 0
    masks = DirectSearchCV(model, {"n_levels": [7]}, cv=[(half, ~half), (~half, half)]).fit(x, y)
    assert masks.n_splits_ == 2
    with pytest.raises(TypeError, match="estimator"):
        DirectSearchCV("linear", {"n_levels": [7]}).fit(x, y)
    only_scores = masks.set_params(refit=False).fit(x, y)
    assert not any(hasattr(only_scores, name) for name in ("best_estimator_", "refit_time_", "predict", "score"))
    assert only_scores.best_params_ == {"n_levels": 7}


def test_the_page_on_many_models_runs_as_written():
    page = Path(__file__).resolve().parents[2] / "docs" / "many_models.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    exec("\n".join(blocks), {})
