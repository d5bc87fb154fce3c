"""Displays of what moved a prediction: contributions of columns, effects of rows, effects of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from pydirect._validation import FloatArray, as_choice, as_count, as_output
from pydirect.explain.rows import RowEffects, RowInfluence
from pydirect.explain.shapley import ShapleyValues, shapley_values
from pydirect.plotting.common import (
    BLUE,
    INK,
    Display,
    draw_bars,
    draw_steps,
    evenly,
    fitted,
    label_bars,
    largest,
    say_if_fewer,
    vectors,
)


class ShapleyDisplay(Display):
    """Contributions of columns: from the average prediction to that of one row, or their mean sizes over all rows.

    - `shapley`: From `pydirect.explain.shapley_values`.
    """

    def __init__(self, shapley: ShapleyValues, *, output: int = 0) -> None:
        values = _of_output(shapley.values, output, 3)
        self.shapley, self.values, self.output = shapley, values, output
        self.base = float(np.ravel(shapley.base)[output])
        self.prediction = _of_output(shapley.prediction, output, 2)
        spread = shapley.std if shapley.std is not None else shapley.standard_error
        self.spread = None if spread is None else _of_output(spread, output, 3)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, background: Any = None, *, of: str | None = None, output: int = 0, **kwargs: Any
    ) -> Self:
        """Plot the Shapley values of a fitted estimator's predictions at X: the mean, or a class's probability.

        - `background`: Rows that columns take their values from, as for `shapley_values`.
        """
        return cls(shapley_values(estimator, X, background, of=of), output=output).plot(**kwargs)

    def plot(
        self, ax: Any = None, *, kind: str = "waterfall", row: int = 0, max_columns: int = 10, target_name: str = ""
    ) -> Self:
        """Draw the contributions.

        - `kind` {"waterfall", "bar"}: ``"waterfall"``: bars of one row that lead from the average prediction to its
          own, the largest on top, with posterior standard deviations of contributions to the mean.
        - `target_name`: Name of what is explained, with its units; by default ``"predictive mean"`` or ``"predictive
          variance"``.
        """
        as_choice(kind, "kind", ("waterfall", "bar"))
        target_name = target_name or self._explained()
        if kind == "bar":
            return self._draw_bars(ax, max_columns, target_name)
        if not 0 <= as_count(row, "row", 0) < len(self.values):
            raise ValueError(f"row must be below {len(self.values)}, the number of rows explained, got {row}")
        return self._draw_waterfall(ax, row, as_count(max_columns, "max_columns"), target_name)

    def _explained(self) -> str:
        classes, of = self.shapley.classes, self.shapley.of
        if classes is None or of != "probability":
            return f"predictive {of}"
        return f"probability of {classes[1] if len(classes) == 2 else classes[self.output]}"

    def _draw_bars(self, ax: Any, max_columns: int, target_name: str) -> Self:
        size = np.abs(self.values).mean(axis=0)
        order = largest(size, max_columns, "max_columns")
        ax = self._axes(ax, (6.0, max(2.0, 0.34 * len(order) + 1.0)))
        label = f"mean over {len(self.values)} rows"
        draw_bars(ax, [self.shapley.names[j] for j in order], size[order], color=BLUE, label=label)
        say_if_fewer(ax, len(order), len(size), "columns")
        return self._finished(ax, "lower right", xlabel=f"mean absolute contribution to the {target_name}")

    def _draw_waterfall(self, ax: Any, row: int, max_columns: int, target_name: str) -> Self:
        values, names = self.values[row], self.shapley.names
        order = largest(values, len(values), "columns")
        n = len(order) if len(order) <= max_columns else max_columns - 1
        shown, rest = order[:n], order[n:]
        labels = [f"{names[j]} = {_short(self.shapley.data[row, j])}" for j in shown]
        steps = values[shown]
        if len(rest):
            steps, labels = np.append(steps, values[rest].sum()), [*labels, f"{len(rest)} other columns"]
        ends = self.base + np.cumsum(steps[::-1])[::-1]  # the smallest comes first, at the bottom
        ax = self._axes(ax, (6.4, 0.36 * len(steps) + 1.5))
        draw_steps(ax, labels, ends - steps, steps)
        if self.spread is not None:
            what = "its standard deviation" if self.shapley.std is not None else "its standard error"
            style = {"fmt": "none", "ecolor": INK, "lw": 1, "capsize": 2, "label": what}
            ax.errorbar(ends[:n], np.arange(n), xerr=self.spread[row, shown], **style)
        ax.axvline(self.base, color="0.6", lw=1, ls=":", label=f"average {self.base:.4g}")
        ax.axvline(self.prediction[row], color=INK, lw=1, ls="--", label=f"this row {self.prediction[row]:.4g}")
        return self._finished(ax, "above", xlabel=target_name)


class RowInfluenceDisplay(Display):
    """Training rows that did most to a prediction: what its mean would lack without each of them.

    - `effects`: From `pydirect.explain.RowInfluence.leave_one_out`.
    - `labels`: Names of the training rows; their numbers by default.
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

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, row: Any, *, labels: Any = None, output: int = 0, **kwargs: Any
    ) -> Self:
        """Plot what the training rows X, y of a fitted estimator did to its prediction at a row, of shape (1, d)."""
        found = RowInfluence(estimator, X, y).leave_one_out(row)
        return cls(found, labels=labels, output=output).plot(**kwargs)

    def plot(self, ax: Any = None, *, max_rows: int = 10, target_name: str = "predictive mean") -> Self:
        """Draw the rows of largest effects."""
        order = largest(self.effects, max_rows, "max_rows")
        ax = self._axes(ax, (6.0, max(2.0, 0.34 * len(order) + 1.0)))
        draw_steps(ax, [self.labels[i] for i in order], np.zeros(len(order)), self.effects[order])
        ax.axvline(0.0, color=INK, lw=0.8)
        return self._finished(ax, "best", xlabel=f"effect of a training row on the {target_name}")


class RandomEffectsDisplay(Display):
    """Effects of groups in ascending order, with intervals: a caterpillar plot.

    - `groups`: Their labels.
    - `mean`, `std` (n_groups,): Posterior means and standard deviations of the effects, about zero.
    """

    def __init__(
        self, groups: Sequence[Any], mean: ArrayLike, std: ArrayLike, *, level: float = 0.9, name: str = "intercept"
    ) -> None:
        self.groups, self.level, self.name = list(map(str, groups)), level, name
        self.mean, self.std = vectors(len(self.groups), mean=mean, std=std)
        if not self.groups or not 0 < level < 1:
            raise ValueError(f"groups must not be empty and level be in (0, 1), got {len(self.groups)} and {level}")

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, factor: int = 0, effect: int = 0, level: float = 0.9, **kwargs: Any
    ) -> Self:
        """Plot the intercepts of a fitted `DirectMixedRegressor`, or with `effect` from 1 on one of its slopes.

        - `factor`: its number among several, in the order of `random_effects_`.
        """
        found = fitted(estimator, "random_effects_")
        if (n := len(estimator.model_.factors)) > 1:
            found = [*found.values()][as_output(factor, n, "factor")]
        slopes = [own if isinstance(own, str) else f"column {own}" for own in np.ravel(estimator.slopes).tolist()]
        name = ["intercept", *(f"slope of {own}" for own in slopes)][
            as_output(effect, found["mean"].shape[1], "effect")
        ]
        mean, std = (found[part][:, effect] for part in ("mean", "std"))
        return cls(found["group"], mean, std, level=level, name=name).plot(**kwargs)

    def plot(self, ax: Any = None, *, max_groups: int = 40, target_name: str = "target") -> Self:
        """Draw the effects, the largest on top; those whose interval leaves out zero in a colour of their own.

        - `max_groups`: Largest number of groups drawn, evenly spaced in their order if there are more.
        """
        order = np.argsort(-self.mean, kind="stable")
        order = order[evenly(len(order), as_count(max_groups, "max_groups"))]
        ax = self._axes(ax, (6.0, max(2.4, 0.2 * len(order) + 1.2)))
        reach = norm.ppf(0.5 + 0.5 * self.level) * self.std
        apart = np.abs(self.mean) > reach
        for own, color, label in ((~apart, "0.55", "with zero"), (apart, BLUE, "without zero")):
            at = np.flatnonzero(own[order])
            rows, label = order[at], f"{self.level:.0%} intervals {label}: {own.sum()} groups"
            ax.errorbar(self.mean[rows], at, xerr=reach[rows], fmt="o", color=color, ms=4, lw=1.6, label=label)
        ax.axvline(0.0, color=INK, lw=0.8)
        label_bars(ax, [self.groups[i] for i in order])
        say_if_fewer(ax, len(order), len(self.groups), "groups", loc="right")
        return self._finished(ax, "above", 1, xlabel=f"{self.name} of the group ({target_name})")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _of_output(values: FloatArray, output: int, n_axes: int) -> FloatArray:
    """Return the values of one output; its axis is the last of `n_axes`, if there is one."""
    if values.ndim < n_axes:
        as_output(output, 1)
        return values
    return np.asarray(values[..., as_output(output, values.shape[-1])])
