import tracemalloc

import numpy as np
import pytest
from mixtures import PRIORS, indices_of_hypotheses, masses, prior_of_hypotheses, random_mixture
from scipy.special import logsumexp

from pydirect import MixturePrior
from pydirect.distributions.levels import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior, TablePrior

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_tables_give_the_prior_by_definition(prior):
    levels = np.array([-1.0, 0.0, 1.0])
    table = prior.table(levels, 5)
    expected = prior_of_hypotheses(prior, levels, 5)
    np.testing.assert_allclose(table.log_mass_of(indices_of_hypotheses(5, 3)), expected, rtol=1e-12)
    assert logsumexp(expected) == pytest.approx(0.0, abs=1e-12)
    # One weight alone.
    p, indices = np.exp(expected), indices_of_hypotheses(5, 3)
    marginal = np.array([p[indices[:, 0] == k].sum() for k in range(3)])
    np.testing.assert_allclose(np.exp(np.broadcast_to(table.marginal, (5, 3))[0]), marginal, rtol=1e-12)
    np.testing.assert_allclose(np.exp(prior.log_mass(levels)), marginal, rtol=1e-12)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_responsibilities_attain_the_bound(prior):
    levels = np.array([-1.0, 0.0, 1.0])
    table = prior.table(levels, 5)
    q = random_mixture(r=1, b=5)[1][0]
    rho = table.responsibilities(q)
    value = (q * table.effective(rho)).sum() + table.offset(rho)
    assert value == pytest.approx(table.expectation(q), rel=1e-12)
    expected = masses([1.0], q[None]) @ prior_of_hypotheses(prior, levels, 5)
    assert value <= expected + 1e-12


def test_masses_under_a_prior_take_little_memory():
    table = MixturePrior.of_scales([0.3, 0.5, 1.0, 2.0]).table(evenly_spaced_levels(15), 400)
    indices = np.random.default_rng(0).integers(0, 15, (500, 400)).astype(np.uint8)
    tracemalloc.start()
    table.log_mass_of(indices)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * indices.size


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


@pytest.mark.parametrize("components", [None, "gaussian", 3, GaussianPrior()], ids=repr)
def test_components_are_a_sequence(components):
    with pytest.raises(TypeError, match="components must be a sequence of priors, got"):
        MixturePrior(components)
