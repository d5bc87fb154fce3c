"""Levels, priors, categorical distributions and the noise variance."""
