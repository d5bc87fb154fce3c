"""Draw the picture of the first model, from the code of docs/start/index.md, for light and for dark pages.

python docs/images/first_model.py
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
COMMON = {
    "figure.figsize": (8, 4),
    "figure.dpi": 150,
    "font.size": 12,
    "lines.linewidth": 2,
    "savefig.transparent": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}
# Ink, the series' blue and the points' orange of each background.
THEMES = {"light": ("#222222", "#1965b0", "#c2571a"), "dark": ("#dddddd", "#7bafde", "#f4a736")}


def draw() -> None:
    """Run the page's blocks once per theme."""
    page = (HERE.parent / "start" / "index.md").read_text(encoding="utf-8")
    source = "".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    for theme, (ink, line, points) in THEMES.items():
        colours = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
        cycle = matplotlib.cycler(color=[line, points])
        with plt.rc_context({**COMMON, **colours, "axes.prop_cycle": cycle}):
            exec(source.replace('"first.png"', repr(str(HERE / f"first-{theme}.png"))), {})
            plt.close("all")


if __name__ == "__main__":
    draw()
