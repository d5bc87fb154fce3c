"""`OpenRows`: single rows of a stream, which compiled code predicts and learns until something is learned from all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pydirect import _core
from pydirect._validation import FloatArray
from pydirect.estimators.stream import (
    CALIBRATION_KEPT,
    CALIBRATION_ROWS,
    FEWEST_DEGREES,
    GROSS,
    GROSS_SCALES,
    LARGEST_CALIBRATION,
    LARGEST_SQUARE,
    WATCHED_ROWS,
    Stream,
)
from pydirect.features.inputs import LARGEST
from pydirect.predictive.gaussian_mixture import student_factors
from pydirect.tables.buffer import CodedRows

_SUMS = ("score_sum", "score_weight", "calibration_sum", "calibration_weight")


@dataclass
class OpenRows:
    """Rows that a stream does not know until `close`, though they change its posterior and sums in place.

    - `taken`: rows as they came, x, y, weights, clock and the number of samples before each.
    - `n_left`: number of rows that may come.
    """

    stream: Stream
    rows: _core.RowStream
    taken: list[FloatArray]
    n_left: int
    decay: float
    now: float

    @classmethod
    def of(cls, stream: Stream) -> Self | None:
        """Return what takes the next few rows; None where the stream itself has to."""
        basis, units, plan, n_columns = stream.basis, stream.units, stream.plan, len(stream.book.values)
        if basis is None or basis.hyperparameters is None or basis.map.residual_kernel is None:  # of compiled code
            return None
        plain = stream.book.holds_numbers and stream.columns.is_plain and stream.columns.n_columns == n_columns
        if not plain or units.n_outputs > 1 or units.active is not None:
            return None
        decay = 1.0 if plan.half_life is None else math.exp2(-1 / plan.half_life)
        n_left, arrays, numbers = stream.regression.lend(stream.rows_at_once(WATCHED_ROWS, True), decay)
        if not n_left:
            return None
        inputs, degrees = basis.input_map, float(stream.regression.degrees[0])
        others, weights, isotropic, products, amplitudes, reach, smoothness = basis.map.panels.arguments
        taken = [np.empty((n_left, n_columns)), *np.empty((4, n_left))]
        numbers |= {name: getattr(stream, name) for name in _SUMS} | {
            "n_left": n_left,
            "largest": LARGEST,
            "largest_input": basis.largest_input,
            "isotropic_weight": isotropic,
            "linear_reach": reach,
            "twice_smoothness": smoothness,
            "of_pairs": basis.map.panels.of_pairs,
            "sums_of_kernel": basis.sums_of_kernel,
            "mean_missing": stream.residual_variance,
            "location": units.location[0],
            "scale": units.scale[0],
            "score_kept": plan.score_kept,
            "calibration_kept": CALIBRATION_KEPT,
            "calibration_rows": CALIBRATION_ROWS,
            "largest_watched": LARGEST_SQUARE,
            "largest_calibration": LARGEST_CALIBRATION,
            "gross": GROSS if degrees >= FEWEST_DEGREES else np.inf,
            "gross_scales": GROSS_SCALES,
        }
        rows = _core.RowStream(
            [inputs.mean, inputs.scale, inputs.knots, inputs.scores],
            [inputs.kept, inputs.scored],
            [others, weights, products, amplitudes, np.ascontiguousarray(basis.map.whitening.T)],
            arrays["covariance"],
            [*arrays["posterior"], *student_factors(degrees)],
            arrays["sums"],
            taken,
            [stream.lowest, stream.highest],
            numbers,
        )
        return cls(stream, rows, taken, n_left, decay, stream.now)

    @property
    def is_full(self) -> bool:
        """Whether no more rows may come."""
        return bool(self.rows.n_rows == self.n_left)

    def learn(self, x: FloatArray, y: float) -> Any:
        """Predict a row, then learn it: mean, deviation and log density; None if the stream has to take it."""
        found = self.rows.learn(x, y, 1.0, self.decay, self.now + 1)
        if found is not None:
            self.now += 1
        return found

    def close(self) -> None:
        """Let the stream go on after these rows."""
        stream, rows, n = self.stream, self.rows, self.rows.n_rows
        if not n:
            return
        stream.regression.take_back(rows)
        for name in _SUMS:
            setattr(stream, name, getattr(rows, name))
        stream.calibrate()
        stream.gross, stream.now = stream.gross[:0], self.now
        x, y, weight, clock, n_samples = (part[:n] for part in self.taken)
        stream.keep(CodedRows(x, y[:, None], weight, clock), n_samples)
        stream.n_seen, stream.squares = stream.n_seen + n, stream.squares + rows.squares
        stream.n_watched, stream.n_outside = stream.n_watched + n, stream.n_outside + int(rows.n_outside)
        if self.is_full:
            stream.after_rows()
