"""A million rows in any cut, order and number of workers: how far statistics and models differ, and what Dask costs.

Statistics of one `update` are compared with those of streams cut into blocks of other sizes, in other orders, merged in
a tree, and with a part subtracted again; once with inputs of mean zero and once of mean 1e6, where sums about zero are
shown beside them. With --dask a local cluster of two worker processes fits the same rows, and its time is compared with
that of one process on two threads.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

from pydirect import DirectRegressor, Fourier, GaussianStatistics, RunningStatistics
from pydirect.features import FourierFeatures, LinearFeatures

N_INPUTS = 11


def make_data(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((n_rows, N_INPUTS))
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(n_rows)


def difference(a: RunningStatistics, b: RunningStatistics) -> float:
    """Largest difference of scatter, cross products and squares, as a fraction of the largest entry of each."""
    pairs = [(getattr(a, name), getattr(b, name)) for name in ("scatter", "cross", "y_scatter")]
    return max(float(np.abs(p - q).max() / np.abs(q).max()) for p, q in pairs)


def in_blocks(features: Any, x: np.ndarray, y: np.ndarray, size: int, order: np.ndarray) -> RunningStatistics:
    total = RunningStatistics.empty(features)
    for begin in order:
        total.update(x[begin : begin + size], y[begin : begin + size])
    return total


def in_a_tree(features: Any, x: np.ndarray, y: np.ndarray, n_parts: int) -> RunningStatistics:
    rows = np.array_split(np.arange(len(x)), n_parts)
    parts = [RunningStatistics.empty(features).update(x[i], y[i]) for i in rows]
    while len(parts) > 1:
        parts = [parts[i].merge(parts[i + 1]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def cuts(name: str, features: Any, x: np.ndarray, y: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    whole = RunningStatistics.empty(features).update(x, y)
    print(f"{name}: {len(x):,} rows, {features.n_weights} weights; largest relative difference from one update")
    for size in (100_000, 7_001, 1_000):
        starts = np.arange(0, len(x), size)
        for label, order in (("in order", starts), ("shuffled", rng.permutation(starts))):
            print(
                f"  blocks of {size:>7,}, {label:<9}{difference(in_blocks(features, x, y, size, order), whole):>12.1e}"
            )
    print(f"  tree of 37 parts         {difference(in_a_tree(features, x, y, 37), whole):>15.1e}")
    more = whole.copy().merge(RunningStatistics.empty(features).update(x[: len(x) // 3], y[: len(x) // 3]))
    more.subtract(RunningStatistics.empty(features).update(x[: len(x) // 3], y[: len(x) // 3]))
    print(f"  a third added, subtracted{difference(more, whole):>15.1e}")


def large_means(x: np.ndarray, y: np.ndarray, mean: float) -> None:
    """Coefficients of a linear model, against those of centred data."""
    w = np.arange(1.0, N_INPUTS + 1)
    target = x @ w + 0.01 * y
    running = in_blocks(LinearFeatures(N_INPUTS), x + mean, target + mean, 9_999, np.arange(0, len(x), 9_999)).centred()
    centred, exact = x - x.mean(axis=0), target - target.mean()
    expected = np.linalg.lstsq(centred, exact, rcond=None)[0]
    found = np.linalg.lstsq(running.A[:-1, :-1], running.c[:-1, 0], rcond=None)[0]
    naive = GaussianStatistics.from_arrays(np.c_[x + mean, np.ones(len(x))], target + mean)
    lost = np.linalg.lstsq(naive.A, naive.c[:, 0], rcond=None)[0][:-1]
    print(f"means of {mean:g}: largest error of a coefficient, of {w.max():g} the largest")
    print(f"  sums about means {np.abs(found - expected).max():>12.1e}")
    print(f"  sums about zero  {np.abs(lost - expected).max():>12.1e}")


def dask_overhead(x: np.ndarray, y: np.ndarray, n_weights: int, partition: int) -> None:
    import dask.array as da
    import distributed

    parameters: dict[str, Any] = {"features": Fourier(length_scale=3.0), "n_basis_functions": n_weights - N_INPUTS - 1}
    model = DirectRegressor(**parameters, n_threads=2).fit_features(x[:20_000], y[:20_000])
    begin = time.perf_counter()
    single = model.fit_stream(x, y, keep_features=True).statistics_
    seconds = time.perf_counter() - begin
    expected = model.predict(x[:1000])
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        arrays = client.persist([da.from_array(a, chunks=(partition, *a.shape[1:])) for a in (x, y)])
        distributed.wait(arrays)
        model.fit_stream(*(a[:partition] for a in arrays), keep_features=True)  # workers import, once
        begin = time.perf_counter()
        model.fit_stream(*arrays, keep_features=True)
        spread = time.perf_counter() - begin
    print(f"Dask, two worker processes: {len(x):,} rows, {n_weights} weights, partitions of {partition:,} rows")
    print(f"  one process, two threads {seconds:>10.2f} s")
    print(f"  two processes            {spread:>10.2f} s   {spread / seconds - 1:+.0%}")
    print(f"  statistics differ by     {difference(model.statistics_, single):>10.1e}")
    print(f"  predictions differ by    {np.abs(model.predict(x[:1000]) / expected - 1).max():>10.1e}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="at least 40000 (default a million)")
    parser.add_argument("--weights", type=int, default=200, help="of the Fourier features (default 200)")
    parser.add_argument("--dask", action="store_true", help="also fit on a local cluster")
    parser.add_argument("--partition", type=int, default=50_000, help="rows of Dask's partitions (default 50000)")
    options = parser.parse_args(arguments)
    if options.rows < 40_000:
        parser.error(f"--rows must be at least 40000, got {options.rows}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    x, y = make_data(options.rows)
    frequencies = np.random.default_rng(1).standard_normal((N_INPUTS, options.weights // 2)) / 3.0
    features = FourierFeatures(frequencies, np.full(options.weights // 2, np.sqrt(2.0 / options.weights)))
    cuts("Fourier features", features, x, y)
    cuts("linear features, means of 1e6", LinearFeatures(N_INPUTS), x + 1e6, y + 1e6)
    large_means(x, y, 1e6)
    if options.dask:
        dask_overhead(x, y, options.weights, options.partition)
    return 0


if __name__ == "__main__":
    sys.exit(main())
