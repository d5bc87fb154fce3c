"""Passes over labelled rows: the sums and the bound of rows in memory."""

import threading

import numpy as np
import pytest

from pydirect.logistic import VariancePrior
from pydirect.logistic.gaussian import FullGaussian
from pydirect.logistic.passes import RowPasses
from pydirect.logistic.start import ascend_rows, ascend_stream
from pydirect.statistics.gaussian import IdentityFeatures
from pydirect.streams.rows import Rows


def passes_over(rows, n_threads=1, n_cuts=7, stop=None):
    cuts = [Rows(rows.x[i], rows.t[i], rows.weight[i]) for i in np.array_split(np.arange(rows.n_samples), n_cuts)]
    stop = threading.Event() if stop is None else stop
    return RowPasses(IdentityFeatures(rows.n_weights), lambda: iter(cuts), rows.offset, n_threads, stop)


@pytest.mark.parametrize("n_functions", [1, 3])
def test_a_pass_has_the_sums_and_the_bound_of_rows_in_memory(make_rows, n_functions):
    rng = np.random.default_rng(1)
    rows = make_rows(30, 4, n_functions=n_functions)
    latent = FullGaussian(0.3 * np.triu(rng.standard_normal((4, 4))), rng.standard_normal((4, n_functions)))
    weights, expected = rng.standard_normal((4, n_functions, 3)), rows.evaluate(latent)
    bits = []
    for n_threads in (1, 3):
        passes = passes_over(rows, n_threads)
        found = passes.evaluate(latent)
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-7)
        np.testing.assert_allclose(found.gram, expected.gram, rtol=0, atol=1e-7 * np.abs(expected.gram).max())
        np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(passes.log_likelihoods(weights), rows.log_likelihoods(weights), rtol=1e-12)
        bits.append((found.log_likelihood, found.gram.tobytes(), found.gradient.tobytes()))
    assert bits[0] == bits[1], "the number of threads changes no bit"


@pytest.mark.parametrize(("n", "n_functions"), [(60, 1), (15, 3)])
def test_passes_lead_to_the_bound_of_rows_in_memory(to_the_end, make_rows, n, n_functions):
    rows, prior = make_rows(n, 3, n_functions=n_functions), VariancePrior(1.0, 1.5)
    held = ascend_rows(rows, prior, max_iter=1000, stop=threading.Event())
    streamed = ascend_stream(passes_over(rows), rows.sample(n // 2), prior, 1000, threading.Event())
    assert streamed.converged and held.converged
    assert streamed.best.bound == pytest.approx(held.best.bound, abs=0.01)
    one, other = (rows.moments(ascent.best.solution.posterior) for ascent in (held, streamed))
    np.testing.assert_allclose(one[0], other[0], atol=0.05)
    np.testing.assert_allclose(one[1], other[1], rtol=0.05)


def test_there_is_no_pass_after_an_interruption():
    stop = threading.Event()
    stop.set()
    passes = RowPasses(IdentityFeatures(2), lambda: pytest.fail("a pass was made"), np.zeros(1), 1, stop)
    with pytest.raises(KeyboardInterrupt):
        passes.evaluate(FullGaussian(np.eye(2), np.zeros((2, 1))))


def test_an_interruption_before_any_pass_is_passed_on(make_rows):
    rows, stop = make_rows(20, 2, likelihood="jaakkola"), threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        ascend_stream(passes_over(rows, stop=stop), rows, VariancePrior(1.0, 1.5), 1000, stop)
