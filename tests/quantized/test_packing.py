"""Codes come back from bytes, and damaged bytes are refused."""

import numpy as np
from hypothesis import given, settings, strategies as st

from pydirect.quantized.codes import BITS, PackedCodes, pack_codes


@settings(max_examples=30)
@given(st.sampled_from(BITS), st.integers(0, 40), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_codes_come_back(bits, n_basis_functions, n_columns, seed):
    codes = np.random.default_rng(seed).integers(0, 2**bits, (n_basis_functions, n_columns)).astype(np.uint8)
    np.testing.assert_array_equal(PackedCodes.pack(codes, bits).unpack(), codes)


def test_four_bits_stand_two_to_a_byte_with_the_low_nibble_first():
    assert pack_codes(np.array([13, 7, 8, 1, 2], dtype=np.uint8), 4).tobytes().hex() == "7d1802"
    assert pack_codes(np.array([1, 2, 3, 0, 1], dtype=np.uint8), 2).tolist() == [0b00111001, 1]
