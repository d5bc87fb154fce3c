"""Codes of every layout come back, and damaged bytes are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydirect.quantized.codes import BITS, PackedCodes, pack_dense, unpack_dense, unpack_sparse


@settings(max_examples=50)
@given(
    st.sampled_from(BITS),
    st.sampled_from(["dense", "sparse", "auto"]),
    st.integers(0, 40),
    st.integers(1, 7),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_codes_come_back_from_every_layout(bits, layout, n_basis_functions, n_columns, zeros, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2**bits, (n_basis_functions, n_columns)).astype(np.uint8)
    zero = int(rng.integers(2**bits))
    codes[rng.random(codes.shape) < zeros] = zero
    packed = PackedCodes.pack(codes, bits, zero, layout)
    np.testing.assert_array_equal(packed.unpack(), codes)
    if layout == "auto":
        assert packed.n_bytes == min(PackedCodes.pack(codes, bits, zero, k).n_bytes for k in ("dense", "sparse"))


def test_four_bits_stand_two_to_a_byte_with_the_low_nibble_first():
    assert pack_dense(np.array([13, 7, 8, 1, 2], dtype=np.uint8), 4).tobytes().hex() == "7d1802"
    assert pack_dense(np.array([1, 2, 3, 0, 1], dtype=np.uint8), 2).tolist() == [0b00111001, 1]
    assert pack_dense(np.array([5, 3, 7], dtype=np.uint8), 3).tolist() == [0b11011101, 1]


def test_sparse_entries_are_a_gap_and_a_code():
    codes = np.full((1, 40), 7, dtype=np.uint8)
    codes[0, [2, 3, 39]] = 9, 1, 4
    packed = PackedCodes.pack(codes, 4, 7, "sparse")
    assert packed.packed.tolist() == [0x29, 0x01, 0xF7, 0xF7, 0x34]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: unpack_dense(np.zeros(2, np.uint8), 4, (5,)), "must have 3 bytes"),
        (lambda: unpack_dense(np.array([0, 0, 16], np.uint8), 4, (5,)), "end with zero bits"),
        (lambda: unpack_sparse(np.array([0x51], np.uint8), 4, 0, (5,)), "below 5"),
        (lambda: unpack_sparse(np.array([0x51], np.uint8), 8, 0, (5,)), "whole entries"),
    ],
)
def test_invalid_bytes_of_codes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
