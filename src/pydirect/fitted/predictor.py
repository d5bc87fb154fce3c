"""`Units` of targets and `Predictor`: predictive distributions in y's units, from moments of standardised targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Self, cast

import numpy as np
from scipy.special import ndtri, stdtrit

from pydirect._dense import product
from pydirect._validation import FloatArray
from pydirect.distributions.categorical import gauss_hermite
from pydirect.persistence.schema import AtLeast, Digested, Positive, Shape
from pydirect.predictive.gaussian_mixture import PredictiveDistribution, student_factors
from pydirect.predictive.transformed import Distribution, TargetTransform, TargetUnits
from pydirect.statistics.gaussian import blocks_of, scale_of, weighted_location_scale

LARGEST_TARGET = 1e90
# How far beyond the training targets y is believed where it was transformed: in ranges of theirs, or, of sums over
# rows, in deviations of what is modelled. Share and number of the targets at an end from which nothing is believed
# beyond it.
BELIEVED, BELIEVED_DEVIATIONS, AT_BOUND, ROWS_AT_BOUND = 2.0, 6.0, 0.05, 10
# Rows from which distributions are no wider, and have no heavier tails, for what rows leave open; degrees of freedom of
# fewer: at least, up to which each row adds one, and rows per degree later.
MANY_ROWS, LEAST_DEGREES, DEGREES, ROWS_PER_DEGREE = 500, 3.0, 6.0, 20


@dataclass(frozen=True, eq=False)
class Units:
    """z = (g(y) − location) / scale for every output; constant targets are exact zeros.

    ``log_derivative`` is Σ log g'(y) over the training rows, ``calibration`` a factor of all predictive deviations,
    which was ``fitted_calibration`` after the fit.
    With ``degrees``, y is Student-t of so many degrees of freedom, and as wide as a Gaussian of these deviations.
    On another scale, y is believed between ``lowest`` and ``highest``, and `TransformedDistribution` has ``spread`` and
    ``factor``; ``gain`` are the nats a row by which leave-one-out scores favoured the scale, where they chose it.
    """

    location: Annotated[FloatArray, Shape("n_outputs")]
    scale: Annotated[FloatArray, Shape("n_outputs"), Positive]
    one_dimensional: bool
    transform: TargetTransform | None = None
    log_derivative: Annotated[FloatArray, Shape("n_outputs")] | None = None
    calibration: Annotated[float, Positive] = 1.0
    lowest: Annotated[FloatArray, Shape("n_outputs")] | None = None
    highest: Annotated[FloatArray, Shape("n_outputs")] | None = None
    spread: Annotated[FloatArray, Shape("n_outputs"), AtLeast(0.0)] | None = None
    factor: Annotated[FloatArray, Shape("n_outputs"), AtLeast(0.0)] | None = None
    gain: Annotated[FloatArray, Shape("n_outputs")] | None = None
    degrees: Annotated[float, Positive] | None = None
    fitted_calibration: Annotated[float, Positive] = 1.0

    def check(self) -> None:
        """Raise unless parts are of the same outputs."""
        if self.one_dimensional and self.n_outputs > 1:
            raise ValueError("one_dimensional must be False for several outputs")
        if self.transform is not None and len(self.transform.names) != self.n_outputs:
            raise ValueError("transform must be of the outputs")
        if (self.transform is None) != (self.lowest is None) or (self.lowest is None) != (self.highest is None):
            raise ValueError("lowest and highest must be given with a transform, and only there")
        if self.lowest is not None and self.highest is not None and not (self.lowest < self.highest).all():
            raise ValueError("lowest must be below highest")

    @classmethod
    def fit(
        cls,
        y: FloatArray,
        weight: FloatArray | None,
        one_dimensional: bool,
        transform: TargetTransform | None = None,
        reach: Callable[[FloatArray], FloatArray] | None = None,
    ) -> tuple[Self, FloatArray]:
        """Return units and the standardised targets, (n_rows, n_outputs); `reach` clips transformed targets first."""
        derivative = lowest = highest = None
        if transform is not None:
            slopes = transform.log_derivative(y)
            derivative = slopes.sum(axis=0) if weight is None else weight @ slopes
            lowest, highest = believed(y, weight)
            y = transform.forward(y)
        check_target_size(np.abs(y).max())
        y = y if reach is None else reach(y)
        location, spread = weighted_location_scale(y, weight)
        scale = scale_of(location, spread, len(y))
        units = cls(location, scale, one_dimensional, transform, derivative, lowest=lowest, highest=highest)
        return units, np.where(spread > 0, (y - location) / scale, 0.0)

    @classmethod
    def of_sums(
        cls,
        location: FloatArray,
        scale: FloatArray,
        one_dimensional: bool,
        transform: TargetTransform | None,
        log_derivative: FloatArray,
    ) -> Self:
        """Return the units of targets of which sums are known, transformed if they were."""
        if transform is None:
            return cls(location, scale, one_dimensional, None, log_derivative)
        reach = BELIEVED_DEVIATIONS * scale
        lowest, highest = (
            np.clip(transform.inverse((location + way)[None])[0], -1e99, 1e99) for way in (-reach, reach)
        )
        highest = np.maximum(highest, np.nextafter(lowest, np.inf))
        return cls(location, scale, one_dimensional, transform, log_derivative, lowest=lowest, highest=highest)

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return len(self.scale)

    @property
    def active(self) -> TargetTransform | None:
        """The transform, unless it changes nothing."""
        return None if self.transform is None or self.transform.is_identity else self.transform

    @property
    def density_units(self) -> FloatArray:
        """Σ log g'(y) over the training rows, zero without a transform; (n_outputs,)."""
        return np.zeros(self.n_outputs) if self.log_derivative is None else self.log_derivative

    def calibrated(self, factor: float) -> Self:
        """Return the units with this factor of all predictive deviations."""
        return replace(self, calibration=factor)

    def of_few_rows(self, n_rows: float, heavy_tails: bool = True) -> Self:
        """Return the units for what n rows leave open of noise and amplitude, by heavy tails too, if they are wanted.

        Tails are no lighter than those of `DEGREES`: little is known of the kernel, and of the noise's own tails.
        """
        factor = factor_of_few_rows(n_rows)
        if factor == 1.0 or not heavy_tails:
            return replace(self, calibration=factor, fitted_calibration=factor)
        degrees = max(LEAST_DEGREES, min(n_rows - 1, max(DEGREES, n_rows / ROWS_PER_DEGREE)))
        factor *= float(ndtri(0.95) / stdtrit(degrees, 0.95) * np.sqrt(degrees / (degrees - 2)))
        return replace(self, calibration=factor, fitted_calibration=factor, degrees=degrees)

    @cached_property
    def tails(self) -> tuple[FloatArray, FloatArray]:
        """Weights and factors of variances of the Gaussians of one mean that y's distribution is mixed of, (r,)."""
        weights, factors = student_factors(np.inf if self.degrees is None else self.degrees)
        return weights, factors / (weights @ factors)

    def standardised(self, y: FloatArray) -> FloatArray:
        """Targets (n_rows, n_outputs) as the model sees them."""
        return (self.transformed(y) - self.location) / self.scale

    def transformed(self, y: FloatArray) -> FloatArray:
        """Targets (n_rows, n_outputs) transformed, in their own scale."""
        return y if self.active is None else self.active.forward(y)

    def restored(self, values: FloatArray) -> FloatArray:
        """Map transformed values, whose second axis is that of the outputs, back to y within what is believed."""
        if self.active is None:
            return values
        lowest, highest = (end.reshape(-1, *[1] * (values.ndim - 2)) for end in self._believed)
        return np.clip(self.active.inverse(values), lowest, highest)

    def distribution(self, k: int, base: PredictiveDistribution) -> Distribution:
        """Distribution of y of an output whose transformed values have another."""
        return base if self.target is None else self.target.distribution(k, base)

    @property
    def target(self) -> TargetUnits | None:
        """The way back to y, unless y itself is modelled."""
        if self.active is None:
            return None
        assert self.lowest is not None and self.highest is not None
        return TargetUnits(self.active, self.lowest, self.highest, self.spread, self.factor)

    @property
    def _believed(self) -> tuple[FloatArray, FloatArray]:
        assert self.transform is not None and self.lowest is not None and self.highest is not None
        plain = np.array([name == "identity" for name in self.transform.names])
        return np.where(plain, -np.inf, self.lowest), np.where(plain, np.inf, self.highest)

    def shape(self, values: FloatArray) -> FloatArray:
        """Drop the axis of outputs where y has none."""
        return values[:, 0] if self.one_dimensional else values


def factor_of_few_rows(n_rows: float) -> float:
    """Factor of predictive deviations for what n rows leave open of noise and amplitude, which a kernel has in common.

    Given the rest of the kernel, y is Student-t of n − 1 degrees of freedom, with n/(n − 1) times the likeliest
    variance: the ends of its 90 % intervals over those of a Gaussian. The rest is the likeliest of many that explain
    few rows as well: with (n + 2)/n in its place, intervals of five rows and more cover what they should.
    """
    if n_rows >= MANY_ROWS:
        return 1.0
    n_rows = max(n_rows, 2.0)  # a single row leaves all open
    return float(stdtrit(n_rows - 1, 0.95) / ndtri(0.95) * np.sqrt((n_rows + 2) / n_rows))


def believed(y: FloatArray, weight: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return the ends of what is believed of transformed targets (n_rows, n_outputs): bounds where many of them lie."""
    ends = y.min(axis=0), y.max(axis=0)
    varies, (least, most) = ends[1] > ends[0], ends
    at_least, at_most = (
        varies & ((y == end).sum(axis=0) >= ROWS_AT_BOUND) & (np.average(y == end, axis=0, weights=weight) >= AT_BOUND)
        for end in ends
    )
    reach = BELIEVED * np.where(varies, most - least, np.abs(most) + 1.0)
    return np.where(at_least, least, least - reach), np.where(at_most, most, most + reach)


def check_target_size(size: float) -> None:
    """Raise unless squares of targets stay finite."""
    if not size <= LARGEST_TARGET:
        raise ValueError(f"y must be at most {LARGEST_TARGET:g} in magnitude, got {size:g}")


# Weights (r,), means and variances (n_rows, r) of a Gaussian mixture for every row.
Components = tuple[FloatArray, FloatArray, FloatArray]


class Predictor(Digested):
    """What predicts targets: a subclass knows latent functions and noise of standardised targets, this class y's units.

    Arrays have shape (n_rows, n_outputs) but where y has no axis of outputs.
    """

    units: Units

    @property
    def one_dimensional(self) -> bool:
        """Whether y has no axis of outputs."""
        return self.units.one_dimensional

    @property
    def n_columns(self) -> int:
        """Floats per row while predicting."""
        raise NotImplementedError

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and variance of f, standardised."""
        raise NotImplementedError

    def noise_of(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Weights (r,) and values (n_rows, r) of every output's noise variance, standardised."""
        raise NotImplementedError

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Joint draws of f at the rows of x, (n_rows, n_outputs, n_samples), standardised."""
        raise NotImplementedError

    def covariance(self, x: FloatArray) -> FloatArray:
        """Joint covariance of y at rows, (n_rows, n_rows, n_outputs) or (n_rows, n_rows), in y's units."""
        raise ValueError("return_cov must be False for models other than DirectRegressor's")

    def calibrated(self, factor: float) -> Self:
        """Return the model with this factor of all predictive deviations."""
        return replace(cast(Any, self), units=self.units.calibrated(factor))

    # What the four above imply; subclasses that know better replace it.

    def latent_components(self, x: FloatArray) -> list[Components]:
        """Components of the posterior of f of every output, standardised."""
        mean, variance = self.latent_moments(x, with_variance=True)
        assert variance is not None
        return [(np.ones(1), mean[:, k, None], variance[:, k, None]) for k in range(mean.shape[1])]

    def components(self, x: FloatArray) -> list[Components]:
        """Mixture over posterior components and noise levels of every output, standardised."""
        if self.units.degrees is not None:
            return self.mixed_by_moments(x)
        components = []
        for (alpha, means, variances), (weights, noise) in zip(
            self.latent_components(x), self.noise_of(x), strict=True
        ):
            used = weights > 1e-12
            mixed = np.outer(alpha, weights[used] / weights[used].sum()).ravel()
            spread = (variances[:, :, None] + noise[:, None, used]).reshape(len(x), -1)
            components.append((mixed, np.repeat(means, used.sum(), axis=1), spread))
        return components

    def mixed_by_moments(self, x: FloatArray) -> list[Components]:
        """Gaussians, or Student-t variables of few rows, of the mean and variance of every output, standardised."""
        mean, variance, noise = self.variance_parts(x)
        (weights, factors), total = self.units.tails, variance + noise
        return [
            (weights, np.repeat(mean[:, k, None], len(weights), axis=1), total[:, k, None] * factors)
            for k in range(total.shape[1])
        ]

    def variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of y, variance of f and expected noise variance, standardised."""
        mean, variance = self.latent_moments(x, with_variance=True)
        assert variance is not None
        return mean, variance, self.expected_noise(x)

    def expected_noise(self, x: FloatArray) -> FloatArray:
        """Expected noise variances, (n_rows, n_outputs), standardised."""
        noise = np.empty((len(x), self.units.n_outputs))
        for rows in self.blocks(x):
            for k, (weights, values) in enumerate(self.noise_of(x[rows])):
                noise[rows, k] = product(values, weights)
        return noise

    def noise_draws(self, x: FloatArray, k: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Noise variances of output k that draws have, (n_samples,) or (n_rows, n_samples)."""
        weights, values = self.noise_of(x[:1])[k]
        return rng.choice(values[0], n_samples, p=weights / weights.sum())

    def noise_values(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draws of the noise, (n_rows, n_outputs, n_samples), standardised."""
        values = np.empty((len(x), self.units.n_outputs, n_samples))
        for k in range(values.shape[1]):
            sd = np.sqrt(self.noise_draws(x, k, n_samples, rng))
            values[:, k] = sd * rng.standard_normal((len(x), n_samples))
        return values

    def draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        """Draws of f, calibrated, plus noise or not, (n_rows, n_outputs, n_samples), standardised."""
        factor: FloatArray | float = self.units.calibration
        if self.units.degrees is not None:  # first: a draw is the same whatever rows there are
            weights, factors = self.units.tails
            factor = factor * np.sqrt(rng.choice(factors, n_samples, p=weights))
        values = self.latent_draws(x, n_samples, rng)
        if noise:
            values += self.noise_values(x, n_samples, rng)
        if isinstance(factor, float) and factor == 1.0:
            return values
        mean = self.latent_moments(x, with_variance=False)[0][:, :, None]
        return mean + factor * (values - mean)

    # In y's units.

    def blocks(self, x: FloatArray, n_columns: int | None = None) -> Iterator[slice]:
        """Slices of rows that fit into memory while predicting."""
        return blocks_of(len(x), self.n_columns if n_columns is None else n_columns)

    def predict(self, x: FloatArray, with_std: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and standard deviation of y."""
        units = self.units
        if units.active is not None:
            mean, variance = self.moments_in_units(x)
            return units.shape(mean), units.shape(np.sqrt(variance)) if with_std else None
        if not with_std:
            return units.shape(units.location + units.scale * self.latent_moments(x, with_variance=False)[0]), None
        mean, variance, noise = self.variance_parts(x)
        std = np.sqrt(units.calibration**2 * (variance + noise))
        return units.shape(units.location + units.scale * mean), units.shape(units.scale * std)

    def moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of y, standardised and calibrated."""
        mean, variance, noise = self.variance_parts(x)
        return mean, self.units.calibration**2 * (variance + noise)

    def moments_in_units(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of y through its distributions, where it was transformed."""
        mean, variance = np.empty((2, len(x), self.units.n_outputs))
        for rows in self.blocks(x):  # mixtures have many components
            found = self.distributions(x[rows])
            mean[rows] = np.stack([d.mean for d in found], axis=1)
            variance[rows] = np.stack([d.variance for d in found], axis=1)
        return mean, variance

    def parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, epistemic and aleatoric standard deviations of y."""
        units = self.units
        location, variance, noise = self.variance_parts(x)
        location, factor = units.location + units.scale * location, units.calibration * units.scale
        if units.active is None:
            return units.shape(location), units.shape(factor * np.sqrt(variance)), units.shape(factor * np.sqrt(noise))
        mean, total = self.moments_in_units(x)
        epistemic, variance = np.empty_like(total), factor**2 * variance
        for k, (own, known) in enumerate(zip(self.distributions(x), variance.T, strict=True)):
            epistemic[:, k] = np.minimum(_explained_variance(own, location[:, k], known), total[:, k])
        return units.shape(mean), units.shape(np.sqrt(epistemic)), units.shape(np.sqrt(total - epistemic))

    def distributions(self, x: FloatArray) -> list[Distribution]:
        """Distribution of y at every row, one per output."""
        blocks, units = [self.components(x[rows]) for rows in self.blocks(x)], self.units
        found: list[PredictiveDistribution] = []
        for k, (location, scale) in enumerate(zip(units.location, units.scale, strict=True)):
            weights = blocks[0][k][0]
            means, variances = (np.concatenate([block[k][part] for block in blocks]) for part in (1, 2))
            middle, spread = product(means, weights)[:, None], units.calibration * scale
            means = location + scale * middle + spread * (means - middle)
            found.append(PredictiveDistribution(weights, means, spread**2 * variances))
        return [units.distribution(k, each) for k, each in enumerate(found)]

    def interval(self, x: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """Ends of central intervals."""
        lower, upper = zip(*(d.interval(level) for d in self.distributions(x)), strict=True)
        return self.units.shape(np.stack(lower, axis=1)), self.units.shape(np.stack(upper, axis=1))

    def quantiles(self, x: FloatArray, quantiles: FloatArray) -> FloatArray:
        """Quantiles, (n_rows, n_outputs, n_quantiles) or (n_rows, n_quantiles)."""
        return self.units.shape(np.stack([d.quantile(quantiles) for d in self.distributions(x)], axis=1))

    def log_density(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Log density of targets (n_rows, n_outputs), nats."""
        found = [d.log_density(y[:, k]) for k, d in enumerate(self.distributions(x))]
        return self.units.shape(np.stack(found, axis=1))

    def sample(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        """Draws of y, or of f without noise, (n_rows, n_outputs, n_samples) or (n_rows, n_samples)."""
        units, values = self.units, self.draws(x, n_samples, rng, noise)
        return units.shape(units.restored(units.location[:, None] + units.scale[:, None] * values))

    def calibration_of(self, x: FloatArray, y: FloatArray, weight: FloatArray | None) -> float:
        """Root mean square of standardised residuals of rows that were not trained on."""
        mean, variance = self.moments(x)
        squares = (self.units.standardised(y) - mean) ** 2 / (variance / self.units.calibration**2)
        scale = float(np.sqrt(np.average(squares, axis=0, weights=weight).mean()))
        return scale if scale > 1e-6 else 1.0  # rounding errors say nothing about the scale


def _explained_variance(own: Distribution, location: FloatArray, variance: FloatArray) -> FloatArray:
    """Variance of E(y | f) over f, normal with these moments, where the noise about it is the same for all f."""
    if isinstance(own, PredictiveDistribution):
        return variance
    nodes, weights = gauss_hermite(9)
    f = location[:, None] + np.sqrt(variance)[:, None] * nodes
    noise = np.broadcast_to(np.maximum(own.base.variance - variance, 0.0)[:, None], f.shape)
    given = replace(own, base=PredictiveDistribution.gaussian(f.ravel(), noise.ravel()), spread=np.inf, factor=1.0)
    means = given.mean.reshape(f.shape)
    middle = np.sum(means * weights, axis=1, keepdims=True)
    return np.asarray(np.sum(np.square(means - middle) * weights, axis=1))
