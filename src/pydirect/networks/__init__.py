"""ReLU networks with Gaussian weights: deterministic variational inference, and sampled networks."""

from pydirect.networks.deterministic import DeterministicNetwork, DeterministicPosterior
from pydirect.networks.objective import NetworkObjective
from pydirect.networks.prior import EmpiricalBayes
from pydirect.networks.sampled import SampledNetwork, SampledPosterior
from pydirect.networks.schedule import TrainingSchedule
from pydirect.networks.training import OverfittedDrawsWarning, fit_network

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
