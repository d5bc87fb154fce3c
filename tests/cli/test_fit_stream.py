"""``pydirect fit --stream``: folders of Parquet files, checkpoints, refusals."""

from __future__ import annotations

import signal

import pytest
from streamed_rows import write_folder, write_parquet
from summed_rows import WEIGHT, N

import pydirect
from pydirect import RunningStatistics

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


def test_fit_stream_fits_a_folder_and_resumes(tmp_path, capsys, run):
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
def test_options_that_streams_do_not_support_are_rejected(tmp_path, capsys, run, options, message):
    data = write_parquet(tmp_path / "a.parquet")
    assert run("fit", data, "--target", "y0", "-o", tmp_path / "m.pydirect", *options) == 2
    assert message in capsys.readouterr().err


def test_only_parquet_files_are_streamed(tmp_path, capsys, run):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    assert run("fit", tmp_path / "a.csv", "--stream", "--target", "y", "-o", tmp_path / "m.pydirect") == 2
    assert "--stream reads .parquet files and folders of them" in capsys.readouterr().err


def test_ctrl_c_says_how_to_resume(tmp_path, capsys, run, monkeypatch, small_blocks):
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
    assert "repeat the call to resume from there" in error
    monkeypatch.setattr(RunningStatistics, "merge", original)
    assert run(*command, "--checkpoint", checkpoint) == 0
    assert pydirect.load(tmp_path / "m.pydirect").n_samples_ == N
