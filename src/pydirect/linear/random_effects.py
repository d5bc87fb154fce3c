"""Random effects of any number of groups beside basis functions, by exact elimination.

y = φᵀw + β + zᵀb_g + ε with w ~ N(0, tI), b_g ~ N(0, diag(t_k)), a flat prior on β, and noise of variance σ². Sums of
each group, U = Σ zφᵀ, Σ zzᵀ and Σ zy, are all that is needed. With P = Σ zzᵀ + diag(σ²/t_k), b_g given w is Gaussian of
mean P⁻¹(Σ zy − Uw) and covariance σ²P⁻¹: without b_g, the sums over all rows become ΦᵀΦ − Σ_g UᵀP⁻¹U and so on, and β
goes the same way. What is left is Gaussian regression, whose evidence loses ½ Σ log |P diag(t_k/σ²)|. A prediction
φᵀw + zᵀb_g is that of the row φ − UᵀP⁻¹z, moved by zᵀP⁻¹Σ zy, and σ² zᵀP⁻¹z more uncertain.

Of several factors, crossed or nested, one is eliminated like this, from sums with indicators of the others' levels too.
These levels are then one more group, of dense P = LLᵀ, which goes the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import bsr_array, csr_array

from pydirect._dense import cholesky, gram, half_rows, solve_lower, squared_norms
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray
from pydirect.linear.fit import InitialHyperparameters, fit_by_evidence
from pydirect.linear.posterior import GaussianPosterior
from pydirect.persistence.schema import Positive, Shape
from pydirect.statistics.gaussian import GaussianStatistics, RowFeatures, block_rows, row_blocks
from pydirect.statistics.rotated import decorrelate

# Log ratios of noise to an effect's variance that are considered, and the accuracy to which they are found.
LEAST_LOG_RATIO, MOST_LOG_RATIO, TOLERANCE = -9.0, 12.0, 1e-3
# Different numbers of rows of groups up to which sums of their products are kept.
FEW_SIZES = 32


def with_ones(phi: FloatArray) -> FloatArray:
    """Return Φ and a column of ones."""
    return np.column_stack([phi, np.ones(len(phi))])


def in_columns(place: NDArray[np.intp], n_columns: int, values: FloatArray | float = 1.0) -> csr_array:
    """Return rows with values in some columns, (n_rows, n_places) each, where these are not below zero."""
    row, k = np.nonzero(place >= 0)
    return csr_array((np.broadcast_to(values, place.shape)[row, k], (row, place[row, k])), (len(place), n_columns))


@dataclass(frozen=True)
class GroupSums:
    """Sums over the rows of each group, and over all: of Φ with a column of ones, of effects' columns z and targets.

    Sums of the same groups add up, and subtract.
    """

    phi: FloatArray  # (n_groups, n_effects, n_weights + 1): Σ zφᵀ
    z: FloatArray  # (n_groups, n_effects, n_effects): Σ zzᵀ
    y: FloatArray  # (n_groups, n_effects): Σ zy
    gram: FloatArray
    c: FloatArray
    yty: float
    n_samples: float
    # Of indicators of the levels of other factors
    levels_z: csr_array  # (n_groups · n_effects, n_levels)
    levels_phi: FloatArray  # (n_levels, n_weights + 1)
    levels_y: FloatArray
    levels_gram: csr_array

    @classmethod
    def collect(
        cls,
        features: RowFeatures,
        x: FloatArray,
        y: FloatArray,
        z: FloatArray,
        group: NDArray[np.intp],
        n_groups: int,
        weight: FloatArray | None = None,
        levels: csr_array | None = None,
    ) -> Self:
        """Sum over rows, which belong to the groups numbered `group`; `z` is (n_rows, n_effects).

        `levels`: indicators of the levels of other factors, (n_rows, n_levels).
        """
        weight, b, q = np.ones(len(y)) if weight is None else weight, features.n_weights + 1, z.shape[1]
        levels = csr_array((len(y), 0)) if levels is None else levels
        each, levels_phi = (levels * weight[:, None]).tocsr(), np.zeros((levels.shape[1], b))
        phi, zz, zy = np.zeros((n_groups, q, b)), np.zeros((n_groups, q, q)), np.zeros((n_groups, q))
        total, c, order = np.zeros((b, b)), np.zeros(b), np.argsort(group, kind="stable")
        for begin, end in row_blocks(len(y), block_rows(b, np.float64)):
            rows = order[begin:end]
            block = with_ones(features.transform(x[rows], np.float64, resolve_n_threads()))
            first = np.flatnonzero(np.diff(group[rows], prepend=-1))
            own = group[rows[first]]
            for k in range(q):
                weighted = (weight[rows] * z[rows, k])[:, None]
                phi[own, k] += np.add.reduceat(weighted * block, first, axis=0)
                zz[own, k] += np.add.reduceat(weighted * z[rows], first, axis=0)
                zy[own, k] += np.add.reduceat(weighted[:, 0] * y[rows], first)
            total += gram(block * np.sqrt(weight[rows])[:, None], n_threads=resolve_n_threads())
            c += block.T @ (weight[rows] * y[rows])
            levels_phi += each[rows].T @ block
        levels_z = in_columns(group[:, None] * q + np.arange(q), n_groups * q, z).T @ each
        known = phi, zz, zy, total, c, float(weight @ y**2), float(weight.sum())
        return cls(*known, levels_z.tocsr(), levels_phi, each.T @ y, levels.T @ each)

    def __add__(self, other: GroupSums) -> GroupSums:
        return GroupSums(*(getattr(self, own.name) + getattr(other, own.name) for own in fields(self)))

    def __sub__(self, other: GroupSums) -> GroupSums:
        return GroupSums(*(getattr(self, own.name) - getattr(other, own.name) for own in fields(self)))

    @property
    def mean_square(self) -> float:
        """Mean of φᵀφ over the rows."""
        return float(np.trace(self.gram[:-1, :-1])) / self.n_samples

    @cached_property
    def _by_size(self) -> tuple[FloatArray, list[FloatArray]] | None:
        """Numbers of rows of groups and ΣUᵀU of those that have them, where intercepts are all and sizes are few."""
        if self.z.shape[1] > 1:
            return None
        sizes, place = np.unique(self.z[:, 0, 0], return_inverse=True)
        if len(sizes) > FEW_SIZES:
            return None
        return sizes, [gram(self.phi[place == k, 0], n_threads=resolve_n_threads()) for k in range(len(sizes))]

    def eliminated(self, ratio: FloatArray) -> tuple[GaussianStatistics, float, RandomEffects]:
        """Return the sums without effects and intercept, log determinants, and the effects.

        `ratio`: σ²/t of each of a group's effects, then of each level of other factors.
        """
        q = self.z.shape[1]
        precision = self.z + np.diag(ratio[:q])
        inside: FloatArray = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        effect = np.einsum("gkl,gl->gk", inside, self.y)
        flat = self.phi.reshape(-1, self.phi.shape[2])
        if self._by_size is not None:
            left = self.gram - sum(own / (size + ratio[0]) for size, own in zip(*self._by_size, strict=True))
        else:
            with single_blas_thread():
                left = self.gram - flat.T @ (inside @ self.phi).reshape(flat.shape)
        c, yty = self.c - flat.T @ effect.ravel(), self.yty - float(np.vdot(self.y, effect))
        levels, others = self._levels(inside, ratio[q:]), ratio[q:]
        left, c = left - levels.phi.T @ levels.phi, c - levels.effect @ levels.phi
        yty -= float(levels.effect @ levels.effect)
        mass, tilt = left[-1, -1], left[-1] / left[-1, -1]
        statistics = GaussianStatistics(
            (c - tilt * c[-1])[:-1, None],
            np.array([max(yty - c[-1] ** 2 / mass, 0.0)]),
            self.n_samples - 1,
            gram=(left - np.outer(tilt, left[-1]))[:-1, :-1],
        )
        within = np.linalg.slogdet(precision)[1].sum() - len(self.z) * np.log(ratio[:q]).sum()
        within += (2 * np.log(levels.lower.diagonal()) - np.log(others)).sum()
        log_determinant = float(within + np.log(mass))
        effects = RandomEffects(self.phi, inside, effect, ratio, tilt, c[-1] / mass, mass, levels)
        return statistics, log_determinant, effects

    def _levels(self, inside: FloatArray, ratio: FloatArray) -> OtherLevels:
        """Eliminate the groups, by their P⁻¹, from what concerns other levels."""
        z, threads = self.levels_z, resolve_n_threads()
        turned = (bsr_array((inside, np.arange(len(inside)), np.arange(len(inside) + 1))) @ z).T
        lower, _ = cholesky((self.levels_gram - turned @ z).toarray() + np.diag(ratio), threads)
        phi = solve_lower(lower, self.levels_phi - turned @ self.phi.reshape(-1, self.phi.shape[2]), threads)
        effect = solve_lower(lower, self.levels_y - turned @ self.y.ravel())
        return OtherLevels(lower, phi, effect, z.data, np.array(z.nonzero(), np.int64))


@dataclass(frozen=True)
class OtherLevels:
    """Effects of levels of further factors, given weights and intercept; there may be none."""

    lower: Annotated[FloatArray, Shape("n_levels*", "n_levels*")]  # L
    phi: Annotated[FloatArray, Shape("n_levels*", "n_columns")]  # L⁻¹U
    effect: Annotated[FloatArray, Shape("n_levels*")]  # L⁻¹ Σ zy
    entry: Annotated[FloatArray, Shape("n_entries*")]  # of Σ z with indicators, what is not zero, and its place
    place: Annotated[NDArray[np.int64], Shape(2, "n_entries*")]


@dataclass(frozen=True)
class RandomEffects:
    """Effects of groups and the intercept, given weights of basis functions; see the module."""

    phi: Annotated[FloatArray, Shape("n_groups", "n_effects", "n_columns")]
    inside: Annotated[FloatArray, Shape("n_groups", "n_effects", "n_effects")]  # P⁻¹
    effect: Annotated[FloatArray, Shape("n_groups", "n_effects")]  # P⁻¹ Σ zy
    ratio: Annotated[FloatArray, Shape("n_ratios"), Positive]  # of effects, then levels
    tilt: Annotated[FloatArray, Shape("n_columns")]  # weights of Φ that the intercept makes up for
    intercept: float  # at weights of zero
    mass: Annotated[float, Positive]  # its precision times σ²
    levels: OtherLevels

    def moments(
        self,
        posterior: GaussianPosterior,
        scale: float,
        noise: float,
        phi: FloatArray,
        z: FloatArray,
        group: NDArray[np.intp],
        levels: csr_array | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of φᵀw + zᵀb at rows of Φ with ones; −1 is a new group; weights are in units of `scale`.

        `levels`: indicators of the levels of other factors, whose effects are added.
        """
        known, row, mean = group >= 0, phi.copy(), np.zeros(len(phi))
        own, at, (n, q) = group[known], z[known], self.effect.shape
        variance = noise * (z**2 @ (1 / self.ratio[:q]))
        turned = np.einsum("nk,nkl->nl", at, self.inside[own])
        row[known] -= np.einsum("nk,nkb->nb", turned, self.phi[own])
        mean[known] = np.einsum("nk,nk->n", at, self.effect[own])
        variance[known] = noise * np.einsum("nk,nk->n", turned, at)
        if levels is not None:
            others, left = self.levels, levels.toarray()
            sums = csr_array((others.entry, tuple(others.place)), (n * q, left.shape[1]))
            left[known] -= in_columns(own[:, None] * q + np.arange(q), n * q, turned) @ sums
            half = half_rows(others.lower, left)
            row, mean = row - half @ others.phi, mean + half @ others.effect
            variance += noise * squared_norms(half)
        kappa = row[:, -1]
        of_weights = posterior.moments((row - kappa[:, None] * self.tilt)[:, :-1])
        mean += scale * of_weights[0] + kappa * self.intercept
        return mean, variance + scale**2 * of_weights[1] + noise * kappa**2 / self.mass


Found = tuple[GaussianPosterior, float, RandomEffects, float]


def fit_given_ratios(
    sums: GroupSums, initial: InitialHyperparameters, log_ratio: FloatArray, sizes: Sequence[int] = ()
) -> Found:
    """Return what `fit_random_effects` does, for given logs of σ²/t of a group's effects, then of other factors."""
    limited = np.clip(log_ratio, LEAST_LOG_RATIO, MOST_LOG_RATIO)
    ratio = np.repeat(np.exp(limited), [*[1] * sums.z.shape[1], *sizes])
    statistics, log_determinant, effects = sums.eliminated(ratio)
    posterior, scale = fit_by_evidence(decorrelate(statistics).target(0), initial, n_noise_levels=1)
    return posterior, scale, effects, float(posterior.elbo) - 0.5 * log_determinant


def fit_random_effects(sums: GroupSums, initial: InitialHyperparameters, sizes: Sequence[int] = ()) -> Found:
    """Return the weights' posterior in units of their prior deviation, that, the effects, and the log evidence.

    Noise, the weights' prior variance and those of the effects maximise the evidence, restricted as to the intercept.
    `sizes`: numbers of levels of other factors.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.features import LinearFeatures
    >>> from pydirect.linear import GroupSums, fit_random_effects
    >>> from pydirect.linear.fit import InitialHyperparameters
    >>> rng = np.random.default_rng(0)
    >>> group, x = np.arange(600) % 30, rng.standard_normal((600, 1))
    >>> y = 2.0 * x[:, 0] + rng.normal(0.0, 3.0, 30)[group] + rng.normal(0.0, 0.5, 600)
    >>> sums = GroupSums.collect(LinearFeatures(1), x, y, np.ones((600, 1)), group, 30)
    >>> posterior, scale, _, _ = fit_random_effects(sums, InitialHyperparameters(noise=1.0))
    >>> round(float(scale * posterior.coefficients[0]), 1)
    2.0
    """
    q, at = sums.z.shape[1], partial(fit_given_ratios, sums, initial, sizes=sizes)
    if sizes:  # logs of variances, to each of which that is added which rows of a level cannot tell from zero
        least = np.minimum([*[len(sums.z)] * q, *sizes] / np.array(sums.n_samples), 1.0)

        def above(x: FloatArray) -> Found:
            return at(-np.log(np.maximum(np.exp(x) - least, np.exp(-MOST_LOG_RATIO))))

        bounds, options = [(low, -LEAST_LOG_RATIO) for low in np.log(least)], {"final_tr_radius": 3 * TOLERANCE}
        best = minimize(lambda x: -above(x)[3], np.log(least), method="COBYQA", bounds=bounds, options=options)
        return above(best.x)
    if q == 1:
        limits = (LEAST_LOG_RATIO, MOST_LOG_RATIO)
        best = minimize_scalar(
            lambda r: -at(np.array([r]))[3], bounds=limits, method="bounded", options={"xatol": TOLERANCE}
        )
        return at(np.array([best.x]))
    tolerances = {"xatol": TOLERANCE, "fatol": TOLERANCE}
    found = minimize(lambda r: -at(r)[3], np.ones(q), method="Nelder-Mead", options=tolerances)
    return at(found.x)
