"""Digests of feature maps, by which statistics recognise the map that they belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def fingerprint(value: Any) -> str:
    """Return a digest of a feature map's class and everything in it, the same in every process.

    `value`: dataclasses, arrays, numbers and strings are read field by field; any other object (a scikit-learn
    transformer) by joblib's hash of its state, and one that cannot be pickled by its identity.
    """
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Callable[[Any], object], value: Any) -> None:
    if isinstance(value, np.ndarray) and value.dtype != object:
        update(f"{value.dtype.str}{value.shape}".encode())
        update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    elif is_dataclass(value) and not isinstance(value, type):
        update(f"{type(value).__name__}(".encode())
        for f in fields(value):
            if f.compare:
                update(f"{f.name}=".encode())
                _feed(update, getattr(value, f.name))
        update(b")")
    elif isinstance(value, np.generic):
        _feed(update, value.item())
    elif value is None or isinstance(value, str | int | float):
        update(f"{value!r},".encode())
    else:
        import joblib

        try:
            digest = joblib.hash(value)
        except Exception:  # it cannot be pickled: whatever its own methods raise
            digest = str(id(value))
        update(digest.encode())
