"""A function that is learned while it is searched: targets in good units, and a surrogate of bounded cost."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

from pydirect._validation import FloatArray
from pydirect.decisions.surrogate import Surrogate, fit_kernel

# Landmarks of a surrogate: what bounds its cost. Half of them are the rows that matter most.
MAX_LANDMARKS = 300
# Rows between two searches of hyperparameters grow by this factor.
GROWTH = 1.1
# Values whose squares can be summed; larger ones count as infinite.
LARGEST = 1e150


class Standardised:
    """Values of a function that is maximised: standardised, after the worse half was brought to a normal's quantiles.

    How bad bad values are tells nothing of where the best ones are, but would set the scale (the half-rank warping of
    Song et al. 2024, The Vizier Gaussian process bandit algorithm, section 3.1.1). Order is kept.
    """

    def __init__(self, values: FloatArray) -> None:
        finite = values[np.abs(values) <= LARGEST]
        values = np.clip(values, finite.min(initial=0.0), finite.max(initial=0.0))
        middle = float(np.median(values))
        spread = float(np.sqrt(np.mean((values[values >= middle] - middle) ** 2)))
        quantiles = spread * ndtri((rankdata(values) - 0.5) / len(values))
        warped = np.where(values >= middle, values, middle + np.minimum(quantiles, 0.0))
        self.known, index = np.unique(values, return_index=True)
        self.warped = warped[index]
        self.mean, self.scale = float(warped.mean()), float(warped.std()) or 1.0

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return values in the surrogate's units, those between known ones by interpolation."""
        beyond = np.where(np.abs(values) <= LARGEST, np.maximum(values - self.known[-1], 0.0), 0.0)
        return (np.interp(values, self.known, self.warped) + beyond - self.mean) / self.scale

    def priority(self, values: FloatArray) -> FloatArray:
        """Return how much each row matters, (n_rows,)."""
        return values


class Signed:
    """Values of a constraint, feasible up to zero: arsinh(c) in units of their size, which keeps the sign.

    Large violations are compressed, as by the bilog transform of Eriksson & Poloczek (2021, Scalable constrained
    Bayesian optimization, section 3), but without its kink at zero.
    """

    threshold: float

    def __init__(self, values: FloatArray) -> None:
        size = np.abs(values[np.isfinite(values) & (values != 0)])
        self.size = float(np.median(size)) if len(size) else 1.0
        shaped = self._shaped(values)
        self.mean, self.scale = float(shaped.mean()), float(shaped.std()) or 1.0
        self.threshold = -self.mean / self.scale

    def _shaped(self, values: FloatArray) -> FloatArray:
        limit = np.nan_to_num(values / self.size, posinf=1e100, neginf=-1e100)
        return np.asarray(np.arcsinh(limit))

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return values in the surrogate's units."""
        return (self._shaped(values) - self.mean) / self.scale

    def priority(self, values: FloatArray) -> FloatArray:
        """Return how much each row matters, (n_rows,): those near zero most."""
        return -np.abs(values)


class LearnedFunction:
    """One function on the inputs of a box, from the rows at which it is known.

    Between searches of the hyperparameters, whose number of rows grows geometrically, a row costs one update of rank
    one. With more than `MAX_LANDMARKS` rows the surrogate is built anew whenever a third as many have become landmarks.

    Parameters
    ----------
    tied : ndarray of int, shape (n_inputs,)
        The length-scale of each input.
    units : type
        `Standardised` or `Signed`.
    rng : numpy.random.Generator
        Selects landmarks.
    """

    def __init__(
        self, tied: NDArray[np.intp], units: type[Standardised] | type[Signed], rng: np.random.Generator
    ) -> None:
        self._tied, self._make_units, self.rng = tied, units, rng
        self._x, self.values = np.empty((0, len(tied))), np.empty(0)
        self._theta: FloatArray | None = None
        self._next_search, self._n_used = 0, 0
        self._surrogate: Surrogate | None = None
        self.units: Standardised | Signed

    @property
    def n_rows(self) -> int:
        """Rows at which the function is known."""
        return len(self._x)

    def add(self, x: FloatArray, values: FloatArray) -> None:
        """Add rows x, (n_rows, n_inputs), and values, (n_rows,), of which NaN are unknown."""
        known = ~np.isnan(values)
        self._x, self.values = np.vstack([self._x, x[known]]), np.append(self.values, values[known])

    def surrogate(self) -> Surrogate:
        """Return the surrogate of all rows so far."""
        new = slice(self._n_used, None)
        found = self._surrogate
        if found is None or self.n_rows >= self._next_search or len(found.landmarks) >= MAX_LANDMARKS * 4 // 3:
            found = self._built()
        else:
            found.learn(self._x[new], self.units(self.values[new]))
        self._surrogate, self._n_used = found, self.n_rows
        return found

    def _built(self) -> Surrogate:
        """Return a surrogate of all rows with new landmarks and, if it is time, hyperparameters."""
        self.units = self._make_units(self.values)
        y = self.units(self.values)
        chosen = self._chosen()
        if self.n_rows >= self._next_search:
            self._kernel, self._theta = fit_kernel(self._x[chosen], y[chosen], self._tied, self._theta)
            self._next_search = max(self.n_rows + 1, math.ceil(GROWTH * self.n_rows))
        return Surrogate.of(self._kernel, np.unique(self._x[chosen], axis=0), self._x, y)

    def _chosen(self) -> NDArray[np.intp]:
        """Return the rows of landmarks: all of them, or those that matter most and others by chance."""
        order = np.argsort(-self.units.priority(self.values), kind="stable")
        if self.n_rows <= MAX_LANDMARKS:
            return order
        first, rest = order[: MAX_LANDMARKS // 2], order[MAX_LANDMARKS // 2 :]
        return np.append(first, self.rng.choice(rest, MAX_LANDMARKS - len(first), replace=False))
