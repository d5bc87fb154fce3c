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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_count, as_float_array, as_generator, as_instance, as_number
from pydirect.baselines.gradient_estimators import (
    CategoricalWeights,
    Concrete,
    Estimator,
    Exact,
    GaussianRegression,
    GaussianWeights,
    Reinforce,
    Reparameterization,
    Weights,
    errors_of,
    log_sum_exp,
)
from pydirect.direct.mean_field import MeanFieldPosterior, MeanFieldRegression
from pydirect.linear.posterior import GaussianPosterior
from pydirect.optimize.gradient import ADAM_TOLERANCE, AdamSchedule, adam, through_softmax

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
        discrete = isinstance(model, MeanFieldRegression)
        if estimator.discrete not in (None, discrete):
            expected = "discrete" if estimator.discrete else "continuous"
            raise ValueError(f"{type(estimator).__name__} must be given a model of {expected} weights")
        self.model = model
        self.estimator: Estimator = replace(estimator)  # averages of its own
        self._weights: Weights = (
            CategoricalWeights(model) if isinstance(model, MeanFieldRegression) else GaussianWeights(model)
        )
        self._errors = errors_of(model.statistics, rows, batch_size)
        self._split = int(np.prod(self._weights.shape))
        log_prior = model.noise.log_prior
        self.start: FloatArray = np.concatenate([self._weights.start.ravel(), log_prior - log_sum_exp(log_prior)])

    def elbo(self, parameters: ArrayLike) -> float:
        """Return the exact ELBO of the model (not of a relaxation), −(n/2) log 2π included."""
        theta, log_q_noise = self._unpack(parameters)
        error, n_samples = self._weights.error(theta)[0], self.model.statistics.n_samples
        return float(self.model.noise.share(np.exp(log_q_noise), error, n_samples) - self._weights.kl(theta)[0])

    def exact_gradient(self, parameters: ArrayLike) -> FloatArray:
        """Gradient of `elbo`, (n_parameters,)."""
        theta, log_q_noise = self._unpack(parameters)
        return self._gradient(theta, log_q_noise, self._weights.error(theta))

    def gradient(self, parameters: ArrayLike, rng: np.random.Generator, progress: float = 0.0) -> FloatArray:
        """Return one estimate of the gradient, (n_parameters,)."""
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
        noise = self.model.noise.posterior(np.exp(log_q_noise))
        return self._weights.posterior(theta, noise, self.elbo(parameters))

    def _unpack(self, parameters: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Parameters of the weights, and normalised log q_σ."""
        parameters = as_float_array(parameters, "parameters", self.start.shape)
        logits = parameters[self._split :]
        return parameters[: self._split].reshape(self._weights.shape), logits - log_sum_exp(logits)

    def _gradient(self, theta: FloatArray, log_q_noise: FloatArray, error: tuple[float, FloatArray]) -> FloatArray:
        """Gradient from R and its own: ``−τ/2 ∇R − ∇KL``, and ``∂ELBO/∂q_σ`` through the softmax."""
        q_noise, noise = np.exp(log_q_noise), self.model.noise
        slope = noise.log_joint(error[0], self.model.statistics.n_samples) - log_q_noise
        of_weights = -0.5 * noise.precision(q_noise) * error[1] - self._weights.kl(theta)[1]
        return np.concatenate([of_weights.ravel(), through_softmax(q_noise, slope)])


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
    """Fit a factorised posterior by Adam on estimated gradients: a baseline, `fit_mean_field` needs no samples."""
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

    best, outcome = adam(gradient, checks, theta, schedule, tolerance=ADAM_TOLERANCE * model.statistics.n_samples)
    posterior = bound.posterior(best)
    posterior.outcome = replace(outcome, elbo=posterior.elbo)
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
