"""On which scale targets are modelled: by name, or by leave-one-out density in the targets' own units."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from pydirect._validation import FloatArray, as_choice, shown
from pydirect.fitted.predictor import BELIEVED
from pydirect.fitted.regression import FittedRegressor, LeftOut
from pydirect.noise.fit import looks_constant
from pydirect.noise.model import MIN_ROWS_TO_CHOOSE
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.predictive.scales import TargetScale
from pydirect.predictive.transformed import TargetTransform, TransformedDistribution

NAMED = ("log", "sqrt", "cbrt", "logit", "asinh")
IDENTITY = TargetScale("identity")
# Rows, landmarks and rows of the marginal likelihood with which scales are compared.
MAX_ROWS, MAX_FEATURES, MAX_SEARCH_ROWS = 1000, 200, 250
# Fewer rows, or fewer different targets, choose no scale.
FEWEST_ROWS, FEWEST_VALUES = 80, 13
# Gain in nats per row, and in its standard errors, for which a scale is worth having; difference that is none.
LEAST_GAIN, LEAST_STANDARD_ERRORS, ALIKE = 0.02, 1.0, 0.01
# Of squared errors of the mean, relative to those of y itself: what no gain in density makes up for.
LARGEST_ERROR = 1.03
SPREADS = (1.0, 0.75, 0.5, 0.25, 0.0)
# Largest size of targets below which numbers are too near the smallest ones for powers of them.
LEAST_TARGET = 1e-90
# Of positive targets: 95 % over 5 % quantile below which all scales are alike; share of zeros that excludes a
# logarithm; share of the low quantile below which targets are near zero.
LEAST_RATIO, ATOM, NEAR_ZERO = 1.5, 0.02, 0.2
# Of targets of both signs: range of 99 % over that of the middle half, 3.8 for Gaussian ones.
HEAVY_TAILS = 8.0


def as_scales(value: Any, n_outputs: int | None = None) -> list[Any]:
    """Return what every output's scale is to be: a name, a TargetScale or a transformer; or raise.

    One value is for all outputs; of unknown number, the list has one.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not len(value):
            raise TypeError("target_transform must have one scale per output, got none")
        if n_outputs is not None and len(value) != n_outputs:
            raise ValueError(f"target_transform must have one scale per output, {n_outputs}, got {len(value)}")
        return [_as_scale(each, f"target_transform[{k}]", NAMED) for k, each in enumerate(value)]
    return [_as_scale(value, "target_transform", (*NAMED, "auto"))] * (n_outputs or 1)


def _as_scale(value: Any, where: str, names: Sequence[str]) -> Any:
    if value is None:
        return IDENTITY
    if isinstance(value, str):
        return as_choice(value, where, names)
    if isinstance(value, TargetScale) or (hasattr(value, "inverse_transform") and hasattr(value, "transform")):
        return value
    raise TypeError(
        f"{where} must be None, a name, a TargetScale or a transformer with an inverse, or a list of one per output, "
        f"got {shown(value)}"
    )


def given_transform(value: Any, y: FloatArray) -> TargetTransform | None:
    """Return the scales that were asked for, with what targets (n_rows, n_outputs) say of them; None for y itself."""
    scales = [_fitted(own, column) for own, column in zip(as_scales(value, y.shape[1]), y.T, strict=True)]
    transform = TargetTransform(tuple(scales))
    transform.forward(y)  # raises for targets out of range
    return None if transform.is_identity else transform


def _fitted(own: Any, y: FloatArray) -> TargetScale:
    """Return one output's scale.

    Only roots accept zeros: half of the smallest positive target is added then (1/2 for counts, Bartlett 1936).
    """
    if isinstance(own, TargetScale):
        return own
    if not isinstance(own, str):
        return TargetScale.of_transformer(clone(own).fit(y[:, None]), y)
    if own in ("sqrt", "cbrt"):
        if y.min() < 0:
            raise ValueError(f"y must not be negative for target_transform={own!r}, got {y.min():g}")
        return TargetScale(own, _half_smallest(y))
    return _asinh(y) if own == "asinh" else TargetScale(own)


def _asinh(y: FloatArray) -> TargetScale:
    lower, middle, upper = np.quantile(y, [0.25, 0.5, 0.75])
    return TargetScale("asinh", -float(middle), float(upper - lower) / 2 or float(y.std()) or 1.0)


def _half_smallest(y: FloatArray) -> float:
    """Return zero for positive targets, else half of the smallest positive one, or of one if there is none."""
    positive = y[y > 0]
    return 0.0 if len(positive) == len(y) else 0.5 * float(positive.min(initial=np.inf if len(positive) else 1.0))


# --- the choice


@dataclass(frozen=True)
class ScaleChoice:
    """Scales that leave-one-out scores favoured, their gains in nats a row, and spreads of the mean; (n_outputs,)."""

    transform: TargetTransform
    gain: FloatArray
    spread: FloatArray


# From targets on several scales, (n_rows, n_scales), kind of noise and what was found before to a small model that has
# an output for each of them, its predictions of distinct rows without themselves, and their inputs.
SmallFit = Callable[[FloatArray, str, Any], tuple[FittedRegressor, LeftOut, FloatArray]]


def candidates(y: FloatArray) -> list[TargetScale]:
    """Return the scales that targets, (n_rows,), may have; none where all are alike, rows few or targets discrete."""
    values = np.unique(y)
    lowest, highest = values[[0, -1]]
    if len(y) < FEWEST_ROWS or len(values) < FEWEST_VALUES or max(-lowest, highest) < LEAST_TARGET:
        return []
    low, least, lower, middle, upper, most, high = np.quantile(y, [0.005, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995])
    if lowest < 0:
        tails = (high - low) / (upper - lower) if upper > lower else 0.0
        return [_asinh(y)] if tails > HEAVY_TAILS else []
    if most <= LEAST_RATIO * least:
        return []
    found = []
    zeros = float(np.mean(y == 0))
    shift = 0.0 if zeros == 0 else max(_half_smallest(y), NEAR_ZERO / 10 * float(middle))
    found += [TargetScale("sqrt", shift), TargetScale("cbrt", shift)]
    if zeros == 0:
        found.append(TargetScale("log"))
    if zeros <= ATOM and lowest < NEAR_ZERO * least:
        found.append(TargetScale("log", 0.5 * float(least)))
    if lowest > 0 and highest < 1 and most - least > 0.25:
        found.append(TargetScale("logit"))
    return found


def choose_scales(small: SmallFit, y: FloatArray, weight: FloatArray | None, with_noise: bool) -> ScaleChoice | None:
    """Return the scales of all outputs of y, (n_rows, n_outputs), None if all are y itself.

    `with_noise`: whether noise that varies and heavy tails are compared too, which a scale may only stand for, unless
    noise is alike everywhere on it.
    """
    found = [_choice(small, column, weight, with_noise) for column in y.T]
    if all(scale is IDENTITY for scale, _, _ in found):
        return None
    scales, gains, spreads = zip(*found, strict=True)
    return ScaleChoice(TargetTransform(scales), np.array(gains), np.array(spreads))


def _choice(
    small: SmallFit, y: FloatArray, weight: FloatArray | None, with_noise: bool
) -> tuple[TargetScale, float, float]:
    """Return one output's scale, its gain and the spread of its mean."""
    plain, others = (IDENTITY, 0.0, 1.0), candidates(y)
    if not others:
        return plain
    scales = [IDENTITY, *others]
    z = np.stack([scale.forward(y) for scale in scales], axis=1)
    derivative = np.stack([scale.log_derivative(y) for scale in scales], axis=1)
    model, left, inputs = small(z, "constant", None)
    density = (left.log_density(model.units.standardised(z)[left.first]) - np.log(model.units.scale))[left.where]
    gains = density + derivative - density[:, :1]
    worth = [k for k in range(1, len(scales)) if _is_gain(gains[:, k], weight)]
    if not worth:
        return plain
    errors, spreads = _squared_errors(model, left, scales, worth, y, weight)
    worth = [k for k in worth if not _is_worse(errors[k], errors[0], weight)]
    if not worth:
        return plain
    means = np.average(gains, axis=0, weights=weight)
    best = max(means[k] for k in worth)
    near = [k for k in worth if means[k] > best - ALIKE]  # of those that are as likely, that of least error
    chosen = min(near, key=lambda k: np.average(errors[k], weights=weight))
    gain = float(means[chosen])
    studentised = left.found.studentised[:, [chosen]]
    if with_noise and len(y) >= MIN_ROWS_TO_CHOOSE and not looks_constant(studentised, inputs):
        pair = [0, chosen]
        model, _, _ = small(z[:, pair], "auto", (model.basis, pair))
        if model.noise is not None:
            own = [model.noise.candidates.index(name) for name in model.noise.choices]
            log_density = model.noise.log_densities[own, [0, 1]] + np.average(derivative[:, pair], 0, weight)
            gain = float(log_density[1] - log_density[0])
            if gain <= LEAST_GAIN:
                return plain
    return scales[chosen], gain, spreads[chosen]


def _squared_errors(
    model: FittedRegressor,
    left: LeftOut,
    scales: Sequence[TargetScale],
    chosen: Sequence[int],
    y: FloatArray,
    weight: FloatArray | None,
) -> tuple[dict[int, FloatArray], dict[int, float]]:
    """Return squared errors (n_rows,) of means without each row, with the spread that makes them least, and spreads.

    A spread below 1 is for means that are better by more than chance.
    """
    units, width = model.units, float(np.ptp(y))
    low, high = float(y.min()) - BELIEVED * width, float(y.max()) + BELIEVED * width
    means = units.location + units.scale * left.found.means
    variances = units.scale**2 * (left.epistemic + model.mean_noise)
    errors, spreads = {0: ((y - means[left.where, 0]) ** 2)}, {0: 1.0}
    for k in chosen:
        base = PredictiveDistribution.gaussian(means[:, k], variances[:, k])
        found = {}
        for spread in SPREADS:
            mean = TransformedDistribution(base, scales[k], low, high, spread).mean
            found[spread] = (y - mean[left.where]) ** 2
        best = min(found, key=lambda spread: np.average(found[spread], weights=weight))
        if not _exceeds(found[1.0] - found[best], weight):
            best = 1.0
        errors[k], spreads[k] = found[best], best
    return errors, spreads


def _exceeds(values: FloatArray, weight: FloatArray | None, least: float = 0.0) -> bool:
    """Whether a mean is above a bound, and above zero by more than a standard error."""
    mean = float(np.average(values, weights=weight))
    error = float(np.sqrt(np.average((values - mean) ** 2, weights=weight) / len(values)))
    return mean > max(least, LEAST_STANDARD_ERRORS * error)


def _is_gain(gains: FloatArray, weight: FloatArray | None) -> bool:
    return _exceeds(gains, weight, LEAST_GAIN)


def _is_worse(errors: FloatArray, others: FloatArray, weight: FloatArray | None) -> bool:
    """Whether squared errors are above others by more than is allowed and than chance."""
    return _exceeds(errors - others, weight, (LARGEST_ERROR - 1) * float(np.average(others, weights=weight)))


def chosen_rows(random_state: Any, n_rows: int, weight: FloatArray | None) -> np.ndarray:
    """Rows of positive weight, some of them where there are many."""
    rows = np.arange(n_rows) if weight is None else np.flatnonzero(weight)
    if len(rows) <= MAX_ROWS:
        return rows
    seed = copied(random_state)  # what follows must not depend on this choice
    rng = np.random.default_rng(seed.randint(2**31) if hasattr(seed, "randint") else seed)
    return np.sort(rng.choice(rows, MAX_ROWS, replace=False))


def copied(random_state: Any) -> Any:
    """Return a state that may be drawn from without a trace; that of all NumPy cannot be copied."""
    return random_state if random_state is np.random else copy.deepcopy(random_state)
