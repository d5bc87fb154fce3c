"""Sums of kernel functions, whitened once: equal to sums of whitened rows, however they were collected."""

from dataclasses import replace

import numpy as np
import pytest
from summed_rows import RNG, WEIGHT, D, X, Y, assert_same_bits

from pydirect import RunningStatistics, collect_statistics
from pydirect.features import NystroemFeatures
from pydirect.features.basis import Basis
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters

KERNEL = KernelHyperparameters(0.1, 1.0, np.full(D, 1.5), 0.3, 2.0, 0.2, D)
FEATURES = NystroemFeatures.at(RNG.standard_normal((40, D)), KERNEL)
BASIS = Basis(InputMap.identity(D), FEATURES, KERNEL)


def whitened_rows(weight):
    return collect_statistics(replace(FEATURES, sums_of_kernel=False), X, Y, weight)


def of(rows, features=BASIS, **options):
    return RunningStatistics.empty(features, 2, **options).update(X[rows], Y[rows], WEIGHT[rows])


def assert_close(statistics, expected):
    np.testing.assert_allclose(statistics.A, expected.A, rtol=0, atol=1e-11 * np.abs(expected.A).max())
    np.testing.assert_allclose(statistics.c, expected.c, rtol=0, atol=1e-11 * np.abs(expected.c).max())
    np.testing.assert_allclose(statistics.yty, expected.yty, rtol=1e-12)
    np.testing.assert_array_equal(statistics.A, statistics.A.T)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_sums_of_rows_in_memory(weight):
    assert_close(collect_statistics(FEATURES, X, Y, weight), whitened_rows(weight))


def test_fewer_rows_than_weights_are_whitened_as_they_are():
    few = collect_statistics(FEATURES, X[:30], Y[:30])
    np.testing.assert_allclose(few.rows, FEATURES.transform(X[:30]), atol=1e-12)


def test_sums_about_means():
    phi, total = FEATURES.transform(X), WEIGHT.sum()
    centred = phi - WEIGHT @ phi / total
    found = of(slice(None)).centred()
    np.testing.assert_allclose(found.A, (centred * WEIGHT[:, None]).T @ centred, atol=1e-9)
    np.testing.assert_allclose(found.c, (centred * WEIGHT[:, None]).T @ Y, atol=1e-9)


def test_shifted_targets():
    shift, scale = np.array([3.0, -2.0]), np.array([2.0, 0.5])
    expected = collect_statistics(FEATURES, X, (Y - shift) / scale, WEIGHT)
    assert_close(of(slice(None)).gaussian(shift, scale), expected)


def test_a_file_needs_the_features_to_whiten_by(tmp_path):
    path, statistics = tmp_path / "sums", of(slice(None))
    statistics.save(path)
    with pytest.raises(ValueError, match="need their feature map"):
        RunningStatistics.load(path).gaussian()
    again = RunningStatistics.load(path, BASIS)
    assert_same_bits(again, statistics)
    assert again.gaussian().A.tobytes() == statistics.gaussian().A.tobytes()


def test_single_precision_blocks_are_whitened_before_they_are_rounded():
    single = of(slice(None), block_dtype="float32")
    assert single.sums_of == "features"
    phi = FEATURES.transform(X)
    np.testing.assert_allclose(single.gaussian().A, (phi * WEIGHT[:, None]).T @ phi, atol=1e-3)
    with pytest.raises(ValueError, match="same block_dtype"):
        of(slice(None)).merge(single)
