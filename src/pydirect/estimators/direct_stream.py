"""`DirectStreamRegressor`: regression of a stream that forgets."""

from __future__ import annotations

import copy
import datetime
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import lfilter

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, as_flag, as_float_array, as_number, as_sample_weight
from pydirect.estimators._regressor import LARGEST_TARGET, ProbabilisticRegressor
from pydirect.estimators._row_store import PARTS, Codebook, CodedRows, RowStore, sample_places
from pydirect.estimators._tables import TableModel
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.basis import Basis
from pydirect.features.inputs import weighted_location_scale
from pydirect.features.maps import MANY_ROWS, NystroemFeatures, TransformerFeatures
from pydirect.persistence.fields import (
    Arrays,
    Header,
    Writer,
    build_one,
    require_array,
    require_float64,
    require_number,
    require_positive,
    require_type,
)
from pydirect.regression.adaptive import AdaptiveRegression, Block, with_constant
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.streams.tables import Table

# Rows at which the feature map is learned, until there are `n_first_rows`; with fewer there is a constant only.
FEWEST_ROWS = 8
# Rows after which it is seen whether the inputs have moved, and what share of them then lies outside of the range of
# those that the feature map was learned from: this, and twice what chance puts there.
WATCHED_ROWS, OUTSIDE = 128, 0.1
# Mean square of standardised errors of as many rows that tells of a function that has changed, and what a row counts at
# most.
SURPRISE, LARGEST_SQUARE = 2.0, 25.0
# Rows after which a squared error counts half in the factor of predictive variances, and rows of error one that count
# with them.
CALIBRATION_HALF_LIFE, CALIBRATION_ROWS = 50, 20
LARGEST_CALIBRATION = 400.0  # what the squared error of one row counts at most: twenty deviations
# Rows from which the kernel's hyperparameters are learned at most.
MOST_SEARCHED = 500
# Rows that are taken together when nothing is predicted.
LARGE_BLOCK = 4096
# Noise and prior variance of standardised targets until they are learned.
FIRST_NOISE, FIRST_PRIOR = 1.0, 1.0
# What is left of a row that has faded away.
LEAST_WEIGHT = 1e-30
# What else a file holds of where the stream stands, with its types.
PROGRESS = {
    "_now": float,
    "_learned_from": int,
    "_seed": int,
    "_score_sum": float,
    "_score_weight": float,
    "_calibration_sum": float,
    "_calibration_weight": float,
    "_n_watched": int,
    "_n_outside": int,
    "_squares": float,
    "_n_learned": int,
    "_searched_at": int,
    "_moved_at": int,
    "_learn_at": list,
}
LEAST_SHARE = 1e-6  # of the largest weight, where the feature map is learned
SECOND = np.timedelta64(1, "s")


class DirectStreamRegressor(TableModel, ProbabilisticRegressor):
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
    length_scale, categories, missing, n_threads, random_state, verbose
        As of `DirectRegressor`.

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
    """

    features_: Basis | None
    n_seen_: int
    _regression: AdaptiveRegression
    _store: RowStore
    _latest: RowStore
    _now: float

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
            given = _seconds(self.half_life) if _is_time(self.half_life) else self.half_life
            as_number(given, "half_life", above=0.0)
        if self.window is not None:
            if not _is_time(self.window):
                as_count(self.window, "window")
            elif not _seconds(self.window) > 0:
                raise ValueError(f"window must be a positive time, got {self.window!r}")
        self._new_mapper()._check_parameters()

    def _takes_tables(self) -> bool:
        return not (self.features == "precomputed" or not isinstance(self.features, str))

    def _needs_times(self) -> bool:
        return _is_time(self.half_life) or _is_time(self.window)

    def _new_mapper(self) -> DirectRegressor:
        """Return the regressor that learns the feature map."""
        return DirectRegressor(
            self.features,
            n_basis_functions=self.n_basis_functions,
            noise="constant",
            local=False,
            length_scale=self.length_scale,
            categories=self.categories,
            missing=self.missing,
            max_hyperparameter_rows=min(self.n_first_rows, MOST_SEARCHED),
            n_threads=self.n_threads,
            random_state=self.random_state,
        )

    # --- learning

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> Self:
        """Begin anew with rows in the order in which they came; arguments as of `partial_fit`.

        The feature map is learned from the first of them at once.
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
        y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts.
        times : array_like of shape (n_rows,), optional
            When each row came: seconds, or datetime64, not decreasing; required if `half_life` or `window` is a time.
        """
        self._learn(X, y, sample_weight, times, predict=False)
        return self

    def predict_then_learn(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Learn rows one after another, and return what was predicted for each before it was learned.

        Parameters
        ----------
        X, y, sample_weight, times
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
        X, y, sample_weight
            As they were learned.
        age : array_like of shape (n_rows,) or float, optional
            With a `half_life`, once there have been more than `n_first_rows` rows: how long ago each row came, in rows
            or seconds: 0 for the latest row.

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
                weight = weight * np.exp2(-ages / _seconds(self.half_life))
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
        if _is_time(self.half_life):
            share = float(np.exp2(-abs(ahead) / _seconds(self.half_life)))
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
        """Return a copy with the same feature map and hyperparameters that has learned no rows."""
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
        self.n_seen_, self._now, self._learned_from = 0, -np.inf, 0
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
        return np.exp2(-ages / _seconds(self.half_life))

    def _n_left(self, clock: FloatArray, before: int) -> NDArray[np.intp]:
        """Return how many rows of the window have left when each new one has come."""
        came = before + 1 + np.arange(len(clock))
        if not _is_time(self.window):
            return np.maximum(came - int(_seconds(self.window)), 0)
        held = self._store.rows.clock
        return np.minimum(np.searchsorted(held, clock - _seconds(self.window), side="right"), came - 1)

    def _keep(self, rows: CodedRows) -> None:
        """Keep the rows, or some of them."""
        if self.window is None and self.follow_inputs:
            self._latest.append(rows[-(self.n_first_rows // 2) :])
            self._latest.leave(max(len(self._latest) - self.n_first_rows // 2, 0))
        room = self.n_first_rows - len(self._store)
        if self.window is not None or len(rows) <= room:
            self._store.append(rows)
            return
        if room > 0:
            self._store.append(rows[:room])
            rows = rows[room:]
        size, first = len(self._store), self.n_seen_ + max(room, 0)
        n_samples = np.minimum(self._regression.n_samples + 1.0 + np.arange(len(rows)), self._most_samples())
        places = sample_places(self._seed, first, len(rows), size, size / n_samples)
        taken = np.flatnonzero(places >= 0)
        last = {int(places[i]): i for i in taken}
        self._store.replace(np.array([*last], dtype=np.intp), rows[np.array([*last.values()], dtype=np.intp)])

    def _most_samples(self) -> float:
        """Return the number of samples that forgetting leaves in the end."""
        if self.half_life is None or _is_time(self.half_life):
            return np.inf
        return float(1 / -np.expm1(-np.log(2) / _seconds(self.half_life)))

    def _add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far; they count once the feature map is learned again."""
        self.n_features_in_ += n_columns
        self._book.add_columns(n_columns)
        for store in (self._store, self._latest):
            store.add_columns(n_columns)

    # --- the feature map

    def _calibrated(self, squares: FloatArray) -> FloatArray:
        """Return the factor of each row's predictive variance, from squared standardised errors of the rows before it.

        It follows errors of the latest rows within tens of rows after a change, long before the noise variance does.
        """
        kept = 0.5 ** (1 / CALIBRATION_HALF_LIFE)
        before = np.array([self._calibration_sum, self._calibration_weight])
        sums, weights = (
            lfilter([1.0], [1.0, -kept], new, zi=[kept * own])[0]
            for new, own in zip((squares, np.ones(len(squares))), before, strict=True)
        )
        factors = (CALIBRATION_ROWS + np.append(before[0], sums)) / (CALIBRATION_ROWS + np.append(before[1], weights))
        self._calibration_sum, self._calibration_weight = float(sums[-1]), float(weights[-1])
        self.calibration_scale_ = float(np.sqrt(factors[-1]))
        return np.asarray(factors[:-1])

    def _block(self, rows: CodedRows, watch: bool = False, sums_only: bool = False) -> Block:
        """Return rows as inference sees them; `sums_only`: without what predictions take."""
        y = (rows.y - self.y_mean_) / self.y_scale_
        if self.features_ is None:
            phi = np.empty((len(rows), 0))
            return Block(phi, phi, y, rows.weight, np.zeros(len(y)))
        inputs = self.features_.inputs(self._encoded_codes(rows.x))
        if watch:
            self._n_watched += len(rows)
            outside = ((inputs < self._lowest) | (inputs > self._highest)).any(axis=1)
            self._n_outside += int((outside | ~np.isnan(rows.x[:, self.columns_.n_columns :]).all(axis=1)).sum())
        if sums_only:
            functions = self._summed(inputs)
            return Block(functions, functions, y, rows.weight, np.zeros(len(y)))
        functions, phi, missing = self._functions(inputs)
        return Block(functions, phi, y, rows.weight, missing)

    def _summed(self, inputs: FloatArray) -> FloatArray:
        """Return what is summed of rows at inputs of the map."""
        basis, n_threads = self.features_, resolve_n_threads(self.n_threads)
        assert basis is not None
        with single_blas_thread():
            functions = np.ascontiguousarray(basis.functions(inputs, n_threads))
            return functions if basis.sums_of_kernel else np.ascontiguousarray(basis.whitened(functions))

    def _encoded_codes(self, x: FloatArray) -> FloatArray:
        """Return rows of numbers and codes as the feature map takes them."""
        x = x[:, : self.columns_.n_columns]
        return self.columns_.encode(x if self._book.is_numeric else self._book.table(x))

    def _functions(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what is summed, Φ and the share of the prior variance that Φ misses, at inputs of the map."""
        basis, n_threads = self.features_, resolve_n_threads(self.n_threads)
        assert basis is not None
        with single_blas_thread():
            functions = phi = np.ascontiguousarray(basis.functions(inputs, n_threads))
            if isinstance(basis.map, NystroemFeatures):
                phi = np.ascontiguousarray(basis.whitened(functions.copy()))
        missing = basis.missing_variance(inputs, phi, self.mean_missing_variance_)
        missing = np.zeros(len(phi)) if missing is None else missing
        return functions if basis.sums_of_kernel else phi, phi, missing

    def _have_moved(self) -> bool:
        """Whether the latest rows lie outside of those that the map was learned from, or are far from predictions."""
        if self._n_watched < WATCHED_ROWS:
            return False
        n_outside, square = self._n_outside / self._n_watched, self._squares / self._n_watched
        self._n_watched, self._n_outside, self._squares = 0, 0, 0.0
        if (
            self.features_ is None
            or self.features_.hyperparameters is None
            or self.n_seen_ < self._moved_at + self.n_first_rows
        ):
            return False
        expected = 2 * len(self._lowest) / (self._n_learned + 1)
        return n_outside > OUTSIDE + 2 * expected or square > SURPRISE

    def _holds_all(self) -> bool:
        """Whether all rows that count are kept."""
        return self.window is not None or self.n_seen_ <= self.n_first_rows

    def _rows_now(self, store: RowStore) -> CodedRows:
        """Return rows with what is left of their weights."""
        rows = store.rows
        if self.half_life is None:
            return rows
        left = np.exp2((rows.clock - self._now) / _seconds(self.half_life))
        return CodedRows(rows.x, rows.y, np.maximum(left, LEAST_WEIGHT) * rows.weight, rows.clock)

    def _learn_map(self) -> None:
        """Learn the feature map from the rows that are kept, and the sums of the rows in its terms."""
        rows = self._rows_now(self._store)
        if len(rows) < FEWEST_ROWS:
            self.y_mean_, scale = weighted_location_scale(rows.y, rows.weight)
            self.y_scale_ = np.where(scale > 0, scale, 1.0)
            self._regression = self._new_regression()
            self._regression.learn(self._block(rows))
        elif self._holds_all():
            self._set_map(rows)
            self._regression.learn(self._block(rows))
        else:
            self._carry_over(rows, self._rows_now(self._latest))
        self._learned_from = self.n_seen_

    def _carry_over(self, sample: CodedRows, latest: CodedRows) -> None:
        """Learn the feature map from a sample and the latest rows, and give it what the present one has learned.

        The latest rows are learned as they are. All others are replaced by the rows of the sample, with the weight of
        all and the posterior mean as their target, and by what the targets varied about it.
        """
        before = self._regression
        mean = self.y_mean_ + self.y_scale_ * before.mean(self._block(sample).phi)
        n_before = max(before.n_samples - float(latest.weight.sum()), 0.0)
        squares = n_before * self._mean_noise_variance() * self.y_scale_**2
        self._set_map(CodedRows(*(np.concatenate([getattr(own, n) for own in (sample, latest)]) for n in PARTS)))
        weight = sample.weight * (n_before / sample.weight.sum())
        if n_before > 0:
            self._regression.learn(self._block(CodedRows(sample.x, mean, weight, sample.clock)))
            self._regression.add_squares(squares / self.y_scale_**2)
        self._regression.learn(self._block(latest))

    def _set_map(self, rows: CodedRows) -> None:
        """Learn the feature map from rows, and begin a regression without rows."""
        if len(rows) > 2 * self.n_first_rows:
            rows = rows[np.linspace(0, len(rows) - 1, 2 * self.n_first_rows).astype(np.intp)]
        # Rows that have all but faded still tell where inputs lie; their ranks would be infinite otherwise.
        weight = np.maximum(rows.weight, LEAST_SHARE * rows.weight.max())
        mapper, weight = self._new_mapper(), None if (weight == 1).all() else weight
        if self.features_ is not None and self.n_seen_ < self.n_first_rows and self.n_seen_ < 3 * self._searched_at:
            mapper._earlier = self.features_
        else:
            self._searched_at = self.n_seen_
        table: Any = self._book.table(rows.x)
        mapper.fit(table, rows.y[:, 0] if self._one_dimensional else rows.y, weight)
        self.features_ = mapper.features_.for_sums(MANY_ROWS)
        self.columns_, self.mean_missing_variance_ = mapper.columns_, mapper.mean_missing_variance_
        self.y_mean_, self.y_scale_ = mapper.y_mean_, mapper.y_scale_
        inputs = self.features_.inputs(self.columns_.encode(table))
        self._lowest, self._highest, self._n_learned = inputs.min(axis=0), inputs.max(axis=0), len(rows)
        self._n_watched, self._n_outside, self._squares = 0, 0, 0.0
        noise = np.array([posterior.noise.variance for posterior in mapper.posteriors_])
        self._regression = self._new_regression(noise, mapper.prior_scale_**2)

    def _new_regression(self, noise: FloatArray | None = None, prior: FloatArray | None = None) -> AdaptiveRegression:
        k, basis = len(self.y_mean_), self.features_
        return AdaptiveRegression(
            0 if basis is None else basis.n_weights,
            np.full(k, FIRST_NOISE) if noise is None else noise,
            np.full(k, FIRST_PRIOR) if prior is None else prior,
            self.window is not None,
            self._whitening(),
        )

    def _whitening(self) -> FloatArray | None:
        return self.features_.whitening if self.features_ is not None and self.features_.sums_of_kernel else None

    # --- scores

    def _scored(self, mean: FloatArray, variance: FloatArray, y: FloatArray) -> FloatArray:
        """Return means, deviations and log densities in y's units, and count the last."""
        mean, std = self.y_mean_ + self.y_scale_ * mean, self.y_scale_ * np.sqrt(variance)
        log_density = -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
        kept = 0.5 ** (1 / self._memory())
        shares = kept ** np.arange(len(y))[::-1]
        self._score_sum = kept ** len(y) * self._score_sum + float(shares @ log_density.sum(axis=1))
        self._score_weight = kept ** len(y) * self._score_weight + float(shares.sum())
        return np.stack([mean, std, log_density])

    def _memory(self) -> float:
        for own in (self.half_life, self.window):
            if own is not None and not _is_time(own):
                return _seconds(own)
        return float(self.n_first_rows)

    @property
    def log_score_(self) -> float:
        """Mean log density of the latest targets before they were learned."""
        self._require_fitted()
        return self._score_sum / self._score_weight if self._score_weight else np.nan

    # --- results

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_regression")

    @property
    def posteriors_(self) -> list[Any]:  # type: ignore[override]
        """Posteriors of the weights of `features_` and of a constant, standardised, one per output."""
        self._require_fitted()
        return self._regression.posteriors

    @property
    def n_samples_(self) -> float:  # type: ignore[override]
        """Sum of the weights of the rows as they count now."""
        self._require_fitted()
        return self._regression.n_samples

    @property
    def noise_variance_(self) -> float | FloatArray:  # type: ignore[override]
        """Noise variance in squared units of y."""
        noise = self._mean_noise_variance() * self.y_scale_**2
        return float(noise[0]) if self._one_dimensional else noise

    @property
    def statistics_(self) -> GaussianStatistics:
        """Sums of the rows as they count now, of `features_` and a constant, and of standardised targets."""
        self._require_fitted()
        return self._regression.statistics()

    def _mean_noise_variance(self) -> FloatArray:
        return np.array([posterior.noise_variance for posterior in self.posteriors_])

    def _noise_of(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        return [(np.ones(1), np.full((len(rows), 1), noise)) for noise in self._mean_noise_variance()]

    def _drawn_noise(self, x: FloatArray, output: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return np.full((1, n_samples), self._mean_noise_variance()[output])

    def _n_columns(self) -> int:
        return self._regression.n_functions + 1

    def _encoded(self, x: Any) -> FloatArray:
        if self.features_ is None:
            return np.empty((len(x), 0))
        known = self.columns_.n_columns
        if isinstance(x, Table):
            return self.columns_.encode(x if x.shape[1] == known else Table(x.columns[:known]))
        return self.columns_.encode(np.ascontiguousarray(x[:, :known]))

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        phi, missing = np.empty((len(rows), 0)), np.zeros(len(rows))
        if self.features_ is not None:
            _, phi, missing = self._functions(self.features_.inputs(rows))
        if not with_variance:
            return self._regression.mean(phi), None
        return self._regression.moments(phi, missing)

    def _sampler(self, n_samples: int, rng: np.random.Generator) -> Any:
        weights = [own.sample_weights(n_samples, rng) for own in self._regression.posteriors]

        def draw(rows: FloatArray) -> FloatArray:
            phi = np.empty((len(rows), 0))
            if self.features_ is not None:
                _, phi, _ = self._functions(self.features_.inputs(rows))
            return np.stack([with_constant(phi) @ own.T for own in weights], axis=1)

        return draw

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        if self.features_ is not None and isinstance(self.features_.map, TransformerFeatures):
            raise TypeError("features must be built in to be saved without pickle, got a transformer: pickle the model")
        for store, name in ((self._store, "store"), (self._latest, "latest")):
            writer.arrays |= {f"{name}.{part}": getattr(store.rows, part) for part in PARTS}
        writer.arrays |= {"y_mean": self.y_mean_, "y_scale": self.y_scale_}
        writer.arrays |= {"lowest": self._lowest, "highest": self._highest}
        return {
            "one_dimensional": self._one_dimensional,
            "n_features_in": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
            "calibration_scale": self.calibration_scale_,
            "mean_missing_variance": self.mean_missing_variance_,
            "n_seen": self.n_seen_,
            "values": self._book.values,
            "numeric": self._book.numeric.tolist(),
            "names": self._book.names,
            "progress": {name: getattr(self, name) for name in PROGRESS},
            "regression": self._regression.to_fields("regression", writer.arrays),
            "features": None if self.features_ is None else writer.fields(self.features_, "features"),
        }

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        self._check_parameters()
        self.metadata_ = header["metadata"]
        require_type(self.metadata_, "metadata", dict)
        d = as_count(header["n_features_in"], "n_features_in")
        self._set_input_names(d, header["feature_names"] or None)
        self._one_dimensional = as_flag(header["one_dimensional"], "one_dimensional")
        self.y_mean_, self.y_scale_ = arrays["y_mean"], arrays["y_scale"]
        k = len(require_array(self.y_mean_, "y_mean", "n_outputs"))
        require_positive(self.y_scale_, "y_scale", k)
        self.calibration_scale_ = require_number(header["calibration_scale"], "calibration_scale", above=0.0)
        self.mean_missing_variance_ = require_number(header["mean_missing_variance"], "missing", at_least=0.0)
        self.n_seen_ = as_count(header["n_seen"], "n_seen", 0)
        for name, kind in PROGRESS.items():
            require_type(header["progress"][name], name, kind)
            setattr(self, name, header["progress"][name])
        self._book = Codebook(header["names"], header["values"], np.array(header["numeric"], dtype=bool))
        self._store, self._latest = (_stored(arrays, name, d, k) for name in ("store", "latest"))
        self.features_ = None
        if header["features"] is not None:
            self.features_ = build_one((Basis,), header["features"], arrays, "features")
            if self.features_.columns is None or self.features_.columns.n_columns > d:
                raise ValueError("features do not take the columns")
            self.columns_ = self.features_.columns
        n_functions = 0 if self.features_ is None else self.features_.n_weights
        n_inputs = 0 if self.features_ is None else self.features_.input_map.n_outputs
        self._lowest, self._highest = arrays["lowest"], arrays["highest"]
        for name in ("lowest", "highest"):
            require_array(arrays[name], name, n_inputs) if n_inputs else require_float64(arrays[name], name)
        self._regression = AdaptiveRegression.from_fields(
            header["regression"],
            arrays,
            "regression",
            n_functions,
            k,
            sliding=self.window is not None,
            whitening=self._whitening(),
        )

    def _set_results(self) -> None:
        """Nothing follows from the parts that is not computed when asked for."""


def _stored(arrays: Arrays, name: str, n_columns: int, n_outputs: int) -> RowStore:
    x, y, weight, clock = (arrays[f"{name}.{part}"] for part in PARTS)
    require_float64(x, name)
    if x.shape != (len(weight), n_columns) or y.shape != (len(weight), n_outputs) or clock.shape != weight.shape:
        raise ValueError(f"{name} must be rows of {n_columns} columns and {n_outputs} outputs")
    return RowStore(CodedRows(x, y, weight, clock))


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime.timedelta | np.timedelta64)


def _seconds(value: Any) -> float:
    """Return a time in seconds, and any other value as it is."""
    if isinstance(value, np.timedelta64):
        return float(value / SECOND)
    return float(value.total_seconds()) if isinstance(value, datetime.timedelta) else float(value)
