"""Sufficient statistics: what is kept of the rows."""
