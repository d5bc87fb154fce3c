import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from scipy.special import ndtri

from pydirect.features.inputs import MAX_KNOTS, InputMap, InputRotation
from pydirect.statistics.gaussian import weighted_location_scale


@pytest.fixture
def x():
    rng = np.random.default_rng(0)
    return np.c_[rng.standard_normal(50), np.exp(3 * rng.standard_normal(50)), rng.integers(0, 3, 50), np.full(50, 4.0)]


def test_location_and_scale_are_the_weighted_moments(x):
    weight = np.arange(50.0)
    mean, scale = weighted_location_scale(x, weight)
    expected = np.average(x, axis=0, weights=weight)
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(scale, np.sqrt(np.average((x - expected) ** 2, axis=0, weights=weight)), atol=1e-300)
    np.testing.assert_allclose(weighted_location_scale(x, None)[1], x.std(axis=0), rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e300, -1e-300, 1e12 / 3])
def test_a_column_constant_to_rounding_has_no_scale(value):
    column = np.full((7, 1), value)
    column[3] = np.nextafter(value, np.inf) if value > 1e-200 else value
    mean, scale = weighted_location_scale(column, np.arange(7.0))
    assert scale == 0
    np.testing.assert_allclose(mean, value)


@pytest.mark.parametrize("rank", [False, True])
def test_columns_are_standardised_and_constant_ones_dropped(x, rank):
    m = InputMap.fit(x, None, rank=rank)
    assert m.kept.tolist() == [0, 1, 2]
    assert (m.n_standardised, m.n_outputs) == (3, 6 if rank else 3)
    out = m.transform(x)
    assert out.shape == (50, m.n_outputs)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(out.std(axis=0), 1)
    np.testing.assert_allclose(out[:, :3], ((x - x.mean(axis=0)) / x.std(axis=0).clip(1e-9))[:, :3])


def test_normal_scores_are_those_of_mid_ranks_and_do_not_see_the_scale(x):
    column = x[:, [1]]
    m = InputMap.fit(column, None, rank=True)
    scores = ndtri((column[:, 0].argsort().argsort() + 0.5) / 50)
    np.testing.assert_allclose(m.transform(column)[:, 1], scores / scores.std(), rtol=1e-9)
    logged = InputMap.fit(np.log(column), None, rank=True)
    np.testing.assert_allclose(logged.transform(np.log(column))[:, 1], m.transform(column)[:, 1], rtol=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=40), st.integers(0, 2**32 - 1))
@example([0.0, 5e-324], 0)
def test_scores_never_descend_and_stay_within_those_of_the_training_rows(values, seed):
    column = np.array(values)[:, None]
    m = InputMap.fit(column, None, rank=True)
    if m.n_outputs < 2:
        assert np.ptp(column) < 1e-10 or len(set(values)) == 2
        return
    new = np.sort(np.random.default_rng(seed).uniform(-200, 200, 50))[:, None]
    out = m.transform(new)[:, 1]
    assert (np.diff(out) >= 0).all()
    seen = m.transform(column)[:, 1]
    assert seen.min() <= out.min() and out.max() <= seen.max()


@given(st.integers(0, 2**32 - 1))
def test_weights_are_repetitions(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, (15, 2)) + 0.5 * rng.standard_normal((15, 1))
    weight = rng.integers(0, 4, 15)
    weight[0] += 1
    a = InputMap.fit(x, weight.astype(float), rank=True)
    b = InputMap.fit(np.repeat(x, weight, axis=0), None, rank=True)
    assert a.kept.tolist() == b.kept.tolist()
    new = rng.standard_normal((30, 2)) * 5
    np.testing.assert_allclose(a.transform(new), b.transform(new), rtol=1e-9, atol=1e-9)


def test_many_distinct_values_keep_a_bounded_number_of_knots():
    x = np.random.default_rng(1).standard_cauchy((20_000, 1))
    m = InputMap.fit(x, None, rank=True)
    assert MAX_KNOTS / 2 < m.knots.shape[1] <= MAX_KNOTS
    assert m.knots.shape == m.scores.shape
    assert (np.diff(m.knots[0]) > 0).all()
    exact = ndtri((x[:, 0].argsort().argsort() + 0.5) / len(x))
    inner = np.abs(exact) < 2.5
    np.testing.assert_allclose(m.transform(x)[inner, 1], exact[inner], atol=0.03)


def test_inputs_are_the_formulas_of_numpy_to_the_last_bit(x):
    m = InputMap.fit(x, None, rank=True)
    rng = np.random.default_rng(0)
    new = np.vstack([x, rng.uniform(-9, 9, (50, 4)), m.knots[:, [0, -1]].T @ np.eye(3, 4), np.full((1, 4), np.nan)])
    out = m.transform(np.asfortranarray(new))
    np.testing.assert_array_equal(out[:, :3], ((new - m.mean) / m.scale)[:, m.kept])
    for k, j in enumerate(m.scored):
        np.testing.assert_array_equal(out[:, 3 + k], np.interp(new[:, j], m.knots[k], m.scores[k]))


def test_whitening_with_weights_is_that_of_repeated_rows():
    rng = np.random.default_rng(5)
    x, weight = rng.standard_normal((40, 3)), rng.integers(0, 4, 40)
    weighted, repeated = (
        InputRotation.whitening(x, weight.astype(float)),
        InputRotation.whitening(np.repeat(x, weight, axis=0), None),
    )
    z = weighted.transform(x)
    np.testing.assert_allclose((z * weight[:, None]).T @ z / weight.sum(), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(weighted.matrix, repeated.matrix, rtol=1e-9)


def test_whitening_drops_directions_without_variance():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((50, 2))
    x -= x.mean(axis=0)
    rotation = InputRotation.whitening(np.c_[x, x[:, 0] + x[:, 1], np.zeros(50)], None)
    assert rotation.matrix.shape == (4, 2)
    assert InputRotation.whitening(np.zeros((5, 2)), None).n_outputs == 0
    assert InputRotation.whitening(np.zeros((5, 0)), None).n_outputs == 0
    few = np.random.default_rng(7).standard_normal((3, 10))
    assert InputRotation.whitening(few - few.mean(axis=0), None).n_outputs == 2  # what fewer rows than columns span


def test_columns_of_two_values_have_no_normal_scores(x):
    x = np.c_[x[:, :2], x[:, 0] > 0, x[:, 1]]
    m = InputMap.fit(x, None, rank=True)
    assert m.kept.tolist() == [0, 1, 2, 3] and m.scored.tolist() == [0, 1, 3]
    out = m.transform(x)
    np.testing.assert_array_equal(out[:, 6], out[:, 5])


def test_indicators_of_a_group_are_together_as_wide_as_one_column_of_numbers():
    """However many categories there are and however rare, and all of them are equally far apart."""
    rng = np.random.default_rng(0)
    for n_categories in (2, 5, 40):
        p = rng.dirichlet(np.ones(n_categories))
        indicators = np.eye(n_categories)[rng.choice(n_categories, 400, p=p)]
        x = np.hstack([rng.standard_normal((400, 1)), indicators])
        groups = np.r_[-1, np.zeros(n_categories, np.intp)]
        input_map = InputMap.fit(x, None, rank=False, groups=groups)
        out = input_map.transform(x)
        assert out[:, 1:].var(axis=0).sum() == pytest.approx(1.0)
        assert out[:, 0].var() == pytest.approx(1.0)
        distinct = np.unique(out[:, 1:], axis=0)
        squares = ((distinct[:, None] - distinct) ** 2).sum(axis=2)
        np.testing.assert_allclose(squares[~np.eye(len(distinct), dtype=bool)], squares[0, 1])


def test_inputs_are_numbered_by_column_and_group():
    x = np.random.default_rng(0).standard_normal((30, 6))
    x[:, 2] = 1.0  # constant: left out
    groups = np.array([-1, 3, 3, 3, -1, 0])
    input_map = InputMap.fit(x, None, rank=True, groups=groups)
    np.testing.assert_array_equal(input_map.tied(groups), [0, 1, 1, 2, 3, 4, 5, 6, 7, 8])
    plain = np.full(6, -1)
    np.testing.assert_array_equal(InputMap.fit(x, None, rank=True).tied(plain), np.arange(10))
    assert InputMap.fit(np.ones((5, 2)), None, rank=True).tied(np.array([-1, 0])).size == 0
