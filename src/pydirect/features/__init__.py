"""Feature maps from columns of X to basis functions Φ: input scaling, kernels, random and Nyström features."""

from pydirect.features.basis import Basis as Basis
from pydirect.features.inputs import InputMap as InputMap
from pydirect.features.kernel import KernelHyperparameters as KernelHyperparameters
from pydirect.features.maps import (
    FourierFeatures as FourierFeatures,
    LinearFeatures as LinearFeatures,
    NystroemFeatures as NystroemFeatures,
    PolynomialFeatures as PolynomialFeatures,
    PrecomputedFeatures as PrecomputedFeatures,
    TransformerFeatures as TransformerFeatures,
)
from pydirect.features.rows import distinct_rows as distinct_rows
from pydirect.features.search import KernelRows as KernelRows, search_kernel as search_kernel
from pydirect.features.search_record import HyperparameterSearch as HyperparameterSearch
