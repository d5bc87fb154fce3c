"""What every test of the package shares: hypothesis profiles, instruction-set levels, small regression problems."""

from __future__ import annotations

import os
import signal
import weakref
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings

from pydirect import _core
from pydirect.direct.mean_field import MeanFieldRegression
from pydirect.distributions.categorical import evenly_spaced_levels
from pydirect.distributions.priors import GaussianPrior
from pydirect.quadratic.coreset import NetworkCoreset
from pydirect.statistics import running as running_statistics
from pydirect.statistics.gaussian import GaussianStatistics

# Jobs in the background of a shell inherit an ignored Ctrl-C, which tests of interruptions need.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("default", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", parent=settings.get_profile("default"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def nudged(array, seed):
    """Move numbers by their last bit, at random but the same for the same array."""
    rng = np.random.default_rng([seed, zlib.crc32(np.ascontiguousarray(array).tobytes())])
    return array * (1 + np.finfo(float).eps * rng.integers(-1, 2, array.shape))


@pytest.fixture(scope="session", autouse=True)
def perturbation():
    """Sums over rows as another processor might round them, with PYDIRECT_TEST_PERTURBATION set to a seed.

    What is added up in the same way stays equal bit for bit; what is added up in two ways differs by a little more than
    it does here. Tests that compare two ways must hold all the same, and so must not compare local optima.
    """
    seed = os.environ.get("PYDIRECT_TEST_PERTURBATION")
    if seed is None:
        yield
        return
    originals = GaussianStatistics.__init__, NetworkCoreset.__init__
    shared = weakref.WeakValueDictionary()  # matrices that several statistics hold stay one

    def nudged_statistics(self, *arguments, **options):
        originals[0](self, *arguments, **options)
        self.c, self.yty = nudged(self.c, int(seed)), nudged(self.yty, int(seed))
        for name in ("gram", "rows"):
            matrix = getattr(self, name)
            if matrix is not None and shared.get(id(matrix)) is not matrix:
                moved = nudged(matrix, int(seed))
                if name == "gram":
                    moved = np.triu(moved) + np.triu(moved, 1).T
                moved = np.ascontiguousarray(moved)
                shared[id(moved)] = moved
                setattr(self, name, moved)

    def nudged_coreset(self, *arguments, **options):
        originals[1](self, *arguments, **options)
        object.__setattr__(self, "weight", nudged(self.weight, int(seed)))

    GaussianStatistics.__init__, NetworkCoreset.__init__ = nudged_statistics, nudged_coreset
    yield
    GaussianStatistics.__init__, NetworkCoreset.__init__ = originals


def pytest_collection_modifyitems(items):
    """Skip what compares given sums bit for bit where sums are moved."""
    if "PYDIRECT_TEST_PERTURBATION" in os.environ:
        for item in items:
            if item.get_closest_marker("unperturbed"):
                item.add_marker(pytest.mark.skip(reason="compares given sums bit for bit"))


@pytest.fixture(params=_core.isa_levels())
def isa_level(request):
    """Run the test at every instruction-set level of this machine."""
    before = _core.build_config()["isa"]
    _core.select_isa_level(request.param)
    yield request.param
    _core.select_isa_level(before)


@pytest.fixture
def at_every_level():
    """Function that evaluates another one at every level and requires the same bits of all its arrays."""
    before = _core.build_config()["isa"]

    def evaluate(function):
        results = []
        for level in _core.isa_levels():
            _core.select_isa_level(level)
            result = function()
            results.append([np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))])
        for level, arrays in zip(_core.isa_levels(), results, strict=True):
            for got, expected in zip(arrays, results[0], strict=True):
                assert got.tobytes() == expected.tobytes(), f"{level} differs from {_core.isa_levels()[0]}"
        return results[-1] if len(results[-1]) > 1 else results[-1][0]

    yield evaluate
    _core.select_isa_level(before)


@dataclass
class Problem:
    """A regression problem small enough to enumerate."""

    phi: np.ndarray
    y: np.ndarray
    levels: np.ndarray
    log_prior: np.ndarray
    noise_levels: np.ndarray
    log_noise_prior: np.ndarray

    @property
    def statistics(self):
        return GaussianStatistics.from_arrays(self.phi, self.y)

    @property
    def model(self):
        levels, log_prior = np.atleast_2d(self.levels), np.atleast_2d(self.log_prior)
        return MeanFieldRegression.of(self.statistics, levels, log_prior, self.noise_levels, self.log_noise_prior)

    @property
    def fit_arguments(self):
        return self.statistics, self.levels, self.log_prior, self.noise_levels, self.log_noise_prior

    @property
    def oracle_arguments(self):
        return (self.phi, self.y), self.levels, self.log_prior, self.noise_levels

    def random_posterior(self, seed=0):
        """Probabilities (n_weights, n_levels) and (n_noise_levels,), some of them tiny."""
        rng = np.random.default_rng(seed)
        q = rng.dirichlet(np.full(np.shape(self.levels)[-1], 0.5), size=self.phi.shape[1])
        return q, rng.dirichlet(np.full(self.noise_levels.size, 0.5))


@pytest.fixture
def make_problem():
    """Factory of small problems; features are multiples of 1/8, so that single precision holds ΦᵀΦ exactly."""

    def make(n=12, b=4, n_levels=3, n_noise=3, seed=0, scale=1.0, reach=2.0, noise=0.3, per_weight=False):
        rng = np.random.default_rng(seed)
        phi = np.round(8 * scale * rng.standard_normal((n, b))) / 8
        levels = evenly_spaced_levels(n_levels, reach)
        if per_weight:
            levels = levels * rng.uniform(0.5, 1.5, (b, 1)) + rng.uniform(-0.3, 0.3, (b, 1))
        y = phi @ rng.choice(evenly_spaced_levels(n_levels, reach), b) + noise * rng.standard_normal(n)
        noise_levels = np.geomspace(0.02, 5.0, n_noise) if n_noise > 1 else np.array([noise**2])
        return Problem(
            phi, y, levels, GaussianPrior().log_mass(levels), noise_levels, np.full(n_noise, -np.log(n_noise))
        )

    return make


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 64 rows, so that a small table has many."""
    monkeypatch.setattr(running_statistics, "block_rows", lambda n_weights, dtype: 64)
