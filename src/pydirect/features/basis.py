"""`Basis`: a fitted feature map, everything between rows of X and basis functions Φ in one object."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pydirect._dense import product, squared_norms
from pydirect._validation import FloatArray
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import Kernel, KernelHyperparameters
from pydirect.features.maps import MANY_ROWS, AnyMap, Block
from pydirect.features.search_record import HyperparameterSearch
from pydirect.persistence.schema import AtMost, Binds, Positive, Shape
from pydirect.predictive.transformed import TargetTransform
from pydirect.statistics.gaussian import fingerprint
from pydirect.tables.encoding import ColumnEncoding

# Noise variance, of standardised targets, for which sums of a kernel with given length-scales are accurate.
LEAST_NOISE = 1e-3


@dataclass(frozen=True, eq=False)
class Basis:
    """Basis functions of rows of X: standardisation of the columns, then a feature map; all that a worker needs for Φ.

    Two bases are equal if they map rows in the same way: the kernel, its search, the scale of the targets, the names
    and the content of the estimator's parameters are not compared. `target_transform` is what sums over rows do to the
    targets first, `columns` the encoder of the tables whose encoded rows are X here.
    """

    input_map: Annotated[InputMap, Binds(n_features_in="n_features_in", n_inputs="n_outputs")]
    map: AnyMap
    hyperparameters: KernelHyperparameters | None = field(default=None, compare=False)
    search: HyperparameterSearch | None = field(default=None, compare=False)
    target_scale: Annotated[FloatArray, Shape("n_outputs"), Positive] | None = field(default=None, compare=False)
    names: Annotated[tuple[str, ...], Shape("n_features_in")] | None = field(default=None, compare=False)
    parameters: Mapping[str, Hashable] = field(default_factory=dict, compare=False)
    reach: Annotated[float, Positive, AtMost(LARGEST)] = LARGEST
    target_transform: TargetTransform | None = None
    columns: Annotated[ColumnEncoding, Binds(n_features_in="n_encoded")] | None = None

    def __repr__(self) -> str:
        kind = type(self.map).__name__
        return f"<Basis of {kind}: {self.n_weights} functions of {self.n_features_in} columns>"

    @property
    def n_features_in(self) -> int:
        """Number of columns of X."""
        return len(self.input_map.mean)

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.map.n_weights

    @property
    def kernel(self) -> Kernel | None:
        """Kernel that the basis functions approximate; None where they are all there is."""
        return self.map.residual_kernel if self.hyperparameters is None else self.hyperparameters

    @property
    def largest_input(self) -> float:
        """Magnitude to which inputs of the map are clipped, so that nothing overflows."""
        return min(self.reach, self.map.largest_input)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the content, identical in every process."""
        return fingerprint(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Basis) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def kernel_for(
        self, columns: ColumnEncoding, input_map: InputMap
    ) -> tuple[KernelHyperparameters, HyperparameterSearch] | None:
        """Return the kernel that was found, if these inputs are the same up to their scales, so that it fits them."""
        own, kernel, search = self.input_map, self.hyperparameters, self.search
        if kernel is None or search is None or self.columns is None or self.columns.names_out != columns.names_out:
            return None
        same = np.array_equal(own.kept, input_map.kept) and np.array_equal(own.scored, input_map.scored)
        return (kernel, search) if same else None

    # --- rows

    def inputs(self, x: ArrayLike) -> FloatArray:
        """Return the inputs of the map, (n_rows, n_inputs)."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.n_features_in:
            raise ValueError(f"X must have shape (n_rows, {self.n_features_in}), got {x.shape}")
        inputs = self.input_map.transform(x)
        if self.largest_input < LARGEST:  # the input map itself clips to this
            np.clip(inputs, -self.largest_input, self.largest_input, out=inputs)
        return inputs

    def transform(self, x: ArrayLike, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ of shape (n_rows, n_weights)."""
        return self.map.transform(self.inputs(x), dtype, n_threads)

    @property
    def sums_of_kernel(self) -> bool:
        """Whether sums over rows are of k(x, Z) instead of Φ; see `NystroemFeatures`."""
        return self.map.sums_of_kernel

    @property
    def factor(self) -> FloatArray:
        """L, lower triangular, with Φ = k(x, Z) L⁻ᵀ, of landmarks Z."""
        return self.map.factor

    def summands(self, x: ArrayLike, n_threads: int = 1) -> FloatArray:
        """Return what sums over rows of X are of where `sums_of_kernel`: k(x, Z) (n_rows, n_weights)."""
        return self.functions(self.inputs(x), n_threads)

    def for_sums(self, n_rows: float, noise_variance: float | None = None) -> Basis:
        """Return the same basis, whose sums over rows are of k(x, Z) if that is accurate enough, else of Φ.

        `noise_variance`: by default that of the kernel's hyperparameters.
        """
        chosen = self.map.for_sums(n_rows, noise_variance)
        return self if chosen is self.map else replace(self, map=chosen)

    def for_one_pass(self) -> Basis:
        """Return the same basis for rows that are read once: of a kernel that was given nobody knows the noise."""
        return self if self.search is not None else self.for_sums(MANY_ROWS, LEAST_NOISE)

    def functions(self, inputs: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return k(x, Z) at inputs of the map if there are landmarks Z, else Φ; (n_rows, n_weights)."""
        return self.map.functions(inputs, n_threads)

    def whitened(self, functions: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return Φ from `functions`, whose memory it takes."""
        return self.map.whiten(functions, n_threads)

    def weights_of_functions(self, matrix: FloatArray) -> FloatArray:
        """Return B (n_weights, n_columns) with `functions` @ B = Φ @ matrix."""
        return self.map.weights_of_functions(matrix)

    def projection(self, matrix: FloatArray) -> Callable[[FloatArray, int], FloatArray]:
        """Return the function from inputs of the map and a number of threads to Φ @ matrix (n_rows, n_columns)."""
        weights = self.weights_of_functions(matrix)
        return lambda inputs, n_threads: product(self.functions(inputs, n_threads), weights, n_threads)

    def prior_variance(self, x: FloatArray) -> FloatArray:
        """Return Var f(x) (n_rows,) under the kernel's prior if landmarks approximate the kernel, else zeros.

        `RunningStatistics` ask for it, by its name.
        """
        kernel = self.map.residual_kernel
        return np.zeros(len(x)) if kernel is None else kernel.diagonal(self.inputs(x))

    def mean_missing_variance(self, inputs: FloatArray, weight: FloatArray | None, mean_square: float) -> float:
        """Return the residual variance averaged over training rows, each counting `weight` times.

        `mean_square`: the weighted mean of ‖Φ(x)‖² over the rows.
        """
        kernel = self.map.residual_kernel
        if kernel is None:
            return 0.0
        return float(max(np.average(kernel.diagonal(inputs), weights=weight) - mean_square, 0.0))

    def missing_variance(self, inputs: FloatArray, phi: FloatArray, mean_missing: float) -> FloatArray:
        """Return the prior variance (n_rows,) of f that the basis functions leave out; zeros if there is no kernel.

        That of the linear part beyond the point where it is clipped and, with landmarks, the residual variance above
        its average `mean_missing` over training rows, which is part of the inferred noise.
        """
        if self.kernel is None:
            return np.zeros(len(inputs))
        missing = squared_norms(self.kernel.beyond(inputs))
        return missing + np.maximum(self.map.residual_variance(inputs, phi) - mean_missing, 0.0)
