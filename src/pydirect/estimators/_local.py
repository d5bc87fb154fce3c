"""Local detail: what landmarks miss, from the nearest training rows."""

from __future__ import annotations

import copy
import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, shown
from pydirect.distributions.priors import GaussianPrior, as_prior
from pydirect.estimators._fitting import Training
from pydirect.estimators._leaving_out import LeavingOneOut
from pydirect.estimators._noise_model import NoiseModel
from pydirect.persistence.fields import Arrays, Header, Writer, build_one, require_number
from pydirect.quantized.fitted import FittedBasisModel
from pydirect.regression.leave_one_out import LeaveOneOut, leave_one_out, ridge_of_rows
from pydirect.regression.local_process import HELD_OUT_ROWS, LocalProcess, fit_local_process
from pydirect.statistics.rotated import RotatedStatistics

N_NEIGHBOURS = 32
LARGEST_ERROR = 1.01  # of left-out rows, squared and relative to the global model's
CLEARLY_CLOSER = 0.9
SMALLEST_GAIN = 0.02  # nats per row
ROWS_PER_FEATURE, FEWEST_ROWS = 2, 1000
# Leverages above are computed exactly, those below from random signs.
LARGEST_SKETCHED = 0.3


class LocalProcessWarning(UserWarning):
    """What was asked for leaves out the local process of a model, and so differs from its predictions."""


class LocalDetail(LeavingOneOut):
    """Base of regressors with a local process on the leave-one-out residuals of the model of all rows."""

    local: bool | str | int
    noise_model_: NoiseModel | None
    local_: LocalProcess | None
    _local_gain: float | None  # of a process that was tried, nats per row

    def _forget(self) -> None:
        super()._forget()
        self.__dict__.pop("local_", None)

    # --- parameters

    def _check_local(self) -> None:
        """Raise unless `local` can be used as it was given."""
        if self.local is False or (isinstance(self.local, str) and self.local == "auto"):
            return
        if isinstance(self.local, bool | str):
            asked = f"a number of neighbours, such as the {N_NEIGHBOURS} of 'auto'"
            raise ValueError(f"local must be 'auto', False or {asked}, got {shown(self.local)}")
        as_count(self.local, "local", 2)
        obstacle = self._obstacle_to_local()
        if obstacle:
            raise ValueError(f"local must be 'auto' or False with {obstacle}, got {shown(self.local)}")

    def _obstacle_to_local(self) -> str | None:
        """Return the parameter that rules out a local process, if one does."""
        if self.basis != "decorrelated":
            return f"basis={self.basis!r}"
        if self._feature_kind() not in ("nystroem", "fourier"):
            return "features that have no kernel"
        if not isinstance(as_prior(self.prior), GaussianPrior):
            return "a prior that is not Gaussian"
        return None if self.noise in ("auto", "constant") else f"noise={self.noise!r}"

    def _check_without_rows(self) -> None:
        super()._check_without_rows()
        self._require_rows_for_local()

    def _require_rows_for_local(self) -> None:
        """Raise if a number of neighbours was asked for, where there are no rows to be neighbours."""
        if not isinstance(self.local, bool | str):
            raise ValueError(
                f"local must be 'auto' or False where only sums over rows are kept, got {self.local}; use fit"
            )

    # --- fit

    def _fit_local(self, training: Training) -> None:
        """Set ``local_``: a process where it is asked for, or where rows that are left out gain by it."""
        self.local_, self._local_gain = None, None
        if training.rows is None:
            self._require_rows_for_local()
            return
        kernel = self.features_.hyperparameters
        if self.local is False or kernel is None or self._obstacle_to_local() or self.noise_model_ is not None:
            return
        rows, automatic = training.rows, isinstance(self.local, str)
        fewest = max(ROWS_PER_FEATURE * self.features_.n_weights, FEWEST_ROWS) if automatic else 2
        if len(rows.x) < fewest:
            return
        first, weight, _ = rows.merged
        first, weight = first[weight > 0], weight[weight > 0]
        if len(first) < fewest:
            return
        assert training.rotated is not None  # in the decorrelated basis
        x, y, rng = rows.x[first], rows.y[first], training.rng.spawn(1)[0]
        held = np.sort(rng.choice(len(x), min(len(x), HELD_OUT_ROWS), replace=False))
        found = self._leave_out(x, y, weight, held, training.rotated, rng)
        process = fit_local_process(
            self.features_.inputs(x),
            kernel.length_scales,
            found.residuals,
            found.rows(held).log_density,
            weight,
            N_NEIGHBOURS if automatic else int(self.local),
            held,
        )
        self._local_gain = float(process.gain.mean())
        closer = process.squared_error.mean() <= LARGEST_ERROR  # rows of equal targets, for one, gain density alone
        if not automatic or (self._local_gain > SMALLEST_GAIN and closer):
            self.local_ = process

    def _noise_may_replace_local(self) -> bool:
        """Whether there is no process, or one that nobody asked for and that hardly moves the mean."""
        if self.local_ is None:
            return True
        return isinstance(self.local, str) and float(self.local_.squared_error.mean()) > CLEARLY_CLOSER

    def _leave_out(
        self,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray,
        held: NDArray[np.intp],
        rotated: RotatedStatistics,
        rng: np.random.Generator,
    ) -> LeaveOneOut:
        """Predict distinct rows without themselves: exactly for rows of large leverage and for `held`.

        Elsewhere h is estimated from projections onto random signs, which take a fraction of the time; there an error
        of a tenth in h changes e/(1 − h) by a few per cent at most.
        """
        tau = np.array([p.noise.precision for p in self.posteriors_])
        posterior = ridge_of_rows(rotated, tau, self.prior_scale_**2)
        sketch, precision = posterior.sketch(rng), weight[:, None] * tau
        mean, variance, missing = np.empty_like(y), np.empty_like(y), np.zeros_like(y)
        project = self.features_.projection(np.hstack([posterior.coefficients, *sketch]))
        n_threads = resolve_n_threads(self.n_threads)
        with single_blas_thread():
            for block in self._blocks(x):
                values = project(self.features_.inputs(x[block]), n_threads)
                mean[block] = values[:, : y.shape[1]]
                signs = values[:, y.shape[1] :].reshape(len(values), len(sketch), -1)
                variance[block] = np.einsum("ijk,ijk->ij", signs, signs)
            large = (precision * variance > LARGEST_SKETCHED).any(axis=1)
            large[held] = True
            exact = np.flatnonzero(large)
            for block in self._blocks(x[exact]):
                chosen = exact[block]
                inputs, phi = self._features_of(x[chosen])
                mean[chosen], variance[chosen] = posterior.moments(phi)
                beyond = self._missing_variance(inputs, phi)
                missing[chosen] = 0.0 if beyond is None else beyond
        return leave_one_out(y, mean, variance, precision, self._mean_noise_variance(), missing)

    # --- prediction

    def _local_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of y*, variance of f* and noise variance where the process is on; (n_rows, n_outputs) each."""
        assert self.local_ is not None
        mean, _ = super()._latent_moments(x, with_variance=False)
        detail = self.local_.predict(self.features_.inputs(x), resolve_n_threads(self.n_threads))
        return mean + detail.mean, detail.variance, detail.noise

    def _latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        if self.local_ is None:
            return super()._latent_moments(x, with_variance)
        return self._local_parts(x)[:2]

    def _variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return super()._variance_parts(x) if self.local_ is None else self._local_parts(x)

    def _target_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        if self.local_ is None:
            return super()._target_components(rows)
        mean, variance, noise = self._local_parts(rows)
        total = variance + noise
        return [(np.ones(1), mean[:, k, None], total[:, k, None]) for k in range(mean.shape[1])]

    def _draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        if self.local_ is None:
            return super()._draws(x, n_samples, rng, noise)
        _warn_without_local("draws of functions, which it has none of,", stacklevel=4)
        alone = copy.copy(self)
        alone.local_ = None
        return alone._draws(x, n_samples, rng, noise)

    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, method: str = "posterior"
    ) -> tuple[FloatArray, FloatArray]:
        if method == "jackknife+" and getattr(self, "local_", None) is not None:
            _warn_without_local("intervals of the jackknife+, which are those of the model of all rows,", stacklevel=4)
        return super().predict_interval(X, level, method)

    def quantizable(self) -> FittedBasisModel:
        """Return the fitted model in the form that `pydirect.quantize` accepts, without its local process."""
        fitted = super().quantizable()
        if self.local_ is not None:
            _warn_without_local("quantised models, which hold no training rows,", stacklevel=4)
        return fitted

    def summary(self) -> str:
        words, process = super().summary(), self.local_
        if self._local_gain is None:
            return words
        if process is None:
            change = f"{'gained' if self._local_gain > 0 else 'lost'} {abs(self._local_gain):.3g} nats each by it"
            if self._local_gain > SMALLEST_GAIN:
                change += ", with larger errors" if self.noise_model_ is None else ", less than by noise of their own"
            return f"{words}\nLocal process: off; rows that were left out would have {change}."
        scale = "a scale for each place" if (process.pooling < 1).any() else "one scale"
        gained = f"rows that were left out gained {self._local_gain:.3g} nats each"
        return f"{words}\nLocal process on the residuals of {process.k} neighbours, with {scale}: {gained}."

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        local = None if self.local_ is None else writer.fields(self.local_, "local")
        return {**super()._to_fields(writer), "local": local, "local_gain": self._local_gain}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.local_, self._local_gain = None, header["local_gain"]
        if self._local_gain is not None:
            require_number(self._local_gain, "local_gain")
        if header["local"] is not None:
            kernel = self.features_.hyperparameters
            if kernel is None:
                raise ValueError("local does not fit the features")
            self.local_ = build_one((LocalProcess,), header["local"], arrays, "local")
            self.local_.check(len(kernel.length_scales), len(self.posteriors_))


def _warn_without_local(what: str, stacklevel: int) -> None:
    warnings.warn(
        f"{what} leave out the model's local process: fit with local=False where predictions are to agree with them",
        LocalProcessWarning,
        stacklevel=stacklevel,
    )
