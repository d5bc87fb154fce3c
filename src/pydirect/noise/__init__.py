"""Noise of rows: varying, heavy-tailed and Student-t noise, and the local process on residuals."""

from pydirect.noise.local import LocalProcess, fit_local_process

__all__ = [
    "LocalProcess",
    "fit_local_process",
]
