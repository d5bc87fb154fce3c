"""Student-t noise: outliers hardly move the mean, and nothing is lost without them."""

import numpy as np
import pytest

from pydirect import DirectRegressor, DirectSearchCV

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((250, 2)), RNG.standard_normal((300, 2))
TRUTH, NEW_TRUTH = (np.sin(2 * x[:, 0]) + x[:, 1] for x in (X, NEW))
CLEAN = TRUTH + 0.2 * RNG.standard_normal(250)
OUTLIERS = np.arange(0, 250, 9)
DIRTY = CLEAN.copy()
DIRTY[OUTLIERS] += 5 * RNG.standard_normal(len(OUTLIERS))


def fitted(y, noise="student_t", x=X, **parameters):
    return DirectRegressor(n_basis_functions=80, noise=noise, **parameters).fit(x, y)


def error(model):
    return np.sqrt(np.mean((model.predict(NEW) - NEW_TRUTH) ** 2))


@pytest.fixture(scope="module")
def model():
    return fitted(DIRTY)


def test_outliers_hardly_move_the_mean(model):
    assert error(model) < 0.6 * error(fitted(DIRTY, "constant"))
    assert error(model) < 1.6 * error(fitted(CLEAN, "constant"))


@pytest.mark.parametrize("size", [1e2, 1e4, 1e7])
def test_a_gross_outlier_is_one_of_any_size(size):
    gross = CLEAN.copy()
    gross[7] += size
    assert error(fitted(gross)) < 1.2 * error(fitted(CLEAN))


def test_new_rows_with_outliers_are_likelier(model):
    y = NEW_TRUTH + 0.2 * RNG.standard_normal(300)
    y[::10] += 5 * RNG.standard_normal(30)
    assert (
        model.log_predictive_density(NEW, y).mean()
        > fitted(DIRTY, "constant").log_predictive_density(NEW, y).mean() + 0.3
    )
    assert model.noise_model_.choices == ("student_t",) and model.noise_choice_["student_t"] > -2


def test_every_output_has_its_own_outliers():
    both = fitted(np.c_[DIRTY, 10 * CLEAN])
    np.testing.assert_allclose(both.predict(NEW)[:, 1] / 10, NEW_TRUTH, atol=0.6)
    assert np.sqrt(np.mean((both.predict(NEW)[:, 0] - NEW_TRUTH) ** 2)) < 0.6 * error(fitted(DIRTY, "constant"))


def test_features_are_learned_where_every_row_has_an_outlier_in_some_output():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 3))
    Y = np.sin(2 * X[:, [0]]) + 0.1 * rng.standard_normal((200, 30))
    Y[rng.random(Y.shape) < 0.12] += 20
    model = DirectRegressor(noise="student_t", n_basis_functions=50).fit(X, Y)
    assert (np.abs(model.predict(X) - np.sin(2 * X[:, [0]])) < 0.2).mean() > 0.95


def test_sums_over_rows_and_the_raw_basis_are_refused():
    with pytest.raises(ValueError, match="needs the rows again"):
        DirectRegressor(noise="student_t").partial_fit(X, DIRTY)
    with pytest.raises(ValueError, match="needs the rows again"):
        DirectSearchCV(DirectRegressor(noise="student_t"), {"n_basis_functions": [10]}).fit(X, DIRTY)
    with pytest.raises(ValueError, match="needs posterior='gaussian'"):
        fitted(DIRTY, posterior="sequential")
