"""What to try next: acquisition functions, bandits, and rows that are worth a label."""

from pydirect.decisions.acquisition import (
    batch_of_draws as batch_of_draws,
    expected_improvement as expected_improvement,
    hypervolume as hypervolume,
    hypervolume_improvement as hypervolume_improvement,
    improvement_of_draws as improvement_of_draws,
    log_expected_improvement as log_expected_improvement,
    log_probability_of_feasibility as log_probability_of_feasibility,
    pareto_front as pareto_front,
    probability_of_improvement as probability_of_improvement,
    thompson_batch as thompson_batch,
    upper_confidence_bound as upper_confidence_bound,
)
from pydirect.decisions.active import (
    CandidateBatch as CandidateBatch,
    Candidates as Candidates,
    greedy_batch as greedy_batch,
    select_batch as select_batch,
)
from pydirect.decisions.bandits import (
    LinearBandit as LinearBandit,
    RewardPosteriors as RewardPosteriors,
    SharedBandit as SharedBandit,
)
