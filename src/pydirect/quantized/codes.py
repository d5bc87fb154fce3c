"""Level indices packed into bytes: 2, 3, 4 or 8 bits each, dense or sparse.

The codes of a model form a matrix (n_basis_functions, n_columns), with a column for every sample of every output,
stored row by row: a basis function is evaluated once for all samples.

Dense: code i takes the bits ``[i·bits, (i+1)·bits)`` of the bytes read as one little-endian number. With 4 bits that is
two codes per byte, the low nibble first, as in ONNX, CMSIS-NN and PyTorch; the tail is padded with zero bits.

Sparse: an entry for each non-zero code. With up to 4 bits it is one byte, ``16·gap + code``, where gap is the number of
zero codes since the previous entry; with 8 bits two bytes, gap and code. Gaps of more than 15 (255) are split by
entries with the largest gap and the code of zero. Trailing zeros are not written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pydirect._validation import FloatArray, as_choice, as_count
from pydirect.distributions.categorical import LEVEL_SHAPES
from pydirect.persistence.schema import AtLeast, OneOf, Shape

BITS = (2, 3, 4, 8)
LAYOUTS = ("dense", "sparse")
LARGEST_NUMBER_OF_CODES = 2**28
Codes = NDArray[np.uint8]


def bits_for(n_levels: int) -> int:
    """Return the smallest of `BITS` that can index `n_levels` levels."""
    return next(bits for bits in BITS if n_levels <= 2**bits)


def pack_dense(codes: Codes, bits: int) -> Codes:
    """Pack codes below 2**bits, in C order, into bytes.

    Examples
    --------
    >>> import numpy as np
    >>> pack_dense(np.array([13, 7, 8, 1, 2], dtype=np.uint8), 4).tobytes().hex()
    '7d1802'
    """
    flat = np.ascontiguousarray(codes, dtype=np.uint8).reshape(-1, 1)
    return np.packbits(np.unpackbits(flat, axis=1, bitorder="little")[:, :bits].ravel(), bitorder="little")


def unpack_dense(packed: Codes, bits: int, shape: tuple[int, ...]) -> Codes:
    """Undo `pack_dense`."""
    n = int(np.prod(shape))
    n_bytes = -(-n * bits // 8)
    if packed.shape != (n_bytes,):
        raise ValueError(f"packed must have {n_bytes} bytes for {n} codes, got shape {packed.shape}")
    all_bits = np.unpackbits(packed, bitorder="little")
    if all_bits[n * bits :].any():
        raise ValueError("packed must end with zero bits")
    return np.packbits(all_bits[: n * bits].reshape(n, bits), axis=1, bitorder="little").reshape(shape)


def pack_sparse(codes: Codes, bits: int, zero: int) -> Codes:
    """Pack the codes other than `zero`, in C order, with their gaps."""
    flat = codes.ravel()
    largest = 255 if bits == 8 else 15
    position = np.flatnonzero(flat != zero)
    gap = np.diff(position, prepend=-1) - 1
    fillers, rest = np.divmod(gap, largest + 1)  # a filler stands for `largest` zeros and itself
    index = np.arange(len(position)) + np.cumsum(fillers)
    gaps = np.full(len(position) + int(fillers.sum()), largest, dtype=np.uint8)
    values = np.full(gaps.shape, zero, dtype=np.uint8)
    gaps[index], values[index] = rest, flat[position]
    return np.stack([gaps, values], axis=1).ravel() if bits == 8 else np.asarray(gaps << 4 | values, dtype=np.uint8)


def unpack_sparse(packed: Codes, bits: int, zero: int, shape: tuple[int, ...]) -> Codes:
    """Undo `pack_sparse`."""
    if packed.ndim != 1 or (bits == 8 and len(packed) % 2):
        raise ValueError(f"packed must be whole entries, got shape {packed.shape}")
    gaps, values = (packed[::2], packed[1::2]) if bits == 8 else (packed >> 4, packed & 15)
    position = np.cumsum(gaps.astype(np.int64) + 1) - 1
    out = np.full(int(np.prod(shape)), zero, dtype=np.uint8)
    if len(position) and position[-1] >= out.size:
        raise ValueError(f"packed must hold entries below {out.size}, got one at {position[-1]}")
    out[position] = values
    return out.reshape(shape)


@dataclass(frozen=True)
class PackedCodes:
    """Packed matrix of codes, dense or sparse."""

    # uint8 (n_bytes,)
    packed: Annotated[Codes, Shape("n_bytes*")]
    # {"dense", "sparse"}
    layout: Annotated[str, OneOf(*LAYOUTS)]
    bits: Annotated[int, OneOf(*BITS)]
    # code of the level zero; -1 when there is none, which requires the dense layout
    zero: Annotated[int, AtLeast(-1)]
    # (n_basis_functions, n_columns)
    shape: tuple[int, int]

    def check(self) -> None:
        """Raise unless there is a moderate number of codes, with one for zero where the layout leaves zeros out."""
        # Trailing zeros of the sparse layout are not written: this bounds the memory that a small file can claim.
        if min(self.shape) < 0 or self.shape[0] * self.shape[1] > LARGEST_NUMBER_OF_CODES:
            raise ValueError(f"packed must be at most {LARGEST_NUMBER_OF_CODES} codes, got {self.shape}")
        if self.layout == "sparse" and self.zero < 0:
            raise ValueError("zero must be a code in the sparse layout")

    @classmethod
    def pack(cls, codes: Codes, bits: int, zero: int = -1, layout: str = "auto") -> PackedCodes:
        """Pack a matrix of codes; ``"auto"`` chooses the layout with fewer bytes."""
        as_choice(layout, "layout", ("auto", *LAYOUTS))
        n_basis_functions, n_columns = codes.shape
        dense = pack_dense(codes, bits)
        if layout != "dense" and zero >= 0:
            sparse = pack_sparse(codes, bits, zero)
            if layout == "sparse" or len(sparse) < len(dense):
                return cls(sparse, "sparse", bits, zero, (n_basis_functions, n_columns))
        elif layout == "sparse":
            raise ValueError("layout must be 'dense' when zero is not among the levels")
        return cls(dense, "dense", bits, zero, (n_basis_functions, n_columns))

    def unpack(self) -> Codes:
        """Return the codes, (n_basis_functions, n_columns)."""
        if self.layout == "sparse":
            return unpack_sparse(self.packed, self.bits, self.zero, self.shape)
        return unpack_dense(self.packed, self.bits, self.shape)

    @property
    def n_bytes(self) -> int:
        """Number of bytes of the packed codes."""
        return int(self.packed.nbytes)

    @property
    def n_stored_bytes(self) -> int:
        """Number of bytes in exported code: a code of three bits may straddle two bytes, and both are always read."""
        return self.n_bytes + (self.bits == 3 and self.layout == "dense")


def unit_levels(name: str, n_levels: int) -> FloatArray:
    """Return symmetric levels from -1 to 1, including zero, by the name of their shape."""
    if as_count(n_levels, "n_levels", 3) > 255 or n_levels % 2 == 0:
        raise ValueError(f"n_levels must be odd and at most 255, got {n_levels}")
    return LEVEL_SHAPES[name](n_levels, 1.0)


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
