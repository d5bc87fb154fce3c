import numpy as np
import pytest
from mixtures import entropy_of, random_mixture
from scipy.special import logsumexp

from pydirect import _core
from pydirect.direct import mixture_entropy, pairwise_entropy
from pydirect.direct.mixture_entropy import score_gradient, stochastic_entropy, taylor_entropy
from pydirect.testing import finite_difference_gradient, monte_carlo_mean

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")


def test_pairwise_bracket_is_tight_for_one_component_and_for_disjoint_ones():
    alpha, q = random_mixture(r=1)
    np.testing.assert_allclose(pairwise_entropy(alpha, q), entropy_of(alpha, q), rtol=1e-12)
    alpha, q = random_mixture(r=2, m=4)
    q[0, 1, :2], q[1, 1, 2:] = 0.0, 0.0
    q /= q.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(pairwise_entropy(alpha, q), entropy_of(alpha, q), rtol=1e-12)


def test_pairwise_and_taylor_bounds_are_each_closer_where_they_should_be():
    alpha, apart = random_mixture(r=3, concentration=0.1, seed=1)
    near = random_mixture(r=1, concentration=5.0)[1] + 0.02 * random_mixture(r=3, seed=2)[1]
    near /= near.sum(axis=2, keepdims=True)

    def taylor(q):
        return taylor_entropy(alpha, q, np.log(np.einsum("i,ijw->jw", alpha, q)))[0]

    for q in (apart, near):
        assert taylor(q) <= entropy_of(alpha, q)
        assert pairwise_entropy(alpha, q)[0] <= entropy_of(alpha, q)
    assert pairwise_entropy(alpha, apart)[0] > taylor(apart)
    assert pairwise_entropy(alpha, near)[0] < taylor(near)


def test_taylor_bound_is_exact_about_a_factorised_distribution():
    alpha, q = random_mixture(r=1)
    value, _, _, gradient = taylor_entropy(alpha, q, np.log(q[0]))
    assert value == pytest.approx(entropy_of(alpha, q), rel=1e-12)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


def test_taylor_gradients_agree_with_finite_differences():
    alpha, q = random_mixture()
    centre = np.log(random_mixture(r=1, seed=5)[1][0] + 0.1)
    _, d_alpha, d_q, d_centre = taylor_entropy(alpha, q, centre)
    for got, function, at in (
        (d_alpha, lambda x: taylor_entropy(x, q, centre)[0], alpha),
        (d_q, lambda x: taylor_entropy(alpha, x, centre)[0], q),
        (d_centre, lambda x: taylor_entropy(alpha, q, x)[0], centre),
    ):
        np.testing.assert_allclose(got, finite_difference_gradient(function, at), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("control", [False, True], ids=["eq. 11", "control variate"])
def test_stochastic_entropy_gradient_is_unbiased(control):
    alpha, q = random_mixture(b=3, concentration=2.0)
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(400):
        indices = mixture_entropy.sample_indices(alpha, q, 50, rng)
        if control:
            values, d_alpha, d_q = stochastic_entropy(alpha, q, indices)
        else:
            at = np.arange(3)
            log_q = logsumexp(np.log(alpha) + np.log(q[:, at, indices]).sum(axis=2).T, axis=1)
            d_alpha, d_q = (-g for g in score_gradient(alpha, q, indices, log_q + 1, np.zeros(q.shape[1:])))
            values = -log_q
        batches.append(np.concatenate([[values.mean()], d_alpha, d_q.ravel()]))
    mean, error = monte_carlo_mean(batches)
    exact = np.concatenate(
        [
            [entropy_of(alpha, q)],
            finite_difference_gradient(lambda x: entropy_of(x, q), alpha),
            finite_difference_gradient(lambda x: entropy_of(alpha, x), q).ravel(),
        ]
    )
    assert (np.abs(mean - exact) <= 5 * error + 1e-7).all()


def test_the_control_variate_lowers_the_variance():
    alpha, q = random_mixture(b=8, concentration=2.0)
    indices = mixture_entropy.sample_indices(alpha, q, 4000, np.random.default_rng(0))
    masses_of = _core.component_log_masses(indices, mixture_entropy.log_table(q), 1) + np.log(alpha)
    assert stochastic_entropy(alpha, q, indices)[0].var() < 0.2 * logsumexp(masses_of, axis=1).var()


def test_samplers_of_the_core_are_sums_over_levels():
    q = random_mixture(r=3, b=70, m=5)[1]
    rng = np.random.default_rng(0)
    indices = rng.integers(0, 5, (130, 70)).astype(np.uint8)
    expected = np.log(q)[:, np.arange(70), indices].sum(axis=2).T
    np.testing.assert_allclose(
        _core.component_log_masses(indices, mixture_entropy.log_table(q), 2), expected, rtol=1e-12
    )
    coefficients = rng.standard_normal((130, 3))
    out = np.zeros((70, 5, 3))
    _core.sum_by_level(indices, coefficients, out, 2)
    expected = np.stack([(coefficients.T @ (indices == k)).T for k in range(5)], axis=1)
    np.testing.assert_allclose(out, expected, atol=1e-12)


def test_score_gradients_check_their_tables(fitted):
    indices = np.zeros((2, 4), np.uint8)
    for values, additive, message in (
        (np.zeros(3), np.zeros((4, 3)), "values must have shape"),
        (np.zeros(2), np.zeros((4, 2)), "additive must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            score_gradient(fitted.alpha, fitted.component_q, indices, values, additive)
