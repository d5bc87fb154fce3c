"""Text of C99 headers: conditional templates, tables of numbers, macros."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Mapping, Set
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH = 116
# Counters of the generated code have 16 bits.
LARGEST_COUNT = 65535
C_TYPES = {
    np.dtype(np.int8): "int8_t",
    np.dtype(np.uint8): "uint8_t",
    np.dtype(np.int16): "int16_t",
    np.dtype(np.uint16): "uint16_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.uint32): "uint32_t",
    np.dtype(np.int64): "int64_t",
    np.dtype(np.uint64): "uint64_t",
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}


def template(name: str, conditions: Set[str]) -> str:
    """Return the lines of a template whose conditions hold.

    ``//@if word`` … ``//@else`` … ``//@end`` keeps the first part where `word` is among the conditions, else the
    second; they nest.
    """
    text = resources.files("pydirect.quantized.export").joinpath("templates", name).read_text(encoding="ascii")
    kept, holds = [], [True]
    for line in text.splitlines():
        directive, _, word = line.removeprefix("//@").partition(" ") if line.startswith("//@") else ("", "", "")
        if directive == "if":
            holds.append(word in conditions)
        elif directive == "else":
            holds[-1] = not holds[-1]
        elif directive == "end":
            holds.pop()
        elif all(holds):
            kept.append(line)
    return "\n".join(kept) + "\n"


def table(name: str, values: ArrayLike, storage: str = "static const", mark: str = " PD_TABLE") -> str:
    """Return the definition of a constant array; C has no empty arrays, so one without values gets a zero."""
    array = np.asarray(values)
    flat = array.ravel() if array.size else np.zeros(1, dtype=array.dtype)
    numbers = ", ".join(_literals(flat))
    lines = textwrap.fill(numbers, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
    return f"{storage} {C_TYPES[array.dtype]} {name}[{flat.size}]{mark} = {{\n{lines}\n}};\n"


def _literals(values: NDArray[Any]) -> Iterable[str]:
    """Return literals that compile to exactly these numbers."""
    kind = values.dtype
    if kind == np.float32:
        return (f"{_decimal(v, 9)}f" for v in values.tolist())
    if kind == np.float64:
        return (_decimal(v, 17) for v in values.tolist())
    if kind == np.int64:
        return (f"INT64_C({v})" for v in values.tolist())
    if kind == np.uint64:
        return (f"UINT64_C({v})" for v in values.tolist())
    if kind == np.uint32:
        return (f"UINT32_C({v})" for v in values.tolist())
    if kind == np.int32:  # the smallest one has no literal
        return (f"INT32_C({v})" if v > -(2**31) else "-INT32_C(2147483647) - 1" for v in values.tolist())
    return map(str, values.tolist())


def _decimal(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return text if re.search(r"[.e]", text) else text + ".0"


def require_counts(counts: Mapping[str, int]) -> None:
    """Raise ValueError when a count exceeds 16 bits."""
    for name, count in counts.items():
        if count > LARGEST_COUNT:
            raise ValueError(f"{name} must be at most {LARGEST_COUNT} in exported code, got {count}")


def definitions(values: dict[str, int | str]) -> str:
    """Return definitions of macros."""
    return "".join(f"#define PD_{name} {value}\n" for name, value in values.items())


def checked_prefix(prefix: str) -> str:
    """Validate a prefix of names, and strip trailing underscores.

    Raises ValueError when names with it would not be C identifiers.
    """
    if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise ValueError(f"prefix must be letters, digits and underscores, a letter first, got {prefix!r}")
    return prefix.rstrip("_")


def header(comment: str, body: str, prefix: str) -> str:
    """Return a complete header: a comment with a digest of the rest, the guard, and the body with prefixed names.

    The guard allows including the same header twice, and refuses another model with the same prefix.
    """
    body = re.sub(r"\bpd_", f"{prefix}_", re.sub(r"\bPD_", f"{prefix.upper()}_", body))
    guard = f"{prefix.upper()}_H"
    digest = hashlib.blake2b(body.encode("ascii"), digest_size=8).hexdigest()
    mark = f"{prefix.upper()}_DIGEST_{digest}"
    # Neither the end of the comment nor a trigraph.
    comment = comment.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("??", "? ?")
    return (
        f"/* {comment}\n\n   Digest of what follows: {digest}. */\n\n"
        f"#ifndef {guard}\n#define {guard}\n#define {mark}\n\n{body}\n"
        f"#ifdef __cplusplus\n}}\n#endif\n\n#elif !defined({mark})\n"
        '#error "another model of this prefix is included already: export one of them with another prefix="\n#endif\n'
    )
