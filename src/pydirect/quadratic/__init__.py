"""Bayesian networks with quadratic activations and discrete weights, trained exactly (DIRECT)."""

from pydirect.quadratic.coreset import NetworkCoreset as NetworkCoreset
from pydirect.quadratic.network import (
    NetworkPosterior as NetworkPosterior,
    NetworkShape as NetworkShape,
    QuadraticNetwork as QuadraticNetwork,
)
from pydirect.quadratic.training import fit_quadratic_network as fit_quadratic_network
