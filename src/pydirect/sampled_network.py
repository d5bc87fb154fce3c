"""Bayesian networks whose weights have other laws than the Gaussian, trained from draws (Nazarovs et al., UAI 2021).

Every weight is w = M + σ ξ with ξ of a standardised law, normal, Laplace, logistic or radial, so that σ is its standard
deviation whatever the law. Hidden layers are sampled; the output layer's weights are integrated over in closed form
where the likelihood allows it (section 4.2); the divergence from the prior comes from moments of ξ, exact or estimated
from draws that its gradient never has to visit (section 3). Shapes, parameters, likelihoods and training are those of
`pydirect.deterministic`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_count, as_flag
from pydirect.deterministic import DeterministicNetwork
from pydirect.deterministic_training import DeterministicPosterior

POSTERIORS = ("normal", "laplace", "logistic", "radial")
KL_MODES = ("exact", "direct", "shared", "independent", "fixed", "naive")
SAMPLED_LIKELIHOODS = ("heteroscedastic", "homoscedastic", "softplus", "classification")
# Draws of the bound of a trained network, from a seed that training's, below 2³², do not reach.
BOUND_DRAWS = 100
BOUND_SEED = 2**40
# Entropy of a standard normal number.
NORMAL_ENTROPY = 0.5 * np.log(2.0 * np.pi * np.e)


@dataclass(frozen=True)
class SampledNetwork(DeterministicNetwork):
    """A network with independent weights M + σ ξ, and how its bound is estimated.

    Parameters are those of `DeterministicNetwork`, of which ``covariance`` and ``kernel`` serve only the inherited
    moments: these take the weights as Gaussian. Log standard deviations in θ are those of the weights, for every law.

    Parameters
    ----------
    posterior : {"normal", "laplace", "logistic", "radial"}, default="normal"
        Law of ξ. Radial weights are drawn by whole sets, a matrix or the biases of a layer at a time: a direction on
        the sphere and one normal length.
    weight_prior : tuple of a str and float, default=()
        A prior of every weight that takes the place of ``prior``: a name and its parameters, as for
        `pydirect.monte_carlo`, for example ``("laplace", 0.0, 1.0)``.
    kl_mode : {"exact", "direct", "shared", "independent", "fixed", "naive"}, default="exact"
        Where the divergence's moments of ξ come from: their expectations, or draws (see `pydirect.monte_carlo`).
        ``"fixed"``: drawn once.
    n_kl_draws : int, default=100
        Draws a weight for the other modes than ``"exact"``.
    n_draws : int, default=10
        Draws of the network for `objective`, which keeps them.
    exact_last_layer : bool, default=True
        Integrate over the output layer's weights in closed form: for homoscedastic noise, and for normal weights
        wherever the noise is Gaussian. Elsewhere they are drawn.
    seed : int, default=0
        Of draws that are kept. Networks that differ in nothing else are equal.
    """

    posterior: str = "normal"
    weight_prior: Any = ()
    kl_mode: str = "exact"
    n_kl_draws: int = 100
    n_draws: int = 10
    exact_last_layer: bool = True
    seed: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        as_choice(self.likelihood, "likelihood", SAMPLED_LIKELIHOODS)
        as_choice(self.activation, "activation", ("relu",))
        as_choice(self.posterior, "posterior", POSTERIORS)
        as_choice(self.kl_mode, "kl_mode", KL_MODES)
        for name in ("n_kl_draws", "n_draws"):
            object.__setattr__(self, name, as_count(getattr(self, name), name))
        object.__setattr__(self, "exact_last_layer", as_flag(self.exact_last_layer, "exact_last_layer"))
        object.__setattr__(self, "seed", as_count(self.seed, "seed", 0) % 2**64)
        object.__setattr__(self, "weight_prior", tuple(self.weight_prior))

    @property
    def last_layer_is_exact(self) -> bool:
        """Whether the expectation over the output layer's weights is taken in closed form."""
        gaussian = self.posterior == "normal" and self.likelihood != "classification"
        return self.exact_last_layer and (gaussian or self.likelihood == "homoscedastic")

    # ----------------------------------------------------------------------------------------------------- objectives

    def objective(
        self,
        theta: ArrayLike,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        kl_weight: float = 1.0,
        n_total: float | None = None,
        n_threads: int | None = None,
    ) -> tuple[float, FloatArray]:
        """F and its gradient with draws that are kept: a deterministic function of θ.

        Parameters as for `DeterministicNetwork.objective`. Its optimum is biased towards the draws: F of fresh ones is
        higher there.
        """
        return self._estimate("shared", theta, X, y, sample_weight, kl_weight, n_total, None, None, n_threads)

    def mcvi_objective(
        self,
        theta: ArrayLike,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_draws: int = 10,
        seed: int = 0,
        sample_weight: ArrayLike | None = None,
        kl_weight: float = 1.0,
        n_total: float | None = None,
        n_threads: int | None = None,
    ) -> tuple[float, FloatArray]:
        """Estimate F and its gradient, without bias, from draws of the weights.

        Parameters as for `DeterministicNetwork.mcvi_objective`.
        """
        return self._estimate("shared", theta, X, y, sample_weight, kl_weight, n_total, n_draws, seed, n_threads)

    def rmcvi_objective(
        self,
        theta: ArrayLike,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_draws: int = 10,
        seed: int = 0,
        sample_weight: ArrayLike | None = None,
        kl_weight: float = 1.0,
        n_total: float | None = None,
        n_threads: int | None = None,
    ) -> tuple[float, FloatArray]:
        """Estimate F from draws of every row's own pre-activations: normal weights only.

        Parameters as for `DeterministicNetwork.mcvi_objective`.
        """
        if self.posterior != "normal":
            raise ValueError(f"posterior must be 'normal' for draws of pre-activations, got {self.posterior!r}")
        return self._estimate("local", theta, X, y, sample_weight, kl_weight, n_total, n_draws, seed, n_threads)

    def _estimate(
        self,
        kind: str,
        theta: ArrayLike,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        kl_weight: float,
        n_total: float | None,
        n_draws: int | None,
        seed: int | None,
        n_threads: int | None,
    ) -> tuple[float, FloatArray]:
        """Without a number of draws and a seed, by those that the network keeps."""
        theta, (x, targets, weight, total, factor) = self._arguments(theta, X, y, sample_weight, kl_weight, n_total)
        draws = self.n_draws if n_draws is None else as_count(n_draws, "n_draws")
        seed = self.seed if seed is None else as_count(seed, "seed", 0) % 2**64
        value, gradient = self._compiled.sampled_objective(
            theta,
            x,
            targets,
            weight,
            total,
            0.0,
            kind,
            draws,
            seed,
            resolve_n_threads(n_threads),
            self.posterior,
            self.last_layer_is_exact,
        )
        if factor == 0.0 or not np.isfinite(value):
            return value, gradient
        divergence, slope = self.kl(theta, seed)
        value, gradient = value + factor * divergence, gradient + factor * slope
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return np.inf, np.zeros_like(gradient)
        return value, gradient

    def kl(self, theta: ArrayLike, seed: int | None = None) -> tuple[float, FloatArray]:
        """KL(q ‖ p), exact or an unbiased estimate by `kl_mode`, and its gradient.

        Parameters
        ----------
        theta : array_like of shape (n_parameters,)
        seed : int, optional
            Of the draws, by default the network's own; ``"exact"`` has none, ``"fixed"`` has always its own.

        Returns
        -------
        float, ndarray of shape (n_parameters,)
        """
        theta = self._theta(theta)
        value, gradient = super().kl(theta)  # depends on the law through its variance and its entropy
        return value + self._lost_entropy, gradient

    @property
    def _lost_entropy(self) -> float:
        """Entropy of Gaussian weights of the same variances less that of these."""
        return sum(lost_entropy(self.posterior, size) for size in self.set_sizes)

    @property
    def set_sizes(self) -> list[int]:
        """Weights of the matrix and of the biases of each layer in turn."""
        return [size for n_in, n_out in self.layers for size in (n_in * n_out, n_out)]

    def standardised_draws(self, n_draws: int, seed: int) -> FloatArray:
        """ξ of all weights, (n_draws, n_weights): the numbers that the objectives of that seed use.

        Parameters
        ----------
        n_draws, seed : int
        """
        return self._compiled.standardised_draws(self.posterior, as_count(seed, "seed", 0) % 2**64, n_draws)


def lost_entropy(law: str, size: int) -> float:
    """Entropy of so many standard normal numbers less that of a set of ξ.

    Parameters
    ----------
    law : {"normal", "laplace", "logistic", "radial"}
    size : int

    Notes
    -----
    A radial ξ = √D r u has the density p(r) / (S r^(D−1)) at the radius r on the sphere of surface S; E log |r| =
    −(γ + log 2)/2.
    """
    if law == "radial":
        surface = np.log(2.0) + 0.5 * size * np.log(np.pi) - gammaln(0.5 * size)
        length = 0.5 * np.log(0.5 * np.pi * np.e)
        spread = -0.5 * (size - 1) * (np.euler_gamma + np.log(2.0))
        return float(size * (NORMAL_ENTROPY - 0.5 * np.log(size)) - surface - length - spread)
    entropy = {
        "normal": NORMAL_ENTROPY,
        "laplace": 1.0 + 0.5 * np.log(2.0),
        "logistic": 2.0 - np.log(np.pi / np.sqrt(3.0)),
    }[law]
    return float(size * (NORMAL_ENTROPY - entropy))


@dataclass
class SampledPosterior(DeterministicPosterior):
    """A trained `SampledNetwork`; its moments and bound are those of draws.

    Parameters as for `DeterministicPosterior`.
    """

    network: SampledNetwork

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw all weights, (n_samples, n_weights)."""
        mean, sd = self.theta[self.network.means], np.exp(self.theta[self.network.log_deviations])
        return mean + sd * self.network.standardised_draws(n_samples, int(rng.integers(2**63)))


def evaluated(
    posterior: DeterministicPosterior,
    x: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    n_threads: int | None = None,
) -> SampledPosterior:
    """Return a trained network with its bound from draws that training has not seen.

    Parameters
    ----------
    posterior : DeterministicPosterior
        Of a `SampledNetwork`.
    x, y, weight : ndarray
        The training rows.
    n_threads : int, optional
    """
    network = posterior.network
    assert isinstance(network, SampledNetwork)
    rows = {"sample_weight": weight, "n_total": float(weight.sum()), "n_threads": n_threads}
    value, _ = network.mcvi_objective(posterior.theta, x, y, n_draws=BOUND_DRAWS, seed=BOUND_SEED, **rows)
    return SampledPosterior(**{**vars(posterior), "elbo": -float(weight.sum()) * value})
