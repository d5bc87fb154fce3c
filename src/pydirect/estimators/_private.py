"""Regressors fitted to sums that were released with noise (differential privacy)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_generator, as_instance, as_number
from pydirect.distributions.priors import GaussianPrior, as_prior
from pydirect.estimators.merging import MergingModel
from pydirect.features.basis import Basis
from pydirect.features.maps import NystroemFeatures
from pydirect.linear.decorrelated import fit_decorrelated
from pydirect.linear.noisy_sums import correct_noisy_sums
from pydirect.persistence.fields import Arrays, Header, Writer, build_one
from pydirect.statistics.noisy import NoisyStatistics, as_bounds
from pydirect.statistics.privacy import PrivacyBudget
from pydirect.statistics.rotated import decorrelate
from pydirect.statistics.running import RunningStatistics

# Standardised inputs that stand for any input: all within bounds, where the map was fitted to these.
REFERENCE_ROWS, REFERENCE_REACH = 2000, 1.0


class PrivateModel(MergingModel):
    """Base of regressors that release private sums, and are fitted to such releases."""

    noisy_statistics_: NoisyStatistics
    n_levels: int
    max_iter: int

    def private_statistics(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        y_bounds: tuple[float, float],
        budget: PrivacyBudget,
        epsilon: float | None = None,
        norm_bound: float | None = None,
        random_state: Any = None,
    ) -> NoisyStatistics:
        """Return sums over private rows with noise, safe to send: (ε, δ)-differentially private for every single row.

        The feature map must be fixed first, by `fit_features` on rows that are not private, such as two rows with the
        bounds of the columns. Sums of several sites are added, ``sum(releases)``, and `fit_statistics` takes them.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,)
            Targets.
        y_bounds : tuple of float
            Smallest and largest target, known without looking at them; targets beyond are moved to their bound.
        budget : PrivacyBudget
            Of these rows; the release is counted.
        epsilon : float, optional
            ε of this release alone; by default all that is left.
        norm_bound : float, optional
            Length to which rows of Φ are clipped, by counting longer ones less than once. By default the length where
            all inputs are one standard deviation, or half the range of a map of bounds, from their middle: rows within
            bounds are hardly ever longer. Needed for ``"precomputed"`` features and transformers.
        random_state : int, RandomState, Generator or None, optional
            Seed of the noise. None takes it from the operating system; whoever knows a seed can remove the noise.

        Returns
        -------
        NoisyStatistics
            The sums with noise.

        Raises
        ------
        ValueError
            If there is no feature map, or one that was fitted to the rows of a fit; if bounds are missing, or more of
            the budget is asked for than is left.
        """
        self._require_public_map()
        as_instance(budget, "budget", PrivacyBudget)
        bound = self._norm_bound() if norm_bound is None else as_number(norm_bound, "norm_bound", above=0.0)
        x, targets = self._validated(X, y, multi_output=True, y_numeric=True, reset=False)
        if targets.ndim == 2 and targets.shape[1] != 1:
            raise ValueError(f"y must be one target in a private release, got {targets.shape[1]}: release each alone")
        bounds, rng = as_bounds(y_bounds, "y_bounds"), as_generator(random_state)
        encoded, given = self._encoded(x), np.asarray(targets, dtype=np.float64).reshape(-1)
        mu = budget.spend(epsilon)  # last: nothing is spent on what is refused
        return NoisyStatistics.release(
            self.features_, encoded, given, y_bounds=bounds, norm_bound=bound, mu=mu, rng=rng
        )

    def _require_public_map(self) -> None:
        if not hasattr(self, "features_"):
            raise ValueError(
                "the feature map must be fixed before private rows are summed: call fit_features on rows that are not "
                "private, such as two rows with the bounds of the columns"
            )
        if hasattr(self, "posterior_") and not hasattr(self, "noisy_statistics_"):
            raise ValueError(
                "the feature map must not come from private rows, and this model was fitted to rows: call fit_features "
                "on rows that are not private"
            )
        self._require_same_features()
        if self.features_.target_transform is not None:
            raise ValueError("target_transform must be None for private sums; transform y and its bounds yourself")

    def _norm_bound(self) -> float:
        """Return the length of φ where all inputs are 1."""
        basis = self.features_
        if not _has_inputs(basis):
            raise ValueError(
                f"norm_bound must be given for {basis.map.kind} features, whose length nothing bounds: there is no "
                "privacy without bounds"
            )
        ones = np.ones((1, basis.map.n_features_in))
        if isinstance(basis.map, NystroemFeatures):
            return float(np.sqrt(basis.map.hyperparameters.diagonal(ones)[0]))
        return float(np.linalg.norm(basis.map.transform(ones)))

    # --- fitting

    def fit_statistics(self, statistics: RunningStatistics | NoisyStatistics) -> Self:
        """Fit to statistics of rows, filled from `new_statistics` of this model or one with the same feature map.

        Parameters
        ----------
        statistics : RunningStatistics or NoisyStatistics
            Collected on this or any other machine; kept as ``statistics_``, so that `partial_fit` can continue. Those
            of `private_statistics`, or a sum of them, are kept as ``noisy_statistics_``: the posterior then knows the
            noise in them, and its deviations are those that the noise leaves. In the decorrelated basis with a Gaussian
            prior only.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            If the statistics are of another feature map, or empty.
        """
        if not isinstance(statistics, NoisyStatistics):
            super().fit_statistics(statistics)
            return self
        check_is_fitted(self, "features_")
        self._check_parameters()
        self._check_without_rows()
        self._require_same_features()
        if self.basis != "decorrelated" or not isinstance(as_prior(self.prior), GaussianPrior):
            raise ValueError("basis must be 'decorrelated' and prior 'gaussian' for sums with noise")
        if statistics.fingerprint != self.features_.fingerprint:
            raise ValueError("statistics must be of the model's feature map, got those of another")
        self._fit_to_noisy(statistics)
        self._warn_if_unfinished()
        return self

    def _fit_to_noisy(self, noisy: NoisyStatistics) -> None:
        begin = time.perf_counter()
        low, high = noisy.y_bounds
        self._forget()
        self.y_mean_, self.y_scale_ = np.array([(low + high) / 2]), np.array([(high - low) / 2])
        corrected = correct_noisy_sums(noisy, self._reference_gram(noisy), self._fixed_noise(0))
        self.calibration_scale_, self._log_derivative, self._one_dimensional = 1.0, np.zeros(1), True
        self._set_counts(corrected.statistics.n_samples, 1.0)
        self.mean_missing_variance_ = 0.0
        if isinstance(self.features_.map, NystroemFeatures):  # the rest of k(x, x), which is noise at an average row
            self.mean_missing_variance_ = max(noisy.norm_bound**2 - np.trace(noisy.gram) / self.n_samples_, 0.0)
        with single_blas_thread():
            target = decorrelate(corrected.statistics).target(0).scaled(corrected.prior_variance)
            options: dict[str, Any] = {"n_levels": self.n_levels, "n_noise_levels": 1, "max_iter": self.max_iter}
            posterior = fit_decorrelated(target, corrected.noise_variance, **options)
        posterior.outcome.converged &= corrected.converged
        self._set_alone([(posterior, float(np.sqrt(corrected.prior_variance)))])
        self.fit_seconds_ = {"inference": time.perf_counter() - begin}
        self._set_results()
        self.__dict__.pop("statistics_", None)
        self._forget_held()
        self.noisy_statistics_ = noisy

    def _fixed_noise(self, output: int) -> float | None:
        """Return the noise variance that was given, in units of the scaled targets."""
        raise NotImplementedError

    def _set_alone(self, fitted: Sequence[tuple[Any, float]]) -> None:
        """Set posteriors and prior deviations of a model with constant noise and without local detail."""
        raise NotImplementedError

    def _reference_gram(self, noisy: NoisyStatistics) -> FloatArray:
        """Return the mean of φφᵀ over inputs from anywhere; where features have no inputs, a multiple of I."""
        basis = self.features_
        if not _has_inputs(basis):
            return noisy.norm_bound**2 / noisy.n_weights * np.eye(noisy.n_weights)
        rng = np.random.default_rng(0)
        inputs = rng.uniform(-REFERENCE_REACH, REFERENCE_REACH, (REFERENCE_ROWS, basis.map.n_features_in))
        with single_blas_thread():
            phi = basis.map.transform(inputs)
            return np.asarray(phi.T @ phi) / REFERENCE_ROWS

    def _forget(self) -> None:
        super()._forget()
        self.__dict__.pop("noisy_statistics_", None)

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        noisy = getattr(self, "noisy_statistics_", None)
        return {**super()._to_fields(writer), "noisy": None if noisy is None else writer.fields(noisy, "noisy")}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        if header["noisy"] is not None:
            self.noisy_statistics_ = build_one((NoisyStatistics,), header["noisy"], arrays, "noisy")
            if self.noisy_statistics_.n_weights != self.features_.n_weights:
                raise ValueError("noisy statistics do not fit the model")


def _has_inputs(basis: Basis) -> bool:
    """Whether features are functions of standardised inputs."""
    return basis.map.kind not in ("precomputed", "transformer")
