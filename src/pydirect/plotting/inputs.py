"""Displays of what a model found in its inputs: which columns matter, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from pydirect._validation import FloatArray, as_choice, as_output
from pydirect.estimators.summary import column_names
from pydirect.explain.effects import Effects, effects
from pydirect.plotting.common import (
    BAND,
    BLUE,
    INK,
    SERIES,
    VERMILION,
    Display,
    draw_bars,
    evenly,
    fitted,
    label_bars,
    largest,
    say_if_fewer,
    vector,
    vectors,
)
from pydirect.predictive.gaussian_mixture import finite_array
from pydirect.tables.dates import Dates
from pydirect.tables.table import Column, Table, Text, rows_of

# Draws of a classifier's weights.
N_DRAWS = 64
# Columns whose effects are drawn by default, and what they are chosen by: rows, and values that each column is set to.
MOST_COLUMNS, FEW_ROWS, FEW_VALUES = 4, 100, 5
# Texts of a column that are drawn, the most frequent ones.
MOST_TEXTS = 20
ANY = (-np.inf, np.inf)  # limits of numbers without limits


class RelevanceDisplay(Display):
    """Which columns matter: inverse length-scales of the kernel.

    - `relevance` (n_columns,) or (n_columns, 2): Inverse length-scales of the standardised columns and, second, of
      their normal scores, in the part of the kernel where they are shorter; 0 for none.
    """

    def __init__(self, names: Sequence[str], relevance: ArrayLike) -> None:
        self.names, relevance = list(map(str, names)), finite_array("relevance", relevance)
        self.relevance = relevance[:, None] if relevance.ndim == 1 else relevance
        if self.relevance.ndim != 2 or len(self.relevance) != len(self.names) or not self.names:
            raise ValueError(f"relevance must have a row for each of {len(self.names)} names, got {relevance.shape}")

    @classmethod
    def from_estimator(cls, estimator: Any, **kwargs: Any) -> Self:
        """Plot the kernel of a fitted `DirectRegressor` or `DirectClassifier`; constant columns have none."""
        basis = fitted(estimator, "features_")
        kernel, inputs = basis.hyperparameters, basis.input_map
        if kernel is None:
            raise TypeError(f"features_ must have a kernel with length-scales, got {basis.kernel or basis.map.kind}")
        n = inputs.n_standardised
        rates = 1 / kernel.length_scales
        if kernel.product_amplitude > 0:
            rates = np.maximum(rates, kernel.product_rates)
        relevance = rates[:n, None]
        if inputs.n_outputs > n:
            ranks = np.zeros(n)
            ranks[np.isin(inputs.kept, getattr(inputs, "scored", inputs.kept))] = rates[n:]
            relevance = np.column_stack([rates[:n], ranks])
        names = column_names(basis, fitted(estimator, "columns_"))
        return cls([names[j] for j in inputs.kept], relevance).plot(**kwargs)

    def plot(self, ax: Any = None, *, max_columns: int = 20) -> Self:
        """Draw the columns of largest relevance.

        - `max_columns`: Largest number of columns drawn; the title counts the others.
        """
        order = largest(self.relevance.max(axis=1), max_columns, "max_columns")
        ax = self._axes(ax, (5.4, max(2.4, 0.28 * len(order) + 1.2)))
        kinds = self.relevance.shape[1]
        height = 0.8 / kinds
        for k, (color, label) in enumerate(((BLUE, "of the value"), (SERIES[5], "of the rank"))[:kinds]):
            at = np.arange(len(order)) + height * (k - (kinds - 1) / 2)
            ax.barh(at, self.relevance[order, k], 0.9 * height, color=color, label=label)
        label_bars(ax, [self.names[j] for j in order])
        say_if_fewer(ax, len(order), len(self.names), "columns", loc="right")
        return self._finished(ax, "above", xlabel="inverse length-scale (per standard deviation)")


class EffectDisplay(Display):
    """Partial dependence on single columns, with intervals for the function.

    The average prediction over all rows with one column set to each of its values (Friedman 2001). The standard
    deviation of such an average is at most the average of the rows' own, which the intervals use: they are those of the
    function, without noise, and rather too wide than too narrow.

    - `effects`: For each column the values that it was set to, averages of the predictions and of their epistemic
      deviations; values of one axis may be text.
    - `rows`: Values of the column in X, of which deciles are drawn.
    - `limits`: Smallest and largest prediction that there can be, at which intervals end.
    """

    def __init__(
        self, effects: Sequence[tuple[str, Any, Any, Any]], level: float = 0.9, rows: Any = None, limits: Any = ANY
    ) -> None:
        if not effects or not 0 < level < 1:
            raise ValueError(f"effects must not be empty and level be in (0, 1), got {len(effects)} and {level}")
        self.level, self.limits = level, limits
        self.effects: list[tuple[Any, ...]] = [
            (name, np.asarray(values), *vectors(len(values), mean=mean, std=std)) for name, values, mean, std in effects
        ]
        self.rows = [None] * len(self.effects) if rows is None else list(rows)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        features: int | str | Sequence[int | str] | None = None,
        *,
        level: float = 0.9,
        grid_resolution: int = 50,
        max_rows: int = 500,
        output: int | None = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the effects of columns, given by index or name; by default of the four that move predictions most.

        Means are those of `sklearn.inspection.partial_dependence` by brute force, on at most `max_rows` rows, evenly
        spaced. Numbers go from their 5 % to their 95 % quantile, or through all values if there are few; of texts
        the 20 most frequent ones are drawn. Of a classifier the probability of one class is drawn, by default of the
        last one of `classes_`, and its intervals are those of draws of the weights.
        """
        (averages, what), table = _averages_of(estimator, output), Table.of(X)
        limits = (0.0, 1.0) if hasattr(estimator, "sample_proba") else ANY
        few = table.rows(evenly(len(table), max_rows))
        if features is None:
            chosen = _largest_effects(averages, few)
        else:
            chosen = [number_of(table, one) for one in ([features] if isinstance(features, int | str) else features)]
        effects, rows = [], []
        for j in chosen:
            column = table.columns[j]
            grid = _grid(column, grid_resolution)
            effects.append((name_of(table, j), _shown(grid), *_moved(averages, few, j, grid)))
            rows.append(column[np.isfinite(column)] if isinstance(column, np.ndarray) else None)
        return cls(effects, level, rows, limits).plot(**({"target_name": what} | kwargs))

    def plot(self, ax: Any = None, *, target_name: str = "prediction") -> Self:
        """Draw one panel per column, with a common scale of the target."""
        n = len(self.effects)
        if ax is not None and np.size(ax) != n:
            raise ValueError(f"ax must be {n} axes, got {np.size(ax)}")
        columns = 2 if n == 4 else min(n, 3)
        height = -(-n // columns)
        size = (1.2 + 3.2 * columns, 0.6 + 2.9 * height)
        panels = self._panels(ax, size, ncols=columns, nrows=height, sharey=ax is None)
        self.ax_ = panels[:n]
        for spare in panels[n:]:
            spare.remove()
        for k, panel in enumerate(self.ax_):
            self._draw(panel, k)
            panel.set(xlabel=self.effects[k][0], ylabel=target_name if k % columns == 0 else "")
        if ax is None:  # one legend for all panels
            legend = {"loc": "outside upper left", "frameon": False, "ncols": 2}
            self.figure_.legend(*self.ax_[0].get_legend_handles_labels(), **legend)
        else:
            self.ax_[0].legend(frameon=False, fontsize="small")
        return self

    def _draw(self, panel: Any, k: int) -> None:
        (_, values, mean, std), rows = self.effects[k], self.rows[k]
        label, reach = f"{self.level:.0%} interval of the function", float(norm.ppf(0.5 + 0.5 * self.level)) * std
        low, high = np.clip((mean - reach, mean + reach), *self.limits)
        if values.dtype.kind in "fM" and len(values) > 2:
            panel.fill_between(values, low, high, color=BAND, lw=0, label=label)
            panel.plot(values, mean, color=BLUE, lw=1.8, label="average prediction")
            if rows is not None:
                deciles = np.quantile(rows, np.linspace(0.1, 0.9, 9))
                panel.plot(deciles, np.zeros(9), "|", color=INK, ms=7, transform=panel.get_xaxis_transform())
        else:
            style = {"fmt": "o", "color": BLUE, "ecolor": SERIES[5], "ms": 5, "lw": 2, "label": label}
            panel.errorbar(range(len(values)), mean, (mean - low, high - mean), **style)
            names = [f"{value:g}" if values.dtype.kind == "f" else str(value) for value in values]
            panel.set_xticks(range(len(values)), names, rotation=45 if len(values) > 4 else 0, fontsize="small")
            panel.set_xlim(-0.6, len(values) - 0.4)
        if values.dtype.kind == "M":
            panel.tick_params("x", rotation=45, labelsize="small")


class MapDisplay(Display):
    """Predictions over places: the mean, and the deviation of the function beside it.

    - `longitude` (n_columns,), `latitude` (n_rows,): The map's places.
    - `mean`, `std` (n_rows, n_columns): Of the function there, without noise.
    - `rows` (n_rows, 2): Longitudes and latitudes that are marked.
    """

    def __init__(
        self, longitude: ArrayLike, latitude: ArrayLike, mean: ArrayLike, std: ArrayLike, rows: ArrayLike | None = None
    ) -> None:
        self.longitude, self.latitude = vector("longitude", longitude), vector("latitude", latitude)
        shape = len(self.latitude), len(self.longitude)
        self.mean, self.std = finite_array("mean", mean), finite_array("std", std)
        if not self.mean.shape == self.std.shape == shape:
            raise ValueError(f"mean and std must have shape {shape}, got {self.mean.shape} and {self.std.shape}")
        self.rows = None if rows is None else finite_array("rows", rows).reshape(-1, 2)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, coordinates: Any = None, *, resolution: int = 40, row: int = 0, **kwargs: Any
    ) -> Self:
        """Plot the function over the places of X, other columns as in one of its rows.

        - `coordinates`: Columns of latitude and longitude; by default those of ``Columns(coordinates=...)``.
        """
        if coordinates is None:
            places = fitted(estimator, "columns_").places
            if len(places) != 1:
                raise ValueError(f"coordinates must be given unless the estimator has one pair, got {len(places)}")
            coordinates = places[0]
        table = Table.of(X)
        latitude, longitude = (named_numbers(table, own)[1] for own in coordinates)
        grids = [np.linspace(own.min(), own.max(), resolution) for own in (latitude, longitude)]
        columns = list(table.rows(np.full(resolution**2, row)).columns)
        for own, values in zip(coordinates, np.meshgrid(*grids, indexing="ij"), strict=True):
            columns[number_of(table, own)] = values.ravel()
        mean, std, _ = (own.reshape(resolution, -1) for own in _parts(estimator, Table(columns, table.names)))
        return cls(grids[1], grids[0], mean, std, np.column_stack([longitude, latitude])).plot(**kwargs)

    def plot(self, ax: Any = None, *, target_name: str = "prediction") -> Self:
        """Draw two maps, with the places of the rows on that of deviations."""
        panels = self._panels(ax, (9.0, 3.6), ncols=2)
        shown = (self.mean, target_name, "viridis"), (self.std, "standard deviation", "magma_r")
        for panel, (values, title, colors) in zip(panels, shown, strict=True):
            panel.set(title=title, xlabel="longitude", ylabel="latitude")
            self._heat(panel, self.longitude, self.latitude, values, cmap=colors)
        if self.rows is not None:
            panels[1].plot(*self.rows.T, ".", color=INK, ms=2)
        return self


class SharesDisplay(Display):
    """Shares of the variance of f by column and pair of columns, and the strongest interaction.

    - `effects`: What `pydirect.explain.effects` has found.
    """

    def __init__(self, effects: Effects) -> None:
        self.effects = effects

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, **kwargs: Any) -> Self:
        """Plot the effects of the columns of X on a fitted `DirectRegressor`."""
        return cls(effects(estimator, X)).plot(**kwargs)

    def plot(self, ax: Any = None, *, max_bars: int = 12) -> Self:
        """Draw bars with posterior deviations, and the interaction of largest share in y's units, if there is one.

        - `max_bars`: Largest number of bars.
        """
        pairs = self.effects.pairs
        panels = self._panels(ax, (4.8 + 4.4 * bool(pairs), 3.4), ncols=1 + bool(pairs))
        shown = sorted((*self.effects.main, *pairs), key=lambda effect: -effect.share)[:max_bars]
        colors = [BLUE if len(effect.columns) == 1 else VERMILION for effect in shown]
        names, spread = [" × ".join(effect.columns) for effect in shown], [effect.share_std for effect in shown]
        draw_bars(panels[0], names, [effect.share for effect in shown], color=colors, xerr=spread, ecolor=INK)
        panels[0].set(xlabel="share of the variance of f", xlim=(0, None))
        if pairs:
            (u, v), mean = pairs[0].values, pairs[0].mean
            reach = float(np.abs(mean).max()) or 1.0
            panels[1].set(xlabel=pairs[0].columns[0], ylabel=pairs[0].columns[1], title="interaction")
            self._heat(panels[1], u, v, mean.T, cmap="RdBu_r", vmin=-reach, vmax=reach)
        return self


# --- columns, and averages of predictions


def number_of(table: Table, feature: int | str) -> int:
    """Return the number of a column that is given by its index or name."""
    if not isinstance(feature, str):
        return int(feature)
    if table.names is None:
        raise ValueError(f"feature must be an index where X has no column names, got {feature!r}")
    return table.names.index(as_choice(feature, "feature", table.names))


def name_of(table: Table, column: int) -> str:
    """Return how a column is called in a picture."""
    return f"column {column}" if table.names is None else table.names[column]


def named_numbers(table: Table, feature: int | str) -> tuple[str, FloatArray]:
    """Return the name and the numbers of a column that is given by its index or name."""
    column = number_of(table, feature)
    name, values = name_of(table, column), table.columns[column]
    if not isinstance(values, np.ndarray):
        raise TypeError(f"{name} must hold numbers, got a column of {type(values).__name__.lower()}")
    return name, values


def _parts(estimator: Any, X: Any, output: int = 0) -> list[FloatArray]:
    """Return mean, epistemic and aleatoric standard deviation of one output, (n_rows,) each."""
    if not hasattr(estimator, "predict_parts"):
        raise TypeError(f"estimator must have predict_parts, got {type(estimator).__name__}")
    parts = [part if np.ndim(part) == 2 else part[:, None] for part in estimator.predict_parts(X)]
    return [part[:, as_output(output, part.shape[1])] for part in parts]


# Averages of predictions over the rows of a table, and their standard deviations.
AveragesOf = Callable[[Table], tuple[float, float]]


def _averages_of(estimator: Any, output: int | None) -> tuple[AveragesOf, str]:
    """Return what gives averages over rows, and the name of what is averaged."""
    if not hasattr(estimator, "sample_proba"):
        if not hasattr(estimator, "predict_parts"):
            raise TypeError(f"estimator must have predict_parts or sample_proba, got {type(estimator).__name__}")
        return lambda rows: tuple(own.mean() for own in _parts(estimator, rows, output or 0)[:2]), "prediction"
    classes = fitted(estimator, "classes_")
    chosen = len(classes) - 1 if output is None else as_output(output, len(classes))
    n_draws = min(N_DRAWS, getattr(estimator.posteriors_[0], "n_draws", N_DRAWS))

    def of_class(rows: Table) -> tuple[float, float]:
        drawn = estimator.sample_proba(rows, n_draws)[:, chosen].mean(axis=0)  # by the same weights for all rows
        return estimator.predict_proba(rows)[:, chosen].mean(), drawn.std()

    return of_class, f"probability of {classes[chosen]}"


def _grid(column: Column, resolution: int) -> Column:
    """Return values to set a column to: between its 5 % and 95 % quantiles, each of a few, or frequent texts."""
    if isinstance(column, Text):
        counts = np.bincount(column.codes[column.codes >= 0], minlength=len(column.values))
        frequent = np.argsort(-counts, kind="stable")[:MOST_TEXTS]
        return Text(sorted(column.values[k] for k in frequent), np.arange(len(frequent)))
    values = column if isinstance(column, np.ndarray) else column.seconds
    known = values[np.isfinite(values)]
    grid = np.unique(known)
    if isinstance(column, Dates):
        return replace(column, seconds=grid[evenly(len(grid), resolution)])
    if len(grid) <= resolution:
        return grid
    return np.linspace(np.quantile(known, 0.05), np.quantile(known, 0.95), resolution)


def _shown(grid: Column) -> Any:
    """Return the values of a column as they are drawn."""
    if isinstance(grid, Dates):
        return np.array(grid.local() * 1e6, dtype="datetime64[us]")
    return np.array(grid.values) if isinstance(grid, Text) else grid


def _moved(averages: AveragesOf, table: Table, column: int, grid: Column) -> FloatArray:
    """Return averages of the predictions, and their deviations, with a column set to each value, (2, n_values)."""
    found, columns = [], list(table.columns)
    for i in range(len(grid)):
        columns[column] = rows_of(grid, np.full(len(table), i))
        found.append(averages(Table([*columns], table.names)))
    return np.array(found).T


def _largest_effects(averages: AveragesOf, table: Table) -> list[int]:
    """Return the columns whose values move the average prediction most, in the order of the table."""
    rows = table.rows(evenly(len(table), FEW_ROWS))
    grids = [_grid(column, FEW_VALUES) for column in table.columns]
    moves = [np.ptp(_moved(averages, rows, j, grid)[0]) if len(grid) else 0.0 for j, grid in enumerate(grids)]
    return sorted(np.argsort(moves)[::-1][:MOST_COLUMNS].tolist())
