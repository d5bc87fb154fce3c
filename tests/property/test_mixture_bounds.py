"""Bounds on mixtures lie on their side of the truth for every mixture, searched by hypothesis."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mixtures import bound_of_prior, prior_of_hypotheses
from scipy.special import logsumexp, softmax, xlogy

from pydirect import GaussianStatistics, MixturePrior, fit_mixture
from pydirect.direct import pairwise_entropy
from pydirect.direct.mixture_posterior import taylor_entropy
from pydirect.distributions.priors import TablePrior
from pydirect.testing import enumerate_elbo, enumerate_hypotheses, enumerate_log_evidence

logits = st.floats(-8.0, 8.0)


def probabilities(*shape):
    return arrays(float, shape, elements=logits).map(lambda x: softmax(x, axis=-1))


@st.composite
def mixture(draw):
    r, b, m = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    alpha, q = draw(probabilities(r)), draw(probabilities(r, b, m))
    if draw(st.booleans()) and m > 1:  # exact zeros
        q = np.where(q == q.min(axis=2, keepdims=True), 0.0, q)
        total = q.sum(axis=2, keepdims=True)
        q = np.where(total > 0, q / np.where(total > 0, total, 1.0), 1.0 / m)
    return alpha, q


def masses(alpha, q):
    return sum(a * enumerate_hypotheses(component).prod(axis=1) for a, component in zip(alpha, q, strict=True))


def entropy(alpha, q):
    p = masses(alpha, q)
    return -xlogy(p, p).sum()


@given(mixture())
def test_the_pairwise_bracket_contains_the_entropy(drawn):
    alpha, q = drawn
    lower, upper = pairwise_entropy(alpha, q)
    assert lower - 1e-9 <= entropy(alpha, q) <= upper + 1e-9
    own = -xlogy(q, q).sum(axis=(1, 2))
    # Mixing adds at most the entropy of the choice.
    assert alpha @ own - 1e-9 <= lower and upper <= alpha @ own - xlogy(alpha, alpha).sum() + 1e-9


@given(mixture(), st.data())
def test_the_taylor_bound_is_below_the_entropy_for_every_centre(drawn, data):
    alpha, q = drawn
    centre = data.draw(arrays(float, q.shape[1:], elements=st.floats(-5.0, 2.0)))
    assert taylor_entropy(alpha, q, centre)[0] <= entropy(alpha, q) + 1e-9


@given(st.data())
def test_log_sum_exp_lies_between_jensen_and_the_truth(data):
    k, b, m = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    tables = data.draw(probabilities(k, m))
    weights = data.draw(probabilities(k))
    groups = data.draw(arrays(int, b, elements=st.integers(0, 2)))
    q = data.draw(probabilities(b, m))
    levels = np.arange(float(m))
    components = tuple(TablePrior(t) for t in tables)
    priors = [MixturePrior(components, weights, groups, bound) for bound in ("log_sum_exp", "jensen")]
    best, jensen = (bound_of_prior(prior.table(levels, b), q) for prior in priors)
    p = np.exp(prior_of_hypotheses(priors[0], levels, b))
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-9)
    truth = masses([1.0], q[None]) @ np.log(p)
    assert jensen <= best + 1e-9
    assert best <= truth + 1e-9


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 4), st.floats(0.05, 2.0))
def test_mixtures_rise_monotonically_to_below_the_evidence(seed, r, b, noise):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((8, b)) + 2 * rng.standard_normal((8, 1))  # correlated
    y = phi @ rng.choice([-1.0, 0.0, 1.0], b) + noise * rng.standard_normal(8)
    levels, log_prior = np.array([-1.0, 0.0, 1.0]), np.log([0.25, 0.5, 0.25])
    arguments = levels, log_prior, np.array([noise**2])
    posterior = fit_mixture(GaussianStatistics.from_arrays(phi, y), *arguments, n_components=r)
    assert posterior.elbo <= enumerate_log_evidence((phi, y), *arguments) + 1e-6
    own = [enumerate_elbo((phi, y), *arguments, q, [1.0]) for q in posterior.component_q]
    assert posterior.elbo <= logsumexp(np.array(own)) + 1e-6  # at best all distinct, weighed by their evidence
    assert posterior.elbo >= max(own) - 1e-5
