"""`Stream`: where a stream of rows stands, what it keeps of them, the feature map that it learns again as they move."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect._warnings import ignored, warn
from pydirect.estimators.choices import RegressionPlan
from pydirect.estimators.regression import GivenRows, fit_together
from pydirect.features.basis import Basis
from pydirect.features.maps import MANY_ROWS
from pydirect.fitted.predictor import Predictor, Units
from pydirect.linear.adaptive import AdaptiveRegression, Block, with_constant
from pydirect.noise.student_t import FEWEST_PER_OUTLIER, TargetWarning, within_reach
from pydirect.persistence.schema import AtLeast, Binds, Shape
from pydirect.predictive.gaussian_mixture import PredictiveDistribution, student_factors
from pydirect.predictive.transformed import TargetTransform
from pydirect.statistics.gaussian import weighted_location_scale
from pydirect.statistics.running import faded_sums
from pydirect.tables.buffer import PARTS, Codebook, CodedRows, RowQueue, SavedRows, sample_places
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
# Rows that are taken together when nothing is predicted.
LARGE_BLOCK = 4096


@dataclass(frozen=True)
class StreamPlan:
    """What a stream's parameters ask for, checked: `mapper` learns the feature map.

    ``half_life`` and ``window``, of which one at most is given, are seconds with ``by_time``, else numbers of rows.
    """

    mapper: RegressionPlan
    columns: Columns
    takes_tables: bool
    half_life: float | None
    window: float | None
    by_time: bool
    n_first_rows: int
    follow_inputs: bool
    parameters: tuple[Any, ...]  # that say how rows are forgotten, as they were given

    @property
    def score_kept(self) -> float:
        """By what a score fades with each row after it."""
        rows = None if self.by_time else self.half_life or self.window
        return float(0.5 ** (1 / (rows or self.n_first_rows)))

    @property
    def most_samples(self) -> float:
        """Number of samples that forgetting leaves in the end."""
        if self.half_life is None or self.by_time:
            return np.inf
        return float(1 / -np.expm1(-np.log(2) / self.half_life))

    @property
    def steps(self) -> list[int]:
        """Numbers of rows at which the feature map is learned."""
        doubled = [2**k for k in range(1, 64) if 2**k < self.n_first_rows]
        return [1, *doubled, self.n_first_rows]


_Count = Annotated[int, AtLeast(0)]
_Sum = Annotated[float, AtLeast(0.0)]
_Range = Annotated[FloatArray, Shape("n_inputs*")]


@dataclass(eq=False)
class Stream(Predictor):
    """Learns from rows as they come and predicts; ``basis`` is None until the feature map is learned.

    Files hold all but the plan, which the estimator's parameters say.
    """

    book: Codebook
    store: RowQueue  # all rows, a window or a sample
    latest: RowQueue
    seed: _Count
    gross: Annotated[FloatArray, Shape("n_gross*", "n_outputs")]  # misses of the latest rows, if these are gross
    units: Annotated[Units, Binds(n_outputs="n_outputs")]
    regression: AdaptiveRegression
    n_seen: _Count = 0
    now: float = -1.0
    score_sum: float = 0.0
    score_weight: _Sum = 0.0
    calibration_sum: _Sum = 0.0
    calibration_weight: _Sum = 0.0
    n_watched: _Count = 0
    n_outside: _Count = 0
    squares: _Sum = 0.0
    level_moved_at: list[int] = field(default_factory=list)  # the last two times
    n_learned: _Count = 0
    searched_at: _Count = 0
    moved_at: _Count = 0
    learn_at: list[int] = field(default_factory=list)
    lowest: _Range = field(default_factory=lambda: np.empty(0))
    highest: _Range = field(default_factory=lambda: np.empty(0))
    basis: Basis | None = None
    residual_variance: _Sum = 0.0
    plan: StreamPlan = field(init=False)

    def __post_init__(self) -> None:
        if self.basis is not None and self.basis.sums_of_kernel:
            self.regression.factor = self.basis.factor

    @classmethod
    def of(
        cls,
        plan: StreamPlan,
        x: FloatArray,
        targets: FloatArray,
        one_dimensional: bool,
        book: Codebook,
        transform: TargetTransform | None,
    ) -> Self:
        """Return a stream of no rows, of the columns of coded ones and of their targets, (n_rows, n_outputs)."""
        k = targets.shape[1]
        stream = cls(
            book,
            RowQueue.of_shape(x.shape[1], k),
            RowQueue.of_shape(x.shape[1], k),
            seed=int(plan.mapper.generators()[0].integers(2**31)),
            gross=np.empty((0, k)),
            units=Units.of_sums(targets[0].copy(), np.ones(k), one_dimensional, transform, np.zeros(k)),
            regression=_regression(plan, None, np.ones(k), np.ones(k)),
        )
        stream.plan = plan
        return stream

    def check(self) -> None:
        """Raise unless the regression is of the basis functions, and rows of the columns and outputs."""
        basis, k, stored = self.basis, self.units.n_outputs, (self.store.rows, self.latest.rows)
        n_weights, n_inputs = (0, 0) if basis is None else (basis.n_weights, basis.input_map.n_outputs)
        if self.regression.n_functions != n_weights or len(self.lowest) != n_inputs:
            raise ValueError(f"regression and ranges must be of {n_weights} functions and {n_inputs} inputs")
        if basis is not None and (basis.columns is None or basis.columns.n_columns > len(self.book.values)):
            raise ValueError("columns must be of the rows")
        if self.regression.n_outputs != k or any(rows.y.shape[1] != k for rows in stored):
            raise ValueError(f"rows and regression must be of {k} outputs")
        for rows in stored:
            SavedRows(self.book, rows, 0).check()

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
        mean, variance = np.empty((2, len(x), self.units.n_outputs))
        for rows in self.blocks(x):
            _, phi, residual = self._functions(self._inputs_of(x[rows]))
            if with_variance:
                mean[rows], variance[rows] = self.regression.moments(phi, residual)
            else:
                mean[rows] = self.regression.mean(phi)
        return mean, variance if with_variance else None

    def noise_of(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        each = [student_factors(float(degrees)) for degrees in self.regression.degrees]
        return [
            (weights, np.broadcast_to(noise * factors, (len(x), len(factors))))
            for noise, (weights, factors) in zip(self.mean_noise, each, strict=True)
        ]

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        weights = [own.sample_weights(n_samples, rng) for own in self.posteriors]
        values = np.empty((len(x), len(weights), n_samples))
        for rows in self.blocks(x):
            phi = with_constant(self._functions(self._inputs_of(x[rows]))[1])
            values[rows] = np.stack([phi @ own.T for own in weights], axis=1)
        return values

    def calibrated(self, factor: float) -> Self:
        self.units = self.units.calibrated(factor)
        return self

    # --- rows come

    def learn(self, rows: CodedRows, predict: bool = False, at_once: bool = False) -> FloatArray:
        """Learn from rows; return means, deviations and log densities of each before, (3, n_rows, n_outputs).

        NaN unless `predict`. `at_once`: the first rows are learned together.
        """
        found, begin = np.full((3, *rows.y.shape), np.nan), 0
        if at_once:
            begin = min(len(rows), self.plan.n_first_rows)
            self._take(rows[:begin], predict)
            self._learn_map()
        while begin < len(rows):
            before = self.n_seen
            moments = self._take(rows[begin : begin + self.rows_at_once(len(rows) - begin, predict)], predict)
            taken = slice(begin, begin + self.n_seen - before)
            if moments is not None and before >= 2:
                found[:, taken] = self._scored(moments, rows.y[taken])
            self.after_rows()
            begin = taken.stop
        return found

    def rows_at_once(self, n_rows: int, predict: bool) -> int:
        """Return how many of so many rows may come until something is learned from all."""
        if self.n_seen >= self.plan.n_first_rows:
            return WATCHED_ROWS - self.n_seen % WATCHED_ROWS if predict else LARGE_BLOCK
        steps = [step - self.n_seen for step in self.plan.steps if step > self.n_seen]
        within = [] if predict else [step for step in steps if step <= n_rows]
        return (within[-1:] or steps)[0]  # maps learned in between would be of no use to anybody

    def after_rows(self) -> None:
        """Learn the feature map where it is time to."""
        n_first = self.plan.n_first_rows
        if self.n_seen <= n_first:
            if self.n_seen in self.plan.steps:
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
        regression, inputs, judged, moved = self.regression, self._inputs(rows), False, None
        if self.basis is not None:
            regression.current()
            judged = regression.degrees.min() >= FEWEST_DEGREES
        small = len(rows) <= max(WATCHED_ROWS, regression.n_functions // 2)
        one_by_one = predict or (small and regression.posteriors is not None)
        block = self._block(rows, inputs, sums_only=not one_by_one)
        y = block.y
        if judged:
            y, moved = self._bounded(rows, block)
        elif not one_by_one:
            y = within_few(y)
        rows, block, inputs = rows[: len(y)], block[: len(y)], inputs[: len(y)]
        if moved is not None and moved.any():
            self._move_level(self.units.scale * moved)
            y, block = y - moved, replace(block, y=block.y - moved)
        far = (y != block.y).any(axis=1)
        if far.any():
            missed = f"{far.sum()} of {len(rows)} targets miss what was predicted by more than {GROSS:g} deviations"
            warn(f"{missed}: they are learned as if they missed it by that", TargetWarning)
            rows, block = replace(rows, y=self.units.location + self.units.scale * y), replace(block, y=y)
        self._watch(rows, inputs)
        decay, leaving, n_left, before, moments = self._decay(rows.clock), None, None, len(self.store), None
        self.keep(rows)
        if self.plan.window is not None:
            n_left = self._n_left(rows.clock, before)
            gone = self.store.leave(int(n_left[-1]))
            leaving = self._block(gone, sums_only=not one_by_one) if len(gone) else None
        if one_by_one:
            mean, variance, noise, degrees = regression.predict_then_learn(block, decay, leaving, n_left)
            squares = (block.y - mean) ** 2 / variance
            self.squares += float(np.minimum(squares, LARGEST_SQUARE).mean(axis=1).sum())
            if self.n_seen < 2:  # their scale is not known yet
                squares[...] = 1.0
            largest = np.where(far, LARGEST_SQUARE, LARGEST_CALIBRATION)
            factors = self._calibration_of(np.minimum(squares, largest[:, None]).mean(axis=1))
            moments = np.stack([mean, variance * factors[:, None], noise * factors[:, None], degrees])
            if not predict:  # threads that predict next find the same bits
                for posterior in regression.posteriors or ():
                    posterior.covariance  # noqa: B018
        else:
            self._calibration_of(np.ones(len(rows)))
            regression.learn(block, decay)
            if leaving is not None:
                regression.leave(leaving)
        if moved is not None and not moved.any():  # the noise takes in what errors told of; this one may tell of more
            regression.refresh()
            last = self._block(rows)
            mean, variance = regression.moments(last.phi, last.missing)
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
        far = np.abs(block.y - self.regression.mean_of_functions(block.functions)) > GROSS_SCALES
        maybe = np.flatnonzero(far.any(axis=1))
        if not maybe.size:
            self.gross = self.gross[:0]
            return block.y, None
        bounded, gross, miss = block.y.copy(), np.zeros(block.y.shape, dtype=bool), np.zeros(block.y.shape)
        exact = self._block(rows[maybe])
        mean, variance = self.regression.moments(exact.phi, exact.missing)
        reach = GROSS * self.units.calibration * np.sqrt(variance + self.mean_noise)
        miss[maybe] = exact.y - mean
        gross[maybe] = np.abs(miss[maybe]) > np.maximum(reach, GROSS_SCALES)
        bounded[maybe] = np.where(gross[maybe], np.clip(exact.y, mean - reach, mean + reach), exact.y)
        for row, own in enumerate(gross):
            if not own.any():
                self.gross = self.gross[:0]
                continue
            run = np.vstack([self.gross, miss[[row]]])[-MOST_GROSS:]
            latest = run[-OF_A_LEVEL:]
            size, side = np.abs(latest), np.sign(latest).sum(axis=0)
            moves = own & (np.abs(side) == OF_A_LEVEL) & (size.max(axis=0) < ALIKE * size.min(axis=0))
            if not moves.any() and len(run) < MOST_GROSS:
                self.gross = run
                continue
            if row:  # first those before it
                return bounded[:row], None
            if len(self.level_moved_at) == 2 and self.n_seen < self.level_moved_at[0] + WATCHED_ROWS:
                moves[:] = False  # a level that moves to and fro is noise
            self.gross = run[:0] if moves.any() else run
            as_it_is = moves | ~moves.any()
            return np.where(as_it_is, block.y[:1], bounded[:1]), np.where(moves, np.median(latest, axis=0), 0.0)
        return bounded, None

    def _move_level(self, amount: FloatArray) -> None:
        """Let all earlier rows move along, (n_outputs,)."""
        self._set_units(self.units.location + amount, self.units.scale)
        self.store.move(amount)
        self.latest.move(amount)
        self.level_moved_at = [*self.level_moved_at[-1:], self.n_seen]
        amounts = ", ".join(f"{own:.4g}" for own in amount)
        warn(f"the level of y has moved by {amounts} after {self.n_seen} rows: earlier rows move along", TargetWarning)

    def _decay(self, clock: FloatArray) -> FloatArray | None:
        """By what all earlier rows fade when each comes."""
        if self.plan.half_life is None:
            return None
        return np.exp2(-np.diff(clock, prepend=self.now if self.n_seen else clock[0]) / self.plan.half_life)

    def _n_left(self, clock: FloatArray, before: int) -> NDArray[np.intp]:
        """Number of rows that have left the window when each comes."""
        came, window = before + 1 + np.arange(len(clock)), self.plan.window
        assert window is not None
        if not self.plan.by_time:
            return np.maximum(came - int(window), 0)
        return np.minimum(np.searchsorted(self.store.rows.clock, clock - window, side="right"), came - 1)

    # --- rows that are kept

    def keep(self, rows: CodedRows, n_samples: FloatArray | None = None) -> None:
        """Keep the rows, or some of them; `n_samples`, (n_rows,): before each, where it is known."""
        plan, room = self.plan, max(self.plan.n_first_rows - len(self.store), 0)
        if plan.window is not None:
            self.store.append(rows)
            return
        if plan.follow_inputs:
            self.latest.append(rows[-(plan.n_first_rows // 2) :])
            self.latest.leave(max(len(self.latest) - plan.n_first_rows // 2, 0))
        self.store.append(rows[:room])
        rows, size = rows[room:], len(self.store)
        if not len(rows):
            return
        before = self.regression.n_samples + np.arange(len(rows)) if n_samples is None else n_samples[room:]
        share = size / np.minimum(before + 1.0, plan.most_samples)
        places = sample_places(self.seed, self.n_seen + room, len(rows), size, share)
        last = {int(places[i]): i for i in np.flatnonzero(places >= 0)}
        self.store.replace(np.array([*last], dtype=np.intp), rows[np.array([*last.values()], dtype=np.intp)])

    def rows_now(self, store: RowQueue) -> CodedRows:
        """Rows with what is left of their weights."""
        rows = store.rows
        if self.plan.half_life is None:
            return rows
        left = np.exp2((rows.clock - self.now) / self.plan.half_life)
        return replace(rows, weight=np.maximum(left, LEAST_WEIGHT) * rows.weight)

    def add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far; they count once the feature map is learned again."""
        for own in (self.book, self.store, self.latest):
            own.add_columns(n_columns)

    # --- scores

    def _calibration_of(self, squares: FloatArray) -> FloatArray:
        """Factors of the variances of rows before each, from squares of standardised errors, (n_rows,)."""
        sums, weights = (
            np.append(own, faded_sums(new, CALIBRATION_KEPT, own))
            for new, own in ((squares, self.calibration_sum), (np.ones(len(squares)), self.calibration_weight))
        )
        self.calibration_sum, self.calibration_weight = float(sums[-1]), float(weights[-1])
        self.calibrate()
        return np.asarray(calibration_factor(sums, weights)[:-1])

    def calibrate(self) -> None:
        """Let the latest errors scale predictive deviations."""
        factor = calibration_factor(self.calibration_sum, self.calibration_weight)
        self.units = self.units.calibrated(float(np.sqrt(factor)))

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
        kept = self.plan.score_kept
        shares = kept ** np.arange(len(y))[::-1]
        self.score_sum = kept ** len(y) * self.score_sum + float(shares @ scored[2].sum(axis=1))
        self.score_weight = kept ** len(y) * self.score_weight + float(shares.sum())
        return scored

    # --- the feature map

    def _inputs(self, rows: CodedRows) -> FloatArray:
        """Inputs of basis functions at coded rows."""
        return self._inputs_of(self.encode(rows.x if self.book.is_numeric else self.book.table(rows.x)))

    def _inputs_of(self, x: FloatArray) -> FloatArray:
        """Inputs of basis functions at encoded rows."""
        return x if self.basis is None else self.basis.inputs(x)

    def _functions(self, inputs: FloatArray, sums_only: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Summed functions, Φ and the residual variance at inputs; `sums_only`: without what predictions take."""
        basis, nothing = self.basis, np.zeros(len(inputs))
        if basis is None:
            return inputs, inputs, nothing
        functions = np.ascontiguousarray(basis.functions(inputs, resolve_n_threads()))
        if sums_only and basis.sums_of_kernel:
            return functions, functions, nothing
        phi = np.ascontiguousarray(basis.whitened(functions.copy() if basis.sums_of_kernel else functions))
        residual = nothing if sums_only else basis.missing_variance(inputs, phi, self.residual_variance)
        return functions if basis.sums_of_kernel else phi, phi, residual

    def _block(self, rows: CodedRows, inputs: FloatArray | None = None, sums_only: bool = False) -> Block:
        """Rows as inference sees them."""
        functions, phi, residual = self._functions(self._inputs(rows) if inputs is None else inputs, sums_only)
        return Block(functions, phi, (rows.y - self.units.location) / self.units.scale, rows.weight, residual)

    def _watch(self, rows: CodedRows, inputs: FloatArray) -> None:
        """Count rows outside of the range of those that the feature map was learned from."""
        if self.basis is not None:
            outside = ((inputs < self.lowest) | (inputs > self.highest)).any(axis=1)
            outside |= ~np.isnan(rows.x[:, self.columns.n_columns :]).all(axis=1)
            self.n_watched, self.n_outside = self.n_watched + len(rows), self.n_outside + int(outside.sum())

    def _have_moved(self) -> bool:
        """Whether the latest rows lie elsewhere, or are predicted badly."""
        if self.n_watched < WATCHED_ROWS:
            return False
        outside, square = self.n_outside / self.n_watched, self.squares / self.n_watched
        self.n_watched, self.n_outside, self.squares = 0, 0, 0.0
        kernel = None if self.basis is None else self.basis.hyperparameters
        if kernel is None or self.n_seen < self.moved_at + self.plan.n_first_rows:
            return False
        expected = 2 * len(self.lowest) / (self.n_learned + 1)
        return outside > OUTSIDE + 2 * expected or square > SURPRISE

    def _set_units(self, location: FloatArray, scale: FloatArray) -> None:
        before, nothing = self.units, np.zeros(len(scale))
        units = Units.of_sums(location, scale, before.one_dimensional, before.transform, nothing)
        self.units = units.calibrated(before.calibration)

    def _learn_map(self) -> None:
        rows = self.rows_now(self.store)
        if len(rows) < FEWEST_ROWS:
            location, spread = weighted_location_scale(rows.y, rows.weight)
            self._set_units(location, np.where(spread > 0, spread, 1.0))
            # Of standardised targets, noise and prior have variance one until they are learned.
            self.regression = _regression(self.plan, self.basis, np.ones(len(spread)), np.ones(len(spread)))
        elif self.plan.window is not None or self.n_seen <= self.plan.n_first_rows:  # all that count
            self._set_map(rows)
        else:
            self._carry_over(rows)
            rows = self.rows_now(self.latest)
        self.regression.learn(self._block(rows))

    def _carry_over(self, sample: CodedRows) -> None:
        """Learn a new map, and what the earlier one knew at a sample of rows of all but the latest."""
        before, units, latest = self.regression, self.units, self.rows_now(self.latest)
        mean = units.location + units.scale * before.mean(self._block(sample).phi)
        n_before = max(before.n_samples - float(latest.weight.sum()), 0.0)
        squares = n_before * self.mean_noise * units.scale**2
        self._set_map(CodedRows(*(np.concatenate([getattr(own, n) for own in (sample, latest)]) for n in PARTS)))
        if n_before > 0:
            weight = sample.weight * (n_before / sample.weight.sum())
            self.regression.learn(self._block(replace(sample, y=mean, weight=weight)))
            self.regression.add_squares(squares / self.units.scale**2)

    def _set_map(self, rows: CodedRows) -> None:
        """Learn the feature map, units, noise and prior variance from rows."""
        plan, earlier = self.plan, None
        if len(rows) > 2 * plan.n_first_rows:
            rows = rows[np.linspace(0, len(rows) - 1, 2 * plan.n_first_rows).astype(np.intp)]
        # Rows that have all but faded still tell where inputs lie; their ranks would be infinite otherwise.
        weights = np.maximum(rows.weight, LEAST_SHARE * rows.weight.max())
        weight = None if (weights == 1).all() else weights
        if self.basis is not None and self.n_seen < min(plan.n_first_rows, 3 * self.searched_at):
            earlier = self.basis
        else:
            self.searched_at = self.n_seen
        table = self.book.table(rows.x)
        if plan.takes_tables:
            z = Units.fit(rows.y, weight, False)[1]
            with ignored(TableWarning) if self.basis is not None else nullcontext():  # what was said at the first map
                columns = plan.columns.encoding(table, z, weight)
        else:
            columns = ColumnEncoding.of_numbers(table.shape[1], table.names)
        given = GivenRows(columns.encode(table), rows.y, weight, self.units.one_dimensional, columns)
        ((model, _),) = fit_together([plan.mapper], [given], Progress(0), earlier)
        self.basis, self.residual_variance = model.basis.for_sums(MANY_ROWS), model.latent.residual_variance
        self._set_units(model.units.location, model.units.scale)
        inputs = self.basis.inputs(given.x)
        self.lowest, self.highest, self.n_learned = inputs.min(axis=0), inputs.max(axis=0), len(rows)
        self.n_watched, self.n_outside, self.squares = 0, 0, 0.0
        self.regression = _regression(plan, self.basis, model.mean_noise, model.latent.prior_scale**2)


def _regression(plan: StreamPlan, basis: Basis | None, noise: FloatArray, prior: FloatArray) -> AdaptiveRegression:
    """Return a regression of no rows."""
    factor = basis.factor if basis is not None and basis.sums_of_kernel else None
    n_functions = 0 if basis is None else basis.n_weights
    return AdaptiveRegression.empty(n_functions, noise, prior, plan.window is not None, factor)


def calibration_factor(squares: Any, weight: Any) -> Any:
    """Factor of predictive variances, from sums of squared errors and of their weights."""
    return (CALIBRATION_ROWS + squares) / (CALIBRATION_ROWS + weight)


def within_few(y: FloatArray) -> FloatArray:
    """Targets (n_rows, n_outputs), those few that are gross as near to the median as they count."""
    near = within_reach(y)
    far = int((near != y).any(axis=1).sum())
    return near if far <= len(y) / FEWEST_PER_OUTLIER else y
