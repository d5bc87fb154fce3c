"""The Python of docs/guide/decisions.md runs as written, one block after the other."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "decisions.md"


def test_blocks_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    for number, block in enumerate(blocks):
        exec(compile(block, f"decisions.md, block {number}", "exec"), names)
        assert capsys.readouterr().out, f"block {number} prints what it finds"
