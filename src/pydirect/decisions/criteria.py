"""What a surrogate-based search maximises: logarithms of expected improvement and of feasibility, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import log_ndtr, logsumexp

from pydirect._validation import FloatArray
from pydirect.decisions.acquisition import LOG_ROOT_TWO_PI, log_expected_improvement, log_probability_of_feasibility
from pydirect.decisions.surrogate import PreparedSurrogate

# Nodes on [0, 1] of integrals over the improvement.
NODES, NODE_WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(24))
NODES = NODES + 0.5
Slopes = Sequence[tuple[FloatArray, FloatArray]]


class Term(Protocol):
    """One term of a criterion, a function of the means and deviations of some surrogates."""

    @property
    def surrogates(self) -> Sequence[PreparedSurrogate]:
        """What the moments are of."""
        ...  # pragma: no cover

    def value(self, moments: Slopes) -> FloatArray:
        """Return values, (n_rows,), from (mean, std) of each surrogate, (n_rows,) each."""
        ...  # pragma: no cover

    def slopes(self, moments: Slopes) -> Slopes:
        """Return the derivatives by (mean, std) of each surrogate, (n_rows,) each."""
        ...  # pragma: no cover


@dataclass(frozen=True)
class Criterion:
    """The sum of terms, as a function of the surrogates' inputs."""

    terms: Sequence[Term]

    def value(self, inputs: FloatArray) -> FloatArray:
        """Return values, (n_rows,)."""
        return np.sum([term.value([s.moments(inputs) for s in term.surrogates]) for term in self.terms], axis=0)

    def gradient(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values, (n_rows,), and gradients, (n_rows, n_inputs)."""
        value, gradient = np.zeros(len(inputs)), np.zeros(inputs.shape)
        for term in self.terms:
            found = [s.gradients(inputs) for s in term.surrogates]
            moments = [(mean, std) for mean, std, _, _ in found]
            value += term.value(moments)
            for (by_mean, by_std), (_, _, mean, std) in zip(term.slopes(moments), found, strict=True):
                gradient += by_mean[:, None] * mean + by_std[:, None] * std
        return value, gradient


@dataclass(frozen=True)
class Improvement:
    """log E max(f − best, 0)."""

    surrogates: Sequence[PreparedSurrogate]
    best: float

    def value(self, moments: Slopes) -> FloatArray:
        """Return log expected improvement."""
        ((mean, std),) = moments
        return log_expected_improvement(mean, std, self.best)

    def slopes(self, moments: Slopes) -> Slopes:
        """Return its derivatives, Φ(z)/EI and φ(z)/EI with z = (mean − best)/std."""
        ((mean, std),) = moments
        z, log_ei = (mean - self.best) / std, self.value(moments)
        return [(np.exp(log_ndtr(z) - log_ei), np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ei))]


@dataclass(frozen=True)
class Feasibility:
    """log P(f ≤ threshold)."""

    surrogates: Sequence[PreparedSurrogate]
    threshold: float

    def value(self, moments: Slopes) -> FloatArray:
        """Return the log probability."""
        ((mean, std),) = moments
        return log_probability_of_feasibility(mean, std, upper=self.threshold)

    def slopes(self, moments: Slopes) -> Slopes:
        """Return its derivatives."""
        ((mean, std),) = moments
        z = (self.threshold - mean) / std
        hazard = np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ndtr(z)) / std
        return [(-hazard, -z * hazard)]


@dataclass(frozen=True)
class ChebyshevImprovement:
    """log E max(min_k u_k − best, 0), u_k = (f_k − reference_k)/direction_k, of independent objectives.

    The expectation is ∫ Π P(u_k > t) dt from the best on. Directions drawn uniformly from the sphere make the expected
    improvement of min_k u_k one of the hypervolume (Golovin & Zhang 2020, Random hypervolume scalarizations).
    """

    surrogates: Sequence[PreparedSurrogate]
    reference: FloatArray
    direction: FloatArray
    best: float

    def value(self, moments: Slopes) -> FloatArray:
        """Return the log expectation."""
        return self._integral(moments)[0]

    def slopes(self, moments: Slopes) -> Slopes:
        """Return its derivatives."""
        value, log_integrand, z, std = self._integral(moments)
        share = np.exp(log_integrand - value[:, None])
        hazard = share * np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ndtr(z))
        by_mean = hazard.sum(axis=-1) / std
        by_std = -(hazard * z).sum(axis=-1) / std
        return [(m / d, s / d) for m, s, d in zip(by_mean, by_std, self.direction, strict=True)]

    def _integral(self, moments: Slopes) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the log integral, (n_rows,), log integrand where it decays, (n_rows, n_nodes), z and deviations."""
        mean, std = np.stack(moments, axis=1)
        mean = (mean - self.reference[:, None]) / self.direction[:, None]
        std = std / self.direction[:, None]
        # The integrand is one up to here, decays at this rate from here on, and ends 7 deviations beyond any mean.
        begin = np.maximum((mean - 7 * std).min(axis=0), self.best)
        z = (mean - begin) / std
        rate = (np.exp(-0.5 * z * z - LOG_ROOT_TWO_PI - log_ndtr(z)) / std).sum(axis=0)
        length = np.minimum((np.maximum(mean - begin, 0.0) + 7 * std).min(axis=0), 30 / np.maximum(rate, 1e-6))
        t = begin[:, None] + length[:, None] * NODES
        z = (mean[..., None] - t) / std[..., None]
        log_integrand = log_ndtr(z).sum(axis=0) + np.log(length[:, None] * NODE_WEIGHTS)
        with np.errstate(divide="ignore"):
            value = np.logaddexp(np.log(begin - self.best), logsumexp(log_integrand, axis=1))
        return value, log_integrand, z, std
