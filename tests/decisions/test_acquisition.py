"""Acquisition functions beside integrals and draws; Pareto fronts and hypervolumes beside brute force."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import norm

from pydirect.decisions import (
    batch_of_draws,
    expected_improvement,
    hypervolume,
    hypervolume_improvement,
    improvement_of_draws,
    log_expected_improvement,
    log_probability_of_feasibility,
    pareto_front,
    probability_of_improvement,
    thompson_batch,
)

MEAN, STD, BEST = np.array([0.3, -1.0, 2.0, 1.2]), np.array([0.5, 2.0, 0.1, 1.0]), 1.2


def test_expected_improvement_is_the_integral():
    expected = [
        quad(lambda f, m=m, s=s: (f - BEST) * norm.pdf(f, m, s), BEST, max(m, BEST) + 12 * s, epsabs=1e-13)[0]
        for m, s in zip(MEAN, STD, strict=True)
    ]
    assert_allclose(expected_improvement(MEAN, STD, BEST), expected, rtol=1e-8)


@pytest.mark.parametrize("z", [3.0, 0.0, -0.999, -1.001, -5.0, -20.0, -37.0, -99.99, -100.01, -1e4, -1e8])
def test_log_expected_improvement_has_all_digits_however_small(z):
    # φ(z) + zΦ(z) = φ(s) ∫ t exp(−st − t²/2) dt for s = −z, over t > 0; t = u/s where s is large.
    s = max(-z, 1.0)
    scaled = quad(lambda u: u * np.exp(-(-z / s) * u - 0.5 * (u / s) ** 2), 0, 60 if z < 0 else 15, epsabs=0, limit=200)
    expected = norm.logpdf(z) + np.log(scaled[0]) - 2 * np.log(s)
    assert_allclose(log_expected_improvement(z, 1.0, 0.0), expected, rtol=1e-12, atol=1e-10)


def test_certain_values_improve_by_their_difference():
    assert_allclose(expected_improvement([2.0, 1.0], 0.0, 1.5), [0.5, 0.0])
    assert_array_equal(log_expected_improvement([1.0, 1.5], [0.0, 0.0], 1.5), [-np.inf, -np.inf])


def test_probabilities_are_the_normal_distributions():
    assert_allclose(probability_of_improvement(MEAN, STD, BEST), norm.sf(BEST, MEAN, STD))
    inside = norm.cdf(1.0, MEAN, STD) - norm.cdf(-0.5, MEAN, STD)
    assert_allclose(np.exp(log_probability_of_feasibility(MEAN, STD, -0.5, 1.0)), inside, rtol=1e-10)
    assert_allclose(log_probability_of_feasibility(MEAN, STD, upper=1.0), norm.logcdf(1.0, MEAN, STD))
    assert_array_equal(log_probability_of_feasibility([0.0, 2.0], [0.0, 0.0], -1.0, 1.0), [0.0, -np.inf])


@pytest.mark.parametrize("sign", [1, -1])
def test_log_feasibility_has_digits_in_both_tails(sign):
    bounds = sorted([sign * 40.0, sign * 41.0])
    expected = norm.logsf(40.0) + np.log1p(-np.exp(norm.logsf(41.0) - norm.logsf(40.0)))
    assert_allclose(log_probability_of_feasibility(0.0, 1.0, *bounds), expected, rtol=1e-12)


def draws(n_functions=20_000):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4)) * 0.5
    return MEAN[:, None] + root @ rng.standard_normal((4, n_functions)), np.sqrt((root**2).sum(axis=1))


def test_improvement_of_draws_is_the_closed_form():
    values, std = draws()
    error = np.maximum(values - BEST, 0).std(axis=1) / np.sqrt(values.shape[1])
    found = improvement_of_draws(values, BEST)
    assert (np.abs(found - expected_improvement(MEAN, std, BEST)) < 4 * error).all()


def test_a_noisy_incumbent_differs_from_draw_to_draw():
    values, _ = draws(500)
    best = values[:2].max(axis=0)
    found = improvement_of_draws(values, best)
    assert_allclose(found, np.mean([np.maximum(values[:, s] - best[s], 0) for s in range(500)], axis=0))
    assert (found[:2] <= found.max()).all() and (improvement_of_draws(values[:1], best) < found[2:].min()).all()


def test_a_batch_of_draws_is_greedy_in_the_joint_improvement():
    values, _ = draws(400)
    chosen = batch_of_draws(values, BEST, 3)
    assert len(set(chosen)) == 3
    taken = []
    for row in chosen:
        joint = [np.maximum(values[[*taken, j]].max(axis=0) - BEST, 0).mean() for j in range(4)]
        assert row == np.argmax(np.where(np.isin(range(4), taken), -np.inf, joint))
        taken.append(int(row))


def test_a_thompson_batch_takes_every_draws_own_best():
    values = np.array([[3.0, 3.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    assert_array_equal(thompson_batch(values, 3), [0, 1, 2])


def dominated(points, i):
    return any((p >= points[i]).all() and (p > points[i]).any() for p in points)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_the_front_is_what_nothing_dominates(m):
    points = np.random.default_rng(m).integers(0, 6, (25, m)).astype(float)
    mask = pareto_front(points)
    first = [i for i in range(25) if not dominated(points, i) and not (points[:i] == points[i]).all(axis=1).any()]
    assert_array_equal(np.flatnonzero(mask), first)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_hypervolume_is_that_of_counted_cells(m):
    rng = np.random.default_rng(m)
    points = rng.integers(-2, 5, (6, m)).astype(float)
    cells = np.stack(np.meshgrid(*[np.arange(5)] * m, indexing="ij"), axis=-1).reshape(-1, m)
    expected = (cells[:, None] + 1 <= points[None]).all(axis=2).any(axis=1).sum()
    assert hypervolume(points, np.zeros(m)) == pytest.approx(expected)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_improvement_is_the_difference_of_hypervolumes(m):
    rng = np.random.default_rng(m)
    front, reference = rng.standard_normal((7, m)), np.full(m, -0.5)
    values = rng.standard_normal((5, m, 3))
    volume = hypervolume(front, reference)
    expected = [
        np.mean([hypervolume(np.vstack([front, values[i, :, s]]), reference) - volume for s in range(3)])
        for i in range(5)
    ]
    assert_allclose(hypervolume_improvement(values, front, reference), expected, rtol=1e-10, atol=1e-12)
    alone = [hypervolume(values[i, :, :1].T, reference) for i in range(5)]
    assert_allclose(hypervolume_improvement(values[:, :, 0], np.empty((0, m)), reference), alone, rtol=1e-10)


def test_rows_that_rounding_of_sums_hides_are_dominated():
    assert pareto_front([[1e17, 0.0], [1e17, 1.0]]).tolist() == [False, True]
    assert pareto_front([[0.0, 1e17], [1.0, 1e17], [1.0, 1e17]]).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_improvement(0.0, -1.0, 0.0), r"std must not be negative, got -1\.0"),
        (lambda: log_probability_of_feasibility(0.0, 1.0, 2, 1), "lower must not be above upper, got 2 and 1"),
        (lambda: batch_of_draws(np.zeros((2, 5)), 0.0, 3), "n must be at most the number of rows, 2, got 3"),
        (lambda: thompson_batch(np.zeros((3, 1)), 2), "values must be of at least n = 2 functions, got 1"),
        (lambda: improvement_of_draws(np.zeros((2, 5)), np.zeros(2)), "best must be a number or one per function, 5"),
        (lambda: hypervolume(np.zeros((3, 3)), [0.0, 0.0]), r"values must be finite of shape \(n_rows, 2\), got shape"),
        (
            lambda: hypervolume_improvement(np.zeros((4, 3, 5)), np.zeros((1, 2)), [0.0, 0.0]),
            r"values must have shape \(n_rows, 2, n_functions\), got \(4, 3, 5\)",
        ),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
