"""Decisions of bandits against their definitions, and what they lose by not knowing."""

import pickle

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.preprocessing import PolynomialFeatures

from pydirect import DirectRegressor
from pydirect.decisions import LinearBandit, SharedBandit
from pydirect.persistence.container import CorruptFileError, KindError


def rounds(n=300, d=3, k=4, noise=0.3, seed=0):
    """Contexts, rewards of all arms and their expectations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    mean = x @ rng.normal(size=(d, k)) + rng.normal(size=k)
    return x, mean + noise * rng.normal(size=mean.shape), mean


def play(bandit, x, rewards, size=1):
    """Numbers of the arms that were pulled."""
    pulled = []
    for begin in range(0, len(x), size):
        rows = slice(begin, begin + size)
        arms = bandit.decide(x[rows])
        pulled += arms
        bandit.learn(x[rows], arms, [own[arm] for own, arm in zip(rewards[rows], arms, strict=True)])
    return np.array(pulled)


def regret(pulled, mean):
    return mean.max(axis=1) - mean[np.arange(len(mean)), pulled]


@pytest.mark.parametrize("policy", ["thompson", "ucb"])
@pytest.mark.parametrize("size", [1, 20])
def test_regret_falls(policy, size):
    x, rewards, mean = rounds()
    lost = regret(play(LinearBandit(range(4), policy=policy), x, rewards, size), mean)
    by_chance = (mean.max(axis=1) - mean.mean(axis=1)).mean()
    assert lost[:100].mean() < 0.6 * by_chance
    assert lost[200:].mean() < 0.05 * by_chance


def test_thompson_pulls_an_arm_as_often_as_it_is_likely_best():
    x, rewards, _ = rounds(12, k=2, noise=2.0)
    bandit = LinearBandit(range(2), policy="thompson")
    bandit.learn(x, np.arange(12) % 2, rewards[np.arange(12), np.arange(12) % 2])
    mean, std = bandit.predict(x[:1], return_std=True)
    expected = norm.cdf((mean[0, 1] - mean[0, 0]) / np.hypot(*std[0]))
    n = 20_000
    share = np.mean(bandit.decide(np.repeat(x[:1], n, axis=0)))
    assert 0.05 < expected < 0.95
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / n)


@pytest.mark.parametrize("n_rounds", [5, 50])
def test_candidates_are_drawn_together(n_rounds):
    """Weights are drawn once in a round: like candidates are not drawn apart; by either of two factors."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(15, 30))
    bandit = SharedBandit(policy="thompson", random_state=1).learn(x, x[:, 0] + rng.normal(size=15))
    candidates = rng.normal(size=(4, 30))
    candidates[1] = candidates[0] + 0.01 * rng.normal(size=30)
    phi = np.hstack([candidates, np.ones((4, 1))])
    posteriors = bandit.rewards_
    weights = rng.multivariate_normal(
        posteriors.means[0], posteriors.noise_variance * posteriors.covariances[0], size=50_000
    )
    expected = np.bincount(np.argmax(weights @ phi.T, axis=1), minlength=4) / 50_000
    n = 3_000
    chosen = [bandit.decide(np.repeat(candidates[None], n_rounds, axis=0)) for _ in range(n // n_rounds)]
    shares = np.bincount(np.ravel(chosen), minlength=4) / n
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / n))


def test_shared_weights_learn_of_arms_that_were_never_pulled():
    rng = np.random.default_rng(0)
    w = rng.normal(size=5)
    for policy in ("thompson", "ucb"):
        bandit, lost = SharedBandit(policy=policy), []
        for _ in range(100):
            candidates = rng.normal(size=(10, 5))
            best = bandit.decide(candidates)
            bandit.learn(candidates[best], candidates[best] @ w + 0.3 * rng.normal())
            lost.append((candidates @ w).max() - candidates[best] @ w)
        assert np.mean(lost[:5]) > 0.2
        assert np.mean(lost[50:]) < 0.1
        mean, std = bandit.predict(candidates, return_std=True)
        assert (np.abs(mean - candidates @ w) < 5 * std).all()


def test_rewards_may_have_any_unit():
    x, rewards, _ = rounds(100)
    for policy in ("thompson", "ucb"):
        first, second = (play(LinearBandit(range(4), policy=policy), x, unit * rewards) for unit in (1.0, 1024.0))
        np.testing.assert_array_equal(first, second)


def test_forgetting_follows_what_changes():
    x, rewards, mean = rounds(400)
    rewards[200:], mean[200:] = rewards[200:, ::-1], mean[200:, ::-1]
    with_it, without = (
        regret(play(LinearBandit(range(4), half_life=half_life), x, rewards), mean)[260:].mean()
        for half_life in (40, None)
    )
    assert with_it < 0.5 * without


@pytest.mark.parametrize("n_before", [0, 40])
def test_an_arm_may_come_later(n_before, tmp_path):
    x, rewards, mean = rounds()
    bandit = LinearBandit(["a", "b", "c"])
    if n_before:
        arms = bandit.decide(x[:n_before])
        bandit.learn(x[:n_before], arms, rewards[np.arange(n_before), ["abc".index(arm) for arm in arms]])
    before = bandit.predict(x)
    bandit.add_arm("d")
    np.testing.assert_allclose(bandit.predict(x)[:, :3], before, rtol=0, atol=1e-12)
    for row, own in zip(x[n_before:], rewards[n_before:], strict=True):
        arm = bandit.decide(row)
        bandit.learn(row, arm, own["abcd".index(arm)])
    bandit.save(tmp_path / "bandit.pydirect")
    best = (
        np.array(LinearBandit.load(tmp_path / "bandit.pydirect").decide(x)) == np.array([*"abcd"])[mean.argmax(axis=1)]
    )
    assert best.mean() > 0.9
    with pytest.raises(ValueError, match="arm must be a new one, got 'd'"):
        bandit.add_arm("d")


def test_features_may_come_from_a_regressor():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(400, 1))
    mean = np.column_stack([np.cos(3 * x[:, 0]), np.zeros(400)])
    rewards = mean + 0.1 * rng.normal(size=mean.shape)
    fitted = DirectRegressor(n_basis_functions=20, noise=0.1).fit(x[:50], rewards[:50, 0])
    curved = regret(play(LinearBandit(range(2), features=fitted.features_), x, rewards), mean)
    straight = regret(play(LinearBandit(range(2)), x, rewards), mean)
    assert curved[200:].mean() < 0.1 * straight[200:].mean()


@pytest.mark.parametrize("features", ["linear", "basis"])
def test_a_saved_bandit_goes_on(features, tmp_path):
    x, rewards, _ = rounds(120)
    if features == "basis":
        features = DirectRegressor(features="polynomial").fit(x, rewards[:, 0]).features_
    bandit = LinearBandit(["a", "b", 3, 4.5], features=features, policy="thompson", half_life=50, exploration=0.7)
    bandit.learn(x[:70], ["a", 3] * 35, rewards[:70, 0])
    bandit.save(tmp_path / "bandit.pydirect")
    loaded, copied = LinearBandit.load(tmp_path / "bandit.pydirect"), pickle.loads(pickle.dumps(bandit))
    for other in (loaded, copied):
        assert other.get_params().keys() == bandit.get_params().keys()
    for row, own in zip(x[70:], rewards[70:], strict=True):
        arm = bandit.decide(row)
        for other in (loaded, copied):
            assert other.decide(row) == arm
            other.learn(row, arm, own[0])
        bandit.learn(row, arm, own[0])
    for other in (loaded, copied):
        np.testing.assert_allclose(other.predict(x), bandit.predict(x), rtol=1e-9, atol=1e-12)


def test_a_saved_shared_bandit_goes_on(tmp_path):
    x, rewards, _ = rounds(50)
    bandit = SharedBandit(policy="thompson").learn(x[:30], rewards[:30, 0])
    bandit.save(tmp_path / "bandit.pydirect")
    loaded = SharedBandit.load(tmp_path / "bandit.pydirect")
    assert [bandit.decide(x[:6]) for _ in range(20)] == [loaded.decide(x[:6]) for _ in range(20)]
    with pytest.raises(KindError, match=r"expected a file of kind 'pydirect.LinearBandit'"):
        LinearBandit.load(tmp_path / "bandit.pydirect")
    loaded.rewards_.means = loaded.rewards_.means[:, :-1].copy()
    loaded.save(tmp_path / "bandit.pydirect")
    with pytest.raises(CorruptFileError, match="do not make a bandit"):
        SharedBandit.load(tmp_path / "bandit.pydirect")


def test_what_cannot_be_saved_is_refused(tmp_path):
    x, rewards, _ = rounds(10)
    path = tmp_path / "bandit.pydirect"
    with pytest.raises(ValueError, match="save needs a bandit that has decided or learned"):
        SharedBandit().save(path)
    with pytest.raises(TypeError, match="features must be 'linear' or a Basis"):
        SharedBandit(features=PolynomialFeatures().fit(x)).learn(x, rewards[:, 0]).save(path)
    bandit = LinearBandit([("a", 1), ("b", 2)])
    bandit.decide(x)
    with pytest.raises(TypeError, match="arms must be numbers or text to be saved"):
        bandit.save(path)


X, Y = np.random.default_rng(0).normal(size=(5, 3)), np.arange(5.0)
TWO = LinearBandit(["a", "b"]).learn(X, [*"abaab"], Y)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LinearBandit(["a"]).decide(X), ValueError, "arms must be two or more different ones"),
        (lambda: LinearBandit(["a", "b", "a"]).decide(X), ValueError, "arms must be two or more different ones"),
        (lambda: TWO.learn(X, [*"abcab"], Y), ValueError, r"arms must be among \['a', 'b'\], got 'c'"),
        (lambda: TWO.learn(X, ["a", "b"], Y), ValueError, "arms must be 5, one per row of X, got 2"),
        (lambda: TWO.learn(X, ["a"] * 5, Y[:4]), ValueError, r"rewards must have shape \(5,\), got \(4,\)"),
        (lambda: TWO.decide(X[:, :2]), ValueError, r"X must have shape \(n_rows, 3\)"),
        (lambda: TWO.decide(np.full((1, 3), np.nan)), ValueError, "X must be finite, got nan"),
        (lambda: TWO.learn(X[0], "a", 1e200), ValueError, r"rewards must be at most 1e\+\d+ in magnitude, got 1e\+200"),
        (lambda: SharedBandit(policy="best").decide(X), ValueError, "policy must be one of 'ucb', 'thompson'"),
        (lambda: SharedBandit(half_life=0).learn(X, Y), ValueError, "half_life must be above 0"),
        (
            lambda: SharedBandit(features=3).learn(X, Y),
            TypeError,
            "features must be 'linear' or have a method transform",
        ),
        (lambda: SharedBandit().decide(X[0]), ValueError, r"candidates must have shape .*, got \(3,\)"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
