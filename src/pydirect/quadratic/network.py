"""Bayesian networks with quadratic activations, exactly (Evans & Nair 2018, section 3.2 and appendix D).

``f(x) = Σ_j v_j a_j(x)²``: every hidden unit squares a weighted sum of the layer below, and every layer has one more
input, fixed to one. All weights are discrete and independent under q, so that the expected squared error

    R = Σ_l ω_l E_q (y_l − f(x_l))²

is a polynomial in their moments, which the compiled engines evaluate with its gradient, exactly up to rounding:

    ELBO = −(n/2) log 2π − (n/2) E log σ² − ½ R E σ⁻² − KL(weights) − KL(σ²).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from scipy.special import softmax

from pydirect import _core
from pydirect._validation import FloatArray, as_float_array, as_float_array_unbounded, short_repr
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.distributions.categorical import FactorizedCategorical, as_levels, pad_levels
from pydirect.distributions.noise import NoiseGrid, NoisePosterior
from pydirect.persistence.schema import OneOf, Positive, Shape
from pydirect.quadratic.engines import NETWORK_ENGINES, NetworkShape, make_engine


class QuadraticNetwork:
    """ELBO of a quadratic network on given data, with levels and priors of its weights and a grid of noise levels."""

    def __init__(
        self,
        shape: NetworkShape,
        engine: Any,
        n_samples: float,
        levels: FloatArray,
        log_prior: FloatArray,
        noise: NoiseGrid,
        n_threads: int = 1,
    ) -> None:
        self.shape, self.engine, self.n_samples, self.n_threads = shape, engine, n_samples, n_threads
        self.levels = levels = as_levels(levels, shape.n_weights)
        rows = 1 if np.shape(log_prior)[:1] == (1,) else shape.n_weights
        self.log_prior = log_prior = as_float_array_unbounded(log_prior, "log_prior", (rows, levels.shape[1]))
        self.noise = noise
        self._moments = _core.NetworkMoments(*shape.key, *pad_levels(levels, log_prior), n_threads)
        self._slopes = np.empty(_core.network_table_size(*shape.key))

    @property
    def n_parameters(self) -> int:
        """Length of a vector of logits, with the levels padded to the kernels' width."""
        return self.shape.n_weights * (self.levels.shape[1] + -self.levels.shape[1] % _core.LEVEL_PADDING)

    def pad(self, table: FloatArray) -> FloatArray:
        """Pad a table (n_weights, n_levels) of logits or probabilities to the kernels' width."""
        extra = -table.shape[1] % _core.LEVEL_PADDING
        return np.pad(table, ((0, 0), (0, extra)))

    def expected_squared_error(self, q: FloatArray) -> float:
        """``R = Σ_l ω_l E_q (y_l − f(x_l))²``."""
        return float(self.engine.evaluate(self._moments.from_probabilities(self.pad(q)), None, self.n_threads))

    def squared_error_slopes(self, q: FloatArray) -> tuple[float, FloatArray]:
        """Return R and ``∂R/∂q``, up to a constant per weight; (n_weights, n_levels)."""
        table = self._moments.from_probabilities(self.pad(q))
        error = float(self.engine.evaluate(table, self._slopes, self.n_threads))
        return error, self._moments.probability_slopes(self._slopes)[:, : self.levels.shape[1]]

    def sweep(self, q: FloatArray, precision: float) -> float:
        """Set each q_k in turn to its optimum given the others, ``q_k ∝ p_k exp(−½ τ ∂R/∂q_k)``, in place; return R."""
        if self.shape.depth == 1:
            padded = self.pad(q)
            error = float(self.engine.sweep(*pad_levels(self.levels, self.log_prior), precision, padded))
            q[:] = padded[:, : q.shape[1]]
            return error
        log_prior = np.broadcast_to(self.log_prior, q.shape)
        for k in range(len(q)):
            _, slopes = self.squared_error_slopes(q)
            q[k] = softmax(log_prior[k] - 0.5 * precision * slopes[k])
        return self.expected_squared_error(q)

    def noise_posterior(self, squared_error: float) -> tuple[float, NoisePosterior]:
        """Terms of the ELBO that the noise enters at its best q_σ for a given R, and that posterior."""
        q_noise, share = self.noise.given(squared_error, self.n_samples)
        return float(share), self.noise.posterior(q_noise)

    def elbo(self, q: FloatArray, q_noise: FloatArray) -> float:
        """ELBO of a factorised posterior, term by term, for q (n_weights, n_levels) and q_noise (n_noise_levels,)."""
        likelihood = self.noise.share(q_noise, self.expected_squared_error(q), self.n_samples)
        return float(likelihood - FactorizedCategorical(self.levels, q).kl(self.log_prior))

    def elbo_and_gradient(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """ELBO at the best q_σ, and its gradient in the logits of the weights, (n_parameters,)."""
        table = self._moments.from_logits(logits.reshape(self.shape.n_weights, -1))
        error = float(self.engine.evaluate(table, self._slopes, self.n_threads))
        fit, noise = self.noise_posterior(error)
        gradient = self._moments.logit_gradient(self._slopes, 0.5 * noise.precision)
        return fit - float(self._moments.divergence.sum()), np.negative(gradient, out=gradient).ravel()


@dataclass
class NetworkPosterior(MeanFieldPosterior):
    """A fitted posterior of a quadratic network's weights and of the noise."""

    shape: NetworkShape = field(kw_only=True)
    prior_scale: Annotated[FloatArray, Shape("n_layers"), Positive] = field(kw_only=True)
    engine: Annotated[str, OneOf(*NETWORK_ENGINES)] = field(kw_only=True)

    __repr__ = short_repr

    @cached_property
    def _moments(self) -> FloatArray:
        shape, (levels, log_prior) = self.shape, pad_levels(self.weights.levels, self.log_prior)
        stage = _core.NetworkMoments(*shape.key, levels, log_prior, 1)
        extra = levels.shape[1] - self.q.shape[1]
        return stage.from_probabilities(np.pad(self.q, ((0, 0), (0, extra))))

    @cached_property
    def _predictor(self) -> Any:
        x, y = np.zeros((1, self.shape.n_inputs)), np.zeros(1)
        return make_engine("datum" if self.shape.depth <= 2 else "monomial", self.shape, x, y)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # compiled parts are made again

    def latent_moments(self, x: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Exact mean and variance of f at rows of inputs; (n_rows,) each."""
        x = as_float_array(x, "x", (len(x), self.shape.n_inputs))
        mean, variance = np.empty(len(x)), np.empty(len(x))
        self._predictor.predict(self._moments, x, mean, variance, n_threads)
        return mean, np.maximum(variance, 0.0, out=variance)

    def latent_mean(self, x: FloatArray, n_threads: int = 1) -> FloatArray:
        """Exact mean of f at rows of inputs; (n_rows,)."""
        x = as_float_array(x, "x", (len(x), self.shape.n_inputs))
        mean = np.empty(len(x))
        self._predictor.predict(self._moments, x, mean, None, n_threads)
        return mean

    def latent_cumulant(self, x: FloatArray, order: int) -> FloatArray:
        """Mean or variance of f, order 1 or 2; (n_rows,)."""
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2 for a network, got {order}")
        return self.latent_moments(x)[order - 1]

    def sample_functions(self, x: FloatArray, weights: FloatArray) -> FloatArray:
        """Evaluate the networks of sampled weights; (n_rows, n_samples)."""
        return self.shape.forward(weights, x).T

    def check(self) -> None:
        """Raise unless the posterior is of the network's weights."""
        if self.shape.n_weights != self.weights.n_weights or len(self.prior_scale) != self.shape.depth + 1:
            raise ValueError("posteriors are not of the network's shape")
