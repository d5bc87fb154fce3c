"""`FixedPointModel`: what exported integer code computes, in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect.quantized.integer.arithmetic import Integers
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.fixed_point import FixedResults
from pydirect.quantized.integer.probabilities import Probabilities
from pydirect.quantized.integer.program import Program
from pydirect.quantized.rows import as_rows

Pair = tuple[Integers, Integers]


@dataclass(frozen=True)
class FixedPointModel:
    """An integer program with its inputs and results: the numbers of an exported header, bit for bit.

    Rows are (n_rows, n_features_in): a device's own integers, ``zero_count + counts_per_unit · x``, or without these
    constants x itself in single precision. Results are counts, (n_rows, n_outputs), of which ``counts_per_unit`` make a
    unit of the output. No result can leave 32 bits, whatever the row.

    Attributes
    ----------
    program : Program
    results : FixedResults
    raw : RawInputs or None, optional
    probabilities : Probabilities or None, optional
        Of a classifier.
    """

    program: Program
    results: FixedResults
    raw: RawInputs | None = None
    probabilities: Probabilities | None = None

    @classmethod
    def of(
        cls,
        program: Program,
        *,
        counts_per_unit: ArrayLike | None = None,
        zero_count: ArrayLike = 0.0,
        output_counts_per_unit: ArrayLike | None = None,
        level: float = 0.9,
        n_classes: int = 0,
    ) -> Self:
        """Derive all constants; see `pydirect.quantized.export.write.to_c` for the arguments.

        Parameters
        ----------
        program : Program
            The integer program.
        counts_per_unit : array_like, optional
            Counts per unit of every column, for inputs in counts.
        zero_count : float or array_like of shape (n_features_in,), default=0.0
            Count at zero of every column.
        output_counts_per_unit : array_like, optional
            Counts per unit of every output, for outputs in counts.
        level : float, default=0.9
            Probability of the intervals.
        n_classes : int, default=0
            Number of classes; 0 for regression.
        """
        raw = None
        if counts_per_unit is not None:
            raw = RawInputs.of(program, counts_per_unit, zero_count)
        elif np.any(zero_count):
            raise ValueError("zero_count must come with counts_per_unit, how many counts a unit of every input makes")
        if n_classes and output_counts_per_unit is not None:
            raise ValueError("output_counts_per_unit must be None for a classifier: probabilities are counts of 2^-15")
        results = FixedResults.of(program, output_counts_per_unit, level, logits=n_classes > 0)
        if output_counts_per_unit is None:
            results.require_digits()
        probabilities = Probabilities.of(n_classes, float(results.counts_per_unit[0])) if n_classes else None
        return cls(program, results, raw, probabilities)

    @property
    def counts_per_unit(self) -> NDArray[np.float64]:
        """How many counts make a unit of every output, (n_outputs,)."""
        return self.results.counts_per_unit

    def quantise(self, X: ArrayLike) -> Integers:
        """Return the inputs of the program, (n_rows, n_inputs).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of X, or of counts where inputs are counts.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_inputs)
            Quantised inputs q.
        """
        rows = as_rows(X, self.program.n_features_in, ())
        if self.raw is None:
            return self.program.quantise_inputs(rows)
        if not ((rows == np.rint(rows)) & (rows >= -(2**31)) & (rows < 2**31)).all():
            raise ValueError("X must hold counts, whole numbers of 32 bits: round(zero_count + counts_per_unit * x)")
        return self.raw.quantise(rows[:, self.program.columns].astype(np.int64))

    def totals(self, X: ArrayLike) -> Integers:
        """Totals of every sample, (n_rows, n_outputs, n_samples).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of X, or of counts where inputs are counts.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_outputs, n_samples)
            Totals.
        """
        self.program.prove()
        return self.program.totals_of_features(self.program.features(self.quantise(X)))

    def predict(self, X: ArrayLike) -> Pair:
        """Mean and standard deviation of every output, noise included.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of X, or of counts where inputs are counts.

        Returns
        -------
        (ndarray, ndarray)
            Integers (n_rows, n_outputs) each.
        """
        totals = self.totals(X)
        return self.results.mean(totals), self.results.std(totals)

    def predict_interval(self, X: ArrayLike) -> Pair:
        """Central Gaussian intervals of the target.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of X, or of counts where inputs are counts.

        Returns
        -------
        (ndarray, ndarray)
            Lower and upper ends, integers (n_rows, n_outputs) each.
        """
        return self.results.interval(self.totals(X))

    def predict_function_interval(self, X: ArrayLike) -> Pair:
        """Central intervals of the samples' functions, without noise.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of X, or of counts where inputs are counts.

        Returns
        -------
        (ndarray, ndarray)
            Lower and upper ends, integers (n_rows, n_outputs) each.
        """
        return self.results.function_interval(self.totals(X))

    def predict_class(self, X: ArrayLike) -> Integers:
        """Index of the most probable class by the mean logit, (n_rows,).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of X, or of counts where inputs are counts.

        Returns
        -------
        ndarray of int64 of shape (n_rows,)
            Indices.
        """
        mean = self.results.mean(self.totals(X))
        return (mean[:, 0] > 0).astype(np.int64) if mean.shape[1] == 1 else mean.argmax(axis=1)

    def predict_proba(self, X: ArrayLike) -> Integers:
        """Probabilities of the classes in units of 2^-15, (n_rows, n_classes).

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features_in)
            Rows of X, or of counts where inputs are counts.

        Returns
        -------
        ndarray of int64 of shape (n_rows, n_classes)
            Integers.
        """
        if self.probabilities is None:
            raise ValueError("only a classifier has probabilities")
        return self.probabilities.of_logits(self.results.functions(self.totals(X)))
