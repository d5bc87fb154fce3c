"""Trained networks: parameters, outcome of the training, outputs of sampled networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pydirect._validation import FloatArray, as_float_array_unbounded, short_repr
from pydirect.networks.base import VariationalNetwork
from pydirect.optimize.outcome import Outcome, WithOutcome

_ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "relu": lambda a: np.maximum(a, 0.0),
    "heaviside": lambda a: (a > 0).astype(np.float64),
}
# Size of the largest array while sampled networks are evaluated.
FORWARD_NUMBERS = 2**17


@dataclass
class TrainedNetwork(WithOutcome):
    """A trained network and how its training went.

    - `theta`, (n_parameters,).
    - `outcome`: its ELBO is of all rows together, in nats: for fixed priors a bound on the log evidence, under
      empirical Bayes with the log density of the prior variances. The trace has it after each check of Adam and each
      evaluation of L-BFGS; iterations are steps of Adam and iterations of L-BFGS.
    """

    network: VariationalNetwork
    theta: FloatArray
    outcome: Outcome

    __repr__ = short_repr

    def check(self, network: VariationalNetwork) -> None:
        """Raise unless the posterior is of this network and its numbers are in their ranges.

        Parameters
        ----------
        network : VariationalNetwork
            The network.
        """
        if self.network != network:
            raise ValueError("posteriors are not of the network's shape")
        theta = as_float_array_unbounded(self.theta, "theta", (network.n_parameters,))
        if np.isnan(theta).any() or not np.isfinite(theta[network.means]).all():
            raise ValueError("means of weights must be finite")
        self.outcome.check()

    @property
    def log_noise(self) -> FloatArray:
        """Log noise variances of the targets; homoscedastic only."""
        return self.theta[self.network.log_noise]

    @property
    def prior_variances(self) -> FloatArray:
        """Prior variance of the matrix and of the biases of each layer in turn."""
        return self.network.prior_variances(self.theta)

    def forward(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        """Evaluate networks with given weights (n_samples, n_weights); outputs (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        weights : ndarray of shape (n_samples, n_weights)
            Weights of networks.
        x : ndarray of shape (n_rows, n_inputs)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_outputs, n_samples)
            Outputs.
        """
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
            b = h @ matrix
            b += weights[:, None, first : first + n_out]
            first += n_out
            skips = network.skip and n_in == n_out and 0 < layer < network.n_layers - 1
            a = a + b if skips else b
        return a
