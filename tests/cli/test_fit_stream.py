"""``pydirect fit --stream``: folders of Parquet files, checkpoints, refusals."""

import signal

import numpy as np
import pytest
from streamed_rows import write_folder, write_parquet
from summed_rows import N

import pydirect
from pydirect import RunningStatistics

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


def test_fit_stream_fits_a_folder_and_resumes(tmp_path, capsys, run):
    folder, model, checkpoint = write_folder(tmp_path / "folder"), tmp_path / "m.pydirect", tmp_path / "c.pydirect"
    command = ["fit", folder, "--stream", "--target", "y0", "--drop", "y1", "--weight", "w", "-o", model]
    command += ["--set", "features=linear", "--checkpoint", checkpoint]
    assert run(*command) == 0
    assert "DirectRegressor on" in capsys.readouterr().out
    assert run(*command, "--quiet") == 0
    assert run("predict", model, folder / "part-0.parquet", "-o", tmp_path / "p.csv") == 0
    assert "RMSE" in capsys.readouterr().err
    assert run("info", model) == 0
    assert "rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stream", "--test-fraction", "0.2"], "--test-fraction: not with --stream"),
        (["--stream", "--model", "pooled"], "--stream: not for --model pooled"),
        (["--stream", "--task", "classification", "--checkpoint", "c"], "--checkpoint: not with classes"),
        (["--stream", "--task", "classification", "--target", "y1"], "only one --target can hold classes"),
        (["--stream", "--missing-value", "-"], "--missing-value: not with --stream"),
        (["--stream", "--decimal", "comma"], "--decimal: not with --stream"),
        (["--checkpoint", "c.pydirect"], "--checkpoint: only with --stream"),
        (["--stream", "--target", "price"], "no column 'price'"),
    ],
)
def test_options_that_streams_do_not_support_are_rejected(tmp_path, capsys, run, options, message):
    data = write_parquet(tmp_path / "a.parquet")
    assert run("fit", data, "--target", "y0", "-o", tmp_path / "m.pydirect", *options) == 2
    assert message in capsys.readouterr().err


def test_ctrl_c_says_how_to_resume(tmp_path, capsys, run, monkeypatch, small_blocks):
    data, checkpoint = write_parquet(tmp_path / "a.parquet"), tmp_path / "c.pydirect"
    original = RunningStatistics.merge

    def merge(self, other, **options):
        original(self, other, **options)
        if self.n_samples == 256.0:
            signal.raise_signal(signal.SIGINT)
        return self

    monkeypatch.setattr(RunningStatistics, "merge", merge)
    options = ["--set", "features=linear", "--quiet", "--checkpoint", checkpoint]
    command = ["fit", data, "--stream", "--target", "y0", "-o", tmp_path / "m.pydirect", *options]
    assert run(*command) == 130
    error = capsys.readouterr().err
    assert "interrupted after 256 rows of 900; the first 256 rows are in" in error
    assert "repeat the call to resume from there" in error
    monkeypatch.setattr(RunningStatistics, "merge", original)
    assert run(*command) == 0
    assert pydirect.load(tmp_path / "m.pydirect").total_weight_ == N


def write_table(path, n=400):
    """Write a table with text, gaps and classes."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    x, kind = rng.standard_normal(n), rng.choice(["a", "b", "c"], n)
    y = x + (kind == "a") + 0.1 * rng.standard_normal(n)
    columns = {"kind": pa.array(kind).dictionary_encode(), "x": pa.array(x, mask=rng.random(n) < 0.1), "y": y}
    label = np.where(y > 0.5, "high", "low")
    pyarrow.parquet.write_table(pa.table({**columns, "label": label, "n": np.arange(n) % 3}), path)
    return path


def test_text_and_gaps_are_streamed_and_predicted(tmp_path, capsys, run):
    data, model = write_table(tmp_path / "t.parquet"), tmp_path / "m"
    command = ["fit", data, "--stream", "--target", "y", "-o", model, "--set", "features=linear", "--drop", "label"]
    assert run(*command, "--category", "n") == 0
    assert "Missing numbers of x are imputed" in capsys.readouterr().out
    assert pydirect.load(model).columns_.categories == (("a", "b", "c"), None, ("0", "1", "2"))
    assert run("predict", model, data, "-o", tmp_path / "p.csv") == 0
    assert "y: RMSE" in capsys.readouterr().err
    assert run(*command, "--drop-missing") == 0
    assert pydirect.load(model).total_weight_ < 400
    assert run(*command, "--set", "columns=Columns(missing='raise')") == 2
    assert "column 'x' must be finite" in capsys.readouterr().err


def test_classes_are_streamed(tmp_path, capsys, run):
    data = write_table(tmp_path / "t.parquet")
    command = ["fit", data, "--stream", "--target", "label", "-o", tmp_path / "m", "--drop", "y"]
    assert run(*command, "--task", "classification", "--set", "features=linear") == 0
    assert pydirect.load(tmp_path / "m").classes_.tolist() == ["high", "low"]
    assert run(*command) == 2
    assert "column 'label' holds text" in capsys.readouterr().err
