"""The factor of the precision that several classes share, by left-out labels."""

from threading import Event

import numpy as np
import pytest

from pydirect.logistic.gaussian import FullGaussian, VariancePrior
from pydirect.logistic.sharpness import FACTORS, sharpest
from pydirect.logistic.start import ascend_rows


@pytest.fixture(scope="module")
def rest(make_rows):
    rows = make_rows(60, 3, 1, 1.5, n_functions=4)
    return rows, ascend_rows(rows, VariancePrior(4.0, 0.0), max_iter=100, stop=Event())


def test_variances_are_those_of_a_sharper_posterior(rest):
    rows, ascent = rest
    state = ascent.best.solution.state
    for factor, found in zip(FACTORS, rows.sharpened_variances(state, FACTORS).T, strict=True):
        sharper = FullGaussian.solve(factor * state.gram, state.mean, 4.0)
        np.testing.assert_allclose(found, rows.moments(sharper)[1], rtol=1e-9)


def test_the_factor_is_the_best_of_all_by_left_out_labels(rest):
    rows, ascent = rest
    factor, left_out = sharpest(rows, ascent)
    solution = ascent.best.solution
    variances = rows.sharpened_variances(solution.state, FACTORS)
    each = rows.left_out_log_probabilities(solution.latent, variances / variances[:, :1])
    values = [rows.weight @ log_probability for log_probability in each]
    assert values[FACTORS.index(factor)] == max(values) == pytest.approx(rows.weight @ left_out)
    assert values[0] == pytest.approx(rows.weight @ next(rows.left_out_log_probabilities(solution.latent)))
