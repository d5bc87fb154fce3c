"""Kronecker algebra and the monomial engine built on it.

Grids have 2000 variables of 15 levels unless said otherwise: 15^2000 entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import N_LEVELS, fraction_of_limit, multiplying, reading, require

N_WEIGHTS = 2_000


def _unit(function: Any) -> Any:
    function.unit = "1"
    return function


def make_linear(n_terms: int, n_data: int) -> Any:
    """Φw for every hypothesis, of the first weights."""
    require("kron_inner")
    from pydirect.kron import KroneckerSum

    levels = np.linspace(-3.0, 3.0, N_LEVELS)
    coefficients = np.random.default_rng(0).standard_normal((n_terms, n_data))
    return KroneckerSum.from_terms((N_LEVELS,) * N_WEIGHTS, [{j: levels} for j in range(n_terms)], coefficients)


def make_posterior(seed: int = 0) -> Any:
    """A factorised distribution."""
    require("kron_inner")
    from pydirect.kron import kronecker_vector

    return kronecker_vector(np.random.default_rng(seed).dirichlet(np.ones(N_LEVELS), size=N_WEIGHTS))


class VectorInnerProduct:
    """Two Kronecker vectors.

    Limit: two flops an entry of a factor, at the rate of dsyrk; what the safety from overflow costs comes on top.
    """

    def setup(self) -> None:
        self.a, self.b = make_posterior(0), make_posterior(1)

    def time_inner(self) -> None:
        self.a.inner(self.b, 1)

    @_unit
    def track_inner_fraction_of_limit(self) -> float:
        flops = 2.0 * N_WEIGHTS * N_LEVELS
        return fraction_of_limit(lambda: self.a.inner(self.b, 1), (multiplying("float64"), flops))


class ExpectedOutputs:
    """A sum of 2000 terms for 1000 data points, and a vector.

    Limit: the coefficients are read once.
    """

    def setup(self) -> None:
        self.f, self.q = make_linear(N_WEIGHTS, 1_000), make_posterior()

    def time_inner(self) -> None:
        self.f.inner(self.q, 1)

    def time_inner_beyond_the_range_of_plain_sums(self) -> None:
        (self.f * 1e200).inner(self.q, 1)

    @_unit
    def track_inner_fraction_of_limit(self) -> float:
        n_bytes = self.f.coefficients.nbytes
        return fraction_of_limit(lambda: self.f.inner(self.q, 1), (reading(n_bytes), n_bytes))


class Square:
    """Square of 300 terms for 100 data points: 45,150 products, none of them equal.

    Limit: two flops a product and data point; finding equal terms comes on top.
    """

    def setup(self) -> None:
        self.f = make_linear(300, 100)
        self.squared, self.q = self.f.square(1), make_posterior()

    def time_square(self) -> None:
        self.f.square(1)

    def time_compact(self) -> None:
        self.squared.compact()

    def time_inner(self) -> None:
        self.squared.inner(self.q, 1)

    @_unit
    def track_square_fraction_of_limit(self) -> float:
        flops = 2.0 * self.squared.coefficients.size
        return fraction_of_limit(lambda: self.f.square(1), (multiplying("float64"), flops))


class MonomialEngine:
    """R and its gradient in the weights' moments, and the engine's construction.

    Limit: a multiplication and an addition for each of two sweeps over the monomials of f².
    """

    params = ("8 inputs, 20 units", "4 inputs, 3 and 3 units")
    param_names = ("network",)
    networks = {params[0]: (8, [20]), params[1]: (4, [3, 3])}  # noqa: RUF012

    def setup(self, network: str) -> None:
        self.core = require("NetworkEngine")
        n_inputs, hidden = self.networks[network]
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((1_000, n_inputs)), rng.standard_normal(1_000)
        self.arguments = (n_inputs, hidden, False, x, y, None)
        self.engine = self.core.NetworkEngine("monomial", *self.arguments)
        fan = zip([n_inputs, *hidden], [*hidden, 1], strict=True)
        size = sum((2 << (len(hidden) - k)) * fan_in * fan_out for k, (fan_in, fan_out) in enumerate(fan))
        self.table = 0.1 * rng.standard_normal(size)
        self.gradient = np.empty(size)

    def time_build(self, network: str) -> None:
        self.core.NetworkEngine("monomial", *self.arguments)

    def time_value_and_gradient(self, network: str) -> None:
        self.engine.evaluate(self.table, self.gradient, 1)

    def time_value(self, network: str) -> None:
        self.engine.evaluate(self.table, None, 1)

    @_unit
    def track_value_and_gradient_fraction_of_limit(self, network: str) -> float:
        return fraction_of_limit(
            lambda: self.engine.evaluate(self.table, self.gradient, 1),
            (multiplying("float64"), 4.0 * self.engine.n_terms),
        )
