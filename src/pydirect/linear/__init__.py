"""Gaussian weights: evidence, leave-one-out moments, updates and fading, groups, noisy sums."""

from pydirect.linear.decorrelated import DecorrelatedPosterior, fit_decorrelated
from pydirect.linear.evidence import log_evidence, maximise_evidence
from pydirect.linear.evidence_by_factors import EvidenceMaximum, EvidenceProblem, maximise_evidence_by_factors
from pydirect.linear.influence import InfluencePosterior, cooks_distance
from pydirect.linear.leave_one_out import FactoredRidge, LeaveOneOut, RidgePosterior, leave_one_out, ridge_of_rows
from pydirect.linear.noisy_sums import CorrectedSums, GramPosterior, correct_noisy_sums
from pydirect.linear.recursive import RecursivePosterior

__all__ = [
    "CorrectedSums",
    "DecorrelatedPosterior",
    "EvidenceMaximum",
    "EvidenceProblem",
    "FactoredRidge",
    "GramPosterior",
    "InfluencePosterior",
    "LeaveOneOut",
    "RecursivePosterior",
    "RidgePosterior",
    "cooks_distance",
    "correct_noisy_sums",
    "fit_decorrelated",
    "leave_one_out",
    "log_evidence",
    "maximise_evidence",
    "maximise_evidence_by_factors",
    "ridge_of_rows",
]
