"""Displays of what columns contributed to predictions, and what training rows did to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from pydirect._validation import FloatArray, as_count
from pydirect.explain.influence import RowEffects
from pydirect.explain.shapley import ShapleyValues, shapley_values
from pydirect.plotting.common import BLUE, INK, VERMILION, axes_of, check_kind, check_output, finish

LONGEST_LABEL = 28


class ShapleyDisplay:
    """Contributions of columns: from the average prediction to that of one row, or their mean sizes over all rows.

    Parameters
    ----------
    shapley : ShapleyValues
        From `pydirect.explain.shapley_values`.
    output : int, default=0
        Which output, where there are several.
    """

    def __init__(self, shapley: ShapleyValues, *, output: int = 0) -> None:
        values = _of_output(shapley.values, output, 3)
        self.shapley, self.values = shapley, values
        self.base = float(np.ravel(shapley.base)[output])
        self.prediction = _of_output(shapley.prediction, output, 2)
        spread = shapley.std if shapley.std is not None else shapley.standard_error
        self.spread = None if spread is None else _of_output(spread, output, 3)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, background: Any = None, *, of: str = "mean", output: int = 0, **kwargs: Any
    ) -> Self:
        """Plot the Shapley values of a fitted regressor's predictions at X, by default of the mean.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator.
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        background : array_like, optional
            Rows that columns take their values from, as for `shapley_values`.
        of : str, default="mean"
            What is explained: ``"mean"`` or ``"variance"``.
        output : int, default=0
            Number of the output, of several.
        **kwargs : dict
            Passed to `plot`.
        """
        return cls(shapley_values(estimator, X, background, of=of), output=output).plot(**kwargs)

    def plot(
        self, ax: Any = None, *, kind: str = "waterfall", row: int = 0, max_columns: int = 10, target_name: str = ""
    ) -> Self:
        """Draw the contributions.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw in; by default new ones.
        kind : {"waterfall", "bar"}, default="waterfall"
            ``"waterfall"``: bars of one row that lead from the average prediction to its own, the largest on top, with
            posterior standard deviations of contributions to the mean. ``"bar"``: mean absolute contributions over all
            rows.
        row : int, default=0
            The row of a waterfall.
        max_columns : int, default=10
            Largest number of columns drawn; the others are added up.
        target_name : str, default=""
            Name of what is explained, with its units; by default ``"predictive mean"`` or ``"predictive variance"``.

        Returns
        -------
        Self
            The display itself.
        """
        check_kind(kind, ("waterfall", "bar"))
        as_count(max_columns, "max_columns")
        target_name = target_name or f"predictive {self.shapley.of}"
        if kind == "bar":
            return self._draw_bars(ax, max_columns, target_name)
        if not 0 <= as_count(row, "row", 0) < len(self.values):
            raise ValueError(f"row must be below {len(self.values)}, the number of rows explained, got {row}")
        return self._draw_waterfall(ax, row, max_columns, target_name)

    def _draw_bars(self, ax: Any, max_columns: int, target_name: str) -> Self:
        size = np.abs(self.values).mean(axis=0)
        order = np.argsort(-size, kind="stable")[:max_columns]
        ax = axes_of(self, ax, (6.0, max(2.0, 0.34 * len(order) + 1.0)))
        ax.barh(np.arange(len(order)), size[order], height=0.72, color=BLUE, label=f"mean over {len(self.values)} rows")
        _label(ax, [self.shapley.names[j] for j in order])
        ax.set_xlabel(f"mean absolute contribution to the {target_name}")
        self.ax_, self.figure_ = finish(ax, legend="lower right")
        if len(size) > len(order):
            ax.set_title(f"{len(order)} of {len(size)} columns", fontsize="medium")
        return self

    def _draw_waterfall(self, ax: Any, row: int, max_columns: int, target_name: str) -> Self:
        values = self.values[row]
        order = np.argsort(-np.abs(values), kind="stable")
        shown = order if len(order) <= max_columns else order[: max_columns - 1]
        rest = order[len(shown) :]
        steps, labels = values[shown], [self._named(row, j) for j in shown]
        if len(rest):
            steps, labels = np.append(steps, values[rest].sum()), [*labels, f"{len(rest)} other columns"]
        ends = self.base + np.cumsum(steps[::-1])[::-1]  # the smallest comes first, at the bottom
        ax = axes_of(self, ax, (6.4, 0.36 * len(steps) + 1.5))
        _draw_steps(ax, ends - steps, steps)
        if self.spread is not None:
            what = "its standard deviation" if self.shapley.std is not None else "its standard error"
            at, spread = np.arange(len(shown)), self.spread[row, shown]
            ax.errorbar(ends[: len(shown)], at, xerr=spread, fmt="none", ecolor=INK, lw=1, capsize=2, label=what)
        ax.axvline(self.base, color="0.6", lw=1, ls=":", label=f"average {self.base:.4g}")
        ax.axvline(self.prediction[row], color=INK, lw=1, ls="--", label=f"this row {self.prediction[row]:.4g}")
        _label(ax, labels)
        ax.set_xlabel(target_name)
        self.ax_, self.figure_ = finish(ax, legend="above")
        return self

    def _named(self, row: int, column: int) -> str:
        value = self.shapley.data[row, column]
        shown = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
        return f"{self.shapley.names[column]} = {shown}"


class RowInfluenceDisplay:
    """Training rows that did most to a prediction: what its mean would lack without each of them.

    Parameters
    ----------
    effects : RowEffects
        From `pydirect.explain.RowInfluence.leave_one_out`.
    place : int, default=0
        Which of the predictions.
    labels : sequence of str, optional
        Names of the training rows; their numbers by default.
    output : int, default=0
        Which output, where there are several.
    """

    def __init__(
        self, effects: RowEffects, *, place: int = 0, labels: Sequence[Any] | None = None, output: int = 0
    ) -> None:
        if effects.mean.ndim < 2:
            raise ValueError("effects must be of rows one by one, from leave_one_out, got those of a group")
        mean = _of_output(effects.mean, output, 3)
        if not 0 <= as_count(place, "place", 0) < len(mean):
            raise ValueError(f"place must be below {len(mean)}, the number of predictions, got {place}")
        self.effects = mean[place]
        self.labels = [f"row {i}" for i in range(len(self.effects))] if labels is None else list(map(str, labels))
        if len(self.labels) != len(self.effects):
            raise ValueError(f"labels must be one per training row, {len(self.effects)}, got {len(self.labels)}")

    def plot(self, ax: Any = None, *, max_rows: int = 10, target_name: str = "predictive mean") -> Self:
        """Draw the rows of largest effects.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw in; by default new ones.
        max_rows : int, default=10
            Largest number of rows drawn.
        target_name : str, default="predictive mean"
            Name of the target, with its units.

        Returns
        -------
        Self
            The display itself.
        """
        as_count(max_rows, "max_rows")
        order = np.argsort(-np.abs(self.effects), kind="stable")[:max_rows]
        ax = axes_of(self, ax, (6.0, max(2.0, 0.34 * len(order) + 1.0)))
        _draw_steps(ax, np.zeros(len(order)), self.effects[order])
        ax.axvline(0.0, color=INK, lw=0.8)
        _label(ax, [self.labels[i] for i in order])
        ax.set_xlabel(f"effect of a training row on the {target_name}")
        self.ax_, self.figure_ = finish(ax, legend="best")
        return self


def _draw_steps(ax: Any, begin: FloatArray, steps: FloatArray) -> None:
    """Draw horizontal bars, the first on top: those that go up in one colour, those that go down in another."""
    for sign, color, label in ((1, VERMILION, "raises"), (-1, BLUE, "lowers")):
        own = np.flatnonzero(np.sign(steps) == sign)
        if len(own):
            ax.barh(own, steps[own], left=begin[own], height=0.72, color=color, label=label)
    ax.use_sticky_edges = False


def _label(ax: Any, labels: Sequence[str]) -> None:
    short = [name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…" for name in labels]
    ax.set_yticks(range(len(short)), short, fontsize="small")
    ax.set_ylim(len(short) - 0.4, -0.6)


def _of_output(values: FloatArray, output: int, n_axes: int) -> FloatArray:
    """Return the values of one output; its axis is the last of `n_axes`, if there is one."""
    if values.ndim < n_axes:
        check_output(output, 1)
        return values
    return np.asarray(values[..., check_output(output, values.shape[-1])])
