"""Laws that hold for every input, searched by hypothesis."""

import numpy as np
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from pydirect import _core
from pydirect.direct.mean_field import MeanFieldRegression
from pydirect.distributions.categorical import FactorizedCategorical, evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.testing import enumerate_elbo, enumerate_log_evidence

finite = st.floats(-5.0, 5.0)


@st.composite
def categoricals(draw, n_weights=None):
    """Factorised categoricals with per-weight or shared levels and probabilities down to zero."""
    b, m = n_weights or draw(st.integers(1, 5)), draw(st.integers(1, 20))
    levels = draw(arrays(float, (draw(st.sampled_from([1, b])), m), elements=finite))
    logits = draw(arrays(float, (b, m), elements=st.floats(-800.0, 800.0)))
    return FactorizedCategorical.from_logits(levels, logits)


@st.composite
def problems(draw):
    """Small regressions whose features single precision holds exactly: (phi, y, levels, log prior, noise levels)."""
    n, b, m = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(2, 6))
    phi = draw(arrays(float, (n, b), elements=st.integers(-24, 24).map(lambda k: k / 8)))
    y = draw(arrays(float, n, elements=finite))
    levels = evenly_spaced_levels(m, draw(st.floats(0.5, 4.0)))
    noise_levels = np.geomspace(*draw(st.tuples(st.floats(0.05, 0.5), st.floats(1.0, 20.0))), draw(st.integers(2, 5)))
    return phi, y, levels, GaussianPrior(draw(st.floats(0.3, 3.0))).log_mass(levels), noise_levels


def model_of(problem):
    phi, y, levels, log_prior, noise_levels = problem
    uniform = np.full(noise_levels.size, -np.log(noise_levels.size))
    statistics = GaussianStatistics.from_arrays(phi, y)
    return MeanFieldRegression.of(statistics, levels[None], log_prior[None], noise_levels, uniform)


# Kernels


@given(arrays(float, st.integers(1, 40), elements=st.floats(-1e6, 1e6)))
def test_sine_and_cosine_lie_on_the_circle_with_the_symmetries_of_it(t):
    sine, cosine = _core.sincos_turns(t)
    np.testing.assert_allclose(sine**2 + cosine**2, 1.0, atol=1e-15)
    mirrored = _core.sincos_turns(-t)
    np.testing.assert_array_equal(mirrored[0], -sine)
    np.testing.assert_array_equal(mirrored[1], cosine)


# Distributions


@given(categoricals())
def test_moments_stay_within_the_levels(q):
    levels = np.broadcast_to(q.levels, q.q.shape)
    assert (q.mean >= levels.min(axis=1) - 1e-12).all()
    assert (q.mean <= levels.max(axis=1) + 1e-12).all()
    width = np.ptp(levels, axis=1)
    assert (q.variance >= 0).all()
    assert (q.variance <= width**2 / 4 + 1e-12).all()
    np.testing.assert_allclose(q.second_moment - q.mean**2, q.variance, atol=1e-12)
    # Pearson: kurtosis is at least one plus the squared skewness.
    fourth = q.cumulant(4) + 3 * q.variance**2
    assert (fourth * q.variance >= q.variance**3 + q.cumulant(3) ** 2 - 1e-9).all()


@given(categoricals(), st.floats(-100.0, 100.0))
def test_a_constant_added_to_logits_changes_nothing(q, constant):
    shifted = FactorizedCategorical.from_logits(q.levels, q.logits + constant)
    np.testing.assert_allclose(shifted.q, q.q, atol=1e-12)


@given(categoricals(), st.floats(-3.0, 3.0), st.floats(-3.0, 3.0))
def test_cumulants_are_homogeneous_and_blind_to_shifts(q, scale, shift):
    moved = FactorizedCategorical(scale * q.levels + shift, q.q)
    np.testing.assert_allclose(moved.mean, scale * q.mean + shift, atol=1e-10)
    for order in (2, 3, 4):
        tolerance = 1e-9 * (1 + np.abs(q.levels).max() * abs(scale)) ** order
        np.testing.assert_allclose(moved.cumulant(order), scale**order * q.cumulant(order), atol=tolerance)


# Statistics


# Evidence lower bound


@given(problems(), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_any_factorised_posterior_is_below_the_evidence_by_definition(problem, seed):
    phi, y, levels, log_prior, noise_levels = problem
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(levels.size, 0.3), size=phi.shape[1])
    q_noise = rng.dirichlet(np.full(noise_levels.size, 0.3))
    elbo = model_of(problem).elbo(q, q_noise)
    exact = enumerate_elbo((phi, y), levels, log_prior, noise_levels, q, q_noise)
    np.testing.assert_allclose(elbo, exact, rtol=1e-10, atol=1e-9)
    assert elbo <= enumerate_log_evidence((phi, y), levels, log_prior, noise_levels) + 1e-8


@given(problems(), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_coordinate_ascent_climbs_from_anywhere_to_below_the_evidence(problem, seed):
    phi, y, levels, log_prior, noise_levels = problem
    solver, rng = model_of(problem).solver(1), np.random.default_rng(seed)
    solver.set_noise(rng.dirichlet(np.ones(noise_levels.size)))
    solver.start_from_naturals(5 * rng.standard_normal(phi.shape[1]), 3 * rng.random(phi.shape[1]))
    values = [solver.elbo()]
    for _ in range(6):
        solver.coordinate_ascent(1, 0.0, 0.0, True)
        values.append(solver.elbo())
    tolerance = 1e-5 * (1 + np.abs(values[1:]))  # single precision
    assert (np.diff(values) >= -tolerance).all()
    assert values[-1] <= enumerate_log_evidence((phi, y), levels, log_prior, noise_levels) + 1e-8


@given(problems())
@settings(max_examples=60)
def test_newton_climbs_from_a_settled_precision_to_below_the_evidence(problem):
    phi, y, levels, log_prior, noise_levels = problem
    solver = model_of(problem).solver(1)
    solver.start_from_naturals(np.zeros(phi.shape[1]), np.zeros(phi.shape[1]))
    solver.coordinate_ascent(3, 0.0, 0.0, True)  # Newton steps move with τ, which one sweep does not find
    start = solver.elbo()
    solver.newton(30, 1e-6, 20, 0.1, 0.0, True)
    end = solver.elbo()
    assert end >= start - 1e-5 * (1 + abs(start))
    assert end <= enumerate_log_evidence((phi, y), levels, log_prior, noise_levels) + 1e-8
