"""Noise of rows: varying, heavy-tailed and Student-t noise, and the local process on residuals."""

from pydirect.noise.local import LocalProcess as LocalProcess, NeighbourSets as NeighbourSets
