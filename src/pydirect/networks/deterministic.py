"""Deterministic variational inference for Bayesian networks (Wu et al., ICLR 2019).

Every weight has its own Gaussian, q(w) = N(M, σ²). Mean and covariance of the pre-activations are propagated from layer
to layer in closed form, and with them the expected log-likelihood (ELL), so that the objective

    F(θ) = (kl_weight / N) KL(q ‖ p) − mean over rows of E_q log p(y | x, w)

and its gradient are deterministic functions of the parameters θ, which the compiled module evaluates in one call. The
Monte Carlo estimates that it replaces, and the point estimate, are other `inferences` of the same network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array
from pydirect.networks.base import ACTIVATIONS, Evaluation, Inference, TrainedNetwork, VariationalNetwork

COVARIANCES = ("full", "diagonal")
# Of two units: by quadrature to 1e-11, as Wu et al. approximate it, or by fewer nodes, to 2e-7.
KERNELS = ("exact", "paper", "fast")


@dataclass(frozen=True)
class DeterministicNetwork(VariationalNetwork):
    """Network of Gaussian weights whose moments are propagated from layer to layer (DVI).

    Other parameters are those of `VariationalNetwork`.

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
    activation : {"relu", "heaviside"}, default="relu"
        Of the hidden units.
    covariance : {"full", "diagonal"}, default="full"
        Whether covariances between the units of a layer are propagated (DVI) or dropped (dDVI).
    kernel : {"exact", "paper", "fast"}, default="exact"
        How the covariance of two units is computed: exactly, by the approximation of eq. (6), or to about 1e-7.
    skip : bool, default=False
        Add the pre-activations of a hidden layer to those of the next one of the same width.
    prior : EmpiricalBayes, optional
        Prior of the weights.

    Notes
    -----
    Classes have a softmax. Its expected logarithm is expanded to second order in the logits' covariance (eq. 21) or,
    for ``"tilted_classification"``, bounded from below: the second order vanishes between logits that are far apart,
    and training then lets their variances grow without limit.

    All computations are in double precision: single precision cannot represent the variances of nearly certain units
    and their derivatives. Rows are processed in blocks, so that memory does not grow with them: an evaluation of the
    objective takes 16 MB for two hidden layers of 128 units and 500 rows, and 3 MB for each further thread.
    """

    inferences: ClassVar[tuple[str, ...]] = ("dvi", "mcvi", "rmcvi", "map")

    activation: str = "relu"
    covariance: str = "full"
    kernel: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_choice(self.activation, "activation", ACTIVATIONS)
        as_choice(self.covariance, "covariance", COVARIANCES)
        as_choice(self.kernel, "kernel", KERNELS)

    def inference(self, name: str) -> Inference:
        inference = super().inference(name)
        if self.activation == "heaviside" and inference.kind != "moments":  # draws have no pathwise gradient
            raise ValueError(f"inference must be 'dvi' for activation='heaviside', got {name!r}")
        return inference

    def negative_bound(self, theta: FloatArray, how: Evaluation) -> tuple[float, FloatArray]:
        rows, inference, kl_factor, n_draws, seed, n_threads = how
        if inference.kind == "moments":
            return self._compiled.objective(theta, *rows, kl_factor, n_threads)
        if inference.kind == "mean":
            n_draws, seed = 1, 0
        return self._compiled.sampled_objective(theta, *rows, kl_factor, inference.kind, n_draws, seed, n_threads)

    def kl(self, theta: ArrayLike) -> tuple[float, FloatArray]:
        return self._compiled.divergence(self.as_theta(theta))

    def moments(
        self, theta: ArrayLike, x: ArrayLike, layer: int | None = None, *, n_threads: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of a layer's pre-activations, (n_rows, n_units)."""
        x = as_float_array(x, "x", ("n_rows", self.n_inputs))
        index = self.n_layers - 1 if layer is None else as_count(layer, "layer", 0)
        if index >= self.n_layers:
            raise ValueError(f"layer must be at most {self.n_layers - 1}, got {layer}")
        return self._compiled.moments(self.as_theta(theta), x, index, True, resolve_n_threads(n_threads))

    @property
    def _propagation(self) -> tuple[str, bool, str]:
        return self.activation, self.covariance == "full", self.kernel


class DeterministicPosterior(TrainedNetwork):
    """Trained `DeterministicNetwork`: a factorised Gaussian posterior of its weights."""

    network: DeterministicNetwork

    def moments(self, x: FloatArray, n_threads: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean (n_rows, n_outputs) and covariance (n_rows, n_outputs, n_outputs) of the outputs."""
        return self.network.moments(self.theta, x, n_threads=n_threads)

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw all weights, (n_samples, n_weights)."""
        mean, sd = self.theta[self.network.means], np.exp(self.theta[self.network.log_deviations])
        return mean + sd * rng.standard_normal((n_samples, len(mean)))
