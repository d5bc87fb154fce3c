"""Stochastic gradients of the ELBO: estimators by draws (REINFORCE, Concrete, reparameterisation), and their ascent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_float_array, as_generator, as_instance, as_number
from pydirect.direct.mean_field import MeanFieldPosterior, MeanFieldRegression
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.noise import NoiseGrid, NoisePosterior
from pydirect.linear.posterior import GaussianPosterior
from pydirect.optimize.gradient import ADAM_TOLERANCE, adam, through_softmax
from pydirect.optimize.outcome import Outcome
from pydirect.statistics.gaussian import GaussianStatistics, TargetStatistics, as_target_statistics
from pydirect.statistics.rotated import Rotation


def log_softmax(logits: FloatArray) -> FloatArray:
    """Over the last axis; SciPy's is an order of magnitude slower on small arrays, and steps are timed."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


# Squared errors of weight vectors, from statistics or from rows


# Weights (n_draws, n_weights) to errors, (n_draws,), and what returns their gradients, (n_draws, n_weights).
SquaredErrors = Callable[[FloatArray, np.random.Generator], tuple[FloatArray, Callable[[], FloatArray]]]


def squared_errors(
    statistics: TargetStatistics, rows: tuple[ArrayLike, ArrayLike] | None, batch_size: int | None
) -> SquaredErrors:
    """Return what gives ‖y − Φw‖² of weights, or unbiased estimates of it, after a check that rows are of the sums.

    From statistics ``yᵀy − 2wᵀc + wᵀAw``, O(b²) per draw whatever the number of rows. From rows ``n/m Σ_i (y_i −
    φ_iᵀw)²`` over m of them drawn afresh at every call, O(mb) per draw; all draws see the same rows. If m is the number
    of rows, all of them are used, in order.
    """

    def from_statistics(weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, Callable[[], FloatArray]]:
        errors, slopes = statistics.squared_error_and_gradient(weights)
        return np.asarray(errors), lambda: slopes

    if rows is None:
        if batch_size is not None:
            raise ValueError("batch_size must be None without rows: statistics are of all of them")
        return from_statistics
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise TypeError(f"rows must be a tuple (phi, y), got {type(rows).__name__}")
    phi = as_float_array(rows[0], "phi", ("n_rows", statistics.n_weights))
    y, n = as_float_array(rows[1], "y", (len(phi),)), len(phi)
    if n != statistics.n_samples:
        raise ValueError(f"rows must be those of the statistics, {statistics.n_samples:g}, got {n}")
    if not np.isclose(y @ y, statistics.yty, rtol=1e-6):
        raise ValueError(f"rows must be those of the statistics, with yty={statistics.yty:g}, got {y @ y:g}")
    size = n if batch_size is None else as_count(batch_size, "batch_size")
    if size > n:
        raise ValueError(f"batch_size must be at most the number of rows, {n}, got {size}")

    def from_rows(weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, Callable[[], FloatArray]]:
        chosen = rng.choice(n, size, replace=False, shuffle=False) if size < n else slice(None)
        some, scale = phi[chosen], n / size
        residuals = y[chosen] - weights @ some.T
        return scale * np.square(residuals).sum(axis=1), lambda: -2.0 * scale * (residuals @ some)

    return from_rows


# Factorised posteriors: where they start, KL(q ‖ p) and R = E_q ‖y − Φw‖² with their gradients


@dataclass(frozen=True)
class CategoricalWeights:
    """Factorised categorical q(w): parameters are logits (n_weights, n_levels)."""

    model: MeanFieldRegression

    def __post_init__(self) -> None:
        if not (np.isfinite(self.model.log_prior).all() and np.isfinite(self.model.noise.log_prior).all()):
            raise ValueError("log_prior and log_noise_prior must be finite: stochastic gradients start from them")

    @property
    def start(self) -> FloatArray:
        """The prior."""
        shape = (self.model.statistics.n_weights, self.model.levels.shape[1])
        return np.broadcast_to(log_softmax(self.model.log_prior), shape)

    def kl(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """``KL(q ‖ p)`` and its gradient."""
        log_q = log_softmax(logits)
        q, ratio = np.exp(log_q), log_q - self.model.log_prior
        return float(np.einsum("jk,jk->", q, ratio)), through_softmax(q, ratio)

    def error(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """``R`` (eq. 8) and its gradient, ``∂R/∂q_j = −2 (r_j w̄_j − ½ A_jj w̄_j²)`` through the softmax."""
        statistics, levels = self.model.statistics, self.model.levels
        weights, diagonal = self.distribution(logits), statistics.A.diagonal()
        value, gradient = statistics.squared_error_and_gradient(weights.mean, weights.variance)
        residual = diagonal * weights.mean - 0.5 * gradient
        slope = -2.0 * (residual[:, None] - 0.5 * diagonal[:, None] * levels) * levels
        return float(value), through_softmax(weights.q, slope)

    def distribution(self, logits: FloatArray) -> FactorizedCategorical:
        """Return q(w)."""
        return FactorizedCategorical(self.model.levels, np.exp(log_softmax(logits)))

    def posterior(self, logits: FloatArray, noise: NoisePosterior, elbo: float) -> MeanFieldPosterior:
        """Return the posterior of these parameters."""
        return MeanFieldPosterior(self.distribution(logits), noise, self.model.log_prior, Outcome(elbo))


@dataclass(frozen=True)
class GaussianRegression:
    """The same regression with continuous weights: Gaussian prior, factorised Gaussian posterior (REPARAM's model).

    Parameters of the posterior are means and log standard deviations (2, n_weights).
    """

    statistics: TargetStatistics  # sums over the rows
    prior_variance: float  # of every weight
    noise: NoiseGrid  # noise levels and their prior

    @classmethod
    def of(
        cls,
        statistics: TargetStatistics | GaussianStatistics,
        prior_variance: float,
        noise_levels: ArrayLike,
        log_noise_prior: ArrayLike | None = None,
    ) -> GaussianRegression:
        """Validate statistics of one target, the prior variance, and the noise as `fit_mean_field` describes it."""
        variance = as_number(prior_variance, "prior_variance", above=0.0)
        noise = NoiseGrid.of(noise_levels, log_noise_prior)
        if not np.isfinite(noise.log_prior).all():
            raise ValueError("log_noise_prior must be finite: stochastic gradients start from it")
        return cls(as_target_statistics(statistics), variance, noise)

    @property
    def start(self) -> FloatArray:
        """The prior."""
        b = self.statistics.n_weights
        return np.stack([np.zeros(b), np.full(b, 0.5 * np.log(self.prior_variance))])

    def kl(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """``KL(q ‖ p)`` and its gradient (Kingma & Welling 2014, appendix B)."""
        mean, log_std = theta
        precision = 1.0 / self.prior_variance
        shares = precision * np.exp(2.0 * log_std)
        value = 0.5 * np.sum(shares + precision * mean**2 - 1.0 - 2.0 * log_std - np.log(precision))
        return float(value), np.stack([precision * mean, shares - 1.0])

    def error(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """``R = yᵀy − 2μᵀc + μᵀAμ + diag(A)ᵀs²`` and its gradient."""
        variance = np.exp(2.0 * theta[1])
        value, gradient = self.statistics.squared_error_and_gradient(theta[0], variance)
        return float(value), np.stack([gradient, 2.0 * self.statistics.A.diagonal() * variance])

    def posterior(self, theta: FloatArray, noise: NoisePosterior, elbo: float) -> GaussianPosterior:
        """Return the posterior of these parameters."""
        rotation, variance = Rotation(np.eye(theta.shape[1])), np.exp(2 * theta[1])
        return GaussianPosterior(rotation, theta[0].copy(), variance, self.prior_variance, noise, Outcome(elbo))


class GradientStep(NamedTuple):
    """Where an estimator is asked for R and its gradient, and what it may use."""

    weights: CategoricalWeights | GaussianRegression
    theta: FloatArray
    errors: SquaredErrors
    rng: np.random.Generator
    progress: float = 0.0  # share of the steps that are done


# Estimators of R and its gradient in the parameters of q(w)

CONTROLS = ("none", "moving_average", "leave_one_out")
# Share of the past that a moving average keeps at every step.
AVERAGE_DECAY = 0.9


@dataclass(frozen=True)
class Exact:
    """DIRECT's own value and gradient, to be followed by the same steps: no variance."""

    discrete: ClassVar[bool | None] = None

    def error(self, at: GradientStep) -> tuple[float, FloatArray]:
        """Return R and its gradient, from statistics."""
        return at.weights.error(at.theta)


@dataclass
class Reinforce:
    """The score function: ``∇R = E (‖y − Φw‖² − baseline) ∇ log q(w)``, unbiased for any discrete weights."""

    discrete: ClassVar[bool | None] = True
    n_samples: int = 10  # weight vectors per step; their errors come from one matrix product
    # What is subtracted, which lowers the variance and leaves the mean: nothing, an average of earlier steps' errors
    # (the first comes from draws of its own), or the mean of the other samples of the step, which takes two samples at
    # least (Kool, van Hoof & Welling 2019).
    control: str = "leave_one_out"
    _average: float | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        as_choice(self.control, "control", CONTROLS)
        as_count(self.n_samples, "n_samples", 2 if self.control == "leave_one_out" else 1)

    def error(self, at: GradientStep) -> tuple[float, FloatArray]:
        """Estimate R and its gradient."""
        assert isinstance(at.weights, CategoricalWeights)
        q, n = at.weights.distribution(at.theta), self.n_samples
        indices = q.sample_indices(n, at.rng)
        drawn = at.errors(q.values(indices), at.rng)[0]
        baseline: FloatArray | float = 0.0
        if self.control == "leave_one_out":
            baseline = (drawn.sum() - drawn) / (n - 1)
        elif self.control == "moving_average":
            last = self._average
            baseline = float(at.errors(q.sample(n, at.rng), at.rng)[0].mean()) if last is None else last
            self._average = AVERAGE_DECAY * baseline + (1.0 - AVERAGE_DECAY) * float(drawn.mean())
        shares = (drawn - baseline) / n
        sums = np.zeros((*q.q.shape, 1))
        _core.sum_by_level(indices, np.ascontiguousarray(shares[:, None]), sums, 1)
        # ∂ log q_j(w_j) / ∂θ_j = [w_j] − q_j
        return float(drawn.mean()), sums[:, :, 0] - q.q * shares.sum()


@dataclass(frozen=True)
class Concrete:
    """Relaxed discrete weights: ``w_j = w̄_jᵀ softmax((θ_j + Gumbel noise) / temperature)``, reparameterised.

    The gradient is that of the relaxed R, not of R: a bias that falls with the temperature while the variance rises.
    KL divergences are those of the discrete weights.
    """

    discrete: ClassVar[bool | None] = True
    n_samples: int = 10  # weight vectors per step
    temperature: float = 0.5  # at the first step
    # At the last step, reached geometrically; the same as at the first by default.
    final_temperature: float | None = None

    def __post_init__(self) -> None:
        as_count(self.n_samples, "n_samples")
        as_number(self.temperature, "temperature", above=0.0)
        if self.final_temperature is not None:
            as_number(self.final_temperature, "final_temperature", above=0.0)

    def error(self, at: GradientStep) -> tuple[float, FloatArray]:
        """Estimate the relaxed R and its gradient."""
        assert isinstance(at.weights, CategoricalWeights)
        last = self.temperature if self.final_temperature is None else self.final_temperature
        temperature = self.temperature ** (1.0 - at.progress) * last**at.progress
        levels = np.broadcast_to(at.weights.model.levels, at.theta.shape)
        z = np.exp(log_softmax((at.theta + at.rng.gumbel(size=(self.n_samples, *levels.shape))) / temperature))
        relaxed = np.einsum("tjk,jk->tj", z, levels)
        drawn, slopes = at.errors(relaxed, at.rng)
        # ∂w_j / ∂θ_jk = z_jk (w̄_jk − w_j) / temperature
        z *= levels - relaxed[:, :, None]
        gradient = np.einsum("tj,tjk->jk", slopes(), z) / (temperature * self.n_samples)
        return float(drawn.mean()), gradient


@dataclass(frozen=True)
class Reparameterization:
    """Continuous weights as ``w = μ + s ∘ ε`` with standard normal ε: unbiased, and of low variance."""

    discrete: ClassVar[bool | None] = False
    n_samples: int = 10  # weight vectors per step

    def __post_init__(self) -> None:
        as_count(self.n_samples, "n_samples")

    def error(self, at: GradientStep) -> tuple[float, FloatArray]:
        """Estimate R and its gradient."""
        mean, std = at.theta[0], np.exp(at.theta[1])
        epsilon = at.rng.standard_normal((self.n_samples, mean.size))
        drawn, slopes = at.errors(mean + std * epsilon, at.rng)
        found = slopes()
        by_std = std * np.einsum("tj,tj->j", found, epsilon) / self.n_samples
        return float(drawn.mean()), np.stack([found.mean(axis=0), by_std])


Estimator = Exact | Reinforce | Concrete | Reparameterization

# The bound, and how it is climbed


class StochasticELBO:
    """A model's ELBO, exact and as an estimator sees it, over one vector of free parameters.

    The parameters are those of the weights (logits, or means and log standard deviations) and then the logits of the
    noise levels.
    """

    def __init__(
        self,
        model: MeanFieldRegression | GaussianRegression,
        estimator: Estimator,
        rows: tuple[ArrayLike, ArrayLike] | None = None,
        batch_size: int | None = None,
    ) -> None:
        as_instance(model, "model", MeanFieldRegression, GaussianRegression)
        as_instance(estimator, "estimator", Exact, Reinforce, Concrete, Reparameterization)
        self._weights = CategoricalWeights(model) if isinstance(model, MeanFieldRegression) else model
        discrete = isinstance(self._weights, CategoricalWeights)
        if estimator.discrete not in (None, discrete):
            expected = "continuous" if discrete else "discrete"
            raise ValueError(f"{type(estimator).__name__} must be given a model of {expected} weights")
        self.model = model
        self.estimator: Estimator = replace(estimator)  # averages of its own
        self._errors = squared_errors(model.statistics, rows, batch_size)
        start = self._weights.start
        self._shape = start.shape
        self.start: FloatArray = np.concatenate([start.ravel(), log_softmax(model.noise.log_prior)])

    def elbo(self, parameters: ArrayLike) -> float:
        """Return the exact ELBO of the model (not of a relaxation), −(n/2) log 2π included."""
        theta, log_q_noise = self._unpack(parameters)
        error, n_samples = self._weights.error(theta)[0], self.model.statistics.n_samples
        return float(self.model.noise.share(np.exp(log_q_noise), error, n_samples) - self._weights.kl(theta)[0])

    def exact_gradient(self, parameters: ArrayLike) -> FloatArray:
        """Gradient of `elbo`, (n_parameters,)."""
        return self._gradient(parameters, self._weights.error)

    def gradient(self, parameters: ArrayLike, rng: np.random.Generator, progress: float = 0.0) -> FloatArray:
        """Return one estimate of the gradient, (n_parameters,)."""
        return self._gradient(
            parameters,
            lambda theta: self.estimator.error(GradientStep(self._weights, theta, self._errors, rng, progress)),
        )

    def gradient_variance(self, parameters: ArrayLike, rng: np.random.Generator, n_repeats: int = 100) -> FloatArray:
        """Variance of every entry of `gradient` at one point, from repetitions; (n_parameters,)."""
        as_count(n_repeats, "n_repeats", 2)
        estimates = np.stack([self.gradient(parameters, rng) for _ in range(n_repeats)])
        return np.asarray((estimates - estimates[0]).var(axis=0, ddof=1))  # equal ones give exactly zero

    def posterior(self, parameters: ArrayLike) -> MeanFieldPosterior | GaussianPosterior:
        """Return the distribution that the parameters describe, with its exact ELBO."""
        theta, log_q_noise = self._unpack(parameters)
        noise = self.model.noise.posterior(np.exp(log_q_noise))
        return self._weights.posterior(theta, noise, self.elbo(parameters))

    def _unpack(self, parameters: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Parameters of the weights, and normalised log q_σ."""
        parameters = as_float_array(parameters, "parameters", self.start.shape)
        split = int(np.prod(self._shape))
        return parameters[:split].reshape(self._shape), log_softmax(parameters[split:])

    def _gradient(self, parameters: ArrayLike, error: Callable[[FloatArray], tuple[float, FloatArray]]) -> FloatArray:
        """Gradient from R and its own: ``−τ/2 ∇R − ∇KL``, and ``∂ELBO/∂q_σ`` through the softmax."""
        theta, log_q_noise = self._unpack(parameters)
        (value, slope), q_noise, noise = error(theta), np.exp(log_q_noise), self.model.noise
        of_weights = -0.5 * noise.precision(q_noise) * slope - self._weights.kl(theta)[1]
        of_noise = noise.log_joint(value, self.model.statistics.n_samples) - log_q_noise
        return np.concatenate([of_weights.ravel(), through_softmax(q_noise, of_noise)])


@dataclass
class StochasticFit:
    """What stochastic steps found and how."""

    posterior: MeanFieldPosterior | GaussianPosterior  # the best of all checks by its exact ELBO
    parameters: FloatArray  # (n_parameters,): its parameters
    steps: NDArray[np.intp]  # (n_checks + 1,): after how many steps the ELBO was evaluated; the first is 0
    # (n_checks + 1,): processor time spent on steps until then, which is the wall's where nothing else runs, as one
    # thread works; evaluations of the ELBO are not counted.
    seconds: FloatArray
    elbo: FloatArray  # (n_checks + 1,): exact ELBO there; it need not rise


@single_blas_thread()
def fit_stochastic(
    model: MeanFieldRegression | GaussianRegression,
    estimator: Estimator,
    *,
    rows: tuple[ArrayLike, ArrayLike] | None = None,
    batch_size: int | None = None,
    n_steps: int = 1000,
    step: float = 0.3,
    n_checks: int = 50,
    start: ArrayLike | None = None,
    random_state: int | np.random.Generator = 0,
) -> StochasticFit:
    """Fit a factorised posterior by Adam on estimated gradients: a baseline, `fit_mean_field` needs no samples.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianStatistics
    >>> from pydirect.baselines import GaussianRegression, Reparameterization, fit_stochastic
    >>> phi = np.eye(2).repeat(50, axis=0)
    >>> sums = GaussianStatistics.from_arrays(phi, phi @ [1.0, -1.0])
    >>> model = GaussianRegression.of(sums, 1.0, [0.1])
    >>> fit_stochastic(model, Reparameterization()).posterior.mean.round(1).tolist()
    [1.0, -1.0]
    """
    bound = StochasticELBO(model, estimator, rows, batch_size)
    steps = as_count(n_steps, "n_steps"), as_number(step, "step", above=0.0), as_count(n_checks, "n_checks")
    theta = bound.start if start is None else as_float_array(start, "start", bound.start.shape)
    rng, found = as_generator(random_state), list[tuple[int, float, float]]()
    n_taken, begin = 0, time.process_time()

    def gradient(parameters: FloatArray, i: int) -> FloatArray:
        nonlocal n_taken
        n_taken = i + 1
        return bound.gradient(parameters, rng, i / n_steps)

    def check(parameters: FloatArray) -> float:
        """Evaluate the exact ELBO, the clock stopped meanwhile."""
        nonlocal begin
        stopped = time.process_time()
        value = bound.elbo(parameters)
        found.append((n_taken, stopped - begin, value))
        begin += time.process_time() - stopped
        return value

    check(theta)
    best, outcome = adam(gradient, check, theta, *steps, tolerance=ADAM_TOLERANCE * model.statistics.n_samples)
    posterior = bound.posterior(best)
    posterior.outcome = replace(outcome, elbo=posterior.elbo)
    return StochasticFit(posterior, best, *(np.array(part) for part in zip(*found, strict=True)))
