import numpy as np
import pytest
from mixtures import entropy_of, enumerated, indices_of_hypotheses, random_mixture

from pydirect import _core
from pydirect.direct import mixture_posterior, pairwise_entropy
from pydirect.direct.mixture_posterior import taylor_entropy
from pydirect.testing import enumerate_predictive_moments
from tests.helpers.oracles import finite_difference_gradient, monte_carlo_mean

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        (np.full((2, 4), 200, np.uint8), ValueError, "indices must be from 0 to 2, got 200 to 200"),
        (np.full((2, 4), -1), ValueError, "indices must be from 0 to 2, got -1 to -1"),
        (np.zeros(4, np.uint8), ValueError, "indices must have shape .n_samples, 4., got .4,."),
        (np.zeros((2, 5), np.uint8), ValueError, "indices must have shape .n_samples, 4., got .2, 5."),
        (np.zeros((2, 4)), TypeError, "indices must hold integers, got dtype float64"),
    ],
)
def test_level_indices_are_checked(fitted, indices, error, message):
    with pytest.raises(error, match=message):
        fitted.log_mass(indices)


def test_predictive_moments_are_the_enumerated_ones(fitted):
    phi = np.random.default_rng(1).standard_normal((7, 4))
    expected = enumerate_predictive_moments(phi, enumerated(fitted))
    mean, variance = fitted.latent_moments(phi)
    np.testing.assert_allclose(mean, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(variance, expected.variance, rtol=1e-10)
    for order, cumulant in enumerate(expected, start=1):
        np.testing.assert_allclose(fitted.latent_cumulant(phi, order), cumulant, rtol=1e-10, atol=1e-10)
    means, variances = fitted.component_moments(phi)
    assert means.shape == variances.shape == (7, 3)


def test_masses_and_the_most_probable_weights_are_the_enumerated_ones(fitted):
    indices = indices_of_hypotheses(4, 3)
    probability = enumerated(fitted).weight_probability
    np.testing.assert_allclose(np.exp(fitted.log_mass(indices)), probability, rtol=1e-12)
    modes = np.stack([c.most_probable() for c in fitted.components])
    assert fitted.log_mass(fitted.most_probable()[None])[0] == fitted.log_mass(modes).max()


def test_samples_have_the_mixtures_probabilities(fitted):
    indices = fitted.sample_indices(20_000, 0)
    assert indices.dtype == np.uint8 and indices.shape == (20_000, 4)
    code = indices.astype(int) @ 3 ** np.arange(3, -1, -1)
    mean, error = monte_carlo_mean(code[:, None] == np.arange(81))
    probability = enumerated(fitted).weight_probability
    assert (np.abs(mean - probability) <= 5 * error + 1e-3 * (probability < 1e-3)).all()
    weights = fitted.sample_weights(50, np.random.default_rng(0))
    assert set(np.unique(weights)) <= {-1.0, 0.0, 1.5}


def test_pairwise_bracket_is_tight_for_one_component_and_for_disjoint_ones():
    alpha, q = random_mixture(r=1)
    np.testing.assert_allclose(pairwise_entropy(alpha, q), entropy_of(alpha, q), rtol=1e-12)
    alpha, q = random_mixture(r=2, m=4)
    q[0, 1, :2], q[1, 1, 2:] = 0.0, 0.0
    q /= q.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(pairwise_entropy(alpha, q), entropy_of(alpha, q), rtol=1e-12)


def test_pairwise_and_taylor_bounds_are_each_closer_where_they_should_be():
    alpha, apart = random_mixture(r=3, concentration=0.1, seed=1)
    near = random_mixture(r=1, concentration=5.0)[1] + 0.02 * random_mixture(r=3, seed=2)[1]
    near /= near.sum(axis=2, keepdims=True)

    def taylor(q):
        return taylor_entropy(alpha, q, np.log(np.einsum("i,ijw->jw", alpha, q)))[0]

    for q in (apart, near):
        assert taylor(q) <= entropy_of(alpha, q)
        assert pairwise_entropy(alpha, q)[0] <= entropy_of(alpha, q)
    assert pairwise_entropy(alpha, apart)[0] > taylor(apart)
    assert pairwise_entropy(alpha, near)[0] < taylor(near)


def test_taylor_bound_is_exact_about_a_factorised_distribution():
    alpha, q = random_mixture(r=1)
    value, _, _, gradient = taylor_entropy(alpha, q, np.log(q[0]))
    assert value == pytest.approx(entropy_of(alpha, q), rel=1e-12)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


def test_taylor_gradients_agree_with_finite_differences():
    alpha, q = random_mixture()
    centre = np.log(random_mixture(r=1, seed=5)[1][0] + 0.1)
    _, d_alpha, d_q, d_centre = taylor_entropy(alpha, q, centre)
    for got, function, at in (
        (d_alpha, lambda x: taylor_entropy(x, q, centre)[0], alpha),
        (d_q, lambda x: taylor_entropy(alpha, x, centre)[0], q),
        (d_centre, lambda x: taylor_entropy(alpha, q, x)[0], centre),
    ):
        np.testing.assert_allclose(got, finite_difference_gradient(function, at), rtol=1e-6, atol=1e-8)


def test_samplers_of_the_core_are_sums_over_levels():
    q = random_mixture(r=3, b=70, m=5)[1]
    rng = np.random.default_rng(0)
    indices = rng.integers(0, 5, (130, 70)).astype(np.uint8)
    expected = np.log(q)[:, np.arange(70), indices].sum(axis=2).T
    np.testing.assert_allclose(
        _core.component_log_masses(indices, mixture_posterior.log_table(q), 2), expected, rtol=1e-12
    )
    coefficients = rng.standard_normal((130, 3))
    out = np.zeros((70, 5, 3))
    _core.sum_by_level(indices, coefficients, out, 2)
    expected = np.stack([(coefficients.T @ (indices == k)).T for k in range(5)], axis=1)
    np.testing.assert_allclose(out, expected, atol=1e-12)
