"""Weights drawn one after another under Jaakkola and Jordan's bound: against enumeration and continuous weights."""

from threading import Event

import numpy as np
import pytest
from scipy.special import log_expit, logsumexp
from sequential_reference import log_probabilities

from pydirect import GaussianPrior, SpikeAndSlabPrior
from pydirect.logistic import Lattice, fit_logistic_decorrelated, fit_logistic_sequential
from pydirect.logistic.bound import jaakkola_lambda
from pydirect.logistic.discrete import ScaledLatent, ascend_continuous
from pydirect.logistic.gaussian import VariancePrior, informative_directions
from pydirect.logistic.passes import RowPasses
from pydirect.logistic.rows import RowParameters
from pydirect.logistic.sequential import ascend_passes_to_rest, draw_at_rest
from pydirect.regression.sequential import fit_sequential
from pydirect.statistics.gaussian import GaussianStatistics, IdentityFeatures, TargetStatistics
from pydirect.streams.rows import Rows
from pydirect.testing import enumerate_hypotheses, enumerate_logistic_evidence

FIXED = VariancePrior(1.3, 0.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_bound_is_that_of_enumerated_weights(make_rows, seed, scale):
    rows = make_rows(20, 3, seed, scale)
    found = fit_logistic_sequential(rows, Lattice(n_levels=7, n_draws=4000), variance_prior=FIXED).posterior
    found = found.in_units_of(1.3**-0.5)

    # The same ξ, and Jaakkola and Jordan's bound there for every point of the lattice.
    [ascent] = ascend_continuous(rows, [(RowParameters.at_one(rows), np.log(1.3))], FIXED, max_iter=1000, stop=Event())
    xi = ascent.best.parameters.xi
    points = enumerate_hypotheses(found.levels)
    z, lam = rows.offset + points @ rows.x.T, jaakkola_lambda(xi)
    bound = (log_expit(xi) + 0.5 * (rows.t * z - xi) - lam * (z**2 - xi**2)) @ rows.weight
    log_prior = GaussianPrior(1.3**0.5).log_density(found.levels) + np.log(found.level_scales)[:, None]
    log_prior -= np.maximum(logsumexp(log_prior, axis=1, keepdims=True), 0.0)
    codes = np.stack([axis.ravel() for axis in np.indices((7, 7, 7))], axis=1)
    log_joint = bound + log_prior[np.arange(3), codes].sum(axis=1)

    sums = rows.weighted_statistics(xi)
    sampler = fit_sequential(
        TargetStatistics(sums.A, sums.c[:, 0], 0.0, 0.0), 1.0, 1.3, n_levels=7, keep_factor=True
    ).sampler
    _, log_q = log_probabilities(sampler.factor, sampler.mean, sampler.levels, sampler.tilt, codes[:, sampler.order])
    assert np.exp(log_q).sum() == pytest.approx(1.0, rel=1e-9)
    drawn = np.ravel_multi_index(found.codes.T, (7, 7, 7))
    np.testing.assert_allclose(found.log_weights, (log_joint - log_q)[drawn], rtol=0, atol=1e-8)
    assert found.elbo == pytest.approx(np.exp(log_q) @ (log_joint - log_q), abs=5 * found.elbo_stderr + 1e-9)

    truth = enumerate_logistic_evidence(rows.x, rows.t, found.levels, log_prior, weight=rows.weight, offset=rows.offset)
    assert logsumexp(log_joint) <= truth + 1e-9
    assert found.elbo <= truth + 5 * found.elbo_stderr


@pytest.mark.parametrize(("n", "b"), [(300, 20), (100, 60)])
def test_four_bits_cost_next_to_nothing(make_rows, n, b):
    rows = make_rows(n, b, scale=0.5)
    fit, continuous = fit_logistic_sequential(rows), fit_logistic_decorrelated(rows)
    assert fit.variance == pytest.approx(continuous.variance, rel=1e-9)
    assert abs(fit.posterior.gap) < 0.02 * b**0.5
    assert fit.posterior.elbo == pytest.approx(continuous.posterior.elbo, abs=0.05 * b**0.5)
    mean, variance = rows.moments(ScaledLatent(fit.posterior, fit.variance))
    exact, exact_variance = rows.moments(ScaledLatent(continuous.posterior, continuous.variance))
    assert np.sqrt(np.mean((mean - exact) ** 2 / exact_variance)) < 0.1
    assert variance.mean() == pytest.approx(exact_variance.mean(), rel=0.1)


def test_directions_that_hold_all_information_are_enough(make_rows):
    rows = make_rows(30, 40, scale=0.3)
    every = GaussianStatistics.from_arrays(rows.x, rows.t, rows.weight)
    directions = informative_directions(every, 1.0)
    assert directions.shape == (40, 30)
    part = fit_logistic_sequential(rows.rotated(directions), directions=directions, variance_prior=FIXED).posterior
    whole = fit_logistic_sequential(rows, variance_prior=FIXED).posterior
    assert part.n_weights == 40
    assert part.log_evidence_continuous == pytest.approx(whole.log_evidence_continuous, abs=1e-4)
    assert part.elbo == pytest.approx(whole.elbo, abs=0.05)


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
def test_other_levels_and_priors_are_bounds_too(make_rows, lattice):
    posterior = fit_logistic_sequential(make_rows(100, 12, scale=0.5), lattice, variance_prior=FIXED).posterior
    assert posterior.converged and np.isfinite(posterior.elbo)
    assert abs(posterior.gap) < 6.0
    assert 0 < posterior.sparsity < 1
    assert posterior.elbo <= posterior.log_evidence + 1e-9


def test_the_penalty_is_that_of_the_prior_variance(make_rows):
    rows = make_rows(60, 8)
    wide = fit_logistic_sequential(rows, variance_prior=VariancePrior(3.0, 1.5))
    fixed = fit_logistic_sequential(rows, variance_prior=VariancePrior(wide.variance, 0.0))
    penalty = 0.5 * (np.log(wide.variance / 3.0) / 1.5) ** 2
    assert penalty > 0.05
    for name in ("log_evidence_continuous", "elbo"):
        found, expected = (getattr(fit.posterior, name) for fit in (wide, fixed))
        assert found == pytest.approx(expected - penalty, abs=0.001 if name != "elbo" else 0.1)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_passes_over_rows_have_the_bound_of_rows_in_memory(make_rows, n_threads):
    rows = make_rows(200, 6, scale=0.6)
    t, offset = np.stack([rows.t, -rows.t], axis=1), np.array([0.3, -0.3])
    cuts = [Rows(rows.x[i], t[i], rows.weight[i]) for i in np.array_split(np.arange(200), 7)]
    passes = RowPasses(IdentityFeatures(6), lambda: iter(cuts), offset, n_threads)
    samples = [rows.problem(t[:, k], offset[k]) for k in range(2)]
    fits = draw_at_rest(
        ascend_passes_to_rest(passes, samples, FIXED, 1000),
        Lattice(),
        FIXED,
        directions=np.eye(6),
        random_states=[0, 1],
        n_threads=n_threads,
        interrupted=False,
    )
    expected = fit_logistic_sequential(rows, variance_prior=FIXED).posterior
    for fit in fits:  # with labels and offset swapped the weights change their signs only
        assert fit.posterior.converged
        assert fit.posterior.log_evidence_continuous == pytest.approx(expected.log_evidence_continuous, abs=1e-3)
        assert fit.posterior.elbo == pytest.approx(expected.elbo, abs=0.05)


def test_draws_do_not_depend_on_the_number_of_threads(make_rows):
    rows = make_rows(80, 30, scale=0.4)
    one, three = (fit_logistic_sequential(rows.__class__(**{**vars(rows), "n_threads": n})).posterior for n in (1, 3))
    np.testing.assert_array_equal(one.codes, three.codes)
    assert one.elbo == three.elbo


def test_an_event_ends_the_ascent_but_weights_are_drawn(make_rows):
    stop = Event()
    stop.set()
    posterior = fit_logistic_sequential(make_rows(), stop=stop).posterior
    assert posterior.interrupted and not posterior.converged and np.isfinite(posterior.elbo)
    assert posterior.n_draws == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"directions": np.eye(3)}, r"directions must have shape \(n_weights, 4\)"),
        ({"lattice": Lattice(n_levels=4)}, "n_levels must be odd"),
        ({"lattice": Lattice(n_draws=0)}, "n_draws must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(make_rows, arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_logistic_sequential(make_rows(), **arguments)
