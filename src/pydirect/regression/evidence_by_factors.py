"""The noise and prior scale of largest evidence from Cholesky factorisations of A + ridge I, ridge = noise / scale.

One factorisation tells the evidence at a ridge for every noise variance, and so for the best one, and how both change
with the ridge. What is left is one equation in one unknown: where the evidence is largest,

    γ = ridge wᵀw / σ²,   w = (A + ridge I)⁻¹ c,   γ = tr A (A + ridge I)⁻¹

(MacKay 1992, *Bayesian interpolation*). Both sides are nearly powers of the ridge, so that extrapolating them
finds the maximum in one to four factorisations; an eigendecomposition costs nearly twenty. γ and its slope come from
random signs (Hutchinson 1990), the same at every ridge, and from differences of the exact log-determinants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from pydirect._validation import FloatArray, as_number
from pydirect.optimize.cholesky import factorise_ridge, solve_factored
from pydirect.statistics.gaussian import TargetStatistics

# Random signs; up to so many weights, traces are computed.
N_PROBES, FEW_WEIGHTS = 64, 200
# Distance in log ridge at which Hermite's rule integrates γ more precisely than random signs know it.
NEAR = 2.0
# What rises and what falls, extrapolated from a ridge, are wrong by this fraction times the square of the step.
EXTRAPOLATION_ERROR = 0.05
LONGEST_STEP = 8.0
STEP_TOLERANCE = 1e-4
# Nats: what the evidence at a step's end may fall short of the maximum, and what a step must gain to be taken.
SHORTFALL, GAIN = 0.01, 1e-3
MOST_FACTORISATIONS = 16
# Up to this multiple of the ridge, the trace of A leaves single precision enough digits to find the next ridge.
WELL_CONDITIONED = 1e6
# Bounds of the noise variance, in units of the targets' mean square, and of the ridge in units of the trace of A.
NOISE_RANGE, LARGEST_RIDGE = (1e-10, 1e4), 1e6
# Of yᵀy: rounding of sums in double precision.
ROUNDING, TINY = 1e-9, 1e-300


@dataclass(frozen=True)
class EvidenceProblem:
    """One target, and where the search for its noise variance and prior variance begins.

    Attributes
    ----------
    statistics : TargetStatistics
    noise, scale : float
        Start: noise variance and prior variance of the weights.
    fit_noise, fit_scale : bool
        Whether the noise variance and the prior variance are free.
    prior_sd : tuple of float, optional
        Standard deviations of Gaussian priors on log noise and log scale about the start.
    repetitions : float
        Number of times that an average row counts in the statistics; the evidence is that of rows counted once.
    """

    statistics: TargetStatistics
    noise: float
    scale: float
    fit_noise: bool = True
    fit_scale: bool = True
    prior_sd: tuple[float, float] | None = None
    repetitions: float = 1.0

    def __post_init__(self) -> None:
        as_number(self.noise, "noise", above=0.0)
        as_number(self.scale, "scale", above=0.0)
        as_number(self.repetitions, "repetitions", above=0.0)


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
    """
    if not problems:
        return []
    a = problems[0].statistics.A
    if any(problem.statistics.A is not a for problem in problems):
        raise ValueError("problems must share A, got statistics with different arrays: search for each apart")
    ridges = _Ridges(a, [problem.statistics for problem in problems])
    searches = [_Search(problem, k, ridges) for k, problem in enumerate(problems)]
    log_ridge = searches[0].start
    while len(ridges.solved) < MOST_FACTORISATIONS:
        solution = ridges.solve(log_ridge)
        wanted = [search.next_ridge(solution) for search in searches]
        unresolved = sorted(w for w in wanted if w is not None)
        if not unresolved:
            break
        log_ridge = unresolved[len(unresolved) // 2]
    return [search.maximum(len(ridges.solved)) for search in searches]


@dataclass(frozen=True)
class _Solution:
    """What a factorisation of A + ρI says of all K targets, or of one; a dot is a derivative in log ρ.

    - `log_ridge`: log ρ.
    - `log_det`: log |I + A/ρ|.
    - `determined`, `determined_dot`: γ = tr A (A + ρI)⁻¹.
    - `residual`, (K,): Q = yᵀy − cᵀw = ‖y − Φw‖² + ρ wᵀw.
    - `pull`, `pull_dot`, (K,): Q̇ = ρ wᵀw.
    - `probed`: γ as the probes have it.
    """

    log_ridge: float
    log_det: float
    determined: float
    determined_dot: float
    residual: Any
    pull: Any
    pull_dot: Any
    probed: float = 0.0

    def of(self, k: int, repetitions: float) -> _Solution:
        """Return what it says of one target whose sums are divided by `repetitions`."""
        sums = {name: float(getattr(self, name)[k]) / repetitions for name in ("residual", "pull", "pull_dot")}
        return replace(self, **sums)

    def moved(self, step: float) -> _Solution:
        """Extrapolate one target's: γ and ρ wᵀw by powers of the ridge, the others by their integrals."""
        growth = self.determined_dot / self.determined if self.determined > 0 else 0.0
        pulls = self.pull_dot / self.pull if self.pull > 0 else 0.0
        return replace(
            self,
            log_ridge=self.log_ridge + step,
            log_det=self.log_det - self.determined * _integrated(growth, step),
            determined=self.determined * np.exp(growth * step),
            residual=max(self.residual + self.pull * _integrated(pulls, step), 0.0),
            pull=self.pull * np.exp(pulls * step),
        )


def _integrated(rate: float, step: float) -> float:
    """∫ exp(rate t) dt from 0 to `step`."""
    return step if rate * step == 0 else step * float(np.expm1(rate * step) / (rate * step))


class _Ridges:
    """Factorisations of A + ρI, shared by the targets."""

    def __init__(self, a: FloatArray, targets: Sequence[TargetStatistics]) -> None:
        self.a, b = a, len(a)
        self.c = np.column_stack([target.c for target in targets])
        self.yty = np.array([target.yty for target in targets])
        # Whose average zᵀMz is the trace of M, in expectation or exactly.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (b, N_PROBES))
        self.probes = signs / np.sqrt(N_PROBES) if b > FEW_WEIGHTS else np.eye(b)
        trace = float(np.trace(a)) or 1.0
        # Below the first, rounding of A is as large as the ridge; above the second, nothing is determined.
        self.bounds = [np.log(4 * trace * np.finfo(float).eps), np.log(trace * LARGEST_RIDGE)]
        self.solved: list[_Solution] = []

    def solve(self, log_ridge: float) -> _Solution:
        """Factorise at a ridge, or at the smallest above that leaves A + ρI and the residuals positive."""
        log_ridge = float(np.clip(log_ridge, *self.bounds))
        solution = self._attempt(log_ridge)
        while solution is None:
            self.bounds[0] = log_ridge = min(log_ridge + 2.0, self.bounds[1])
            solution = self._attempt(log_ridge)
        self.solved.append(solution)
        return solution

    def _attempt(self, log_ridge: float) -> _Solution | None:
        ridge, b = float(np.exp(log_ridge)), len(self.a)
        factor, failed_at = factorise_ridge(self.a, ridge)
        if failed_at:
            return None
        solved = solve_factored(factor, np.column_stack([self.c, self.probes]))
        w, probed = np.hsplit(solved, [self.c.shape[1]])
        error = self.c - self.a @ w - ridge * w
        # Of second order in the error of w, unlike yᵀy − cᵀw.
        residual = self.yty - np.einsum("jk,jk->k", self.c + error, w)
        pull = ridge * np.einsum("jk,jk->k", w, w)
        # ‖y − Φw‖² is not negative: where rounding of A and c says otherwise, the evidence would run away.
        if not (residual - pull >= -ROUNDING * self.yty).all():
            return None
        pull_dot = pull - 2 * ridge**2 * np.einsum("jk,jk->k", w, solve_factored(factor, w))
        trace = ridge * float(np.einsum("jk,jk->", self.probes, probed))
        square = ridge**2 * float(np.einsum("jk,jk->", probed, probed))
        log_det = 2 * float(np.log(np.einsum("jj->j", factor)).sum()) - b * log_ridge
        determined, determined_dot = max(b - trace, 0.0), min(square - trace, 0.0)
        residual = np.maximum(residual, pull)
        solution = _Solution(log_ridge, log_det, determined, determined_dot, residual, pull, pull_dot, determined)
        return replace(solution, determined=max(determined - self._error_of_probes(solution), 0.0))

    def _error_of_probes(self, solution: _Solution) -> float:
        """Return how much the probes overestimate γ, from the difference of two exact log |I + A/ρ|, its integral."""
        if len(self.a) <= FEW_WEIGHTS or not self.solved:
            return 0.0
        near = min(self.solved, key=lambda other: abs(other.log_ridge - solution.log_ridge))
        width = solution.log_ridge - near.log_ridge
        if not 0 < abs(width) < NEAR:
            return 0.0
        probed = (solution.determined + near.probed) / 2 - width * (solution.determined_dot - near.determined_dot) / 12
        return probed - (near.log_det - solution.log_det) / width


@dataclass(frozen=True)
class _Point:
    """The evidence of one target at a ridge, with its prior and at its best noise variance where that is free.

    - `log_noise`, `log_scale`.
    - `value`: without the prior.
    - `penalised`: with it.
    - `rise`, `fall`: positive; their difference is the slope in log ridge.
    - `step`: in log ridge, to where they are equal.
    """

    log_ridge: float
    log_noise: float
    log_scale: float
    value: float
    penalised: float
    rise: float
    fall: float
    step: float = 0.0

    @property
    def slope(self) -> float:
        return self.rise - self.fall

    @property
    def log_ratio(self) -> float:
        return float(np.log(max(self.rise, TINY) / max(self.fall, TINY)))


class _Search:
    """The search for one target's maximum."""

    def __init__(self, problem: EvidenceProblem, k: int, ridges: _Ridges) -> None:
        self.problem, self.k, self.ridges = problem, k, ridges
        self.n = problem.statistics.n_samples / problem.repetitions
        self.begin = np.log([problem.noise, problem.scale])
        self.start = float(self.begin[0] - self.begin[1] + np.log(problem.repetitions))
        mean_square = problem.statistics.yty / problem.statistics.n_samples or 1.0
        self.noise_bounds = np.log(mean_square) + np.log(NOISE_RANGE)
        self.tightness = np.zeros(2) if problem.prior_sd is None else np.array(problem.prior_sd) ** -2.0
        self.points: list[_Point] = []
        self.accepted: _Point | None = None

    def next_ridge(self, solution: _Solution) -> float | None:
        """Take in a factorisation; return the log ridge of the next, or None when the maximum is known."""
        if self.accepted is not None:
            return None
        solution = solution.of(self.k, self.problem.repetitions)
        here = self._with_step(solution)
        self.points.append(here)
        if not (self.problem.fit_noise or self.problem.fit_scale):
            self.accepted = here
            return None
        best = min(self.points, key=lambda point: abs(point.step))
        if best is here:
            gain = 0.5 * here.slope * here.step
            error = EXTRAPOLATION_ERROR * here.step**2 * max(here.rise, here.fall)
            shortfall = 0.5 * error**2 * abs(here.step / (here.slope or TINY))
            if gain < GAIN or shortfall < SHORTFALL:
                self.accepted = here if gain < GAIN else self._at(solution.moved(here.step))
                return None
        return self._safeguarded(best)

    def _safeguarded(self, point: _Point) -> float:
        """Return where the point's step leads, if it stays between points with slopes towards each other."""
        below = max((p.log_ridge for p in self.points if p.slope > 0), default=-np.inf)
        above = min((p.log_ridge for p in self.points if p.slope < 0), default=np.inf)
        wanted = point.log_ridge + point.step
        if below < above and not below < wanted < above:
            wanted = 0.5 * (below + above)
        return wanted

    def maximum(self, n_factorisations: int) -> EvidenceMaximum:
        """Return the highest of what is known."""
        known = [*self.points, *([self.accepted] if self.accepted is not None else [])]
        best = max(known, key=lambda point: point.penalised)
        noise = float(np.exp(best.log_noise)) if self.problem.fit_noise else self.problem.noise
        scale = float(np.exp(best.log_scale)) if self.problem.fit_scale else self.problem.scale
        return EvidenceMaximum(noise, scale, best.value, n_factorisations)

    # The evidence of one target

    def _with_step(self, solution: _Solution) -> _Point:
        """Return the evidence at a factorisation, with the step to where its extrapolation is largest."""
        here, bounds = self._at(solution), np.array(self._ridge_bounds())
        shortest, longest = np.clip(bounds - here.log_ridge, -LONGEST_STEP, LONGEST_STEP)

        def ratio(step: float) -> float:
            return self._at(solution.moved(step)).log_ratio

        end = float(longest if here.slope > 0 else shortest)
        if here.log_ratio * ratio(end) >= 0:
            return replace(here, step=end)
        return replace(here, step=float(brentq(ratio, 0.0, end, xtol=STEP_TOLERANCE)))

    def _ridge_bounds(self) -> tuple[float, float]:
        """Bounds of the log ridge, of the noise variance too where it follows the ridge."""
        low, high = self.ridges.bounds
        if self.problem.fit_noise and not self.problem.fit_scale:
            noise_low, noise_high = self.noise_bounds - self.begin[0] + self.start
            low, high = max(low, noise_low), min(high, noise_high)
        return low, max(low, high)

    def _at(self, solution: _Solution) -> _Point:
        problem, tight = self.problem, self.tightness
        # log σ² − log v, with sums divided by repetitions
        log_ridge = solution.log_ridge - float(np.log(problem.repetitions))
        if not problem.fit_noise:
            log_noise = float(self.begin[0])
        elif not problem.fit_scale:
            log_noise = log_ridge + float(self.begin[1])
        else:
            log_noise = self._best_log_noise(log_ridge, solution.residual)
        log_scale = log_noise - log_ridge
        precision = np.exp(-log_noise)
        value = -0.5 * (self.n * (np.log(2 * np.pi) + log_noise) + solution.log_det + solution.residual * precision)
        off = np.array([log_noise, log_scale]) - self.begin
        if problem.fit_noise and not problem.fit_scale:  # the noise variance moves with the ridge
            error = max(solution.residual - solution.pull, 0.0)
            terms = 0.5 * np.array([solution.determined + error * precision, -self.n, -2 * tight[0] * off[0]])
            off[1] = 0.0
        else:
            terms = 0.5 * np.array([solution.determined, -solution.pull * precision, 2 * tight[1] * off[1]])
        return _Point(
            solution.log_ridge,
            log_noise,
            log_scale,
            float(value),
            float(value - 0.5 * tight @ off**2),
            float(np.maximum(terms, 0.0).sum()),
            float(np.maximum(-terms, 0.0).sum()),
        )

    def _best_log_noise(self, log_ridge: float, residual: float) -> float:
        """Where the evidence with its prior is largest at a ridge; it is concave in the log noise."""
        low, high = self.noise_bounds
        if not self.tightness.any():
            return float(np.clip(np.log(max(residual, TINY) / self.n), low, high))

        def slope(log_noise: float) -> float:
            off = np.array([log_noise, log_noise - log_ridge]) - self.begin
            return float(0.5 * residual * np.exp(-log_noise) - 0.5 * self.n - self.tightness @ off)

        if slope(low) <= 0:
            return float(low)
        return float(high if slope(high) >= 0 else brentq(slope, low, high, xtol=1e-12))
