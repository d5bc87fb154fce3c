"""Kernel hyperparameters from rows given their nearest preceding rows: the evidence of many rows at the cost of few.

In a random order, the density of all rows is a product of densities of rows given those before them, of which the
nearest say nearly everything (Vecchia 1988). The constant and the linear part are no local matter: their coefficients
β, found by generalised least squares whenever neighbours are, are held fixed in between.
"""

from __future__ import annotations

import copy
from dataclasses import InitVar, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pydirect import _core
from pydirect._dense import cholesky, gram, product, solve_factored
from pydirect._validation import FloatArray
from pydirect.features.kernel import KernelHyperparameters, linear_inputs
from pydirect.features.marginal_likelihood import MarginalLikelihood, terms_of_copies

# Most inputs of the metric in which rows are near, all categories of a column counting as one: those along which the
# function changes most.
METRIC_INPUTS = 24
# Beyond this, squares of inputs overflow in single precision: whatever is so far is never near.
FARTHEST = 1e15


@dataclass(eq=False)
class NearestEvidence:
    """−log posterior of θ of `MarginalLikelihood`, from conditional densities of some rows; outputs share θ.

    Rows x (n_rows, n_inputs), y (n_rows, n_outputs), weights (n_rows,) are in random order; `targets`, indices of
    rows, are given the nearest `n_neighbours` of those before them. `exact`, the marginal likelihood of other rows, is
    added on request; its priors count once. `linear`: inputs of the linear part, by default the first of x.
    """

    x: FloatArray
    y: FloatArray
    weight: FloatArray
    targets: NDArray[np.intp]
    n_neighbours: int
    exact: MarginalLikelihood
    adds_exact: bool = field(default=False, kw_only=True)
    metric_inputs: int = field(default=METRIC_INPUTS, kw_only=True)
    copies: InitVar[FloatArray | None] = field(default=None, kw_only=True)
    linear: InitVar[FloatArray | None] = field(default=None, kw_only=True)

    def __post_init__(self, copies: FloatArray | None, linear: FloatArray | None) -> None:
        exact = self.exact
        of_targets = (self.weight if copies is None else copies)[self.targets]
        self.of_copies = terms_of_copies(of_targets, self.y.shape[1])
        self.d, self.tied, self.bounds, self.n_linear = exact.d, exact.tied, exact.bounds, exact.n_linear
        self.mean, self.start = exact.mean, exact.start
        self.x, self.targets = np.ascontiguousarray(self.x), np.ascontiguousarray(self.targets)
        self.moving = _core.moving_inputs(self.x)
        linear = linear_inputs(self.x, self.n_linear) if linear is None else linear
        self.columns = np.hstack([linear, np.ones((len(self.x), 1))])
        self.spread = self.x.std(axis=0)
        self.trend, self.trend_square = np.zeros((self.n_linear + 1, self.y.shape[1])), 0.0
        self.n_rows = len(self.targets) + self.adds_exact * exact.n_rows
        self.n_values = self.n_rows * self.y.shape[1]
        self.iterations_between_updates = 6

    def at(self, smoothness: float) -> Self:
        """Return the same with a kernel of this smoothness."""
        other = copy.copy(self)
        other.exact = self.exact.at(smoothness)
        return other

    def unpack(self, theta: FloatArray, n_evaluations: int = 0) -> KernelHyperparameters:
        """Return the hyperparameters of θ."""
        return self.exact.unpack(theta, n_evaluations)

    def update(self, theta: FloatArray) -> None:
        """Find the nearest preceding rows in the metric of θ, and the trend."""
        p = self.unpack(theta)
        self.rows = self.neighbours(p)
        self.isotropic = _core.nearest_distances(self.x, self.rows, self.moving, self.exact.n_threads)
        weights, variances = np.empty(self.rows.shape), np.empty(len(self.rows))
        if not self._sums(p, weights, variances)[1]:
            return
        entries = (
            -weights.ravel(),
            np.maximum(self.rows, 0).ravel(),
            np.arange(0, self.rows.size + 1, self.rows.shape[1]),
        )
        differences = csr_array(entries, shape=(len(self.rows), len(self.x)))
        columns, values = differences @ self.columns, differences @ self.y
        precision = gram(columns, 1 / variances)
        precision[np.diag_indices_from(precision)] += [*np.full(self.n_linear, 1 / p.amplitudes[2]), 1 / p.constant]
        covariance = solve_factored(cholesky(precision)[0], np.eye(len(precision)))
        self.trend = product(covariance, product(columns.T, values / variances[:, None]))
        n_outputs = self.y.shape[1]
        self.trend_square = np.square(self.trend[:-1]).sum() + n_outputs * np.trace(covariance[:-1, :-1])

    def neighbours(self, p: KernelHyperparameters) -> NDArray[np.int64]:
        """Return the nearest preceding rows of the targets, −1 for none, and last these, (n_targets, n_neighbours + 1).

        Distances are those of both parts of the kernel, weighted by their amplitudes, along the inputs that matter.
        """
        squares = p.ard_amplitude / p.length_scales**2 + p.isotropic_amplitude / p.isotropic_length_scale**2
        scale = np.sqrt(squares / (p.ard_amplitude + p.isotropic_amplitude))
        variances = np.bincount(self.tied, (scale * self.spread) ** 2)
        used = np.flatnonzero(np.isin(self.tied, np.argsort(-variances, kind="stable")[: self.metric_inputs]))
        metric = np.clip(self.x[:, used] * scale[used], -FARTHEST, FARTHEST).astype(np.float32)
        padded = np.ascontiguousarray(np.pad(metric, ((0, -len(metric) % 16), (0, 0))).T)
        found = _core.nearest_preceding(padded, self.targets, self.n_neighbours, self.exact.n_threads)
        return np.hstack([found, self.targets[:, None]])

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return −Σ log density of the targets, −log priors of the trend and of θ, and its gradient, (n_scales + 5)."""
        d, p, n_outputs = self.d, self.unpack(theta), self.y.shape[1]
        sums, is_valid = self._sums(p)
        if not is_valid or not np.isfinite(sums).all():
            return _core.BAD_POINT, np.zeros_like(theta)
        value, noise, ard, isotropic, distance = sums[:5]
        gradient = np.zeros_like(theta)
        gradient[:2] = noise, ard
        slope, rest = self.of_copies
        value -= slope * theta[0] + rest
        gradient[0] -= slope
        gradient[2 : 2 + d] = np.bincount(self.tied, sums[5:], d)
        gradient[2 + d : 4 + d] = isotropic, distance
        if self.n_linear:
            count, slope = 0.5 * n_outputs * self.n_linear, p.amplitudes[2]
            misfit = 0.5 * self.trend_square / slope
            value += count * np.log(slope) + misfit
            gradient[4 + d] = count - misfit
        added, of_added = (self.exact.function if self.adds_exact else self.exact.function.penalty)(theta)
        return float(value) + added, gradient + of_added

    def _sums(self, p: KernelHyperparameters, *outputs: FloatArray) -> tuple[FloatArray, bool]:
        """Return the value and its gradient, or the value alone and, in `outputs`, weights and variances of targets."""
        local = self.x / p.length_scales, self.rows, self.moving, self.isotropic, p.noise_variance / self.weight
        parts = np.array([p.ard_amplitude, p.isotropic_amplitude, p.isotropic_length_scale])
        order, n_threads, of_targets = round(2 * p.smoothness), self.exact.n_threads, outputs or (None, None)
        y = self.y - product(self.columns, self.trend)
        return _core.nearest_evidence(*local, y, parts, order, not outputs, n_threads, *of_targets)
