"""Fits of counts: the dispersion, weights, and counts far from their prior means or left out."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from pydirect.logistic import CountLikelihood, LabelledRows, ascend_latent
from pydirect.logistic.gaussian import VariancePrior
from pydirect.statistics.gaussian import IdentityFeatures

RNG = np.random.default_rng(0)
N = 40
PHI = RNG.standard_normal((N, 2))
OFFSET = np.log(RNG.uniform(0.5, 4.0, (N, 1)))
LOG_MEAN = OFFSET[:, 0] + PHI @ [0.8, -0.5]
WEIGHT = RNG.integers(1, 3, N).astype(float)


def rows(dispersion, y=None):
    y = RNG.poisson(np.exp(LOG_MEAN)).astype(float) if y is None else y
    counts = CountLikelihood(dispersion)
    return LabelledRows(IdentityFeatures(2), PHI, y[:, None], WEIGHT, OFFSET, model=counts)


def ascended(problem, variance_prior):
    return ascend_latent(problem, variance_prior, max_iter=100, stop=threading.Event())


def test_the_dispersion_found_has_the_largest_bound():
    problem = rows(2.0, RNG.poisson(RNG.gamma(2.0, np.exp(LOG_MEAN) / 2.0)).astype(float))
    prior = VariancePrior(0.7, 0.0)
    found, ascent = ascended(problem, prior)
    for factor in (0.8, 1.25):
        fixed = replace(found, model=_Fixed(factor * found.model.dispersion))
        assert ascended(fixed, prior)[1].bound < ascent.bound


class _Fixed(CountLikelihood):
    """A dispersion that is known."""

    def at_best(self, y, mean, variance, weight):
        return self


@pytest.mark.parametrize("dispersion", [0.0, 0.3])
def test_counts_far_from_their_prior_means_are_fitted(dispersion):
    y = np.exp(OFFSET[:, 0] + 7 + PHI @ [2.0, 1.0]).round()
    found, ascent = ascended(replace(rows(dispersion, y), offset=OFFSET - 2.0), VariancePrior(9.0, 0.0))
    assert np.isfinite(ascent.bound)
    assert ascent.converged
    assert found.model.dispersion == dispersion or found.model.dispersion > 0


def test_left_out_counts_have_the_probabilities_of_fits_without_them():
    problem = rows(0.0)
    prior = VariancePrior(0.7, 0.0)
    _, ascent = ascended(problem, prior)
    [left_out] = problem.left_out(ascent.best.latent).log_probability
    for i in range(0, N, 9):
        without = replace(problem, weight=problem.weight - (np.arange(N) == i))
        if without.weight[i] == 0:
            without = problem.chosen(np.flatnonzero(np.arange(N) != i))
        mean, variance = problem.moments(ascended(without, prior)[1].best.posterior)
        expected = problem.log_probability(mean, variance)[i]
        assert left_out[i] == pytest.approx(expected, abs=0.02)
