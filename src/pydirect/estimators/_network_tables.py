"""Tables as inputs of networks: text and gaps are encoded before anything else."""

from __future__ import annotations

from collections.abc import Sequence

from pydirect.estimators._tables import TableModel
from pydirect.features.columns import Columns
from pydirect.persistence.fields import Arrays, Header, Writer, build_one


class NetworkOfTables(TableModel):
    """Base of networks, whose inputs are the encoded columns of a table."""

    # All columns of text are categories, and missing numbers are replaced; there is nothing to choose.
    categories = missing = "auto"

    def _takes_tables(self) -> bool:
        return True

    def _take_numbers(self, n_columns: int, names: Sequence[str] | None) -> None:
        """Set the encoder to that of complete numbers, which may come block by block."""
        self.columns_ = Columns.of_numbers(n_columns, names)

    def _to_fields(self, writer: Writer) -> Header:
        return {**super()._to_fields(writer), "columns": writer.fields(self.columns_, "columns")}

    def _from_fields(self, header: Header, arrays: Arrays) -> None:
        super()._from_fields(header, arrays)
        columns = build_one((Columns,), header["columns"], arrays, "columns")
        names = getattr(self, "feature_names_in_", None)
        if columns.n_columns != self.n_features_in_ or columns.names != (None if names is None else tuple(names)):
            raise ValueError("columns must be those of X")
        self.columns_ = columns
