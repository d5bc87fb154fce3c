"""Many threads at a time: models of their own, and one model that all predict from.

Results have the bits of the same calls one after another. The interpreter switches threads as often as it can, and
kernels release its lock, so that what two threads do to one object would show.
"""

import copy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from pydirect import (
    DirectClassifier,
    DirectCountRegressor,
    DirectRegressor,
    DirectStreamRegressor,
    DVIClassifier,
    DVIRegressor,
    Fourier,
    GaussianStatistics,
    MeanField,
    MonteCarloBNNRegressor,
    QuadraticBNNRegressor,
    load,
)
from pydirect.linear.recursive import RecursivePosterior
from pydirect.quantized.predictors import load_quantized
from pydirect.statistics.noisy import PrivacyBudget

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning"),
    pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning"),
]

N_THREADS = 6


@pytest.fixture(autouse=True, scope="module")
def busy_threads():
    """Switch threads often. BLAS has one thread all the time: its own sums depend on their number."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with threadpool_limits(1, "blas"):
        yield
    sys.setswitchinterval(before)


def at_once(functions):
    """Call functions on threads of their own, all at the same time; return what they return."""
    barrier = threading.Barrier(len(functions))

    def call(function):
        barrier.wait(60)
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))


def assert_same(got, expected):
    if isinstance(expected, (tuple, list)):
        for ours, theirs in zip(got, expected, strict=True):
            assert_same(ours, theirs)
    else:
        np.testing.assert_array_equal(got, expected, strict=True)


RNG = np.random.default_rng(20)
X = RNG.standard_normal((160, 3))
F = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
Y = F + 0.2 * RNG.standard_normal(len(X))
TARGETS = {
    "number": Y,
    "numbers": np.column_stack([Y, F + 0.1 * RNG.standard_normal(len(X))]),
    "label": np.where(Y > 0, "up", "down"),
    "labels": np.digitize(Y, [-0.7, 0.7]),
    "count": RNG.poisson(np.exp(0.5 * F)),
}
MODELS = {
    "regressor": (DirectRegressor(n_basis_functions=24, random_state=0), "number"),
    "regressor of two targets": (DirectRegressor("nystroem", 24, local=False, random_state=1), "numbers"),
    "raw": (DirectRegressor(Fourier(rank_inputs=False), 24, posterior="sequential", random_state=2), "number"),
    "mixture": (DirectRegressor("fourier", 16, posterior=MeanField(n_components=2), random_state=2), "number"),
    "classifier": (DirectClassifier(n_basis_functions=24, random_state=3), "label"),
    "classifier of three classes": (DirectClassifier("nystroem", 24, random_state=4), "labels"),
    "counts": (DirectCountRegressor(n_basis_functions=24, random_state=5), "count"),
    "stream": (DirectStreamRegressor(n_basis_functions=20, n_first_rows=40, random_state=6), "number"),
    "dvi": (DVIRegressor((12,), random_state=7), "number"),
    "dvi classifier": (DVIClassifier((10,), random_state=8), "label"),
    "monte carlo": (MonteCarloBNNRegressor((8,), random_state=9), "number"),
    "quadratic": (QuadraticBNNRegressor((6,), max_iter=10, random_state=10), "number"),
}


def fitted(name):
    model, target = MODELS[name]
    return copy.deepcopy(model).fit(X, TARGETS[target])


def predictions(model):
    """What the model says of rows, far ones among them."""
    rows = 1.5 * X[:12]
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(rows)]
    if hasattr(model, "predict_quantiles"):
        return [*model.predict(rows, return_std=True), model.predict_quantiles(rows), model.sample_y(rows[:5], 3, 0)]
    return [model.predict(rows), *model.predict_interval(rows)]


@pytest.mark.slow
def test_models_fitted_at_the_same_time_are_those_fitted_one_after_another():
    expected = [predictions(fitted(name)) for name in MODELS]
    assert_same(at_once([lambda name=name: predictions(fitted(name)) for name in MODELS]), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_threads_share_a_model_that_nobody_has_asked_yet(name):
    model = fitted(name)
    expected = predictions(copy.deepcopy(model))
    for _ in range(3):
        shared = copy.deepcopy(model)
        for got in at_once([lambda shared=shared: predictions(shared)] * N_THREADS):
            assert_same(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["regressor", "classifier", "stream", "dvi"])
def test_threads_save_a_model_while_others_predict_from_it_and_load_it(name, tmp_path):
    model = fitted(name)
    expected = predictions(copy.deepcopy(model))
    model.save(tmp_path / "shared")

    def save_and_load(k):
        model.save(tmp_path / f"{k % 2}")  # two threads to each file
        return predictions(load(tmp_path / f"{k % 2}"))

    def predict_and_load(k):
        return predictions(model if k % 2 else load(tmp_path / "shared"))

    for got in at_once([lambda k=k, do=do: do(k) for k in range(4) for do in (save_and_load, predict_and_load)]):
        assert_same(got, expected)


@pytest.mark.slow
def test_threads_learn_streams_of_their_own():
    def learn(seed):
        model = DirectStreamRegressor(n_basis_functions=20, n_first_rows=32, half_life=50.0, random_state=seed)
        ahead = [model.predict_then_learn(X[i : i + 8], Y[i : i + 8]) for i in range(0, 96, 8)]
        return [*ahead, *predictions(model)]

    expected = [learn(seed) for seed in range(N_THREADS)]
    assert_same(at_once([lambda seed=seed: learn(seed) for seed in range(N_THREADS)]), expected)


@pytest.mark.parametrize("arithmetic", ["float", "integer"])
def test_threads_share_a_quantised_model(arithmetic, tmp_path):
    quantised = fitted("raw").quantize(8, arithmetic=arithmetic, X=X)
    quantised.save(tmp_path / "model")

    def predict(model):
        return [*model.predict(X[:50], return_std=True)]

    expected = predict(load_quantized(tmp_path / "model"))
    for _ in range(5):
        shared = load_quantized(tmp_path / "model")
        for got in at_once([lambda shared=shared: predict(shared)] * N_THREADS):
            assert_same(got, expected)


def test_statistics_that_hold_rows_form_their_matrix_once_for_all_threads():
    phi = RNG.standard_normal((30, 400))  # fewer rows than weights
    expected = GaussianStatistics.from_arrays(phi, phi[:, 0]).A
    for _ in range(5):
        shared = GaussianStatistics.from_arrays(phi, phi[:, 0])
        for got in at_once([lambda shared=shared: shared.A.copy()] * N_THREADS):
            assert_same(got, expected)


def test_threads_share_a_posterior_whose_covariance_is_to_be_brought_up_to_date():
    phi, rows = RNG.standard_normal((2, 200, 150))

    def learned():
        posterior = RecursivePosterior.prior(150, 0.1)
        for i in range(9):
            posterior.update(phi[10 * i : 10 * i + 10], phi[10 * i : 10 * i + 10, 0]).fade(0.9)
        return posterior

    def look(posterior):
        return [posterior.covariance.copy(), posterior.covariances(rows[:9], rows[9:30])]

    expected = look(learned())
    exact = learned().moments(rows)
    for _ in range(10):
        shared = learned()
        tasks = [lambda shared=shared: look(shared), lambda shared=shared: shared.moments(rows)] * (N_THREADS // 2)
        for i, got in enumerate(at_once(tasks)):
            if i % 2:  # before S is up to date or after
                np.testing.assert_allclose(got, exact, rtol=1e-9)
            else:
                assert_same(got, expected)


def test_threads_cannot_spend_more_than_a_budget():
    budget = PrivacyBudget(1.0, 1e-6)

    def spend():
        try:
            return budget.spend(0.6) ** 2
        except ValueError:
            return 0.0

    spent = at_once([spend] * 8)
    assert np.count_nonzero(spent) == 2  # whatever the order
    assert budget.spent == pytest.approx(sum(spent))
