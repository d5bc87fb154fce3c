"""Parameters at which tests evaluate Monte Carlo divergences."""

import numpy as np


def parameters_for(kl, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.3, 0.9, kl.group_size)
    if kl.parameterization != "natural":
        scale = np.log(scale) if kl.parameterization == "log" else np.log(np.expm1(scale))
    return np.stack([rng.normal(0.2, 0.8, kl.group_size), scale]) if kl.posterior.has_location else scale[None]
