"""Trained networks as frozen data that predicts: of moments, of stored draws, and with quadratic activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, softmax

from pydirect._dense import product
from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, short_repr
from pydirect.features.inputs import InputMap, InputRotation
from pydirect.fitted.predictor import Components, Predictor, Units
from pydirect.fitted.regression import mean_noise
from pydirect.logistic.likelihood import predictive_log_odds
from pydirect.networks.base import (
    N_NODES,
    TrainedNetwork,
    centred_moments,
    draw_outputs,
    log_mean_softmax,
    log_noise_nodes,
    log_odds_moments,
    moments_of_draws,
    normal_points,
)
from pydirect.networks.deterministic import DeterministicPosterior
from pydirect.networks.sampled import SampledPosterior
from pydirect.persistence.schema import AtLeast, Binds, Digested, Positive, Shape
from pydirect.quadratic.network import INPUT_SCALE, NetworkPosterior
from pydirect.statistics.gaussian import blocks_of

# Log noise variances of standardised targets are clipped here: their exponentials stay finite.
LARGEST_LOG_VARIANCE = 60.0
# Standardised inputs are clipped here: fourth powers of the network's outputs stay finite.
LARGEST_INPUT = 1e20
# Number of quasi-random points for several classes, a power of two.
N_POINTS = 256
# Seed of the draws that all predictions use.
PREDICTIVE_SEED = 0

Moments = list[tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class NetworkOutputs:
    """Outputs of trained networks at encoded rows of X: one network per target, or one with an output per class.

    ``n_draws`` stored draws of sampled networks give the moments of the outputs; 0 where moments are propagated. The
    log of constant noise counts as a further output.
    """

    input_map: InputMap
    posteriors: Annotated[tuple[DeterministicPosterior | SampledPosterior, ...], Shape("n_networks")]
    n_draws: Annotated[int, AtLeast(0)] = 0

    __repr__ = short_repr

    def check(self) -> None:
        """Raise unless all networks are the same, of these inputs."""
        network = self.posteriors[0].network
        like = [replace(p.network, seed=0) if isinstance(p, SampledPosterior) else p.network for p in self.posteriors]
        if network.n_inputs != max(self.input_map.n_outputs, 1) or any(own != like[0] for own in like):
            raise ValueError("posteriors are not of the network's shape")
        if any(isinstance(p, SampledPosterior) != (self.n_draws > 0) for p in self.posteriors):
            raise ValueError("n_draws must be positive for networks that are sampled, 0 for others")

    @property
    def n_networks(self) -> int:
        """Number of networks."""
        return len(self.posteriors)

    @property
    def n_inputs(self) -> int:
        """Encoded columns of X."""
        return len(self.input_map.mean)

    def inputs(self, x: FloatArray) -> FloatArray:
        """Rows standardised and clipped, (n_rows, n_network_inputs)."""
        return network_inputs(self.input_map, x)

    def moments(self, x: FloatArray) -> Moments:
        """Mean (n_rows, n_outputs) and covariance (n_rows, n_outputs, n_outputs) of every network's outputs."""
        if self.n_draws:
            found = [moments_of_draws(drawn) for drawn in self._drawn(x)]
        else:
            inputs, n_threads = self.inputs(x), resolve_n_threads()
            found = [p.moments(inputs, n_threads) for p in self.posteriors]
        means = with_log_noise(self.posteriors, [mean for mean, _ in found])
        further = [(0, len(p.log_noise)) for p in self.posteriors]
        return [(m, np.pad(s, ((0, 0), n, n))) for m, (_, s), n in zip(means, found, further, strict=True)]

    def drawn(self, x: FloatArray) -> list[FloatArray]:
        """Outputs of the stored draws of every network, (n_rows, n_outputs, n_draws)."""
        return with_log_noise(self.posteriors, self._drawn(x))

    def _drawn(self, x: FloatArray) -> list[FloatArray]:
        inputs, rng = self.inputs(x), np.random.default_rng(PREDICTIVE_SEED)
        sampled = [p for p in self.posteriors if isinstance(p, SampledPosterior)]
        return [p.forward(p.kept_weights(self.n_draws, rng), inputs) for p in sampled]

    def sampler(self, n_samples: int, rng: np.random.Generator) -> Callable[[FloatArray], list[FloatArray]]:
        """From rows to the outputs of newly sampled networks, (n_rows, n_outputs, n_samples) each."""
        draws = [p.sample_weights(n_samples, rng) for p in self.posteriors]

        def draw(x: FloatArray) -> list[FloatArray]:
            inputs = self.inputs(x)
            found = [p.forward(weights, inputs) for p, weights in zip(self.posteriors, draws, strict=True)]
            return with_log_noise(self.posteriors, found)

        return draw

    def width_of_draws(self, n_samples: int) -> int:
        """Floats per row while `n_samples` networks are evaluated."""
        network = self.posteriors[0].network
        outputs = len(self.posteriors) * network.n_outputs * n_samples
        return int(network.n_inputs + 4 * max(network.hidden_layer_sizes) + 4 * outputs)


def with_log_noise(posteriors: Sequence[TrainedNetwork], outputs: list[FloatArray]) -> list[FloatArray]:
    """Append the log noise of every network, where it is constant, to its outputs (n_rows, n_outputs, ...)."""
    return [
        np.concatenate([f, np.full_like(f[:, :1], p.log_noise[0])], axis=1) if len(p.log_noise) else f
        for p, f in zip(posteriors, outputs, strict=True)
    ]


def network_inputs(input_map: InputMap, x: FloatArray) -> FloatArray:
    """Rows of X standardised and clipped, or zeros if no column varies."""
    inputs = input_map.transform(x) if input_map.n_outputs else np.zeros((len(x), 1))
    return np.ascontiguousarray(np.clip(inputs, -LARGEST_INPUT, LARGEST_INPUT, out=inputs))


def lost_in_units(model: FittedNetworkRegressor | FittedQuadraticNetwork) -> FloatArray:
    """What the bound of standardised targets loses in y's own units, (n_outputs,)."""
    return np.asarray(model.n_samples * np.log(model.units.scale))


def by_blocks(
    model: FittedNetworkRegressor | FittedQuadraticNetwork,
    x: FloatArray,
    parts: Callable[[FloatArray], Sequence[tuple[FloatArray, ...]]],
) -> FloatArray:
    """Parts (n_parts, n_rows, n_outputs) of all rows from those of a block, a tuple per output."""
    blocks = [np.stack([np.stack(own) for own in parts(x[rows])], axis=-1) for rows in model.blocks(x)]
    return np.concatenate(blocks, axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class FittedNetworkRegressor(Predictor):
    """One network per target, whose noise variance may be another output l of the network.

    Distributions are mixtures over nodes of a quadrature of the outputs' moments, or over stored draws of the networks.
    ``mean_noise`` (n_outputs,) is the expected noise variance over the training rows, standardised.
    """

    outputs: Annotated[NetworkOutputs, Binds(n_outputs="n_networks")]
    units: Units
    n_samples: Annotated[float, Positive]
    mean_noise: Annotated[FloatArray, Shape("n_outputs"), Positive]

    elbo_units = property(lost_in_units)
    posteriors = property(attrgetter("outputs.posteriors"))

    def check(self) -> None:
        """Raise unless the networks have one target, and draws where they are wanted."""
        if self.posteriors[0].network.n_targets != 1 or "classification" in self.likelihood:
            raise ValueError("posteriors are not of networks for regression")

    @property
    def likelihood(self) -> str:
        """Name of the networks' noise."""
        return str(self.posteriors[0].network.likelihood)

    @property
    def n_columns(self) -> int:
        if self.outputs.n_draws:
            return self.outputs.width_of_draws(self.outputs.n_draws)
        return self.outputs.n_inputs + len(self.posteriors) * (8 + 8 * N_NODES)

    def with_mean_noise(self, x: FloatArray, weight: FloatArray) -> Self:
        """Return the model with the mean over rows of the expected noise variance."""
        noise = by_blocks(self, x, lambda part: [(self.noise_from_moments(*m),) for m in self.outputs.moments(part)])[0]
        return replace(self, mean_noise=np.average(noise, axis=0, weights=weight))

    # --- noise, of outputs f and l

    def noise_from_moments(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """Expected noise variance, standardised, (n_rows,)."""
        if self.likelihood == "heteroscedastic":  # eq. 9
            return np.exp(_within(mean[:, 1] + 0.5 * covariance[:, 1, 1]))
        nodes, weights = log_noise_nodes(mean, covariance)
        return np.asarray(product(self.noise_variances(nodes), weights))

    def noise_variances(self, log_noise: FloatArray) -> FloatArray:
        """Noise variance of given outputs l."""
        return np.logaddexp(0.0, log_noise) if self.likelihood == "softplus" else np.exp(_within(log_noise))

    # --- moments

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        moments = by_blocks(self, x, lambda part: [(m[:, 0], s[:, 0, 0]) for m, s in self.outputs.moments(part)])
        return moments[0], moments[1] if with_variance else None

    def variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        def parts(x: FloatArray) -> Sequence[tuple[FloatArray, ...]]:
            if self.outputs.n_draws:
                drawn = self.components(x)
                return [(means.mean(axis=1), means.var(axis=1), noise.mean(axis=1)) for _, means, noise in drawn]
            return [(m[:, 0], s[:, 0, 0], self.noise_from_moments(m, s)) for m, s in self.outputs.moments(x)]

        mean, epistemic, aleatoric = by_blocks(self, x, parts)
        return mean, epistemic, aleatoric

    # --- distributions

    def components(self, x: FloatArray) -> list[Components]:
        if self.outputs.n_draws:
            n_draws = self.outputs.n_draws
            weights = np.full(n_draws, 1.0 / n_draws)
            return [(weights, drawn[:, 0], self.noise_variances(drawn[:, 1])) for drawn in self.outputs.drawn(x)]
        return [self.quadrature_components(mean, covariance) for mean, covariance in self.outputs.moments(x)]

    def quadrature_components(self, mean: FloatArray, covariance: FloatArray) -> Components:
        """Mix over Gauss-Hermite nodes of l; y | l is Gaussian about E f + c (l − E l), c = Σ_fl / Σ_ll."""
        nodes, weights = log_noise_nodes(mean, covariance)
        s_fl, s_ll = covariance[:, 0, 1], covariance[:, 1, 1]
        slope = np.divide(s_fl, s_ll, out=np.zeros_like(s_fl), where=s_ll > 0)
        means = mean[:, :1] + slope[:, None] * (nodes - mean[:, 1:])
        rest = np.maximum(covariance[:, 0, 0] - slope * s_fl, 0.0)
        return weights, means, rest[:, None] + self.noise_variances(nodes)

    def draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        values = np.empty((len(x), len(self.posteriors), n_samples))
        draw, factor = self.outputs.sampler(n_samples, rng), self.units.calibration
        for rows in self.blocks(x, self.outputs.width_of_draws(n_samples)):
            for k, drawn in enumerate(draw(x[rows])):
                values[rows, k] = drawn[:, 0]
                if noise:
                    sd = np.sqrt(self.noise_variances(drawn[:, 1]))
                    values[rows, k] += sd * rng.standard_normal(sd.shape)
        if factor != 1.0:
            mean = self.latent_moments(x, with_variance=False)[0][:, :, None]
            values = mean + factor * (values - mean)
        return values


def _within(log_variance: FloatArray) -> FloatArray:
    """Clip log variances to where their exponentials are finite."""
    return np.clip(log_variance, -LARGEST_LOG_VARIANCE, LARGEST_LOG_VARIANCE)


@dataclass(frozen=True, eq=False, repr=False)
class FittedNetworkClassifier(Digested):
    """A network with an output per class; predictions average over moments of the logits, or stored draws."""

    outputs: NetworkOutputs
    classes: Annotated[NDArray[Any], Shape("n_classes")]
    n_samples: Annotated[float, Positive]

    def check(self) -> None:
        """Raise unless there is one network with an output per class, and draws where they are wanted."""
        network = self.posteriors[0].network
        if len(self.posteriors) != 1 or network.n_outputs != len(self.classes) or len(self.classes) < 2:
            raise ValueError("posteriors are not of a network of these classes")
        if "classification" not in network.likelihood:
            raise ValueError("the network must be one for classification")

    one_dimensional = True  # one network
    posteriors = property(attrgetter("outputs.posteriors"))

    @property
    def elbo_units(self) -> FloatArray:
        """What the bound loses in the data's own units: nothing."""
        return np.zeros(1)

    @property
    def n_columns(self) -> int:
        """Floats per row while predicting."""
        if self.outputs.n_draws:
            return self.outputs.width_of_draws(self.outputs.n_draws)
        n_classes = len(self.classes)
        return self.outputs.n_inputs + 4 * n_classes**2 + 4 * N_POINTS * (n_classes if n_classes > 2 else 1)

    def log_proba(self, x: FloatArray) -> FloatArray:
        """Log probabilities, (n_rows, n_classes)."""
        return np.concatenate([self._log_proba_of_block(x[rows]) for rows in blocks_of(len(x), self.n_columns)])

    def _log_proba_of_block(self, x: FloatArray) -> FloatArray:
        if self.outputs.n_draws:
            return log_mean_softmax(self.outputs.drawn(x)[0], classes=1, draws=2)
        mean, covariance = self.outputs.moments(x)[0]
        if len(self.classes) == 2:
            odds = predictive_log_odds(*log_odds_moments(mean, covariance))
            return np.asarray(log_expit(np.stack([-odds, odds], axis=1)))
        logits = draw_outputs(mean, covariance, normal_points(N_POINTS, mean.shape[1]))
        return log_mean_softmax(logits, classes=0, draws=2).T

    def logit(self, x: FloatArray, with_std: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and standard deviation of the log odds of two classes, (n_rows,), or of more classes' centred logits."""
        moments = log_odds_moments if len(self.classes) == 2 else centred_moments
        blocks = [moments(*self.outputs.moments(x[rows])[0]) for rows in blocks_of(len(x), self.n_columns)]
        mean, variance = (np.concatenate(part) for part in zip(*blocks, strict=True))
        return mean, np.sqrt(variance) if with_std else None

    def sample_proba(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draws of the probabilities, (n_rows, n_classes, n_samples)."""
        draw, blocks = self.outputs.sampler(n_samples, rng), blocks_of(len(x), self.outputs.width_of_draws(n_samples))
        return np.concatenate([softmax(draw(x[rows])[0], axis=1) for rows in blocks])


@dataclass(frozen=True, eq=False, repr=False)
class FittedQuadraticNetwork(Predictor):
    """One network with quadratic activations per target, of standardised columns turned to their principal axes."""

    input_map: InputMap
    rotation: InputRotation
    posteriors: Annotated[tuple[NetworkPosterior, ...], Shape("n_outputs")]
    units: Units
    n_samples: Annotated[float, Positive]

    elbo_units = property(lost_in_units)

    def check(self) -> None:
        """Raise unless all networks are of one shape, of the rotated inputs."""
        shape = self.posteriors[0].shape
        if self.rotation.matrix.shape != (self.input_map.n_outputs, shape.n_inputs):
            raise ValueError("the rotation must be from the columns to the inputs of the network")
        if any(p.shape.key != shape.key for p in self.posteriors):
            raise ValueError("posteriors are not of the network's shape")

    @property
    def n_columns(self) -> int:
        return max(fan_in + fan_out for fan_out, fan_in in self.posteriors[0].shape.layers)

    @property
    def mean_noise(self) -> FloatArray:
        """Expected noise variances, standardised, (n_outputs,)."""
        return mean_noise(self.posteriors)

    def inputs(self, x: FloatArray) -> FloatArray:
        """Inputs of the networks, (n_rows, n_network_inputs)."""
        return quadratic_inputs(self.input_map, self.rotation, self.posteriors[0].shape.largest_input, x)

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        def parts(x: FloatArray) -> Sequence[tuple[FloatArray, ...]]:
            inputs, n_threads = self.inputs(x), resolve_n_threads()
            if with_variance:
                return [p.latent_moments(inputs, n_threads) for p in self.posteriors]
            return [(p.latent_mean(inputs, n_threads),) for p in self.posteriors]

        found = by_blocks(self, x, parts)
        return found[0], found[1] if with_variance else None

    def noise_of(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        noises = [p.noise for p in self.posteriors]
        return [(noise.q, np.broadcast_to(noise.levels, (len(x), len(noise.levels)))) for noise in noises]

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        values = np.empty((len(x), len(self.posteriors), n_samples))
        weights = [p.sample_weights(n_samples, rng) for p in self.posteriors]
        for rows in self.blocks(x):
            inputs = self.inputs(x[rows])
            for k, posterior in enumerate(self.posteriors):
                values[rows, k] = posterior.sample_functions(inputs, weights[k])
        return values


def quadratic_inputs(input_map: InputMap, rotation: InputRotation, largest: float, x: FloatArray) -> FloatArray:
    """Rows of X standardised, rotated, scaled and clipped, (n_rows, n_network_inputs)."""
    inputs = INPUT_SCALE * rotation.transform(input_map.transform(x))
    return np.clip(inputs, -largest, largest, out=inputs)
