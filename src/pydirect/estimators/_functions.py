"""Draws of functions from the posterior of a regressor: callables with gradients, in the units of X and y."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_generator
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.priors import as_prior
from pydirect.estimators._basis import BasisFunctionModel
from pydirect.estimators._local import warn_without_local
from pydirect.features.derivatives import derivatives, direction_of, moving_columns
from pydirect.features.missing_functions import MissingFeatures, missing_variance_along
from pydirect.linear.decorrelated import DecorrelatedPosterior
from pydirect.linear.function_draws import WeightDraws


class FunctionDraws(Sequence["DrawnFunction"]):
    """Functions drawn from the posterior; of several outputs, each draw is a function with all of them.

    ``functions[i]`` is one of them, ``functions[2:5]`` are some, and all are evaluated at once by ``functions(X)``.
    The draws do not change with the model, nor with the rows that they are asked at, up to rounding.
    """

    def __init__(
        self, model: Any, weights: list[WeightDraws], missing: MissingFeatures | None, normal: NDArray[Any]
    ) -> None:
        """Keep draws of weights, one per output, and of weights of `missing`, (n_outputs, n_missing, n_functions)."""
        self._model, self._weights, self._missing, self._normal = model, weights, missing, normal

    def __repr__(self) -> str:
        return f"<{len(self)} functions drawn from {type(self._model).__name__}>"

    def __len__(self) -> int:
        return self._weights[0].n_draws

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
        weights = [draws[chosen] for draws in self._weights]
        return FunctionDraws(self._model, weights, self._missing, self._normal[:, :, chosen])

    def __call__(self, X: ArrayLike) -> FloatArray:
        """Return values of the functions, (n_rows, n_functions) or (n_rows, n_outputs, n_functions), in y's units."""
        x = self._model._check_rows(X)
        values = np.empty((len(x), len(self._weights), len(self)))
        for rows in self._blocks(x):
            values[rows] = self._values(x[rows])
        return self._model._shape(values)

    def argmax(self, candidates: ArrayLike) -> NDArray[np.intp]:
        """Return the row where each function is largest, (n_functions,) or (n_outputs, n_functions).

        `candidates`: array_like of shape (n_rows, n_features_in); the first of equal ones is taken.
        """
        return self._best(candidates, 1.0)

    def argmin(self, candidates: ArrayLike) -> NDArray[np.intp]:
        """Return the row where each function is smallest; see `argmax`."""
        return self._best(candidates, -1.0)

    def _best(self, candidates: ArrayLike, sign: float) -> NDArray[np.intp]:
        x = self._model._check_rows(candidates)
        shape = len(self._weights), len(self)
        best, where = np.full(shape, -np.inf), np.zeros(shape, dtype=np.intp)
        for rows in self._blocks(x):
            values = sign * self._values(x[rows])
            first = values.argmax(axis=0)
            largest = np.take_along_axis(values, first[None], axis=0)[0]
            better = largest > best
            best[better], where[better] = largest[better], rows.start + first[better]
        return where[0] if self._model._one_dimensional else where

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
        model = self._model
        x = complete_rows(model, X)
        found = np.empty((len(x), len(self._weights), len(self), model.n_features_in_))
        for rows in self._blocks(x):
            found[rows] = self._gradient(x[rows])
        return model._shape(found)

    # --- blocks of rows

    def _blocks(self, x: FloatArray) -> Iterator[slice]:
        per_row = 3 * self._model._n_columns() + 3 * self._normal.shape[1] + 3 * len(self) * len(self._weights)
        return self._model._blocks(x, per_row)

    def _values(self, x: FloatArray) -> FloatArray:
        """Return values in y's units, (n_rows, n_outputs, n_functions)."""
        model = self._model
        with single_blas_thread():
            inputs, phi = model._features_of(x)
            missing = None if self._missing is None else self._missing.transform(inputs, phi)
            deviations = self._deviations(phi, missing)
        mean = model._latent_moments(x, with_variance=False)[0]
        values = model.y_mean_[:, None] + model.y_scale_[:, None] * (mean[:, :, None] + deviations)
        transform = model.features_.target_transform
        return values if transform is None else transform.inverse(values)

    def _deviations(self, phi: FloatArray, missing: FloatArray | None) -> FloatArray:
        """Return what draws add to the mean, standardised and calibrated, (n_rows, n_outputs, n_functions).

        Of rows of Φ and of features of what it misses, or of their derivatives.
        """
        scale = self._model.calibration_scale_ * self._model.prior_scale_
        found = np.empty((len(phi), len(self._weights), len(self)))
        for k, draws in enumerate(self._weights):
            found[:, k] = draws.at(phi)
            if missing is not None:
                found[:, k] += missing @ self._normal[k]
            found[:, k] *= scale[k]
        return found

    def _gradient(self, x: FloatArray) -> FloatArray:
        """Return derivatives in units, (n_rows, n_outputs, n_functions, n_features_in)."""
        model, basis = self._model, self._model.features_
        found = np.zeros((len(x), len(self._weights), len(self), model.n_features_in_))
        found[..., columns_of_categories(model)] = np.nan
        with single_blas_thread():
            inputs, phi = model._features_of(x)
            along = derivatives(basis.map, inputs)
            for column, encoded in columns_of_numbers(model).items():
                direction = direction_of(basis.input_map, x, encoded)
                functions = along(direction)
                mean = functions @ model._function_weights.T
                rates = basis.whitened(functions)
                missing = None if self._missing is None else self._missing.along(inputs, phi, direction, rates)
                found[..., column] = mean[:, :, None] + self._deviations(rates, missing)
        found *= model.y_scale_[:, None, None]
        transform = basis.target_transform
        return found if transform is None else found * transform.slope(self._values(x))[..., None]


class DrawnFunction:
    """One function drawn from the posterior, with its gradient, in the units of X and y."""

    def __init__(self, only: FunctionDraws) -> None:
        self._only = only

    def __repr__(self) -> str:
        return f"<function drawn from {type(self._only._model).__name__}>"

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


def columns_of_numbers(model: Any) -> dict[int, int]:
    """Return the encoded column of each column of X that holds numbers and is not constant."""
    columns = model.columns_
    return moving_columns(model.features_.input_map.kept, columns.groups, columns.origins)


def columns_of_categories(model: Any) -> list[int]:
    """Return the columns of X that have no derivative."""
    return [j for j, own in enumerate(model.columns_.categories) if own is not None]


def complete_rows(model: Any, X: ArrayLike) -> FloatArray:
    """Return encoded rows; raise where numbers are missing, as there is nothing that could move."""
    model._require_fitted()
    given = model._valid_matrix(X)
    if given is None:
        given = model._validated(X, reset=False)
        lacking = model.columns_.missing(given) & [own is None for own in model.columns_.categories]
        if lacking.any():
            raise ValueError(f"X must have no missing numbers for gradients, got {int(lacking.sum())}")
    return np.asarray(model._encoded(given))


class DrawsFunctions(BasisFunctionModel):
    """Base of regressors that draw functions from the posterior of their weights."""

    y_mean_: FloatArray
    y_scale_: FloatArray
    calibration_scale_: float
    local_: Any

    def predict_gradient(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the gradients of the mean and of the deviation of f, as ``predict_parts`` has them (epistemic).

        With these, acquisition functions can be ascended: of an upper confidence bound, say, it is their sum in
        proportion. `FunctionDraws.gradient` has those of draws.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        mean, std : ndarray of shape (n_rows, n_features_in) or (n_rows, n_outputs, n_features_in)
            In y's units per unit of the column; NaN for columns of categories. Where a deviation is zero, so is its
            gradient.

        Raises
        ------
        TypeError
            Where features are a scikit-learn transformer.
        ValueError
            Outside of the decorrelated basis, for transformed targets, with a local process or missing numbers.
        """
        x = complete_rows(self, X)
        obstacle = self._obstacle_to_gradients()
        if obstacle:
            raise ValueError(f"predict_gradient is not available with {obstacle}")
        mean, std = np.empty((2, len(x), len(self.posteriors_), self.n_features_in_))
        with single_blas_thread():
            roots = [posterior.covariance_root() for posterior in self.posteriors_]
            for rows in self._blocks(x, 5 * self._n_columns()):
                mean[rows], std[rows] = self._gradients(x[rows], roots)
        unit = self.y_scale_[:, None]
        return self._shape(unit * mean), self._shape(self.calibration_scale_ * unit * std)

    def _obstacle_to_gradients(self) -> str | None:
        """Return what of the model has no gradients in closed form, if something has not."""
        if not all(isinstance(posterior, DecorrelatedPosterior) for posterior in self.posteriors_):
            return f"basis={self.basis!r}: sample_functions(n).gradient(X) has those of draws"
        if self.features_.target_transform is not None and not self.features_.target_transform.is_identity:
            return "a transformed target: fit to the transformed target itself"
        return "a local process: fit with local=False" if getattr(self, "local_", None) is not None else None

    def _gradients(self, x: FloatArray, roots: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Return gradients of mean and deviation, standardised, (n_rows, n_outputs, n_features_in) each."""
        basis, missing = self.features_, self.mean_missing_variance_
        mean, std = np.zeros((2, len(x), len(roots), self.n_features_in_))
        for array in (mean, std):
            array[..., columns_of_categories(self)] = np.nan
        inputs, phi = self._features_of(x)
        along, rotated = derivatives(basis.map, inputs), [phi @ root for root in roots]
        beyond = basis.missing_variance(inputs, phi, missing)
        deviation = self.prior_scale_ * np.stack(
            [np.sqrt(np.einsum("ij,ij->i", r, r) + (0.0 if beyond is None else beyond)) for r in rotated], axis=1
        )
        for column, encoded in columns_of_numbers(self).items():
            direction = direction_of(basis.input_map, x, encoded)
            functions = along(direction)
            mean[..., column] = functions @ self._function_weights.T
            rates = basis.whitened(functions)
            other = missing_variance_along(basis, inputs, phi, missing, direction, rates)
            for k, root in enumerate(roots):
                change = self.prior_scale_[k] ** 2 * (np.einsum("ij,ij->i", rotated[k], rates @ root) + 0.5 * other)
                here = deviation[:, k]
                std[:, k, column] = np.divide(change, here, out=np.zeros_like(here), where=here > 0)
        return mean, std

    def sample_functions(
        self, n_functions: int = 1, random_state: np.random.Generator | int | None = 0
    ) -> FunctionDraws:
        """Draw functions from the posterior: callables, with gradients, for whatever rows they are asked at.

        ``sample_y(X, n, noise=False)`` draws values of such functions at the rows of X alone, jointly and exactly,
        what landmarks miss between them included, and the next call draws others. Here each draw is a function once and
        for all; its mean and its variance at any row are those of ``predict_parts`` (epistemic), as are its
        correlations between rows, but for the part that landmarks miss, whose correlations are those of a random
        Fourier approximation of the kernel. A draw costs a number per weight; products are left to the first rows.

        With a Gaussian prior, draws in the decorrelated basis are of continuous weights. Where targets are transformed,
        functions are those of the median, in y's units, and a local process is left out, with a warning.

        Parameters
        ----------
        n_functions : int, default=1
            At most the number of draws that were kept, for sequential posteriors without ``keep_factor``.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.

        Returns
        -------
        FunctionDraws
            A sequence of callables: ``functions[i](X)`` has shape (n_rows,) or (n_rows, n_outputs), ``functions(X)``
            (n_rows, n_functions) or (n_rows, n_outputs, n_functions), ``functions.gradient(X)`` one more axis, of the
            columns of X. ``functions.argmax(candidates)`` are the rows where each is largest.

        Examples
        --------
        >>> import numpy as np
        >>> from pydirect import DirectRegressor
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> functions = DirectRegressor().fit(X, np.sin(6 * X[:, 0])).sample_functions(100)
        >>> functions(X).shape, functions[0].gradient(X).shape
        ((30, 100), (30, 1))
        """
        self._require_fitted()
        n_functions, rng = as_count(n_functions, "n_functions"), as_generator(random_state)
        model = copy.copy(self)  # which later fits do not change
        if getattr(model, "local_", None) is not None:
            warn_without_local("draws of functions, which it has none of,", stacklevel=3)
            model.local_ = None
        kept = [p.n_draws for p in model.posteriors_ if isinstance(p, SequentialPosterior) and p.sampler is None]
        if n_functions > min(kept, default=n_functions):
            raise ValueError(
                f"n_functions must be at most {min(kept)}, the number of draws that were kept, got {n_functions}: fit "
                "with more n_draws or with keep_factor=True"
            )
        prior = as_prior(model.prior)
        weights = [WeightDraws.of(posterior, prior, n_functions, rng) for posterior in model.posteriors_]
        missing, n_missing = None, 0
        if model.features_.hyperparameters is not None:
            missing = MissingFeatures(model.features_, model.mean_missing_variance_, rng)
            n_missing = missing.n_weights
        normal = rng.standard_normal((len(weights), n_missing, n_functions), dtype=np.float32)
        return FunctionDraws(model, weights, missing, normal)
