"""Passes over labelled rows: the sums and the bound of rows in memory."""

import threading

import numpy as np
import pytest

from pydirect.logistic.bound import jaakkola_bound
from pydirect.logistic.gaussian import FullGaussian
from pydirect.logistic.passes import RowPasses, SumParameters
from pydirect.logistic.rows import LabelledRows
from pydirect.statistics.gaussian import IdentityFeatures
from pydirect.streams.rows import Rows


def test_a_pass_has_the_sums_and_the_bound_of_rows_in_memory():
    rng = np.random.default_rng(1)
    phi, root = rng.standard_normal((90, 5)), 0.3 * np.tril(rng.standard_normal((5, 5))).T
    latent = FullGaussian(root, rng.standard_normal(5))
    t, weight = np.where(rng.random((90, 2)) > 0.4, 1.0, -1.0), rng.uniform(0.5, 2.0, 90)
    offset = np.array([0.3, -0.7])
    cuts = [Rows(phi[i], t[i], weight[i]) for i in np.array_split(np.arange(90), 7)]
    for n_threads in (1, 3):
        passes = RowPasses(IdentityFeatures(5), lambda: iter(cuts), offset, n_threads)
        first, second = passes.evaluate([None, latent])
        assert first is None
        rows = LabelledRows.from_arrays(phi, t[:, 1], weight, offset=-0.7)
        mean, variance = rows.moments(latent)
        expected = rows.weighted_statistics(np.sqrt(mean**2 + variance))
        np.testing.assert_allclose(second.parameters.sums.A, expected.A, rtol=0, atol=1e-12 * np.abs(expected.A).max())
        np.testing.assert_allclose(second.parameters.sums.c, expected.c, rtol=0, atol=1e-12 * np.abs(expected.c).max())
        np.testing.assert_allclose(second.parameters.sums.yty, expected.yty, rtol=1e-12)
        assert second.log_likelihood == pytest.approx(jaakkola_bound(t[:, 1], mean, variance, weight), rel=1e-12)


def test_there_is_no_pass_after_an_interruption():
    stop = threading.Event()
    stop.set()
    passes = RowPasses(IdentityFeatures(2), lambda: pytest.fail("a pass was made"), np.zeros(1), 1, stop)
    with pytest.raises(KeyboardInterrupt):
        passes.evaluate([FullGaussian(np.eye(2), np.zeros(2))])


@pytest.mark.unperturbed
def test_coordinates_of_sums_are_those_that_they_move_to(make_rows):
    sums = make_rows().weighted_statistics(np.ones(12))
    parameters = SumParameters(sums)
    moved = parameters.moved(2 * parameters.coordinates).regression()
    np.testing.assert_array_equal(moved.A, 2 * sums.A)
    np.testing.assert_array_equal(moved.c, 2 * sums.c)
