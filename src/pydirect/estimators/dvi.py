"""`DVIRegressor` and `DVIClassifier`: Gaussian networks trained by deterministic variational inference."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_expit

from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_flag
from pydirect.estimators._networks import NetworkClassifier, NetworkModel, NetworkRegressor
from pydirect.logistic.predictive import predictive_log_odds
from pydirect.networks.deterministic import DeterministicNetwork, DeterministicPosterior
from pydirect.networks.outputs import (
    N_NODES,
    delta_log_probabilities,
    draw_outputs,
    log_mean_softmax,
    log_noise_nodes,
    log_odds_moments,
    normal_points,
)
from pydirect.networks.prior import EmpiricalBayes
from pydirect.networks.schedule import BATCH_SIZE

REGRESSOR_PREDICTIVES = ("quadrature", "moment", "mc")
CLASSIFIER_PREDICTIVES = ("qmc", "delta")
# Number of draws of the outputs for predictive="mc"; of quasi-random points for several classes, a power of two.
N_DRAWS = 100
N_POINTS = 256


class DeterministicModel(NetworkModel):
    """Base of the two estimators: parameters, and moments of the outputs by propagation."""

    _posterior_types = (DeterministicPosterior,)
    activation: str
    covariance: str
    kernel: str
    skip_connections: bool
    inference: str

    def _check_parameters(self) -> None:
        as_flag(self.skip_connections, "skip_connections")
        super()._check_parameters()

    def _inference(self) -> str:
        return self.inference

    def _network_with(self, n_inputs: int, n_outputs: int, likelihood: str) -> DeterministicNetwork:
        return DeterministicNetwork(
            n_inputs,
            self.hidden_layer_sizes,
            n_outputs,
            likelihood=likelihood,
            activation=self.activation,
            covariance=self.covariance,
            kernel=self.kernel,
            skip=self.skip_connections,
            prior=EmpiricalBayes() if isinstance(self.prior, str) else self.prior,
        )

    def _output_moments(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        inputs, n_threads = self._inputs(rows), resolve_n_threads(self.n_threads)
        return [p.moments(inputs, n_threads) for p in self.posteriors_]


class DVIRegressor(DeterministicModel, NetworkRegressor):
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
    noise : {"heteroscedastic", "homoscedastic", "softplus"}, default="heteroscedastic"
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
    optimizer : {"adam", "adam+lbfgs", "lbfgs"}, default="adam"
        Adam on batches of shuffled rows. L-BFGS, on all rows, converges to an optimum of a deterministic bound; that
        improves predictions where there is almost no noise, and harms them where the noise depends on the inputs.
        ``"lbfgs"`` alone uses neither batches nor the warm-up of the KL term.
    n_steps : int, optional
        Steps of Adam: by default 3000, or as many as 100 passes over the rows take if that is more. On small data sets
        the bound then still rises: 10 000 steps gained 0.2 nats per held-out row of simulated buildings, which have
        almost no noise, under empirical Bayes and with a fixed prior; on four measured data sets they gained nothing
        or lost.
    learning_rate : float, default=0.01
        Initial step size of Adam; it falls to zero along half a cosine.
    batch_size : int or None, default=100
        Rows per step of Adam; None for all of them.
    kl_warmup, kl_ramp : float, default=0.0
        Fraction of Adam's steps without the KL term, and of the following steps in which its weight rises to one; at
        most 0.9 together.
    max_iter : int, default=2000
        Maximum number of iterations of L-BFGS, which after Adam improves the best of several starts alone.
    initial_scale : float, default=0.05
        Initial posterior standard deviations, relative to the initial spread of the means.
    n_restarts : int, default=1
        Number of random starts; the one with the highest bound is kept. Where the noise depends on the inputs, another
        one may predict better.
    predictive : {"quadrature", "moment", "mc"}, default="quadrature"
        Distribution of the target given the Gaussian outputs: a mixture over the nodes of a Gauss-Hermite rule for the
        log noise variance, exact in the limit; one Gaussian with the same two moments, as published; or a mixture over
        draws of the outputs.
    n_threads : int, optional
        By default OpenMP's number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the starts and of the batches.
    verbose : int, default=0
        1 reports stages on standard error.

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
    ``predict(return_std=True)`` and `predict_parts` give the moments of eq. 9 for any `predictive`, with
    the noise variance E exp(l) = exp(E l + Σ_ll / 2) for heteroscedastic noise. `predict_distribution` and what follows
    from it (intervals, quantiles, densities) give those of its components, 20 nodes for ``"quadrature"``: the same mean
    for ``"quadrature"`` and ``"moment"``, and the same standard deviation for ``"moment"``. Where Σ_ll is large, this
    expectation is dominated by a tail that 20 nodes, or any number of draws, miss: far from the data the distribution's
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

    def __init__(
        self,
        hidden_layer_sizes: Any = (50,),
        activation: str = "relu",
        noise: str = "heteroscedastic",
        covariance: str = "full",
        kernel: str = "exact",
        skip_connections: bool = False,
        prior: Any = "empirical_bayes",
        inference: str = "dvi",
        n_draws: int = 10,
        optimizer: str = "adam",
        n_steps: int | None = None,
        learning_rate: float = 0.01,
        batch_size: int | None = BATCH_SIZE,
        kl_warmup: float = 0.0,
        kl_ramp: float = 0.0,
        max_iter: int = 2000,
        initial_scale: float = 0.05,
        n_restarts: int = 1,
        predictive: str = "quadrature",
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.noise = noise
        self.covariance = covariance
        self.kernel = kernel
        self.skip_connections = skip_connections
        self.prior = prior
        self.inference = inference
        self.n_draws = n_draws
        self.optimizer = optimizer
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.kl_warmup = kl_warmup
        self.kl_ramp = kl_ramp
        self.max_iter = max_iter
        self.initial_scale = initial_scale
        self.n_restarts = n_restarts
        self.predictive = predictive
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        as_choice(self.predictive, "predictive", REGRESSOR_PREDICTIVES)

    def _n_columns(self) -> int:
        components = N_DRAWS if self.predictive == "mc" else N_NODES
        return self._n_encoded() + len(self.posteriors_) * (8 + 8 * components)

    # --- prediction

    def _output_moments(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Return moments of f and of the output l that gives the noise variance, constant for homoscedastic noise."""
        moments = super()._output_moments(rows)
        if self.noise != "homoscedastic":
            return moments
        log_noise = [np.full((len(rows), 1), p.log_noise) for p in self.posteriors_]
        return [
            (np.hstack([mean, level]), np.pad(covariance, ((0, 0), (0, 1), (0, 1))))
            for (mean, covariance), level in zip(moments, log_noise, strict=True)
        ]

    def _variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        mean, epistemic, aleatoric = (np.empty((len(x), len(self.posteriors_))) for _ in range(3))
        with single_blas_thread():
            for rows in self._blocks(x):
                for k, (m, s) in enumerate(self._output_moments(x[rows])):
                    mean[rows, k], epistemic[rows, k] = m[:, 0], s[:, 0, 0]
                    aleatoric[rows, k] = self._noise_of_outputs(m, s)
        return mean, epistemic, aleatoric

    def _target_components(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
        components = {
            "quadrature": self._quadrature_components,
            "moment": self._moment_components,
            "mc": self._drawn_components,
        }[self.predictive]
        return [components(mean, covariance) for mean, covariance in self._output_moments(rows)]

    def _moment_components(self, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """One Gaussian with the target's moments (eq. 9)."""
        variance = covariance[:, 0, 0] + self._noise_of_outputs(mean, covariance)
        return np.ones(1), mean[:, :1], variance[:, None]

    def _quadrature_components(
        self, mean: FloatArray, covariance: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mix over Gauss-Hermite nodes of l; y | l is Gaussian about E m + c (l − E l), c = Σ_ml / Σ_ll."""
        nodes, weights = log_noise_nodes(mean, covariance)
        s_ml, s_ll = covariance[:, 0, 1], covariance[:, 1, 1]
        slope = np.divide(s_ml, s_ll, out=np.zeros_like(s_ml), where=s_ll > 0)
        means = mean[:, :1] + slope[:, None] * (nodes - mean[:, 1:])
        rest = np.maximum(covariance[:, 0, 0] - slope * s_ml, 0.0)
        return weights, means, rest[:, None] + self._noise_variances(nodes)

    def _drawn_components(self, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mix over draws of the outputs, from the same standard normal draws for every row."""
        draws = draw_outputs(mean, covariance, np.random.default_rng(0).standard_normal((N_DRAWS, 2)))
        return np.full(N_DRAWS, 1 / N_DRAWS), draws[0], self._noise_variances(draws[1])


class DVIClassifier(NetworkClassifier, DeterministicModel):
    """Bayesian neural network for classes, with Gaussian weights, trained by deterministic variational inference (DVI).

    Means and covariances of the logits are propagated in closed form. The expected log-likelihood of the softmax is
    replaced by a tight lower bound (Knowles and Minka 2011): the published second-order expansion (Wu et al. 2019,
    appendix B.4) rewards large variances of logits that are far apart, and training exploits that; it is available only
    from `DeterministicNetwork` with ``likelihood="classification"``. The cost grows with the square of the number of
    classes: with 50 units, thirty classes take 0.03 to 0.05 ms per row and step, a hundred 0.2 to 0.3 ms, more where
    the logits' variances are large.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(50,)
        Units of each hidden layer.
    activation : {"relu", "heaviside"}, default="relu"
        Heaviside units have a gradient only through their moments: ``inference="dvi"`` only.
    covariance : {"full", "diagonal"}, default="full"
        Of the activations. ``"diagonal"`` (dDVI) is cheaper for two or more hidden layers, and less exact.
    kernel : {"exact", "paper", "fast"}, default="exact"
        Covariance of two units: exact up to rounding, the published approximation, or accurate to six digits.
    skip_connections : bool, default=False
        Add the pre-activations of a hidden layer to those of the next one where both have the same width; at least one
        such pair is required.
    prior : "empirical_bayes", EmpiricalBayes or float, default="empirical_bayes"
        Prior variance of the weights: estimated for each weight matrix and bias vector, under the paper's hyperprior or
        another one, or one fixed number.
    inference : {"dvi", "mcvi", "rmcvi", "map"}, default="dvi"
        The deterministic bound, or a baseline: the bound estimated from draws of weights (``"mcvi"``) or of
        pre-activations (``"rmcvi"``), or the posterior mode (``"map"``).
    n_draws : int, default=10
        Draws per step for ``"mcvi"`` and ``"rmcvi"``.
    optimizer : {"adam", "adam+lbfgs", "lbfgs"}, default="adam"
        Adam on batches of shuffled rows. L-BFGS, on all rows, converges to an optimum of a deterministic bound; that
        improves predictions where there is almost no noise, and harms them where the noise depends on the inputs.
        ``"lbfgs"`` alone uses neither batches nor the warm-up of the KL term.
    n_steps : int, optional
        Steps of Adam: by default 3000, or as many as 100 passes over the rows take if that is more. On small data sets
        the bound then still rises: 10 000 steps gained 0.2 nats per held-out row of simulated buildings, which have
        almost no noise, under empirical Bayes and with a fixed prior; on four measured data sets they gained nothing or
        lost.
    learning_rate : float, default=0.01
        Initial step size of Adam; it falls to zero along half a cosine.
    batch_size : int or None, default=100
        Rows per step of Adam; None for all of them.
    kl_warmup, kl_ramp : float, default=0.0
        Fraction of Adam's steps without the KL term, and of the following steps in which its weight rises to one; at
        most 0.9 together.
    max_iter : int, default=2000
        Maximum number of iterations of L-BFGS, which after Adam improves the best of several starts alone.
    initial_scale : float, default=0.05
        Initial posterior standard deviations, relative to the initial spread of the means.
    n_restarts : int, default=1
        Number of random starts; the one with the highest bound is kept. Where the noise depends on the inputs, another
        one may predict better.
    predictive : {"qmc", "delta"}, default="qmc"
        How expectations of the softmax over the logits' Gaussian are computed: by quasi-random points, the same for all
        rows (for two classes by quadrature over their log-odds), or to second order in the covariance (eq. 23), which
        is scaled down where probabilities would be negative.
    n_threads : int, optional
        By default OpenMP's number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the starts and of the batches.
    verbose : int, default=0
        1 reports stages on standard error.

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
    >>> from pydirect import DVIClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DVIClassifier(hidden_layer_sizes=(20,)).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (50,),
        activation: str = "relu",
        covariance: str = "full",
        kernel: str = "exact",
        skip_connections: bool = False,
        prior: Any = "empirical_bayes",
        inference: str = "dvi",
        n_draws: int = 10,
        optimizer: str = "adam",
        n_steps: int | None = None,
        learning_rate: float = 0.01,
        batch_size: int | None = BATCH_SIZE,
        kl_warmup: float = 0.0,
        kl_ramp: float = 0.0,
        max_iter: int = 2000,
        initial_scale: float = 0.05,
        n_restarts: int = 1,
        predictive: str = "qmc",
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.covariance = covariance
        self.kernel = kernel
        self.skip_connections = skip_connections
        self.prior = prior
        self.inference = inference
        self.n_draws = n_draws
        self.optimizer = optimizer
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.kl_warmup = kl_warmup
        self.kl_ramp = kl_ramp
        self.max_iter = max_iter
        self.initial_scale = initial_scale
        self.n_restarts = n_restarts
        self.predictive = predictive
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        as_choice(self.predictive, "predictive", CLASSIFIER_PREDICTIVES)

    def _n_columns(self) -> int:
        n_classes = len(self.classes_)
        points = 0 if self.predictive == "delta" else 4 * N_POINTS * (n_classes if n_classes > 2 else 1)
        return self._n_encoded() + 4 * n_classes**2 + points

    def _network(self, n_inputs: int, n_outputs: int) -> DeterministicNetwork:
        return self._network_with(n_inputs, n_outputs, "tilted_classification")

    def _log_probabilities(self, x: FloatArray) -> FloatArray:
        mean, covariance = self._output_moments(x)[0]
        if self.predictive == "delta":
            return delta_log_probabilities(mean, covariance)
        if len(self.classes_) == 2:
            odds = predictive_log_odds(*log_odds_moments(mean, covariance))
            return log_expit(np.stack([-odds, odds], axis=1))
        logits = draw_outputs(mean, covariance, normal_points(N_POINTS, mean.shape[1]))
        return log_mean_softmax(logits, classes=0, draws=2).T
