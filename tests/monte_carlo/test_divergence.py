"""KL divergences by Monte Carlo: against direct sums over the same draws, quadrature, and laws of sums."""

import functools
import math

import numpy as np
import pytest
from monte_carlo_parameters import log_density_and_slope, parameters_for
from numpy.testing import assert_allclose
from scipy import stats

from pydirect import monte_carlo as mc
from pydirect.monte_carlo import divergence
from tests.helpers.oracles import finite_difference_gradient

# Scipy's laws of the draws, and of weights under priors.
BASES = {
    "normal": stats.norm(),
    "laplace": stats.laplace(),
    "logistic": stats.logistic(),
    "lognormal": stats.norm(),
    "exponential": stats.expon(),
    "rayleigh": stats.rayleigh(),
    ("gamma", 2.5): stats.gamma(2.5),
    ("gamma", 0.4): stats.gamma(0.4),
    ("weibull", 1.8): stats.weibull_min(1.8),
    ("inverse_gamma", 4.0): stats.invgamma(4.0),
    ("wald", 1.5): stats.invgauss(1 / 1.5, scale=1.5),
    ("log_gamma", 2.5): stats.gamma(2.5),
}
PRIORS = {
    ("normal", 0.3, 1.2): stats.norm(0.3, 1.2),
    ("lognormal", 0.2, 0.9): stats.lognorm(0.9, scale=math.exp(0.2)),
    ("exponential", 0.7): stats.expon(scale=1 / 0.7),
    ("gamma", 2.2, 0.8): stats.gamma(2.2, scale=1 / 0.8),
    ("inverse_gamma", 1.7, 0.6): stats.invgamma(1.7, scale=0.6),
    ("rayleigh", 1.3): stats.rayleigh(scale=1.3),
    ("weibull", 1.4, 1.1): stats.weibull_min(1.4, scale=1.1),
    ("wald", 1.2, 0.8): stats.invgauss(1.2 / 0.8, scale=0.8),
    ("pareto", 1.6): stats.pareto(1.6),
    ("laplace", 0.0, 0.8): stats.laplace(0.0, 0.8),
    ("laplace", 0.4, 0.8): stats.laplace(0.4, 0.8),
    ("generalized_error", 0.2, 1.1, 3.0): stats.gennorm(3.0, 0.2, 1.1),
    ("generalized_error", 0.2, 1.1, 4.0): stats.gennorm(4.0, 0.2, 1.1),
    ("generalized_error", 0.0, 1.1, 1.5): stats.gennorm(1.5, 0.0, 1.1),
    ("logistic", 0.1, 0.7): stats.logistic(0.1, 0.7),
}
REAL_LINE = ("normal", "laplace", "logistic", "radial")
POSITIVE = [q for q in BASES if q not in (*REAL_LINE, "lognormal", ("log_gamma", 2.5))]


def is_admissible(posterior, prior, mode):
    try:
        mc.MonteCarloDivergence(posterior, prior, mode, n_samples=2, group_size=4)
    except mc.InadmissiblePairError:
        return False
    return True


@functools.cache
def pairs(mode):
    return [(q, p) for q in (*BASES, "radial") for p in PRIORS if is_admissible(q, p, mode)]


def named(pair):
    return "-".join(map(str, (pair[0], *pair[1]))).replace(" ", "")


def direct_sum(kl, parameters, prior=None, dtype=np.longdouble):
    """Value and gradient over the current draws, one by one; SciPy's values if it has them.

    In double precision, too, good for 1e-14 of the sums of absolute terms: each term is right to a few ulp, and NumPy
    adds what is contiguous in pairs.
    """
    xi, parameters = np.ascontiguousarray(kl.draws().T.astype(dtype)), np.asarray(parameters, dtype=dtype)
    location, scale = (parameters[0, :, None] if len(parameters) == 2 else 0.0), parameters[-1]
    v = location + scale[:, None] * xi
    w = np.exp(v) if kl.posterior.exponential else v
    log_p, slope = log_density_and_slope(kl.prior, w)
    log_p = log_p + kl.prior.constant if prior is None else log_prior(prior, w.astype(float), np.log(np.abs(w)))
    if kl.posterior.exponential:
        log_p, slope = log_p + v, slope * w + 1
    value = -np.log(scale).sum() - log_p.mean(axis=1).sum() - kl.posterior.base_entropy(kl.group_size)
    gradient = np.stack([-slope.mean(axis=1), -1 / scale - (slope * xi).mean(axis=1)])[-len(parameters) :]
    return value, gradient, np.abs(log_p).mean(axis=1).sum(), np.abs(slope * xi).mean(axis=1).max()


# Against direct sums over the same draws


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["independent", "shared", "fixed", "naive"])
def test_sums_give_the_value_and_gradient_of_the_draws(mode):
    for posterior, prior in pairs(mode):
        # Extended precision and SciPy are slow.
        for n_samples, group_size, fast in ((1, 1, False), (7, 50, False), (1000, 50, True)):
            kl = mc.MonteCarloDivergence(posterior, prior, mode, n_samples, group_size, seed=3)
            parameters = parameters_for(kl)
            value, gradient = kl.value_and_grad(parameters)
            reference = (None, np.float64) if fast else (prior, np.longdouble)
            expected, expected_gradient, size, slope = direct_sum(kl, parameters, *reference)
            message = f"{posterior} {prior} {n_samples} {group_size}"
            assert_allclose(value, float(expected), rtol=1e-12, atol=1e-12 * float(size), err_msg=message)
            assert_allclose(gradient, expected_gradient.astype(float), 1e-12, 1e-12 * float(slope), err_msg=message)


def test_resampling_keeps_fixed_draws_and_changes_others():
    for mode, same in (("fixed", True), ("independent", False), ("shared", False), ("direct", False), ("naive", False)):
        kl = mc.MonteCarloDivergence("normal", ("normal", 0.0, 1.0), mode, 10, 5)
        first, _ = kl.value_and_grad(np.ones((2, 5)))
        assert kl.value_and_grad(np.ones((2, 5)))[0] == first
        assert (kl.resample().value_and_grad(np.ones((2, 5)))[0] == first) is same, mode


@pytest.mark.parametrize("posterior", list(BASES), ids=str)
def test_draws_follow_their_law(posterior):
    kl = mc.MonteCarloDivergence(posterior, as_own_prior(posterior), "naive", 4001, 5, seed=11)
    xi = kl.draws()
    assert stats.kstest(xi.ravel(), BASES[posterior].cdf).pvalue > 1e-3
    halves = xi[:-1].reshape(-1, 2, 5)  # the two draws of one counter, and neighbours
    for a, b in ((halves[:, 0], halves[:, 1]), (xi[:, :-1], xi[:, 1:]), (xi[:-1], xi[1:])):
        assert abs(stats.spearmanr(a.ravel(), b.ravel()).statistic) < 4.5 / math.sqrt(a.size)


def as_own_prior(posterior):
    return ("lognormal", 0.0, 1.0) if posterior in ("lognormal", ("log_gamma", 2.5)) else ("normal", 0.0, 1.0)


# The limit of infinitely many draws


def mean_under(posterior, function, breaks=()):
    """E f(ξ) under scipy's law by Gauss and Legendre's rule on many panels, over log ξ where ξ is positive."""
    base, positive = BASES[posterior], posterior in POSITIVE or posterior == ("log_gamma", 2.5)
    low, high = (-300.0 if posterior == ("gamma", 0.4) else -100.0, 30.0) if positive else (-80.0, 80.0)
    edges = np.unique(np.concatenate([np.linspace(low, high, 600), [0.0], [b for b in breaks if low < b < high]]))
    node, weight = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    t, weight = edges[:-1, None] + half * (node + 1), half * weight
    with np.errstate(all="ignore"):
        xi = np.exp(t) if positive else t
        density = base.pdf(xi) * (xi if positive else 1.0)
        return float((np.where(density > 1e-250, density * function(xi), 0.0) * weight).sum())


def log_prior(prior, w, log_w):
    if prior[0] == "laplace":  # scipy takes the log of a density that has underflowed
        return -np.abs(w - prior[1]) / prior[2] - math.log(2 * prior[2])
    if prior[0] == "pareto":
        return math.log(prior[1]) - (prior[1] + 1) * log_w
    return PRIORS[prior].logpdf(w)


def divergence_by_quadrature(posterior, prior, location, scale):
    exponential = posterior in ("lognormal", ("log_gamma", 2.5))

    def log_ratio(xi):
        v = location + scale * xi
        w, log_jacobian = (np.exp(v), v) if exponential else (v, 0.0)
        log_q = BASES[posterior].logpdf(xi) - math.log(scale) - log_jacobian
        return log_q - log_prior(prior, w, v if exponential else np.log(w))

    kink = (prior[1] - location) / scale if prior[0] in ("laplace", "generalized_error") else 0.0
    return mean_under(posterior, log_ratio, [kink])


@pytest.mark.parametrize("pair", [p for p in pairs("exact") if p[0] != "radial"], ids=named)
def test_exact_divergences_agree_with_quadrature(pair):
    kl = mc.MonteCarloDivergence(*pair)
    location, scale = 0.4, 0.6
    value, _ = kl.value_and_grad([[location], [scale]][-kl.n_parameters :])
    expected = divergence_by_quadrature(*pair, location if kl.n_parameters == 2 else 0.0, scale)
    assert_allclose(value, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pair", [p for p in pairs("exact") if p in pairs("independent")], ids=named)
def test_sampled_divergences_tend_to_the_exact_one(pair):
    """A million draws."""
    exact = mc.MonteCarloDivergence(*pair, group_size=8)
    sampled = mc.MonteCarloDivergence(*pair, "independent", 2500, 8, seed=1)
    parameters = parameters_for(exact)
    expected, gradient = exact.value_and_grad(parameters)
    repeats = [sampled.resample().value_and_grad(parameters) for _ in range(50)]
    values = np.array([[v, *g.sum(axis=1)] for v, g in repeats])
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - [expected, *gradient.sum(axis=1)]) <= 4.5 * error + 1e-13).all()


@pytest.mark.parametrize("posterior", [q for q in BASES if q not in ("lognormal", ("log_gamma", 2.5))], ids=str)
def test_moments_agree_with_quadrature(posterior):
    family = mc.PosteriorFamily(*((posterior,) if isinstance(posterior, str) else posterior))
    positive = posterior in POSITIVE
    for r in (-1.5, -1.0, -0.3, 2.0, 2.5) if positive else (1.0, 2.0, 3.0, 4.0, 6.0):
        if mc.has_moment(family, r):
            if positive or r % 2 == 0:
                assert_allclose(family.moment(r, 1), mean_under(posterior, lambda xi, r=r: xi**r), rtol=1e-10)
            else:
                assert family.moment(r, 1) == 0.0
        else:
            with pytest.raises(ValueError, match="is infinite"):
                family.moment(r, 1)
    if positive:
        logs = [mean_under(posterior, lambda xi, k=k: np.log(xi) ** k) for k in (1, 2)]
        assert_allclose(family.log_moments(), logs, rtol=1e-10)
    assert_allclose(family.base_entropy(3) / 3, float(BASES[posterior].entropy()), rtol=1e-9)


# Gradients


@pytest.mark.parametrize("mode", ["exact", "direct", "independent", "shared", "naive"])
@pytest.mark.parametrize("parameterization", ["natural", "log", "softplus"])
def test_gradients_agree_with_finite_differences(mode, parameterization):
    for posterior, prior in pairs(mode):
        kl = mc.MonteCarloDivergence(posterior, prior, mode, 20, 3, parameterization=parameterization, seed=8)
        parameters = parameters_for(kl)
        _, gradient = kl.value_and_grad(parameters)
        expected = finite_difference_gradient(lambda x, kl=kl: kl.value_and_grad(x)[0], parameters, step=1e-5)
        assert_allclose(gradient, expected, rtol=1e-7, atol=1e-7, err_msg=f"{posterior} {prior}")


# What is refused


# Inverse gamma of shape and scale two; its logarithm holds 1/w.
INVERSE_GAMMA = mc.UserDensity(
    lambda w: math.log(4) - 3 * np.log(w) - 2 / w, lambda w: (2 / w - 3) / w, "positive", tail_powers=(-1.0,)
)

INADMISSIBLE = [
    ("horseshoe", ("normal", 0.0, 1.0), r"E \|xi\|\^2, .* is infinite"),
    ("horseshoe", ("laplace", 0.0, 1.0), r"E \|xi\|\^1"),
    ("horseshoe", ("logistic", 0.0, 1.0), r"E \|xi\|\^1"),
    (("inverse_gamma", 2.0), ("normal", 0.0, 1.0), r"E \|xi\|\^2"),
    (("inverse_gamma", 1.5), ("rayleigh", 1.0), r"E \|xi\|\^2"),
    (("inverse_gamma", 1.0), ("exponential", 1.0), r"E \|xi\|\^1"),
    ("exponential", ("inverse_gamma", 2.0), r"E \|xi\|\^-1"),
    ("exponential", ("wald", 1.0, 1.0), r"E \|xi\|\^-1"),
    (("gamma", 1.0), ("inverse_gamma", 2.0), r"E \|xi\|\^-1"),
    (("weibull", 0.9), ("wald", 1.0, 1.0), r"E \|xi\|\^-1"),
    ("normal", ("exponential", 1.0), "support"),
    ("lognormal", ("pareto", 1.0), "support"),
    ("exponential", ("pareto", 1.0), "support"),
    (("log_gamma", 2.0), ("gamma", 2.0), "which need not exist"),
    (("log_gamma", 2.0), mc.UserDensity(np.negative, np.sign, tail_powers=(2.0,)), "which need not exist"),
    ("exponential", INVERSE_GAMMA, r"E \|xi\|\^-1"),
    ("normal", mc.UserDensity(np.negative, np.sign, tail_powers=[-1.0]), r"E \|xi\|\^-1"),
    ("normal", ("polynomial", ((0.0, 0.0, 1.0),)), "does not tend to zero"),
    ("normal", ("polynomial", ((0.0, 1.0),)), "does not tend to zero"),
    ("laplace", ("polynomial", ((0.0, -1.0), (0.0, -1.0)), 0.0, (0.0,)), "does not tend to zero"),
    ("exponential", ("polynomial", ((0.0, -1.0, 1.0, 0.0),)), "does not tend to zero"),
]


def named(value):
    """The same in every process, as addresses of functions are not."""
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(("posterior", "prior", "reason"), INADMISSIBLE, ids=named)
def test_infinite_divergences_are_refused_with_a_reason(posterior, prior, reason):
    for mode in ("exact", "independent", "naive"):
        with pytest.raises(mc.InadmissiblePairError, match=reason):
            mc.MonteCarloDivergence(posterior, prior, mode)


@pytest.mark.parametrize(("posterior", "prior"), [pair[:2] for pair in INADMISSIBLE], ids=named)
def test_the_override_gives_the_published_estimate_of_an_infinite_divergence(posterior, prior):
    made = 0
    for mode in ("independent", "naive"):
        try:
            kl = mc.MonteCarloDivergence(posterior, prior, mode, 100, 3, allow_inadmissible=True)
        except mc.InadmissiblePairError as error:
            assert "mode must be 'naive'" in str(error)  # what no override can mend
            continue
        value, gradient = kl.value_and_grad(parameters_for(kl))
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
        made += 1
    assert made


@pytest.mark.parametrize(
    ("posterior", "prior", "mode", "reason"),
    [
        ("normal", ("logistic",), "exact", "mode must be 'naive'"),
        ("normal", ("logistic",), "independent", "mode must be 'naive'"),
        ("laplace", ("laplace",), "exact", "must have draws to sort"),
        ("lognormal", ("logistic",), "exact", "mode must be 'naive'"),
        ("laplace", ("normal",), "direct", "not known"),
        ("radial", ("normal",), "direct", "not known"),
        ("radial", ("normal",), "shared", "cannot be shared"),
        ("lognormal", ("gamma", 2.0), "independent", "mode must be 'naive'"),
        ("normal", ("gamma", 2.0), "exact", "positive weights alone"),
        ("normal", ("generalized_error", 0.0, 1.0, 1.5), "naive", "an integer up to 16 for weights on the real line"),
        ("radial", ("laplace",), "exact", "mode must be 'independent', 'fixed' or 'naive'"),
    ],
)
def test_modes_that_cannot_serve_a_pair_are_refused(posterior, prior, mode, reason):
    for override in (False, True):
        with pytest.raises(mc.InadmissiblePairError, match=reason):
            mc.MonteCarloDivergence(posterior, prior, mode, allow_inadmissible=override)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"posterior": "cauchy"}, "posterior must be one of"),
        ({"posterior": "gamma"}, "must be given with a shape"),
        ({"posterior": ("normal", 2.0)}, "must be given without a shape"),
        ({"posterior": ("gamma", -1.0)}, "shape must be above 0.0"),
        ({"posterior": 3}, "posterior must be a family"),
        ({"prior": ("cauchy",)}, "prior must be one of"),
        ({"prior": 3}, "prior must be a density"),
        ({"prior": ("normal", 0.0, 0.0)}, "scale must be above 0.0"),
        ({"prior": "gamma"}, r"must be given as \('gamma', shape, rate\), got gamma"),
        ({"prior": ("normal", 0.0, 1.0, 2.0)}, r"must be given as \('normal', mean, scale\)"),
        ({"prior": ("scale_mixture", 0.0, 0.0, 30.0)}, "powers do not overflow"),
        ({"posterior": "rayleigh", "prior": ("weibull", 800.0, 1e-3)}, "powers do not overflow"),
        ({"posterior": ("weibull", 0.01)}, r"E \|xi\|\^2 of the weibull posterior overflows"),
        ({"prior": ("generalized_error", 1.0, 1.0, 1.5)}, "exponent must be an integer"),
        ({"mode": "magic"}, "mode must be one of"),
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"group_size": 2**32}, "group_size must be below"),
        ({"seed": 2**64}, "seed must be below"),
        ({"parameterization": "cubic"}, "parameterization must be one of"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        mc.MonteCarloDivergence(**arguments)


def test_parameters_are_checked():
    kl = mc.MonteCarloDivergence(group_size=2)
    with pytest.raises(ValueError, match=r"parameters with group_size=2 must have shape \(2, 2\), got \(2,\)"):
        kl.value_and_grad([1.0, 1.0])
    with pytest.raises(ValueError, match=r"scales must be positive, got -1.0"):
        kl.value_and_grad([[0.0, 0.0], [1.0, -1.0]])
    with pytest.raises(ValueError, match="scales must be positive and finite"):
        mc.MonteCarloDivergence(parameterization="log").value_and_grad([[0.0], [800.0]])
    with pytest.raises(ValueError, match="mode must be one with draws"):
        kl.draws()


def test_borders_of_existence_of_the_moments():
    assert is_admissible(("inverse_gamma", 2.1), ("normal", 0.0, 1.0), "exact")
    assert is_admissible(("gamma", 1.1), ("inverse_gamma", 2.0), "exact")
    assert is_admissible("rayleigh", ("wald", 1.0, 1.0), "exact")
    assert is_admissible("rayleigh", ("inverse_gamma", 2.0), "exact")


# Families and priors of one's own


def test_user_density_is_evaluated_draw_by_draw(monkeypatch):
    monkeypatch.setattr(divergence, "BLOCK_SIZE", 500)
    own = mc.UserDensity(lambda w: stats.norm.logpdf(w), lambda w: -w, tail_powers=(2.0,))
    for posterior in ("normal", "radial", "exponential", "lognormal"):
        pair = [mc.MonteCarloDivergence(posterior, prior, "naive", 701, 7, seed=2) for prior in (own, ("normal",))]
        parameters = parameters_for(pair[0])
        (value, gradient), (expected, expected_gradient) = (kl.value_and_grad(parameters) for kl in pair)
        assert value == pytest.approx(expected, rel=1e-11)
        assert_allclose(gradient, expected_gradient, rtol=1e-10, atol=1e-12)
    with pytest.raises(mc.InadmissiblePairError, match="draw by draw: mode must be 'naive'"):
        mc.MonteCarloDivergence("normal", own)


def test_piecewise_polynomials_agree_with_direct_sums():
    prior = ("polynomial", [[0.5, 2.0], [0.0, 0.0, -1.0, 0.0], [0.0, -1.0]], 0.1, [-0.5, 1.0])
    for mode in ("independent", "shared", "fixed", "naive"):
        kl = mc.MonteCarloDivergence("laplace", prior, mode, 501, 9)
        parameters = parameters_for(kl)
        value, gradient, size, slope = direct_sum(kl, parameters)
        got, got_gradient = kl.value_and_grad(parameters)
        assert_allclose(got, float(value), rtol=1e-12, atol=1e-12 * float(size))
        assert_allclose(got_gradient, gradient.astype(float), rtol=1e-12, atol=1e-12 * float(slope))
