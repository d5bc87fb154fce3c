"""Saved values: dataclasses whose annotations say which arrays and numbers a file may hold.

One function writes a dataclass, one reads it and verifies every field before the object exists::

    @dataclass(frozen=True)
    class LogVariance:
        basis: Annotated[Basis, Binds(n_weights="n_functions")]
        location: Annotated[FloatArray, Shape("n_outputs")]
        scale: Annotated[FloatArray, Shape("n_outputs"), Positive]
        mean_missing: Annotated[float, AtLeast(0.0)]
        posterior: GaussianPosterior | None

    header, arrays = pack(value)
    value = unpack(LogVariance, header, arrays)

Fields hold ``str``, ``int``, ``float``, ``bool``, ``None``, ``Literal``, NumPy arrays, dataclasses, unions of these (of
dataclasses the header's ``kind`` chooses), and tuples, lists and ``dict[str, ...]`` of these. Arrays have exactly
the annotated dtype and are finite and at most `LARGEST_NUMBER` in magnitude, unless a marker says otherwise. A name in
`Shape` has one size in a dataclass and in all that it contains; `Binds` adds sizes that a part has as attributes. What
annotations cannot say stands in a method ``check(self)``, which runs once the fields are known to be right.

A class whose fields are not what files should hold has ``to_saved(self)``, which returns a dataclass that has them: its
own, whose ``__post_init__`` takes them, or another, with the class method ``from_saved(cls, saved: ThatDataclass)``.
Fields with the metadata `NOT_STORED` are not in files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from pydirect._validation import short_repr

# Bound on the numbers of a fitted model except raw inputs: products of three of them do not overflow.
LARGEST_NUMBER = 1e100
_LARGEST_INTEGER = 2**63 - 1
_LARGEST_TEXT = 2**24
_ARRAY = "array"  # key of the name of an array in its place in the header
_LABELS = {"dtype", "values"}  # keys of an array of text or objects, which stands in the header
_SCALARS = (str, int, float, bool)

NOT_STORED = {"stored": False}  # metadata of fields
Header = dict[str, Any]
Arrays = dict[str, np.ndarray]
Sizes = dict[str, int]
T = TypeVar("T")


# ---------------------------------------------------------------------------------------------------------- markers


class Shape:
    """Shape of an array, or the length of a tuple, list or dict.

    A size is an int, a name (1 or more, the same wherever it occurs), a name with a star (0 or more), or alternatives
    such as ``"n_weights or 1"``, of which the name is bound by what is none of the others.
    Several `Shape` markers are alternatives with different numbers of dimensions.
    """

    def __init__(self, *sizes: int | str) -> None:
        self.sizes = sizes

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.sizes)) + ("," if len(self.sizes) == 1 else "") + ")"

    def bind(self, shape: tuple[int, ...], sizes: Sizes) -> bool:
        """Whether an array's shape is this one; names that are not in `sizes` yet are added."""
        return all(_bind(text, size, sizes) for text, size in zip(self.sizes, shape, strict=True))


def _bind(text: int | str, size: int, sizes: Sizes) -> bool:
    parts = str(text).split(" or ")
    if size in [sizes.get(part.rstrip("*"), int(part) if part.isdigit() else None) for part in parts]:
        return True
    for part in parts:
        name = part.rstrip("*")
        if not part.isdigit() and name not in sizes and (size > 0 or part.endswith("*")):
            sizes[name] = size
            return True
    return False


@dataclasses.dataclass(frozen=True)
class Size:
    """An integer that is the size of this name in the shapes of its dataclass."""

    name: str


class Binds:
    """Sizes that a part gives to the dataclass that holds it, as attributes: ``Binds(n_weights="n_functions")``."""

    def __init__(self, **attributes: str) -> None:
        self.attributes = attributes


class Frees:
    """Sizes that a part does not share with what holds it, and has of its own: ``Frees("n_inputs")``."""

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclasses.dataclass(frozen=True)
class As:
    """What files hold where the annotation is wider: ``Annotated[Any, As(tuple[int, ...])]``."""

    hint: Any


@dataclasses.dataclass(frozen=True)
class Rule:
    """A range of a number or of the entries of an array, with its words after "must be"."""

    words: str
    holds: Any


def AtLeast(low: float) -> Rule:
    """Numbers of at least a bound."""
    return Rule(f"at least {low:g}", lambda x: x >= low)


def AtMost(high: float) -> Rule:
    """Numbers of at most a bound."""
    return Rule(f"at most {high:g}", lambda x: x <= high)


def Between(low: float, high: float) -> Rule:
    """Numbers from one bound to another, both included."""
    return Rule(f"from {low:g} to {high:g}", lambda x: (x >= low) & (x <= high))


def OneOf(*values: Any) -> Rule:
    """One of some values."""
    return Rule(f"one of {', '.join(map(repr, values))}", lambda x: np.isin(x, values))


Positive = Rule("positive", lambda x: x > 0)
Ascending = Rule("ascending along the last axis", lambda x: np.diff(x) >= 0)
Probabilities = Rule(
    "probabilities along the last axis", lambda x: (x >= 0).all() and np.allclose(x.sum(axis=-1), 1, rtol=0, atol=1e-6)
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the numbers of an array must be at least; the default, without a marker, is ``Limits(LARGEST_NUMBER)``."""

    largest: float
    words: str = "finite"
    lowest: float | None = None  # -largest by default
    nan: bool = False

    def hold(self, x: np.ndarray) -> bool:
        """Whether all numbers are within the limits."""
        # A bound beyond single precision would become infinite there.
        highest = self.largest if np.isinf(self.largest) else min(self.largest, float(np.finfo(x.dtype).max))
        within = (x >= (-highest if self.lowest is None else self.lowest)) & (x <= highest)
        return bool((within | np.isnan(x) if self.nan else within).all())


_FINITE = Limits(LARGEST_NUMBER, f"finite and at most {LARGEST_NUMBER:g} in magnitude")
AnyFinite = Limits(float(np.finfo(float).max))
LogMasses = Limits(float(np.finfo(float).max), "below infinity", -np.inf)
AnyNumbers = Limits(np.inf, "numbers", nan=True)


@dataclasses.dataclass(frozen=True)
class Indices:
    """Integers from 0 to below the size of this name, which other fields or the caller must give."""

    size: str


# ---------------------------------------------------------------------------------------------------------- writing


def pack(value: Any, name: str = "model", arrays: Arrays | None = None) -> tuple[Header, Arrays]:
    """Return the header of a dataclass and its arrays by name; an array that several fields share is kept once.

    `arrays`: arrays of other values for the same file, to which those of this value are added.
    """
    arrays = {} if arrays is None else arrays
    names = {id(array): key for key, array in arrays.items()}
    return _packed(value, name, arrays, names), arrays


class Digested:
    """Something that is saved, of a short text and with a digest of its content."""

    __repr__ = short_repr

    @property
    def digest(self) -> str:
        """Digest of all that is saved: models with equal digests predict the same bits."""
        header, arrays = pack(self)
        found = hashlib.blake2b(json.dumps(header, sort_keys=True, default=repr).encode(), digest_size=16)
        for name in sorted(arrays):
            found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
            found.update(arrays[name].tobytes())
        return found.hexdigest()


def _packed(value: Any, name: str, arrays: Arrays, names: dict[int, str]) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        values = value.tolist()
        if value.ndim != 1 or not all(isinstance(label, _SCALARS) for label in values):
            raise TypeError(f"{name} must be numbers or strings to be saved, got {value.dtype} {value}")
        return {"dtype": value.dtype.str, "values": values}
    if isinstance(value, np.ndarray):
        key = names.setdefault(id(value), name)
        arrays[key] = value
        return {_ARRAY: key}
    header = {"kind": kind_of(type(value))}
    if hasattr(value, "to_saved"):
        value = value.to_saved()
    if dataclasses.is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in _stored(type(value))}
        return header | {key: _packed(part, f"{name}.{key}", arrays, names) for key, part in parts.items()}
    if isinstance(value, Mapping):  # keys are any text, names of arrays are not
        return {key: _packed(part, f"{name}.{i}", arrays, names) for i, (key, part) in enumerate(value.items())}
    if isinstance(value, list | tuple):
        return [_packed(part, f"{name}.{i}", arrays, names) for i, part in enumerate(value)]
    return value


def kind_of(cls: Any) -> str:
    """Return the name of a dataclass in headers."""
    return str(getattr(cls, "kind", cls.__name__))


def _stored(cls: Any) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(cls) if f.init and f.metadata.get("stored", True)]


# ---------------------------------------------------------------------------------------------------------- reading


def unpack(cls: type[T] | Sequence[type], header: Any, arrays: Arrays, name: str = "model", **sizes: int) -> T:
    """Rebuild a dataclass of a class, or of the one of several that the header's ``kind`` names, and verify it.

    `name`: for messages. `sizes`: known sizes of names in its shapes. Raises TypeError or ValueError, with the field.
    """
    classes: Any = tuple(cls) if isinstance(cls, Sequence) else (cls,)
    return _restored(Union[classes], header, arrays, name, sizes)  # noqa: UP007


def require_all_used(header: Any, arrays: Iterable[str]) -> None:
    """Raise if there are arrays to which the header does not refer: a misnamed array would be lost at the next save."""
    unused = set(arrays) - set(_references(header))
    if unused:
        raise ValueError(f"the header does not refer to the arrays {', '.join(map(repr, sorted(unused)))}")


def _references(entry: Any) -> Iterable[str]:
    if isinstance(entry, dict) and entry.keys() == {_ARRAY} and isinstance(entry[_ARRAY], str):
        yield entry[_ARRAY]
    elif isinstance(entry, dict | list):
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _references(part)


def _restored(hint: Any, entry: Any, arrays: Arrays, name: str, sizes: Sizes, markers: tuple[Any, ...] = ()) -> Any:
    """Return the value of one entry, of the annotated type and within its markers."""
    option, markers = _chosen(hint, entry, arrays, name, markers)
    origin, parts = get_origin(option) or option, get_args(option)
    if option is None or origin is Literal:
        return entry
    if _is_part(origin):
        freed = {n for marker in markers if isinstance(marker, Frees) for n in marker.names}
        value = _object(origin, entry, arrays, name, {n: s for n, s in sizes.items() if n not in freed})
        for marker in markers:
            if isinstance(marker, Binds):
                _bind_attributes(marker, value, name, sizes)
        return value
    value = _content(origin, parts, entry, arrays, name, sizes)
    _verify(value, name, sizes, markers)
    return value


def _content(origin: Any, parts: tuple[Any, ...], entry: Any, arrays: Arrays, name: str, sizes: Sizes) -> Any:
    if origin is np.ndarray:
        return arrays[entry[_ARRAY]] if _ARRAY in entry else _labels(entry, name)
    if origin in _SCALARS:
        return entry
    if isinstance(entry, dict):
        return {key: _restored(parts[1], part, arrays, f"{name}[{key!r}]", sizes) for key, part in entry.items()}
    if origin is tuple and Ellipsis not in parts:
        if len(parts) != len(entry):
            raise ValueError(f"{name} must have {len(parts)} entries, got {len(entry)}")
    else:
        parts = (parts[0],) * len(entry)
    values = [_restored(p, e, arrays, f"{name}[{i}]", sizes) for i, (p, e) in enumerate(zip(parts, entry, strict=True))]
    return values if origin is list else tuple(values)


def _labels(entry: Header, name: str) -> np.ndarray:
    dtype, values = entry["dtype"], entry["values"]
    if not isinstance(dtype, str) or not re.fullmatch(r"[<>]U\d{1,6}|\|O", dtype) or not isinstance(values, list):
        raise TypeError(f"{name} must be text or objects, got {dtype!r}")
    if not all(isinstance(value, str if dtype != "|O" else _SCALARS) for value in values):
        raise TypeError(f"{name} must be numbers or strings")
    if dtype != "|O" and int(dtype[2:]) * len(values) > _LARGEST_TEXT:
        raise ValueError(f"{name} must be text of at most {_LARGEST_TEXT} characters in all")
    return np.array(values, dtype=dtype)


def _chosen(hint: Any, entry: Any, arrays: Arrays, name: str, markers: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return which of the types of an annotation an entry is of, and its markers; or raise."""
    options = _options(hint, markers)
    for option, own in options:
        if _fits(option, entry, arrays):
            return option, own
    expected = " or ".join(dict.fromkeys(_words(option) for option, _ in options))
    got = _found(entry, arrays)
    raise TypeError(f"{name} must be {expected}, got {got}")


def _options(hint: Any, markers: tuple[Any, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the types of an annotation and their markers, None as None."""
    if get_origin(hint) is Annotated:
        own = next((marker.hint for marker in hint.__metadata__ if isinstance(marker, As)), hint.__origin__)
        return _options(own, (*markers, *hint.__metadata__))
    if hasattr(alias := get_origin(hint), "__value__"):  # a type alias, as NDArray is from NumPy 2.5 on
        return _options(alias.__value__[get_args(hint)], markers)
    if hint is Hashable:
        hint = str | int | float | bool | tuple[Hashable, ...] | None
    if get_origin(hint) in (Union, types.UnionType):
        return [option for part in get_args(hint) for option in _options(part, markers)]
    if (not isinstance(get_origin(hint) or hint, type) and get_origin(hint) is not Literal) or hint in (Any, object):
        raise TypeError(f"an annotation of a stored field must say what it holds, got {hint}")
    return [(None if hint is types.NoneType else hint, markers)]


def _is_part(cls: Any) -> bool:
    """Whether values are stored as an entry with a kind."""
    return dataclasses.is_dataclass(cls) or hasattr(cls, "from_saved")


def _fits(option: Any, entry: Any, arrays: Arrays) -> bool:
    """Whether an entry is of this type, as far as it can be seen without looking inside."""
    origin = get_origin(option) or option
    if option is None:
        return entry is None
    if origin is Literal:
        return any(type(entry) is type(value) and entry == value for value in get_args(option))
    if _is_part(origin):
        return isinstance(entry, dict) and entry.get("kind") == kind_of(origin)
    if origin is np.ndarray and isinstance(entry, dict) and entry.keys() == _LABELS:
        return not _dtypes(option)
    if origin is np.ndarray:
        array = _array_of(entry, arrays)
        return array is not None and (not _dtypes(option) or array.dtype in _dtypes(option))
    if origin in _SCALARS:
        return type(entry) is origin
    return isinstance(entry, dict if issubclass(origin, Mapping) else list)


def _array_of(entry: Any, arrays: Arrays) -> np.ndarray | None:
    if isinstance(entry, dict) and entry.keys() == {_ARRAY} and isinstance(entry[_ARRAY], str):
        return arrays.get(entry[_ARRAY])
    return None


@cache
def _dtypes(hint: Any) -> tuple[np.dtype, ...]:
    """Return the dtypes of ``NDArray[...]``; none if it allows all."""
    if not get_args(hint):
        return ()
    scalar = get_args(get_args(hint)[1])[0]
    scalars = get_args(scalar) if get_origin(scalar) in (Union, types.UnionType) else (scalar,)
    return () if Any in scalars else tuple(np.dtype(s) for s in scalars)


def _words(option: Any) -> str:
    origin = get_origin(option) or option
    if origin is np.ndarray:
        return f"{' or '.join(map(str, _dtypes(option)))} array".strip()
    if origin is Literal:
        return f"one of {', '.join(map(repr, get_args(option)))}"
    if option is None or origin is str or not issubclass(origin, Sequence):
        return "None" if option is None else kind_of(origin)
    return "list"


def _found(entry: Any, arrays: Arrays) -> str:
    array = _array_of(entry, arrays)
    if array is not None:
        return f"{array.dtype} array"
    if isinstance(entry, dict) and entry.keys() == {_ARRAY}:
        return f"no array of the name {entry[_ARRAY]!r}"
    kind = entry.get("kind") if isinstance(entry, dict) else None
    return repr(kind) if isinstance(kind, str) else repr(entry) if isinstance(entry, str) else type(entry).__name__


# ---------------------------------------------------------------------------------------------------------- objects


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Return the annotations of the stored fields in the order in which they are read, which binds sizes early."""
    hints = get_type_hints(cls, include_extras=True)
    own = {f.name: hints[f.name] for f in _stored(cls)}

    def rank(name: str) -> int:
        markers = [marker for _, markers in _options(own[name]) for marker in markers]
        for place, kind in enumerate((Indices, Size | Shape, Binds)):
            if any(isinstance(marker, kind) for marker in markers):
                return place or 4  # indices are compared with sizes that all others bind
        return 3

    return {name: own[name] for name in sorted(own, key=rank)}


def _object(cls: Any, entry: Header, arrays: Arrays, name: str, sizes: Sizes) -> Any:
    if hasattr(cls, "from_saved"):
        saved = get_type_hints(cls.from_saved)["saved"]
        return cls.from_saved(_object(saved, entry, arrays, name, sizes))
    hints, sizes = _hints(cls), dict(sizes)
    if entry.keys() != hints.keys() | {"kind"}:
        wrong = sorted(entry.keys() ^ (hints.keys() | {"kind"}))
        raise ValueError(f"{name} must have the entries {', '.join(sorted(hints))}; see {', '.join(map(repr, wrong))}")
    values = {key: _restored(hint, entry[key], arrays, f"{name}.{key}", sizes) for key, hint in hints.items()}
    value = cls(**values)
    if hasattr(value, "check"):
        value.check()
    return value


def _bind_attributes(marker: Binds, value: Any, name: str, sizes: Sizes) -> None:
    for size_name, attribute in marker.attributes.items():
        size = getattr(value, attribute)
        if sizes.setdefault(size_name, size) != size:
            raise ValueError(f"{name}: {attribute} must be {sizes[size_name]}, the {size_name} of the rest, got {size}")


def _verify(value: Any, name: str, sizes: Sizes, markers: tuple[Any, ...]) -> None:
    shapes = [marker for marker in markers if isinstance(marker, Shape)]
    shape = value.shape if isinstance(value, np.ndarray) else (len(value),) if shapes else ()
    if shapes and not any(len(own.sizes) == len(shape) and own.bind(shape, sizes) for own in shapes):
        known = {n: s for n, s in sizes.items() if any(n in str(own) for own in shapes)}
        where = f" where {', '.join(f'{n} = {s}' for n, s in known.items())}" if known else " of 1 or more"
        raise ValueError(f"{name} must have shape {' or '.join(map(str, shapes))}{where}, got {shape}")
    if isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind in "fc"):
        limits = next((marker for marker in markers if isinstance(marker, Limits)), _FINITE)
        if not limits.hold(np.asarray(value)):
            raise ValueError(f"{name} must be {limits.words}")
    elif type(value) is int and abs(value) > _LARGEST_INTEGER:
        raise ValueError(f"{name} must be at most {_LARGEST_INTEGER} in magnitude")
    for marker in markers:
        if isinstance(marker, Rule) and not np.all(marker.holds(value)):
            raise ValueError(f"{name} must be {marker.words}" + ("" if np.size(value) > 1 else f", got {value}"))
        if isinstance(marker, Size) and sizes.setdefault(marker.name, value) != value:
            raise ValueError(f"{name} must be {sizes[marker.name]}, the {marker.name} of the rest, got {value}")
        if isinstance(marker, Indices):
            if marker.size not in sizes:
                raise ValueError(f"{name} are indices below {marker.size}, which is not known")
            if np.min(value, initial=0) < 0 or np.max(value, initial=-1) >= sizes[marker.size]:
                raise ValueError(f"{name} must be indices below {sizes[marker.size]}, the {marker.size}")
