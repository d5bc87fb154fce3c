"""On which scale targets are modelled: by name, or by leave-one-out density in the targets' own units."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pydirect._validation import FloatArray, as_choice, shown
from pydirect.features.basis import Basis
from pydirect.fitted.predictor import Units, believed
from pydirect.fitted.regression import FittedRegressor, LeftOut
from pydirect.noise.fit import UnseenRows, is_gain
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.predictive.scales import TargetScale
from pydirect.predictive.transformed import TargetTransform, TransformedDistribution

NAMED = ("log", "sqrt", "cbrt", "logit", "asinh")
IDENTITY = TargetScale("identity")
# Rows, landmarks and rows of the marginal likelihood with which scales are compared.
MAX_ROWS, MAX_FEATURES, MAX_SEARCH_ROWS = 1000, 200, 250
# Rows up to which a kernel of the targets themselves is learned first, and one of another scale where that promises.
FEW_ROWS = 300
# Fewer rows, or fewer different targets, choose no scale.
FEWEST_ROWS, FEWEST_VALUES = 80, 13
# Gain in nats per row, and in its standard errors, for which a scale is worth having; difference that is none.
LEAST_GAIN, LEAST_STANDARD_ERRORS, ALIKE = 0.02, 1.0, 0.01
# Of squared errors of the mean, relative to those of y itself: what no gain in density makes up for, and the standard
# errors that it must be exceeded by: a few rows carry most squares of skewed targets.
LARGEST_ERROR, ERROR_STANDARD_ERRORS = 1.03, 2.0
# Largest standard deviations for means, in root mean squares of residuals, the first by default: of rows without, some
# are far wider than the residuals of any.
SPREADS = (2.0, 1.0, 0.0, 1e3)
OfMean = tuple[float, float]  # spread and factor, as of `TransformedDistribution`
AS_IT_IS: OfMean = (1.0, 1.0)
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
    value = value.scales if isinstance(value, TargetTransform) else value
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
    raise TypeError(f"{where} must be None, a name, a TargetScale, a transformer or a list of them, got {shown(value)}")


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
    """Scales that leave-one-out scores favoured, gains in nats a row, spreads and factors of means; (n_outputs,).

    ``basis`` is the feature map of the targets on them, where it has been learned meanwhile; ``noise`` is that of gross
    targets.
    """

    transform: TargetTransform | None
    gain: FloatArray | None = None
    spread: FloatArray | None = None
    factor: FloatArray | None = None
    basis: Basis | None = None
    noise: str | None = None


@dataclass(frozen=True)
class OnScale:
    """What a model of an output's targets on a scale says of every row without it.

    ``log_density`` (n_rows,) is in y's units, ``means`` and ``variances`` (n_rows,) are on the scale, ``studentised``
    (n_distinct, 1) residuals of the distinct rows ``first``.
    """

    scale: TargetScale
    log_density: FloatArray
    means: FloatArray
    variances: FloatArray
    studentised: FloatArray
    first: NDArray[np.intp]

    @classmethod
    def each(cls, scales: Sequence[TargetScale], left: LeftOut, y: FloatArray) -> list[OnScale]:
        """Return those of targets (n_rows,) from a model that has an output for each of the scales."""
        units, where = left.model.units, left.where
        density = (left.log_density(units.standardised(on_scales(y, scales))[left.first]) - np.log(units.scale))[where]
        means = (units.location + units.scale * left.found.means)[where]
        variances = (units.scale**2 * (left.epistemic + left.model.mean_noise))[where]
        return [
            cls(scale, density[:, k] + scale.log_derivative(y), means[:, k], variances[:, k], studentised, left.first)
            for k, (scale, studentised) in enumerate(zip(scales, left.found.studentised.T[:, :, None], strict=True))
        ]

    def mean_log_density(self, model: FittedRegressor, y: FloatArray, weight: FloatArray | None) -> float:
        """The mean log density under the noise that a model of this scale alone has chosen."""
        if model.noise is None:
            return float(np.average(self.log_density, weights=weight))
        own = model.noise.candidates.index(model.noise.choices[0])
        derivative = np.average(self.scale.log_derivative(y), weights=weight)
        return float(model.noise.log_densities[own, 0] + derivative)

    def squared_errors(self, y: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, OfMean]:
        """Return squared errors (n_rows,) of means on another scale than y's own, and what means are."""
        low, high = believed(y[:, None], weight)
        base = PredictiveDistribution.gaussian(self.means, self.variances)
        return errors_of_mean(self.scale, base, (float(low[0]), float(high[0])), y, weight)


def errors_of_mean(
    scale: TargetScale,
    base: PredictiveDistribution,
    ends: tuple[float, float],
    y: FloatArray,
    weight: FloatArray | None,
) -> tuple[FloatArray, OfMean]:
    """Return squared errors (n_rows,) of means of `base` on a scale, their spread and factor.

    Errors are least with this spread; another than the first must be better by more than chance. They are zero on
    average with this factor, which is not 1 where targets pile up at a bound, so that no scale fits them, and means are
    too low or high by more than chance.
    """
    unit = float(np.sqrt(np.average((scale.forward(y) - base.mean) ** 2, weights=weight)))
    spreads = [share * unit for share in SPREADS]
    means = [TransformedDistribution(base, scale, *ends, spread).mean for spread in spreads]
    best = int(np.argmin([np.average((y - mean) ** 2, weights=weight) for mean in means]))
    if not is_gain((y - means[0]) ** 2 - (y - means[best]) ** 2, weight, 0.0, LEAST_STANDARD_ERRORS):
        best = 0
    mean, factor, low = means[best], 1.0, ends[0]
    above = float(np.average(mean - low, weights=weight))
    if low > y.min() - np.ptp(y) and above > 0 and (is_gain(y - mean, weight) or is_gain(mean - y, weight)):
        factor = float(np.average(y - low, weights=weight)) / above
        mean = low + factor * (mean - low)
    return (y - mean) ** 2, (spreads[best], factor)


def with_means(units: Units, left: UnseenRows) -> Units:
    """Return the units with the spreads and factors that rows left out favour under the noise that was found."""
    if (target := units.target) is None:
        return units
    y, found = target.transform.inverse(units.location + units.scale * left.targets), []
    for k, (scale, candidate) in enumerate(zip(target.transform.scales, left.candidates, strict=True)):
        base = candidate.distribution.affine(units.scale[k], units.location[k])
        ends = target.lowest[k], target.highest[k]
        found.append(errors_of_mean(scale, base, ends, y[:, k], left.weight)[1])
    spread, factor = np.array(found).T
    return replace(units, spread=spread, factor=factor)


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


def promising(plain: OnScale, others: Sequence[OnScale], weight: FloatArray | None) -> TargetScale | None:
    """Return the scale that gains most over y itself by the kernel of y itself; None where none gains anything."""
    gains = [float(np.average(each.log_density - plain.log_density, weights=weight)) for each in others]
    best = int(np.argmax(gains))
    return others[best].scale if gains[best] > 0 else None


def favoured(
    plain: OnScale, others: Sequence[OnScale], y: FloatArray, weight: FloatArray | None
) -> tuple[int, float, OfMean] | None:
    """Return which of several scales leave-one-out scores favour over y itself, its gain and what means are."""
    gains = {k: each.log_density - plain.log_density for k, each in enumerate(others)}
    worth = [k for k, each in gains.items() if is_gain(each, weight, LEAST_GAIN, LEAST_STANDARD_ERRORS)]
    own = (y - plain.means) ** 2
    errors = {k: others[k].squared_errors(y, weight) for k in worth}
    most = (LARGEST_ERROR - 1) * float(np.average(own, weights=weight))
    worth = [k for k in worth if not is_gain(errors[k][0] - own, weight, most, ERROR_STANDARD_ERRORS)]
    if not worth:
        return None
    means = {k: float(np.average(gains[k], weights=weight)) for k in worth}
    near = [k for k in worth if means[k] > max(means.values()) - ALIKE]  # of those as likely, that of least error
    chosen = min(near, key=lambda k: np.average(errors[k][0], weights=weight))
    return chosen, means[chosen], errors[chosen][1]


def on_scales(y: FloatArray, scales: Sequence[TargetScale]) -> FloatArray:
    """Targets (n_rows,) on several scales, (n_rows, n_scales)."""
    return np.stack([scale.forward(y) for scale in scales], axis=1)


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
