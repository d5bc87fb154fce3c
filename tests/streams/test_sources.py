"""Sources of rows: arrays, blocks, data frames, files."""

import numpy as np
import pytest
from streamed_rows import all_sources, fitted, write_folder, write_parquet
from summed_rows import WEIGHT, N, X, Y, empty

from pydirect import DirectRegressor, StreamError
from pydirect.streams import rows as rows_module, sources as sources_module
from pydirect.streams.parquet import ParquetSource
from pydirect.streams.run import collect_stream
from pydirect.streams.sources import BlockSource, as_source

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


def test_reading_can_start_at_any_row(tmp_path, monkeypatch, small_blocks):
    monkeypatch.setattr(sources_module, "READ_ROWS", 130)
    for name, source in all_sources(tmp_path).items():
        if source.repeatable:
            for start in (1, 64, 299, 300, 301, 899):
                rows = rows_module.Rows.joined(list(source.blocks(start)))
                np.testing.assert_array_equal(rows.x, X[start:], err_msg=f"{name} {start}")
                np.testing.assert_array_equal(rows.y, Y[start:])
                np.testing.assert_array_equal(rows.weight, WEIGHT[start:])


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
        (lambda p: as_source(p.parent / "empty", "y0"), StreamError, r"no \.parquet files"),
        (lambda p: as_source(p.parent, "y0"), StreamError, "column 'when' holds values of type duration"),
    ],
)
def test_invalid_sources_are_rejected_with_the_reason(tmp_path, make, error, message):
    (tmp_path / "empty").mkdir()
    path = write_parquet(tmp_path / "a.parquet", when=np.zeros(N))
    write_parquet(tmp_path / "z.parquet", when=np.zeros(N, dtype="timedelta64[s]"))
    with pytest.raises(error, match=message):
        make(path)


def test_blocks_may_be_empty_and_folders_may_contain_folders(tmp_path):
    assert fitted([(X[:0], Y[:0, 0]), (X, Y[:, 0])]).total_weight_ == N
    folder = write_folder(tmp_path / "folder")
    (folder / "more.parquet").mkdir()
    assert ParquetSource(folder, ("y0",)).n_rows == N


def test_blocks_with_columns_in_another_order_are_rejected():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    blocks = [(frame[:300], Y[:300]), (frame[300:][["b", "a", "c", "d"]], Y[300:])]
    with pytest.raises(StreamError, match="block 1: the columns must be"):
        DirectRegressor("linear").fit_stream(blocks)


def test_data_frame_columns_that_are_not_numeric_are_named():
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


def test_data_frame_columns_may_have_any_numeric_type():
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
    single = as_source(pandas.DataFrame({"a": np.ones(2, dtype=np.float32)}), [1.0, 2.0])
    assert single.x.dtype == np.float32  # no copy of other size
