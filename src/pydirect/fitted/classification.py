"""`FittedClassifier` and `FittedCounts`: classes and counts as frozen data that predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from pydirect._dense import product
from pydirect._validation import FloatArray
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.fitted.regression import Latent, OfLatent
from pydirect.logistic.count_likelihood import LARGEST_LOG, CountDistribution, CountLikelihood, draw_counts
from pydirect.logistic.latent import ExtremeLikelihood, IntervalLikelihood, OrdinalLikelihood
from pydirect.logistic.likelihood import (
    averaged_log_odds,
    averaged_softmax,
    log_sum_exp,
    predictive_log_odds,
    softmax_log_probability,
)
from pydirect.persistence.schema import As, Ascending, Between, Binds, Positive, Shape
from pydirect.quantized.fitted import FittedBasisModel, Outputs
from pydirect.statistics.gaussian import blocks_of

# Quantiles of the left-out labels' probabilities that are stored of more rows than that.
MOST_QUANTILES = 1000


@dataclass(frozen=True, eq=False, repr=False)
class FittedClassifier(OfLatent):
    """One latent function for two classes, one per class for more.

    ``intercept`` (n_functions,) includes ``moves``, the logarithms of the odds' factors that class weights are.
    ``left_out_probability`` are those of labels left out of the fit, ascending; see `quantiles_of`.
    Probabilities are those of the functions to the power of ``sharpness``, normalised.
    """

    latent: Annotated[Latent, Binds(n_functions="n_outputs")]
    classes: Annotated[NDArray[Any], Shape("n_classes")]
    intercept: Annotated[FloatArray, Shape("n_functions")]
    moves: Annotated[FloatArray, Shape("n_functions")]
    is_softmax: bool
    n_samples: Annotated[float, Positive]
    left_out_probability: Annotated[FloatArray, Shape("n_quantiles*"), Between(0.0, 1.0), Ascending]
    sharpness: Annotated[float, Positive] = 1.0

    def check(self) -> None:
        """Raise unless there is one function for two classes, or one for each."""
        n_classes, n_functions = len(self.classes), len(self.intercept)
        if n_classes < 2 or self.classes.dtype.kind not in "biufUO" or len({*self.classes.tolist()}) != n_classes:
            raise ValueError("classes must be two or more different numbers or strings")
        if n_functions != (n_classes if n_classes > 2 else 1) or (self.is_softmax and n_functions == 1):
            raise ValueError(f"classes must fit the functions, got {n_classes} and {n_functions}")

    @property
    def one_dimensional(self) -> bool:
        """Whether one latent function is all there is, as for two classes."""
        return len(self.intercept) == 1

    def shape(self, values: FloatArray) -> FloatArray:
        """Drop the axis of latent functions where there is one."""
        return values[:, 0] if self.one_dimensional else values

    def log_odds(self, x: FloatArray) -> FloatArray:
        """Predictive log odds of the second class, (n_rows, 1), or log probabilities, (n_rows, n_classes)."""
        drawn = isinstance(self.posteriors[0], SequentialPosterior)
        odds = self._log_odds_of_draws(x) if drawn else self._log_odds_of_moments(x)
        if self.sharpness == 1 and not self.moves.any():
            return odds
        odds = self.sharpness * odds + self.moves  # moves of predictive odds, so that rows rank as without
        return normalised(odds) if self.is_softmax else odds

    def _log_odds_of_moments(self, x: FloatArray) -> FloatArray:
        mean, variance = self.latent.moments(x, with_variance=True)
        assert variance is not None
        odds = np.empty_like(mean)
        for rows in blocks_of(len(x), self.latent.n_columns):  # quadrature needs much memory per row
            z = self.intercept - self.moves + mean[rows]
            if self.is_softmax:  # whose variances are equal
                odds[rows] = softmax_log_probability(z, variance[rows].mean(axis=1))
            else:
                odds[rows] = predictive_log_odds(z, variance[rows])
        return odds

    def _log_odds_of_draws(self, x: FloatArray) -> FloatArray:
        latent = self.latent
        scaled = zip(latent.posteriors, latent.prior_scale, strict=True)
        weights = np.stack([scale * posterior.draws.T for posterior, scale in scaled], axis=1)
        odds = np.empty((len(x), weights.shape[1]))
        x, more = latent.split(x)
        for rows in blocks_of(len(x), weights[0].size):
            inputs, phi = latent.phi(x[rows])
            first = (more[rows] + latent.beyond(inputs, phi))[:, 0]
            logit = product(phi, weights.reshape(len(weights), -1)).reshape(len(phi), *weights.shape[1:])
            logit += (self.intercept - self.moves + latent.effects(x[rows])[0])[:, :, None]
            if self.is_softmax:
                odds[rows] = averaged_softmax(logit, first)
            else:
                odds[rows, 0] = averaged_log_odds(logit[:, 0], first)
        return odds

    def log_proba(self, x: FloatArray) -> FloatArray:
        """Log probabilities, (n_rows, n_classes)."""
        odds = self.log_odds(x)
        return log_expit(np.hstack([-odds, odds])) if odds.shape[1] == 1 else normalised(odds)

    def logit(self, x: FloatArray, with_std: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and standard deviation of the latent functions."""
        mean, variance = self.latent.moments(x, with_variance=with_std)
        mean = self.shape(self.intercept + mean)
        return mean, None if variance is None else self.shape(np.sqrt(variance))

    def sample_proba(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draws of the probabilities, (n_rows, n_classes, n_samples)."""
        z = self.intercept[:, None] + self.latent.draws(x, n_samples, rng)
        return expit(np.concatenate([-z, z], axis=1)) if z.shape[1] == 1 else np.exp(normalised(z))

    def quantizable(self, n_features_in: int, feature_names: tuple[str, ...]) -> FittedBasisModel:
        """Return the model as data that `pydirect.quantize` takes."""
        return self.latent.quantizable(Outputs.of_logits(self.intercept, self.classes, n_features_in, feature_names))


@dataclass(frozen=True, eq=False, repr=False)
class FittedLatent(OfLatent):
    """One latent intercept + f and a likelihood given it; ``log_unit`` is Σ log of the unit of y's densities."""

    one_dimensional: ClassVar[bool] = True

    latent: Latent
    intercept: float
    likelihood: Annotated[Any, As(IntervalLikelihood | ExtremeLikelihood | OrdinalLikelihood)]
    left_out_log_loss: float
    n_samples: Annotated[float, Positive]
    log_unit: float = 0.0
    classes: Annotated[NDArray[Any], Shape("n_classes")] | None = None

    @property
    def elbo_units(self) -> FloatArray:
        return np.array([self.log_unit])

    def moments(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent, (n_rows,) each."""
        mean, variance = self.latent.moments(x, with_variance=True)
        assert variance is not None
        return self.intercept + mean[:, 0], variance[:, 0]


@dataclass(frozen=True, eq=False, repr=False)
class FittedCounts(FittedLatent):
    """Counts of log rate intercept + f, up to ``highest``.

    ``has_exposure``: whether rows of the fit had an exposure other than one.
    """

    likelihood: CountLikelihood
    has_exposure: bool = False
    highest: float = LARGEST_LOG

    def log_rate(self, x: FloatArray, with_std: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and standard deviation of the log rate, (n_rows,) each."""
        mean, variance = self.latent.moments(x, with_variance=with_std)
        log_rate = np.minimum(self.intercept + mean[:, 0], self.highest)
        return log_rate, None if variance is None else np.sqrt(variance[:, 0])

    def distribution(self, x: FloatArray, log_exposure: FloatArray) -> CountDistribution:
        """Predictive distribution of the counts at every row, of log exposures (n_rows,)."""
        log_rate, std = self.log_rate(x, with_std=True)
        assert std is not None
        believed = np.minimum(std**2, 2 * (self.highest - log_rate))  # the mean rate is exp(m + v / 2)
        return CountDistribution(log_rate + log_exposure, believed, self.likelihood.dispersion)

    def sample(self, x: FloatArray, n_samples: int, rng: np.random.Generator, log_exposure: FloatArray) -> NDArray[Any]:
        """Draws of counts, (n_rows, n_samples)."""
        z = self.latent.draws(x, n_samples, rng)[:, 0]
        z = np.minimum(z + self.intercept, self.highest) + log_exposure[:, None]
        return draw_counts(z, self.likelihood.dispersion, rng)


def normalised(odds: FloatArray) -> FloatArray:
    """Log odds (n_rows, n_classes, ...) as log probabilities."""
    return odds - log_sum_exp(odds)[:, None]


def quantiles_of(log_probability: FloatArray, weight: FloatArray) -> FloatArray:
    """Ascending probabilities, all or geometric means of equal shares of their weights, at most `MOST_QUANTILES`.

    Their mean logarithm is that of all probabilities, by weight.
    """
    if not len(log_probability):
        return np.empty(0)
    order = np.argsort(log_probability, kind="stable")
    mass = np.append(0.0, np.cumsum(weight[order]))
    total = np.append(0.0, np.cumsum(weight[order] * log_probability[order]))
    n = min(MOST_QUANTILES, max(len(order), round(mass[-1])))
    means = np.diff(np.interp(np.linspace(0.0, mass[-1], n + 1), mass, total)) * n / mass[-1]
    return np.exp(np.minimum(np.maximum.accumulate(means), 0.0))
