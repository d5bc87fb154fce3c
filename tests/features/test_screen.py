import numpy as np
import pytest

from pydirect.features.screen import RELEVANT, normal_deviate, pair_effects, quantile_classes, screen_columns


def products(n, d, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    f = np.sin(2 * x[:, 3] * x[:, 7]) + x[:, 11] * x[:, 20] + (np.cos(2 * x[:, 50]) if d > 50 else 0)
    return x, (f + 0.2 * f.std() * rng.standard_normal(n))[:, None]


def relevant(x, y, seed=0):
    return np.flatnonzero(screen_columns(x, y, np.random.default_rng(seed)) > RELEVANT).tolist()


def test_classes_are_quantiles_and_equal_entries_share_one():
    x = np.arange(60.0)[::-1, None]
    assert np.bincount(quantile_classes(x, 6)[:, 0]).tolist() == [10] * 6
    binary = (np.arange(60) % 3 == 0).astype(float)[:, None]
    assert len(np.unique(quantile_classes(binary, 6)[binary[:, 0] == 0])) == 1
    assert len(np.unique(quantile_classes(binary, 6))) == 2
    assert len(set(quantile_classes(np.zeros((9, 1)), 6)[:, 0])) == 1


@pytest.mark.parametrize("rare", [0.0, 1.0])
def test_rare_categories_are_found_alone_and_in_products(rare):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 8))
    x[:, 0], x[:, 1] = rng.random(2000) < 0.04, rng.random(2000) < 0.1
    noise = 0.5 * rng.standard_normal((2000, 1))
    given = np.where(np.arange(8) < 2, rare + (1 - 2 * rare) * (1 - x), x)  # 0 or 1 in few rows
    assert relevant(given, 3 * x[:, [0]] + noise) == [0]
    assert {1, 2} <= {*relevant(given, 3 * x[:, [1]] * x[:, [2]] + noise)}


def test_effects_of_pairs_are_those_of_their_cells():
    rng = np.random.default_rng(1)
    classes, y = rng.integers(0, 3, (80, 4)).astype(np.uint8), rng.standard_normal((80, 2))
    effects = pair_effects(classes, y, 3)
    for i, j in [(0, 1), (2, 0), (1, 3)]:
        cell = 3 * classes[:, i].astype(int) + classes[:, j]
        counts = np.bincount(cell, minlength=9)
        sums = np.stack([np.bincount(cell, column, 9) for column in y.T])
        between = np.divide(sums**2, counts, out=np.zeros_like(sums), where=counts > 0).sum(axis=1).max()
        assert effects[i, j] == effects[j, i]
        assert effects[i, j] == pytest.approx(normal_deviate(between, (counts > 0).sum() - 1), rel=1e-12)
    np.testing.assert_array_equal(pair_effects(classes, y, 3, n_threads=3), effects)
    assert (np.diag(effects) == -np.inf).all()


def test_effects_by_chance_are_standard_normal():
    rng = np.random.default_rng(2)
    effects = normal_deviate(rng.chisquare(11, 20_000), np.full(20_000, 11))
    assert effects.mean() == pytest.approx(0, abs=0.02) and effects.std() == pytest.approx(1, abs=0.02)
    assert 3 < effects.max() < RELEVANT


def test_columns_that_matter_only_in_products_are_found_and_no_others():
    x, y = products(2000, 32, 0)
    assert relevant(x, y) == [3, 7, 11, 20]


@pytest.mark.parametrize(("n", "d"), [(1000, 250), (2500, 600)])
def test_products_are_found_at_any_width(n, d):
    rng = np.random.default_rng(d)
    x = rng.standard_normal((n, d))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(n)
    found = relevant(x, y[:, None])
    assert found[:3] == [0, 1, 2] and len(found) <= 5
    assert len(relevant(x, rng.permutation(y)[:, None])) <= 2


@pytest.mark.parametrize("seed", range(3))
def test_many_single_columns_make_no_other_column_significant(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4000, 24))
    f = np.sin(2 * x[:, :5]).sum(axis=1) + 0.5 * np.square(x[:, 5:10]).sum(axis=1)
    assert relevant(x, (f + 0.2 * f.std() * rng.standard_normal(4000))[:, None]) == [*range(10)]


def test_nothing_is_found_in_noise():
    found = 0
    for seed in range(10):
        x, y = products(1000, 32, seed)
        found += bool(relevant(x, np.random.default_rng(seed).permutation(y)))
    assert found <= 1


@pytest.mark.parametrize("degrees", [3, 1000])
def test_rare_categories_and_heavy_tails_make_nothing_relevant(degrees):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        share = 1 / np.arange(1, 31) ** 1.5
        categories = np.eye(30)[rng.choice(30, 2000, p=share / share.sum())]
        x = np.hstack([categories, rng.standard_normal((2000, 5))])
        assert relevant(x, rng.standard_t(degrees, (2000, 1))) == []


def test_few_rows_and_constant_targets_say_nothing():
    x, y = products(49, 30, 0)
    assert not screen_columns(x, y, np.random.default_rng(0)).any()
    assert relevant(np.ones((200, 2)), np.zeros((200, 1))) == []
