"""`RiverRegressor`: a stream regressor as river's pipelines, metrics and evaluations use one, row by row."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sklearn.base import clone

from pydirect._validation import FloatArray
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
        self._positions: dict[Hashable, int] = {}
        self._n_learned = 0

    @property
    def columns(self) -> list[Hashable]:
        """The keys seen so far."""
        return list(self._positions)

    def learn_one(self, x: Mapping[Hashable, Any], y: float, t: datetime | float | None = None) -> None:
        """Learn a row.

        - `t`: When the row came, for a window or half-life in time; not before the last one.
        """
        row = None if t is not None else self._row(x)
        if row is None:
            self._learn([x], [y], None if t is None else [t])
        else:
            self.stream.partial_fit(row, np.array([y], dtype=np.float64))
            self._n_learned += 1

    def learn_many(self, X: Any, y: Any, t: Iterable[datetime | float] | None = None) -> None:
        """Learn the rows of a data frame, one after the other."""
        self._learn(_dictionaries(X), list(y), None if t is None else list(t))

    def predict_one(self, x: Mapping[Hashable, Any], with_dist: bool = False) -> Any:
        """Predict a row: the mean, or with `with_dist` a `river.proba.Gaussian` of the target.

        Before a row has been learned that is 0, or the standard normal distribution.
        """
        row = self._row(x) if self._n_learned else None
        if row is None:
            means, deviations = self._predicted([x])
            mean, std = float(means[0]), float(deviations[0])
        else:
            mean, std = self.stream.predict_one(row[0])
        return _gaussian(mean, std) if with_dist else mean

    def predict_many(self, X: Any) -> Any:
        """Predict the rows of a data frame: a series of means."""
        mean, _ = self._predicted(_dictionaries(X))
        return utils.dataframe.to_native_series(mean, name=None, like=utils.dataframe.into_frame(X))

    # --- rows

    def _learn(self, rows: list[Mapping[Hashable, Any]], y: list[float], t: list[Any] | None) -> None:
        self._meet(rows)
        times = None if t is None else np.array([_utc(when) for when in t])
        self.stream.partial_fit(self._table(rows), np.asarray(y, dtype=np.float64), times=times)
        self._n_learned += len(rows)

    def _predicted(self, rows: list[Mapping[Hashable, Any]]) -> tuple[FloatArray, FloatArray]:
        """Return means and deviations of the targets, (n_rows,) each."""
        if not self._n_learned:
            return np.zeros(len(rows)), np.ones(len(rows))
        with ignored(TableWarning):  # rows of river may lack any key
            mean, std = self.stream.predict(self._table(rows), return_std=True)
        return mean, std

    def _row(self, x: Mapping[Hashable, Any]) -> FloatArray | None:
        """Return a row of floats for just the known keys, (1, n_columns); None where there is more to look at."""
        try:
            values = [x[key] for key in self._positions]
        except KeyError:
            return None
        if len(values) != len(x) or any(type(value) is not float for value in values):
            return None
        return np.array([values])

    def _meet(self, rows: list[Mapping[Hashable, Any]]) -> None:
        """Take in keys that are new, in an order that does not depend on that in the rows."""
        new = {key for row in rows for key in row} - self._positions.keys()
        if not new:
            return
        if self._n_learned:
            self.stream.add_columns(len(new))
        for key in sorted(new, key=lambda key: (type(key).__name__, str(key))):
            self._positions[key] = len(self._positions)

    def _table(self, rows: list[Mapping[Hashable, Any]]) -> Any:
        """Return the columns of known keys, NaN where a row lacks one; numbers, or objects if there is text."""
        table = [[np.nan if (v := row.get(key)) is None else v for key in self._positions] for row in rows]
        for values in table:
            for key, value in zip(self._positions, values, strict=True):
                if not isinstance(value, KINDS):
                    raise TypeError(f"{key!r} must be a number, a boolean or text, got {type(value).__name__}")
        text = any(isinstance(value, str) for row in table for value in row)
        return np.array(table, dtype=object if text else np.float64)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"model": DirectStreamRegressor(n_basis_functions=50)}


def _gaussian(mean: float, std: float) -> Any:
    """Return river's distribution, which is the one of two observations with this mean and deviation."""
    found: Any = proba.Gaussian()  # type: ignore[no-untyped-call]
    for value in (mean - std / 2**0.5, mean + std / 2**0.5):
        found.update(value)
    return found


def _dictionaries(frame: Any) -> list[Mapping[Hashable, Any]]:
    """Return the rows of a data frame of any package that river knows."""
    rows: Any = utils.dataframe.into_frame(frame).rows(named=True)
    return rows


def _utc(when: datetime | float) -> Any:
    """Return a time as NumPy knows it, without a zone."""
    if not isinstance(when, datetime):
        return when
    return np.datetime64(when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None))
