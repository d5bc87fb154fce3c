"""Private releases of sites, and the model of their sum."""

import copy

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, load
from pydirect.statistics import NoisyStatistics, PrivacyBudget

RNG = np.random.default_rng(0)
N = 20_000
X = RNG.uniform(-1, 1, (N, 2))
F = np.sin(3 * X[:, 0]) + X[:, 1]
Y = 10 + 5 * (F + 0.3 * RNG.standard_normal(N))
BOUNDS = (-5.0, 25.0)


def public_map(**options):
    return DirectRegressor(Fourier(length_scale=0.5), 60, **options).fit_features([[-1.0, -1.0], [1.0, 1.0]])


def release(model, rows=slice(None), epsilon=3.0, seed=0):
    budget = PrivacyBudget(epsilon, 1e-6)
    return model.private_statistics(X[rows], Y[rows], y_bounds=BOUNDS, budget=budget, random_state=seed)


def test_a_private_model_predicts_and_knows_how_well():
    model = public_map()
    model.fit_statistics(release(model))
    mean, function, noise = model.predict_parts(X[:500])
    error = mean - (10 + 5 * F[:500])
    assert np.sqrt(np.mean(error**2)) < 0.2 * np.std(Y)
    assert np.mean(np.abs(error) < 4 * function) > 0.95
    assert noise.mean() == pytest.approx(1.5, rel=0.2)
    assert model.total_weight_ == pytest.approx(N, rel=0.02)
    exact = public_map().partial_fit(X, Y)
    assert (function > 2 * exact.predict_parts(X[:500])[1]).mean() > 0.95  # the noise of the release is in them


def test_noise_that_vanishes_leaves_the_plain_model():
    model, exact = public_map(), public_map().partial_fit(X, Y)
    model.fit_statistics(release(model, epsilon=1e5))
    np.testing.assert_allclose(model.predict(X[:200]), exact.predict(X[:200]), atol=0.03 * np.std(Y))
    assert model.noise_variance_ == pytest.approx(exact.noise_variance_, rel=0.05)


def test_sites_add_to_a_federated_model_and_files_carry_it(tmp_path):
    shared = public_map()
    for k in range(3):
        release(copy.deepcopy(shared), slice(k, None, 3), seed=k).save(tmp_path / f"site{k}")
    total = sum(NoisyStatistics.load(tmp_path / f"site{k}") for k in range(3))
    model = shared.fit_statistics(total)
    model.save(tmp_path / "model")
    read = load(tmp_path / "model")
    for found, expected in zip(
        read.predict(X[:50], return_std=True), model.predict(X[:50], return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    more = release(read, seed=9)  # a model of releases holds a map that is public
    assert read.fit_statistics(read.noisy_statistics_ + more).total_weight_ > 1.9 * N


def test_targets_of_any_size_are_moved_to_their_bounds():
    far, near = Y[:50].copy(), Y[:50].copy()
    far[:2], near[:2] = (1e300, -1e95), BOUNDS[::-1]
    first, second = (
        public_map().private_statistics(X[:50], y, y_bounds=BOUNDS, budget=PrivacyBudget(1.0, 1e-6), random_state=0)
        for y in (far, near)
    )
    np.testing.assert_allclose(first.c, second.c, rtol=1e-12)
    assert first.yty == pytest.approx(second.yty, rel=1e-12)


def test_what_is_not_private_is_refused_and_costs_nothing():
    budget = PrivacyBudget(1.0, 1e-6)
    options = {"y_bounds": BOUNDS, "budget": budget}
    with pytest.raises(ValueError, match="the feature map must be fixed first"):
        DirectRegressor().private_statistics(X, Y, **options)
    with pytest.raises(ValueError, match="must not come from private rows"):
        DirectRegressor("linear").fit(X[:50], Y[:50]).private_statistics(X, Y, **options)
    with pytest.raises(ValueError, match="whose length nothing bounds"):
        DirectRegressor("precomputed").fit_features(np.eye(2)).private_statistics(X, Y, **options)
    with pytest.raises(TypeError, match="y_bounds"):
        public_map().private_statistics(X, Y, budget=budget)
    with pytest.raises(ValueError, match="y_bounds must be a smaller and a larger number"):
        public_map().private_statistics(X, Y, y_bounds=(1.0, 0.0), budget=budget)
    with pytest.raises(TypeError, match="budget must be"):
        public_map().private_statistics(X, Y, y_bounds=BOUNDS, budget=1.0)
    with pytest.raises(ValueError, match="one target"):
        public_map().private_statistics(X, np.c_[Y, Y], **options)
    assert budget.spent == 0


def test_releases_of_other_maps_and_other_posteriors_are_refused():
    noisy = release(public_map())
    other = DirectRegressor(Fourier(length_scale=2.0), 60).fit_features([[-1.0, -1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="of the model's feature map"):
        other.fit_statistics(noisy)
    with pytest.raises(ValueError, match="posterior must be 'gaussian'"):
        public_map(posterior="sequential").fit_statistics(noisy)
    model = public_map().fit_statistics(noisy)
    with pytest.raises(ValueError, match="earlier rows must be known"):
        model.partial_fit(X[:10], Y[:10])
