"""`pydirect fit`: a table, or with --stream Parquet files of any size, in, a model file and a picture out."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pydirect._warnings import ignored
from pydirect.cli.common import (
    DEFAULT_LEVEL,
    DEFAULT_TEST_FRACTION,
    DIRECT_POSTERIORS,
    NETWORK_POSTERIORS,
    CommandError,
    check_output,
    print_lines,
    shortened,
    warn_user,
)
from pydirect.cli.info import (
    REPLACED,
    Classified,
    as_classified,
    column_lines,
    fit_lines,
    has_converged,
    new_metadata,
    predictions_of,
    scores_of,
    scores_text,
    structure,
)
from pydirect.cli.tables import TrainingData, check_classification, training_data
from pydirect.tables.columns import TableWarning


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    _check_options(args)
    if args.stream:
        return fit_stream(args)
    if args.test_fraction is None:
        args.test_fraction = DEFAULT_TEST_FRACTION
    data = training_data(args)
    scored: list[Any] = _hold_out(args, data) if args.test_fraction > 0.0 else []
    model = fitted(args, data, "all rows" if scored else "")
    # Without held-out rows there are no predictions to score.
    held_out = [
        scores_of(name, prediction, DEFAULT_LEVEL) for name, prediction in zip(args.target, scored, strict=False)
    ]
    model.save(args.output, metadata=new_metadata(args, len(data.X), held_out))
    if not args.quiet:
        _print_summary(args, data, model, held_out)
    if args.plot is not None:
        draw_fit(args, model, scored)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    check_model_options(args)
    if args.stream:
        check_stream_options(args)
    elif args.checkpoint is not None:
        raise CommandError("--checkpoint: only with --stream")
    named = [*args.target, *args.drop, *([args.weight] if args.weight is not None else [])]
    twice = [name for i, name in enumerate(named) if name in named[:i] or name in args.category]
    if twice:
        raise CommandError(f"column {twice[0]!r} is named twice among --target, --drop, --weight and --category")
    check_output(args.output, args.data)
    if args.plot is not None:
        check_output(args.plot, args.data)
        if args.plot.absolute() == args.output.absolute():
            raise CommandError(f"{args.plot}: named for both --output and --plot")
        check_picture(args.plot)


def _hold_out(args: argparse.Namespace, data: TrainingData) -> list[Any]:
    """Fit to a random part of the rows; return predictions of the others, one per target."""
    n = len(data.X)
    n_test = max(1, round(args.test_fraction * n))
    if n - n_test < 2:
        raise CommandError(f"{n} rows are too few to hold some out; use --test-fraction 0")
    order = np.random.default_rng(args.seed).permutation(n)
    train, test = data.rows(order[n_test:]), data.rows(order[:n_test])
    model = fitted(args, train, f"{n - n_test} rows, {n_test} held out")
    with ignored(TableWarning):  # of numbers that only rows held out lack
        if data.classes:
            return [as_classified(model, test.X, test.y)]
        return predictions_of(model, test.X, DEFAULT_LEVEL, test.y)


def check_picture(path: Path) -> None:
    """Raise unless matplotlib can write a picture of this name."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandError('--plot requires matplotlib. Install it with: pip install "pydirect[plot]"') from None
    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise CommandError(f"{path}: expected a name that ends in {', '.join('.' + name for name in formats)}")


def draw_fit(args: argparse.Namespace, model: Any, scored: list[Any]) -> None:
    """Draw held-out predictions, if any, and the ELBO of the fit, or of draws about it."""
    from matplotlib.figure import Figure

    from pydirect.persistence.container import atomic_open
    from pydirect.plotting import (
        CalibrationDisplay,
        ELBODisplay,
        PredictionIntervalDisplay,
        ReliabilityDisplay,
        SequentialDisplay,
    )

    n_rows, n_columns = max(1, len(scored)), 1 if not scored else 2 if hasattr(model, "classes_") else 3
    figure = Figure(figsize=(5.2 * n_columns, 4.2 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for row, name, p in zip(axes, args.target, scored, strict=False):
        if isinstance(p, Classified):
            ReliabilityDisplay(*p.events(), name=name).plot(ax=row[0])
            continue
        intervals = PredictionIntervalDisplay(p.y, p.mean, p.lower, p.upper, level=DEFAULT_LEVEL)
        intervals.plot(ax=row[0], target_name=name)
        CalibrationDisplay(p.pit).plot(ax=row[1])
    first = model.posteriors_[0]
    if hasattr(first, "log_weights"):
        SequentialDisplay.from_estimator(model, ax=axes[0, -1])
    else:
        ELBODisplay.from_estimator(model, ax=axes[0, -1])
    for row in axes[1:]:
        row[-1].remove()
    with atomic_open(args.plot) as file:
        figure.savefig(file, format=args.plot.suffix[1:].lower())


def check_stream_options(args: argparse.Namespace) -> None:
    """Raise unless the options can be combined with --stream."""
    for option, given in (
        ("--test-fraction", args.test_fraction),
        ("--plot", args.plot is not None),
        (f"--model {args.model}", args.model != "direct"),
        ("--missing-value", bool(args.missing_value)),
        ("--decimal", args.decimal is not None),
    ):
        if given:
            raise CommandError(f"{option}: not with --stream")
    if not args.data.is_dir() and args.data.suffix != ".parquet":
        raise CommandError(f"{args.data}: --stream reads .parquet files and folders of them")
    if args.checkpoint is not None:
        check_output(args.checkpoint, args.data)
        if args.checkpoint.absolute() == args.output.absolute():
            raise CommandError(f"{args.checkpoint}: named for both --output and --checkpoint")


def fit_stream(args: argparse.Namespace) -> int:
    """Fit to Parquet files in blocks of rows."""
    from pydirect.streams.parquet import ParquetSource
    from pydirect.tables.buffer import Codebook, LabelCodes

    classes = args.task == "classification" or (args.task == "auto" and _holds_labels(args))
    check_classification(args, classes)
    if classes and args.checkpoint is not None:
        raise CommandError("--checkpoint: not with classes and --stream")
    source = ParquetSource(
        args.data,
        tuple(args.target),
        args.weight,
        args.drop,
        one_dimensional=len(args.target) == 1,
        labels=LabelCodes() if classes else None,
        codes=Codebook(gaps=args.on_missing != "error"),
    )
    model = new_model(args, classes)
    checkpoint = {} if classes else {"checkpoint": args.checkpoint}
    with convergence_warnings_ignored():
        model.fit_stream(source, drop_missing=args.drop_missing or args.on_missing == "skip", **checkpoint)
    finish(model, "the fit")
    model.save(args.output, metadata=new_metadata(args, source.n_rows, []))
    if not args.quiet:
        rows = ("rows", _rows_text(source.n_rows, _n_used(args, model, source.n_rows)))
        lacking = [source.names[j] for j in model.columns_.lacking]
        missing = [("missing", f"{shortened(lacking)}: {REPLACED}")] if lacking and not args.drop_missing else []
        print_lines([rows, *column_lines(model), *missing, ("model", structure(model)), *fit_lines(args, model)])
    return 0


def _holds_labels(args: argparse.Namespace) -> bool:
    """Whether a target column of the first file holds text or booleans."""
    from pyarrow import parquet, types

    file = min(args.data.rglob("[!_.]*.parquet"), default=None) if args.data.is_dir() else args.data
    schema = {} if file is None else {column.name: column.type for column in parquet.read_schema(file)}
    text = (types.is_string, types.is_large_string, types.is_string_view, types.is_boolean, types.is_dictionary)
    return any(is_kind(schema[name]) for name in args.target if name in schema for is_kind in text)


def _n_used(args: argparse.Namespace, model: Any, n_rows: int) -> int:
    """Return the number of rows that were fitted to, as far as the model knows it."""
    if hasattr(model, "statistics_"):
        return int(model.statistics_.n_rows)
    return n_rows if args.weight is not None else int(model.n_samples_)


def _rows_text(n_rows: int, n_used: int) -> str:
    return f"{n_used} ({n_rows - n_used} with missing values or no weight left out)" if n_used < n_rows else f"{n_used}"


def _print_summary(args: argparse.Namespace, data: TrainingData, model: Any, held_out: list[dict[str, Any]]) -> None:
    """Print the summary of a fit to a table."""
    dropped = f" ({data.n_dropped} with missing values left out)" if data.n_dropped else ""
    lines = [("rows", f"{len(data.X)}{dropped}"), *column_lines(model)]
    lines += [("missing", text) for text in _missing_texts(model, data)]
    lines.append(("model", structure(model)))
    for scores in held_out:
        lines.append((f"held out, {scores['target']}", scores_text(scores)))
    if held_out:
        lines.append(("", f"the model below was then fitted to all {len(data.X)} rows"))
    print_lines(lines + fit_lines(args, model))


def _missing_texts(model: Any, data: TrainingData) -> list[str]:
    """Return what was missing among numbers and among categories, and what became of it."""
    counts = model.columns_.missing(data.X).sum(axis=0)
    found: dict[bool, list[str]] = {True: [], False: []}
    for name, count, own in zip(data.X.names or (), counts, model.columns_.categories, strict=True):
        if count and own != () and count < len(data.X):
            found[own is None].append(f"{name} {count}")
    became = {True: REPLACED, False: "a category of its own"}
    return [f"{shortened(names)}: {became[numbers]}" for numbers, names in found.items() if names]


# --- the estimator that the options choose


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


_OPTIONS = {"n_threads": "--threads", "random_state": "--seed", "verbose": "--quiet", "categories": "--category"}


def new_model(args: argparse.Namespace, classes: bool) -> Any:
    """Return the unfitted estimator that the options describe."""
    estimator, objects = estimator_of(args, classes), _objects(args)
    known = set(estimator().get_params(deep=False)) - {"columns"}
    known.update(*(fields for fields, _ in objects.values()))
    parameters = {name: value for name, value in _given(args).items() if value is not None}
    for name, value in args.set:
        if name in _OPTIONS:
            raise CommandError(f"--set {name}: use {_OPTIONS[name]}")
        if name not in known:
            raise CommandError(f"--set {name}: {_unknown(estimator.__name__, name, known)}")
        if name in parameters:
            raise CommandError(f"--set {name}: given twice")
        parameters[name] = value
    for name, (fields, make) in objects.items():
        own = {field: parameters.pop(field) for field in fields if field in parameters}
        if own:
            parameters[name] = make(**own)
    return estimator(n_threads=args.threads, random_state=args.seed, verbose=0 if args.quiet else 1, **parameters)


def _objects(args: argparse.Namespace) -> dict[str, tuple[Collection[str], Callable[..., Any]]]:
    """Return fields of the objects that parameters of the estimator take, and what makes these of some fields."""
    if args.model == "network":
        return {}
    if args.model != "direct":
        from pydirect.networks.training import TrainingSchedule

        return {"schedule": ([field.name for field in dataclasses.fields(TrainingSchedule)], _schedule)}
    from pydirect import Columns
    from pydirect.estimators.choices import as_features, as_posterior

    posterior = as_posterior(_posterior(args) or "gaussian")
    features = as_features(args.features or "auto", posterior)[1]
    defaults = {"posterior": posterior, "features": features, "columns": Columns()}
    return {name: (list(each.get_params()), each.set_params) for name, each in defaults.items()}


def _schedule(**fields: Any) -> Any:
    from pydirect.networks.training import TrainingSchedule

    try:
        return TrainingSchedule(**fields)
    except (TypeError, ValueError) as error:
        raise CommandError(f"--set {error}") from None


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


def _unknown(estimator: str, name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name.replace("-", "_"), known, 1)
    if close:
        return f"{estimator} has no such parameter; do you mean {close[0]}?"
    return f"{estimator} has no such parameter, but {', '.join(sorted(set(known) - set(_OPTIONS)))}"
