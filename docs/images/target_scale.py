"""Draw 90 % intervals of prices on their own scale and on the one that is chosen, for docs/guide/targets.md.

python docs/images/target_scale.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from pydirect import DirectRegressor

INK, BLUE, ORANGE = "#555555", "#1965b0", "#c2571a"


def draw() -> None:
    """Fit both models and draw their intervals over the rows."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(0, 10, 250))
    price = 60 * np.exp(0.25 * x + 0.4 * np.sin(1.5 * x) + 0.35 * rng.standard_normal(250))
    grid = np.linspace(0, 10, 300)
    plt.rcParams.update({"font.size": 11, "svg.hashsalt": "pydirect", "axes.spines.top": False, "text.color": INK})
    figure, both = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
    for axes, choice in zip(both, (None, "auto"), strict=True):
        model = DirectRegressor(noise="constant", local=False, target_transform=choice).fit(x[:, None], price)
        lower, upper = model.predict_interval(grid[:, None], 0.9)
        axes.fill_between(grid, lower, upper, color=BLUE, alpha=0.25, linewidth=0)
        axes.plot(grid, model.predict(grid[:, None]), color=BLUE)
        axes.plot(x, price, ".", color=ORANGE, markersize=4)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_title(f"target_transform={choice!r}: {model.target_transform_ or 'y'}")
        axes.set_xlabel("x")
        axes.spines["right"].set_visible(False)
    both[0].set_ylabel("price")
    figure.savefig(Path(__file__).with_name("target_scale.png"), dpi=110)


if __name__ == "__main__":
    draw()
