"""Models of `pydirect fit`: the options that choose one, its estimator, and the fit."""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydirect.cli.common import CommandError, positive, warn_user
from pydirect.cli.parameters import setting, with_settings

if TYPE_CHECKING:
    from pydirect.cli.fit_data import TrainingData


RAW_POSTERIORS = ("sequential", "mean-field")
NETWORK_POSTERIORS = ("normal", "laplace", "logistic", "radial")


def add_model_options(command: argparse.ArgumentParser) -> None:
    """Add the options that choose a model."""
    command.add_argument(
        "--model",
        choices=["direct", "network", "dvi", "monte-carlo"],
        default="direct",
        help="basis functions, a network with quadratic activations, or a network of rectified linear units with "
        "Gaussian weights, trained by deterministic variational inference or from draws (default: %(default)s)",
    )
    command.add_argument(
        "--hidden",
        type=positive,
        nargs="+",
        metavar="H",
        help="units of a network's hidden layers; give the file before this (default: 16 8; 50 for rectified units)",
    )
    command.add_argument(
        "--basis",
        choices=["decorrelated", "raw"],
        help="basis of the weights (default: decorrelated); raw ones are 4-bit integers, as small devices want them",
    )
    command.add_argument(
        "--posterior",
        choices=[*RAW_POSTERIORS, *NETWORK_POSTERIORS],
        help="with --basis raw: sequential (default) or mean-field; with --model monte-carlo: normal (default), "
        "laplace, logistic or radial",
    )
    command.add_argument(
        "--n-levels",
        type=positive,
        metavar="N",
        help="number of values that a weight can take, odd with --posterior sequential (default: 15)",
    )
    command.add_argument(
        "--features",
        choices=["auto", "nystroem", "fourier", "linear", "polynomial"],
        help="features of the inputs (default: nystroem in the decorrelated basis, fourier in the raw one)",
    )
    command.add_argument(
        "--n-basis-functions", type=positive, metavar="N", help="number of nystroem or fourier features (default: 2000)"
    )
    command.add_argument("--degree", type=positive, metavar="D", help="degree of the polynomials (default: 2)")
    command.add_argument(
        "--set",
        dest="settings",
        type=setting,
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameters that the model has in Python, such as target_transform=log, noise=varying or "
        "prior=laplace",
    )


def check_model_options(args: argparse.Namespace) -> None:
    """Raise unless the options belong to the chosen kind of model."""
    if args.hidden is not None and args.model == "direct":
        raise CommandError("--hidden: only for --model network, dvi or monte-carlo")
    for option in ("basis", "features", "n_basis_functions", "degree", "n_levels") if args.model != "direct" else ():
        if getattr(args, option) is not None:
            raise CommandError(f"--{option.replace('_', '-')}: not for --model {args.model}")
    if args.posterior in NETWORK_POSTERIORS and args.model != "monte-carlo":
        raise CommandError(f"--posterior {args.posterior}: only for --model monte-carlo")
    if args.posterior in RAW_POSTERIORS and args.basis != "raw":
        raise CommandError(f"--posterior {args.posterior}: only for --basis raw")
    if args.n_basis_functions is not None and args.features not in (None, "auto", "nystroem", "fourier"):
        raise CommandError("--n-basis-functions: only for --features nystroem or fourier")
    if args.degree is not None and args.features != "polynomial":
        raise CommandError("--degree: only for --features polynomial")


def new_model(args: argparse.Namespace, classes: bool) -> Any:
    """Return the unfitted estimator that the options describe."""
    given = {name: value for name, value in _given(args).items() if value is not None}
    estimator = estimator_of(args, classes)
    common = {"n_threads": args.threads, "random_state": args.seed, "verbose": 0 if args.quiet else 1}
    return estimator(**common, **with_settings(estimator, given, args.settings))


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
    posterior = args.posterior and args.posterior.replace("-", "_")
    if args.model != "direct":
        return {"hidden_layer_sizes": args.hidden, "posterior": posterior}
    names = ("features", "basis", "n_basis_functions", "degree", "n_levels")
    return {"posterior": posterior, **{name: getattr(args, name) for name in names}}


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


def has_converged(model: Any) -> bool:
    """Whether the fit converged for every output."""
    import numpy as np

    return bool(np.all(model.converged_))
