"""What a fit of classes or counts solves: rows with labels or targets, in the directions that they inform."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_float_array
from pydirect.logistic.ascent import Ascent, LatentGaussian, LikelihoodMoments, climb
from pydirect.logistic.count_likelihood import (
    POISSON,
    CountLikelihood,
    as_counts,
    likeliest_dispersion,
)
from pydirect.logistic.fit import ascend_rows
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.latent import LatentLikelihood
from pydirect.logistic.likelihood import Likelihood
from pydirect.logistic.rows import LabelledRows, RowsLeftOut
from pydirect.statistics.gaussian import IdentityFeatures

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


@dataclass(frozen=True)
class LabelProblem:
    """Rows with labels, in the features and in the directions of them about which the rows say anything.

    - `raw`, `rotated`: the rows in the features and in the directions.
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

    @property
    def prior(self) -> VariancePrior:
        """Prior of the weights' variance."""
        return self.variance_prior.scaled(self.amplitude)

    def at_rest(self, max_iter: int, near: Self | None = None) -> Self:
        """Return the problem with continuous weights fitted, from those of other features on."""
        options: dict[str, Any] = {"max_iter": max_iter, "stop": self.stop}
        if near is not None:
            options |= {
                "near": near.ascent,
                "moved": SHARE_OF_AMPLITUDE * float(np.log(self.amplitude / near.amplitude)),
            }
        return replace(self, ascent=ascend_rows(self.rotated, self.prior, **options))

    def amplified(self, amplitude: float, max_iter: int) -> Self:
        """Return the problem fitted with another amplitude of the kernel, from this fit on."""
        return replace(self, amplitude=amplitude).at_rest(max_iter, self)

    @cached_property
    def left_out(self) -> RowsLeftOut:
        """What is predicted of every row without it."""
        assert self.ascent is not None
        solution = self.ascent.best.solution
        return self.rotated.left_out(solution.latent, solution.state)

    @property
    def log_loss(self) -> float:
        """Mean −log probability of labels that are left out, at the best precision."""
        return self.left_out.log_loss


@dataclass(frozen=True)
class LatentRows(LabelledRows):
    """Rows with targets t, (n_samples, n_columns), of one latent offset + φᵀw each, the offset (n_samples, 1)."""

    model: LatentLikelihood = POISSON  # likelihood of the targets
    learns_offset: bool = False  # whether the offset moves with the likelihood's parameters

    @property
    def n_functions(self) -> int:
        return 1

    @property
    def terms(self) -> Likelihood:
        return self.model.terms

    @property
    def first_guess(self) -> FloatArray:
        return self.model.first_guess(self.t, self.offset)

    @property
    def largest_precision(self) -> float:
        return self.model.largest_precision(self.t, self.offset)

    def log_probability(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        return self.model.log_predictive(self.t, mean[:, 0], variance)

    def with_improved(self, latent: LatentGaussian | LikelihoodMoments) -> tuple[Self, float]:
        """Return the same rows with the likelihood that fits best, given a posterior, and how far parameters moved."""
        mean, variance = self.moments(latent)
        model, offset, moved = self.model.improved(self.t, mean, variance, self.weight), self.offset, 0.0
        if model.parameters.size:
            moved = float(np.abs(model.parameters - self.model.parameters).max())
        if self.learns_offset:
            terms = model.terms(self.t, mean, variance)
            total = max(float(self.weight @ terms.precision), 1e-300)
            step = float(self.weight @ terms.residual[:, 0]) / total
            offset, moved = offset + step, max(moved, abs(step) * np.sqrt(total / self.weight.sum()))
        return replace(self, model=model, offset=offset), moved


@dataclass(frozen=True)
class CountRows(LatentRows):
    """Rows with counts t, (n_samples, 1), of log means offset + φᵀw, the offset with log exposures."""

    model: CountLikelihood = POISSON

    @classmethod
    def from_counts(cls, phi: ArrayLike, y: ArrayLike, offset: ArrayLike, counts: CountLikelihood = POISSON) -> Self:
        """Build from a design matrix."""
        phi = as_float_array(phi, "phi", ("n_samples", "n_weights"))
        y = as_float_array(as_counts(y, "y"), "y", (len(phi),))
        means = as_float_array(np.broadcast_to(np.asarray(offset, float), len(phi)), "offset", (len(phi),))
        features = IdentityFeatures(phi.shape[1])
        return cls(features, phi, y[:, None], np.ones(len(phi)), means[:, None], model=counts)

    def with_dispersion(self, dispersion: float) -> Self:
        """Return the same rows with a given dispersion."""
        return replace(self, model=CountLikelihood(dispersion))

    def at_constant_rate(self, learns_dispersion: bool) -> Self:
        """Return the same rows with the dispersion that is likeliest at the offsets alone, or none."""
        offset = self.offset[:, 0]
        return self.with_dispersion(
            likeliest_dispersion(self.t[:, 0], offset, self.weight) if learns_dispersion else 0.0
        )

    @property
    def constant_log_likelihood(self) -> float:
        """Σ ω log p(t) at the offsets alone."""
        return float(self.weight @ self.model.log_probability(self.t[:, 0], self.offset[:, 0]))


Targets = TypeVar("Targets", bound=LatentRows)


@single_blas_thread()
def ascend_latent(
    rows: Targets,
    variance_prior: VariancePrior,
    *,
    max_iter: int,
    stop: threading.Event,
    near: Ascent[FullGaussian] | None = None,
) -> tuple[Targets, Ascent[FullGaussian]]:
    """Fit continuous weights, their prior variance and, in turn with them, what the likelihood learns."""
    ascent = ascend_rows(rows, variance_prior, max_iter=max_iter, stop=stop, near=near)
    for _ in range(MOST_ROUNDS if rows.model.parameters.size or rows.learns_offset else 0):
        if stop.is_set():
            break
        improved, moved = rows.with_improved(ascent.best.solution.latent)
        solve = gaussian_solve(variance_prior, improved.improved if improved.is_held else None)
        try:
            ascent = climb(improved, Ascent(solve, ascent.best.solution.state, max_iter), stop)
        except KeyboardInterrupt:
            break
        rows = improved
        if moved < SAME_PARAMETERS:
            break
    return rows, ascent


@dataclass(frozen=True)
class LatentProblem(LabelProblem):
    """Rows with targets of one latent; see `LabelProblem`. The likelihood that was found is that of `rotated`."""

    rotated: LatentRows

    def at_rest(self, max_iter: int, near: Self | None = None) -> Self:
        """Return the problem with continuous weights and the likelihood fitted, from those of other features on."""
        rows, start = self.rotated, None
        if near is not None:
            rows, start = replace(rows, model=near.rotated.model, offset=near.rotated.offset), near.ascent
        rows, ascent = ascend_latent(rows, self.prior, max_iter=max_iter, stop=self.stop, near=start)
        return replace(self, rotated=rows, ascent=ascent)


@dataclass(frozen=True)
class CountProblem(LatentProblem):
    """Rows with counts; see `LatentProblem`."""

    rotated: CountRows

    @property
    def dispersion(self) -> float:
        """Dispersion of the counts; 0 for Poisson."""
        return self.rotated.model.dispersion

    def as_poisson(self, max_iter: int) -> Self:
        """Return the fit of Poisson counts."""
        return replace(self, rotated=self.rotated.with_dispersion(0.0)).at_rest(max_iter)

    def at_constant_rate(self, learns_dispersion: bool, max_iter: int) -> Self:
        """Return the fit with next to no prior variance: one rate for all rows."""
        prior = VariancePrior(NEGLIGIBLE_VARIANCE / max(self.rotated.mean_square(), 1e-300), 0.0)
        constant = self.rotated.at_constant_rate(learns_dispersion)
        return replace(self, rotated=constant, variance_prior=prior, mean_missing_variance=0.0).at_rest(max_iter)

    def is_worse_than_constant(self) -> bool:
        """Whether the bound, or the log loss of left-out counts, is far worse than that of one rate for all rows."""
        assert self.ascent is not None
        total, constant = float(self.raw.weight.sum()), self.rotated.at_constant_rate(self.dispersion > 0)
        reference = constant.constant_log_likelihood - (WORSE + WORSE_PER_ROW * total)
        return self.ascent.best.bound < reference or -total * self.log_loss < reference

    def likelier_family(self, max_iter: int) -> Self:
        """Return this fit of a negative binomial or, where leave-one-out scores allow it, one of Poisson."""
        poisson = self.as_poisson(max_iter)
        return poisson if poisson.log_loss <= self.log_loss + WORTH_DISPERSION else self
