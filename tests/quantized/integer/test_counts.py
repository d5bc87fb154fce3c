"""A device's own integers as inputs."""

import numpy as np
import pytest

from pydirect import DirectRegressor, quantize
from pydirect.quantized.integer.counts import RawInputs


def test_counts_of_a_sensor_reach_the_same_inputs(data, raw):
    program = quantize(raw, 4).program
    x = np.round(data()[0] * 100) / 100
    counts = np.rint(100 * x + 7)
    raw_inputs = RawInputs.of(program, 100.0, 7.0)
    assert np.abs(raw_inputs.quantise(counts) - program.quantise_inputs(x)).max() <= 45  # half a count, 4096 a sd
    fine = RawInputs.of(program, 4096.0)
    assert np.abs(fine.quantise(np.rint(4096 * x)) - program.quantise_inputs(x)).max() <= 4
    assert (np.abs(raw_inputs.origin.astype(np.int64)) <= 2**30).all()
    assert (np.abs(raw_inputs.multiplier) <= 2**30).all() and (np.abs(raw_inputs.offset) <= 2**29).all()
    assert (raw_inputs.shift <= 45).all()
    assert np.abs(raw_inputs.quantise(np.full((1, 3), 2**31 - 1))).max() <= 32767


@pytest.mark.parametrize("counts_per_unit", [[1.0, 1000.0], [-1.0, 2.0**24], [0.7, 3.1e7]])
@pytest.mark.parametrize("zero", [0.0, 0.4, -7.0])
def test_counts_however_coarse_or_fine_are_exact_but_for_the_rounding_of_inputs(fit, counts_per_unit, zero):
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.integers(0, 2, 200), rng.standard_normal(200)]).astype(float)
    model = fit(DirectRegressor("linear", basis="raw", level_scales="own", rank_inputs=False), x, x[:, 0] + x[:, 1])
    program = quantize(model, 4).program
    counts = np.rint(zero + x * counts_per_unit)
    true = (counts - zero) / counts_per_unit
    exact = (true[:, program.columns] - program.origin) * program.multiplier.astype(float)
    got = RawInputs.of(program, counts_per_unit, zero).quantise(counts[:, program.columns])
    assert np.abs(got - exact).max() <= 0.5 + 2.0**-13


def test_counts_beyond_31_bits_or_coarser_than_an_input_are_refused(raw):
    program = quantize(raw, 4).program
    with pytest.raises(ValueError, match="counts of column 0 must fit into 31 bits"):
        RawInputs.of(program, [1e9, 1.0, 1.0])
    with pytest.raises(ValueError, match="larger: one count is more than the range of column 1"):
        RawInputs.of(program, [1.0, 1e-6, 1.0])
