"""`FittedRegressor`: a fitted regression as frozen data that predicts and draws, also of rows left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pydirect._dense import product
from pydirect._threads import ordered_map, resolve_n_threads
from pydirect._validation import FloatArray, short_repr
from pydirect._warnings import warn
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.features.basis import Basis
from pydirect.features.residual import draw_residual, residual_covariances
from pydirect.features.rows import TrainingRows
from pydirect.fitted.predictor import Components, Predictor, Units
from pydirect.linear.functions import LARGE_ROTATION, LatentVariances, with_precision
from pydirect.linear.leave_one_out import LeaveOneOut, leave_one_out
from pydirect.linear.posterior import GaussianPosterior, posterior_for_rows
from pydirect.noise.local import LocalProcess
from pydirect.noise.model import CONSTANT, NoiseModel
from pydirect.persistence.schema import As, AtLeast, Between, Binds, Digested, Positive, Shape
from pydirect.predictive.gaussian_mixture import PredictiveDistribution
from pydirect.quantized.fitted import FittedBasisModel, Outputs
from pydirect.statistics.gaussian import blocks_of, collect_statistics
from pydirect.statistics.rotated import RotatedStatistics, decorrelate
from pydirect.tables.encoding import Gapped

# Rows that one thread predicts at a time: enough that BLAS packs the matrix of deviations rarely.
CHUNK_ROWS = 512
AnyPosterior = GaussianPosterior | MeanFieldPosterior | MixturePosterior | SequentialPosterior


@dataclass(frozen=True, eq=False)
class Latent:
    """f = Φ(x) w with weights w = prior_scale · v, where v has the posterior; standardised units.

    ``coefficients`` (n_weights, n_outputs) are posterior means of w, ``function_weights`` (n_outputs, n_functions)
    those of k(x, Z), or of Φ where there are no landmarks. ``residual_variance`` is the mean Nyström residual variance
    over the training rows, which the noise accounts for.
    """

    basis: Annotated[Basis, Binds(n_weights="n_weights", n_features_in="n_features_in")]
    posteriors: Annotated[tuple[Any, ...], As(tuple[AnyPosterior, ...])]
    prior_scale: Annotated[FloatArray, Shape("n_outputs"), Positive]
    residual_variance: Annotated[float, AtLeast(0.0)]
    coefficients: Annotated[FloatArray, Shape("n_weights", "n_outputs")]
    function_weights: Annotated[FloatArray, Shape("n_outputs", "n_weights")]

    __repr__ = short_repr

    def check(self) -> None:
        """Raise unless there is a posterior of one kind for every output."""
        if len(self.posteriors) != self.n_outputs or len({type(posterior) for posterior in self.posteriors}) != 1:
            raise ValueError(f"posteriors must be {self.n_outputs} of one kind")
        if any(posterior.mean.ndim != 1 for posterior in self.posteriors):
            raise ValueError("posteriors must be of one output each")

    @classmethod
    def of(
        cls,
        basis: Basis,
        fitted: Sequence[tuple[Any, float]],
        residual_variance: float,
        single_from: int = LARGE_ROTATION,
    ) -> Self:
        """Return the function of posteriors and prior deviations; rotations from `single_from` entries as float32."""
        posteriors, scale = [posterior for posterior, _ in fitted], np.array([scale for _, scale in fitted])
        means = np.stack([s * p.coefficients for p, s in zip(posteriors, scale, strict=True)], axis=1)
        weights = np.ascontiguousarray(basis.weights_of_functions(means).T)
        stored = tuple(with_precision(posteriors, np.float32, single_from))
        return cls(basis, stored, scale, residual_variance, means, weights)

    @property
    def n_outputs(self) -> int:
        """Number of latent functions."""
        return len(self.prior_scale)

    @property
    def n_columns(self) -> int:
        """Number of columns of Φ."""
        return self.basis.n_weights

    @property
    def n_inputs(self) -> int:
        """Number of scaled inputs of the feature map."""
        return self.basis.input_map.n_outputs

    @cached_property
    def _variances(self) -> LatentVariances:
        return LatentVariances(self.basis, self.posteriors, self.prior_scale, self.residual_variance)

    def split(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return rows of known inputs, and the variances of f that further columns of x are, if any; see `gapped`.

        Those of effects of categories are among the inputs.
        """
        n, more = self.basis.n_features_in, np.repeat(self.effects(x)[1], self.n_outputs, axis=1)
        return (x, more) if x.shape[1] <= n else (x[:, :n], x[:, n:] + more)

    def each_effect(self, x: FloatArray) -> FloatArray:
        """Return means, variances and codes of effects of categories, (n_rows, n_effects, n_functions + 2)."""
        columns = self.basis.columns
        return np.zeros((len(x), 0, 3)) if columns is None else columns.effects_of(x)

    def effects(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what effects of categories add to f, (n_rows, n_functions), and the variance of that, (n_rows, 1)."""
        moments = self.each_effect(x)[:, :, :-1].sum(axis=1)
        return moments[:, :-1], moments[:, -1:]

    def require_no_effects(self, what: str) -> None:
        """Raise if there are effects of categories."""
        if self.basis.columns is not None and self.basis.columns.effects:
            raise ValueError(f"{what} are not available with effects of categories: use columns=Columns(effects=False)")

    def phi(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Inputs of the map, and Φ (n_rows, n_weights)."""
        inputs = self.basis.inputs(x)
        return inputs, np.ascontiguousarray(self.basis.map.transform(inputs, np.float64, resolve_n_threads()))

    def beyond(self, inputs: FloatArray, phi: FloatArray) -> FloatArray:
        """Variance of f that the basis functions lack, (n_rows, n_outputs)."""
        return self.basis.missing_variance(inputs, phi, self.residual_variance)[:, None] * self.prior_scale**2

    def moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and variance of f, (n_rows, n_outputs) each."""
        x, more = self.split(x)
        mean, variance = np.empty((2, len(x), self.n_outputs))
        if self.basis.map.kind == "transformer":  # which several threads might not be allowed to use
            n_threads, size = 1, max(len(x), 1)
        else:
            n_threads, size = resolve_n_threads(), CHUNK_ROWS
            if with_variance:
                self._variances.prepare()

        def predict(rows: slice) -> None:
            inputs = self.basis.inputs(x[rows])
            functions = self.basis.functions(inputs)
            # In double precision: where landmarks are close, large terms cancel.
            mean[rows] = product(functions, self.function_weights.T)
            if with_variance:
                variance[rows] = self._variances.of(inputs, functions)

        chunks = [slice(begin, begin + size) for begin in range(0, len(x), size)]
        if min(n_threads, len(chunks)) <= 1:
            for rows in chunks:
                predict(rows)
        else:
            for _ in ordered_map(predict, iter(chunks), min(n_threads, len(chunks))):
                pass
        mean += self.effects(x)[0]
        return mean, variance + more if with_variance else None

    def components(self, x: FloatArray) -> list[Components]:
        """Components of the posterior of f of every output, of mixtures."""
        x, more = self.split(x)
        inputs, phi = self.phi(x)
        beyond, added, found = self.beyond(inputs, phi), self.effects(x)[0], []
        for k, (posterior, scale) in enumerate(zip(self.posteriors, self.prior_scale, strict=True)):
            means, variances = posterior.component_moments(phi, resolve_n_threads())
            variances = scale**2 * variances + beyond[:, k, None] + more[:, k, None]
            found.append((posterior.alpha, scale * means + added, variances))
        return found

    def covariance(self, x: FloatArray) -> FloatArray:
        """Joint covariance of f at the rows of x under Gaussian posteriors, (n_outputs, n_rows, n_rows)."""
        x, more = self.split(x)
        inputs, phi = self.phi(x)
        residual = residual_covariances(self.basis, inputs, phi, self.residual_variance)
        found, rows = np.stack([s**2 * (p.covariances(phi, phi) + residual) for p, s in self._scaled()]), range(len(x))
        found[:, rows, rows] += np.maximum(more - self.effects(x)[1], 0.0).T
        for *_, variance, code in self.each_effect(x).transpose(1, 2, 0):
            found += np.sqrt(np.outer(variance, variance)) * np.equal.outer(code, code)
        return found

    def quantizable(self, outputs: Outputs) -> FittedBasisModel:
        """The functions as integers are made of them, and their units."""
        self.require_no_effects("models as integers")
        return FittedBasisModel(self.basis, list(self.posteriors), self.prior_scale, self.residual_variance, outputs)

    def draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Joint draws of f at the rows of x, (n_rows, n_outputs, n_samples)."""
        x, more = self.split(x)
        values, draw = np.empty((len(x), self.n_outputs, n_samples)), self.sampler(n_samples, rng)
        for rows in blocks_of(len(x), self.n_columns):
            values[rows] = draw(x[rows])
        inputs, n_draws = self.basis.inputs(x), self.n_outputs * n_samples
        residual = draw_residual(self.basis, inputs, self.residual_variance, n_draws, rng, resolve_n_threads())
        if residual is not None:
            values += self.prior_scale[:, None] * residual.reshape(values.shape)
        more = np.maximum(more - self.effects(x)[1], 0.0)  # of effects the sampler knows
        if more.any():
            values += np.sqrt(more)[:, :, None] * rng.standard_normal(values.shape)
        return values

    def sampler(self, n_samples: int, rng: np.random.Generator) -> Callable[[FloatArray], FloatArray]:
        """Draw weights once; return their functions, from rows to (n_rows, n_outputs, n_samples)."""
        weights = [s * p.sample_weights(n_samples, rng) for p, s in self._scaled()]
        seeds = self.effect_seeds(n_samples, rng)

        def draw(rows: FloatArray) -> FloatArray:
            _, phi = self.phi(rows)
            found = np.stack([product(phi, w.T, resolve_n_threads()) for w in weights], axis=1)
            found += self.effects(rows)[0][:, :, None]
            self.add_effect_draws(found, rows, seeds)
            return found

        return draw

    def effect_seeds(self, n_samples: int, rng: np.random.Generator) -> NDArray[np.uint64]:
        """Return what draws of effects of categories follow from, (n_samples,)."""
        columns = self.basis.columns
        some = columns is not None and columns.effects
        return rng.integers(2**63, size=n_samples, dtype=np.uint64) if some else np.zeros(n_samples, np.uint64)

    def add_effect_draws(
        self, values: FloatArray, x: FloatArray, seeds: NDArray[np.uint64], factor: float = 1.0
    ) -> None:
        """Add draws of effects about their means, the same wherever a category comes again.

        - `values`: (n_rows, n_outputs, n_samples).
        """
        for j, (*means, variance, code) in enumerate(self.each_effect(x).transpose(1, 2, 0)):
            for k in range(len(means)):  # effects on one function for all outputs, or one for each
                numbers = code.astype(np.uint64) + (np.uint64(j * len(means) + k) << np.uint64(32))
                draws = factor * np.sqrt(variance)[:, None] * hashed_normals(numbers, seeds)
                values[:, slice(None) if len(means) == 1 else [k]] += draws[:, None]

    def _scaled(self) -> list[tuple[Any, float]]:
        return list(zip(self.posteriors, self.prior_scale, strict=True))


def hashed_normals(numbers: NDArray[np.uint64], seeds: NDArray[np.uint64]) -> FloatArray:
    """Standard normal numbers of pairs of integers, (n_numbers, n_seeds), by splitmix64 (Steele et al. 2014)."""
    z = numbers[:, None] * np.uint64(0x9E3779B97F4A7C15) + seeds
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z ^= z >> np.uint64(31)
    return np.asarray(ndtri((z >> np.uint64(11)) * 2.0**-53 + 2.0**-54))


def of_part(part: str, name: str, doc: str = "") -> Any:
    """Return a property that is the one of a part of a model."""
    return property(attrgetter(f"{part}.{name}"), doc=doc)


class OfLatent(Digested):
    """What models of one `Latent` share."""

    latent: Latent
    untold: FloatArray | None = None  # share that an indicator leaves open, of models that know it

    basis = of_part("latent", "basis", "Feature map of the latent functions.")
    n_columns = of_part("latent", "n_columns", "Floats per row while predicting.")
    posteriors = of_part("latent", "posteriors", "Posteriors of the weights, one per latent function.")

    @property
    def elbo_units(self) -> FloatArray:
        """What the bounds lose in the data's own units: nothing."""
        return np.zeros(self.latent.n_outputs)

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and variance of the latent functions, (n_rows, n_outputs) each."""
        return self.latent.moments(x, with_variance)

    def gapped(self, x: FloatArray, parts: Iterable[Gapped]) -> FloatArray:
        """Append to rows the variance of f that comes from inputs which are only expected, (n_rows, n_outputs).

        The variances are about the mean at what is expected, the first, which stays the prediction.
        """
        variance = self.variances_of_missing(x, parts)
        return np.hstack([x, variance]) if variance.any() else x

    def variances_of_missing(self, x: FloatArray, parts: Iterable[Gapped]) -> FloatArray:
        """Variance of f that comes from inputs which are only expected, (n_rows, n_outputs); see `gapped`."""
        variance = np.zeros((len(x), self.latent.n_outputs))
        for chosen, places, told in parts:
            means = self.latent_moments(places.reshape(-1, x.shape[1]), False)[0].reshape(*places.shape[:2], -1)
            variance[chosen] = np.mean((means[1:] - means[0]) ** 2, axis=0)
            if self.untold is not None:
                variance[chosen[told]] *= self.untold
        return variance


OF_FUNCTIONS = "draws of functions, which it has none of,"


class LocalProcessWarning(UserWarning):
    """What was asked for leaves out the model's local process."""


@dataclass(frozen=True, eq=False, repr=False)
class FittedRegressor(OfLatent, Predictor):
    """Latent functions, noise and units of a fitted regressor.

    ``noise`` is None for the constant noise of the posteriors, ``local`` a process on the residuals of neighbours, or
    None; ``local_gain`` the nats per row that a process was worth where one was tried. ``n_samples`` is the sum of the
    weights, ``repetitions`` how many of them count as one row that tells of the noise,
    ``untried`` why kinds of noise were not compared, ``log_weights`` half the sum of the log precisions of rows,
    ``untold`` see `TrainingRows`.
    """

    latent: Annotated[Latent, Binds(n_outputs="n_outputs", n_inputs="n_inputs")]
    units: Units
    n_samples: Annotated[float, Positive]
    repetitions: Annotated[float, AtLeast(0.0)] = 1.0
    noise: NoiseModel | None = None
    local: LocalProcess | None = None
    local_gain: float | None = None
    untried: str | None = None
    log_weights: float = 0.0
    untold: Annotated[FloatArray, Shape("n_outputs"), Between(0.0, 1.0)] | None = None

    def check(self) -> None:
        """Raise unless the posteriors know the noise."""
        if any(posterior.noise is None or posterior.outcome is None for posterior in self.posteriors):
            raise ValueError("posteriors must have a noise and an outcome")

    # --- moments

    def precisions(self, x: FloatArray, parts: Iterable[Gapped]) -> FloatArray:
        """Precisions of targets about f, relative to rows of which nothing is missing, (n_rows,); see `gapped`."""
        return relative_precisions(self.mean_noise, self.variances_of_missing(x, parts))

    @property
    def mean_noise(self) -> FloatArray:
        """Expected noise variance, averaged over the training rows, standardised, (n_outputs,)."""
        return mean_noise(self.posteriors) if self.noise is None else self.noise.mean_variance

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        return self.latent.moments(x, with_variance) if self.local is None else self._with_local(x)[:2]

    def latent_components(self, x: FloatArray) -> list[Components]:
        is_mixture = isinstance(self.posteriors[0], MixturePosterior)
        return self.latent.components(x) if is_mixture else super().latent_components(x)

    def noise_of(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        constant = [
            (p.noise.q, np.broadcast_to(p.noise.levels, (len(x), len(p.noise.levels)))) for p in self.posteriors
        ]
        if self.noise is None:
            return constant
        own = self.noise.of(self.latent.split(x)[0], resolve_n_threads())
        return [noise if mixture is None else mixture for noise, mixture in zip(constant, own, strict=True)]

    def _with_local(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of y, variance of f and noise variance with the local process, (n_rows, n_outputs) each."""
        assert self.local is not None
        mean, _ = self.latent.moments(x, with_variance=False)
        x, more = self.latent.split(x)
        detail = self.local.predict(self.basis.inputs(x), resolve_n_threads())
        return mean + detail.mean, detail.variance + more, detail.noise

    def variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self.local is not None:
            return self._with_local(x)
        mean, variance = self.latent.moments(x, with_variance=True)
        assert variance is not None
        return mean, variance, self.expected_noise(x)

    def components(self, x: FloatArray) -> list[Components]:
        return super().components(x) if self.local is None else self.mixed_by_moments(x)

    def covariance(self, x: FloatArray) -> FloatArray:
        """Joint covariance of y, noise included, (n_rows, n_rows, n_outputs) or (n_rows, n_rows)."""
        self.require_gaussian("a joint covariance")
        found, unit = self.latent.covariance(x), (self.units.calibration * self.units.scale) ** 2
        rows = np.arange(len(x))
        found[:, rows, rows] += self.expected_noise(x).T
        found = np.moveaxis(unit[:, None, None] * found, 0, 2)
        return found[:, :, 0] if self.units.one_dimensional else found

    # --- draws

    def sample(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        return super(FittedRegressor, self.without_local(OF_FUNCTIONS)).sample(x, n_samples, rng, noise)

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return self.latent.draws(x, n_samples, rng)

    def noise_draws(self, x: FloatArray, k: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        if self.noise is None or self.noise.choices[k] == CONSTANT:
            return super().noise_draws(x, k, n_samples, rng)
        drawn = np.empty((len(x), n_samples))
        for rows in self.blocks(x):
            weights, values = self.noise_of(x[rows])[k]
            node = rng.choice(len(weights), (len(values), n_samples), p=weights)
            drawn[rows] = np.take_along_axis(values, node, axis=1)
        return drawn

    def require_gaussian(self, what: str, hint: str = "") -> None:
        """Raise ValueError unless y is a Gaussian process; `hint`: what there is with discrete weights instead."""
        obstacles = {
            f"discrete weights{hint}": not isinstance(self.posteriors[0], GaussianPosterior),
            "a local process: fit with local=False": self.local is not None,
            f"a model of {self.units.active}: fit with target_transform=None": self.units.active is not None,
        }
        for obstacle in (words for words, stands in obstacles.items() if stands):
            raise ValueError(f"{what} is not available with {obstacle}")

    def without_local(self, what: str) -> Self:
        """Return the model of all rows alone, with a warning that `what` leaves out the local process."""
        if self.local is None:
            return self
        warn(f"{what} leave out the model's local process: fit with local=False to agree", LocalProcessWarning)
        return replace(self, local=None)

    # --- results

    @property
    def effective_rows(self) -> float:
        """Rows that tell of the noise: the sum of the weights over repetitions."""
        return self.n_samples / self.repetitions

    @property
    def elbo_units(self) -> FloatArray:
        """What the bound of standardised targets loses in y's own units, (n_outputs,)."""
        rows = self.effective_rows
        lost = rows * np.log(self.units.scale) - self.units.density_units * (rows / self.n_samples)
        return lost - (self.log_weights if self.noise is None else self.noise.log_weights)

    def quantizable(self, n_features_in: int, feature_names: tuple[str, ...]) -> FittedBasisModel:
        """The model as integers are made of it, without its local process."""
        latent = self.without_local("quantised models, which hold no training rows,").latent
        outputs = Outputs(
            scale=self.units.scale,
            offset=self.units.location,
            noise=self.mean_noise * self.units.scale**2,
            calibration=self.units.calibration,
            one_dimensional=self.units.one_dimensional,
            n_features_in=n_features_in,
            feature_names=feature_names,
            target=self.units.target,
        )
        return latent.quantizable(outputs)


def relative_precisions(noise: FloatArray, missing: FloatArray) -> FloatArray:
    """σ²/(σ² + v) of rows, (n_rows,), by the output of which each tells most, given σ² (n_outputs,) and v."""
    return np.asarray((noise / (noise + missing)).max(axis=1))


def mean_noise(posteriors: Any) -> FloatArray:
    """Expected noise variances of posteriors, (n_outputs,)."""
    return np.array([posterior.noise.variance for posterior in posteriors])


@dataclass(frozen=True)
class LeftOut:
    """One model's predictions of distinct rows, all copies of a row left out at a time.

    ``first`` are distinct rows, ``where`` the distinct row of each row, ``count`` their weights, ``precision`` that of
    each target, ``epistemic`` the variance of f, (n_distinct, n_outputs).
    """

    model: FittedRegressor
    found: LeaveOneOut
    first: NDArray[np.intp]
    where: NDArray[np.intp]
    count: FloatArray
    precision: FloatArray
    epistemic: FloatArray

    def log_density(self, targets: FloatArray) -> FloatArray:
        """Log density of standardised targets of the distinct rows, (n_distinct, n_outputs)."""
        densities = np.empty_like(targets)
        for k, spread in enumerate(self.epistemic.T):
            noise = self.model.posteriors[k].noise
            mixture = PredictiveDistribution(noise.q, self.found.means[:, k, None], spread[:, None] + noise.levels)
            densities[:, k] = mixture.log_density(targets[:, k])
        return densities


def left_out(
    models: Sequence[FittedRegressor], rows: TrainingRows, rotated: RotatedStatistics | None = None
) -> list[LeftOut]:
    """Predict every row without itself by models of one feature map, given their sums over the rows or not.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor
    >>> from pydirect.features.rows import TrainingRows
    >>> from pydirect.fitted import left_out
    >>> x, y = np.linspace(-1.0, 1.0, 20)[:, None], np.linspace(-1.0, 1.0, 20)
    >>> fitted = DirectRegressor(features="linear", noise=0.5, target_transform=None).fit(x, y).model_
    >>> [own] = left_out([fitted], TrainingRows(x, y[:, None] / fitted.units.scale, None))
    >>> bool((abs(own.found.means[:, 0] * fitted.units.scale) < abs(y)).all())  # the prior draws them to zero
    True
    """
    lead = models[0].latent
    if rotated is None:
        basis = lead.basis.for_sums(len(rows.x), 0.0)  # of Φ: nothing magnifies their rounding
        rotated = decorrelate(collect_statistics(basis.map, basis.inputs(rows.x), rows.y, rows.information))
    first, count, where = rows.merged
    x, y, one = rows.x[first], rows.y[first], rows.counts.left_out(count)
    precision = rows.precisions[first]
    tau = np.array([[p.noise.precision / model.repetitions for p in model.posteriors] for model in models])
    together = replace(rotated, c=np.tile(rotated.c, len(models)), yty=np.tile(rotated.yty, len(models)))
    prior_variance = np.concatenate([model.latent.prior_scale for model in models]) ** 2
    posterior = posterior_for_rows(together, tau.ravel(), prior_variance)
    mean, variance, residual = np.zeros((3, len(x), len(models), rotated.n_outputs))
    for block in models[0].blocks(x):
        inputs, phi = lead.phi(x[block])
        moments = posterior.moments(phi)
        mean[block], variance[block] = (moment.reshape(mean[block].shape) for moment in moments)
        for m, model in enumerate(models):
            residual[block, m] = model.latent.beyond(inputs, phi)
    results = []
    for m, model in enumerate(models):
        precisions = (one * precision)[:, None] * tau[m]
        missing = residual[:, m] + np.outer(1 / precision - 1, model.mean_noise)
        found = leave_one_out(y, mean[:, m], variance[:, m], precisions, model.mean_noise, missing)
        results.append(LeftOut(model, found, first, where, count, precisions, found.latent_variances + missing))
    return results
