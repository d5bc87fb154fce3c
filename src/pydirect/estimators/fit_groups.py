"""Fitting many small tables at once: one function for all groups of rows, and each group's deviation from it."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from pydirect._dense import gram
from pydirect._threads import ordered_map, resolve_n_threads
from pydirect._validation import FloatArray, as_instance, as_number, as_target, require_no_missing, shown
from pydirect.estimators.choices import Gaussian, RegressionPlan, require_formula
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.regression import (
    GivenRows,
    choose_scale,
    fit_features,
    fit_units,
    initial_hyperparameters,
    settled,
)
from pydirect.estimators.target_transform import ScaleChoice
from pydirect.features.basis import Basis
from pydirect.features.rows import TrainingRows
from pydirect.fitted.predictor import Units
from pydirect.fitted.regression import FittedRegressor, Latent
from pydirect.linear.group_deviations import CommonFunction, Population, group_posterior, no_rows, rows_of_group
from pydirect.linear.posterior import GaussianPosterior
from pydirect.statistics.gaussian import GaussianStatistics, collect_statistics
from pydirect.statistics.rotated import RotatedTarget, decorrelate

# Rows from which the feature map is learned, and most basis functions: of each group they are held once.
SAMPLED_ROWS, MOST_BASIS_FUNCTIONS = 2000, 500
# Rows of groups that one thread sums at a time.
CHUNK_ROWS = 4000

# Labels, and the number of the label of every row.
Groups = tuple[list[Hashable], NDArray[np.intp]]


class GroupedRegressor(dict[Hashable, DirectRegressor]):
    """Fitted regressors of groups of rows, by label; see `fit_groups`.

    A dictionary from labels to models that share one ``features_``. Each of them is a `DirectRegressor` with all its
    methods: predictions, draws, `save`, `pydirect.quantize`. The whole is pickled, files hold one model each.

    Parameters
    ----------
    models : dict
        Fitted `DirectRegressor` of every label.

    Attributes
    ----------
    new_group : DirectRegressor
        What is known of a group without rows: the function of all groups, and how far groups are from it.
    """

    def __init__(self, models: dict[Hashable, DirectRegressor], new_group: DirectRegressor) -> None:
        super().__init__(models)
        self.new_group = new_group

    def __missing__(self, label: Hashable) -> DirectRegressor:
        raise KeyError(f"group {shown(label)} was not fitted: new_group is what is known of such groups")

    def __repr__(self) -> str:
        return f"<GroupedRegressor: {len(self)} groups, {self.new_group.features_.n_weights} basis functions>"

    def predict(
        self, X: ArrayLike, groups: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the target of rows of known groups.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        groups : array_like of shape (n_rows,)
            Labels of groups that were fitted; for others use `new_group`.
        return_std : bool, default=False
            Also return the standard deviation of the target, noise included.

        Returns
        -------
        mean : ndarray of shape (n_rows,)
            In the target's units.
        std : ndarray of shape (n_rows,)
            In the target's units.

        Raises
        ------
        ValueError
            If a group was not fitted.
        """
        mean, *std = self._of_groups("predict", X, groups, return_std=return_std)
        return (mean, *std) if return_std else mean

    def predict_interval(self, X: ArrayLike, groups: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals that contain the target with probability `level`; see `predict`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        groups : array_like of shape (n_rows,)
            Label of the group of every row.
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            Ends of the intervals.
        """
        as_number(level, "level", above=0.0, below=1.0)
        lower, upper = self._of_groups("predict_interval", X, groups, level=level)
        return lower, upper

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike) -> FloatArray:
        """Log density of observed targets in nats, (n_rows,); see `predict`.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_rows,)
            Targets.
        groups : array_like of shape (n_rows,)
            Label of the group of every row.

        Returns
        -------
        ndarray of shape (n_rows,)
            In nats.
        """
        targets = as_target(y, _num_samples(X))[:, 0]
        return self._of_groups("log_predictive_density", X, groups, targets)[0]

    def _of_groups(
        self, method: str, X: ArrayLike, groups: ArrayLike, y: FloatArray | None = None, **options: Any
    ) -> FloatArray:
        """Return what a method of the groups' models returns of their rows, and targets, in the order of the rows."""
        if not hasattr(X, "shape"):
            X = np.asarray(X)
        labels, codes = coded_groups(groups, _num_samples(X))
        if not labels:
            raise ValueError("X must have rows, got none")
        unknown = [label for label in labels if label not in self]
        if unknown:
            raise ValueError(f"groups must have been fitted, got {shown(unknown[0])}: new_group predicts others")
        order, starts = _sorted(codes, len(labels))
        parts = []
        for label, rows in zip(labels, np.split(order, starts), strict=True):
            given = (_safe_indexing(X, rows),) if y is None else (_safe_indexing(X, rows), y[rows])
            parts.append(np.atleast_2d(getattr(self[label], method)(*given, **options)))
        return np.hstack(parts)[:, np.argsort(order)]


def fit_groups(
    model: DirectRegressor, X: ArrayLike, y: ArrayLike, groups: ArrayLike, sample_weight: ArrayLike | None = None
) -> GroupedRegressor:
    """Fit a regressor to each of many groups of rows, which learn from each other: 500 shops of 200 rows.

    All groups share one feature map, whose kernel is learned from some of their rows. Every group's function is that of
    all groups together plus a deviation of its own; how large deviations are, and how noise variances are distributed
    over groups, is found from all of them (partial pooling). So a group of three rows follows the others, with the
    uncertainty that groups differ by, and one of many rows follows its own.

    Parameters
    ----------
    model : DirectRegressor
        Parameters, with ``posterior="gaussian"`` and without ``noise="varying"``, ``"student_t"`` and a number for
        ``local``; a number for ``noise`` is that of every group. Of `n_basis_functions` at
        most 500 are used. It is not changed.
    X : array_like of shape (n_samples, n_features_in)
        Without the column of groups.
    y : array_like of shape (n_samples,)
        Targets.
    groups : array_like of shape (n_samples,)
        The group of each row: numbers, text or any hashable labels, none of them missing.
    sample_weight : array_like of shape (n_samples,), optional
        As of `DirectRegressor.fit`.

    Returns
    -------
    GroupedRegressor
        Fitted models by label. Their noise is constant within a group, with a log-normal posterior, and
        they have no local process. ``elbo_`` is a group's log evidence given what the groups share.

    Raises
    ------
    ValueError, TypeError
        If the data or a parameter is not as described.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, fit_groups
    >>> rng = np.random.default_rng(0)
    >>> X, shop = rng.standard_normal((400, 2)), rng.integers(20, size=400)
    >>> y = X[:, 0] + rng.standard_normal(20)[shop] + 0.1 * rng.standard_normal(400)
    >>> shops = fit_groups(DirectRegressor("linear"), X, y, shop)
    >>> mean, std = shops.predict(X[:5], shop[:5], return_std=True)
    >>> lower, upper = shops[7].predict_interval(X[:5])
    """
    as_instance(model, "model", DirectRegressor)
    lead = clone(model)
    lead.set_params(n_basis_functions=min(lead.n_basis_functions, MOST_BASIS_FUNCTIONS))
    plan = lead._sums_plan()
    require_formula(plan, "groups cannot be fitted together")
    read = lead._read_targets(X, y, sample_weight)
    if read.y.shape[1] > 1:
        raise ValueError(f"y must be one target, got {read.y.shape[1]}: call fit_groups for each")
    (labels, codes), weight = coded_groups(groups, len(read.table)), read.weight
    if weight is not None:
        empty = np.flatnonzero(np.bincount(codes, weight, len(labels)) == 0)
        if len(empty):
            raise ValueError(f"sample_weight must leave rows of every group, got none of {shown(labels[empty[0]])}")
    with lead._threads():
        given = lead._encoded(read)
        fits, choice = [_fitted(lead, given, (labels, codes), None)], choose_scale(plan, given)
        if choice is not None and choice.transform is not None:
            fits.append(_fitted(lead, given, (labels, codes), choice))
        # Noise of all rows is mostly what groups differ by: the evidence of groups says what it is like within them.
        return max(fits, key=lambda fitted: sum(own.elbo_ for own in fitted.values()))


def _fitted(lead: DirectRegressor, given: GivenRows, groups: Groups, choice: ScaleChoice | None) -> GroupedRegressor:
    """Fit groups of rows with targets on a scale that was chosen."""
    plan, (labels, codes) = settled(lead._sums_plan(), choice), groups
    units, rows = fit_units(plan, given, choice=choice)
    repetitions = rows.counts.repetitions if isinstance(plan.noise, str) else 1.0
    rows = rows.divided(repetitions)
    basis = _shared_basis(plan, rows, given, units)
    order, starts = _sorted(codes, len(labels))
    bounds = np.concatenate([[0], starts, [len(order)]])
    assert rows.weight is not None
    weight = rows.weight[order]
    rows = TrainingRows(basis.inputs(rows.x[order]), rows.y[order], weight)
    total, parts = _sums(basis, rows, bounds)
    (initial,) = initial_hyperparameters(plan, basis, units)
    target = decorrelate(total).target(0)
    common = CommonFunction.of(target, *initial.by_evidence(target))
    population = Population.of(parts, common, initial.fixed_noise)
    residual = basis.mean_missing_variance(rows.x, weight, total.mean_square)
    slopes = np.zeros(len(order))
    if units.active is not None:
        slopes = units.active.log_derivative(units.active.inverse(units.location + units.scale * rows.y))[:, 0]
        slopes *= weight * repetitions
    n_noise = plan.posterior.n_noise_levels if isinstance(plan.posterior, Gaussian) else 1

    def posterior(group: RotatedTarget, k: int | None) -> tuple[GaussianPosterior, float]:
        return group_posterior(group, common, population.scale, population.noise(k, n_noise))

    def of_group(found: tuple[GaussianPosterior, float], n_rows: float, of_rows: slice) -> DirectRegressor:
        """Return a model of one group, with its posterior and the prior deviation of its weights."""
        latent = Latent.of(basis, [found], residual, single_from=0)
        own = replace(units, log_derivative=slopes[of_rows].sum(keepdims=True))
        fitted = FittedRegressor(latent, own, n_rows * repetitions, repetitions, untried="by fit_groups")
        return copy.copy(lead)._adopt(lead, fitted, {})

    def fitted(k: int) -> DirectRegressor:
        return of_group(posterior(parts[k], k), parts[k].n_samples, slice(bounds[k], bounds[k + 1]))

    found = ordered_map(fitted, iter(range(len(labels))), resolve_n_threads())
    models = dict(zip(labels, found, strict=True))
    unseen, unit = posterior(no_rows(basis.n_weights), None)
    unseen.outcome = unseen.outcome.at(sum(own.model_.posteriors[0].elbo for own in models.values()))
    return GroupedRegressor(models, of_group((unseen, unit), total.n_samples, slice(None)))


def _shared_basis(plan: RegressionPlan, rows: TrainingRows, given: GivenRows, units: Units) -> Basis:
    """Learn a feature map from some rows of all groups."""
    assert rows.weight is not None
    chosen = np.flatnonzero(rows.weight > 0)
    if len(chosen) > SAMPLED_ROWS:
        chosen = np.sort(plan.generators()[0].choice(chosen, SAMPLED_ROWS, replace=False))
    some = TrainingRows(np.ascontiguousarray(rows.x[chosen]), rows.y[chosen], rows.weight[chosen])
    return fit_features(plan, given, units, some, plan.generators()[0]).for_one_pass()


def coded_groups(groups: ArrayLike, n_rows: int) -> Groups:
    """Return the labels of groups, in order of appearance, and the number of each row's label."""
    values: list[Any]
    if isinstance(groups, list):  # labels stay what they are: numbers beside text, tuples
        values, shape = groups, (len(groups),)
    else:
        given = np.asarray(groups)
        values, shape = given.tolist(), given.shape
    if shape != (n_rows,):
        raise ValueError(f"groups must have one label for each of {n_rows} rows, got shape {shape}")
    numbers: dict[Hashable, int] = {}
    try:
        codes = np.array([numbers.setdefault(label, len(numbers)) for label in values], dtype=np.intp)
    except TypeError as error:
        raise TypeError(f"groups must be hashable labels: {error}") from None
    require_no_missing(values, "groups")
    return list(numbers), codes


def _sorted(codes: NDArray[np.intp], n_groups: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows ordered by group, and where each group but the first begins in that order."""
    return np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=n_groups))[:-1]


def _sums(basis: Basis, rows: TrainingRows, bounds: NDArray[np.intp]) -> tuple[GaussianStatistics, list[RotatedTarget]]:
    """Return the sums over all rows, of inputs ordered by group, and each group's own in half the memory."""
    y, weight = rows.y, rows.weight
    assert weight is not None

    def summed(groups: range) -> tuple[GaussianStatistics, list[RotatedTarget]]:
        """Sum the rows of consecutive groups."""
        own = slice(bounds[groups[0]], bounds[groups[-1] + 1])
        if len(groups) == 1:
            total = collect_statistics(basis.map, rows.x[own], y[own], weight[own], n_threads=1)
            parts = [total]
        else:
            root = np.sqrt(weight[own, None])
            phi, targets = basis.map.transform(rows.x[own]) * root, y[own] * root
            ends = bounds[groups[0] + 1 : groups[-1] + 1] - own.start
            pieces = zip(np.split(phi, ends), np.split(targets, ends), np.split(weight[own], ends), strict=True)
            parts = [GaussianStatistics(p.T @ t, (t * t).sum(axis=0), w.sum(), rows=p) for p, t, w in pieces]
            c, yty = phi.T @ targets, (targets * targets).sum(axis=0)
            total = replace(parts[0], c=c, yty=yty, n_samples=weight[own].sum(), gram=gram(phi), rows=None)
        found = [rows_of_group(part) for part in parts]
        return total, [replace(each, rotation=each.rotation.astype(np.float32)) for each in found]

    total: GaussianStatistics | None = None
    parts: list[RotatedTarget] = []
    for sums, found in ordered_map(summed, _chunks(bounds), resolve_n_threads()):
        total = sums if total is None else total + sums
        parts += found
    assert total is not None
    return total, parts


def _chunks(bounds: NDArray[np.intp]) -> Iterator[range]:
    """Yield consecutive groups of up to `CHUNK_ROWS` rows together, or one of more."""
    begin = 0
    for end in range(1, len(bounds)):
        if end == len(bounds) - 1 or bounds[end + 1] - bounds[begin] > CHUNK_ROWS:
            yield range(begin, end)
            begin = end
