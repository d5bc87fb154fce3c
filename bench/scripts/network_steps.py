"""Steps of quadratic networks: the paper's own algorithm, as it is printed, beside the engines.

    python bench/scripts/network_steps.py [--repeats 5]

Evans & Nair (2018), appendix D: every term holds all b factors of m̄ entries, all of them are multiplied, and no terms
are merged. Two corrections that it needs to be right: the cross terms of a square take the products of the
coefficients of both terms, and coefficients are squared once a layer, not once a neuron. The rest is written for speed:
expectations of pairs of terms are BLAS products, h × m̄ times m̄ × h for every weight; only one triangle of the pairs is
computed, in tiles whose prefix products stay near the cache; gradients come from prefix and suffix products.

Prints, for each network: terms, memory, and the median time of R with its gradient in q for the literal algorithm, for
the monomial engine and for the engine that `choose_engine` picks, stages between q and the weights' moments included,
after checking that all agree. Then whole steps of training (logits to ELBO and gradient in the logits) of two larger
problems: a wide network of two hidden layers, and one whose 434,874 rows a coreset stands for.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import pairwise

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from pydirect import GaussianPrior, _core  # noqa: E402
from pydirect.distributions.categorical import evenly_spaced_levels, pad_levels  # noqa: E402
from pydirect.distributions.noise import NoiseGrid  # noqa: E402
from pydirect.quadratic import NetworkCoreset, NetworkShape, QuadraticNetwork  # noqa: E402
from pydirect.quadratic.network import choose_engine, make_engine  # noqa: E402
from pydirect.quadratic.training import NOISE_LEVELS  # noqa: E402
from pydirect.testing import enumerate_network, finite_difference_gradient  # noqa: E402

N_LEVELS = 15
TILE_BYTES = 16 * 2**20  # of prefix products; as fast as any from 4 to 64 MiB, below that BLAS sees too few rows


class LiteralNetwork:
    """R = E |y − f(X)|² and its gradient in q, eqs. (28) to (39)."""

    def __init__(self, x, y, hidden, bias, levels):
        """Take x (n, d), y (n,), widths, and levels (b, m̄)."""
        self.coefficients, factors = forward_pass(x, hidden, bias, levels)  # (h, n), (h, b, m̄)
        self.factors = np.ascontiguousarray(factors.transpose(1, 0, 2))  # weight by weight, for BLAS
        self.yty, self.p = y @ y, self.coefficients @ y
        self.v = self.coefficients @ self.coefficients.T
        self.n_terms, self.n_weights = len(self.p), len(self.factors)
        self.tile = max(1, TILE_BYTES // (8 * self.n_terms * (self.n_weights + 1)))

    @property
    def n_bytes(self):
        """Of what is kept between evaluations, and of the prefix products."""
        kept = self.factors.nbytes + self.v.nbytes
        return kept, 8 * self.tile * self.n_terms * (2 * self.n_weights + 2)

    def value_and_gradient(self, q):
        """R and ∂R/∂q, (b, m̄)."""
        linear, slope = self._expected_terms(q)
        quadratic, curvature = self._expected_pairs(q)
        return self.yty - 2 * linear + quadratic, -2 * slope + curvature

    def _expected_terms(self, q):
        """pᵀ E[terms], eq. (36)."""
        dots = np.einsum("lhm,lm->lh", self.factors, q)
        prefix = np.cumprod(np.vstack([np.ones_like(self.p), dots]), axis=0)
        slope, suffix = np.empty_like(q), self.p.copy()
        for k in reversed(range(self.n_weights)):
            slope[k] = (prefix[k] * suffix) @ self.factors[k]
            suffix *= dots[k]
        return self.p @ prefix[-1], slope

    def _expected_pairs(self, q):
        """Σ_jk v_jk E[term_j term_k], eq. (39)."""
        h, b = self.n_terms, self.n_weights
        value, slope = 0.0, np.zeros_like(q)
        prefix_store, dots_store = np.empty((b + 1) * self.tile * h), np.empty(b * self.tile * h)
        scratch = np.empty(self.tile * h)
        for begin in range(0, h, self.tile):
            end = min(begin + self.tile, h)
            rows, columns = end - begin, h - begin
            shape = rows, columns
            prefix = prefix_store[: (b + 1) * rows * columns].reshape(b + 1, *shape)
            dots = dots_store[: b * rows * columns].reshape(b, *shape)
            part = scratch[: rows * columns].reshape(shape)
            prefix[0] = 1.0
            for k, g in enumerate(self.factors):
                np.matmul(g[begin:end] * q[k], g[begin:].T, out=dots[k])
                np.multiply(prefix[k], dots[k], out=prefix[k + 1])
            suffix = self.v[begin:end, begin:].copy()
            suffix[:, rows:] *= 2.0  # pairs on the other side of the diagonal
            value += np.vdot(suffix, prefix[b])
            for k in reversed(range(b)):
                g = self.factors[k]
                np.multiply(prefix[k], suffix, out=part)
                slope[k] += np.einsum("hm,hm->m", g[begin:end], part @ g[begin:])
                suffix *= dots[k]
        return value, slope


def forward_pass(x, hidden, bias, levels):
    """Algorithm forward_pass: coefficients (h, n) and factors (h, b, m̄) of f at all points of the grid."""
    ones = np.ones((1, *levels.shape))
    states = [(column[None, :], ones) for column in x.T]  # of every input of the layer
    next_weight = 0
    for fan_out in [*hidden, 1]:
        inputs = [*states, (np.ones((1, len(x))), ones)] if bias else states
        summed = np.concatenate([c for c, _ in inputs])  # C̃ of eq. (31), the same for all neurons
        is_output = fan_out == 1 and next_weight + len(inputs) == len(levels)
        coefficients = summed if is_output else square_coefficients(summed)
        states = []
        for _ in range(fan_out):
            weighted = []
            for _, g in inputs:
                scaled = g.copy()
                scaled[:, next_weight] *= levels[next_weight]  # mult_var, eq. (30)
                weighted.append(scaled)
                next_weight += 1
            factors = np.concatenate(weighted)
            states.append((coefficients, factors if is_output else square_factors(factors)))
    return states[0]


def square_coefficients(c):
    """Of the squares, then of the pairs, eq. (33)."""
    first, second = np.triu_indices(len(c), 1)
    return np.concatenate([c**2, 2 * c[first] * c[second]])


def square_factors(g):
    """Factors that belong to them."""
    first, second = np.triu_indices(len(g), 1)
    return np.concatenate([g**2, g[first] * g[second]])


def make_case(n_inputs, hidden, bias, n_levels, n_rows, seed=0):
    """Rows, targets, levels (b, m̄) and q (b, m̄)."""
    rng = np.random.default_rng(seed)
    n_weights = sum(fan_out * (fan_in + bias) for fan_in, fan_out in pairwise([n_inputs, *hidden, 1]))
    x, y = 0.5 * rng.standard_normal((n_rows, n_inputs)), rng.standard_normal(n_rows)
    levels = np.tile(evenly_spaced_levels(n_levels, 1.5), (n_weights, 1))
    return x, y, levels, rng.dirichlet(np.ones(n_levels), size=n_weights)


def check():
    """Compare with enumeration and finite differences on small networks."""
    for network in ((2, [3], False), (1, [2], True), (2, [2, 2], False), (1, [2, 2], True), (1, [1, 1, 1], True)):
        x, y, levels, q = make_case(*network, 2, 7)
        literal = LiteralNetwork(x, y, *network[1:], levels)
        value, gradient = literal.value_and_gradient(q)
        expected = enumerate_network(x, y, *network[1:], levels, q).squared_error
        differences = finite_difference_gradient(lambda p, literal=literal: literal.value_and_gradient(p)[0], q)
        assert abs(value / expected - 1) < 1e-12, network
        np.testing.assert_allclose(gradient, differences, rtol=1e-8, atol=1e-9 * np.abs(gradient).max())


def median_seconds(call, repeats):
    """Median wall time of a call, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def expected_error(kind, network, x, y, levels, q):
    """Return a function that computes R and its gradient in q, and the engine."""
    n_inputs, hidden, bias = network
    engine = make_engine(kind, NetworkShape(n_inputs, tuple(hidden), bias), x, y)
    padded, log_prior = pad_levels(levels, np.zeros_like(levels))
    stage = _core.NetworkMoments(n_inputs, hidden, bias, padded, log_prior, 1)
    q = np.pad(q, ((0, 0), (0, padded.shape[1] - N_LEVELS)))
    slopes = np.empty(_core.network_table_size(n_inputs, hidden, bias))

    def call():
        error = engine.evaluate(stage.from_probabilities(q), slopes, 1)
        return error, stage.probability_slopes(slopes)[:, :N_LEVELS]

    return call, engine


def centred(gradient, q):
    """Remove the constant of every weight, which a derivative on the simplex leaves open."""
    return gradient - (q * gradient).sum(axis=1, keepdims=True)


def compare(network, repeats):
    """Print one row of the first table."""
    x, y, levels, q = make_case(*network, N_LEVELS, 1000)
    literal = LiteralNetwork(x, y, *network[1:], levels)
    value, gradient = literal.value_and_gradient(q)
    slow = median_seconds(lambda: literal.value_and_gradient(q), repeats)
    kept, scratch = literal.n_bytes
    print(
        f"{network!s:<20} {literal.n_terms:>6} {kept / 2**20:>8.1f} {scratch / 2**20:>8.1f} {1e3 * slow:>9.1f}", end=""
    )
    chosen = choose_engine(NetworkShape(network[0], tuple(network[1]), network[2]), 1000)
    for kind in ("monomial", chosen):
        call, _ = expected_error(kind, network, x, y, levels, q)
        error, slopes = call()
        assert abs(value / error - 1) < 1e-10
        exact = centred(gradient, q)
        np.testing.assert_allclose(centred(slopes, q), exact, rtol=1e-8, atol=1e-9 * np.abs(exact).max())
        fast = median_seconds(call, 20 * repeats)
        print(f" | {kind:>8} {1e3 * fast:>8.3f} ms {slow / fast:>8.0f} x", end="")
    print(flush=True)


def training_step(shape, x, y, weight=None):
    """Return a function that takes one step's value and gradient from logits."""
    unit = evenly_spaced_levels(N_LEVELS, 2.0)
    scale = np.concatenate([np.full(fan_out * fan_in, 1.5 / np.sqrt(fan_in)) for fan_out, fan_in in shape.layers])
    log_prior = np.tile(GaussianPrior().log_mass(unit), (shape.n_weights, 1))
    engine = make_engine("datum", shape, x, y, weight)
    n_samples = len(x) if weight is None else weight.sum()
    model = QuadraticNetwork(shape, engine, n_samples, scale[:, None] * unit, log_prior, NoiseGrid.of(NOISE_LEVELS))
    logits = np.random.default_rng(1).standard_normal(model.n_parameters)
    return lambda: model.elbo_and_gradient(logits)


def matrix_products(shape, n_rows):
    """Return a function that multiplies matrices of the layers' shapes, with as many operations as the engine's."""
    (h1, d), (h2, between), _ = shape.layers
    rng = np.random.default_rng(2)
    cases = [(16, d, h1), (18, between, h2), (5, between, between)]
    pairs = [(rng.standard_normal((n_rows, k)), rng.standard_normal((k, m)), count) for count, k, m in cases]
    return lambda: [a @ b for a, b, count in pairs for _ in range(count)]


def report_step(name, call, repeats):
    """Print one row of the second table."""
    print(f"{name:<58} {1e3 * median_seconds(call, repeats):>9.3f} ms", flush=True)


def main():
    """Check, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    check()
    print("R and its gradient in q, 1000 rows\nnetwork               terms kept MiB tile MiB literal ms")
    for network in ((8, [20], False), (4, [3, 3], False)):
        compare(network, repeats)

    print("\nsteps of training")
    rng = np.random.default_rng(0)
    wide = NetworkShape(90, (140, 140))
    x, y = 0.5 * rng.standard_normal((1000, 90)), rng.standard_normal(1000)
    report_step("90 inputs, 140 and 140 units, 1000 rows", training_step(wide, x, y), 3 * repeats)
    report_step("as many operations as its matrix products, by BLAS", matrix_products(wide, len(x)), 3 * repeats)
    narrow = NetworkShape(3, (8, 8))
    x = rng.uniform(-1, 1, (434_874, 3))
    y = np.sin(3 * x[:, 0]) * x[:, 1] + 0.1 * rng.standard_normal(len(x))
    begin = time.perf_counter()
    coreset = NetworkCoreset.from_data(x, y, narrow.depth)
    built = time.perf_counter() - begin
    all_rows = training_step(narrow, x, y)
    report_step("3 inputs, 8 and 8 units, 434,874 rows", all_rows, repeats)
    on_coreset = training_step(narrow, coreset.x, coreset.y, coreset.weight)
    report_step(f"the same on a coreset of {len(coreset.x)} rows, built in {built:.1f} s", on_coreset, 20 * repeats)
    (value, gradient), (same, slopes) = all_rows(), on_coreset()
    error = np.abs(gradient - slopes).max() / np.abs(gradient).max()
    print(f"relative difference of the ELBO {abs(same / value - 1):.1e}, of the gradient {error:.1e}")


if __name__ == "__main__":
    main()
