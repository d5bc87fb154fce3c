"""A row is predicted with the same bits alone, in any batch, on any number of threads and at any instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from pydirect import (
    DirectClassifier,
    DirectCountRegressor,
    DirectRegressor,
    DirectStreamRegressor,
    DVIClassifier,
    DVIRegressor,
    MeanField,
    MonteCarloBNNClassifier,
    MonteCarloBNNRegressor,
    QuadraticBNNRegressor,
    Sequential,
    TrainingSchedule,
    _core,
)

N_ROWS, BATCHES = 100, (1, 2, 7)
rng = np.random.default_rng(0)
X = rng.standard_normal((160, 3))
SMOOTH = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]
Y = SMOOTH + 0.2 * (1 + np.abs(X[:, 1])) * rng.standard_normal(len(X))
SEVERAL = np.stack([Y, -Y, SMOOTH, Y**2, np.cos(Y)], axis=1)
BINARY, CLASSES = (Y > 0).astype(int), np.digitize(Y, [-0.5, 0.5])
COUNTS = np.random.default_rng(1).poisson(np.exp(SMOOTH))
NEW = np.random.default_rng(2).standard_normal((N_ROWS, 3)) * 1.5

BRIEF = TrainingSchedule(n_steps=20)

REGRESSORS = {
    "default": (DirectRegressor(n_basis_functions=60), Y),
    "large": (DirectRegressor(n_basis_functions=600, noise="constant", local=False), Y),
    "outputs": (DirectRegressor(n_basis_functions=40, noise="constant", local=False), SEVERAL),
    "linear": (DirectRegressor("linear"), Y),
    "polynomial": (DirectRegressor("polynomial"), Y),
    "fourier": (DirectRegressor("fourier", n_basis_functions=60), Y),
    "varying": (DirectRegressor(n_basis_functions=40, noise="varying"), Y),
    "student_t": (DirectRegressor(n_basis_functions=40, noise="student_t"), Y),
    "local": (DirectRegressor(n_basis_functions=40, noise="constant", local=16), Y),
    "transformed": (DirectRegressor(n_basis_functions=40, noise="constant", target_transform="log"), np.exp(Y)),
    "sequential": (DirectRegressor(n_basis_functions=40, posterior=Sequential(n_draws=20)), Y),
    "mean field": (DirectRegressor("linear", posterior=MeanField()), Y),
    "mixture": (DirectRegressor("linear", posterior=MeanField(n_components=2)), Y),
    "stream": (DirectStreamRegressor(n_basis_functions=40), Y),
    "quadratic network": (QuadraticBNNRegressor((4,), max_iter=20), Y),
    "dvi": (DVIRegressor((8,), schedule=BRIEF), Y),
    "sampled network": (MonteCarloBNNRegressor((8,), schedule=BRIEF), Y),
}
CLASSIFIERS = {
    "binary": (DirectClassifier(n_basis_functions=40), BINARY),
    "classes": (DirectClassifier(n_basis_functions=40), CLASSES),
    "sequential": (DirectClassifier(n_basis_functions=40, posterior=Sequential(n_draws=20)), CLASSES),
    "dvi": (DVIClassifier((8,), schedule=BRIEF), CLASSES),
    "sampled network": (MonteCarloBNNClassifier((8,), schedule=BRIEF), CLASSES),
}
OF_REGRESSORS = {
    "predict": lambda model, x: model.predict(x, return_std=True),
    "parts": lambda model, x: model.predict_parts(x),
    "interval": lambda model, x: model.predict_interval(x),
    "quantiles": lambda model, x: model.predict_quantiles(x),
    "density": lambda model, x: model.log_predictive_density(x, model.predict(NEW)[: len(x)]),
}
OF_CLASSIFIERS = {
    "probabilities": lambda model, x: model.predict_log_proba(x),
    "logit": lambda model, x: model.predict_logit(x, return_std=True),
    "set": lambda model, x: model.predict_set(x),
}
OF_COUNTS = {
    "predict": lambda model, x: model.predict(x),
    "log_rate": lambda model, x: model.predict_log_rate(x, return_std=True),
    "interval": lambda model, x: model.predict_interval(x),
}


def predictions(model, calls, x):
    """Return every prediction that the estimator has, rows first."""
    found = {}
    for name, call in calls.items():
        try:
            result = call(model, x)
        except (AttributeError, TypeError, ValueError):  # what it cannot predict
            continue
        for k, array in enumerate(result if isinstance(result, tuple) else (result,)):
            found[f"{name} {k}"] = np.asarray(array)
    return found


def require_same_bits(model, calls, fit_to):
    model = model.set_params(random_state=0).fit(X, fit_to)
    expected = predictions(model, calls, NEW)
    assert len(expected) >= 2
    for size in BATCHES:
        for begin in (0, 45, N_ROWS - size):
            rows = slice(begin, begin + size)
            for name, found in predictions(model, calls, NEW[rows]).items():
                if not name.startswith("density"):
                    np.testing.assert_array_equal(found, expected[name][rows], f"{name}, batches of {size}")
    before = _core.build_config()["isa"]
    try:
        for n_threads in (2, 3):
            model.set_params(n_threads=n_threads)
            for level in _core.isa_levels():
                _core.select_isa_level(level)
                for name, found in predictions(model, calls, NEW).items():
                    np.testing.assert_array_equal(found, expected[name], f"{name}, {n_threads} threads, {level}")
    finally:
        _core.select_isa_level(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressor_predicts_rows_with_the_same_bits_in_any_batch(name):
    require_same_bits(REGRESSORS[name][0], OF_REGRESSORS, REGRESSORS[name][1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier_predicts_rows_with_the_same_bits_in_any_batch(name):
    require_same_bits(CLASSIFIERS[name][0], OF_CLASSIFIERS, CLASSIFIERS[name][1])


def test_counts_are_predicted_with_the_same_bits_in_any_batch():
    require_same_bits(DirectCountRegressor(n_basis_functions=40), OF_COUNTS, COUNTS)
