"""Results have the same bits for any number of threads; the default number is what OpenMP says now."""

import os
import subprocess
import sys

import numpy as np
import pytest

from pydirect import _core
from pydirect._threads import MOST_THREADS, resolve_n_threads, single_blas_thread
from pydirect.direct.mean_field import fit_mean_field
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.optimize.quadratic import OPTIMIZERS
from pydirect.statistics.gaussian import GaussianStatistics

pytestmark = pytest.mark.filterwarnings("ignore::pydirect.NoiseGridWarning")

MANY = [2, 3]


@pytest.fixture(scope="module")
def wide():
    """Wider than every chunk of weights, so that threads have something to share."""
    rng = np.random.default_rng(0)
    b = 600
    phi = rng.standard_normal((b + 50, b)) / np.sqrt(b)
    levels = evenly_spaced_levels(9, 3.0)
    y = phi @ rng.standard_normal(b) + 0.3 * rng.standard_normal(b + 50)
    return GaussianStatistics.from_arrays(phi, y), levels, GaussianPrior().log_mass(levels), np.geomspace(0.01, 1.0, 5)


def assert_same_bits(function, n_threads):
    for one, many in zip(function(1), function(n_threads), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(many).tobytes()


@pytest.mark.parametrize("n_threads", MANY)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fit_has_the_same_bits_for_any_number_of_threads(wide, optimizer, n_threads):
    def fit(n):
        fitted = fit_mean_field(*wide, optimizer=optimizer, max_iter=20, n_threads=n)
        return fitted.q, fitted.noise.q, fitted.elbo_trace

    assert_same_bits(fit, n_threads)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fit_has_the_same_bits_at_every_level(wide, optimizer, at_every_level):
    def fit():
        fitted = fit_mean_field(*wide, optimizer=optimizer, max_iter=10, n_threads=2)
        return fitted.q, fitted.noise.q, fitted.elbo_trace

    at_every_level(fit)


@pytest.mark.parametrize("n_threads", MANY)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_accumulation_has_the_same_bits_for_any_number_of_threads(n_threads, dtype):
    block = np.random.default_rng(0).standard_normal((300, 300)).astype(dtype)

    def accumulate(n):
        total = np.ones((300, 300))
        _core.add_upper_triangle(block, total, n)
        _core.mirror_upper_triangle(total, n)
        return (total,)

    assert_same_bits(accumulate, n_threads)


@pytest.mark.parametrize("n_threads", MANY)
def test_row_moments_have_the_same_bits_for_any_number_of_threads(n_threads):
    rng = np.random.default_rng(0)
    rows, weight, spread = rng.standard_normal((500, 77)), rng.standard_normal(77), rng.random(77)

    def moments(n):
        mean, variance = np.empty((2, 500))
        _core.row_moments(rows, weight, spread, mean, variance, n)
        return mean, variance

    assert_same_bits(moments, n_threads)


def test_the_number_of_threads_is_the_argument_or_what_openmp_says():
    assert resolve_n_threads(3) == 3
    assert resolve_n_threads(None) == _core.default_threads() >= 1


@pytest.mark.skipif(not _core.build_config()["openmp"], reason="built without OpenMP")
def test_the_default_follows_threadpoolctl_at_every_call():
    from threadpoolctl import threadpool_limits

    before = resolve_n_threads(None)
    with threadpool_limits(limits=1, user_api="openmp"):
        assert resolve_n_threads(None) == 1
    assert resolve_n_threads(None) == before


@pytest.mark.skipif(not _core.build_config()["openmp"], reason="built without OpenMP")
@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_default_follows_the_environment(n_threads):
    code = "from pydirect import _core; print(_core.default_threads())"
    environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == n_threads


def blas_threads():
    from threadpoolctl import threadpool_info

    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture
def two_blas_threads():
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=2, user_api="blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_blas_is_limited_to_one_thread_inside_the_context(two_blas_threads):
    with single_blas_thread():
        assert set(blas_threads()) == {1}
        with single_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_the_limit_holds_for_a_blas_loaded_later():
    code = """
import numpy as np
from threadpoolctl import threadpool_info
from pydirect.statistics.gaussian import GaussianStatistics
GaussianStatistics.from_arrays(np.eye(3), np.ones(3))
from pydirect._threads import single_blas_thread
with single_blas_thread():
    print({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{1}"


def test_excessive_numbers_of_threads_are_capped():
    assert resolve_n_threads(1_000_000) == max(MOST_THREADS, os.cpu_count() or 1)
    assert resolve_n_threads(3) == 3
