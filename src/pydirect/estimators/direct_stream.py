"""`DirectStreamRegressor`: regression of a stream that forgets."""

from __future__ import annotations

import copy
import datetime
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._validation import FloatArray, as_count, as_flag, as_float_array, as_number, as_sample_weight
from pydirect.estimators._regressor import LARGEST_TARGET
from pydirect.estimators._row_store import Codebook, CodedRows, RowStore
from pydirect.estimators._stream_map import FEWEST_ROWS, LARGEST_SQUARE, SECOND, WATCHED_ROWS, is_time, seconds
from pydirect.estimators._stream_results import StreamResults
from pydirect.streams.tables import Table

# What the squared error of one row counts at most in the factor of predictive variances: twenty deviations.
LARGEST_CALIBRATION = 400.0
# Rows that are taken together when nothing is predicted.
LARGE_BLOCK = 4096


class DirectStreamRegressor(StreamResults):
    """Bayesian regression of a stream of rows that learns row by row and forgets.

    Parameters
    ----------
    features : str or transformer, default="auto"
        As of `DirectRegressor`.
    n_basis_functions : int, default=500
        Time of a row grows with its square.
    half_life : float or timedelta, optional
        Number of rows, or time, after which a row counts half: exponential forgetting. By default all rows count fully.
    window : int or timedelta, optional
        Number of the latest rows, or time before the latest row, that count; not with `half_life`.
    n_first_rows : int, default=1000
        Rows from which the feature map is learned. Until there are so many all of them are kept, and the map is learned
        at 8, 16, 32, ... rows, each time without loss.
    follow_inputs : bool, default=True
        Whether the feature map is learned again when the inputs have moved.
    length_scale : float or array_like of shape (n_features_in,), optional
        As of `DirectRegressor`.
    categories : "auto" or list of str or int, default="auto"
        As of `DirectRegressor`.
    missing : {"auto", "indicator", "raise"}, default="auto"
        As of `DirectRegressor`.
    n_threads : int, optional
        By default, OpenMP's current number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of landmarks and frequencies.
    verbose : int, default=0
        1 reports stages on standard error.

    Attributes
    ----------
    features_ : Basis or None
        Feature map; None while there are too few rows.
    n_seen_ : int
        Number of rows so far.
    n_samples_ : float
        Sum of the weights of the rows as they count now.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        In squared units of y.
    log_score_ : float
        Mean log density of targets before they were learned, by `predict_then_learn`; of the latest rows, exponentially
        weighted with `half_life`, or `window` or `n_first_rows` in its place.
    posteriors_ : list of RecursivePosterior
        Posteriors of the weights of `features_` and of a constant, standardised, one per output.
    statistics_ : GaussianStatistics
        Sums of the rows as they count now, of `features_` and a constant, and of standardised targets.
    columns_ : Columns
        From tables to the rows of numbers that the model takes, by ``columns_.encode(X)``.
    mean_missing_variance_ : float
        Prior variance of f that the basis functions miss, averaged over the training rows.
    y_mean_ : ndarray of shape (n_outputs,)
        Mean of the training targets, as they were modelled.
    y_scale_ : ndarray of shape (n_outputs,)
        Their standard deviation, one where it is zero: units of the posterior.
    calibration_scale_ : float
        1, or the scale found by `calibrate`.
    n_features_in_ : int
        Number of columns of X.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectStreamRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (600, 1))
    >>> y = np.where(np.arange(600) < 300, X[:, 0], -X[:, 0])  # the sign changes half-way
    >>> model = DirectStreamRegressor("linear", half_life=30)
    >>> for rows in np.split(np.arange(600), 60):
    ...     _ = model.partial_fit(X[rows], y[rows])
    >>> model.n_seen_, model.predict([[0.5]]).round(1).tolist()
    (600, [-0.5])
    """

    def __init__(
        self,
        features: Any = "auto",
        *,
        n_basis_functions: int = 500,
        half_life: float | datetime.timedelta | None = None,
        window: int | datetime.timedelta | None = None,
        n_first_rows: int = 1000,
        follow_inputs: bool = True,
        length_scale: float | ArrayLike | None = None,
        categories: Any = "auto",
        missing: str = "auto",
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.n_basis_functions = n_basis_functions
        self.half_life = half_life
        self.window = window
        self.n_first_rows = n_first_rows
        self.follow_inputs = follow_inputs
        self.length_scale = length_scale
        self.categories = categories
        self.missing = missing
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    # --- parameters

    def _check_parameters(self) -> None:
        as_count(self.n_first_rows, "n_first_rows", FEWEST_ROWS)
        as_flag(self.follow_inputs, "follow_inputs")
        if self.half_life is not None and self.window is not None:
            raise ValueError("window must be None with a half_life: rows fade or leave")
        if self.half_life is not None:
            given = seconds(self.half_life) if is_time(self.half_life) else self.half_life
            as_number(given, "half_life", above=0.0)
        if self.window is not None:
            if not is_time(self.window):
                as_count(self.window, "window")
            elif not seconds(self.window) > 0:
                raise ValueError(f"window must be a positive time, got {self.window!r}")
        self._new_mapper()._check_parameters()

    def _needs_times(self) -> bool:
        return is_time(self.half_life) or is_time(self.window)

    # --- learning

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> Self:
        """Begin anew with rows in the order in which they came; arguments as of `partial_fit`.

        The feature map is learned from the first of them at once.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts; by default once.
        times : array_like of shape (n_rows,), optional
            Times of the rows, which never fall.

        Returns
        -------
        Self
            The model itself.
        """
        fresh = copy.copy(self)  # what is refused leaves the stream as it is
        fresh._forget()
        fresh._learn(X, y, sample_weight, times, predict=False, at_once=True)
        self.__dict__ = fresh.__dict__
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> Self:
        """Learn from more rows, in the order in which they came.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts.
        times : array_like of shape (n_rows,), optional
            When each row came: seconds, or datetime64, not decreasing; required if `half_life` or `window` is a time.

        Returns
        -------
        Self
            The model itself.
        """
        self._learn(X, y, sample_weight, times, predict=False)
        return self

    def predict_then_learn(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Learn rows one after another, and return what was predicted for each before it was learned.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts; by default once.
        times : array_like of shape (n_rows,), optional
            As of `partial_fit`.

        Returns
        -------
        mean, std, log_density : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Of the target: mean and standard deviation, noise included, and log density of what it turned out to be.
            NaN for the first two rows ever.
        """
        found = self._learn(X, y, sample_weight, times, predict=True)
        mean, std, log_density = (self._shape(values) for values in found)
        return mean, std, log_density

    def forget(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, age: ArrayLike | None = None
    ) -> Self:
        """Remove rows that were learned, as if they had never come, but for what the feature map has from them.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs, as they were learned.
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
            Their targets.
        sample_weight : array_like of shape (n_rows,), optional
            Their weights.
        age : array_like of shape (n_rows,) or float, optional
            With a `half_life`, once there have been more than `n_first_rows` rows: how long ago each row came, in rows
            or seconds: 0 for the latest row.

        Returns
        -------
        Self
            The model itself.

        Raises
        ------
        ValueError
            If rows are none of those that count, as far as all are kept (with a `window`, or with no more than
            `n_first_rows` so far), or their sums show that they cannot have been; nothing is then forgotten.
        """
        self._require_fitted()
        x, targets, weight = self._checked_block(X, y, sample_weight, False)
        weight = np.ones(len(targets)) if weight is None else weight
        used = weight > 0
        x, targets, weight = x[used], targets[used], weight[used]
        places, latest = (store.places_of(x, targets, weight) for store in (self._store, self._latest))
        if self._holds_all():
            if (places < 0).any():
                row = int(np.flatnonzero(places < 0)[0])
                raise ValueError(f"X and y must be of rows that count, with their weights: row {row} is none of them")
            if age is not None:
                raise ValueError("age must be None while all rows are kept")
            rows = self._rows_now(self._store)[places]
        else:
            if self.half_life is not None:
                if age is None:
                    raise ValueError("age must be given with half_life: how long ago each row came")
                given = np.broadcast_to(np.asarray(age, dtype=np.float64), weight.shape)
                ages = as_float_array(given, "age", (len(x),))
                if (ages < 0).any():
                    raise ValueError(f"age must not be negative, got {ages.min()}")
                weight = weight * np.exp2(-ages / seconds(self.half_life))
            rows = CodedRows(x, targets, weight, np.zeros(len(x)))
        self._regression.remove(self._block(rows), places if self.window is not None else None)
        self._store.remove(places[places >= 0])
        self._latest.remove(latest[latest >= 0])
        return self

    def merge(self, other: DirectStreamRegressor) -> Self:
        """Add what another model of the same feature map has learned from other rows.

        Rows that fade with time have the age that their times tell; of those that fade with their number, the latest of
        either model counts fully.

        Models share a feature map if they began as copies: of a model that has seen rows, `emptied` gives copies that
        count none of them.

        Parameters
        ----------
        other : DirectStreamRegressor
            Left as it is.

        Returns
        -------
        Self
            The model itself.

        Raises
        ------
        ValueError
            If feature maps or half-lives differ, or rows leave a `window`.
        """
        self._require_fitted()
        other._require_fitted()
        if other is self or self.features_ is None or self.features_ != other.features_:
            raise ValueError("other must be another model with the same feature map: begin with copies of one model")
        if self.window is not None or other.window is not None:
            raise ValueError("window must be None to merge: it is not known which rows leave next")
        if self.half_life != other.half_life:
            raise ValueError(f"other must have half_life={self.half_life!r}, got {other.half_life!r}")
        if len(self.y_mean_) != len(other.y_mean_):
            raise ValueError(f"other must have {len(self.y_mean_)} outputs, got {len(other.y_mean_)}")
        location, scale = (other.y_mean_ - self.y_mean_) / self.y_scale_, other.y_scale_ / self.y_scale_
        ahead, others, theirs = other._now - self._now, other._regression, other._store.rows
        if is_time(self.half_life):
            share = float(np.exp2(-abs(ahead) / seconds(self.half_life)))
            others = others if ahead > 0 else copy.deepcopy(others).fade(share)
            self._regression.fade(share if ahead > 0 else 1.0)
            self._now = max(self._now, other._now)
        else:  # the latest row of either counts as the latest of both
            theirs = replace(theirs, clock=theirs.clock - ahead)
        self._regression.merge(others, location, scale)
        self.n_seen_ += other.n_seen_
        self._keep(theirs)
        return self

    def emptied(self) -> Self:
        """Return a copy with the same feature map and hyperparameters that has learned no rows.

        Returns
        -------
        Self
            A model that has learned no rows.
        """
        self._require_fitted()
        copied = copy.deepcopy(self)
        copied._regression = self._new_regression(self._regression.noise, self._regression.prior)
        copied._store, copied._latest = (RowStore(store.rows[:0]) for store in (self._store, self._latest))
        return copied

    def _forget(self) -> None:
        super()._forget()
        for name in ("_regression", "_store", "features_", "columns_", "_book"):
            self.__dict__.pop(name, None)

    def _learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        times: ArrayLike | None,
        predict: bool,
        at_once: bool = False,
    ) -> FloatArray:
        """Learn rows; return means, deviations and log densities, (3, n_rows, n_outputs), if they are asked for."""
        begins = not hasattr(self, "_regression")
        if begins:
            self._check_parameters()
        elif self._regression.sliding != (self.window is not None):
            raise ValueError("window must be given from the first row on: fit anew to change it")
        x, targets, weight = self._checked_block(X, y, sample_weight, begins)
        weight = np.ones(len(targets)) if weight is None else weight
        used = weight > 0
        clock = self._checked_times(times, used, begins)
        if begins:
            self._begin(x, targets)
        rows = CodedRows(x[used], targets[used], weight[used], clock[used])
        found = np.full((3, len(targets), targets.shape[1]), np.nan)
        first = min(len(rows), self.n_first_rows) if at_once else 0
        if first:
            self._take(rows[:first], predict)
            self._learn_map()
        learned = self._learn_rows(rows[first:], predict)
        if predict:
            found[:, used] = learned
        return found

    def _checked_block(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, begins: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Return rows as numbers and codes, targets (n_rows, n_outputs) and weights (n_rows,)."""
        quick = None if begins else self._valid_numbers(X, y)
        if quick is not None:
            return *quick, as_sample_weight(sample_weight, len(quick[0]), all_zero=True)
        x, given = self._validated(X, y, multi_output=True, y_numeric=True, reset=begins)
        weight = as_sample_weight(sample_weight, len(x), all_zero=not begins)
        targets = np.asarray(given, dtype=np.float64)
        self._check_target_size(np.abs(targets).max())
        if begins:
            self._one_dimensional = targets.ndim == 1
        targets = targets.reshape(len(x), -1)
        if not begins and targets.shape[1] != len(self.y_mean_):
            raise ValueError(f"y must have {len(self.y_mean_)} outputs, as before, got {targets.shape[1]}")
        if not isinstance(x, Table):
            x = Table.of_numbers(x, list(getattr(self, "feature_names_in_", ())) or None)
        if begins:
            self._book = Codebook.of(x)
        return self._book.coded(x), targets, weight

    def _valid_numbers(self, X: Any, y: Any) -> tuple[FloatArray, FloatArray] | None:
        """Return rows and targets that are finite numbers in arrays, which takes a fraction of full validation."""
        x = self._valid_matrix(X) if self._book.is_numeric and self._book.numeric.all() else None
        if x is None or type(y) is not np.ndarray or y.dtype != np.float64 or y.ndim != 2 - self._one_dimensional:
            return None
        targets = y.reshape(len(y), -1)
        if len(y) != len(x) or targets.shape[1] != len(self.y_mean_) or not (np.abs(y) <= LARGEST_TARGET).all():
            return None
        return np.array(x), np.array(targets)

    def _checked_times(self, times: ArrayLike | None, used: NDArray[np.bool_], begins: bool) -> FloatArray:
        """Return when rows came, in seconds, or their numbers where only these matter, of the `used` ones."""
        if not self._needs_times():
            if times is not None:
                raise ValueError("times must be None unless half_life or window is a time")
            return np.asarray(np.cumsum(used) + (-1.0 if begins or not self.n_seen_ else self._now), dtype=np.float64)
        if times is None:
            raise ValueError("times must be given where half_life or window is a time")
        values = np.asarray(times)
        if values.dtype == object:  # of the standard library's datetime
            values = values.astype("datetime64[us]")
        if values.dtype.kind == "M":
            values = (values - np.datetime64(0, "s")) / SECOND
        clock = as_float_array(values, "times", used.shape)
        if (np.diff(clock, prepend=clock[0] if begins else self._now) < 0).any():
            raise ValueError("times must not decrease, got a row that came before the one before it")
        return clock

    def _begin(self, x: FloatArray, targets: FloatArray) -> None:
        self.n_seen_, self._now = 0, -np.inf
        self._seed = int(self._generator().integers(2**31))
        empty = np.empty((0, x.shape[1])), np.empty((0, targets.shape[1])), np.empty(0), np.empty(0)
        self._store = RowStore(CodedRows(*empty))
        self._score_sum = self._score_weight = self._calibration_sum = self._calibration_weight = 0.0
        self._latest = RowStore(CodedRows(*empty))
        self._n_watched, self._n_outside, self._squares = 0, 0, 0.0
        self._n_learned, self._searched_at, self._moved_at = 0, 0, 0
        self._learn_at: list[int] = []
        self._lowest = self._highest = np.empty(0)
        self.calibration_scale_, self.mean_missing_variance_, self.features_ = 1.0, 0.0, None
        self.y_mean_, self.y_scale_ = targets[0].copy(), np.ones(targets.shape[1])
        self._regression = self._new_regression()

    def _learn_rows(self, rows: CodedRows, predict: bool) -> FloatArray:
        found = np.full((3, *rows.y.shape), np.nan)
        begin = 0
        while begin < len(rows):
            end = min(len(rows), begin + self._rows_at_once(len(rows) - begin, predict))
            part = rows[begin:end]
            moments = self._take(part, predict)
            if moments is not None and self.n_seen_ - len(part) >= 2:
                found[:, begin:end] = self._scored(*moments, part.y)
            self._after_rows()
            begin = end
        return found

    def _rows_at_once(self, n_rows: int, predict: bool) -> int:
        """Return after how many of so many more rows the feature map may change."""
        if self.n_seen_ < self.n_first_rows:
            steps = [step for step in self._steps() if step > self.n_seen_]
            if not predict:  # those between would be of no use to anybody
                steps = [step for step in steps if step <= self.n_seen_ + n_rows][-1:] or steps
            return steps[0] - self.n_seen_
        return WATCHED_ROWS - self.n_seen_ % WATCHED_ROWS if predict else LARGE_BLOCK

    def _steps(self) -> list[int]:
        """Return the numbers of rows at which the first rows are looked at again."""
        doubled = [2**k for k in range(1, 64) if 2**k < self.n_first_rows]
        return [1, *doubled, self.n_first_rows]

    def _after_rows(self) -> None:
        if self.n_seen_ <= self.n_first_rows:
            if self.n_seen_ in self._steps():
                self._learn_map()
        elif self.follow_inputs:
            if self._have_moved():
                self._moved_at = self.n_seen_
                self._learn_at = [self.n_seen_ + after for after in (0, self.n_first_rows // 4, self.n_first_rows)]
            if self._learn_at and self.n_seen_ >= self._learn_at[0]:
                self._learn_at = [n for n in self._learn_at if n > self.n_seen_]
                self._learn_map()

    def _take(self, rows: CodedRows, predict: bool) -> tuple[FloatArray, FloatArray] | None:
        """Add rows under one feature map; return mean and variance of standardised targets before each."""
        if not len(rows):
            return None
        small = len(rows) <= max(WATCHED_ROWS, self._regression.n_functions // 2)
        one_by_one = predict or (small and not self._regression.is_stale)
        block = self._block(rows, watch=True, sums_only=not one_by_one)
        decay = self._decay(rows.clock)
        leaving = n_left = None
        before = len(self._store)
        self._keep(rows)
        if self.window is not None:
            n_left = self._n_left(rows.clock, before)
            gone = self._store.leave(int(n_left[-1]))
            leaving = self._block(gone, sums_only=not one_by_one) if len(gone) else None
        moments = None
        if one_by_one:
            mean, variance = self._regression.predict_then_learn(block, decay, leaving, n_left)
            squares = (block.y - mean) ** 2 / variance
            self._squares += float(np.minimum(squares, LARGEST_SQUARE).mean(axis=1).sum())
            if self.n_seen_ < 2:  # their scale is not known yet
                squares[...] = 1.0
            calibrated = self._calibrated(np.minimum(squares, LARGEST_CALIBRATION).mean(axis=1))
            moments = mean, variance * calibrated[:, None]
        else:
            self._calibrated(np.ones(len(rows)))
            self._regression.learn(block, decay)
            if leaving is not None:
                self._regression.leave(leaving)
        self.n_seen_ += len(rows)
        self._now = float(rows.clock[-1])
        return moments if predict else None

    def _decay(self, clock: FloatArray) -> FloatArray | None:
        if self.half_life is None:
            return None
        ages = np.diff(clock, prepend=self._now if self.n_seen_ else clock[0])
        return np.exp2(-ages / seconds(self.half_life))

    def _n_left(self, clock: FloatArray, before: int) -> NDArray[np.intp]:
        """Return how many rows of the window have left when each new one has come."""
        came = before + 1 + np.arange(len(clock))
        if not is_time(self.window):
            return np.maximum(came - int(seconds(self.window)), 0)
        held = self._store.rows.clock
        return np.minimum(np.searchsorted(held, clock - seconds(self.window), side="right"), came - 1)
