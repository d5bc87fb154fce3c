"""Noise of a fitted regressor that is not one Gaussian for all rows: log σ²(x) as a regression, and heavy tails.

Under a Gaussian model with noise variances σ_i², leverages h_i and residuals e_i, ``ρ_i = e_i²/(1 − h_i)`` is exactly
σ_i² times a χ² variable of one degree of freedom. Its logarithm is log σ_i² plus noise of known mean and variance, from
which a second regression learns g(x) = E log σ²(x) and the variance s_g² of that. The noise of a row is then a mixture
over scales, ``log σ²(x) ~ N(g(x) + shift, s_g²(x) + τ²)``, by Gauss-Hermite quadrature: s_g² is what is not known of g,
and the extra spread τ makes tails heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pydirect._validation import FloatArray, short_repr
from pydirect.features.basis import Basis
from pydirect.linear.posterior import GaussianPosterior
from pydirect.persistence.schema import AtLeast, Binds, Frees, OneOf, Positive, Shape

CONSTANT, HEAVY_TAILED = "constant", "constant, heavy tails"
VARYING, VARYING_HEAVY_TAILED = "varying", "varying, heavy tails"
STUDENT_T = "student_t"
OUTLIER_SPREAD = 1.5  # of the log noise variance: tails that outliers make
# Leave-one-out densities of fewer rows are too optimistic to choose by.
MIN_ROWS_TO_CHOOSE = 200
Kind = Annotated[str, OneOf(CONSTANT, HEAVY_TAILED, VARYING, VARYING_HEAVY_TAILED, STUDENT_T)]
# Of standardised targets; far from all rows, where nothing is known of g, its exponential would be infinite.
LARGEST_LOG_NOISE = float(np.log(1e6))
SPREADS = (0.3, 0.6, 1.0, 1.5, 2.0)
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
NODE_WEIGHTS /= NODE_WEIGHTS.sum()


@dataclass(frozen=True)
class Tails:
    """Extra spread τ of the log noise variance, and its shift."""

    spread: float = 0.0
    shift: float = 0.0


NO_TAILS = Tails()
# Logarithms of squares may spread less than those of Gaussian noise, of which estimates of variances are then too
# large: residuals of targets that are zeros and ones are nearly alike. So shifts go below that of the mean variance.
LIGHT_TAILS = tuple(Tails(shift=shift) for shift in (0.0, -0.3, -0.6, -0.9, -1.2))
TAILS = tuple(
    Tails(tau, shift)
    for tau in SPREADS
    for shift in (0.0, -tau / 4, -tau / 2, -(tau**2) / 4, *(-(tau**2) / 2 - below for below in (0.0, 0.6, 1.2)))
)


@dataclass(frozen=True)
class LogNoise:
    """Normal distribution of each row's log noise variance.

    - `mean`, `variance`, (n_rows,).
    """

    mean: FloatArray
    variance: FloatArray

    @classmethod
    def constant(cls, noise: float, n_rows: int) -> LogNoise:
        """Return the same noise variance, exactly known, for all rows."""
        return cls(np.full(n_rows, np.log(noise)), np.zeros(n_rows))

    def variances(self, tails: Tails) -> FloatArray:
        """Noise variances at the nodes of the quadrature, (n_rows, n_nodes); their weights are `NODE_WEIGHTS`."""
        spread = np.sqrt(self.variance + tails.spread**2)
        # Node after node in memory, as sums over few of them for each of many rows are fast only so.
        return np.exp(np.minimum(self.mean + tails.shift + spread * NODES[:, None], LARGEST_LOG_NOISE)).T

    def log_density(self, residual: FloatArray, latent_variance: FloatArray, tails: Tails) -> FloatArray:
        """Log density of targets, (n_rows,), given their distance from the mean of f, and its variance."""
        variance = latent_variance[:, None] + self.variances(tails)
        parts = -0.5 * (np.log(2 * np.pi * variance) + np.square(residual)[:, None] / variance)
        most = parts.max(axis=1, keepdims=True)
        return np.asarray(most[:, 0] + np.log((np.exp(parts - most) * NODE_WEIGHTS).sum(axis=1)))


@dataclass(frozen=True)
class LogVariance:
    """Regression of log noise variances on X, in standardised units of the target.

    Attributes
    ----------
    basis : Basis
    posterior : GaussianPosterior
        Of the weights of standardised log variances.
    location, scale : ndarray of shape (n_outputs,)
        From standardised log variances to log variances.
    mean_missing : float
        Variance that the basis functions lack at an average training row.
    """

    basis: Annotated[Basis, Binds(n_weights="n_weights", n_features_in="n_features_in"), Frees("n_inputs")]
    posterior: GaussianPosterior
    location: Annotated[FloatArray, Shape("n_outputs")]
    scale: Annotated[FloatArray, Shape("n_outputs"), Positive]
    mean_missing: Annotated[float, AtLeast(0.0)]

    __repr__ = short_repr

    def moments(self, x: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the log noise variance, (n_rows, n_outputs) each."""
        inputs = self.basis.inputs(x)
        phi = np.ascontiguousarray(self.basis.map.transform(inputs, np.float64, n_threads))
        mean, variance = self.posterior.moments(phi)
        missing = self.basis.missing_variance(inputs, phi, self.mean_missing)
        variance = variance + missing[:, None] * self.posterior.prior_variance
        return self.location + self.scale * mean, self.scale**2 * variance

    def means(self, x: FloatArray, n_threads: int = 1) -> FloatArray:
        """Mean of the log noise variance, (n_rows, n_outputs)."""
        project = self.basis.projection(self.posterior.coefficients)
        return np.asarray(self.location + self.scale * project(self.basis.inputs(x), n_threads))

    def check(self) -> None:
        """Raise unless the posterior is of all outputs."""
        if self.posterior.mean.ndim != 2:
            raise ValueError("posterior must be of all outputs")


@dataclass(frozen=True)
class NoiseModel:
    """Noise that varies from row to row or has heavy tails, in standardised units of the targets.

    The noise variance of a row is a mixture over scales.

    Attributes
    ----------
    choices : tuple of str
        Kind of noise of each output: ``"constant"`` (that of the posterior), ``"constant, heavy tails"``,
        ``"varying"``, ``"varying, heavy tails"`` or ``"student_t"``.
    log_noise : ndarray of shape (n_outputs,)
        Log noise variance where it is the same for all rows.
    spread, shift : ndarray of shape (n_outputs,)
        Extra spread of the log noise variance, and its shift.
    mean_variance : ndarray of shape (n_outputs,)
        Expected noise variance, averaged over the training rows.
    log_weights : ndarray of shape (n_outputs,)
        Half the sum of the log weights of the rows, which the evidence of a weighted fit lacks.
    candidates : tuple of str
        Kinds of noise that were compared.
    log_densities : ndarray of shape (n_candidates, n_outputs)
        Their mean leave-one-out log densities.
    log_variance : LogVariance, optional
        Regression of the log noise variance, where any output's noise varies.
    """

    choices: Annotated[tuple[Kind, ...], Shape("n_outputs")]
    log_noise: Annotated[FloatArray, Shape("n_outputs")]
    spread: Annotated[FloatArray, Shape("n_outputs")]
    shift: Annotated[FloatArray, Shape("n_outputs")]
    mean_variance: Annotated[FloatArray, Shape("n_outputs"), Positive]
    log_weights: Annotated[FloatArray, Shape("n_outputs")]
    candidates: Annotated[tuple[Kind, ...], Shape("n_candidates")]
    log_densities: Annotated[FloatArray, Shape("n_candidates", "n_outputs")]
    log_variance: LogVariance | None = None

    __repr__ = short_repr

    def of(self, x: FloatArray, n_threads: int = 1) -> list[tuple[FloatArray, FloatArray] | None]:
        """Return weights (n_nodes,) and values (n_rows, n_nodes) of each output's noise variance.

        None where it is the posterior's.
        """
        moments = None if self.log_variance is None else self.log_variance.moments(x, n_threads)
        found: list[tuple[FloatArray, FloatArray] | None] = []
        for k, choice in enumerate(self.choices):
            if choice == CONSTANT:
                found.append(None)
                continue
            if choice in (VARYING, VARYING_HEAVY_TAILED):
                assert moments is not None
                log_noise = LogNoise(moments[0][:, k], moments[1][:, k])
            else:
                log_noise = LogNoise(np.full(len(x), self.log_noise[k]), np.zeros(len(x)))
            found.append((NODE_WEIGHTS, log_noise.variances(Tails(float(self.spread[k]), float(self.shift[k])))))
        return found

    def gain(self) -> float:
        """Log density that left-out rows gain over constant noise, in nats per row, averaged over outputs."""
        chosen = [self.candidates.index(choice) for choice in self.choices]
        outputs = np.arange(len(chosen))
        gains = self.log_densities[chosen, outputs] - self.log_densities[self.candidates.index(CONSTANT)]
        return float(gains.mean())

    def words(self) -> list[str]:
        """Say which noise was chosen, a line per output."""
        lines = []
        for k, choice in enumerate(self.choices):
            compared = ", ".join(
                f"{name} {value:.4f}" for name, value in zip(self.candidates, self.log_densities[:, k], strict=True)
            )
            which = f"Noise of output {k}" if len(self.choices) > 1 else "Noise"
            hint = " If these are outliers, noise='student_t' keeps them from moving the mean." * bool(
                choice == HEAVY_TAILED and self.spread[k] >= OUTLIER_SPREAD
            )
            lines.append(f"{which}: {choice}; mean log density of left-out rows: {compared}.{hint}")
        return lines

    # --- files

    def check(self) -> None:
        """Raise unless there is a regression of log variances where it is needed."""
        if (self.log_variance is not None) != any(choice in (VARYING, VARYING_HEAVY_TAILED) for choice in self.choices):
            raise ValueError("log_variance must be given where the noise varies, and only there")
