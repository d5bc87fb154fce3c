"""Passes over a source of rows: sums, samples, digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pydirect._progress import deferred_interrupt
from pydirect._threads import ordered_map, resolve_n_threads, single_blas_thread
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import READ_ROWS, Rows, Source, StreamError, checked_rows, chunks, row_keys, rows_present

# Number of rows whose digest identifies a source.
DIGEST_ROWS = 256


def collect_stream(
    statistics: RunningStatistics,
    source: Source,
    *,
    start: int = 0,
    drop_missing: bool = False,
    n_threads: int | None = None,
    after_block: Callable[[int], None] | None = None,
) -> int:
    """Add the rows of a source from row `start` on to statistics, block by block, in the memory of a few blocks."""
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
