"""Base of models that are fitted to streams of rows: the feature map is fixed before the rows are summed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect._warnings import warn
from pydirect.estimators._basis import BasisFunctionModel
from pydirect.features.evidence import TrainingRows
from pydirect.features.maps import MANY_ROWS
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.codes import TableCodes
from pydirect.streams.rows import Rows, StreamError
from pydirect.streams.tables import Table

# Noise variance, of standardised targets, for which sums of a kernel with given length-scales are accurate.
LEAST_NOISE = 1e-3


class FeatureMapWarning(UserWarning):
    """The feature map was fixed by rows that do not represent all columns, or later rows."""


class StreamedModel(BasisFunctionModel):
    """Base of estimators whose feature map can be fixed before the pass over the rows.

    A subclass provides ``_standardised(rows)``.
    """

    block_dtype: str = "float64"
    verbose: int

    def _forget_all(self) -> None:
        """Discard the statistics, the feature map and the fit."""
        for name in ("statistics_", "features_"):
            self.__dict__.pop(name, None)
        self._forget()

    def new_statistics(self, n_outputs: int = 1) -> RunningStatistics:
        """Return empty statistics, to be updated with rows of X and y on any machine and given to `fit_statistics`.

        Parameters
        ----------
        n_outputs : int, default=1
            Number of columns of y.

        Returns
        -------
        RunningStatistics
            Statistics of no rows.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If there is no feature map yet: call `fit_features` first.
        ValueError
            If a parameter that the feature map depends on has changed since it was fitted.
        """
        check_is_fitted(self, "features_")
        self._require_same_features()
        return RunningStatistics.empty(self.features_, n_outputs, block_dtype=self.block_dtype)

    def _require_same_features(self) -> None:
        """Raise if the parameters now describe another feature map than the model has."""
        changed = self._changed_parameters(self.features_.parameters)
        if changed:
            if changed[0] == "features" and isinstance(self.features, str) and self.features == "auto":
                changed[0] = "basis, on which features='auto' depends,"
            raise ValueError(
                f"{', '.join(changed)} must be as when the feature map was fixed: restore the earlier value, or "
                "start again with fit"
            )

    def _warn_if_constant(self, x: FloatArray, stacklevel: int) -> None:
        constant = np.setdiff1d(np.arange(x.shape[1]), self.features_.input_map.kept)
        if constant.size:
            names = self._feature_names() or [f"number {j}" for j in range(x.shape[1])]
            warn(
                f"{constant.size} of {x.shape[1]} columns are constant in the {len(x)} rows that fix the feature map, "
                f"the first of them {names[constant[0]]}: these columns are dropped for good",
                FeatureMapWarning,
                stacklevel=stacklevel + 1,
            )

    def _sample_seed(self) -> int:
        """Return the seed of the sample that fixes the feature map."""
        return int(self._generator().integers(2**63))

    def _codes(self) -> TableCodes | None:
        """Return new codes of the text in a stream; None if X holds complete numbers only."""
        return TableCodes(self.missing != "raise") if self._takes_tables() else None

    def _fix_features_by(
        self, rows: Rows, names: list[str] | None, one_dimensional: bool, codes: TableCodes | None
    ) -> FloatArray:
        """Fit the encoder and the feature map to a sample of checked rows; return it encoded."""
        if not len(rows) or (rows.weight is not None and not rows.weight.any()):
            raise StreamError("there are no rows with positive weight")
        self._forget_all()
        self._set_input_names(rows.x.shape[1], names)
        self._one_dimensional = one_dimensional
        standardised = self._standardised(rows)
        table = Table.of_numbers(rows.x, names) if codes is None else codes.table(rows.x, names)
        x = self._fit_columns(table, standardised, rows.weight)
        self._fix_features(self._training_rows(Rows(x, rows.y, rows.weight), standardised))
        self._warn_if_constant(x, stacklevel=4)
        return x

    def _standardised(self, rows: Rows) -> FloatArray:
        """Return the targets of checked rows, standardised, or labels."""
        raise NotImplementedError

    def _training_rows(self, rows: Rows, standardised: FloatArray) -> TrainingRows:
        """Return encoded rows in the form that features are fitted to."""
        return TrainingRows(rows.x, standardised, rows.weight)

    def _fix_features(self, rows: TrainingRows) -> None:
        """Fit the feature map."""
        rows = replace(rows, x=np.ascontiguousarray(rows.x))
        with single_blas_thread():
            n_threads, scale = resolve_n_threads(self.n_threads), getattr(self, "y_scale_", None)
            basis = self._fit_features(rows, self._generator(), n_threads, scale)
        # Rows are read once, and of a kernel that was not learned nobody knows how small the noise is.
        self.features_ = basis if basis.search is not None else basis.for_sums(MANY_ROWS, LEAST_NOISE)

    def _require_columns(self, n_columns: int, names: list[str] | None) -> None:
        """Raise unless the columns are those of the feature map."""
        if n_columns != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} columns, as when features were fixed, got {n_columns}")
        known = getattr(self, "feature_names_in_", None)
        if known is not None and names is not None and list(known) != names:
            raise ValueError(
                f"X must have the columns {list(known)}, in this order, as when features were fixed, got {names}"
            )
