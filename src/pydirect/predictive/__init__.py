"""Predictive distributions: Gaussian mixtures, and what they become when targets were transformed."""

from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.predictive.scales import TargetScale
from pydirect.predictive.transformed import TargetTransform, TransformedDistribution

__all__ = ["PredictiveDistribution", "TargetScale", "TargetTransform", "TransformedDistribution"]
