"""Checkpoints of a pass over a stream: the statistics so far, the row reached, and the feature map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydirect
from pydirect._validation import as_count
from pydirect.features.basis import Basis
from pydirect.persistence.container import read, write
from pydirect.persistence.errors import CorruptFileError, FileFormatError, KindError
from pydirect.persistence.fields import Writer
from pydirect.statistics.running import RunningStatistics

if TYPE_CHECKING:
    from pydirect.estimators._growing import GrowingModel
    from pydirect.streams.rows import Source

KIND = "pydirect.checkpoint"


def require_saveable(model: GrowingModel) -> None:
    """Raise unless the model's features can be written to a checkpoint."""
    if model._feature_kind() == "transformer":
        raise TypeError(
            "features must be built in for a checkpoint, got a transformer: leave checkpoint out, or save statistics "
            "of your own with RunningStatistics.save"
        )


def write_checkpoint(
    path: str | Path,
    model: GrowingModel,
    statistics: RunningStatistics,
    n_rows: int,
    identity: str,
    layout: list[Any],
) -> None:
    """Write under a temporary name and rename: an older file stays whole until the new one is.

    Parameters
    ----------
    path : str or Path
    model : GrowingModel
        Whose feature map it is.
    statistics : RunningStatistics
    n_rows : int
        Rows of the source that are behind: counted, or left out for missing values.
    identity : str
        Digest of the source's first rows.
    layout : list
        Of the source up to `n_rows`.
    """
    writer = Writer()
    header, arrays = statistics.to_document()
    document = {
        "library": pydirect.__version__,
        "n_rows": n_rows,
        "identity": identity,
        "layout": layout,
        "features": writer.fields(model.features_, "features"),
        "one_dimensional": model._one_dimensional,
        "statistics": header,
    }
    sums = {f"statistics.{name}": array for name, array in arrays.items()}
    try:
        write(path, KIND, document, {**writer.arrays, **sums})
    except OSError as error:
        reason = f"the checkpoint cannot be written after {n_rows:,} rows ({error.strerror or error})"
        before = "; the one written before is whole" if Path(path).exists() else ""
        raise OSError(error.errno, reason + before, str(path)) from error


@dataclass
class Checkpoint:
    """What a pass over a stream had come to.

    Attributes
    ----------
    statistics : RunningStatistics
    n_rows : int
        Rows of the source that are behind.
    identity : str
        Digest of the source's first rows.
    layout : list
        Of the source up to `n_rows`.
    basis : Basis
    one_dimensional : bool
        Whether the targets have no axis of outputs.
    """

    statistics: RunningStatistics
    n_rows: int
    identity: str
    layout: list[Any]
    basis: Basis
    one_dimensional: bool

    @classmethod
    def read(cls, path: str | Path, model: GrowingModel) -> Checkpoint:
        """Read a checkpoint that a model with the same parameters wrote.

        Raises
        ------
        pydirect.persistence.container.FileFormatError
            With the reason, when the file is not a checkpoint, is damaged, or belongs to other parameters.
        """
        try:
            document = read(path, KIND)
        except KindError as error:
            raise KindError(path, f"{error.reason}: give another path for the checkpoint") from None
        header, arrays = document.header, document.arrays
        try:
            basis = Basis.from_fields(header["features"], arrays, "features")
            basis.check(basis.n_features_in)
            sums = {n.partition(".")[2]: a for n, a in arrays.items() if n.startswith("statistics.")}
            statistics = RunningStatistics.from_document(header["statistics"], sums)
            n_rows = as_count(header["n_rows"], "n_rows", 0)
            rest = basis, bool(header["one_dimensional"])
            found = cls(statistics, n_rows, header["identity"], list(header["layout"]), *rest)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            reason = f"the file is whole but its contents are no checkpoint ({type(error).__name__}: {error})"
            raise CorruptFileError(path, reason) from error
        differing = model._changed_parameters(basis.parameters)
        if statistics.block_dtype != model.block_dtype:
            differing.append("block_dtype")
        if differing:
            raise FileFormatError(
                path, f"the checkpoint is of a model with other parameters: {', '.join(differing)} changed"
            )
        return found

    def require(self, path: str | Path, identity: str, source: Source) -> None:
        """Raise unless the checkpoint is of a source that begins with the same rows and is as long at least."""
        n_rows = source.n_rows
        if identity != self.identity:
            raise FileFormatError(path, "the checkpoint is of other data, which begin with other rows")
        if n_rows is not None and n_rows < self.n_rows:
            raise FileFormatError(path, f"the checkpoint counts {self.n_rows:,} rows, the data have {n_rows:,}")
        layout = source.layout(self.n_rows)
        if layout != self.layout:
            pairs = zip([*layout, None], [*self.layout, None], strict=False)
            found, counted = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
            there, before = (f"{p[0] or 'a file'} of {p[1]:,} rows" if p else "none" for p in (found, counted))
            raise FileFormatError(path, f"files that the checkpoint counts have changed: {there}, where was {before}")

    def restore(self, model: GrowingModel) -> None:
        """Give the model the feature map, and the statistics theirs."""
        model._forget_all()
        names = self.basis.names
        model._set_input_names(self.basis.n_features_in, None if names is None else list(names))
        model.features_, model._one_dimensional = self.basis, self.one_dimensional
        self.statistics = self.statistics.with_features(self.basis)
