import warnings

import numpy as np
import pytest

import pydirect
from pydirect import DirectClassifier, DirectRegressor, DirectSearchCV, Fourier, Sequential, fit_many
from pydirect.direct import CoarseLevelsWarning
from pydirect.quantized.program import IntegerArithmeticError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((120, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(120)


def regressor(noise=0.5, **options):
    return DirectRegressor("linear", posterior=Sequential(**options), noise=noise)


COARSE = {"noise": 1e-6, "level_scales": "shared", "n_levels": 3}


@pytest.mark.parametrize(
    "fit",
    [
        lambda: regressor(**COARSE).fit(X, Y),
        lambda: regressor(**COARSE).partial_fit(X, Y),
        lambda: regressor(**COARSE).fit_stream(X, Y),
        lambda: fit_many([regressor(**COARSE)], X, Y),
        lambda: DirectSearchCV(regressor(**COARSE), {"posterior__n_draws": [8, 16]}).fit(X, Y),
        lambda: DirectClassifier("linear", posterior=Sequential(levels=[-30.0, 30.0], level_scales="shared")).fit(
            X, Y > 0
        ),
    ],
    ids=["fit", "partial_fit", "fit_stream", "fit_many", "search", "classifier"],
)
def test_coarse_levels_are_told_at_the_users_line(fit):
    with pytest.warns(CoarseLevelsWarning, match="levels are coarse") as caught:
        fit()
    assert {warning.filename for warning in caught} == {__file__}


def test_the_noise_is_raised_to_what_levels_cannot_represent():
    """Targets without noise, of which single draws differ by a hundred times the noise that is found."""
    targets = np.column_stack([Y, -Y, X[:, 1]])
    with pytest.warns(CoarseLevelsWarning, match="noise variance was raised by a factor of"):
        model = DirectRegressor(
            features=Fourier(max_search_rows=100), posterior="sequential", n_basis_functions=60
        ).fit(X, targets)
    posterior, error = model.posterior_[2], targets[:, 2] - model.predict(X)[:, 2]
    assert posterior.noise_factor > 1e3 and posterior.gap < 5 * posterior.n_weights
    assert np.mean(error**2) < 2 * model.noise_variance_[2] < 0.05


def test_levels_move_to_posterior_means_where_data_determine_weights_to_a_small_fraction(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4))
    y = x @ [100.0, 200.0, 300.0, 400.0] + 0.1 * rng.standard_normal(300)
    model = DirectRegressor("linear", posterior="sequential").fit(
        x[:200], np.c_[y, x[:, 0] + rng.standard_normal(300)][:200]
    )
    strong, weak = model.posterior_
    assert strong.centres.any() and not weak.centres.size
    assert "about each weight's posterior mean" in model.summary().splitlines()[1]
    exact = DirectRegressor("linear").fit(x[:200], y[:200]).predict(x[200:])
    np.testing.assert_allclose(model.predict(x[200:])[:, 0], exact, atol=0.02)
    model.save(tmp_path / "m")
    loaded = pydirect.load(tmp_path / "m")
    for got, expected in zip(loaded.predict(x, return_std=True), model.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(got, expected)
    one = DirectRegressor("linear", posterior="sequential").fit(x[:200], y[:200])
    np.testing.assert_allclose(one.quantize(4, X=x).predict(x[200:]), exact, atol=0.2)
    with pytest.raises(IntegerArithmeticError, match="level_scales='own'"):
        one.quantize(4, X=x, arithmetic="integer")


def test_levels_stay_where_another_kind_was_asked_for():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4))
    y = x @ [100.0, 200.0, 300.0, 400.0] + 0.1 * rng.standard_normal(300)
    for options in ({"prior": "spike_and_slab"}, {"levels": [-2.0, -1.0, 0.0, 1.0, 2.0]}, {"level_scales": "own"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoarseLevelsWarning)
            model = DirectRegressor("linear", posterior=Sequential(**options)).fit(x, y)
        assert not model.posterior_.centres.size


@pytest.mark.parametrize("posterior", ["sequential", "mean_field"])
def test_noise_of_coarse_levels_stays_far_below_the_variance_of_the_targets(posterior):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5000, 4))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoarseLevelsWarning)
        model = DirectRegressor("fourier", n_basis_functions=300, posterior=posterior).fit(x, y)
    assert model.noise_variance_ < 0.25 * y.var()
    assert np.mean((y - model.predict(x)) ** 2) < 0.03 * y.var()
