"""`Estimator`: scikit-learn's rules, rows at the door, files."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from pydirect import __version__
from pydirect._documentation import takes_rows
from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads, threads
from pydirect._validation import FloatArray, as_count, as_generator, as_sample_weight, require_no_missing, shown
from pydirect._warnings import warn
from pydirect.direct.sequential import is_coarse, warn_of_coarse_levels
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.priors import PRIORS, MixturePrior, TablePrior
from pydirect.estimators.choices import CHOICES, Gaussian, Nystroem, as_features, as_posterior, content
from pydirect.estimators.summary import Summary, lines_of_model
from pydirect.features.fitting import GIVEN_MAPS
from pydirect.features.own_kernel import kernel_of, kernels, text_of
from pydirect.fitted.predictor import check_target_size
from pydirect.fitted.regression import OfLatent
from pydirect.networks.base import EmpiricalBayes
from pydirect.networks.training import TrainingSchedule
from pydirect.persistence.container import write
from pydirect.persistence.schema import Arrays, Header, pack, require_all_used, unpack
from pydirect.predictive.scales import TargetScale
from pydirect.predictive.transformed import TargetTransform
from pydirect.quantized.fitted import ClassifierFits, SearchSettings
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.quantize import quantize
from pydirect.tables.columns import Columns, TableWarning, as_columns, validated_table, warn_of_order, with_names
from pydirect.tables.encoding import ColumnEncoding
from pydirect.tables.table import Table, explain_numbers, refuse_what_numpy_converts, require_numbers

_OF_PARAMETERS = (TrainingSchedule, Columns, TargetScale, TargetTransform, *CHOICES)
OBJECTS: dict[str, Any] = {cls.__name__: cls for cls in _OF_PARAMETERS}
OBJECTS |= {**PRIORS, "table": TablePrior, "mixture": MixturePrior, "empirical_bayes": EmpiricalBayes}


def as_json(name: str, value: Any) -> Any:
    """Return a parameter as a header can hold it: priors and choices by class and fields, arrays as lists.

    Raises TypeError when it is an object of another kind.
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if type(value) in OBJECTS.values():
        fields = {field: as_json(f"{name}.{field}", getattr(value, field)) for field in _fields(type(value))}
        return {"object": next(k for k, c in OBJECTS.items() if c is type(value)), "fields": fields}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, datetime.timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, tuple):
        return {"tuple": [as_json(name, v) for v in value]}
    if isinstance(value, list):
        return [as_json(name, v) for v in value]
    if isinstance(value, dict):  # a header's keys are strings
        return {"mapping": [[as_json(name, k), as_json(name, v)] for k, v in value.items()]}
    if isinstance(value, kernels().Kernel):
        return {"kernel": text_of(value)}
    raise TypeError(f"{name} must be a number, text, an array or an object of pydirect to be saved, got {value!r}")


def _fields(cls: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else cls._get_param_names()


def from_json(value: Any) -> Any:
    """Undo `as_json`; arrays come back as lists."""
    if isinstance(value, list):
        return [from_json(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "object" in value:
        cls, own = OBJECTS[value["object"]], value["fields"]
        if own.keys() != {*_fields(cls)}:
            raise ValueError(f"{value['object']} must have {_fields(cls)}, got {[*own]}")
        return cls(**{field: from_json(entry) for field, entry in own.items()})
    if "kernel" in value:
        return kernel_of(value["kernel"])
    if "seconds" in value:
        return datetime.timedelta(seconds=value["seconds"])
    if "tuple" in value:
        return tuple(from_json(v) for v in value["tuple"])
    return {k: v for k, v in value["mapping"]}


_ENTRIES = {"state", "library", "n_features_in", "feature_names", "fit_seconds", "parameters", "metadata"}


# What parameters may be where small models are fitted within a budget, as these models are just so.
WHAT_QUANTIZED_FITS_DO: dict[str, tuple[Any, ...]] = {
    "features": ("auto", "nystroem", "fourier"),
    "posterior": (Gaussian(),),
    "noise": ("auto", "constant"),
    "local": ("auto", False),
    "bound": ("auto", "softmax"),
    "columns": (None,),
}


def refuse_ignored(parameters: dict[str, Any]) -> None:
    """Raise if a parameter has been set that `fit_quantized`, which fits small models of its own, would ignore."""
    features = parameters["features"]
    given = parameters | {"posterior": as_posterior(parameters["posterior"])}
    if isinstance(features, Nystroem):
        plain = type(features)(max_search_rows=features.max_search_rows)
        given["features"] = "auto" if content(features) == content(plain) else features
    ignored = [name for name, does in WHAT_QUANTIZED_FITS_DO.items() if name in given and given[name] not in does]
    if ignored:
        names, got = (", ".join(own) for own in (ignored, [shown(parameters[name]) for name in ignored]))
        raise ValueError(f"{names} must be left at the default for fit_quantized, got {got}: or quantize a fit")


def settings_of(model: Estimator, plan: Any, classifier: ClassifierFits | None = None) -> SearchSettings:
    """Return what a search of small models takes over of an estimator and its plan."""
    refuse_ignored(model.get_params(deep=False))
    rng = as_generator(0 if hasattr(model.random_state, "randint") else model.random_state)
    return SearchSettings(plan.features.max_search_rows, resolve_n_threads(model.n_threads), rng, classifier)


class _OfModel(property):
    """A property that knows its name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.lstrip("_")


def of_model(path: str | Callable[[Any], Any]) -> Any:
    """Return a property that is an attribute of ``model_``, by its dotted path, or a function of it.

    Of several models there is none.
    """
    get = attrgetter(path) if isinstance(path, str) else path

    def of_one(self: Any) -> Any:
        model = self.model_
        if isinstance(model, tuple):
            raise AttributeError(f"a model of several columns of labels has no {own.name}: its estimators_ have")
        try:
            return get(model)
        except AttributeError as error:
            raise AttributeError(f"this {type(self).__name__} has no {own.name}") from error

    own = _OfModel(of_one)
    return own


def _of_outputs(values: Any, alone: bool) -> Any:
    """Return what a model has for each output; of a vector of targets that of the only one."""
    return values[0] if alone else values


def _traces(posteriors: Any, units: FloatArray) -> list[FloatArray]:
    return [p.elbo_trace - u for p, u in zip(posteriors, units, strict=True)]


def of_features(name: str) -> Any:
    """Return a property that is an attribute of the feature map; it is refused before there is one."""

    def get(self: Any) -> Any:
        check_is_fitted(self, "features_")
        return getattr(self.features_, name)

    return property(get)


NARROW = "deviations and intervals are as narrow as if it were known"
WIDER = "intervals are wider by what f varies over that"


def warn_of_values(columns: ColumnEncoding, X: Any, effect: str = NARROW) -> None:
    """Warn of columns that lack numbers, and lacked none in the fit, and of categories that look like slips."""
    lacking, slips = columns.lacking_anew(X), columns.slips(X)
    if slips:
        more = f", and {len(slips) - 1} more likewise" * (len(slips) > 1)
        warn(f"{slips[0]}{more}: it is taken as a new category; write it as in the fit", TableWarning)
    if lacking:
        more = f" and of {len(lacking) - 1} other columns" * (len(lacking) > 1)
        warn(f"numbers of {lacking[0]}{more} are missing, unlike in the fit: they are imputed; {effect}", TableWarning)


class TableRows(NamedTuple):
    """Validated rows: a table, targets (n_rows, n_outputs), weights (n_rows,) or None, whether y is a vector."""

    table: Table
    y: FloatArray
    weight: FloatArray | None
    one_dimensional: bool


@dataclass(eq=False, repr=False, kw_only=True)
class Estimator(BaseEstimator):
    """What every estimator shares; text and gaps are welcome unless features are taken as they are given.

    A fitted estimator has ``model_``, the fitted model as data, and ``columns_``, from tables to rows of numbers.

    Parameters
    ----------
    columns : Columns, optional
        Which columns are categories, and what becomes of missing numbers; see `pydirect.Columns`.
    n_threads : int, optional
        By default, OpenMP's current number. Results have the same bits for any number.
    random_state : int, RandomState or None, default=0
        Seed of the rows for hyperparameters, landmarks and frequencies.
    verbose : int, default=0
        1 reports stages on standard error.
    """

    # Classes of what files hold, by attribute, in the order in which they are read; an attribute may be absent.
    _stored: ClassVar[dict[str, Any]] = {}
    columns: Any = None
    n_threads: int | None = None
    random_state: Any = 0
    verbose: int = 0

    n_features_in_: int = field(init=False)
    columns_: ColumnEncoding = field(init=False)
    fit_seconds_: dict[str, float] = field(init=False)
    model_: Any = field(init=False)

    def _takes_tables(self) -> bool:
        try:
            posterior = as_posterior(getattr(self, "posterior", "gaussian"))
            return as_features(getattr(self, "features", "auto"), posterior)[0] not in GIVEN_MAPS
        except (TypeError, ValueError):  # raised again, at the fit, unless names mean something else
            return True

    def _column_options(self) -> Columns:
        """Return which columns are categories, and what becomes of missing numbers."""
        return as_columns(getattr(self, "columns", None))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tables = self._takes_tables()
        tags.input_tags.string = tags.input_tags.categorical = tables
        tags.input_tags.allow_nan = tables and self._column_options().missing != "raise"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def feature_importances_(self) -> NoReturn:
        """There is none: what matters to a posterior has several answers, which the error names."""
        raise AttributeError(
            f"a {type(self).__name__} has no feature_importances_: see plotting.RelevanceDisplay for what its kernel "
            "uses, plotting.EffectDisplay for effects of columns, explain.shapley_values for their contributions to "
            "predictions, and sklearn.inspection.permutation_importance"
        )

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():  # of fitted models scikit-learn collects tags, as long as some predict
            check_is_fitted(self)

    def _begin(self) -> None:
        """Forget the old model, but not the columns of a new one."""
        names = ("n_features_in_", "feature_names_in_")
        for name in [name for name in vars(self) if name.endswith("_") and name not in names]:
            delattr(self, name)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[Progress]:
        """Context of a fit, with its threads; one that fails leaves the estimator as it was."""
        before = dict(vars(self))
        try:
            with self._threads():
                progress = Progress(self.verbose)
                yield progress
                progress.finish()
        except BaseException:
            self.__dict__ = before
            raise

    def _threads(self) -> Any:
        return threads(self.n_threads)

    # --- rows at the door

    def _validated(self, X: Any, *y: Any, reset: bool = True, **checks: Any) -> Any:
        """Return X, an array or a `Table`, and y if it is given, as scikit-learn validates them."""
        if type(X) is dict or (isinstance(X, list) and X and isinstance(X[0], dict)):  # sparse arrays may be dicts
            raise TypeError("X must be rows of numbers or a frame, got dicts: use pandas.DataFrame(rows)")
        for name, values in zip(("X", "y"), (X, *y), strict=False):
            refuse_what_numpy_converts(values, name)
        for targets in y:
            require_no_missing(targets)
            if checks.get("y_numeric"):
                require_numbers(targets)
        warn_of_order(X, *y)
        if not self._takes_tables() and not isinstance(X, Table):
            try:
                return validate_data(self, X, *y, reset=reset, dtype=np.float64, **checks)
            except (TypeError, ValueError) as error:
                raise explain_numbers(X, error) from None
        return validated_table(self, X, *y, reset=reset, missing=self._column_options().missing, **checks)

    def _read_targets(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, *, more: bool = False
    ) -> TableRows:
        """Validate rows of a new fit, or `more` rows, whose weights may all be zero."""
        x, given = self._validated(X, y, multi_output=True, y_numeric=True, reset=not more)
        weight = as_sample_weight(sample_weight, len(x), all_zero=more)
        targets = np.asarray(given, dtype=np.float64)
        check_target_size(np.abs(targets).max())
        return TableRows(with_names(self, x), targets.reshape(len(x), -1), weight, targets.ndim == 1)

    def _set_input_names(self, n_features_in: int, names: list[str] | None) -> None:
        self.n_features_in_ = n_features_in
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _fitted_columns(self, table: Table, z: FloatArray | None, weight: FloatArray | None) -> ColumnEncoding:
        """Learn categories and gaps from rows and standardised targets."""
        if not self._takes_tables():
            return ColumnEncoding.of_numbers(table.shape[1], table.names)
        return self._column_options().encoding(table, z, weight)

    @takes_rows
    def encode_rows(self, X: ArrayLike) -> FloatArray:
        """Encode rows of X as the model takes them: categories as columns of 0 and 1, gaps filled.

        Returns
        -------
        ndarray of shape (n_rows, n_encoded)
            Numbers only.
        """
        return self._read_rows(X, NARROW)[0]

    def _at(self, X: ArrayLike, of_mean: bool = False) -> tuple[Any, FloatArray]:
        """Return the fitted model and rows of X as it takes them; `of_mean`: who asks for no deviations."""
        if not isinstance(getattr(self, "model_", None), OfLatent):
            x = self.encode_rows(X)  # first: it refuses if nothing is fitted
            return self.model_, x
        x, absent = self._read_rows(X, WIDER)
        if not of_mean and absent.any():
            with self._threads():
                x = self.model_.gapped(x, self.columns_.draws_of_missing(x, absent))
        return self.model_, x

    def _asked(self, question: str, X: ArrayLike, *arguments: Any) -> Any:
        """Ask the fitted model about rows of X."""
        model, x = self._at(X)
        with self._threads():
            return getattr(model, question)(x, *arguments)

    def _read_rows(self, X: ArrayLike, effect: str) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return encoded rows, and where they were missing."""
        self._require_fitted()
        values: Any = self._valid_matrix(X)
        if values is None:
            values = self._validated(X, reset=False)
            warn_of_values(self.columns_, values, effect)
        encoded: tuple[FloatArray, NDArray[np.bool_]] = self.columns_.encode_and_mark(values)
        return encoded

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

    def _require_columns(self, n_columns: int, names: list[str] | None) -> None:
        if n_columns != self.n_features_in_:
            raise ValueError(f"X must have {self.n_features_in_} columns, as when features were fixed, got {n_columns}")
        known = getattr(self, "feature_names_in_", None)
        if known is not None and names is not None and list(known) != names:
            raise ValueError(f"X must have the columns {list(known)}, in this order, got {names}")

    def _feature_names(self) -> tuple[str, ...]:
        """Names of the columns of encoded rows; none for arrays."""
        if getattr(self, "feature_names_in_", None) is None:
            return ()
        return tuple(self.columns_.names_out)

    # --- results

    coefficients_ = of_model("latent.coefficients")
    prior_scale_ = of_model("latent.prior_scale")
    coef_ = of_model(lambda own: _of_outputs(own.latent.coefficients.T, own.one_dimensional))
    posterior_ = of_model(lambda own: _of_outputs([*own.posteriors], own.one_dimensional))
    elbo_trace_ = of_model(lambda own: _of_outputs(_traces(own.posteriors, own.elbo_units), own.one_dimensional))
    mean_missing_variance_ = of_model("latent.residual_variance")

    sparsity_ = property(lambda self: float(np.mean([getattr(p, "sparsity", 0.0) for p in self.posteriors_])))

    @property
    def _models(self) -> tuple[Any, ...]:
        """Fitted models: one, or one for each column of labels."""
        return self.model_ if isinstance(self.model_, tuple) else (self.model_,)

    @property
    def posteriors_(self) -> list[Any]:
        return [posterior for own in self._models for posterior in own.posteriors]

    @property
    def total_weight_(self) -> float:
        return float(self._models[0].n_samples)

    @property
    def elbo_(self) -> float:
        return float(sum(p.elbo for p in self.posteriors_) - sum(own.elbo_units.sum() for own in self._models))

    n_iter_ = property(lambda self: max(p.n_iter for p in self.posteriors_))
    converged_ = property(lambda self: all(p.converged for p in self.posteriors_))
    interrupted_ = property(lambda self: any(p.interrupted for p in self.posteriors_))

    def summary(self) -> Summary:
        """Describe the fitted model in words: what it is of, how inference ended, what it found.

        Returns
        -------
        Summary
            Text, which notebooks show as a table.
        """
        self._require_fitted()
        models = getattr(self, "_outputs", [self])
        return Summary("\n".join(line for own in models for line in own._words()))

    def _words(self) -> list[str]:
        return lines_of_model(self)

    def _warn_if_unfinished(self, limit: str = "max_iter", effort: str = "", given: Any = None) -> None:
        """Warn of a fit that was interrupted or did not converge, and of levels that are too coarse."""
        if not self.converged_:
            given = getattr(self, limit, given) if limit else None
            remedy = f" (raise {limit}{'' if given is None else f', now {given}'})" if limit else ""
            after = effort or f"{self.n_iter_} iterations"
            reason = "interrupted" if self.interrupted_ else f"not converged after {after}{remedy}"
            warn(f"the fit is {reason}; the best posterior found is kept", ConvergenceWarning)
        for posterior in self.posteriors_:
            if isinstance(posterior, SequentialPosterior) and is_coarse(posterior):
                warn_of_coarse_levels(posterior)

    def quantizable(self) -> Any:
        """Return the fitted model as data that `pydirect.quantize` takes."""
        raise TypeError(f"model must be a DirectRegressor or DirectClassifier, got {type(self).__name__}")

    def quantize(self, n_samples: int = 16, **options: Any) -> QuantizedPredictor:
        """Return a few posterior samples as packed integers, which predict by themselves; see `pydirect.quantize`.

        Parameters
        ----------
        n_samples : int, default=16
            Number of posterior samples.
        **options : dict
            Further arguments of `pydirect.quantize`.

        Returns
        -------
        QuantizedPredictor
            The quantised model.
        """
        return quantize(self, n_samples, **options)

    # --- files

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
        self._plan()  # a file of parameters that are refused could not be read
        if not type(self).__module__.startswith("pydirect."):
            raise TypeError(f"{type(self).__name__} is not an estimator of pydirect's own: pickle it instead")
        arrays: Arrays = {}
        state = {k: None if v is None else pack(v, k, arrays)[0] for k, v in self._state().items()}
        header: Header = {
            "state": state,
            "library": __version__,
            "n_features_in": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", np.empty(0)).tolist(),
            "fit_seconds": getattr(self, "fit_seconds_", {}),
            "parameters": {k: as_json(k, v) for k, v in self.get_params(deep=False).items()},
            "metadata": getattr(self, "metadata_", {}) if metadata is None else metadata,
        }
        write(path, f"pydirect.{type(self).__name__}", header, arrays)

    def _state(self) -> dict[str, Any]:
        """What a file holds, by attribute; None for what there is not."""
        bases = [getattr(own, "basis", None) for own in (self._models if hasattr(self, "model_") else ())]
        if any(getattr(getattr(basis, "map", None), "kind", None) == "transformer" for basis in bases):
            raise TypeError("features must be built in to be saved, got a transformer: pickle the whole model")
        return {name: getattr(self, name, None) for name in self._stored}

    @classmethod
    def _from_file(cls, header: Header, arrays: Arrays) -> Self:
        """Rebuild from what `save` wrote; raise unless all of it has its types and shapes and fits together."""
        model = cls(**{name: from_json(value) for name, value in header["parameters"].items()})
        seconds, names = header["fit_seconds"], header["feature_names"]
        for what, found, wanted in (
            ("entries", header.keys(), _ENTRIES),
            ("parameters", header["parameters"].keys(), model.get_params(deep=False).keys()),
            ("parts", header["state"].keys(), cls._stored.keys()),
        ):
            if found != wanted:
                raise ValueError(f"{what} must be {sorted(wanted)}, got {sorted(found)}")
        if not isinstance(header["metadata"], dict) or not all(isinstance(s, float | int) for s in seconds.values()):
            raise TypeError("metadata must be a dict, and fit_seconds numbers")
        resolve_n_threads(model.n_threads)
        model.metadata_, model.fit_seconds_ = header["metadata"], seconds
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("feature_names must be strings")
        model._set_input_names(as_count(header["n_features_in"], "n_features_in"), names or None)
        if len(names) not in (0, model.n_features_in_):
            raise ValueError(f"feature_names must be {model.n_features_in_}, got {len(names)}")
        require_all_used(header["state"], arrays)
        for name, kinds in cls._stored.items():
            if header["state"][name] is not None:
                setattr(model, name, unpack(kinds, header["state"][name], arrays, name))
        model._restored()
        return model

    def _restored(self) -> None:
        """Check the parameters and how the parts of a file fit together; set what follows from them."""
        self._plan()
        d = self.n_features_in_
        n_encoded = {own.basis.n_features_in for own in self._models}
        if self.columns_.n_columns != d or n_encoded != {self.columns_.n_encoded}:
            raise ValueError(f"columns and features must take {d} columns")
