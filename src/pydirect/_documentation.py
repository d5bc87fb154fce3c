"""Parameters that recur are described once: other docstrings take their descriptions from there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SECTION = re.compile(r"\n\nParameters\n-+\n(.+?)(?=\n\n\w+\n-+\n|\Z)", re.DOTALL)


def _described(doc: str) -> dict[str, str]:
    """Entries of a docstring's section of parameters, by name."""
    section = _SECTION.search(doc)
    entries = re.split(r"\n(?=\S)", section[1]) if section else []
    return {entry.partition(" : ")[0]: entry for entry in entries}


def described_by(*others: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the parameters that a docstring leaves out, as other functions describe them."""

    def fill(function: _Function) -> _Function:
        if function.__doc__:  # which python -OO removes
            doc, *sources = (inspect.cleandoc(each.__doc__ or "") for each in (function, *others))
            known = {name: entry for source in (*sources, doc) for name, entry in _described(source).items()}
            entries = [known[name] for name in inspect.signature(function).parameters if name in known]
            before, after = (*re.split(r"(?=\n\n(?:Returns|Attributes)\n)", _SECTION.sub("", doc), maxsplit=1), "")[:2]
            function.__doc__ = "\n".join([f"{before}\n\nParameters\n----------", *entries]) + after + "\n"
        return function

    return fill
