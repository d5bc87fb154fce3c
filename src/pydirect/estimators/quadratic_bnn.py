"""`QuadraticBNNRegressor`: a Bayesian network with quadratic activations and discrete weights."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import (
    FloatArray,
    as_choice,
    as_count,
    as_flag,
    as_number,
    as_sample_weight,
    as_verbosity,
    column_names,
)
from pydirect._warnings import ignored
from pydirect.distributions.noise import NoiseGridWarning
from pydirect.distributions.priors import as_prior
from pydirect.estimators._base import fit_each
from pydirect.estimators._network_tables import NetworkOfTables
from pydirect.estimators._regressor import ProbabilisticRegressor
from pydirect.features.inputs import InputMap, Rotation
from pydirect.persistence.fields import Arrays, Header, Writer, build_one, require_array
from pydirect.quadratic.coreset import NetworkCoreset, merged_tree
from pydirect.quadratic.engines import INPUT_SCALE, NETWORK_ENGINES, NetworkShape
from pydirect.quadratic.moments import n_moments
from pydirect.quadratic.network import NetworkPosterior
from pydirect.quadratic.training import LARGEST_PRIOR_SCALE, OPTIMIZERS, check_regrids, fit_quadratic_network
from pydirect.quantized.basis import NetworkBasis
from pydirect.quantized.fitted import FittedNetwork
from pydirect.streams.dask import is_dask
from pydirect.streams.rows import READ_ROWS, Source, StreamError, StreamInterrupt, chunks
from pydirect.streams.sources import as_source


class QuadraticBNNRegressor(NetworkOfTables, ProbabilisticRegressor):
    """Bayesian neural network with quadratic activations, trained exactly by discrete relaxation (DIRECT).

    Every weight takes one of a few levels; the evidence lower bound, its gradient and the predictive mean and variance
    are exact (Evans & Nair 2018, section 3.2 and appendix D). A network of ℓ hidden layers is a polynomial of degree
    2^ℓ in the inputs: compare one hidden layer with ridge regression on squares and products.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(16, 8)
        Units of each hidden layer. One or two layers of any width; three only in very small networks.
    n_levels : int, default=15
        Number of values that a weight can take; 16 or fewer fit into 4 bits. At least 5, or 2 with ``n_regrids=0``.
    prior : str or Prior, default="gaussian"
        Of a weight, in units of its prior standard deviation; see `DirectRegressor`. It must have a density unless
        ``n_regrids=0``.
    prior_scale : float, default=1.5
        Prior standard deviation of a weight times the square root of the number of inputs of its layer.
    fit_prior_scale : bool, default=True
        Estimate the prior standard deviation of each layer by empirical Bayes whenever levels are placed anew.
    whiten : bool, default=True
        Rotate the standardised inputs to their principal axes, each scaled to variance one: correlated inputs would
        make the exact posterior of the weights correlated, which a factorised one cannot be. Directions without
        variance are dropped.
    bias : bool, default=True
        Give every layer an additional input, fixed to one.
    n_restarts : int, default=4
        Number of random starts; after every round the half with the lower ELBO is dropped.
    n_regrids : int, default=3
        How many times the levels of every weight are placed anew around its posterior. With 0 all weights of a layer
        share evenly spaced levels, which suits small devices and costs accuracy.
    optimizer : {"lbfgs", "coordinate_ascent"}, default="lbfgs"
        Quasi-Newton steps in all logits, or one weight after the other in closed form.
    engine : {"auto", "datum", "tensor", "coreset", "monomial"}, default="auto"
        How the expected squared error is computed; ``"auto"`` decides by operation count and memory. See
        `pydirect.fit_quadratic_network`. The cost of a step of ``"tensor"``, ``"coreset"`` and ``"monomial"`` does not
        depend on the number of rows.
    max_iter : int, default=150
        Maximum number of iterations per round.
    n_threads : int, optional
        By default OpenMP's number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the starts.
    verbose : int, default=0
        1 reports stages on standard error.

    Attributes
    ----------
    posterior_ : NetworkPosterior, or a list of them for several outputs
        One network per output.
    coefs_ : list of ndarray of shape (fan_out, fan_in), or a list of such lists
        Posterior means of the weights of each layer; the bias is the last input.
    elbo_ : float
        Evidence lower bound of the targets in their own units, in nats, summed over outputs. It compares starts and
        noise levels; it does not rank architectures as the test error does.
    elbo_trace_ : ndarray of shape (n_iter,), or a list of them
        Of the start that was kept; it may fall where levels were placed anew.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the optimisation came to rest.
    interrupted_ : bool
        Whether Ctrl-C ended the fit early.
    sparsity_ : float
        Expected fraction of weights that are exactly zero in a posterior sample.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Expected noise variance in squared units of y.
    calibration_scale_ : float
        1, or the scale found by `calibrate`.
    coreset_ : NetworkCoreset
        After `partial_fit` or `fit_stream`: weighted rows that represent all rows seen, in the units of X and y.
    fit_seconds_ : dict of str to float
        Seconds of each stage.
    posteriors_ : list
        `posterior_` as a list, one per output.
    columns_ : Columns
        From tables to the rows of numbers that the model takes, by ``columns_.encode(X)``.
    input_map_ : InputMap
        Standardisation of the columns.
    rotation_ : Rotation
        From standardised columns to the inputs of the network.
    n_samples_ : float
        Sum of the weights of the training rows.
    y_mean_ : ndarray of shape (n_outputs,)
        Mean of the training targets, as they were modelled.
    y_scale_ : ndarray of shape (n_outputs,)
        Their standard deviation, one where it is zero: units of the posterior.
    n_features_in_ : int
        Number of columns of X.

    Notes
    -----
    Predictive means and variances of f are exact; intervals, quantiles and densities treat f as Gaussian with these
    moments. Far from the training data a polynomial grows without bound, and so do the predicted deviations.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from pydirect import QuadraticBNNRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = QuadraticBNNRegressor(hidden_layer_sizes=(8,)).fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    """

    coreset_: NetworkCoreset
    _posterior_types = (NetworkPosterior,)
    input_map_: InputMap
    rotation_: Rotation
    fit_seconds_: dict[str, float]

    def __init__(
        self,
        hidden_layer_sizes: Any = (16, 8),
        n_levels: int = 15,
        prior: Any = "gaussian",
        prior_scale: float = 1.5,
        fit_prior_scale: bool = True,
        whiten: bool = True,
        bias: bool = True,
        n_restarts: int = 4,
        n_regrids: int = 3,
        optimizer: str = "lbfgs",
        engine: str = "auto",
        max_iter: int = 150,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_levels = n_levels
        self.prior = prior
        self.prior_scale = prior_scale
        self.fit_prior_scale = fit_prior_scale
        self.whiten = whiten
        self.bias = bias
        self.n_restarts = n_restarts
        self.n_regrids = n_regrids
        self.optimizer = optimizer
        self.engine = engine
        self.max_iter = max_iter
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

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

        Raises
        ------
        ValueError, TypeError
            When the data or a parameter is not as described, or the network is too large for exact inference, with
            the memory that it would need.

        Warns
        -----
        ConvergenceWarning
            When the optimiser did not converge; the best posterior found is kept, with ``converged_ = False``.
        """
        self._check_parameters()
        self._forget_rows()
        x, standardised, counts = self._start_fit_to_distinct_rows(X, y, sample_weight)
        self._fit_networks(x, standardised, counts, [None] * standardised.shape[1])
        depth = self._shape_for(x.shape[1]).depth
        if self._one_dimensional and self.columns_.is_plain and len(x) <= n_moments(x.shape[1], depth):
            targets = self.y_mean_ + self.y_scale_ * standardised
            self._coreset_of_fit = NetworkCoreset.from_data(x, targets[:, 0], depth, True, sample_weight=counts)
        self._warn_if_unfinished()
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to these rows and all earlier ones, represented by a coreset.

        After ``fit`` these are those of the fit, if there are no more of them than in a coreset. Training uses the last
        posterior as an additional start. The coreset is exact for networks of this depth: the ELBO and its optima are
        those of all rows together, in whatever blocks they came. It is feasible for few inputs only (see
        `NetworkCoreset`). After an error the rows are not counted.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features_in)
            Rows of inputs.
        y : array_like of shape (n_samples,)
            Targets.
        sample_weight : array_like of shape (n_samples,), optional
            How many times each row counts; by default once.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            When the data or a parameter is not as described, the coreset would be too large, with its size, or there
            is none of an earlier fit.
        """
        self._check_parameters()
        earlier = getattr(self, "coreset_", getattr(self, "_coreset_of_fit", None))
        if earlier is None and hasattr(self, "posterior_"):
            raise ValueError(
                "the earlier rows must be known to go on, but fit keeps few numbers with one target only, and files "
                "none of a fit: begin with partial_fit or fit_stream, whose coreset files keep"
            )
        x, target = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=earlier is None)
        weight = as_sample_weight(sample_weight, len(x))
        y_column = np.asarray(target, dtype=np.float64)
        depth = self._shape_for(x.shape[1]).depth
        if earlier is None:
            self._take_numbers(x.shape[1], column_names(X))
            coreset = NetworkCoreset.from_data(x, y_column, depth, True, sample_weight=weight)
        elif depth > earlier.depth:
            raise ValueError(
                f"hidden_layer_sizes must hold at most {earlier.depth} widths, as when partial_fit began, got {depth}"
            )
        else:
            coreset = earlier.update(x, y_column, sample_weight=weight)
        start = [None] if earlier is None else getattr(self, "posteriors_", [None])
        self._forget()
        self._one_dimensional = True
        standardised = self._standardise_targets(coreset.y[:, None], coreset.weight)
        self._fit_networks(coreset.x, standardised, coreset.weight, start)
        self._forget_rows()
        self.coreset_ = coreset
        self._warn_if_unfinished()
        return self

    def _forget_rows(self) -> None:
        for name in ("coreset_", "_coreset_of_fit"):
            self.__dict__.pop(name, None)

    def fit_stream(self, X: Any, y: Any = None, sample_weight: Any = None, *, drop_missing: bool = False) -> Self:
        """Fit to data that need not fit into memory, in one pass that keeps a coreset.

        Blocks of rows are reduced to coresets, and these are merged in a tree: the result represents all rows exactly.
        Memory is that of a block and a few coresets, whatever the number of rows. It is feasible for few inputs only,
        as `partial_fit`, which can continue from here if there is one target.

        Parameters
        ----------
        X : path, array, iterable or function
            As in `DirectRegressor.fit_stream`; an iterator is read once.
        y, sample_weight : optional
            As in `DirectRegressor.fit_stream`; None for blocks, which hold theirs.
        drop_missing : bool, default=False
            Leave out rows with missing values, which otherwise raise an error.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        pydirect.StreamError
            When data cannot be read or used, with the place.
        ValueError
            When the coreset would be too large, with its size.
        KeyboardInterrupt
            After Ctrl-C during the pass; nothing is kept then.
        """
        self._check_parameters()
        as_flag(drop_missing, "drop_missing")
        if is_dask(X):
            raise TypeError("X must not be a Dask collection, which only DirectRegressor sums: give a path or blocks")
        source = as_source(X, y, sample_weight)
        progress = Progress(self.verbose)
        coreset = self._coreset_of_stream(source, drop_missing, progress)
        self._forget()
        self._one_dimensional = source.one_dimensional
        self._set_input_names(coreset.x.shape[1], source.names)
        self._take_numbers(coreset.x.shape[1], source.names)
        targets = coreset.y.reshape(len(coreset.y), -1)
        standardised = self._standardise_targets(targets, coreset.weight)
        self._fit_networks(coreset.x, standardised, coreset.weight, [None] * targets.shape[1])
        self._forget_rows()
        self.coreset_ = coreset
        self.fit_seconds_["coreset"] = progress.seconds["coreset"]
        self._warn_if_unfinished()
        return self

    def _coreset_of_stream(self, source: Source, drop_missing: bool, progress: Progress) -> NetworkCoreset:
        row = 0

        def parts(report: Any) -> Iterator[NetworkCoreset]:
            nonlocal row
            for end, rows in chunks(source, 0, READ_ROWS, drop_missing):
                counted = rows if rows.weight is None else rows[rows.weight > 0]
                if len(counted):
                    target = counted.y[:, 0] if source.one_dimensional else counted.y
                    depth = self._shape_for(counted.x.shape[1]).depth
                    yield NetworkCoreset.from_data(counted.x, target, depth, True, sample_weight=counted.weight)
                row = end
                report(end)

        try:
            with progress.stage("coreset"), progress.stream(source.n_rows) as report:
                found = parts(report)
                first = next(found, None)
                if first is None:
                    raise StreamError("no row with positive weight is left")
                return merged_tree(itertools.chain([first], found))
        except KeyboardInterrupt:
            raise StreamInterrupt(f"interrupted after {row:,} rows: none of them is kept") from None

    def _fit_networks(
        self, x: FloatArray, y: FloatArray, weight: FloatArray | None, starts: Sequence[NetworkPosterior | None]
    ) -> None:
        rng = self._generator()
        progress = Progress(self.verbose)
        with single_blas_thread(), progress.stage("inputs"):
            self.input_map_ = InputMap.fit(x, weight, rank=False)
            standardised = self.input_map_.transform(x)
            self.rotation_ = (
                Rotation.whitening(standardised, weight) if self.whiten else Rotation.identity(standardised.shape[1])
            )
            inputs = self._inputs(x)
        if inputs.shape[1] == 0 and not self.bias:
            raise ValueError("X must have a column that varies when bias=False")
        shape = self._shape_for(inputs.shape[1])

        def fit(column: tuple[FloatArray, NetworkPosterior | None], interrupted: bool) -> NetworkPosterior:
            target, start = column
            fits = start is not None and start.shape == shape and start.q.shape[1] == self.n_levels
            with ignored(NoiseGridWarning):  # of a grid that is not the user's
                return fit_quadratic_network(
                    inputs,
                    target,
                    self.hidden_layer_sizes,
                    sample_weight=weight,
                    bias=self.bias,
                    prior=self.prior,
                    prior_scale=self.prior_scale,
                    fit_prior_scale=self.fit_prior_scale,
                    n_levels=self.n_levels,
                    n_restarts=1 if interrupted else self.n_restarts,
                    n_regrids=0 if interrupted else self.n_regrids,
                    optimizer=self.optimizer,
                    engine=self.engine,
                    max_iter=1 if interrupted else self.max_iter,
                    start=start if fits else None,
                    random_state=rng,
                    n_threads=self.n_threads,
                    progress=_report if self.verbose else None,
                )

        self.posteriors_ = fit_each(zip(y.T, starts, strict=True), progress, fit)
        self.fit_seconds_ = progress.seconds
        self.n_samples_ = float(len(x) if weight is None else weight.sum())
        self._set_results()

    def _check_parameters(self) -> None:
        self._shape_for(1)
        as_number(self.prior_scale, "prior_scale", above=0.0, at_most=LARGEST_PRIOR_SCALE)
        for name in ("whiten", "fit_prior_scale"):
            as_flag(getattr(self, name), name)
        as_verbosity(self.verbose)
        as_count(self.n_restarts, "n_restarts")
        as_count(self.max_iter, "max_iter")
        as_choice(self.optimizer, "optimizer", OPTIMIZERS)
        as_choice(self.engine, "engine", NETWORK_ENGINES)
        check_regrids(self.n_regrids, self.n_levels, as_prior(self.prior))

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        coreset = getattr(self, "coreset_", None)
        return {
            **super()._to_fields(writer),
            "input_map": writer.fields(self.input_map_, "input_map"),
            "rotation": writer.fields(self.rotation_, "rotation"),
            "coreset": None if coreset is None else writer.fields(coreset, "coreset"),
        }

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.input_map_ = build_one((InputMap,), header["input_map"], arrays, "input_map")
        n_inputs = self.input_map_.check(self._n_encoded())
        self.rotation_ = build_one((Rotation,), header["rotation"], arrays, "rotation")
        matrix = require_array(self.rotation_.matrix, "rotation", n_inputs, "n_outputs")
        shape = self._shape_for(matrix.shape[1])
        for posterior in self.posteriors_:
            posterior.check(shape.n_weights)
            if posterior.shape != shape:
                raise ValueError("posteriors are not of the network's shape")
        if header["coreset"] is not None:
            self.coreset_ = build_one((NetworkCoreset,), header["coreset"], arrays, "coreset")
            self.coreset_.check(self._n_encoded(), shape.depth)

    def _shape_for(self, n_inputs: int) -> NetworkShape:
        return NetworkShape(n_inputs, self.hidden_layer_sizes, self.bias)

    def _set_results(self) -> None:
        super()._set_results()
        layers = [p.shape.matrices(p.mean) for p in self.posteriors_]
        self.coefs_ = layers[0] if self._one_dimensional else layers

    # --- prediction

    def _inputs(self, x: FloatArray) -> FloatArray:
        """Return the network's inputs: rows of X standardised, rotated, scaled and clipped."""
        inputs = INPUT_SCALE * self.rotation_.transform(self.input_map_.transform(x))
        limit = self._shape_for(1).largest_input
        return np.clip(inputs, -limit, limit, out=inputs)

    def quantizable(self) -> FittedNetwork:
        """Return the fitted model as data that `pydirect.quantize` takes.

        Returns
        -------
        FittedNetwork
            What `pydirect.quantize` takes.
        """
        check_is_fitted(self)
        basis = NetworkBasis.of(self.input_map_, self.rotation_, self.posteriors_[0].shape)
        return FittedNetwork(basis, self.posteriors_, self._outputs())

    def _n_columns(self) -> int:
        return max(fan_in + fan_out for fan_out, fan_in in self.posteriors_[0].shape.layers)

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        n_threads = resolve_n_threads(self.n_threads)
        inputs = self._inputs(rows)
        if not with_variance:
            return np.stack([p.latent_mean(inputs, n_threads) for p in self.posteriors_], axis=1), None
        moments = [p.latent_moments(inputs, n_threads) for p in self.posteriors_]
        return np.stack([m for m, _ in moments], axis=1), np.stack([v for _, v in moments], axis=1)

    def _sampler(self, n_samples: int, rng: np.random.Generator) -> Any:
        weights = [p.sample_weights(n_samples, rng) for p in self.posteriors_]

        def draw(rows: FloatArray) -> FloatArray:
            inputs = self._inputs(rows)
            pairs = zip(self.posteriors_, weights, strict=True)
            return np.stack([p.sample_functions(inputs, w) for p, w in pairs], axis=1)

        return draw


def _report(finished: int, total: int, elbo: float) -> None:
    print(f"  round {finished:3d} of {total}, best ELBO {elbo:.1f}", file=sys.stderr, flush=True)
