"""What displays share: colours, axes, and checks of what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_count, require_single
from pydirect.predictive.gaussian_mixture import finite_array

# Okabe and Ito's palette, distinguishable with all common colour vision deficiencies.
BLUE, VERMILION, BAND, INK = "#0072B2", "#D55E00", "#BFD9EA", "#333333"
SERIES = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class Display:
    """Base of displays: `plot` draws on given axes or new ones, and sets `ax_` and `figure_`."""

    ax_: Any
    figure_: Any

    def _axes(self, ax: Any, figsize: tuple[float, float], **kwargs: Any) -> Any:
        """Return the given axes or new ones."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            hint = 'Install it with: pip install "pydirect[plot]"'
            raise ImportError(f"{type(self).__name__} requires matplotlib. {hint}") from error
        return plt.subplots(figsize=figsize, layout="constrained", **kwargs)[1] if ax is None else ax

    def _panels(self, ax: Any, figsize: tuple[float, float], **kwargs: Any) -> Any:
        """Set and return several axes, given or new ones."""
        self.ax_ = np.ravel(self._axes(ax, figsize, **kwargs))
        self.figure_ = self.ax_[0].figure
        for panel in self.ax_:
            panel.spines[["top", "right"]].set_visible(False)
        return self.ax_

    def _heat(self, panel: Any, across: FloatArray, up: FloatArray, values: FloatArray, **style: Any) -> None:
        """Draw values (n_up, n_across) on a panel as colours, with their bar."""
        self.figure_.colorbar(panel.pcolormesh(across, up, values, shading="nearest", **style), ax=panel)

    def _finished(self, ax: Any, legend: str, n_columns: int = 2, **labels: Any) -> Self:
        """Label and finish the axes, set them, and return the display."""
        ax.set(**labels)
        finish(ax, legend, n_columns)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def finish(ax: Any, legend: str, n_columns: int = 2, **style: Any) -> None:
    """Remove spines; place the legend "above" the axes, in columns, or at its best location."""
    ax.spines[["top", "right"]].set_visible(False)
    above = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": n_columns}
    ax.legend(frameon=False, fontsize="small", **(above if legend == "above" else {"loc": legend}), **style)


def fitted(estimator: Any, attribute: str) -> Any:
    """Return a fitted attribute, also from within finished searches and pipelines."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    estimator = estimator[-1] if isinstance(getattr(estimator, "steps", None), list) else estimator
    require_single(getattr(estimator, "model_", None), "estimator")
    if not hasattr(estimator, attribute):
        raise AttributeError(f"estimator must be fitted and have {attribute}, got {type(estimator).__name__} without")
    return getattr(estimator, attribute)


def vector(name: str, value: ArrayLike, size: int | None = None) -> FloatArray:
    """Return a vector of finite numbers, or raise."""
    array = finite_array(name, value)
    if array.ndim != 1 or size not in (None, array.size):
        raise ValueError(f"{name} must be a vector{'' if size is None else f' of length {size}'}, got {array.shape}")
    return array


def vectors(size: int | None = None, /, **values: ArrayLike) -> list[FloatArray]:
    """Return vectors of finite numbers, of a size or that of the first, or raise."""
    size = np.size(next(iter(values.values()))) if size is None else size
    return [vector(name, value, size) for name, value in values.items()]


def draw_steps(ax: Any, names: Sequence[str], begin: FloatArray, steps: FloatArray) -> None:
    """Draw named horizontal bars, the first on top: those that go up in one colour, those that go down in another."""
    for sign, color, label in ((1, VERMILION, "raises"), (-1, BLUE, "lowers")):
        own = np.flatnonzero(np.sign(steps) == sign)
        if len(own):
            ax.barh(own, steps[own], left=begin[own], height=0.72, color=color, label=label)
    ax.use_sticky_edges = False
    label_bars(ax, names)


def draw_bars(ax: Any, names: Sequence[str], values: ArrayLike, **style: Any) -> None:
    """Draw named horizontal bars, the first on top."""
    ax.barh(np.arange(len(names)), values, height=0.72, **style)
    label_bars(ax, names)


def label_bars(ax: Any, names: Sequence[str], longest: int = 28) -> None:
    """Name horizontal bars, the first on top."""
    short = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in names]
    ax.set_yticks(range(len(short)), short, fontsize="small")
    ax.set_ylim(len(short) - 0.4, -0.6)


def largest(sizes: FloatArray, most: int, name: str) -> NDArray[np.intp]:
    """Return the places of at most `most` numbers of largest size, which is called `name`, the largest first."""
    return np.argsort(-np.abs(sizes), kind="stable")[: as_count(most, name)]


def say_if_fewer(ax: Any, shown: int, n: int, what: str, **style: Any) -> None:
    """Say in the title how many of all are shown, unless all are."""
    if shown < n:
        ax.set_title(f"{shown} of {n} {what}", fontsize="medium", **style)


def series_names(names: Sequence[str] | None, count: int, kind: str) -> list[str]:
    """Return the names of `count` lines, which are numbered by default; raise if there are others."""
    if names is None:
        return [f"{kind} {i}" for i in range(count)]
    if len(names) != count:
        raise ValueError(f"names must be {count} strings, got {len(names)}")
    return list(names)


def evenly(n_rows: int, count: int) -> NDArray[np.intp]:
    """Return at most `count` evenly spaced places among rows."""
    return np.unique(np.linspace(0, n_rows - 1, min(count, n_rows)).round().astype(int))
