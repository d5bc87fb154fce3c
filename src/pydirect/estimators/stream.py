"""`Stream`: where a stream of rows stands, what it keeps of them, the feature map that it learns again as they move."""

from __future__ import annotations

import copy
import datetime
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect._warnings import ignored, level_of_user
from pydirect.estimators.choices import RegressionPlan
from pydirect.estimators.regression import GivenRows, fit_together
from pydirect.features.basis import Basis
from pydirect.features.maps import MANY_ROWS
from pydirect.fitted.predictor import Predictor, Units
from pydirect.linear.adaptive import AdaptiveRegression, Block, with_constant
from pydirect.persistence.schema import AtLeast, Binds, Shape
from pydirect.statistics.gaussian import weighted_location_scale
from pydirect.statistics.window import faded_sums
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
CALIBRATION_HALF_LIFE, CALIBRATION_ROWS = 50, 20
# What the squared error of one row counts at most there: twenty deviations.
LARGEST_CALIBRATION = 400.0
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


class Stream(Predictor):
    """Learns from rows as they come and predicts; ``basis`` is None until the feature map is learned."""

    def __init__(
        self, plan: StreamPlan, x: FloatArray, targets: FloatArray, one_dimensional: bool, book: Codebook
    ) -> None:
        self.plan, self.book = plan, book
        self.n_seen, self.now = 0, -np.inf
        self.seed = int(plan.mapper.generators()[0].integers(2**31))
        self.store, self.latest = (RowBuffer.empty(x.shape[1], targets.shape[1], book) for _ in range(2))
        self.score_sum = self.score_weight = self.calibration_sum = self.calibration_weight = 0.0
        self.n_watched, self.n_outside, self.squares = 0, 0, 0.0
        self.n_learned, self.searched_at, self.moved_at = 0, 0, 0
        self.learn_at: list[int] = []
        self.lowest = self.highest = np.empty(0)
        self.basis: Basis | None = None
        self.residual_variance = 0.0
        self.units = Units(targets[0].copy(), np.ones(targets.shape[1]), one_dimensional)
        self.regression = self._new_regression()

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
    def posteriors(self) -> list[Any]:
        return self.regression.posteriors

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
        return [(np.ones(1), np.full((len(x), 1), noise)) for noise in self.mean_noise]

    def noise_draws(self, x: FloatArray, k: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return np.full((1, n_samples), self.mean_noise[k])

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
            end = min(len(rows), begin + self._rows_at_once(len(rows) - begin, predict))
            part = rows[begin:end]
            moments = self._take(part, predict)
            if moments is not None and self.n_seen - len(part) >= 2:
                found[:, begin:end] = self._scored(*moments, part.y)
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

    def _take(self, rows: CodedRows, predict: bool) -> tuple[FloatArray, FloatArray] | None:
        """Take in rows one by one, or together where nothing is predicted; moments of y before each."""
        if not len(rows):
            return None
        small = len(rows) <= max(WATCHED_ROWS, self.regression.n_functions // 2)
        one_by_one = predict or (small and not self.regression.is_stale)
        block = self._block(rows, watch=True, sums_only=not one_by_one)
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
            mean, variance = self.regression.predict_then_learn(block, decay, leaving, n_left)
            squares = (block.y - mean) ** 2 / variance
            self.squares += float(np.minimum(squares, LARGEST_SQUARE).mean(axis=1).sum())
            if self.n_seen < 2:  # their scale is not known yet
                squares[...] = 1.0
            factors = self._calibration_of(np.minimum(squares, LARGEST_CALIBRATION).mean(axis=1))
            moments = mean, variance * factors[:, None]
        else:
            self._calibration_of(np.ones(len(rows)))
            self.regression.learn(block, decay)
            if leaving is not None:
                self.regression.leave(leaving)
        self.n_seen += len(rows)
        self.now = float(rows.clock[-1])
        return moments if predict else None

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

    def _keep(self, rows: CodedRows) -> None:
        """Keep the rows, or some of them."""
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
            rows = rows[room:]
        size, first = len(self.store), self.n_seen + max(room, 0)
        n_samples = np.minimum(self.regression.n_samples + 1.0 + np.arange(len(rows)), self._most_samples())
        places = sample_places(self.seed, first, len(rows), size, size / n_samples)
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

    def forget(self, rows: CodedRows, ages: FloatArray | None) -> None:
        """Remove rows, which came `ages` ago where rows fade and not all are kept."""
        places, latest = (store.places_of(rows.x, rows.y, rows.weight) for store in (self.store, self.latest))
        if self.keeps_all:
            if (places < 0).any():
                row = int(np.flatnonzero(places < 0)[0])
                raise ValueError(f"X and y must be of rows that count, with their weights: row {row} is none of them")
            if ages is not None:
                raise ValueError("age must be None while all rows are kept")
            rows = self.rows_now(self.store)[places]
        elif self.plan.half_life is not None:
            if ages is None:
                raise ValueError("age must be given with half_life: how long ago each row came")
            left = np.exp2(-ages / seconds(self.plan.half_life))
            rows = CodedRows(rows.x, rows.y, rows.weight * left, np.zeros(len(rows)))
        self.regression.remove(self._block(rows), places if self.plan.window is not None else None)
        self.store.remove(places[places >= 0])
        self.latest.remove(latest[latest >= 0])

    def merge(self, other: Stream) -> None:
        """Add the rows of another stream of the same feature map."""
        if other is self or self.basis is None or self.basis != other.basis:
            raise ValueError("other must be another model with the same feature map: begin with copies of one model")
        if self.plan.window is not None or other.plan.window is not None:
            raise ValueError("window must be None to merge: it is not known which rows leave next")
        half_life, units, theirs = self.plan.half_life, self.units, other.units
        if half_life != other.plan.half_life:
            raise ValueError(f"other must have half_life={half_life!r}, got {other.plan.half_life!r}")
        if units.n_outputs != theirs.n_outputs:
            raise ValueError(f"other must have {units.n_outputs} outputs, got {theirs.n_outputs}")
        location, scale = (theirs.location - units.location) / units.scale, theirs.scale / units.scale
        ahead, others, rows = other.now - self.now, other.regression, other.store.rows
        if is_time(half_life):
            share = float(np.exp2(-abs(ahead) / seconds(half_life)))
            others = others if ahead > 0 else copy.deepcopy(others).fade(share)
            self.regression.fade(share if ahead > 0 else 1.0)
            self.now = max(self.now, other.now)
        else:  # the latest row of either counts as the latest of both
            rows = replace(rows, clock=rows.clock - ahead)
        self.regression.merge(others, location, scale)
        self.n_seen += other.n_seen
        self._keep(rows)

    def empty(self) -> None:
        """Drop all rows, and keep the feature map."""
        self.regression = self._new_regression(self.regression.noise, self.regression.prior)
        self.store, self.latest = (RowBuffer(store.rows[:0], self.book) for store in (self.store, self.latest))

    # --- scores

    def _calibration_of(self, squares: FloatArray) -> FloatArray:
        """Factors of the variances of rows before each, from squares of standardised errors, (n_rows,)."""
        kept = 0.5 ** (1 / CALIBRATION_HALF_LIFE)
        before = np.array([self.calibration_sum, self.calibration_weight])
        sums, weights = (
            faded_sums(new, kept, own) for new, own in zip((squares, np.ones(len(squares))), before, strict=True)
        )
        factors = (CALIBRATION_ROWS + np.append(before[0], sums)) / (CALIBRATION_ROWS + np.append(before[1], weights))
        self.calibration_sum, self.calibration_weight = float(sums[-1]), float(weights[-1])
        self.units = self.units.calibrated(float(np.sqrt(factors[-1])))
        return np.asarray(factors[:-1])

    def _scored(self, mean: FloatArray, variance: FloatArray, y: FloatArray) -> FloatArray:
        """Means, deviations and log densities of rows in y's units, which count in the score."""
        mean, std = self.units.location + self.units.scale * mean, self.units.scale * np.sqrt(variance)
        log_density = -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
        kept = 0.5 ** (1 / self._memory())
        shares = kept ** np.arange(len(y))[::-1]
        self.score_sum = kept ** len(y) * self.score_sum + float(shares @ log_density.sum(axis=1))
        self.score_weight = kept ** len(y) * self.score_weight + float(shares.sum())
        return np.stack([mean, std, log_density])

    def _memory(self) -> float:
        """Rows after which a score counts half."""
        for own in (self.plan.half_life, self.plan.window):
            if own is not None and not is_time(own):
                return seconds(own)
        return float(self.plan.n_first_rows)

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
            self.units = replace(self.units, location=location, scale=np.where(spread > 0, spread, 1.0))
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
        self.units = model.units.calibrated(self.units.calibration)
        inputs = self.basis.inputs(given.x)
        self.lowest, self.highest, self.n_learned = inputs.min(axis=0), inputs.max(axis=0), len(rows)
        self.n_watched, self.n_outside, self.squares = 0, 0, 0.0
        self.regression = self._new_regression(model.mean_noise, model.latent.prior_scale**2)

    def _new_regression(self, noise: FloatArray | None = None, prior: FloatArray | None = None) -> AdaptiveRegression:
        k, basis = self.units.n_outputs, self.basis
        return AdaptiveRegression(
            0 if basis is None else basis.n_weights,
            np.full(k, FIRST_NOISE) if noise is None else noise,
            np.full(k, FIRST_PRIOR) if prior is None else prior,
            self.plan.window is not None,
            basis.factor if basis is not None and basis.sums_of_kernel else None,
        )


def is_time(value: Any) -> bool:
    """Whether a value is a duration, rather than a number of rows."""
    return isinstance(value, datetime.timedelta | np.timedelta64)


def seconds(value: Any) -> float:
    """Seconds of a time, or a number of rows as it is."""
    if isinstance(value, np.timedelta64):
        return float(value / SECOND)
    return float(value.total_seconds()) if isinstance(value, datetime.timedelta) else float(value)
