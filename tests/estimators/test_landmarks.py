"""Landmarks of a regression: few that are spread out where these are enough, all that were asked for elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from pydirect import DirectRegressor, Nystroem, fit_many
from pydirect._progress import Progress
from pydirect.estimators.regression import FIRST_LANDMARKS, _of_half, collect
from pydirect.features import PolynomialFeatures
from pydirect.features.fitting import spread_landmarks
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures
from pydirect.features.rows import TrainingRows
from pydirect.statistics import GaussianStatistics, collect_statistics


def smooth_rows(n=1200):
    g = np.random.default_rng(0)
    X = g.uniform(-1, 1, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * g.standard_normal(n)


def kernel_of(noise):
    return KernelHyperparameters(noise, 1.0, np.array([0.7, 0.4]), 0.0, 1.0, 0.3, 2)


def test_landmarks_are_those_of_largest_residual_variance_one_after_another():
    candidates = np.random.default_rng(1).standard_normal((40, 2))
    kernel = kernel_of(0.1)
    left = kernel.covariance(candidates, candidates)
    expected = []
    for _ in range(12):  # brute force: condition on the row of which most is left
        k = int(left.diagonal().argmax())
        expected.append(k)
        left = left - np.outer(left[:, k], left[k]) / left[k, k]
    np.testing.assert_array_equal(spread_landmarks(candidates, kernel, 12), candidates[expected])


def test_no_more_landmarks_are_taken_than_noise_lets_matter():
    candidates = np.random.default_rng(1).standard_normal((200, 2))
    few, many = (spread_landmarks(candidates, kernel_of(noise), 150) for noise in (100.0, 1e-4))
    assert 2 < len(few) < len(many) == 150


def test_leading_sums_are_those_of_fewer_functions():
    x = np.random.default_rng(2).standard_normal((30, 2))
    features = PolynomialFeatures(2, degree=2)
    leading = collect_statistics(features, x, x[:, 0]).leading(3)
    few = GaussianStatistics.from_arrays(features.transform(x)[:, :3], x[:, 0])
    np.testing.assert_allclose(leading.A, few.A, rtol=1e-12)
    np.testing.assert_allclose(leading.c, few.c, rtol=1e-12)


@pytest.mark.parametrize("of_kernel", [True, False])
def test_sums_for_half_of_the_landmarks_are_those_of_a_map_with_that_half(of_kernel):
    X, y = smooth_rows(300)
    model = DirectRegressor(Nystroem(max_search_rows=60), 40, noise="constant").fit(X, y)
    basis = model.features_
    assert basis.for_sums(len(X)).sums_of_kernel
    rows = TrainingRows(X, (y - y.mean())[:, None], None)
    landmarks, kernel = basis.map.landmarks[:20], basis.hyperparameters
    few = replace(basis, map=NystroemFeatures.at(landmarks, kernel))
    half, direct = (collect([model._plan()], own, rows, Progress(0), of_kernel=of_kernel) for own in (basis, few))
    half = _of_half(half)
    assert half.residual_variance == pytest.approx(direct.residual_variance, rel=1e-6)
    np.testing.assert_allclose(half.statistics.A, direct.statistics.A, rtol=1e-6, atol=1e-6 * len(X))
    np.testing.assert_allclose(half.statistics.c, direct.statistics.c, rtol=1e-6, atol=1e-6 * len(X))
    assert half.statistics.mean_square == pytest.approx(direct.statistics.mean_square, rel=1e-6)


def test_a_smooth_function_of_many_rows_takes_few_landmarks_alone_and_among_many_models():
    X, y = smooth_rows()
    model = DirectRegressor(Nystroem(max_search_rows=100), noise="constant").fit(X, y)
    assert model.features_.n_weights <= FIRST_LANDMARKS
    (same,) = fit_many([DirectRegressor(Nystroem(max_search_rows=100), noise="constant")], X, [y])
    assert same.features_.n_weights <= FIRST_LANDMARKS
    np.testing.assert_allclose(same.predict(X), model.predict(X), rtol=1e-6, atol=1e-6)


def test_a_function_that_few_landmarks_miss_takes_all_that_were_asked_for():
    g = np.random.default_rng(3)
    X = g.uniform(0, 10, (1100, 2))
    y = np.sin(6 * X[:, 0]) * np.sin(6 * X[:, 1]) + 0.05 * g.standard_normal(1100)
    model = DirectRegressor(noise="constant", local=False).fit(X, y)
    assert model.features_.n_weights == 1100
