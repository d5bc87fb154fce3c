"""Many groups of rows about one common function: what they share of their hyperparameters, and their posteriors.

    y_g = Φ_g (m + d_g) + ε_g,   d_g ~ N(0, tI),   ε_g ~ N(0, σ_g² I),   log σ_g² ~ N(μ, ω²)

The weights m are those of all groups together; t, μ and ω are found where the evidence of all groups is largest:
partial pooling (Gelman & Hill 2007, *Data Analysis Using Regression and Multilevel Models*, chapter 12). A group of few
rows stays close to the others, and is as uncertain as they differ; one of many rows follows its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pydirect._validation import FloatArray, short_repr
from pydirect.distributions.categorical import gauss_hermite
from pydirect.distributions.noise import NoisePosterior
from pydirect.linear.evidence import log_evidence
from pydirect.linear.fit import NEGLIGIBLE_INFORMATION
from pydirect.linear.posterior import GaussianPosterior
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import GaussianStatistics
from pydirect.statistics.rotated import RotatedTarget, Rotation

# Eigenvalues below this fraction of the largest are rounding.
ROUNDING = 1e-11
MAX_ITER, TOLERANCE = 200, 1e-6
# Of log σ_g² and log t: how far from the start they may go.
LARGEST_MOVE = 12.0
# What is known of ω² and of log t before any group is seen: a value, as of so many groups, and units of information.
PRIOR_VARIANCE, PRIOR_GROUPS, PRIOR_INFORMATION = 0.1, 1.0, 1e-3
# Of what the rows' directions leave of m, relative to m: less is rounding of vectors in single precision.
SMALLEST_LENGTH = 1e-6
LARGEST_SHARE = 0.95  # of the rows' dimensions that the common function may be said to have taken


def rows_of_group(statistics: GaussianStatistics) -> RotatedTarget:
    """Diagonalise ΦΦᵀ where a group's statistics, of one target, hold its rows and they are few, else ΦᵀΦ."""
    rows = statistics.rows
    if rows is not None and len(rows) > statistics.n_weights:
        rows = None
    # NumPy's, which releases the GIL, unlike SciPy's.
    eigenvalues, vectors = np.linalg.eigh(statistics.A if rows is None else rows @ rows.T)
    used = eigenvalues > ROUNDING * eigenvalues[-1]
    eigenvalues, vectors = eigenvalues[used], vectors[:, used]
    if rows is not None:
        vectors = rows.T @ (vectors / np.sqrt(eigenvalues))
    c, yty = vectors.T @ statistics.c[:, 0], float(statistics.yty[0])
    return RotatedTarget(Rotation(vectors), eigenvalues, c, yty, statistics.n_samples)


def no_rows(n_weights: int) -> RotatedTarget:
    """Return the statistics of a group without rows."""
    return RotatedTarget(Rotation(np.empty((n_weights, 0))), np.empty(0), np.empty(0), 0.0, 0.0)


def deviations_of(rows: RotatedTarget, weights: FloatArray) -> RotatedTarget:
    """Return the statistics of what the targets exceed Φ times `weights`, (n_weights,), by."""
    c = rows.c - rows.eigenvalues * (rows.rotation.matrix.T @ weights)
    return replace(rows, c=c, yty=rows.yty + float(((c**2 - rows.c**2) / rows.eigenvalues).sum()))


@dataclass(frozen=True)
class CommonFunction:
    """The fit to all groups as if they were one.

    - `weights`, (n_weights,): m.
    - `noise`, `scale`: noise variance and prior variance of the weights.
    - `share`: of the rows' dimensions, those that it has taken: tr H/n with H the hat matrix.
    """

    weights: FloatArray
    noise: float
    scale: float
    share: float

    __repr__ = short_repr

    @classmethod
    def of(cls, target: RotatedTarget, noise: float, scale: float) -> CommonFunction:
        """Return the posterior mean of the weights at a noise variance and a prior variance."""
        posterior = GaussianPosterior.of(target, 1 / noise, scale)
        determined = float((1 - posterior.variance / scale).sum())
        return cls(posterior.coefficients, noise, scale, min(determined / target.n_samples, LARGEST_SHARE))


@dataclass(frozen=True)
class Population:
    """What groups have in common beside the function.

    - `scale`: t.
    - `log_noise`, `spread`: μ and ω.
    - `log_noises`, `deviations`, (n_groups,): mode and standard deviation of each log σ_g² given its rows.
    """

    scale: float
    log_noise: float
    spread: float
    log_noises: FloatArray
    deviations: FloatArray

    __repr__ = short_repr

    @classmethod
    def of(
        cls, groups: Sequence[RotatedTarget], common: CommonFunction, fixed_noise: float | None = None
    ) -> Population:
        """Find t, μ, ω and every group's noise variance, unless it is fixed, by EM in Laplace's approximation.

        Residuals are smaller than those of rows that the common function has not seen, by the factor 1 − tr H/n of
        generalised cross-validation (Golub, Heath & Wahba 1979), which is undone.
        """
        table = _Table.of(groups, common, 1 - common.share)
        start = np.log([common.noise if fixed_noise is None else fixed_noise, common.scale])
        mean, log_scale, variance = start[0], start[1], 1.0
        theta, information = np.full(len(groups), mean), np.ones(len(groups))
        for _ in range(MAX_ITER):
            slope, information, climb, curvature = table.slopes(theta, log_scale)
            information = information + 1 / variance
            step = np.clip((slope - (theta - mean) / variance) / information, -1.0, 1.0)
            if fixed_noise is not None:
                step[:] = 0.0
            pull = PRIOR_INFORMATION * (log_scale - start[1])
            stride = float(np.clip((climb - pull) / (curvature + PRIOR_INFORMATION), -1.0, 1.0))
            theta = np.clip(theta + step, start[0] - LARGEST_MOVE, start[0] + LARGEST_MOVE)
            log_scale = float(np.clip(log_scale + stride, start[1] - LARGEST_MOVE, start[1] + LARGEST_MOVE))
            before, mean = (mean, variance), float(theta.mean())
            squares = ((theta - mean) ** 2 + 1 / information).sum() + PRIOR_GROUPS * PRIOR_VARIANCE
            variance = float(squares / (len(groups) + PRIOR_GROUPS))
            if max(np.abs(step).max(), abs(stride), abs(mean - before[0]), abs(variance - before[1])) < TOLERANCE:
                break
        deviations = 1 / np.sqrt(information) if fixed_noise is None else np.zeros(len(groups))
        spread = np.sqrt(variance) if fixed_noise is None else 0.0
        return cls(float(np.exp(log_scale)), mean, float(spread), theta, deviations)

    def noise(self, group: int | None, n_levels: int) -> NoisePosterior:
        """Return the log-normal posterior of a group's noise variance, or of a group without rows, by quadrature."""
        if group is None:
            log_noise, deviation = self.log_noise, self.spread
        else:
            log_noise, deviation = float(self.log_noises[group]), float(self.deviations[group])
        nodes, q = gauss_hermite(n_levels if deviation > 0 else 1)
        return NoisePosterior(np.exp(log_noise + deviation * nodes), q)


@dataclass(frozen=True)
class _Table:
    """Groups side by side, (n_groups, n_directions), padded by zeros: eigenvalues, and squared targets in eigenvectors.

    `rest`, `beyond`, (n_groups,): sum of squares of the targets outside of these, and number of samples beyond theirs.
    """

    eigenvalues: FloatArray
    squares: FloatArray
    rest: FloatArray
    beyond: FloatArray

    @classmethod
    def of(cls, groups: Sequence[RotatedTarget], common: CommonFunction, shrinkage: float) -> _Table:
        eigenvalues, squares = np.zeros((2, len(groups), max(len(group.c) for group in groups)))
        rest, beyond = np.empty((2, len(groups)))
        for row, group in enumerate(groups):
            own, used = deviations_of(group, common.weights), slice(len(group.c))
            eigenvalues[row, used], squares[row, used] = own.eigenvalues, own.c**2 / own.eigenvalues
            rest[row], beyond[row] = own.yty - squares[row].sum(), own.n_samples - len(own.c)
        return cls(eigenvalues, squares / shrinkage**2, np.maximum(rest, 0.0) / shrinkage**2, beyond)

    def slopes(self, log_noise: FloatArray, log_scale: float) -> tuple[FloatArray, FloatArray, float, float]:
        """Slopes of the log evidence and its expected information: of each log σ_g², and of log t."""
        noise = np.exp(log_noise)[:, None]
        total = noise + np.exp(log_scale) * self.eigenvalues
        share = np.where(self.eigenvalues > 0, noise / total, 0.0)  # of the noise in each direction
        explained = np.where(self.eigenvalues > 0, 1 - share, 0.0)
        pull = self.squares / total
        slope = -0.5 * (self.beyond + share.sum(axis=1) - self.rest / noise[:, 0] - (pull * share).sum(axis=1))
        information = np.maximum(0.5 * (self.beyond + (share**2).sum(axis=1)), 0.0)
        climb = -0.5 * float(explained.sum() - (pull * explained).sum())
        return slope, information, climb, 0.5 * float((explained**2).sum())


def group_posterior(
    rows: RotatedTarget, common: CommonFunction, scale: float, noise: NoisePosterior
) -> tuple[GaussianPosterior, float]:
    """Return the posterior of a group's weights m + d_g, and their unit.

    At the expected precision of the noise; its ELBO is the log evidence at that precision. The unit
    is the root of the variance of what no row has seen: the common function's and the deviation's prior variance.
    """
    precision, unit = noise.precision, float(np.sqrt(common.scale + scale))
    deviations = deviations_of(rows, common.weights)
    elbo = log_evidence(deviations, 1 / precision, scale)[0]
    deviations = deviations.keep(scale * precision * deviations.eigenvalues > NEGLIGIBLE_INFORMATION)
    posterior = GaussianPosterior.of(deviations, precision, scale)
    vectors = deviations.rotation.matrix
    middle = vectors.T @ common.weights
    mean, variance = middle + posterior.mean, posterior.variance
    beyond = common.weights - vectors @ middle  # is known as well as the common function is, with a deviation
    length = float(np.linalg.norm(beyond))
    if length > SMALLEST_LENGTH * np.linalg.norm(common.weights):
        vectors = np.column_stack([vectors, beyond / length])
        mean, variance = np.append(mean, length), np.append(variance, scale)
    outcome, rotation = Outcome(elbo, np.array([elbo]), 1, True), Rotation(np.ascontiguousarray(vectors))
    square = unit**2
    return GaussianPosterior(rotation, mean / unit, variance / square, float(scale / square), noise, outcome), unit
