"""`MonteCarloBNNRegressor` and `MonteCarloBNNClassifier`: scikit-learn's contract, predictions, training, files."""

import dataclasses
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import pydirect
from pydirect import (
    DVIRegressor,
    MonteCarloBNNClassifier,
    MonteCarloBNNRegressor,
    TrainingSchedule,
)
from pydirect.networks.sampled import POSTERIORS, SampledNetwork
from pydirect.networks.training import BOUND_DRAWS, NetworkObjective, OverfittedDrawsWarning
from pydirect.persistence import container as persistence
from pydirect.statistics.gaussian import PREDICTION_BYTES

SCHEDULE = {field.name for field in dataclasses.fields(TrainingSchedule)}


def scheduled(options):
    """Arguments of an estimator, of which those of its schedule are given by their own names."""
    own = {name: value for name, value in options.items() if name in SCHEDULE}
    return {name: value for name, value in options.items() if name not in SCHEDULE} | {
        "schedule": TrainingSchedule(**own)
    }


FAST = {"hidden_layer_sizes": (4,), "n_steps": 60, "n_restarts": 1, "n_draws": 4}
TINY = FAST | {"n_draws": 2, "n_predictive_draws": 20}
CONFIGURATIONS = [
    MonteCarloBNNRegressor(**scheduled(TINY | {"learning_rate": 0.05})),
    MonteCarloBNNClassifier(**scheduled(TINY)),
]
RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-1, 1, (120, 2)), RNG.uniform(-1, 1, (400, 2))


def curve(x):
    return 3 + 2 * np.abs(x[:, 0]) - x[:, 1] ** 2


Y = curve(X) + (0.05 + 0.2 * (X[:, 1] > 0)) * RNG.standard_normal(120)
TWO = np.c_[Y, 50 - 10 * np.abs(X[:, 0])]
IRIS = load_iris(return_X_y=True)


@pytest.fixture(autouse=True)
def _without_convergence_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def fit(x=X, y=Y, **options):
    return MonteCarloBNNRegressor(**scheduled(FAST | options)).fit(x, y)


@pytest.fixture(scope="module")
def classifier():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MonteCarloBNNClassifier(**scheduled(FAST | {"n_steps": 400})).fit(IRIS[0][::2], IRIS[1][::2])


@parametrize_with_checks(CONFIGURATIONS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


def test_predictions_of_classes_stay_within_their_memory():
    model = MonteCarloBNNClassifier(**scheduled(TINY | {"n_steps": 5, "n_predictive_draws": 100}))
    model.fit(X, np.arange(120) % 10)
    many = np.resize(NEW, (10_000, 2))
    model.predict_proba(many[:20])
    tracemalloc.start()
    model.predict_proba(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * PREDICTION_BYTES


# ---------------------------------------- regression


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_curve_is_learned_better_than_by_ridge_regression(posterior):
    model = fit(posterior=posterior, hidden_layer_sizes=(10,), n_steps=600)
    error = np.sqrt(np.mean((model.predict(NEW) - curve(NEW)) ** 2))
    assert error < 0.6 * np.sqrt(np.mean((Ridge().fit(X, Y).predict(NEW) - curve(NEW)) ** 2))


@pytest.mark.parametrize("noise", ["varying", "constant", "softplus"])
@pytest.mark.parametrize("targets", [Y, TWO], ids=["one", "two"])
def test_parts_add_up_and_all_predictions_agree(noise, targets):
    model = fit(y=targets, noise=noise)
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(model.predict(NEW), mean, rtol=1e-12)
    again, epistemic, aleatoric = model.predict_parts(NEW)
    np.testing.assert_array_equal(again, mean)
    np.testing.assert_allclose(np.hypot(epistemic, aleatoric), std, rtol=1e-12)
    distributions = model.predict_distribution(NEW)
    distributions = distributions if isinstance(distributions, list) else [distributions]
    np.testing.assert_allclose(np.stack([d.mean for d in distributions], 1).reshape(mean.shape), mean, rtol=1e-9)
    np.testing.assert_allclose(np.stack([d.std for d in distributions], 1).reshape(mean.shape), std, rtol=1e-6)
    lower, upper = model.predict_interval(NEW, 0.8)
    quantiles = model.predict_quantiles(NEW, [0.1, 0.9])
    np.testing.assert_allclose(np.stack([lower, upper], axis=-1), quantiles, rtol=1e-9)
    assert np.isfinite(model.log_predictive_density(X, targets)).all()
    assert model.sample_y(NEW, 3).shape == (*mean.shape, 3)


def test_predictions_average_over_the_posterior():
    """The draws of predictions against many others, within their standard error."""
    model = fit(posterior="laplace")
    mean, epistemic, _ = model.predict_parts(NEW)
    other = model.sample_y(NEW, 4000, random_state=5, noise=False)
    error = np.hypot(epistemic / np.sqrt(model.n_predictive_draws), other.std(axis=1) / np.sqrt(4000))
    assert (np.abs(other.mean(axis=1) - mean) < 4.5 * error).all()


def test_rows_are_predicted_the_same_alone_and_together():
    model = fit()
    np.testing.assert_allclose([model.predict(row[None])[0] for row in NEW[:5]], model.predict(NEW)[:5], rtol=1e-12)


def test_constant_columns_and_targets():
    assert np.isfinite(fit(np.ones((30, 2)), RNG.standard_normal(30)).predict(np.ones((2, 2)))).all()
    np.testing.assert_allclose(fit(X, np.full(120, 7.0), n_steps=150).predict(NEW), 7.0, atol=0.5)


def test_far_away_predictions_are_finite():
    far, model = np.array([[1e300, -1e300], [1e9, 1e9]]), fit()
    for values in (*model.predict(far, return_std=True), *model.predict_interval(far)):
        assert np.isfinite(values).all()


def test_calibration_rescales_the_deviations():
    model = fit()
    before = model.predict(NEW, return_std=True)[1]
    model.calibrate(X, Y + 3 * (Y - model.predict(X)))
    np.testing.assert_allclose(model.predict(NEW, return_std=True)[1], model.calibration_scale_ * before, rtol=1e-12)


# ---------------------------------------- training


FEW = RNG.uniform(-1, 1, (15, 1)), RNG.uniform(-0.1, 0.1, 15)


def bound_of_few_rows(kl_mode):
    """Of a fit in which the divergence is most of the bound."""
    options = {"hidden_layer_sizes": (2,), "noise": "constant", "prior": 0.5, "n_restarts": 1}
    schedule = TrainingSchedule(n_steps=300, learning_rate=0.05)
    model = MonteCarloBNNRegressor(**options, schedule=schedule, kl_mode=kl_mode, n_kl_draws=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(FEW[0], FEW[0][:, 0] + FEW[1]).elbo_


@pytest.fixture(scope="module")
def exact_bound():
    return bound_of_few_rows("exact")


@pytest.mark.parametrize("kl_mode", ["direct", "independent"])
def test_bounds_by_estimated_divergences_are_near_the_exact_one(kl_mode, exact_bound):
    assert bound_of_few_rows(kl_mode) == pytest.approx(exact_bound, abs=0.5)


@pytest.mark.parametrize("factor", [0.0, 3.0])
def test_a_wrong_divergence_lowers_the_bound(factor, exact_bound, monkeypatch):
    """The failure that the test above detects."""
    true = SampledNetwork.kl

    def wrong(self, *arguments):
        return tuple((1.0 if self.kl_mode == "exact" else factor) * part for part in true(self, *arguments))

    monkeypatch.setattr(SampledNetwork, "kl", wrong)
    assert bound_of_few_rows("independent") < exact_bound - 5.0


def test_the_bound_is_near_the_deterministic_one():
    """The ELBO of a normal posterior of DVI, by moments and from draws: its one hidden layer is nearly Gaussian."""
    options = {"hidden_layer_sizes": (8,), "noise": "constant", "schedule": TrainingSchedule(n_steps=500)}
    model = MonteCarloBNNRegressor(sampling="pre_activations", n_draws=4, **options).fit(X, Y)
    other = DVIRegressor(**options).fit(X, Y)
    assert model.elbo_ == pytest.approx(other.elbo_, abs=0.2 * len(Y))


def test_lbfgs_with_kept_draws():
    model = fit(kl_mode="fixed", optimizer="adam+lbfgs", max_iter=30)
    assert 60 < model.n_iter_ <= 90
    assert model._plan().inference == "kept"
    assert (np.diff(model.elbo_trace_) >= 0).all()
    assert model.elbo_trace_[-1] > model.elbo_trace_[0]


@pytest.mark.parametrize("sampling", ["weights", "pre_activations"])
def test_adam_draws_networks_anew_where_the_divergence_keeps_its_draws(sampling, monkeypatch):
    seeds, divergences = [], []
    evaluate, kl = NetworkObjective.evaluate, SampledNetwork.kl

    def seen(self, theta, kl_weight, seed, n_threads):
        assert self.inference.name == ("mcvi" if sampling == "weights" else "rmcvi") or self.n_draws == BOUND_DRAWS
        seeds.append(seed)
        return evaluate(self, theta, kl_weight, seed, n_threads)

    def kept(self, theta, seed=None, n_threads=1):
        result = kl(self, theta, seed, n_threads)
        divergences.append(result[0] - kl(self, theta)[0])
        return result

    monkeypatch.setattr(NetworkObjective, "evaluate", seen)
    monkeypatch.setattr(SampledNetwork, "kl", kept)
    fit(kl_mode="fixed", sampling=sampling, n_steps=30, n_kl_draws=5)
    assert len(set(seeds)) > 30
    assert set(divergences) == {0.0}


def test_the_bound_is_that_of_fresh_draws():
    """With fixed draws the objective exceeds the bound; a large excess is a warning."""
    with pytest.warns(OverfittedDrawsWarning, match="the weights have adapted to their draws"):
        model = fit(kl_mode="fixed", noise="constant", n_draws=2, optimizer="adam+lbfgs", max_iter=100)
    assert model.elbo_ < model.elbo_trace_[-1]


@pytest.mark.parametrize("prior", [0.5, ("laplace", 0.0, 1.0), pydirect.networks.base.EmpiricalBayes(2.0, 3.0)])
def test_every_form_of_prior(prior):
    named = isinstance(prior, tuple)
    model = fit(prior=prior, kl_mode="independent", n_kl_draws=20)
    assert np.isfinite(model.elbo_)
    assert hasattr(model, "prior_variances_") != named


def test_results_depend_on_the_seed_and_not_on_the_number_of_threads():
    options = {"kl_mode": "independent", "n_kl_draws": 5, "n_restarts": 2, "n_steps": 30}
    one, two, other = fit(n_threads=1, **options), fit(n_threads=2, **options), fit(random_state=1, **options)
    assert one.elbo_ == two.elbo_ != other.elbo_
    assert one.predict(NEW).tobytes() == two.predict(NEW).tobytes()


def test_a_generator_of_the_same_seed_gives_the_same_fit():
    options = {"n_steps": 30, "kl_mode": "fixed", "n_kl_draws": 5}
    assert fit(random_state=0, **options).elbo_ == fit(random_state=np.random.RandomState(0), **options).elbo_


def test_a_short_run_has_not_converged():
    assert not MonteCarloBNNRegressor((20,), schedule=TrainingSchedule(n_steps=100)).fit(X, Y).converged_


def test_mini_batches_with_warm_up_and_ramp_find_the_fit():
    model = fit(batch_size=40, kl_warmup=0.1, kl_ramp=0.3, hidden_layer_sizes=(10,), n_steps=800)
    assert np.sqrt(np.mean((model.predict(NEW) - curve(NEW)) ** 2)) < 0.25


def test_several_layers_are_trained():
    model = fit(hidden_layer_sizes=(8, 6, 4), noise="constant", n_steps=800)
    assert np.sqrt(np.mean((model.predict(NEW) - curve(NEW)) ** 2)) < 0.45
    assert len(model.prior_variances_) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "none"}, "noise must be one of"),
        ({"posterior": "cauchy"}, "posterior must be one of"),
        ({"kl_mode": "sampled"}, "kl_mode must be one of"),
        ({"sampling": "rows"}, "sampling must be one of"),
        ({"sampling": "pre_activations", "posterior": "radial"}, "sampling must be 'weights' but for normal weights"),
        (
            {"sampling": "pre_activations", "kl_mode": "fixed", "optimizer": "lbfgs"},
            "sampling must be 'weights' but for normal weights and optimizer='adam'",
        ),
        ({"optimizer": "adam+lbfgs"}, "optimizer must be 'adam' for kl_mode='exact', got 'adam.lbfgs'"),
        ({"prior": "horseshoe"}, "prior must be one of"),
        ({"prior": -1.0}, "prior must hold variances"),
        ({"prior": ("cauchy", 1.0)}, "prior must be one of"),
        ({"random_state": -1}, "random_state must be an integer"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be an integer"),
        ({"n_predictive_draws": 0}, "n_predictive_draws must be at least 1"),
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(**options)


# ---------------------------------------- classification


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_iris_is_learned(posterior):
    model = MonteCarloBNNClassifier(**scheduled(FAST | {"n_steps": 400}), posterior=posterior).fit(
        IRIS[0][::2], IRIS[1][::2]
    )
    x, y = IRIS[0][1::2], IRIS[1][1::2]
    assert model.score(x, y) > 0.9
    p = model.predict_proba(x)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert model.predict_logit(x, return_std=True)[1].shape == (75, 3)
    np.testing.assert_allclose(model.sample_proba(x, 2000).mean(axis=2), p, atol=0.1)


def test_two_classes_have_one_decision_value():
    model = MonteCarloBNNClassifier(**scheduled(FAST | {"n_steps": 300})).fit(X, np.where(Y > 3.5, "high", "low"))
    decision = model.decision_function(NEW)
    assert decision.shape == (400,)
    np.testing.assert_array_equal(model.predict(NEW) == "low", decision > 0)


# ---------------------------------------- files


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"posterior": "radial", "noise": "constant", "kl_mode": "fixed", "max_iter": 5},
        {"prior": ("laplace", 0.0, 1.0), "kl_mode": "independent", "n_kl_draws": 5},
        {"prior": 0.3, "hidden_layer_sizes": (4, 3)},
    ],
)
def test_a_saved_regressor_comes_back(tmp_path, options):
    model = fit(y=TWO, **options)
    model.save(tmp_path / "m.pydirect", {"note": "x"})
    for other in (pydirect.load(tmp_path / "m.pydirect"), pickle.loads(pickle.dumps(model))):
        assert isinstance(other, MonteCarloBNNRegressor)
        for mine, theirs in zip(model.predict(NEW, return_std=True), other.predict(NEW, return_std=True), strict=True):
            assert mine.tobytes() == theirs.tobytes()
        assert other.elbo_ == model.elbo_
        assert clone(other).get_params() == clone(model).get_params() | {"prior": other.prior}
    again = pydirect.load(tmp_path / "m.pydirect")
    assert again.metadata_ == {"note": "x"}
    np.testing.assert_array_equal(again.sample_y(NEW, 3), model.sample_y(NEW, 3))


def test_a_saved_classifier_comes_back(tmp_path, classifier):
    classifier.save(tmp_path / "m.pydirect")
    other = pydirect.load(tmp_path / "m.pydirect")
    assert other.predict_proba(IRIS[0]).tobytes() == classifier.predict_proba(IRIS[0]).tobytes()


def test_a_file_whose_network_is_another_one_is_refused(tmp_path):
    model = fit(n_steps=20)
    model.posterior = "laplace"
    model.save(tmp_path / "m.pydirect")
    with pytest.raises(persistence.CorruptFileError, match="not of the network's shape"):
        pydirect.load(tmp_path / "m.pydirect")
