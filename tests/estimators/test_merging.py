"""Models of one feature map add: the sum is the model of all rows."""

import copy

import numpy as np
import pytest

from pydirect import DirectClassifier, DirectRegressor, Fourier, load, merge_models


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 100 + 5 * (np.sin(3 * X[:, 0]) + X[:, 1]) + 0.5 * rng.standard_normal(n)


def with_map(**options):
    model = DirectRegressor(Fourier(length_scale=1.0), 30, **options)
    return model.fit_features([[-1.0, -1.0], [1.0, 1.0]])


def sites(X, y, n_sites=3, **options):
    shared = with_map(**options)
    return [copy.deepcopy(shared).partial_fit(X[k::n_sites], y[k::n_sites]) for k in range(n_sites)]


def assert_same_model(found, expected, X):
    assert found.total_weight_ == pytest.approx(expected.total_weight_, rel=1e-12)
    for a, b in zip(found.predict(X, return_std=True), expected.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert found.elbo_ == pytest.approx(expected.elbo_, rel=1e-9)


@pytest.mark.parametrize("several", [False, True])
def test_merged_models_are_the_model_of_all_rows(several):
    X, y = rows()
    y = np.stack([y, -(y**2)], axis=1) if several else y
    models = sites(X, y)
    before = models[0].predict(X)
    assert_same_model(merge_models(models), with_map().partial_fit(X, y), X)
    np.testing.assert_array_equal(models[0].predict(X), before)


def test_models_from_files_merge_to_the_same_bits_and_go_on(tmp_path):
    X, y = rows()
    models = sites(X, y)
    for k, model in enumerate(models):
        model.save(tmp_path / f"site{k}")
    read = [load(tmp_path / f"site{k}") for k in range(3)]
    np.testing.assert_array_equal(merge_models(read).predict(X), merge_models(models).predict(X))
    assert read[0].partial_fit(X[1::3], y[1::3]).total_weight_ == 160


def test_a_merged_model_forgets_a_site():
    X, y = rows()
    merged = merge_models(sites(X, y))
    left = np.arange(len(X)) % 3 != 0
    assert_same_model(merged.forget(X[::3], y[::3]), with_map().partial_fit(X[left], y[left]), X)


def test_models_that_do_not_belong_together_are_refused():
    X, y = rows()
    models = sites(X, y)
    other = DirectRegressor(Fourier(length_scale=2.0), 30).fit_features([[-1.0, -1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match=r"one feature map, .* but model 1 has another"):
        merge_models([models[0], other.partial_fit(X, y)])
    with pytest.raises(ValueError, match="call fit_features before partial_fit"):
        merge_models([models[0], DirectRegressor().partial_fit(X[:20], y[:20])])
    with pytest.raises(ValueError, match="must keep sums over rows"):
        merge_models([models[0], DirectRegressor("linear").fit(X, y)])
    with pytest.raises(TypeError, match="got DirectClassifier"):
        merge_models([models[0], DirectClassifier()])
    with pytest.raises(ValueError, match="at least one"):
        merge_models([])
