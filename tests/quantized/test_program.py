"""The integer arithmetic, its programs and its kernels."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydirect import _core, quantize
from pydirect.quantized.program import (
    INT32_MAX,
    ONE,
    SINE_ERROR,
    AccumulatorOverflowError,
    Group,
    IntegerProgram,
    integer_sqrt,
    round_shift,
    turn_sine,
)


@given(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(0, 30))
def test_round_shift_rounds_to_nearest_with_halves_away_from_zero(v, shift):
    magnitude, rest = divmod(abs(v), 2**shift)
    expected = magnitude + (2 * rest >= 2**shift and shift > 0)
    assert int(round_shift(np.int64(v), shift)) == (expected if v >= 0 else -expected)


@given(st.integers(0, 2**63 - 1))
def test_integer_square_roots_are_exact(v):
    import math

    for value in (v, math.isqrt(v) ** 2, max(math.isqrt(v) ** 2 - 1, 0)):
        assert int(integer_sqrt(np.array([value], dtype=np.int64))[0]) == math.isqrt(value)


def test_sines_from_the_table_are_within_their_bound_and_symmetric():
    phase = np.concatenate([np.arange(0, 2**32, 65537), 2**30 * np.arange(4), 2**30 * np.arange(1, 5) - 1])
    value = turn_sine(phase)
    assert np.abs(value / ONE - np.sin(2 * np.pi * phase / 2**32)).max() <= SINE_ERROR
    np.testing.assert_array_equal(turn_sine(phase + 2**31), -value)
    assert np.abs(value).max() <= ONE


def python_inputs(program, x):
    """Step 1 in Python's integers, one row."""
    q = []
    for i, column in enumerate(program.columns):
        v = (np.float32(x[column]) - program.origin[i]) * program.multiplier[i]
        v = min(max(v, -np.float32(program.limit[i])), np.float32(program.limit[i]))
        q.append(int(v + np.float32(-0.5 if v < 0 else 0.5)))
    return q


def python_totals(program, x):
    """Steps 1 to 3 in Python's integers, one row."""
    q = python_inputs(program, x)
    phi = []
    for w in program.frequencies.tolist():
        phase = sum((wi * qi) << int(s) for wi, qi, s in zip(w, q, program.phase_shift, strict=True)) % 2**32
        for at in ((phase + 2**30) % 2**32, phase):
            phi.append(int(turn_sine(np.array([at]))[0]))
    for i in program.linear:
        phi.append(max(min(q[i], program.linear_limit), -program.linear_limit))
    phi += [ONE] * any(g.kind == "constant" for g in program.groups)
    totals = []
    for column in program.codes.T.tolist():
        total = 0
        for g in program.groups:
            acc = sum(phi[j] * int(program.multipliers[column[j]]) for j in range(g.begin, g.end))
            assert abs(acc) <= program.prove().accumulators[program.groups.index(g)]
            shifted = (abs(acc) + (2**g.shift >> 1)) >> g.shift
            total += g.gain * (shifted if acc >= 0 else -shifted)
        assert abs(total) <= program.prove().total < 2**31
        totals.append(total)
    return totals


@pytest.mark.parametrize("frequency_bits", [8, 16, 32])
def test_integer_programs_equal_unbounded_integers(data, raw, frequency_bits):
    model = quantize(raw, 4, arithmetic="integer", frequency_bits=frequency_bits)
    x = np.vstack([data()[0][:5], [[1e30, -1e30, 10.0]], [[10.0, 12.0, 13.0]]])
    expected = [python_totals(model.program, row) for row in x]
    np.testing.assert_array_equal(model.program.totals(x)[:, 0], expected)
    np.testing.assert_array_equal(model.totals(x)[:, 0], expected)


def test_possible_overflows_are_refused(raw):
    program = quantize(raw, 4).program
    assert program.prove().squares < 2**63
    wide = replace(program, multipliers=np.full(15, 2**15, dtype=np.int32))
    with pytest.raises(AccumulatorOverflowError, match="an accumulator must stay below 2147483648, but could reach"):
        wide.prove()
    with pytest.raises(AccumulatorOverflowError, match="sum of squares"):
        replace(program, noise=np.array([2**63 - 1], dtype=np.uint64)).prove()
    with pytest.raises(AccumulatorOverflowError):
        wide.run(np.zeros((1, wide.n_features_in)))


def linear_program(multipliers, limits):
    """One sample: Σ_i multipliers[i] q_i."""
    n, one = len(limits), np.ones(1)
    return IntegerProgram(
        n_features_in=n,
        columns=np.arange(n, dtype=np.int32),
        origin=np.zeros(n, dtype=np.float32),
        multiplier=np.ones(n, dtype=np.float32),
        limit=np.array(limits, dtype=np.int32),
        frequencies=np.empty((0, n), dtype=np.int16),
        phase_shift=np.zeros(n, dtype=np.uint8),
        linear=np.arange(n, dtype=np.int32),
        linear_limit=32767,
        groups=(Group("linear", 0, n),),
        codes=np.arange(n, dtype=np.uint8)[:, None],
        multipliers=np.array(multipliers, dtype=np.int32),
        n_outputs=1,
        n_samples=1,
        scale=one,
        offset=0 * one,
        noise=np.zeros(1, dtype=np.uint64),
        deviation_shift=1,
        std_scale=one,
    )


def test_sums_reach_the_largest_integer_and_no_more(at_every_level):
    multipliers = np.array([2**15, -(2**15), 2, 1])
    program = linear_program(multipliers, [32767, 32767, 32767, 1])
    assert program.prove().accumulators == (INT32_MAX,) and program.prove().total == INT32_MAX
    rows = 1e9 * np.sign(multipliers) * np.array([[1.0], [-1.0]])
    assert program.totals(rows).ravel().tolist() == [INT32_MAX, -INT32_MAX]
    assert at_every_level(lambda: program.run(rows)).ravel().tolist() == [INT32_MAX, -INT32_MAX]
    with pytest.raises(
        AccumulatorOverflowError, match="an accumulator must stay below 2147483648, but could reach 2147483648"
    ):
        linear_program(multipliers, [32767, 32767, 32767, 2]).prove()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phase_shift": np.full(2, 32, dtype=np.uint8)}, "phase_shift must be at most 31 in magnitude, got 32"),
        ({"limit": np.full(2, 32768, dtype=np.int32)}, "limit must be at most 32767"),
        ({"linear_limit": 32768}, "linear_limit must be at most 32767"),
        ({"multipliers": np.array([-(2**15) - 1, 1], dtype=np.int32)}, "multipliers must be at most 32768"),
        ({"groups": (Group("linear", 0, 2, 1, 31),)}, "shifts of groups must be at most 30"),
        ({"groups": (Group("linear", 0, 2, 2**31, 30),)}, "gains of groups must be at most 2147483647"),
        ({"deviation_shift": 63}, "deviation_shift must be at most 62"),
    ],
)
def test_constants_out_of_range_are_refused(change, message):
    program = linear_program([1, 1], [32767, 32767])
    assert program.prove().total == 65534
    with pytest.raises(AccumulatorOverflowError, match=message):
        replace(program, **change).prove()


RAW = {"basis": "raw", "n_basis_functions": 80, "rank_inputs": False}


@pytest.mark.parametrize("levels", ["even", "power_of_two"])
def test_kernels_give_the_reference_at_every_level_and_for_any_threads(data, raw, at_every_level, levels):
    x = data()[0]
    model = quantize(raw, 16, X=x, levels=levels)
    rows = np.random.default_rng(1).standard_normal((773, 3)) * 20
    got = at_every_level(lambda: model.program.run(rows))
    np.testing.assert_array_equal(got, model.program.totals(rows))
    np.testing.assert_array_equal(model.program.run(rows, 3), got)
    assert model.program.powers_of_two == (levels == "power_of_two")


def test_sums_by_level_have_the_same_bits_at_every_level_and_are_sums(at_every_level):
    rng = np.random.default_rng(0)
    codes, levels = rng.integers(0, 15, (70, 6)).astype(np.uint8), np.linspace(-3, 3, 15)
    phi = rng.standard_normal((531, 70))
    samples = _core.SamplesDouble(codes, levels)

    def sums(n_threads=1):
        out = np.empty((531, 6))
        samples.sums(phi, out, n_threads)
        return out

    got = at_every_level(sums)
    np.testing.assert_array_equal(sums(3), got)
    np.testing.assert_allclose(got, phi @ levels[codes], atol=1e-12)
