"""Problems and models whose growth `scaling.py` measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 65_536


@dataclass(frozen=True)
class Point:
    """A model and the sizes of its problem."""

    model: str = "design"
    rows: int = 10_000
    basis: int = 500
    columns: int = 8
    outputs: int = 1
    threads: int = 1


def make_rows(point: Point, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of standard normal columns; outputs are mixtures of four smooth functions with noise."""
    rng = np.random.default_rng((begin, 7))
    x = rng.standard_normal((end - begin, point.columns))
    last = x[:, -1]
    parts = np.stack([np.sin(1.5 * x[:, 0]), x[:, 0] * x[:, 1] / 2, np.cos(x[:, 1] + last), last], axis=1)
    mixed = np.random.default_rng(1).standard_normal((4, point.outputs))
    mixed[:, 0] = 1.0
    y = parts @ mixed + 0.3 * rng.standard_normal((end - begin, point.outputs))
    return x, y[:, 0] if point.outputs == 1 else y


def blocks(point: Point) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All rows, a block at a time."""
    for begin in range(0, point.rows, BLOCK):
        yield make_rows(point, begin, min(begin + BLOCK, point.rows))


def write_npy(point: Point, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write the rows block by block and return the mapped files."""
    width = (point.rows, point.outputs) if point.outputs > 1 else (point.rows,)
    shapes = {"x": (point.rows, point.columns), "y": width}
    maps = {k: np.lib.format.open_memmap(folder / f"{k}.npy", "w+", np.float64, s) for k, s in shapes.items()}
    begin = 0
    for x, y in blocks(point):
        maps["x"][begin : begin + len(x)], maps["y"][begin : begin + len(x)] = x, y
        begin += len(x)
    del maps
    x, y = (np.load(folder / f"{k}.npy", mmap_mode="r") for k in shapes)
    return x, y


def write_parquet(point: Point, folder: Path) -> tuple[Path, Any]:
    """Write the rows block by block; return the file and the names of its targets."""
    import pyarrow
    import pyarrow.parquet

    targets = [f"y{k}" for k in range(point.outputs)]
    schema = pyarrow.schema([(n, pyarrow.float64()) for n in [*(f"x{j}" for j in range(point.columns)), *targets]])
    with pyarrow.parquet.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for x, y in blocks(point):
            writer.write_table(pyarrow.table([*x.T, *y.reshape(len(x), -1).T], schema=schema))
    return folder / "rows.parquet", targets[0] if point.outputs == 1 else targets


def make_pydirect(point: Point, folder: Path) -> tuple[Any, Callable[[], Any]]:
    """Return a regressor of ours and the call that fits it; data are made before."""
    from pydirect import DirectRegressor, Nystroem

    options: dict[str, Any] = {"n_basis_functions": point.basis, "n_threads": point.threads}
    if point.model != "default":
        options |= {"noise": "constant", "local": False, "features": Nystroem(length_scale=3.0)}
    model = DirectRegressor(**options)
    if point.model == "blocks":
        return model, lambda: model.fit_stream(lambda: blocks(point))
    if point.model == "parquet":
        path, targets = write_parquet(point, folder)
        return model, lambda: model.fit_stream(path, targets)
    if point.model == "npy":
        mapped = write_npy(point, folder)
        return model, lambda: model.fit_stream(*mapped)
    x, y = make_rows(point, 0, point.rows)
    return model, lambda: model.fit(x, y)


def make_lightgbm(point: Point, folder: Path) -> tuple[Any, Callable[[], Any]]:
    """Return boosted trees, one model per output."""
    from lightgbm import LGBMRegressor
    from sklearn.multioutput import MultiOutputRegressor

    model: Any = LGBMRegressor(n_estimators=200, n_jobs=point.threads, verbose=-1)
    if point.outputs > 1:
        model = MultiOutputRegressor(model)
    x, y = make_rows(point, 0, point.rows)
    return model, lambda: model.fit(x, y)


def make_gpr(point: Point, folder: Path) -> tuple[Any, Callable[[], Any]]:
    """Return scikit-learn's exact process."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    model = GaussianProcessRegressor(ConstantKernel() * RBF(3.0) + WhiteKernel(0.1), normalize_y=True)
    x, y = make_rows(point, 0, point.rows)
    return model, lambda: model.fit(x, y)


class SVGP:
    """GPyTorch's variational process: Adam, five passes over batches of 1024 rows."""

    def __init__(self, n_inducing: int, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.n_inducing = n_inducing

    def fit(self, x: np.ndarray, y: np.ndarray) -> SVGP:
        import gpytorch
        import torch

        inducing = torch.tensor(x[: self.n_inducing], dtype=torch.float32)

        class Model(gpytorch.models.ApproximateGP):
            def __init__(self) -> None:
                q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
                super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q))
                self.mean = gpytorch.means.ConstantMean()
                self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

            def forward(self, rows: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean(rows), self.kernel(rows))

        self.model, self.likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
        elbo = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, len(x))
        rows = torch.utils.data.TensorDataset(*(torch.tensor(a, dtype=torch.float32) for a in (x, y)))
        parameters = [*self.model.parameters(), *self.likelihood.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=0.01)
        for _ in range(5):
            for batch, target in torch.utils.data.DataLoader(rows, 1024, shuffle=True):
                optimiser.zero_grad()
                (-elbo(self.model(batch), target)).backward()
                optimiser.step()
        self.model.eval()
        return self

    def predict(self, x: np.ndarray, return_std: bool = False) -> Any:
        import torch

        with torch.no_grad():
            found = self.likelihood(self.model(torch.tensor(x, dtype=torch.float32)))
            return (found.mean.numpy(), found.stddev.numpy()) if return_std else found.mean.numpy()


def make_svgp(point: Point, folder: Path) -> tuple[Any, Callable[[], Any]]:
    """Return GPyTorch's variational process."""
    if point.outputs > 1:
        raise NotImplementedError("one output only")
    model = SVGP(point.basis, point.threads)
    x, y = make_rows(point, 0, point.rows)
    return model, lambda: model.fit(x, y)


MAKERS = {"lightgbm": make_lightgbm, "gpr": make_gpr, "svgp": make_svgp}
