"""Fitted models that tests of quantised models share; those for exporters have the sizes of five UCI problems."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from pydirect import DirectClassifier, DirectRegressor, Fourier, QuadraticBNNRegressor, Sequential, quantize
from pydirect.direct.sequential import CoarseLevelsWarning

SHAPES = {"yacht": (308, 6), "housing": (506, 13), "energy": (768, 8), "concrete": (1030, 8), "airfoil": (1503, 5)}


def problem(name):
    """X and y: the real ones when PYDIRECT_DATA names their folder, otherwise synthetic ones of the same shape."""
    folder = os.environ.get("PYDIRECT_DATA")
    if folder and (path := Path(folder) / "uci" / f"{name}.npz").exists():
        data = np.load(path, allow_pickle=False)
        return data["X"], data["y"]
    n, d = SHAPES[name]
    rng = np.random.default_rng(n)
    z = rng.standard_normal((n, d))
    y = np.sin(2 * z[:, 0]) + z[:, 1] * z[:, 2] + 0.5 * z[:, -1] + 0.1 * rng.standard_normal(n)
    return z * np.geomspace(0.01, 100, d) + np.linspace(-500, 500, d), 30 + 12 * y


def quietly(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", CoarseLevelsWarning)  # of 40 features of many rows
        return fit()


@pytest.fixture(scope="session")
def fitted():
    """Function from a problem's name to a regressor on Fourier features in the raw basis, and its X."""
    found = {}

    def get(name):
        if name not in found:
            X, y = problem(name)
            posterior = Sequential(level_scales="own")  # integers, whatever the data determine
            model = DirectRegressor(Fourier(rank_inputs=False, max_search_rows=60), 40, posterior=posterior)
            found[name] = quietly(lambda: model.fit(X, y)), X
        return found[name]

    return get


@pytest.fixture(scope="session")
def almost_agreeing():
    """Function from a regressor and X to two noiseless samples of it about a large offset, and a row where they agree
    but for 1e-7 of the target's spread."""

    def make(model, X):
        two = quantize(model, 2, method="draw")
        two = replace(two, noise=np.zeros(1), offset=1e6 * two.scale)
        exact = replace(two, offset=np.zeros(1))

        def gap(x):
            return float(np.diff(exact.functions(x[None])[0, 0])[0])

        start = X[0]
        end = next(x for x in X[1:] if gap(x) * gap(start) < 0)
        wanted = 2e-7 * model.y_scale_[0]
        low, high = 0.0, 1.0
        while high - low > 1e-15 and not wanted / 2 < abs(gap(start + low * (end - start))) < 2 * wanted:
            middle = (low + high) / 2
            if gap(start + middle * (end - start)) * np.sign(gap(start)) > wanted:
                low = middle
            else:
                high = middle
        row = (start + low * (end - start))[None]
        assert 0 < two.predict(row, return_std=True)[1][0] < wanted
        return two, row

    return make


@pytest.fixture(scope="session")
def small():
    """Function that fits an estimator to a small problem: ``small(make, target)``; X is ``small.X``."""
    X, y = problem("yacht")
    X, y = X[:60, :3], y[:60]
    middle, high = np.quantile(y, [0.4, 0.7])
    targets = {"y": y, "two": np.c_[y, -(y**2)], "sign": y > middle, "three": np.digitize(y, [middle, high])}

    def fit(estimator, target="y"):
        return quietly(lambda: estimator.fit(X, targets[target]))

    fit.X, fit.targets = X, targets
    fit.regressor = lambda features, **options: DirectRegressor(features, 16, **options)
    fit.network = lambda sizes, **options: QuadraticBNNRegressor(sizes, n_restarts=1, max_iter=20, **options)
    fit.classifier = lambda features, **options: DirectClassifier(features, 16, **options)
    return fit


# --- small problems

RAW = {"features": Fourier(rank_inputs=False), "posterior": "sequential", "n_basis_functions": 80}


NETWORKS = {
    "one layer": {"hidden_layer_sizes": (4,)},
    "two layers": {"hidden_layer_sizes": (4, 3)},
    "three layers, shared levels, no bias": {
        "hidden_layer_sizes": (2, 1, 1),
        "n_regrids": 0,
        "bias": False,
        "n_levels": 4,
        "max_iter": 15,
    },
    "two layers, shared levels": {"hidden_layer_sizes": (5, 3), "n_regrids": 0, "whiten": False, "n_levels": 7},
}


def make_data(n=160, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * np.arange(1, d + 1) + 10
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_normal(n)
    return x, y


def fit_silently(estimator, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(*arguments)


@pytest.fixture(scope="session")
def data():
    """Function that makes X and y: ``data(n, d, seed)``."""
    return make_data


@pytest.fixture(scope="session")
def fit():
    """Function that fits an estimator without warnings: ``fit(estimator, X, y)``."""
    return fit_silently


@pytest.fixture(scope="session")
def raw():
    """Regressor in the raw basis."""
    return fit_silently(DirectRegressor(**RAW), *make_data())


@pytest.fixture(scope="session")
def decorrelated():
    """Regressor in the decorrelated basis."""
    return fit_silently(DirectRegressor(features=Fourier(rank_inputs=False), n_basis_functions=80), *make_data())


@pytest.fixture(params=NETWORKS)
def network_name(request):
    """Name of every network."""
    return request.param


@pytest.fixture(scope="session")
def network():
    """Function from the name of a network to it, fitted to two targets that follow three of four columns."""
    found = {}

    def get(name):
        if name not in found:
            x, y = make_data()
            x, y = np.c_[x, np.ones(len(x))], np.c_[y, 0.1 * (x[:, 0] - 10) ** 2 - 3]
            found[name] = (
                fit_silently(QuadraticBNNRegressor(**{"max_iter": 40, "n_restarts": 1} | NETWORKS[name]), x, y),
                x,
            )
        return found[name]

    return get
