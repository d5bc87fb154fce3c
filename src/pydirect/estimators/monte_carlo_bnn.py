"""`MonteCarloBNNRegressor` and `MonteCarloBNNClassifier`: networks with weights of several laws, trained by draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count
from pydirect.estimators._networks import NetworkClassifier, NetworkModel, NetworkRegressor
from pydirect.monte_carlo.divergence import MODES
from pydirect.networks.base import VariationalNetwork
from pydirect.networks.outputs import log_mean_softmax
from pydirect.networks.prior import EmpiricalBayes
from pydirect.networks.sampled import SampledNetwork, SampledPosterior
from pydirect.networks.schedule import BATCH_SIZE, NETWORK_OPTIMIZERS

SAMPLINGS = ("weights", "pre_activations")
# Seed of the draws that all predictions use.
PREDICTIVE_SEED = 0


class SampledModel(NetworkModel):
    """Base of the two estimators: parameters, training, outputs of networks sampled from the posterior."""

    _posterior_types = (SampledPosterior,)
    posterior: str
    kl_mode: str
    n_kl_draws: int
    sampling: str
    exact_last_layer: bool
    n_predictive_draws: int
    posteriors_: list[SampledPosterior]

    def _network_to_train(self, network: VariationalNetwork, rng: np.random.Generator) -> VariationalNetwork:
        assert isinstance(network, SampledNetwork)
        return replace(network, seed=int(rng.integers(2**31)))  # of draws that are kept

    def _inference(self) -> str:
        """Return the name of the inference: L-BFGS needs the same draws at every step."""
        if "lbfgs" in self.optimizer:
            return "kept"
        return "mcvi" if self.sampling == "weights" else "rmcvi"

    def _check_parameters(self) -> None:
        as_choice(self.sampling, "sampling", SAMPLINGS)
        as_choice(self.kl_mode, "kl_mode", MODES)
        as_choice(self.optimizer, "optimizer", NETWORK_OPTIMIZERS)
        if self.sampling != "weights" and (self.optimizer != "adam" or self.posterior != "normal"):
            raise ValueError(
                "sampling must be 'weights' but for normal weights and optimizer='adam', got "
                f"{self.sampling!r} with posterior={self.posterior!r} and optimizer={self.optimizer!r}"
            )
        if self.kl_mode != "fixed" and self.optimizer != "adam":
            raise ValueError(f"optimizer must be 'adam' for kl_mode={self.kl_mode!r}, got {self.optimizer!r}")
        super()._check_parameters()
        as_count(self.n_predictive_draws, "n_predictive_draws")

    def _network_with(self, n_inputs: int, n_outputs: int, likelihood: str) -> SampledNetwork:
        prior = self.prior
        named = isinstance(prior, tuple | list) and len(prior) > 0 and isinstance(prior[0], str)
        empirical = isinstance(prior, str) or named
        return SampledNetwork(
            n_inputs,
            self.hidden_layer_sizes,
            n_outputs,
            likelihood=likelihood,
            prior=EmpiricalBayes() if empirical else prior,
            posterior=self.posterior,
            weight_prior=tuple(prior) if named else (),
            kl_mode=self.kl_mode,
            n_kl_draws=self.n_kl_draws,
            exact_last_layer=self.exact_last_layer,
        )

    def _set_results(self) -> None:
        super()._set_results()
        if self.posteriors_[0].network.weight_prior:
            del self.prior_variances_  # there are none

    def _n_columns(self) -> int:
        return self._n_columns_of_draws(self.n_predictive_draws)

    def _drawn_outputs(self, rows: FloatArray) -> list[FloatArray]:
        """Return outputs of the sampled networks that predictions average over, (n_rows, n_outputs, n_draws) each."""
        inputs, rng = self._inputs(rows), np.random.default_rng(PREDICTIVE_SEED)
        return [p.forward(p.kept_weights(self.n_predictive_draws, rng), inputs) for p in self.posteriors_]

    def _output_moments(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        moments = []
        for outputs in self._drawn_outputs(rows):
            mean = outputs.mean(axis=2)
            centred = outputs - mean[:, :, None]
            moments.append((mean, centred @ np.swapaxes(centred, 1, 2) / outputs.shape[2]))
        return moments


class MonteCarloBNNRegressor(SampledModel, NetworkRegressor):
    """Bayesian neural network with normal, Laplace, logistic or radial weights, trained by Monte Carlo.

    Every weight is w = M + σ ξ. The expected log-likelihood is estimated from draws of the hidden layers; the output
    layer is integrated over in closed form where possible; the divergence from the prior needs no draws, or reduces
    them to sums before its gradient is taken (Nazarovs et al. 2021, "Graph reparameterizations for enabling 1000+ Monte
    Carlo iterations in Bayesian deep neural networks", UAI). Rectified linear units.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(50,)
        Units of each hidden layer.
    noise : {"heteroscedastic", "homoscedastic", "softplus"}, default="heteroscedastic"
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
        Integrate over the output layer's weights in closed form, for homoscedastic noise or normal weights.
    optimizer : {"adam", "adam+lbfgs", "lbfgs"}, default="adam"
        L-BFGS for ``kl_mode="fixed"`` only; the draws of the network, too, are then kept from the first step.
    n_steps : int, default=3000
        Steps of Adam.
    learning_rate : float, default=0.01
        Initial step size of Adam; it falls to zero along half a cosine.
    batch_size : int or None, default=100
        Rows per step of Adam; None for all of them.
    kl_warmup, kl_ramp : float, default=0.0
        Fraction of Adam's steps without the KL term, and of the following steps in which its weight rises to one; at
        most 0.9 together.
    max_iter : int, default=2000
        Largest number of iterations of L-BFGS.
    initial_scale : float, default=0.05
        Initial posterior standard deviations, relative to the initial spread of the means.
    n_restarts : int, default=1
        Number of random starts; the one with the highest bound is kept.
    n_predictive_draws : int, default=200
        Number of sampled networks that predictions average over, the same for all rows and calls.
    n_threads : int, optional
        By default OpenMP's number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the starts, batches and draws.
    verbose : int, default=0
        1 reports stages on standard error.

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
    converged_ : bool
        For Adam, whether the bound per row rose in the last quarter of the checks by less than 0.05 nats times the sum
        of the step sizes there. If not, more steps help.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Expected noise variance in squared units of y, averaged over the training rows; its logarithm is treated as
        Gaussian with the moments of the draws.
    calibration_scale_ : float
        1, or the scale found by `calibrate`.
    fit_seconds_ : dict of str to float
        Seconds of each stage.
    posteriors_ : list
        `posterior_` as a list, one per output.
    columns_ : Columns
        From tables to the rows of numbers that the model takes, by ``columns_.encode(X)``.
    input_map_ : InputMap
        Standardisation of the columns.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    n_samples_ : float
        Sum of the weights of the training rows.
    mean_noise_ : ndarray of shape (n_outputs,)
        Noise variance averaged over the training rows, in units of ``y_scale_`` squared.
    y_mean_ : ndarray of shape (n_outputs,)
        Mean of the training targets, as they were modelled.
    y_scale_ : ndarray of shape (n_outputs,)
        Their standard deviation, one where it is zero: units of the posterior.
    n_features_in_ : int
        Number of columns of X.

    Notes
    -----
    `predict_distribution` gives a mixture of Gaussians, one per sampled network, with the moments that `predict` gives.

    The draws kept for L-BFGS are far fewer than the weights, which adapt to them: the objective is then no bound on the
    evidence, and predictions suffer. ``elbo_`` is free of this bias; an `OverfittedDrawsWarning` is issued when the
    objective was too high by more than one nat per row. Fresh draws have no such bias.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import MonteCarloBNNRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 1))
    >>> y = np.abs(X[:, 0]) + 0.05 * rng.standard_normal(200)
    >>> model = MonteCarloBNNRegressor((20,), posterior="laplace", n_steps=1000).fit(X, y)
    >>> bool(abs(model.predict([[0.5]])[0] - 0.5) < 0.1)
    True
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (50,),
        noise: str = "heteroscedastic",
        posterior: str = "normal",
        prior: Any = "empirical_bayes",
        kl_mode: str = "exact",
        n_kl_draws: int = 100,
        n_draws: int = 10,
        sampling: str = "weights",
        exact_last_layer: bool = True,
        optimizer: str = "adam",
        n_steps: int = 3000,
        learning_rate: float = 0.01,
        batch_size: int | None = BATCH_SIZE,
        kl_warmup: float = 0.0,
        kl_ramp: float = 0.0,
        max_iter: int = 2000,
        initial_scale: float = 0.05,
        n_restarts: int = 1,
        n_predictive_draws: int = 200,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.noise = noise
        self.posterior = posterior
        self.prior = prior
        self.kl_mode = kl_mode
        self.n_kl_draws = n_kl_draws
        self.n_draws = n_draws
        self.sampling = sampling
        self.exact_last_layer = exact_last_layer
        self.optimizer = optimizer
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.kl_warmup = kl_warmup
        self.kl_ramp = kl_ramp
        self.max_iter = max_iter
        self.initial_scale = initial_scale
        self.n_restarts = n_restarts
        self.n_predictive_draws = n_predictive_draws
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    # --- prediction

    def _drawn_outputs(self, rows: FloatArray) -> list[FloatArray]:
        """Return draws of f and of the output l that gives the noise variance, constant for homoscedastic noise."""
        outputs = super()._drawn_outputs(rows)
        if self.noise != "homoscedastic":
            return outputs
        return [
            np.concatenate([drawn, np.full_like(drawn, p.log_noise[0])], axis=1)
            for drawn, p in zip(outputs, self.posteriors_, strict=True)
        ]

    def _target_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        weights = np.full(self.n_predictive_draws, 1.0 / self.n_predictive_draws)
        return [(weights, drawn[:, 0], self._noise_variances(drawn[:, 1])) for drawn in self._drawn_outputs(rows)]

    def _variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        mean, epistemic, aleatoric = (np.empty((len(x), len(self.posteriors_))) for _ in range(3))
        with single_blas_thread():
            for rows in self._blocks(x):
                for k, (_, means, noise) in enumerate(self._target_components(x[rows])):
                    mean[rows, k], epistemic[rows, k] = means.mean(axis=1), means.var(axis=1)
                    aleatoric[rows, k] = noise.mean(axis=1)
        return mean, epistemic, aleatoric


class MonteCarloBNNClassifier(NetworkClassifier, SampledModel):
    """Bayesian neural network for classes with normal, Laplace, logistic or radial weights, trained by Monte Carlo.

    The softmax is averaged over sampled networks, its logarithm in training and itself in prediction. The output
    layer's weights are always drawn. Source as of `MonteCarloBNNRegressor`.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(50,)
        Units of each hidden layer.
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
    optimizer : {"adam", "adam+lbfgs", "lbfgs"}, default="adam"
        L-BFGS for ``kl_mode="fixed"`` only; the draws of the network, too, are then kept from the first step.
    n_steps : int, default=3000
        Steps of Adam.
    learning_rate : float, default=0.01
        Initial step size of Adam; it falls to zero along half a cosine.
    batch_size : int or None, default=100
        Rows per step of Adam; None for all of them.
    kl_warmup, kl_ramp : float, default=0.0
        Fraction of Adam's steps without the KL term, and of the following steps in which its weight rises to one; at
        most 0.9 together.
    max_iter : int, default=2000
        Largest number of iterations.
    initial_scale : float, default=0.05
        Initial posterior standard deviations, relative to the initial spread of the means.
    n_restarts : int, default=1
        The last eight as in `DVIRegressor`.
    n_predictive_draws : int, default=200
        Number of sampled networks that predictions average over, the same for all rows and calls.
    n_threads : int, optional
        By default OpenMP's number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the starts, batches and draws.
    verbose : int, default=0
        1 reports stages on standard error.

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
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    fit_seconds_ : dict of str to float
        Seconds of each stage.
    columns_ : Columns
        From tables to the rows of numbers that the model takes, by ``columns_.encode(X)``.
    input_map_ : InputMap
        Standardisation of the columns.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    n_samples_ : float
        Sum of the weights of the training rows.
    n_features_in_ : int
        Number of columns of X.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pydirect import MonteCarloBNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MonteCarloBNNClassifier((20,)).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    exact_last_layer = False  # the softmax has no closed form

    def __init__(
        self,
        hidden_layer_sizes: Any = (50,),
        posterior: str = "normal",
        prior: Any = "empirical_bayes",
        kl_mode: str = "exact",
        n_kl_draws: int = 100,
        n_draws: int = 10,
        sampling: str = "weights",
        optimizer: str = "adam",
        n_steps: int = 3000,
        learning_rate: float = 0.01,
        batch_size: int | None = BATCH_SIZE,
        kl_warmup: float = 0.0,
        kl_ramp: float = 0.0,
        max_iter: int = 2000,
        initial_scale: float = 0.05,
        n_restarts: int = 1,
        n_predictive_draws: int = 200,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.posterior = posterior
        self.prior = prior
        self.kl_mode = kl_mode
        self.n_kl_draws = n_kl_draws
        self.n_draws = n_draws
        self.sampling = sampling
        self.optimizer = optimizer
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.kl_warmup = kl_warmup
        self.kl_ramp = kl_ramp
        self.max_iter = max_iter
        self.initial_scale = initial_scale
        self.n_restarts = n_restarts
        self.n_predictive_draws = n_predictive_draws
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _network(self, n_inputs: int, n_outputs: int) -> SampledNetwork:
        return self._network_with(n_inputs, n_outputs, "classification")

    def _log_probabilities(self, x: FloatArray) -> FloatArray:
        return log_mean_softmax(self._drawn_outputs(x)[0], classes=1, draws=2)
