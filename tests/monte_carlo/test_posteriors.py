"""Posterior families: moments of radial weights, laws of draws."""

import math
import subprocess
import sys

import numpy as np
import pytest
from monte_carlo_parameters import parameters_for
from numpy.testing import assert_allclose
from philox import philox
from scipy import special, stats

from pydirect import _core, monte_carlo as mc


def test_moments_of_a_radial_weight_depend_on_the_size_of_its_tensor():
    family = mc.PosteriorFamily("radial")
    for d in (1, 2, 7):
        # A coordinate of the direction has the density (1 - u²)^((d - 3) / 2).
        u, weight = special.roots_jacobi(20, (d - 3) / 2, (d - 3) / 2) if d > 1 else (np.array([-1.0, 1.0]), np.ones(2))
        along = [np.dot(weight, u**r) / weight.sum() for r in range(1, 7)]
        expected = [a * stats.norm.moment(r) if r % 2 == 0 else 0.0 for r, a in enumerate(along, 1)]
        assert_allclose([family.moment(r, d) for r in range(1, 7)], expected, rtol=1e-12)
        assert expected[3] == pytest.approx(9 / (d * (d + 2)), rel=1e-12)
    # One radial weight is normal, and so is its divergence.
    values = [mc.MonteCarloDivergence(q).value_and_grad([[0.3], [0.7]])[0] for q in ("radial", "normal")]
    assert values[0] == pytest.approx(values[1], rel=1e-14)


@pytest.mark.parametrize("posterior", ["normal", "radial", ("gamma", 0.4), ("wald", 1.5), "logistic"], ids=str)
def test_draws_are_the_same_for_any_number_of_threads_and_at_every_level(posterior, at_every_level):
    prior = ("normal", 0.3, 1.2)

    def everything(n_threads=1):
        results = []
        for mode in ("independent", "naive"):
            kl = mc.MonteCarloDivergence(posterior, prior, mode, 131, 150, seed=5, n_threads=n_threads)
            value, gradient = kl.resample().value_and_grad(parameters_for(kl))
            results += [kl.draws(), np.array(value), gradient, kl.sums_ if mode == "independent" else np.zeros(1)]
        return tuple(results)

    alone = everything()
    for many, one in zip(everything(3), alone, strict=True):
        assert many.tobytes() == one.tobytes()
    at_every_level(everything)


@pytest.mark.parametrize("shape", [0.01, 0.002])
def test_logs_of_draws_that_underflow_are_finite(shape):
    """Half of such gamma draws are no floating-point numbers."""
    for prior in (("gamma", 2.2, 0.8), ("lognormal", 0.2, 400.0), ("generalized_error", 0.0, 1.1, 1.5)):
        kls = [mc.MonteCarloDivergence(("gamma", shape), prior, m, 500, 70) for m in ("independent", "naive")]
        (value, gradient), (naive, naive_gradient) = (kl.value_and_grad(parameters_for(kl)) for kl in kls)
        assert naive == pytest.approx(value, rel=1e-12)
        assert_allclose(naive_gradient, gradient, rtol=1e-11, atol=1e-11)
    assert (kls[1].draws() == 0.0).any()


def test_radial_draws_have_a_half_normal_length_and_a_uniform_direction():
    for n_weights in (1, 3, 130):
        xi = mc.MonteCarloDivergence("radial", mode="naive", n_samples=3000, group_size=n_weights, seed=2).draws()
        length = np.linalg.norm(xi, axis=1)
        assert stats.kstest(length, stats.halfnorm.cdf).pvalue > 1e-3
        along = xi[:, 0] / length
        law = stats.beta((n_weights - 1) / 2, (n_weights - 1) / 2, -1, 2) if n_weights > 1 else None
        assert law is None or stats.kstest(along, law.cdf).pvalue > 1e-3
        assert abs((along > 0).mean() - 0.5) < 4.5 * 0.5 / math.sqrt(3000)


def test_horseshoe_draws_are_normal_times_half_cauchy():
    kl = mc.MonteCarloDivergence("horseshoe", mode="naive", n_samples=4000, allow_inadmissible=True)
    product = stats.norm.rvs(size=4000, random_state=0) * np.abs(stats.cauchy.rvs(size=4000, random_state=1))
    assert stats.ks_2samp(kl.draws().ravel(), product).pvalue > 1e-3


@pytest.mark.parametrize(
    "posterior", ["normal", "exponential", ("gamma", 2.5), ("gamma", 0.4), ("wald", 1.5), "rayleigh"], ids=str
)
@pytest.mark.parametrize("n_samples", [1, 2, 9])
def test_sums_drawn_directly_have_the_law_of_sums_of_draws(posterior, n_samples):
    prior = {"normal": ("normal", 0.3, 1.2), "rayleigh": ("normal", 0.0, 1.0)}.get(posterior, ("exponential", 0.7))
    direct, drawn = (
        mc.MonteCarloDivergence(posterior, prior, mode, n_samples, 20_000, seed=seed).sums_
        for mode, seed in (("direct", 1), ("independent", 2))
    )
    for a, b in zip(direct, drawn, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-3
    for first, last in ((1, 0), (2, 0), (3, 0), (4, 0), (1, 1), (2, 1), (0, 2), (1, 2)):
        samples = [x[0] ** first * x[-1] ** last for x in (direct, drawn)]
        error = math.hypot(*(s.std() / math.sqrt(s.size) for s in samples))
        assert abs(samples[0].mean() - samples[1].mean()) < 4.5 * error


@pytest.mark.slow
def test_draws_do_not_stay_in_memory():
    code = """if True:
        import resource
        import numpy as np
        from pydirect.monte_carlo.divergence import MonteCarloDivergence
        peaks = []
        for n in (10, 60_000):  # draws would take 9,400 KiB
            for posterior, mode in (("normal", "naive"), ("radial", "independent"), (("gamma", 2.5), "independent")):
                kl = MonteCarloDivergence(posterior, ("normal", 0.0, 1.0), mode, n, 20, n_threads=1)
                kl.value_and_grad(np.ones((kl.n_parameters, 20)))
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        print(peaks[1] - peaks[0])
    """
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 4096


def test_normals_are_those_of_the_counter(at_every_level):
    seed, stream = (5 << 32) + 9, 3
    normals = at_every_level(lambda: _core.counter_normals(seed, stream, 0, 1001))
    for block, column in ((0, 0), (0, 1), (0, 63), (3, 17)):
        c = philox((0, 64 * block + column, stream, 0), (9, 5))
        u, t = (((high << 32 | low) >> 12) / 2**52 + 2**-53 for low, high in (c[:2], c[2:]))
        pair = np.sqrt(-2 * np.log(u)) * np.array([np.cos(2 * np.pi * t), np.sin(2 * np.pi * t)])
        at = 128 * block + column
        np.testing.assert_allclose(normals[[at, at + 64]], pair, rtol=1e-14, atol=1e-14)
    for first, n in ((333, 500), (130, 3), (60, 8), (1000, 1)):
        np.testing.assert_array_equal(_core.counter_normals(seed, stream, first, n), normals[first : first + n])
    far = _core.counter_normals(seed, stream, 2**33 + 5, 10)  # where columns have wrapped
    assert not np.isin(far, normals).any()
    assert stats.kstest(_core.counter_normals(0, 0, 0, 20_000), "norm").pvalue > 0.01
