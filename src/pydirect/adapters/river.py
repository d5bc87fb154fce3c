"""`RiverRegressor`: a stream regressor as river's pipelines, metrics and evaluations use one, row by row."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sklearn.base import clone

from pydirect._warnings import ignored
from pydirect.estimators.direct_stream import DirectStreamRegressor
from pydirect.tables.columns import TableWarning

try:
    from river import base, proba, utils
except ImportError:
    raise ImportError('RiverRegressor requires river. Install it with: pip install "pydirect[river]"') from None

KINDS = (float, int, str, np.number, np.bool_)  # of values


class RiverRegressor(base.MiniBatchRegressor):
    """A `DirectStreamRegressor` in river's form: rows are dictionaries, predictions Gaussians if asked for.

    A key that a row lacks, or whose value is None or NaN, is a missing value, which is expected from the row's other
    values; it is not zero. Keys may appear at any time: rows that were learned before lack them, and they are used from
    the next time that the feature map is learned, see `DirectStreamRegressor`. Values are numbers, booleans or text.
    Neither scaling nor encoding is needed before it.

    Parameters
    ----------
    model : DirectStreamRegressor, optional
        What to learn with, with its half-life or window; it is not touched itself. By default one that forgets nothing.

    Attributes
    ----------
    stream : DirectStreamRegressor
        What has learned so far, fitted to columns in the order of `columns`.
    columns : list
        The keys seen so far.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from pydirect import DirectStreamRegressor
    >>> from pydirect.adapters import RiverRegressor
    >>> model = RiverRegressor(DirectStreamRegressor(half_life=200))
    >>> score = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    >>> score.get() < 0.6
    True
    >>> x, y = next(iter(datasets.TrumpApproval()))
    >>> bool(0.1 < model.predict_one(x, with_dist=True).sigma < 1)
    True
    """

    def __init__(self, model: DirectStreamRegressor | None = None) -> None:
        if model is not None and not isinstance(model, DirectStreamRegressor):
            raise TypeError(f"model must be a DirectStreamRegressor or None, got {type(model).__name__}")
        self.model = model
        self.stream = DirectStreamRegressor() if model is None else clone(model)
        self.columns: list[Hashable] = []

    @property
    def _has_learned(self) -> bool:
        return self.stream.__sklearn_is_fitted__()

    def learn_one(self, x: Mapping[Hashable, Any], y: float, t: datetime | float | None = None) -> None:
        """Learn a row.

        - `t`: When the row came, for a window or half-life in time; not before the last one.
        """
        self._learn([x], [y], None if t is None else [t])

    def learn_many(self, X: Any, y: Any, t: Iterable[datetime | float] | None = None) -> None:
        """Learn the rows of a data frame, one after the other."""
        self._learn(_dictionaries(X), list(y), t)

    def predict_one(self, x: Mapping[Hashable, Any], with_dist: bool = False) -> Any:
        """Predict a row: the mean, or with `with_dist` a `river.proba.Gaussian` of the target.

        Before a row has been learned that is 0, or the standard normal distribution.
        """
        mean, std = 0.0, 1.0
        if self._has_learned:
            with ignored(TableWarning):  # rows of river may lack any key
                mean, std = self.stream.predict_one(self._table([x])[0])
        if not with_dist:
            return mean
        found: Any = proba.Gaussian()  # type: ignore[no-untyped-call]
        for value in (mean - std / 2**0.5, mean + std / 2**0.5):  # two observations of this mean and deviation
            found.update(value)
        return found

    def predict_many(self, X: Any) -> Any:
        """Predict the rows of a data frame: a series of means."""
        rows = _dictionaries(X)
        with ignored(TableWarning):
            mean = self.stream.predict(self._table(rows)) if self._has_learned else np.zeros(len(rows))
        return utils.dataframe.to_native_series(mean, name=None, like=utils.dataframe.into_frame(X))

    # --- rows

    def _learn(self, rows: list[Mapping[Hashable, Any]], y: list[float], t: Iterable[datetime | float] | None) -> None:
        new = {key for row in rows for key in row}.difference(self.columns)
        if new and self._has_learned:
            self.stream.add_columns(len(new))
        # In an order that does not depend on that in the rows.
        self.columns += sorted(new, key=lambda key: (type(key).__name__, str(key)))
        times = None if t is None else np.array([_utc(when) for when in t])
        self.stream.partial_fit(self._table(rows), np.array(y, dtype=np.float64), times=times)

    def _table(self, rows: list[Mapping[Hashable, Any]]) -> Any:
        """Return the columns of known keys, NaN where a row lacks one; numbers, or objects if there is text."""
        table = [[np.nan if (v := row.get(key)) is None else v for key in self.columns] for row in rows]
        for values in table:
            for key, value in zip(self.columns, values, strict=True):
                if type(value) is not float and not isinstance(value, KINDS):
                    raise TypeError(f"{key!r} must be a number, a boolean or text, got {type(value).__name__}")
        text = any(isinstance(value, str) for row in table for value in row)
        return np.array(table, dtype=object if text else np.float64)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": DirectStreamRegressor(n_basis_functions=50)}


def _dictionaries(frame: Any) -> list[Mapping[Hashable, Any]]:
    """Return the rows of a data frame of any package that river knows."""
    rows: Any = utils.dataframe.into_frame(frame).rows(named=True)
    return rows


def _utc(when: datetime | float) -> Any:
    """Return a time as NumPy knows it, without a zone."""
    if not isinstance(when, datetime):
        return when
    return np.datetime64(when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None))
