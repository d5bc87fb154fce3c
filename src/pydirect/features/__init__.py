"""Feature maps from columns of X to basis functions Φ: input scaling, kernels, random and Nyström features."""

from pydirect.features.basis import Basis
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
from pydirect.features.rows import distinct_rows
from pydirect.features.search import KernelRows, search_kernel
from pydirect.features.search_record import HyperparameterSearch

__all__ = [
    "Basis",
    "FourierFeatures",
    "HyperparameterSearch",
    "InputMap",
    "KernelHyperparameters",
    "KernelRows",
    "LinearFeatures",
    "NystroemFeatures",
    "PolynomialFeatures",
    "PrecomputedFeatures",
    "TransformerFeatures",
    "distinct_rows",
    "search_kernel",
]
