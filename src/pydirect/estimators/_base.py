"""What estimators share when they predict: moments of latent functions, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pydirect import __version__
from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, shown
from pydirect._warnings import warn
from pydirect.direct.sequential import is_coarse, warn_of_coarse_levels
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.estimators._parameters import as_json
from pydirect.features.columns import Columns
from pydirect.persistence.container import write
from pydirect.persistence.fields import Arrays, Header, Writer, build_one, require_number, require_type
from pydirect.quantized.fitted import FittedBasisModel, FittedNetwork, Outputs
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.quantize import quantize
from pydirect.streams.tables import explain_numbers

# Rows of Φ held at a time while predicting.
PREDICT_BYTES = 32 * 2**20


def fit_each(columns: Iterable[Any], progress: Progress, fit: Callable[[Any, bool], Any]) -> list[Any]:
    """Fit a posterior per output; after an interruption, the remaining ones in as little time as possible.

    Parameters
    ----------
    columns : iterable
        What is passed to `fit` for each output.
    progress : Progress
    fit : callable
        From a column, and whether an earlier fit was interrupted, to a posterior.
    """
    posteriors: list[Any] = []
    for column in columns:
        interrupted = any(p.interrupted for p in posteriors)
        with progress.stage("training"):
            posteriors.append(fit(column, interrupted))
    return posteriors


class LatentFunctions(BaseEstimator):
    """Base of estimators that predict moments of latent functions f*, block by block.

    A subclass provides ``_n_columns`` (width of a row while predicting), ``_latent(rows, with_variance)`` (mean and
    variance of f*, (n_rows, n_outputs) each), ``_sampler`` (draws of f*), ``_posterior_types`` (classes of its
    posteriors), ``_to_fields`` and ``_from_fields`` (contents of its files) and a ``fit`` that begins with `_forget`,
    sets ``posteriors_`` (one per function), ``n_samples_`` and ``_one_dimensional`` (whether there is no axis of
    outputs), and ends with `_set_results` and `_warn_if_unfinished`.
    """

    _posterior_types: ClassVar[tuple[type, ...]]
    max_iter: int
    n_threads: int | None
    random_state: Any
    posteriors_: list[Any]
    n_samples_: float
    fit_seconds_: dict[str, float]
    metadata_: dict[str, Any]
    n_features_in_: int
    _one_dimensional: bool

    def _check_parameters(self) -> None:
        """Raise unless all parameters have their types and ranges."""
        raise NotImplementedError

    def _generator(self) -> np.random.Generator:
        try:
            state = check_random_state(self.random_state)
        except ValueError:
            message = f"an integer from 0 to 2**32 - 1, a RandomState or None, got {shown(self.random_state)}"
            raise ValueError(f"random_state must be {message}") from None
        return np.random.default_rng(state.randint(2**31))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():  # of fitted models scikit-learn collects tags, as long as some predict
            check_is_fitted(self)

    def _forget(self) -> None:
        """Until `_set_results` there is no model, old or new."""
        for name in ("posterior_", "metadata_"):
            self.__dict__.pop(name, None)

    def _elbo_units(self) -> FloatArray:
        """Return what the ELBOs lose in the data's own units, one per function."""
        return np.zeros(len(self.posteriors_))

    def _set_results(self) -> None:
        """Set the public attributes from the posteriors."""
        posteriors = self.posteriors_
        single = self._one_dimensional
        units = self._elbo_units()
        self.posterior_ = posteriors[0] if single else posteriors
        self.elbo_ = float(sum(p.elbo for p in posteriors) - units.sum())
        traces = [p.elbo_trace - u for p, u in zip(posteriors, units, strict=True)]
        self.elbo_trace_ = traces[0] if single else traces
        self.n_iter_ = max(p.n_iter for p in posteriors)
        self.converged_ = all(p.converged for p in posteriors)
        self.interrupted_ = any(p.interrupted for p in posteriors)
        self.sparsity_ = self._expected_sparsity()

    def _expected_sparsity(self) -> float:
        """Return the expected fraction of weights that are exactly zero."""
        return float(np.mean([p.weights.expected_sparsity() if p.q.size else 0.0 for p in self.posteriors_]))

    def _warn_if_unfinished(self, stacklevel: int = 3) -> None:
        if not self.converged_:
            limit = self._limit()
            given = getattr(self, limit) if limit else None
            remedy = f" (raise {limit}{'' if given is None else f', now {given}'})" if limit else ""
            reason = "interrupted" if self.interrupted_ else f"not at rest after {self._effort()}{remedy}"
            text = f"the fit is {reason}; the best posterior found is kept"
            warn(text, ConvergenceWarning, stacklevel=stacklevel)
        for posterior in self.posteriors_:
            if isinstance(posterior, SequentialPosterior) and is_coarse(posterior):
                warn_of_coarse_levels(posterior, stacklevel + 1)

    def _limit(self) -> str:
        """Name the parameter that ended the last stage of a fit, if one did."""
        return "max_iter"

    def _effort(self) -> str:
        """Say how long a fit went on."""
        return f"{self.n_iter_} iterations"

    def _shape(self, values: FloatArray) -> FloatArray:
        """Drop the axis of outputs when there is none."""
        return values[:, 0] if self._one_dimensional else values

    def _n_columns(self) -> int:
        raise NotImplementedError

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        raise NotImplementedError

    def _sampler(self, n_samples: int, rng: np.random.Generator) -> Any:
        """Return a function from rows to draws of f*, (n_rows, n_outputs, n_samples)."""
        raise NotImplementedError

    def _draw_latent(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """Draw f* jointly at the rows of x, (n_rows, n_outputs, n_samples); block by block."""
        values = np.empty((len(x), len(self.posteriors_), n_samples))
        with single_blas_thread():
            draw = self._sampler(n_samples, rng)
            for rows in self._blocks(x):
                values[rows] = draw(x[rows])
        return values

    def _blocks(self, x: FloatArray, n_columns: int | None = None) -> Iterator[slice]:
        """Yield blocks of rows of bounded memory, given the number of floats per row: by default `_n_columns`."""
        size = max(16, PREDICT_BYTES // (8 * max(self._n_columns() if n_columns is None else n_columns, 1)))
        for begin in range(0, len(x), size):
            yield slice(begin, min(begin + size, len(x)))

    def _validated(self, X: Any, *y: Any, reset: bool = True, **checks: Any) -> Any:
        """Return X, and y if it is given, as scikit-learn validates them: numbers only."""
        try:
            return validate_data(self, X, *y, reset=reset, dtype=np.float64, **checks)
        except (TypeError, ValueError) as error:
            raise explain_numbers(X, error) from None

    def _fit_columns(
        self, x: Any, standardised: FloatArray | None, weight: FloatArray | None, columns: Columns | None = None
    ) -> FloatArray:
        """Return validated rows in the form that `fit` works on."""
        # Sums over rows of a frame or a Fortran-ordered array round otherwise.
        return np.ascontiguousarray(x)

    def _encoded(self, x: Any) -> FloatArray:
        """Return validated rows as `_fit_columns` returned those of the fit."""
        return np.ascontiguousarray(x)

    def _n_encoded(self) -> int:
        """Return the number of columns of encoded rows."""
        return self.n_features_in_

    def _check_rows(self, X: ArrayLike) -> FloatArray:
        self._require_fitted()
        values = self._valid_matrix(X)
        return self._encoded(self._validated(X, reset=False) if values is None else values)

    def _valid_matrix(self, X: Any) -> FloatArray | None:
        """Return what validation would make of X if it is a finite matrix, or a frame of such columns named as in fit.

        Else None. To see this takes a tenth of the time.
        """
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            if not hasattr(X, "to_numpy") or [*getattr(X, "columns", ())] != names.tolist():
                return None
            X = X.to_numpy() if all(str(dtype).lower() == "float64" for dtype in X.dtypes) else None
        if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2:
            return None
        return X if X.shape[1] == self.n_features_in_ and X.size > 0 and np.isfinite(X).all() else None

    def _latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        """Mean and variance of f*, (n_rows, n_outputs) each; block by block."""
        mean = np.empty((len(x), len(self.posteriors_)))
        variance = np.empty_like(mean) if with_variance else None
        with single_blas_thread():  # the same bits for any number of threads
            for rows in self._blocks(x):
                mean[rows], block_variance = self._latent(x[rows], with_variance)
                if variance is not None:
                    variance[rows] = block_variance
        return mean, variance

    def _outputs(self) -> Outputs:
        """Return the units of the outputs and the names of the inputs."""
        raise NotImplementedError

    def _feature_names(self) -> tuple[str, ...]:
        """Return the names of the columns of encoded rows; none for arrays."""
        return tuple(map(str, getattr(self, "feature_names_in_", ())))

    def quantizable(self) -> FittedBasisModel | FittedNetwork:
        """Return the fitted model as data that `pydirect.quantize` takes."""
        raise TypeError(
            "model must be an estimator of discrete weights (DirectRegressor, DirectClassifier or "
            f"QuadraticBNNRegressor), got {type(self).__name__}, whose weights have no levels"
        )

    def quantize(self, n_samples: int = 16, method: str = "moments", **options: Any) -> QuantizedPredictor:
        """Return a few posterior samples as packed integers, which predict by themselves; see `pydirect.quantize`.

        Parameters
        ----------
        n_samples : int, default=16
            Number of posterior samples.
        method : str, default="moments"
            How the samples are found.
        **options : dict
            Further arguments of `pydirect.quantize`.

        Returns
        -------
        QuantizedPredictor
            The quantised model.
        """
        return quantize(self, n_samples, method, **options)

    def save(self, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file: arrays and a versioned header, no pickle.

        Parameters
        ----------
        path : str or Path
            Written to a temporary name and renamed.
        metadata : dict, optional
            JSON-able; comes back as ``metadata_``, which is written again by default.

        Raises
        ------
        TypeError
            When features are a transformer, or a parameter is an object that a header cannot hold.
        """
        check_is_fitted(self)
        if not type(self).__module__.startswith("pydirect."):
            raise TypeError(f"{type(self).__name__} is not an estimator of pydirect's own: pickle it instead")
        writer = Writer()
        header = {
            **self._to_fields(writer),  # first: it says which features cannot be saved
            "library": __version__,
            "parameters": {k: as_json(k, v) for k, v in self.get_params(deep=False).items()},
            "metadata": getattr(self, "metadata_", {}) if metadata is None else metadata,
        }
        write(path, f"pydirect.{type(self).__name__}", header, writer.arrays)

    def _to_fields(self, writer: Writer) -> Header:
        """Return the header of a file and collect its arrays; a subclass adds its own fitted attributes."""
        return {
            **self._shape_fields(),
            "n_samples": self.n_samples_,
            "fit_seconds": self.fit_seconds_,
            "posteriors": [writer.fields(p, f"posterior{k}") for k, p in enumerate(self.posteriors_)],
        }

    def _shape_fields(self) -> Header:
        """Return what a file says of X and y, whatever the estimator."""
        return {
            "one_dimensional": self._one_dimensional,
            "n_features_in": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
        }

    def _from_shape_fields(self, header: Header) -> None:
        """Check the parameters, and set what `_shape_fields` wrote and the metadata."""
        self._check_parameters()
        resolve_n_threads(self.n_threads)
        self.metadata_ = header["metadata"]
        require_type(self.metadata_, "metadata", dict)
        d = self.n_features_in_ = as_count(header["n_features_in"], "n_features_in")
        names = header["feature_names"]
        require_type(names, "feature_names", list)
        if len(names) not in (0, d) or not all(isinstance(n, str) for n in names):
            raise ValueError(f"feature_names must be {d} strings or none")
        self._set_input_names(d, names or None)
        self._one_dimensional = header["one_dimensional"]
        require_type(self._one_dimensional, "one_dimensional", bool)

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        """Set what `_to_fields` wrote; raise unless it has its types and shapes and fits together."""
        self._from_shape_fields(header)
        self.fit_seconds_ = header["fit_seconds"]
        require_type(self.fit_seconds_, "fit_seconds", dict)
        self.n_samples_ = require_number(header["n_samples"], "n_samples", above=0.0)
        require_type(header["posteriors"], "posteriors", list)
        self.posteriors_ = [
            build_one(self._posterior_types, h, arrays, f"posterior{k}") for k, h in enumerate(header["posteriors"])
        ]
        n_outputs = len(self.posteriors_)
        if n_outputs != 1 and (n_outputs == 0 or self._one_dimensional):
            raise ValueError("posteriors do not fit the outputs")

    def _set_input_names(self, n_features_in: int, names: list[str] | None) -> None:
        """Set the number of columns of X, and their names if they have any."""
        self.n_features_in_ = n_features_in
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
