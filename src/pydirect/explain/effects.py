"""Effects of columns: f as a sum of functions of one column, of two, and the rest, with their shares of its variance.

Of independent columns, each distributed as in X, f = f₀ + Σ f_j(x_j) + Σ f_jk(x_j, x_k) + … has one decomposition into
functions that average to zero over each of their columns (Hoeffding 1948, Sobol' 1993). They are averages of f over the
other columns, here over rows of X whose columns are shuffled: linear functions of the weights, so that their posterior
is Gaussian where that of the weights is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import make_interp_spline

from pydirect._threads import threads
from pydirect._validation import FloatArray, RandomState, as_count, as_generator, as_instance, as_output, short_repr
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.posterior import GaussianPosterior
from pydirect.tables.encoding import ColumnEncoding

# Shuffled rows that effects are averages over, and those of variances; draws of the weights.
BACKGROUND, MANY, DRAWS = 256, 2000, 200
# Values of a column: of its own effect, and of one with another column.
VALUES, PAIR_VALUES = 24, 8
# Times as many of what is encoded as several numbers, which one row of quantiles does not fill.
SEVERAL = 4

# Deviation of f, relative to that of y, below which f is constant and has no shares.
NOTHING = 1e-6


@dataclass(frozen=True)
class Effect:
    """An effect of one column or of two, in y's units.

    - `columns`: their names.
    - `values`: for each column the values that it was set to, encoded; the first number of each if there are several.
    - `mean`, `std`, (n_values,) or (n_values, n_values): posterior moments.
    - `share`, `share_std`: of the variance of f, and its deviation: of the posterior, and of the average over rows.
    """

    columns: tuple[str, ...]
    values: tuple[FloatArray, ...]
    mean: FloatArray
    std: FloatArray
    share: float
    share_std: float

    __repr__ = short_repr


@dataclass(frozen=True)
class Effects:
    """Effects of single columns, of pairs of them, and the variance that each column has a part in.

    - `main`: one `Effect` per column that varies, the largest share first.
    - `pairs`: those of pairs of columns, likewise.
    - `total`: by column the share of the variance of f that is lost if the column is not known, interactions included,
      and its posterior deviation.
    """

    main: tuple[Effect, ...]
    pairs: tuple[Effect, ...]
    total: dict[str, tuple[float, float]]

    __repr__ = short_repr

    def __str__(self) -> str:
        if not self.main:
            return "no column varies"
        width = max(len(" × ".join(effect.columns)) for effect in (*self.main, *self.pairs))
        lines = [f"{'share of the variance of f':>{width + 27}}   with interactions"]
        for effect in (*self.main, *self.pairs):
            name, own = " × ".join(effect.columns), f"{effect.share:.3f} ± {effect.share_std:.3f}"
            total = self.total.get(name)
            lines.append(f"{name:<{width}} {own:>26}" + (f"{total[0]:>12.3f} ± {total[1]:.3f}" if total else ""))
        return "\n".join(lines)


def effects(
    model: DirectRegressor, X: ArrayLike, *, output: int = 0, max_pair_columns: int = 4, random_state: RandomState = 0
) -> Effects:
    """Return how f depends on each column, and on pairs of columns, with posterior deviations.

    A local process is left out, with a warning; where y was transformed, f is in the transformed units. Correlations
    between columns are ignored: effects are those of columns that vary independently, a place's two as one.

    Parameters
    ----------
    model : DirectRegressor
        With Gaussian weights.
    X : frame or array_like of shape (n_rows, n_features_in)
        Rows that say how the columns are distributed.
    output : int, default=0
        Which of several outputs.
    max_pair_columns : int, default=4
        Number of columns whose pairs are looked at: those with the largest interactions.
    random_state : Generator, int or None, default=0
        Source of the random numbers, or its seed.

    Returns
    -------
    Effects
        Effects and shares; ``print`` shows a table.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from pydirect import DirectRegressor
    >>> from pydirect.explain import effects
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> found = effects(DirectRegressor(n_basis_functions=100).fit(X, y), X)
    >>> sorted(effect.columns[0] for effect in found.main[:2])
    ['bmi', 's5']
    """
    as_instance(model, "model", DirectRegressor)
    as_count(max_pair_columns, "max_pair_columns", 0)
    rows = model.encode_rows(X)
    fitted = model.model_.without_local("effects of columns, which are of the model of all rows,")
    fitted.latent.require_no_effects("effects of columns")
    as_output(output, fitted.units.n_outputs)
    if not isinstance(fitted.posteriors[output], GaussianPosterior):
        raise ValueError("effects need Gaussian weights: fit with posterior='gaussian'")
    with threads(model.n_threads):
        found = _Decomposition(fitted, output, rows, model.columns_, as_generator(random_state))
        return found.effects(max_pair_columns)


class _Decomposition:
    """Averages of the basis functions over shuffled rows, which effects are products of with the weights."""

    def __init__(
        self, model: FittedRegressor, output: int, rows: FloatArray, columns: ColumnEncoding, rng: np.random.Generator
    ) -> None:
        self.latent, self.posterior, self.rows, self.rng = model.latent, model.posteriors[output], rows, rng
        self.unit = float(model.units.scale[output] * model.latent.prior_scale[output])
        players, _, self.names = columns.players()
        varying = np.ptp(rows, axis=0) > 0
        self.blocks = {int(j): np.flatnonzero(players == j) for j in np.unique(players[varying]) if j >= 0}
        self.weights = self.posterior.sample_weights(DRAWS, rng)
        self.background, self.many = self.shuffled(BACKGROUND), self.shuffled(MANY)
        self.phi = self.latent.phi(self.many)[1]
        if self.latent.prior_scale[output] * np.std(self.posterior.moments(self.phi)[0]) < NOTHING:
            self.weights = np.zeros_like(self.weights)
        self.f = self.phi @ self.weights.T
        self.f -= self.f.mean(axis=0)
        self.whole = np.mean(np.square(self.f), axis=0)

    def shuffled(self, n_rows: int) -> FloatArray:
        """Return rows whose columns are shuffled independently of each other; each has all its values equally often."""
        found = np.repeat(self.rows[:1], n_rows, axis=0)
        for encoded in self.blocks.values():
            found[:, encoded] = self.drawn(encoded, n_rows)
        return found

    def drawn(self, encoded: NDArray[np.intp], n_rows: int) -> FloatArray:
        cycled = self.rng.permutation(len(self.rows))[np.arange(n_rows) % len(self.rows)]
        return self.rows[self.rng.permutation(cycled)][:, encoded]

    def share(self, parts: FloatArray) -> tuple[float, float]:
        """Return the mean over draws of a share of the variance, and its deviation, that of the rows' mean included.

        `parts`, (n_rows or 1, n_draws): its numerator, of which the mean over rows is to be taken.
        """
        whole = np.maximum(self.whole, np.finfo(float).tiny)
        shares = parts.mean(axis=0) / whole
        error = np.var((parts - shares * np.square(self.f)) / whole, axis=0) / MANY
        return float(shares.mean()), float(np.sqrt(shares.var() + error.mean()))

    def grid(self, column: int, size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values of a column, (n_values, n_encoded), their masses, and a matrix of those of products.

        Functions are linear between quantiles, and beyond them.
        """
        size *= SEVERAL if len(self.blocks[column]) > 1 else 1
        values, counts = np.unique(self.rows[:, self.blocks[column]], axis=0, return_counts=True)
        mass = counts / counts.sum()
        if len(values) > size:  # quantiles of equal probability
            kept = values[np.searchsorted(np.cumsum(mass), (np.arange(size) + 0.5) / size)]
            if kept.shape[1] > 1:
                return kept, np.full(size, 1 / size), np.eye(size) / size
            kept = np.unique(kept, axis=0)
            kept = kept if len(kept) > 1 else values[[0, -1]]
            linear = make_interp_spline(kept[:, 0], np.eye(len(kept)), k=1)(values[:, 0])
            return kept, mass @ linear, linear.T @ (mass[:, None] * linear)
        return values, mass, np.diag(mass)

    def effect(self, columns: tuple[int, ...], size: int) -> Effect:
        """Return the effect of columns that all others are averaged over, less those of fewer of them."""
        grids, masses, products = zip(*(self.grid(j, size) for j in columns), strict=True)
        shape, rows = tuple(map(len, grids)), self.background.copy()
        phi = np.empty((*shape, self.latent.n_columns))
        for at in np.ndindex(*shape):
            for column, grid, place in zip(columns, grids, at, strict=True):
                rows[:, self.blocks[column]] = grid[place]
            phi[at] = self.latent.phi(rows)[1].mean(axis=0)
        for axis, mass in enumerate(masses):
            phi = phi - np.expand_dims(np.tensordot(mass, phi, (0, axis)), axis)
        phi = np.ascontiguousarray(phi.reshape(-1, phi.shape[-1]))
        mean, variance = self.posterior.moments(phi)
        f = phi @ self.weights.T
        parts = np.sum(f * (reduce(np.kron, products) @ f), axis=0, keepdims=True)
        if len(columns) == 1 and len(grids[0]) == SEVERAL * size:  # values that are too few for a variance
            parts = self.alone(self.blocks[columns[0]])
        moments = (self.unit * mean).reshape(shape), (self.unit * np.sqrt(variance)).reshape(shape)
        names, values = tuple(self.names[j] for j in columns), tuple(grid[:, 0] for grid in grids)
        return Effect(names, values, *moments, *self.share(parts))

    def alone(self, encoded: NDArray[np.intp]) -> FloatArray:
        """Return products of f at rows that have a column in common, (n_rows, n_draws), whose mean is its variance."""
        other = self.shuffled(MANY)
        other[:, encoded] = self.many[:, encoded]
        f = self.latent.phi(other)[1] @ self.weights.T
        return np.asarray(self.f * (f - f.mean(axis=0)))

    def total(self, encoded: NDArray[np.intp]) -> tuple[float, float]:
        """Return the share of the variance that is lost without a column, by rows that differ in it alone."""
        other = self.many.copy()
        other[:, encoded] = self.drawn(encoded, MANY)
        return self.share(0.5 * np.square((self.phi - self.latent.phi(other)[1]) @ self.weights.T))

    def effects(self, max_pair_columns: int) -> Effects:
        """Decompose f; shares are means and deviations over draws of the weights."""
        main = {j: self.effect((j,), VALUES) for j in self.blocks}
        total = {j: self.total(encoded) for j, encoded in self.blocks.items()}
        chosen = sorted(main, key=lambda j: main[j].share - total[j][0])[:max_pair_columns]
        pairs = [self.effect(pair, PAIR_VALUES) for pair in combinations(sorted(chosen), 2)]
        of_one, of_two = (tuple(sorted(found, key=lambda effect: -effect.share)) for found in (main.values(), pairs))
        return Effects(of_one, of_two, {self.names[j]: shares for j, shares in total.items()})
