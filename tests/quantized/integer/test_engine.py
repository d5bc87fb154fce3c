"""Compiled kernels give the reference at every instruction set."""

import numpy as np
import pytest

from pydirect import quantize
from pydirect.quantized.integer.engine import FloatEngine, IntegerEngine

RAW = {"basis": "raw", "n_basis_functions": 80, "rank_inputs": False}


@pytest.mark.parametrize("levels", ["even", "power_of_two"])
@pytest.mark.parametrize("feature_bits", [8, 16])
def test_kernels_give_the_reference_at_every_level_and_for_any_threads(data, raw, at_every_level, levels, feature_bits):
    x = data()[0]
    model = quantize(raw, 16, X=x, levels=levels, feature_bits=feature_bits)
    rows = np.random.default_rng(1).standard_normal((773, 3)) * 20
    engine = IntegerEngine(model.program)
    got = at_every_level(lambda: engine.totals(rows))
    np.testing.assert_array_equal(got, model.program.totals(rows))
    np.testing.assert_array_equal(engine.totals(rows, 3), got)
    assert model.program.powers_of_two == (levels == "power_of_two")


def test_sums_by_level_have_the_same_bits_at_every_level_and_are_sums(at_every_level):
    rng = np.random.default_rng(0)
    codes, levels = rng.integers(0, 15, (70, 6)).astype(np.uint8), np.linspace(-3, 3, 15)
    phi = rng.standard_normal((531, 70))
    engine = FloatEngine(codes, levels)
    got = at_every_level(lambda: engine.sums(phi))
    np.testing.assert_array_equal(engine.sums(phi, 0, 3), got)
    np.testing.assert_allclose(got, phi @ levels[codes], atol=1e-12)
