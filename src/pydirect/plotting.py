"""Displays of fitted models: predictions, calibration, reliability, convergence and posterior.

They follow scikit-learn: a display stores its data, `plot` draws it on the given axes or new ones and sets `ax_`
and `figure_`, and the `from_...` constructors compute and plot in one step, passing further keywords to `plot`.
Constructors raise ValueError for arrays whose shapes disagree or whose values are not finite or out of range; `plot`
raises ValueError for an unknown option and ImportError without matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .metrics import (
    Predicted,
    as_columns,
    as_distributions,
    expected_calibration_error,
    pit,
    predicted_by,
    reliability_curve,
)
from .predictive.gaussian_mixture import FloatArray, finite_array
from .predictive.transformed import Distribution
from .regression.sequential_posterior import HARMLESS_COARSENESS

__all__ = [
    "CalibrationDisplay",
    "ELBODisplay",
    "PosteriorDisplay",
    "PredictionIntervalDisplay",
    "ReliabilityDisplay",
    "SequentialDisplay",
]

# Okabe and Ito's palette, distinguishable with all common colour vision deficiencies.
_BLUE, _VERMILION, _BAND, _INK = "#0072B2", "#D55E00", "#BFD9EA", "#333333"
_SERIES = (_BLUE, _VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class PredictionIntervalDisplay:
    """Predictions with central intervals, and observations.

    Parameters
    ----------
    y_true, mean, lower, upper : arrays of shape (n,)
        Observations, predictions and ends of the intervals, in the units of the target.
    level : float
        Nominal coverage of the intervals.
    feature : pair of str and array of shape (n,), optional
        Name and values of one feature, for ``kind="feature"``.
    """

    def __init__(
        self, y_true: ArrayLike, mean: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float, feature: Any = None
    ) -> None:
        self.y_true, n = _vector("y_true", y_true), np.size(y_true)
        self.mean, self.level = _vector("mean", mean, n), level
        self.lower, self.upper = _vector("lower", lower, n), _vector("upper", upper, n)
        self.feature = None if feature is None else (feature[0], _vector("feature", feature[1], n))

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, predicted: Predicted, *, level: float = 0.9, feature: Any = None, **kwargs: Any
    ) -> Self:
        """Plot one output's PredictiveDistribution or pair (mean, std)."""
        y, distribution = _one_output(y_true, predicted)
        return cls(y, distribution.mean, *distribution.interval(level), level, feature).plot(**kwargs)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, feature: int | str | None = None, output: int = 0, **kwargs: Any
    ) -> Self:
        """Plot an estimator's predictions at X, against a feature if its index or name is given."""
        if feature is not None:
            named = isinstance(feature, str)
            values = np.asarray(X[feature] if named else np.asarray(X)[:, int(feature)], dtype=np.float64)
            kwargs = {"feature": (feature if named else f"feature {feature}", values), "kind": "feature"} | kwargs
        return cls.from_predictions(*_one_output(y, predicted_by(estimator, X), output), **kwargs)

    def plot(self, ax: Any = None, *, kind: str = "sorted", target_name: str = "target", max_points: int = 500) -> Self:
        """Draw the intervals.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"sorted", "actual_vs_predicted", "feature"}, default "sorted"
            Rows in the order of their prediction, at their prediction, or at the value of the feature.
        target_name : str, default "target"
            Name of the target, with its units.
        max_points : int, default 500
            Largest number of rows drawn, evenly spaced if there are more. The coverage in the legend counts all rows.
        """
        _check_kind(kind, ("sorted", "actual_vs_predicted", "feature"))
        names = {"sorted": "row, in order of prediction", "actual_vs_predicted": f"predicted {target_name}"}
        name, at = names.get(kind), self.mean
        if kind == "feature":
            if self.feature is None:
                raise ValueError('feature must be given for kind="feature", got None')
            name, at = self.feature
        ax = _axes(self, ax, (6.4, 4.4))
        # Sorted by observation, even calibrated predictions would look too high on the left and too low on the right.
        order = np.argsort(at, kind="stable")
        shown = np.unique(np.linspace(0, order.size - 1, min(max_points, order.size)).round().astype(int))
        rows = order[shown]
        across = shown + 1 if kind == "sorted" else at[rows]
        covered = (self.lower <= self.y_true) & (self.y_true <= self.upper)
        y, inside = self.y_true[rows], covered[rows]
        label = f"{self.level:.0%} interval: {covered.mean():.1%} of {order.size} inside"
        width, size = float(np.clip(250.0 / rows.size, 0.8, 5.0)), 14.0 if rows.size <= 150 else 7.0
        ax.vlines(across, self.lower[rows], self.upper[rows], color=_BAND, lw=width, label=label)
        ax.plot(across, self.mean[rows], "_" if kind == "feature" else "-", color=_BLUE, lw=1.5, label="prediction")
        outside = {"s": 2.2 * size, "color": _VERMILION, "marker": "D", "label": "observed outside"}
        ax.scatter(across[inside], y[inside], s=size, color=_INK, lw=0, label="observed inside", zorder=3)
        ax.scatter(across[~inside], y[~inside], lw=0, zorder=4, **outside)
        ax.set(xlabel=name, ylabel=target_name)
        self.ax_, self.figure_ = _finish(ax, legend="above")
        return self


class CalibrationDisplay:
    """Observed against nominal coverage of central intervals, or the histogram of the PIT.

    Parameters
    ----------
    pit : array of shape (n,)
        Predicted probability of a value no greater than the observed one; see `pydirect.metrics.pit`.
    name : str, default "observed"
        Label of the curve.
    """

    def __init__(self, pit: ArrayLike, *, name: str = "observed") -> None:
        self.pit, self.name = _vector("pit", pit), name
        if self.pit.size == 0 or self.pit.min() < 0.0 or self.pit.max() > 1.0:
            raise ValueError(f"pit must hold values between 0 and 1, got {self.pit}")

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, predicted: Predicted, *, name: str = "observed", **kwargs: Any
    ) -> Self:
        """Plot one output's PredictiveDistribution or pair (mean, std)."""
        return cls(pit(*_one_output(y_true, predicted)), name=name).plot(**kwargs)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike, *, output: int = 0, **kwargs: Any) -> Self:
        """Plot the calibration of an estimator's predictions at X, under its class name unless `name` is given."""
        kwargs = {"name": type(estimator).__name__} | kwargs
        return cls.from_predictions(*_one_output(y, predicted_by(estimator, X), output), **kwargs)

    def plot(self, ax: Any = None, *, kind: str = "coverage", bins: int = 10) -> Self:
        """Draw the curve or the histogram; several displays may share axes.

        The shaded region has probability 95 % for a calibrated model, separately per level or bin.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"coverage", "pit"}, default "coverage"
        bins : int, default 10
            Number of bins of the histogram.
        """
        _check_kind(kind, ("coverage", "pit"))
        ax = _axes(self, ax, (4.6, 4.6) if kind == "coverage" else (5.4, 4.0))
        earlier = [artist for artist in ax.get_children() if artist.get_gid() == "pydirect"]
        style = {"color": _SERIES[len(earlier) % len(_SERIES)], "lw": 1.8, "label": self.name, "gid": "pydirect"}
        n = self.pit.size
        if not earlier:
            _draw_calibrated(ax, n, bins if kind == "pit" else None)
        if kind == "coverage":
            levels = np.linspace(0.0, 1.0, 101)
            needed = np.sort(np.abs(2.0 * self.pit - 1.0))
            ax.plot(levels, np.searchsorted(needed, levels, side="right") / n, **style)
            ax.set(xlabel="nominal coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        else:
            counts, edges = np.histogram(self.pit, bins=bins, range=(0.0, 1.0))
            ax.stairs(counts * bins / n, edges, baseline=None, **style)
            ax.set(xlabel="PIT: predicted probability of less than observed", ylabel="density", xlim=(0, 1))
            ax.set_ylim(0.0, max(ax.get_ylim()[1], 1.05 * counts.max() * bins / n))
        self.ax_, self.figure_ = _finish(ax, legend="best" if kind == "coverage" else "above")
        return self


class ReliabilityDisplay:
    """Observed frequency of an event against its predicted probability, in bins of the latter.

    Parameters
    ----------
    y_true : array of shape (n,)
        Whether the event happened: booleans, or 0 and 1.
    probability : array of shape (n,)
    name : str, default "observed"
        Label of the curve.
    """

    def __init__(self, y_true: ArrayLike, probability: ArrayLike, *, name: str = "observed") -> None:
        self.y_true, self.probability, self.name = np.asarray(y_true), _vector("probability", probability), name
        self.calibration_error = expected_calibration_error(self.y_true, self.probability)

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, probability: ArrayLike, *, name: str = "observed", **kwargs: Any
    ) -> Self:
        """Plot events and their probabilities."""
        return cls(y_true, probability, name=name).plot(**kwargs)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike, **kwargs: Any) -> Self:
        """Plot a classifier's probabilities at X: of the second class, or of all classes if there are more than two."""
        if not hasattr(estimator, "predict_proba"):
            raise TypeError(f"estimator must be a classifier with predict_proba, got {type(estimator).__name__}")
        p, classes = estimator.predict_proba(X), _fitted(estimator, "classes_")
        events = np.asarray(y)[:, None] == classes
        events, p = (events[:, 1], p[:, 1]) if len(classes) == 2 else (events.ravel(), p.ravel())
        kwargs = {"name": type(estimator).__name__} | kwargs
        return cls.from_predictions(events, np.minimum(p, 1.0), **kwargs)

    def plot(self, ax: Any = None, *, n_bins: int = 10) -> Self:
        """Draw the curve; several displays may share axes.

        Bars show two standard errors of each bin's frequency, numbers its number of rows; with more than two classes
        each row counts once per class.
        """
        ax = _axes(self, ax, (4.6, 4.6))
        earlier = [artist for artist in ax.get_children() if artist.get_gid() == "pydirect"]
        if not earlier:
            ax.plot([0, 1], [0, 1], color=_INK, lw=1, ls=":", label="calibrated")
        predicted, observed, count = reliability_curve(self.y_true, self.probability, n_bins=n_bins)
        error = 2 * np.sqrt(predicted * (1 - predicted) / count)
        color = _SERIES[len(earlier) % len(_SERIES)]
        label = f"{self.name}, calibration error {self.calibration_error:.1%}"
        bars = None if earlier else "2 SE; row counts"
        ax.vlines(predicted, observed - error, observed + error, color=color, lw=1, alpha=0.6, label=bars)
        ax.plot(predicted, observed, "o-", color=color, lw=1.8, ms=5, label=label, gid="pydirect")
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
        for x, y, n in zip(predicted, observed, count, strict=True):
            beside = {"xytext": (5, -9) if y > 0.5 else (5, 5), "textcoords": "offset points"}
            ax.annotate(f"{n:.0f}", (x, y), color=color, fontsize="x-small", bbox=paper, zorder=4, **beside)
        ax.set(xlabel="predicted probability", ylabel="observed frequency", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        self.ax_, self.figure_ = _finish(ax, legend="above")
        return self


class ELBODisplay:
    """The ELBO after each iteration, for one or more fits.

    Parameters
    ----------
    traces : sequence of arrays of shape (n_iter,)
        ELBO in nats, one array per fit.
    converged : bool or sequence of bool, optional
        Whether each fit converged. A dot marks the last value of a converged fit, a cross that of any other.
    names : sequence of str, optional
    """

    def __init__(
        self,
        traces: Sequence[ArrayLike],
        *,
        converged: bool | Sequence[bool] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.traces = [_vector("each trace", trace) for trace in traces]
        if any(trace.size == 0 for trace in self.traces):
            raise ValueError("traces must not be empty, got one without values")
        self.converged = np.broadcast_to(True if converged is None else converged, len(self.traces))
        self.names = _series_names(names, len(self.traces))

    @classmethod
    def from_estimator(cls, estimator: Any, *, names: Sequence[str] | None = None, **kwargs: Any) -> Self:
        """Plot `elbo_trace_` of a fitted estimator or a list of them, with one line per output or class."""
        fits = list(estimator) if isinstance(estimator, (list, tuple)) else [estimator]
        traces, converged, lines = [], [], []
        for fit, name in zip(fits, _series_names(names, len(fits)), strict=True):
            trace = _fitted(fit, "elbo_trace_")
            outputs = list(trace) if isinstance(trace, (list, tuple)) else [trace]
            traces += outputs
            converged += list(np.broadcast_to(_fitted(fit, "converged_"), len(outputs)))
            own = [f"class {c}" for c in fit.classes_] if hasattr(fit, "classes_") else None
            parts = own or [f"output {k}" for k in range(len(outputs))]
            lines += [name] if len(outputs) == 1 else [f"{name}, {part}" for part in parts]
        return cls(traces, converged=converged, names=lines).plot(**kwargs)

    def plot(self, ax: Any = None, *, kind: str = "value") -> Self:
        """Draw the traces.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        kind : {"value", "gap"}, default "value"
            The ELBO, or its gap to the best value of the same fit on a logarithmic axis, which shows late
            iterations after large early gains.
        """
        _check_kind(kind, ("value", "gap"))
        ax = _axes(self, ax, (6.0, 4.0))
        for i, (trace, converged, name) in enumerate(zip(self.traces, self.converged, self.names, strict=True)):
            heights = trace if kind == "value" else _gap_to_best(trace)
            label, marker = (name, "o") if converged else (f"{name}, not converged", "X")
            style = {"color": _SERIES[i % len(_SERIES)], "marker": marker, "markevery": [-1], "ms": 7}
            ax.plot(np.arange(1, trace.size + 1), heights, lw=1.6, label=label, **style)
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.set(xlabel="iteration", ylabel="ELBO (nats)" if kind == "value" else "best ELBO − ELBO (nats)")
        if kind == "gap":
            ax.set_yscale("log")
        else:
            ax.ticklabel_format(axis="y", useOffset=False, style="plain")
            low, high = ax.get_ylim()
            spare = max(1e-6 * abs(low) - 0.5 * (high - low), 0.0)  # do not enlarge the rounding of a flat trace
            ax.set_ylim(low - spare, high + spare)
        self.ax_, self.figure_ = _finish(ax, legend="best")
        return self


class PosteriorDisplay:
    """Posterior probabilities of the weights' levels, and the distribution of the posterior means.

    Parameters
    ----------
    levels : array of shape (b, m) or (m,)
        Values that each weight can take.
    q : array of shape (b, m)
        Their posterior probabilities.
    mean, std : arrays of shape (b,)
        Posterior means and standard deviations of the weights.
    """

    def __init__(self, levels: ArrayLike, q: ArrayLike, mean: ArrayLike, std: ArrayLike) -> None:
        self.q, levels = finite_array("q", q), finite_array("levels", levels)
        if self.q.ndim != 2 or levels.shape not in (self.q.shape, self.q.shape[1:]) or self.q.size == 0:
            raise ValueError(f"levels must have the shape of q or of its rows, got {levels.shape} for {self.q.shape}")
        self.levels = np.broadcast_to(levels, self.q.shape)
        self.mean, self.std = _vector("mean", mean, len(self.q)), _vector("std", std, len(self.q))
        # A level of linspace may miss zero by rounding.
        zero = np.abs(self.levels) <= 1e-12 * np.abs(self.levels).max()
        self.zero_fraction = float(np.mean(np.sum(self.q * zero, axis=1))) if zero.any() else None

    @classmethod
    def from_estimator(cls, estimator: Any, *, output: int = 0, **kwargs: Any) -> Self:
        """Plot `posterior_` of a fitted estimator; `output` selects one of several."""
        posterior = _fitted(estimator, "posterior_")
        if isinstance(posterior, (list, tuple)):
            posterior = posterior[_check_output(output, len(posterior))]
        if not all(hasattr(posterior, name) for name in ("levels", "q", "mean", "std")):
            got = f"{type(posterior).__name__} of {type(estimator).__name__}"
            raise TypeError(f"posterior_ must have levels and their probabilities q, got {got}")
        return cls(posterior.levels, posterior.q, posterior.mean, posterior.std).plot(**kwargs)

    def plot(self, ax: Any = None, *, n_weights: int = 30) -> Self:
        """Draw a heat map of the weights with the largest absolute means and a histogram of all means.

        Parameters
        ----------
        ax : pair of matplotlib Axes, optional
        n_weights : int, default 30
            Number of weights in the heat map.
        """
        if n_weights < 1 or (ax is not None and np.size(ax) != 2):
            raise ValueError(f"ax must be a pair of axes and n_weights positive, got {np.size(ax)} and {n_weights}")
        self.ax_ = np.ravel(_axes(self, ax, (10.0, 4.0), ncols=2, width_ratios=(3, 2)))
        self.figure_ = self.ax_[0].figure
        self._draw_levels(self.ax_[0], np.argsort(-np.abs(self.mean), kind="stable")[:n_weights])
        self._draw_means(self.ax_[1])
        return self

    def _draw_levels(self, ax: Any, chosen: Any) -> None:
        highest = self.q[chosen].max()
        for column, weight in enumerate(chosen):
            order = np.argsort(self.levels[weight])
            cells, q = _edges(self.levels[weight][order]), self.q[weight][order]
            heat = ax.pcolormesh([column - 0.5, column + 0.5], cells, q[:, None], cmap="Blues", vmin=0.0, vmax=highest)
        style = {"fmt": "o", "ms": 3, "lw": 1, "color": _VERMILION}
        ax.errorbar(range(chosen.size), self.mean[chosen], self.std[chosen], label="mean ± standard deviation", **style)
        ax.set_xticks(range(chosen.size), chosen.astype(str), rotation=90 if chosen.size > 12 else 0, fontsize="small")
        ax.set(xlabel="weight, by absolute mean", ylabel="level", xlim=(-0.5, chosen.size - 0.5))
        _finish(ax, legend="above")
        ax.figure.colorbar(heat, ax=ax, label="posterior probability", pad=0.02)

    def _draw_means(self, ax: Any) -> None:
        counts, _, _ = ax.hist(self.mean, bins=40, color=_BLUE)
        ax.set(xlabel="posterior mean of the weight", ylabel="number of weights")
        if counts.max() > 50:
            ax.set(yscale="log", ylim=(0.7, None))
        else:
            ax.yaxis.get_major_locator().set_params(integer=True)
        zeros = "no level at zero" if self.zero_fraction is None else f"expected zeros {self.zero_fraction:.1%}"
        ax.set_title(f"{self.mean.size} weights, {zeros}", fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)


class SequentialDisplay:
    """How good a sequential posterior is: log weights of its draws about the ELBO, and how coarse levels are.

    Parameters
    ----------
    log_weights : array of shape (n_draws,)
        log p(y, w) − log q(w) of the draws; their mean is the ELBO.
    log_evidence_continuous : float
        Log evidence of continuous weights.
    coarseness : array of shape (b,)
        Spacing of each weight's levels in units of its conditional standard deviation.
    """

    def __init__(self, log_weights: ArrayLike, log_evidence_continuous: float, coarseness: ArrayLike) -> None:
        self.log_weights, self.coarseness = _vector("log_weights", log_weights), _vector("coarseness", coarseness)
        self.log_evidence_continuous = log_evidence_continuous

    @classmethod
    def from_estimator(cls, estimator: Any, *, output: int = 0, **kwargs: Any) -> Self:
        """Plot `posterior_` of an estimator fitted with ``posterior="sequential"``; `output` selects one of several."""
        posterior = _fitted(estimator, "posterior_")
        if isinstance(posterior, (list, tuple)):
            posterior = posterior[_check_output(output, len(posterior))]
        if not hasattr(posterior, "log_weights"):
            got = f"{type(posterior).__name__} of {type(estimator).__name__}"
            raise TypeError(f"posterior_ must be a sequential posterior, got {got}")
        return cls(posterior.log_weights, posterior.log_evidence_continuous, posterior.coarseness).plot(**kwargs)

    def plot(self, ax: Any = None) -> Self:
        """Draw log weights about the evidence, and the weights' coarseness in descending order.

        Parameters
        ----------
        ax : pair of matplotlib Axes, or one for the log weights alone, optional
        """
        if ax is not None and np.size(ax) > 2:
            raise ValueError(f"ax must be one or a pair of axes, got {np.size(ax)}")
        self.ax_ = np.ravel(_axes(self, ax, (10.0, 4.0), ncols=2))
        self.figure_ = self.ax_[0].figure
        self._draw_log_weights(self.ax_[0])
        if self.ax_.size > 1:
            self._draw_coarseness(self.ax_[1])
        return self

    def _draw_log_weights(self, ax: Any) -> None:
        gap = self.log_weights - self.log_evidence_continuous
        ax.hist(gap, bins=min(15, max(5, gap.size // 4)), color=_BAND, label=f"{gap.size} draws")
        side = "below" if gap.mean() <= 0 else "above"
        ax.axvline(gap.mean(), color=_BLUE, label=f"ELBO, {abs(gap.mean()):.2g} {side} the evidence")
        ax.axvline(0.0, color=_INK, ls="--", label="evidence of continuous weights")
        ax.set(xlabel="log weight − log evidence (nats)", ylabel="number of draws")
        _finish(ax, legend="above")

    def _draw_coarseness(self, ax: Any) -> None:
        ax.plot(np.arange(1, self.coarseness.size + 1), np.sort(self.coarseness)[::-1], color=_BLUE, label="weights")
        ax.axhline(HARMLESS_COARSENESS, color=_VERMILION, ls="--", label="levels cost nothing below")
        ax.set(xlabel="weight, by coarseness", ylabel="spacing / conditional deviation", yscale="log")
        _finish(ax, legend="above")


def _axes(display: object, ax: Any, figsize: tuple[float, float], **kwargs: Any) -> Any:
    """Return the given axes or new ones."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        hint = 'Install it with: pip install "pydirect[plot]"'
        raise ImportError(f"{type(display).__name__} requires matplotlib. {hint}") from error
    return plt.subplots(figsize=figsize, layout="constrained", **kwargs)[1] if ax is None else ax


def _finish(ax: Any, legend: str) -> tuple[Any, Any]:
    """Remove spines, place the legend "above" the axes or at its best location; return the axes and their figure."""
    ax.spines[["top", "right"]].set_visible(False)
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 2} if legend == "above" else {"loc": legend}
    ax.legend(frameon=False, fontsize="small", **place)
    return ax, ax.figure


def _draw_calibrated(ax: Any, n: int, bins: int | None) -> None:
    """Draw mean and central 95 % interval of the coverages, or of bin densities, of a calibrated model."""
    from scipy.stats import binom

    x = np.linspace(0.0, 1.0, 101)
    probability, scale = (x, 1) if bins is None else (np.full_like(x, 1.0 / bins), bins)
    low, high = (binom.ppf(p, n, probability) * scale / n for p in (0.025, 0.975))
    # At probability zero the quantiles are defined as -1.
    ax.fill_between(x, low.clip(0.0), high.clip(0.0), color="0.88", lw=0, label=f"95% by chance, n = {n}")
    ax.plot(x, probability * scale, color="0.45", lw=1.0, ls="--", label="calibrated")


def _gap_to_best(trace: FloatArray) -> FloatArray:
    """Return the gap to the best value; for a logarithmic axis, zeros become the smallest other gap or the rounding."""
    gap: FloatArray = trace.max() - trace
    smallest = np.min(gap, where=gap > 0.0, initial=np.inf)
    return np.maximum(gap, smallest if np.isfinite(smallest) else np.spacing(max(1.0, np.abs(trace.max()))))


def _edges(levels: FloatArray) -> FloatArray:
    """Return the edges of cells around sorted levels, half-way between neighbours."""
    gaps = np.diff(levels) if levels.size > 1 else np.array([0.1 * max(abs(float(levels[0])), 1.0)])
    return np.concatenate(
        [levels[:1] - 0.5 * gaps[:1], 0.5 * (levels[:-1] + levels[1:]), levels[-1:] + 0.5 * gaps[-1:]]
    )


def _one_output(y_true: ArrayLike, predicted: Predicted, output: int | None = None) -> tuple[Any, Distribution]:
    """Return observations and prediction of the chosen or only output."""
    y, outputs = as_columns("y_true", y_true), as_distributions(predicted)
    if y.shape[1] != len(outputs) or (output is None and len(outputs) != 1):
        wanted = "one output" if output is None else f"{len(outputs)} output(s)"
        raise ValueError(f"y_true and predicted must have {wanted}, got {y.shape[1]} and {len(outputs)}")
    chosen = _check_output(output or 0, len(outputs))
    return y[:, chosen], outputs[chosen]


def _check_output(output: int, count: int) -> int:
    if not 0 <= output < count:
        raise ValueError(f"output must be between 0 and {count - 1}, got {output}")
    return output


def _fitted(estimator: Any, attribute: str) -> Any:
    """Return a fitted attribute, also from within finished searches and pipelines."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    estimator = estimator[-1] if isinstance(getattr(estimator, "steps", None), list) else estimator
    if not hasattr(estimator, attribute):
        raise AttributeError(f"estimator must be fitted and have {attribute}, got {type(estimator).__name__} without")
    return getattr(estimator, attribute)


def _series_names(names: Sequence[str] | None, count: int) -> list[str]:
    if names is None:
        return ["ELBO"] if count == 1 else [f"fit {i}" for i in range(count)]
    if len(names) != count:
        raise ValueError(f"names must have one entry for each of {count}, got {len(names)}")
    return list(names)


def _vector(name: str, value: ArrayLike, size: int | None = None) -> FloatArray:
    array = finite_array(name, value)
    if array.ndim != 1 or size not in (None, array.size):
        raise ValueError(f"{name} must be a vector{'' if size is None else f' of length {size}'}, got {array.shape}")
    return array


def _check_kind(kind: str, options: tuple[str, ...]) -> None:
    if kind not in options:
        raise ValueError(f"kind must be one of {', '.join(options)}, got {kind!r}")
