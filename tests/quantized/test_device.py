"""What exported code computes in integers: inputs from counts, results and probabilities in counts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import softmax

from pydirect import DirectRegressor, Fourier, Sequential, quantize
from pydirect.quantized.device import FixedResults, RawInputs, class_probabilities, largest_counts, power_of_two, ratio
from pydirect.quantized.program import AccumulatorOverflowError, half_width


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
    assert np.abs(raw_inputs.quantise(np.full((1, 3), 2**31 - 1))).max() <= program.limit


@pytest.mark.parametrize("counts_per_unit", [[1.0, 1000.0], [-1.0, 2.0**24], [0.7, 3.1e7]])
@pytest.mark.parametrize("zero", [0.0, 0.4, -7.0])
def test_counts_however_coarse_or_fine_are_exact_but_for_the_rounding_of_inputs(fit, counts_per_unit, zero):
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.integers(0, 2, 200), rng.standard_normal(200)]).astype(float)
    model = fit(DirectRegressor("linear", posterior=Sequential(level_scales="own")), x, x[:, 0] + x[:, 1])
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


@pytest.fixture(scope="module")
def programs(raw, decorrelated, fit, data):
    """Programs with one and two outputs, negative scales, a large offset, 256 samples, and without noise."""
    X, y = data()
    two = fit(
        DirectRegressor(features=Fourier(rank_inputs=False), posterior="sequential", n_basis_functions=40),
        X,
        np.c_[y, 1e4 - 1e3 * y],
    )
    program, other = quantize(raw, 4).program, quantize(two, 7).program
    return [
        program,
        other,
        replace(other, scale=-other.scale),
        replace(program, offset=np.array([-3e6])),
        quantize(decorrelated, 256, X=X, levels="even").program,
        replace(program, noise=np.zeros(1, dtype=np.uint32)),
        replace(program, scale=1e12 * program.scale, std_scale=1e12 * program.std_scale),
    ]


def extreme(program):
    """Totals at and near the bounds that are proved, and ordinary ones, (n_rows, n_outputs, n_samples)."""
    rng, total = np.random.default_rng(0), program.prove().sum // program.n_samples
    shape = (program.n_outputs, program.n_samples)
    spread = int(program.largest_deviations().min() << program.deviation_shift) // (4 * program.n_samples)
    rows = [np.full(shape, total), np.full(shape, -total)]
    rows += [total - rng.integers(0, min(spread, 100) + 1, shape) for _ in range(10)]
    rows += [
        rng.integers(-total + spread, total - spread) + rng.integers(-spread, spread + 1, shape) for _ in range(40)
    ]
    return np.array(rows).astype(np.int64)


def counts_of(program, level):
    finest = largest_counts(program, level)
    return [None, finest, finest / 7.3, 2.0 ** np.floor(np.log2(finest)), 1e-4 * finest]


@pytest.mark.parametrize("level", [0.9, 1 - 1e-12])
def test_every_result_is_within_one_count_of_rational_arithmetic(programs, level):
    for program in programs:
        totals = extreme(program)
        sums, roots = program.sums(totals), program.roots(totals)
        z = half_width(level)
        for counts in counts_of(program, level):
            results = FixedResults.of(program, counts, level)
            mean, std, half = results.mean(totals), results.std(totals), results.width(roots, z)
            for k, exact in enumerate(results.counts_per_unit.tolist()):
                numbers = (Fraction(v) for v in (exact, program.scale[k], program.offset[k], program.std_scale[k]))
                c, scale, offset, std_scale = numbers
                for row in range(len(totals)):
                    assert abs(int(mean[row, k]) - c * (offset + scale * int(sums[row, k]))) <= 1
                    assert abs(int(std[row, k]) - c * std_scale * int(roots[row, k])) <= 1
                    assert abs(int(half[row, k]) - c * std_scale * Fraction(z) * int(roots[row, k])) <= 1


@pytest.mark.parametrize("level", [0.1, 0.9, 1 - 1e-12])
def test_no_result_leaves_32_bits_at_the_finest_counts(programs, level):
    for program in programs:
        totals, finest = extreme(program), largest_counts(program, level)
        results = FixedResults.of(program, finest, level)
        found = [results.mean(totals), results.std(totals)]
        found += results.interval(totals, level)
        largest = max(int(np.abs(a).max()) for a in found)
        assert largest <= results.prove() <= 2**31 - 1
        with pytest.raises(ValueError, match=r"output_counts_per_unit must be positive, at most .*, got"):
            FixedResults.of(program, 1.01 * finest, level)


def test_intervals_are_those_of_the_model_within_two_counts(programs):
    for program in programs:
        totals, results = extreme(program), FixedResults.of(program)
        for end, wanted in zip(results.interval(totals, 0.9), program.interval(totals, 0.9), strict=True):
            assert np.abs(end - results.counts_per_unit * wanted).max() <= 2 + 1e-6
        np.testing.assert_array_equal(results.functions(totals).shape, totals.shape)


def test_by_default_the_smallest_standard_deviation_has_four_digits(programs):
    program = programs[0]
    results = FixedResults.of(program)
    smallest = results.width(np.sqrt(2.0**16 * program.noise).astype(np.int64))[0]
    assert 1000 <= smallest < 10000
    assert np.log10(results.counts_per_unit[0]).is_integer()


@pytest.mark.parametrize("counts", [0.0, -1.0, np.nan, [1.0, 2.0]])
def test_counts_are_checked(programs, counts):
    with pytest.raises(ValueError, match="output_counts_per_unit must"):
        FixedResults.of(programs[0], counts)


def test_constants_that_could_overflow_are_not_proved(programs):
    results = FixedResults.of(programs[0])
    with pytest.raises(AccumulatorOverflowError, match="a result must stay below"):
        replace(results, shift=np.zeros(1, dtype=np.uint8)).prove()


def test_a_model_in_fixed_point_agrees_with_its_predictions(raw, data):
    X = data()[0].astype(np.float32).astype(float)
    model = quantize(raw, 8, arithmetic="integer")
    mean, std = model.predict(X, return_std=True)
    for got, wanted in zip(model.on_device().predict(X), (mean, std), strict=True):
        np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-6)
        assert got.dtype == np.float32
    # A sensor with a thousandth of a unit per count.
    sensor = model.on_device(counts_per_unit=1000, zero_count=50)
    rows = np.rint(1000 * X + 50)
    for wrong in (X, rows + 2.0**40):
        with pytest.raises(ValueError, match="X must hold counts, whole numbers of 32 bits"):
            sensor.predict(wrong)
    with pytest.raises(ValueError, match=r"X must have shape \(n_rows, 3\), got \(160,\)"):
        sensor.predict(rows[:, 0])
    step = np.abs(sensor.predict(rows)[0] / sensor.fixed.counts_per_unit - mean[:, None]).max()
    assert step <= 0.05 * std.min()


def test_powers_of_two_are_those_of_real_numbers():
    u = np.concatenate([np.arange(0, 2**18, 7), [2**21, 2**30, 2**40]])
    exact = 2.0 ** (24 - u / 2.0**16)
    assert np.abs(power_of_two(u, 24) - exact).max() <= 1 + 2.2e-6 * 2**24


def test_ratios_are_rounded_to_the_nearest():
    rng = np.random.default_rng(0)
    whole = rng.integers(1, 2**31, 1000)
    part = (whole * rng.random(1000)).astype(np.int64)
    np.testing.assert_array_equal(ratio(part, whole, 15), np.floor(part / whole * 2**15 + 0.5))
    assert ratio(np.array([2**31]), 2**31, 15)[0] == 2**15


@pytest.mark.parametrize("n_classes", [2, 3, 10, 300])
def test_probabilities_are_within_one_count_of_real_numbers(n_classes):
    rng = np.random.default_rng(n_classes)
    logits = rng.standard_normal((60, n_classes - (n_classes == 2), 5)) * np.geomspace(0.1, 100, 60)[:, None, None]
    integers = np.rint(2.0**16 / np.log(2) * logits).astype(np.int64)
    found = class_probabilities(integers, n_classes, 16)
    if n_classes == 2:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        np.testing.assert_array_equal(found.sum(axis=1), 2**15)
    exact = softmax(logits, axis=1).mean(axis=2)
    assert np.abs(found - 2**15 * exact).max() <= 1
    assert found.min() >= 0
    assert np.abs(found.sum(axis=1) - 2**15).max() <= n_classes / 2
