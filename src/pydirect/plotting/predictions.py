"""Displays of predictions: intervals, calibration, reliability, running log scores of streams."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import cycle
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.signal import lfilter
from scipy.stats import binom, norm

from pydirect._validation import FloatArray, as_choice, as_output
from pydirect.metrics import (
    Predicted,
    as_distributions,
    expected_calibration_error,
    pit,
    predicted_by,
    reliability_curve,
)
from pydirect.plotting.common import (
    BAND,
    BLUE,
    INK,
    SERIES,
    VERMILION,
    Display,
    evenly,
    fitted,
    series_names,
    vector,
    vectors,
)
from pydirect.plotting.inputs import named_numbers
from pydirect.predictive.gaussian_mixture import as_columns, finite_array
from pydirect.predictive.transformed import Distribution
from pydirect.tables.table import Table

UNIT_SQUARE: dict[str, Any] = {"xlim": (0, 1), "ylim": (0, 1), "aspect": "equal"}


class PredictionIntervalDisplay(Display):
    """Predictions with central intervals, and observations.

    - `y_true`, `mean`, `lower`, `upper` (n,): Observations, predictions and ends of the intervals, in the units of the
      target.
    - `feature` (n,): Name and values of one feature, for ``kind="feature"``.
    """

    def __init__(
        self, y_true: ArrayLike, mean: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float, feature: Any = None
    ) -> None:
        self.y_true, self.mean, self.lower, self.upper = vectors(y_true=y_true, mean=mean, lower=lower, upper=upper)
        self.level = level
        self.feature = None if feature is None else (feature[0], vector("feature", feature[1], self.y_true.size))

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
            kwargs = {"feature": named_numbers(Table.of(X), feature), "kind": "feature"} | kwargs
        return cls.from_predictions(*_one_output(y, predicted_by(estimator, X), output), **kwargs)

    def plot(self, ax: Any = None, *, kind: str = "sorted", target_name: str = "target", max_points: int = 500) -> Self:
        """Draw the intervals.

        - `kind` {"sorted", "actual_vs_predicted", "feature"}: Rows in the order of their prediction, at their
          prediction, or at the value of the feature.
        - `max_points`: Largest number of rows drawn, evenly spaced if there are more.
        """
        as_choice(kind, "kind", ("sorted", "actual_vs_predicted", "feature"))
        name, at = "row, in order of prediction" if kind == "sorted" else f"predicted {target_name}", self.mean
        if kind == "feature":
            if self.feature is None:
                raise ValueError('feature must be given for kind="feature", got None')
            name, at = self.feature
        ax = self._axes(ax, (6.4, 4.4))
        # Sorted by observation, even calibrated predictions would look too high on the left and too low on the right.
        order = np.argsort(at, kind="stable")
        shown = evenly(order.size, max_points)
        rows = order[shown]
        across = shown + 1 if kind == "sorted" else at[rows]
        covered = (self.lower <= self.y_true) & (self.y_true <= self.upper)
        label = f"{self.level:.0%} interval: {covered.mean():.1%} of {order.size} inside"
        width, size = float(np.clip(250.0 / rows.size, 0.8, 5.0)), 14.0 if rows.size <= 150 else 7.0
        ax.vlines(across, self.lower[rows], self.upper[rows], color=BAND, lw=width, label=label)
        ax.plot(across, self.mean[rows], "_" if kind == "feature" else "-", color=BLUE, lw=1.5, label="prediction")
        inside = {"s": size, "color": INK, "label": "observed inside", "zorder": 3}
        outside = {"s": 2.2 * size, "color": VERMILION, "marker": "D", "label": "observed outside", "zorder": 4}
        for own, style in ((covered[rows], inside), (~covered[rows], outside)):
            ax.scatter(across[own], self.y_true[rows[own]], lw=0, **style)
        return self._finished(ax, "above", xlabel=name, ylabel=target_name)


class CalibrationDisplay(Display):
    """Observed against nominal coverage of central intervals, or the histogram of the PIT.

    - `pit` (n,): Predicted probability of a value no greater than the observed one; see `pydirect.metrics.pit`.
    """

    def __init__(self, pit: ArrayLike, *, name: str = "observed") -> None:
        self.pit, self.name = vector("pit", pit), name
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

    @classmethod
    def before_and_after(cls, estimator: Any, X: Any, y: ArrayLike, *, output: int = 0, **kwargs: Any) -> Self:
        """Plot a calibrated estimator's predictions at X as they were before `calibrate`, and as they are.

        The rows should not be those that it was calibrated on. Returns the display of the predictions as they are.
        """
        after = fitted(estimator, "calibration_scale_")
        before = copy.copy(estimator)
        before.model_ = estimator.model_.calibrated(estimator.model_.units.fitted_calibration)
        options = {"output": output} | kwargs
        first = cls.from_estimator(before, X, y, name="before calibration", **options)
        name = f"after: deviations × {after / estimator.model_.units.fitted_calibration:.3g}"
        return cls.from_estimator(estimator, X, y, name=name, **(options | {"ax": first.ax_}))

    def plot(self, ax: Any = None, *, kind: str = "coverage", bins: int = 10) -> Self:
        """Draw the curve or the histogram; several displays may share axes.

        The shaded region has probability 95 % for a calibrated model, separately per level or bin.

        - `kind` {"coverage", "pit"}: Curve of observed against nominal coverage, or histogram of the probability
          integral transform.
        """
        as_choice(kind, "kind", ("coverage", "pit"))
        ax = self._axes(ax, (4.6, 4.6) if kind == "coverage" else (5.4, 4.0))
        first, style = _curve(ax)
        style, n = style | {"label": self.name}, self.pit.size
        if first:
            _draw_calibrated(ax, n, bins if kind == "pit" else None)
        if kind == "coverage":
            levels = np.linspace(0.0, 1.0, 101)
            needed = np.sort(np.abs(2.0 * self.pit - 1.0))
            ax.plot(levels, np.searchsorted(needed, levels, side="right") / n, **style)
            ax.set(**UNIT_SQUARE)
            return self._finished(ax, "best", xlabel="nominal coverage", ylabel="observed coverage")
        counts, edges = np.histogram(self.pit, bins=bins, range=(0.0, 1.0))
        ax.stairs(counts * bins / n, edges, baseline=None, **style)
        ax.set(xlim=(0, 1), ylim=(0.0, max(ax.get_ylim()[1], 1.05 * counts.max() * bins / n)))
        name = "PIT: predicted probability of less than observed"
        return self._finished(ax, "above", xlabel=name, ylabel="density")


class ReliabilityDisplay(Display):
    """Observed frequency of an event against its predicted probability, in bins of the latter.

    - `y_true` (n,): Whether the event happened: booleans, or 0 and 1.
    - `probability` (n,): Predicted probabilities of the event.
    """

    def __init__(self, y_true: ArrayLike, probability: ArrayLike, *, name: str = "observed") -> None:
        self.y_true, self.probability, self.name = np.asarray(y_true), vector("probability", probability), name
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
        p, classes = estimator.predict_proba(X), fitted(estimator, "classes_")
        events = np.asarray(y)[:, None] == classes
        events, p = (events[:, 1], p[:, 1]) if len(classes) == 2 else (events.ravel(), p.ravel())
        kwargs = {"name": type(estimator).__name__} | kwargs
        return cls.from_predictions(events, np.minimum(p, 1.0), **kwargs)

    def plot(self, ax: Any = None, *, n_bins: int = 10) -> Self:
        """Draw the curve; several displays may share axes.

        Bars show two standard errors of each bin's frequency, numbers its number of rows; with more than two classes
        each row counts once per class.
        """
        ax = self._axes(ax, (4.6, 4.6))
        first, style = _curve(ax)
        if first:
            ax.plot([0, 1], [0, 1], color=INK, lw=1, ls=":", label="calibrated")
        predicted, observed, count = reliability_curve(self.y_true, self.probability, n_bins=n_bins)
        error = 2 * np.sqrt(predicted * (1 - predicted) / count)
        color, label = style["color"], f"{self.name}, calibration error {self.calibration_error:.1%}"
        bars = "2 SE; row counts" if first else None
        ax.vlines(predicted, observed - error, observed + error, color=color, lw=1, alpha=0.6, label=bars)
        ax.plot(predicted, observed, "o-", ms=5, label=label, **style)
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
        for x, y, n in zip(predicted, observed, count, strict=True):
            beside = {"xytext": (5, -9) if y > 0.5 else (5, 5), "textcoords": "offset points"}
            ax.annotate(f"{n:.0f}", (x, y), color=color, fontsize="x-small", bbox=paper, zorder=4, **beside)
        return self._finished(
            ax, "above", 1, xlabel="predicted probability", ylabel="observed frequency", **UNIT_SQUARE
        )


class SurvivalDisplay(Display):
    """Survival curves: the probability that an event is later than a time, with bands of what is not known of f.

    - `times` (n_times,).
    - `survival` (n_curves, n_times), `ends` (2, n_curves, n_times): Probabilities, and ends of their intervals.
    """

    def __init__(
        self, times: ArrayLike, survival: ArrayLike, ends: ArrayLike, *, level: float = 0.9, names: Any = None
    ) -> None:
        self.times, self.level = vector("times", times), level
        self.survival, self.ends = finite_array("survival", survival), finite_array("ends", ends)
        self.names = series_names(names, len(self.survival), "row")
        shape = len(self.names), self.times.size
        if self.survival.shape != shape or self.ends.shape != (2, *shape):
            raise ValueError(f"survival must have shape {shape} and ends two of them, got {self.survival.shape}")

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, times: Any = None, *, level: float = 0.9, names: Any = None, **kwargs: Any
    ) -> Self:
        """Plot the curves of a fitted `DirectSurvivalRegressor` at a few rows, with intervals of the function.

        - `times`: By default from zero to where nine in ten events of every row are expected.
        """
        latest = estimator.predict_quantiles(X, [0.9]).max()
        at = np.linspace(0.0, latest, 200) if times is None else np.asarray(times, dtype=np.float64)
        (mean, std), likelihood = estimator.predict_latent(X), fitted(estimator, "likelihood_")
        reach, z = norm.ppf(0.5 + 0.5 * level) * std, np.log(np.maximum(at, np.finfo(np.float64).tiny))
        # The curve rises with f at every time: its quantiles are the curves of the quantiles of f.
        ends = [1 - likelihood.cdf(z[None], f, np.zeros(len(f))) for f in (mean - reach, mean + reach)]
        return cls(at, estimator.predict_survival(X, at), ends, level=level, names=names).plot(**kwargs)

    def plot(self, ax: Any = None, *, time_name: str = "time") -> Self:
        """Draw the curves."""
        ax = self._axes(ax, (6.0, 4.0))
        for k, (name, color) in enumerate(zip(self.names, cycle(SERIES), strict=False)):
            ax.fill_between(self.times, *self.ends[:, k], color=color, alpha=0.2, lw=0)
            ax.plot(self.times, self.survival[k], color=color, lw=1.8, label=name)
        ax.fill_between([], [], [], color="0.8", lw=0, label=f"{self.level:.0%} interval of the function")
        ax.set(xlim=(self.times.min(), self.times.max()), ylim=(0.0, 1.02))
        return self._finished(ax, "above", xlabel=time_name, ylabel="probability that the event is later")


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


def _curve(ax: Any) -> tuple[bool, dict[str, Any]]:
    """Return whether axes have no curve of a display yet, and the style of one more."""
    earlier = sum(artist.get_gid() == "pydirect" for artist in ax.get_children())
    return earlier == 0, {"color": SERIES[earlier % len(SERIES)], "lw": 1.8, "gid": "pydirect"}


def _draw_calibrated(ax: Any, n: int, bins: int | None) -> None:
    """Draw mean and central 95 % interval of the coverages, or of bin densities, of a calibrated model."""
    x = np.linspace(0.0, 1.0, 101)
    probability, scale = (x, 1) if bins is None else (np.full_like(x, 1.0 / bins), bins)
    low, high = (binom.ppf(p, n, probability) * scale / n for p in (0.025, 0.975))
    # At probability zero the quantiles are defined as -1.
    ax.fill_between(x, low.clip(0.0), high.clip(0.0), color="0.88", lw=0, label=f"95% by chance, n = {n}")
    ax.plot(x, probability * scale, color="0.45", lw=1.0, ls="--", label="calibrated")


def _one_output(y_true: ArrayLike, predicted: Predicted, output: int | None = None) -> tuple[Any, Distribution]:
    """Return observations and prediction of the chosen or only output."""
    y, outputs = as_columns("y_true", y_true), as_distributions(predicted)
    if y.shape[1] != len(outputs) or (output is None and len(outputs) != 1):
        wanted = "one output" if output is None else f"{len(outputs)} output(s)"
        raise ValueError(f"y_true and predicted must have {wanted}, got {y.shape[1]} and {len(outputs)}")
    chosen = as_output(output or 0, len(outputs))
    return y[:, chosen], outputs[chosen]
