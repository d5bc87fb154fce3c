"""Probabilities of classes in integers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from pydirect.quantized.integer.probabilities import Probabilities, power_of_two, ratio


def test_powers_of_two_are_those_of_real_numbers():
    u = np.concatenate([np.arange(0, 2**18, 7), [2**21, 2**30, 2**40]])
    exact = 2.0 ** (24 - u / 2.0**16)
    assert np.abs(power_of_two(u, 24) - exact).max() <= 1 + 2.2e-6 * 2**24


def test_ratios_are_rounded_to_the_nearest():
    rng = np.random.default_rng(0)
    whole = rng.integers(1, 2**31, 1000)
    part = (whole * rng.random(1000)).astype(np.int64)
    np.testing.assert_array_equal(ratio(part, whole, 15), np.floor(part / whole * 2**15 + 0.5))
    assert ratio(np.array([2**31]), 2**31, 15)[0] == 2**15


@pytest.mark.parametrize("n_classes", [2, 3, 10, 300])
@pytest.mark.parametrize("counts", [2.0**16, 2.0**20])
def test_probabilities_are_within_one_count_of_real_numbers(n_classes, counts):
    rng = np.random.default_rng(n_classes)
    logits = rng.standard_normal((60, n_classes - (n_classes == 2), 5)) * np.geomspace(0.1, 100, 60)[:, None, None]
    integers = np.rint(counts * logits).astype(np.int64)
    found = Probabilities.of(n_classes, counts).of_logits(integers)
    if n_classes == 2:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        np.testing.assert_array_equal(found.sum(axis=1), 2**15)
    exact = softmax(logits, axis=1).mean(axis=2)
    assert np.abs(found - 2**15 * exact).max() <= 1
    assert found.min() >= 0
    assert np.abs(found.sum(axis=1) - 2**15).max() <= n_classes / 2


def test_the_largest_difference_of_logits_has_probability_zero():
    found = Probabilities.of(2, 2.0**16).of_logits(np.array([[[2**31 - 1]], [[-(2**31)]]]))
    np.testing.assert_array_equal(found, [[0, 2**15], [2**15, 0]])
