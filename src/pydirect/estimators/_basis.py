"""Base of estimators on basis functions: features, and predictions f* = φᵀw from posteriors of the weights."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_flag, as_float_array, as_generator, as_verbosity
from pydirect.direct.sequential import LEVEL_SCALES, as_own_levels
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.levels import LEVEL_SHAPES, as_level_count
from pydirect.distributions.priors import DensityPrior, SpikeAndSlabPrior, as_prior
from pydirect.estimators._findings import words_of_inputs
from pydirect.estimators._tables import TableModel
from pydirect.features.basis import Basis
from pydirect.features.content import content
from pydirect.features.evidence import TrainingRows, search_hyperparameters
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import (
    FourierFeatures,
    LinearFeatures,
    NystroemFeatures,
    PolynomialFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
    random_fourier_features,
)
from pydirect.features.missing_process import draw_missing
from pydirect.features.repeated import RowCounts
from pydirect.features.search_record import HyperparameterSearch
from pydirect.linear.decorrelated import LARGE_ROTATION, with_precision
from pydirect.linear.folded_variances import LatentVariances
from pydirect.linear.referee import Referee
from pydirect.linear.tilted import check_level_count
from pydirect.optimize.quadratic import OPTIMIZERS
from pydirect.persistence.fields import (
    Arrays,
    Header,
    Writer,
    build_one,
    require_array,
    require_number,
    require_positive,
)
from pydirect.quantized.budget.settings import SearchSettings
from pydirect.quantized.fitted import FittedBasisModel

# Predicted by one thread at a time: enough that BLAS packs the matrix of deviations rarely.
CHUNK_ROWS = 512
# Outputs from which a product of matrices is faster than sums one by one.
MANY_OUTPUTS = 4
POSTERIORS = ("sequential", "mean_field")
FEATURES = ("auto", "nystroem", "fourier", "linear", "polynomial", "precomputed")
# Parameters on which each kind of feature map depends.
TABLE_PARAMETERS = ("categories", "missing")
KERNEL_PARAMETERS = ("n_basis_functions", "rank_inputs", "length_scale", "max_hyperparameter_rows", "random_state")
FEATURE_PARAMETERS = {
    "nystroem": (*KERNEL_PARAMETERS, *TABLE_PARAMETERS),
    "fourier": (*KERNEL_PARAMETERS, *TABLE_PARAMETERS),
    "linear": TABLE_PARAMETERS,
    "polynomial": ("degree", *TABLE_PARAMETERS),
}


class BasisFunctionModel(TableModel):
    """Base of estimators whose latent functions are linear in basis functions of X.

    Parameters of the same names select features and basis (see `DirectRegressor`). A subclass sets ``features_`` to
    what `_fit_features` returns, and ``mean_missing_variance_``, ``posteriors_`` (one per function, weights in units of
    their prior standard deviation), ``prior_scale_`` (those deviations, (n_outputs,)) and ``coefficients_``
    ((n_weights, n_outputs)); `_set_coefficients` the latter two.
    """

    features: Any
    n_basis_functions: int
    degree: int
    basis: str
    posterior: str
    prior: Any
    n_levels: int
    levels: ArrayLike | str | None
    level_scales: str
    _level_scales: ClassVar[tuple[str, ...]] = LEVEL_SCALES
    n_draws: int
    rank_inputs: bool
    length_scale: float | ArrayLike | None
    optimizer: str
    max_hyperparameter_rows: int
    n_threads: int | None
    verbose: int
    prior_scale_: FloatArray
    coefficients_: FloatArray
    _variances: LatentVariances
    _function_weights: FloatArray  # of k(x, Z), or of Φ without landmarks, (n_outputs, n_weights)
    features_: Basis
    mean_missing_variance_: float
    _earlier: Basis | None = None  # whose hyperparameters are taken over where its inputs are the same

    # --- parameters

    def _check_basis_parameters(self) -> None:
        as_choice(self.basis, "basis", ("decorrelated", "raw"))
        if isinstance(self.features, str):
            as_choice(self.features, "features", FEATURES)
        elif not hasattr(self.features, "transform"):
            raise TypeError(f"features must be a name or a transformer, got {self.features!r}")
        as_count(self.n_basis_functions, "n_basis_functions", 2)
        as_level_count(self.n_levels)
        as_count(self.max_iter, "max_iter")
        as_count(self.max_hyperparameter_rows, "max_hyperparameter_rows", 2)
        as_choice(self.optimizer, "optimizer", OPTIMIZERS)
        as_flag(self.rank_inputs, "rank_inputs")
        self._check_table_parameters()
        as_verbosity(self.verbose)
        prior = as_prior(self.prior)
        if self.basis == "decorrelated" and not isinstance(prior, DensityPrior):
            raise ValueError("prior must have a density in the decorrelated basis; use basis='raw' for atoms")
        if isinstance(self.length_scale, str):
            raise TypeError(
                "length_scale must be None, which learns it from the rows, or positive numbers in units of X's "
                f"columns, got {self.length_scale!r}"
            )
        if self.basis == "decorrelated":
            check_level_count(self.n_levels, prior)
        if self.length_scale is not None and self._feature_kind() not in ("nystroem", "fourier"):
            raise ValueError("length_scale must be None unless features are 'nystroem' or 'fourier'")
        if self.basis == "decorrelated" and self.levels is not None:
            raise ValueError("levels must be None in the decorrelated basis, which chooses them; use basis='raw'")
        if isinstance(self.levels, str):
            as_choice(self.levels, "levels", tuple(LEVEL_SHAPES))
        as_choice(self.posterior, "posterior", POSTERIORS)
        as_choice(self.level_scales, "level_scales", self._level_scales)
        as_count(self.n_draws, "n_draws", 2)  # one has no variance

    def _takes_tables(self) -> bool:
        return self._feature_kind() not in ("precomputed", "transformer")

    def _is_sequential(self) -> bool:
        """Whether weights are drawn one after another."""
        return self.basis == "raw" and self.posterior == "sequential"

    def _check_sequential_parameters(self) -> None:
        if self.level_scales != "shared":
            as_own_levels(self._unit_levels(), self.n_levels)
            if not isinstance(as_prior(self.prior), DensityPrior | SpikeAndSlabPrior):
                raise ValueError("prior must have a density with level_scales='own'; use level_scales='shared'")

    def _unit_levels(self) -> Any:
        """Return the levels of the raw basis as they were given, or by name; None for evenly spaced ones."""
        return LEVEL_SHAPES[self.levels](self.n_levels) if isinstance(self.levels, str) else self.levels

    def _feature_kind(self) -> str:
        if not isinstance(self.features, str):
            return "transformer"
        if self.features != "auto":
            return self.features
        return "nystroem" if self.basis == "decorrelated" else "fourier"

    def _feature_parameters(self) -> dict[str, Any]:
        """Return the parameters that the feature map depends on, by name."""
        kind = self._feature_kind()
        given = self.get_params()
        own = {name: value for name, value in given.items() if name.startswith("features__")}
        used = {name: given[name] for name in FEATURE_PARAMETERS.get(kind, ())}
        if "length_scale" in used:  # a scalar is equivalent to equal values for all columns
            scales = np.asarray(self.length_scale)
            held = scales.ravel().tolist()
            used["length_scale"] = held[0] if held and held.count(held[0]) == len(held) else scales.tolist()
        return {"features": type(self.features) if kind == "transformer" else kind, **own, **used}

    def _changed_parameters(self, fixed: Mapping[str, Hashable]) -> list[str]:
        """Return the names of feature-map parameters that differ from a record of their content."""
        return [k for k, value in self._feature_parameters().items() if k in fixed and content(value) != fixed[k]]

    def _learns_kernel(self) -> bool:
        """Whether the kernel's hyperparameters are learned from the targets."""
        return self._feature_kind() in ("nystroem", "fourier") and self.length_scale is None

    # --- features

    def _fit_features(
        self, rows: TrainingRows, rng: np.random.Generator, n_threads: int, target_scale: FloatArray | None = None
    ) -> Basis:
        """Fit the basis that the parameters describe to rows.

        `target_scale`, (n_outputs,): standard deviations that the targets were divided by.
        """
        kind, X, weight = self._feature_kind(), rows.x, rows.weight
        record: dict[str, Any] = {
            "names": self._feature_names() or None,
            "columns": self.columns_,
            "parameters": {name: content(value) for name, value in self._feature_parameters().items()},
        }
        if kind in ("precomputed", "transformer"):
            if np.abs(X).max() > LARGEST:
                raise ValueError(
                    f"X must be at most {LARGEST:g} in magnitude for {kind} features, got {np.abs(X).max():g}"
                )
            given = PrecomputedFeatures(X.shape[1]) if kind == "precomputed" else self._fit_transformer(X)
            return Basis(InputMap.identity(X.shape[1]), given, **record)
        groups = self.columns_.groups
        # Every linear feature has variance one, as documented: there, rare categories drown nothing.
        together = None if kind == "linear" else groups
        input_map = InputMap.fit(X, weight, rank=self.rank_inputs and self._learns_kernel(), groups=together)
        d = input_map.n_outputs
        if kind == "linear" or d == 0:
            return Basis(input_map, LinearFeatures(d), **record)
        if kind == "polynomial":
            return Basis(input_map, PolynomialFeatures(d, self.degree), **record)
        inputs = input_map.transform(X)
        if self.length_scale is None:
            index, counts = rows.distinct
            tied = input_map.tied(groups)
            kernel, search = self._earlier_kernel(input_map) or self._learned_kernel(
                inputs[index], rows.y[index], counts, input_map.n_standardised, tied, rng, n_threads
            )
            record |= {"search": replace(search, columns=input_map.kept), "target_scale": target_scale}
        else:
            kernel = self._given_kernel(input_map)
        features: FourierFeatures | NystroemFeatures
        if kind == "fourier":
            features = random_fourier_features(kernel, max(1, self.n_basis_functions // 2), rng)
        else:
            features = NystroemFeatures.at(self._landmarks(inputs, rows, rng, self._first_size()), kernel)
        return Basis(input_map, features, kernel, **record)

    def _fit_transformer(self, X: FloatArray) -> TransformerFeatures:
        transformer = clone(self.features).fit(X)
        return TransformerFeatures(transformer, X.shape[1], transformer.transform(X[:1]).shape[1])

    def _given_kernel(self, input_map: InputMap) -> KernelHyperparameters:
        """Return the smooth kernel with the given length-scales."""
        d = self.n_features_in_
        length_scale = np.asarray(self.length_scale)
        if length_scale.ndim == 0:
            length_scale = np.full(d, length_scale)
        length_scale = as_float_array(length_scale, "length_scale", (d,))[self.columns_.origins]
        if (length_scale <= 0).any():
            raise ValueError(f"length_scale must be positive, got {length_scale.min()}")
        kept = input_map.kept
        relative = np.maximum(length_scale[kept] / input_map.scale[kept], 1e-40)  # distances stay finite
        return KernelHyperparameters(0.1, 1.0, relative, 0.0, 1.0, 0.3, input_map.n_standardised)

    def _earlier_kernel(self, input_map: InputMap) -> tuple[KernelHyperparameters, HyperparameterSearch] | None:
        """Return the kernel that is taken over, if there is one of the same inputs."""
        basis = self._earlier
        if basis is None or basis.hyperparameters is None or basis.search is None:
            return None
        if not basis.has_inputs_of(self.columns_, input_map):
            self._earlier = None
            return None
        return basis.hyperparameters, basis.search

    def _learned_kernel(
        self,
        inputs: FloatArray,
        y: FloatArray,
        weight: FloatArray,
        n_linear: int,
        tied: NDArray[np.intp],
        rng: np.random.Generator,
        n_threads: int,
    ) -> tuple[KernelHyperparameters, HyperparameterSearch]:
        """Return the kernel that maximises the marginal likelihood on subsets of distinct rows, and what was tried."""
        counted = RowCounts.of(inputs, y, weight).where_learned(weight)
        return search_hyperparameters(
            inputs,
            y,
            counted,
            n_linear,
            rng,
            max_rows=self.max_hyperparameter_rows,
            n_threads=n_threads,
            referee=Referee(inputs, y, counted, rng, n_threads),
            tied=tied,
        )

    def _first_size(self) -> int:
        """Return the number of landmarks that features are fitted with."""
        return self.n_basis_functions

    def _landmarks(self, inputs: FloatArray, rows: TrainingRows, rng: np.random.Generator, size: int) -> FloatArray:
        used = inputs if rows.is_plain else inputs[rows.distinct[0]]
        if len(used) <= max(4 * size, 4000):  # repeated landmarks add nothing
            used = np.unique(used, axis=0)
        if len(used) > size:
            used = used[np.sort(rng.choice(len(used), size, replace=False))]
        return np.ascontiguousarray(used)

    @property
    def search_(self) -> HyperparameterSearch | None:
        """Record of the search of the kernel's hyperparameters: what was tried; None if there was none."""
        check_is_fitted(self, "features_")
        return self.features_.search

    # --- results

    def _set_coefficients(self) -> None:
        scaled = zip(self.posteriors_, self.prior_scale_, strict=True)
        self.coefficients_ = np.stack([scale * posterior.coefficients for posterior, scale in scaled], axis=1)
        self._function_weights = np.ascontiguousarray(self.features_.weights_of_functions(self.coefficients_).T)

    def _set_results(self) -> None:
        self.posteriors_ = with_precision(self.posteriors_, np.float32, LARGE_ROTATION)
        self._variances = LatentVariances(
            self.features_, self.posteriors_, self.prior_scale_, self.mean_missing_variance_
        )
        super()._set_results()
        self.coef_ = self.coefficients_[:, 0] if self._one_dimensional else self.coefficients_.T

    def summary(self) -> str:
        """Describe the fitted model in words: basis, posterior, what was found in the columns, what was switched on.

        Gains are log densities in nats, by which alternatives were chosen.

        Returns
        -------
        str
            Several lines.
        """
        check_is_fitted(self)
        basis, rows = self.features_, f"{self.n_samples_:.6g} rows of {self.n_features_in_} columns"
        lines = [
            f"{type(self).__name__} on {basis.n_weights} {basis.map.kind} basis functions, fitted to {rows}: ELBO "
            f"{self.elbo_:.2f} nats."
        ]
        words = [p.summary() if isinstance(p, SequentialPosterior) else self._words_of(p) for p in self.posteriors_]
        if len(set(words)) == 1:
            lines.append(words[0])
        else:
            lines += [f"Output {k}: {own}" for k, own in enumerate(words)]
        return "\n".join(lines + words_of_inputs(basis, getattr(self, "columns_", None)))

    def _words_of(self, posterior: Any) -> str:
        rest = "at rest" if posterior.converged else "not at rest"
        zeros = f"{posterior.weights.expected_sparsity():.0%} of the weights are zero in a draw"
        return f"Inference was {rest} after {posterior.n_iter} iterations; {zeros}."

    # --- files

    def _to_fields(self, writer: Writer) -> Header:
        if isinstance(self.features_.map, TransformerFeatures):
            raise TypeError(
                "features must be built in to be saved without pickle, got a transformer: save a model of its output "
                "with features='precomputed', or pickle the whole model"
            )
        writer.arrays |= {
            "prior_scale": self.prior_scale_,
            "coefficients": self.coefficients_,
            "function_weights": self._function_weights,
        }
        return {
            **super()._to_fields(writer),
            "features": writer.fields(self.features_, "features"),
            "mean_missing_variance": self.mean_missing_variance_,
        }

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        self.features_ = build_one((Basis,), header["features"], arrays, "features")
        columns, names = self.features_.columns, getattr(self, "feature_names_in_", None)
        if columns is None or columns.n_columns != self.n_features_in_:
            raise ValueError("features do not take the columns")
        if columns.names not in (None, None if names is None else tuple(names)):
            raise ValueError("names of the columns differ")
        self.columns_ = columns
        n_weights, n_outputs = self.features_.n_weights, len(self.posteriors_)
        if self.features_.target_scale is not None:
            require_positive(self.features_.target_scale, "target_scale", n_outputs)
        missing = require_number(header["mean_missing_variance"], "mean_missing_variance", at_least=0.0)
        self.mean_missing_variance_ = missing
        self.prior_scale_, self.coefficients_ = arrays["prior_scale"], arrays["coefficients"]
        require_positive(self.prior_scale_, "prior_scale", n_outputs)
        require_array(self.coefficients_, "coefficients", n_weights, n_outputs)
        self._function_weights = arrays["function_weights"]
        require_array(self._function_weights, "function_weights", n_outputs, n_weights)
        if len({type(posterior) for posterior in self.posteriors_}) != 1:
            raise ValueError("posteriors must be of one kind")
        for posterior in self.posteriors_:
            posterior.check(n_weights)

    # --- prediction

    def _n_columns(self) -> int:
        return self.features_.n_weights

    def _features_of(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the inputs of the feature map and Φ, for rows of X."""
        inputs = self.features_.inputs(rows)
        phi = self.features_.map.transform(inputs, np.float64, resolve_n_threads(self.n_threads))
        return inputs, np.ascontiguousarray(phi)

    def _missing_variance(self, inputs: FloatArray, phi: FloatArray) -> FloatArray | None:
        """Return the variance of f that the basis functions miss, (n_rows, n_outputs); see `Basis`."""
        missing = self.features_.missing_variance(inputs, phi, self.mean_missing_variance_)
        return None if missing is None else missing[:, None] * self.prior_scale_**2

    def _latent_moments(self, x: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        with single_blas_thread():  # the same bits for any number of threads
            return self._latent(x, with_variance)  # in chunks of its own

    def _latent(self, rows: FloatArray, with_variance: bool) -> tuple[FloatArray, FloatArray | None]:
        mean, variance = np.empty((2, len(rows), len(self.posteriors_)))
        if isinstance(self.features_.map, TransformerFeatures):  # which might not be used by several threads
            n_threads, size = 1, max(len(rows), 1)
        else:
            n_threads, size = resolve_n_threads(self.n_threads), CHUNK_ROWS
            if with_variance:
                self._variances.prepare()

        def predict(chunk: slice) -> None:
            basis = self.features_
            inputs = basis.inputs(rows[chunk])
            functions = basis.functions(inputs)
            # In double precision: where landmarks are close, large terms cancel.
            if len(self._function_weights) < MANY_OUTPUTS:
                np.einsum("ij,kj->ik", functions, self._function_weights, out=mean[chunk])
            else:
                np.matmul(functions, self._function_weights.T, out=mean[chunk])
            if with_variance:
                variance[chunk] = self._variances.of(inputs, functions)

        chunks = [slice(begin, begin + size) for begin in range(0, len(rows), size)]
        for _ in ordered_map(predict, iter(chunks), min(n_threads, max(len(chunks), 1))):
            pass
        return mean, variance if with_variance else None

    def quantizable(self) -> FittedBasisModel:
        """Return the fitted model in the form that `pydirect.quantize` accepts.

        Returns
        -------
        FittedBasisModel
            What `pydirect.quantize` takes.
        """
        check_is_fitted(self)
        return FittedBasisModel(
            self.features_, self.posteriors_, self.prior_scale_, self.mean_missing_variance_, self._outputs()
        )

    def search_settings(self) -> SearchSettings:
        """Return the parameters that `pydirect.fit_quantized` uses.

        Returns
        -------
        SearchSettings
            The parameters.
        """
        state = self.random_state
        rng = as_generator(0 if hasattr(state, "randint") else state)
        return SearchSettings(self.max_hyperparameter_rows, resolve_n_threads(self.n_threads), rng)

    def _sampler(self, n_samples: int, rng: np.random.Generator) -> Any:
        scaled = zip(self.posteriors_, self.prior_scale_, strict=True)
        weights = [scale * posterior.sample_weights(n_samples, rng) for posterior, scale in scaled]

        def draw(rows: FloatArray) -> FloatArray:
            _, phi = self._features_of(rows)
            return np.stack([phi @ w.T for w in weights], axis=1)

        return draw

    def _draw_latent(self, x: FloatArray, n_samples: int, rng: np.random.Generator) -> FloatArray:
        values = super()._draw_latent(x, n_samples, rng)
        inputs, n_threads = self.features_.inputs(x), resolve_n_threads(self.n_threads)
        n_draws = len(self.prior_scale_) * n_samples
        with single_blas_thread():
            missing = draw_missing(self.features_, inputs, self.mean_missing_variance_, n_draws, rng, n_threads)
        if missing is not None:
            values += self.prior_scale_[:, None] * missing.reshape(values.shape)
        return values
