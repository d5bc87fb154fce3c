"""The rows of `summed_rows` as arrays, blocks and Parquet files, and models fitted to them."""

import numpy as np
import pyarrow
import pyarrow.parquet
from summed_rows import WEIGHT, D, N, X, Y

from pydirect import Columns, DirectRegressor
from pydirect.streams.sources import ArraySource, BlockSource, as_source


def write_parquet(path, x=X, y=Y, weight=None, row_group_size=100, **more):
    columns = {f"x{j}": x[:, j] for j in range(x.shape[1])} | {f"y{k}": y[:, k] for k in range(y.shape[1])}
    if weight is not None:
        columns["w"] = weight
    pyarrow.parquet.write_table(pyarrow.table(columns | more), path, row_group_size=row_group_size)
    return path


def write_folder(path, sizes=(300, 1, 599)):
    path.mkdir()
    ends = np.cumsum(sizes)
    for k, (begin, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        write_parquet(path / f"part-{k}.parquet", X[begin:end], Y[begin:end], WEIGHT[begin:end])
    (path / "_metadata.parquet").write_bytes(b"not a table")
    return path


def as_blocks(size, weight=True):
    for i in range(0, N, size):
        yield (X[i : i + size], Y[i : i + size], *([WEIGHT[i : i + size]] if weight else []))


def all_sources(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    single = write_parquet(tmp_path / "one.parquet", weight=WEIGHT)
    return {
        "array": ArraySource(X, Y, WEIGHT),
        "mapped": as_source(mapped, Y, WEIGHT),
        "iterator": BlockSource(as_blocks(77)),
        "list": as_source(list(as_blocks(N))),
        "function": as_source(lambda: as_blocks(1)),
        "file": as_source(str(single), ["y0", "y1"], "w"),
        "folder": as_source(write_folder(tmp_path / "folder"), ["y0", "y1"], "w"),
    }


LINEAR = {"features": "linear", "columns": Columns(missing="raise")}


def fitted(*data, model=LINEAR, **options):
    return DirectRegressor(**model).fit_stream(*data, **options)


def numbered_blocks(bad=None, value=np.nan, n_blocks=1003, size=10):
    """Blocks of ten rows; a value of one of them, or what it does, may be bad."""
    rng = np.random.default_rng(9)
    for k in range(n_blocks):
        x = rng.standard_normal((size, D))
        y = x[:, 0] + 0.1 * rng.standard_normal(size)
        if k == bad and isinstance(value, BaseException):
            raise value
        if k == bad:
            x[3, 2] = value
        yield x, y


def with_features(**options):
    """Return a model whose feature map is fixed, ready for a single pass."""
    x, y = next(numbered_blocks(size=200))
    return DirectRegressor(**LINEAR, **options).fit_features(x, y)
