"""Shapley values: what each column contributed to a number that depends on all of them.

A coalition T of columns has the value v(T) = f(x_T, z_rest): a row x with the other columns from a background row z.
The Shapley value of column j is the mean of v(T ∪ j) − v(T) over all orders in which columns join (Shapley 1953; for
predictions Štrumbelj & Kononenko 2014), averaged over z: by sums over all coalitions, or by random orders with standard
errors, each also backwards, so that functions of degree two are without error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import beta
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import single_blas_thread, threads
from pydirect._validation import (
    FloatArray,
    RandomState,
    as_choice,
    as_count,
    as_generator,
    column_names,
    require_single,
    short_repr,
)
from pydirect.estimators._classifier import Classifier
from pydirect.estimators._regressor import Regressor
from pydirect.features.fitting import GIVEN_MAPS
from pydirect.fitted.classification import FittedClassifier
from pydirect.fitted.regression import FittedRegressor
from pydirect.linear.functions import latent_variances
from pydirect.tables.encoding import ColumnEncoding

Evaluate = Callable[[FloatArray], FloatArray]
# Coalitions that are evaluated at a time.
BLOCK_COALITIONS = 1024


# --- any function


def mixed_rows(x: FloatArray, z: FloatArray, joined: NDArray[np.bool_], groups: NDArray[np.intp]) -> FloatArray:
    """Return rows with the columns of x whose players have joined, and of z elsewhere, (n_coalitions, n_columns).

    `joined`, (n_coalitions, n_players); `groups`, (n_columns,): the player of each column, −1 for none.
    """
    return np.where(joined[:, groups] & (groups >= 0), x, z)


def shares_by_enumeration(
    evaluate: Evaluate, x: FloatArray, background: FloatArray, groups: NDArray[np.intp], n_players: int
) -> FloatArray:
    """Return Shapley values by sums over all coalitions, (n_players, n_values)."""
    joined = (np.arange(2**n_players)[:, None] >> np.arange(n_players)) % 2 == 1
    size = joined.sum(axis=1)[:, None]
    # Orders in which just these come before a player, or it comes last among them: (s − 1)! (n − s)! / n!.
    weights = np.where(joined, beta(size, n_players + 1 - size), -beta(size + 1, n_players - size))
    total = 0.0
    for begin in range(0, len(joined), BLOCK_COALITIONS):
        block = slice(begin, begin + BLOCK_COALITIONS)
        for z in background:
            total = total + weights[block].T @ evaluate(mixed_rows(x, z, joined[block], groups))
    return np.asarray(total) / len(background)


def shares_by_permutations(
    evaluate: Evaluate,
    x: FloatArray,
    background: FloatArray,
    groups: NDArray[np.intp],
    n_players: int,
    n_each: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Estimate Shapley values from random orders, each also backwards, and their standard errors."""
    shares, variances = 0.0, 0.0
    for z in background:
        mean, squares = 0.0, 0.0
        for k in range(n_each):  # one by one: of many columns, there are many values
            place = rng.permutation(n_players)
            places = np.stack([place, n_players - 1 - place])
            joined = places[:, None] < np.arange(n_players + 1)[:, None]
            values = evaluate(mixed_rows(x, z, joined.reshape(-1, n_players), groups))
            steps = np.diff(values.reshape(2, n_players + 1, -1), axis=1)
            each = np.take_along_axis(steps, places[..., None], axis=1).mean(axis=0)
            off = each - mean
            mean = mean + off / (k + 1)
            squares = squares + off * (each - mean)
        shares = shares + mean
        variances = variances + squares / (n_each * (n_each - 1))
    return np.asarray(shares) / len(background), np.sqrt(variances) / len(background)


# --- of predictions

EXPLAINED, EXPLAINED_OF_CLASSES = ("mean", "variance"), ("probability",)
# Numbers that exact ways go through for one row, a second or two; beyond, random orders take their place.
MOST_NUMBERS = 2**25
# Products of this many numbers in matrices take as long as one number of a product over columns.
PRODUCTS_PER_NUMBER = 800
# What a prediction costs at least, in numbers.
FEWEST_NUMBERS = 256
# Pairs of orders for each background row: errors are what they differ by.
FEWEST_PAIRS = 2


@dataclass(frozen=True)
class ShapleyValues:
    """Contributions of columns to predictions: they add up to the prediction less the average one.

    - `values` (n_rows, n_columns) or (n_rows, n_columns, n_outputs): In units of the target, or of its square if the
      variance is explained. Latitude and longitude of a place are one column.
    - `base` (n_outputs,): Average prediction of the background rows.
    - `prediction` (n_rows,) or (n_rows, n_outputs): What was explained: `base` and the row's values added up.
    - `data` (n_rows, n_columns): The rows, as they were given, places as text.
    - `standard_error`: Errors of values from random orders; None where they are exact.
    - `classes` (n_classes,): Of a classifier; of two the second is explained.
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
    classes: NDArray[Any] | None = None

    __repr__ = short_repr


def shapley_values(
    model: Regressor | Classifier,
    X: ArrayLike,
    background: ArrayLike | None = None,
    *,
    of: str | None = None,
    n_permutations: int = 64,
    random_state: RandomState = 0,
) -> ShapleyValues:
    """Shapley values of columns: how much each contributed to predictive means, variances or probabilities at X.

    Columns that have not joined take their values from a background row, and results are averaged over these rows: the
    interventional Shapley values of Janzing, Minorics & Blöbaum (2020). A column of categories is one, and what stands
    for a missing number is held. Values are exact where sums over all coalitions take no more than a second or two
    for a row, as of a dozen columns. Else they are estimated from random orders, with standard errors; those of linear
    functions, and of any of degree two, are exact all the same.

    Parameters
    ----------
    model : DirectRegressor, DirectClassifier or another estimator of this package
        Fitted.
    X : array_like of shape (n_rows, n_features_in)
        Rows to explain.
    background : array_like of shape (n_background, n_features_in), optional
        Rows to compare with, for instance 50 of the training data; by default one row of the means of the training
        data. Work is proportional to their number.
    of : {"mean", "variance", "probability"}, optional
        What is explained: the predictive mean, by default, or the predictive variance, noise included; of classifiers
        the probability of the second of two classes, or of each of more, which are their outputs.
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
    if not isinstance(model, Regressor | Classifier):
        raise TypeError(f"model must have predictive distributions, got {type(model).__name__}")
    check_is_fitted(model)
    require_single(model.model_, "model")
    explained = EXPLAINED if isinstance(model, Regressor) else EXPLAINED_OF_CLASSES
    of = explained[0] if of is None else as_choice(of, "of", explained)
    as_count(n_permutations, "n_permutations", 4)
    rng = as_generator(random_state)
    x = model.encode_rows(X)
    z = _mean_row(model) if background is None else model.encode_rows(background)
    encoding = getattr(model, "columns_", None) or ColumnEncoding.of_numbers(z.shape[1])
    given = column_names(X) or getattr(model, "feature_names_in_", None)
    names = [f"column {j}" for j in range(model.n_features_in_)] if given is None else given
    players, columns, names = encoding.players(tuple(map(str, names)))
    table = np.asarray(X, dtype=object)
    data = np.empty((len(x), len(columns)), dtype=object)
    for player, own in enumerate(columns):
        data[:, player] = table[:, own[0]] if len(own) == 1 else [", ".join(map(str, row)) for row in table[:, own]]
    game = _Game(model.model_, of, z, players, len(columns))
    with threads(model.n_threads):
        # Of values, errors and deviations, (n_rows, n_columns, n_outputs) each.
        shares = np.stack([game.shares(row, n_permutations, rng) for row in x], axis=1)
        base, predicted = game.predicted(z).mean(axis=0), game.predicted(x)
    if of == "probability":
        classes, alone = model.classes_, len(model.classes_) == 2
    else:
        classes, alone = None, model.model_.units.one_dimensional
    outputs: Any = 0 if alone else slice(None)
    values, errors, std = shares[..., outputs]
    errors = errors if errors.any() else None
    std = std if game.weights_alone else None
    return ShapleyValues(values, base[outputs], predicted[:, outputs], of, tuple(names), data, errors, std, classes)


def _mean_row(model: Regressor | Classifier) -> FloatArray:
    """Means of the encoded training rows, (1, n_encoded)."""
    fitted = model.model_
    if not isinstance(fitted, FittedRegressor | FittedClassifier) or fitted.basis.map.kind in GIVEN_MAPS:
        raise ValueError("background must be rows to compare with, got None: this model does not know mean rows")
    return fitted.basis.input_map.mean[None]


class _Game:
    """What coalitions of columns are worth, in units of the targets.

    ``background`` (n_background, n_encoded), ``origins`` (n_encoded,) the column of each encoded one, of places one.
    """

    def __init__(self, model: Any, of: str, background: FloatArray, origins: NDArray[np.intp], n_columns: int) -> None:
        self.model, self.of, self.background, self.origins, self.n_columns = model, of, background, origins, n_columns
        # Whether contributions are linear in the weights alone.
        linear = isinstance(model, FittedRegressor) and model.units.active is None and model.local is None
        self.weights_alone = linear and of == "mean"
        self.n_outputs = self.predicted(background[:1]).shape[1]

    def predicted(self, rows: FloatArray) -> FloatArray:
        """Predictive means, variances or probabilities, (n_rows, n_outputs)."""
        if self.of == "probability":
            found = np.exp(self.model.log_proba(rows))
            return np.asarray(found[:, 1:] if found.shape[1] == 2 else found)
        units, of_variance = self.model.units, self.of == "variance"
        if units.active is not None:
            return np.asarray(self.model.moments_in_units(rows)[int(of_variance)])
        if of_variance:
            return np.asarray(units.scale**2 * self.model.moments(rows)[1])
        return np.asarray(units.location + units.scale * self.model.latent_moments(rows, with_variance=False)[0])

    def shares(self, x: FloatArray, n_permutations: int, rng: np.random.Generator) -> FloatArray:
        """Return Shapley values of columns for an encoded row, their errors and deviations, (n_columns, n_outputs)."""
        columns = np.unique(self.origins[(x != self.background).any(axis=0)])  # players: others have no share
        n, n_outputs = len(columns), self.n_outputs
        found = np.zeros((3, self.n_columns, n_outputs))
        place = np.full(self.n_columns, -1)
        place[columns] = np.arange(n)
        groups = place[self.origins]
        if n == 0:
            return found
        game = self._functions if self.weights_alone else self.predicted, x, self.background, groups, n
        n_pairs = max(FEWEST_PAIRS, -(-n_permutations // (2 * len(self.background))))
        with single_blas_thread():
            if self._work(2.0**n) <= max(MOST_NUMBERS, self._work(2.0 * n_pairs * n)):
                shares, errors = shares_by_enumeration(*game), np.zeros(1)
            else:
                shares, errors = shares_by_permutations(*game, n_pairs, rng)
                errors = errors[:, :n_outputs]
            found[0, columns], found[1, columns] = shares[:, :n_outputs], errors
            if self.weights_alone:
                phi = self.model.basis.whitened(np.ascontiguousarray(shares[:, n_outputs:]))
                found[2, columns] = self._deviations(phi)
        return found

    def _work(self, n_rows: float) -> float:
        """Return what predictions at a number of rows for each background row take, in numbers."""
        model = getattr(self.model, "latent", self.model)
        width = max(getattr(model, "n_columns", 0), FEWEST_NUMBERS)  # pools do not say
        return len(self.background) * n_rows * width * (1.0 if self.of == "mean" else 1 + width / PRODUCTS_PER_NUMBER)

    # --- weights

    def _functions(self, rows: FloatArray) -> FloatArray:
        """Return predictive means, then k(x, Z) or Φ, of which they are linear functions; (n_rows, n_values)."""
        latent, units = self.model.latent, self.model.units
        functions = latent.basis.functions(latent.basis.inputs(rows))
        mean = functions @ latent.function_weights.T + latent.effects(rows)[0]
        return np.hstack([units.location + units.scale * mean, functions])

    def _deviations(self, phi: FloatArray) -> FloatArray:
        """Return posterior standard deviations of contributions, given those of the basis functions."""
        latent, units = self.model.latent, self.model.units
        variances = latent_variances(latent.posteriors, latent.prior_scale, phi)
        return np.asarray(units.calibration * units.scale * np.sqrt(variances))
