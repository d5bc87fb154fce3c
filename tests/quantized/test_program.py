"""The integer arithmetic, its programs and its kernels."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pydirect import quantize
from pydirect.quantized.compile import INPUT_UNIT, quantise_frequencies
from pydirect.quantized.program import (
    LARGEST_SHIFTED,
    ONE,
    SINGLE_NOISE,
    AccumulatorOverflowError,
    IntegerProgram,
    shifted,
    turn_sine,
)


@given(st.integers(-LARGEST_SHIFTED, LARGEST_SHIFTED), st.integers(0, 30))
def test_shifts_round_to_the_nearest_with_halves_up(v, shift):
    assert int(shifted(np.int64(v), shift)) == (v + (2**shift >> 1)) // 2**shift


def test_sines_are_within_their_bound_and_symmetric():
    phase = np.concatenate([np.arange(0, 2**32, 65537), 2**30 * np.arange(4), 2**30 * np.arange(1, 5) - 1])
    value = turn_sine(phase)
    assert np.abs(value / ONE - np.sin(2 * np.pi * phase / 2**32)).max() <= 1.6e-4
    np.testing.assert_array_equal(turn_sine(phase + 2**31), -value)
    assert np.abs(value).max() < ONE


def python_totals(program, x):
    """Steps 1 to 3 in Python's integers, one row."""
    q = []
    for i, column in enumerate(program.columns):
        v = (np.float32(x[column]) - program.origin[i]) * program.multiplier[i]
        v = min(max(v, -np.float32(program.limit)), np.float32(program.limit))
        q.append(int(v + np.float32(32768.5)) - 32768)
    phi = []
    for w in program.frequencies.tolist():
        phase = sum((wi * qi) << int(s) for wi, qi, s in zip(w, q, program.phase_shift, strict=True)) % 2**32
        for at in ((phase + 2**30) % 2**32, phase):
            phi.append(int(turn_sine(np.array([at]))[0]))
    phi += [q[i] for i in program.linear]
    phi += [ONE] * program.has_constant
    totals = []
    for column in program.codes.T.tolist():
        scaled = ((v * g + 2**14) // 2**15 for v, g in zip(phi, program.gain.tolist(), strict=True))
        total = sum(v * int(program.multipliers[code]) for v, code in zip(scaled, column, strict=True))
        assert abs(total) <= program.prove().accumulator < 2**30
        totals.append((total + (2**program.total_shift >> 1)) // 2**program.total_shift)
    return totals


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_integer_programs_equal_unbounded_integers(data, raw, bits):
    features = raw.features_.map
    factor = 300 if bits == 32 else 1  # 16 bits do not hold such frequencies
    turns, shift = quantise_frequencies(factor * features.frequencies / (2 * np.pi), bits)
    frequencies = np.ascontiguousarray(2 * np.pi * (turns * 2.0**shift).T / 2.0**32 / INPUT_UNIT)
    model = quantize(raw, 4)
    kept = replace(model.basis.features.map, frequencies=frequencies[:, : model.basis.features.map.n_frequencies])
    basis = replace(model.basis, features=replace(model.basis.features, map=kept))
    model = replace(model, basis=basis, arithmetic="integer")
    assert model.program.frequencies.dtype == f"int{bits}"
    x = np.vstack([data()[0][:5], [[1e30, -1e30, 10.0]], [[10.0, 12.0, 13.0]]])
    expected = [python_totals(model.program, row) for row in x]
    np.testing.assert_array_equal(model.program.totals(x)[:, 0], expected)
    np.testing.assert_array_equal(model.totals(x)[:, 0], expected)


def test_possible_overflows_are_refused(raw):
    program = quantize(raw, 4).program
    assert program.prove().squares < 2**32
    wide = replace(program, multipliers=np.full(15, 2**15, dtype=np.int32))
    with pytest.raises(AccumulatorOverflowError, match="a total before it is shifted must be at most 1073741823, but"):
        wide.prove()
    with pytest.raises(AccumulatorOverflowError, match="sum of squares"):
        replace(program, noise=np.array([2**32 - 1], dtype=np.uint32)).prove()
    with pytest.raises(AccumulatorOverflowError, match="sum of squares"):
        replace(program, deviation_shift=0).prove()
    with pytest.raises(AccumulatorOverflowError):
        wide.run(np.zeros((1, wide.n_features_in)))


def linear_program(multipliers, gain):
    """One sample: Σ_i multipliers[i] q_i."""
    n, one = len(multipliers), np.ones(1)
    return IntegerProgram(
        n_features_in=n,
        columns=np.arange(n, dtype=np.int32),
        origin=np.zeros(n, dtype=np.float32),
        multiplier=np.ones(n, dtype=np.float32),
        limit=32767,
        frequencies=np.empty((0, n), dtype=np.int16),
        phase_shift=np.zeros(n, dtype=np.uint8),
        compared=np.empty((0, 0), dtype=np.int32),
        thresholds=np.empty((0, 0), dtype=np.int16),
        linear=np.arange(n, dtype=np.int32),
        gain=np.array(gain, dtype=np.int32),
        codes=np.arange(n, dtype=np.uint8)[:, None],
        multipliers=np.array(multipliers, dtype=np.int32),
        n_outputs=1,
        n_samples=1,
        total_shift=1,
        noise=np.array([SINGLE_NOISE], dtype=np.uint32),
        deviation_shift=0,
        scale=one,
        offset=0 * one,
        std_scale=one,
    )


def test_sums_reach_their_bound_and_no_more(at_every_level):
    multipliers = np.array([16000, -16000, 500, 1])
    program = linear_program(multipliers, [1, 1, 1, 1])
    assert program.prove().accumulator == 32767 * 32501
    rows = 1e9 * np.sign(multipliers) * np.array([[1.0], [-1.0]])
    ends = program.totals(rows).ravel()
    assert abs(ends[0] - program.prove().sum) <= 1 and abs(ends[1] + program.prove().sum) <= 1
    np.testing.assert_array_equal(at_every_level(lambda: program.run(rows)).ravel(), ends)
    with pytest.raises(AccumulatorOverflowError, match="a sum over the samples must be at most 536870911"):
        replace(program, total_shift=0).prove()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phase_shift": np.full(2, 32, dtype=np.uint8)}, "phase_shift must be at most 31, but could reach 32"),
        ({"limit": 32768}, "limit must be at most 32767"),
        ({"multipliers": np.array([-(2**15) - 1, 1], dtype=np.int32)}, "multipliers must be at most 32768"),
        ({"gain": np.array([1, -(2**30)], dtype=np.int32)}, "gain must be at most 1073741823"),
    ],
)
def test_constants_out_of_range_are_refused(change, message):
    program = linear_program([1, 1], [100, 100])
    assert program.prove().accumulator == 200 * 32767
    with pytest.raises(AccumulatorOverflowError, match=message):
        replace(program, **change).prove()


@pytest.mark.parametrize("levels", ["even", "model"])
def test_kernels_give_the_reference_at_every_level_and_for_any_threads(data, raw, at_every_level, levels):
    x = data()[0]
    model = quantize(raw, 16, X=x, levels=levels)
    rows = np.random.default_rng(1).standard_normal((773, 3)) * 20
    got = at_every_level(lambda: model.program.run(rows))
    np.testing.assert_array_equal(got, model.program.totals(rows))
    np.testing.assert_array_equal(model.program.run(rows, 3), got)
