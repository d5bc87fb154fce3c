"""Training objective of a network on given data: the negative evidence lower bound per row, and its gradient."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, as_count, as_instance, as_number
from pydirect.monte_carlo.draws import as_seed
from pydirect.networks.base import Evaluation, VariationalNetwork


class NetworkObjective:
    """Negative evidence lower bound per row, F(θ) = (kl_weight / N) KL(q ‖ p) − mean over rows of E_q log p(y | x, w).

    The data are validated once, here; calling the object gives F and its gradient, or unbiased estimates of them.

    Parameters
    ----------
    network : VariationalNetwork
        The network.
    x : array_like of shape (n_rows, n_inputs)
        Rows of inputs.
    y : array_like of shape (n_rows,) or (n_rows, n_targets)
        Targets, or the numbers 0, 1, … of the classes.
    inference : str, optional
        How the expected log-likelihood is found, one of the network's `inferences`; by default the first:

        - ``"dvi"``: by moment propagation.
        - ``"mcvi"``: averaged over draws of the weights, each used for all rows (eq. 2).
        - ``"rmcvi"``: averaged over draws of every row's own pre-activations, of smaller variance (appendix E).
        - ``"map"``: at the means of the weights. F is then −log p(M, y | x) per row, and the deviations have gradient
          zero.
        - ``"kept"``: as ``"mcvi"``, by the draws of the network's own seed: a deterministic function of θ, whose
          optimum is biased towards the draws.
    sample_weight : array_like of shape (n_rows,), optional
        How many times each row counts.
    n_total : float, optional
        N, the number of data points that the rows are a batch of; by default the sum of the weights.
    n_draws : int, default=10
        Draws per evaluation, where there are any.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range, or the network does not have this inference.
    """

    def __init__(
        self,
        network: VariationalNetwork,
        x: ArrayLike,
        y: ArrayLike,
        *,
        inference: str | None = None,
        sample_weight: ArrayLike | None = None,
        n_total: float | None = None,
        n_draws: int = 10,
    ) -> None:
        as_instance(network, "network", VariationalNetwork)
        self.network = network
        self.inference = network.inference(network.inferences[0].name if inference is None else inference)
        self.rows = network.rows(x, y, sample_weight)
        self.n_total = self.rows.total if n_total is None else as_number(n_total, "n_total", above=0.0)
        self.n_draws = as_count(n_draws, "n_draws")

    def __call__(
        self, theta: ArrayLike, *, kl_weight: float = 1.0, seed: int = 0, n_threads: int | None = None
    ) -> tuple[float, FloatArray]:
        """Evaluate F and its gradient.

        `seed` is that of the draws: the same seed gives the same draws, and the result has the same bits, whatever the
        number of threads. Where something has overflown, the value is infinity and the gradient zeros, (n_parameters,).
        """
        kl_weight = as_number(kl_weight, "kl_weight", at_least=0.0)
        return self.evaluate(self.network.as_theta(theta), kl_weight, as_seed(seed), resolve_n_threads(n_threads))

    def evaluate(self, theta: FloatArray, kl_weight: float, seed: int, n_threads: int) -> tuple[float, FloatArray]:
        """Evaluate F and its gradient, with arguments that an optimiser has validated.

        Parameters
        ----------
        theta : ndarray of shape (n_parameters,)
            Parameters of the posterior.
        kl_weight : float
            Weight λ of the divergence.
        seed : int
            Seed of the draws.
        n_threads : int
            Number of threads; results have the same bits for any.

        Returns
        -------
        (float, ndarray)
            F and its gradient, (n_parameters,).
        """
        how = Evaluation(self.rows, self.inference, kl_weight / self.n_total, self.n_draws, seed, n_threads)
        return self.network.negative_bound(theta, how)

    def of_rows(self, index: NDArray[np.intp], n_total: float | None = None) -> NetworkObjective:
        """Return the objective of some of the rows, a batch of `n_total` data points if there are others.

        Parameters
        ----------
        index : ndarray of int
            Numbers of the rows.
        n_total : float, optional
            Number of data points of which these rows are a batch; by default their own.

        Returns
        -------
        NetworkObjective
            The objective.
        """
        part = copy.copy(self)
        part.rows = self.rows.take(index)
        part.n_total = part.rows.total if n_total is None else n_total
        return part
