"""Whether intervals hold where landmarks are too few, and how much of the variance they miss predictions should add.

    python bench/scripts/few_landmarks.py [--rows 2000 5000] [--seeds 3]

Functions that 1000 landmarks describe, in 2 to 5 columns, learned with 100, noise of a fifth of their deviation: NLPD
of 5000 new rows and coverage of 90 % intervals, and the same of 2000 rows whose first column is beyond all that was
learned. By the default, with its local process, and with local=False, where predictions add the residual variance above
its mean q̄: all of it, as they do, half, nothing, or as leave-one-out density prefers, a share of it, or all of it times
a power of (q − q̄)/(k − q̄), which is 1 where landmarks tell nothing. Means over seeds.
"""

from __future__ import annotations

import argparse
import os
import warnings

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402
from scipy.spatial.distance import cdist  # noqa: E402

from pydirect import DirectRegressor  # noqa: E402
from pydirect.features.rows import TrainingRows  # noqa: E402
from pydirect.fitted.regression import FittedRegressor, left_out  # noqa: E402
from pydirect.metrics import nlpd  # noqa: E402
from pydirect.predictive.gaussian_mixture import PredictiveDistribution  # noqa: E402

# Smoothness, columns, and the side of the cube of uniform inputs in length-scales.
CASES = {
    "smooth, 2 columns": (True, 2, 16.0),
    "rough, 2 columns": (False, 2, 6.0),
    "smooth, 4 columns": (True, 4, 2.4),
    "rough, 5 columns": (False, 5, 1.5),
}
SHARES, POWERS = (0.0, 0.03, 0.1, 0.3, 1.0), (0.0, 0.5, 1.0, 2.0, 4.0)
Data = tuple[np.ndarray, np.ndarray]


def kernel(smooth: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r = cdist(a, b)
    return np.exp(-(r**2) / 2) if smooth else (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)


def problem(name: str, n_rows: int, seed: int) -> tuple[Data, Data, Data]:
    """Return rows to learn, new ones like them, and rows beyond them."""
    smooth, d, side = CASES[name]
    rng = np.random.default_rng(seed)
    x, z = side * rng.uniform(size=(2 * n_rows + 20_000, d)), side * rng.uniform(size=(1000, d))
    factor = np.linalg.cholesky(kernel(smooth, z, z) + 1e-8 * np.eye(len(z)))
    f = kernel(smooth, x, z) @ np.linalg.solve(factor.T, rng.standard_normal(len(z)))
    y = f / f.std() + 0.2 * rng.standard_normal(len(x))
    near = x[:, 0] < 0.8 * side
    inside, outside = np.flatnonzero(near)[: n_rows + 5000], np.flatnonzero(~near)[:2000]
    learned, new = np.split(inside, [n_rows])
    return (x[learned], y[learned]), (x[new], y[new]), (x[outside], y[outside])


def scores(targets: np.ndarray, distribution: PredictiveDistribution) -> np.ndarray:
    """Return the NLPD, and coverage of 90 % intervals."""
    low, high = distribution.interval(0.9)
    return np.array([nlpd(targets, distribution), np.mean((low <= targets) & (targets <= high))])


def distributions(
    fit: FittedRegressor, x: np.ndarray, moments: Data | None = None
) -> dict[str, PredictiveDistribution]:
    """Return predictions of standardised targets by every rule, given mean and variance of f without what is missed."""
    latent = fit.latent
    inputs, phi = latent.phi(x)
    beyond = latent.beyond(inputs, phi)[:, 0]
    if moments is None:
        mean, variance = latent.moments(x, True)
        moments = mean[:, 0], np.maximum(variance[:, 0] - beyond, 0.0)
    whole = (latent.basis.kernel.diagonal(inputs) - latent.residual_variance) * latent.prior_scale[0] ** 2
    added = {f"share {a:g}": a * beyond for a in (*SHARES, 0.5)}
    added |= {f"power {p:g}": beyond * (beyond / whole) ** p for p in POWERS}
    weights, values = fit.noise_of(x)[0]
    mean, variance = moments
    return {
        rule: PredictiveDistribution(weights, mean[:, None], (variance + more)[:, None] + values)
        for rule, more in added.items()
    }


def measure(name: str, n_rows: int, seed: int) -> dict[str, np.ndarray]:
    learned, *others = problem(name, n_rows, seed)
    model = DirectRegressor(n_basis_functions=100, target_transform=None, random_state=seed, n_threads=1).fit(*learned)
    found = {"default": np.hstack([scores(y, model.predict_distribution(x)) for x, y in others])}
    fit = model.set_params(local=False).fit(*learned).model_
    location, scale = fit.units.location[0], fit.units.scale[0]
    (left,) = left_out([fit], TrainingRows(learned[0], (learned[1] - location)[:, None] / scale, None))
    unseen = distributions(fit, learned[0], (left.found.means[:, 0], left.found.latent_variances[:, 0]))
    loo = {rule: nlpd((learned[1] - location) / scale, own) for rule, own in unseen.items()}
    each, units = {rule: np.zeros(0) for rule in loo}, np.array([np.log(scale), 0.0])
    for x, y in others:
        for rule, own in distributions(fit, x).items():
            each[rule] = np.append(each[rule], scores((y - location) / scale, own) + units)
    for rule in ("share 0", "share 0.5", "share 1"):
        found[f"local=False, {rule}"] = each[rule]
    for kind, values in (("share", SHARES), ("power", POWERS)):
        best = min((f"{kind} {value:g}" for value in values), key=loo.__getitem__)
        found[f"local=False, {kind} by leave-one-out"] = each[best]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in CASES:
        for n_rows in options.rows:
            found = [measure(name, n_rows, seed) for seed in range(options.seeds)]
            print(f"\n{f'{name}, {n_rows} rows':38s}    NLPD  coverage   beyond: NLPD  coverage")
            for rule in found[0]:
                each = np.array([own[rule] for own in found])
                near, cover, far, cover_far = each.mean(axis=0)
                print(f"{rule:38s}{near:8.3f}{cover:10.3f}{far:15.3f}{cover_far:10.3f}", flush=True)


if __name__ == "__main__":
    main()
