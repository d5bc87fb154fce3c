"""What is compared. A model is a function from training rows to a function from test rows to their distributions.

A distribution has `mean`, `interval(level)`, `log_density(y)` and `crps(y)`. Settings are those that a package's
documentation or its authors' paper recommend; nothing is chosen by test rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import norm

from pydirect.predictive import PredictiveDistribution

Array = np.ndarray
Predict = Callable[[Array], Any]

HELD_OUT = 0.15  # of the training rows, for early stopping
LEVELS = np.array([0.05, 0.5, 0.95])
LARGE = 5000  # rows from which learning rates and batches are larger
N_INDUCING = 256
SVGP_STEPS = 1000
EXACT_STEPS = 50


def gaussian(mean: Array, std: Array | float) -> PredictiveDistribution:
    """Return Gaussians of float64 arrays."""
    mean = np.asarray(mean, dtype=np.float64)
    return PredictiveDistribution.gaussian(mean, np.broadcast_to(np.asarray(std, dtype=np.float64), mean.shape) ** 2)


class Units:
    """Standardised inputs and targets, as Gaussian processes want them."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x_mean, self.x_std = x.mean(axis=0), x.std(axis=0)
        self.x_std[self.x_std < 1e-12 * (1.0 + np.abs(self.x_mean))] = 1.0
        self.y_mean, self.y_std = y.mean(), y.std()

    def inputs(self, x: Array) -> Array:
        return (x - self.x_mean) / self.x_std

    def targets(self, y: Array) -> Array:
        return (y - self.y_mean) / self.y_std

    def gaussian(self, mean: Array, std: Array) -> PredictiveDistribution:
        """Return predictions in the user's units."""
        return gaussian(np.asarray(mean) * self.y_std + self.y_mean, np.asarray(std) * self.y_std)


def split(n: int) -> tuple[Array, Array]:
    """Rows to fit and rows held out for early stopping."""
    order = np.random.default_rng(0).permutation(n)
    n_held = max(int(HELD_OUT * n), 10)
    return order[n_held:], order[:n_held]


# --- pydirect and scikit-learn


def direct(x: Array, y: Array) -> Predict:
    """`DirectRegressor()`."""
    from pydirect import DirectRegressor

    return DirectRegressor().fit(x, y).predict_distribution


def dvi(x: Array, y: Array) -> Predict:
    """`DVIRegressor()`."""
    from pydirect import DVIRegressor

    return DVIRegressor().fit(x, y).predict_distribution


def bayesian_ridge(x: Array, y: Array) -> Predict:
    """Behind a `StandardScaler`."""
    from sklearn.linear_model import BayesianRidge

    units = Units(x, y)
    model = BayesianRidge().fit(units.inputs(x), y)
    return lambda rows: gaussian(*model.predict(units.inputs(rows), return_std=True))


def sklearn_gp(x: Array, y: Array) -> Predict:
    """Matern-5/2 with a length scale per input, and noise; standardised, one restart."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    units, d = Units(x, y), x.shape[1]
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(np.full(d, np.sqrt(d)), (1e-2, 1e4), nu=2.5)
    kernel += WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
    model.fit(units.inputs(x), y)
    return lambda rows: gaussian(*model.predict(units.inputs(rows), return_std=True))


# --- boosted trees: early stopping on held-out rows, then a fit of as many trees to all rows


def lightgbm(x: Array, y: Array) -> Predict:
    """Squared error; the noise is one Gaussian with the mean square of the held-out residuals."""
    import lightgbm
    from lightgbm import LGBMRegressor

    def make(n: int) -> Any:
        return LGBMRegressor(n_estimators=n, learning_rate=0.05, n_jobs=1, verbose=-1, random_state=0)

    fit, held = split(len(y))
    stop = lightgbm.early_stopping(100, verbose=False)
    first = make(5000).fit(x[fit], y[fit], eval_set=[(x[held], y[held])], callbacks=[stop])
    std = float(np.sqrt(np.mean((y[held] - first.predict(x[held])) ** 2)))
    model = make(max(first.best_iteration_, 1)).fit(x, y)
    return lambda rows: gaussian(model.predict(rows), std)


class QuantileGaussian:
    """The Gaussian of a median and a central interval of 90 %, which keeps this interval as it is."""

    def __init__(self, median: Array, lower: Array, upper: Array, least: float) -> None:
        self.ends = np.minimum(lower, upper), np.maximum(lower, upper)
        std = (self.ends[1] - self.ends[0]) / np.diff(norm.ppf(LEVELS[[0, -1]]))
        self.gaussian = gaussian(median, np.maximum(std, least))
        self.mean, self.log_density, self.crps = self.gaussian.mean, self.gaussian.log_density, self.gaussian.crps

    def interval(self, level: float) -> tuple[Array, Array]:
        assert np.isclose(level, LEVELS[-1] - LEVELS[0]), level
        return self.ends


def lightgbm_quantiles(x: Array, y: Array) -> Predict:
    """Three quantile models; the outer ones made conformal (Romano et al. 2019) on 15 % that no model has seen."""
    import lightgbm
    from lightgbm import LGBMRegressor

    rest, calibration = split(len(y))
    models = []
    for level in LEVELS:
        fit, held = (rest[chosen] for chosen in split(len(rest)))
        options: dict[str, Any] = {"objective": "quantile", "alpha": level, "learning_rate": 0.05}
        model = LGBMRegressor(n_estimators=5000, n_jobs=1, verbose=-1, random_state=0, **options)
        stop = lightgbm.early_stopping(100, verbose=False)
        models.append(model.fit(x[fit], y[fit], eval_set=[(x[held], y[held])], callbacks=[stop]))

    low, _, high = (model.predict(x[calibration]) for model in models)
    outside = np.maximum(low - y[calibration], y[calibration] - high)
    level = min((LEVELS[-1] - LEVELS[0]) * (1.0 + 1.0 / len(calibration)), 1.0)
    shift = np.quantile(outside, level, method="higher")
    least = 1e-3 * float(y.std())

    def predict(rows: Array) -> QuantileGaussian:
        low, median, high = (model.predict(rows) for model in models)
        return QuantileGaussian(median, low - shift, high + shift, least)

    return predict


def early_stopped_catboost(x: Array, y: Array, loss: str) -> tuple[Any, Any, Array]:
    """Return the model of some rows, that of as many trees of all rows, and the rows held out."""
    from catboost import CatBoostRegressor

    def make(n: int, **options: Any) -> Any:
        options |= {"thread_count": 1, "verbose": False, "allow_writing_files": False, "random_seed": 0}
        return CatBoostRegressor(loss_function=loss, iterations=n, **options)

    fit, held = split(len(y))
    first = make(3000, early_stopping_rounds=100)
    first.fit(x[fit], y[fit], eval_set=(x[held], y[held]))
    rate = first.get_all_params()["learning_rate"]  # chosen by CatBoost, by rows and iterations
    return first, make(max(first.get_best_iteration() + 1, 1), learning_rate=rate).fit(x, y), held


def catboost(x: Array, y: Array) -> Predict:
    """Squared error; noise as for LightGBM."""
    first, model, held = early_stopped_catboost(x, y, "RMSE")
    std = float(np.sqrt(np.mean((y[held] - first.predict(x[held], thread_count=1)) ** 2)))
    return lambda rows: gaussian(model.predict(rows, thread_count=1), std)


def catboost_uncertainty(x: Array, y: Array) -> Predict:
    """`RMSEWithUncertainty`: mean and variance of each row."""
    _, model, _ = early_stopped_catboost(x, y, "RMSEWithUncertainty")

    def predict(rows: Array) -> PredictiveDistribution:
        mean, variance = model.predict(rows, thread_count=1).T
        return gaussian(mean, np.sqrt(variance))

    return predict


def ngboost(x: Array, y: Array) -> Predict:
    """Gaussian; half as many trees as in its paper, of steps twice as large; a quarter on large sets."""
    from ngboost import NGBRegressor

    large = len(y) > LARGE
    options = {"learning_rate": 0.04 if large else 0.02, "verbose": False, "random_state": 0}
    fit, held = split(len(y))
    first = NGBRegressor(n_estimators=500 if large else 1000, **options)
    first.fit(x[fit], y[fit], X_val=x[held], Y_val=y[held], early_stopping_rounds=50)
    n = first.best_val_loss_itr
    model = NGBRegressor(n_estimators=max(first.n_estimators if n is None else n + 1, 1), **options).fit(x, y)

    def predict(rows: Array) -> PredictiveDistribution:
        found = model.pred_dist(rows)
        return gaussian(found.params["loc"], found.params["scale"])

    return predict


# --- Gaussian processes


def gpytorch_exact(x: Array, y: Array) -> Predict:
    """Matern-5/2 with a length scale per input; Adam on the marginal likelihood, Cholesky where rows allow it."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    units = Units(x, y)
    rows, targets = torch.tensor(units.inputs(x)), torch.tensor(units.targets(y))

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(rows, targets, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=x.shape[1]))

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-6))
    likelihood.noise = 0.1
    model = Model().double()
    model.kernel.base_kernel.lengthscale = np.sqrt(x.shape[1])
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    with gpytorch.settings.max_cholesky_size(4000):
        for _ in range(EXACT_STEPS):
            optimiser.zero_grad()
            (-bound(model(rows), targets)).backward()
            optimiser.step()
    model.eval()
    likelihood.eval()

    def predict(new: Array) -> PredictiveDistribution:
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(4000):
            found = likelihood(model(torch.tensor(units.inputs(new))))
            return units.gaussian(found.mean.numpy(), found.stddev.numpy())

    return predict


def batches(n: int, size: int, n_steps: int) -> Iterator[Any]:
    """Rows of `n_steps` batches, shuffled in every pass."""
    import torch

    passes = (chosen for _ in itertools.count() for chosen in torch.randperm(n).split(size))
    return itertools.islice(passes, n_steps)


def gpytorch_svgp(x: Array, y: Array) -> Predict:
    """256 inducing points of the training rows, learned; Adam on batches of the variational bound."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    units = Units(x, y)
    rows, targets = torch.tensor(units.inputs(x)), torch.tensor(units.targets(y))
    inducing = rows[torch.randperm(len(rows))[:N_INDUCING]].clone()

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=x.shape[1]))

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
    ).double()
    likelihood.noise = 0.1
    model = Model().double()
    model.kernel.base_kernel.lengthscale = np.sqrt(x.shape[1])
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(rows))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.03)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [SVGP_STEPS * 3 // 4], gamma=0.1)
    for chosen in batches(len(rows), 1024 if len(rows) > LARGE else 256, SVGP_STEPS):
        optimiser.zero_grad()
        (-bound(model(rows[chosen]), targets[chosen])).backward()
        optimiser.step()
        schedule.step()
    model.eval()
    likelihood.eval()

    def predict(new: Array) -> PredictiveDistribution:
        with torch.no_grad():
            found = likelihood(model(torch.tensor(units.inputs(new))))
            return units.gaussian(found.mean.numpy(), found.stddev.numpy())

    return predict


def gpboost(x: Array, y: Array) -> Predict:
    """`GPModel`: Matern-3/2 (its default) with a range per input, Vecchia's approximation."""
    from gpboost import GPModel

    units = Units(x, y)
    options: dict[str, Any] = {"cov_function": "matern_ard", "gp_approx": "vecchia", "num_parallel_threads": 1}
    model = GPModel(gp_coords=units.inputs(x), likelihood="gaussian", **options)
    model.fit(units.targets(y))

    def predict(rows: Array) -> PredictiveDistribution:
        found = model.predict(gp_coords_pred=units.inputs(rows), predict_var=True, predict_response=True)
        return units.gaussian(found["mu"], np.sqrt(found["var"]))

    return predict


# Name, function, and the packages that it needs beside pydirect's own.
MODELS: dict[str, tuple[Callable[[Array, Array], Predict], tuple[str, ...]]] = {
    "DirectRegressor": (direct, ()),
    "DVIRegressor": (dvi, ()),
    "BayesianRidge": (bayesian_ridge, ()),
    "scikit-learn GP": (sklearn_gp, ()),
    "LightGBM": (lightgbm, ("lightgbm",)),
    "LightGBM quantiles": (lightgbm_quantiles, ("lightgbm",)),
    "CatBoost": (catboost, ("catboost",)),
    "CatBoost uncertainty": (catboost_uncertainty, ("catboost",)),
    "NGBoost": (ngboost, ("ngboost",)),
    "GPyTorch exact": (gpytorch_exact, ("gpytorch", "torch")),
    "GPyTorch SVGP": (gpytorch_svgp, ("gpytorch", "torch")),
    "GPBoost": (gpboost, ("gpboost",)),
}
# An approximation for sets that are too large for the exact process is not tried on smaller ones.
FEWEST_ROWS = {"GPyTorch SVGP": 1000}
