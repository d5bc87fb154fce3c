"""The product over axes: its kernel, its gradient, and where it is chosen."""

import numpy as np
import pytest

from pydirect import DirectRegressor, load
from pydirect.features import search
from pydirect.features.inputs import InputMap
from pydirect.features.maps import random_fourier_features
from pydirect.features.search import KernelRows, search_kernel

from .test_evidence import covariance_by_hand
from .test_kernel import kernel_of_axes as kernel


def test_the_kernel_is_positive_definite():
    x = np.random.default_rng(0).standard_normal((1000, 6))
    assert np.linalg.eigvalsh(kernel(6, ard=0.0, n_linear=6).covariance(x, x)).min() > 1e-6
    assert np.linalg.eigvalsh(kernel(6, ard=0.0, n_linear=6, order=2).covariance(x, x)).min() > -1e-9


@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("tail", [1, 3])
def test_fourier_features_have_the_kernel_on_average(tail, order):
    rng = np.random.default_rng(0)
    p, x = kernel(3, order=order), rng.uniform(-1, 1, (12, 3))
    phi = random_fourier_features(p, 200_000, rng, tail=tail).transform(x)
    np.testing.assert_allclose(phi @ phi.T, covariance_by_hand(p, x, x), atol=0.015)


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


def test_a_part_of_axes_is_refused_where_all_rows_do_not_gain_by_it(monkeypatch):
    x, y = steps(250)
    assert searched(x, y, max_rows=200)[0].product_amplitude > 0
    monkeypatch.setattr(search, "Referee", lambda *given: lambda kernel: 0.0)
    kept, record = searched(x, y, max_rows=200)
    assert kept.product_amplitude == 0 < kept.isotropic_amplitude
    assert record.product_gain == 0.0 and "in place of the isotropic part: +0.0; not chosen" in repr(record)


@pytest.mark.parametrize("seed", [1, 3])
def test_pairs_of_axes_are_found_beside_the_sharp_optimum_of_another_kernel(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.7, 1.7, (700, 6))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + np.cos(2 * x[:, 2]) * np.sin(x[:, 3]) + 0.3 * rng.standard_normal(700)
    chosen, record = searched(x, y)
    assert chosen.product_order == 2 and record.pairs_gain > max(50, record.product_gain)
    assert "pairs of axes in place of the isotropic part: +" in repr(record)
    chosen.check()


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
