"""Displays: what they draw, labels, and wrong arguments."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import BayesianRidge

from pydirect import DirectSurvivalRegressor
from pydirect.estimators.direct_classifier import DirectClassifier
from pydirect.plotting import (
    CalibrationDisplay,
    LogScoreDisplay,
    PredictionIntervalDisplay,
    ReliabilityDisplay,
    SurvivalDisplay,
)
from pydirect.plotting.common import fitted
from pydirect.plotting.predictions import running_mean
from pydirect.predictive import PredictiveDistribution


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["depth", "slope"])
    y = X["depth"] + 0.4 * rng.normal(size=60)
    return BayesianRidge().fit(X, y), X, y


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("kind", ["sorted", "actual_vs_predicted", "feature", "coverage", "pit"])
def test_every_display_renders_without_a_warning(kind):
    rng = np.random.default_rng(5)
    y = rng.normal(size=30)
    predicted = np.zeros(30), np.ones(30)
    if kind in ("sorted", "actual_vs_predicted", "feature"):
        display = PredictionIntervalDisplay.from_predictions(y, predicted, kind=kind, feature=("time (s)", y))
    else:
        display = CalibrationDisplay.from_predictions(y, predicted, kind=kind)
    display.figure_.canvas.draw()


# Prediction intervals


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        ("sorted", "row, in order of prediction"),
        ("actual_vs_predicted", "predicted yield (t/ha)"),
        ("feature", "slope"),
    ],
)
def test_intervals_are_labelled_with_units_and_coverage(kind, label, regression):
    model, X, y = regression
    feature = 1 if kind == "feature" else None
    display = PredictionIntervalDisplay.from_estimator(
        model, X, y, feature=feature, kind=kind, target_name="yield (t/ha)"
    )
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == (label, "yield (t/ha)")
    mean, std = model.predict(X, return_std=True)
    expected = PredictiveDistribution.gaussian(mean, std**2).interval(0.9)
    np.testing.assert_array_equal([display.lower, display.upper], expected)
    covered = np.mean((display.lower <= y) & (y <= display.upper))
    assert texts(display.ax_)[0] == f"90% interval: {covered:.1%} of 60 inside"
    assert display.figure_ is display.ax_.figure


def test_every_observation_is_drawn_once_inside_or_outside():
    y = np.array([0.0, 5.0, 1.0, -5.0])
    display = PredictionIntervalDisplay(y, np.zeros(4), -2.0 * np.ones(4), 2.0 * np.ones(4), 0.9).plot()
    inside, outside = (points.get_offsets()[:, 1] for points in display.ax_.collections[1:])
    assert (sorted(inside), sorted(outside)) == ([0.0, 1.0], [-5.0, 5.0])


def test_many_rows_are_thinned_but_all_counted():
    rng = np.random.default_rng(2)
    y = rng.normal(size=4000)
    display = PredictionIntervalDisplay.from_predictions(y, (np.zeros(4000), np.ones(4000)), max_points=100)
    bars, inside, outside = display.ax_.collections
    assert len(bars.get_segments()) == len(inside.get_offsets()) + len(outside.get_offsets()) == 100
    assert "of 4000 inside" in texts(display.ax_)[0]


# Calibration


def test_pit_histogram_has_unit_area():
    display = CalibrationDisplay(np.random.default_rng(3).random(500)).plot(kind="pit", bins=8)
    steps = next(patch for patch in display.ax_.patches if patch.get_label() == "observed")
    values, edges, _ = steps.get_data()
    assert np.sum(values * np.diff(edges)) == pytest.approx(1.0)
    assert display.ax_.get_ylim()[1] > values.max()


@pytest.mark.parametrize("kind", ["coverage", "pit"])
def test_curves_on_shared_axes_differ_in_colour_and_share_the_reference(kind):
    rng = np.random.default_rng(4)
    first = CalibrationDisplay(rng.random(50), name="a").plot(kind=kind)
    second = CalibrationDisplay(rng.beta(0.2, 0.2, size=50), name="b").plot(first.ax_, kind=kind)
    assert texts(second.ax_) == ["95% by chance, n = 50", "calibrated", "a", "b"]
    artists = [artist for artist in second.ax_.get_children() if artist.get_label() in ("a", "b")]
    colours = [artist.get_color() if kind == "coverage" else artist.get_edgecolor() for artist in artists]
    assert colours[0] != colours[1]
    if kind == "pit":
        assert second.ax_.get_ylim()[1] > max(artist.get_data().values.max() for artist in artists)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_reliability_is_drawn_with_the_counts_of_its_bins(n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    y = (X[:, 0] + 0.5 * rng.logistic(size=80) > 0) + (n_classes - 2) * (X[:, 1] > 1)
    model = DirectClassifier("linear").fit(X, y)
    display = ReliabilityDisplay.from_estimator(model, X, y)
    assert 0 <= display.calibration_error < 0.3
    (line,) = [artist for artist in display.ax_.get_lines() if artist.get_gid() == "pydirect"]
    x, height = line.get_data()
    assert ((x >= 0) & (x <= 1) & (height >= 0) & (height <= 1)).all()
    counts = [int(text.get_text()) for text in display.ax_.texts]
    assert len(counts) == len(x) and sum(counts) == len(y) * (1 if y.max() == 1 else 3)
    assert display.from_predictions(y > 0, model.predict_proba(X)[:, 0], ax=display.ax_).ax_ is display.ax_


# Wrapped, missing and wrong


def test_fitted_attributes_are_found_inside_searches_and_pipelines():
    inner = SimpleNamespace(features_="basis")

    class Pipeline:
        steps = [("only", inner)]  # noqa: RUF012

        def __getitem__(self, index):
            return inner

    assert fitted(SimpleNamespace(best_estimator_=Pipeline()), "features_") == "basis"
    with pytest.raises(AttributeError, match="must be fitted and have features_, got BayesianRidge without"):
        fitted(BayesianRidge(), "features_")


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("PredictionIntervalDisplay", PredictionIntervalDisplay([0.0], [0.0], [0.0], [0.0], 0.9).plot),
        ("CalibrationDisplay", CalibrationDisplay([0.5]).plot),
    ],
)
def test_a_missing_matplotlib_is_named_with_the_remedy(name, draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=rf'{name} requires matplotlib. Install it with: pip install "pydirect\[plot\]"'
    ):
        draw()


ONE, TWO = np.ones(1), np.ones(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PredictionIntervalDisplay(TWO, ONE, TWO, TWO, 0.9), r"mean must be a vector of length 2, got \(1,\)"),
        (lambda: PredictionIntervalDisplay(TWO, TWO, TWO, [1, np.nan], 0.9), "upper must be finite"),
        (lambda: PredictionIntervalDisplay(TWO, TWO, TWO, TWO, 0.9).plot(kind="feature"), "feature must be given"),
        (
            lambda: PredictionIntervalDisplay(TWO, TWO, TWO, TWO, 0.9).plot(kind="bars"),
            "kind must be one of 'sorted', .*'bars'",
        ),
        (
            lambda: PredictionIntervalDisplay.from_predictions(np.eye(2), (np.eye(2), np.eye(2))),
            "y_true and predicted must have one output, got 2 and 2",
        ),
        (lambda: CalibrationDisplay([0.5, 1.2]), "pit must hold values between 0 and 1, got"),
        (lambda: CalibrationDisplay([0.5]).plot(kind="roc"), "kind must be one of 'coverage', 'pit', got 'roc'"),
        (lambda: LogScoreDisplay([TWO], half_life=0.0), "half_life must be positive"),
        (lambda: LogScoreDisplay([TWO], names=["a", "b"]), "names must be 1 strings"),
        (lambda: LogScoreDisplay([np.eye(2)]), "log_densities must be vectors"),
        (lambda: SurvivalDisplay(TWO, np.ones((1, 2)), np.ones((2, 1, 3))), r"survival must have shape \(1, 2\)"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Survival


@pytest.mark.parametrize("likelihood", ["normal", "extreme"])
def test_survival_curves_lie_in_bands_that_widen_far_from_the_rows(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 1))
    time, end = np.exp(X[:, 0] + 0.3 * rng.standard_normal(120)), rng.uniform(0, 6, 120)
    model = DirectSurvivalRegressor(likelihood=likelihood).fit(X, np.minimum(time, end), event=time <= end)
    display = SurvivalDisplay.from_estimator(model, [[0.0], [4.0]], names=["near", "far"], time_name="time (months)")
    np.testing.assert_allclose(display.survival, model.predict_survival([[0.0], [4.0]], display.times))
    assert (np.diff(display.survival) <= 1e-12).all() and (display.survival[:, 0] == 1).all()
    low, high = display.ends
    assert (low <= display.survival + 0.02).all() and (display.survival <= high + 0.02).all()
    near, far = (high - low).max(axis=1)
    assert near < far
    assert texts(display.ax_) == ["near", "far", "90% interval of the function"]
    at_one = SurvivalDisplay.from_estimator(model, [[0.0]], [1.0, 2.0], level=0.5)
    assert (at_one.ends[0] < at_one.ends[1]).all() and at_one.ax_.get_xlim() == (1.0, 2.0)
    display.figure_.canvas.draw()


def test_running_means_are_weighted_means_of_what_is_known():
    values = np.array([np.nan, 1.0, 3.0, np.nan, 2.0])
    found = running_mean(values, 1.0)
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(1.0)
    assert found[2] == pytest.approx((0.5 * 1 + 3) / 1.5)
    assert found[4] == pytest.approx((0.125 * 1 + 0.25 * 3 + 2) / 1.375)
