"""The examples of the gallery run as written, and show a picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
EXAMPLES = sorted(path.relative_to(GALLERY).as_posix() for path in GALLERY.rglob("plot_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_shows_a_picture(name, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    shown: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()))
    source = (GALLERY / name).read_text(encoding="utf-8")
    try:
        exec(compile(source, name, "exec"), {"__name__": "__main__"})
    finally:
        plt.close("all")
    assert shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_begins_with_a_title_and_a_text(name):
    source = (GALLERY / name).read_text(encoding="utf-8")
    assert re.match(r'"""\n?(.+)\n(=+)\n\n\S', source), "a title, underlined, and a paragraph"
    assert "\n# %%\n" in source
