"""Feature maps from columns of X to basis functions Φ: input scaling, kernels, random and Nyström features."""

from pydirect.features.basis import Basis
from pydirect.features.evidence import fit_hyperparameters
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import (
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
)
from pydirect.features.repeated import distinct_rows
from pydirect.features.search_record import HyperparameterSearch

__all__ = [
    "Basis",
    "FourierFeatures",
    "HyperparameterSearch",
    "InputMap",
    "KernelHyperparameters",
    "LinearFeatures",
    "NystroemFeatures",
    "PolynomialFeatures",
    "PrecomputedFeatures",
    "TransformerFeatures",
    "distinct_rows",
    "fit_hyperparameters",
]
