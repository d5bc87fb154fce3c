"""pydirect in ScoringBench, https://github.com/jonaslandsgesell/ScoringBench: one class with `predict_distribution`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.special import ndtr
from scoringbench.univariate.wrappers.base import DistributionPrediction, ProbabilisticWrapper

import pydirect

# Levels of a normal's quantiles at equal steps, so that tails have theirs too.
LEVELS = ndtr(np.linspace(-4.0, 4.0, 161))


class DirectWrapper(ProbabilisticWrapper):
    """`DirectRegressor` with its defaults but what is given."""

    def __init__(self, **params: Any) -> None:
        self.model = pydirect.DirectRegressor(**{"random_state": 0, **params})

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows whose target is known; gaps and categories of X are the model's own business."""
        self._set_train_range(y)
        known = np.isfinite(np.asarray(y, dtype=np.float64).ravel())
        self.model.fit(X[known], np.asarray(y, dtype=np.float64).ravel()[known])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the means (n_rows,)."""
        return np.asarray(self.model.predict(X))

    def predict_distribution(self, X: Any) -> DistributionPrediction:
        """Return the quantiles as ScoringBench's distribution."""
        quantiles = self.model.predict_distribution(X).quantile(LEVELS)
        return DistributionPrediction.from_multi_quantile(
            quantiles, LEVELS, mean=self.predict(X), train_range=self._y_train_range
        )
