"""DIRECT for linear-Gaussian models."""
