"""Elimination of random effects, against the dense system of all weights and effects."""

from dataclasses import fields

import numpy as np
import pytest

from pydirect.linear import random_effects
from pydirect.linear.fit import InitialHyperparameters
from pydirect.linear.random_effects import GroupSums, fit_random_effects, in_columns, with_ones
from pydirect.statistics.gaussian import IdentityFeatures

N, B, G = 60, 4, 9
RNG = np.random.default_rng(0)
PHI, GROUP = RNG.normal(size=(N, B)), RNG.integers(0, G, N)
Z = np.column_stack([np.ones(N), RNG.normal(size=N)])
WEIGHT = RNG.integers(1, 3, N).astype(float)
Y = PHI @ RNG.normal(size=B) + 0.5 + RNG.normal(size=G)[GROUP] + 0.3 * RNG.normal(size=N)
NEW_PHI, NEW_Z, NEW_GROUP = RNG.normal(size=(5, B)), RNG.normal(size=(5, 2)), np.array([0, 3, -1, 8, -1])
INITIAL = InitialHyperparameters(0.1)
# Columns of the levels of two more factors, crossed and nested
SIZES = [4, 3]
LEVEL = np.column_stack([RNG.integers(0, 4, N), 4 + GROUP % 3])
Y += 0.6 * RNG.normal(size=7)[LEVEL].sum(axis=1)
NEW_LEVEL = np.array([[0, -1], [3, 6], [-1, -1], [-1, 5], [2, 4]])


def sums(q, rows=slice(None), sizes=()):
    levels = in_columns(LEVEL[rows, : len(sizes)], sum(sizes))
    return GroupSums.collect(IdentityFeatures(B), PHI[rows], Y[rows], Z[rows, :q], GROUP[rows], G, WEIGHT[rows], levels)


@pytest.mark.parametrize(("q", "sizes"), [(1, []), (2, []), (1, SIZES[:1]), (1, SIZES), (2, SIZES)])
def test_evidence_and_predictions_are_those_of_the_dense_system(q, sizes):
    posterior, scale, effects, evidence = fit_random_effects(sums(q, sizes=sizes), INITIAL, sizes)
    noise = float(posterior.noise.levels[0])
    t, of_effects, of_levels = scale**2, noise / effects.ratio[:q], noise / effects.ratio[q:]
    again = np.repeat(np.arange(N), WEIGHT.astype(int))
    phi, y, z, group = PHI[again], Y[again], Z[again, :q], GROUP[again]
    same = group[:, None] == group
    member = in_columns(LEVEL[again, : len(sizes)], sum(sizes)).toarray()
    covariance = t * phi @ phi.T + same * ((z * of_effects) @ z.T) + noise * np.eye(len(y))
    covariance += (member * of_levels) @ member.T
    precision, one = np.linalg.inv(covariance), np.ones(len(y))
    mass = one @ precision @ one
    beta = one @ precision @ y / mass
    log_determinant = np.linalg.slogdet(2 * np.pi * covariance)[1] + np.log(mass / (2 * np.pi))
    assert evidence == pytest.approx(-0.5 * ((y - beta) @ precision @ (y - beta) + log_determinant), rel=1e-8)

    new_z = NEW_Z[:, :q]
    levels = in_columns(NEW_LEVEL[:, : len(sizes)], sum(sizes))
    cross = t * NEW_PHI @ phi.T + (NEW_GROUP[:, None] == group) * ((new_z * of_effects) @ z.T)
    cross += (levels * of_levels) @ member.T
    prior = t * (NEW_PHI**2).sum(axis=1) + new_z**2 @ of_effects + levels**2 @ of_levels
    gain = 1 - cross @ precision @ one
    mean, variance = effects.moments(posterior, scale, noise, with_ones(NEW_PHI), new_z, NEW_GROUP, levels)
    np.testing.assert_allclose(mean, beta + cross @ precision @ (y - beta), rtol=1e-10)
    expected = prior - np.einsum("ij,jk,ik->i", cross, precision, cross) + gain**2 / mass
    np.testing.assert_allclose(variance, expected, rtol=1e-10)


@pytest.mark.parametrize("sizes", [[], SIZES])
def test_variances_are_those_of_largest_evidence(sizes):
    own = sums(1, sizes=sizes)
    _, _, effects, evidence = fit_random_effects(own, INITIAL, sizes)
    assert (effects.ratio < 1e3).all()
    for k in range(1 + len(sizes)):
        for factor in (0.7, 1.4):
            other = np.where(np.repeat(np.arange(1 + len(sizes)) == k, [1, *sizes]), factor, 1.0) * effects.ratio
            statistics, log_determinant, _ = own.eliminated(other)
            rotated = random_effects.decorrelate(statistics).target(0)
            posterior = random_effects.fit_by_evidence(rotated, INITIAL, n_noise_levels=1)[0]
            assert posterior.elbo - 0.5 * log_determinant < evidence


def test_variances_of_factors_that_make_no_difference_are_nearly_zero():
    levels = in_columns(np.column_stack([np.zeros(N, int), 1 + RNG.integers(0, 20, N)]), 21)
    own = GroupSums.collect(IdentityFeatures(B), PHI, PHI[:, 0] + 0.1 * Z[:, 1], Z[:, :1], GROUP, G, WEIGHT, levels)
    ratio = fit_random_effects(own, INITIAL, [1, 20])[2].ratio[[0, 1, 2]]
    assert (ratio[1:] > 5).all() and (ratio > 1).all()


def test_sums_of_equal_sizes_are_the_same_as_of_all_groups(monkeypatch):
    ratio = np.array([0.7])
    few = sums(1).eliminated(ratio)[0]
    monkeypatch.setattr(random_effects, "FEW_SIZES", 0)
    np.testing.assert_allclose(few.A, sums(1).eliminated(ratio)[0].A, rtol=1e-10)


def test_sums_add_up_and_subtract(monkeypatch):
    whole, first, last = (sums(2, rows, SIZES) for rows in (slice(None), slice(0, 25), slice(25, None)))
    monkeypatch.delattr("copy.deepcopy")  # nothing is copied first
    for own in fields(GroupSums):
        joined, left, expected, start = (
            dense(getattr(s, own.name)) for s in (first + last, whole - last, whole, first)
        )
        np.testing.assert_allclose(joined, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(left, start, rtol=1e-10, atol=1e-10)


def dense(sums):
    return sums.toarray() if hasattr(sums, "toarray") else sums


def test_blocks_of_rows_may_cut_groups(monkeypatch):
    expected = sums(2, sizes=SIZES)
    monkeypatch.setattr(random_effects, "block_rows", lambda *_: 7)
    for name in ("phi", "z", "y", "gram", "c", "levels_phi"):
        np.testing.assert_allclose(getattr(sums(2, sizes=SIZES), name), getattr(expected, name), rtol=1e-10, atol=1e-10)
