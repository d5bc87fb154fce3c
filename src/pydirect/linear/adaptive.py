"""Regression of a stream: sums of rows that come and go, and the posterior that follows them row by row.

The posterior is that of the sums at two kinds of moments: when it is asked for after many rows, and when it has been
changed row by row for a while (`refresh`). The noise and the prior variance take a few steps towards the largest
evidence then.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from pydirect import _core
from pydirect._dense import product
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, short_repr
from pydirect.linear.recursive import BLOCK_ROWS, RecursivePosterior
from pydirect.persistence.schema import NOT_STORED, AtLeast, AtMost, Binds, Positive, Shape
from pydirect.statistics.gaussian import GaussianStatistics, whitened_sums
from pydirect.statistics.running import FadingSum, WindowSum

# Predictions of several threads may all find that posteriors are to be computed: one of them does it.
_REFRESHING = threading.RLock()
# Value of the constant basis function, whose weight has the prior of the others: the level of the targets is free to
# move by ten times the deviation of the functions.
CONSTANT = 10.0
# To what the prior may fade with the rows until it is restored.
LEAST_PRIOR = 0.9
# Rows after which the posterior is computed from the sums again: a share of the rows that there are, but not fewer than
# a few, and no more than pay for it.
SHARE, FEWEST, ROWS_PER_WEIGHT = 1 / 8, 16, 8
# Changes of the noise and of the prior variance that are worth another factorisation, and how many of these.
CHANGED, MOST_STEPS = (0.02, 0.2), 5
# Least noise variance, in units of the targets' mean square; by what factor the prior variance may change: where basis
# functions vanish, as far from all landmarks, it would grow without end.
LEAST_NOISE, MOST_CHANGE = 1e-8, 10.0


@dataclass(frozen=True)
class Block:
    """Rows as inference sees them.

    - `functions`, (n_rows, n_functions): of which sums are kept: Φ, or kernel functions that are whitened to it.
    - `phi`, (n_rows, n_functions): Φ.
    - `y`, (n_rows, n_outputs).
    - `weight`, (n_rows,): positive.
    - `missing`, (n_rows,): variance of f that Φ lacks, in units of the prior variance.
    """

    functions: FloatArray
    phi: FloatArray
    y: FloatArray
    weight: FloatArray
    missing: FloatArray

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: slice) -> Block:
        return Block(*(own[rows] for own in (self.functions, self.phi, self.y, self.weight, self.missing)))

    def for_sums(self) -> FloatArray:
        """Return the rows that are summed: functions, the constant and targets."""
        b = self.functions.shape[1]
        rows = np.empty((len(self), b + 1 + self.y.shape[1]))
        rows[:, :b], rows[:, b], rows[:, b + 1 :] = self.functions, CONSTANT, self.y
        return rows


def with_constant(phi: FloatArray) -> FloatArray:
    """Return Φ with the constant basis function."""
    rows = np.empty((len(phi), phi.shape[1] + 1))
    rows[:, :-1], rows[:, -1] = phi, CONSTANT
    return rows


@dataclass(eq=False)
class AdaptiveRegression:
    """Linear regression on basis functions and a constant, of rows that come, fade and leave.

    Attributes
    ----------
    noise, prior : ndarray of shape (n_outputs,)
        Noise variance and prior variance of the weights.
    first_prior : ndarray of shape (n_outputs,)
        Prior variance to begin with.
    prior_of_posteriors : ndarray of shape (n_outputs,)
        Prior variance of the posteriors before they fade.
    sums : FadingSum or WindowSum
        Over rows of functions, the constant and targets; of a window where rows leave in the order in which they came.
    since : int
        Rows that have changed the posteriors one by one.
    faded : float
        What has become of the posteriors' prior meanwhile.
    n_samples : float
        Sum of the weights of the rows as they have faded.
    degrees : ndarray of shape (n_outputs,)
        Degrees of freedom of the posteriors' noise: one more than rows that tell of it.
    posteriors : tuple of RecursivePosterior or None
        Of the weights, the last of which is the constant's, of each output; None: there are rows that they do not know.
    factor : ndarray of shape (n_functions, n_functions), optional
        L of Φ = FL⁻ᵀ where sums are of F.
    """

    noise: Annotated[FloatArray, Shape("n_outputs"), Positive]
    prior: Annotated[FloatArray, Shape("n_outputs"), Positive]
    first_prior: Annotated[FloatArray, Shape("n_outputs"), Positive]
    prior_of_posteriors: Annotated[FloatArray, Shape("n_outputs"), Positive]
    sums: Annotated[FadingSum | WindowSum, Binds(n_columns="n_columns")]
    since: Annotated[int, AtLeast(0)]
    faded: Annotated[float, Positive, AtMost(1.0)]
    n_samples: Annotated[float, AtLeast(0.0)]
    degrees: Annotated[FloatArray, Shape("n_outputs"), Positive]
    posteriors: Annotated[tuple[RecursivePosterior, ...], Shape("n_outputs")] | None
    factor: FloatArray | None = field(default=None, metadata=NOT_STORED)

    __repr__ = short_repr

    @classmethod
    def empty(
        cls, n_functions: int, noise: FloatArray, prior: FloatArray, sliding: bool, factor: FloatArray | None
    ) -> Self:
        """Begin with no rows, at a noise variance and a prior variance."""
        sums = (WindowSum if sliding else FadingSum).empty(n_functions + 1 + len(noise))
        return cls(noise, prior, prior, prior, sums, 0, 1.0, 0.0, np.ones(len(noise)), None, factor)

    @property
    def n_outputs(self) -> int:
        """Number of targets."""
        return len(self.noise)

    @property
    def n_functions(self) -> int:
        """Number of basis functions, without the constant."""
        return self.sums.n_columns - 1 - self.n_outputs

    def current(self) -> tuple[RecursivePosterior, ...]:
        """Return the posteriors given all rows, refreshed if they do not know some."""
        if self.posteriors is None:
            with _REFRESHING:
                if self.posteriors is None:
                    self.refresh()
        assert self.posteriors is not None
        return self.posteriors

    def statistics(self) -> GaussianStatistics:
        """Return the sums of Φ with the constant."""
        with _REFRESHING:
            total, b = self.sums.total(), self.n_functions
        if self.factor is not None and b:
            sums = np.ascontiguousarray(total[b:, :b]), np.ascontiguousarray(total[:b, :b])
            cross, total[:b, :b] = whitened_sums(*sums, self.factor)
            total[b:, :b], total[:b, b:] = cross, cross.T
        yty = np.maximum(total.diagonal()[b + 1 :], 0.0)
        gram, c = total[: b + 1, : b + 1].copy(), total[: b + 1, b + 1 :].copy()
        return GaussianStatistics(c, yty, self.n_samples, gram=gram)

    @single_blas_thread()
    def refresh(self) -> None:
        """Compute the posteriors from the sums, after a few steps of the noise and the prior variance."""
        statistics, found = self.statistics(), []
        noise, prior, degrees = self.noise.copy(), self.prior.copy(), self.degrees.copy()
        for k in range(self.n_outputs):
            target, first_prior = statistics.target(k), self.first_prior[k]
            least = LEAST_NOISE * (1.0 + target.yty) / (1.0 + target.n_samples)
            for _ in range(MOST_STEPS):
                posterior = RecursivePosterior.of(target, noise[k], prior[k])
                before = noise[k], prior[k]
                better_noise, better_prior, degrees[k] = posterior.improved_variances(target)
                noise[k] = max(better_noise, least)
                prior[k] = np.clip(better_prior, first_prior / MOST_CHANGE, first_prior * MOST_CHANGE)
                if (np.abs(np.log([noise[k] / before[0], prior[k] / before[1]])) < CHANGED).all():
                    break
            found.append(posterior)
        self.noise, self.prior, self.degrees, self.since, self.faded = noise, prior, degrees, 0, 1.0
        self.prior_of_posteriors = np.array([posterior.prior_variance for posterior in found])
        self.posteriors = tuple(found)  # last: other threads look at them first

    def moments(self, phi: FloatArray, missing: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f at rows of Φ, (n_rows, n_outputs) each, without the noise.

        `missing`, (n_rows,): as of `Block`.
        """
        rows = with_constant(phi)
        mean, variance = zip(*(posterior.moments(rows) for posterior in self.current()), strict=True)
        return np.stack(mean, axis=1), np.stack(variance, axis=1) + np.outer(missing, self.prior_of_posteriors)

    def mean(self, phi: FloatArray) -> FloatArray:
        """Mean of f at rows of Φ, (n_rows, n_outputs)."""
        return product(with_constant(phi), np.stack([posterior.mean for posterior in self.current()], axis=1))

    def mean_of_functions(self, functions: FloatArray) -> FloatArray:
        """Mean of f, (n_rows, n_outputs), at rows of the functions that are summed."""
        with single_blas_thread():
            weights, b = np.stack([posterior.mean for posterior in self.current()], axis=1), self.n_functions
            if self.factor is not None and b:
                weights[:b] = solve_triangular(self.factor, weights[:b], lower=True, trans="T")
        return product(with_constant(functions), weights)

    # --- rows

    def learn(self, block: Block, decay: FloatArray | None = None) -> None:
        """Add rows; the posteriors follow when they are asked for.

        `decay`, (n_rows,): by what all earlier rows fade when a row comes.
        """
        weight = block.weight
        if decay is not None and isinstance(self.sums, FadingSum):
            left = np.cumprod(decay[::-1])[::-1]  # of what was there before each row
            self.sums.fade(float(left[0]))
            self.n_samples *= float(left[0])
            weight = weight * np.append(left[1:], 1.0)
        self.sums.add(block.for_sums(), weight)
        self.n_samples += float(weight.sum())
        self.posteriors = None

    def leave(self, block: Block) -> None:
        """Remove the oldest rows; the posteriors follow when they are asked for."""
        assert isinstance(self.sums, WindowSum)
        self.sums.leave(block.for_sums(), block.weight)
        self.n_samples = max(self.n_samples - float(block.weight.sum()), 0.0)
        self.posteriors = None

    def add_squares(self, squares: FloatArray) -> None:
        """Add to yᵀy, (n_outputs,), what targets vary about the mean that was learned in their place."""
        rows = np.zeros((self.n_outputs, self.n_functions + 1 + self.n_outputs))
        rows[:, self.n_functions + 1 :] = np.diag(np.sqrt(squares))
        self.sums.add(rows)
        self.posteriors = None

    def predict_then_learn(
        self,
        block: Block,
        decay: FloatArray | None = None,
        leaving: Block | None = None,
        n_left: NDArray[np.intp] | None = None,
    ) -> FloatArray:
        """Add rows one after another, and return what was predicted of y before each.

        Parameters
        ----------
        block : Block
        decay : ndarray of shape (n_rows,), optional
            By what all earlier rows fade when a row comes.
        leaving : Block, optional
            Rows that leave the window, oldest first.
        n_left : ndarray of shape (n_rows,), optional
            How many of them have left when a row has come.

        Returns
        -------
        ndarray of shape (4, n_rows, n_outputs)
            Mean, variance with the noise, noise variance and its degrees of freedom.
        """
        decay = np.ones(len(block)) if decay is None else decay
        leaving = block[:0] if leaving is None else leaving
        n_left = np.zeros(len(block), dtype=np.intp) if n_left is None else n_left
        found = np.empty((4, len(block), self.n_outputs))
        begin = left = 0
        while begin < len(block):
            if self._is_due():
                self.refresh()
            end = min(len(block), begin + BLOCK_ROWS, begin + self._rows_until_due())
            end = begin + int((self.faded * np.cumprod(decay[begin:end]) >= LEAST_PRIOR).sum())
            if end == begin and self.faded < 1:
                self.refresh()
                continue
            rows = slice(begin, max(end, begin + 1))
            found[2, rows], found[3, rows] = self._noise_of_posteriors(), self.degrees
            gone, left = left, int(n_left[rows][-1])
            found[0, rows], found[1, rows] = self._step(
                block[rows], decay[rows], leaving[gone:left], n_left[rows] - gone
            )
            begin = rows.stop
        if self._is_due():
            self.posteriors = None
        return found

    def _is_due(self) -> bool:
        return self.posteriors is None or self._rows_until_due() <= 0

    def _rows_until_due(self) -> int:
        most = ROWS_PER_WEIGHT * (self.n_functions + 1)
        return int(max(FEWEST, min(SHARE * self.n_samples, most))) - self.since

    def _step(
        self, block: Block, decay: FloatArray, leaving: Block, n_left: NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray]:
        """Add a few rows to posteriors and sums, and after each remove those that leave then."""
        kept = np.cumprod(decay)
        if kept[-1] < LEAST_PRIOR:  # a single row after a long while
            mean, variance = self.moments(block.phi, block.missing)
            noise = self._noise_of_posteriors()
            self.learn(block, decay)
            return mean, variance + noise
        # Rows count relative to those before the first, which have not faded: all fade together in the end.
        before = np.append(1.0, kept[:-1])[:, None]
        comes = np.zeros(len(block) + len(leaving), dtype=bool)
        comes[np.arange(len(block)) + np.append(0, n_left[:-1])] = True
        phi, y = np.empty((len(comes), self.n_functions + 1)), np.empty((len(comes), self.n_outputs))
        weight = np.empty(len(comes))
        phi[comes], y[comes], weight[comes] = with_constant(block.phi), block.y, block.weight / kept
        phi[~comes], y[~comes], weight[~comes] = with_constant(leaving.phi), leaving.y, -leaving.weight
        mean, variance = np.empty((2, len(block), self.n_outputs))
        for k, posterior in enumerate(self.current()):
            f_mean, f_variance = posterior.predict_then_update(phi, y[:, k], weight)
            mean[:, k], variance[:, k] = f_mean[comes], f_variance[comes]
            posterior.fade(float(kept[-1]))
        variance = variance / before + self._noise_of_posteriors() + np.outer(block.missing, self.prior_of_posteriors)
        posteriors = self.posteriors
        self.learn(block, decay)
        if len(leaving):
            self.leave(leaving)
        self.posteriors = posteriors
        self.since += len(block)
        self.faded *= float(kept[-1])
        return mean, variance

    # --- rows that compiled code adds itself

    def lend(self, most: int, decay: float) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Return how many rows may be added, at most `most`, to one output; arrays they change, and numbers.

        `decay`: by what all fade with each row.
        """
        if not isinstance(self.sums, FadingSum):
            return 0, {}, {}
        if self._is_due() or (self.faded < 1 and self.faded * decay < LEAST_PRIOR):
            self.refresh()
        if decay < 1:
            most = min(most, int(np.log(LEAST_PRIOR / self.faded) / np.log(decay)))
        assert self.posteriors is not None
        [posterior] = self.posteriors
        matrix, scale, n_waiting, directions, signs = posterior.lend()
        rows, weights, n_summed, sum_scale = self.sums.lend()
        n_left = min(most, self._rows_until_due(), BLOCK_ROWS - n_waiting, len(weights) - 1 - n_summed)
        arrays = {"covariance": matrix, "posterior": [directions, signs, posterior.mean], "sums": [rows, weights]}
        numbers = {
            "n_waiting": n_waiting,
            "n_summed": n_summed,
            "covariance_scale": scale,
            "sum_scale": sum_scale,
            "noise_variance": posterior.noise_variance,
            "prior_variance": self.prior_of_posteriors[0],
            "posterior_samples": posterior.n_samples,
            "n_samples": self.n_samples,
            "faded": self.faded,
            "least_faded": LEAST_PRIOR,
            "constant": CONSTANT,
        }
        return n_left, arrays, numbers

    def take_back(self, rows: _core.RowStream) -> None:
        """Go on after rows that were added to what was lent."""
        assert self.posteriors is not None and isinstance(self.sums, FadingSum)
        self.posteriors[0].take_back(rows.n_rows, rows.ratio, rows.posterior_samples)
        self.sums.take_back(rows.n_rows, rows.sum_scale)
        self.since += rows.n_rows
        self.faded, self.n_samples = rows.faded, rows.n_samples

    def _noise_of_posteriors(self) -> FloatArray:
        return np.array([posterior.noise_variance for posterior in self.current()])

    def to_saved(self) -> Self:
        """Return what files hold."""
        with _REFRESHING:
            return copy.copy(self)

    def check(self) -> None:
        """Raise unless the posteriors are of the functions that the sums are of, and a constant."""
        n_weights = self.n_functions + 1
        if n_weights < 1 or any(len(posterior.mean) != n_weights for posterior in self.posteriors or ()):
            raise ValueError("posteriors must be of the weights that the sums are of")
