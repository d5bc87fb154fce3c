"""Deterministic variational inference for Bayesian networks (Wu et al., ICLR 2019).

Every weight has a Gaussian of its own, q(w) = N(M, σ²). Mean and covariance of the pre-activations are carried from
layer to layer in closed form, and with them the expected log-likelihood (ELL), so that the objective

    F(θ) = (kl_weight / N) KL(q ‖ p) − mean over rows of E_q log p(y | x, w)

and its gradient are deterministic functions of the parameters θ, which the compiled module evaluates in one call. The
Monte Carlo objectives that it replaces, and the point estimate, stand beside it with the same signature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_instance
from pydirect.networks.base import ACTIVATIONS, VariationalNetwork
from pydirect.networks.training import TrainedNetwork, TrainingSchedule, train_network
from pydirect.networks.unit_moments import KERNELS

COVARIANCES = ("full", "diagonal")


@dataclass(frozen=True)
class DeterministicNetwork(VariationalNetwork):
    """A network of Gaussian weights whose moments are carried from layer to layer.

    Other parameters are those of `VariationalNetwork`.

    Parameters
    ----------
    activation : {"relu", "heaviside"}, default="relu"
    covariance : {"full", "diagonal"}, default="full"
        Whether covariances between the units of a layer are carried (DVI) or dropped (dDVI).
    kernel : {"exact", "paper", "fast"}, default="exact"
        How the covariance of two units is found: exactly, by the approximation of eq. (6), or to about 1e-7.

    Notes
    -----
    Classes have a softmax, whose expected logarithm is taken to second order in the logits' covariance (eq. 21), or,
    for ``"tilted_classification"``, is bounded from below: the second order vanishes between logits that are far apart,
    and training then lets their variances grow without limit.

    All of it is in double precision: variances of certain units and their derivatives do not fit single precision.
    Rows are taken in blocks, so that memory does not grow with them: an evaluation of the objective takes 16 MB for two
    hidden layers of 128 units and 500 rows, and 3 MB for each further thread.
    """

    inferences: ClassVar[dict[str, str]] = {
        "dvi": "objective",
        "mcvi": "mcvi_objective",
        "rmcvi": "rmcvi_objective",
        "map": "map_objective",
    }

    activation: str = "relu"
    covariance: str = "full"
    kernel: str = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        as_choice(self.activation, "activation", ACTIVATIONS)
        as_choice(self.covariance, "covariance", COVARIANCES)
        as_choice(self.kernel, "kernel", KERNELS)

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
        """F and its gradient, by moment propagation.

        Parameters
        ----------
        theta : array_like of shape (n_parameters,)
        X : array_like of shape (n_rows, n_inputs)
        y : array_like of shape (n_rows,) or (n_rows, n_targets)
            Targets, or the numbers 0, 1, … of the classes.
        sample_weight : array_like of shape (n_rows,), optional
            How many times each row counts.
        kl_weight : float, default=1.0
        n_total : float, optional
            N, the data points that the rows are a batch of; by default the sum of the weights.
        n_threads : int, optional
            The result has the same bits for any number.

        Returns
        -------
        float, ndarray of shape (n_parameters,)
            Where something has overflown, infinity and a gradient of zeros.
        """
        theta, data = self._arguments(theta, X, y, sample_weight, kl_weight, n_total)
        return self._compiled.objective(theta, *data, resolve_n_threads(n_threads))

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
        """F with the ELL averaged over draws of the weights, each used for all rows, and its pathwise gradient (eq. 2).

        Parameters
        ----------
        n_draws : int, default=10
        seed : int, default=0
            The same seed gives the same draws, whatever the number of threads; steps of a training take one each.
        theta, X, y, sample_weight, kl_weight, n_total, n_threads
            As for `objective`.

        Raises
        ------
        ValueError
            For Heaviside units, which have no pathwise gradient.
        """
        return self._sampled("shared", theta, X, y, sample_weight, kl_weight, n_total, n_draws, seed, n_threads)

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
        """F with the ELL averaged over draws of every row's own pre-activations, of smaller variance (appendix E).

        Parameters as for `mcvi_objective`.
        """
        return self._sampled("local", theta, X, y, sample_weight, kl_weight, n_total, n_draws, seed, n_threads)

    def map_objective(
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
        """−(kl_weight/N) log p(M) − mean log p(y | x, M): the point estimate; the deviations have gradient zero.

        Parameters as for `objective`; ReLU units only.
        """
        return self._sampled("mean", theta, X, y, sample_weight, kl_weight, n_total, 1, 0, n_threads)

    def kl(self, theta: ArrayLike) -> tuple[float, FloatArray]:
        """KL(q ‖ p), with empirical Bayes at the best prior variances, and its gradient.

        Returns
        -------
        float, ndarray of shape (n_parameters,)
        """
        return self._compiled.divergence(self._theta(theta))

    def moments(
        self, theta: ArrayLike, X: ArrayLike, layer: int | None = None, *, n_threads: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of a layer's pre-activations.

        Parameters
        ----------
        theta : array_like of shape (n_parameters,)
        X : array_like of shape (n_rows, n_inputs)
        layer : int, optional
            0 is the first hidden layer, ``n_layers − 1``, the default, the output.
        n_threads : int, optional

        Returns
        -------
        mean : ndarray of shape (n_rows, n_units)
        covariance : ndarray of shape (n_rows, n_units, n_units)
        """
        return self._moments(theta, X, layer, True, n_threads)

    def marginals(
        self, theta: ArrayLike, X: ArrayLike, layer: int | None = None, *, n_threads: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a layer's pre-activations, both (n_rows, n_units); see `moments`."""
        return self._moments(theta, X, layer, False, n_threads)

    # -------------------------------------------------------------------------------------------------------- helpers

    @property
    def _propagation(self) -> tuple[str, bool, str]:
        return self.activation, self.covariance == "full", self.kernel

    def _sampled(
        self,
        kind: str,
        theta: ArrayLike,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        kl_weight: float,
        n_total: float | None,
        n_draws: int,
        seed: int,
        n_threads: int | None,
    ) -> tuple[float, FloatArray]:
        if self.activation != "relu":
            raise ValueError(f"activation must be 'relu' for pathwise gradients, got {self.activation!r}")
        theta, data = self._arguments(theta, X, y, sample_weight, kl_weight, n_total)
        seed = as_count(seed, "seed", 0) % 2**64
        draws = as_count(n_draws, "n_draws")
        return self._compiled.sampled_objective(theta, *data, kind, draws, seed, resolve_n_threads(n_threads))

    def _moments(
        self, theta: ArrayLike, X: ArrayLike, layer: int | None, covariance: bool, n_threads: int | None
    ) -> tuple[FloatArray, FloatArray]:
        x = as_float_array(X, "X", ("n_rows", self.n_inputs))
        index = self.n_layers - 1 if layer is None else as_count(layer, "layer", 0)
        if index >= self.n_layers:
            raise ValueError(f"layer must be at most {self.n_layers - 1}, got {layer}")
        return self._compiled.moments(self._theta(theta), x, index, covariance, resolve_n_threads(n_threads))


@dataclass
class DeterministicPosterior(TrainedNetwork):
    """A trained `DeterministicNetwork`: factorised Gaussians over its weights.

    Parameters as for `TrainedNetwork`.
    """

    network: DeterministicNetwork

    def moments(self, x: FloatArray, n_threads: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean (n_rows, n_outputs) and covariance (n_rows, n_outputs, n_outputs) of the outputs."""
        return self.network.moments(self.theta, x, n_threads=n_threads)

    def sample_weights(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw all weights, (n_samples, n_weights)."""
        mean, sd = self.theta[self.network.means], np.exp(self.theta[self.network.log_deviations])
        return mean + sd * rng.standard_normal((n_samples, len(mean)))


def fit_deterministic_network(
    network: DeterministicNetwork,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    inference: str = "dvi",
    n_draws: int = 10,
    schedule: TrainingSchedule | None = None,
    initial_scale: float = 0.05,
    n_restarts: int = 1,
    random_state: np.random.Generator | int | None = 0,
    n_threads: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> DeterministicPosterior:
    """Train a Gaussian network (Wu et al. 2019).

    Parameters
    ----------
    network : DeterministicNetwork
        Its architecture, likelihood and prior.
    x : array_like of shape (n_samples, n_inputs)
        Of order one.
    y : array_like of shape (n_samples,), or (n_samples, n_targets) for a network with several targets
        Targets of order one, or numbers of classes.
    sample_weight : array_like of shape (n_samples,), optional
        How many times each row counts.
    inference : {"dvi", "mcvi", "rmcvi", "map"}
        The deterministic bound; its estimate from weights or from pre-activations drawn anew at every step; or the
        mode, without posterior variances.
    n_draws : int
        Draws a step of the two estimates.
    schedule : TrainingSchedule, optional
    initial_scale : float
        First posterior standard deviations, in units of the first spread of the means. Small ones find better optima.
    n_restarts : int
        Random starts; the one that ends with the highest bound is kept.
    random_state : numpy.random.Generator, int or None
    n_threads : int, optional
        Results have the same bits for any number.
    progress : callable, optional
        Called with the number of finished starts, their total and the best bound so far.

    Returns
    -------
    DeterministicPosterior
        Interrupting (KeyboardInterrupt) returns the best iterate so far, flagged.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range, or the bound is finite nowhere.
    """
    as_instance(network, "network", DeterministicNetwork)
    return DeterministicPosterior(
        **vars(
            train_network(
                network,
                x,
                y,
                sample_weight=sample_weight,
                inference=inference,
                n_draws=n_draws,
                schedule=schedule,
                initial_scale=initial_scale,
                n_restarts=n_restarts,
                random_state=random_state,
                n_threads=n_threads,
                progress=progress,
            )
        )
    )
