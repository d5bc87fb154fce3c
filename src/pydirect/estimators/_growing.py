"""Fitting to data that grow, shrink, do not fit into memory, or lie on several machines."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect._validation import as_count, as_flag, as_number, as_sample_weight
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
    """Rows that a model was fitted to do not count in what it grows into."""


class GrowingModel(StatisticsModel):
    """Base of regressors that need only statistics of the data.

    The feature map, with the scaling of the inputs and the kernel's hyperparameters, is fixed before the first row is
    counted and never moves again, or sums over rows would mean nothing. Location and scale of the targets are not: they
    follow exactly from the statistics.
    """

    # --- the feature map

    def fit_features(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fix the feature map by a sample, without counting its rows.

        What comes after (`partial_fit`, `fit_stream` with ``keep_features=True``, `new_statistics`) uses this map. The
        sample should look like all of the data: a column that is constant in it is left out for good, and inputs far
        outside it are far outside for the features too. Two rows with known bounds are a sample, where no kernel is to
        be learned.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
        y : array_like of shape (n_samples,) or (n_samples, n_outputs), optional
            Needed where the kernel's hyperparameters are learned: for ``"nystroem"`` and ``"fourier"`` features without
            a given `length_scale`.
        sample_weight : array_like of shape (n_samples,), optional

        Returns
        -------
        self
            Not fitted yet.
        """
        self._check_parameters()
        if y is None:
            if self._learns_kernel():
                raise ValueError("y must be given where the kernel's hyperparameters are learned from it")
            x = validate_data(self, X, dtype=np.float64)
            y = np.zeros(len(x))
        x, _, standardised, weight = self._start_fit(X, y, sample_weight)
        self._forget_all()
        self._fix_features(TrainingRows(x, standardised, weight))
        return self

    # --- growing and shrinking

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, decay: float = 1.0
    ) -> Self:
        """Fit to these rows and all earlier ones, of which only statistics are kept.

        Statistics equal those of all rows at once, to rounding, in whatever blocks and order these came. In the
        decorrelated basis so does the posterior. In the raw basis, whose optima are local, inference starts at the last
        posterior, and may end in another optimum than a fit to all rows at once:
        ``model.fit_statistics(model.statistics_)`` starts afresh.

        The first rows fix the feature map, unless `fit_features` has done so: they should be many, and look like what
        will come. After ``fit``, which keeps no statistics, its feature map is kept but its rows do not count.
        Parameters of the feature map must then stay as they are, until `fit_features` or ``fit``.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts.
        decay : float in (0, 1], default=1.0
            Factor on the weights of all earlier rows.

        Raises
        ------
        ValueError, TypeError
            When the data or a parameter is not as described; the rows are then not counted.

        Warns
        -----
        FeatureMapWarning
            When a column is constant in the rows that fix the feature map.
        ForgottenRowsWarning
            When the model is fitted to rows that will not count: after ``fit``, or from a file.
        """
        decay = as_number(decay, "decay", above=0.0, at_most=1.0)
        self._refuse_held_out()
        self._check_parameters()
        if hasattr(self, "posterior_") and not hasattr(self, "statistics_"):
            warnings.warn(
                "the rows of an earlier fit, or of a model from a file, are not counted: their feature map alone is "
                "kept. Begin with partial_fit, or with fit_features to fix the feature map by a sample; statistics in "
                "a file go on with fit_statistics",
                ForgottenRowsWarning,
                stacklevel=2,
            )
        if not hasattr(self, "features_"):
            x, _, standardised, weight = self._start_fit(X, y, sample_weight)
            self._fix_features(TrainingRows(x, standardised, weight))
        started = hasattr(self, "statistics_")
        part = self._statistics_of(X, y, sample_weight)
        warm = started and hasattr(self, "posterior_")
        statistics = part if not started else self.statistics_.copy().decay(decay).merge(part)
        self._fit_to(statistics, Progress(self.verbose), warm)
        self._warn_if_unfinished()
        return self

    def forget(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, *, decay: float = 1.0) -> Self:
        """Fit as if these rows, which were given to `partial_fit`, had never been seen.

        Exact to rounding of what there was. The feature map stays, even when it came from these rows.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array_like of shape (n_samples,), optional
            As it was given.
        decay : float in (0, 1], default=1.0
            Factor on the weights of these rows since: the product of the decays given to later `partial_fit`.

        Raises
        ------
        ValueError
            When rows cannot have been among those seen, or none would be left; nothing is then forgotten.
        """
        check_is_fitted(self, "statistics_", msg="This %(name)s has no statistics: only partial_fit and its like can.")
        self._refuse_held_out()
        self._check_parameters()
        part = self._statistics_of(X, y, sample_weight).decay(decay)
        left = self.statistics_.copy().subtract(part)
        if not left.n_samples:
            raise ValueError("X must leave some of the rows seen: these are all, and no row would be left")
        self._fit_to(left, Progress(self.verbose), warm=True)
        self._warn_if_unfinished()
        return self

    def fit_statistics(self, statistics: RunningStatistics) -> Self:
        """Fit to statistics of rows of X and y, from `new_statistics` of this model or one with its feature map.

        Parameters
        ----------
        statistics : RunningStatistics
            From this or any machine; kept as ``statistics_``, so that `partial_fit` can go on.

        Raises
        ------
        ValueError
            When the statistics are of another feature map, or empty.
        """
        check_is_fitted(self, "features_")
        self._refuse_held_out()
        self._check_parameters()
        if not isinstance(statistics, RunningStatistics):
            raise TypeError(f"statistics must be RunningStatistics, got {type(statistics).__name__}")
        self._require_same_features()
        statistics = statistics.with_features(self.features_)
        if not hasattr(self, "_one_dimensional") or (statistics.n_outputs > 1 and self._one_dimensional):
            self._one_dimensional = statistics.n_outputs == 1
        self._fit_to(statistics, Progress(self.verbose), warm=False)
        self._warn_if_unfinished()
        return self

    def _refuse_held_out(self) -> None:
        noise = getattr(self, "noise", None)
        if isinstance(noise, str) and noise == "held_out":
            raise ValueError(
                "noise must not be 'held_out' where only statistics are kept, which hold no rows out: 'evidence' and "
                "'elbo' need none"
            )

    def _statistics_of(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> RunningStatistics:
        if hasattr(self, "statistics_") and self.statistics_.block_dtype != self.block_dtype:
            before = self.statistics_.block_dtype
            raise ValueError(f"block_dtype must be {before!r}, as of the rows before, got {self.block_dtype!r}")
        x, given = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=False)
        weight = as_sample_weight(sample_weight, len(x), all_zero=True)
        targets = np.asarray(given, dtype=np.float64)
        self._check_target_size(np.abs(targets).max())
        if not hasattr(self, "statistics_"):
            self._one_dimensional = targets.ndim == 1
        targets = targets.reshape(len(x), -1)
        n_outputs = self.statistics_.n_outputs if hasattr(self, "statistics_") else targets.shape[1]
        if targets.shape[1] != n_outputs:
            raise ValueError(f"y must have {n_outputs} outputs, as before, got {targets.shape[1]}")
        return self.new_statistics(n_outputs).update(x, targets, weight, n_threads=resolve_n_threads(self.n_threads))

    def _fit_to(self, statistics: RunningStatistics, progress: Progress, warm: bool) -> None:
        """Set everything that follows from statistics."""
        unit = self.features_.target_scale
        if unit is not None and len(unit) != statistics.n_outputs:
            raise ValueError(
                f"y must have {len(unit)} outputs, as when the kernel's hyperparameters were learned, got "
                f"{statistics.n_outputs}"
            )
        fit_to_statistics([self], statistics, Standardised.of(statistics), progress, warm=warm)

    # --- data that do not fit into memory

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
        """Fit to data that need not fit into memory, in two passes.

        The first pass draws `sample_rows` rows uniformly, which fix the feature map and its hyperparameters, and checks
        every value; the second adds up statistics. Both hold a few blocks at a time. An iterator that can be gone
        through only once is read once: its first blocks, of `sample_rows` rows together, fix the feature map, and
        should look like the rest.

        Parameters
        ----------
        X : path, array, iterable or function
            A Parquet file or a folder of them, which must hold numbers; an array, usually one mapped from a file
            (``numpy.load(..., mmap_mode="r")``); blocks ``(X, y)`` or ``(X, y, sample_weight)`` in a list, from an
            iterator, or from a function that returns a new iterator at every call; a Dask array or data frame.
        y : str, list of str, or array
            Name of the target column, or a list of names, for files and data frames of Dask; targets for arrays; None
            for blocks.
        sample_weight : str or array, optional
            As `y`.
        sample_rows : int, default=20000
            Rows that fix the feature map.
        keep_features : bool, default=False
            Keep the feature map of an earlier `fit_features` or fit: there is no first pass.
        drop_missing : bool, default=False
            Leave out rows with NaN, which are an error otherwise.
        checkpoint : path-like, optional
            File that keeps what has been summed, with the feature map. When it is there, the pass goes on after the
            rows that it counts; the data must begin with the same rows as then. The file stays after the end: a folder
            to which files were added (by later names) is then read from there on.
        checkpoint_seconds : float, default=60.0
            Time between two writes of it. It is written at the end, on Ctrl-C and on errors in the data too.

        Raises
        ------
        pydirect.StreamError
            When data cannot be read or used, with the place.
        KeyboardInterrupt
            After Ctrl-C, once the block at hand is added and the checkpoint written.
        OSError
            When the checkpoint cannot be written; the one written before is whole.
        """
        self._refuse_held_out()
        self._check_parameters()
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
                raise ValueError("checkpoint and drop_missing must not be given for Dask, which has its own of both")
            run = DaskRun(X, y, sample_weight, progress)
        else:
            if checkpoint is not None and self._feature_kind() == "transformer":
                raise TypeError(
                    "features must be built in for a checkpoint, got a transformer: leave checkpoint out, or save "
                    "statistics of your own with RunningStatistics.save"
                )
            source = as_source(X, y, sample_weight)
            run = StreamRun(source, progress, self.n_threads, drop_missing, checkpoint, checkpoint_seconds)
        statistics = self._collected(run, sample_rows, keep_features)
        spread = np.sqrt(statistics.y_scatter / statistics.n_samples)
        self._check_target_size((np.abs(statistics.y_mean) + spread).max())
        self._fit_to(statistics, progress, warm=False)
        self._warn_if_unfinished()
        return self

    def _collected(self, run: StreamRun | DaskRun, sample_rows: int, keep_features: bool) -> RunningStatistics:
        """Return the statistics of all rows, on the feature map that is kept, of the checkpoint or of a sample."""
        saved = run.saved(Basis.from_fields) if isinstance(run, StreamRun) else None
        if isinstance(run, StreamRun) and saved is not None:
            assert isinstance(saved.statistics.features, Basis) and run.path is not None
            self._restore_features(run.path, saved, saved.statistics.features, keep_features)
            self._require_columns(run.shape[0], run.names)
            return run.collected(saved.statistics, saved.n_rows)
        if keep_features:
            self._require_columns(run.shape[0], run.names)
            self._one_dimensional = run.one_dimensional
            self.__dict__.pop("statistics_", None)
        else:
            sample = run.sample(sample_rows, self._sample_seed())
            with run.uncounted("features"):
                self._fix_features_by(sample, run.names, run.one_dimensional)
        return run.collected(self.new_statistics(run.shape[1]))

    def _restore_features(self, path: str | Path, saved: Checkpoint, basis: Basis, keep_features: bool) -> None:
        """Take the feature map of a checkpoint; raise when it is another than the parameters describe."""
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
        self._set_input_names(basis.n_features_in, None if basis.names is None else list(basis.names))
        self.features_, self._one_dimensional = basis, saved.one_dimensional

    def _training_rows(self, rows: Rows) -> TrainingRows:
        return TrainingRows(rows.x, self._standardise_targets(rows.y, rows.weight), rows.weight)
