import os
import subprocess
import sys

import numpy as np
import pytest

from pydirect import DirectRegressor, Nystroem, load
from pydirect.features.kernel import SQUARED_EXPONENTIAL, KernelHyperparameters
from pydirect.features.maps import NystroemFeatures
from pydirect.features.marginal_likelihood import MarginalLikelihood, Referee
from pydirect.features.search import KernelRows, search_kernel

from .test_screen import products


def problem(n, d, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    y = np.sin(2 * x[:, 1] * x[:, 3]) + 0.1 * rng.standard_normal(n)
    return x, ((y - y.mean()) / y.std())[:, None]


def searched(x, y, seed=0, **options):
    return search_kernel(KernelRows(x, y, np.ones(len(x)), x.shape[1]), np.random.default_rng(seed), **options)


def test_columns_that_matter_only_together_are_found_on_few_rows():
    x, y = problem(500, 16)
    kernel, record = searched(x, y)
    assert record.relevant.tolist() == [1, 3] and record.starts == ("long", "short", "screened")
    assert record.nearest_starts == () and record.nearest_values.size == 0
    others = np.delete(kernel.length_scales, [1, 3])
    assert kernel.length_scales[[1, 3]].max() < 0.5 * others.min()
    assert kernel.noise_variance < 0.2
    assert record.start_values.shape == (3,) and record.smoothness_values.shape == (3,)
    assert record.n_rows == (256, 500, 500) and record.n_evaluations == kernel.n_evaluations > 20


@pytest.mark.slow
def test_a_function_that_varies_fast_is_found():
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, (1000, 2))
    y = np.sin(6 * x[:, :1]) * np.cos(6 * x[:, 1:]) + 0.1 * rng.standard_normal((1000, 1))
    kernel, _ = searched(x / x.std(axis=0), y / y.std())
    assert kernel.noise_variance < 0.2 and kernel.length_scales.max() < 1.0


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_the_smoothness_is_that_of_the_function(smoothness):
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, (300, 4))
    truth = KernelHyperparameters(1e-3, 1.0, np.array([1.0, 2.0, 50.0, 50.0]), 1e-5, 3.0, 1e-3, 4, smoothness)
    y = np.linalg.cholesky(truth.covariance(x, x) + 3e-5 * np.eye(300)) @ rng.standard_normal((300, 1))
    kernel, record = searched(x, (y - y.mean()) / y.std())
    assert kernel.smoothness == record.smoothness == max(smoothness, 1.5)
    rough, _, smooth = record.smoothness_values[:3]
    assert (smooth > rough) == (smoothness > 1)  # the exponential part stands for roughness as well


@pytest.mark.parametrize("n", [300, 900])  # by exact evidence, and by that of nearest preceding rows
def test_a_function_with_all_derivatives_has_the_squared_exponential(n):
    x = np.random.default_rng(2).uniform(-3, 3, (n, 3))
    y = np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])
    kernel, record = searched(x / x.std(axis=0), ((y - y.mean()) / y.std())[:, None])
    assert kernel.smoothness == SQUARED_EXPONENTIAL
    assert np.argmax(record.smoothness_values) == 3 == len(record.smoothness_values) - 1


def towns(n, seed):
    """Rows of towns of various sizes, a smooth function of the place, and columns with effects of their own."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    places, sizes = fixed.uniform(0, 10, (300, 2)), fixed.gamma(1.0, size=300) + 0.1
    frequencies, phases = 4 * fixed.standard_normal((2, 200)), fixed.uniform(0, 2 * np.pi, 200)
    place = places[rng.choice(300, n, p=sizes / sizes.sum())] + 0.15 * rng.standard_normal((n, 2))
    z = rng.standard_normal((n, 6))
    y = 0.7 * z[:, 0] + 0.4 * np.tanh(z[:, 1]) + 0.05 * np.cos(place @ frequencies + phases).sum(axis=1)
    x = np.c_[place[:, 0], 0.5 * place[:, 1] - 0.8 * place[:, 0], z]
    y += 0.35 * rng.standard_normal(n)
    return (x - x.mean(axis=0)) / x.std(axis=0), ((y - y.mean()) / y.std())[:, None]


def test_many_rows_are_searched_by_nearest_preceding_evidence_from_where_exact_evidence_led():
    x, y = problem(700, 5)
    kernel, record = searched(x, y, max_rows=200)
    assert record.nearest_starts == ("few rows", "near", "short", "screened", "pair")
    assert len(record.nearest_values) == 5 and record.n_rows == (200, 200, 700)
    assert "nearest-preceding" in repr(record) and set(np.argsort(kernel.length_scales)[:2]) == {1, 3}


def test_what_few_rows_take_for_noise_is_found_by_many():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (2000, 8))
    y = np.sin(1.5 * x @ rng.standard_normal((8, 8)) + np.arange(8)).sum(axis=1, keepdims=True)
    y += 0.15 * rng.standard_normal(y.shape)
    kernel, record = searched(x / x.std(axis=0), (y - y.mean()) / y.std())
    assert record.nearest_starts[int(record.nearest_values.argmax())] in ("short", "screened")
    assert kernel.ard_amplitude > 3 * kernel.isotropic_amplitude and kernel.length_scales.max() < 5


@pytest.mark.slow
def test_lines_of_many_categories_are_found():
    rng = np.random.default_rng(2)
    code, time = np.divmod(rng.permutation(960)[:700], 8)
    x = np.c_[np.eye(120)[code] - 1 / 120, (time - 3.5) / 2.3]
    level, slope = rng.standard_normal((2, 120, 1))
    y = level[code] + 0.3 * slope[code] * x[:, -1:] + 0.05 * rng.standard_normal((700, 1))
    rows = KernelRows(x, y, np.ones(700), 121, np.r_[np.zeros(120, np.intp), 1], forms=np.arange(121))
    assert len(rows.narrowed(np.arange(121.0))[0].seen) == 121
    assert search_kernel(rows, rng)[0].noise_variance < 0.01  # it is .0025


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_short_length_scales_of_coordinates_are_found(seed):
    x, y = towns(3000, seed)
    kernel, record = searched(x, y, seed)
    assert "near" in record.nearest_starts
    assert kernel.length_scales[:2].max() < 0.15 and kernel.length_scales[2:].min() > 1.0


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("rough", [False, True])
def test_with_all_rows_as_landmarks_the_referee_knows_the_evidence(rough, precise):
    x, y = problem(150, 4)
    rng, weight = np.random.default_rng(1), np.random.default_rng(2).uniform(0.5, 2.0, 150)
    copies = np.random.default_rng(3).uniform(0.5, 2.0, 150) if precise else None
    scales, smoothness = (np.full(4, 0.5), 0.5) if rough else (np.full(4, 2.0), 2.5)
    kernel = KernelHyperparameters(0.1, 1.0, scales, 0.1, 2.0, 0.3, 4, smoothness)
    likelihood = MarginalLikelihood(x, y, weight, 4, copies=copies).at(smoothness)
    theta = np.log([0.1, 1.0, *scales, 0.1, 2.0, 0.3])
    expected = likelihood.function.penalty(theta)[0] - likelihood(theta)[0]
    referee = Referee(x, y, weight, rng, copies=copies)
    phi = NystroemFeatures.at(referee._rows[0], kernel).transform(x)
    assert referee.log_evidence(phi, np.zeros(150), 0.1) == pytest.approx(expected, abs=1e-3)
    noise = [0.1 * 1.6**step for step in range(-7, 8)]
    largest = max(referee.log_evidence(phi, np.zeros(150), each) for each in noise)
    assert referee(kernel) == pytest.approx(largest, abs=1e-3)


@pytest.mark.slow
def test_the_search_is_kept_with_the_model_and_in_files(tmp_path):
    x, y = products(600, 24, 0)
    x = np.hstack([np.ones((600, 1)), x])  # a constant column is not screened
    features = Nystroem(max_search_rows=250)
    model = DirectRegressor(features=features, n_basis_functions=40, random_state=0).fit(x, y[:, 0])
    record = model.search_
    assert record.columns.tolist() == list(range(1, 25)) and set(record.relevant) <= {4, 8, 12, 21}
    assert "pair" in record.nearest_starts
    assert "columns screened in" in repr(record)
    model.save(tmp_path / "m.pydirect")
    again = load(tmp_path / "m.pydirect").search_
    assert repr(again) == repr(record)
    assert again.start_values.tobytes() == record.start_values.tobytes() and again.n_rows == record.n_rows
    assert DirectRegressor(features="linear").fit(x, y[:, 0]).search_ is None


FIT = """
import numpy as np
from pydirect import DirectRegressor
rng = np.random.default_rng(0)
x = rng.standard_normal((700, 6))
y = np.sin(x.sum(axis=1)) + 0.3 * rng.standard_normal(700)
basis = DirectRegressor(noise="constant", local=False).fit(x, y).model_.basis
print([np.asarray(each).tolist() for each in (*vars(basis.hyperparameters).values(), basis.map.landmarks)])
"""


@pytest.mark.slow
def test_kernel_and_landmarks_have_the_same_bits_under_every_kernel_of_blas():
    found = {
        subprocess.run(
            [sys.executable, "-c", FIT],
            env=os.environ | {"OPENBLAS_CORETYPE": core},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for core in ("Nehalem", "Haswell")
    }
    assert len(found) == 1
