import numpy as np
import pytest

from pydirect import DirectRegressor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((120, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(120)


def regressor(**options):
    return DirectRegressor(**{"features": "linear", "basis": "raw", "noise": 0.5, **options})


@pytest.mark.parametrize("keep_factor", [False, True])
def test_cumulants_begin_with_the_predicted_mean_and_variance(keep_factor):
    model = regressor(keep_factor=keep_factor).fit(X, Y)
    mean, std = model.predict(X, return_std=True)
    cumulants = model.predict_cumulants(X)
    np.testing.assert_allclose(cumulants[0], mean, rtol=1e-9)
    np.testing.assert_allclose(cumulants[1], std**2, rtol=1e-9)


def test_one_draw_has_no_variance_to_predict():
    with pytest.raises(ValueError, match="n_draws must be at least 2, got 1"):
        regressor(n_draws=1).fit(X, Y)
