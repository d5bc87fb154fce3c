"""`DirectStreamRegressor`: rows one by one, in a world that drifts; `OpenRows` leaves single ones to compiled code."""

from __future__ import annotations

import copy
import datetime
import math
import threading
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._documentation import described_by, takes_rows
from pydirect._validation import FloatArray, as_count, as_flag, as_float_array, as_number, as_sample_weight
from pydirect.estimators._estimator import Estimator, of_model, warn_of_values
from pydirect.estimators._regressor import Regressor
from pydirect.estimators.choices import Gaussian, RegressionPlan, check_common, feature_plan
from pydirect.estimators.stream import (
    CALIBRATION_KEPT,
    CALIBRATION_ROWS,
    FEWEST_DEGREES,
    FEWEST_ROWS,
    GROSS,
    GROSS_SCALES,
    LARGEST_CALIBRATION,
    LARGEST_SQUARE,
    WATCHED_ROWS,
    Stream,
    StreamPlan,
)
from pydirect.estimators.summary import lines_of_stream
from pydirect.estimators.target_transform import as_scales, given_transform
from pydirect.features.inputs import LARGEST
from pydirect.fitted.predictor import LARGEST_TARGET, check_target_size
from pydirect.predictive.gaussian_mixture import student_factors
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.running import WindowSum
from pydirect.tables.buffer import Codebook, CodedRows

_SUMS = ("score_sum", "score_weight", "calibration_sum", "calibration_weight")


@dataclass
class OpenRows:
    """Rows that a stream does not know until `close`, though they change its posterior and sums in place.

    - `taken`: rows as they came, x, y, weights, clock and the number of samples before each.
    - `n_left`: number of rows that may come.
    """

    stream: Stream
    rows: _core.RowStream
    taken: list[FloatArray]
    n_left: int
    decay: float
    now: float

    @classmethod
    def of(cls, stream: Stream) -> Self | None:
        """Return what takes the next few rows; None where the stream itself has to."""
        basis, units, plan, n_columns = stream.basis, stream.units, stream.plan, len(stream.book.values)
        if basis is None or basis.hyperparameters is None or basis.map.residual_kernel is None:  # of compiled code
            return None
        plain = stream.book.holds_numbers and stream.columns.is_plain and stream.columns.n_columns == n_columns
        if not plain or units.n_outputs > 1 or units.active is not None:
            return None
        decay = 1.0 if plan.half_life is None else math.exp2(-1 / plan.half_life)
        n_left, arrays, numbers = stream.regression.lend(stream.rows_at_once(WATCHED_ROWS, True), decay)
        if not n_left:
            return None
        inputs, degrees = basis.input_map, float(stream.regression.degrees[0])
        others, weights, isotropic, products, amplitudes, reach, smoothness = basis.map.panels.arguments
        taken = [np.empty((n_left, n_columns)), *np.empty((4, n_left))]
        numbers |= {name: getattr(stream, name) for name in _SUMS} | {
            "n_left": n_left,
            "largest": LARGEST,
            "largest_input": basis.largest_input,
            "isotropic_weight": isotropic,
            "linear_reach": reach,
            "twice_smoothness": smoothness,
            "of_pairs": basis.map.panels.of_pairs,
            "sums_of_kernel": basis.sums_of_kernel,
            "mean_missing": stream.residual_variance,
            "location": units.location[0],
            "scale": units.scale[0],
            "score_kept": plan.score_kept,
            "calibration_kept": CALIBRATION_KEPT,
            "calibration_rows": CALIBRATION_ROWS,
            "largest_watched": LARGEST_SQUARE,
            "largest_calibration": LARGEST_CALIBRATION,
            "gross": GROSS if degrees >= FEWEST_DEGREES else np.inf,
            "gross_scales": GROSS_SCALES,
        }
        rows = _core.RowStream(
            [inputs.mean, inputs.scale, inputs.knots, inputs.scores],
            [inputs.kept, inputs.scored],
            [others, weights, products, amplitudes, np.ascontiguousarray(basis.map.whitening.T)],
            arrays["covariance"],
            [*arrays["posterior"], *student_factors(degrees)],
            arrays["sums"],
            taken,
            [stream.lowest, stream.highest],
            numbers,
        )
        return cls(stream, rows, taken, n_left, decay, stream.now)

    @property
    def is_full(self) -> bool:
        """Whether no more rows may come."""
        return bool(self.rows.n_rows == self.n_left)

    def learn(self, x: FloatArray, y: float) -> Any:
        """Predict a row, then learn it: mean, deviation and log density; None if the stream has to take it."""
        found = self.rows.learn(x, y, 1.0, self.decay, self.now + 1)
        if found is not None:
            self.now += 1
        return found

    def close(self) -> None:
        """Let the stream go on after these rows."""
        stream, rows, n = self.stream, self.rows, self.rows.n_rows
        if not n:
            return
        stream.regression.take_back(rows)
        for name in _SUMS:
            setattr(stream, name, getattr(rows, name))
        stream.calibrate()
        stream.gross, stream.now = stream.gross[:0], self.now
        x, y, weight, clock, n_samples = (part[:n] for part in self.taken)
        stream.keep(CodedRows(x, y[:, None], weight, clock), n_samples)
        stream.n_seen, stream.squares = stream.n_seen + n, stream.squares + rows.squares
        stream.n_watched, stream.n_outside = stream.n_watched + n, stream.n_outside + int(rows.n_outside)
        if self.is_full:
            stream.after_rows()


# Rows from which the kernel's hyperparameters are learned at most.
MOST_SEARCHED = 500
SECOND = np.timedelta64(1, "s")
_OPENING = threading.RLock()


@described_by(Estimator)
@dataclass(eq=False, repr=False)
class DirectStreamRegressor(Regressor):
    """Bayesian regression of a stream of rows that learns row by row and forgets.

    Parameters
    ----------
    features : str, Nystroem, Fourier, Polynomial or transformer, default="auto"
        As of `DirectRegressor`.
    n_basis_functions : int, default=500
        Largest number of basis functions; the time of a row grows with its square.
    half_life : float or timedelta, optional
        Number of rows, or time, after which a row counts half: exponential forgetting. By default all rows count fully.
    window : int or timedelta, optional
        Number of the latest rows, or time before the latest row, that count; not with `half_life`.
    n_first_rows : int, default=1000
        Rows from which the feature map is learned. Until there are so many all of them are kept, and the map is learned
        at 8, 16, 32, ... rows, each time without loss.
    follow_inputs : bool, default=True
        Whether the feature map is learned again when the inputs have moved.
    target_transform : str, TargetScale, TargetTransform, transformer, list of them or None, default=None
        The scale on which y is modelled, as of `DirectRegressor` but for ``"auto"`` and the same for all rows.
        What a name or a transformer learns from targets it learns from all rows of the first call.
    random_state : int, RandomState or None, default=0
        Seed of landmarks and frequencies.

    Attributes
    ----------
    features_ : Basis or None
        Feature map; None while there are too few rows.
    n_seen_ : int
        Number of rows so far.
    sparsity_ : float
        0: weights are continuous.
    total_weight_ : float
        Sum of the weights of the rows as they count now.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        In squared units of y.
    log_score_ : float
        Mean log density of targets before they were learned, by `predict_then_learn`; of the latest rows, exponentially
        weighted with `half_life`, or `window` or `n_first_rows` in its place.
    posterior_ : RecursivePosterior
        Posterior of the weights of `features_` and of a constant, standardised; a list of them for several outputs.
    posteriors_ : list of RecursivePosterior
        `posterior_` as a list, one per output.
    model_ : Stream
        The state of the stream: what pickles and files hold.
    statistics_ : GaussianStatistics
        Sums of the rows as they count now, of `features_` and a constant, and of standardised targets.
    columns_ : ColumnEncoding
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

    features: Any = "auto"
    n_basis_functions: int = 500
    half_life: float | datetime.timedelta | None = None
    window: int | datetime.timedelta | None = None
    n_first_rows: int = 1000
    follow_inputs: bool = True
    target_transform: Any = None

    _stored: ClassVar = {"model_": Stream}
    _stream: Stream = field(init=False)
    _open: OpenRows | None = field(init=False, default=None)

    # --- the stream, and rows that it does not know yet

    @property  # type: ignore[misc]
    def model_(self) -> Stream:
        if self._open is not None:
            with _OPENING:  # other threads wait for the whole
                if self._open is not None:
                    self._open.close()
                    self._open = None
        return self._stream

    @model_.setter
    def model_(self, stream: Stream) -> None:
        self._stream, self._open = stream, None

    def __sklearn_is_fitted__(self) -> bool:
        return "_stream" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        if self.__sklearn_is_fitted__():
            self.model_  # noqa: B018 - knows all rows then
        return dict(super().__getstate__())

    def _begin(self) -> None:
        super()._begin()
        self.__dict__.pop("_stream", None)
        self._open = None

    def _opened(self) -> OpenRows | None:
        """Return what takes single rows; None where the stream has to."""
        if self._open is None:
            with self._threads(), _OPENING:
                self._open = OpenRows.of(self.model_)
        return self._open

    # --- parameters

    @property
    def _forgetting(self) -> tuple[Any, ...]:
        return self.half_life, self.window, self.n_first_rows, self.follow_inputs

    def _plan(self) -> StreamPlan:
        as_count(self.n_first_rows, "n_first_rows", FEWEST_ROWS)
        as_flag(self.follow_inputs, "follow_inputs")
        if self.half_life is not None and self.window is not None:
            raise ValueError("window must be None with a half_life: rows fade or leave")
        half_life, window = _rows_or_seconds(self.half_life), _rows_or_seconds(self.window)
        if half_life is not None:
            as_number(half_life, "half_life", above=0.0)
        if self.window is not None and not is_time(self.window):
            as_count(self.window, "window")
        elif window is not None and not window > 0:
            raise ValueError(f"window must be a positive time, got {self.window!r}")
        features, block_dtype = feature_plan(self, Gaussian(), rank_inputs=True)
        check_common(self)
        features = replace(features, max_search_rows=min(self.n_first_rows, MOST_SEARCHED, features.max_search_rows))
        if self.target_transform == "auto":
            raise ValueError("target_transform must be None or a scale for streams, got 'auto', which needs all rows")
        as_scales(self.target_transform)
        options: dict[str, Any] = {"block_dtype": block_dtype, "random_state": self.random_state}
        mapper = RegressionPlan(features, Gaussian(), noise="constant", local=None, **options)
        columns, forgotten = (self._column_options(), self._takes_tables()), (half_life, window, self._by_time)
        return StreamPlan(mapper, *columns, *forgotten, self.n_first_rows, self.follow_inputs, self._forgetting)

    @property
    def _by_time(self) -> bool:
        return is_time(self.half_life) or is_time(self.window)

    def _restored(self) -> None:
        stream, stream.plan = self._stream, self._plan()
        if len(stream.book.values) != self.n_features_in_:
            raise ValueError(f"book must be of {self.n_features_in_} columns")
        if isinstance(stream.regression.sums, WindowSum) != (self.window is not None):
            raise ValueError("sums must be those of a window, with window, and only then")
        copy.deepcopy(stream.regression).current()  # raises where sums are of no rows

    def _followed(self) -> Stream:
        """The stream, with what the parameters say now: how rows are forgotten may change as they come."""
        stream = self.model_
        if self._forgetting != stream.plan.parameters:
            if (stream.plan.window is None) != (self.window is None):
                raise ValueError("window must be given from the first row on: fit anew to change it")
            stream.plan = self._plan()
        return stream

    # --- learning

    @takes_rows
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> Self:
        """Begin anew with rows in the order in which they came; arguments as of `partial_fit`.

        The feature map is learned from the first of them at once.

        Parameters
        ----------
        times : array_like of shape (n_rows,), optional
            Times of the rows, which never fall.

        Returns
        -------
        Self
            The model itself.
        """
        fresh = copy.copy(self)  # what is refused leaves the stream as it is
        fresh._begin()
        fresh._take(X, y, sample_weight, times, at_once=True)
        self.__dict__ = fresh.__dict__
        return self

    @takes_rows
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> Self:
        """Learn from more rows, in the order in which they came.

        Parameters
        ----------
        times : array_like of shape (n_rows,), optional
            When each row came: seconds, or datetime64, not decreasing; required if `half_life` or `window` is a time.

        Returns
        -------
        Self
            The model itself.
        """
        if self._learned_one(X, y, sample_weight, times) is None:
            self._take(X, y, sample_weight, times)
        return self

    @takes_rows
    def predict_then_learn(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Learn rows one after another, and return what was predicted for each before it was learned.

        Parameters
        ----------
        times : array_like of shape (n_rows,), optional
            As of `partial_fit`.

        Returns
        -------
        mean, std, log_density : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Of the target: mean and standard deviation, noise included, and log density of what it turned out to be.
            NaN for the first two rows ever.

        Warns
        -----
        TargetWarning
            If targets miss their predictions by 20 deviations, and by ten of all targets: the first two of such rows in
            succession are learned as if they missed them by that.
        """
        one = self._learned_one(X, y, sample_weight, times)
        if one is not None:
            return np.array(one[:1]), np.array(one[1:2]), np.array(one[2:])
        found = self._take(X, y, sample_weight, times, predict=True)
        mean, std, log_density = map(self._units.shape, found)
        return mean, std, log_density

    def predict_one(self, x: FloatArray) -> tuple[Any, Any]:
        """Predict one row: as `predict`, but for rounding, and faster.

        Parameters
        ----------
        x : ndarray of shape (n_features_in,)
            A row of inputs.

        Returns
        -------
        (float, float)
            Mean and standard deviation of its target, noise included; arrays of shape (n_outputs,) of several.
        """
        rows = np.asarray(x)[None]
        if rows.ndim != 2:
            raise ValueError(f"x must have shape (n_features_in,), got {type(x).__name__} of shape {rows.shape[1:]}")
        opened = self._opened() if self._is_one(rows) else None
        found = None if opened is None else opened.rows.predict(rows)
        if found is None:
            mean, std = self.predict(rows, return_std=True)
            return (mean[0], std[0]) if mean.ndim > 1 else (float(mean[0]), float(std[0]))
        return found[:2]

    def _is_one(self, X: Any) -> bool:
        """Whether X is a single row for compiled code, and nothing has changed that it does not know of."""
        own = vars(self)
        return (
            type(X) is np.ndarray
            and "_stream" in own
            and X.shape == (1, self.n_features_in_)
            and X.dtype == np.float64
            and X.flags.c_contiguous
            and "feature_names_in_" not in own
            and self._stream.plan.parameters == self._forgetting
        )

    def _learned_one(self, X: Any, y: Any, sample_weight: Any, times: Any) -> tuple[float, float, float] | None:
        """Learn a single row of numbers in compiled code; None if it takes more."""
        if sample_weight is not None or times is not None or is_time(self.half_life) or not self._is_one(X):
            return None
        if type(y) not in (np.ndarray, list) or len(y) != 1 or not isinstance(y[0], float):
            return None
        opened = self._opened() if abs(y[0]) <= LARGEST_TARGET else None
        if opened is None:
            return None
        found: tuple[float, float, float] | None = opened.learn(X, float(y[0]))
        if opened.is_full:
            with self._threads():
                self.model_  # noqa: B018 - goes on after the rows
        return found

    def _take(self, X: ArrayLike, y: ArrayLike, sample_weight: Any, times: Any, **how: bool) -> FloatArray:
        """Learn from rows as `Stream.learn` does."""
        begins = not self.__sklearn_is_fitted__()
        plan = self._plan() if begins else self._followed().plan
        book = Codebook() if begins else self.model_.book
        x, targets, weight, one_dimensional = self._checked_block(X, y, sample_weight, book, begins)
        used = weight > 0
        clock = self._checked_times(times, used, begins)
        transform = given_transform(self.target_transform, targets) if begins else self._units.transform
        targets = targets if transform is None else transform.forward(targets)
        found = np.full((3, *targets.shape), np.nan)
        with self._threads():
            stream = Stream.of(plan, x, targets, one_dimensional, book, transform) if begins else self.model_
            found[:, used] = stream.learn(CodedRows(x[used], targets[used], weight[used], clock[used]), **how)
        self.model_ = stream
        return found

    def _checked_block(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, book: Codebook, begins: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray, bool]:
        """Validate rows: numbers and codes, targets (n_rows, n_outputs), weights, and whether y is a vector."""
        x = self._valid_matrix(X) if book.holds_numbers else None
        if x is not None and type(y) is np.ndarray and y.dtype == np.float64:  # takes a tenth of the time
            targets, weight = self._check_targets(y, len(x)), as_sample_weight(sample_weight, len(x), all_zero=True)
            one_dimensional = y.ndim == 1
            check_target_size(np.abs(targets).max())
        else:
            table, targets, weight, one_dimensional = self._read_targets(X, y, sample_weight, more=not begins)
            if begins:
                book.names = table.names
            elif targets.shape[1] != self._units.n_outputs:
                raise ValueError(f"y must have {self._units.n_outputs} outputs, as before, got {targets.shape[1]}")
            x = book.coded(table)
        return x, targets, np.ones(len(x)) if weight is None else weight, one_dimensional

    def _checked_times(self, times: ArrayLike | None, used: NDArray[np.bool_], begins: bool) -> FloatArray:
        """Return the clock of rows: their numbers, or times in seconds."""
        if not self._by_time:
            if times is not None:
                raise ValueError("times must be None unless half_life or window is a time")
            return np.asarray(np.cumsum(used) + (-1.0 if begins else self._stream.now), dtype=np.float64)
        if times is None:
            raise ValueError("times must be given where half_life or window is a time")
        values = np.asarray(times)
        if values.dtype == object:  # of the standard library's datetime
            values = values.astype("datetime64[us]")
        if values.dtype.kind == "M":
            values = (values - np.datetime64(0, "s")) / SECOND
        clock = as_float_array(values, "times", used.shape)
        if (np.diff(clock, prepend=clock[0] if begins else self._stream.now) < 0).any():
            raise ValueError("times must not decrease, got a row that came before the one before it")
        return clock

    def encode_rows(self, X: ArrayLike) -> FloatArray:
        self._require_fitted()
        values = self._valid_matrix(X)
        if values is None:
            values = self._validated(X, reset=False)
            if self.features_ is not None and self.columns_.n_columns == self.n_features_in_:
                warn_of_values(self.columns_, values)
        return self.model_.encode(values)

    def add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far.

        Parameters
        ----------
        n_columns : int
            Number of new columns; they count once the feature map is learned again.
        """
        self._require_fitted()
        self.n_features_in_ += n_columns
        self.model_.add_columns(n_columns)

    # --- results

    features_ = of_model("basis")
    columns_ = of_model("columns")
    mean_missing_variance_ = of_model("residual_variance")
    n_seen_ = of_model("n_seen")
    log_score_ = of_model("log_score")

    @property
    def statistics_(self) -> GaussianStatistics:
        return self.model_.regression.statistics()

    def _words(self) -> list[str]:
        return lines_of_stream(self)


def is_time(value: Any) -> bool:
    """Whether a value is a duration, rather than a number of rows."""
    return isinstance(value, datetime.timedelta | np.timedelta64)


def _rows_or_seconds(value: Any) -> Any:
    """Seconds of a time, or a number of rows as it is."""
    if isinstance(value, np.timedelta64):
        return float(value / SECOND)
    return value.total_seconds() if isinstance(value, datetime.timedelta) else value
