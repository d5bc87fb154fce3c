"""Bayesian networks with quadratic activations, exactly (Evans & Nair 2018, section 3.2 and appendix D).

``f(x) = Σ_j v_j a_j(x)²``: every hidden unit squares a weighted sum of the layer below, and every layer has one more
input, fixed to one. All weights are discrete and independent under q, so that the expected squared error

    R = Σ_l ω_l E_q (y_l − f(x_l))²

is a polynomial in their moments, which the compiled engines evaluate with its gradient, exactly up to rounding:

    ELBO = −(n/2) log 2π − (n/2) E log σ² − ½ R E σ⁻² − KL(weights) − KL(σ²).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Annotated, Any

import numpy as np
from scipy.special import softmax

from pydirect import _core
from pydirect._dense import stacked_product
from pydirect._validation import (
    FloatArray,
    as_count,
    as_flag,
    as_float_array,
    as_float_array_unbounded,
    as_sample_weight,
    as_widths,
    short_repr,
)
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.distributions.categorical import FactorizedCategorical, as_levels, pad_levels, padded
from pydirect.distributions.noise import NoiseGrid, NoisePosterior
from pydirect.features.inputs import LARGEST
from pydirect.persistence.schema import As, OneOf, Positive, Shape

# A network sees standardised inputs at half their size, so that the powers that deep networks take of them stay small.
INPUT_SCALE = 0.5
ENGINES = ("tensor", "datum", "monomial")  # see `choose_engine`
NETWORK_ENGINES = ("auto", *ENGINES, "coreset")
# No engine can evaluate more hidden layers than this, whatever their widths.
MAX_DEPTH = 6
# Number of training steps over which the cost of an engine's construction is spread.
EXPECTED_STEPS = 1000
# Limit on what engines hold beside the data.
MAX_ENGINE_BYTES = 2 * 2**30


@dataclass(frozen=True)
class NetworkShape:
    """Widths of a quadratic network, and the order of its weights: by layer, output unit, input."""

    n_inputs: int  # number of inputs, without the bias
    hidden_layer_sizes: Annotated[Any, As(tuple[int, ...])]  # at least one, first to last
    bias: bool = True  # give every layer, the output too, a last input fixed to one

    def __post_init__(self) -> None:
        widths = as_widths(self.hidden_layer_sizes, "hidden_layer_sizes")
        if len(widths) > MAX_DEPTH:
            raise ValueError(f"hidden_layer_sizes must hold at most {MAX_DEPTH} widths, got {len(widths)}")
        object.__setattr__(self, "bias", as_flag(self.bias, "bias"))
        object.__setattr__(self, "hidden_layer_sizes", widths)
        as_count(self.n_inputs, "n_inputs", 0 if self.bias else 1)

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.hidden_layer_sizes)

    @property
    def largest_input(self) -> float:
        """Magnitude at which inputs are cut off, so that no output's square overflows."""
        return float(LARGEST ** (0.5 / 2**self.depth))

    @cached_property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """``(fan_out, fan_in)`` of every layer, the output last; the bias counts as an input."""
        sizes = (self.n_inputs, *self.hidden_layer_sizes, 1)
        return tuple((fan_out, fan_in + self.bias) for fan_in, fan_out in pairwise(sizes))

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Positions of the weights of each layer."""
        ends = accumulate((fan_out * fan_in for fan_out, fan_in in self.layers), initial=0)
        return tuple(slice(a, b) for a, b in pairwise(ends))

    @property
    def n_weights(self) -> int:
        """Number of weights b."""
        return self.slices[-1].stop

    @property
    def key(self) -> tuple[int, list[int], bool]:
        """Return the shape as the compiled module takes it."""
        return self.n_inputs, list(self.hidden_layer_sizes), self.bias

    def matrices(self, weights: FloatArray) -> list[FloatArray]:
        """Split vectors of weights (..., n_weights) into a matrix (..., fan_out, fan_in) per layer."""
        return [
            weights[..., part].reshape(*weights.shape[:-1], *layer)
            for part, layer in zip(self.slices, self.layers, strict=True)
        ]

    def forward(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        """Evaluate networks of weights (n_networks, n_weights) at x (n_rows, n_inputs); (n_networks, n_rows)."""
        (output,) = deque(self.sums(weights, x), maxlen=1)
        return output[:, :, 0]

    def sums(self, weights: FloatArray, x: FloatArray) -> Iterator[FloatArray]:
        """Yield every layer's weighted sums, (n_networks, n_rows, fan_out); arguments as in `forward`."""
        state = np.broadcast_to(x, (len(weights), *x.shape))
        for matrix in self.matrices(weights):
            if self.bias:
                state = np.concatenate([state, np.ones((*state.shape[:-1], 1))], axis=-1)
            sums = stacked_product(state, matrix.transpose(0, 2, 1))
            yield sums
            state = sums**2


def make_engine(
    kind: str, shape: NetworkShape, x: FloatArray, y: FloatArray, weight: FloatArray | None = None
) -> _core.NetworkEngine:
    """Return a compiled engine that holds x (n_rows, n_inputs), y and weights (n_rows,); see `choose_engine`."""
    x = as_float_array(x, "x", (len(x), shape.n_inputs))
    y = as_float_array(y, "y", (len(x),))
    weight = as_sample_weight(weight, len(x))
    return _core.NetworkEngine(kind, *shape.key, x, y, weight)


def choose_engine(shape: NetworkShape, n_rows: int, kind: str = "auto") -> str:
    """Return the name of the engine with the fewest operations per step that fits into memory, or raise ValueError.

    ``"tensor"``: one hidden layer, from sums of products of four inputs. ``"datum"``: one or two, row by row.
    ``"monomial"``: the paper's forward pass with equal terms merged; any depth, small networks only.
    """
    depth = shape.depth
    if depth > {"tensor": 1, "datum": 2}.get(kind, depth):
        raise ValueError(f"engine must serve {depth} hidden layers, got {kind!r}")
    if kind == "monomial" or depth > 2:
        return "monomial"  # its constructor checks its size
    served = (kind,) if kind != "auto" else ("tensor", "datum") if depth == 1 else ("datum",)
    costs = {k: _cost(k, shape, n_rows) for k in served}
    best = min(served, key=lambda k: (costs[k][1] > MAX_ENGINE_BYTES, costs[k][0]))
    if costs[best][1] > MAX_ENGINE_BYTES:
        needed = " or ".join(f"{n_bytes / 2**30:.3g} GiB ({k})" for k, (_, n_bytes) in costs.items())
        raise ValueError(
            f"hidden_layer_sizes must be smaller for exact inference: {shape.hidden_layer_sizes} with "
            f"{shape.n_inputs} inputs would take {needed}, against a limit of {MAX_ENGINE_BYTES / 2**30:.3g} GiB"
        )
    return best


def engines_in_memory(kind: str, shape: NetworkShape, n_rows: int) -> int:
    """Return the number of engines of a kind that fit into memory together, at least one."""
    return 1 if kind == "monomial" else max(1, int(MAX_ENGINE_BYTES // _cost(kind, shape, n_rows)[1]))


def _cost(kind: str, shape: NetworkShape, n_rows: int) -> tuple[float, float]:
    """Return floating-point operations per step, including a share of the construction, and bytes held."""
    flops, n_bytes = _core.network_cost(kind, *shape.key, n_rows)
    if kind == "tensor":  # products of pairs of inputs with pairs of inputs, summed over the rows
        n_pairs = shape.layers[0][1] * (shape.layers[0][1] + 1) / 2
        flops += 2.0 * n_rows * n_pairs**2 / EXPECTED_STEPS
    return flops, n_bytes


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

    def expected_squared_error(self, q: FloatArray) -> float:
        """``R = Σ_l ω_l E_q (y_l − f(x_l))²``."""
        return float(self.engine.evaluate(self._moments.from_probabilities(padded(q)), None, self.n_threads))

    def squared_error_slopes(self, q: FloatArray) -> tuple[float, FloatArray]:
        """Return R and ``∂R/∂q``, up to a constant per weight; (n_weights, n_levels)."""
        table = self._moments.from_probabilities(padded(q))
        error = float(self.engine.evaluate(table, self._slopes, self.n_threads))
        return error, self._moments.probability_slopes(self._slopes)[:, : self.levels.shape[1]]

    def sweep(self, q: FloatArray, precision: float) -> float:
        """Set each q_k in turn to its optimum given the others, ``q_k ∝ p_k exp(−½ τ ∂R/∂q_k)``, in place; return R."""
        if self.shape.depth == 1:
            table = padded(q)
            error = float(self.engine.sweep(*pad_levels(self.levels, self.log_prior), precision, table))
            q[:] = table[:, : q.shape[1]]
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
        stage = _core.NetworkMoments(*self.shape.key, *pad_levels(self.weights.levels, self.log_prior), 1)
        return stage.from_probabilities(padded(self.q))

    @cached_property
    def _predictor(self) -> Any:
        x, y = np.zeros((1, self.shape.n_inputs)), np.zeros(1)
        return make_engine("datum" if self.shape.depth <= 2 else "monomial", self.shape, x, y)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # compiled parts are made again

    def latent_moments(self, x: FloatArray, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        """Exact mean and variance of f at rows of inputs; (n_rows,) each."""
        variance = np.empty(len(x))
        return self.latent_mean(x, n_threads, variance), np.maximum(variance, 0.0, out=variance)

    def latent_mean(self, x: FloatArray, n_threads: int = 1, variance: FloatArray | None = None) -> FloatArray:
        """Exact mean of f at rows of inputs; (n_rows,). The variance is written, if there is an array for it."""
        x, mean = as_float_array(x, "x", (len(x), self.shape.n_inputs)), np.empty(len(x))
        self._predictor.predict(self._moments, x, mean, variance, n_threads)
        return mean

    def sample_functions(self, x: FloatArray, weights: FloatArray) -> FloatArray:
        """Evaluate the networks of sampled weights; (n_rows, n_samples)."""
        return self.shape.forward(weights, x).T

    def check(self) -> None:
        """Raise unless the posterior is of the network's weights."""
        if self.shape.n_weights != self.weights.n_weights or len(self.prior_scale) != self.shape.depth + 1:
            raise ValueError("posteriors are not of the network's shape")
