import warnings

import numpy as np
import pytest

from pydirect import DirectRegressor, load
from pydirect.features.evidence import search_hyperparameters
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.search import geometric_mean
from pydirect.features.search_record import HyperparameterSearchWarning

from .test_screen import products


def problem(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    y = np.sin(2 * x[:, 1] * x[:, 3]) + 0.1 * rng.standard_normal(n)
    return x, ((y - y.mean()) / y.std())[:, None]


def searched(x, y, seed=0, **options):
    return search_hyperparameters(x, y, np.ones(len(x)), x.shape[1], np.random.default_rng(seed), **options)


def test_columns_that_matter_only_together_are_found_on_few_rows():
    x, y = problem(500, 16)
    kernel, record = searched(x, y)
    assert record.relevant.tolist() == [1, 3] and record.starts == ("long", "short", "screened")
    others = np.delete(kernel.length_scales, [1, 3])
    assert kernel.length_scales[[1, 3]].max() < 0.5 * others.min()
    assert kernel.noise_variance < 0.2
    assert record.start_values.shape == (1, 3) and record.smoothness_values.shape == (1, 3)
    assert record.evidences.size == 0
    assert record.n_rows == (500, 500, 500) and record.n_evaluations == kernel.n_evaluations > 20


@pytest.mark.slow
def test_a_function_that_varies_fast_is_found():
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, (1000, 2))
    y = np.sin(6 * x[:, :1]) * np.cos(6 * x[:, 1:]) + 0.1 * rng.standard_normal((1000, 1))
    kernel, _ = searched(x / x.std(axis=0), y / y.std())
    assert kernel.noise_variance < 0.2 and kernel.length_scales.max() < 1.0


def test_pure_noise_stays_noise():
    rng = np.random.default_rng(0)
    kernel, record = searched(rng.standard_normal((300, 8)), rng.standard_normal((300, 1)))
    assert record.relevant.size == 0
    assert kernel.noise_variance > 0.5 and kernel.ard_amplitude < 0.3


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_the_smoothness_is_that_of_the_function(smoothness):
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (300, 4))
    truth = KernelHyperparameters(1e-3, 1.0, np.array([1.0, 2.0, 50.0, 50.0]), 1e-5, 3.0, 1e-3, 4, smoothness)
    y = np.linalg.cholesky(truth.covariance(x, x) + 3e-5 * np.eye(300)) @ rng.standard_normal((300, 1))
    kernel, record = searched(x, (y - y.mean()) / y.std())
    assert kernel.smoothness == record.smoothness == max(smoothness, 1.5)
    rough, _, smooth = record.smoothness_values[0]
    assert (smooth > rough) == (smoothness > 1)  # the exponential part stands for roughness as well


def test_the_referee_chooses_between_subsets():
    x, y = problem(700, 5)
    kernels = []

    def referee(kernel):
        kernels.append(kernel)
        return [-1e4, 0.0, -0.5, -1.0][len(kernels) - 1]

    kernel, record = searched(x, y, max_rows=200, referee=referee)
    assert record.n_subsets == 3 and record.evidences[0] == -1e4 and record.agreed
    np.testing.assert_array_equal(kernel.length_scales, kernels[1].length_scales)


def test_two_subsets_that_agree_are_enough_and_few_rows_need_one():
    x, y = problem(700, 5)
    assert searched(x, y, max_rows=200, referee=lambda kernel: 0.0)[1].n_subsets == 2
    assert searched(x, y, max_rows=400, referee=lambda kernel: 0.0)[1].n_subsets == 1


def test_users_are_warned_where_the_best_was_found_once():
    x, y = problem(700, 5)
    values = iter([-1e4, -2e4, 0.0, -3e4])
    with pytest.warns(HyperparameterSearchWarning, match="raise max_hyperparameter_rows"):
        _, record = searched(x, y, max_rows=300, referee=lambda kernel: next(values))
    assert not record.agreed and record.disagreement == pytest.approx(1e4 / 700)
    assert "differ by 14 nats a row" in repr(record)


def test_the_mean_of_kernels_is_geometric():
    low, high = (KernelHyperparameters(a, a, np.full(3, a), a, a, a, 2, 2.5) for a in (0.1, 10.0))
    mean = geometric_mean([low, high])
    np.testing.assert_allclose(mean.length_scales, np.ones(3))
    np.testing.assert_allclose(mean.amplitudes, KernelHyperparameters(1, 1, np.ones(3), 1, 1, 1, 2).amplitudes)
    assert mean.noise_variance == pytest.approx(1.0) and mean.smoothness == 2.5


@pytest.mark.slow
def test_the_search_is_kept_with_the_model_and_in_files(tmp_path):
    x, y = products(600, 24, 0)
    x = np.hstack([np.ones((600, 1)), x])  # a constant column is not screened
    model = DirectRegressor(n_basis_functions=40, max_hyperparameter_rows=250, random_state=0).fit(x, y[:, 0])
    record = model.search_
    assert record.columns.tolist() == list(range(1, 25)) and set(record.relevant) <= {4, 8, 12, 21}
    assert record.n_subsets >= 2 and len(record.evidences) in (record.n_subsets, record.n_subsets + 1)
    assert "columns screened in" in repr(record)
    model.save(tmp_path / "m.pydirect")
    again = load(tmp_path / "m.pydirect").search_
    assert repr(again) == repr(record)
    assert again.start_values.tobytes() == record.start_values.tobytes() and again.n_rows == record.n_rows
    assert DirectRegressor(features="linear").fit(x, y[:, 0]).search_ is None


def test_underflow_is_no_error():
    x, y = problem(120, 4)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel, _ = searched(100 * x, y)
    assert np.isfinite(kernel.amplitudes).all()


@pytest.mark.slow
def test_seeds_end_in_the_same_optimum():
    x, y = problem(1500, 16, seed=3)
    noise = []
    for seed in range(3):
        kernel, _ = searched(x, y, seed, max_rows=400, referee=None)
        noise.append(kernel.noise_variance)
        assert set(np.argsort(kernel.length_scales)[:2]) == {1, 3}
    assert max(noise) < 0.1
