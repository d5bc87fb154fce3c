"""Displays of what a model found in its inputs: which columns matter, how, where it is noisy, and what rows did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, spearmanr

from pydirect._validation import FloatArray, as_choice, as_count, as_output
from pydirect.explain.effects import Effects
from pydirect.explain.rows import RowEffects
from pydirect.explain.shapley import ShapleyValues, shapley_values
from pydirect.features.screen import RELEVANT
from pydirect.plotting.common import (
    BAND,
    BLUE,
    INK,
    SERIES,
    VERMILION,
    Display,
    evenly,
    finish,
    fitted,
    label_bars,
    vector,
)
from pydirect.predictive.gaussian_mixture import finite_array


class RelevanceDisplay(Display):
    """Which columns matter: inverse length-scales of the kernel, and what the screen of columns found.

    - `relevance` (n_columns,) or (n_columns, 2): Inverse length-scales of the standardised columns and, second, of
      their normal scores, in the part of the kernel where they are shorter; 0 for none.
    - `scores` (n_columns,): Largest effect of every column in the screen, alone or in a pair, as a normal deviate.
    """

    def __init__(self, names: Sequence[str], relevance: ArrayLike, scores: ArrayLike | None = None) -> None:
        self.names, relevance = list(map(str, names)), finite_array("relevance", relevance)
        self.relevance = relevance[:, None] if relevance.ndim == 1 else relevance
        if self.relevance.ndim != 2 or len(self.relevance) != len(self.names) or not self.names:
            raise ValueError(f"relevance must have a row for each of {len(self.names)} names, got {relevance.shape}")
        self.scores = None if scores is None else vector("scores", scores, len(self.names))

    @classmethod
    def from_estimator(cls, estimator: Any, **kwargs: Any) -> Self:
        """Plot the kernel of a fitted `DirectRegressor` or `DirectClassifier`; constant columns have none."""
        basis = fitted(estimator, "features_")
        kernel, inputs = basis.hyperparameters, basis.input_map
        if kernel is None:
            raise TypeError(f"features_ must have a kernel with length-scales, got {basis.kernel or basis.map.kind}")
        n = inputs.n_standardised
        relevance = np.zeros((n, 1 if inputs.n_outputs == n else 2))
        rates = 1 / kernel.length_scales
        if kernel.product_amplitude > 0:
            rates = np.maximum(rates, kernel.product_rates)
        relevance[:, 0] = rates[:n]
        if inputs.n_outputs > n:
            scored = np.isin(inputs.kept, getattr(inputs, "scored", inputs.kept))
            relevance[scored, 1] = rates[n:]
        names = np.asarray(column_names(estimator), dtype=object)[inputs.kept]
        search = getattr(basis, "search", None)
        scores = search.scores if search is not None and search.scores.any() else None
        return cls(names.tolist(), relevance, scores).plot(**kwargs)

    def plot(self, ax: Any = None, *, max_columns: int = 20) -> Self:
        """Draw the columns of largest relevance, and their scores beside them if there are any.

        - `max_columns`: Largest number of columns drawn; the title counts the others.
        """
        if max_columns < 1:
            raise ValueError(f"max_columns must be positive, got {max_columns}")
        n_axes = 1 if self.scores is None else 2
        if ax is not None and np.size(ax) not in (1, n_axes):
            raise ValueError(f"ax must be {n_axes} axes or one, got {np.size(ax)}")
        order = np.argsort(-self.relevance.max(axis=1), kind="stable")[:max_columns]
        size = (4.4 * n_axes + 1.0, max(2.4, 0.28 * len(order) + 1.2))
        first, *second = self._panels(ax, size, ncols=n_axes)
        self._draw_relevance(first, order)
        for panel in second:
            self._draw_scores(panel, order)
        return self

    def _draw_relevance(self, ax: Any, order: Any) -> None:
        kinds = self.relevance.shape[1]
        height = 0.8 / kinds
        for k, (color, label) in enumerate(zip((BLUE, SERIES[5]), ("value", "rank"), strict=True)):
            if k < kinds:
                at = np.arange(len(order)) + height * (k - (kinds - 1) / 2)
                ax.barh(at, self.relevance[order, k], height=0.9 * height, color=color, label=f"of the {label}")
        label_bars(ax, [self.names[j] for j in order], 24)
        ax.set_xlabel("inverse length-scale (per standard deviation)")
        finish(ax, "lower right")
        if len(order) < len(self.names):
            ax.set_title(f"{len(order)} of {len(self.names)} columns", fontsize="medium")

    def _draw_scores(self, ax: Any, order: Any) -> None:
        assert self.scores is not None
        scores = np.maximum(self.scores[order], 0.0)
        found = scores > RELEVANT
        ax.barh(np.arange(len(order)), scores, height=0.72, color=np.where(found, BLUE, BAND))
        ax.axvline(RELEVANT, color=VERMILION, ls="--", label=f"found relevant beyond {RELEVANT:g}")
        label_bars(ax, [self.names[j] for j in order], 24)
        ax.set_xlabel("largest effect in the screen (normal deviate)")
        ax.set_title(f"{int((self.scores > RELEVANT).sum())} columns screened in", fontsize="medium")
        if scores.max() > 20 * RELEVANT:
            ax.set_xscale("symlog", linthresh=RELEVANT)
        finish(ax, "lower right")


class NoiseDisplay(Display):
    """Standard deviations of the noise and of the function against one input, (name, values), and absolute errors."""

    def __init__(
        self,
        feature: tuple[str, ArrayLike],
        aleatoric_std: ArrayLike,
        epistemic_std: ArrayLike,
        errors: ArrayLike | None = None,
    ) -> None:
        self.name, self.values = feature[0], vector("feature", feature[1])
        n = self.values.size
        self.aleatoric_std = vector("aleatoric_std", aleatoric_std, n)
        self.epistemic_std = vector("epistemic_std", epistemic_std, n)
        self.errors = None if errors is None else vector("errors", errors, n)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        feature: int | str | None = None,
        output: int = 0,
        **kwargs: Any,
    ) -> Self:
        """Plot the parts of the standard deviation at X, and the errors if `y` is given.

        Without `feature`, its index or name, the column of numbers is taken with which the noise goes up or down most:
        of the largest rank correlation.
        """
        if not hasattr(estimator, "predict_parts"):
            raise TypeError(f"estimator must have predict_parts, got {type(estimator).__name__}")
        parts = [part if np.ndim(part) == 2 else part[:, None] for part in estimator.predict_parts(X)]
        chosen = as_output(output, parts[0].shape[1])
        mean, epistemic, aleatoric = (part[:, chosen] for part in parts)
        if feature is None:
            feature = _most_correlated(X, aleatoric)
        values = column_of(X, feature)
        errors = None if y is None else np.asarray(y, dtype=np.float64).reshape(len(mean), -1)[:, chosen] - mean
        return cls((name_of(X, feature), values), aleatoric, epistemic, errors).plot(**kwargs)

    def plot(self, ax: Any = None, *, target_name: str = "target", max_points: int = 2000) -> Self:
        """Draw the deviations.

        - `max_points`: Largest number of rows drawn, evenly spaced in the input if there are more.
        """
        ax = self._axes(ax, (6.4, 4.2))
        order = np.argsort(self.values, kind="stable")
        rows = order[evenly(order, max_points)]
        x, size = self.values[rows], 10.0 if rows.size <= 300 else 5.0
        if self.errors is not None:
            style = {"color": "0.7", "label": "absolute error", "zorder": 1}
            ax.scatter(x, np.abs(self.errors[rows]), s=0.7 * size, lw=0, **style)
        ax.scatter(x, self.aleatoric_std[rows], s=size, color=BLUE, lw=0, label="of the noise", zorder=3)
        ax.scatter(x, self.epistemic_std[rows], s=size, color=VERMILION, lw=0, label="of the function", zorder=2)
        tallest = max(self.aleatoric_std.max(), self.epistemic_std.max())
        if self.errors is not None:
            tallest = max(tallest, float(np.quantile(np.abs(self.errors), 0.99)))
        ax.set(xlabel=self.name, ylabel=f"standard deviation of {target_name}", ylim=(0.0, 1.08 * tallest or 1.0))
        return self._finished(ax, "above")


class EffectDisplay(Display):
    """Partial dependence on single columns, with intervals for the function.

    The average prediction over all rows with one column set to each of its values (Friedman 2001). The standard
    deviation of such an average is at most the average of the rows' own, which the intervals use: they are those of the
    function, without noise, and rather too wide than too narrow.

    - `effects`: For each column the values that it was set to, averages of the predictions and of their epistemic
      deviations; values of one axis may be text.
    - `rows`: Values of the column in X, of which deciles are drawn.
    """

    def __init__(
        self, effects: Sequence[tuple[str, Any, ArrayLike, ArrayLike]], level: float = 0.9, rows: Any = None
    ) -> None:
        if not effects or not 0 < level < 1:
            raise ValueError(f"effects must not be empty and level be in (0, 1), got {len(effects)} and {level}")
        self.level, self.effects = level, []
        for name, values, mean, std in effects:
            n = len(values)
            self.effects.append((name, np.asarray(values), vector("mean", mean, n), vector("std", std, n)))
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
        spaced. Numbers go from their 5 % to their 95 % quantile, or through all values if there are few. Of a
        classifier the probability of one class is drawn, by default of the last one of `classes_`, and its intervals
        are those of draws of the weights.
        """
        parts_of, what = _effect_of(estimator, output)
        if hasattr(X, "columns") and not hasattr(X, "iloc"):
            raise TypeError(f"X must be an array or a pandas frame, got {type(X).__name__}")
        kept = evenly(np.arange(len(X)), max_rows)
        table = X.iloc[kept] if hasattr(X, "iloc") else np.asarray(X)[kept]
        if features is None:
            features = _largest_effects(parts_of, table)
        effects, rows = [], []
        for feature in [features] if isinstance(features, int | str) else features:
            column = np.asarray(column_of(X, feature, numbers=False))
            grid = _grid(column, grid_resolution)
            mean, std = _average_parts(parts_of, table, feature, grid)
            effects.append((name_of(X, feature), grid, mean, std))
            rows.append(column.astype(np.float64) if grid.dtype.kind == "f" else None)
        return cls(effects, level, rows).plot(**({"target_name": what} | kwargs))

    def plot(self, ax: Any = None, *, target_name: str = "prediction") -> Self:
        """Draw one panel per column, with a common scale of the target."""
        n = len(self.effects)
        if ax is not None and np.size(ax) != n:
            raise ValueError(f"ax must be {n} axes, got {np.size(ax)}")
        columns = 2 if n == 4 else min(n, 3)
        size = (1.2 + 3.2 * columns, 0.6 + 2.9 * -(-n // columns))
        for spare in self._panels(ax, size, ncols=columns, nrows=-(-n // columns), sharey=ax is None)[n:]:
            spare.remove()
        self.ax_ = self.ax_[:n]
        width = float(norm.ppf(0.5 + 0.5 * self.level))
        for k, (panel, (name, values, mean, std), rows) in enumerate(
            zip(self.ax_, self.effects, self.rows, strict=True)
        ):
            label = {"label": f"{self.level:.0%} interval of the function"}
            if values.dtype.kind in "fM":
                panel.fill_between(values, mean - width * std, mean + width * std, color=BAND, lw=0, **label)
                panel.plot(values, mean, color=BLUE, lw=1.8, label="average prediction")
                if rows is not None:
                    ticks = np.quantile(rows, np.linspace(0.1, 0.9, 9))
                    panel.plot(ticks, np.zeros(9), "|", color=INK, ms=7, transform=panel.get_xaxis_transform())
            else:
                at = np.arange(len(values))
                panel.errorbar(at, mean, width * std, fmt="o", color=BLUE, ecolor=SERIES[5], ms=5, lw=2, **label)
                panel.set_xticks(at, values.astype(str), rotation=45 if len(values) > 4 else 0, fontsize="small")
                panel.set_xlim(-0.6, len(values) - 0.4)
            panel.set(xlabel=name, ylabel=target_name if k % columns == 0 else "")
            panel.spines[["top", "right"]].set_visible(False)
        if ax is None:  # one legend for all panels
            self.figure_.legend(
                *self.ax_[0].get_legend_handles_labels(), loc="outside upper left", frameon=False, ncols=2
            )
        else:
            finish(self.ax_[0], "best")
        return self


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
        latitude, longitude = (column_of(X, own) for own in coordinates)
        grids = [np.linspace(own.min(), own.max(), resolution) for own in (latitude, longitude)]
        table = (X.iloc if hasattr(X, "iloc") else np.asarray(X))[np.full(resolution**2, row)].copy()
        for own, values in zip(coordinates, np.meshgrid(*grids, indexing="ij"), strict=True):
            table = _with_column(table, own, values.ravel())
        mean, std, _ = (part.reshape(resolution, resolution) for part in estimator.predict_parts(table))
        rows = np.column_stack([longitude, latitude])
        return cls(grids[1], grids[0], mean, std, rows).plot(**kwargs)

    def plot(self, ax: Any = None, *, target_name: str = "prediction") -> Self:
        """Draw two maps, with the places of the rows on that of deviations."""
        panels = self._panels(ax, (9.0, 3.6), ncols=2)
        shown = (self.mean, target_name, "viridis"), (self.std, "standard deviation", "magma_r")
        for panel, (values, title, colors) in zip(panels, shown, strict=True):
            drawn = panel.pcolormesh(self.longitude, self.latitude, values, cmap=colors, shading="nearest")
            panel.set(title=title, xlabel="longitude", ylabel="latitude")
            self.figure_.colorbar(drawn, ax=panel)
        if self.rows is not None:
            panels[1].plot(*self.rows.T, ".", color=INK, ms=2)
        return self


class SharesDisplay(Display):
    """Shares of the variance of f by column and pair of columns, and the strongest interaction.

    - `effects`: What `pydirect.explain.effects` has found.
    """

    def __init__(self, effects: Effects) -> None:
        self.effects = effects

    def plot(self, ax: Any = None, *, max_bars: int = 12) -> Self:
        """Draw bars with posterior deviations, and the interaction of largest share in y's units, if there is one.

        - `max_bars`: Largest number of bars.
        """
        pairs = self.effects.pairs
        first, *second = self._panels(ax, (4.8 + 4.4 * bool(pairs), 3.4), ncols=1 + bool(pairs))
        shown = sorted((*self.effects.main, *pairs), key=lambda effect: -effect.share)[:max_bars]
        for k, effect in enumerate(shown):
            color = BLUE if len(effect.columns) == 1 else VERMILION
            first.barh(k, effect.share, xerr=effect.share_std, color=color, ecolor=INK, height=0.7)
        label_bars(first, [" × ".join(effect.columns) for effect in shown])
        first.set(xlabel="share of the variance of f", xlim=(0, None))
        first.spines[["top", "right"]].set_visible(False)
        for panel in second:
            (u, v), mean = pairs[0].values, pairs[0].mean
            reach = float(np.abs(mean).max()) or 1.0
            drawn = panel.pcolormesh(u, v, mean.T, cmap="RdBu_r", vmin=-reach, vmax=reach, shading="nearest")
            panel.set(xlabel=pairs[0].columns[0], ylabel=pairs[0].columns[1], title="interaction")
            self.figure_.colorbar(drawn, ax=panel)
        return self


def column_names(estimator: Any) -> list[str]:
    """Return the names of the columns that the features take: encoded ones, given ones, or numbers."""
    n = fitted(estimator, "features_").n_features_in
    for owner, attribute in ((getattr(estimator, "columns_", None), "names_out"), (estimator, "feature_names_in_")):
        names = getattr(owner, attribute, None)
        if names is not None and len(names) == n:
            return list(map(str, names))
    return [f"column {j}" for j in range(n)]


def name_of(X: Any, feature: int | str) -> str:
    """Return the label of a column of a frame or array."""
    if isinstance(feature, str):
        return feature
    return str(list(X.columns)[feature]) if hasattr(X, "columns") else f"column {feature}"


def column_of(X: Any, feature: int | str, *, numbers: bool = True) -> Any:
    """Return a column of a frame or array."""
    if hasattr(X, "columns"):
        if isinstance(feature, str):
            as_choice(feature, "feature", list(X.columns))
        values = X[feature if isinstance(feature, str) else list(X.columns)[feature]]
    else:
        if isinstance(feature, str):
            raise ValueError(f"feature must be an index where X has no column names, got {feature!r}")
        values = np.asarray(X)[:, feature]
    return np.asarray(values, dtype=np.float64) if numbers else values


def _most_correlated(X: Any, noise: Any) -> int | str:
    """Return the column of numbers whose ranks correlate most with the noise; the first if it is constant."""
    names: list[int | str] = list(X.columns) if hasattr(X, "columns") else list(range(np.shape(X)[1]))
    best, largest = names[0], -1.0
    for name in names:
        values = np.asarray(column_of(X, name, numbers=False))
        if values.dtype.kind not in "fiu" or not np.isfinite(values.astype(float)).all():
            continue
        constant = np.ptp(values) == 0 or np.ptp(noise) <= 1e-9 * np.abs(noise).max()
        correlation = 0.0 if constant else abs(float(spearmanr(values, noise).statistic))
        if correlation > largest:
            best, largest = name, correlation
    return best


def _grid(column: Any, resolution: int) -> Any:
    """Return values to set a column to: between its 5 % and 95 % quantiles, or each if there are few or text."""
    if column.dtype.kind == "M":
        distinct = np.unique(column[~np.isnat(column)])
        return distinct[evenly(np.arange(len(distinct)), resolution)]
    if column.dtype.kind not in "fiu":
        known = {str(value): value for value in column.tolist() if value is not None and value == value}
        grid = np.empty(len(known), dtype=object)
        grid[:] = [known[key] for key in sorted(known)]
        return grid
    values = column[np.isfinite(column)].astype(np.float64)
    distinct = np.unique(values)
    if len(distinct) <= resolution:
        return distinct
    low, high = np.quantile(values, [0.05, 0.95])
    return np.linspace(low, high, resolution)


# Means of predictions over the rows of a table, and their standard deviations.
PartsOf = Callable[[Any], tuple[float, float]]
# Draws of a classifier's weights.
N_DRAWS = 64
# Columns that are drawn by default, and what they are chosen by: rows, and values that each column is set to.
MOST_COLUMNS, FEW_ROWS, FEW_VALUES = 4, 100, 5


def _effect_of(estimator: Any, output: int | None) -> tuple[PartsOf, str]:
    """Return what gives averages over rows, and the name of what is averaged."""
    if hasattr(estimator, "sample_proba"):
        classes = fitted(estimator, "classes_")
        chosen = len(classes) - 1 if output is None else as_output(output, len(classes))
        n_draws = min(N_DRAWS, getattr(estimator.posteriors_[0], "n_draws", N_DRAWS))

        def of_class(X: Any) -> tuple[float, float]:
            drawn = estimator.sample_proba(X, n_draws)[:, chosen].mean(axis=0)  # by the same weights for all X
            return estimator.predict_proba(X)[:, chosen].mean(), drawn.std()

        return of_class, f"probability of {classes[chosen]}"
    if not hasattr(estimator, "predict_parts"):
        raise TypeError(f"estimator must have predict_parts or sample_proba, got {type(estimator).__name__}")

    def of_target(X: Any) -> tuple[float, float]:
        parts = [part if np.ndim(part) == 2 else part[:, None] for part in estimator.predict_parts(X)[:2]]
        chosen = as_output(output or 0, parts[0].shape[1])
        mean, std = (part[:, chosen].mean() for part in parts)
        return mean, std

    return of_target, "prediction"


def _largest_effects(parts_of: PartsOf, table: Any) -> list[int | str]:
    """Return the columns whose values move the average prediction most, in the order of the table."""
    few = evenly(np.arange(len(table)), FEW_ROWS)
    rows = table.iloc[few] if hasattr(table, "iloc") else table[few]
    names: list[int | str] = list(table.columns) if hasattr(table, "columns") else list(range(table.shape[1]))
    grids = [_grid(np.asarray(column_of(table, name, numbers=False)), FEW_VALUES) for name in names]
    moves = [np.ptp(_average_parts(parts_of, rows, *pair)[0]) for pair in zip(names, grids, strict=True)]
    return [names[j] for j in sorted(np.argsort(moves)[::-1][:MOST_COLUMNS])]


def _average_parts(parts_of: PartsOf, table: Any, feature: int | str, grid: Any) -> tuple[Any, Any]:
    """Return averages of the predictions, and their deviations, with a column set to each value."""
    mean, std = np.empty((2, len(grid)))
    for i, value in enumerate(grid):
        same = np.full(len(table), value) if grid.dtype.kind in "fM" else [value] * len(table)
        mean[i], std[i] = parts_of(_with_column(table.copy(), feature, same))
    return mean, std


def _with_column(table: Any, feature: int | str, values: Any) -> Any:
    """Return the same frame or array with other values in a column."""
    if hasattr(table, "columns"):
        table[feature if isinstance(feature, str) else table.columns[feature]] = values
    else:
        table[:, feature] = values
    return table


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
        as_count(max_columns, "max_columns")
        target_name = target_name or (
            f"predictive {self.shapley.of}" if self.shapley.of != "probability" else self._probability()
        )
        if kind == "bar":
            return self._draw_bars(ax, max_columns, target_name)
        if not 0 <= as_count(row, "row", 0) < len(self.values):
            raise ValueError(f"row must be below {len(self.values)}, the number of rows explained, got {row}")
        return self._draw_waterfall(ax, row, max_columns, target_name)

    def _probability(self) -> str:
        classes = self.shapley.classes
        assert classes is not None
        return f"probability of {classes[1] if len(classes) == 2 else classes[self.output]}"

    def _draw_bars(self, ax: Any, max_columns: int, target_name: str) -> Self:
        size = np.abs(self.values).mean(axis=0)
        order = np.argsort(-size, kind="stable")[:max_columns]
        ax = self._axes(ax, (6.0, max(2.0, 0.34 * len(order) + 1.0)))
        ax.barh(np.arange(len(order)), size[order], height=0.72, color=BLUE, label=f"mean over {len(self.values)} rows")
        label_bars(ax, [self.shapley.names[j] for j in order])
        ax.set_xlabel(f"mean absolute contribution to the {target_name}")
        if len(size) > len(order):
            ax.set_title(f"{len(order)} of {len(size)} columns", fontsize="medium")
        return self._finished(ax, "lower right")

    def _draw_waterfall(self, ax: Any, row: int, max_columns: int, target_name: str) -> Self:
        values = self.values[row]
        order = np.argsort(-np.abs(values), kind="stable")
        shown = order if len(order) <= max_columns else order[: max_columns - 1]
        rest = order[len(shown) :]
        steps, labels = values[shown], [self._named(row, j) for j in shown]
        if len(rest):
            steps, labels = np.append(steps, values[rest].sum()), [*labels, f"{len(rest)} other columns"]
        ends = self.base + np.cumsum(steps[::-1])[::-1]  # the smallest comes first, at the bottom
        ax = self._axes(ax, (6.4, 0.36 * len(steps) + 1.5))
        _draw_steps(ax, ends - steps, steps)
        if self.spread is not None:
            what = "its standard deviation" if self.shapley.std is not None else "its standard error"
            at, spread = np.arange(len(shown)), self.spread[row, shown]
            ax.errorbar(ends[: len(shown)], at, xerr=spread, fmt="none", ecolor=INK, lw=1, capsize=2, label=what)
        ax.axvline(self.base, color="0.6", lw=1, ls=":", label=f"average {self.base:.4g}")
        ax.axvline(self.prediction[row], color=INK, lw=1, ls="--", label=f"this row {self.prediction[row]:.4g}")
        label_bars(ax, labels)
        ax.set_xlabel(target_name)
        return self._finished(ax, "above")

    def _named(self, row: int, column: int) -> str:
        value = self.shapley.data[row, column]
        shown = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
        return f"{self.shapley.names[column]} = {shown}"


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

    def plot(self, ax: Any = None, *, max_rows: int = 10, target_name: str = "predictive mean") -> Self:
        """Draw the rows of largest effects."""
        as_count(max_rows, "max_rows")
        order = np.argsort(-np.abs(self.effects), kind="stable")[:max_rows]
        ax = self._axes(ax, (6.0, max(2.0, 0.34 * len(order) + 1.0)))
        _draw_steps(ax, np.zeros(len(order)), self.effects[order])
        ax.axvline(0.0, color=INK, lw=0.8)
        label_bars(ax, [self.labels[i] for i in order])
        ax.set_xlabel(f"effect of a training row on the {target_name}")
        return self._finished(ax, "best")


def _draw_steps(ax: Any, begin: FloatArray, steps: FloatArray) -> None:
    """Draw horizontal bars, the first on top: those that go up in one colour, those that go down in another."""
    for sign, color, label in ((1, VERMILION, "raises"), (-1, BLUE, "lowers")):
        own = np.flatnonzero(np.sign(steps) == sign)
        if len(own):
            ax.barh(own, steps[own], left=begin[own], height=0.72, color=color, label=label)
    ax.use_sticky_edges = False


def _of_output(values: FloatArray, output: int, n_axes: int) -> FloatArray:
    """Return the values of one output; its axis is the last of `n_axes`, if there is one."""
    if values.ndim < n_axes:
        as_output(output, 1)
        return values
    return np.asarray(values[..., as_output(output, values.shape[-1])])
