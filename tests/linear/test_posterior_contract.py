"""What every posterior of weights offers, against dense references: one suite over all of them."""

import pickle

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pydirect.direct.mean_field import MeanFieldPosterior, fit_mean_field
from pydirect.direct.mixture import fit_mixture
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential import fit_sequential
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.linear.fit import fit_gaussian
from pydirect.linear.posterior import FactoredPosterior, GaussianPosterior, posterior_for_rows
from pydirect.persistence.schema import pack, unpack
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate
from tests.helpers.oracles import monte_carlo_mean

N, B, NOISE, PRIOR = 40, 6, 0.3, 0.7
N_DRAWS = 20_000
LEVELS = evenly_spaced_levels(7, 2.0)
SAVED = (GaussianPosterior, MeanFieldPosterior, MixturePosterior, SequentialPosterior)


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((n, B)) * np.linspace(0.2, 2.0, B)
    return phi, 0.5 * phi @ rng.standard_normal(B) + 0.5 * rng.standard_normal(n)


def exact(n=N):
    """Mean and covariance of Gaussian weights, by a dense inverse."""
    phi, y = rows(n)
    covariance = np.linalg.inv(phi.T @ phi / NOISE + np.eye(B) / PRIOR)
    return covariance @ phi.T @ y / NOISE, covariance


def sums(n=N):
    return GaussianStatistics.from_arrays(*rows(n))


def eigen(n=N):
    return fit_gaussian(decorrelate(sums(n)), NOISE, prior_variance=PRIOR, n_noise_levels=1), *exact(n)


def factored():
    return FactoredPosterior.of(sums().target(0), NOISE, PRIOR), *exact()


def mean_field():
    posterior = fit_mean_field(sums(), LEVELS, GaussianPrior().log_mass(LEVELS), [0.1, NOISE, 1.0, 3.0])
    mean = posterior.q @ LEVELS
    return posterior, mean, np.diag(posterior.q @ LEVELS**2 - mean**2)


def mixture():
    posterior = fit_mixture(sums(3), LEVELS, GaussianPrior().log_mass(LEVELS), [NOISE], n_components=3)
    means = np.stack([component.q @ LEVELS for component in posterior.components])
    spreads = np.stack([component.q @ LEVELS**2 for component in posterior.components]) - means**2
    mean = posterior.alpha @ means
    between = (means - mean).T * posterior.alpha @ (means - mean)
    return posterior, mean, between + np.diag(posterior.alpha @ spreads)


def sequential():
    posterior = fit_sequential(sums().target(0), NOISE, PRIOR, n_draws=64, random_state=0)
    return posterior, posterior.draws.mean(axis=0), np.cov(posterior.draws.T, bias=True)


def sequential_with_factor():
    return fit_sequential(sums().target(0), NOISE, PRIOR, n_draws=8, keep_factor=True, random_state=0), *exact()


POSTERIORS = {
    "eigenvectors": eigen,
    "eigenvectors, fewer rows": lambda: eigen(4),
    "factor": factored,
    "mean field": mean_field,
    "mixture": mixture,
    "sequential": sequential,
    "sequential with factor": sequential_with_factor,
}


@pytest.fixture(scope="module", params=POSTERIORS)
def case(request):
    return POSTERIORS[request.param]()


@pytest.fixture(scope="module")
def phi():
    return np.random.default_rng(1).standard_normal((9, B))


def test_moments_are_the_dense_ones(case, phi):
    posterior, mean, covariance = case
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if getattr(posterior, "sampler", None) else {"rtol": 1e-9, "atol": 1e-11}
    found = posterior.latent_moments(phi)
    np.testing.assert_allclose(posterior.coefficients, mean, **tolerance)
    np.testing.assert_allclose(found[0], phi @ mean, **tolerance)
    np.testing.assert_allclose(found[1], np.einsum("ij,jk,ik->i", phi, covariance, phi), **tolerance)


def test_draws_have_the_moments(case, phi):
    posterior, _, _ = case
    if getattr(posterior, "sampler", None):
        pytest.skip("moments are those of continuous weights, draws on levels")
    stored = isinstance(posterior, SequentialPosterior) and posterior.sampler is None
    drawn = posterior.sample_weights(posterior.n_draws if stored else N_DRAWS, np.random.default_rng(2))
    assert drawn.shape[1] == B
    f, (mean, variance) = drawn @ phi.T, posterior.latent_moments(phi)
    for sample, expected in ((f, mean), ((f - mean) ** 2, variance)):
        got, error = monte_carlo_mean(sample)
        assert (np.abs(got - expected) < 4.5 * error + 1e-3 * np.abs(expected).max()).all()


def test_covariances_are_the_dense_ones(case, phi):
    posterior, _, covariance = case
    if not isinstance(posterior, GaussianPosterior | FactoredPosterior):
        pytest.skip("of Gaussian weights")
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(posterior.covariances(phi, phi[:3]), phi @ covariance @ phi[:3].T, rtol=1e-9, atol=1e-12)
    if isinstance(posterior, GaussianPosterior):
        root = posterior.covariance_root()
        np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-9, atol=1e-12)
        q = multivariate_normal(posterior.coefficients, covariance)
        prior = multivariate_normal(np.zeros(B), PRIOR * np.eye(B))
        draws = q.rvs(N_DRAWS, random_state=0)
        got, error = monte_carlo_mean(q.logpdf(draws) - prior.logpdf(draws))
        assert abs(got - posterior.kl) < 4.5 * error


@pytest.mark.parametrize("copied", [pickle.dumps, None], ids=["pickle", "file"])
def test_copies_have_the_same_bits(case, phi, copied):
    posterior, *_ = case
    if copied:
        again = pickle.loads(copied(posterior))
    elif not isinstance(posterior, SAVED):
        pytest.skip("not saved")
    else:
        header, arrays = pack(posterior, "p")
        again = unpack(type(posterior), header, arrays, "p", n_weights=B)
        with pytest.raises((TypeError, ValueError)):
            unpack(type(posterior), header, arrays, "p", n_weights=B + 1)
    for one, other in zip(posterior.latent_moments(phi), again.latent_moments(phi), strict=True):
        np.testing.assert_array_equal(one, other)


# Several outputs of Gaussian weights share the directions

SEVERAL = {"eigenvectors": GaussianPosterior.of, "sooner at rows": posterior_for_rows}


@pytest.mark.parametrize("form", SEVERAL)
@pytest.mark.parametrize("n", [4, N])
def test_outputs_are_those_of_each_alone(form, n, phi):
    x, y = rows(n)
    rotated = decorrelate(GaussianStatistics.from_arrays(x, np.stack([y, y**2], axis=1)))
    noise, prior = np.array([0.3, 0.1]), np.array([0.7, 1.0])
    both = SEVERAL[form](rotated, 1 / noise, prior)
    mean, variance = both.moments(phi)
    signs = np.square(np.einsum("nb,kbs->nks", phi, both.sketch(np.random.default_rng(0), 20_000))).sum(axis=2)
    np.testing.assert_allclose(signs, variance, rtol=0.06)
    for k, target in enumerate((y, y**2)):
        alone = FactoredPosterior.of(GaussianStatistics.from_arrays(x, target).target(0), noise[k], prior[k])
        np.testing.assert_allclose(both.coefficients[:, k], alone.coefficients, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(mean[:, k], alone.moments(phi)[0], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(variance[:, k], alone.moments(phi)[1], rtol=1e-9)


def test_factors_are_of_few_outputs_and_of_full_rank():
    several = decorrelate(GaussianStatistics.from_arrays(rows()[0], np.ones((N, 3))))
    few, one = several.outputs(slice(2)), np.ones(2)
    assert isinstance(posterior_for_rows(few, one, one), FactoredPosterior)
    assert isinstance(posterior_for_rows(several, np.ones(3), np.ones(3)), GaussianPosterior)
    short = decorrelate(sums(4))
    assert isinstance(posterior_for_rows(short, np.ones(1), np.ones(1)), GaussianPosterior)
    spoilt = decorrelate(sums())
    object.__setattr__(spoilt, "gram", -spoilt.gram)  # as rounding may
    assert isinstance(posterior_for_rows(spoilt, np.ones(1), np.ones(1)), GaussianPosterior)


@pytest.mark.parametrize("noise", [1e-2, 1e-6, 1e-10])
def test_factors_keep_variances_of_nearly_noise_free_rows(noise):
    rng = np.random.default_rng(3)
    phi = rng.standard_normal((90, 40)) * np.exp(-0.2 * np.arange(40))
    rotated = decorrelate(GaussianStatistics.from_arrays(phi, phi[:, 0]))
    variance = posterior_for_rows(rotated, np.array([1 / noise]), np.ones(1)).moments(phi)[1][:, 0]
    r = np.linalg.qr(np.vstack([phi / np.sqrt(noise), np.eye(40)]))[1]
    np.testing.assert_allclose(variance, np.square(np.linalg.solve(r.T, phi.T)).sum(axis=0), rtol=1e-4)
