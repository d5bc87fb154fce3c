"""Posteriors of groups about a common function, and what groups share, against dense Gaussian formulas."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pydirect import GaussianStatistics
from pydirect.distributions.noise import NoisePosterior
from pydirect.linear.group_deviations import CommonFunction, Population, _Table, group_posterior, no_rows, rows_of_group

N_WEIGHTS = 12


def make_group(rng, n_rows):
    phi = rng.standard_normal((n_rows, N_WEIGHTS)) / np.arange(1, N_WEIGHTS + 1)
    return phi, rng.standard_normal(n_rows)


def make_common(rng, share=0.0):
    return CommonFunction(rng.standard_normal(N_WEIGHTS) / 3, noise=0.3, scale=0.7, share=share)


def rows_of(phi, y, weight=None):
    return rows_of_group(GaussianStatistics.from_arrays(phi, y, weight))


def log_evidence(phi, y, common, noise, scale):
    covariance = noise * np.eye(len(y)) + scale * phi @ phi.T
    return multivariate_normal.logpdf(y, phi @ common.weights, covariance)


@pytest.mark.parametrize("n_rows", [1, 5, 12, 40])
def test_posterior_and_evidence_are_those_of_the_dense_formulas(n_rows):
    rng = np.random.default_rng(n_rows)
    (phi, y), common, noise, scale = make_group(rng, n_rows), make_common(rng), 0.2, 0.4
    posterior, unit = group_posterior(rows_of(phi, y), common, scale, NoisePosterior(np.array([noise]), np.ones(1)))
    covariance = np.linalg.inv(phi.T @ phi / noise + np.eye(N_WEIGHTS) / scale)
    weights = common.weights + covariance @ phi.T @ (y - phi @ common.weights) / noise
    np.testing.assert_allclose(unit * posterior.coefficients, weights, atol=1e-10)
    new, _ = make_group(rng, 6)
    mean, variance = posterior.latent_moments(new)
    np.testing.assert_allclose(unit * mean, new @ weights, atol=1e-10)
    np.testing.assert_allclose(unit**2 * variance, np.einsum("ij,jk,ik->i", new, covariance, new), rtol=2e-4)
    assert posterior.elbo == pytest.approx(log_evidence(phi, y, common, noise, scale), abs=1e-9)
    posterior.check()
    assert posterior.coefficients.shape == (N_WEIGHTS,)


def test_weights_of_two_are_rows_given_twice():
    rng = np.random.default_rng(0)
    phi, y = make_group(rng, 5)
    twice = rows_of(np.vstack([phi, phi[:2]]), np.append(y, y[:2]))
    weighted = rows_of(phi, y, np.array([2.0, 2.0, 1.0, 1.0, 1.0]))
    np.testing.assert_allclose(weighted.eigenvalues, twice.eigenvalues, rtol=1e-10)
    np.testing.assert_allclose(weighted.c**2, twice.c**2, rtol=1e-9)
    assert weighted.n_samples == twice.n_samples == 7
    assert weighted.yty == pytest.approx(twice.yty)


def test_a_group_without_rows_has_the_common_mean_and_the_spread_of_groups():
    rng = np.random.default_rng(1)
    common, noise = make_common(rng), NoisePosterior(np.array([0.2]), np.ones(1))
    posterior, unit = group_posterior(no_rows(N_WEIGHTS), common, 0.4, noise)
    new, _ = make_group(rng, 6)
    mean, variance = posterior.latent_moments(new)
    np.testing.assert_allclose(unit * mean, new @ common.weights)
    np.testing.assert_allclose(unit**2 * variance, 0.4 * (new**2).sum(axis=1))


def test_slopes_are_those_of_the_log_evidence():
    rng = np.random.default_rng(2)
    groups, common = [make_group(rng, n) for n in (3, 8, 30)], make_common(rng)
    table = _Table.of([rows_of(*group) for group in groups], common, 1.0)
    log_noise, log_scale, step = np.log([0.2, 0.5, 1.0]), np.log(0.4), 1e-5
    slope, _, climb, _ = table.slopes(log_noise, log_scale)

    def evidence(log_noise, log_scale):
        return np.array(
            [log_evidence(*g, common, np.exp(s), np.exp(log_scale)) for g, s in zip(groups, log_noise, strict=True)]
        )

    difference = evidence(log_noise + step, log_scale) - evidence(log_noise - step, log_scale)
    np.testing.assert_allclose(slope, difference / (2 * step), rtol=1e-5)
    difference = evidence(log_noise, log_scale + step) - evidence(log_noise, log_scale - step)
    assert climb == pytest.approx(difference.sum() / (2 * step), rel=1e-5)


def test_population_is_where_the_evidence_of_all_groups_is_largest():
    rng = np.random.default_rng(3)
    common, scale, noises = make_common(rng), 0.5, 0.2 * np.exp(0.7 * rng.standard_normal(300))
    groups = []
    for noise in noises:
        phi, _ = make_group(rng, 25)
        weights = common.weights + np.sqrt(scale) * rng.standard_normal(N_WEIGHTS)
        groups.append(rows_of(phi, phi @ weights + np.sqrt(noise) * rng.standard_normal(25)))
    found = Population.of(groups, common)
    assert found.scale == pytest.approx(scale, rel=0.1)
    assert found.log_noise == pytest.approx(np.log(0.2), abs=0.15)
    assert found.spread == pytest.approx(0.7, abs=0.12)
    assert np.corrcoef(found.log_noises, np.log(noises))[0, 1] > 0.85
    slope, _, climb, _ = _Table.of(groups, common, 1.0).slopes(found.log_noises, np.log(found.scale))
    np.testing.assert_allclose(slope, (found.log_noises - found.log_noise) / found.spread**2, atol=1e-3)
    assert abs(climb) < 0.01


def test_fixed_noise_is_that_of_every_group():
    rng = np.random.default_rng(4)
    groups = [rows_of(*make_group(rng, n)) for n in (3, 20)]
    found = Population.of(groups, make_common(rng), fixed_noise=0.25)
    for group in (0, 1, None):
        noise = found.noise(group, 15)
        np.testing.assert_allclose(noise.levels, [0.25])


def test_noise_of_a_group_is_lognormal():
    found = Population(0.1, np.log(0.2), 0.5, np.log([0.3]), np.array([0.4]))
    noise = found.noise(0, 15)
    assert noise.variance == pytest.approx(0.3 * np.exp(0.4**2 / 2))
    assert noise.precision == pytest.approx(np.exp(0.4**2 / 2) / 0.3)
    assert found.noise(None, 15).variance == pytest.approx(0.2 * np.exp(0.5**2 / 2))


def test_common_function_is_the_posterior_mean_of_all_rows():
    from pydirect.statistics import decorrelate

    rng = np.random.default_rng(5)
    phi, y = make_group(rng, 40)
    found = CommonFunction.of(decorrelate(GaussianStatistics.from_arrays(phi, y)).target(0), 0.3, 0.7)
    hat = phi @ np.linalg.solve(phi.T @ phi + 0.3 / 0.7 * np.eye(N_WEIGHTS), phi.T)
    np.testing.assert_allclose(phi @ found.weights, hat @ y, atol=1e-10)
    assert found.share == pytest.approx(np.trace(hat) / 40)
