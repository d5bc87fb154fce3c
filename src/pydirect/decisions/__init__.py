"""What to try next: acquisition functions, bandits, and rows that are worth a label."""

from pydirect.decisions.active import CandidateBatch, select_batch

__all__ = ["CandidateBatch", "select_batch"]
