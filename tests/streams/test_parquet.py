"""Parquet files and folders of them: missing, damaged, changed."""

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from streamed_rows import LINEAR, fitted, write_folder, write_parquet
from summed_rows import WEIGHT, D, N, X, Y

from pydirect import DirectRegressor, StreamError
from pydirect.persistence import container as persistence
from pydirect.streams.parquet import ParquetSource
from pydirect.streams.sources import as_source
from pydirect.tables.buffer import Codebook, LabelCodes

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


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
def test_files_that_change_between_the_passes_are_reported(
    tmp_path, monkeypatch, small_blocks, n_threads, change, message
):
    folder, path = write_folder(tmp_path / "folder"), tmp_path / "c.pydirect"
    original = DirectRegressor._fix_features_by

    def fix_and_change(self, *arguments):
        original(self, *arguments)
        change(folder / "part-2.parquet")

    monkeypatch.setattr(DirectRegressor, "_fix_features_by", fix_and_change)
    with pytest.raises(StreamError, match=f"{message}.*; the first 256 rows are in .*c.pydirect"):
        fitted(folder, "y0", "w", model={**LINEAR, "n_threads": n_threads}, checkpoint=path)
    assert persistence.read(path).header["n_rows"] == 256


def test_a_truncated_file_is_named_before_the_first_pass(tmp_path):
    folder = write_folder(tmp_path / "folder")
    path = folder / "part-1.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StreamError, match=r"part-1\.parquet: not a whole Parquet file"):
        fitted(folder, "y0")


def test_a_damaged_page_is_located_and_the_pass_resumes_from_its_checkpoint(tmp_path, small_blocks):
    path, checkpoint = write_parquet(tmp_path / "a.parquet"), tmp_path / "c.pydirect"
    whole = path.read_bytes()
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(6)
    damaged = bytearray(whole)
    begin = group.column(1).dictionary_page_offset or group.column(1).data_page_offset
    damaged[begin : begin + 40] = bytes(40)
    names = [f"x{j}" for j in range(D)]
    model = DirectRegressor(**LINEAR)
    model.fit_features(X, Y)
    model.feature_names_in_ = np.array(names, dtype=object)
    path.write_bytes(damaged)
    with pytest.raises(StreamError, match=r"a\.parquet, data row 601 \(row group 6, its row 1\): .*cannot be read"):
        model.fit_stream(
            ParquetSource(path, ("y0", "y1"), one_dimensional=False), keep_features=True, checkpoint=checkpoint
        )
    path.write_bytes(whole)
    resumed = fitted(path, ["y0", "y1"], checkpoint=checkpoint)
    assert resumed.total_weight_ == N


def test_a_folder_whose_files_lack_the_partition_column_is_rejected(tmp_path):
    (tmp_path / "year=2020").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"x": X[:, 0], "y": Y[:, 0]}), tmp_path / "year=2020" / "a.parquet")
    with pytest.raises(StreamError, match=r"partitioned by a column that its files do not hold \(year=2020\)"):
        as_source(tmp_path, "y")
    assert as_source(tmp_path / "year=2020", "y").n_rows == N
    with pytest.raises(ValueError, match="y must name each target once"):
        as_source(tmp_path / "year=2020", ["y", "y"])


def test_columns_of_files_are_those_of_frames(tmp_path):
    """Decimals and nulls are numbers, categories text; labels of any kind have codes."""
    table = pyarrow.table(
        {
            "a": pyarrow.array([Decimal("0.5"), None, Decimal("2")]),
            "b": pyarrow.array(["u", None, "v"]).dictionary_encode(),
            "c": pyarrow.nulls(3),
            "d": pyarrow.array([date(2024, 1, 1), None, date(2024, 1, 2)]),
            "y": pyarrow.array(["no", "yes", "no"]),
            "w": pyarrow.array([Decimal("1"), Decimal("2.5"), Decimal("3")]),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    labels, book = LabelCodes(), Codebook()
    (rows,) = as_source(tmp_path / "a.parquet", "y", "w", labels, book).blocks(0)
    day = 86400.0
    seconds = 19723 * day
    expected = [[0.5, 0, np.nan, seconds], [np.nan] * 4, [2, 1, np.nan, seconds + day]]
    np.testing.assert_array_equal(rows.x, expected)
    assert rows.y.ravel().tolist() == [0, 1, 0] and labels.labels == ["no", "yes"]
    assert rows.weight.tolist() == [1, 2.5, 3] and book.values == [None, ["u", "v"], None, None]
    with pytest.raises(StreamError, match="columns 'b' holds text, 'd' holds dates, 'y' holds text: turn them into"):
        as_source(tmp_path / "a.parquet", "y", "w")
