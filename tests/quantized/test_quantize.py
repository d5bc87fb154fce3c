import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydirect import DirectClassifier, DirectRegressor, QuadraticBNNRegressor, SpikeAndSlabPrior, fit_within, quantize
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.distributions.levels import power_of_two_levels
from pydirect.persistence.container import read, write
from pydirect.persistence.errors import FileFormatError
from pydirect.quantized.errors import AccumulatorOverflowError, IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.integer.arithmetic import (
    INT32_MAX,
    ONE,
    SINE_ERROR,
    half_width,
    integer_sqrt,
    round_shift,
    turn_sine,
)
from pydirect.quantized.integer.counts import RawInputs
from pydirect.quantized.integer.engine import FloatEngine, IntegerEngine
from pydirect.quantized.integer.linear import Group, IntegerProgram
from pydirect.quantized.integer.units import integer_levels
from pydirect.quantized.lattice import round_to_levels
from pydirect.quantized.levels import shared_levels
from pydirect.quantized.loading import load_quantized
from pydirect.quantized.packing import BITS, PackedCodes, pack_dense, unpack_dense, unpack_sparse
from pydirect.quantized.samples import matched_samples

RAW = {"basis": "raw", "n_features": 80, "rank_inputs": False}


def data(n=160, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * np.arange(1, d + 1) + 10
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.standard_normal(n)
    return x, y


def fitted(estimator, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(*arguments)


@pytest.fixture(scope="module")
def raw():
    return fitted(DirectRegressor(**RAW), *data())


@pytest.fixture(scope="module")
def decorrelated():
    return fitted(DirectRegressor(features="fourier", n_features=80, rank_inputs=False), *data())


# --- packing


@settings(max_examples=50)
@given(
    st.sampled_from(BITS),
    st.sampled_from(["dense", "sparse", "auto"]),
    st.integers(0, 40),
    st.integers(1, 7),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_codes_come_back_from_every_layout(bits, layout, n_features, n_columns, zeros, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2**bits, (n_features, n_columns)).astype(np.uint8)
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
def test_bytes_that_hold_no_codes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- arithmetic


@given(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(0, 30))
def test_round_shift_rounds_to_nearest_with_halves_away_from_zero(v, shift):
    magnitude, rest = divmod(abs(v), 2**shift)
    expected = magnitude + (2 * rest >= 2**shift and shift > 0)
    assert int(round_shift(np.int64(v), shift)) == (expected if v >= 0 else -expected)


@given(st.integers(0, 2**63 - 1))
def test_integer_square_roots_are_exact(v):
    import math

    for value in (v, math.isqrt(v) ** 2, max(math.isqrt(v) ** 2 - 1, 0)):
        assert int(integer_sqrt(np.array([value], dtype=np.uint64))[0]) == math.isqrt(value)


@pytest.mark.parametrize("bits", [8, 16])
def test_sines_from_the_table_are_within_their_bound_and_symmetric(bits):
    phase = np.concatenate([np.arange(0, 2**32, 65537), 2**30 * np.arange(4), 2**30 * np.arange(1, 5) - 1])
    value = turn_sine(phase, bits)
    assert np.abs(value / ONE[bits] - np.sin(2 * np.pi * phase / 2**32)).max() <= SINE_ERROR[bits]
    np.testing.assert_array_equal(turn_sine(phase + 2**31, bits), -value)
    assert np.abs(value).max() <= ONE[bits]


def test_levels_that_devices_know_become_integers_exactly():
    for levels, integers in (
        (0.2 * np.arange(-7, 8), np.arange(-7, 8)),
        (np.linspace(-3, 3, 4), np.array([-3, -1, 1, 3])),
        (power_of_two_levels(9), np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8])),
    ):
        got, step = integer_levels(levels)
        np.testing.assert_array_equal(got, integers)
        np.testing.assert_allclose(step * got, levels, atol=1e-12)
    levels = np.array([-1.0, 0.0, 0.3])
    got, step = integer_levels(levels)
    assert 0 < np.abs(step * got - levels).max() <= 0.5 * step and np.abs(got).max() <= 127


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
            phi.append(int(turn_sine(np.array([at]), program.feature_bits)[0]))
    for i in program.linear:
        value = max(min(q[i], program.linear_limit), -program.linear_limit)
        if program.feature_bits == 8:
            value = max(min((abs(value) + 128) >> 8, 127), 0) * (1 if value >= 0 else -1)
        phi.append(value)
    phi += [program.one] * any(g.kind == "constant" for g in program.groups)
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


@pytest.mark.parametrize("feature_bits", [8, 16])
@pytest.mark.parametrize("frequency_bits", [8, 16, 32])
def test_the_integer_path_is_that_of_unbounded_integers(raw, feature_bits, frequency_bits):
    model = quantize(raw, 4, arithmetic="integer", feature_bits=feature_bits, frequency_bits=frequency_bits)
    x = np.vstack([data()[0][:5], [[1e30, -1e30, 10.0]], [[10.0, 12.0, 13.0]]])
    expected = [python_totals(model.program, row) for row in x]
    np.testing.assert_array_equal(model.program.totals(x)[:, 0], expected)
    np.testing.assert_array_equal(model.totals(x)[:, 0], expected)


@pytest.mark.parametrize("levels", ["even", "power_of_two"])
@pytest.mark.parametrize("feature_bits", [8, 16])
def test_kernels_give_the_reference_at_every_level_and_for_any_threads(raw, at_every_level, levels, feature_bits):
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


@pytest.mark.parametrize("feature_bits", [8, 16])
@pytest.mark.parametrize("options", [RAW, RAW | {"levels": "power_of_two"}, {"basis": "raw", "features": "linear"}])
def test_the_error_of_integers_is_within_its_bound(options, feature_bits):
    x, y = data()
    model = fitted(DirectRegressor(**options), x, y).quantize(8, arithmetic="integer", feature_bits=feature_bits)
    rows = x.mean(axis=0) + np.random.default_rng(2).uniform(-4.9, 4.9, (400, 3)) * x.std(axis=0)
    error = np.abs(model.functions(rows) - model.using("float").functions(rows)).max(axis=(0, 2))
    assert (error <= model.rounding_bound()).all()
    # The bound adds up worst cases: it is not much beyond what a few hundred terms can do.
    assert (model.rounding_bound() < 200 * error).all()
    mean, std = model.predict(rows, return_std=True)
    exact_mean, exact_std = model.using("float").predict(rows, return_std=True)
    assert (np.abs(mean - exact_mean) <= model.rounding_bound()).all()
    np.testing.assert_allclose(std, exact_std, rtol=1e-3 if feature_bits == 16 else 0.15)


@pytest.mark.parametrize("feature_bits", [8, 16])
@pytest.mark.parametrize("features", ["fourier", "linear"])
@pytest.mark.parametrize(
    "levels", [[-1.0, 0.003, 1.0], [-1.0, -0.5, -0.003, 0.003, 0.5, 1.0], [-0.9, -0.31, 0.0, 0.0029, 0.17]]
)
def test_the_error_is_within_its_bound_for_levels_of_any_values(features, levels, feature_bits):
    x, y = data()
    y = y if len(levels) > 3 else 0.003 * x[:, 0]  # small weights: the tiny level is the best one of three
    options = {"features": features, "basis": "raw", "n_features": 40, "rank_inputs": False, "levels": [levels]}
    model = fitted(DirectRegressor(**options), x, y)
    rows = x.mean(axis=0) + np.random.default_rng(3).uniform(-7.99, 7.99, (1000, 3)) * x.std(axis=0)
    for method in ("draw", "most_probable"):
        quantised = quantize(model, 4, method, feature_bits=feature_bits, frequency_bits=8)
        assert features == "linear" or len(quantised.program.groups) > 1
        error = np.abs(quantised.functions(rows) - quantised.using("integer").functions(rows)).max(axis=(0, 2))
        assert (error <= quantised.rounding_bound()).all()


def test_inputs_of_unequal_amplitudes_are_within_the_bound(raw):
    x = data()[0]
    model = quantize(raw, 4, "draw", frequency_bits=8)
    features = replace(model.basis.features.map, linear_scale=np.array([1.0, 0.7, 0.01]))
    model = replace(model, basis=replace(model.basis, features=replace(model.basis.features, map=features)))
    assert sum(g.kind == "linear" for g in model.program.groups) == len(model.program.linear) > 1
    rows = x.mean(axis=0) + np.random.default_rng(4).uniform(-7.99, 7.99, (400, 3)) * x.std(axis=0)
    np.testing.assert_array_equal(model.totals(rows), model.program.totals(rows))
    error = np.abs(model.functions(rows) - model.using("integer").functions(rows)).max(axis=(0, 2))
    assert (error <= model.rounding_bound()).all()


def test_levels_that_are_all_zero_are_zeros():
    for levels in ([0.0], [0.0, 0.0, 0.0]):
        integers, step = integer_levels(np.array(levels))
        assert not integers.any() and step == 1.0


def test_moments_and_intervals_in_integers_are_those_of_the_functions(raw):
    x = data()[0]
    model = quantize(raw, 16, X=x, arithmetic="integer")
    functions = model.functions(x)[:, 0]
    mean, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(mean, functions.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(std, np.sqrt(functions.var(axis=1) + model.noise[0]), rtol=1e-6)
    lower, upper = model.predict_interval(x, 0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6448536 * std, rtol=1e-4)
    np.testing.assert_allclose((upper + lower) / 2, mean, rtol=1e-12)
    unit = model.program.scale[0] * 16
    got = model.predict_quantiles_of_functions(x, 0.3)
    np.testing.assert_allclose(got, np.quantile(functions, 0.3, axis=1), atol=abs(unit) + 1e-4 * functions.std())
    np.testing.assert_allclose(model.predict_distribution(x).std, std, rtol=1e-6)


@pytest.mark.parametrize("target", ["one", "two", "sign", "three"])
def test_intervals_in_integers_are_those_of_the_float_path(target):
    x, y = data(100)
    targets = {"one": y, "two": np.c_[y, -5 * y**2], "sign": y > y.mean(), "three": np.digitize(y, [2.5, 4])}[target]
    classes = target in ("sign", "three")
    estimator = DirectClassifier(**RAW) if classes else DirectRegressor(**RAW)
    model = fitted(estimator, x, targets).quantize(16, X=x, levels="even")
    integer, bound = model.using("integer"), model.using("integer").rounding_bound()
    bound = bound[0] if model.one_dimensional else bound
    gaussian = "predict_logit_interval" if classes else "predict_interval"
    moments = "predict_logit" if classes else "predict"
    for level in (1e-9, 0.3, 0.9, 0.999, np.nextafter(1.0, 0.0)):
        # A probability below is rounded to 2^-16, 15 gaps between samples are at most their range.
        extent = model.functions(x).max(axis=2) - model.functions(x).min(axis=2)
        slack = 15 * 2.0**-17 * (extent[:, 0] if model.one_dimensional else extent) + 2 * bound
        low, high = integer.predict_function_interval(x, level)
        for got, wanted in zip((low, high), model.predict_function_interval(x, level), strict=True):
            assert got.shape == wanted.shape and (np.abs(got - wanted) <= slack).all()
        assert (low <= high).all()
        for own in (model, integer):
            mean, std = getattr(own, moments)(x, return_std=True)
            lower, upper = getattr(own, gaussian)(x, level)
            assert lower.shape == mean.shape
            np.testing.assert_allclose((upper + lower) / 2, mean, rtol=1e-9, atol=1e-9)
            half = half_width(level) * std
            np.testing.assert_allclose((upper - lower) / 2, half, rtol=1e-3, atol=2e-5 * std.max())
    for own in (model, integer):  # all but the whole range of the samples
        low, high = own.predict_function_interval(x, np.nextafter(1.0, 0.0))
        functions = own.functions(x)
        np.testing.assert_allclose(low, own._shape(functions.min(axis=2)), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(high, own._shape(functions.max(axis=2)), rtol=1e-9, atol=1e-9)
    for level in (0.0, 1.0, np.nan):
        for name in (gaussian, "predict_function_interval"):
            with pytest.raises(ValueError, match="level must be"):
                getattr(integer, name)(x, level)


def test_what_could_overflow_is_refused(raw):
    program = quantize(raw, 4).program
    assert program.prove().squares < 2**63
    wide = replace(program, multipliers=np.full(15, 2**15, dtype=np.int32))
    with pytest.raises(AccumulatorOverflowError, match="an accumulator must stay below 2147483648, but could reach"):
        wide.prove()
    with pytest.raises(AccumulatorOverflowError, match="sum of squares"):
        replace(program, noise=np.array([2**63 - 1], dtype=np.uint64)).prove()
    with pytest.raises(AccumulatorOverflowError):
        IntegerEngine(wide)


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
        feature_bits=16,
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
    engine = IntegerEngine(program)
    assert at_every_level(lambda: engine.totals(rows)).ravel().tolist() == [INT32_MAX, -INT32_MAX]
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
def test_numbers_of_a_program_that_leave_their_types_are_refused(change, message):
    program = linear_program([1, 1], [32767, 32767])
    assert program.prove().total == 65534
    with pytest.raises(AccumulatorOverflowError, match=message):
        replace(program, **change).prove()


def test_counts_of_a_sensor_reach_the_same_inputs(raw):
    program = quantize(raw, 4).program
    x = np.round(data()[0] * 100) / 100
    counts = np.rint(100 * x + 7)
    raw_inputs = RawInputs.of(program, 100.0, 7.0)
    assert np.abs(raw_inputs.quantise(counts) - program.quantise_inputs(x)).max() <= 45  # half a count, 4096 a sd
    fine = RawInputs.of(program, 4096.0)
    assert np.abs(fine.quantise(np.rint(4096 * x)) - program.quantise_inputs(x)).max() <= 4
    assert (np.abs(raw_inputs.origin.astype(np.int64)) + raw_inputs.reach <= 2**30).all()
    assert (np.abs(raw_inputs.multiplier) <= 2**30).all() and (np.abs(raw_inputs.offset) <= 2**29).all()
    assert (raw_inputs.shift <= 45).all()
    assert np.abs(raw_inputs.quantise(np.full((1, 3), 2**31 - 1))).max() <= 32767


@pytest.mark.parametrize("counts_per_unit", [[1.0, 1000.0], [-1.0, 2.0**24], [0.7, 3.1e7]])
@pytest.mark.parametrize("zero", [0.0, 0.4, -7.0])
def test_counts_however_coarse_or_fine_are_exact_but_for_the_rounding_of_inputs(counts_per_unit, zero):
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.integers(0, 2, 200), rng.standard_normal(200)]).astype(float)
    model = fitted(DirectRegressor("linear", basis="raw", rank_inputs=False), x, x[:, 0] + x[:, 1])
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


@pytest.mark.parametrize("offset", [1e6, 1e12, 1e14])
def test_the_bound_holds_beside_a_large_offset(raw, offset):
    model = quantize(raw, 4, "draw")
    model = replace(model, offset=np.array([offset]))
    rows = data()[0]
    integer = model.using("integer")
    assert (np.abs(model.functions(rows) - integer.functions(rows)).max() <= model.rounding_bound()).all()
    assert (np.abs(model.predict(rows) - integer.predict(rows)).max() <= model.rounding_bound()).all()


# --- samples


def test_matched_samples_do_not_depend_on_how_many_weights_are_held_at_once(monkeypatch):
    rng = np.random.default_rng(3)
    weights = FactorizedCategorical(np.linspace(-3, 3, 7)[None], rng.dirichlet(np.ones(7), 20))
    whole = matched_samples(weights, 8, np.random.default_rng(0))
    monkeypatch.setattr("pydirect.quantized.samples.MOST_LOSSES", 3 * 7 * 8)
    np.testing.assert_array_equal(matched_samples(weights, 8, np.random.default_rng(0)), whole)


def test_samples_that_match_moments_have_the_mean_of_the_posterior():
    rng = np.random.default_rng(3)
    weights = FactorizedCategorical(np.linspace(-3, 3, 15)[None], rng.dirichlet(np.full(15, 0.4), 200))
    codes = matched_samples(weights, 16, rng)
    values = weights.values(codes)
    step = 6 / 14
    assert np.abs(values.mean(axis=0) - weights.mean).max() <= step / 16
    assert np.sqrt(np.mean((values.std(axis=0) - weights.std) ** 2)) < 0.1
    assert (np.take_along_axis(weights.q, codes.T.astype(np.intp), axis=1) > 0).all()


def test_rounding_to_levels_nearly_keeps_functions_and_their_mean():
    rng = np.random.default_rng(4)
    phi = rng.standard_normal((300, 8)) @ rng.standard_normal((8, 40)) / 8 + 0.05 * rng.standard_normal((300, 40))
    metric = phi.T @ phi + 1e-2 * np.eye(40)
    targets, levels = rng.standard_normal((8, 40)), np.linspace(-3, 3, 15)
    values = levels[round_to_levels(targets, levels, metric)]
    nearest = levels[np.abs(targets[:, :, None] - levels).argmin(axis=2)]

    def error(w):
        return np.sqrt(np.mean((phi @ (w - targets).T) ** 2))

    assert error(values) < 0.5 * error(nearest)
    assert np.abs(phi @ (values - targets).mean(axis=0)).mean() < 0.25 * error(values)


@pytest.mark.parametrize("method", ["draw", "moments", "most_probable"])
def test_every_method_makes_samples_of_the_posterior(raw, decorrelated, method):
    x, _ = data()
    for model in (raw, decorrelated):
        quantised = quantize(model, 16, method, X=x)
        assert quantised.n_samples == (1 if method == "most_probable" else 16)
        mean, std = model.predict(x, return_std=True)
        got, got_std = quantised.predict(x, return_std=True)
        epistemic = np.sqrt(std**2 - model.noise_variance_)
        assert np.sqrt(np.mean((got - mean) ** 2)) < {"draw": 1.0, "moments": 0.25, "most_probable": 4.0}[
            method
        ] * np.sqrt(np.mean(epistemic**2))
        if method == "moments":
            np.testing.assert_allclose(got_std.mean(), std.mean(), rtol=0.03)


def test_levels_of_outputs_are_one_table():
    table = np.array([-1.0, 1e-15, 1.0])
    np.testing.assert_array_equal(shared_levels([table, table * (1 + 1e-8)]), [-1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="copies of one table"):
        shared_levels([table, table**3 * 1.01])


def test_float_predictions_are_those_of_the_weights(raw):
    x, _ = data()
    model = quantize(raw, 8, "draw")
    phi, _ = model.basis.transform(x)
    np.testing.assert_allclose(model.functions(x)[:, 0], model.offset + phi @ model.weights[0].T, rtol=1e-10)


def test_rounded_levels_serve_a_decorrelated_posterior(decorrelated):
    x, _ = data()
    for levels in ("even", "power_of_two"):
        model = quantize(decorrelated, 16, X=x, levels=levels, arithmetic="integer")
        mean, std = decorrelated.predict(x, return_std=True)
        got, got_std = model.predict(x, return_std=True)
        assert np.sqrt(np.mean((got - mean) ** 2)) < 0.05 * std.mean()
        np.testing.assert_allclose(got_std.mean(), std.mean(), rtol=0.05)


def test_basis_functions_without_weights_are_dropped():
    x, y = data()
    model = fitted(DirectRegressor(**RAW, prior=SpikeAndSlabPrior(0.99)), x, y)
    quantised = quantize(model, 4, "draw")
    assert quantised.packed.shape[0] < 80
    assert quantised.program.n_frequencies == quantised.basis.features.map.n_frequencies < 40
    report = quantised.report()
    assert report["n_nonzero"] == (quantised.weights != 0).sum()
    assert report["bytes"]["total"] == quantised.n_bytes == sum(v for k, v in report["bytes"].items() if k != "total")
    exact = quantize(model, 4, "draw", layout="dense")
    np.testing.assert_array_equal(exact.functions(x), quantised.functions(x))


@pytest.mark.parametrize("target", ["linear", "constant"])
def test_models_need_no_frequency(target, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 3))
    y = 2 * x[:, 0] - x[:, 1] + 0.01 * rng.standard_normal(120) if target == "linear" else np.full(120, 3.0)
    prior = {"prior": SpikeAndSlabPrior(0.999)} if target == "linear" else {}
    model = quantize(fitted(DirectRegressor(**RAW | {"n_features": 24} | prior), x, y), 4, "most_probable")
    integer = model.using("integer")
    assert integer.program.n_frequencies == 0
    np.testing.assert_array_equal(integer.totals(x), integer.program.totals(x))
    np.testing.assert_allclose(integer.predict(x), model.predict(x), atol=float(model.rounding_bound()[0]))
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.25
    integer.save(tmp_path / "m")
    np.testing.assert_array_equal(load_quantized(tmp_path / "m").predict(x), integer.predict(x))


@pytest.mark.parametrize("target", ["linear", "constant"])
def test_budgets_for_targets_that_need_no_frequency(target):
    x = np.random.default_rng(0).standard_normal((60, 2))
    y = 2 * x[:, 0] - x[:, 1] + 0.01 * x[:, 0] ** 2 if target == "linear" else np.full(60, 3.0)
    model = fit_within(DirectRegressor(), x, y, max_nonzero=3, n_samples=2)
    assert np.isfinite(model.predict(x)).all() and np.isfinite(model.using("float").predict(x)).all()
    if target == "constant":
        np.testing.assert_allclose(model.predict(x), 3.0)


def test_data_frames_must_have_the_columns_of_the_fit_in_their_order(tmp_path):
    pandas = pytest.importorskip("pandas")
    x, y = data(60)
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = quantize(fitted(DirectRegressor(**RAW), frame, y), 4, X=frame)
    model.save(tmp_path / "m")
    for own in (model, model.using("integer"), load_quantized(tmp_path / "m")):
        assert own.feature_names == ("a", "b", "c")
        np.testing.assert_array_equal(own.predict(frame), own.predict(x))
        with pytest.raises(ValueError, match=r"X must have the columns \['a', 'b', 'c'\] in this order, got \['c'"):
            own.predict(frame[["c", "b", "a"]])
    assert fit_within(DirectRegressor(), frame, y, max_nonzero=4, n_samples=2).feature_names == ("a", "b", "c")


# --- other estimators


def test_several_outputs_share_basis_functions():
    x, y = data()
    for options in (RAW, {"features": "fourier", "n_features": 40}, {"n_features": 40}):
        model = fitted(DirectRegressor(**options), x, np.stack([y, 100 * y[::-1] + 5], axis=1))
        quantised = quantize(model, 16, X=x)
        mean, std = model.predict(x, return_std=True)
        got, got_std = quantised.predict(x, return_std=True)
        assert got.shape == (160, 2)
        assert (np.abs(got - mean).mean(axis=0) < 0.2 * std.mean(axis=0)).all()
        np.testing.assert_allclose(got_std.mean(axis=0), std.mean(axis=0), rtol=0.05)
        if options is RAW:
            integer = quantised.using("integer")
            np.testing.assert_array_equal(integer.totals(x), integer.program.totals(x))
            np.testing.assert_allclose(integer.predict(x), got, atol=1e-2 * std.max())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_keep_their_probabilities(n_classes):
    x, y = data(80)
    labels = np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))]
    for options in (RAW, {"n_features": 30}):
        model = fitted(DirectClassifier(**options), x, labels)
        quantised = model.quantize(16, X=x)
        probabilities = quantised.predict_proba(x)
        assert np.abs(probabilities - model.predict_proba(x)).mean() < 0.05
        assert (quantised.predict(x) == model.predict(x)).mean() > 0.93
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        if options is RAW:
            integer = quantised.using("integer")
            assert np.abs(integer.predict_proba(x) - probabilities).max() < 1e-2
            assert (integer.predict(x) == quantised.predict(x)).mean() > 0.98
            logit, std = integer.predict_logit(x, return_std=True)
            assert logit.shape == std.shape == ((80,) if n_classes == 2 else (80, 3))


def test_networks_run_their_samples_in_floating_point():
    x, y = data()
    model = fitted(QuadraticBNNRegressor(hidden_layer_sizes=(4,), max_iter=30, n_restarts=1), x, y)
    quantised = quantize(model, 32)
    mean, std = model.predict(x, return_std=True)
    got, got_std = quantised.predict(x, return_std=True)
    assert np.abs(got - mean).mean() < 0.5 * std.mean()
    np.testing.assert_allclose(got_std.mean(), std.mean(), rtol=0.2)
    values = model.posterior_.weights.values(quantised.codes.T)
    expected = model.posterior_.sample_functions(model._inputs(x), values)
    np.testing.assert_allclose(quantised.functions(x)[:, 0], model.y_mean_ + model.y_scale_ * expected, rtol=1e-6)
    with pytest.raises(IntegerArithmeticError, match="quantise with X="):
        quantised.using("integer")


NETWORKS = {
    "one layer": {"hidden_layer_sizes": (4,)},
    "two layers": {"hidden_layer_sizes": (4, 3)},
    "three layers, shared levels, no bias": {
        "hidden_layer_sizes": (2, 1, 1),
        "n_regrids": 0,
        "bias": False,
        "n_levels": 4,
        "max_iter": 15,
    },
    "two layers, shared levels": {"hidden_layer_sizes": (5, 3), "n_regrids": 0, "whiten": False, "n_levels": 7},
}


@pytest.fixture(scope="module")
def network():
    """Function from the name of a network to it, fitted to two targets that follow three of four columns."""
    found = {}

    def get(name):
        if name not in found:
            x, y = data()
            x, y = np.c_[x, np.ones(len(x))], np.c_[y, 0.1 * (x[:, 0] - 10) ** 2 - 3]
            found[name] = fitted(QuadraticBNNRegressor(**{"max_iter": 40, "n_restarts": 1} | NETWORKS[name]), x, y), x
        return found[name]

    return get


def python_network(program, x):
    """Steps 1 to 3 of a network in Python's integers, one row."""

    def rounded(v, shift):
        size = (abs(v) + (2**shift >> 1)) >> shift
        return size if v >= 0 else -size

    def cut(v):
        return max(min(v, 32767), -32767)

    q = python_inputs(program, x)
    z = []
    for k, row in enumerate(program.rotation.tolist()):
        total = int(program.rotation_offset[k]) + sum(r * qi for r, qi in zip(row, q, strict=True))
        assert abs(total) < 2**62
        z.append(cut(rounded(total, int(program.rotation_shift[k]))))
    totals = []
    for column, codes in enumerate(program.codes.T.tolist()):
        output, weight, state = column // program.n_samples, 0, z
        for layer, (fan_out, fan_in) in enumerate(program.shape.layers):
            inputs = [*state, int(program.ones[layer])] if program.shape.bias else state
            state = []
            for _ in range(fan_out):
                acc = 0
                for value in inputs:
                    w = int(program.multipliers[codes[weight]])
                    if program.centre is not None:
                        w = int(program.centre[weight, output]) + int(program.spread[weight, output]) * w
                    acc, weight = acc + w * value, weight + 1
                assert abs(acc) <= program.prove().accumulators[layer] < 2**31 and len(inputs) == fan_in
                state.append(acc)
            if layer < program.shape.depth:
                scale, shift = int(program.rescale[layer]), int(program.rescale_shift[layer])
                state = [rounded(cut(rounded(a * scale, shift)) ** 2, 15) for a in state]
        totals += state
    return totals


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_integers_are_those_of_unbounded_integers(network, name):
    model, x = network(name)
    quantised = quantize(model, 3, X=x, arithmetic="integer")
    program = quantised.program
    assert (program.centre is None) == ("shared" in name) and program.prove().total < 2**31
    rows = np.vstack([x[:3], x[:3] + 5, x[:2] * 1e20, -x[:1] * 1e27])
    expected = [python_network(program, row) for row in rows]
    np.testing.assert_array_equal(program.totals(rows).reshape(len(rows), -1), expected)
    np.testing.assert_array_equal(quantised.totals(rows), program.totals(rows))
    for per_unit in (2.0, 1e6):  # from coarse to finer than the rounding of inputs
        counts = np.rint(per_unit * x[:, program.columns] - 7)
        q = RawInputs.of(program, per_unit, -7).quantise(counts)
        exact = ((counts + 7) / per_unit - program.origin) * program.multiplier.astype(float)
        assert np.abs(q - exact).max() <= 2.5
    with pytest.raises(ValueError, match="counts_per_unit must be larger"):
        RawInputs.of(program, 1e-3)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_error_of_networks_in_integers_is_within_its_bound(network, name):
    model, x = network(name)
    quantised = quantize(model, 4, "draw", X=x, arithmetic="integer")
    exact = quantised.using("float")
    rows = x + np.random.default_rng(5).standard_normal(x.shape) * np.repeat([0.0, 1.0], len(x) // 2)[:, None]
    inside = quantised.in_range(rows)
    assert inside[: len(x) // 2].all() and not quantised.in_range(x + 1e4).any()
    error = np.abs(quantised.functions(rows) - exact.functions(rows)).max(axis=2)
    bound = quantised.rounding_bound(rows)
    assert (error <= bound)[inside].all() and (bound <= quantised.rounding_bound() * (1 + 1e-12))[inside].all()
    # The bound adds up worst cases: at a row it is not much beyond what a few dozen terms can do.
    assert bound[inside].max() < 100 * error[inside].max()
    assert error[: len(x) // 2].max() < 0.02 * model.y_scale_.min()
    (mean, std), (float_mean, float_std) = (m.predict(rows, return_std=True) for m in (quantised, exact))
    assert (np.abs(mean - float_mean) <= bound)[inside].all()
    np.testing.assert_allclose(std[: len(x) // 2], float_std[: len(x) // 2], rtol=0.02)
    for level, interval in ((0.8, "predict_interval"), (0.5, "predict_function_interval")):
        ends = zip(getattr(quantised, interval)(x, level), getattr(exact, interval)(x, level), strict=True)
        assert all((np.abs(own - other) < 0.05 * model.y_scale_).all() for own, other in ends)


def test_samples_of_networks_have_the_moments_of_predictions_at_rows(network):
    model, x = network("two layers")
    with_rows, without = quantize(model, 6, X=x), quantize(model, 6)
    mean, variance = model._latent(x, True)

    def loss(quantised):
        functions = (quantised.functions(x) - model.y_mean_[:, None]) / model.y_scale_[:, None]
        m, sd = functions.mean(axis=2), functions.std(axis=2)
        return (6 * (m - mean) ** 2 + (sd - np.sqrt(variance)) ** 2).mean(axis=0)

    assert (loss(with_rows) < 0.7 * loss(without)).all()
    # No weight's own samples change.
    np.testing.assert_array_equal(np.sort(with_rows.weights, axis=1), np.sort(without.weights, axis=1))


@pytest.mark.parametrize(
    "estimator",
    [
        DirectRegressor("fourier", 30, basis="raw", rank_inputs=False),
        QuadraticBNNRegressor((3,), max_iter=20, n_restarts=1),
    ],
    ids=["direct", "network"],
)
def test_columns_that_single_precision_does_not_hold_are_named(estimator):
    x, y = data(60)
    x[:, 0] += 3e8
    model = fitted(estimator, x, y)
    with pytest.warns(IntegerArithmeticWarning, match=r"column 0 by up to .*subtract an origin") as caught:
        quantize(model, 4, X=x, arithmetic="integer")
    assert caught[0].filename == __file__
    quantize(model, 4, X=x)  # floating point is told nothing


def test_rows_that_integers_cut_off_are_counted_and_their_column_named(raw):
    x = data()[0][:9]
    x[4, 1] += 100
    with pytest.warns(IntegerArithmeticWarning, match="at 1 of 9 rows of X: column 1 is beyond the range of integers"):
        quantize(raw, 4, X=x, arithmetic="integer")


def test_bounds_at_rows_of_other_models_are_the_same_everywhere(raw):
    model, x = quantize(raw, 4, arithmetic="integer"), data()[0]
    np.testing.assert_array_equal(model.rounding_bound(x[:3]), np.tile(model.rounding_bound(), (3, 1)))
    assert model.in_range(x).all() and not model.in_range(x + 1e3).any()


def test_networks_that_integers_do_not_hold_name_the_layer(network):
    model, x = network("two layers, shared levels")
    quantised = quantize(model, 3, X=x)
    program = quantised.program
    with pytest.raises(AccumulatorOverflowError, match="an accumulator of layer 1 must stay below 2147483648"):
        replace(program, multipliers=np.full(7, 2**15, dtype=np.int32)).prove()
    for change, message in (
        ({"ones": program.ones + 2**15}, "ones must be at most 32767"),
        ({"rescale": program.rescale + 2**31}, "rescale must be at most 2147483647"),
        ({"rotation": np.full_like(program.rotation, 2**31 - 1)}, "entries of the rotation must be at most"),
        ({"limit": program.limit + 1}, "limit must be at most 1073741824"),
        ({"rotation_offset": np.full_like(program.rotation_offset, -(2**63))}, f"rotation_offset must .* {2**63}"),
    ):
        with pytest.raises(AccumulatorOverflowError, match=message):
            replace(program, **change).prove()
    basis = quantised.basis
    for change, message in (
        ({"feature_bits": 8}, "feature_bits must be 16 for a network"),
        ({"basis": replace(basis, reach=basis.reach * [1, 1, 1e4])}, "inputs of layer 3 below 32767"),
        ({"basis": replace(basis, matrix=basis.matrix * 1e20)}, "nearly multiples of each other"),
        ({"spread": quantised.spread * 1e12}, "do not hold the weights of layer 1"),
        ({"scale": quantised.scale * 1e-200}, "scale y"),
    ):
        with pytest.raises(IntegerArithmeticError, match=message):
            replace(quantised, **change).using("integer")
    other = quantize(network("one layer")[0], 3, X=x)
    wide = replace(other, levels=other.levels * np.array([1, 1.01] + [1] * (len(other.levels) - 2)))
    assert np.abs(wide.program.multipliers).max() == 127  # levels that are not even are rounded


def test_nystroem_features_keep_the_variance_between_landmarks():
    x, y = data()
    model = fitted(DirectRegressor(n_features=40), x, y)
    far = x + 30
    np.testing.assert_allclose(
        quantize(model, 16, X=x).predict(far, return_std=True)[1], model.predict(far, return_std=True)[1], rtol=0.1
    )


def test_models_without_an_integer_form_say_what_to_do():
    x, y = data()
    for options, arguments, message in (
        ({"n_features": 20}, {}, "levels that all weights share: quantise with levels='even', or fit with basis='raw'"),
        (RAW | {"rank_inputs": True}, {}, "fit with rank_inputs=False"),
        ({"basis": "raw", "features": "polynomial"}, {}, "integers need features='fourier', 'linear'"),
        ({"n_features": 20}, {"levels": "even", "X": x}, "let pydirect.fit_within choose"),
    ):
        model = fitted(DirectRegressor(**options), x, y)
        with pytest.raises(IntegerArithmeticError, match=message):
            quantize(model, 4, arithmetic="integer", **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"n_samples": 257}, "n_samples must be at most 256"),
        ({"random_state": -1}, "random_state must be a Generator, an integer of at least 0 or None, got -1"),
        ({"levels": "even", "n_levels": 4}, "n_levels must be odd"),
        ({"X": np.zeros((0, 3))}, r"X must have shape .* with n_rows at least 1, got \(0, 3\)"),
        ({"method": "mean"}, "method must be one of"),
        ({"levels": "odd"}, "levels must be one of"),
        ({"levels": "even"}, "X must be given"),
        ({"n_levels": 7}, "n_levels must come with levels="),
        ({"arithmetic": "int"}, "arithmetic must be one of"),
        ({"feature_bits": 4}, "feature_bits must be 8 or 16"),
        ({"frequency_bits": 4}, "frequency_bits must be"),
        ({"X": np.zeros((3, 2))}, "X must have shape"),
    ],
)
def test_arguments_are_checked(raw, options, message):
    with pytest.raises(ValueError, match=message):
        quantize(raw, **options)


# --- files


def test_saved_models_predict_the_same_bits(raw, decorrelated, tmp_path):
    x, y = data()
    network = fitted(QuadraticBNNRegressor(hidden_layer_sizes=(3,), max_iter=10, n_restarts=1), x, y)
    classifier = fitted(DirectClassifier(n_features=20), x, np.where(y > 1, "yes", "no"))
    for k, model in enumerate(
        (
            quantize(raw, 8, arithmetic="integer"),
            quantize(decorrelated, 8),
            quantize(fitted(DirectRegressor(n_features=20), x, y), 4),
            quantize(network, 4, X=x, arithmetic="integer"),
            quantize(network, 4),
            quantize(classifier, 4),
            quantize(fitted(DirectRegressor(basis="raw", features="polynomial"), x, y), 4),
        )
    ):
        path = tmp_path / f"{k}.pydirect"
        model.save(path)
        again = load_quantized(path)
        assert type(again) is type(model) and again.arithmetic == model.arithmetic
        np.testing.assert_array_equal(again.functions(x), model.functions(x))
        if k < 5:
            np.testing.assert_array_equal(again.predict(x, return_std=True), model.predict(x, return_std=True))
        else:
            np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_models_are_pickled_after_predictions(raw):
    x = data()[0]
    for arithmetic in ("float", "integer"):
        model = quantize(raw, 4, arithmetic=arithmetic)
        expected = model.predict(x)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), expected)


def test_damaged_files_are_refused_whatever_was_done_to_them(raw, tmp_path):
    path = tmp_path / "model.pydirect"
    quantize(raw, 4, arithmetic="integer").save(path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for k in range(150):
        damaged = bytearray(whole)
        if k % 3 == 0:
            damaged = damaged[: rng.integers(len(whole))]
        elif k % 3 == 1:
            damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        else:
            damaged.insert(int(rng.integers(len(whole))), int(rng.integers(256)))
        path.write_bytes(bytes(damaged))
        with pytest.raises(FileFormatError):
            load_quantized(path)


def test_whole_files_whose_contents_make_no_model_are_refused(raw, tmp_path):
    path = tmp_path / "model.pydirect"
    quantize(raw, 4, arithmetic="integer", layout="dense").save(path)
    document = read(path, "pydirect.QuantizedRegressor")

    def changed(header=(), arrays=()):
        new_header = {**document.header, **dict(header)}
        write(path, document.kind, new_header, {**document.arrays, **dict(arrays)})
        with pytest.raises(FileFormatError, match="do not make a model"):
            load_quantized(path)

    packed = document.header["packed"]
    for change in ({"shape": [3, 4]}, {"shape": [2**20, 2**30]}, {"bits": 5}, {"layout": "thin"}, {"zero": 3}):
        changed({"packed": {**packed, **change}})
    changed({"feature_bits": 12})
    for change in ({"feature_bits": 16.0}, {"frequency_bits": 8.0}, {"n_features_in": 3.0}, {"one_dimensional": 1}):
        changed(change)
    for names in (["a"], ["a", "b", 3], "abc"):
        changed({"feature_names": names})
    basis = document.header["basis"]
    features = {**basis["features"], "map": {**basis["features"]["map"], "kind": "linear"}}
    changed({"basis": {**basis, "features": features}})
    changed({"n_features_in": 7})
    changed(arrays={"levels": document.arrays["levels"][:3]})
    changed(arrays={"scale": np.array([np.nan])})
    changed(arrays={"noise": np.array([-1.0])})
    changed(arrays={"basis.order": document.arrays["basis.order"] + 10_000})
    changed(arrays={"levels": document.arrays["levels"] * 1e3 + 1})


def test_files_whose_networks_integers_do_not_hold_are_refused(network, tmp_path):
    path, (model, x) = tmp_path / "model.pydirect", network("one layer")
    quantize(model, 2, X=x, arithmetic="integer").save(path)
    document = read(path, "pydirect.QuantizedRegressor")
    reach = document.arrays["basis.reach"]
    for changed in (reach[:1], -reach, reach * 1e4, reach[:0], reach.astype(np.float32)):
        write(path, document.kind, document.header, {**document.arrays, "basis.reach": changed})
        with pytest.raises(FileFormatError, match="do not make a model"):
            load_quantized(path)


# --- budgets


def test_a_model_fits_into_its_bytes():
    x, y = data(200)
    model = fit_within(DirectRegressor(), x, y, max_bytes=400)
    assert model.n_bytes <= 400
    assert model.arithmetic == "integer"
    mean, std = model.predict(x, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.5 * y.std()
    np.testing.assert_array_equal(model.totals(x), model.program.totals(x))
    assert 0.5 < np.mean(np.abs(mean - y) < 1.64 * std)
    again = fit_within(DirectRegressor(), x, y, max_bytes=400)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_a_model_keeps_to_its_number_of_weights():
    x, y = data(200)
    model = fit_within(DirectRegressor(), x, y, max_nonzero=12, levels="power_of_two", n_samples=4)
    assert model.report()["n_nonzero"] <= 12 * 4
    assert model.program.powers_of_two
    assert np.sqrt(np.mean((model.predict(x) - y) ** 2)) < 0.7 * y.std()


@pytest.mark.parametrize(("n_levels", "bits"), [(3, 2), (7, 3), (31, 8)])
def test_few_levels_take_few_bits(n_levels, bits):
    x, y = data(60)
    model = fit_within(DirectRegressor(), x, y, max_bytes=600, n_levels=n_levels)
    assert model.packed.bits == bits and len(model.levels) == n_levels
    assert model.packed.n_bytes <= -(-model.codes.size * bits // 8)
    assert model.n_bytes <= 600


def test_more_samples_keep_to_the_number_of_weights():
    x, y = data(100)
    for limit in (4, 12):
        model = fit_within(DirectRegressor(), x, y, max_bytes=1000, max_nonzero=limit, n_levels=31)
        assert model.report()["n_nonzero"] <= limit * model.n_samples
        assert model.n_bytes <= 1000


def test_bytes_that_hold_no_model_are_refused():
    x, y = data(60)
    with pytest.raises(ValueError, match="max_bytes must be at least about"):
        fit_within(DirectRegressor(), x, y, max_bytes=100)
    with pytest.raises(ValueError, match="max_bytes must be at least about"):
        fit_within(DirectClassifier(), x, y > y.mean(), max_bytes=100)
    with pytest.raises(TypeError, match="model must be a DirectRegressor or a DirectClassifier, got Quadratic"):
        fit_within(QuadraticBNNRegressor(), x, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": "x"}, "levels must be one of 'even', 'power_of_two', got 'x'"),
        ({"max_nonzero": 2}, "max_nonzero must be at least 3, got 2"),
        ({"n_samples": 1}, "n_samples must be at least 2, got 1"),
        ({"n_samples": 17}, "n_samples must be at most 16, got 17"),
        ({"feature_bits": "8"}, "feature_bits must be an integer, got '8'"),
        ({"feature_bits": 12}, "feature_bits must be 8 or 16, got 12"),
        ({"frequency_bits": 32}, "frequency_bits must be 8 or 16, got 32"),
    ],
)
def test_budgets_name_the_argument_that_is_wrong(options, message):
    x, y = data(40)
    with pytest.raises((TypeError, ValueError), match=message):
        fit_within(DirectRegressor(), x, y, **options)


def test_several_outputs_share_the_basis_functions_of_a_budget():
    x, y = data(120)
    targets = np.c_[y, 50 + 1e3 * np.cos(x[:, 1] / 2)]
    for limits in ({"max_bytes": 700}, {"max_nonzero": 30, "n_samples": 4}):
        model = fit_within(DirectRegressor(), x, targets, **limits)
        assert model.arithmetic == "integer" and model.n_outputs == 2
        assert model.n_bytes <= limits.get("max_bytes", np.inf)
        assert model.report()["n_nonzero"] <= limits.get("max_nonzero", np.inf) * model.n_samples
        mean, std = model.predict(x, return_std=True)
        assert (np.sqrt(np.mean((mean - targets) ** 2, axis=0)) < 0.5 * targets.std(axis=0)).all()
        covered = np.mean(np.abs(mean - targets) < 1.64 * std, axis=0)
        assert (0.5 < covered).all()
        np.testing.assert_array_equal(model.totals(x), model.program.totals(x))
    x, y = x[:50], y[:50]
    one, column = (fit_within(DirectRegressor(), x, t, max_nonzero=4, n_samples=2) for t in (y, y[:, None]))
    np.testing.assert_array_equal(one.predict(x), column.predict(x)[:, 0])


@pytest.mark.parametrize(
    ("n_classes", "limits"), [(2, {"max_bytes": 600}), (3, {"max_nonzero": 24, "n_samples": 4})], ids=["two", "three"]
)
def test_classes_share_the_basis_functions_of_a_budget(n_classes, limits, tmp_path):
    x, y = data(240)
    edges = np.quantile(y, [0.5] if n_classes == 2 else [0.3, 0.7])
    labels = np.array(["low", "middle", "high"])[np.digitize(y, edges)]
    model = fit_within(DirectClassifier(), x[:160], labels[:160], **limits)
    assert model.arithmetic == "integer" and model.n_outputs == (1 if n_classes == 2 else 3)
    assert model.n_bytes <= limits.get("max_bytes", np.inf)
    assert model.report()["n_nonzero"] <= limits.get("max_nonzero", np.inf) * model.n_samples
    np.testing.assert_array_equal(model.classes, np.unique(labels))
    p = model.predict_proba(x[160:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    right = p[np.arange(80), np.searchsorted(model.classes, labels[160:])]
    assert -np.log(right).mean() < 0.75 * np.log(n_classes)
    assert np.mean(model.predict(x[160:]) == labels[160:]) > 0.8
    np.testing.assert_array_equal(model.totals(x), model.program.totals(x))
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load_quantized(tmp_path / "m").predict_proba(x), model.predict_proba(x))


def test_weights_of_classes_and_rows_count_in_a_budget():
    x, y = data(120)
    labels = (y > np.quantile(y, 0.85)).astype(int)
    plain = fit_within(DirectClassifier(), x, labels, max_bytes=500)
    balanced = fit_within(DirectClassifier(class_weight="balanced"), x, labels, max_bytes=500)
    assert balanced.predict_proba(x)[:, 1].mean() > plain.predict_proba(x)[:, 1].mean() + 0.05
    with pytest.raises(ValueError, match="y must have 120 rows, got 119"):
        fit_within(DirectClassifier(), x, labels[1:])
    with pytest.raises(ValueError, match="at least two classes"):
        fit_within(DirectClassifier(), x, 0 * labels)


def test_weights_that_cancel_are_kept_within_the_lattice():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((250, 4))
    f = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]  # smooth: the evidence asks for large weights
    model = fit_within(DirectRegressor(), x, f + 0.1 * rng.standard_normal(250), max_bytes=1000, n_samples=4)
    assert np.sqrt(np.mean((model.predict(x) - f) ** 2)) < 0.3 * f.std()


@pytest.mark.parametrize("scale", [1e-40, 1e100])
def test_budgets_do_not_depend_on_units(scale):
    x, y = data(60)
    plain = fit_within(DirectRegressor(), x, y, max_bytes=400)
    scaled = fit_within(DirectRegressor(), x, scale * (y - y.mean()), max_bytes=400)
    expected = (plain.predict(x) - y.mean()) * scale
    assert np.sqrt(np.mean((scaled.predict(x) / scale - expected / scale) ** 2)) < 0.5 * y.std()
    assert np.isfinite(scaled.predict(x, return_std=True)[1]).all()


def test_a_target_whose_square_overflows_is_refused():
    x, y = data(60)
    with pytest.raises(ValueError, match="y must vary by less than"):
        fit_within(DirectRegressor(), x, 1e300 * y)


def test_columns_of_extreme_scale_have_an_integer_form_or_a_message():
    x, y = data(60)
    for factor in (1e-40, 1e300):
        with pytest.raises(IntegerArithmeticError, match="single precision"):
            fit_within(DirectRegressor(), x * factor, y, max_bytes=700)


def test_precomputed_columns_keep_to_the_bound_whatever_their_range():
    rng = np.random.default_rng(3)
    phi = rng.standard_normal((120, 4)) * np.array([1e-3, 1.0, 40.0, 3000.0])
    y = phi @ (np.array([1.0, -2.0, 1.5, 0.5]) / phi.std(axis=0)) + 0.1 * rng.standard_normal(120)
    model = fitted(DirectRegressor(features="precomputed", basis="raw"), phi, y)
    with pytest.raises(ValueError, match="X must be given for integers of precomputed columns"):
        model.quantize(8, arithmetic="integer")
    quantised = model.quantize(8, X=phi, levels="even", n_levels=255, arithmetic="integer")
    assert (quantised.input_ranges()[:, 1] >= 2 * np.abs(phi).max(axis=0)).all()
    difference = quantised.functions(phi) - quantised.using("float").functions(phi)
    assert np.abs(difference).max() <= quantised.rounding_bound()[0]
    assert quantised.rounding_bound()[0] < 0.02 * y.std()
    np.testing.assert_array_equal(quantised.totals(phi), quantised.program.totals(phi))


def test_intervals_of_a_level_next_to_one_are_finite(raw):
    x, _ = data()
    model = raw.quantize(8)
    for own in (model, model.using("integer")):
        lower, upper = own.predict_interval(x[:3], np.nextafter(1.0, 0.0))
        mean, std = own.predict(x[:3], return_std=True)
        np.testing.assert_allclose(upper - mean, 8.2924 * std, rtol=1e-3)
        np.testing.assert_allclose(mean - lower, 8.2924 * std, rtol=1e-3)


def test_reports_count_interpolation(raw):
    model = raw.quantize(8)
    wide, narrow = (replace(model, feature_bits=bits).using("integer") for bits in (16, 8))
    f = wide.program.n_frequencies
    assert wide.report()["table_lookups"] == 4 * f
    assert narrow.report()["table_lookups"] == 2 * f
    assert wide.report()["multiplications"] - narrow.report()["multiplications"] == 2 * f


def test_levels_of_powers_of_two_are_chosen_by_name():
    levels = power_of_two_levels(15)
    np.testing.assert_array_equal(levels, -levels[::-1])
    np.testing.assert_array_equal(levels[8:], 3 * 2.0 ** np.arange(-6, 1))
    x, y = data(80)
    model = fitted(DirectRegressor(**RAW, levels="power_of_two"), x, y)
    np.testing.assert_allclose(model.posterior_.weights.levels[0], levels, rtol=1e-12)
    with pytest.raises(ValueError, match="levels must be one of 'even', 'power_of_two'"):
        DirectRegressor(**RAW, levels="odd").fit(x, y)
    with pytest.raises(ValueError, match="odd"):
        power_of_two_levels(8)
