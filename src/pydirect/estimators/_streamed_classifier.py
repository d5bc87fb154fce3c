"""Classifiers fitted to rows that do not fit into memory: one pass over them per step of the bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, single_blas_thread
from pydirect._validation import FloatArray, as_count, as_flag
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.priors import DensityPrior, GaussianPrior, as_prior
from pydirect.estimators._streamed import StreamedModel
from pydirect.features.evidence import TrainingRows
from pydirect.linear.decorrelated import DecorrelatedPosterior
from pydirect.logistic.ascent import Ascent
from pydirect.logistic.discrete import LogisticFit
from pydirect.logistic.fit import fit_passes_decorrelated
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, informative_directions
from pydirect.logistic.passes import RowPasses
from pydirect.logistic.rows import LabelledRows, RotatedFeatures
from pydirect.logistic.sequential import DrawnRows, Lattice, draw_at_rest
from pydirect.logistic.start import ascend_stream
from pydirect.statistics.gaussian import block_rows
from pydirect.statistics.rotation import Rotation
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.codes import TableCodes
from pydirect.streams.dask import is_dask
from pydirect.streams.encoded import EncodedSource
from pydirect.streams.labels import LabelCodes
from pydirect.streams.rows import Rows, Source, StreamError, StreamInterrupt, chunks
from pydirect.streams.run import StreamRun
from pydirect.streams.sources import as_source


class LabelMass:
    """Total weight of the rows of each label code, and their number."""

    def __init__(self) -> None:
        self.mass = np.zeros(0)
        self.n_rows = 0

    def look(self, rows: Rows) -> None:
        """Count checked rows."""
        mass = np.bincount(rows.y[:, 0].astype(np.intp), rows.weight, minlength=len(self.mass)).astype(np.float64)
        mass[: len(self.mass)] += self.mass
        self.mass = mass
        self.n_rows += len(rows)


@dataclass(frozen=True)
class OneAgainstRest:
    """A source of label codes as one of labels ±1, one column per problem, with weights times those of the classes.

    Parameters
    ----------
    source : Source
        Its y holds codes.
    sign : ndarray of shape (n_codes, n_problems)
        ±1.
    factor : ndarray of shape (n_codes,)
        Factor of the rows' weights by code; zero leaves them out.
    one_dimensional : bool
        Whether there is one problem.
    """

    source: Source
    sign: FloatArray
    factor: FloatArray
    one_dimensional: bool

    @property
    def names(self) -> list[str] | None:
        """Names of the columns of X."""
        return self.source.names

    @property
    def codes(self) -> TableCodes | None:
        """Codes of the text in X."""
        return self.source.codes

    @property
    def n_rows(self) -> int | None:
        """Number of rows, if it is known."""
        return self.source.n_rows

    @property
    def repeatable(self) -> bool:
        """Whether the source can be read again."""
        return self.source.repeatable

    def blocks(self, start: int) -> Iterator[Rows]:
        """Yield all rows from row `start` on."""
        row = start
        for rows in self.source.blocks(start):
            code = rows.y[:, 0]
            unknown = np.flatnonzero(code >= len(self.factor))
            if unknown.size:
                raise StreamError(f"{self.place(row + int(unknown[0]))}: a label that the first pass has not seen")
            row += len(rows)
            yield self.rows(rows)

    def rows(self, rows: Rows) -> Rows:
        """Return rows of codes as rows of labels ±1; missing ones stay missing."""
        missing = np.isnan(rows.y[:, 0])
        code = np.where(missing, 0.0, rows.y[:, 0]).astype(np.intp)
        labels = self.sign[code]
        labels[missing] = np.nan
        weight = self.factor[code] if rows.weight is None else rows.weight * self.factor[code]
        return Rows(rows.x, labels, weight)

    def head(self, n_rows: int) -> Iterator[Rows]:
        """Yield the first blocks."""
        return self.blocks(0)

    def place(self, row: int) -> str:
        """Say where a row is."""
        return self.source.place(row)

    def layout(self, row: int) -> list[Any]:
        """Return what identifies the rows before row `row`."""
        return self.source.layout(row)


class StreamedClassifier(StreamedModel):
    """Base of classifiers by logistic regression whose rows need not fit into memory.

    A subclass provides ``_check_parameters``, ``_class_factors``, ``_set_problems`` and ``_variance_prior``, and the
    attributes of `ProbabilisticClassifier`.
    """

    bound: str
    classes_: np.ndarray
    left_out_probability_: FloatArray
    _log_factors: FloatArray  # of the classes' odds
    _moves: FloatArray  # of the intercepts, by these factors
    intercept_: FloatArray

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _class_factors(self, classes: np.ndarray, mass: FloatArray) -> FloatArray:
        raise NotImplementedError

    def _set_problems(self, index: FloatArray, mass: FloatArray) -> FloatArray:
        raise NotImplementedError

    def _variance_prior(self, mean_square: float) -> VariancePrior:
        raise NotImplementedError

    def _multiply_odds(self) -> None:
        """Multiply the odds of the classes by their factors, if there are any."""
        self._moves = np.zeros(len(self.intercept_))
        if len(self._log_factors):
            log_factors = self._log_factors
            self._moves += np.diff(log_factors) if self._one_dimensional else log_factors - log_factors.mean()
            self.intercept_ = self.intercept_ + self._moves

    def _widen(self, rows: TrainingRows) -> None:
        raise NotImplementedError

    def _bound(self) -> str:
        """Return the bound that is maximised."""
        if self.bound != "auto":
            return self.bound
        return "jaakkola" if self._is_mean_field() else "softmax"

    def fit_stream(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        sample_rows: int = 20_000,
        keep_features: bool = False,
        drop_missing: bool = False,
    ) -> Self:
        """Fit to data that need not fit into memory, in passes over them; nothing is kept per row.

        The first pass checks every value, counts the classes and draws `sample_rows` rows uniformly, which fix the
        feature map and its hyperparameters, and from a fit to which the iteration starts. The second finds the
        directions about which the data carry information. Every other one is a step of the ELBO, for
        all classes at once, until it converges: three to twelve of them, more where classes are far apart.
        The posterior is that of `fit` at the same features, to the tolerance of the iteration.

        Parameters
        ----------
        X : path, array, iterable or function
            As in `DirectRegressor.fit_stream`, but the data are read several times: a list of blocks or a function that
            returns an iterator, not an iterator.
        y : str or array_like of shape (n_samples,), optional
            Name of the column of labels, which may be strings, if X is a path; the labels if it is an array.
        sample_weight : str or array_like, optional
            How many times each row counts; by default once.
        sample_rows : int, default=20_000
            Number of rows in the sample.
        keep_features : bool, default=False
            Use the feature map that the model has, from `fit` or a file.
        drop_missing : bool, default=False
            Leave out rows with missing values or labels. Otherwise missing values of `X` are taken as `missing` says,
            and all others are an error.

        Returns
        -------
        Self
            The model itself.

        Raises
        ------
        pydirect.StreamError
            When data cannot be read or used, or change between passes; the message says where.
        ValueError, TypeError
            When a parameter is not as described: the published bounds need all rows in memory.
        KeyboardInterrupt
            After Ctrl-C before there is a posterior of all rows. Later it ends the iteration, and the best posterior
            found is kept, with ``interrupted_ = True``.

        Warns
        -----
        ConvergenceWarning
            When the iteration did not converge.
        """
        self._check_parameters()
        as_count(sample_rows, "sample_rows", 2)
        as_flag(keep_features, "keep_features")
        as_flag(drop_missing, "drop_missing")
        self._require_streamable()
        if keep_features:
            check_is_fitted(self, "features_")
            self._require_same_features()
        source, codes = _label_source(X, y, sample_weight, self._codes())
        progress = Progress(self.verbose)

        count = LabelMass()
        run = StreamRun(source, progress, self.n_threads, drop_missing)
        if keep_features:
            self._require_columns(run.shape[0], run.names)
        sample = run.sample(sample_rows, self._sample_seed(), count.look)
        if not source.one_dimensional:
            raise ValueError("y must be one column of labels")
        self._forget()
        problems = self._one_against_rest(source, codes.labels, count.mass)
        labelled = problems.rows(sample)
        labelled = labelled[labelled.weight != 0]
        if keep_features:
            x = EncodedSource(source, self.columns_).rows(labelled).x
        else:
            with run.uncounted("features"):
                x = self._fix_features_by(labelled, run.names, self._one_dimensional, source.codes)
                self._widen(TrainingRows(x, labelled.y, labelled.weight))
        labelled = replace(labelled, x=x)
        problems = replace(problems, source=EncodedSource(source, self.columns_, drop_missing))
        run = StreamRun(problems, progress, self.n_threads, drop_missing)
        total = run.collected(self.new_statistics(problems.sign.shape[1]))

        def blocks() -> Iterator[Rows]:
            return _all_rows(problems, self.features_.n_weights, count.n_rows, drop_missing, progress)

        with progress.stage("inference"):
            try:
                self._infer_by_passes(blocks, labelled, total)
            except KeyboardInterrupt:
                raise StreamInterrupt("interrupted before there was a posterior of all rows") from None
        self._multiply_odds()
        self.fit_seconds_ = progress.seconds
        self.n_samples_ = total.n_samples
        self._set_results()
        self._warn_if_unfinished()
        return self

    def _require_streamable(self) -> None:
        if self._is_mean_field():
            raise ValueError("posterior must be 'sequential' for fit_stream in the raw basis, got 'mean_field'")
        if self._bound() != "softmax":
            raise ValueError(f"bound must be 'softmax' for fit_stream, got {self.bound!r}")

    def _one_against_rest(self, source: Source, labels: list[Any], mass: FloatArray) -> OneAgainstRest:
        """Set the classes, those of rows that count, and return the source of their problems."""
        present = [code for code in range(len(mass)) if mass[code] > 0]
        try:
            present.sort(key=lambda code: labels[code])
        except TypeError:
            kinds = " and ".join(sorted({type(labels[code]).__name__ for code in present}))
            raise TypeError(f"y must hold labels that can be ordered, of one type, got {kinds}") from None
        if present:
            factors = self._class_factors(np.array([labels[code] for code in present]), mass[present])
            present = [code for code, used in zip(present, factors > 0, strict=True) if used]
            self._log_factors = np.log(factors[factors > 0])  # of the odds, left for the end
        if len(present) < 2:
            found = f"one class, {labels[present[0]]!r}" if present else "none"
            raise ValueError(f"y must have at least two classes, got {found}")
        self.classes_ = np.array([labels[code] for code in present])
        factor, index = np.zeros(len(labels)), np.full(len(labels), -1.0)
        factor[present], index[present] = 1.0, np.arange(len(present))
        sign = self._set_problems(index, mass[present])
        return OneAgainstRest(source, sign, factor, self._one_dimensional)

    def _standardised(self, rows: Rows) -> FloatArray:
        return rows.y

    # --- inference

    def _infer_by_passes(self, blocks: Callable[[], Iterator[Rows]], sample: Rows, total: RunningStatistics) -> None:
        """Fit the problems as `DirectClassifier.fit` does, all of them in the same passes.

        Parameters
        ----------
        blocks : callable
            Returns an iterator over all rows, whose y hold labels ±1 of every problem.
        sample : Rows
            Some of them.
        total : RunningStatistics
            Of all rows.
        """
        statistics, n_threads = total.gaussian(), resolve_n_threads(self.n_threads)
        self.left_out_probability_ = np.empty(0)
        self.mean_missing_variance_ = total.missing_variance(statistics.mean_square)
        variance_prior = self._variance_prior(statistics.mean_square)
        with single_blas_thread():
            vectors = informative_directions(statistics, variance_prior.centre)
        rotated = RowPasses(RotatedFeatures(self.features_, vectors), blocks, self.intercept_, n_threads)
        assert sample.weight is not None
        weight = sample.weight * (total.n_samples / sample.weight.sum())
        start = LabelledRows(rotated.features, sample.x, sample.y, weight, self.intercept_, "softmax", n_threads).held()
        if self._is_sequential():
            ascent = ascend_stream(rotated, start, variance_prior, self.max_iter, rotated.stop)
            self._set_fit(self._draw(rotated, ascent, vectors, self._generator(), n_threads, rotated.stop))
        else:
            options = self._decorrelated_options(variance_prior)
            fit = fit_passes_decorrelated(rotated, start, max_iter=self.max_iter, **options)
            self._set_fit(turned(fit, vectors))

    def _draw(
        self,
        source: DrawnRows,
        ascent: Ascent[FullGaussian],
        vectors: FloatArray,
        rng: np.random.Generator,
        n_threads: int,
        stop: threading.Event,
    ) -> LogisticFit[SequentialPosterior]:
        """Draw the weights of the raw basis, when the continuous weights are at rest."""
        lattice = Lattice(
            as_prior(self.prior),
            self.n_levels,
            self._unit_levels(),
            self.level_scales,
            getattr(self.features_.map, "pairs", None),
            self.n_draws,
        )
        seeds = [int(rng.integers(2**31)) for _ in self.intercept_]
        return draw_at_rest(
            source, ascent, lattice, directions=vectors, random_states=seeds, n_threads=n_threads, stop=stop
        )

    def _is_mean_field(self) -> bool:
        """Whether the weights of the raw basis are independent."""
        return self.basis == "raw" and self.posterior == "mean_field"

    def _decorrelated_options(self, variance_prior: VariancePrior) -> dict[str, Any]:
        """Options of a fit in the decorrelated basis, which finds where to start from for mean field in the raw one."""
        prior = as_prior(self.prior)
        if self.basis != "decorrelated" or not isinstance(prior, DensityPrior):
            prior = GaussianPrior()
        return {"prior": prior, "variance_prior": variance_prior, "n_levels": self.n_levels}

    def _set_fit(self, fit: LogisticFit[Any]) -> None:
        """Set the posteriors of functions that are fitted together."""
        self._set_posteriors(fit.posteriors, [fit.variance] * len(fit.posteriors))

    def _set_posteriors(self, posteriors: Sequence[Any], variances: Sequence[float]) -> None:
        """Set the posteriors, in prior units."""
        self.prior_scale_ = np.sqrt(variances)
        self.posteriors_ = list(posteriors)
        self._set_coefficients()


def _label_source(X: Any, y: Any, sample_weight: Any, text: TableCodes | None) -> tuple[Source, LabelCodes]:
    """Return a source of label codes that can be read repeatedly, and the labels of the codes read so far."""
    if is_dask(X):
        raise TypeError("X must not be a Dask collection, which only regressors sum: give a path or blocks")
    source = as_source(X, y, sample_weight, LabelCodes(), text)
    codes = getattr(source, "labels", None)
    if codes is None:
        raise TypeError("X must be a source of labels: give it LabelCodes")
    if not source.repeatable:
        raise ValueError(
            "X must be readable several times, as classification takes many passes over it: a list of blocks or a "
            "function that returns an iterator, not an iterator"
        )
    return source, codes


def _all_rows(
    problems: OneAgainstRest, n_weights: int, n_rows: int, drop_missing: bool, progress: Progress
) -> Iterator[Rows]:
    """Yield all rows in blocks; raise when there are not as many as in the first pass."""
    n_seen, end = 0, 0
    with progress.stream(problems.n_rows) as report:
        for end, rows in chunks(problems, 0, block_rows(n_weights, np.float64), drop_missing):
            n_seen += len(rows)
            report(end)
            yield rows
    if n_seen != n_rows:
        where = problems.place(max(end - 1, 0))
        raise StreamError(f"{where}: the data end after {n_seen:,} rows, in the first pass {n_rows:,}")


def turned(fit: LogisticFit[DecorrelatedPosterior], vectors: FloatArray) -> LogisticFit[DecorrelatedPosterior]:
    """Return a fit in some directions as one in the whole space."""
    whole = Rotation(vectors @ fit.posteriors[0].vectors)  # the same for all functions
    return replace(fit, posteriors=[replace(posterior, rotation=whole) for posterior in fit.posteriors])
