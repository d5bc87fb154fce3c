"""Exact leave-one-out predictions of regression with continuous Gaussian weights.

With the noise variance, the prior variance and the basis functions held, the prediction of row i without that row
follows from the posterior of all rows: the posterior variance of f there, in units of its noise variance, is the row's
leverage h, and the residual without the row is e/(1 − h) (Rasmussen & Williams 2006, section 5.4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray

# A row that determines its own prediction has a leverage of one; what is left of it then is rounding.
SMALLEST_REMAINDER = 1e-14


@dataclass(frozen=True)
class LeaveOneOut:
    """Predictions of rows by the model without them; arrays of shape (n_rows, n_outputs) unless said otherwise.

    - `residuals`: y − mean.
    - `variances`: of y: of f, of what the basis functions miss, and of the noise; `latent_variances`: of f alone.
    - `leverages`: h, between 0 and 1.
    - `n_effective`, (n_outputs,): effective number of weights that the data determine, Σh, if every row is left out
      with all its copies.
    """

    residuals: FloatArray
    means: FloatArray
    variances: FloatArray
    latent_variances: FloatArray
    leverages: FloatArray
    n_effective: FloatArray

    @property
    def studentised(self) -> FloatArray:
        """Residuals in standard deviations of their predictions."""
        return self.residuals / np.sqrt(self.variances)

    @property
    def log_density(self) -> FloatArray:
        """Gaussian log density of y without the row, in nats."""
        return -0.5 * (np.log(2 * np.pi * self.variances) + np.square(self.studentised))

    def rows(self, index: NDArray[np.intp]) -> LeaveOneOut:
        """Return the predictions of some rows, or of merged rows for every one of their copies."""
        names = ("residuals", "means", "variances", "latent_variances", "leverages")
        return replace(self, **{name: getattr(self, name)[index] for name in names})


def leave_one_out(
    targets: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    precision: FloatArray,
    noise: FloatArray | None = None,
    missing: FloatArray | None = None,
) -> LeaveOneOut:
    """Predict every row by the model without it.

    Copies of a row are to be merged first, with their precisions added up
    (`pydirect.features.repeated.merge_repeated`): leaving out one of them says nothing, as the others are still there.

    Parameters
    ----------
    targets : ndarray of shape (n_rows, n_outputs)
        What the rows are to predict.
    mean, variance : ndarray of shape (n_rows, n_outputs)
        Moments of f given all rows, as of `GaussianPosterior.moments`.
    precision : ndarray of shape (n_outputs,) or (n_rows, n_outputs)
        ω/σ², with which what is left out of each row entered the posterior: one measurement, or all copies together;
        0 for a row that did not enter.
    noise : ndarray of shape (n_outputs,) or (n_rows, n_outputs), optional
        Variance of the noise of one new observation; 1/`precision` by default.
    missing : ndarray of shape (n_rows, n_outputs), optional
        Variance of f that the basis functions miss, which no row can reduce.

    Returns
    -------
    LeaveOneOut
        Predictions of every row.
    """
    leverage = np.clip(precision * variance, 0.0, 1.0)
    remainder = np.maximum(1 - leverage, SMALLEST_REMAINDER)
    residuals = (targets - mean) / remainder
    latent = variance / remainder
    total = latent + (1 / precision if noise is None else noise)
    if missing is not None:
        total = total + missing
    return LeaveOneOut(residuals, targets - residuals, total, latent, leverage, leverage.sum(axis=0))
