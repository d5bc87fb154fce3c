"""Effects of columns: f as a sum of functions of one column, of two, and the rest, with their shares of its variance.

Of independent columns, each distributed as in X, f = f₀ + Σ f_j(x_j) + Σ f_jk(x_j, x_k) + … has one decomposition into
functions that average to zero over each of their columns (Hoeffding 1948, Sobol' 1993). They are averages of f over the
other columns, here over rows of X whose columns are shuffled: linear functions of the weights, so that their posterior
is Gaussian where that of the weights is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import threads
from pydirect._validation import FloatArray, as_count, as_generator, as_instance, short_repr
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.posterior import GaussianPosterior

# Shuffled rows that effects are averages over, and those of variances; draws of the weights.
BACKGROUND, MANY, DRAWS = 256, 2000, 200
# Values of a column: of its own effect, and of one with another column.
VALUES, PAIR_VALUES = 24, 8


@dataclass(frozen=True)
class Effect:
    """An effect of one column or of two, in y's units.

    - `columns`: their names.
    - `values`: for each column the values that it was set to, encoded; the first number of each if there are several.
    - `mean`, `std`, (n_values,) or (n_values, n_values): posterior moments.
    - `share`, `share_std`: of the variance of f, and its posterior deviation.
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
        width = max(len(" × ".join(effect.columns)) for effect in (*self.main, *self.pairs))
        lines = [f"{'share of the variance of f':>{width + 27}}   with interactions"]
        for effect in (*self.main, *self.pairs):
            name, own = " × ".join(effect.columns), f"{effect.share:.3f} ± {effect.share_std:.3f}"
            total = self.total.get(name)
            lines.append(f"{name:<{width}} {own:>26}" + (f"{total[0]:>12.3f} ± {total[1]:.3f}" if total else ""))
        return "\n".join(lines)


def effects(
    model: DirectRegressor,
    X: ArrayLike,
    *,
    output: int = 0,
    max_pair_columns: int = 4,
    random_state: np.random.Generator | int | None = 0,
) -> Effects:
    """Return how f depends on each column, and on pairs of columns, with posterior deviations.

    A local process is left out, with a warning; where y was transformed, f is in the transformed units. Correlations
    between columns are ignored: effects are those of columns that vary independently.

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
    if not 0 <= output < fitted.units.n_outputs:
        raise ValueError(f"output must be from 0 to {fitted.units.n_outputs - 1}, got {output}")
    if not isinstance(fitted.posteriors[output], GaussianPosterior):
        raise ValueError("effects need Gaussian weights: fit with posterior='gaussian'")
    with threads(model.n_threads):
        columns = model.columns_
        names = list(columns.names or (f"column {j}" for j in range(columns.n_columns)))
        found = _Decomposition(fitted, output, rows, columns.origins, as_generator(random_state))
        return found.effects(names, max_pair_columns)


class _Decomposition:
    """Averages of the basis functions over shuffled rows, which effects are products of with the weights."""

    def __init__(
        self,
        model: FittedRegressor,
        output: int,
        rows: FloatArray,
        origins: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> None:
        self.latent, self.rng, self.rows = model.latent, rng, rows
        self.unit = float(model.units.scale[output] * model.latent.prior_scale[output])
        self.posterior = model.posteriors[output]
        varies = [j for j in np.unique(origins) if np.ptp(rows[:, origins == j], axis=0).any()]
        self.blocks = {int(j): np.flatnonzero(origins == j) for j in varies}
        self.weights = self.posterior.sample_weights(DRAWS, rng)

    def phi(self, rows: FloatArray) -> FloatArray:
        return self.latent.phi(rows)[1]

    def shuffled(self, n_rows: int) -> FloatArray:
        """Return rows whose columns are drawn independently of each other."""
        found = self.rows[self.rng.integers(len(self.rows), size=n_rows)]
        for encoded in self.blocks.values():
            found[:, encoded] = self.rows[self.rng.integers(len(self.rows), size=n_rows)][:, encoded]
        return found

    def grid(self, column: int, size: int) -> tuple[FloatArray, FloatArray]:
        """Return values of a column, (n_values, n_encoded), and their probabilities."""
        values, counts = np.unique(self.rows[:, self.blocks[column]], axis=0, return_counts=True)
        if len(values) > size:  # quantiles of equal probability
            ends = np.cumsum(counts) / counts.sum()
            values = values[np.searchsorted(ends, (np.arange(size) + 0.5) / size)]
            return values, np.full(size, 1 / size)
        return values, counts / counts.sum()

    def averages(self, columns: tuple[int, ...], grids: tuple[FloatArray, ...], background: FloatArray) -> FloatArray:
        """Return Φ averaged over rows with some columns set to values, (n_values, ..., n_weights)."""
        shape = tuple(len(grid) for grid in grids)
        found = np.empty((*shape, self.latent.n_columns))
        for at in np.ndindex(*shape):
            rows = background.copy()
            for column, grid, place in zip(columns, grids, at, strict=True):
                rows[:, self.blocks[column]] = grid[place]
            found[at] = self.phi(rows).mean(axis=0)
        return found

    def effect(
        self,
        names: tuple[str, ...],
        grids: tuple[FloatArray, ...],
        masses: tuple[FloatArray, ...],
        centred: FloatArray,
        whole: FloatArray,
    ) -> Effect:
        """Return the effect of centred basis functions; `whole` is the variance of f in every draw."""
        phi = np.ascontiguousarray(centred.reshape(-1, centred.shape[-1]))
        mean, variance = self.posterior.moments(phi)
        mass = masses[0] if len(masses) == 1 else np.outer(*masses).ravel()
        shares = mass @ np.square(phi @ self.weights.T) / whole
        shape, values = centred.shape[:-1], tuple(grid[:, 0] for grid in grids)
        moments = (self.unit * mean).reshape(shape), (self.unit * np.sqrt(variance)).reshape(shape)
        return Effect(names, values, *moments, float(shares.mean()), float(shares.std()))

    def effects(self, names: list[str], max_pair_columns: int) -> Effects:
        """Decompose f; shares are means and deviations over draws of the weights."""
        background, many = self.shuffled(BACKGROUND), self.shuffled(MANY)
        phi = self.phi(many)
        whole = np.var(phi @ self.weights.T, axis=0)
        main, total = {}, {}
        for j, encoded in self.blocks.items():
            grid, mass = self.grid(j, VALUES)
            averages = self.averages((j,), (grid,), background)
            main[j] = self.effect((names[j],), (grid,), (mass,), averages - mass @ averages, whole)
            other = many.copy()
            other[:, encoded] = self.rows[self.rng.integers(len(self.rows), size=MANY)][:, encoded]
            lost = 0.5 * np.mean(np.square((phi - self.phi(other)) @ self.weights.T), axis=0) / whole
            total[j] = float(lost.mean()), float(lost.std())
        chosen = sorted(main, key=lambda j: main[j].share - total[j][0])[:max_pair_columns]
        pairs = []
        for j, k in combinations(sorted(chosen), 2):
            grids, masses = zip(self.grid(j, PAIR_VALUES), self.grid(k, PAIR_VALUES), strict=True)
            both = self.averages((j, k), grids, background)
            both = both - np.tensordot(masses[0], both, 1)
            both = both - np.einsum("j,ijk->ik", masses[1], both)[:, None]
            pairs.append(self.effect((names[j], names[k]), grids, masses, both, whole))
        of_one, of_two = (tuple(sorted(found, key=lambda effect: -effect.share)) for found in (main.values(), pairs))
        return Effects(of_one, of_two, {names[j]: shares for j, shares in total.items()})
