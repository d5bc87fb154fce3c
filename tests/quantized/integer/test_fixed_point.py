"""Results in fixed point: within one count of exact rational arithmetic, and within 32 bits whatever the inputs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pydirect import DirectRegressor, quantize
from pydirect.quantized.errors import AccumulatorOverflowError
from pydirect.quantized.integer.device import FixedPointModel
from pydirect.quantized.integer.fixed_point import FixedResults, largest_counts


@pytest.fixture(scope="module")
def programs(raw, decorrelated, fit, data):
    """Programs with one and two outputs, negative scales, a large offset, 256 samples, and without noise."""
    X, y = data()
    two = fit(DirectRegressor(basis="raw", n_basis_functions=40, rank_inputs=False), X, np.c_[y, 1e4 - 1e3 * y])
    program, other = quantize(raw, 4).program, quantize(two, 7).program
    return [
        program,
        other,
        replace(other, scale=-other.scale),
        replace(program, offset=np.array([-3e6])),
        quantize(decorrelated, 256, "draw", X=X, levels="even").program,
        replace(program, noise=np.zeros(1, dtype=np.uint64)),
        replace(program, scale=1e12 * program.scale, std_scale=1e12 * program.std_scale),
    ]


def extreme(program):
    """Totals at and near the bounds that are proved, and ordinary ones, (n_rows, n_outputs, n_samples)."""
    rng, total = np.random.default_rng(0), program.prove().total
    shape = (program.n_outputs, program.n_samples)
    rows = [np.full(shape, total), np.full(shape, -total), total * rng.choice([-1, 1], shape)]
    rows += [total - rng.integers(0, 100, shape) for _ in range(10)]
    rows += [rng.integers(-total // 10, total // 10, shape) for _ in range(40)]
    return np.array(rows).astype(np.int64)


def counts_of(program, level):
    finest = largest_counts(program, level)
    return [None, finest, finest / 7.3, 2.0 ** np.floor(np.log2(finest)), 1e-4 * finest]


@pytest.mark.parametrize("level", [0.9, 1 - 1e-12])
def test_every_result_is_within_one_count_of_rational_arithmetic(programs, level):
    for program in programs:
        totals = extreme(program)
        sums, roots = program.sums(totals), program.roots(totals)
        widths = program.half_widths(totals, level).astype(np.int64)
        for counts in counts_of(program, level):
            results = FixedResults.of(program, counts, level)
            mean, std, half = results.mean(totals), results.std(totals), results.width(widths)
            for k, exact in enumerate(results.counts_per_unit.tolist()):
                numbers = (Fraction(v) for v in (exact, program.scale[k], program.offset[k], program.std_scale[k]))
                c, scale, offset, std_scale = numbers
                for row in range(len(totals)):
                    assert abs(int(mean[row, k]) - c * (offset + scale * int(sums[row, k]))) <= 1
                    assert abs(int(std[row, k]) - c * std_scale * int(roots[row, k])) <= 1
                    assert abs(int(half[row, k]) - c * std_scale * int(widths[row, k])) <= 1


@pytest.mark.parametrize("level", [0.1, 0.9, 1 - 1e-12])
def test_no_result_leaves_32_bits_at_the_finest_counts(programs, level):
    for program in programs:
        totals, finest = extreme(program), largest_counts(program, level)
        results = FixedResults.of(program, finest, level)
        found = [results.mean(totals), results.std(totals)]
        found += [*results.interval(totals), *results.function_interval(totals)]
        largest = max(int(np.abs(a).max()) for a in found)
        assert largest <= results.prove() <= 2**31 - 1
        with pytest.raises(ValueError, match="output_counts_per_unit must be positive and at most"):
            FixedResults.of(program, 1.01 * finest, level)


def test_intervals_are_those_of_the_model_within_two_counts(programs):
    for program in programs:
        totals, results = extreme(program), FixedResults.of(program)
        pairs = [(results.interval(totals), program.interval(totals, 0.9))]
        pairs += [(results.function_interval(totals), program.function_interval(totals, 0.9))]
        for ends, exact in pairs:
            for end, wanted in zip(ends, exact, strict=True):
                assert np.abs(end - results.counts_per_unit * wanted).max() <= 2 + 1e-6
        np.testing.assert_array_equal(results.functions(totals).shape, totals.shape)


def test_by_default_the_smallest_standard_deviation_has_four_digits(programs):
    program = programs[0]
    results = FixedResults.of(program)
    smallest = results.width(np.sqrt(program.noise.astype(float)))[0]
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
    device = model.fixed_point(output_counts_per_unit=1000)
    mean, std = model.predict(X, return_std=True)
    counts, deviations = device.predict(X)
    assert np.abs(counts[:, 0] - 1000 * mean).max() <= 1 and np.abs(deviations[:, 0] - 1000 * std).max() <= 1
    # A sensor with a thousandth of a unit per count.
    sensor = model.fixed_point(counts_per_unit=1000, zero_count=50)
    rows = np.rint(1000 * X + 50)
    for wrong in (X, rows + 2.0**40):
        with pytest.raises(ValueError, match="X must hold counts, whole numbers of 32 bits"):
            sensor.predict(wrong)
    with pytest.raises(ValueError, match=r"X must have shape \(n_rows, 3\), got \(160,\)"):
        sensor.predict(rows[:, 0])
    step = np.abs(sensor.predict(rows)[0] / sensor.counts_per_unit - mean[:, None]).max()
    assert step <= 0.05 * std.min()


def test_an_offset_beyond_32_bits_is_refused(programs):
    with pytest.raises(ValueError, match="subtract an origin from y"):
        FixedPointModel.of(replace(programs[0], offset=np.array([1e12])))
    with pytest.raises(ValueError, match="scale y"):
        FixedPointModel.of(replace(programs[0], scale=1e50 * programs[0].scale))
