"""Checkpoints of a pass over a stream: the statistics so far, their feature map and the number of rows read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydirect import __version__
from pydirect._validation import as_count, as_flag
from pydirect.persistence.container import CorruptFileError, FileFormatError, KindError, read, write
from pydirect.persistence.schema import Arrays, pack, unpack
from pydirect.statistics.gaussian import RowFeatures
from pydirect.statistics.running import RunningStatistics
from pydirect.streams.rows import Source

KIND = "pydirect.checkpoint"


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
        try:
            feature_map = unpack(features, header["features"], arrays, "features")
            statistics = unpack(RunningStatistics, header["statistics"], arrays, "statistics")
            statistics = statistics.with_features(feature_map)
            n_rows = as_count(header["n_rows"], "n_rows", 0)
            one_dimensional = as_flag(header["one_dimensional"], "one_dimensional")
            return cls(statistics, n_rows, header["identity"], list(header["layout"]), one_dimensional)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            reason = f"the file is intact but its contents are not a checkpoint ({type(error).__name__}: {error})"
            raise CorruptFileError(path, reason) from error

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
