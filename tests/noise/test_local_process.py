"""A local process is scikit-learn's on the nearest rows; left-out scores are those of brute force."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from pydirect import DirectRegressor, _core
from pydirect.noise.local import NOISE, POOLING, LocalProcess, NeighbourSets
from tests.helpers.saved import verify

RNG = np.random.default_rng(0)
N, K = 300, 12
INPUTS = RNG.standard_normal((N, 3)) * [1.0, 2.0, 0.5]
LENGTHS = np.array([1.0, 4.0, 2.0])
WEIGHT = RNG.integers(1, 4, N).astype(float)
RESIDUALS = np.c_[np.sin(6 * INPUTS[:, 0]) + 0.1 * RNG.standard_normal(N), RNG.standard_normal(N)]
NEW = RNG.standard_normal((20, 3))


def fitted(residuals=RESIDUALS, k=K, n_held=100, inputs=INPUTS, weight=WEIGHT):
    held = np.arange(n_held)
    density = norm.logpdf(residuals[held], scale=residuals.std(axis=0) + 1e-300)
    return NeighbourSets.of(inputs, LENGTHS, weight, k, held).fit(residuals, density)


def nearest(process, row, k, without=None):
    order = np.argsort(np.linalg.norm(process.u.astype(float) - row, axis=1), kind="stable")
    return order[order != without][:k] if without is not None else order[:k]


def by_hand(process, row, j, chosen, rho, eta):
    """Mean of g, its variance over s², and r_Nᵀ(K_NN + ηI)⁻¹ r_N/k."""
    u, r = process.u[chosen].astype(float), process.r[chosen, j].astype(float)
    k = matern(np.linalg.norm(u - row, axis=1) / rho)
    covariance = matern(np.linalg.norm(u - u[:, None], axis=2) / rho) + np.diag(eta / process.weight[chosen])
    solved = np.linalg.solve(covariance, np.c_[r, k])
    return k @ solved[:, 0], 1 - k @ solved[:, 1], r @ solved[:, 0] / len(chosen)


def matern(distance):
    return (1 + np.sqrt(3) * distance) * np.exp(-np.sqrt(3) * distance)


def by_sklearn(process, row, j, chosen, rho, eta, scale):
    """Mean and variance of g."""
    kernel = ConstantKernel(scale) * Matern(length_scale=rho, nu=1.5)
    noise = scale * eta / process.weight[chosen].astype(float)
    gp = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
    gp.fit(process.u[chosen].astype(float), process.r[chosen, j].astype(float))
    mean, sd = gp.predict(row[None], return_std=True)
    return mean[0], sd[0] ** 2


def test_predictions_are_those_of_scikit_learn_on_the_nearest_rows():
    process = fitted()
    moments = process.predict(NEW)
    for row, found in zip(NEW, np.stack(moments, axis=-1), strict=True):
        u = row[process.columns] * process.inverse_scales - process.centre
        chosen = nearest(process, u, K)
        for j in range(2):
            rho, eta, kappa = process.rho[j], process.eta[j], process.pooling[j]
            scatter = by_hand(process, u, j, chosen, rho, eta)[2]
            scale = kappa * process.c[j] + (1 - kappa) * scatter
            mean, variance = by_sklearn(process, u, j, chosen, rho, eta, scale)
            np.testing.assert_allclose(found[j], [mean, variance, scale * eta], rtol=2e-3, atol=1e-4)


def left_out_density(process, j, held, rho, eta, kappa, c):
    """Mean log density of rows left out, given the parameters."""
    total = 0.0
    for i in held:
        u = process.u[i].astype(float)
        mean, left, scatter = by_hand(process, u, j, nearest(process, u, K, without=i), rho, eta)
        scale = kappa * c + (1 - kappa) * scatter
        total += process.weight[i] * norm.logpdf(process.r[i, j], mean, np.sqrt(scale * (left + eta)))
    return total / process.weight[held].sum()


def test_the_gain_is_that_of_predicting_rows_without_themselves():
    process, held = fitted(n_held=40), np.arange(40)
    before = norm.logpdf(RESIDUALS[held], scale=RESIDUALS.std(axis=0))
    for j in range(2):
        values = (process.rho[j], process.eta[j], process.pooling[j], process.c[j])
        after = left_out_density(process, j, held, *values)
        gain = after - np.average(before[:, j], weights=WEIGHT[held])
        assert process.gain[j] == pytest.approx(gain, abs=1e-3)


def test_the_parameters_are_the_best_on_the_grid_nearby():
    process, held = fitted(n_held=40), np.arange(40)
    known = (process.rho[0], process.eta[0], process.pooling[0], process.c[0])
    best = left_out_density(process, 0, held, *known)
    assert process.eta[0] in NOISE and process.pooling[0] in POOLING
    for rho, eta in [(2, 1), (0.5, 1), (1, 10 / 3), (1, 0.3)]:
        if process.eta[0] * eta >= min(NOISE):
            assert left_out_density(process, 0, held, known[0] * rho, known[1] * eta, *known[2:]) < best + 1e-3
    for factor in (0.5, 2.0):
        assert left_out_density(process, 0, held, *known[:3], known[3] * factor) < best + 0.05


def test_detail_gains_and_noise_does_not():
    process = fitted()
    assert process.gain[0] > 0.5 > 0.1 > process.gain[1]
    mean, variance, noise = process.predict(INPUTS[:100])
    assert np.corrcoef(mean[:, 0], np.sin(6 * INPUTS[:100, 0]))[0, 1] > 0.9
    assert (variance >= 0).all() and (noise > 0).all()


def test_intervals_hold_where_landmarks_are_too_few():
    rng = np.random.default_rng(0)
    x, places = 16 * rng.uniform(size=(4000, 2)), 16 * rng.uniform(size=(1000, 2))  # in length-scales of f
    f = np.exp(-0.5 * cdist(x, places, "sqeuclidean")) @ rng.standard_normal(len(places))
    y = f / f.std() + 0.2 * rng.standard_normal(len(x))
    learned, new = (x[:2000], y[:2000]), (x[2000:], y[2000:])
    model = DirectRegressor(n_basis_functions=100, target_transform=None, random_state=0).fit(*learned)
    low, high = model.predict_interval(new[0], level=0.9)
    assert 0.88 < np.mean((low <= new[1]) & (new[1] <= high)) < 0.94
    density = model.log_predictive_density(*new).mean()
    model.set_params(local=False, noise="constant").fit(*learned)
    whole, (mean, sd) = model.model_, model.predict(new[0], return_std=True)
    missed = whole.units.scale[0] ** 2 * whole.latent.beyond(*whole.latent.phi(new[0]))[:, 0]
    assert missed.mean() > 0.5 * (sd**2 - missed).mean()  # of all the rest of y's variance
    for variance in (sd**2, sd**2 - missed):
        assert density > norm.logpdf(new[1], mean, np.sqrt(variance)).mean() + 0.1


def test_scales_follow_noise_that_varies():
    left = INPUTS[:, 0] < 0
    residuals = (np.where(left, 0.1, 1.0) * RNG.standard_normal(N))[:, None]
    process = fitted(residuals)
    assert process.pooling[0] < 1
    noise = process.predict(INPUTS).noise[:, 0]
    assert np.median(noise[left]) < 0.1 * np.median(noise[~left])


def test_results_do_not_depend_on_threads_or_outputs():
    process = fitted()
    several = np.tile(NEW, (60, 1))
    whole = process.predict(several)
    np.testing.assert_array_equal(process.predict(several, n_threads=3), whole)
    alone = fitted(RESIDUALS[:, :1])
    np.testing.assert_array_equal(alone.predict(several)[0][:, 0], whole[0][:, 0])


def test_many_rows_at_one_place_and_constant_inputs_are_taken():
    inputs = np.repeat(INPUTS[:10], 30, axis=0)
    process = fitted(inputs=inputs)
    assert all(np.isfinite(part).all() for part in process.predict(inputs))
    process = fitted(inputs=np.zeros((N, 3)))
    assert all(np.isfinite(part).all() for part in process.predict(INPUTS))


def test_far_rows_and_exact_fits_stay_finite():
    process = fitted()
    mean, variance, noise = process.predict(np.full((2, 3), 1e50))
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    assert np.isfinite(variance).all() and np.isfinite(noise).all()
    exact = fitted(np.zeros((N, 1)))
    assert exact.gain == 0
    assert all(np.isfinite(part).all() for part in exact.predict(NEW))


PROCESS = fitted()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": np.array([0, 1, 9])}, "columns"),
        ({"u": np.zeros((N, 3))}, "u must be float32"),
        ({"r": np.full((N, 2), np.nan, dtype=np.float32)}, "r must be finite"),
        ({"weight": np.zeros(N, dtype=np.float32)}, "weight must be positive"),
        ({"eta": np.array([-1.0, 1.0])}, "eta must be positive"),
        ({"pooling": np.array([2.0, 1.0])}, "pooling"),
        ({"k": 0}, "k must be at least 1"),
    ],
)
def test_numbers_out_of_range_are_found(change, message):
    verify(PROCESS, n_inputs=3, n_outputs=2)
    fields = {name: getattr(PROCESS, name) for name in PROCESS.__dataclass_fields__}
    with pytest.raises((ValueError, TypeError), match=message):
        verify(LocalProcess(**(fields | change)), n_inputs=3, n_outputs=2)


@pytest.mark.parametrize(("k", "d"), [(1, 1), (2, 3), (7, 40), (32, 5), (33, 2)])
@pytest.mark.parametrize(("rho", "eta"), [(0.5, 3.0), (3.0, 0.1), (30.0, 0.01)])
def test_kriging_is_that_of_dense_matrices(k, d, rho, eta):
    rng = np.random.default_rng(k)
    rows, points = rng.standard_normal((50, d)).astype(np.float32), rng.standard_normal((90, d)).astype(np.float32)
    chosen = np.array([rng.choice(90, k, replace=False) for _ in rows])
    weight, r = rng.gamma(2.0, size=(50, k)).astype(np.float32), rng.standard_normal((50, k)).astype(np.float32)
    by_threads = []
    for n_threads in (1, 3):
        distances = _core.neighbour_distances(rows, points, chosen, n_threads)
        factors = _core.neighbour_factors(distances, weight, rho, eta, n_threads)
        by_threads.append([distances, factors, _core.krige(factors, r, n_threads)])
    for one, several in zip(*by_threads, strict=True):
        np.testing.assert_array_equal(one, several)

    together = np.concatenate([points[chosen], rows[:, None]], axis=1).astype(float)
    distance = np.linalg.norm(together[:, :, None] - together[:, None], axis=-1)
    np.testing.assert_allclose(distances, distance[:, *np.triu_indices(k + 1, 1)] ** 2, rtol=1e-12)
    correlation = matern(distance / rho)
    noisy = correlation[:, :k, :k] + np.eye(k) * (eta / weight.astype(float))[:, None]
    solved = np.linalg.solve(noisy, np.stack([r.astype(float), correlation[:, k, :k]], axis=-1))
    mean, explained = np.einsum("ij,ijk->ki", correlation[:, k, :k], solved)
    scatter = np.einsum("ij,ij->i", r, solved[..., 0]) / k
    np.testing.assert_allclose(by_threads[0][2], [mean, 1 - explained, scatter], rtol=1e-9, atol=1e-9)


def test_kriging_among_neighbours_at_one_place_is_finite():
    points, weight = np.zeros((40, 2), dtype=np.float32), np.full((1, 32), 1e30, dtype=np.float32)
    distances = _core.neighbour_distances(points[:1], points, np.arange(32)[None], 1)
    factors = _core.neighbour_factors(distances, weight, 1.0, 0.01, 1)
    mean, left, _ = _core.krige(factors, np.ones((1, 32), dtype=np.float32), 1)
    assert np.isfinite(mean).all() and 0 <= left <= 1
