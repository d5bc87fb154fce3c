"""Weights on levels, drawn one after another.

About the posterior of continuous weights the expected log-likelihood is, to second order, a Gaussian regression of
noise variance one,

    log p(y | w) ≈ constant + Σ_k cₖᵀwₖ − ½ wₖᵀAwₖ,    A = Σ hω φφᵀ

from which `fit_sequential` draws the weights of each function. Where four bits cost nothing h hardly depends on the
levels: it and the prior variance come from continuous weights, in the few directions about which the data say
anything, and the weights are drawn once, when these have converged. The likelihood of the draws is then exact, so that
their ELBO is an unbiased estimate of a lower bound on the log evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.direct.sequential import Lattice
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.logistic.ascent import Ascent
from pydirect.logistic.fit import LogisticFit
from pydirect.logistic.gaussian import FullGaussian
from pydirect.logistic.rows import LabelledRows, RowPasses
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import TargetStatistics

DrawnRows = LabelledRows | RowPasses


@single_blas_thread()
def draw_at_rest(
    source: DrawnRows,
    ascent: Ascent[FullGaussian],
    lattice: Lattice,
    *,
    directions: FloatArray | None,
    random_states: Sequence[int],
    n_threads: int,
    stop: threading.Event,
) -> LogisticFit[SequentialPosterior]:
    """Draw the weights of functions whose continuous weights have converged, or were interrupted on the way."""
    state, outcome = ascent.best.state, ascent.result(stop)
    variance, latent = float(np.exp(state.log_variance)), ascent.best.posterior
    problems = [(target, 1.0, variance) for target in _regressions(state.gram, state.targets, directions)]
    found = lattice.draw_together(problems, random_states, n_threads)
    posteriors = [posterior.in_units_of(float(np.sqrt(variance))) for posterior in found]
    n = len(posteriors)
    weights = np.sqrt(variance) * np.stack([posterior.draws.T for posterior in posteriors], axis=1)
    if directions is not None:
        weights = np.tensordot(directions.T, weights, 1)
    expansions = _expansions(state.gram, state.targets, weights)
    # The log-likelihood that the expansion stands for, on average over the continuous posterior.
    expected = state.targets - 0.5 * state.gram @ latent.mean
    second = np.vdot(latent.root, state.gram @ latent.root)
    average = float(np.vdot(expected, latent.mean)) - 0.5 * n * float(second)
    if stop.is_set():
        log_likelihood = ascent.bound + ascent.best.cost - average + expansions.sum(axis=0)
    else:
        log_likelihood = source.log_likelihoods(weights)
    fits = []
    cost, spread = ascent.best.cost, latent.kl_of_spread(variance)
    penalty = cost - latent.kl(variance)
    for posterior, expansion, mean in zip(posteriors, expansions, latent.mean.T, strict=True):
        # Each function has its share of the likelihood and the divergence of its own weights.
        continuous = (outcome.elbo + cost - penalty) / n - 0.5 * float(mean @ mean) / variance - spread
        log_weights = posterior.log_weights - expansion + (log_likelihood - penalty) / n
        elbo = float(log_weights.mean())
        trace = np.append(outcome.trace / n, elbo)
        own = Outcome(elbo, trace, len(trace), outcome.converged, outcome.interrupted)
        fits.append(replace(posterior, log_weights=log_weights, log_evidence_continuous=continuous, outcome=own))
    return LogisticFit(fits, variance)


def _regressions(gram: FloatArray, targets: FloatArray, directions: FloatArray | None) -> list[TargetStatistics]:
    """Return A and each function's c of all weights, from those of directions that hold all information."""
    if directions is None:
        return [TargetStatistics(gram, np.ascontiguousarray(c), 0.0, 0.0) for c in targets.T]
    whole = directions @ gram @ directions.T
    return [TargetStatistics(whole, directions @ c, 0.0, 0.0) for c in targets.T]


def _expansions(gram: FloatArray, targets: FloatArray, weights: FloatArray) -> FloatArray:
    """Return ``cₖᵀwₖ − ½ wₖᵀAwₖ`` of each draw, (n_functions, n_draws)."""
    linear = np.einsum("jk,jks->ks", targets, weights)
    return linear - 0.5 * np.einsum("jks,jks->ks", weights, np.tensordot(gram, weights, 1))
