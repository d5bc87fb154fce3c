"""Gaussian weights: evidence, leave-one-out moments, updates and fading, groups, noisy sums."""

from pydirect.linear.evidence import (
    EvidenceMaximum as EvidenceMaximum,
    EvidenceProblem as EvidenceProblem,
    log_evidence as log_evidence,
    maximise_evidence as maximise_evidence,
    maximise_evidence_by_factors as maximise_evidence_by_factors,
)
from pydirect.linear.fit import fit_gaussian as fit_gaussian
from pydirect.linear.leave_one_out import (
    LeaveOneOut as LeaveOneOut,
    cooks_distance as cooks_distance,
    influence_of_each as influence_of_each,
    influence_of_few as influence_of_few,
    influence_of_group as influence_of_group,
    leave_one_out as leave_one_out,
)
from pydirect.linear.noisy_sums import (
    CorrectedSums as CorrectedSums,
    GramPosterior as GramPosterior,
    correct_noisy_sums as correct_noisy_sums,
)
from pydirect.linear.posterior import (
    FactoredPosterior as FactoredPosterior,
    GaussianPosterior as GaussianPosterior,
    posterior_for_rows as posterior_for_rows,
)
from pydirect.linear.random_effects import (
    GroupSums as GroupSums,
    RandomEffects as RandomEffects,
    fit_random_effects as fit_random_effects,
)
from pydirect.linear.recursive import RecursivePosterior as RecursivePosterior
