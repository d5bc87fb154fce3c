"""Draws of functions from the posterior of a regressor: callables with gradients, in the units of X and y."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._dense import product, squared_norms
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.features.basis import Basis
from pydirect.features.derivatives import direction_of, moving_columns
from pydirect.features.residual import ResidualFeatures, residual_variance_along
from pydirect.fitted.regression import FittedRegressor
from pydirect.tables.encoding import ColumnEncoding


@dataclass(frozen=True, eq=False, repr=False)
class FunctionDraws(Sequence["DrawnFunction"]):
    """Functions drawn from the posterior; of several outputs, each draw is a function with all of them.

    ``functions[i]`` is one of them, ``functions[2:5]`` are some, and all are evaluated at once by ``functions(X)``.
    The draws do not change with the model, nor with the rows that they are asked at, up to rounding.
    """

    _model: FittedRegressor
    _door: Door
    # draws about the mean: (n_weights, n_functions) per output
    _weights: list[FloatArray]
    _missing: ResidualFeatures | None
    # draws of the weights of what is missing, (n_outputs, n_missing, n_functions)
    _normal: NDArray[Any]
    # what draws of effects of categories follow from, (n_functions,)
    _seeds: NDArray[np.uint64]

    def __repr__(self) -> str:
        return f"<{len(self)} functions drawn from {self._door.name}>"

    def __len__(self) -> int:
        return self._weights[0].shape[1]

    @overload
    def __getitem__(self, index: int) -> DrawnFunction: ...
    @overload
    def __getitem__(self, index: slice) -> FunctionDraws: ...
    def __getitem__(self, index: int | slice) -> DrawnFunction | FunctionDraws:
        if isinstance(index, slice):
            return self._some(index)
        i = range(len(self))[index]
        return DrawnFunction(self._some(slice(i, i + 1)))

    def __iter__(self) -> Iterator[DrawnFunction]:
        return (self[i] for i in range(len(self)))

    def _some(self, chosen: slice) -> FunctionDraws:
        weights = [draws[:, chosen] for draws in self._weights]
        return replace(self, _weights=weights, _normal=self._normal[:, :, chosen], _seeds=self._seeds[chosen])

    def __call__(self, X: ArrayLike) -> FloatArray:
        """Return values of the functions, (n_rows, n_functions) or (n_rows, n_outputs, n_functions), in y's units."""
        x = self._door.rows(X)
        values = np.empty((len(x), len(self._weights), len(self)))
        for rows in self._blocks(x):
            values[rows] = self._values(x[rows])
        return self._model.units.shape(values)

    def argmax(self, candidates: ArrayLike) -> NDArray[np.intp]:
        """Return the row where each function is largest, (n_functions,) or (n_outputs, n_functions).

        `candidates`: array_like of shape (n_rows, n_features_in); the first of equal ones is taken.
        """
        return self._best(candidates, 1.0)

    def argmin(self, candidates: ArrayLike) -> NDArray[np.intp]:
        """Return the row where each function is smallest; see `argmax`."""
        return self._best(candidates, -1.0)

    def _best(self, candidates: ArrayLike, sign: float) -> NDArray[np.intp]:
        x = self._door.rows(candidates)
        shape = len(self._weights), len(self)
        best, where = np.full(shape, -np.inf), np.zeros(shape, dtype=np.intp)
        for rows in self._blocks(x):
            values = sign * self._values(x[rows])
            first = values.argmax(axis=0)
            largest = np.take_along_axis(values, first[None], axis=0)[0]
            better = largest > best
            best[better], where[better] = largest[better], rows.start + first[better]
        return where[0] if self._model.units.one_dimensional else where

    def gradient(self, X: ArrayLike) -> FloatArray:
        """Return derivatives of the values with respect to the columns of X, in y's units per unit of the column.

        They are those of the functions as they are computed. A draw of a kernel that is once differentiable changes its
        slope from place to place, and one of the exponential kernel, whose paths have no derivative, has that of its
        Fourier series between landmarks.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)

        Returns
        -------
        ndarray of shape (n_rows, n_functions, n_features_in) or (n_rows, n_outputs, n_functions, n_features_in)
            NaN for columns of categories, which have no derivative.

        Raises
        ------
        TypeError
            Where features are a scikit-learn transformer.
        ValueError
            Where numbers of X are missing.
        """
        x = self._door.complete_rows(X)
        found = np.empty((len(x), len(self._weights), len(self), columns_of(self._model.basis).n_columns))
        for rows in self._blocks(x):
            found[rows] = self._gradient(x[rows])
        return self._model.units.shape(found)

    # --- blocks of rows

    def _blocks(self, x: FloatArray) -> Iterator[slice]:
        per_row = 3 * self._model.n_columns + 3 * self._normal.shape[1] + 3 * len(self) * len(self._weights)
        return self._model.blocks(x, per_row)

    def _values(self, x: FloatArray) -> FloatArray:
        """Return values in y's units, (n_rows, n_outputs, n_functions)."""
        model = self._model
        with single_blas_thread():
            inputs, phi = model.latent.phi(x)
            missing = None if self._missing is None else self._missing.transform(inputs, phi)
            deviations = self._deviations(phi, missing)
        model.latent.add_effect_draws(deviations, x, self._seeds, model.units.calibration)
        mean = model.latent_moments(x, with_variance=False)[0]
        units = model.units
        return units.restored(units.location[:, None] + units.scale[:, None] * (mean[:, :, None] + deviations))

    def _deviations(self, phi: FloatArray, missing: FloatArray | None) -> FloatArray:
        """Return what draws add to the mean, standardised and calibrated, (n_rows, n_outputs, n_functions).

        Of rows of Φ and of features of what it misses, or of their derivatives.
        """
        scale = self._model.units.calibration * self._model.latent.prior_scale
        found = np.empty((len(phi), len(self._weights), len(self)))
        for k, draws in enumerate(self._weights):
            found[:, k] = product(phi, draws)
            if missing is not None:
                found[:, k] += product(missing, self._normal[k])
            found[:, k] *= scale[k]
        return found

    def _gradient(self, x: FloatArray) -> FloatArray:
        """Return derivatives in units, (n_rows, n_outputs, n_functions, n_features_in)."""
        model, basis = self._model, self._model.basis
        found = np.zeros((len(x), len(self._weights), len(self), columns_of(basis).n_columns))
        found[..., columns_of_categories(basis)] = np.nan
        with single_blas_thread():
            inputs, phi = model.latent.phi(x)
            along = basis.map.gradient(inputs)
            for column, encoded in columns_of_numbers(basis).items():
                direction = direction_of(basis.input_map, x, encoded)
                functions = along(direction)
                mean = product(functions, model.latent.function_weights.T)
                rates = basis.whitened(functions)
                missing = None if self._missing is None else self._missing.along(inputs, phi, direction, rates)
                found[..., column] = mean[:, :, None] + self._deviations(rates, missing)
        found *= model.units.scale[:, None, None]
        transform = model.units.active
        return found if transform is None else found * transform.slope(self._values(x))[..., None]


@dataclass(frozen=True, eq=False, repr=False)
class DrawnFunction:
    """One function drawn from the posterior, with its gradient, in the units of X and y."""

    _only: FunctionDraws

    def __repr__(self) -> str:
        return f"<function drawn from {self._only._door.name}>"

    def __call__(self, X: ArrayLike) -> FloatArray:
        """Return values, (n_rows,) or (n_rows, n_outputs)."""
        return self._only(X)[..., 0]

    def gradient(self, X: ArrayLike) -> FloatArray:
        """Return derivatives, (n_rows, n_features_in) or (n_rows, n_outputs, n_features_in)."""
        return self._only.gradient(X)[..., 0, :]

    def argmax(self, candidates: ArrayLike) -> NDArray[np.intp]:
        """Return the row where the function is largest, of shape () or (n_outputs,)."""
        return self._only.argmax(candidates)[..., 0]

    def argmin(self, candidates: ArrayLike) -> NDArray[np.intp]:
        """Return the row where the function is smallest, of shape () or (n_outputs,)."""
        return self._only.argmin(candidates)[..., 0]


@dataclass(frozen=True)
class Door:
    """How rows come in: encoded for prediction, and encoded without missing numbers; and whose functions they are."""

    rows: Callable[[ArrayLike], FloatArray]
    complete_rows: Callable[[ArrayLike], FloatArray]
    name: str


def columns_of(basis: Basis) -> ColumnEncoding:
    """Return the encoding of columns that a fitted basis has."""
    assert basis.columns is not None
    return basis.columns


def columns_of_numbers(basis: Basis) -> dict[int, int]:
    """Columns of X that hold numbers and vary, with their encoded columns."""
    columns = columns_of(basis)
    return moving_columns(basis.input_map.kept, columns.groups, columns.origins)


def columns_of_categories(basis: Basis) -> list[int]:
    """Columns of X that hold categories or dates."""
    return np.setdiff1d(np.arange(columns_of(basis).n_columns), columns_of(basis).numbers).tolist()


def draw_functions(model: FittedRegressor, door: Door, n_functions: int, rng: np.random.Generator) -> FunctionDraws:
    """Draw functions from the posterior of a model without local process."""
    stored = [p.n_draws for p in model.posteriors if isinstance(p, SequentialPosterior) and p.sampler is None]
    if n_functions > min(stored, default=n_functions):
        raise ValueError(f"n_functions must be at most {min(stored)}, the fit's n_draws, got {n_functions}")
    if model.basis.hyperparameters is None and model.basis.map.residual_kernel is not None:
        raise ValueError("functions need a kernel of the package: sample_y(X, n, noise=False) draws values at rows")
    drawn = [posterior.sample_weights(n_functions, rng) - posterior.coefficients for posterior in model.posteriors]
    missing, n_missing = None, 0
    if model.basis.hyperparameters is not None:
        missing = ResidualFeatures(model.basis, model.latent.residual_variance, rng)
        n_missing = missing.n_weights
    normal = rng.standard_normal((len(drawn), n_missing, n_functions), dtype=np.float32)
    weights, seeds = [np.ascontiguousarray(own.T) for own in drawn], model.latent.effect_seeds(n_functions, rng)
    return FunctionDraws(model, door, weights, missing, normal, seeds)


def gradients(model: FittedRegressor, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradients of the mean and of the deviation of f, (n_rows, n_outputs, n_features_in) each, in y's units."""
    d = columns_of(model.basis).n_columns
    mean, std = np.empty((2, len(x), model.units.n_outputs, d))
    roots = [posterior.covariance_root() for posterior in model.posteriors]
    for rows in model.blocks(x, 5 * model.n_columns):
        mean[rows], std[rows] = _gradients(model, x[rows], roots)
    unit = model.units.scale[:, None]
    return model.units.shape(unit * mean), model.units.shape(model.units.calibration * unit * std)


def _gradients(model: FittedRegressor, x: FloatArray, roots: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return gradients of mean and deviation, standardised, (n_rows, n_outputs, n_features_in) each."""
    basis, missing, scale = model.basis, model.latent.residual_variance, model.latent.prior_scale
    mean, std = np.zeros((2, len(x), len(roots), columns_of(basis).n_columns))
    for array in (mean, std):
        array[..., columns_of_categories(basis)] = np.nan
    inputs, phi = model.latent.phi(x)
    along, rotated = basis.map.gradient(inputs), [product(phi, root) for root in roots]
    beyond = basis.missing_variance(inputs, phi, missing)
    deviation = scale * np.stack([np.sqrt(squared_norms(r) + beyond) for r in rotated], axis=1)
    for column, encoded in columns_of_numbers(basis).items():
        direction = direction_of(basis.input_map, x, encoded)
        functions = along(direction)
        mean[..., column] = product(functions, model.latent.function_weights.T)
        rates = basis.whitened(functions)
        other = residual_variance_along(basis, inputs, phi, missing, direction, rates)
        for k, root in enumerate(roots):
            change = scale[k] ** 2 * (np.einsum("ij,ij->i", rotated[k], product(rates, root)) + 0.5 * other)
            here = deviation[:, k]
            std[:, k, column] = np.divide(change, here, out=np.zeros_like(here), where=here > 0)
    return mean, std
