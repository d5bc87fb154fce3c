"""Models of `pydirect fit`: the estimator that the options choose, its parameters, and the fit."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pydirect.cli.arguments import DIRECT_POSTERIORS, NETWORK_POSTERIORS
from pydirect.cli.common import CommandError, warn_user
from pydirect.cli.data import TrainingData
from pydirect.cli.model_files import has_converged


def check_model_options(args: argparse.Namespace) -> None:
    """Raise unless the options belong to the chosen kind of model; objects have options of their own."""
    for name, _ in args.set if args.model == "direct" else ():
        if name in ("posterior", "features"):
            raise CommandError(f"--set {name}: use --{name}")
    if args.hidden is not None and args.model == "direct":
        raise CommandError("--hidden: only for --model network, dvi or monte-carlo")
    for option in ("features", "n_basis_functions", "degree") if args.model != "direct" else ():
        if getattr(args, option) is not None:
            raise CommandError(f"--{option.replace('_', '-')}: not for --model {args.model}")
    if args.posterior in NETWORK_POSTERIORS and args.model != "monte-carlo":
        raise CommandError(f"--posterior {args.posterior}: only for --model monte-carlo")
    if args.posterior in DIRECT_POSTERIORS and args.model != "direct":
        raise CommandError(f"--posterior {args.posterior}: not for --model {args.model}")
    if args.n_basis_functions is not None and args.features not in (None, "auto", "nystroem", "fourier"):
        raise CommandError("--n-basis-functions: only for --features nystroem or fourier")
    if args.degree is not None and args.features != "polynomial":
        raise CommandError("--degree: only for --features polynomial")


def new_model(args: argparse.Namespace, classes: bool) -> Any:
    """Return the unfitted estimator that the options describe."""
    given = {name: value for name, value in _given(args).items() if value is not None}
    estimator, objects = estimator_of(args, classes), _objects(args)
    common = {"n_threads": args.threads, "random_state": args.seed, "verbose": 0 if args.quiet else 1}
    parameters = with_settings(estimator, given, args.set, objects)
    for name, default in objects.items():
        own = {field: parameters.pop(field) for field in default.get_params() if field in parameters}
        if own:
            parameters[name] = default.set_params(**own)
    return estimator(**common, **parameters)


def _objects(args: argparse.Namespace) -> dict[str, Any]:
    """Return the objects, by the parameters of the estimator that take them, whose fields can be set."""
    if args.model != "direct":
        return {}
    from pydirect import Columns
    from pydirect.estimators.choices import as_features, as_posterior

    posterior = as_posterior(_posterior(args) or "gaussian")
    return {
        "posterior": posterior,
        "features": as_features(args.features or "auto", posterior)[1],
        "columns": Columns(),
    }


def estimator_of(args: argparse.Namespace, classes: bool) -> Any:
    """Return the class of the estimator that the options describe."""
    import pydirect

    return {
        "direct": (pydirect.DirectRegressor, pydirect.DirectClassifier),
        "network": (pydirect.QuadraticBNNRegressor, pydirect.QuadraticBNNRegressor),
        "dvi": (pydirect.DVIRegressor, pydirect.DVIClassifier),
        "monte-carlo": (pydirect.MonteCarloBNNRegressor, pydirect.MonteCarloBNNClassifier),
    }[args.model][classes]


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters that have options of their own, None where they were not given."""
    if args.model != "direct":
        return {"hidden_layer_sizes": args.hidden, "posterior": _posterior(args)}
    given = {name: getattr(args, name) for name in ("features", "n_basis_functions", "degree")}
    if args.stream and args.category:
        given["categories"] = args.category
    if args.stream and args.on_missing == "error":
        given["missing"] = "raise"
    return {"posterior": _posterior(args), **given}


def _posterior(args: argparse.Namespace) -> str | None:
    return args.posterior and args.posterior.replace("-", "_")


def fitted(args: argparse.Namespace, data: TrainingData, what: str) -> Any:
    """Return a model fitted to the data, which messages call `what`."""
    model = new_model(args, data.classes)
    if what and not args.quiet:
        print(f"Fitting to {what}", file=sys.stderr)
    y = data.y[:, 0] if not data.classes and data.y.shape[1] == 1 else data.y
    with convergence_warnings_ignored():
        model.fit(data.X, y, sample_weight=data.weights)
    if model.interrupted_:
        raise KeyboardInterrupt  # the model would be usable in Python, but is not what the command was asked for
    finish(model, f"the fit{' to ' + what if what else ''}")
    return model


@contextlib.contextmanager
def convergence_warnings_ignored() -> Iterator[None]:
    """Ignore ConvergenceWarning, in place of which `finish` prints one line."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def finish(model: Any, fit: str) -> None:
    """Prepare a fitted model for saving, and warn if the fit, which the warning calls `fit`, did not converge."""
    model.set_params(verbose=0)
    if not has_converged(model):
        warn_user(f"{fit} did not converge; its result may still improve")


_OPTIONS = {"n_threads": "--threads", "random_state": "--seed", "verbose": "--quiet", "categories": "--category"}


def with_settings(
    estimator: Any, given: dict[str, Any], settings: Iterable[tuple[str, Any]], objects: dict[str, Any]
) -> dict[str, Any]:
    """Return parameters `given` by options and by `--set`, fields of objects among them; raise unless they differ."""
    known = set(estimator().get_params(deep=False)) - {"columns"}
    known.update(*(each.get_params() for each in objects.values()), _schedule_fields() if "schedule" in known else ())
    parameters = dict(given)
    for name, value in settings:
        if name in _OPTIONS:
            raise CommandError(f"--set {name}: use {_OPTIONS[name]}")
        if name not in known:
            raise CommandError(f"--set {name}: {_unknown(estimator.__name__, name, known)}")
        if name in parameters:
            raise CommandError(f"--set {name}: given twice")
        parameters[name] = value
    return _with_schedule(parameters) if "schedule" in known else parameters


def _schedule_fields() -> list[str]:
    from pydirect.networks.training import TrainingSchedule

    return [field.name for field in dataclasses.fields(TrainingSchedule)]


def _with_schedule(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of a network, those of its training in one `TrainingSchedule`."""
    from pydirect.networks.training import TrainingSchedule

    own = {name: parameters.pop(name) for name in _schedule_fields() if name in parameters}
    try:
        return parameters | ({"schedule": TrainingSchedule(**own)} if own else {})
    except (TypeError, ValueError) as error:
        raise CommandError(f"--set {error}") from None


def _unknown(estimator: str, name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name.replace("-", "_"), known, 1)
    if close:
        return f"{estimator} has no such parameter; do you mean {close[0]}?"
    return f"{estimator} has no such parameter, but {', '.join(sorted(set(known) - set(_OPTIONS)))}"
