"""Fuzzing of saved files: reading a randomly damaged file must refuse it or return what it holds.

Run as ``python tests/persistence/fuzz_files.py DIRECTORY --mutations 12000 --seed 0``. The current file stays in
DIRECTORY, where one that crashes the process can be examined. The last line on standard output is a JSON object of
counts.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from test_container import mutate_and_sign, mutate_bytes, mutate_length_fields, rebuilt, split

import pydirect
from pydirect import Fourier, Gaussian, MeanField, Sequential, persistence, quantized
from pydirect.estimators._estimator import as_json
from pydirect.persistence.container import FORMAT_VERSION

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((14, 2)), RNG.standard_normal((3, 2)) * 2
Y = X[:, 0] + 0.3 * X[:, 1] ** 2 + 0.1 * RNG.standard_normal(14)
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, [-0.5, 0.5])]
# Beyond the memory of the process when the campaign begins.
MEMORY = 300 * 2**20


@dataclass(frozen=True)
class Subject:
    """A file and how to read it: `read` raises FileFormatError or returns the content, `check` raises unless valid."""

    content: bytes
    document: persistence.Document
    read: Callable[[Path], Any]
    check: Callable[[Any, Path], None]


# ------------------------------------------------------------------------------------------------------------ models


def regressor(**parameters: Any) -> Any:
    parameters = {"posterior": Gaussian(n_noise_levels=3), **parameters}
    return pydirect.DirectRegressor(n_basis_functions=8, **parameters).fit(X, Y)


def classifier(labels: np.ndarray, **parameters: Any) -> Any:
    return pydirect.DirectClassifier(n_basis_functions=8, **parameters).fit(X, labels)


def buffered_rows() -> Any:
    table = np.array([[x, "ab"[k % 2]] for k, x in enumerate(X[:, 0])], dtype=object)
    return pydirect.DirectRegressor("linear", posterior=Gaussian(n_noise_levels=3)).partial_fit(table, Y)


def network() -> Any:
    return pydirect.QuadraticBNNRegressor((2,), n_levels=5, n_restarts=1).fit(X, Y)


def network_with_coreset() -> Any:
    return pydirect.QuadraticBNNRegressor((2,), n_levels=5, n_restarts=1).partial_fit(X[:, :1], Y)


MODELS: dict[str, Callable[[], Any]] = {
    "decorrelated Nystroem": lambda: regressor(),
    "Fourier, two outputs": lambda: pydirect.DirectRegressor("fourier", 8).fit(X, np.c_[Y, -Y]),
    "raw Fourier": lambda: regressor(posterior=Sequential(n_levels=3)),
    "raw linear, spike and slab": lambda: regressor(
        features="linear", posterior=Sequential(prior=pydirect.SpikeAndSlabPrior(), levels=[[-1.0, 0.0, 1.0]])
    ),
    "mixture": lambda: regressor(features="linear", posterior=MeanField(n_levels=3, n_components=2)),
    "counts": lambda: pydirect.DirectCountRegressor("linear").fit(X, np.arange(14)),
    "stream": lambda: pydirect.DirectStreamRegressor(n_basis_functions=8, n_first_rows=8).partial_fit(X, Y),
    "polynomial": lambda: regressor(features="polynomial"),
    "precomputed": lambda: regressor(features="precomputed"),
    "buffered rows": buffered_rows,
    "two classes": lambda: classifier(Y > 0),
    "three classes, raw linear": lambda: classifier(LABELS, features="linear", posterior=Sequential(n_levels=3)),
    "network": network,
    "network with coreset": network_with_coreset,
}


def quantised(model: Any, **options: Any) -> Any:
    return quantized.quantize(model, 3, **options)


QUANTISED: dict[str, Callable[[], Any]] = {
    "integers": lambda: quantised(
        regressor(features=Fourier(rank_inputs=False), posterior=Sequential(n_levels=3)), arithmetic="integer"
    ),
    "levels": lambda: quantised(regressor(features="polynomial", posterior=Sequential(n_levels=3))),
    "rotated landmarks": lambda: quantised(regressor()),
    "quantised classes": lambda: quantised(classifier(LABELS, features="linear", posterior=Sequential(n_levels=3))),
}


def saved(model: Any, path: Path, *metadata: dict[str, Any]) -> bytes:
    model.save(path, *metadata)
    return path.read_bytes()


def check_model(model: Any, path: Path) -> None:
    """The model predicts, and saved again it gives the same document."""
    document = persistence.read(path)
    copy_path = path.with_suffix(".copy")
    model.save(copy_path)
    again = persistence.read(copy_path)
    assert again.kind == document.kind
    assert stable_header(again) == stable_header(document), difference(stable_header(document), stable_header(again))
    d = getattr(model, "n_features_in_", None) or model.n_features_in
    rows = NEW[:, :d] if d <= 2 else np.ones((3, d))
    categories = getattr(getattr(model, "columns_", None), "categories", ())
    if of_text := [j for j, own in enumerate(categories) if own is not None]:
        rows = rows.astype(object)
        rows[:, of_text] = "a"
    with np.errstate(all="ignore"):
        if hasattr(model, "predict_proba"):
            probabilities = model.predict_proba(rows)
            assert probabilities.shape[0] == 3 and not np.isnan(probabilities).any(), probabilities
        else:
            mean, std = model.predict(rows, return_std=True)
            assert mean.shape == std.shape and len(mean) == 3
            assert not np.isnan(mean).any() and (std >= 0).all(), (mean, std)
        if isinstance(model, quantized.QuantizedModel):
            assert model.report()["n_nonzero"] >= 0
            with contextlib.suppress(quantized.IntegerArithmeticError, quantized.AccumulatorOverflowError):
                model.with_arithmetic("integer").predict(rows)


def stable_header(document: persistence.Document) -> dict[str, Any]:
    """Header as it would be written again: with the writer's library, defaults for missing parameters, and arrays."""
    header = {**resolved(document.header, document.arrays), "library": None}
    if "parameters" not in header:
        return header
    estimator = getattr(pydirect, document.kind.removeprefix("pydirect."))
    return {**header, "parameters": {**saved_defaults(estimator), **header["parameters"]}}


def resolved(part: Any, arrays: dict[str, Any]) -> Any:
    """Part of a header with arrays in place of their names, of which one array may have several."""
    if isinstance(part, dict):
        if part.keys() == {"array"} and part["array"] in arrays:
            array = arrays[part["array"]]
            return str(array.dtype), array.shape, array.tobytes()
        return {key: resolved(value, arrays) for key, value in part.items()}
    return [resolved(value, arrays) for value in part] if isinstance(part, list) else part


@cache
def saved_defaults(estimator: Any) -> dict[str, Any]:
    return {k: as_json(k, v) for k, v in estimator().get_params(deep=False).items()}


def difference(one: Any, other: Any, where: str = "header") -> str:
    """The first place where two headers differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next(difference(one[k], other[k], f"{where}.{k}") for k in one if one[k] != other[k])
    return f"{where}: {one!r} and {other!r}"[:1000]


# ------------------------------------------------------------------------------------------------------------ mutations


def alter_arrays(rng: np.random.Generator, document: persistence.Document, path: Path) -> bytes | None:
    """Change or leave out one array and write a file with right checksums; None if it cannot be."""
    arrays = dict(document.arrays)
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays[name]
    change = CHANGES[rng.integers(len(CHANGES))]
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            arrays[name] = change(rng, array)
        if rng.random() < 0.05:
            del arrays[name]
        persistence.write(path, document.kind, document.header, arrays)
    except (TypeError, ValueError, OverflowError, IndexError, np.exceptions.AxisError, DeprecationWarning):  # NumPy 1
        return None
    return path.read_bytes()


def one_entry(value: Any) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    def change(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed.reshape(-1)[rng.integers(array.size)] = value
        return changed

    return change


CHANGES: list[Callable[[np.random.Generator, np.ndarray], np.ndarray]] = [
    *map(one_entry, (0, 1, -1, 7, 1e300, -1e300, 1e-300, np.nan, np.inf, -np.inf)),
    lambda rng, a: a.astype(rng.choice(["float32", "int64", "uint8", "complex128", "bool", "float16"])),
    lambda rng, a: a[..., :-1],
    lambda rng, a: a[1:],
    lambda rng, a: a[None],
    lambda rng, a: a.ravel(),
    lambda rng, a: a.T,
    lambda rng, a: np.zeros_like(a),
    lambda rng, a: -a,
    lambda rng, a: a[:0],
    lambda rng, a: np.repeat(a, 2, axis=0),
    lambda rng, a: np.repeat(a, 2, axis=-1),
    lambda rng, a: np.broadcast_to(a[..., :1], (*a.shape[:-1], 2000)),
]


def later_version(content: bytes) -> bytes:
    (name, text), *arrays = split(content)
    version = b'"format_version":%d'
    return rebuilt([(name, text.replace(version % FORMAT_VERSION, version % (FORMAT_VERSION + 1))), *arrays])


def reading(subject: Subject, path: Path, content: bytes) -> Any:
    """Content of the file, or None when it is refused; anything else is an error of the package."""
    path.write_bytes(content)
    try:
        return subject.read(path)
    except persistence.FileFormatError:
        return None


def damage(subject: Subject, path: Path, rng: np.random.Generator, counts: Counter[str]) -> None:
    """One change without new checksums: refused, whatever it is."""
    mutate = mutate_bytes if rng.random() < 0.8 else mutate_length_fields
    content = subject.content[: rng.integers(len(subject.content))] if rng.random() < 0.1 else None
    content = mutate(rng, subject.content) if content is None else content
    got = reading(subject, path, content)
    assert (got is not None) == (content == subject.content)
    counts["damaged"] += 1


def forge(subject: Subject, path: Path, rng: np.random.Generator, counts: Counter[str]) -> None:
    """One change with right checksums: refused, or the content is what the file says and is sane."""
    if rng.random() < 0.5:
        content: bytes | None = mutate_and_sign(rng, subject.content)
    else:
        content = alter_arrays(rng, subject.document, path)
    if content is None:
        return
    got = reading(subject, path, content)
    counts["forged"] += 1
    counts["forged and refused"] += got is None
    if got is not None:
        subject.check(got, path)


def subjects(directory: Path) -> dict[str, Subject]:
    path = directory / "m"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are kept short
        result = {
            name: subject(saved(make(), path, {"run": [1, "a", None]}), path, pydirect.load, check_model)
            for name, make in MODELS.items()
        }
        result |= {
            name: subject(saved(make(), path), path, quantized.load_quantized, check_model)
            for name, make in QUANTISED.items()
        }
    return result


def subject(content: bytes, path: Path, *how: Any) -> Subject:
    return Subject(content, persistence.read(path), *how)


def limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def campaign(directory: Path, n_mutations: int, seed: int) -> dict[str, Any]:
    """Return counts, and what went wrong for the first time at each place of the code."""
    os.fsync = lambda _: None  # type: ignore[assignment]
    path, all_subjects = directory / "m", subjects(directory)
    limit_memory()
    counts: Counter[str] = Counter()
    failures: dict[str, str] = {}
    for k, (name, subject) in enumerate(all_subjects.items()):
        assert reading(subject, path, subject.content) is not None
        assert reading(subject, path, later_version(subject.content)) is None
        rng = np.random.default_rng([seed, k])
        faulthandler.dump_traceback_later(200, exit=True)
        for trial in range(ceil(n_mutations / len(all_subjects))):
            try:
                (damage if trial % 3 else forge)(subject, path, rng, counts)
            except Exception as error:
                place = " < ".join(f"{f.name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[:1:-1])
                failures.setdefault(place, f"{name}, mutation {trial} of seed {seed}: {error!r}"[:2000])
    faulthandler.cancel_dump_traceback_later()
    return {**counts, "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mutations", type=int, default=10_500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("error")
    print(json.dumps(campaign(args.directory, args.mutations, args.seed)))


if __name__ == "__main__":
    sys.exit(main())
