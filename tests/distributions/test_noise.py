import numpy as np
import pytest
from scipy.stats import norm

from pydirect.distributions.noise import NoiseGrid

LEVELS, N_SAMPLES = np.array([0.1, 0.5, 2.0, 7.0]), 12.0


def grid(**options):
    return NoiseGrid.of(LEVELS, **options)


def test_the_share_is_the_expected_log_likelihood_less_the_divergence():
    residuals = np.random.default_rng(0).standard_normal(12)
    q = np.array([0.2, 0.5, 0.3, 0.0])
    noise = NoiseGrid.of(LEVELS, np.log([0.1, 0.2, 0.3, 0.4]))
    likelihood = sum(p * norm.logpdf(residuals, scale=np.sqrt(s)).sum() for p, s in zip(q, LEVELS, strict=True))
    used = q > 0
    divergence = q[used] @ (np.log(q[used]) - noise.log_prior[used])
    assert noise.share(q, residuals @ residuals, N_SAMPLES) == pytest.approx(likelihood - divergence, rel=1e-12)


@pytest.mark.parametrize("log_prior", [None, np.log([0.1, 0.2, 0.3, 0.4]), np.array([0.0, -np.inf, 0.0, -np.inf])])
def test_the_posterior_given_the_error_maximises_the_share(log_prior):
    noise = grid(log_prior=log_prior)
    q, value = noise.given(9.0, N_SAMPLES)
    assert q.sum() == pytest.approx(1.0)
    assert value == pytest.approx(noise.share(q, 9.0, N_SAMPLES), rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = np.where(np.isfinite(noise.log_prior), rng.dirichlet(np.ones(4)), 0.0)
        assert noise.share(other / other.sum(), 9.0, N_SAMPLES) <= value


def test_an_extreme_error_leaves_the_posterior_finite():
    for error in (0.0, 1e-300, 1e12):
        q, value = grid().given(error, N_SAMPLES)
        assert np.isfinite(value) and q.sum() == pytest.approx(1.0)


def test_the_start_is_the_allowed_level_next_to_the_priors_middle():
    assert NoiseGrid.of([0.1, 1.0, 10.0]).middle().tolist() == [0.0, 1.0, 0.0]
    assert NoiseGrid.of([0.1, 1.0, 10.0], [0.0, -np.inf, -0.1]).middle().tolist() == [1.0, 0.0, 0.0]


def test_a_number_is_a_grid_of_one():
    assert NoiseGrid.of(2.0).given(3.0, N_SAMPLES)[0].tolist() == [1.0]


@pytest.mark.parametrize(
    ("levels", "log_prior", "message"),
    [
        ([1.0, -1.0], None, "noise_levels must be positive and ascending"),
        ([1.0, 1.0], None, "noise_levels must be positive and ascending"),
        ([1.0, 2.0], [0.0], "log_noise_prior must have shape"),
        ([1.0, 2.0], [-np.inf, -np.inf], "log_noise_prior must be finite or -inf with at least one finite entry"),
        ([1.0, 2.0], [np.nan, 0.0], "log_noise_prior must be finite or -inf"),
    ],
)
def test_grids_are_checked(levels, log_prior, message):
    with pytest.raises(ValueError, match=message):
        NoiseGrid.of(levels, log_prior)
