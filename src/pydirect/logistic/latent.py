"""Likelihoods of one latent f per row: what inference needs of them, in expectation over f ~ N(m, v), and predictions.

A `LatentLikelihood` gives log p(y | f); everything else follows by quadrature over f, or is overridden by closed forms:
E log p, its derivative in m, E ∂ log p/∂f and, by Price's theorem, the second, E[z ∂ log p/∂f]/√v with z = (f − m)/√v,
which is what the passes of `pydirect.logistic` fit (Opper & Archambeau 2009).

- `IntervalLikelihood`: y = f + σε with Gaussian ε, of which a row says l < y ≤ u: exact (l = u), censored on the left,
  on the right, in an interval, below a detection limit, rounded. Rows may be seen only as y exceeds an entry e, whose
  log Pr(y > e | f) then is subtracted: log p stays concave, as the variance of ε within limits is less than above e.
- `ExtremeLikelihood`: the same with ε the log of an exponential: Weibull times on the log scale.
- `OrdinalLikelihood`: classes between increasing thresholds of f + ε.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from pydirect._validation import FloatArray, as_float_array_unbounded, as_target
from pydirect.logistic.likelihood import RowTerms, jaakkola_terms, label_log_probability, log_sum_exp, softmax_terms
from pydirect.persistence.schema import Ascending, Positive, Shape

# Numbers of Gauss–Hermite nodes up to ratios of the deviation of f to the likelihood's width, for nine digits. Beyond,
# the trapezoidal rule: ratios up to which it is used, its spacing in widths of the likelihood, and how far it reaches.
HERMITE = {0.25: 12, 1.0: 32}
RATIOS, SPACING, REACH = (2.5, 8.0, 64.0), 0.3, 8.5
# Values that are held at a time.
BLOCK = 2**20
# Deviation of f, relative to the likelihood's width, from which on derivatives are taken by quadrature.
LEAST_DEVIATION = 1e-4
# Farthest that parameters move at a time, and steps of the search for a constant.
FARTHEST, CONSTANT_STEPS = 3.0, 50
# Share of the rows' deviation about a constant that a fit takes for noise at first.
FIRST_SCALE = 0.7
# Precision of a row, relative to that of its width at first, up to which directions count as informative.
LARGEST_PRECISION = 100.0
# Of the search for quantiles.
MOST_DOUBLINGS, BISECTIONS = 60, 50
# Largest exponent of a hazard; only on the way to an optimum are there larger.
LARGEST_EXPONENT = 50.0
ROOT_TWO, LOG_ROOT = np.sqrt(2.0), 0.5 * np.log(2 * np.pi)
LEGENDRE, LEGENDRE_MASSES = np.polynomial.legendre.leggauss(10)


class LatentLikelihood:
    """p(y | f) of targets y, (n_rows, n_columns), and one latent f for each: a subclass gives `log_density` at least.

    Likelihoods are immutable; what they learn they return as a copy. Where log p is not concave in f, curvatures are
    taken as zero on average at the least.
    """

    takes_variance: ClassVar[bool] = False  # whether the third column of y is a known variance of noise

    def as_targets(self, y: Any, n_rows: int) -> FloatArray:
        """Return targets as the methods take them, (n_rows, n_columns), or raise."""
        return as_target(np.asarray(y, dtype=np.float64), n_rows)

    @property
    def parameters(self) -> FloatArray:
        """What is learned, in coordinates in which changes of some hundredths are none; empty if nothing is."""
        return np.empty(0)

    def with_parameters(self, parameters: FloatArray) -> Self:
        """Return the likelihood with other parameters."""
        raise NotImplementedError

    def log_density(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Log p(y | f) for y (n_rows, n_columns) at several f each, (n_rows, n_nodes)."""
        raise NotImplementedError

    def check_log_density(self, y: FloatArray, f: FloatArray) -> None:
        """Raise unless `log_density` returns numbers of the shape of f."""
        found = np.asarray(self.log_density(y, f))
        if found.shape != f.shape or np.isnan(found).any():
            got = "NaN" if found.shape == f.shape else f"shape {found.shape}"
            own = f"{type(self).__name__}.log_density(y, f), with y of shape {y.shape}"
            raise ValueError(f"{own}, must return numbers of the shape of f, {f.shape}, got {got}")

    def slope(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the derivative of `log_density` in f, by differences unless overridden."""
        step = 1e-4 * self.width(y)[:, None]
        return (self.log_density(y, f + step) - self.log_density(y, f - step)) / (2 * step)

    def width(self, y: FloatArray) -> FloatArray:
        """Return the distance in f over which log p(y | f) is smooth, (n_rows,)."""
        return np.ones(len(y))

    def guess(self, y: FloatArray) -> FloatArray:
        """Return the f that each row would have by itself, (n_rows,); by default the first column of y."""
        return y[:, 0]

    def first_guess(self, y: FloatArray, offset: FloatArray) -> FloatArray:
        """Return values of f, relative to their prior means `offset`, about which to expand first, (n_rows, 1)."""
        return self.guess(y)[:, None] - offset

    def largest_precision(self, y: FloatArray, offset: FloatArray) -> float:
        """Return what no row's precision exceeds at the parameters that may be found."""
        return LARGEST_PRECISION / float(self.width(y).min()) ** 2

    def started(self, y: FloatArray, weight: FloatArray) -> tuple[Self, float, float]:
        """Return the likelihood to start from, and the mean and the deviation of f over the rows that y lets expect."""
        guess = self.guess(y)
        self.check_log_density(y, guess[:, None] + self.width(y)[:, None] * np.linspace(-1, 1, 3))
        mean = float(np.average(guess, weights=weight))
        return self, mean, float(np.sqrt(np.average((guess - mean) ** 2, weights=weight))) or 1.0

    def improved(self, y: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray) -> Self:
        """Return the likelihood whose parameters maximise Σ ω E log p; arguments as of `terms`."""
        first = self.parameters
        if not first.size:
            return self

        def loss(theta: FloatArray) -> float:
            return -float(weight @ self.with_parameters(theta).terms(y, mean, variance).value) / float(weight.sum())

        bounds = list(zip(first - FARTHEST, first + FARTHEST, strict=True))
        return self.with_parameters(minimize(loss, first, method="L-BFGS-B", bounds=bounds).x)

    def terms(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate over Gaussian f: `mean` (n_rows, 1), `variance` (n_rows,)."""
        width = self.width(y)
        sd, found = np.maximum(np.sqrt(variance), LEAST_DEVIATION * width), np.empty((3, len(y)))
        for rows, nodes, masses in rules(sd / width):
            f = mean[rows] + sd[rows, None] * nodes
            slope = self.slope(y[rows], f)
            found[:, rows] = self.log_density(y[rows], f) @ masses, slope @ masses, slope @ (masses * -nodes) / sd[rows]
        return RowTerms(found[0], found[1][:, None], np.maximum(found[2], 0.0))

    def log_predictive(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Log E p(y | f), (n_rows,); all arguments but y are vectors."""
        sd, found = np.sqrt(variance), np.empty(len(y))
        for rows, nodes, masses in rules(sd / self.width(y)):
            log_density = self.log_density(y[rows], mean[rows, None] + sd[rows, None] * nodes)
            found[rows] = log_sum_exp(log_density + np.log(np.maximum(masses, 1e-300)))
        return found

    def cdf(self, values: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """E Pr(y* ≤ value | f) of new targets, (n_rows, n_values), of values that broadcast to that shape."""
        raise TypeError(f"{type(self).__name__} must have the method cdf for quantiles and intervals")

    def quantiles(self, mean: FloatArray, variance: FloatArray, levels: FloatArray) -> FloatArray:
        """Return values of new targets below which each level's probability lies, (n_rows, n_levels), by bisection."""
        low, high = (np.repeat(mean[:, None], len(levels), axis=1) for _ in range(2))
        reach = np.sqrt(variance + 1e-6 * (variance + 1))[:, None]
        for _ in range(MOST_DOUBLINGS):
            above, below = self.cdf(low, mean, variance) > levels, self.cdf(high, mean, variance) < levels
            if not (above.any() or below.any()):
                break
            low, high, reach = np.where(above, low - reach, low), np.where(below, high + reach, high), 2 * reach
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            above = self.cdf(middle, mean, variance) > levels
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return 0.5 * (low + high)


class SoftmaxLikelihood(LatentLikelihood):
    """Labels ±1, (n_rows, n_functions), of one logit for two classes, or of one per class: as of `softmax_terms`."""

    terms, log_predictive = staticmethod(softmax_terms), staticmethod(label_log_probability)

    def first_guess(self, y: FloatArray, offset: FloatArray) -> FloatArray:
        """Zeros."""
        return np.zeros(y.shape)

    def largest_precision(self, y: FloatArray, offset: FloatArray) -> float:
        return 0.25


class JaakkolaLikelihood(SoftmaxLikelihood):
    """Jaakkola and Jordan's bound on that of one logit."""

    terms = staticmethod(jaakkola_terms)


SOFTMAX, JAAKKOLA = SoftmaxLikelihood(), JaakkolaLikelihood()


def rules(ratio: FloatArray) -> Iterator[tuple[NDArray[np.intp], FloatArray, FloatArray]]:
    """Yield rows with nodes and masses of a standard normal, which suffice for their ratio of scales."""
    limits = (*HERMITE, *RATIOS)
    place = np.searchsorted(limits[:-1], ratio)
    for k in np.unique(place):
        if k < len(HERMITE):
            nodes, masses = np.polynomial.hermite_e.hermegauss(HERMITE[limits[k]])
        else:
            nodes = np.arange(-REACH, REACH, SPACING / limits[k])
            masses = np.exp(-0.5 * nodes**2)
        index = np.flatnonzero(place == k)
        for rows in np.array_split(index, 1 + len(index) * len(nodes) // BLOCK):
            yield rows, nodes, masses / masses.sum()


def log_normal_interval(a: FloatArray, b: FloatArray, width: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log of Φ(b) − Φ(a), without cancellation, and its derivatives in a shift of both and in b; `width` is b − a."""
    flipped = (a > -b) & (a > -np.inf) | (b == np.inf)  # so that b is the end that is nearer to zero
    a, b = np.where(flipped, -b, a), np.where(flipped, -a, b)
    bounded, whole = np.isfinite(a) & np.isfinite(b), ~(np.isfinite(a) | np.isfinite(b))
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        middle = np.where(bounded, 0.5 * (a + b), 0.0)
        tilt = np.where(bounded, width * middle, -np.inf)  # log φ(a)/φ(b)
        hazard = np.sqrt(2 / np.pi) / erfcx(-b / ROOT_TWO)  # φ(b)/Φ(b)
        ratio = np.where(b < 0, tilt + np.log(erfcx(-a / ROOT_TWO) / erfcx(-b / ROOT_TWO)), log_ndtr(a) - log_ndtr(b))
        ratio = np.where(bounded, ratio, -np.inf)  # log Φ(a)/Φ(b)
        log_mass, at_end = log_ndtr(b) + np.log(-np.expm1(ratio)), hazard / -np.expm1(ratio)
        narrow = bounded & (width <= 1.0) & (np.abs(tilt) <= 1.0)
        if narrow.any():  # an average of the density over the interval
            half, centre = 0.5 * width[narrow], middle[narrow]
            step = half[:, None] * LEGENDRE
            average = np.exp(-centre[:, None] * step - 0.5 * step**2) @ (0.5 * LEGENDRE_MASSES)
            log_mass[narrow] = np.log(2 * half * average) - 0.5 * centre**2 - LOG_ROOT
            at_end[narrow] = np.exp(-half * centre - 0.5 * half**2) / (2 * half * average)
        slope = -at_end * np.expm1(tilt)  # (φ(b) − φ(a)) over the mass
        slope, upper = np.where(flipped, -slope, slope), at_end * np.where(flipped, np.exp(tilt), 1.0)
    return np.where(whole, 0.0, log_mass), np.where(whole, 0.0, slope), np.where(whole, 0.0, upper)


def require_no_dates(given: NDArray[Any], name: str) -> None:
    """Raise if there are dates or durations."""
    if given.dtype.kind in "mM":
        raise TypeError(f"{name} must hold numbers, got {given.dtype}: divide durations by a unit of time")


def as_numbers(y: Any, name: str) -> FloatArray:
    """Return y as an array of floats, None and missing values of pandas as NaN; or raise."""
    given = np.asarray(y)
    require_no_dates(given, name)
    if given.dtype == object:
        missing = [value is None or type(value).__name__ == "NAType" for value in given.ravel()]
        given = np.where(np.reshape(missing, given.shape), np.nan, given)
    try:
        return given.astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{name} must hold numbers: {error}") from None


def as_limits(y: Any, n_rows: int, name: str = "y") -> FloatArray:
    """Return lower and upper limits and a variance of zero, (n_rows, 3), from values or limits; or raise."""
    given = as_numbers(y, name)
    given = as_float_array_unbounded(given[:, None] if given.ndim == 1 else given, name, (n_rows, "n_columns"))
    if given.shape[1] > 2:
        raise ValueError(f"{name} must have one column, of values, or two, of limits, got {given.shape[1]}")
    lower, upper = given[:, 0], given[:, -1]
    lower, upper = np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
    wrong = ~(lower <= upper) | (lower == np.inf) | (upper == -np.inf)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{name} must have lower limits up to the upper ones, got {lower[row]:g} and {upper[row]:g} in row {row}"
        )
    return np.column_stack([lower, upper, np.zeros(n_rows)])


def is_late(y: FloatArray) -> NDArray[np.bool_]:
    """Whether targets of an `IntervalLikelihood` have an entry."""
    return np.asarray((y[:, 3:] > -np.inf).any(axis=1))


class LimitsLikelihood(LatentLikelihood):
    """l < f + ε ≤ u with normal ε of the deviation `width`; where l = u the density."""

    def limits(self, y: FloatArray) -> FloatArray:
        """Return l and u of every row, (n_rows, 2)."""
        return y[:, :2]

    def guess(self, y: FloatArray) -> FloatArray:
        """Return the value, the middle of the interval, or its only end; zero if there is none."""
        lower, upper = (np.where(np.isfinite(end), end, np.nan) for end in self.limits(y).T)
        some = np.where(np.isnan(lower), upper, np.where(np.isnan(upper), lower, 0.5 * (lower + upper)))
        return np.nan_to_num(some)

    def log_density(self, y: FloatArray, f: FloatArray) -> FloatArray:
        return self._observed(y, f)[0]

    def slope(self, y: FloatArray, f: FloatArray) -> FloatArray:
        return self._observed(y, f)[1]

    def _observed(self, y: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log density or mass of what is seen, and its derivative in f."""
        return self._log_mass(self.limits(y), self.width(y), f)

    def _in_closed_form(self, y: FloatArray) -> NDArray[np.bool_]:
        """Whether rows have exact values, and nothing else is known."""
        lower, upper = self.limits(y).T
        return np.asarray(lower == upper)

    def _log_mass(self, limits: FloatArray, width: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log density or mass, and its derivative in f."""
        width, exact = width[:, None], limits[:, 0] == limits[:, 1]
        a, b = ((end[:, None] - f) / width for end in limits.T)
        value, slope = -0.5 * a**2 - LOG_ROOT - np.log(width), a / width
        if not exact.all():
            across = np.broadcast_to(np.diff(limits) / width, a.shape)[~exact]
            value[~exact], shift, _ = log_normal_interval(a[~exact], b[~exact], across)
            slope[~exact] = -shift / width[~exact]
        return value, slope

    def terms(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> RowTerms:
        """Integrate in closed form over exact values."""
        width, lower, exact = self.width(y), self.limits(y)[:, 0], self._in_closed_form(y)
        residual = (np.where(exact, lower, 0.0) - mean[:, 0]) / width**2
        value = -0.5 * (residual**2 * width**2 + variance / width**2) - np.log(width) - LOG_ROOT
        precision = width**-2.0
        if not exact.all():
            part = super().terms(y[~exact], mean[~exact], variance[~exact])
            value[~exact], residual[~exact] = part.value, part.residual[:, 0]
            precision[~exact] = np.minimum(part.precision, precision[~exact])
        return RowTerms(value, residual[:, None], precision)

    def log_predictive(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Log mass of a wider normal."""
        wider = np.sqrt(self.width(y) ** 2 + variance)
        return self._log_mass(self.limits(y), wider, mean[:, None])[0][:, 0]


@dataclass(frozen=True)
class IntervalLikelihood(LimitsLikelihood):
    """l < f + σε ≤ u with normal ε; columns of y: l, u, a known variance that adds to σ²; l = u is an exact value.

    A fourth column is optional: an entry e ≤ l, without exceeding which the row would not be there; −∞ is none.
    """

    takes_variance: ClassVar[bool] = True

    scale: Annotated[float, Positive] = 1.0

    def as_targets(self, y: Any, n_rows: int) -> FloatArray:
        return as_limits(y, n_rows)

    @property
    def parameters(self) -> FloatArray:
        return np.array([np.log(self.scale)])

    def with_parameters(self, parameters: FloatArray) -> Self:
        return replace(self, scale=float(np.exp(parameters[0])))

    def width(self, y: FloatArray) -> FloatArray:
        return np.sqrt(self.scale**2 + y[:, 2])

    def _observed(self, y: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Given that it exceeds its entry."""
        (value, slope), late = super()._observed(y, f), is_late(y)
        if late.any():
            above = np.column_stack([y[late, 3], np.full(late.sum(), np.inf)])
            of_entry = self._log_mass(above, self.width(y[late]), np.broadcast_to(f, value.shape)[late])
            value[late], slope[late] = value[late] - of_entry[0], slope[late] - of_entry[1]
        return value, slope

    def _in_closed_form(self, y: FloatArray) -> NDArray[np.bool_]:
        return super()._in_closed_form(y) & ~is_late(y)

    def log_predictive(self, y: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        found, late = super().log_predictive(y, mean, variance), is_late(y)
        found[late] = LatentLikelihood.log_predictive(self, y[late], mean[late], variance[late])
        return found

    def started(self, y: FloatArray, weight: FloatArray) -> tuple[Self, float, float]:
        """Fit a constant: the deviation about it is that of f and of the noise together."""
        if not np.isfinite(y[:, :2]).any(axis=0).all():
            raise ValueError("y must have finite lower and upper limits in some rows: all are censored on one side")
        _, mean, deviation = super().started(y, weight)
        found, zero = replace(self, scale=deviation), np.zeros(len(y))
        for _ in range(CONSTANT_STEPS):
            terms = found.terms(y, np.full((len(y), 1), mean), zero)
            step = float(weight @ terms.residual[:, 0]) / max(float(weight @ terms.precision), 1e-300)
            mean += float(np.clip(step, -found.scale, found.scale))
            last, found = found.scale, found.improved(y, np.full((len(y), 1), mean), zero, weight)
            if abs(step) < 1e-3 * found.scale and abs(np.log(found.scale / last)) < 1e-3:
                break
        return replace(found, scale=FIRST_SCALE * found.scale), mean, found.scale

    def cdf(self, values: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        return np.asarray(ndtr((values - mean[:, None]) / np.sqrt(variance + self.scale**2)[:, None]))


@dataclass(frozen=True)
class ExtremeLikelihood(IntervalLikelihood):
    """l < f + σε ≤ u with ε the log of an exponential: Pr(ε > e) = exp(−exp e); y as of `IntervalLikelihood`."""

    takes_variance: ClassVar[bool] = False

    def _log_mass(self, limits: FloatArray, width: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray]:
        width, exact = width[:, None], limits[:, 0] == limits[:, 1]
        a, b = (np.minimum((end[:, None] - f) / width, LARGEST_EXPONENT) for end in limits.T)
        hazard, beyond = np.exp(a), np.where(np.isposinf(limits[:, 1:]), np.inf, np.exp(b))
        value, slope = a - hazard - np.log(width), (hazard - 1) / width
        if not exact.all():
            gap = (beyond - hazard)[~exact]
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                value[~exact] = np.log(-np.expm1(-gap)) - hazard[~exact]
                share = np.where(np.isposinf(gap), 0.0, np.where(gap > 0, gap / np.expm1(gap), 1.0))
            slope[~exact] = (hazard[~exact] - share) / width[~exact]
        return value, slope

    terms, log_predictive = LatentLikelihood.terms, LatentLikelihood.log_predictive

    def cdf(self, values: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        sd, values = np.sqrt(variance), np.broadcast_to(values, (len(mean), np.shape(values)[-1]))
        found = np.empty(values.shape)
        for rows, nodes, masses in rules(sd / self.scale):
            f = mean[rows, None] + sd[rows, None] * nodes
            for k in range(values.shape[1]):
                log_hazard = np.minimum((values[rows, k, None] - f) / self.scale, LARGEST_EXPONENT)
                found[rows, k] = (-np.expm1(-np.exp(log_hazard)) * masses).sum(axis=1)  # rows one by one: same bits
        return found


@dataclass(frozen=True)
class OrdinalLikelihood(LimitsLikelihood):
    """Class k if threshold k − 1 < f + ε ≤ threshold k, with normal ε; y, (n_rows, 1), are numbers of classes."""

    thresholds: Annotated[FloatArray, Shape("n_thresholds"), Ascending]

    @property
    def parameters(self) -> FloatArray:
        return self.thresholds

    def limits(self, y: FloatArray) -> FloatArray:
        ends, k = np.concatenate([[-np.inf], self.thresholds, [np.inf]]), y[:, 0].astype(np.intp)
        return np.column_stack([ends[k], ends[k + 1]])

    def started(self, y: FloatArray, weight: FloatArray) -> tuple[Self, float, float]:
        """Let the classes' shares be those of a latent of unit variance."""
        shares = np.bincount(y[:, 0].astype(np.intp), weight, minlength=len(self.thresholds) + 1)
        below = np.cumsum(shares / shares.sum())[:-1]
        return replace(self, thresholds=ROOT_TWO * np.asarray(ndtri(below))), 0.0, 1.0

    def improved(self, y: FloatArray, mean: FloatArray, variance: FloatArray, weight: FloatArray) -> OrdinalLikelihood:
        """Climb in the first threshold and the logs of the distances, from one Gaussian f after another."""
        first = np.concatenate([self.thresholds[:1], np.log(np.diff(self.thresholds))])
        k, sd = y[:, 0].astype(np.intp), np.sqrt(variance)

        def at(theta: FloatArray) -> OrdinalLikelihood:
            return replace(self, thresholds=np.cumsum(np.concatenate([theta[:1], np.exp(theta[1:])])))

        def loss(theta: FloatArray) -> tuple[float, FloatArray]:
            limits, value, gradient = at(theta).limits(y), 0.0, np.zeros(len(theta) + 2)
            for rows, nodes, masses in rules(sd):
                f = mean[rows] + sd[rows, None] * nodes
                a, b = (end[rows, None] - f for end in limits.T)
                found = log_normal_interval(a, b, np.broadcast_to(np.diff(limits[rows]), f.shape))
                log_mass, shift, upper = (weight[rows] * (part @ masses) for part in found)
                value += log_mass.sum()
                gradient += np.bincount(k[rows] + 1, upper, len(gradient))
                gradient += np.bincount(k[rows], shift - upper, len(gradient))
            inner = np.cumsum(gradient[-2:0:-1])[::-1]
            return -value / weight.sum(), -np.append(inner[:1], inner[1:] * np.exp(theta[1:])) / weight.sum()

        return at(minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": 10}).x)

    def cdf(self, values: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Probability of classes up to each number."""
        ends = np.append(self.thresholds, np.inf)[np.asarray(values, dtype=np.intp)]
        return np.asarray(ndtr((ends - mean[:, None]) / np.sqrt(1 + variance)[:, None]))
