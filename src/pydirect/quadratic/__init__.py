"""Bayesian networks with quadratic activations and discrete weights, trained exactly (DIRECT)."""
