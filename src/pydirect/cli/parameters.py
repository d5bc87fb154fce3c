"""`--set NAME=VALUE`: parameters of an estimator that have no option of their own."""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
from collections.abc import Collection, Iterable
from typing import Any

from pydirect.cli.common import CommandError

_OPTIONS = {"n_threads": "--threads", "random_state": "--seed", "verbose": "--quiet", "categories": "--category"}
_WORDS = {"true": True, "false": False, "none": None}


def setting(text: str) -> tuple[str, Any]:
    """Return name and value in an argument of `--set`: a number, a list, true, false, none, or else text."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    if value.lower() in _WORDS:
        return name, _WORDS[value.lower()]
    with contextlib.suppress(ValueError, SyntaxError):
        return name, ast.literal_eval(value)
    return name, value


def with_settings(estimator: Any, given: dict[str, Any], settings: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the parameters `given` by options of their own, and those of `--set`; raise unless they are different.

    `estimator`: the class whose parameters they are.
    """
    known = estimator().get_params(deep=False)
    parameters = dict(given)
    for name, value in settings:
        if name in _OPTIONS:
            raise CommandError(f"--set {name}: use {_OPTIONS[name]}")
        if name not in known:
            raise CommandError(f"--set {name}: {_unknown(estimator.__name__, name, known)}")
        if name in parameters:
            raise CommandError(f"--set {name}: given twice")
        parameters[name] = value
    return parameters


def _unknown(estimator: str, name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name.replace("-", "_"), known, 1)
    if close:
        return f"{estimator} has no such parameter; do you mean {close[0]}?"
    return f"{estimator} has no such parameter, but {', '.join(sorted(set(known) - set(_OPTIONS)))}"
