"""Five-component posteriors beside one component."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import SIZES, fit, make_statistics, seconds

ENTROPIES = ("pairwise", "taylor")


class Mixture:
    """Five components on b weights and 15 levels, from A and c.

    Limit: an iteration reads A once for all components together; `track_multiple_of_one_component` is the time over
    that of the factorised posterior from the same A and c, which a mixture starts from.
    """

    params = (tuple(SIZES), ENTROPIES)
    param_names = ("size", "entropy")
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, size: str, entropy: str) -> None:
        make_statistics(size)

    def time_fit(self, size: str, entropy: str) -> None:
        five_components(size, entropy)

    def track_multiple_of_one_component(self, size: str, entropy: str) -> float:
        turns = [(seconds(lambda: five_components(size, entropy)), seconds(lambda: fit(size))) for _ in range(5)]
        five, one = np.median(turns, axis=0)
        return float(five / one)

    track_multiple_of_one_component.unit = "times"

    def track_gain(self, size: str, entropy: str) -> float:
        return float(five_components(size, entropy).elbo - fit(size).elbo)

    track_gain.unit = "nats"


def five_components(size: str, entropy: str) -> Any:
    """Posterior of `make_problem` with five components."""
    return fit(size, method="fit_mixture", entropy=entropy)
