"""What files would hold."""

from pydirect.persistence.schema import pack, unpack


def verify(value, name="model", **sizes):
    """Raise unless a dataclass could be read back from what `pack` would write, with these sizes."""
    header, arrays = pack(value, name)
    unpack(type(value), header, arrays, name, **sizes)
