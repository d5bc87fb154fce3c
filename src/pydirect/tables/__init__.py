"""Tables: frames and arrays with text and gaps as columns, codes and matrices of numbers, and buffered rows."""

from __future__ import annotations

from typing import Any

__all__ = ["Columns", "TableWarning"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # on first use: the room's other files do without scikit-learn
        from pydirect.tables import columns

        return getattr(columns, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
