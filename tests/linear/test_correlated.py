"""Outputs with correlated functions and noise, beside dense Gaussians of all entries."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pydirect.linear.correlated import _Complete, _Incomplete, fit_correlated, sums_by_pattern

RNG = np.random.default_rng(2)
PHI = RNG.standard_normal((30, 4))
SIGNAL = np.array([[1.5, 0.9, 0.2], [0.9, 1.0, -0.1], [0.2, -0.1, 0.7]])
NOISE = np.array([[0.5, 0.4, 0.0], [0.4, 0.6, 0.1], [0.0, 0.1, 0.3]])


def outputs(n_rows=30, phi=PHI, rng=RNG):
    weights = rng.multivariate_normal(np.zeros(3), SIGNAL, phi.shape[1])
    return phi @ weights + rng.multivariate_normal(np.zeros(3), NOISE, n_rows)


Y = outputs()
GAPS = np.where(RNG.random(Y.shape) < 0.3, np.nan, Y)


def dense(y):
    """Return evidence, mean and covariance of W from the joint Gaussian of all entries that are there."""
    seen = ~np.isnan(y.ravel())
    covariance = (np.kron(PHI @ PHI.T, SIGNAL) + np.kron(np.eye(len(y)), NOISE))[np.ix_(seen, seen)]
    cross = np.kron(PHI.T, SIGNAL)[:, seen]
    gain = np.linalg.solve(covariance, cross.T).T
    mean, posterior = gain @ y.ravel()[seen], np.kron(np.eye(4), SIGNAL) - gain @ cross.T
    return multivariate_normal(cov=covariance).logpdf(y.ravel()[seen]), mean.reshape(4, 3), posterior


@pytest.mark.parametrize(("y", "kind"), [(Y, _Complete), (Y, _Incomplete), (GAPS, _Incomplete)])
def test_evidence_and_posterior_are_those_of_the_dense_gaussian(y, kind):
    patterns = sums_by_pattern(PHI, y, np.ones(30))
    step = kind(patterns[0]) if kind is _Complete else kind(patterns, 3)
    evidence, mean, covariance = dense(y)
    assert step(SIGNAL, NOISE)[0] == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(step.mean, mean, atol=1e-10)
    root = step.root()
    if step.vectors is not None:
        root = np.einsum("ij,jac->iajc", step.vectors, root)
    root = root.reshape(12, 12)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-10)


def test_steps_agree_and_never_lower_the_evidence():
    for y in (Y, GAPS):
        patterns = sums_by_pattern(PHI, y, np.ones(30))
        steps = [_Incomplete(patterns, 3), *([_Complete(patterns[0])] if y is Y else [])]
        signal, noise, last = np.eye(3), np.eye(3), -np.inf
        for _ in range(30):
            found = [step(signal, noise) for step in steps]
            for part in range(3):
                np.testing.assert_allclose(found[0][part], found[-1][part], rtol=1e-8, atol=1e-8)
            assert found[0][0] >= last - 1e-9
            last, signal, noise = found[0]
    assert fit_correlated(patterns, np.eye(3), np.eye(3)).log_evidence >= last - 1.0


def test_weights_are_repeated_rows():
    weight = np.where(np.arange(30) < 10, 2.0, 1.0)
    twice = np.vstack([GAPS, GAPS[:10]])
    one = fit_correlated(sums_by_pattern(PHI, GAPS, weight), np.eye(3), np.eye(3))
    other = fit_correlated(sums_by_pattern(np.vstack([PHI, PHI[:10]]), twice, np.ones(40)), np.eye(3), np.eye(3))
    assert one.log_evidence == pytest.approx(other.log_evidence)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6)
