"""Custom kernels: objects of `sklearn.gaussian_process.kernels`, their search, and how they are saved.

1. The kernel is of the columns and of y in their own units, as in scikit-learn; what it says of noise, a `WhiteKernel`,
   is taken out, and there is noise in any case.
2. Its hyperparameters maximise the exact marginal likelihood of some rows, from their own values and within their own
   bounds, by the kernel's ``eval_gradient``.
3. Landmarks, sums and weights then are those of any other kernel.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, short_repr
from pydirect._warnings import warn
from pydirect.features.kernel import Kernel
from pydirect.persistence.schema import AtLeast, Positive

# Rows on which the optimum is looked for, and iterations that follow from there on more.
FIRST_ROWS, LAST_ITERATIONS = 512, 12
# Noise at first where the kernel has none, and its bounds: shares of y's variance.
START_NOISE, NOISE_BOUNDS = 0.1, (1e-8, 10.0)
# What rounding may make of the smallest eigenvalue of a covariance, relative to the largest, and of noise.
ROUNDING = 1e-8
# What is added to the diagonal of covariances, relative to its mean.
JITTER = 1e-10
# Largest correlation between rows of which the evidence says nothing of length-scales.
UNCORRELATED = 1e-4


@cache
def kernels() -> Any:
    """Return scikit-learn's module, which nothing below the estimators imports by itself."""
    return import_module("sklearn.gaussian_process.kernels")


@cache
def saved_classes() -> dict[str, Any]:
    """Return the classes that files may name: those that are built of numbers, text and each other."""
    module = kernels()
    found = {n: c for n, c in vars(module).items() if inspect.isclass(c) and issubclass(c, module.Kernel)}
    return {n: c for n, c in found.items() if not inspect.isabstract(c) and c is not module.CompoundKernel}


@dataclass(frozen=True)
class SavedKernel:
    """An `OwnKernel` as files hold it."""

    text: str
    unit: Annotated[float, Positive]
    white: Annotated[float, AtLeast(0.0)]
    noise_variance: Annotated[float, Positive]


@dataclass(frozen=True)
class OwnKernel(Kernel):
    """A kernel of scikit-learn without its noise: covariances are ``kernel(x, z) / unit``, for standardised targets.

    `unit` is the variance of y, `white` the noise that ``kernel.diag`` has, in units of y².
    """

    kind: ClassVar[str] = "own_kernel"
    kernel: Any
    unit: float
    white: float
    noise_variance: float

    __repr__ = short_repr

    def prepared(self, x: FloatArray) -> FloatArray:
        return x

    def covariance(self, x: FloatArray, other: Any, n_threads: int = 1) -> FloatArray:
        with single_blas_thread():
            return np.ascontiguousarray(self.kernel(x, other) / self.unit)

    def diagonal(self, x: FloatArray) -> FloatArray:
        return np.asarray((self.kernel.diag(x) - self.white) / self.unit)

    def __str__(self) -> str:
        return f"Kernel: {self.kernel}."

    def to_saved(self) -> SavedKernel:
        return SavedKernel(text_of(self.kernel), self.unit, self.white, self.noise_variance)

    @classmethod
    def from_saved(cls, saved: SavedKernel) -> OwnKernel:
        return cls(kernel_of(saved.text), saved.unit, saved.white, saved.noise_variance)


def as_kernel(value: Any) -> Any:
    """Return a kernel of scikit-learn, or raise."""
    if not isinstance(value, kernels().Kernel) or isinstance(value, kernels().CompoundKernel):
        raise TypeError(f"kernel must be an object of sklearn.gaussian_process.kernels, such as RBF(), got {value!r}")
    return value


def search_own_kernel(
    kernel: Any, x: FloatArray, y: FloatArray, scale: FloatArray, rng: np.random.Generator, max_rows: int
) -> OwnKernel:
    """Maximise the marginal likelihood of up to `max_rows` rows, each once.

    `x`, (n_rows, n_columns); `y`, (n_rows, n_outputs), standardised; `scale`, (n_outputs,): y's units.
    """
    unit, given = float(np.mean(np.square(scale))), kernel
    order = rng.permutation(len(x))
    few, many = (np.sort(order[: min(size, max_rows)]) for size in (FIRST_ROWS, max_rows))
    with single_blas_thread():
        if noise_of(kernel, x[few]) == 0:
            low, high = (share * unit for share in NOISE_BOUNDS)
            kernel = kernel + kernels().WhiteKernel(START_NOISE * unit, (low, high))
        if not kernel(x[few], x[few]).any():
            raise ValueError(f"kernel must have a part beside noise, such as RBF(), got {given}")
        kernel = _optimum(kernel, x[few], y[few] * np.sqrt(unit))
        if len(many) > len(few):
            kernel = _optimum(kernel, x[many], y[many] * np.sqrt(unit), LAST_ITERATIONS)
        white = noise_of(kernel, x[many])
    _warn_of_optimum(given.clone_with_theta(kernel.theta[: given.n_dims]), x[few])
    return OwnKernel(kernel, unit, white, max(white, NOISE_BOUNDS[0] * unit) / unit)


def _optimum(kernel: Any, x: FloatArray, y: FloatArray, max_iter: int = 15_000) -> Any:
    """Return the kernel of largest evidence that is found within its bounds; the one that is given stays as it is."""
    if not kernel.n_dims:
        return kernel
    process = import_module("sklearn.gaussian_process").GaussianProcessRegressor
    rows = process(kernel, alpha=JITTER * float(kernel.diag(x).mean()), optimizer=None).fit(x, y)

    def negative_evidence(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = rows.log_marginal_likelihood(theta, eval_gradient=True)
        return -value, -gradient

    options = {"method": "L-BFGS-B", "bounds": kernel.bounds, "options": {"maxiter": max_iter}}
    return kernel.clone_with_theta(minimize(negative_evidence, kernel.theta, jac=True, **options).x)


def _warn_of_optimum(kernel: Any, x: FloatArray) -> None:
    """Warn of hyperparameters that are at a bound, and of rows that are all uncorrelated."""
    free = [own for own in kernel.hyperparameters if not own.fixed]
    names = [own.name + (f"[{k}]" if own.n_elements > 1 else "") for own in free for k in range(own.n_elements)]
    at = [
        f"{name} at {np.exp(bound):.3g}"
        for name, value, pair in zip(names, kernel.theta, kernel.bounds, strict=True)
        for bound in pair[np.isclose(pair, value)][:1]
    ]
    covariance = np.abs(kernel(x, x))
    message = ""
    if at:
        message = f"the optimum of the kernel is at a bound, {', '.join(at)}: widen the bounds, or scale X and y"
    elif len(x) > 1 and np.triu(covariance, 1).max() < UNCORRELATED * covariance.max():
        message = f"the rows of X are uncorrelated under {kernel}: start from longer length-scales, or scale X"
    if message:
        warn(message, import_module("sklearn.exceptions").ConvergenceWarning)


def noise_of(kernel: Any, x: FloatArray) -> float:
    """Return the noise variance that a kernel contains, or raise unless it is a covariance with constant noise."""
    covariance = kernel(x, x)
    white, largest = kernel.diag(x) - covariance.diagonal(), float(np.abs(covariance).max())
    if not np.isfinite(covariance).all():
        raise ValueError(f"kernel must be finite at the rows of X, got {kernel}")
    eigenvalues = np.linalg.eigvalsh(covariance)
    if np.abs(covariance - covariance.T).max() > ROUNDING * largest or eigenvalues[0] < -ROUNDING * eigenvalues[-1]:
        raise ValueError(f"kernel must be positive definite, got an eigenvalue of {eigenvalues[0]:.3g} for {kernel}")
    if np.ptp(white) > ROUNDING * (largest + white.max()):
        raise ValueError(f"kernel must have the same noise for all rows, a WhiteKernel as a term, got {kernel}")
    return float(white.mean()) if white.mean() > ROUNDING**2 * largest else 0.0


# --- files


def text_of(kernel: Any) -> str:
    """Return a kernel as JSON: its class and its parameters."""
    return json.dumps(kernel, default=_entry)


def kernel_of(text: str) -> Any:
    """Undo `text_of`."""
    return json.loads(text, object_hook=_object)


def _entry(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    name = type(value).__name__
    if saved_classes().get(name) is not type(value):
        raise TypeError(f"kernel must be of scikit-learn's own classes to be saved, got {name}: pickle the model")
    return {"class": name, "parameters": value.get_params(deep=False)}


def _object(entry: dict[str, Any]) -> Any:
    if "class" not in entry:
        return {
            name: np.asarray(value, np.float64) if isinstance(value, list) else value for name, value in entry.items()
        }
    cls = saved_classes().get(str(entry["class"]))
    if cls is None or entry["parameters"].keys() != inspect.signature(cls).parameters.keys():
        raise ValueError(f"a kernel must be a class of scikit-learn's and its parameters, got {entry['class']!r}")
    return cls(**entry["parameters"])
