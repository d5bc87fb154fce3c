"""The evidence of continuous weights, and the noise and prior scale where it is largest.

From eigenvalues of A = ΦᵀΦ every noise and prior scale costs next to nothing. Without them, factorisations of
A + ridge I, ridge = noise / scale, do: one tells the evidence at a ridge for every noise variance, and so for the best
one, and how both change with the ridge. What is left is one equation in one unknown: where the evidence is largest,

    γ = ridge wᵀw / σ²,   w = (A + ridge I)⁻¹ c,   γ = tr A (A + ridge I)⁻¹

(MacKay 1992, *Bayesian interpolation*). Both sides are nearly powers of the ridge, so that extrapolating them finds the
maximum in one to four factorisations as a rule; an eigendecomposition costs nearly twenty. γ and its slope come from
random signs (Hutchinson 1990), the same at every ridge, and from differences of the exact log-determinants.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import median_high
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from pydirect._validation import FloatArray, as_number
from pydirect.optimize.cholesky import SINGLE_RANGE, factorise_ridge, solve_factored
from pydirect.statistics.gaussian import TargetStatistics
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, as_rotated_target

# Two parameters are found to rounding, so that data that differ by rounding only give models that do: what the last of
# Newton's steps in log units leaves is of the order of its square.
MOST_MOVES, LAST_MOVE, LONGEST_MOVE = 100, 1e-6, 3.0
# Random signs; up to so many weights, traces are computed.
N_PROBES, FEW_WEIGHTS = 64, 200
# Distance in log ridge at which Hermite's rule integrates γ more precisely than random signs know it.
NEAR = 2.0
# Relative error of what raises and what lowers the evidence, extrapolated by a step in log ridge, times its square.
EXTRAPOLATION_ERROR = 0.05
LONGEST_STEP, STEP_TOLERANCE, NEWTON_STEPS = 8.0, 1e-4, 30
# Nats: what the evidence may fall short of the maximum, and what a step must gain to be taken.
SHORTFALL, GAIN = 0.005, 1e-3
MOST_FACTORISATIONS = 16
# Up to this multiple of the ridge, the trace of A leaves single precision enough digits.
WELL_CONDITIONED = 3e5
# Bounds of the noise variance, in units of the targets' mean square, and of the ridge in units of the trace of A.
NOISE_RANGE, LARGEST_RIDGE = (1e-10, 1e4), 1e6
# Of yᵀy: rounding of sums in double precision.
ROUNDING, TINY = 1e-9, 1e-300


def log_evidence(rotated: RotatedTarget | RotatedStatistics, noise: float, scale: float) -> tuple[float, FloatArray]:
    """Log marginal likelihood with continuous Gaussian weights, and its gradient.

    ``log N(y; 0, noise I + scale ΦΦᵀ)`` from the eigenvalues λ of ΦᵀΦ and the projections c = VᵀΦᵀy:
    ``−½ [n log 2πσ² + Σ log(1 + tλ/σ²) + (yᵀy − Σ t c²/(σ² + tλ))/σ²]`` with t the prior variance.

    Parameters
    ----------
    rotated : RotatedStatistics or RotatedTarget
        Of one target; of several, ``rotated.target(k)``.
    noise : float
        σ²
    scale : float
        Prior variance t of the weights.

    Returns
    -------
    value : float
        In nats, and its gradient.
    gradient : ndarray of shape (2,)
        In log noise and log scale.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import log_evidence
    >>> from pydirect.statistics import decorrelate
    >>> rotated = decorrelate(GaussianStatistics.from_arrays([[1.0]], [2.0]))
    >>> value, gradient = log_evidence(rotated, noise=1.0, scale=3.0)  # log N(2; 0, 1 + 3)
    >>> bool(np.isclose(value, -0.5 * (np.log(2 * np.pi * 4) + 2**2 / 4)))
    True
    """
    return _evidence(as_rotated_target(rotated), noise, scale)[:2]


def _evidence(target: RotatedTarget, noise: float, scale: float) -> tuple[float, FloatArray, FloatArray]:
    """Return the log evidence, its gradient (2,) and its second derivatives (2, 2) in log noise and log scale."""
    n, spread = target.n_samples, scale * target.eigenvalues
    total = noise + spread  # variance of the data along each direction, times nothing else
    share, left = spread / total, noise / total  # how much of each direction the data determine, and what lacks to one
    fit = scale * target.c**2 / total
    pull = fit / total
    residual = max(target.yty - fit.sum(), 0.0) / noise
    value = -0.5 * (n * np.log(2 * np.pi * noise) + np.log1p(spread / noise).sum() + residual)
    determined, pulled, slope = share.sum(), pull.sum(), (share * left).sum()
    bend = 2 * (pull * left).sum()
    of_both = 0.5 * (slope - bend)
    curvature = [[-0.5 * (slope + residual - pulled - bend), of_both], [of_both, -0.5 * (slope + pulled - bend)]]
    gradient = [-0.5 * (n - determined - residual + pulled), -0.5 * (determined - pulled)]
    return float(value), np.array(gradient), np.array(curvature)


def maximise_evidence(
    rotated: RotatedTarget | RotatedStatistics,
    noise: float,
    scale: float = 1.0,
    *,
    fit_noise: bool = True,
    prior_sd: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """Noise variance and prior variance that maximise the evidence, from a start, by Newton's method.

    Parameters
    ----------
    rotated : RotatedStatistics or RotatedTarget
        Of one target; of several, ``rotated.target(k)``.
    noise : float
        Noise variance to start from.
    scale : float, default=1.0
        Prior variance to start from.
    fit_noise : bool, default=True
        Whether the noise variance is free.
    prior_sd : tuple of float, optional
        Standard deviations of Gaussian priors on log noise and log scale about the start: a start that is an estimate
        from the same data's neighbourhood keeps small data sets from running away.

    Returns
    -------
    noise, scale : float
        Where the evidence is largest.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import maximise_evidence
    >>> from pydirect.statistics import decorrelate
    >>> rng = np.random.default_rng(2)
    >>> phi, weights = rng.standard_normal((2000, 100)), rng.normal(0.0, 2.0, 100)
    >>> y = phi @ weights + rng.normal(0.0, 0.5, 2000)
    >>> noise, scale = maximise_evidence(decorrelate(GaussianStatistics.from_arrays(phi, y)), 1.0)
    >>> round(noise**0.5, 1), round(scale**0.5, 1)
    (0.5, 2.1)
    """
    target = as_rotated_target(rotated)
    start = np.log([noise, scale])
    tightness = np.zeros(2) if prior_sd is None else np.array(prior_sd) ** -2.0

    def negative(theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        value, gradient, curvature = _evidence(target, *np.exp(theta).tolist())
        away = tightness * (theta - start)
        return 0.5 * float(away @ (theta - start)) - value, away - gradient, np.diag(tightness) - curvature

    # Noise between a hundred-thousandth and a hundred of the targets' spread.
    middle = np.log(target.yty / target.n_samples) if target.yty > 0 else 0.0
    lower, upper = np.array([(middle - np.log(1e10), middle + np.log(1e4)), (np.log(1e-12), np.log(1e12))]).T
    value, gradient, curvature = negative(theta := np.clip(start, lower, upper))
    for _ in range(MOST_MOVES):
        free = ~((theta <= lower) & (gradient > 0) | (theta >= upper) & (gradient < 0)) & [fit_noise, True]
        move = _newton_move(gradient * free, curvature)
        while True:
            moved = np.clip(theta + move, lower, upper)
            found, is_last = negative(moved), np.abs(move).max() < LAST_MOVE
            if is_last or found[0] <= value:
                break
            move *= 0.25
        theta, (value, gradient, curvature) = moved, found
        if is_last:
            break
    found = np.exp(theta)
    return float(found[0]) if fit_noise else noise, float(found[1])


def _newton_move(gradient: FloatArray, curvature: FloatArray) -> FloatArray:
    """Return a step downhill, Newton's where the curvature, (2, 2), is positive; entries that rest have no slope.

    Its length in each parameter is bounded: far from the minimum the function is not quadratic.
    """
    free = gradient != 0
    curvature = np.where(np.outer(free, free), curvature, np.eye(2))
    (a, b), (_, c) = curvature.tolist()
    mean, root = 0.5 * (a + c), np.hypot(0.5 * (a - c), b)
    if mean - root < 1e-8 * (abs(mean) + root):  # a saddle: positive in all directions by as much as in the steepest
        shift = 2 * root - mean + abs(mean)
        a, c = a + shift, c + shift
    move = np.array([b * gradient[1] - c * gradient[0], b * gradient[0] - a * gradient[1]]) / (a * c - b * b)
    return move / max(1.0, float(np.abs(move).max()) / LONGEST_MOVE)


# --- by factorisations


@dataclass(frozen=True)
class EvidenceProblem:
    """One target, and where the search for its noise variance and prior variance begins.

    Attributes
    ----------
    statistics : TargetStatistics
    noise, scale : float
        Start: noise variance and prior variance of the weights.
    fit_noise : bool, default=True
        Whether the noise variance is free.
    prior_sd : tuple of float, optional
        Standard deviations of Gaussian priors on log noise and log scale about the start.
    """

    statistics: TargetStatistics
    noise: float
    scale: float
    fit_noise: bool = True
    prior_sd: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        as_number(self.noise, "noise", above=0.0)
        as_number(self.scale, "scale", above=0.0)


@dataclass(frozen=True)
class EvidenceMaximum:
    """Where the evidence of one target is largest.

    Attributes
    ----------
    noise, scale : float
        Noise variance and prior variance of the weights.
    log_evidence : float
        Log marginal likelihood there, without priors on noise and scale. Extrapolated by a short step from an exact
        value, usually to some hundredths of a nat.
    n_factorisations : int
        Factorisations that were made for all targets together.
    """

    noise: float
    scale: float
    log_evidence: float
    n_factorisations: int


def maximise_evidence_by_factors(problems: Sequence[EvidenceProblem]) -> list[EvidenceMaximum]:
    """Noise variance and prior variance of largest evidence, for targets that share A.

    Parameters
    ----------
    problems : sequence of EvidenceProblem
        Their statistics must hold the same array A: every factorisation serves all of them.

    Returns
    -------
    list of EvidenceMaximum
        Within a few hundredths of a nat of a maximum, and never below the start of the first problem.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.linear import EvidenceProblem, maximise_evidence_by_factors
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((500, 20))
    >>> y = phi @ rng.standard_normal((20, 2)) + rng.standard_normal((500, 2)) * [0.1, 0.5]
    >>> sums = GaussianStatistics.from_arrays(phi, y)
    >>> found = maximise_evidence_by_factors([EvidenceProblem(sums.target(k), 1.0, 1.0) for k in range(2)])
    >>> [round(own.noise**0.5, 1) for own in found]
    [0.1, 0.5]
    """
    if not problems:
        return []
    a = problems[0].statistics.A
    if any(problem.statistics.A is not a for problem in problems):
        raise ValueError("problems must share A, got statistics with different arrays: search for each apart")
    ridges = _Ridges(a, [problem.statistics for problem in problems])
    searches = [_FactorSearch(problem, k, ridges) for k, problem in enumerate(problems)]
    wanted = {searches[0]: searches[0].start}
    unresolved = searches
    while unresolved and len(ridges.solved[0]) < MOST_FACTORISATIONS:
        ridges.solve(median_high(wanted.values()))
        wanted = {search: ridge for search in unresolved if (ridge := search.next_ridge()) is not None}
        unresolved = list(wanted)
    return [search.maximum() for search in searches]


@dataclass(frozen=True)
class _Solution:
    """What a factorisation of A + ρI says of one target; a dot is a derivative in log ρ.

    - `log_ridge`: log ρ.
    - `log_det`: log |I + A/ρ|.
    - `determined`, `determined_dot`: γ = tr A (A + ρI)⁻¹, the derivative of −log |I + A/ρ|.
    - `residual`: Q = yᵀy − cᵀw = ‖y − Φw‖² + ρ wᵀw.
    - `pull`, `pull_dot`: Q̇ = ρ wᵀw.
    """

    log_ridge: float
    log_det: float
    determined: float
    determined_dot: float
    residual: float
    pull: float
    pull_dot: float

    def extrapolated(self, log_ridge: float) -> _Solution:
        """Extrapolate γ and Q̇ as powers of the ridge, the others as their integrals."""
        step = log_ridge - self.log_ridge
        growth = self.determined_dot / self.determined if self.determined > 0 else 0.0
        pulls = self.pull_dot / self.pull if self.pull > 0 else 0.0
        return replace(
            self,
            log_ridge=log_ridge,
            log_det=self.log_det - self.determined * _integrated(growth, step),
            determined=self.determined * float(np.exp(growth * step)),
            residual=max(self.residual + self.pull * _integrated(pulls, step), 0.0),
            pull=self.pull * float(np.exp(pulls * step)),
        )

    def less_error_of_probes(self, others: Sequence[_Solution]) -> _Solution:
        """Correct γ by a difference of two log |I + A/ρ|, which are exact, where another ridge is near."""
        near = min(others, key=lambda other: abs(other.log_ridge - self.log_ridge), default=self)
        width = near.log_ridge - self.log_ridge
        if not 0 < abs(width) < NEAR:
            return self
        integral = (self.determined + near.determined) / 2 - width * (near.determined_dot - self.determined_dot) / 12
        error = integral - (self.log_det - near.log_det) / width
        return replace(self, determined=max(self.determined - error, 0.0))


_log_ridge = attrgetter("log_ridge")


def _integrated(rate: float, step: float) -> float:
    """∫ exp(rate t) dt from 0 to `step`."""
    return step if rate * step == 0 else step * float(np.expm1(rate * step) / (rate * step))


class _Ridges:
    """Factorisations of A + ρI, shared by the targets; `solved` has those of each target in order of the ridge."""

    def __init__(self, a: FloatArray, targets: Sequence[TargetStatistics]) -> None:
        self.a, b = a, len(a)
        self.c = np.column_stack([target.c for target in targets])
        self.yty = np.array([target.yty for target in targets])
        # Whose average zᵀMz is the trace of M, in expectation or exactly.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (b, N_PROBES))
        self.has_many = b > FEW_WEIGHTS
        self.probes = signs / np.sqrt(N_PROBES) if self.has_many else np.eye(b)
        self.trace = float(np.trace(a)) or 1.0
        # Below the first, rounding of A is as large as the ridge; above the second, nothing is determined.
        self.bounds = np.log([4 * self.trace * np.finfo(float).eps, self.trace * LARGEST_RIDGE])
        self.solved: list[list[_Solution]] = [[] for _ in targets]

    def solve(self, log_ridge: float) -> None:
        """Factorise at a ridge, or at the smallest above that leaves A + ρI and the residuals positive."""
        log_ridge = float(np.clip(log_ridge, *self.bounds))
        while (found := self._attempt(log_ridge)) is None:
            self.bounds[0] = log_ridge = min(log_ridge + 2.0, self.bounds[1])
        for own, solution in zip(self.solved, found, strict=True):
            insort(own, solution, key=_log_ridge)

    def of(self, k: int) -> list[_Solution]:
        """Return what the factorisations say of a target, with γ as exact as is known."""
        own = self.solved[k]
        return [s.less_error_of_probes([other for other in own if other is not s]) if self.has_many else s for s in own]

    def _attempt(self, log_ridge: float) -> list[_Solution] | None:
        ridge, b = float(np.exp(log_ridge)), len(self.a)
        single = self.has_many and self.trace < WELL_CONDITIONED * ridge and ridge < SINGLE_RANGE[1]
        factor, failed_at = factorise_ridge(self.a, ridge, np.float32 if single else np.float64)
        if failed_at:
            return None
        w, probed = np.hsplit(solve_factored(factor, np.column_stack([self.c, self.probes])), [self.c.shape[1]])
        error = self.c - self.a @ w - ridge * w
        # Of second order in the error of w, unlike yᵀy − cᵀw.
        residual = self.yty - np.einsum("jk,jk->k", self.c + error, w)
        w += solve_factored(factor, error)
        pull = ridge * np.einsum("jk,jk->k", w, w)
        # ‖y − Φw‖² is not negative: where rounding of A and c says otherwise, the evidence would run away.
        if not (residual - pull >= -ROUNDING * self.yty).all():
            return None
        pull_dot = pull - 2 * ridge**2 * np.einsum("jk,jk->k", w, solve_factored(factor, w))
        trace = ridge * float(np.einsum("jk,jk->", self.probes, probed))
        square = ridge**2 * float(np.einsum("jk,jk->", probed, probed))
        log_det = 2 * float(np.log(np.einsum("jj->j", factor), dtype=np.float64).sum()) - b * log_ridge
        shared = log_ridge, log_det, max(b - trace, 0.0), min(square - trace, 0.0)
        return [_Solution(*shared, *own) for own in np.stack([np.maximum(residual, pull), pull, pull_dot], 1).tolist()]


class _Point(NamedTuple):
    """The evidence of one target at a ridge, at its best noise variance where that is free.

    - `value`, `penalised`: without and with the priors on noise and scale.
    - `rise`, `fall`: positive; their difference is the slope of `penalised` in log ridge.
    """

    log_ridge: float
    log_noise: float
    value: float
    penalised: float
    rise: float
    fall: float


class _FactorSearch:
    """The search for one target's maximum."""

    def __init__(self, problem: EvidenceProblem, k: int, ridges: _Ridges) -> None:
        self.problem, self.k, self.ridges = problem, k, ridges
        self.n = problem.statistics.n_samples
        self.begin = np.log([problem.noise, problem.scale])
        self.start = float(self.begin[0] - self.begin[1])
        mean_square = problem.statistics.yty / problem.statistics.n_samples or 1.0
        self.noise_bounds = np.log(mean_square) + np.log(NOISE_RANGE)
        self.tightness = np.zeros(2) if problem.prior_sd is None else np.array(problem.prior_sd) ** -2.0
        self.best: _Point

    def next_ridge(self) -> float | None:
        """Set `best` to the highest point known; return the log ridge to factorise at, or None if it is the maximum."""
        solved = self.ridges.of(self.k)
        points = [self._at(s) for s in solved]
        top = max(range(len(points)), key=lambda i: points[i].penalised)
        here = self.best = points[top]
        slope = here.rise - here.fall
        side = 1 if slope > 0 else -1
        beyond = solved[top + side] if 0 <= top + side < len(solved) else None
        end = here.log_ridge + side * LONGEST_STEP if beyond is None else beyond.log_ridge
        end = float(np.clip(end, *self.ridges.bounds))

        way = solved[top].extrapolated
        root = _root(lambda log_ridge: _log_ratio(self._at(way(log_ridge))), here.log_ridge, end)
        if beyond is not None and root == end:  # lower, yet the evidence rises towards it: there is a maximum between
            return 0.5 * (here.log_ridge + end) if abs(here.log_ridge - end) > NEAR else None
        there, step = self._at(way(root)), root - here.log_ridge
        if 0.5 * slope * step < GAIN:
            return None
        error = EXTRAPOLATION_ERROR * step**2
        if 0.5 * (error * max(here.rise, here.fall)) ** 2 * abs(step / slope) > SHORTFALL:
            return root
        if there.penalised > here.penalised:
            self.best = there
        return None

    def maximum(self) -> EvidenceMaximum:
        """Return the highest point known."""
        best = self.best
        noise = float(np.exp(best.log_noise)) if self.problem.fit_noise else self.problem.noise
        scale = float(np.exp(best.log_noise - best.log_ridge))
        return EvidenceMaximum(noise, scale, best.value, len(self.ridges.solved[self.k]))

    def _at(self, solution: _Solution) -> _Point:
        log_ridge, residual, tight = solution.log_ridge, solution.residual, self.tightness  # log ρ = log σ² − log t
        log_noise = self._best_log_noise(log_ridge, residual) if self.problem.fit_noise else float(self.begin[0])
        off = np.array([log_noise, log_noise - log_ridge]) - self.begin
        precision = np.exp(-log_noise)
        value = -0.5 * (self.n * (np.log(2 * np.pi) + log_noise) + solution.log_det + residual * precision)
        terms = 0.5 * np.array([solution.determined, -solution.pull * precision, 2 * tight[1] * off[1]])
        rise, fall = np.maximum(terms, 0.0).sum(), np.maximum(-terms, 0.0).sum()
        penalised = float(value - 0.5 * tight @ off**2)
        return _Point(log_ridge, log_noise, float(value), penalised, float(rise), float(fall))

    def _best_log_noise(self, log_ridge: float, residual: float) -> float:
        """Where the evidence with its prior is largest at a ridge; it is concave in the log noise."""
        tight, log_noise = self.tightness, np.log(max(residual, TINY) / self.n)
        for _ in range(NEWTON_STEPS):
            log_noise = float(np.clip(log_noise, *self.noise_bounds))
            fit = 0.5 * residual * np.exp(-log_noise)
            off = np.array([log_noise, log_noise - log_ridge]) - self.begin
            step = (fit - 0.5 * self.n - tight @ off) / max(fit + tight.sum(), TINY)
            log_noise += step
            if abs(step) < STEP_TOLERANCE**2:
                break
        return float(np.clip(log_noise, *self.noise_bounds))


def _log_ratio(point: _Point) -> float:
    return float(np.log(max(point.rise, TINY) / max(point.fall, TINY)))


def _root(function: Callable[[float], float], begin: float, end: float) -> float:
    """Return where a function changes sign on the way, to `STEP_TOLERANCE`; the end if it does not."""
    if (function(begin) > 0) == (function(end) > 0):
        return end
    return float(brentq(function, begin, end, xtol=STEP_TOLERANCE))
