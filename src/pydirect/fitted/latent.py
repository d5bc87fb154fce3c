"""`Latent`: the posterior of f = Φw, one posterior of the weights per output, as data that predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np

from pydirect._threads import ordered_map, resolve_n_threads
from pydirect._validation import FloatArray, short_repr
from pydirect.direct.mean_field import MeanFieldPosterior
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.features.basis import Basis
from pydirect.features.residual import draw_residual
from pydirect.fitted.predictor import Components
from pydirect.linear.folded_variances import LatentVariances
from pydirect.linear.posterior import LARGE_ROTATION, GaussianPosterior, with_precision
from pydirect.persistence.schema import As, AtLeast, Binds, Positive, Shape
from pydirect.statistics.gaussian import blocks_of

# Rows that one thread predicts at a time: enough that BLAS packs the matrix of deviations rarely.
CHUNK_ROWS = 512
# Outputs from which a product of matrices is faster than sums one by one.
MANY_OUTPUTS = 4
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

    def phi(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Inputs of the map, and Φ (n_rows, n_weights)."""
        inputs = self.basis.inputs(x)
        return inputs, np.ascontiguousarray(self.basis.map.transform(inputs, np.float64, resolve_n_threads()))

    def beyond(self, inputs: FloatArray, phi: FloatArray) -> FloatArray | None:
        """Variance of f that the basis functions lack, (n_rows, n_outputs)."""
        residual = self.basis.missing_variance(inputs, phi, self.residual_variance)
        return None if residual is None else residual[:, None] * self.prior_scale**2

    def moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and variance of f, (n_rows, n_outputs) each."""
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
            if self.n_outputs < MANY_OUTPUTS:
                np.einsum("ij,kj->ik", functions, self.function_weights, out=mean[rows])
            else:
                np.matmul(functions, self.function_weights.T, out=mean[rows])
            if with_variance:
                variance[rows] = self._variances.of(inputs, functions)

        chunks = [slice(begin, begin + size) for begin in range(0, len(x), size)]
        if min(n_threads, len(chunks)) <= 1:
            for rows in chunks:
                predict(rows)
        else:
            for _ in ordered_map(predict, iter(chunks), min(n_threads, len(chunks))):
                pass
        return mean, variance if with_variance else None

    def components(self, x: FloatArray) -> list[Components]:
        """Components of the posterior of f of every output: one, but for mixtures."""
        if not isinstance(self.posteriors[0], MixturePosterior):
            mean, variance = self.moments(x, with_variance=True)
            assert variance is not None
            return [(np.ones(1), mean[:, k, None], variance[:, k, None]) for k in range(self.n_outputs)]
        inputs, phi = self.phi(x)
        beyond, found = self.beyond(inputs, phi), []
        for k, (posterior, scale) in enumerate(zip(self.posteriors, self.prior_scale, strict=True)):
            means, variances = posterior.component_moments(phi, resolve_n_threads())
            variances = scale**2 * variances + (0.0 if beyond is None else beyond[:, k, None])
            found.append((posterior.alpha, scale * means, variances))
        return found

    def cumulants(self, x: FloatArray) -> FloatArray:
        """First four cumulants of f, (4, n_rows, n_outputs)."""
        inputs, phi = self.phi(x)
        found = np.stack(
            [
                np.stack([s**order * p.latent_cumulant(phi, order) for p, s in self._scaled()], axis=1)
                for order in range(1, 5)
            ]
        )
        beyond = self.beyond(inputs, phi)
        if beyond is not None:
            found[1] += beyond
        return found

    def draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Joint draws of f at the rows of x, (n_rows, n_outputs, n_samples)."""
        values, draw = np.empty((len(x), self.n_outputs, n_samples)), self.sampler(n_samples, rng)
        for rows in blocks_of(len(x), self.n_columns):
            values[rows] = draw(x[rows])
        inputs, n_draws = self.basis.inputs(x), self.n_outputs * n_samples
        residual = draw_residual(self.basis, inputs, self.residual_variance, n_draws, rng, resolve_n_threads())
        if residual is not None:
            values += self.prior_scale[:, None] * residual.reshape(values.shape)
        return values

    def sampler(self, n_samples: int, rng: np.random.Generator) -> Callable[[FloatArray], FloatArray]:
        """Draw weights once; return their functions, from rows to (n_rows, n_outputs, n_samples)."""
        weights = [s * p.sample_weights(n_samples, rng) for p, s in self._scaled()]

        def draw(rows: FloatArray) -> FloatArray:
            _, phi = self.phi(rows)
            return np.stack([phi @ w.T for w in weights], axis=1)

        return draw

    def _scaled(self) -> list[tuple[Any, float]]:
        return list(zip(self.posteriors, self.prior_scale, strict=True))
