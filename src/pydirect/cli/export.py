"""`pydirect export`: samples of a model's posterior as a C header or an ONNX graph."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from pydirect.cli.main import LEVEL, LIMITS
from pydirect.cli.predict import absent, known_targets, load, read_inputs
from pydirect.cli.tables import TableFile
from pydirect.estimators.choices import Nystroem
from pydirect.quantized.c_header import size_lines, to_c
from pydirect.quantized.fit_quantized import fit_quantized
from pydirect.quantized.program import IntegerArithmeticError
from pydirect.quantized.quantize import quantize
from pydirect.tables.table import Table

# What small models within a budget take over from a model.
_OWN = ("target_transform", "class_weight", "n_threads", "random_state")
_HINT = "write OUT.onnx, or fit a small model to the same table with --max-flash BYTES --data TABLE"


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    limits = {name: value for name in LIMITS if (value := getattr(args, name)) is not None}
    onnx = args.output.suffix.lower() == ".onnx"
    if args.data is None and (limits or args.levels == "even"):
        raise ValueError("--data: limits and new levels need it, a table with rows like those of the fit")
    model, stored = load(args.model)
    file: Any = None
    table = X = None
    if args.data is not None:
        file, table = read_inputs(args, model, stored)
        X = model.columns_.encode(table)
    if limits:
        assert X is not None
        if model.columns_.effects:
            model.model_.latent.require_no_effects("programs for devices")
        y = _targets(args, model, file, args.target or stored["targets"])
        found = fit_quantized(_unfitted(model), X, y, n_samples=args.samples, **limits)
    else:
        try:
            arithmetic, levels = "float" if onnx else "integer", args.levels or "model"
            samples = 16 if args.samples is None else args.samples
            found = quantize(model, samples, X=X, levels=levels, arithmetic=arithmetic)
        except IntegerArithmeticError as error:
            raise ValueError(f"{error}; {_HINT}") from None
    if onnx:
        found.to_onnx(args.output)
    else:
        names = model.columns_.names_out
        to_c(found, args.output, prefix=args.prefix or "pydirect", level=args.interval or LEVEL, X=X, columns=names)
    report = found.report()
    weights = f"{found.n_samples} of {report['n_basis_functions']} weights, {report['bits']} bits each"
    lines = [("samples", weights), *([] if onnx else size_lines(report))]
    units = getattr(model.model_, "units", None) if limits else None
    if units is not None and units.active is not None:
        modelled = "y itself" if found.target is None else "the same"
        lines.append(("targets", f"{modelled}; the model's own scale is {units.active}"))
    if table is not None:
        lines.append(("difference", _difference(model, found, table, X)))
    print(f"Written {args.output}, {args.output.stat().st_size} bytes, {found.arithmetic} arithmetic.")
    print("\n".join(f"{label:16}  {text}" for label, text in lines))


def _targets(args: argparse.Namespace, model: Any, file: TableFile, names: list[str]) -> np.ndarray:
    """Return the targets for a model of limited size: one column, several, or labels."""
    if not names:
        raise ValueError("--target: name the model's target in --data, which a model saved from Python does not")
    file.require(names)
    columns = [known_targets(model, file, name, np.ones(file.n_rows, dtype=bool)) for name in names]
    for name, own in zip(names, columns, strict=True):
        if absent(own).any():
            raise ValueError(f"{args.data}: column {name!r} must have a value in every row")
    y = np.column_stack([np.array(own.tolist()) for own in columns])
    return y[:, 0] if len(columns) == 1 else y


def _unfitted(model: Any) -> Any:
    """Return an estimator with the parameters of a model that small models within a budget take over."""
    given = model.get_params(deep=False)
    own = {name: value for name, value in given.items() if name in _OWN}
    rows = getattr(given.get("features"), "max_search_rows", None)
    return type(model)(**own, **({} if rows is None else {"features": Nystroem(max_search_rows=rows)}))


def _difference(model: Any, quantised: Any, table: Table, X: Any) -> str:
    """Compare predictions with the model's at rows of a table, in words."""
    if hasattr(model, "classes_"):
        same = float(np.mean(model.predict(table) == quantised.predict(X)))
        return f"the same class as the model for {same:.1%} of {len(X)} rows"
    (mean, std), (own, own_std) = model.predict(table, return_std=True), quantised.predict(X, return_std=True)
    size, ratio = float(np.sqrt(np.mean(((own - mean) / std) ** 2))), float(np.mean(own_std / std))
    return f"means differ by {size:.3g} of the model's standard deviations, which are multiplied by {ratio:.3g}"
