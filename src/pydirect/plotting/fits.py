"""Displays of fits: the ELBO by iteration, posteriors of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pydirect.direct.sequential_posterior import HARMLESS_COARSENESS
from pydirect.plotting.common import (
    BAND,
    BLUE,
    INK,
    SERIES,
    VERMILION,
    axes_of,
    check_kind,
    check_output,
    finish,
    fitted,
    vector,
)
from pydirect.predictive.gaussian_mixture import FloatArray, finite_array


class ELBODisplay:
    """The ELBO after each iteration, for one or more fits.

    Parameters
    ----------
    traces : sequence of arrays of shape (n_iter,)
        ELBO in nats, one array per fit.
    converged : bool or sequence of bool, optional
        Whether each fit converged. A dot marks the last value of a converged fit, a cross that of any other.
    names : sequence of str, optional
        Names of the lines.
    """

    def __init__(
        self,
        traces: Sequence[ArrayLike],
        *,
        converged: bool | Sequence[bool] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.traces = [vector("each trace", trace) for trace in traces]
        if any(trace.size == 0 for trace in self.traces):
            raise ValueError("traces must not be empty, got one without values")
        self.converged = np.broadcast_to(True if converged is None else converged, len(self.traces))
        self.names = _series_names(names, len(self.traces))

    @classmethod
    def from_estimator(cls, estimator: Any, *, names: Sequence[str] | None = None, **kwargs: Any) -> Self:
        """Plot `elbo_trace_` of a fitted estimator or a list of them, with one line per output or class.

        Parameters
        ----------
        estimator : estimator or list of them
            Fitted.
        names : sequence of str, optional
            Names of the lines.
        **kwargs : dict
            Passed to `plot`.
        """
        fits = list(estimator) if isinstance(estimator, (list, tuple)) else [estimator]
        traces, converged, lines = [], [], []
        for fit, name in zip(fits, _series_names(names, len(fits)), strict=True):
            trace = fitted(fit, "elbo_trace_")
            outputs = list(trace) if isinstance(trace, (list, tuple)) else [trace]
            traces += outputs
            converged += list(np.broadcast_to(fitted(fit, "converged_"), len(outputs)))
            own = [f"class {c}" for c in fit.classes_] if hasattr(fit, "classes_") else None
            parts = own or [f"output {k}" for k in range(len(outputs))]
            lines += [name] if len(outputs) == 1 else [f"{name}, {part}" for part in parts]
        return cls(traces, converged=converged, names=lines).plot(**kwargs)

    def plot(self, ax: Any = None, *, kind: str = "value") -> Self:
        """Draw the traces.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw in; by default new ones.
        kind : {"value", "gap"}, default="value"
            The ELBO, or its gap to the best value of the same fit on a logarithmic axis, which shows late
            iterations after large early gains.

        Returns
        -------
        Self
            The display itself.
        """
        check_kind(kind, ("value", "gap"))
        ax = axes_of(self, ax, (6.0, 4.0))
        for i, (trace, converged, name) in enumerate(zip(self.traces, self.converged, self.names, strict=True)):
            heights = trace if kind == "value" else _gap_to_best(trace)
            label, marker = (name, "o") if converged else (f"{name}, not converged", "X")
            style = {"color": SERIES[i % len(SERIES)], "marker": marker, "markevery": [-1], "ms": 7}
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
        self.ax_, self.figure_ = finish(ax, legend="best")
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
        self.mean, self.std = vector("mean", mean, len(self.q)), vector("std", std, len(self.q))
        # A level of linspace may miss zero by rounding.
        zero = np.abs(self.levels) <= 1e-12 * np.abs(self.levels).max()
        self.zero_fraction = float(np.mean(np.sum(self.q * zero, axis=1))) if zero.any() else None

    @classmethod
    def from_estimator(cls, estimator: Any, *, output: int = 0, **kwargs: Any) -> Self:
        """Plot `posterior_` of a fitted estimator; `output` selects one of several.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator.
        output : int, default=0
            Number of the output, of several.
        **kwargs : dict
            Passed to `plot`.
        """
        posterior = fitted(estimator, "posterior_")
        if isinstance(posterior, (list, tuple)):
            posterior = posterior[check_output(output, len(posterior))]
        if not all(hasattr(posterior, name) for name in ("levels", "q", "mean", "std")):
            got = f"{type(posterior).__name__} of {type(estimator).__name__}"
            raise TypeError(f"posterior_ must have levels and their probabilities q, got {got}")
        return cls(posterior.levels, posterior.q, posterior.mean, posterior.std).plot(**kwargs)

    def plot(self, ax: Any = None, *, n_weights: int = 30) -> Self:
        """Draw a heat map of the weights with the largest absolute means and a histogram of all means.

        Parameters
        ----------
        ax : pair of matplotlib Axes, optional
            Axes to draw in; by default new ones.
        n_weights : int, default=30
            Number of weights in the heat map.

        Returns
        -------
        Self
            The display itself.
        """
        if n_weights < 1 or (ax is not None and np.size(ax) != 2):
            raise ValueError(f"ax must be a pair of axes and n_weights positive, got {np.size(ax)} and {n_weights}")
        self.ax_ = np.ravel(axes_of(self, ax, (10.0, 4.0), ncols=2, width_ratios=(3, 2)))
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
        style = {"fmt": "o", "ms": 3, "lw": 1, "color": VERMILION}
        ax.errorbar(range(chosen.size), self.mean[chosen], self.std[chosen], label="mean ± standard deviation", **style)
        ax.set_xticks(range(chosen.size), chosen.astype(str), rotation=90 if chosen.size > 12 else 0, fontsize="small")
        ax.set(xlabel="weight, by absolute mean", ylabel="level", xlim=(-0.5, chosen.size - 0.5))
        finish(ax, legend="above")
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
        self.log_weights, self.coarseness = vector("log_weights", log_weights), vector("coarseness", coarseness)
        self.log_evidence_continuous = log_evidence_continuous

    @classmethod
    def from_estimator(cls, estimator: Any, *, output: int = 0, **kwargs: Any) -> Self:
        """Plot `posterior_` of an estimator fitted with ``posterior="sequential"``; `output` selects one of several.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator.
        output : int, default=0
            Number of the output, of several.
        **kwargs : dict
            Passed to `plot`.
        """
        posterior = fitted(estimator, "posterior_")
        if isinstance(posterior, (list, tuple)):
            posterior = posterior[check_output(output, len(posterior))]
        if not hasattr(posterior, "log_weights"):
            got = f"{type(posterior).__name__} of {type(estimator).__name__}"
            raise TypeError(f"posterior_ must be a sequential posterior, got {got}")
        return cls(posterior.log_weights, posterior.log_evidence_continuous, posterior.coarseness).plot(**kwargs)

    def plot(self, ax: Any = None) -> Self:
        """Draw log weights about the evidence, and the weights' coarseness in descending order.

        Parameters
        ----------
        ax : pair of matplotlib Axes, or one for the log weights alone, optional
            Axes to draw in; by default new ones.

        Returns
        -------
        Self
            The display itself.
        """
        if ax is not None and np.size(ax) > 2:
            raise ValueError(f"ax must be one or a pair of axes, got {np.size(ax)}")
        self.ax_ = np.ravel(axes_of(self, ax, (10.0, 4.0), ncols=2))
        self.figure_ = self.ax_[0].figure
        self._draw_log_weights(self.ax_[0])
        if self.ax_.size > 1:
            self._draw_coarseness(self.ax_[1])
        return self

    def _draw_log_weights(self, ax: Any) -> None:
        gap = self.log_weights - self.log_evidence_continuous
        ax.hist(gap, bins=min(15, max(5, gap.size // 4)), color=BAND, label=f"{gap.size} draws")
        side = "below" if gap.mean() <= 0 else "above"
        ax.axvline(gap.mean(), color=BLUE, label=f"ELBO, {abs(gap.mean()):.2g} {side} the evidence")
        ax.axvline(0.0, color=INK, ls="--", label="evidence of continuous weights")
        ax.set(xlabel="log weight − log evidence (nats)", ylabel="number of draws")
        finish(ax, legend="above")

    def _draw_coarseness(self, ax: Any) -> None:
        ax.plot(np.arange(1, self.coarseness.size + 1), np.sort(self.coarseness)[::-1], color=BLUE, label="weights")
        ax.axhline(HARMLESS_COARSENESS, color=VERMILION, ls="--", label="levels cost nothing below")
        ax.set(xlabel="weight, by coarseness", ylabel="spacing / conditional deviation", yscale="log")
        finish(ax, legend="above")


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


def _series_names(names: Sequence[str] | None, count: int) -> list[str]:
    if names is None:
        return ["ELBO"] if count == 1 else [f"fit {i}" for i in range(count)]
    if len(names) != count:
        raise ValueError(f"names must have one entry for each of {count}, got {len(names)}")
    return list(names)
