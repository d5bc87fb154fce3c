"""`MonteCarloBNNRegressor` and `MonteCarloBNNClassifier`: scikit-learn's contract, predictions, training, files."""

import numpy as np
import pytest
from schedules import scheduled
from sklearn.linear_model import Ridge

from pydirect import DVIRegressor, MonteCarloBNNRegressor, TrainingSchedule
from pydirect.networks.sampled import POSTERIORS, SampledNetwork
from pydirect.networks.training import BOUND_DRAWS, NetworkObjective, OverfittedDrawsWarning

FAST = {"hidden_layer_sizes": (4,), "n_steps": 60, "n_restarts": 1, "n_draws": 4}
RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-1, 1, (120, 2)), RNG.uniform(-1, 1, (400, 2))


def curve(x):
    return 3 + 2 * np.abs(x[:, 0]) - x[:, 1] ** 2


Y = curve(X) + (0.05 + 0.2 * (X[:, 1] > 0)) * RNG.standard_normal(120)


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(x=X, y=Y, **options):
    return MonteCarloBNNRegressor(**scheduled(FAST | options)).fit(x, y)


# ---------------------------------------- regression


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_curve_is_learned_better_than_by_ridge_regression(posterior):
    model = fit(posterior=posterior, hidden_layer_sizes=(10,), n_steps=600)
    error = np.sqrt(np.mean((model.predict(NEW) - curve(NEW)) ** 2))
    assert error < 0.6 * np.sqrt(np.mean((Ridge().fit(X, Y).predict(NEW) - curve(NEW)) ** 2))


def test_predictions_average_over_the_posterior():
    """The draws of predictions against many others, within their standard error."""
    model = fit(posterior="laplace")
    mean, epistemic, _ = model.predict_parts(NEW)
    other = model.sample_y(NEW, 4000, random_state=5, noise=False)
    error = np.hypot(epistemic / np.sqrt(model.n_predictive_draws), other.std(axis=1) / np.sqrt(4000))
    assert (np.abs(other.mean(axis=1) - mean) < 4.5 * error).all()


# ---------------------------------------- training


FEW = RNG.uniform(-1, 1, (15, 1)), RNG.uniform(-0.1, 0.1, 15)


def bound_of_few_rows(kl_mode):
    """Of a fit in which the divergence is most of the bound."""
    options = {"hidden_layer_sizes": (2,), "noise": "constant", "prior": 0.5, "n_restarts": 1}
    schedule = TrainingSchedule(n_steps=300, learning_rate=0.05)
    model = MonteCarloBNNRegressor(**options, schedule=schedule, kl_mode=kl_mode, n_kl_draws=20)
    return model.fit(FEW[0], FEW[0][:, 0] + FEW[1]).elbo_


@pytest.fixture(scope="module")
def exact_bound():
    return bound_of_few_rows("exact")


@pytest.mark.parametrize("kl_mode", ["direct", "independent"])
def test_bounds_by_estimated_divergences_are_near_the_exact_one(kl_mode, exact_bound):
    assert bound_of_few_rows(kl_mode) == pytest.approx(exact_bound, abs=0.5)


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

    def seen(self, theta, rows, kl_factor, seed, n_threads):
        assert self.inference.name == ("mcvi" if sampling == "weights" else "rmcvi") or self.n_draws == BOUND_DRAWS
        seeds.append(seed)
        return evaluate(self, theta, rows, kl_factor, seed, n_threads)

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
