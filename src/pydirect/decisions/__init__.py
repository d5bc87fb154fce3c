"""What to try next: acquisition functions, bandits, and rows that are worth a label."""

from pydirect.decisions.acquisition import (
    batch_of_draws,
    expected_improvement,
    hypervolume,
    hypervolume_improvement,
    improvement_of_draws,
    log_expected_improvement,
    log_probability_of_feasibility,
    pareto_front,
    probability_of_improvement,
    thompson_batch,
    upper_confidence_bound,
)
from pydirect.decisions.active import CandidateBatch, Candidates, greedy_batch, select_batch
from pydirect.decisions.bandits import LinearBandit, RewardPosteriors, SharedBandit

__all__ = [
    "CandidateBatch",
    "Candidates",
    "LinearBandit",
    "RewardPosteriors",
    "SharedBandit",
    "batch_of_draws",
    "expected_improvement",
    "greedy_batch",
    "hypervolume",
    "hypervolume_improvement",
    "improvement_of_draws",
    "log_expected_improvement",
    "log_probability_of_feasibility",
    "pareto_front",
    "probability_of_improvement",
    "select_batch",
    "thompson_batch",
    "upper_confidence_bound",
]
