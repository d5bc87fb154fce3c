"""The product over axes: its kernel, its gradient, and where it is chosen."""

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pydirect import DirectRegressor, load
from pydirect.features import search
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures, random_fourier_features
from pydirect.features.marginal_likelihood import MarginalLikelihood
from pydirect.features.search import KernelRows, search_kernel

from .test_evidence import covariance_by_hand, make, negative_log_prior, random_theta


def kernel(d, *, ard=0.7, product=0.4, n_linear=0, smoothness=1.5, order=0):
    rates = np.geomspace(0.05, 3.0, d)
    rates[::3] = 0.0  # inputs that the part does not see
    return KernelHyperparameters(
        0.1, ard, np.geomspace(0.5, 20.0, d), 0.0, 1.0, 0.9, n_linear, smoothness, 0, product, rates, order
    )


def product_of(p, x, z):
    if p.product_order == 2:
        axes = [np.sqrt(5) * r * np.abs(x[:, j, None] - z[:, j]) for j, r in enumerate(p.product_rates) if r > 0]
        values = [(1 + t + t * t / 3) * np.exp(-t) for t in axes]
        pairs = [a * b for a, b in itertools.combinations(values, 2)]
        return p.product_amplitude * np.mean(pairs, axis=0)
    return p.product_amplitude * np.exp(-cdist(x * p.product_rates, z * p.product_rates, "cityblock"))


def exact(p, x, z):
    return covariance_by_hand(p, x, z) + product_of(p, x, z)


@pytest.mark.parametrize(("smoothness", "ard"), [*itertools.product([0.5, 1.5, 2.5], [0.7, 0.0])])
@pytest.mark.parametrize(("d", "n_linear"), [(2, 0), (7, 5), (40, 40)])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 8), (67, 259)])
@pytest.mark.parametrize("order", [0, 2])
def test_cross_covariance_is_the_documented_sum(at_every_level, n, m, d, n_linear, smoothness, ard, order):
    rng = np.random.default_rng(n)
    d = d + (d == 2 == order)  # two axes at least
    p = kernel(d, ard=ard, n_linear=n_linear, smoothness=smoothness, order=order)
    x, z = rng.uniform(-2, 2, (n, d)), rng.uniform(-2, 2, (m, d))
    np.testing.assert_allclose(at_every_level(lambda: p.covariance(x, z)), exact(p, x, z), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(p.diagonal(x), np.diag(exact(p, x, x)), rtol=1e-12)


@pytest.mark.parametrize("order", [0, 2])
def test_cross_covariance_has_the_same_bits_in_any_block_and_on_any_number_of_threads(isa_level, order):
    rng = np.random.default_rng(0)
    p, x, z = kernel(5, n_linear=5, order=order), rng.standard_normal((701, 5)), rng.standard_normal((203, 5))
    whole = p.covariance(x, z)
    for n_threads in (2, 3):
        np.testing.assert_array_equal(p.covariance(x, z, n_threads), whole)
    for i in (0, 64, 700):
        np.testing.assert_array_equal(p.covariance(x[i : i + 1], z)[0], whole[i])
    np.testing.assert_array_equal(p.covariance(x, z[50:57]), whole[:, 50:57])


def test_the_kernel_is_positive_definite():
    x = np.random.default_rng(0).standard_normal((1000, 6))
    assert np.linalg.eigvalsh(kernel(6, ard=0.0, n_linear=6).covariance(x, x)).min() > 1e-6
    assert np.linalg.eigvalsh(kernel(6, ard=0.0, n_linear=6, order=2).covariance(x, x)).min() > -1e-9


def objective_of(n, *, d=4, n_outputs=1, weighted=False, seed=1, n_threads=1, order=0):
    x, y, weight = make(n, d, n_outputs, seed, weighted)
    return MarginalLikelihood(x, y, weight, 2, n_threads).with_axes(np.array([0, 2, 3]), order)


@pytest.mark.parametrize("order", [0, 2])
def test_value_is_the_log_density_with_the_priors(at_every_level, order):
    objective = objective_of(23, order=order).at(2.5)
    theta = random_theta(objective, 0)
    p = objective.unpack(theta)
    assert p.isotropic_amplitude == 0.0 and p.product_rates[1] == 0.0 and p.product_amplitude > 0
    k = exact(p, objective.x[:23], objective.x[:23]) + p.noise_variance * np.eye(23)
    y = objective.y[:, 0]
    expected = 0.5 * (y @ np.linalg.solve(k, y) + np.linalg.slogdet(k)[1] + 23 * np.log(2 * np.pi))
    value = at_every_level(lambda: np.float64(objective(theta)[0]))
    assert value == pytest.approx(expected + negative_log_prior(objective, theta), rel=1e-10)
    assert len(objective.bounds) == len(objective.mean) == len(objective.sd) == len(objective.start) == len(theta)


@pytest.mark.parametrize(("n_outputs", "weighted"), [(1, False), (2, True)])
@pytest.mark.parametrize("n", [8, 17])
@pytest.mark.parametrize("order", [0, 2])
def test_gradient_is_that_of_the_value(isa_level, n_outputs, weighted, n, order):
    for seed, smoothness in enumerate([0.5, 1.5, 2.5]):
        objective = objective_of(n, n_outputs=n_outputs, weighted=weighted, order=order).at(smoothness)
        theta = random_theta(objective, seed)
        _, gradient = objective(theta)
        step = 1e-5
        numerical = [
            (objective(theta + step * e)[0] - objective(theta - step * e)[0]) / (2 * step) for e in np.eye(theta.size)
        ]
        np.testing.assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-6)


def test_value_and_gradient_have_the_same_bits_for_any_number_of_threads_and_level(at_every_level):
    def run(n_threads):
        objective = objective_of(400, n_threads=n_threads)
        value, gradient = objective(objective.start)
        return np.append(gradient, value)

    assert len({run(n).tobytes() for n in (1, 2, 3)}) == 1
    at_every_level(lambda: run(1))


def test_theta_of_a_kernel_is_its_own():
    objective = objective_of(17)
    plain = MarginalLikelihood(*make(17, 4, seed=1), 2, 1)
    theta = random_theta(plain, 0)
    np.testing.assert_allclose(plain.theta_of(plain.unpack(theta)), theta)
    same = objective.theta_of(plain.unpack(theta))
    assert objective.unpack(same).length_scales == pytest.approx(plain.unpack(theta).length_scales)
    np.testing.assert_array_equal(same[6:-1], objective.start[6:-1])


@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("tail", [1, 3])
def test_fourier_features_have_the_kernel_on_average(tail, order):
    rng = np.random.default_rng(0)
    p, x = kernel(3, order=order), rng.uniform(-1, 1, (12, 3))
    phi = random_fourier_features(p, 200_000, rng, tail=tail).transform(x)
    np.testing.assert_allclose(phi @ phi.T, exact(p, x, x), atol=0.015)


@pytest.mark.parametrize("order", [0, 2])
def test_derivatives_of_kernel_functions_are_those_between_landmarks(order):
    rng = np.random.default_rng(0)
    z, x, p = rng.standard_normal((9, 4)), rng.standard_normal((5, 4)), kernel(4, n_linear=4, order=order)
    features, step = NystroemFeatures.at(z, p), 1e-6
    for k in range(4):
        e = step * np.eye(4)[k]
        numerical = (p.covariance(x + e, z) - p.covariance(x - e, z)) / (2 * step)
        np.testing.assert_allclose(features.gradient(x)([(k, np.ones(5))]), numerical, rtol=1e-6, atol=1e-8)


def test_every_column_is_an_axis_once():
    x = np.column_stack([np.arange(9.0), np.ones(9), np.arange(9) % 2, np.arange(9) ** 2])
    ranked = InputMap.fit(x, None, rank=True)
    np.testing.assert_array_equal(ranked.axes, [1, 3, 4])  # the binary column, then two columns of scores
    np.testing.assert_array_equal(InputMap.fit(x, None, rank=False).axes, [0, 1, 2])


def steps(n, seed=0):
    """A smooth function and jumps along single columns."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 4))
    inside = (x[:, 0] > 0.1) & (x[:, 1] < 0.4)
    return x, np.sin(2 * x[:, 2]) + 2 * inside - 1.5 * (x[:, 3] > -0.3) + 0.05 * rng.standard_normal(n)


def searched(x, y, **options):
    y = ((y - y.mean()) / y.std())[:, None]
    axes = np.arange(x.shape[1])
    rows = KernelRows(x, y, np.ones(len(x)), len(axes), axes=axes)
    return search_kernel(rows, np.random.default_rng(0), **options)


def test_steps_along_columns_get_a_product_and_smooth_functions_do_not():
    x, y = steps(250)
    chosen, record = searched(x, y)
    assert chosen.product_amplitude > 0 == chosen.isotropic_amplitude and record.product_gain > 10
    assert record.product_gain < 1e3 and "in place of the isotropic part: +" in repr(record)
    assert chosen.product_rates[[0, 1, 3]].min() > chosen.product_rates[2]
    smooth = np.sin(1.5 * x.sum(axis=1)) + 0.1 * np.random.default_rng(1).standard_normal(250)
    plain, record = searched(x, smooth)
    assert plain.product_amplitude == 0 and not plain.product_rates.size and plain.isotropic_amplitude > 0
    assert max(record.product_gain, record.pairs_gain) <= 10 and "not chosen" in repr(record)


def test_a_kernel_found_elsewhere_is_improved_on_the_rows_of_the_comparison():
    x, y = steps(590)
    chosen, record = searched(x, y, max_rows=200)
    assert chosen.product_amplitude > 0 and record.product_gain > 10


def test_a_part_of_axes_is_refused_where_all_rows_do_not_gain_by_it(monkeypatch):
    x, y = steps(250)
    assert searched(x, y, max_rows=200)[0].product_amplitude > 0
    monkeypatch.setattr(search, "Referee", lambda *given: lambda kernel: 0.0)
    kept, record = searched(x, y, max_rows=200)
    assert kept.product_amplitude == 0 < kept.isotropic_amplitude
    assert record.product_gain == 0.0 and "in place of the isotropic part: +0.0; not chosen" in repr(record)


def test_sums_of_interactions_get_pairs_of_axes():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (300, 6))
    y = np.sin(2 * x[:, 0] * x[:, 1]) + np.cos(2 * (x[:, 2] + x[:, 3])) + 0.5 * x[:, 4] ** 2
    chosen, record = searched(x, y + 0.1 * rng.standard_normal(300))
    assert chosen.product_order == 2 and record.pairs_gain > max(10, record.product_gain)
    assert "pairs of axes in place of the isotropic part: +" in repr(record)
    chosen.check()


def test_noise_and_no_axes_are_not_tried():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    chosen, record = searched(x, rng.standard_normal(60))
    assert chosen.product_amplitude == 0 and "axes" not in repr(record)
    assert record.product_gain is None and record.pairs_gain is None


def test_predictions_gradients_functions_and_files_have_the_product(tmp_path):
    x, y = steps(250)
    model = DirectRegressor(random_state=0).fit(x, y)
    assert model.features_.hyperparameters.product_amplitude > 0
    assert "along single columns, as steps do, which gains" in model.summary()
    assert model.search_.product_gain > 10
    new = np.random.default_rng(1).uniform(-0.9, 0.9, (20, 4))
    mean = model.predict(new)
    model.save(tmp_path / "m.pydirect")
    again = load(tmp_path / "m.pydirect")
    np.testing.assert_array_equal(again.predict(new), mean)
    assert again.search_.product_gain == model.search_.product_gain
    step = 1e-6
    gradient, of_deviation = model.predict_gradient(new)
    assert np.isfinite(of_deviation).all()
    for k in range(4):
        e = step * np.eye(4)[k]
        numerical = (model.predict(new + e) - model.predict(new - e)) / (2 * step)
        assert np.median(np.abs(gradient[:, k] - numerical)) < 1e-4


def test_a_part_of_pairs_needs_two_axes():
    with pytest.raises(ValueError, match="product_rates must be of two inputs"):
        kernel(2, order=2).check()


def test_two_exponential_parts_are_refused():
    with pytest.raises(ValueError, match="product_amplitude must be 0"):
        KernelHyperparameters(0.1, 1.0, np.ones(2), 0.5, 1.0, 0.1, 2, 1.5, 0, 0.3, np.ones(2)).check()
    with pytest.raises(ValueError, match="product_amplitude must be 0"):
        KernelHyperparameters(0.1, 1.0, np.ones(2), 0.0, 1.0, 0.1, 2, 1.5, 0, 0.3).check()
