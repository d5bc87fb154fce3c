"""Steps of Gaussian networks: value and gradient of the deterministic and of the Monte Carlo objectives, 500 rows.

The limit counts the operations of the matrix products, one triangle of what is symmetric, at the rate of BLAS's
symmetric rank-k update. In networks of one hidden layer the units' moments weigh as much; in deep ones their pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import fraction_of_limit, multiplying, require

N_ROWS = 500
# Name: inputs, hidden layers, options, flops per row.
NETWORKS: dict[str, tuple[int, tuple[int, ...], dict[str, Any], float]] = {
    "1x50": (13, (50,), {}, 8 * 13 * 50 + (12 + 3 * 3) * 50 * 2),
    "1x50 diagonal": (13, (50,), {"covariance": "diagonal"}, 8 * 13 * 50 + 18 * 50 * 2),
    "2x128": (1, (128, 128), {}, 3 * 128**3 + 20 * 128**2),
    "2x128 diagonal": (1, (128, 128), {"covariance": "diagonal"}, 18 * 128**2),
    "5x25": (1, (25,) * 5, {}, (3 + 3 * 8) * 25**3 + 12 * 4 * 25**2),
}


def make_step(network: str, inference: str, n_draws: int = 10) -> Any:
    """Return a function without arguments that takes one step."""
    require("GaussianNetwork")
    from pydirect.networks.deterministic import DeterministicNetwork
    from pydirect.networks.training import NetworkObjective

    n_inputs, hidden, options, _ = NETWORKS[network]
    described = DeterministicNetwork(n_inputs, hidden, **options)
    rng = np.random.default_rng(0)
    theta = described.initial_parameters(rng)
    x = rng.standard_normal((N_ROWS, n_inputs))
    y = np.sin(x[:, 0])
    objective = NetworkObjective(described, x, y, inference=inference, n_draws=n_draws)
    return lambda: objective(theta, n_threads=1)


class Step:
    """Value and gradient by propagated moments."""

    params = tuple(NETWORKS)
    param_names = ("network",)

    def setup(self, network: str) -> None:
        self.step = make_step(network, "dvi")

    def time_step(self, network: str) -> None:
        self.step()

    def peakmem_step(self, network: str) -> None:
        self.step()

    def track_fraction_of_limit(self, network: str) -> float:
        return fraction_of_limit(self.step, (multiplying("float64", 400, 400), N_ROWS * NETWORKS[network][3]))


Step.track_fraction_of_limit.unit = "1"  # type: ignore[attr-defined]


class MonteCarloStep:
    """Value and gradient by draws: of weights for all rows, or of every row's pre-activations."""

    params = (("mcvi", "rmcvi"), (10, 300))
    param_names = ("inference", "draws")

    def setup(self, inference: str, n_draws: int) -> None:
        self.step = make_step("1x50", inference, n_draws)

    def time_step(self, inference: str, n_draws: int) -> None:
        self.step()
