"""The Gaussian posterior of the weights, row by row: recursive least squares with a Gaussian prior.

With noise variance σ² and prior variance t the posterior of all rows is N(m, S), S = (A/σ² + I/t)⁻¹, m = Sc/σ². More
rows Φ with weights ω change it by Woodbury's identity,

    K = ΦSΦᵀ + diag(σ²/ω),   m ← m + SΦᵀK⁻¹(y − Φm),   S ← S − SΦᵀK⁻¹ΦS,

at a cost of b² for each row and without a pass over earlier ones (Plackett 1950). Negative weights remove rows.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from pydirect import _core
from pydirect._dense import add_gram, mirrored, product, subtract_product
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_number, short_repr
from pydirect.linear.posterior import FactoredPosterior
from pydirect.persistence.schema import AtLeast, Positive, Shape
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, as_target_statistics

# Rows that are taken together: enough for products at the machine's peak, few enough that those among them cost little.
BLOCK_ROWS = 128
# Up to this many rows change S later, together with others: what they change it by is kept.
FEW_ROWS = 16
# Several threads may ask for S at a time.
_SETTLING = threading.Lock()


class _Kept(NamedTuple):
    """S as it was: ``scale · matrix`` less what the first `n_waiting` rows that wait change it by."""

    matrix: FloatArray
    scale: float
    n_waiting: int


@dataclass(eq=False)
class RecursivePosterior:
    """Gaussian posterior of the weights of one output, changed in place as rows come and go.

    Begin with `prior` (no rows yet) or `of` (statistics of rows). Rounding adds up with the rows, as in any recursion:
    long streams begin again with `of` from time to time.

    Attributes
    ----------
    mean : ndarray of shape (n_weights,)
        m
    covariance : ndarray of shape (n_weights, n_weights)
        S, symmetric.
    noise_variance, prior_variance : float
        σ² and t.
    n_samples : float, default=0.0
        Σω

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.linear import RecursivePosterior
    >>> posterior = RecursivePosterior.prior(1, noise_variance=1.0, prior_variance=1.0)
    >>> _ = posterior.update(np.ones((3, 1)), np.array([1.0, 2.0, 3.0]))
    >>> posterior.mean.round(12).tolist(), posterior.covariance.round(12).tolist()
    ([1.5], [[0.25]])
    """

    mean: Annotated[FloatArray, Shape("n_weights")]
    covariance: Annotated[FloatArray, Shape("n_weights", "n_weights")]
    noise_variance: Annotated[float, Positive]
    prior_variance: Annotated[float, Positive]
    n_samples: Annotated[float, AtLeast(0.0)] = 0.0

    __repr__ = short_repr

    def _set_covariance(self, covariance: FloatArray) -> None:
        self._kept = _Kept(np.require(covariance, np.float64, ("C", "W")), 1.0, 0)
        self._waiting: FloatArray = np.empty((0, len(covariance)))
        self._signs: FloatArray = np.empty(0)

    def _covariance(self) -> FloatArray:
        """Covariance S of the weights, symmetric; (n_weights, n_weights)."""
        with _SETTLING:
            kept = self._kept
            if kept.n_waiting or kept.scale != 1:  # not in place: other threads may be using it
                self._kept = kept = self._settled(kept._replace(matrix=kept.matrix.copy()))
            return kept.matrix

    @classmethod
    def prior(cls, n_weights: int, noise_variance: float, prior_variance: float = 1.0) -> Self:
        """Return the prior N(0, tI): no rows yet."""
        noise, t = _positive(noise_variance, prior_variance)
        return cls(np.zeros(n_weights), t * np.eye(n_weights), noise, t)

    @classmethod
    def of(
        cls, statistics: GaussianStatistics | TargetStatistics, noise_variance: float, prior_variance: float = 1.0
    ) -> Self:
        """Return the posterior of the rows of statistics, of one target."""
        noise, t = _positive(noise_variance, prior_variance)
        target = as_target_statistics(statistics)
        posterior = FactoredPosterior.of(target, noise, t)
        return cls(posterior.coefficients, posterior.covariance, noise, t, target.n_samples)

    @property
    def n_weights(self) -> int:
        """Number of basis functions b."""
        return len(self.mean)

    def copy(self) -> Self:
        """Return an independent copy."""
        return replace(self, mean=self.mean.copy(), covariance=self.covariance.copy())

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f = φᵀw at rows of Φ, without the noise; (n_rows,) each."""
        variance = np.einsum("ij,ij->i", self._images(phi), np.ascontiguousarray(phi))
        return product(phi, self.mean), np.maximum(variance, 0.0)

    def covariances(self, phi: FloatArray, other: FloatArray) -> FloatArray:
        """Covariances of f between rows of Φ, (n_rows, n_other)."""
        return np.asarray(product(phi, product(self.covariance, other.T)))

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw weights, (n_samples, n_weights)."""
        with single_blas_thread():
            factor = np.linalg.cholesky(self.covariance)
            return np.asarray(self.mean + rng.standard_normal((n_samples, self.n_weights)) @ factor.T)

    def update(self, phi: FloatArray, y: FloatArray, weight: FloatArray | None = None) -> Self:
        """Add rows, or remove them, in place.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        y : ndarray of shape (n_rows,)
            Targets.
        weight : ndarray of shape (n_rows,), optional
            How many times each row counts; −1 removes a row that was added.

        Returns
        -------
        Self
            The posterior itself.

        Raises
        ------
        ValueError
            If rows to be removed cannot have been added; the posterior is then as before this block of rows.
        """
        if weight is not None and not weight.all():
            used = weight != 0
            phi, y, weight = phi[used], y[used], weight[used]
        self.predict_then_update(phi, y, weight)
        return self

    def predict_then_update(
        self, phi: FloatArray, y: FloatArray, weight: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Add or remove rows one after another, and return what was predicted for each before its turn.

        Parameters
        ----------
        phi : ndarray of shape (n_rows, n_weights)
            Rows of Φ.
        y : ndarray of shape (n_rows,)
            Targets.
        weight : ndarray of shape (n_rows,), optional
            How many times each row counts, once by default; negative to remove it, never zero.

        Returns
        -------
        mean, variance : ndarray of shape (n_rows,)
            Of f, without the noise.
        """
        weight = np.ones(len(phi)) if weight is None else weight
        phi, y, weight = (np.ascontiguousarray(part, dtype=np.float64) for part in (phi, y, weight))
        mean, variance = np.empty((2, len(phi)))
        for begin in range(0, len(phi), BLOCK_ROWS):
            rows = slice(begin, min(begin + BLOCK_ROWS, len(phi)))
            self._make_room(rows.stop - begin)
            kept, updated = self._kept, self.mean.copy()
            n = kept.n_waiting + rows.stop - begin
            self._waiting[kept.n_waiting : n] = _products(kept, phi[rows])
            arrays = self._waiting, self._signs, updated, mean[rows], variance[rows]
            if not _core.recursive_update(
                phi[rows], y[rows], weight[rows], self.noise_variance, kept.n_waiting, *arrays
            ):
                raise ValueError("rows to remove must be among those added, got others")
            self.mean[:] = updated  # in place, as the caller may hold it
            self._kept = kept._replace(n_waiting=n)
            self.n_samples += float(weight[rows].sum())
            if rows.stop - begin > FEW_ROWS:
                self._kept = self._settled(self._kept)
        return mean, variance

    def fade(self, factor: float) -> Self:
        """Let all rows so far, and the prior, count `factor` times as much, in place: exponential forgetting."""
        kept = self._kept
        self._kept = kept._replace(scale=kept.scale / factor)
        if kept.n_waiting:
            self._waiting[: kept.n_waiting] /= np.sqrt(factor)
        self.prior_variance /= factor
        self.n_samples *= factor
        return self

    def improved_variances(self, statistics: TargetStatistics) -> tuple[float, float, float]:
        """Return the noise and prior variance of a fixed-point step towards the largest evidence, and what it rests on.

        ``t = ‖m‖²/γ`` and ``σ² = R/(n − γ)`` with γ = b − tr S/t, the number of weights that the data determine
        (MacKay 1992, eqs. 4.9 and 4.10). The present values count as one more weight and one more row, so that few rows
        move them little.

        Parameters
        ----------
        statistics : TargetStatistics
            Of the rows of this posterior.

        Returns
        -------
        (float, float, float)
            Noise and prior variance, and the degrees of freedom of the noise, n − γ + 1.
        """
        determined = min(max(self.n_weights - np.trace(self.covariance) / self.prior_variance, 0.0), self.n_weights)
        rest = max(statistics.n_samples - determined, 0.0)
        error = max(float(statistics.squared_error(self.mean)), 0.0)
        noise = (error + self.noise_variance) / (rest + 1)
        return noise, float(self.mean @ self.mean + self.prior_variance) / (determined + 1), rest + 1

    # --- rows that compiled code adds itself

    def lend(self) -> tuple[FloatArray, float, int, FloatArray, FloatArray]:
        """S as it was, by what it is to be multiplied, and how many rows have changed it since; their d and signs."""
        self._make_room(BLOCK_ROWS)
        return *self._kept, self._waiting, self._signs

    def take_back(self, n_rows: int, ratio: float, n_samples: float) -> None:
        """Go on after `n_rows` rows more, each in units of the S that was lent; all have faded by 1 / `ratio` since."""
        matrix, scale, n_waiting = self._kept
        self._kept = _Kept(matrix, scale * ratio, n_waiting + n_rows)
        if ratio != 1:
            self._waiting[: n_waiting + n_rows] *= np.sqrt(ratio)
        self.prior_variance *= ratio
        self.n_samples = n_samples

    # --- S as it was some rows ago, and what has changed it since

    def _make_room(self, n_rows: int) -> None:
        """Bring S up to date unless so many rows more can wait."""
        if self._kept.n_waiting + n_rows > BLOCK_ROWS:
            self._kept = self._settled(self._kept)
        if not len(self._waiting):
            self._waiting, self._signs = np.empty((BLOCK_ROWS, self.n_weights)), np.empty(BLOCK_ROWS)

    def _images(self, phi: FloatArray) -> FloatArray:
        """Return ΦS."""
        kept = self._kept  # another thread may bring S up to date
        images, waiting = _products(kept, phi), self._waiting[: kept.n_waiting]
        if kept.n_waiting:
            subtract_product(product(phi, waiting.T) * self._signs[: kept.n_waiting], waiting, images)
        return images

    def _settled(self, kept: _Kept) -> _Kept:
        """Bring S up to date in the matrix of `kept`."""
        matrix, scale, n = kept
        if scale != 1:
            matrix *= scale
        if n:
            add_gram(self._waiting[:n], matrix, -self._signs[:n], resolve_n_threads())
            mirrored(matrix)
        return _Kept(matrix, 1.0, 0)


def _products(kept: _Kept, phi: FloatArray) -> FloatArray:
    """Return Φ times S as it was before the rows that wait."""
    images = product(phi, kept.matrix, resolve_n_threads())
    return np.asarray(images if kept.scale == 1 else kept.scale * images)


# A field of the dataclass, brought up to date whenever it is looked at.
_up_to_date: Any = property(RecursivePosterior._covariance, RecursivePosterior._set_covariance)
RecursivePosterior.covariance = _up_to_date


def _positive(noise_variance: float, prior_variance: float) -> tuple[float, float]:
    noise = as_number(noise_variance, "noise_variance", above=0.0)
    return noise, as_number(prior_variance, "prior_variance", above=0.0)
