"""Sources of rows, read block by block, and passes over them."""

from pydirect.streams.parquet import ParquetSource
from pydirect.streams.rows import Rows, Source, StreamError, StreamInterrupt
from pydirect.streams.run import collect_stream
from pydirect.streams.sources import ArraySource, BlockSource
from pydirect.tables.buffer import LabelCodes

__all__ = [
    "ArraySource",
    "BlockSource",
    "LabelCodes",
    "ParquetSource",
    "Rows",
    "Source",
    "StreamError",
    "StreamInterrupt",
    "collect_stream",
]
