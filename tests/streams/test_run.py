"""Fits in two passes: progress, bad values, interrupts."""

import pytest
from streamed_rows import LINEAR, as_blocks, fitted, numbered_blocks
from summed_rows import X, Y

from pydirect import DirectRegressor, StreamError
from pydirect.streams import rows as rows_module

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


def test_progress_reports_rows_speed_and_time_left(capsys, monkeypatch, small_blocks):
    monkeypatch.setattr("pydirect._progress.SECONDS_BETWEEN_LOGGED_REPORTS", 0.0)
    fitted(X, Y, model={**LINEAR, "verbose": 1})
    lines = capsys.readouterr().err.splitlines()
    assert any("  128 rows of 900, " in line and " s left, " in line and line.endswith(" rows/s") for line in lines)
    fitted(iter(as_blocks(100)), model={**LINEAR, "verbose": 1})
    assert any("  128 rows, " in line for line in capsys.readouterr().err.splitlines())


def test_the_first_pass_finds_bad_values_before_anything_is_summed(tmp_path):
    path = tmp_path / "c.pydirect"
    with pytest.raises(StreamError, match=r"row 10003 \(block 1000, its row 3\)"):
        DirectRegressor(**LINEAR).fit_stream(lambda: numbered_blocks(1000), checkpoint=path)
    assert not path.exists()


def test_an_interrupt_while_sampling_says_that_no_row_is_counted(tmp_path):
    with pytest.raises(rows_module.StreamInterrupt, match="fitted to a sample: no row is counted yet"):
        DirectRegressor(**LINEAR).fit_stream(lambda: numbered_blocks(20, KeyboardInterrupt()))
