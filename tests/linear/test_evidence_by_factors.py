"""The maximum of the evidence from Cholesky factorisations, beside that from an eigendecomposition."""

from dataclasses import replace

import numpy as np
import pytest

from pydirect.linear.evidence import EvidenceProblem, log_evidence, maximise_evidence, maximise_evidence_by_factors
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import decorrelate

# Nats below the maximum, mostly from the random signs.
SHORTFALL = 0.1


def data(n, b, *, rank=None, decay=1.0, noise=0.3, n_outputs=1, seed=0):
    """Features whose directions have variances from 1 down to ``exp(-decay)``, and targets drawn from the model."""
    rng = np.random.default_rng(seed)
    rank = b if rank is None else rank
    directions = np.linalg.qr(rng.standard_normal((b, rank)))[0] * np.exp(-0.5 * decay * np.linspace(0, 1, rank))
    phi = rng.standard_normal((n, rank)) @ directions.T
    y = phi @ rng.standard_normal((b, n_outputs)) + noise * rng.standard_normal((n, n_outputs))
    return phi, y


PROBLEMS = {
    "more rows than weights": data(300, 40),
    "fewer rows than weights": data(40, 90),
    "as many": data(60, 60, noise=1.0),
    "low rank": data(150, 80, rank=9),
    "many sizes": data(400, 120, decay=25.0, noise=0.05),
    "mostly noise": data(200, 50, noise=20.0),
    "hardly any noise": data(200, 50, noise=1e-3),
    "traces by random signs": data(500, 260, decay=8.0),
    "traces by random signs, fewer rows than weights": data(120, 300, decay=4.0),
}


@pytest.fixture(params=PROBLEMS, ids=str)
def statistics(request):
    return GaussianStatistics.from_arrays(*PROBLEMS[request.param])


def shortfall(statistics, found, best, output=0):
    """Nats by which one noise and scale are less probable than others."""
    target = decorrelate(statistics).target(output)
    return log_evidence(target, *best)[0] - log_evidence(target, *found)[0]


def only(problem):
    (found,) = maximise_evidence_by_factors([problem])
    return found


@pytest.mark.parametrize(("noise", "scale"), [(0.1, 1.0), (3.0, 0.01), (1e-3, 300.0)])
def test_noise_and_scale_have_the_largest_evidence(statistics, noise, scale):
    found = only(EvidenceProblem(statistics.target(0), noise, scale))
    best = maximise_evidence(decorrelate(statistics), noise, scale)
    assert shortfall(statistics, (found.noise, found.scale), best) < SHORTFALL
    assert found.n_factorisations <= 8


@pytest.mark.parametrize("noise", [0.01, 0.09, 1.0])
def test_scale_has_the_largest_evidence_where_the_noise_is_fixed(statistics, noise):
    found = only(EvidenceProblem(statistics.target(0), noise, 1.0, fit_noise=False))
    best = maximise_evidence(decorrelate(statistics), noise, 1.0, fit_noise=False)
    assert found.noise == noise
    assert shortfall(statistics, (noise, found.scale), best) < SHORTFALL


@pytest.mark.parametrize("prior_sd", [(2.0, 10.0), (1.0, 0.5), (1e-3, 1e-3)], ids=str)
def test_priors_about_the_start_count(statistics, prior_sd):
    start = np.array([0.3, 2.0])
    found = only(EvidenceProblem(statistics.target(0), *start, prior_sd=prior_sd))
    best = maximise_evidence(decorrelate(statistics), *start, prior_sd=prior_sd)

    def log_prior(at):
        return -0.5 * (np.log(np.array(at) / start) ** 2 / np.array(prior_sd) ** 2).sum()

    at = found.noise, found.scale
    assert shortfall(statistics, at, best) + log_prior(best) - log_prior(at) < SHORTFALL


def test_log_evidence_is_that_of_the_noise_and_scale_found(statistics):
    found = only(EvidenceProblem(statistics.target(0), 0.1, 1.0))
    exact, _ = log_evidence(decorrelate(statistics), found.noise, found.scale)
    assert found.log_evidence == pytest.approx(exact, abs=0.5)


@pytest.mark.parametrize("start", [(1e-6, 1.0), (1.0, 1e-6), (1e6, 1.0), (1.0, 1e6), (0.1, 1.0)], ids=str)
def test_evidence_is_never_below_that_of_the_start(statistics, start):
    found = only(EvidenceProblem(statistics.target(0), *start))
    assert shortfall(statistics, (found.noise, found.scale), start) < 1e-6


@pytest.mark.parametrize("b", [60, 250])
def test_several_targets_share_the_factorisations(b):
    phi, y = data(300, b, n_outputs=5)
    statistics = GaussianStatistics.from_arrays(phi, y * [0.1, 1.0, 1.0, 3.0, 0.0] + phi[:, :1] * [0, 0, 10.0, 0, 0])
    rotated = decorrelate(statistics)
    problems = [EvidenceProblem(statistics.target(k), 0.1, 1.0, prior_sd=(2.0, 10.0)) for k in range(4)]
    together = maximise_evidence_by_factors(problems)
    for k, found in enumerate(together):
        best = maximise_evidence(rotated.target(k), 0.1, 1.0, prior_sd=(2.0, 10.0))
        assert shortfall(statistics, (found.noise, found.scale), best, k) < SHORTFALL
    apart = sum(only(problem).n_factorisations for problem in problems)
    assert together[0].n_factorisations < apart


def test_targets_must_share_their_products():
    phi, y = data(30, 5)
    problems = [EvidenceProblem(GaussianStatistics.from_arrays(phi, y).target(0), 0.1, 1.0) for _ in range(2)]
    with pytest.raises(ValueError, match="must share A"):
        maximise_evidence_by_factors(problems)
    assert maximise_evidence_by_factors([]) == []


@pytest.mark.parametrize("unit", [1e-30, 1e-6, 1e8, 1e30])
@pytest.mark.parametrize("feature_unit", [1e-30, 1e-4, 1e30])
def test_units_do_not_matter(unit, feature_unit):
    phi, y = data(80, 20)
    reference = only(EvidenceProblem(GaussianStatistics.from_arrays(phi, y).target(0), 0.1, 1.0))
    statistics = GaussianStatistics.from_arrays(phi * feature_unit, y * unit)
    found = only(EvidenceProblem(statistics.target(0), 0.1 * unit**2, (unit / feature_unit) ** 2))
    assert found.noise / unit**2 == pytest.approx(reference.noise, rel=1e-3)
    assert found.scale / (unit / feature_unit) ** 2 == pytest.approx(reference.scale, rel=1e-3)


# Where there is little to learn from


def rows_of_rank_one(n, b):
    return np.outer(np.linspace(-1, 1, n), np.ones(b))


HARD = {
    "zero targets": (np.random.default_rng(0).standard_normal((20, 5)), np.zeros(20)),
    "zero features": (np.zeros((20, 5)), np.linspace(-1, 1, 20)),
    "zero everything": (np.zeros((20, 5)), np.zeros(20)),
    "one row": (np.ones((1, 7)), np.ones(1)),
    "constant columns": (np.ones((20, 5)), np.ones(20)),
    "copies of a column": (rows_of_rank_one(20, 30), np.linspace(-1, 1, 20) ** 3),
    "represented exactly": (rows_of_rank_one(20, 30), np.linspace(-1, 1, 20)),
    "represented exactly by all weights": (np.eye(12), np.arange(12.0)),
    "represented to rounding": (np.vander(np.linspace(0, 1, 40), 20), np.sin(np.linspace(0, 1, 40))),
    "one weight": (np.linspace(-1, 1, 20)[:, None], np.linspace(-1, 2, 20)),
}


@pytest.mark.parametrize("prior_sd", [None, (2.0, 10.0)], ids=str)
@pytest.mark.parametrize("fit_noise", [True, False])
@pytest.mark.parametrize("noise", [1e-10, 0.1, 1e10])
@pytest.mark.parametrize("name", HARD)
def test_results_are_finite_and_positive_whatever_the_data(name, noise, fit_noise, prior_sd):
    statistics = GaussianStatistics.from_arrays(*HARD[name]).target(0)
    found = only(EvidenceProblem(statistics, noise, 1.0, fit_noise, prior_sd))
    assert np.isfinite([found.noise, found.scale, found.log_evidence]).all()
    assert found.noise > 0
    assert found.scale > 0
    if not fit_noise:
        assert found.noise == noise


def test_noise_of_targets_represented_exactly_is_tiny():
    phi, y = HARD["represented exactly"]
    found = only(EvidenceProblem(GaussianStatistics.from_arrays(phi, y).target(0), 0.1, 1.0))
    assert found.noise < 1e-8 * np.mean(y**2)


def test_sums_that_are_indefinite_by_rounding_end_at_a_larger_ridge():
    phi, y = data(200, 50, rank=5)
    exact = GaussianStatistics.from_arrays(phi, y).target(0)
    rounding = np.random.default_rng(0).standard_normal(exact.A.shape)
    rounded = replace(exact, A=exact.A + 1e-5 * (rounding + rounding.T))
    found = only(EvidenceProblem(rounded, 1e-9, 1.0))
    reference = only(EvidenceProblem(exact, 0.1, 1.0))
    assert found.noise == pytest.approx(reference.noise, rel=0.1)
