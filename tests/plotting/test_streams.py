"""The running log score."""

from __future__ import annotations

import numpy as np
import pytest

from pydirect.plotting import LogScoreDisplay
from pydirect.plotting.streams import running_mean


def test_running_means_are_weighted_means_of_what_is_known():
    values = np.array([np.nan, 1.0, 3.0, np.nan, 2.0])
    found = running_mean(values, 1.0)
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(1.0)
    assert found[2] == pytest.approx((0.5 * 1 + 3) / 1.5)
    assert found[4] == pytest.approx((0.125 * 1 + 0.25 * 3 + 2) / 1.375)


def test_one_line_per_model_and_one_per_change():
    pytest.importorskip("matplotlib").use("Agg")
    display = LogScoreDisplay([np.zeros(9), np.ones(9)], names=["a", "b"], changes=[4]).plot()
    assert [line.get_label() for line in display.ax_.lines[:2]] == ["a", "b"]
    assert len(display.ax_.lines) == 3
    display.figure_.clear()


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="half_life must be positive"):
        LogScoreDisplay([np.zeros(3)], half_life=0.0)
    with pytest.raises(ValueError, match="names must be 1 strings"):
        LogScoreDisplay([np.zeros(3)], names=["a", "b"])
    with pytest.raises(ValueError, match="log_densities must be vectors"):
        LogScoreDisplay([np.zeros((3, 2))])
