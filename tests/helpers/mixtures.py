"""Small mixtures and problems that can be enumerated, and what tests of mixtures compute of them by definition."""

import numpy as np
from scipy.special import logsumexp, xlogy

from pydirect import MixturePrior
from pydirect.direct import mixture_ascent
from pydirect.distributions.priors import GaussianPrior, SpikeAndSlabPrior
from pydirect.testing import enumerate_hypotheses, enumerate_mixture


def random_mixture(r=3, b=4, m=3, seed=0, concentration=0.7):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(r)), rng.dirichlet(np.full(m, concentration), size=(r, b))


def masses(alpha, q):
    """Probability of every weight vector, by definition; entries of q and alpha may be any numbers."""
    return sum(a * enumerate_hypotheses(component).prod(axis=1) for a, component in zip(alpha, q, strict=True))


def entropy_of(alpha, q):
    p = masses(alpha, q)
    return -xlogy(p, p).sum()


def indices_of_hypotheses(b, m):
    return enumerate_hypotheses(np.arange(m, dtype=float), b).astype(np.uint8)


def correlated_problem(make_problem, **options):
    """Two nearly equal columns: the posterior has several modes, and a factorised one sees a single one of them."""
    problem = make_problem(**{"b": 5, "n": 12, "reach": 1.0, **options})
    problem.phi[:, 1] = problem.phi[:, 0] + np.round(problem.phi[:, 1]) / 8
    return problem


def enumerated(posterior):
    levels = np.broadcast_to(posterior.levels, posterior.q.shape)
    return enumerate_mixture(levels, posterior.alpha, posterior.component_q, posterior.noise.levels, posterior.noise.q)


def elbo_by_definition(problem, distribution, log_prior):
    """``Σ q (log p(y, w, σ²) − log q)`` for log prior masses of every weight vector."""
    error = ((problem.y - distribution.weights @ problem.phi.T) ** 2).sum(axis=1)
    noise = problem.noise_levels
    log_joint = -0.5 * len(problem.y) * np.log(2 * np.pi * noise) - 0.5 * error[:, None] / noise
    log_joint = log_joint + log_prior[:, None] + problem.log_noise_prior
    q = distribution.probability
    used = q > 0
    return float((q[used] * (log_joint[used] - np.log(q[used]))).sum())


def log_prior_of_hypotheses(problem):
    b, m = problem.phi.shape[1], np.shape(problem.levels)[-1]
    table = np.broadcast_to(problem.log_prior, (b, m))
    return table[np.arange(b), indices_of_hypotheses(b, m)].sum(axis=1)


def climb_of(problem, table=None, n_threads=1):
    model = problem.model
    return mixture_ascent.Climb(model, table, model.statistics.A.astype(np.float32), 1000, n_threads)


def random_state(problem, r, seed=0, concentration=1.0):
    b, m = problem.phi.shape[1], np.shape(problem.levels)[-1]
    alpha, q = random_mixture(r, b, m, seed, concentration)
    return mixture_ascent.MixtureState(
        alpha, q, np.random.default_rng(seed).dirichlet(np.ones(problem.noise_levels.size))
    )


def problem_with_noise(problem, noise_levels):
    problem.noise_levels, problem.log_noise_prior = np.asarray(noise_levels), np.zeros(1)
    return problem


def prior_of_hypotheses(prior, levels, b):
    """Log mass of every weight vector, by definition."""
    indices = indices_of_hypotheses(b, len(levels))
    log_p = np.zeros(len(indices))
    groups = np.zeros(b, dtype=int) if prior.groups is None else np.asarray(prior.groups)
    weights = np.full(len(prior.components), 1 / len(prior.components)) if prior.weights is None else prior.weights
    for group in np.unique(groups):
        terms = [
            np.log(w) + c.log_mass(levels)[indices[:, groups == group]].sum(axis=1)
            for w, c in zip(np.asarray(weights) / np.sum(weights), prior.components, strict=True)
        ]
        log_p += logsumexp(terms, axis=0)
    return log_p


def bound_of_prior(table, q):
    """Bound of E_q log p for a factorised q, by definition."""
    scores = table.scores(q)
    if table.bound == "jensen":
        return float((scores @ np.exp(table.log_weights)).sum())
    return float(logsumexp(table.log_weights + scores, axis=1).sum())


PRIORS = {
    "scales": MixturePrior.of_scales([0.3, 1.0]),
    "one component": MixturePrior(("gaussian",)),
    "switched": MixturePrior.switched(zero_probability=0.7, leak=0.05),
    "groups": MixturePrior.switched([1, 0, 0, 1, 2], leak=0.05),
    "weighted": MixturePrior((GaussianPrior(0.5), SpikeAndSlabPrior(0.5)), (3.0, 1.0), [0, 0, 1, 1, 1]),
    "jensen": MixturePrior((GaussianPrior(0.5), GaussianPrior(2.0)), bound="jensen"),
}
