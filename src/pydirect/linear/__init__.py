"""Gaussian weights: evidence, leave-one-out moments, updates and fading, groups, noisy sums."""

from pydirect.linear.evidence import (
    EvidenceMaximum,
    EvidenceProblem,
    log_evidence,
    maximise_evidence,
    maximise_evidence_by_factors,
)
from pydirect.linear.fit import fit_gaussian
from pydirect.linear.leave_one_out import (
    LeaveOneOut,
    cooks_distance,
    influence_of_each,
    influence_of_few,
    influence_of_group,
    leave_one_out,
)
from pydirect.linear.noisy_sums import CorrectedSums, GramPosterior, correct_noisy_sums
from pydirect.linear.posterior import FactoredPosterior, GaussianPosterior, posterior_for_rows
from pydirect.linear.random_effects import GroupSums, RandomEffects, fit_random_effects
from pydirect.linear.recursive import RecursivePosterior

__all__ = [
    "CorrectedSums",
    "EvidenceMaximum",
    "EvidenceProblem",
    "FactoredPosterior",
    "GaussianPosterior",
    "GramPosterior",
    "GroupSums",
    "LeaveOneOut",
    "RandomEffects",
    "RecursivePosterior",
    "cooks_distance",
    "correct_noisy_sums",
    "fit_gaussian",
    "fit_random_effects",
    "influence_of_each",
    "influence_of_few",
    "influence_of_group",
    "leave_one_out",
    "log_evidence",
    "maximise_evidence",
    "maximise_evidence_by_factors",
    "posterior_for_rows",
]
