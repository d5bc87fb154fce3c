"""Local detail: what landmarks miss, from the nearest training rows."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_count, shown
from pydirect._warnings import warn
from pydirect.distributions.priors import GaussianPrior, as_prior
from pydirect.estimators._fitting import Training
from pydirect.estimators._leaving_out import LeavingOneOut
from pydirect.estimators._noise_model import NoiseModel
from pydirect.estimators._row_moments import RowMoments
from pydirect.linear.leave_one_out import LeaveOneOut, leave_one_out
from pydirect.noise.local_process import FEWEST_SHARED, HELD_OUT_ROWS, LocalProcess, Places
from pydirect.persistence.fields import Arrays, Header, Writer, build_one, require_number
from pydirect.quantized.fitted import FittedBasisModel

N_NEIGHBOURS = 32
LARGEST_ERROR = 1.01  # of left-out rows, squared and relative to the global model's
CLEARLY_CLOSER = 0.9
SMALLEST_GAIN = 0.02  # nats per row
ROWS_PER_FEATURE, FEWEST_ROWS = 2, 1000
# At a first look: rows that are left out, and the error from which nothing is looked at further.
FIRST_HELD_ROWS = 400
CLEARLY_FARTHER = 1.05


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

    def _fit_local(self, training: Training, moments: RowMoments | None) -> None:
        """Set ``local_``: a process where it is asked for, or where rows that are left out gain by it."""
        self.local_, self._local_gain = None, None
        if training.rows is None:
            self._require_rows_for_local()
            return
        kernel = self.features_.hyperparameters
        if moments is None or self.local is False or kernel is None or self._obstacle_to_local() or self.noise_model_:
            return
        automatic = isinstance(self.local, str)
        n, fewest = len(moments.x), max(ROWS_PER_FEATURE * self.features_.n_weights, FEWEST_ROWS) if automatic else 2
        if n < fewest:
            return
        first, weight, _ = training.rows.merged
        y, inputs = training.rows.y[first[weight > 0]], self.features_.inputs(moments.x)
        held = training.rng.spawn(1)[0].choice(n, min(n, HELD_OUT_ROWS), replace=False)
        k = N_NEIGHBOURS if automatic else int(self.local)
        key, scales = (k, held.tobytes(), moments.weight.tobytes()), kernel.length_scales
        many = training.memo is not None or y.shape[1] >= FEWEST_SHARED
        places = training.once(key, lambda: Places.of(inputs, scales, moments.weight, k, held, keep=many))
        if automatic:
            few = training.once((*key, FIRST_HELD_ROWS), lambda: places.at(held[:FIRST_HELD_ROWS]))
            look = self._local_process(few, y, moments, few.rows)
            self._local_gain = float(look.gain.mean())
            if self._local_gain <= 0 or look.squared_error.mean() > CLEARLY_FARTHER:
                return
        process = self._local_process(places, y, moments, np.arange(n))
        self._local_gain = float(process.gain.mean())
        closer = process.squared_error.mean() <= LARGEST_ERROR  # rows of equal targets, for one, gain density alone
        if not automatic or (self._local_gain > SMALLEST_GAIN and closer):
            self.local_ = process

    def _noise_may_replace_local(self) -> bool:
        """Whether there is no process, or one that nobody asked for and that hardly moves the mean."""
        if self.local_ is None:
            return True
        return isinstance(self.local, str) and float(self.local_.squared_error.mean()) > CLEARLY_CLOSER

    def _local_process(
        self, places: Places, y: FloatArray, moments: RowMoments, rows: NDArray[np.intp]
    ) -> LocalProcess:
        """Fit a process to residuals of some rows, predicted without themselves."""
        moments.exactly(places.held)

        def left_out(rows: NDArray[np.intp]) -> LeaveOneOut:
            mean, variance = moments.at(rows)
            precision = moments.weight[rows, None] / moments.noise
            missing = moments.missing[rows, None] * moments.prior_variance
            return leave_one_out(y[rows], mean, variance, precision, self._mean_noise_variance(), missing)

        residuals = np.zeros_like(y)
        residuals[rows] = left_out(rows).residuals
        return places.fit(residuals, left_out(places.held).log_density)

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
        warn_without_local("draws of functions, which it has none of,", stacklevel=4)
        alone = copy.copy(self)
        alone.local_ = None
        return alone._draws(x, n_samples, rng, noise)

    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, method: str = "posterior"
    ) -> tuple[FloatArray, FloatArray]:
        if method == "jackknife+" and getattr(self, "local_", None) is not None:
            warn_without_local("intervals of the jackknife+, which are those of the model of all rows,", stacklevel=4)
        return super().predict_interval(X, level, method)

    def quantizable(self) -> FittedBasisModel:
        """Return the fitted model in the form that `pydirect.quantize` accepts, without its local process."""
        fitted = super().quantizable()
        if self.local_ is not None:
            warn_without_local("quantised models, which hold no training rows,", stacklevel=4)
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


def warn_without_local(what: str, stacklevel: int) -> None:
    """Warn that something leaves out the local process."""
    warn(
        f"{what} leave out the model's local process: fit with local=False where predictions are to agree with them",
        LocalProcessWarning,
        stacklevel=stacklevel,
    )
