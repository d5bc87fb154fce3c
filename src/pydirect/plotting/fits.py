"""Displays of fits: the ELBO by iteration, posteriors of weights, running log scores of streams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.signal import lfilter

from pydirect._validation import FloatArray, as_output
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.plotting.common import (
    BLUE,
    INK,
    SERIES,
    VERMILION,
    Display,
    finish,
    fitted,
    largest,
    series_names,
    vector,
    vectors,
)
from pydirect.predictive.gaussian_mixture import finite_array

# Levels that stand for a Gaussian weight in pictures.
GAUSSIAN_LEVELS = 15


class ELBODisplay(Display):
    """The ELBO after each iteration, for one or more fits.

    - `traces` (n_iter,): ELBO in nats, one array per fit.
    """

    def __init__(self, traces: Sequence[ArrayLike], *, converged: Any = True, names: Any = None) -> None:
        self.traces = [vector("each trace", trace) for trace in traces]
        if any(trace.size == 0 for trace in self.traces):
            raise ValueError("traces must not be empty, got one without values")
        self.converged = np.broadcast_to(converged, len(self.traces))
        self.names = _names(names, len(self.traces))

    @classmethod
    def from_estimator(cls, estimator: Any, *, names: Sequence[str] | None = None, **kwargs: Any) -> Self:
        """Plot `elbo_trace_` of a fitted estimator or a list of them, with one line per output or class."""
        fits = list(estimator) if isinstance(estimator, (list, tuple)) else [estimator]
        traces: list[ArrayLike] = []
        converged, lines = [], []
        for fit, name in zip(fits, _names(names, len(fits)), strict=True):
            trace = fitted(fit, "elbo_trace_")
            outputs = trace if isinstance(trace, (list, tuple)) else [trace]
            traces += outputs
            converged += list(np.broadcast_to(fitted(fit, "converged_"), len(outputs)))
            parts = [f"class {c}" for c in getattr(fit, "classes_", ())] or series_names(None, len(outputs), "output")
            lines += [name] if len(outputs) == 1 else [f"{name}, {part}" for part in parts]
        return cls(traces, converged=converged, names=lines).plot(**kwargs)

    def plot(self, ax: Any = None) -> Self:
        """Draw the traces."""
        ax = self._axes(ax, (6.0, 4.0))
        for trace, converged, name, color in zip(self.traces, self.converged, self.names, cycle(SERIES), strict=False):
            label, marker = (name, "o") if converged else (f"{name}, not converged", "X")
            style = {"color": color, "marker": marker, "markevery": [-1], "ms": 7}
            ax.plot(np.arange(1, trace.size + 1), trace, lw=1.6, label=label, **style)
        ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        ax.ticklabel_format(axis="y", useOffset=False, style="plain")
        low, high = ax.get_ylim()
        spare = max(1e-6 * abs(low) - 0.5 * (high - low), 0.0)  # do not enlarge the rounding of a flat trace
        return self._finished(ax, "best", xlabel="iteration", ylabel="ELBO (nats)", ylim=(low - spare, high + spare))


class PosteriorDisplay(Display):
    """Posterior probabilities q (b, m) of the weights' levels, and the distribution of the means (b,)."""

    def __init__(self, levels: ArrayLike, q: ArrayLike, mean: ArrayLike, std: ArrayLike) -> None:
        self.q, levels = finite_array("q", q), finite_array("levels", levels)
        if self.q.ndim != 2 or levels.shape not in (self.q.shape, self.q.shape[1:]) or self.q.size == 0:
            raise ValueError(f"levels must have the shape of q or of its rows, got {levels.shape} for {self.q.shape}")
        self.levels = np.broadcast_to(levels, self.q.shape)
        self.mean, self.std = vectors(len(self.q), mean=mean, std=std)
        # A level of linspace may miss zero by rounding.
        zero = np.abs(self.levels) <= 1e-12 * np.abs(self.levels).max()
        self.zero_fraction = float(np.mean(np.sum(self.q * zero, axis=1))) if zero.any() else None

    @classmethod
    def from_estimator(cls, estimator: Any, *, output: int = 0, **kwargs: Any) -> Self:
        """Plot `posterior_` of a fitted estimator; `output` selects one of several."""
        posterior = fitted(estimator, "posterior_")
        if isinstance(posterior, (list, tuple)):
            posterior = posterior[as_output(output, len(posterior))]
        if hasattr(posterior, "rotation"):  # Gaussian weights
            drawn = FactorizedCategorical.of_gaussians(posterior.mean, posterior.std, GAUSSIAN_LEVELS)
            return cls(drawn.levels, drawn.q, drawn.mean, drawn.std).plot(**kwargs)
        if not all(hasattr(posterior, name) for name in ("levels", "q", "mean", "std")):
            got = f"{type(posterior).__name__} of {type(estimator).__name__}"
            raise TypeError(f"posterior_ must have levels and their probabilities q, got {got}")
        return cls(posterior.levels, posterior.q, posterior.mean, posterior.std).plot(**kwargs)

    def plot(self, ax: Any = None, *, n_weights: int = 30) -> Self:
        """Draw a heat map of the weights with the largest absolute means and a histogram of all means."""
        if n_weights < 1 or (ax is not None and np.size(ax) != 2):
            raise ValueError(f"ax must be a pair of axes and n_weights positive, got {np.size(ax)} and {n_weights}")
        left, right = self._panels(ax, (10.0, 4.0), ncols=2, width_ratios=(3, 2))
        self._draw_levels(left, largest(self.mean, n_weights, "n_weights"))
        self._draw_means(right)
        return self

    def _draw_levels(self, ax: Any, chosen: Any) -> None:
        highest = self.q[chosen].max()
        for column, weight in enumerate(chosen):
            order = np.argsort(self.levels[weight])
            levels, q = self.levels[weight, order], self.q[weight, order]
            # Cells end half-way between neighbours.
            gaps = np.diff(levels) if levels.size > 1 else np.array([0.1 * max(abs(float(levels[0])), 1.0)])
            cells = np.r_[levels[0] - 0.5 * gaps[0], 0.5 * (levels[:-1] + levels[1:]), levels[-1] + 0.5 * gaps[-1]]
            heat = ax.pcolormesh([column - 0.5, column + 0.5], cells, q[:, None], cmap="Blues", vmin=0.0, vmax=highest)
        style = {"fmt": "o", "ms": 3, "lw": 1, "color": VERMILION}
        ax.errorbar(range(chosen.size), self.mean[chosen], self.std[chosen], label="mean ± standard deviation", **style)
        ax.set_xticks(range(chosen.size), chosen.astype(str), rotation=90 if chosen.size > 12 else 0, fontsize="small")
        ax.set(xlabel="weight, by absolute mean", ylabel="level", xlim=(-0.5, chosen.size - 0.5))
        finish(ax, "above")
        ax.figure.colorbar(heat, ax=ax, label="posterior probability", pad=0.02)

    def _draw_means(self, ax: Any) -> None:
        counts, _, _ = ax.hist(self.mean, bins=40, color=BLUE)
        ax.set(xlabel="posterior mean of the weight", ylabel="number of weights")
        if counts.max() > 50:
            ax.set(yscale="log", ylim=(0.7, None))
        else:
            ax.yaxis.get_major_locator().set_params(integer=True)
        zeros = "no level at zero" if self.zero_fraction is None else f"expected zeros {self.zero_fraction:.1%}"
        ax.set_title(f"{self.mean.size} weights, {zeros}", fontsize="medium")


def _names(names: Sequence[str] | None, count: int) -> list[str]:
    return ["ELBO"] if names is None and count == 1 else series_names(names, count, "fit")


class LogScoreDisplay(Display):
    """Running mean of log densities of targets before they were learned: where it falls, the stream has changed.

    - `log_densities` (n_rows,): As `DirectStreamRegressor.predict_then_learn` returns them, one array per model; NaN
      where there is none.
    - `half_life`: Number of rows after which a row counts half.
    - `changes` (n_changes,): Rows to mark, as those where the stream is known to change.
    """

    def __init__(
        self, log_densities: Sequence[ArrayLike], *, names: Any = None, half_life: float = 100.0, changes: Any = ()
    ) -> None:
        if not half_life > 0:
            raise ValueError(f"half_life must be positive, got {half_life}")
        self.scores = [running_mean(own, half_life) for own in log_densities]
        self.names = series_names(names, len(self.scores), "model")
        self.changes = np.asarray(changes, dtype=np.float64)

    def plot(self, ax: Any = None) -> Self:
        """Draw one line per model; `ax`: matplotlib Axes, by default new ones."""
        ax = self._axes(ax, (7.0, 3.6))
        for scores, name, color in zip(self.scores, self.names, cycle(SERIES), strict=False):
            ax.plot(scores, color=color, lw=1.5, label=name)
        for change in self.changes:
            ax.axvline(change, color=INK, lw=0.8, ls=":")
        return self._finished(ax, "above", xlabel="row", ylabel="running log score (nats per row)")


def running_mean(values: ArrayLike, half_life: float) -> FloatArray:
    """Return the exponentially weighted mean of the values up to each, (n_rows,), leaving out NaN."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or np.isinf(values).any():
        raise ValueError(f"log_densities must be vectors without infinities, got one of shape {values.shape}")
    known, kept = ~np.isnan(values), 0.5 ** (1 / half_life)
    sums, weights = (lfilter([1.0], [1.0, -kept], own) for own in (np.where(known, values, 0.0), known.astype(float)))
    return np.divide(sums, weights, out=np.full(len(values), np.nan), where=weights > 0)
