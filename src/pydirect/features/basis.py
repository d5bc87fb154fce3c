"""`Basis`: a fitted feature map, everything between rows of X and basis functions Φ in one object."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, short_repr
from pydirect.features.columns import Columns
from pydirect.features.content import SCALARS, content
from pydirect.features.inputs import LARGEST, InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import Block, FeatureMap, NystroemFeatures, PolynomialFeatures
from pydirect.features.search_record import HyperparameterSearch
from pydirect.persistence.fields import Arrays, Header, build, build_one, require_number, require_positive, require_type
from pydirect.predictive.transforms import TargetTransform
from pydirect.statistics.fingerprint import fingerprint


@dataclass(frozen=True, eq=False)
class Basis:
    """Basis functions of rows of X: standardisation of the columns, then a feature map.

    Frozen, picklable, and all that a worker needs to compute Φ. Two bases are equal if they map rows in the same way,
    that is, if their fields have the same content; the kernel, its search, the scale of the targets, the names and
    the parameters are not compared.

    Parameters
    ----------
    input_map : InputMap
        From columns of X to the map's inputs.
    map : FeatureMap
        From inputs to Φ.
    hyperparameters : KernelHyperparameters, optional
        Hyperparameters of the kernel that the map approximates; None if there is no kernel.
    search : HyperparameterSearch, optional
        Record of the search of the hyperparameters; None if they were given.
    target_scale : ndarray of shape (n_outputs,), optional
        Standard deviations of the targets, in whose units the hyperparameters were learned.
    names : tuple of str, optional
        Names of the columns of X, compared with those of later rows that have names.
    parameters : dict, optional
        Content of the estimator's parameters that the map depends on, as of when it was fitted; see
        `pydirect.features.content.content`.
    reach : float, default=1e50
        Largest magnitude of the map's inputs, which are clipped to it.
    target_transform : TargetTransform, optional
        What sums over rows do to the targets first. It is kept here because it is fixed together with the features.
    columns : Columns, optional
        Encoder of the tables whose encoded rows are X here.
    """

    input_map: InputMap
    map: FeatureMap
    hyperparameters: KernelHyperparameters | None = field(default=None, compare=False)
    search: HyperparameterSearch | None = field(default=None, compare=False)
    target_scale: FloatArray | None = field(default=None, compare=False)
    names: tuple[str, ...] | None = field(default=None, compare=False)
    parameters: Mapping[str, Hashable] = field(default_factory=dict, compare=False)
    reach: float = LARGEST
    target_transform: TargetTransform | None = None
    columns: Columns | None = None

    __repr__ = short_repr

    @property
    def n_features_in(self) -> int:
        """Number of columns of X."""
        return len(self.input_map.mean)

    @property
    def n_weights(self) -> int:
        """Number of basis functions."""
        return self.map.n_weights

    @property
    def largest_input(self) -> float:
        """Magnitude to which inputs of the map are clipped, so that nothing overflows."""
        return min(self.reach, self.map.largest_input) if isinstance(self.map, PolynomialFeatures) else self.reach

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the content, identical in every process."""
        return fingerprint(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Basis) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def has_inputs_of(self, columns: Columns, input_map: InputMap) -> bool:
        """Whether the map takes the same inputs, up to their scales, so that its hyperparameters fit them too.

        Parameters
        ----------
        columns : Columns
            Encoder of a table.
        input_map : InputMap
            Standardisation of its columns.

        Returns
        -------
        bool
            Whether it does.
        """
        own = self.input_map
        return (
            self.columns is not None
            and self.columns.names_out == columns.names_out
            and np.array_equal(own.kept, input_map.kept)
            and np.array_equal(own.scored, input_map.scored)
        )

    # --- rows

    def inputs(self, x: ArrayLike) -> FloatArray:
        """Return the inputs of the map, (n_rows, n_inputs).

        Parameters
        ----------
        x : array_like of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows, n_inputs)
            Inputs of the map.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.n_features_in:
            raise ValueError(f"X must have shape (n_rows, {self.n_features_in}), got {x.shape}")
        inputs = self.input_map.transform(x)
        if self.largest_input < LARGEST:  # the input map itself clips to this
            np.clip(inputs, -self.largest_input, self.largest_input, out=inputs)
        return inputs

    def transform(self, x: ArrayLike, dtype: DTypeLike = np.float64, n_threads: int = 1) -> Block:
        """Return Φ of shape (n_rows, n_weights).

        Parameters
        ----------
        x : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        dtype : {float64, float32}, default=np.float64
            Type of Φ.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        return self.map.transform(self.inputs(x), dtype, n_threads)

    @property
    def sums_of_kernel(self) -> bool:
        """Whether sums over rows are of k(x, Z) instead of Φ; see `NystroemFeatures`."""
        return getattr(self.map, "sums_of_kernel", False)

    @property
    def whitening(self) -> FloatArray:
        """W with Φ = k(x, Z) W, of landmarks Z."""
        assert isinstance(self.map, NystroemFeatures)
        return self.map.whitening

    def kernel_functions(self, x: ArrayLike, n_threads: int = 1) -> FloatArray:
        """Return k(x, Z), (n_rows, n_weights), of landmarks Z.

        Parameters
        ----------
        x : array_like of shape (n_rows, n_features_in)
            Rows of inputs.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_landmarks)
            Kernel functions.
        """
        return self.functions(self.inputs(x), n_threads)

    def for_sums(self, n_rows: float, noise_variance: float | None = None) -> Basis:
        """Return the same basis, whose sums over rows are of k(x, Z) if that is accurate enough, else of Φ.

        `noise_variance`: by default that of the kernel's hyperparameters.

        Parameters
        ----------
        n_rows : float
            Number of rows that sums will be over.
        noise_variance : float, optional
            By default that of the kernel's hyperparameters.

        Returns
        -------
        Basis
            The basis.
        """
        if not isinstance(self.map, NystroemFeatures):
            return self
        noise = self.map.hyperparameters.noise_variance if noise_variance is None else noise_variance
        return replace(self, map=self.map.for_sums(n_rows, noise))

    def functions(self, inputs: FloatArray, n_threads: int = 1) -> FloatArray:
        """Return k(x, Z) at inputs of the map if there are landmarks Z, else Φ, (n_rows, n_weights).

        Parameters
        ----------
        inputs : ndarray of shape (n_rows, n_inputs)
            Inputs of the map.
        n_threads : int, default=1
            Number of threads; results have the same bits for any.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Functions.
        """
        if isinstance(self.map, NystroemFeatures):
            return self.map.kernel_functions(inputs, n_threads)
        return np.asarray(self.map.transform(inputs, np.float64, n_threads))

    def whitened(self, functions: FloatArray) -> FloatArray:
        """Return Φ from `functions`, whose memory it takes.

        Parameters
        ----------
        functions : ndarray of shape (n_rows, n_weights)
            What `functions` has returned; overwritten.

        Returns
        -------
        ndarray of shape (n_rows, n_weights)
            Φ.
        """
        return self.map.whitened(functions) if isinstance(self.map, NystroemFeatures) else functions

    def weights_of_functions(self, matrix: FloatArray) -> FloatArray:
        """Return B with `functions` @ B = Φ @ matrix, (n_weights, n_columns): sums of k(x, Z) need no whitening.

        With landmarks Φ M = k(x, Z) (L⁻ᵀM).

        Parameters
        ----------
        matrix : ndarray of shape (n_weights, n_columns)
            Matrix whose product with Φ is wanted.

        Returns
        -------
        ndarray of shape (n_weights, n_columns)
            B.
        """
        if not isinstance(self.map, NystroemFeatures):
            return matrix
        with single_blas_thread():
            return np.asarray(self.map.whitening @ matrix)

    def projection(self, matrix: FloatArray) -> Callable[[FloatArray, int], FloatArray]:
        """Return the function from inputs of the map and a number of threads to Φ @ matrix, (n_rows, n_columns).

        Parameters
        ----------
        matrix : ndarray of shape (n_weights, n_columns)
            Matrix whose product with Φ is wanted.

        Returns
        -------
        callable
            From inputs (n_rows, n_inputs) and a number of threads to an array (n_rows, n_columns).
        """
        weights = self.weights_of_functions(matrix)
        return lambda inputs, n_threads: self.functions(inputs, n_threads) @ weights

    def prior_variance(self, x: FloatArray) -> FloatArray:
        """Return Var f(x) under the kernel's prior if landmarks approximate the kernel, else zeros; (n_rows,).

        Parameters
        ----------
        x : ndarray of shape (n_rows, n_features_in)
            Rows of inputs.

        Returns
        -------
        ndarray of shape (n_rows,)
            Variances.
        """
        if not isinstance(self.map, NystroemFeatures):
            return np.zeros(len(x))
        return self.map.hyperparameters.diagonal(self.inputs(x))

    def mean_missing_variance(self, inputs: FloatArray, weight: FloatArray | None, mean_square: float) -> float:
        """Return the prior variance of f that the landmarks miss, averaged over the training rows.

        Parameters
        ----------
        inputs : ndarray of shape (n_rows, n_inputs)
            Of the map.
        weight : ndarray of shape (n_rows,) or None
            How many times each row counts; by default once.
        mean_square : float
            Weighted mean of ‖Φ(x)‖² over the rows.

        Returns
        -------
        float
            The variance.
        """
        if not isinstance(self.map, NystroemFeatures):
            return 0.0
        prior = np.average(self.map.hyperparameters.diagonal(inputs), weights=weight)
        return float(max(prior - mean_square, 0.0))

    def missing_variance(self, inputs: FloatArray, phi: FloatArray, mean_missing: float) -> FloatArray | None:
        """Return the prior variance of f that the basis functions miss, (n_rows,); None if there is no kernel.

        This is the variance of the linear part beyond the point where it is clipped and, with landmarks, that of the
        process between them, as far as the inferred noise does not account for it.

        Parameters
        ----------
        inputs : ndarray of shape (n_rows, n_inputs)
            Of the map.
        phi : ndarray of shape (n_rows, n_weights)
            Φ at these inputs.
        mean_missing : float
            From `mean_missing_variance`: the average over the training rows, which is part of the noise.

        Returns
        -------
        ndarray of shape (n_rows,) or None
            Variances.
        """
        if self.hyperparameters is None:
            return None
        missing = self.hyperparameters.cut_off_variance(inputs)
        if isinstance(self.map, NystroemFeatures):
            missing = missing + np.maximum(self.map.missing_variance(inputs, phi) - mean_missing, 0.0)
        return missing

    # --- files

    @classmethod
    def from_fields(cls, header: Header, arrays: Arrays, name: str) -> Self:
        """Rebuild from the fields written by `pydirect.persistence.fields.Writer.fields`, and check the result.

        Parameters
        ----------
        header : dict
            Header of the file.
        arrays : dict of str to ndarray
            Arrays of the file, by name.
        name : str
            Name under which the fields were written.

        Raises
        ------
        ValueError, TypeError
            If parts do not fit together or a number is out of range.
        """
        m = build_one((InputMap,), header["input_map"], arrays, f"{name}.input_map")
        if header["map"].get("n_features_in", m.n_outputs) != m.n_outputs:  # before anything of this size is allocated
            raise ValueError("features do not take the inputs")
        require_type(header["parameters"], "parameters", dict)
        for value in header["parameters"].values():
            for item in value if isinstance(value, list) else [value]:
                require_type(item, "parameters", *SCALARS)
        parameters = {key: content(value) for key, value in header["parameters"].items()}
        names = header["names"]
        if names is not None:
            require_type(names, "names", list)
            names = tuple(names)
        basis: Self = build(cls, header | {"names": names, "parameters": parameters}, arrays, name)
        basis._check()
        return basis

    def _check(self) -> None:
        """Raise unless all parts fit together and all numbers are in range."""
        d = self.n_features_in
        n_inputs = self.input_map.check(d)
        if self.map.n_features_in != n_inputs:
            raise ValueError("features do not take the inputs")
        self.map.check()
        for parameters in (self.hyperparameters, getattr(self.map, "hyperparameters", None)):
            if parameters is not None:
                parameters.check(n_inputs)
        if self.target_scale is not None:
            require_positive(self.target_scale, "target_scale", "n_outputs")
        if self.names is not None and (len(self.names) != d or not all(isinstance(n, str) for n in self.names)):
            raise ValueError(f"names must be {d} strings")
        if self.columns is not None and self.columns.n_encoded != d:
            raise ValueError("columns do not give the inputs")
        require_number(self.reach, "reach", above=0.0, at_most=LARGEST)
