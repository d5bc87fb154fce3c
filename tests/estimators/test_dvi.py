"""`DVIRegressor` and `DVIClassifier`: scikit-learn's contract, predictions in every form, training, files."""

import numpy as np
import pytest
from schedules import scheduled
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import pydirect
from pydirect import DVIClassifier, DVIRegressor
from pydirect.networks.base import draw_outputs
from pydirect.networks.training import NetworkObjective

FAST = {"hidden_layer_sizes": (4,), "n_steps": 150, "max_iter": 60, "n_restarts": 1}
RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-1, 1, (90, 2)), RNG.uniform(-1, 1, (25, 2))
Y = 3 + 2 * X[:, 0] + (0.05 + 0.4 * (X[:, 1] > 0)) * RNG.standard_normal(90)
IRIS = load_iris(return_X_y=True)


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(x=X, y=Y, **options):
    return DVIRegressor(**scheduled(FAST | options)).fit(x, y)


@pytest.fixture(scope="module")
def fitted():
    return DVIRegressor(**scheduled(FAST | {"hidden_layer_sizes": (10,), "n_steps": 600})).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return DVIClassifier(**scheduled(FAST | {"n_steps": 400})).fit(IRIS[0][::2], IRIS[1][::2])


# ---------------------------------------- regression


def test_input_dependent_noise_is_found(fitted):
    mean, epistemic, aleatoric = fitted.predict_parts([[0.3, -0.5], [0.3, 0.5]])
    np.testing.assert_allclose(mean, 3.6, atol=0.25)
    assert aleatoric[0] < 0.15
    assert 0.25 < aleatoric[1] < 0.7
    assert (epistemic < aleatoric + 0.1).all()


def test_quadrature_is_the_density_of_the_gaussian_outputs(fitted):
    """Against 200 000 draws of the outputs, within 4.5 standard errors."""
    mean, covariance = (part[:3] for part in fitted.model_.outputs.moments(NEW)[0])
    covariance = covariance + np.array([[0.5, 0.25], [0.25, 0.6]])
    weights, means, variances = fitted.model_.quadrature_components(mean, covariance)
    draws = draw_outputs(mean, covariance, np.random.default_rng(0).standard_normal((200_000, 2)))
    noise = np.exp(draws[1])
    for distance in (0.0, 1.0, 3.0):
        y = mean[:, 0] + distance
        density = np.exp(-0.5 * (y[:, None] - means) ** 2 / variances) / np.sqrt(2 * np.pi * variances) @ weights
        drawn = np.exp(-0.5 * (y[:, None] - draws[0]) ** 2 / noise) / np.sqrt(2 * np.pi * noise)
        error = drawn.std(axis=1) / np.sqrt(200_000)
        assert (np.abs(drawn.mean(axis=1) - density) < 4.5 * error + 1e-4 * density).all()


def test_units_of_inputs_and_targets_do_not_matter():
    units = np.array([2.0**20, 2.0**-20])  # without rounding: training is not convex
    model, other = fit(), fit(X * units, 2**30 * Y)
    np.testing.assert_allclose(other.predict(NEW * units) / 2**30, model.predict(NEW), rtol=1e-12)
    assert other.elbo_ == pytest.approx(model.elbo_ - 90 * np.log(2**30), abs=1e-9)


def test_the_distribution_far_away_has_the_mean_that_is_predicted(fitted):
    model = fitted
    for distance in (10.0, 100.0, 1000.0):
        far = distance * np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
        mean, epistemic, _ = model.predict_parts(far)
        distribution = model.predict_distribution(far)
        assert (np.abs(distribution.mean - mean) < 1e-9 * epistemic).all()
        assert np.isfinite(distribution.std).all()


# ---------------------------------------- training


@pytest.mark.parametrize("inference", ["dvi", "mcvi", "rmcvi", "map"])
def test_every_inference_learns(inference):
    model = fit(inference=inference, n_steps=400, noise="constant")
    assert np.sqrt(np.mean((model.predict(X) - Y) ** 2)) < 0.5
    assert np.isfinite(model.elbo_)
    assert model.predict_parts(NEW)[1].max() > 0 or inference == "map"


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs", "adam+lbfgs"])
def test_the_trace_ends_at_the_bound_of_what_is_kept(optimizer):
    model = fit(optimizer=optimizer)
    posterior, y = model.posterior_, (Y - model.y_mean_) / model.y_scale_
    value, _ = NetworkObjective(posterior.network, model.input_map_.transform(X), y)(posterior.theta)
    assert model.elbo_ == pytest.approx(-90 * (value + np.log(model.y_scale_[0])), rel=1e-10)
    assert model.elbo_trace_[-1] == pytest.approx(model.elbo_, abs=1e-9)
    assert model.n_iter_ <= 150 + 60


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"optimizer": "adam+lbfgs", "max_iter": 3}, r"153 steps and iterations \(raise max_iter, now 3\)"),
        ({"n_steps": 1}, r"1 steps \(raise n_steps, now 1\)"),
    ],
)
def test_the_convergence_warning_names_the_parameter_to_raise(options, remedy):
    with pytest.warns(ConvergenceWarning, match=remedy):
        fit(**options)


def test_lbfgs_improves_the_best_start_alone():
    options = {"n_restarts": 3, "optimizer": "adam+lbfgs"}
    adam, both = fit(n_restarts=3), fit(**options)
    assert adam.n_iter_ == 150
    assert 150 < both.n_iter_ <= 210
    assert both.elbo_ > adam.elbo_
    assert (np.diff(both.elbo_trace_) >= 0).all()
    np.testing.assert_array_equal(both.predict(NEW), fit(n_threads=2, **options).predict(NEW))


def test_an_interrupted_fit_keeps_the_best_iterate(monkeypatch):
    calls, objective = [], NetworkObjective.evaluate

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 40:
            raise KeyboardInterrupt
        return objective(*args, **kwargs)

    monkeypatch.setattr(NetworkObjective, "evaluate", interrupted)
    for restarts in (1, 3):
        calls.clear()
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            model = fit(n_restarts=restarts, n_threads=2)
        assert model.interrupted_
        assert not model.converged_
        assert np.isfinite(model.predict(NEW)).all()


def test_an_objective_that_overflows_is_survived(monkeypatch):
    calls, objective = [], NetworkObjective.evaluate

    def overflowing(*args, **kwargs):
        calls.append(1)
        value, gradient = objective(*args, **kwargs)
        return (np.nan, np.full_like(gradient, np.nan)) if len(calls) % 7 == 0 else (value, gradient)

    monkeypatch.setattr(NetworkObjective, "evaluate", overflowing)
    assert np.isfinite(fit().predict(NEW)).all()


@pytest.mark.parametrize("options", [{"prior": 1e-100}, {"prior": 1e100}, {"weight": 1e-99}])
def test_models_at_the_edge_are_finite(options):
    weight = np.full(90, options.pop("weight", 1.0))
    model = DVIRegressor(**scheduled(FAST | options)).fit(X, Y, sample_weight=weight)
    assert np.isfinite(model.posterior_.theta).all()
    assert np.isfinite(model.predict(NEW)).all()


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs", "adam+lbfgs"])
def test_a_bound_that_is_finite_nowhere_is_an_error(monkeypatch, optimizer):
    def overflowing(network, theta, *args, **kwargs):
        return np.inf, np.zeros_like(theta)

    monkeypatch.setattr(NetworkObjective, "evaluate", overflowing)
    with pytest.raises(ValueError, match=r"x and y must be of order one for the bound to be finite, got max \|x\| = "):
        fit(optimizer=optimizer)


# ---------------------------------------- tools around


def test_tools_for_discrete_weights_refuse_networks(fitted, classifier):
    for model in (fitted, classifier):
        with pytest.raises(TypeError, match=f"model must be a DirectReg.* got {type(model).__name__}"):
            model.quantize(4)
    pytest.importorskip("matplotlib")
    with pytest.raises(TypeError, match="estimator must be a classifier with predict_proba, got DVIRegressor"):
        pydirect.plotting.ReliabilityDisplay.from_estimator(fitted, X, Y)
