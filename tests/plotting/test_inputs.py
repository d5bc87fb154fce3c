"""Displays of inputs: relevance, effects; calibration before and after."""

import inspect
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import partial_dependence

from pydirect import DirectClassifier, DirectRegressor, Nystroem
from pydirect.plotting import CalibrationDisplay, EffectDisplay, RelevanceDisplay, ReliabilityDisplay

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.standard_normal((150, 3)), columns=["depth", "slope", "age"])
Y = np.sin(2 * FRAME["depth"]) + FRAME["slope"] + 0.2 * RNG.standard_normal(150)
SEVERAL = DirectClassifier("linear").fit(FRAME, FRAME[["slope", "age"]] > 0)


@pytest.fixture(scope="module")
def model():
    return DirectRegressor(features=Nystroem(max_search_rows=100), n_basis_functions=40).fit(FRAME, Y)


def ticks(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_columns_come_in_the_order_of_their_relevance(model):
    display = RelevanceDisplay.from_estimator(model)
    largest = display.relevance.max(axis=1)
    assert ticks(display.ax_) == [display.names[j] for j in np.argsort(-largest)]
    assert display.relevance.shape == (3, 2)
    np.testing.assert_allclose(display.relevance.ravel("F"), 1 / model.features_.hyperparameters.length_scales)
    display.figure_.canvas.draw()


def test_effects_are_the_partial_dependence_of_scikit_learn(model):
    if "custom_values" not in inspect.signature(partial_dependence).parameters:
        pytest.skip("needs scikit-learn 1.7")
    display = EffectDisplay.from_estimator(model, FRAME, ["depth", 1], grid_resolution=12)
    for column, (name, values, mean, std) in enumerate(display.effects):
        feature = ("depth", 1)[column]
        expected = partial_dependence(model, FRAME, [feature], kind="average", custom_values={feature: values})
        assert name == FRAME.columns[column]
        np.testing.assert_allclose(values[[0, -1]], np.quantile(FRAME.iloc[:, column], [0.05, 0.95]))
        np.testing.assert_allclose(mean, expected["average"][0], rtol=1e-7, atol=1e-9)
        assert (std > 0).all()
    display.figure_.canvas.draw()


def test_effects_of_categories_and_of_two_values_are_points():
    def parts(X):
        colour, on = X.columns
        code = np.array([len(value) for value in colour.values], dtype=float)[colour.codes]
        return code + on, 0.1 * code, code

    table = pd.DataFrame({"colour": ["red", "green", "blue", "red"] * 3, "on": [True, False] * 6})
    display = EffectDisplay.from_estimator(SimpleNamespace(predict_parts=parts), table, ["colour", "on"])
    assert display.effects[0][1].tolist() == ["blue", "green", "red"]
    np.testing.assert_array_equal(display.effects[0][2], [4.5, 5.5, 3.5])
    labels = [[text.get_text() for text in ax.get_xticklabels()] for ax in display.ax_]
    assert labels == [["blue", "green", "red"], ["0", "1"]]
    display.figure_.canvas.draw()


def test_effects_are_drawn_of_the_most_frequent_texts():
    texts = np.repeat([f"t{k:02}" for k in range(30)], np.arange(30, 0, -1))
    parts = SimpleNamespace(predict_parts=lambda X: [X.columns[0].codes * 1.0] * 3)
    display = EffectDisplay.from_estimator(parts, pd.DataFrame({"text": texts[::-1]}), ["text"])
    assert display.effects[0][1].tolist() == [f"t{k:02}" for k in range(20)]


def test_calibration_is_compared_with_what_it_was(model):
    calibrated = DirectRegressor("linear").fit(FRAME[:50], Y[:50]).calibrate(FRAME[50:100], Y[50:100])
    display = CalibrationDisplay.before_and_after(calibrated, FRAME[100:], Y[100:])
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels[-2:] == ["before calibration", f"after: deviations × {calibrated.calibration_scale_:.3g}"]
    assert calibrated.calibration_scale_ != 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RelevanceDisplay(["a"], [1.0, 2.0]), "relevance must have a row for each of 1 names"),
        (lambda: RelevanceDisplay(["a"], [1.0]).plot(max_columns=0), "max_columns must be"),
        (lambda: RelevanceDisplay.from_estimator(DirectRegressor("linear").fit(FRAME, Y)), "must have a kernel"),
        (lambda: RelevanceDisplay.from_estimator(SEVERAL), "estimator must be of one column of labels"),
        (lambda: EffectDisplay.from_estimator(SEVERAL, FRAME, [0]), "estimator must be of one column of labels"),
        (lambda: ReliabilityDisplay.from_estimator(SEVERAL, FRAME, Y), "estimator must be of one column of labels"),
        (lambda: EffectDisplay([]), "effects must not be empty"),
        (lambda: EffectDisplay([("x", [1.0], [1.0], [1.0])]).plot([1, 2]), "ax must be 1 axes, got 2"),
        (lambda: EffectDisplay.from_estimator(object(), FRAME, [0]), "must have predict_parts"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_effects_of_a_classifier_are_those_on_a_probability():
    labels = np.where(FRAME["depth"] > 0.8, "deep", np.where(FRAME["slope"] > 0, "steep", "flat"))
    model = DirectClassifier("linear").fit(FRAME, labels)
    display = EffectDisplay.from_estimator(model, FRAME, ["depth"], grid_resolution=6)
    ((_, values, mean, std),) = display.effects
    expected = partial_dependence(model, FRAME, ["depth"], kind="average", custom_values={"depth": values})
    np.testing.assert_allclose(mean, expected["average"][-1], rtol=1e-9)
    assert (std > 0).all() and display.ax_[0].get_ylabel() == "probability of steep"
    first = EffectDisplay.from_estimator(model, FRAME, ["depth"], grid_resolution=6, output=0)
    assert first.ax_[0].get_ylabel() == "probability of deep" and (np.diff(first.effects[0][2]) > 0).all()


def test_the_columns_that_move_predictions_most_are_drawn_by_default():
    X = np.random.default_rng(1).standard_normal((80, 6))
    effects = np.array([0.0, 3.0, 0.1, -2.0, 1.0, 4.0])

    def parts(rows):
        return np.column_stack(rows.columns) @ effects, np.ones(len(rows)), np.ones(len(rows))

    display = EffectDisplay.from_estimator(SimpleNamespace(predict_parts=parts), X)
    assert [name for name, *_ in display.effects] == ["column 1", "column 3", "column 4", "column 5"]
