"""Passes over a source to collect statistics: first a sample, then all rows, with progress and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydirect._progress import Progress
from pydirect._threads import resolve_n_threads
from pydirect.statistics.gaussian import RowFeatures
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.checkpoint import Checkpoint
from pydirect.streams.encoded import EncodedSource, Encoder
from pydirect.streams.passes import collect_stream, digest, sample_stream
from pydirect.streams.rows import Rows, Source, StreamError, StreamInterrupt
from pydirect.tables.buffer import Codebook


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
        checkpoint_seconds: float = 60.0,
    ) -> None:
        self.source, self.progress, self.drop_missing = source, progress, drop_missing
        self.n_threads = resolve_n_threads(n_threads)  # an error here leaves the model unchanged
        self.path, self.seconds, self.identity = checkpoint, checkpoint_seconds, ""
        if self.path is not None:
            if not Path(self.path).absolute().parent.is_dir():  # raised before a pass, not after it
                raise FileNotFoundError(2, "the folder of the checkpoint does not exist", str(self.path))
            self.identity = digest(source)

    @property
    def names(self) -> list[str] | None:
        """Names of the columns of X."""
        return self.source.names

    @property
    def codes(self) -> Codebook | None:
        """Codes of the text in X."""
        return self.source.codes

    @property
    def one_dimensional(self) -> bool:
        """Whether the targets have no axis of outputs."""
        return self.source.one_dimensional

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
        """Draw a sample of rows in a pass that checks all rows; see `pydirect.streams.passes.sample_stream`."""
        with self.uncounted("sample"):
            return sample_stream(self.source, n_rows, seed, drop_missing=self.drop_missing, look=look).rows

    def encode(self, encoder: Encoder) -> None:
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
                if time.monotonic() - saved_at >= self.seconds:
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
