import numpy as np
import pytest

from pydirect import _core
from pydirect._threads import threads
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.nearest_evidence import NearestEvidence

from .test_evidence import categories, covariance_by_hand, make


def evidence_of(n, d, n_linear, *, targets, k, n_outputs=1, weighted=True, smoothness=1.5, n_categories=0, **options):
    x, y, weight = make(n, d, n_outputs, weighted=weighted)
    if n_categories:
        x = categories(n, d, n_categories)
    exact = MarginalLikelihood(x[:20], y[:20], weight[:20], n_linear)
    return NearestEvidence(x, y, weight, np.arange(n)[targets], k, exact, **options).at(smoothness)


def theta_of(objective, seed=0):
    return objective.start + np.random.default_rng(seed).uniform(-1, 1, objective.start.size)


@pytest.mark.parametrize("n_categories", [0, 60])
def test_neighbours_are_the_nearest_of_those_before(n_categories):
    x, targets = np.random.default_rng(0).standard_normal((4, 96)), np.array([0, 3, 40, 95])
    x = categories(96, 4, n_categories).T if n_categories else x
    x = np.ascontiguousarray(x, dtype=np.float32)
    found = _core.nearest_preceding(x, targets, 5, 1)
    for target, row in zip(targets, found, strict=True):
        distance = ((x[:, :target] - x[:, [target]]) ** 2).sum(axis=0)
        expected = np.sort(np.argsort(distance)[:5])
        np.testing.assert_array_equal(row[: len(expected)], expected)
        assert (row[len(expected) :] == -1).all()


@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("n_categories", [0, 60])
def test_all_rows_before_as_neighbours_give_the_exact_evidence(smoothness, n_outputs, n_categories):
    n, options = 43, {"n_outputs": n_outputs, "smoothness": smoothness, "n_categories": n_categories}
    objective = evidence_of(n, 3, 0, targets=slice(None), k=n - 1, **options)
    theta = theta_of(objective)
    objective.update(theta)
    objective.trend[:] = 0.0
    p = objective.unpack(theta)
    covariance = covariance_by_hand(p, objective.x, objective.x) - 1.0 + np.diag(p.noise_variance / objective.weight)
    factor = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(factor, objective.y)
    spare = (1 - objective.weight).sum() * np.log(2 * np.pi * p.noise_variance) - np.log(objective.weight).sum()
    expected = n_outputs * (n * np.log(2 * np.pi) + 2 * np.log(factor.diagonal()).sum() - spare)
    value = objective(theta)[0] - objective.exact.function.penalty(theta)[0]
    assert value == pytest.approx(0.5 * (expected + (whitened**2).sum()), rel=1e-8)


@pytest.mark.parametrize("smoothness", [0, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("adds_exact", "n_categories"), [(False, 0), (True, 0), (False, 50)])
def test_gradient_is_that_of_the_value(smoothness, n_outputs, adds_exact, n_categories):
    options = {"n_outputs": n_outputs, "smoothness": smoothness, "adds_exact": adds_exact, "n_categories": n_categories}
    objective = evidence_of(60, 5, 3, targets=slice(2, None, 3), k=7, **options)
    theta = theta_of(objective)
    objective.update(theta)
    _, gradient = objective(theta)
    for j in range(len(theta)):
        step = np.zeros_like(theta)
        step[j] = 1e-4
        points = [objective(theta + k * step)[0] for k in (-2, -1, 1, 2)]
        difference = (points[0] - 8 * points[1] + 8 * points[2] - points[3]) / 12e-4
        assert gradient[j] == pytest.approx(difference, rel=1e-7, abs=1e-7)


def test_tied_inputs_share_a_length_scale():
    x, y, weight = make(40, 4)
    tied = np.array([0, 1, 1, 2])
    exact = MarginalLikelihood(x[:10], y[:10], weight[:10], 4, tied)
    objective = NearestEvidence(x, y, weight, np.arange(10, 40), 6, exact)
    theta = theta_of(objective)
    objective.update(theta)
    step = np.zeros_like(theta)
    step[3] = 1e-5
    difference = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5
    assert objective(theta)[1][3] == pytest.approx(difference, rel=1e-6)


def test_the_trend_is_that_of_generalised_least_squares():
    n = 50
    objective = evidence_of(n, 3, 2, targets=slice(None), k=n - 1)
    theta = theta_of(objective)
    objective.update(theta)
    p = objective.unpack(theta)
    linear = p.amplitudes[2] * objective.x[:, :2] @ objective.x[:, :2].T
    local = (
        covariance_by_hand(p, objective.x, objective.x) - 1.0 - linear + np.diag(p.noise_variance / objective.weight)
    )
    columns = np.c_[objective.x[:, :2], np.ones(n)]
    precision = columns.T @ np.linalg.solve(local, columns) + np.diag(1 / np.array([*[p.amplitudes[2]] * 2, 1.0]))
    covariance = np.linalg.inv(precision)
    expected = covariance @ columns.T @ np.linalg.solve(local, objective.y)
    np.testing.assert_allclose(objective.trend, expected, rtol=1e-7)
    square = (expected[:2] ** 2).sum() + covariance[0, 0] + covariance[1, 1]
    assert objective.trend_square == pytest.approx(square, rel=1e-7)


@pytest.mark.parametrize("n_categories", [0, 60])
def test_bits_are_the_same_for_any_number_of_threads_and_level(at_every_level, n_categories):
    def evaluate(n_threads):
        with threads(n_threads):
            objective = evidence_of(700, 6, 4, targets=slice(100, None), k=15, n_categories=n_categories)
        theta = theta_of(objective)
        objective.update(theta)
        value, gradient = objective(theta)
        return objective.rows, objective.trend, value, gradient

    one, two = (at_every_level(lambda n=n: evaluate(n)) for n in (1, 2))
    for got, expected in zip(two, one, strict=True):
        assert got.tobytes() == expected.tobytes()
