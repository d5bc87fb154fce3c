"""`CorrelatedRegressor`: several outputs that tell of each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import r2_score

from pydirect._documentation import described_by, takes_rows
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_sample_weight, as_weights
from pydirect.estimators._estimator import of_model
from pydirect.estimators._regressor import Regressor
from pydirect.estimators.choices import RegressionPlan, regression_plan
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.regression import fit_features, fit_units
from pydirect.features.rows import TrainingRows
from pydirect.fitted.correlated import FittedCorrelated
from pydirect.linear.correlated import fit_correlated, sums_by_pattern
from pydirect.noise.student_t import warn_of_gross
from pydirect.tables.encoding import ColumnEncoding, Gaps

# Weights of all outputs that have one Gaussian where entries are missing.
MOST_WEIGHTS = 2500


@described_by(DirectRegressor)
@dataclass(eq=False, repr=False)
class CorrelatedRegressor(Regressor):
    """Regression of several outputs whose functions and whose noise are correlated; entries of y may be missing.

    Covariances of y are K ⊗ B + I ⊗ Σ: one kernel over the rows, learned as by `DirectRegressor` from all outputs, and
    covariances B and Σ between the outputs, by the EM algorithm. An output that is measured in few rows is predicted
    from where others are measured, and draws have the outputs' correlation. Where y is complete, means are hardly
    better than those of independent outputs; the joint distribution is.

    Parameters
    ----------
    n_basis_functions : int, default=500
        Number of basis functions. Where entries are missing, at most 2500 over the number of outputs: time then grows
        with the cube of their product.
    max_iter : int, default=200
        Largest number of iterations of the EM algorithm.

    Attributes
    ----------
    model_ : FittedCorrelated
        The fitted model as frozen data.
    signal_covariance_ : ndarray of shape (n_outputs, n_outputs)
        Prior covariance of the outputs' functions at a row where the kernel is one, in y's units.
    noise_covariance_ : ndarray of shape (n_outputs, n_outputs)
        Covariance of the outputs' noise, in y's units.
    log_evidence_ : float
        Log density of the targets that are there, standardised units, given the kernel and the two covariances.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect.estimators import CorrelatedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, (200, 1))
    >>> y = np.sin(X) + [[0.0, 1.0]] + 0.3 * rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 200)
    >>> y[50:, 1] = np.nan
    >>> model = CorrelatedRegressor(n_basis_functions=50).fit(X, y)
    >>> model.predict(X).shape, bool(model.noise_covariance_[0, 1] > 0.05)
    ((200, 2), True)
    """

    _stored: ClassVar[dict[str, Any]] = {"columns_": ColumnEncoding, "model_": FittedCorrelated}

    features: Any = "auto"
    n_basis_functions: int = 500
    max_iter: int = 200

    def _plan(self) -> RegressionPlan:
        parameters = self.get_params(deep=False)
        return regression_plan(DirectRegressor(noise="constant", target_transform=None, local=False, **parameters))

    @takes_rows
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        y : array_like of shape (n_samples, n_outputs)
            Targets; NaN where one is missing. The kernel is learned from rows that lack none if they are half of all,
            else from all, with what the others let expect in place of what is missing.

        Warns
        -----
        ConvergenceWarning
            If the EM algorithm has not converged.
        """
        with self._whole() as progress:
            plan = self._plan()
            targets = np.array(y, dtype=np.float64)
            missing = np.isnan(targets)
            if targets.ndim != 2 or missing.all(axis=0).any() or np.isinf(targets).any():
                raise ValueError(f"y must have two axes, finite numbers and some of every output, got {targets.shape}")
            for known, output in zip(~missing.T, targets.T, strict=True):
                warn_of_gross(output[known, None], "fit without them")
            Gaps.fit(targets, None).fill(targets, missing)
            read = self._read_targets(X, targets, sample_weight)
            if missing.any() and plan.features.n_functions * targets.shape[1] > MOST_WEIGHTS:
                most, got = MOST_WEIGHTS // targets.shape[1], plan.features.n_functions
                raise ValueError(f"n_basis_functions must be at most {most} where outputs are missing, got {got}")
            given = replace(self._encoded(read), one_dimensional=False)
            with progress.stage("features"):
                units, rows = fit_units(plan, given)
                chosen = np.flatnonzero(~missing.any(axis=1))
                chosen = chosen if 2 * len(chosen) >= len(missing) else np.arange(len(missing))
                weight = None if rows.weight is None else rows.weight[chosen]
                learned = TrainingRows(rows.x[chosen], rows.y[chosen], weight)
                basis = fit_features(plan, given, units, learned, plan.generators()[0])
            with progress.stage("inference"), progress.rows(plan.max_iter, "iterations") as report:
                weight = as_weights(rows.weight, len(rows.x))
                inputs, n_threads = basis.inputs(rows.x), resolve_n_threads()
                phi = basis.map.transform(inputs, np.float64, n_threads)
                mean_square = float(np.average(np.einsum("ij,ij->i", phi, phi), weights=weight))
                residual = basis.mean_missing_variance(inputs, weight, mean_square)
                noise = 0.1 if basis.kernel is None else basis.kernel.noise_variance
                start = rows.y.T @ rows.y / len(rows.y) + 0.1 * np.eye(rows.y.shape[1])
                patterns = sums_by_pattern(phi, np.where(missing, np.nan, rows.y), weight)
                found = fit_correlated(patterns, start, noise * start, plan.max_iter, report)
            self.fit_seconds_ = progress.seconds
            if plan.features.learns_kernel:
                units = units.of_few_rows(float(weight.sum()) / rows.counts.repetitions)
            parts = found.mean, found.root, found.signal, found.noise, residual, float(weight.sum())
            record = found.log_evidence, found.n_iter, found.converged, found.vectors, found.interrupted
            self.model_ = FittedCorrelated(basis, units, *parts, *record)
            self._warn_if_unfinished()
        return self

    log_evidence_ = of_model("log_evidence")
    n_iter_ = of_model("n_iter")
    converged_ = of_model("converged")
    interrupted_ = of_model("interrupted")

    @property
    def posteriors_(self) -> list[Any]:
        return []  # the weights of all outputs have one, in ``model_``

    @property
    def signal_covariance_(self) -> FloatArray:
        """Prior covariance of the functions of the outputs at a row where the kernel is one, in y's units."""
        return np.asarray(self.model_.signal * np.outer(self.y_scale_, self.y_scale_))

    @property
    def noise_covariance_(self) -> FloatArray:
        """Covariance of the noise of the outputs, in y's units."""
        return np.asarray(self.model_.noise * np.outer(self.y_scale_, self.y_scale_))

    @takes_rows
    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Log density of every target by itself.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs)
            In nats; NaN where y is.
        """
        targets = np.asarray(y, dtype=np.float64)
        missing = np.isnan(targets)
        density = super().log_predictive_density(X, np.where(missing, 0.0, targets))
        return np.where(missing.reshape(density.shape), np.nan, density)

    @takes_rows
    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Share of the variance that predictions explain, R², of the targets that are there; mean over the outputs.

        Returns
        -------
        float
            1 at best.
        """
        mean, given = np.asarray(self.predict(X)), np.asarray(y, dtype=np.float64)
        targets = self._check_targets(np.where(np.isnan(given), 0.0, given), len(mean))
        known, weight = ~np.isnan(given.reshape(targets.shape)), as_sample_weight(sample_weight, len(mean))
        each = [
            r2_score(targets[own, k], mean[own, k], sample_weight=None if weight is None else weight[own])
            for k, own in enumerate(known.T)
            if own.any()
        ]
        return float(np.mean(each))

    @takes_rows
    def predict_between_outputs(self, X: ArrayLike) -> FloatArray:
        """Return the covariance of the outputs of every row, noise included.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs, n_outputs)
            In the targets' units; the roots of its diagonals are ``predict(X, return_std=True)[1]``.
        """
        return self._asked("between_outputs", X)
