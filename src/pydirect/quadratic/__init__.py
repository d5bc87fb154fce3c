"""DIRECT for networks with quadratic activations."""
