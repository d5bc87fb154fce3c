"""Labelled rows in memory: what the bound's regression sees of them."""

import numpy as np
import pytest

from pydirect.logistic import LabelledRows
from pydirect.logistic.bound import jaakkola_lambda


def test_pseudo_regression_has_the_statistics_of_the_bound(make_rows):
    rows, xi = make_rows(), np.linspace(0.1, 4.0, 12)
    statistics = rows.weighted_statistics(xi)
    lam = jaakkola_lambda(xi) * rows.weight
    np.testing.assert_allclose(statistics.A, (rows.x * (2 * lam)[:, None]).T @ rows.x, rtol=1e-12)
    c = rows.x.T @ (0.5 * rows.weight * rows.t - 2 * lam * rows.offset)
    np.testing.assert_allclose(statistics.c[:, 0], c, rtol=1e-10, atol=1e-12)


def test_labels_must_be_signs():
    with pytest.raises(ValueError, match=r"t must be -1 or 1, got 0\.0"):
        LabelledRows.from_arrays([[1.0], [2.0]], [0, 1])
