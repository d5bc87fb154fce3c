import numpy as np
import pytest

from pydirect.distributions.categorical import (
    FactorizedCategorical,
    WeightMarginals,
    as_levels,
    evenly_spaced_levels,
    pad_levels,
)
from pydirect.distributions.priors import GaussianPrior
from pydirect.testing import enumerate_factorized, enumerate_hypotheses, enumerate_predictive_moments

PER_WEIGHT = np.array([[-1.0, 0.0, 2.0], [0.0, 0.5, 1.0], [-3.0, -2.0, 5.0]])


@pytest.fixture(params=["shared", "per weight"])
def distribution(request):
    rng = np.random.default_rng(3)
    levels = np.array([[-1.0, 0.0, 2.5]]) if request.param == "shared" else PER_WEIGHT
    return FactorizedCategorical(levels, rng.dirichlet(np.ones(3), size=3))


def test_moments_and_cumulants_agree_with_enumeration(distribution):
    full = enumerate_factorized(distribution.levels, distribution.q, [1.0], [1.0])
    np.testing.assert_allclose(distribution.mean, full.mean, rtol=1e-13)
    np.testing.assert_allclose(np.diag(distribution.variance), full.covariance, atol=1e-13)
    np.testing.assert_allclose(distribution.std**2, distribution.variance)
    np.testing.assert_allclose(distribution.second_moment, full.weight_probability @ full.weights**2)
    moments = enumerate_predictive_moments(np.eye(3), full)
    for order in (1, 2, 3, 4):
        np.testing.assert_allclose(distribution.cumulant(order), moments[order - 1], rtol=1e-11, atol=1e-11)


def test_divergence_agrees_with_enumeration(distribution):
    p = enumerate_factorized(distribution.levels, distribution.q, [1.0], [1.0]).weight_probability
    log_prior = GaussianPrior().log_mass(distribution.levels)
    log_p = enumerate_hypotheses(np.broadcast_to(log_prior, (3, 3))).sum(axis=1)
    assert distribution.kl(log_prior) == pytest.approx((p * (np.log(p) - log_p)).sum(), rel=1e-12)
    assert distribution.kl(distribution.logits) == pytest.approx(0.0, abs=1e-14)


def test_sparsity_is_the_expected_fraction_of_zeros(distribution):
    full = enumerate_factorized(distribution.levels, distribution.q, [1.0], [1.0])
    expected = full.weight_probability @ (full.weights == 0).mean(axis=1)
    marginals = WeightMarginals()
    marginals.weights = distribution
    assert marginals.sparsity == pytest.approx(expected)


def test_logits_give_back_the_probabilities():
    q = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
    made = FactorizedCategorical.from_logits([0.0, 1.0, 2.0], FactorizedCategorical(PER_WEIGHT[:1], q).logits + 17.0)
    np.testing.assert_allclose(made.q, q, atol=1e-15)
    assert (made.n_weights, made.n_levels) == (2, 3)
    np.testing.assert_array_equal(made.most_probable(), [1, 2])
    assert made.most_probable().dtype == np.uint8


@pytest.mark.parametrize(
    ("levels", "logits", "message"),
    [
        ([0.0, 1.0], [[0.0, np.nan]], "logits must be finite or -inf"),
        ([0.0, 1.0], [[0.0, np.inf]], "logits must be finite or -inf"),
        ([0.0, 1.0], [[-np.inf, -np.inf]], "at least one finite entry per weight"),
        ([0.0, 1.0, 2.0], [[0.0, 1.0]], "logits must have 3 columns"),
        ([0.0, 1.0], [0.0, 1.0], r"logits must have shape \(n_weights, n_levels\)"),
        ([[0.0, 1.0]] * 3, [[0.0, 1.0]] * 2, "levels must have shape"),
    ],
)
def test_logits_that_give_no_distribution_are_refused(levels, logits, message):
    with pytest.raises(ValueError, match=message):
        FactorizedCategorical.from_logits(levels, logits)


def test_sampling_is_reproducible_and_moves_the_generator_on(distribution):
    first = distribution.sample_indices(50, 7)
    assert first.shape == (50, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, distribution.sample_indices(50, 7))
    generator = np.random.default_rng(7)
    np.testing.assert_array_equal(first, distribution.sample_indices(50, generator))
    assert (distribution.sample_indices(50, generator) != first).any()
    np.testing.assert_array_equal(distribution.sample(50, 7), distribution.values(first))


@pytest.mark.parametrize("bit_generator", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_sampling_is_inversion_of_one_uniform_per_weight(distribution, bit_generator):
    uniform = np.random.Generator(bit_generator(3)).random((40, 3))
    cumulative = np.cumsum(distribution.q, axis=1)[:, :-1]
    expected = (cumulative[None] <= uniform[:, :, None]).sum(axis=2)
    got = distribution.sample_indices(40, np.random.Generator(bit_generator(3)))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_level_of_probability_zero_is_never_drawn(position):
    q = np.full((1, 4), 1 / 3)
    q[0, position] = 0.0
    drawn = FactorizedCategorical(np.arange(4.0)[None], q).sample_indices(20_000, 0)
    assert set(np.unique(drawn)) == set(range(4)) - {position}


@pytest.mark.parametrize("n_levels", [1, 2, 256])
def test_indices_span_all_levels_that_fit_into_a_byte(n_levels):
    q = np.full((2, n_levels), 1 / n_levels)
    drawn = FactorizedCategorical(np.arange(float(n_levels))[None], q).sample_indices(4000, 0)
    assert drawn.min() == 0
    assert drawn.max() == n_levels - 1


def test_the_number_of_samples_must_be_a_count(distribution):
    with pytest.raises(ValueError, match="n_samples must be at least 1, got 0"):
        distribution.sample(0)
    with pytest.raises(TypeError, match="n_samples must be an integer"):
        distribution.sample(2.5)


@pytest.mark.parametrize("n_levels", [2, 3, 15, 16, 256])
def test_evenly_spaced_levels_are_symmetric_with_zero_when_odd(n_levels):
    levels = evenly_spaced_levels(n_levels, 2.7)
    np.testing.assert_array_equal(levels, -levels[::-1])
    np.testing.assert_allclose(np.diff(levels), 5.4 / (n_levels - 1))
    assert (0.0 in levels) == (n_levels % 2 == 1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1,), ValueError, "n_levels must be at least 2"),
        ((257,), ValueError, "n_levels must be at most 256"),
        ((3.0,), TypeError, "n_levels must be an integer"),
        ((True,), TypeError, "n_levels must be an integer"),
        ((3, 0.0), ValueError, "reach must be above 0"),
        ((3, np.inf), ValueError, "reach must be"),
        ((3, "2"), TypeError, "reach must be a number"),
    ],
)
def test_evenly_spaced_levels_names_the_wrong_argument(arguments, error, message):
    with pytest.raises(error, match=message):
        evenly_spaced_levels(*arguments)


def test_levels_are_shared_or_one_row_per_weight():
    assert as_levels([1, 2, 3]).shape == (1, 3)
    assert as_levels([[1, 2, 3]], 5).shape == (1, 3)
    assert as_levels(PER_WEIGHT, 3).shape == (3, 3)
    with pytest.raises(ValueError, match=r"levels must have shape \(4, n_levels\), got \(3, 3\)"):
        as_levels(PER_WEIGHT, 4)
    with pytest.raises(ValueError, match="levels must be finite, got nan at index"):
        as_levels([0.0, np.nan])
    with pytest.raises(ValueError, match="levels must be 1 to 256 per weight, got 257"):
        as_levels(np.arange(257.0))
    with pytest.raises(TypeError, match="levels must hold real numbers"):
        as_levels(["a", "b"])


@pytest.mark.parametrize("n_levels", [1, 7, 8, 9])
def test_padding_of_levels_has_no_prior_mass(n_levels):
    levels, log_prior = pad_levels(np.ones((2, n_levels)), np.zeros((1, n_levels)))
    assert levels.shape[1] == log_prior.shape[1] == 8 * ((n_levels + 7) // 8)
    np.testing.assert_array_equal(np.exp(log_prior[0]), np.arange(levels.shape[1]) < n_levels)
