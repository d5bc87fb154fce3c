"""Predictive distributions: Gaussian mixtures, and what they become when targets were transformed."""

from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.predictive.transformed import TransformedDistribution
from pydirect.predictive.transforms import TargetTransform

__all__ = ["PredictiveDistribution", "TargetTransform", "TransformedDistribution"]
