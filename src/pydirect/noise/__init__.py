"""Noise of rows: varying, heavy-tailed and Student-t noise, and the local process on residuals."""

from pydirect.noise.local import LocalProcess, NeighbourSets

__all__ = ["LocalProcess", "NeighbourSets"]
