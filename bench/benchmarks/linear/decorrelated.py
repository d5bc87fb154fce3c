"""Inference of Gaussian weights: of means alone, and with the eigenvectors that deviations need."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import SIZES, make_statistics, seconds
from .evidence import with_targets

NOISE = 0.1


class Decorrelated:
    """From statistics to the posterior at the noise and prior variance of largest evidence.

    `track_share` is the whole of it, without eigenvectors, in units of one eigendecomposition.
    """

    params = tuple(SIZES)
    param_names = ("size",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, size: str) -> None:
        self.statistics = make_statistics(size)

    def time_means(self, size: str) -> None:
        self.infer()

    def time_means_and_eigenvectors(self, size: str) -> None:
        self.infer().vectors  # noqa: B018

    def track_share(self, size: str) -> float:
        from scipy.linalg import eigh

        def decompose() -> None:
            eigh(self.statistics.A, driver="evd", check_finite=False)

        turns = [(seconds(self.infer), seconds(decompose)) for _ in range(5)]
        whole, one = np.median(turns, axis=0)
        return float(whole / one)

    def infer(self) -> Any:
        from pydirect.linear import fit_gaussian, maximise_evidence
        from pydirect.statistics import decorrelate

        rotated = decorrelate(self.statistics).target(0)
        noise, variance = maximise_evidence(rotated, NOISE)
        posterior = fit_gaussian(rotated.scaled(variance), noise)
        posterior.coefficients  # noqa: B018
        return posterior

    track_share.unit = "eigendecompositions"


class LeftOut:
    """Moments of f at 2000 rows of the statistics, as leaving each of them out needs them."""

    params = (tuple(SIZES), (1, 3))
    param_names = ("size", "outputs")
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, size: str, outputs: int) -> None:
        from pydirect.statistics import decorrelate

        self.rotated = decorrelate(with_targets(make_statistics(size), outputs))
        self.phi = np.random.default_rng(0).standard_normal((2000, self.rotated.rotation.shape[0]))

    def time_moments(self, size: str, outputs: int) -> None:
        from pydirect.linear import posterior_for_rows

        outputs_each = np.ones(outputs)
        posterior_for_rows(self.rotated, outputs_each / NOISE, outputs_each).moments(self.phi)
