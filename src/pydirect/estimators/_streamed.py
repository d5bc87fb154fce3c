"""Models whose feature map is fixed before the rows are passed over."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.estimators._basis import BasisFunctionModel
from pydirect.features.evidence import TrainingRows
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import Rows, StreamError


class FeatureMapWarning(UserWarning):
    """The rows that fixed the feature map do not tell all that it needs."""


class StreamedModel(BasisFunctionModel):
    """Base of estimators whose feature map can be fixed before the rows are passed over.

    A subclass provides ``_training_rows(rows)``.
    """

    block_dtype: str = "float64"
    verbose: int

    def _forget_all(self) -> None:
        """Forget rows and feature map."""
        for name in ("statistics_", "features_"):
            self.__dict__.pop(name, None)
        self._forget()

    def new_statistics(self, n_outputs: int = 1) -> RunningStatistics:
        """Return empty statistics of rows of X and y, for `fit_statistics`; they can be filled on any machine.

        Parameters
        ----------
        n_outputs : int
            Columns of y.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            When there is no feature map yet: `fit_features` first.
        ValueError
            When a parameter that the feature map depends on was changed after it.
        """
        check_is_fitted(self, "features_")
        self._require_same_features()
        return RunningStatistics.empty(self.features_, n_outputs, block_dtype=self.block_dtype)

    def _require_same_features(self) -> None:
        """Raise when parameters would now give another feature map than the model has."""
        changed = self._changed_parameters(self.features_.parameters)
        if changed:
            if changed[0] == "features" and isinstance(self.features, str) and self.features == "auto":
                changed[0] = "basis, by which features='auto' are chosen,"
            raise ValueError(
                f"{', '.join(changed)} must be as when the feature map was fixed: set what was there, or begin anew "
                "with fit"
            )

    def _warn_if_constant(self, x: FloatArray) -> None:
        constant = np.setdiff1d(np.arange(x.shape[1]), self.features_.input_map.kept)
        if constant.size:
            names = getattr(self, "feature_names_in_", [f"number {j}" for j in range(x.shape[1])])
            warnings.warn(
                f"{constant.size} of {x.shape[1]} columns are constant in the {len(x)} rows that fix the feature map, "
                f"the first of them {names[constant[0]]}: these columns are left out for good",
                FeatureMapWarning,
                stacklevel=4,
            )

    def _sample_seed(self) -> int:
        """Return the seed of the sample that fixes the feature map."""
        return int(self._generator().integers(2**63))

    def _fix_features_by(self, rows: Rows, names: list[str] | None, one_dimensional: bool) -> None:
        """Fix the feature map by a sample of checked rows."""
        if not len(rows) or (rows.weight is not None and not rows.weight.any()):
            raise StreamError("there are no rows that count")
        self._forget_all()
        self._set_input_names(rows.x.shape[1], names)
        self._one_dimensional = one_dimensional
        self._fix_features(self._training_rows(rows))

    def _training_rows(self, rows: Rows) -> TrainingRows:
        """Return checked rows as features are fitted to them."""
        raise NotImplementedError

    def _fix_features(self, rows: TrainingRows) -> None:
        """Fit the feature map, which then stays."""
        rows = replace(rows, x=np.ascontiguousarray(rows.x))
        with single_blas_thread():
            n_threads, scale = resolve_n_threads(self.n_threads), getattr(self, "y_scale_", None)
            self.features_ = self._fit_features(rows, self._generator(), n_threads, scale)
        self._warn_if_constant(rows.x)

    def _require_columns(self, n_columns: int, names: list[str] | None) -> None:
        """Compare columns with those of the feature map."""
        if n_columns != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} columns, as when features were fixed, got {n_columns}")
        known = getattr(self, "feature_names_in_", None)
        if known is not None and names is not None and list(known) != names:
            raise ValueError(
                f"X must have the columns {list(known)}, in this order, as when features were fixed, got {names}"
            )
