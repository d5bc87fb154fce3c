"""Weights drawn one after another about continuous ones: against enumeration and continuous weights."""

from threading import Event

import numpy as np
import pytest
from scipy.special import log_expit, log_softmax, logsumexp
from sequential_reference import log_probabilities

from pydirect import GaussianPrior, SpikeAndSlabPrior
from pydirect.direct.sequential import fit_sequential
from pydirect.logistic import Lattice, fit_logistic_decorrelated
from pydirect.logistic.fit import ascend_rows, ascend_stream
from pydirect.logistic.gaussian import VariancePrior, informative_directions
from pydirect.logistic.rows import RowPasses
from pydirect.logistic.sequential import draw_at_rest
from pydirect.statistics.gaussian import GaussianStatistics, IdentityFeatures, TargetStatistics
from pydirect.streams.rows import Rows
from pydirect.testing import enumerate_hypotheses
from tests.helpers.oracles import enumerate_logistic_evidence

FIXED = VariancePrior(1.3, 0.0)


def weights_on_levels(rows, lattice=None, variance_prior=None, directions=None, stop=None):
    """Weights on levels about the continuous ones of rows."""
    rows, stop = rows.held(), Event() if stop is None else stop
    prior = VariancePrior.wide(rows.mean_square()) if variance_prior is None else variance_prior
    ascent = ascend_rows(rows, prior, max_iter=1000, stop=stop)
    options = {"directions": directions, "random_states": range(rows.n_functions), "n_threads": rows.n_threads}
    return draw_at_rest(rows, ascent, lattice or Lattice(), stop=stop, **options)


def elbo_of(fit):
    return sum(posterior.elbo for posterior in fit.posteriors)


def of_every_code(posterior, regression):
    """Log prior and log q of every vector of levels, and the vectors."""
    m, b = posterior.levels.shape[1], posterior.n_weights
    log_prior = GaussianPrior(1.3**0.5).log_density(posterior.levels) + np.log(posterior.level_scales)[:, None]
    log_prior -= np.maximum(logsumexp(log_prior, axis=1, keepdims=True), 0.0)
    codes = np.stack([axis.ravel() for axis in np.indices([m] * b)], axis=1)
    sampler = fit_sequential(
        regression, 1.0, 1.3, n_levels=m, level_exponents=posterior.level_exponents, keep_factor=True
    ).sampler
    _, log_q = log_probabilities(sampler.factor, sampler.mean, sampler.levels, sampler.tilt, codes[:, sampler.order])
    assert np.exp(log_q).sum() == pytest.approx(1.0, rel=1e-9)
    return log_prior, log_prior[np.arange(b), codes].sum(axis=1), log_q, enumerate_hypotheses(posterior.levels)


@pytest.mark.parametrize(
    ("n", "b", "n_levels", "n_functions", "likelihood"),
    [(20, 3, 7, 1, "jaakkola"), (12, 3, 7, 1, "softmax"), (9, 2, 5, 3, "softmax")],
)
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_bound_is_that_of_enumerated_weights(make_rows, n, b, n_levels, n_functions, likelihood, scale):
    rows = make_rows(n, b, 1, scale, n_functions=n_functions, likelihood=likelihood)
    fit = weights_on_levels(rows, Lattice(n_levels=n_levels, n_draws=4000), variance_prior=FIXED)
    found = [posterior.in_units_of(1.3**-0.5) for posterior in fit.posteriors]

    # The same expansion of the likelihood, and every point of the functions' lattices.
    state = ascend_rows(rows, FIXED, max_iter=1000, stop=Event()).best.state
    regressions = [TargetStatistics(state.gram, np.ascontiguousarray(c), 0.0, 0.0) for c in state.targets.T]
    each = [of_every_code(*pair) for pair in zip(found, regressions, strict=True)]
    m = n_levels**b
    drawn = [np.ravel_multi_index(posterior.codes.T, [n_levels] * b) for posterior in found]
    codes = np.stack([axis.ravel() for axis in np.indices([m] * n_functions)], axis=1)
    log_prior = sum(part[1][code] for part, code in zip(each, codes.T, strict=True))
    log_q = sum(part[2][code] for part, code in zip(each, codes.T, strict=True))
    z = [offset + part[3] @ rows.x.T for offset, part in zip(rows.offset, each, strict=True)]
    z = np.stack([logit[code] for logit, code in zip(z, codes.T, strict=True)], axis=2)
    log_p = log_expit(rows.t * z)[:, :, 0] if n_functions == 1 else log_softmax(z, axis=2)[:, rows.t > 0]
    log_joint = log_p @ rows.weight + log_prior

    ratio = log_joint - log_q
    log_weights = sum(posterior.log_weights for posterior in found)
    np.testing.assert_allclose(log_weights, ratio[np.ravel_multi_index(drawn, [m] * n_functions)], rtol=0, atol=1e-7)
    standard_error = log_weights.std() / np.sqrt(len(log_weights))
    assert elbo_of(fit) == pytest.approx(np.exp(log_q) @ ratio, abs=5 * standard_error + 1e-9)

    truth = logsumexp(log_joint)
    assert np.exp(log_q) @ ratio <= truth
    assert elbo_of(fit) <= truth + 5 * standard_error
    assert truth - elbo_of(fit) < 3.0 + 5 * standard_error
    if n_functions == 1:
        assert truth == pytest.approx(
            enumerate_logistic_evidence(
                rows.x, rows.t[:, 0], found[0].levels, each[0][0], weight=rows.weight, offset=rows.offset[0]
            ),
            rel=1e-10,
        )


@pytest.mark.parametrize(("n", "b", "likelihood"), [(300, 20, "jaakkola"), (100, 60, "jaakkola"), (80, 12, "softmax")])
def test_four_bits_cost_next_to_nothing(make_rows, n, b, likelihood):
    rows = make_rows(n, b, scale=0.5, likelihood=likelihood)
    fit, continuous = weights_on_levels(rows), fit_logistic_decorrelated(rows)
    assert fit.variance == pytest.approx(continuous.variance, rel=1e-9)
    # Draws have the likelihood itself, of which Jaakkola and Jordan's is a bound.
    gain = fit.posterior.elbo - continuous.posterior.elbo
    assert gain > -0.05 * b**0.5 and (likelihood == "jaakkola" or gain < 0.05 * b**0.5)
    mean, variance = rows.moments(fit)
    exact, exact_variance = rows.moments(continuous)
    assert np.sqrt(np.mean((mean - exact) ** 2 / exact_variance[:, None])) < 0.1
    assert variance.mean() == pytest.approx(exact_variance.mean(), rel=0.1)


def test_functions_of_one_softmax_share_scales_and_likelihood(make_rows):
    rows = make_rows(12, 3, n_functions=3, scale=0.7)
    fit, continuous = weights_on_levels(rows, Lattice(n_draws=2000)), fit_logistic_decorrelated(rows)
    assert all(np.array_equal(p.level_exponents, fit.posteriors[0].level_exponents) for p in fit.posteriors)
    # Levels cost next to nothing beside one function's divergence that the classes share in continuous weights.
    assert sum(p.gap for p in fit.posteriors) == pytest.approx(0.0, abs=0.3)
    assert elbo_of(fit) < elbo_of(continuous) + 0.3


def test_directions_that_hold_all_information_are_enough(make_rows):
    rows = make_rows(30, 40, scale=0.3)
    every = GaussianStatistics.from_arrays(rows.x, rows.t, rows.weight)
    directions = informative_directions(every, 1.0)
    assert directions.shape == (40, 30)
    part = weights_on_levels(rows.rotated(directions), directions=directions, variance_prior=FIXED).posterior
    whole = weights_on_levels(rows, variance_prior=FIXED).posterior
    assert part.n_weights == 40
    assert part.log_evidence_continuous == pytest.approx(whole.log_evidence_continuous, abs=0.01)
    assert part.elbo == pytest.approx(whole.elbo, abs=0.1)


@pytest.mark.filterwarnings("ignore::pydirect.direct.sequential.CoarseLevelsWarning")
@pytest.mark.parametrize(
    "lattice",
    [
        Lattice(level_scales="shared"),
        Lattice(levels=[-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0]),
        Lattice(prior=SpikeAndSlabPrior(0.4)),
        Lattice(n_levels=3),
    ],
    ids=["shared", "powers of two", "spike", "ternary"],
)
@pytest.mark.parametrize(
    ("n", "b", "n_functions", "likelihood"), [(100, 12, 1, "jaakkola"), (12, 3, 1, "softmax"), (12, 3, 3, "softmax")]
)
def test_other_levels_and_priors_are_bounds_too(make_rows, lattice, n, b, n_functions, likelihood):
    fit = weights_on_levels(
        make_rows(n, b, scale=0.5, n_functions=n_functions, likelihood=likelihood), lattice, variance_prior=FIXED
    )
    for posterior in fit.posteriors:
        assert posterior.converged and np.isfinite(posterior.elbo)
        assert abs(posterior.gap) < 6.0
        assert 0 < posterior.sparsity < 1
        assert posterior.elbo <= posterior.log_evidence + 1e-9


def test_the_penalty_is_that_of_the_prior_variance(make_rows):
    rows = make_rows(60, 8, likelihood="jaakkola")
    wide = weights_on_levels(rows, variance_prior=VariancePrior(3.0, 1.5))
    fixed = weights_on_levels(rows, variance_prior=VariancePrior(wide.variance, 0.0))
    penalty = 0.5 * (np.log(wide.variance / 3.0) / 1.5) ** 2
    assert penalty > 0.05
    for name in ("log_evidence_continuous", "elbo"):
        found, expected = (getattr(fit.posterior, name) for fit in (wide, fixed))
        assert found == pytest.approx(expected - penalty, abs=0.01 if name != "elbo" else 0.2)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n", "n_functions"), [(50, 1), (12, 3)])
def test_passes_over_rows_have_the_bound_of_rows_in_memory(make_rows, n_threads, n, n_functions):
    rows, stop = make_rows(n, 3, scale=0.6, n_functions=n_functions), Event()
    cuts = [Rows(rows.x[i], rows.t[i], rows.weight[i]) for i in np.array_split(np.arange(n), 7)]
    passes = RowPasses(IdentityFeatures(3), lambda: iter(cuts), rows.offset, n_threads, stop)
    fit = draw_at_rest(
        passes,
        ascend_stream(passes, rows, FIXED, 1000, stop),
        Lattice(),
        directions=np.eye(3),
        random_states=list(range(n_functions)),
        n_threads=n_threads,
        stop=stop,
    )
    expected = weights_on_levels(rows, variance_prior=FIXED)
    for found, held in zip(fit.posteriors, expected.posteriors, strict=True):
        assert found.converged
        assert found.log_evidence_continuous == pytest.approx(held.log_evidence_continuous, abs=0.01)
    assert elbo_of(fit) == pytest.approx(elbo_of(expected), abs=0.1)
