"""Predictive distributions: Gaussian mixtures, and what they become when targets were transformed."""

from pydirect.predictive.gaussian_mixture import PredictiveDistribution as PredictiveDistribution
from pydirect.predictive.scales import TargetScale as TargetScale
from pydirect.predictive.transformed import (
    TargetTransform as TargetTransform,
    TransformedDistribution as TransformedDistribution,
)
