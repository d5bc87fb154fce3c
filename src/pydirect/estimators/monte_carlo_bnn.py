"""`MonteCarloBNNRegressor` and `MonteCarloBNNClassifier`: networks with weights of several laws, trained by draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydirect._documentation import described_by
from pydirect._validation import as_choice, as_count
from pydirect.estimators._networks import (
    NetworkClassifier,
    NetworkPlan,
    NetworkRegressor,
    Predictive,
    as_network_prior,
    likelihood_of,
    schedule_of,
)
from pydirect.estimators.dvi import DVIRegressor
from pydirect.monte_carlo.divergence import MODES
from pydirect.networks.sampled import SampledNetwork
from pydirect.networks.training import LEAST_STEPS, TrainingSchedule

SAMPLINGS = ("weights", "pre_activations")
DEFAULT_SCHEDULE = TrainingSchedule(n_steps=LEAST_STEPS)


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
    exact_last_layer : bool, default=True
        Integrate over the output layer's weights in closed form, for constant noise or normal weights.
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
    >>> model = MonteCarloBNNRegressor((20,), posterior="laplace", schedule=TrainingSchedule(n_steps=1000)).fit(X, y)
    >>> bool(abs(model.predict([[0.5]])[0] - 0.5) < 0.1)
    True
    """

    hidden_layer_sizes: Any = (50,)
    noise: str = "varying"
    posterior: str = "normal"
    prior: Any = "empirical_bayes"
    kl_mode: str = "exact"
    n_kl_draws: int = 100
    n_draws: int = 10
    sampling: str = "weights"
    exact_last_layer: bool = True
    schedule: TrainingSchedule | None = None
    initial_scale: float = 0.05
    n_restarts: int = 1
    n_predictive_draws: int = 200
    columns: Any = None
    n_threads: int | None = None
    random_state: Any = 0
    verbose: int = 0

    def _plan(self) -> NetworkPlan:
        return _plan_of(self, 1, likelihood_of(self.noise), exact_last_layer=self.exact_last_layer)

    def _predictive(self) -> Predictive:
        return Predictive("draws", as_count(self.n_predictive_draws, "n_predictive_draws"))


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

    hidden_layer_sizes: Any = (50,)
    posterior: str = "normal"
    prior: Any = "empirical_bayes"
    kl_mode: str = "exact"
    n_kl_draws: int = 100
    n_draws: int = 10
    sampling: str = "weights"
    schedule: TrainingSchedule | None = None
    initial_scale: float = 0.05
    n_restarts: int = 1
    n_predictive_draws: int = 200
    columns: Any = None
    n_threads: int | None = None
    random_state: Any = 0
    verbose: int = 0

    def _plan(self) -> NetworkPlan:
        return _plan_of(self, 2, "classification", exact_last_layer=False)  # the softmax has no closed form

    def _predictive(self) -> Predictive:
        return Predictive("draws", as_count(self.n_predictive_draws, "n_predictive_draws"))


def _plan_of(
    model: MonteCarloBNNRegressor | MonteCarloBNNClassifier, n_targets: int, likelihood: str, exact_last_layer: bool
) -> NetworkPlan:
    schedule = schedule_of(model, DEFAULT_SCHEDULE)
    inference = _inference_of(model.sampling, schedule.optimizer, model.posterior, model.kl_mode)
    prior, weight_prior = model.prior, tuple[Any, ...]()
    if isinstance(prior, tuple | list) and len(prior) > 0 and isinstance(prior[0], str):  # another law than Gaussians
        prior, weight_prior = "empirical_bayes", tuple(prior)
    network = SampledNetwork(
        1,
        model.hidden_layer_sizes,
        n_targets,
        likelihood=likelihood,
        prior=as_network_prior(prior),
        posterior=model.posterior,
        weight_prior=weight_prior,
        kl_mode=model.kl_mode,
        n_kl_draws=model.n_kl_draws,
        exact_last_layer=exact_last_layer,
    )
    return NetworkPlan.of(model, network, inference, schedule)


def _inference_of(sampling: str, optimizer: str, posterior: str, kl_mode: str) -> str:
    """Return the name of the inference, as `fit_network` takes it, if these choices go together."""
    as_choice(sampling, "sampling", SAMPLINGS)
    as_choice(kl_mode, "kl_mode", MODES)
    if sampling != "weights" and (optimizer != "adam" or posterior != "normal"):
        raise ValueError(
            "sampling must be 'weights' but for normal weights and optimizer='adam', got "
            f"{sampling!r} with posterior={posterior!r} and optimizer={optimizer!r}"
        )
    if kl_mode != "fixed" and optimizer != "adam":
        raise ValueError(f"optimizer must be 'adam' for kl_mode={kl_mode!r}, got {optimizer!r}")
    if "lbfgs" in optimizer:  # which needs the same draws at every step
        return "kept"
    return "mcvi" if sampling == "weights" else "rmcvi"
