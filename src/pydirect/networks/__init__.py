"""ReLU networks with Gaussian weights: deterministic variational inference, and sampled networks."""

from pydirect.networks.base import EmpiricalBayes as EmpiricalBayes
from pydirect.networks.deterministic import (
    DeterministicNetwork as DeterministicNetwork,
    DeterministicPosterior as DeterministicPosterior,
)
from pydirect.networks.sampled import SampledNetwork as SampledNetwork, SampledPosterior as SampledPosterior
from pydirect.networks.training import (
    NetworkObjective as NetworkObjective,
    OverfittedDrawsWarning as OverfittedDrawsWarning,
    TrainingSchedule as TrainingSchedule,
    fit_network as fit_network,
)
