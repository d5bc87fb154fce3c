"""Recombination of weighted points: the same sums from few of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pydirect.quadratic.recombination import recombine


@st.composite
def weighted_rows(draw):
    """Integer features, hence duplicates, zeros and dependent columns, with weights down to zero."""
    n, d = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    features = draw(arrays(float, (n, d), elements=st.integers(-4, 4)))
    return features, draw(arrays(float, n, elements=st.floats(0.0, 10.0, allow_subnormal=False)))


@given(weighted_rows())
def test_recombination_keeps_every_sum_with_few_rows(problem):
    features, weights = problem
    got = recombine(features, weights)
    assert (got >= 0).all()
    assert (got > 0).sum() <= features.shape[1]
    assert not got[weights == 0].any()
    scale = np.abs(features).T @ weights
    np.testing.assert_allclose(features.T @ got, features.T @ weights, rtol=1e-11, atol=1e-12 * (1e-300 + scale.max()))


@pytest.mark.parametrize("n_features", [20, 33, 70])
def test_recombination_pivots_in_blocks(n_features):
    features = np.column_stack([np.ones(500), np.random.default_rng(0).standard_normal((500, n_features - 1))])
    weights = np.random.default_rng(1).exponential(size=500)
    got = recombine(features, weights)
    assert (got > 0).sum() <= n_features
    assert (got >= 0).all()
    np.testing.assert_allclose(features.T @ got, features.T @ weights, rtol=1e-12, atol=1e-11)


def test_recombination_validates():
    with pytest.raises(ValueError, match="weights must not be negative, got -1"):
        recombine(np.ones((2, 1)), [1.0, -1.0])
    with pytest.raises(ValueError, match=r"weights must have shape \(2,\)"):
        recombine(np.ones((2, 1)), [1.0])
