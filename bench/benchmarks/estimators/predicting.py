"""Predictions of one row, whose cost is Python's and the memory's, and of 10,000 rows: of all kinds of models."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..common import make_data

N_LANDMARKS = 2_000


@cache
def fitted() -> Any:
    """A default model of 4000 rows, with constant noise and no local process; kept for all benchmarks."""
    from pydirect import DirectRegressor, Gaussian

    x, y = make_data(4_000)
    model = DirectRegressor(
        n_basis_functions=N_LANDMARKS, local=False, posterior=Gaussian(n_noise_levels=1), n_threads=1
    )
    return model.fit(x, y[:, 0])


class OneRow:
    """One row; limits: k(x, Z)α for the mean, and a product with a 2000² matrix of float32 for the deviation."""

    timeout = 600

    def setup(self) -> None:
        self.model, self.x = fitted(), make_data(4_000)[0][:1]
        self.model.predict(self.x, return_std=True)  # folds the matrix
        self.landmarks = self.model.features_.map
        self.inputs = self.model.features_.inputs(self.x)
        self.row = np.ones((1, N_LANDMARKS), dtype=np.float32)
        self.matrix = np.ones((N_LANDMARKS, N_LANDMARKS), dtype=np.float32)

    def time_mean(self) -> None:
        self.model.predict(self.x)

    def time_kernel_functions(self) -> None:
        self.landmarks.functions(self.inputs)

    def time_mean_and_deviation(self) -> None:
        self.model.predict(self.x, return_std=True)

    def time_product(self) -> None:
        self.row @ self.matrix

    def time_parts(self) -> None:
        self.model.predict_parts(self.x)

    def time_distribution(self) -> None:
        self.model.predict_distribution(self.x)

    def time_interval(self) -> None:
        self.model.predict_interval(self.x)

    def time_quantiles(self) -> None:
        self.model.predict_quantiles(self.x)


class FrameOfOneRow:
    """One row of a pandas frame; limit: `OneRow.time_mean`."""

    timeout = 600

    def setup(self) -> None:
        import pandas

        from pydirect import DirectRegressor, Nystroem

        x, y = make_data(1_000)
        frame = pandas.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
        self.model = DirectRegressor(features=Nystroem(length_scale=1.0), n_basis_functions=200, n_threads=1).fit(
            frame, y[:, 0]
        )
        self.row = frame.iloc[:1]

    def time_mean(self) -> None:
        self.model.predict(self.row)


class ManyRows:
    """10,000 rows; limits: k(x, Z) for the mean, and a product with a 2000² matrix of float32 for the deviation."""

    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 30.0), 0

    def setup(self) -> None:
        self.model, self.x = fitted(), make_data(10_000)[0]
        self.model.predict(self.x[:1], return_std=True)

    def time_mean(self) -> None:
        self.model.predict(self.x)

    def time_mean_and_deviation(self) -> None:
        self.model.predict(self.x, return_std=True)

    def time_interval(self) -> None:
        self.model.predict_interval(self.x)

    def track_deviations_in_products(self) -> float:
        """How many products with a matrix of float32 they cost."""
        rows = np.ones((len(self.x), N_LANDMARKS), dtype=np.float32)
        matrix = np.ones((N_LANDMARKS, N_LANDMARKS), dtype=np.float32)
        turns = []
        for _ in range(3):
            begin = time.perf_counter()
            self.time_mean_and_deviation()
            middle = time.perf_counter()
            rows @ matrix
            turns.append((middle - begin, time.perf_counter() - middle))
        return float(np.divide(*np.median(turns, axis=0)))

    track_deviations_in_products.unit = "products"


class File:
    """Size of the file, and time until a loaded model has predicted one deviation."""

    timeout = 600
    number, repeat, warmup_time = 1, (3, 5, 20.0), 0

    def setup(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "model.direct"
        fitted().save(self.path)
        self.x = make_data(4_000)[0][:1]

    def teardown(self) -> None:
        self.folder.cleanup()

    def track_bytes(self) -> int:
        return os.path.getsize(self.path)

    track_bytes.unit = "bytes"

    def time_load(self) -> None:
        import pydirect

        pydirect.load(self.path)

    def time_load_and_predict(self) -> None:
        import pydirect

        pydirect.load(self.path).predict(self.x, return_std=True)


@cache
def small(name: str) -> Any:
    """A model of 1000 rows by its name; a quantised one of a model after "quantised"."""
    import pydirect

    if name.startswith("quantised "):
        return small(name.removeprefix("quantised ")).quantize(16)
    x, y = make_data(1_000)
    labels = (y[:, 0] > np.median(y[:, 0])).astype(int)
    draws = {"posterior": "sequential", "n_basis_functions": 500}
    short = pydirect.TrainingSchedule(n_steps=300)
    models: dict[str, Any] = {
        "classifier": pydirect.DirectClassifier(n_basis_functions=384),
        "sequential regressor": pydirect.DirectRegressor(**draws),
        "sequential classifier": pydirect.DirectClassifier(**draws),
        "regressor": pydirect.DirectRegressor(n_basis_functions=500, local=False, noise="constant"),
        "quadratic network": pydirect.QuadraticBNNRegressor(),
        "DVI": pydirect.DVIRegressor(schedule=short),
        "DVI classifier": pydirect.DVIClassifier(schedule=short),
        "Monte Carlo network": pydirect.MonteCarloBNNRegressor(schedule=short),
        "Monte Carlo classifier": pydirect.MonteCarloBNNClassifier(schedule=short),
    }
    model = models[name].set_params(n_threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few steps
        return model.fit(x, labels if "lassifier" in name else y[:, 0])


class Models:
    """Means or probabilities, and deviations, of other models, by their numbers of rows."""

    params = (
        [
            "classifier",
            "sequential regressor",
            "sequential classifier",
            "quadratic network",
            "DVI",
            "DVI classifier",
            "Monte Carlo network",
            "Monte Carlo classifier",
            "quantised regressor",
            "quantised classifier",
            "quantised sequential regressor",
        ],
        [1, 10_000],
    )
    param_names = ("model", "n_rows")
    timeout = 900

    def setup(self, name: str, n_rows: int) -> None:
        self.model, self.x = small(name), make_data(10_000)[0][:n_rows]
        self.is_classifier = hasattr(self.model, "predict_proba")
        self.time_predict(name, n_rows)

    def time_predict(self, name: str, n_rows: int) -> None:
        if self.is_classifier:
            self.model.predict_proba(self.x)
        else:
            self.model.predict(self.x)

    def time_deviation(self, name: str, n_rows: int) -> None:
        if self.is_classifier:
            self.model.predict_logit(self.x, return_std=True)
        else:
            self.model.predict(self.x, return_std=True)
