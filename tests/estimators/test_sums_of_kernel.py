"""Regressors sum kernel functions where that is accurate enough for the noise, and whitened rows elsewhere."""

import warnings

import numpy as np
import pytest

from pydirect import DirectRegressor, Nystroem
from pydirect.estimators import regression
from pydirect.estimators.direct_regressor import FeatureMapWarning
from pydirect.features import maps

OPTIONS = {"features": Nystroem(length_scale=1.0), "n_basis_functions": 150, "noise": "constant", "local": False}


def plane(noise, n=1200):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n, 2))
    return x, np.sin(2 * x[:, 0]) * x[:, 1] + noise * rng.standard_normal(n)


def fitted(noise, **options):
    return DirectRegressor(**OPTIONS | options).fit(*plane(noise))


def test_predictions_move_by_less_than_a_thousandth_of_their_deviation(monkeypatch):
    model, (x, _) = fitted(0.3), plane(0.0)
    assert model.features_.sums_of_kernel
    monkeypatch.setattr(maps, "LARGEST_ROUNDING", 0.0)
    plain = fitted(0.3)
    assert not plain.features_.sums_of_kernel
    (mean, sd), (expected, expected_sd) = model.predict(x, return_std=True), plain.predict(x, return_std=True)
    assert np.abs(mean - expected).max() < 1e-3 * expected_sd.min()
    np.testing.assert_allclose(sd, expected_sd, rtol=1e-3)
    assert model.elbo_ == pytest.approx(plain.elbo_, abs=1e-2)


def test_rows_are_whitened_where_the_noise_is_less_than_the_kernel_expected(monkeypatch):
    model = fitted(0.0, n_basis_functions=400, features=Nystroem(length_scale=8.0))
    assert not model.features_.sums_of_kernel
    monkeypatch.setattr(maps, "LARGEST_ROUNDING", 0.0)
    plain = fitted(0.0, n_basis_functions=400, features=Nystroem(length_scale=8.0))
    assert model.elbo_ == pytest.approx(plain.elbo_, rel=1e-9)


def test_a_stream_whose_sums_lose_digits_warns(monkeypatch):
    x, y = plane(0.0)
    rows = (x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeatureMapWarning)
        DirectRegressor(**OPTIONS).fit_stream([rows])
    monkeypatch.setattr("pydirect.features.basis.LEAST_NOISE", 1e6)
    with pytest.warns(FeatureMapWarning, match="have lost digits"):
        DirectRegressor(**OPTIONS | {"features": Nystroem(length_scale=8.0)}).fit_stream([rows])


@pytest.fixture
def collected(monkeypatch):
    """Return a list that grows by the block type of every pass over the rows."""
    found, collect = [], regression.collect_statistics

    def watched(*args, **options):
        found.append(options["block_dtype"])
        return collect(*args, **options)

    monkeypatch.setattr(regression, "collect_statistics", watched)
    return found


@pytest.mark.parametrize(("dtype", "n_passes"), [("float64", 2), ("float32", 1)])
def test_rows_are_summed_again_only_where_kernel_functions_were_summed(collected, dtype, n_passes):
    model = DirectRegressor(
        **OPTIONS | {"noise": 1e-10, "features": Nystroem(length_scale=1.0, block_dtype=dtype)}
    ).fit(*plane(0.3))
    assert collected == [dtype] * n_passes
    assert "Sums over rows" not in model.summary()


def test_an_interrupted_fit_is_not_begun_again(collected, monkeypatch):
    def interrupted(*stages):
        model = infer(*stages)
        model.posteriors[0].outcome.interrupted = True
        return model

    infer = regression.infer
    monkeypatch.setattr(regression, "infer", interrupted)
    DirectRegressor(**OPTIONS | {"noise": 1e-10}).fit(*plane(0.3))
    assert collected == ["float64"]
