"""Description shared by Bayesian networks with independent weights: layers, parameters, likelihood and prior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
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
)
from pydirect.networks.inference import Inference
from pydirect.networks.prior import EmpiricalBayes, as_network_prior

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
    """Base of Bayesian networks whose weights are independent, each with a mean and a standard deviation.

    The parameters are one vector θ: the means of all weights, their log standard deviations, and, for homoscedastic
    noise, a log noise variance per target. Weights are ordered by layer: the matrix (n_in, n_out) row by row, then the
    biases.

    - `hidden_layer_sizes`: units of each hidden layer, first to last. Kept as a tuple.
    - `n_targets`: number of targets of a regression, or of classes.
    - `likelihood`: ``"heteroscedastic"``, ``"homoscedastic"``, ``"softplus"``, ``"classification"`` or
      ``"tilted_classification"``. Regression: the outputs are the targets' means, followed, except for
      ``"homoscedastic"``, by one value l per target that gives the noise variance exp l, or log(1 + exp l) for
      ``"softplus"``. Targets are independent given the outputs.
    - `skip`: add the pre-activations of a hidden layer to those of the next one where both have the same width
      (appendix C.1); at least one such pair is required.
    - `prior`: numbers are fixed prior variances, from 1e-100 to 1e100: one for all weights, or one for the matrix and
      one for the biases of each layer in turn.
    - `n_parameters`: length of θ.
    - `n_outputs`: number of units of the output layer.
    - `inferences`: ways to find the expected log-likelihood, the default first.
    """

    inferences: ClassVar[tuple[Inference, ...]]

    n_inputs: int
    hidden_layer_sizes: Any
    n_targets: int = 1
    likelihood: str = "heteroscedastic"
    skip: bool = field(default=False, kw_only=True)
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
        """Return one of `inferences` by its name.

        Raises ValueError when there is none, or it has no gradient for this network.
        """
        as_choice(name, "inference", tuple(each.name for each in self.inferences))
        return next(each for each in self.inferences if each.name == name)

    @property
    def activation(self) -> str:
        """Activation function of the hidden units."""
        return "relu"

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
        """Return views into θ, layer by layer.

        `theta`, (n_parameters,).

        Parameters
        ----------
        theta : ndarray of shape (n_parameters,)
            Parameters of the posterior.

        Returns
        -------
        list of LayerParameters
            Views.
        """
        views, first, n = [], 0, self.n_weights
        for n_in, n_out in self.layers:
            matrix, biases = slice(first, first + n_in * n_out), slice(first + n_in * n_out, first + (n_in + 1) * n_out)
            views.append(
                LayerParameters(
                    theta[:n][matrix].reshape(n_in, n_out),
                    theta[:n][biases],
                    theta[n : 2 * n][matrix].reshape(n_in, n_out),
                    theta[n : 2 * n][biases],
                )
            )
            first = biases.stop
        return views

    def initial_parameters(self, rng: np.random.Generator, *, std_ratio: float = 0.05) -> FloatArray:
        """Draw initial parameters: means from N(0, 1/n_in), standard deviations std_ratio / √n_in.

        Activations are then of order one. The means of hidden biases have a spread of their own, so that the hinges of
        the first layer are spread over the data; the log noise variance is nearly constant.

        `std_ratio`: small values find better optima than 1 does. Returns an array (n_parameters,).

        Parameters
        ----------
        rng : Generator
            Source of the random numbers.
        std_ratio : float, default=0.05
            Standard deviations relative to those of the means.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Parameters.
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
        """Prior variance of each set of weights: matrix and biases of each layer in turn.

        `theta`, (n_parameters,): with log deviations of −inf, those of a point estimate. Returns an array (2
        n_layers,).

        Parameters
        ----------
        theta : array_like of shape (n_parameters,)
            Parameters of the posterior.

        Returns
        -------
        ndarray of shape (2 n_layers,)
            Variances.
        """
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
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def as_theta(self, theta: ArrayLike) -> FloatArray:
        """Return θ as an array of n_parameters float64 numbers; infinities and NaN are allowed.

        Parameters
        ----------
        theta : array_like of shape (n_parameters,)
            Parameters of the posterior.

        Returns
        -------
        ndarray of shape (n_parameters,)
            Parameters.
        """
        return as_float_array_unbounded(theta, "theta", (self.n_parameters,))

    def rows(self, x: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> NetworkRows:
        """Validate data.

        `x`, (n_rows, n_inputs). `y`, (n_rows,) or (n_rows, n_targets). `sample_weight`, (n_rows,).

        Parameters
        ----------
        x : array_like of shape (n_rows, n_inputs)
            Rows of inputs.
        y : array_like of shape (n_rows,) or (n_rows, n_targets)
            Targets.
        sample_weight : array_like of shape (n_rows,) or None
            How many times each row counts.

        Returns
        -------
        NetworkRows
            The data.
        """
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
