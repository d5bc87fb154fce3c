"""Displays of contributions of columns, and of effects of rows and of groups."""

from itertools import pairwise

import numpy as np
import pytest

from pydirect import DirectMixedRegressor, DirectRegressor
from pydirect.explain import RowInfluence, shapley_values
from pydirect.plotting import RandomEffectsDisplay, RowInfluenceDisplay, ShapleyDisplay

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
Y = X @ [1.0, -3.0, 0.0, 0.5] + 0.1 * RNG.standard_normal(60)
MODEL = DirectRegressor("linear").fit(X, np.c_[Y, -Y])


def ticks(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def bars(ax):
    """Begin and end of every bar, by its place from the top."""
    found = {round(p.get_y() + p.get_height() / 2): p for p in ax.patches}
    return [(found[k].get_x(), found[k].get_x() + found[k].get_width()) for k in sorted(found)]


def test_a_waterfall_leads_from_the_average_to_the_row():
    values = shapley_values(MODEL, X[:3])
    display = ShapleyDisplay(values, output=1).plot(row=2, target_name="speed (m/s)")
    own = values.values[2, :, 1]
    order = np.argsort(-np.abs(own))
    assert ticks(display.ax_) == [f"column {j} = {X[2, j]:.4g}" for j in order]
    drawn = bars(display.ax_)
    assert drawn[0][1] == pytest.approx(values.prediction[2, 1]) and drawn[-1][0] == pytest.approx(values.base[1])
    np.testing.assert_allclose([end - begin for begin, end in drawn], own[order])
    for (begin, _), (_, end) in pairwise(drawn):
        assert begin == pytest.approx(end)
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert "its standard deviation" in labels and display.ax_.get_xlabel() == "speed (m/s)"
    display.figure_.canvas.draw()


def test_bars_are_mean_sizes_over_all_rows():
    values = shapley_values(MODEL, X[:9])
    display = ShapleyDisplay(values).plot(kind="bar", max_columns=3)
    size = np.sort(np.abs(values.values[..., 0]).mean(axis=0))[::-1]
    np.testing.assert_allclose([end for _, end in bars(display.ax_)], size[:3])
    assert display.ax_.get_title() == "3 of 4 columns"
    display.figure_.canvas.draw()


def test_rows_of_largest_effect_come_first():
    effects = RowInfluence(MODEL, X, np.c_[Y, -Y]).leave_one_out(X[:2])
    display = RowInfluenceDisplay(effects, place=1, output=1).plot(max_rows=5)
    own = effects.mean[1, :, 1]
    order = np.argsort(-np.abs(own))[:5]
    assert ticks(display.ax_) == [f"row {i}" for i in order]
    again = RowInfluenceDisplay.from_estimator(MODEL, X, np.c_[Y, -Y], X[1:2], output=1, max_rows=5)
    assert ticks(again.ax_) == ticks(display.ax_)
    named = RowInfluenceDisplay(effects, labels=[f"run {i}" for i in range(60)]).plot()
    assert len(ticks(named.ax_)) == 10 and ticks(named.ax_)[0].startswith("run ")
    named.figure_.canvas.draw()


def test_effects_of_groups_stand_in_their_order_with_intervals():
    shop = np.array([f"s{i}" for i in RNG.integers(0, 12, 60)])
    model = DirectMixedRegressor(features="linear", slopes=[1]).fit(X, Y + (shop == "s3"), shop)
    display, found = RandomEffectsDisplay.from_estimator(model, target_name="sales"), model.random_effects_
    order = np.argsort(-found["mean"][:, 0], kind="stable")
    assert ticks(display.ax_) == found["group"][order].tolist()
    assert display.ax_.get_xlabel() == "intercept of the group (sales)"
    apart = int((np.abs(found["mean"][:, 0]) > 1.6449 * found["std"][:, 0]).sum())
    counts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert counts == [
        f"90% intervals with zero: {len(order) - apart} groups",
        f"90% intervals without zero: {apart} groups",
    ]
    slopes = RandomEffectsDisplay.from_estimator(model, effect=1, max_groups=5)
    assert slopes.ax_.get_xlabel().startswith("slope of column 1") and len(ticks(slopes.ax_)) == 5
    assert slopes.ax_.get_title(loc="right") == f"5 of {len(order)} groups"
    with pytest.raises(ValueError, match="effect must be from 0 to 1, got 2"):
        RandomEffectsDisplay.from_estimator(model, effect=2)
    with pytest.raises(ValueError, match="groups must not be empty"):
        RandomEffectsDisplay([], [], [])
    slopes.figure_.canvas.draw()
    both = DirectMixedRegressor(features="linear").fit(X, Y, np.column_stack([shop, np.arange(60) % 3]))
    assert set(ticks(RandomEffectsDisplay.from_estimator(both, factor=1).ax_)) == {"0", "1", "2"}
    assert len(ticks(RandomEffectsDisplay.from_estimator(both).ax_)) == len(order)


def test_what_does_not_fit_is_refused():
    values = shapley_values(MODEL, X[:2])
    influence = RowInfluence(MODEL, X, np.c_[Y, -Y])
    effects = influence.leave_one_out(X[:2])
    with pytest.raises(ValueError, match="output must be from 0 to 1, got 2"):
        ShapleyDisplay(values, output=2)
    with pytest.raises(ValueError, match="row must be below 2, the number of rows explained, got 2"):
        ShapleyDisplay(values).plot(row=2)
    with pytest.raises(ValueError, match="kind must be one of 'waterfall', 'bar', got 'beeswarm'"):
        ShapleyDisplay(values).plot(kind="beeswarm")
    with pytest.raises(ValueError, match="place must be below 2, the number of predictions, got 2"):
        RowInfluenceDisplay(effects, place=2)
    with pytest.raises(ValueError, match="labels must be one per training row, 60, got 1"):
        RowInfluenceDisplay(effects, labels=["a"])
    alone = DirectRegressor("linear").fit(X, Y)
    with pytest.raises(ValueError, match="effects must be of rows one by one"):
        RowInfluenceDisplay(RowInfluence(alone, X, Y).leave_out([1, 2], X[:2]))
