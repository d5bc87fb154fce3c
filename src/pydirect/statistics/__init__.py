"""Sufficient statistics: what is kept of the rows."""

from pydirect.statistics.gaussian import (
    GaussianStatistics as GaussianStatistics,
    IdentityFeatures as IdentityFeatures,
    RowFeatures as RowFeatures,
    TargetStatistics as TargetStatistics,
    collect_statistics as collect_statistics,
)
from pydirect.statistics.noisy import (
    NoisyStatistics as NoisyStatistics,
    PrivacyBudget as PrivacyBudget,
    gaussian_delta as gaussian_delta,
    gaussian_epsilon as gaussian_epsilon,
    gaussian_mu as gaussian_mu,
)
from pydirect.statistics.rotated import (
    RotatedStatistics as RotatedStatistics,
    RotatedTarget as RotatedTarget,
    Rotation as Rotation,
    decorrelate as decorrelate,
)
from pydirect.statistics.running import RunningStatistics as RunningStatistics
