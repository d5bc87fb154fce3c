"""Scores for probabilistic regression, and scorers for model selection.

Wherever a function takes `predicted`, it is one of

- a `PredictiveDistribution` or `TransformedDistribution` (one output);
- a list or tuple of them, one per output;
- a pair ``(mean, std)`` of arrays of shape (n,) or (n, k), read as independent Gaussians: what
  ``predict(X, return_std=True)`` returns.

`y_true` has shape (n,) or (n, k). Averages run over the rows, weighted by `sample_weight` if given, and then over the k
outputs with equal weight. All functions raise ValueError if shapes disagree or values are not finite or out of range.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._documentation import described_by
from pydirect._validation import FloatArray, as_choice, as_weights
from pydirect._warnings import warn
from pydirect.predictive.gaussian_mixture import PredictiveDistribution, as_columns, finite_array
from pydirect.predictive.transformed import Distribution, TransformedDistribution

Distributions: TypeAlias = list[Distribution] | tuple[Distribution, ...]
Predicted: TypeAlias = Distribution | Distributions | tuple[ArrayLike, ArrayLike]


def nlpd(y_true: ArrayLike, predicted: Predicted, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean negative log predictive density, in nats; less is better, and it depends on the units of the target.

    Parameters
    ----------
    y_true : array of shape (n,) or (n, k)
        Observed targets.
    predicted : PredictiveDistribution, sequence of them, or pair (mean, std)
        Predictions.
    sample_weight : array of shape (n,), optional
        How many times each row counts.

    Returns
    -------
    float
        Less is better.

    Examples
    --------
    >>> from pydirect.metrics import nlpd
    >>> round(nlpd([0.0, 1.0], ([0.1, 0.8], [0.5, 0.5])), 3)
    0.276
    """
    return _average(-_per_row(y_true, predicted, lambda d, y: d.log_density(y)), sample_weight)


@described_by(nlpd)
def crps(y_true: ArrayLike, predicted: Predicted, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean continuous ranked probability score, in the units of the target; less is better.

    The closed form for Gaussians, lognormals and their mixtures; the absolute error of a prediction without spread.

    Examples
    --------
    >>> from pydirect.metrics import crps
    >>> round(crps([0.0, 1.0], ([0.1, 0.8], [0.5, 0.5])), 3)
    0.137
    """
    return _average(_per_row(y_true, predicted, lambda d, y: d.crps(y)), sample_weight)


@described_by(nlpd)
def interval_score(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float = 0.9, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean interval score of central intervals, in the units of the target; less is better.

    The width plus 2 / (1 - level) times the distance by which an observation misses the interval: Gneiting and Raftery
    (2007), *Strictly proper scoring rules, prediction, and estimation*, JASA 102, eq. 43.

    Parameters
    ----------
    lower : arrays of shape (n,) or (n, k)
        Lower ends of the intervals.
    upper : arrays of shape (n,) or (n, k)
        Upper ends of the intervals.
    level : float, default=0.9
        Nominal coverage of the intervals, strictly between 0 and 1.

    Examples
    --------
    >>> from pydirect.metrics import interval_score
    >>> round(interval_score([1.0, 5.0], [0.0, 0.0], [2.0, 4.0], level=0.9), 6)
    13.0
    """
    _check_levels("level", level)
    y, low, high = _interval(y_true, lower, upper)
    missed = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return _average(high - low + 2.0 / (1.0 - level) * missed, sample_weight)


@described_by(interval_score)
def coverage(y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Fraction of observations inside their interval, ends included.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from pydirect.metrics import coverage
    >>> coverage([1.0, 5.0], [0.0, 0.0], [2.0, 4.0])
    0.5
    """
    y, low, high = _interval(y_true, lower, upper)
    return _average(((low <= y) & (y <= high)).astype(np.float64), sample_weight)


@described_by(nlpd)
def pit(y_true: ArrayLike, predicted: Predicted) -> FloatArray:
    """Probability integral transform: the predicted probability of a value no greater than the observed one.

    Uniform on [0, 1] when predictions are calibrated.

    Returns
    -------
    array of the shape of `y_true`
        Between 0 and 1.

    Examples
    --------
    >>> from pydirect.metrics import pit
    >>> pit([0.0, 2.0], ([0.0, 0.0], [1.0, 1.0])).round(3)
    array([0.5  , 0.977])
    """
    return _per_row(y_true, predicted, lambda d, y: d.cdf(y)).reshape(np.shape(y_true))


@described_by(nlpd)
def msll(
    y_true: ArrayLike, predicted: Predicted, y_train: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean standardised log loss, in nats: `nlpd` less that of a Gaussian with the training targets' mean and variance.

    Zero for that trivial model, negative for better ones, in any units: Rasmussen and Williams (2006), *Gaussian
    Processes for Machine Learning*, p. 23.

    Parameters
    ----------
    y_train : array of shape (n_train,) or (n_train, k)
        Targets that the model was trained on.

    Examples
    --------
    >>> from pydirect.metrics import msll
    >>> round(msll([0.0, 1.0], ([0.1, 0.9], [0.2, 0.2]), y_train=[0.0, 1.0]), 3)
    -1.291
    """
    y, train = as_columns("y_true", y_true), as_columns("y_train", y_train)
    if train.shape[1] != y.shape[1] or len(train) == 0:
        raise ValueError(f"y_train must have rows and {y.shape[1]} output(s) like y_true, got shape {train.shape}")
    std = train.std(axis=0)
    if np.any(std == 0.0):
        raise ValueError("y_train must vary in every output, got a constant")
    trivial = np.broadcast_to(train.mean(axis=0), y.shape), np.broadcast_to(std, y.shape)
    return nlpd(y_true, predicted, sample_weight=sample_weight) - nlpd(y, trivial, sample_weight=sample_weight)


@described_by(nlpd)
def coverage_curve(
    y_true: ArrayLike, predicted: Predicted, levels: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> FloatArray:
    """Observed coverage of the central intervals at each nominal level.

    Parameters
    ----------
    levels : array of shape (m,)
        Nominal coverages, strictly between 0 and 1.

    Returns
    -------
    array of shape (m,)
        Observed coverage.

    Examples
    --------
    >>> from pydirect.metrics import coverage_curve
    >>> coverage_curve([0.0, 1.0, 3.0], ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]), [0.5, 0.9]).round(3)
    array([0.333, 0.667])
    """
    levels = _check_levels("levels", levels)
    # y lies in the central interval of a level exactly when its PIT is within level / 2 of one half.
    needed = np.abs(2.0 * _per_row(y_true, predicted, lambda d, y: d.cdf(y)) - 1.0)
    return np.array([_average((needed <= level).astype(np.float64), sample_weight) for level in levels])


@described_by(nlpd)
def calibration_error(
    y_true: ArrayLike,
    predicted: Predicted,
    *,
    levels: ArrayLike | None = None,
    norm: Literal["mean", "max"] = "mean",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Absolute difference between observed and nominal coverage of central intervals, over several levels.

    By chance alone, a perfect model has up to about 0.4 / sqrt(n) at each level. This is not a proper score: intervals
    of the same coverage may be needlessly wide.

    Parameters
    ----------
    levels : array of shape (m,), optional
        Nominal probabilities of central intervals; by default 0.05, 0.10, ..., 0.95.
    norm : {"mean", "max"}, default="mean"
        Whether to return the mean or the largest difference.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from pydirect.metrics import calibration_error
    >>> mean = [0.0, 0.0, 0.0]
    >>> round(calibration_error([-0.7, 0.0, 0.7], (mean, [1.0, 1.0, 1.0]), levels=[0.9]), 3)
    0.1
    """
    as_choice(norm, "norm", ("mean", "max"))
    nominal = _check_levels("levels", np.arange(1, 20) / 20.0 if levels is None else levels)
    difference = np.abs(coverage_curve(y_true, predicted, nominal, sample_weight=sample_weight) - nominal)
    return float(difference.mean() if norm == "mean" else difference.max())


def nlpd_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Negated `nlpd` of an estimator's predictions, so that greater is better: for ``GridSearchCV(scoring=...)``.

    Parameters
    ----------
    estimator : fitted estimator
        See `predicted_by`.
    X : inputs, shape (n, d)
        Rows of inputs.
    y : array of shape (n,) or (n, k)
        Observed targets.
    sample_weight : array of shape (n,), optional
        How many times each row counts.

    Returns
    -------
    float
        Greater is better.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from pydirect import DirectRegressor
    >>> from pydirect.metrics import nlpd_scorer
    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> scores = cross_val_score(DirectRegressor("linear"), X, X @ [1.0, 2.0], scoring=nlpd_scorer, cv=3)
    >>> bool((scores > 2.0).all())
    True
    """
    return -nlpd(y, predicted_by(estimator, X), sample_weight=sample_weight)


@described_by(nlpd_scorer)
def crps_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Negated `crps` of an estimator's predictions, so that greater is better.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.model_selection import cross_val_score
    >>> from pydirect.metrics import crps_scorer
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(float(cross_val_score(BayesianRidge(), X, y, scoring=crps_scorer).mean()))
    -31
    """
    return -crps(y, predicted_by(estimator, X), sample_weight=sample_weight)


@described_by(nlpd_scorer)
def predicted_by(estimator: Any, X: Any) -> Any:
    """Predictive distribution of an estimator, or its mean and standard deviation.

    ``predict_distribution(X)`` is used if there is one, else ``predict(X, return_std=True)``. Pipelines and finished
    parameter searches are unwrapped, since they pass on neither the method nor, with metadata routing, the argument.

    Returns
    -------
    distribution, list of them, or (mean, std)
        Predictions at X.

    Raises
    ------
    TypeError
        If the estimator offers neither.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> from pydirect.metrics import predicted_by
    >>> mean, std = predicted_by(BayesianRidge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0]), [[1.0]])
    >>> mean.round(3).tolist()
    [1.333]
    """
    estimator, X = _unwrapped(estimator, X)
    if hasattr(estimator, "predict_distribution"):
        return estimator.predict_distribution(X)
    if not hasattr(estimator, "predict") or "return_std" not in inspect.signature(estimator.predict).parameters:
        expected = "predict_distribution(X) or predict(X, return_std=True)"
        raise TypeError(f"estimator must have {expected}, got {type(estimator).__name__}")
    return estimator.predict(X, return_std=True)


def _unwrapped(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator within pipelines and finished searches, and rows as it takes them."""
    if hasattr(estimator, "best_estimator_"):
        return _unwrapped(estimator.best_estimator_, X)
    if isinstance(getattr(estimator, "steps", None), list):
        return _unwrapped(estimator[-1], estimator[:-1].transform(X) if len(estimator.steps) > 1 else X)
    return estimator, X


def predict_interval(estimator: Any, X: Any, level: float = 0.9, **parameters: Any) -> tuple[FloatArray, FloatArray]:
    """Predict central intervals with any estimator: with one of this package, also as the last step of a pipeline.

    Pipelines have no ``predict_interval`` of their own. Estimators of other packages need ``predict(X,
    return_std=True)``; their intervals are those of a Gaussian.

    Parameters
    ----------
    estimator : estimator, pipeline or finished parameter search
        Fitted.
    X : array_like of shape (n_rows, n_features_in)
        Rows of inputs, as the pipeline takes them.
    level : float, default=0.9
        Probability that an interval contains the target, strictly between 0 and 1.
    **parameters : dict
        Passed to the estimator's own ``predict_interval``, such as ``exposure``.

    Returns
    -------
    lower, upper : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Ends of the intervals, in the target's units.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from pydirect import DirectRegressor, predict_interval
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> y = X @ [1.0, 2.0, 0.0] + 0.1 * np.random.default_rng(1).standard_normal(100)
    >>> model = make_pipeline(StandardScaler(), DirectRegressor("linear")).fit(X, y)
    >>> lower, upper = predict_interval(model, X, level=0.9)
    >>> bool(np.mean((lower <= y) & (y <= upper)) > 0.8)
    True
    """
    _check_levels("level", level)
    estimator, X = _unwrapped(estimator, X)
    if hasattr(estimator, "predict_interval"):
        return estimator.predict_interval(X, level, **parameters)
    predicted = predicted_by(estimator, X)
    each = [distribution.interval(level) for distribution in as_distributions(predicted)]
    lower, upper = (np.stack(ends, axis=-1) for ends in zip(*each, strict=True))
    return (lower[:, 0], upper[:, 0]) if np.ndim(predicted[0]) == 1 else (lower, upper)


@described_by(nlpd)
def as_distributions(predicted: Any) -> list[Distribution]:
    """Return `predicted` in any of its forms as one distribution per output.

    Returns
    -------
    list
        Distributions.

    Examples
    --------
    >>> from pydirect.metrics import as_distributions
    >>> len(as_distributions(([[0.0, 1.0]], [[1.0, 1.0]])))
    2
    """
    kinds = (PredictiveDistribution, TransformedDistribution)
    items = [predicted] if isinstance(predicted, kinds) else predicted
    if not isinstance(items, (list, tuple)) or len(items) == 0:
        raise ValueError(
            f"predicted must be a PredictiveDistribution, several or (mean, std), got {type(items).__name__}"
        )
    if all(isinstance(item, kinds) for item in items):
        return list(items)
    if len(items) != 2:
        raise ValueError(f"predicted must be a pair (mean, std) if it holds arrays, got {len(items)} items")
    mean, std = as_columns("mean", items[0]), as_columns("std", items[1])
    if mean.shape != std.shape or np.any(std < 0.0):
        got = f"shape {std.shape} and minimum {std.min(initial=np.inf):g}"
        raise ValueError(f"std must be non-negative and of the shape of mean, {mean.shape}, got {got}")
    return [PredictiveDistribution.gaussian(m, s**2) for m, s in zip(mean.T, std.T, strict=True)]


def _per_row(
    y_true: ArrayLike, predicted: Predicted, score: Callable[[Distribution, FloatArray], FloatArray]
) -> FloatArray:
    """Return `score` of each value, shape (n, k)."""
    y = as_columns("y_true", y_true)
    outputs = as_distributions(predicted)
    shape = (outputs[0].n_rows, len(outputs))
    if y.shape != shape or any(output.n_rows != len(y) for output in outputs):
        raise ValueError(f"y_true must have as many rows and outputs as predicted, {shape}, got shape {y.shape}")
    return np.column_stack([score(output, column) for output, column in zip(outputs, y.T, strict=True)])


def _average(values: FloatArray, sample_weight: ArrayLike | None) -> float:
    """Return the mean over outputs and rows of values of shape (n, k)."""
    if len(values) == 0:
        raise ValueError("y_true must have at least one row, got none")
    return float(np.average(values.mean(axis=1), weights=as_weights(sample_weight, len(values))))


def _interval(y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    y, low, high = as_columns("y_true", y_true), as_columns("lower", lower), as_columns("upper", upper)
    if not y.shape == low.shape == high.shape:
        raise ValueError(f"lower and upper must have the shape of y_true, {y.shape}, got {low.shape} and {high.shape}")
    if n := np.count_nonzero(low > high):
        warn(f"{n} of {low.size} intervals contain nothing: lower ends are above upper ones", UserWarning, stacklevel=3)
    return y, low, high


def _check_levels(name: str, levels: ArrayLike) -> FloatArray:
    array = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    if array.ndim != 1 or array.size == 0 or not np.all((array > 0.0) & (array < 1.0)):
        raise ValueError(f"{name} must be strictly between 0 and 1, got {array}")
    return array


def reliability_curve(
    y_true: ArrayLike, probability: ArrayLike, *, n_bins: int = 10, sample_weight: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean predicted probability and observed frequency of an event, in bins of equal width of the probability.

    Parameters
    ----------
    y_true : array of shape (n,)
        Whether the event happened: booleans, or 0 and 1.
    probability : array of shape (n,)
        Predicted probability of the event.
    n_bins : int, default=10
        Number of bins of equal width.
    sample_weight : array of shape (n,), optional
        How many times each row counts.

    Returns
    -------
    predicted, observed, weight : arrays of shape (n_used,)
        Values of the non-empty bins; `weight` is the sum of their rows' weights.

    Examples
    --------
    >>> from pydirect.metrics import reliability_curve
    >>> predicted, observed, weight = reliability_curve([0, 0, 1, 1], [0.1, 0.1, 0.6, 0.9], n_bins=2)
    >>> predicted.round(2), observed, weight
    (array([0.1 , 0.75]), array([0., 1.]), array([2., 2.]))
    """
    event, p = np.asarray(y_true), finite_array("probability", probability)
    if p.ndim != 1 or event.shape != p.shape or p.size == 0 or p.min() < 0.0 or p.max() > 1.0:
        raise ValueError(f"probability must hold values between 0 and 1 for each of y_true, got {p} for {event.shape}")
    if not np.isin(event, (0, 1)).all():
        raise ValueError("y_true must hold booleans, or 0 and 1")
    where, weight = np.minimum((p * n_bins).astype(np.intp), n_bins - 1), as_weights(sample_weight, p.size)
    parts = np.stack([np.ones(p.size), p, event])
    mass, of_p, of_events = np.array([np.bincount(where, weight * part, n_bins) for part in parts], dtype=np.float64)
    used = mass > 0
    return of_p[used] / mass[used], of_events[used] / mass[used], mass[used]


@described_by(reliability_curve)
def expected_calibration_error(
    y_true: ArrayLike, probability: ArrayLike, *, n_bins: int = 10, sample_weight: ArrayLike | None = None
) -> float:
    """Mean absolute difference between predicted probability and observed frequency; see `reliability_curve`.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from pydirect.metrics import expected_calibration_error
    >>> round(expected_calibration_error([0, 0, 1, 1], [0.1, 0.1, 0.6, 0.9], n_bins=2), 3)
    0.175
    """
    predicted, observed, weight = reliability_curve(y_true, probability, n_bins=n_bins, sample_weight=sample_weight)
    return float(np.average(np.abs(predicted - observed), weights=weight))


def concordance_index(
    time: ArrayLike, event: ArrayLike, predicted: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Share of the pairs whose order in time is known that predictions order so: Harrell's C.

    Parameters
    ----------
    time : array of shape (n,)
        Times of events, or of censoring on the right.
    event : array of shape (n,)
        Whether the event was seen.
    predicted : array of shape (n,)
        Larger for later events, such as predicted times; pairs of equal ones count half.
    sample_weight : array of shape (n,), optional
        How many times each row counts.

    Returns
    -------
    float
        1 at best, one half for predictions that say nothing.

    Examples
    --------
    >>> from pydirect.metrics import concordance_index
    >>> round(concordance_index([1.0, 2.0, 3.0], [True, True, False], [1.5, 4.0, 3.5]), 3)  # two of three pairs
    0.667
    """
    times, seen, values = _survival(time, event, predicted)
    weight = as_weights(sample_weight, len(times))
    right = pairs = 0.0
    for i in np.flatnonzero(seen):
        mass = weight[i] * weight * ((times > times[i]) | ((times == times[i]) & ~seen))
        pairs += mass.sum()
        right += mass @ ((values > values[i]) + 0.5 * (values == values[i]))
    if pairs == 0:
        raise ValueError("time and event must have a pair of rows whose order is known")
    return float(right / pairs)


@described_by(concordance_index)
def integrated_brier_score(time: ArrayLike, event: ArrayLike, survival: ArrayLike, times: ArrayLike) -> float:
    """Brier score of survival curves, averaged over a range of times; less is better.

    Rows that are censored before a time count through others, by the inverse probability of being uncensored, a
    Kaplan–Meier estimate (Graf et al. 1999, *Statistics in Medicine* 18).

    Parameters
    ----------
    survival : array of shape (n, n_times)
        Predicted probabilities of events later than each of `times`.
    times : array of shape (n_times,)
        Two ascending times or more, before the last of `time`.

    Returns
    -------
    float
        Between 0 and 1; less is better.

    Examples
    --------
    >>> from pydirect.metrics import integrated_brier_score
    >>> seen, survival = [True] * 3, [[0.1, 0.0], [0.9, 0.1], [1.0, 0.9]]
    >>> round(integrated_brier_score([1.0, 2.0, 3.0], seen, survival, [1.5, 2.5]), 3)
    0.007
    """
    curves, at = finite_array("survival", survival), finite_array("times", times)
    given, seen, _ = _survival(time, event, time)
    if curves.shape != (len(given), len(at)) or len(at) < 2 or (np.diff(at) <= 0).any() or at[-1] >= given.max():
        expected = "a column for each of two or more ascending times before the last"
        raise ValueError(f"survival must have {expected}, got shape {curves.shape} and times {at.tolist()[:3]}")
    order = np.argsort(given, kind="stable")
    ends, places = np.unique(given[order], return_inverse=True)
    lost = np.bincount(places, ~seen[order])  # events at the same time come first
    at_risk = len(given) - np.searchsorted(given[order], ends) - np.bincount(places, seen[order])
    uncensored = np.concatenate([[1.0], np.cumprod(1 - lost / np.maximum(at_risk, 1))])
    before = uncensored[np.searchsorted(ends, given, side="left")]
    now = uncensored[np.searchsorted(ends, at, side="right")]
    past = (given[:, None] <= at) & seen[:, None]
    terms = np.where(past, curves**2 / np.maximum(before, 1e-12)[:, None], 0.0)
    terms += np.where(given[:, None] > at, (1 - curves) ** 2 / np.maximum(now, 1e-12), 0.0)
    return float(np.trapezoid(terms.mean(axis=0), at) / (at[-1] - at[0]))


def _survival(
    time: ArrayLike, event: ArrayLike, predicted: ArrayLike
) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
    times, values, seen = finite_array("time", time), finite_array("predicted", predicted), np.asarray(event)
    if times.ndim != 1 or seen.shape != times.shape or values.shape != times.shape or not np.isin(seen, (0, 1)).all():
        got = f"shapes {times.shape}, {seen.shape} and {values.shape}, event of {seen.dtype}"
        raise ValueError(f"time, event and predicted must be vectors of one length, event of True and False, got {got}")
    return times, seen.astype(bool), values
