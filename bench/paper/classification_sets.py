"""Data sets of `classification.py`: scikit-learn's own, and synthetic ones whose true probabilities are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

COVTYPE_SHARES = (0.365, 0.488, 0.062, 0.005, 0.016, 0.029, 0.035)
COVTYPE_ELEVATIONS = (3130, 2920, 2395, 2220, 2790, 2420, 3360)
COVTYPE_WIDTHS = (150, 220, 180, 120, 130, 160, 140)


@dataclass(frozen=True)
class Labelled:
    """Rows, labels 0, 1, … and, where they are known, the probabilities that labels were drawn with."""

    x: np.ndarray
    y: np.ndarray
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class DataSet:
    """How rows come; `n_rows` of a synthetic set, how many of the five folds count, and our options that it needs."""

    load: Callable[..., Any]
    n_rows: int = 0
    max_folds: int = 5
    options: dict[str, Any] = field(default_factory=dict)

    def rows(self, n_rows: int | None) -> Labelled:
        """Rows of the set; of a synthetic one `n_rows`, or as many as it has by default."""
        if not self.n_rows:
            return Labelled(*self.load(return_X_y=True))
        rng = np.random.default_rng(0)
        x, logits, shares = self.load(rng, n_rows or self.n_rows)
        p = with_shares(logits, np.asarray(shares))
        return Labelled(x, (rng.random(len(p))[:, None] > p.cumsum(axis=1)[:, :-1]).sum(axis=1), p)


def with_shares(logits: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Probabilities ∝ exp(logits + intercept), the intercepts such that the classes have these shares."""
    intercept = np.log(shares)
    for _ in range(200):
        intercept += np.log(shares / softmax(logits + intercept, axis=1).mean(axis=0))
    return softmax(logits + intercept, axis=1)


def of_two(x: np.ndarray, z: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
    """Two classes, the second of which has logit z up to an intercept."""
    return x, np.column_stack([np.zeros_like(z), z]), (1 - share, share)


# --- synthetic sets: rows, logits up to intercepts, and shares of the classes


def linear(rng: np.random.Generator, n: int) -> Any:
    """Ten normal columns, logit linear in them."""
    x = rng.standard_normal((n, 10))
    return of_two(x, x @ np.linspace(1.5, -1.5, 10), 0.5)


def curved(rng: np.random.Generator, n: int) -> Any:
    """Ten normal columns; curved parts and an interaction."""
    x = rng.standard_normal((n, 10))
    return of_two(x, 2 * np.sin(2 * x[:, 0]) + 1.5 * x[:, 1] * x[:, 2] + x[:, 3] ** 2 + x[:, 4], 0.5)


def small(rng: np.random.Generator, n: int) -> Any:
    """Three rings in two of four columns: few rows and a smooth boundary, where an exact process is at its best."""
    x = rng.standard_normal((n, 4))
    radius = np.hypot(x[:, 0], x[:, 1])
    return x, -8 * (radius[:, None] - [0.4, 1.2, 2.0]) ** 2, (0.3, 0.4, 0.3)


def five(rng: np.random.Generator, n: int) -> Any:
    """Five classes in twelve columns: each logit a wave, a product and a kink of columns of its own."""
    x = rng.standard_normal((n, 12))
    logits = np.empty((n, 5))
    for k in range(5):
        a, b, c, d = rng.permutation(12)[:4]
        logits[:, k] = 3 * np.sin(2 * x[:, a] + k) + 1.5 * x[:, b] * x[:, c] + 1.5 * np.abs(x[:, d])
    return x, 1.5 * logits, (0.3, 0.25, 0.2, 0.15, 0.1)


def rare(rng: np.random.Generator, n: int) -> Any:
    """One row in a hundred is positive; the logit has curved parts and an interaction."""
    x = rng.standard_normal((n, 10))
    return of_two(x, 3 * np.sin(1.5 * x[:, 0]) + 2 * x[:, 1] * x[:, 2] + 1.5 * x[:, 3], 0.01)


def pockets(rng: np.random.Generator, n: int) -> Any:
    """One row in a hundred is positive, most of them in three small pockets of two columns each among twenty."""
    x = rng.standard_normal((n, 20))
    centres = np.array([[1.9, 1.2], [-2.1, 0.6], [0.0, -2.2]])
    distances = [((x[:, 2 * k : 2 * k + 2] - centre) ** 2).sum(axis=1) for k, centre in enumerate(centres)]
    return of_two(x, np.max([9 * np.exp(-25 * d**2) for d in distances], axis=0) + 0.5 * x[:, 6], 0.01)


def covtype(rng: np.random.Generator, n: int) -> Any:
    """Like the forest cover types: ten numbers, some skewed, four areas and forty soils as zeros and ones.

    Seven classes, two of them rare, follow elevation, each in a band of its own width, soils, areas and distances.
    """
    area = rng.choice(4, n, p=[0.45, 0.05, 0.43, 0.07])
    elevation = np.array([3000, 3150, 2930, 2330])[area] + 190 * rng.standard_normal(n)
    aspect, slope = rng.uniform(0, 360, n), rng.gamma(3.5, 4, n)
    to_water, above_water, to_road, to_fire = (rng.gamma(1.6, scale, n) for scale in (170, 30, 1450, 1250))
    sun = np.cos(np.radians(aspect[:, None] - [45, 180, 250])) * slope[:, None]
    shade = np.clip([212, 223, 142] + sun * [1.4, 0.8, 2.0] + 8 * rng.standard_normal((n, 3)), 0, 254)
    # Soils lie at heights of their own.
    heights, favour = rng.uniform(2100, 3500, 40), rng.standard_normal((40, 7))
    chances = softmax(-(((elevation[:, None] - heights) / 200) ** 2) + rng.standard_normal(40), axis=1)
    soil = (rng.random(n)[:, None] > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)

    logits = -(((elevation[:, None] - COVTYPE_ELEVATIONS) / COVTYPE_WIDTHS) ** 2) + 1.2 * favour[soil]
    logits += rng.standard_normal((4, 7))[area]
    logits[:, 0] += 2 * np.cos(np.radians(aspect)) * np.minimum(slope / 15, 2)
    logits[:, 1] += 2.5 * np.tanh((to_road - 2000) / 800) * np.tanh((to_fire - 1800) / 800)
    logits[:, 4] += 1.5 * (to_road < 1500) - (above_water > 60)
    logits[:, 3] += 2 * (to_water < 100)
    numbers = np.column_stack([elevation, aspect, slope, to_water, above_water, to_road, shade, to_fire])
    return np.hstack([numbers, np.eye(4)[area], np.eye(40)[soil]]), logits, COVTYPE_SHARES


SETS = {
    "iris": DataSet(load_iris),
    "wine": DataSet(load_wine),
    "breast_cancer": DataSet(load_breast_cancer),
    "digits": DataSet(load_digits),
    "small": DataSet(small, 600),
    "linear": DataSet(linear, 3_000),
    "five": DataSet(five, 6_000),
    "covtype": DataSet(covtype, 6_000),
    "rare": DataSet(rare, 10_000),
    "pockets": DataSet(pockets, 20_000),
    "large": DataSet(curved, 250_000, max_folds=1, options={"n_basis_functions": 300}),
}


# --- more sets, others of whose draws have chosen what several classes' probabilities are taken to the power of


def waves(rng: np.random.Generator, n: int) -> Any:
    """Two columns among six whose product turns the logit over several times."""
    x = rng.uniform(-2, 2, (n, 6))
    return of_two(x, 4 * np.sin(2 * x[:, 0] * x[:, 1]), 0.4)


def thresholds(rng: np.random.Generator, n: int) -> Any:
    """Eight columns, each of which adds to the logit beyond a threshold of its own."""
    x = rng.gamma(2.0, 1.0, (n, 8))
    steps = (x > rng.uniform(1, 3, 8)) @ rng.normal(0, 2, 8)
    return of_two(x, steps, 0.5)


def rotated_ellipses(rng: np.random.Generator, n: int) -> Any:
    """Seven Gaussians of five columns, each with a covariance of its own."""
    centre, turn = rng.normal(0, 1.5, (7, 5)), rng.normal(0, 1, (7, 5, 5))
    x = rng.standard_normal((n, 5)) * 1.8
    away = np.einsum("nkd,kde->nke", x[:, None] - centre, turn)
    return x, -0.5 * (away**2).sum(axis=2), np.full(7, 1 / 7)


def few_of_many(rng: np.random.Generator, n: int) -> Any:
    """Three columns among sixty, one of them by its square."""
    x = rng.standard_normal((n, 60))
    return of_two(x, 2 * x[:, 3] - 1.5 * x[:, 17] + x[:, 41] ** 2, 0.3)


def codes(rng: np.random.Generator, n: int) -> Any:
    """Four classes by sums of random effects of pairs of five codes from 0 to 4."""
    x = rng.integers(0, 5, (n, 5))
    effects = rng.normal(0, 2, (5, 5, 5, 4))
    return x.astype(float), sum(effects[k, x[:, k], x[:, (k + 1) % 5]] for k in range(5)), np.full(4, 0.25)


def heavy_columns(rng: np.random.Generator, n: int) -> Any:
    """Ten columns with heavy tails, a logit of their logarithms."""
    x = np.exp(1.5 * rng.standard_normal((n, 10)))
    logs = np.log(x)
    return of_two(x, logs[:, 0] - logs[:, 1] + np.sin(2 * logs[:, 2]), 0.5)


def bands(rng: np.random.Generator, n: int) -> Any:
    """Five classes in bands of one smooth score of seven columns."""
    x = rng.standard_normal((n, 7))
    score = x[:, 0] + np.tanh(2 * x[:, 1]) + 0.5 * x[:, 2] * x[:, 3]
    return x, -3 * (score[:, None] - np.linspace(-2, 2, 5)) ** 2, (0.1, 0.25, 0.3, 0.25, 0.1)


def spirals(rng: np.random.Generator, n: int) -> Any:
    """Three arms of a spiral in two of three columns."""
    x = rng.uniform(-1, 1, (n, 3))
    angle, radius = np.arctan2(x[:, 1], x[:, 0]), np.hypot(x[:, 0], x[:, 1])
    return x, 6 * np.cos(angle[:, None] - 5 * radius[:, None] - 2 * np.pi * np.arange(3) / 3), np.full(3, 1 / 3)


def majority(rng: np.random.Generator, n: int) -> Any:
    """Whether most of nine switches are on, with two columns of noise."""
    x = np.hstack([rng.integers(0, 2, (n, 9)), rng.standard_normal((n, 2))])
    return of_two(x, np.where(x[:, :9].sum(axis=1) > 4, 3.0, -3.0), 0.5)


def fifteen(rng: np.random.Generator, n: int) -> Any:
    """Fifteen classes, each near one of two centres in eight columns."""
    centre = rng.normal(0, 1.3, (15, 2, 8))
    x = rng.normal(0, 1.5, (n, 8))
    away = ((x[:, None, None] - centre) ** 2).sum(axis=3)
    return x, -1.2 * away.min(axis=2), np.full(15, 1 / 15)


def nearly_linear(rng: np.random.Generator, n: int) -> Any:
    """Twenty correlated columns and three classes, linear but for one bend."""
    x = rng.standard_normal((n, 20)) @ rng.normal(0, 0.4, (20, 20))
    return x, x[:, :10] @ rng.normal(0, 0.6, (10, 3)) + np.abs(x[:, :1]) * [0, 1, 0], (0.5, 0.3, 0.2)


def nothing(rng: np.random.Generator, n: int) -> Any:
    """Labels that ten columns say nothing about."""
    return of_two(rng.standard_normal((n, 10)), np.zeros(n), 0.25)


FRESH = {
    f"{load.__name__} {n}": DataSet(load, n)
    for load, sizes in (
        (waves, (500, 2000)),
        (thresholds, (160, 2000)),
        (rotated_ellipses, (500, 2000)),
        (few_of_many, (500, 2000)),
        (codes, (500, 2000)),
        (heavy_columns, (160, 1000)),
        (bands, (160, 1000)),
        (spirals, (300, 1000)),
        (majority, (300,)),
        (fifteen, (600, 2000)),
        (nearly_linear, (300,)),
        (nothing, (300,)),
    )
    for n in sizes
}


# --- public sets that packages bring along, and synthetic ones of other kinds: nothing was chosen on these either


def numbered(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows of numbers, and labels by number."""
    return np.asarray(x, dtype=float), np.unique(np.asarray(y), return_inverse=True)[1]


def of_river(name: str) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """A set of the package river."""

    def load(return_X_y: bool) -> tuple[np.ndarray, np.ndarray]:
        from river import datasets

        rows = list(getattr(datasets, name)())
        return numbered([list(row.values()) for row, _ in rows], [str(label) for _, label in rows])

    return load


def of_statsmodels(
    name: str, target: str, unused: tuple[str, ...] = ()
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """A set of the package statsmodels."""

    def load(return_X_y: bool) -> tuple[np.ndarray, np.ndarray]:
        import statsmodels.api as sm

        frame = getattr(sm.datasets, name).load_pandas().data
        return numbered(frame.drop(columns=[target, *unused]), frame[target])

    return load


def units(rng: np.random.Generator, n: int) -> Any:
    """Three classes by the outputs of a random network of ten tanh units on eight columns."""
    x = rng.standard_normal((n, 8))
    hidden = np.tanh(x @ rng.normal(0, 0.8, (8, 10)) + rng.standard_normal(10))
    return x, hidden @ rng.normal(0, 1.5, (10, 3)), (0.4, 0.35, 0.25)


def checks(rng: np.random.Generator, n: int) -> Any:
    """A board of five by five squares in two of five columns."""
    x = rng.uniform(0, 5, (n, 5))
    return of_two(x, np.where(np.floor(x[:, :2]).sum(axis=1) % 2, 2.5, -2.5), 0.5)


def rates(rng: np.random.Generator, n: int) -> Any:
    """Six classes that differ by the rates of twelve counts."""
    level = np.exp(rng.normal(0.5, 0.5, (6, 12)))
    y = rng.integers(0, 6, n)
    x = rng.poisson(level[y]).astype(float)
    return x, x @ np.log(level).T - level.sum(axis=1), np.full(6, 1 / 6)


def ridges(rng: np.random.Generator, n: int) -> Any:
    """Two classes by a sum of four ridges in nine columns, half of which say nothing."""
    x = rng.uniform(-2, 2, (n, 9))
    return of_two(x, 2.5 * np.sin(x[:, :5] @ rng.normal(0, 0.8, (5, 4))).sum(axis=1), 0.35)


def twelve(rng: np.random.Generator, n: int) -> Any:
    """Twelve classes of unequal size about centres in six columns, with a column of noise for each."""
    centre = rng.normal(0, 1.6, (12, 6))
    x = rng.normal(0, 1.7, (n, 12))
    return x, -0.9 * ((x[:, None, :6] - centre) ** 2).sum(axis=2), np.arange(1, 13) / 78


UNSEEN = {
    "phishing": DataSet(of_river("Phishing")),
    "segments": DataSet(of_river("ImageSegments")),
    "bananas": DataSet(of_river("Bananas")),
    "votes": DataSet(of_statsmodels("anes96", "vote")),
    "parties": DataSet(of_statsmodels("anes96", "PID")),
    **{name: SETS[name] for name in ("iris", "wine", "breast_cancer")},
    **{
        f"{load.__name__} {n}": DataSet(load, n) for load in (units, checks, rates, ridges, twelve) for n in (300, 1200)
    },
}
