"""Where the ascent starts: a step from zero weights, a sample of the rows, or an earlier fit."""

from dataclasses import replace
from threading import Event

import numpy as np
import pytest

from pydirect.logistic import fit_logistic_decorrelated, start
from pydirect.logistic.gaussian import VariancePrior
from pydirect.logistic.start import ascend_rows, starting_state, state_of


@pytest.mark.parametrize("likelihood", ["softmax", "jaakkola"])
def test_the_first_step_is_a_regression_on_the_labels(make_rows, likelihood):
    rows = replace(make_rows(20, 3, likelihood=likelihood), offset=np.zeros(1))
    state = starting_state(rows, 3, 1, VariancePrior(0.7, 1.5))
    gram = (rows.x * (0.25 * rows.weight)[:, None]).T @ rows.x
    c = rows.x.T @ (0.5 * rows.weight[:, None] * rows.t)
    assert state.log_variance == pytest.approx(np.log(0.7))
    np.testing.assert_allclose(state.gram, gram, rtol=1e-7)
    np.testing.assert_allclose(state.mean, np.linalg.solve(gram + np.eye(3) / 0.7, c), rtol=1e-6)


def test_the_first_step_of_several_classes_is_centred(make_rows):
    rows = replace(make_rows(9, 2, n_functions=3), offset=np.zeros(3))
    state = starting_state(rows, 2, 3, VariancePrior(0.7, 1.5))
    # Of three classes the precision of a contrast is 1/3, and residuals are 2/3 and −1/3.
    np.testing.assert_allclose(state.gram, (rows.x * (rows.weight / 3)[:, None]).T @ rows.x, rtol=1e-6)
    c = rows.x.T @ (rows.weight[:, None] * ((rows.t > 0) - 1 / 3))
    np.testing.assert_allclose(state.mean, np.linalg.solve(state.gram + np.eye(2) / 0.7, c), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("likelihood", ["jaakkola", "softmax"])
def test_a_start_from_some_of_the_rows_leads_to_the_same_fit(make_rows, monkeypatch, likelihood):
    n = 600 if likelihood == "jaakkola" else 120
    rows = make_rows(n, 4, likelihood=likelihood)
    whole = fit_logistic_decorrelated(rows)
    monkeypatch.setattr(start, "START_ROWS", n // 4)
    monkeypatch.setattr(start, "START_ROWS_PER_WEIGHT", 1)
    assert start.start_size(rows) == n // 4
    part = fit_logistic_decorrelated(rows)
    assert part.posterior.elbo == pytest.approx(whole.posterior.elbo, abs=0.01)
    np.testing.assert_allclose(part.posterior.coefficients, whole.posterior.coefficients, atol=0.03)


@pytest.mark.parametrize(("n", "n_functions"), [(40, 1), (12, 3)])
def test_a_fit_at_rest_is_its_own_start(make_rows, n, n_functions):
    rows, prior = make_rows(n, 2, n_functions=n_functions), VariancePrior(1.0, 1.5)
    fit = fit_logistic_decorrelated(rows, variance_prior=prior)
    state = state_of(rows, fit)
    mean = np.sqrt(fit.variance) * np.stack([posterior.coefficients for posterior in fit.posteriors], axis=1)
    assert state.mean.shape == (2, n_functions) and state.log_variance == pytest.approx(np.log(fit.variance))
    np.testing.assert_allclose(state.mean, mean, atol=0.01)


def test_an_interruption_before_there_is_a_posterior_is_passed_on(make_rows, monkeypatch):
    rows, stop = make_rows(40, 2, likelihood="jaakkola"), Event()
    stop.set()
    monkeypatch.setattr(start, "START_ROWS", 10)
    monkeypatch.setattr(start, "START_ROWS_PER_WEIGHT", 1)
    with pytest.raises(KeyboardInterrupt):
        ascend_rows(rows, VariancePrior(1.0, 1.5), max_iter=10, stop=stop)
