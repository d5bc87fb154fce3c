"""Sufficient statistics: what is kept of the rows."""

from pydirect.statistics.gaussian import FeatureMap, GaussianStatistics, IdentityFeatures, collect_statistics
from pydirect.statistics.rotated import RotatedStatistics, decorrelate
from pydirect.statistics.running import RunningStatistics

__all__ = [
    "FeatureMap",
    "GaussianStatistics",
    "IdentityFeatures",
    "RotatedStatistics",
    "RunningStatistics",
    "collect_statistics",
    "decorrelate",
]
