"""Elimination of random effects, against the dense system of all weights and effects."""

import numpy as np
import pytest

from pydirect.linear import random_effects
from pydirect.linear.fit import InitialHyperparameters
from pydirect.linear.random_effects import GroupSums, fit_random_effects, with_ones
from pydirect.statistics.gaussian import IdentityFeatures

N, B, G = 60, 4, 9
RNG = np.random.default_rng(0)
PHI, GROUP = RNG.normal(size=(N, B)), RNG.integers(0, G, N)
Z = np.column_stack([np.ones(N), RNG.normal(size=N)])
WEIGHT = RNG.integers(1, 3, N).astype(float)
Y = PHI @ RNG.normal(size=B) + 0.5 + RNG.normal(size=G)[GROUP] + 0.3 * RNG.normal(size=N)
NEW_PHI, NEW_Z, NEW_GROUP = RNG.normal(size=(5, B)), RNG.normal(size=(5, 2)), np.array([0, 3, -1, 8, -1])
INITIAL = InitialHyperparameters(0.1)


def sums(q, rows=slice(None)):
    features = IdentityFeatures(B)
    return GroupSums.collect(features, PHI[rows], Y[rows], Z[rows, :q], GROUP[rows], G, WEIGHT[rows])


@pytest.mark.parametrize("q", [1, 2])
def test_evidence_and_predictions_are_those_of_the_dense_system(q):
    posterior, scale, effects, evidence = fit_random_effects(sums(q), INITIAL)
    noise = float(posterior.noise.levels[0])
    t, of_effects = scale**2, noise / effects.ratio
    again = np.repeat(np.arange(N), WEIGHT.astype(int))
    phi, y, z, group = PHI[again], Y[again], Z[again, :q], GROUP[again]
    same = group[:, None] == group
    covariance = t * phi @ phi.T + same * ((z * of_effects) @ z.T) + noise * np.eye(len(y))
    precision, one = np.linalg.inv(covariance), np.ones(len(y))
    mass = one @ precision @ one
    beta = one @ precision @ y / mass
    log_determinant = np.linalg.slogdet(2 * np.pi * covariance)[1] + np.log(mass / (2 * np.pi))
    assert evidence == pytest.approx(-0.5 * ((y - beta) @ precision @ (y - beta) + log_determinant), rel=1e-8)

    new_z = NEW_Z[:, :q]
    cross = t * NEW_PHI @ phi.T + (NEW_GROUP[:, None] == group) * ((new_z * of_effects) @ z.T)
    prior = t * (NEW_PHI**2).sum(axis=1) + new_z**2 @ of_effects
    gain = 1 - cross @ precision @ one
    mean, variance = effects.moments(posterior, scale, noise, with_ones(NEW_PHI), new_z, NEW_GROUP)
    np.testing.assert_allclose(mean, beta + cross @ precision @ (y - beta), rtol=1e-10)
    expected = prior - np.einsum("ij,jk,ik->i", cross, precision, cross) + gain**2 / mass
    np.testing.assert_allclose(variance, expected, rtol=1e-10)


def test_variances_are_those_of_largest_evidence():
    evidence = fit_random_effects(sums(1), INITIAL)[3]
    found = fit_random_effects(sums(1), INITIAL)[2].ratio
    for factor in (0.8, 1.25):
        statistics, log_determinant, _ = sums(1).eliminated(found * factor)
        rotated = random_effects.decorrelate(statistics).target(0)
        other = random_effects.fit_by_evidence(rotated, INITIAL, n_noise_levels=1)[0]
        assert other.elbo - 0.5 * log_determinant < evidence


def test_sums_of_equal_sizes_are_the_same_as_of_all_groups(monkeypatch):
    ratio = np.array([0.7])
    few = sums(1).eliminated(ratio)[0]
    monkeypatch.setattr(random_effects, "FEW_SIZES", 0)
    np.testing.assert_allclose(few.A, sums(1).eliminated(ratio)[0].A, rtol=1e-10)


def test_sums_add_up_and_subtract(monkeypatch):
    first, last = sums(2, slice(0, 25)), sums(2, slice(25, None))
    monkeypatch.delattr("copy.deepcopy")  # nothing is copied first
    for name in ("phi", "z", "y", "gram", "c", "yty", "n_samples"):
        np.testing.assert_allclose(getattr(first + last, name), getattr(sums(2), name), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(getattr(sums(2) - last, name), getattr(first, name), rtol=1e-10, atol=1e-10)


def test_blocks_of_rows_may_cut_groups(monkeypatch):
    expected = sums(2)
    monkeypatch.setattr(random_effects, "block_rows", lambda *_: 7)
    for name in ("phi", "z", "y", "gram", "c"):
        np.testing.assert_allclose(getattr(sums(2), name), getattr(expected, name), rtol=1e-10, atol=1e-10)
