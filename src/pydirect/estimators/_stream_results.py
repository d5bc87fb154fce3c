"""What a stream regressor answers: scores, predictions, files."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydirect._validation import FloatArray, as_count
from pydirect.estimators._row_store import PARTS, Codebook, CodedRows, RowStore
from pydirect.estimators._stream_map import StreamMap, is_time, seconds
from pydirect.features.basis import Basis
from pydirect.features.maps import TransformerFeatures
from pydirect.linear.adaptive import AdaptiveRegression, with_constant
from pydirect.persistence.fields import (
    Arrays,
    Header,
    Writer,
    build_one,
    require_array,
    require_float64,
    require_number,
    require_positive,
    require_type,
)
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.window import faded_sums
from pydirect.streams.tables import Table

# Rows after which a squared error counts half in the factor of predictive variances, and rows of error one that count
# with them.
CALIBRATION_HALF_LIFE, CALIBRATION_ROWS = 50, 20
# What else a file holds of where the stream stands, with its types.
PROGRESS = {
    "_now": float,
    "_seed": int,
    "_score_sum": float,
    "_score_weight": float,
    "_calibration_sum": float,
    "_calibration_weight": float,
    "_n_watched": int,
    "_n_outside": int,
    "_squares": float,
    "_n_learned": int,
    "_searched_at": int,
    "_moved_at": int,
    "_learn_at": list,
}


class StreamResults(StreamMap):
    """Base of the regressor of a stream: what it answers at any time."""

    _score_sum: float
    _score_weight: float
    _calibration_sum: float
    _calibration_weight: float

    # --- scores

    def _calibrated(self, squares: FloatArray) -> FloatArray:
        """Return the factor of each row's predictive variance, from squared standardised errors of the rows before it.

        It follows errors of the latest rows within tens of rows after a change, long before the noise variance does.
        """
        kept = 0.5 ** (1 / CALIBRATION_HALF_LIFE)
        before = np.array([self._calibration_sum, self._calibration_weight])
        sums, weights = (
            faded_sums(new, kept, own) for new, own in zip((squares, np.ones(len(squares))), before, strict=True)
        )
        factors = (CALIBRATION_ROWS + np.append(before[0], sums)) / (CALIBRATION_ROWS + np.append(before[1], weights))
        self._calibration_sum, self._calibration_weight = float(sums[-1]), float(weights[-1])
        self.calibration_scale_ = float(np.sqrt(factors[-1]))
        return np.asarray(factors[:-1])

    def _scored(self, mean: FloatArray, variance: FloatArray, y: FloatArray) -> FloatArray:
        """Return means, deviations and log densities in y's units, and count the last."""
        mean, std = self.y_mean_ + self.y_scale_ * mean, self.y_scale_ * np.sqrt(variance)
        log_density = -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
        kept = 0.5 ** (1 / self._memory())
        shares = kept ** np.arange(len(y))[::-1]
        self._score_sum = kept ** len(y) * self._score_sum + float(shares @ log_density.sum(axis=1))
        self._score_weight = kept ** len(y) * self._score_weight + float(shares.sum())
        return np.stack([mean, std, log_density])

    def _memory(self) -> float:
        for own in (self.half_life, self.window):
            if own is not None and not is_time(own):
                return seconds(own)
        return float(self.n_first_rows)

    @property
    def log_score_(self) -> float:
        """Mean log density of the latest targets before they were learned."""
        self._require_fitted()
        return self._score_sum / self._score_weight if self._score_weight else np.nan

    # --- results

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_regression")

    @property
    def posteriors_(self) -> list[Any]:  # type: ignore[override]
        """Posteriors of the weights of `features_` and of a constant, standardised, one per output."""
        self._require_fitted()
        return self._regression.posteriors

    @property
    def n_samples_(self) -> float:  # type: ignore[override]
        """Sum of the weights of the rows as they count now."""
        self._require_fitted()
        return self._regression.n_samples

    @property
    def noise_variance_(self) -> float | FloatArray:  # type: ignore[override]
        """Noise variance in squared units of y."""
        noise = self._mean_noise_variance() * self.y_scale_**2
        return float(noise[0]) if self._one_dimensional else noise

    @property
    def statistics_(self) -> GaussianStatistics:
        """Sums of the rows as they count now, of `features_` and a constant, and of standardised targets."""
        self._require_fitted()
        return self._regression.statistics()

    def _mean_noise_variance(self) -> FloatArray:
        return np.array([posterior.noise_variance for posterior in self.posteriors_])

    def _noise_of(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        return [(np.ones(1), np.full((len(rows), 1), noise)) for noise in self._mean_noise_variance()]

    def _drawn_noise(self, x: FloatArray, output: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return np.full((1, n_samples), self._mean_noise_variance()[output])

    def _n_columns(self) -> int:
        return self._regression.n_functions + 1

    def _encoded(self, x: Any) -> FloatArray:
        if self.features_ is None:
            return np.empty((len(x), 0))
        known = self.columns_.n_columns
        if isinstance(x, Table):
            return self.columns_.encode(x if x.shape[1] == known else Table(x.columns[:known]))
        return self.columns_.encode(np.ascontiguousarray(x[:, :known]))

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        phi, missing = np.empty((len(rows), 0)), np.zeros(len(rows))
        if self.features_ is not None:
            _, phi, missing = self._functions(self.features_.inputs(rows))
        if not with_variance:
            return self._regression.mean(phi), None
        return self._regression.moments(phi, missing)

    def _sampler(self, n_samples: int, rng: np.random.Generator) -> Any:
        weights = [own.sample_weights(n_samples, rng) for own in self._regression.posteriors]

        def draw(rows: FloatArray) -> FloatArray:
            phi = np.empty((len(rows), 0))
            if self.features_ is not None:
                _, phi, _ = self._functions(self.features_.inputs(rows))
            return np.stack([with_constant(phi) @ own.T for own in weights], axis=1)

        return draw

    def _set_results(self) -> None:
        """Nothing follows from the parts that is not computed when asked for."""

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        if self.features_ is not None and isinstance(self.features_.map, TransformerFeatures):
            raise TypeError("features must be built in to be saved without pickle, got a transformer: pickle the model")
        for store, name in ((self._store, "store"), (self._latest, "latest")):
            writer.arrays |= {f"{name}.{part}": getattr(store.rows, part) for part in PARTS}
        writer.arrays |= {"y_mean": self.y_mean_, "y_scale": self.y_scale_}
        writer.arrays |= {"lowest": self._lowest, "highest": self._highest}
        return {
            **self._shape_fields(),
            "calibration_scale": self.calibration_scale_,
            "mean_missing_variance": self.mean_missing_variance_,
            "n_seen": self.n_seen_,
            "values": self._book.values,
            "numeric": self._book.numeric.tolist(),
            "names": self._book.names,
            "progress": {name: getattr(self, name) for name in PROGRESS},
            "regression": self._regression.to_fields("regression", writer.arrays),
            "features": None if self.features_ is None else writer.fields(self.features_, "features"),
        }

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        self._from_shape_fields(header)
        d = self.n_features_in_
        self.y_mean_, self.y_scale_ = arrays["y_mean"], arrays["y_scale"]
        k = len(require_array(self.y_mean_, "y_mean", "n_outputs"))
        require_positive(self.y_scale_, "y_scale", k)
        self.calibration_scale_ = require_number(header["calibration_scale"], "calibration_scale", above=0.0)
        self.mean_missing_variance_ = require_number(header["mean_missing_variance"], "missing", at_least=0.0)
        self.n_seen_ = as_count(header["n_seen"], "n_seen", 0)
        for name, kind in PROGRESS.items():
            require_type(header["progress"][name], name, kind)
            setattr(self, name, header["progress"][name])
        self._book = Codebook(header["names"], header["values"], np.array(header["numeric"], dtype=bool))
        self._store, self._latest = (_stored(arrays, name, d, k) for name in ("store", "latest"))
        self.features_ = None
        if header["features"] is not None:
            self.features_ = build_one((Basis,), header["features"], arrays, "features")
            if self.features_.columns is None or self.features_.columns.n_columns > d:
                raise ValueError("features do not take the columns")
            self.columns_ = self.features_.columns
        n_functions = 0 if self.features_ is None else self.features_.n_weights
        n_inputs = 0 if self.features_ is None else self.features_.input_map.n_outputs
        self._lowest, self._highest = arrays["lowest"], arrays["highest"]
        for name in ("lowest", "highest"):
            require_array(arrays[name], name, n_inputs) if n_inputs else require_float64(arrays[name], name)
        self._regression = AdaptiveRegression.from_fields(
            header["regression"],
            arrays,
            "regression",
            n_functions,
            k,
            sliding=self.window is not None,
            whitening=self._whitening(),
        )


def _stored(arrays: Arrays, name: str, n_columns: int, n_outputs: int) -> RowStore:
    x, y, weight, clock = (arrays[f"{name}.{part}"] for part in PARTS)
    require_float64(x, name)
    if x.shape != (len(weight), n_columns) or y.shape != (len(weight), n_outputs) or clock.shape != weight.shape:
        raise ValueError(f"{name} must be rows of {n_columns} columns and {n_outputs} outputs")
    return RowStore(CodedRows(x, y, weight, clock))
