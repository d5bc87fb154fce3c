"""Sufficient statistics of a million rows: rate, memory and rounding.

n rows of 11 inputs through 1000 random frequencies (b = 2000), one thread, with blocks of single and of double
precision. The rate is compared with that of the BLAS's symmetric rank-k update on blocks of the same shape, measured
between the blocks of the run itself, because machines are seldom quiet for minutes.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from pydirect import collect_statistics  # noqa: E402
from pydirect.features import FourierFeatures  # noqa: E402
from pydirect.statistics.gaussian import block_rows  # noqa: E402

N_INPUTS, N_FREQUENCIES = 11, 1000
N_WEIGHTS = 2 * N_FREQUENCIES
# Number of blocks between two runs of the yardstick.
BLOCKS_BETWEEN = 4
# Blocks of the run that measures memory: it does not grow with them.
MEMORY_BLOCKS = 8
PRECISIONS = ("float32", "float64")


def make_features() -> FourierFeatures:
    frequencies = np.random.default_rng(1).standard_normal((N_INPUTS, N_FREQUENCIES)) / 3.0
    return FourierFeatures(frequencies, np.full(N_FREQUENCIES, np.sqrt(1.0 / N_FREQUENCIES)))


def make_data(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((n_rows, N_INPUTS))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(n_rows)
    return x, y[:, None]


class TimedFeatures:
    """A feature map that knows how long it was at work."""

    def __init__(self, features: FourierFeatures) -> None:
        self.features, self.n_weights, self.seconds = features, features.n_weights, 0.0

    def transform(self, x: np.ndarray, dtype: Any = np.float64, n_threads: int = 1) -> np.ndarray:
        begin = time.perf_counter()
        out = self.features.transform(x, dtype, n_threads)
        self.seconds += time.perf_counter() - begin
        return out


class Yardstick:
    """The rank-k update on a block of the same shape, run between blocks; its time is not the run's."""

    def __init__(self, n_rows: int, dtype: str) -> None:
        rng = np.random.default_rng(0)
        self.block = rng.random((n_rows, N_WEIGHTS), dtype=np.dtype(dtype).type)
        self.rates: list[float] = []
        self.seconds, self.blocks = 0.0, 0

    def __call__(self, done: int, total: int) -> None:
        entered = time.perf_counter()
        self.blocks += 1
        if self.blocks % BLOCKS_BETWEEN == 1:
            begin = time.perf_counter()
            np.matmul(self.block.T, self.block)
            self.rates.append(flops(len(self.block)) / (time.perf_counter() - begin))
        self.seconds += time.perf_counter() - entered


def flops(n_rows: int) -> float:
    """Multiplications and additions of one triangle of ΦᵀΦ."""
    return n_rows * N_WEIGHTS * (N_WEIGHTS + 1.0)


def resident() -> int:
    """Peak resident bytes of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_rate(n_rows: int, dtype: str, keep: Path) -> dict[str, float]:
    """Collect once; keep A for the comparison of precisions."""
    x, y = make_data(n_rows)
    features = TimedFeatures(make_features())
    features.transform(x[:1], dtype)
    features.seconds = 0.0
    yardstick = Yardstick(min(block_rows(N_WEIGHTS, dtype), n_rows), dtype)
    np.matmul(yardstick.block[:256].T, yardstick.block[:256])
    begin = time.perf_counter()
    statistics = collect_statistics(features, x, y, block_dtype=dtype, n_threads=1, progress=yardstick)
    wall = time.perf_counter() - begin - yardstick.seconds
    np.save(keep, statistics.A)
    achieved, limit = flops(n_rows) / wall, float(np.median(yardstick.rates))
    return {
        "seconds": wall,
        "rows_per_second": n_rows / wall,
        "flops_per_second": achieved,
        "limit_flops_per_second": limit,
        "fraction_of_limit": achieved / limit,
        "share_of_features": features.seconds / wall,
    }


def measure_memory(n_rows: int, dtype: str) -> dict[str, float]:
    """Peak memory with all rows held, beyond what held before collecting; a few blocks are as good as all."""
    x, y = make_data(n_rows)
    used = min(n_rows, MEMORY_BLOCKS * block_rows(N_WEIGHTS, dtype))
    before = resident()
    collect_statistics(make_features(), x[:used], y[:used], block_dtype=dtype, n_threads=1)
    return {
        "peak_bytes": resident(),
        "beyond_data_bytes": resident() - before,
        "design_matrix_bytes": 8.0 * n_rows * N_WEIGHTS,
    }


def in_fresh_process(*arguments: str) -> dict[str, float]:
    """Run one measurement of this script in an interpreter of its own."""
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def rounding(single: Path, double: Path) -> dict[str, float]:
    """Largest difference between the two A, as a fraction of the largest diagonal entry."""
    a, exact = np.load(single), np.load(double)
    return {"largest_difference": float(np.abs(a - exact).max() / exact.diagonal().max())}


def measure(n_rows: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"rows": n_rows, "inputs": N_INPUTS, "weights": N_WEIGHTS}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in PRECISIONS:
            keep = Path(folder) / f"{dtype}.npy"
            common = ("--rows", str(n_rows), "--measure")
            figures[dtype] = {
                **in_fresh_process(*common, "rate", dtype, str(keep)),
                **in_fresh_process(*common, "memory", dtype),
            }
        figures.update(rounding(*(Path(folder) / f"{dtype}.npy" for dtype in PRECISIONS)))
    return figures


def show(figures: dict[str, Any]) -> None:
    print(f"{figures['rows']:,} rows, {figures['inputs']} inputs, {figures['weights']} weights, one thread")
    print(
        f"{'blocks':<9}{'seconds':>9}{'rows/s':>9}{'GF/s':>8}{'syrk GF/s':>11}{'fraction':>10}{'features':>10}"
        f"{'peak MB':>9}{'beyond data':>13}"
    )
    for dtype in PRECISIONS:
        f = figures[dtype]
        print(
            f"{dtype:<9}{f['seconds']:>9.2f}{f['rows_per_second']:>9.0f}{f['flops_per_second'] / 1e9:>8.1f}"
            f"{f['limit_flops_per_second'] / 1e9:>11.1f}{f['fraction_of_limit']:>10.2f}{f['share_of_features']:>10.1%}"
            f"{f['peak_bytes'] / 1e6:>9.0f}{f['beyond_data_bytes'] / 1e6:>13.0f}"
        )
    print(f"largest difference of float32 blocks: {figures['largest_difference']:.1e} of the largest diagonal entry")
    print(f"the design matrix itself would take {figures['float64']['design_matrix_bytes'] / 1e6:,.0f} MB")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help=f"at least {N_WEIGHTS} (default a million)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures there")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.rows < N_WEIGHTS:
        parser.error(f"--rows must be at least {N_WEIGHTS}, got {options.rows}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.measure:
        what, dtype, *keep = options.measure
        result = measure_rate(options.rows, dtype, Path(keep[0])) if keep else measure_memory(options.rows, dtype)
        print(json.dumps(result | {"kind": what}))
        return 0
    figures = measure(options.rows)
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
