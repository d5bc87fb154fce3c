"""A forecast by scikit-learn's kernel of CO₂, by its GaussianProcessRegressor and by DirectRegressor, in seconds.

The series is drawn, with the trend, season and irregularities of the one at Mauna Loa: the machine needs no network.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, RationalQuadratic, WhiteKernel

from pydirect import DirectRegressor, Nystroem

KERNEL = (
    50.0**2 * RBF(50.0)
    + 2.0**2 * RBF(100.0) * ExpSineSquared(1.0, 1.0, periodicity_bounds="fixed")
    + 0.5**2 * RationalQuadratic()
    + 0.1**2 * RBF(0.1)
    + WhiteKernel(0.1**2, (1e-5, 1e5))
)


def series(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return years (n_rows, 1) and concentrations."""
    rng = np.random.default_rng(0)
    year = np.sort(rng.uniform(1958, 2001, n_rows))
    since = year - 1958
    season = (2.5 + 0.01 * since) * np.sin(2 * np.pi * year) + 0.8 * np.cos(4 * np.pi * year)
    trend = 315 + since + 0.012 * since**2 + 0.6 * np.sin(since / 1.7)
    return year[:, None], trend + season + 0.25 * rng.standard_normal(n_rows)


def main() -> None:
    """Print seconds, errors and coverage of the last years, which are left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 20_000])
    parser.add_argument("--most", type=int, default=1200, help="rows beyond which scikit-learn is not asked")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for n_rows in arguments.rows:
        year, y = series(n_rows)
        train = year[:, 0] < 1998
        models = {"pydirect, 300 landmarks": DirectRegressor(Nystroem(kernel=KERNEL), n_basis_functions=300)}
        if n_rows <= arguments.most:
            models["scikit-learn"] = GaussianProcessRegressor(KERNEL)
        for name, model in models.items():
            centre, begin = y[train].mean(), time.process_time()
            mean, std = model.fit(year[train], y[train] - centre).predict(year[~train], return_std=True)
            seconds, error = time.process_time() - begin, mean + centre - y[~train]
            inside = np.mean(np.abs(error) < 1.645 * std)
            rmse = np.sqrt(np.mean(error**2))
            print(f"{n_rows:>7} rows, {name}: {seconds:.1f} s, RMSE {rmse:.3f}, inside 90 % intervals {inside:.2f}")


if __name__ == "__main__":
    main()
