"""Incremental and out-of-core fits: data that grow, shrink, exceed memory, or are spread over several machines."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_count, as_flag, as_number, as_sample_weight
from pydirect.estimators._fitting import StatisticsModel, fit_to_statistics
from pydirect.features.basis import Basis
from pydirect.features.evidence import TrainingRows
from pydirect.persistence.errors import FileFormatError
from pydirect.statistics.running import RunningStatistics
from pydirect.statistics.standardised import Standardised
from pydirect.streams.checkpoint import Checkpoint
from pydirect.streams.dask import DaskRun, is_dask
from pydirect.streams.rows import Rows
from pydirect.streams.run import StreamRun
from pydirect.streams.sources import as_source


class ForgottenRowsWarning(UserWarning):
    """`partial_fit` does not count the rows of an earlier ``fit`` or of a model loaded from a file."""


class GrowingModel(StatisticsModel):
    """Base of regressors that need only statistics of the data.

    The feature map, with the scaling of the inputs and the kernel's hyperparameters, is fixed before the first row is
    counted and never changes afterwards, because the sums over rows are sums of its features. The location and scale of
    the targets need not be fixed: they follow exactly from the statistics.
    """

    # --- the feature map

    def fit_features(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the feature map to a sample, without counting its rows.

        Later calls of `partial_fit`, `fit_stream` with ``keep_features=True`` and `new_statistics` use this map. The
        sample should be representative of all the data: a column that is constant in the sample is dropped for good,
        and inputs far outside its range are far outside the range of the features too. If no kernel is to be learned,
        two rows that hold the known bounds of the columns are enough.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
        y : array_like of shape (n_samples,) or (n_samples, n_outputs), optional
            Required if the kernel's hyperparameters are learned: for ``"nystroem"`` and ``"fourier"`` features without
            a given `length_scale`.
        sample_weight : array_like of shape (n_samples,), optional

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
        """Update the fit with more rows (online learning); only statistics of the earlier rows are kept.

        The statistics equal those of all rows at once, to rounding, whatever the blocks and their order; so does the
        model, but for draws in the raw basis, of which rounding may change some.

        The first rows fix the feature map, unless `fit_features` has done so: there should be many of them, and they
        should resemble the later ones. After ``fit``, which keeps no statistics, its feature map is kept but its rows
        are not counted. From then on the parameters of the feature map must not change until the next `fit_features`
        or ``fit``.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts.
        decay : float in (0, 1], default=1.0
            Factor by which the weights of all earlier rows are first multiplied.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described; the rows are then not counted.

        Warns
        -----
        FeatureMapWarning
            If a column is constant in the rows that fix the feature map.
        ForgottenRowsWarning
            If the model was fitted to rows that are not counted: by ``fit``, or before it was loaded from a file.
        """
        decay = as_number(decay, "decay", above=0.0, at_most=1.0)
        self._check_parameters()
        self._check_without_rows()
        if hasattr(self, "posterior_") and not hasattr(self, "statistics_"):
            warnings.warn(
                "the rows of an earlier fit, or of a model from a file, are not counted: only their feature map is "
                "kept. Begin with partial_fit, or with fit_features to fit the feature map to a sample; to continue "
                "from statistics in a file, use fit_statistics",
                ForgottenRowsWarning,
                stacklevel=2,
            )
        if not hasattr(self, "features_"):
            x, _, standardised, weight = self._start_fit(X, y, sample_weight)
            self._fix_features(TrainingRows(x, standardised, weight))
        started = hasattr(self, "statistics_")
        part = self._statistics_of(X, y, sample_weight)
        statistics = part if not started else self.statistics_.copy().decay(decay).merge(part)
        self._fit_to(statistics, Progress(self.verbose))
        self._warn_if_unfinished()
        return self

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, decay: float = 1.0) -> Self:
        """Remove rows that were given to `partial_fit` (unlearning): fit as if they had never been seen.

        Exact up to rounding errors relative to the statistics before. The feature map stays the same, even if it was
        fitted to these rows.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array_like of shape (n_samples,), optional
            The weights that were given to `partial_fit`.
        decay : float in (0, 1], default=1.0
            How much these rows have decayed since: the product of the decays given to later calls of `partial_fit`.

        Raises
        ------
        ValueError
            If the rows cannot have been among those seen, or none would be left; nothing is then forgotten.
        """
        check_is_fitted(self, "statistics_", msg="This %(name)s has no statistics: call partial_fit first.")
        self._check_parameters()
        self._check_without_rows()
        part = self._statistics_of(X, y, sample_weight).decay(decay)
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

    def _statistics_of(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> RunningStatistics:
        if hasattr(self, "statistics_") and self.statistics_.block_dtype != self.block_dtype:
            before = self.statistics_.block_dtype
            raise ValueError(f"block_dtype must be {before!r}, as for the earlier rows, got {self.block_dtype!r}")
        x, given = self._validated(X, y, multi_output=True, y_numeric=True, reset=False)
        weight = as_sample_weight(sample_weight, len(x), all_zero=True)
        targets = np.asarray(given, dtype=np.float64)
        self._check_target_size(np.abs(targets).max())
        if not hasattr(self, "statistics_"):
            self._one_dimensional = targets.ndim == 1
        targets = targets.reshape(len(x), -1)
        n_outputs = self.statistics_.n_outputs if hasattr(self, "statistics_") else targets.shape[1]
        if targets.shape[1] != n_outputs:
            raise ValueError(f"y must have {n_outputs} outputs, as before, got {targets.shape[1]}")
        return self.new_statistics(n_outputs).update(
            self._encoded(x), targets, weight, n_threads=resolve_n_threads(self.n_threads)
        )

    def _fit_to(self, statistics: RunningStatistics, progress: Progress) -> None:
        """Set all fitted attributes from statistics."""
        unit = self.features_.target_scale
        if unit is not None and len(unit) != statistics.n_outputs:
            raise ValueError(
                f"y must have {len(unit)} outputs, as when the kernel's hyperparameters were learned, got "
                f"{statistics.n_outputs}"
            )
        fit_to_statistics([self], statistics, Standardised.of(statistics), progress)

    # --- data larger than memory

    def fit_stream(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        sample_rows: int = 20_000,
        keep_features: bool = False,
        drop_missing: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> Self:
        """Fit to data larger than memory (out-of-core learning), in two passes.

        The first pass checks every value and draws `sample_rows` rows uniformly, to which the feature map and its
        hyperparameters are fitted; the second sums the statistics. Both hold only a few blocks in memory at a time. An
        iterator that can be consumed only once is read once: the feature map is fitted to its first blocks, up to a
        total of `sample_rows` rows, which should be representative of the rest.

        Parameters
        ----------
        X : path, array, iterable or function
            A Parquet file or a folder of them, with columns of numbers and text; an array, usually memory-mapped
            (``numpy.load(..., mmap_mode="r")``); blocks ``(X, y)`` or ``(X, y, sample_weight)`` in a list, from an
            iterator, or from a function that returns a new iterator at every call; a Dask array or data frame, of
            complete numbers. Text is encoded as in ``fit``, with the categories of the rows that the feature map is
            fitted to.
        y : str, list of str, or array
            Name of the target column, or a list of names, for files and Dask data frames; the targets for arrays; None
            for blocks.
        sample_weight : str or array, optional
            Like `y`.
        sample_rows : int, default=20000
            Number of rows that the feature map is fitted to.
        keep_features : bool, default=False
            Keep the feature map of an earlier `fit_features` or ``fit`` and skip the first pass.
        drop_missing : bool, default=False
            Skip rows with a missing value. Otherwise missing values of `X` are taken as `missing` says, and all others
            raise an error.
        checkpoint : path-like, optional
            File to which the statistics so far and the feature map are saved. If it exists, the pass resumes after the
            rows that it counts, and the data must begin with the same rows as when it was written. The file is kept
            when the pass is complete: if files are then added to a folder, under names that sort last, the next call
            reads only these.
        checkpoint_seconds : float, default=60.0
            Time between writes of the checkpoint. It is also written at the end, on Ctrl-C and on errors in the data.

        Raises
        ------
        pydirect.StreamError
            If data cannot be read or used; the message says where they are.
        KeyboardInterrupt
            After Ctrl-C, once the current block is added and the checkpoint is written.
        OSError
            If the checkpoint cannot be written; the previous one is left intact.
        """
        self._check_parameters()
        self._check_without_rows()
        as_count(sample_rows, "sample_rows", 2)
        as_flag(keep_features, "keep_features")
        as_flag(drop_missing, "drop_missing")
        as_number(checkpoint_seconds, "checkpoint_seconds", at_least=0.0)
        if keep_features:
            check_is_fitted(self, "features_")
            self._require_same_features()
        progress = Progress(self.verbose)
        run: StreamRun | DaskRun
        if is_dask(X):
            if checkpoint is not None or drop_missing:
                raise ValueError("checkpoint and drop_missing must not be given for Dask, which has its own of each")
            run = DaskRun(X, y, sample_weight, progress)
        else:
            if checkpoint is not None and self._feature_kind() == "transformer":
                raise TypeError(
                    "features must be built in for a checkpoint, got a transformer: leave checkpoint out, or save "
                    "statistics of your own with RunningStatistics.save"
                )
            source = as_source(X, y, sample_weight, codes=self._codes())
            run = StreamRun(source, progress, self.n_threads, drop_missing, checkpoint, checkpoint_seconds)
        statistics = self._collected(run, sample_rows, keep_features)
        spread = np.sqrt(statistics.y_scatter / statistics.n_samples)
        self._check_target_size((np.abs(statistics.y_mean) + spread).max())
        self._fit_to(statistics, progress)
        self._warn_if_unfinished()
        return self

    def _collected(self, run: StreamRun | DaskRun, sample_rows: int, keep_features: bool) -> RunningStatistics:
        """Return statistics of all rows; their feature map is kept, from a checkpoint, or fitted to a sample."""
        saved = run.saved(Basis.from_fields) if isinstance(run, StreamRun) else None
        if isinstance(run, StreamRun) and saved is not None:
            assert isinstance(saved.statistics.features, Basis) and run.path is not None
            self._restore_features(run.path, saved, saved.statistics.features, keep_features)
            self._require_columns(run.shape[0], run.names)
            run.encode(self.columns_)
            return run.collected(saved.statistics, saved.n_rows)
        if keep_features:
            self._require_columns(run.shape[0], run.names)
            self._one_dimensional = run.one_dimensional
            self.__dict__.pop("statistics_", None)
        else:
            sample = run.sample(sample_rows, self._sample_seed())
            with run.uncounted("features"):
                self._fix_features_by(sample, run.names, run.one_dimensional, run.codes)
        n_outputs = run.shape[1]
        run.encode(self.columns_)
        return run.collected(self.new_statistics(n_outputs))

    def _restore_features(self, path: str | Path, saved: Checkpoint, basis: Basis, keep_features: bool) -> None:
        """Take over the feature map of a checkpoint; raise if the parameters describe a different one."""
        changed = self._changed_parameters(basis.parameters)
        if saved.statistics.block_dtype != self.block_dtype:
            changed.append("block_dtype")
        if changed:
            raise FileFormatError(
                path, f"the checkpoint is of a model with other parameters: {', '.join(changed)} changed"
            )
        if keep_features and basis != self.features_:
            raise FileFormatError(path, "the checkpoint is of other features than those to be kept")
        self._forget_all()
        if basis.columns is None:
            raise FileFormatError(path, "the checkpoint is not one of an estimator")
        self.columns_ = basis.columns
        self._set_input_names(self.columns_.n_columns, None if basis.names is None else list(self.columns_.names or ()))
        self.features_, self._one_dimensional = basis, saved.one_dimensional

    def _standardised(self, rows: Rows) -> FloatArray:
        return self._standardise_targets(rows.y, rows.weight)
