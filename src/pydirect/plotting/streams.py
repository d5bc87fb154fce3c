"""Displays of models that learn row by row: the running log score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.signal import lfilter

from pydirect.plotting.common import INK, SERIES, axes_of, finish
from pydirect.predictive.gaussian_mixture import FloatArray


class LogScoreDisplay:
    """Running mean of log densities of targets before they were learned: where it falls, the stream has changed.

    Parameters
    ----------
    log_densities : sequence of arrays of shape (n_rows,)
        As `DirectStreamRegressor.predict_then_learn` returns them, one array per model; NaN where there is none.
    names : sequence of str, optional
        Names of the lines.
    half_life : float, default=100.0
        Number of rows after which a row counts half.
    changes : array_like of shape (n_changes,), default=()
        Rows to mark, as those where the stream is known to change.
    """

    def __init__(
        self,
        log_densities: Sequence[ArrayLike],
        *,
        names: Sequence[str] | None = None,
        half_life: float = 100.0,
        changes: ArrayLike = (),
    ) -> None:
        if not half_life > 0:
            raise ValueError(f"half_life must be positive, got {half_life}")
        self.scores = [running_mean(own, half_life) for own in log_densities]
        self.names = [f"model {k}" for k in range(len(self.scores))] if names is None else list(names)
        if len(self.names) != len(self.scores):
            raise ValueError(f"names must be {len(self.scores)} strings, got {len(self.names)}")
        self.changes = np.asarray(changes, dtype=np.float64)

    def plot(self, ax: Any = None) -> Self:
        """Draw one line per model; `ax`: matplotlib Axes, by default new ones.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw in; by default new ones.

        Returns
        -------
        Self
            The display itself.
        """
        ax = axes_of(self, ax, (7.0, 3.6))
        for k, (scores, name) in enumerate(zip(self.scores, self.names, strict=True)):
            ax.plot(scores, color=SERIES[k % len(SERIES)], lw=1.5, label=name)
        for change in self.changes:
            ax.axvline(change, color=INK, lw=0.8, ls=":")
        ax.set(xlabel="row", ylabel="running log score (nats per row)")
        self.ax_, self.figure_ = finish(ax, legend="above")
        return self


def running_mean(values: ArrayLike, half_life: float) -> FloatArray:
    """Return the exponentially weighted mean of the values up to each, (n_rows,), leaving out NaN."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or np.isinf(values).any():
        raise ValueError(f"log_densities must be vectors without infinities, got one of shape {values.shape}")
    known, kept = ~np.isnan(values), 0.5 ** (1 / half_life)
    sums, weights = (lfilter([1.0], [1.0, -kept], own) for own in (np.where(known, values, 0.0), known.astype(float)))
    return np.divide(sums, weights, out=np.full(len(values), np.nan), where=weights > 0)
