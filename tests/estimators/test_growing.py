"""Data that do not fit into memory: any source, any cut, any interruption."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from summed_rows import WEIGHT, B, D, N, X, Y, assert_equal_to_rounding, assert_same_bits, empty, of

import pydirect
from pydirect import DirectRegressor, RunningStatistics, StreamError, _interruptions
from pydirect.cli.main import main
from pydirect.persistence import container as persistence
from pydirect.statistics import gaussian as statistics
from pydirect.statistics import running as running_statistics
from pydirect.statistics.fingerprint import fingerprint
from pydirect.streams import rows as rows_module
from pydirect.streams import sources as sources_module
from pydirect.streams.parquet import ParquetSource
from pydirect.streams.passes import Sample, collect_stream, sample_stream
from pydirect.streams.sources import ArraySource, BlockSource, as_source

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 64 rows, so that a small table has many."""
    monkeypatch.setattr(running_statistics, "block_rows", lambda n_weights, dtype: 64)


# Sources


def write_parquet(path, x=X, y=Y, weight=None, row_group_size=100, **more):
    columns = {f"x{j}": x[:, j] for j in range(x.shape[1])} | {f"y{k}": y[:, k] for k in range(y.shape[1])}
    if weight is not None:
        columns["w"] = weight
    pyarrow.parquet.write_table(pyarrow.table(columns | more), path, row_group_size=row_group_size)
    return path


def write_folder(path, sizes=(300, 1, 599)):
    path.mkdir()
    ends = np.cumsum(sizes)
    for k, (begin, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        write_parquet(path / f"part-{k}.parquet", X[begin:end], Y[begin:end], WEIGHT[begin:end])
    (path / "_metadata.parquet").write_bytes(b"not a table")
    return path


def as_blocks(size, weight=True):
    for i in range(0, N, size):
        yield (X[i : i + size], Y[i : i + size], *([WEIGHT[i : i + size]] if weight else []))


def sources(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    single = write_parquet(tmp_path / "one.parquet", weight=WEIGHT)
    return {
        "array": ArraySource(X, Y, WEIGHT),
        "mapped": as_source(mapped, Y, WEIGHT),
        "iterator": BlockSource(as_blocks(77)),
        "list": as_source(list(as_blocks(N))),
        "function": as_source(lambda: as_blocks(1)),
        "file": as_source(str(single), ["y0", "y1"], "w"),
        "folder": as_source(write_folder(tmp_path / "folder"), ["y0", "y1"], "w"),
    }


@pytest.mark.parametrize("n_threads", [1, 2])
def test_all_sources_give_the_same_bits(tmp_path, monkeypatch, small_blocks, n_threads):
    monkeypatch.setattr(sources_module, "READ_ROWS", 130)
    expected = of(slice(None))
    for name, source in sources(tmp_path).items():
        total = empty()
        ends = []
        assert collect_stream(total, source, n_threads=n_threads, after_block=ends.append) == N, name
        assert_same_bits(total, expected)
        assert ends == [*range(64, N, 64), N]


def test_a_source_goes_on_from_any_row(tmp_path, monkeypatch, small_blocks):
    monkeypatch.setattr(sources_module, "READ_ROWS", 130)
    for name, source in sources(tmp_path).items():
        if source.repeatable:
            for start in (1, 64, 299, 300, 301, 899):
                rows = rows_module.Rows.joined(list(source.blocks(start)))
                np.testing.assert_array_equal(rows.x, X[start:], err_msg=f"{name} {start}")
                np.testing.assert_array_equal(rows.y, Y[start:])
                np.testing.assert_array_equal(rows.weight, WEIGHT[start:])


def test_the_same_rows_are_drawn_from_every_source(tmp_path, monkeypatch):
    drawn = sample_stream(ArraySource(X, Y, WEIGHT), 50, 3)
    assert (len(drawn.rows), drawn.n_rows) == (50, N)
    for source in sources(tmp_path).values():
        if source.repeatable:
            np.testing.assert_array_equal(sample_stream(source, 50, 3).rows.x, drawn.rows.x)
    parts = [Sample.of(rows_module.Rows(X[a:z], Y[a:z], None), a, 3, 50) for a, z in ((0, 20), (20, 700), (700, N))]
    np.testing.assert_array_equal(Sample.joined(parts[::-1], 50).rows.x, drawn.rows.x)


def test_draws_are_uniform_and_depend_on_the_seed():
    rows = rows_module.Rows(np.arange(1000.0)[:, None], np.zeros((1000, 1)), None)
    means = np.array([Sample.of(rows, 0, seed, 100).rows.x.mean() for seed in range(200)])
    assert abs(means.mean() - 499.5) < 4 * means.std() / np.sqrt(200)
    # Without replacement: variance of a mean of 100 of 1000.
    assert means.std() == pytest.approx(1000 / np.sqrt(12 * 100) * np.sqrt(0.9), rel=0.2)
    counts = np.zeros(1000)
    for seed in range(400):
        counts[Sample.of(rows, 0, seed, 100).index.astype(int)] += 1
    assert counts.max() < 40 + 6 * 6 and counts.min() > 40 - 6 * 6


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: as_source([]), StreamError, "the stream has no blocks"),
        (lambda p: as_source(iter([])), StreamError, "the stream has no blocks"),
        (lambda p: as_source([X]), StreamError, r"block 0: expected \(X, y\)"),
        (lambda p: as_source([(X, Y[:3])]), StreamError, "block 0: X and y must have shapes"),
        (lambda p: as_source(X, Y[:3]), ValueError, "y must have 900 rows"),
        (lambda p: as_source(X[:, 0], Y), ValueError, r"X must have shape \(n_rows, n_features_in\)"),
        (lambda p: as_source(X, Y, WEIGHT[:4]), ValueError, r"sample_weight must have shape \(900,\)"),
        (lambda p: as_source(None), TypeError, "X must be a path, an array, blocks .* got NoneType"),
        (
            lambda p: as_source(X, Y, np.array(["a"] * N)).blocks(0).__next__(),
            TypeError,
            "sample_weight must hold real",
        ),
        (lambda p: as_source([(X, Y)], Y), TypeError, "y must not be given when X is blocks"),
        (lambda p: as_source(lambda: [(X, Y)], Y), TypeError, "y must not be given when X is blocks"),
        (lambda p: as_source(iter([(X, Y)]), "y"), TypeError, "y must not be given when X is blocks"),
        (lambda p: as_source(X, "y"), TypeError, "y must hold the values themselves .*, got the name 'y'"),
        (lambda p: as_source(X, Y, "w"), TypeError, "sample_weight must hold the values themselves .* the name 'w'"),
        (lambda p: as_source(X, ["y", "z"]), TypeError, "y must hold the values themselves .* a list of names"),
        (lambda p: as_source(X), TypeError, "y must be given with X as one ndarray"),
        (lambda p: as_source(lambda: None), TypeError, r"X must return an iterator of blocks \(X, y\), got NoneType"),
        (lambda p: as_source([(X, Y)], None, WEIGHT), TypeError, "sample_weight must come with the blocks"),
        (lambda p: as_source(p, Y), TypeError, "y must name the target columns .* got ndarray"),
        (lambda p: as_source(p, "y0", WEIGHT), TypeError, "sample_weight must name a column"),
        (lambda p: as_source(p, "price"), StreamError, r"no column 'price' \(it has 'x0', 'x1'"),
        (lambda p: as_source(p.parent / "absent.parquet", "y0"), FileNotFoundError, "absent"),
        (lambda p: as_source(p.parent, "y0"), StreamError, "column 'when' holds values of type timestamp"),
    ],
)
def test_what_is_no_source_is_refused_by_name(tmp_path, make, error, message):
    path = write_parquet(tmp_path / "a.parquet")
    write_parquet(tmp_path / "b.parquet", when=np.zeros(N, dtype="datetime64[s]"))
    write_parquet(tmp_path / "c.parquet", when=np.zeros(N))
    os.rename(tmp_path / "b.parquet", tmp_path / "z.parquet")
    write_parquet(tmp_path / "a.parquet", when=np.zeros(N))
    with pytest.raises(error, match=message):
        make(path)


def test_a_folder_must_have_tables(tmp_path):
    with pytest.raises(StreamError, match=r"no \.parquet files"):
        ParquetSource(tmp_path, ("y",))


# fit_stream

FAST = {"features": "linear"}
KERNEL = {"features": "fourier", "n_features": 12, "max_hyperparameter_rows": 60}


def fitted(*data, model=FAST, **options):
    return DirectRegressor(**model).fit_stream(*data, **options)


def assert_same_model(first, second, rtol=1e-12):
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=0, atol=rtol * np.abs(Y).max() * 10)
    assert first.elbo_ == pytest.approx(second.elbo_, rel=1e-9)


def test_a_stream_is_fitted_as_the_batch_is():
    model = fitted(X, Y, sample_rows=N)
    batch = DirectRegressor(**FAST).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), batch.predict(X), atol=1e-9)
    assert model.elbo_ == pytest.approx(batch.elbo_, rel=1e-9)
    assert model.n_samples_ == N


@pytest.mark.parametrize("parameters", [KERNEL, {**KERNEL, "features": "nystroem"}, {**KERNEL, "basis": "raw"}])
def test_every_source_gives_the_same_model(tmp_path, monkeypatch, small_blocks, parameters):
    monkeypatch.setattr(sources_module, "READ_ROWS", 130)
    models = {
        name: fitted(source, model=parameters, sample_rows=300)
        for name, source in sources(tmp_path).items()
        if source.repeatable
    }
    reference = models.pop("array")
    for model in models.values():
        assert (model.predict(X) == reference.predict(X)).all()
    assert reference.score(X, Y) > 0.5
    assert list(models["folder"].feature_names_in_) == [f"x{j}" for j in range(D)]


def test_an_iterator_is_read_once_and_its_first_blocks_fix_the_features():
    model = fitted(as_blocks(90, weight=False), sample_rows=270)
    expected = DirectRegressor(**FAST).fit_features(X[:270], Y[:270]).fit_stream(X, Y, keep_features=True)
    assert fingerprint(model.features_.input_map) == fingerprint(expected.features_.input_map)
    assert_same_model(model, expected)
    assert model.n_samples_ == N


def test_features_of_an_earlier_fit_are_kept_on_request():
    model = DirectRegressor(**KERNEL).fit_features(X[:200], Y[:200])
    features = model.features_
    model.fit_stream(X, Y, keep_features=True)
    assert model.features_ is features
    model.fit_stream(X, Y)
    assert model.features_ is not features


def test_rows_with_missing_values_are_left_out_on_request(tmp_path):
    x, y, weight = X.copy(), Y.copy(), WEIGHT.copy()
    x[5, 2] = y[400, 1] = weight[700] = np.nan
    kept = np.delete(np.arange(N), [5, 400, 700])
    model = DirectRegressor(**FAST).fit_features(X, Y)
    path = write_parquet(tmp_path / "a.parquet", x, y, weight)
    model.fit_stream(path, ["y0", "y1"], "w", keep_features=True, drop_missing=True)
    expected = DirectRegressor(**FAST).fit_features(X, Y)
    expected.fit_statistics(expected.new_statistics(2).update(X[kept], Y[kept], WEIGHT[kept]))
    assert_same_model(model, expected)
    with pytest.raises(StreamError, match=r"a\.parquet, data row 6 \(row group 0, its row 6\): column 'x2' must be"):
        fitted(path, ["y0", "y1"], "w")


def test_a_column_that_does_not_vary_in_the_sample_is_told():
    x = X.copy()
    x[:, 1] = 1.0
    with pytest.warns(pydirect.FeatureMapWarning, match="1 of 4 columns are constant in the 900 rows.*number 1"):
        fitted(x, Y)


def test_progress_tells_rows_speed_and_time_left(capsys, monkeypatch, small_blocks):
    monkeypatch.setattr("pydirect._progress.SECONDS_BETWEEN_REPORTS", 0.0)
    fitted(X, Y, model={**FAST, "verbose": 1})
    lines = capsys.readouterr().err.splitlines()
    assert any("  128 rows of 900, " in line and " s left, " in line and line.endswith(" rows/s") for line in lines)
    fitted(iter(as_blocks(100)), model={**FAST, "verbose": 1})
    assert any("  128 rows, " in line for line in capsys.readouterr().err.splitlines())


# Interruptions


def numbered_blocks(bad=None, value=np.nan, n_blocks=1003, size=10):
    """Blocks of ten rows; a value of one of them, or what it does, may be bad."""
    rng = np.random.default_rng(9)
    for k in range(n_blocks):
        x = rng.standard_normal((size, D))
        y = x[:, 0] + 0.1 * rng.standard_normal(size)
        if k == bad and isinstance(value, BaseException):
            raise value
        if k == bad:
            x[3, 2] = value
        yield x, y


@pytest.fixture
def fixed():
    """A model with its feature map, for passes of their own."""
    x, y = next(numbered_blocks(size=200))
    return lambda **options: DirectRegressor(**FAST, **options).fit_features(x, y)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.nan, StreamError, r"row 10003 \(block 1000, its row 3\): column 2 of X must be finite, got nan"),
        (np.inf, StreamError, r"row 10003 \(block 1000, its row 3\): column 2 of X must be finite, got inf"),
        (KeyboardInterrupt(), KeyboardInterrupt, r"interrupted after 9,984 rows"),
        (ConnectionError("gone"), ConnectionError, "gone"),
    ],
)
def test_what_stops_a_pass_says_where_and_the_checkpoint_goes_on(
    tmp_path, small_blocks, fixed, value, error, message, n_threads
):
    path = tmp_path / "c.pydirect"
    options = {"checkpoint": path, "checkpoint_seconds": 1e9, "keep_features": True}
    with pytest.raises(error, match=message):
        fixed(n_threads=n_threads).fit_stream(lambda: numbered_blocks(1000, value), **options)
    described = persistence.describe(path)
    assert described.header["n_rows"] == 9984
    assert described.header["statistics"]["n_samples"] == 9984.0
    resumed = DirectRegressor(**FAST, n_threads=n_threads).fit_stream(numbered_blocks, checkpoint=path)
    whole = fixed().fit_stream(numbered_blocks, keep_features=True)
    assert_same_bits(resumed.statistics_, whole.statistics_)
    assert resumed.predict(X).tobytes() == whole.predict(X).tobytes()


def test_bad_values_are_found_by_the_first_pass_before_anything_is_summed(tmp_path):
    path = tmp_path / "c.pydirect"
    with pytest.raises(StreamError, match=r"row 10003 \(block 1000, its row 3\)"):
        DirectRegressor(**FAST).fit_stream(lambda: numbered_blocks(1000), checkpoint=path)
    assert not path.exists()


def test_an_interrupted_sample_is_told(tmp_path):
    with pytest.raises(rows_module.StreamInterrupt, match="fixed by a sample: no row is counted yet"):
        DirectRegressor(**FAST).fit_stream(lambda: numbered_blocks(20, KeyboardInterrupt()))


def test_a_finished_checkpoint_gives_the_model_and_grows_with_the_data(tmp_path, small_blocks):
    folder, path = write_folder(tmp_path / "folder"), tmp_path / "c.pydirect"
    last = folder / "part-2.parquet"
    last.rename(tmp_path / "later")
    first = fitted(folder, "y0", "w", checkpoint=path)
    again = fitted(folder, "y0", "w", checkpoint=path)
    assert (first.predict(np.c_[X, X[:, 0]]) == again.predict(np.c_[X, X[:, 0]])).all()
    (tmp_path / "later").rename(last)
    grown = fitted(folder, "y0", "w", checkpoint=path)
    assert grown.statistics_.n_rows == (WEIGHT > 0).sum()


@pytest.mark.parametrize(
    ("parameters", "data", "message"),
    [
        ({"features": "polynomial"}, (X, Y), "the checkpoint is of a model with other parameters: features changed"),
        (FAST, (X + 1, Y), "other data, which begin with other rows"),
        (FAST, (X[:500], Y[:500]), "the checkpoint counts 900 rows, the data have 500"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_with_the_reason(tmp_path, parameters, data, message):
    path = tmp_path / "c.pydirect"
    fitted(X, Y, checkpoint=path)
    with pytest.raises(persistence.FileFormatError, match=message):
        fitted(*data, model=parameters, checkpoint=path)
    fitted(X, Y, checkpoint=path)
    with pytest.raises(persistence.FileFormatError, match="of other features than those to be kept"):
        DirectRegressor(**FAST).fit_features(X[:100], Y[:100]).fit_stream(X, Y, checkpoint=path, keep_features=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "part-1.parquet").unlink(), "part-2.parquet of 599 rows, where was part-1.parquet of 1 rows"),
        (lambda f: write_parquet(f / "part-0b.parquet", X, Y, WEIGHT), "part-0b.parquet of 900 rows, where was part-1"),
        (lambda f: write_parquet(f / "part-1.parquet", X[:7], Y[:7], WEIGHT[:7]), "of 7 rows, where was .* of 1 rows"),
    ],
)
def test_a_folder_that_changed_below_the_checkpoint_is_refused(tmp_path, small_blocks, change, message):
    folder, path = write_folder(tmp_path / "folder"), tmp_path / "c.pydirect"
    fitted(folder, "y0", "w", checkpoint=path)
    change(folder)
    write_parquet(folder / "part-9.parquet", X, Y, WEIGHT)
    with pytest.raises(persistence.FileFormatError, match=message):
        fitted(folder, "y0", "w", checkpoint=path)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.unlink(), "part-2.parquet, data row 1 .*cannot be read.*No such file"),
        (lambda p: write_parquet(p, X[:7], Y[:7], WEIGHT[:7]), "part-2.parquet: the file has changed .* had 599 rows"),
        (lambda p: write_parquet(p, np.r_[X, X], np.r_[Y, Y], np.r_[WEIGHT, WEIGHT]), "has changed .* has 1,800 rows"),
        (lambda p: pyarrow.parquet.write_table(pyarrow.table({"z": X[:599, 0]}), p), "has changed .* rows of 'z'"),
        (lambda p: p.write_bytes(p.read_bytes()[:-9]), "part-2.parquet: not a whole Parquet file"),
    ],
)
def test_a_folder_that_changes_between_the_passes_is_told(
    tmp_path, monkeypatch, small_blocks, n_threads, change, message
):
    folder, path = write_folder(tmp_path / "folder"), tmp_path / "c.pydirect"
    original = DirectRegressor._fix_features_by

    def fix_and_change(self, *arguments):
        original(self, *arguments)
        change(folder / "part-2.parquet")

    monkeypatch.setattr(DirectRegressor, "_fix_features_by", fix_and_change)
    with pytest.raises(StreamError, match=f"{message}.*; the first 256 rows are in .*c.pydirect"):
        fitted(folder, "y0", "w", model={**FAST, "n_threads": n_threads}, checkpoint=path)
    assert persistence.describe(path).header["n_rows"] == 256


def test_a_checkpoint_without_a_folder_is_told_before_the_first_pass(tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder of the checkpoint does not exist"):
        fitted(X, Y, checkpoint=tmp_path / "absent" / "c.pydirect")


def test_blocks_may_be_empty_and_folders_hold_folders(tmp_path):
    assert fitted([(X[:0], Y[:0, 0]), (X, Y[:, 0])]).n_samples_ == N
    folder = write_folder(tmp_path / "folder")
    (folder / "more.parquet").mkdir()
    assert ParquetSource(folder, ("y0",)).n_rows == N


def test_a_file_that_is_no_checkpoint_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "m.pydirect"
    model = fitted(X, Y)
    model.save(path)
    before = path.read_bytes()
    with pytest.raises(persistence.KindError):
        fitted(X, Y, checkpoint=path)
    assert path.read_bytes() == before


def test_a_full_disk_says_where_and_leaves_the_last_checkpoint_whole(tmp_path, monkeypatch, small_blocks, fixed):
    path, written = tmp_path / "c.pydirect", []
    original = persistence._write_all

    def fills_up(file, *arguments):
        written.append(1)
        if len(written) > 5:
            file.write(b"part of it")
            raise OSError(28, "No space left on device")
        original(file, *arguments)

    monkeypatch.setattr(persistence, "_write_all", fills_up)
    options = {"checkpoint": path, "checkpoint_seconds": 0.0}
    with pytest.raises(OSError, match=r"cannot be written after 320 rows .No space left on device.; the one written"):
        fixed().fit_stream(numbered_blocks, keep_features=True, **options)
    assert os.listdir(tmp_path) == ["c.pydirect"]
    monkeypatch.setattr(persistence, "_write_all", original)
    resumed = DirectRegressor(**FAST).fit_stream(numbered_blocks, checkpoint=path)
    assert_same_bits(resumed.statistics_, fixed().fit_stream(numbered_blocks, keep_features=True).statistics_)


def test_a_truncated_parquet_file_says_which_before_the_pass(tmp_path):
    folder = write_folder(tmp_path / "folder")
    path = folder / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StreamError, match=r"part-1\.parquet: not a whole Parquet file"):
        fitted(folder, "y0")


def test_a_damaged_parquet_page_says_where_and_the_checkpoint_goes_on(tmp_path, small_blocks):
    path, checkpoint = write_parquet(tmp_path / "a.parquet"), tmp_path / "c.pydirect"
    whole = path.read_bytes()
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(6)
    damaged = bytearray(whole)
    begin = group.column(1).dictionary_page_offset or group.column(1).data_page_offset
    damaged[begin : begin + 40] = bytes(40)
    names = [f"x{j}" for j in range(D)]
    model = DirectRegressor(**FAST)
    model.fit_features(X, Y)
    model.feature_names_in_ = np.array(names, dtype=object)
    path.write_bytes(damaged)
    with pytest.raises(StreamError, match=r"a\.parquet, data row 601 \(row group 6, its row 1\): .*cannot be read"):
        model.fit_stream(
            ParquetSource(path, ("y0", "y1"), one_dimensional=False), keep_features=True, checkpoint=checkpoint
        )
    path.write_bytes(whole)
    resumed = fitted(path, ["y0", "y1"], checkpoint=checkpoint)
    assert resumed.n_samples_ == N


def test_a_checkpoint_needs_features_that_a_file_can_hold(tmp_path):
    from sklearn.preprocessing import StandardScaler

    with pytest.raises(TypeError, match="features must be built in for a checkpoint"):
        fitted(X, Y, model={"features": StandardScaler()}, checkpoint=tmp_path / "c.pydirect")
    assert fitted(X, Y, model={"features": StandardScaler()}).n_samples_ == N


def test_ctrl_c_waits_for_the_end_of_a_block_and_the_second_does_not(small_blocks):
    with _interruptions.deferred_interrupt() as interrupted:
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


def test_memory_that_ends_within_a_merge_counts_no_row_twice(fixed, small_blocks, monkeypatch, tmp_path):
    checkpoint, moved, calls = tmp_path / "c.pydirect", running_statistics._moved, []

    def failing(*arguments):
        calls.append(0)
        if len(calls) == 5:
            raise MemoryError
        return moved(*arguments)

    monkeypatch.setattr(running_statistics, "_moved", failing)
    with pytest.raises(MemoryError):
        fixed().fit_stream(X, Y[:, 0], keep_features=True, checkpoint=checkpoint)
    monkeypatch.setattr(running_statistics, "_moved", moved)
    resumed = fixed().fit_stream(X, Y[:, 0], keep_features=True, checkpoint=checkpoint)
    assert_same_bits(resumed.statistics_, fixed().fit_stream(X, Y[:, 0], keep_features=True).statistics_)


def test_rows_that_faded_are_forgotten_by_as_much_as_is_left():
    model = DirectRegressor("linear").fit_features(X, Y[:, 0]).partial_fit(X[:200], Y[:200, 0])
    model.partial_fit(X[200:300], Y[200:300, 0], decay=0.5)
    with pytest.raises(ValueError, match="rows that have faded must be given as they were added and fade"):
        model.forget(X[:200], Y[:200, 0], np.full(200, 0.5))
    model.forget(X[:200], Y[:200, 0], decay=0.5)
    assert_equal_to_rounding(model.statistics_, model.new_statistics().update(X[200:300], Y[200:300, 0]))
    assert model.repetitions_ == pytest.approx(1.0)


@pytest.mark.parametrize("repeatable", [True, False])
def test_nan_in_the_first_blocks_of_an_iterator_is_reported_where_it_is(fixed, repeatable):
    blocks = lambda: numbered_blocks(bad=7, n_blocks=30)  # noqa: E731
    with pytest.raises(StreamError, match=r"row 73 \(block 7, its row 3\)"):
        DirectRegressor(**FAST).fit_stream(blocks if repeatable else blocks())


def test_rows_of_another_width_or_order_are_not_added():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    statistics = DirectRegressor("linear").fit_features(frame, Y[:, 0]).new_statistics()
    with pytest.raises(ValueError, match=r"x must have shape \(n_rows, 4\)|x must have .*4"):
        statistics.update(np.c_[X, X], Y[:, 0])
    with pytest.raises(ValueError, match=r"x must have the columns \['a', 'b', 'c', 'd'\], in this order"):
        statistics.update(frame[["b", "a", "c", "d"]], Y[:, 0])
    assert statistics.n_samples == 0.0
    unnamed = DirectRegressor("linear").fit_features(X, Y[:, 0]).new_statistics()
    assert unnamed.update(frame, Y[:, 0]).fingerprint == statistics.fingerprint


def test_blocks_with_columns_in_another_order_are_named():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    blocks = [(frame[:300], Y[:300]), (frame[300:][["b", "a", "c", "d"]], Y[300:])]
    with pytest.raises(StreamError, match="block 1: the columns must be"):
        DirectRegressor("linear").fit_stream(blocks)


def test_a_folder_whose_files_lack_the_column_that_cuts_it_is_refused(tmp_path):
    (tmp_path / "year=2020").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"x": X[:, 0], "y": Y[:, 0]}), tmp_path / "year=2020" / "a.parquet")
    with pytest.raises(StreamError, match=r"partitioned by a column that its files do not hold \(year=2020\)"):
        as_source(tmp_path, "y")
    assert as_source(tmp_path / "year=2020", "y").n_rows == N
    with pytest.raises(ValueError, match="y must name each target once"):
        as_source(tmp_path / "year=2020", ["y", "y"])


def test_a_file_that_vanishes_is_named(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"x": X[:, 0], "y": Y[:, 0]}), tmp_path / "a.parquet")
    source = as_source(tmp_path, "y")
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(StreamError, match=r"a\.parquet, data row 1 .*the file cannot be read"):
        list(source.blocks(0))


def test_blocks_may_be_cut_anew_between_two_runs(tmp_path):
    checkpoint = tmp_path / "c.pydirect"
    for size in (50, 300, 90):
        blocks = [(X[i : i + size], Y[i : i + size, 0]) for i in range(0, N, size)]
        assert DirectRegressor("linear").fit_stream(blocks, checkpoint=checkpoint).n_samples_ == N


def test_a_stream_can_be_summed_in_another_thread():
    total = empty()
    thread = threading.Thread(target=collect_stream, args=(total, ArraySource(X, Y)))
    thread.start()
    thread.join()
    assert total.n_samples == N


def test_columns_must_stay_the_same(small_blocks):
    with pytest.raises(StreamError, match=r"row 100 .*expected 4 columns of X and 2 of y without weights, as before"):
        collect_stream(empty(), BlockSource([(X[:100], Y[:100]), (X[100:, :3], Y[100:])]))
    with pytest.raises(StreamError, match="block 1: y must hold real numbers"):
        collect_stream(empty(), BlockSource([(X[:1], Y[:1]), (X[1:2], np.array([["a", "b"]]))]))


def test_a_stream_without_rows_that_count_is_refused():
    with pytest.raises(StreamError, match="there are no rows that count"):
        fitted(X, Y, np.zeros(N))
    with pytest.raises(StreamError, match="no row is left that counts"):
        DirectRegressor(**FAST).fit_features(X, Y).fit_stream([(X, Y, np.zeros(N))], keep_features=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sample_rows": 1}, ValueError, "sample_rows must be at least 2"),
        ({"keep_features": 1}, TypeError, "keep_features must be True or False"),
        ({"checkpoint_seconds": -1}, ValueError, "checkpoint_seconds must be"),
    ],
)
def test_options_that_are_none_are_refused_by_name(options, error, message):
    with pytest.raises(error, match=message):
        fitted(X, Y, **options)


def test_a_stream_on_a_wrong_number_of_threads_leaves_the_model_as_it_was():
    model = fitted(X, Y).set_params(n_threads=0)
    before = model.posterior_
    with pytest.raises(ValueError, match="n_threads"):
        model.fit_stream(X, Y)
    assert model.posterior_ is before


def test_a_column_of_a_frame_that_holds_no_numbers_is_named():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]})
    with pytest.raises(TypeError, match="column 'b' of X must hold real numbers"):
        as_source(frame, [1.0, 2.0])
    with pytest.raises(StreamError, match="block 0: column 'b' of X must hold real numbers"):
        collect_stream(empty(), BlockSource([(frame, [1.0, 2.0])]))
    for strings in (frame[["b"]], frame["b"]):
        with pytest.raises(TypeError, match="column 'b' of y must hold real numbers"):
            as_source(frame[["a"]], strings)
        with pytest.raises(StreamError, match="block 0: column 'b' of y must hold real numbers"):
            collect_stream(empty(), BlockSource([(frame[["a"]], strings)]))
    with pytest.raises(TypeError, match="column 'b' of sample_weight must hold real numbers"):
        as_source(frame[["a"]], frame["a"], frame["b"])


def test_columns_of_a_frame_may_be_numbers_of_any_kind():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    count = pandas.array([3, None], dtype="Int64")
    frames = [
        pandas.DataFrame({"a": [0.5, 1.5], "b": [True, False], "c": count}),
        pandas.DataFrame({0: [0.5, 1.5], 1: [True, False], 2: count}),
    ]
    for frame in frames:
        for source in (as_source(frame, frame[frame.columns[1]]), as_source([(frame, [1.0, 0.0])])):
            (rows,) = source.blocks(0)
            np.testing.assert_array_equal(rows.x, [[0.5, 1.0, 3.0], [1.5, 0.0, np.nan]])
            np.testing.assert_array_equal(rows.y, [[1.0], [0.0]])
    alone = frames[0][["c"]]
    np.testing.assert_array_equal(as_source(alone, [1.0, 2.0]).x, [[3.0], [np.nan]])
    twice = pandas.DataFrame(np.eye(2), columns=["a", "a"])
    np.testing.assert_array_equal(as_source(twice, [1.0, 2.0]).x, np.eye(2))
    single = as_source(pandas.DataFrame({"a": np.ones(2, dtype=np.float32)}), [1.0, 2.0])
    assert single.x.dtype == np.float32  # no copy of other size


@pytest.mark.parametrize("basis", ["raw", "decorrelated"])
def test_noise_from_held_out_rows_is_refused_with_what_works_instead(basis):
    with pytest.raises(ValueError, match="hold no rows out: 'evidence' and 'elbo' need none"):
        DirectRegressor(basis=basis, noise="held_out").fit_stream(X, Y)


def test_an_error_of_the_iterators_own_tells_of_the_checkpoint(tmp_path):
    def failing():
        yield from ((X[a : a + 300], Y[a : a + 300]) for a in (0, 300))
        raise RuntimeError("the disk is gone")

    model = DirectRegressor("linear").fit_features(X, Y)
    with pytest.raises(RuntimeError, match="the disk is gone") as caught:
        model.fit_stream(failing(), keep_features=True, checkpoint=tmp_path / "c")
    assert "the same call goes on from there" in caught.value.__notes__[0]


# Command line


def run(*arguments):
    return main([str(a) for a in arguments])


def test_the_command_fits_a_folder_and_resumes(tmp_path, capsys):
    folder, model, checkpoint = write_folder(tmp_path / "folder"), tmp_path / "m.pydirect", tmp_path / "c.pydirect"
    command = ["fit", folder, "--stream", "--target", "y0", "--drop", "y1", "--weight", "w", "-o", model]
    command += ["--features", "linear", "--checkpoint", checkpoint]
    assert run(*command) == 0
    captured = capsys.readouterr()
    n_left_out = (WEIGHT == 0).sum()
    assert f"{N - n_left_out} ({n_left_out} with missing values or no weight left out)" in captured.out
    assert run(*command, "--quiet") == 0
    assert run("predict", model, folder / "part-0.parquet", "-o", tmp_path / "p.csv") == 0
    assert "RMSE" in capsys.readouterr().err
    assert run("info", model) == 0
    assert "rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stream", "--test-fraction", "0.2"], "--test-fraction: not with --stream"),
        (["--stream", "--model", "network"], "--model network: not with --stream"),
        (["--stream", "--model", "dvi"], "--model dvi: not with --stream"),
        (["--stream", "--task", "classification", "--checkpoint", "c"], "--checkpoint with --task classification: not"),
        (["--stream", "--task", "classification", "--target", "y1"], "one --target at a time"),
        (["--checkpoint", "c.pydirect"], "--checkpoint: only with --stream"),
        (["--stream", "--target", "price"], "no column 'price'"),
    ],
)
def test_the_command_refuses_what_streams_cannot_do(tmp_path, capsys, options, message):
    data = write_parquet(tmp_path / "a.parquet")
    assert run("fit", data, "--target", "y0", "-o", tmp_path / "m.pydirect", *options) == 2
    assert message in capsys.readouterr().err


def test_the_command_streams_parquet_only(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    assert run("fit", tmp_path / "a.csv", "--stream", "--target", "y", "-o", tmp_path / "m.pydirect") == 2
    assert "--stream reads .parquet files and folders of them" in capsys.readouterr().err


def test_the_command_says_how_to_go_on_after_ctrl_c(tmp_path, capsys, monkeypatch, small_blocks):
    data, checkpoint = write_parquet(tmp_path / "a.parquet"), tmp_path / "c.pydirect"
    original = RunningStatistics.merge

    def merge(self, other, **options):
        original(self, other, **options)
        if self.n_samples == 256.0:
            signal.raise_signal(signal.SIGINT)
        return self

    monkeypatch.setattr(RunningStatistics, "merge", merge)
    command = [
        "fit",
        data,
        "--stream",
        "--target",
        "y0",
        "-o",
        tmp_path / "m.pydirect",
        "--features",
        "linear",
        "--quiet",
    ]
    assert run(*command, "--checkpoint", checkpoint) == 130
    error = capsys.readouterr().err
    assert "interrupted after 256 rows of 900; the first 256 rows are in" in error
    assert "the same call goes on from there" in error
    monkeypatch.setattr(RunningStatistics, "merge", original)
    assert run(*command, "--checkpoint", checkpoint) == 0
    assert pydirect.load(tmp_path / "m.pydirect").n_samples_ == N


def test_blocks_are_as_large_as_the_batchs():
    assert empty().block_rows == statistics.block_rows(B, np.float64)
