import numpy as np
import pytest

from pydirect.features.maps import FourierFeatures, PrecomputedFeatures
from pydirect.statistics import gaussian as statistics
from pydirect.statistics.gaussian import GaussianStatistics, block_rows, collect_statistics


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((700, 20)), rng.standard_normal((700, 3)), rng.integers(0, 4, 700).astype(float)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 256 rows, the least there is, so that a small table has several."""
    monkeypatch.setattr(statistics, "BLOCK_BYTES", 1)


def collect(phi, y, sample_weight=None, **options):
    return collect_statistics(PrecomputedFeatures(phi.shape[1]), phi, y, sample_weight, n_threads=1, **options)


def assert_same_bits(first, second):
    for name in ("A", "c", "yty"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name
    assert first.n_samples == second.n_samples


def assert_close(first, second, rtol=1e-12):
    scale = np.abs(second.A).max()
    np.testing.assert_allclose(first.A, second.A, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(first.c, second.c, rtol=0, atol=rtol * np.abs(second.c).max())
    np.testing.assert_allclose(first.yty, second.yty, rtol=rtol)
    assert first.n_samples == pytest.approx(second.n_samples, rel=1e-14)


# What they are


@pytest.mark.parametrize("n_rows", [700, 20, 19, 1])
def test_statistics_are_the_products_of_features_and_targets(data, n_rows):
    phi, y, weight = (a[-n_rows:] for a in data)
    weight = weight + 0.5
    s = GaussianStatistics.from_arrays(phi, y, weight)
    weighted = phi * weight[:, None]
    np.testing.assert_allclose(s.A, weighted.T @ phi, atol=1e-11)
    np.testing.assert_allclose(s.c, weighted.T @ y, atol=1e-11)
    np.testing.assert_allclose(s.yty, (weight[:, None] * y**2).sum(axis=0))
    assert s.n_samples == pytest.approx(weight.sum())
    assert (s.n_weights, s.n_outputs) == (20, 3)
    np.testing.assert_array_equal(s.A, s.A.T)


@pytest.mark.unperturbed
def test_outputs_do_not_influence_each_other(data):
    phi, y, _ = data
    alone = [collect(phi, y[:, k : k + 1]) for k in range(3)]
    together = collect(phi, y)
    np.testing.assert_array_equal(together.c, np.hstack([s.c for s in alone]))
    np.testing.assert_allclose(together.yty, np.concatenate([s.yty for s in alone]), rtol=1e-14)


# Sample weights


@pytest.mark.parametrize("n_rows", [700, 12])
def test_a_weight_counts_repetitions_of_a_row(data, n_rows):
    phi, y, weight = (a[:n_rows] for a in data)
    repeated = np.repeat(np.arange(n_rows), weight.astype(int))
    assert_close(collect(phi, y, weight), collect(phi[repeated], y[repeated]))


# Cutting the data


def test_statistics_do_not_depend_on_how_the_rows_are_cut(data, monkeypatch):
    phi, y, weight = data
    whole = collect(phi, y, weight + 1)
    monkeypatch.setattr(statistics, "BLOCK_BYTES", 1)
    assert block_rows(20, np.float64) < 700
    assert_close(collect(phi, y, weight + 1), whole)


def test_statistics_of_parts_add(data):
    phi, y, weight = data
    parts = [collect(phi[a:b], y[a:b], weight[a:b]) for a, b in [(0, 300), (300, 310), (310, 700)]]
    assert parts[1].rows is not None, "one part has fewer rows than weights"
    assert_close(parts[0] + parts[1] + parts[2], collect(phi, y, weight))


@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_rows", [700, 15])
def test_statistics_have_the_same_bits_for_any_number_of_threads(small_blocks, data, n_threads, dtype, n_rows):
    x, y, weight = (a[:n_rows] for a in data)
    rng = np.random.default_rng(5)
    features = FourierFeatures(rng.standard_normal((20, 37)), rng.random(37), constant=1.0)
    one, many = (collect_statistics(features, x, y, weight, block_dtype=dtype, n_threads=t) for t in (1, n_threads))
    assert_same_bits(one, many)


# Fewer rows than weights


def test_fewer_rows_than_weights_are_held_as_rows_with_the_same_products(data):
    phi, y, weight = (a[:19] for a in data)
    weight = weight + 1
    low_rank = collect(phi, y, weight)
    assert low_rank.gram is None
    np.testing.assert_allclose(low_rank.rows, phi * np.sqrt(weight)[:, None])
    padded = collect(np.vstack([phi, np.zeros((5, 20))]), np.vstack([y, np.zeros((5, 3))]), np.append(weight, [1] * 5))
    assert padded.gram is not None
    np.testing.assert_allclose(low_rank.A, padded.A, atol=1e-12)
    np.testing.assert_allclose(low_rank.c, padded.c, atol=1e-12)
    assert low_rank.A is low_rank.A, "formed once"


# Precision


def test_single_precision_blocks_lose_no_more_than_single_precision(small_blocks, data):
    phi, y, weight = data
    exact, single = collect(phi, y, weight), collect(phi, y, weight, block_dtype=np.float32)
    assert single.A.dtype == single.c.dtype == np.float64
    error = np.abs(single.A - exact.A).max()
    assert 0 < error < 2e-6 * np.abs(exact.A).max()
    assert np.abs(single.c - exact.c).max() < 2e-6 * np.sqrt(exact.A.diagonal().max() * exact.yty.max())
    np.testing.assert_array_equal(single.yty, exact.yty)


# Progress


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(("n_rows", "expected"), [(700, [256, 512, 700]), (9, [9])])
def test_progress_reports_the_rows_done_after_every_block(small_blocks, data, n_threads, n_rows, expected):
    seen = []
    collect_statistics(
        PrecomputedFeatures(20),
        data[0][:n_rows],
        data[1][:n_rows],
        n_threads=n_threads,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(done, n_rows) for done in expected]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_in_a_block_reaches_the_caller(small_blocks, data, n_threads):
    class Broken(PrecomputedFeatures):
        def transform(self, x, dtype=np.float64, n_threads=1):
            raise RuntimeError("no features today")

    with pytest.raises(RuntimeError, match="no features today"):
        collect_statistics(Broken(20), data[0], data[1], n_threads=n_threads)


# Validation


@pytest.mark.parametrize(
    ("phi", "y", "weight", "error", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], None, ValueError, r"phi must have shape \(n_samples, n_weights\), got \(2,\)"),
        ([[1.0], [np.nan]], [1.0, 2.0], None, ValueError, r"phi must be finite, got nan at index \(1, 0\)"),
        ([[1.0]], [1.0, 2.0], None, ValueError, r"y must have shape \(1, n_outputs\), got \(2, 1\)"),
        ([[1.0]], [np.inf], None, ValueError, "y must be finite, got inf"),
        ([[1.0]], [1.0], [1.0, 2.0], ValueError, r"sample_weight must have shape \(1,\)"),
        ([[1.0]], [1.0], [-1.0], ValueError, "sample_weight must not be negative, got -1"),
        ([[1.0]], [1.0], [0.0], ValueError, "sample_weight must have at least one positive entry"),
    ],
)
def test_arrays_that_make_no_data_are_refused_by_name(phi, y, weight, error, message):
    with pytest.raises(error, match=message):
        GaussianStatistics.from_arrays(phi, y, weight)
