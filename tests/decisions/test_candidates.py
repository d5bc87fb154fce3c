import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pydirect import DirectRegressor, Nystroem
from pydirect.decisions import Candidates, greedy_batch

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (50, 2))
Y = 5 * np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * RNG.standard_normal(50)
NEW = np.vstack([RNG.uniform(-2.5, 2.5, (8, 2)), [[9.0, -9.0]]])


def known(n=6, noise=0.3):
    root = RNG.standard_normal((n, n))
    covariance = root @ root.T
    mean = RNG.standard_normal(n)
    return mean, covariance, Candidates(mean, covariance.diagonal(), lambda j: covariance[:, j].copy(), noise)


def test_measurements_condition_as_a_dense_gaussian_does():
    mean, covariance, candidates = known()
    rows, y = [1, 4, 1], np.array([0.5, -2.0, 1.0])
    for row, value in zip(rows, y, strict=True):
        candidates.measure(row, value)
    cross = covariance[:, rows]
    gain = cross @ np.linalg.inv(covariance[np.ix_(rows, rows)] + 0.3 * np.eye(3))
    after = covariance - gain @ cross.T
    assert_allclose(candidates.mean, mean + gain @ (y - mean[rows]), rtol=1e-10)
    assert_allclose(candidates.variance, after.diagonal(), rtol=1e-9, atol=1e-12)
    assert_allclose(candidates.covariances(3), after[:, 3], rtol=1e-9, atol=1e-12)


def test_a_believed_measurement_leaves_the_means():
    mean, covariance, candidates = known()
    candidates.measure(2)
    assert_array_equal(candidates.mean, mean)
    column = covariance[:, 2]
    assert_allclose(candidates.variance, covariance.diagonal() - column**2 / (column[2] + 0.3), rtol=1e-10)


def test_without_noise_a_measured_value_is_certain():
    _, _, candidates = known(noise=0.0)
    candidates.measure(2, 7.0).measure(2)
    assert candidates.mean[2] == pytest.approx(7.0) and candidates.variance[2] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"n_basis_functions": 25}, {"features": "fourier", "n_basis_functions": 60}, {"features": "linear"}]
)
def test_a_models_candidates_have_its_moments_and_covariances(options):
    model = DirectRegressor(noise="constant", **options).fit(X, Y).calibrate(X[:20], Y[:20] + 0.3)
    candidates = Candidates.of(model, NEW)
    mean, std, noise = model.predict_parts(NEW)
    assert_allclose(candidates.mean, mean, rtol=1e-9)
    assert_allclose(candidates.std, std, rtol=1e-4)
    assert_allclose(candidates.noise_variance, noise**2, rtol=1e-10)
    drawn = model.sample_y(NEW, 4000, 1, noise=False)
    expected = np.cov(drawn)
    error = np.sqrt((expected**2 + np.outer(expected.diagonal(), expected.diagonal())) / 4000)
    found = np.stack([candidates.covariances(j) for j in range(len(NEW))])
    assert_allclose(found, found.T, rtol=1e-9, atol=1e-9)
    assert (np.abs(found - expected) < 5 * error + 1e-9).all()


def test_measuring_is_refitting_with_one_more_row():
    # With all rows as landmarks the process is exact; kernel, noise and prior scale are held.
    options = {"features": Nystroem(length_scale=1.0), "noise": 0.04}
    model = DirectRegressor(**options).fit(X, Y)
    candidates = Candidates.of(model, NEW)
    candidates.measure(3, 2.0)
    kernel, unit = model.features_.hyperparameters, model.y_scale_[0]
    inputs, new = model.features_.inputs(X), model.features_.inputs(NEW)
    t = float(model.prior_scale_[0]) ** 2 * unit**2
    seen = np.vstack([inputs, new[3:4]])
    gram = t * kernel.covariance(seen, seen) + 0.04 * np.eye(51)
    cross = t * kernel.covariance(new, seen)
    gain = cross @ np.linalg.inv(gram)
    assert_allclose(candidates.mean[:8], (model.y_mean_[0] + gain @ (np.append(Y, 2.0) - model.y_mean_[0]))[:8], 1e-3)
    variance = t * kernel.diagonal(new) - np.einsum("ij,ij->i", gain, cross)
    assert_allclose(candidates.variance[:8], variance[:8], rtol=1e-3)


def test_a_greedy_batch_spreads_over_what_is_unknown():
    x = np.linspace(0, 1, 101)[:, None]
    model = DirectRegressor(features=Nystroem(length_scale=0.3), noise=0.01).fit(x[:20:2], np.sin(3 * x[:20:2, 0]))
    chosen = greedy_batch(Candidates.of(model, x), 3, lambda mean, std: std)
    assert np.ptp(np.argsort(-Candidates.of(model, x).std)[:3]) == 2  # three neighbours
    assert np.diff(np.sort(chosen)).min() > 10


def test_bad_requests_are_refused():
    model = DirectRegressor(posterior="sequential", n_basis_functions=10).fit(X, Y)
    with pytest.raises(TypeError, match="model must have posterior='gaussian', got 'sequential'"):
        Candidates.of(model, NEW)
    model = DirectRegressor(features="linear").fit(X, np.column_stack([Y, Y]))
    with pytest.raises(ValueError, match="model must be of one target, got 2"):
        Candidates.of(model, NEW)
    model = DirectRegressor(features="linear", target_transform="log").fit(X, np.exp(Y))
    with pytest.raises(ValueError, match="model must have no transformed target"):
        Candidates.of(model, NEW)
    with pytest.raises(ValueError, match="row must be below the number of rows, 6, got 6"):
        known()[2].measure(6)
    with pytest.raises(ValueError, match="n must be at most the number of rows, 6, got 7"):
        greedy_batch(known()[2], 7, lambda mean, std: mean)
