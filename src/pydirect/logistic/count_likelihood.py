"""Likelihoods of counts: Poisson and negative binomial with mean μ = exp(z), and in expectation over Gaussian z.

With dispersion α, y has the mean μ and the variance μ + αμ²; α = 0 is Poisson's. With z ~ N(m, v),

- Poisson: E log p(y | z) = ym − exp(m + v/2) − log y!, in closed form.
- Negative binomial, r = 1/α: log p(y | z) = yu − (y + r) log(1 + exp u) + const with u = z − log r: the likelihood of
  y successes in y + r trials with the logit u, so that its expectation is the one that classification integrates
  (`pydirect.logistic.likelihood`).

Their first and second derivatives in m are the residual and minus the precision of a Gaussian regression, which is how
the weighted passes of `pydirect.logistic` fit them: by the variational bound of a Gaussian posterior (Opper &
Archambeau 2009), tight for the best Gaussian.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import betainc, betaln, expit, gammaincc, gammaln, log_expit, ndtr, polygamma
from scipy.stats import nbinom

from pydirect._validation import FloatArray, as_count, as_generator, as_number
from pydirect.logistic.latent import LatentLikelihood
from pydirect.logistic.likelihood import RowTerms, expected_likelihood, log_sum_exp
from pydirect.persistence.schema import AtLeast

# Largest log mean whose exponential is taken: beyond it no count is that large.
LARGEST_LOG_MEAN = 100.0
# Log of how many times larger than its count the expected mean of a row can be: at no optimum, but on the way to it.
FARTHEST = 12.0
# Dispersions that are considered: with less, a negative binomial is Poisson's to all purposes.
LEAST_DISPERSION, MOST_DISPERSION = 1e-4, 1e2


@dataclass(frozen=True)
class CountLikelihood(LatentLikelihood):
    """Poisson or negative binomial likelihood of counts y with mean exp(z)."""

    dispersion: Annotated[float, AtLeast(0.0)] = 0.0  # α of the variance μ + αμ²; 0 for Poisson

    @property
    def size(self) -> float:
        """Number of failures r = 1/α of the negative binomial, infinite for Poisson."""
        return 1 / self.dispersion if self.dispersion > 0 else np.inf

    def log_normaliser(self, y: FloatArray) -> FloatArray:
        """Return what log p(y | z) has beyond the terms in z: −log y!, or log Γ(y + r)/(Γ(r) y!), the shape of y."""
        if self.dispersion == 0:
            return np.asarray(-gammaln(y + 1))
        return np.asarray(-betaln(self.size, y + 1) - np.log(y + self.size))

    def log_density(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Log p(y | f); arguments broadcast against each other."""
        if self.dispersion == 0:
            return y * f - _exp(f) + self.log_normaliser(y)
        u = f - np.log(self.size)
        return np.asarray(y * log_expit(u) + self.size * log_expit(-u) + self.log_normaliser(y))

    def guess(self, y: FloatArray) -> FloatArray:
        return np.log(y[:, 0] + 0.5)

    def derivatives(self, y: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the derivative of log p(y | z) in z, and minus its second derivative."""
        if self.dispersion == 0:
            rate = np.exp(np.minimum(z, LARGEST_LOG))
            return y - rate, rate
        share = expit(z - np.log(self.size))
        return y - (y + self.size) * share, (y + self.size) * share * (1 - share)

    def terms(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate over Gaussian z: `y` and `mean` (n_rows, 1), `variance` (n_rows,)."""
        count, m = y[:, 0], mean[:, 0]
        if self.dispersion == 0:
            rate, slope, curvature = _continued_exp(m + 0.5 * variance, np.log(count + 1) + FARTHEST)
            return RowTerms(count * m - rate + self.log_normaliser(count), (count - slope)[:, None], curvature)
        u, trials = m - np.log(self.size), count + self.size
        expected = expected_likelihood(u, variance)
        value = count * u - trials * expected.log_partition + self.log_normaliser(count)
        return RowTerms(value, (count - trials * expected.probability)[:, None], trials * expected.curvature)

    def at_best(self, y: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray) -> CountLikelihood:
        """Return the negative binomial whose dispersion maximises Σ ω E log p(y | z); arguments as of `terms`."""

        def at(log_dispersion: float) -> CountLikelihood:
            return CountLikelihood(float(np.exp(log_dispersion)))

        def loss(log_dispersion: float) -> float:
            return -float(weight @ at(log_dispersion).terms(y, mean, variance).value)

        limits = (np.log(LEAST_DISPERSION), np.log(MOST_DISPERSION))
        return at(minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-3}).x)

    @property
    def parameters(self) -> FloatArray:
        return np.log([self.dispersion]) if self.dispersion > 0 else np.empty(0)

    def improved(self, y: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray) -> CountLikelihood:
        return self.at_best(y, mean, variance, weight) if self.dispersion > 0 else self

    def first_guess(self, y: FloatArray, offset: FloatArray) -> FloatArray:
        """Return log rates, relative to their prior means, about which to expand first: half-way to the counts."""
        return np.asarray(np.log((y + _exp(offset)) / (2 * _exp(offset))))

    def largest_precision(self, y: FloatArray, offset: FloatArray) -> float:
        return float(np.maximum(y, np.exp(offset)).max())

    def log_predictive(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Log E p(y | f), (n_rows,), to about ten digits, by nodes about the mode of the integrand."""
        y, found, known = y[:, 0], np.empty(len(y)), variance == 0
        found[known] = self.log_density(y[known], mean[known])
        mode, width = self._mode(y, mean, variance)
        spacing = np.minimum(SPACING * width, LARGEST_SPACING)
        reach = min(np.ceil(REACH * np.max(width / spacing, initial=1.0)), MOST_STEPS)
        steps, index = np.arange(-reach, reach + 1), np.flatnonzero(~known)
        for rows in np.array_split(index, 1 + len(index) * len(steps) // BLOCK):
            z, sd = mode[rows, None] + spacing[rows, None] * steps, np.sqrt(variance[rows])
            terms = self.log_density(y[rows, None], z) - 0.5 * ((z - mean[rows, None]) / sd[:, None]) ** 2
            found[rows] = log_sum_exp(terms) + np.log(spacing[rows] / sd) - 0.5 * np.log(2 * np.pi)
        return np.minimum(found, 0.0)

    def _mode(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return where N(z; m, v) p(y | z) is largest, and its width there, by Newton's method from above."""
        variance = np.maximum(variance, np.finfo(float).tiny)
        z = np.minimum(mean + variance * y, np.maximum(mean, np.log(y + 1.0)))
        for _ in range(NEWTON_STEPS):
            slope, curvature = self.derivatives(y, z)
            step = (slope - (z - mean) / variance) / (curvature + 1 / variance)
            z = z + np.clip(step, -2.0, 2.0)
            if (np.abs(step) <= 1e-6).all():
                break
        return z, 1 / np.sqrt(self.derivatives(y, z)[1] + 1 / variance)


POISSON = CountLikelihood()


def likeliest_dispersion(y: FloatArray, offset: FloatArray, weight: FloatArray) -> float:
    """Return the dispersion that is likeliest for counts whose log means are `offset`, (n_rows,)."""
    return CountLikelihood().at_best(y[:, None], offset[:, None], np.zeros(len(y)), weight).dispersion


def _continued_exp(z: FloatArray, limit: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return exp(z), continued beyond a limit by its Taylor polynomial of degree two, and its first two derivatives.

    The bound is then the same wherever an optimum can be, concave everywhere, and steps that went too far come back.
    """
    value, beyond = _exp(np.minimum(z, limit)), np.maximum(z - limit, 0.0)
    return value * (1 + beyond + 0.5 * beyond**2), value * (1 + beyond), value


def _exp(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.minimum(z, LARGEST_LOG_MEAN)))


# Nodes of the trapezoidal rule in widths of the integrand, whose tails may fall off more slowly than its middle; and
# the largest distance of nodes, as exp(−exp z) is analytic in a strip of the width π alone.
REACH, SPACING = 22.0, 0.6
LARGEST_SPACING = 0.4
NEWTON_STEPS = 60
# Most steps to either side of the mode: only a fit that has diverged would take more.
MOST_STEPS = 2**12
# Entries of nodes held at a time, and hardly more nodes than there are for a row.
BLOCK, NODES = 2**20, 500
# Largest log mean whose exponential is finite with room to square it.
LARGEST_LOG = 300.0
# Largest count that quantiles reach.
LARGEST_COUNT = 2.0**53


@dataclass(frozen=True)
class CountDistribution:
    """Distribution of counts: Poisson or negative binomial with log means that are Gaussian."""

    log_mean: FloatArray  # (n_rows,): mean of the log of μ
    log_variance: FloatArray  # (n_rows,): its variance: what is not known about μ
    dispersion: float = 0.0  # α of the variance μ + αμ² at a known μ; 0 for Poisson

    @property
    def n_rows(self) -> int:
        """Number of distributions."""
        return len(self.log_mean)

    @property
    def mean(self) -> FloatArray:
        """E y = exp(m + v/2), (n_rows,)."""
        return np.exp(np.minimum(self.log_mean + 0.5 * self.log_variance, LARGEST_LOG))

    @property
    def variance(self) -> FloatArray:
        """Var y = E μ + α E μ² + Var μ, (n_rows,)."""
        square = np.exp(2 * np.minimum(self.log_mean + 0.5 * self.log_variance, LARGEST_LOG))
        growth = np.minimum(self.log_variance, LARGEST_LOG / 3)
        return self.mean + square * (np.expm1(growth) + self.dispersion * np.exp(growth))

    @property
    def std(self) -> FloatArray:
        """Standard deviation of y, (n_rows,)."""
        return np.sqrt(self.variance)

    def log_probability(self, y: ArrayLike) -> FloatArray:
        """Log p(y) of one count, of one per row, (n_rows,), or of several, (n_rows, n_counts)."""
        likelihood = CountLikelihood(self.dispersion)
        return self._of_counts(lambda y, *known: likelihood.log_predictive(y[:, None], *known), y, 0.0)

    def probability(self, counts: ArrayLike) -> FloatArray:
        """Probability of each of some counts at every row, (n_rows, n_counts)."""
        wanted = as_counts(counts, "counts").reshape(1, -1)
        return np.exp(self.log_probability(np.repeat(wanted, self.n_rows, axis=0)))

    def cdf(self, y: ArrayLike) -> FloatArray:
        """Pr(count ≤ y), for one y, one per row, (n_rows,), or several, (n_rows, n_counts); 0 for y = −1."""
        return self._of_counts(partial(probability_up_to, dispersion=self.dispersion), y, -1.0)

    def quantile(self, levels: ArrayLike) -> FloatArray:
        """Smallest counts k with Pr(y ≤ k) of at least each level, (n_rows, n_levels), or (n_rows,) of a number."""
        wanted = np.asarray(levels, dtype=np.float64)
        if not ((wanted > 0) & (wanted < 1)).all():
            raise ValueError(f"levels must be between 0 and 1, got {wanted.ravel()[:3].tolist()}")
        found = [self._quantile(float(level)) for level in wanted.ravel()]
        return found[0] if wanted.ndim == 0 else np.stack(found, axis=1)

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Return the quantiles between which y lies, both included, with a probability of at least `level`."""
        tail = 0.5 * (1 - as_number(level, "level", above=0.0, below=1.0))
        return self._quantile(tail), self._quantile(1 - tail)

    def sample(self, n_samples: int = 1, random_state: np.random.Generator | int | None = 0) -> FloatArray:
        """Draw counts, rows independently of each other, (n_rows, n_samples)."""
        rng, shape = as_generator(random_state), (self.n_rows, as_count(n_samples, "n_samples"))
        z = self.log_mean[:, None] + np.sqrt(self.log_variance)[:, None] * rng.standard_normal(shape)
        return draw_counts(z, self.dispersion, rng)

    def randomised_pit(self, y: ArrayLike, random_state: np.random.Generator | int | None = 0) -> FloatArray:
        """Pr(count < y) + u p(y) with uniform u, (n_rows,): uniform if the distributions are right (Smith 1985)."""
        below, up_to = self.cdf(as_counts(y, "y") - 1), self.cdf(y)
        return np.asarray(below + as_generator(random_state).random(self.n_rows) * (up_to - below))

    def _of_counts(self, function: Callable[..., FloatArray], y: ArrayLike, least: float) -> FloatArray:
        """Return a function of every count, log mean and its variance; the shape of y, (n_rows,) of a number."""
        counts = as_counts(y, "y", least)
        if counts.ndim == 0:
            counts = np.full(self.n_rows, counts)
        if counts.ndim not in (1, 2) or len(counts) != self.n_rows:
            raise ValueError(f"y must have {self.n_rows} rows, got shape {counts.shape}")
        known = (np.broadcast_to(v, counts.T.shape).T.ravel() for v in (self.log_mean, self.log_variance))
        return function(counts.ravel(), *known).reshape(counts.shape)

    def _quantile(self, level: float) -> FloatArray:
        """Bracket the quantile, from that of a negative binomial of the same moments, and bisect."""

        def reached(counts: FloatArray, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            known = self.log_mean[rows], self.log_variance[rows]
            return probability_up_to(counts[rows], *known, self.dispersion) >= level

        mean = np.clip(self.mean, 1e-9, LARGEST_COUNT / 4)
        excess = np.clip(self.variance / mean - 1, 1e-9, 1e9)
        guess = nbinom.ppf(level, mean / excess, 1 / (1 + excess))
        high = np.where(np.isfinite(guess), np.clip(guess, 0.0, LARGEST_COUNT), 0.0)
        low, rows, step = high - 1, np.arange(self.n_rows), 1.0
        while len(rows):  # until Pr(y ≤ low) < level ≤ Pr(y ≤ high)
            below = rows[~reached(high, rows)]
            above = np.setdiff1d(rows, below)
            above = above[reached(low, above)]
            low[below], high[above] = high[below], low[above]
            high[below] = np.minimum(high[below] + step, LARGEST_COUNT)
            low[above] = np.maximum(low[above] - step, -1.0)
            rows, step = np.concatenate([below[low[below] < LARGEST_COUNT], above]), 2 * step
        while len(rows := np.flatnonzero(high - low > 1)):
            middle = np.floor(0.5 * (low + high))
            enough = reached(middle, rows)
            high[rows[enough]], low[rows[~enough]] = middle[rows[enough]], middle[rows[~enough]]
        return high


def as_counts(y: ArrayLike, name: str, least: float = 0.0) -> FloatArray:
    """Return counts as floats; raise unless they are whole numbers from `least` on."""
    counts = np.asarray(y, dtype=np.float64)
    wrong = ~((counts >= least) & (counts == np.floor(counts)) & (counts < LARGEST_COUNT))
    if wrong.any():
        found = f"got {counts[wrong][0]:.17g}"
        raise ValueError(f"{name} must hold counts, whole numbers from {least:g} to 2**53 - 1, {found}")
    return counts


def draw_counts(z: FloatArray, dispersion: float, rng: np.random.Generator) -> FloatArray:
    """Draw counts with log means z, of any shape."""
    rate = np.exp(np.minimum(z, 42.0))  # NumPy draws no larger ones
    if dispersion > 0:
        rate = np.minimum(rng.gamma(1 / dispersion, dispersion * rate), np.exp(42.0))
    return rng.poisson(rate).astype(np.float64)


def probability_up_to(k: FloatArray, mean: FloatArray, variance: FloatArray, dispersion: float) -> FloatArray:
    """Pr(y ≤ k) for Gaussian log means, (n,); all arguments but the last (n,), k from −1 on."""
    size, sd = CountLikelihood(dispersion).size, np.sqrt(variance)
    found, counted = np.zeros(len(k)), k >= 0
    width = np.sqrt(polygamma(1, np.maximum(k, 0) + 1) + (0.0 if np.isinf(size) else polygamma(1, size)))
    wide = sd > width
    for part, up_to in ((counted & ~wide, _sum_over_means), (counted & wide, _sum_over_thresholds)):
        index = np.flatnonzero(part)
        for rows in np.array_split(index, max(1, len(index) * NODES // BLOCK)):
            if len(rows):
                found[rows] = up_to(k[rows, None], mean[rows, None], sd[rows, None], size, width[rows, None])
    return np.clip(found, 0.0, 1.0)


def _sum_over_means(k: FloatArray, mean: FloatArray, sd: FloatArray, size: float, width: FloatArray) -> FloatArray:
    """E Pr(T_k > z) over nodes of z."""
    spacing = min(0.5, LARGEST_SPACING / float(sd.max())) if sd.any() else 0.5
    deviates = np.arange(-8.5, 8.5 + spacing, spacing)
    masses = np.exp(-0.5 * deviates**2)
    masses /= masses.sum()
    z = mean + sd * deviates
    if np.isinf(size):
        return np.asarray(gammaincc(k + 1, np.exp(np.minimum(z, LARGEST_LOG))) @ masses)
    return np.asarray(betainc(size, k + 1, expit(np.log(size) - z)) @ masses)


def _sum_over_thresholds(k: FloatArray, mean: FloatArray, sd: FloatArray, size: float, width: FloatArray) -> FloatArray:
    """E Φ((T_k − m)/sd) over nodes of T_k."""
    poisson = np.isinf(size)
    mode = np.log(k + 1) if poisson else np.log(k + 1) - np.log(size)
    spacing = np.minimum(0.25 * width, 0.25)
    steps = np.arange(-np.ceil(45 * float((width / spacing).max())), np.ceil(20 * float((width / spacing).max())) + 1)
    t = mode + spacing * steps
    if poisson:
        log_density = (k + 1) * (t - mode) - (k + 1) * np.expm1(t - mode)
    else:
        log_density = np.asarray(-(k + 1) * np.logaddexp(0, -t) - size * np.logaddexp(0, t))
        log_density -= log_density.max(axis=1, keepdims=True)
        t = t + np.log(size)
    density = np.exp(log_density)
    return np.asarray((ndtr((t - mean) / sd) * density).sum(axis=1) / density.sum(axis=1))
