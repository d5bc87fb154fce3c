"""Level indices packed into bytes: 2, 4 or 8 bits each.

The codes of a model form a matrix (n_basis_functions, n_columns), with a column for every sample of every output,
stored row by row: a basis function is evaluated once for all samples. Code i takes the bits ``[i·bits, (i+1)·bits)`` of
the bytes read as one little-endian number. With 4 bits that is two codes per byte, the low nibble first, as in ONNX,
CMSIS-NN and PyTorch; the tail is padded with zero bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, as_count
from pydirect.persistence.schema import OneOf, Shape

BITS = (2, 4, 8)
LARGEST_NUMBER_OF_CODES = 2**28
Codes = NDArray[np.uint8]


def bits_for(n_levels: int) -> int:
    """Return the smallest of `BITS` that can index `n_levels` levels."""
    return next(bits for bits in BITS if n_levels <= 2**bits)


def pack_codes(codes: Codes, bits: int) -> Codes:
    """Pack codes below 2**bits, in C order, into bytes.

    Examples
    --------
    >>> import numpy as np
    >>> pack_codes(np.array([13, 7, 8, 1, 2], dtype=np.uint8), 4).tobytes().hex()
    '7d1802'
    """
    flat = np.ascontiguousarray(codes, dtype=np.uint8).reshape(-1, 1)
    return np.packbits(np.unpackbits(flat, axis=1, bitorder="little")[:, :bits].ravel(), bitorder="little")


@dataclass(frozen=True)
class PackedCodes:
    """Packed matrix of codes."""

    # uint8 (n_bytes,)
    packed: Annotated[Codes, Shape("n_bytes*")]
    bits: Annotated[int, OneOf(*BITS)]
    # (n_basis_functions, n_columns)
    shape: tuple[int, int]

    def check(self) -> None:
        """Raise unless there is a moderate number of codes."""
        if min(self.shape) < 0 or self.shape[0] * self.shape[1] > LARGEST_NUMBER_OF_CODES:
            raise ValueError(f"packed must be at most {LARGEST_NUMBER_OF_CODES} codes, got {self.shape}")

    @classmethod
    def pack(cls, codes: Codes, bits: int) -> PackedCodes:
        """Pack a matrix of codes."""
        n_basis_functions, n_columns = codes.shape
        return cls(pack_codes(codes, bits), bits, (n_basis_functions, n_columns))

    def unpack(self) -> Codes:
        """Return the codes, (n_basis_functions, n_columns)."""
        n, bits = self.shape[0] * self.shape[1], self.bits
        n_bytes = -(-n * bits // 8)
        if self.packed.shape != (n_bytes,):
            raise ValueError(f"packed must have {n_bytes} bytes for {n} codes, got shape {self.packed.shape}")
        all_bits = np.unpackbits(self.packed, bitorder="little")
        if all_bits[n * bits :].any():
            raise ValueError("packed must end with zero bits")
        return np.packbits(all_bits[: n * bits].reshape(n, bits), axis=1, bitorder="little").reshape(self.shape)


def unit_levels(n_levels: int) -> FloatArray:
    """Return evenly spaced levels from -1 to 1, including zero."""
    if as_count(n_levels, "n_levels", 3) > 255 or n_levels % 2 == 0:
        raise ValueError(f"n_levels must be odd and at most 255, got {n_levels}")
    return np.linspace(-1.0, 1.0, n_levels)


def affine_levels(levels: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Express levels (n_weights or 1, n_levels) by one table, with a centre and a spread per weight."""
    if len(levels) == 1:
        return levels[0], np.zeros(1), np.ones(1)
    low, high = levels[:, :1], levels[:, -1:]
    reach = (high - low) / 2
    reach = np.where(reach > 0, reach, 1.0)
    centre = (high + low) / 2
    shapes = (levels - centre) / reach
    table = shapes[np.argmax(np.abs(reach))]
    if np.abs(shapes - table).max() > 1e-6:
        raise ValueError("levels of the weights must be shifted and scaled copies of one table to be quantised")
    return table, centre[:, 0], reach[:, 0]


def shared_levels(tables: list[FloatArray]) -> FloatArray:
    """Return the common table of all outputs, with values that are zero up to rounding set to zero."""
    levels, largest = tables[0], np.abs(tables[0]).max()
    if any(np.abs(table - levels).max() > 1e-6 * largest for table in tables):
        raise ValueError("levels of all outputs must be copies of one table to be quantised")
    return np.where(np.abs(levels) < 1e-12 * largest, 0.0, levels)


def zero_code(levels: FloatArray) -> int:
    """Return the code of the level zero, or -1 when there is none."""
    zero = np.flatnonzero(levels == 0.0)
    return int(zero[0]) if zero.size else -1
