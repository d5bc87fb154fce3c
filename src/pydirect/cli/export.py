"""`pydirect export`: samples of a model's posterior as a C header or an ONNX graph."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from pydirect.cli.common import CommandError, TableError, check_output, print_lines
from pydirect.cli.info import load_for_tables
from pydirect.cli.tables import InputTable, known_targets, labels_of, read_inputs
from pydirect.estimators.choices import Nystroem
from pydirect.tables.table import Table

FORMATS = {".h": "c", ".onnx": "onnx"}
LIMITS = ("max_flash", "max_bytes", "max_stack", "max_instructions", "max_nonzero")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from pydirect.quantized.c_header import to_c

    _check_options(args)
    model, targets, missing = load_for_tables(args.model)
    _check_form(args, model)
    frame = X = y = None
    if args.data is not None:
        table, inputs = read_inputs(args, args.data, model, missing)
        frame, y = inputs.X, _targets(args, model, table, targets)
        X = model.columns_.encode(frame)
    quantised = _quantised(args, model, X, y)
    if args.format == "onnx":
        quantised.to_onnx(args.output)
    else:
        to_c(
            quantised,
            args.output,
            prefix=args.prefix or "pydirect",
            level=args.interval or 0.9,
            X=X,
            columns=model.columns_.names_out,
        )
    print_lines(_summary(args, model, quantised, frame))
    return 0


def _check_options(args: argparse.Namespace) -> None:
    args.format = args.format or FORMATS.get(args.output.suffix.lower(), "c")
    args.integer = args.integer or args.format == "c"
    check_output(args.output, args.model, *([] if args.data is None else [args.data]))
    for name in ("prefix", "interval"):
        if args.format == "onnx" and getattr(args, name) is not None:
            raise CommandError(f"--{name}: only for C")
    if limit := _limit(args):
        if args.data is None:
            raise CommandError(f"{limit}: needs --data, the table that the model was fitted to")
        if args.levels == "model" or args.method is not None:
            raise CommandError(f"{limit}: not with --levels model or --method")
    elif args.target is not None:
        raise CommandError("--target: only with a limit such as --max-flash")
    elif args.levels in ("even", "power_of_two") and args.data is None:
        raise CommandError(f"--levels {args.levels}: needs --data, rows at which predictions should agree")


def _limit(args: argparse.Namespace) -> str:
    """Return the first option that limits the size; empty without one."""
    return next((f"--{name.replace('_', '-')}" for name in LIMITS if getattr(args, name) is not None), "")


def _check_form(args: argparse.Namespace, model: Any) -> None:
    """Raise, with a hint, if the model cannot be exported, not to C, or not without data."""
    from pydirect.networks.base import TrainedNetwork

    if isinstance(model.posteriors_[0], TrainedNetwork):
        raise CommandError(
            f"{args.model}: weights of a {type(model).__name__} have no levels: only a DirectRegressor, a "
            "DirectClassifier or a QuadraticBNNRegressor can be exported"
        )
    if _is_network(model) and (limit := _limit(args)):
        raise CommandError(f"{limit}: not for a network: its layers and --samples give its size")
    nystroem = not _is_network(model) and model.features_.map.kind == "nystroem"
    if args.format == "c" and not _limit(args) and nystroem:
        raise CommandError(
            "the model's features are 'nystroem', its training rows, too many for a C header: write OUT.onnx, or fit a "
            "small model to the same table with --max-flash BYTES --data TABLE, or fit with --features fourier"
        )


def _is_network(model: Any) -> bool:
    from pydirect.quadratic.network import NetworkPosterior

    return isinstance(model.posteriors_[0], NetworkPosterior)


def _targets(args: argparse.Namespace, model: Any, table: InputTable, targets: list[str]) -> np.ndarray | None:
    """Return the targets for a model of limited size: one column, several, or labels."""
    if not _limit(args):
        return None
    if args.target is not None:
        if len(args.target) != len(targets):
            raise CommandError(f"--target: the model has {len(targets)} targets, got {len(args.target)}")
        targets = args.target
    elif missing := set(targets) - set(table.names):
        raise CommandError(f"{args.data}: no column {sorted(missing)[0]!r}: name the model's targets with --target")
    table.require(targets)
    if problems := [p for name in targets if name in table.columns for p in table.missing_values(name)]:
        raise TableError.of(args.data, problems)
    if hasattr(model, "classes_"):
        return labels_of(table, targets[0])
    y = known_targets(table, targets)
    for name, known in zip(targets, ~np.isnan(y).any(axis=0), strict=True):
        if not known:
            raise CommandError(f"{args.data}: column {name!r} must hold a number in every row")
    return y[:, 0] if len(targets) == 1 else y


def _unfitted(model: Any) -> Any:
    """Return an estimator with the parameters of a model that small models within a budget take over."""
    given = model.get_params(deep=False)
    own = {k: v for k, v in given.items() if k in ("target_transform", "class_weight", "n_threads", "random_state")}
    rows = getattr(given["features"], "max_search_rows", None)
    if rows is not None:
        own["features"] = Nystroem(max_search_rows=rows)
    return type(model)(**own)


def _quantised(args: argparse.Namespace, model: Any, X: np.ndarray | None, y: np.ndarray | None) -> Any:
    from pydirect.quantized.program import IntegerArithmeticError
    from pydirect.quantized.quantize import quantize

    if _limit(args):
        from pydirect.quantized.fit_quantized import fit_quantized

        assert X is not None and y is not None  # a limit comes with data
        return fit_quantized(
            _unfitted(model),
            X,
            y,
            n_samples=args.samples,
            levels=args.levels or "even",
            **{name: getattr(args, name) for name in LIMITS},
        )
    try:
        return quantize(
            model,
            args.samples or 16,
            args.method or "moments",
            X=X,
            levels=args.levels or "model",
            arithmetic="integer" if args.integer else "float",
        )
    except IntegerArithmeticError as error:
        hint = "; write OUT.onnx" if _is_network(model) else "; --max-flash BYTES --data TABLE fits a model made for it"
        raise CommandError(f"{error}{hint}") from None


def _summary(args: argparse.Namespace, model: Any, quantised: Any, X: Table | None) -> list[tuple[str, str]]:
    from pydirect.quantized.c_header import memory_lines, size_lines

    report = quantised.report()
    lines = [
        ("wrote", f"{args.output}, {'ONNX' if args.format == 'onnx' else 'C99'}, {args.output.stat().st_size} bytes"),
        ("arithmetic", quantised.arithmetic),
        ("samples", f"{quantised.n_samples} of {report['n_basis_functions']} weights, {report['bits']} bits each"),
        # A graph stores its tables in types of its own: only the size of the file is known.
        *size_lines(report)[1 if args.format == "onnx" and "basis" in report["bytes"] else 0 :],
        *(memory_lines(report) if args.format == "c" else []),
    ]
    if quantised.arithmetic == "integer":
        bounds = quantised.program.prove()
        lines.append(("largest sum", f"{max(bounds.total, *bounds.accumulators)} of {2**31 - 1}, proved"))
    if X is not None:
        lines.append(("difference", _difference(model, quantised, X)))
    return lines


def _difference(model: Any, quantised: Any, X: Table) -> str:
    """Compare predictions with the model's at rows of X, in words."""
    encoded = model.columns_.encode(X)
    with warnings.catch_warnings():
        # The columns were found by their names.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        if hasattr(model, "classes_"):
            same = float(np.mean(model.predict(X) == quantised.predict(encoded)))
            return f"the same class as the model for {same:.1%} of {len(X)} rows"
        mean, std = model.predict(X, return_std=True)
        own, own_std = quantised.predict(encoded, return_std=True)
    size = float(np.sqrt(np.mean(((own - mean) / std) ** 2)))
    ratio = float(np.mean(own_std / std))
    return f"means differ by {size:.3g} of the model's standard deviations, which are multiplied by {ratio:.3g}"
