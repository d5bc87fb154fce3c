import numpy as np
import pytest

from pydirect.linear.leave_one_out import jackknife_plus

RNG = np.random.default_rng(0)
MEAN, SPREAD = RNG.standard_normal(5), 1 + RNG.random(5)
SHARES, SCORES = 0.1 * RNG.standard_normal((5, 19)), RNG.random(19)


def interval(level, weights=None, scores=SCORES, shares=SHARES):
    return jackknife_plus(MEAN, SPREAD, shares, scores, np.ones(len(scores)) if weights is None else weights, level)


@pytest.mark.parametrize(("level", "rank"), [(0.9, 2), (0.95, 1), (0.8, 4), (0.83, 3)])
def test_bounds_are_the_ranks_of_the_definition(level, rank):
    lower, upper = interval(level)
    means = MEAN[:, None] - SHARES
    np.testing.assert_array_equal(lower, np.sort(means - SPREAD[:, None] * SCORES, axis=1)[:, rank - 1])
    np.testing.assert_allclose(upper, np.sort(means + SPREAD[:, None] * SCORES, axis=1)[:, -rank], rtol=1e-15)


def test_rows_count_by_their_weights():
    counts = RNG.integers(1, 4, 19)
    found = interval(0.8, counts.astype(float))
    for sign, bounds in zip((-1, 1), found, strict=True):
        ends = sign * (MEAN[:, None] - SHARES) + SPREAD[:, None] * SCORES  # outwards
        for bound, values in zip(sign * bounds, ends, strict=True):
            beyond, at = counts[values > bound].sum(), counts[values >= bound].sum()
            following = values[values < bound].max()
            rank = 0.2 * (counts.sum() + 1)
            assert beyond < at <= rank < counts[values >= following].sum()


def test_whole_weights_reach_at_least_as_far_as_repeated_rows():
    weights = RNG.integers(1, 4, 19)
    lower, upper = interval(0.9, weights.astype(float))
    low, high = interval(0.9, scores=np.repeat(SCORES, weights), shares=np.repeat(SHARES, weights, axis=1))
    assert (lower <= low).all() and (high <= upper).all() and (upper - lower < 1.5 * (high - low)).all()


def test_one_heavy_row_bounds_alone():
    weights = np.where(np.arange(19) == SCORES.argmax(), 1e6, 1.0)
    lower, upper = interval(0.5, weights, shares=np.zeros((5, 19)))
    np.testing.assert_allclose(upper - lower, 2 * SPREAD * SCORES.max())


def test_levels_between_residuals_are_refused():
    with pytest.raises(ValueError, match=r"level must be at most 0\.95, which 19 residuals resolve, got 0\.96"):
        interval(0.96)
