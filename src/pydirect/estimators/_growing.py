"""Incremental fits: rows that are added and removed, held while they are few and summed from then on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _num_samples, check_is_fitted

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_number, as_sample_weight
from pydirect._warnings import warn
from pydirect.estimators._fitting import StatisticsModel, fit_to_statistics
from pydirect.estimators._held_rows import HeldRows
from pydirect.estimators._streamed import FeatureMapWarning
from pydirect.features.basis import Basis
from pydirect.features.evidence import TrainingRows
from pydirect.persistence.fields import Arrays, Header, Writer, build_one
from pydirect.statistics.running import RunningStatistics
from pydirect.statistics.standardised import Standardised
from pydirect.streams.rows import Rows
from pydirect.streams.tables import Table

# Hyperparameters of held rows are learned again when there are this many times as many.
GROWTH = 1.5
# More than half of this many later rows lie farther from the mean than these deviations, in some column, only if they
# come from elsewhere: no more than one in nine of the rows that gave the mean does (Chebyshev).
WATCHED_ROWS, FAR = 50, 3.0


class GrowingModel(StatisticsModel):
    """Base of regressors that need only statistics of the data.

    Rows are held while they are few, and the model is fitted to all of them anew whenever some are added or removed.
    Later the feature map, with the scaling of the inputs and the kernel's hyperparameters, never changes, because the
    sums over rows are sums of its features. Location and scale of the targets follow exactly from the statistics.
    """

    held_rows_: HeldRows
    _rows_of_fit: HeldRows
    _n_watched: int = 0  # rows since it was last seen whether they have moved
    _n_far: NDArray[np.intp] | int = 0  # of them, by column

    # --- the feature map

    def fit_features(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the feature map to a sample, without counting its rows.

        Later calls of `partial_fit`, `fit_stream` with ``keep_features=True`` and `new_statistics` use this map, which
        then does not grow with the rows. The sample should be representative of all the data: a column that is constant
        in the sample is dropped for good, and inputs far outside its range are far outside the range of the features
        too. If no kernel is to be learned, two rows that hold the known bounds of the columns are enough.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs), optional
            Required if the kernel's hyperparameters are learned: for ``"nystroem"`` and ``"fourier"`` features without
            a given `length_scale`.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts; by default once.

        Returns
        -------
        self
            Not fitted yet.
        """
        self._check_parameters()
        if y is None:
            if self._needs_targets():
                raise ValueError(
                    "y must be given when the kernel's hyperparameters or the targets' transform are learned from it"
                )
            y = np.zeros(len(self._validated(X)))
        x, _, standardised, weight = self._start_fit(X, y, sample_weight)
        self._forget_all()
        self._fix_features(TrainingRows(x, standardised, weight))
        self._warn_if_constant(x, stacklevel=2)
        return self

    def _needs_targets(self) -> bool:
        """Whether what is fixed with the features depends on the targets."""
        return self._learns_kernel()

    # --- growing and shrinking

    def _check_without_rows(self) -> None:
        """Raise if a parameter asks for what sums over rows cannot give."""

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, decay: float = 1.0
    ) -> Self:
        """Update the fit with more rows (online learning).

        While there are few rows they are held, in ``held_rows_``: up to `n_basis_functions` or
        `max_hyperparameter_rows`, whichever is more. The model is then that of `fit` to all of them, also those of an
        earlier `fit`, but with the same noise everywhere and without local detail; the kernel's hyperparameters are
        learned again whenever the rows have become half as many more. The parameters may change meanwhile.

        With more rows, or after `fit_features`, the feature map is fixed, and only statistics of the rows are kept.
        They equal those of all rows at once, to rounding, whatever the blocks and their order; so does the model, but
        for draws in the raw basis, of which rounding may change some. The parameters of the feature map must not change
        until the next `fit_features` or `fit`.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row is repeated; weights count relative to each other, see `fit`, but for rows that
            are no longer held equal ones are not merged.
        decay : float in (0, 1], default=1.0
            Factor by which the weights of all earlier rows are first multiplied.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described, or neither rows nor statistics of an earlier fit are left;
            the rows are then not counted.

        Warns
        -----
        FeatureMapWarning
            If a column is constant in the rows that fix the feature map, or later rows are far from them.
        """
        decay = as_number(decay, "decay", above=0.0, at_most=1.0)
        self._check_parameters()
        self._check_without_rows()
        self._require_earlier_rows()
        held = self._held()
        if held is not None or not hasattr(self, "features_"):
            with self._all_or_nothing():
                block = self._checked_block(X, y, sample_weight, reset=held is None)
                self._fit_to_held(HeldRows.of(*block) if held is None else held.decayed(decay).joined(*block))
        else:
            started = hasattr(self, "statistics_")
            x, part = self._statistics_of(X, y, sample_weight)
            statistics = part if not started else self.statistics_.copy().decay(decay).merge(part)
            self._fit_to(statistics, Progress(self.verbose))
            self._warn_if_moved(x)
        self._warn_if_unfinished()
        return self

    def _warn_if_moved(self, x: FloatArray) -> None:
        """Warn if encoded rows lie where the feature map, which is fixed, has nothing to tell them apart."""
        if self.features_.hyperparameters is None:
            return
        inputs = self.features_.input_map
        far = np.abs(inputs.transform(x)[:, : inputs.n_standardised]) > FAR
        self._n_watched, self._n_far = self._n_watched + len(x), self._n_far + far.sum(axis=0)
        if self._n_watched < WATCHED_ROWS:
            return
        moved = inputs.kept[2 * self._n_far > self._n_watched]
        if moved.size:
            name = (self._feature_names() or [f"number {j}" for j in range(x.shape[1])])[moved[0]]
            warn(
                f"most of the latest rows are farther than {FAR:g} standard deviations from the mean of those that "
                f"fixed the feature map, in {moved.size} columns, the first of them {name}: it cannot follow them, and "
                "predictions level off there. Begin again with fit, or with fit_features on rows like all of these",
                FeatureMapWarning,
                stacklevel=3,
            )
        del self._n_watched, self._n_far

    def _require_earlier_rows(self) -> None:
        """Raise if the model was fitted to rows of which nothing is left."""
        if hasattr(self, "posterior_") and not hasattr(self, "statistics_") and self._held() is None:
            raise ValueError(
                "the earlier rows must be known to go on, but files hold none of a fit, fit_many and searches keep "
                f"none, and fit no more than {self._most_held_rows():,}: begin with partial_fit or fit_stream, give "
                "statistics to fit_statistics, or drop the earlier rows by fit_features"
            )

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, decay: float = 1.0) -> Self:
        """Remove rows that were given to `partial_fit` (unlearning): fit as if they had never been seen.

        Exact while rows are held, see `partial_fit`. Later exact up to rounding errors relative to the statistics
        before, with the same feature map, even if it was fitted to these rows.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_samples,), optional
            The weights that were given to `partial_fit`.
        decay : float in (0, 1], default=1.0
            How much these rows have decayed since: the product of the decays given to later calls of `partial_fit`.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            If the rows cannot have been among those seen, or none would be left; nothing is then forgotten.
        """
        self._check_parameters()
        self._check_without_rows()
        held = self._held()
        if held is not None:
            decay = as_number(decay, "decay", above=0.0, at_most=1.0)
            with self._all_or_nothing():
                block = self._checked_block(X, y, sample_weight)
                self._fit_to_held(held.without(*block, decay), learn=True)
            self._warn_if_unfinished()
            return self
        check_is_fitted(self, "statistics_", msg="This %(name)s has no statistics: call partial_fit first.")
        part = self._statistics_of(X, y, sample_weight)[1].decay(decay)
        left = self.statistics_.copy().subtract(part)
        if not left.n_samples:
            raise ValueError("X must leave some of the rows seen, got all of them")
        self._fit_to(left, Progress(self.verbose))
        self._warn_if_unfinished()
        return self

    def fit_statistics(self, statistics: RunningStatistics) -> Self:
        """Fit to statistics of rows, filled from `new_statistics` of this model or one with the same feature map.

        Parameters
        ----------
        statistics : RunningStatistics
            Collected on this or any other machine; kept as ``statistics_``, so that `partial_fit` can continue.

        Raises
        ------
        ValueError
            If the statistics are of another feature map, or empty.
        """
        check_is_fitted(self, "features_")
        self._check_parameters()
        self._check_without_rows()
        if not isinstance(statistics, RunningStatistics):
            raise TypeError(f"statistics must be RunningStatistics, got {type(statistics).__name__}")
        self._require_same_features()
        statistics = statistics.with_features(self.features_)
        if not hasattr(self, "_one_dimensional") or (statistics.n_outputs > 1 and self._one_dimensional):
            self._one_dimensional = statistics.n_outputs == 1
        self._fit_to(statistics, Progress(self.verbose))
        self._warn_if_unfinished()
        return self

    def _statistics_of(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[FloatArray, RunningStatistics]:
        """Return encoded rows and their statistics."""
        if hasattr(self, "statistics_") and self.statistics_.block_dtype != self.block_dtype:
            before = self.statistics_.block_dtype
            raise ValueError(f"block_dtype must be {before!r}, as for the earlier rows, got {self.block_dtype!r}")
        table, targets, weight = self._checked_block(X, y, sample_weight)
        x, statistics = self._encoded(table), self.new_statistics(targets.shape[1])
        return x, statistics.update(x, targets, weight, n_threads=resolve_n_threads(self.n_threads))

    def _fit_to(self, statistics: RunningStatistics, progress: Progress, repetitions: float | None = None) -> None:
        """Set all fitted attributes from statistics."""
        unit = self.features_.target_scale
        if unit is not None and len(unit) != statistics.n_outputs:
            raise ValueError(
                f"y must have {len(unit)} outputs, as when the kernel's hyperparameters were learned, got "
                f"{statistics.n_outputs}"
            )
        fit_to_statistics([self], statistics, Standardised.of(statistics, repetitions), progress)
        self._forget_held()

    # --- rows that are held

    def _most_held_rows(self) -> int:
        """Return the number of rows up to which they are held: enough for all that the feature map learns."""
        return max(self.n_basis_functions, self.max_hyperparameter_rows)

    def _held(self) -> HeldRows | None:
        """Return all earlier rows, while they are few."""
        return getattr(self, "held_rows_", getattr(self, "_rows_of_fit", None))

    def _hold(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        """Hold the rows of a fit if they are few: `partial_fit` may follow."""
        if _num_samples(X) <= self._most_held_rows():
            rows = HeldRows.of(*self._checked_block(X, y, sample_weight))
            self._rows_of_fit = replace(rows, n_learned=len(rows))

    def _checked_block(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool = False
    ) -> tuple[Table, FloatArray, FloatArray | None]:
        """Return a block of rows as a table, targets (n_rows, n_outputs) and weights (n_rows,)."""
        x, given = self._validated(X, y, multi_output=True, y_numeric=True, reset=reset)
        weight = as_sample_weight(sample_weight, len(x), all_zero=not reset)
        targets = np.asarray(given, dtype=np.float64)
        self._check_target_size(np.abs(targets).max())
        earlier, held = getattr(self, "statistics_", None), self._held()
        if earlier is None and held is None:
            self._one_dimensional = targets.ndim == 1
        targets = targets.reshape(len(x), -1)
        n_outputs = held.y.shape[1] if held else earlier.n_outputs if earlier else targets.shape[1]
        if targets.shape[1] != n_outputs:
            raise ValueError(f"y must have {n_outputs} outputs, as before, got {targets.shape[1]}")
        if not isinstance(x, Table):
            x = Table.of_numbers(x, list(getattr(self, "feature_names_in_", ())) or None)
        return x, targets, weight

    def _fit_to_held(self, held: HeldRows, learn: bool = False) -> None:
        """Fit anew to all rows, which are held unless they are many.

        `learn`: whether hyperparameters are learned even if the earlier ones are of enough rows.
        """
        many = len(held) > self._most_held_rows()
        earlier: Basis | None = getattr(self, "features_", None)
        learn |= many or len(held) >= GROWTH * held.n_learned
        learn |= earlier is None or bool(self._changed_parameters(earlier.parameters))
        progress = Progress(self.verbose)
        self._forget_all()
        self._earlier = None if learn else earlier
        weight = None if (held.weight == 1).all() else held.weight
        with progress.stage("features"):
            standardised = self._standardise_targets(held.y, weight)
            rows = Rows(self._fit_columns(held.table, standardised, weight), held.y, weight)
            self._fix_features(self._training_rows(rows, standardised))
        learn = self._earlier is None  # also where those of earlier columns or targets did not fit
        del self._earlier
        with progress.stage("statistics"):
            n_threads = resolve_n_threads(self.n_threads)
            statistics = self.new_statistics(held.y.shape[1]).update(rows.x, rows.y, rows.weight, n_threads=n_threads)
            statistics.n_rows = float(held.count.sum())  # rows fade with their weights
        # Rows that have faded are no copies: their weights tell how much of each is left.
        faded = (held.count != 1).any()
        counts = TrainingRows(rows.x, held.y, held.weight).counts
        self._fit_to(statistics, progress, None if faded else counts.repetitions)
        if many:
            self._warn_if_constant(rows.x, stacklevel=3)
        else:
            self.held_rows_ = replace(held, n_learned=len(held) if learn else held.n_learned)

    def _forget_held(self) -> None:
        for name in ("held_rows_", "_rows_of_fit"):
            self.__dict__.pop(name, None)

    def _forget_all(self) -> None:
        super()._forget_all()
        self._forget_held()
        for name in ("_n_watched", "_n_far"):
            self.__dict__.pop(name, None)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave the model as it was if anything fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        held, statistics = getattr(self, "held_rows_", None), None
        if held is None and hasattr(self, "statistics_"):
            statistics, arrays = self.statistics_.to_document()
            writer.arrays |= {f"statistics.{name}": array for name, array in arrays.items()}
        return {
            **super()._to_fields(writer),
            "held_rows": None if held is None else writer.fields(held, "held_rows"),
            "statistics": statistics,
        }

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        if header["held_rows"] is not None:
            held = build_one((HeldRows,), header["held_rows"], arrays, "held_rows")
            if held.x.shape[1] != self.n_features_in_ or held.y.shape[1] != len(self.posteriors_):
                raise ValueError("held rows do not fit the model")
            self.held_rows_ = held
        if header["statistics"] is not None:
            own = {name.removeprefix("statistics."): a for name, a in arrays.items() if name.startswith("statistics.")}
            statistics = RunningStatistics.from_document(header["statistics"], own)
            if statistics.n_outputs != len(self.posteriors_) or not statistics.n_samples > 0:
                raise ValueError("statistics do not fit the model")
            self.statistics_ = statistics.with_features(self.features_)
