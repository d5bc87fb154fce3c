"""Estimators of networks with continuous weights: `DVIRegressor`, `MonteCarloBNNRegressor`, and classifiers.

They differ in `_plan`, which says of which network a fit is and how its bound is found; all else is the same for all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pydirect._documentation import described_by
from pydirect._progress import Progress
from pydirect._validation import FloatArray, as_choice, as_count, as_flag, as_instance
from pydirect.estimators._classifier import Classifier, GivenLabels, predict_logit, require_classes, sample_proba
from pydirect.estimators._estimator import Estimator, of_model
from pydirect.estimators._regressor import Regressor
from pydirect.estimators.choices import check_common, generator_of
from pydirect.estimators.regression import GivenRows
from pydirect.features.inputs import InputMap
from pydirect.features.rows import distinct_rows
from pydirect.fitted.networks import FittedNetworkClassifier, FittedNetworkRegressor, NetworkOutputs, network_inputs
from pydirect.fitted.predictor import Units
from pydirect.monte_carlo.divergence import MODES
from pydirect.networks.base import EmpiricalBayes, TrainedNetwork, VariationalNetwork
from pydirect.networks.deterministic import DeterministicNetwork
from pydirect.networks.sampled import SampledNetwork
from pydirect.networks.training import LEAST_STEPS, TrainingSchedule, fit_network
from pydirect.tables.encoding import ColumnEncoding

# Names of the noise, and what networks call it.
LIKELIHOODS = {"varying": "heteroscedastic", "constant": "homoscedastic", "softplus": "softplus"}
SAMPLINGS = ("weights", "pre_activations")
ONE_STEP = {"schedule": TrainingSchedule("adam", n_steps=1), "n_restarts": 1}


@dataclass(frozen=True)
class NetworkPlan:
    """What the parameters of a network estimator ask for, checked; ``network`` is one of a single input."""

    network: VariationalNetwork
    inference: str
    schedule: TrainingSchedule
    n_predictive_draws: int = 0  # 0 where moments are propagated

    def effort(self, n_iter: int, n_rows: int) -> dict[str, Any]:
        """How long a fit went on, and the field of the schedule that ended it, if one did."""
        schedule = self.schedule
        counted = {"adam": ("steps", schedule.steps(n_rows)), "lbfgs": ("iterations", schedule.max_iter)}
        units, limits = zip(*(counted[stage] for stage in schedule.optimizer.split("+")), strict=True)
        limit = "n_steps" if units[-1] == "steps" else "max_iter"
        if n_iter < sum(limits):  # no line search of L-BFGS found a better point
            limit = ""
        return {"limit": limit, "given": getattr(schedule, limit, None), "effort": f"{n_iter} {' and '.join(units)}"}


def fit_each(
    columns: Iterable[Any], progress: Progress, fit: Callable[[Any, dict[str, Any]], Any], least: dict[str, Any]
) -> list[Any]:
    """Fit a posterior per output; after an interruption, the remaining ones with the options of `least` effort."""
    posteriors: list[Any] = []
    for column in columns:
        with progress.stage("training"):
            posteriors.append(fit(column, least if any(p.interrupted for p in posteriors) else {}))
    return posteriors


def report_of(part: str, verbose: int) -> Callable[[int, int, float], None] | None:
    """What prints how many parts of a training are finished, if that is wanted."""

    def report(finished: int, total: int, elbo: float) -> None:
        print(f"  {part} {finished:3d} of {total}, best ELBO {elbo:.1f}", file=sys.stderr, flush=True)

    return report if verbose else None


def train(
    model: NetworkRegressor | NetworkClassifier,
    plan: NetworkPlan,
    x: FloatArray,
    columns: list[FloatArray],
    weight: FloatArray,
    progress: Progress,
    n_targets: int = 1,
) -> NetworkOutputs:
    """Standardise rows, and train one network per column of targets."""
    rng, input_map = generator_of(model.random_state), InputMap.fit(x, weight, rank=False)
    inputs = network_inputs(input_map, x)
    network = replace(plan.network, n_inputs=inputs.shape[1], n_targets=n_targets)

    def fit(column: FloatArray, least: dict[str, Any]) -> TrainedNetwork:
        own = network
        if isinstance(network, SampledNetwork):  # draws that are kept are others for every output
            own = replace(network, seed=int(rng.integers(2**31)))
        options: dict[str, Any] = {"schedule": plan.schedule, "n_restarts": model.n_restarts} | least
        options |= {"inference": plan.inference, "n_draws": model.n_draws, "sample_weight": weight}
        report = report_of("start", model.verbose)
        return fit_network(own, inputs, column, random_state=rng, progress=report, **options)

    posteriors = fit_each(columns, progress, fit, ONE_STEP)
    return NetworkOutputs(input_map, tuple(posteriors), plan.n_predictive_draws)


def prior_variances_of(model: NetworkRegressor | NetworkClassifier) -> FloatArray | list[FloatArray]:
    """Variances of Gaussian priors; with another law there are none."""
    if getattr(model.posteriors_[0].network, "weight_prior", ()):
        raise AttributeError("priors that are not Gaussian have no prior_variances_")
    variances = [posterior.prior_variances for posterior in model.posteriors_]
    return variances[0] if model.model_.one_dimensional else variances


@dataclass(eq=False, repr=False)
class NetworkRegressor(Regressor):
    """A regressor of one network per target; a subclass says in `_plan` which."""

    hidden_layer_sizes: Any = (50,)
    noise: str = "varying"
    prior: Any = "empirical_bayes"
    n_draws: int = 10
    schedule: TrainingSchedule | None = None
    n_restarts: int = 1

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedNetworkRegressor}

    def _learn(self, plan: NetworkPlan, given: GivenRows, progress: Progress) -> dict[str, Any]:
        # Training is not convex: data that differ only by rounding could lead to different optima.
        x, targets, counts = distinct_rows(given.x, given.y, given.weight)
        units, z = Units.fit(targets, counts, given.one_dimensional)
        outputs = train(self, plan, x, list(z.T), counts, progress)
        model = FittedNetworkRegressor(outputs, units, float(counts.sum()), np.full(units.n_outputs, np.nan))
        self.model_ = model.with_mean_noise(x, counts)
        return plan.effort(self.n_iter_, len(x))

    def _restored(self) -> None:
        require_network(self)

    input_map_ = of_model("outputs.input_map")
    mean_noise_ = of_model("mean_noise")
    prior_variances_ = property(prior_variances_of)


@dataclass(eq=False, repr=False)
class NetworkClassifier(Classifier):
    """A classifier of one network with an output per class; a subclass says in `_plan` which."""

    hidden_layer_sizes: Any = (50,)
    prior: Any = "empirical_bayes"
    n_draws: int = 10
    schedule: TrainingSchedule | None = None
    n_restarts: int = 1

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedNetworkClassifier}

    def _learn(self, plan: Any, given: GivenLabels, progress: Progress) -> dict[str, Any]:
        classes, index = np.unique(given.y, return_inverse=True)
        require_classes(classes)
        # In small tables repeated rows are merged, so that a weight of two is the same as a row given twice.
        x, merged, counts = distinct_rows(given.x, index[:, None].astype(np.float64), given.weight)
        outputs = train(self, plan, x, [merged[:, 0]], counts, progress, len(classes))
        self.model_ = FittedNetworkClassifier(outputs, classes, float(counts.sum()))
        return plan.effort(self.n_iter_, len(x))

    predict_logit, sample_proba = predict_logit, sample_proba

    def _restored(self) -> None:
        require_network(self)

    input_map_ = of_model("outputs.input_map")
    prior_variances_ = property(prior_variances_of)


def require_network(model: NetworkRegressor | NetworkClassifier) -> None:
    """Raise unless the parts of a file are of its columns, and of the network of its parameters."""
    asked, network = model._plan().network, model.posteriors_[0].network
    require_inputs(model.n_features_in_, model.columns_, model.input_map_)
    of_rows = {name: getattr(network, name) for name in ("n_inputs", "n_targets", "seed") if hasattr(network, name)}
    if type(network) is not type(asked) or network != replace(asked, **of_rows):
        raise ValueError(f"posteriors are not of the network's shape, or not of networks for {asked.likelihood}")


def require_inputs(n_features_in: int, columns: ColumnEncoding, inputs: InputMap) -> None:
    """Raise unless the columns of a file are those of X, and its input map takes them."""
    if columns.n_columns != n_features_in or len(inputs.mean) != columns.n_encoded:
        raise ValueError(f"columns and input map must take {n_features_in} columns")


def schedule_of(model: NetworkRegressor | NetworkClassifier, n_steps: int | None = None) -> TrainingSchedule:
    """Return the schedule that was given, or the default one."""
    schedule = TrainingSchedule(n_steps=n_steps) if model.schedule is None else model.schedule
    as_instance(schedule, "schedule", TrainingSchedule)
    return schedule


def _plan_of(
    model: NetworkRegressor | NetworkClassifier,
    network: Callable[..., VariationalNetwork],
    inference: str,
    schedule: TrainingSchedule,
    n_predictive_draws: int = 0,
    **options: Any,
) -> NetworkPlan:
    """Check what all estimators have, and return the plan of a network of these `options`."""
    check_common(model)
    for name in ("n_draws", "n_restarts"):
        as_count(getattr(model, name), name)
    n_targets, likelihood = 2, "tilted_classification" if network is DeterministicNetwork else "classification"
    if isinstance(model, NetworkRegressor):
        n_targets, likelihood = 1, LIKELIHOODS[as_choice(model.noise, "noise", tuple(LIKELIHOODS))]
    prior = options.pop("prior", model.prior)
    if isinstance(prior, str):
        as_choice(prior, "prior", ("empirical_bayes",))
        prior = EmpiricalBayes()
    made = network(1, model.hidden_layer_sizes, n_targets, likelihood=likelihood, prior=prior, **options)
    schedule.stages(made.inference(inference))
    return NetworkPlan(made, inference, schedule, n_predictive_draws)


# --- deterministic variational inference


def _dvi_plan(model: DVIRegressor | DVIClassifier) -> NetworkPlan:
    options = {name: getattr(model, name) for name in ("activation", "covariance", "kernel")}
    skip = as_flag(model.skip_connections, "skip_connections")
    return _plan_of(model, DeterministicNetwork, model.inference, schedule_of(model), skip=skip, **options)


@described_by(Estimator)
@dataclass(eq=False, repr=False)
class DVIRegressor(NetworkRegressor):
    """Bayesian neural network with Gaussian weights, trained by deterministic variational inference (DVI).

    Means and variances of the activations are propagated in closed form, so that the evidence lower bound and its
    gradient carry no sampling noise (Wu et al. 2019, "Deterministic variational inference for robust Bayesian neural
    networks", ICLR). The noise may depend on the inputs; empirical Bayes finds the prior variance of each layer.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(50,)
        Units of each hidden layer.
    activation : {"relu", "heaviside"}, default="relu"
        Heaviside units have a gradient only through their moments: ``inference="dvi"`` only.
    noise : {"varying", "constant", "softplus"}, default="varying"
        Whether the noise variance is the exponential or the softplus of an output of the network, which depends on
        the inputs, or one learned number.
    covariance : {"full", "diagonal"}, default="full"
        Of the activations. ``"diagonal"`` (dDVI) is cheaper for two or more hidden layers, and less exact.
    kernel : {"exact", "paper", "fast"}, default="exact"
        Covariance of two units: exact up to rounding, the published approximation, or accurate to six digits.
    skip_connections : bool, default=False
        Add the pre-activations of a hidden layer to those of the next one where both have the same width; at least one
        such pair is required.
    prior : "empirical_bayes", EmpiricalBayes or float, default="empirical_bayes"
        Prior variance of the weights: estimated for each weight matrix and bias vector, under the paper's hyperprior
        or another one, or one fixed number.
    inference : {"dvi", "mcvi", "rmcvi", "map"}, default="dvi"
        The deterministic bound, or a baseline: the bound estimated from draws of weights (``"mcvi"``) or of
        pre-activations (``"rmcvi"``), or the posterior mode (``"map"``).
    n_draws : int, default=10
        Draws per step for ``"mcvi"`` and ``"rmcvi"``.
    schedule : TrainingSchedule, optional
        Optimisers, steps and batches; by default ``TrainingSchedule()``. L-BFGS improves predictions where there is
        almost no noise, and harms them where the noise depends on the inputs. On small data sets the bound still rises
        after Adam's 3000 steps: 10 000 gained 0.2 nats per held-out row of simulated buildings, which have almost no
        noise, under empirical Bayes and with a fixed prior; on four measured data sets they gained nothing or lost.
    n_restarts : int, default=1
        Number of random starts; the one with the highest bound is kept. Where the noise depends on the inputs, another
        one may predict better.
    random_state : int, RandomState or None, default=0
        Seed of the starts and of the batches.

    Attributes
    ----------
    posterior_ : DeterministicPosterior, or a list of them for several outputs
        One network per output.
    prior_variances_ : ndarray of shape (2 n_layers,), or a list of them
        Prior variance of the weights and of the biases of each layer in turn.
    elbo_ : float
        Evidence lower bound of the targets in their own units, in nats, summed over outputs: under empirical Bayes
        together with the log density of the prior variances; for ``inference="map"`` the log density of the mode.
    elbo_trace_ : ndarray of shape (n_checks,), or a list of them
        Of the start that was kept.
    n_iter_ : int
        Steps of Adam and iterations of L-BFGS.
    converged_ : bool
        For Adam, whether the bound per row rose in the last quarter of the checks by less than 0.05 nats times the sum
        of the step sizes there. If not, more steps help.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Expected noise variance in squared units of y, averaged over the training rows.
    calibration_scale_ : float
        1, or the scale found by `calibrate`.
    fit_seconds_ : dict of str to float
        Seconds of each stage.
    posteriors_ : list
        `posterior_` as a list, one per output.
    columns_ : ColumnEncoding
        From tables to the rows of numbers that the model takes, by ``columns_.encode(X)``.
    input_map_ : InputMap
        Standardisation of the columns.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    total_weight_ : float
        Sum of the weights of the training rows.
    mean_noise_ : ndarray of shape (n_outputs,)
        Noise variance averaged over the training rows, in units of ``y_scale_`` squared.
    y_mean_ : ndarray of shape (n_outputs,)
        Mean of the training targets, as they were modelled.
    y_scale_ : ndarray of shape (n_outputs,)
        Their standard deviation, one where it is zero: units of the posterior.
    model_ : FittedNetworkRegressor
        The fitted model as frozen data.
    n_features_in_ : int
        Number of columns of X.

    Notes
    -----
    ``predict(return_std=True)`` and `predict_parts` give the moments of eq. 9, with the noise variance
    E exp(l) = exp(E l + Σ_ll / 2) for varying noise. `predict_distribution` and what follows from it (intervals,
    quantiles, densities) are those of a mixture over 20 nodes of a Gauss-Hermite rule for l: of the same mean. Where
    Σ_ll is large, this expectation is dominated by a tail that 20 nodes miss: far from the data the distribution's
    standard deviation is smaller.

    With one hidden layer mean and variance of f are exact under q; intervals, quantiles and densities take the outputs
    as Gaussian with these moments, as the bound does.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DVIRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 1))
    >>> y = X[:, 0] + (0.05 + 0.3 * (X[:, 0] > 0)) * rng.standard_normal(200)
    >>> model = DVIRegressor(hidden_layer_sizes=(20,)).fit(X, y)
    >>> mean, epistemic, aleatoric = model.predict_parts([[-0.5], [0.5]])
    >>> bool(aleatoric[1] > 3 * aleatoric[0])
    True
    """

    activation: str = "relu"
    covariance: str = "full"
    kernel: str = "exact"
    skip_connections: bool = False
    inference: str = "dvi"

    _plan = _dvi_plan


@described_by(DVIRegressor)
@dataclass(eq=False, repr=False)
class DVIClassifier(NetworkClassifier):
    """Bayesian neural network for classes, with Gaussian weights, trained by deterministic variational inference (DVI).

    Means and covariances of the logits are propagated in closed form. The expected log-likelihood of the softmax is
    replaced by a tight lower bound (Knowles and Minka 2011): the published second-order expansion (Wu et al. 2019,
    appendix B.4) rewards large variances of logits that are far apart, and training exploits that; it is available only
    from `DeterministicNetwork` with ``likelihood="classification"``. The cost grows with the square of the number of
    classes: with 50 units, thirty classes take 0.03 to 0.05 ms per row and step, a hundred 0.2 to 0.3 ms, more where
    the logits' variances are large.

    Predictions average the softmax over the logits' Gaussian by quasi-random points, the same for all rows, for two
    classes by quadrature over their log-odds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, in ascending order.
    elbo_ : float
        Lower bound on the log-probability of the labels, in nats.
    posterior_ : DeterministicPosterior
        The network.
    posteriors_ : list
        `posterior_` as a list of one.
    prior_variances_ : ndarray of shape (2 n_layers,)
        Prior variance of the weights and of the biases of each layer in turn.
    elbo_trace_ : ndarray of shape (n_checks,)
        Of the start that was kept.
    converged_ : bool
        As of `DVIRegressor`.
    model_ : FittedNetworkClassifier
        The fitted model as frozen data.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pydirect import DVIClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DVIClassifier(hidden_layer_sizes=(20,)).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    activation: str = "relu"
    covariance: str = "full"
    kernel: str = "exact"
    skip_connections: bool = False
    inference: str = "dvi"

    _plan = _dvi_plan


# --- Monte Carlo


def _monte_carlo_plan(model: MonteCarloBNNRegressor | MonteCarloBNNClassifier) -> NetworkPlan:
    schedule = schedule_of(model, LEAST_STEPS)
    as_choice(model.sampling, "sampling", SAMPLINGS)
    as_choice(model.kl_mode, "kl_mode", MODES)
    if model.sampling != "weights" and (schedule.optimizer != "adam" or model.posterior != "normal"):
        raise ValueError(f"sampling must be 'weights' but for normal weights and 'adam', got {model.sampling!r}")
    if model.kl_mode != "fixed" and schedule.optimizer != "adam":
        raise ValueError(f"optimizer must be 'adam' for kl_mode={model.kl_mode!r}, got {schedule.optimizer!r}")
    # L-BFGS needs the same draws at every step.
    inference = "kept" if "lbfgs" in schedule.optimizer else "mcvi" if model.sampling == "weights" else "rmcvi"
    options = {name: getattr(model, name) for name in ("posterior", "kl_mode", "n_kl_draws")}
    prior = model.prior
    if isinstance(prior, tuple | list) and len(prior) > 0 and isinstance(prior[0], str):  # another law than Gaussians
        options |= {"prior": "empirical_bayes", "weight_prior": tuple(prior)}
    n_draws = as_count(model.n_predictive_draws, "n_predictive_draws")
    return _plan_of(model, SampledNetwork, inference, schedule, n_draws, **options)


@described_by(DVIRegressor)
@dataclass(eq=False, repr=False)
class MonteCarloBNNRegressor(NetworkRegressor):
    """Bayesian neural network with normal, Laplace, logistic or radial weights, trained by Monte Carlo.

    Every weight is w = M + σ ξ. The expected log-likelihood is estimated from draws of the hidden layers; the output
    layer is integrated over in closed form where possible; the divergence from the prior needs no draws, or reduces
    them to sums before its gradient is taken (Nazarovs et al. 2021, "Graph reparameterizations for enabling 1000+ Monte
    Carlo iterations in Bayesian deep neural networks", UAI). Rectified linear units.

    Parameters
    ----------
    noise : {"varying", "constant", "softplus"}, default="varying"
        As in `DVIRegressor`.
    posterior : {"normal", "laplace", "logistic", "radial"}, default="normal"
        Law of ξ. Radial: the weights of a matrix, or the biases of a layer, have a uniform direction and a normal
        length.
    prior : "empirical_bayes", EmpiricalBayes, float or tuple, default="empirical_bayes"
        Gaussian, with a variance estimated for each weight matrix and bias vector or one fixed number; or the name of
        another law and its parameters, for example ``("laplace", 0.0, 1.0)``, where `kl_mode` supports it.
    kl_mode : {"exact", "direct", "shared", "independent", "fixed", "naive"}, default="exact"
        How the divergence is computed: exactly, or from draws of several kinds, fresh at every step or, for
        ``"fixed"``, made once; see `MonteCarloDivergence`.
    n_kl_draws : int, default=100
        Draws per weight in all modes but ``"exact"``.
    n_draws : int, default=10
        Draws of the network per step.
    sampling : {"weights", "pre_activations"}, default="weights"
        What is drawn: weights, the same for all rows of a step, or every row's own pre-activations (local
        reparameterisation), which have a smaller variance; for normal weights only.
    schedule : TrainingSchedule, optional
        Optimisers, steps and batches; by default 3000 steps of Adam. L-BFGS for ``kl_mode="fixed"`` only; the draws of
        the network, too, are then kept from the first step.
    n_restarts : int, default=1
        Number of random starts; the one with the highest bound is kept.
    n_predictive_draws : int, default=200
        Number of sampled networks that predictions average over, the same for all rows and calls.
    random_state : int, RandomState or None, default=0
        Seed of the starts, batches and draws.

    Attributes
    ----------
    posterior_ : SampledPosterior, or a list of them for several outputs
        One network per output.
    prior_variances_ : ndarray of shape (2 n_layers,), or a list of them
        Prior variance of the weights and of the biases of each layer in turn; only for Gaussian priors.
    elbo_ : float
        Evidence lower bound of the targets in their own units, in nats, summed over outputs, estimated from 100 draws
        of the networks that training has not seen.
    elbo_trace_ : ndarray of shape (n_checks,), or a list of them
        Of the start that was kept, with training's own draws: for L-BFGS it is higher than with fresh ones.
    n_iter_ : int
        Number of iterations.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Expected noise variance in squared units of y, averaged over the training rows; its logarithm is treated as
        Gaussian with the moments of the draws.

    Notes
    -----
    `predict_distribution` gives a mixture of Gaussians, one per sampled network, with the moments that `predict` gives.

    The draws kept for L-BFGS are far fewer than the weights, which adapt to them: the objective is then no bound on the
    evidence, and predictions suffer. ``elbo_`` is free of this bias; an `OverfittedDrawsWarning` is issued when the
    objective was too high by more than one nat per row. Fresh draws have no such bias.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import MonteCarloBNNRegressor, TrainingSchedule
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 1))
    >>> y = np.abs(X[:, 0]) + 0.05 * rng.standard_normal(200)
    >>> model = MonteCarloBNNRegressor((20,), posterior="laplace", schedule=TrainingSchedule(n_steps=2000)).fit(X, y)
    >>> bool(abs(model.predict([[0.5]])[0] - 0.5) < 0.1)
    True
    """

    posterior: str = "normal"
    kl_mode: str = "exact"
    n_kl_draws: int = 100
    sampling: str = "weights"
    n_predictive_draws: int = 200

    _plan = _monte_carlo_plan


@described_by(MonteCarloBNNRegressor)
@dataclass(eq=False, repr=False)
class MonteCarloBNNClassifier(NetworkClassifier):
    """Bayesian neural network for classes with normal, Laplace, logistic or radial weights, trained by Monte Carlo.

    The softmax is averaged over sampled networks, its logarithm in training and itself in prediction. The output
    layer's weights are always drawn. Source as of `MonteCarloBNNRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, in ascending order.
    elbo_ : float
        Lower bound on the log-probability of the labels, in nats, estimated from 100 fresh draws.
    posterior_ : SampledPosterior
        The network.
    posteriors_ : list
        `posterior_` as a list of one.
    prior_variances_ : ndarray of shape (2 n_layers,)
        Prior variance of the weights and of the biases of each layer in turn; only for Gaussian priors.
    elbo_trace_ : ndarray of shape (n_checks,)
        Of the start that was kept.
    n_iter_ : int
        Steps of Adam and iterations of L-BFGS.
    converged_ : bool
        As of `DVIRegressor`.
    model_ : FittedNetworkClassifier
        The fitted model as frozen data.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pydirect import MonteCarloBNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MonteCarloBNNClassifier((20,)).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    posterior: str = "normal"
    kl_mode: str = "exact"
    n_kl_draws: int = 100
    sampling: str = "weights"
    n_predictive_draws: int = 200

    _plan = _monte_carlo_plan
