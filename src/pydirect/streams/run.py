"""Passes over a source to collect statistics: first a sample, then all rows, with progress and checkpoints."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pydirect import __version__
from pydirect._progress import Progress, deferred_interrupt
from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread
from pydirect._validation import as_count, as_flag
from pydirect.persistence.container import FileFormatError, KindError, read, sound_contents, write
from pydirect.persistence.schema import Arrays, pack, unpack
from pydirect.statistics.gaussian import RowFeatures
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import (
    READ_ROWS,
    Rows,
    Source,
    StreamError,
    StreamInterrupt,
    checked_rows,
    chunks,
    row_keys,
    rows_present,
)
from pydirect.streams.sources import EncodedSource
from pydirect.tables.encoding import ColumnEncoding

# Number of rows whose digest identifies a source.
DIGEST_ROWS = 256
SECONDS = 60.0  # between writes of a checkpoint
KIND = "pydirect.checkpoint"


# --- passes


def collect_stream(
    statistics: RunningStatistics,
    source: Source,
    *,
    start: int = 0,
    drop_missing: bool = False,
    n_threads: int | None = None,
    after_block: Callable[[int], None] | None = None,
) -> int:
    """Add the rows of a source from row `start` on to statistics, block by block, in the memory of a few blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import RunningStatistics
    >>> from pydirect.features import LinearFeatures
    >>> from pydirect.streams import ArraySource, collect_stream
    >>> x = np.arange(12.0).reshape(6, 2)
    >>> statistics = RunningStatistics.empty(LinearFeatures(2))
    >>> collect_stream(statistics, ArraySource(x, x.sum(axis=1)))
    6
    >>> statistics.n_samples
    6.0
    """
    threads = resolve_n_threads(n_threads)
    row = start

    def work(chunk: tuple[int, Rows]) -> tuple[int, RunningStatistics]:
        end, rows = chunk
        try:
            return end, statistics.part(rows.x, rows.y, rows.weight)
        except ValueError as error:  # say of targets that cannot be transformed
            raise StreamError(f"in the block that ends at {source.place(end - 1)}: {error}") from error

    with single_blas_thread(), deferred_interrupt() as interrupted:
        for end, part in ordered_map(work, chunks(source, start, statistics.block_rows, drop_missing), threads):
            with interrupted.held():
                statistics.merge(part, n_threads=threads)
                row = end
                if after_block is not None:
                    after_block(end)
            interrupted.raise_if_requested()
    return row


@dataclass(frozen=True)
class Sample:
    """Rows drawn from the `n_rows` of a source without replacement: those with the smallest `keys`."""

    rows: Rows
    keys: np.ndarray
    index: np.ndarray
    n_rows: int

    @classmethod
    def of(cls, rows: Rows, first: int, seed: int, size: int) -> Sample:
        """Draw a sample of rows that begin at row `first` of the source."""
        index = np.arange(first, first + len(rows), dtype=np.uint64)
        keys = row_keys(index, seed)
        chosen = np.sort(np.argpartition(keys, size - 1)[:size]) if len(rows) > size else slice(None)
        return cls(rows[chosen], keys[chosen], index[chosen], len(rows))

    @staticmethod
    def joined(parts: Sequence[Sample], size: int) -> Sample:
        """Draw a sample of samples: the same rows as from all rows together."""
        keys, index = (np.concatenate([getattr(p, name) for p in parts]) for name in ("keys", "index"))
        rows, order = Rows.joined([p.rows for p in parts]), np.argsort(keys)[:size]
        order = order[np.argsort(index[order])]
        return Sample(rows[order], keys[order], index[order], sum(p.n_rows for p in parts))


def sample_stream(
    source: Source, size: int, seed: int, *, drop_missing: bool = False, look: Callable[[Rows], None] | None = None
) -> Sample:
    """Draw a sample of rows in one pass, which also checks every value; from an iterator, of its first blocks.

    `look`: called with each block of rows if the source allows several passes.
    """
    if not source.repeatable:
        first = Rows.joined(list(source.head(size)))
        gaps = source.codes is not None and source.codes.gaps
        checked_rows(first, source.names, source.place, drop_missing, gaps)
        return Sample.of(rows_present(first, drop_missing), 0, seed, size)
    kept: list[Sample] = []
    begin = 0
    for end, rows in chunks(source, 0, READ_ROWS, drop_missing):
        kept.append(Sample.of(rows, begin, seed, size))
        begin = end
        if sum(len(sample.rows) for sample in kept) > 4 * size:
            kept = [Sample.joined(kept, size)]
        if look is not None:
            look(rows)
    return Sample.joined(kept, size)


def digest(source: Source) -> str:
    """Return a digest of a source's first rows, by which a checkpoint recognises it."""
    hashed, left = hashlib.blake2b(digest_size=16), DIGEST_ROWS
    parts = []
    for block in source.head(DIGEST_ROWS):
        parts.append(block[:left])
        left -= len(parts[-1])
        if left <= 0:
            break
    for name in ("x", "y", "weight"):  # over all parts, so that block boundaries do not matter
        for array in (getattr(part, name) for part in parts):
            if array is not None:
                hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


# --- checkpoints


@dataclass(frozen=True)
class Checkpoint:
    """Statistics of the first rows of a source.

    - `n_rows`: number of rows of the source that were read, whether counted or skipped for missing values.
    - `one_dimensional`: whether the targets have no axis of outputs.
    """

    statistics: RunningStatistics
    n_rows: int
    identity: str
    layout: list[Any]
    one_dimensional: bool

    def write(self, path: str | Path) -> None:
        """Write the checkpoint under a temporary name, then rename it, so that an older file stays intact until then.

        Raises OSError if the file cannot be written; the message says whether an older one is intact.
        """
        arrays: Arrays = {}
        document = {
            "library": __version__,
            "n_rows": self.n_rows,
            "identity": self.identity,
            "layout": self.layout,
            "one_dimensional": self.one_dimensional,
            "features": pack(self.statistics.features, "features", arrays)[0],
            "statistics": pack(self.statistics, "statistics", arrays)[0],
        }
        try:
            write(path, KIND, document, arrays)
        except OSError as error:
            reason = f"the checkpoint cannot be written after {self.n_rows:,} rows ({error.strerror or error})"
            before = "; the previous checkpoint is intact" if Path(path).exists() else ""
            raise OSError(error.errno, reason + before, str(path)) from error

    @classmethod
    def read(cls, path: str | Path, features: type[RowFeatures]) -> Checkpoint:
        """Read a checkpoint of this class of feature map from a file."""
        try:
            document = read(path, KIND)
        except KindError as error:
            raise KindError(path, f"{error.reason}: give another path for the checkpoint") from None
        header, arrays = document.header, document.arrays
        with sound_contents(path, "a checkpoint"):
            feature_map = unpack(features, header["features"], arrays, "features")
            statistics = unpack(RunningStatistics, header["statistics"], arrays, "statistics")
            statistics = statistics.with_features(feature_map)
            n_rows = as_count(header["n_rows"], "n_rows", 0)
            one_dimensional = as_flag(header["one_dimensional"], "one_dimensional")
            return cls(statistics, n_rows, header["identity"], list(header["layout"]), one_dimensional)

    def require(self, path: str | Path, identity: str, source: Source) -> None:
        """Raise unless the checkpoint is of a source that begins with the same rows and is at least as long."""
        n_rows = source.n_rows
        if identity != self.identity:
            raise FileFormatError(path, "the checkpoint is of other data: their first rows differ")
        if n_rows is not None and n_rows < self.n_rows:
            raise FileFormatError(path, f"the checkpoint counts {self.n_rows:,} rows, but the data have {n_rows:,}")
        layout = source.layout(self.n_rows)
        if layout != self.layout:
            pairs = zip([*layout, None], [*self.layout, None], strict=False)
            found, counted = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
            there, before = (f"{p[0] or 'a file'} of {p[1]:,} rows" if p else "none" for p in (found, counted))
            reason = f"files that the checkpoint counts have changed: found {there} in place of {before}"
            raise FileFormatError(path, reason)


# --- a fit's passes


class StreamRun:
    """Collect statistics from a source, resuming from a checkpoint if there is one.

    Raises FileNotFoundError if the folder of the checkpoint does not exist.
    """

    def __init__(
        self,
        source: Source,
        progress: Progress,
        n_threads: int | None,
        drop_missing: bool = False,
        checkpoint: str | Path | None = None,
    ) -> None:
        self.source, self.progress, self.drop_missing = source, progress, drop_missing
        self.names, self.codes, self.one_dimensional = source.names, source.codes, source.one_dimensional
        self.n_threads = resolve_n_threads(n_threads)  # an error here leaves the model unchanged
        self.path, self.identity = checkpoint, ""
        if self.path is not None:
            if not Path(self.path).absolute().parent.is_dir():  # raised before a pass, not after it
                raise FileNotFoundError(2, "the folder of the checkpoint does not exist", str(self.path))
            self.identity = digest(source)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of columns of X and number of outputs."""
        first = next(iter(self.source.head(1)))
        return first.x.shape[1], first.y.shape[1]

    def saved(self, features: type[RowFeatures]) -> Checkpoint | None:
        """Return the checkpoint if there is one; raise unless it is of this source. See `Checkpoint.read`."""
        if self.path is None or not Path(self.path).exists():
            return None
        saved = Checkpoint.read(self.path, features)
        saved.require(self.path, self.identity, self.source)
        return saved

    def sample(self, n_rows: int, seed: int, look: Callable[[Rows], None] | None = None) -> Rows:
        """Draw a sample of rows in a pass that checks all rows; see `pydirect.streams.run.sample_stream`."""
        with self.uncounted("sample"):
            return sample_stream(self.source, n_rows, seed, drop_missing=self.drop_missing, look=look).rows

    def encode(self, encoder: ColumnEncoding) -> None:
        """Encode all rows from here on."""
        self.source = EncodedSource(self.source, encoder, self.drop_missing)

    @contextmanager
    def uncounted(self, stage: str) -> Iterator[None]:
        """Time a stage before the first row is counted; an interrupt says that no row is."""
        try:
            with self.progress.stage(stage):
                yield
        except KeyboardInterrupt:
            raise StreamInterrupt("interrupted while features were fitted to a sample: no row is counted yet") from None

    def collected(self, total: RunningStatistics, start: int = 0) -> RunningStatistics:
        """Add all rows of the source from row `start` on to the statistics `total` and return it."""
        self.row = self.written = start
        self.writing = False
        saved_at = time.monotonic()

        def save() -> None:
            nonlocal saved_at
            if self.path is not None and (self.written != self.row or not self.row):
                self.writing = True
                layout = self.source.layout(self.row)
                Checkpoint(total, self.row, self.identity, layout, self.one_dimensional).write(self.path)
                self.writing, self.written = False, self.row
            saved_at = time.monotonic()

        with self.progress.stage("statistics"), self.progress.stream(self.source.n_rows, start) as report:

            def after_block(row: int) -> None:
                self.row = row
                report(row)
                if time.monotonic() - saved_at >= SECONDS:
                    save()

            try:
                if not start:  # saves the feature map, and detects a full disk early
                    save()
                collect_stream(
                    total,
                    self.source,
                    start=start,
                    drop_missing=self.drop_missing,
                    n_threads=self.n_threads,
                    after_block=after_block,
                )
                save()
            except KeyboardInterrupt:
                save()
                raise StreamInterrupt(f"interrupted {self._where()}{self._hint()}") from None
            except Exception as error:
                if not self.writing:
                    save()
                if isinstance(error, StreamError):
                    raise StreamError(f"{error}{self._hint()}") from error
                if self.path is not None and not self.writing:  # raised by the iterator itself: passed on unchanged
                    error.add_note(self._hint().removeprefix("; "))
                raise
        if not total.n_samples:
            raise StreamError("no row with positive weight is left")
        return total

    def _where(self) -> str:
        total = self.source.n_rows
        return f"after {self.row:,} rows" + (f" of {total:,}" if total is not None else "")

    def _hint(self) -> str:
        if self.path is None:
            return ""
        return f"; the first {self.written:,} rows are in {self.path}: repeat the call to resume from there"
