"""`FittedRegressor`: a fitted regression as frozen data that predicts and draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, short_repr
from pydirect._warnings import warn
from pydirect.features.basis import Basis
from pydirect.fitted.latent import Latent
from pydirect.fitted.predictor import Components, Predictor
from pydirect.fitted.units import Units
from pydirect.noise.local import LocalProcess
from pydirect.noise.model import CONSTANT, NoiseModel
from pydirect.persistence.schema import AtLeast, Binds, Positive
from pydirect.quantized.fitted import FittedBasisModel, Outputs


class LocalProcessWarning(UserWarning):
    """What was asked for leaves out the model's local process."""


@dataclass(frozen=True, eq=False)
class FittedRegressor(Predictor):
    """Latent functions, noise and units of a fitted regressor.

    ``noise`` is None for the constant noise of the posteriors, ``local`` a process on the residuals of neighbours, or
    None; ``local_gain`` the nats per row that a process was worth where one was tried. ``n_samples`` is the sum of the
    weights, ``repetitions`` how many of them count as one row that tells of the noise,
    ``untried`` why kinds of noise were not compared.
    """

    latent: Annotated[Latent, Binds(n_outputs="n_outputs", n_inputs="n_inputs")]
    units: Units
    n_samples: Annotated[float, Positive]
    repetitions: Annotated[float, AtLeast(0.0)] = 1.0
    noise: NoiseModel | None = None
    local: LocalProcess | None = None
    local_gain: float | None = None
    untried: str | None = None

    __repr__ = short_repr

    def check(self) -> None:
        """Raise unless the posteriors know the noise."""
        if any(posterior.noise is None or posterior.outcome is None for posterior in self.posteriors):
            raise ValueError("posteriors must have a noise and an outcome")

    # --- moments

    @property
    def basis(self) -> Basis:
        """Feature map of the latent functions."""
        return self.latent.basis

    @property
    def n_columns(self) -> int:
        return self.latent.n_columns

    @property
    def posteriors(self) -> tuple[Any, ...]:
        """Posteriors of the weights, one per output."""
        return self.latent.posteriors

    @property
    def mean_noise(self) -> FloatArray:
        """Expected noise variance, averaged over the training rows, standardised, (n_outputs,)."""
        return mean_noise(self.posteriors) if self.noise is None else self.noise.mean_variance

    def latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        return self.latent.moments(x, with_variance) if self.local is None else self._with_local(x)[:2]

    def latent_components(self, x: FloatArray) -> list[Components]:
        return self.latent.components(x)

    def noise_of(self, x: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        constant = [
            (p.noise.q, np.broadcast_to(p.noise.levels, (len(x), len(p.noise.levels)))) for p in self.posteriors
        ]
        if self.noise is None:
            return constant
        own = self.noise.of(x, resolve_n_threads())
        return [noise if mixture is None else mixture for noise, mixture in zip(constant, own, strict=True)]

    def _with_local(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean of y, variance of f and noise variance with the local process, (n_rows, n_outputs) each."""
        assert self.local is not None
        mean, _ = self.latent.moments(x, with_variance=False)
        detail = self.local.predict(self.basis.inputs(x), resolve_n_threads())
        return mean + detail.mean, detail.variance, detail.noise

    def variance_parts(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self.local is not None:
            return self._with_local(x)
        mean, variance = self.latent.moments(x, with_variance=True)
        assert variance is not None
        return mean, variance, self.expected_noise(x)

    def components(self, x: FloatArray) -> list[Components]:
        if self.local is None:
            return super().components(x)
        mean, variance, noise = self._with_local(x)
        total = variance + noise
        return [(np.ones(1), mean[:, k, None], total[:, k, None]) for k in range(mean.shape[1])]

    def cumulants(self, x: FloatArray) -> FloatArray:
        """First four cumulants of y, (4, n_rows, n_outputs), in y's units."""
        found = np.zeros((4, len(x), self.units.n_outputs))
        if self.local is not None:
            found[0], variance, noise = self._with_local(x)
            found[1] = variance + noise
        else:
            for rows in self.blocks(x):
                found[:, rows] = self.latent.cumulants(x[rows])
                for k, (weights, noise) in enumerate(self.noise_of(x[rows])):
                    found[1, rows, k] += noise @ weights
                    found[3, rows, k] += 3 * (noise**2 @ weights - (noise @ weights) ** 2)
        found *= self.units.scale ** np.arange(1, 5)[:, None, None]
        found[0] += self.units.location
        return found[:, :, 0] if self.units.one_dimensional else found

    # --- draws

    def latent_draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return self.latent.draws(x, n_samples, rng)

    def noise_draws(self, x: FloatArray, k: int, n_samples: int, rng: np.random.Generator) -> FloatArray:
        if self.noise is None or self.noise.choices[k] == CONSTANT:
            noise = self.posteriors[k].noise
            return rng.choice(noise.levels, n_samples, p=noise.q / noise.q.sum())
        drawn = np.empty((len(x), n_samples))
        for rows in self.blocks(x):
            weights, values = self.noise_of(x[rows])[k]
            node = rng.choice(len(weights), (len(values), n_samples), p=weights)
            drawn[rows] = np.take_along_axis(values, node, axis=1)
        return drawn

    def without_local(self, what: str, stacklevel: int = 3) -> Self:
        """Return the model of all rows alone, with a warning that `what` leaves out the local process."""
        if self.local is None:
            return self
        warn(
            f"{what} leave out the model's local process: fit with local=False where predictions are to agree "
            "with them",
            LocalProcessWarning,
            stacklevel=stacklevel + 1,
        )
        return replace(self, local=None)

    # --- results

    @property
    def effective_rows(self) -> float:
        """Rows that tell of the noise: the sum of the weights over repetitions."""
        return self.n_samples / self.repetitions

    def calibrated(self, factor: float) -> Self:
        """Return the model with this factor of all predictive deviations."""
        return replace(self, units=self.units.calibrated(factor))

    @property
    def elbo_units(self) -> FloatArray:
        """What the bound of standardised targets loses in y's own units, (n_outputs,)."""
        rows = self.effective_rows
        lost = rows * np.log(self.units.scale) - self.units.density_units * (rows / self.n_samples)
        return lost if self.noise is None else lost - self.noise.log_weights

    def quantizable(self, n_features_in: int, feature_names: tuple[str, ...]) -> FittedBasisModel:
        """The model as integers are made of it, without its local process."""
        latent = self.without_local("quantised models, which hold no training rows,", stacklevel=5).latent
        units = self.units
        outputs = Outputs(
            scale=units.scale,
            offset=units.location,
            noise=self.mean_noise * units.scale**2,
            calibration=units.calibration,
            one_dimensional=units.one_dimensional,
            n_features_in=n_features_in,
            feature_names=feature_names,
        )
        return FittedBasisModel(
            latent.basis, list(latent.posteriors), latent.prior_scale, latent.residual_variance, outputs
        )


def mean_noise(posteriors: Any) -> FloatArray:
    """Expected noise variances of posteriors, (n_outputs,)."""
    return np.array([posterior.noise.variance for posterior in posteriors])
