"""`pydirect info`: what a file holds."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

import pydirect
from pydirect.cli.fit import summary_of
from pydirect.cli.predict import scores_text, stored_by_fit
from pydirect.persistence.container import KindError, describe


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    description = describe(args.model)
    try:
        model = pydirect.load(args.model)
    except KindError:
        model = None
    if args.json:
        names = () if model is None else ("elbo_", "n_iter_", "converged_", "total_weight_", "fit_seconds_")
        facts = {name[:-1]: getattr(model, name) for name in names}
        print(json.dumps(asdict(description) | facts, indent=2, allow_nan=False))
        return
    library = description.header.get("library", "another version")
    print(f"{args.model}: {description.kind}, {description.file_size} bytes, written by pydirect {library}.")
    if model is not None:
        stored = stored_by_fit(model)
        if stored["targets"]:
            print(f"Predicts {', '.join(stored['targets'])} from {', '.join(model.columns_.raw_names)}.")
        print(*(f"Held out, {line}" for line in scores_text(stored["held_out"])), summary_of(model), sep="\n")
    sizes = sorted(((info.nbytes, name, info) for name, info in description.arrays.items()), reverse=True)
    total = sum(size for size, *_ in sizes)
    largest = ", ".join(f"{name} {info.dtype} {info.shape}" for size, name, info in sizes[:5] if size > 0.05 * total)
    print(f"{len(sizes)} arrays of {total} bytes, the largest: {largest}; --json lists them.")
