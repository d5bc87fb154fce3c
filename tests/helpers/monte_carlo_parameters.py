"""Parameters at which tests evaluate Monte Carlo divergences, and log-densities draw by draw."""

import numpy as np


def parameters_for(kl, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.3, 0.9, kl.group_size)
    if kl.parameterization != "natural":
        scale = np.log(scale) if kl.parameterization == "log" else np.log(np.expm1(scale))
    return np.stack([rng.normal(0.2, 0.8, kl.group_size), scale]) if kl.posterior.has_location else scale[None]


def log_density_and_slope(prior, w):
    """Log-density without its constant, and its derivative, element-wise."""
    if prior.kind == "logistic":
        x = (w - prior.centre) / prior.scale
        return -np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x))) - np.log(prior.scale), -np.tanh(x / 2) / prior.scale
    if prior.kind == "polynomial":
        x = w - prior.centre
        piece = sum((x > knot for knot in prior.knots), start=np.zeros(x.shape, dtype=np.intp))
        polynomials = [np.polynomial.Polynomial(p) for p in prior.pieces]
        return tuple(np.choose(piece, [f(x) for f in fs]) for fs in (polynomials, [p.deriv() for p in polynomials]))
    log_w = np.log(w)
    shifted, square = log_w - prior.log_centre, prior.log_square_factor
    value, slope = prior.log_factor * log_w + square * shifted**2, prior.log_factor + 2 * square * shifted
    for r, factor in prior.powers:
        value, slope = value + factor * w**r, slope + r * factor * w**r
    return value, slope / w
