"""Displays: what a fitted model predicts, how calibrated it is, how it converged and what it believes.

They follow scikit-learn: a display stores what it draws, `plot` draws it on the given axes or new ones and sets `ax_`
and `figure_`, and the `from_...` constructors compute and plot in one step, passing further keywords to `plot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .metrics import Predicted, as_distributions, pit, predicted_by
from .predictive import FloatArray, PredictiveDistribution, finite_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["CalibrationDisplay", "ELBODisplay", "PosteriorDisplay", "PredictionIntervalDisplay"]

# Okabe and Ito's palette, told apart with any common colour vision deficiency.
_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_SERIES = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY)
_BAND, _INK = "#BFD9EA", "#333333"


class _Display:
    ax_: Any
    figure_: Figure

    def _axes(self, ax: Axes | None, figsize: tuple[float, float]) -> Axes:
        plt = _pyplot(type(self).__name__)
        if ax is None:
            _, ax = plt.subplots(figsize=figsize, layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class PredictionIntervalDisplay(_Display):
    """Predictions and their central intervals beside the observations.

    Parameters
    ----------
    y_true, center, lower, upper : arrays of shape (n,)
        Observations, point predictions and ends of the intervals, in the units of the target.
    level : float, default 0.9
        Nominal coverage.
    x : array of shape (n,), optional
        Values of one feature, for ``kind="feature"``.
    x_name : str, default "feature"

    Raises
    ------
    ValueError
        If lengths differ or values are not finite.
    """

    def __init__(
        self,
        y_true: ArrayLike,
        center: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
        *,
        level: float = 0.9,
        x: ArrayLike | None = None,
        x_name: str = "feature",
    ) -> None:
        self.y_true = _vector("y_true", y_true)
        n = self.y_true.size
        self.center, self.lower, self.upper = (
            _vector(name, value, n) for name, value in (("center", center), ("lower", lower), ("upper", upper))
        )
        self.x = None if x is None else _vector("x", x, n)
        self.level, self.x_name = level, x_name

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        predicted: Predicted,
        *,
        level: float = 0.9,
        output: int = 0,
        x: ArrayLike | None = None,
        x_name: str = "feature",
        **kwargs: Any,
    ) -> PredictionIntervalDisplay:
        """Plot from a PredictiveDistribution, a list of them or a pair (mean, std); `output` selects one of several."""
        y, distribution = _one_output(y_true, predicted, output)
        lower, upper = distribution.interval(level)
        return cls(y, distribution.mean, lower, upper, level=level, x=x, x_name=x_name).plot(**kwargs)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, feature: int | str | None = None, **kwargs: Any
    ) -> PredictionIntervalDisplay:
        """Plot an estimator's predictions at X; with `feature`, a column's index or name, against that feature."""
        if feature is not None:
            x = X[feature] if isinstance(feature, str) else np.asarray(X)[:, feature]
            name = feature if isinstance(feature, str) else f"feature {feature}"
            kwargs = {"x": np.asarray(x, dtype=np.float64), "x_name": name, "kind": "feature"} | kwargs
        return cls.from_predictions(y, predicted_by(estimator, X), **kwargs)

    def plot(
        self, ax: Axes | None = None, *, kind: str = "sorted", target_name: str = "target", max_points: int = 500
    ) -> PredictionIntervalDisplay:
        """Draw the intervals.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"sorted", "actual_vs_predicted", "feature"}, default "sorted"
            Rows in the order of their prediction, at their prediction, or at the value of the feature.
        target_name : str, default "target"
            Name of the target, with its units.
        max_points : int, default 500
            Beyond this many, evenly spaced rows are drawn. The coverage in the legend counts all.

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If `kind` is unknown, or "feature" without feature values.
        """
        _check_option("kind", kind, ("sorted", "actual_vs_predicted", "feature"))
        if kind == "feature" and self.x is None:
            raise ValueError('x must be given for kind="feature", got None')
        ax = self._axes(ax, (6.4, 4.2))
        # Sorted by observation, even perfect predictions would look too high on the left and too low on the right.
        order = np.argsort(self.x if kind == "feature" else self.center, kind="stable")
        shown = np.unique(np.linspace(0, order.size - 1, min(max_points, order.size)).round().astype(int))
        rows = order[shown]
        y, inside = self.y_true[rows], self._inside()[rows]
        if kind == "sorted":
            across, across_name = shown + 1.0, "row, in order of prediction"
        elif kind == "feature":
            across, across_name = self.x[rows], self.x_name
        else:
            across, across_name = self.center[rows], f"predicted {target_name}"

        width = float(np.clip(250.0 / rows.size, 0.8, 5.0))
        ax.vlines(across, self.lower[rows], self.upper[rows], color=_BAND, lw=width, label=f"{self.level:.0%} interval")
        if kind == "actual_vs_predicted":
            ax.axline((y.mean(), y.mean()), slope=1.0, color=_BLUE, lw=1.2, label="prediction")
        else:
            ax.plot(
                across, self.center[rows], "_" if kind == "feature" else "-", color=_BLUE, lw=1.5, label="prediction"
            )
        size = 14.0 if rows.size <= 150 else 7.0
        ax.scatter(across[inside], y[inside], s=size, color=_INK, lw=0, label="observed, inside", zorder=3)
        ax.scatter(
            across[~inside],
            y[~inside],
            s=2.2 * size,
            color=_VERMILION,
            marker="D",
            lw=0,
            label="observed, outside",
            zorder=4,
        )
        ax.set(xlabel=across_name, ylabel=target_name)
        ax.legend(title=f"{self._inside().mean():.1%} of {order.size} inside", frameon=False, fontsize="small")
        return _bare(self, ax)

    def _inside(self) -> Any:
        return (self.lower <= self.y_true) & (self.y_true <= self.upper)


class CalibrationDisplay(_Display):
    """Observed against nominal coverage of central intervals, or the histogram of the PIT.

    Parameters
    ----------
    pit : array of shape (n,)
        Predicted probability of a value no greater than the observed one; see `pydirect.metrics.pit`.
    name : str, optional
        Label of the curve.

    Raises
    ------
    ValueError
        If `pit` is empty or has values outside [0, 1].
    """

    def __init__(self, pit: ArrayLike, *, name: str | None = None) -> None:
        self.pit = _vector("pit", pit)
        if self.pit.size == 0 or self.pit.min() < 0.0 or self.pit.max() > 1.0:
            raise ValueError("pit must hold at least one value, all between 0 and 1")
        self.name = name

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, predicted: Predicted, *, output: int = 0, name: str | None = None, **kwargs: Any
    ) -> CalibrationDisplay:
        """Plot from a PredictiveDistribution, a list of them or a pair (mean, std); `output` selects one of several."""
        return cls(pit(*_one_output(y_true, predicted, output)), name=name).plot(**kwargs)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike, **kwargs: Any) -> CalibrationDisplay:
        """Plot the calibration of an estimator's predictions at X, under its class name unless `name` is given."""
        kwargs = {"name": type(estimator).__name__} | kwargs
        return cls.from_predictions(y, predicted_by(estimator, X), **kwargs)

    def plot(
        self, ax: Axes | None = None, *, kind: str = "coverage", bins: int = 10, band: float = 0.95
    ) -> CalibrationDisplay:
        """Draw the curve or the histogram; several displays may share axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"coverage", "pit"}, default "coverage"
        bins : int, default 10
            Bins of the histogram.
        band : float, default 0.95
            Binomial probability of the shaded region for a calibrated model, for each level or bin on its own.

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If `kind` is unknown or `band` is outside (0, 1).
        """
        _check_option("kind", kind, ("coverage", "pit"))
        if not 0.0 < band < 1.0:
            raise ValueError(f"band must be strictly between 0 and 1, got {band}")
        ax = self._axes(ax, (4.6, 4.6) if kind == "coverage" else (5.4, 3.8))
        colour = _SERIES[sum(line.get_gid() == "pydirect" for line in ax.get_children()) % len(_SERIES)]
        label = self.name or "observed"
        if kind == "coverage":
            levels = np.linspace(0.0, 1.0, 101)
            needed = np.sort(np.abs(2.0 * self.pit - 1.0))
            observed = np.searchsorted(needed, levels, side="right") / needed.size
            self._reference(ax, levels, levels, 1.0, band)
            ax.plot(levels, observed, color=colour, lw=1.8, label=label, gid="pydirect")
            ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")
            ax.legend(frameon=False, loc="upper left")
        else:
            counts, edges = np.histogram(self.pit, bins=bins, range=(0.0, 1.0))
            density = counts * bins / self.pit.size
            self._reference(ax, np.array([0.0, 1.0]), np.full(2, 1.0 / bins), bins, band)
            ax.stairs(density, edges, color=colour, lw=1.8, label=label, gid="pydirect")
            ax.set(xlabel="PIT: predicted probability of less than observed", ylabel="density", xlim=(0, 1))
            ax.set_ylim(0.0, max(1.3 * density.max(), ax.get_ylim()[1]))
            ax.legend(frameon=False, loc="upper center", ncols=3, fontsize="small")
        return _bare(self, ax)

    def _reference(self, ax: Axes, x: FloatArray, probability: FloatArray, scale: float, band: float) -> None:
        """The calibrated model's line and binomial band, drawn once on shared axes."""
        from scipy.stats import binom

        n, tail = self.pit.size, 0.5 * (1.0 - band)
        if "calibrated" in ax.get_legend_handles_labels()[1]:
            return
        low, high = (binom.ppf(p, n, probability) * scale / n for p in (tail, 1.0 - tail))
        ax.fill_between(x, np.maximum(low, 0.0), high, color="0.88", lw=0, label=f"{band:.0%} by chance, n = {n}")
        ax.plot(x, probability * scale, color="0.45", lw=1.0, ls="--", label="calibrated")


class ELBODisplay(_Display):
    """The ELBO after each sweep, for one or more fits.

    Parameters
    ----------
    traces : array of shape (n_iter,) or sequence of such arrays
        ELBO in nats.
    converged : bool or sequence of bool, optional
        Whether each fit converged: its last value is marked by a dot, or by a cross.
    names : sequence of str, optional

    Raises
    ------
    ValueError
        If a trace is empty or not finite, or the lengths of the arguments differ.
    """

    def __init__(
        self,
        traces: Any,
        *,
        converged: bool | Sequence[bool] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.traces = [_vector("traces", trace) for trace in _as_list(traces)]
        count = len(self.traces)
        if any(trace.size == 0 for trace in self.traces):
            raise ValueError("traces must not be empty, got one without values")
        self.converged = [None] * count if converged is None else list(np.broadcast_to(converged, count))
        self.names = _series_names(names, "fit", count)

    @classmethod
    def from_estimator(cls, estimator: Any, *, names: Sequence[str] | None = None, **kwargs: Any) -> ELBODisplay:
        """Plot `elbo_trace_` of a fitted estimator, or of several given as a list; each output has its own line."""
        fits = list(estimator) if isinstance(estimator, (list, tuple)) else [estimator]
        traces, converged, lines = [], [], []
        for fit, name in zip(fits, _series_names(names, "fit", len(fits)), strict=True):
            outputs = _as_list(_fitted(fit, "elbo_trace_"))
            traces += outputs
            converged += list(np.broadcast_to(_fitted(fit, "converged_"), len(outputs)))
            lines += [name] if len(outputs) == 1 else [f"{name}, output {k}" for k in range(len(outputs))]
        return cls(traces, converged=converged, names=lines).plot(**kwargs)

    def plot(self, ax: Axes | None = None, *, kind: str = "value") -> ELBODisplay:
        """Draw the traces.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"value", "gap"}, default "value"
            The ELBO itself, or how far it is below the best value of its own fit, on a logarithmic axis: use it when
            the first sweeps dwarf the later ones.

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If `kind` is unknown.
        """
        _check_option("kind", kind, ("value", "gap"))
        ax = self._axes(ax, (6.0, 4.0))
        for i, (trace, converged, name) in enumerate(zip(self.traces, self.converged, self.names, strict=True)):
            sweeps, heights = np.arange(1, trace.size + 1), trace
            if kind == "gap":
                # A logarithmic axis has no zero: the best value is drawn at the rounding of the ELBO.
                heights = np.maximum(trace.max() - trace, np.spacing(np.abs(trace.max())))
            colour = _SERIES[i % len(_SERIES)]
            ax.plot(sweeps, heights, color=colour, lw=1.6, label=name)
            if converged is not None:
                marker, state = ("o", "converged") if converged else ("X", "not converged")
                ax.plot(sweeps[-1], heights[-1], marker, color=colour, ms=7, ls="", label=f"{name}, {state}")
        ax.set(xlabel="sweep", ylabel="ELBO (nats)" if kind == "value" else "best ELBO - ELBO (nats)")
        if kind == "gap":
            ax.set_yscale("log")
        ax.legend(frameon=False, fontsize="small")
        return _bare(self, ax)


class PosteriorDisplay(_Display):
    """Posterior probabilities of the weights' levels, and the distribution of the posterior means.

    Parameters
    ----------
    levels : array of shape (b, m) or (m,)
        Values that each weight can take.
    q : array of shape (b, m)
        Their posterior probabilities.
    mean, std : arrays of shape (b,)
        Posterior means and standard deviations of the weights.

    Raises
    ------
    ValueError
        If shapes disagree or values are not finite.
    """

    def __init__(self, levels: ArrayLike, q: ArrayLike, mean: ArrayLike, std: ArrayLike) -> None:
        self.q, levels = finite_array("q", q), finite_array("levels", levels)
        if self.q.ndim != 2 or levels.shape not in (self.q.shape, self.q.shape[1:]) or self.q.size == 0:
            raise ValueError(
                f"q must have shape (b, m) and levels (b, m) or (m,), got {self.q.shape} and {levels.shape}"
            )
        self.levels = np.broadcast_to(levels, self.q.shape)
        self.mean, self.std = _vector("mean", mean, len(self.q)), _vector("std", std, len(self.q))
        # A level built by linspace may miss zero by rounding.
        zero = np.abs(self.levels) <= 1e-12 * np.abs(self.levels).max()
        self.zero_fraction = float(np.mean(np.sum(self.q * zero, axis=1))) if zero.any() else None

    @classmethod
    def from_estimator(cls, estimator: Any, *, output: int = 0, **kwargs: Any) -> PosteriorDisplay:
        """Plot `posterior_` of a fitted estimator; `output` selects one if it is a list."""
        posterior = _fitted(estimator, "posterior_")
        if isinstance(posterior, (list, tuple)):
            posterior = posterior[_check_output(output, len(posterior))]
        return cls(posterior.levels, posterior.q, posterior.mean, posterior.std).plot(**kwargs)

    def plot(self, ax: Sequence[Axes] | None = None, *, n_weights: int = 30, bins: int = 40) -> PosteriorDisplay:
        """Draw a heat map of the weights with the largest absolute means and a histogram of all means.

        Parameters
        ----------
        ax : pair of matplotlib Axes, optional
        n_weights : int, default 30
            Weights in the heat map.
        bins : int, default 40
            Bins of the histogram.

        Raises
        ------
        ImportError
            Without matplotlib.
        ValueError
            If `ax` is not a pair or a number is not positive.
        """
        if ax is None:
            figure = _pyplot("PosteriorDisplay").figure(figsize=(9.6, 4.0), layout="constrained")
            ax = figure.subplots(1, 2, width_ratios=(3, 2))
        if np.size(ax) != 2 or n_weights < 1:
            raise ValueError(f"ax must be a pair of axes and n_weights positive, got {np.size(ax)} and {n_weights}")
        self.ax_, self.figure_ = np.ravel(ax), np.ravel(ax)[0].figure
        self._draw_levels(self.ax_[0], np.argsort(-np.abs(self.mean), kind="stable")[:n_weights])
        self._draw_means(self.ax_[1], bins)
        return self

    def _draw_levels(self, ax: Axes, chosen: Any) -> None:
        from matplotlib.collections import PolyCollection

        boxes, probabilities = [], []
        for column, weight in enumerate(chosen):
            order = np.argsort(self.levels[weight])
            edges = _edges(self.levels[weight][order])
            left, right = column - 0.5, column + 0.5
            boxes += [[(left, a), (right, a), (right, b), (left, b)] for a, b in zip(edges, edges[1:], strict=False)]
            probabilities.append(self.q[weight][order])
        heat = PolyCollection(boxes, array=np.concatenate(probabilities), cmap="Blues", edgecolors="face", lw=0.3)
        heat.set_clim(0.0, None)
        ax.add_collection(heat)
        columns = np.arange(chosen.size)
        ax.errorbar(
            columns, self.mean[chosen], self.std[chosen], fmt="o", ms=3, lw=1, color=_VERMILION, label="mean ± std"
        )
        ax.autoscale_view()
        ax.set_xticks(columns, [str(weight) for weight in chosen], rotation=90, fontsize="x-small")
        ax.set(xlabel="weight (by absolute mean)", ylabel="level", xlim=(-0.5, chosen.size - 0.5))
        ax.legend(frameon=False, loc="lower right", fontsize="small")
        ax.figure.colorbar(heat, ax=ax, label="posterior probability", pad=0.02)

    def _draw_means(self, ax: Axes, bins: int) -> None:
        ax.hist(self.mean, bins=bins, color=_BLUE)
        ax.set(xlabel="posterior mean of the weight", ylabel="weights", yscale="log")
        ax.set_ylim(bottom=0.7)
        zeros = "no level at zero" if self.zero_fraction is None else f"expected zeros: {self.zero_fraction:.1%}"
        ax.set_title(f"{self.mean.size} weights, {zeros}", fontsize="medium")
        _bare(self, ax)


def _pyplot(caller: str) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f'{caller} requires matplotlib. Install it with: pip install "pydirect[plot]"') from error
    return plt


def _bare(display: Any, ax: Axes) -> Any:
    ax.spines[["top", "right"]].set_visible(False)
    return display


def _edges(levels: FloatArray) -> FloatArray:
    """Ends of the cells around sorted levels: half-way between neighbours."""
    if levels.size == 1:
        half = 0.05 * max(abs(float(levels[0])), 1.0)
        return np.array([levels[0] - half, levels[0] + half])
    middle = 0.5 * (levels[1:] + levels[:-1])
    return np.concatenate([[2 * levels[0] - middle[0]], middle, [2 * levels[-1] - middle[-1]]])


def _one_output(y_true: ArrayLike, predicted: Predicted, output: int) -> tuple[FloatArray, PredictiveDistribution]:
    outputs = as_distributions(predicted)
    chosen = _check_output(output, len(outputs))
    y = finite_array("y_true", y_true)
    y = y.reshape(-1, 1) if y.ndim == 1 else y
    if y.shape != (outputs[chosen].n_rows, len(outputs)):
        raise ValueError(
            f"y_true must have {outputs[chosen].n_rows} rows and {len(outputs)} output(s), got shape {np.shape(y_true)}"
        )
    return y[:, chosen], outputs[chosen]


def _check_output(output: int, count: int) -> int:
    if not 0 <= output < count:
        raise ValueError(f"output must be between 0 and {count - 1}, got {output}")
    return output


def _fitted(estimator: Any, attribute: str) -> Any:
    """A fitted attribute of an estimator, looked for inside finished searches and pipelines."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    estimator = estimator[-1] if hasattr(estimator, "steps") else estimator
    if not hasattr(estimator, attribute):
        raise AttributeError(
            f"estimator must be fitted and have {attribute}, got {type(estimator).__name__} without it"
        )
    return getattr(estimator, attribute)


def _as_list(traces: Any) -> list[Any]:
    """One trace, or several, as a list of traces."""
    return list(traces) if len(traces) and np.ndim(traces[0]) > 0 else [traces]


def _series_names(names: Sequence[str] | None, default: str, count: int) -> list[str]:
    if names is None:
        return ["ELBO"] if count == 1 else [f"{default} {i}" for i in range(count)]
    if len(names) != count:
        raise ValueError(f"names must have one entry for each of {count}, got {len(names)}")
    return list(names)


def _vector(name: str, value: ArrayLike, size: int | None = None) -> FloatArray:
    array = finite_array(name, value)
    if array.ndim != 1 or size not in (None, array.size):
        raise ValueError(
            f"{name} must be a vector{'' if size is None else f' of length {size}'}, got shape {array.shape}"
        )
    return array


def _check_option(name: str, value: str, options: tuple[str, ...]) -> None:
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}, got {value!r}")
