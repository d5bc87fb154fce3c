"""Checkpoints: resuming after interrupts, errors and new data."""

import os

import numpy as np
import pytest
from streamed_rows import LINEAR, fitted, numbered_blocks, with_features, write_folder, write_parquet
from summed_rows import WEIGHT, N, X, Y, assert_same_bits

from pydirect import DirectRegressor, StreamError
from pydirect.persistence import container as persistence
from pydirect.statistics import running as running_statistics
from pydirect.streams import run

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


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
def test_a_pass_that_stopped_says_where_and_resumes_from_its_checkpoint(
    tmp_path, small_blocks, value, error, message, n_threads
):
    path = tmp_path / "c.pydirect"
    options = {"checkpoint": path, "keep_features": True}
    with pytest.raises(error, match=message):
        with_features(n_threads=n_threads).fit_stream(lambda: numbered_blocks(1000, value), **options)
    written = persistence.read(path)
    assert written.header["n_rows"] == 9984
    assert written.header["statistics"]["n_samples"] == 9984.0
    resumed = DirectRegressor(**LINEAR, n_threads=n_threads).fit_stream(numbered_blocks, checkpoint=path)
    whole = with_features().fit_stream(numbered_blocks, keep_features=True)
    assert_same_bits(resumed.statistics_, whole.statistics_)
    assert resumed.predict(X).tobytes() == whole.predict(X).tobytes()


def test_a_finished_checkpoint_gives_the_same_model_and_takes_in_new_files(tmp_path, small_blocks):
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
        ({**LINEAR, "features": "polynomial"}, (X, Y), "the checkpoint is of a model with other parameters: features"),
        (LINEAR, (X + 1, Y), "other data: their first rows differ"),
        (LINEAR, (X[:500], Y[:500]), "the checkpoint counts 900 rows, but the data have 500"),
    ],
)
def test_a_checkpoint_of_another_model_or_other_data_is_rejected_with_the_reason(tmp_path, parameters, data, message):
    path = tmp_path / "c.pydirect"
    fitted(X, Y, checkpoint=path)
    with pytest.raises(persistence.FileFormatError, match=message):
        fitted(*data, model=parameters, checkpoint=path)
    fitted(X, Y, checkpoint=path)
    with pytest.raises(persistence.FileFormatError, match="of other features than those to be kept"):
        DirectRegressor(**LINEAR).fit_features(X[:100], Y[:100]).fit_stream(X, Y, checkpoint=path, keep_features=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "part-1.parquet").unlink(), "part-2.parquet of 599 rows in place of part-1.parquet of 1 row"),
        (
            lambda f: write_parquet(f / "part-0b.parquet", X, Y, WEIGHT),
            "part-0b.parquet of 900 rows in place of part-1",
        ),
        (lambda f: write_parquet(f / "part-1.parquet", X[:7], Y[:7], WEIGHT[:7]), "of 7 rows in place of .* of 1 rows"),
    ],
)
def test_a_folder_whose_counted_files_changed_is_rejected(tmp_path, small_blocks, change, message):
    folder, path = write_folder(tmp_path / "folder"), tmp_path / "c.pydirect"
    fitted(folder, "y0", "w", checkpoint=path)
    change(folder)
    write_parquet(folder / "part-9.parquet", X, Y, WEIGHT)
    with pytest.raises(persistence.FileFormatError, match=message):
        fitted(folder, "y0", "w", checkpoint=path)


def test_a_file_that_is_not_a_checkpoint_is_rejected_and_left_unchanged(tmp_path):
    path = tmp_path / "m.pydirect"
    model = fitted(X, Y)
    model.save(path)
    before = path.read_bytes()
    with pytest.raises(persistence.KindError):
        fitted(X, Y, checkpoint=path)
    assert path.read_bytes() == before


def test_a_full_disk_is_reported_and_leaves_the_last_checkpoint_intact(tmp_path, monkeypatch, small_blocks):
    path, written = tmp_path / "c.pydirect", []
    original = persistence._write_all

    def fills_up(file, *arguments):
        written.append(1)
        if len(written) > 5:
            file.write(b"part of it")
            raise OSError(28, "No space left on device")
        original(file, *arguments)

    monkeypatch.setattr(persistence, "_write_all", fills_up)
    monkeypatch.setattr(run, "SECONDS", 0.0)
    with pytest.raises(OSError, match=r"cannot be written after 320 rows .No space left on device.; the previous"):
        with_features().fit_stream(numbered_blocks, keep_features=True, checkpoint=path)
    assert os.listdir(tmp_path) == ["c.pydirect"]
    monkeypatch.setattr(persistence, "_write_all", original)
    resumed = DirectRegressor(**LINEAR).fit_stream(numbered_blocks, checkpoint=path)
    assert_same_bits(resumed.statistics_, with_features().fit_stream(numbered_blocks, keep_features=True).statistics_)


def test_checkpoints_need_built_in_features(tmp_path):
    from sklearn.preprocessing import StandardScaler

    with pytest.raises(TypeError, match="features must be built in for a checkpoint"):
        fitted(X, Y, model={"features": StandardScaler()}, checkpoint=tmp_path / "c.pydirect")
    assert fitted(X, Y, model={"features": StandardScaler()}).total_weight_ == N


def test_running_out_of_memory_during_a_merge_counts_no_row_twice(small_blocks, monkeypatch, tmp_path):
    checkpoint, moved, calls = tmp_path / "c.pydirect", running_statistics._moved, []

    def failing(*arguments):
        calls.append(0)
        if len(calls) == 5:
            raise MemoryError
        return moved(*arguments)

    monkeypatch.setattr(running_statistics, "_moved", failing)
    with pytest.raises(MemoryError):
        with_features().fit_stream(X, Y[:, 0], keep_features=True, checkpoint=checkpoint)
    monkeypatch.setattr(running_statistics, "_moved", moved)
    resumed = with_features().fit_stream(X, Y[:, 0], keep_features=True, checkpoint=checkpoint)
    assert_same_bits(resumed.statistics_, with_features().fit_stream(X, Y[:, 0], keep_features=True).statistics_)
