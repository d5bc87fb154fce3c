"""Differentially private releases: does the posterior that knows the noise cover, and what does privacy cost?

    python privacy.py                   # the table of simulated functions, 20 draws a line: some minutes
    python privacy.py --inputs FOLDER   # functions on inputs of real tables: NPZ files with X and y
    python privacy.py --real FOLDER     # real inputs and targets
    python privacy.py --sensitivity     # how far a search moves the sums by one row, beside the bound
    python privacy.py --merging         # models of sites merged, beside one model of all rows

Coverage is of 90 % intervals, for the function at rows that are not in the sums and for the weights, with the standard
error over draws. "ignoring" takes the same release for exact sums (the nearest positive semi-definite ones), at the
noise and prior variance that the other has found, as its own evidence runs away; "exact" has the sums themselves. RMSE
is over the function's standard deviation. Real inputs are of the tables, with functions drawn from the prior.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from pydirect import DirectRegressor, Fourier, merge_models
from pydirect.estimators.merging import _reference_gram, norm_bound_of
from pydirect.linear import correct_noisy_sums, fit_gaussian, maximise_evidence
from pydirect.linear.noisy_sums import positive_part
from pydirect.statistics import GaussianStatistics, NoisyStatistics, PrivacyBudget, decorrelate, gaussian_mu
from pydirect.statistics.noisy import SENSITIVITY, WEIGHTS, clipped_sums, symmetric_noise

Z90, DELTA = 1.6448536, 1e-6
FIRST_SEED = 1000  # settings were chosen on the draws before
# (basis functions, rows, epsilon, length-scale in half ranges, inputs)
SETTINGS = [
    (100, 100_000, 1.0, 1.0, "uniform"),
    (50, 100_000, 1.0, 1.0, "uniform"),
    (200, 100_000, 1.0, 1.0, "uniform"),
    (100, 100_000, 1.0, 0.5, "uniform"),
    (100, 100_000, 1.0, 1.0, "clustered"),
    (200, 100_000, 1.0, 0.5, "clustered"),
    (100, 100_000, 0.3, 1.0, "uniform"),
    (100, 100_000, 3.0, 1.0, "uniform"),
    (100, 10_000, 1.0, 1.0, "uniform"),
    (100, 1_000_000, 1.0, 1.0, "uniform"),
]
TABLES = ("elevators", "parkinsons", "protein")


def inputs_of(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of three inputs in [-1, 1]: anywhere, or about one place."""
    if kind == "uniform":
        return rng.uniform(-1, 1, (n, 3))
    return np.clip(0.3 + 0.25 * rng.standard_normal((n, 3)), -1, 1)


def table_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in [-1, 1] and targets; quantiles stand for the bounds that people who know the domain would give."""
    data = np.load(path)
    X, y = data["X"].astype(float), np.ravel(data["y"]).astype(float)
    low, high = np.quantile(X, [0.01, 0.99], axis=0)
    kept = high > low
    return np.clip((2 * X[:, kept] - low[kept] - high[kept]) / (high - low)[kept], -1, 1), y


def released(sums: tuple, epsilon: float, bound: float, rng: np.random.Generator) -> NoisyStatistics:
    """Return sums of rows with the noise of a release."""
    gram, c, yty, n = sums
    sigma = SENSITIVITY / gaussian_mu(epsilon, DELTA)
    deviations = sigma * np.array([bound**2, bound, 1, 1]) / np.array([1, *WEIGHTS])
    return NoisyStatistics(
        gram + symmetric_noise(len(c), deviations[0], rng),
        c + deviations[1] * rng.standard_normal(len(c)),
        yty + deviations[2] * rng.standard_normal(),
        n + deviations[3] * rng.standard_normal(),
        *(deviations**2).tolist(),
        bound,
        (-1.0, 1.0),
        "",
        1.0,
    )


def moments(
    statistics: GaussianStatistics, noise: float, scale: float, phi: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of functions Φw under the ordinary posterior of sums."""
    posterior = fit_gaussian(decorrelate(statistics).target(0).scaled(scale), noise, n_noise_levels=1)
    return posterior.latent_moments(np.sqrt(scale) * phi)


def covered(found: tuple[np.ndarray, np.ndarray], truth: np.ndarray) -> float:
    """Return the share of 90 % intervals that hold the truth."""
    return float(np.mean(np.abs(found[0] - truth) < Z90 * np.sqrt(found[1])))


def error_of(found: tuple[np.ndarray, np.ndarray], truth: np.ndarray) -> float:
    """Return the RMSE over the truth's deviation."""
    return float(np.sqrt(np.mean((found[0] - truth) ** 2)) / truth.std())


def one_draw(
    model: DirectRegressor, X: np.ndarray, new: np.ndarray, n: float, epsilon: float, seed: int
) -> list[float]:
    """Draw a function from the prior and the noise of a release; return coverages, errors and the noise's ratio.

    The rows stand for `n`, each counted as often: only sums over them are needed, whose noise is drawn for all.
    """
    rng, bound, basis = np.random.default_rng(seed), norm_bound_of(model.features_), model.features_
    gram = clipped_sums(basis, X, np.zeros(len(X)), bound)[0] * (n / len(X))
    phi, b = basis.transform(new), len(gram)
    weights = rng.standard_normal(b)
    weights *= 0.25 / np.std(phi @ weights)
    truth, noise = phi @ weights, 0.125**2
    values, vectors = np.linalg.eigh(gram)
    error = vectors @ (np.sqrt(noise * np.maximum(values, 0)) * rng.standard_normal(b))
    c = gram @ weights + error
    yty = float(weights @ gram @ weights + 2 * weights @ error + noise * rng.chisquare(n))
    noisy = released((gram, c, yty, n), epsilon, bound, rng)
    corrected = correct_noisy_sums(noisy, _reference_gram(basis, noisy))
    found = corrected.noise_variance, corrected.prior_variance
    taken = GaussianStatistics(noisy.c[:, None], np.array([abs(noisy.yty)]), n, positive_part(noisy.gram))
    exact = GaussianStatistics(c[:, None], np.array([yty]), n, gram)
    aware = moments(corrected.statistics, *found, phi)
    ignoring = moments(taken, *found, phi)
    best = moments(exact, *maximise_evidence(decorrelate(exact).target(0), 0.1 * yty / n), phi)
    of_weights = covered(moments(corrected.statistics, *found, np.eye(b)), weights)
    functions = (aware, ignoring, best)
    return [
        covered(aware, truth),
        of_weights,
        *(covered(own, truth) for own in functions[1:]),
        *(error_of(own, truth) for own in functions),
        found[0] / noise,
    ]


def print_head() -> None:
    """Print the head of the table of coverages."""
    print("| b | n | ε | inputs | knowing | weights | ignoring | exact | RMSE knowing | ignoring | exact | σ²/true |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)


def print_line(label: str, found: list[list[float]]) -> None:
    """Print means of draws, with standard errors of coverages."""
    mean, deviation = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    shares = " | ".join(f"{mean[k]:.3f} ± {deviation[k]:.3f}" for k in range(4))
    errors = " | ".join(f"{mean[k]:.3f}" for k in range(4, 7))
    print(f"| {label} | {shares} | {errors} | {mean[7]:.2f} |", flush=True)


def simulated(n_draws: int) -> None:
    """Print coverage and errors for functions drawn from the prior."""
    print_head()
    for b, n, epsilon, length_scale, kind in SETTINGS:
        found = []
        for seed in range(FIRST_SEED, FIRST_SEED + n_draws):
            rng = np.random.default_rng([seed, b])
            model = DirectRegressor(Fourier(length_scale=length_scale), b, random_state=seed)
            model.fit_features([[-1.0] * 3, [1.0] * 3])
            X = inputs_of(kind, min(n, 20_000), rng)
            found.append(one_draw(model, X, inputs_of(kind, 500, rng), float(n), epsilon, seed))
        print_line(f"{b} | {n} | {epsilon:g} | {kind}, length-scale {length_scale:g}", found)


def on_tables(folder: Path, names: list[str], epsilons: list[float], n_draws: int) -> None:
    """Print the same for inputs of real tables, each row counted until there are 100,000."""
    print_head()
    for name in names:
        X, _ = table_of(folder / f"{name}.npz")
        for epsilon in epsilons:
            found = []
            for seed in range(FIRST_SEED, FIRST_SEED + n_draws):
                model = DirectRegressor(Fourier(length_scale=np.sqrt(X.shape[1])), 100, random_state=seed)
                model.fit_features(np.outer([-1.0, 1.0], np.ones(X.shape[1])))
                order = np.random.default_rng(seed).permutation(len(X))
                found.append(one_draw(model, X[order[500:]], X[order[:500]], 1e5, epsilon, seed))
            print_line(f"100 | 100000 | {epsilon:g} | {name}", found)


def real(folder: Path, names: list[str], epsilons: list[float]) -> None:
    """Print scores of private and plain models of real tables on rows that are left out."""
    print("| table | rows | columns | features | ε | R² private | plain | y in 90 % intervals, private | plain |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        X, y = table_of(folder / f"{name}.npz")
        low, high = np.quantile(y, [0.005, 0.995])
        bounds = low - 0.1 * (high - low), high + 0.1 * (high - low)
        for features in ("linear", "fourier"):
            for epsilon in epsilons:
                found = []
                for seed in range(5):
                    test = np.random.default_rng(seed).random(len(X)) < 0.1
                    kind = "linear" if features == "linear" else Fourier(length_scale=np.sqrt(X.shape[1]))
                    model = DirectRegressor(kind, 100, random_state=seed)
                    model.fit_features(np.outer([-1.0, 1.0], np.ones(X.shape[1])))
                    plain = copy.deepcopy(model).partial_fit(X[~test], np.clip(y[~test], *bounds))
                    options = {"y_bounds": bounds, "budget": PrivacyBudget(epsilon, DELTA), "random_state": seed}
                    model.fit_statistics(model.private_statistics(X[~test], y[~test], **options))
                    intervals = [fitted.predict_interval(X[test], 0.9) for fitted in (model, plain)]
                    inside = [np.mean((lower < y[test]) & (y[test] < upper)) for lower, upper in intervals]
                    found.append([*(fitted.score(X[test], y[test]) for fitted in (model, plain)), *inside])
                values = " | ".join(f"{value:.3f}" for value in np.mean(found, axis=0))
                print(f"| {name} | {len(X)} | {X.shape[1]} | {features} | {epsilon:g} | {values} |", flush=True)


def sensitivity() -> None:
    """Print how far a search moves the sums by one row, in units of what the noise allows for."""
    print("| features | largest length found / bound |")
    print("|---|---|")
    rng = np.random.default_rng(0)
    kinds = {"fourier": Fourier(length_scale=1.0), "linear": "linear", "polynomial": "polynomial"}
    for kind, features in kinds.items():
        model = DirectRegressor(features, 20).fit_features([[-1.0] * 3, [1.0] * 3])
        basis, bound = model.features_, norm_bound_of(model.features_)

        def length(row: np.ndarray, basis=basis, bound=bound) -> float:
            """Length of a row's share of the sums over the bound."""
            gram, c, yty, n = clipped_sums(basis, row[None, :3], np.clip(row[3:], -1, 1), bound)
            square = np.sum(gram**2) / bound**4 + np.sum((WEIGHTS[0] * c / bound) ** 2)
            return float(np.sqrt(square + (WEIGHTS[1] * yty) ** 2 + (WEIGHTS[2] * n) ** 2) / SENSITIVITY)

        worst = 0.0
        for _ in range(50):
            start = rng.choice([0.3, 1, 3, 100]) * rng.standard_normal(4)
            worst = max(worst, -minimize(lambda row: -length(row), start, method="Nelder-Mead").fun)
        print(f"| {kind} | {worst:.9f} |", flush=True)


def merging() -> None:
    """Print how models of sites, merged, differ from one model of all rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100_000, 3))
    y = 1e3 + np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(len(X))
    shared = DirectRegressor(Fourier(length_scale=0.7), 200).fit_features([[-1.0] * 3, [1.0] * 3])
    sites = [copy.deepcopy(shared).partial_fit(X[k::50], y[k::50]) for k in range(50)]
    together, begin = copy.deepcopy(shared).partial_fit(X, y), time.process_time()
    merged = merge_models(sites)
    seconds = time.process_time() - begin
    print("| 50 sites, 100,000 rows, b = 200 | largest difference / spread |")
    print("|---|---|")
    for name, found, expected in zip(
        ("mean", "deviation"),
        merged.predict(X[:2000], return_std=True),
        together.predict(X[:2000], return_std=True),
        strict=True,
    ):
        print(f"| {name} | {np.abs(found - expected).max() / y.std():.1e} |")
    print(f"\nmerge_models took {seconds:.2f} s of processor time")


def main(arguments: list[str]) -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20, help="draws of functions and noise a line")
    parser.add_argument("--inputs", type=Path, help="folder of NPZ files whose inputs are taken")
    parser.add_argument("--real", type=Path, help="folder of NPZ files whose inputs and targets are taken")
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 3.0])
    parser.add_argument("--sensitivity", action="store_true")
    parser.add_argument("--merging", action="store_true")
    options = parser.parse_args(arguments)
    if options.inputs:
        on_tables(options.inputs, options.tables, options.epsilons, options.draws)
    elif options.real:
        real(options.real, options.tables, options.epsilons)
    elif options.sensitivity:
        sensitivity()
    elif options.merging:
        merging()
    else:
        simulated(options.draws)


if __name__ == "__main__":
    main(sys.argv[1:])
