"""Stochastic gradients of the ELBO, the methods that exact inference is measured against.

In regression only ``R = E_q ‖y − Φw‖²`` needs samples: KL divergences, and the noise given R, are exact in every method
here, as they cost nothing. An estimator is therefore one of R and of its gradient in the posterior's parameters, from
weights drawn at random and, optionally, from a few rows drawn at random. What is left to compare is the estimate.

The score function (Williams 1992) serves discrete weights as they are; the relaxation of Jang, Gu & Poole (2017) and
Maddison, Mnih & Teh (2017) has lower variance and a bias; reparameterisation (Kingma & Welling 2014) needs continuous
weights. Adam (Kingma & Ba 2015) climbs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect import _core
from pydirect._threads import single_blas_thread
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_flag,
    as_float_array,
    as_generator,
    as_instance,
    as_number,
    as_output,
)
from pydirect.distributions import FactorizedCategorical
from pydirect.models import MeanFieldPosterior, MeanFieldRegression, NoisePosterior, as_noise_levels
from pydirect.optimize import ADAM_REST, AdamSchedule, adam, through_softmax
from pydirect.statistics import GaussianStatistics

CONTROLS = ("none", "moving_average", "leave_one_out")
# Share of the past that a moving average keeps at every step.
AVERAGE_DECAY = 0.9


# Squared errors of weight vectors: from statistics, or from rows


class SquaredErrors(Protocol):
    """``‖y − Φw‖²`` of many weight vectors at once, or unbiased estimates of it."""

    def __call__(self, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Errors of weights (n_draws, n_weights); (n_draws,)."""
        ...  # pragma: no cover

    def with_gradient(self, weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Errors and their gradients in the weights, (n_draws,) and (n_draws, n_weights)."""
        ...  # pragma: no cover


@dataclass(frozen=True)
class ErrorsFromStatistics:
    """``yᵀy − 2wᵀc + wᵀAw``: O(b²) a draw whatever the number of rows, all draws in one product with A."""

    a: FloatArray
    c: FloatArray
    yty: float

    def __call__(self, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Errors; (n_draws,)."""
        return self._errors(weights, weights @ self.a)

    def with_gradient(self, weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Errors and gradients ``2 (Aw − c)``."""
        product = weights @ self.a
        return self._errors(weights, product), 2.0 * (product - self.c)

    def _errors(self, weights: FloatArray, product: FloatArray) -> FloatArray:
        return self.yty + np.einsum("tj,tj->t", weights, product) - 2.0 * (weights @ self.c)


@dataclass(frozen=True)
class ErrorsFromRows:
    """``n/m Σ_i (y_i − φ_iᵀw)²`` over m rows drawn afresh at every call: O(mb) a draw; only these rows are read.

    Parameters
    ----------
    phi : ndarray of shape (n_rows, n_weights)
    y : ndarray of shape (n_rows,)
    batch_size : int
        m; as many as there are rows: all of them, in order.
    """

    phi: FloatArray
    y: FloatArray
    batch_size: int

    def __call__(self, weights: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Errors; (n_draws,). All draws see the same rows."""
        phi, y, scale = self._batch(rng)
        return scale * np.square(y - weights @ phi.T).sum(axis=1)

    def with_gradient(self, weights: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Errors and gradients ``−2 n/m Σ_i (y_i − φ_iᵀw) φ_i``."""
        phi, y, scale = self._batch(rng)
        residuals = y - weights @ phi.T
        return scale * np.einsum("ti,ti->t", residuals, residuals), -2.0 * scale * (residuals @ phi)

    def _batch(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, float]:
        n = len(self.y)
        if self.batch_size == n:
            return self.phi, self.y, 1.0
        chosen = rng.choice(n, self.batch_size, replace=False, shuffle=False)
        return self.phi[chosen], self.y[chosen], n / self.batch_size


# What is inferred: the exact parts of both bounds


@dataclass(frozen=True)
class GaussianRegression:
    """The same regression with continuous weights: Gaussian prior, factorised Gaussian posterior (REPARAM's model).

    Parameters
    ----------
    statistics : GaussianStatistics
    prior_variance : float
        Of every weight.
    noise_levels : array_like of shape (n_noise_levels,)
        Noise variances, positive and ascending; one level fixes the noise.
    log_noise_prior : array_like of shape (n_noise_levels,), optional
        Log masses; uniform by default.
    output : int
        Which target of the statistics.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.
    """

    statistics: GaussianStatistics
    prior_variance: float
    noise_levels: FloatArray
    log_noise_prior: FloatArray | None = None
    output: int = 0

    def __post_init__(self) -> None:
        as_instance(self.statistics, "statistics", GaussianStatistics)
        noise = as_noise_levels(self.noise_levels)
        log_prior = np.full(noise.size, -np.log(noise.size)) if self.log_noise_prior is None else self.log_noise_prior
        object.__setattr__(self, "noise_levels", noise)
        object.__setattr__(self, "log_noise_prior", as_float_array(log_prior, "log_noise_prior", noise.shape))
        as_number(self.prior_variance, "prior_variance", above=0.0)
        as_output(self.output, self.statistics.n_outputs)


@dataclass
class GaussianPosterior:
    """A fitted factorised Gaussian posterior of the weights, and the noise.

    Attributes
    ----------
    mean, std : ndarray of shape (n_weights,)
    noise : NoisePosterior
    elbo : float
        Lower bound of log p(y) in nats, −(n/2) log 2π included.
    elbo_trace : ndarray
        Highest value so far, check by check.
    n_iter : int
    converged : bool
    interrupted : bool
    """

    mean: FloatArray
    std: FloatArray
    noise: NoisePosterior
    elbo: float
    elbo_trace: FloatArray = field(default_factory=lambda: np.empty(0))
    n_iter: int = 0
    converged: bool = True
    interrupted: bool = False

    def latent_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f* for rows of Φ; (n_rows,) each."""
        return phi @ self.mean, np.square(phi) @ np.square(self.std)


class _CategoricalWeights:
    """Factorised categorical q(w): parameters are logits (n_weights, n_levels)."""

    def __init__(self, model: MeanFieldRegression) -> None:
        self.model, self.b = model, model.statistics.n_weights
        if not (np.isfinite(model.log_prior).all() and np.isfinite(model.log_noise_prior).all()):
            raise ValueError("log_prior and log_noise_prior must be finite: stochastic gradients start from them")
        self.shape = (self.b, model.levels.shape[1])
        self.log_prior = np.broadcast_to(model.log_prior, self.shape)
        self.levels = model.levels

    @property
    def start(self) -> FloatArray:
        return self.log_prior - _log_sum_exp(self.log_prior)

    def kl(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """``KL(q ‖ p)`` and its gradient."""
        log_q = logits - _log_sum_exp(logits)
        q, ratio = np.exp(log_q), log_q - self.log_prior
        return float(np.einsum("jk,jk->", q, ratio)), through_softmax(q, ratio)

    def error(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """``R`` (eq. 8) and its gradient, ``∂R/∂q_j = −2 (r_j w̄_j − ½ A_jj w̄_j²)`` through the softmax."""
        statistics, q = self.model.statistics, _softmax(logits)
        weights, a, c = FactorizedCategorical(self.levels, q), statistics.A, statistics.c[:, self.model.output]
        s, diagonal = weights.mean, a.diagonal()
        product = a @ s
        value = statistics.yty[self.model.output] + s @ (product - 2.0 * c) + diagonal @ weights.variance
        residual = c - product + diagonal * s
        slope = -2.0 * (residual[:, None] - 0.5 * diagonal[:, None] * self.levels) * self.levels
        return float(value), through_softmax(q, slope)

    def posterior(self, logits: FloatArray, noise: NoisePosterior, elbo: float) -> MeanFieldPosterior:
        return MeanFieldPosterior(
            FactorizedCategorical(self.levels, _softmax(logits)), noise, self.model.log_prior, elbo
        )


class _GaussianWeights:
    """Factorised Gaussian q(w): parameters are means and log standard deviations (2, n_weights)."""

    def __init__(self, model: GaussianRegression) -> None:
        self.model, self.b = model, model.statistics.n_weights
        self.shape = (2, self.b)

    @property
    def start(self) -> FloatArray:
        """The prior."""
        return np.stack([np.zeros(self.b), np.full(self.b, 0.5 * np.log(self.model.prior_variance))])

    def kl(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """``KL(q ‖ p)`` and its gradient (Kingma & Welling 2014, appendix B)."""
        mean, log_std = theta
        precision = 1.0 / self.model.prior_variance
        shares = precision * np.exp(2.0 * log_std)
        value = 0.5 * np.sum(shares + precision * mean**2 - 1.0 - 2.0 * log_std - np.log(precision))
        return float(value), np.stack([precision * mean, shares - 1.0])

    def error(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """``R = yᵀy − 2μᵀc + μᵀAμ + diag(A)ᵀs²`` and its gradient."""
        statistics, k = self.model.statistics, self.model.output
        a, c = statistics.A, statistics.c[:, k]
        mean, spread = theta[0], a.diagonal() * np.exp(2.0 * theta[1])
        product = a @ mean
        value = statistics.yty[k] + mean @ (product - 2.0 * c) + spread.sum()
        return float(value), np.stack([2.0 * (product - c), 2.0 * spread])

    def posterior(self, theta: FloatArray, noise: NoisePosterior, elbo: float) -> GaussianPosterior:
        return GaussianPosterior(theta[0].copy(), np.exp(theta[1]), noise, elbo)


Weights = _CategoricalWeights | _GaussianWeights


# Estimators of R and its gradient


class Estimator(Protocol):
    """An estimator of ``R = E_q ‖y − Φw‖²`` and of its gradient in the parameters of q(w)."""

    discrete: ClassVar[bool | None]

    def error(
        self, weights: Weights, theta: FloatArray, errors: SquaredErrors, rng: np.random.Generator, progress: float
    ) -> tuple[float, FloatArray]:
        """Estimate R and its gradient at `theta`, a fraction `progress` of all steps done."""
        ...  # pragma: no cover


@dataclass(frozen=True)
class Exact:
    """DIRECT's own value and gradient, to be followed by the same steps: no variance."""

    discrete: ClassVar[bool | None] = None

    def error(
        self, weights: Weights, theta: FloatArray, errors: SquaredErrors, rng: np.random.Generator, progress: float
    ) -> tuple[float, FloatArray]:
        """Return R and its gradient, from statistics."""
        return weights.error(theta)


@dataclass
class Reinforce:
    """The score function: ``∇R = E (‖y − Φw‖² − baseline) ∇ log q(w)``, unbiased for any discrete weights.

    Parameters
    ----------
    n_samples : int
        Weight vectors a step; their errors come from one matrix product.
    control : {"none", "moving_average", "leave_one_out"}
        What is subtracted, which lowers the variance and leaves the mean: nothing, an average of earlier steps' errors
        (the first comes from draws of its own), or the mean of the other samples of the step, which takes two samples
        at least (Kool, van Hoof & Welling 2019).
    """

    discrete: ClassVar[bool | None] = True
    n_samples: int = 10
    control: str = "leave_one_out"
    _average: float | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        as_choice(self.control, "control", CONTROLS)
        as_count(self.n_samples, "n_samples", 2 if self.control == "leave_one_out" else 1)

    def error(
        self, weights: Weights, theta: FloatArray, errors: SquaredErrors, rng: np.random.Generator, progress: float
    ) -> tuple[float, FloatArray]:
        """Estimate R and its gradient."""
        assert isinstance(weights, _CategoricalWeights)
        q = FactorizedCategorical(weights.levels, _softmax(theta))
        indices = q.sample_indices(self.n_samples, rng)
        drawn = errors(q.values(indices), rng)
        baseline = self._baseline(drawn, lambda: errors(q.sample(self.n_samples, rng), rng))
        shares = (drawn - baseline) / self.n_samples
        sums = np.zeros((*q.q.shape, 1))
        _core.sum_by_level(indices, np.ascontiguousarray(shares[:, None]), sums, 1)
        # ∂ log q_j(w_j) / ∂θ_j = [w_j] − q_j
        return float(drawn.mean()), sums[:, :, 0] - q.q * shares.sum()

    def _baseline(self, drawn: FloatArray, draw_others: Callable[[], FloatArray]) -> FloatArray | float:
        if self.control == "none":
            return 0.0
        if self.control == "leave_one_out":
            return (drawn.sum() - drawn) / (self.n_samples - 1)
        before = float(draw_others().mean()) if self._average is None else self._average
        self._average = AVERAGE_DECAY * before + (1.0 - AVERAGE_DECAY) * float(drawn.mean())
        return before


@dataclass(frozen=True)
class Concrete:
    """Relaxed discrete weights: ``w_j = w̄_jᵀ softmax((θ_j + Gumbel noise) / temperature)``, reparameterised.

    The gradient is that of the relaxed R, not of R: a bias that falls with the temperature while the variance rises.
    KL divergences are those of the discrete weights.

    Parameters
    ----------
    n_samples : int
        Weight vectors a step.
    temperature : float
        At the first step.
    final_temperature : float, optional
        At the last step, reached geometrically; the same as at the first by default.
    straight_through : bool
        Take errors and their slopes at the discrete weights, and only the weights' answer to θ from the relaxed ones.
    """

    discrete: ClassVar[bool | None] = True
    n_samples: int = 10
    temperature: float = 0.5
    final_temperature: float | None = None
    straight_through: bool = False

    def __post_init__(self) -> None:
        as_count(self.n_samples, "n_samples")
        as_number(self.temperature, "temperature", above=0.0)
        if self.final_temperature is not None:
            as_number(self.final_temperature, "final_temperature", above=0.0)
        as_flag(self.straight_through, "straight_through")

    def temperature_at(self, progress: float) -> float:
        """Temperature after a fraction of all steps."""
        last = self.temperature if self.final_temperature is None else self.final_temperature
        return float(self.temperature ** (1.0 - progress) * last**progress)

    def error(
        self, weights: Weights, theta: FloatArray, errors: SquaredErrors, rng: np.random.Generator, progress: float
    ) -> tuple[float, FloatArray]:
        """Estimate the relaxed R and its gradient."""
        assert isinstance(weights, _CategoricalWeights)
        temperature = self.temperature_at(progress)
        levels = np.broadcast_to(weights.levels, theta.shape)
        perturbed = theta + rng.gumbel(size=(self.n_samples, *theta.shape))
        z = _softmax(perturbed / temperature)
        relaxed = np.einsum("tjk,jk->tj", z, levels)
        if self.straight_through:
            at = levels[np.arange(len(theta)), perturbed.argmax(axis=2)]
        else:
            at = relaxed
        drawn, slopes = errors.with_gradient(at, rng)
        # ∂w_j / ∂θ_jk = z_jk (w̄_jk − w_j) / temperature
        z *= levels - relaxed[:, :, None]
        gradient = np.einsum("tj,tjk->jk", slopes, z) / (temperature * self.n_samples)
        return float(drawn.mean()), gradient


@dataclass(frozen=True)
class Reparameterization:
    """Continuous weights as ``w = μ + s ∘ ε`` with standard normal ε: unbiased, and of low variance.

    Parameters
    ----------
    n_samples : int
        Weight vectors a step.
    """

    discrete: ClassVar[bool | None] = False
    n_samples: int = 10

    def __post_init__(self) -> None:
        as_count(self.n_samples, "n_samples")

    def error(
        self, weights: Weights, theta: FloatArray, errors: SquaredErrors, rng: np.random.Generator, progress: float
    ) -> tuple[float, FloatArray]:
        """Estimate R and its gradient."""
        mean, std = theta[0], np.exp(theta[1])
        epsilon = rng.standard_normal((self.n_samples, mean.size))
        drawn, slopes = errors.with_gradient(mean + std * epsilon, rng)
        gradient = np.stack([slopes.mean(axis=0), std * np.einsum("tj,tj->j", slopes, epsilon) / self.n_samples])
        return float(drawn.mean()), gradient


# The bound, and how it is climbed


class StochasticELBO:
    """A model's ELBO, exact and as an estimator sees it, over one vector of free parameters.

    The parameters are those of the weights (logits, or means and log standard deviations) and then the logits of the
    noise levels.

    Parameters
    ----------
    model : MeanFieldRegression or GaussianRegression
        Discrete weights or continuous ones.
    estimator : Exact, Reinforce, Concrete or Reparameterization
    rows : tuple (phi, y), optional
        The rows behind the model's statistics; errors are then computed from them instead of the statistics.
    batch_size : int, optional
        Rows that a step reads, drawn without replacement; all of them by default.

    Attributes
    ----------
    start : ndarray of shape (n_parameters,)
        The prior.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range, or the estimator does not serve the model's weights.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianRegression, GaussianStatistics, Reparameterization, StochasticELBO
    >>> phi, y = np.eye(3), np.array([1.0, 0.0, -1.0])
    >>> model = GaussianRegression(GaussianStatistics.from_arrays(phi, y), 1.0, [0.5])
    >>> bound = StochasticELBO(model, Reparameterization(n_samples=100))
    >>> exact, estimate = bound.exact_gradient(bound.start), bound.gradient(bound.start, np.random.default_rng(0))
    >>> (exact.round(1) + 0.0).tolist()
    [2.0, 0.0, -2.0, -2.0, -2.0, -2.0, 0.0]
    >>> bool(np.abs(estimate - exact).max() < 1.5)
    True
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
        discrete = isinstance(model, MeanFieldRegression)
        if estimator.discrete not in (None, discrete):
            expected = "discrete" if estimator.discrete else "continuous"
            raise ValueError(f"{type(estimator).__name__} must be given a model of {expected} weights")
        self.model = model
        self.estimator: Estimator = replace(estimator)  # type: ignore[type-var]  # averages of its own
        self._weights: Weights = (
            _CategoricalWeights(model) if isinstance(model, MeanFieldRegression) else _GaussianWeights(model)
        )
        assert model.log_noise_prior is not None
        self._log_noise_prior: FloatArray = model.log_noise_prior
        self._errors = _errors_of(model.statistics, model.output, rows, batch_size)
        self._split = int(np.prod(self._weights.shape))
        self.start: FloatArray = np.concatenate(
            [self._weights.start.ravel(), self._log_noise_prior - _log_sum_exp(self._log_noise_prior)]
        )

    def elbo(self, parameters: ArrayLike) -> float:
        """Return the exact ELBO of the model (not of a relaxation), −(n/2) log 2π included."""
        theta, log_q_noise = self._unpack(parameters)
        q_noise, noise, n = np.exp(log_q_noise), self.model.noise_levels, self.model.statistics.n_samples
        likelihood = -0.5 * n * (np.log(2 * np.pi) + q_noise @ np.log(noise))
        likelihood -= 0.5 * (q_noise @ (1.0 / noise)) * self._weights.error(theta)[0]
        return float(likelihood - self._weights.kl(theta)[0] - q_noise @ (log_q_noise - self._log_noise_prior))

    def exact_gradient(self, parameters: ArrayLike) -> FloatArray:
        """Gradient of `elbo`, (n_parameters,)."""
        theta, log_q_noise = self._unpack(parameters)
        return self._gradient(theta, log_q_noise, self._weights.error(theta))

    def gradient(self, parameters: ArrayLike, rng: np.random.Generator, progress: float = 0.0) -> FloatArray:
        """Return one estimate of the gradient, (n_parameters,).

        Parameters
        ----------
        parameters : array_like of shape (n_parameters,)
        rng : numpy.random.Generator
        progress : float
            Fraction of all steps done, for temperatures that fall.
        """
        theta, log_q_noise = self._unpack(parameters)
        return self._gradient(
            theta, log_q_noise, self.estimator.error(self._weights, theta, self._errors, rng, progress)
        )

    def gradient_variance(self, parameters: ArrayLike, rng: np.random.Generator, n_repeats: int = 100) -> FloatArray:
        """Variance of every entry of `gradient` at one point, from repetitions; (n_parameters,)."""
        as_count(n_repeats, "n_repeats", 2)
        estimates = np.stack([self.gradient(parameters, rng) for _ in range(n_repeats)])
        return np.asarray((estimates - estimates[0]).var(axis=0, ddof=1))  # equal ones give exactly zero

    def posterior(self, parameters: ArrayLike) -> MeanFieldPosterior | GaussianPosterior:
        """Return the distribution that the parameters describe, with its exact ELBO."""
        theta, log_q_noise = self._unpack(parameters)
        noise = NoisePosterior(self.model.noise_levels, np.exp(log_q_noise))
        return self._weights.posterior(theta, noise, self.elbo(parameters))

    def _unpack(self, parameters: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Parameters of the weights, and normalised log q_σ."""
        parameters = as_float_array(parameters, "parameters", self.start.shape)
        logits = parameters[self._split :]
        return parameters[: self._split].reshape(self._weights.shape), logits - _log_sum_exp(logits)

    def _gradient(self, theta: FloatArray, log_q_noise: FloatArray, error: tuple[float, FloatArray]) -> FloatArray:
        """Gradient from R and its own: ``−τ/2 ∇R − ∇KL``, and ``∂ELBO/∂q_σ`` through the softmax."""
        q_noise, noise = np.exp(log_q_noise), self.model.noise_levels
        tau = q_noise @ (1.0 / noise)
        slope = self._log_noise_prior - log_q_noise - 0.5 * self.model.statistics.n_samples * np.log(noise)
        slope -= 0.5 * error[0] / noise
        of_weights = -0.5 * tau * error[1] - self._weights.kl(theta)[1]
        return np.concatenate([of_weights.ravel(), through_softmax(q_noise, slope)])


@dataclass
class StochasticFit:
    """What stochastic steps found and how.

    Attributes
    ----------
    posterior : MeanFieldPosterior or GaussianPosterior
        The best of all checks by its exact ELBO.
    parameters : ndarray of shape (n_parameters,)
        Its parameters.
    steps : ndarray of int, shape (n_checks + 1,)
        After how many steps the ELBO was evaluated; the first is 0.
    seconds : ndarray of shape (n_checks + 1,)
        Processor time spent on steps until then, which is the wall's where nothing else runs, as one thread works;
        evaluations of the ELBO are not counted.
    elbo : ndarray of shape (n_checks + 1,)
        Exact ELBO there; it need not rise.
    """

    posterior: MeanFieldPosterior | GaussianPosterior
    parameters: FloatArray
    steps: NDArray[np.intp]
    seconds: FloatArray
    elbo: FloatArray


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

    Parameters
    ----------
    model, estimator, rows, batch_size
        As in `StochasticELBO`.
    n_steps : int
    step : float
        Size of the first steps, which shrink to nothing along half a cosine. Logits travel far: a small step takes
        many.
    n_checks : int
        How many times the exact ELBO is evaluated, outside the clock.
    start : array_like of shape (n_parameters,), optional
        Parameters; the prior by default.
    random_state : int or numpy.random.Generator
        The same seed gives the same fit.

    Returns
    -------
    StochasticFit
        Interrupting it (KeyboardInterrupt) ends it there, its posterior flagged.

    Raises
    ------
    ValueError, TypeError
        When an argument has a wrong shape, type or range.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import GaussianPrior, GaussianStatistics, Reinforce, evenly_spaced_levels, fit_stochastic
    >>> from pydirect.models import as_regression
    >>> rng = np.random.default_rng(0)
    >>> phi = rng.standard_normal((200, 3))
    >>> y = phi @ [1.0, 0.0, -1.0] + 0.1 * rng.standard_normal(200)
    >>> levels = evenly_spaced_levels(3, 1.0)
    >>> model = as_regression(
    ...     GaussianStatistics.from_arrays(phi, y), levels, GaussianPrior().log_mass(levels), [0.001, 0.01, 0.1])
    >>> fit = fit_stochastic(model, Reinforce(n_samples=20), n_steps=300, step=0.2)
    >>> fit.posterior.weights.most_probable().tolist()
    [2, 1, 0]
    """
    bound = StochasticELBO(model, estimator, rows, batch_size)
    schedule = AdamSchedule(
        as_count(n_steps, "n_steps"), as_number(step, "step", above=0.0), as_count(n_checks, "n_checks")
    )
    theta = bound.start if start is None else as_float_array(start, "start", bound.start.shape)
    rng = as_generator(random_state)
    checks = _Checks(bound)
    checks(theta)

    def gradient(parameters: FloatArray, i: int) -> FloatArray:
        checks.n_steps = i + 1
        return bound.gradient(parameters, rng, i / schedule.n_steps)

    with single_blas_thread():
        best, outcome = adam(gradient, checks, theta, schedule, rest=ADAM_REST * model.statistics.n_samples)
    posterior = bound.posterior(best)
    posterior.elbo_trace, posterior.n_iter = outcome.trace[0], outcome.n_iter
    posterior.converged, posterior.interrupted = outcome.converged, outcome.interrupted
    steps, seconds, elbo = zip(*checks.found, strict=True)
    return StochasticFit(posterior, best, np.array(steps), np.array(seconds), np.array(elbo))


class _Checks:
    """Evaluates the exact ELBO and notes it with the steps and seconds so far, the clock stopped meanwhile."""

    def __init__(self, bound: StochasticELBO) -> None:
        self._bound, self._begin = bound, time.process_time()
        self.n_steps = 0
        self.found: list[tuple[int, float, float]] = []

    def __call__(self, parameters: FloatArray) -> float:
        stopped = time.process_time()
        value = self._bound.elbo(parameters)
        self.found.append((self.n_steps, stopped - self._begin, value))
        self._begin += time.process_time() - stopped
        return value


def _errors_of(
    statistics: GaussianStatistics, output: int, rows: tuple[ArrayLike, ArrayLike] | None, batch_size: int | None
) -> SquaredErrors:
    if rows is None:
        if batch_size is not None:
            raise ValueError("batch_size must be None without rows: statistics are of all of them")
        return ErrorsFromStatistics(statistics.A, statistics.c[:, output].copy(), float(statistics.yty[output]))
    if not isinstance(rows, tuple | list) or len(rows) != 2:
        raise TypeError(f"rows must be a tuple (phi, y), got {type(rows).__name__}")
    phi = as_float_array(rows[0], "phi", ("n_rows", statistics.n_weights))
    y = as_float_array(rows[1], "y", (len(phi),))
    if len(phi) != statistics.n_samples:
        raise ValueError(f"rows must be those of the statistics, {statistics.n_samples:g}, got {len(phi)}")
    if not np.isclose(y @ y, statistics.yty[output], rtol=1e-6):
        raise ValueError(f"rows must be those of the statistics, with yty={statistics.yty[output]:g}, got {y @ y:g}")
    size = len(phi) if batch_size is None else as_count(batch_size, "batch_size")
    if size > len(phi):
        raise ValueError(f"batch_size must be at most the number of rows, {len(phi)}, got {size}")
    return ErrorsFromRows(phi, y, size)


# SciPy's own are an order of magnitude slower on small arrays, and steps are timed.


def _log_sum_exp(logits: FloatArray) -> FloatArray:
    """Over the last axis, which is kept; logits are finite."""
    highest = logits.max(axis=-1, keepdims=True)
    return np.asarray(highest + np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True)))


def _softmax(logits: FloatArray) -> FloatArray:
    """Over the last axis."""
    mass = np.exp(logits - logits.max(axis=-1, keepdims=True))
    mass /= mass.sum(axis=-1, keepdims=True)
    return mass
