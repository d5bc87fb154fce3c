"""What a stream keeps of its rows, and the feature map that it learns from them, again when they have moved."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.estimators._regressor import ProbabilisticRegressor
from pydirect.estimators._row_store import PARTS, Codebook, CodedRows, RowStore, sample_places
from pydirect.estimators._tables import TableModel
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.features.basis import Basis
from pydirect.features.inputs import weighted_location_scale
from pydirect.features.maps import MANY_ROWS
from pydirect.linear.adaptive import AdaptiveRegression, Block

# Rows at which the feature map is learned, until there are `n_first_rows`; with fewer there is a constant only.
FEWEST_ROWS = 8
# Rows after which it is seen whether the inputs have moved, and what share of them then lies outside of the range of
# those that the feature map was learned from: this, and twice what chance puts there.
WATCHED_ROWS, OUTSIDE = 128, 0.1
# Mean square of standardised errors of as many rows that tells of a function that has changed, and what a row counts at
# most.
SURPRISE, LARGEST_SQUARE = 2.0, 25.0
# Rows from which the kernel's hyperparameters are learned at most.
MOST_SEARCHED = 500
# Noise and prior variance of standardised targets until they are learned.
FIRST_NOISE, FIRST_PRIOR = 1.0, 1.0
# What is left of a row that has faded away.
LEAST_WEIGHT = 1e-30
LEAST_SHARE = 1e-6  # of the largest weight, where the feature map is learned
SECOND = np.timedelta64(1, "s")


class StreamMap(TableModel, ProbabilisticRegressor):
    """Base of the regressor of a stream: the rows that are kept, and the feature map.

    A subclass has the parameters of `pydirect.DirectStreamRegressor`.
    """

    features: Any
    n_basis_functions: int
    half_life: float | datetime.timedelta | None
    window: int | datetime.timedelta | None
    n_first_rows: int
    follow_inputs: bool
    length_scale: float | ArrayLike | None
    random_state: Any
    features_: Basis | None
    n_seen_: int
    _book: Codebook
    _regression: AdaptiveRegression
    _store: RowStore
    _latest: RowStore
    _now: float
    _seed: int
    _n_watched: int
    _n_outside: int
    _squares: float
    _n_learned: int
    _searched_at: int
    _moved_at: int
    _lowest: FloatArray
    _highest: FloatArray

    # --- rows

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
        if self.half_life is None or is_time(self.half_life):
            return np.inf
        return float(1 / -np.expm1(-np.log(2) / seconds(self.half_life)))

    def _holds_all(self) -> bool:
        """Whether all rows that count are kept."""
        return self.window is not None or self.n_seen_ <= self.n_first_rows

    def _rows_now(self, store: RowStore) -> CodedRows:
        """Return rows with what is left of their weights."""
        rows = store.rows
        if self.half_life is None:
            return rows
        left = np.exp2((rows.clock - self._now) / seconds(self.half_life))
        return CodedRows(rows.x, rows.y, np.maximum(left, LEAST_WEIGHT) * rows.weight, rows.clock)

    def _add_columns(self, n_columns: int) -> None:
        """Take in columns, without names, that no row had so far; they count once the feature map is learned again."""
        self.n_features_in_ += n_columns
        self._book.add_columns(n_columns)
        for store in (self._store, self._latest):
            store.add_columns(n_columns)

    # --- the feature map

    def _takes_tables(self) -> bool:
        return isinstance(self.features, str) and self.features != "precomputed"

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
            functions = np.ascontiguousarray(basis.functions(inputs, n_threads))
            phi = np.ascontiguousarray(basis.whitened(functions.copy() if basis.sums_of_kernel else functions))
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


def is_time(value: Any) -> bool:
    """Return whether a parameter is a time."""
    return isinstance(value, datetime.timedelta | np.timedelta64)


def seconds(value: Any) -> float:
    """Return a time in seconds, and any other value as it is."""
    if isinstance(value, np.timedelta64):
        return float(value / SECOND)
    return float(value.total_seconds()) if isinstance(value, datetime.timedelta) else float(value)
