"""Sufficient statistics: what is kept of the rows."""

from pydirect.statistics.gaussian import (
    GaussianStatistics,
    IdentityFeatures,
    RowFeatures,
    TargetStatistics,
    collect_statistics,
)
from pydirect.statistics.noisy import NoisyStatistics, PrivacyBudget, gaussian_delta, gaussian_epsilon, gaussian_mu
from pydirect.statistics.rotated import RotatedStatistics, RotatedTarget, Rotation, decorrelate
from pydirect.statistics.running import RunningStatistics

__all__ = [
    "GaussianStatistics",
    "IdentityFeatures",
    "NoisyStatistics",
    "PrivacyBudget",
    "RotatedStatistics",
    "RotatedTarget",
    "Rotation",
    "RowFeatures",
    "RunningStatistics",
    "TargetStatistics",
    "collect_statistics",
    "decorrelate",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
]
