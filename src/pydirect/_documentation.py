"""Parameters that recur are described once: other docstrings take their descriptions from there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SECTION = r"\n\n%s\n-+\n(.+?)(?=\n\n\w+\n-+\n|\Z)"


def _described(doc: str, title: str) -> dict[str, str]:
    """Entries of a docstring's section, by name."""
    section = re.search(_SECTION % title, doc, re.DOTALL)
    entries = re.split(r"\n(?=\S)", section[1]) if section else []
    return {entry.partition(" : ")[0]: entry for entry in entries}


def _declares(owner: Any, name: str) -> bool:
    """Whether a class has an attribute, or says of which type it is."""
    return hasattr(owner, name) or any(name in vars(own).get("__annotations__", ()) for own in owner.__mro__)


def described_by(*others: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds what a docstring leaves out, as others describe it.

    Parameters of the signature, what functions return, and, of classes, attributes but for those that others alone
    declare.
    """

    def fill(function: _Function) -> _Function:
        """Add to the docstring of a function or class what it leaves out."""
        if function.__doc__:  # which python -OO removes
            doc, *sources = (inspect.cleandoc(each.__doc__ or "") for each in (function, *others))
            known = {k: v for source in (*sources, doc) for k, v in _described(source, "Parameters").items()}
            entries = [known[name] for name in inspect.signature(function).parameters if name in known]
            sections = "\n".join(["\n\nParameters\n----------", *entries])
            attributes = _described(doc, "Attributes")
            for other, source in zip(others, sources, strict=True):
                found = _described(source, "Attributes").items() if attributes else ()
                own = {k: v for k, v in found if _declares(function, k) or not _declares(other, k)}
                attributes = attributes | own | attributes
            if attributes:
                sections += "\n".join(["\n\nAttributes\n----------", *attributes.values()])
            for title in ("Parameters", "Attributes"):
                doc = re.sub(_SECTION % title, "", doc, flags=re.DOTALL)
            if inspect.isfunction(function) and not re.search(_SECTION % "Returns", doc, re.DOTALL):
                returned = (re.search(_SECTION % "Returns", source, re.DOTALL) for source in sources)
                sections += next((section[0] for section in returned if section), "")
            before, after = (*re.split(r"(?=\n\n\w+\n-+\n)", doc, maxsplit=1), "")[:2]
            function.__doc__ = f"{before}{sections}{after}\n"
        return function

    return fill


def rows() -> None:
    """Rows, as most methods take them.

    Parameters
    ----------
    X : array_like of shape (n_rows, n_features_in)
        Rows of inputs.
    y : array_like of shape (n_rows,) or (n_rows, n_outputs)
        Targets.
    sample_weight : array_like of shape (n_rows,), optional
        How many times each row counts; by default once.

    Returns
    -------
    Self
        The fitted model.
    """


takes_rows = described_by(rows)
