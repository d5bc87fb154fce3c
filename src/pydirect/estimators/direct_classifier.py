"""`DirectClassifier`: classes by latent functions on basis functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from pydirect._documentation import described_by
from pydirect._progress import Progress
from pydirect._threads import raise_if_set
from pydirect._validation import FloatArray, as_choice, as_count, as_flag
from pydirect._warnings import ignored
from pydirect.distributions.priors import MixturePrior
from pydirect.estimators._classifier import (
    Classifier,
    GivenLabels,
    OfLabels,
    has_one_output,
    predict_logit,
    predict_set,
    sample_proba,
)
from pydirect.estimators._estimator import of_model, settings_of
from pydirect.estimators.choices import (
    POSTERIORS,
    MeanField,
    as_posterior,
    check_common,
    feature_plan,
    require_same_features,
)
from pydirect.estimators.class_streams import LabelMass, all_rows, label_source, one_against_rest
from pydirect.estimators.classification import (
    ClassificationPlan,
    Labels,
    LabelSearch,
    ProblemMaker,
    add_landmarks,
    check_class_weight,
    class_weighted,
    infer_by_passes,
)
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.left_out import fit_given
from pydirect.features.basis import Basis
from pydirect.features.fitting import fit_basis
from pydirect.features.rows import TrainingRows
from pydirect.fitted.classification import FittedClassifier
from pydirect.logistic.fit import BOUNDS
from pydirect.quantized.fitted import ClassifierFit, ClassifierFits, FittedBasisModel, SearchSettings
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import Rows, StreamInterrupt
from pydirect.streams.run import StreamRun
from pydirect.streams.sources import EncodedSource
from pydirect.tables.buffer import Codebook
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table

# What posteriors may maximise, the default first.
BOUNDS_OF = {"mean_field": BOUNDS, "sequential": ("softmax",), "gaussian": ("softmax", "jaakkola")}


@described_by(DirectRegressor)
@dataclass(eq=False, repr=False)
class DirectClassifier(Classifier, OfLabels):
    """Bayesian logistic regression on basis functions, with Gaussian or, on request, discrete weights.

    ``Pr(y | w) = σ(±z)`` with ``z = intercept + φ(x)ᵀw`` for two classes, ``softmax(z)`` with one z per class for more.

    Parameters
    ----------
    features : str, Nystroem, Fourier, Polynomial or transformer, default="auto"
        As of `DirectRegressor`; the kernel has no normal scores of the columns by default.
    n_basis_functions : int, default=1000
        Largest number of basis functions of ``"nystroem"``, where more are added while labels that are left out become
        likelier, and of sines and cosines of ``"fourier"``.
    posterior : {"gaussian", "sequential", "mean_field"}, Gaussian, Sequential or MeanField, default="gaussian"
        As of `DirectRegressor`. ``"mean_field"`` needs one of the published bounds.
    bound : {"auto", "softmax", "jaakkola", "exponential"}, default="auto"
        What is maximised; see `pydirect.logistic`. ``"softmax"``, the default: the ELBO of Gaussian weights under the
        softmax of all classes, exactly; the tightest and the most accurate. ``"jaakkola"`` and ``"exponential"``, the
        published bounds, fit each class against the rest. A mean-field posterior has only these, by default the first;
        the second is for mean field alone.
    class_weight : dict, "balanced" or None, default=None
        Factors of the classes' predictive odds; zero leaves a class out. The fit takes the rows as they are, so that
        rows rank as without. With the published bounds, factors of the rows' weights. Of several columns of labels a
        dict is for all alike, ``"balanced"`` for each by itself.
    columns : Columns, optional
        Which columns are categories, and what becomes of missing numbers; see `pydirect.Columns`.

    Attributes
    ----------
    model_ : FittedClassifier
        The fitted model as frozen data.
    classes_ : ndarray of shape (n_classes,)
        Labels, in ascending order; a list of them for several columns of labels.
    estimators_ : list
        A classifier for each column of labels; where there are several, these have the attributes that follow.
    posterior_ : GaussianPosterior, SequentialPosterior or MeanFieldPosterior
        A list of them for more than two classes.
    coef_ : ndarray of shape (n_weights,) or (n_classes, n_weights)
        Posterior means of the weights of `features_`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Prior means of the logits: the log-odds of the second class in the data, or log frequencies about their mean; of
        the published bounds log-odds of each class against the rest.
    left_out_probability_ : ndarray of shape (n_kept,)
        Probabilities of the training labels, each left out, in ascending order, or a thousand geometric means of
        equal shares of them; see `predict_set`.
    sharpness_ : float
        Power to which probabilities are taken, chosen by left-out labels; 1 for fits to streams.
    elbo_ : float
        Lower bound on the log-probability of the labels, in nats; of the published bounds the sum over classes. With
        the softmax and a prior that is not Gaussian, an approximation of it. It is that of the posterior before the
        precision of several classes is multiplied; see the notes.
    elbo_trace_ : ndarray of shape (n_iter,), or a list of them
        The bound after each iteration.
    n_iter_ : int
        Number of evaluations of the bound, steps taken back included.
    prior_scale_ : ndarray of shape (1,) or (n_classes,)
        Prior standard deviations of the weights.
    posteriors_ : list
        `posterior_` as a list, one per function.
    coefficients_ : ndarray of shape (n_weights, n_functions)
        `coef_`, with an axis of functions always.

    Notes
    -----
    With the default bound the posterior is the Gaussian that maximises the ELBO, Kullback and Leibler's nearest to the
    exact one; probabilities are integrals over it, not those of its mean. Several classes share one covariance, which
    is too cautious where few of them are in question: with Gaussian weights its precision is multiplied by the
    factor for which left-out labels are likeliest; see `pydirect.estimators.left_out`. They also choose the power to
    which probabilities are taken, ``sharpness_``: of two classes only where it gains two standard errors, as for labels
    that never contradict each other. Logits, draws and exports to devices are without it. Log losses on held-out rows,
    beside those of scikit-learn's classifiers: ``bench/paper/classification.py``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pydirect import DirectClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = DirectClassifier().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    >>> probabilities = model.predict_proba(X[1::2])
    >>> logit, std = model.predict_logit(X[1::2], return_std=True)
    """

    model_: FittedClassifier = field(init=False)

    _stored: ClassVar = {"columns_": ColumnEncoding, "model_": FittedClassifier | tuple[FittedClassifier, ...]}
    _takes_several, estimators_ = True, Classifier._outputs

    posterior: Any = "gaussian"
    bound: str = "auto"
    class_weight: Any = None
    max_iter: int = 1000

    def _plan(self) -> ClassificationPlan:
        posterior = as_posterior(self.posterior)
        features, _ = feature_plan(self, posterior, rank_inputs=None)
        check_common(self)
        check_class_weight(self.class_weight)
        name = next(name for name, kind in POSTERIORS.items() if isinstance(posterior, kind))
        allowed, bound = BOUNDS_OF[name], as_choice(self.bound, "bound", ("auto", "softmax", *BOUNDS))
        bound = allowed[0] if bound == "auto" else bound
        if bound not in allowed:
            raise ValueError(f"bound must be {' or '.join(map(repr, allowed))} with posterior={name!r}, got {bound!r}")
        if isinstance(posterior, MeanField):
            if isinstance(posterior.prior, MixturePrior):
                raise ValueError("prior must factorise over the weights of classes, got a MixturePrior")
            if posterior.n_components > 1:
                raise ValueError(f"MeanField(n_components=...) must be 1 for classes, got {posterior.n_components}")
        if bound == "softmax":
            features = features.growing()
        most = as_count(self.max_iter, "max_iter")
        return ClassificationPlan(features, posterior, bound, self.class_weight, most, self.random_state)

    def _learn(self, plan: Any, given: GivenLabels, progress: Progress) -> dict[str, Any]:
        found = fit_given(plan, given, progress)
        self.model_, self.columns_ = found.model, found.columns
        return {}

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
            Leave out rows with missing values or labels. Otherwise missing values of `X` are taken as
            ``Columns(missing=...)`` says, and all others are an error.

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
        with self._whole() as progress:
            plan, count = self._plan(), LabelMass()
            as_count(sample_rows, "sample_rows", 2)
            as_flag(keep_features, "keep_features")
            as_flag(drop_missing, "drop_missing")
            if isinstance(plan.posterior, MeanField):
                raise ValueError("posterior must be 'gaussian' or 'sequential' for fit_stream, got 'mean_field'")
            if not plan.is_softmax:
                raise ValueError(f"bound must be 'softmax' for fit_stream, got {self.bound!r}")
            if keep_features:
                check_is_fitted(self, "features_")
                require_same_features(self.features, plan.features, self.features_)
            codes = Codebook(gaps=self._column_options().missing != "raise") if self._takes_tables() else None
            source, label_codes = label_source(X, y, sample_weight, codes)
            run = StreamRun(source, progress, self.n_threads, drop_missing)
            if keep_features:
                self._require_columns(run.shape[0], run.names)
            sample = run.sample(sample_rows, int(plan.generator().integers(2**63)), count.look)
            if not source.one_dimensional:
                raise ValueError("y must be one column of labels")
            labels, problems = one_against_rest(plan, source, label_codes.labels, count.mass)
            labelled = problems.rows(sample)
            labelled = labelled[labelled.weight != 0]
            if keep_features:
                basis = self.features_
            else:
                with run.uncounted("features"):
                    basis = self._fitted_features(plan, labels, labelled, run.names, source.codes)
            encoded = EncodedSource(source, self.columns_, drop_missing)
            problems.source, labelled = encoded, encoded.rows(labelled)
            run = StreamRun(problems, progress, self.n_threads, drop_missing)
            total = run.collected(RunningStatistics.empty(basis, problems.sign.shape[1]))
            passes = all_rows(problems, basis.n_weights, count.n_rows, drop_missing, progress)
            try:
                with progress.stage("inference"):
                    self.model_ = infer_by_passes(plan, labels, basis, passes, labelled, total)
            except KeyboardInterrupt:
                raise StreamInterrupt("interrupted before there was a posterior of all rows") from None
            self.fit_seconds_ = progress.seconds
            self._warn_if_unfinished()
        return self

    def _fitted_features(
        self, plan: ClassificationPlan, labels: Labels, sample: Rows, names: list[str] | None, codes: Codebook | None
    ) -> Basis:
        """Fit columns and feature map to a sample of labelled rows."""
        self._begin()
        self._set_input_names(sample.x.shape[1], names)
        table = Table.of_numbers(sample.x, names) if codes is None else codes.table(sample.x, names)
        self.columns_ = self._fitted_columns(table, sample.y, sample.weight)
        rows = TrainingRows(np.ascontiguousarray(self.columns_.encode(table)), sample.y, sample.weight)
        search, names_out = LabelSearch(plan), self._feature_names() or None
        rng = plan.generator()
        basis = fit_basis(plan.features, rows, self.columns_, search, rng, names=names_out).for_one_pass()
        if plan.features.learns_kernel and len(labels.intercept):
            maker = ProblemMaker(rows, labels, Progress(0))
            problem, basis = add_landmarks(maker, basis, plan.features, plan.generator(), plan.max_iter)
            raise_if_set(problem.stop)
        return basis

    # --- prediction

    @available_if(has_one_output)  # type: ignore[untyped-decorator]
    def decision_function(self, X: ArrayLike) -> FloatArray:
        odds = self._asked("log_odds", X)
        return self.model_.shape(odds)

    predict_logit, sample_proba, predict_set = predict_logit, sample_proba, predict_set

    left_out_probability_, sharpness_ = of_model("left_out_probability"), of_model("sharpness")
    _quantizable = of_model("quantizable")

    def _words(self) -> list[str]:
        power, lines = self.sharpness_, super()._words()
        return lines if power == 1 else [*lines, f"Probabilities are taken to the power {power:.3g} (sharpness_)."]

    # --- devices

    def quantizable(self) -> FittedBasisModel:
        self._require_fitted()
        return cast(FittedBasisModel, self._quantizable(self.columns_.n_encoded, self._feature_names()))

    def search_settings(self) -> SearchSettings:
        """Return what a search of small models takes over, `pydirect.fit_quantized`.

        Returns
        -------
        SearchSettings
            Limits, threads and the source of random numbers.
        """
        plan = self._plan()

        weighted = partial(class_weighted, replace(plan, bound=BOUNDS[0]))
        return settings_of(self, plan, ClassifierFits(lambda *rows: weighted(*rows)[:3], self._fit_small))

    def _fit_small(
        self, x: FloatArray, labels: Any, weight: FloatArray, *, features: str, n_basis_functions: int, seed: int
    ) -> ClassifierFit:
        """Fit a small classifier to encoded rows, as a search of small models asks for."""
        model = type(self)(features, n_basis_functions, n_threads=self.n_threads, random_state=seed)
        with ignored():  # warnings of an intermediate fit
            model.fit(x, labels, weight)
        logit = np.reshape(model.predict_logit(x), (len(x), -1))
        kernel = model.features_.hyperparameters
        return ClassifierFit(logit, model.intercept_, model.posteriors_, model.prior_scale_, kernel)
