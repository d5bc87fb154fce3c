"""A kernel for log noise variances: the best of few by the evidence of many rows.

Logarithms of squared residuals are mostly noise, of variance π²/2: a search on few rows finds little in them, and where
noise varies it does so slowly, or with few columns.
"""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.screen import RELEVANT, screen_columns
from pydirect.linear.referee import Referee

# Share of the targets' variance that is noise, to start the evidence from.
NOISE = 0.9
LINEAR_AMPLITUDE = 0.3
# Length-scales grow with the root of the number of columns that matter.
LONG, SHORT, RELEVANT_ONES, OTHERS = 1.5, 0.5, 1.0, 10.0
# Amplitude of what the relevant columns leave over.
REST = 0.1


def kernel_of_log_noise(
    x: FloatArray, y: FloatArray, weight: FloatArray, n_linear: int, rng: np.random.Generator, n_threads: int = 1
) -> KernelHyperparameters:
    """Return the kernel of largest evidence among those of long and short length-scales and of relevant columns.

    Parameters
    ----------
    x : ndarray of shape (n_rows, n_inputs)
        Standardised.
    y : ndarray of shape (n_rows, n_outputs)
        Estimates of log noise variances, standardised.
    weight : ndarray of shape (n_rows,)
    n_linear : int
        Number of leading inputs that enter the linear part.
    rng : numpy.random.Generator
    n_threads : int
    """
    relevant = np.flatnonzero(screen_columns(x[:, :n_linear], y, rng, n_threads) > RELEVANT)
    kernels = [_kernel(np.full(x.shape[1], scale * np.sqrt(n_linear)), 1.0, n_linear) for scale in (LONG, SHORT)]
    if relevant.size:
        length_scales = np.full(x.shape[1], OTHERS * np.sqrt(n_linear))
        length_scales[relevant] = RELEVANT_ONES * np.sqrt(relevant.size)
        kernels.append(_kernel(length_scales, REST, n_linear))
    referee = Referee(x, y, weight, rng, n_threads)
    return max(kernels, key=referee)


def _kernel(length_scales: FloatArray, isotropic_amplitude: float, n_linear: int) -> KernelHyperparameters:
    return KernelHyperparameters(
        noise_variance=NOISE,
        ard_amplitude=1.0,
        length_scales=length_scales,
        isotropic_amplitude=isotropic_amplitude,
        isotropic_length_scale=LONG * np.sqrt(n_linear),
        linear_amplitude=LINEAR_AMPLITUDE,
        n_linear=n_linear,
    )
