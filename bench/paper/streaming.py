"""The paper's largest shape from a Parquet file: a pass that holds a few blocks, then a sequential posterior.

2,049,280 synthetic rows of 11 inputs, 2000 weights, blocks of single precision, one thread. The rows are written in
row groups and fitted by `DirectRegressor.fit_stream` in a process of its own, whose peak memory is reported. The time
of the pass is compared with that of BLAS's ssyrk alone on as many rows, extrapolated from blocks of the same shape that
are measured between those of the run, because machines are seldom quiet for minutes. Drawing a sample and finding
hyperparameters from it are reported apart.
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
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from pydirect import DirectRegressor, Fourier, RunningStatistics  # noqa: E402

ROWS, N_INPUTS, N_WEIGHTS = 2_049_280, 11, 2000
# Sines and cosines beside a linear part and a constant make up the weights.
N_FOURIER = N_WEIGHTS - N_INPUTS - 1
ROW_GROUP = 131_072
# Number of blocks between two runs of the yardstick.
BLOCKS_BETWEEN = 8
GOALS = {"peak_gib": 1.5, "pass_over_ssyrk": 1.3, "inference_seconds": 1.0}


def write_table(path: Path, n_rows: int) -> None:
    """Write the rows group by group: the table is never held."""
    import pyarrow
    import pyarrow.parquet

    names = [f"x{j}" for j in range(N_INPUTS)]
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in [*names, "y"]])
    rng = np.random.default_rng(0)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for begin in range(0, n_rows, ROW_GROUP):
            n = min(ROW_GROUP, n_rows - begin)
            x = rng.standard_normal((n, N_INPUTS))
            y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.3 * rng.standard_normal(n)
            writer.write_table(pyarrow.table([*x.T, y], schema=schema))


class Yardstick:
    """ssyrk on a block of the same shape, run between blocks; its time is not the run's."""

    def __init__(self, n_rows: int) -> None:
        from scipy.linalg.blas import ssyrk

        self.block = np.random.default_rng(0).random((N_WEIGHTS, n_rows), dtype=np.float32).T
        self.ssyrk, self.n_rows = ssyrk, n_rows
        self.seconds_each: list[float] = []
        self.seconds, self.blocks = 0.0, 0
        self()
        self.seconds_each, self.seconds, self.blocks = [], 0.0, 0

    def __call__(self) -> None:
        begin = time.perf_counter()
        if self.blocks % BLOCKS_BETWEEN == 0:
            self.ssyrk(1.0, self.block, trans=1)
            self.seconds_each.append(time.perf_counter() - begin)
        self.blocks += 1
        self.seconds += time.perf_counter() - begin

    def seconds_for(self, n_rows: int) -> float:
        """What ssyrk alone would take; the mean, as the run's time is one."""
        return float(np.mean(self.seconds_each)) * n_rows / self.n_rows


def measure(path: Path, n_rows: int) -> dict[str, float]:
    """Fit, in this process; run it in a fresh one."""
    model = DirectRegressor(
        Fourier(rank_inputs=False, block_dtype="float32"),
        n_basis_functions=N_FOURIER,
        posterior="sequential",
        n_threads=1,
    )
    yardstick: list[Yardstick] = []
    merge = RunningStatistics.merge

    def merge_and_measure(self: RunningStatistics, other: RunningStatistics, **options: Any) -> RunningStatistics:
        merge(self, other, **options)
        if not yardstick:
            yardstick.append(Yardstick(self.block_rows))
        yardstick[0]()
        return self

    RunningStatistics.merge = merge_and_measure  # type: ignore[method-assign]
    begin = time.perf_counter()
    model.fit_stream(path, "y")
    wall = time.perf_counter() - begin
    RunningStatistics.merge = merge  # type: ignore[method-assign]
    assert model.features_.n_weights == N_WEIGHTS
    stages = model.fit_seconds_
    limit, seconds = yardstick[0].seconds_for(n_rows), stages["statistics"] - yardstick[0].seconds
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        model.partial_fit(np.zeros((1, N_INPUTS)), np.zeros(1))
    return {
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "pass_seconds": seconds,
        "rows_per_second": n_rows / seconds,
        "ssyrk_seconds": limit,
        "pass_over_ssyrk": seconds / limit,
        **{f"{stage}_seconds": stages[stage] for stage in ("sample", "features", "inference")},
        "wall_seconds": wall,
        "one_more_row_seconds": time.perf_counter() - start,
    }


def show(figures: dict[str, Any]) -> None:
    print(f"{figures['rows']:,} rows, {N_INPUTS} inputs, {N_WEIGHTS} weights, one thread")
    lines = {
        "peak memory, GiB": ("peak_gib", "peak_gib"),
        "sample, s": ("sample_seconds", None),
        "features and hyperparameters, s": ("features_seconds", None),
        "pass, s": ("pass_seconds", None),
        "pass, rows/s": ("rows_per_second", None),
        "ssyrk alone, s": ("ssyrk_seconds", None),
        "pass over ssyrk": ("pass_over_ssyrk", "pass_over_ssyrk"),
        "inference after the pass, s": ("inference_seconds", "inference_seconds"),
        "one more row by partial_fit, s": ("one_more_row_seconds", None),
    }
    for label, (key, goal) in lines.items():
        aim = "" if goal is None else f"   goal {GOALS[goal]:g}: {'met' if figures[key] <= GOALS[goal] else 'missed'}"
        print(f"{label:<34}{figures[key]:>12,.3f}{aim}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"at least 4000 (default {ROWS:,})")
    parser.add_argument("--folder", type=Path, help="where to write the table (default: a temporary folder)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures there")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.rows < 4000:
        parser.error(f"--rows must be at least 4000, got {options.rows}")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.measure:
        print(json.dumps(measure(options.measure, options.rows)))
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "rows.parquet"
        write_table(path, options.rows)
        command = [sys.executable, __file__, "--rows", str(options.rows), "--measure", str(path)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures = {"rows": options.rows, **json.loads(done.stdout)}
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
