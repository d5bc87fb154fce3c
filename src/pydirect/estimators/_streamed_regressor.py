"""Regressors fitted to data that exceed memory: one pass for a sample that fixes the feature map, one that sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pydirect._progress import Progress
from pydirect._validation import FloatArray, as_count, as_flag, as_number
from pydirect.estimators._growing import GrowingModel
from pydirect.features.basis import Basis
from pydirect.persistence.errors import FileFormatError
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.checkpoint import Checkpoint
from pydirect.streams.dask import DaskRun, is_dask
from pydirect.streams.rows import Rows
from pydirect.streams.run import StreamRun
from pydirect.streams.sources import as_source


class StreamedRegressor(GrowingModel):
    """Base of regressors whose rows need not fit into memory."""

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
        y : str, list of str, or array, optional
            Name of the target column, or a list of names, for files and Dask data frames; the targets for arrays; None
            for blocks.
        sample_weight : str or array, optional
            Like `y`.
        sample_rows : int, default=20_000
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

        Returns
        -------
        Self
            The model itself.

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
