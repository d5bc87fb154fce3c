"""Inner loops, each beside its limit.

``track_*_fraction_of_limit`` is the time that the machine would need for the bytes or flops of the limit over the time
that the kernel took. The rate of the machine is measured in turns with the kernel, on as large a working set: reading
is BLAS's product of a vector and a matrix, writing a fill, both together NumPy's addition of one array to another, and
flops BLAS's symmetric rank-k update. That update fuses multiplications and additions, which the kernels forgo for the
same bits on every instruction set: where a core cannot multiply and add side by side, half of its rate is their limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common import (
    N_INPUTS,
    adding,
    fraction_of_limit,
    make_features,
    make_problem,
    make_statistics,
    multiplying,
    reading,
    require,
    writing,
)

# Flops a value, counted in the formulas: range reduction, polynomial, scaling. Selections and bit operations are free.
EXP_FLOPS = 35
SINE_AND_COSINE_FLOPS = {"float32": 27, "float64": 43}


def _unit(function: Any) -> Any:
    function.unit = "1"
    return function


class Fourier:
    """Features of 2000 rows of 11 inputs at 1000 frequencies.

    Limit: the slower of 2 d flops a phase and 27 (float32) or 43 (float64) a sine and cosine, at the rate of ssyrk or
    dsyrk; and of 8 or 16 bytes written a pair. Into memory that is there already; `time_features` allocates it too.
    """

    params = ("float32", "float64")
    param_names = ("dtype",)
    n_rows = 2_000

    def setup(self, dtype: str) -> None:
        require("fourier_features")
        self.features = make_features(2_000)
        self.x = np.random.default_rng(0).standard_normal((self.n_rows, N_INPUTS))
        self.features.transform(self.x[:1], np.dtype(dtype), 1)

    def time_features(self, dtype: str) -> None:
        self.features.transform(self.x, np.dtype(dtype), 1)

    @_unit
    def track_features_fraction_of_limit(self, dtype: str) -> float:
        turns, amplitudes = self.features._tables[np.dtype(dtype)]
        out = np.empty((self.n_rows, 2_000), dtype)
        core = require("fourier_features")
        pairs = self.n_rows * 1_000
        return fraction_of_limit(
            lambda: core.fourier_features(self.x, turns, amplitudes, 1_000, out, 1),
            (multiplying(dtype), pairs * (2.0 * N_INPUTS + SINE_AND_COSINE_FLOPS[dtype])),
            (writing(out.nbytes), out.nbytes),
        )


class AddUpperTriangle:
    """Add the upper triangle of a block's product, of either precision, to that of the total.

    Limit: n²/2 entries of the block read, as many float64 read and written.
    """

    params = ("float32", "float64")
    param_names = ("dtype",)
    n = 2_000

    def setup(self, dtype: str) -> None:
        self.core = require("add_upper_triangle")
        self.block = np.ones((self.n, self.n), dtype)
        self.total = np.zeros((self.n, self.n))

    def time_add(self, dtype: str) -> None:
        self.core.add_upper_triangle(self.block, self.total, 1)

    @_unit
    def track_add_fraction_of_limit(self, dtype: str) -> float:
        needed = self.n**2 // 2 * (16 + np.dtype(dtype).itemsize)
        return fraction_of_limit(lambda: self.time_add(dtype), (adding(needed * 2 // 3), needed))


class AddTransposedProduct:
    """c += Φᵀy over a block of 4000 × 2000.

    Limit: the bytes of the block, read once.
    """

    params = ("float32", "float64")
    param_names = ("dtype",)

    def setup(self, dtype: str) -> None:
        self.core = require("add_transposed_product")
        self.rows = np.ones((4_000, 2_000), dtype)
        self.y, self.out = np.ones(4_000), np.zeros(2_000)

    def time_product(self, dtype: str) -> None:
        self.core.add_transposed_product(self.rows, self.y, self.out)

    @_unit
    def track_product_fraction_of_limit(self, dtype: str) -> float:
        return fraction_of_limit(
            lambda: self.time_product(dtype), (reading(self.rows.nbytes), self.rows.nbytes), repeats=5
        )


class MeanField:
    """The compiled solver at b = 2000.

    Limits are bytes of A, read: 8 b² for the exact ELBO, 4 b² for its single
    precision form, 4 b² a sweep in which every weight moves, 2 b² a product of conjugate gradients (one triangle),
    2 b² for the lattice start (the factor's triangle). What little surrounds them is part of the measured time.
    """

    size = "paper"
    sweeps = 10
    products = 60

    def setup(self) -> None:
        require("MeanField")
        from pydirect.direct.mean_field import MeanFieldRegression

        problem, statistics = make_problem(self.size), make_statistics(self.size)
        model = MeanFieldRegression.of(
            statistics,
            problem.levels[None, :],
            problem.log_prior[None, :],
            problem.noise_levels,
            np.full(problem.noise_levels.size, -np.log(problem.noise_levels.size)),
        )
        self.solver = model.solver(1)
        self.matrix_bytes = 4 * statistics.n_weights**2
        self.single = self._solver_without_exact_matrix(model)
        self.eta = np.zeros(statistics.n_weights)
        self.kappa = np.full(statistics.n_weights, 0.5)
        self.solver.start_from_naturals(self.eta, np.zeros_like(self.eta))
        self.single.start_from_naturals(self.eta, np.zeros_like(self.eta))
        self.factor, self.ridge = self._ridge(model)
        self.order = np.arange(len(self.ridge))

    @staticmethod
    def _solver_without_exact_matrix(model: Any) -> Any:
        from pydirect import _core
        from pydirect.distributions.categorical import pad_levels

        levels, log_prior = pad_levels(model.levels, model.log_prior)
        return _core.MeanField(
            a=model.statistics.A.astype(np.float32),
            a_exact=None,
            diagonal=np.ascontiguousarray(model.statistics.A.diagonal()),
            c=model.statistics.c,
            yty=model.statistics.yty,
            n_samples=model.statistics.n_samples,
            levels=levels,
            log_prior=log_prior,
            prior_precision=model.prior_precision(),
            noise_levels=model.noise.levels,
            noise_log_prior=model.noise.log_prior,
            n_threads=1,
        )

    def _ridge(self, model: Any) -> tuple[np.ndarray, np.ndarray]:
        matrix = model.statistics.A + np.diag(model.prior_precision() / self.solver.tau)
        factor = np.linalg.cholesky(matrix).T
        return np.ascontiguousarray(factor, dtype=np.float32), np.linalg.solve(matrix, model.statistics.c)

    def time_elbo_double(self) -> None:
        self.solver.elbo()

    def time_elbo_single(self) -> None:
        self.single.elbo()

    def time_sweeps(self) -> None:
        """Ten sweeps that leave no weight out, a start before and an exact residual after them."""
        self.solver.start_from_naturals(self.eta, np.zeros_like(self.eta))
        self.solver.coordinate_ascent(self.sweeps, 0.0, -1.0, False)

    def time_conjugate_gradients(self) -> None:
        """One Newton step of sixty products, two residuals around it, from the same state each time."""
        self.solver.start_from_naturals(self.eta, self.kappa)
        self.solver.newton(1, 0.0, self.products, 0.0, 0.0, False)

    def time_lattice_start(self) -> None:
        self.solver.start_from_lattice(self.factor, self.order, self.ridge)

    def time_probabilities(self) -> None:
        self.solver.probabilities()

    def _fraction(self, run: Any, n_matrices: float, working_set: float = 1) -> float:
        return fraction_of_limit(run, (reading(int(working_set * self.matrix_bytes)), n_matrices * self.matrix_bytes))

    @_unit
    def track_elbo_double_fraction_of_limit(self) -> float:
        return self._fraction(self.time_elbo_double, 2, 2)

    @_unit
    def track_elbo_single_fraction_of_limit(self) -> float:
        return self._fraction(self.time_elbo_single, 1)

    @_unit
    def track_sweeps_fraction_of_limit(self) -> float:
        return self._fraction(self.time_sweeps, self.sweeps + 2)

    @_unit
    def track_conjugate_gradients_fraction_of_limit(self) -> float:
        return self._fraction(self.time_conjugate_gradients, 3 + self.products / 2, 0.5)

    @_unit
    def track_lattice_start_fraction_of_limit(self) -> float:
        return self._fraction(self.time_lattice_start, 0.5 + 1)


class RowMoments:
    """Predictive means and variances of 4000 rows at b = 2000.

    Limit: 8 bytes read an entry of Φ.
    """

    def setup(self) -> None:
        self.core = require("row_moments")
        self.rows = np.random.default_rng(0).standard_normal((4_000, 2_000))
        self.weight, self.spread = np.ones(2_000), np.ones(2_000)
        self.mean, self.variance = np.empty(4_000), np.empty(4_000)

    def time_moments(self) -> None:
        self.core.row_moments(self.rows, self.weight, self.spread, self.mean, self.variance, 1)

    @_unit
    def track_moments_fraction_of_limit(self) -> float:
        return fraction_of_limit(self.time_moments, (reading(self.rows.nbytes), self.rows.nbytes), repeats=5)


class Sampling:
    """Fifty draws of 2000 weights on 15 levels.

    Limit: one uniform a weight, at the rate of NumPy's generator.
    """

    n_samples = 50

    def setup(self) -> None:
        from pydirect.distributions import FactorizedCategorical

        logits = np.random.default_rng(0).standard_normal((2_000, 15))
        self.q = FactorizedCategorical.from_logits(np.linspace(-3, 3, 15), logits)
        self.generator = np.random.default_rng(1)

    def time_sample_indices(self) -> None:
        self.q.sample_indices(self.n_samples, self.generator)

    def time_sample(self) -> None:
        self.q.sample(self.n_samples, self.generator)

    @_unit
    def track_sample_indices_fraction_of_limit(self) -> float:
        from ..common import Yardstick

        n = self.n_samples * 2_000
        uniforms = Yardstick(lambda: self.generator.random(n), n)
        return fraction_of_limit(self.time_sample_indices, (uniforms, n))


class MarginalLikelihood:
    """The exact marginal likelihood of 1000 points and its gradient.

    Limit: n³ flops to factorise and invert, 3 exponentials and 40 flops a pair and 2n² flops an input of products.
    """

    n, n_inputs = 1_000, 22

    def setup(self) -> None:
        self.core = require("MarginalLikelihood")
        rng = np.random.default_rng(0)
        x, y = rng.standard_normal((self.n, self.n_inputs)) / 5, rng.standard_normal((self.n, 1))
        products = np.pad(np.abs(x @ x.T), ((0, 0), (0, -self.n % self.core.LEVEL_PADDING)))
        self.theta = np.r_[np.log(0.1), np.zeros(self.n_inputs + 3), np.log(0.3)]
        rows, prior = (x, y, np.ones(self.n), products, products), (np.zeros_like(self.theta), np.ones_like(self.theta))
        own = *rows, np.arange(self.n_inputs), self.n_inputs, *prior, np.zeros((0, 0)), False, 3, 0.0, 0.0, 1
        self.evidence = self.core.MarginalLikelihood(*own)

    def time_marginal_likelihood(self) -> None:
        self.evidence(self.theta)

    @_unit
    def track_fraction_of_limit(self) -> float:
        pairs, squares = self.n**2 / 2, 2 * self.n**2
        flops = self.n**3 + (3 * EXP_FLOPS + 40) * pairs + 2 * squares * self.n_inputs
        return fraction_of_limit(self.time_marginal_likelihood, (multiplying("float64"), flops))


class CrossCovariance:
    """Covariance between rows and 2000 others: the kernel functions of Nyström features, Matérn and exponential part.

    Limit, at the rate of dsyrk: 5 flops an input and 2 an input of the linear part, 2 × 28 flops for exponentials and 8
    to combine the parts; 8 bytes written an entry. Square roots are free where a core finds them beside the sums. All
    inputs are in the linear part but for normal scores, half of the inputs.
    """

    params = ((1, 512), (8, 16, 100))
    param_names = ("n_rows", "n_inputs")
    n_others = 2_000

    def setup(self, n_rows: int, n_inputs: int) -> None:
        require("cross_covariance")
        from pydirect.features.kernel import KernelHyperparameters

        rng = np.random.default_rng(0)
        length_scales = np.sqrt(n_inputs) * rng.uniform(1, 5, n_inputs)
        self.kernel = KernelHyperparameters(0.1, 0.7, length_scales, 0.4, 3 * np.sqrt(n_inputs), 0.9, n_inputs // 2)
        self.x = rng.standard_normal((n_rows, n_inputs))
        self.others = self.kernel.prepared(rng.standard_normal((self.n_others, n_inputs)))

    def time_covariance(self, n_rows: int, n_inputs: int) -> None:
        self.kernel.covariance(self.x, self.others)

    @_unit
    def track_covariance_fraction_of_limit(self, n_rows: int, n_inputs: int) -> float:
        entries = float(n_rows * self.n_others)
        flops = 5 * n_inputs + 2 * (n_inputs // 2) + 2 * 28 + 8
        return fraction_of_limit(
            lambda: self.kernel.covariance(self.x, self.others),
            (multiplying("float64", 200, 200), flops * entries),
            (writing(int(8 * entries)), 8 * entries),
        )


class Expectations:
    """Expectations of log Σ exp z and softmax(z) over Gaussian logits, 2000 rows; of one logit for one class.

    Limit, at the rate of dsyrk: 24 times an exponential and 60 flops a logit, and 550 flops a row for its table; 300
    flops where there is one logit.
    """

    params = ((1, 3, 10), (0.3, 1.0, 3.0))
    param_names = ("n_classes", "sd")
    n_rows = 2_000

    def setup(self, n_classes: int, sd: float) -> None:
        require("expected_softmax", "expected_sigmoid")
        from pydirect.logistic import likelihood

        shape = self.n_rows if n_classes == 1 else (self.n_rows, n_classes)
        self.mean = np.random.default_rng(0).normal(scale=2.0, size=shape)
        self.variance = np.full(self.n_rows, sd**2)
        self.expect = likelihood.expected_likelihood
        self.expect(self.mean, self.variance)

    def time_expectations(self, n_classes: int, sd: float) -> None:
        self.expect(self.mean, self.variance)

    @_unit
    def track_expectations_fraction_of_limit(self, n_classes: int, sd: float) -> float:
        flops = 300 if n_classes == 1 else 550 + n_classes * 24 * (EXP_FLOPS + 60)
        return fraction_of_limit(
            lambda: [self.expect(self.mean, self.variance) for _ in range(10)],
            (multiplying("float64"), 10.0 * self.n_rows * flops),
        )


class Exponential:
    """exp of 4096 doubles that stay in the nearest cache.

    Limit: 35 flops a value, at the rate of dsyrk.
    """

    n = 4_096

    def setup(self) -> None:
        self.core = require("exp")
        self.x = np.linspace(-50.0, 0.0, self.n)

    def time_exp(self) -> None:
        self.core.exp(self.x)

    def time_numpy_exp(self) -> None:
        np.exp(self.x)

    @_unit
    def track_exp_fraction_of_limit(self) -> float:
        return fraction_of_limit(
            lambda: [self.core.exp(self.x) for _ in range(100)], (multiplying("float64"), 100 * self.n * EXP_FLOPS)
        )
