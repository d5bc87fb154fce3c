"""`QuadraticBNNRegressor`: a Bayesian network with quadratic activations and discrete weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from pydirect._documentation import described_by
from pydirect._progress import Progress
from pydirect._validation import FloatArray, as_flag, as_sample_weight, column_names
from pydirect._warnings import ignored
from pydirect.distributions.noise import NoiseGridWarning
from pydirect.estimators._estimator import of_model
from pydirect.estimators._regressor import Regressor
from pydirect.estimators.choices import check_common, generator_of
from pydirect.estimators.networks import DVIRegressor, fit_each, report_of, require_inputs
from pydirect.estimators.regression import GivenRows
from pydirect.features.inputs import InputMap, InputRotation
from pydirect.features.rows import distinct_rows
from pydirect.fitted.networks import FittedQuadraticNetwork, quadratic_inputs
from pydirect.fitted.predictor import Units
from pydirect.quadratic.coreset import NetworkCoreset, merged_tree, n_moments
from pydirect.quadratic.network import NetworkPosterior, NetworkShape
from pydirect.quadratic.training import QuadraticOptions, fit_quadratic_network
from pydirect.streams.dask import is_dask
from pydirect.streams.rows import READ_ROWS, Source, StreamError, StreamInterrupt, chunks
from pydirect.streams.sources import as_source
from pydirect.tables.encoding import ColumnEncoding

# Parameters that are arguments of `fit_quadratic_network`, and those of least effort.
OPTIONS = [option.name for option in fields(QuadraticOptions)]
ONE_ITERATION = {"n_restarts": 1, "n_regrids": 0, "max_iter": 1}


@described_by(DVIRegressor)
@dataclass(eq=False, repr=False)
class QuadraticBNNRegressor(Regressor):
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
    random_state : int, RandomState or None, default=0
        Seed of the starts.

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
        Whether the optimisation converged.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Expected noise variance in squared units of y.
    coreset_ : NetworkCoreset
        After `partial_fit` or `fit_stream`: weighted rows that represent all rows seen, in the units of X and y.
    rotation_ : Rotation
        From standardised columns to the inputs of the network.
    model_ : FittedQuadraticNetwork
        The fitted model as frozen data.

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

    hidden_layer_sizes: Any = (16, 8)
    n_levels: int = 15
    prior: Any = "gaussian"
    prior_scale: float = 1.5
    fit_prior_scale: bool = True
    whiten: bool = True
    bias: bool = True
    n_restarts: int = 4
    n_regrids: int = 3
    optimizer: str = "lbfgs"
    engine: str = "auto"
    max_iter: int = 150

    model_: FittedQuadraticNetwork = field(init=False)
    coreset_: NetworkCoreset = field(init=False)
    _coreset_of_fit: NetworkCoreset | None = field(init=False)  # while `fit` had no more rows than a coreset has

    def _learn(self, plan: NetworkShape, given: GivenRows, progress: Progress) -> dict[str, Any]:
        # Training is not convex: data that differ only by rounding could lead to different optima.
        x, targets, counts = distinct_rows(given.x, given.y, given.weight)
        self.model_ = self._train(x, targets, counts, given.one_dimensional, progress)
        if given.one_dimensional and given.columns.is_plain and len(x) <= n_moments(x.shape[1], plan.depth):
            self._coreset_of_fit = NetworkCoreset.from_data(x, targets[:, 0], plan.depth, True, sample_weight=counts)
        return {}

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
        depth = self._plan().depth
        earlier = getattr(self, "coreset_", getattr(self, "_coreset_of_fit", None))
        if earlier is None and hasattr(self, "model_"):
            raise ValueError("the earlier rows must be known to go on: begin with partial_fit or fit_stream")
        x, target = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=earlier is None)
        rows = x, np.asarray(target, dtype=np.float64)
        weight = as_sample_weight(sample_weight, len(x))
        if earlier is not None and depth > earlier.depth:
            raise ValueError(f"hidden_layer_sizes must hold at most {earlier.depth} widths, as before, got {depth}")
        progress = Progress(self.verbose)
        with self._threads():
            if earlier is None:
                columns, starts = ColumnEncoding.of_numbers(x.shape[1], column_names(X)), []
                coreset = NetworkCoreset.from_data(*rows, depth, True, sample_weight=weight)
            else:
                columns, starts = self.columns_, self.posteriors_
                coreset = earlier.update(*rows, sample_weight=weight)
            model = self._train(coreset.x, coreset.y[:, None], coreset.weight, True, progress, starts)
        return self._accept(columns, model, coreset, progress)

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
        depth = self._plan().depth
        as_flag(drop_missing, "drop_missing")
        if is_dask(X):
            raise TypeError("X must not be a Dask collection, which only DirectRegressor sums: give a path or blocks")
        source, progress = as_source(X, y, sample_weight), Progress(self.verbose)
        with self._threads():
            coreset = coreset_of_stream(source, depth, drop_missing, progress)
            targets = coreset.y.reshape(len(coreset.y), -1)
            model = self._train(coreset.x, targets, coreset.weight, source.one_dimensional, progress)
        n_columns, names = coreset.x.shape[1], source.names
        self._set_input_names(n_columns, names)
        return self._accept(ColumnEncoding.of_numbers(n_columns, names), model, coreset, progress)

    def _accept(
        self, columns: ColumnEncoding, model: FittedQuadraticNetwork, coreset: NetworkCoreset, progress: Progress
    ) -> Self:
        self._begin()
        self.columns_, self.model_, self.coreset_, self.fit_seconds_ = columns, model, coreset, progress.finish()
        self._warn_if_unfinished()
        return self

    def _begin(self) -> None:
        super()._begin()
        self._coreset_of_fit = None

    def _plan(self) -> NetworkShape:
        """Check the parameters; the shape of a network of one input."""
        as_flag(self.whiten, "whiten")
        check_common(self)
        QuadraticOptions(**self._options())
        return NetworkShape(1, self.hidden_layer_sizes, self.bias)

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in OPTIONS}

    def _train(
        self,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray,
        one_dimensional: bool,
        progress: Progress,
        starts: Sequence[NetworkPosterior] = (),
    ) -> FittedQuadraticNetwork:
        """Fit a network per column of y (n_rows, n_outputs), with additional starts."""
        rng, shape = generator_of(self.random_state), self._plan()
        units, z = Units.fit(y, weight, one_dimensional)
        with progress.stage("inputs"):
            input_map = InputMap.fit(x, weight, rank=False)
            values = input_map.transform(x)
            rotation = InputRotation.whitening(values, weight) if self.whiten else None
            rotation = rotation or InputRotation.identity(values.shape[1])
            inputs = quadratic_inputs(input_map, rotation, shape.largest_input, x)
        if inputs.shape[1] == 0 and not self.bias:
            raise ValueError("X must have a column that varies when bias=False")
        shape = replace(shape, n_inputs=inputs.shape[1])

        def fit(column: tuple[FloatArray, NetworkPosterior | None], least: dict[str, Any]) -> NetworkPosterior:
            target, start = column
            fits = start is not None and start.shape == shape and start.q.shape[1] == self.n_levels
            with ignored(NoiseGridWarning):  # of a grid that is not the user's
                return fit_quadratic_network(
                    inputs,
                    target,
                    self.hidden_layer_sizes,
                    sample_weight=weight,
                    bias=self.bias,
                    start=start if fits else None,
                    random_state=rng,
                    progress=report_of("round", self.verbose),
                    **self._options() | least,
                )

        posteriors = fit_each(itertools.zip_longest(z.T, starts), progress, fit, ONE_ITERATION)
        return FittedQuadraticNetwork(input_map, rotation, tuple(posteriors), units, float(weight.sum()))

    # --- results

    input_map_ = of_model("input_map")
    rotation_ = of_model("rotation")

    @property
    def coefs_(self) -> list[Any]:
        layers = [p.shape.matrices(p.mean) for p in self.model_.posteriors]
        return layers[0] if self._units.one_dimensional else layers

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedQuadraticNetwork, "coreset_": NetworkCoreset}

    def _restored(self) -> None:
        plan, model = self._plan(), self.model_
        require_inputs(self.n_features_in_, self.columns_, model.input_map)
        shape = model.posteriors[0].shape
        if shape.key != replace(plan, n_inputs=shape.n_inputs).key:
            raise ValueError("posteriors are not of the network's shape")
        coreset = getattr(self, "coreset_", None)
        if coreset is not None and (coreset.x.shape[1] != self.n_features_in_ or plan.depth > coreset.depth):
            raise ValueError("the coreset must be of the columns and the depth of the network")


def coreset_of_stream(source: Source, depth: int, drop_missing: bool, progress: Progress) -> NetworkCoreset:
    """Coreset of all rows of a source, in one pass, for networks of `depth` hidden layers."""
    row = 0

    def parts(report: Any) -> Iterator[NetworkCoreset]:
        nonlocal row
        for row, rows in chunks(source, 0, READ_ROWS, drop_missing):
            counted = rows if rows.weight is None else rows[rows.weight > 0]
            if len(counted):
                target = counted.y[:, 0] if source.one_dimensional else counted.y
                yield NetworkCoreset.from_data(counted.x, target, depth, True, sample_weight=counted.weight)
            report(row)

    try:
        with progress.stage("coreset"), progress.stream(source.n_rows) as report:
            found = merged_tree(parts(report))
    except KeyboardInterrupt:
        raise StreamInterrupt(f"interrupted after {row:,} rows: none of them is kept") from None
    if found is None:
        raise StreamError("no row with positive weight is left")
    return found
