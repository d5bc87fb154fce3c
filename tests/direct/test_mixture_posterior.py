import numpy as np
import pytest
from mixtures import enumerated, indices_of_hypotheses

from pydirect import MixturePrior
from pydirect.direct.mixture_entropy import score_gradient, stochastic_entropy
from pydirect.testing import enumerate_predictive_moments, monte_carlo_mean

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
    alpha, q = fitted.alpha, fitted.component_q
    table = MixturePrior(("gaussian",)).table([-1.0, 0.0, 1.5], 4)
    for call in (
        lambda: fitted.log_mass(indices),
        lambda: score_gradient(alpha, q, indices, np.zeros(2), np.zeros((4, 3))),
        lambda: stochastic_entropy(alpha, q, indices),
        lambda: table.log_mass_of(indices),
    ):
        with pytest.raises(error, match=message):
            call()


def test_level_indices_may_be_of_any_integers(fitted):
    indices = indices_of_hypotheses(4, 3)
    np.testing.assert_array_equal(fitted.log_mass(indices.astype(int)), fitted.log_mass(indices))


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


def test_weights_have_the_moments_of_the_mixture(fitted):
    listed = enumerated(fitted)
    np.testing.assert_allclose(fitted.mean, listed.mean, rtol=1e-12)
    np.testing.assert_allclose(fitted.variance, listed.covariance.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(fitted.std**2, fitted.variance, rtol=1e-12)
    np.testing.assert_array_equal(fitted.coefficients, fitted.mean)
    zeros = (listed.weights == 0).mean(axis=1)
    assert fitted.expected_sparsity() == pytest.approx(listed.weight_probability @ zeros)


def test_other_units_divide_the_weights_and_leave_their_probabilities(fitted):
    halved = fitted.in_units_of(2.0)
    np.testing.assert_array_equal(halved.mean, fitted.mean / 2)
    np.testing.assert_array_equal(halved.component_q, fitted.component_q)


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
