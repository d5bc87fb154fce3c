"""What a fit of classes, counts or other targets solves: rows in the directions that they inform."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.logistic.ascent import Ascent, climb
from pydirect.logistic.count_likelihood import CountLikelihood, likeliest_dispersion
from pydirect.logistic.fit import ascend_rows
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.rows import LabelledRows, RowsLeftOut

# Times that the likelihood and the weights are improved in turn, and the change of parameters that is none.
MOST_ROUNDS = 8
SAME_PARAMETERS = 0.02
# Nats per row by which a negative binomial must predict left-out counts better than Poisson.
WORTH_DISPERSION = 1e-3
# Nats, and nats per row, by which a fit may be worse than one rate for all rows: more, and it has run away.
WORSE, WORSE_PER_ROW = 10.0, 0.05
# Share of a change of log amplitude by which the log of the best prior variance changes, about.
SHARE_OF_AMPLITUDE = 0.5
# Variance of the log rate where it is to be the same for all rows.
NEGLIGIBLE_VARIANCE = 1e-12


@single_blas_thread()
def ascend_latent(
    rows: LabelledRows,
    variance_prior: VariancePrior,
    *,
    max_iter: int,
    stop: threading.Event,
    near: Ascent[FullGaussian] | None = None,
    moved: float = 0.0,
) -> tuple[LabelledRows, Ascent[FullGaussian]]:
    """Fit continuous weights, their prior variance and, in turn with them, what the likelihood learns.

    Arguments as of `ascend_rows`; the likelihood that is found is that of the rows returned.

    Examples
    --------
    >>> import threading
    >>> import numpy as np
    >>> from pydirect.logistic import LabelledRows, VariancePrior, ascend_latent
    >>> rows = LabelledRows.from_arrays(np.eye(2).repeat(20, axis=0), np.repeat([1.0, -1.0], 20))
    >>> _, ascent = ascend_latent(rows, VariancePrior(4.0, 0.0), max_iter=100, stop=threading.Event())
    >>> ascent.converged, ascent.trace == sorted(ascent.trace)
    (True, True)
    """
    ascent = ascend_rows(rows, variance_prior, max_iter=max_iter, stop=stop, near=near, moved=moved)
    for _ in range(MOST_ROUNDS if rows.model.parameters.size or rows.learns_offset else 0):
        if stop.is_set():
            break
        improved, change = rows.with_improved(ascent.best.latent)
        solve = gaussian_solve(variance_prior, improved.improved if improved.is_held else None)
        try:
            ascent = climb(improved, Ascent(solve, ascent.best.state, max_iter), stop)
        except KeyboardInterrupt:
            break
        rows = improved
        if change < SAME_PARAMETERS:
            break
    return rows, ascent


@dataclass(frozen=True)
class LatentProblem:
    """Rows in the features and in the directions of them about which the rows say anything.

    - `raw`, `rotated`: the rows in the features and in the directions; the likelihood that was found is the latter's.
    - `vectors`, (n_weights, n_directions).
    - `ascent`: of continuous weights, when they have been fitted.
    - `precision_factor`: of A in the covariance of the weights.
    - `amplitude`: factor of the kernel, and so of the weights' prior variance.
    """

    raw: LabelledRows
    rotated: LabelledRows
    vectors: FloatArray
    variance_prior: VariancePrior
    mean_missing_variance: float
    stop: threading.Event = field(default_factory=threading.Event)
    ascent: Ascent[FullGaussian] | None = None
    precision_factor: float = 1.0
    amplitude: float = 1.0

    def at_rest(self, max_iter: int, near: Self | None = None) -> Self:
        """Return the problem with continuous weights and the likelihood fitted, from those of other features on."""
        rows, start, moved = self.rotated, None, 0.0
        if near is not None:
            moved = SHARE_OF_AMPLITUDE * float(np.log(self.amplitude / near.amplitude))
            start, found = near.ascent, near.rotated
            rows = replace(rows, model=found.model, offset=found.offset)
        prior = self.variance_prior.scaled(self.amplitude)
        rows, ascent = ascend_latent(rows, prior, max_iter=max_iter, stop=self.stop, near=start, moved=moved)
        return replace(self, rotated=rows, ascent=ascent)

    def amplified(self, amplitude: float, max_iter: int) -> Self:
        """Return the problem fitted with another amplitude of the kernel, from this fit on."""
        return replace(self, amplitude=amplitude).at_rest(max_iter, self)

    @cached_property
    def left_out(self) -> RowsLeftOut:
        """What is predicted of every row without it."""
        assert self.ascent is not None
        solution = self.ascent.best
        return self.rotated.left_out(solution.latent, solution.state)

    @property
    def log_loss(self) -> float:
        """Mean −log probability of targets that are left out, at the best precision."""
        return self.left_out.log_loss


# --- counts


def with_dispersion(problem: LatentProblem, dispersion: float) -> LatentProblem:
    """Return the problem of counts of a given dispersion, 0 for Poisson."""
    return replace(problem, rotated=replace(problem.rotated, model=CountLikelihood(dispersion)))


def likelier_family(problem: LatentProblem, max_iter: int) -> LatentProblem:
    """Return a fit of a negative binomial or, where leave-one-out scores allow it, one of Poisson."""
    poisson = with_dispersion(problem, 0.0).at_rest(max_iter)
    return poisson if poisson.log_loss <= problem.log_loss + WORTH_DISPERSION else problem


def constant_rate(rows: LabelledRows, learns_dispersion: bool) -> CountLikelihood:
    """Return the likelihood of counts at their offsets alone, with the likeliest dispersion or none."""
    offset = rows.offset[:, 0]
    return CountLikelihood(likeliest_dispersion(rows.t[:, 0], offset, rows.weight) if learns_dispersion else 0.0)


def at_constant_rate(problem: LatentProblem, learns_dispersion: bool) -> LatentProblem:
    """Return the problem with next to no prior variance: one rate for all rows."""
    rows = problem.rotated
    prior = VariancePrior(NEGLIGIBLE_VARIANCE / max(rows.mean_square(), 1e-300), 0.0)
    constant = replace(rows, model=constant_rate(rows, learns_dispersion))
    return replace(problem, rotated=constant, variance_prior=prior, mean_missing_variance=0.0)


def is_worse_than_constant(problem: LatentProblem) -> bool:
    """Whether the bound, or the log loss of left-out counts, is far worse than that of one rate for all rows."""
    assert problem.ascent is not None
    rows, total = problem.rotated, float(problem.raw.weight.sum())
    constant = constant_rate(rows, rows.model.parameters.size > 0)
    reference = float(rows.weight @ constant.log_density(rows.t, rows.offset)[:, 0])
    reference -= WORSE + WORSE_PER_ROW * total
    return problem.ascent.bound < reference or -total * problem.log_loss < reference
