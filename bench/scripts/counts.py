"""`DirectCountRegressor` beside scikit-learn's PoissonRegressor and LightGBM's Poisson objective, on counts.

Repeated cross-validation. Per set and model: the share of the Poisson deviance explained (D²), the mean log probability
of held-out counts, how many lie within 90 % intervals (a right one contains at least 90 %, by the steps of the counts),
the Kolmogorov-Smirnov distance of the randomised probability integral transform from uniform, and processor seconds of
a fit. The peers' rates get distributions in two ways: Poisson's, and a negative binomial whose dispersion is learned
from the training rows, of LightGBM from rows left out of the boosting. PoissonRegressor chooses its penalty by
cross-validation, LightGBM its number of trees by early stopping.

    python bench/scripts/counts.py simulated tables --csv FOLDER
    python bench/scripts/counts.py inference --csv FOLDER

FOLDER holds R's tables as <package>/<name>.csv (https://vincentarelbundock.github.io/Rdatasets). `choosing` are the
sets on which defaults were chosen, and none of the others. `inference` compares the variational bound with Laplace's
approximation on the same basis functions of these, prior variance and dispersion learned by either's evidence.
"""

from __future__ import annotations

import argparse
import csv
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import kstest
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pydirect import DirectCountRegressor
from pydirect.logistic import CountDistribution, CountLikelihood, LabelledRows, VariancePrior, ascend_latent
from pydirect.statistics import IdentityFeatures

# Package, table, count, exposure, columns that are left out, most rows.
TABLES = {
    "quine (days absent)": ("MASS", "quine", "Days", None, (), None),
    "bioChemists (articles)": ("pscl", "bioChemists", "art", None, (), None),
    "badhealth (visits)": ("COUNT", "badhealth", "numvisit", None, (), None),
    "Insurance (claims)": ("MASS", "Insurance", "Claims", "Holders", (), None),
    "ships (incidents)": ("MASS", "ships", "accident", "service", (), None),
    "warpbreaks (breaks)": ("datasets", "warpbreaks", "breaks", None, (), None),
    "rwm5yr (doctor visits)": ("COUNT", "rwm5yr", "docvis", None, ("id", "hospvis"), 4000),
}
CHOOSING = {
    "affairs": ("COUNT", "affairs", "naffairs", None, (), None),
    "azpro (days)": ("COUNT", "azpro", "los", None, ("hospital",), 2000),
    "epil (seizures)": ("MASS", "epil", "y", None, ("subject", "lbase", "lage"), None),
    "discoveries": ("datasets", "discoveries", "discoveries", None, (), None),
    "medpar (days)": ("COUNT", "medpar", "los", None, ("provnum", "type"), None),
}


@dataclass
class Problem:
    """Rows of numbers, counts and exposures."""

    x: np.ndarray
    y: np.ndarray
    exposure: np.ndarray

    def chosen(self, rows):
        return Problem(self.x[rows], self.y[rows], self.exposure[rows])


def simulated(rng, n=1000):
    """Yield names and problems with known likelihoods."""
    x = rng.uniform(-2, 2, (n, 4))
    linear = 0.5 + 0.6 * x[:, 0] - 0.4 * x[:, 1]
    smooth = 0.5 + np.sin(2 * x[:, 0]) + 0.4 * x[:, 1] * x[:, 2]
    ones, size = np.ones(n), rng.gamma(2, 10, n)
    yield "log-linear, Poisson", Problem(x, rng.poisson(np.exp(linear)), ones)
    yield "smooth, Poisson", Problem(x, rng.poisson(np.exp(smooth)), ones)
    yield "smooth, Poisson, means of 50", Problem(x, rng.poisson(np.exp(smooth + 3.4)), ones)
    yield "smooth, α = 0.5", Problem(x, rng.poisson(rng.gamma(2, np.exp(smooth) / 2)), ones)
    yield "smooth, Poisson, exposure", Problem(x, rng.poisson(size * np.exp(smooth - 2)), size)
    steps = np.where(x[:, 0] > 0.3, 1.5, 0.0) + np.where(x[:, 1] * x[:, 2] > 0, 0.7, -0.7)
    yield "steps, Poisson", Problem(x, rng.poisson(np.exp(steps)), ones)


def rare(rng, n=500):
    """Yield problems where approximations differ most: few counts, or few rows."""
    x = rng.uniform(-2, 2, (n, 3))
    smooth = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    yield "means of 0.15, Poisson", Problem(x, rng.poisson(np.exp(smooth - 2.3)), np.ones(n))
    yield "means of 0.5, α = 2", Problem(x, rng.poisson(rng.gamma(0.5, 2 * np.exp(smooth - 1))), np.ones(n))
    yield "100 rows, Poisson", Problem(x[:100], rng.poisson(np.exp(smooth[:100])), np.ones(100))


def tables(folder, which):
    """Yield names and problems of R's tables, with text as columns of 0 and 1."""
    for name, (package, table, target, exposure, left_out, most) in which.items():
        with open(folder / package / f"{table}.csv", newline="", encoding="utf-8") as file:
            header, *lines = [line for line in csv.reader(file) if "NA" not in line]
        columns = {key: [line[j] for line in lines] for j, key in enumerate(header) if key}
        y = np.array(columns.pop(target), dtype=float)
        size = np.ones(len(y)) if exposure is None else np.array(columns.pop(exposure), dtype=float)
        x = np.hstack([encoded(values) for key, values in columns.items() if key not in left_out])
        used = size > 0
        problem = Problem(x[used], y[used], size[used])
        if most is not None and used.sum() > most:
            problem = problem.chosen(np.random.default_rng(0).choice(used.sum(), most, replace=False))
        yield name, problem


def encoded(values):
    try:
        return np.array(values, dtype=float)[:, None]
    except ValueError:
        kinds = sorted(set(values))
        return np.array([[value == kind for kind in kinds[len(kinds) == 2 :]] for value in values], dtype=float)


# --- models: from a training and a test problem to names and distributions


def direct(train, test):
    model = DirectCountRegressor(n_threads=1).fit(train.x, train.y, exposure=train.exposure)
    yield "DirectCountRegressor", model.predict_distribution(test.x, test.exposure)


def poisson_regressor(train, test):
    pipeline = make_pipeline(StandardScaler(), PoissonRegressor(max_iter=2000))
    search = GridSearchCV(pipeline, {"poissonregressor__alpha": np.geomspace(1e-4, 10, 6)}, cv=5)
    search.fit(train.x, train.y / train.exposure, poissonregressor__sample_weight=train.exposure)
    yield from both("PoissonRegressor", search.predict, train, train, test)


def lightgbm_poisson(train, test):
    import lightgbm

    order = np.random.default_rng(0).permutation(len(train.y))
    held, used = order[: len(order) // 5], order[len(order) // 5 :]
    own, apart = train.chosen(used), train.chosen(held)
    model = lightgbm.LGBMRegressor(
        objective="poisson", n_estimators=1000, learning_rate=0.05, min_child_samples=10, n_jobs=1, verbose=-1
    )
    stopping = lightgbm.early_stopping(30, verbose=False)
    model.fit(
        own.x,
        own.y / own.exposure,
        own.exposure,
        eval_set=[(apart.x, apart.y / apart.exposure)],
        eval_sample_weight=[apart.exposure],
        callbacks=[stopping],
    )
    yield from both("LightGBM", model.predict, apart, train, test)


def both(name, predict, rows, train, test):
    """Yield Poisson distributions, and those with the dispersion by which `rows` are likeliest."""

    def log_mean(problem):
        return np.log(np.maximum(predict(problem.x), 1e-9) * problem.exposure)

    z, known = log_mean(rows), np.zeros(len(test.y))
    found = minimize_scalar(
        lambda log_dispersion: -CountLikelihood(np.exp(log_dispersion)).log_density(rows.y, z).sum(),
        bounds=(-9, 3),
        method="bounded",
    )
    yield f"{name}, Poisson", CountDistribution(log_mean(test), known)
    yield f"{name}, negative binomial", CountDistribution(log_mean(test), known, float(np.exp(found.x)))


# --- the variational bound beside Laplace's approximation


def inference(problems, n_repeats):
    """Print held-out scores of both approximations on the basis functions of a default model."""
    total = []
    print(f"{'set':32} {'log prob. VB, Laplace':>22} {'in 90 %':>13} {'dispersion':>13} {'seconds':>12}")
    for name, problem in problems:
        found = []
        for repeat in range(n_repeats):
            for train, test in KFold(5, shuffle=True, random_state=repeat).split(problem.x):
                found.append(both_approximations(problem.chosen(train), problem.chosen(test)))
        scores = np.mean(found, axis=0)
        total.append(scores)
        print(approximations_line(name, scores), flush=True)
    print(approximations_line("mean over the sets", np.mean(total, axis=0)))


def approximations_line(name, scores):
    log_probability, within, dispersion, seconds = scores
    return (
        f"{name:32} {log_probability[0]:11.4f}{log_probability[1]:11.4f} {within[0]:7.3f}{within[1]:6.3f} "
        f"{dispersion[0]:7.3f}{dispersion[1]:6.3f} {seconds[0]:6.2f}{seconds[1]:6.2f}"
    )


def both_approximations(train, test):
    """Return log probability, coverage, dispersion and seconds of the bound and of Laplace's, (4, 2)."""
    model = DirectCountRegressor(n_threads=1).fit(train.x, train.y, exposure=train.exposure)
    phi, fresh = model.features_.transform(train.x), model.features_.transform(test.x)
    offset = model.intercept_ + np.log(train.exposure)
    counts = CountLikelihood(max(model.dispersion_, 1e-3) if model.dispersion_ > 0 else 0.0)
    rows = LabelledRows(
        IdentityFeatures(phi.shape[1]), phi, train.y[:, None], np.ones(len(phi)), offset[:, None], counts
    )
    prior, scores = VariancePrior(1.0, 0.5), []
    for fit in (variational, laplace):
        begin = time.process_time()
        mean, covariance, dispersion = fit(rows, prior)
        seconds = time.process_time() - begin
        variance = np.einsum("ij,jk,ik->i", fresh, covariance, fresh)
        log_mean = model.intercept_ + np.log(test.exposure) + fresh @ mean
        distribution = CountDistribution(log_mean, variance, dispersion)
        lower, upper = distribution.interval(0.9)
        within = np.mean((lower <= test.y) & (test.y <= upper))
        scores.append((distribution.log_probability(test.y).mean(), within, dispersion, seconds))
    return np.transpose(scores)


def variational(rows, prior):
    found, ascent = ascend_latent(rows, prior, max_iter=1000, stop=threading.Event())
    posterior = ascent.best.posterior
    return posterior.mean[:, 0], posterior.root @ posterior.root.T, found.model.dispersion


def laplace(rows, prior):
    """Maximise Laplace's approximation to the evidence in the prior variance and the dispersion."""
    phi, y, offset, mode = rows.x, rows.t, rows.offset, np.zeros(rows.n_weights)
    known = np.zeros(len(y))

    def newton(variance, likelihood):
        """Return the mode, its Cholesky factor of the precision, and the log joint density there."""
        nonlocal mode

        def log_joint(w):
            terms = likelihood.terms(y, offset + phi @ w[:, None], known)
            return terms, terms.value.sum() - 0.5 * w @ w / variance

        terms, value = log_joint(mode)
        if not np.isfinite(value) or value < log_joint(np.zeros_like(mode))[1]:
            mode = np.zeros_like(mode)
            terms, value = log_joint(mode)
        for _ in range(50):
            precision = (phi.T * terms.precision) @ phi + np.eye(len(mode)) / variance
            step = np.linalg.solve(precision, phi.T @ terms.residual[:, 0] - mode / variance)
            share = 1.0
            while (tried := log_joint(mode + share * step))[1] < value - 1e-9 and share > 1e-4:
                share *= 0.5
            mode, gain = mode + share * step, tried[1] - value
            terms, value = tried
            if gain < 1e-6:
                break
        precision = (phi.T * terms.precision) @ phi + np.eye(len(mode)) / variance
        return precision, value

    def negative_evidence(theta):
        variance, likelihood = np.exp(theta[0]), CountLikelihood(np.exp(theta[1]) if len(theta) > 1 else 0.0)
        precision, value = newton(variance, likelihood)
        value -= 0.5 * len(mode) * theta[0] + 0.5 * np.linalg.slogdet(precision)[1]
        return -value + prior.penalty(variance)

    start = [0.0, np.log(rows.model.dispersion)] if rows.model.dispersion > 0 else [0.0]
    options = {"xatol": 0.02, "fatol": 0.01, "maxfev": 80}
    theta = minimize(negative_evidence, start, method="Nelder-Mead", options=options).x
    dispersion = float(np.exp(theta[1])) if len(theta) > 1 else 0.0
    precision, _ = newton(np.exp(theta[0]), CountLikelihood(dispersion))
    return mode, np.linalg.inv(precision), dispersion


def compare(problems, models, n_repeats):
    """Print a table of the sets' scores, and means over the sets."""
    total = {}
    print(f"{'set':30} {'model':36} {'D²':>7} {'log prob.':>9} {'in 90 %':>7} {'PIT':>6} {'seconds':>7}")
    for name, problem in problems:
        found = {}
        for repeat in range(n_repeats):
            for train, test in KFold(5, shuffle=True, random_state=repeat).split(problem.x):
                for model in models:
                    begin = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        predicted = list(model(problem.chosen(train), problem.chosen(test)))
                    seconds = time.process_time() - begin
                    for own, distribution in predicted:
                        y = problem.y[test]
                        lower, upper = distribution.interval(0.9)
                        rate = problem.y[train].sum() / problem.exposure[train].sum() * problem.exposure[test]
                        row = (
                            deviance(y, distribution.mean),
                            deviance(y, rate),
                            distribution.log_probability(y),
                            (lower <= y) & (y <= upper),
                            distribution.randomised_pit(y, repeat),
                            np.full(len(y), seconds),
                        )
                        found.setdefault(own, []).append(row)
        for own, rows in found.items():
            unexplained, null, log_probability, within, pit, seconds = (
                np.concatenate(part) for part in zip(*rows, strict=True)
            )
            scores = [1 - unexplained.sum() / null.sum(), log_probability.mean(), within.mean()]
            scores += [kstest(pit, "uniform").statistic, seconds.mean()]
            total.setdefault(own, []).append(scores)
            print(line(f"{name} ({len(problem.y)})", own, scores), flush=True)
    for own, scores in total.items():
        print(line("mean over the sets", own, np.mean(scores, axis=0)))


def line(name, own, scores):
    return "{:30} {:36} {:7.3f} {:9.4f} {:7.3f} {:6.3f} {:7.2f}".format(name, own, *scores)


def deviance(y, mean):
    with np.errstate(divide="ignore", invalid="ignore"):
        return 2 * (np.where(y > 0, y * np.log(y / mean), 0.0) - y + mean)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["simulated", "tables", "choosing", "inference"])
    parser.add_argument("--csv", type=Path, help="folder of R's tables")
    parser.add_argument("--repeats", type=int, default=2, help="of five-fold cross-validation")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="sets whose names contain one of these words")
    parser.add_argument("--direct-only", action="store_true", help="leave the peers out")
    arguments = parser.parse_args()
    models = [direct] if arguments.direct_only else [direct, poisson_regressor, lightgbm_poisson]
    for what in arguments.what:
        if what == "inference":
            sets = [*simulated(np.random.default_rng(2), 500), *rare(np.random.default_rng(3))]
            inference([*sets, *tables(arguments.csv, CHOOSING)], arguments.repeats)
            continue
        if what == "simulated":
            problems = simulated(np.random.default_rng(1))
        else:
            problems = tables(arguments.csv, TABLES if what == "tables" else CHOOSING)
        if arguments.only is not None:
            problems = [pair for pair in problems if any(word in pair[0] for word in arguments.only)]
        compare(problems, models, arguments.repeats)


if __name__ == "__main__":
    main()
