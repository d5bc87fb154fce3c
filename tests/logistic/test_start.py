"""Where the ascent starts: samples and batches of the rows lead to the bound of all of them."""

from threading import Event

import numpy as np
import pytest

from pydirect.logistic import fit_logistic_decorrelated, start
from pydirect.logistic.bound import best_log_xi
from pydirect.logistic.gaussian import FullGaussian, VariancePrior
from pydirect.logistic.rows import RowParameters


def test_a_start_from_some_of_the_rows_leads_to_the_same_fit(make_rows, monkeypatch):
    rows = make_rows(600, 6)
    whole = fit_logistic_decorrelated(rows)
    monkeypatch.setattr(start, "START_ROWS", 100)
    part = fit_logistic_decorrelated(rows)
    assert part.posterior.n_iter < whole.posterior.n_iter
    assert part.posterior.elbo == pytest.approx(whole.posterior.elbo, abs=2e-3)
    np.testing.assert_allclose(part.posterior.coefficients, whole.posterior.coefficients, atol=0.02)


@pytest.mark.parametrize("batch_size", [1, 7, 50, 1000])
def test_batches_lead_to_the_bound_of_all_rows(make_rows, batch_size):
    rows = make_rows(200, 6)
    full, batches = (fit_logistic_decorrelated(rows, batch_size=size) for size in (None, batch_size))
    assert batches.posterior.elbo == pytest.approx(full.posterior.elbo, abs=2e-3)
    assert batches.posterior.converged


def test_a_batch_of_all_rows_is_a_full_step(make_rows):
    rows = make_rows(60, 4)
    found, log_variance = start.starting_point(
        rows, VariancePrior(1.0, 0.0), batch_size=rows.n_samples, max_iter=10, random_state=0, stop=Event()
    )
    old = RowParameters.at_one(rows).regression()
    [first] = rows.evaluate([FullGaussian.solve(old.A, old.c[:, 0], 1.0)])
    new, rate = first.parameters.regression(), 2.0**-start.STOCHASTIC_DECAY
    gram, c = ((1 - rate) * a + rate * b for a, b in ((old.A, new.A), (old.c[:, 0], new.c[:, 0])))
    expected = rows.moments(FullGaussian.solve(gram, c, 1.0))
    assert log_variance == 0.0
    np.testing.assert_allclose(found.log_xi, best_log_xi(*expected), rtol=1e-9)
