"""Exact posteriors of continuous weights, with noise and prior variance found by evidence."""

from __future__ import annotations

from dataclasses import dataclass

from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.sparse_spectrum import SMALLEST_NOISE
from pydirect.regression.decorrelated import DecorrelatedPosterior, fit_decorrelated
from pydirect.regression.evidence import maximise_evidence
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget


@dataclass(frozen=True)
class ExactPosterior:
    """Posterior of the weights of one output.

    - `fit`: of weights in units of their prior standard deviation.
    - `noise`: noise variance.
    - `variance`: prior variance of a weight.
    """

    fit: DecorrelatedPosterior
    noise: float
    variance: float

    @classmethod
    def of(cls, rotated: RotatedTarget, noise: float, variance: float) -> ExactPosterior:
        """Return the exact posterior for this noise and prior variance."""
        return cls(fit_decorrelated(rotated.scaled(variance), noise, n_noise_levels=1), noise, variance)


def exact_posteriors(rotated: RotatedStatistics, hyperparameters: KernelHyperparameters) -> list[ExactPosterior]:
    """Return the exact posterior per output, at the noise and prior variance of largest evidence."""
    # The evidence is optimistic about columns chosen for what they explain; the kernel's noise is not.
    least = max(hyperparameters.noise_variance, SMALLEST_NOISE)
    found = []
    for k in range(len(rotated.yty)):
        target = rotated.target(k)
        noise, variance = maximise_evidence(target, least)
        if noise < least:
            noise, variance = maximise_evidence(target, least, variance, fit_noise=False)
        found.append(ExactPosterior.of(target, noise, variance))
    return found
