"""Bayesian networks with quadratic activations and discrete weights, trained exactly (DIRECT)."""

from pydirect.quadratic.coreset import NetworkCoreset
from pydirect.quadratic.network import NetworkPosterior, NetworkShape, QuadraticNetwork
from pydirect.quadratic.training import fit_quadratic_network

__all__ = ["NetworkCoreset", "NetworkPosterior", "NetworkShape", "QuadraticNetwork", "fit_quadratic_network"]
