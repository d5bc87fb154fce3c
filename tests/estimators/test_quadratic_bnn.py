"""`QuadraticBNNRegressor`: scikit-learn's contract, predictions in every form, growing data, files."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import pydirect
from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor
from pydirect.quadratic import QuadraticNetwork

FAST = {"hidden_layer_sizes": (3,), "n_restarts": 1, "n_regrids": 1, "max_iter": 60}
RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((80, 3)), RNG.standard_normal((25, 3))
Y = 3 + X[:, 0] * X[:, 1] - X[:, 2] + 0.1 * RNG.standard_normal(80)
TWO = np.c_[Y, 50 - 10 * X[:, 0] ** 2]


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def fit(x=X, y=Y, **options):
    return QuadraticBNNRegressor(**FAST | options).fit(x, y)


@pytest.fixture(scope="module")
def fitted():
    return QuadraticBNNRegressor((6,), n_restarts=2, n_regrids=2).fit(X, Y)


def test_a_quadratic_function_is_learned(fitted):
    truth = 3 + NEW[:, 0] * NEW[:, 1] - NEW[:, 2]
    mean, std = fitted.predict(NEW, return_std=True)
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.2
    assert np.mean(np.abs(truth - mean) < 2 * std) > 0.8


def test_units_of_inputs_and_targets_do_not_matter():
    scale, shift = np.array([1e6, 1e-6, 3]), np.array([5, 0, -1e3])
    model, other = fit(), fit(X * scale + shift, 1e9 * Y - 7e9)
    # Training is not convex and ends early: rounding shows.
    np.testing.assert_allclose(other.predict(NEW * scale + shift) / 1e9, model.predict(NEW) - 7, atol=0.1)
    assert other.elbo_ == pytest.approx(model.elbo_ - 80 * np.log(1e9), abs=2.0)


def test_collinear_and_constant_columns_are_dropped():
    wide = np.c_[X, X[:, 0] + X[:, 1], np.full(80, 7.0), X[:, 2]]
    assert fit(wide).rotation_.n_outputs == 3
    assert fit(np.ones((30, 2)), RNG.standard_normal(30)).predict(np.ones((2, 2))).shape == (2,)


@pytest.mark.parametrize("fit_by", ["fit", "partial_fit", "fit_stream"])
def test_a_fit_that_did_not_converge_warns_where_it_was_called(fit_by):
    model = QuadraticBNNRegressor((2,), n_restarts=1, n_regrids=0, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="not converged after 1 iterations") as warned:
        getattr(model, fit_by)(X, Y)
    assert {w.filename for w in warned} == {__file__}
    assert not model.converged_


def test_without_bias_some_column_must_vary():
    with pytest.raises(ValueError, match="X must have a column that varies when bias=False"):
        fit(np.ones((20, 3)), np.arange(20.0), bias=False)


def test_an_interruption_ends_all_outputs(monkeypatch):
    original, calls = QuadraticNetwork.elbo_and_gradient, 0

    def interrupted(self, theta):
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return original(self, theta)

    monkeypatch.setattr(QuadraticNetwork, "elbo_and_gradient", interrupted)
    model = fit(y=np.c_[TWO, TWO])
    assert model.interrupted_
    assert not model.converged_
    assert calls < 40
    assert np.isfinite(model.predict(NEW)).all()


# --- data that grow


def test_partial_fit_agrees_with_fit():
    options = FAST | {"hidden_layer_sizes": (4,), "max_iter": 300, "n_regrids": 2, "n_restarts": 3}
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (600, 2))
    y = 2 + x[:, 0] * x[:, 1] + 0.05 * rng.standard_normal(600)
    whole = QuadraticBNNRegressor(**options).fit(x, y)
    grown = QuadraticBNNRegressor(**options)
    for rows in np.array_split(np.arange(600), 3):
        grown.partial_fit(x[rows], y[rows])
    assert grown.total_weight_ == pytest.approx(600)
    assert len(grown.coreset_.y) < 100
    np.testing.assert_allclose(grown.y_mean_, whole.y_mean_, rtol=1e-9)
    np.testing.assert_allclose(grown.y_scale_, whole.y_scale_, rtol=1e-9)
    truth = 2 + x[:, 0] * x[:, 1]
    for model in (whole, grown):
        assert np.sqrt(np.mean((model.predict(x) - truth) ** 2)) < 0.02


def test_posterior_on_the_coreset_has_the_elbo_of_all_rows():
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, (400, 2)), rng.standard_normal(400)
    model = QuadraticBNNRegressor(**FAST).partial_fit(x, y)
    f, variance = model.model_.latent_moments(x, with_variance=True)
    error = float(np.sum(((y - model.y_mean_) / model.y_scale_ - f[:, 0]) ** 2 + variance[:, 0]))
    on_coreset = model.model_.latent_moments(model.coreset_.x, with_variance=True)
    standardised = (model.coreset_.y - model.y_mean_) / model.y_scale_
    expected = model.coreset_.weight @ ((standardised - on_coreset[0][:, 0]) ** 2 + on_coreset[1][:, 0])
    assert error == pytest.approx(expected, rel=1e-9)


def test_partial_fit_refuses_networks_deeper_than_its_coreset():
    model = QuadraticBNNRegressor(**FAST).partial_fit(X[:, :2], Y)
    model.set_params(hidden_layer_sizes=(2, 2))
    with pytest.raises(ValueError, match="at most 1 widths, as before, got 2"):
        model.partial_fit(X[:, :2], Y)
    assert model.coreset_.n_samples == 80


def test_rows_of_a_failed_partial_fit_are_not_counted(monkeypatch):
    model = QuadraticBNNRegressor(**FAST).partial_fit(X, Y)
    with monkeypatch.context() as patch:
        patch.setattr(QuadraticBNNRegressor, "_train", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            model.partial_fit(X, Y)
    assert model.partial_fit(X, Y).total_weight_ == pytest.approx(160)


def test_rows_after_fit_are_added_to_those_of_the_fit(tmp_path):
    x, y = X[:15, :2], Y[:15]
    model = QuadraticBNNRegressor(**FAST).fit(x, y).partial_fit(x[:1], y[:1])
    assert model.coreset_.n_samples == 16
    np.testing.assert_allclose(np.sort(model.coreset_.y)[:3], np.sort(y)[:3], rtol=1e-12)
    many, two = QuadraticBNNRegressor(**FAST).fit(X[:, :2], Y), QuadraticBNNRegressor(**FAST).fit(x, TWO[:15])
    QuadraticBNNRegressor(**FAST).fit(x, y).save(tmp_path / "m")
    for lost in (many, two, pydirect.load(tmp_path / "m")):
        with pytest.raises(ValueError, match="the earlier rows must be known to go on"):
            lost.partial_fit(x, y)


def test_a_coreset_that_would_be_too_large_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="moments"):
        QuadraticBNNRegressor(**FAST | {"hidden_layer_sizes": (2, 2)}).partial_fit(
            rng.standard_normal((60_000, 8)), rng.standard_normal(60_000)
        )


# --- files


def predictions(model):
    parts = [*model.predict(NEW, return_std=True), *model.predict_interval(NEW), model.sample_y(NEW, 3)]
    return b"".join(np.ascontiguousarray(p).tobytes() for p in [*parts, np.array(model.elbo_)])


@pytest.mark.unperturbed
def test_partial_fit_of_a_loaded_model(tmp_path):
    model = QuadraticBNNRegressor(**FAST).partial_fit(X[:40], Y[:40])
    model.save(tmp_path / "m")
    loaded = pydirect.load(tmp_path / "m").partial_fit(X[40:], Y[40:])
    assert predictions(loaded) == predictions(model.partial_fit(X[40:], Y[40:]))
