"""ReLU networks with Gaussian weights: deterministic variational inference, and sampled networks."""

from pydirect.networks.base import EmpiricalBayes
from pydirect.networks.deterministic import DeterministicNetwork, DeterministicPosterior
from pydirect.networks.sampled import SampledNetwork, SampledPosterior
from pydirect.networks.training import NetworkObjective, OverfittedDrawsWarning, TrainingSchedule, fit_network

__all__ = [
    "DeterministicNetwork",
    "DeterministicPosterior",
    "EmpiricalBayes",
    "NetworkObjective",
    "OverfittedDrawsWarning",
    "SampledNetwork",
    "SampledPosterior",
    "TrainingSchedule",
    "fit_network",
]
