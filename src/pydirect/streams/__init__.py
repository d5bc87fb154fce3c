"""Sources of rows, read block by block, and passes over them."""

from pydirect.streams.parquet import ParquetSource as ParquetSource
from pydirect.streams.rows import (
    Rows as Rows,
    Source as Source,
    StreamError as StreamError,
    StreamInterrupt as StreamInterrupt,
)
from pydirect.streams.run import collect_stream as collect_stream
from pydirect.streams.sources import ArraySource as ArraySource, BlockSource as BlockSource
from pydirect.tables.buffer import LabelCodes as LabelCodes
