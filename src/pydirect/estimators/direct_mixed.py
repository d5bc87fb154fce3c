"""`DirectMixedRegressor`: a function of the columns and random effects of any number of groups."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from pydirect._documentation import described_by
from pydirect._validation import FloatArray, as_number, as_weights, column_names, require_no_missing, shown
from pydirect.estimators._classifier import OfLabels
from pydirect.estimators._estimator import of_model
from pydirect.estimators.choices import Gaussian, RegressionPlan, check_common, feature_plan, generator_of
from pydirect.estimators.direct_latent import DirectCensoredRegressor
from pydirect.estimators.regression import bases_beside, likeliest
from pydirect.estimators.summary import lines_of_model
from pydirect.features.rows import TrainingRows
from pydirect.fitted.mixed import EffectColumns, FittedMixed
from pydirect.fitted.predictor import Units, factor_of_few_rows
from pydirect.noise.student_t import warn_of_gross
from pydirect.tables.columns import with_names
from pydirect.tables.encoding import ColumnEncoding

MOST_LEVELS = 2000  # of factors that are not eliminated first, whose precisions are a dense matrix


def rows_of_groups() -> None:
    """Rows with groups.

    Parameters
    ----------
    X : array_like of shape (n_rows, n_features_in)
        Rows of inputs.
    y : array_like of shape (n_rows,)
        Targets.
    groups : array_like of shape (n_rows,) or (n_rows, n_factors), list of columns, data frame, or "marginal"
        The group of every row, a number or text, by each of several factors, which may be crossed or nested. In
        predictions groups that `fit` has not seen are new ones, which "marginal" makes all.
    sample_weight : array_like of shape (n_rows,), optional
        How many times each row counts; by default once.
    """


takes_groups = described_by(rows_of_groups)


@described_by(DirectCensoredRegressor)
@dataclass(eq=False, repr=False)
class DirectMixedRegressor(RegressorMixin, OfLabels):
    """Regression with random effects of groups beside a nonlinear function: y = f(x) + zᵀb_g + noise.

    Every group has an intercept and, on request, slopes, normal with variances that are learned. They are eliminated
    exactly, so that there can be hundreds of thousands of groups; by several factors, of that with most groups.

    Parameters
    ----------
    slopes : sequence of str or int, default=()
        Columns of numbers whose slopes differ between the groups, of the first factor; intercepts are where these
        columns have their means.
    n_basis_functions : int, default=300
        Sums of as many functions are stored for each group.

    Attributes
    ----------
    model_ : FittedMixed
        The fitted model as frozen data.
    intercept_ : float
        Mean of the targets, about which f is modelled.
    random_effects_ : dict of str to ndarray
        ``"group"``, (n_groups,), and ``"mean"`` and ``"std"`` of intercepts and slopes, (n_groups, n_effects). Of
        several factors, a dict of these by their names or numbers, with most groups first unless there are slopes.
    group_variance_ : ndarray of shape (n_effects,)
        Variances of intercepts and slopes over the groups; of one factor after the other, as in `random_effects_`.
    noise_variance_ : float
        Variance of y about f and the effects.
    intraclass_correlation_ : float or ndarray of shape (n_factors,)
        Share of the intercepts in the variance of y that f does not explain.
    elbo_ : float
        Log evidence of the targets, restricted as to the intercept, in nats.

    Notes
    -----
    Variances maximise the restricted evidence. See `pydirect.linear`'s ``random_effects``; `fit_groups` fits a model of
    its own to every group instead, with coefficients about those of all.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectMixedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, shop = rng.uniform(-2, 2, (300, 1)), rng.integers(0, 30, 300)
    >>> y = np.sin(X[:, 0]) + rng.standard_normal(30)[shop] + 0.1 * rng.standard_normal(300)
    >>> model = DirectMixedRegressor().fit(X, y, shop)
    >>> bool(0.3 < model.group_variance_[0] < 2), bool(model.score(X, y, shop) > 0.95)
    (True, True)
    """

    model_: FittedMixed = field(init=False)

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedMixed}

    noise_variance_, group_variance_ = of_model("noise_variance"), of_model("group_variance")

    slopes: Any = ()
    n_basis_functions: int = 300

    def _plan(self) -> RegressionPlan:
        features, _ = feature_plan(self, Gaussian(), rank_inputs=True)
        check_common(self)
        return RegressionPlan(features, Gaussian(), random_state=self.random_state)

    @takes_groups
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described.
        """
        factors = {} if groups is None or isinstance(groups, str) else as_factors(groups)
        if not factors:
            got = shown(groups) if isinstance(groups, str | None) else "no column"
            raise TypeError(f"fit needs groups, labels of shape (n_rows,) or (n_rows, n_factors), got {got}")
        with self._whole() as progress:
            plan, (x, targets) = self._plan(), self._validated(X, y, y_numeric=True)
            require_rows(factors, len(x))
            warn_of_gross(np.asarray(targets)[:, None], "fit without them")
            found = {name: np.unique(labels, return_inverse=True) for name, labels in factors.items()}
            weight = as_weights(sample_weight, len(targets))
            if (n := np.count_nonzero(weight)) < 2:
                raise ValueError(f"X must have at least two rows of positive weight, got {n} sample")
            units, standard = Units.fit(np.asarray(targets, np.float64)[:, None], weight, True)
            table = with_names(self, x)
            self.columns_ = self._fitted_columns(table, standard, weight)
            encoded = np.ascontiguousarray(self.columns_.encode(table))
            z = EffectColumns.of(encoded, self._encoded_slopes(), weight)
            rng, rows = generator_of(plan.random_state), TrainingRows(encoded, standard, weight)
            found = dict(sorted(found.items(), key=lambda own: 0 if len(z.slopes) else -len(own[1][0])))
            if (others := sum(len(labels) for labels, _ in [*found.values()][1:])) > MOST_LEVELS:
                but = f"{next(iter(found))!r}, {'which has slopes' if len(z.slopes) else 'the largest'}"
                raise ValueError(f"groups must be at most {MOST_LEVELS} in all factors but {but}, got {others}")
            with progress.stage("inference"):
                bases = bases_beside(plan.features, rows, self.columns_, [(z, found)], rng, thorough=True)
                fitted = likeliest(bases, rows, (z, found))
            self.model_ = replace(fitted, intercept=float(units.location[0]), scale=float(units.scale[0]))
            self.fit_seconds_ = progress.seconds
        return self

    def _encoded_slopes(self) -> NDArray[np.intp]:
        """Return the encoded columns whose slopes differ."""
        found, names = [], self.columns_.names
        for slope in [self.slopes] if np.ndim(self.slopes) == 0 else self.slopes:
            try:
                column = names.index(slope) if names is not None and slope in names else operator.index(slope)
            except TypeError:
                column = -1
            where = np.flatnonzero(self.columns_.origins == column)
            if len(where) != 1 or where[0] in found:
                raise ValueError(f"slopes must be different columns of numbers of X, got {shown(slope)}")
            found.append(int(where[0]))
        return np.array(found, dtype=np.intp)

    # --- results

    @property
    def random_effects_(self) -> dict[Any, Any]:
        parts = zip(self.model_.groups, self.model_.effects_of_groups(), strict=True)
        found = [{"group": groups, "mean": mean, "std": std} for groups, (mean, std) in parts]
        return dict(zip(self.model_.factors, found, strict=True)) if len(found) > 1 else found[0]

    @property
    def intraclass_correlation_(self) -> Any:
        between = np.delete(self.group_variance_, np.arange(1, len(self.model_.columns.unit)))
        found = between / (between.sum() + self.noise_variance_)
        return found if len(found) > 1 else float(found[0])

    def _words(self) -> list[str]:
        spread, noise = ", ".join(f"{value**0.5:.3g}" for value in self.group_variance_), self.noise_variance_**0.5
        shares = " and ".join(f"{share:.2f}" for share in np.ravel(self.intraclass_correlation_))
        words = (
            f"Random effects of {' and '.join(str(len(own)) for own in self.model_.groups)} groups: "
            f"deviations {spread} beside {noise:.3g} of the noise, intraclass correlation {shares}."
        )
        return [*lines_of_model(self), words]

    # --- prediction

    def _moments(self, X: ArrayLike, groups: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of y, with noise."""
        x = self.encode_rows(X)
        if isinstance(groups, str) and groups == "marginal":
            number = np.full((len(x), len(self.model_.groups)), -1)
        else:
            given, names = as_factors(groups), self.model_.factors
            if {*given} != {*names}:
                got = column_names(groups) or list(given)
                raise ValueError(f"groups must be of the factors {list(names)}, as in fit, got {got}")
            require_rows(given, len(x))
            number = self.model_.number_of([given[name] for name in names])
        with self._threads():
            mean, std = self.model_.predict(x, number)
        return mean, std * (1.0 if self.search_ is None else factor_of_few_rows(self.total_weight_))

    @takes_groups
    def predict(
        self, X: ArrayLike, groups: ArrayLike, return_std: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict y in groups that are known or new.

        Parameters
        ----------
        return_std : bool, default=False
            Also return standard deviations, of noise and of what is not known about f and the effects.

        Returns
        -------
        mean, std : ndarray of shape (n_rows,)
            In y's units.
        """
        mean, std = self._moments(X, groups)
        return (mean, std) if return_std else mean

    @takes_groups
    def predict_interval(self, X: ArrayLike, groups: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Predict central intervals of y.

        Parameters
        ----------
        level : float in (0, 1), default=0.9
            Probability that an interval contains.

        Returns
        -------
        lower, upper : ndarray of shape (n_rows,)
            In y's units.
        """
        mean, std = self._moments(X, groups)
        reach = std * ndtri(0.5 + 0.5 * as_number(level, "level", above=0.0, below=1.0))
        return mean - reach, mean + reach

    @takes_groups
    def score(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of the variance of y that predictions explain, R².

        Returns
        -------
        float
            1 at best.
        """
        return float(r2_score(y, self._moments(X, groups)[0], sample_weight=sample_weight))


def as_factors(groups: Any) -> dict[Any, NDArray[Any]]:
    """Return labels of groups by the names of factors, or their numbers; a single one is 0; or raise."""
    names = column_names(groups)
    if names is not None:
        if len({*names}) < len(names):
            raise ValueError(f"groups must have columns of different names, got {names}")
        groups = [groups[name] for name in names]
    elif not (isinstance(groups, list | tuple) and np.ndim(next(iter(groups), 0)) == 1):
        groups = np.asarray(groups).T if np.ndim(groups) == 2 else [groups]
    keys = names if names and len(names) > 1 else range(len(groups))
    return dict(zip(keys, map(as_labels, groups), strict=True))


def require_rows(factors: dict[Any, NDArray[Any]], n_rows: int) -> None:
    """Raise unless each factor has a label for every row."""
    for labels in factors.values():
        if len(labels) != n_rows:
            got = f"{len(labels)}" if len(factors) == 1 else f"{len(labels)} in one of {len(factors)} columns"
            raise ValueError(f"groups must have {n_rows} labels in each column, one for every row of X, got {got}")


def as_labels(groups: ArrayLike) -> NDArray[Any]:
    """Return labels of groups, numbers or text; or raise."""
    require_no_missing(groups, "groups")
    labels = np.asarray(groups)
    if labels.ndim != 1:
        got = shown(groups) if isinstance(groups, str | None) else f"shape {labels.shape}"
        raise ValueError(f"groups must be a vector with a label for every row, got {got}")
    if labels.dtype.kind == "O":
        if not any(all(isinstance(label, kind) for label in labels.tolist()) for kind in (str, Real)):
            kinds = " and ".join(sorted({type(label).__name__ for label in labels.tolist()}))
            raise TypeError(f"groups must hold numbers, or text in every row, got {kinds}")
        labels = np.array(labels.tolist())
    if labels.dtype.kind not in "biufU":
        raise TypeError(f"groups must hold numbers or text, got {labels.dtype}")
    return labels
