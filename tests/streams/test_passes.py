"""Passes over sources: statistics and uniform samples."""

import signal

import numpy as np
import pytest
from streamed_rows import all_sources
from summed_rows import WEIGHT, N, X, Y, assert_same_bits, empty, of

from pydirect import StreamError, _progress
from pydirect.streams import rows as rows_module, sources as sources_module
from pydirect.streams.run import Sample, collect_stream, sample_stream
from pydirect.streams.sources import ArraySource, BlockSource

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


@pytest.mark.parametrize("n_threads", [1, 2])
def test_every_source_gives_the_same_statistics(tmp_path, monkeypatch, small_blocks, n_threads):
    monkeypatch.setattr(sources_module, "READ_ROWS", 130)
    expected = of(slice(None))
    for name, source in all_sources(tmp_path).items():
        total = empty()
        ends = []
        assert collect_stream(total, source, n_threads=n_threads, after_block=ends.append) == N, name
        assert_same_bits(total, expected)
        assert ends == [*range(64, N, 64), N]


def test_every_source_gives_the_same_sample(tmp_path, monkeypatch):
    drawn = sample_stream(ArraySource(X, Y, WEIGHT), 50, 3)
    assert (len(drawn.rows), drawn.n_rows) == (50, N)
    for source in all_sources(tmp_path).values():
        if source.repeatable:
            np.testing.assert_array_equal(sample_stream(source, 50, 3).rows.x, drawn.rows.x)
    parts = [Sample.of(rows_module.Rows(X[a:z], Y[a:z], None), a, 3, 50) for a, z in ((0, 20), (20, 700), (700, N))]
    np.testing.assert_array_equal(Sample.joined(parts[::-1], 50).rows.x, drawn.rows.x)


def test_samples_are_uniform_and_depend_on_the_seed():
    rows = rows_module.Rows(np.arange(1000.0)[:, None], np.zeros((1000, 1)), None)
    means = np.array([Sample.of(rows, 0, seed, 100).rows.x.mean() for seed in range(200)])
    assert abs(means.mean() - 499.5) < 4 * means.std() / np.sqrt(200)
    # Without replacement: variance of a mean of 100 of 1000.
    assert means.std() == pytest.approx(1000 / np.sqrt(12 * 100) * np.sqrt(0.9), rel=0.2)
    counts = np.zeros(1000)
    for seed in range(400):
        counts[Sample.of(rows, 0, seed, 100).index.astype(int)] += 1
    assert counts.max() < 40 + 6 * 6 and counts.min() > 40 - 6 * 6


def test_ctrl_c_waits_for_the_end_of_the_block_unless_pressed_twice(small_blocks):
    with _progress.deferred_interrupt() as interrupted:
        with interrupted.held():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        assert interrupted.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupted.raise_if_requested()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen = []

    def after_block(row):
        seen.append(row)
        if row == 128:
            signal.raise_signal(signal.SIGINT)

    total = empty()
    with pytest.raises(KeyboardInterrupt):
        collect_stream(total, ArraySource(X, Y), after_block=after_block)
    assert seen == [64, 128]
    assert total.n_samples == 128.0


def test_all_blocks_must_have_the_same_columns(small_blocks):
    with pytest.raises(StreamError, match=r"row 100 .*expected 4 columns of X and 2 of y without weights, as before"):
        collect_stream(empty(), BlockSource([(X[:100], Y[:100]), (X[100:, :3], Y[100:])]))
    with pytest.raises(StreamError, match="block 1: y must hold real numbers"):
        collect_stream(empty(), BlockSource([(X[:1], Y[:1]), (X[1:2], np.array([["a", "b"]]))]))
