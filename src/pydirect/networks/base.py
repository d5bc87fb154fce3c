"""Description shared by Bayesian networks with independent weights: layers, parameters, likelihood and prior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from pydirect import _core
from pydirect._dense import stacked_product
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_flag,
    as_float_array,
    as_float_array_unbounded,
    as_number,
    as_sample_weight,
    as_widths,
    short_repr,
    shown,
)
from pydirect.optimize.outcome import Outcome, WithOutcome
from pydirect.persistence.schema import As, Limits, Shape


class Inference(NamedTuple):
    """How the expected log-likelihood of the evidence lower bound is found."""

    name: str
    # "moments": by moment propagation; "shared": from draws of the weights that all rows share; "local": from draws of
    # every row's own pre-activations; "mean": at the means of the weights.
    kind: str
    # Whether every training step makes new draws: the objective is then stochastic, and only Adam climbs it.
    fresh: bool = False


INFERENCES = {
    "dvi": Inference("dvi", "moments"),
    "mcvi": Inference("mcvi", "shared", fresh=True),
    "rmcvi": Inference("rmcvi", "local", fresh=True),
    "map": Inference("map", "mean"),
    "kept": Inference("kept", "shared"),  # draws of the network's own seed
}
# Mode of the hyperprior in the released program, times the number of inputs of a layer.
RELEASED_MODE = 5.0
# Squares of the KL term's gradient are finite for prior variances in this range.
PRIOR_VARIANCES = (1e-100, 1e100)


@dataclass(frozen=True)
class EmpiricalBayes:
    """Empirical-Bayes prior variance of each weight matrix and bias vector, under InverseGamma(alpha, beta).

    The optimal variance is ``s* = (Σ (σ² + M²) + 2β) / (Ω + 2α + 2)`` for Ω weights (eq. 13).

    Parameters
    ----------
    alpha : float, default=1.0
        Shape of the inverse-gamma density.
    beta : float or None, default=10.0
        None: ``5 (alpha + 1) / n_in``, which puts the mode of the hyperprior at the variance ``5 / n_in``.
    objective : {"map", "code"}, default="map"
        ``"map"``: eq. (12), the hyperprior's density at s* included. ``"code"``: the divergence at s* alone, as the
        authors' released program has it.
    """

    alpha: float = 1.0
    beta: float | None = 10.0
    objective: str = "map"

    def __post_init__(self) -> None:
        as_number(self.alpha, "alpha", above=0.0)
        if self.beta is not None:
            as_number(self.beta, "beta", above=0.0)
        as_choice(self.objective, "objective", ("map", "code"))

    @classmethod
    def released_code(cls) -> EmpiricalBayes:
        """Hyperprior and objective of the authors' released program."""
        return cls(alpha=4.4798, beta=None, objective="code")

    def key(self, n_in: int) -> tuple[str, float, float, float]:
        """Return the prior of a layer with this number of inputs, as the compiled module takes it."""
        beta = RELEASED_MODE * (self.alpha + 1.0) / n_in if self.beta is None else self.beta
        return self.objective, 1.0, float(self.alpha), float(beta)


def as_network_prior(prior: Any, n_sets: int) -> EmpiricalBayes | float | tuple[float, ...]:
    """Return a prior given as `EmpiricalBayes`, one variance, or one for each set of weights."""
    if isinstance(prior, EmpiricalBayes):
        return prior
    variances = as_float_array(prior, "prior", (n_sets,) if np.ndim(prior) else ())
    low, high = PRIOR_VARIANCES
    if not ((low <= variances) & (variances <= high)).all():
        raise ValueError(f"prior must hold variances from {low} to {high}, got {shown(prior)}")
    return float(variances) if variances.ndim == 0 else tuple(variances.tolist())


ACTIVATIONS = ("relu", "heaviside")
CLASSIFICATIONS = ("classification", "tilted_classification")
LIKELIHOODS = ("heteroscedastic", "homoscedastic", "softplus", *CLASSIFICATIONS)
# Initial log noise variance, spread of the hidden biases' means, and factor of the weights of the log noise.
FIRST_LOG_NOISE = -1.0
BIAS_SPREAD = 0.5
LOG_NOISE_SPREAD = 0.1


class LayerParameters(NamedTuple):
    """Means and log standard deviations of one layer's weights and biases, as views into θ."""

    weight_mean: FloatArray  # (n_in, n_out)
    bias_mean: FloatArray  # (n_out,)
    weight_log_std: FloatArray  # (n_in, n_out)
    bias_log_std: FloatArray  # (n_out,)


class NetworkRows(NamedTuple):
    """Validated data, as the compiled module takes them."""

    x: FloatArray  # (n_rows, n_inputs)
    y: FloatArray  # (n_rows, n_targets), or (n_rows, 1) of classes
    weight: FloatArray | None  # (n_rows,)
    total: float  # sum of the weights

    def take(self, index: NDArray[np.intp]) -> NetworkRows:
        """Return some of the rows."""
        weight = np.ones(len(self.x)) if self.weight is None else self.weight
        return NetworkRows(self.x[index], self.y[index], weight[index], float(weight[index].sum()))


class Evaluation(NamedTuple):
    """How the training objective is evaluated."""

    rows: NetworkRows
    inference: Inference
    kl_factor: float
    n_draws: int
    seed: int
    n_threads: int


@dataclass(frozen=True)
class VariationalNetwork(ABC):
    """Base of Bayesian networks of independent weights.

    θ holds the means of all weights, their log standard deviations and, for homoscedastic noise, a log noise variance
    per target; layer by layer, the matrix (n_in, n_out) row by row, then the biases.
    """

    inferences: ClassVar[tuple[str, ...]]  # names of ways to find the expected log-likelihood, the default first
    activation = "relu"  # of the hidden units, unless a subclass has others

    n_inputs: int
    hidden_layer_sizes: Annotated[Any, As(tuple[int, ...])]  # units of each hidden layer, first to last
    n_targets: int = 1  # number of targets of a regression, or of classes
    # ``"heteroscedastic"``, ``"homoscedastic"``, ``"softplus"``, ``"classification"`` or ``"tilted_classification"``.
    # Regression: the outputs are the targets' means, followed, except for ``"homoscedastic"``, by one value l per
    # target that gives the noise variance exp l, or log(1 + exp l) for ``"softplus"``. Targets are independent given
    # the outputs.
    likelihood: str = "heteroscedastic"
    # Add the pre-activations of a hidden layer to those of the next one where both have the same width (appendix C.1);
    # at least one such pair is required.
    skip: bool = field(default=False, kw_only=True)
    # Numbers are fixed prior variances, from 1e-100 to 1e100: one for all weights, or one for the matrix and one for
    # the biases of each layer in turn.
    prior: EmpiricalBayes | float | Sequence[float] = field(default_factory=EmpiricalBayes, kw_only=True)

    def __post_init__(self) -> None:
        widths = as_widths(self.hidden_layer_sizes, "hidden_layer_sizes")
        object.__setattr__(self, "hidden_layer_sizes", widths)
        object.__setattr__(self, "n_inputs", as_count(self.n_inputs, "n_inputs"))
        as_choice(self.likelihood, "likelihood", LIKELIHOODS)
        minimum = 2 if self.likelihood in CLASSIFICATIONS else 1
        object.__setattr__(self, "n_targets", as_count(self.n_targets, "n_targets", minimum))
        object.__setattr__(self, "skip", as_flag(self.skip, "skip"))
        if self.skip and not any(n_in == n_out for n_in, n_out in pairwise(widths)):
            raise ValueError(f"hidden_layer_sizes must hold two equal widths in turn for skips, got {widths}")
        object.__setattr__(self, "prior", as_network_prior(self.prior, 2 * self.n_layers))

    @abstractmethod
    def negative_bound(self, theta: FloatArray, how: Evaluation) -> tuple[float, FloatArray]:
        """Evaluate ``kl_factor`` · KL(q ‖ p) − mean of E_q log p(y | x, w) and its gradient; see `NetworkObjective`."""

    @abstractmethod
    def kl(self, theta: ArrayLike) -> tuple[float, FloatArray]:
        """KL(q ‖ p), with the log density of the prior variances under empirical Bayes, and its gradient."""

    def inference(self, name: str) -> Inference:
        """Return one of `inferences` by its name, or raise ValueError: there is none, or none with a gradient."""
        return INFERENCES[as_choice(name, "inference", self.inferences)]

    # ------------------------------------------------------------------------------------------------------ parameters

    @property
    def n_outputs(self) -> int:
        """Number of units of the output layer."""
        return self.n_targets * (2 if self.likelihood in ("heteroscedastic", "softplus") else 1)

    @property
    def n_layers(self) -> int:
        """Number of weight matrices, one more than hidden layers."""
        return len(self.hidden_layer_sizes) + 1

    @cached_property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """``(n_in, n_out)`` of each layer, the output last."""
        return tuple(pairwise((self.n_inputs, *self.hidden_layer_sizes, self.n_outputs)))

    @cached_property
    def n_weights(self) -> int:
        """Number of weights and biases."""
        return sum((n_in + 1) * n_out for n_in, n_out in self.layers)

    @cached_property
    def n_parameters(self) -> int:
        """Length of θ."""
        return self.log_noise.stop

    @property
    def means(self) -> slice:
        """Position of the means in θ."""
        return slice(0, self.n_weights)

    @property
    def log_deviations(self) -> slice:
        """Position of the log standard deviations in θ, in the order of the means."""
        return slice(self.n_weights, 2 * self.n_weights)

    @property
    def log_noise(self) -> slice:
        """Position of the log noise variances in θ, (n_targets,); empty unless the noise is homoscedastic."""
        first = 2 * self.n_weights
        return slice(first, first + (self.n_targets if self.likelihood == "homoscedastic" else 0))

    def unpack(self, theta: FloatArray) -> list[LayerParameters]:
        """Return views into θ, (n_parameters,), layer by layer."""
        views, first, n = [], 0, self.n_weights
        for n_in, n_out in self.layers:
            biases, end = first + n_in * n_out, first + (n_in + 1) * n_out
            halves = [(half[first:biases].reshape(n_in, n_out), half[biases:end]) for half in (theta[:n], theta[n:])]
            views.append(LayerParameters(*halves[0], *halves[1]))
            first = end
        return views

    def initial_parameters(self, rng: np.random.Generator, *, std_ratio: float = 0.05) -> FloatArray:
        """Draw θ: means from N(0, 1/n_in), standard deviations std_ratio / √n_in; small ones find better optima.

        Hidden biases have a spread of their own, so that the hinges of the first layer are spread over the data.
        """
        theta = np.zeros(self.n_parameters)
        ratio = as_number(std_ratio, "std_ratio", above=0.0)
        for layer, (n_in, _) in zip(self.unpack(theta), self.layers, strict=True):
            spread = 1.0 / np.sqrt(n_in)
            layer.weight_mean[:] = spread * rng.standard_normal(layer.weight_mean.shape)
            layer.bias_mean[:] = BIAS_SPREAD * rng.standard_normal(layer.bias_mean.shape)
            layer.weight_log_std[:] = layer.bias_log_std[:] = np.log(ratio * spread)
        layer.bias_mean[:] = 0.0
        if self.likelihood in ("heteroscedastic", "softplus"):
            layer.weight_mean[:, self.n_targets :] *= LOG_NOISE_SPREAD
            layer.bias_mean[self.n_targets :] = FIRST_LOG_NOISE
        theta[self.log_noise] = FIRST_LOG_NOISE
        return theta

    def prior_variances(self, theta: ArrayLike) -> FloatArray:
        """Prior variance (2 n_layers,) of each matrix and bias vector; log deviations of −inf: a point estimate."""
        return self._compiled.prior_variances(self.as_theta(theta))

    # -------------------------------------------------------------------------------------------------------- helpers

    @cached_property
    def _compiled(self) -> _core.GaussianNetwork:
        widths = [self.n_inputs, *self.hidden_layer_sizes, self.n_outputs]
        if isinstance(self.prior, EmpiricalBayes):
            priors = [self.prior.key(n_in) for n_in, _ in self.layers for _ in range(2)]
        else:
            variances = np.broadcast_to(np.asarray(self.prior, dtype=float), 2 * self.n_layers)
            priors = [("fixed", float(v), 1.0, 1.0) for v in variances]
        return _core.GaussianNetwork(widths, self.n_targets, self.likelihood, *self._propagation, self.skip, priors)

    @property
    def _propagation(self) -> tuple[str, bool, str]:
        """Activation, whether covariances are propagated, and kernel of the moments."""
        return self.activation, True, "exact"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_compiled", "_made")}

    def as_theta(self, theta: ArrayLike) -> FloatArray:
        """Return θ as an array of n_parameters float64 numbers; infinities and NaN are allowed, (n_parameters,)."""
        return as_float_array_unbounded(theta, "theta", (self.n_parameters,))

    def rows(self, x: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> NetworkRows:
        """Validate x (n_rows, n_inputs), y (n_rows,) or (n_rows, n_targets), and weights (n_rows,)."""
        x = as_float_array(x, "x", ("n_rows", self.n_inputs))
        n_columns = 1 if self.likelihood in CLASSIFICATIONS else self.n_targets
        targets = np.asarray(y)
        targets = as_float_array(targets[:, None] if targets.ndim == 1 else targets, "y", (len(x), n_columns))
        if self.likelihood in CLASSIFICATIONS:
            wrong = (targets < 0) | (targets >= self.n_targets) | (targets != np.floor(targets))
            if wrong.any():
                raise ValueError(f"y must hold integers from 0 to {self.n_targets - 1}, got {targets[wrong][0]}")
        weight = as_sample_weight(sample_weight, len(x))
        return NetworkRows(x, targets, weight, float(len(x)) if weight is None else float(weight.sum()))


_ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda a: np.maximum(a, 0.0),
    "heaviside": lambda a: (a > 0).astype(np.float64),
}
# Size of the largest array while sampled networks are evaluated.
FORWARD_NUMBERS = 2**17


@dataclass
class TrainedNetwork(WithOutcome):
    """A trained network and how its training went."""

    network: VariationalNetwork
    theta: Annotated[FloatArray, Shape("n_parameters"), Limits(np.inf)]
    # Its ELBO is of all rows together, in nats: for fixed priors a bound on the log evidence, under empirical Bayes
    # with the log density of the prior variances. The trace has it after each check of Adam and each evaluation of
    # L-BFGS; iterations are steps of Adam and iterations of L-BFGS.
    outcome: Outcome

    __repr__ = short_repr

    def check(self) -> None:
        """Raise unless the parameters are the network's."""
        if len(self.theta) != self.network.n_parameters or not np.isfinite(self.theta[self.network.means]).all():
            raise ValueError("theta must be the parameters of the network, with finite means of weights")

    @property
    def log_noise(self) -> FloatArray:
        """Log noise variances of the targets; homoscedastic only."""
        return self.theta[self.network.log_noise]

    @property
    def prior_variances(self) -> FloatArray:
        """Prior variance of the matrix and of the biases of each layer in turn."""
        return self.network.prior_variances(self.theta)

    def forward(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        """Evaluate networks with given weights (n_samples, n_weights); outputs (n_rows, n_outputs, n_samples)."""
        network = self.network
        out = np.empty((len(x), network.n_outputs, len(weights)))
        size = max(1, FORWARD_NUMBERS // max(1, len(x) * max(network.hidden_layer_sizes)))
        for begin in range(0, len(weights), size):
            some = slice(begin, begin + size)
            out[:, :, some] = np.moveaxis(self._forward_some(weights[some], x), 0, -1)
        return out

    def _forward_some(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        """Return the outputs, (n_samples, n_rows, n_outputs)."""
        network, a, first = self.network, x, 0
        for layer, (n_in, n_out) in enumerate(network.layers):
            h = _ACTIVATIONS[network.activation](a) if layer > 0 else a
            matrix = weights[:, first : first + n_in * n_out].reshape(-1, n_in, n_out)
            first += n_in * n_out
            b = stacked_product(h, matrix)
            b += weights[:, None, first : first + n_out]
            first += n_out
            skips = network.skip and n_in == n_out and 0 < layer < network.n_layers - 1
            a = a + b if skips else b
        return a


# Predictive distributions: noise, logits and class probabilities of Gaussian outputs

# Nodes of the mixture over the log noise variance.
N_NODES = 20
_NODES, _MASSES = np.polynomial.hermite_e.hermegauss(N_NODES)


def log_noise_nodes(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite nodes (n_rows, N_NODES) and weights (N_NODES,) for the second output.

    Nodes are not clipped: conditional means are linear in them, and average to the mean only over all of them.
    """
    return mean[:, 1:] + np.sqrt(covariance[:, 1, 1])[:, None] * _NODES, _MASSES / _MASSES.sum()


def log_odds_moments(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the logit of the second of two classes, (n_rows,) each."""
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    return mean[:, 1] - mean[:, 0], np.maximum(variance, 0.0)


def centred_moments(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each class's logit less the mean of all, which changes no probability; (n, n_classes)."""
    between = covariance.mean(axis=2)
    diagonal = np.einsum("nii->ni", covariance)
    variance = diagonal - 2.0 * between + between.mean(axis=1, keepdims=True)
    return mean - mean.mean(axis=1, keepdims=True), np.maximum(variance, 0.0)


def log_mean_softmax(logits: FloatArray, classes: int, draws: int) -> FloatArray:
    """Log of the softmax along one axis, averaged along another; the logits are overwritten."""
    logits -= logits.max(axis=classes, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=classes, keepdims=True))
    largest = logits.max(axis=draws, keepdims=True)
    logits -= largest
    return np.asarray(np.log(np.exp(logits, out=logits).mean(axis=draws)) + largest.squeeze(draws))


def draw_outputs(mean: FloatArray, covariance: FloatArray, z: FloatArray) -> FloatArray:
    """Return outputs (n_outputs, n_rows, n_draws) from standard normal draws z (n_draws, n_outputs)."""
    values, axes = np.linalg.eigh(covariance)  # covariances may be singular
    root = axes * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    drawn = np.swapaxes(root, 0, 1) @ z.T
    drawn += mean.T[:, :, None]
    return drawn


def normal_points(n_points: int, n_dimensions: int) -> FloatArray:
    """Quasi-random standard normal points, (n_points, n_dimensions): the same at every call."""
    points = qmc.Sobol(n_dimensions, scramble=False).random(n_points)
    return ndtri(points + 0.5 / n_points)  # in every dimension the midpoints of n_points equal intervals


def moments_of_draws(outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean (n_rows, n_outputs) and covariance (n_rows, n_outputs, n_outputs) of drawn outputs (..., n_draws)."""
    mean = outputs.mean(axis=2)
    centred = outputs - mean[:, :, None]
    return mean, np.einsum("ijs,iks->ijk", centred, centred) / outputs.shape[2]
