"""`pydirect info`: what a file holds."""

from __future__ import annotations

import argparse
import json
import os

import pydirect
from pydirect.cli.fit import summary_of
from pydirect.cli.predict import columns_of, scores_text, stored_by_fit
from pydirect.persistence.container import FORMAT_VERSION, KindError, read


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    document, file_size = read(args.model), os.path.getsize(args.model)
    try:
        model = pydirect.load(args.model)
    except KindError:
        model = None
    if args.json:
        names = () if model is None else ("elbo_", "n_iter_", "converged_", "total_weight_", "fit_seconds_")
        facts = {name[:-1]: getattr(model, name) for name in names}
        parts = {k: {"dtype": a.dtype.name, "shape": a.shape, "nbytes": a.nbytes} for k, a in document.arrays.items()}
        facts |= {"kind": document.kind, "header": document.header, "arrays": parts}
        facts |= {"format_version": FORMAT_VERSION, "file_size": file_size}
        print(json.dumps(facts, indent=2, allow_nan=False))
        return
    library = document.header.get("library", "another version")
    print(f"{args.model}: {document.kind}, {file_size} bytes, written by pydirect {library}.")
    if model is not None:
        stored = stored_by_fit(model)
        if stored["targets"]:
            more = [f"; {name}: {', '.join(columns_of({name: own}))}" for name, own in stored["arguments"].items()]
            inputs = ", ".join(model.columns_.raw_names) + "".join(more)
            print(f"Predicts {', '.join(stored['targets'])} from {inputs}.")
        print(*(f"Held out, {line}" for line in scores_text(stored["held_out"])), summary_of(model), sep="\n")
    arrays = sorted(document.arrays.items(), key=lambda item: -item[1].nbytes)
    total = sum(array.nbytes for _, array in arrays)
    largest = ", ".join(f"{name} {own.dtype} {own.shape}" for name, own in arrays[:5] if own.nbytes > 0.05 * total)
    print(f"{len(arrays)} arrays of {total} bytes, the largest: {largest}; --json lists them.")
