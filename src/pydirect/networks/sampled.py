"""Bayesian networks whose weights have normal, Laplace, logistic or radial laws (Nazarovs et al., UAI 2021).

Every weight is w = M + σ ξ with ξ of a standardised law, so that σ is its standard deviation for any law. Hidden layers
are sampled; the output layer's weights are integrated over in closed form where the likelihood allows it (section 4.2);
the divergence from the prior comes from moments of ξ, exact or estimated from draws that are not needed for its
gradient (section 3). Shapes, parameters, likelihoods and training are shared with `pydirect.networks.deterministic`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import FloatArray, as_choice, as_count, as_flag
from pydirect.monte_carlo.divergence import MODES, InadmissiblePairError, MonteCarloDivergence
from pydirect.monte_carlo.posteriors import PosteriorFamily, as_seed
from pydirect.networks.base import (
    EmpiricalBayes,
    Evaluation,
    Inference,
    TrainedNetwork,
    VariationalNetwork,
    moments_of_draws,
)
from pydirect.persistence.schema import As

POSTERIORS = ("normal", "laplace", "logistic", "radial")
SAMPLED_LIKELIHOODS = ("heteroscedastic", "homoscedastic", "softplus", "classification")
# Number of draws for the moments of outputs.
MOMENT_DRAWS = 1000
# Entropy of a standard normal variable.
NORMAL_ENTROPY = 0.5 * np.log(2.0 * np.pi * np.e)


@dataclass(frozen=True)
class SampledNetwork(VariationalNetwork):
    """Network of independent weights M + σ ξ whose bound is estimated from draws.

    Other parameters are those of `VariationalNetwork`. Log standard deviations in θ are those of the weights, for every
    law. Laws are those of `pydirect.monte_carlo` on the whole real line with a finite variance: weights of a network
    need either sign, and the outputs of a layer a variance.

    Parameters
    ----------
    n_inputs : int
        Number of inputs.
    hidden_layer_sizes : sequence of int
        Numbers of hidden units, layer by layer.
    n_targets : int, default=1
        Number of targets.
    likelihood : str, default="heteroscedastic"
        Likelihood of the targets.
    posterior : {"normal", "laplace", "logistic", "radial"}, default="normal"
        Law of ξ. Radial weights are drawn together, a matrix or the biases of a layer at a time: a uniform
        direction and one normal length.
    weight_prior : tuple of a str and float, default=()
        Prior of every weight, in place of ``prior``: a name and its parameters, as in `pydirect.monte_carlo`, for
        example ``("laplace", 0.0, 1.0)``.
    kl_mode : {"exact", "direct", "shared", "independent", "fixed", "naive"}, default="exact"
        How the moments of ξ in the divergence are computed: exactly, or from draws (see `MonteCarloDivergence`).
        ``"fixed"``: drawn once.
    n_kl_draws : int, default=100
        Number of draws per weight in all modes but ``"exact"``.
    exact_last_layer : bool, default=True
        Integrate over the output layer's weights in closed form: for homoscedastic noise, and for normal weights
        wherever the noise is Gaussian. Elsewhere they are drawn.
    seed : int, default=0
        Of stored draws. Networks that differ only in it are equal.
    skip : bool, default=False
        Add the pre-activations of a hidden layer to those of the next one of the same width.
    prior : EmpiricalBayes, optional
        Prior of the weights.
    """

    inferences: ClassVar[tuple[str, ...]] = ("mcvi", "rmcvi", "kept")

    posterior: str = "normal"
    weight_prior: Annotated[Any, As(tuple[Hashable, ...])] = ()
    kl_mode: str = "exact"
    n_kl_draws: int = 100
    exact_last_layer: bool = True
    seed: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        as_choice(self.likelihood, "likelihood", SAMPLED_LIKELIHOODS)
        as_choice(self.posterior, "posterior", POSTERIORS)
        as_choice(self.kl_mode, "kl_mode", MODES)
        object.__setattr__(self, "n_kl_draws", as_count(self.n_kl_draws, "n_kl_draws"))
        object.__setattr__(self, "exact_last_layer", as_flag(self.exact_last_layer, "exact_last_layer"))
        object.__setattr__(self, "seed", as_seed(self.seed))
        object.__setattr__(self, "weight_prior", tuple(self.weight_prior))
        try:
            MonteCarloDivergence(self.posterior, self.weight_prior or "normal", self.kl_mode, n_samples=1)
        except InadmissiblePairError as error:
            raise InadmissiblePairError(f"posterior, prior and kl_mode must go together: {error}") from None

    @property
    def last_layer_is_exact(self) -> bool:
        """Whether the output layer's weights are integrated over in closed form."""
        gaussian = self.posterior == "normal" and self.likelihood != "classification"
        return self.exact_last_layer and (gaussian or self.likelihood == "homoscedastic")

    def inference(self, name: str) -> Inference:
        inference = super().inference(name)
        if inference.kind == "local" and self.posterior != "normal":
            raise ValueError(f"posterior must be 'normal' for draws of pre-activations, got {self.posterior!r}")
        return inference

    def negative_bound(self, theta: FloatArray, how: Evaluation) -> tuple[float, FloatArray]:
        rows, inference, kl_factor, n_draws, seed, n_threads = how
        seed = self.seed if inference.name == "kept" else seed
        value, gradient = self._compiled.sampled_objective(
            theta, *rows, 0.0, inference.kind, n_draws, seed, n_threads, self.posterior, self.last_layer_is_exact
        )
        if kl_factor == 0.0 or not np.isfinite(value):
            return value, gradient
        divergence, slope = self.kl(theta, seed, n_threads)
        value, gradient = value + kl_factor * divergence, gradient + kl_factor * slope
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return np.inf, np.zeros_like(gradient)
        return value, gradient

    def kl(self, theta: ArrayLike, seed: int | None = None, n_threads: int | None = 1) -> tuple[float, FloatArray]:
        theta = self.as_theta(theta)
        if self.weight_prior:
            return self._estimated_kl(theta, self.kl_mode, np.ones(len(self.set_sizes)), seed, n_threads)[:2]
        value, gradient = self._compiled.divergence(theta)  # the law enters by its variance and by its entropy
        value += sum(lost_entropy(self.posterior, size) for size in self.set_sizes)
        if self.kl_mode == "exact":
            return value, gradient
        # An estimate at the best prior variances, or the given ones, replaces the exact divergence from them.
        variances = self.prior_variances(theta)
        estimate = self._estimated_kl(theta, self.kl_mode, np.sqrt(variances), seed, n_threads)
        exact = self._estimated_kl(theta, "exact", np.sqrt(variances))
        value, gradient = value + estimate[0] - exact[0], gradient + estimate[1] - exact[1]
        if isinstance(self.prior, EmpiricalBayes):
            # The variances are stationary for the exact divergence alone: s² = (Σ (σ² + M²) + 2β)/(Ω + 2α + 2).
            for k, (mean, log_deviation) in enumerate(self._sets()):
                share = self.set_sizes[k] + 2.0 * self.prior.alpha + 2.0
                rise = (estimate[2][k] - exact[2][k]) / (share * variances[k])
                gradient[mean] += rise * theta[mean]
                gradient[log_deviation] += rise * np.exp(2.0 * theta[log_deviation])
        return value, gradient

    def _sets(self) -> Iterator[tuple[slice, slice]]:
        """Positions in θ of the means and of the log standard deviations of each set of weights."""
        for first, end in pairwise(accumulate(self.set_sizes, initial=0)):
            yield slice(first, end), slice(self.n_weights + first, self.n_weights + end)

    def _estimated_kl(
        self, theta: FloatArray, mode: str, deviations: FloatArray, seed: int | None = None, n_threads: int | None = 1
    ) -> tuple[float, FloatArray, list[float]]:
        """Return Σ KL of the sets of weights, each in units of its own deviation s, its gradient and that in log s."""
        value, gradient, in_units = 0.0, np.zeros_like(theta), []
        divergences = self._divergences(mode, self.seed if seed is None else as_seed(seed), n_threads)
        for divergence, deviation, (mean, log_deviation) in zip(divergences, deviations, self._sets(), strict=True):
            # ξ is not standardised in `pydirect.monte_carlo`.
            log_base = 0.5 * np.log(divergence.posterior.moment(2, divergence.group_size))
            scale = np.log(deviation) + log_base
            part, slope = divergence.value_and_grad([theta[mean] / deviation, theta[log_deviation] - scale])
            value += part
            gradient[mean], gradient[log_deviation] = slope[0] / deviation, slope[1]
            in_units.append(-float(gradient[mean] @ theta[mean] + slope[1].sum()))
        return value, gradient, in_units

    def _divergences(self, mode: str, seed: int, n_threads: int | None) -> list[MonteCarloDivergence]:
        """Return the divergence of each set of weights from the named prior or from N(0, 1), with draws of a seed.

        Those that are kept, or have none, are made once.
        """
        made: dict[str, list[MonteCarloDivergence]] = self.__dict__.setdefault("_made", {})
        if mode in made:
            return made[mode]
        once = mode in ("exact", "fixed")
        seed, n_threads = (self.seed, 1) if once else (seed, n_threads)
        prior, found = self.weight_prior or ("normal", 0.0, 1.0), []
        for k, size in enumerate(self.set_sizes):
            own = int(np.random.SeedSequence([seed, k]).generate_state(1, np.uint64)[0])
            options: dict[str, Any] = {"parameterization": "log", "seed": own, "n_threads": n_threads}
            found.append(MonteCarloDivergence(self.posterior, prior, mode, self.n_kl_draws, size, **options))
        if once:
            made[mode] = found
        return found

    @property
    def set_sizes(self) -> list[int]:
        """Number of weights in the matrix and of biases of each layer in turn."""
        return [size for n_in, n_out in self.layers for size in (n_in * n_out, n_out)]

    def standardised_draws(self, n_draws: int, seed: int) -> FloatArray:
        """Return the standardised draws ξ of all weights, (n_draws, n_weights), that objectives of this seed use."""
        return self._compiled.standardised_draws(self.posterior, as_seed(seed), as_count(n_draws, "n_draws"))


def lost_entropy(law: str, size: int) -> float:
    """Entropy of `size` standard normal variables minus that of a set of `size` standardised ξ."""
    family = PosteriorFamily(law)
    entropy = family.base_entropy(size) - 0.5 * size * np.log(family.moment(2, size))
    return float(size * NORMAL_ENTROPY - entropy)


class SampledPosterior(TrainedNetwork):
    """Trained `SampledNetwork`, whose moments and bound are estimated from draws."""

    network: SampledNetwork

    def moments(self, x: FloatArray, n_threads: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean (n_rows, n_outputs) and covariance (n_rows, n_outputs, n_outputs) of `MOMENT_DRAWS` networks."""
        return moments_of_draws(self.forward(self.sample_weights(MOMENT_DRAWS, np.random.default_rng(0)), x))

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw all weights, (n_samples, n_weights)."""
        return self._drawn(n_samples, int(rng.integers(2**63)))

    def kept_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Return what `sample_weights` does, (n_samples, n_weights), stored until other draws are asked for."""
        asked = n_samples, int(rng.integers(2**63))
        kept: tuple[tuple[int, int], FloatArray] | None = self.__dict__.get("_kept")
        if kept is None or kept[0] != asked:
            kept = self.__dict__["_kept"] = asked, self._drawn(*asked)
        return kept[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def _drawn(self, n_samples: int, seed: int) -> FloatArray:
        mean, sd = self.theta[self.network.means], np.exp(self.theta[self.network.log_deviations])
        return mean + sd * self.network.standardised_draws(n_samples, seed)
