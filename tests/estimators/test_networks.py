"""What all estimators of networks promise: scikit-learn's rules, predictions in every form, tables, files, threads."""

import pickle
import tracemalloc
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

import pydirect
from pydirect import (
    Columns,
    DVIClassifier,
    DVIRegressor,
    MonteCarloBNNClassifier,
    MonteCarloBNNRegressor,
    QuadraticBNNRegressor,
    TrainingSchedule,
)
from pydirect.statistics.gaussian import PREDICTION_BYTES

DVI = partial(DVIRegressor, hidden_layer_sizes=(4,), schedule=TrainingSchedule(n_steps=150))
SAMPLED = partial(MonteCarloBNNRegressor, hidden_layer_sizes=(4,), n_draws=4, schedule=TrainingSchedule(n_steps=150))
QUADRATIC = partial(QuadraticBNNRegressor, hidden_layer_sizes=(3,), n_restarts=1, n_regrids=1, max_iter=60)
DVI_CLASSES = partial(DVIClassifier, hidden_layer_sizes=(4,), schedule=TrainingSchedule(n_steps=100))
SAMPLED_CLASSES = partial(
    MonteCarloBNNClassifier, hidden_layer_sizes=(4,), n_draws=4, schedule=TrainingSchedule(n_steps=60)
)
REGRESSORS = {"dvi": DVI, "monte carlo": SAMPLED, "quadratic": QUADRATIC}
CLASSIFIERS = {"dvi": DVI_CLASSES, "monte carlo": SAMPLED_CLASSES}
SHORT = {"schedule": TrainingSchedule(n_steps=60)}
RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-1, 1, (90, 2)), RNG.uniform(-1, 1, (25, 2))
Y = 3 + 2 * X[:, 0] + (0.05 + 0.4 * (X[:, 1] > 0)) * RNG.standard_normal(90)
FAR = np.array([[1e300, -1e300], [1e9, 1e9]])
IRIS = load_iris(return_X_y=True)


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(params=REGRESSORS)
def regressor(request):
    return REGRESSORS[request.param]


def test_pickle_clone_and_grid_search_work():
    # Weights that a prior keeps at zero predict a constant.
    search = GridSearchCV(DVI(), {"prior": [1e-8, "empirical_bayes"]}, cv=2).fit(X, Y)
    assert search.best_params_["prior"] == "empirical_bayes"
    search = GridSearchCV(QUADRATIC(), {"hidden_layer_sizes": [(2,), (3,)]}, cv=2).fit(X, Y)
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


# ---------------------------------------- regression


def test_far_away_predictions_and_those_of_constants_are_finite(regressor):
    assert np.isfinite(regressor().fit(np.ones((30, 2)), RNG.standard_normal(30)).predict(np.ones((2, 2)))).all()
    np.testing.assert_allclose(regressor().fit(X, np.full(90, 7.0)).predict(NEW), 7.0, atol=0.5)
    model = regressor().fit(X, Y)
    for values in (*model.predict(FAR, return_std=True), *model.predict_interval(FAR)):
        assert np.isfinite(values).all()


@pytest.mark.parametrize("model", [DVI(**SHORT), SAMPLED(**SHORT)], ids=["dvi", "monte carlo"])
def test_prior_variances_are_those_of_every_network(model):
    model = clone(model).fit(X, np.column_stack([Y, -X[:, 1]]))
    networks = model.posteriors_
    found = np.reshape(model.prior_variances_, (len(networks), 4))
    np.testing.assert_array_equal(found, [own.network.prior_variances(own.theta) for own in networks])
    alone = clone(model).fit(X, Y)
    np.testing.assert_array_equal(alone.prior_variances_, alone.posteriors_[0].prior_variances)


@pytest.mark.parametrize(("name", "line"), [("dvi", "start   2 of 2"), ("quadratic", "round   1 of 2, best ELBO")])
def test_progress_is_reported_when_asked(name, line, capsys):
    REGRESSORS[name](verbose=1, **({"n_restarts": 2} if name == "dvi" else {})).fit(X, Y)
    assert line in capsys.readouterr().err


# ---------------------------------------- classes


@pytest.mark.parametrize(
    "model",
    [DVI_CLASSES(), *(SAMPLED_CLASSES(posterior=law) for law in ("normal", "laplace", "logistic", "radial"))],
    ids=lambda model: f"{type(model).__name__} {getattr(model, 'posterior', '')}",
)
def test_iris_is_learned(model):
    (train, labels), (x, y) = ([part[k::2] for part in IRIS] for k in (0, 1))
    model = clone(model).set_params(schedule=TrainingSchedule(n_steps=400)).fit(train, labels)
    assert model.score(x, y) > 0.9


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_two_classes_are_learned(name):
    schedule = TrainingSchedule(n_steps=300)
    model = CLASSIFIERS[name](schedule=schedule).fit(X, np.where(X[:, 0] + X[:, 1] > 0, "yes", "no"))
    assert model.score(NEW, np.where(NEW.sum(axis=1) > 0, "yes", "no")) > 0.85


@pytest.mark.parametrize("model", [DVI_CLASSES(), SAMPLED_CLASSES(n_predictive_draws=100)], ids=["moments", "draws"])
def test_predictions_of_classes_stay_within_their_memory(model):
    model = clone(model).set_params(schedule=TrainingSchedule(n_steps=5)).fit(X, np.arange(90) % 10)
    many = np.resize(NEW, (3000, 2))
    for predict in (model.predict_proba, lambda x: model.predict_logit(x, True), lambda x: model.sample_proba(x, 20)):
        predict(many[:20])
        tracemalloc.start()
        result = predict(many)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        own = sum(part.nbytes for part in result) if isinstance(result, tuple) else result.nbytes
        assert peak < 1.3 * PREDICTION_BYTES + 3 * own


# ---------------------------------------- tables with text and gaps

N = 60
COLOUR = RNG.choice(np.array(["red", "green", None], dtype=object), N)
SIZE = np.where(RNG.random(N) < 0.2, np.nan, RNG.standard_normal(N))
TABLE = np.column_stack([COLOUR, SIZE.astype(object), RNG.standard_normal(N).astype(object)])
AMOUNT = (COLOUR == "red") + np.nan_to_num(SIZE) + 0.1 * RNG.standard_normal(N)
OF_TABLES = [DVI(**SHORT), SAMPLED(**SHORT), QUADRATIC(hidden_layer_sizes=(2,)), DVI_CLASSES(**SHORT)]


def amounts_for(model):
    return np.where(AMOUNT > 0.5, "much", "little") if hasattr(model, "predict_proba") else AMOUNT


@pytest.mark.parametrize("model", OF_TABLES, ids=lambda model: type(model).__name__)
def test_text_and_gaps_are_encoded_and_survive_files_and_pickles(tmp_path, model):
    model = clone(model).fit(TABLE, amounts_for(model))
    assert model.n_features_in_ == 3
    assert model.columns_.categories == (("green", "red", None), None, None) and model.columns_.lacking == (1,)
    model.save(tmp_path / "m")
    for same in (pydirect.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(same.predict(TABLE), model.predict(TABLE))
        assert same.columns_.names_out == model.columns_.names_out


def test_blocks_of_numbers_do_not_follow_a_fit_to_a_table():
    model = QUADRATIC(hidden_layer_sizes=(2,)).fit(TABLE, AMOUNT)
    numbers = np.nan_to_num(TABLE[:, 1:].astype(np.float64))
    with pytest.raises(ValueError, match="the earlier rows must be known to go on"):
        model.partial_fit(numbers, AMOUNT)
    model = clone(model).partial_fit(numbers[:30], AMOUNT[:30]).partial_fit(numbers[30:], AMOUNT[30:])
    assert model.columns_.is_plain and model.predict(numbers).shape == (N,)


@pytest.mark.parametrize("model", OF_TABLES, ids=lambda model: type(model).__name__)
def test_columns_say_what_becomes_of_gaps(model):
    numbers = np.column_stack([RNG.integers(0, 3, N).astype(float), SIZE])
    with pytest.raises(ValueError, match="NaN"):
        clone(model).set_params(columns=Columns(missing="raise")).fit(numbers, amounts_for(model))
