"""Bases of the regressors and classifiers that are Bayesian networks trained by variational inference."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import ClassifierMixin

from pydirect._progress import Progress
from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_generator, as_number
from pydirect.estimators._base import fit_each
from pydirect.estimators._classifier import ProbabilisticClassifier
from pydirect.estimators._network_tables import NetworkOfTables
from pydirect.estimators._regressor import ProbabilisticRegressor
from pydirect.features.inputs import InputMap
from pydirect.networks.base import VariationalNetwork
from pydirect.networks.outputs import centred_moments, log_noise_nodes, log_odds_moments
from pydirect.networks.posterior import TrainedNetwork
from pydirect.networks.schedule import TrainingSchedule
from pydirect.networks.training import fit_network
from pydirect.persistence.fields import Arrays, Header, Writer, build_one, require_positive

NOISES = ("heteroscedastic", "homoscedastic", "softplus")
# Log noise variances of standardised targets are clipped here: their exponentials stay finite.
LARGEST_LOG_VARIANCE = 60.0
# Standardised inputs are clipped here: fourth powers of the network's outputs stay finite.
LARGEST_INPUT = 1e20


class NetworkModel(NetworkOfTables):
    """Training of networks, moments of their outputs, sampled networks.

    A subclass provides `_network_with`, `_inference`, `_n_columns` and `_output_moments`, and has the parameters that
    are declared here.
    """

    hidden_layer_sizes: Any
    prior: Any
    n_draws: int
    optimizer: str
    n_steps: int | None
    learning_rate: float
    batch_size: int | None
    kl_warmup: float
    kl_ramp: float
    initial_scale: float
    n_restarts: int
    n_threads: int | None
    random_state: Any
    verbose: int

    def _check_parameters(self) -> None:
        network = self._network(1, 2 if isinstance(self, ClassifierMixin) else 1)
        self._schedule().stages(network.inference(self._inference()))
        if isinstance(self.prior, str):
            as_choice(self.prior, "prior", ("empirical_bayes",))
        as_number(self.initial_scale, "initial_scale", above=0.0)
        for name in ("n_restarts", "n_draws"):
            as_count(getattr(self, name), name)

    def _schedule(self) -> TrainingSchedule:
        return TrainingSchedule(
            self.optimizer,
            self.n_steps,
            self.learning_rate,
            self.batch_size,
            self.kl_warmup,
            self.kl_ramp,
            self.max_iter,
        )

    def _inference(self) -> str:
        """Return the name of the inference, as `fit_network` takes it."""
        raise NotImplementedError

    def _network(self, n_inputs: int, n_outputs: int) -> VariationalNetwork:
        """Return the network with this number of inputs, and of targets or classes."""
        raise NotImplementedError

    def _network_with(self, n_inputs: int, n_outputs: int, likelihood: str) -> VariationalNetwork:
        raise NotImplementedError

    def _network_to_train(self, network: VariationalNetwork, rng: np.random.Generator) -> VariationalNetwork:
        """Return the network with a seed of its own, if it has one."""
        return network

    def _output_moments(self, rows: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Mean (n_rows, n_outputs of the network) and covariance of the networks' outputs."""
        raise NotImplementedError

    def _train(self, x: FloatArray, columns: list[FloatArray], weight: FloatArray, n_outputs: int) -> None:
        """Fit one network per column of targets."""
        progress = Progress(self.verbose)
        rng = self._generator()
        self.input_map_ = InputMap.fit(x, weight, rank=False)
        inputs = self._inputs(x)
        network, schedule = self._network(inputs.shape[1], n_outputs), self._schedule()
        self._stages = schedule.stages(network.inference(self._inference()))

        def fit(column: FloatArray, interrupted: bool) -> TrainedNetwork:
            return fit_network(
                self._network_to_train(network, rng),
                inputs,
                column,
                sample_weight=weight,
                inference=self._inference(),
                n_draws=self.n_draws,
                schedule=TrainingSchedule("adam", n_steps=1) if interrupted else schedule,
                initial_scale=self.initial_scale,
                n_restarts=1 if interrupted else self.n_restarts,
                random_state=rng,
                n_threads=self.n_threads,
                progress=_report if self.verbose else None,
            )

        self.posteriors_ = fit_each(columns, progress, fit)
        most = {"adam": schedule.steps(int(np.count_nonzero(weight))), "lbfgs": schedule.max_iter}
        self._most_iterations = sum(most[stage] for stage in self._stages)
        self.fit_seconds_ = progress.seconds
        self.n_samples_ = float(weight.sum())

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        return {**super()._to_fields(writer), "input_map": writer.fields(self.input_map_, "input_map")}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.input_map_ = build_one((InputMap,), header["input_map"], arrays, "input_map")
        self.input_map_.check(self._n_encoded())

    def _check_posteriors(self, n_outputs: int) -> None:
        """Raise unless the posteriors are of the network with this number of targets or classes."""
        network = self._network(max(self.input_map_.n_outputs, 1), n_outputs)
        for posterior in self.posteriors_:
            posterior.check(network)

    # --- results

    def _limit(self) -> str:
        if self.n_iter_ < self._most_iterations:  # no line search of L-BFGS found a better point
            return ""
        return "n_steps" if self._stages[-1] == "adam" else "max_iter"

    def _effort(self) -> str:
        counted = {"adam": "steps", "lbfgs": "iterations"}
        return f"{self.n_iter_} {' and '.join(counted[stage] for stage in self._stages)}"

    def _inputs(self, x: FloatArray) -> FloatArray:
        """Return the network's inputs: rows of X standardised and clipped, or zeros if no column varies."""
        inputs = self.input_map_.transform(x) if self.input_map_.n_outputs else np.zeros((len(x), 1))
        return np.ascontiguousarray(np.clip(inputs, -LARGEST_INPUT, LARGEST_INPUT, out=inputs))

    def _set_results(self) -> None:
        super()._set_results()
        variances = [p.prior_variances for p in self.posteriors_]
        self.prior_variances_ = variances[0] if self._one_dimensional else variances

    def _expected_sparsity(self) -> float:
        return 0.0  # a Gaussian weight is never exactly zero

    def _output_sampler(self, n_samples: int, rng: np.random.Generator) -> Callable[[FloatArray], list[FloatArray]]:
        """Return a function from rows to the outputs of sampled networks, (n_rows, n_outputs, n_samples) each."""
        draws = [p.sample_weights(n_samples, rng) for p in self.posteriors_]

        def draw(rows: FloatArray) -> list[FloatArray]:
            inputs = self._inputs(rows)
            return [p.forward(weights, inputs) for p, weights in zip(self.posteriors_, draws, strict=True)]

        return draw

    def _n_columns_of_draws(self, n_samples: int) -> int:
        """Return the number of floats per row that are held while `n_samples` networks are evaluated."""
        network = self.posteriors_[0].network
        outputs = len(self.posteriors_) * network.n_outputs * n_samples
        return network.n_inputs + 4 * max(network.hidden_layer_sizes) + 4 * outputs


class NetworkRegressor(NetworkModel, ProbabilisticRegressor):
    """Base of regressors: one network per target, whose noise variance may be another output of the network."""

    noise: str
    mean_noise_: FloatArray

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            May hold text and gaps: see `pydirect.features.Columns`.
        y : array_like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts.

        Returns
        -------
        Self
            The fitted model.

        Warns
        -----
        ConvergenceWarning
            When the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        """
        self._check_parameters()
        x, standardised, counts = self._start_fit_to_distinct_rows(X, y, sample_weight)
        self._train(x, list(standardised.T), counts, 1)
        noise = np.empty((len(x), len(self.posteriors_)))
        for rows in self._blocks(x):
            for k, (mean, covariance) in enumerate(self._output_moments(x[rows])):
                noise[rows, k] = self._noise_of_outputs(mean, covariance)
        self.mean_noise_ = np.average(noise, axis=0, weights=counts)
        self._set_results()
        self._warn_if_unfinished()
        return self

    def _check_parameters(self) -> None:
        as_choice(self.noise, "noise", NOISES)
        super()._check_parameters()

    def _to_fields(self, writer: Writer) -> Header:
        writer.arrays["mean_noise"] = self.mean_noise_
        return super()._to_fields(writer)

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.mean_noise_ = arrays["mean_noise"]
        require_positive(self.mean_noise_, "mean_noise", len(self.posteriors_))
        self._check_posteriors(1)

    def _mean_noise_variance(self) -> FloatArray:
        return self.mean_noise_

    def _network(self, n_inputs: int, n_outputs: int) -> VariationalNetwork:
        return self._network_with(n_inputs, 1, self.noise)

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        moments = self._output_moments(rows)
        mean = np.stack([m[:, 0] for m, _ in moments], axis=1)
        return mean, np.stack([s[:, 0, 0] for _, s in moments], axis=1) if with_variance else None

    def _noise_of_outputs(self, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        """Return the expected noise variance, standardised, (n_rows,)."""
        if self.noise == "heteroscedastic":  # eq. 9
            return np.exp(_within(mean[:, 1] + 0.5 * covariance[:, 1, 1]))
        nodes, weights = log_noise_nodes(mean, covariance)
        return self._noise_variances(nodes) @ weights

    def _noise_variances(self, log_noise: FloatArray) -> FloatArray:
        """Noise variance of given outputs l of a network."""
        return np.logaddexp(0.0, log_noise) if self.noise == "softplus" else np.exp(_within(log_noise))

    def _draws(self, x: FloatArray, n_samples: int, rng: np.random.Generator, noise: bool) -> FloatArray:
        values = np.empty((len(x), len(self.posteriors_), n_samples))
        with single_blas_thread():
            draw = self._output_sampler(n_samples, rng)
            for rows in self._blocks(x, self._n_columns_of_draws(n_samples)):
                for k, outputs in enumerate(draw(x[rows])):
                    values[rows, k] = outputs[:, 0]
                    if noise:
                        level = outputs[:, 1] if self.noise != "homoscedastic" else self.posteriors_[k].log_noise
                        sd = np.sqrt(self._noise_variances(level))
                        values[rows, k] += sd * rng.standard_normal(outputs[:, 0].shape)
        if self.calibration_scale_ != 1.0:
            mean = self._latent_moments(x, with_variance=False)[0][:, :, None]
            values = mean + self.calibration_scale_ * (values - mean)
        return values


class NetworkClassifier(ProbabilisticClassifier, NetworkModel):
    """Base of classifiers: one network with an output per class."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit from scratch.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            May hold text and gaps: see `pydirect.features.Columns`.
        y : array_like of shape (n_samples,)
            Labels: strings, numbers or booleans.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts; rows of weight zero are left out.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError, TypeError
            When the data or a parameter is not as described, or there is only one class.

        Warns
        -----
        ConvergenceWarning
            When the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        """
        x, index, weight = self._start_fit(X, y, sample_weight)
        self._one_dimensional = True  # one network
        self._train(x, [index], weight, len(self.classes_))
        self._set_results()
        self._warn_if_unfinished()
        return self

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        if len(self.posteriors_) != 1 or not self._one_dimensional:
            raise ValueError("posteriors do not fit the classes")
        self._check_posteriors(len(self.classes_))

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Log-odds of the second of two classes, or log-probabilities of more, (n_rows,) or (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
            Log-odds or log-probabilities.
        """
        log_p = self.predict_log_proba(X)
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Predict the logarithms of the classes' probabilities, (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            In nats.
        """
        x = self._check_rows(X)
        log_p = np.empty((len(x), len(self.classes_)))
        with single_blas_thread():
            for rows in self._blocks(x):
                log_p[rows] = self._log_probabilities(x[rows])
        return log_p

    def _log_probabilities(self, x: FloatArray) -> FloatArray:
        """Return the logarithms of the classes' probabilities, (n_rows, n_classes), of a block."""
        raise NotImplementedError

    def predict_logit(self, X: ArrayLike, return_std: bool = False) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the logits: posterior means and, on request, standard deviations.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_classes)
            Log-odds of the second of two classes; of more classes, each logit minus their mean.
        std : ndarray of the same shape
            The posterior means.
        """
        x = self._check_rows(X)
        moments = log_odds_moments if len(self.classes_) == 2 else centred_moments
        with single_blas_thread():
            blocks = [moments(*self._output_moments(x[rows])[0]) for rows in self._blocks(x)]
        mean, variance = (np.concatenate(part) for part in zip(*blocks, strict=True))
        return (mean, np.sqrt(variance)) if return_std else mean

    def sample_proba(
        self, X: ArrayLike, n_samples: int = 1, random_state: np.random.Generator | int | None = 0
    ) -> FloatArray:
        """Predict the classes' probabilities by each of several networks sampled from the posterior.

        Returns an array (n_rows, n_classes, n_samples).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_samples : int, default=1
            Number of draws.
        random_state : Generator, int or None, default=0
            Source of the random numbers, or its seed.

        Returns
        -------
        ndarray of shape (n_rows, n_classes, n_samples)
            Probabilities.
        """
        x = self._check_rows(X)
        n_samples = as_count(n_samples, "n_samples")
        proba = np.empty((len(x), len(self.classes_), n_samples))
        with single_blas_thread():
            draw = self._output_sampler(n_samples, as_generator(random_state))
            for rows in self._blocks(x, self._n_columns_of_draws(n_samples)):
                proba[rows] = softmax(draw(x[rows])[0], axis=1)
        return proba


def _within(log_variance: FloatArray) -> FloatArray:
    """Clip log variances to where their exponentials are finite."""
    return np.clip(log_variance, -LARGEST_LOG_VARIANCE, LARGEST_LOG_VARIANCE)


def _report(finished: int, total: int, elbo: float) -> None:
    print(f"  start {finished:3d} of {total}, best ELBO {elbo:.1f}", file=sys.stderr, flush=True)
