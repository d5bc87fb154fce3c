"""Networks of tables with text and gaps: fits, files and pickles, exports."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import pydirect
from pydirect import Columns, TrainingSchedule
from pydirect.estimators.dvi import DVIClassifier, DVIRegressor
from pydirect.estimators.monte_carlo_bnn import MonteCarloBNNRegressor
from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor

RNG = np.random.default_rng(0)
N = 60
COLOUR = RNG.choice(np.array(["red", "green", None], dtype=object), N)
SIZE = np.where(RNG.random(N) < 0.2, np.nan, RNG.standard_normal(N))
X = np.column_stack([COLOUR, SIZE.astype(object), RNG.standard_normal(N).astype(object)])
Y = (COLOUR == "red") + np.nan_to_num(SIZE) + 0.1 * RNG.standard_normal(N)

MODELS = [
    QuadraticBNNRegressor(hidden_layer_sizes=(2,), n_restarts=1),
    DVIRegressor(hidden_layer_sizes=(3,), schedule=TrainingSchedule(n_steps=50)),
    MonteCarloBNNRegressor(hidden_layer_sizes=(3,), schedule=TrainingSchedule(n_steps=50)),
    DVIClassifier(hidden_layer_sizes=(3,), schedule=TrainingSchedule(n_steps=50)),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_text_and_gaps_are_encoded_and_survive_files_and_pickles(tmp_path, model):
    y = np.where(Y > 0.5, "much", "little") if hasattr(model, "predict_proba") else Y
    model.fit(X, y)
    assert model.n_features_in_ == 3
    assert model.columns_.categories == (("green", "red", None), None, None) and model.columns_.lacking == (1,)
    model.save(tmp_path / "m")
    for same in (pydirect.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(same.predict(X), model.predict(X))
        assert same.columns_.names_out == model.columns_.names_out


def test_samples_of_a_network_take_encoded_rows():
    model = QuadraticBNNRegressor(hidden_layer_sizes=(2,), n_restarts=1).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    own = model.quantize(64).predict(model.columns_.encode(X))
    assert np.sqrt(np.mean(((own - mean) / std) ** 2)) < 0.5


def test_blocks_of_numbers_do_not_follow_a_fit_to_a_table():
    model = QuadraticBNNRegressor(hidden_layer_sizes=(2,), n_restarts=1).fit(X, Y)
    numbers = np.nan_to_num(X[:, 1:].astype(np.float64))
    with pytest.raises(ValueError, match="the earlier rows must be known to go on"):
        model.partial_fit(numbers, Y)
    model = clone(model).partial_fit(numbers[:30], Y[:30]).partial_fit(numbers[30:], Y[30:])
    assert model.columns_.is_plain and model.predict(numbers).shape == (N,)


def test_columns_say_what_becomes_of_gaps_and_which_numbers_are_categories():
    """Every estimator of networks takes `Columns`."""
    numbers = np.column_stack([RNG.integers(0, 3, N).astype(float), SIZE])
    y = np.where(Y > 0.5, "much", "little")
    for model in MODELS:
        targets = y if hasattr(model, "predict_proba") else Y
        with pytest.raises(ValueError, match="NaN"):
            clone(model).set_params(columns=Columns(missing="raise")).fit(numbers, targets)
