"""Effects of rows on a Gaussian posterior are those of refits without them; Cook's distance is the classical one."""

import numpy as np
import pytest

from pydirect import GaussianStatistics
from pydirect.linear import FactoredPosterior, cooks_distance, influence_of_each, influence_of_few, influence_of_group

RNG = np.random.default_rng(0)
N, B, NOISE, PRIOR = 40, 7, 0.3, 1.7
PHI, Y, AT = RNG.standard_normal((N, B)), RNG.standard_normal(N), RNG.standard_normal((5, B))
WEIGHT = RNG.integers(0, 4, N).astype(float)
WEIGHT[3] = 2.0


def moments(rows, at=AT, prior=PRIOR):
    """Mean and variance of f by a refit to some rows."""
    phi, y, weight = PHI[rows], Y[rows], WEIGHT[rows]
    covariance = np.linalg.inv((phi.T * weight) @ phi / NOISE + np.eye(B) / prior)
    return at @ covariance @ phi.T @ (weight * y) / NOISE, np.einsum("ij,jk,ik->i", at, covariance, at)


def posterior(prior=PRIOR):
    return FactoredPosterior.of(GaussianStatistics.from_arrays(PHI, Y, WEIGHT).target(0), NOISE, prior)


def sums(rows, errors):
    return GaussianStatistics.from_arrays(PHI[rows], errors[rows], WEIGHT[rows]).target(0)


def test_each_row_did_what_a_refit_without_it_says():
    found = posterior()
    effects = influence_of_each(found, AT, PHI, Y - PHI @ found.coefficients, WEIGHT)
    whole = moments(np.arange(N))
    for i in range(N):
        rest = moments(np.arange(N) != i)
        for effect, with_all, without in zip(effects, whole, rest, strict=True):
            np.testing.assert_allclose(effect[:, i], with_all - without, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [[3], [0, 1, 2, 3], np.arange(20), np.arange(N)], ids=len)
def test_a_group_did_what_a_refit_without_it_says(rows):
    found = posterior()
    errors = Y - PHI @ found.coefficients
    rest = moments(np.setdiff1d(np.arange(N), rows))
    ways = (
        influence_of_few(found, AT, PHI[rows], errors[rows], WEIGHT[rows]),
        influence_of_group(found, AT, sums(rows, errors)),
    )
    for effects in ways:
        for effect, with_all, without in zip(effects, moments(np.arange(N)), rest, strict=True):
            np.testing.assert_allclose(effect, with_all - without, rtol=0, atol=1e-11)


@pytest.mark.parametrize("way", ["of_few", "of_group"])
def test_rows_that_never_came_are_refused(way):
    found = posterior()
    strange = 50 * RNG.standard_normal((3, B))
    given = GaussianStatistics.from_arrays(strange, np.ones(3)).target(0)
    with pytest.raises(ValueError, match="rows must be among those that the model was fitted to"):
        influence_of_group(found, AT, given) if way == "of_group" else influence_of_few(found, AT, strange, np.ones(3))


def test_with_a_flat_prior_the_distance_is_cooks():
    found = posterior(prior=1e9)
    errors, precision = Y - PHI @ found.coefficients, WEIGHT / NOISE
    leverage = precision * found.moments(PHI)[1]
    distance = cooks_distance(errors, leverage, precision)
    whole = PHI @ found.coefficients
    for i in range(0, N, 7):
        rest = moments(np.arange(N) != i, at=PHI, prior=1e9)[0]
        expected = WEIGHT @ (whole - rest) ** 2 / (B * NOISE)
        np.testing.assert_allclose(distance[i], expected, rtol=1e-5, atol=1e-12)
