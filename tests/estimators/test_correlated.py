"""`CorrelatedRegressor`."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score

from pydirect import DirectRegressor
from pydirect.estimators import CorrelatedRegressor
from pydirect.fitted.predictor import factor_of_few_rows
from pydirect.linear.correlated import _Incomplete

SIGNAL, NOISE = np.array([[1.0, 0.7], [0.7, 1.0]]), 0.25 * np.array([[1.0, 0.9], [0.9, 1.0]])


def rows(n, seed):
    rng = np.random.default_rng(seed)
    x, frequencies = rng.uniform(0, 1, (n, 2)), 5 * rng.standard_normal((2, 30))
    weights = rng.multivariate_normal([0, 0], SIGNAL / 30, 60)
    f = np.hstack([np.cos(x @ frequencies), np.sin(x @ frequencies)]) @ weights
    return x, f, f + rng.multivariate_normal([0, 0], NOISE, n)


X, F, Y = rows(700, 1)
NEW = np.random.default_rng(0).uniform(0, 1, (20, 2))
GAPS = np.where((np.arange(700) < 200)[:, None] | np.array([True, False]), Y, np.nan)


def correlation(covariance):
    return covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])


def fitted(y=Y, **options):
    return CorrelatedRegressor(n_basis_functions=80, **options).fit(X, y)


def test_correlations_are_found_and_drawn():
    model = fitted()
    assert model.converged_ and model.log_evidence_ > 0.0 - 700 * 3
    assert correlation(model.noise_covariance_) == pytest.approx(0.9, abs=0.05)
    assert correlation(model.signal_covariance_) == pytest.approx(0.7, abs=0.2)
    np.testing.assert_allclose(model.noise_covariance_, NOISE, rtol=0.2)
    between, (mean, std) = model.predict_between_outputs(NEW), model.predict(NEW, return_std=True)
    np.testing.assert_allclose(np.sqrt(np.einsum("iaa->ia", between)), std, rtol=1e-8)
    drawn = model.sample_y(NEW, 8000)
    np.testing.assert_allclose(drawn.mean(axis=2), mean, atol=0.05)
    for row, covariance in zip(drawn, between, strict=True):
        np.testing.assert_allclose(np.cov(row), covariance, rtol=0.1)
    np.testing.assert_allclose(
        model.sample_y(NEW, 8000, noise=False).std(axis=2), model.predict_parts(NEW)[1], rtol=0.1
    )


def test_one_output_tells_of_another():
    model = fitted(GAPS)
    assert correlation(model.noise_covariance_) == pytest.approx(0.9, abs=0.1)
    alone = DirectRegressor(n_basis_functions=80, noise="constant", local=False, target_transform=None)
    error = np.abs(model.predict(X[200:])[:, 1] - F[200:, 1]).mean()
    assert error < 0.9 * np.abs(alone.fit(X[:200], Y[:200, 1]).predict(X[200:]) - F[200:, 1]).mean()
    lower, upper = model.predict_interval(X[200:], 0.9)
    assert 0.85 < np.mean((lower[:, 1] < Y[200:, 1]) & (Y[200:, 1] < upper[:, 1])) < 0.97


def test_gaps_are_left_out_of_densities_and_scores():
    model, known = fitted(GAPS), ~np.isnan(GAPS)
    density, complete = model.log_predictive_density(X, GAPS), model.log_predictive_density(X, Y)
    np.testing.assert_array_equal(density, np.where(known, complete, np.nan))
    mean, weight = model.predict(X), np.random.default_rng(3).uniform(1, 2, 700)
    for w in (None, weight):
        of_weight = [None if w is None else w[own] for own in known.T]
        each = [r2_score(Y[known[:, k], k], mean[known[:, k], k], sample_weight=of_weight[k]) for k in (0, 1)]
        assert model.score(X, GAPS, w) == pytest.approx(np.mean(each), rel=1e-12)
        assert model.score(X, Y, w) == pytest.approx(r2_score(Y, mean, sample_weight=w), rel=1e-12)
    with pytest.raises(ValueError, match="y must have 2 outputs"):
        model.score(X, GAPS[:, :1])


def test_intervals_of_few_rows_are_wider():
    few = CorrelatedRegressor(n_basis_functions=20).fit(X[:6], Y[:6])
    units = few.model_.units
    plain = replace(few.model_, units=replace(units, calibration=1.0, degrees=None)).interval(NEW, 0.9)
    lower, upper = few.predict_interval(NEW)
    np.testing.assert_allclose(upper - lower, factor_of_few_rows(6) * (plain[1] - plain[0]), rtol=1e-3)
    assert units.degrees == 5 and factor_of_few_rows(6) > 1.2


def test_uncorrelated_outputs_are_those_of_independent_fits():
    rng = np.random.default_rng(4)
    y = np.column_stack([np.sin(6 * X[:, 0]), np.cos(5 * X[:, 1])]) + 0.2 * rng.standard_normal((700, 2))
    model = CorrelatedRegressor(n_basis_functions=80).fit(X, y)
    other = DirectRegressor(n_basis_functions=80, noise="constant", local=False, target_transform=None).fit(X, y)
    for found, expected in zip(model.predict(NEW, return_std=True), other.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(found, expected, atol=0.03)


def test_complete_targets_have_small_factors_and_the_moments_of_all_directions():
    model = fitted()
    own = model.model_
    assert own.vectors.shape == (own.basis.n_weights,) * 2 and own.root.shape == (own.basis.n_weights, 2, 2)
    b = len(own.root)
    root = np.einsum("ij,jac->iajc", own.vectors, own.root).reshape(b, 2, 2 * b)
    dense = replace(own, root=root, vectors=None)
    np.testing.assert_allclose(own.between_outputs(NEW), dense.between_outputs(NEW), rtol=1e-10)
    np.testing.assert_allclose(own.latent_moments(NEW, True)[1], dense.latent_moments(NEW, True)[1], rtol=1e-10)
    draws = (each.latent_draws(NEW, 3, np.random.default_rng(0)) for each in (own, dense))
    np.testing.assert_allclose(*draws, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="directions"):
        replace(own, vectors=None).check()


def test_an_interrupted_fit_keeps_its_last_state(monkeypatch):
    class Interrupted(_Incomplete):
        calls = 0

        def __call__(self, signal, noise):
            self.calls += 1
            if self.calls == 4:
                raise KeyboardInterrupt
            return super().__call__(signal, noise)

    monkeypatch.setattr("pydirect.linear.correlated._Incomplete", Interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = fitted(GAPS)
    assert model.interrupted_ and not model.converged_ and model.n_iter_ == 3
    monkeypatch.undo()
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        same = fitted(GAPS, max_iter=3)
    np.testing.assert_array_equal(model.predict(NEW), same.predict(NEW))


def test_what_is_refused():
    with pytest.raises(ValueError, match="two axes"):
        fitted(Y[:, 0])
    with pytest.raises(ValueError, match="some of every output"):
        fitted(np.where([True, False], Y, np.nan))
    with pytest.raises(ValueError, match="finite"):
        fitted(np.where(np.arange(700)[:, None] == 3, np.inf, Y))
    with pytest.warns(ConvergenceWarning):
        constant = fitted(np.column_stack([Y[:, 0], np.ones(700)]), max_iter=5)
    np.testing.assert_allclose(constant.predict(NEW)[:, 1], 1.0)
    with pytest.raises(ValueError, match="at most 1250 where outputs are missing"):
        CorrelatedRegressor(n_basis_functions=1251).fit(X, GAPS)
    with pytest.raises(ValueError, match="return_cov"):
        fitted().predict(NEW, return_cov=True)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        fitted(max_iter=2)
