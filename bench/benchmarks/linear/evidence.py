"""The maximum of the evidence from factorisations, beside one factorisation and an eigendecomposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import SIZES, make_statistics, seconds

N_TARGETS = 8
NOISE, SCALE = 0.1, 1.0


class EvidenceByFactors:
    """Noise and prior variance of largest evidence, from a start as a kernel's hyperparameters give it.

    `track_factorisations_in_time` counts the whole search in Cholesky factorisations of A in double precision;
    `track_shortfall` is by how many nats the evidence falls short of the maximum from an eigendecomposition.
    """

    params = (tuple(SIZES), (1, N_TARGETS))
    param_names = ("size", "targets")
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, size: str, targets: int) -> None:
        self.statistics = with_targets(make_statistics(size), targets)

    def time_search(self, size: str, targets: int) -> None:
        maximise(self.statistics)

    def track_factorisations(self, size: str, targets: int) -> int:
        return int(maximise(self.statistics)[0].n_factorisations)

    def track_factorisations_in_time(self, size: str, targets: int) -> float:
        from scipy.linalg import lapack

        def factorise() -> None:
            lapack.dpotrf((self.statistics.A + np.eye(len(self.statistics.A))).T, lower=1, overwrite_a=1)

        turns = [(seconds(lambda: maximise(self.statistics)), seconds(factorise)) for _ in range(5)]
        search, one = np.median(turns, axis=0)
        return float(search / one)

    def track_shortfall(self, size: str, targets: int) -> float:
        from pydirect.linear import log_evidence, maximise_evidence
        from pydirect.statistics import decorrelate

        rotated, worst = decorrelate(self.statistics), 0.0
        for k, found in enumerate(maximise(self.statistics)):
            target = rotated.target(k)
            best = log_evidence(target, *maximise_evidence(target, NOISE, SCALE))[0]
            worst = max(worst, best - log_evidence(target, found.noise, found.scale)[0])
        return worst

    track_factorisations.unit = "factorisations"
    track_factorisations_in_time.unit = "factorisations"
    track_shortfall.unit = "nats"


def with_targets(statistics: Any, n_targets: int) -> Any:
    """Return statistics of targets that share A: the first with more and more noise, in its sums' expectation."""
    from pydirect import GaussianStatistics

    noise = np.geomspace(1e-3, 3.0, n_targets) if n_targets > 1 else np.zeros(1)
    values, vectors = np.linalg.eigh(statistics.A)
    draws = np.random.default_rng(0).standard_normal((len(values), n_targets))
    c = statistics.c + vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * draws) * np.sqrt(noise)
    yty = statistics.yty + statistics.n_samples * noise
    return GaussianStatistics(c, yty, statistics.n_samples, gram=statistics.A)


def maximise(statistics: Any) -> Any:
    """Maximise the evidence of all targets from one start."""
    from pydirect.linear import EvidenceProblem, maximise_evidence_by_factors

    targets = [statistics.target(k) for k in range(statistics.n_outputs)]
    return maximise_evidence_by_factors([EvidenceProblem(target, NOISE, SCALE) for target in targets])
