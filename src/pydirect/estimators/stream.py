"""`Stream`: where a stream of rows stands, what it keeps of them, the feature map that it learns again as they move."""

from __future__ import annotations

import datetime
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect import _core
from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect._warnings import ignored, level_of_user, warn
from pydirect.estimators.choices import RegressionPlan
from pydirect.estimators.regression import GivenRows, fit_together
from pydirect.features.basis import Basis
from pydirect.features.inputs import LARGEST
from pydirect.features.maps import MANY_ROWS
from pydirect.fitted.predictor import Predictor, Units
from pydirect.linear.adaptive import AdaptiveRegression, Block, with_constant
from pydirect.noise.student_t import FEWEST_PER_OUTLIER, TargetWarning, within_reach
from pydirect.persistence.schema import AtLeast, Binds, Shape
from pydirect.predictive.gaussian_mixture import PredictiveDistribution, student_factors
from pydirect.predictive.transformed import TargetTransform
from pydirect.statistics.gaussian import weighted_location_scale
from pydirect.statistics.running import faded_sums
from pydirect.tables.buffer import PARTS, Codebook, CodedRows, RowBuffer, SavedRows, sample_places
from pydirect.tables.columns import Columns, TableWarning
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table

# Rows at which the feature map is learned, until there are `n_first_rows`; with fewer there is a constant only.
FEWEST_ROWS = 8
# Rows after which it is seen whether the inputs have moved, and what share of them then lies outside of the range of
# those that the feature map was learned from: this, and twice what chance puts there.
WATCHED_ROWS, OUTSIDE = 128, 0.1
# Mean square of standardised errors of as many rows that tells of a function that has changed, and what a row counts at
# most.
SURPRISE, LARGEST_SQUARE = 2.0, 25.0
# Noise and prior variance of standardised targets until they are learned.
FIRST_NOISE, FIRST_PRIOR = 1.0, 1.0
# What is left of a row that has faded away.
LEAST_WEIGHT = 1e-30
LEAST_SHARE = 1e-6  # of the largest weight, where the feature map is learned
# Rows after which a squared error counts half in the factor of predictive variances, and rows of error one that count
# with them.
CALIBRATION_KEPT, CALIBRATION_ROWS = 0.5 ** (1 / 50), 20
# A target that misses by more than so many deviations of its prediction, and by more than so many of all targets, is
# gross, and learned as if it missed by so many deviations; not before the noise has as many degrees of freedom. So many
# gross ones in a row that miss by the same, to this factor, are a level that has moved; from so many in a row on they
# are learned as they are.
GROSS, GROSS_SCALES, FEWEST_DEGREES, OF_A_LEVEL, ALIKE, MOST_GROSS = 20.0, 10.0, 8, 3, 2.0, 6
LARGEST_CALIBRATION = GROSS**2  # what a squared error that is not gross counts at most in that factor
# What compiled code holds while it takes rows, and `Stream` gets back.
LENT = ("regression", "store", "latest", "units", "n_seen", "now", "n_watched", "n_outside", "squares", "gross")
LENT_SUMS = ("score_sum", "score_weight", "calibration_sum", "calibration_weight")
_LENDING = threading.RLock()
# Rows that are taken together when nothing is predicted.
LARGE_BLOCK = 4096
SECOND = np.timedelta64(1, "s")


@dataclass(frozen=True)
class StreamPlan:
    """What a stream's parameters ask for, checked: `mapper` learns the feature map, forgetting is by rows or time."""

    mapper: RegressionPlan
    columns: Columns
    takes_tables: bool
    half_life: float | datetime.timedelta | None
    window: int | datetime.timedelta | None
    n_first_rows: int
    follow_inputs: bool

    @property
    def forgetting(self) -> tuple[Any, ...]:
        return self.half_life, self.window, self.n_first_rows, self.follow_inputs


_Count = Annotated[int, AtLeast(0)]
_Sum = Annotated[float, AtLeast(0.0)]


@dataclass(frozen=True)
class SavedStream:
    """`Stream` in files, without its plan, which the estimator's parameters say."""

    book: Codebook
    store: CodedRows
    latest: CodedRows
    n_seen: _Count
    now: float
    seed: _Count
    score_sum: float
    score_weight: _Sum
    calibration_sum: _Sum
    calibration_weight: _Sum
    n_watched: _Count
    n_outside: _Count
    squares: _Sum
    gross: Annotated[FloatArray, Shape("n_gross*", "n_outputs")]
    level_moved_at: list[int]
    n_learned: _Count
    searched_at: _Count
    moved_at: _Count
    learn_at: list[int]
    lowest: Annotated[FloatArray, Shape("n_inputs*")]
    highest: Annotated[FloatArray, Shape("n_inputs*")]
    basis: Basis | None
    residual_variance: _Sum
    units: Annotated[Units, Binds(n_outputs="n_outputs")]
    regression: AdaptiveRegression

    def check(self) -> None:
        """Raise unless the regression is of the basis functions, and rows of the columns and outputs."""
        n_weights = 0 if self.basis is None else self.basis.n_weights
        n_inputs = 0 if self.basis is None else self.basis.input_map.n_outputs
        if self.regression.n_functions != n_weights or len(self.lowest) != n_inputs:
            raise ValueError(f"regression and ranges must be of {n_weights} functions and {n_inputs} inputs")
        if self.basis is not None and (
            self.basis.columns is None or self.basis.columns.n_columns > len(self.book.values)
        ):
            raise ValueError("columns must be of the rows")
        k = self.units.n_outputs
        if self.regression.n_outputs != k or self.store.y.shape[1] != k or self.latest.y.shape[1] != k:
            raise ValueError(f"rows and regression must be of {k} outputs")
        for rows in (self.store, self.latest):
            SavedRows(self.book, rows, 0).check()


@dataclass
class OpenRows:
    """What takes rows one by one in compiled code, and what a stream has lent to it.

    - `taken`: rows as they came, x, y, weights, clock and the number of samples before each.
    """

    rows: _core.RowStream
    taken: list[FloatArray]
    lent: dict[str, Any]
    now: float
    n_left: int
    decay: float


class Stream(Predictor):
    """Learns from rows as they come and predicts; ``basis`` is None until the feature map is learned."""

    def __init__(
        self,
        plan: StreamPlan,
        x: FloatArray,
        targets: FloatArray,
        one_dimensional: bool,
        book: Codebook,
        transform: TargetTransform | None = None,
    ) -> None:
        self.plan, self.book = plan, book
        self.n_seen, self.now = 0, -np.inf
        self.seed = int(plan.mapper.generators()[0].integers(2**31))
        self.store, self.latest = (RowBuffer.empty(x.shape[1], targets.shape[1], book) for _ in range(2))
        self.score_sum = self.score_weight = self.calibration_sum = self.calibration_weight = 0.0
        self.n_watched, self.n_outside, self.squares = 0, 0, 0.0
        self.gross = np.empty((0, targets.shape[1]))  # misses of the latest rows, if these are gross
        self.level_moved_at: list[int] = []  # the last two times
        self.n_learned, self.searched_at, self.moved_at = 0, 0, 0
        self.learn_at: list[int] = []
        self.lowest = self.highest = np.empty(0)
        self.basis: Basis | None = None
        self.residual_variance = 0.0
        self.units = self._units_at(targets[0].copy(), np.ones(targets.shape[1]), one_dimensional, transform)
        self.regression = self._new_regression()

    @staticmethod
    def _units_at(
        location: FloatArray, scale: FloatArray, one_dimensional: bool, transform: TargetTransform | None
    ) -> Units:
        """Units of targets that are kept on the scale on which they are modelled."""
        if transform is None:
            return Units(location, scale, one_dimensional)
        return Units.of_sums(location, scale, one_dimensional, transform, np.zeros(len(scale)))

    def _set_units(self, location: FloatArray, scale: FloatArray) -> None:
        units = self.units
        found = self._units_at(location, scale, units.one_dimensional, units.transform)
        self.units = found.calibrated(units.calibration)

    # --- rows one by one, in compiled code

    def learn_one(
        self, x: FloatArray, y: float, own_threads: Callable[[], AbstractContextManager[Any]]
    ) -> tuple[float, float, float] | None:
        """Predict a row of numbers, then learn it: mean, deviation and log density; None if `learn` has to take it.

        `own_threads`: context in which more is done than for most rows.
        """
        rows = self._opened(own_threads)
        if rows is None:
            return None
        clock = rows.now + 1
        found = rows.rows.learn(x, y, 1.0, rows.decay, clock)
        if found is None:
            self._close()
            return None
        rows.now = clock
        if rows.rows.n_rows == rows.n_left:
            with own_threads():
                self._close()
                self._after_rows()
        return found

    def predict_one(
        self, x: FloatArray, own_threads: Callable[[], AbstractContextManager[Any]]
    ) -> tuple[float, float, float] | None:
        """Predict a row of numbers; None if `predict` has to."""
        rows = self._opened(own_threads)
        return None if rows is None else rows.rows.predict(x)

    def _opened(self, own_threads: Callable[[], AbstractContextManager[Any]]) -> OpenRows | None:
        """Return what takes the next few rows; None where there are too few until something is learned from all."""
        opened: OpenRows | None = vars(self).get("open_rows")
        if opened is not None:
            return opened
        with own_threads(), _LENDING:
            return self._open()

    def _open(self) -> OpenRows | None:
        basis, units = self.basis, self.units
        if basis is None or units.n_outputs > 1 or units.active is not None or not self.book.holds_numbers:
            return None
        if basis.hyperparameters is None or basis.map.residual_kernel is None:  # no kernel, or not one in compiled code
            return None
        n_columns = len(self.book.values)
        if not self.columns.is_plain or self.columns.n_columns != n_columns:
            return None
        decay = 1.0 if self.plan.half_life is None else math.exp2(-1 / seconds(self.plan.half_life))
        n_left, arrays, numbers = self.regression.lend(self._rows_at_once(WATCHED_ROWS, True), decay)
        if not n_left:
            return None
        inputs, degrees = basis.input_map, float(self.regression.degrees[0])
        others, weights, isotropic, products, amplitudes, reach, smoothness = basis.map.panels.arguments
        taken = [np.empty((n_left, n_columns)), *np.empty((4, n_left))]
        numbers |= {name: getattr(self, name) for name in LENT_SUMS} | {
            "n_left": n_left,
            "largest": LARGEST,
            "largest_input": basis.largest_input,
            "isotropic_weight": isotropic,
            "linear_reach": reach,
            "twice_smoothness": smoothness,
            "of_pairs": basis.map.panels.of_pairs,
            "sums_of_kernel": basis.sums_of_kernel,
            "mean_missing": self.residual_variance,
            "location": units.location[0],
            "scale": units.scale[0],
            "score_kept": self._score_kept,
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
            [self.lowest, self.highest],
            numbers,
        )
        lent = {name: vars(self).pop(name) for name in (*LENT, *LENT_SUMS)}
        self.open_rows = OpenRows(rows, taken, lent, lent["now"], n_left, decay)
        return self.open_rows

    def _close(self) -> None:
        """Get back what was lent."""
        with _LENDING:
            opened = vars(self).pop("open_rows", None)
            if opened is None:
                return
            rows, n, own = opened.rows, opened.rows.n_rows, opened.lent
            if n:
                own["regression"].take_back(rows)
                factor = calibration_factor(rows.calibration_sum, rows.calibration_weight)
                own |= {name: getattr(rows, name) for name in LENT_SUMS}
                own |= {"units": own["units"].calibrated(float(np.sqrt(factor))), "now": opened.now}
                own["gross"] = own["gross"][:0]
            vars(self).update(own)  # whole: other threads may be waiting
            if n:
                x, y, weight, clock, n_samples = (part[:n] for part in opened.taken)
                self._keep(CodedRows(x, y[:, None], weight, clock), n_samples)
                self.n_seen, self.squares = self.n_seen + n, self.squares + rows.squares
                self.n_watched, self.n_outside = self.n_watched + n, self.n_outside + int(rows.n_outside)

    def __getattr__(self, name: str) -> Any:
        with _LENDING:  # the attribute may be one that is lent
            self._close()
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        self._close()
        return vars(self)

    # --- files

    def to_saved(self) -> SavedStream:
        own = {field.name: getattr(self, field.name) for field in fields(SavedStream)}
        return SavedStream(**{**own, "store": self.store.rows, "latest": self.latest.rows})

    @classmethod
    def from_saved(cls, saved: SavedStream) -> Self:
        stream = cls.__new__(cls)
        vars(stream).update({field.name: getattr(saved, field.name) for field in fields(saved)})
        stream.store, stream.latest = (RowBuffer(rows, saved.book) for rows in (saved.store, saved.latest))
        if saved.basis is not None and saved.basis.sums_of_kernel:
            stream.regression.factor = saved.basis.factor
        return stream

    # --- predictions

    @property
    def posteriors(self) -> Sequence[Any]:
        return self.regression.current()

    @property
    def n_samples(self) -> float:
        return self.regression.n_samples

    @property
    def mean_noise(self) -> FloatArray:
        return np.array([posterior.noise_variance for posterior in self.posteriors])

    @property
    def columns(self) -> ColumnEncoding:
        assert self.basis is not None and self.basis.columns is not None
        return self.basis.columns

    @property
    def n_columns(self) -> int:
        return self.regression.n_functions + 1

    @property
    def log_score(self) -> float:
        """Mean log density of the latest rows."""
        return self.score_sum / self.score_weight if self.score_weight else np.nan

    def encode(self, x: Any) -> FloatArray:
        """Encode validated rows, without columns that the feature map does not know yet."""
        if self.basis is None:
            return np.empty((len(x), 0))
        known = self.columns.n_columns
        if isinstance(x, Table):
            return self.columns.encode(x if x.shape[1] == known else Table(x.columns[:known]))
        return self.columns.encode(np.ascontiguousarray(x[:, :known]))

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        mean = np.empty((len(x), self.units.n_outputs))
        variance = np.empty_like(mean) if with_variance else None
        for rows in self.blocks(x):
            phi, residual = np.empty((len(x[rows]), 0)), np.zeros(len(x[rows]))
            if self.basis is not None:
                _, phi, residual = self._functions(self.basis.inputs(x[rows]))
            if variance is None:
                mean[rows] = self.regression.mean(phi)
            else:
                mean[rows], variance[rows] = self.regression.moments(phi, residual)
        return mean, variance

    def noise_of(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        found = []
        for noise, degrees in zip(self.mean_noise, self.regression.degrees, strict=True):
            weights, factors = student_factors(float(degrees))
            found.append((weights, np.broadcast_to(noise * factors, (len(x), len(factors)))))
        return found

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        weights = [own.sample_weights(n_samples, rng) for own in self.posteriors]
        values = np.empty((len(x), len(weights), n_samples))
        for rows in self.blocks(x):
            phi = np.empty((len(x[rows]), 0))
            if self.basis is not None:
                _, phi, _ = self._functions(self.basis.inputs(x[rows]))
            values[rows] = np.stack([with_constant(phi) @ own.T for own in weights], axis=1)
        return values

    def calibrated(self, factor: float) -> Self:
        self.units = self.units.calibrated(factor)
        return self

    # --- rows come

    def learn(self, rows: CodedRows, predict: bool, at_once: bool = False) -> FloatArray:
        """Learn from rows; return means, deviations and log densities of each before, (3, n_rows, n_outputs).

        NaN unless `predict`. `at_once`: the first rows are learned together.
        """
        first = min(len(rows), self.plan.n_first_rows) if at_once else 0
        if first:
            self._take(rows[:first], predict)
            self._learn_map()
        rows, begin = rows[first:], 0
        found = np.full((3, *rows.y.shape), np.nan)
        while begin < len(rows):
            end, before = min(len(rows), begin + self._rows_at_once(len(rows) - begin, predict)), self.n_seen
            moments = self._take(rows[begin:end], predict)
            end = begin + self.n_seen - before
            if moments is not None and before >= 2:
                found[:, begin:end] = self._scored(moments, rows.y[begin:end])
            self._after_rows()
            begin = end
        return found

    def _rows_at_once(self, n_rows: int, predict: bool) -> int:
        if self.n_seen < self.plan.n_first_rows:
            steps = [step for step in self._steps() if step > self.n_seen]
            if not predict:  # those between would be of no use to anybody
                steps = [step for step in steps if step <= self.n_seen + n_rows][-1:] or steps
            return steps[0] - self.n_seen
        return WATCHED_ROWS - self.n_seen % WATCHED_ROWS if predict else LARGE_BLOCK

    def _steps(self) -> list[int]:
        """Numbers of rows at which the feature map is learned."""
        doubled = [2**k for k in range(1, 64) if 2**k < self.plan.n_first_rows]
        return [1, *doubled, self.plan.n_first_rows]

    def _after_rows(self) -> None:
        n_first = self.plan.n_first_rows
        if self.n_seen <= n_first:
            if self.n_seen in self._steps():
                self._learn_map()
        elif self.plan.follow_inputs:
            if self._have_moved():
                self.moved_at = self.n_seen
                self.learn_at = [self.n_seen + after for after in (0, n_first // 4, n_first)]
            if self.learn_at and self.n_seen >= self.learn_at[0]:
                self.learn_at = [n for n in self.learn_at if n > self.n_seen]
                self._learn_map()

    def _take(self, rows: CodedRows, predict: bool) -> FloatArray | None:
        """Take in rows one by one, or together where nothing is predicted; what was predicted of y before each.

        (4, n_rows, n_outputs): mean, variance, noise variance and its degrees of freedom. Rows from one that shows a
        change on are left for the next call, and those after it.
        """
        if not len(rows):
            return None
        small = len(rows) <= max(WATCHED_ROWS, self.regression.n_functions // 2)
        judged = False
        if self.basis is not None:
            self.regression.current()
            judged = self.regression.degrees.min() >= FEWEST_DEGREES
        one_by_one = predict or (small and self.regression.posteriors is not None)
        watched = self.n_watched, self.n_outside
        block = self._block(rows, watch=True, sums_only=not one_by_one)
        y, moved = block.y, None
        if judged:
            y, moved = self._bounded(rows, block)
        elif not one_by_one:
            y = within_few(y)
        if len(y) < len(rows):
            self.n_watched, self.n_outside = watched
            rows = rows[: len(y)]
            block = self._block(rows, watch=True, sums_only=not one_by_one)
        if moved is not None and moved.any():  # all earlier rows move along
            amount = self.units.scale * moved
            self._set_units(self.units.location + amount, self.units.scale)
            self.store.move(amount)
            self.latest.move(amount)
            self.level_moved_at = [*self.level_moved_at[-1:], self.n_seen]
            warn(
                f"the level of y has moved by {', '.join(f'{own:.4g}' for own in amount)} after {self.n_seen} rows: "
                "earlier rows move along, and tell how f varies but no longer where it is",
                TargetWarning,
                stacklevel=level_of_user(),
            )
            y, block = y - moved, replace(block, y=block.y - moved)
        far = (y != block.y).any(axis=1)
        if far.any():
            warn(
                f"{far.sum()} of {len(rows)} targets miss what was predicted by more than {GROSS:g} deviations: they "
                "are learned as if they missed it by that",
                TargetWarning,
                stacklevel=level_of_user(),
            )
            rows, block = replace(rows, y=self.units.location + self.units.scale * y), replace(block, y=y)
        decay = self._decay(rows.clock)
        leaving = n_left = None
        before = len(self.store)
        self._keep(rows)
        if self.plan.window is not None:
            n_left = self._n_left(rows.clock, before)
            gone = self.store.leave(int(n_left[-1]))
            leaving = self._block(gone, sums_only=not one_by_one) if len(gone) else None
        moments = None
        if one_by_one:
            mean, variance, noise, degrees = self.regression.predict_then_learn(block, decay, leaving, n_left)
            squares = (block.y - mean) ** 2 / variance
            self.squares += float(np.minimum(squares, LARGEST_SQUARE).mean(axis=1).sum())
            if self.n_seen < 2:  # their scale is not known yet
                squares[...] = 1.0
            largest = np.where(far, LARGEST_SQUARE, LARGEST_CALIBRATION)
            factors = self._calibration_of(np.minimum(squares, largest[:, None]).mean(axis=1))
            moments = np.stack([mean, variance * factors[:, None], noise * factors[:, None], degrees])
            if not predict:  # threads that predict next find the same bits
                for posterior in self.regression.posteriors or ():
                    posterior.covariance  # noqa: B018
        else:
            self._calibration_of(np.ones(len(rows)))
            self.regression.learn(block, decay)
            if leaving is not None:
                self.regression.leave(leaving)
        if moved is not None and not moved.any():  # the noise takes in what errors told of; this one may tell of more
            self.regression.refresh()
            last = self._block(rows)
            mean, variance = self.regression.moments(last.phi, last.missing)
            squares = np.minimum((last.y - mean) ** 2 / (variance + self.mean_noise), LARGEST_CALIBRATION)
            self.calibration_sum = self.calibration_weight = 0.0
            self._calibration_of(squares.mean(axis=1))
        self.n_seen += len(rows)
        self.now = float(rows.clock[-1])
        return moments if predict else None

    def _bounded(self, rows: CodedRows, block: Block) -> tuple[FloatArray, FloatArray | None]:
        """Targets of a block, (n_rows, n_outputs), the gross ones as near as they count.

        Those before a row that shows a change, if there is one, or this row alone, and how much the level has moved,
        (n_outputs,): not at all where noise has grown.
        """
        calibration, y = self.units.calibration**2, block.y
        far = np.abs(y - self.regression.mean_of_functions(block.functions)) > GROSS_SCALES
        maybe = np.flatnonzero(far.any(axis=1))
        if not maybe.size:
            self.gross = self.gross[:0]
            return y, None
        exact = self._block(rows[maybe])
        mean, variance = self.regression.moments(exact.phi, exact.missing)
        miss, reach = np.zeros(y.shape), GROSS * np.sqrt(calibration * (variance + self.mean_noise))
        miss[maybe] = y[maybe] - mean
        gross = np.zeros(y.shape, dtype=bool)
        gross[maybe] = np.abs(miss[maybe]) > np.maximum(reach, GROSS_SCALES)
        bounded = y.copy()
        bounded[maybe] = np.where(gross[maybe], np.clip(y[maybe], mean - reach, mean + reach), y[maybe])
        for row, own in enumerate(gross):
            if not own.any():
                self.gross = self.gross[:0]
                continue
            run = np.vstack([self.gross, miss[[row]]])[-MOST_GROSS:]
            latest = run[-OF_A_LEVEL:]
            size, side = np.abs(latest), np.sign(latest).sum(axis=0)
            alike = own & (np.abs(side) == OF_A_LEVEL) & (size.max(axis=0) < ALIKE * size.min(axis=0))
            if alike.any() or len(run) == MOST_GROSS:
                if row:  # first those before it
                    return bounded[:row], None
                moves, moved_at = alike, self.level_moved_at
                if len(moved_at) == 2 and self.n_seen < moved_at[0] + WATCHED_ROWS:
                    moves = np.zeros_like(alike)  # a level that moves to and fro is noise
                self.gross = run[:0] if moves.any() else run
                as_it_is = moves | ~moves.any()
                return np.where(as_it_is, y[:1], bounded[:1]), np.where(moves, np.median(latest, axis=0), 0.0)
            self.gross = run
        return bounded, None

    def _decay(self, clock: FloatArray) -> FloatArray | None:
        if self.plan.half_life is None:
            return None
        ages = np.diff(clock, prepend=self.now if self.n_seen else clock[0])
        return np.exp2(-ages / seconds(self.plan.half_life))

    def _n_left(self, clock: FloatArray, before: int) -> NDArray[np.intp]:
        """Number of rows that have left the window when each comes."""
        came, window = before + 1 + np.arange(len(clock)), self.plan.window
        if not is_time(window):
            return np.maximum(came - int(seconds(window)), 0)
        return np.minimum(np.searchsorted(self.store.rows.clock, clock - seconds(window), side="right"), came - 1)

    # --- rows that are kept

    def _keep(self, rows: CodedRows, n_samples: FloatArray | None = None) -> None:
        """Keep the rows, or some of them; `n_samples`, (n_rows,): before each, where it is known."""
        n_first = self.plan.n_first_rows
        if self.plan.window is None and self.plan.follow_inputs:
            self.latest.append(rows[-(n_first // 2) :])
            self.latest.leave(max(len(self.latest) - n_first // 2, 0))
        room = n_first - len(self.store)
        if self.plan.window is not None or len(rows) <= room:
            self.store.append(rows)
            return
        if room > 0:
            self.store.append(rows[:room])
            rows, n_samples = rows[room:], None if n_samples is None else n_samples[room:]
        size, first = len(self.store), self.n_seen + max(room, 0)
        before = self.regression.n_samples + np.arange(len(rows)) if n_samples is None else n_samples
        share = size / np.minimum(before + 1.0, self._most_samples())
        places = sample_places(self.seed, first, len(rows), size, share)
        taken = np.flatnonzero(places >= 0)
        last = {int(places[i]): i for i in taken}
        self.store.replace(np.array([*last], dtype=np.intp), rows[np.array([*last.values()], dtype=np.intp)])

    def _most_samples(self) -> float:
        """Number of samples that forgetting leaves in the end."""
        half_life = self.plan.half_life
        if half_life is None or is_time(half_life):
            return np.inf
        return float(1 / -np.expm1(-np.log(2) / seconds(half_life)))

    @property
    def keeps_all(self) -> bool:
        """Whether all rows that count are kept."""
        return self.plan.window is not None or self.n_seen <= self.plan.n_first_rows

    def rows_now(self, store: RowBuffer) -> CodedRows:
        """Rows with what is left of their weights."""
        rows = store.rows
        if self.plan.half_life is None:
            return rows
        left = np.exp2((rows.clock - self.now) / seconds(self.plan.half_life))
        return CodedRows(rows.x, rows.y, np.maximum(left, LEAST_WEIGHT) * rows.weight, rows.clock)

    def add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far; they count once the feature map is learned again."""
        self.book.add_columns(n_columns)
        for store in (self.store, self.latest):
            store.add_columns(n_columns)

    # --- scores

    def _calibration_of(self, squares: FloatArray) -> FloatArray:
        """Factors of the variances of rows before each, from squares of standardised errors, (n_rows,)."""
        sums, weights = (
            np.append(own, faded_sums(new, CALIBRATION_KEPT, own))
            for new, own in ((squares, self.calibration_sum), (np.ones(len(squares)), self.calibration_weight))
        )
        factors = calibration_factor(sums, weights)
        self.calibration_sum, self.calibration_weight = float(sums[-1]), float(weights[-1])
        self.units = self.units.calibrated(float(np.sqrt(factors[-1])))
        return np.asarray(factors[:-1])

    def _scored(self, found: FloatArray, y: FloatArray) -> FloatArray:
        """Means, deviations and log densities of rows in y's units, which count in the score; `found` by `_take`.

        `y`, (n_rows, n_outputs), on the scale on which they are modelled.
        """
        (mean, variance, noise, degrees), units, scored = found, self.units, np.empty((3, *y.shape))
        given = y if units.active is None else units.active.inverse(y)
        for k, of_output in enumerate(degrees.T):
            for value in np.unique(of_output):
                own = of_output == value
                weights, factors = student_factors(float(value))
                spread = (variance - noise)[own, k, None] + np.outer(noise[own, k], factors)
                means = np.repeat(units.location[k] + units.scale[k] * mean[own, k, None], len(weights), axis=1)
                row = units.distribution(k, PredictiveDistribution(weights, means, units.scale[k] ** 2 * spread))
                scored[:, own, k] = row.mean, row.std, row.log_density(given[own, k])
        kept = self._score_kept
        shares = kept ** np.arange(len(y))[::-1]
        self.score_sum = kept ** len(y) * self.score_sum + float(shares @ scored[2].sum(axis=1))
        self.score_weight = kept ** len(y) * self.score_weight + float(shares.sum())
        return scored

    @property
    def _score_kept(self) -> float:
        """By what a score fades with each row after it."""
        for own in (self.plan.half_life, self.plan.window):
            if own is not None and not is_time(own):
                return float(0.5 ** (1 / seconds(own)))
        return float(0.5 ** (1 / self.plan.n_first_rows))

    # --- the feature map

    def _block(self, rows: CodedRows, watch: bool = False, sums_only: bool = False) -> Block:
        """Rows as inference sees them; `sums_only`: without what predictions take."""
        y = (rows.y - self.units.location) / self.units.scale
        if self.basis is None:
            phi = np.empty((len(rows), 0))
            return Block(phi, phi, y, rows.weight, np.zeros(len(y)))
        known = self.columns.n_columns
        x = rows.x[:, :known]
        inputs = self.basis.inputs(self.columns.encode(x if self.book.is_numeric else self.book.table(x)))
        if watch:
            self.n_watched += len(rows)
            outside = ((inputs < self.lowest) | (inputs > self.highest)).any(axis=1)
            self.n_outside += int((outside | ~np.isnan(rows.x[:, known:]).all(axis=1)).sum())
        if sums_only:
            functions = np.ascontiguousarray(self.basis.functions(inputs, resolve_n_threads()))
            functions = functions if self.basis.sums_of_kernel else np.ascontiguousarray(self.basis.whitened(functions))
            return Block(functions, functions, y, rows.weight, np.zeros(len(y)))
        functions, phi, residual = self._functions(inputs)
        return Block(functions, phi, y, rows.weight, residual)

    def _functions(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Summed functions, Φ and the residual variance at inputs."""
        basis = self.basis
        assert basis is not None
        functions = np.ascontiguousarray(basis.functions(inputs, resolve_n_threads()))
        phi = np.ascontiguousarray(basis.whitened(functions.copy() if basis.sums_of_kernel else functions))
        residual = basis.missing_variance(inputs, phi, self.residual_variance)
        residual = np.zeros(len(phi)) if residual is None else residual
        return functions if basis.sums_of_kernel else phi, phi, residual

    def _have_moved(self) -> bool:
        """Whether the latest rows lie elsewhere, or are predicted badly."""
        if self.n_watched < WATCHED_ROWS:
            return False
        n_outside, square = self.n_outside / self.n_watched, self.squares / self.n_watched
        self.n_watched, self.n_outside, self.squares = 0, 0, 0.0
        kernel = None if self.basis is None else self.basis.hyperparameters
        if kernel is None or self.n_seen < self.moved_at + self.plan.n_first_rows:
            return False
        expected = 2 * len(self.lowest) / (self.n_learned + 1)
        return n_outside > OUTSIDE + 2 * expected or square > SURPRISE

    def _learn_map(self) -> None:
        rows = self.rows_now(self.store)
        if len(rows) < FEWEST_ROWS:
            location, spread = weighted_location_scale(rows.y, rows.weight)
            self._set_units(location, np.where(spread > 0, spread, 1.0))
            self.regression = self._new_regression()
            self.regression.learn(self._block(rows))
        elif self.keeps_all:
            self._set_map(rows)
            self.regression.learn(self._block(rows))
        else:
            self._carry_over(rows, self.rows_now(self.latest))

    def _carry_over(self, sample: CodedRows, latest: CodedRows) -> None:
        """Learn a new map, and what the earlier one knew at a sample of rows, then the latest rows."""
        before, units = self.regression, self.units
        mean = units.location + units.scale * before.mean(self._block(sample).phi)
        n_before = max(before.n_samples - float(latest.weight.sum()), 0.0)
        squares = n_before * self.mean_noise * units.scale**2
        self._set_map(CodedRows(*(np.concatenate([getattr(own, n) for own in (sample, latest)]) for n in PARTS)))
        weight = sample.weight * (n_before / sample.weight.sum())
        if n_before > 0:
            self.regression.learn(self._block(CodedRows(sample.x, mean, weight, sample.clock)))
            self.regression.add_squares(squares / self.units.scale**2)
        self.regression.learn(self._block(latest))

    def _set_map(self, rows: CodedRows) -> None:
        """Learn the feature map, units, noise and prior variance from rows."""
        n_first = self.plan.n_first_rows
        if len(rows) > 2 * n_first:
            rows = rows[np.linspace(0, len(rows) - 1, 2 * n_first).astype(np.intp)]
        # Rows that have all but faded still tell where inputs lie; their ranks would be infinite otherwise.
        weights = np.maximum(rows.weight, LEAST_SHARE * rows.weight.max())
        weight, earlier = None if (weights == 1).all() else weights, None
        if self.basis is not None and self.n_seen < n_first and self.n_seen < 3 * self.searched_at:
            earlier = self.basis
        else:
            self.searched_at = self.n_seen
        table = self.book.table(rows.x)
        if self.plan.takes_tables:
            z = Units.fit(rows.y, weight, False)[1]
            with ignored(TableWarning) if self.basis is not None else nullcontext():  # what was said at the first map
                columns = self.plan.columns.encoding(table, z, weight, stacklevel=level_of_user())
        else:
            columns = ColumnEncoding.of_numbers(table.shape[1], table.names)
        names = None if table.names is None else tuple(columns.names_out)
        given = GivenRows(columns.encode(table), rows.y, weight, self.units.one_dimensional, columns, names)
        ((model, _),) = fit_together([self.plan.mapper], [given], Progress(0), earlier)
        self.basis, self.residual_variance = model.basis.for_sums(MANY_ROWS), model.latent.residual_variance
        self._set_units(model.units.location, model.units.scale)
        inputs = self.basis.inputs(given.x)
        self.lowest, self.highest, self.n_learned = inputs.min(axis=0), inputs.max(axis=0), len(rows)
        self.n_watched, self.n_outside, self.squares = 0, 0, 0.0
        self.regression = self._new_regression(model.mean_noise, model.latent.prior_scale**2)

    def _new_regression(self, noise: FloatArray | None = None, prior: FloatArray | None = None) -> AdaptiveRegression:
        k, basis = self.units.n_outputs, self.basis
        return AdaptiveRegression.empty(
            0 if basis is None else basis.n_weights,
            np.full(k, FIRST_NOISE) if noise is None else noise,
            np.full(k, FIRST_PRIOR) if prior is None else prior,
            self.plan.window is not None,
            basis.factor if basis is not None and basis.sums_of_kernel else None,
        )


def calibration_factor(squares: Any, weight: Any) -> Any:
    """Factor of predictive variances, from sums of squared errors and of their weights."""
    return (CALIBRATION_ROWS + squares) / (CALIBRATION_ROWS + weight)


def within_few(y: FloatArray) -> FloatArray:
    """Targets (n_rows, n_outputs), those few that are gross as near to the median as they count."""
    near = within_reach(y)
    far = int((near != y).any(axis=1).sum())
    return near if far <= len(y) / FEWEST_PER_OUTLIER else y


def is_time(value: Any) -> bool:
    """Whether a value is a duration, rather than a number of rows."""
    return isinstance(value, datetime.timedelta | np.timedelta64)


def seconds(value: Any) -> float:
    """Seconds of a time, or a number of rows as it is."""
    if isinstance(value, np.timedelta64):
        return float(value / SECOND)
    return float(value.total_seconds()) if isinstance(value, datetime.timedelta) else float(value)
