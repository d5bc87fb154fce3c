import numpy as np
import pytest
from mixtures import (
    PRIORS as MIXTURES,
    bound_of_prior,
    indices_of_hypotheses,
    masses,
    prior_of_hypotheses,
    random_mixture,
)
from scipy.special import logsumexp
from scipy.stats import laplace, norm, t

from pydirect import MixturePrior
from pydirect.distributions import priors as distributions
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.priors import (
    GaussianPrior,
    LaplacePrior,
    SpikeAndSlabPrior,
    StudentTPrior,
    TablePrior,
    as_prior,
    grid_log_mass,
)

PRIORS = [GaussianPrior(0.7), LaplacePrior(1.3), StudentTPrior(2.5, 0.4), SpikeAndSlabPrior(0.6), TablePrior([1, 0, 3])]


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
        ([1.0, 1.0], "mass must have 3 entries per weight"),
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


def test_divergence_is_infinite_only_where_the_prior_forbids_what_is_used():
    q = np.array([[0.5, 0.5, 0.0]])
    d = FactorizedCategorical(np.array([[0.0, 1.0, 2.0]]), q)
    assert d.kl([np.log(0.5), np.log(0.5), -np.inf]) == pytest.approx(0.0)
    assert d.kl([0.0, -np.inf, -np.inf]) == np.inf


@pytest.mark.parametrize("prior", [GaussianPrior(0.7), LaplacePrior(), SpikeAndSlabPrior(0.3), SpikeAndSlabPrior(0.9)])
def test_masses_of_fine_cells_add_up_to_one_and_have_the_priors_variance(prior):
    levels = np.arange(-8000, 8001)[None] * 1e-3
    mass = np.exp(grid_log_mass(prior, levels, np.full((1, 1), 1e-3)))
    assert mass.sum() == pytest.approx(1.0, abs=1e-4)
    assert (mass * levels**2).sum() == pytest.approx(prior.variance, rel=1e-3)


def test_masses_of_coarse_cells_sum_to_no_more_than_one():
    for prior in (GaussianPrior(0.1), LaplacePrior(0.1), SpikeAndSlabPrior(0.9, GaussianPrior(0.1))):
        assert np.exp(grid_log_mass(prior, np.array([[-1.0, 0.0, 1.0]]), np.ones((1, 1)))).sum() <= 1 + 1e-12


pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


@pytest.mark.parametrize("prior", MIXTURES.values(), ids=MIXTURES)
def test_tables_give_the_prior_by_definition(prior):
    levels = np.array([-1.0, 0.0, 1.0])
    table = prior.table(levels, 5)
    expected = prior_of_hypotheses(prior, levels, 5)
    assert logsumexp(expected) == pytest.approx(0.0, abs=1e-12)
    # One weight alone.
    p, indices = np.exp(expected), indices_of_hypotheses(5, 3)
    marginal = np.array([p[indices[:, 0] == k].sum() for k in range(3)])
    np.testing.assert_allclose(np.exp(np.broadcast_to(table.marginal, (5, 3))[0]), marginal, rtol=1e-12)
    np.testing.assert_allclose(np.exp(prior.log_mass(levels)), marginal, rtol=1e-12)


@pytest.mark.parametrize("prior", MIXTURES.values(), ids=MIXTURES)
def test_responsibilities_attain_the_bound(prior):
    levels = np.array([-1.0, 0.0, 1.0])
    table = prior.table(levels, 5)
    q = random_mixture(r=1, b=5)[1][0]
    rho = table.responsibilities(q)
    value = (q * table.effective(rho)).sum() + table.offset(rho)
    assert value == pytest.approx(bound_of_prior(table, q), rel=1e-12)
    expected = masses([1.0], q[None]) @ prior_of_hypotheses(prior, levels, 5)
    assert value <= expected + 1e-12


def test_mixture_priors_are_checked():
    levels = np.array([-1.0, 0.0, 1.0])
    for build, message in (
        (lambda: MixturePrior(()), "components must be at least one"),
        (lambda: MixturePrior.of_scales([0.0, 1.0]), "scales must be positive, got 0.0"),
        (lambda: MixturePrior(("gaussian",), bound="exact"), "bound must be one of"),
        (lambda: MixturePrior(("gaussian",), (0.0,)), "weights must be positive"),
        (lambda: MixturePrior(("gaussian",), (1.0, 2.0)), "weights must have shape"),
        (lambda: MixturePrior(("gaussian",), groups=[0.5, 1.0]), "groups must be a vector of integers"),
        (lambda: MixturePrior(("gaussian",), groups=[0, 1]).table(levels, 3), "groups must have one number per weight"),
        (lambda: MixturePrior((TablePrior([0, 1, 0]), "gaussian")).table(levels, 3), "must allow the same levels"),
        (lambda: MixturePrior.switched(leak=0.0), "leak must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            build()
