"""DIRECT for linear-Gaussian models: posteriors from sufficient statistics, and baselines."""

from pydirect.regression.decorrelated import DecorrelatedPosterior, fit_decorrelated
from pydirect.regression.evidence import log_evidence, maximise_evidence
from pydirect.regression.evidence_by_factors import EvidenceMaximum, EvidenceProblem, maximise_evidence_by_factors
from pydirect.regression.gaussian_weights import GaussianPosterior, GaussianRegression
from pydirect.regression.gradient_estimators import (
    CategoricalWeights,
    Concrete,
    Exact,
    GaussianWeights,
    Reinforce,
    Reparameterization,
)
from pydirect.regression.influence import InfluencePosterior, cooks_distance
from pydirect.regression.leave_one_out import FactoredRidge, LeaveOneOut, RidgePosterior, leave_one_out, ridge_of_rows
from pydirect.regression.local_process import LocalProcess, fit_local_process
from pydirect.regression.mean_field import MeanFieldPosterior, MeanFieldRegression, fit_mean_field
from pydirect.regression.mixture import fit_mixture
from pydirect.regression.mixture_entropy import pairwise_entropy
from pydirect.regression.mixture_posterior import MixturePosterior
from pydirect.regression.noisy_sums import CorrectedSums, GramPosterior, correct_noisy_sums
from pydirect.regression.recursive import RecursivePosterior
from pydirect.regression.sequential import CoarseLevelsWarning, fit_sequential
from pydirect.regression.sequential_posterior import SequentialPosterior
from pydirect.regression.stochastic import StochasticELBO, StochasticFit, fit_stochastic

__all__ = [
    "CategoricalWeights",
    "CoarseLevelsWarning",
    "Concrete",
    "CorrectedSums",
    "DecorrelatedPosterior",
    "EvidenceMaximum",
    "EvidenceProblem",
    "Exact",
    "FactoredRidge",
    "GaussianPosterior",
    "GaussianRegression",
    "GaussianWeights",
    "GramPosterior",
    "InfluencePosterior",
    "LeaveOneOut",
    "LocalProcess",
    "MeanFieldPosterior",
    "MeanFieldRegression",
    "MixturePosterior",
    "RecursivePosterior",
    "Reinforce",
    "Reparameterization",
    "RidgePosterior",
    "SequentialPosterior",
    "StochasticELBO",
    "StochasticFit",
    "cooks_distance",
    "correct_noisy_sums",
    "fit_decorrelated",
    "fit_local_process",
    "fit_mean_field",
    "fit_mixture",
    "fit_sequential",
    "fit_stochastic",
    "leave_one_out",
    "log_evidence",
    "maximise_evidence",
    "maximise_evidence_by_factors",
    "pairwise_entropy",
    "ridge_of_rows",
]
