"""Fields of feature maps in files, and their checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydirect._validation import as_count
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import (
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
)
from pydirect.persistence.fields import require_array, require_number, require_positive, require_type

FEATURE_CLASSES: dict[str, Any] = {
    c.kind: c for c in (PrecomputedFeatures, LinearFeatures, PolynomialFeatures, FourierFeatures, NystroemFeatures)
}


def check_input_map(m: InputMap, d: int) -> int:
    """Raise unless an input map fits so many columns; return the number of its outputs."""
    require_array(m.mean, "mean", d, largest=np.inf)
    require_positive(m.scale, "scale", d, largest=np.inf)
    if m.kept.dtype.kind != "i" or m.kept.ndim != 1 or not np.isin(m.kept, np.arange(d)).all():
        raise ValueError(f"kept must be columns below {d}")
    require_array(m.knots, "knots", *m.knots.shape, largest=np.inf)
    require_array(m.scores, "scores", *m.knots.shape, largest=LARGEST)
    if m.knots.shape != (0, 0) and (len(m.knots) != len(m.kept) or m.knots.size == 0 or (np.diff(m.knots) < 0).any()):
        raise ValueError("knots must ascend for every kept column")
    return m.n_outputs


def check_hyperparameters(p: KernelHyperparameters, n_inputs: int) -> None:
    """Raise unless hyperparameters are in their ranges."""
    if (require_array(p.length_scales, "length_scales", n_inputs) < 1 / LARGEST).any():
        raise ValueError(f"length_scales must be at least {1 / LARGEST:g}")
    require_number(p.noise_variance, "noise_variance", above=0.0)
    require_number(p.isotropic_length_scale, "isotropic_length_scale", above=0.0)
    for name in ("ard_amplitude", "isotropic_amplitude", "linear_amplitude"):
        require_number(getattr(p, name), name, at_least=0.0, at_most=LARGEST)
    if as_count(p.n_linear, "n_linear", 0) > n_inputs:
        raise ValueError(f"n_linear must be at most {n_inputs}, got {p.n_linear}")


def check_features(features: Any, n_inputs: int) -> None:
    """Raise unless a feature map takes so many inputs and its numbers are in their ranges."""
    if isinstance(features, NystroemFeatures):
        require_array(features.landmarks, "landmarks", "n_landmarks", n_inputs, largest=LARGEST)
        require_array(features.whitening, "whitening", *2 * features.landmarks.shape[:1])
        check_hyperparameters(features.hyperparameters, n_inputs)
    elif isinstance(features, FourierFeatures):
        require_array(features.frequencies, "frequencies", n_inputs, "n_frequencies")
        require_array(features.amplitudes, "amplitudes", features.n_frequencies)
        if features.linear_scale is not None:
            require_array(features.linear_scale, "linear_scale", *features.linear_scale.shape[:1])
        if features.constant is not None:
            require_number(features.constant, "constant")
    else:
        require_type(features.n_features_in, "n_features_in", int)
        if isinstance(features, LinearFeatures):
            require_number(features.intercept_scale, "intercept_scale")
