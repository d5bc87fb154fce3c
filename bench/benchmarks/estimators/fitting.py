"""From statistics to a posterior, from rows to statistics, from a posterior to predictions; memory; import."""

from __future__ import annotations

import os
import time

import numpy as np

from ..common import N_INPUTS, SIZES, fit, make_data, make_features, make_problem, make_statistics

OPTIMIZERS = ("pipeline", "lbfgs")


def _cholesky_seconds(a: np.ndarray) -> float:
    from scipy.linalg.lapack import spotrf

    matrix = np.asfortranarray(a + np.eye(len(a)), dtype=np.float32)
    begin = time.perf_counter()
    spotrf(matrix, lower=1, overwrite_a=1)
    return time.perf_counter() - begin


class FromStatistics:
    """Posterior of b weights on 15 levels from A and c.

    Limit: the single-precision Cholesky factorisation that the start needs, b³/3 flops; `track_fit_in_cholesky` is how
    many of them the whole fit costs.
    """

    params = (tuple(SIZES), OPTIMIZERS)
    param_names = ("size", "optimizer")
    timeout = 600
    number, repeat, warmup_time = 1, (3, 10, 10.0), 0

    def setup(self, size: str, optimizer: str) -> None:
        make_statistics(size)

    def time_fit(self, size: str, optimizer: str) -> None:
        fit(size, optimizer=optimizer)

    def track_fit_in_cholesky(self, size: str, optimizer: str) -> float:
        a = make_statistics(size).A
        turns = []
        for _ in range(5 if optimizer != "lbfgs" else 1):
            begin = time.perf_counter()
            fit(size, optimizer=optimizer)
            turns.append((time.perf_counter() - begin, _cholesky_seconds(a)))
        return float(np.divide(*np.median(turns, axis=0)))

    track_fit_in_cholesky.unit = "factorisations"

    def track_elbo(self, size: str, optimizer: str) -> float:
        return fit(size, optimizer=optimizer).elbo

    track_elbo.unit = "nats"


class CoarseLevels:
    """The same where levels are far apart beside the posterior: an integer least-squares problem."""

    params = tuple(SIZES)
    param_names = ("size",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 10, 10.0), 0

    def setup(self, size: str) -> None:
        make_statistics(size, "coarse")

    def time_fit(self, size: str) -> None:
        fit(size, "coarse")

    def track_elbo(self, size: str) -> float:
        return fit(size, "coarse").elbo

    track_elbo.unit = "nats"


class Decorrelated:
    """Rotation, evidence and posterior in the basis where weights do not interact.

    Limit: the eigendecomposition of A, about 9 b³ flops; everything else is O(b²).
    """

    params = tuple(SIZES)
    param_names = ("size",)
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, size: str) -> None:
        from pydirect.statistics import decorrelate

        self.statistics = make_statistics(size)
        self.rotation = decorrelate(self.statistics)

    def time_decorrelate(self, size: str) -> None:
        from pydirect.statistics import decorrelate

        decorrelate(self.statistics)

    def time_maximise_evidence(self, size: str) -> None:
        from pydirect.linear import maximise_evidence

        maximise_evidence(self.rotation, 0.1)

    def time_fit(self, size: str) -> None:
        from pydirect import fit_gaussian

        fit_gaussian(self.rotation, 0.1)


class Statistics:
    """A, c, yᵀy of 20,000 rows of 11 inputs at b = 2000.

    Limit: n b (b + 1) flops at the rate of the BLAS's symmetric rank-k update.
    """

    params = ("float32", "float64")
    param_names = ("block_dtype",)
    n_rows = 20_000
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, block_dtype: str) -> None:
        self.features = make_features(2_000)
        self.x, self.y = make_data(self.n_rows)

    def time_collect(self, block_dtype: str) -> None:
        from pydirect import collect_statistics

        collect_statistics(self.features, self.x, self.y, block_dtype=block_dtype, n_threads=1)

    def track_rows_per_second(self, block_dtype: str) -> float:
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            self.time_collect(block_dtype)
            times.append(time.perf_counter() - begin)
        return self.n_rows / float(np.median(times))

    track_rows_per_second.unit = "rows/s"

    def track_fraction_of_limit(self, block_dtype: str) -> float:
        from ..common import fraction_of_limit, multiplying

        flops = self.n_rows * 2_000 * 2_001.0
        blocks = multiplying(block_dtype, 4_000, 2_000)
        return fraction_of_limit(lambda: self.time_collect(block_dtype), (blocks, flops), repeats=3)

    track_fraction_of_limit.unit = "1"


class Regressor:
    """DirectRegressor with 2000 Fourier features on 4000 rows: fit, and predictions of 4000 rows."""

    params = ("sequential", "gaussian")
    param_names = ("posterior",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 30.0), 0

    def setup(self, posterior: str) -> None:
        try:
            from pydirect import DirectRegressor
        except ImportError:
            raise NotImplementedError("this version has no DirectRegressor") from None
        self.x, y = make_data(4_000)
        self.y = y[:, 0]
        self.model = DirectRegressor(features="fourier", n_basis_functions=2_000, posterior=posterior)
        self.fitted = DirectRegressor(features="fourier", n_basis_functions=2_000, posterior=posterior).fit(
            self.x, self.y
        )

    def time_fit(self, posterior: str) -> None:
        self.model.fit(self.x, self.y)

    def time_predict_mean(self, posterior: str) -> None:
        self.fitted.predict(self.x)

    def time_predict_std(self, posterior: str) -> None:
        self.fitted.predict(self.x, return_std=True)

    def time_predict_interval(self, posterior: str) -> None:
        self.fitted.predict_distribution(self.x).interval(0.9)

    def track_rows_predicted_per_second(self, posterior: str) -> float:
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            self.fitted.predict(self.x, return_std=True)
            times.append(time.perf_counter() - begin)
        return len(self.x) / float(np.median(times))

    track_rows_predicted_per_second.unit = "rows/s"


class DefaultFit:
    """DirectRegressor as it comes, on 36,000 rows of eight columns: search, sums, choice of noise, local process.

    Limit: the bare rank-k update of as many rows at its 2000 basis functions.
    """

    timeout = 1800
    number, repeat, warmup_time = 1, 1, 0

    def setup(self) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((36_000, 8))
        f = np.sin(1.5 * self.x[:, 0]) + 0.5 * self.x[:, 1] * self.x[:, 2] + np.cos(self.x[:, 3] + self.x[:, 4])
        self.y = f + 0.3 * rng.standard_normal(len(f))

    def fit(self) -> dict[str, float]:
        from pydirect import DirectRegressor

        return DirectRegressor(n_threads=1).fit(self.x, self.y).fit_seconds_

    def time_fit(self) -> None:
        self.fit()

    def peakmem_fit(self) -> None:
        self.fit()

    def track_in_rank_k_updates(self) -> float:
        from ..common import multiplying, times_limit

        update = multiplying("float64", 2_000, 2_000)
        return times_limit(self.fit, lambda: [update.run() for _ in range(18)], repeats=1)

    track_in_rank_k_updates.unit = "updates"

    def track_inference_share(self) -> float:
        """Of the seconds of the fit, inference included its choice of noise."""
        seconds = self.fit()
        return seconds["inference"] / sum(seconds.values())

    track_inference_share.unit = "1"


class ManyOutputs:
    """A model of 100 outputs: what they share is done once, the rest are products with all of them."""

    params = (1, 100)
    param_names = ("n_outputs",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, n_outputs: int) -> None:
        from pydirect import DirectRegressor, Nystroem

        self.x, y = make_data(4_000)
        self.y = y + self.x @ np.random.default_rng(1).standard_normal((N_INPUTS, n_outputs))
        features = Nystroem(length_scale=3.0)
        self.model = DirectRegressor(features, 500, noise="constant", local=False, n_threads=1).fit(self.x, self.y)
        self.model.predict(self.x[:1], return_std=True)

    def time_fit(self, n_outputs: int) -> None:
        self.model.fit(self.x, self.y)

    def time_mean(self, n_outputs: int) -> None:
        self.model.predict(self.x)

    def time_mean_and_deviation(self, n_outputs: int) -> None:
        self.model.predict(self.x, return_std=True)

    def time_mean_and_deviation_of_one_row(self, n_outputs: int) -> None:
        self.model.predict(self.x[:1], return_std=True)


class ChoosingNoise:
    """Default fit of 12,000 rows at b = 1000: what it does after its sums over rows.

    Where noise is constant, some rows say so; where it varies, all rows are weighted and summed once more.
    """

    params = ("constant", "varying")
    param_names = ("noise",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 3, 60.0), 0

    def setup(self, noise: str) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((12_000, 8))
        spread = np.exp(0.5 * self.x[:, 7]) if noise == "varying" else 1.0
        f = np.sin(1.5 * self.x[:, 0]) + 0.5 * self.x[:, 1] * self.x[:, 2] + np.cos(self.x[:, 3] + self.x[:, 4])
        self.y = f + 0.3 * spread * rng.standard_normal(12_000)

    def _fit(self, **parameters: object) -> float:
        from pydirect import DirectRegressor

        begin = time.perf_counter()
        DirectRegressor(n_basis_functions=1_000, n_threads=1, **parameters).fit(self.x, self.y)
        return time.perf_counter() - begin

    def time_fit(self, noise: str) -> None:
        self._fit()

    def track_in_plain_fits(self, noise: str) -> float:
        """Seconds of a default fit over those of one with constant noise and without local detail."""
        turns = [(self._fit(), self._fit(noise="constant", local=False)) for _ in range(3)]
        return float(np.divide(*np.median(turns, axis=0)))

    track_in_plain_fits.unit = "plain fits"


class Predictive:
    """Layers below the estimator: moments of 4000 rows, and quantiles of mixtures of 15 Gaussians."""

    def setup(self) -> None:
        from pydirect import PredictiveDistribution

        self.posterior = fit("small")
        problem = make_problem("small")
        self.phi = problem.features.transform(problem.x, np.float64, 1)
        mean = self.phi @ self.posterior.mean
        spread = self.phi**2 @ self.posterior.variance
        variances = spread[:, None] + self.posterior.noise.levels
        self.make = lambda: PredictiveDistribution(self.posterior.noise.q, mean[:, None], variances)
        self.distribution = self.make()

    def time_interval(self) -> None:
        self.distribution.interval(0.9)

    def time_log_density(self) -> None:
        self.distribution.log_density(np.zeros(self.distribution.n_rows))


class Memory:
    """Peak memory of whole steps, the interpreter and its libraries included."""

    timeout = 300

    def peakmem_nothing(self) -> None:
        """What imports alone take: subtract it from the others."""

    def peakmem_statistics(self) -> None:
        """200,000 rows of 11 inputs (18 MB) at b = 1000: Φ would be 1.6 GB, A is 8 MB."""
        from pydirect import collect_statistics

        x, y = make_data(200_000)
        collect_statistics(make_features(1_000), x, y, n_threads=1)

    def peakmem_statistics_float32(self) -> None:
        """The same in blocks of single precision."""
        from pydirect import collect_statistics

        x, y = make_data(200_000)
        collect_statistics(make_features(1_000), x, y, block_dtype=np.float32, n_threads=1)

    def peakmem_fit(self) -> None:
        """Statistics and posterior at b = 2000: A in double (32 MB), in single, and its factor (16 MB each)."""
        fit("paper")


class WideInputs:
    """Features where inputs are many, as they are once columns enter twice."""

    params = (N_INPUTS, 4 * N_INPUTS)
    param_names = ("n_inputs",)

    def setup(self, n_inputs: int) -> None:
        self.features = make_features(2_000, n_inputs)
        self.x = np.random.default_rng(0).standard_normal((2_000, n_inputs))
        self.features.transform(self.x[:1], np.float32, 1)

    def time_features_float32(self, n_inputs: int) -> None:
        self.features.transform(self.x, np.float32, 1)


def timeraw_import() -> str:
    """``import pydirect`` in a fresh interpreter."""
    return "import pydirect"


def timeraw_import_everything() -> str:
    """With all that a fit from statistics needs."""
    return "from pydirect import collect_statistics, fit_mean_field"


def timeraw_import_numpy_and_scipy() -> str:
    """What any such package pays: the limit of the above."""
    return "import numpy, scipy.linalg, scipy.optimize, scipy.special, scipy.stats"


def track_compiled_bytes() -> int:
    """Size of the compiled modules as they are installed."""
    from pydirect import _core, _random

    return sum(os.path.getsize(str(module.__file__)) for module in (_core, _random))


track_compiled_bytes.unit = "bytes"  # type: ignore[attr-defined]


for _function in (timeraw_import, timeraw_import_everything, timeraw_import_numpy_and_scipy):
    _function.repeat, _function.number = 5, 1  # type: ignore[attr-defined]


class Groups:
    """`fit_groups` of many small tables, on one thread.

    Limit: a symmetric eigendecomposition per group, about 9 n³ flops for n rows.
    """

    params = ([(100, 3), (100, 200)],)
    param_names = ("shape",)
    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self, shape: tuple[int, int]) -> None:
        from pydirect import DirectRegressor, Nystroem

        n_groups, n_rows = shape
        x, y = make_data(n_groups * n_rows)
        self.groups = np.arange(len(x)) % n_groups
        self.x, self.y = x, np.ravel(y) + np.random.default_rng(0).standard_normal(n_groups)[self.groups]
        self.model = DirectRegressor(features=Nystroem(length_scale=3.0), n_threads=1)

    def time_fit_groups(self, shape: tuple[int, int]) -> None:
        from pydirect import fit_groups

        fit_groups(self.model, self.x, self.y, self.groups)
