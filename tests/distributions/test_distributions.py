import numpy as np
import pytest
from scipy.stats import chi2, laplace, norm, t

from pydirect.distributions import priors as distributions
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.levels import as_levels, evenly_spaced_levels, pad_levels
from pydirect.distributions.priors import (
    GaussianPrior,
    LaplacePrior,
    SpikeAndSlabPrior,
    StudentTPrior,
    TablePrior,
    as_prior,
)
from pydirect.testing import enumerate_factorized, enumerate_hypotheses, enumerate_predictive_moments, monte_carlo_mean

PER_WEIGHT = np.array([[-1.0, 0.0, 2.0], [0.0, 0.5, 1.0], [-3.0, -2.0, 5.0]])
PRIORS = [GaussianPrior(0.7), LaplacePrior(1.3), StudentTPrior(2.5, 0.4), SpikeAndSlabPrior(0.6), TablePrior([1, 0, 3])]


@pytest.fixture(params=["shared", "per weight"])
def distribution(request):
    rng = np.random.default_rng(3)
    levels = np.array([[-1.0, 0.0, 2.5]]) if request.param == "shared" else PER_WEIGHT
    return FactorizedCategorical(levels, rng.dirichlet(np.ones(3), size=3))


# Levels


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


def test_levels_are_shared_or_one_row_a_weight():
    assert as_levels([1, 2, 3]).shape == (1, 3)
    assert as_levels([[1, 2, 3]], 5).shape == (1, 3)
    assert as_levels(PER_WEIGHT, 3).shape == (3, 3)
    with pytest.raises(ValueError, match=r"levels must have shape \(4, n_levels\), got \(3, 3\)"):
        as_levels(PER_WEIGHT, 4)
    with pytest.raises(ValueError, match="levels must be finite, got nan at index"):
        as_levels([0.0, np.nan])
    with pytest.raises(ValueError, match="levels must be 1 to 256 a weight, got 257"):
        as_levels(np.arange(257.0))
    with pytest.raises(TypeError, match="levels must hold real numbers"):
        as_levels(["a", "b"])


@pytest.mark.parametrize("n_levels", [1, 7, 8, 9])
def test_padding_of_levels_has_no_prior_mass(n_levels):
    levels, log_prior = pad_levels(np.ones((2, n_levels)), np.zeros((1, n_levels)))
    assert levels.shape[1] == log_prior.shape[1] == 8 * ((n_levels + 7) // 8)
    np.testing.assert_array_equal(np.exp(log_prior[0]), np.arange(levels.shape[1]) < n_levels)


# Priors


@pytest.mark.parametrize("prior", PRIORS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("levels", [np.array([-1.0, 0.0, 2.0]), np.array([[-1.0, 0.0, 2.0], [0.0, 3.0, 9.0]])])
def test_priors_are_normalised_over_the_levels_of_every_weight(prior, levels):
    mass = np.exp(prior.log_mass(levels))
    assert mass.shape == levels.shape or isinstance(prior, TablePrior)
    np.testing.assert_allclose(mass.sum(axis=-1), 1.0, rtol=1e-14)


@pytest.mark.parametrize(
    ("prior", "reference"),
    [
        (GaussianPrior(0.7), norm(scale=0.7)),
        (LaplacePrior(1.3), laplace(scale=1.3 / np.sqrt(2))),
        (StudentTPrior(2.5, 0.4), t(2.5, scale=0.4)),
    ],
)
def test_density_priors_are_the_densities_that_they_are_called(prior, reference):
    w = np.linspace(-30, 30, 41)
    np.testing.assert_allclose(prior.log_density(w), reference.logpdf(w), rtol=1e-12)
    assert LaplacePrior(1.3).scale == pytest.approx(laplace(scale=1.3 / np.sqrt(2)).std())


def test_prior_masses_of_far_levels_stay_finite_in_the_logarithm():
    log_mass = GaussianPrior(1e-3).log_mass(np.array([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(log_mass, [-5e5, 0.0, -5e5])


def test_spike_and_slab_shares_the_rest_among_the_other_levels():
    levels = np.array([[-2.0, 0.0, 1.0, 2.0], [0.0, 0.0, 1.0, -1.0]])
    mass = np.exp(SpikeAndSlabPrior(0.8, GaussianPrior(2.0)).log_mass(levels))
    slab = norm(scale=2.0).pdf([-2.0, 1.0, 2.0])
    np.testing.assert_allclose(mass[0], [*(0.2 * slab / slab.sum())[:1], 0.8, *(0.2 * slab / slab.sum())[1:]])
    np.testing.assert_allclose(mass[1], [0.4, 0.4, 0.1, 0.1], err_msg="two levels at zero share the spike")


def test_spike_and_slab_needs_zero_among_every_weights_levels():
    with pytest.raises(ValueError, match="levels must contain zero"):
        SpikeAndSlabPrior().log_mass(np.array([[0.0, 1.0], [1.0, 2.0]]))


def test_table_prior_is_normalised_and_may_forbid_levels():
    log_mass = TablePrior([[2.0, 0.0, 6.0]]).log_mass([1.0, 2.0, 3.0])
    np.testing.assert_allclose(log_mass, [[np.log(0.25), -np.inf, np.log(0.75)]])


@pytest.mark.parametrize(
    ("mass", "message"),
    [
        ([1.0, 1.0], "mass must have 3 entries a weight"),
        ([1.0, -1.0, 1.0], "mass must be finite and non-negative"),
        ([0.0, 0.0, 0.0], "positive sum"),
        ([1.0, np.nan, 1.0], "mass must be finite"),
        ([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], "positive sum for every weight"),
    ],
)
def test_table_prior_refuses_what_is_no_table_of_masses(mass, message):
    with pytest.raises(ValueError, match=message):
        TablePrior(mass).log_mass([-1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda v: GaussianPrior(v), "scale"),
        (lambda v: LaplacePrior(v), "scale"),
        (lambda v: StudentTPrior(3.0, v), "scale"),
        (lambda v: StudentTPrior(v), "degrees_of_freedom"),
        (lambda v: SpikeAndSlabPrior(v), "zero_probability"),
    ],
)
def test_prior_parameters_must_be_positive_numbers(make, name):
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"{name} must be"):
            make(bad)
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        make("1")


def test_a_prior_is_given_by_name_or_as_itself():
    for name in distributions.PRIORS:
        assert isinstance(as_prior(name), distributions.PRIORS[name])
    own = TablePrior([1.0, 2.0])
    assert as_prior(own) is own
    for bad in ("cauchy", 3, None):
        with pytest.raises(ValueError, match=r"prior must be one of 'gaussian'.*got"):
            as_prior(bad)


def test_a_prior_of_ones_own_needs_a_density_only():
    class Triangle(distributions.DensityPrior):
        def log_density(self, w):
            return np.log(np.maximum(4.0 - np.abs(w), 0.0))

    np.testing.assert_allclose(np.exp(Triangle().log_mass([-2.0, 0.0, 2.0])), [0.25, 0.5, 0.25])
    with pytest.raises(NotImplementedError):
        distributions.DensityPrior().log_mass([0.0, 1.0])


# Factorised categorical


def test_moments_and_cumulants_agree_with_enumeration(distribution):
    full = enumerate_factorized(distribution.levels, distribution.q, [1.0], [1.0])
    np.testing.assert_allclose(distribution.mean, full.mean, rtol=1e-13)
    np.testing.assert_allclose(np.diag(distribution.variance), full.covariance, atol=1e-13)
    np.testing.assert_allclose(distribution.std**2, distribution.variance)
    np.testing.assert_allclose(distribution.second_moment, full.weight_probability @ full.weights**2)
    moments = enumerate_predictive_moments(np.eye(3), full)
    for order in (1, 2, 3, 4):
        np.testing.assert_allclose(distribution.cumulant(order), moments[order - 1], rtol=1e-11, atol=1e-11)


def test_cumulants_beyond_the_fourth_are_refused(distribution):
    with pytest.raises(ValueError, match="order must be 1, 2, 3 or 4, got 5"):
        distribution.cumulant(5)


def test_variance_of_a_certain_weight_is_exactly_zero():
    certain = FactorizedCategorical(np.array([[-1.0, 1e8, 3.0]]), np.array([[0.0, 1.0, 0.0]]))
    assert certain.variance[0] == 0.0
    assert certain.entropy() == 0.0


def test_entropy_and_divergence_agree_with_enumeration(distribution):
    p = enumerate_factorized(distribution.levels, distribution.q, [1.0], [1.0]).weight_probability
    assert distribution.entropy() == pytest.approx(-(p * np.log(p)).sum(), rel=1e-12)
    log_prior = GaussianPrior().log_mass(distribution.levels)
    log_p = enumerate_hypotheses(np.broadcast_to(log_prior, (3, 3))).sum(axis=1)
    assert distribution.kl(log_prior) == pytest.approx((p * (np.log(p) - log_p)).sum(), rel=1e-12)
    assert distribution.kl(distribution.logits) == pytest.approx(0.0, abs=1e-14)


def test_divergence_is_infinite_only_where_the_prior_forbids_what_is_used():
    q = np.array([[0.5, 0.5, 0.0]])
    d = FactorizedCategorical(np.array([[0.0, 1.0, 2.0]]), q)
    assert d.kl([np.log(0.5), np.log(0.5), -np.inf]) == pytest.approx(0.0)
    assert d.kl([0.0, -np.inf, -np.inf]) == np.inf


def test_sparsity_is_the_expected_fraction_of_zeros(distribution):
    full = enumerate_factorized(distribution.levels, distribution.q, [1.0], [1.0])
    expected = full.weight_probability @ (full.weights == 0).mean(axis=1)
    assert distribution.expected_sparsity() == pytest.approx(expected)


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
        ([0.0, 1.0], [[-np.inf, -np.inf]], "at least one finite entry a weight"),
        ([0.0, 1.0, 2.0], [[0.0, 1.0]], "logits must have 3 columns"),
        ([0.0, 1.0], [0.0, 1.0], r"logits must have shape \(n_weights, n_levels\)"),
        ([[0.0, 1.0]] * 3, [[0.0, 1.0]] * 2, "levels must have shape"),
    ],
)
def test_logits_that_give_no_distribution_are_refused(levels, logits, message):
    with pytest.raises(ValueError, match=message):
        FactorizedCategorical.from_logits(levels, logits)


# Sampling


def test_sampling_frequencies_are_the_probabilities(distribution):
    n = 20_000
    counts = np.stack([(distribution.sample_indices(n, 5) == k).sum(axis=0) for k in range(3)], axis=1)
    statistic = ((counts - n * distribution.q) ** 2 / (n * distribution.q)).sum()
    low, high = chi2(df=3 * 2).ppf([1e-4, 1 - 1e-4])
    assert low < statistic < high


def test_samples_of_weights_are_independent_with_the_right_moments(distribution):
    samples = distribution.sample(20_000, np.random.default_rng(1))
    mean, error = monte_carlo_mean(samples)
    assert (np.abs(mean - distribution.mean) < 4.5 * error).all()
    deviation = samples - distribution.mean
    covariance, error = monte_carlo_mean(deviation[:, [0, 0, 1]] * deviation[:, [1, 2, 2]])
    assert (np.abs(covariance) < 4.5 * error).all()


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
def test_sampling_is_inversion_of_one_uniform_a_weight(distribution, bit_generator):
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


def test_the_last_level_is_drawn_no_more_often_when_probabilities_sum_to_less_than_one_by_rounding():
    q = np.array([[0.1] * 10 + [0.0]])  # sums to 0.9999999999999999
    assert FactorizedCategorical(np.arange(11.0)[None], q).sample_indices(1000, 0).max() < 10


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
