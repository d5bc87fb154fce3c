"""What each column contributed to predictions: Shapley values of the mean and of the variance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import single_blas_thread, threads
from pydirect._validation import FloatArray, as_choice, as_count, as_generator, column_names, short_repr
from pydirect.estimators._regressor import Regressor
from pydirect.explain.coalitions import (
    shares_by_enumeration,
    shares_by_permutations,
    shares_of_functions,
    shares_of_variance,
)
from pydirect.fitted.predictor import Predictor
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.posterior import GaussianPosterior, latent_variances
from pydirect.noise.model import CONSTANT, HEAVY_TAILED, STUDENT_T

EXPLAINED = ("mean", "variance")
# Numbers that exact ways go through for one row, a second or two; beyond, random orders take their place.
MOST_NUMBERS = 2**25
# Products of this many numbers in matrices take as long as one number of a product over columns.
PRODUCTS_PER_NUMBER = 800
# What a prediction costs at least, in numbers.
FEWEST_NUMBERS = 256
# Pairs of orders for each background row: errors are what they differ by.
FEWEST_PAIRS = 2

# Shapley values, (n_players, n_outputs), their errors, and their posterior deviations if there are any.
Shares = tuple[FloatArray, FloatArray, FloatArray | None]


@dataclass(frozen=True)
class ShapleyValues:
    """Contributions of columns to predictions: they add up to the prediction less the average one.

    - `values` (n_rows, n_columns) or (n_rows, n_columns, n_outputs): In units of the target, or of its square if the
      variance is explained.
    - `base` (n_outputs,): Average prediction of the background rows.
    - `prediction` (n_rows,) or (n_rows, n_outputs): What was explained: `base` and the row's values added up.
    - `data` (n_rows, n_columns): The rows, as they were given.
    - `standard_error`: Errors of values from random orders; None where they are exact.
    - `std`: Posterior standard deviation of contributions to the mean, which are linear in the weights, where the model
      is one of weights alone: how well the data tell them.
    """

    values: FloatArray
    base: Any
    prediction: FloatArray
    of: str
    names: tuple[str, ...]
    data: NDArray[np.object_]
    standard_error: FloatArray | None = None
    std: FloatArray | None = None

    __repr__ = short_repr


def shapley_values(
    model: Regressor,
    X: ArrayLike,
    background: ArrayLike | None = None,
    *,
    of: str = "mean",
    n_permutations: int = 64,
    random_state: np.random.Generator | int | None = 0,
) -> ShapleyValues:
    """Shapley values of columns: how much each contributed to the predictive mean or variance at rows of X.

    Columns that have not joined take their values from a background row, and results are averaged over these rows: the
    interventional Shapley values of Janzing, Minorics & Blöbaum (2020). A column of categories is one, and what stands
    for a missing number is held. Values are exact where that takes no more than a second or two for a row: in closed
    form for ``"linear"``, ``"polynomial"``, ``"fourier"`` and ``"precomputed"`` features, whose functions are products
    over columns, and by sums over all coalitions of few columns for all others. Else they are estimated from random
    orders, with standard errors.

    Parameters
    ----------
    model : DirectRegressor or another regressor of this package
        Fitted.
    X : array_like of shape (n_rows, n_features_in)
        Rows to explain.
    background : array_like of shape (n_background, n_features_in), optional
        Rows to compare with, for instance 50 of the training data; by default one row of the means of the training
        data. Work is proportional to their number.
    of : {"mean", "variance"}, default="mean"
        What is explained: the predictive mean, or the predictive variance, noise included.
    n_permutations : int, default=64
        Random orders for a row, half of them backwards; at least four for each background row.
    random_state : int, Generator or None, default=0
        Seed of the orders of columns.

    Returns
    -------
    ShapleyValues
        The contributions.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor
    >>> from pydirect.explain import shapley_values
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> y = X @ [2.0, -1.0, 0.0] + 0.01 * np.random.default_rng(1).standard_normal(100)
    >>> model = DirectRegressor("linear").fit(X, y)
    >>> shapley_values(model, [[1.0, 1.0, 1.0]], [[0.0, 0.0, 0.0]]).values.round(1).tolist()
    [[2.0, -1.0, 0.0]]
    """
    if not isinstance(model, Regressor):
        raise TypeError(f"model must be a regressor with predictive distributions, got {type(model).__name__}")
    check_is_fitted(model)
    as_choice(of, "of", EXPLAINED)
    as_count(n_permutations, "n_permutations", 4)
    rng = as_generator(random_state)
    x = model.encode_rows(X)
    z = _mean_row(model) if background is None else model.encode_rows(background)
    fitted: Predictor = model.model_
    origins = model.columns_.origins if hasattr(model, "columns_") else np.arange(z.shape[1])
    game = _Game(fitted, of, z, origins, model.n_features_in_)
    with threads(model.n_threads):
        each = [game.shares(row, n_permutations, rng) for row in x]
        base, predicted = game.predicted(z).mean(axis=0), game.predicted(x)
    one = fitted.units.one_dimensional
    outputs = 0 if one else slice(None)
    values = np.stack([shares[0] for shares in each])[..., outputs]
    errors = np.stack([shares[1] for shares in each])[..., outputs]
    stds = [shares[2] for shares in each if shares[2] is not None]
    return ShapleyValues(
        values,
        float(base[0]) if one else base,
        fitted.units.shape(predicted),
        of,
        _names(model, X),
        np.asarray(X, dtype=object),
        errors if errors.any() else None,
        np.stack(stds)[..., outputs] if stds else None,
    )


def _names(model: Regressor, X: ArrayLike) -> tuple[str, ...]:
    given = column_names(X) or getattr(model, "feature_names_in_", None)
    names = [f"column {j}" for j in range(model.n_features_in_)] if given is None else given
    return tuple(map(str, names))


def _mean_row(model: Regressor) -> FloatArray:
    """Means of the encoded training rows, (1, n_encoded)."""
    fitted = model.model_
    if not isinstance(fitted, FittedRegressor) or fitted.basis.map.kind in ("precomputed", "transformer"):
        raise ValueError("background must be rows to compare with, got None: this model does not know mean rows")
    return fitted.basis.input_map.mean[None]


class _Game:
    """What coalitions of columns are worth, in units of the targets.

    ``background`` (n_background, n_encoded), ``origins`` (n_encoded,) the column of each encoded one.
    """

    def __init__(
        self, model: Predictor, of: str, background: FloatArray, origins: NDArray[np.intp], n_columns: int
    ) -> None:
        self.model, self.of, self.background, self.origins, self.n_columns = model, of, background, origins, n_columns
        self.linear = None  # the model where the mean is linear in weights
        if isinstance(model, FittedRegressor) and model.units.active is None and model.local is None:
            self.linear = model
        self.products, self.weights_alone = None, self.linear is not None and of == "mean"
        if self.linear is not None and (of == "mean" or _has_constant_variance(self.linear)):
            self.products = self.linear.basis.map.products()

    @property
    def _linear(self) -> FittedRegressor:
        assert self.linear is not None
        return self.linear

    @property
    def n_outputs(self) -> int:
        return self.model.units.n_outputs

    def predicted(self, rows: FloatArray) -> FloatArray:
        """Predictive means or variances, (n_rows, n_outputs)."""
        units, of_variance = self.model.units, self.of == "variance"
        if units.active is not None:
            return self.model.moments_in_units(rows)[int(of_variance)]
        if of_variance:
            return np.asarray(units.scale**2 * self.model.moments(rows)[1])
        return np.asarray(units.location + units.scale * self.model.latent_moments(rows, with_variance=False)[0])

    def shares(self, x: FloatArray, n_permutations: int, rng: np.random.Generator) -> Shares:
        """Return the Shapley values of all columns for an encoded row, (n_columns, n_outputs) each."""
        columns = np.unique(self.origins[(x != self.background).any(axis=0)])
        shape = (self.n_columns, self.n_outputs)
        place = np.full(self.n_columns, -1)
        place[columns] = np.arange(len(columns))
        n_pairs = max(FEWEST_PAIRS, -(-n_permutations // (2 * len(self.background))))
        with single_blas_thread():
            found = self._shares_of_players(x, place[self.origins], len(columns), n_pairs, rng)

        def of_all(part: FloatArray) -> FloatArray:
            whole = np.zeros(shape)
            whole[columns] = part
            return whole

        values, errors, std = found
        return of_all(values), of_all(errors), None if std is None else of_all(std)

    def _shares_of_players(
        self, x: FloatArray, groups: NDArray[np.intp], n_players: int, n_pairs: int, rng: np.random.Generator
    ) -> Shares:
        """Return what each player contributes; `groups`, (n_encoded,): players of encoded columns."""
        if n_players == 0:
            nothing = np.zeros((0, self.n_outputs))
            return nothing, nothing, nothing if self.weights_alone else None
        by_products, by_enumeration = self._work_of_products(groups, n_players), self._work_of_rows(2.0**n_players)
        if by_products <= min(by_enumeration, MOST_NUMBERS):
            return self._by_products(x, groups, n_players)
        game = self._functions if self.weights_alone else self.predicted, x, self.background, groups, n_players
        if by_enumeration <= max(MOST_NUMBERS, self._work_of_rows(2.0 * n_pairs * n_players)):
            shares = shares_by_enumeration(*game)
            return self._parts(shares, np.zeros_like(shares))
        return self._parts(*shares_by_permutations(*game, n_pairs, rng))

    # --- the work of each way, in numbers

    def _work_of_rows(self, n_rows: float) -> float:
        """Return that of predictions at a number of rows for each background row."""
        width = max(self.model.n_columns, FEWEST_NUMBERS)
        return len(self.background) * n_rows * width * (1.0 if self.of == "mean" else 1 + width / PRODUCTS_PER_NUMBER)

    def _work_of_products(self, groups: NDArray[np.intp], n_players: int) -> float:
        """Return that of closed forms, infinite if there are none."""
        if self.products is None:
            return np.inf
        degree, n_terms = self.products.degree(self._inputs_of(groups)), float(self.products.n_terms)
        if self.of == "variance" and degree > 1:
            degree, n_terms = min(2 * degree, n_players), n_terms**2
        return len(self.background) * n_terms * n_players * (1 + degree // 2)

    # --- products

    def _inputs_of(self, groups: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the players of the inputs of the feature map, those of no player together as one more."""
        inputs = self._linear.basis.input_map
        own = groups[np.concatenate([inputs.kept, inputs.scored])]
        return np.where(own < 0, groups.max() + 1, own)

    def _by_products(self, x: FloatArray, groups: NDArray[np.intp], n_players: int) -> Shares:
        assert self.products is not None
        model, players = self._linear, (self._inputs_of(groups), n_players + 1)
        at, *others = model.basis.inputs(np.vstack([x, self.background]))
        if self.of == "mean":
            each = [shares_of_functions(self.products, at, z, *players)[:n_players] for z in others]
            phi = np.mean(each, axis=0)
            values = model.units.scale * (phi @ model.latent.coefficients)
            return values, np.zeros_like(values), self._deviations(phi)
        values = self._shares_of_clipped_variance(at, np.stack(others), players[0], n_players)
        for k, covariance in enumerate(self._covariances):
            each = [shares_of_variance(self.products, covariance, at, z, *players)[:n_players] for z in others]
            values[:, k] += np.mean(each, axis=0)
        values *= (model.units.calibration * model.units.scale) ** 2
        return values, np.zeros_like(values), None

    @cached_property
    def _covariances(self) -> list[FloatArray]:
        """Posterior covariances of every output's weights, which all rows share."""
        latent = self._linear.latent
        return [t * each.covariance for each, t in zip(latent.posteriors, latent.prior_scale**2, strict=True)]

    def _shares_of_clipped_variance(
        self, x: FloatArray, others: FloatArray, groups: NDArray[np.intp], n_players: int
    ) -> FloatArray:
        """Return what players contribute to the variance that a clipped linear part lacks, (n_players, n_outputs).

        It is a sum over inputs. `x`, (n_inputs,); `others`, (n_background, n_inputs).
        """
        kernel, unit = self._linear.basis.hyperparameters, self._linear.latent.prior_scale**2
        if kernel is None:
            return np.zeros((n_players, len(unit)))
        own = groups == np.arange(n_players)[:, None]
        of_row, *of_others = (kernel.cut_off_variance(np.where(own, row, 0.0)) for row in (x, *others))
        return (of_row - np.mean(of_others, axis=0))[:, None] * unit

    # --- rows

    def _functions(self, rows: FloatArray) -> FloatArray:
        """Return predictive means, then k(x, Z) or Φ, of which they are linear functions; (n_rows, n_values)."""
        latent, units = self._linear.latent, self._linear.units
        functions = latent.basis.functions(latent.basis.inputs(rows))
        return np.hstack([units.location + units.scale * (functions @ latent.function_weights.T), functions])

    def _parts(self, shares: FloatArray, errors: FloatArray) -> Shares:
        n_outputs = self.n_outputs
        if not self.weights_alone:
            return shares, errors, None
        phi = self._linear.basis.whitened(np.ascontiguousarray(shares[:, n_outputs:]))
        return shares[:, :n_outputs], errors[:, :n_outputs], self._deviations(phi)

    def _deviations(self, phi: FloatArray) -> FloatArray:
        """Return posterior standard deviations of contributions, given those of the basis functions."""
        latent, units = self._linear.latent, self._linear.units
        variances = latent_variances(latent.posteriors, latent.prior_scale, phi)
        return np.asarray(units.calibration * units.scale * np.sqrt(variances))


def _has_constant_variance(model: FittedRegressor) -> bool:
    """Whether the variance is that of weights whose covariance is known, and of noise that is the same everywhere."""
    constant = model.noise is None or {*model.noise.choices} <= {CONSTANT, HEAVY_TAILED, STUDENT_T}
    return constant and all(isinstance(posterior, GaussianPosterior) for posterior in model.posteriors)
