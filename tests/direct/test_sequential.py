import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sequential_reference import log_probabilities

from pydirect.direct.sequential import CoarseLevelsWarning, fit_sequential
from pydirect.direct.sequential_posterior import pack_codes, unpack_codes
from pydirect.distributions.priors import GaussianPrior, LaplacePrior, SpikeAndSlabPrior, TablePrior
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.testing import enumerate_hypotheses, enumerate_log_evidence

RNG = np.random.default_rng(3)
PHI = RNG.standard_normal((30, 5)) @ (np.eye(5) + 0.4)
Y = PHI @ [0.5, -1.0, 0.0, 0.3, 0.7] + 0.8 * RNG.standard_normal(30)
STATISTICS = GaussianStatistics.from_arrays(PHI, Y)
NOISE = 2.0
TABLE = np.log(RNG.dirichlet(np.ones(5), size=5))
OWN = np.sort(RNG.standard_normal((5, 5)) * 1.5, axis=1)
SHARED = {"level_scales": "shared", "keep_factor": True}
CASES = {
    "gaussian": (PHI, {**SHARED, "levels": np.linspace(-3, 3, 7)}),
    "spike and slab": (PHI, {**SHARED, "levels": np.linspace(-3, 3, 7), "prior": SpikeAndSlabPrior(0.5)}),
    "table, levels per weight": (PHI, {**SHARED, "levels": OWN, "log_prior": TABLE}),
    "uneven levels": (PHI[:, :4], {**SHARED, "levels": [-3.0, -1.5, -0.8, -0.3, 0.0, 0.2, 0.7, 1.6, 3.0]}),
    "own scales": (PHI, {"keep_factor": True, "n_levels": 7}),
    "own scales, laplace": (PHI, {"keep_factor": True, "n_levels": 7, "prior": LaplacePrior(0.7)}),
    "own scales, spike and slab": (PHI, {"keep_factor": True, "n_levels": 7, "prior": SpikeAndSlabPrior(0.8)}),
    "centred": (PHI, {"keep_factor": True, "n_levels": 7, "level_scales": "centred"}),
    "centred, laplace": (PHI, {"keep_factor": True, "n_levels": 5, "level_scales": "centred", "prior": LaplacePrior()}),
    "two levels": (PHI, {**SHARED, "levels": [-0.5, 0.6]}),
}


class Enumerated:
    """A small problem with its sequential posterior, and both over all weight vectors."""

    def __init__(self, phi, options, n_draws=64, noise=NOISE):
        self.statistics = GaussianStatistics.from_arrays(phi, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoarseLevelsWarning)
            self.posterior = fit_sequential(self.statistics, noise, n_draws=n_draws, random_state=1, **options)
        sampler, b = self.posterior.sampler, phi.shape[1]
        self.levels = self.posterior.levels
        tilt = np.broadcast_to(sampler.tilt, (b, self.levels.shape[1]))
        self.log_prior = np.empty_like(self.levels)
        self.log_prior[sampler.order] = tilt  # of position to of weight
        variance = self.posterior.prior_variance * options.get("prior", GaussianPrior()).variance
        self.log_prior -= self.levels**2 / (2 * variance)
        indices = enumerate_hypotheses(np.arange(self.levels.shape[1], dtype=float), b).astype(np.uint8)
        self.codes, w = indices, np.take_along_axis(self.levels, indices.T.astype(int), axis=1).T
        joint = np.take_along_axis(self.log_prior, indices.T.astype(int), axis=1).sum(axis=0)
        residual = ((Y[:, None] - phi @ w.T) ** 2).sum(axis=0)
        self.log_joint = joint - 0.5 * len(Y) * np.log(2 * np.pi * noise) - residual / (2 * noise)
        log_normaliser, self.log_q = log_probabilities(
            sampler.factor, sampler.mean, sampler.levels, sampler.tilt, indices[:, sampler.order]
        )
        self.log_weights = sampler.constant + log_normaliser
        self.log_evidence = enumerate_log_evidence((phi, Y), self.levels, self.log_prior, [noise])
        self.elbo = np.exp(self.log_q) @ self.log_weights

    def index(self, codes):
        return np.ravel_multi_index(codes.T, (self.levels.shape[1],) * codes.shape[1])

    def variation(self, codes):
        frequency = np.bincount(self.index(codes), minlength=len(self.log_q)) / len(codes)
        return 0.5 * np.abs(frequency - np.exp(self.log_joint - self.log_evidence)).sum()


@pytest.fixture(scope="module", params=list(CASES), ids=str)
def enumerated(request):
    return Enumerated(*CASES[request.param])


def test_log_weights_are_log_joint_minus_log_q_of_every_weight_vector(enumerated):
    np.testing.assert_allclose(enumerated.log_weights, enumerated.log_joint - enumerated.log_q, atol=1e-9)
    assert logsumexp(enumerated.log_q) == pytest.approx(0.0, abs=1e-9)


def test_kept_draws_have_their_own_log_weights(enumerated):
    posterior = enumerated.posterior
    expected = enumerated.log_weights[enumerated.index(posterior.codes)]
    np.testing.assert_allclose(posterior.log_weights, expected, atol=1e-8)
    assert posterior.elbo == posterior.log_weights.mean()


def test_the_mean_log_weight_is_the_elbo_and_importance_sampling_gives_the_evidence(enumerated):
    draws = enumerated.posterior.draw(100_000, "independent", 5)
    error = draws.log_weights.std() / np.sqrt(len(draws.log_weights))
    assert abs(draws.log_weights.mean() - enumerated.elbo) <= 5 * error + 1e-9
    estimate = logsumexp(draws.log_weights) - np.log(len(draws.log_weights))
    assert estimate == pytest.approx(enumerated.log_evidence, abs=0.02)
    np.testing.assert_allclose(draws.log_q, enumerated.log_q[enumerated.index(draws.codes)], atol=1e-8)


def test_the_elbo_is_below_the_evidence_on_the_levels(enumerated):
    assert enumerated.elbo <= enumerated.log_evidence + 1e-9


def test_prior_masses_sum_to_at_most_one_so_that_bounds_compare_with_continuous_weights(enumerated):
    assert (logsumexp(enumerated.log_prior, axis=1) <= 1e-9).all()


@pytest.mark.parametrize("case", ["gaussian", "spike and slab", "uneven levels", "own scales"])
def test_metropolis_steps_draw_from_the_posterior(case):
    enumerated = Enumerated(*CASES[case])
    codes, acceptance = enumerated.posterior.metropolis(100_000, 2)
    exact = RNG.choice(len(enumerated.log_q), 100_000, p=np.exp(enumerated.log_joint - enumerated.log_evidence))
    floor = enumerated.variation(enumerated.codes[exact])
    assert 0.3 < acceptance <= 1
    assert enumerated.variation(codes) < floor + 0.01


def test_levels_far_too_coarse_are_told_although_all_draws_agree():
    with pytest.warns(CoarseLevelsWarning, match="nats per weight below"):
        posterior = fit_sequential(STATISTICS, 1e-3, level_scales="shared", levels=np.linspace(-3, 3, 7))
    assert posterior.elbo_stderr < 1e-3 and posterior.effective_sample_size > 0.99
    assert posterior.gap > 100 and posterior.coarseness.max() > 30


@pytest.mark.parametrize(
    ("n_levels", "noise", "weight", "side"),
    [(3, 0.2, 2.1, "above"), (7, 0.2, 1.3, "above"), (15, 0.1, 0.7, "below"), (15, 0.2, 1.4, "below")],
)
def test_coarse_levels_are_told_although_the_elbo_is_near_the_evidence_or_above(n_levels, noise, weight, side):
    """One weight, whose next level lies about two posterior deviations from its mean and takes all of the mass."""
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((50, 1))
    statistics = GaussianStatistics.from_arrays(phi, phi[:, 0] * weight + noise * rng.standard_normal(50))
    with pytest.warns(CoarseLevelsWarning, match=f"nats per weight {side} the evidence"):
        posterior = fit_sequential(statistics, noise**2, n_levels=n_levels)
    assert abs(posterior.gap) < 0.5 and posterior.coarseness.max() > 7
    assert np.abs(posterior.mean - posterior.continuous_mean) > 1.6 * noise / np.sqrt(statistics.A[0, 0])


def test_fifteen_levels_are_called_coarse_where_their_moments_are_wrong():
    """By spacings alone: the ELBO is above the evidence."""
    rng = np.random.default_rng(1)
    phi = rng.standard_normal((50, 5))
    statistics = GaussianStatistics.from_arrays(phi, phi @ rng.standard_normal(5) + 0.16 * rng.standard_normal(50))
    with pytest.warns(CoarseLevelsWarning, match="nats per weight above the evidence"):
        posterior = fit_sequential(statistics, 0.16**2, n_draws=512)
    covariance, new = np.linalg.inv(statistics.A / 0.16**2 + np.eye(5)), rng.standard_normal((1000, 5))
    exact = np.einsum("ij,jk,ik->i", new, covariance, new)
    mean, variance = posterior.latent_moments(new)
    assert np.mean((mean - new @ covariance @ statistics.c / 0.16**2) ** 2) > 0.4 * exact.mean()
    assert variance.mean() < 0.75 * exact.mean()


# ---------------------------------------- continuous weights


def features(n, b, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n + 50, 4))
    angles = x @ rng.standard_normal((4, b // 2))
    phi = np.hstack([np.cos(angles), np.sin(angles)]) * np.sqrt(2 / b)
    y = np.sin(x[:, 0]) * x[:, 1] + noise * rng.standard_normal(len(x))
    return phi[:n], y[:n], phi[n:], y[n:]


PROBLEM = features(600, 80)
MEDIUM = GaussianStatistics.from_arrays(*PROBLEM[:2])


@pytest.fixture(scope="module")
def medium():
    return fit_sequential(MEDIUM, 0.09, 1.0, keep_factor=True)


def test_the_continuous_evidence_and_moments_are_those_of_gaussian_weights(medium):
    phi, y, new, _ = PROBLEM
    covariance = 0.09 * np.eye(len(y)) + phi @ phi.T
    expected = multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
    assert medium.log_evidence_continuous == pytest.approx(expected, abs=1e-6)
    h = phi.T @ phi / 0.09 + np.eye(80)
    mean = np.linalg.solve(h, phi.T @ y) / 0.09
    np.testing.assert_allclose(medium.continuous_mean, mean, atol=1e-5)
    np.testing.assert_allclose(medium.coefficients, mean, atol=1e-9)
    found_mean, variance = medium.latent_moments(new)
    np.testing.assert_allclose(found_mean, new @ mean, atol=1e-9)
    np.testing.assert_allclose(variance, np.einsum("ij,ji->i", new, np.linalg.solve(h, new.T)), rtol=1e-8)


def test_own_scales_come_within_half_a_nat_of_the_continuous_evidence(medium):
    assert -0.5 < medium.gap < 0.5 and medium.elbo_stderr < 0.2
    assert medium.effective_sample_size > 0.8


def test_draws_predict_as_continuous_weights_do(medium):
    new = PROBLEM[2]
    mean, variance = medium.latent_moments(new)
    drawn_mean, drawn_variance = medium.moments_of_draws(new)
    assert np.sqrt(np.mean((drawn_mean - mean) ** 2 / variance)) < 0.2
    assert drawn_variance.mean() == pytest.approx(variance.mean(), rel=0.15)


def test_two_draws_know_the_mean_as_well_as_many_independent_ones(medium):
    new = PROBLEM[2]
    mean, variance = medium.latent_moments(new)
    error = {}
    for kind, n in (("stratified", 2), ("stratified", 8), ("independent", 2)):
        draws = [medium.values(medium.draw(n, kind, seed).codes) for seed in range(40)]
        squared = [np.mean((new @ w.mean(axis=0) - mean) ** 2 / variance) for w in draws]
        error[kind, n] = n * np.mean(squared)
    assert error["independent", 2] > 0.8
    assert error["stratified", 2] < 0.3 and error["stratified", 8] < 0.3


def test_shared_levels_lose_by_their_range_and_order(medium):
    options = {"level_scales": "shared", "levels": np.linspace(-3, 3, 15)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoarseLevelsWarning)
        by_order = {o: fit_sequential(MEDIUM, 0.02, order=o, **options).elbo for o in ("min_pivot", "natural")}
    assert by_order["min_pivot"] > by_order["natural"] + 1


@pytest.mark.parametrize("order", ["diagonal", "natural", np.arange(80)[::-1]], ids=["diagonal", "natural", "given"])
def test_every_order_gives_a_bound(order, medium):
    posterior = fit_sequential(MEDIUM, 0.09, order=order)
    assert medium.log_evidence_continuous + 3 > posterior.elbo > medium.elbo - 20


def test_centred_levels_represent_weights_that_data_determine_to_a_small_fraction():
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((500, 8))
    y = phi @ np.linspace(-2, 3, 8) + 0.01 * rng.standard_normal(500)
    statistics = GaussianStatistics.from_arrays(phi, y)
    with pytest.warns(CoarseLevelsWarning, match="level_scales='centred'"):
        own = fit_sequential(statistics, 1e-4)
    centred = fit_sequential(statistics, 1e-4, level_scales="centred")
    assert own.gap > 100 and abs(centred.gap) < 0.5
    assert centred.coarseness.max() < 2.5 and centred.sparsity == 0
    mean = np.linalg.solve(phi.T @ phi / 1e-4 + np.eye(8), phi.T @ y) / 1e-4
    np.testing.assert_allclose(centred.mean, mean, atol=1e-3)
    np.testing.assert_allclose(centred.in_units_of(2.0).draws, centred.draws / 2)


def test_variances_of_independent_draws_are_unbiased():
    posterior = fit_sequential(MEDIUM, 0.09, draws="independent", n_draws=5)
    _, variance = posterior.moments_of_draws(PROBLEM[2])
    values = PROBLEM[2] @ posterior.draws.T
    np.testing.assert_allclose(variance, values.var(axis=1, ddof=1) * (1 + 1 / 5))


# ---------------------------------------- at the door


def test_exact_moments_are_those_of_a_gaussian_prior_only():
    laplace = fit_sequential(MEDIUM, 0.09, prior="laplace", keep_factor=True)
    np.testing.assert_array_equal(laplace.latent_moments(PROBLEM[0]), laplace.moments_of_draws(PROBLEM[0]))
    np.testing.assert_array_equal(laplace.coefficients, laplace.mean)
    assert "Gaussian prior" in laplace.summary() and "moments of 64 draws" in laplace.summary()


@pytest.mark.parametrize("unit", [1e-50, 1e50])
def test_tiny_and_huge_units_change_no_number_but_the_step(unit):
    scaled = GaussianStatistics.from_arrays(PROBLEM[0] / unit, PROBLEM[1])
    posterior, expected = fit_sequential(scaled, 0.09, unit**2), fit_sequential(MEDIUM, 0.09)
    np.testing.assert_allclose(posterior.continuous_mean / unit, expected.continuous_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        posterior.in_units_of(unit).continuous_mean, posterior.continuous_mean / unit, rtol=1e-12
    )


def test_without_the_factor_draws_are_those_that_were_kept():
    posterior = fit_sequential(MEDIUM, 0.09, n_draws=10)
    assert posterior.sampler is None
    drawn = posterior.sample_weights(10, np.random.default_rng(0))
    assert {row.tobytes() for row in drawn} == {row.tobytes() for row in posterior.draws}
    with pytest.raises(ValueError, match="n_samples must be at most 10"):
        posterior.sample_weights(11, np.random.default_rng(0))
    with pytest.raises(ValueError, match="factor must be kept"):
        posterior.draw(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.0}, "noise must be"),
        ({"prior_variance": -1.0}, "prior_variance must be"),
        ({"n_levels": 4}, "n_levels must be odd"),
        ({"n_levels": 1}, "n_levels must be at least 2"),
        ({"levels": [1.0, 2.0]}, "zero among them"),
        ({"levels": [[0.0, 1.0], [0.0, 2.0]]}, "one ascending row"),
        ({"levels": [0.0], "level_scales": "shared"}, "two or more"),
        ({"levels": [1.0, 0.0], "level_scales": "shared"}, "ascending"),
        ({"level_scales": "their"}, "level_scales must be one of"),
        ({"log_prior": np.zeros(15)}, "log_prior must be None"),
        ({"prior": TablePrior(np.ones(15))}, "density"),
        ({"order": "random"}, "order must be one of"),
        ({"order": [0, 0, 1]}, "order must have shape"),
        ({"order": np.zeros(80)}, "permutation"),
        ({"draws": "antithetic"}, "draws must be one of"),
        ({"n_draws": 0}, "n_draws must be"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        fit_sequential(MEDIUM, **{"noise": 0.09, **options})


def test_a_matrix_that_is_not_positive_definite_is_told_with_its_causes():
    phi = np.repeat(np.random.default_rng(0).standard_normal((50, 1)), 3, axis=1) * 1e9
    statistics = GaussianStatistics.from_arrays(phi, phi[:, 0] / 1e9)
    statistics.gram = statistics.A - 1e10 * np.eye(3)
    with pytest.raises(ValueError, match=r"not positive definite.*noise 0.01, prior variance 1,.*tr A"):
        fit_sequential(statistics, 0.01)


def test_exponents_out_of_range_are_told():
    phi = np.diag([1.0, 1e20])
    with pytest.raises(ValueError, match="own scales span"):
        fit_sequential(GaussianStatistics.from_arrays(phi, [0.0, 0.0]), 1.0)


@pytest.mark.parametrize("n_levels", [2, 3, 15, 16, 17, 255])
@pytest.mark.parametrize("n_weights", [1, 2, 7, 64])
def test_packed_codes_come_back(n_levels, n_weights):
    codes = np.random.default_rng(0).integers(0, n_levels, (5, n_weights)).astype(np.uint8)
    packed = pack_codes(codes, n_levels)
    np.testing.assert_array_equal(unpack_codes(packed, n_weights, n_levels), codes)
    assert packed.nbytes == 5 * (n_weights if n_levels > 16 else (n_weights + 1) // 2)
