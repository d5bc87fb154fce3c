"""What estimators of networks share: the plan of a fit, training, the stages of regression and classification."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pydirect._progress import Progress
from pydirect._validation import FloatArray, as_choice, as_count, as_generator, as_instance, as_number
from pydirect.estimators._classifier import Classifier, indicators, require_classes
from pydirect.estimators._regressor import Regressor
from pydirect.estimators.choices import check_common, generator_of
from pydirect.features.inputs import InputMap
from pydirect.features.rows import distinct_rows
from pydirect.fitted.networks import FittedNetworkClassifier, FittedNetworkRegressor, NetworkOutputs, network_inputs
from pydirect.fitted.predictor import Units
from pydirect.networks.base import EmpiricalBayes, TrainedNetwork, VariationalNetwork
from pydirect.networks.sampled import SampledNetwork
from pydirect.networks.training import TrainingSchedule, fit_network
from pydirect.tables.encoding import ColumnEncoding

Model = TypeVar("Model", FittedNetworkRegressor, FittedNetworkClassifier)

# Names of the noise, and what networks call it.
LIKELIHOODS = {"varying": "heteroscedastic", "constant": "homoscedastic", "softplus": "softplus"}


def likelihood_of(noise: Any) -> str:
    """Return what networks call the noise."""
    return LIKELIHOODS[as_choice(noise, "noise", tuple(LIKELIHOODS))]


def as_network_prior(prior: Any) -> Any:
    """Return the prior as networks take it."""
    return EmpiricalBayes() if isinstance(prior, str) and as_choice(prior, "prior", ("empirical_bayes",)) else prior


def schedule_of(model: NetworkRegressor | NetworkClassifier, default: TrainingSchedule | None = None) -> Any:
    """Check what all estimators have, and return the schedule, a default one for None."""
    check_common(model)
    schedule = (default or TrainingSchedule()) if model.schedule is None else model.schedule
    as_instance(schedule, "schedule", TrainingSchedule)
    return schedule


@dataclass(frozen=True)
class Predictive:
    """How predictions follow from a network's outputs, and how many stored draws of networks they average over."""

    name: str
    n_draws: int = 0


@dataclass(frozen=True)
class NetworkPlan:
    """What the parameters of a network estimator ask for, checked; ``network`` is one of a single input."""

    network: VariationalNetwork
    schedule: TrainingSchedule
    options: dict[str, Any]  # further arguments of `fit_network`
    random_state: Any
    predictive: Predictive
    verbose: int

    @classmethod
    def of(
        cls,
        model: NetworkRegressor | NetworkClassifier,
        network: VariationalNetwork,
        inference: str,
        schedule: TrainingSchedule,
    ) -> Self:
        """Check the parameters that all estimators of networks have, and return the plan."""
        schedule.stages(network.inference(inference))
        options = {
            "inference": inference,
            "n_draws": as_count(model.n_draws, "n_draws"),
            "initial_scale": as_number(model.initial_scale, "initial_scale", above=0.0),
            "n_restarts": as_count(model.n_restarts, "n_restarts"),
        }
        return cls(network, schedule, options, model.random_state, model._predictive(), model.verbose)

    @property
    def stages(self) -> tuple[str, ...]:
        """Optimisers in turn."""
        return tuple(self.schedule.optimizer.split("+"))

    def train(
        self, x: FloatArray, columns: list[FloatArray], weight: FloatArray, n_targets: int = 1
    ) -> tuple[NetworkOutputs, dict[str, float]]:
        """Standardise rows, and train one network per column of targets; seconds of each stage."""
        rng, progress = generator_of(self.random_state), Progress(self.verbose)
        input_map = InputMap.fit(x, weight, rank=False)
        inputs = network_inputs(input_map, x)
        network = replace(self.network, n_inputs=inputs.shape[1], n_targets=n_targets)

        def fit(column: FloatArray, interrupted: bool) -> TrainedNetwork:
            own = network
            if isinstance(own, SampledNetwork):
                own = replace(own, seed=int(rng.integers(2**31)))  # of draws that are kept
            short = {"schedule": TrainingSchedule("adam", n_steps=1), "n_restarts": 1} if interrupted else {}
            return fit_network(
                own,
                inputs,
                column,
                sample_weight=weight,
                random_state=rng,
                progress=_report if self.verbose else None,
                **{"schedule": self.schedule} | self.options | short,
            )

        posteriors = fit_each(columns, progress, fit)
        return NetworkOutputs(input_map, tuple(posteriors), self.predictive.n_draws), progress.seconds

    def effort(self, n_iter: int, n_rows: int) -> dict[str, Any]:
        """How long a fit went on, and the field of the schedule that ended it, if one did."""
        counted = {"adam": "steps", "lbfgs": "iterations"}
        most = {"adam": self.schedule.steps(n_rows), "lbfgs": self.schedule.max_iter}
        limit = "n_steps" if self.stages[-1] == "adam" else "max_iter"
        if n_iter < sum(most[stage] for stage in self.stages):  # no line search of L-BFGS found a better point
            limit = ""
        effort = f"{n_iter} {' and '.join(counted[stage] for stage in self.stages)}"
        return {"limit": limit, "given": getattr(self.schedule, limit, None), "effort": effort}


def fit_each(columns: Iterable[Any], progress: Progress, fit: Callable[[Any, bool], Any]) -> list[Any]:
    """Fit a posterior per output; after an interruption, the remaining ones in as little time as possible.

    `fit`: from a column, and whether an earlier fit was interrupted, to a posterior.
    """
    posteriors: list[Any] = []
    for column in columns:
        interrupted = any(p.interrupted for p in posteriors)
        with progress.stage("training"):
            posteriors.append(fit(column, interrupted))
    return posteriors


def _report(finished: int, total: int, elbo: float) -> None:
    print(f"  start {finished:3d} of {total}, best ELBO {elbo:.1f}", file=sys.stderr, flush=True)


class NetworkRegressor(Regressor):
    """A regressor of one network per target; a subclass says in `_plan` and `_predictive` which."""

    model_: FittedNetworkRegressor

    def _plan(self) -> NetworkPlan:
        raise NotImplementedError

    def _predictive(self) -> Predictive:
        raise NotImplementedError

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            May hold text and gaps: see `pydirect.Columns`.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts.

        Returns
        -------
        Self
            The fitted model.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        """
        with self._whole():
            self._check_columns()
            plan = self._plan()
            table, targets, weight, one_dimensional = self._read_targets(X, y, sample_weight)
            self._begin()
            with self._threads():
                columns = self._columns_for(table, targets, weight)
                # Training is not convex: data that differ only by rounding could lead to different optima.
                x, targets, counts = distinct_rows(columns.encode(table), targets, weight)
                units, z = Units.fit(targets, counts, one_dimensional)
                outputs, seconds = plan.train(x, list(z.T), counts)
                unknown = np.full(units.n_outputs, np.nan)
                model = FittedNetworkRegressor(outputs, units, plan.predictive.name, float(counts.sum()), unknown)
                self.model_ = model.with_mean_noise(x, counts)
            self.columns_, self.fit_seconds_ = columns, seconds
            self._warn_if_unfinished(**plan.effort(self.n_iter_, len(x)))
        return self

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of predictions take effect at once.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        Self
            The estimator.
        """
        super().set_params(**params)
        if hasattr(self, "model_"):
            self.model_ = with_predictive(self.model_, self._predictive())
        return self

    @property
    def input_map_(self) -> InputMap:
        return self.model_.outputs.input_map

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedNetworkRegressor}

    def _restored(self) -> None:
        require_network(self)

    @property
    def mean_noise_(self) -> FloatArray:
        return self.model_.mean_noise

    @property
    def prior_variances_(self) -> FloatArray | list[FloatArray]:
        variances = [prior_variances_of(p) for p in self.posteriors_]
        return variances[0] if self._units.one_dimensional else variances

    @property
    def sparsity_(self) -> float:
        self._require_fitted()
        return 0.0  # a Gaussian weight is never exactly zero


class NetworkClassifier(Classifier):
    """A classifier of one network with an output per class; a subclass says in `_plan` and `_predictive` which."""

    model_: FittedNetworkClassifier

    def _plan(self) -> NetworkPlan:
        raise NotImplementedError

    def _predictive(self) -> Predictive:
        raise NotImplementedError

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            May hold text and gaps: see `pydirect.Columns`.
        y : array_like of shape (n_samples,)
            Labels: strings, numbers or booleans.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts; rows of weight zero are left out.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError, TypeError
            If the data or a parameter is not as described, or there is only one class.

        Warns
        -----
        ConvergenceWarning
            If the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        """
        with self._whole():
            self._check_columns()
            plan = self._plan()
            table, given, weight = self._read(X, y, sample_weight)
            self._begin()
            with self._threads():
                columns, used = self._fitted_columns(table, indicators(given, weight), weight), weight > 0
                classes, index = np.unique(given[used], return_inverse=True)
                require_classes(classes)
                # In small tables repeated rows are merged, so that a weight of two is the same as a row given twice.
                x = np.ascontiguousarray(columns.encode(table)[used])
                x, merged, counts = distinct_rows(x, index[:, None].astype(np.float64), weight[used])
                outputs, seconds = plan.train(x, [merged[:, 0]], counts, len(classes))
                self.model_ = FittedNetworkClassifier(outputs, classes, plan.predictive.name, float(counts.sum()))
            self.columns_, self.classes_, self.fit_seconds_ = columns, classes, seconds
            self._warn_if_unfinished(**plan.effort(self.n_iter_, len(x)))
        return self

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of predictions take effect at once.

        Parameters
        ----------
        **params : dict
            Parameters by name.

        Returns
        -------
        Self
            The estimator.
        """
        super().set_params(**params)
        if hasattr(self, "model_"):
            self.model_ = with_predictive(self.model_, self._predictive())
        return self

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        x = self.encode_rows(X)
        with self._threads():
            return self.model_.log_proba(x)

    def predict_logit(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the logits: posterior means and, on request, standard deviations.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_classes)
            Log-odds of the second of two classes; of more classes, each logit minus their mean.
        std : ndarray of the same shape
            Standard deviations of the posterior.
        """
        x = self.encode_rows(X)
        with self._threads():
            mean, std = self.model_.logit(x)
        return (mean, std) if return_std else mean

    def sample_proba(
        self, X: ArrayLike, n_samples: int = 1, random_state: np.random.Generator | int | None = 0
    ) -> FloatArray:
        """Predict the classes' probabilities by each of several networks sampled from the posterior.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_samples : int, default=1
            Number of draws.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.

        Returns
        -------
        ndarray of shape (n_rows, n_classes, n_samples)
            Probabilities.
        """
        x = self.encode_rows(X)
        n_samples, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        with self._threads():
            return self.model_.sample_proba(x, n_samples, rng)

    @property
    def input_map_(self) -> InputMap:
        return self.model_.outputs.input_map

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedNetworkClassifier}

    def _restored(self) -> None:
        require_network(self)
        self.classes_ = self.model_.classes

    @property
    def prior_variances_(self) -> FloatArray:
        return prior_variances_of(self.posterior_)

    @property
    def sparsity_(self) -> float:
        self._require_fitted()
        return 0.0  # a Gaussian weight is never exactly zero


def require_network(model: NetworkRegressor | NetworkClassifier) -> None:
    """Raise unless the parts of a file are of its columns, and of the network of its parameters."""
    plan, network = model._plan(), model.posteriors_[0].network
    require_inputs(model.n_features_in_, model.columns_, model.input_map_)
    of_rows = {name: getattr(network, name) for name in ("n_inputs", "n_targets", "seed") if hasattr(network, name)}
    if type(network) is not type(plan.network) or network != replace(
        plan.network, **of_rows, likelihood=network.likelihood
    ):
        raise ValueError("posteriors are not of the network's shape")
    if network.likelihood != plan.network.likelihood:
        raise ValueError(f"posteriors must be of networks for {plan.network.likelihood}, got {network.likelihood}")


def require_inputs(n_features_in: int, columns: ColumnEncoding, inputs: InputMap) -> None:
    """Raise unless the columns of a file are those of X, and its input map takes them."""
    if columns.n_columns != n_features_in or len(inputs.mean) != columns.n_encoded:
        raise ValueError(f"columns and input map must take {n_features_in} columns")


def with_predictive(model: Model, predictive: Predictive) -> Model:
    """Return the model with other predictions of the same networks."""
    return replace(model, outputs=replace(model.outputs, n_draws=predictive.n_draws), predictive=predictive.name)


def prior_variances_of(posterior: TrainedNetwork) -> FloatArray:
    """Variances of Gaussian priors; with another law there are none."""
    if isinstance(posterior.network, SampledNetwork) and posterior.network.weight_prior:
        raise AttributeError("priors that are not Gaussian have no prior_variances_")
    return posterior.prior_variances
